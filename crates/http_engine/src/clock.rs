//! The one place of the gateway that reads wall time, and the one that requests and their workers read any
//! time from.
//!
//! Owns: [`Now`], the instant every step of a request is judged by, and the clocks that make it. Does not
//! own: timers; those are tokio's.
//!
//! Two times travel together because each is wrong for the other's work. Tokens speak of wall time (`exp`,
//! `nbf`), so validity is judged by it; but the wall clock may be set back, and a cache entry timed by it
//! would then live too long. Ages and cache lifetimes are therefore monotonic.
//!
//! Flow: `SystemClock → CoarseClock (one per worker, refreshed by its ticker) → Now → lookup, decide`; and
//! [`CoarseClock::monotonic`] for when a request begins and how long its steps take.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use parking_lot::Mutex;

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Wall time: what credentials are valid by.
    pub wall: Timestamp,
    /// Never goes back; does not count the time the machine was suspended. What ages are measured by.
    pub monotonic: Instant,
}

impl Now {
    /// Both clocks `d` later.
    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        Self { wall: self.wall.plus(d), monotonic: self.monotonic + d }
    }
}

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The present instant.
    fn now(&self) -> Now;

    /// Its monotonic side alone: for what is measured, half the price.
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
        // A clock before 1970 is broken; at the end of time everything is expired and nothing is admitted.
        let wall = since_epoch.map_or(Timestamp::MAX, |d| Timestamp::from_millis(0).plus(d));
        Now { wall, monotonic: self.monotonic() }
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// A worker's cached reading: costs a load instead of two clock reads. Not shared between threads.
///
/// The worker's ticker calls [`CoarseClock::refresh`]; what is judged by it is late by at most one tick.
pub struct CoarseClock {
    source: Arc<dyn Clock>,
    reading: Cell<Now>,
}

impl CoarseClock {
    /// Reads `source` once and keeps it.
    pub fn new(source: Arc<dyn Clock>) -> Self {
        let reading = Cell::new(source.now());
        Self { source, reading }
    }

    /// The reading of the last refresh.
    pub fn now(&self) -> Now {
        self.reading.get()
    }

    /// The monotonic side as it is now, not as of the last refresh: durations of less than a tick are measured.
    pub fn monotonic(&self) -> Instant {
        self.source.monotonic()
    }

    /// Both clocks at an instant the caller has read by itself: wall time is carried on from the last
    /// refresh, and so wrong at most by what the wall clock was set since.
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

/// A clock that moves only when told to, for tests.
pub struct ManualClock {
    now: Mutex<Now>,
}

impl ManualClock {
    /// Starts at `wall`; the monotonic side starts wherever the machine's is.
    pub fn new(wall: Timestamp) -> Self {
        Self { now: Mutex::new(Now { wall, monotonic: Instant::now() }) }
    }

    /// Moves both clocks on by `d`.
    pub fn advance(&self, d: Duration) {
        let mut now = self.now.lock();
        *now = now.plus(d);
    }

    /// Sets the wall clock, as an administrator or a time daemon might; the monotonic clock stays.
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
