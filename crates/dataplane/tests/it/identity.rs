//! security: identity headers. Whatever name a client claims, only the gateway tells the upstream
//! who the caller is.

use dataplane::harness::{Fixture, Setup, Upstream};
use dataplane::http2;

/// Every spelling of a field that means an identity to some upstream.
pub(super) fn aliases() -> Vec<String> {
    let mut all = Vec::new();
    for name in [
        "X-Forwarded-User",
        "X-Forwarded-Email",
        "X-Forwarded-Groups",
        "X-Forwarded-Preferred-Username",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Client-Cert",
        "Forwarded",
        "X-Auth-Request-User",
        "X-Auth-Request-Email",
        "X-Original-URL",
        "X-Original-URI",
        "X-Envoy-External-Address",
        "X-Real-IP",
        "X-SSL-Client-Cert",
        "SSL-Client-Verify",
        "X-Client-Cert",
        "X-Client-DN",
        "X-Client-S-DN",
        "X-ClientCert",
        "X-Client-CN",
        "Cert-Subject",
        "X-Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "X-Host",
    ] {
        all.push(name.to_owned());
        all.push(name.to_lowercase());
        all.push(name.to_uppercase().replace('-', "_"));
        all.push(name.replace('-', "_"));
        all.push(name.replace('-', "."));
        all.push(name.replacen('-', "_", 1));
    }
    all
}

fn evil(seen: &dataplane::harness::Seen) -> Vec<&str> {
    seen.head.lines().chain(seen.trailers.iter().map(String::as_str)).filter(|l| l.contains("evil")).collect()
}

