//! Login sessions: sessions that a gateway keeps for browsers that signed in with a provider. They
//! are not the provider's own sessions, which are in [`crate::sessions`].
//!
//! Owns: the rows, which of several gateways may refresh one, and ending those of a user or of a
//! provider's session. Does not own: their content, which arrives sealed, or the cookie, which
//! arrives as a digest.
//!
//! A gateway keeps them in its own database or in the provider's; no other table references them.
//! Several gateways may change the same row at once. Each change is one statement with a condition,
//! and the number of affected rows is its result.
//!
//! The revocation log does not contain their end. That log is for caches that do not query the
//! database. A gateway reads its sessions here, and cannot find one whose end is durable. Processes
//! that have read a session a moment ago learn of its end from a list
//! ([`crate::delete_login_endings`]).

use std::fmt;

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use tokio::time::Instant;

use crate::columns::{StoredDigest, millis, timestamp, unsigned};
use crate::error::StoreError;
use crate::expiry;
use crate::replay_guard::UseOnce;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// A login session as it is stored. `Debug` omits the content.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginSessionRow {
    /// Digest of the cookie's secret.
    pub id: StoredDigest,
    /// Digest of the user, unique within their provider.
    pub subject: StoredDigest,
    /// Digest of the provider's session, if the provider named one.
    pub sid: Option<StoredDigest>,
    /// When the user signed in.
    pub began_at: Timestamp,
    /// When it expires at the latest.
    pub expires_at: Timestamp,
    /// How often its content was replaced.
    pub version: u64,
    /// Everything else, sealed by the caller.
    pub content: Vec<u8>,
}

impl fmt::Debug for LoginSessionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginSessionRow")
            .field("began", &self.began_at)
            .field("ends", &self.expires_at)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl LoginSessionRow {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: StoredDigest::read(row, 0)?,
            subject: StoredDigest::read(row, 1)?,
            sid: StoredDigest::read_optional(row, 2)?,
            began_at: timestamp(row.try_get(3)?),
            expires_at: timestamp(row.try_get(4)?),
            version: unsigned(row.try_get(5)?),
            content: row.try_get(6)?,
        })
    }
}

/// A version as a column value. A version out of range matches no row.
fn version_column(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(-1)
}

impl Store {
    /// The login session with this id, if it has not expired.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn login_session(
        &self,
        id: &StoredDigest,
        now: Timestamp,
    ) -> Result<Option<LoginSessionRow>, StoreError> {
        let ask = sqlx::query(
            "SELECT id, subject, sid, began, ends, version, content FROM login_sessions \
             WHERE id = $1 AND ends > $2",
        )
        .bind(id.as_slice())
        .bind(millis(now));
        let row = self.readers().fetch_optional(ask).await?;
        row.as_ref().map(LoginSessionRow::read).transpose()
    }

    /// Deletes expired login sessions and returns how many, for a gateway that stores nothing else
    /// here. [`crate::expiry`] deletes them too.
    ///
    /// # Errors
    /// [`StoreError`] when a step fails; the rows deleted before stay deleted.
    pub async fn delete_expired_login_sessions(&self, now: Timestamp) -> Result<u64, StoreError> {
        let sweeping = async {
            expiry::delete_login_endings(self.writers(), self.dialect(), now).await?;
            let mut swept = 0;
            for table in expiry::LOGIN_TABLES {
                swept += expiry::delete_expired(self.writers(), self.dialect(), table, millis(now)).await?;
            }
            Ok(swept)
        };
        let swept = sweeping.await;
        self.storage_health().record(&swept, Instant::now());
        swept
    }
}

/// Stores a new login session.
///
/// # Errors
/// [`StoreError::Taken`] when a session has the same `id`, which is drawn at random.
#[derive(Debug, Clone)]
pub struct BeginLoginSession(pub LoginSessionRow);

impl Change for BeginLoginSession {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let session = &self.0;
        sqlx::query(
            "INSERT INTO login_sessions (id, subject, sid, began, ends, version, content) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(session.id.as_slice())
        .bind(session.subject.as_slice())
        .bind(session.sid.as_ref().map(StoredDigest::as_slice))
        .bind(millis(session.began_at))
        .bind(millis(session.expires_at))
        .bind(version_column(session.version))
        .bind(&session.content[..])
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).with_name("the name of a login session"))?;
        Ok(())
    }
}

/// Claims the right to refresh a login session. `false`: it has another version, has expired, or
/// another gateway has the right or is changing the row.
#[derive(Debug, Clone)]
pub struct ClaimLoginSession {
    /// Id of the session.
    pub id: StoredDigest,
    /// The version that was read.
    pub version: u64,
    /// Time of the claim.
    pub now: Timestamp,
    /// When the claim expires and another gateway may take it.
    pub until: Timestamp,
}

