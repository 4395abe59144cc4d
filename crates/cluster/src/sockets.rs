//! Sockets: ports of Gateways, with their listeners and certificates.
//!
//! Owns: the listener of the gateway for each port, its TLS, and the scope of each listener of the
//! cluster with its metrics. Does not own: which listeners a Gateway has (`controller::listeners`),
//! binding (`gateway::server`).
//!
//! A socket and a listener keep their numbers as long as they are there, because open connections
//! refer to them. They keep their metrics as well.
//!
//! If two Gateways have the same address, the older one has it, also while its own listener cannot
//! be served. Which one does not depend on the order of changes, so all replicas agree.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use auth::policy::route::{HostSet, Scope, ScopeIndex};
use auth::time::Timestamp;
use controller::names::{Kind, Name, NamespacedName};
use controller::plan::{self, GatewayPlan, HostCertificate, KeyPair, ListenerId, ListenerPlan, SocketPlan};
use gateway::config::{Listener, ListenerTls, Routing, SocketId};
use http_engine::config::ListenAddress;
use http_engine::tls::policy::TlsPolicy;
use http_engine::tls::{self, BuiltServer, ClientAuthorities, PresentedCertificate, Protocols};
use telemetry::metrics::{GatewayListenerMetrics, GatewayListenerName, ListenerMetrics};

use crate::numbers::Numbers;

/// Finds the address on which a port of a Gateway is served; `None`: it has none yet.
pub(crate) type FindAddress<'f> = dyn Fn(&plan::SocketId) -> Option<ListenAddress> + 'f;

/// Why a listener is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", self.name())]
pub struct SocketFault {
    /// The port of the Gateway.
    pub socket: plan::SocketId,
    /// The listener; `None`: all of the port.
    pub listener: Option<ListenerId>,
    /// The host of an Ingress or Route whose certificate cannot be presented, if the listeners are
    /// served.
    pub host: Option<Name>,
    /// What is wrong with it.
    pub problem: String,
}

impl SocketFault {
    /// The name in messages: namespace, name and section of a listener, or namespace, name and port of
    /// a Gateway.
    pub fn name(&self) -> String {
        match (&self.listener, &self.host) {
            (Some(listener), _) => format!("{}/{}", listener.parent.at, listener.section),
            (None, Some(host)) => format!("{} host {host}", socket_name(&self.socket)),
            (None, None) => socket_name(&self.socket),
        }
    }
}

/// The sockets of all Gateways.
pub(crate) struct Sockets {
    gateways: BTreeMap<NamespacedName, Gateway>,
    by_id: HashMap<plan::SocketId, Socket>,
    /// Sockets that are not served because an older Gateway has their address, with that Gateway.
    displaced: BTreeMap<plan::SocketId, NamespacedName>,
    socket_numbers: Numbers,
    scope_numbers: Numbers,
}

struct Gateway {
    plan: Arc<GatewayPlan>,
    /// Those of the connections to all its sockets.
    metrics: Arc<ListenerMetrics>,
}

struct Socket {
    id: SocketId,
    scopes: HashMap<ListenerId, (Scope, Arc<GatewayListenerMetrics>)>,
    address: Option<ListenAddress>,
    listener: Option<Arc<Listener>>,
}

impl Default for Sockets {
    fn default() -> Self {
        Self {
            gateways: BTreeMap::new(),
            by_id: HashMap::new(),
            displaced: BTreeMap::new(),
            socket_numbers: Numbers::from(0),
            // The scope of the file has the number 0.
            scope_numbers: Numbers::from(1),
        }
    }
}

/// What listeners of Gateways are like.
pub(crate) struct Template<'t> {
    /// Settings of a listener, whose name, address and TLS are replaced.
    pub(crate) listener: &'t Listener,
    pub(crate) tls: &'t TlsPolicy,
    pub(crate) address: &'t FindAddress<'t>,
    pub(crate) now: Timestamp,
}

