//! Measures memory and time per change, from an object to the next version of the routing:
//!
//!     cargo run --release -p cluster --example measure_routes -- [routes] [gateways]
//!
//! First with a host per route, then with all routes of a Gateway on one host, as notebooks are.
//! Prints resident memory from `/proc/self/statm`, the time of the first version, and quantiles of
//! the time from an event to its version.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a command for people")]

#[path = "../../controller/examples/crowd/mod.rs"]
mod crowd;

use std::path::Path;
use std::time::Instant;

use auth::time::Timestamp;
use cluster::{Compiler, CompilerSettings, DefaultPolicy, FileBase, RouteMetricsMode};
use config::{ConfigSource, NoFiles};
use controller::names::{Interner, Kind};
use controller::objects;
use controller::settings::Settings;
use controller::world::{Event, World};
use http_engine::config::ListenAddress;
use http_engine::tls::policy::TlsPolicy;
use serde_json::{Value, json};

use self::crowd::{CONTROLLER, Routes, class, gateway, memory, meta};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const FILE: &str = r#"
[[listener]]
name = "main"
address = "127.0.0.1:0"
[[issuer]]
name = "corp"
issuer = "https://id.example"
audiences = ["app"]
[[upstream]]
name = "none"
endpoints = ["http://127.0.0.1:1"]
[[route]]
name = "none"
path = { exact = "/none" }
upstream = "none"
public = true
"#;

/// How the routes of a Gateway are distinguished.
#[derive(Clone, Copy)]
enum Shape {
    HostPerRoute,
    PathPerRoute,
}

fn policy(number: usize) -> Value {
    let target = json!({ "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw" });
    json!({
        "metadata": meta(&format!("ns-{number}"), "policy"),
        "spec": { "targetRefs": [target], "defaults": { "allow": [{ "groups": { "any": ["staff", "team"] } }] } },
    })
}

struct Measure {
    shape: Shape,
    crowd: Routes,
    world: World,
    interner: Interner,
    compiler: Compiler,
}

impl Measure {
    fn new(shape: Shape, gateways: usize) -> Self {
        let source = ConfigSource { name: "file", text: FILE, base: Path::new("/"), files: &NoFiles };
        let loaded = config::load(source, NOW, 1).unwrap_or_else(|refused| panic!("{}", refused.report));
        let settings = CompilerSettings {
            default_policy: DefaultPolicy::Deny,
            listener: (**loaded.config.listeners.iter().next().unwrap()).clone(),
            tls: TlsPolicy::default(),
            zone: None,
            route_metrics: RouteMetricsMode::Off,
        };
        let compiler = Compiler::new(
            settings,
            FileBase { checker: loaded.route_checker, routing: loaded.config.routing },
            NOW,
        )
        .unwrap();
        let world = World::new(Settings::new(CONTROLLER));
        Self {
            shape,
            crowd: Routes { gateways, parent: "Gateway" },
            world,
            interner: Interner::default(),
            compiler,
        }
    }

    fn set(&mut self, kind: Kind, object: &Value) {
        self.world.apply(Event::Set(objects::read(kind, object, &mut self.interner).unwrap()));
    }

    fn route(&self, number: usize, version: usize) -> Value {
        let (host, path) = match self.shape {
            Shape::HostPerRoute => (format!("app-{number}.example.com"), "/".to_owned()),
            Shape::PathPerRoute => ("apps.example.com".to_owned(), format!("/notebook/team/nb-{number}")),
        };
        self.crowd.route(number, (&host, &path), version)
    }

    /// The next version; answers the number of faults.
    fn version(&mut self) -> usize {
        let changes = self.world.settle(1);
        let address = |socket: &controller::plan::SocketId| {
            Some(ListenAddress::Ip(([127, 0, 0, 1], socket.port).into()))
        };
        let compiled = self.compiler.apply(&changes, &address, NOW);
        compiled.rules.len() + compiled.sockets.len() + compiled.upstreams.len()
    }

    /// Times of changes, each read, applied and compiled by itself.
    fn changes(&mut self, name: &str, kind: Kind, objects: &[Value]) {
        crowd::changes(
            self,
            name,
            objects.len(),
            |number| objects[number].clone(),
            |measure, object| {
                measure.set(kind, object);
                assert_eq!(measure.version(), 0);
            },
        );
    }
}

fn main() {
    let mut arguments = crowd::arguments();
    let routes = arguments.next().unwrap_or(40_000);
    let gateways = arguments.next().unwrap_or(2_500);
    for (shape, routes, gateways) in
        [(Shape::HostPerRoute, routes, gateways), (Shape::PathPerRoute, routes.min(5_000), 1)]
    {
        let before = memory();
        let mut measure = Measure::new(shape, gateways);
        measure.set(Kind::GatewayClass, &class());
        for number in 0..gateways {
            measure.set(Kind::Gateway, &gateway(number));
            measure.set(Kind::AccessPolicy, &policy(number));
        }
        for number in 0..routes {
            measure.set(Kind::HttpRoute, &measure.route(number, 0));
            measure.set(Kind::Service, &measure.crowd.service(number));
            measure.set(Kind::EndpointSlice, &measure.crowd.slice(number, number));
        }
        println!("{routes} routes in {gateways} Gateways: {} MiB more with the objects", memory() - before);
        let begin = Instant::now();
        assert_eq!(measure.version(), 0);
        println!(
            "first version in {} ms, {} MiB more with it",
            begin.elapsed().as_millis(),
            memory() - before
        );
        let changed: Vec<Value> = (0..2_000).map(|number| measure.route(number, 1)).collect();
        measure.changes("a route", Kind::HttpRoute, &changed);
        let moved: Vec<Value> = (0..2_000).map(|number| measure.crowd.slice(number, number + 1)).collect();
        measure.changes("endpoints", Kind::EndpointSlice, &moved);
    }
}
