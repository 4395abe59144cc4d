//! Clock: the only module of the gateway that reads wall time, and the source of all time for
//! requests and workers.
//!
//! Owns: [`Now`], the instant that every step of a request uses, and the clocks that produce it.
//! Does not own: timers, which are tokio's.
//!
//! An instant has two clocks because neither fits all uses. Tokens use wall time (`exp`, `nbf`), so
//! their validity does too. But the wall clock may be set back, and a cache entry timed by it would
//! then live too long. So ages and cache lifetimes are monotonic.
//!
//! Flow: `SystemClock → CoarseClock (one per worker, refreshed by its ticker) → Now → lookup,
//! decide`. [`CoarseClock::monotonic`] times the start of a request and the duration of its steps.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use parking_lot::Mutex;

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Wall time, for the validity of credentials.
    pub wall: Timestamp,
    /// Monotonic time, for ages. It does not include time during which the machine was suspended.
    pub monotonic: Instant,
}

impl Now {
    /// The instant `d` later, on both clocks.
    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        Self { wall: self.wall.plus(d), monotonic: self.monotonic + d }
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// The current instant.
    fn now(&self) -> Now;

    /// The current monotonic time only. Costs half as much, for measurements.
    fn monotonic(&self) -> Instant {
        self.now().monotonic
    }
}

/// The clocks of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        #[expect(clippy::disallowed_methods, reason = "this is the clock the rest of the gateway is handed")]
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 is wrong. With the maximum time every credential is expired and
        // nothing is authorized.
        let wall = since_epoch.map_or(Timestamp::MAX, |d| Timestamp::from_millis(0).plus(d));
        Now { wall, monotonic: self.monotonic() }
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// A worker's cached reading: costs a load instead of two clock reads. Not shared between threads.
///
/// The worker's ticker calls [`CoarseClock::refresh`], so the reading is at most one tick old.
pub struct CoarseClock {
    source: Arc<dyn Clock>,
    reading: Cell<Now>,
}

impl CoarseClock {
    /// Reads `source` once and caches the reading.
    pub fn new(source: Arc<dyn Clock>) -> Self {
        let reading = Cell::new(source.now());
        Self { source, reading }
    }

    /// The reading of the last refresh.
    pub fn now(&self) -> Now {
        self.reading.get()
    }

    /// The current monotonic time, not that of the last refresh: measured durations can be shorter
    /// than a tick.
    pub fn monotonic(&self) -> Instant {
        self.source.monotonic()
    }

    /// Both clocks at a monotonic instant that the caller has read itself. Wall time is
    /// extrapolated from the last refresh, so its error is at most the change of the wall clock
    /// since then.
    pub fn at(&self, monotonic: Instant) -> Now {
        let reading = self.reading.get();
        let wall = match monotonic.checked_duration_since(reading.monotonic) {
            Some(since) => reading.wall.plus(since),
            None => reading.wall.minus(reading.monotonic - monotonic),
        };
        Now { wall, monotonic }
    }

    /// Reads the source again and returns the new reading.
    pub fn refresh(&self) -> Now {
        let now = self.source.now();
        self.reading.set(now);
        now
    }
}

/// A clock that moves only on request, for tests.
pub struct ManualClock {
    now: Mutex<Now>,
}

impl ManualClock {
    /// A clock that starts at `wall`, and at the machine's monotonic time.
    pub fn new(wall: Timestamp) -> Self {
        Self { now: Mutex::new(Now { wall, monotonic: Instant::now() }) }
    }

    /// Advances both clocks by `d`.
    pub fn advance(&self, d: Duration) {
        let mut now = self.now.lock();
        *now = now.plus(d);
    }

    /// Sets the wall clock, as an administrator or time daemon might; the monotonic clock stays.
    pub fn set_wall(&self, wall: Timestamp) {
        self.now.lock().wall = wall;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        *self.now.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_reading_moves_only_on_refresh() {
        let source = Arc::new(ManualClock::new(Timestamp::from_secs(1000)));
        let coarse = CoarseClock::new(source.clone());
        let before = coarse.now();
        source.advance(Duration::from_secs(5));
        assert_eq!(coarse.now(), before);
        assert_eq!(coarse.refresh(), before.plus(Duration::from_secs(5)));
        assert_eq!(coarse.now().wall, Timestamp::from_secs(1005));
        source.advance(Duration::from_micros(7));
        assert_eq!(coarse.monotonic(), coarse.now().monotonic + Duration::from_micros(7), "what is measured");
    }

    #[test]
    fn wall_time_is_carried_on_to_any_instant() {
        let source = Arc::new(ManualClock::new(Timestamp::from_secs(1000)));
        let coarse = CoarseClock::new(source);
        let reading = coarse.now();
        let later = reading.plus(Duration::from_millis(1500));
        assert_eq!(coarse.at(later.monotonic), later);
        assert_eq!(coarse.at(reading.monotonic), reading);
        let earlier = reading.monotonic.checked_sub(Duration::from_secs(2)).unwrap();
        assert_eq!(coarse.at(earlier).wall, Timestamp::from_secs(998));
    }

    #[test]
    fn setting_the_wall_clock_back_leaves_ages_alone() {
        let clock = ManualClock::new(Timestamp::from_secs(1000));
        let before = clock.now();
        clock.set_wall(Timestamp::from_secs(10));
        clock.advance(Duration::from_secs(1));
        let after = clock.now();
        assert_eq!(after.wall, Timestamp::from_secs(11));
        assert_eq!(after.monotonic - before.monotonic, Duration::from_secs(1));
    }

    #[test]
    fn the_system_clock_is_after_2020() {
        assert!(SystemClock.now().wall > Timestamp::from_secs(1_577_836_800));
    }
}
