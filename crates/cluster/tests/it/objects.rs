//! A cluster without an API server: manifests become objects, and what follows from them is put in
//! force at a gateway.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use auth::time::Timestamp;
use cluster::{Compiled, Compiler, CompilerSettings, DefaultPolicy, FileBase, RouteMetricsMode, check_match};
use controller::names::{Interner, Kind, Name, ObjectKey};
use controller::objects;
use controller::plan::SocketId;
use controller::settings::Settings;
use controller::world::{Event, World};
use dataplane::harness::{Fixture, Response, Setup, TestClient, Upstream, load_all, now};
use dataplane::ports;
use gateway::config::{Listener, TrustedProxies};
use gateway::server::{GatewayListeners, RoutesUpdate};
use http_engine::config::ListenAddress;
use serde_json::{Value, json};

pub(crate) struct Cluster {
    fixture: Fixture,
    world: World,
    interner: Interner,
    generations: BTreeMap<ObjectKey, i64>,
    /// The last status document of each object.
    statuses: BTreeMap<ObjectKey, Value>,
    compiler: Compiler,
    /// Where the ports 80 and 443 of the Gateways are served.
    address: SocketAddr,
    secure: SocketAddr,
    created: i64,
    answered: Cell<usize>,
}

/// A Service with port 80 and one pod.
pub(crate) fn manifest_of_service(name: &str, pod: SocketAddr) -> String {
    format!(
        "
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
kind: EndpointSlice
metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: http, port: {port}}}]
endpoints: [{{addresses: ['{ip}'], conditions: {{ready: true}}}}]
",
        port = pod.port(),
        ip = pod.ip(),
    )
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::with(Settings::new("postern.dev/gateway-controller"))
    }

    pub(crate) fn with(controller: Settings) -> Self {
        Self::with_proxies(controller, None)
    }

    /// With proxies in front of all listeners.
    pub(crate) fn with_proxies(controller: Settings, trusted_proxies: Option<TrustedProxies>) -> Self {
        let fixture = Fixture::with(Setup::default(), Upstream::start());
        let loaded = load_all(fixture.dir.path(), &file(&fixture));
        let config = fixture.gateway().config();
        let listener = config.listeners.iter().next().expect("a listener");
        let settings = CompilerSettings {
            default_policy: DefaultPolicy::Deny,
            listener: Listener { trusted_proxies, ..(**listener).clone() },
            tls: http_engine::tls::policy::TlsPolicy::default(),
            zone: None,
            route_metrics: RouteMetricsMode::Labeled,
        };
        let time = Timestamp::from_secs(now());
        let compiler = Compiler::new(
            settings,
            FileBase { checker: loaded.route_checker, routing: config.routing.clone() },
            time,
        );
        let mut cluster = Self {
            fixture,
            world: World::new(Settings { match_check: check_match, ..controller }),
            interner: Interner::default(),
            generations: BTreeMap::new(),
            statuses: BTreeMap::new(),
            compiler: compiler.expect("a compiler"),
            address: ports::free().parse().expect("an address"),
            secure: ports::free().parse().expect("an address"),
            created: 1_000_000,
            answered: Cell::new(0),
        };
        cluster.world.apply(Event::BundleVersion(Some(Name::from("v1.6.3"))));
        cluster.apply(
            "
kind: GatewayClass
metadata: {name: postern}
spec: {controllerName: postern.dev/gateway-controller}
---
kind: Namespace
metadata: {name: team, labels: {kubernetes.io/metadata.name: team}}
",
        );
        cluster
    }

    /// Creates or replaces objects, in the namespace `team`.
    pub(crate) fn apply(&mut self, manifests: &str) {
        for manifest in manifests.split("\n---\n").filter(|text| !text.trim().is_empty()) {
            let mut object: Value = serde_saphyr::from_str(manifest).expect(manifest);
            let kind = kind(object["kind"].as_str().expect("a kind"));
            if kind.is_namespaced() {
                object["metadata"]["namespace"] = json!("team");
            }
            self.created += 1;
            let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
            let generation = self.generations.entry(ObjectKey::new(kind, "team", &*name)).or_default();
            *generation += 1;
            object["metadata"]["generation"] = json!(*generation);
            object["metadata"]["creationTimestamp"] = json!(objects::time_text(self.created));
            let object = objects::read(kind, &object, &mut self.interner).expect("an object");
            self.world.apply(Event::Set(object));
        }
    }

    pub(crate) fn remove(&mut self, of: &str, name: &str) {
        self.world.apply(Event::Removed(ObjectKey::new(kind(of), "team", name)));
    }

    /// Puts in force what follows from the objects. Answers what is not carried out.
    pub(crate) fn publish(&mut self) -> String {
        let mut changes = self.world.derive();
        let time = Timestamp::from_secs(now());
        let addresses = (self.address, self.secure);
        let compiled = self.compiler.apply(&changes, &|port| at(port, addresses), time);
        let faults: Vec<_> = compiled.rules.iter().map(ToString::to_string).collect();
        self.world.apply(Event::Reported(compiled.report(Some(&changes))));
        self.world.derive_statuses(self.created, &mut changes);
        for document in changes.statuses {
            let body = serde_json::from_str(&document.body).expect("a document");
            self.statuses.insert(document.object, body);
        }
        let Compiled { routing, listeners, .. } = compiled;
        let update = RoutesUpdate {
            generation: self.fixture.gateway().config().generation,
            routing,
            listeners: listeners.map_or(GatewayListeners::Same, GatewayListeners::Replaced),
        };
        let pending = self.fixture.gateway().update_routes(update).expect("the generation in force");
        assert!(pending.refused.is_empty(), "{:?}", pending.refused);
        pending.wait().expect("the workers serve it");
        faults.join("\n")
    }

    /// `status reason: message` of a condition in the last status document of an object: of its first
    /// parent or ancestor.
    pub(crate) fn condition(&self, of: &str, name: &str, of_type: &str) -> String {
        let status = &self.statuses[&ObjectKey::new(kind(of), "team", name)]["status"];
        let list =
            ["parents", "ancestors"].into_iter().find_map(|list| status[list][0]["conditions"].as_array());
        let list = list.or_else(|| status["conditions"].as_array());
        let found = list.into_iter().flatten().find(|one| one["type"] == of_type);
        said(found)
    }

    /// A condition of the first listener of a Gateway.
    pub(crate) fn listener_condition(&self, gateway: &str, of_type: &str) -> String {
        let status = &self.statuses[&ObjectKey::new(Kind::Gateway, "team", gateway)]["status"];
        let list = status["listeners"][0]["conditions"].as_array();
        said(list.into_iter().flatten().find(|one| one["type"] == of_type))
    }

    /// Loads the configuration file again, with the routes of the cluster.
    pub(crate) fn reload(&mut self) {
        let mut loaded = load_all(self.fixture.dir.path(), &file(&self.fixture));
        let base = FileBase { checker: loaded.route_checker, routing: loaded.config.routing.clone() };
        let addresses = (self.address, self.secure);
        let time = Timestamp::from_secs(now());
        let compiled = self.compiler.rebase(base, &|port| at(port, addresses), time);
        let (compiled, _) = compiled.expect("a sound file");
        let of_gateways = compiled.listeners.into_iter().flatten();
        loaded.config.listeners = loaded.config.listeners.iter().cloned().chain(of_gateways).collect();
        loaded.config.routing = compiled.routing;
        self.fixture.gateway().reload(loaded.config).expect("it is in force");
    }

    pub(crate) fn connect(&self) -> TestClient {
        TestClient::connect(self.address)
    }

    /// Where port 443 of the Gateways is served.
    pub(crate) fn secure(&self) -> SocketAddr {
        self.secure
    }

    /// Time limits of a rule until the head of a response, and of the whole request.
    pub(crate) fn limits(&self, rule: &str) -> (Option<Duration>, Option<Duration>) {
        let config = self.fixture.gateway().config();
        let route = config.routing.routes().find(|route| *route.name == *rule).expect("a rule");
        (route.response_header_timeout, route.request_timeout)
    }

    pub(crate) fn is_open(&self) -> bool {
        std::net::TcpStream::connect(self.address).is_ok()
    }

    pub(crate) fn get(&self, host: &str, path: &str, fields: &str) -> Response {
        let response = get(self.address, host, path, fields);
        self.answered.set(self.answered.get() + usize::from(response.status == 200));
        response
    }

    /// The text of a scrape.
    pub(crate) fn metrics(&self) -> String {
        self.fixture.metrics.render(telemetry::metrics::Format::Text)
    }

    /// The value of a series.
    pub(crate) fn value(&self, series: &str) -> Option<String> {
        let text = self.metrics();
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
    }

    /// Number of requests that a pod has answered.
    pub(crate) fn answered(&self) -> usize {
        self.answered.get()
    }

    /// The field with a token of somebody in the group `dev`.
    pub(crate) fn bearer(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.fixture.issuer.token(|_| {}))
    }
}

/// `status reason: message` of a condition.
fn said(condition: Option<&Value>) -> String {
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    let said = |one| format!("{} {}: {}", text(one, "status"), text(one, "reason"), text(one, "message"));
    condition.map(said).unwrap_or_default()
}

/// A response over a connection of its own.
pub(crate) fn get(address: SocketAddr, host: &str, path: &str, fields: &str) -> Response {
    let mut client = TestClient::connect(address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n"));
    client.response()
}

/// The configuration file of the fixture.
fn file(fixture: &Fixture) -> String {
    Setup::default().file(fixture.dir.path(), fixture.upstream.address)
}

fn kind(name: &str) -> Kind {
    Kind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or_else(|| panic!("no kind {name}"))
}

fn at(socket: &SocketId, (plain, secure): (SocketAddr, SocketAddr)) -> Option<ListenAddress> {
    match socket.port {
        80 => Some(ListenAddress::Ip(plain)),
        443 => Some(ListenAddress::Ip(secure)),
        _ => None,
    }
}
