//! Key store: the metadata and keys of one issuer, fetched in the background, kept while fetching
//! fails, fetched early on demand.
//!
//! Owns: when to fetch, the last valid set and how long it may be used, the last valid metadata,
//! which requests wait for a fetch. Does not own: how to fetch ([`super::key_source`]), tokens, what
//! a client of the issuer reads in the metadata.
//!
//! One task per issuer, on the control runtime, does all fetches; this alone coalesces them.
//! Workers read the set under a read lock. They may *demand* an early attempt when a token does not
//! fit the set's keys but may fit newer ones, or without a set. A demand is granted when the last
//! attempt began at least [`DEMAND_INTERVAL`] ago; otherwise the known result is the answer. A
//! failed attempt is retried with exponential backoff, without end.
//!
//! When a key is withdrawn, the cache's generation advances: facts proven with that key must be
//! proven again. An issuer that publishes an empty set has withdrawn all keys; a set without any
//! usable key is a failed attempt. Other changes of a document, such as added keys or another order
//! from another front end of the issuer, void nothing. Otherwise any client could cause flushes,
//! because a token with an unknown key makes the store fetch.
//!
//! Flow: `task: fetch → conclude → sleep or demand → fetch …`, `worker: current → renew → current`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::keyset::{KeySet, SkippedKey};
use aws_lc_rs::digest;
use http_engine::clock::{Clock, Now};
use outage::Outage;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::key_source::{DiscoveredKeys, Fetched, IssuerMetadata, KeyOrigin, SourceError};
use crate::cache::{CacheSecret, Generation};

/// Minimum time between two demanded attempts.
pub const DEMAND_INTERVAL: Duration = Duration::from_secs(10);
/// How long a request waits for an attempt.
pub const DEMAND_WAIT: Duration = Duration::from_secs(5);

/// Interval at which a file is read again.
const FILE_INTERVAL: Duration = Duration::from_secs(2);
/// The first pause after a failure; doubled by each further one.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest pause after a failure.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// When to fetch keys, and how long they may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySchedule {
    /// Pause between successful attempts.
    pub refresh: Duration,
    /// How long a set may be used after it was last confirmed.
    pub max_stale: Duration,
}

/// Process-wide dependencies of a key store.
#[derive(Clone)]
pub struct KeyStoreRuntime {
    /// Clock that determines when keys are too old.
    pub clock: Arc<dyn Clock>,
    /// Runtime for the fetches.
    pub control: Handle,
    /// Secret for the jitter of timers.
    pub secret: CacheSecret,
    /// Generation that advances when a key is withdrawn.
    pub generation: Generation,
}

/// A key set and when it was last confirmed.
pub struct KeysInUse {
    pub set: Arc<KeySet>,
    /// Number of the attempt that confirmed it.
    pub attempt: u64,
    /// When that attempt began: the document may be that old.
    confirmed: Instant,
    document: [u8; digest::SHA256_OUTPUT_LEN],
    skipped: usize,
}

/// State of an issuer's keys, for metrics and readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetStatus {
    /// The issuer's configured name.
    pub issuer: Box<str>,
    /// Whether tokens of the issuer can be verified now.
    pub usable: bool,
    /// Time since the set was last confirmed; `None`: never.
    pub age: Option<Duration>,
    /// Usable keys (an RSA key without `alg` counts once per algorithm).
    pub keys: usize,
    /// Keys of the document that are not used.
    pub skipped: usize,
    /// Attempts that returned or confirmed a set.
    pub fetched: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Error of the last attempt; `None` when it succeeded.
    pub last_error: Option<Arc<str>>,
}

