//! Listeners of a Gateway: its own, and those of its ListenerSets.
//!
//! Owns: which listeners are accepted and what is served on them: precedence and conflicts, allowed
//! ListenerSets, protocols, TLS, kinds of routes.
//! Does not own: which routes attach ([`crate::attach`]), the status documents
//! ([`crate::conditions`]).
//! Flow: `Gateway + ListenerSets + Secrets → derive → GatewayState`.

mod merge;
mod tls;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use self::tls::Frontend;
pub use self::tls::bundle;
use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName, ObjectKey};
use crate::objects::gateway::{DefaultScope, FromNamespaces, Listener, NamespaceScope, TlsMode};
use crate::objects::reference::GroupKind;
use crate::objects::{Gateway, GatewayClass, ListenerSet};
use crate::plan::{
    ClientCertificate, GatewayPlan, ListenerId, ListenerPlan, ListenerTls, SocketId, SocketPlan,
    SocketProtocol,
};
use crate::settings::Settings;

/// What is derived from a Gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayState {
    /// Why the Gateway as a whole is not accepted.
    pub fault: Option<Fault>,
    /// Why its own references cannot be resolved.
    pub unresolved: Option<Fault>,
    /// In the order of precedence.
    pub listeners: Vec<ListenerState>,
    /// Where the listeners of each object are in that list.
    ranges: BTreeMap<ObjectKey, Range<usize>>,
    /// Its ListenerSets, with the reason why one is not accepted.
    pub sets: BTreeMap<NamespacedName, Option<Fault>>,
    /// What routes see of the listeners, by the object that has them.
    pub offers: BTreeMap<ObjectKey, Arc<[Offer]>>,
    /// Hostnames of accepted listeners of ListenerSets, with their port. `None` includes every host.
    pub set_hostnames: BTreeMap<(u16, Option<Name>), NamespacedName>,
    /// What it shows upstreams (`spec.tls.backend`).
    pub client_certificate: ClientCertificate,
    /// Whether a listener also serves clients without a valid certificate.
    pub is_insecure: bool,
}

impl GatewayState {
    /// The listeners of one object: the Gateway or a ListenerSet.
    pub fn listeners_of(&self, parent: &ObjectKey) -> &[ListenerState] {
        self.ranges.get(parent).and_then(|range| self.listeners.get(range.clone())).unwrap_or_default()
    }

    /// Whether the status of `parent`, a Gateway or ListenerSet, is the same as with `other`.
    pub fn has_same_status(&self, other: &Self, parent: &ObjectKey) -> bool {
        let is_same = parent.kind == Kind::Gateway || self.sets.get(&parent.at) == other.sets.get(&parent.at);
        is_same && self.fault == other.fault && self.listeners_of(parent) == other.listeners_of(parent)
    }
}

/// What is derived from a listener.
#[allow(missing_docs, reason = "fields without a comment are those of the listener")]
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerState {
    pub id: ListenerId,
    pub port: u16,
    /// `None` if it is not one that is served.
    pub protocol: Option<SocketProtocol>,
    /// Whether it is for a TCP port, also if its protocol is not served.
    pub is_tcp: bool,
    pub hostname: Option<Name>,
    /// The reason of the condition `Conflicted`.
    pub conflict: Option<&'static str>,
    /// Why the listener is not accepted.
    pub fault: Option<Fault>,
    /// Why its references cannot be resolved. It is served with those that can.
    pub unresolved: Option<Fault>,
    /// Kinds of routes that it supports and allows.
    pub kinds: Vec<Kind>,
    pub tls: Option<ListenerTls>,
    /// Whether the hostname of another TLS listener on the port overlaps.
    pub overlaps: bool,
}

impl ListenerState {
    /// Whether the listener is served.
    pub fn is_programmed(&self) -> bool {
        let has_tls = self.protocol == Some(SocketProtocol::Http) || self.tls.is_some();
        self.fault.is_none() && self.protocol.is_some() && has_tls
    }
}

/// What routes see of a listener. Routes are derived again only if this changes.
#[allow(missing_docs, reason = "fields are those of the listener and its state")]
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    pub section: Name,
    pub port: u16,
    pub hostname: Option<Name>,
    pub is_accepted: bool,
    /// Whether requests for it arrive.
    pub is_served: bool,
    pub protocol: Option<SocketProtocol>,
    pub kinds: Vec<Kind>,
    /// Whether it takes Ingresses and Routes, if its Gateway is theirs: it names no kinds.
    pub takes_ingresses: bool,
    pub namespaces: Option<NamespaceScope>,
}

