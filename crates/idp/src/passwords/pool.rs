//! Password pool: the threads that hash and verify passwords.
//!
//! Owns: its sizes, the working memory of a thread, which computations it runs, and what a full
//! queue is for the caller. Does not own: threads and queue ([`hash_pool`]), the computation
//! ([`super::hash`]), the response 503 with `Retry-After` (the endpoint).

use std::{io, sync::Arc, thread, time::Duration};

pub use hash_pool::PoolStats;
use hash_pool::{HashPool, NoResult, WorkingMemory};

use super::{
    hash::{HashFault, Hasher, Memory, Verdict},
    parameters::Parameters,
    password::Password,
    phc::Phc,
    rules::{Refusal, Rules, UserData},
};
use crate::{Entropy, EntropyFailed};

/// Most threads of a pool.
pub const MAX_THREADS: usize = 256;
/// Most waiting jobs. Each holds a password of up to 1 KiB.
pub const MAX_QUEUE: usize = 65_536;
/// Default number of waiting jobs per thread: about one second of work.
const QUEUE_PER_THREAD: usize = 32;

/// Reason why a pool configuration is refused, or a pool does not start.
#[derive(Debug, thiserror::Error)]
pub enum PoolFault {
    /// The number of threads is out of bounds.
    #[error("{0} password threads out of bounds: use 1 to {MAX_THREADS}, or omit it for one per core")]
    Threads(usize),
    /// The length of the queue is out of bounds.
    #[error("password queue of {0} out of bounds: use 1 to {MAX_QUEUE}, about {QUEUE_PER_THREAD} per thread")]
    Queue(usize),
    /// The time to retry is out of bounds.
    #[error("password retry_after of {} out of bounds: use 1 s to 1 h", in_seconds(*.0))]
    RetryAfter(Duration),
    /// The random source failed: no decoy for unknown users.
    #[error(transparent)]
    Entropy(#[from] EntropyFailed),
    /// The operating system failed to create a thread.
    #[error("creating a password thread failed: {0}")]
    Spawn(#[source] io::Error),
}

fn in_seconds(d: Duration) -> String {
    format!("{} s", d.as_secs_f64())
}

/// Checked sizes of a pool, and its `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    threads: usize,
    queue: usize,
    retry_after: Duration,
}

impl PoolConfig {
    /// Checks the values. Defaults: one thread per available core, 32 jobs per thread.
    /// `retry_after` is the value of [`PoolError::Busy`], 1 s to 1 h. The pool uses threads × the
    /// memory of [`Parameters`].
    ///
    /// # Errors
    /// [`PoolFault`] when a value is out of bounds.
    pub fn new(
        threads: Option<usize>,
        queue: Option<usize>,
        retry_after: Duration,
    ) -> Result<Self, PoolFault> {
        let threads = threads
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS));
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(PoolFault::Threads(threads));
        }
        let queue = queue.unwrap_or(QUEUE_PER_THREAD * threads);
        if !(1..=MAX_QUEUE).contains(&queue) {
            return Err(PoolFault::Queue(queue));
        }
        if !(Duration::from_secs(1)..=Duration::from_hours(1)).contains(&retry_after) {
            return Err(PoolFault::RetryAfter(retry_after));
        }
        Ok(Self { threads, queue, retry_after })
    }

    /// Number of threads.
    pub fn threads(self) -> usize {
        self.threads
    }

    /// Most waiting jobs.
    pub fn queue(self) -> usize {
        self.queue
    }
}

/// Reason why the pool returned no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The queue is full. The password was not verified.
    #[error("password queue full: try again in {} s", .retry_after.as_secs())]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// The pool was dropped before the result.
    #[error("password pool stopped")]
    Stopped,
    /// The computation panicked; its thread continues.
    #[error("password computation panicked")]
    Crashed,
    /// The computation failed.
    #[error(transparent)]
    Hash(#[from] HashFault),
}

/// The memory of one thread, trimmed to what new hashes need.
struct ThreadMemory {
    memory: Memory,
    parameters: Parameters,
}

impl WorkingMemory for ThreadMemory {
    type Settings = Parameters;

    fn new(parameters: Parameters) -> Self {
        Self { memory: Memory::new(), parameters }
    }

    fn trim(&mut self) {
        self.memory.trim(self.parameters);
    }
}

/// The pool. Dropping it ends its threads: running jobs finish, waiting jobs are dropped.
pub struct Pool {
    threads: HashPool<ThreadMemory>,
    hasher: Arc<Hasher>,
    entropy: Arc<dyn Entropy>,
    config: PoolConfig,
}

