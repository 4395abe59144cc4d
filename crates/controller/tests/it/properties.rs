//! After any sequence of events, the state is the one that would be derived from scratch, and the
//! changes lead from one state to the next.

use std::collections::BTreeMap;

use controller::known::GatewayAddresses;
use controller::names::{Interner, Kind, NamespacedName, ObjectKey};
use controller::objects;
use controller::plan::{BackendTarget, Changes, ObjectFaults, PolicyOutcome, RuleAction, StatusDocument};
use controller::settings::Settings;
use controller::world::{DesiredState, Event, World};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{CERTIFICATE, CONTROLLER};

/// Which object, and which version of it. `None` removes the object.
type Step = (usize, Option<u8>);

const NAMESPACES: [&str; 2] = ["one", "two"];
const PAIR: [(&str, &str); 2] = [("one", "x"), ("two", "x")];

/// Objects of the small cluster: kind, namespace and name.
fn universe() -> Vec<ObjectKey> {
    let mut keys = vec![ObjectKey::new(Kind::GatewayClass, "", "postern")];
    keys.extend(NAMESPACES.map(|name| ObjectKey::new(Kind::Namespace, "", name)));
    let kinds = [
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::HttpRoute,
        Kind::GrpcRoute,
        Kind::ReferenceGrant,
        Kind::BackendTlsPolicy,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::AccessPolicy,
    ];
    for kind in kinds {
        keys.extend(PAIR.map(|(namespace, name)| ObjectKey::new(kind, namespace, name)));
    }
    for kind in [Kind::HttpRoute, Kind::AccessPolicy, Kind::BackendTlsPolicy, Kind::ListenerSet] {
        keys.push(ObjectKey::new(kind, "one", "y"));
    }
    keys.push(ObjectKey::new(Kind::IngressClass, "", "postern"));
    for kind in [Kind::Ingress, Kind::OpenShiftRoute] {
        keys.extend(PAIR.map(|(namespace, name)| ObjectKey::new(kind, namespace, name)));
        keys.push(ObjectKey::new(kind, "one", "y"));
    }
    keys.push(ObjectKey::new(Kind::ConfigMap, "one", "openshift-service-ca.crt"));
    keys
}

/// Bits of a version. Each decides one thing.
#[derive(Clone, Copy)]
struct Bits(u8);

impl Bits {
    fn is_set(self, index: u8) -> bool {
        self.0 >> index & 1 == 1
    }

    /// One of the two namespaces.
    fn namespace(self, index: u8) -> &'static str {
        NAMESPACES[usize::from(self.is_set(index))]
    }

    /// One of four, by the first two bits.
    fn of_four<T: Copy>(self, list: [T; 4]) -> T {
        list[usize::from(self.0 & 3)]
    }
}

/// Version `version` of an object.
fn object(key: &ObjectKey, version: u8) -> Value {
    let mut object = json!({
        "metadata": {
            "name": key.at.name,
            "namespace": key.at.namespace,
            "generation": version,
            "creationTimestamp": format!("2026-01-01T00:00:0{}Z", key.at.name.len() + key.at.namespace.len()),
        },
    });
    let bits = Bits(version);
    match key.kind {
        Kind::GatewayClass => {
            let name = if version & 7 == 7 { "example.com/other" } else { CONTROLLER };
            object["spec"] = json!({ "controllerName": name });
        }
        Kind::Gateway => object["spec"] = gateway(bits),
        Kind::ListenerSet => object["spec"] = listener_set(bits),
        Kind::HttpRoute | Kind::GrpcRoute => object["spec"] = route(bits),
        Kind::ReferenceGrant => object["spec"] = grant(bits),
        Kind::BackendTlsPolicy => object["spec"] = backend_tls_policy(bits),
        Kind::AccessPolicy => object["spec"] = access_policy(bits),
        Kind::Ingress => ingress(bits, &mut object),
        Kind::IngressClass => {
            let controller = if version & 7 == 7 { "example.com/other" } else { CONTROLLER };
            object["spec"] = json!({ "controller": controller });
            let is_default = if bits.is_set(3) { "true" } else { "false" };
            let name = "ingressclass.kubernetes.io/is-default-class";
            object["metadata"]["annotations"] = json!({ name: is_default });
        }
        Kind::OpenShiftRoute => object["spec"] = openshift_route(bits),
        _ => core(key.kind, bits, &mut object),
    }
    object
}

