//! Upstreams: ports of Services, with the endpoints that they have at the moment.
//!
//! Owns: the settings of an upstream of the cluster, which endpoints receive requests, and telling
//! workers of changes. Does not own: where endpoints come from (`controller::backends`), connections
//! (`http_engine::upstream`).
//!
//! An upstream keeps its configuration as long as its protocol and TLS stay. So changed endpoints
//! reach the pools of the workers without a new version of the routing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use controller::plan::{
    CaSource, EndpointPlan, NameCheck, SubjectAltName, UpstreamKey, UpstreamPlan, UpstreamProtocol,
    UpstreamTls,
};
use gateway::config::Routing;
use http_engine::config::{self, Endpoint, Retries, Upstream, UpstreamEndpoint, UpstreamTimeouts};
use http_engine::tls::{self, PresentedCertificate, Protocols, SubjectName, TrustAnchors};
use http_engine::upstream::endpoints::{ActiveEndpoint, EndpointList, Health};
use tokio::sync::watch;

use crate::numbers::Numbers;

/// Limits of an upstream, as those of the file have them by default.
const TIMEOUTS: UpstreamTimeouts = UpstreamTimeouts {
    connect: Duration::from_secs(3),
    response_header: Duration::from_secs(30),
    stall: Duration::from_mins(5),
    idle: Duration::from_secs(30),
};
/// How often a request is sent again, unless its rule says so.
pub(crate) const DEFAULT_RETRIES: u32 = 1;
/// Pods come and go: a request that one of them had no time to answer goes to another one, if it may
/// be sent twice.
const RETRIES: Retries = Retries {
    attempts: DEFAULT_RETRIES + 1,
    on_connect_failure: true,
    on_reset: true,
    on_statuses: Vec::new(),
    budget_percent: 20,
    min_per_second: 10,
    per_try_timeout: None,
};
const IDLE_CONNECTIONS: usize = 128;
const MAX_REQUESTS: usize = 1024;
const UNHEALTHY_AFTER: u32 = 5;
const UNHEALTHY_FOR: Duration = Duration::from_secs(10);

/// The upstreams of the cluster.
#[derive(Default)]
pub(crate) struct Upstreams(HashMap<UpstreamKey, Entry>);

struct Entry {
    number: usize,
    plan: Arc<UpstreamPlan>,
    /// `None`: it cannot be used, so its share of the requests gets 500.
    config: Option<Arc<Upstream>>,
    endpoints: watch::Sender<Arc<EndpointList>>,
}

impl Upstreams {
    /// The number of an upstream; `None` for one that is not known, or that cannot be used.
    pub(crate) fn number(&self, key: &UpstreamKey) -> Option<usize> {
        let entry = self.0.get(key)?;
        entry.config.as_ref().map(|_| entry.number)
    }

    /// Adds an upstream or changes it. The error says why it cannot be used.
    pub(crate) fn set(
        &mut self,
        plan: &Arc<UpstreamPlan>,
        numbers: &mut Numbers,
        routing: &mut Routing,
        now: Timestamp,
    ) -> Result<(), String> {
        let (config, outcome) = match upstream(plan, now) {
            Ok(config) => (Some(Arc::new(config)), Ok(())),
            Err(problem) => (None, Err(format!("upstream {}: {problem}", name(&plan.key)))),
        };
        let entry = self.0.entry(plan.key.clone()).or_insert_with(|| Entry {
            number: numbers.take(),
            plan: plan.clone(),
            config: None,
            endpoints: watch::Sender::default(),
        });
        (entry.plan, entry.config) = (plan.clone(), config);
        entry.insert_into(routing);
        outcome
    }

    /// Sets the endpoints of an upstream.
    pub(crate) fn set_endpoints(&self, key: &UpstreamKey, endpoints: &[EndpointPlan], zone: Option<&str>) {
        let Some(entry) = self.0.get(key) else { return };
        let list = list(endpoints, zone);
        entry.endpoints.send_if_modified(|known| {
            let is_new = **known != list;
            if is_new {
                *known = Arc::new(list);
            }
            is_new
        });
    }

    /// Removes an upstream that no route leads to any more.
    pub(crate) fn remove(&mut self, key: &UpstreamKey, numbers: &mut Numbers, routing: &mut Routing) {
        if let Some(entry) = self.0.remove(key) {
            routing.remove_upstream(entry.number);
            numbers.give_back(entry.number);
        }
    }

    /// Puts all upstreams into another routing, under new numbers.
    pub(crate) fn move_to(&mut self, numbers: &mut Numbers, routing: &mut Routing) {
        for entry in self.0.values_mut() {
            entry.number = numbers.take();
            entry.insert_into(routing);
        }
    }
}

impl Entry {
    fn insert_into(&self, routing: &mut Routing) {
        match &self.config {
            Some(config) => {
                routing.insert_upstream(self.number, config.clone(), self.endpoints.subscribe());
            }
            None => routing.remove_upstream(self.number),
        }
    }
}

/// Name of an upstream in logs and metrics.
fn name(key: &UpstreamKey) -> String {
    format!("{}:{}", key.service, key.port)
}

fn upstream(plan: &UpstreamPlan, now: Timestamp) -> Result<Upstream, String> {
    let UpstreamKey { service, port, protocol, .. } = &plan.key;
    let host = format!("{}.{}.svc", service.name, service.namespace);
    let endpoint = UpstreamEndpoint { address: Endpoint::Tcp { host: host.into(), port: *port }, weight: 1 };
    let is_http2 = *protocol == UpstreamProtocol::Http2;
    Ok(Upstream {
        name: name(&plan.key).into(),
        endpoints: vec![endpoint],
        resolve_every: None,
        protocol: if is_http2 { config::UpstreamProtocol::Http2 } else { config::UpstreamProtocol::Http1 },
        tls: plan.tls.as_ref().map(|tls| client_tls(tls, identity(plan, now)?, is_http2)).transpose()?,
        timeouts: TIMEOUTS,
        idle_connections: IDLE_CONNECTIONS,
        max_requests: MAX_REQUESTS,
        unhealthy_after: UNHEALTHY_AFTER,
        unhealthy_for: UNHEALTHY_FOR,
        health_check: None,
        retries: Some(RETRIES),
    })
}

