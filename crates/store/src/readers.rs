//! Readers: connections that are borrowed for one read statement at a time.
//!
//! Owns: how many reads run at once, how long an answer may take, when a connection is checked.
//! Does not own: connecting ([`crate::dialect`]), what happens to a dropped connection
//! ([`crate::pooled`]).
//!
//! The pool checks a connection each time it is returned, and with PostgreSQL also each time it is
//! borrowed. That adds two round trips to a statement that needs one. So a connection that has
//! answered is kept here and lent again without a check for [`SPELL`]; then the pool checks it. A
//! connection whose statement failed or was cancelled returns to the pool at once. One that did not
//! answer is closed.

use std::sync::Arc;
use std::time::Duration;

use outage::Outage;
use parking_lot::Mutex;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AnyPool, Executor as _};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use crate::dialect::{ACQUIRE, Dialect};
use crate::error::StoreError;
use crate::health;
use crate::pooled::PooledConnection;

/// Maximum number of concurrent statements.
const READERS: u32 = 8;
/// Further connections for reads of several statements.
const SNAPSHOTS: u32 = 1;
/// How long a connection is lent without a check.
const SPELL: Duration = Duration::from_secs(1);
/// How long an answer may take. Longer than a live server takes to cancel the statement
/// ([`Dialect::asking_pool`]).
const ANSWER: Duration = Duration::from_secs(5);

/// A read statement with its arguments.
pub(crate) type Ask<'q> = Query<'q, Any, AnyArguments>;

/// The read connections. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct Readers(Arc<SharedReaders>);

struct SharedReaders {
    pool: AnyPool,
    places: Semaphore,
    /// Connections that have answered recently, the last one on top. Reusing the last one keeps few
    /// connections in use.
    rested: Mutex<Vec<HeldReader>>,
    /// The runtime in which they were opened.
    runtime: Handle,
    /// Health of the path that reads take.
    way: Outage,
}

impl Drop for SharedReaders {
    /// The pool can take connections back only within a runtime, and the last store may be dropped
    /// outside of one.
    fn drop(&mut self) {
        let _within = self.runtime.enter();
        self.rested.get_mut().clear();
    }
}

struct HeldReader {
    loan: PooledConnection,
    looked_at: Instant,
}

/// A connection that is lent for one statement.
struct LentReader<'r> {
    held: HeldReader,
    readers: &'r SharedReaders,
    _place: SemaphorePermit<'r>,
}

impl Readers {
    pub(crate) async fn open(url: &str, dialect: Dialect, way: Outage) -> Result<Self, StoreError> {
        let pool = dialect.asking_pool(url, READERS + SNAPSHOTS).await?;
        let places = Semaphore::new(READERS as usize);
        let (rested, runtime) = (Mutex::default(), Handle::current());
        Ok(Self(Arc::new(SharedReaders { pool, places, rested, runtime, way })))
    }

    /// Runs a statement that returns at most one row.
    pub(crate) async fn optional(&self, ask: Ask<'_>) -> Result<Option<AnyRow>, StoreError> {
        let asking = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER, lent.connection().fetch_optional(ask)).await;
            lent.give_back(answer)
        };
        self.0.noted(asking).await
    }

    /// Runs a statement that always returns a row.
    pub(crate) async fn one(&self, ask: Ask<'_>) -> Result<AnyRow, StoreError> {
        let asking = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER, lent.connection().fetch_one(ask)).await;
            lent.give_back(answer)
        };
        self.0.noted(asking).await
    }

    /// Runs a statement and returns all rows.
    pub(crate) async fn all(&self, ask: Ask<'_>) -> Result<Vec<AnyRow>, StoreError> {
        let asking = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER, lent.connection().fetch_all(ask)).await;
            lent.give_back(answer)
        };
        self.0.noted(asking).await
    }

    /// The pool, for reads of several statements.
    pub(crate) fn pool(&self) -> &AnyPool {
        &self.0.pool
    }

    /// Closes all connections. From this call on none is lent.
    pub(crate) fn close(&self) -> impl Future<Output = ()> {
        let closed = self.0.pool.close();
        // A read in progress finds the pool closed and returns its connection there.
        self.0.rested.lock().clear();
        closed
    }
}

impl SharedReaders {
    /// Runs a read and records its outcome.
    async fn noted<T>(&self, asking: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let answer = asking.await;
        health::note(&self.way, &answer);
        answer
    }

    async fn lend(&self) -> Result<LentReader<'_>, StoreError> {
        let place = tokio::time::timeout(ACQUIRE, self.places.acquire())
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)?
            .map_err(|_| sqlx::Error::PoolClosed)?;
        let rested = self.rested.lock().pop();
        let held = match rested.filter(|held| held.looked_at.elapsed() < SPELL) {
            Some(held) => held,
            None => HeldReader { loan: PooledConnection::of(&self.pool).await?, looked_at: Instant::now() },
        };
        Ok(LentReader { held, readers: self, _place: place })
    }
}

impl LentReader<'_> {
    fn connection(&mut self) -> &mut AnyConnection {
        self.held.loan.connection()
    }

    fn give_back<T>(self, answer: Result<Result<T, sqlx::Error>, Elapsed>) -> Result<T, StoreError> {
        let Ok(answer) = answer else {
            return Err(self.held.loan.silent("the database did not answer a read in time"));
        };
        let answer = answer?;
        let mut rested = self.readers.rested.lock();
        if !self.readers.pool.is_closed() {
            rested.push(self.held);
        }
        Ok(answer)
    }
}
