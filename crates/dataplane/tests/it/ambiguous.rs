//! security: a decision and the service read the same request. No client can have a field removed,
//! doubled or respelled that a route, a review or an authorizer read.

use std::io::Write as _;

use http::{HeaderName, HeaderValue};

use dataplane::ext_authz::{allowed, check, denied, question};
use dataplane::harness::{Fixture, Issuer, Setup, Upstream};
use dataplane::http2;

/// Below `/x` a field selects between a public route and one for admins. `/app/x` leads to the same
/// paths.
const ROUTES: &str = r#"
[[route]]
name = "blue"
path = { prefix = "/x" }
headers = { X-Env = "blue" }
upstream = "backend"
public = true
[[route]]
name = "x"
path = { prefix = "/x" }
upstream = "backend"
policy = { allow = [{ groups = ["admins"] }] }
[[route]]
name = "app"
path = { prefix = "/app" }
strip_prefix = "/app"
upstream = "backend"
public = true
"#;

/// Field lines that two parsers could read differently.
const AMBIGUOUS: [&str; 9] = [
    "X-Env: blue\r\nConnection: X-Env\r\n",
    "X-Env: blue\r\nConnection: close, x-env\r\n",
    "Connection: keep-alive\r\nX-Env: blue\r\nConnection: X_Env\r\n",
    "X-Env: blue\r\nX_Env: red\r\n",
    "X.Env: red\r\nX-Env: blue\r\n",
    "X-Env: blue\r\nX-Env: red\r\n",
    "X-Env: blue\r\nx-env: blue\r\n",
    "X_Env: blue\r\n",
    "Connection: X-Env\r\n",
];

fn chosen_by_a_header() -> Fixture {
    Fixture::with(Setup { more: ROUTES.into(), ..Setup::default() }, Upstream::start())
}

fn head(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n")
}

fn is_refused(f: &Fixture, path: &str, fields: &str) {
    let before = f.upstream.seen().len();
    let refused = f.send(head(path, fields));
    assert_eq!(refused.status, 400, "{path} {fields:?}: {}", refused.text());
    assert!(refused.text().contains("ambiguous_header"), "{}", refused.text());
    assert_eq!(f.upstream.seen().len(), before, "{path} {fields:?}");
}

#[test]
fn ambiguous_a_header_that_chose_the_route_is_there_once_and_stays() {
    let f = chosen_by_a_header();
    assert_eq!(f.send(head("/x", "X-Env: blue\r\n")).status, 200);
    assert_eq!(f.upstream.only().values("x-env"), ["blue"]);
    assert_eq!(f.send(head("/x", "X-Env: red\r\n")).status, 401);
    assert_eq!(f.send(head("/x", "")).status, 401);
    for fields in AMBIGUOUS {
        is_refused(&f, "/x", fields);
    }
}

#[test]
fn ambiguous_a_header_that_could_have_chosen_another_route_counts_too() {
    // Here the header leads to the stricter route, and a request without it would be public.
    let more = ROUTES.replace(
        "public = true\n[[route]]\nname = \"x\"",
        "policy = { allow = [{ groups = [\"admins\"] }] }\n[[route]]\nname = \"x\"",
    );
    let more = more.replacen(
        "policy = { allow = [{ groups = [\"admins\"] }] }\n[[route]]\nname = \"app\"",
        "public = true\n[[route]]\nname = \"app\"",
        1,
    );
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    assert_eq!(f.send(head("/x", "X-Env: blue\r\n")).status, 401);
    assert_eq!(f.send(head("/x", "")).status, 200);
    for fields in AMBIGUOUS {
        is_refused(&f, "/x", fields);
    }
}

#[test]
fn ambiguous_fields_that_nothing_read_are_the_clients() {
    let f = chosen_by_a_header();
    for fields in AMBIGUOUS {
        assert_eq!(f.send(head("/open", fields)).status, 200, "{fields:?}");
    }
    let seen = f.upstream.seen();
    assert!(seen[0].values("x-env").is_empty(), "a nomination is followed");
    assert_eq!(seen[3].values("x_env"), ["red"]);
    assert_eq!(seen[5].values("x-env"), ["blue", "red"]);
}

#[test]
fn ambiguous_a_header_that_a_guard_of_the_new_path_read_counts_too() {
    let f = chosen_by_a_header();
    assert_eq!(f.send(head("/app/x", "X-Env: blue\r\n")).status, 200);
    assert_eq!(f.send(head("/app/x", "")).status, 401);
    for fields in AMBIGUOUS {
        is_refused(&f, "/app/x", fields);
    }
}

