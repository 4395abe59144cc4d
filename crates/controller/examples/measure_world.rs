//! Measures memory and time per change with many objects:
//!
//!     cargo run --release -p controller --example measure_world -- [routes] [gateways] [sets]
//!
//! With `sets` there is one Gateway with that many ListenerSets, instead of many Gateways.
//!
//! Prints resident memory from `/proc/self/statm` before and after, the time of the first settling,
//! and quantiles of the time from an event to its changes.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a command for people")]

use std::time::{Duration, Instant};

use controller::names::{Interner, Kind};
use controller::objects;
use controller::settings::Settings;
use controller::world::{Event, World};
use serde_json::{Value, json};

const CONTROLLER: &str = "postern.dev/gateway-controller";

/// Resident memory in MiB.
fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or_default();
    pages * 4096 / (1 << 20)
}

fn meta(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" })
}

fn route(number: usize, gateways: usize, parent: &str, path: &str) -> Value {
    json!({
        "metadata": meta(&format!("ns-{}", number % gateways), &format!("route-{number}")),
        "spec": {
            "parentRefs": [{ "group": "gateway.networking.k8s.io", "kind": parent, "name": "gw" }],
            "hostnames": [format!("app-{number}.team-{}.com", number % gateways)],
            "rules": [{
                "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
                "filters": [{
                    "type": "RequestHeaderModifier",
                    "requestHeaderModifier": { "set": [{ "name": "x-app", "value": number.to_string() }] },
                }],
                "backendRefs": [{ "group": "", "kind": "Service", "name": format!("app-{number}"), "port": 8080, "weight": 1 }],
            }],
        },
    })
}

fn service(number: usize, gateways: usize) -> Value {
    json!({
        "metadata": meta(&format!("ns-{}", number % gateways), &format!("app-{number}")),
        "spec": { "ports": [{ "name": "http", "port": 8080 }] },
    })
}

fn slice(number: usize, gateways: usize, last: usize) -> Value {
    let mut meta = meta(&format!("ns-{}", number % gateways), &format!("app-{number}-x"));
    meta["labels"] = json!({ "kubernetes.io/service-name": format!("app-{number}") });
    json!({
        "metadata": meta,
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 3000 }],
        "endpoints": [{ "addresses": [format!("10.0.0.{}", last % 250)], "zone": "z1" }],
    })
}

fn gateway(number: usize) -> Value {
    json!({
        "metadata": meta(&format!("ns-{number}"), "gw"),
        "spec": {
            "gatewayClassName": "postern",
            "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }],
        },
    })
}

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

    /// Times of `count` changes, each read, applied and settled by itself.
    fn changes(&mut self, name: &str, kind: Kind, count: usize, object: impl Fn(usize) -> Value) {
        let mut times: Vec<Duration> = (0..count)
            .map(|number| {
                let object = object(number);
                let begin = Instant::now();
                self.set(kind, &object);
                let changes = self.world.settle(2);
                assert!(!changes.is_empty());
                begin.elapsed()
            })
            .collect();
        times.sort();
        let quantile = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
        println!(
            "{name}: {count} changes, p50 {} µs, p99 {} µs, max {} µs",
            quantile(50),
            quantile(99),
            quantile(100)
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().unwrap_or_default());
    let routes = arguments.next().unwrap_or(40_000);
    let gateways = arguments.next().unwrap_or(2_500);
    let is_set = arguments.next().is_some();
    let parent = if is_set { "ListenerSet" } else { "Gateway" };
    let mut measure = Measure { world: World::new(Settings::new(CONTROLLER)), interner: Interner::default() };
    let before = memory();
    let class = json!({ "metadata": meta("", "postern"), "spec": { "controllerName": CONTROLLER } });
    measure.set(Kind::GatewayClass, &class);
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
        measure.set(Kind::HttpRoute, &route(number, gateways, parent, "/"));
        measure.set(Kind::Service, &service(number, gateways));
        measure.set(Kind::EndpointSlice, &slice(number, gateways, number));
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
    measure.changes("a route", Kind::HttpRoute, 2_000, |number| route(number, gateways, parent, "/changed"));
    measure.changes("endpoints", Kind::EndpointSlice, 2_000, |number| slice(number, gateways, number + 1));
    if is_set {
        measure.changes("a ListenerSet", Kind::ListenerSet, 200, |number| listener_set(number, gateways, 81));
    }
}
