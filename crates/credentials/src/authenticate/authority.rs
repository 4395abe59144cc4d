//! Token authorities: ask an introspection endpoint or Kubernetes about a token that cannot be
//! verified locally.
//!
//! Owns: which authority is asked about which token, the request in each protocol, the meaning of
//! its status, the counters. Does not own: parsing an answer (`auth::authority`), connections
//! ([`http_engine::http_client`]), the cache.
//!
//! Each token goes to one authority at most. A token of one party must not be shown to another, and
//! asking several in turn would be slow. A JWT of a configured issuer goes to no authority, unless
//! a prefix selects one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use auth::authority::signed_introspection::{self, QueryTimes};
use auth::authority::{
    AnswerUnclear, AuthorityConfig, AuthorityVerdict, introspection, openshift_user, token_review,
};
use auth::token::opaque;
use auth::token_error::TokenError;
use bytes::Bytes;
use coherence::revocation_tags;
use coherence::revocation_tags::RevocationTags;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode};
use http_engine::clock::Now;
use http_engine::config::ClientCredential;
use http_engine::http_client::{CallError, HttpClient, HttpResponse, form_encoded};
use outage::{Outage, RECOVERY_PERIOD};
use parking_lot::Mutex;
use telemetry::metrics::{Collect, Encoder, FamilyKind};
use tokio::time::Instant;

use super::key_store::KeyRenewal;
use super::{AuthenticatorRuntime, IssuerKeys, MAX_RENEWALS};
use crate::config::{AuthorityQuestion, TokenSelection};
use crate::revocation::{FollowedIssuer, RevocableToken, TokenEvidence};
use crate::watch::{Resource, Watches};

/// A token authority with its HTTP client, watches and counters.
pub(super) struct AuthorityClient {
    pub(super) config: Arc<AuthorityConfig>,
    pub(super) ttl: Duration,
    question: AuthorityQuestion,
    selection: TokenSelection,
    /// The signer of its introspection answers, if they must be signed.
    signed: Option<IssuerKeys>,
    server: http_engine::config::ServerConfig,
    client: Arc<HttpClient>,
    /// The issuer of its tokens, if its revocation log is followed.
    pub(super) followed_issuer: Option<Arc<FollowedIssuer>>,
    watch: Option<Box<str>>,
    watches: Arc<Watches>,
    counts: Arc<AuthorityCounts>,
}

/// An authority's answer about a token, with the tags that can revoke it.
pub(super) struct AuthorityAnswer {
    pub(super) verdict: AuthorityVerdict,
    /// Revocation tags from the answer, if the authority is a provider of Postern.
    pub(super) revocation_tags: Option<RevocationTags>,
    /// Revocation by security events, if its issuer is followed by those.
    pub(super) revocable: Option<RevocableToken>,
}

/// Counters of the requests to an authority, by result.
#[derive(Debug)]
struct AuthorityCounts {
    good: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    busy: AtomicU64,
    throttled: AtomicU64,
    nanos: AtomicU64,
    outage: Outage,
    last_error: Mutex<Option<Arc<str>>>,
}

/// Counters of a token authority, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityStatus {
    /// The configured name.
    pub name: Box<str>,
    /// Answers that confirmed a token.
    pub good: u64,
    /// Answers that rejected a token.
    pub refused: u64,
    /// Requests without a usable answer.
    pub failed: u64,
    /// Requests not sent because of the limit of concurrent requests.
    pub busy: u64,
    /// Requests not sent because of the limit of requests per second.
    pub throttled: u64,
    /// Total time spent waiting for answers.
    pub waited: Duration,
    /// Error of the last request; `None` when it was answered.
    pub last_error: Option<Arc<str>>,
}

impl Collect for AuthorityStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        let help = "Requests to a token authority, by result.";
        let mut family = e.family("postern_token_authority_requests", FamilyKind::Counter, help);
        for authority in all {
            for (result, count) in [
                ("good", authority.good),
                ("refused", authority.refused),
                ("failed", authority.failed),
                ("busy", authority.busy),
                ("throttled", authority.throttled),
            ] {
                family.sample(&[("authority", &*authority.name), ("result", result)], count);
            }
        }
        let help = "Total time spent waiting for a token authority's answers.";
        let mut family = e.family("postern_token_authority_wait_seconds", FamilyKind::Counter, help);
        for authority in all {
            family.sample(&[("authority", &*authority.name)], authority.waited.as_secs_f64());
        }
    }
}

