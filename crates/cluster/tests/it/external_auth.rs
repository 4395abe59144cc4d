//! The filter `ExternalAuth` of an HTTPRoute, with real services that decide.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use controller::settings::Settings;
use dataplane::ext_authz::{CheckService, permit, refusal};
use dataplane::harness::{Seen, Upstream};
use dataplane::ports;

use crate::objects::{Cluster, manifest_of_service};
use crate::{DEVELOPERS, EVERYBODY, cluster_with, policy, route};

/// A Gateway, a service `app`, and a service `auth` that decides.
fn cluster(auth: SocketAddr) -> (Cluster, Upstream) {
    let settings = Settings { experimental: true, ..Settings::new("postern.dev/gateway-controller") };
    let (mut cluster, pod) = cluster_with(settings);
    cluster.apply(&manifest_of_service("auth", auth));
    (cluster, pod)
}

/// A route to `app` whose requests `auth` decides about. `filter`: the protocol and its fields.
fn asking(cluster: &mut Cluster, filter: &str, body: &str) {
    let rules = format!(
        "  - filters:
    - type: ExternalAuth
      externalAuth: {{backendRef: {{name: auth, port: 80}}, {filter}}}
    backendRefs: [{{name: app, port: 80}}]"
    );
    cluster.apply(&route("app", "app.test", &rules));
    cluster.apply(&policy("who", "app", body));
}

/// The trailers that arrive at `pod` of a request with these fields and trailers.
fn passed_trailers(cluster: &Cluster, pod: &Upstream, fields: &str, trailers: &str) -> Vec<String> {
    let mut client = cluster.connect();
    client.send(format!(
        "POST /x HTTP/1.1\r\nHost: app.test\r\n{fields}Transfer-Encoding: chunked\r\n\r\n0\r\n{trailers}\r\n"
    ));
    assert_eq!(client.response().status, 200);
    pod.seen().pop().expect("a request").trailers
}

/// A service over HTTP that gives this response to every query.
fn saying(response: &'static str) -> Upstream {
    Upstream::answering(move |_, socket| socket.write_all(response.as_bytes()).is_ok())
}

#[test]
fn a_service_over_http_decides_after_the_policy() {
    let auth = Upstream::answering(|seen: &Seen, socket| {
        let response = match seen.values("authorization").as_slice() {
            [] => "HTTP/1.1 302 Found\r\nLocation: /login\r\nX-Inner: 1\r\nContent-Length: 0\r\n\r\n",
            _ => {
                "HTTP/1.1 200 OK\r\nX-Tenant: blue\r\nX-Debug: 1\r\nX-Auth-Request-User: root\r\n\
                 Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
            }
        };
        socket.write_all(response.as_bytes()).is_ok()
    });
    let (mut cluster, pod) = cluster(auth.address);
    asking(
        &mut cluster,
        "protocol: HTTP, http: {path: /check, allowedHeaders: [X-Shown], allowedResponseHeaders: [X-Tenant, X-Auth-Request-User, X-None]}",
        EVERYBODY,
    );
    assert_eq!(cluster.publish(), "");
    let refused = cluster.get("app.test", "/x?y=1", "X-Shown: a\r\nX-Hidden: b\r\n");
    assert_eq!(
        (refused.status, refused.value("location"), refused.value("x-inner")),
        (302, Some("/login"), None)
    );
    let asked = auth.only();
    assert_eq!(asked.line(), "GET /check/x?y=1 HTTP/1.1");
    assert_eq!((asked.values("host"), asked.values("x-shown")), (vec!["app.test"], vec!["a"]));
    assert!(asked.values("x-hidden").is_empty() && pod.seen().is_empty());
    let fields = "Authorization: Bearer x\r\nX-Tenant: red\r\nX-None: 1\r\nX-Debug: 2\r\n";
    assert_eq!(cluster.get("app.test", "/x", fields).status, 200);
    let seen = pod.only();
    assert_eq!((seen.values("x-tenant"), seen.values("x-debug")), (vec!["blue"], vec!["2"]));
    assert!(seen.values("x-none").is_empty(), "a client does not set what the service may");
    assert!(seen.values("x-auth-request-user").is_empty(), "nobody else says who calls");
    let trailers = "X-Tenant: red\r\nX_Tenant: red\r\nX-None: 1\r\nX-Sum: 0\r\n";
    let passed = passed_trailers(&cluster, &pod, "Authorization: Bearer x\r\n", trailers);
    assert_eq!(passed, ["x-sum: 0"], "a trailer does not set it either");
}

