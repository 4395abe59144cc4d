//! One question to an authorizer and its answer, over the connections of the worker that asks.
//!
//! Owns: the listening side of the exchange, and its bounds. Does not own: the exchange itself, which is that of every request
//! ([`crate::forward`]): connections, their reuse and the one retry, health of endpoints.

use std::rc::Rc;
use std::task::{Context, Poll};

use http::HeaderMap;

use super::question::Question;
use super::{Silent, answer};
use crate::access_log::RequestProtocol;
use crate::answer::Refusal;
use crate::config::Authorizer as Config;
use crate::deadline::TICK;
use crate::fault::Fault;
use crate::forward::{Outbound, QuestionHead, exchange};
use crate::leg::{Downstream, Fill, Leg, LegError, OwnField, ResponseView, passing};
use crate::record::Record;
use crate::worker::{Running, Worker};

/// Bytes of an answer's body: a page to log in at, with room. (Its head is bounded as every upstream's.)
const MAX_BODY: usize = 256 << 10;

/// An answer as it came.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) status: u16,
    /// Names as they came.
    pub(super) fields: Vec<(Box<str>, Box<[u8]>)>,
    pub(super) body: Vec<u8>,
}

/// Listens where a client would.
#[derive(Default)]
struct Listening {
    heard: Heard,
    body: Body,
}

/// What the answer's body is written to. The question has none.
#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    too_large: bool,
}

/// Asks.
pub(super) async fn ask(
    config: &Config,
    question: &Question,
    worker: &Worker,
    running: &Rc<Running>,
) -> Result<Heard, Silent> {
    let pool = running.pools[config.upstream].clone();
    let most = pool.config.max_requests;
    let head = QuestionHead {
        method: question.method(),
        target: question.target(),
        authority: question.authority(),
        fields: question.fields().collect(),
    };
    let outbound =
        Outbound::question(pool, &head, config.timeout, running).map_err(|_| answer::Unclear::Unaskable)?;
    let (mut listening, deadline) = (Listening::default(), worker.deadlines.register());
    // Nobody reads it: the request that the question is about has its own.
    let mut record = Record::begin(worker.clock.monotonic(), RequestProtocol::Http11, None, false, false);
    let exchanged = exchange(outbound, &mut listening, &deadline, &mut record);
    // The deadlines inside tell the endpoint's health of it; this one is for connecting, and what comes by drops.
    let relayed = match tokio::time::timeout(config.timeout + 2 * TICK, exchanged).await {
        Err(_) | Ok(Err(Refusal::UpstreamTimeout)) => return Err(Silent::Late(config.timeout)),
        Ok(Err(Refusal::Overloaded)) => return Err(Silent::Busy(most)),
        Ok(Err(Refusal::UpstreamProtocol)) => return Err(answer::Unclear::NotHttp.into()),
        Ok(Err(Refusal::UpstreamClosed)) => {
            return Err(Silent::Unreachable("it closed the connection without an answer"));
        }
        Ok(Err(_)) => return Err(Silent::Unreachable("no connection; see the log")),
        Ok(Ok(relayed)) => relayed,
    };
    if listening.body.too_large {
        return Err(answer::Unclear::TooLarge(MAX_BODY).into());
    }
    match relayed.fault {
        None => Ok(Heard { body: listening.body.bytes, ..listening.heard }),
        Some(Fault::UpstreamTimeout | Fault::RequestTimeout) => Err(Silent::Late(config.timeout)),
        Some(Fault::UpstreamProtocol(_)) => Err(answer::Unclear::NotHttp.into()),
        Some(_) => Err(Silent::Unreachable("it broke off in the middle of its answer")),
    }
}

impl Downstream for Listening {
    type Leg = Body;

    fn leg(&mut self) -> &mut Body {
        &mut self.body
    }

    fn inform(&mut self, _: &ResponseView<'_>) -> Result<(), LegError> {
        Ok(())
    }

    fn respond(&mut self, response: &ResponseView<'_>, _: &[OwnField]) -> Result<(), LegError> {
        self.heard.status = response.status;
        let fields = passing(response.fields).map(|field| (field.name.into(), field.value.into()));
        self.heard.fields = fields.collect();
        Ok(())
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Leg for Body {
    fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<Result<Fill<'_>, LegError>> {
        Poll::Ready(Ok(Fill::End(None)))
    }

    fn consume(&mut self, _: usize) {}

    fn poll_write(&mut self, _: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, LegError>> {
        if self.bytes.len() + data.len() > MAX_BODY {
            self.too_large = true;
            return Poll::Ready(Err(LegError::TooLarge));
        }
        self.bytes.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn finish(&mut self, _: Option<Box<HeaderMap>>) -> Result<(), LegError> {
        Ok(())
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LegError>> {
        Poll::Ready(Ok(()))
    }

    fn rest(&mut self) {}

    fn switch_protocol(&mut self) {}
}