/// Why an authority gave no usable answer about a token.
#[derive(Debug, thiserror::Error)]
enum AuthorityError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Unclear(#[from] AnswerUnclear),
    #[error("the token authority answered {status}{hint}")]
    Status { status: StatusCode, hint: &'static str },
    #[error("the token has characters that a request to the authority cannot carry")]
    Token,
    #[error(
        "the answer is {0:?} instead of the required signed type {media}; configure the authority to sign answers to the gateway's client, or remove `signed`",
        media = signed_introspection::MEDIA_TYPE
    )]
    Unsigned(String),
    #[error("no keys to verify its signed answers; check the key source and the log")]
    NoKeys,
    #[error(
        "its issuer does not answer, so the revocation state of the token is unknown; check that the issuer is reachable"
    )]
    Issuer,
}

impl AuthorityError {
    /// Whether the error does not concern the authority: it is about this token, or about a
    /// dependency with its own outage log.
    fn concerns_other_dependency(&self) -> bool {
        matches!(self, Self::Token | Self::NoKeys | Self::Issuer)
    }
}

impl AuthorityCounts {
    fn of(config: &crate::config::TokenAuthority) -> Self {
        let kind = match config.question {
            AuthorityQuestion::Introspection { .. } => "token introspection",
            AuthorityQuestion::TokenReview { .. } => "token review",
            AuthorityQuestion::OpenShiftUser { .. } => "user lookup",
        };
        let outage = Outage::new(format!("{kind} of {}", config.config.name));
        Self {
            good: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            outage: outage
                .with_effect("answering 503 to requests with its tokens")
                .with_recovery_period(RECOVERY_PERIOD),
            last_error: Mutex::default(),
        }
    }
}

impl AuthorityClient {
    /// Keeps the connections, watches and counters of the previous authority of that name, if its
    /// settings are equal.
    pub(super) fn new(
        config: &crate::config::TokenAuthority,
        surroundings: &AuthenticatorRuntime,
        before: Option<&Self>,
    ) -> Self {
        let keys =
            |signer| IssuerKeys::new(signer, surroundings, before.and_then(|before| before.signed.as_ref()));
        let signed = config.signed.as_ref().map(keys);
        let (control, secret) = (&surroundings.control, &surroundings.secret);
        let before = before.filter(|before| before.has_same_settings(config));
        let outbound = before.map_or_else(
            || Arc::new(HttpClient::new(&config.server, control.clone())),
            |before| before.client.clone(),
        );
        let watches = before.map_or_else(
            || {
                let watcher = format!("authority:{}", config.config.name);
                let (resources, base) = (watched_resources(&config.question), config.watch.as_deref());
                Arc::new(Watches::new(&watcher, resources, base, &outbound, secret, control))
            },
            |before| before.watches.clone(),
        );
        Self {
            config: config.config.clone(),
            ttl: config.ttl,
            question: config.question.clone(),
            selection: config.selection.clone(),
            signed,
            server: config.server.clone(),
            client: outbound,
            followed_issuer: config
                .config
                .issuer
                .as_deref()
                .and_then(|issuer| surroundings.follows.of(issuer)),
            watch: config.watch.clone(),
            watches,
            counts: before
                .map_or_else(|| Arc::new(AuthorityCounts::of(config)), |before| before.counts.clone()),
        }
    }

    fn has_same_settings(&self, other: &crate::config::TokenAuthority) -> bool {
        let (a, b) = (&self.server, &other.server);
        self.config.name == other.config.name
            && self.question == other.question
            && a.has_same_path(b)
            && a.credential == b.credential
            && a.timeout == b.timeout
            && (a.max_requests, a.max_per_second) == (b.max_requests, b.max_per_second)
            && self.watch == other.watch
    }

    /// The watches that report deleted accounts and tokens.
    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// The signer of its answers, if they must be signed.
    pub(super) fn signer(&self) -> Option<&IssuerKeys> {
        self.signed.as_ref()
    }

    pub(super) fn status(&self) -> AuthorityStatus {
        let counts = &self.counts;
        AuthorityStatus {
            name: self.config.name.clone(),
            good: counts.good.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            failed: counts.failed.load(Relaxed),
            busy: counts.busy.load(Relaxed),
            throttled: counts.throttled.load(Relaxed),
            waited: Duration::from_nanos(counts.nanos.load(Relaxed)),
            last_error: counts.last_error.lock().clone(),
        }
    }