/// What the Gateway shows the endpoints.
fn identity(plan: &UpstreamPlan, now: Timestamp) -> Result<Option<PresentedCertificate>, String> {
    let Some(pair) = &plan.client_certificate else { return Ok(None) };
    let name = pair.secret.to_string();
    let read = PresentedCertificate::from_pem(&name, &pair.chain, pair.key.pem(), now);
    read.map(Some).map_err(|error| error.to_string())
}

/// A name of a BackendTLSPolicy.
fn subject_name(name: &SubjectAltName) -> Result<SubjectName, String> {
    match name {
        SubjectAltName::Uri(uri) => Ok(SubjectName::uri(uri)),
        SubjectAltName::Hostname(host) => {
            SubjectName::host(host).ok_or_else(|| format!("{:?} is not a host name", &**host))
        }
    }
}

/// TLS as a BackendTLSPolicy says, or a Route of OpenShift with the termination `reencrypt`.
fn client_tls(
    plan: &UpstreamTls,
    identity: Option<PresentedCertificate>,
    is_http2: bool,
) -> Result<config::UpstreamTls, String> {
    let trusted = match &plan.authorities {
        CaSource::System => tls::system_roots().map(|(roots, _)| roots),
        CaSource::Bundles(bundles) => TrustAnchors::from_pem("authorities of the backend", bundles),
    };
    let trusted = trusted.map_err(|error| error.to_string())?;
    let names = plan.subject_alt_names.iter().map(subject_name).collect::<Result<Vec<_>, _>>()?;
    let trusted = match plan.name_check {
        NameCheck::AnyName => trusted.for_any_name(),
        NameCheck::Required if names.is_empty() => trusted,
        NameCheck::Required => trusted.for_names(names),
    };
    let protocols = Protocols { http1: !is_http2, http2: is_http2 };
    let client = tls::client_config_with(&trusted, identity, protocols).map_err(|error| error.to_string())?;
    let server_name = plan.hostname.to_string().try_into();
    let server_name = server_name.map_err(|_| format!("{:?} is not a host name", &*plan.hostname))?;
    // Pools are found by the upstream itself, so no version distinguishes two of a name.
    Ok(config::UpstreamTls { client, server_name: Some(server_name), version: 0 })
}

/// The endpoints that receive requests: those that are ready, else those that still serve while they
/// terminate. If each of them is meant for zones (topology aware routing), only those for our zone.
fn list(endpoints: &[EndpointPlan], zone: Option<&str>) -> EndpointList {
    let ready: Vec<_> = endpoints.iter().filter(|endpoint| endpoint.ready).collect();
    let serving = || endpoints.iter().filter(|endpoint| endpoint.serving && endpoint.terminating).collect();
    let usable = if ready.is_empty() { serving() } else { ready };
    let is_near = |endpoint: &&&EndpointPlan| {
        zone.is_some_and(|zone| endpoint.for_zones.iter().any(|hint| &**hint == zone))
    };
    let has_hints = usable.iter().all(|endpoint| !endpoint.for_zones.is_empty());
    let near: Vec<_> = usable.iter().filter(is_near).copied().collect();
    let chosen = if has_hints && !near.is_empty() { near } else { usable };
    let mut addresses: Vec<_> = chosen.iter().map(|one| SocketAddr::new(one.address, one.port)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let active = |address: SocketAddr| {
        (ActiveEndpoint { configured: 0, addresses: [address].into() }, Health::Healthy)
    };
    EndpointList { endpoints: addresses.into_iter().map(active).collect(), ..EndpointList::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8, zones: &[&str]) -> EndpointPlan {
        EndpointPlan {
            address: [10, 0, 0, last].into(),
            port: 80,
            ready: true,
            serving: true,
            terminating: false,
            zone: None,
            for_zones: zones.iter().map(|zone| (*zone).into()).collect(),
        }
    }

    /// The last numbers of the addresses that are used.
    fn used(endpoints: &[EndpointPlan], zone: Option<&str>) -> Vec<u8> {
        let number = |address: &SocketAddr| match address.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        };
        list(endpoints, zone).endpoints.iter().map(|(one, _)| number(&one.addresses[0])).collect()
    }

    #[test]
    fn ready_endpoints_come_before_those_that_terminate() {
        let ready = endpoint(1, &[]);
        let terminating = EndpointPlan { ready: false, terminating: true, ..endpoint(2, &[]) };
        let starting = EndpointPlan { ready: false, serving: false, ..endpoint(3, &[]) };
        assert_eq!(used(&[ready, terminating.clone(), starting.clone()], None), [1]);
        assert_eq!(used(&[terminating, starting.clone()], None), [2]);
        assert!(used(&[starting], None).is_empty());
    }

    #[test]
    fn hints_count_when_all_have_them_and_one_is_for_our_zone() {
        let (a, b) = (endpoint(1, &["z1"]), endpoint(2, &["z2", "z3"]));
        assert_eq!(used(&[a.clone(), b.clone()], Some("z2")), [2]);
        assert_eq!(used(&[a.clone(), b.clone()], Some("z9")), [1, 2]);
        assert_eq!(used(&[a.clone(), b.clone()], None), [1, 2]);
        assert_eq!(used(&[a, b, endpoint(3, &[])], Some("z2")), [1, 2, 3]);
    }
}
