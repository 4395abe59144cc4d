//! Group administration: groups and their members.

use std::borrow::Cow;
use std::collections::BTreeSet;

use auth::token::security_event::EventKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::groups::{self as rows, AddMember, DeleteGroup, Deleted, RemoveMember};

use super::paging::{Listed, Part};
use super::{Admin, AdminFault, MAX_ATTEMPTS, Page, UtcTime, check, users::UserView};
use crate::revocations;
use crate::secrets::TagSubject;

/// Members read in one query when a group is deleted.
const BATCH: u32 = 500;

/// Group of users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct GroupView {
    /// Id of the group; it never changes.
    pub id: String,
    /// Name of the group in rules and tokens.
    pub name: String,
    /// When it was created.
    pub created_at: UtcTime,
}

impl From<rows::GroupRow> for GroupView {
    fn from(group: rows::GroupRow) -> Self {
        Self { id: group.id, name: group.name, created_at: UtcTime(group.created_at) }
    }
}

impl Listed for GroupView {
    fn position(&self) -> String {
        self.name.clone()
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        [&self.name, &self.id].map(Cow::from).into()
    }
}

/// A member of a group. Members are listed in the order of their ids.
struct Member(UserView);

impl Listed for Member {
    fn position(&self) -> String {
        self.0.id.clone()
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        self.0.searched()
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
    /// The `next` value of the previous page.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only entries with this text, in any case, in the name or id, and of members in the email
    /// address. A page of a search looks at 10 000 of them at most, so it may be short although more
    /// follow.
    pub search: Option<String>,
}

impl ListNames {
    fn part(&self) -> Part<'_> {
        Part { search: self.search.as_deref(), limit: self.limit, after: self.after.as_deref() }
    }
}

impl Admin<'_> {
    /// Lists groups, ordered by name.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range or the store fails.
    pub async fn groups(&self, list: &ListNames) -> Result<Page<GroupView>, AdminFault> {
        let store = self.provider.store();
        list.part()
            .read(move |after: String, count| async move {
                let groups = store.groups(&after, count).await?;
                Ok(groups.into_iter().map(GroupView::from).collect())
            })
            .await
    }

    /// Creates a group.
    ///
    /// # Errors
    /// [`AdminFault`] when the name is refused or in use, or the store fails.
    pub async fn add_group(&self, add: AddGroup) -> Result<GroupView, AdminFault> {
        let mut faults = Vec::new();
        let name = check::group_name(&add.name, &mut faults);
        AdminFault::refuse_if_any(faults)?;
        let (id, now) = (self.provider.draw_id()?, self.now());
        let change = rows::AddGroup { id: id.clone(), name: name.clone(), now };
        self.write(change, self.entry("group.add", target(&name), &Value::Null)).await?;
        Ok(GroupView { id, name, created_at: UtcTime(now) })
    }

    /// Lists the members of a group, ordered by id.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such group, the limit is out of range or the store fails.
    pub async fn members(&self, group: &str, list: &ListNames) -> Result<Page<UserView>, AdminFault> {
        let store = self.provider.store();
        let group = self.group_row(group).await?;
        let group = group.name.as_str();
        list.part()
            .read(move |after: String, count| async move {
                let users = store.members_of(group, &after, count).await?;
                Ok(users.into_iter().map(|user| Member(user.into())).collect())
            })
            .await
            .map(|Page { items, next }| Page {
                items: items.into_iter().map(|Member(user)| user).collect(),
                next,
            })
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
            after.clone_from(&last.id);
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
}

fn target(name: &str) -> String {
    format!("group:{name}")
}
