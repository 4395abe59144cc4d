//! Changes, and how they share transactions.
//!
//! Owns: the queue of changes, and the transactions they are made in. Does not own: what a change does.
//!
//! Flow: `Store::write → queue → lane: begin, apply each, commit → every caller hears after the commit is durable`.
//!
//! Making a transaction durable costs a write to the disk, however much it changes; so whatever is waiting when a lane
//! becomes free goes into one. Changes decide by conditional statements and report what they found, so that a refusal
//! (a code used twice) is a result, not a failure, and spoils nothing for its neighbours. When one does fail, the
//! transaction is given up and each change is tried in one of its own.
//!
//! A transaction takes no longer than its callers wait: a lane that went on waiting for a database that has fallen silent would make
//! no other, and there are few.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyConnection, AnyPool, Connection as _};
use tokio::sync::{Mutex, broadcast, mpsc, oneshot};
use tokio::time::Instant;

use crate::announcements::{AnnouncedAppend, AnnouncedEntry, Unnumbered};
use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::health::StorageHealth;
use crate::pooled::{PooledConnection, lost};
use crate::value::StoredDigest;

/// Changes waiting at most; more are refused at once.
const QUEUE: usize = 4096;
/// Appended events that whoever follows may be behind by; then they miss some, which the log still has.
const FOLLOWED: usize = 4096;
/// Changes of one transaction at most: so long the first of them waits for the last.
const TOGETHER: usize = 128;
/// A change not made within this time is given up; whether it was made is unknown then.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How often a transaction that gave way to others is tried again.
const RETRIES: usize = 3;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transaction under way.
pub struct Tx<'t> {
    pub(crate) connection: &'t mut AnyConnection,
    pub(crate) dialect: Dialect,
    pub(crate) incarnation: Incarnation,
    /// What is appended to the log of revocations when everything else is done.
    pub(crate) events: Vec<Unnumbered>,
    /// And to the audit log.
    pub(crate) entries: Vec<AnnouncedEntry>,
    /// Users of whom nothing counts that was read before the log's time at the end of this.
    pub(crate) voided: BTreeSet<String>,
    /// Sessions that were used, and when.
    pub(crate) used: BTreeMap<String, Timestamp>,
    /// Whether nobody else gives a name.
    pub(crate) names_locked: bool,
    /// Login sessions that others hear the end of.
    pub(crate) ended: Vec<StoredDigest>,
}

/// A change of what is stored.
pub trait Change: Send + Sync + 'static {
    /// What is found or made.
    type Output: Send + 'static;
    /// Whether it takes the lock of the log's head. It is taken last, so that whoever has it waits for nobody.
    const LOCKS_HEAD: bool = false;

    /// Whether it gives somebody a name or an address, which takes a lock of its own. It is taken before everything else, so that whoever waits
    /// for it has nothing that others wait for.
    fn gives_names(&self) -> bool {
        false
    }

    /// Applies it. May be called again when the transaction was given up, so that nothing outside of it may change.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of the change stays then.
    fn apply(&self, tx: &mut Tx<'_>) -> impl Future<Output = Result<Self::Output, StoreError>> + Send;

    /// Whether an output tells that what was asked for was done, so that it is worth an entry ([`crate::audit`]).
    fn happened(_output: &Self::Output) -> bool {
        true
    }
}

/// Changes one after the other in one transaction, however many there are: all of them or none.
impl<C: Change> Change for Vec<C> {
    type Output = Vec<C::Output>;
    const LOCKS_HEAD: bool = C::LOCKS_HEAD;

    fn gives_names(&self) -> bool {
        self.iter().any(C::gives_names)
    }

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        let mut outputs = Vec::with_capacity(self.len());
        for change in self {
            outputs.push(change.apply(tx).await?);
        }
        Ok(outputs)
    }

    fn happened(outputs: &Self::Output) -> bool {
        outputs.iter().any(C::happened)
    }
}

/// A change in the queue, whatever its output.
trait Queued: Send {
    fn apply<'a>(&'a mut self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<(), StoreError>>;
    fn done(&mut self, committed: Result<(), StoreError>);
    fn is_abandoned(&self) -> bool;
    fn locks_head(&self) -> bool;
    fn gives_names(&self) -> bool;
}

struct Job<C: Change> {
    change: C,
    output: Option<C::Output>,
    answer: Option<oneshot::Sender<Result<C::Output, StoreError>>>,
}

impl<C: Change> Queued for Job<C> {
    fn apply<'a>(&'a mut self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.output = Some(self.change.apply(tx).await?);
            Ok(())
        })
    }

    fn done(&mut self, committed: Result<(), StoreError>) {
        let (Some(answer), output) = (self.answer.take(), self.output.take()) else { return };
        // Whoever gave up waiting does not hear.
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
        self.change.gives_names()
    }
}

/// The entrance of the queue.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Box<dyn Queued>>,
    appended: broadcast::Sender<AnnouncedAppend>,
    storing: StorageHealth,
}

/// Where transactions are made.
#[derive(Clone)]
struct WriteSlot {
    pool: AnyPool,
    dialect: Dialect,
    incarnation: Incarnation,
    appended: broadcast::Sender<AnnouncedAppend>,
    storing: StorageHealth,
}

