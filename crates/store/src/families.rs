//! Families: what one authorization led to.
//!
//! A code, the refresh tokens that followed from it and the access tokens that came with each belong to one family,
//! bound to a client and usually to a user and a session. Revoking the family revokes them all at once: whoever reads a
//! token reads its family too.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

pub use crate::announcements::EventOrigins;
use crate::announcements::Revocation;
use crate::error::StoreError;
use crate::store::Store;
use crate::users::{self, UserRow};
use crate::value::{StoredDigest, millis, timestamp};
use crate::write::{Change, Tx};

/// A family as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Its name; made by the caller, not secret.
    pub id: String,
    /// Whose tokens they are.
    pub client_id: String,
    /// On whose behalf; `None` for a client of its own.
    pub user_id: Option<String>,
    /// The session they were granted in.
    pub sid: Option<String>,
    /// Space-separated.
    pub scopes: String,
    /// Space-separated.
    pub audiences: String,
    /// What else was decided at authorization, in the caller's form.
    pub details: String,
    /// Whether it lives on when its session ends (`offline_access`).
    pub outlives_session: bool,
    /// When it was granted.
    pub created_at: Timestamp,
    /// From when on nothing of it is worth anything.
    pub expires_at: Timestamp,
    /// Since when it is revoked.
    pub revoked_at: Option<Timestamp>,
    /// When what it was granted on was read, in the time of the log ([`crate::invalidation`]).
    pub read_at: Timestamp,
}

pub(crate) const COLUMNS: &str = "f.id, f.client_id, f.user_id, f.sid, f.scopes, f.audiences, f.details, \
     f.outlives_session, f.created_at, f.expires_at, f.revoked_at, COALESCE(f.read_at, f.created_at)";
/// How many these are.
const COLUMN_COUNT: usize = 12;
/// How many come before those of a secret in [`behind`].
pub(crate) const OWNED_COLUMNS: usize = COLUMN_COUNT + users::COLUMN_COUNT;

impl Family {
    /// From a row that begins with [`COLUMNS`].
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

    /// Whether its tokens are worth anything at `now`, if they do not end with a session.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }
}

/// A family and whose it is, read at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedFamily {
    /// The family.
    pub family: Family,
    /// On whose behalf, open or not; `None`: nobody's, or the account is no more.
    pub user: Option<UserRow>,
}

impl OwnedFamily {
    /// From a row that begins with [`COLUMNS`] and [`users::COLUMNS`].
    pub(crate) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self { family: Family::read(row)?, user: UserRow::read_at(row, COLUMN_COUNT)? })
    }
}

/// A secret that is redeemed once, with what it stands for: a row that [`OwnedFamily::read`] reads, and from column
/// [`OWNED_COLUMNS`] on the secret's own `columns`.
pub(crate) async fn behind(
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
    store.readers().optional(sqlx::query(sqlx::AssertSqlSafe(statement)).bind(digest.as_slice())).await
}

/// As of when a session goes on: at `now`, if it was used less than `idle` before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionsAt {
    /// When.
    pub now: Timestamp,
    /// How long a session goes on that is not used.
    pub idle: Duration,
}

impl SessionsAt {
    /// The time since which a session was used that goes on, in milliseconds.
    pub(crate) fn used_after(self) -> i64 {
        millis(self.now.minus(self.idle))
    }
}

/// Condition on a family `f`: it outlives its session, or has none, or its session goes on, however a session ends. `now` and `used_after`
/// are parameters of the statement.
pub(crate) fn with_its_session(now: &str, used_after: &str) -> String {
    format!(
        "(f.outlives_session <> 0 OR f.sid IS NULL OR EXISTS (SELECT 1 FROM sessions s WHERE s.sid = f.sid \
         AND s.ended_at IS NULL AND s.expires_at > {now} AND s.seen_at > {used_after}))"
    )
}