#[test]
fn all_fields_of_an_answer_are_copied_that_a_client_could_send() {
    let auth = saying(
        "HTTP/1.1 200 OK\r\nX-Tenant: blue\r\nX-Forwarded-For: 1.2.3.4\r\nX-Auth-Request-User: root\r\n\
         Content-Type: text/plain\r\nServer: auth\r\nContent-Length: 2\r\n\r\nok",
    );
    let (mut cluster, pod) = cluster(auth.address);
    asking(&mut cluster, "protocol: HTTP", EVERYBODY);
    assert_eq!(cluster.publish(), "");
    let fields = "X-Tenant: red\r\nX-Other: 1\r\nContent-Type: text/html\r\n";
    assert_eq!(cluster.get("app.test", "/", fields).status, 200);
    let seen = pod.only();
    assert_eq!((seen.values("x-tenant"), seen.values("x-other")), (vec!["blue"], vec!["1"]));
    assert_eq!(seen.values("content-type"), ["text/html"]);
    assert!(seen.values("server").is_empty() && seen.values("x-auth-request-user").is_empty());
    assert_ne!(seen.values("x-forwarded-for"), ["1.2.3.4"]);
    let asked = auth.only();
    assert!(asked.values("x-tenant").is_empty() && asked.values("authorization").is_empty());
}

#[test]
fn the_policy_comes_first_and_stays() {
    let auth = saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (mut cluster, _pod) = cluster(auth.address);
    asking(&mut cluster, "protocol: HTTP", DEVELOPERS);
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 401);
    assert!(auth.seen().is_empty(), "the service is not asked about whom the policy refuses");
    let bearer = cluster.bearer();
    assert_eq!(cluster.get("app.test", "/", &bearer).status, 200);
    assert_eq!(auth.seen().len(), 1);
    cluster.remove("AccessPolicy", "who");
    cluster.publish();
    let closed = cluster.get("app.test", "/", &bearer);
    assert!(closed.status == 403 && closed.text().contains("no_policy"), "{}", closed.text());
    assert_eq!(auth.seen().len(), 1);
}

#[test]
fn a_service_over_grpc_decides() {
    let auth = CheckService::answering(|http| match http.path.as_str() {
        "/broken" => Err(13),
        "/no" => Ok(refusal(401, ("WWW-Authenticate", "Basic"), "who?")),
        _ => Ok(permit(&[("x-tenant", "blue"), ("x-auth-request-user", "root")], &["X-Debug"])),
    });
    let (mut cluster, pod) = cluster(auth.address);
    asking(&mut cluster, "protocol: GRPC", EVERYBODY);
    assert_eq!(cluster.publish(), "");
    let fields =
        "X-Tenant: red\r\nX-Debug: 1\r\nX-Hop: 1\r\nConnection: X-Hop\r\nX-Forwarded-For: 1.2.3.4\r\n";
    let mut client = cluster.connect();
    client.send(format!("GET /yes?a=b HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n"));
    let passed = client.response();
    assert_eq!(passed.status, 200, "{}", passed.text());
    let seen = pod.only();
    assert_eq!(seen.values("x-tenant"), ["blue"]);
    assert!(seen.values("x-debug").is_empty() && seen.values("x-auth-request-user").is_empty());
    let asked = auth.seen().pop().expect("a check");
    assert_eq!(
        (&*asked.method, &*asked.path, &*asked.host, &*asked.scheme),
        ("GET", "/yes?a=b", "app.test", "http")
    );
    let shown = |name: &str| asked.headers.get(name).map(String::as_str);
    assert_eq!((shown("x-tenant"), shown("x-debug"), shown("x-hop")), (Some("red"), Some("1"), None));
    assert_eq!(shown("x-forwarded-for"), Some("127.0.0.1"), "what the gateway knows, not what a client says");
    let trailers = "X-Tenant: red\r\nX-Debug: 1\r\nX-Sum: 0\r\n";
    assert_eq!(passed_trailers(&cluster, &pod, "", trailers), ["x-sum: 0"]);
    let refused = cluster.get("app.test", "/no", "");
    assert_eq!((refused.status, refused.value("www-authenticate")), (401, Some("Basic")));
    assert_eq!(refused.text(), "who?");
    let broken = cluster.get("app.test", "/broken", "");
    assert_eq!(broken.status, 503, "{}", broken.text());
    assert_eq!(pod.seen().len(), 2);
    // Only the fields that the filter names are shown.
    asking(&mut cluster, "protocol: GRPC, grpc: {allowedHeaders: [X-Tenant]}", EVERYBODY);
    assert_eq!(cluster.publish(), "");
    assert_eq!(cluster.get("app.test", "/", "X-Tenant: red\r\nX-Debug: 1\r\n").status, 200);
    let asked = auth.seen().pop().expect("a check");
    assert_eq!(
        (asked.headers.get("x-tenant").map(String::as_str), asked.headers.get("x-debug")),
        (Some("red"), None)
    );
}

