//! People: accounts, their passwords, and what ends everything of theirs.

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::announcements::Revocation;
use crate::deliveries::Ends;
use crate::error::StoreError;
use crate::names::{folded, lower};
use crate::sessions::SessionRow;
use crate::store::Store;
use crate::value::{millis, pieces, timestamp};
use crate::write::{Change, Tx};

/// A person's account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    /// Never changes, never used again: the `sub` of tokens.
    pub id: String,
    /// What they type to log in; may change.
    pub name: String,
    /// Their address.
    pub email: Option<String>,
    /// Since when it is known to be theirs.
    pub email_verified_at: Option<Timestamp>,
    /// What else is known of them, in the caller's form.
    pub claims: String,
    /// When the account was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Since when it is closed.
    pub disabled_at: Option<Timestamp>,
    /// When everything so far was last ended, in the time of the log ([`crate::invalidation`]); of no account when it is written.
    pub tokens_not_before: Timestamp,
    /// When this was read, in the same time; of no account either.
    pub read_at: Timestamp,
}

/// A password as it is kept. `Debug` prints nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredPassword {
    /// The hash with its parameters (PHC string format).
    pub phc: String,
    /// When it was set.
    pub changed_at: Timestamp,
}

impl std::fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoredPassword(..)")
    }
}

pub(crate) const COLUMNS: &str = "u.id, u.name, u.email, u.email_verified_at, u.claims, u.created_at, u.updated_at, \
     u.disabled_at, u.tokens_not_before, (SELECT at FROM invalidation_head WHERE id = 1)";
/// How many these are.
pub(crate) const COLUMN_COUNT: usize = 10;

impl UserRow {
    /// From a row that begins with [`COLUMNS`].
    pub(crate) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Self::read_at(row, 0)?.ok_or_else(|| sqlx::Error::RowNotFound.into())
    }

    /// From a row with [`COLUMNS`] from column `at` on; `None`: an outer join found nobody.
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
            tokens_not_before,
            // A node of before there was this time may have ended something, and not have moved it: that was seen here.
            read_at: head_at.max(tokens_not_before),
        }))
    }

    /// Whether the account is open.
    pub fn is_open(&self) -> bool {
        self.disabled_at.is_none()
    }
}

/// In `tokens_not_before` while a transaction is under way that voids them: no time is later.
pub(crate) const NOTHING_COUNTS: i64 = i64::MAX;

impl Store {
    /// A user by id.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn user(&self, id: &str) -> Result<Option<UserRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM users u WHERE u.id = $1")));
        self.readers().optional(ask.bind(id)).await?.as_ref().map(UserRow::read).transpose()
    }

    /// Users in the order of their names, those after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn users(&self, after: &str, limit: u32) -> Result<Vec<UserRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM users u WHERE u.name_key > $1 ORDER BY u.name_key LIMIT $2"
        )))
        .bind(lower(after))
        .bind(i64::from(limit));
        let rows = self.readers().all(ask).await?;
        rows.iter().map(UserRow::read).collect()
    }
}

