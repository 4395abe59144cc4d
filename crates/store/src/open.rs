//! What is done to a database as a whole: opening it, deleting what is over, copying it.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use outage::Outage;
use tokio::time::Instant;

use crate::audit::AnnouncedEntry;
use crate::backup::{BackupContents, BackupError, Exported, Imported};
use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::health::{StorageHealth, outage_of};
use crate::invalidation::Epoch;
use crate::migrations::{self, MigrationFailed, OPENING};
use crate::name_conflicts;
use crate::proof::Proof;
use crate::readers::Readers;
use crate::store::Store;
use crate::write::Writer;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Neither of the two databases.
    #[error(
        "a database URL begins with sqlite: or postgres:, for example \
         sqlite:///var/lib/postern/postern.db?mode=rwc or postgres://postern@db.example/postern"
    )]
    Scheme,
    /// It does not answer, or refuses.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// The schema.
    #[error(transparent)]
    Migration(#[from] MigrationFailed),
}

impl Store {
    /// Connects, and brings the schema up to date; a new database begins with `epoch`, drawn at random, and a new file is for its
    /// owner alone. Call it within a tokio runtime, where changes are then made.
    ///
    /// # Errors
    /// [`OpenError`]
    pub async fn open(url: &str, epoch: Epoch) -> Result<Self, OpenError> {
        Self::open_as(url, epoch, &outage_of("database")).await
    }

    /// The same for a database that this process goes to by other ways as well: what is said of it in the log is said once for all of them.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_as(url: &str, epoch: Epoch, database: &Outage) -> Result<Self, OpenError> {
        let dialect = Dialect::of(url).ok_or(OpenError::Scheme)?;
        dialect.make(url)?;
        dialect.within(OPENING, Box::pin(Self::connected(url, dialect, epoch, database))).await?
    }

    async fn connected(
        url: &str,
        dialect: Dialect,
        epoch: Epoch,
        database: &Outage,
    ) -> Result<Self, OpenError> {
        let writers = dialect.pool(url, dialect.lanes()).await?;
        let migrated = Arc::new(migrations::run(&writers, dialect).await?);
        if let Some(note) = migrated.note() {
            tracing::warn!("{note}");
        }
        let mut connection = writers.acquire().await.map_err(StoreError::from)?;
        migrations::begin(&mut connection, epoch).await?;
        let mut filled = String::new();
        while let Some(last) = name_conflicts::fill(&mut connection, &filled).await? {
            filled = last;
        }
        let incarnation = Incarnation::look(dialect, &mut connection).await;
        let writer = Writer::start(&writers, dialect, incarnation, StorageHealth::new(database.way()));
        let proof = Proof::look((url, dialect), incarnation, &writer, &mut connection).await?;
        drop(connection);
        let readers = Readers::open(url, dialect, database.way()).await?;
        let (outage, proving) = (Arc::new(database.way()), Arc::new(database.way()));
        Ok(Self { dialect, readers, writers, writer, migrated, proof, outage, proving })
    }

    /// Deletes what is over: see [`crate::expiry`].
    ///
    /// # Errors
    /// [`StoreError`]; what was deleted until then stays deleted.
    pub async fn sweep(&self, now: Timestamp, log_kept: Duration) -> Result<crate::ExpiredRows, StoreError> {
        let swept = crate::expiry::run(&self.writers, self.dialect, now, log_kept).await;
        self.storing().note(&swept, Instant::now());
        swept
    }

    /// Writes a copy of the whole database as of one moment: see [`crate::backup`]. Writes to `out` where it is called.
    ///
    /// # Errors
    /// [`BackupError`]; what was written until then is no copy.
    pub async fn export(&self, out: &mut (impl std::io::Write + Send)) -> Result<Exported, BackupError> {
        crate::backup::export(self.readers.pool(), self.dialect, out).await
    }

    /// Makes this database, which must be empty, from a copy, all or nothing. It gets a history of its own, `epoch`, drawn at
    /// random: whatever was heard of the old one is heard anew. Before anything is durable `accept` is asked: it answers entries for the
    /// audit log, or why the copy is not wanted.
    ///
    /// # Errors
    /// [`BackupError`]; nothing was changed then, but for [`CopyError::Unclear`].
    pub async fn import(
        &self,
        from: &mut (impl std::io::BufRead + Send),
        epoch: Epoch,
        accept: impl FnOnce(&BackupContents) -> Result<Vec<AnnouncedEntry>, String> + Send,
    ) -> Result<Imported, BackupError> {
        crate::backup::import(&self.writers, self.dialect, from, epoch, accept).await
    }
}
