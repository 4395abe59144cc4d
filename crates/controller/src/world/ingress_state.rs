//! What is derived from one Ingress, or one Route of OpenShift.
//!
//! Owns: joining what it asks for, the listeners that serve it, and policies into plans.
//! Does not own: comparing them with the former ones ([`super::settle`]).
//! Flow: `ingress + attach + policies → RouteState`.

use std::sync::Arc;

use super::route_state::{RouteState, upstreams};
use crate::attach::{ANY_HOST, Gateways, HostClaims, HostTable};
use crate::conditions::{IngressOutcome, PolicyReach};
use crate::fault::Fault;
use crate::ingress::class::{self, Class};
use crate::ingress::{self, Demand, HostDemand, HostTls, Place, PlainHttp};
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::core::Labels;
use crate::objects::{Metadata, Seconds};
use crate::plan::{
    Attachment, ClientCertificate, FilterPlan, KeyPair, MatchPlan, PathMatch, PlanId, PolicyOutcome,
    RedirectFilter, RoutePlan, RuleAction, SocketProtocol,
};
use crate::policies;
use crate::settings::Settings;

/// What is derived from an object before it is known whose its hosts are.
pub(super) struct IngressCandidate {
    demand: Demand,
    /// The Gateway that serves it, if it exists.
    gateway: Option<NamespacedName>,
    /// What that Gateway shows upstreams.
    client_certificate: ClientCertificate,
    /// For each host of the demand.
    places: Vec<Result<Vec<Place>, Fault>>,
    /// The path of a Route.
    path: Option<Name>,
}

impl IngressCandidate {
    /// `None` if the object is not ours.
    pub(super) fn derive(
        known: &Known,
        settings: &Settings,
        gateways: &impl Gateways,
        key: &ObjectKey,
    ) -> Option<Self> {
        let gateway = settings.ingress_gateway.as_ref();
        let gateway = gateway.and_then(|at| Some((at, gateways.state(at)?)));
        let (mut demand, path) = match key.kind {
            Kind::Ingress => {
                let ingress = known.ingresses.get(&key.at)?;
                let demand = match class::of_ingress(known, settings, ingress) {
                    Class::Foreign => return None,
                    Class::Faulty(fault) => Demand { refused: Some(fault), ..Demand::default() },
                    Class::Ours => ingress::ingress(known, settings, ingress),
                };
                (demand, None)
            }
            _ => {
                let route = known.openshift_routes.get(&key.at)?;
                let is_ours = ingress::is_selected(settings, route)
                    && gateway.is_some_and(|gateway| ingress::allows(known, gateway, &key.at.namespace));
                if !is_ours {
                    return None;
                }
                (ingress::route(known, settings, route), Some(route.spec.path.clone()))
            }
        };
        let Some(gateway) = gateway else {
            let fault = demand.refused.take().unwrap_or_else(|| no_gateway(settings));
            demand = Demand { refused: Some(fault), ..Demand::default() };
            let (places, client_certificate) = (Vec::new(), ClientCertificate::None);
            return Some(Self { demand, gateway: None, client_certificate, places, path });
        };
        let places = demand
            .hosts
            .iter()
            .map(|host| ingress::places(known, gateway, &key.at.namespace, host.host.as_ref()));
        let places = places.collect();
        let client_certificate = gateway.1.client_certificate.clone();
        Some(Self { demand, gateway: Some(gateway.0.clone()), client_certificate, places, path })
    }

    /// The hosts that it claims. A refused object claims none.
    pub(super) fn claims(&self) -> HostClaims {
        let hosts = self.demand.hosts.iter().zip(&self.places).filter(|(_, places)| places.is_ok());
        let hosts = hosts.map(|(host, _)| host.host.clone().unwrap_or_else(|| Name::from(ANY_HOST)));
        let hosts = hosts.filter(|_| self.demand.refused.is_none()).collect();
        HostClaims::of_ingress(hosts, self.path.clone())
    }
}

fn no_gateway(settings: &Settings) -> Fault {
    let message = match &settings.ingress_gateway {
        Some(gateway) => format!(
            "Gateway {gateway}, which serves Ingresses, does not exist or is not of a class of {}",
            settings.controller_name
        ),
        None => {
            "no Gateway serves Ingresses: set gateway_api.ingress_gateway in the configuration".to_owned()
        }
    };
    Fault::new("GatewayNotFound", message)
}

