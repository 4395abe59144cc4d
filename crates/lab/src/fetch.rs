//! Small HTTP questions: is it ready, a token please, how are the metrics.
//!
//! Owns: one connection that is asked one question after the other, from a thread without a runtime. Does not own: load. The connection
//! and its reader are the load driver's, so that a target is understood here exactly as it is under load.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::runtime::{Builder, Runtime};

use crate::load::h1::Connection;
use crate::load::{Failure, Flow, Target};

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

/// One connection to one target.
pub(crate) struct Client {
    runtime: Runtime,
    target: Target,
    connection: Option<Connection>,
    most: usize,
}

impl Client {
    /// A client of `target` that takes answers of at most `most` bytes. Nothing is sent yet.
    pub(crate) fn new(target: Target, most: usize) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, target, connection: None, most })
    }

    /// Asks a `GET`, with a bearer token if there is one.
    pub(crate) fn get(&mut self, token: Option<&str>, timeout: Duration) -> Result<Answer, String> {
        let flow = Flow { tokens: token.map(str::to_owned).into_iter().collect(), ..Flow::get() };
        self.ask(&flow, timeout)
    }

    /// Sends a form.
    pub(crate) fn post(
        &mut self,
        headers: HeaderMap,
        form: String,
        timeout: Duration,
    ) -> Result<Answer, String> {
        self.ask(&Flow { method: Method::POST, headers, body: Bytes::from(form), ..Flow::get() }, timeout)
    }

    fn ask(&mut self, flow: &Flow, timeout: Duration) -> Result<Answer, String> {
        flow.check(&self.target).map_err(|error| error.to_string())?;
        let request = flow.http1(&self.target).swap_remove(0);
        let Self { runtime, target, connection, most } = self;
        let work = exchange(target, connection, &request, *most);
        let answered = runtime.block_on(async { tokio::time::timeout(timeout, work).await });
        match answered {
            Ok(answer) => answer.map_err(|failure| failure.why.into_owned()),
            Err(_) => {
                // What is left of the exchange must not be taken for the next answer.
                self.connection = None;
                Err(format!("no answer within {} s", timeout.as_secs_f64()))
            }
        }
    }
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
