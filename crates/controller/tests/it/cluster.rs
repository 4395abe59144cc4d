//! A cluster without a network: objects, an API server that keeps them, and the world that sees it.
//!
//! Owns: generations, creation times, and writing status documents back as the API server would.
//! Does not own: the cases.
//! Flow: manifests → events → changes → status written → events, until nothing differs.

use std::collections::BTreeMap;

use controller::known::GatewayAddresses;
use controller::names::{Interner, Kind, Name, NamespacedName, ObjectKey};
use controller::objects;
use controller::plan::{
    BackendTarget, Changes, FilterPlan, PathMatch, PolicyOutcome, RoutePlan, RuleAction, StatusDocument,
    WeightedBackend,
};
use controller::settings::Settings;
use controller::world::{Event, World};
use serde_json::{Value, json};

/// The controller that the class `postern` belongs to.
pub(crate) const CONTROLLER: &str = "postern.dev/gateway-controller";

/// A private key in PEM, in base64: another one than that of [`tls_secret`].
pub(crate) const OTHER_KEY: &str =
    "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1BRT0KLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo=";

pub(crate) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) objects: BTreeMap<ObjectKey, Value>,
    interner: Interner,
    now: i64,
}

impl Cluster {
    /// The class `postern` and the namespaces `infra`, `team-a` (label `team: a`) and `team-b`.
    pub(crate) fn new() -> Self {
        Self::with(Settings::new(CONTROLLER))
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let (world, objects) = (World::new(settings), BTreeMap::new());
        let mut cluster = Self { world, objects, interner: Interner::default(), now: 1_000_000 };
        cluster.world.apply(Event::BundleVersion(Some(Name::from("v1.6.3"))));
        cluster.apply(
            "
kind: GatewayClass
metadata: {name: postern}
spec: {controllerName: postern.dev/gateway-controller}
---
kind: Namespace
metadata: {name: infra, labels: {kubernetes.io/metadata.name: infra}}
---
kind: Namespace
metadata: {name: team-a, labels: {kubernetes.io/metadata.name: team-a, team: a}}
---
kind: Namespace
metadata: {name: team-b, labels: {kubernetes.io/metadata.name: team-b, team: b}}
",
        );
        cluster
    }

    /// Creates or replaces objects. Each manifest is created a second after the one before.
    pub(crate) fn apply(&mut self, manifests: &str) {
        for manifest in manifests.split("\n---\n").filter(|text| !text.trim().is_empty()) {
            let object: Value = serde_saphyr::from_str(manifest).expect(manifest);
            self.put(object);
        }
    }

