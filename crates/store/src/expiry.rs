//! Deleting what is over, in small steps.
//!
//! Each step is a transaction of its own with a few hundred rows, so that nobody waits long for the lock, and a sweep
//! that is cut short has done what it did. It goes on until nothing is left that was over when it began, however much that is: what is
//! written faster than it is deleted fills the disk. Nodes may sweep at the same time: a row is deleted once, by whoever holds it.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyConnection, AnyPool, Connection as _};
use tokio::time::timeout;

use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::pooled::PooledConnection;
use crate::value::millis;

/// Rows of one step.
const STEP: i64 = 500;

/// How long a step is waited for: longer than a server that is there lets a statement take.
const PATIENCE: Duration = Duration::from_secs(35);

/// How long is kept what happened, for receivers who have not heard it: longer than anybody is told.
const OCCURRENCES_KEPT: Duration = Duration::from_hours(8 * 24);

/// How long an opaque access token is kept beyond its end: until then its revocation cuts what it let in and a gateway keeps open.
const REVOCABLE: Duration = Duration::from_mins(15);

/// How many rows a sweep deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiredRows {
    /// Tokens, codes, sessions of either kind, families, attempts.
    pub expired: u64,
    /// Events of the log.
    pub events: u64,
}

/// What else must hold for a row to go: nothing.
const ALWAYS: &str = "";
/// A family stays as long as its session: it tells which clients hear of the session's end. And as long as anything of it is there, which
/// goes in steps of its own: with the family all of it would go at once.
const KEPT: &str = " AND NOT EXISTS \
     (SELECT 1 FROM sessions s WHERE s.sid = families.sid AND s.ended_at IS NULL) \
     AND NOT EXISTS (SELECT 1 FROM refresh_tokens r WHERE r.family_id = families.id) \
     AND NOT EXISTS (SELECT 1 FROM access_tokens a WHERE a.family_id = families.id) \
     AND NOT EXISTS (SELECT 1 FROM codes c WHERE c.family_id = families.id)";

type Table = (&'static str, &'static str, &'static str, &'static str);
const LOGIN_SESSIONS: Table = ("login_sessions", "id", "ends", ALWAYS);
const SEEN: Table = ("seen", "digest", "expires_at", ALWAYS);
/// Those of a gateway, which has no more to sweep when the database is its own.
pub(crate) const OF_LOGINS: [Table; 2] = [LOGIN_SESSIONS, SEEN];
/// Table, key, column of the time from which on a row is of no use, and what else must hold. Tokens come before the families
/// they belong to, and sessions too.
const TABLES: [Table; 10] = [
    ("codes", "digest", "kept_until", ALWAYS),
    ("device_codes", "digest", "kept_until", ALWAYS),
    ("pushed_requests", "digest", "expires_at", ALWAYS),
    SEEN,
    ("deliveries", "id", "expires_at", ALWAYS),
    ("refresh_tokens", "digest", "expires_at", ALWAYS),
    ("sessions", "digest", "expires_at", ALWAYS),
    ("attempts", "subject", "expires_at", ALWAYS),
    ("families", "id", "expires_at", KEPT),
    LOGIN_SESSIONS,
];

pub(crate) async fn run(
    pool: &AnyPool,
    dialect: Dialect,
    now: Timestamp,
    log_kept: Duration,
) -> Result<ExpiredRows, StoreError> {
    let mut swept = ExpiredRows::default();
    let tokens = ("access_tokens", "digest", "expires_at", ALWAYS);
    swept.expired += steps(pool, dialect, tokens, millis(now.minus(REVOCABLE))).await?;
    for table in TABLES {
        swept.expired += steps(pool, dialect, table, millis(now)).await?;
    }
    swept.expired += login_endings(pool, dialect, now).await?;
    let denials = ("denials", "tag", "expires_at", ALWAYS);
    swept.expired += steps(pool, dialect, denials, millis(now.minus(coherence::denylist::KEPT))).await?;
    let occurrences = ("occurrences", "seq", "at", ALWAYS);
    swept.events += steps(pool, dialect, occurrences, millis(now.minus(OCCURRENCES_KEPT))).await?;
    let log = ("invalidation_log", "seq", "at", ALWAYS);
    swept.events += steps(pool, dialect, log, millis(now.minus(log_kept))).await?;
    Ok(swept)
}

/// Deletes what nobody needs to hear any more of login sessions that ended.
pub(crate) async fn login_endings(
    pool: &AnyPool,
    dialect: Dialect,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let endings = ("login_endings", "seq", "at", ALWAYS);
    steps(pool, dialect, endings, millis(now.minus(crate::login_endings::KEPT))).await
}

/// Deletes from one table what is of no use from `before` on, and says how many rows that were.
pub(crate) async fn steps(
    pool: &AnyPool,
    dialect: Dialect,
    (table, key, column, condition): Table,
    before: i64,
) -> Result<u64, StoreError> {
    // The outer condition is looked at again when somebody else has changed a row meanwhile: what was over may be needed again, as a
    // denial is that was renewed.
    let statement = format!(
        "DELETE FROM {table} WHERE {column} <= $1 AND {key} IN \
         (SELECT {key} FROM {table} WHERE {column} <= $1{condition} ORDER BY {column}, {key} LIMIT $2{})",
        dialect.unless_busy()
    );
    let mut deleted = 0;
    loop {
        let mut loan = PooledConnection::of(pool).await?;
        let Ok(rows) = timeout(PATIENCE, step(loan.connection(), dialect, &statement, before)).await else {
            return Err(loan.silent("no answer to a step in time"));
        };
        let rows = rows?;
        deleted += rows;
        if rows < STEP.unsigned_abs() {
            return Ok(deleted);
        }
    }
}

async fn step(
    connection: &mut AnyConnection,
    dialect: Dialect,
    statement: &str,
    before: i64,
) -> Result<u64, StoreError> {
    let mut step = connection.begin_with(dialect.begin()).await?;
    let done =
        sqlx::query(sqlx::AssertSqlSafe(statement)).bind(before).bind(STEP).execute(&mut *step).await?;
    step.commit().await?;
    Ok(done.rows_affected())
}
