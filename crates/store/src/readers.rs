//! Connections that read, lent for one statement at a time.
//!
//! Owns: who may read now, and when a connection is looked at. Does not own: connecting ([`crate::dialect`]).
//!
//! The pool beneath asks a connection whether it is well whenever it comes back, PostgreSQL's also when it goes out: two more
//! round trips for a statement that needs one. What answered well is lent again without, for [`SPELL`]; then the pool
//! looks at it. What did not answer well, or was not waited for, goes back to the pool at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AnyPool, Executor as _};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::dialect::{ACQUIRE, Dialect};
use crate::error::StoreError;

/// Statements that are asked at once at most.
const READERS: u32 = 8;
/// Connections beside those, for what reads longer.
const SNAPSHOTS: u32 = 1;
/// How long a connection is lent without being looked at.
const SPELL: Duration = Duration::from_secs(1);

/// A question to the database.
pub(crate) type Ask<'q> = Query<'q, Any, AnyArguments>;

/// The connections. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct Readers(Arc<Shared>);

struct Shared {
    pool: AnyPool,
    places: Semaphore,
    /// What answered well a moment ago, the last one on top: the fewer are in use, the warmer they are.
    rested: Mutex<Vec<Held>>,
    /// Where they were opened.
    runtime: Handle,
}

impl Drop for Shared {
    /// The pool takes a connection back within a runtime only; whoever lets go of the last store may be in none.
    fn drop(&mut self) {
        let _within = self.runtime.enter();
        self.rested.get_mut().clear();
    }
}

struct Held {
    connection: PoolConnection<Any>,
    looked_at: Instant,
}

/// A connection for one statement.
struct Lent<'r> {
    held: Held,
    readers: &'r Shared,
    _place: SemaphorePermit<'r>,
}

impl Readers {
    pub(crate) async fn open(url: &str, dialect: Dialect) -> Result<Self, StoreError> {
        let pool = dialect.pool(url, READERS + SNAPSHOTS).await?;
        let places = Semaphore::new(READERS as usize);
        let (rested, runtime) = (Mutex::default(), Handle::current());
        Ok(Self(Arc::new(Shared { pool, places, rested, runtime })))
    }

    /// The one row there is, if there is one.
    pub(crate) async fn optional(&self, ask: Ask<'_>) -> Result<Option<AnyRow>, StoreError> {
        let mut lent = self.0.lend().await?;
        let answer = lent.connection().fetch_optional(ask).await;
        lent.give_back(answer)
    }

    /// The row that is always there.
    pub(crate) async fn one(&self, ask: Ask<'_>) -> Result<AnyRow, StoreError> {
        let mut lent = self.0.lend().await?;
        let answer = lent.connection().fetch_one(ask).await;
        lent.give_back(answer)
    }

    /// All rows.
    pub(crate) async fn all(&self, ask: Ask<'_>) -> Result<Vec<AnyRow>, StoreError> {
        let mut lent = self.0.lend().await?;
        let answer = lent.connection().fetch_all(ask).await;
        lent.give_back(answer)
    }

    /// For what reads more than one statement.
    pub(crate) fn pool(&self) -> &AnyPool {
        &self.0.pool
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        let closed = self.0.pool.close();
        // whoever is still reading finds the pool closed and gives back to it
        self.0.rested.lock().clear();
        closed.await;
    }
}

impl Shared {
    async fn lend(&self) -> Result<Lent<'_>, StoreError> {
        let place = tokio::time::timeout(ACQUIRE, self.places.acquire())
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)?
            .map_err(|_| sqlx::Error::PoolClosed)?;
        let rested = self.rested.lock().pop();
        let held = match rested.filter(|held| held.looked_at.elapsed() < SPELL) {
            Some(held) => held,
            None => Held { connection: self.pool.acquire().await?, looked_at: Instant::now() },
        };
        Ok(Lent { held, readers: self, _place: place })
    }
}

impl Lent<'_> {
    fn connection(&mut self) -> &mut AnyConnection {
        &mut self.held.connection
    }

    fn give_back<T>(self, answer: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        let answer = answer?;
        let mut rested = self.readers.rested.lock();
        if !self.readers.pool.is_closed() {
            rested.push(self.held);
        }
        Ok(answer)
    }
}