    pub(crate) fn put(&mut self, mut object: Value) {
        let name = object["kind"].as_str().unwrap();
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).expect(name);
        if object["metadata"]["namespace"].is_null() && kind.is_namespaced() {
            object["metadata"]["namespace"] = json!("infra");
        }
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey::new(kind, text("namespace"), text("name"));
        self.now += 1;
        let former = self.objects.get(&key);
        let generation = former.map_or(1, |former| {
            let last = former["metadata"]["generation"].as_i64().unwrap();
            if former["spec"] == object["spec"] { last } else { last + 1 }
        });
        let created = former.map(|former| former["metadata"]["creationTimestamp"].clone());
        let created = created.or(object["metadata"].get("creationTimestamp").cloned());
        object["metadata"]["creationTimestamp"] =
            created.unwrap_or_else(|| json!(objects::time_text(self.now)));
        object["metadata"]["generation"] = json!(generation);
        object["metadata"]["resourceVersion"] = json!(self.now.to_string());
        if object["status"].is_null() {
            object["status"] = former.map_or(json!({}), |former| former["status"].clone());
        }
        self.world.apply(Event::Set(objects::read(kind, &object, &mut self.interner).unwrap()));
        self.objects.insert(key, object);
    }

    pub(crate) fn remove(&mut self, kind: Kind, name: &str) {
        let key = key(kind, name);
        assert!(self.objects.remove(&key).is_some(), "{key} does not exist");
        self.world.apply(Event::Removed(key));
    }

    pub(crate) fn addresses(&mut self, gateway: &str, assigned: &[&str], unusable: &[&str]) {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let addresses =
            GatewayAddresses { assigned: texts(assigned), unusable: texts(unusable), problem: None };
        self.world.apply(Event::Addresses(key(Kind::Gateway, gateway).at, addresses));
    }

    /// Settles, and writes the status documents. What comes back from the API server changes nothing.
    pub(crate) fn policy_check_changed(&mut self) {
        self.world.apply(Event::PolicyCheckChanged);
    }

    pub(crate) fn settle(&mut self) -> Changes {
        self.now += 1;
        let changes = self.world.settle(self.now);
        for document in &changes.statuses {
            self.write(document);
        }
        let echo = self.world.settle(self.now + 1);
        assert!(echo.is_empty(), "status alone changed the state: {echo:?}");
        assert_eq!(echo.statuses, [], "status is not stable");
        assert_eq!(echo.recomputed.routes, 0, "status alone made routes stale");
        assert_eq!(echo.recomputed.gateways, 0, "status alone made Gateways stale");
        changes
    }

    fn write(&mut self, document: &StatusDocument) {
        let mut object = self.objects[&document.object].clone();
        let body: Value = serde_json::from_str(&document.body).unwrap();
        assert_eq!(body["apiVersion"], document.object.kind.api_version());
        assert_eq!(body["kind"], document.object.kind.name());
        assert_eq!(body["metadata"]["name"], document.object.at.name.as_str());
        if let Some(version) = body["metadata"].get("resourceVersion") {
            assert_eq!(*version, object["metadata"]["resourceVersion"], "of another version");
        }
        let status = body["status"].as_object().unwrap().clone();
        for (field, value) in status {
            object["status"][field.as_str()] = value;
        }
        self.put(object);
    }

    /// `status reason` of a condition of an object, such as `True Accepted`. `-` if it has none.
    pub(crate) fn condition(&self, kind: Kind, name: &str, of_type: &str) -> String {
        condition(&self.status(kind, name)["conditions"], of_type)
    }

    pub(crate) fn status(&self, kind: Kind, name: &str) -> &Value {
        &self.objects[&key(kind, name)]["status"]
    }

    /// `status reason` of a condition of a listener.
    pub(crate) fn listener(&self, kind: Kind, name: &str, listener: &str, of_type: &str) -> String {
        condition(&self.listener_status(kind, name, listener)["conditions"], of_type)
    }

    pub(crate) fn listener_status(&self, kind: Kind, name: &str, listener: &str) -> &Value {
        let listeners = self.status(kind, name)["listeners"].as_array().expect("no listener has a status");
        listeners.iter().find(|one| one["name"] == listener).expect("the listener has no status")
    }

    /// `status reason` of a condition of a route at its parent number `index`.
    pub(crate) fn parent(&self, kind: Kind, name: &str, index: usize, of_type: &str) -> String {
        condition(&self.status(kind, name)["parents"][index]["conditions"], of_type)
    }

    /// `status reason` of a condition of a policy at its ancestor number `index`.
    pub(crate) fn ancestor(&self, kind: Kind, name: &str, index: usize, of_type: &str) -> String {
        condition(&self.status(kind, name)["ancestors"][index]["conditions"], of_type)
    }

    /// The message of the condition `of_type` in a list.
    pub(crate) fn message(conditions: &Value, of_type: &str) -> String {
        let list = conditions.as_array().unwrap();
        let one = list.iter().find(|one| one["type"] == of_type).unwrap();
        one["message"].as_str().unwrap().to_owned()
    }

    /// The plans of an HTTPRoute, in order.
    pub(crate) fn plans(&self, name: &str) -> Vec<RoutePlan> {
        self.plans_of(Kind::HttpRoute, name)
    }

    /// The plans of an object, in order.
    pub(crate) fn plans_of(&self, kind: Kind, name: &str) -> Vec<RoutePlan> {
        let route = key(kind, name);
        let state = self.world.desired_state();
        let plans = state.plans.into_values().filter(|plan| plan.id.route == route);
        plans.map(|plan| (*plan).clone()).collect()
    }

    /// What is served of an Ingress or Route. Each line is a rule: path, response, and for each listener
    /// its section, hosts and policy.
    pub(crate) fn served(&self, kind: Kind, name: &str) -> Vec<String> {
        self.plans_of(kind, name).iter().map(rule_text).collect()
    }

    /// The reasons of the faults of an object that its status has no room for.
    pub(crate) fn faults(&self, kind: Kind, name: &str) -> Vec<&'static str> {
        let all = self.world.faults();
        let own = all.iter().filter(|one| one.object == key(kind, name)).flat_map(|one| &one.faults);
        own.map(|fault| fault.reason).collect()
    }

    /// The messages of these faults.
    pub(crate) fn fault_messages(&self, kind: Kind, name: &str) -> String {
        let all = self.world.faults();
        let own = all.iter().filter(|one| one.object == key(kind, name)).flat_map(|one| &one.faults);
        own.map(|fault| fault.message.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// `port host source` of the certificates of Ingresses and Routes on the Gateway `gw`.
    pub(crate) fn certificates(&self) -> Vec<String> {
        let state = self.world.desired_state();
        let plan = &state.gateways[&key(Kind::Gateway, "gw").at];
        let of_socket = |socket: &controller::plan::SocketPlan| {
            let port = socket.id.port;
            let one =
                |one: &controller::plan::HostCertificate| format!("{port} {} {}", one.host, one.pair.secret);
            socket.certificates.iter().map(one).collect::<Vec<_>>()
        };
        plan.sockets.iter().flat_map(of_socket).collect()
    }

    /// `listener: host host` for each listener that takes an HTTPRoute.
    pub(crate) fn attached(&self, name: &str) -> Vec<String> {
        let plans = self.plans(name);
        let attachments = plans.first().map(|plan| plan.attachments.clone()).unwrap_or_default();
        let one = |attachment: &controller::plan::Attachment| {
            let hosts = attachment.hosts.as_deref().map(|hosts| hosts.join(" "));
            format!("{}: {}", attachment.listener.section, hosts.as_deref().unwrap_or("any"))
        };
        attachments.iter().map(one).collect()
    }
}

fn rule_text(plan: &RoutePlan) -> String {
    let path = match &plan.matches.path {
        PathMatch::Exact(path) => format!("={path}"),
        PathMatch::Prefix(path) => path.to_string(),
    };
    let response = match &plan.action {
        RuleAction::NotFound => "404".to_owned(),
        RuleAction::Fail => "500".to_owned(),
        RuleAction::Redirect => match &plan.filters[..] {
            [FilterPlan::Redirect(redirect)] => {
                let port = redirect.port.map(|port| format!(":{port}")).unwrap_or_default();
                format!("{}{}{port}", redirect.status, redirect.scheme.as_deref().unwrap_or_default())
            }
            other => panic!("{other:?}"),
        },
        RuleAction::Forward(backends) => {
            let one = |backend: &WeightedBackend| match &backend.target {
                BackendTarget::Upstream(key) => {
                    let tls = if key.reencrypt.is_some() { "!" } else { "" };
                    format!("{}:{}{tls}*{}", key.service.name, key.port, backend.weight)
                }
                BackendTarget::Invalid(_) => format!("500*{}", backend.weight),
            };
            backends.iter().map(one).collect::<Vec<_>>().join("+")
        }
    };
    let place = |attachment: &controller::plan::Attachment| {
        let hosts = attachment.hosts.as_deref().map(|hosts| hosts.join(","));
        let policy = match &attachment.policy {
            PolicyOutcome::None => "closed".to_owned(),
            PolicyOutcome::Invalid(at) => format!("!{}", at.name),
            PolicyOutcome::Applied(plan) => plan.policy.name.as_str().to_owned(),
            PolicyOutcome::Exempt => "exempt".to_owned(),
        };
        format!("{}({}) {policy}", attachment.listener.section, hosts.as_deref().unwrap_or("any"))
    };
    let places: Vec<_> = plan.attachments.iter().map(place).collect();
    format!("{path} -> {response} @ {}", places.join(", "))
}

/// The key of an object from `namespace/name`, or from a name in `infra`.
pub(crate) fn key(kind: Kind, name: &str) -> ObjectKey {
    if !kind.is_namespaced() {
        return ObjectKey::new(kind, "", name);
    }
    let (namespace, name) = name.split_once('/').unwrap_or(("infra", name));
    NamespacedName::new(namespace, name).of(kind)
}

fn condition(conditions: &Value, of_type: &str) -> String {
    let list = conditions.as_array().map(|list| &list[..]).unwrap_or_default();
    match list.iter().find(|one| one["type"] == of_type) {
        None => "-".to_owned(),
        Some(one) => format!("{} {}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap()),
    }
}

/// A Gateway in `infra` with one listener `http` on port 80 that takes routes of all namespaces.
pub(crate) fn gateway(name: &str) -> String {
    format!(
        "
kind: Gateway
metadata: {{name: {name}}}
spec:
  gatewayClassName: postern
  listeners:
  - {{name: http, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {{from: All}}}}}}
"
    )
}

