//! Trusted proxies: what a proxy in front reports about a request is believed from the configured
//! networks, and replaced from everyone else.

use dataplane::harness::{Fixture, Seen, Setup, Upstream};

/// A gateway that trusts 127.0.0.1 and 10.0.0.0/8, for the default fields or for these.
fn behind(headers: &str) -> Fixture {
    let headers = if headers.is_empty() { String::new() } else { format!(", headers = [{headers}]") };
    let setup = Setup {
        listener: format!("trusted_proxies = {{ from = [\"127.0.0.1\", \"10.0.0.0/8\"]{headers} }}"),
        ..Setup::default()
    };
    Fixture::with(setup, Upstream::start())
}

fn forwarded(f: &Fixture, fields: &str) -> Seen {
    let answer = f.send(f.request("/", fields));
    assert_eq!(answer.status, 200, "{fields:?}: {}", answer.text());
    f.upstream.seen().pop().expect("forwarded")
}

#[test]
fn address_and_scheme_of_the_client_are_passed_on() {
    let f = behind("");
    for (fields, address, scheme) in [
        ("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n", "192.0.2.7, 127.0.0.1", "https"),
        // What stands before the address that the proxy wrote comes from the client.
        ("X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\n", "192.0.2.7, 127.0.0.1", "http"),
        ("X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7, 127.0.0.1", "http"),
        ("X-Forwarded-For: 192.0.2.7, 10.1.1.1\r\n", "192.0.2.7, 10.1.1.1, 127.0.0.1", "http"),
        ("X-Forwarded-For: unknown\r\nX-Forwarded-Proto: wss\r\n", "unknown, 127.0.0.1", "https"),
        ("X-Forwarded-Proto: HTTPS, https\r\n", "127.0.0.1", "https"),
        ("", "127.0.0.1", "http"),
    ] {
        let seen = forwarded(&f, fields);
        assert_eq!(seen.values("x-forwarded-for"), [address], "{fields:?}");
        assert_eq!(seen.values("x-forwarded-proto"), [scheme], "{fields:?}");
        assert_eq!(seen.values("x-forwarded-host"), ["app.test"], "{fields:?}");
    }
}

#[test]
fn fields_that_are_not_listed_and_aliases_are_not_believed() {
    let f = behind("");
    let seen = forwarded(
        &f,
        "X-Forwarded-Host: evil.example\r\nX-Forwarded-Port: 1\r\nForwarded: for=6.6.6.6;proto=https\r\n\
         X_Forwarded_For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-Forwarded-User: root\r\n",
    );
    assert_eq!(seen.values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.values("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.values("x-forwarded-host"), ["app.test"]);
    assert_eq!(seen.values("x-forwarded-user"), ["alice"]);
    for name in ["x-forwarded-port", "forwarded", "x_forwarded_for", "x-real-ip"] {
        assert!(seen.values(name).is_empty(), "{name}: {}", seen.head);
    }
}

#[test]
fn from_other_peers_every_field_is_replaced() {
    let setup = Setup {
        listener: "trusted_proxies = { from = [\"192.0.2.0/24\"], headers = [\"X-Forwarded-For\", \
                   \"X-Forwarded-Proto\", \"X-Forwarded-Host\", \"X-Forwarded-Port\"] }"
            .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let seen = forwarded(
        &f,
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\n\
         X-Forwarded-Port: 443\r\n",
    );
    assert_eq!(seen.values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.values("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.values("x-forwarded-host"), ["app.test"]);
    assert!(seen.values("x-forwarded-port").is_empty());
}

#[test]
fn a_reported_host_is_passed_on_and_selects_no_route() {
    let more =
        "[[route]]\nname = \"admin\"\nhosts = [\"admin.example\"]\nupstream = \"backend\"\npublic = true\n";
    let setup = Setup {
        listener: "trusted_proxies = { from = [\"127.0.0.1\"], headers = [\"X-Forwarded-Host\", \
                   \"X-Forwarded-Port\"] }"
            .into(),
        more: more.into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let seen = forwarded(&f, "X-Forwarded-Host: Shop.Example:8443\r\nX-Forwarded-Port: 8443\r\n");
    assert_eq!(seen.values("x-forwarded-host"), ["shop.example:8443"]);
    assert_eq!(seen.values("x-forwarded-port"), ["8443"]);
    assert_eq!(seen.values("host"), ["app.test"]);
    let anonymous = "GET /x HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-Host: admin.example\r\n\r\n";
    assert_eq!(f.send(anonymous).status, 401, "the public route is for the host of the request only");
}

#[test]
fn the_element_of_forwarded_that_names_the_client_counts() {
    let f = behind("\"Forwarded\"");
    let seen = forwarded(
        &f,
        "Forwarded: for=6.6.6.6;proto=http, for=\"[2001:db8::7]:4711\";proto=https;host=shop.example, for=10.0.0.9\r\n\
         X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: http\r\n",
    );
    assert_eq!(seen.values("x-forwarded-for"), ["2001:db8::7, 10.0.0.9, 127.0.0.1"]);
    assert_eq!(seen.values("x-forwarded-proto"), ["https"]);
    assert_eq!(seen.values("x-forwarded-host"), ["shop.example"]);
    assert_eq!(
        seen.values("forwarded"),
        ["for=\"[2001:db8::7]:4711\";proto=https;host=shop.example, for=10.0.0.9, for=127.0.0.1;proto=http"]
    );
}

#[test]
fn a_field_that_says_two_things_is_refused() {
    for (headers, field) in [
        ("", "X-Forwarded-Proto: https, http"),
        ("", "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http"),
        ("", "X-Forwarded-Proto: gopher"),
        ("\"X-Forwarded-Host\"", "X-Forwarded-Host: a.example, b.example"),
        ("\"X-Forwarded-Host\"", "X-Forwarded-Host: a b"),
        ("\"X-Forwarded-Host\"", "X-Forwarded-Host: user@a.example"),
        ("\"X-Forwarded-Port\"", "X-Forwarded-Port: 0"),
        ("\"X-Forwarded-Port\"", "X-Forwarded-Port: 80, 443"),
        ("\"Forwarded\"", "Forwarded: for=\"6.6.6.6, for=192.0.2.7"),
        ("\"Forwarded\"", "Forwarded: for=192.0.2.7;for=192.0.2.8"),
        ("\"Forwarded\"", "Forwarded: for=192.0.2.7;proto=gopher"),
    ] {
        let f = behind(headers);
        let answer = f.send(f.request("/", &format!("{field}\r\n")));
        assert_eq!(answer.status, 400, "{field}");
        assert!(answer.text().contains("\"code\":\"forwarded_header\""), "{field}: {}", answer.text());
        assert!(f.upstream.seen().is_empty(), "{field}");
    }
}

#[test]
fn a_reload_ends_the_trust_on_open_connections() {
    let setup = |from: &str| Setup {
        listener: format!("trusted_proxies = {{ from = [\"{from}\"] }}"),
        ..Setup::default()
    };
    let f = Fixture::with(setup("127.0.0.1"), Upstream::start());
    let mut client = f.connect();
    let request = f.request("/", "X-Forwarded-For: 192.0.2.7\r\n");
    client.send(&request);
    assert_eq!(client.response().status, 200);
    f.reload(&setup("192.0.2.1"));
    client.send(&request);
    assert_eq!(client.response().status, 200);
    let seen: Vec<_> = f.upstream.seen();
    let addresses: Vec<_> = seen.iter().flat_map(|seen| seen.values("x-forwarded-for")).collect();
    assert_eq!(addresses, ["192.0.2.7, 127.0.0.1", "127.0.0.1"]);
}
