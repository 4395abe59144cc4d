//! Groups of users, which access rules refer to.

use std::collections::BTreeSet;

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::announcements::Revocation;
use crate::columns::{millis, timestamp};
use crate::error::StoreError;
use crate::store::Store;
use crate::users::{self, UserRow};
use crate::writer::{Change, Tx};

/// The statement of [`Store::groups`]. Its parameters: the name after which to read, and the maximum
/// number of groups.
pub const LIST_STATEMENT: &str =
    "SELECT id, name, created_at FROM user_groups WHERE name > $1 ORDER BY name LIMIT $2";

/// The statement of [`Store::members_of`]. Its parameters: the name of the group, the user id after
/// which to read, and the maximum number of members.
///
/// No index has the members of a group in the order of their names, so that order would read all of
/// them for each page. The second condition on the id lets a merge join begin there in both tables.
pub fn members_statement() -> String {
    format!(
        "SELECT {} FROM group_members m JOIN users u ON u.id = m.user_id \
         WHERE m.group_id = (SELECT g.id FROM user_groups g WHERE g.name = $1) \
         AND m.user_id > $2 AND u.id > $2 ORDER BY m.user_id LIMIT $3",
        users::COLUMNS
    )
}

impl Store {
    /// Names of a user's groups, in order.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn groups_of(&self, user_id: &str) -> Result<Vec<String>, StoreError> {
        let ask = sqlx::query(
            "SELECT g.name FROM group_members m JOIN user_groups g ON g.id = m.group_id \
             WHERE m.user_id = $1 ORDER BY g.name",
        )
        .bind(user_id);
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// A group by its name.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn group(&self, name: &str) -> Result<Option<GroupRow>, StoreError> {
        let ask = sqlx::query("SELECT id, name, created_at FROM user_groups WHERE name = $1").bind(name);
        let row = self.readers().fetch_optional(ask).await?;
        row.as_ref().map(GroupRow::read).transpose()
    }

    /// A group by its id.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn group_by_id(&self, id: &str) -> Result<Option<GroupRow>, StoreError> {
        let ask = sqlx::query("SELECT id, name, created_at FROM user_groups WHERE id = $1").bind(id);
        let row = self.readers().fetch_optional(ask).await?;
        row.as_ref().map(GroupRow::read).transpose()
    }

    /// At most `limit` groups in the order of their names, starting after `after`.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn groups(&self, after: &str, limit: u32) -> Result<Vec<GroupRow>, StoreError> {
        let ask = sqlx::query(LIST_STATEMENT).bind(after).bind(i64::from(limit));
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(GroupRow::read).collect()
    }

    /// At most `limit` members of a group in the order of their ids, starting after `after`.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn members_of(&self, group: &str, after: &str, limit: u32) -> Result<Vec<UserRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(members_statement()))
            .bind(group)
            .bind(after)
            .bind(i64::from(limit));
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(UserRow::read).collect()
    }
}

/// A group as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRow {
    /// Unique id; never changes.
    pub id: String,
    /// The name that access rules use.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
}

impl GroupRow {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self { id: row.try_get(0)?, name: row.try_get(1)?, created_at: timestamp(row.try_get(2)?) })
    }
}

/// Creates a group.
#[derive(Debug, Clone)]
pub struct AddGroup {
    /// Unique id; never changes.
    pub id: String,
    /// The name that access rules use.
    pub name: String,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for AddGroup {
    type Output = ();

    /// # Errors
    /// [`StoreError::Taken`] when a group has this name.
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO user_groups (id, name, created_at) VALUES ($1, $2, $3)")
            .bind(&self.id)
            .bind(&self.name)
            .bind(millis(self.now))
            .execute(&mut *tx.connection)
            .await
            .map_err(|error| StoreError::from(error).with_name("the group's name"))?;
        Ok(())
    }
}

/// Adds a user to a group. `false`: the user is a member already.
#[derive(Debug, Clone)]
pub struct AddMember {
    /// Name of the group.
    pub group: String,
    /// Id of the user.
    pub user_id: String,
}

