//! The endpoints of an upstream: names with several addresses that change, weights.

mod affinity;
mod health;
mod retries;

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dataplane::harness::{Fixture, Seen, Setup, Upstream, until};
use http_engine::upstream::name_server::NameServer;
use telemetry::metrics::Format;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Servers on the same port of 127.0.0.2 and following, as the pods of a service are.
fn pods(count: u8) -> Vec<Upstream> {
    pods_answering(count, |_, socket| socket.write_all(OK).is_ok())
}

fn pods_answering(
    count: u8,
    respond: impl Fn(&Seen, &mut std::net::TcpStream) -> bool + Send + Sync + Clone + 'static,
) -> Vec<Upstream> {
    loop {
        let first = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let others = (1..count).map(|at| TcpListener::bind(SocketAddr::from(([127, 0, 0, 2 + at], port))));
        let Ok(others) = others.collect::<Result<Vec<_>, _>>() else { continue };
        let all = std::iter::once(first).chain(others);
        return all.map(|socket| Upstream::listening(socket, respond.clone())).collect();
    }
}

/// A gateway whose upstream is `app.test`, with these lines under `[[upstream]]`.
struct Named {
    f: Fixture,
    names: NameServer,
    _dir: tempfile::TempDir,
}

impl Named {
    fn new(port: u16, addresses: Option<&[&str]>, ttl: u32, more: &str) -> Self {
        let setup = Setup {
            upstream: format!("endpoints = [\"http://app.test:{port}\"]\n{more}"),
            ..Setup::default()
        };
        Self::with(setup, addresses, ttl)
    }

    fn with(setup: Setup, addresses: Option<&[&str]>, ttl: u32) -> Self {
        let (names, dir) = (NameServer::start(), tempfile::tempdir().unwrap());
        if let Some(addresses) = addresses {
            names.set("app.test", addresses, ttl);
        }
        let resolver = names.resolver(dir.path(), "options timeout:1 attempts:1", "");
        Self { f: Fixture::resolving(setup, resolver, None), names, _dir: dir }
    }

    fn status(&self) -> (usize, u64, u64) {
        let all = self.f.gateway().discoveries();
        (all[0].0.endpoints, all[0].0.lookups, all[0].0.failed_lookups)
    }
}

fn counts(pods: &[Upstream]) -> Vec<usize> {
    pods.iter().map(|pod| pod.seen().len()).collect()
}

