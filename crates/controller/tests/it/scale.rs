//! Many objects: what one change derives again. Counts, not times.

use controller::names::{Interner, Kind, ObjectKey};
use controller::objects;
use controller::plan::{Changes, Recomputed};
use controller::settings::Settings;
use controller::world::{Event, World};
use serde_json::{Value, json};

use crate::cluster::CONTROLLER;

const GATEWAYS: usize = 2_500;
const ROUTES: usize = 40_000;

struct Crowd {
    world: World,
    interner: Interner,
}

impl Crowd {
    fn set(&mut self, kind: Kind, object: &Value) {
        self.world.apply(Event::Set(objects::read(kind, object, &mut self.interner).unwrap()));
    }

    fn settle(&mut self) -> Changes {
        self.world.settle(1)
    }
}

fn meta(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" })
}

fn route(number: usize, path: &str) -> Value {
    let gateway = number % GATEWAYS;
    json!({
        "metadata": meta(&format!("ns-{gateway}"), &format!("route-{number}")),
        "spec": {
            "parentRefs": [{ "name": "gw" }],
            "hostnames": [format!("app-{number}.example.com")],
            "rules": [{
                "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
                "backendRefs": [{ "name": format!("app-{number}"), "port": 8080 }],
            }],
        },
    })
}

fn service(number: usize) -> Value {
    let namespace = format!("ns-{}", number % GATEWAYS);
    json!({
        "metadata": meta(&namespace, &format!("app-{number}")),
        "spec": { "ports": [{ "name": "http", "port": 8080 }] },
    })
}

fn slice(number: usize, address: &str) -> Value {
    let mut meta = meta(&format!("ns-{}", number % GATEWAYS), &format!("app-{number}-x"));
    meta["labels"] = json!({ "kubernetes.io/service-name": format!("app-{number}") });
    json!({
        "metadata": meta,
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 3000 }],
        "endpoints": [{ "addresses": [address] }],
    })
}

fn gateway(number: usize, listener: &str) -> Value {
    json!({
        "metadata": meta(&format!("ns-{number}"), "gw"),
        "spec": {
            "gatewayClassName": "postern",
            "listeners": [{ "name": listener, "port": 80, "protocol": "HTTP" }],
        },
    })
}

fn namespace(number: usize, team: &str) -> Value {
    let mut meta = meta("", &format!("ns-{number}"));
    meta["labels"] = json!({ "team": team });
    json!({ "metadata": meta })
}

fn crowd() -> Crowd {
    let mut crowd = Crowd { world: World::new(Settings::new(CONTROLLER)), interner: Interner::default() };
    let class = json!({ "metadata": meta("", "postern"), "spec": { "controllerName": CONTROLLER } });
    crowd.set(Kind::GatewayClass, &class);
    for number in 0..GATEWAYS {
        crowd.set(Kind::Namespace, &namespace(number, "a"));
        crowd.set(Kind::Gateway, &gateway(number, "http"));
    }
    for number in 0..ROUTES {
        crowd.set(Kind::HttpRoute, &route(number, "/"));
        crowd.set(Kind::Service, &service(number));
        crowd.set(Kind::EndpointSlice, &slice(number, "10.0.0.1"));
    }
    crowd
}

/// One test, because filling the crowd is what takes time.
#[test]
fn one_change_among_forty_thousand_routes_derives_one_thing() {
    let mut crowd = crowd();
    let first = crowd.settle();
    assert_eq!(first.plans.len(), ROUTES);
    assert_eq!(first.gateways.len(), GATEWAYS);
    assert_eq!(first.upstreams.len(), ROUTES);
    assert_eq!((first.recomputed.routes, first.recomputed.gateways), (ROUTES, GATEWAYS));
    assert_eq!(crowd.settle().recomputed, Recomputed::default(), "nothing is stale after settling");

    crowd.set(Kind::HttpRoute, &route(7, "/"));
    let same = crowd.settle();
    assert!(same.is_empty());
    assert_eq!(same.recomputed, Recomputed { statuses: 1, ..Recomputed::default() }, "an equal route");

    crowd.set(Kind::HttpRoute, &route(7, "/new"));
    let changed = crowd.settle();
    let one = Recomputed { routes: 1, plans: 1, statuses: 1, ..Recomputed::default() };
    assert_eq!(changed.recomputed, one, "a route");
    assert_eq!((changed.plans.len(), changed.upstreams.len()), (1, 0));

    crowd.set(Kind::EndpointSlice, &slice(7, "10.0.0.2"));
    let moved = crowd.settle();
    assert_eq!(moved.recomputed, Recomputed { endpoints: 1, ..Recomputed::default() }, "endpoints");
    assert_eq!(moved.endpoints.len(), 1);

    let per_gateway = ROUTES / GATEWAYS;
    crowd.set(Kind::Namespace, &namespace(7, "b"));
    let labelled = crowd.settle();
    assert_eq!(labelled.recomputed.routes, per_gateway, "the labels of a namespace");
    assert!(labelled.is_empty());

    crowd.set(Kind::Gateway, &gateway(7, "other"));
    let renamed = crowd.settle();
    assert_eq!((renamed.recomputed.gateways, renamed.recomputed.routes), (1, per_gateway));
    assert_eq!((renamed.gateways.len(), renamed.plans.len()), (1, per_gateway));

    crowd.world.apply(Event::Removed(ObjectKey::new(Kind::HttpRoute, "ns-7", "route-7")));
    let removed = crowd.settle();
    assert_eq!((removed.plans_removed.len(), removed.upstreams_removed.len()), (1, 1));
    assert_eq!((removed.recomputed.routes, removed.recomputed.gateways), (1, 0));
}
