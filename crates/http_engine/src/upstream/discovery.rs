//! Discovery: keeps the endpoints of an upstream up to date.
//!
//! Owns: when the names of an upstream are looked up, what a failed lookup means, and which
//! endpoints have their health checked. Does not own: how a name is looked up
//! ([`super::resolver`]), what a check is ([`super::health_check`]), connections of requests
//! ([`super::pool`]).
//!
//! One task per name, and one per endpoint whose health is checked, runs off the request path, for
//! all workers. A failed lookup changes nothing: the addresses found last stay, because an
//! unreachable name server does not mean that the endpoints are gone.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use outage::Outage;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::endpoints::{ActiveEndpoint, EndpointList, EndpointUpdates, Health, fixed, group};
use super::health_check;
use super::resolver::{LookupError, Resolved, Resolver};
use crate::config::{Endpoint, Upstream};
use crate::endpoint_stats::{HealthStats, HealthStatsOf};

/// Shortest and longest time between two lookups of a name, whatever its time to live says. The
/// upper limit bounds how long a mistake in DNS has an effect.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));

/// Longest time until a failed lookup is repeated.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Keeps the endpoints of one upstream up to date until dropped.
pub struct Discovery {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

/// Numbers about the endpoints of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryStatus {
    /// Name of the upstream.
    pub upstream: Box<str>,
    /// Current number of endpoints.
    pub endpoints: usize,
    /// How many of them pass their health checks, or are not checked.
    pub healthy_endpoints: usize,
    /// Number of successful lookups of its names.
    pub lookups: u64,
    /// Number of failed lookups of its names.
    pub failed_lookups: u64,
}

struct Shared {
    upstream: Arc<Upstream>,
    services: DiscoveryServices,
    state: Mutex<State>,
    list: watch::Sender<Arc<EndpointList>>,
    lookups: AtomicU64,
    failed_lookups: AtomicU64,
}

#[derive(Default)]
struct State {
    /// By index of the configured endpoint.
    found: Vec<Found>,
    /// The endpoints whose health is checked.
    checks: HashMap<ActiveEndpoint, Check>,
}

/// The checks of one endpoint, until dropped.
struct Check {
    health: Health,
    task: AbortHandle,
    stats: Arc<dyn HealthStats>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.task.abort();
        self.stats.set_down(false);
    }
}

/// What discovery needs besides the configuration of an upstream.
#[derive(Clone)]
pub struct DiscoveryServices {
    /// Looks names up.
    pub resolver: Resolver,
    /// Runtime of lookups and checks.
    pub control: Handle,
    /// Counters of health checks.
    pub stats_of: HealthStatsOf,
}

/// What is known about a configured endpoint.
enum Found {
    /// Its name was not looked up yet.
    Pending,
    /// Its name was never found.
    Unknown(Box<str>),
    Endpoints(Vec<ActiveEndpoint>),
}

impl Discovery {
    /// Looks up the names of `upstream` and checks its endpoints, now and from then on. Addresses
    /// that a former discovery has found are used until then. `None`: the endpoints are fixed and
    /// not checked.
    pub fn start(
        upstream: &Arc<Upstream>,
        services: &DiscoveryServices,
        former: &[Option<Arc<Self>>],
    ) -> Option<Self> {
        if upstream.health_check.is_none() && fixed(upstream).is_some() {
            return None;
        }
        let endpoints = upstream.endpoints.iter().enumerate();
        let found = endpoints.map(|(at, endpoint)| {
            let of = |addresses| ActiveEndpoint { configured: at, addresses };
            let known = former.iter().flatten().find_map(|former| former.found(&endpoint.address));
            let known = known.map(|known| known.into_iter().map(of).collect());
            let fixed = || ActiveEndpoint::fixed(at, &endpoint.address).map(|one| vec![one]);
            fixed().or(known).map_or(Found::Pending, Found::Endpoints)
        });
        let found: Vec<_> = found.collect();
        let shared = Arc::new(Shared {
            upstream: upstream.clone(),
            services: services.clone(),
            list: watch::Sender::default(),
            state: Mutex::new(State { found, checks: HashMap::new() }),
            lookups: AtomicU64::new(0),
            failed_lookups: AtomicU64::new(0),
        });
        shared.publish(&mut shared.state.lock());
        let names = upstream.endpoints.iter().enumerate();
        let names = names.filter_map(|(at, endpoint)| Some((at, endpoint.address.name()?)));
        let tasks = names.map(|(at, (host, port))| {
            let name = Name { at, host: host.into(), port };
            let task = name.keep_up_to_date(shared.clone(), services.resolver.clone());
            services.control.spawn(task).abort_handle()
        });
        let tasks = tasks.collect();
        Some(Self { shared, tasks })
    }

