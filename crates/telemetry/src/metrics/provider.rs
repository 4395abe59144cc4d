//! Provider metrics: counts of the provider in the same process, and the state of its database.
//!
//! The provider's threads are not workers, and one of its requests costs a thousand times as much
//! as a lock. So each endpoint has one lock instead of shards. Does not own: the names of
//! endpoints, which are constants of the binary.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::encode::{Encoder, FamilyKind};
use super::histogram::{FIRST_REQUEST_BOUND, Histogram, Total};

/// Requests to the provider by endpoint, and the state of its database.
#[derive(Default)]
pub struct ProviderStats {
    endpoints: RwLock<BTreeMap<&'static str, Mutex<Endpoint>>>,
    database: RwLock<Option<DatabaseState>>,
}

/// State of the provider's database at the last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseState {
    /// Whether the database proves that it is the current primary.
    pub proven: bool,
    /// Whether the database accepts changes, as far as any were tried.
    pub writable: bool,
}

#[derive(Default)]
struct Endpoint {
    statuses: BTreeMap<u16, u64>,
    duration: Histogram,
}

impl Endpoint {
    fn count(&mut self, status: u16, nanos: u64) {
        *self.statuses.entry(status).or_default() += 1;
        self.duration.record(nanos);
    }
}

impl ProviderStats {
    /// Counts a response, with the time from the complete request head to the response head.
    pub fn count_response(&self, endpoint: &'static str, status: u16, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(known) = self.endpoints.read().get(endpoint) {
            return known.lock().count(status, nanos);
        }
        self.endpoints.write().entry(endpoint).or_default().get_mut().count(status, nanos);
    }

    /// Sets the state of the database.
    pub fn set_database_state(&self, state: DatabaseState) {
        *self.database.write() = Some(state);
    }

    pub(super) fn render(&self, e: &mut Encoder) {
        if let Some(DatabaseState { proven, writable }) = *self.database.read() {
            for (name, help, is) in [
                (
                    "postern_provider_database_proven",
                    "Whether the provider's database answers and is proven to be the current primary.",
                    proven,
                ),
                (
                    "postern_provider_database_writable",
                    "Whether the provider's database accepts changes.",
                    writable,
                ),
            ] {
                e.family(name, FamilyKind::Gauge, help).sample(&[], u64::from(is));
            }
        }
        let endpoints = self.endpoints.read();
        let mut family = e.family(
            "postern_provider_requests",
            FamilyKind::Counter,
            "Requests to the provider answered, by endpoint and status.",
        );
        for (name, endpoint) in &*endpoints {
            for (status, count) in &endpoint.lock().statuses {
                let status = status.to_string();
                family.sample(&[("endpoint", *name), ("status", &*status)], *count);
            }
        }
        let mut family = e.family(
            "postern_provider_request_duration_seconds",
            FamilyKind::Histogram,
            "Time from the complete request head to the response head, by endpoint.",
        );
        for (name, endpoint) in &*endpoints {
            let total = Total::sum_of(std::iter::once(&endpoint.lock().duration));
            total.write(&mut family, ("endpoint", name), FIRST_REQUEST_BOUND);
        }
    }
}
