//! Envoy queries over gRPC whether a request may pass. The test plays Envoy, with types generated
//! from Envoy's own files.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use envoy_types::pb::envoy::service::auth::v3::{CheckRequest, CheckResponse};
use envoy_types::pb::google::protobuf::value::Kind;
use http::Request;
use prost::Message as _;

use dataplane::ext_authz::{CHECK, allowed, answered, call, call_within, check, denied, framed, question};
use dataplane::harness::{Fixture, Setup, Upstream};
use dataplane::http2::{connect, run};

fn asked() -> Fixture {
    let listener = "authorization = { from = [\"127.0.0.1/32\"] }".to_owned();
    Fixture::with(Setup { listener, ..Setup::default() }, Upstream::start())
}

fn bearer(f: &Fixture) -> String {
    format!("Bearer {}", f.issuer.token(|_| {}))
}

#[test]
fn whoever_may_is_named_in_fields_and_metadata() {
    let f = asked();
    let response = check(&f, &question("/a?b=c", &[("authorization", &bearer(&f)), ("accept", "*/*")]));
    let metadata = response.dynamic_metadata.clone().unwrap().fields;
    let text = |name: &str| match metadata[name].kind.clone().unwrap() {
        Kind::StringValue(text) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (text("subject"), text("user"), text("issuer")),
        ("alice-id".into(), "alice".into(), "test".into())
    );
    assert!(matches!(&metadata["groups"].kind, Some(Kind::ListValue(list)) if list.values.len() == 2));
    let ok = allowed(response);
    let set: HashMap<String, String> =
        ok.headers.iter().map(|o| o.header.clone().unwrap()).map(|h| (h.key, h.value)).collect();
    assert_eq!(set["x-forwarded-user"], "alice");
    assert_eq!(set["x-forwarded-groups"], "dev,ops");
    assert!(ok.headers.iter().all(|option| option.append_action == 2), "in place of whatever is there");
    let absent = ["x-forwarded-email", "authorization"];
    assert!(
        ok.headers_to_remove.iter().any(|name| name == "authorization"),
        "the token is not the service's"
    );
    assert!(
        ok.headers_to_remove.iter().all(|name| absent.contains(&name.as_str()) || !set.contains_key(name))
    );
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn what_a_service_could_take_for_ours_is_removed() {
    let f = asked();
    let claimed = [
        ("x-forwarded-user", "root"),
        ("x_forwarded_groups", "admin"),
        ("x-auth-request-user", "root"),
        ("x-remote-user", "root"),
        ("x-http-method-override", "DELETE"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("x-envoy-attempt-count", "1"),
        ("forwarded", "for=1.2.3.4"),
        ("x-forwarded-host", "other.test"),
        ("x-original-url", "/admin"),
        ("transfer_encoding", "chunked"),
        ("content_length", "7"),
        ("content-length", "7"),
        ("x-client-ip", "203.0.113.9"),
        ("cert-subject", "cn=root"),
        ("x-client-id", "app"),
        ("accept", "*/*"),
    ];
    let mut ok = allowed(check(&f, &question("/open", &claimed)));
    ok.headers_to_remove.sort();
    let expected = [
        "authorization",
        "cert-subject",
        "content_length",
        "forwarded",
        "transfer_encoding",
        "x-auth-request-user",
        "x-client-ip",
        "x-forwarded-email",
        "x-forwarded-groups",
        "x-forwarded-host",
        "x-forwarded-preferred-username",
        "x-forwarded-user",
        "x-http-method-override",
        "x-original-url",
        "x-remote-user",
        "x_forwarded_groups",
    ];
    assert_eq!(ok.headers_to_remove, expected, "and what Envoy itself sets stays");
    assert!(ok.headers.is_empty());
    // Counts the client's fields that claim an identity or an origin.
    let removed = f.counted("postern_request_headers_removed_total{route=\"open\"}");
    assert!((removed - 10.0).abs() < 0.1, "{removed}");
}

#[test]
fn a_refusal_is_the_answer_to_send() {
    let f = asked();
    let (status, headers, body, code) = denied(check(&f, &question("/a", &[])));
    assert_eq!((status, code), (401, 16));
    assert_eq!(headers["www-authenticate"], "Bearer realm=\"postern\"");
    assert_eq!(headers["cache-control"], "no-store");
    assert!(body.contains("\"unauthenticated\""), "{body}");
    let guest = f.issuer.token(|claims| claims["groups"] = serde_json::json!([]));
    let (status, _, _, code) =
        denied(check(&f, &question("/a", &[("authorization", &format!("Bearer {guest}"))])));
    assert_eq!((status, code), (403, 7));
    let (status, _, body, _) = denied(check(&f, &question("/open/../a", &[])));
    assert_eq!(status, 400, "{body}");
    let joined = format!("{0},{0}", bearer(&f));
    let (status, _, body, _) = denied(check(&f, &question("/a", &[("authorization", &joined)])));
    assert_eq!(status, 400, "two credentials that Envoy joined are none: {body}");
}

#[test]
fn raw_headers_are_read_as_they_came() {
    use envoy_types::pb::envoy::config::core::v3::{HeaderMap as Raw, HeaderValue};
    let f = asked();
    let header = |key: &str, value: &[u8]| HeaderValue {
        key: key.into(),
        raw_value: value.to_vec(),
        ..HeaderValue::default()
    };
    let with = |headers: Vec<HeaderValue>| {
        let mut question = question("/a", &[]);
        let http = question.attributes.as_mut().unwrap().request.as_mut().unwrap().http.as_mut().unwrap();
        http.header_map = Some(Raw { headers });
        question
    };
    let token = bearer(&f);
    allowed(check(&f, &with(vec![header(":path", b"/open"), header("authorization", token.as_bytes())])));
    let twice = with(vec![header("authorization", token.as_bytes()), header("authorization", b"Bearer x")]);
    let (status, _, body, _) = denied(check(&f, &twice));
    assert!(status == 400 && body.contains("repeated_authorization"), "{body}");
}

#[test]
fn what_is_no_question_is_denied_with_status_ok() {
    let f = asked();
    for body in [
        framed(b"\xff\xff\xff"),
        framed(b"\x0a\x05ab"),
        framed(b""),
        framed(&CheckRequest::default().encode_to_vec()),
        Bytes::new(),
        Bytes::from_static(b"\0\0\0\0\x05ab"),
        Bytes::from_static(b"\x01\0\0\0\0"),
    ] {
        // Envoy treats any other status as a failure, and may be configured to let failures pass.
        let (status, _, text, code) = denied(answered(call(&f, CHECK, body.clone())));
        assert_eq!((status, code), (400, 7), "{body:?}: {text}");
        assert!(text.contains("unclear_question"), "{body:?}: {text}");
    }
    let (status, health) = call(&f, "/grpc.health.v1.Health/Check", framed(b""));
    assert_eq!((status, health.unwrap().as_ref()), (0, b"\x08\x01".as_slice()));
    let refused = "postern_denials_total{reason=\"unclear_question\"}";
    assert!((f.counted(refused) - 7.0).abs() < 0.1, "{}", f.counted(refused));
}

#[test]
fn a_question_that_cannot_be_used_is_denied_and_no_error() {
    let f = asked();
    let denied_with = |bytes: Vec<u8>| {
        let (status, message) = call(&f, CHECK, framed(&bytes));
        assert_eq!(status, 0, "an error may be let pass, as Envoy is configured");
        denied(CheckResponse::decode(message.unwrap()).unwrap()).0
    };
    for text in ["x-odd", "12345"] {
        let mut bytes = question("/open", &[("x-odd", "12345")]).encode_to_vec();
        let at = bytes.windows(5).position(|w| w == text.as_bytes()).unwrap();
        bytes[at] = 0xff;
        assert_eq!(denied_with(bytes), 400, "{text}");
    }
    let many: Vec<String> = (0..101).map(|n| format!("x-{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(denied_with(question("/open", &many).encode_to_vec()), 431);
    let long = "x".repeat(300 << 10);
    assert_eq!(denied_with(question("/open", &[("x-long", &long)]).encode_to_vec()), 431);
}

#[test]
fn what_envoy_does_not_show_is_removed_by_name() {
    let f = asked();
    let ok = allowed(check(&f, &question("/open", &[])));
    for name in ["x-forwarded-user", "x-forwarded-email", "x-forwarded-groups", "authorization"] {
        assert!(ok.headers_to_remove.iter().any(|removed| removed == name), "{name}");
    }
}

/// Response over HTTP/2 to a request that is not a gRPC call but looks like one.
fn plainly(f: &Fixture, method: &str, path: &str) -> u16 {
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://app.test{path}"))
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let (response, _) = send.send_request(request, true).unwrap();
        response.await.unwrap().status().as_u16()
    })
}

#[test]
fn a_content_type_opens_no_door() {
    // A client that queries over HTTP treats 200 as permission, and forwards the original content
    // type.
    let listener = "authorization = { from = [\"127.0.0.1\"], http = \"envoy\" }".to_owned();
    let f = Fixture::with(Setup { listener, ..Setup::default() }, Upstream::start());
    for path in ["/secret", CHECK, "/grpc.health.v1.Health/Check"] {
        for method in ["GET", "POST"] {
            assert_eq!(plainly(&f, method, path), 401, "{method} {path}");
        }
    }
    let f = asked();
    for (method, path) in [("POST", "/secret"), ("GET", CHECK), ("GET", "/open"), ("POST", "/x/Check")] {
        assert_eq!(plainly(&f, method, path), 404, "{method} {path}: no such method");
    }
}

#[test]
fn trust_that_is_taken_back_holds_for_connections_too() {
    let trusting = |from: &str| Setup {
        listener: format!("authorization = {{ from = [\"{from}\"] }}"),
        ..Setup::default()
    };
    let f = Fixture::with(trusting("127.0.0.1"), Upstream::start());
    let about = framed(&question("/open", &[]).encode_to_vec());
    let ask = async |send: &h2::client::SendRequest<Bytes>| {
        let mut send = send.clone().ready().await.unwrap();
        let request = Request::post(format!("http://postern{CHECK}"))
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let (response, mut stream) = send.send_request(request, false).unwrap();
        stream.send_data(about.clone(), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let mut whole = BytesMut::new();
        while let Some(data) = body.data().await {
            whole.extend_from_slice(&data.unwrap());
        }
        CheckResponse::decode(whole.freeze().slice(5..)).unwrap().status.unwrap().code
    };
    run(async {
        let send = connect(f.address).await;
        assert_eq!(ask(&send).await, 0);
        f.reload(&trusting("192.0.2.1"));
        assert_eq!(ask(&send).await, 7);
    });
}

#[test]
fn nobody_asks_who_is_not_configured_to() {
    let listener = "authorization = { from = [\"192.0.2.0/24\"] }".to_owned();
    let f = Fixture::with(Setup { listener, ..Setup::default() }, Upstream::start());
    let (status, _, body, _) = denied(check(&f, &question("/open", &[])));
    assert!(status == 403 && body.contains("untrusted_peer"), "{body}");
}

#[test]
fn what_cannot_be_found_out_in_time_is_503_before_the_caller_gives_up() {
    let silent = Upstream::answering(|_, _| {
        std::thread::sleep(std::time::Duration::from_secs(30));
        false
    });
    let listener = "authorization = { from = [\"127.0.0.1/32\"] }".to_owned();
    let more = format!(
        "[[token_authority]]\nname = \"id\"\nkind = \"introspection\"\nurl = \"http://{}/\"\nany_audience = true\ntimeout = \"20s\"",
        silent.address
    );
    let f = Fixture::with(Setup { listener, more, ..Setup::default() }, Upstream::start());
    // The call has a deadline of 200 ms; the authority may take 20 s.
    let began = std::time::Instant::now();
    let question = question("/a", &[("authorization", "Bearer opaque")]);
    let called = call_within(&f, CHECK, framed(&question.encode_to_vec()), "200m");
    let (status, headers, body, code) = denied(answered(called));
    assert_eq!((status, code), (503, 14), "{body}");
    assert_eq!(headers["retry-after"], "1");
    assert!(began.elapsed() < std::time::Duration::from_secs(9), "the authority's own time is 20 s");
}

#[test]
fn a_listener_for_questions_forwards_nothing() {
    let f = asked();
    let plain = f.get("/open");
    assert_eq!(plain.status, 404, "no way to ask over HTTP is configured");
    assert!(f.upstream.seen().is_empty());
    let proxy = Fixture::new();
    run(async {
        let mut send = connect(proxy.address).await.ready().await.unwrap();
        let request = Request::post(format!("http://postern{CHECK}"))
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let (response, _) = send.send_request(request, true).unwrap();
        assert_eq!(
            response.await.unwrap().status(),
            401,
            "a call to somebody behind, like any other request"
        );
    });
}
