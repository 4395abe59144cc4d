//! Sessions of the provider: which user signed in with which browser. A gateway's login sessions
//! are in [`crate::login_sessions`].

use auth::time::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::announcements::Revocation;
use crate::columns::{StoredDigest, batches, millis, placeholders, timestamp};
use crate::deliveries::EndedSessions;
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Change, Tx};

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Digest of the cookie.
    pub digest: StoredDigest,
    /// Its public id: the `sid` claim of tokens.
    pub sid: String,
    /// The user of the session.
    pub user_id: String,
    /// When the user last authenticated (`auth_time`).
    pub authenticated_at: Timestamp,
    /// Authentication methods, space-separated (`amr`, RFC 8176).
    pub methods: String,
    /// Authentication context class (`acr`).
    pub acr: Option<String>,
    /// The browser's `User-Agent`.
    pub user_agent: String,
    /// The browser's IP address.
    pub address: String,
    /// When it began.
    pub created_at: Timestamp,
    /// When it was last used, to about a minute: by its browser, or by a client that refreshed a
    /// family that ends with it.
    pub last_used_at: Timestamp,
    /// When it expires at the latest.
    pub expires_at: Timestamp,
    /// When it was ended; `None`: it was not.
    pub ended_at: Option<Timestamp>,
    /// When this row was read, in log time ([`crate::revocation_log`]). For a new session: when the
    /// account was read.
    pub read_at: Timestamp,
}

const COLUMNS: &str = "s.digest, s.sid, s.user_id, s.authenticated_at, s.methods, s.acr, s.agent, s.address, \
     s.created_at, s.seen_at, s.expires_at, s.ended_at, (SELECT at FROM invalidation_head WHERE id = 1)";

impl SessionRow {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            digest: StoredDigest::read(row, 0)?,
            sid: row.try_get(1)?,
            user_id: row.try_get(2)?,
            authenticated_at: timestamp(row.try_get(3)?),
            methods: row.try_get(4)?,
            acr: row.try_get(5)?,
            user_agent: row.try_get(6)?,
            address: row.try_get(7)?,
            created_at: timestamp(row.try_get(8)?),
            last_used_at: timestamp(row.try_get(9)?),
            expires_at: timestamp(row.try_get(10)?),
            ended_at: row.try_get::<Option<i64>, _>(11)?.map(timestamp),
            read_at: timestamp(row.try_get(12)?),
        })
    }
}

/// The statement of [`Store::sessions`]. Its parameters: the `sid` after which to read, the current
/// time, the maximum number of sessions, and the user.
pub fn list_statement(user_id: Option<&str>) -> String {
    let user = user_id.map_or("CAST($4 AS TEXT) IS NULL", |_| "s.user_id = $4");
    format!(
        "SELECT {COLUMNS} FROM sessions s WHERE s.sid > $1 AND s.ended_at IS NULL AND s.expires_at > $2 \
         AND {user} ORDER BY s.sid LIMIT $3"
    )
}

impl Store {
    /// The session of a cookie, if it is active and its user's account is enabled.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn session(
        &self,
        digest: &StoredDigest,
        now: Timestamp,
    ) -> Result<Option<SessionRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.digest = $1 \
             AND s.ended_at IS NULL AND s.expires_at > $2 AND u.disabled_at IS NULL"
        )))
        .bind(digest.as_slice())
        .bind(millis(now));
        let row = self.readers().fetch_optional(ask).await?;
        row.as_ref().map(SessionRow::read).transpose()
    }

    /// Active sessions of a user, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn sessions_of(&self, user_id: &str, now: Timestamp) -> Result<Vec<SessionRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM sessions s WHERE s.user_id = $1 AND s.ended_at IS NULL \
             AND s.expires_at > $2 ORDER BY s.created_at DESC, s.sid"
        )))
        .bind(user_id)
        .bind(millis(now));
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(SessionRow::read).collect()
    }

    /// At most `limit` active sessions of one user or of all, in the order of their `sid`, starting
    /// after `after`.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn sessions(
        &self,
        user_id: Option<&str>,
        after: &str,
        limit: u32,
        now: Timestamp,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(list_statement(user_id)))
            .bind(after)
            .bind(millis(now))
            .bind(i64::from(limit))
            .bind(user_id);
        let rows = self.readers().fetch_all(ask).await?;
        rows.iter().map(SessionRow::read).collect()
    }

    /// A session by its `sid`, active or not.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn session_by_sid(&self, sid: &str) -> Result<Option<SessionRow>, StoreError> {
        let ask =
            sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM sessions s WHERE s.sid = $1")))
                .bind(sid);
        let row = self.readers().fetch_optional(ask).await?;
        row.as_ref().map(SessionRow::read).transpose()
    }
}

