//! Remote provider: loads its denylist and queries it over HTTP.
//!
//! Owns: sending the queries, and counting refused answers. Does not own: the format of queries and
//! answers (`coherence::query`), the transport for messages ([`super::from_option`]), connections
//! (`http_engine::http_client`), the server side (`crate::provider::revocation_api`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use coherence::denylist::{Denylist, DenylistEntry};
use coherence::event_loops::DenylistSource;
use coherence::message_channel::ChannelCounts;
use coherence::query::{CopyProgress, DenylistCopier, LogAnswer, LogQuery, LogQuestion};
use coherence::revocation_query::RevocationQuery;
use coherence::wire::Keys;
use coherence::{LogHead, Nonce, PeerName, Tag};
use config::FollowedIssuerConfig;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_engine::http_client::{HttpClient, StreamedResponse};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::revocation::names::issuer_name;
use crate::revocation::random::random;

/// Number of attempts for a page of the denylist, before the copy is given up.
const PAGE_ATTEMPTS: u32 = 3;
/// Pause between two of these attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A remote provider. Clones share their state.
#[derive(Clone)]
pub struct Remote(Arc<RemoteState>);

struct RemoteState {
    client: HttpClient,
    url: Box<str>,
    bearer: HeaderValue,
    /// Name of the provider in the protocol.
    name: PeerName,
    /// Keys that verify the answers.
    keys: Keys,
    counts: Arc<ChannelCounts>,
}

impl Remote {
    /// Creates the client of a configured issuer. Connections run on this runtime. Refused answers
    /// are counted in `counts`.
    pub fn new(follow: &FollowedIssuerConfig, counts: Arc<ChannelCounts>, on: &Handle) -> Self {
        let bearer = format!("Bearer {}", &*follow.secret.bearer());
        // Base64 is always a valid header value.
        let mut bearer = HeaderValue::from_str(&bearer).unwrap_or_else(|_| HeaderValue::from_static(""));
        bearer.set_sensitive(true);
        let outbound = HttpClient::new(&follow.server, on.clone());
        let (name, keys) = (issuer_name(&follow.issuer), follow.secret.message_keys());
        Self(Arc::new(RemoteState { client: outbound, url: follow.url.clone(), bearer, name, keys, counts }))
    }

    /// Sends a request to a path below `/coherence`.
    ///
    /// # Errors
    /// Returns why there is no answer.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Bytes,
    ) -> Result<Bytes, String> {
        let RemoteState { client: outbound, url, bearer, .. } = &*self.0;
        let request = Request::builder().method(method).uri(format!("{url}/revocation/{path}"));
        let request = request.header(AUTHORIZATION, bearer.clone()).header(CONTENT_TYPE, kind).body(body);
        let request = request.map_err(|error| error.to_string())?;
        let answer = outbound.ask_anonymously(request).await.map_err(|error| format!("{url}: {error}"))?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            StatusCode::UNAUTHORIZED => Err(format!(
                "{url} refused the secret of this gateway; copy the output of `postern admin revocation secret` there into the file of `issuer.revocation.secret_file`"
            )),
            StatusCode::NOT_FOUND => Err(format!(
                "{url} is not a provider that can be followed; set `issuer.revocation.url` to one of its nodes"
            )),
            status => Err(format!("{url} answered {status}")),
        }
    }

    /// Error message for a query that was given up.
    pub(super) fn no_answer_message(&self) -> String {
        format!("{}: no answer within a lease", self.0.url)
    }

    /// Opens the stream of new revocations. Returns its status. Call it on the runtime of the
    /// connections.
    ///
    /// # Errors
    /// Returns why there is no response.
    pub(super) async fn events(&self) -> Result<(StatusCode, StreamedResponse), String> {
        let RemoteState { client: outbound, url, bearer, .. } = &*self.0;
        let request = Request::builder().uri(format!("{url}/revocation/events"));
        let request = request.header(AUTHORIZATION, bearer.clone()).header(ACCEPT, "text/event-stream");
        let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
        let stream = outbound.stream(request).await.map_err(|error| format!("{url}: {error}"))?;
        Ok((stream.status, stream))
    }

    /// Sends a query and verifies that the answer belongs to it. `None`: there is no valid answer.
    async fn query(&self, path: &str, question: LogQuestion) -> Option<LogAnswer> {
        let RemoteState { name, keys, counts, .. } = &*self.0;
        let query = LogQuery::new(name, Nonce(random().ok()?), question);
        let body = Bytes::copy_from_slice(query.bytes());
        let answer = self.send(Method::POST, path, "application/octet-stream", body).await.ok()?;
        let opened = query.open(&answer, keys);
        if let Err(why) = &opened {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(url = &*self.0.url, path, %why, "answer refused");
        }
        opened.ok()
    }

    /// Queries a page of the denylist and retries without an answer, so that one lost answer does
    /// not restart the copy.
    async fn page(&self, question: LogQuestion) -> Option<LogAnswer> {
        for _ in 1..PAGE_ATTEMPTS {
            let answer = self.query("denylist", question.clone()).await;
            if answer.is_some() {
                return answer;
            }
            sleep(RETRY_PAUSE).await;
        }
        self.query("denylist", question).await
    }
}

impl DenylistSource for Remote {
    async fn load(&self, denials: &Denylist) -> Option<LogHead> {
        let mut copying = DenylistCopier::default();
        loop {
            let page = self.page(copying.question()).await?;
            match copying.add_page(page, denials) {
                CopyProgress::More => {}
                CopyProgress::Complete(head) => return Some(head),
                CopyProgress::Invalid => return None,
            }
        }
    }
}

impl RevocationQuery for Remote {
    async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let LogAnswer { head, denied, .. } = self.query("query", LogQuestion::Tags(tags)).await?;
        Some((head, denied))
    }
}
