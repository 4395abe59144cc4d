//! The keys of one issuer: fetched in the background, kept while fetching fails, fetched early on demand.
//!
//! Owns: when to ask, the last good set and how long it may be used, who waits for what. Does not own: how
//! to ask ([`super::key_source`]), tokens.
//!
//! One task per issuer, on the control runtime, is the only one who asks; that alone coalesces. Workers read
//! the set under a read lock, and may *demand* an early attempt (a token does not fit the set's keys, but may
//! fit newer ones, or there is no set): granted when the last attempt began at least [`DEMAND_INTERVAL`] ago, else answered
//! from what is known. A failed attempt is tried again soon, then less and less soon, forever.
//!
//! When a key is withdrawn, the cache's generation advances: facts proven with it are proven again. An issuer that publishes an empty set has
//! withdrawn them all; a set of which no key can be used is a failed attempt. Whatever else changes in a document,
//! such as keys that are added, or are in another order from another of the issuer's front ends, voids nothing: when it is asked for, anybody
//! can say, with a token of a key that nobody has.
//!
//! Flow: `task: ask → conclude → sleep or demand → ask …`, `worker: current → renew → current`.

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

use super::key_source::{DiscoveredKeys, KeyOrigin, SourceError};
use crate::cache::{CacheSecret, Generation};

/// At most one demanded attempt in this time.
pub const DEMAND_INTERVAL: Duration = Duration::from_secs(10);
/// How long a request waits for an attempt.
pub const DEMAND_WAIT: Duration = Duration::from_secs(5);

/// A file is looked at this often: that is what "when it changes" means.
const FILE_INTERVAL: Duration = Duration::from_secs(2);
/// The first pause after a failure; doubled by each further one.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest pause after a failure.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// When to ask, and how long an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySchedule {
    /// Pause between good attempts.
    pub refresh: Duration,
    /// How long a set may be used after it was last confirmed.
    pub max_stale: Duration,
}

/// What one issuer's store needs of the process.
#[derive(Clone)]
pub struct KeyStoreRuntime {
    /// Tells when keys are too old.
    pub clock: Arc<dyn Clock>,
    /// Fetches run on it.
    pub control: Handle,
    /// Spreads timers.
    pub secret: CacheSecret,
    /// Advanced when a key is withdrawn.
    pub generation: Generation,
}

/// A key set and when it was last confirmed.
pub struct KeysInUse {
    pub set: Arc<KeySet>,
    /// The attempt that confirmed it.
    pub attempt: u64,
    /// When that attempt began: the answer may be as old.
    confirmed: Instant,
    document: [u8; digest::SHA256_OUTPUT_LEN],
    skipped: usize,
}

/// How an issuer's keys stand, for metrics and readiness.
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
    /// Attempts that brought or confirmed a set.
    pub fetched: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// What the last attempt failed of; `None` when it did not.
    pub last_error: Option<Arc<str>>,
}

/// What came of a demand.
pub enum KeyRenewal {
    /// There is a set newer than the one seen.
    Newer,
    /// The set was confirmed a moment ago; asking again would bring the same.
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
    Asked,
    Asking,
}