impl Tx<'_> {
    /// Whether the account is open, and what was read of it at `read_at`, in the time of the log, counts. If so, nobody closes it or
    /// voids anything until the transaction has ended.
    pub(crate) async fn hold_user(&mut self, id: &str, read_at: Timestamp) -> Result<bool, StoreError> {
        self.hold_user_with(self.dialect.shared(), id, read_at).await
    }

    async fn hold_user_with(
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

    /// Notes whose tokens of so far are void. Their rows were written with [`NOTHING_COUNTS`]; when the transaction ends they get the
    /// time that the log has then.
    pub(crate) fn void_tokens_of(&mut self, ids: impl IntoIterator<Item = String>) {
        self.voided.extend(ids);
    }

    /// From `at` on what is read of those counts again.
    pub(crate) async fn write_voided(&mut self, at: Timestamp) -> Result<(), StoreError> {
        let voided: Vec<String> = std::mem::take(&mut self.voided).into_iter().collect();
        for some in pieces(&voided) {
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

/// Makes an account.
#[derive(Debug, Clone)]
pub struct AddUser {
    /// The account.
    pub user: UserRow,
    /// Without one they cannot log in by password.
    pub password: Option<StoredPassword>,
}

impl Change for AddUser {
    type Output = ();

    fn gives_names(&self) -> bool {
        true
    }

    /// # Errors
    /// [`StoreError::Taken`] when somebody has the name or the address.
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let (user, password) = (&self.user, self.password.as_ref());
        let names: Vec<&str> = [Some(&*user.name), user.email.as_deref()].into_iter().flatten().collect();
        tx.give_names(&user.id, &names).await?;
        sqlx::query(
            "INSERT INTO users (id, name, name_key, email, email_key, email_verified_at, claims, password, \
             password_changed_at, created_at, updated_at, disabled_at, tokens_not_before, name_fold, email_fold) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, $13, $14)",
        )
        .bind(&user.id)
        .bind(&user.name)
        .bind(lower(&user.name))
        .bind(&user.email)
        .bind(user.email.as_deref().map(lower))
        .bind(user.email_verified_at.map(millis))
        .bind(&user.claims)
        .bind(password.map(|p| &p.phc))
        .bind(password.map(|p| millis(p.changed_at)))
        .bind(millis(user.created_at))
        .bind(millis(user.updated_at))
        .bind(user.disabled_at.map(millis))
        .bind(folded(&user.name))
        .bind(user.email.as_deref().map(folded))
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).naming("the user's name or address"))?;
        Ok(())
    }
}

/// Writes a stronger hash of the same password, if it is still the one that was verified.
#[derive(Debug, Clone)]
pub struct UpgradePassword {
    /// Whose.
    pub user_id: String,
    /// The hash that was verified.
    pub from: StoredPassword,
    /// The same password, hashed as is the rule now.
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

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// What ends a user's sessions and tokens.
#[derive(Debug, Clone)]
pub enum UserRevocation {
    /// Another password: whoever knew the old one is out.
    Password(StoredPassword),
    /// The account is closed.
    Disabled,
    /// Log out everywhere.
    Everything,
}

/// Ends all sessions and families of a user and voids their tokens, because of something that changed with it. `false`
/// when there is no such user.
#[derive(Debug, Clone)]
pub struct EndUser {
    /// Whose.
    pub user_id: String,
    /// Why.
    pub ending: UserRevocation,
    /// What to tell: the user's tag, of everything so far.
    pub revocation: Revocation,
    /// Until when clients that have something of the sessions are told, each once; `None`: they are not.
    pub deliver_until: Option<Timestamp>,
    /// When.
    pub now: Timestamp,
}

impl Change for EndUser {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let now = millis(self.now);
        let (password, disabled) = match &self.ending {
            UserRevocation::Password(password) => (Some(password), None),
            UserRevocation::Disabled => (None, Some(now)),
            UserRevocation::Everything => (None, None),
        };
        let changed = sqlx::query(
            "UPDATE users SET password = COALESCE($3, password), \
             password_changed_at = COALESCE($4, password_changed_at), disabled_at = COALESCE($5, disabled_at), \
             updated_at = $2, tokens_not_before = $6 WHERE id = $1",
        )
        .bind(&self.user_id)
        .bind(now)
        .bind(password.map(|p| &p.phc))
        .bind(password.map(|p| millis(p.changed_at)))
        .bind(disabled)
        .bind(NOTHING_COUNTS)
        .execute(&mut *tx.connection)
        .await?;
        if changed.rows_affected() == 0 {
            return Ok(false);
        }
        tx.void_tokens_of([self.user_id.clone()]);
        if let Some(until) = self.deliver_until {
            tx.tell_clients(Ends::AllOf(&self.user_id), until, self.now).await?;
        }
        for statement in [
            "UPDATE sessions SET ended_at = $2 WHERE user_id = $1 AND ended_at IS NULL",
            "UPDATE families SET revoked_at = $2 WHERE user_id = $1 AND revoked_at IS NULL",
        ] {
            sqlx::query(statement).bind(&self.user_id).bind(now).execute(&mut *tx.connection).await?;
        }
        tx.append(&self.revocation, self.now);
        Ok(true)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Gives a user another password who asks for it themselves, having shown the old one: all that was begun with that ends, and a session
/// begins in its place. `false`, and nothing is changed, when the account is not what it was any more when it was read for that.
#[derive(Debug, Clone)]
pub struct ChangeOwnPassword {
    /// What ends.
    pub end: EndUser,
    /// When the account was read, in the time of the log.
    pub read_at: Timestamp,
    /// What begins.
    pub session: SessionRow,
}

impl Change for ChangeOwnPassword {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let alone = tx.dialect.alone();
        if !tx.hold_user_with(alone, &self.end.user_id, self.read_at).await? || !self.end.apply(tx).await? {
            return Ok(false);
        }
        tx.insert_session(&self.session).await?;
        Ok(true)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Opens a closed account again. Nothing that was revoked comes back.
#[derive(Debug, Clone)]
pub struct EnableUser {
    /// Whose.
    pub user_id: String,
    /// When.
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

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Gives an account another name, address or claims. What they hold goes on; what caches know of them is told to be old.
/// `false` when it is no longer what was read, or not there: read again, and decide again.
#[derive(Debug, Clone)]
pub struct ChangeUser {
    /// Whose, as it was read.
    pub from: UserRow,
    /// What they are to type.
    pub name: String,
    /// Their address.
    pub email: Option<String>,
    /// Since when it is known to be theirs.
    pub email_verified_at: Option<Timestamp>,
    /// What else is known of them, in the caller's form.
    pub claims: String,
    /// What to tell.
    pub revocation: Revocation,
    /// When.
    pub now: Timestamp,
}

impl ChangeUser {
    /// What is not changed is not judged anew: accounts of before may share a name.
    fn given(&self) -> impl Iterator<Item = &str> {
        let name = Some(&*self.name).filter(|name| *name != self.from.name);
        let email = self.email.as_deref().filter(|_| self.email != self.from.email);
        name.into_iter().chain(email)
    }
}

impl Change for ChangeUser {
    type Output = bool;