impl Sockets {
    /// The scope of a listener on a socket.
    pub(crate) fn scope(&self, socket: &plan::SocketId, listener: &ListenerId) -> Option<Scope> {
        self.by_id.get(socket)?.scopes.get(listener).map(|(scope, _)| *scope)
    }

    /// The listener of a socket that takes a host, with its scope.
    pub(crate) fn find(
        &self,
        socket: &plan::SocketId,
        host: &str,
        routing: &Routing,
    ) -> Option<(&ListenerId, Scope)> {
        let Socket { id, scopes, .. } = self.by_id.get(socket)?;
        let scope = routing.scope_of(Some(*id), host)?;
        scopes.iter().find(|(_, (own, _))| *own == scope).map(|(listener, (own, _))| (listener, *own))
    }

    /// The listeners of all sockets. Each has an address of its own.
    pub(crate) fn listeners(&self) -> Vec<Arc<Listener>> {
        let served = self.by_id.iter().filter(|(id, _)| !self.displaced.contains_key(*id));
        served.filter_map(|(_, socket)| socket.listener.clone()).collect()
    }

    /// Decides again which Gateway has an address. `is_taken_over`: Gateways that were set since the
    /// last time. Answers the others that were taken over again, because they lost an address or got
    /// one back.
    pub(crate) fn settle_addresses(
        &mut self,
        is_taken_over: impl Fn(&NamespacedName) -> bool,
        template: &Template<'_>,
        routing: &mut Routing,
        faults: &mut Vec<SocketFault>,
    ) -> BTreeSet<NamespacedName> {
        let displaced = self.find_displaced();
        let differs = |a: &BTreeMap<plan::SocketId, NamespacedName>, b: &BTreeMap<_, _>| {
            let differing = a.iter().filter(|(socket, by)| b.get(*socket) != Some(*by));
            differing.map(|(socket, _)| socket.gateway.clone()).collect::<Vec<_>>()
        };
        let mut again: BTreeSet<_> = differs(&displaced, &self.displaced).into_iter().collect();
        again.extend(differs(&self.displaced, &displaced));
        again.retain(|gateway| !is_taken_over(gateway) && self.gateways.contains_key(gateway));
        for gateway in &again {
            let plan = self.gateways[gateway].plan.clone();
            faults.extend(self.set(&plan, template, routing));
        }
        self.displaced = displaced;
        for (socket, by) in &self.displaced {
            if is_taken_over(&socket.gateway) || again.contains(&socket.gateway) {
                let problem = format!(
                    "the older Gateway {by} has port {} too, and both have one address; use another port",
                    socket.port
                );
                faults.push(SocketFault { socket: socket.clone(), listener: None, host: None, problem });
            }
        }
        again
    }

    /// Sockets whose address an older Gateway has.
    fn find_displaced(&self) -> BTreeMap<plan::SocketId, NamespacedName> {
        let mut by_age: Vec<_> = self.gateways.values().map(|gateway| &*gateway.plan).collect();
        by_age.sort_by(|a, b| (a.created, &a.gateway).cmp(&(b.created, &b.gateway)));
        let mut owners: HashMap<&ListenAddress, &NamespacedName> = HashMap::new();
        let mut displaced = BTreeMap::new();
        for socket in by_age.into_iter().flat_map(|plan| &plan.sockets) {
            let address = self.by_id.get(&socket.id).and_then(|known| known.address.as_ref());
            let Some(address) = address else { continue };
            let owner = *owners.entry(address).or_insert(&socket.id.gateway);
            if *owner != socket.id.gateway {
                displaced.insert(socket.id.clone(), owner.clone());
            }
        }
        displaced
    }