#[test]
fn identity_aliases_are_deleted_before_ours_are_set() {
    let f = Fixture::new();
    for chunk in aliases().chunks(40) {
        let twice = chunk.iter().flat_map(|n| [format!("{n}: evil\r\n"), format!("{n}: evil2\r\n")]);
        assert_eq!(f.send(f.request("/", &twice.collect::<String>())).status, 200);
    }
    for seen in f.upstream.seen() {
        assert!(evil(&seen).is_empty(), "{:?}", evil(&seen));
        assert_eq!(seen.values("x-forwarded-user"), ["alice"]);
        assert_eq!(seen.values("x-forwarded-email"), ["alice@example.com"]);
        assert_eq!(seen.values("x-forwarded-groups"), ["dev,ops"]);
        assert_eq!(seen.values("x-forwarded-preferred-username"), ["alice"]);
        assert_eq!(seen.values("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(seen.values("x-forwarded-proto"), ["http"]);
        assert_eq!(seen.values("x-forwarded-host"), ["app.test"]);
    }
}

#[test]
fn identity_fields_are_deleted_even_when_none_are_set() {
    let f = Fixture::new();
    for chunk in aliases().chunks(50) {
        let spoofed: String = chunk.iter().map(|n| format!("{n}: evil\r\n")).collect();
        assert_eq!(f.send(format!("GET /open HTTP/1.1\r\nHost: app.test\r\n{spoofed}\r\n")).status, 200);
    }
    for seen in f.upstream.seen() {
        assert!(evil(&seen).is_empty(), "{:?}", evil(&seen));
        assert!(seen.values("x-forwarded-user").is_empty(), "nobody is named on an open route");
    }
}

#[test]
fn identity_what_was_taken_off_is_counted() {
    const REMOVED: &str = "postern_request_headers_removed_total{route=\"open\"}";
    let f = Fixture::new();
    let count = || f.counted(REMOVED).round();
    let fields = "X-Client-Id: a\r\nX-Client-Version: 1\r\nUser-Agent: b\r\nKeep-Alive: 1\r\n";
    assert_eq!(f.send(format!("GET /open HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n")).status, 200);
    assert!(count() < 0.5, "nothing was");
    assert_eq!(f.upstream.only().values("x-client-id"), ["a"]);
    let fields =
        format!("{fields}True-Client-IP: evil\r\ntrue_client_ip: evil\r\nX-Forwarded-User: evil\r\n");
    assert_eq!(f.send(format!("GET /open HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n")).status, 200);
    assert!((count() - 3.0).abs() < 0.5, "{}", count());
    let head = "POST /open HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(f.send(format!("{head}0\r\nX-Client-DN: evil\r\nX-Sum: 0\r\n\r\n")).status, 200);
    assert!((count() - 4.0).abs() < 0.5, "trailers count too: {}", count());
    http2::run(async {
        let send = http2::connect(f.address).await;
        let mut request = http2::request(&f, "GET", "/open");
        request.headers_mut().append("x-host", "evil".parse().unwrap());
        request.headers_mut().append("x-host", "evil".parse().unwrap());
        assert_eq!(http2::get(&send, request).await.0.status, 200);
    });
    assert!((count() - 6.0).abs() < 0.5, "{}", count());
    assert!(f.upstream.seen().iter().all(|seen| evil(seen).is_empty()));
}

#[test]
fn identity_fields_in_trailers_are_deleted() {
    let f = Fixture::new();
    let head = f.request("/", "Transfer-Encoding: chunked\r\n").replacen("GET", "POST", 1);
    let trailers: String = aliases().iter().take(40).map(|n| format!("{n}: evil\r\n")).collect();
    let response = f.send(format!(
        "{head}2\r\nhi\r\n0\r\n{trailers}Authorization: evil\r\nContent-Length: 5\r\nHost: evil\r\nX-Sum: kept\r\n\r\n"
    ));
    assert_eq!(response.status, 200);
    let seen = f.upstream.only();
    assert_eq!(seen.body, b"hi");
    assert_eq!(seen.trailers.iter().map(|t| t.to_lowercase()).collect::<Vec<_>>(), ["x-sum: kept"]);
}

#[test]
fn identity_connection_nominations_of_protected_names_are_ignored() {
    let f = Fixture::new();
    let fields = "Connection: keep-alive, X-Forwarded-User, x-forwarded-groups, Authorization, Host, Cookie, X-Mine\r\n\
                  X-Mine: 1\r\nCookie: a=b\r\nX-Other: 2\r\n";
    assert_eq!(f.send(f.request("/", fields)).status, 200);
    let seen = f.upstream.only();
    assert_eq!(seen.values("x-forwarded-user"), ["alice"], "ours stays");
    assert_eq!(seen.values("x-forwarded-groups"), ["dev,ops"]);
    assert_eq!(seen.values("host"), ["app.test"]);
    assert_eq!(seen.values("cookie"), ["a=b"], "what may have been authorized stays");
    assert!(seen.values("x-mine").is_empty(), "the client's own nomination is honoured");
    assert_eq!(seen.values("x-other"), ["2"]);
}

#[test]
fn identity_hop_by_hop_fields_stay_on_their_hop() {
    let f = Fixture::new();
    let fields = "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n\
                  Proxy-Authorization: Basic eDp5\r\nTransfer_Encoding: chunked\r\n";
    assert_eq!(f.send(f.request("/", fields)).status, 200);
    let names = f.upstream.only().names();
    for name in
        ["connection", "keep-alive", "proxy-connection", "te", "proxy-authorization", "transfer_encoding"]
    {
        assert!(!names.iter().any(|n| n == name), "{name} passes: {names:?}");
    }
}

#[test]
fn identity_authorization_is_removed_unless_the_route_forwards_it() {
    let f = Fixture::new();
    assert_eq!(f.get("/").status, 200);
    assert!(f.upstream.only().values("authorization").is_empty());
    let f = Fixture::with(
        Setup { route: "forward_authorization = true".into(), ..Setup::default() },
        Upstream::start(),
    );
    assert_eq!(f.get("/").status, 200);
    assert!(f.upstream.only().values("authorization")[0].starts_with("Bearer ey"));
}

#[test]
fn identity_fields_count_from_nobody_by_default() {
    // No peer may speak for a client by default, not even one on loopback.
    let f = Fixture::new();
    let response = f.send(
        "GET / HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-User: admin\r\nX-Forwarded-Groups: dev\r\n\r\n",
    );
    assert_eq!(response.status, 401);
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn identity_there_is_no_bypass_by_user_agent_health_path_or_method() {
    let f = Fixture::new();
    for (line, fields) in [
        ("GET /healthz", ""),
        ("GET /livez", ""),
        ("GET /ping", ""),
        ("GET /metrics", ""),
        ("OPTIONS /", ""),
        ("HEAD /", ""),
        ("GET /", "User-Agent: kube-probe/1.36\r\n"),
        ("GET /", "User-Agent: ELB-HealthChecker/2.0\r\n"),
        ("OPTIONS *", ""),
        ("GET /favicon.ico", ""),
        ("GET /.well-known/x", ""),
    ] {
        let mut client = f.connect();
        client.send(format!("{line} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n"));
        let status = client.head().status;
        assert!(matches!(status, 401 | 404), "{line} {fields}: {status}");
    }
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn identity_styles_are_selectable() {
    let setup = Setup { more: "[identity_headers]\nstyle = \"x-auth-request\"\n".into(), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    assert_eq!(f.get("/").status, 200);
    let seen = f.upstream.only();
    assert_eq!(seen.values("x-auth-request-user"), ["alice"]);
    assert_eq!(seen.values("x-auth-request-groups"), ["dev,ops"]);
    assert!(seen.values("x-forwarded-user").is_empty());
}

#[test]
fn identity_http2_clients_cannot_forge_it_either() {
    let f = Fixture::new();
    // HTTP/2 has lower-case names only. The remaining spellings use other separators.
    let mut names: Vec<String> = aliases().iter().map(|name| name.to_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    for name in ["x-forwarded-user", "x_forwarded_user", "x.forwarded.user"] {
        assert!(names.iter().any(|n| n == name));
    }
    let chunks: Vec<_> = names.chunks(40).collect();
    http2::run(async {
        let send = http2::connect(f.address).await;
        for (path, chunk) in ["/", "/open"].iter().flat_map(|path| chunks.iter().map(move |c| (path, c))) {
            let mut request = http2::request(&f, "GET", path);
            for name in *chunk {
                let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
                request.headers_mut().append(&name, "evil".parse().unwrap());
                request.headers_mut().append(&name, "evil2".parse().unwrap());
            }
            request.headers_mut().insert("x-mine", "kept".parse().unwrap());
            assert_eq!(http2::get(&send, request).await.0.status, 200);
        }
    });
    let seen = f.upstream.seen();
    assert_eq!(seen.len(), 2 * chunks.len());
    for (n, seen) in seen.iter().enumerate() {
        let user: &[&str] = if n < chunks.len() { &["alice"] } else { &[] };
        assert!(evil(seen).is_empty(), "{:?}", evil(seen));
        assert_eq!(seen.values("x-forwarded-user"), user, "nobody is named on an open route");
        assert_eq!(seen.values("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(seen.values("x-mine"), ["kept"]);
    }
}
