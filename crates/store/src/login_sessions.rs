//! Login sessions: those that a gateway keeps for browsers it has sent to a provider, whichever that is. Not the provider's
//! own, by which it knows a browser again: [`crate::sessions`].
//!
//! Owns: keeping them; who of many may refresh one; ending those of a person or of a provider's session. Does not own: what is
//! in them, which arrives sealed, nor what the browser holds, which arrives as a digest.
//!
//! A gateway keeps them in a database of its own or shares the provider's; they refer to nothing else in it. Several gateways
//! may want to change the same one at once: each change is one statement that names what must hold, and its number of rows is
//! the answer.
//!
//! The log of revocations is not told of their end. It is for those who go on without asking the database, and who serves a
//! session asks for it here: it is gone from the moment its end is durable. Those who have asked a moment ago read it in a list
//! ([`crate::login_endings`]).

use std::fmt;

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::expiry;
use crate::replay_guard::UseOnce;
use crate::store::Store;
use crate::value::{StoredDigest, millis, number, timestamp};
use crate::write::{Change, Tx};

/// A login session as it is stored. `Debug` prints nothing of its content.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginSessionRow {
    /// Of what the browser holds.
    pub id: StoredDigest,
    /// Of whose it is, within their provider.
    pub subject: StoredDigest,
    /// Of the provider's session it comes from, when the provider told.
    pub sid: Option<StoredDigest>,
    /// When somebody logged in.
    pub began: Timestamp,
    /// From when on it is over whatever happens.
    pub ends: Timestamp,
    /// How often its content was replaced.
    pub version: u64,
    /// Everything else, sealed.
    pub content: Vec<u8>,
}

impl fmt::Debug for LoginSessionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginSession")
            .field("began", &self.began)
            .field("ends", &self.ends)
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
            began: timestamp(row.try_get(3)?),
            ends: timestamp(row.try_get(4)?),
            version: number(row.try_get(5)?),
            content: row.try_get(6)?,
        })
    }
}

/// A version as it stands in a column. One that could not stand there is no row's.
fn column(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(-1)
}

impl Store {
    /// The login session of this name, if it has not ended.
    ///
    /// # Errors
    /// [`StoreError`]
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
        let row = self.readers().optional(ask).await?;
        row.as_ref().map(LoginSessionRow::read).transpose()
    }

    /// Deletes login sessions that have ended by themselves, and says how many: see [`crate::expiry`], which does it too. For
    /// whoever keeps nothing else here.
    ///
    /// # Errors
    /// [`StoreError`]; what was deleted until then stays deleted.
    pub async fn sweep_login_sessions(&self, now: Timestamp) -> Result<u64, StoreError> {
        let sweeping = async {
            expiry::login_endings(self.writers(), self.dialect(), now).await?;
            let mut swept = 0;
            for table in expiry::OF_LOGINS {
                swept += expiry::steps(self.writers(), self.dialect(), table, millis(now)).await?;
            }
            Ok(swept)
        };
        let swept = sweeping.await;
        self.storing().note(&swept, Instant::now());
        swept
    }
}

/// Keeps a new login session.
///
/// # Errors
/// [`StoreError::Taken`] when there is one of its `id`, which is drawn at random.
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
        .bind(millis(session.began))
        .bind(millis(session.ends))
        .bind(column(session.version))
        .bind(&session.content[..])
        .execute(&mut *tx.connection)
        .await
        .map_err(|error| StoreError::from(error).naming("the name of a login session"))?;
        Ok(())
    }
}

/// Takes the right to refresh a login session. `false` when it is not of this version, has ended, or somebody else has the
/// right or is changing it at this moment.
#[derive(Debug, Clone)]
pub struct ClaimLoginSession {
    /// Which.
    pub id: StoredDigest,
    /// The version that was read.
    pub version: u64,
    /// When.
    pub now: Timestamp,
    /// From when on somebody else may take it, whatever has become of this one.
    pub until: Timestamp,
}

