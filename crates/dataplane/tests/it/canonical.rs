//! security: one canonical request. A request of which two readings are decided differently reaches
//! no upstream. A request with one meaning is forwarded exactly as it was matched.

use dataplane::harness::{Fixture, Setup, Upstream};

fn is_refused(f: &Fixture, target: &str) {
    // Also try the public route, so that no policy can be the reason for the refusal.
    let response = f.send(format!("GET {target} HTTP/1.1\r\nHost: app.test\r\n\r\n"));
    assert_eq!(response.status, 400, "{target:?}: {}", response.head);
    assert!(f.upstream.seen().is_empty(), "{target:?} reaches nobody: {:?}", f.upstream.seen());
}

/// A route `/ns` whose policy reads a query parameter.
fn namespaced() -> Setup {
    let more = r#"
[[route]]
name = "namespaced"
path = { prefix = "/ns" }
upstream = "backend"
policy = { allow = [{ groups = { any = ["dev"] }, query = { namespace = { any = ["a"] } } }] }
"#;
    Setup { more: more.into(), ..Setup::default() }
}

/// What every route forwards unchanged, if all readings of it are on the route.
const READ_DIFFERENTLY: [&str; 14] = [
    "/open/a%2fb",
    "/open/a%2Fb",
    "/open/a%5cb",
    "/open/a%3bb",
    "/open/a%3Fb",
    "/open/Report%20%233.ipynb",
    "/open//x",
    "/open//",
    "/open/./x",
    "/open/a/../b",
    "/open/a/..;x=y/b",
    "/open/a%252Fb",
    "/open/%25252e/b",
    "/open/a;v=1/%40b",
];

#[test]
fn canonical_a_path_with_one_decision_is_forwarded_to_the_byte() {
    let f = Fixture::new();
    for target in READ_DIFFERENTLY {
        let before = f.upstream.seen().len();
        let response = f.send(format!("GET {target}?q=%2f HTTP/1.1\r\nHost: app.test\r\n\r\n"));
        assert_eq!(response.status, 200, "{target:?}: {}", response.head);
        assert_eq!(f.upstream.seen()[before].line(), format!("GET {target}?q=%2f HTTP/1.1"));
    }
}

#[test]
fn canonical_a_path_with_two_decisions_is_400() {
    let f = Fixture::new();
    for segment in ["..", "..;", "..;x=y", "%252e%252e", "..%3b"] {
        is_refused(&f, &format!("/open/{segment}/secret"));
        is_refused(&f, &format!("/open/{segment}"));
    }
    for target in [
        "/open/..%2fsecret",
        "/open/..%5csecret",
        "/open%2fx",
        "/open%3fx",
        "/open;x/y",
        "/secret/../open",
        "/secret%2f..%2f/open/x",
        "/open//../../open",
    ] {
        is_refused(&f, target);
    }
}

#[test]
fn canonical_what_has_no_meaning_is_400() {
    let f = Fixture::new();
    for segment in ["%2e", "%2e%2e", "%2E.", ".%2e", "%2e%2e;"] {
        is_refused(&f, &format!("/open/{segment}/secret"));
        is_refused(&f, &format!("/open/{segment}"));
    }
    for target in [
        "/open/%00",
        "/open/a%0ab",
        "/open/a%2500",
        "/open/../..",
        "/open/..%2f..%2f",
        "/open/..\\secret",
        "/%2fopen",
        "/open/a%2F%5C%40;x//%2540%252F%253Bx/./b",
    ] {
        is_refused(&f, target);
    }
}

#[test]
fn canonical_a_strict_route_refuses_what_servers_read_differently() {
    let f =
        Fixture::with(Setup { route: "paths = \"strict\"".into(), ..Setup::default() }, Upstream::start());
    for target in READ_DIFFERENTLY {
        let target = target.replace("/open", "/guarded");
        // Parameters and escapes of what may stand raw are no reason.
        let status = if target.contains(";v=1") { 200 } else { 400 };
        assert_eq!(f.get(&target).status, status, "{target}");
        assert_eq!(f.get(&target.replace("/guarded", "/open")).status, 200, "{target}");
    }
}

#[test]
fn canonical_a_query_is_checked_only_where_it_is_read() {
    let f = Fixture::with(namespaced(), Upstream::start());
    for query in ["q=100%", "q=%E9", "q=%", "q=%g1", "q=%00", "q=%ff&r=%c0%af"] {
        let before = f.upstream.seen().len();
        assert_eq!(f.get(&format!("/open?{query}")).status, 200, "{query}");
        assert_eq!(f.upstream.seen()[before].line(), format!("GET /open?{query} HTTP/1.1"));
        let refused = f.get(&format!("/ns?namespace=a&{query}"));
        assert_eq!(refused.status, 400, "{query}: {}", refused.head);
        assert_eq!(f.upstream.seen().len(), before + 1, "{query}");
    }
    // The service could read the end of the path as the query.
    assert_eq!(f.get("/ns/x?namespace=a").status, 200);
    assert_eq!(f.get("/ns/x%3Fnamespace=b?namespace=a").status, 400);
    assert_eq!(f.get("/ns/x%3Fnamespace=a").status, 400);
}

