//! Test API: an API server that is a function.
//!
//! Owns: the client that asks it. Does not own: what it answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower_service::Service;

/// A client whose requests are answered by `answer`, by method and path.
pub(super) fn client<A, F>(answer: A) -> Client
where
    A: Fn(String, String) -> F + Send + Sync + 'static,
    F: Future<Output = (u16, Value)> + Send + 'static,
{
    Client::new(Server(Arc::new(answer)), "default")
}

/// The answer to a request that is refused.
pub(super) fn refusal(code: u16, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Refused", "code": code,
    });
    (code, status)
}

struct Server<A>(Arc<A>);

impl<A, F> Service<Request<Body>> for Server<A>
where
    A: Fn(String, String) -> F + Send + Sync + 'static,
    F: Future<Output = (u16, Value)> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = (self.0)(request.method().to_string(), request.uri().path().to_owned());
        async move {
            let (code, body) = answer.await;
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok(response)
        }
        .boxed()
    }
}
