//! Readers: connections that are borrowed for one read statement at a time.
//!
//! Owns: how many reads run at once, how long an answer may take, when a connection is checked.
//! Does not own: connecting ([`crate::dialect`]), what happens to a dropped connection
//! ([`crate::pooled_connection`]).
//!
//! The pool checks a connection each time it is returned, and with PostgreSQL also each time it is
//! borrowed. That adds two round trips to a statement that needs one. So a connection that has
//! answered is kept here and lent again without a check for [`CHECK_INTERVAL`]; then the pool
//! checks it. A connection whose statement failed or was cancelled returns to the pool at once. One
//! that did not answer is closed.

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

use crate::dialect::{ACQUIRE_TIMEOUT, Dialect};
use crate::error::StoreError;
use crate::health;
use crate::pooled_connection::PooledConnection;

/// Maximum number of concurrent statements.
const MAX_READS: u32 = 8;
/// Further connections for reads of several statements.
const SNAPSHOTS: u32 = 1;
/// How long a connection is lent without a check.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer may take. Longer than a live server takes to cancel the statement
/// ([`Dialect::read_pool`]).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A read statement with its arguments.
pub(crate) type ReadStatement<'q> = Query<'q, Any, AnyArguments>;

/// The read connections. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct Readers(Arc<SharedReaders>);

struct SharedReaders {
    pool: AnyPool,
    permits: Semaphore,
    /// Connections that have answered recently, the last one on top. Reusing the last one keeps few
    /// connections in use.
    idle: Mutex<Vec<IdleReader>>,
    /// The runtime in which they were opened.
    runtime: Handle,
    /// Health of the path that reads take.
    outage: Outage,
}

impl Drop for SharedReaders {
    /// The pool can take connections back only within a runtime, and the last store may be dropped
    /// outside of one.
    fn drop(&mut self) {
        let _within = self.runtime.enter();
        self.idle.get_mut().clear();
    }
}

struct IdleReader {
    loan: PooledConnection,
    checked_at: Instant,
}

/// A connection that is lent for one statement.
struct LentReader<'r> {
    held: IdleReader,
    readers: &'r SharedReaders,
    _place: SemaphorePermit<'r>,
}

impl Readers {
    pub(crate) async fn open(url: &str, dialect: Dialect, way: Outage) -> Result<Self, StoreError> {
        let pool = dialect.read_pool(url, MAX_READS + SNAPSHOTS).await?;
        let places = Semaphore::new(MAX_READS as usize);
        let (rested, runtime) = (Mutex::default(), Handle::current());
        Ok(Self(Arc::new(SharedReaders { pool, permits: places, idle: rested, runtime, outage: way })))
    }

    /// Runs a statement that returns at most one row.
    pub(crate) async fn fetch_optional(&self, ask: ReadStatement<'_>) -> Result<Option<AnyRow>, StoreError> {
        let read = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER_TIMEOUT, lent.connection().fetch_optional(ask)).await;
            lent.give_back(answer)
        };
        self.0.recorded(read).await
    }

    /// Runs a statement that always returns a row.
    pub(crate) async fn fetch_one(&self, ask: ReadStatement<'_>) -> Result<AnyRow, StoreError> {
        let read = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER_TIMEOUT, lent.connection().fetch_one(ask)).await;
            lent.give_back(answer)
        };
        self.0.recorded(read).await
    }

    /// Runs a statement and returns all rows.
    pub(crate) async fn fetch_all(&self, ask: ReadStatement<'_>) -> Result<Vec<AnyRow>, StoreError> {
        let read = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER_TIMEOUT, lent.connection().fetch_all(ask)).await;
            lent.give_back(answer)
        };
        self.0.recorded(read).await
    }

    /// The pool, for reads of several statements.
    pub(crate) fn pool(&self) -> &AnyPool {
        &self.0.pool
    }

    /// Closes all connections. From this call on none is lent.
    pub(crate) fn close(&self) -> impl Future<Output = ()> {
        let closed = self.0.pool.close();
        // A read in progress finds the pool closed and returns its connection there.
        self.0.idle.lock().clear();
        closed
    }
}

impl SharedReaders {
    /// Runs a read and records its outcome.
    async fn recorded<T>(&self, read: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let answer = read.await;
        health::record_outcome(&self.outage, &answer);
        answer
    }

    async fn lend(&self) -> Result<LentReader<'_>, StoreError> {
        let place = tokio::time::timeout(ACQUIRE_TIMEOUT, self.permits.acquire())
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)?
            .map_err(|_| sqlx::Error::PoolClosed)?;
        let rested = self.idle.lock().pop();
        let held = match rested.filter(|held| held.checked_at.elapsed() < CHECK_INTERVAL) {
            Some(held) => held,
            None => {
                IdleReader { loan: PooledConnection::acquire(&self.pool).await?, checked_at: Instant::now() }
            }
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
            return Err(self.held.loan.mark_silent("the database did not answer a read in time"));
        };
        let answer = answer?;
        let mut rested = self.readers.idle.lock();
        if !self.readers.pool.is_closed() {
            rested.push(self.held);
        }
        Ok(answer)
    }
}
