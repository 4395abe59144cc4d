//! security: one canonical request. A request with two readings reaches no upstream. A request with
//! one reading is forwarded exactly as it was matched.

use dataplane::harness::{Fixture, Setup, Upstream};

fn is_refused(f: &Fixture, target: &str) {
    // Also try the public route, so that no policy can be the reason for the refusal.
    let response = f.send(format!("GET {target} HTTP/1.1\r\nHost: app.test\r\n\r\n"));
    assert_eq!(response.status, 400, "{target:?}: {}", response.head);
    assert!(f.upstream.seen().is_empty(), "{target:?} reaches nobody: {:?}", f.upstream.seen());
}

#[test]
fn canonical_encoded_delimiters_are_400() {
    let f = Fixture::new();
    for encoded in ["%2f", "%2F", "%5c", "%5C", "%3b", "%3B", "%3f", "%3F", "%23", "%00"] {
        is_refused(&f, &format!("/open/a{encoded}b"));
    }
}

#[test]
fn canonical_dot_segments_in_any_coding_are_400() {
    let f = Fixture::new();
    for segment in [
        ".",
        "..",
        "%2e",
        "%2e%2e",
        "%2E.",
        ".%2e",
        "%252e%252e",
        "%252e",
        "..;",
        "..;x=y",
        ".;",
        "%2e%2e;",
        "..%3b",
    ] {
        is_refused(&f, &format!("/open/{segment}/secret"));
        is_refused(&f, &format!("/open/{segment}"));
    }
    is_refused(&f, "/open/..%2fsecret");
    is_refused(&f, "/open/..%5csecret");
    is_refused(&f, "/open/..\\secret");
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
    for target in ["/open/%ff", "/open/%c0%af", "/open/%ed%a0%80", "/open/%80", "/open?x=%ff"] {
        is_refused(&f, target);
    }
}

#[test]
fn canonical_double_slashes_are_400() {
    let f = Fixture::new();
    for target in ["//evil.test/open", "//open", "/open//x", "/open//"] {
        is_refused(&f, target);
    }
}

#[test]
fn canonical_bad_percent_escapes_are_400() {
    let f = Fixture::new();
    for target in ["/open/%", "/open/%4", "/open/%zz", "/open/%%41", "/open?x=%", "/open?x=%g1"] {
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
    ] {
        let before = f.upstream.seen().len();
        assert_eq!(f.get(sent).status, 200, "{sent}");
        assert_eq!(f.upstream.seen()[before].line(), format!("GET {forwarded} HTTP/1.1"), "{sent}");
    }
    let before = f.upstream.seen().len();
    for target in ["/api/..", "/api/%2e%2e/x", "/api//evil.test/", "/api/..;/x"] {
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
        ("/door/admin;v=1/x", 404),
        ("/door/%40rooms/1", 404),
        ("/%40rooms/1", 404),
    ] {
        assert_eq!(f.get(target).status, status, "{target}");
    }
    assert_eq!(f.upstream.seen().len(), 0);
    assert_eq!(f.get("/door/open/a;v=1").status, 200);
    assert_eq!(f.upstream.only().line(), "GET /open/a;v=1 HTTP/1.1");
}

#[test]
fn canonical_a_repeated_parameter_that_the_policy_reads_is_refused() {
    let setup = Setup {
        more: r#"
[[route]]
name = "namespaced"
path = { prefix = "/ns" }
upstream = "backend"
policy = { allow = [{ groups = { any = ["dev"] }, query = { namespace = { any = ["a"] } } }] }
"#
        .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
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
