//! Users: accounts, passwords, and revocation of everything a user has.

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::announcements::Revocation;
use crate::columns::{batches, millis, timestamp};
use crate::deliveries::EndedSessions;
use crate::error::StoreError;
use crate::names::{comparison_form, lowercase};
use crate::sessions::SessionRow;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// The account of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    /// Unique id, the `sub` claim of tokens. Never changes and is never reused.
    pub id: String,
    /// The name with which the user signs in; may change.
    pub name: String,
    /// Their email address.
    pub email: Option<String>,
    /// When the address was verified; `None`: it was not.
    pub email_verified_at: Option<Timestamp>,
    /// Further claims, in a format that the caller defines.
    pub claims: String,
    /// When the account was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was disabled; `None`: it is enabled.
    pub disabled_at: Option<Timestamp>,
    /// Since when the user must choose a new password before the next session or token; `None`: the
    /// password is theirs to keep.
    pub must_change_password_at: Option<Timestamp>,
    /// When all tokens and sessions so far were last revoked, in log time
    /// ([`crate::revocation_log`]). Ignored when the row is written.
    pub tokens_not_before: Timestamp,
    /// When this row was read, in log time. Ignored when the row is written.
    pub read_at: Timestamp,
}

/// A password hash as it is stored. `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredPassword {
    /// The hash with its parameters (PHC string format).
    pub phc: String,
    /// When the password was set.
    pub changed_at: Timestamp,
}

impl std::fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoredPassword(..)")
    }
}

pub(crate) const COLUMNS: &str = "u.id, u.name, u.email, u.email_verified_at, u.claims, u.created_at, u.updated_at, \
     u.disabled_at, u.tokens_not_before, (SELECT at FROM invalidation_head WHERE id = 1), u.must_change_password_at";
/// Number of [`COLUMNS`].
pub(crate) const COLUMN_COUNT: usize = 11;

impl UserRow {
    /// Reads a row that begins with [`COLUMNS`].
    pub(crate) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Self::read_at(row, 0)?.ok_or_else(|| sqlx::Error::RowNotFound.into())
    }

    /// Reads a row that has [`COLUMNS`] starting at column `at`; `None`: an outer join found no
    /// user.
    pub(crate) fn read_at(row: &AnyRow, at: usize) -> Result<Option<Self>, StoreError> {
        let Some(id) = row.try_get::<Option<String>, _>(at)? else { return Ok(None) };
        let tokens_not_before = timestamp(row.try_get(at + 8)?);
        let head_at = timestamp(row.try_get(at + 9)?);
        Ok(Some(Self {
            id,
            name: row.try_get(at + 1)?,
            email: row.try_get(at + 2)?,
            email_verified_at: row.try_get::<Option<i64>, _>(at + 3)?.map(timestamp),
            claims: row.try_get(at + 4)?,
            created_at: timestamp(row.try_get(at + 5)?),
            updated_at: timestamp(row.try_get(at + 6)?),
            disabled_at: row.try_get::<Option<i64>, _>(at + 7)?.map(timestamp),
            must_change_password_at: row.try_get::<Option<i64>, _>(at + 10)?.map(timestamp),
            tokens_not_before,
            // A node of a version before log time may have revoked tokens without advancing it.
            // This read has seen that revocation.
            read_at: head_at.max(tokens_not_before),
        }))
    }

    /// Whether the account is enabled.
    pub fn is_open(&self) -> bool {
        self.disabled_at.is_none()
    }
}

/// The statement of [`Store::users`]. Its parameters: the name in lower case after which to read, and
/// the maximum number of users.
pub fn list_statement() -> String {
    format!("SELECT {COLUMNS} FROM users u WHERE u.name_key > $1 ORDER BY u.name_key LIMIT $2")
}

/// Value of `tokens_not_before` during a transaction that revokes them: later than any time.
pub(crate) const VOIDED: i64 = i64::MAX;

impl Store {
    /// A user by their id.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn user(&self, id: &str) -> Result<Option<UserRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM users u WHERE u.id = $1")));
        self.readers().fetch_optional(ask.bind(id)).await?.as_ref().map(UserRow::read).transpose()
    }

    /// At most `limit` users in the order of their names, starting after `after`.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn users(&self, after: &str, limit: u32) -> Result<Vec<UserRow>, StoreError> {
        let ask =
            sqlx::query(sqlx::AssertSqlSafe(list_statement())).bind(lowercase(after)).bind(i64::from(limit));
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(UserRow::read).collect()
    }
}

