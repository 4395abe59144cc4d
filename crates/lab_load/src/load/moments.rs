//! Moments: what else happens while requests are under way, such as a scrape of metrics.
//!
//! Owns: the latencies of those requests that were under way at such a moment. Does not own: what
//! happens then, and the latencies of all requests ([`super::recorder`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lab_analysis::record::Distribution;

use super::Latencies;

/// Moments that another thread notes, and the requests beside them.
pub struct Moments(Mutex<Noted>);

struct Noted {
    last: Last,
    concurrent: Latencies,
}

/// The last moment.
#[derive(Clone, Copy)]
enum Last {
    None,
    /// It has not ended.
    Now,
    Ended(Instant),
}

impl Default for Moments {
    fn default() -> Self {
        Self(Mutex::new(Noted { last: Last::None, concurrent: Latencies::new() }))
    }
}

impl Moments {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment begins.
    pub(crate) fn begin(&self) {
        self.noted().last = Last::Now;
    }

    /// The moment ends.
    pub(crate) fn end(&self) {
        self.noted().last = Last::Ended(Instant::now());
    }

    /// Records a request that ends now, if a moment was not over when it was due. Latency in ns.
    pub(super) fn record(&self, due: Instant, latency: u64) {
        let mut noted = self.noted();
        let is_concurrent = match noted.last {
            Last::None => false,
            Last::Now => true,
            Last::Ended(end) => end >= due,
        };
        if is_concurrent {
            noted.concurrent.record(latency);
        }
    }

    /// The latencies of the requests beside the moments.
    pub fn concurrent(&self) -> Distribution {
        self.noted().concurrent.distribution()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn requests_that_were_under_way_are_beside() {
        let moments = Moments::default();
        let before = Instant::now();
        moments.record(before, 1_000_000);
        moments.begin();
        moments.record(before, 2_000_000);
        moments.end();
        moments.record(before, 3_000_000);
        moments.record(Instant::now() + Duration::from_millis(1), 4_000_000);
        let concurrent = moments.concurrent();
        assert_eq!(concurrent.count(), 2);
        assert!((concurrent.micros(1.0) - 3000.0).abs() < 10.0 && concurrent.micros(0.0) > 1900.0);
    }
}
