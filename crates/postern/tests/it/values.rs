//! Values that are refused, many for the same key. One file could contain only one of them.

use crate::support::{FILES, faults, load, minimal_and};

const ASSERTION: &str = "[assertion]\nkey = \"assertion-key.pem\"\nissuer = \"https://gateway.example\"\n";

/// Checks that each value, in place of `@`, is the only fault of its file, with this message.
fn each_is_refused(text: &str, path: &str, values: &[(&str, &str)]) {
    for (value, what) in values {
        let faults = faults(&text.replace('@', value));
        let expected = format!("{path}: {what}");
        assert!(faults.lines().count() == 1 && faults.contains(&expected), "{value}: {faults}");
    }
}

fn each_is_accepted(text: &str, values: &[&str]) {
    for value in values {
        if let Err(refused) = load(&text.replace('@', value)) {
            panic!("{value}: {}", refused.report.lines().collect::<Vec<_>>().join("\n"));
        }
    }
}

#[test]
fn an_assertion_takes_no_header_that_means_something_else() {
    let text = minimal_and(&format!(
        "{ASSERTION}header = \"@\"\n[identity_headers]\nfields = {{ X-Tenant = \"user\" }}"
    ));
    let taken = [
        "Host",
        "Content-Length",
        "content_type",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Proxy-Authorization",
        "Authorization",
        "Cookie",
        "Via",
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Real-IP",
        "traceparent",
        "tracestate",
    ];
    for name in taken {
        let what = format!(
            "the header {name} has a meaning of its own and cannot carry an identity; choose an x- name"
        );
        each_is_refused(&text, "assertion.header", &[(name, &what)]);
    }
    each_is_refused(
        &text,
        "assertion.header",
        &[
            (
                "X-Forwarded-User",
                "many servers treat the headers X-Forwarded-User and X-Forwarded-User as the same",
            ),
            (
                "x_forwarded.groups",
                "many servers treat the headers X-Forwarded-Groups and x_forwarded.groups as the same",
            ),
            ("X_Tenant", "many servers treat the headers X-Tenant and X_Tenant as the same; keep one"),
            ("X-Postern-*", "\"X-Postern-*\" is not the name of one header; write letters"),
        ],
    );
    each_is_accepted(&text, &["X-Postern-Assertion", "X-Auth-Request-User", "X-Jwt-Assertion"]);
}

#[test]
fn what_cannot_be_removed_from_a_request_is_refused() {
    let text = minimal_and("[identity_headers]\nremove = [\"@\"]");
    let path = "identity_headers.remove[0]";
    each_is_refused(
        &text,
        path,
        &[
            ("*", "the family * is too large; write at least three characters before the *"),
            ("X-*", "the family X-* is too large"),
            ("my*", "the family my* is too large"),
            ("X-*-User", "\"X-*-User\" has a * before its end; only the beginning of a family can be named"),
            ("X-User**", "\"X-User**\" has a * before its end"),
            ("Content-Type", "\"Content-Type\" cannot be removed; the request would change its meaning"),
            ("content_type", "\"content_type\" cannot be removed"),
            ("Content-Encoding", "\"Content-Encoding\" cannot be removed"),
            (
                "content-*",
                "\"content-*\" covers content-length, which cannot be removed; the request would change its meaning",
            ),
            ("Content.T*", "\"Content.T*\" covers content-type, which cannot be removed"),
            ("hos*", "\"hos*\" covers host, which cannot be removed"),
            ("transfer*", "\"transfer*\" covers transfer-encoding, which cannot be removed"),
            (
                "auth*",
                "\"auth*\" covers authorization, which cannot be removed; `forward_authorization` of each",
            ),
            ("Conn*", "\"Conn*\" covers connection, which cannot be removed; it belongs to the connection"),
            ("Trailer", "\"Trailer\" cannot be removed; it belongs to the connection"),
            ("Keep_Alive", "\"Keep_Alive\" cannot be removed; it belongs to the connection"),
            (
                "Proxy-Authorization",
                "\"Proxy-Authorization\" cannot be removed; it belongs to the connection",
            ),
        ],
    );
    each_is_accepted(
        &text,
        &["X-Internal-*", "x-a*", "Cookie", "Cookie2", "Accept*", "Upgrade-Insecure-*", "X"],
    );
}

