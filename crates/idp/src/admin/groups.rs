//! Group administration: groups and their members.

use std::collections::BTreeSet;

use auth::token::security_event::EventKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::groups::{self as rows, AddMember, DeleteGroup, Deleted, RemoveMember};
use store::names;

use super::{Admin, AdminFault, MAX_ATTEMPTS, Page, UtcTime, check, paging, users::UserView};
use crate::revocations;
use crate::secrets::TagSubject;

/// Members read in one query when a group is deleted.
const BATCH: u32 = 500;

/// Group of users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct GroupView {
    /// Name of the group in rules and tokens.
    pub name: String,
    /// When it was created.
    pub created_at: UtcTime,
}

impl From<rows::GroupRow> for GroupView {
    fn from(group: rows::GroupRow) -> Self {
        Self { name: group.name, created_at: UtcTime(group.created_at) }
    }
}

/// A new group to create.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddGroup {
    /// Name of the group in rules and tokens.
    pub name: String,
}

/// Query parameters of the list of groups and of the members of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListNames {
    /// Only entries after this name.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
}

impl Admin<'_> {
    /// Lists groups, ordered by name.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range or the store fails.
    pub async fn groups(&self, list: &ListNames) -> Result<Page<GroupView>, AdminFault> {
        let limit = paging::limit(list.limit)?;
        let after = list.after.as_deref().unwrap_or_default();
        let groups = self.provider.store().groups(after, limit + 1).await?;
        let views = groups.into_iter().map(GroupView::from).collect();
        Ok(Page::cut(views, limit, |group: &GroupView| group.name.clone()))
    }

    /// Creates a group.
    ///
    /// # Errors
    /// [`AdminFault`] when the name is refused or in use, or the store fails.
    pub async fn add_group(&self, add: AddGroup) -> Result<GroupView, AdminFault> {
        let mut faults = Vec::new();
        let name = check::group_name(&add.name, &mut faults);
        AdminFault::refuse_if_any(faults)?;
        let now = self.now();
        let change = rows::AddGroup { id: self.provider.draw_id()?, name: name.clone(), now };
        self.write(change, self.entry("group.add", target(&name), &Value::Null)).await?;
        Ok(GroupView { name, created_at: UtcTime(now) })
    }

    /// Lists the members of a group, ordered by name.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such group, the limit is out of range or the store fails.
    pub async fn members(&self, group: &str, list: &ListNames) -> Result<Page<UserView>, AdminFault> {
        let limit = paging::limit(list.limit)?;
        let group = &self.group_row(group).await?.name;
        let after = list.after.as_deref().unwrap_or_default();
        let users = self.provider.store().members_of(group, after, limit + 1).await?;
        let views = users.into_iter().map(UserView::from).collect();
        Ok(Page::cut(views, limit, |user: &UserView| user.name.clone()))
    }

    /// Adds a user to a group; an existing member stays. New tokens contain the group.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such group or user, or the store fails.
    pub async fn add_member(&self, group: &str, user_id: &str) -> Result<(), AdminFault> {
        let group = &self.group_row(group).await?.name;
        self.user_row(user_id).await?;
        let change = AddMember { group: group.to_owned(), user_id: user_id.to_owned() };
        self.write(change, self.entry("group.add_member", target(group), &json!({ "user": user_id })))
            .await?;
        Ok(())
    }

    /// Removes a user from a group and revokes the user's tokens, which may contain the group.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such group, user or membership, or the store fails.
    pub async fn remove_member(&self, group: &str, user_id: &str) -> Result<(), AdminFault> {
        let group = &self.group_row(group).await?.name;
        self.user_row(user_id).await?;
        let now = self.now();
        let change = RemoveMember {
            group: group.to_owned(),
            user_id: user_id.to_owned(),
            revocation: revocations::user(
                self.provider,
                (user_id, EventKind::TokenClaimsChange),
                "left a group",
                now,
            ),
            now,
        };
        let entry = self.entry("group.remove_member", target(group), &json!({ "user": user_id }));
        AdminFault::found_if(self.write(change, entry).await?, "member", user_id)
    }

    /// Deletes a group and revokes the tokens of its members.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such group, users keep joining it, or the store fails.
    pub async fn delete_group(&self, group: &str) -> Result<(), AdminFault> {
        let group = &self.group_row(group).await?.name;
        for _ in 0..MAX_ATTEMPTS {
            match self.try_delete_group(group).await? {
                Deleted::Now => return Ok(()),
                Deleted::MembersChanged => {}
                Deleted::Unknown => return Err(AdminFault::not_found("group", group)),
            }
        }
        Err(AdminFault::Conflict(format!("group {group:?} changed concurrently: try again")))
    }

    async fn try_delete_group(&self, group: &str) -> Result<Deleted, AdminFault> {
        let (mut all, mut after) = (BTreeSet::new(), String::new());
        loop {
            let members = self.provider.store().members_of(group, &after, BATCH).await?;
            let Some(last) = members.last() else { break };
            after.clone_from(&last.name);
            all.extend(members.into_iter().map(|user| user.id));
        }
        let (members, now, why) = (all.len(), self.now(), "group deleted");
        let revocations = if self.provider.has_receivers() {
            // Receivers of security events get one event per member.
            let one =
                |id: &String| revocations::user(self.provider, (id, EventKind::TokenClaimsChange), why, now);
            all.iter().map(one).collect()
        } else {
            let tags = all.iter().map(|id| self.tag(TagSubject::User(id))).collect();
            vec![revocations::revoke_issued_so_far(tags, why, now)]
        };
        let change = DeleteGroup { name: group.to_owned(), members: all, revocations, now };
        let entry = self.entry("group.delete", target(group), &json!({ "members": members }));
        self.write(change, entry).await
    }

    /// Reads the group stored under this name or under its normalized form.
    async fn group_row(&self, name: &str) -> Result<rows::GroupRow, AdminFault> {
        let store = self.provider.store();
        if let Some(group) = store.group(name).await? {
            return Ok(group);
        }
        let group = match names::group_name(name) {
            Ok(form) if form != name => store.group(&form).await?,
            Ok(_) | Err(_) => None,
        };
        group.ok_or_else(|| AdminFault::not_found("group", name))
    }
}

fn target(name: &str) -> String {
    format!("group:{name}")
}