#[test]
fn ambiguous_headers_in_trailers_stay_behind() {
    let f = chosen_by_a_header();
    let request = "POST /x HTTP/1.1\r\nHost: app.test\r\nX-Env: blue\r\nTransfer-Encoding: chunked\r\n\r\n\
                   2\r\nhi\r\n0\r\nX-Env: red\r\nX_Env: red\r\nX-Sum: 2\r\n\r\n";
    assert_eq!(f.send(request).status, 200);
    assert_eq!(f.upstream.only().trailers, ["x-sum: 2"]);
}

#[test]
fn ambiguous_headers_are_refused_over_http2() {
    let f = chosen_by_a_header();
    let get = async |fields: &[(&str, &str)]| {
        let send = http2::connect(f.address).await;
        let mut request = http::Request::get("http://app.test/x").body(()).unwrap();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
        }
        http2::get(&send, request).await.0.status.as_u16()
    };
    http2::run(async {
        assert_eq!(get(&[("x-env", "blue")]).await, 200);
        for fields in [
            &[("x-env", "blue"), ("x_env", "red")][..],
            &[("x-env", "blue"), ("x-env", "red")],
            &[("x-env", "blue"), ("x-env", "blue")],
            &[("x.env", "blue")],
        ] {
            assert_eq!(get(fields).await, 400, "{fields:?}");
        }
    });
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn ambiguous_headers_are_refused_when_envoy_asks() {
    use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
    let listener = "authorization = { from = [\"127.0.0.1/32\"] }".to_owned();
    let f = Fixture::with(Setup { listener, more: ROUTES.into(), ..Setup::default() }, Upstream::start());
    let joined = |fields: &[(&str, &str)]| check(&f, &question("/x", fields));
    let raw = |fields: &[(&str, &str)]| {
        let mut question = question("/x", &[]);
        let http = question.attributes.as_mut().unwrap().request.as_mut().unwrap().http.as_mut().unwrap();
        let header = |(key, value): &(&str, &str)| HeaderValue {
            key: (*key).into(),
            raw_value: value.as_bytes().to_vec(),
            ..HeaderValue::default()
        };
        http.header_map = Some(HeaderMap { headers: fields.iter().map(header).collect() });
        check(&f, &question)
    };
    allowed(joined(&[("x-env", "blue")]));
    allowed(raw(&[("x-env", "blue")]));
    assert_eq!(denied(joined(&[("x-env", "red,green")])).0, 401);
    // A field that no condition on the way reads has no effect, whatever another route requires.
    allowed(check(&f, &question("/open", &[("x-env", "blue,blue")])));
    for refused in [
        joined(&[("x-env", "blue"), ("x_env", "red")]),
        joined(&[("x-env", "blue"), ("connection", "x-env")]),
        // Envoy joins a field that occurred twice.
        joined(&[("x-env", "blue,blue")]),
        joined(&[("x-env", "red,blue")]),
        raw(&[("x-env", "blue"), ("x-env", "blue")]),
        raw(&[("x-env", "red"), ("x-env", "blue")]),
        raw(&[("x_env", "blue")]),
    ] {
        let (status, _, body, _) = denied(refused);
        assert!(status == 400 && body.contains("ambiguous_header"), "{status} {body}");
    }
}

#[test]
fn ambiguous_headers_are_refused_when_others_ask() {
    for (http, target, about) in [
        (
            "x-forwarded",
            "/ask",
            "X-Forwarded-Method: GET\r\nX-Forwarded-Host: app.test\r\nX-Forwarded-Uri: /x\r\n",
        ),
        ("x-original", "/ask", "X-Original-Method: GET\r\nX-Original-URI: /x\r\n"),
        ("envoy", "/x", ""),
    ] {
        let listener = format!("authorization = {{ from = [\"127.0.0.1/32\"], http = \"{http}\" }}");
        let f = Fixture::with(Setup { listener, more: ROUTES.into(), ..Setup::default() }, Upstream::start());
        let ask = |fields: &str| f.send(head(target, &format!("{about}{fields}")));
        assert_eq!(ask("X-Env: blue\r\n").status, 200, "{http}");
        assert_eq!(ask("X-Env: red\r\n").status, 401, "{http}");
        for fields in AMBIGUOUS {
            let refused = ask(fields);
            assert_eq!(refused.status, 400, "{http} {fields:?}: {}", refused.text());
        }
        // Only Envoy joins a field that occurred twice.
        let expected = if http == "envoy" { 400 } else { 401 };
        assert_eq!(ask("X-Env: red,blue\r\n").status, expected, "{http}");
    }
}