#[test]
fn nobody_passes_while_the_service_does_not_decide() {
    let silent = Upstream::answering(|_, _| {
        std::thread::sleep(Duration::from_secs(8));
        false
    });
    let (mut cluster, pod) = cluster(silent.address);
    asking(&mut cluster, "protocol: HTTP", EVERYBODY);
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 503);
    let nobody: SocketAddr = ports::free().parse().expect("an address");
    cluster.apply(&manifest_of_service("auth", nobody));
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 503);
    cluster.remove("Service", "auth");
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 500);
    assert!(cluster.condition("HTTPRoute", "app", "ResolvedRefs").starts_with("False BackendNotFound"));
    let auth = saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    cluster.apply(&manifest_of_service("auth", auth.address));
    cluster.publish();
    assert!(pod.seen().is_empty());
    assert_eq!(cluster.get("app.test", "/", "").status, 200);
}

#[test]
fn what_cannot_be_carried_out_is_refused_and_said() {
    let auth = saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (mut cluster, pod) = cluster(auth.address);
    for (filter, expected) in [
        (
            "protocol: HTTP, forwardBody: {maxSize: 100}",
            "forwardBody of the filter ExternalAuth is not supported",
        ),
        (
            "protocol: HTTP, http: {path: /a/../b}",
            "http.path \"/a/../b\" of the filter ExternalAuth: the path holds a dot segment",
        ),
    ] {
        asking(&mut cluster, filter, EVERYBODY);
        let faults = cluster.publish();
        assert!(faults.contains(expected), "{faults}");
        assert_eq!(cluster.get("app.test", "/", "").status, 500);
        let accepted = cluster.condition("HTTPRoute", "app", "Accepted");
        assert!(
            accepted.starts_with("False UnsupportedValue: ") && accepted.contains(expected),
            "{accepted}"
        );
    }
    asking(&mut cluster, "protocol: HTTP, forwardBody: {maxSize: 0}", EVERYBODY);
    assert_eq!(cluster.publish(), "");
    assert_eq!(cluster.get("app.test", "/", "").status, 200);
    assert_eq!((auth.seen().len(), pod.seen().len()), (1, 1));
}

#[test]
fn an_answer_counts_as_long_as_it_says() {
    let auth =
        saying("HTTP/1.1 200 OK\r\nCache-Control: max-age=5\r\nX-Tenant: blue\r\nContent-Length: 0\r\n\r\n");
    let (mut cluster, pod) = cluster(auth.address);
    asking(&mut cluster, "protocol: HTTP", EVERYBODY);
    cluster.publish();
    for _ in 0..3 {
        assert_eq!(cluster.get("app.test", "/", "").status, 200);
    }
    assert_eq!((auth.seen().len(), pod.seen().len()), (1, 3));
    assert_eq!(pod.seen()[2].values("x-tenant"), ["blue"]);
    // Another question is asked.
    assert_eq!(cluster.get("app.test", "/", "Authorization: Basic eA==\r\n").status, 200);
    assert_eq!(auth.seen().len(), 2);
    // Another version of the route does not know the former answers.
    asking(&mut cluster, "protocol: HTTP, http: {path: /check}", EVERYBODY);
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/", "").status, 200);
    assert_eq!(auth.seen()[2].line(), "GET /check/ HTTP/1.1");
}

#[test]
fn a_rule_says_how_often_a_request_is_sent_again() {
    let (mut cluster, _) = cluster(ports::free().parse().expect("an address"));
    let pod = saying("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    cluster.apply(&manifest_of_service("app", pod.address));
    cluster.apply(&policy("who", "app", EVERYBODY));
    let mut seen = 0;
    for (retry, attempts) in [
        ("", 1),
        ("    retry: {attempts: 3, codes: [503], backoff: 1ms}\n", 4),
        ("    retry: {attempts: 3, codes: [502]}\n", 1),
        ("    retry: {codes: [503]}\n", 2),
        ("    retry: {attempts: 0, codes: [503]}\n", 1),
    ] {
        let rules = format!("  - backendRefs: [{{name: app, port: 80}}]\n{retry}");
        cluster.apply(&route("app", "app.test", &rules));
        assert_eq!(cluster.publish(), "");
        assert_eq!(cluster.get("app.test", "/", "").status, 503, "{retry}");
        assert_eq!(pod.seen().len() - seen, attempts, "{retry}");
        seen = pod.seen().len();
    }
}
