//! Clients that keep their endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dataplane::harness::{Fixture, Response, Setup, Upstream, until};

use super::counts;
use super::health::{FAST, served, with_health};

/// The cookie that a response sets, as the client sends it back.
fn cookie(response: &Response) -> Option<String> {
    let pair = response.value("set-cookie")?.split(';').next()?;
    Some(format!("Cookie: other=1; {pair}\r\n"))
}

fn affine(servers: &[Upstream], affinity: &str) -> Fixture {
    let endpoints: Vec<_> = servers.iter().map(|server| format!("\"http://{}\"", server.address)).collect();
    let setup = Setup {
        upstream: format!("endpoints = [{}]", endpoints.join(", ")),
        route: format!("affinity = {{ {affinity} }}"),
        ..Setup::default()
    };
    Fixture::with(setup, Upstream::start())
}

/// Which of the servers receives a request.
fn receiver(f: &Fixture, servers: &[Upstream], fields: &str) -> usize {
    let before = counts(servers);
    assert_eq!(f.send(f.request("/", fields)).status, 200);
    let after = counts(servers);
    (0..servers.len()).find(|at| after[*at] > before[*at]).expect("one of them")
}

#[test]
fn a_cookie_keeps_a_browser_on_its_endpoint() {
    let servers = [(); 3].map(|()| Upstream::start());
    let f = affine(&servers, "cookie = \"endpoint\", ttl = \"1h\"");
    let mut used = [0; 3];
    for _ in 0..30 {
        let before = counts(&servers);
        let first = f.get("/");
        let set = first.value("set-cookie").expect("a cookie").to_owned();
        assert!(
            set.starts_with("endpoint=") && set.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=3600"),
            "{set}"
        );
        assert!(!servers.iter().any(|server| set.contains(&format!(":{}", server.address.port()))));
        assert_eq!(first.value("cache-control"), Some("private"));
        let own = (0..3).find(|at| counts(&servers)[*at] > before[*at]).unwrap();
        used[own] += 1;
        let fields = cookie(&first).unwrap();
        for _ in 0..3 {
            assert_eq!(receiver(&f, &servers, &fields), own);
        }
        let again = f.send(f.request("/", &fields));
        assert_eq!(again.value("set-cookie"), None, "the cookie is set once");
    }
    assert!(used.iter().all(|count| *count > 0), "browsers spread: {used:?}");
}

#[test]
fn a_header_and_a_user_keep_their_endpoint_and_only_clients_of_a_lost_one_move() {
    let servers = [(); 3].map(|()| Upstream::start());
    let f = affine(&servers, "header = \"X-Session\"");
    let session = |at: usize| format!("X-Session: session-{at}\r\n");
    let own: Vec<_> = (0..20).map(|at| receiver(&f, &servers, &session(at))).collect();
    for (at, own) in own.iter().enumerate() {
        assert_eq!(receiver(&f, &servers, &session(at)), *own);
    }
    assert!((0..3).all(|server| own.contains(&server)), "{own:?}");
    // Another gateway, in another order, without the third server.
    let fewer = [servers[1].address, servers[0].address];
    let setup = Setup {
        upstream: format!("endpoints = [\"http://{}\", \"http://{}\"]", fewer[0], fewer[1]),
        route: "affinity = { header = \"X-Session\" }".into(),
        ..Setup::default()
    };
    f.reload(&setup);
    for (at, own) in own.iter().enumerate() {
        let now = receiver(&f, &servers, &session(at));
        assert!(now == *own || *own == 2, "session {at} moved from {own} to {now}");
    }
    // The caller is alice each time.
    let f = affine(&servers, "user = true");
    let own = receiver(&f, &servers, "");
    assert!((0..10).all(|_| receiver(&f, &servers, "") == own));
}

#[test]
fn a_client_of_an_unhealthy_endpoint_has_another_until_it_recovers() {
    let states = [(); 2].map(|()| Arc::new(AtomicUsize::new(200)));
    let servers = states.each_ref().map(with_health);
    let setup = Setup {
        upstream: format!(
            "endpoints = [\"http://{}\", \"http://{}\"]\n\
             health_check = {{ path = \"/healthz\", unhealthy_after = 1, healthy_after = 1, {FAST} }}",
            servers[0].address, servers[1].address
        ),
        route: "affinity = { header = \"X-Session\" }".into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let healthy =
        |count| until("the checks have ended", || f.gateway().discoveries()[0].0.healthy_endpoints == count);
    let receives = |at: usize| {
        let before = served(&servers[at]);
        assert_eq!(f.send(f.request("/", "X-Session: one\r\n")).status, 200);
        served(&servers[at]) > before
    };
    healthy(2);
    until("the list is applied", || receives(0) == receives(0));
    let own = usize::from(!receives(0));
    states[own].store(503, Ordering::SeqCst);
    healthy(1);
    until("the other receives it", || receives(1 - own));
    states[own].store(200, Ordering::SeqCst);
    until("its own receives it again", || receives(own));
}