/// Result of a demand.
pub enum KeyRenewal {
    /// There is a newer set than the given one.
    Newer,
    /// The set was confirmed a moment ago; another fetch would return the same.
    Fresh,
    /// The source does not answer, or not in time.
    Failed {
        /// Time to the next attempt, at least 1 s.
        retry_after: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// An attempt is due at once.
    Requested,
    Fetching,
}

struct Progress {
    phase: Phase,
    /// When the last attempt began, or was demanded.
    began: Instant,
    /// When the next attempt is due.
    next: Instant,
    completed: u64,
    failures_in_a_row: u32,
    fetched: u64,
    failed: u64,
    last_error: Option<Arc<str>>,
}

/// The keys of one issuer. Dropping it ends its task.
pub struct KeyStore {
    shared: Arc<KeyStoreState>,
    task: AbortHandle,
}

struct KeyStoreState {
    name: Box<str>,
    source: KeyOrigin,
    schedule: KeySchedule,
    runtime: KeyStoreRuntime,
    current: RwLock<Option<Arc<KeysInUse>>>,
    metadata: RwLock<Option<Arc<IssuerMetadata>>>,
    progress: Mutex<Progress>,
    demand: Notify,
    /// The number of completed attempts.
    done: watch::Sender<u64>,
    outage: Arc<Outage>,
}

impl Drop for KeyStore {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl KeyStore {
    /// Starts fetching at once. `earlier` is the store that this one replaces. If nothing changed,
    /// it is kept. If the source is the same, its set and its counters are taken over, and its pace
    /// too: frequent reloads cause no more fetches than demands may.
    pub fn start(
        name: &str,
        source: KeyOrigin,
        schedule: KeySchedule,
        means: KeyStoreRuntime,
        earlier: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let earlier = earlier.filter(|e| e.shared.source.has_same_origin(&source));
        if let Some(e) = earlier
            && *e.shared.name == *name
            && e.shared.schedule == schedule
            && e.shared.source.is_same(&source)
        {
            return e.clone();
        }
        if source.is_exposed() {
            tracing::warn!(issuer = name, "keys fetched over plain http; use https outside of development");
        }
        let now = means.clock.now().monotonic;
        let progress =
            earlier.map_or_else(|| Progress::starting(now), |e| e.shared.progress.lock().continued(now));
        let pause = progress.next.saturating_duration_since(now);
        let control = means.control.clone();
        let shared = Arc::new(KeyStoreState {
            name: name.into(),
            source,
            schedule,
            runtime: means,
            current: RwLock::new(earlier.and_then(|e| e.shared.current.read().clone())),
            metadata: RwLock::new(earlier.and_then(|e| e.shared.metadata.read().clone())),
            done: watch::Sender::new(progress.completed),
            progress: Mutex::new(progress),
            demand: Notify::new(),
            outage: earlier.map_or_else(|| outage_of(name), |e| e.shared.outage.clone()),
        });
        let task = control.spawn(run(shared.clone(), pause)).abort_handle();
        Arc::new(Self { shared, task })
    }

    /// The current set, while it may be used.
    pub fn current(&self, now: Now) -> Option<Arc<KeysInUse>> {
        let held = self.shared.current.read().clone()?;
        (now.monotonic < self.usable_until(&held)).then_some(held)
    }

    /// The last valid metadata of the issuer, refreshed with its keys; `None`: there are none yet, or
    /// the keys are not found by discovery. The same text is the same value.
    pub fn metadata(&self) -> Option<Arc<IssuerMetadata>> {
        self.shared.metadata.read().clone()
    }

    /// Error of the last attempt; `None`: it succeeded, or there was none.
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.shared.progress.lock().last_error.clone()
    }

    /// Whether it fetches from this source, and trusts the same CAs.
    pub fn has_origin(&self, origin: &KeyOrigin) -> bool {
        self.shared.source.is_same(origin)
    }

    /// Until when `held` may be used, if it is not confirmed again.
    pub(super) fn usable_until(&self, held: &KeysInUse) -> Instant {
        held.confirmed + self.shared.schedule.max_stale
    }

    /// Waits for a set newer than that of attempt `seen`, within [`DEMAND_WAIT`].
    pub async fn renew(&self, seen: u64, now: Now) -> KeyRenewal {
        let mut done = self.shared.done.subscribe();
        let completed = {
            let mut progress = self.shared.progress.lock();
            if self.is_newer_than(seen, now) {
                return KeyRenewal::Newer;
            }
            if progress.phase == Phase::Idle {
                let interval = if self.shared.source.is_file() { FILE_INTERVAL } else { DEMAND_INTERVAL };
                if now.monotonic.duration_since(progress.began) < interval {
                    return progress.last_result(now);
                }
                progress.phase = Phase::Requested;
                progress.began = now.monotonic;
                self.shared.demand.notify_one();
            }
            progress.completed
        };
        let attempt = done.wait_for(|&done| done > completed);
        // The sender lives as long as the store, which is borrowed here: only the timeout can fail
        // this.
        let in_time = tokio::time::timeout(DEMAND_WAIT, attempt).await.is_ok();
        let now = self.shared.runtime.clock.now();
        if self.is_newer_than(seen, now) {
            return KeyRenewal::Newer;
        }
        match self.shared.progress.lock().last_result(now) {
            KeyRenewal::Failed { retry_after } => KeyRenewal::Failed { retry_after },
            // This attempt is still running: a result of an earlier attempt does not answer it.
            _ if !in_time => KeyRenewal::Failed { retry_after: Duration::from_secs(1) },
            other => other,
        }
    }