/// A Service in `infra` with port 8080, and a slice with one ready endpoint.
pub(crate) fn service(name: &str) -> String {
    format!(
        "
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{name: web, port: 8080}}]}}
---
kind: EndpointSlice
metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: web, port: 3000}}]
endpoints: [{{addresses: [10.0.0.1], conditions: {{ready: true}}}}]
"
    )
}

/// A cluster whose Gateway `gw` serves Ingresses and Routes of all namespaces, on the listeners `http`
/// and `https`, with a Service `web` in each namespace of a team.
pub(crate) fn ingress_cluster() -> Cluster {
    let gateway = Some(NamespacedName::new("infra", "gw"));
    let mut cluster = Cluster::with(Settings { ingress_gateway: gateway, ..Settings::new(CONTROLLER) });
    cluster.put(tls_secret("wild"));
    cluster.apply(
        "
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: postern
  allowedListeners: {namespaces: {from: All}}
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
  - {name: https, port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: All}}, tls: {certificateRefs: [{name: wild}]}}
---
kind: IngressClass
metadata: {name: postern}
spec: {controller: postern.dev/gateway-controller}
",
    );
    for namespace in ["team-a", "team-b"] {
        cluster
            .apply(&service("web").replace("metadata: {", &format!("metadata: {{namespace: {namespace}, ")));
    }
    cluster.settle();
    cluster
}

/// A Secret in `infra` with a certificate and a key.
pub(crate) fn tls_secret(name: &str) -> Value {
    json!({
        "kind": "Secret",
        "metadata": { "name": name },
        "type": "kubernetes.io/tls",
        // "-----BEGIN CERTIFICATE-----…" and "-----BEGIN PRIVATE KEY-----…"
        "data": {
            "tls.crt": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BQT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=",
            "tls.key": "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1BQT0KLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo=",
        },
    })
}

/// A ConfigMap in `infra` with a certificate authority.
pub(crate) fn ca_bundle(name: &str) -> Value {
    json!({ "kind": "ConfigMap", "metadata": { "name": name }, "data": { "ca.crt": CERTIFICATE } })
}
