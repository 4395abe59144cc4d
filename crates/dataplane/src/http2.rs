//! HTTP/2 client of the tests, with prior knowledge.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use tokio::net::TcpStream;

use crate::harness::{CONTROL, Fixture, PATIENCE};

/// Runs a future within the time limit of the tests.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    CONTROL.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("in time") })
}

/// Opens a connection in clear text.
pub async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(address).await.unwrap();
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    send
}

/// A request with alice's token.
pub fn request(f: &Fixture, method: &str, path: &str) -> Request<()> {
    let token = f.issuer.token(|_| {});
    Request::builder()
        .method(method)
        .uri(format!("http://app.test{path}"))
        .header("authorization", format!("Bearer {token}"))
        .body(())
        .unwrap()
}

/// Head, body and trailers of a response.
pub async fn body_of(
    response: Response<h2::RecvStream>,
) -> (http::response::Parts, Vec<u8>, Option<HeaderMap>) {
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.unwrap();
        let _ = stream.flow_control().release_capacity(chunk.len());
        body.extend_from_slice(&chunk);
    }
    let trailers = stream.trailers().await.unwrap();
    (head, body, trailers)
}

/// Sends a request without a body. Returns head and body of the response.
pub async fn get(send: &SendRequest<Bytes>, request: Request<()>) -> (http::response::Parts, Vec<u8>) {
    let mut send = send.clone().ready().await.unwrap();
    let (response, _) = send.send_request(request, true).unwrap();
    let (head, body, _) = body_of(response.await.unwrap()).await;
    (head, body)
}