    /// What was found for a configured endpoint.
    fn found(&self, endpoint: &Endpoint) -> Option<Vec<Arc<[SocketAddr]>>> {
        let at = self.shared.upstream.endpoints.iter().position(|known| known.address == *endpoint)?;
        match &self.shared.state.lock().found[at] {
            Found::Endpoints(endpoints) => Some(endpoints.iter().map(|one| one.addresses.clone()).collect()),
            Found::Pending | Found::Unknown(_) => None,
        }
    }

    /// The configuration of the upstream.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.shared.upstream
    }

    /// The current endpoints, and their changes.
    pub fn updates(&self) -> EndpointUpdates {
        self.shared.list.subscribe()
    }

    /// Numbers, for metrics.
    pub fn status(&self) -> DiscoveryStatus {
        let list = self.shared.list.borrow().clone();
        DiscoveryStatus {
            upstream: self.shared.upstream.name.clone(),
            endpoints: list.endpoints.len(),
            healthy_endpoints: list.endpoints.iter().filter(|(_, health)| *health == Health::Healthy).count(),
            lookups: self.shared.lookups.load(Relaxed),
            failed_lookups: self.shared.failed_lookups.load(Relaxed),
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.state.lock().checks.clear();
    }
}

/// A name among the configured endpoints.
struct Name {
    at: usize,
    host: Box<str>,
    port: u16,
}

impl Name {
    async fn keep_up_to_date(self, shared: Arc<Shared>, resolver: Resolver) {
        let outage = Outage::new(format!("name {} of upstream {}", self.host, shared.upstream.name))
            .with_effect("the addresses found last stay in use");
        let mut failures = 0;
        loop {
            let outcome = resolver.lookup(&self.host, self.port).await;
            outage.record(&outcome);
            failures = if outcome.is_ok() { 0 } else { failures + 1 };
            let delay = delay(shared.upstream.resolve_every, &outcome, failures);
            shared.note(self.at, outcome);
            tokio::time::sleep(delay).await;
        }
    }
}

/// Time until the next lookup of a name. `failures`: consecutive ones, including this.
fn delay(every: Option<Duration>, outcome: &Result<Resolved, LookupError>, failures: u32) -> Duration {
    let (shortest, longest) = INTERVALS;
    match outcome {
        Ok(resolved) => every.unwrap_or_else(|| resolved.ttl.clamp(shortest, longest)),
        Err(_) => {
            let retry = shortest.saturating_mul(1 << failures.saturating_sub(1).min(5));
            retry.min(MAX_RETRY_DELAY).min(every.unwrap_or(MAX_RETRY_DELAY))
        }
    }
}

impl Shared {
    /// Records the outcome of a lookup, and publishes the endpoints if they have changed.
    fn note(self: &Arc<Self>, at: usize, outcome: Result<Resolved, LookupError>) {
        let count = if outcome.is_ok() { &self.lookups } else { &self.failed_lookups };
        count.fetch_add(1, Relaxed);
        let mut state = self.state.lock();
        match (outcome, &mut state.found[at]) {
            (Ok(resolved), known) => {
                let groups = group(&resolved.addresses).into_iter();
                let endpoints = groups.map(|addresses| ActiveEndpoint { configured: at, addresses });
                *known = Found::Endpoints(endpoints.collect());
            }
            (Err(_), Found::Endpoints(_)) => {}
            (Err(error), known) => *known = Found::Unknown(error.to_string().into()),
        }
        self.publish(&mut state);
    }

