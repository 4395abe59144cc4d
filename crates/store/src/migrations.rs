//! The schema, version by version.
//!
//! A version only adds: tables, columns that may be absent, indexes. So the previous program goes on working beside the
//! next one, and a rolling upgrade needs no pause but that of making an index: others cannot write the table meanwhile. What is
//! no longer written is dropped one version later.

use std::borrow::Cow;

use coherence::Epoch;
use sqlx::AssertSqlSafe;
use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AnyConnection, AnyPool};

use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::store::OPENING;

/// Description and text of each version, from 1.
const VERSIONS: [(&str, &str); 9] = [
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
];

/// Sets the time of the log to what the tables say, where that is later.
pub(crate) const TIME_OF_THE_LOG: &str = include_str!("../schema/time_of_the_log.sql");

/// The last version.
pub(crate) const LATEST: u64 = VERSIONS.len() as u64;

/// The text of each version, the first one first.
pub(crate) fn schemas() -> impl Iterator<Item = &'static str> {
    VERSIONS.iter().map(|(_, schema)| *schema)
}

/// The schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
#[error("the database's schema could not be brought up to date: {0}")]
pub struct MigrationFailed(#[from] sqlx::migrate::MigrateError);

/// Applies what is missing. Those who start together wait for each other; versions of a newer program are left alone.
pub(crate) async fn run(pool: &AnyPool, dialect: Dialect) -> Result<(), MigrationFailed> {
    let migrations = VERSIONS.iter().zip(1..).map(|((description, schema), version)| {
        let text = AssertSqlSafe(dialect.translate(schema)).into_sql_str();
        Migration::new(version, Cow::Borrowed(description), MigrationType::Simple, text, false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.set_ignore_missing(true);
    let failed = sqlx::migrate::MigrateError::Execute;
    if dialect == Dialect::Postgres {
        let mut alone = pool.acquire().await.map_err(failed)?;
        // An index of a large table takes long, and those who start meanwhile wait for it; but the server goes on no longer than whoever waits for it
        // here. What waits for a table's lock gives up as ever.
        alone.close_on_drop();
        let patient = format!("SET statement_timeout = {}", OPENING.as_millis());
        sqlx::query(AssertSqlSafe(patient)).execute(&mut *alone).await.map_err(failed)?;
        return Ok(migrator.run_direct(None, &mut *alone, false).await?);
    }
    // Nobody locks a file for a migration; the transaction that it takes place in does.
    let mut alone = pool.begin_with(dialect.begin()).await.map_err(failed)?;
    // What `run` calls; its own bounds cannot be met by a connection in a future that moves between threads.
    migrator.run_direct(None, &mut *alone, false).await?;
    Ok(alone.commit().await.map_err(failed)?)
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
