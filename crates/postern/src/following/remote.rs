//! A provider elsewhere: what it denies, and what it answers, over HTTP.
//!
//! Owns: the questions and how answers are read; and a way for messages that needs no broker ([`Asked`]): each question is a request,
//! and what it says back are the messages that answer it. That way nobody hears of a revocation before the next question, half a second
//! later; a broker tells at once. Does not own: connections (`gateway::outbound`), the answers (`crate::provider::facts`).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coherence::confirm::Confirm;
use coherence::denials::{Denial, Denials};
use coherence::drive::Copies;
use coherence::transport::{QUEUE, State, Subscription, Topic, Transport};
use coherence::{Epoch, Head, Tag};
use gateway::outbound::Outbound;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::config::Follow;

/// Questions that are under way at once.
const UNDER_WAY: usize = 8;

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

/// Messages, each in base64.
#[derive(Debug, Serialize, Deserialize)]
pub struct Messages {
    /// In the order in which they were made.
    pub messages: Vec<String>,
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
    async fn ask(
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

/// A way for messages to a provider that is asked over HTTP.
pub struct Asked {
    questions: mpsc::Sender<(Topic, Bytes)>,
    subscribers: Arc<Subscribers>,
    state: watch::Receiver<State>,
}

type Subscribers = Mutex<Vec<(Topic, mpsc::Sender<Bytes>)>>;

impl Asked {
    /// To this provider; what it takes runs on this runtime, and ends with it.
    pub fn new(remote: Remote, on: &Handle) -> Self {
        let (questions, mut waiting) = mpsc::channel::<(Topic, Bytes)>(QUEUE);
        let (tell, state) = watch::channel(State::Starting);
        let subscribers = Arc::<Subscribers>::default();
        let (heard, places) = (subscribers.clone(), Arc::new(tokio::sync::Semaphore::new(UNDER_WAY)));
        on.spawn(async move {
            while let Some((topic, question)) = waiting.recv().await {
                // Who would wait for longer asks anew anyway.
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let (remote, heard, tell) = (remote.clone(), heard.clone(), tell.clone());
                tokio::spawn(async move {
                    let answered = exchange(&remote, question).await;
                    drop(place);
                    let now = match &answered {
                        Ok(_) => State::Up,
                        Err(why) => State::Down(why.as_str().into()),
                    };
                    said(&tell, now);
                    if let (Ok(messages), Topic::Questions(name)) = (answered, topic) {
                        deliver(&heard, &Topic::Events(name), &messages);
                    }
                });
            }
        });
        Self { questions, subscribers, state }
    }
}

async fn exchange(remote: &Remote, question: Bytes) -> Result<Vec<Bytes>, String> {
    let answer = remote.ask(Method::POST, "messages", "application/octet-stream", question).await?;
    let Messages { messages } =
        serde_json::from_slice(&answer).map_err(|_| "it answers nothing that makes sense")?;
    let messages = messages.iter().map(|text| STANDARD.decode(text).map(Bytes::from));
    messages.collect::<Result<_, _>>().map_err(|_| "it answers nothing that makes sense".to_owned())
}

/// Says how it is, in one line when that changes.
fn said(tell: &watch::Sender<State>, now: State) {
    tell.send_if_modified(|before| {
        let (was, is) = (matches!(before, State::Down(_)), matches!(now, State::Down(_)));
        match &now {
            State::Down(why) if !was => tracing::warn!(%why, "an issuer that is followed does not answer"),
            State::Up if was => tracing::info!("an issuer that is followed answers again"),
            _ => {}
        }
        // Another cause of the same outage is no news.
        let news = *before != now && was != is || *before == State::Starting;
        *before = now;
        news
    });
}

fn deliver(subscribers: &Subscribers, topic: &Topic, messages: &[Bytes]) {
    subscribers.lock().retain(|(of, to)| {
        if of == topic {
            // A queue that is full drops.
            for message in messages {
                let _ = to.try_send(message.clone());
            }
        }
        !to.is_closed()
    });
}

impl Transport for Asked {
    fn send(&self, topic: &Topic, message: Bytes) {
        // What others are to hear is nobody's here.
        if matches!(topic, Topic::Questions(_)) {
            let _ = self.questions.try_send((topic.clone(), message));
        }
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        let (to, subscription) = mpsc::channel(QUEUE);
        self.subscribers.lock().push((topic, to));
        subscription
    }

    fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }
}
