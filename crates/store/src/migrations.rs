//! Migrations: the schema, version by version.
//!
//! A version only adds tables, nullable columns and indexes. So the previous program keeps working
//! beside the next, and a rolling upgrade needs no downtime. The one exception is the creation of
//! an index, which blocks writes to its table. What is no longer written is dropped one version
//! later.

use std::borrow::Cow;
use std::time::Duration;

use coherence::Epoch;
use sqlx::AssertSqlSafe;
use sqlx::Row as _;
use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AnyConnection, AnyPool};

use crate::dialect::Dialect;
use crate::error::StoreError;

/// How long connecting and migrating may take. Creating the index of a large table is one
/// statement.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_mins(5);
/// Description and SQL text of each version, from 1.
const VERSIONS: [(&str, &str); 16] = [
    ("initial", include_str!("../schema/0001_initial.sql")),
    ("login sessions", include_str!("../schema/0002_login_sessions.sql")),
    ("limits of revocations", include_str!("../schema/0003_limits_of_revocations.sql")),
    ("followers", include_str!("../schema/0004_followers.sql")),
    ("incarnation", include_str!("../schema/0005_incarnation.sql")),
    ("security events", include_str!("../schema/0006_security_events.sql")),
    (
        "time of the log",
        concat!(
            include_str!("../schema/0007_time_of_the_log.sql"),
            include_str!("../schema/time_of_the_log.sql")
        ),
    ),
    ("families of a client", include_str!("../schema/0008_families_of_a_client.sql")),
    ("names of tokens", include_str!("../schema/0009_names_of_tokens.sql")),
    ("folded names", include_str!("../schema/0010_folded_names.sql")),
    ("login endings", include_str!("../schema/0011_login_endings.sql")),
    ("audit filters", include_str!("../schema/0012_audit_filters.sql")),
    ("must change password", include_str!("../schema/0013_must_change_password.sql")),
    ("account links", include_str!("../schema/0014_account_links.sql")),
    ("members and audit tail", include_str!("../schema/0015_members_and_audit_tail.sql")),
    ("mail queue", include_str!("../schema/0016_mail_queue.sql")),
];
/// The last version in which the `introspects` setting of a client was a boolean. It is still
/// written as one where the older program understands it.
const LAST_BOOLEAN_INTROSPECTS: usize = 9;

/// SQL that raises log time to the latest time in the tables.
const TIME_OF_THE_LOG: &str = include_str!("../schema/time_of_the_log.sql");

/// The latest version.
pub(crate) const LATEST: u64 = VERSIONS.len() as u64;

/// The SQL text of each version, the first version first.
pub(crate) fn schemas() -> impl Iterator<Item = &'static str> {
    VERSIONS.iter().map(|(_, schema)| *schema)
}

/// Maximum number of clients that [`MigrationNotes::record_outcome`] lists.
const MAX_LISTED: usize = 20;

/// What operators need to know after this version opened a database that an older one wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationNotes {
    /// Clients that can introspect the tokens of all clients, as before: their `introspects` was
    /// `true`, which now means `all`.
    pub introspecting: Vec<String>,
}

impl MigrationNotes {
    /// The note as one line; `None`: there is nothing to report.
    pub fn note(&self) -> Option<String> {
        let (named, more) = self.introspecting.split_at(self.introspecting.len().min(MAX_LISTED));
        let rest = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        (!named.is_empty()).then(|| {
            format!(
                "clients with introspects = true can still introspect all tokens (\"all\"): {}{rest}; \"audience\" is \
                 enough for a client that introspects only tokens issued for it: change it with `postern admin client replace`",
                named.join(", ")
            )
        })
    }
}

