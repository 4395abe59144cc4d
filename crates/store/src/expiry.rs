//! Expiry: deletes expired rows in small steps.
//!
//! Each step is a transaction of a few hundred rows. So no other transaction waits long for a lock,
//! and an interrupted run keeps what it has deleted. A run deletes all rows that had expired when
//! it began, however many they are. With a limit, rows written faster than they are deleted would
//! fill the disk. Several nodes may run at the same time; each row is deleted once, by the node
//! that locks it.

use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyConnection, AnyPool, Connection as _};
use tokio::time::timeout;

use crate::columns::millis;
use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::pooled_connection::PooledConnection;

/// Rows in one step.
const BATCH_SIZE: i64 = 500;

/// How long one step may take: longer than the server's statement timeout.
const STEP_TIMEOUT: Duration = Duration::from_secs(35);

/// How long security events are kept for receivers that have not acknowledged them. Longer than
/// delivery is attempted.
const OCCURRENCES_KEPT: Duration = Duration::from_hours(8 * 24);

/// How long an opaque access token is kept after it expires. During this time its revocation still
/// cuts exchanges that it authorized and that a gateway keeps open.
const EXPIRED_TOKEN_KEPT: Duration = Duration::from_mins(15);

/// Numbers of rows that a run deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiredRows {
    /// Tokens, codes, families, attempts, sessions of the provider and of gateways, and other
    /// expired rows.
    pub expired: u64,
    /// Events of the revocation log and security events.
    pub events: u64,
    /// Entries of the audit log.
    pub audit_entries: u64,
}

/// How long a mail is kept after it expires. The node that takes it meanwhile records why it was not
/// sent; without a node that sends mails nobody does.
const EXPIRED_MAIL_KEPT: Duration = Duration::from_hours(24);

/// No further condition for deletion.
const NO_CONDITION: &str = "";
/// Condition to delete a family. It is kept as long as its session, because it says which clients
/// to notify when the session ends. It is also kept while it still has tokens or codes, which have
/// steps of their own. Otherwise its deletion would cascade to all of them at once.
const FAMILY_REMOVABLE: &str = " AND NOT EXISTS \
     (SELECT 1 FROM sessions s WHERE s.sid = families.sid AND s.ended_at IS NULL) \
     AND NOT EXISTS (SELECT 1 FROM refresh_tokens r WHERE r.family_id = families.id) \
     AND NOT EXISTS (SELECT 1 FROM access_tokens a WHERE a.family_id = families.id) \
     AND NOT EXISTS (SELECT 1 FROM codes c WHERE c.family_id = families.id)";

type Table = (&'static str, &'static str, &'static str, &'static str);
const LOGIN_SESSIONS: Table = ("login_sessions", "id", "ends", NO_CONDITION);
const REPLAY_GUARD: Table = ("seen", "digest", "expires_at", NO_CONDITION);
/// Tables of a gateway that has a database of its own, besides login endings.
pub(crate) const LOGIN_TABLES: [Table; 2] = [LOGIN_SESSIONS, REPLAY_GUARD];
/// Table, key, column with the time of expiry, further condition. Tokens and sessions come before
/// the families they belong to.
const TABLES: [Table; 11] = [
    ("codes", "digest", "kept_until", NO_CONDITION),
    ("device_codes", "digest", "kept_until", NO_CONDITION),
    ("pushed_requests", "digest", "expires_at", NO_CONDITION),
    REPLAY_GUARD,
    ("deliveries", "id", "expires_at", NO_CONDITION),
    ("refresh_tokens", "digest", "expires_at", NO_CONDITION),
    ("sessions", "digest", "expires_at", NO_CONDITION),
    ("attempts", "subject", "expires_at", NO_CONDITION),
    ("account_links", "user_id", "expires_at", NO_CONDITION),
    ("families", "id", "expires_at", FAMILY_REMOVABLE),
    LOGIN_SESSIONS,
];