impl Pool {
    /// Starts the threads. `parameters` are those of new hashes.
    ///
    /// # Errors
    /// [`PoolFault`] when a thread cannot be created or the random source fails.
    pub fn start(
        config: PoolConfig,
        parameters: Parameters,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, PoolFault> {
        let hasher = Arc::new(Hasher::new(parameters, &*entropy)?);
        let threads = HashPool::start(config.threads, config.queue, parameters).map_err(PoolFault::Spawn)?;
        Ok(Self { threads, hasher, entropy, config })
    }

    /// Compares a password with a stored hash, see [`Hasher::verify`]; `None` for an unknown user.
    ///
    /// # Errors
    /// [`PoolError`] when the queue is full or the computation fails.
    pub async fn verify(&self, password: Password, stored: Option<String>) -> Result<Verdict, PoolError> {
        let hasher = Arc::clone(&self.hasher);
        self.run(move |memory| hasher.verify(&password, stored.as_deref(), memory)).await
    }

    /// Makes a new hash, see [`Hasher::hash`].
    ///
    /// # Errors
    /// [`PoolError`] when the queue is full or the computation fails.
    pub async fn hash(&self, password: Password) -> Result<Phc, PoolError> {
        let (hasher, entropy) = (Arc::clone(&self.hasher), Arc::clone(&self.entropy));
        self.run(move |memory| hasher.hash(&password, &*entropy, memory)).await
    }

    /// Checks a new password by the rules, see [`Rules::check`], which can take as long as a hash.
    ///
    /// # Errors
    /// [`PoolError`] when the queue is full or the computation fails.
    pub async fn check_rules(
        &self,
        rules: Rules,
        password: Password,
        person: UserData<'_>,
    ) -> Result<Result<(), Refusal>, PoolError> {
        let (user_name, address) = (person.user_name.to_owned(), person.address.map(str::to_owned));
        let words: Vec<String> = person.words.iter().copied().map(str::to_owned).collect();
        self.run(move |_| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let person = UserData { user_name: &user_name, address: address.as_deref(), words: &words };
            Ok(rules.check(&password, person))
        })
        .await
    }

    /// Current counters of the pool.
    pub fn stats(&self) -> PoolStats {
        self.threads.stats()
    }

