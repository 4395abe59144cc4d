//! Moments: what else begins while requests are under way, such as a scrape of metrics.
//!
//! A scrape takes longer when the machine stalls, and so do the requests that are under way. To compare
//! these with all requests would show stalls as the work of scrapes. So two windows of one length are
//! compared: after the beginning of each scrape, and in the middle between two.
//!
//! Owns: the latencies of the requests that are due in either window. Does not own: what happens at a
//! moment, and the latencies of all requests ([`super::recorder`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lab_analysis::record::{SCRAPE_WINDOW, ScrapeWindows};

use super::Latencies;

/// Moments that another thread notes, and the requests in their windows.
pub struct Moments {
    /// Time between two moments.
    every: Duration,
    noted: Mutex<Noted>,
}

struct Noted {
    /// When each moment began, in order.
    begun: Vec<Instant>,
    after: Latencies,
    between: Latencies,
}

impl Moments {
    /// Moments at this interval.
    pub fn new(every: Duration) -> Self {
        let noted = Noted { begun: Vec::new(), after: Latencies::new(), between: Latencies::new() };
        Self { every, noted: Mutex::new(noted) }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment begins.
    pub(crate) fn begin(&self) {
        self.noted().begun.push(Instant::now());
    }

    /// Records an answered request by the time at which it was due. Latency in ns.
    pub(super) fn record(&self, due: Instant, latency: u64) {
        let mut noted = self.noted();
        // The request may have taken longer than the time between two moments.
        let before = noted.begun.partition_point(|begun| *begun <= due);
        let Some(since) = before.checked_sub(1).map(|last| due - noted.begun[last]) else { return };
        let middle = self.every / 2;
        if since < SCRAPE_WINDOW {
            noted.after.record(latency);
        } else if (middle..middle + SCRAPE_WINDOW).contains(&since) {
            noted.between.record(latency);
        }
    }

    /// The latencies of the requests in the windows.
    pub fn windows(&self) -> ScrapeWindows {
        let noted = self.noted();
        ScrapeWindows { after: noted.after.distribution(), between: noted.between.distribution() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_by_the_window_in_which_they_were_due() {
        let moments = Moments::new(Duration::from_secs(1));
        let start = Instant::now();
        let due = |millis| start + Duration::from_millis(millis);
        moments.record(due(0), 1_000_000);
        moments.noted().begun.extend([due(100), due(1100)]);
        for (at, latency) in [
            (50, 2),
            (100, 3),
            (109, 4),
            (110, 5),
            (599, 6),
            (600, 7),
            (609, 8),
            (610, 9),
            // It ends after the next moment.
            (105, 10),
            (1099, 11),
            (1100, 12),
            (1600, 13),
        ] {
            moments.record(due(at), latency * 1_000_000);
        }
        let ScrapeWindows { after, between } = moments.windows();
        assert_eq!((after.count(), between.count()), (4, 3));
        assert!((after.mean() - 7.25e6).abs() < 1e4, "3, 4, 10, 12: {}", after.mean());
        assert!((between.mean() - 9.333e6).abs() < 1e4, "7, 8, 13: {}", between.mean());
    }

    #[test]
    fn a_moment_begins_now() {
        let moments = Moments::new(Duration::from_secs(1));
        moments.begin();
        moments.record(Instant::now(), 1_000_000);
        assert_eq!(moments.windows().after.count(), 1);
    }
}
