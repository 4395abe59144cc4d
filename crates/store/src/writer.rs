//! Writes: how changes share transactions.
//!
//! Owns: the queue of changes, and the transactions that make them. Does not own: what a change
//! does.
//!
//! 1. `Store::write` queues the change and waits.
//! 2. A lane, one of a fixed number of writer tasks, takes all waiting changes, begins a
//!    transaction and applies each.
//! 3. It commits.
//! 4. Every caller gets its result when the commit is durable.
//!
//! A commit costs a write to disk, however much it changes, so all changes that wait when a lane
//! becomes free share one. Changes use conditional statements and report what they found. So a
//! refusal, such as a code that was used before, is a result and not a failure, and does not affect
//! other changes. When one does fail, the transaction is rolled back and each change is retried in
//! its own.
//!
//! A transaction takes no longer than its callers wait. Otherwise a lane would wait forever for a
//! database that no longer answers, and there are few lanes.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyConnection, AnyPool, Connection as _};
use tokio::sync::{Mutex, broadcast, mpsc, oneshot};
use tokio::time::Instant;

use crate::announcements::{AppendedEvent, AuditEntry, PendingEvent};
use crate::columns::StoredDigest;
use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::health::StorageHealth;
use crate::pooled_connection::{PooledConnection, timed_out};

/// Maximum number of waiting changes; more are refused at once.
const QUEUE_LENGTH: usize = 4096;
/// How many appended events a subscriber may lag behind. A slower one misses some, which the log
/// still has.
const EVENT_BUFFER: usize = 4096;
/// Maximum number of changes in one transaction: the first of them waits until the last is applied.
const MAX_BATCH: usize = 128;
/// How long a change may take. After this time its caller gets an error, and the change may or may
/// not have been made.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Retries of a transaction that was aborted in favour of others.
const RETRIES: usize = 3;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transaction in progress.
pub struct Tx<'t> {
    pub(crate) connection: &'t mut AnyConnection,
    pub(crate) dialect: Dialect,
    pub(crate) incarnation: Incarnation,
    /// Events to append to the revocation log after all other statements.
    pub(crate) events: Vec<PendingEvent>,
    /// Entries to append to the audit log.
    pub(crate) entries: Vec<AuditEntry>,
    /// Users whose tokens are revoked up to the log time at the end of this transaction.
    pub(crate) voided: BTreeSet<String>,
    /// Sessions that were used, with the time of the last use.
    pub(crate) used_sessions: BTreeMap<String, Timestamp>,
    /// Whether this transaction holds the lock of the assignment of names.
    pub(crate) names_locked: bool,
    /// Login sessions that were ended, for other processes.
    pub(crate) ended_logins: Vec<StoredDigest>,
}

/// A change of the stored data.
pub trait Change: Send + Sync + 'static {
    /// The result: what was found or made.
    type Output: Send + 'static;
    /// Whether it locks the head of the log. Such changes are applied last, so that the holder of
    /// the lock waits for no other.
    const LOCKS_HEAD: bool = false;

    /// Whether it assigns a name or an address, which needs a lock of its own. That lock is taken
    /// before all others, so that a transaction that waits for it holds no other lock.
    fn assigns_names(&self) -> bool {
        false
    }

    /// Applies the change. It may be called again after a rollback, so it must have no effects
    /// outside of the transaction.
    ///
    /// # Errors
    /// [`StoreError`] when a statement fails; the change has no effect then.
    fn apply(&self, tx: &mut Tx<'_>) -> impl Future<Output = Result<Self::Output, StoreError>> + Send;

    /// Whether this output means that the change took effect, so that it gets an audit entry
    /// ([`crate::audit`]).
    fn took_effect(_output: &Self::Output) -> bool {
        true
    }
}

/// Several changes in sequence, all in one transaction.
impl<C: Change> Change for Vec<C> {
    type Output = Vec<C::Output>;
    const LOCKS_HEAD: bool = C::LOCKS_HEAD;

