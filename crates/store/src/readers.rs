//! Connections that read, lent for one statement at a time.
//!
//! Owns: who may read now, how long an answer is waited for, and when a connection is looked at. Does not own: connecting
//! ([`crate::dialect`]), what becomes of a connection that is let go of ([`crate::pooled`]).
//!
//! The pool beneath asks a connection whether it is well whenever it comes back, PostgreSQL's also when it goes out: two more
//! round trips for a statement that needs one. What answered well is lent again without, for [`SPELL`]; then the pool
//! looks at it. What did not answer well, or was not waited for, goes back to the pool at once; what did not answer at all is closed.

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

/// Statements that are asked at once at most.
const READERS: u32 = 8;
/// Connections beside those, for what reads longer.
const SNAPSHOTS: u32 = 1;
/// How long a connection is lent without being looked at.
const SPELL: Duration = Duration::from_secs(1);
/// How long an answer is waited for: longer than a server that is there takes to refuse one ([`Dialect::asking_pool`]).
const ANSWER: Duration = Duration::from_secs(5);

/// A question to the database.
pub(crate) type Ask<'q> = Query<'q, Any, AnyArguments>;

/// The connections. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct Readers(Arc<SharedReaders>);

struct SharedReaders {
    pool: AnyPool,
    places: Semaphore,
    /// What answered well a moment ago, the last one on top: the fewer are in use, the warmer they are.
    rested: Mutex<Vec<HeldReader>>,
    /// Where they were opened.
    runtime: Handle,
    /// How what is asked goes to the database.
    way: Outage,
}

impl Drop for SharedReaders {
    /// The pool takes a connection back within a runtime only; whoever lets go of the last store may be in none.
    fn drop(&mut self) {
        let _within = self.runtime.enter();
        self.rested.get_mut().clear();
    }
}

struct HeldReader {
    loan: PooledConnection,
    looked_at: Instant,
}

/// A connection for one statement.
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

    /// The one row there is, if there is one.
    pub(crate) async fn optional(&self, ask: Ask<'_>) -> Result<Option<AnyRow>, StoreError> {
        let asking = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER, lent.connection().fetch_optional(ask)).await;
            lent.give_back(answer)
        };
        self.0.noted(asking).await
    }

    /// The row that is always there.
    pub(crate) async fn one(&self, ask: Ask<'_>) -> Result<AnyRow, StoreError> {
        let asking = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER, lent.connection().fetch_one(ask)).await;
            lent.give_back(answer)
        };
        self.0.noted(asking).await
    }

    /// All rows.
    pub(crate) async fn all(&self, ask: Ask<'_>) -> Result<Vec<AnyRow>, StoreError> {
        let asking = async {
            let mut lent = self.0.lend().await?;
            let answer = timeout(ANSWER, lent.connection().fetch_all(ask)).await;
            lent.give_back(answer)
        };
        self.0.noted(asking).await
    }

    /// For what reads more than one statement.
    pub(crate) fn pool(&self) -> &AnyPool {
        &self.0.pool
    }

    /// Lends none any more, from this call on, and ends all connections.
    pub(crate) fn close(&self) -> impl Future<Output = ()> {
        let closed = self.0.pool.close();
        // whoever is still reading finds the pool closed and gives back to it
        self.0.rested.lock().clear();
        closed
    }
}

impl SharedReaders {
    /// An answer, of which note was taken.
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
            return Err(self.held.loan.silent("no answer to a question in time"));
        };
        let answer = answer?;
        let mut rested = self.readers.rested.lock();
        if !self.readers.pool.is_closed() {
            rested.push(self.held);
        }
        Ok(answer)
    }
}
