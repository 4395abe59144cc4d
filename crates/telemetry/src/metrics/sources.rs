//! Sources: state that is sampled at a scrape rather than counted here.
//!
//! Owns: the types of such samples, the results of configuration reloads, the estimate of CPU time
//! per request. Does not own: the caches and key sets, which provide a closure.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use auth::time::Timestamp;
use parking_lot::Mutex;

use super::cluster::ClusterMetrics;
use super::encode::Encoder;
use super::provider::ProviderStats;
use crate::cgroup::Cgroup;
use crate::{access_log, trace};

/// State of a decision cache. Workers count the results of lookups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSample {
    /// Entries evicted for lack of space.
    pub evictions: u64,
    /// Number of entries.
    pub entries: u64,
    /// Approximate size of the entries in bytes.
    pub bytes: u64,
    /// Maximum size of the entries in bytes.
    pub limit_bytes: u64,
}

/// State of one issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSample {
    /// Configured name of the issuer.
    pub name: Arc<str>,
    /// Time since the current key set was fetched; `None`: there is none.
    pub age: Option<Duration>,
    /// Number of usable keys in it.
    pub keys: u64,
    /// Number of fetches started.
    pub fetches: u64,
    /// Number of fetches without a usable key set.
    pub fetch_errors: u64,
}

/// The running program, exposed as `postern_build_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildInfo {
    /// Semantic version.
    pub version: &'static str,
    /// Commit it was built from, or `unknown`.
    pub commit: &'static str,
}

/// Samples a registered source and writes its families.
pub(super) type RegisteredSource = Box<dyn Fn(&mut Encoder) + Send + Sync>;
type Source<T> = Option<Box<dyn Fn() -> T + Send + Sync>>;

/// The closures and handles that a scrape samples.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) cache: Source<CacheSample>,
    pub(super) issuers: Source<Vec<IssuerSample>>,
    /// Sources by the type of their values.
    pub(super) registered: Vec<(TypeId, RegisteredSource)>,
    pub(super) access_log: Option<Arc<access_log::AccessLogStats>>,
    pub(super) trace: Option<Arc<trace::TraceStats>>,
    pub(super) provider: Option<Arc<ProviderStats>>,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) build: Option<BuildInfo>,
    pub(super) cluster: Source<ClusterMetrics>,
}

/// Results of the configurations given to the process.
#[derive(Debug, Default)]
pub struct Reloads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    applied: Mutex<Applied>,
}

/// The current configuration, and whether the last one was refused.
#[derive(Debug, Default, Clone)]
pub(super) struct Applied {
    /// When the current configuration was applied.
    pub(super) at: Option<Timestamp>,
    pub(super) generation: u64,
    pub(super) digest: Arc<str>,
    pub(super) last_failed: bool,
}

impl Reloads {
    /// The initial configuration was applied. Does not count as a reload.
    pub fn started(&self, now: Timestamp, generation: u64, digest: &str) {
        *self.applied.lock() =
            Applied { at: Some(now), generation, digest: digest.into(), last_failed: false };
    }

    /// A new configuration was applied. `digest` identifies its text and must not reveal it (a
    /// hash).
    pub fn succeeded(&self, now: Timestamp, generation: u64, digest: &str) {
        self.succeeded.fetch_add(1, Relaxed);
        self.started(now, generation, digest);
    }

    /// A new configuration was refused; the current one stays.
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

/// CPU seconds per request over a recent interval of traffic.
///
/// An interval counts only with at least [`CpuPerRequest::REQUESTS`] requests and
/// [`CpuPerRequest::CPU_SECONDS`] of CPU time. Only the last two intervals are used, so the cost of
/// startup or of an idle night disappears after the first seconds of traffic. Intervals depend only
/// on requests and CPU time, so the frequency of observations does not matter.
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
    /// CPU seconds per request since `self`; `None`: too little traffic since.
    fn per_request_until(self, now: Self) -> Option<f64> {
        let requests = now.requests.saturating_sub(self.requests);
        let cpu = now.cpu_seconds - self.cpu_seconds;
        (requests >= CpuPerRequest::REQUESTS && cpu >= CpuPerRequest::CPU_SECONDS)
            .then(|| cpu / requests as f64)
    }
}

impl CpuPerRequest {
    const REQUESTS: u64 = 1000;
    const CPU_SECONDS: f64 = 0.5;

    /// Takes the process's totals and returns the current estimate; `None`: too little traffic so
    /// far.
    pub(super) fn observe(&mut self, cpu_seconds: f64, requests: u64) -> Option<f64> {
        let now = Point { cpu_seconds, requests };
        let newer = *self.newer.get_or_insert(now);
        if newer.per_request_until(now).is_some() {
            self.older = Some(newer);
            self.newer = Some(now);
        }
        self.older.and_then(|older| older.per_request_until(now))
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
