//! State that is asked for at a scrape instead of being counted here.
//!
//! Owns: the shape of such samples, the configuration's fate, and the estimate of CPU per request. Does not
//! own: the caches and key sets themselves; they hand in a closure.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use auth::time::Timestamp;
use parking_lot::Mutex;

use super::encode::Encoder;
use super::provider::ProviderStats;
use crate::cgroup::Cgroup;
use crate::{access_log, trace};

/// What a decision cache holds. What came of asking it, the workers count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSample {
    /// Entries removed for want of room.
    pub evictions: u64,
    /// Facts held.
    pub entries: u64,
    /// Approximate bytes held.
    pub bytes: u64,
    /// Bytes that may be held.
    pub limit_bytes: u64,
}

/// The state of one issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSample {
    /// Configured name.
    pub name: Arc<str>,
    /// Since the key set in use was fetched; `None` while there is none.
    pub age: Option<Duration>,
    /// Usable keys in it.
    pub keys: u64,
    /// Fetches begun.
    pub fetches: u64,
    /// Fetches that brought no usable key set.
    pub fetch_errors: u64,
}

/// What runs; shown as `postern_build_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildInfo {
    /// Semantic version.
    pub version: &'static str,
    /// Commit it was built from, or `unknown`.
    pub commit: &'static str,
}

/// Asks for what is registered, and writes it.
pub(super) type RegisteredSource = Box<dyn Fn(&mut Encoder) + Send + Sync>;
type Source<T> = Option<Box<dyn Fn() -> T + Send + Sync>>;

/// The closures and handles asked at a scrape.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) cache: Source<CacheSample>,
    pub(super) issuers: Source<Vec<IssuerSample>>,
    /// By the type of what is asked for.
    pub(super) registered: Vec<(TypeId, RegisteredSource)>,
    pub(super) access_log: Option<Arc<access_log::AccessLogStats>>,
    pub(super) trace: Option<Arc<trace::TraceStats>>,
    pub(super) provider: Option<Arc<ProviderStats>>,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) build: Option<BuildInfo>,
}

/// What became of configurations handed to the process.
#[derive(Debug, Default)]
pub struct Reloads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    applied: Mutex<Applied>,
}

/// The configuration in use and the fate of the last one offered.
#[derive(Debug, Default, Clone)]
pub(super) struct Applied {
    /// When the configuration in use was applied.
    pub(super) at: Option<Timestamp>,
    pub(super) generation: u64,
    pub(super) digest: Arc<str>,
    pub(super) last_failed: bool,
}

impl Reloads {
    /// The configuration the process begins with was applied. Not a reload.
    pub fn started(&self, now: Timestamp, generation: u64, digest: &str) {
        *self.applied.lock() =
            Applied { at: Some(now), generation, digest: digest.into(), last_failed: false };
    }

    /// A new configuration was applied. `digest` names its text and must not reveal it (a hash).
    pub fn succeeded(&self, now: Timestamp, generation: u64, digest: &str) {
        self.succeeded.fetch_add(1, Relaxed);
        self.started(now, generation, digest);
    }

    /// A new configuration was refused; the one in use stays.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
        self.applied.lock().last_failed = true;
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        (self.succeeded.load(Relaxed), self.failed.load(Relaxed))
    }

    pub(super) fn applied(&self) -> Applied {
        self.applied.lock().clone()
    }
}

/// CPU seconds per request over a recent stretch of traffic.
///
/// A stretch counts only with at least [`CpuPerRequest::REQUESTS`] requests and
/// [`CpuPerRequest::CPU_SECONDS`] of CPU, and two stretches back is forgotten: what start-up or an idle night
/// used is gone after the first seconds of traffic. Requests and CPU alone move it on, so how often it is
/// observed does not matter.
#[derive(Debug, Default)]
pub(super) struct CpuPerRequest {
    older: Option<Point>,
    newer: Option<Point>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    cpu_seconds: f64,
    requests: u64,
}

impl Point {
    /// CPU seconds per request since `self`, when enough happened since.
    fn until(self, now: Self) -> Option<f64> {
        let requests = now.requests.saturating_sub(self.requests);
        let cpu = now.cpu_seconds - self.cpu_seconds;
        (requests >= CpuPerRequest::REQUESTS && cpu >= CpuPerRequest::CPU_SECONDS)
            .then(|| cpu / requests as f64)
    }
}

impl CpuPerRequest {
    const REQUESTS: u64 = 1000;
    const CPU_SECONDS: f64 = 0.5;

    /// Takes the process's totals and gives the current estimate; `None` until there was enough traffic.
    pub(super) fn observe(&mut self, cpu_seconds: f64, requests: u64) -> Option<f64> {
        let now = Point { cpu_seconds, requests };
        let newer = *self.newer.get_or_insert(now);
        if newer.until(now).is_some() {
            self.older = Some(newer);
            self.newer = Some(now);
        }
        self.older.and_then(|older| older.until(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_per_request_needs_a_thousand_requests_and_half_a_second() {
        let mut estimate = CpuPerRequest::default();
        assert_eq!(estimate.observe(3.0, 0), None, "start-up is not traffic");
        assert_eq!(estimate.observe(3.4, 20_000), None, "too little CPU");
        assert_eq!(estimate.observe(9.0, 999), None, "too few requests");
        let found = estimate.observe(4.0, 50_000).unwrap();
        assert!((found - 20e-6).abs() < 1e-9, "{found}");
    }

    #[test]
    fn cpu_per_request_follows_recent_traffic() {
        let mut estimate = CpuPerRequest::default();
        estimate.observe(0.0, 0);
        let mut last = None;
        for step in 1..=10u32 {
            last = estimate.observe(f64::from(step), u64::from(step) * 10_000);
        }
        assert!((last.unwrap() - 100e-6).abs() < 1e-9);
        for step in 1..=3u32 {
            last = estimate.observe(10.0 + f64::from(step), 100_000 + u64::from(step) * 50_000);
        }
        assert!((last.unwrap() - 20e-6).abs() < 1e-9, "the slow beginning is forgotten: {last:?}");
    }

    #[test]
    fn a_refused_reload_keeps_what_is_applied() {
        let reloads = Reloads::default();
        reloads.started(Timestamp::from_secs(1), 1, "a");
        reloads.failed();
        assert_eq!(reloads.counts(), (0, 1));
        let applied = reloads.applied();
        assert_eq!((applied.generation, &*applied.digest, applied.last_failed), (1, "a", true));
        reloads.succeeded(Timestamp::from_secs(2), 2, "b");
        assert_eq!(reloads.counts(), (1, 1));
        assert!(!reloads.applied().last_failed);
    }
}
