//! Authorizer exchange: sends one query and reads its response, over the upstream connections of
//! the worker.
//!
//! Owns: the downstream side of the exchange, its bounds, and why a query failed. Does not own: the
//! exchange itself, which is the same as for every request ([`crate::forward`]): connections, their
//! reuse, the one retry, endpoint health.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_engine::deadline::TICK;
use http_engine::http_stream::{
    AddedField, ClientEnd, Downstream, Fill, HttpStream, HttpStreamError, NominatedFields, ResponseView,
};
use http_engine::labels::Consulted;
use telemetry::access_log::RequestProtocol;

use crate::authorizer::question::AuthorizerQuestion;
use crate::authorizer::response::{AnswerError, AuthorizerResponse};
use crate::config::AuthorizerConfig as Config;
use crate::exchange_error::ExchangeError;
use crate::forward::ForwardedRequest;
use crate::forward::exchange::exchange;
use crate::forward::head::QuestionHead;
use crate::record::{RecordDetail, RequestRecord};
use crate::refusal::Refusal;
use crate::worker::{ActiveConfig, Worker};

/// Maximum bytes of a response body: enough for a login page. (The head is bounded as for every
/// upstream.)
const MAX_BODY: usize = 256 << 10;

/// Why a query got no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    #[error("{0} queries in flight on this worker, the limit of `max_requests` of its upstream")]
    Busy(usize),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("authorizer unreachable or connection lost: {0}")]
    Unreachable(&'static str),
    #[error("unusable answer: {0}")]
    Unusable(#[from] AnswerError),
    #[error("its answer reflects fewer revocations than are known here")]
    Outdated,
}

impl QueryError {
    /// The metrics label of the failure.
    pub(crate) fn metric_label(&self) -> Consulted {
        match self {
            Self::Busy(_) => Consulted::Busy,
            Self::Timeout(_) => Consulted::Timeout,
            Self::Unreachable(_) => Consulted::Unreachable,
            Self::Unusable(_) => Consulted::Malformed,
            Self::Outdated => Consulted::Behind,
        }
    }
}

/// Collects the response in place of a client.
#[derive(Default)]
struct AnswerReader {
    response: AuthorizerResponse,
    body: Body,
}

/// The body of the query, and the sink for that of the response.
#[derive(Default)]
struct Body {
    unsent: Bytes,
    bytes: Vec<u8>,
    trailers: Option<Box<HeaderMap>>,
    too_large: bool,
}

/// Sends a query and returns the response.
pub(crate) async fn send_query(
    config: &Config,
    question: &AuthorizerQuestion,
    worker: &Worker,
    running: &Rc<ActiveConfig>,
) -> Result<AuthorizerResponse, QueryError> {
    let pool = running.pool(config.upstream);
    let most = pool.config.max_requests;
    let head = QuestionHead {
        method: question.method(),
        target: question.target(),
        authority: question.authority(),
        fields: question.fields().collect(),
        body_bytes: question.body().len(),
    };
    let mut outbound = ForwardedRequest::question(pool, &head, config.timeout, running)
        .map_err(|_| AnswerError::InvalidQuery)?;
    let mut listening = AnswerReader::default();
    listening.body.unsent = question.body().clone();
    let deadline = worker.deadlines.register();
    // Discarded: the request that the query is about has its own record.
    let mut record = RequestRecord::begin(
        worker.clock.monotonic(),
        RequestProtocol::Http11,
        None,
        RecordDetail::default(),
    );
    let exchanged = exchange(&mut outbound, &mut listening, &deadline, &mut record);
    // The timeouts inside the exchange report the endpoint's health; this one also covers
    // connecting, and interim responses.
    let relayed = match tokio::time::timeout(config.timeout + 2 * TICK, exchanged).await {
        Err(_) | Ok(Err(Refusal::UpstreamTimeout)) => return Err(QueryError::Timeout(config.timeout)),
        Ok(Err(Refusal::Overloaded)) => return Err(QueryError::Busy(most)),
        Ok(Err(Refusal::UpstreamProtocol)) => return Err(AnswerError::NotHttp.into()),
        Ok(Err(Refusal::UpstreamClosed)) => {
            return Err(QueryError::Unreachable("connection closed without an answer"));
        }
        Ok(Err(_)) => return Err(QueryError::Unreachable("no connection to its upstream")),
        Ok(Ok(relayed)) => relayed,
    };
    if listening.body.too_large {
        return Err(AnswerError::TooLarge(MAX_BODY).into());
    }
    match relayed.fault {
        None => {
            let Body { bytes: body, trailers, .. } = listening.body;
            Ok(AuthorizerResponse { body, trailers, ..listening.response })
        }
        Some(ExchangeError::UpstreamTimeout | ExchangeError::RequestTimeout) => {
            Err(QueryError::Timeout(config.timeout))
        }
        Some(ExchangeError::UpstreamProtocol(_)) => Err(AnswerError::NotHttp.into()),
        Some(_) => Err(QueryError::Unreachable("connection lost in the middle of the answer")),
    }
}

impl Downstream for AnswerReader {
    type Leg = Body;

    fn stream(&mut self) -> &mut Body {
        &mut self.body
    }

    fn send_interim(&mut self, _: &ResponseView<'_>) -> Result<(), HttpStreamError> {
        Ok(())
    }

    fn send_head(&mut self, response: &ResponseView<'_>, _: &[AddedField]) -> Result<(), HttpStreamError> {
        self.response.status = response.status;
        let nominated = NominatedFields::from_fields(response.fields);
        let fields = nominated.forwarded(response.fields);
        self.response.fields = fields.map(|field| (field.name.into(), field.value.into())).collect();
        Ok(())
    }

    fn poll_client_end(&mut self, _: &mut Context<'_>) -> Poll<ClientEnd> {
        Poll::Pending
    }

    fn is_broken(&self) -> bool {
        false
    }
}

impl HttpStream for Body {
    fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<Result<Fill<'_>, HttpStreamError>> {
        Poll::Ready(Ok(if self.unsent.is_empty() { Fill::End(None) } else { Fill::Data(&self.unsent) }))
    }

    fn consume(&mut self, n: usize) {
        self.unsent.advance(n);
    }

    fn poll_write(&mut self, _: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, HttpStreamError>> {
        if self.bytes.len() + data.len() > MAX_BODY {
            self.too_large = true;
            return Poll::Ready(Err(HttpStreamError::TooLarge));
        }
        self.bytes.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn finish(&mut self, trailers: Option<Box<HeaderMap>>) -> Result<(), HttpStreamError> {
        self.trailers = trailers;
        Ok(())
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpStreamError>> {
        Poll::Ready(Ok(()))
    }

    fn release_buffers(&mut self) {}

    fn switch_protocol(&mut self) {}
}