/// Kinds of Kubernetes.
fn core(kind: Kind, bits: Bits, object: &mut Value) {
    match kind {
        Kind::Namespace => object["metadata"]["labels"] = json!({ "team": bits.namespace(0) }),
        Kind::Service => {
            let protocol = bits.of_four(["", "https", "kubernetes.io/h2c", "other"]);
            let (web, more) = if bits.is_set(2) { (80, 81) } else { (81, 82) };
            object["spec"] = json!({ "ports": [
                { "name": "web", "port": web, "appProtocol": protocol },
                { "name": "more", "port": more },
            ]});
        }
        Kind::EndpointSlice => {
            let service = if bits.is_set(0) { "x" } else { "y" };
            object["metadata"]["labels"] = json!({ "kubernetes.io/service-name": service });
            object["addressType"] = json!("IPv4");
            object["ports"] = json!([{ "name": if bits.is_set(1) { "web" } else { "more" }, "port": 3000 }]);
            object["endpoints"] = json!([{ "addresses": [format!("10.0.0.{}", bits.0)] }]);
        }
        Kind::Secret => {
            let mut secret = crate::cluster::tls_secret("x");
            if bits.is_set(0) {
                secret["data"]["tls.crt"] = json!("AAAA");
            } else if bits.is_set(1) {
                secret["data"]["tls.key"] = json!(crate::cluster::OTHER_KEY);
            }
            object["data"] = secret["data"].clone();
        }
        Kind::ConfigMap if bits.is_set(7) => object["data"] = json!({ "service-ca.crt": CERTIFICATE }),
        _ => object["data"] = json!({ "ca.crt": if bits.is_set(0) { CERTIFICATE } else { "none" } }),
    }
}

fn gateway(bits: Bits) -> Value {
    let from = if bits.is_set(0) { "All" } else { "Selector" };
    let scope = json!({ "from": from, "selector": { "matchLabels": { "team": bits.namespace(1) } } });
    let mut spec = json!({
        "gatewayClassName": "postern",
        "allowedListeners": { "namespaces": scope },
        "listeners": [
            { "name": "a", "port": 80, "protocol": "HTTP", "allowedRoutes": { "namespaces": scope } },
            {
                "name": "b",
                "port": if bits.is_set(2) { 443 } else { 80 },
                "protocol": "HTTPS",
                "tls": { "certificateRefs": [{ "name": "x", "namespace": bits.namespace(3) }] },
            },
        ],
    });
    if bits.is_set(4) {
        let reference =
            json!({ "group": "", "kind": "ConfigMap", "name": "x", "namespace": bits.namespace(5) });
        spec["tls"] =
            json!({ "frontend": { "default": { "validation": { "caCertificateRefs": [reference] } } } });
    }
    match (bits.is_set(6), bits.is_set(7)) {
        (true, true) => spec["future"] = json!(1),
        (true, false) => {
            let reference = json!({ "name": "x", "namespace": bits.namespace(5) });
            spec["tls"]["backend"] = json!({ "clientCertificateRef": reference });
        }
        _ => {}
    }
    spec
}

fn listener_set(bits: Bits) -> Value {
    json!({
        "parentRef": { "name": "x", "namespace": bits.namespace(0) },
        "listeners": [{
            "name": "c",
            "port": if bits.is_set(1) { 80 } else { 81 },
            "protocol": "HTTP",
            "hostname": if bits.is_set(2) { "c.com" } else { "d.com" },
            "allowedRoutes": { "namespaces": { "from": if bits.is_set(3) { "All" } else { "Same" } } },
        }],
    })
}

