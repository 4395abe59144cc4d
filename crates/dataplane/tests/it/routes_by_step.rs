//! Routes that other sources than the file add and remove while the gateway serves.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use auth::policy::route::{CheckedRoute, HostSet, Order, PathMatch, RouteMatch, Scope, ScopeIndex};
use auth::policy::rule::Policy;
use dataplane::harness::{Fixture, Response, Setup, TestClient, Upstream, load, until};
use dataplane::ports;
use gateway::config::{Config, Destination, Listener, Route, Routing, SocketId};
use gateway::server::{GatewayListeners, RoutesUpdate, StartError};
use http_engine::config::ListenAddress;
use http_engine::upstream::endpoints::{ActiveEndpoint, EndpointList, Health};
use telemetry::metrics::{GatewayListenerMetrics, GatewayListenerName};
use tokio::sync::watch;

const SOCKET: SocketId = SocketId(0);
const SCOPE: Scope = Scope::new(1);

/// A gateway with one listener of a Gateway for `*.apps.test`, beside the file's.
struct Cluster {
    fixture: Fixture,
    address: SocketAddr,
    /// The latest version.
    routing: Routing,
}

fn listener(config: &Config, socket: SocketId, address: &str) -> Arc<Listener> {
    let file = config.listeners.iter().next().expect("a listener");
    Arc::new(Listener {
        name: format!("gateway {address}").into(),
        socket: Some(socket),
        address: ListenAddress::Ip(address.parse().expect("an address")),
        ..(**file).clone()
    })
}

fn endpoints(addresses: &[SocketAddr]) -> Arc<EndpointList> {
    let endpoint = |address: &SocketAddr| {
        (ActiveEndpoint { configured: 0, addresses: [*address].into() }, Health::Healthy)
    };
    Arc::new(EndpointList { endpoints: addresses.iter().map(endpoint).collect(), ..EndpointList::default() })
}

impl Cluster {
    fn start(setup: Setup) -> Self {
        let fixture = Fixture::with(setup, Upstream::start());
        let config = fixture.gateway().config();
        let mut routing = config.routing.clone();
        let hosts = HostSet::new(&["*.apps.test"]).unwrap();
        routing.set_socket(SOCKET, Arc::new(ScopeIndex::new([(hosts, SCOPE)])));
        let name = GatewayListenerName {
            gateway: "team/gateway".into(),
            listener_set: "".into(),
            listener: "http".into(),
        };
        routing.insert_scope(SCOPE, Arc::new(GatewayListenerMetrics::new(name)));
        let address = ports::free();
        let listeners = vec![listener(&config, SOCKET, &address)];
        let cluster = Self { fixture, address: address.parse().unwrap(), routing };
        cluster.publish(GatewayListeners::Replaced(listeners));
        cluster
    }

    fn publish(&self, listeners: GatewayListeners) {
        let generation = self.fixture.gateway().config().generation;
        let update = RoutesUpdate { generation, routing: self.routing.clone(), listeners };
        let pending = self.fixture.gateway().update_routes(update).expect("the generation in force");
        assert!(pending.refused.is_empty());
        pending.wait().expect("the workers serve it");
    }

    /// Adds a public route for a host, or replaces the one with its number.
    fn add(&mut self, at: usize, host: &str, upstream: usize) {
        let route = RouteMatch { path: PathMatch::Prefix("/".into()), ..RouteMatch::default() };
        let matcher = CheckedRoute::new(route, Order::default()).unwrap();
        let config = self.fixture.gateway().config();
        let value = Route {
            destination: Some(Destination::One(upstream)),
            policy: Policy::Public,
            ..(**config.route(0)).clone()
        };
        let hosts = HostSet::new(&[host]).unwrap();
        self.routing.insert_route(at, matcher, [(SCOPE, hosts)], Arc::new(value));
        self.publish(GatewayListeners::Same);
    }

