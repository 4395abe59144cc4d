//! Access review: asks Kubernetes with a `SubjectAccessReview` whether a caller may do something,
//! and caches the answer.
//!
//! Owns: the meaning of an answer, its time to live, one review for all requests that wait for it.
//! Does not own: which review a request needs (`auth::policy::review`), what follows
//! (`auth::decide`), connections ([`http_engine::http_client`]).
//!
//! Roles and bindings are watched ([`credentials::watch`]). The cache key of a review contains the
//! number of the last event that concerns it, so after an event the key differs. Older answers are
//! not found any more. An answer to a review that was sent before an event and arrives after it
//! reaches only the requests that wait for it.
//!
//! Flow: `auth::decide` looks an answer up ([`auth::decide::ReviewAnswers`]).
//! `Denial::ReviewPending` leads to [`Reviewer::resolve`], and then to the same decision again with
//! the results.
//!
//! A failed review is 503. It is never cached, and never counts as allowed or denied.

mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use auth::decide::ReviewAnswers;
use auth::policy::review::{OwnedReviewQuestion, ReviewAttributes, ReviewQuestion};
use auth::time::Timestamp;
use bytes::Bytes;
use credentials::cache::{
    self, CacheScope, CacheSecret, DecisionCache, FlightResult, Generation, KnownFacts as Remembered,
    Lifetime, Usage, Weigh,
};
use credentials::config::CacheLimits;
use credentials::watch::{self, WatchStatus, Watches};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_engine::clock::Now;
use http_engine::http_client::{CallError, HttpClient};
use outage::{Outage, RECOVERY_PERIOD};
use telemetry::metrics::{Collect, Encoder, FamilyKind};
use tokio::runtime::Handle;

use self::wire::{Review, Unclear};
use crate::config::KubernetesConfig;

/// API path of reviews.
const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Maximum rounds of lookup, waiting and asking for one review.
const ROUNDS: usize = 4;

/// The cached fact of an allowed review.
#[derive(Debug)]
struct ReviewAllowed;

impl Weigh for ReviewAllowed {
    fn weight(&self) -> usize {
        64
    }
}

/// Why a review does not allow the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReviewRefused {
    Refused,
    Unknown,
}

/// Sends reviews to the API server and caches the answers.
pub struct Reviewer {
    config: KubernetesConfig,
    client: Arc<HttpClient>,
    watches: Watches,
    cache: DecisionCache<ReviewAllowed, ReviewRefused>,
    scope: CacheScope,
    counts: ReviewCounts,
    outage: Outage,
}

#[derive(Debug, Default)]
struct ReviewCounts {
    allowed: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    busy: AtomicU64,
    throttled: AtomicU64,
}

/// Counters of reviews, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReviewStatus {
    /// Reviews that were allowed.
    pub allowed: u64,
    /// Reviews that were denied.
    pub refused: u64,
    /// Reviews that failed.
    pub failed: u64,
    /// Reviews not sent because of the limit of concurrent requests.
    pub busy: u64,
    /// Reviews not sent because of the limit of requests per second.
    pub throttled: u64,
    /// Usage of the answer cache.
    pub cache_usage: Usage,
}

impl Collect for ReviewStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        let Some(reviews) = all.first() else { return };
        let help = "SubjectAccessReviews, by result.";
        let mut family = e.family("postern_access_reviews", FamilyKind::Counter, help);
        for (result, count) in [
            ("allowed", reviews.allowed),
            ("refused", reviews.refused),
            ("failed", reviews.failed),
            ("busy", reviews.busy),
            ("throttled", reviews.throttled),
        ] {
            family.sample(&[("result", result)], count);
        }
        let help = "Cached answers of access reviews.";
        let mut family = e.family("postern_access_reviews_cached", FamilyKind::Gauge, help);
        for (answer, count) in [("yes", reviews.cache_usage.facts), ("no", reviews.cache_usage.denials)] {
            family.sample(&[("answer", answer)], count as u64);
        }
    }
}

