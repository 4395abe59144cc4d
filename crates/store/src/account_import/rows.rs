//! Rows of an import, as statements for many of them.

use sqlx::Row as _;

use super::conflicts::CheckedUser;
use super::{Import, ImportedConsent};
use crate::columns::{batches, millis, value_tuples};
use crate::error::StoreError;
use crate::names::lowercase;
use crate::writer::Tx;

impl Import<'_, '_> {
    /// Adds a group, unless one of this name exists.
    pub(super) async fn add_group(&mut self, id: String, name: String) -> Result<(), StoreError> {
        if self.groups.contains_key(&name) || self.find_group(&name).await?.is_some() {
            return Ok(());
        }
        sqlx::query("INSERT INTO user_groups (id, name, created_at) VALUES ($1, $2, $3)")
            .bind(&id)
            .bind(&name)
            .bind(millis(self.now))
            .execute(&mut *self.tx.connection)
            .await
            .map_err(|error| StoreError::from(error).with_name("the group's name"))?;
        self.counts.groups += 1;
        self.groups.insert(name, id);
        Ok(())
    }

    /// The id of a group that exists.
    pub(super) async fn find_group(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        // The lock keeps the group until the memberships are written.
        let ask = format!("SELECT id FROM user_groups WHERE name = $1{}", self.tx.dialect.for_share());
        let found =
            sqlx::query(sqlx::AssertSqlSafe(ask)).bind(name).fetch_optional(&mut *self.tx.connection).await?;
        let Some(row) = found else { return Ok(None) };
        let id: String = row.try_get(0)?;
        self.groups.insert(name.to_owned(), id.clone());
        self.existing.insert(name.to_owned());
        Ok(Some(id))
    }
}

/// Writes accounts.
pub(super) async fn insert_users(tx: &mut Tx<'_>, users: &[CheckedUser]) -> Result<(), StoreError> {
    for some in batches(users) {
        let insert = format!(
            "INSERT INTO users (id, name, name_key, email, email_key, email_verified_at, claims, password, \
             password_changed_at, created_at, updated_at, disabled_at, name_fold, email_fold, \
             must_change_password_at, tokens_not_before) VALUES {}",
            value_tuples(some.len(), 15, ", 0")
        );
        let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
        for CheckedUser { user: imported, name_fold, email_fold } in some {
            let (user, password) = (&imported.user, imported.password.as_ref());
            insert = insert
                .bind(&user.id)
                .bind(&user.name)
                .bind(lowercase(&user.name))
                .bind(&user.email)
                .bind(user.email.as_deref().map(lowercase))
                .bind(user.email_verified_at.map(millis))
                .bind(&user.claims)
                .bind(password.map(|password| &password.phc))
                .bind(password.map(|password| millis(password.changed_at)))
                .bind(millis(user.created_at))
                .bind(millis(user.updated_at))
                .bind(user.disabled_at.map(millis))
                .bind(name_fold)
                .bind(email_fold)
                .bind(user.must_change_password_at.map(millis));
        }
        let written = insert.execute(&mut *tx.connection).await;
        written.map_err(|error| StoreError::from(error).with_name("the user's name or address"))?;
    }
    Ok(())
}

/// Writes memberships: ids of a group and a user.
pub(super) async fn insert_members(tx: &mut Tx<'_>, members: &[(String, &str)]) -> Result<(), StoreError> {
    for some in batches(members) {
        let insert = format!(
            "INSERT INTO group_members (group_id, user_id) VALUES {}",
            value_tuples(some.len(), 2, "")
        );
        let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
        for (group, user) in some {
            insert = insert.bind(group).bind(*user);
        }
        insert.execute(&mut *tx.connection).await?;
    }
    Ok(())
}

/// Writes consents. Returns their number.
pub(super) async fn insert_consents(tx: &mut Tx<'_>, users: &[CheckedUser]) -> Result<u64, StoreError> {
    let consents: Vec<(&str, &ImportedConsent)> = users
        .iter()
        .flat_map(|user| user.user.consents.iter().map(|consent| (user.user.user.id.as_str(), consent)))
        .collect();
    for some in batches(&consents) {
        let insert = format!(
            "INSERT INTO consents (user_id, client_id, scopes, given_at) VALUES {}",
            value_tuples(some.len(), 4, "")
        );
        let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
        for (user, consent) in some {
            insert = insert
                .bind(*user)
                .bind(&consent.client_id)
                .bind(&consent.scopes)
                .bind(millis(consent.given_at));
        }
        insert.execute(&mut *tx.connection).await?;
    }
    Ok(consents.len() as u64)
}