    /// Adds a Gateway or changes it. Answers the listeners that are not served.
    pub(crate) fn set(
        &mut self,
        gateway: &Arc<GatewayPlan>,
        template: &Template<'_>,
        routing: &mut Routing,
    ) -> Vec<SocketFault> {
        let former = self.gateways.remove(&gateway.gateway);
        let new_metrics = || Arc::new(ListenerMetrics::new(&gateway.gateway.to_string()));
        let metrics = former.as_ref().map_or_else(new_metrics, |former| former.metrics.clone());
        let gone: Vec<_> = former
            .iter()
            .flat_map(|former| &former.plan.sockets)
            .filter(|former| !gateway.sockets.iter().any(|socket| socket.id == former.id))
            .map(|former| former.id.clone())
            .collect();
        for socket in gone {
            self.remove_socket(&socket, routing);
        }
        let mut faults = Vec::new();
        for plan in &gateway.sockets {
            self.set_socket((plan, &metrics), template, routing, &mut faults);
        }
        self.gateways.insert(gateway.gateway.clone(), Gateway { plan: gateway.clone(), metrics });
        faults
    }

    /// Removes a Gateway.
    pub(crate) fn remove(&mut self, gateway: &NamespacedName, routing: &mut Routing) {
        let Some(former) = self.gateways.remove(gateway) else { return };
        for socket in &former.plan.sockets {
            self.remove_socket(&socket.id, routing);
        }
    }

    /// Puts all sockets into another routing. Answers the listeners that are not served.
    pub(crate) fn move_to(&mut self, template: &Template<'_>, routing: &mut Routing) -> Vec<SocketFault> {
        let mut faults = Vec::new();
        let gateways = std::mem::take(&mut self.gateways);
        for Gateway { plan, metrics } in gateways.values() {
            for socket in &plan.sockets {
                self.set_socket((socket, metrics), template, routing, &mut faults);
            }
        }
        self.gateways = gateways;
        faults
    }

    fn set_socket(
        &mut self,
        (plan, metrics): (&SocketPlan, &Arc<ListenerMetrics>),
        template: &Template<'_>,
        routing: &mut Routing,
        faults: &mut Vec<SocketFault>,
    ) {
        let former = self.by_id.remove(&plan.id);
        let (id, mut scopes) = match former {
            Some(former) => (former.id, former.scopes),
            None => {
                let number = self.socket_numbers.take();
                (SocketId(u32::try_from(number).unwrap_or(u32::MAX)), HashMap::new())
            }
        };
        let is_kept = |listener: &ListenerId| plan.listeners.iter().any(|kept| kept.id == *listener);
        for (_, (scope, _)) in scopes.extract_if(|listener, _| !is_kept(listener)) {
            self.scope_numbers.give_back(scope.number() as usize);
            routing.remove_scope(scope);
        }
        for listener in &plan.listeners {
            let (scope, metrics) = scopes.entry(listener.id.clone()).or_insert_with(|| {
                let number = u32::try_from(self.scope_numbers.take()).unwrap_or(u32::MAX);
                let name = listener_name(&plan.id.gateway, &listener.id);
                (Scope::new(number), Arc::new(GatewayListenerMetrics::new(name)))
            });
            routing.insert_scope(*scope, metrics.clone());
        }
        let hosts = plan.listeners.iter().filter_map(|listener| {
            let patterns: Vec<&str> = listener.hostname.iter().map(|host| &**host).collect();
            Some((HostSet::new(&patterns).ok()?, scopes[&listener.id].0))
        });
        let reserved = plan.reserved_hosts.iter();
        let reserved = reserved.filter_map(|host| Some((HostSet::new(&[&**host]).ok()?, Scope::RESERVED)));
        routing.set_socket(id, Arc::new(ScopeIndex::new(hosts.chain(reserved))));
        let address = (template.address)(&plan.id);
        let listener =
            address.as_ref().and_then(|address| listener((id, metrics), plan, (address, template), faults));
        self.by_id.insert(plan.id.clone(), Socket { id, scopes, address, listener });
    }

    fn remove_socket(&mut self, socket: &plan::SocketId, routing: &mut Routing) {
        let Some(Socket { id, scopes, .. }) = self.by_id.remove(socket) else { return };
        routing.remove_socket(id);
        self.socket_numbers.give_back(id.0 as usize);
        for (scope, _) in scopes.into_values() {
            routing.remove_scope(scope);
            self.scope_numbers.give_back(scope.number() as usize);
        }
    }
}