impl Tx<'_> {
    /// Whether the account is enabled and nothing was revoked after it was read at `read_at`, in
    /// log time. If so, the row stays locked until the transaction ends, so no other transaction
    /// can disable or revoke it.
    pub(crate) async fn lock_user(&mut self, id: &str, read_at: Timestamp) -> Result<bool, StoreError> {
        self.lock_user_with(self.dialect.for_share(), id, read_at).await
    }

    pub(crate) async fn lock_user_with(
        &mut self,
        lock: &'static str,
        id: &str,
        read_at: Timestamp,
    ) -> Result<bool, StoreError> {
        let held = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT 1 FROM users WHERE id = $1 AND disabled_at IS NULL AND tokens_not_before <= $2{lock}"
        )))
        .bind(id)
        .bind(millis(read_at))
        .fetch_optional(&mut *self.connection)
        .await?;
        Ok(held.is_some())
    }

    /// Records users whose tokens so far are revoked. Their rows hold [`VOIDED`] until the
    /// end of the transaction, when they get the current log time.
    pub(crate) fn void_tokens_of(&mut self, ids: impl IntoIterator<Item = String>) {
        self.voided.extend(ids);
    }

    /// Sets `tokens_not_before` of these users to `at`: grants based on reads from then on are
    /// valid.
    pub(crate) async fn write_voided(&mut self, at: Timestamp) -> Result<(), StoreError> {
        let voided: Vec<String> = std::mem::take(&mut self.voided).into_iter().collect();
        for some in batches(&voided) {
            let places: Vec<_> = (2..some.len() + 2).map(|n| format!("${n}")).collect();
            let update =
                format!("UPDATE users SET tokens_not_before = $1 WHERE id IN ({})", places.join(", "));
            let mut update = sqlx::query(sqlx::AssertSqlSafe(update)).bind(millis(at));
            for id in some {
                update = update.bind(id);
            }
            update.execute(&mut *self.connection).await?;
        }
        Ok(())
    }
}

/// Creates an account.
#[derive(Debug, Clone)]
pub struct AddUser {
    /// The account to create.
    pub user: UserRow,
    /// The password; without one the user cannot sign in by password.
    pub password: Option<StoredPassword>,
}

impl Change for AddUser {
    type Output = ();

    fn assigns_names(&self) -> bool {
        true
    }

    /// # Errors
    /// [`StoreError::Taken`] when another user has the name or the address.
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let (user, password) = (&self.user, self.password.as_ref());
        let names: Vec<&str> = [Some(&*user.name), user.email.as_deref()].into_iter().flatten().collect();
        tx.claim_names(&user.id, &names).await?;
        sqlx::query(
            "INSERT INTO users (id, name, name_key, email, email_key, email_verified_at, claims, password, \
             password_changed_at, created_at, updated_at, disabled_at, tokens_not_before, name_fold, email_fold, \
             must_change_password_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, $13, $14, $15)",
        )
        .bind(&user.id)
        .bind(&user.name)
        .bind(lowercase(&user.name))
        .bind(&user.email)
        .bind(user.email.as_deref().map(lowercase))
        .bind(user.email_verified_at.map(millis))
        .bind(&user.claims)
        .bind(password.map(|p| &p.phc))
        .bind(password.map(|p| millis(p.changed_at)))
        .bind(millis(user.created_at))
        .bind(millis(user.updated_at))
        .bind(user.disabled_at.map(millis))
        .bind(comparison_form(&user.name))
        .bind(user.email.as_deref().map(comparison_form))
        .bind(user.must_change_password_at.map(millis))
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).with_name("the user's name or address"))?;
        Ok(())
    }
}

/// Replaces a password hash with a stronger one of the same password. `false`: the hash is no
/// longer the one that was verified.
#[derive(Debug, Clone)]
pub struct UpgradePassword {
    /// Id of the user.
    pub user_id: String,
    /// The hash that was verified.
    pub from: StoredPassword,
    /// The same password, hashed with the current parameters (PHC string format).
    pub to_phc: String,
}

