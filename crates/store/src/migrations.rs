//! The schema, version by version.
//!
//! A version only adds: tables, columns that may be absent, indexes. So the previous program goes on working beside the
//! next one, and a rolling upgrade needs no pause but that of making an index: others cannot write the table meanwhile. What is
//! no longer written is dropped one version later.

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

/// How long a server may take to be connected to and brought up to date: an index of a large table is one statement.
pub(crate) const OPENING: Duration = Duration::from_mins(5);
/// Description and text of each version, from 1.
const VERSIONS: [(&str, &str); 11] = [
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
];
/// The last version of a program to which `introspects` of a client was a truth value. It is still written so where that program knew it.
const BEFORE_WORDS: usize = 9;

/// Sets the time of the log to what the tables say, where that is later.
const TIME_OF_THE_LOG: &str = include_str!("../schema/time_of_the_log.sql");

/// The last version.
pub(crate) const LATEST: u64 = VERSIONS.len() as u64;

/// The text of each version, the first one first.
pub(crate) fn schemas() -> impl Iterator<Item = &'static str> {
    VERSIONS.iter().map(|(_, schema)| *schema)
}

/// Clients that [`Migrated::note`] names.
const NAMED: usize = 20;

/// What operators are to be told of when what a former version wrote is first opened by this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Clients that could introspect everybody's tokens and still can: their `introspects` was `true`, which is `all`.
    pub introspecting: Vec<String>,
}

impl Migrated {
    /// It in one line; `None`: there is nothing to tell.
    pub fn note(&self) -> Option<String> {
        let (named, more) = self.introspecting.split_at(self.introspecting.len().min(NAMED));
        let rest = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        (!named.is_empty()).then(|| {
            format!(
                "stored clients with introspects = true introspect everybody's tokens (\"all\"), as before: {}{rest}; \"audience\" is \
                 enough for one that asks about tokens meant for it: change it with `postern admin client replace`",
                named.join(", ")
            )
        })
    }
}

/// The schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
#[error("the database's schema could not be brought up to date: {0}")]
pub struct MigrationFailed(#[from] sqlx::migrate::MigrateError);

/// Applies what is missing, and answers what operators are to be told of it. Those who start together wait for each other; versions of a newer
/// program are left alone.
pub(crate) async fn run(pool: &AnyPool, dialect: Dialect) -> Result<Migrated, MigrationFailed> {
    let failed = sqlx::migrate::MigrateError::Execute;
    if dialect == Dialect::Postgres {
        let mut alone = pool.acquire().await.map_err(failed)?;
        // An index of a large table takes long, and those who start meanwhile wait for it; but the server goes on no longer than whoever waits for it
        // here. What waits for a table's lock gives up as ever.
        alone.close_on_drop();
        let patient = format!("SET statement_timeout = {}", OPENING.as_millis());
        sqlx::query(AssertSqlSafe(patient)).execute(&mut *alone).await.map_err(failed)?;
        return steps(&mut alone, dialect).await;
    }
    // Nobody locks a file for a migration; the transaction that it takes place in does.
    let mut alone = pool.begin_with(dialect.begin()).await.map_err(failed)?;
    let migrated = steps(&mut alone, dialect).await?;
    alone.commit().await.map_err(failed)?;
    Ok(migrated)
}

async fn steps(connection: &mut AnyConnection, dialect: Dialect) -> Result<Migrated, MigrationFailed> {
    let failed = sqlx::migrate::MigrateError::Execute;
    // What `run` calls; its own bounds cannot be met by a connection in a future that moves between threads.
    migrator(dialect, BEFORE_WORDS).run_direct(None, connection, false).await?;
    let introspecting = if is_later(connection).await.map_err(failed)? {
        Vec::new()
    } else {
        introspecting(connection).await.map_err(failed)?
    };
    migrator(dialect, VERSIONS.len()).run_direct(None, connection, false).await?;
    Ok(Migrated { introspecting })
}

/// Up to one version.
fn migrator(dialect: Dialect, last: usize) -> Migrator {
    let migrations = VERSIONS[..last].iter().zip(1..).map(|((description, schema), version)| {
        let text = AssertSqlSafe(dialect.translate(schema)).into_sql_str();
        Migration::new(version, Cow::Borrowed(description), MigrationType::Simple, text, false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.set_ignore_missing(true);
    migrator
}

/// Whether a program has opened the database to which `introspects` of a client is a word.
async fn is_later(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    let ask = sqlx::query("SELECT COUNT(*) FROM _sqlx_migrations WHERE version > $1");
    let row = ask.bind(i64::try_from(BEFORE_WORDS).unwrap_or(i64::MAX)).fetch_one(connection).await?;
    Ok(row.try_get::<i64, _>(0)? > 0)
}

/// Clients that introspect everybody's tokens. Settings are written without spaces, and within a text a quotation mark is escaped: this is
/// found where it is a member, and nowhere else.
async fn introspecting(connection: &mut AnyConnection) -> Result<Vec<String>, sqlx::Error> {
    let ask = "SELECT id FROM clients WHERE settings LIKE '%\"introspects\":true%' ORDER BY id";
    let rows = sqlx::query(ask).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Brings what was restored from a copy of this version, or of one before, up to date, and answers what operators are to be told of it.
pub(crate) async fn restored(connection: &mut AnyConnection, schema: u64) -> Result<Migrated, StoreError> {
    sqlx::query(TIME_OF_THE_LOG).execute(&mut *connection).await?;
    let introspecting =
        if schema > BEFORE_WORDS as u64 { Vec::new() } else { introspecting(connection).await? };
    Ok(Migrated { introspecting })
}

/// Makes the rows that a new database begins with: the heads of its two logs.
pub(crate) async fn begin(connection: &mut AnyConnection, epoch: Epoch) -> Result<(), StoreError> {
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