    async fn run<T, F>(&self, work: F) -> Result<T, PoolError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Memory) -> Result<T, HashFault> + Send + 'static,
    {
        match self.threads.run(|own| work(&mut own.memory)).await {
            Ok(result) => result.map_err(PoolError::Hash),
            Err(NoResult::Busy) => Err(PoolError::Busy { retry_after: self.config.retry_after }),
            Err(NoResult::Stopped) => Err(PoolError::Stopped),
            Err(NoResult::Crashed) => Err(PoolError::Crashed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        sync::mpsc,
        task::{Context, Poll, Waker},
    };

    use aws_lc_rs::rand::SystemRandom;

    use super::*;
    use crate::passwords::password::password;

    type Answer<'p, T> = Pin<Box<dyn Future<Output = Result<T, PoolError>> + 'p>>;

    fn pool(threads: usize, queue: usize) -> Pool {
        let config = PoolConfig::new(Some(threads), Some(queue), Duration::from_secs(3)).unwrap();
        Pool::start(config, Parameters::TINY, Arc::new(SystemRandom::new())).unwrap()
    }

    /// Passes the job to the pool, as the first poll of a runtime does.
    fn begin<T>(answer: &mut Answer<'_, T>) -> Poll<Result<T, PoolError>> {
        answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Occupies one thread until the sender is dropped; returns when it is occupied.
    fn occupy(pool: &Pool) -> (mpsc::Sender<()>, Answer<'_, ()>) {
        let (started, wait_started) = mpsc::channel();
        let (release, wait_release) = mpsc::channel::<()>();
        let mut answer: Answer<'_, ()> = Box::pin(pool.run(move |_| {
            started.send(()).unwrap();
            let _ = wait_release.recv();
            Ok(())
        }));
        assert!(begin(&mut answer).is_pending());
        wait_started.recv().unwrap();
        (release, answer)
    }

    #[tokio::test]
    async fn a_hash_made_by_the_pool_is_verified_by_the_pool() {
        let pool = pool(2, 8);
        let stored = pool.hash(password("secret")).await.unwrap().encode();
        let right = pool.verify(password("secret"), Some(stored.clone())).await;
        assert_eq!(right, Ok(Verdict::Right { is_outdated: false }));
        assert_eq!(pool.verify(password("Secret"), Some(stored)).await, Ok(Verdict::Wrong));
        assert_eq!(pool.verify(password("secret"), None).await, Ok(Verdict::Wrong));
        let malformed = pool.verify(password("secret"), Some("secret".into())).await;
        assert!(matches!(malformed, Err(PoolError::Hash(HashFault::Stored(_)))));
        assert_eq!(pool.stats(), PoolStats { finished: 5, ..PoolStats::default() });
    }

    #[tokio::test]
    async fn a_password_to_be_set_is_judged_by_the_pool() {
        let pool = pool(1, 8);
        let person = UserData { user_name: "countess", address: Some("ada@x.example"), words: &["byron"] };
        for (text, verdict) in [
            ("vq7Rk2mZ", Ok(())),
            ("iloveyou", Err(Refusal::Common)),
            ("the countess", Err(Refusal::Personal)),
            ("ada@x.example", Err(Refusal::Personal)),
            ("like byron did", Err(Refusal::Personal)),
        ] {
            assert_eq!(
                pool.check_rules(Rules::default(), password(text), person).await,
                Ok(verdict),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn many_callers_get_their_own_answers() {
        let pool = Arc::new(pool(4, 64));
        let tasks: Vec<_> = (0..32)
            .map(|n| {
                let pool = Arc::clone(&pool);
                tokio::spawn(async move {
                    let stored = pool.hash(password(&n.to_string())).await.unwrap().encode();
                    let other = pool.verify(password(&(n + 1).to_string()), Some(stored.clone())).await;
                    (pool.verify(password(&n.to_string()), Some(stored)).await, other)
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), (Ok(Verdict::Right { is_outdated: false }), Ok(Verdict::Wrong)));
        }
    }

    #[tokio::test]
    async fn a_full_queue_is_told_at_once() {
        let pool = pool(1, 1);
        let (release, busy) = occupy(&pool);
        let mut waiting: Answer<'_, Verdict> = Box::pin(pool.verify(password("x"), None));
        assert!(begin(&mut waiting).is_pending());
        let mut refused: Answer<'_, Verdict> = Box::pin(pool.verify(password("x"), None));
        let Poll::Ready(Err(error)) = begin(&mut refused) else { panic!("expected a refusal at once") };
        assert_eq!(error, PoolError::Busy { retry_after: Duration::from_secs(3) });
        assert_eq!(error.to_string(), "password queue full: try again in 3 s");
        assert_eq!(pool.stats(), PoolStats { queued: 1, running: 1, refused: 1, ..PoolStats::default() });
        drop(release);
        assert_eq!((busy.await, waiting.await), (Ok(()), Ok(Verdict::Wrong)));
        assert_eq!(pool.stats(), PoolStats { finished: 2, refused: 1, ..PoolStats::default() });
    }

    #[tokio::test]
    async fn nothing_is_computed_for_a_caller_that_has_gone_away() {
        let pool = pool(1, 8);
        let (release, busy) = occupy(&pool);
        let (ran, did_run) = mpsc::channel::<()>();
        let mut gone: Answer<'_, ()> = Box::pin(pool.run(move |_| {
            ran.send(()).unwrap();
            Ok(())
        }));
        assert!(begin(&mut gone).is_pending());
        drop(gone);
        drop(release);
        assert_eq!(busy.await, Ok(()));
        assert_eq!(pool.verify(password("x"), None).await, Ok(Verdict::Wrong));
        assert!(did_run.recv().is_err(), "dropped, not run");
        assert_eq!(pool.stats(), PoolStats { finished: 2, skipped: 1, ..PoolStats::default() });
    }

    #[tokio::test]
    async fn callers_that_have_gone_away_make_room_in_a_full_queue() {
        let pool = pool(1, 2);
        let (release, busy) = occupy(&pool);
        let [mut first, mut second]: [Answer<'_, Verdict>; 2] =
            [(); 2].map(|()| Box::pin(pool.verify(password("x"), None)) as _);
        assert!(begin(&mut first).is_pending() && begin(&mut second).is_pending());
        drop(first);
        let mut third: Answer<'_, Verdict> = Box::pin(pool.verify(password("x"), None));
        assert!(begin(&mut third).is_pending(), "admitted in the place of the first");
        assert_eq!(pool.stats(), PoolStats { queued: 2, running: 1, skipped: 1, ..PoolStats::default() });
        drop(release);
        assert_eq!((busy.await, second.await, third.await), (Ok(()), Ok(Verdict::Wrong), Ok(Verdict::Wrong)));
    }

    #[tokio::test]
    async fn a_panic_costs_one_answer_and_no_thread() {
        let pool = pool(1, 8);
        let crashed: Result<(), _> = pool.run(|_| panic!("a fault in a computation")).await;
        assert_eq!(crashed, Err(PoolError::Crashed));
        assert_eq!(pool.verify(password("x"), None).await, Ok(Verdict::Wrong));
        assert_eq!(pool.stats(), PoolStats { finished: 2, crashed: 1, ..PoolStats::default() });
    }

    #[test]
    fn sizes_out_of_bounds_are_refused_by_name() {
        let second = Duration::from_secs(1);
        let fault = |threads, queue, retry| PoolConfig::new(threads, queue, retry).unwrap_err().to_string();
        assert!(fault(Some(0), None, second).starts_with("0 password threads out of bounds: use 1 to 256"));
        assert!(fault(Some(MAX_THREADS + 1), None, second).starts_with("257 password threads"));
        assert!(
            fault(None, Some(0), second).starts_with("password queue of 0 out of bounds: use 1 to 65536")
        );
        assert!(fault(None, Some(MAX_QUEUE + 1), second).starts_with("password queue of 65537"));
        assert!(
            fault(None, None, Duration::from_millis(999))
                .contains("of 0.999 s out of bounds: use 1 s to 1 h")
        );
        assert!(fault(None, None, Duration::from_secs(3601)).contains("3601 s"));
        let config = PoolConfig::new(Some(3), None, second).unwrap();
        assert_eq!((config.threads(), config.queue()), (3, 96));
        assert!(PoolConfig::new(None, None, second).unwrap().threads() >= 1);
    }
}