/// Why a review failed.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the API server answered {status}{hint}")]
    Status { status: StatusCode, hint: &'static str },
    #[error(transparent)]
    Unclear(#[from] Unclear),
    #[error("the access review cannot be serialized")]
    Question,
}

/// Cached answers at an instant, and answers that were obtained for this request.
pub struct ReviewResult<'k> {
    /// The reviewer with the cache.
    pub reviewer: &'k Reviewer,
    /// The current time.
    pub now: Now,
    /// Answers that were obtained for this request.
    pub reviews: &'k [(OwnedReviewQuestion, bool)],
}

impl ReviewAnswers for ReviewResult<'_> {
    fn verdict(&self, question: &ReviewQuestion<'_>) -> Option<bool> {
        let key = self.reviewer.key(question);
        match self.reviewer.cache.peek(key, self.now) {
            Some(Remembered::Fact(_)) => return Some(true),
            Some(Remembered::Denied(ReviewRefused::Refused)) => return Some(false),
            Some(Remembered::Denied(ReviewRefused::Unknown)) | None => {}
        }
        let result = self.reviews.iter().find(|(reviewed, _)| reviewed.borrowed() == *question);
        result.map(|(_, verdict)| *verdict)
    }
}

impl Reviewer {
    /// Creates a reviewer with an empty cache; watches are not started.
    pub fn new(
        config: &KubernetesConfig,
        control: &Handle,
        secret: &CacheSecret,
        generation: Generation,
    ) -> Self {
        let limits = CacheLimits {
            bytes: config.cache_bytes,
            ttl: config.ttl,
            deny_ttl: config.deny_ttl,
            deny_entries: config.deny_entries,
        };
        let outbound = Arc::new(HttpClient::new(&config.server, control.clone()));
        let mut resources = watch::Resource::REVIEWS.to_vec();
        if config.watch_service_accounts {
            resources.push(watch::Resource::ServiceAccounts);
        }
        let base = config.watch.then_some(&*config.url);
        Self {
            watches: Watches::new("kubernetes", &resources, base, &outbound, secret, control),
            client: outbound,
            cache: DecisionCache::new(&limits, generation),
            scope: secret.scope(config.version, 0),
            counts: ReviewCounts::default(),
            outage: Outage::new("access review")
                .with_effect("answering 503 to requests that need one")
                .with_recovery_period(RECOVERY_PERIOD),
            config: config.clone(),
        }
    }

    /// Starts the watches that cached answers depend on, where configured. Has no effect when they
    /// run.
    pub fn watch(&self) {
        self.watches.start();
    }

    /// State of the watches.
    pub fn watches(&self) -> impl Iterator<Item = WatchStatus> {
        self.watches.status()
    }

    /// Whether the reviewer fits this configuration (same server and settings), so that its cache
    /// stays valid.
    pub fn fits(&self, config: &KubernetesConfig) -> bool {
        self.config.version == config.version && self.config.server.has_same_path(&config.server)
    }

    /// Counters and cache usage, for metrics.
    pub fn status(&self) -> ReviewStatus {
        let counts = &self.counts;
        ReviewStatus {
            allowed: counts.allowed.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            failed: counts.failed.load(Relaxed),
            busy: counts.busy.load(Relaxed),
            throttled: counts.throttled.load(Relaxed),
            cache_usage: self.cache.usage(),
        }
    }

    /// Answers for reviews that are not cached, up to the first denial; `None` when one of them
    /// fails.
    pub async fn resolve(
        &self,
        questions: Vec<OwnedReviewQuestion>,
        now: impl Fn() -> Now,
    ) -> Option<Vec<(OwnedReviewQuestion, bool)>> {
        let finding = async {
            let mut verdicts = Vec::with_capacity(questions.len());
            for question in questions {
                let verdict = self.verdict(&question, &now).await?;
                verdicts.push((question, verdict));
                if !verdict {
                    break; // one denial is enough
                }
            }
            Some(verdicts)
        };
        // All reviews of one request together wait no longer than one may.
        let timeout = self.config.server.timeout;
        let result = tokio::time::timeout(timeout, finding).await;
        result.unwrap_or_else(|_| {
            self.outage.failed(CallError::Timeout(timeout));
            None
        })
    }

