//! Objects that the manifests refer to and do not contain. They may exist in the cluster, so they are
//! assumed to be as whoever refers to them needs them.
//!
//! Owns: which objects are missing, and what stands in for them. An object that is there is never
//! changed, and its relations are judged as they are.
//! Does not own: what follows from the objects ([`super::state`]).

mod ingresses;
mod services;

use std::collections::{BTreeMap, BTreeSet};

use controller::known::Known;
use controller::names::{Kind, Name, NamespacedName, ObjectKey};
use controller::objects::gateway::{FromNamespaces, LabelOperator, LabelSelector, Listener, NamespaceScope};
use controller::plan::{KeyPair, ListenerId, SocketId};
use controller::world::DesiredState;
use serde_json::{Value, json};

/// A certificate authority that stands in for those that only the cluster has.
const AUTHORITY: &str = include_str!("assumed-ca.pem");
/// `-----BEGIN PRIVATE KEY-----` with no key in it.
const NO_KEY: &str = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";

/// Whether a private key stands in for one that only the cluster has.
pub(super) fn is_assumed_key(key: &[u8]) -> bool {
    key == NO_KEY.as_bytes()
}

/// What is assumed.
#[derive(Debug, Default)]
pub(super) struct Assumptions {
    /// Objects in place of those that are missing.
    pub(super) objects: Vec<(Kind, Value)>,
    /// One phrase for each.
    pub(super) notes: Vec<String>,
    /// The objects that are assumed.
    pub(super) keys: BTreeSet<ObjectKey>,
}

impl Assumptions {
    fn add(&mut self, key: ObjectKey, spec: &Value, note: Option<String>) {
        if self.keys.contains(&key) {
            return;
        }
        let mut metadata = json!({ "name": key.at.name, "generation": 1 });
        if key.kind.is_namespaced() {
            metadata["namespace"] = json!(key.at.namespace);
        }
        let mut object = spec.clone();
        if let Some(labels) = object.as_object_mut().and_then(|members| members.remove("labels")) {
            metadata["labels"] = labels;
        }
        object["metadata"] = metadata;
        self.objects.push((key.kind, object));
        self.notes.extend(note);
        self.keys.insert(key);
    }
}

impl Assumptions {
    /// Whether a listener of a socket, or a host of an Ingress on it, has a certificate that is assumed.
    /// Without either: any listener of the socket.
    pub(super) fn has_certificate_of(
        &self,
        desired: &DesiredState,
        socket: &SocketId,
        (listener, host): (Option<&ListenerId>, Option<&Name>),
    ) -> bool {
        let is_assumed = |pair: &KeyPair| self.keys.contains(&pair.secret.clone().of(Kind::Secret));
        let plan = desired.gateways.get(&socket.gateway);
        let Some(plan) = plan.and_then(|plan| plan.sockets.iter().find(|one| one.id == *socket)) else {
            return false;
        };
        if let Some(host) = host {
            let mut own = plan.certificates.iter().filter(|one| one.host == *host);
            return own.any(|one| is_assumed(&one.pair));
        }
        let meant = plan.listeners.iter().filter(|one| listener.is_none_or(|id| *id == one.id));
        meant.flat_map(|one| &one.tls).flat_map(|tls| &tls.certificates).any(is_assumed)
    }
}

/// Finds what is missing. `controller` is the name of this controller, and `ingress_gateway` the Gateway
/// that serves Ingresses.
pub(super) fn find(known: &Known, controller: &str, ingress_gateway: Option<&NamespacedName>) -> Assumptions {
    let mut found = Assumptions::default();
    gateways(known, ingress_gateway.filter(|_| ingresses::are_there(known)), &mut found);
    classes(known, controller, &mut found);
    services::find(known, controller, &mut found);
    certificates(known, &mut found);
    ingresses::find(known, controller, &mut found);
    namespaces(known, &mut found);
    found
}

/// The class of assumed Gateways.
const CLASS: &str = "assumed";

/// The name and the port by which somebody chooses a listener.
type Section = (Option<Name>, Option<u16>);

