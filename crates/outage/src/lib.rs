//! Outage: tracks whether a dependency of the process is available, and logs each outage with two
//! lines.
//!
//! Owns: when a dependency counts as unavailable and as available again, and the log line for each.
//! Does not own: access to the dependency, the delay before a retry, what clients are answered
//! meanwhile.
//!
//! ```text
//! failed ─▶ first one: WARN "dependency unavailable" ─▶ further ones: counted, DEBUG
//! succeeded ─▶ every way to it is well: INFO "dependency available again", with how long and how many
//! ```
//!
//! It is a crate of its own because every crate with a dependency logs outages. The reason of a
//! failure may contain a time, a port or a count, so a different reason does not cause another
//! line. While nothing fails, a success costs one relaxed load.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Recovery period for dependencies with concurrent requests: time without failure before one
/// counts as available. Requests that were in flight at the failure may still succeed, and a partly
/// broken dependency fails and succeeds in turns.
pub const RECOVERY_PERIOD: Duration = Duration::from_secs(5);

/// One way to reach a dependency, such as one connection pool, and whether it is failing. All ways
/// share the state of the dependency.
#[derive(Debug)]
pub struct Outage {
    dependency: Arc<Dependency>,
    recovery_period: Duration,
    failing: AtomicBool,
    failure: Mutex<Option<WayFailure>>,
}

/// State that all ways to a dependency share.
#[derive(Debug)]
struct Dependency {
    name: Box<str>,
    effect: Option<&'static str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of failing ways.
    failing_ways: usize,
    /// Start of the outage: the first failure of any way. `None`: no outage.
    began: Option<Instant>,
    failures: u64,
    /// Latest first success among the ways that have recovered.
    recovered_at: Option<Instant>,
}

/// State of a failing way.
#[derive(Debug, Clone, Copy)]
struct WayFailure {
    last_failure: Instant,
    /// The first success after the last failure.
    first_success: Option<Instant>,
}

/// The end of an outage: its duration and its number of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Back {
    duration: Duration,
    failures: u64,
}

impl Outage {
    /// A dependency that counts as available until a failure. `name` is its kind and name, as in
    /// `issuer https://id.example`.
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self::from_dependency(
            Dependency { name: name.into(), effect: None, state: Mutex::default() },
            Duration::ZERO,
        )
    }

    /// Adds the consequence of an outage for clients, which the first log line contains.
    #[must_use]
    pub fn with_effect(self, effect: &'static str) -> Self {
        let name = self.dependency.name.clone();
        Self::from_dependency(
            Dependency { name, effect: Some(effect), state: Mutex::default() },
            self.recovery_period,
        )
    }

    /// Sets the recovery period: time without failure before the dependency counts as available.
    #[must_use]
    pub fn with_recovery_period(mut self, calm: Duration) -> Self {
        self.recovery_period = calm;
        self
    }

    fn from_dependency(dependency: Dependency, calm: Duration) -> Self {
        let (dependency, failing, trouble) = (Arc::new(dependency), AtomicBool::new(false), Mutex::default());
        Self { dependency, recovery_period: calm, failing, failure: trouble }
    }

    /// Another way to the same dependency, which is available again when no way fails. A failing
    /// way must be retried until it succeeds, or be dropped.
    #[must_use]
    pub fn another_way(&self) -> Self {
        let (dependency, calm) = (self.dependency.clone(), self.recovery_period);
        Self { dependency, recovery_period: calm, failing: AtomicBool::new(false), failure: Mutex::default() }
    }

    /// Records a failure. The first of an outage is logged as a warning, further ones at debug
    /// level.
    pub fn failed(&self, why: impl Display) {
        let Dependency { name, effect, .. } = &*self.dependency;
        if self.failed_at(Instant::now()) {
            tracing::warn!(dependency = &**name, %why, effect, "dependency unavailable");
        } else {
            tracing::debug!(dependency = &**name, %why, "dependency still unavailable");
        }
    }

    /// Records a success.
    pub fn succeeded(&self) {
        if self.failing.load(Relaxed)
            && let Some(Back { duration: after, failures }) = self.succeeded_at(Instant::now())
        {
            let after = Rounded(after);
            tracing::info!(
                dependency = &*self.dependency.name,
                %after,
                failures,
                "dependency available again"
            );
        }
    }

    /// Records the outcome of an attempt.
    pub fn record<T, E: Display>(&self, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.succeeded(),
            Err(why) => self.failed(why),
        }
    }

    /// Whether this way is failing: its last attempt failed, or the recovery period has not passed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    /// Whether this failure starts an outage.
    fn failed_at(&self, now: Instant) -> bool {
        let mut trouble = self.failure.lock();
        let first = trouble.replace(WayFailure { last_failure: now, first_success: None }).is_none();
        self.failing.store(true, Relaxed);
        let mut state = self.dependency.state.lock();
        state.failing_ways += usize::from(first);
        state.failures += 1;
        let news = state.began.is_none();
        state.began.get_or_insert(now);
        news
    }

    /// Returns the outage if this success ends it.
    fn succeeded_at(&self, now: Instant) -> Option<Back> {
        let mut held = self.failure.lock();
        let trouble = held.as_mut()?;
        let well = *trouble.first_success.get_or_insert(now);
        if now.duration_since(trouble.last_failure) < self.recovery_period {
            return None;
        }
        *held = None;
        self.failing.store(false, Relaxed);
        self.dependency.state.lock().recovered(Some(well))
    }
}