    fn assigns_names(&self) -> bool {
        self.iter().any(C::assigns_names)
    }

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        let mut outputs = Vec::with_capacity(self.len());
        for change in self {
            outputs.push(change.apply(tx).await?);
        }
        Ok(outputs)
    }

    fn took_effect(outputs: &Self::Output) -> bool {
        outputs.iter().any(C::took_effect)
    }
}

/// A queued change, independent of its output type.
trait Queued: Send {
    fn apply<'a>(&'a mut self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<(), StoreError>>;
    fn done(&mut self, committed: Result<(), StoreError>);
    fn is_abandoned(&self) -> bool;
    fn locks_head(&self) -> bool;
    fn gives_names(&self) -> bool;
}

struct QueuedChange<C: Change> {
    change: C,
    output: Option<C::Output>,
    answer: Option<oneshot::Sender<Result<C::Output, StoreError>>>,
}

impl<C: Change> Queued for QueuedChange<C> {
    fn apply<'a>(&'a mut self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.output = Some(self.change.apply(tx).await?);
            Ok(())
        })
    }

    fn done(&mut self, committed: Result<(), StoreError>) {
        let (Some(answer), output) = (self.answer.take(), self.output.take()) else { return };
        // The send fails if the caller has stopped waiting.
        let _ = match (committed, output) {
            (Ok(()), Some(output)) => answer.send(Ok(output)),
            (Err(error), _) => answer.send(Err(error)),
            (Ok(()), None) => return,
        };
    }

    fn is_abandoned(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    fn locks_head(&self) -> bool {
        C::LOCKS_HEAD
    }

    fn gives_names(&self) -> bool {
        self.change.assigns_names()
    }
}

/// Handle to the queue.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Box<dyn Queued>>,
    appended: broadcast::Sender<AppendedEvent>,
    storing: StorageHealth,
}

/// What a lane needs to run transactions.
#[derive(Clone)]
struct WriterContext {
    pool: AnyPool,
    dialect: Dialect,
    incarnation: Incarnation,
    appended: broadcast::Sender<AppendedEvent>,
    storing: StorageHealth,
}

impl Writer {
    /// Starts one lane per concurrent transaction; they end when the last writer is dropped.
    pub(crate) fn start(
        pool: &AnyPool,
        dialect: Dialect,
        incarnation: Incarnation,
        storing: StorageHealth,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_LENGTH);
        let waiting = Arc::new(Mutex::new(waiting));
        let (appended, _) = broadcast::channel(EVENT_BUFFER);
        let place = WriterContext {
            pool: pool.clone(),
            dialect,
            incarnation,
            appended: appended.clone(),
            storing: storing.clone(),
        };
        for _ in 0..dialect.max_writers() {
            tokio::spawn(supervised_lane(place.clone(), waiting.clone()));
        }
        Self { queue, appended, storing }
    }

    pub(crate) fn storage_health(&self) -> StorageHealth {
        self.storing.clone()
    }

    /// Events appended to the revocation log from now on, each once it is durable.
    pub(crate) fn appended(&self) -> broadcast::Receiver<AppendedEvent> {
        self.appended.subscribe()
    }

    pub(crate) async fn write<C: Change>(&self, change: C) -> Result<C::Output, StoreError> {
        let (answer, receiver) = oneshot::channel();
        let job = Box::new(QueuedChange { change, output: None, answer: Some(answer) });
        if self.queue.try_send(job).is_err() {
            let busy = Err(StoreError::Busy);
            self.storing.record(&busy, Instant::now());
            return busy;
        }
        match tokio::time::timeout(WRITE_TIMEOUT, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(timed_out("the transaction was aborted")),
            Err(_) => Err(timed_out("the change timed out, it may have been made")),
        }
    }
}

type Waiting = Arc<Mutex<mpsc::Receiver<Box<dyn Queued>>>>;

