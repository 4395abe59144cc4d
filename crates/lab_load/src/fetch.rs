//! Fetch: a small HTTP client for readiness, token and metrics requests.
//!
//! It uses the connection and the response reader of the load generator, so that a target behaves
//! here exactly as under load.
//!
//! Owns: one connection for consecutive requests, and the authentication of a client to a provider.
//! Does not own: load.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use serde::Deserialize;
use tokio::runtime::{Builder, Runtime};

use crate::load::h1::Connection;
use crate::load::{Failure, RequestTemplate, Target, server_timing};
use crate::provider::escape;

/// A complete response.
#[derive(Debug)]
pub struct Response {
    /// Status of the response.
    pub status: u16,
    /// Status line and header lines.
    pub(crate) head: Vec<u8>,
    /// Content of the response.
    pub content: Vec<u8>,
}

impl Response {
    /// Whether the response reports phases of the request in `Server-Timing`.
    pub fn has_server_timing(&self) -> bool {
        server_timing::fields(&self.head).next().is_some()
    }

    /// Beginning of the content for an error message, without control characters.
    pub fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.content);
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
        shown.trim().to_owned()
    }
}

/// Client with one connection to one target, for callers with a runtime.
pub(crate) struct AsyncClient {
    target: Target,
    connection: Option<Connection>,
    max_content: usize,
}

impl AsyncClient {
    /// Creates a client of `target` that accepts at most `most` bytes of content. Sends nothing
    /// yet.
    pub(crate) fn new(target: Target, most: usize) -> Self {
        Self { target, connection: None, max_content: most }
    }

    /// Sends bytes from [`RequestTemplate::http1`] and waits at most `timeout` for the response.
    ///
    /// # Errors
    /// Description of the failure or the timeout.
    pub(crate) async fn send(&mut self, request: &[u8], timeout: Duration) -> Result<Response, String> {
        let Self { target, connection, max_content: most } = self;
        match tokio::time::timeout(timeout, exchange(target, connection, request, *most)).await {
            Ok(answer) => answer.map_err(|failure| failure.why.into_owned()),
            Err(_) => {
                // Late bytes of this exchange must not be read as the next response, so the
                // connection is dropped.
                self.connection = None;
                Err(format!("no response within {} s", timeout.as_secs_f64()))
            }
        }
    }
}

/// Like [`AsyncClient`], for a thread without a runtime.
pub struct BlockingClient {
    runtime: Runtime,
    line: AsyncClient,
}

impl BlockingClient {
    /// Creates a client of `target` that accepts at most `most` bytes of content. Sends nothing
    /// yet.
    ///
    /// # Errors
    /// The event loop cannot be created.
    pub fn new(target: Target, most: usize) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, line: AsyncClient::new(target, most) })
    }

    /// Sends a `GET`, with a bearer token if there is one.
    pub fn get(&mut self, token: Option<&str>, timeout: Duration) -> Result<Response, String> {
        let flow = RequestTemplate {
            tokens: token.map(str::to_owned).into_iter().collect(),
            ..RequestTemplate::get()
        };
        self.ask(&flow, timeout)
    }

    /// Sends a form with POST.
    pub fn post(&mut self, headers: HeaderMap, form: String, timeout: Duration) -> Result<Response, String> {
        self.ask(&form_request(headers, form), timeout)
    }

    fn ask(&mut self, flow: &RequestTemplate, timeout: Duration) -> Result<Response, String> {
        let request = encode_request(flow, &self.line.target)?;
        self.runtime.block_on(self.line.send(&request, timeout))
    }
}

/// Request template of a POST with a form.
pub(crate) fn form_request(headers: HeaderMap, form: String) -> RequestTemplate {
    RequestTemplate { method: Method::POST, headers, body: Bytes::from(form), ..RequestTemplate::get() }
}

/// The request as bytes.
///
/// # Errors
/// The template is not valid for the target.
pub(crate) fn encode_request(flow: &RequestTemplate, target: &Target) -> Result<Box<[u8]>, String> {
    flow.check(target).map_err(|error| error.to_string())?;
    Ok(flow.http1(target).swap_remove(0))
}

/// Header fields of a form request that authenticate a client (RFC 6749 §2.3.1).
pub fn client_auth_headers(client: &str, secret: &str) -> Result<HeaderMap, String> {
    // Both parts are form-encoded before they are joined.
    let mut basic = String::new();
    escape(&mut basic, client);
    basic.push(':');
    escape(&mut basic, secret.trim());
    let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(basic)));
    Ok(HeaderMap::from_iter([
        (AUTHORIZATION, value.map_err(|error| error.to_string())?),
        (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
    ]))
}

/// The access token in a response of the token endpoint (RFC 6749 §5.1).
pub fn access_token(answer: &Response) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Granted {
        access_token: String,
    }
    let granted: Granted = serde_json::from_slice(&answer.content)
        .map_err(|error| format!("the response has no access token: {error}"))?;
    Ok(granted.access_token)
}

async fn exchange(
    target: &Target,
    slot: &mut Option<Connection>,
    request: &[u8],
    most: usize,
) -> Result<Response, Failure> {
    if let Some(idle) = slot
        && poll_fn(|cx| Poll::Ready(idle.is_stale(cx))).await
    {
        *slot = None;
    }
    let mut connection = match slot.take() {
        Some(connection) => connection,
        None => Connection::with_capture_limit(target.open().await?, most),
    };
    let received = std::cell::Cell::new(0);
    let answer = connection.exchange(request, &received).await?;
    let captured = connection.take_captured();
    if answer.reusable {
        *slot = Some(connection);
    }
    Ok(Response { status: answer.status, head: captured.head, content: captured.content })
}