/// Gateways that routes, ListenerSets and policies name, and the one for Ingresses.
fn gateways(known: &Known, for_ingresses: Option<&NamespacedName>, found: &mut Assumptions) {
    let mut wanted: BTreeMap<NamespacedName, BTreeSet<Section>> = BTreeMap::new();
    for (key, route) in &known.routes {
        for parent in route.spec.parents() {
            let target = parent.target(&key.at.namespace).filter(|target| target.kind == Kind::Gateway);
            if let Some(target) = target {
                wanted.entry(target.at).or_default().insert((parent.section_name.clone(), parent.port));
            }
        }
    }
    for set in known.listener_sets.values() {
        if let Some(parent) = Known::parent_of(set) {
            wanted.entry(parent).or_default();
        }
    }
    for policy in known.access_policies.values() {
        for target in &policy.spec.target_refs {
            let key = target.target(&policy.meta.at.namespace).filter(|key| key.kind == Kind::Gateway);
            if let Some(key) = key {
                let sections = wanted.entry(key.at).or_default();
                sections.extend(target.section_name.clone().map(|section| (Some(section), None)));
            }
        }
    }
    if let Some(gateway) = for_ingresses {
        wanted.entry(gateway.clone()).or_default();
    }
    for (at, sections) in wanted {
        if known.gateways.contains_key(&at) {
            continue;
        }
        let mut listeners = assumed_listeners(&sections);
        let mut how = "to take the routes that name it, in plain text";
        if for_ingresses == Some(&at) && !listeners.iter().any(|one| one["port"] == 443) {
            how = "to serve Ingresses, Routes and the routes that name it, on the ports 80 and 443";
            listeners.push(secure_listener(known, &at, found));
        }
        let spec = json!({ "spec": {
            "gatewayClassName": CLASS,
            "listeners": listeners,
            "allowedListeners": { "namespaces": { "from": "All" } },
        } });
        let note = format!("Gateway {at} is not in the files: it is assumed {how}");
        found.add(at.of(Kind::Gateway), &spec, Some(note));
    }
}

/// A listener for port 443, with a certificate that is assumed too.
fn secure_listener(known: &Known, gateway: &NamespacedName, found: &mut Assumptions) -> Value {
    let secret = NamespacedName::new(gateway.namespace.clone(), "assumed");
    if !holds(known, &secret.clone().of(Kind::Secret)) {
        found.add(secret.of(Kind::Secret), &assumed_pair(), None);
    }
    json!({
        "name": "https-assumed",
        "port": 443,
        "protocol": "HTTPS",
        "tls": { "certificateRefs": [{ "name": "assumed" }] },
        "allowedRoutes": { "namespaces": { "from": "All" } },
    })
}

/// One listener for each section and port that somebody names.
fn assumed_listeners(sections: &BTreeSet<Section>) -> Vec<Value> {
    let mut taken = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut listeners = Vec::new();
    let mut add = |name: &str, port: Option<u16>| {
        if !names.insert(name.to_owned()) {
            return;
        }
        let usual = if name.contains("https") || name.contains("tls") { 443 } else { 80 };
        let mut port = port.unwrap_or(usual);
        while !taken.insert(port) {
            port = port.checked_add(1000).unwrap_or(1);
        }
        let all = json!({ "namespaces": { "from": "All" } });
        listeners.push(json!({ "name": name, "port": port, "protocol": "HTTP", "allowedRoutes": all }));
    };
    for (section, port) in sections {
        match (section, port) {
            (Some(section), port) => add(section, *port),
            (None, Some(port)) => add(&format!("port-{port}"), Some(*port)),
            (None, None) => {}
        }
    }
    add("http", None);
    listeners
}