impl Change for ClaimLoginSession {
    type Output = bool;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        // Browsers ask for many things at once, so that many want the same few rows, in transactions that hold others: who
        // waited here would wait in a circle. The outer condition is looked at again when another node had the row.
        let free =
            "id = $1 AND version = $2 AND ends > $3 AND (claimed_until IS NULL OR claimed_until <= $3)";
        let claimed = sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE login_sessions SET claimed_until = $4 WHERE {free} \
             AND id IN (SELECT id FROM login_sessions WHERE {free}{})",
            tx.dialect.unless_busy()
        )))
        .bind(self.id.as_slice())
        .bind(column(self.version))
        .bind(millis(self.now))
        .bind(millis(self.until))
        .execute(&mut *tx.connection)
        .await?;
        Ok(claimed.rows_affected() == 1)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Puts another content in the place of that of one version, which becomes the next, and gives back the right to refresh.
/// `false` when there is no login session of this name and version. `Debug` prints nothing of its content.
#[derive(Clone)]
pub struct ReplaceLoginSession {
    /// Which.
    pub id: StoredDigest,
    /// The version that was read.
    pub version: u64,
    /// What it is to be, sealed.
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
        .bind(column(self.version))
        .bind(&self.content[..])
        .execute(&mut *tx.connection)
        .await?;
        Ok(replaced.rows_affected() == 1)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Gives the right to refresh a login session back, so that the next one can try. `false` when it is not of this version, or
/// nobody had the right.
#[derive(Debug, Clone)]
pub struct ReleaseLoginSession {
    /// Which.
    pub id: StoredDigest,
    /// The version it was claimed with.
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
        .bind(column(self.version))
        .execute(&mut *tx.connection)
        .await?;
        Ok(released.rows_affected() == 1)
    }

    fn happened(output: &Self::Output) -> bool {
        *output
    }
}

/// Ends a login session; gives back its content as it was last, `None` when there was none.
#[derive(Debug, Clone)]
pub struct EndLoginSession {
    /// Which.
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
            tx.end_login(self.id);
        }
        Ok(ended.map(|row| row.try_get(0)).transpose()?)
    }

    fn happened(output: &Self::Output) -> bool {
        output.is_some()
    }
}

/// Whose login sessions end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginSessionsOf {
    /// Those that come from one session of the provider's.
    Sid(StoredDigest),
    /// All of one person.
    Subject(StoredDigest),
}

/// Ends all login sessions of somebody that began at a time or before, and says which they were.
#[derive(Debug, Clone)]
pub struct EndLoginSessions {
    /// Whose.
    pub of: LoginSessionsOf,
    /// Those that began later go on.
    pub began: Timestamp,
}

impl Change for EndLoginSessions {
    type Output = Vec<StoredDigest>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<StoredDigest>, StoreError> {
        let (statement, whose) = match &self.of {
            LoginSessionsOf::Sid(sid) => {
                ("DELETE FROM login_sessions WHERE sid = $1 AND began <= $2 RETURNING id", sid)
            }
            LoginSessionsOf::Subject(subject) => {
                ("DELETE FROM login_sessions WHERE subject = $1 AND began <= $2 RETURNING id", subject)
            }
        };
        let rows = sqlx::query(statement)
            .bind(whose.as_slice())
            .bind(millis(self.began))
            .fetch_all(&mut *tx.connection)
            .await?;
        let ended = rows.iter().map(|row| StoredDigest::read(row, 0)).collect::<Result<Vec<_>, _>>()?;
        for session in &ended {
            tx.end_login(*session);
        }
        Ok(ended)
    }

    fn happened(output: &Self::Output) -> bool {
        !output.is_empty()
    }
}

/// The same, unless it was done before under this name.
#[derive(Debug, Clone)]
pub struct EndLoginSessionsOnce {
    /// What it is called.
    pub once: UseOnce,
    /// What is ended.
    pub end: EndLoginSessions,
}

impl Change for EndLoginSessionsOnce {
    /// `None`: it was done before.
    type Output = Option<Vec<StoredDigest>>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        if !self.once.apply(tx).await? {
            return Ok(None);
        }
        self.end.apply(tx).await.map(Some)
    }

    fn happened(output: &Self::Output) -> bool {
        output.is_some()
    }
}