#[test]
fn canonical_raw_fragment_backslash_and_controls_are_400() {
    let f = Fixture::new();
    for target in ["/open#x", "/open?a#b", "/open\\x", "/open/\u{7f}"] {
        is_refused(&f, target);
    }
}

#[test]
fn canonical_invalid_utf8_is_400() {
    let f = Fixture::new();
    for target in ["/open/%ff", "/open/%c0%af", "/open/%ed%a0%80", "/open/%80"] {
        is_refused(&f, target);
    }
}

#[test]
fn canonical_a_target_that_begins_like_an_authority_is_400() {
    let f = Fixture::new();
    for target in ["//evil.test/open", "//open"] {
        is_refused(&f, target);
    }
}

#[test]
fn canonical_bad_percent_escapes_are_400() {
    let f = Fixture::new();
    for target in ["/open/%", "/open/%4", "/open/%zz", "/open/%%41"] {
        is_refused(&f, target);
    }
}

#[test]
fn canonical_hosts_compare_in_one_form_and_must_agree() {
    let setup = Setup {
        more: "[[route]]\nname = \"host\"\nhosts = [\"xn--bcher-kva.test\"]\nupstream = \"backend\"\npublic = true\n".into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    for host in ["xn--bcher-kva.test", "XN--BCHER-KVA.TEST", "xn--bcher-kva.test.", "xn--bcher-kva.test:80"] {
        let response = f.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.status, 200, "{host}: {}", response.head);
    }
    let hosts: Vec<_> = f.upstream.seen().iter().map(|s| s.values("host").join("|")).collect();
    assert!(hosts.iter().all(|h| h == "xn--bcher-kva.test"), "forwarded as matched: {hosts:?}");
    for (line, host) in [
        ("http://other.test/", "xn--bcher-kva.test"),
        ("http://xn--bcher-kva.test:8080/", "xn--bcher-kva.test"),
        ("/", "user@xn--bcher-kva.test"),
        ("/", "xn--bcher-kva.test:port"),
        ("/", "a b"),
        ("/", ""),
    ] {
        let response = f.send(format!("GET {line} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.status, 400, "{line} {host}: {}", response.head);
    }
    assert_eq!(f.send("GET / HTTP/1.1\r\n\r\n").status, 400, "no host at all");
    assert_eq!(f.upstream.seen().len(), 4);
}

#[test]
fn canonical_http_1_0_without_a_host_reaches_routes_for_any_host() {
    let setup = Setup {
        more: "[[route]]\nname = \"host\"\nhosts = [\"app.test\", \"*.test\"]\npath = { prefix = \"/open/app\" }\nupstream = \"backend\"\npolicy = { allow = [{ groups = { any = [\"staff\"] } }] }\n".into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    for target in ["/open", "/open/app"] {
        let before = f.upstream.seen().len();
        let response = f.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
        assert_eq!(response.status, 200, "{target}: {}", response.head);
        let seen = &f.upstream.seen()[before];
        assert_eq!(seen.values("host"), [f.upstream.address.to_string()], "the endpoint's own name");
    }
    assert_eq!(f.send("GET /open/app HTTP/1.0\r\nHost: app.test\r\n\r\n").status, 401);
    assert_eq!(f.send("GET /open HTTP/1.0\r\nHost:\r\n\r\n").status, 400, "an empty host is none");
    assert_eq!(f.send("GET /open HTTP/1.1\r\n\r\n").status, 400, "HTTP/1.1 needs a host");
    assert_eq!(f.upstream.seen().len(), 2);
}

#[test]
fn canonical_what_is_forwarded_is_what_was_matched() {
    let f = Fixture::new();
    for (sent, forwarded) in [
        ("/open/%61%62c", "/open/abc"),
        ("/open/%7Euser", "/open/~user"),
        ("/open/a%20b", "/open/a%20b"),
        ("/open/%c3%a9", "/open/%C3%A9"),
        ("/open/x?q=%2Fok&r=a+b", "/open/x?q=%2Fok&r=a+b"),
        ("/open/", "/open/"),
    ] {
        let before = f.upstream.seen().len();
        assert_eq!(f.send(format!("GET {sent} HTTP/1.1\r\nHost: app.test\r\n\r\n")).status, 200, "{sent}");
        let seen = f.upstream.seen();
        assert_eq!(seen[before].line(), format!("GET {forwarded} HTTP/1.1"), "{sent}");
    }
}

#[test]
fn canonical_head_needs_gets_right_and_unknown_methods_are_not_allowed() {
    let setup = Setup {
        more: r#"
[[route]]
name = "reads"
path = { prefix = "/reads" }
upstream = "backend"
policy = { allow = [{ groups = { any = ["dev"] }, methods = ["GET"] }] }
"#
        .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let head = f.request("/reads", "").replacen("GET", "HEAD", 1);
    let mut client = f.connect();
    client.send(head);
    assert_eq!(client.head().status, 200);
    for (method, status) in [("POST", 403), ("DELETE", 403), ("BREW", 403), ("get", 400), ("pOST", 400)] {
        let response = f.send(f.request("/reads", "").replacen("GET", method, 1));
        assert_eq!(response.status, status, "{method}: {}", response.head);
    }
    assert_eq!(f.upstream.only().line(), "HEAD /reads HTTP/1.1");
}

#[test]
fn canonical_a_rewrite_is_normalised_and_authorized_again() {
    let setup = Setup {
        more: r#"
[[route]]
name = "stripped"
path = { prefix = "/api" }
strip_prefix = "/api"
upstream = "backend"
policy = { allow = [{ groups = { any = ["dev"] } }] }
[[route]]
name = "moved"
path = { prefix = "/old" }
replace_prefix = { from = "/old", to = "/new/home" }
upstream = "backend"
policy = { allow = [{ groups = { any = ["dev"] } }] }
"#
        .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    for (sent, forwarded) in [
        ("/api/a/b?c=d", "/a/b?c=d"),
        ("/api", "/"),
        ("/api/", "/"),
        ("/old/x", "/new/home/x"),
        ("/old", "/new/home"),
        ("/api/a%2fb/%7e", "/a%2fb/%7e"),
        ("/%61pi/a;v=1//b", "/a;v=1//b"),
        ("/old/Report%20%233", "/new/home/Report%20%233"),
    ] {
        let before = f.upstream.seen().len();
        assert_eq!(f.get(sent).status, 200, "{sent}");
        assert_eq!(f.upstream.seen()[before].line(), format!("GET {forwarded} HTTP/1.1"), "{sent}");
    }
    let before = f.upstream.seen().len();
    for target in [
        "/api/..",
        "/api/%2e%2e/x",
        "/api//evil.test/",
        "/api/..;/x",
        "/api%2fa",
        "/api;v=1/a",
        "/api/%2fevil.test/",
        "/old/..%2fsecret",
    ] {
        assert_eq!(f.get(target).status, 400, "{target}");
    }
    assert_eq!(f.upstream.seen().len(), before);
}

#[test]
fn canonical_a_rewrite_does_not_lead_around_the_rules_of_another_route() {
    let setup = Setup {
        more: r#"
[[route]]
name = "door"
path = { prefix = "/door" }
strip_prefix = "/door"
upstream = "backend"
public = true
[[route]]
name = "rooms"
path = { prefix = "/@rooms" }
upstream = "backend"
policy = { allow = [{ groups = { any = ["staff"] } }] }
[[route]]
name = "elsewhere"
hosts = ["admin.test"]
path = { prefix = "/admin" }
upstream = "backend"
policy = { allow = [{ groups = { any = ["staff"] } }] }
"#
        .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    for (target, status) in [
        // A public route that rewrites its path must not lead to protected paths.
        ("/door/@rooms", 401),
        ("/door/@rooms/1", 401),
        // Protected for another host, by the same upstream.
        ("/door/admin/x", 401),
        // A server might read these as one of the protected paths.
        ("/door/admin;v=1/x", 400),
        ("/door/%40rooms/1", 400),
        ("/%40rooms/1", 400),
        ("/door/%2540rooms/1", 400),
        ("/door/x%2f..%2fadmin/x", 400),
        ("/door/x/../@rooms/1", 400),
        ("/door/.//@rooms/1", 400),
        ("/door/admin%3fx", 400),
    ] {
        assert_eq!(f.get(target).status, status, "{target}");
    }
    assert_eq!(f.upstream.seen().len(), 0);
    assert_eq!(f.get("/door/open/a;v=1").status, 200);
    assert_eq!(f.upstream.only().line(), "GET /open/a;v=1 HTTP/1.1");
}

#[test]
fn canonical_a_repeated_parameter_that_the_policy_reads_is_refused() {
    let f = Fixture::with(namespaced(), Upstream::start());
    assert_eq!(f.get("/ns?namespace=a").status, 200);
    assert_eq!(f.get("/ns?namespace=b").status, 403);
    for query in [
        "namespace=a&namespace=b",
        "namespace=a&namespace=a",
        "namespace=a&name%73pace=b",
        "namespace=a&Namespace=b",
        "namespace=a&+namespace=b",
        "namespace=a&namespace[]=b",
    ] {
        assert_eq!(f.get(&format!("/ns?{query}")).status, 400, "{query}");
    }
    assert_eq!(f.upstream.seen().len(), 1);
}
