//! Revocation API: HTTP endpoints for consumers that follow the provider from other processes.
//!
//! Owns: four endpoints below the issuer's path:
//!
//! - `POST revocation/denylist` returns the whole denylist, page by page.
//! - `POST revocation/query` returns which of some tags are denied.
//! - `POST revocation/messages` returns the answer to one message of the protocol.
//! - `GET revocation/events` is an event stream of new revocations.
//!
//! The client authenticates with the shared secret. Each response carries a MAC that binds it to
//! its query.
//!
//! Does not own: the protocol and the format of queries and answers (`coherence`), the data
//! (`store`).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use coherence::event_loops::QueryAnswers;
use coherence::query::{LogAnswer, LogQuery, LogQuestion};
use coherence::revocation_query::RevocationQuery;
use coherence::secret::SharedSecret;
use hyper::body::Frame;
use store::Store;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};

use super::server::ShutdownSignal;
use crate::revocation::http_transport::{
    EVENT_DATA_PREFIX, HEARTBEAT_INTERVAL, MessageStream, encode_message,
};

/// Number of tags in one page.
const PAGE_SIZE: u32 = 5000;
/// Size limit of a query, in bytes.
const MAX_QUERY_BYTES: usize = 256 << 10;
/// Bytes of the event stream to send in one piece, if there are as many.
const STREAM_CHUNK_BYTES: usize = 16 << 10;
/// Number of pieces that may wait to be sent.
const STREAM_QUEUE: usize = 4;
/// A comment line of the event stream: it keeps the connection alive.
const HEARTBEAT_COMMENT: &[u8] = b":\n\n";

struct RevocationApi {
    secret: SharedSecret,
    answers: QueryAnswers<Store>,
}

/// The endpoints, below the issuer's path.
pub(super) fn router(path: &str, secret: SharedSecret, answers: QueryAnswers<Store>) -> Router {
    let facts = Arc::new(RevocationApi { secret, answers });
    Router::new()
        .route(&format!("{path}/revocation/denylist"), post(denials))
        .route(&format!("{path}/revocation/query"), post(confirm))
        .route(&format!("{path}/revocation/messages"), post(messages))
        .route(&format!("{path}/revocation/events"), get(events))
        .layer(DefaultBodyLimit::max(MAX_QUERY_BYTES))
        .with_state(facts)
}

impl RevocationApi {
    fn refuse(&self, headers: &HeaderMap) -> Option<Response> {
        let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let shown = shown.and_then(|shown| shown.strip_prefix(b"Bearer "));
        if shown.is_some_and(|shown| self.secret.is_bearer(shown)) {
            return None;
        }
        let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"revocation\"")];
        Some(
            (StatusCode::UNAUTHORIZED, challenge, "only for gateways that follow this provider\n")
                .into_response(),
        )
    }

    fn query(&self, body: &[u8]) -> Option<LogQuery> {
        LogQuery::read(&self.answers.channel.authority, body).ok()
    }

    fn sealed(&self, query: &LogQuery, to: &LogAnswer) -> Response {
        answer("application/octet-stream", query.seal(to, &self.answers.channel.keys))
    }
}

async fn denials(State(facts): State<Arc<RevocationApi>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refused) = facts.refuse(&headers) {
        return refused;
    }
    let Some(query) = facts.query(&body) else { return malformed() };
    let LogQuestion::DenylistPage { after } = *query.question() else { return malformed() };
    match facts.answers.log.page(after, PAGE_SIZE).await {
        Ok(page) => facts.sealed(&query, &page),
        Err(_) => unavailable(),
    }
}

async fn confirm(State(facts): State<Arc<RevocationApi>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refused) = facts.refuse(&headers) {
        return refused;
    }
    let Some(query) = facts.query(&body) else { return malformed() };
    let LogQuestion::Tags(tags) = query.question() else { return malformed() };
    match RevocationQuery::query_denied(&facts.answers.log, tags.clone()).await {
        Some((head, denied)) => facts.sealed(&query, &LogAnswer { head, denied, more: false }),
        None => unavailable(),
    }
}

async fn messages(State(facts): State<Arc<RevocationApi>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refused) = facts.refuse(&headers) {
        return refused;
    }
    let answers = facts.answers.answer_once(&body).await;
    let messages = MessageStream { messages: answers.iter().map(|answer| encode_message(answer)).collect() };
    match serde_json::to_vec(&messages) {
        Ok(body) => answer("application/json", body),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Server-sent events (WHATWG HTML section 9.2), with one message of the protocol in each.
async fn events(
    State(facts): State<Arc<RevocationApi>>,
    Extension(stop): Extension<ShutdownSignal>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = facts.refuse(&headers) {
        return refused;
    }
    let (to, pieces) = mpsc::channel(STREAM_QUEUE);
    tokio::spawn(send_events(facts.answers.relay.subscribe(), to, stop));
    let fields = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (fields, Body::new(ChannelBody(pieces))).into_response()
}

/// Sends events until the client disconnects, the server stops, or the log is replaced.
async fn send_events(
    mut messages: broadcast::Receiver<Bytes>,
    to: mpsc::Sender<Bytes>,
    mut stop: ShutdownSignal,
) {
    // A first piece makes proxies forward the head.
    let mut piece = HEARTBEAT_COMMENT.to_vec();
    loop {
        tokio::select! {
            sent = to.send(Bytes::from(std::mem::take(&mut piece))) => if sent.is_err() { return },
            () = stop.stopped() => return,
        }
        tokio::select! {
            first = messages.recv() => match first {
                Ok(message) => append_event(&mut piece, &message),
                // The consumer queries what it missed.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            () = tokio::time::sleep(HEARTBEAT_INTERVAL) => piece.extend(HEARTBEAT_COMMENT),
            () = to.closed() => return,
            () = stop.stopped() => return,
        }
        while piece.len() < STREAM_CHUNK_BYTES
            && let Ok(message) = messages.try_recv()
        {
            append_event(&mut piece, &message);
        }
    }
}

fn append_event(piece: &mut Vec<u8>, message: &[u8]) {
    piece.extend(EVENT_DATA_PREFIX);
    piece.extend(encode_message(message).into_bytes());
    piece.extend(b"\n\n");
}

/// A response body that gets its pieces from a channel.
struct ChannelBody(mpsc::Receiver<Bytes>);

impl HttpBody for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

fn answer(kind: &'static str, body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")], body).into_response()
}

fn malformed() -> Response {
    (StatusCode::BAD_REQUEST, "the body is not a query of this kind and version\n").into_response()
}

fn unavailable() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response()
}
