//! Changes: how soon changes of a cluster's objects are in force, and what scrapes of metrics take.
//!
//! Owns: the shape of both. Does not own: how they are measured, nor which of them are too slow.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Distribution;

/// Changes of objects of a Kubernetes cluster during the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// What changed, such as `routes`.
    pub of: String,
    /// Changes per second that were due.
    pub rate_per_s: f64,
    /// Changes that requests saw.
    pub made: u64,
    /// Changes that were not written: the API server refused, or too many earlier ones were still
    /// in progress.
    pub failed: u64,
    /// Changes that no request saw although the API server accepted them.
    pub never: u64,
    /// Description of the first change that failed or was never seen.
    pub example: Option<String>,
    /// How long requests looked for a change, seconds.
    pub patience_s: f64,
    /// Latency of the last write of each change, at the API server.
    pub write: Distribution,
    /// Time from the API server's acceptance of the last write until a request saw the change.
    pub in_force: Distribution,
}

impl Changes {
    /// Time that the given share of all changes did not exceed, µs; infinite where too many were
    /// never seen. `None` without any change.
    pub fn micros(&self, share: f64) -> Option<f64> {
        let seen = self.in_force.count() as f64;
        let of_seen = share * (seen + self.never as f64) / seen;
        match self.in_force.count() + self.never {
            0 => None,
            _ if of_seen > 1.0 || self.in_force.is_empty() => Some(f64::INFINITY),
            _ => Some(self.in_force.micros(of_seen)),
        }
    }
}

/// Scrapes of a component's metrics during the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scrapes {
    /// Scrapes without a complete response.
    pub failed: u64,
    /// Description of the first failure.
    pub example: Option<String>,
    /// Size of the largest response, bytes; 0 without any.
    pub largest_bytes: u64,
    /// Time until the response was complete.
    pub duration: Distribution,
    /// Latency of the answered requests in two windows of each scrape; absent where it was not recorded.
    #[serde(default)]
    pub windows: Option<ScrapeWindows>,
}

/// Length of the windows of [`ScrapeWindows`].
pub const SCRAPE_WINDOW: Duration = Duration::from_millis(10);

/// Latency of the answered requests that were due in windows of one length, [`SCRAPE_WINDOW`]. The
/// difference is what scrapes add: a stall of the machine is as likely in either.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrapeWindows {
    /// After the beginning of a scrape.
    pub after: Distribution,
    /// After the middle between the beginnings of two scrapes.
    pub between: Distribution,
}

impl ScrapeWindows {
    /// Adds the requests of another iteration.
    pub fn add(&mut self, other: &Self) {
        self.after.add(&other.after);
        self.between.add(&other.between);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_seen_took_longer_than_anything_that_was() {
        let changes = |seen: u64, never| Changes {
            of: "routes".to_owned(),
            rate_per_s: 1.0,
            made: seen,
            failed: 0,
            never,
            example: None,
            patience_s: 10.0,
            write: Distribution::of([], 3),
            in_force: Distribution::of((1..=seen).map(|ms| ms * 1_000_000), 3),
        };
        assert!((changes(99, 0).micros(1.0).unwrap() - 99_000.0).abs() < 100.0);
        assert!((changes(99, 1).micros(0.99).unwrap() - 99_000.0).abs() < 100.0);
        assert!(changes(99, 2).micros(0.99).unwrap().is_infinite());
        assert!(changes(0, 1).micros(0.5).unwrap().is_infinite());
        assert_eq!(changes(0, 0).micros(0.5), None);
    }
}