#[test]
fn an_identity_header_is_one_header() {
    let text = minimal_and("[identity_headers]\nfields = { \"@\" = \"user\" }");
    let what = "\"X-User*\" is not the name of one header; write letters, digits and -";
    each_is_refused(&text, "identity_headers.fields.\"X-User*\"", &[("X-User*", what)]);
}

#[test]
fn a_collector_that_could_not_be_told_anything_is_refused() {
    let endpoint = minimal_and("[telemetry]\notlp_endpoint = \"@\"");
    let what = "the collector's URL contains an @; put credentials into `otlp_headers_file`";
    each_is_refused(
        &endpoint,
        "telemetry.otlp_endpoint",
        &[("http://127.0.0.1:4318/a@b", what), ("http://127.0.0.1:4318/?key=me@hunter2", what)],
    );
    let text = minimal_and(
        "[telemetry]\notlp_endpoint = \"http://127.0.0.1:4318\"\notlp_headers_file = \"bad-headers.txt\"",
    );
    for (line, name) in [
        ("host: collector", "host"),
        ("Content-Type: text/plain", "Content-Type"),
        ("Content-Length: 1", "Content-Length"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding"),
        ("Authorization: Bearer hunter2\u{7}", "Authorization"),
    ] {
        FILES.write("bad-headers.txt", format!("# key\nX-Scope: a\n{line}\n"));
        let what = format!("the header {name:?} in bad-headers.txt cannot be sent; ");
        each_is_refused(&text, "telemetry.otlp_headers_file", &[("", &what)]);
        assert!(!faults(&text).contains("nter2"), "{line:?}");
    }
}

#[test]
fn the_path_of_the_keys_is_one_that_a_request_can_have() {
    let text = minimal_and(&format!("{ASSERTION}jwks_path = \"@\""));
    each_is_refused(
        &text,
        "assertion.jwks_path",
        &[
            (
                "/",
                "\"/\" is not a plain path; write the path of a document, such as \"/.well-known/postern/jwks.json\"",
            ),
            ("", "\"\" is not a plain path"),
            ("keys", "\"keys\" is not a plain path"),
            ("/.well-known/../admin", "\"/.well-known/../admin\" is not a plain path"),
            ("/.well-known/./keys", "\"/.well-known/./keys\" is not a plain path"),
            ("/a//b", "\"/a//b\" is not a plain path"),
            ("/a%2Fb", "\"/a%2Fb\" is not a plain path"),
            ("/%61", "\"/%61\" is not a plain path; its canonical form is \"/a\""),
            ("/a;b", "\"/a;b\" is not a plain path"),
            ("/keys?x=1", "\"/keys?x=1\" is not a plain path"),
            ("/keys#x", "\"/keys#x\" is not a plain path"),
            ("*", "\"*\" is not a plain path"),
        ],
    );
    each_is_accepted(&text, &["/.well-known/postern/jwks.json", "/.well-known/keys.json", "/keys", "/.keys"]);
}

#[test]
fn no_route_takes_the_path_of_the_keys() {
    let text = minimal_and(&format!("{ASSERTION}jwks_path = \"/keys\""))
        .replace("public = true", "public = true\npath = { @ }");
    let what = "\"/keys\" is the path of the assertion's key set; change the path of the route, or the path of the keys with `assertion.jwks_path`";
    each_is_refused(&text, "route[0].path.exact", &[("exact = \"/keys\"", what)]);
    each_is_accepted(&text, &["exact = \"/key\"", "prefix = \"/keys\"", "exact = \"/keys/\""]);
}

#[test]
fn a_short_head_makes_for_a_short_target() {
    let text = minimal_and("").replace("8080\"", "8080\"\nlimits = { @ }");
    let target = |limits: &str| {
        load(&text.replace('@', limits))
            .ok()
            .unwrap()
            .config
            .listeners
            .iter()
            .next()
            .unwrap()
            .limits
            .target_bytes
    };
    for (limits, expected) in [
        ("", 8 << 10),
        ("header_size = \"4KiB\"", 4 << 10),
        ("header_size = \"64KiB\"", 8 << 10),
        ("header_size = \"4KiB\", target_size = \"4KiB\"", 4 << 10),
        ("target_size = \"64B\"", 64),
        ("target_size = \"16KiB\"", 16 << 10),
        ("header_size = \"128KiB\", target_size = \"64KiB\"", 64 << 10),
    ] {
        assert_eq!(target(limits), expected, "{limits}");
        let shown = load(&text.replace('@', limits)).ok().unwrap().effective();
        assert!(shown.contains("target_size = "), "{limits}: {shown}");
    }
    each_is_refused(
        &text,
        "listener[0].limits.target_size",
        &[
            (
                "header_size = \"4KiB\", target_size = \"8KiB\"",
                "8KiB is larger than `header_size` (4KiB); the target is part of the head: raise",
            ),
            (
                "header_size = \"128KiB\", target_size = \"65KiB\"",
                "65KiB is out of range; write a size between 64B and 64KiB",
            ),
            ("target_size = \"63B\"", "63B is out of range"),
        ],
    );
}

#[test]
fn who_vouches_is_asked_where_several_could() {
    const SEVERAL: &str = "jwks_file = \"jwks.json\"\n[[issuer]]\nname = \"two\"\nissuer = \"two\"\naudiences = [\"app\"]\njwks_file = \"jwks.json\"\n";
    const CERTIFICATES: &str = "jwks_file = \"jwks.json\"\n[client_certificates]\n";
    let tls = "8080\"\ntls = { certificate = \"cert.pem\", key = \"key.pem\", client_ca = \"ca.pem\", client_certificates = \"optional\" }";
    let warnings = |vouching: &str, rule: &str| {
        let issuer =
            format!("[[issuer]]\nname = \"one\"\nissuer = \"one\"\naudiences = [\"app\"]\n{vouching}");
        let text = minimal_and(&issuer).replace("8080\"", tls);
        let text = text.replace("public = true", &format!("policy = {{ allow = [{{ {rule} }}] }}"));
        let loaded =
            load(&text).unwrap_or_else(|r| panic!("{rule}: {:?}", r.report.lines().collect::<Vec<_>>()));
        let of_rules = loaded.report.lines().filter(|line| line.contains("every issuer could grant"));
        of_rules.map(|line| line.split(": ").nth(1).unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let rules = [
        ("users", "users = [\"a\"]", true),
        ("subjects", "subjects = [\"a\"]", true),
        ("clients", "clients = [\"a\"]", false),
        ("groups", "groups = [\"a\"]", true),
        ("emails", "emails = [\"a@b\"]", false),
        ("scopes", "scopes = [\"a\"]", false),
        ("claims", "claims = { subject_ou = [\"a\"] }", true),
    ];
    for (key, rule, of_certificates) in rules {
        let place = [format!("route[0].policy.allow[0].{key}")];
        assert_eq!(warnings(SEVERAL, rule), place, "{rule}");
        assert!(warnings(SEVERAL, &format!("{rule}, issuers = [\"one\"]")).is_empty(), "{rule}");
        assert!(warnings("jwks_file = \"jwks.json\"\n", rule).is_empty(), "{rule}");
        // A certificate has neither clients, scopes nor addresses, and only one source
        // authenticates by it.
        assert_eq!(warnings(CERTIFICATES, rule).len(), usize::from(of_certificates), "{rule}");
        for kind in ["jwt", "certificate"] {
            let rule = format!("{rule}, credentials = [\"{kind}\"]");
            assert!(warnings(CERTIFICATES, &rule).is_empty(), "{rule}");
        }
    }
}