/// Restarts a lane after a panic in a change. The transaction is rolled back, and its callers get
/// an error.
async fn supervised_lane(place: WriterContext, waiting: Waiting) {
    while tokio::spawn(lane(place.clone(), waiting.clone())).await.is_err_and(|end| end.is_panic()) {
        tracing::error!("change panicked, its transaction was rolled back");
    }
}

/// Runs one transaction at a time, until all writers are dropped.
async fn lane(place: WriterContext, waiting: Waiting) {
    let mut jobs = Vec::with_capacity(MAX_BATCH);
    loop {
        let mut queue = waiting.lock().await;
        if queue.recv_many(&mut jobs, MAX_BATCH).await == 0 {
            return;
        }
        drop(queue);
        jobs.retain(|job| !job.is_abandoned());
        jobs.sort_by_key(|job| job.locks_head());
        run_batch(&place, &mut jobs).await;
        jobs.clear();
    }
}

/// Makes the changes, in one transaction if possible, and answers each caller.
async fn run_batch(place: &WriterContext, jobs: &mut [Box<dyn Queued>]) {
    let mut made = run_transaction(place, jobs).await;
    match &made {
        Err(error) if jobs.len() > 1 && error.is_single_change_fault() => {
            for job in jobs.chunks_mut(1) {
                // The caller may have given up while the earlier changes ran.
                if job[0].is_abandoned() {
                    continue;
                }
                let made = run_with_retries(place, job).await;
                job[0].done(made);
            }
            return;
        }
        Err(error) if error.is_worth_retrying() => made = run_with_retries(place, jobs).await,
        _ => {}
    }
    for job in jobs {
        job.done(made.clone());
    }
}

async fn run_with_retries(place: &WriterContext, job: &mut [Box<dyn Queued>]) -> Result<(), StoreError> {
    let mut retries = 0;
    loop {
        match run_transaction(place, job).await {
            Err(error) if error.is_worth_retrying() && retries < RETRIES => retries += 1,
            made => return made,
        }
    }
}

/// Makes all changes in one transaction, or none.
async fn run_transaction(place: &WriterContext, jobs: &mut [Box<dyn Queued>]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let made = with_connection(place, jobs).await;
    place.storing.record(&made, Instant::now());
    made
}

async fn with_connection(place: &WriterContext, jobs: &mut [Box<dyn Queued>]) -> Result<(), StoreError> {
    let mut loan = PooledConnection::acquire(&place.pool).await?;
    let made = tokio::time::timeout(WRITE_TIMEOUT, transact(place, loan.connection(), jobs)).await;
    made.unwrap_or_else(|_| Err(loan.mark_silent("the transaction timed out")))
}

/// Makes the changes on one connection.
async fn transact(
    place: &WriterContext,
    connection: &mut AnyConnection,
    jobs: &mut [Box<dyn Queued>],
) -> Result<(), StoreError> {
    let WriterContext { dialect, incarnation, .. } = *place;
    let mut transaction = connection.begin_with(dialect.begin_write()).await?;
    // Dropping the transaction rolls it back.
    let mut tx = Tx {
        connection: &mut transaction,
        dialect,
        incarnation,
        events: Vec::new(),
        entries: Vec::new(),
        voided: BTreeSet::new(),
        used_sessions: BTreeMap::new(),
        names_locked: false,
        ended_logins: Vec::new(),
    };
    if jobs.iter().any(|job| job.gives_names()) {
        tx.lock_names().await?;
    }
    for job in jobs {
        job.apply(&mut tx).await?;
    }
    // Before the heads are locked: this skips locked rows, so the holder of a head waits for no
    // other.
    tx.write_session_uses().await?;
    // The order matters: changes that lock the head have already locked it.
    let appended = tx.write_events().await?;
    tx.write_audit_entries().await?;
    tx.write_login_endings().await?;
    transaction.commit().await.map_err(|error| StoreError::from(error).into_commit_error())?;
    for event in appended {
        // The send fails if there are no subscribers.
        let _ = place.appended.send(event);
    }
    Ok(())
}