    fn is_newer_than(&self, seen: u64, now: Now) -> bool {
        self.current(now).is_some_and(|held| held.attempt > seen)
    }

    /// Returns once an attempt has completed, successful or not.
    pub(super) async fn first_attempt(&self) {
        let mut done = self.shared.done.subscribe();
        // Fails only without a sender, which is borrowed here.
        let _ = done.wait_for(|&done| done > 0).await;
    }

    pub(crate) fn status(&self, now: Now) -> KeySetStatus {
        let progress = self.shared.progress.lock();
        let held = self.shared.current.read().clone();
        KeySetStatus {
            issuer: self.shared.name.clone(),
            usable: held.as_ref().is_some_and(|held| now.monotonic < self.usable_until(held)),
            age: held.as_ref().map(|held| now.monotonic.duration_since(held.confirmed)),
            keys: held.as_ref().map_or(0, |held| held.set.keys().len()),
            skipped: held.as_ref().map_or(0, |held| held.skipped),
            fetched: progress.fetched,
            failed: progress.failed,
            last_error: progress.last_error.clone(),
        }
    }
}

impl Progress {
    fn starting(now: Instant) -> Self {
        Self {
            phase: Phase::Requested,
            began: now,
            next: now,
            completed: 0,
            failures_in_a_row: 0,
            fetched: 0,
            failed: 0,
            last_error: None,
        }
    }

    /// Continues the counters of the earlier store. The next attempt is due when that store would
    /// have made one, or could have been made to by a demand. An unfinished attempt starts again.
    fn continued(&self, now: Instant) -> Self {
        let idle = self.phase == Phase::Idle;
        let next = if idle { self.next.min(self.began + DEMAND_INTERVAL).max(now) } else { now };
        Self {
            phase: if next > now { Phase::Idle } else { Phase::Requested },
            began: if next > now { self.began } else { now },
            next,
            last_error: self.last_error.clone(),
            ..*self
        }
    }

    /// The result of the last completed attempt, for a demand that is not granted.
    fn last_result(&self, now: Now) -> KeyRenewal {
        if self.completed > 0 && self.failures_in_a_row == 0 {
            return KeyRenewal::Fresh;
        }
        let wait = self.next.saturating_duration_since(now.monotonic);
        KeyRenewal::Failed { retry_after: wait.max(Duration::from_secs(1)) }
    }
}

fn outage_of(name: &str) -> Arc<Outage> {
    let effect = "using known keys for `max_stale`, then answering 503 to requests with its tokens";
    Arc::new(Outage::new(format!("key set of {name}")).with_effect(effect))
}

async fn run(shared: Arc<KeyStoreState>, mut pause: Duration) {
    loop {
        shared.wait_until_due(pause).await;
        let began = shared.begin();
        let Fetched { metadata, keys } = shared.source.fetch().await;
        // Before a waiting request continues.
        if let Some(metadata) = metadata {
            shared.publish(metadata);
        }
        pause = shared.conclude(keys, began);
    }
}

impl KeyStoreState {
    /// Returns when the pause has passed or an attempt is demanded.
    async fn wait_until_due(&self, pause: Duration) {
        let pause = tokio::time::sleep(pause);
        tokio::pin!(pause);
        while !self.is_requested() {
            tokio::select! {
                () = &mut pause => return,
                // A demand that the timer's attempt has already served leaves its wake-up behind:
                // check again.
                () = self.demand.notified() => {}
            }
        }
    }

    fn is_requested(&self) -> bool {
        self.progress.lock().phase == Phase::Requested
    }

