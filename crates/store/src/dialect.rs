//! Where the two databases differ: connecting, settings of a connection, locks, column types.
//!
//! Everything else is one text of SQL that both understand.

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
use crate::pooled::lost;

/// How long a connection is waited for.
pub(crate) const ACQUIRE: Duration = Duration::from_secs(5);
/// How long a connection that rested has to show that it is well; then there is time for another one.
const LOOK: Duration = Duration::from_secs(1);

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// One file, one node.
    Sqlite,
    /// Shared by nodes.
    Postgres,
}

impl Dialect {
    /// Whose URL this is.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// Transactions that may write at once. SQLite has one writer; waiting for it in line beats its busy loop.
    pub(crate) fn lanes(self) -> u32 {
        match self {
            Self::Sqlite => 1,
            Self::Postgres => 4,
        }
    }

    /// Begins a transaction that writes. SQLite must take its lock at once: one that has read cannot wait for it.
    pub(crate) fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    /// Appended to a `SELECT`: until the transaction ends nobody changes or deletes the rows. SQLite has one writer, which
    /// this transaction is.
    pub(crate) fn shared(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR SHARE",
        }
    }

    /// Appended to a `SELECT`: until the transaction ends nobody changes, deletes or refers to the rows.
    pub(crate) fn alone(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// Appended to a `SELECT`: like [`Dialect::alone`], but rows that somebody else is changing are left out, not waited for.
    pub(crate) fn unless_busy(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// The database's own clock, in milliseconds since 1970.
    pub(crate) fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// Sixteen random bytes.
    pub(crate) fn drawn(self) -> &'static str {
        match self {
            Self::Sqlite => "randomblob(16)",
            Self::Postgres => "uuid_send(gen_random_uuid())",
        }
    }

    /// Begins a transaction that reads, all of it as of one moment.
    pub(crate) fn snapshot(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Lets a transaction wait for a file that is read or written in between, and read whole tables. Not without an end: what a client that is
    /// gone without a word has locked is let go of.
    pub(crate) fn patient(self) -> &'static str {
        match self {
            Self::Sqlite => "SELECT 1",
            Self::Postgres => {
                "SET LOCAL idle_in_transaction_session_timeout = '1h'; SET LOCAL statement_timeout = '30s'"
            }
        }
    }

    /// Waits for the database, and for a server for so long at most: one that has fallen silent never answers. A file does not fall silent; it takes as
    /// long as it takes.
    pub(crate) async fn within<T>(
        self,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        match self {
            Self::Sqlite => Ok(answer.await),
            Self::Postgres => {
                tokio::time::timeout(limit, answer).await.map_err(|_| lost("no answer in time"))
            }
        }
    }

    /// Keeps others from writing until the transaction has ended. With SQLite nobody else writes in any case.
    pub(crate) fn lock_tables(self, tables: impl Iterator<Item = &'static str>) -> Option<String> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => {
                Some(format!("LOCK TABLE {} IN EXCLUSIVE MODE", tables.collect::<Vec<_>>().join(", ")))
            }
        }
    }

    /// What each connection is set to.
    fn session(self) -> &'static str {
        match self {
            // FULL: a commit is on the disk before it is answered.
            Self::Sqlite => {
                "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                 PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; \
                 PRAGMA journal_size_limit = 67108864"
            }
            // Whatever the server's default: an acknowledged revocation must survive.
            Self::Postgres => {
                "SET synchronous_commit = on; SET lock_timeout = '5s'; SET statement_timeout = '30s'; \
                 SET idle_in_transaction_session_timeout = '30s'; SET application_name = 'postern'"
            }
        }
    }

    /// The schema's text for this database.
    pub(crate) fn translate(self, schema: &str) -> String {
        match self {
            Self::Sqlite => schema.to_owned(),
            Self::Postgres => schema.replace(" BLOB", " BYTEA"),
        }
    }

    /// What else a connection is set to that asks, one short statement at a time.
    fn asking(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some("SET statement_timeout = '4s'"),
        }
    }

    /// Makes the file of a database that is new, if it may be made, for its owner alone to read: SQLite would leave that to the process's
    /// mask. What SQLite keeps beside the file has its permissions.
    pub(crate) fn make(self, url: &str) -> Result<(), StoreError> {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        if self != Self::Sqlite || !query.split('&').any(|pair| pair == "mode=rwc") {
            return Ok(());
        }
        let options: SqliteConnectOptions = url.parse()?;
        // One that is there is not opened: closing it would take away the locks that this process has on it.
        let mut new = OpenOptions::new();
        match new.write(true).create_new(true).mode(0o600).open(options.get_filename()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(sqlx::Error::Io(error).into()),
            _ => Ok(()),
        }
    }

    /// Connections that change things.
    pub(crate) async fn pool(self, url: &str, connections: u32) -> Result<AnyPool, StoreError> {
        self.connections(url, connections, None).await
    }

    /// Connections that ask. A server that is there answers within four seconds, if only that it takes longer.
    pub(crate) async fn asking_pool(self, url: &str, connections: u32) -> Result<AnyPool, StoreError> {
        self.connections(url, connections, self.asking()).await
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
            .acquire_timeout(ACQUIRE)
            // The pool's own test has no end but that of the acquiring.
            .test_before_acquire(false)
            .before_acquire(move |connection: &mut AnyConnection, _| {
                let again = again.clone();
                Box::pin(async move {
                    match self {
                        Self::Sqlite => Ok(true),
                        Self::Postgres => self.is_well_or_another(connection, &again, settings).await,
                    }
                })
            })
            .after_connect(move |connection: &mut AnyConnection, _| Box::pin(self.set(connection, settings)))
            .after_release(|connection: &mut AnyConnection, _| Box::pin(is_between_transactions(connection)))
            .connect_with(options)
            .await?;
        Ok(pool)
    }

    /// Sets a new connection to what all are set to, and to what those of its pool are.
    async fn set(
        self,
        connection: &mut AnyConnection,
        settings: Option<&'static str>,
    ) -> Result<(), sqlx::Error> {
        connection.execute(self.session()).await?;
        if let Some(settings) = settings {
            connection.execute(settings).await?;
        }
        Ok(())
    }

    /// Whether a connection that rested may be used. In the place of one that says nothing there is another one then: the pool would say farewell to it,
    /// and over TLS wait for what is returned.
    async fn is_well_or_another(
        self,
        connection: &mut AnyConnection,
        options: &AnyConnectOptions,
        settings: Option<&'static str>,
    ) -> Result<bool, sqlx::Error> {
        match tokio::time::timeout(LOOK, connection.ping()).await {
            Ok(seen) => Ok(seen.is_ok()),
            Err(_) => {
                let mut another = AnyConnection::connect_with(options).await?;
                self.set(&mut another, settings).await?;
                *connection = another;
                Ok(true)
            }
        }
    }
}

