//! What those hear over HTTP who follow the provider from elsewhere.
//!
//! Owns: four endpoints below the issuer's path: `GET coherence/denials`, all that is denied, page by page; `POST coherence/confirm`,
//! what of some tags is; `POST coherence/messages`, the answer to one message of the protocol; `GET coherence/events`, an event stream of
//! what is taken back from now on. Whoever asks shows that they have the secret. Does not own: the protocol (`coherence`), the facts (`store`).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, Extension, RawQuery, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use coherence::confirm::Confirm;
use coherence::drive::Answers;
use coherence::secret::SharedSecret;
use coherence::{Head, Tag};
use hyper::body::Frame;
use serde::Serialize;
use store::Store;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};

use super::server::Stop;
use crate::following::asked::{DATA, Messages, STIR};
use crate::following::remote::{Page, Tags, bytes_of, text_of};

/// Tags of one page.
const PAGE: u32 = 5000;
/// Bytes of a question.
const QUESTION: usize = 256 << 10;
/// Bytes of the event stream that are sent at once, if there are as many.
const PIECE: usize = 16 << 10;
/// Pieces that wait to be sent.
const PIECES: usize = 4;
/// What says nothing.
const STIRRED: &[u8] = b":\n\n";

struct Facts {
    secret: SharedSecret,
    answers: Answers<Store>,
}

/// The endpoints, below the issuer's path.
pub(super) fn router(path: &str, secret: SharedSecret, answers: Answers<Store>) -> Router {
    let facts = Arc::new(Facts { secret, answers });
    Router::new()
        .route(&format!("{path}/coherence/denials"), get(denials))
        .route(&format!("{path}/coherence/confirm"), post(confirm))
        .route(&format!("{path}/coherence/messages"), post(messages))
        .route(&format!("{path}/coherence/events"), get(events))
        .layer(DefaultBodyLimit::max(QUESTION))
        .with_state(facts)
}

impl Facts {
    fn refuse(&self, headers: &HeaderMap) -> Option<Response> {
        let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let shown = shown.and_then(|shown| shown.strip_prefix(b"Bearer "));
        if shown.is_some_and(|shown| self.secret.is_bearer(shown)) {
            return None;
        }
        let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"coherence\"")];
        Some(
            (StatusCode::UNAUTHORIZED, challenge, "this is for gateways that follow the provider\n")
                .into_response(),
        )
    }
}

async fn denials(State(facts): State<Arc<Facts>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    if let Some(refused) = facts.refuse(&headers) {
        return refused;
    }
    let query = query.unwrap_or_default().replace("%2B", "+").replace("%3D", "=");
    let after = match query.strip_prefix("after=").unwrap_or_default() {
        "" => None,
        text => match bytes_of(text) {
            Some(tag) => Some(Tag(tag)),
            None => return malformed("after is no tag"),
        },
    };
    // The head first: whoever follows it from there misses nothing.
    let Some(head) = facts.answers.log.head().await.ok() else { return unavailable() };
    let Ok(denied) = facts.answers.log.denied(after, PAGE).await else { return unavailable() };
    let more = denied.len() >= PAGE as usize;
    let denied = denied.into_iter().map(|denied| (denied.tag, denied.into()));
    page(head, denied, more)
}

async fn confirm(State(facts): State<Arc<Facts>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refused) = facts.refuse(&headers) {
        return refused;
    }
    let asked = serde_json::from_slice(&body).ok();
    let tags = asked
        .and_then(|Tags { tags }| tags.iter().map(|tag| bytes_of(tag).map(Tag)).collect::<Option<Vec<_>>>());
    let Some(tags) = tags else { return malformed("the body is no list of tags") };
    match Confirm::denied(&facts.answers.log, tags).await {
        Some((head, denied)) => page(head, denied.into_iter(), false),
        None => unavailable(),
    }
}

async fn messages(State(facts): State<Arc<Facts>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refused) = facts.refuse(&headers) {
        return refused;
    }
    let answers = facts.answers.once(&body).await;
    json(&Messages { messages: answers.iter().map(|answer| text_of(answer)).collect() })
}

/// Server-sent events (WHATWG HTML section 9.2), a message of the protocol in each.
async fn events(
    State(facts): State<Arc<Facts>>,
    Extension(stop): Extension<Stop>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = facts.refuse(&headers) {
        return refused;
    }
    let (to, pieces) = mpsc::channel(PIECES);
    tokio::spawn(tell(facts.answers.relay.listen(), to, stop));
    let fields = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (fields, Body::new(Pieces(pieces))).into_response()
}

/// Until whoever listens is gone, the server ends, or the log is another's.
async fn tell(mut heard: broadcast::Receiver<Bytes>, to: mpsc::Sender<Bytes>, mut stop: Stop) {
    // So that proxies pass the head on.
    let mut piece = STIRRED.to_vec();
    loop {
        tokio::select! {
            sent = to.send(Bytes::from(std::mem::take(&mut piece))) => if sent.is_err() { return },
            () = stop.told() => return,
        }
        tokio::select! {
            first = heard.recv() => match first {
                Ok(message) => put(&mut piece, &message),
                // Whoever follows asks for what it missed.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            () = tokio::time::sleep(STIR) => piece.extend(STIRRED),
            () = to.closed() => return,
            () = stop.told() => return,
        }
        while piece.len() < PIECE
            && let Ok(message) = heard.try_recv()
        {
            put(&mut piece, &message);
        }
    }
}

fn put(piece: &mut Vec<u8>, message: &[u8]) {
    piece.extend(DATA);
    piece.extend(text_of(message).into_bytes());
    piece.extend(b"\n\n");
}

/// A body whose pieces are made elsewhere.
struct Pieces(mpsc::Receiver<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

fn page(head: Head, denied: impl Iterator<Item = (Tag, coherence::denials::Denial)>, more: bool) -> Response {
    let denied = denied.map(|(tag, denial)| (text_of(&tag.0), denial.not_before, denial.until)).collect();
    json(&Page { epoch: text_of(&head.epoch.0), seq: head.seq, denied, more })
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => {
            let fields = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
            (fields, body).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn malformed(why: &'static str) -> Response {
    (StatusCode::BAD_REQUEST, why).into_response()
}

fn unavailable() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response()
}