impl Store {
    /// Families of a user that end with their session and can be refreshed until then, the newest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn passing_families_of(
        &self,
        user_id: &str,
        at: SessionsAt,
        limit: u32,
    ) -> Result<Vec<Family>, StoreError> {
        let goes_on = with_its_session("$2", "$3");
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
        let rows = self.readers().all(ask).await?;
        rows.iter().map(Family::read).collect()
    }

    /// Families of a user that are alive and outlive their session, the newest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn lasting_families_of(
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
        let rows = self.readers().all(ask).await?;
        rows.iter().map(Family::read).collect()
    }
}

/// Whose families.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FamilyFilter<'a> {
    /// On whose behalf; `None`: whoever it is.
    pub user_id: Option<&'a str>,
    /// Whose tokens; `None`: whosever they are.
    pub client_id: Option<&'a str>,
}

impl Store {
    /// Families that are alive, in the order of their ids, those after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn families(
        &self,
        filter: FamilyFilter<'_>,
        after: &str,
        limit: u32,
        at: SessionsAt,
    ) -> Result<Vec<Family>, StoreError> {
        // Another text for each filter: what is asked for has an index.
        let user = filter.user_id.map_or("CAST($4 AS TEXT) IS NULL", |_| "f.user_id = $4");
        let client = filter.client_id.map_or("CAST($5 AS TEXT) IS NULL", |_| "f.client_id = $5");
        let goes_on = with_its_session("$2", "$6");
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM families f WHERE f.id > $1 AND f.revoked_at IS NULL AND f.expires_at > $2 \
             AND {user} AND {client} AND {goes_on} ORDER BY f.id LIMIT $3"
        )))
        .bind(after)
        .bind(millis(at.now))
        .bind(i64::from(limit))
        .bind(filter.user_id)
        .bind(filter.client_id)
        .bind(at.used_after());
        let rows = self.readers().all(ask).await?;
        rows.iter().map(Family::read).collect()
    }

    /// A family by id, alive or not.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn family(&self, id: &str) -> Result<Option<Family>, StoreError> {
        let ask =
            sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM families f WHERE f.id = $1")))
                .bind(id);
        let row = self.readers().optional(ask).await?;
        row.as_ref().map(Family::read).transpose()
    }
}

impl Tx<'_> {
    /// Whether something may still be granted to whom and in what the family names, on what was read for it. If so, neither account nor
    /// session ends until the transaction has: whoever ends it then finds the family.
    pub(crate) async fn hold_grant(
        &mut self,
        family: &Family,
        origins: &EventOrigins,
    ) -> Result<bool, StoreError> {
        let ended = sqlx::query(
            "SELECT 1 FROM denials WHERE tag IN ($1, $2) AND (not_before IS NULL OR not_before > $3) LIMIT 1",
        )
        .bind(origins[0].0.to_vec())
        .bind(origins[1].0.to_vec())
        .bind(millis(family.read_at))
        .fetch_optional(&mut *self.connection)
        .await?;
        if ended.is_some() || self.ends(origins) {
            return Ok(false);
        }
        if let Some(user) = &family.user_id
            && !self.hold_user(user, family.read_at).await?
        {
            return Ok(false);
        }
        match &family.sid {
            Some(sid) => self.hold_session(sid).await,
            None => Ok(true),
        }
    }

    /// Keeps a family. `false`, and nothing is kept, when its account, its session or what it follows from has ended.
    pub(crate) async fn insert_family(
        &mut self,
        family: &Family,
        origins: &EventOrigins,
    ) -> Result<bool, StoreError> {
        if !self.hold_grant(family, origins).await? {
            return Ok(false);
        }
        self.insert_held_family(family).await?;
        Ok(true)
    }

    /// Keeps a family after [`Tx::hold_grant`].
    pub(crate) async fn insert_held_family(&mut self, family: &Family) -> Result<(), StoreError> {
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

    /// Revokes the family and tells so, unless it is revoked already.
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
        self.append(revocation, now);
        Ok(true)
    }
}

