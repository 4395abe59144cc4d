//! Watch stream: runs one watch (a list for its version, the stream, and the reaction to its end).
//!
//! Owns: when to list again, when to resume, how long to wait. A stream that ends or breaks resumes
//! from the last version, and the server sends the missed events. After any other error the version
//! is useless: it lists again, and all answers are dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_engine::http_client::{CallError, HttpClient, StreamedResponse};
use outage::Outage;
use tokio::time::Instant;

use super::event::{self, Lines, WatchEvent, WatchEventError};
use super::{Mark, Marker, WatchCounters, WatchStart, WatchState};
use crate::cache::CacheSecret;

/// The first pause after a failure; doubled by each further one.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest pause after a failure.
const LAST_RETRY: Duration = Duration::from_secs(10);
/// The longest pause when access is denied. The first ones are short: a server that has just
/// started has not loaded its roles yet.
const DENIED_RETRY: Duration = Duration::from_secs(30);
/// The pause when the resource does not exist.
const ABSENT_RETRY: Duration = Duration::from_mins(10);
/// Lifetime of a stream, extended by up to half as jitter. The server receives it and ends the
/// stream.
const STREAM_LIFETIME: Duration = Duration::from_mins(2);
/// How long past its lifetime a stream may take to end before it counts as stuck.
const STREAM_GRACE: Duration = Duration::from_secs(15);
/// A stream that ended sooner counts as a failure.
const MIN_STREAM: Duration = Duration::from_secs(1);
/// Requests only the metadata of objects.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Requests only the metadata of lists.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum WatchEnd {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the watch stream cannot be parsed: {0}")]
    Unclear(#[from] WatchEventError),
    #[error("the list has no version")]
    NoVersion,
    #[error("the server answered {0}")]
    Status(StatusCode),
    #[error("the server ended the watch with {0}")]
    Failed(u16),
    #[error("no data arrived in time")]
    Silent,
    #[error("the server has no such resource")]
    Absent,
}

impl WatchEnd {
    /// Whether the version is still usable: the error is not about it.
    fn keeps_version(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Silent | Self::Status(StatusCode::TOO_MANY_REQUESTS))
    }

    fn state(&self) -> WatchState {
        match self {
            Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => WatchState::Denied,
            Self::Absent => WatchState::Absent,
            _ => WatchState::Broken,
        }
    }
}

/// The state of one watch.
pub(super) struct WatchStream {
    shown: Arc<WatchCounters>,
    marker: Marker,
    base: Box<str>,
    outbound: Arc<HttpClient>,
    secret: CacheSecret,
    /// Outage log, shared by all watches of the server.
    outage: Outage,
    /// The version from which it continues.
    version: Option<String>,
    failures: u32,
    /// When the stream of this turn was opened.
    opened: Option<Instant>,
    rounds: u64,
}

impl WatchStream {
    pub(super) fn new(shown: Arc<WatchCounters>, begin: &WatchStart, marker: Marker) -> Self {
        Self {
            shown,
            marker,
            base: begin.base.clone(),
            outbound: begin.outbound.clone(),
            secret: begin.secret.clone(),
            outage: begin.outage.another_way(),
            version: None,
            failures: 0,
            opened: None,
            rounds: 0,
        }
    }