impl Drop for Outage {
    /// A dropped way no longer counts as failing; the remaining ways decide.
    fn drop(&mut self) {
        if self.failure.get_mut().take().is_some() {
            self.dependency.state.lock().recovered(None);
        }
    }
}

impl State {
    fn recovered(&mut self, well: Option<Instant>) -> Option<Back> {
        self.failing_ways -= 1;
        self.recovered_at = self.recovered_at.max(well);
        if self.failing_ways > 0 {
            return None;
        }
        let Self { began: since, failures, recovered_at: well, .. } = std::mem::take(self);
        let after = well?.saturating_duration_since(since?);
        Some(Back { duration: after, failures })
    }
}

/// A duration rounded for people.
struct Rounded(Duration);

impl Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis < 1000 { write!(f, "{millis}ms") } else { write!(f, "{}s", (millis + 500) / 1000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(began: Instant, seconds: u64) -> Instant {
        began + Duration::from_secs(seconds)
    }

    #[test]
    fn what_goes_and_comes_back_is_said_twice() {
        let (outage, began) = (Outage::new("database"), Instant::now());
        assert_eq!(outage.succeeded_at(began), None, "nothing was wrong");
        assert!(outage.failed_at(began));
        for second in 1..60 {
            assert!(!outage.failed_at(at(began, second)), "whatever the reason");
        }
        assert!(outage.is_failing());
        let back = Back { duration: Duration::from_mins(1), failures: 60 };
        assert_eq!(outage.succeeded_at(at(began, 60)), Some(back));
        assert_eq!(outage.succeeded_at(at(began, 61)), None);
        assert!(!outage.is_failing());
        assert!(outage.failed_at(at(began, 62)), "another outage");
        let back = Back { duration: Duration::from_secs(1), failures: 1 };
        assert_eq!(outage.succeeded_at(at(began, 63)), Some(back), "counted anew");
    }

    #[test]
    fn what_fails_and_succeeds_in_turns_is_one_outage() {
        let (outage, began) =
            (Outage::new("authorizer x").with_recovery_period(RECOVERY_PERIOD), Instant::now());
        assert!(outage.failed_at(began));
        assert_eq!(outage.succeeded_at(at(began, 1)), None, "it was under way");
        for second in 2..20 {
            assert!(!outage.failed_at(at(began, second)));
            assert_eq!(outage.succeeded_at(at(began, second)), None);
        }
        assert_eq!(outage.succeeded_at(at(began, 21)), None);
        let back = Back { duration: Duration::from_secs(19), failures: 19 };
        assert_eq!(
            outage.succeeded_at(at(began, 24)),
            Some(back),
            "well since the first success after the last failure"
        );
    }

    #[test]
    fn a_dependency_is_back_when_every_way_to_it_is() {
        let (one, began) = (Outage::new("database"), Instant::now());
        let (other, unused) = (one.another_way(), one.another_way());
        assert!(one.failed_at(began));
        assert!(!other.failed_at(at(began, 1)), "the same outage");
        assert_eq!(one.succeeded_at(at(began, 2)), None);
        assert_eq!(unused.succeeded_at(at(began, 2)), None);
        assert!(!one.failed_at(at(began, 3)));
        assert_eq!(one.succeeded_at(at(began, 4)), None);
        let back = Back { duration: Duration::from_secs(5), failures: 3 };
        assert_eq!(other.succeeded_at(at(began, 5)), Some(back));
    }

    #[test]
    fn a_way_that_is_given_up_holds_nothing_up() {
        let (one, began) = (Outage::new("database"), Instant::now());
        let other = one.another_way();
        assert!(other.failed_at(began));
        drop(other);
        assert!(one.failed_at(at(began, 1)), "the outage before is forgotten");
        let other = one.another_way();
        assert!(!other.failed_at(at(began, 2)));
        drop(other);
        let back = Back { duration: Duration::from_secs(2), failures: 2 };
        assert_eq!(one.succeeded_at(at(began, 3)), Some(back));
    }

    #[test]
    fn durations_are_round() {
        for (millis, text) in [(0, "0ms"), (999, "999ms"), (1_499, "1s"), (12_500, "13s"), (90_000, "90s")] {
            assert_eq!(Rounded(Duration::from_millis(millis)).to_string(), text);
        }
    }
}