struct Progress {
    phase: Phase,
    /// When the last attempt began, or was demanded.
    began: Instant,
    /// When the next one is due.
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
    means: KeyStoreRuntime,
    held: RwLock<Option<Arc<KeysInUse>>>,
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
    /// Starts asking at once. `earlier` is what this one replaces: when nothing about it changed it is kept,
    /// and when the keys come from the same place its set and its record are taken over, and its pace: reloads
    /// in quick succession ask no more often than demands may.
    pub fn start(
        name: &str,
        source: KeyOrigin,
        schedule: KeySchedule,
        means: KeyStoreRuntime,
        earlier: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let earlier = earlier.filter(|e| e.shared.source.same_place(&source));
        if let Some(e) = earlier
            && *e.shared.name == *name
            && e.shared.schedule == schedule
            && e.shared.source.same(&source)
        {
            return e.clone();
        }
        if source.is_exposed() {
            tracing::warn!(
                issuer = name,
                "keys are fetched over plain http; use https outside of development"
            );
        }
        let now = means.clock.now().monotonic;
        let progress =
            earlier.map_or_else(|| Progress::beginning(now), |e| e.shared.progress.lock().taken_over(now));
        let pause = progress.next.saturating_duration_since(now);
        let control = means.control.clone();
        let shared = Arc::new(KeyStoreState {
            name: name.into(),
            source,
            schedule,
            means,
            held: RwLock::new(earlier.and_then(|e| e.shared.held.read().clone())),
            done: watch::Sender::new(progress.completed),
            progress: Mutex::new(progress),
            demand: Notify::new(),
            outage: earlier.map_or_else(|| outage_of(name), |e| e.shared.outage.clone()),
        });
        let task = control.spawn(run(shared.clone(), pause)).abort_handle();
        Arc::new(Self { shared, task })
    }

    /// The set, while it may be used.
    pub fn current(&self, now: Now) -> Option<Arc<KeysInUse>> {
        let held = self.shared.held.read().clone()?;
        (now.monotonic < self.usable_until(&held)).then_some(held)
    }

    /// The end of the time `held` may be used, if it is not confirmed again.
    pub(super) fn usable_until(&self, held: &KeysInUse) -> Instant {
        held.confirmed + self.shared.schedule.max_stale
    }

    /// Sees to it that a set newer than that of attempt `seen` is there, if one can be had in time.
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
                    return progress.last(now);
                }
                progress.phase = Phase::Asked;
                progress.began = now.monotonic;
                self.shared.demand.notify_one();
            }
            progress.completed
        };
        let attempt = done.wait_for(|&done| done > completed);
        // The sender lives as long as the store, which is borrowed here: only time can fail this.
        let in_time = tokio::time::timeout(DEMAND_WAIT, attempt).await.is_ok();
        let now = self.shared.means.clock.now();
        if self.is_newer_than(seen, now) {
            return KeyRenewal::Newer;
        }
        match self.shared.progress.lock().last(now) {
            KeyRenewal::Failed { retry_after } => KeyRenewal::Failed { retry_after },
            // Still asking: whatever an earlier attempt said, this one has not answered.
            _ if !in_time => KeyRenewal::Failed { retry_after: Duration::from_secs(1) },
            other => other,
        }
    }

    fn is_newer_than(&self, seen: u64, now: Now) -> bool {
        self.current(now).is_some_and(|held| held.attempt > seen)
    }

    /// Returns once an attempt was completed, good or not.
    pub(super) async fn first_attempt(&self) {
        let mut done = self.shared.done.subscribe();
        // Fails only without a sender, and that is borrowed here.
        let _ = done.wait_for(|&done| done > 0).await;
    }

    pub(crate) fn status(&self, now: Now) -> KeySetStatus {
        let progress = self.shared.progress.lock();
        let held = self.shared.held.read().clone();
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
    fn beginning(now: Instant) -> Self {
        Self {
            phase: Phase::Asked,
            began: now,
            next: now,
            completed: 0,
            failures_in_a_row: 0,
            fetched: 0,
            failed: 0,
            last_error: None,
        }
    }

    /// The record goes on. The next attempt is due when the earlier store would have made one, or might have
    /// been made to; what that store has not finished is begun again.
    fn taken_over(&self, now: Instant) -> Self {
        let idle = self.phase == Phase::Idle;
        let next = if idle { self.next.min(self.began + DEMAND_INTERVAL).max(now) } else { now };
        Self {
            phase: if next > now { Phase::Idle } else { Phase::Asked },
            began: if next > now { self.began } else { now },
            next,
            last_error: self.last_error.clone(),
            ..*self
        }
    }

    /// What the last completed attempt said, to one who may not have another.
    fn last(&self, now: Now) -> KeyRenewal {
        if self.completed > 0 && self.failures_in_a_row == 0 {
            return KeyRenewal::Fresh;
        }
        let wait = self.next.saturating_duration_since(now.monotonic);
        KeyRenewal::Failed { retry_after: wait.max(Duration::from_secs(1)) }
    }
}

