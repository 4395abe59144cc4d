//! Families: everything that follows from one authorization.
//!
//! A code, the refresh tokens that follow from it and their access tokens form one family. It is
//! bound to a client, and usually to a user and a session. Every read of a token also reads its
//! family, so revoking the family revokes all its tokens at once.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

pub use crate::announcements::OriginTags;
use crate::announcements::Revocation;
use crate::columns::{StoredDigest, millis, timestamp};
use crate::error::StoreError;
use crate::store::Store;
use crate::users::{self, UserRow};
use crate::writer::{Change, Tx};

/// A family as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Id of the family; chosen by the caller, not secret.
    pub id: String,
    /// The client that holds its tokens.
    pub client_id: String,
    /// The user it speaks for; `None`: the client itself.
    pub user_id: Option<String>,
    /// The session in which it was granted.
    pub sid: Option<String>,
    /// Scopes, space-separated.
    pub scopes: String,
    /// Audiences, space-separated.
    pub audiences: String,
    /// Further details of the authorization, in a format that the caller defines.
    pub details: String,
    /// Whether it remains valid after its session ends (`offline_access`).
    pub outlives_session: bool,
    /// When it was granted.
    pub created_at: Timestamp,
    /// When it expires, with all its tokens.
    pub expires_at: Timestamp,
    /// When it was revoked; `None`: it was not.
    pub revoked_at: Option<Timestamp>,
    /// When the state it is based on was read, in log time ([`crate::revocation_log`]).
    pub read_at: Timestamp,
}

pub(crate) const COLUMNS: &str = "f.id, f.client_id, f.user_id, f.sid, f.scopes, f.audiences, f.details, \
     f.outlives_session, f.created_at, f.expires_at, f.revoked_at, COALESCE(f.read_at, f.created_at)";
/// Number of [`COLUMNS`].
const COLUMN_COUNT: usize = 12;
/// Number of columns that precede the secret's own ones in a row of [`find_secret`].
pub(crate) const OWNED_COLUMNS: usize = COLUMN_COUNT + users::COLUMN_COUNT;

impl Family {
    /// Reads a row that begins with [`COLUMNS`].
    pub(crate) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.try_get(0)?,
            client_id: row.try_get(1)?,
            user_id: row.try_get(2)?,
            sid: row.try_get(3)?,
            scopes: row.try_get(4)?,
            audiences: row.try_get(5)?,
            details: row.try_get(6)?,
            outlives_session: row.try_get::<i64, _>(7)? != 0,
            created_at: timestamp(row.try_get(8)?),
            expires_at: timestamp(row.try_get(9)?),
            revoked_at: row.try_get::<Option<i64>, _>(10)?.map(timestamp),
            read_at: timestamp(row.try_get(11)?),
        })
    }

    /// Whether the family is neither revoked nor expired at `now`. It may still end earlier, with
    /// its session.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }
}

/// A family with its user, from one read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedFamily {
    /// The stored family.
    pub family: Family,
    /// The user it speaks for, enabled or not; `None`: it has no user, or the account was deleted.
    pub user: Option<UserRow>,
}

impl OwnedFamily {
    /// Reads a row that begins with [`COLUMNS`] and [`users::COLUMNS`].
    pub(crate) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self { family: Family::read(row)?, user: UserRow::read_at(row, COLUMN_COUNT)? })
    }
}

/// Reads a single-use secret with its family. The row begins with what [`OwnedFamily::read`]
/// expects; the secret's own `columns` start at [`OWNED_COLUMNS`].
pub(crate) async fn find_secret(
    store: &Store,
    table: &'static str,
    columns: &'static str,
    digest: &StoredDigest,
) -> Result<Option<AnyRow>, StoreError> {
    let statement = format!(
        "SELECT {COLUMNS}, {}, {columns} FROM {table} t JOIN families f ON f.id = t.family_id \
         LEFT JOIN users u ON u.id = f.user_id WHERE t.digest = $1",
        users::COLUMNS
    );
    store.readers().fetch_optional(sqlx::query(sqlx::AssertSqlSafe(statement)).bind(digest.as_slice())).await
}

/// When a session counts as active: at `now`, if it was used within the last `idle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionActivity {
    /// The current time.
    pub now: Timestamp,
    /// How long an unused session remains active.
    pub idle: Duration,
}

impl SessionActivity {
    /// Lower bound of the last use of an active session, in milliseconds since 1970.
    pub(crate) fn used_after(self) -> i64 {
        millis(self.now.minus(self.idle))
    }
}

/// SQL condition on a family `f`: it outlives its session, has none, or its session is active.
/// `now` and `used_after` are parameters of the statement.
///
/// Not `EXISTS`: PostgreSQL may then read all active sessions once, instead of the sessions of the
/// few families that a page has.
pub(crate) fn session_condition(now: &str, used_after: &str) -> String {
    format!(
        "(f.outlives_session <> 0 OR f.sid IS NULL OR (SELECT 1 FROM sessions s WHERE s.sid = f.sid \
         AND s.ended_at IS NULL AND s.expires_at > {now} AND s.seen_at > {used_after}) IS NOT NULL)"
    )
}

