//! Boot clock: the clock that leases are measured by.
//!
//! It never goes back, and it counts the time that the machine was suspended. It is not compared
//! with the clock of another machine: it is `CLOCK_BOOTTIME` of the consumer. Wall time is
//! unsuitable, since it may be set. The monotonic clock is too: a node that was suspended for an
//! hour would take its lease for fresh.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine booted, including the time it was suspended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boot(pub u64);

impl Boot {
    /// Later by `time`; stops at the largest value.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Earlier by `time`; stops at zero.
    #[must_use]
    pub fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero when it is later than this.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Clock that leases are measured by.
pub trait BootTime: Send + Sync + 'static {
    /// The current boot time.
    fn now(&self) -> Boot;
}

/// The boot clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl BootTime for BootClock {
    fn now(&self) -> Boot {
        // Never negative. At the largest value every lease has expired.
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
        // The measured interval lies within the one that it is compared with.
        let began = std::time::Instant::now();
        let before = BootClock.now();
        std::thread::sleep(Duration::from_millis(20));
        let passed = BootClock.now().since(before);
        assert!(passed >= Duration::from_millis(20) && passed <= began.elapsed(), "{passed:?}");
    }
}