    /// Asks about a token. `sent_at` is the current time, and `now` reads the clock. `None`: there
    /// is no usable answer, which has been logged.
    pub(super) async fn query(
        &self,
        token: &[u8],
        sent_at: Now,
        now: &impl Fn() -> Now,
    ) -> Option<AuthorityAnswer> {
        let began = Instant::now();
        let verdict = match &self.followed_issuer {
            None => self.try_query(token, sent_at, now).await,
            // Without an answer from the issuer, no answer of the authority would authorize a
            // request.
            Some(followed) => tokio::select! {
                biased;
                () = followed.query_desk.wait_silent() => Err(AuthorityError::Issuer),
                verdict = self.try_query(token, sent_at, now) => verdict,
            },
        };
        let counts = &self.counts;
        counts.nanos.fetch_add(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        match &verdict {
            Ok(AuthorityAnswer { verdict: Ok(_), .. }) => &counts.good,
            Ok(AuthorityAnswer { verdict: Err(_), .. }) => &counts.refused,
            Err(AuthorityError::Call(CallError::Busy(_))) => &counts.busy,
            Err(AuthorityError::Call(CallError::Throttled(_))) => &counts.throttled,
            Err(_) => &counts.failed,
        }
        .fetch_add(1, Relaxed);
        *counts.last_error.lock() = verdict.as_ref().err().map(|why| why.to_string().into());
        match &verdict {
            Ok(_) => counts.outage.succeeded(),
            Err(why) if why.concerns_other_dependency() => {
                tracing::debug!(authority = &*self.config.name, %why, "token could not be checked");
            }
            Err(why) => counts.outage.failed(why),
        }
        verdict.ok()
    }

    async fn try_query(
        &self,
        token: &[u8],
        sent_at: Now,
        now: &impl Fn() -> Now,
    ) -> Result<AuthorityAnswer, AuthorityError> {
        let token = std::str::from_utf8(token).map_err(|_| AuthorityError::Token)?;
        let answer = self.client.ask(self.question(token)?).await?;
        let verdict = self.read(&answer, sent_at, now).await?;
        let field =
            answer.headers.get(revocation_tags::REVOCATION_FIELD).and_then(|field| field.to_str().ok());
        let statement = field.and_then(RevocationTags::parse);
        let followed = self
            .followed_issuer
            .as_ref()
            .filter(|followed| followed.max_token_age.is_some() && verdict.is_ok());
        let revocable = followed
            .filter(|_| matches!(self.question, AuthorityQuestion::Introspection { .. }))
            .map(|followed| {
                introspection::lineage(&answer.body, |lineage| {
                    followed.revocable(lineage, TokenEvidence::FromQuery, sent_at.wall)
                })
                .ok_or(AuthorityError::Unclear(AnswerUnclear::NotAnObject))
            });
        Ok(AuthorityAnswer { verdict, revocation_tags: statement, revocable: revocable.transpose()? })
    }

    async fn read(
        &self,
        answer: &HttpResponse,
        sent_at: Now,
        now: &impl Fn() -> Now,
    ) -> Result<AuthorityVerdict, AuthorityError> {
        match &self.question {
            AuthorityQuestion::Introspection { .. } => match answer.status {
                StatusCode::OK => match &self.signed {
                    None => Ok(introspection::read(answer.body.to_vec(), &self.config, sent_at.wall)?),
                    Some(signer) => self.read_signed(signer, answer, sent_at, now).await,
                },
                status => Err(self.status_error(status)),
            },
            AuthorityQuestion::TokenReview { .. } => match answer.status {
                StatusCode::CREATED | StatusCode::OK => {
                    Ok(token_review::read(answer.body.to_vec(), &self.config)?)
                }
                status => Err(self.status_error(status)),
            },
            AuthorityQuestion::OpenShiftUser { .. } => self.user(answer),
        }
    }

    /// Reads a signed answer; fetches newer keys if the current ones do not fit.
    async fn read_signed(
        &self,
        signer: &IssuerKeys,
        answer: &HttpResponse,
        sent_at: Now,
        now: &impl Fn() -> Now,
    ) -> Result<AuthorityVerdict, AuthorityError> {
        let kind = answer.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let kind = String::from_utf8_lossy(kind.split(|byte| *byte == b';').next().unwrap_or_default());
        if !kind.trim().eq_ignore_ascii_case(signed_introspection::MEDIA_TYPE) {
            return Err(AuthorityError::Unsigned(kind.trim().chars().take(100).collect()));
        }
        let mut unfit = AuthorityError::NoKeys;
        for _ in 0..=MAX_RENEWALS {
            let mut seen = 0;
            if let Some(held) = signer.keys.current(now()) {
                let at = QueryTimes { sent_at: sent_at.wall, read_at: now().wall };
                match signed_introspection::read(&answer.body, &signer.config, &held.set, &self.config, at) {
                    Err(AnswerUnclear::Keys(error)) => {
                        seen = held.attempt;
                        unfit = AnswerUnclear::Keys(error).into();
                    }
                    read => return Ok(read?),
                }
            }
            if !matches!(signer.keys.renew(seen, now()).await, KeyRenewal::Newer) {
                break;
            }
        }
        Err(unfit)
    }

    /// Interprets the answer of `users/~`. The token itself is the credential here, so a 401 is
    /// about the token. A token without the scope `user:info` gets 403, and proves no name.
    fn user(&self, answer: &HttpResponse) -> Result<AuthorityVerdict, AuthorityError> {
        match answer.status {
            StatusCode::OK => Ok(openshift_user::read(answer.body.to_vec(), &self.config)?),
            StatusCode::UNAUTHORIZED => Ok(Err(TokenError::Inactive)),
            StatusCode::FORBIDDEN => Ok(Err(TokenError::NotAnAccessToken("scope"))),
            status => Err(self.status_error(status)),
        }
    }

    fn status_error(&self, status: StatusCode) -> AuthorityError {
        let ours = matches!(self.client.credential(), ClientCredential::None);
        let hint = match status {
            StatusCode::UNAUTHORIZED if ours => ": it requires client authentication; configure a credential",
            StatusCode::UNAUTHORIZED => ": the gateway's own credential was rejected",
            StatusCode::FORBIDDEN => ": the gateway's account lacks the permission",
            StatusCode::NOT_FOUND => ": not found; check the URL",
            status if status.is_redirection() => ": redirects are not followed; configure the final URL",
            _ => "",
        };
        AuthorityError::Status { status, hint }
    }

    fn question(&self, token: &str) -> Result<Request<Bytes>, AuthorityError> {
        let (request, body) = match &self.question {
            AuthorityQuestion::Introspection { url } => {
                let form = format!("token={}&token_type_hint=access_token", &*form_encoded(token));
                let mut request = Request::post(url.to_string());
                if self.signed.is_some() {
                    request = request.header(ACCEPT, signed_introspection::MEDIA_TYPE);
                }
                (request.header(CONTENT_TYPE, "application/x-www-form-urlencoded"), form)
            }
            AuthorityQuestion::TokenReview { url } => {
                // A bearer token contains only characters that JSON does not escape.
                let audiences = self.config.audiences.iter().flatten();
                let audiences: Vec<String> = audiences.map(|audience| json_text(audience)).collect();
                let audiences = match audiences.as_slice() {
                    [] => String::new(),
                    some => format!(",\"audiences\":[{}]", some.join(",")),
                };
                let review = format!(
                    "{{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\",\"spec\":{{\"token\":{}{audiences}}}}}",
                    json_text(token)
                );
                (Request::post(url.to_string()).header(CONTENT_TYPE, "application/json"), review)
            }
            AuthorityQuestion::OpenShiftUser { url } => {
                let mut bearer =
                    HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| AuthorityError::Token)?;
                bearer.set_sensitive(true);
                (Request::get(url.to_string()).header(AUTHORIZATION, bearer), String::new())
            }
        };
        request.body(body.into()).map_err(|_| AuthorityError::Token)
    }
}

