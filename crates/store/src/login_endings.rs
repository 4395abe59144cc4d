//! Which login sessions were ended before their time, for the other processes that share them.
//!
//! Owns: the list, in the transactions that end sessions, and reading on in it. Does not own: ending one ([`crate::login_sessions`]), what
//! becomes of it elsewhere.
//!
//! Numbers are given under the lock of one row, which is the last thing that a transaction locks: so their order is that of the commits,
//! there are no holes, and whoever reads on from the last number misses nothing. An entry is of use as long as somebody may believe in what
//! was read before; then it is deleted.

use std::time::Duration;

use sqlx::Row as _;

use crate::error::StoreError;
use crate::store::Store;
use crate::value::{StoredDigest, millis_of, number, pieces, rows};
use crate::write::Tx;

/// How long an entry is kept: longer than a session is believed without asking, whatever is configured.
pub(crate) const KEPT: Duration = Duration::from_hours(2);
/// Entries of one answer at most.
const TOGETHER: i64 = 1000;

/// Entries of the list, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginEndings {
    /// Up to here nothing of use is missing: read on from here.
    pub upto: u64,
    /// Names of sessions.
    pub sessions: Vec<StoredDigest>,
    /// Whether there are more at once.
    pub more: bool,
}

impl Store {
    /// Which login sessions were ended after this number, and not longer ago than `within`, by the database's clock. A number that the list has not
    /// reached is of another database: it begins anew then.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn login_endings(&self, after: u64, within: Duration) -> Result<LoginEndings, StoreError> {
        let ask = format!(
            "SELECT h.seq, e.seq, e.session FROM login_endings_head h LEFT JOIN login_endings e \
             ON e.seq > CASE WHEN h.seq < $1 THEN 0 ELSE $1 END AND e.at > {} - $2 WHERE h.id = 1 \
             ORDER BY e.seq LIMIT $3",
            self.dialect().now()
        );
        let ask = sqlx::query(sqlx::AssertSqlSafe(ask))
            .bind(i64::try_from(after).unwrap_or(i64::MAX))
            .bind(millis_of(within))
            .bind(TOGETHER);
        let found = self.readers().all(ask).await?;
        let head = found.first().map(|row| row.try_get(0)).transpose()?.map_or(0, number);
        let (mut last, mut sessions) = (0, Vec::new());
        for row in &found {
            let Some(seq) = row.try_get::<Option<i64>, _>(1)? else { break };
            last = number(seq);
            sessions.push(StoredDigest::read(row, 2)?);
        }
        let more = i64::try_from(sessions.len()) == Ok(TOGETHER);
        // Whatever else there was by then is over: nobody need look through it again.
        Ok(LoginEndings { upto: if more { last } else { head }, more, sessions })
    }
}

impl Tx<'_> {
    /// Notes that a login session was ended; written when everything else is done.
    pub(crate) fn end_login(&mut self, session: StoredDigest) {
        self.ended.push(session);
    }

    /// Appends what was ended to the list.
    pub(crate) async fn write_ended(&mut self) -> Result<(), StoreError> {
        let ended = std::mem::take(&mut self.ended);
        let Ok(count @ 1..) = i64::try_from(ended.len()) else { return Ok(()) };
        let head = sqlx::query("UPDATE login_endings_head SET seq = seq + $1 WHERE id = 1 RETURNING seq")
            .bind(count)
            .fetch_one(&mut *self.connection)
            .await?;
        let last: i64 = head.try_get(0)?;
        let numbered: Vec<(i64, StoredDigest)> = (last - count + 1..).zip(ended).collect();
        for some in pieces(&numbered) {
            let now = format!(", {}", self.dialect.now());
            let insert =
                format!("INSERT INTO login_endings (seq, session, at) VALUES {}", rows(some.len(), 2, &now));
            let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
            for (seq, session) in some {
                insert = insert.bind(*seq).bind(session.as_slice());
            }
            insert.execute(&mut *self.connection).await?;
        }
        Ok(())
    }
}