    fn get(&self, host: &str) -> Response {
        let mut client = TestClient::connect(self.address);
        client.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        client.response()
    }
}

#[test]
fn a_route_is_in_force_when_the_update_returns_and_gone_when_it_is_removed() {
    let mut cluster = Cluster::start(Setup::default());
    assert_eq!(cluster.get("nb.apps.test").status, 404);
    cluster.add(100, "nb.apps.test", 0);
    assert_eq!(cluster.get("nb.apps.test").status, 200);
    assert_eq!(cluster.get("other.apps.test").status, 404, "no route");
    assert_eq!(cluster.get("nb.elsewhere.test").status, 404, "no listener");
    assert_eq!(cluster.fixture.get("/open").status, 200, "the file's routes stay");
    let mut client = cluster.fixture.connect();
    client.send("GET /open HTTP/1.1\r\nHost: nb.apps.test\r\n\r\n");
    assert_eq!(client.response().status, 200, "the file's listener has the file's routes alone");
    cluster.routing.remove_route(100);
    cluster.publish(GatewayListeners::Same);
    assert_eq!(cluster.get("nb.apps.test").status, 404);
    let counted = |series: &str| cluster.fixture.counted(series);
    let of_scope = counted(
        r#"postern_requests_total{gateway="team/gateway",listener="http",outcome="allowed",class="2xx"}"#,
    );
    assert!(of_scope >= 1.0, "{of_scope}");
}

#[test]
fn versions_share_pools_and_connections() {
    let mut cluster = Cluster::start(Setup::default());
    let upstream = Upstream::start();
    let (endpoints_of_service, updates) = watch::channel(endpoints(&[upstream.address]));
    let config = cluster.fixture.gateway().config();
    cluster.routing.insert_upstream(7, config.routing.upstream(0).clone(), updates);
    cluster.add(100, "nb.apps.test", 7);
    let mut client = TestClient::connect(cluster.address);
    for at in 0..50 {
        client.send("GET / HTTP/1.1\r\nHost: nb.apps.test\r\n\r\n");
        assert_eq!(client.response().status, 200);
        cluster.add(101 + at, &format!("nb-{at}.apps.test"), 7);
    }
    assert_eq!((upstream.seen().len(), upstream.connections()), (50, 1));
    // Another pod takes over. The first one's connection is closed, and no request fails.
    let other = Upstream::start();
    endpoints_of_service.send_replace(endpoints(&[other.address]));
    until("the other endpoint is used", || {
        client.send("GET / HTTP/1.1\r\nHost: nb.apps.test\r\n\r\n");
        assert_eq!(client.response().status, 200);
        !other.seen().is_empty()
    });
    endpoints_of_service.send_replace(endpoints(&[]));
    until("there is no endpoint", || {
        client.send("GET / HTTP/1.1\r\nHost: nb.apps.test\r\n\r\n");
        client.response().status == 503
    });
}

#[test]
fn an_upstream_that_takes_a_number_over_gets_none_of_the_others_requests() {
    let mut cluster = Cluster::start(Setup::default());
    let (first, second) = (Upstream::start(), Upstream::start());
    let config = cluster.fixture.gateway().config();
    let configured = |name: &str| {
        let text = Setup { upstream: String::new(), ..Setup::default() }
            .file(cluster.fixture.dir.path(), first.address)
            .replace("\"backend\"", &format!("{name:?}"));
        load(cluster.fixture.dir.path(), &text).routing.upstream(0).clone()
    };
    let (a, b) = (configured("a"), configured("b"));
    let (_first_endpoints, updates) = watch::channel(endpoints(&[first.address]));
    cluster.routing.insert_upstream(7, a, updates);
    cluster.add(100, "nb.apps.test", 7);
    assert_eq!(cluster.get("nb.apps.test").status, 200);
    let (_second_endpoints, updates) = watch::channel(endpoints(&[second.address]));
    cluster.routing.insert_upstream(7, b, updates);
    cluster.add(100, "nb.apps.test", 7);
    for _ in 0..3 {
        assert_eq!(cluster.get("nb.apps.test").status, 200);
    }
    assert_eq!((first.seen().len(), second.seen().len()), (1, 3));
    drop(config);
}

