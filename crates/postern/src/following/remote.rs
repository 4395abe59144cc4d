//! A provider elsewhere: what it denies, and what it answers, over HTTP.
//!
//! Owns: the questions and how answers are read. Does not own: the way for messages ([`super::asked`]), connections
//! (`gateway::outbound`), the answers (`crate::provider::facts`).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coherence::confirm::Confirm;
use coherence::denials::{Denial, Denials};
use coherence::drive::Copies;
use coherence::{Epoch, Head, Tag};
use gateway::outbound::{Outbound, Streamed};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::config::Follow;

/// A page of what is denied (`GET …/coherence/denials?after=TAG`), or what of some tags is (`POST …/coherence/confirm`).
#[derive(Debug, Serialize, Deserialize)]
pub struct Page {
    /// Whose head this is, in base64.
    pub epoch: String,
    /// How far the log had got before the rest was read.
    pub seq: u64,
    /// Tag in base64; from when on what carries it is good again; until when it matters. In milliseconds since 1970.
    pub denied: Vec<(String, Option<i64>, i64)>,
    /// Whether there is more after the last of them.
    pub more: bool,
}

/// Tags that are asked about.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tags {
    /// Each in base64.
    pub tags: Vec<String>,
}

/// Bytes as these texts have them.
pub fn text_of(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The reverse of [`text_of`].
pub fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// A provider elsewhere. Clones are one.
#[derive(Clone)]
pub struct Remote(Arc<Place>);

struct Place {
    outbound: Outbound,
    url: Box<str>,
    bearer: HeaderValue,
}

impl Remote {
    /// As it is configured; connections live on this runtime.
    pub fn new(follow: &Follow, on: &Handle) -> Self {
        let bearer = format!("Bearer {}", &*follow.secret.bearer());
        // Base64 is.
        let mut bearer = HeaderValue::from_str(&bearer).unwrap_or_else(|_| HeaderValue::from_static(""));
        bearer.set_sensitive(true);
        let outbound = Outbound::new(&follow.server, on.clone());
        Self(Arc::new(Place { outbound, url: follow.url.clone(), bearer }))
    }

    /// What is at a path below `/coherence`, or why it cannot be had.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Bytes,
    ) -> Result<Bytes, String> {
        let Place { outbound, url, bearer } = &*self.0;
        let request = Request::builder().method(method).uri(format!("{url}/coherence/{path}"));
        let request = request.header(AUTHORIZATION, bearer.clone()).header(CONTENT_TYPE, kind).body(body);
        let request = request.map_err(|error| error.to_string())?;
        let answer = outbound.ask_as_nobody(request).await.map_err(|error| format!("{url}: {error}"))?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            StatusCode::UNAUTHORIZED => Err(format!(
                "{url} does not know the secret of this gateway; is `follow_secret_file` what `postern admin follow-secret` prints there?"
            )),
            StatusCode::NOT_FOUND => Err(format!(
                "{url} is no provider that can be followed; `follow_url` says where one of its nodes is"
            )),
            status => Err(format!("{url} answered {status}")),
        }
    }

    /// Why there is no answer to a question that was given up.
    pub(super) fn unanswered(&self) -> String {
        format!("{}: no answer for as long as it is believed", self.0.url)
    }

    /// The stream of what is taken back, and the status of the answer. On the runtime that connections live on.
    pub(super) async fn events(&self) -> Result<(StatusCode, Streamed), String> {
        let Place { outbound, url, bearer } = &*self.0;
        let request = Request::builder().uri(format!("{url}/coherence/events"));
        let request = request.header(AUTHORIZATION, bearer.clone()).header(ACCEPT, "text/event-stream");
        let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
        let stream = outbound.stream(request).await.map_err(|error| format!("{url}: {error}"))?;
        Ok((stream.status, stream))
    }

    async fn page(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Option<(Head, Vec<(Tag, Denial)>, bool)> {
        let answer = self.ask(method, path, "application/json", body).await.ok()?;
        let Page { epoch, seq, denied, more } = serde_json::from_slice(&answer).ok()?;
        let denied = denied
            .into_iter()
            .map(|(tag, not_before, until)| Some((Tag(bytes_of(&tag)?), Denial { not_before, until })));
        Some((Head { epoch: Epoch(bytes_of(&epoch)?), seq }, denied.collect::<Option<_>>()?, more))
    }
}

impl Copies for Remote {
    async fn load(&self, denials: &Denials) -> Option<Head> {
        let mut first: Option<Head> = None;
        let mut after = String::new();
        loop {
            let path = format!("denials?after={}", after.replace('+', "%2B").replace('=', "%3D"));
            let (head, denied, more) = self.page(Method::GET, &path, Bytes::new()).await?;
            let first = *first.get_or_insert(head);
            if first.epoch != head.epoch {
                return None;
            }
            if let Some((tag, _)) = denied.last() {
                after = text_of(&tag.0);
            }
            let any = !denied.is_empty();
            for (tag, denial) in denied {
                denials.add(tag, denial);
            }
            if !more || !any {
                return Some(first);
            }
        }
    }
}

impl Confirm for Remote {
    async fn denied(&self, tags: Vec<Tag>) -> Option<(Head, Vec<(Tag, Denial)>)> {
        let tags = Tags { tags: tags.iter().map(|tag| text_of(&tag.0)).collect() };
        let body = serde_json::to_vec(&tags).ok()?;
        let (head, denied, _) = self.page(Method::POST, "confirm", body.into()).await?;
        Some((head, denied))
    }
}