fn outage_of(name: &str) -> Arc<Outage> {
    let effect = "keys that are known stay in use for `max_stale`, then its tokens are answered 503";
    Arc::new(Outage::of(format!("key set of {name}")).with_effect(effect))
}

async fn run(shared: Arc<KeyStoreState>, mut pause: Duration) {
    loop {
        shared.due(pause).await;
        let began = shared.begin();
        let found = shared.source.ask().await;
        pause = shared.conclude(found, began);
    }
}

impl KeyStoreState {
    /// Returns when the pause is over or an attempt is demanded.
    async fn due(&self, pause: Duration) {
        let pause = tokio::time::sleep(pause);
        tokio::pin!(pause);
        while !self.is_asked() {
            tokio::select! {
                () = &mut pause => return,
                // A demand that the timer's attempt has served leaves its wake-up behind: look again.
                () = self.demand.notified() => {}
            }
        }
    }

    fn is_asked(&self) -> bool {
        self.progress.lock().phase == Phase::Asked
    }

    fn begin(&self) -> Instant {
        let began = self.means.clock.now().monotonic;
        let mut progress = self.progress.lock();
        progress.phase = Phase::Asking;
        progress.began = began;
        began
    }

    /// Takes an answer in and says how long to pause.
    fn conclude(&self, found: Result<DiscoveredKeys, SourceError>, began: Instant) -> Duration {
        let outcome = found.and_then(|found| self.accept(&found, began));
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
        progress.next = self.means.clock.now().monotonic + pause;
        progress.phase = Phase::Idle;
        drop(progress);
        if let Err(error) = outcome {
            self.outage.failed(&error);
            tracing::debug!(issuer = &*self.name, retry_in = ?pause, "keys are fetched again");
        } else {
            self.outage.succeeded();
        }
        self.done.send_replace(number);
        pause
    }

    /// Makes a document the current set, or confirms the current one.
    fn accept(&self, found: &DiscoveredKeys, began: Instant) -> Result<(), SourceError> {
        let mut document = [0; digest::SHA256_OUTPUT_LEN];
        document.copy_from_slice(digest::digest(&digest::SHA256, &found.document).as_ref());
        let attempt = self.progress.lock().completed + 1;
        let before = self.held.read().clone();
        if let Some(before) = before.as_deref().filter(|before| before.document == document) {
            let set = before.set.clone();
            let held = KeysInUse { set, attempt, confirmed: began, document, skipped: before.skipped };
            *self.held.write() = Some(Arc::new(held));
            return Ok(());
        }
        let (set, skipped) = self.source.keys_of(found)?;
        let before = before.as_deref();
        let withdrawn = before.is_some_and(|before| !set.has_all_of(&before.set));
        let is_the_same = |before: &KeysInUse| before.set.has_all_of(&set) && before.skipped == skipped.len();
        if withdrawn || !before.is_some_and(is_the_same) {
            self.log(&set, &skipped, &found.at);
        }
        let skipped = skipped.len();
        let held = KeysInUse { set: Arc::new(set), attempt, confirmed: began, document, skipped };
        *self.held.write() = Some(Arc::new(held));
        if withdrawn {
            // After the new set is in place: a fill that still used the old one began before this.
            self.means.generation.advance();
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
                "the issuer has withdrawn all its keys: no token of it is valid"
            );
        }
        for key in skipped {
            tracing::warn!(issuer = &*self.name, from = at, "a key is not used: {key}");
        }
    }

    /// Shorter by up to a tenth, so that many processes do not ask as one.
    fn jittered(&self, pause: Duration, number: u64) -> Duration {
        let cut = self.means.secret.spread(&self.name, number) % 1000;
        pause.mul_f64(1.0 - cut as f64 / 10_000.0)
    }
}