    async fn verdict(&self, question: &OwnedReviewQuestion, now: &impl Fn() -> Now) -> Option<bool> {
        let key = self.key(&question.borrowed());
        for _ in 0..ROUNDS {
            match self.cache.lookup(key, now()) {
                cache::CacheLookup::Hit(_) => return Some(true),
                cache::CacheLookup::Denied(ReviewRefused::Refused) => return Some(false),
                cache::CacheLookup::Denied(ReviewRefused::Unknown) => return None,
                cache::CacheLookup::Pending(flight) => match flight.wait().await {
                    FlightResult::Known(_) => return Some(true),
                    FlightResult::Denied(ReviewRefused::Refused) => return Some(false),
                    FlightResult::Denied(ReviewRefused::Unknown) => return None,
                    FlightResult::Again => {}
                },
                cache::CacheLookup::Miss(ticket) => {
                    let sent_at = now();
                    let answer = self.review(question).await;
                    if answer.is_ok() {
                        self.outage.succeeded();
                    }
                    match answer {
                        Ok(true) => {
                            // The answer may be as old as the review request.
                            let until = sent_at.monotonic + self.config.ttl;
                            let life = Lifetime { expires: Timestamp::MAX, until: Some(until), basis: None };
                            if ticket.fill(ReviewAllowed, life, now()).is_ok() {
                                return Some(true);
                            }
                        }
                        Ok(false) => {
                            ticket.deny(ReviewRefused::Refused, now());
                            return Some(false);
                        }
                        Err(why) => {
                            ticket.fail(ReviewRefused::Unknown);
                            self.outage.failed(why);
                            return None;
                        }
                    }
                }
            }
        }
        None
    }

    async fn review(&self, question: &OwnedReviewQuestion) -> Result<bool, ReviewError> {
        let answer = self.try_review(question).await;
        match &answer {
            Ok(true) => &self.counts.allowed,
            Ok(false) => &self.counts.refused,
            Err(ReviewError::Call(CallError::Busy(_))) => &self.counts.busy,
            Err(ReviewError::Call(CallError::Throttled(_))) => &self.counts.throttled,
            Err(_) => &self.counts.failed,
        }
        .fetch_add(1, Relaxed);
        answer
    }

    async fn try_review(&self, question: &OwnedReviewQuestion) -> Result<bool, ReviewError> {
        let body = serde_json::to_vec(&Review::of(question)).map_err(|_| ReviewError::Question)?;
        let request = Request::post(format!("{}{PATH}", self.config.url))
            .header(CONTENT_TYPE, "application/json")
            .body(Bytes::from(body))
            .map_err(|_| ReviewError::Question)?;
        let answer = self.client.ask(request).await?;
        match answer.status {
            StatusCode::CREATED | StatusCode::OK => Ok(wire::is_allowed(answer.body.to_vec())?),
            status => Err(ReviewError::Status {
                status,
                hint: match status {
                    StatusCode::UNAUTHORIZED => ": the gateway's own credential was rejected",
                    StatusCode::FORBIDDEN => {
                        ": the gateway's account needs `create` on `subjectaccessreviews`"
                    }
                    StatusCode::NOT_FOUND => ": there is no Kubernetes API at this URL",
                    _ => "",
                },
            }),
        }
    }

    /// Cache key of a review, valid until an event may change its answer.
    fn key(&self, question: &ReviewQuestion<'_>) -> cache::CacheKey {
        thread_local! {
            static SPELT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        SPELT.with_borrow_mut(|out| {
            out.clear();
            wire::write_key(question, out);
            let namespace = match &question.attributes {
                ReviewAttributes::Resource { namespace, .. } => namespace.as_deref(),
                ReviewAttributes::NonResource { .. } => None,
            };
            let last = self.watches.last_event(&question.user, namespace);
            out.extend_from_slice(&last.to_le_bytes());
            self.scope.key(out)
        })
    }
}
