//! Envoy as a client of the authorization service, with types generated from Envoy's own files.

use std::collections::HashMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer, Request as About};
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{
    AttributeContext, CheckRequest, CheckResponse, OkHttpResponse,
};
use http::{HeaderMap, Request};
use prost::Message as _;

use crate::harness::Fixture;
use crate::http2::{connect, run};

/// Path of the method.
pub const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
/// `h2` combines shorter frames of several responses in one write.
pub const GATHERED: usize = 256;

/// A check of a GET, as Envoy sends it.
pub fn question(path: &str, headers: &[(&str, &str)]) -> CheckRequest {
    let headers: HashMap<String, String> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let http = HttpRequest {
        method: "GET".into(),
        path: path.into(),
        host: "app.test".into(),
        scheme: "https".into(),
        protocol: "HTTP/1.1".into(),
        headers,
        ..HttpRequest::default()
    };
    let request = About { http: Some(http), ..About::default() };
    let source = Peer::default();
    let attributes =
        AttributeContext { source: Some(source), request: Some(request), ..AttributeContext::default() };
    CheckRequest { attributes: Some(attributes) }
}

/// A message in the framing of gRPC.
pub fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap());
    out.put_slice(message);
    out.freeze()
}

/// Calls a method. Returns the status of the call and its message.
pub fn call(f: &Fixture, path: &str, body: Bytes) -> (i32, Option<Bytes>) {
    call_within(f, path, body, "20S")
}

/// The same with a deadline.
pub fn call_within(f: &Fixture, path: &str, body: Bytes, timeout: &str) -> (i32, Option<Bytes>) {
    run(async {
        let mut send = connect(f.address).await.ready().await.unwrap();
        let request = Request::post(format!("http://postern{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", timeout)
            .body(())
            .unwrap();
        let (response, mut stream) = send.send_request(request, false).unwrap();
        stream.send_data(body, true).unwrap();
        let (head, mut body) = response.await.unwrap().into_parts();
        assert_eq!(head.status, 200);
        assert_eq!(head.headers["content-type"], "application/grpc");
        let status =
            |fields: &HeaderMap| fields.get("grpc-status").map(|s| s.to_str().unwrap().parse().unwrap());
        if let Some(status) = status(&head.headers) {
            return (status, None);
        }
        let mut whole = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            assert!(data.len() < GATHERED, "{} bytes in one frame are written by themselves", data.len());
            whole.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.unwrap().expect("trailers");
        (status(&trailers).expect("a status"), Some(whole.freeze().slice(5..)))
    })
}

/// Sends a check.
pub fn check(f: &Fixture, question: &CheckRequest) -> CheckResponse {
    answered(call(f, CHECK, framed(&question.encode_to_vec())))
}

/// The message of a call that ended with OK.
pub fn answered((status, message): (i32, Option<Bytes>)) -> CheckResponse {
    assert_eq!(status, 0, "an answer is given with status OK, whatever it says");
    CheckResponse::decode(message.expect("a message")).unwrap()
}

/// The answer to a permitted request.
pub fn allowed(response: CheckResponse) -> OkHttpResponse {
    assert_eq!(response.status.unwrap().code, 0);
    match response.http_response {
        Some(HttpResponse::OkResponse(ok)) => ok,
        other => panic!("{other:?}"),
    }
}

/// Status, fields, body and code of a refusal.
pub fn denied(response: CheckResponse) -> (i32, HashMap<String, String>, String, i32) {
    let code = response.status.unwrap().code;
    let Some(HttpResponse::DeniedResponse(denied)) = response.http_response else { panic!("not denied") };
    let headers = denied.headers.into_iter().map(|option| option.header.unwrap());
    let headers = headers.map(|header| (header.key, header.value)).collect();
    (denied.status.unwrap().code, headers, denied.body, code)
}
