//! Hash pool: the threads that compute password hashes.
//!
//! Owns: a fixed number of threads, each with its own working memory; a bounded queue; the refusal
//! when it is full; counters. Does not own: the computation, and the response 503 with
//! `Retry-After`.
//!
//! A hash takes tens of milliseconds of a core. On a runtime thread it would delay other requests.
//! In an unbounded pool a burst of logins would use all memory, and no login would finish in time.
//! Therefore a full queue refuses immediately. Jobs whose caller has gone away are skipped, and are
//! removed first when the queue is full.
//!
//! Flow: [`HashPool::run`] → queue → a thread computes, counts, sends the result through a oneshot
//! channel.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// Working memory of a thread, kept between computations.
pub trait WorkingMemory: Send + Sized + 'static {
    /// What it needs at its creation, such as how much of it is kept.
    type Settings: Copy + Send + 'static;

    /// Memory for a new thread, or after a panic.
    fn new(settings: Self::Settings) -> Self;

    /// Called after every computation: releases what one expensive computation needed.
    fn trim(&mut self);
}

/// For computations without memory of their own.
impl WorkingMemory for () {
    type Settings = ();

    fn new((): ()) -> Self {}

    fn trim(&mut self) {}
}

/// Reason why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoResult {
    /// The queue is full. Nothing was computed.
    #[error("password queue full")]
    Busy,
    /// The pool was dropped before the result.
    #[error("password pool stopped")]
    Stopped,
    /// The computation panicked; its thread continues.
    #[error("password computation panicked")]
    Crashed,
}

/// Counters of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Jobs in the queue.
    pub queued: usize,
    /// Jobs in computation.
    pub running: usize,
    /// Jobs computed since the start, with any result.
    pub finished: u64,
    /// Jobs refused since the start because the queue was full.
    pub refused: u64,
    /// Jobs skipped since the start because the caller had gone away.
    pub skipped: u64,
    /// Jobs that panicked since the start; also counted in `finished`.
    pub crashed: u64,
}

/// A job: computed on a thread with its memory; then the result is sent.
trait Task<M>: Send {
    /// Whether the caller has gone away.
    fn abandoned(&self) -> bool;
    fn compute(&mut self, memory: &mut M);
    fn answer(self: Box<Self>);
}

struct Job<T, F> {
    work: Option<F>,
    result: Option<T>,
    caller: oneshot::Sender<Result<T, NoResult>>,
}

impl<M, T: Send, F: FnOnce(&mut M) -> T + Send> Task<M> for Job<T, F> {
    fn abandoned(&self) -> bool {
        self.caller.is_closed()
    }

    fn compute(&mut self, memory: &mut M) {
        self.result = self.work.take().map(|work| work(memory));
    }

    fn answer(self: Box<Self>) {
        // The caller may have gone away meanwhile.
        let _ = self.caller.send(self.result.ok_or(NoResult::Crashed));
    }
}

struct State<M> {
    open: bool,
    waiting: VecDeque<Box<dyn Task<M>>>,
    numbers: PoolStats,
}

struct Shared<M> {
    state: Mutex<State<M>>,
    work: Condvar,
}

impl<M: WorkingMemory> Shared<M> {
    /// The next job with a waiting caller; `None` when the pool ends.
    fn next(&self) -> Option<Box<dyn Task<M>>> {
        let mut state = self.state.lock();
        while state.open {
            match state.waiting.pop_front() {
                Some(task) if task.abandoned() => state.numbers.skipped += 1,
                Some(task) => {
                    state.numbers.running += 1;
                    return Some(task);
                }
                None => self.work.wait(&mut state),
            }
        }
        None
    }

    fn computed(&self, crashed: bool) {
        let mut state = self.state.lock();
        state.numbers.running -= 1;
        state.numbers.finished += 1;
        state.numbers.crashed += u64::from(crashed);
    }

    /// Loop of one thread.
    fn serve(&self, settings: M::Settings) {
        let mut memory = M::new(settings);
        while let Some(mut task) = self.next() {
            // A panic in one job must not end the thread, or the pool would shrink unnoticed.
            let crashed = catch_unwind(AssertUnwindSafe(|| task.compute(&mut memory))).is_err();
            if crashed {
                memory = M::new(settings);
            }
            memory.trim();
            // Counted before the result is sent, so that a caller with a result reads current
            // counters.
            self.computed(crashed);
            task.answer();
        }
    }
}

/// The pool. Dropping it ends its threads: running jobs finish, waiting jobs are dropped.
pub struct HashPool<M: WorkingMemory> {
    shared: Arc<Shared<M>>,
    threads: Vec<JoinHandle<()>>,
    queue: usize,
}

