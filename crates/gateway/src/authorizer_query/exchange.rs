//! One question to an authorizer and its answer, over the connections of the worker that asks.
//!
//! Owns: the listening side of the exchange, its bounds, and why there is no answer. Does not own: the exchange itself, which is that of every request
//! ([`crate::forward`]): connections, their reuse and the one retry, health of endpoints.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http_engine::deadline::TICK;
use http_engine::labels::Consulted;
use http_engine::leg::{Downstream, Fill, Gone, Leg, LegError, Nominated, OwnField, ResponseView};
use telemetry::access_log::RequestProtocol;

use crate::authorizer::answer::{Heard, Unclear};
use crate::authorizer::question::Question;
use crate::config::Authorizer as Config;
use crate::fault::Fault;
use crate::forward::{Outbound, QuestionHead, exchange};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::worker::{Running, Worker};

/// Bytes of an answer's body: a page to log in at, with room. (Its head is bounded as every upstream's.)
const MAX_BODY: usize = 256 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Silent {
    #[error(
        "{0} questions are under way on this worker already, which is as many as `max_requests` of its upstream allows"
    )]
    Busy(usize),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("it cannot be reached, or broke off: {0}")]
    Unreachable(&'static str),
    #[error("its answer cannot be used: {0}")]
    Unclear(#[from] Unclear),
    #[error("it knows less of what was revoked than is known here")]
    Behind,
}

impl Silent {
    /// How it is counted.
    pub(crate) fn counted(&self) -> Consulted {
        match self {
            Self::Busy(_) => Consulted::Busy,
            Self::Late(_) => Consulted::Timeout,
            Self::Unreachable(_) => Consulted::Unreachable,
            Self::Unclear(_) => Consulted::Malformed,
            Self::Behind => Consulted::Behind,
        }
    }
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
pub(crate) async fn ask(
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
        Outbound::question(pool, &head, config.timeout, running).map_err(|_| Unclear::Unaskable)?;
    let (mut listening, deadline) = (Listening::default(), worker.deadlines.register());
    // Nobody reads it: the request that the question is about has its own.
    let mut record = Record::begin(worker.clock.monotonic(), RequestProtocol::Http11, None, false, false);
    let exchanged = exchange(outbound, &mut listening, &deadline, &mut record);
    // The deadlines inside tell the endpoint's health of it; this one is for connecting, and what comes by drops.
    let relayed = match tokio::time::timeout(config.timeout + 2 * TICK, exchanged).await {
        Err(_) | Ok(Err(Refusal::UpstreamTimeout)) => return Err(Silent::Late(config.timeout)),
        Ok(Err(Refusal::Overloaded)) => return Err(Silent::Busy(most)),
        Ok(Err(Refusal::UpstreamProtocol)) => return Err(Unclear::NotHttp.into()),
        Ok(Err(Refusal::UpstreamClosed)) => {
            return Err(Silent::Unreachable("it closed the connection without an answer"));
        }
        Ok(Err(_)) => return Err(Silent::Unreachable("no connection to its upstream")),
        Ok(Ok(relayed)) => relayed,
    };
    if listening.body.too_large {
        return Err(Unclear::TooLarge(MAX_BODY).into());
    }
    match relayed.fault {
        None => Ok(Heard { body: listening.body.bytes, ..listening.heard }),
        Some(Fault::UpstreamTimeout | Fault::RequestTimeout) => Err(Silent::Late(config.timeout)),
        Some(Fault::UpstreamProtocol(_)) => Err(Unclear::NotHttp.into()),
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
        let nominated = Nominated::by(response.fields);
        let fields = nominated.passing(response.fields);
        self.heard.fields = fields.map(|field| (field.name.into(), field.value.into())).collect();
        Ok(())
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<Gone> {
        Poll::Pending
    }

    fn is_broken(&self) -> bool {
        false
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