#[test]
fn each_address_of_a_name_is_an_endpoint_of_its_own() {
    let pods = pods(3);
    let port = pods[0].address.port();
    let setup = Setup {
        upstream: format!("endpoints = [\"http://app.test:{port}\"]"),
        route: "preserve_host = false".into(),
        ..Setup::default()
    };
    // Duplicates are one endpoint. The first request waits for the lookup.
    let named = Named::with(setup, Some(&["127.0.0.4", "127.0.0.2", "127.0.0.3", "127.0.0.2"]), 60);
    let mut client = named.f.connect();
    for _ in 0..30 {
        client.send(named.f.request("/", ""));
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(counts(&pods), [10, 10, 10]);
    assert!(pods.iter().all(|pod| pod.connections() == 1), "each has its own connection");
    assert_eq!(pods[0].seen()[0].values("host"), [format!("app.test:{port}")]);
    for pod in &pods {
        let labels = format!("{{upstream=\"backend\",endpoint=\"{}\"}}", pod.address);
        assert_eq!(named.f.counted(&format!("postern_upstream_endpoint_healthy{labels}")), 1.0);
    }
    assert_eq!(named.names.queries("app.test"), 1, "one lookup for all");
    assert_eq!(named.status(), (3, 1, 0));
}

#[test]
fn addresses_change_under_load_without_a_failed_request() {
    let pods = pods(3);
    let named = Named::new(pods[0].address.port(), Some(&["127.0.0.2"]), 0, "");
    let (stop, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = named.f.connect();
                while !stop.load(Ordering::SeqCst) {
                    client.send(named.f.request("/", ""));
                    let response = client.response();
                    assert_eq!(response.status, 200, "{}", response.head);
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        until("the first pod is used", || counts(&pods)[0] > 10);
        named.names.set("app.test", &["127.0.0.3", "127.0.0.2"], 0);
        until("the second pod is used", || counts(&pods)[1] > 10);
        named.names.set("app.test", &["127.0.0.4", "127.0.0.3"], 0);
        until("the third pod is used", || counts(&pods)[2] > 10);
        // One request of each client may still be in flight.
        let left = counts(&pods)[0];
        let mark = sent.load(Ordering::SeqCst);
        until("many requests later", || sent.load(Ordering::SeqCst) > mark + 50);
        let after = counts(&pods)[0];
        stop.store(true, Ordering::SeqCst);
        assert!(after <= left + 3, "the removed pod receives nothing more: {left} then {after}");
    });
    assert_eq!(named.status().0, 2);
}

#[test]
fn a_failed_lookup_keeps_the_addresses_found_last() {
    let pods = pods(1);
    let named = Named::new(pods[0].address.port(), Some(&["127.0.0.2"]), 1, "");
    assert_eq!(named.f.get("/").status, 200);
    for broken in [true, false] {
        // A server that fails, then a name that is gone.
        named.names.set_broken(broken);
        named.names.set("app.test", &[], 1);
        let before = named.status().2;
        until("a lookup fails", || named.status().2 > before);
        assert_eq!(named.f.get("/").status, 200);
        assert_eq!(named.status().0, 1);
    }
}

#[test]
fn a_name_that_is_unknown_at_first_is_served_once_it_is_known() {
    let pods = pods(1);
    let named = Named::new(pods[0].address.port(), None, 1, "");
    let refused = named.f.get("/");
    assert_eq!(refused.status, 502, "{}", refused.head);
    assert!(refused.text().contains("upstream_unreachable"), "{}", refused.text());
    named.names.set("app.test", &["127.0.0.2"], 1);
    until("the name is looked up again", || named.f.get("/").status == 200);
}

#[test]
fn a_removed_endpoint_finishes_its_requests_and_loses_its_connections() {
    let (release, held) = channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let pods = pods_answering(2, move |seen, socket| {
        if seen.line().contains("/slow") {
            let _ = held.lock().unwrap().recv_timeout(Duration::from_secs(10));
        }
        if seen.line().contains("/last") { false } else { socket.write_all(OK).is_ok() }
    });
    let named = Named::new(pods[0].address.port(), Some(&["127.0.0.2"]), 1, "");
    let mut slow = named.f.connect();
    slow.send(named.f.request("/slow", ""));
    until("the slow request arrives", || counts(&pods)[0] == 1);
    assert_eq!(named.f.get("/idle").status, 200);
    let connections = |pod: &Upstream| {
        let labels = format!("{{upstream=\"backend\",endpoint=\"{}\"}}", pod.address);
        named.f.metrics.render(Format::Text).lines().find_map(|line| {
            let value = line.strip_prefix("postern_upstream_connections_open")?.strip_prefix(&labels)?;
            Some(value.trim().to_owned())
        })
    };
    assert_eq!(connections(&pods[0]).as_deref(), Some("2"));
    named.names.set("app.test", &["127.0.0.3"], 60);
    until("the idle connection closes", || connections(&pods[0]).as_deref() == Some("1"));
    assert_eq!(named.f.get("/").status, 200);
    assert_eq!(counts(&pods), [2, 1]);
    release.send(()).unwrap();
    assert_eq!(slow.response().status, 200, "the request in flight finishes");
    until("its connection is not kept", || connections(&pods[0]).as_deref() == Some("0"));
    named.f.metrics.remove_unused();
    assert_eq!(connections(&pods[0]), None, "metrics of former addresses do not pile up");
}

#[test]
fn resolve_every_replaces_the_time_to_live() {
    let pods = pods(2);
    let named = Named::new(pods[0].address.port(), Some(&["127.0.0.2"]), 86_400, "resolve_every = \"1s\"");
    assert_eq!(named.f.get("/").status, 200);
    named.names.set("app.test", &["127.0.0.3"], 86_400);
    until("the new address is used", || named.f.get("/").status == 200 && counts(&pods)[1] > 0);
}

#[test]
fn a_reload_keeps_the_addresses_that_are_known() {
    let pods = pods(1);
    let port = pods[0].address.port();
    let setup = |upstream: &str, route: &str| Setup {
        upstream: format!("endpoints = [\"http://app.test:{port}\"]\n{upstream}"),
        route: route.into(),
        ..Setup::default()
    };
    let named = Named::with(setup("", ""), Some(&["127.0.0.2"]), 300);
    assert_eq!(named.f.get("/").status, 200);
    named.names.set_broken(true);
    named.f.reload(&setup("", "preserve_host = false"));
    assert_eq!(named.f.get("/").status, 200);
    assert_eq!((named.names.queries("app.test"), pods[0].connections()), (1, 1));
    // A changed upstream has connections of its own, and begins with the addresses that are known.
    named.f.reload(&setup("idle_connections = 1", ""));
    assert_eq!(named.f.get("/").status, 200);
    until("the name is looked up again", || named.status().2 > 0);
    assert_eq!(named.f.get("/").status, 200);
}

#[test]
fn an_address_of_each_family_is_one_server() {
    // Nothing listens on ::1 at this port.
    let pod = Upstream::listening(TcpListener::bind("127.0.0.2:0").unwrap(), |_, s| s.write_all(OK).is_ok());
    let named = Named::new(pod.address.port(), Some(&["::1", "127.0.0.2"]), 60, "unhealthy_after = 1");
    for _ in 0..5 {
        assert_eq!(named.f.get("/").status, 200);
    }
    assert_eq!(named.status().0, 1);
    let labels = format!("{{upstream=\"backend\",endpoint=\"{}\"}}", pod.address);
    assert_eq!(named.f.counted(&format!("postern_upstream_endpoint_healthy{labels}")), 1.0);
}

#[test]
fn weights_share_sequential_and_concurrent_requests() {
    let (release, held) = channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let servers: Vec<_> = (0..3)
        .map(|_| {
            let held = held.clone();
            Upstream::answering(move |seen, socket| {
                if seen.line().contains("/slow") {
                    let _ = held.lock().unwrap().recv_timeout(Duration::from_secs(10));
                }
                socket.write_all(OK).is_ok()
            })
        })
        .collect();
    let at = |at: usize| -> SocketAddr { servers[at].address };
    let setup = Setup {
        upstream: format!(
            "endpoints = [{{ address = \"http://{}\", weight = 3 }}, \"http://{}\", \
             {{ address = \"http://{}\", weight = 0 }}]",
            at(0),
            at(1),
            at(2)
        ),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    for _ in 0..40 {
        assert_eq!(f.get("/").status, 200);
    }
    assert_eq!(counts(&servers), [30, 10, 0], "in turns, while nothing is in flight");
    let mut waiting = Vec::new();
    for sent in 1..=8 {
        let mut client = f.connect();
        client.send(f.request("/slow", ""));
        waiting.push(client);
        until("it arrives", || counts(&servers).iter().sum::<usize>() == 40 + sent);
    }
    assert_eq!(counts(&servers), [36, 12, 0], "by requests in flight");
    drop(release);
    for client in &mut waiting {
        assert_eq!(client.response().status, 200);
    }
}
