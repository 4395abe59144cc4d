//! Dialect: where the two databases differ in connecting, connection settings, locks and column
//! types.
//!
//! All other SQL is one text that both understand.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AnyConnection, AnyPool, ConnectOptions as _, Connection as _, Executor as _};

use crate::error::StoreError;
use crate::pooled_connection::timed_out;

/// How long to wait for a connection.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the check of an idle connection may take. The rest of [`ACQUIRE_TIMEOUT`] is left for a
/// new one.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite: one file, used by one node.
    Sqlite,
    /// PostgreSQL: shared by nodes.
    Postgres,
}

impl Dialect {
    /// The dialect of a database URL, by its scheme.
    pub(crate) fn from_url(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// Number of concurrent write transactions. SQLite allows one writer; a queue in this process
    /// is better than its busy loop.
    pub(crate) fn max_writers(self) -> u32 {
        match self {
            Self::Sqlite => 1,
            Self::Postgres => 4,
        }
    }

    /// Statement that begins a write transaction. SQLite must take its lock at once: after a read
    /// it can no longer wait for it.
    pub(crate) fn begin_write(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    /// Suffix of a `SELECT`: others cannot change or delete the rows until the transaction ends.
    /// SQLite needs none, because this transaction is its only writer.
    pub(crate) fn for_share(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR SHARE",
        }
    }

    /// Suffix of a `SELECT`: others cannot change, delete or reference the rows until the
    /// transaction ends.
    pub(crate) fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// Suffix of a `SELECT`: like [`Dialect::for_update`], but skips rows that another transaction
    /// has locked.
    pub(crate) fn for_update_skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// SQL expression: the database's own clock, in milliseconds since 1970.
    pub(crate) fn now_sql(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// SQL expression: sixteen random bytes.
    pub(crate) fn random_bytes_sql(self) -> &'static str {
        match self {
            Self::Sqlite => "randomblob(16)",
            Self::Postgres => "uuid_send(gen_random_uuid())",
        }
    }

    /// Statement that begins a read transaction in which all reads see one snapshot.
    pub(crate) fn begin_snapshot(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Statement that lets a transaction pause while a file is read or written, and scan whole
    /// tables. Limits remain, so the locks of a client that has vanished are released.
    pub(crate) fn relax_timeouts(self) -> &'static str {
        match self {
            Self::Sqlite => "SELECT 1",
            Self::Postgres => {
                "SET LOCAL idle_in_transaction_session_timeout = '1h'; SET LOCAL statement_timeout = '30s'"
            }
        }
    }

    /// Awaits the database, at most for `limit` with PostgreSQL: a server that has vanished never
    /// answers. A SQLite file cannot vanish, so there is no limit.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] after `limit`.
    pub(crate) async fn with_timeout<T>(
        self,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        match self {
            Self::Sqlite => Ok(answer.await),
            Self::Postgres => tokio::time::timeout(limit, answer)
                .await
                .map_err(|_| timed_out("the database did not answer in time")),
        }
    }

    /// Statement that keeps other transactions from writing the tables until this one ends. SQLite
    /// has no other writer.
    pub(crate) fn lock_tables(self, tables: impl Iterator<Item = &'static str>) -> Option<String> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => {
                Some(format!("LOCK TABLE {} IN EXCLUSIVE MODE", tables.collect::<Vec<_>>().join(", ")))
            }
        }
    }

    /// Settings of each new connection.
    fn connection_settings(self) -> &'static str {
        match self {
            // FULL: a commit is on disk before it is acknowledged.
            Self::Sqlite => {
                "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                 PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; \
                 PRAGMA journal_size_limit = 67108864"
            }
            // Overrides the server's defaults: an acknowledged revocation must survive a crash.
            Self::Postgres => {
                "SET synchronous_commit = on; SET lock_timeout = '5s'; SET statement_timeout = '30s'; \
                 SET idle_in_transaction_session_timeout = '30s'; SET application_name = 'postern'"
            }
        }
    }

    /// The schema text for this database.
    pub(crate) fn translate(self, schema: &str) -> String {
        match self {
            Self::Sqlite => schema.to_owned(),
            Self::Postgres => schema.replace(" BLOB", " BYTEA"),
        }
    }

    /// Further settings of connections that run single short reads.
    fn read_settings(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some("SET statement_timeout = '4s'"),
        }
    }

    /// Creates the file of a new SQLite database if the URL allows it, readable by its owner only.
    /// SQLite itself would apply the process's umask. The files that SQLite puts beside it get the
    /// same permissions.
    pub(crate) fn create_file(self, url: &str) -> Result<(), StoreError> {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        if self != Self::Sqlite || !query.split('&').any(|pair| pair == "mode=rwc") {
            return Ok(());
        }
        let options: SqliteConnectOptions = url.parse()?;
        // An existing file is not opened: closing it would release the locks that this process
        // holds on it.
        let mut new = OpenOptions::new();
        match new.write(true).create_new(true).mode(0o600).open(options.get_filename()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(sqlx::Error::Io(error).into()),
            _ => Ok(()),
        }
    }

    /// A pool of connections for changes.
    pub(crate) async fn write_pool(self, url: &str, connections: u32) -> Result<AnyPool, StoreError> {
        self.connections(url, connections, None).await
    }

    /// A pool of connections for reads. A live server answers within four seconds, at least with a
    /// timeout error.
    pub(crate) async fn read_pool(self, url: &str, connections: u32) -> Result<AnyPool, StoreError> {
        self.connections(url, connections, self.read_settings()).await
    }

    async fn connections(
        self,
        url: &str,
        connections: u32,
        settings: Option<&'static str>,
    ) -> Result<AnyPool, StoreError> {
        sqlx::any::install_default_drivers();
        let options: AnyConnectOptions = url.parse()?;
        let options = options.disable_statement_logging();
        let again = Arc::new(options.clone());
        let pool = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // The pool's own check has no time limit except that of acquiring.
            .test_before_acquire(false)
            .before_acquire(move |connection: &mut AnyConnection, _| {
                let again = again.clone();
                Box::pin(async move {
                    match self {
                        Self::Sqlite => Ok(true),
                        Self::Postgres => self.check_or_replace(connection, &again, settings).await,
                    }
                })
            })
            .after_connect(move |connection: &mut AnyConnection, _| {
                Box::pin(self.apply_settings(connection, settings))
            })
            .after_release(|connection: &mut AnyConnection, _| Box::pin(is_reusable(connection)))
            .connect_with(options)
            .await?;
        Ok(pool)
    }

    /// Applies the settings of all connections and those of its pool.
    async fn apply_settings(
        self,
        connection: &mut AnyConnection,
        settings: Option<&'static str>,
    ) -> Result<(), sqlx::Error> {
        connection.execute(self.connection_settings()).await?;
        if let Some(settings) = settings {
            connection.execute(settings).await?;
        }
        Ok(())
    }

    /// Checks an idle connection, and replaces one that does not answer. If it were reported as
    /// broken, the pool would close it gracefully, and over TLS wait for the peer.
    async fn check_or_replace(
        self,
        connection: &mut AnyConnection,
        options: &AnyConnectOptions,
        settings: Option<&'static str>,
    ) -> Result<bool, sqlx::Error> {
        match tokio::time::timeout(CHECK_TIMEOUT, connection.ping()).await {
            Ok(seen) => Ok(seen.is_ok()),
            Err(_) => {
                let mut another = AnyConnection::connect_with(options).await?;
                self.apply_settings(&mut another, settings).await?;
                *connection = another;
                Ok(true)
            }
        }
    }
}

