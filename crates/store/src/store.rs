//! The store as one value: its connections and its writer.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use outage::Outage;
use sqlx::{AnyPool, Row as _};
use tokio::sync::broadcast;
use tokio::time::timeout;

use crate::columns::timestamp;
use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::health::StorageHealth;
use crate::migrations::MigrationNotes;
use crate::proof::Proof;
use crate::readers::Readers;
use crate::revocation_log::{self, AppendedEvent, LogHead, RevocationEvent};
use crate::writer::{Change, Writer};

/// Maximum number of log events in one read.
pub(crate) const MAX_EVENTS: u32 = 10_000;

/// How long to wait for connections to close. Longer than a transaction may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Access to one database. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct Store {
    pub(crate) dialect: Dialect,
    pub(crate) readers: Readers,
    pub(crate) writers: AnyPool,
    pub(crate) writer: Writer,
    pub(crate) migrated: Arc<MigrationNotes>,
    pub(crate) proof: Proof,
    pub(crate) outage: Arc<Outage>,
    /// Health of the path that proven reads take.
    pub(crate) proof_outage: Arc<Outage>,
}

impl Store {
    /// The outage of this database. A caller that reaches the database by other means derives its
    /// own way from it, so an outage is logged once.
    pub fn outage(&self) -> &Outage {
        &self.outage
    }

    /// The kind of database.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// What opening the database has changed that operators need to know.
    pub fn migrated(&self) -> &MigrationNotes {
        &self.migrated
    }

    /// Makes a change, which is durable when this returns.
    ///
    /// # Errors
    /// [`StoreError`] when the change fails. After [`StoreError::Unavailable`] it may or may not
    /// have been made.
    pub async fn write<C: Change>(&self, change: C) -> Result<C::Output, StoreError> {
        self.writer.write(change).await
    }

    /// Whether changes are stored.
    pub fn storage_health(&self) -> StorageHealth {
        self.writer.storage_health()
    }

    /// The head of the revocation log, by a plain read.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn head(&self) -> Result<LogHead, StoreError> {
        revocation_log::read_head_row(&self.readers.fetch_one(revocation_log::select_head()).await?)
    }

    /// The current log time ([`crate::revocation_log`]). State read after this call is at least as
    /// new.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn log_time(&self) -> Result<Timestamp, StoreError> {
        let ask = sqlx::query("SELECT at FROM invalidation_head WHERE id = 1");
        Ok(timestamp(self.readers.fetch_one(ask).await?.try_get(0)?))
    }

    /// Log events after `after`, the oldest first; at most `limit`, and at most 10 000. For display
    /// only: consumers get proven reads ([`Store::prove_events`]).
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn events(&self, after: u64, limit: u32) -> Result<Vec<RevocationEvent>, StoreError> {
        let rows =
            self.readers.fetch_all(revocation_log::select_events(after, limit.min(MAX_EVENTS))).await?;
        rows.iter().map(revocation_log::read_event).collect()
    }

    /// Events that this store appends from now on, each once it is durable. Events of other nodes
    /// are not included, and a receiver that lags far behind misses some. The log has all of them.
    pub fn appended(&self) -> broadcast::Receiver<AppendedEvent> {
        self.writer.appended()
    }

    /// Closes all connections after the changes in progress, with a time limit in case the database
    /// no longer answers. After that, a SQLite database is one file: nothing is left in its
    /// write-ahead log.
    pub async fn close(&self) {
        let all = async {
            self.readers.close().await;
            self.proof.close().await;
            // SQLite copies the write-ahead log into the file when the last connection is closed.
            // If two are closed at once, each takes the other for the last, and neither copies it.
            // The single writer is therefore closed alone.
            self.writers.close().await;
        };
        // Remaining connections are closed when the process exits.
        let _ = timeout(CLOSE_TIMEOUT, all).await;
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    pub(crate) fn proof(&self) -> &Proof {
        &self.proof
    }

    pub(crate) fn proof_outage(&self) -> &Outage {
        &self.proof_outage
    }

    /// The write pool, for operations that are not a [`Change`]: each of their steps is a
    /// transaction of its own.
    pub(crate) fn writers(&self) -> &AnyPool {
        &self.writers
    }
}
