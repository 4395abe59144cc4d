//! Refusals for gRPC clients.

use std::time::Duration;

use dataplane::harness::{Fixture, Setup, Upstream};
use dataplane::http2::{body_of, connect, request, run};
use http::{HeaderMap, HeaderValue, Request};

use super::rewrites::sleepy;

/// Changes a request before it is sent.
type Change = fn(&mut Request<()>);

/// Status, head, trailers and body of the answer to a gRPC call.
fn call(
    f: &Fixture,
    path: &str,
    change: fn(&mut Request<()>),
) -> (u16, HeaderMap, Option<HeaderMap>, Vec<u8>) {
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let mut call = request(f, "POST", path);
        call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc+proto"));
        call.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        change(&mut call);
        let (response, mut body) = send.send_request(call, false).unwrap();
        body.send_data(bytes::Bytes::from_static(b"\0\0\0\0\0"), true).unwrap();
        let (head, body, trailers) = body_of(response.await.unwrap()).await;
        (head.status.as_u16(), head.headers, trailers, body)
    })
}

#[test]
fn a_grpc_client_gets_the_status_of_a_refusal_in_trailers() {
    let mut setup = Setup { route: "request_timeout = \"300ms\"".into(), ..Setup::default() };
    setup.more = "[[route]]\nname = \"none\"\npath = { prefix = \"/none\" }\npublic = true\n\
                  upstreams = [{ status = 500 }]\nresponse_headers.set = { X-Env = \"blue\" }\n"
        .into();
    let f = Fixture::with(setup, sleepy(Duration::from_secs(2), false, 1));
    let unauthorized = |call: &mut Request<()>| drop(call.headers_mut().remove("authorization"));
    let calls: [(_, Change, _, _); 3] = [
        ("/echo.Echo/Say", unauthorized, "16", "unauthenticated: "),
        ("/none/x", |_| {}, "14", "no_backend: no service is configured for this request"),
        ("/echo.Echo/Say", |_| {}, "14", "request_timeout: "),
    ];
    for (path, change, status, message) in calls {
        let (http, head, trailers, body) = call(&f, path, change);
        assert_eq!((http, body.len(), trailers), (200, 0, None), "a response that has only trailers: {path}");
        assert_eq!(head["content-type"], "application/grpc");
        assert_eq!(head["grpc-status"], status, "{path}: {head:?}");
        assert!(head["grpc-message"].to_str().unwrap().starts_with(message), "{path}: {head:?}");
        assert!(!head.contains_key("content-length"));
        assert_eq!(head.get("www-authenticate").is_some(), status == "16");
        assert_eq!(head.get("x-env").is_some(), path == "/none/x");
    }
    // What the upstream answers passes as it is.
    let (http, head, _, body) = call(&f, "/echo.Echo/Say", |_| {});
    assert_eq!((http, body.as_slice(), head.get("grpc-status")), (200, &b"ok"[..], None));
    // The log and the metrics have the status of the refusal.
    assert_eq!(
        f.counted("postern_requests_total{route=\"protected\",outcome=\"unauthenticated\",class=\"4xx\"}"),
        1.0
    );
}

#[test]
fn no_refusal_looks_like_a_success_to_another_proxy() {
    let answered = "[[route]]\nname = \"answered\"\npath = { prefix = \"/answered\" }\n\
                    respond = { status = 200 }\npolicy = { allow = [{ groups = [\"dev\"] }] }\n";
    let setup = Setup { more: answered.into(), ..Setup::default() };
    let f = Fixture::with(setup, Upstream::start());
    // Clients map 404 and 400 themselves. A route without an upstream may be where another proxy
    // sends its checks, with the client's content type.
    let unauthorized = |call: &mut Request<()>| drop(call.headers_mut().remove("authorization"));
    assert_eq!(call(&f, "/answered", unauthorized).0, 401);
    assert_eq!(call(&f, "/%zz", |_| {}).0, 400);
    // A call says `TE: trailers`, which ends at each hop, and is a POST.
    for change in [
        |call: &mut Request<()>| drop(call.headers_mut().remove("te")),
        |call: &mut Request<()>| *call.method_mut() = http::Method::GET,
        |call: &mut Request<()>| {
            call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc-web"));
        },
    ] {
        let (status, ..) = run(async {
            let mut send = connect(f.address).await.ready().await.unwrap();
            let mut call = request(&f, "POST", "/echo.Echo/Say");
            call.headers_mut().remove("authorization");
            call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            call.headers_mut().insert("te", HeaderValue::from_static("trailers"));
            change(&mut call);
            let (response, _) = send.send_request(call, true).unwrap();
            let (head, ..) = body_of(response.await.unwrap()).await;
            (head.status.as_u16(), ())
        });
        assert_eq!(status, 401);
    }
    // gRPC needs HTTP/2.
    let plain = f.send(
        "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!((plain.status, plain.value("content-type")), (401, Some("application/problem+json")));
}
