//! A client that repeats its header block: requests are read and decided as if each were the first.

use std::time::Duration;

use dataplane::harness::{Fixture, Setup, TestClient, Upstream, until};
use dataplane::issuer::now;

/// Sends this head on the connection.
fn ask(client: &mut TestClient, target: &str, block: &str) -> u16 {
    client.send(format!("GET {target} HTTP/1.1\r\n{block}\r\n"));
    client.response().status
}

fn block(token: &str, fields: &str) -> String {
    format!("Host: app.test\r\nAuthorization: Bearer {token}\r\n{fields}")
}

#[test]
fn what_the_service_receives_is_the_same_each_time() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    let fields = "X-Kept: a\r\nx_forwarded_user: root\r\nX-Forwarded-Groups: admins\r\nX-Empty:\r\n\
                  Connection: keep-alive, x-hop\r\nX-Hop: h\r\nX-Kept:  b \r\nCookie: c=d\r\n";
    let mut client = f.connect();
    for number in 0..6 {
        let target = format!("/items/{number}?q={number}");
        assert_eq!(ask(&mut client, &target, &block(&token, fields)), 200);
    }
    // The same on a connection of its own.
    assert_eq!(ask(&mut f.connect(), "/items/6?q=6", &block(&token, fields)), 200);
    let seen = f.upstream.seen();
    let rest = |at: usize| seen[at].head.split_once("\r\n").unwrap().1.to_owned();
    for (at, request) in seen.iter().enumerate() {
        assert_eq!(request.line(), format!("GET /items/{at}?q={at} HTTP/1.1"));
        assert_eq!(rest(at), rest(6), "request {at}");
    }
    assert_eq!(seen[5].values("x-kept"), ["a", "b"]);
    assert!(!rest(5).contains("root") && !rest(5).contains("x-hop"), "{}", rest(5));
}

#[test]
fn another_block_is_another_caller() {
    let f = Fixture::new();
    let (alice, bob) = (f.issuer.token(|_| {}), f.issuer.token(|claims| claims["groups"] = "sales".into()));
    let mut client = f.connect();
    for (token, status) in [(&alice, 200), (&alice, 200), (&alice, 200), (&bob, 403), (&alice, 200)] {
        assert_eq!(ask(&mut client, "/", &block(token, "")), status);
    }
    for (token, status) in [(&bob, 403), (&bob, 403), (&bob, 403), (&alice, 200), (&bob, 403)] {
        assert_eq!(ask(&mut client, "/", &block(token, "")), status);
    }
    // Without the token, with two, and with one in the query.
    assert_eq!(ask(&mut client, "/", "Host: app.test\r\n"), 401);
    assert_eq!(
        ask(&mut client, "/", &block(&alice, &block(&alice, "").replace("Host: app.test\r\n", ""))),
        400
    );
    assert_eq!(ask(&mut client, "/?access_token=x", &block(&alice, "")), 400);
    assert_eq!(ask(&mut client, "/", &block(&alice, "")), 200);
}

#[test]
fn a_token_that_expires_is_refused_though_its_block_repeats() {
    let f = Fixture::new();
    // Expired, but within the clock skew that is tolerated, for two seconds more.
    let token = f.issuer.token(|claims| claims["exp"] = (now() - 28).into());
    let mut client = f.connect();
    let mut served = 0;
    until("it is refused", || {
        let status = ask(&mut client, "/", &block(&token, ""));
        served += u32::from(status == 200);
        status == 401
    });
    assert!(served > 3, "{served} requests passed before");
}

#[test]
fn a_reload_counts_for_the_next_request() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    let mut client = f.connect();
    let fields = "X-Secret: s\r\nX-Other: o\r\n";
    let mut sees = |setup: Setup, status: u16| {
        f.reload(&setup);
        assert_eq!(ask(&mut client, "/", &block(&token, fields)), status);
        let seen = f.upstream.seen();
        let last = seen.last().unwrap();
        (last.values("x-secret").len(), last.values("x-new").len(), last.values("x-other").len())
    };
    for _ in 0..3 {
        assert_eq!(sees(Setup::default(), 200), (1, 0, 1));
    }
    let changed = || Setup {
        route: "request_headers = { remove = [\"X-Secret\"], set = { X-New = \"n\" } }".into(),
        ..Setup::default()
    };
    for _ in 0..2 {
        assert_eq!(sees(changed(), 200), (0, 1, 1));
    }
    // Other audiences: what was cached means nothing.
    let strange = || {
        Setup {
        more: "[[issuer]]\nname = \"second\"\nissuer = \"https://second.test\"\naudiences = [\"x\"]\njwks_file = \"jwks.json\"\n".into(),
        ..Setup::default()
    }
    };
    for _ in 0..2 {
        assert_eq!(sees(strange(), 200), (1, 0, 1));
    }
}

#[test]
fn a_client_that_pauses_is_served_as_before() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    let mut client = f.connect();
    for pause in [0, 0, 0, 1300, 0, 0, 0] {
        std::thread::sleep(Duration::from_millis(pause));
        assert_eq!(ask(&mut client, "/", &block(&token, "")), 200);
    }
    // An idle limit below and above the time for which blocks are kept.
    for (idle, closed_after) in [("500ms", 500), ("2s", 2000)] {
        let setup = Setup { listener: format!("timeouts = {{ idle = \"{idle}\" }}"), ..Setup::default() };
        let f = Fixture::with(setup, Upstream::start());
        let mut client = f.connect();
        for _ in 0..3 {
            assert_eq!(ask(&mut client, "/open", "Host: app.test\r\n"), 200);
        }
        let began = std::time::Instant::now();
        assert!(client.is_closed());
        let took = began.elapsed().as_millis();
        assert!((closed_after - 200..closed_after + 1500).contains(&took), "{idle}: {took} ms");
    }
}