impl Change for ClaimLoginSession {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        // A browser sends many requests at once, so many transactions want the same few rows while
        // they hold others. Waiting for the lock here could deadlock. PostgreSQL re-evaluates the
        // outer condition if another node had locked the row.
        let free =
            "id = $1 AND version = $2 AND ends > $3 AND (claimed_until IS NULL OR claimed_until <= $3)";
        let claimed = sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE login_sessions SET claimed_until = $4 WHERE {free} \
             AND id IN (SELECT id FROM login_sessions WHERE {free}{})",
            tx.dialect.for_update_skip_locked()
        )))
        .bind(self.id.as_slice())
        .bind(version_column(self.version))
        .bind(millis(self.now))
        .bind(millis(self.until))
        .execute(&mut *tx.connection)
        .await?;
        Ok(claimed.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Replaces the content of a version, increments the version and releases the claim. `false`: there
/// is no such session with this version. `Debug` omits the content.
#[derive(Clone)]
pub struct ReplaceLoginSession {
    /// Id of the session.
    pub id: StoredDigest,
    /// The version that was read.
    pub version: u64,
    /// The new content, sealed.
    pub content: Vec<u8>,
}

impl fmt::Debug for ReplaceLoginSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplaceLoginSession").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Change for ReplaceLoginSession {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let replaced = sqlx::query(
            "UPDATE login_sessions SET content = $3, version = version + 1, claimed_until = NULL \
             WHERE id = $1 AND version = $2",
        )
        .bind(self.id.as_slice())
        .bind(version_column(self.version))
        .bind(&self.content[..])
        .execute(&mut *tx.connection)
        .await?;
        Ok(replaced.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Releases the claim on a login session, so that the next gateway can try. `false`: it has another
/// version, or is not claimed.
#[derive(Debug, Clone)]
pub struct ReleaseLoginSession {
    /// Id of the session.
    pub id: StoredDigest,
    /// The version with which it was claimed.
    pub version: u64,
}

impl Change for ReleaseLoginSession {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let released = sqlx::query(
            "UPDATE login_sessions SET claimed_until = NULL \
             WHERE id = $1 AND version = $2 AND claimed_until IS NOT NULL",
        )
        .bind(self.id.as_slice())
        .bind(version_column(self.version))
        .execute(&mut *tx.connection)
        .await?;
        Ok(released.rows_affected() == 1)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}

/// Ends a login session. The output is its last content; `None`: there was none.
#[derive(Debug, Clone)]
pub struct EndLoginSession {
    /// Id of the session.
    pub id: StoredDigest,
}

impl Change for EndLoginSession {
    type Output = Option<Vec<u8>>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Option<Vec<u8>>, StoreError> {
        let ended = sqlx::query("DELETE FROM login_sessions WHERE id = $1 RETURNING content")
            .bind(self.id.as_slice())
            .fetch_optional(&mut *tx.connection)
            .await?;
        if ended.is_some() {
            tx.record_ended_login(self.id);
        }
        Ok(ended.map(|row| row.try_get(0)).transpose()?)
    }

    fn took_effect(output: &Self::Output) -> bool {
        output.is_some()
    }
}

/// Selects the login sessions to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginSessionsOf {
    /// Those that belong to one session of the provider.
    Sid(StoredDigest),
    /// All sessions of one user.
    Subject(StoredDigest),
}

/// Ends the selected login sessions that began at `began` or earlier. The output is their ids.
#[derive(Debug, Clone)]
pub struct EndLoginSessions {
    /// Which sessions to end.
    pub selection: LoginSessionsOf,
    /// Sessions that began later stay.
    pub began: Timestamp,
}

impl Change for EndLoginSessions {
    type Output = Vec<StoredDigest>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<StoredDigest>, StoreError> {
        let (statement, digest) = match &self.selection {
            LoginSessionsOf::Sid(sid) => {
                ("DELETE FROM login_sessions WHERE sid = $1 AND began <= $2 RETURNING id", sid)
            }
            LoginSessionsOf::Subject(subject) => {
                ("DELETE FROM login_sessions WHERE subject = $1 AND began <= $2 RETURNING id", subject)
            }
        };
        let rows = sqlx::query(statement)
            .bind(digest.as_slice())
            .bind(millis(self.began))
            .fetch_all(&mut *tx.connection)
            .await?;
        let ended = rows.iter().map(|row| StoredDigest::read(row, 0)).collect::<Result<Vec<_>, _>>()?;
        for session in &ended {
            tx.record_ended_login(*session);
        }
        Ok(ended)
    }

    fn took_effect(output: &Self::Output) -> bool {
        !output.is_empty()
    }
}

/// Like [`EndLoginSessions`], unless it was done before with the same identifier.
#[derive(Debug, Clone)]
pub struct EndLoginSessionsOnce {
    /// The identifier, such as that of a logout token.
    pub guard: UseOnce,
    /// The sessions to end.
    pub end: EndLoginSessions,
}

impl Change for EndLoginSessionsOnce {
    /// `None`: it was done before.
    type Output = Option<Vec<StoredDigest>>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        if !self.guard.apply(tx).await? {
            return Ok(None);
        }
        self.end.apply(tx).await.map(Some)
    }

    fn took_effect(output: &Self::Output) -> bool {
        output.is_some()
    }
}