fn route(bits: Bits) -> Value {
    let mut parents = vec![json!({ "name": "x", "namespace": bits.namespace(0) })];
    if bits.is_set(1) {
        parents.push(json!({ "kind": "ListenerSet", "name": "x", "namespace": bits.namespace(2) }));
    }
    let backend =
        json!({ "name": "x", "namespace": bits.namespace(3), "port": if bits.is_set(4) { 80 } else { 81 } });
    let mut filters = json!([]);
    if bits.is_set(5) {
        let mirror = json!({ "name": "x", "namespace": bits.namespace(4), "port": 80 });
        filters = json!([{ "type": "RequestMirror", "requestMirror": { "backendRef": mirror } }]);
    }
    json!({
        "parentRefs": parents,
        "hostnames": if bits.is_set(6) { json!(["c.com", "e.com"]) } else { json!([]) },
        "rules": [
            { "name": if bits.is_set(7) { "first" } else { "other" }, "filters": filters },
            { "backendRefs": [backend] },
        ],
    })
}

fn grant(bits: Bits) -> Value {
    let group = controller::names::GATEWAY_GROUP;

    let kinds = ["Gateway", "HTTPRoute", "GRPCRoute", "ListenerSet"];
    let from = kinds.iter().zip(0..).filter(|(_, index)| bits.is_set(*index));
    let from: Vec<_> = from
        .flat_map(|(kind, _)| {
            NAMESPACES.map(|space| json!({ "group": group, "kind": kind, "namespace": space }))
        })
        .collect();
    let to = ["Secret", "Service", "ConfigMap"].iter().zip(4..).filter(|(_, index)| bits.is_set(*index));
    let to: Vec<_> = to.map(|(kind, _)| json!({ "group": "", "kind": kind })).collect();
    json!({ "from": from, "to": to })
}

fn backend_tls_policy(bits: Bits) -> Value {
    let mut target = json!({ "group": "", "kind": "Service", "name": "x" });
    if bits.is_set(0) {
        target["sectionName"] = json!("web");
    }
    let mut validation = json!({ "hostname": "x.com" });
    if bits.is_set(1) {
        validation["wellKnownCACertificates"] = json!("System");
    } else {
        let kind = if bits.is_set(2) { "Secret" } else { "ConfigMap" };
        validation["caCertificateRefs"] = json!([{ "group": "", "kind": kind, "name": "x" }]);
    }
    json!({ "targetRefs": [target], "validation": validation })
}

fn access_policy(bits: Bits) -> Value {
    let group = controller::names::GATEWAY_GROUP;

    let kinds = ["Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute"];
    let mut target = json!({ "group": group, "kind": bits.of_four(kinds), "name": "x" });
    if bits.is_set(6) && bits.is_set(1) {
        let kind = if bits.is_set(0) { Kind::Ingress } else { Kind::OpenShiftRoute };
        target = json!({ "group": kind.group(), "kind": kind.name(), "name": "x" });
    } else if bits.is_set(2) {
        target["sectionName"] = json!(bits.of_four(["a", "c", "first", "first"]));
    }
    let mut spec = json!({ "targetRefs": [target] });
    spec[if bits.is_set(3) { "defaults" } else { "overrides" }] = json!({ "version": bits.0 });
    if bits.is_set(4) && bits.is_set(5) {
        spec["defaults"] = json!({});
        spec["overrides"] = json!({});
    }
    spec
}

const HOSTS: [&str; 4] = ["c.com", "a.example.com", "*.example.com", "e.com"];

fn ingress(bits: Bits, object: &mut Value) {
    let path = if bits.is_set(2) { "/" } else { "/app" };
    let path_type = if bits.is_set(3) { "Prefix" } else { "Exact" };
    let port = if bits.is_set(4) { json!({ "name": "web" }) } else { json!({ "number": 81 }) };
    let backend = json!({ "service": { "name": "x", "port": port } });
    let host = bits.of_four(HOSTS);
    let mut spec = json!({
        "rules": [{ "host": host, "http": { "paths": [{ "path": path, "pathType": path_type, "backend": backend }] } }],
    });
    if bits.is_set(5) {
        spec["tls"] = json!([{ "hosts": [host], "secretName": "x" }]);
    }
    if bits.is_set(6) {
        spec["ingressClassName"] = json!("postern");
    }
    if bits.0 & 0x87 == 0x87 {
        spec = json!({ "ingressClassName": "postern", "defaultBackend": backend });
    }
    object["spec"] = spec;
    if bits.0 & 0x8c == 0x8c {
        object["metadata"]["annotations"] = json!({ "nginx.ingress.kubernetes.io/auth-url": "http://auth" });
    }
}

