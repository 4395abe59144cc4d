//! What the generator itself uses: the first thing to know before believing its figures.

use std::fs;
use std::time::Instant;

use crate::units::nanos;

/// Use of the calling thread since it started, or between two moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnUse {
    at: Instant,
    /// Nanoseconds between the two moments.
    pub(crate) wall: u64,
    /// Nanoseconds on a core; `None` where the kernel does not tell.
    pub(crate) running: Option<u64>,
    /// Nanoseconds ready to run, waiting for a core.
    pub(crate) waiting: Option<u64>,
}

impl OwnUse {
    /// Reads the kernel's account of this thread.
    pub(crate) fn read() -> Self {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().ok());
        let running = numbers.next().flatten();
        let waiting = numbers.next().flatten();
        Self { at: Instant::now(), wall: 0, running, waiting }
    }

    /// What was used from here to `later`.
    pub(crate) fn until(self, later: Self) -> Self {
        let between = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
        Self {
            at: later.at,
            wall: nanos(later.at.saturating_duration_since(self.at)),
            running: between(self.running, later.running),
            waiting: between(self.waiting, later.waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_a_core_is_counted() {
        let before = OwnUse::read();
        let mut sum = 0_u64;
        while before.at.elapsed().as_millis() < 60 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let used = before.until(OwnUse::read());
        assert!(used.wall >= 60_000_000);
        let running = used.running.expect("this kernel tells");
        let waiting = used.waiting.expect("this kernel tells");
        // On a busy machine the thread waits for a core part of the time; together they make up the wall time.
        assert!(running + waiting > 40_000_000, "{used:?}");
        assert!(running <= used.wall + 10_000_000, "{used:?}");
    }
}