/// Derives the state of a Gateway. `sets` are the ListenerSets that name it as their parent.
pub fn derive(
    known: &Known,
    settings: &Settings,
    gateway: &Gateway,
    sets: &[Arc<ListenerSet>],
) -> GatewayState {
    let fault = gateway_fault(known, gateway);
    let frontend = Frontend::resolve(known, gateway);
    let mut ordered: Vec<&Arc<ListenerSet>> = sets.iter().collect();
    ordered.sort_by(|one, other| one.meta.age().cmp(&other.meta.age()));
    let mut set_faults = BTreeMap::new();
    let mut groups = vec![own_group(gateway)];
    for set in ordered {
        let fault = set_fault(known, gateway, set, fault.as_ref());
        if fault.is_none() {
            let parent = set.meta.at.clone().of(Kind::ListenerSet);
            groups.push(Group { parent, listeners: &set.spec.listeners });
        }
        set_faults.insert(set.meta.at.clone(), fault);
    }
    let derived = groups.iter().map(|group| {
        group.listeners.iter().map(|one| listener(known, settings, &group.parent, one, &frontend)).collect()
    });
    let mut derived: Vec<Vec<ListenerState>> = derived.collect();
    merge::resolve_conflicts(&mut derived);
    merge::mark_overlaps(&mut derived);
    for (group, states) in groups.iter().zip(&derived).filter(|(group, _)| group.parent.kind != Kind::Gateway)
    {
        if !states.iter().any(ListenerState::is_programmed) {
            let fault = Fault::new("ListenersNotValid", "no listener of the ListenerSet can be served");
            set_faults.insert(group.parent.at.clone(), Some(fault));
        }
    }
    let mut ranges = BTreeMap::new();
    let mut count = 0;
    for (group, states) in groups.iter().zip(&derived) {
        ranges.insert(group.parent.clone(), count..count + states.len());
        count += states.len();
    }
    let offers = groups.iter().zip(&derived).map(|(group, states)| {
        let offers = group.listeners.iter().zip(states);
        let offers = offers.map(|(listener, state)| offer(listener, state, fault.as_ref()));
        (group.parent.clone(), offers.collect())
    });
    let offers = offers.collect();
    let of_sets = derived.iter().flatten().filter(|one| one.id.parent.kind == Kind::ListenerSet);
    let set_hostnames = of_sets
        .filter(|listener| listener.fault.is_none())
        .map(|listener| ((listener.port, listener.hostname.clone()), listener.id.parent.at.clone()));
    let set_hostnames = set_hostnames.collect();
    let (client_certificate, unresolved) = tls::client_certificate(known, settings, gateway);
    GatewayState {
        fault,
        unresolved,
        sets: set_faults,
        offers,
        set_hostnames,
        is_insecure: derived.iter().flatten().any(is_insecure),
        listeners: derived.into_iter().flatten().collect(),
        ranges,
        client_certificate,
    }
}

/// Listeners of one object.
struct Group<'a> {
    parent: ObjectKey,
    listeners: &'a [Listener],
}

fn own_group(gateway: &Gateway) -> Group<'_> {
    Group { parent: gateway.meta.at.clone().of(Kind::Gateway), listeners: &gateway.spec.listeners }
}

fn is_insecure(listener: &ListenerState) -> bool {
    let validation = listener.tls.as_ref().and_then(|tls| tls.client_validation.as_ref());
    validation.is_some_and(|validation| validation.allows_invalid)
}

/// Why a Gateway as a whole is not accepted.
fn gateway_fault(known: &Known, gateway: &Gateway) -> Option<Fault> {
    if let Some(problem) = &gateway.not_understood {
        return Some(Fault::new("Invalid", format!("not used, because of {problem}")));
    }
    let spec = &gateway.spec;
    let class = known.classes.get(&spec.gateway_class_name)?;
    if let Some(fault) = class_fault(known, class) {
        let reason = if fault.reason == "InvalidParameters" { fault.reason } else { "Invalid" };
        let message = format!("GatewayClass {} is not accepted: {}", class.meta.at.name, fault.message);
        return Some(Fault::new(reason, message));
    }
    let is_unsupported = |of_type: &Name| *of_type != "IPAddress";
    let types = spec.addresses.iter().filter_map(|address| address.of_type.as_ref());
    if let Some(of_type) = types.into_iter().find(|of_type| is_unsupported(of_type)) {
        let message = format!("addresses of type {of_type} are not supported: use IPAddress");
        return Some(Fault::new("UnsupportedAddress", message));
    }
    let parameters = spec.infrastructure.as_ref().and_then(|one| one.parameters_ref.as_ref());
    if let Some(parameters) = parameters {
        let message = format!(
            "infrastructure.parametersRef ({} {}) is not supported: remove it",
            parameters.kind, parameters.name
        );
        return Some(Fault::new("InvalidParameters", message));
    }
    (spec.default_scope == Some(DefaultScope::All)).then(|| {
        Fault::new("Invalid", "defaultScope All is not supported: name the Gateway in parentRefs of routes")
    })
}

