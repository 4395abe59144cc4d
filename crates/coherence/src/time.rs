//! The clock that leases are measured by.
//!
//! It never goes back, counts the time a machine was suspended, and compares with nobody else's: `CLOCK_BOOTTIME` of the
//! consumer. Wall time is of no use here, since it may be set; the monotonic clock is not either, since a node that slept
//! for an hour would believe its lease was fresh.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was booted, sleep included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boot(pub u64);

impl Boot {
    /// Later by `time`; at the end of time it stays there.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Earlier by `time`; at the beginning of time it stays there.
    #[must_use]
    pub fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero when it was not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Tells the time that leases are measured by.
pub trait BootTime: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Boot;
}

/// The machine's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl BootTime for BootClock {
    fn now(&self) -> Boot {
        // Never negative. At the end of time every lease is over.
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(u64::MAX);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(u64::MAX);
        Boot(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_with_the_time_that_passes() {
        // What is measured lies within the time that it is compared with.
        let began = std::time::Instant::now();
        let before = BootClock.now();
        std::thread::sleep(Duration::from_millis(20));
        let passed = BootClock.now().since(before);
        assert!(passed >= Duration::from_millis(20) && passed <= began.elapsed(), "{passed:?}");
    }
}
