//! Login endings: the list of login sessions that were ended early, for other processes that share
//! the database.
//!
//! Owns: the list, written in the transactions that end sessions, and reading it incrementally.
//! Does not own: ending a session ([`crate::login_sessions`]), what other processes do with the
//! list.
//!
//! Numbers are assigned under the lock of one row, which is the last lock that a transaction takes.
//! So they have the order of the commits and no gaps, and a reader that continues after the last
//! number misses nothing. An entry is kept while another process may still use a session that it
//! read earlier; then it is deleted.

use std::time::Duration;

use sqlx::Row as _;

use crate::columns::{StoredDigest, batches, duration_millis, unsigned, value_tuples};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::Tx;

/// How long an entry is kept. Longer than a process may use a session without reading it again, in
/// any configuration.
pub(crate) const RETENTION: Duration = Duration::from_hours(2);
/// Maximum number of entries in one read.
const PAGE: i64 = 1000;

/// Entries of the list, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginEndings {
    /// Continue after this number: all relevant entries up to it have been read.
    pub continue_after: u64,
    /// Ids of the ended sessions.
    pub sessions: Vec<StoredDigest>,
    /// Whether more entries can be read at once.
    pub more: bool,
}

impl Store {
    /// Login sessions that were ended after this number, and at most `within` ago by the database's
    /// clock. If the list has not reached the number, it belongs to another database; then the read
    /// starts from the beginning.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn login_endings(&self, after: u64, within: Duration) -> Result<LoginEndings, StoreError> {
        let ask = format!(
            "SELECT h.seq, e.seq, e.session FROM login_endings_head h LEFT JOIN login_endings e \
             ON e.seq > CASE WHEN h.seq < $1 THEN 0 ELSE $1 END AND e.at > {} - $2 WHERE h.id = 1 \
             ORDER BY e.seq LIMIT $3",
            self.dialect().now_sql()
        );
        let ask = sqlx::query(sqlx::AssertSqlSafe(ask))
            .bind(i64::try_from(after).unwrap_or(i64::MAX))
            .bind(duration_millis(within))
            .bind(PAGE);
        let rows = self.readers().fetch_all(ask).await?;
        let head = rows.first().map(|row| row.try_get(0)).transpose()?.map_or(0, unsigned);
        let (mut last, mut sessions) = (0, Vec::new());
        for row in &rows {
            let Some(seq) = row.try_get::<Option<i64>, _>(1)? else { break };
            last = unsigned(seq);
            sessions.push(StoredDigest::read(row, 2)?);
        }
        let more = i64::try_from(sessions.len()) == Ok(PAGE);
        // Older entries up to the head are no longer relevant and need not be read again.
        Ok(LoginEndings { continue_after: if more { last } else { head }, more, sessions })
    }
}

impl Tx<'_> {
    /// Queues a login session that was ended, to be written at the end of the transaction.
    pub(crate) fn record_ended_login(&mut self, session: StoredDigest) {
        self.ended_logins.push(session);
    }

    /// Appends the queued entries to the list.
    pub(crate) async fn write_login_endings(&mut self) -> Result<(), StoreError> {
        let ended = std::mem::take(&mut self.ended_logins);
        let Ok(count @ 1..) = i64::try_from(ended.len()) else { return Ok(()) };
        let head = sqlx::query("UPDATE login_endings_head SET seq = seq + $1 WHERE id = 1 RETURNING seq")
            .bind(count)
            .fetch_one(&mut *self.connection)
            .await?;
        let last: i64 = head.try_get(0)?;
        let numbered: Vec<(i64, StoredDigest)> = (last - count + 1..).zip(ended).collect();
        for some in batches(&numbered) {
            let now = format!(", {}", self.dialect.now_sql());
            let insert = format!(
                "INSERT INTO login_endings (seq, session, at) VALUES {}",
                value_tuples(some.len(), 2, &now)
            );
            let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
            for (seq, session) in some {
                insert = insert.bind(*seq).bind(session.as_slice());
            }
            insert.execute(&mut *self.connection).await?;
        }
        Ok(())
    }
}