/// Whether the database reports its incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incarnation {
    /// It reports one: PostgreSQL's timeline.
    Reported,
    /// It has only one, or does not report it.
    NotReported,
}

impl Incarnation {
    /// PostgreSQL's timeline: the first part of the name of each write-ahead log file.
    const TIMELINE: &'static str = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";

    /// Finds out whether the database reports its incarnation. Services compatible with PostgreSQL
    /// may have no such log, or hide it.
    pub(crate) async fn detect(dialect: Dialect, connection: &mut AnyConnection) -> Self {
        if dialect == Dialect::Sqlite {
            return Self::NotReported;
        }
        let ask = format!("SELECT {}", Self::TIMELINE);
        match sqlx::query(sqlx::AssertSqlSafe(ask)).fetch_one(connection).await {
            Ok(_) => Self::Reported,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "database timeline unavailable, failovers cannot be detected"
                );
                Self::NotReported
            }
        }
    }

    /// The current incarnation as an SQL expression.
    pub(crate) fn sql_expression(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Reported, Dialect::Postgres) => Self::TIMELINE,
            (Self::Reported | Self::NotReported, _) => "''",
        }
    }
}

/// Whether a connection may be used again. A commit that failed for lack of disk space may leave a
/// transaction that can neither continue nor be rolled back. No other transaction can begin on that
/// connection.
async fn is_reusable(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    if connection.is_in_transaction() {
        // A rollback may be pending; the ping waits for it.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}

/// The database URL of a SQLite file. Creates the file when it is opened.
pub fn sqlite_url(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    // Characters with a meaning in URLs are percent-encoded.
    let mut url = String::from("sqlite://");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url + "?mode=rwc"
}