fn openshift_route(bits: Bits) -> Value {
    let host = bits.of_four(["c.com", "b.example.com", "a.example.com", "d.com"]);
    let mut spec = json!({
        "host": host,
        "path": if bits.is_set(2) { "/" } else { "/app" },
        "to": { "kind": "Service", "name": "x", "weight": 1 },
        "port": { "targetPort": if bits.is_set(3) { "web" } else { "more" } },
        "wildcardPolicy": if bits.0 & 0x13 == 0x13 { "Subdomain" } else { "None" },
    });
    if bits.is_set(4) {
        let termination = if bits.is_set(5) { "edge" } else { "reencrypt" };
        let policy = bits.of_four(["None", "Allow", "Redirect", "Redirect"]);
        spec["tls"] = json!({ "termination": termination, "insecureEdgeTerminationPolicy": policy });
        if bits.is_set(6) {
            spec["tls"]["externalCertificate"] = json!({ "name": "x" });
        }
        if bits.is_set(7) {
            let authorities = if bits.is_set(0) { CERTIFICATE } else { "none" };
            spec["tls"]["destinationCACertificate"] = json!(authorities);
        }
    }
    spec
}

/// The Gateway `x` of the first namespace serves Ingresses and Routes.
fn settings() -> Settings {
    Settings { ingress_gateway: Some(NamespacedName::new("one", "x")), ..Settings::new(CONTROLLER) }
}

fn event(key: &ObjectKey, version: Option<u8>, interner: &mut Interner) -> Event {
    match version {
        None => Event::Removed(key.clone()),
        Some(version) => Event::Set(objects::read(key.kind, &object(key, version), interner).unwrap()),
    }
}

fn from_scratch(objects: &BTreeMap<ObjectKey, u8>, interner: &mut Interner) -> World {
    let mut world = World::new(settings());
    world.apply(addresses());
    for (key, version) in objects.iter().rev() {
        world.apply(event(key, Some(*version), interner));
    }
    world.settle(1);
    world
}

fn addresses() -> Event {
    let assigned = vec!["192.0.2.1".to_owned()];
    Event::Addresses(
        NamespacedName::new("one", "x"),
        GatewayAddresses { assigned, ..GatewayAddresses::default() },
    )
}

/// What whoever applies the changes has.
fn follow(state: &mut DesiredState, changes: Changes) {
    state.gateways.retain(|at, _| !changes.gateways_removed.contains(at));
    state.plans.retain(|id, _| !changes.plans_removed.contains(id));
    state.upstreams.retain(|key, _| !changes.upstreams_removed.contains(key));
    state.endpoints.retain(|key, _| !changes.upstreams_removed.contains(key));
    state.gateways.extend(changes.gateways);
    state.plans.extend(changes.plans);
    state.upstreams.extend(changes.upstreams);
    state.endpoints.extend(changes.endpoints);
}