/// Revokes a family of a client. `true` when it was alive until now.
#[derive(Debug, Clone)]
pub struct RevokeFamily {
    /// Which one.
    pub id: String,
    /// What to tell.
    pub revocation: Revocation,
    /// When.
    pub now: Timestamp,
}

impl Change for RevokeFamily {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        tx.revoke_family(&self.id, &self.revocation, self.now).await
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Families that [`RevokeSome`] takes at once: nobody waits long for the rows and the lock.
pub const TOGETHER: u64 = 500;

/// Revokes some of a client's families, as a beginning of [`RevokeGrants`], which would keep everybody else from writing while it revokes
/// a million of them. Nobody is told yet. How many, and after which to go on; `None`: there are no more.
#[derive(Debug, Clone)]
pub struct RevokeSome {
    /// Whose.
    pub client_id: String,
    /// Those after this one.
    pub after: String,
    /// When.
    pub now: Timestamp,
}

impl Change for RevokeSome {
    type Output = (u64, Option<String>);

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        const ALIVE: &str = "client_id = $1 AND id > $3 AND revoked_at IS NULL AND expires_at > $2";
        let select = format!("SELECT id FROM families WHERE {ALIVE} ORDER BY id LIMIT {TOGETHER}");
        let some = sqlx::query(sqlx::AssertSqlSafe(select))
            .bind(&self.client_id)
            .bind(millis(self.now))
            .bind(&self.after)
            .fetch_all(&mut *tx.connection)
            .await?;
        let Some(last) = some.last() else { return Ok((0, None)) };
        // What is the last one only the database can say: its order of texts is its own.
        let last: String = last.try_get(0)?;
        let update = format!("UPDATE families SET revoked_at = $2 WHERE {ALIVE} AND id <= $4");
        let revoked = sqlx::query(sqlx::AssertSqlSafe(update))
            .bind(&self.client_id)
            .bind(millis(self.now))
            .bind(&self.after)
            .bind(&last)
            .execute(&mut *tx.connection)
            .await?;
        Ok((revoked.rows_affected(), (some.len() as u64 == TOGETHER).then_some(last)))
    }
}

/// Revokes everything that a client has, or what it has on behalf of one user: families, tokens without one, and devices
/// that were admitted and have not asked yet. Consents stay. The count is that of families and of tokens without one that are asked about.
#[derive(Debug, Clone)]
pub struct RevokeGrants {
    /// Whose tokens.
    pub client_id: String,
    /// On whose behalf; `None`: whoever it is, the client itself too.
    pub user_id: Option<String>,
    /// What to tell, of everything so far: tokens that are verified without asking are void by it alone.
    pub revocation: Revocation,
    /// When.
    pub now: Timestamp,
}

impl Change for RevokeGrants {
    type Output = u64;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<u64, StoreError> {
        let whose = if self.user_id.is_some() { "user_id = $3" } else { "CAST($3 AS TEXT) IS NULL" };
        let mut revoked = 0;
        for (statement, counts) in [
            (
                "UPDATE device_codes SET expires_at = $2 WHERE redeemed_at IS NULL AND user_id IS NOT NULL",
                false,
            ),
            ("UPDATE families SET revoked_at = $2 WHERE revoked_at IS NULL", true),
            // Those of a family are worth nothing without it.
            ("UPDATE access_tokens SET revoked_at = $2 WHERE family_id IS NULL AND revoked_at IS NULL", true),
        ] {
            let update = format!("{statement} AND expires_at > $2 AND client_id = $1 AND {whose}");
            let done = sqlx::query(sqlx::AssertSqlSafe(update))
                .bind(&self.client_id)
                .bind(millis(self.now))
                .bind(&self.user_id)
                .execute(&mut *tx.connection)
                .await?;
            revoked += if counts { done.rows_affected() } else { 0 };
        }
        tx.append(&self.revocation, self.now);
        Ok(revoked)
    }
}