/// Resources to watch at an authority: their deletion invalidates tokens.
fn watched_resources(question: &AuthorityQuestion) -> &'static [Resource] {
    match question {
        AuthorityQuestion::Introspection { .. } => &[],
        AuthorityQuestion::TokenReview { .. } => &[Resource::ServiceAccounts, Resource::OAuthAccessTokens],
        AuthorityQuestion::OpenShiftUser { .. } => &[Resource::OAuthAccessTokens],
    }
}

/// A JSON string (RFC 8259 section 7).
pub(super) fn json_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                use std::fmt::Write as _;
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Index of the authority for tokens with a prefix of this one; of several, the longest prefix
/// counts.
///
/// # Errors
/// When the token is known to be invalid without asking: it has our own provider's prefix, but is
/// not a well-formed access token.
pub(super) fn select_by_prefix(
    authorities: &[AuthorityClient],
    token: &[u8],
) -> Result<Option<usize>, TokenError> {
    let fits = |prefix: &&str| token.starts_with(prefix.as_bytes());
    let length = |authority: &AuthorityClient| {
        authority.selection.prefixes.iter().map(|prefix| &**prefix).filter(fits).map(str::len).max()
    };
    let longest = authorities.iter().enumerate().filter_map(|(at, a)| Some((length(a)?, at))).max();
    let kind = || std::str::from_utf8(token).ok().and_then(opaque::parse_kind);
    if token.starts_with(b"ptn_") && kind() != Some(opaque::OpaqueKind::Access) {
        return Err(TokenError::Inactive);
    }
    Ok(longest.map(|(_, at)| at))
}

/// Index of the authority for all tokens that no other rule selects.
pub(super) fn select_default(authorities: &[AuthorityClient]) -> Option<usize> {
    authorities.iter().position(|authority| authority.selection.is_rest())
}

/// Index of the authority for JWTs of this issuer.
pub(super) fn select_by_issuer(authorities: &[AuthorityClient], issuer: &str) -> Option<usize> {
    authorities.iter().position(|authority| authority.selection.issuers.iter().any(|own| **own == *issuer))
}