#[test]
fn ambiguous_headers_that_an_authorizer_would_be_shown_are_refused() {
    let authorizer = Upstream::start();
    let more = format!(
        r#"
[[upstream]]
name = "auth"
endpoints = ["http://{}"]
[[authorizer]]
name = "other"
upstream = "auth"
request_headers = ["X-Env", "Cookie", "traceparent"]
[[route]]
name = "asked"
path = {{ prefix = "/asked" }}
upstream = "backend"
public = true
authorizer = "other"
"#,
        authorizer.address
    );
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    assert_eq!(f.send(head("/asked", "X-Env: blue\r\nCookie: a=b\r\n")).status, 200);
    assert_eq!(authorizer.seen().len(), 1);
    for fields in AMBIGUOUS {
        is_refused(&f, "/asked", fields);
    }
    is_refused(&f, "/asked", "Cookie: a=b\r\nCookie: a=c\r\n");
    assert_eq!(authorizer.seen().len(), 1, "nobody is asked about what can be read in two ways");
    // A field that the authorizer does not receive has no effect.
    assert_eq!(f.send(head("/asked", "X-Other: 1\r\nX_Other: 2\r\n")).status, 200);
    let trailers = "POST /asked HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX_Env: red\r\nX-Sum: 0\r\n\r\n";
    assert_eq!(f.send(trailers).status, 200);
    assert_eq!(f.upstream.seen().last().unwrap().trailers, ["x-sum: 0"]);
}

#[test]
fn ambiguous_is_no_list_that_came_in_several_lines() {
    let authorizer = Upstream::start();
    let more = format!(
        "[[upstream]]\nname = \"auth\"\nendpoints = [\"http://{}\"]\n[[authorizer]]\nname = \"other\"\nupstream = \"auth\"\n\
         [[route]]\nname = \"asked\"\npath = {{ prefix = \"/asked\" }}\nupstream = \"backend\"\npublic = true\nauthorizer = \"other\"\n",
        authorizer.address
    );
    let f = Fixture::with(Setup { more, ..Setup::default() }, Upstream::start());
    // Registry clients send one line for each kind of manifest.
    let two = "Accept: application/vnd.oci.image.index.v1+json\r\nAccept: application/json;q=0.5\r\n";
    assert_eq!(f.send(head("/asked", two)).status, 200);
    assert_eq!(
        authorizer.only().values("accept"),
        ["application/vnd.oci.image.index.v1+json, application/json;q=0.5"]
    );
    assert_eq!(
        f.upstream.only().values("accept"),
        ["application/vnd.oci.image.index.v1+json", "application/json;q=0.5"]
    );
    for fields in [
        "Accept: a/b\r\nConnection: accept\r\n",
        "User-Agent: a\r\nUser-Agent: b\r\n",
        "Origin: https://a.test\r\nOrigin: https://b.test\r\n",
    ] {
        is_refused(&f, "/asked", fields);
    }
}

#[test]
fn ambiguous_headers_that_a_review_reads_are_refused() {
    let cluster = Upstream::answering(|_, socket| {
        let body = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}"#;
        let head = format!(
            "HTTP/1.1 201 X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(format!("{head}{body}").as_bytes()).is_ok()
    });
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    std::fs::write(dir.path().join("token"), "account\n").unwrap();
    let more = format!(
        r#"
[[route]]
name = "reviewed"
path = {{ prefix = "/reviewed" }}
upstream = "backend"
access_review = {{ resource = "pods", verb = "get", namespace = "{{header.X-Env}}" }}
[kubernetes]
url = "http://{}/"
token_file = "token"
watch = false
"#,
        cluster.address
    );
    let text = Setup { more, ..Setup::default() }.file(dir.path(), upstream.address);
    let f = Fixture::from_text(dir, issuer, upstream, &text);
    assert_eq!(f.send(f.request("/reviewed", "X-Env: blue\r\n")).status, 200);
    for fields in AMBIGUOUS
        .iter()
        .filter(|fields| fields.contains("Connection") || fields.contains("_Env") || fields.contains(".Env"))
    {
        let refused = f.send(f.request("/reviewed", fields));
        assert_eq!(refused.status, 400, "{fields:?}");
        assert!(refused.text().contains("review_incomplete"), "{}", refused.text());
    }
    assert_eq!(
        f.send(f.request("/reviewed", "X-Env: blue\r\nX-Env: red\r\n")).status,
        200,
        "each value was reviewed"
    );
    assert_eq!(cluster.seen().len(), 2);
    let head =
        f.request("/reviewed", "X-Env: blue\r\nTransfer-Encoding: chunked\r\n").replacen("GET", "POST", 1);
    assert_eq!(f.send(head + "0\r\nX-Env: red\r\nX-Sum: 0\r\n\r\n").status, 200);
    assert_eq!(f.upstream.seen().last().unwrap().trailers, ["x-sum: 0"]);
}