impl Store {
    /// At most `limit` families of a user, the newest first, that end with their session and can
    /// still be refreshed.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn session_families_of(
        &self,
        user_id: &str,
        at: SessionActivity,
        limit: u32,
    ) -> Result<Vec<Family>, StoreError> {
        let goes_on = session_condition("$2", "$3");
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM families f WHERE f.user_id = $1 AND f.revoked_at IS NULL AND f.expires_at > $2 \
             AND f.outlives_session = 0 AND f.sid IS NOT NULL AND {goes_on} \
             AND EXISTS (SELECT 1 FROM refresh_tokens r WHERE r.family_id = f.id AND r.redeemed_at IS NULL \
             AND r.expires_at > $2) ORDER BY f.created_at DESC, f.id LIMIT $4"
        )))
        .bind(user_id)
        .bind(millis(at.now))
        .bind(at.used_after())
        .bind(i64::from(limit));
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(Family::read).collect()
    }

    /// At most `limit` valid families of a user that outlive their session, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn offline_families_of(
        &self,
        user_id: &str,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<Family>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM families f WHERE f.user_id = $1 AND f.revoked_at IS NULL \
             AND f.expires_at > $2 AND f.outlives_session <> 0 ORDER BY f.created_at DESC, f.id LIMIT $3"
        )))
        .bind(user_id)
        .bind(millis(now))
        .bind(i64::from(limit));
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(Family::read).collect()
    }
}

/// Selects families by user and client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FamilyFilter<'a> {
    /// The user the family speaks for; `None`: any or none.
    pub user_id: Option<&'a str>,
    /// The client that holds the tokens; `None`: any.
    pub client_id: Option<&'a str>,
}

impl FamilyFilter<'_> {
    /// The statement of [`Store::families`]. Its parameters: the id after which to read, the current
    /// time, the maximum number of families, the user, the client, and the lower bound of the last
    /// use of a session.
    pub fn statement(&self) -> String {
        // The text differs with the filter, so that the database can use the index of the column
        // that is filtered.
        let user = self.user_id.map_or("CAST($4 AS TEXT) IS NULL", |_| "f.user_id = $4");
        let client = match (self.user_id, self.client_id) {
            (_, None) => "CAST($5 AS TEXT) IS NULL",
            (None, Some(_)) => "f.client_id = $5",
            // In a form that no index serves: without statistics the database could choose the index
            // of the client, which may have the families of all users.
            (Some(_), Some(_)) => "(f.client_id || '') = $5",
        };
        let goes_on = session_condition("$2", "$6");
        format!(
            "SELECT {COLUMNS} FROM families f WHERE f.id > $1 AND f.revoked_at IS NULL AND f.expires_at > $2 \
             AND {user} AND {client} AND {goes_on} ORDER BY f.id LIMIT $3"
        )
    }
}

impl Store {
    /// At most `limit` valid families in the order of their ids, starting after `after`.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn families(
        &self,
        filter: FamilyFilter<'_>,
        after: &str,
        limit: u32,
        at: SessionActivity,
    ) -> Result<Vec<Family>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(filter.statement()))
            .bind(after)
            .bind(millis(at.now))
            .bind(i64::from(limit))
            .bind(filter.user_id)
            .bind(filter.client_id)
            .bind(at.used_after());
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(Family::read).collect()
    }

    /// A family by its id, valid or not.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn family(&self, id: &str) -> Result<Option<Family>, StoreError> {
        let ask =
            sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM families f WHERE f.id = $1")))
                .bind(id);
        let row = self.readers().fetch_optional(ask).await?;
        row.as_ref().map(Family::read).transpose()
    }
}

impl Tx<'_> {
    /// Whether the family's grant is still allowed: its user, session and origins have not been
    /// revoked since they were read. If so, account and session stay locked until the transaction
    /// ends. A change that ends them afterwards then finds the family.
    pub(crate) async fn lock_grant(
        &mut self,
        family: &Family,
        origins: &OriginTags,
    ) -> Result<bool, StoreError> {
        let ended = sqlx::query(
            "SELECT 1 FROM denials WHERE tag IN ($1, $2) AND (not_before IS NULL OR not_before > $3) LIMIT 1",
        )
        .bind(origins[0].0.to_vec())
        .bind(origins[1].0.to_vec())
        .bind(millis(family.read_at))
        .fetch_optional(&mut *self.connection)
        .await?;
        if ended.is_some() || self.revokes(origins) {
            return Ok(false);
        }
        if let Some(user) = &family.user_id
            && !self.lock_user(user, family.read_at).await?
        {
            return Ok(false);
        }
        match &family.sid {
            Some(sid) => self.lock_session(sid).await,
            None => Ok(true),
        }
    }

    /// Inserts a family. `false`, and nothing is stored, when its account, session or one of its
    /// origins has ended.
    pub(crate) async fn insert_family(
        &mut self,
        family: &Family,
        origins: &OriginTags,
    ) -> Result<bool, StoreError> {
        if !self.lock_grant(family, origins).await? {
            return Ok(false);
        }
        self.insert_locked_family(family).await?;
        Ok(true)
    }

    /// Inserts a family whose grant [`Tx::lock_grant`] has allowed.
    pub(crate) async fn insert_locked_family(&mut self, family: &Family) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO families (id, client_id, user_id, sid, scopes, audiences, details, outlives_session, \
             created_at, expires_at, revoked_at, read_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        )
        .bind(&family.id)
        .bind(&family.client_id)
        .bind(&family.user_id)
        .bind(&family.sid)
        .bind(&family.scopes)
        .bind(&family.audiences)
        .bind(&family.details)
        .bind(i64::from(family.outlives_session))
        .bind(millis(family.created_at))
        .bind(millis(family.expires_at))
        .bind(family.revoked_at.map(millis))
        .bind(millis(family.read_at))
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }

    /// Revokes a family and appends the event. `false`: it was revoked before, or does not exist.
    pub(crate) async fn revoke_family(
        &mut self,
        id: &str,
        revocation: &Revocation,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let revoked = sqlx::query("UPDATE families SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL")
            .bind(id)
            .bind(millis(now))
            .execute(&mut *self.connection)
            .await?;
        if revoked.rows_affected() == 0 {
            return Ok(false);
        }
        self.queue_revocation(revocation, now);
        Ok(true)
    }
}