impl Change for AddMember {
    type Output = bool;

    /// # Errors
    /// [`StoreError::MissingReference`] when the user or the group does not exist.
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let id = sqlx::query("SELECT id FROM user_groups WHERE name = $1")
            .bind(&self.group)
            .fetch_optional(&mut *tx.connection)
            .await?
            .ok_or(StoreError::MissingReference)?;
        let id: String = id.try_get(0)?;
        let added = sqlx::query(
            "INSERT INTO group_members (group_id, user_id) VALUES ($1, $2) \
             ON CONFLICT (user_id, group_id) DO NOTHING",
        )
        .bind(&id)
        .bind(&self.user_id)
        .execute(&mut *tx.connection)
        .await?;
        Ok(added.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Removes a user from a group and with it their rights as a member. `false`: the user is not a
/// member.
#[derive(Debug, Clone)]
pub struct RemoveMember {
    /// Name of the group.
    pub group: String,
    /// Id of the user.
    pub user_id: String,
    /// Event to append to the revocation log: tokens contain groups, so those issued before are
    /// revoked.
    pub revocation: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RemoveMember {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let removed = sqlx::query(
            "DELETE FROM group_members WHERE user_id = $2 \
             AND group_id IN (SELECT id FROM user_groups WHERE name = $1)",
        )
        .bind(&self.group)
        .bind(&self.user_id)
        .execute(&mut *tx.connection)
        .await?;
        if removed.rows_affected() == 0 {
            return Ok(false);
        }
        sqlx::query("UPDATE users SET tokens_not_before = $2 WHERE id = $1")
            .bind(&self.user_id)
            .bind(users::VOIDED)
            .execute(&mut *tx.connection)
            .await?;
        tx.void_tokens_of([self.user_id.clone()]);
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Deletes a group and with it the rights of its members.
#[derive(Debug, Clone)]
pub struct DeleteGroup {
    /// Name of the group.
    pub name: String,
    /// Ids of the members that `revocations` cover.
    pub members: BTreeSet<String>,
    /// Events to append to the revocation log: tokens contain groups, so those issued before are
    /// revoked.
    pub revocations: Vec<Revocation>,
    /// Time of the change.
    pub now: Timestamp,
}

/// Result of the deletion of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// The group was deleted.
    Now,
    /// A user who is not in the given list has become a member; nothing was changed.
    MembersChanged,
    /// There is no such group.
    Unknown,
}

impl Change for DeleteGroup {
    type Output = Deleted;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Deleted, StoreError> {
        // The lock prevents new members, so every member is covered.
        let group = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT id FROM user_groups WHERE name = $1{}",
            tx.dialect.for_update()
        )))
        .bind(&self.name)
        .fetch_optional(&mut *tx.connection)
        .await?;
        let Some(group) = group else { return Ok(Deleted::Unknown) };
        let id: String = group.try_get(0)?;
        let members = sqlx::query("SELECT user_id FROM group_members WHERE group_id = $1")
            .bind(&id)
            .fetch_all(&mut *tx.connection)
            .await?;
        let members: Result<Vec<String>, _> = members.iter().map(|row| row.try_get(0)).collect();
        if members?.iter().any(|member| !self.members.contains(member)) {
            return Ok(Deleted::MembersChanged);
        }
        let members = sqlx::query(
            "UPDATE users SET tokens_not_before = $2 \
             WHERE id IN (SELECT user_id FROM group_members WHERE group_id = $1) RETURNING id",
        )
        .bind(&id)
        .bind(users::VOIDED)
        .fetch_all(&mut *tx.connection)
        .await?;
        let members: Result<Vec<String>, _> = members.iter().map(|row| row.try_get(0)).collect();
        tx.void_tokens_of(members?);
        sqlx::query("DELETE FROM user_groups WHERE id = $1").bind(&id).execute(&mut *tx.connection).await?;
        for revocation in &self.revocations {
            tx.queue_revocation(revocation, self.now);
        }
        Ok(Deleted::Now)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output == Deleted::Now
    }
}