/// Why a GatewayClass is not accepted. Its Gateways are not either.
pub fn class_fault(known: &Known, class: &GatewayClass) -> Option<Fault> {
    if let Some(problem) = &class.not_understood {
        return Some(Fault::new("Unsupported", format!("not used, because of {problem}")));
    }
    let parameters = class.spec.parameters_ref.as_ref()?;
    let target = parameters.target(&Name::default());
    match target.filter(|target| target.kind == Kind::ConfigMap) {
        None => {
            let message = format!("parametersRef names a {}: name a ConfigMap", parameters.kind);
            Some(Fault::new("InvalidParameters", message))
        }
        Some(target) => (!known.config_maps.contains_key(&target.at))
            .then(|| Fault::new("InvalidParameters", format!("{target} does not exist"))),
    }
}

/// Why a ListenerSet as a whole is not accepted, before its listeners are looked at.
fn set_fault(
    known: &Known,
    gateway: &Gateway,
    set: &ListenerSet,
    gateway_fault: Option<&Fault>,
) -> Option<Fault> {
    if let Some(problem) = &set.not_understood {
        return Some(Fault::new("Invalid", format!("not used, because of {problem}")));
    }
    let scope = gateway.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    let (home, from) = (&gateway.meta.at.namespace, &set.meta.at.namespace);
    if !in_scope(known, scope, FromNamespaces::None, home, from) {
        let message = format!("Gateway {} does not allow ListenerSets from {from}", gateway.meta.at);
        return Some(Fault::new("NotAllowed", message));
    }
    gateway_fault.map(|fault| {
        let message = format!("Gateway {} is not accepted: {}", gateway.meta.at, fault.message);
        Fault::new("ParentNotAccepted", message)
    })
}

/// Whether `scope` of an object in namespace `home` includes the namespace `from`.
pub fn in_scope(
    known: &Known,
    scope: Option<&NamespaceScope>,
    default: FromNamespaces,
    home: &Name,
    from: &Name,
) -> bool {
    match scope.and_then(|scope| scope.from).unwrap_or(default) {
        FromNamespaces::All => true,
        FromNamespaces::Same => home == from,
        FromNamespaces::None => false,
        FromNamespaces::Selector => {
            let selector = scope.and_then(|scope| scope.selector.as_ref());
            let labels = known.labels(from);
            selector.zip(labels).is_some_and(|(selector, labels)| selector.matches(labels))
        }
    }
}

fn offer(listener: &Listener, state: &ListenerState, gateway_fault: Option<&Fault>) -> Offer {
    let allowed = listener.allowed_routes.as_ref();
    Offer {
        section: listener.name.clone(),
        port: listener.port,
        hostname: state.hostname.clone(),
        is_accepted: state.fault.is_none(),
        is_served: gateway_fault.is_none() && state.is_programmed(),
        protocol: state.protocol,
        kinds: state.kinds.clone(),
        takes_ingresses: allowed.is_none_or(|allowed| allowed.kinds.is_empty()),
        namespaces: allowed.and_then(|allowed| allowed.namespaces.clone()),
    }
}

/// One listener by itself, before conflicts with others.
fn listener(
    known: &Known,
    settings: &Settings,
    parent: &ObjectKey,
    listener: &Listener,
    frontend: &Frontend,
) -> ListenerState {
    let mut state = ListenerState {
        id: ListenerId { parent: parent.clone(), section: listener.name.clone() },
        port: listener.port,
        protocol: None,
        is_tcp: listener.protocol != "UDP",
        hostname: listener.hostname.clone().filter(|hostname| !hostname.is_empty()),
        conflict: None,
        fault: None,
        unresolved: None,
        kinds: Vec::new(),
        tls: None,
        overlaps: false,
    };
    match listener.protocol.as_str() {
        "HTTP" => state.protocol = Some(SocketProtocol::Http),
        "HTTPS" => state.protocol = Some(SocketProtocol::Https),
        other => {
            let message = format!("protocol {other} is not supported: use HTTP or HTTPS");
            state.fault = Some(Fault::new("UnsupportedProtocol", message));
            return state;
        }
    }
    let (kinds, refused) = kinds(listener);
    state.kinds = kinds;
    state.unresolved = refused;
    if state.protocol == Some(SocketProtocol::Https) {
        terminate(known, settings, listener, frontend, &mut state);
    }
    state
}