    fn begin(&self) -> Instant {
        let began = self.runtime.clock.now().monotonic;
        let mut progress = self.progress.lock();
        progress.phase = Phase::Fetching;
        progress.began = began;
        began
    }

    /// Makes metadata the current ones, unless they are the same.
    fn publish(&self, metadata: IssuerMetadata) {
        let mut current = self.metadata.write();
        if !current.as_ref().is_some_and(|current| current.is_same(&metadata)) {
            *current = Some(Arc::new(metadata));
        }
    }

    /// Processes the result of an attempt and returns the pause before the next one.
    fn conclude(&self, discovered: Result<DiscoveredKeys, SourceError>, began: Instant) -> Duration {
        let outcome = discovered.and_then(|discovered| self.accept(&discovered, began));
        let mut progress = self.progress.lock();
        progress.completed += 1;
        let number = progress.completed;
        let pause = match &outcome {
            Ok(()) => {
                progress.fetched += 1;
                progress.failures_in_a_row = 0;
                progress.last_error = None;
                let interval = self.schedule.refresh;
                if self.source.is_file() { interval.min(FILE_INTERVAL) } else { interval }
            }
            Err(error) => {
                progress.failed += 1;
                progress.last_error = Some(error.to_string().into());
                let doublings = progress.failures_in_a_row.min(16);
                progress.failures_in_a_row += 1;
                let pause = (FIRST_RETRY * (1 << doublings)).min(LAST_RETRY);
                pause.min(self.schedule.refresh.max(FIRST_RETRY))
            }
        };
        let pause = self.jittered(pause, number);
        progress.next = self.runtime.clock.now().monotonic + pause;
        progress.phase = Phase::Idle;
        drop(progress);
        if let Err(error) = outcome {
            self.outage.failed(&error);
            tracing::debug!(issuer = &*self.name, retry_in = ?pause, "key fetch failed, retrying");
        } else {
            self.outage.succeeded();
        }
        self.done.send_replace(number);
        pause
    }

    /// Makes a document the current set, or confirms the current one.
    fn accept(&self, discovered: &DiscoveredKeys, began: Instant) -> Result<(), SourceError> {
        let mut document = [0; digest::SHA256_OUTPUT_LEN];
        document.copy_from_slice(digest::digest(&digest::SHA256, &discovered.document).as_ref());
        let attempt = self.progress.lock().completed + 1;
        let before = self.current.read().clone();
        if let Some(before) = before.as_deref().filter(|before| before.document == document) {
            let set = before.set.clone();
            let held = KeysInUse { set, attempt, confirmed: began, document, skipped: before.skipped };
            *self.current.write() = Some(Arc::new(held));
            return Ok(());
        }
        let (set, skipped) = self.source.keys_of(discovered)?;
        let before = before.as_deref();
        let withdrawn = before.is_some_and(|before| !set.is_superset_of(&before.set));
        let is_the_same =
            |before: &KeysInUse| before.set.is_superset_of(&set) && before.skipped == skipped.len();
        if withdrawn || !before.is_some_and(is_the_same) {
            self.log(&set, &skipped, &discovered.at);
        }
        let skipped = skipped.len();
        let held = KeysInUse { set: Arc::new(set), attempt, confirmed: began, document, skipped };
        *self.current.write() = Some(Arc::new(held));
        if withdrawn {
            // After the new set is in place: a fill that still used the old one began before this.
            self.runtime.generation.advance();
        }
        Ok(())
    }

    fn log(&self, set: &KeySet, skipped: &[SkippedKey], at: &str) {
        let keys = set.keys().len();
        tracing::info!(issuer = &*self.name, from = at, keys, "key set changed");
        if keys == 0 {
            tracing::warn!(
                issuer = &*self.name,
                from = at,
                "issuer withdrew all keys, its tokens are invalid"
            );
        }
        for key in skipped.iter().filter(|key| !key.is_normal()) {
            tracing::warn!(issuer = &*self.name, from = at, "key skipped: {key}");
        }
    }

    /// Shortens the pause by up to a tenth, so that many processes do not fetch at the same time.
    fn jittered(&self, pause: Duration, number: u64) -> Duration {
        let cut = self.runtime.secret.spread(&self.name, number) % 1000;
        pause.mul_f64(1.0 - cut as f64 / 10_000.0)
    }
}
