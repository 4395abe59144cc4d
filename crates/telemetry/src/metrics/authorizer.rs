//! Metrics of queries to authorizers.
//!
//! Owns: the shards of one authorizer, the methods that write them, and their metric families. Does
//! not own: cached answers.

use std::sync::Arc;

use http_engine::labels::Consulted;

use super::encode::{Encoder, FamilyKind};
use super::histogram::{FIRST_REQUEST_BOUND, Histogram, Total};
use super::local::{LocalCounter, Shard, shards, sum};
use super::{Metrics, WorkerMetrics};

#[derive(Debug, Default)]
struct AuthorizerShard {
    results: [LocalCounter; Consulted::COUNT],
    duration: Histogram,
}

/// Metrics of one authorizer. Kept by name, so that a reload does not reset them.
#[derive(Debug)]
pub struct AuthorizerMetrics {
    name: Arc<str>,
    shards: Box<[Shard<AuthorizerShard>]>,
}

impl AuthorizerMetrics {
    pub(super) fn new(name: &str, workers: usize) -> Self {
        Self { name: name.into(), shards: shards(workers) }
    }

    /// Counts a result for which no query was sent.
    #[inline]
    pub fn count_result(&self, worker: &WorkerMetrics, result: Consulted) {
        self.shards[worker.index()].0.results[result as usize].add(1);
    }

    /// Counts a query, with the nanoseconds until its answer or until its caller gave up.
    pub fn count_query(&self, worker: &WorkerMetrics, result: Consulted, nanos: u64) {
        self.count_result(worker, result);
        self.shards[worker.index()].0.duration.record(nanos);
    }
}

impl Metrics {
    pub(super) fn render_authorizers(&self, e: &mut Encoder) {
        let all: Vec<_> = self.authorizers.read().values().cloned().collect();
        if all.is_empty() {
            return;
        }
        let help = "Authorizer lookups by result; hit and coalesced sent no query.";
        let mut family = e.family("postern_authorizer_requests", FamilyKind::Counter, help);
        for authorizer in &all {
            for result in Consulted::ALL {
                let count = sum(&authorizer.shards, |shard| shard.results[result as usize].get());
                family.sample(&[("authorizer", &*authorizer.name), ("result", result.as_str())], count);
            }
        }
        let help = "Time from a query to an authorizer to its complete answer or to giving up.";
        let mut family = e.family("postern_authorizer_duration_seconds", FamilyKind::Histogram, help);
        for authorizer in &all {
            let total = Total::sum_of(authorizer.shards.iter().map(|shard| &shard.0.duration));
            total.write(&mut family, ("authorizer", &authorizer.name), FIRST_REQUEST_BOUND);
        }
    }
}
