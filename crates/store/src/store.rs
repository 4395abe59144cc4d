//! The store as one value: its connections, its writer.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use coherence::outage::Outage;
use sqlx::{AnyPool, Row as _};
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};

use crate::audit::Entry;
use crate::copy::{Copied, CopyError, Exported, Imported};
use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::invalidation::{self, Appended, Epoch, Event, Head};
use crate::migrations::{self, Migrated, MigrationFailed};
use crate::name_conflicts;
use crate::proof::Proof;
use crate::readers::Readers;
use crate::storing::{Storing, outage_of};
use crate::value::timestamp;
use crate::write::{Change, Writer};

/// Events of the log that are read at once, at most.
pub(crate) const MAX_EVENTS: u32 = 10_000;

/// How long a server may take to be connected to and brought up to date: an index of a large table is one statement.
pub(crate) const OPENING: Duration = Duration::from_mins(5);
/// How long the end of connections is waited for: longer than a transaction may take.
const FAREWELL: Duration = Duration::from_secs(15);

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

/// The facts. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Store {
    dialect: Dialect,
    readers: Readers,
    writers: AnyPool,
    writer: Writer,
    migrated: Arc<Migrated>,
    proof: Proof,
    outage: Arc<Outage>,
    /// How what has to be in force is asked for.
    proving: Arc<Outage>,
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
        let writer = Writer::start(&writers, dialect, incarnation, Storing::new(database.way()));
        let proof = Proof::look((url, dialect), incarnation, &writer, &mut connection).await?;
        drop(connection);
        let readers = Readers::open(url, dialect, database.way()).await?;
        let (outage, proving) = (Arc::new(database.way()), Arc::new(database.way()));
        Ok(Self { dialect, readers, writers, writer, migrated, proof, outage, proving })
    }

    /// What is said in the log when the database is away; for who goes to it by another way, which is then one of the same.
    pub fn outage(&self) -> &Outage {
        &self.outage
    }

    /// Which database it is.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// What opening it changed that operators are to be told of.
    pub fn migrated(&self) -> &Migrated {
        &self.migrated
    }

    /// Makes a change; durable when this answers.
    ///
    /// # Errors
    /// [`StoreError`]. After [`StoreError::Unavailable`] it is not known whether the change was made.
    pub async fn write<C: Change>(&self, change: C) -> Result<C::Output, StoreError> {
        self.writer.write(change).await
    }

    /// Whether changes are stored.
    pub fn storing(&self) -> Storing {
        self.writer.storing()
    }

    /// How far the log of revocations has got, read from the database now.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn head(&self) -> Result<Head, StoreError> {
        invalidation::read_head(&self.readers.one(invalidation::ask_head()).await?)
    }

    /// The time of the log ([`crate::invalidation`]): what is read after this is known to be as new.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn read_at(&self) -> Result<Timestamp, StoreError> {
        let ask = sqlx::query("SELECT at FROM invalidation_head WHERE id = 1");
        Ok(timestamp(self.readers.one(ask).await?.try_get(0)?))
    }

    /// Events after `after`, the oldest first; at most `limit` of them, and at most 10 000. For whoever looks: followers go by what is proved
    /// ([`Store::prove_events`]).
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn events(&self, after: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        let rows = self.readers.all(invalidation::ask_range(after, limit.min(MAX_EVENTS))).await?;
        rows.iter().map(invalidation::read_event).collect()
    }

    /// What this store appends to the log from now on, each once it is durable. Other nodes' events are not among them, and
    /// whoever is far behind misses some: the log has them all.
    pub fn appended(&self) -> broadcast::Receiver<Appended> {
        self.writer.appended()
    }

    /// Deletes what is over: see [`crate::sweep`].
    ///
    /// # Errors
    /// [`StoreError`]; what was deleted until then stays deleted.
    pub async fn sweep(&self, now: Timestamp, log_kept: Duration) -> Result<crate::Swept, StoreError> {
        let swept = crate::sweep::run(&self.writers, self.dialect, now, log_kept).await;
        self.storing().note(&swept, Instant::now());
        swept
    }

    /// Writes a copy of the whole database as of one moment: see [`crate::copy`]. Writes to `out` where it is called.
    ///
    /// # Errors
    /// [`CopyError`]; what was written until then is no copy.
    pub async fn export(&self, out: &mut (impl std::io::Write + Send)) -> Result<Exported, CopyError> {
        crate::copy::export(self.readers.pool(), self.dialect, out).await
    }

    /// Makes this database, which must be empty, from a copy, all or nothing. It gets a history of its own, `epoch`, drawn at
    /// random: whatever was heard of the old one is heard anew. Before anything is durable `accept` is asked: it answers entries for the
    /// audit log, or why the copy is not wanted.
    ///
    /// # Errors
    /// [`CopyError`]; nothing was changed then, but for [`CopyError::Unclear`].
    pub async fn import(
        &self,
        from: &mut (impl std::io::BufRead + Send),
        epoch: Epoch,
        accept: impl FnOnce(&Copied) -> Result<Vec<Entry>, String> + Send,
    ) -> Result<Imported, CopyError> {
        crate::copy::import(&self.writers, self.dialect, from, epoch, accept).await
    }

    /// Ends all connections; changes that are waiting are made first as far as they have begun. A database that has fallen silent is not waited for
    /// without an end.
    pub async fn close(&self) {
        let (writers, readers) = (self.writers.close(), self.readers.close());
        let all = async {
            writers.await;
            readers.await;
            self.proof.close().await;
        };
        // What is left ends with the process.
        let _ = timeout(FAREWELL, all).await;
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    pub(crate) fn proof(&self) -> &Proof {
        &self.proof
    }

    pub(crate) fn proving(&self) -> &Outage {
        &self.proving
    }

    /// For what is no [`Change`]: its steps are transactions of their own.
    pub(crate) fn writers(&self) -> &AnyPool {
        &self.writers
    }
}
