//! Security event endpoints: transmitter metadata (SSF §7.1) and polling by receivers (RFC 8936).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION, header::WWW_AUTHENTICATE},
    response::Response,
};
use serde::Deserialize;
use serde_json::json;
use store::{
    StoreError,
    security_events::{Acknowledge, OccurrenceRow},
};

use super::{answer, form};
use crate::oauth::error::OAuthFault;
use crate::paths;
use crate::provider::Provider;
use crate::receivers::{MAX_EVENT_AGE, Receiver};
use crate::signals::set;

/// Most tokens of one response; a request may ask for fewer.
const MAX_EVENTS: u32 = 100;
/// Longest time that a poll waits for events; short, so that it does not delay a shutdown.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// How often a waiting poll looks for events of other nodes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Poll request (RFC 8936 §2.4).
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PollRequest {
    max_events: Option<u32>,
    return_immediately: bool,
    ack: Vec<String>,
    set_errs: BTreeMap<String, serde_json::Value>,
}

/// Handles `GET /.well-known/ssf-configuration`. Streams are configured, not managed, so the
/// document has no management endpoints.
pub async fn configuration(State(provider): State<Arc<Provider>>) -> Response {
    if !provider.has_receivers() {
        return answer::refuse(&OAuthFault::NotFound, provider.challenge(), None);
    }
    let issuer = provider.issuer().as_str();
    let document = json!({
        "spec_version": "1_0",
        "issuer": issuer,
        "jwks_uri": format!("{issuer}{}", paths::JWKS),
        "delivery_methods_supported": provider.receivers().methods(),
        "default_subjects": "ALL",
    });
    answer::document(document.to_string().into(), provider.document_cache())
}

/// Handles `POST /ssf/poll/{receiver}` (RFC 8936 §2).
pub async fn poll(
    State(provider): State<Arc<Provider>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    // The response without a valid token does not disclose which receivers exist.
    let receivers = provider.receivers();
    let shown = headers.get(AUTHORIZATION).and_then(|shown| shown.as_bytes().strip_prefix(b"Bearer "));
    let known =
        receivers.poll_receiver(&name).filter(|(_, bearer)| shown.is_some_and(|shown| bearer.matches(shown)));
    let Some((receiver, _)) = known else {
        let error = json!({ "err": "authentication_failed", "description": "bearer token not valid for this receiver" });
        let mut response = answer::json(StatusCode::UNAUTHORIZED, &error);
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    };
    let body = match form::read_body(request.into_body()).await {
        Ok(body) => body,
        Err(fault) => return answer::refuse(&fault, provider.challenge(), None),
    };
    // Serde would accept an array, with its items as members in order.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let Some(question) = serde_json::from_slice::<PollRequest>(&body).ok().filter(|_| is_object) else {
        let error =
            json!({ "err": "invalid_request", "description": "body is not a poll request (RFC 8936)" });
        return answer::json(StatusCode::BAD_REQUEST, &error);
    };
    match poll_response(&provider, receiver, &question).await {
        Ok(response) => response,
        Err(fault) => answer::refuse(&fault, provider.challenge(), None),
    }
}

async fn poll_response(
    provider: &Provider,
    receiver: &Receiver,
    question: &PollRequest,
) -> Result<Response, OAuthFault> {
    let until = tokio::time::Instant::now() + MAX_WAIT;
    let mut made = provider.store().appended();
    acknowledge(provider, receiver, question).await?;
    let most = question.max_events.unwrap_or(MAX_EVENTS).min(MAX_EVENTS);
    let (events, more) = loop {
        let (events, more) = next_events(provider, receiver, most).await?;
        let is_over = tokio::time::Instant::now() >= until;
        if !events.is_empty() || most == 0 || question.return_immediately || is_over {
            break (events, more);
        }
        // Wakes up for an event of this node; other nodes' events are found after the timeout.
        let _ = tokio::time::timeout(POLL_INTERVAL, made.recv()).await;
    };
    let epoch = provider.store().head().await?.epoch;
    let mut sets = serde_json::Map::new();
    for event in &events {
        let jti = set::jti(epoch, event.seq);
        let token = set::mint(provider, receiver, event, &jti)?;
        sets.insert(jti, token.into());
    }
    Ok(answer::json(StatusCode::OK, &json!({ "sets": sets, "moreAvailable": more })))
}

/// Records acknowledged and refused events. A receiver would refuse an event again, so refused
/// events are finished too.
async fn acknowledge(
    provider: &Provider,
    receiver: &Receiver,
    question: &PollRequest,
) -> Result<(), StoreError> {
    let epoch = provider.store().head().await?.epoch;
    for (jti, error) in &question.set_errs {
        let why: String = error.to_string().chars().take(200).collect();
        tracing::warn!(receiver = receiver.name, jti, why, "receiver refused security event");
    }
    let seq = |name: &String| set::parse_jti(epoch, name);
    let acknowledged: Vec<u64> = question.ack.iter().filter_map(seq).collect();
    let refused: Vec<u64> = question.set_errs.keys().filter_map(seq).collect();
    let counts = [("delivered", acknowledged.len()), ("refused", refused.len())];
    let acknowledge = Acknowledge {
        receiver: receiver.name.clone(),
        acknowledged: acknowledged.into_iter().chain(refused).collect(),
        before: provider.now().minus(MAX_EVENT_AGE),
    };
    let given_up = provider.store().write(acknowledge).await?;
    provider.receivers().record_dropped(&receiver.name, given_up);
    for (outcome, count) in counts {
        provider.receivers().record_outcome(&receiver.name, outcome, count as u64);
    }
    Ok(())
}

/// The next events of a receiver, and whether there are more. Events of kinds that the receiver
/// does not want are marked as delivered.
async fn next_events(
    provider: &Provider,
    receiver: &Receiver,
    most: u32,
) -> Result<(Vec<OccurrenceRow>, bool), StoreError> {
    loop {
        let all = provider.store().unacknowledged(&receiver.name, most.saturating_add(1)).await?;
        let (mut wanted, unwanted): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|event| receiver.wants(event.occurrence.kind));
        if unwanted.is_empty() {
            let more = wanted.len() > most as usize;
            wanted.truncate(most as usize);
            return Ok((wanted, more));
        }
        let skipped = unwanted.iter().map(|event| event.seq).collect();
        let before = provider.now().minus(MAX_EVENT_AGE);
        provider
            .store()
            .write(Acknowledge { receiver: receiver.name.clone(), acknowledged: skipped, before })
            .await?;
    }
}
