//! Changes of headers on both ways, redirects, fixed responses and CORS.

use std::io::Write;

use dataplane::harness::{Fixture, Response, Setup, Upstream};
use dataplane::http2;

fn values<'r>(response: &'r Response, name: &str) -> Vec<&'r str> {
    let lines = response.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

/// An upstream whose responses have these lines.
fn answering(fields: &'static str) -> Upstream {
    Upstream::answering(move |_, socket| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{fields}\r\nok");
        socket.write_all(head.as_bytes()).is_ok()
    })
}

fn more(more: &str) -> Setup {
    Setup { more: more.into(), ..Setup::default() }
}

fn route(route: &str) -> Setup {
    Setup { route: route.into(), ..Setup::default() }
}

#[test]
fn request_headers_are_set_added_and_removed() {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "s3cret key\n").unwrap();
    let setup = route(&format!(
        "request_headers.set = {{ X-WEBAUTH-USER = \"{{user}}\", Authorization = {{ file = \"{}\", text = \"Key {{file}}\" }}, \
         X-Mail = \"<{{email}}>\", X-Real-IP = \"{{client_address}}\", X-Token = \"{{access_token}}\", X-Env = \"blue\" }}\n\
         request_headers.add = {{ X-Via = \"postern\" }}\nrequest_headers.remove = [\"Accept-Language\"]",
        key.path().display()
    ));
    let f = Fixture::with(setup, Upstream::start());
    let request = f.request(
        "/",
        "X_WebAuth_User: root\r\nX-Webauth-User: root\r\nX-Env: red\r\nX-Real-IP: 6.6.6.6\r\nX-Via: proxy\r\n\
         Accept-Language: de\r\nConnection: X-Webauth-User\r\n",
    );
    let token = request.split("Bearer ").nth(1).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(f.send(&request).status, 200);
    let seen = f.upstream.only();
    assert_eq!(seen.values("x-webauth-user"), ["alice"]);
    assert_eq!(seen.values("authorization"), ["Key s3cret key"]);
    assert_eq!(seen.values("x-mail"), ["<alice@example.com>"]);
    assert_eq!(seen.values("x-real-ip"), ["127.0.0.1"]);
    assert_eq!(seen.values("x-token"), [token.as_str()]);
    assert_eq!(seen.values("x-env"), ["blue"]);
    assert_eq!(seen.values("x-via"), ["proxy", "postern"]);
    for name in ["x_webauth_user", "accept-language"] {
        assert!(seen.values(name).is_empty(), "{}", seen.head);
    }
}