/// The kinds of routes that a listener allows and that are supported.
fn kinds(listener: &Listener) -> (Vec<Kind>, Option<Fault>) {
    const SUPPORTED: [Kind; 2] = [Kind::HttpRoute, Kind::GrpcRoute];
    let allowed = listener.allowed_routes.as_ref().map(|allowed| &allowed.kinds[..]).unwrap_or_default();
    if allowed.is_empty() {
        return (SUPPORTED.to_vec(), None);
    }
    let kind = |one: &GroupKind| Kind::of(&one.group, &one.kind).filter(|kind| kind.is_route());
    let kinds: Vec<Kind> = SUPPORTED
        .into_iter()
        .filter(|supported| allowed.iter().any(|one| kind(one) == Some(*supported)))
        .collect();
    let refused = allowed.iter().find(|one| kind(one).is_none()).map(|one| {
        let message = format!("routes of kind {} are not supported by {}", one.kind, listener.protocol);
        Fault::new("InvalidRouteKinds", message)
    });
    (kinds, refused)
}

/// The TLS of a listener that terminates it.
fn terminate(
    known: &Known,
    settings: &Settings,
    listener: &Listener,
    frontend: &Frontend,
    state: &mut ListenerState,
) {
    let config = listener.tls.as_ref();
    if config.and_then(|tls| tls.mode) == Some(TlsMode::Passthrough) {
        let message = "tls.mode Passthrough is not supported: use Terminate";
        state.fault = Some(Fault::new("UnsupportedValue", message));
        return;
    }
    let references = config.map(|tls| &tls.certificate_refs[..]).unwrap_or_default();
    let mut certificates = Vec::with_capacity(references.len());
    let mut unresolved = references.is_empty().then(|| {
        Fault::new(
            "InvalidCertificateRef",
            "tls.certificateRefs is empty: name a Secret of type kubernetes.io/tls",
        )
    });
    for reference in references {
        match tls::key_pair(known, settings, &state.id.parent, reference) {
            Ok(pair) => certificates.push(pair),
            Err(tls::PairFault::NotPermitted(message)) => {
                unresolved.get_or_insert(Fault::new("RefNotPermitted", message));
            }
            Err(tls::PairFault::Invalid(message)) => {
                unresolved.get_or_insert(Fault::new("InvalidCertificateRef", message));
            }
        }
    }
    let validation = match frontend.of_port(listener.port) {
        None => None,
        Some((validation, refused)) => {
            unresolved = unresolved.or(refused.clone());
            if validation.is_none() {
                let message = "no certificate authority for client certificates is valid";
                state.fault = Some(Fault::new("NoValidCACertificate", message));
            }
            validation.clone()
        }
    };
    // A listener without the validation that it asks for would let everybody in.
    if !certificates.is_empty() && state.fault.is_none() {
        let options = config.map(|tls| tls.options.clone()).unwrap_or_default();
        state.tls = Some(ListenerTls { certificates, client_validation: validation, options });
    }
    state.unresolved = unresolved.or(state.unresolved.take());
}

/// The desired state of a Gateway: its listeners that are served.
pub fn plan(gateway: &Gateway, state: &GatewayState) -> GatewayPlan {
    let at = &gateway.meta.at;
    let mut sockets: BTreeMap<u16, SocketPlan> = BTreeMap::new();
    let served = state.listeners.iter().filter(|listener| state.fault.is_none() && listener.is_programmed());
    for listener in served {
        let Some(protocol) = listener.protocol else { continue };
        let id = SocketId { gateway: at.clone(), port: listener.port };
        let socket = sockets.entry(listener.port);
        let socket = socket.or_insert_with(|| SocketPlan {
            id,
            protocol,
            listeners: Vec::new(),
            reserved_hosts: Vec::new(),
            certificates: Vec::new(),
        });
        socket.listeners.push(ListenerPlan {
            id: listener.id.clone(),
            hostname: listener.hostname.clone(),
            tls: listener.tls.clone(),
        });
    }
    // Without its certificate, a listener keeps its host: on a broader one, other policies apply.
    for listener in state.listeners.iter().filter(|one| one.fault.is_none() && !one.is_programmed()) {
        if let Some(socket) = sockets.get_mut(&listener.port) {
            socket.reserved_hosts.extend(listener.hostname.clone());
        }
    }
    let infrastructure = gateway.spec.infrastructure.as_ref();
    let requested = gateway.spec.addresses.iter().map(|address| address.value.clone());
    GatewayPlan {
        gateway: at.clone(),
        created: gateway.meta.created,
        sockets: sockets.into_values().collect(),
        labels: infrastructure.map(|one| one.labels.clone()).unwrap_or_default(),
        annotations: infrastructure.map(|one| one.annotations.clone()).unwrap_or_default(),
        requested_addresses: requested.filter(|value| !value.is_empty()).collect(),
    }
}