impl Tx<'_> {
    /// Whether the session was not ended. If so, the row stays locked until the transaction ends,
    /// so it cannot be ended meanwhile.
    pub(crate) async fn lock_session(&mut self, sid: &str) -> Result<bool, StoreError> {
        let held = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT 1 FROM sessions WHERE sid = $1 AND ended_at IS NULL{}",
            self.dialect.for_share()
        )))
        .bind(sid)
        .fetch_optional(&mut *self.connection)
        .await?;
        Ok(held.is_some())
    }

    /// Records the use of a session, to be written at the end of the transaction.
    pub(crate) fn record_session_use(&mut self, sid: String, now: Timestamp) {
        let at = self.used_sessions.entry(sid).or_insert(now);
        *at = now.max(*at);
    }

    /// Writes when sessions were used.
    ///
    /// Clients refresh at all nodes, and the changes of a shared transaction have no common order.
    /// Waiting for row locks here could deadlock. So a locked row is skipped: its holder is just
    /// using or ending the session. PostgreSQL re-evaluates the outer condition if another node had
    /// locked the row, so an ended session stays unchanged.
    pub(crate) async fn write_session_uses(&mut self) -> Result<(), StoreError> {
        let used: Vec<(String, Timestamp)> = std::mem::take(&mut self.used_sessions).into_iter().collect();
        for some in batches(&used) {
            let (goes_on, places) = ("ended_at IS NULL AND seen_at < $1", placeholders(2, some.len()));
            let update = format!(
                "UPDATE sessions SET seen_at = $1 WHERE {goes_on} \
                 AND sid IN (SELECT sid FROM sessions WHERE sid IN ({places}) AND {goes_on}{})",
                self.dialect.for_update_skip_locked()
            );
            let last = some.iter().map(|(_, at)| *at).max().unwrap_or(Timestamp::from_millis(0));
            let mut update = sqlx::query(sqlx::AssertSqlSafe(update)).bind(millis(last));
            for (sid, _) in some {
                update = update.bind(sid);
            }
            update.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    /// Inserts a session; the caller holds the lock of its user.
    pub(crate) async fn insert_session(&mut self, session: &SessionRow) -> Result<(), StoreError> {
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
        .bind(&session.user_agent)
        .bind(&session.address)
        .bind(millis(session.created_at))
        .bind(millis(session.last_used_at))
        .bind(millis(session.expires_at))
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }

    /// Applies a new login of the same user to the session of the cookie `old`. Returns its `sid`;
    /// `None`: there is no such active session.
    async fn renew_session(
        &mut self,
        old: &StoredDigest,
        new: &SessionRow,
    ) -> Result<Option<String>, StoreError> {
        let renewed = sqlx::query(
            "UPDATE sessions SET digest = $2, authenticated_at = $3, methods = $4, acr = $5, seen_at = $6, \
             expires_at = $7 WHERE digest = $1 AND user_id = $8 AND ended_at IS NULL AND expires_at > $9 \
             RETURNING sid",
        )
        .bind(old.as_slice())
        .bind(new.digest.as_slice())
        .bind(millis(new.authenticated_at))
        .bind(&new.methods)
        .bind(&new.acr)
        .bind(millis(new.last_used_at))
        .bind(millis(new.expires_at))
        .bind(&new.user_id)
        .bind(millis(new.created_at))
        .fetch_optional(&mut *self.connection)
        .await?;
        renewed.map(|row| Ok(row.try_get(0)?)).transpose()
    }

    /// Applies the consequences of a session's end, after the same transaction has marked it as
    /// ended.
    async fn apply_session_end(
        &mut self,
        sid: &str,
        revocation: Option<&Revocation>,
        deliver_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if let Some(until) = deliver_until {
            self.queue_logout_deliveries(EndedSessions::One(sid), until, now).await?;
        }
        sqlx::query(
            "UPDATE families SET revoked_at = $2 WHERE sid = $1 AND revoked_at IS NULL AND outlives_session = 0",
        )
        .bind(sid)
        .bind(millis(now))
        .execute(&mut *self.connection)
        .await?;
        if let Some(revocation) = revocation {
            self.queue_revocation(revocation, now);
        }
        Ok(())
    }
}

/// Stores a new session, or continues the one that it replaces.
///
/// If the same user signs in again, their session and its grants remain, and the session gets the
/// new cookie; `sid` and `created_at` do not change. If another user signs in, the old session ends
/// as with [`EndSession`].
#[derive(Debug, Clone)]
pub struct BeginSession {
    /// The session to store.
    pub session: SessionRow,
    /// Digest of the browser's previous cookie, if any: each login sets a new cookie.
    pub replaces: Option<StoredDigest>,
    /// Event to append when another user's session ends, with its tag.
    pub revocation: Option<Revocation>,
    /// Until when clients of the ended session are notified, each once; `None`: they are not
    /// notified.
    pub deliver_until: Option<Timestamp>,
}

impl Change for BeginSession {
    /// The resulting `sid`; `None`: the account is disabled or was revoked, and nothing was
    /// changed.
    type Output = Option<String>;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Option<String>, StoreError> {
        let session = &self.session;
        if !tx.lock_user(&session.user_id, session.read_at).await? {
            return Ok(None);
        }
        if let Some(old) = &self.replaces {
            if let Some(sid) = tx.renew_session(old, session).await? {
                return Ok(Some(sid));
            }
            let ended = sqlx::query(
                "UPDATE sessions SET ended_at = $2 WHERE digest = $1 AND ended_at IS NULL AND expires_at > $2 \
                 RETURNING sid",
            )
            .bind(old.as_slice())
            .bind(millis(session.created_at))
            .fetch_optional(&mut *tx.connection)
            .await?;
            if let Some(row) = ended {
                let sid: String = row.try_get(0)?;
                tx.apply_session_end(&sid, self.revocation.as_ref(), self.deliver_until, session.created_at)
                    .await?;
            }
        }
        tx.insert_session(session).await?;
        Ok(Some(session.sid.clone()))
    }

    fn took_effect(output: &Self::Output) -> bool {
        output.is_some()
    }
}

/// Records the use of a session.
#[derive(Debug, Clone)]
pub struct TouchSession {
    /// Digest of the cookie.
    pub digest: StoredDigest,
    /// Time of the change.
    pub now: Timestamp,
}

impl Change for TouchSession {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let ask = "SELECT sid FROM sessions WHERE digest = $1 AND ended_at IS NULL AND seen_at < $2";
        let row = sqlx::query(ask)
            .bind(self.digest.as_slice())
            .bind(millis(self.now))
            .fetch_optional(&mut *tx.connection)
            .await?;
        if let Some(row) = row {
            tx.record_session_use(row.try_get(0)?, self.now);
        }
        Ok(())
    }
}

/// Ends a session and revokes its grants, except those that outlive it. `false`: it was ended
/// before.
#[derive(Debug, Clone)]
pub struct EndSession {
    /// `sid` of the session.
    pub sid: String,
    /// The user it must belong to.
    pub user_id: String,
    /// Event to append to the revocation log, with the session's tag.
    pub revocation: Revocation,
    /// Until when clients of the ended session are notified, each once; `None`: they are not
    /// notified.
    pub deliver_until: Option<Timestamp>,
    /// Time of the change.
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
        tx.apply_session_end(&self.sid, Some(&self.revocation), self.deliver_until, self.now).await?;
        Ok(true)
    }

    fn took_effect(output: &Self::Output) -> bool {
        *output
    }
}
