//! Event polling: fetches event tokens from a transmitter (RFC 8936).
//!
//! Owns: when to poll, what to acknowledge with the next request, the meaning of an error. Does not
//! own: verifying a token.
//!
//! One request is pending at a time. It asks the transmitter to hold the response until there is an
//! event; a transmitter that does not is polled again after a pause. Accepted tokens are
//! acknowledged with the next request, so a process that ends in between receives them again. A
//! token that cannot be accepted now, because a key or the log is unavailable, is not acknowledged,
//! and comes again.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_engine::http_client::{CallError, HttpClient};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Receiver, TransmitterState};
use crate::config::EventDelivery;

/// The first pause after a failure; doubled by each further one.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest pause after a failure.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// A poll request (RFC 8936 §2.4).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PollRequest<'q> {
    max_events: u32,
    return_immediately: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ack: &'q [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    set_errs: &'q BTreeMap<String, SetError>,
}

/// Why a token was refused permanently (RFC 8936 §2.6).
#[derive(Serialize)]
struct SetError {
    err: &'static str,
    description: String,
}

/// A poll response (RFC 8936 §2.5).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PollAnswer {
    sets: BTreeMap<String, String>,
    #[serde(default)]
    more_available: bool,
}

/// Why a poll failed.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the transmitter answered {0}{1}")]
    Status(StatusCode, &'static str),
    #[error("the response does not conform to RFC 8936: {0}")]
    Unclear(serde_json::Error),
    #[error("the response has {0} tokens, more than the requested maximum of {1}")]
    TooMany(usize, u32),
    #[error("the poll request cannot be built: {0}")]
    Question(String),
}

/// What the next request reports about the received tokens.
#[derive(Default)]
struct PolledEvents {
    ack: Vec<String>,
    errors: BTreeMap<String, SetError>,
    /// Whether some tokens could not be accepted now.
    has_unacknowledged: bool,
}

/// Polls one transmitter until its receiver is dropped.
pub(super) async fn run(receiver: Weak<Receiver>, at: usize) {
    let Some(outbound) = receiver.upgrade().and_then(|this| {
        let EventDelivery::Polled { server, .. } = &this.transmitters[at].config.delivery else {
            return None;
        };
        Some(HttpClient::new(server, this.surroundings.control.clone()))
    }) else {
        return;
    };
    let (mut polled, mut retry) = (PolledEvents::default(), FIRST_RETRY);
    loop {
        let Some(this) = receiver.upgrade() else { return };
        let one = &this.transmitters[at];
        let sent_at = Instant::now();
        match fetch(one, &outbound, &polled).await {
            Ok(answer) => {
                one.poll_succeeded();
                let empty = answer.sets.is_empty();
                polled = this.take_all(one, answer.sets).await;
                // The key or the log may be available in a moment; and a transmitter that sends
                // only refused tokens may do so without end.
                if polled.has_unacknowledged || polled.ack.is_empty() && !polled.errors.is_empty() {
                    drop(this);
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LAST_RETRY);
                    continue;
                }
                retry = FIRST_RETRY;
                let pause = one.interval().saturating_sub(sent_at.elapsed());
                drop(this);
                if empty && !answer.more_available {
                    tokio::time::sleep(pause).await;
                }
            }
            Err(why) => {
                one.poll_failed(&why.to_string());
                drop(this);
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(LAST_RETRY);
            }
        }
    }
}

async fn fetch(
    one: &TransmitterState,
    outbound: &HttpClient,
    polled: &PolledEvents,
) -> Result<PollAnswer, PollError> {
    let EventDelivery::Polled { url, max_events, .. } = &one.config.delivery else {
        return Err(PollError::Question("its events are pushed, not polled".to_owned()));
    };
    let question = PollRequest {
        max_events: *max_events,
        // A token that was not accepted would come again at once.
        return_immediately: polled.has_unacknowledged,
        ack: &polled.ack,
        set_errs: &polled.errors,
    };
    let body = serde_json::to_vec(&question).map_err(|error| PollError::Question(error.to_string()))?;
    let request = Request::post(url.to_string())
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json")
        .body(Bytes::from(body))
        .map_err(|error| PollError::Question(error.to_string()))?;
    let response = outbound.ask(request).await?;
    match response.status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(PollError::Status(response.status, ": the gateway's token was rejected"));
        }
        status => return Err(PollError::Status(status, "")),
    }
    let answer: PollAnswer = serde_json::from_slice(&response.body).map_err(PollError::Unclear)?;
    if answer.sets.len() > *max_events as usize {
        return Err(PollError::TooMany(answer.sets.len(), *max_events));
    }
    Ok(answer)
}

impl Receiver {
    async fn take_all(&self, one: &TransmitterState, sets: BTreeMap<String, String>) -> PolledEvents {
        let mut polled = PolledEvents::default();
        for (jti, token) in sets {
            match self.receive(one, token.trim().as_bytes()).await {
                Ok(()) => polled.ack.push(jti),
                Err(refused) if refused.is_retryable() => polled.has_unacknowledged = true,
                Err(refused) => {
                    let error = SetError { err: refused.error(), description: refused.to_string() };
                    polled.errors.insert(jti, error);
                }
            }
        }
        polled
    }
}

impl TransmitterState {
    fn interval(&self) -> Duration {
        match &self.config.delivery {
            EventDelivery::Polled { interval, .. } => *interval,
            EventDelivery::Pushed { .. } => Duration::ZERO,
        }
    }

    fn poll_succeeded(&self) {
        *self.poll_error.lock() = None;
        self.outage.succeeded();
    }

    fn poll_failed(&self, why: &str) {
        *self.poll_error.lock() = Some(Arc::from(why));
        self.outage.failed(why);
    }
}