/// Derives the state of an object, when the hosts of all objects are known.
pub(super) fn derive(
    known: &Known,
    table: &HostTable,
    (key, meta): (&ObjectKey, &Metadata),
    candidate: IngressCandidate,
) -> RouteState {
    let IngressCandidate { demand, gateway, client_certificate, places, path: _ } = candidate;
    let Demand { refused, mut faults, hosts } = demand;
    let mut state = RouteState::default();
    let mut refused = refused;
    let mut is_served = false;
    let mut reach = PolicyReach::All;
    if let (Some(gateway), None) = (&gateway, &refused) {
        let (list, rules) = (Vec::new(), 0);
        let mut plans = Plans { known, gateway, client_certificate, key, meta, list, rules };
        for (host, places) in hosts.iter().zip(places) {
            match places.and_then(|places| is_free(table, key, host).map(|()| places)) {
                Ok(places) => {
                    is_served = true;
                    faults.extend(plans.serve(host, &places));
                    state.certificates.extend(certificates(host, &places, &mut faults));
                }
                Err(fault) => {
                    refused = refused.or(Some(fault.clone()));
                    faults.push(fault);
                }
            }
        }
        reach = plans.reach();
        state.upstreams = upstreams(&plans.list).into_iter().collect();
        state.plans = plans.list;
        let services = services(known, key).into_iter().filter(|_| is_served);
        state.uses = services.map(|service| (service, gateway.clone())).collect();
    }
    // With one host served, what is wrong with another one does not refuse the object.
    refused = refused.filter(|_| !is_served);
    faults.retain(|fault| refused.as_ref() != Some(fault));
    let reach = if is_served { reach } else { PolicyReach::NotServed };
    state.ingress = Some(IngressOutcome { is_served, refused, faults, reach });
    state
}

/// The Services that an object names. Sorted.
fn services(known: &Known, key: &ObjectKey) -> Vec<NamespacedName> {
    let (at, namespace) = (&key.at, &key.at.namespace);
    let services = match key.kind {
        Kind::Ingress => known.ingresses.get(at).map(|ingress| ingress.spec.services(namespace)),
        _ => known.openshift_routes.get(at).map(|route| route.spec.services(namespace)),
    };
    services.unwrap_or_default()
}

/// Whether a host is not somebody else's.
fn is_free(table: &HostTable, key: &ObjectKey, demand: &HostDemand) -> Result<(), Fault> {
    let host = demand.host.as_ref().map_or(ANY_HOST, Name::as_str);
    if let Some(owner) = table.owner(key, host) {
        let what = if host == ANY_HOST { "requests for any host".to_owned() } else { format!("host {host}") };
        let message = format!("{owner} already has {what} and is older: use another host");
        return Err(Fault::new("HostAlreadyClaimed", message));
    }
    match table.duplicate(key).filter(|_| key.kind == Kind::OpenShiftRoute) {
        Some(older) => {
            let message =
                format!("{older} already has this path of host {host} and is older: use another path");
            Err(Fault::new("HostAlreadyClaimed", message))
        }
        None => Ok(()),
    }
}

/// The certificate of a host, with the ports on which it is presented.
fn certificates(host: &HostDemand, places: &[Place], faults: &mut Vec<Fault>) -> Vec<(u16, Name, KeyPair)> {
    let (HostTls::Own(pair), Some(name)) = (&host.tls, &host.host) else { return Vec::new() };
    let secure = || places.iter().filter(|place| place.protocol == SocketProtocol::Https);
    let unused = secure().find(|place| !place.takes_certificate && place.hosts.is_some());
    if let Some(place) = unused {
        let message = format!(
            "the certificate of {} is not used for {name} on port {}: a listener of the Gateway has a \
             certificate for that hostname",
            pair.secret, place.socket.port
        );
        faults.push(Fault::new("CertificateNotUsed", message));
    }
    let taking = secure().filter(|place| place.takes_certificate);
    taking.map(|place| (place.socket.port, name.clone(), pair.clone())).collect()
}

/// The plans of one object.
struct Plans<'a> {
    known: &'a Known,
    gateway: &'a NamespacedName,
    client_certificate: ClientCertificate,
    key: &'a ObjectKey,
    meta: &'a Metadata,
    list: Vec<Arc<RoutePlan>>,
    rules: u16,
}