/// Name of a socket in messages: namespace, name and port of its Gateway.
fn socket_name(socket: &plan::SocketId) -> String {
    format!("{}:{}", socket.gateway, socket.port)
}

/// Names of a listener in metrics.
fn listener_name(gateway: &NamespacedName, listener: &ListenerId) -> GatewayListenerName {
    let is_of_set = listener.parent.kind == Kind::ListenerSet;
    let listener_set = if is_of_set { listener.parent.at.to_string() } else { String::new() };
    GatewayListenerName {
        gateway: gateway.to_string().into(),
        listener_set: listener_set.into(),
        listener: (&*listener.section).into(),
    }
}

/// The listener of the gateway for a socket; `None`: it has no certificate.
fn listener(
    (id, metrics): (SocketId, &Arc<ListenerMetrics>),
    plan: &SocketPlan,
    (address, template): (&ListenAddress, &Template<'_>),
    faults: &mut Vec<SocketFault>,
) -> Option<Arc<Listener>> {
    let name = socket_name(&plan.id);
    let tls = match plan.protocol {
        plan::SocketProtocol::Http => None,
        plan::SocketProtocol::Https => Some(listener_tls(&name, plan, template, faults)?),
    };
    Some(Arc::new(Listener {
        name: name.into(),
        socket: Some(id),
        metrics: Some(metrics.clone()),
        address: address.clone(),
        tls,
        ..template.listener.clone()
    }))
}

fn listener_tls(
    name: &str,
    plan: &SocketPlan,
    template: &Template<'_>,
    faults: &mut Vec<SocketFault>,
) -> Option<ListenerTls> {
    let mut certified = Vec::new();
    let fault = |problem: &tls::TlsError| SocketFault {
        socket: plan.id.clone(),
        listener: None,
        host: None,
        problem: problem.to_string(),
    };
    let mut read = |(listener, host): (Option<&ListenerId>, Option<&Name>), pair: &KeyPair| {
        let secret = pair.secret.to_string();
        let certificate = PresentedCertificate::from_pem(&secret, &pair.chain, pair.key.pem(), template.now);
        let note = |error: &tls::TlsError| {
            faults.push(SocketFault { listener: listener.cloned(), host: host.cloned(), ..fault(error) });
        };
        certificate.inspect_err(note).ok()
    };
    for listener in &plan.listeners {
        let Some(tls) = &listener.tls else { continue };
        let at = (Some(&listener.id), None);
        let certificates: Vec<_> = tls.certificates.iter().filter_map(|pair| read(at, pair)).collect();
        if !certificates.is_empty() {
            certified.push((listener.hostname.as_deref().map(Box::from), certificates));
        }
    }
    if certified.is_empty() {
        return None;
    }
    for HostCertificate { host, pair } in &plan.certificates {
        certified.extend(
            read((None, Some(host)), pair).map(|certificate| (Some(Box::from(&**host)), vec![certificate])),
        );
    }
    let validation = plan.listeners.iter().find_map(client_validation);
    let authorities = validation.map(|validation| ClientAuthorities {
        name,
        pem: &validation.authorities,
        admits_others: validation.allows_invalid,
    });
    let protocols = Protocols { http1: template.listener.http1, http2: template.listener.http2 };
    match tls::listeners_config(certified, authorities, template.tls, protocols) {
        Ok(BuiltServer { config, certificates, clients, .. }) => {
            Some(ListenerTls { server: config, certificates, client_authorities: clients })
        }
        Err(error) => {
            faults.push(fault(&error));
            None
        }
    }
}

/// The validation of clients is the same for all listeners of a port.
fn client_validation(listener: &ListenerPlan) -> Option<&plan::ClientValidation> {
    listener.tls.as_ref()?.client_validation.as_ref()
}
