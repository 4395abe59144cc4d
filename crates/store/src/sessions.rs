//! Sessions: who logged in with which browser.

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::error::StoreError;
use crate::invalidation::Revocation;
use crate::store::Store;
use crate::value::{Digest, millis, timestamp};
use crate::write::{Change, Tx};

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Of the cookie.
    pub digest: Digest,
    /// Its public name, the `sid` of tokens.
    pub sid: String,
    /// Whose.
    pub user_id: String,
    /// When they last proved who they are (`auth_time`).
    pub authenticated_at: Timestamp,
    /// How, space-separated (`amr`, RFC 8176).
    pub methods: String,
    /// How well (`acr`).
    pub acr: Option<String>,
    /// The browser, as it calls itself.
    pub agent: String,
    /// Where it came from.
    pub address: String,
    /// When it began.
    pub created_at: Timestamp,
    /// When it was last used, to the minute or so.
    pub seen_at: Timestamp,
    /// From when on it is over whatever happens.
    pub expires_at: Timestamp,
    /// Since when it is over.
    pub ended_at: Option<Timestamp>,
}

const COLUMNS: &str = "s.digest, s.sid, s.user_id, s.authenticated_at, s.methods, s.acr, s.agent, s.address, \
     s.created_at, s.seen_at, s.expires_at, s.ended_at";

impl Session {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            digest: Digest::read(row, 0)?,
            sid: row.try_get(1)?,
            user_id: row.try_get(2)?,
            authenticated_at: timestamp(row.try_get(3)?),
            methods: row.try_get(4)?,
            acr: row.try_get(5)?,
            agent: row.try_get(6)?,
            address: row.try_get(7)?,
            created_at: timestamp(row.try_get(8)?),
            seen_at: timestamp(row.try_get(9)?),
            expires_at: timestamp(row.try_get(10)?),
            ended_at: row.try_get::<Option<i64>, _>(11)?.map(timestamp),
        })
    }
}

impl Store {
    /// The session of a cookie, if it is not over and its user's account is open.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn session(&self, digest: &Digest, now: Timestamp) -> Result<Option<Session>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.digest = $1 \
             AND s.ended_at IS NULL AND s.expires_at > $2 AND u.disabled_at IS NULL"
        )))
        .bind(digest.as_slice())
        .bind(millis(now))
        .fetch_optional(&mut *self.reader().await?)
        .await?;
        row.as_ref().map(Session::read).transpose()
    }

    /// A user's sessions that are not over, the newest first.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn sessions_of(&self, user_id: &str, now: Timestamp) -> Result<Vec<Session>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM sessions s WHERE s.user_id = $1 AND s.ended_at IS NULL \
             AND s.expires_at > $2 ORDER BY s.created_at DESC, s.sid"
        )))
        .bind(user_id)
        .bind(millis(now))
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter().map(Session::read).collect()
    }
}

/// Keeps a new session, and ends the one whose place it takes.
#[derive(Debug, Clone)]
pub struct BeginSession {
    /// The session.
    pub session: Session,
    /// Of the cookie the browser had before, if any: a new login means a new cookie.
    pub replaces: Option<Digest>,
}

impl Change for BeginSession {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let session = &self.session;
        if let Some(old) = &self.replaces {
            sqlx::query("UPDATE sessions SET ended_at = $2 WHERE digest = $1 AND ended_at IS NULL")
                .bind(old.as_slice())
                .bind(millis(session.created_at))
                .execute(&mut *tx.connection)
                .await?;
        }
        sqlx::query(
            "INSERT INTO sessions (digest, sid, user_id, authenticated_at, methods, acr, agent, address, \
             created_at, seen_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        )
        .bind(session.digest.as_slice())
        .bind(&session.sid)
        .bind(&session.user_id)
        .bind(millis(session.authenticated_at))
        .bind(&session.methods)
        .bind(&session.acr)
        .bind(&session.agent)
        .bind(&session.address)
        .bind(millis(session.created_at))
        .bind(millis(session.seen_at))
        .bind(millis(session.expires_at))
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }
}

/// Notes that a session was used.
#[derive(Debug, Clone)]
pub struct SeeSession {
    /// Which.
    pub digest: Digest,
    /// When.
    pub now: Timestamp,
}

impl Change for SeeSession {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE sessions SET seen_at = $2 WHERE digest = $1 AND ended_at IS NULL AND seen_at < $2",
        )
        .bind(self.digest.as_slice())
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }
}

/// Ends a session and revokes what was granted in it, but for what outlives it. `false` when it was over already.
#[derive(Debug, Clone)]
pub struct EndSession {
    /// Which.
    pub sid: String,
    /// Whose it must be.
    pub user_id: String,
    /// What to tell: the session's tag.
    pub revocation: Revocation,
    /// When.
    pub now: Timestamp,
}

impl Change for EndSession {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let ended = sqlx::query(
            "UPDATE sessions SET ended_at = $3 WHERE sid = $1 AND user_id = $2 AND ended_at IS NULL",
        )
        .bind(&self.sid)
        .bind(&self.user_id)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        if ended.rows_affected() == 0 {
            return Ok(false);
        }
        sqlx::query(
            "UPDATE families SET revoked_at = $2 WHERE sid = $1 AND revoked_at IS NULL AND outlives_session = 0",
        )
        .bind(&self.sid)
        .bind(millis(self.now))
        .execute(&mut *tx.connection)
        .await?;
        tx.append(&self.revocation, self.now).await?;
        Ok(true)
    }
}