fn classes(known: &Known, controller: &str, found: &mut Assumptions) {
    let class = |name: &str| ObjectKey::new(Kind::GatewayClass, "", name);
    let spec = json!({ "spec": { "controllerName": controller } });
    if found.keys.iter().any(|key| key.kind == Kind::Gateway) {
        found.add(class(CLASS), &spec, None);
    }
    for gateway in known.gateways.values() {
        let name = &gateway.spec.gateway_class_name;
        if !name.is_empty() && !known.classes.contains_key(name) {
            let note =
                format!("GatewayClass {name} is not in the files: it is assumed to be one of {controller}");
            found.add(class(name), &spec, Some(note));
        }
    }
    for class in known.classes.values() {
        let parameters = class.spec.parameters_ref.as_ref().and_then(|one| one.target(&Name::default()));
        if let Some(target) = parameters {
            authority(known, &target, found);
        }
    }
}

/// A permission for an object of another namespace that is not in the files either.
fn grant(known: &Known, (kind, namespace): (Kind, &Name), target: &ObjectKey, found: &mut Assumptions) {
    if known.permits(kind, namespace, target) {
        return;
    }
    let name = format!("assumed-{}-{namespace}-{}-{}", kind.name(), target.kind.name(), target.at.name);
    let spec = json!({ "spec": {
        "from": [{ "group": kind.group(), "kind": kind.name(), "namespace": namespace }],
        "to": [{ "group": target.kind.group(), "kind": target.kind.name(), "name": target.at.name }],
    } });
    let note = format!(
        "no ReferenceGrant in the files permits {} of {namespace} to name {target}: one is assumed",
        kind.name()
    );
    let key = ObjectKey::new(Kind::ReferenceGrant, target.at.namespace.clone(), &*name);
    found.add(key, &spec, Some(note));
}

/// Secrets and ConfigMaps that listeners and policies name.
fn certificates(known: &Known, found: &mut Assumptions) {
    for gateway in known.gateways.values() {
        let namespace = &gateway.meta.at.namespace;
        listeners(known, (Kind::Gateway, namespace), &gateway.spec.listeners, found);
        let Some(tls) = &gateway.spec.tls else { continue };
        let client = tls.backend.as_ref().and_then(|one| one.client_certificate_ref.as_ref());
        if let Some(secret) = client.and_then(|reference| reference.target(namespace)) {
            pair(known, (Kind::Gateway, namespace), &secret, found);
        }
        let Some(frontend) = &tls.frontend else { continue };
        let ports = frontend.per_port.iter().map(|port| &port.tls);
        for validation in ports.chain([&frontend.default]).filter_map(|one| one.validation.as_ref()) {
            for target in validation.ca_certificate_refs.iter().filter_map(|one| one.target(namespace)) {
                if !holds(known, &target) {
                    grant(known, (Kind::Gateway, namespace), &target, found);
                }
                authority(known, &target, found);
            }
        }
    }
    for set in known.listener_sets.values() {
        listeners(known, (Kind::ListenerSet, &set.meta.at.namespace), &set.spec.listeners, found);
    }
    for policy in known.backend_tls.values() {
        for reference in &policy.spec.validation.ca_certificate_refs {
            if let Some(kind) = Kind::of(&reference.group, &reference.kind) {
                let namespace = policy.meta.at.namespace.clone();
                authority(known, &ObjectKey::new(kind, namespace, reference.name.clone()), found);
            }
        }
    }
}

fn listeners(known: &Known, from: (Kind, &Name), listeners: &[Listener], found: &mut Assumptions) {
    let references =
        listeners.iter().filter_map(|one| one.tls.as_ref()).flat_map(|tls| &tls.certificate_refs);
    for secret in references.filter_map(|reference| reference.target(from.1)) {
        pair(known, from, &secret, found);
    }
}

fn holds(known: &Known, target: &ObjectKey) -> bool {
    match target.kind {
        Kind::Secret => known.secrets.contains_key(&target.at),
        Kind::ConfigMap => known.config_maps.contains_key(&target.at),
        _ => true,
    }
}

/// The texts of a Secret, encoded.
fn data(entries: &[(&str, &str)]) -> Value {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    entries.iter().map(|(name, text)| ((*name).to_owned(), json!(encode(text)))).collect()
}