impl Writer {
    /// Starts as many lanes as there may be transactions at once; they end with the last writer.
    pub(crate) fn start(
        pool: &AnyPool,
        dialect: Dialect,
        incarnation: Incarnation,
        storing: StorageHealth,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let waiting = Arc::new(Mutex::new(waiting));
        let (appended, _) = broadcast::channel(FOLLOWED);
        let place = WriteSlot {
            pool: pool.clone(),
            dialect,
            incarnation,
            appended: appended.clone(),
            storing: storing.clone(),
        };
        for _ in 0..dialect.lanes() {
            tokio::spawn(kept(place.clone(), waiting.clone()));
        }
        Self { queue, appended, storing }
    }

    pub(crate) fn storing(&self) -> StorageHealth {
        self.storing.clone()
    }

    /// What is appended to the log of revocations from now on, once it is durable.
    pub(crate) fn appended(&self) -> broadcast::Receiver<AnnouncedAppend> {
        self.appended.subscribe()
    }

    pub(crate) async fn write<C: Change>(&self, change: C) -> Result<C::Output, StoreError> {
        let (answer, heard) = oneshot::channel();
        let job = Box::new(Job { change, output: None, answer: Some(answer) });
        if self.queue.try_send(job).is_err() {
            let busy = Err(StoreError::Busy);
            self.storing.note(&busy, Instant::now());
            return busy;
        }
        match tokio::time::timeout(PATIENCE, heard).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(lost("the transaction was abandoned")),
            Err(_) => Err(lost("no answer in time")),
        }
    }
}

type Waiting = Arc<Mutex<mpsc::Receiver<Box<dyn Queued>>>>;

/// A lane that outlives a change that panics: its transaction is rolled back, its callers hear that it was abandoned.
async fn kept(place: WriteSlot, waiting: Waiting) {
    while tokio::spawn(lane(place.clone(), waiting.clone())).await.is_err_and(|end| end.is_panic()) {
        tracing::error!("a change panicked; the others that shared its transaction were not made either");
    }
}

/// One transaction at a time, until nobody can write any more.
async fn lane(place: WriteSlot, waiting: Waiting) {
    let mut jobs = Vec::with_capacity(TOGETHER);
    loop {
        let mut queue = waiting.lock().await;
        if queue.recv_many(&mut jobs, TOGETHER).await == 0 {
            return;
        }
        drop(queue);
        jobs.retain(|job| !job.is_abandoned());
        jobs.sort_by_key(|job| job.locks_head());
        settle(&place, &mut jobs).await;
        jobs.clear();
    }
}

/// Makes the changes, together when possible, and tells each caller.
async fn settle(place: &WriteSlot, jobs: &mut [Box<dyn Queued>]) {
    let mut made = together(place, jobs).await;
    match &made {
        Err(error) if jobs.len() > 1 && error.is_of_one_change() => {
            for job in jobs.chunks_mut(1) {
                // The ones before it may have taken long.
                if job[0].is_abandoned() {
                    continue;
                }
                let made = alone(place, job).await;
                job[0].done(made);
            }
            return;
        }
        Err(error) if error.is_worth_retrying() => made = alone(place, jobs).await,
        _ => {}
    }
    for job in jobs {
        job.done(made.clone());
    }
}

async fn alone(place: &WriteSlot, job: &mut [Box<dyn Queued>]) -> Result<(), StoreError> {
    let mut tries = 0;
    loop {
        match together(place, job).await {
            Err(error) if error.is_worth_retrying() && tries < RETRIES => tries += 1,
            made => return made,
        }
    }
}

/// One transaction with all of them, or none.
async fn together(place: &WriteSlot, jobs: &mut [Box<dyn Queued>]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let made = over_a_connection(place, jobs).await;
    place.storing.note(&made, Instant::now());
    made
}

async fn over_a_connection(place: &WriteSlot, jobs: &mut [Box<dyn Queued>]) -> Result<(), StoreError> {
    let mut loan = PooledConnection::of(&place.pool).await?;
    let made = tokio::time::timeout(PATIENCE, transact(place, loan.connection(), jobs)).await;
    made.unwrap_or_else(|_| Err(loan.silent("no answer to a transaction in time")))
}

/// Makes the changes over a connection.
async fn transact(
    place: &WriteSlot,
    connection: &mut AnyConnection,
    jobs: &mut [Box<dyn Queued>],
) -> Result<(), StoreError> {
    let WriteSlot { dialect, incarnation, .. } = *place;
    let mut transaction = connection.begin_with(dialect.begin()).await?;
    // Dropping the transaction rolls it back.
    let mut tx = Tx {
        connection: &mut transaction,
        dialect,
        incarnation,
        events: Vec::new(),
        entries: Vec::new(),
        voided: BTreeSet::new(),
        used: BTreeMap::new(),
        names_locked: false,
        ended: Vec::new(),
    };
    if jobs.iter().any(|job| job.gives_names()) {
        tx.lock_names().await?;
    }
    for job in jobs {
        job.apply(&mut tx).await?;
    }
    // Before the heads: it waits for nobody, and whoever has a head waits for nobody either.
    tx.write_used().await?;
    // In this order: changes that lock the head have locked it already.
    let appended = tx.write_events().await?;
    tx.write_entries().await?;
    tx.write_ended().await?;
    transaction.commit().await.map_err(|error| StoreError::from(error).at_commit())?;
    for event in appended {
        // An error says that nobody follows.
        let _ = place.appended.send(event);
    }
    Ok(())
}