/// Whether a database says which of its lives it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incarnation {
    /// It does.
    Told,
    /// It has but one, or does not say.
    Untold,
}

impl Incarnation {
    /// PostgreSQL's timeline, the first part of the name of every file of its log.
    const TIMELINE: &'static str = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";

    /// Asks whether the database tells. Services that are like PostgreSQL may have no such log, or not show it.
    pub(crate) async fn look(dialect: Dialect, connection: &mut AnyConnection) -> Self {
        if dialect == Dialect::Sqlite {
            return Self::Untold;
        }
        let ask = format!("SELECT {}", Self::TIMELINE);
        match sqlx::query(sqlx::AssertSqlSafe(ask)).fetch_one(connection).await {
            Ok(_) => Self::Told,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the database does not tell its timeline: after a failover that loses something, caches go on with what they know"
                );
                Self::Untold
            }
        }
    }

    /// The life, in SQL.
    pub(crate) fn of(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Told, Dialect::Postgres) => Self::TIMELINE,
            (Self::Told | Self::Untold, _) => "''",
        }
    }
}

/// Whether a connection may be used again. A commit that failed for want of room may leave it with a transaction that neither
/// goes on nor can be rolled back; no other could ever begin on it.
async fn is_between_transactions(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    if connection.is_in_transaction() {
        // A rollback may be on its way: this waits for it.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}

/// The URL of a file.
pub fn sqlite_url(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    // What a URL would read as something else is escaped.
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