pub(crate) async fn run(
    pool: &AnyPool,
    dialect: Dialect,
    now: Timestamp,
    log_kept: Duration,
) -> Result<ExpiredRows, StoreError> {
    let mut swept = ExpiredRows::default();
    let tokens = ("access_tokens", "digest", "expires_at", NO_CONDITION);
    swept.expired += delete_expired(pool, dialect, tokens, millis(now.minus(EXPIRED_TOKEN_KEPT))).await?;
    for table in TABLES {
        swept.expired += delete_expired(pool, dialect, table, millis(now)).await?;
    }
    let mails = ("mail_queue", "id", "expires_at", NO_CONDITION);
    swept.expired += delete_expired(pool, dialect, mails, millis(now.minus(EXPIRED_MAIL_KEPT))).await?;
    swept.expired += delete_login_endings(pool, dialect, now).await?;
    let denials = ("denials", "tag", "expires_at", NO_CONDITION);
    swept.expired +=
        delete_expired(pool, dialect, denials, millis(now.minus(coherence::denylist::RETENTION))).await?;
    let occurrences = ("occurrences", "seq", "at", NO_CONDITION);
    swept.events += delete_expired(pool, dialect, occurrences, millis(now.minus(OCCURRENCES_KEPT))).await?;
    let log = ("invalidation_log", "seq", "at", NO_CONDITION);
    swept.events += delete_expired(pool, dialect, log, millis(now.minus(log_kept))).await?;
    Ok(swept)
}

/// Deletes the entries of the audit log up to this number, which have expired. Returns how many.
pub(crate) async fn delete_audit_entries(
    pool: &AnyPool,
    dialect: Dialect,
    last: u64,
) -> Result<u64, StoreError> {
    let entries = ("audit_log", "seq", "seq", NO_CONDITION);
    delete_expired(pool, dialect, entries, i64::try_from(last).unwrap_or(i64::MAX)).await
}

/// Deletes entries of the list of ended login sessions that are no longer relevant.
pub(crate) async fn delete_login_endings(
    pool: &AnyPool,
    dialect: Dialect,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let endings = ("login_endings", "seq", "at", NO_CONDITION);
    delete_expired(pool, dialect, endings, millis(now.minus(crate::ended_logins::RETENTION))).await
}

/// Deletes the rows of one table whose column is `before` or less. Returns how many.
pub(crate) async fn delete_expired(
    pool: &AnyPool,
    dialect: Dialect,
    (table, key, column, condition): Table,
    before: i64,
) -> Result<u64, StoreError> {
    // PostgreSQL re-evaluates the outer condition if another transaction changed a row meanwhile: a
    // denylist entry may have been extended.
    let statement = format!(
        "DELETE FROM {table} WHERE {column} <= $1 AND {key} IN \
         (SELECT {key} FROM {table} WHERE {column} <= $1{condition} ORDER BY {column}, {key} LIMIT $2{})",
        dialect.for_update_skip_locked()
    );
    let mut deleted = 0;
    loop {
        let mut loan = PooledConnection::acquire(pool).await?;
        let Ok(rows) =
            timeout(STEP_TIMEOUT, delete_batch(loan.connection(), dialect, &statement, before)).await
        else {
            return Err(loan.mark_silent("deleting expired rows timed out"));
        };
        let rows = rows?;
        deleted += rows;
        if rows < BATCH_SIZE.unsigned_abs() {
            return Ok(deleted);
        }
    }
}

async fn delete_batch(
    connection: &mut AnyConnection,
    dialect: Dialect,
    statement: &str,
    before: i64,
) -> Result<u64, StoreError> {
    let mut step = connection.begin_with(dialect.begin_write()).await?;
    let done =
        sqlx::query(sqlx::AssertSqlSafe(statement)).bind(before).bind(BATCH_SIZE).execute(&mut *step).await?;
    step.commit().await?;
    Ok(done.rows_affected())
}
