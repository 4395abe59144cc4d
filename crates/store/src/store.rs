//! The store as one value: its connections, its writer.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use outage::Outage;
use sqlx::{AnyPool, Row as _};
use tokio::sync::broadcast;
use tokio::time::timeout;

use crate::dialect::Dialect;
use crate::error::StoreError;
use crate::health::StorageHealth;
use crate::invalidation::{self, AnnouncedAppend, AnnouncedEvent, LogHead};
use crate::migrations::Migrated;
use crate::proof::Proof;
use crate::readers::Readers;
use crate::value::timestamp;
use crate::write::{Change, Writer};

/// Events of the log that are read at once, at most.
pub(crate) const MAX_EVENTS: u32 = 10_000;

/// How long the end of connections is waited for: longer than a transaction may take.
const FAREWELL: Duration = Duration::from_secs(15);

/// The facts. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Store {
    pub(crate) dialect: Dialect,
    pub(crate) readers: Readers,
    pub(crate) writers: AnyPool,
    pub(crate) writer: Writer,
    pub(crate) migrated: Arc<Migrated>,
    pub(crate) proof: Proof,
    pub(crate) outage: Arc<Outage>,
    /// How what has to be in force is asked for.
    pub(crate) proving: Arc<Outage>,
}

impl Store {
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
    pub fn storing(&self) -> StorageHealth {
        self.writer.storing()
    }

    /// How far the log of revocations has got, read from the database now.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn head(&self) -> Result<LogHead, StoreError> {
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
    pub async fn events(&self, after: u64, limit: u32) -> Result<Vec<AnnouncedEvent>, StoreError> {
        let rows = self.readers.all(invalidation::ask_range(after, limit.min(MAX_EVENTS))).await?;
        rows.iter().map(invalidation::read_event).collect()
    }

    /// What this store appends to the log from now on, each once it is durable. Other nodes' events are not among them, and
    /// whoever is far behind misses some: the log has them all.
    pub fn appended(&self) -> broadcast::Receiver<AnnouncedAppend> {
        self.writer.appended()
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
