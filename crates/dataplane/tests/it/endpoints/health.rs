//! Active health checks.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dataplane::harness::{Fixture, Setup, Upstream, until};

use super::{Named, pods};

/// A server whose health a test decides, and that says so at `/healthz`.
pub(super) fn with_health(status: &Arc<AtomicUsize>) -> Upstream {
    let status = status.clone();
    Upstream::answering(move |seen, socket| {
        let status = if seen.line().contains("/healthz") { status.load(Ordering::SeqCst) } else { 200 };
        write!(socket, "HTTP/1.1 {status} Status\r\ncontent-length: 2\r\n\r\nok").is_ok()
    })
}

/// Requests of clients, not those of checks.
pub(super) fn served(server: &Upstream) -> usize {
    server.seen().iter().filter(|seen| !seen.line().contains("/healthz")).count()
}

pub(super) const FAST: &str = "interval = \"50ms\", timeout = \"50ms\"";

#[test]
fn an_endpoint_that_fails_its_health_check_receives_no_request() {
    let states = [200, 503].map(|status| Arc::new(AtomicUsize::new(status)));
    let servers = states.each_ref().map(with_health);
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"http://{}\", \"http://{}\"]\n\
             health_check = {{ path = \"/healthz?x=1\", host = \"checked.test\", {FAST} }}",
            servers[0].address, servers[1].address
        ),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let healthy = || f.gateway().discoveries()[0].0.healthy_endpoints;
    until("the first checks have ended", || healthy() == 1);
    for _ in 0..20 {
        assert_eq!(f.get("/").status, 200);
    }
    assert_eq!([served(&servers[0]), served(&servers[1])], [20, 0]);
    let check = &servers[1].seen()[0];
    assert_eq!(check.line(), "GET /healthz?x=1 HTTP/1.1");
    assert_eq!(check.values("host"), ["checked.test"]);
    let labels = format!("{{upstream=\"backend\",endpoint=\"{}\"}}", servers[1].address);
    assert_eq!(f.counted(&format!("postern_upstream_endpoint_healthy{labels}")), 0.0);
    let failed = format!(
        "postern_upstream_health_checks_total{{upstream=\"backend\",endpoint=\"{}\",result=\"failure\"}}",
        servers[1].address
    );
    assert!(f.counted(&failed) >= 1.0);
    // They change places.
    states[0].store(500, Ordering::SeqCst);
    states[1].store(204, Ordering::SeqCst);
    until("the second takes over", || {
        assert_eq!(f.get("/").status, 200, "one is always healthy or unchecked");
        healthy() == 1 && served(&servers[1]) > 0
    });
}

#[test]
fn when_all_endpoints_are_unhealthy_requests_get_503_until_one_recovers() {
    let state = Arc::new(AtomicUsize::new(503));
    let server = with_health(&state);
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"http://{}\"]\nhealth_check = {{ path = \"/healthz\", healthy_after = 2, {FAST} }}",
            server.address
        ),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    until("the first check has ended", || {
        f.gateway().discoveries()[0].0.healthy_endpoints == 0 && f.get("/").status == 503
    });
    let before = served(&server);
    let refused = f.get("/");
    assert_eq!(refused.status, 503, "{}", refused.head);
    assert!(refused.text().contains("upstream_unhealthy"), "{}", refused.text());
    assert_eq!(served(&server), before);
    state.store(200, Ordering::SeqCst);
    until("it recovers", || f.get("/").status == 200);
}

#[test]
fn an_endpoint_that_does_not_answer_its_checks_in_time_is_unhealthy() {
    // Accepts connections in its queue, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"http://{}\"]\nhealth_check = {{ path = \"/\", {FAST} }}\n\
             timeouts = {{ response_header = \"200ms\" }}",
            silent.local_addr().unwrap()
        ),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    until("the check times out", || f.get("/").status == 503);
}

#[test]
fn the_addresses_of_a_name_are_checked_each() {
    let pods = pods(2);
    let port = pods[0].address.port();
    let more = format!("health_check = {{ path = \"/healthz\", {FAST} }}");
    let named = Named::new(port, Some(&["127.0.0.2", "127.0.0.9"]), 1, &more);
    let healthy = || named.f.gateway().discoveries()[0].0.healthy_endpoints;
    // Nothing listens on 127.0.0.9.
    until("the checks have ended", || healthy() == 1 && named.status().0 == 2);
    for _ in 0..10 {
        assert_eq!(named.f.get("/").status, 200);
    }
    named.names.set("app.test", &["127.0.0.3"], 1);
    until("the new address is checked", || {
        healthy() == 1 && named.status().0 == 1 && !pods[1].seen().is_empty()
    });
    let checks = |pod: &Upstream| pod.seen().len() - served(pod);
    let before = checks(&pods[0]);
    until("more checks", || checks(&pods[1]) > 5);
    assert!(checks(&pods[0]) <= before + 1, "the former address is not checked any more");
}