impl<M: WorkingMemory> HashPool<M> {
    /// Starts `threads` threads for at most `queue` waiting jobs.
    ///
    /// # Errors
    /// When the operating system fails to create a thread.
    pub fn start(threads: usize, queue: usize, settings: M::Settings) -> io::Result<Self> {
        let state = State { open: true, waiting: VecDeque::new(), numbers: PoolStats::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), work: Condvar::new() });
        let mut pool = Self { shared, threads: Vec::new(), queue };
        for n in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new().name(format!("password-{n}"));
            // Threads that already run end when `pool` is dropped.
            pool.threads.push(thread.spawn(move || shared.serve(settings))?);
        }
        Ok(pool)
    }

    /// Computes on one of the threads.
    ///
    /// # Errors
    /// [`NoResult`] when the queue is full or the computation panics.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut M) -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let (caller, answer) = oneshot::channel();
        self.enqueue(Box::new(Job { work: Some(work), result: None, caller }))?;
        answer.await.unwrap_or(Err(NoResult::Stopped))
    }

    /// Current counters of the pool.
    pub fn stats(&self) -> PoolStats {
        let state = self.shared.state.lock();
        PoolStats { queued: state.waiting.len(), ..state.numbers }
    }

    fn enqueue(&self, task: Box<dyn Task<M>>) -> Result<(), NoResult> {
        let mut state = self.shared.state.lock();
        if state.waiting.len() >= self.queue {
            state.waiting.retain(|task| !task.abandoned());
            state.numbers.skipped += (self.queue - state.waiting.len()) as u64;
            if state.waiting.len() >= self.queue {
                state.numbers.refused += 1;
                return Err(NoResult::Busy);
            }
        }
        state.waiting.push_back(task);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }
}

impl<M: WorkingMemory> Drop for HashPool<M> {
    fn drop(&mut self) {
        let given_up = {
            let mut state = self.shared.state.lock();
            state.open = false;
            std::mem::take(&mut state.waiting)
        };
        drop(given_up);
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // Panics of computations are caught; any other panic ends only its thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn dropping_the_pool_ends_its_threads_and_gives_up_what_waits() {
        let pool = HashPool::<()>::start(1, 8, ()).unwrap();
        let shared = Arc::clone(&pool.shared);
        let (release, wait_release) = mpsc::channel::<()>();
        let (busy, busy_answer) = oneshot::channel();
        let (started, wait_started) = mpsc::channel();
        let work = move |(): &mut ()| {
            started.send(()).unwrap();
            let _ = wait_release.recv();
        };
        pool.enqueue(Box::new(Job { work: Some(work), result: None, caller: busy })).unwrap();
        wait_started.recv().unwrap();
        let (waiting, waiting_answer) = oneshot::channel::<Result<(), NoResult>>();
        pool.enqueue(Box::new(Job { work: Some(|(): &mut ()| ()), result: None, caller: waiting })).unwrap();

        let dropping = thread::spawn(move || drop(pool));
        assert!(waiting_answer.await.is_err(), "given up while the thread is still busy");
        drop(release);
        assert_eq!(busy_answer.await, Ok(Ok(())), "what was begun is finished");
        dropping.join().unwrap();
        assert_eq!(Arc::strong_count(&shared), 1, "no thread holds the pool's insides");
    }

    /// Counts how often it was made and trimmed.
    struct Counted(Arc<Mutex<(u32, u32)>>);

    thread_local! {
        static COUNTS: Arc<Mutex<(u32, u32)>> = Arc::default();
    }

    impl WorkingMemory for Counted {
        type Settings = ();

        fn new((): ()) -> Self {
            let counts = COUNTS.with(Arc::clone);
            counts.lock().0 += 1;
            Self(counts)
        }

        fn trim(&mut self) {
            self.0.lock().1 += 1;
        }
    }

    #[tokio::test]
    async fn memory_is_kept_trimmed_and_replaced_after_a_panic() {
        let pool = HashPool::<Counted>::start(1, 8, ()).unwrap();
        let counts = |memory: &mut Counted| *memory.0.lock();
        assert_eq!(pool.run(counts).await, Ok((1, 0)));
        assert_eq!(pool.run(counts).await, Ok((1, 1)));
        let crashed: Result<(), _> = pool.run(|_| panic!("a fault in a computation")).await;
        assert_eq!(crashed, Err(NoResult::Crashed));
        assert_eq!(pool.run(counts).await, Ok((2, 3)));
        assert_eq!(pool.stats(), PoolStats { finished: 4, crashed: 1, ..PoolStats::default() });
    }
}