    fn gives_names(&self) -> bool {
        self.given().next().is_some()
    }

    /// # Errors
    /// [`StoreError::Taken`] when somebody else has the name or the address.
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        tx.give_names(&self.from.id, &self.given().collect::<Vec<_>>()).await?;
        let changed = sqlx::query(
            "UPDATE users SET name = $2, name_key = $3, email = $4, email_key = $5, email_verified_at = $6, \
             claims = $7, updated_at = $8, name_fold = $13, email_fold = $14 WHERE id = $1 AND name = $9 AND email IS NOT DISTINCT FROM $10 \
             AND email_verified_at IS NOT DISTINCT FROM $11 AND claims = $12",
        )
        .bind(&self.from.id)
        .bind(&self.name)
        .bind(lower(&self.name))
        .bind(&self.email)
        .bind(self.email.as_deref().map(lower))
        .bind(self.email_verified_at.map(millis))
        .bind(&self.claims)
        .bind(millis(self.now))
        .bind(&self.from.name)
        .bind(&self.from.email)
        .bind(self.from.email_verified_at.map(millis))
        .bind(&self.from.claims)
        .bind(folded(&self.name))
        .bind(self.email.as_deref().map(folded))
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).naming("the user's name or address"))?;
        if changed.rows_affected() == 0 {
            return Ok(false);
        }
        tx.append(&self.revocation, self.now);
        Ok(true)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Deletes an account with all that belongs to it: sessions, families, tokens, consents, memberships. `false` when there
/// is no such user.
#[derive(Debug, Clone)]
pub struct DeleteUser {
    /// Whose.
    pub user_id: String,
    /// What to tell: the user's tag.
    pub revocation: Revocation,
    /// Until when clients that have something of the sessions are told, each once; `None`: they are not.
    pub deliver_until: Option<Timestamp>,
    /// When.
    pub now: Timestamp,
}

impl Change for DeleteUser {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        // Nobody grants anything from here on, so that every client is told.
        let found = sqlx::query("UPDATE users SET updated_at = $2 WHERE id = $1")
            .bind(&self.user_id)
            .bind(millis(self.now))
            .execute(&mut *tx.connection)
            .await?;
        if found.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some(until) = self.deliver_until {
            tx.tell_clients(Ends::AllOf(&self.user_id), until, self.now).await?;
        }
        sqlx::query("DELETE FROM users WHERE id = $1")
            .bind(&self.user_id)
            .execute(&mut *tx.connection)
            .await?;
        tx.append(&self.revocation, self.now);
        Ok(true)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}