/// The schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
#[error("the database's schema could not be brought up to date: {0}")]
pub struct MigrationFailed(#[from] sqlx::migrate::MigrateError);

/// Applies the missing versions, and returns what operators need to know. Processes that start
/// together wait for each other. Versions of a newer program are left alone.
pub(crate) async fn run(pool: &AnyPool, dialect: Dialect) -> Result<MigrationNotes, MigrationFailed> {
    let failed = sqlx::migrate::MigrateError::Execute;
    if dialect == Dialect::Postgres {
        let mut alone = pool.acquire().await.map_err(failed)?;
        // An index of a large table takes long, and processes that start meanwhile wait for it. The
        // statement timeout is as long as the caller's, so the server does not continue after the
        // caller has given up. The lock timeout stays as it is.
        alone.close_on_drop();
        let patient = format!("SET statement_timeout = {}", OPEN_TIMEOUT.as_millis());
        sqlx::query(AssertSqlSafe(patient)).execute(&mut *alone).await.map_err(failed)?;
        return apply_versions(&mut alone, dialect).await;
    }
    // SQLite has no lock for migrations; the surrounding transaction serves as one.
    let mut alone = pool.begin_with(dialect.begin_write()).await.map_err(failed)?;
    let migrated = apply_versions(&mut alone, dialect).await?;
    alone.commit().await.map_err(failed)?;
    Ok(migrated)
}

async fn apply_versions(
    connection: &mut AnyConnection,
    dialect: Dialect,
) -> Result<MigrationNotes, MigrationFailed> {
    let failed = sqlx::migrate::MigrateError::Execute;
    // `run_direct` is what `run` calls. The trait bounds of `run` do not hold for a connection in a
    // future that moves between threads.
    migrator(dialect, LAST_BOOLEAN_INTROSPECTS).run_direct(None, connection, false).await?;
    let introspecting = if is_newer_than_boolean(connection).await.map_err(failed)? {
        Vec::new()
    } else {
        introspecting_clients(connection).await.map_err(failed)?
    };
    migrator(dialect, VERSIONS.len()).run_direct(None, connection, false).await?;
    Ok(MigrationNotes { introspecting })
}

/// A migrator up to this version.
fn migrator(dialect: Dialect, last: usize) -> Migrator {
    let migrations = VERSIONS[..last].iter().zip(1..).map(|((description, schema), version)| {
        let text = AssertSqlSafe(dialect.translate(schema)).into_sql_str();
        Migration::new(version, Cow::Borrowed(description), MigrationType::Simple, text, false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.set_ignore_missing(true);
    migrator
}

/// Whether a program that knows `introspects` as a word has already opened the database.
async fn is_newer_than_boolean(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    let ask = sqlx::query("SELECT COUNT(*) FROM _sqlx_migrations WHERE version > $1");
    let row =
        ask.bind(i64::try_from(LAST_BOOLEAN_INTROSPECTS).unwrap_or(i64::MAX)).fetch_one(connection).await?;
    Ok(row.try_get::<i64, _>(0)? > 0)
}

/// Clients that introspect the tokens of all clients. Settings are stored as JSON without spaces,
/// and quotation marks within strings are escaped: the pattern matches only the member itself.
async fn introspecting_clients(connection: &mut AnyConnection) -> Result<Vec<String>, sqlx::Error> {
    let ask = "SELECT id FROM clients WHERE settings LIKE '%\"introspects\":true%' ORDER BY id";
    let rows = sqlx::query(ask).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Completes the import of a copy that has this schema version, and returns what operators need to
/// know.
pub(crate) async fn complete_import(
    connection: &mut AnyConnection,
    schema: u64,
) -> Result<MigrationNotes, StoreError> {
    sqlx::query(TIME_OF_THE_LOG).execute(&mut *connection).await?;
    let introspecting = if schema > LAST_BOOLEAN_INTROSPECTS as u64 {
        Vec::new()
    } else {
        introspecting_clients(connection).await?
    };
    Ok(MigrationNotes { introspecting })
}

/// Inserts the initial rows of a new database: the heads of its two logs.
pub(crate) async fn insert_heads(connection: &mut AnyConnection, epoch: Epoch) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO invalidation_head (id, epoch, seq) VALUES (1, $1, 0) ON CONFLICT (id) DO NOTHING",
    )
    .bind(&epoch.0[..])
    .execute(&mut *connection)
    .await?;
    sqlx::query("INSERT INTO audit_head (id, seq, digest) VALUES (1, 0, $1) ON CONFLICT (id) DO NOTHING")
        .bind(&[0; 32][..])
        .execute(connection)
        .await?;
    Ok(())
}