    /// Watches forever.
    pub(super) async fn run(mut self) {
        loop {
            self.rounds += 1;
            self.opened = None;
            let end = self.run_stream().await;
            let lasted = self.opened.is_some_and(|opened| opened.elapsed() >= MIN_STREAM);
            if lasted {
                self.failures = 0;
            }
            let pause = match end {
                // The server ended the stream on time; continue at once.
                Ok(()) if lasted => Duration::ZERO,
                Ok(()) => self.next_pause(LAST_RETRY),
                Err(end) => self.after_end(&end),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// One turn: from a request to the end of its stream.
    async fn run_stream(&mut self) -> Result<(), WatchEnd> {
        let version = match self.version.clone() {
            Some(version) => version,
            None => self.list().await?,
        };
        let turn = self.jittered(STREAM_LIFETIME);
        let query = format!(
            "watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
            turn.as_secs()
        );
        let mut stream = self.outbound.stream(self.request(&query, METADATA)?).await?;
        if stream.status != StatusCode::OK {
            return Err(WatchEnd::Status(stream.status));
        }
        self.opened = Some(Instant::now());
        self.set_state(WatchState::Watching, None);
        let until = Instant::now() + turn + STREAM_GRACE;
        let mut lines = Lines::default();
        while let Some(bytes) = self.next(&mut stream, until).await? {
            lines.push(&bytes)?;
            while let Some(line) = lines.next() {
                self.process_event(event::read(line)?)?;
            }
        }
        Ok(())
    }

    async fn next(&self, stream: &mut StreamedResponse, until: Instant) -> Result<Option<Bytes>, WatchEnd> {
        let next = tokio::time::timeout_at(until, stream.next()).await;
        Ok(next.map_err(|_| WatchEnd::Silent)??)
    }

    /// Lists to get a version. All cached answers are dropped, because changes until now were
    /// missed.
    async fn list(&mut self) -> Result<String, WatchEnd> {
        let resource = self.shown.resource;
        if resource.is_optional() {
            let group = self.get(format!("{}{}", self.base, resource.group()), "application/json").await?;
            if group.0 == StatusCode::NOT_FOUND {
                return Err(WatchEnd::Absent);
            }
        }
        let (status, body) = self.get(self.url("limit=1"), METADATA_LIST).await?;
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND if resource.is_optional() => return Err(WatchEnd::Absent),
            status => return Err(WatchEnd::Status(status)),
        }
        let version = event::version_of_list(&body).ok_or(WatchEnd::NoVersion)?;
        self.version = Some(version.clone());
        self.shown.lists.fetch_add(1, Relaxed);
        self.marker.mark(Mark::All);
        Ok(version)
    }

    /// Not subject to the request limits: after a lost watch the rush of requests may have
    /// exhausted them.
    async fn get(&self, url: String, accept: &'static str) -> Result<(StatusCode, Bytes), WatchEnd> {
        let request = Request::get(url).header(ACCEPT, accept).body(Bytes::new());
        let mut answer = self.outbound.stream(request.map_err(|error| request_error(&error))?).await?;
        let until = Instant::now() + STREAM_GRACE;
        let mut body = Vec::new();
        while let Some(bytes) = self.next(&mut answer, until).await? {
            body.extend_from_slice(&bytes);
            if body.len() > event::MAX_LINE {
                return Err(WatchEventError::TooLong.into());
            }
        }
        Ok((answer.status, body.into()))
    }

    fn request(&self, query: &str, accept: &'static str) -> Result<Request<Bytes>, WatchEnd> {
        let request = Request::get(self.url(query)).header(ACCEPT, accept).body(Bytes::new());
        Ok(request.map_err(|error| request_error(&error))?)
    }

    fn url(&self, query: &str) -> String {
        let resource = self.shown.resource;
        format!("{}{}/{}?{query}", self.base, resource.group(), resource.as_str())
    }

    /// Processes one event.
    fn process_event(&mut self, event: WatchEvent) -> Result<(), WatchEnd> {
        let object = match event {
            WatchEvent::Failed(code) => return Err(WatchEnd::Failed(code)),
            WatchEvent::Bookmark(object) => object,
            WatchEvent::Changed(change, object) => {
                // Before the mark: a request that is repeated because of the mark must find the
                // name.
                if let Some(name) = self.shown.resource.deleted_name(change, &object) {
                    self.marker.deleted_objects.add(name);
                }
                if let Some(mark) = self.shown.resource.mark_for(change, &object, &self.marker.versions) {
                    self.marker.mark(mark);
                    // Counted only after it took effect.
                    self.shown.events.fetch_add(1, Relaxed);
                }
                object
            }
        };
        let version = object.version().ok_or(WatchEventError::NoEvent)?;
        self.version = Some(version.to_owned());
        Ok(())
    }

    /// Records why a watch ended; returns the pause before the next turn.
    fn after_end(&mut self, end: &WatchEnd) -> Duration {
        if !end.keeps_version() {
            self.version = None;
        }
        let state = end.state();
        self.set_state(state, Some(end));
        match (state, end) {
            (WatchState::Absent, _) => self.jittered(ABSENT_RETRY),
            (WatchState::Denied, _) => self.next_pause(DENIED_RETRY),
            // The version is too old: this is no failure, and the watch should resume as soon as
            // possible.
            (_, WatchEnd::Failed(410) | WatchEnd::Status(StatusCode::GONE)) if self.failures == 0 => {
                self.failures = 1;
                Duration::ZERO
            }
            _ => self.next_pause(LAST_RETRY),
        }
    }

    fn next_pause(&mut self, longest: Duration) -> Duration {
        let pause = (FIRST_RETRY * (1 << self.failures.min(16))).min(longest);
        self.failures += 1;
        self.jittered(pause)
    }

    /// Extends a pause by up to half, so that watches that started together do not stay
    /// synchronized.
    fn jittered(&self, pause: Duration) -> Duration {
        let label = format!("watch {} {}", self.shown.watcher, self.shown.resource.as_str());
        let share = self.secret.spread(&label, self.rounds) % 512;
        pause + pause * u32::try_from(share).unwrap_or(0) / 1024
    }

    /// Sets the state and logs changes. An unreachable server is one outage for all watches; a
    /// server that denies one watch is logged once.
    fn set_state(&self, state: WatchState, end: Option<&WatchEnd>) {
        let before = std::mem::replace(&mut *self.shown.state.lock(), state);
        let (watcher, resource) = (&*self.shown.watcher, self.shown.resource.as_str());
        match (state, end) {
            (WatchState::Denied, Some(WatchEnd::Status(StatusCode::UNAUTHORIZED))) => {
                self.outage.failed("the gateway's own credential was rejected");
            }
            // The version is too old: this is no failure.
            (
                WatchState::Broken,
                Some(why @ (WatchEnd::Failed(410) | WatchEnd::Status(StatusCode::GONE))),
            ) => {
                tracing::debug!(watcher, resource, %why, "watch version expired, listing again");
            }
            (WatchState::Broken, Some(why)) => self.outage.failed(format_args!("{resource}: {why}")),
            (WatchState::Denied, Some(why)) => {
                self.outage.succeeded();
                if before != state {
                    tracing::warn!(
                        watcher,
                        resource,
                        %why,
                        "watch denied, answers expire only by their time to live; grant the gateway's account {}",
                        self.shown.resource.required_permission()
                    );
                }
            }
            (WatchState::Absent, _) => {
                self.outage.succeeded();
                tracing::debug!(watcher, resource, "resource not present, not watched");
            }
            _ => {
                self.outage.succeeded();
                if matches!(before, WatchState::Starting | WatchState::Denied) {
                    tracing::info!(watcher, resource, "watch started");
                }
            }
        }
    }
}

/// The URL was checked with the configuration, and a version has only letters and digits.
fn request_error(error: &http::Error) -> CallError {
    CallError::Exchange(error.to_string())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::Handle;

    use super::super::{Resource, Watches};
    use super::*;
    use http_engine::config::{ClientCredential, ServerConfig};
    use http_engine::outbound_proxy::OutboundProxies;

    /// The first line of the next request, on its own connection.
    async fn next(listener: &TcpListener) -> (TcpStream, String) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
        (stream, line)
    }

    #[tokio::test]
    async fn a_stream_that_hangs_is_begun_anew_from_where_it_was() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ServerConfig {
            tls: None,
            tls_version: 0,
            proxies: OutboundProxies::default(),
            credential: ClientCredential::None,
            timeout: Duration::from_hours(1),
            max_requests: 1,
            max_per_second: None,
        };
        let control = Handle::current();
        let outbound = Arc::new(HttpClient::new(&server, control.clone()));
        let base = format!("http://{}", listener.local_addr().unwrap());
        let resources = [Resource::ServiceAccounts];
        let watches =
            Watches::new("test", &resources, Some(&base), &outbound, &CacheSecret::new([1; 16]), &control);
        watches.start();
        let (mut stream, line) = next(&listener).await;
        assert_eq!(line, "GET /api/v1/serviceaccounts?limit=1 HTTP/1.1");
        let list = r#"{"metadata":{"resourceVersion":"41"},"items":[{}]}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        let answer = format!("{head}content-length: {}\r\n\r\n{list}", list.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        let (mut silent, line) = next(&listener).await;
        assert!(line.contains("resourceVersion=41&"), "{line}");
        silent.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        while watches.status().any(|watch| watch.state != WatchState::Watching) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::pause();
        tokio::time::advance(STREAM_LIFETIME + STREAM_LIFETIME / 2 + STREAM_GRACE + LAST_RETRY).await;
        tokio::time::resume();
        let (_again, line) = next(&listener).await;
        assert!(line.contains("resourceVersion=41&"), "nothing was missed: {line}");
        assert!(watches.status().all(|watch| watch.state == WatchState::Broken && watch.lists == 1));
    }
}