/// Revokes a family. `false`: it was revoked before, or does not exist.
#[derive(Debug, Clone)]
pub struct RevokeFamily {
    /// Id of the family.
    pub id: String,
    /// Event to append to the revocation log.
    pub revocation: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RevokeFamily {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        tx.revoke_family(&self.id, &self.revocation, self.now).await
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Families in one [`RevokeFamilyBatch`], so that no other transaction waits long for row locks.
pub const BATCH_SIZE: u64 = 500;

/// Revokes a batch of a client's families, to prepare [`RevokeGrants`]. Without it, one long
/// transaction would block all other writers while it revokes a million families. Appends no event.
/// The output is the number of revoked families, and the id to continue after; `None`: there are no
/// more.
#[derive(Debug, Clone)]
pub struct RevokeFamilyBatch {
    /// The client whose families are revoked.
    pub client_id: String,
    /// Start after this family id.
    pub after: String,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RevokeFamilyBatch {
    type Output = (u64, Option<String>);

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        const ALIVE: &str = "client_id = $1 AND id > $3 AND revoked_at IS NULL AND expires_at > $2";
        let select = format!("SELECT id FROM families WHERE {ALIVE} ORDER BY id LIMIT {BATCH_SIZE}");
        let some = sqlx::query(sqlx::AssertSqlSafe(select))
            .bind(&self.client_id)
            .bind(millis(self.now))
            .bind(&self.after)
            .fetch_all(&mut *tx.connection)
            .await?;
        let Some(last) = some.last() else { return Ok((0, None)) };
        // The ids are compared by the database: its text collation may differ from the order in
        // Rust.
        let last: String = last.try_get(0)?;
        let update = format!("UPDATE families SET revoked_at = $2 WHERE {ALIVE} AND id <= $4");
        let revoked = sqlx::query(sqlx::AssertSqlSafe(update))
            .bind(&self.client_id)
            .bind(millis(self.now))
            .bind(&self.after)
            .bind(&last)
            .execute(&mut *tx.connection)
            .await?;
        Ok((revoked.rows_affected(), (some.len() as u64 == BATCH_SIZE).then_some(last)))
    }
}

/// Revokes everything granted to a client, or only what it has for one user. That includes
/// families, tokens without a family, and approved device codes that are not redeemed yet. Consents
/// stay. The output counts families and opaque tokens without a family.
#[derive(Debug, Clone)]
pub struct RevokeGrants {
    /// The client whose grants are revoked.
    pub client_id: String,
    /// Only grants of this user; `None`: all grants, those of the client itself included.
    pub user_id: Option<String>,
    /// Event to append, with the reach "everything so far". It alone revokes JWTs.
    pub revocation: Revocation,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for RevokeGrants {
    type Output = u64;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<u64, StoreError> {
        let user_condition = if self.user_id.is_some() { "user_id = $3" } else { "CAST($3 AS TEXT) IS NULL" };
        let mut revoked = 0;
        for (statement, counts) in [
            (
                "UPDATE device_codes SET expires_at = $2 WHERE redeemed_at IS NULL AND user_id IS NOT NULL",
                false,
            ),
            ("UPDATE families SET revoked_at = $2 WHERE revoked_at IS NULL", true),
            // Tokens of a family are invalid without it.
            ("UPDATE access_tokens SET revoked_at = $2 WHERE family_id IS NULL AND revoked_at IS NULL", true),
        ] {
            let update = format!("{statement} AND expires_at > $2 AND client_id = $1 AND {user_condition}");
            let done = sqlx::query(sqlx::AssertSqlSafe(update))
                .bind(&self.client_id)
                .bind(millis(self.now))
                .bind(&self.user_id)
                .execute(&mut *tx.connection)
                .await?;
            revoked += if counts { done.rows_affected() } else { 0 };
        }
        tx.queue_revocation(&self.revocation, self.now);
        Ok(revoked)
    }
}
