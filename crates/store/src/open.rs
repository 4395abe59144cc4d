//! Operations on a whole database: opening it, deleting expired rows, exporting and importing it,
//! and adding the accounts of another provider.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use outage::Outage;
use tokio::time::Instant;

use crate::account_import::{AccountImportError, ImportCounts, ImportEnd, ImportedRow};
use crate::audit::AuditEntry;
use crate::backup::{BackupContents, BackupError, Exported, Imported};
use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::health::{StorageHealth, database_outage};
use crate::migrations::{self, MigrationFailed, OPEN_TIMEOUT};
use crate::name_conflicts;
use crate::proof::Proof;
use crate::readers::Readers;
use crate::revocation_log::Epoch;
use crate::store::Store;
use crate::writer::Writer;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL has neither the scheme of SQLite nor that of PostgreSQL.
    #[error(
        "a database URL begins with sqlite: or postgres:, for example \
         sqlite:///var/lib/postern/postern.db?mode=rwc or postgres://postern@db.example/postern"
    )]
    Scheme,
    /// The database does not answer, or refuses the connection or a statement.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// The schema could not be brought up to date.
    #[error(transparent)]
    Migration(#[from] MigrationFailed),
}

impl Store {
    /// Connects and brings the schema up to date. A new database starts with `epoch`, which the
    /// caller draws at random. A new file is readable by its owner only. Must be called within a
    /// tokio runtime, which then also runs the changes.
    ///
    /// # Errors
    /// [`OpenError`] when the URL is not supported, the database fails or a migration fails.
    pub async fn open(url: &str, epoch: Epoch) -> Result<Self, OpenError> {
        Self::open_with_outage(url, epoch, &database_outage("database")).await
    }

    /// Like [`Store::open`], for a database that this process also reaches by other means. All of
    /// them share `database`, so an outage is logged once.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_with_outage(url: &str, epoch: Epoch, database: &Outage) -> Result<Self, OpenError> {
        let dialect = Dialect::from_url(url).ok_or(OpenError::Scheme)?;
        dialect.create_file(url)?;
        dialect.with_timeout(OPEN_TIMEOUT, Box::pin(Self::connect(url, dialect, epoch, database))).await?
    }

    async fn connect(
        url: &str,
        dialect: Dialect,
        epoch: Epoch,
        database: &Outage,
    ) -> Result<Self, OpenError> {
        let writers = dialect.write_pool(url, dialect.max_writers()).await?;
        let migrated = Arc::new(migrations::run(&writers, dialect).await?);
        if let Some(note) = migrated.note() {
            tracing::warn!("{note}");
        }
        let mut connection = writers.acquire().await.map_err(StoreError::from)?;
        migrations::insert_heads(&mut connection, epoch).await?;
        let mut filled = String::new();
        while let Some(last) = name_conflicts::fill_forms(&mut connection, &filled).await? {
            filled = last;
        }
        let incarnation = Incarnation::detect(dialect, &mut connection).await;
        let writer =
            Writer::start(&writers, dialect, incarnation, StorageHealth::new(database.another_way()));
        let proof = Proof::detect((url, dialect), incarnation, &writer, &mut connection).await?;
        drop(connection);
        let readers = Readers::open(url, dialect, database.another_way()).await?;
        let (outage, proving) = (Arc::new(database.another_way()), Arc::new(database.another_way()));
        Ok(Self { dialect, readers, writers, writer, migrated, proof, outage, proof_outage: proving })
    }

    /// Deletes expired rows, log events older than `log_kept`, and entries of the audit log that have
    /// expired: see [`crate::expiry`].
    ///
    /// # Errors
    /// [`StoreError`] when a step fails; the rows deleted before stay deleted.
    pub async fn delete_expired(
        &self,
        now: Timestamp,
        log_kept: Duration,
    ) -> Result<crate::ExpiredRows, StoreError> {
        let swept = self.run_expiry(now, log_kept).await;
        self.storage_health().record(&swept, Instant::now());
        swept
    }

    async fn run_expiry(&self, now: Timestamp, log_kept: Duration) -> Result<crate::ExpiredRows, StoreError> {
        let swept = crate::expiry::run(&self.writers, self.dialect, now, log_kept).await?;
        let last = self.audit_tail().await?.seq;
        let audit_entries = match last {
            0 => 0,
            last => crate::expiry::delete_audit_entries(&self.writers, self.dialect, last).await?,
        };
        Ok(crate::ExpiredRows { audit_entries, ..swept })
    }

    /// Writes the whole database as of one moment: see [`crate::backup`]. Writes to `out` are
    /// blocking and run on the calling task.
    ///
    /// # Errors
    /// [`BackupError`]; the output written until then is not a valid copy.
    pub async fn export(&self, out: &mut (impl std::io::Write + Send)) -> Result<Exported, BackupError> {
        crate::backup::export(self.readers.pool(), self.dialect, out).await
    }

    /// Fills this database, which must be empty, from a copy, in one transaction. The log gets the
    /// new `epoch`, which the caller draws at random, so consumers read everything again. Before
    /// the commit `accept` receives the contents. It returns audit entries to add, or the reason
    /// why the caller rejects the copy.
    ///
    /// # Errors
    /// [`BackupError`]; nothing was changed then, except after [`BackupError::CommitUnknown`].
    pub async fn import(
        &self,
        from: &mut (impl std::io::BufRead + Send),
        epoch: Epoch,
        accept: impl FnOnce(&BackupContents) -> Result<Vec<AuditEntry>, String> + Send,
    ) -> Result<Imported, BackupError> {
        crate::backup::import(&self.writers, self.dialect, from, epoch, accept).await
    }

    /// Adds the accounts, groups and consents of another provider, in one transaction: see
    /// [`crate::account_import`]. The iterator may block. Without conflicts, `decide` receives the
    /// counts and says whether the import is committed.
    ///
    /// # Errors
    /// [`AccountImportError`]; nothing was changed then, except after
    /// [`AccountImportError::CommitUnknown`].
    pub async fn import_accounts(
        &self,
        rows: &mut (dyn Iterator<Item = Result<ImportedRow, String>> + Send),
        now: Timestamp,
        decide: impl FnOnce(&ImportCounts) -> ImportEnd + Send,
    ) -> Result<ImportCounts, AccountImportError> {
        crate::account_import::run((&self.writers, self.dialect), rows, now, decide).await
    }
}
