//! Several upstreams of one route: shares, changes for each, what holds for all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use dataplane::harness::{Fixture, Setup, Upstream};
use dataplane::http2::{connect, get, run};
use http_engine::clock::SystemClock;

use super::telemetry::logged;

/// A second and a third upstream, and a public route `/split` with these lines.
fn split(second: &Upstream, third: &Upstream, route: &str) -> Setup {
    let more = format!(
        r#"
[[upstream]]
name = "second"
endpoints = ["http://{}"]
[[upstream]]
name = "third"
endpoints = ["http://{}"]
[[route]]
name = "both"
path = {{ prefix = "/both" }}
public = true
upstreams = [{{ upstream = "second" }}, {{ upstream = "third" }}]
[[route]]
name = "split"
path = {{ prefix = "/split" }}
public = true
{route}
"#,
        second.address, third.address
    );
    Setup { more, ..Setup::default() }
}

fn plain(f: &Fixture, path: &str, fields: &str) -> u16 {
    f.send(format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n")).status
}

#[test]
fn each_upstream_gets_its_share_over_both_protocols() {
    let (second, third) = (Upstream::start(), Upstream::start());
    let route = r#"upstreams = [{ upstream = "second", weight = 3 }, { upstream = "third" }, { upstream = "backend", weight = 0 }]"#;
    let f = Fixture::with(split(&second, &third, route), Upstream::start());
    let mut client = f.connect();
    for _ in 0..400 {
        client.send("GET /split HTTP/1.1\r\nHost: app.test\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    run(async {
        let send = connect(f.address).await;
        for _ in 0..400 {
            let request = http::Request::get("http://app.test/split").body(()).unwrap();
            assert_eq!(get(&send, request).await.0.status, 200);
        }
    });
    let counts = (second.seen().len(), third.seen().len());
    assert_eq!(counts.0 + counts.1, 800);
    // More than six standard deviations on each side.
    assert!((120..280).contains(&counts.1), "{counts:?}");
    assert!(f.upstream.seen().is_empty(), "weight 0");
}

#[test]
fn a_share_without_an_upstream_is_refused() {
    let (second, third) = (Upstream::start(), Upstream::start());
    let route = r#"upstreams = [{ upstream = "second" }, { status = 500 }]"#;
    let f = Fixture::with(split(&second, &third, route), Upstream::start());
    let mut refused = 0;
    for _ in 0..200 {
        let response = f.send("GET /split HTTP/1.1\r\nHost: app.test\r\n\r\n");
        if response.status == 500 {
            assert!(response.text().contains("\"code\":\"no_backend\""), "{}", response.text());
            refused += 1;
        } else {
            assert_eq!(response.status, 200);
        }
    }
    assert!((50..150).contains(&refused), "{refused}");
    assert_eq!(second.seen().len(), 200 - refused);
    for (route, status) in [
        (r#"upstreams = [{ upstream = "second", weight = 0 }, { upstream = "third", weight = 0 }]"#, 500),
        ("upstreams = [{ status = 503 }]", 503),
    ] {
        let f = Fixture::with(split(&second, &third, route), Upstream::start());
        assert!((0..10).all(|_| plain(&f, "/split", "") == status), "{route}");
    }
}

#[test]
fn only_who_is_permitted_learns_that_there_is_no_upstream() {
    let (second, third) = (Upstream::start(), Upstream::start());
    let mut setup =
        split(&second, &third, r#"upstreams = [{ upstream = "second" }, { upstream = "third" }]"#);
    setup.more.push_str(
        "[[route]]\nname = \"none\"\npath = { prefix = \"/none\" }\nupstreams = [{ status = 500 }]\n\
         policy = { allow = [{ groups = [\"dev\"] }] }\n",
    );
    let f = Fixture::with(setup, Upstream::start());
    assert_eq!(plain(&f, "/none", ""), 401);
    assert_eq!(f.get("/none").status, 500);
}

#[test]
fn an_upstream_may_have_changes_of_headers_of_its_own() {
    let (second, third) = (Upstream::start(), Upstream::start());
    let route = r#"
request_headers = { set = { X-Env = "all", X-All = "1" }, remove = ["Accept-Language"] }
response_headers.set = { X-Served = "any" }
[[route.upstreams]]
upstream = "second"
request_headers = { set = { X-Env = "blue" }, add = { X-Via = "b" }, remove = ["X-Secret"] }
response_headers = { set = { X-Served = "blue" }, remove = ["X-Gone"] }
[[route.upstreams]]
upstream = "third"
"#;
    let f = Fixture::with(split(&second, &third, route), Upstream::start());
    let request = "POST /split HTTP/1.1\r\nHost: app.test\r\nX-Env: evil\r\nX_Env: evil\r\nX-Secret: s\r\n\
                   Accept-Language: de\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Secret: t\r\nX-Sum: 1\r\n\r\n";
    let mut served = BTreeSet::new();
    while served.len() < 2 {
        let response = f.send(request);
        served.insert(response.value("x-served").unwrap().to_owned());
    }
    assert_eq!(served, BTreeSet::from(["any".to_owned(), "blue".to_owned()]));
    let blue = &second.seen()[0];
    assert_eq!((blue.values("x-env"), blue.values("x-all")), (vec!["blue"], vec!["1"]));
    assert_eq!((blue.values("x-via"), blue.values("x-secret")), (vec!["b"], vec![]));
    assert_eq!(blue.trailers, ["x-sum: 1"], "a trailer does not carry what is removed");
    let other = &third.seen()[0];
    assert_eq!((other.values("x-env"), other.values("x-secret")), (vec!["all"], vec!["s"]));
    assert_eq!(other.trailers, ["x-secret: t", "x-sum: 1"]);
    for seen in [blue, other] {
        assert!(
            seen.values("accept-language").is_empty() && seen.values("x_env").is_empty(),
            "{}",
            seen.head
        );
    }
}

#[test]
fn a_client_with_affinity_keeps_its_upstream() {
    let (second, third) = (Upstream::start(), Upstream::start());
    let route = "upstreams = [{ upstream = \"second\" }, { upstream = \"third\" }]\naffinity = { header = \"X-Client\" }";
    let f = Fixture::with(split(&second, &third, route), Upstream::start());
    for client in 0..40 {
        for _ in 0..3 {
            assert_eq!(plain(&f, "/split", &format!("X-Client: {client}\r\n")), 200);
        }
    }
    let clients = |upstream: &Upstream| -> BTreeSet<String> {
        upstream.seen().iter().map(|seen| seen.values("x-client")[0].to_owned()).collect()
    };
    let (at_second, at_third) = (clients(&second), clients(&third));
    assert!(at_second.is_disjoint(&at_third));
    assert_eq!(at_second.len() + at_third.len(), 40);
    assert!(at_second.len() >= 5 && at_third.len() >= 5, "{at_second:?} {at_third:?}");
}

#[test]
fn every_upstream_is_guarded_and_so_are_mirrors() {
    for destination in [
        r#"upstreams = [{ upstream = "backend", weight = 0 }, { upstream = "second" }]"#,
        "upstream = \"backend\"\nmirror = [{ upstream = \"second\" }]",
    ] {
        let (second, third) = (Upstream::start(), Upstream::start());
        let mut setup = split(&second, &third, &format!("{destination}\nstrip_prefix = \"/split\""));
        setup.more.push_str(
            r#"
[[route]]
name = "guarded"
hosts = ["other.test"]
path = { prefix = "/open/admin" }
policy = { allow = [{ groups = ["dev"] }] }
upstreams = [{ upstream = "second" }, { upstream = "third" }]
"#,
        );
        let f = Fixture::with(setup, Upstream::start());
        assert_eq!(plain(&f, "/split/open/admin", ""), 401, "{destination}");
        assert_eq!(plain(&f, "/split/open/x", ""), 200, "{destination}");
    }
}

#[test]
fn the_log_names_the_upstream_that_was_chosen() {
    let (second, third) = (Upstream::start(), Upstream::start());
    let route = r#"upstreams = [{ upstream = "second", weight = 0 }, { upstream = "third" }]"#;
    let (f, lines) = logged(&split(&second, &third, route), Upstream::start(), Arc::new(SystemClock));
    assert_eq!(plain(&f, "/split", ""), 200);
    drop(f);
    let line = lines.next();
    assert_eq!((&line["route"], &line["upstream"]), (&"split".into(), &"third".into()));
    assert_eq!(line["endpoint"], third.address.to_string());
}