impl Change for UpgradePassword {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let upgraded = sqlx::query("UPDATE users SET password = $3 WHERE id = $1 AND password = $2")
            .bind(&self.user_id)
            .bind(&self.from.phc)
            .bind(&self.to_phc)
            .execute(&mut *tx.connection)
            .await?;
        Ok(upgraded.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// What else changes when a user's sessions and tokens are revoked.
#[derive(Debug, Clone)]
pub enum UserRevocation {
    /// The password is replaced by one that the user may keep; sessions of the old one end.
    Password(StoredPassword),
    /// The password is replaced by one that the user must change at the next login; sessions of the
    /// old one end.
    TemporaryPassword(StoredPassword),
    /// The account is disabled.
    Disabled,
    /// Nothing else: sign out everywhere.
    Everything,
}

/// Ends all sessions of a user and revokes all families and tokens. `false`: there is no such user.
#[derive(Debug, Clone)]
pub struct RevokeUser {
    /// Id of the user.
    pub user_id: String,
    /// What else changes.
    pub account_change: UserRevocation,
    /// Event to append: the user's tag, with the reach "everything so far".
    pub revocation: Revocation,
    /// Until when clients of the ended sessions are notified, each once; `None`: they are not
    /// notified.
    pub deliver_until: Option<Timestamp>,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RevokeUser {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let now = millis(self.now);
        let (password, disabled) = match &self.account_change {
            UserRevocation::Password(password) | UserRevocation::TemporaryPassword(password) => {
                (Some(password), None)
            }
            UserRevocation::Disabled => (None, Some(now)),
            UserRevocation::Everything => (None, None),
        };
        let temporary = matches!(self.account_change, UserRevocation::TemporaryPassword(_)).then_some(now);
        let changed = sqlx::query(
            "UPDATE users SET password = COALESCE($3, password), \
             password_changed_at = COALESCE($4, password_changed_at), disabled_at = COALESCE($5, disabled_at), \
             updated_at = $2, tokens_not_before = $6, \
             must_change_password_at = CASE WHEN $3 IS NULL THEN must_change_password_at ELSE $7 END WHERE id = $1",
        )
        .bind(&self.user_id)
        .bind(now)
        .bind(password.map(|p| &p.phc))
        .bind(password.map(|p| millis(p.changed_at)))
        .bind(disabled)
        .bind(VOIDED)
        .bind(temporary)
        .execute(&mut *tx.connection)
        .await?;
        if changed.rows_affected() == 0 {
            return Ok(false);
        }
        tx.void_tokens_of([self.user_id.clone()]);
        if let Some(until) = self.deliver_until {
            tx.queue_logout_deliveries(EndedSessions::AllOfUser(&self.user_id), until, self.now).await?;
        }
        for statement in [
            "UPDATE sessions SET ended_at = $2 WHERE user_id = $1 AND ended_at IS NULL",
            "UPDATE families SET revoked_at = $2 WHERE user_id = $1 AND revoked_at IS NULL",
        ] {
            sqlx::query(statement).bind(&self.user_id).bind(now).execute(&mut *tx.connection).await?;
        }
        tx.delete_account_link(&self.user_id).await?;
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Changes a user's password at their own request, after they have presented the old one. All their
/// sessions and grants end, and a new session begins. `false`, and nothing is changed, when the
/// account was disabled or revoked since it was read.
#[derive(Debug, Clone)]
pub struct ChangeOwnPassword {
    /// What is ended.
    pub end: RevokeUser,
    /// When the account was read, in log time.
    pub read_at: Timestamp,
    /// The new session.
    pub session: SessionRow,
}

impl Change for ChangeOwnPassword {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let alone = tx.dialect.for_update();
        if !tx.lock_user_with(alone, &self.end.user_id, self.read_at).await? || !self.end.apply(tx).await? {
            return Ok(false);
        }
        tx.insert_session(&self.session).await?;
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Enables a disabled account. Revoked sessions and tokens stay revoked. `false`: it is enabled, or
/// does not exist.
#[derive(Debug, Clone)]
pub struct EnableUser {
    /// Id of the user.
    pub user_id: String,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for EnableUser {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let enabled = sqlx::query(
            "UPDATE users SET disabled_at = NULL, updated_at = $2 WHERE id = $1 AND disabled_at IS NOT NULL",
        )
        .bind(&self.user_id)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        Ok(enabled.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Requires a user to choose a new password at the next login, or withdraws that. Sessions and tokens
/// stay valid. `false`: there is no such user.
#[derive(Debug, Clone)]
pub struct RequirePasswordChange {
    /// Id of the user.
    pub user_id: String,
    /// Whether a new password is required.
    pub required: bool,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RequirePasswordChange {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let now = millis(self.now);
        let changed =
            sqlx::query("UPDATE users SET must_change_password_at = $3, updated_at = $2 WHERE id = $1")
                .bind(&self.user_id)
                .bind(now)
                .bind(self.required.then_some(now))
                .execute(&mut *tx.connection)
                .await?;
        Ok(changed.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Changes an account's name, address or claims. Sessions and tokens stay valid; from the event
/// caches learn that their data about the user is stale. `false`: the account has changed since it
/// was read, or does not exist; read it again and decide anew.
#[derive(Debug, Clone)]
pub struct ChangeUser {
    /// The account as it was read.
    pub from: UserRow,
    /// The name with which the user signs in; may change.
    pub name: String,
    /// Their email address.
    pub email: Option<String>,
    /// When the address was verified; `None`: it was not.
    pub email_verified_at: Option<Timestamp>,
    /// Further claims, in a format that the caller defines.
    pub claims: String,
    /// Event to append to the revocation log.
    pub revocation: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl ChangeUser {
    /// The name and address that change. Unchanged ones are not checked: accounts from before the
    /// check may share a name.
    fn changed_names(&self) -> impl Iterator<Item = &str> {
        let name = Some(&*self.name).filter(|name| *name != self.from.name);
        let email = self.email.as_deref().filter(|_| self.email != self.from.email);
        name.into_iter().chain(email)
    }
}

impl Change for ChangeUser {
    type Output = bool;

    fn assigns_names(&self) -> bool {
        self.changed_names().next().is_some()
    }

    /// # Errors
    /// [`StoreError::Taken`] when another user has the name or the address.
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        tx.claim_names(&self.from.id, &self.changed_names().collect::<Vec<_>>()).await?;
        let changed = sqlx::query(
            "UPDATE users SET name = $2, name_key = $3, email = $4, email_key = $5, email_verified_at = $6, \
             claims = $7, updated_at = $8, name_fold = $13, email_fold = $14 WHERE id = $1 AND name = $9 AND email IS NOT DISTINCT FROM $10 \
             AND email_verified_at IS NOT DISTINCT FROM $11 AND claims = $12",
        )
        .bind(&self.from.id)
        .bind(&self.name)
        .bind(lowercase(&self.name))
        .bind(&self.email)
        .bind(self.email.as_deref().map(lowercase))
        .bind(self.email_verified_at.map(millis))
        .bind(&self.claims)
        .bind(millis(self.now))
        .bind(&self.from.name)
        .bind(&self.from.email)
        .bind(self.from.email_verified_at.map(millis))
        .bind(&self.from.claims)
        .bind(comparison_form(&self.name))
        .bind(self.email.as_deref().map(comparison_form))
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).with_name("the user's name or address"))?;
        if changed.rows_affected() == 0 {
            return Ok(false);
        }
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Deletes an account with its sessions, families, tokens, consents and memberships. `false`: there
/// is no such user.
#[derive(Debug, Clone)]
pub struct DeleteUser {
    /// Id of the user.
    pub user_id: String,
    /// Event to append to the revocation log, with the user's tag.
    pub revocation: Revocation,
    /// Until when clients of the deleted sessions are notified, each once; `None`: they are not
    /// notified.
    pub deliver_until: Option<Timestamp>,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for DeleteUser {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        // The lock prevents new grants, so every client is notified.
        let result = sqlx::query("UPDATE users SET updated_at = $2 WHERE id = $1")
            .bind(&self.user_id)
            .bind(millis(self.now))
            .execute(&mut *tx.connection)
            .await?;
        if result.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some(until) = self.deliver_until {
            tx.queue_logout_deliveries(EndedSessions::AllOfUser(&self.user_id), until, self.now).await?;
        }
        sqlx::query("DELETE FROM users WHERE id = $1")
            .bind(&self.user_id)
            .execute(&mut *tx.connection)
            .await?;
        tx.queue_revocation(&self.revocation, self.now);
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