#[test]
fn a_value_that_is_not_known_is_not_sent_and_the_client_s_does_not_pass() {
    let setup = Setup {
        more:
            "[request_headers.set]\nX-Mail = \"{email}\"\nX-Id = \"Bearer {id_token}\"\nX-User = \"{user}\"\n"
                .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let open =
        "GET /open HTTP/1.1\r\nHost: app.test\r\nX-User: root\r\nX-Mail: root@example.com\r\nX.Id: x\r\n\r\n";
    assert_eq!(f.send(open).status, 200);
    let seen = f.upstream.only();
    for name in ["x-user", "x-mail", "x-id", "x.id"] {
        assert!(seen.values(name).is_empty(), "{}", seen.head);
    }
}

#[test]
fn trailers_do_not_carry_what_the_route_sets() {
    let f = Fixture::with(route("request_headers.set = { X-WEBAUTH-USER = \"{user}\" }"), Upstream::start());
    let token = f.issuer.token(|_| {});
    let request = format!(
        "POST / HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nX_WEBAUTH_USER: root\r\nX-Sum: 1\r\n\r\n"
    );
    assert_eq!(f.send(request).status, 200);
    assert_eq!(f.upstream.only().trailers, ["x-sum: 1"]);
}

#[test]
fn response_headers_of_all_routes_and_of_one() {
    let mut setup = more(
        "[response_headers]\nremove = [\"Server\"]\nset = { X-Env = \"all\", X-Team = \"core\" }\n\
         add = { Vary = \"X-Env\" }\n",
    );
    setup.route = "response_headers.set = { X-Env = \"mine\", X-Who = \"{user}\" }".into();
    let f =
        Fixture::with(setup, answering("Server: x\r\nX-Env: upstream\r\nVary: Accept\r\nX-Who: root\r\n"));
    let response = f.get("/");
    assert!(values(&response, "server").is_empty(), "{}", response.head);
    assert_eq!(values(&response, "x-env"), ["mine"]);
    assert_eq!(values(&response, "x-team"), ["core"]);
    assert_eq!(values(&response, "vary"), ["Accept", "X-Env"]);
    assert_eq!(values(&response, "x-who"), ["alice"]);
    // Responses of the gateway itself: of the route, and without a route.
    let refused = f.send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!((refused.status, values(&refused, "x-env")), (401, vec!["mine"]));
    assert!(values(&refused, "x-who").is_empty());
    let bad = f.send("GET /%zz HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(bad.status, 400);
    http2::run(async {
        let send = http2::connect(f.address).await;
        let (parts, _) = http2::get(&send, http2::request(&f, "GET", "/")).await;
        assert_eq!(parts.headers["x-env"], "mine");
        assert!(!parts.headers.contains_key("server"));
    });
}

#[test]
fn security_headers_are_set_where_the_upstream_sends_none() {
    let setup = Setup {
        listener: "trusted_proxies = { from = [\"127.0.0.1\"] }".into(),
        more:
            "[security_headers]\nhsts_subdomains = true\ncontent_security_policy = \"default-src 'self'\"\n"
                .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, answering("X-Frame-Options: DENY\r\n"));
    let plain = f.get("/");
    assert_eq!(values(&plain, "x-frame-options"), ["DENY"]);
    assert_eq!(values(&plain, "x-content-type-options"), ["nosniff"]);
    assert_eq!(values(&plain, "content-security-policy"), ["default-src 'self'"]);
    assert!(values(&plain, "strict-transport-security").is_empty(), "only over TLS (RFC 6797 §7.2)");
    let secure = f.send(f.request("/", "X-Forwarded-Proto: https\r\n"));
    assert_eq!(values(&secure, "strict-transport-security"), ["max-age=31536000; includeSubDomains"]);
}

const ROUTES: &str = r#"
[[route]]
name = "old"
path = { prefix = "/old" }
redirect = { prefix = "/new", status = 308 }
public = true
[[route]]
name = "moved"
path = { exact = "/moved" }
redirect = { scheme = "https", host = "www.example", path = "/home" }
policy = { allow = [{ groups = ["dev"] }] }
[[route]]
name = "loop"
path = { exact = "/loop" }
redirect = { host = "app.test", status = 301 }
public = true
[[route]]
name = "robots"
path = { exact = "/robots.txt" }
respond = { status = 200, body = "User-agent: *\nDisallow: /\n" }
public = true
[[route]]
name = "gone"
path = { prefix = "/gone" }
respond = { status = 410 }
public = true
[[route]]
name = "may-loop"
path = { prefix = "/may-loop" }
redirect = { host = "app.test", may_loop = true }
public = true
"#;

#[test]
fn redirects_keep_the_rest_of_the_address() {
    let f = Fixture::with(more(ROUTES), Upstream::start());
    let get = |path: &str| f.send(format!("GET {path} HTTP/1.1\r\nHost: app.test:8080\r\n\r\n"));
    for (path, location) in [
        ("/old", "http://app.test:8080/new"),
        ("/old/a%20b?q=1&r=%2F", "http://app.test:8080/new/a%20b?q=1&r=%2F"),
        ("/old/a%2Fb", "http://app.test:8080/new/a%2Fb"),
    ] {
        let response = get(path);
        assert_eq!((response.status, values(&response, "location")), (308, vec![location]), "{path}");
    }
    assert_eq!(get("/moved").status, 401, "the policy decides first");
    let moved = f.get("/moved?x=1");
    assert_eq!((moved.status, values(&moved, "location")), (302, vec!["https://www.example/home?x=1"]));
    assert_eq!(get("/loop").status, 301);
    let same = f.send("GET /loop HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(same.status, 508, "{}", same.text());
    let same = f.send("GET /may-loop?x HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!((same.status, values(&same, "location")), (302, vec!["http://app.test/may-loop?x"]));
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn fixed_responses_forward_nothing() {
    let f = Fixture::with(more(ROUTES), Upstream::start());
    let robots = f.send("GET /robots.txt HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!((robots.status, robots.body.as_slice()), (200, &b"User-agent: *\nDisallow: /\n"[..]));
    assert_eq!(values(&robots, "content-type"), ["text/plain; charset=utf-8"]);
    let gone = f.send("DELETE /gone/x HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!((gone.status, gone.body.len()), (410, 0));
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn plain_text_is_redirected_to_https_before_anything_else() {
    let setup = Setup {
        listener: "https_redirect = true\ntrusted_proxies = { from = [\"127.0.0.1\"] }".into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let plain = f.send("POST /x?y HTTP/1.1\r\nHost: app.test:8080\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!((plain.status, values(&plain, "location")), (308, vec!["https://app.test/x?y"]));
    assert!(f.upstream.seen().is_empty());
    assert_eq!(f.send(f.request("/", "X-Forwarded-Proto: https\r\n")).status, 200);
}

const CORS: &str = r#"
[[route]]
name = "api"
path = { prefix = "/api" }
methods = ["GET", "PUT"]
upstream = "backend"
policy = { allow = [{ groups = ["dev"] }] }
cors = "spa"
[[route]]
name = "data"
path = { prefix = "/data" }
upstream = "backend"
public = true
cors = { origins = ["*"], headers = ["*"] }
[cors.spa]
origins = ["https://app.example", "https://*.dev.example:8443"]
methods = ["GET", "PUT"]
headers = ["Authorization", "Content-Type"]
expose = ["X-Total"]
credentials = true
max_age = "10m"
"#;

fn preflight(f: &Fixture, path: &str, origin: &str, fields: &str) -> Response {
    f.send(format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: app.test\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n\
         {fields}\r\n"
    ))
}

#[test]
fn preflights_are_answered_without_a_credential() {
    let f = Fixture::with(more(CORS), Upstream::start());
    for origin in ["https://app.example", "https://a.b.dev.example:8443"] {
        let response = preflight(&f, "/api/x", origin, "Access-Control-Request-Headers: authorization\r\n");
        assert_eq!(response.status, 204, "{origin}");
        assert_eq!(values(&response, "access-control-allow-origin"), [origin]);
        assert_eq!(values(&response, "access-control-allow-methods"), ["GET, PUT"]);
        assert_eq!(values(&response, "access-control-allow-headers"), ["Authorization, Content-Type"]);
        assert_eq!(values(&response, "access-control-allow-credentials"), ["true"]);
        assert_eq!(values(&response, "access-control-expose-headers"), ["X-Total"]);
        assert_eq!(values(&response, "access-control-max-age"), ["600"]);
        assert!(values(&response, "vary")[0].contains("Origin"), "{}", response.head);
        assert!(values(&response, "content-length").is_empty(), "RFC 9110 §8.6");
    }
    for origin in [
        "https://evil.example",
        "http://app.example",
        "https://app.example.evil.example",
        "https://dev.example:8443",
        "https://.dev.example:8443",
        "https://evil.example/.dev.example:8443",
        "null",
    ] {
        let response = preflight(&f, "/api/x", origin, "");
        assert_eq!(response.status, 204, "{origin}");
        assert!(!response.head.contains("access-control"), "{origin}: {}", response.head);
    }
    let open = preflight(
        &f,
        "/data/x",
        "https://any.example",
        "Access-Control-Request-Headers: X-A,\u{e9}, x-b\r\n",
    );
    assert_eq!(values(&open, "access-control-allow-origin"), ["*"]);
    assert_eq!(values(&open, "access-control-allow-methods"), ["PUT"]);
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn origins_and_methods_are_those_of_the_gateway_api() {
    const ROUTES: &str = r#"
[[route]]
name = "any"
path = { prefix = "/any" }
upstream = "backend"
public = true
cors = { origins = ["*"], headers = ["*"], credentials = true, credentials_from_anywhere = true }
[[route]]
name = "hosts"
path = { prefix = "/hosts" }
upstream = "backend"
public = true
cors = { origins = ["https://*", "http://*:8080", "https://*.port.example:444"], methods = ["PUT"] }
"#;
    let f = Fixture::with(more(ROUTES), Upstream::start());
    // With credentials, `*` would mean a method and headers of this name.
    let any =
        preflight(&f, "/any", "https://a.example:12345", "Access-Control-Request-Headers: x-a, x-b\r\n");
    assert_eq!(values(&any, "access-control-allow-origin"), ["https://a.example:12345"]);
    assert_eq!(values(&any, "access-control-allow-methods"), ["PUT"]);
    assert_eq!(values(&any, "access-control-allow-headers"), ["x-a, x-b"]);
    assert_eq!(values(&any, "access-control-allow-credentials"), ["true"]);
    let read = f.send("GET /any HTTP/1.1\r\nHost: app.test\r\nOrigin: https://a.example\r\n\r\n");
    assert_eq!(values(&read, "access-control-allow-origin"), ["https://a.example"]);
    assert_eq!(values(&read, "access-control-allow-credentials"), ["true"]);
    for (origin, allowed) in [
        ("https://a.example", true),
        ("https://a.b.example", true),
        ("http://a.example:8080", true),
        ("https://a.b.port.example:444", true),
        ("https://a.example:8443", false),
        ("http://a.example", false),
        ("https://port.example:444", false),
        ("null", false),
    ] {
        let response = preflight(&f, "/hosts", origin, "");
        let expected = if allowed { vec![origin] } else { vec![] };
        assert_eq!(values(&response, "access-control-allow-origin"), expected, "{origin}");
    }
    let asked = |method: &str| {
        let head = "OPTIONS /hosts HTTP/1.1\r\nHost: app.test\r\nOrigin: https://a.example\r\n";
        let response = f.send(format!("{head}Access-Control-Request-Method: {method}\r\n\r\n"));
        response.head.contains("access-control-allow-origin")
    };
    for method in ["GET", "HEAD", "POST", "PUT"] {
        assert!(asked(method), "{method}");
    }
    assert!(!asked("DELETE"));
}

#[test]
fn an_options_request_that_is_no_preflight_is_judged_as_ever() {
    let f = Fixture::with(more(CORS), Upstream::start());
    let options = |path: &str, fields: &str| {
        f.send(format!("OPTIONS {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n")).status
    };
    assert_eq!(options("/other", "Origin: https://app.example\r\n"), 401);
    assert_eq!(
        options("/other", "Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n"),
        401
    );
    assert_eq!(options("/api/x", "Origin: https://app.example\r\n"), 401);
    assert_eq!(options("/api/x", "Access-Control-Request-Method: GET\r\n"), 401);
    let twice = "Origin: https://app.example\r\nOrigin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n";
    assert_eq!(options("/api/x", twice), 401);
    // The route of the announced method, not that of OPTIONS: POST is not on the route `api`.
    assert_eq!(
        options("/api/x", "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n"),
        401
    );
}

#[test]
fn only_listed_origins_may_read() {
    let upstream = answering(
        "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nX-Total: 7\r\n",
    );
    let f = Fixture::with(more(CORS), upstream);
    let good = f.send(f.request("/api/x", "Origin: https://app.example\r\n"));
    assert_eq!(values(&good, "access-control-allow-origin"), ["https://app.example"]);
    assert_eq!(values(&good, "access-control-allow-credentials"), ["true"]);
    assert_eq!(values(&good, "access-control-expose-headers"), ["X-Total"]);
    assert_eq!(values(&good, "vary"), ["Origin"]);
    for fields in ["Origin: https://evil.example\r\n", ""] {
        let other = f.send(f.request("/api/x", fields));
        assert!(!other.head.contains("access-control"), "{}", other.head);
        assert_eq!(values(&other, "vary"), ["Origin"]);
    }
    // A page can read why it was refused.
    let refused = f.send("GET /api/x HTTP/1.1\r\nHost: app.test\r\nOrigin: https://app.example\r\n\r\n");
    assert_eq!(refused.status, 401);
    assert_eq!(values(&refused, "access-control-allow-origin"), ["https://app.example"]);
    let open = f.send("GET /data HTTP/1.1\r\nHost: app.test\r\nOrigin: https://any.example\r\n\r\n");
    assert_eq!(values(&open, "access-control-allow-origin"), ["*"]);
    assert!(values(&open, "access-control-allow-credentials").is_empty() && values(&open, "vary").is_empty());
    let plain = f.send(f.request("/", "Origin: https://any.example\r\n"));
    assert_eq!(values(&plain, "access-control-allow-origin"), ["*"], "without a policy the upstream decides");
}

#[test]
fn the_upstream_is_told_the_prefix_and_its_paths_are_changed_back() {
    let route = |rewrites: &str| {
        more(&format!(
            "[[route]]\nname = \"app\"\npath = {{ prefix = \"/app\" }}\nupstream = \"backend\"\n\
             policy = {{ allow = [{{ groups = [\"dev\"] }}] }}\n\
             strip_prefix = \"/app\"\n{rewrites}\n"
        ))
    };
    let fields = "Location: /login?next=/x\r\nSet-Cookie: a=b; Path=/; Secure\r\nSet-Cookie: c=d\r\n";
    let f = Fixture::with(route("rewrite_responses = true"), answering(fields));
    let response = f.send(f.request("/app/x", "X-Forwarded-Prefix: /evil\r\n"));
    assert_eq!(values(&response, "location"), ["/app/login?next=/x"]);
    assert_eq!(values(&response, "set-cookie"), ["a=b; Path=/app; Secure", "c=d"]);
    assert_eq!(f.upstream.only().values("x-forwarded-prefix"), ["/app"]);
    let f = Fixture::with(route(""), answering(fields));
    let response = f.send(f.request("/app/x", "X-Forwarded-Prefix: /evil\r\n"));
    assert_eq!(values(&response, "location"), ["/login?next=/x"]);
    assert_eq!(values(&response, "set-cookie"), ["a=b; Path=/; Secure", "c=d"]);
    let other = f.send("GET /open HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-Prefix: /evil\r\n\r\n");
    assert_eq!(other.status, 200);
    assert!(f.upstream.seen()[1].values("x-forwarded-prefix").is_empty());
}