fn run(steps: &[Step], every: usize) -> (DesiredState, Vec<StatusDocument>) {
    let universe = universe();
    let mut interner = Interner::default();
    let mut world = World::new(settings());
    world.apply(addresses());
    let mut objects = BTreeMap::new();
    let mut followed = DesiredState::default();
    let mut written: BTreeMap<ObjectKey, StatusDocument> = BTreeMap::new();
    let mut noted: BTreeMap<ObjectKey, ObjectFaults> = BTreeMap::new();
    for (number, (index, version)) in steps.iter().enumerate() {
        let key = &universe[index % universe.len()];
        match version {
            Some(version) => objects.insert(key.clone(), *version),
            None => objects.remove(key),
        };
        if version.is_none() {
            written.remove(key);
        }
        world.apply(event(key, *version, &mut interner));
        if number % every == 0 {
            let changes = world.settle(1);
            written.extend(changes.statuses.iter().map(|one| (one.object.clone(), one.clone())));
            noted.extend(changes.faults.iter().map(|one| (one.object.clone(), one.clone())));
            follow(&mut followed, changes);
        }
    }
    let changes = world.settle(1);
    written.extend(changes.statuses.iter().map(|one| (one.object.clone(), one.clone())));
    noted.extend(changes.faults.iter().map(|one| (one.object.clone(), one.clone())));
    follow(&mut followed, changes);
    let state = world.desired_state();
    assert_eq!(followed, state, "the changes do not lead to the state");
    let fresh = from_scratch(&objects, &mut interner);
    assert_eq!(state, fresh.desired_state(), "the state is not the one from scratch");
    let statuses = fresh.statuses(1);
    assert_eq!(world.statuses(1), statuses, "the statuses are not those from scratch");
    assert_eq!(world.faults(), fresh.faults(), "the faults are not those from scratch");
    let noted: Vec<_> = noted.into_values().filter(|one| !one.faults.is_empty()).collect();
    assert_eq!(noted, fresh.faults(), "the changes do not lead to the faults");
    for status in &statuses {
        assert_eq!(written.get(&status.object), Some(status), "a status that differs was not in the changes");
    }
    for plan in state.plans.values() {
        let RuleAction::Forward(backends) = &plan.action else { continue };
        for (backend, attachment) in
            backends.iter().flat_map(|one| plan.attachments.iter().map(move |at| (one, at)))
        {
            let BackendTarget::Upstream(key) = &backend.target else { continue };
            let shown = key.shown(&attachment.client_certificate);
            assert!(shown.is_none_or(|key| state.upstreams.contains_key(&*key)), "{key:?} is not there");
        }
    }
    (state, statuses)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_state_is_that_from_scratch(
        steps in proptest::collection::vec((0..37_usize, proptest::option::weighted(0.85, any::<u8>())), 1..90),
        every in 1..6_usize,
    ) {
        run(&steps, every);
    }
}

/// The generated clusters are worth the comparison: routes are served, policies apply, references
/// fail.
#[test]
fn the_generated_clusters_are_not_empty() {
    let universe = universe();
    let (mut plans, mut upstreams, mut applied, mut tls) = (0, 0, 0, 0);
    let (mut ingresses, mut routes, mut certificates, mut identities) = (0, 0, 0, 0);
    for version in 0..=255_u8 {
        let steps: Vec<Step> = (0..universe.len())
            .map(|index| {
                let mixed =
                    version.wrapping_mul(37).wrapping_add(u8::try_from(index).unwrap().wrapping_mul(101));
                (index, Some(if index == 0 { 0 } else { mixed }))
            })
            .collect();
        let (state, statuses) = run(&steps, 5);
        plans += usize::from(!state.plans.is_empty());
        upstreams += usize::from(!state.upstreams.is_empty());
        tls += usize::from(state.upstreams.values().any(|upstream| upstream.tls.is_some()));
        identities += usize::from(state.upstreams.values().any(|one| one.client_certificate.is_some()));
        let policies = state.plans.values().flat_map(|plan| plan.attachments.iter());
        applied +=
            usize::from(policies.into_iter().any(|one| matches!(one.policy, PolicyOutcome::Applied(_))));
        assert!(!statuses.is_empty());
        let has_plan = |kind: Kind| state.plans.keys().any(|id| id.route.kind == kind);
        ingresses += usize::from(has_plan(Kind::Ingress));
        routes += usize::from(has_plan(Kind::OpenShiftRoute));
        let mut sockets = state.gateways.values().flat_map(|gateway| &gateway.sockets);
        certificates += usize::from(sockets.any(|socket| !socket.certificates.is_empty()));
    }
    let counts = [plans, upstreams, applied, tls, ingresses, routes];
    assert!(certificates > 0, "no certificate of an Ingress");
    assert!(identities > 0, "no client certificate for an upstream");
    assert!(counts.iter().all(|count| *count > 15), "too few of 256: {counts:?}");
}
