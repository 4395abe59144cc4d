//! Measures memory and time per change with many objects:
//!
//!     cargo run --release -p controller --example measure_world -- [routes] [gateways] [sets]
//!
//! With `sets` there is one Gateway with that many ListenerSets, instead of many Gateways.
//!
//! Prints resident memory from `/proc/self/statm` before and after, the time of the first settling,
//! and quantiles of the time from an event to its changes.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a command for people")]

#[path = "crowd/mod.rs"]
mod crowd;

use std::time::Instant;

use controller::names::{Interner, Kind};
use controller::objects;
use controller::settings::Settings;
use controller::world::{Event, World};
use serde_json::{Value, json};

use self::crowd::{CONTROLLER, Routes, class, gateway, memory, meta};

/// A ListenerSet for the Gateway number `gateways`.
fn listener_set(number: usize, gateways: usize, port: u16) -> Value {
    json!({
        "metadata": meta(&format!("ns-{number}"), "gw"),
        "spec": {
            "parentRef": { "name": "gw", "namespace": format!("ns-{gateways}") },
            "listeners": [{ "name": "http", "hostname": format!("*.team-{number}.com"), "port": port, "protocol": "HTTP" }],
        },
    })
}

struct Measure {
    world: World,
    interner: Interner,
}

impl Measure {
    fn set(&mut self, kind: Kind, object: &Value) {
        self.world.apply(Event::Set(objects::read(kind, object, &mut self.interner).unwrap()));
    }

    /// Times of changes, each read, applied and settled by itself.
    fn changes(&mut self, name: &str, kind: Kind, count: usize, object: impl Fn(usize) -> Value) {
        crowd::changes(self, name, count, object, |measure, object| {
            measure.set(kind, object);
            assert!(!measure.world.settle(2).is_empty());
        });
    }
}

fn main() {
    let mut arguments = crowd::arguments();
    let routes = arguments.next().unwrap_or(40_000);
    let gateways = arguments.next().unwrap_or(2_500);
    let is_set = arguments.next().is_some();
    let crowd = Routes { gateways, parent: if is_set { "ListenerSet" } else { "Gateway" } };
    let route = |number: usize, path: &str| {
        let host = format!("app-{number}.team-{}.com", number % gateways);
        crowd.route(number, (&host, path), 0)
    };
    let mut measure = Measure { world: World::new(Settings::new(CONTROLLER)), interner: Interner::default() };
    let before = memory();
    measure.set(Kind::GatewayClass, &class());
    let begin = Instant::now();
    if is_set {
        let mut shared = gateway(gateways);
        shared["spec"]["allowedListeners"] = json!({ "namespaces": { "from": "All" } });
        measure.set(Kind::Gateway, &shared);
    }
    for number in 0..gateways {
        if is_set {
            measure.set(Kind::ListenerSet, &listener_set(number, gateways, 80));
        } else {
            measure.set(Kind::Gateway, &gateway(number));
        }
    }
    for number in 0..routes {
        measure.set(Kind::HttpRoute, &route(number, "/"));
        measure.set(Kind::Service, &crowd.service(number));
        measure.set(Kind::EndpointSlice, &crowd.slice(number, number));
    }
    println!(
        "{routes} routes in {gateways} Gateways: read and applied in {} ms",
        begin.elapsed().as_millis()
    );
    println!("memory: {before} MiB before, {} MiB with the objects", memory());
    let begin = Instant::now();
    let changes = measure.world.settle(1);
    println!("settled in {} ms: {:?}", begin.elapsed().as_millis(), changes.recomputed);
    println!("memory: {} MiB with the state and its changes", memory());
    let bytes: usize = changes.statuses.iter().map(|status| status.body.len()).sum();
    println!("{} status documents, {} MiB of text", changes.statuses.len(), bytes >> 20);
    drop(changes);
    measure.changes("a route", Kind::HttpRoute, 2_000, |number| route(number, "/changed"));
    measure.changes("endpoints", Kind::EndpointSlice, 2_000, |number| crowd.slice(number, number + 1));
    if is_set {
        measure.changes("a ListenerSet", Kind::ListenerSet, 200, |number| listener_set(number, gateways, 81));
    }
}