/// A Secret with a certificate and a key.
fn assumed_pair() -> Value {
    json!({ "data": data(&[("tls.crt", AUTHORITY), ("tls.key", NO_KEY), ("ca.crt", AUTHORITY)]) })
}

fn pair(known: &Known, from: (Kind, &Name), secret: &NamespacedName, found: &mut Assumptions) {
    let key = secret.clone().of(Kind::Secret);
    if holds(known, &key) {
        return;
    }
    grant(known, from, &key, found);
    let note = format!("{key} is not in the files: it is assumed to have a certificate with its key");
    found.add(key, &assumed_pair(), Some(note));
}

fn authority(known: &Known, target: &ObjectKey, found: &mut Assumptions) {
    if holds(known, target) {
        return;
    }
    let spec = match target.kind {
        Kind::Secret => json!({ "data": data(&[("ca.crt", AUTHORITY)]) }),
        _ => json!({ "data": { "ca.crt": AUTHORITY } }),
    };
    let note = format!("{target} is not in the files: it is assumed to exist");
    found.add(target.clone(), &spec, Some(note));
}

/// Namespaces, with the labels that Gateways select.
fn namespaces(known: &Known, found: &mut Assumptions) {
    let mut selectors: Vec<(String, &LabelSelector)> = Vec::new();
    for gateway in known.gateways.values() {
        let owner = format!("Gateway {}", gateway.meta.at);
        let routes = gateway.spec.listeners.iter().filter_map(|one| one.allowed_routes.as_ref());
        let scopes = routes.filter_map(|routes| routes.namespaces.as_ref());
        let sets = gateway.spec.allowed_listeners.iter().filter_map(|allowed| allowed.namespaces.as_ref());
        selectors.extend(scopes.chain(sets).filter_map(selector).map(|one| (owner.clone(), one)));
    }
    for set in known.listener_sets.values() {
        let owner = format!("ListenerSet {}", set.meta.at);
        let routes = set.spec.listeners.iter().filter_map(|one| one.allowed_routes.as_ref());
        let scopes = routes.filter_map(|routes| routes.namespaces.as_ref());
        selectors.extend(scopes.filter_map(selector).map(|one| (owner.clone(), one)));
    }
    selectors.sort_by(|one, other| one.0.cmp(&other.0));
    let of_routes = known.routes.keys().map(|key| &key.at.namespace);
    let others =
        known.listener_sets.keys().chain(known.ingresses.keys()).chain(known.openshift_routes.keys());
    let used: BTreeSet<&Name> = of_routes.chain(others.map(|at| &at.namespace)).collect();
    for namespace in used.into_iter().filter(|name| !known.namespaces.contains_key(*name)) {
        let mut labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), namespace.to_string())]);
        let mut assumed = BTreeMap::new();
        for (_, selector) in &selectors {
            assumed.extend(wanted_labels(selector));
        }
        assumed.remove("kubernetes.io/metadata.name");
        labels.extend(assumed.clone());
        let note = (!assumed.is_empty()).then(|| {
            let labels: Vec<String> = assumed.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!(
                "Namespace {namespace} is not in the files: it is assumed to have the labels that {} selects: {}",
                selectors[0].0,
                labels.join(", ")
            )
        });
        let key = ObjectKey::new(Kind::Namespace, "", namespace.clone());
        found.add(key, &json!({ "labels": labels }), note);
    }
}

fn selector(scope: &NamespaceScope) -> Option<&LabelSelector> {
    scope.selector.as_ref().filter(|_| scope.from == Some(FromNamespaces::Selector))
}

/// Labels that a selector matches.
fn wanted_labels(selector: &LabelSelector) -> BTreeMap<String, String> {
    let equal = selector.match_labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let expressions = selector.match_expressions.iter().filter_map(|one| match one.operator {
        LabelOperator::In => Some((one.key.to_string(), one.values.first()?.to_string())),
        LabelOperator::Exists => Some((one.key.to_string(), String::new())),
        LabelOperator::NotIn | LabelOperator::DoesNotExist => None,
    });
    equal.chain(expressions).collect()
}