/// What happens to the requests of a plan.
struct Response {
    path: PathMatch,
    action: RuleAction,
    filters: Arc<[FilterPlan]>,
    created: Seconds,
}

impl Plans<'_> {
    /// Adds the plans of a host. Returns what is wrong with it.
    fn serve(&mut self, host: &HostDemand, places: &[Place]) -> Option<Fault> {
        let with = |protocol| places.iter().filter(move |place| place.protocol == protocol);
        let secure_port = with(SocketProtocol::Https).map(|place| place.socket.port).min();
        let is_forwarded = |place: &Place| match place.protocol {
            SocketProtocol::Http => host.plain == PlainHttp::Serve,
            SocketProtocol::Https => host.tls != HostTls::Refuse,
        };
        let created = self.meta.created;
        for rule in &host.rules {
            let forwarded = places.iter().filter(|place| is_forwarded(place));
            let (path, action) = (rule.path.clone(), rule.action.clone());
            let response = Response { path, action, filters: Arc::default(), created };
            let attachments = forwarded.map(|place| self.attachment(place)).collect();
            self.add(attachments, response);
            if let PlainHttp::Redirect(status) = host.plain {
                let filters = Arc::from([to_https(status, secure_port)]);
                let response =
                    Response { path: rule.path.clone(), action: RuleAction::Redirect, filters, created };
                self.add(with(SocketProtocol::Http).map(exempt).collect(), response);
            }
        }
        // Paths that no rule matches are not left to a broader host of others.
        if host.host.is_some() {
            let (action, filters) = (RuleAction::NotFound, Arc::default());
            let response = Response { path: PathMatch::default(), action, filters, created: Seconds::MAX };
            self.add(places.iter().map(exempt).collect(), response);
        }
        let needs_https = host.plain != PlainHttp::Serve && secure_port.is_none();
        needs_https.then(|| {
            let name = host.host.as_ref().map_or("any host", Name::as_str);
            let message = format!(
                "no HTTPS listener of Gateway {} serves {name}, which asks for TLS: add one",
                self.gateway
            );
            Fault::new("NoHttpsListener", message)
        })
    }

    fn add(&mut self, attachments: Vec<Attachment>, response: Response) {
        let (false, Some(next)) = (attachments.is_empty(), self.rules.checked_add(1)) else { return };
        let Response { path, action, filters, created } = response;
        let labels: Option<Arc<Labels>> = self.meta.labels.clone();
        self.list.push(Arc::new(RoutePlan {
            id: PlanId { route: self.key.clone(), rule: self.rules, matched: 0 },
            rule_name: None,
            created,
            labels,
            attachments: Arc::from(attachments),
            matches: MatchPlan { path, ..MatchPlan::default() },
            action,
            filters,
            request_timeout: None,
            backend_timeout: None,
            retry: None,
        }));
        self.rules = next;
    }

    /// A listener that serves a host, with the policy that applies there.
    fn attachment(&self, place: &Place) -> Attachment {
        let policy = policies::resolve(self.known, self.gateway, &place.listener, (self.key, None));
        Attachment { policy, client_certificate: self.client_certificate.clone(), ..exempt(place) }
    }

    /// Whether policies apply wherever requests are forwarded.
    fn reach(&self) -> PolicyReach {
        let mut reach = PolicyReach::All;
        for attachment in self.list.iter().flat_map(|plan| plan.attachments.iter()) {
            match &attachment.policy {
                PolicyOutcome::Invalid(policy) => return PolicyReach::Invalid(policy.clone()),
                PolicyOutcome::None => reach = PolicyReach::Missing,
                PolicyOutcome::Applied(_) | PolicyOutcome::Exempt => {}
            }
        }
        reach
    }
}

/// A listener with a response for everybody.
fn exempt(place: &Place) -> Attachment {
    Attachment {
        listener: place.listener.clone(),
        socket: place.socket.clone(),
        is_served: place.is_served,
        hosts: place.hosts.clone(),
        policy: PolicyOutcome::Exempt,
        // Nothing is forwarded.
        client_certificate: ClientCertificate::None,
    }
}

/// Leads to the same address over HTTPS.
fn to_https(status: u16, port: Option<u16>) -> FilterPlan {
    FilterPlan::Redirect(RedirectFilter {
        scheme: Some(Name::from("https")),
        hostname: None,
        path: None,
        port: port.filter(|port| *port != 443),
        status,
    })
}