#[test]
fn routes_for_a_configuration_that_was_replaced_are_refused() {
    let mut cluster = Cluster::start(Setup::default());
    cluster.add(100, "nb.apps.test", 0);
    let generation = cluster.fixture.gateway().config().generation;
    cluster.fixture.reload(&Setup::default());
    let (routing, listeners) = (cluster.routing.clone(), GatewayListeners::Same);
    let stale = cluster.fixture.gateway().update_routes(RoutesUpdate { generation, routing, listeners });
    let text = stale.err().expect("refused").to_string();
    assert!(text.contains("configuration 1") && text.contains("configuration 2"), "{text}");
}

#[test]
fn a_listener_that_cannot_be_started_stops_no_other() {
    let mut cluster = Cluster::start(Setup::default());
    cluster.add(100, "nb.apps.test", 0);
    let taken = TcpListener::bind(ports::free()).unwrap();
    let config = cluster.fixture.gateway().config();
    let free = ports::free();
    let hosts = HostSet::new(&["*.apps.test"]).unwrap();
    for socket in [SocketId(1), SocketId(2)] {
        cluster.routing.set_socket(socket, Arc::new(ScopeIndex::new([(hosts.clone(), SCOPE)])));
    }
    let listeners = vec![
        listener(&config, SOCKET, &cluster.address.to_string()),
        listener(&config, SocketId(1), &taken.local_addr().unwrap().to_string()),
        listener(&config, SocketId(2), &free),
    ];
    let update = RoutesUpdate {
        generation: config.generation,
        routing: cluster.routing.clone(),
        listeners: GatewayListeners::Replaced(listeners),
    };
    let pending = cluster.fixture.gateway().update_routes(update).unwrap();
    let [(SocketId(1), StartError::Bind { .. })] = &pending.refused[..] else {
        panic!("{:?}", pending.refused)
    };
    pending.wait().unwrap();
    assert_eq!(cluster.get("nb.apps.test").status, 200);
    cluster.address = free.parse().unwrap();
    assert_eq!(cluster.get("nb.apps.test").status, 200);
    // A listener that is gone accepts no more.
    cluster.publish(GatewayListeners::Replaced(Vec::new()));
    until("the listener is closed", || std::net::TcpStream::connect(cluster.address).is_err());
}

#[test]
fn no_gateway_takes_the_address_of_another_listener() {
    let mut cluster = Cluster::start(Setup::default());
    cluster.add(100, "nb.apps.test", 0);
    let config = cluster.fixture.gateway().config();
    let of_file = config.listeners.iter().next().unwrap().address.clone();
    let own = cluster.address.to_string();
    let intruder = |socket, address: &ListenAddress| {
        Arc::new(Listener { address: address.clone(), ..(*listener(&config, socket, &own)).clone() })
    };
    let listeners = vec![
        listener(&config, SOCKET, &own),
        intruder(SocketId(1), &of_file),
        intruder(SocketId(2), &ListenAddress::Ip(cluster.address)),
    ];
    let update = RoutesUpdate {
        generation: config.generation,
        routing: cluster.routing.clone(),
        listeners: GatewayListeners::Replaced(listeners),
    };
    let pending = cluster.fixture.gateway().update_routes(update).unwrap();
    let refused: Vec<_> = pending.refused.iter().map(|(socket, _)| *socket).collect();
    assert_eq!(refused, [SocketId(1), SocketId(2)]);
    pending.wait().unwrap();
    assert_eq!(cluster.get("nb.apps.test").status, 200);
    assert_eq!(cluster.fixture.get("/open").status, 200, "the file's listener has its own routes");
}