    /// Records the health of an endpoint, and publishes it.
    fn note_health(self: &Arc<Self>, endpoint: &ActiveEndpoint, health: Health) {
        let mut state = self.state.lock();
        if let Some(check) = state.checks.get_mut(endpoint) {
            check.health = health;
            self.publish(&mut state);
        }
    }

    /// Publishes the endpoints if they have changed, and begins and ends the checks of their
    /// health.
    fn publish(self: &Arc<Self>, state: &mut State) {
        let State { found, checks } = state;
        let mut new = EndpointList::default();
        for found in &*found {
            match found {
                Found::Pending => new.is_pending = true,
                Found::Unknown(problem) => new.problem = Some(problem.to_string().into()),
                Found::Endpoints(endpoints) => {
                    for endpoint in endpoints {
                        new.endpoints.push((endpoint.clone(), self.health(checks, endpoint)));
                    }
                }
            }
        }
        checks.retain(|checked, _| new.endpoints.iter().any(|(endpoint, _)| endpoint == checked));
        self.list.send_if_modified(|known| {
            let changed = **known != new;
            if changed {
                let count = new.endpoints.len();
                tracing::debug!(upstream = &*self.upstream.name, endpoints = count, "endpoints changed");
                *known = Arc::new(new);
            }
            changed
        });
    }

    /// Health of an endpoint, whose checks begin if it is new.
    fn health(
        self: &Arc<Self>,
        checks: &mut HashMap<ActiveEndpoint, Check>,
        endpoint: &ActiveEndpoint,
    ) -> Health {
        let Some(check) = &self.upstream.health_check else { return Health::Healthy };
        if let Some(known) = checks.get(endpoint) {
            return known.health;
        }
        let stats = (self.services.stats_of)(&self.upstream.name, &endpoint.label(&self.upstream));
        let (shared, checked) = (Arc::downgrade(self), endpoint.clone());
        let report = move |health| {
            if let Some(shared) = shared.upgrade() {
                shared.note_health(&checked, health);
            }
        };
        let run =
            health_check::run(self.upstream.clone(), check.clone(), endpoint.clone(), stats.clone(), report);
        let task = self.services.control.spawn(run).abort_handle();
        checks.insert(endpoint.clone(), Check { health: Health::Unchecked, task, stats });
        Health::Unchecked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_live_decides_within_limits() {
        let resolved = |seconds| Ok(Resolved { addresses: Vec::new(), ttl: Duration::from_secs(seconds) });
        for (every, ttl, seconds) in
            [(None, 0, 1), (None, 30, 30), (None, 86_400, 300), (Some(60), 5, 60), (Some(60), 86_400, 60)]
        {
            let every = every.map(Duration::from_secs);
            assert_eq!(delay(every, &resolved(ttl), 0), Duration::from_secs(seconds), "{every:?} {ttl}");
        }
    }

    #[tokio::test]
    async fn a_failed_lookup_is_repeated_ever_more_slowly() {
        let nowhere = Resolver::from_files("/nonexistent".into(), "/nonexistent".into(), 1);
        let failed = nowhere.lookup("app.test", 80).await;
        assert!(failed.is_err());
        let seconds =
            |every: Option<u64>, failures| delay(every.map(Duration::from_secs), &failed, failures).as_secs();
        assert_eq!([1, 2, 3, 5, 6, 100].map(|failures| seconds(None, failures)), [1, 2, 4, 16, 30, 30]);
        assert_eq!([1, 9].map(|failures| seconds(Some(5), failures)), [1, 5]);
    }
}
