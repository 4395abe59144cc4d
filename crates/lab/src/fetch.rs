//! Small HTTP questions: is it ready, a token please, how are the metrics.
//!
//! Owns: one connection that is asked one question after the other, and how a client of a provider says who it is. Does not own: load.
//! The connection and its reader are the load driver's, so that a target is understood here exactly as it is under load.

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
use crate::load::{Failure, RequestTemplate, Target};
use crate::provider::escape;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and header lines.
    pub(crate) head: Vec<u8>,
    pub(crate) content: Vec<u8>,
}

impl Answer {
    /// The content as a line for an error: its beginning, without control characters.
    pub(crate) fn beginning(&self) -> String {
        let text = String::from_utf8_lossy(&self.content);
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
        shown.trim().to_owned()
    }
}

/// One connection to one target, for whoever has a runtime.
pub(crate) struct Line {
    target: Target,
    connection: Option<Connection>,
    most: usize,
}

impl Line {
    /// A line to `target` that takes answers of at most `most` bytes. Nothing is sent yet.
    pub(crate) fn new(target: Target, most: usize) -> Self {
        Self { target, connection: None, most }
    }

    /// Sends what [`RequestTemplate::http1`] formatted and waits for the answer, at most `timeout`.
    pub(crate) async fn ask(&mut self, request: &[u8], timeout: Duration) -> Result<Answer, String> {
        let Self { target, connection, most } = self;
        match tokio::time::timeout(timeout, exchange(target, connection, request, *most)).await {
            Ok(answer) => answer.map_err(|failure| failure.why.into_owned()),
            Err(_) => {
                // What is left of the exchange must not be taken for the next answer.
                self.connection = None;
                Err(format!("no answer within {} s", timeout.as_secs_f64()))
            }
        }
    }
}

/// The same for a thread without a runtime.
pub(crate) struct Client {
    runtime: Runtime,
    line: Line,
}

impl Client {
    /// A client of `target` that takes answers of at most `most` bytes. Nothing is sent yet.
    pub(crate) fn new(target: Target, most: usize) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, line: Line::new(target, most) })
    }

    /// Asks a `GET`, with a bearer token if there is one.
    pub(crate) fn get(&mut self, token: Option<&str>, timeout: Duration) -> Result<Answer, String> {
        let flow = RequestTemplate {
            tokens: token.map(str::to_owned).into_iter().collect(),
            ..RequestTemplate::get()
        };
        self.ask(&flow, timeout)
    }

    /// Sends a form.
    pub(crate) fn post(
        &mut self,
        headers: HeaderMap,
        form: String,
        timeout: Duration,
    ) -> Result<Answer, String> {
        self.ask(&posting(headers, form), timeout)
    }

    fn ask(&mut self, flow: &RequestTemplate, timeout: Duration) -> Result<Answer, String> {
        let request = written(flow, &self.line.target)?;
        self.runtime.block_on(self.line.ask(&request, timeout))
    }
}

/// A form that is sent.
pub(crate) fn posting(headers: HeaderMap, form: String) -> RequestTemplate {
    RequestTemplate { method: Method::POST, headers, body: Bytes::from(form), ..RequestTemplate::get() }
}

/// The request as bytes.
pub(crate) fn written(flow: &RequestTemplate, target: &Target) -> Result<Box<[u8]>, String> {
    flow.check(target).map_err(|error| error.to_string())?;
    Ok(flow.http1(target).swap_remove(0))
}

/// What a client of a provider says about itself (RFC 6749 §2.3.1), before a form.
pub(crate) fn client_fields(client: &str, secret: &str) -> Result<HeaderMap, String> {
    // Both halves are form-encoded before they are joined.
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

/// The token in the answer of a token endpoint (RFC 6749 §5.1).
pub(crate) fn access_token(answer: &Answer) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Granted {
        access_token: String,
    }
    let granted: Granted = serde_json::from_slice(&answer.content)
        .map_err(|error| format!("the answer holds no token: {error}"))?;
    Ok(granted.access_token)
}

async fn exchange(
    target: &Target,
    slot: &mut Option<Connection>,
    request: &[u8],
    most: usize,
) -> Result<Answer, Failure> {
    if let Some(idle) = slot
        && poll_fn(|cx| Poll::Ready(idle.is_stale(cx))).await
    {
        *slot = None;
    }
    let mut connection = match slot.take() {
        Some(connection) => connection,
        None => Connection::keeping_up_to(target.open().await?, most),
    };
    let received = std::cell::Cell::new(0);
    let answer = connection.exchange(request, &received).await?;
    let kept = connection.take();
    if answer.reusable {
        *slot = Some(connection);
    }
    Ok(Answer { status: answer.status, head: kept.head, content: kept.content })
}
