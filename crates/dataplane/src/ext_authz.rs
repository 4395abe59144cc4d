//! Envoy as a client of the authorization service, and such a service, with types generated from
//! Envoy's own files.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut as _, Bytes, BytesMut};
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::service::auth::v3::DeniedHttpResponse;
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer, Request as About};
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{
    AttributeContext, CheckRequest, CheckResponse, OkHttpResponse,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::rpc::Status;
use http::{HeaderMap, Request, Response};
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{CONTROL, Fixture};
use crate::http2::{connect, run};

/// Path of the method.
pub const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

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
            whole.extend_from_slice(&data.unwrap());
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

/// A service that answers checks over gRPC.
pub struct CheckService {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<HttpRequest>>>,
}

/// What a [`CheckService`] answers a check: a message, or the status of a failed call.
pub type CheckAnswer = Result<CheckResponse, i32>;

impl CheckService {
    /// A service that answers so.
    pub fn answering(answer: impl Fn(&HttpRequest) -> CheckAnswer + Send + Sync + 'static) -> Self {
        let listener = CONTROL.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::default());
        let (service, answer) = (Self { address, seen: Arc::clone(&seen) }, Arc::new(answer));
        CONTROL.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, answer.clone(), seen.clone()));
            }
        });
        service
    }

    /// The requests that it was asked about.
    pub fn seen(&self) -> Vec<HttpRequest> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve<A: Fn(&HttpRequest) -> CheckAnswer + Send + Sync + 'static>(
    socket: TcpStream,
    answer: Arc<A>,
    seen: Arc<Mutex<Vec<HttpRequest>>>,
) {
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        // Bodies arrive only while the connection is polled.
        tokio::spawn(reply(request, respond, answer.clone(), seen.clone()));
    }
}

async fn reply<A: Fn(&HttpRequest) -> CheckAnswer>(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    answer: Arc<A>,
    seen: Arc<Mutex<Vec<HttpRequest>>>,
) {
    let (head, mut body) = request.into_parts();
    assert_eq!(head.uri.path(), CHECK);
    assert_eq!(head.headers["content-type"], "application/grpc");
    let mut whole = BytesMut::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        whole.extend_from_slice(&data);
    }
    let check = CheckRequest::decode(whole.freeze().slice(5..)).unwrap();
    let http = check.attributes.unwrap().request.unwrap().http.unwrap();
    let answer = answer(&http);
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(http);
    let head = Response::builder().header("content-type", "application/grpc");
    let status = |code: i32| HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.into())]);
    match answer {
        Ok(message) => {
            let mut send = respond.send_response(head.body(()).unwrap(), false).unwrap();
            let _ = send.send_data(framed(&message.encode_to_vec()), false);
            let _ = send.send_trailers(status(0));
        }
        // Without a message, the trailers are in the head.
        Err(code) => {
            let mut head = head.body(()).unwrap();
            head.headers_mut().extend(status(code));
            let _ = respond.send_response(head, true);
        }
    }
}

/// A permit with fields for the upstream, and names of those that it does not get.
pub fn permit(set: &[(&str, &str)], remove: &[&str]) -> CheckResponse {
    let ok = OkHttpResponse {
        headers: set.iter().map(|(name, value)| option(name, value)).collect(),
        headers_to_remove: remove.iter().map(|name| (*name).to_owned()).collect(),
        ..OkHttpResponse::default()
    };
    CheckResponse {
        status: Some(Status::default()),
        http_response: Some(HttpResponse::OkResponse(ok)),
        ..CheckResponse::default()
    }
}

/// A refusal with this status, one field and a body.
pub fn refusal(status: i32, (name, value): (&str, &str), body: &str) -> CheckResponse {
    let denied = DeniedHttpResponse {
        status: Some(HttpStatus { code: status }),
        headers: vec![option(name, value)],
        body: body.into(),
    };
    CheckResponse {
        status: Some(Status { code: 7, ..Status::default() }),
        http_response: Some(HttpResponse::DeniedResponse(denied)),
        ..CheckResponse::default()
    }
}

fn option(name: &str, value: &str) -> HeaderValueOption {
    let header = HeaderValue { key: name.into(), value: value.into(), ..HeaderValue::default() };
    HeaderValueOption { header: Some(header), ..HeaderValueOption::default() }
}
