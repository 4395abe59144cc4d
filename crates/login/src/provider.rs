//! Login provider, as its client sees it (relying party).
//!
//! Owns: its endpoints, found from its metadata; exchanging a code and a refresh token; validating
//! its statements about a user; revoking its tokens and ending its session. Does not own: sessions,
//! browsers.
//!
//! A logout token must have the algorithm of the client's ID tokens (OpenID Connect Back-Channel
//! Logout 1.0 section 2.6). Only ID tokens show which one that is: until this process has seen one,
//! any configured algorithm is accepted.
//!
//! Metadata is fetched when it is first needed, and again after an hour. While that fails, the last
//! valid metadata stays in use. If the provider is unreachable at start, the next login retries.

use std::sync::Arc;
use std::time::Duration;

use auth::algorithm::{Algorithm, AlgorithmSet};
use auth::json::{Document, Number, Value};
use auth::time::Timestamp;
use auth::token::id_token::{self, ExpectedIdToken};
use auth::token::jwt;
use auth::token_error::TokenError;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use credentials::authenticate::{KeyRenewal, KeyStore, SourceError, key_url, metadata_urls};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode};
use http_engine::clock::{Clock, Now};
use http_engine::config::ClientCredential;
use http_engine::http_client::{CallError, HttpAnswer, HttpClient, form_encoded};
use http_engine::url::Url;
use outage::{CALM, Outage};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::session::BrowserSession;
use crate::config::{LoginKind, LoginProvider};
use crate::login_state::{AuthorizationRequest, LoginProofs};

/// Tolerated difference between a provider's clock and ours.
pub(crate) const CLOCK_SKEW: Duration = Duration::from_secs(30);
/// Metadata older than this is fetched again.
const METADATA_AGE: Duration = Duration::from_hours(1);
/// Pause after a failed fetch of metadata.
const METADATA_PAUSE: Duration = Duration::from_secs(1);
/// Claims about a token, not about its user.
const OF_THE_TOKEN: [&str; 16] = [
    "iss",
    "aud",
    "exp",
    "iat",
    "nbf",
    "jti",
    "nonce",
    "at_hash",
    "c_hash",
    "s_hash",
    "auth_time",
    "acr",
    "amr",
    "typ",
    "session_state",
    "read_at",
];
/// Why a session ends when its provider refreshes it with an ID token of another subject.
const ANOTHER: &str = "it speaks of somebody else than before";
/// Path of the user of a token on `OpenShift`.
const USER: &str = "/apis/user.openshift.io/v1/users/~";
/// Path at which an account with the permission deletes any token.
const ALL_TOKENS: &str = "/apis/oauth.openshift.io/v1/oauthaccesstokens/";
/// Path at which a token's user deletes it.
const OWN_TOKENS: &str = "/apis/oauth.openshift.io/v1/useroauthaccesstokens/";

/// Why a provider gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderFault {
    /// The provider gives no answer.
    #[error("{what}: {fault}")]
    Call {
        /// The requested endpoint.
        what: &'static str,
        /// The error of the request.
        fault: CallError,
    },
    /// The answer cannot be interpreted.
    #[error("{what}: {why}")]
    Unclear {
        /// The requested endpoint.
        what: &'static str,
        /// What is wrong with the answer.
        why: String,
    },
    /// The metadata cannot be used.
    #[error("metadata: {0}")]
    Metadata(SourceError),
    /// The keys of its ID tokens are missing.
    #[error("the keys that its ID tokens are signed with cannot be had; see the log")]
    Keys,
    /// The provider refused: an error of RFC 6749 section 5.2.
    #[error("it refused: {0}")]
    Refused(String),
    /// Its ID token is invalid.
    #[error("its ID token is not good: {0}")]
    Token(TokenError),
    /// Its logout token has another algorithm than its ID tokens that were seen here.
    #[error("its logout token is signed with {}, and no ID token of it that was seen here is", .0.as_str())]
    Unseen(Algorithm),
    /// Its answer is about another user, or names no user.
    #[error("{0}")]
    Person(String),
}

impl ProviderFault {
    /// Whether the grant is certainly invalid, and not only impossible to check now.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Refused(error) => error == "invalid_grant",
            // These errors may be due to old keys or a wrong clock.
            Self::Token(
                TokenError::UnknownKey
                | TokenError::KeyMismatch
                | TokenError::Expired
                | TokenError::NotYetValid
                | TokenError::InFuture(_),
            )
            | Self::Call { .. }
            | Self::Unclear { .. }
            | Self::Metadata(_)
            | Self::Keys => false,
            Self::Token(_) | Self::Unseen(_) | Self::Person(_) => true,
        }
    }

    /// Whether the provider is unavailable or misconfigured, so that no single login is at fault.
    /// Its keys have an outage log of their own.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Call { .. } | Self::Unclear { .. } | Self::Metadata(_) | Self::Keys => true,
            Self::Refused(_) => !self.is_of_its_holder(),
            Self::Token(_) | Self::Unseen(_) | Self::Person(_) => false,
        }
    }

    /// Whether the provider refuses this user, and not us as a client, and did not report its own
    /// failure (RFC 6749 §4.1.2.1, §5.2).
    pub(crate) fn is_of_its_holder(&self) -> bool {
        const NOT: [&str; 6] = [
            "server_error",
            "temporarily_unavailable",
            "invalid_client",
            "unauthorized_client",
            "unsupported_grant_type",
            "unsupported_response_type",
        ];
        matches!(self, Self::Refused(error) if !NOT.contains(&error.as_str()))
    }
}

/// The metadata that a provider publishes (OpenID Connect Discovery 1.0 §3, RFC 8414 §2).
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) issuer: String,
    pub(crate) authorization: Url,
    pub(crate) token: Url,
    pub(crate) userinfo: Option<Url>,
    pub(crate) end_session: Option<Url>,
    pub(crate) revocation: Option<Url>,
    /// Whether it sends `iss` in every authorization response (RFC 9207 §3).
    pub(crate) names_itself: bool,
    /// Whether its ID tokens contain the log time `read_at` on request, as those of Postern's own
    /// provider do.
    pub(crate) tells_read_at: bool,
}

/// The provider's answer about a user.
pub(crate) struct ProviderTokens {
    pub(crate) subject: String,
    pub(crate) sid: Option<String>,
    /// The claims, as a JSON object.
    pub(crate) claims: String,
    /// The answer of the userinfo endpoint, if it was called: another JSON object.
    pub(crate) more: Option<String>,
    /// Whether the provider confirmed the user now. Otherwise it issued tokens and then failed to
    /// identify their user.
    pub(crate) confirmed: bool,
    /// Whether the answer contains claims about the user, and not only confirms the grant.
    pub(crate) speaks: bool,
    /// Lifetime of the access token, if the provider sent it.
    pub(crate) lasts: Option<Duration>,
    pub(crate) access_token: Zeroizing<String>,
    pub(crate) refresh_token: Option<Zeroizing<String>>,
    pub(crate) id_token: Option<Zeroizing<String>>,
}

/// A provider with its HTTP client, keys and metadata.
pub(crate) struct LoginProviderClient {
    pub(crate) config: LoginProvider,
    /// Distinguishes it from another provider that had its name before.
    pub(crate) binding: String,
    /// Limit of concurrent code exchanges. It reserves the remaining requests for sessions, whose
    /// clients are authenticated.
    logins: Semaphore,
    outbound: HttpClient,
    keys: Option<Arc<KeyStore>>,
    clock: Arc<dyn Clock>,
    metadata: tokio::sync::Mutex<RefreshTokenInUse>,
    /// Algorithms that its ID tokens for us were signed with.
    signs_with: Mutex<AlgorithmSet>,
    outage: Arc<Outage>,
}

/// The kind of a token that a provider signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An OpenID Connect ID token.
    Id,
    /// A back-channel logout token.
    Logout,
}

#[derive(Clone, Default)]
struct RefreshTokenInUse {
    good: Option<(Arc<Metadata>, Instant)>,
    failed: Option<Instant>,
}

/// The response of a token endpoint.
struct Tokens {
    access_token: Zeroizing<String>,
    lasts: Option<Duration>,
    refresh_token: Option<Zeroizing<String>>,
    id_token: Option<Zeroizing<String>>,
}

fn outage_of(name: &str) -> Arc<Outage> {
    let outage = Outage::of(format!("login provider {name}")).with_calm(CALM);
    Arc::new(outage.with_effect("nobody can log in; sessions go on for as long as they were confirmed"))
}

impl LoginProviderClient {
    pub(crate) fn new(
        config: &LoginProvider,
        keys: Option<Arc<KeyStore>>,
        clock: Arc<dyn Clock>,
        control: Handle,
        earlier: Option<&Self>,
    ) -> Self {
        let outbound = HttpClient::new(&config.server, control);
        let binding = binding(config);
        let outage = earlier.map_or_else(|| outage_of(&config.name), |e| e.outage.clone());
        // Metadata that was valid before a reload stays the last valid one.
        let earlier = earlier.filter(|e| e.binding == binding);
        let held = earlier.and_then(|e| e.metadata.try_lock().ok().map(|held| held.clone()));
        let signs_with = earlier.map_or(AlgorithmSet::EMPTY, |e| *e.signs_with.lock());
        Self {
            config: config.clone(),
            binding,
            logins: Semaphore::new((config.server.max_requests / 2).max(1)),
            outbound,
            keys,
            clock,
            metadata: tokio::sync::Mutex::new(held.unwrap_or_default()),
            signs_with: Mutex::new(signs_with),
            outage,
        }
    }

    /// Records the result of a request in the outage log.
    fn noted<T>(&self, outcome: Result<T, ProviderFault>) -> Result<T, ProviderFault> {
        match &outcome {
            Err(ProviderFault::Keys) => {}
            Err(fault) if fault.is_outage() => self.outage.failed(fault),
            Ok(_) | Err(_) => self.outage.succeeded(),
        }
        outcome
    }

    /// Records the algorithm of an ID token; refuses a logout token with another algorithm than
    /// those.
    fn agree(&self, kind: TokenKind, algorithm: Algorithm) -> Result<(), ProviderFault> {
        let mut seen = self.signs_with.lock();
        match kind {
            TokenKind::Id => *seen = seen.with(algorithm),
            TokenKind::Logout if seen.is_empty() || seen.contains(algorithm) => {}
            TokenKind::Logout => return Err(ProviderFault::Unseen(algorithm)),
        }
        Ok(())
    }

    /// Maximum duration of a renewal: metadata, tokens, keys and userinfo, one after the other.
    pub(crate) fn longest(&self) -> Duration {
        (self.config.server.timeout * 5).max(Duration::from_secs(30))
    }

    /// The metadata; fetched if it is missing or old.
    pub(crate) async fn metadata(&self) -> Result<Arc<Metadata>, ProviderFault> {
        // Held during the fetch: concurrent callers wait for the same result.
        let mut held = self.metadata.lock().await;
        let rested = held.failed.is_none_or(|at| at.elapsed() >= METADATA_PAUSE);
        match &held.good {
            Some((metadata, at)) if at.elapsed() < METADATA_AGE || !rested => return Ok(metadata.clone()),
            None if !rested => {
                let why = "it could not be fetched a moment ago".to_owned();
                return Err(ProviderFault::Unclear { what: "metadata", why });
            }
            _ => {}
        }
        match self.noted(self.fetch_metadata().await) {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                *held = RefreshTokenInUse { good: Some((metadata.clone(), Instant::now())), failed: None };
                Ok(metadata)
            }
            Err(fault) => {
                held.failed = Some(Instant::now());
                match &held.good {
                    Some((metadata, _)) => {
                        tracing::debug!(provider = &*self.config.name, %fault, "the last metadata stays in use");
                        Ok(metadata.clone())
                    }
                    None => Err(fault),
                }
            }
        }
    }

    async fn fetch_metadata(&self) -> Result<Metadata, ProviderFault> {
        const WHAT: &str = "metadata";
        let (urls, issuer): (Vec<Url>, Option<&str>) = match &self.config.kind {
            LoginKind::OpenId { issuer, .. } => {
                (metadata_urls(issuer).map_err(ProviderFault::Metadata)?.into(), Some(issuer))
            }
            LoginKind::OpenShift { api } => {
                (vec![below(api, "/.well-known/oauth-authorization-server")?], None)
            }
        };
        let mut answer = None;
        for url in &urls {
            let found = self.get(WHAT, url, None).await?;
            let absent = found.status.is_client_error();
            answer = Some(found);
            // Only a client error such as 404 leads to the next address.
            if !absent {
                break;
            }
        }
        let answer = answer.ok_or_else(|| unclear(WHAT, "there is no address for it"))?;
        if answer.status != StatusCode::OK {
            return Err(unclear(WHAT, &format!("it answered {}", answer.status)));
        }
        let document = parse(WHAT, &answer)?;
        let root = document.root();
        let text = |member| root.get(member).and_then(Value::as_str);
        let found = text("issuer").ok_or_else(|| unclear(WHAT, "it has no text `issuer`"))?;
        if issuer.is_some_and(|issuer| issuer != found) {
            let why = format!(
                "it is that of the issuer {found:?}; configure the issuer exactly as it calls itself"
            );
            return Err(unclear(WHAT, &why));
        }
        let base = match &self.config.kind {
            LoginKind::OpenId { issuer, .. } => issuer.to_string(),
            LoginKind::OpenShift { api } => api.to_string(),
        };
        let url = |member: &'static str| {
            text(member).map(|url| key_url(member, url, &base).map_err(ProviderFault::Metadata)).transpose()
        };
        let needed = |member: &'static str| {
            url(member)?.ok_or_else(|| unclear(WHAT, &format!("it has no text `{member}`")))
        };
        Ok(Metadata {
            issuer: found.to_owned(),
            authorization: needed("authorization_endpoint")?,
            token: needed("token_endpoint")?,
            userinfo: url("userinfo_endpoint")?,
            end_session: url("end_session_endpoint")?,
            revocation: url("revocation_endpoint")?,
            names_itself: root.get("authorization_response_iss_parameter_supported").and_then(Value::as_bool)
                == Some(true),
            tells_read_at: root.get("claims_parameter_supported").and_then(Value::as_bool) == Some(true)
                && root
                    .get("claims_supported")
                    .and_then(Value::items)
                    .is_some_and(|mut names| names.any(|name| name.as_str() == Some("read_at"))),
        })
    }

    /// The address for the browser to log in (RFC 6749 §4.1.1, with PKCE and a nonce).
    pub(crate) async fn authorization_url(
        &self,
        question: &AuthorizationRequest,
        redirect_uri: &str,
    ) -> Result<String, ProviderFault> {
        let metadata = self.metadata().await?;
        let challenge = question.proofs.challenge();
        let mut parameters = vec![
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", redirect_uri),
            ("scope", &self.config.scopes),
            ("state", &question.state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        if matches!(self.config.kind, LoginKind::OpenId { .. }) {
            parameters.push(("nonce", &question.proofs.nonce));
        }
        let configured = || self.config.parameters.iter().map(|(name, value)| (&**name, &**value));
        let claims = if metadata.tells_read_at {
            with_read_at(configured().find(|(name, _)| *name == "claims").map(|(_, value)| value))
        } else {
            None
        };
        parameters.extend(configured().filter(|(name, _)| *name != "claims" || claims.is_none()));
        parameters.extend(claims.as_deref().map(|claims| ("claims", claims)));
        Ok(with_query(&metadata.authorization, &parameters))
    }

    /// Exchanges a code, and returns the user with the tokens.
    pub(crate) async fn exchange(
        &self,
        code: &str,
        redirect_uri: &str,
        proofs: &LoginProofs,
    ) -> Result<ProviderTokens, ProviderFault> {
        self.noted(self.try_exchange(code, redirect_uri, proofs).await)
    }

    async fn try_exchange(
        &self,
        code: &str,
        redirect_uri: &str,
        proofs: &LoginProofs,
    ) -> Result<ProviderTokens, ProviderFault> {
        let Ok(_place) = self.logins.try_acquire() else {
            return Err(unclear("token endpoint", "as many people log in already as may at once"));
        };
        let metadata = self.metadata().await?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", &proofs.verifier),
        ];
        let tokens = self.tokens(&metadata, &form).await?;
        self.told(&metadata, tokens, Some(&proofs.nonce), None).await
    }

    /// Asks the provider whether a session still holds, and for the user's current claims.
    pub(crate) async fn renew(
        &self,
        session: &BrowserSession,
        now: Timestamp,
    ) -> Result<ProviderTokens, ProviderFault> {
        match self.try_renew(session, now).await {
            // The provider issued tokens, and then failed to identify their user: this was recorded
            // already.
            Ok(told) if !told.confirmed => Ok(told),
            outcome => self.noted(outcome),
        }
    }

    async fn try_renew(
        &self,
        session: &BrowserSession,
        now: Timestamp,
    ) -> Result<ProviderTokens, ProviderFault> {
        let metadata = self.metadata().await?;
        if let Some(refresh_token) = &session.refresh_token {
            let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token.as_str())];
            let mut tokens = self.tokens(&metadata, &form).await?;
            // A provider that does not rotate the refresh token keeps the current one valid
            // (RFC 6749 §6).
            tokens.refresh_token = tokens.refresh_token.or_else(|| Some(refresh_token.clone()));
            let unconfirmed = ProviderTokens {
                subject: session.subject.clone(),
                sid: session.sid.clone(),
                claims: session.claims.clone(),
                more: session.more.clone(),
                confirmed: false,
                speaks: false,
                lasts: tokens.lasts,
                access_token: tokens.access_token.clone(),
                refresh_token: tokens.refresh_token.clone(),
                id_token: session.id_token.clone(),
            };
            return match self.noted(self.told(&metadata, tokens, None, Some(session)).await) {
                // The grant is valid, and the old refresh token is used up: the new tokens must not
                // be lost.
                Err(fault) if !fault.is_final() => Ok(unconfirmed),
                Err(fault) => {
                    let given =
                        BrowserSession { refresh_token: unconfirmed.refresh_token, ..session.clone() };
                    // Tokens that fail validation must be revoked too.
                    let _ = self.revoke(&given).await;
                    Err(fault)
                }
                told => told,
            };
        }
        let ended = || ProviderFault::Refused("invalid_grant".to_owned());
        let access_token = session.access_token.clone().ok_or_else(ended)?;
        let left = Timestamp::from_millis(session.expires).since(now);
        if left.is_zero() || (metadata.userinfo.is_none() && !self.is_openshift()) {
            return Err(ended());
        }
        let tokens = Tokens { access_token, lasts: Some(left), refresh_token: None, id_token: None };
        self.told(&metadata, tokens, None, Some(session)).await
    }

    pub(crate) fn is_openshift(&self) -> bool {
        matches!(self.config.kind, LoginKind::OpenShift { .. })
    }

    /// What tokens prove about a user; `before` is the session that they extend.
    async fn told(
        &self,
        metadata: &Metadata,
        tokens: Tokens,
        nonce: Option<&str>,
        before: Option<&BrowserSession>,
    ) -> Result<ProviderTokens, ProviderFault> {
        let mut told = match &self.config.kind {
            LoginKind::OpenShift { api } => self.user(api, tokens).await?,
            LoginKind::OpenId { userinfo, .. } => {
                self.person(metadata, *userinfo, tokens, nonce, before).await?
            }
        };
        if before.is_some_and(|before| before.subject != told.subject) {
            return Err(ProviderFault::Person(ANOTHER.to_owned()));
        }
        told.sid = told.sid.or_else(|| before.and_then(|before| before.sid.clone()));
        super::session::identity(&self.config, &told.claims, told.more.as_deref())
            .map_err(ProviderFault::Person)?;
        Ok(told)
    }

    async fn person(
        &self,
        metadata: &Metadata,
        userinfo: bool,
        tokens: Tokens,
        nonce: Option<&str>,
        before: Option<&BrowserSession>,
    ) -> Result<ProviderTokens, ProviderFault> {
        let (mut claims, subject, sid) = match (&tokens.id_token, before) {
            (Some(id_token), _) => {
                let told = self.verified(id_token, nonce).await?;
                // Compared before any further request, because the user of the tokens is known
                // already (OpenID Connect Core 1.0 §12.2). Issuer and client were compared with
                // those of the session.
                if before.is_some_and(|before| before.subject != told.1) {
                    return Err(ProviderFault::Person(ANOTHER.to_owned()));
                }
                told
            }
            // A refresh need not return an ID token (OpenID Connect Core 1.0 §12.2).
            (None, Some(before)) => {
                let claims = serde_json::from_str(&before.claims).unwrap_or_default();
                (claims, before.subject.clone(), before.sid.clone())
            }
            (None, None) => {
                return Err(unclear(
                    "token endpoint",
                    "the answer has no ID token; is `openid` among the scopes?",
                ));
            }
        };
        let asked = metadata.userinfo.as_ref().filter(|_| userinfo || tokens.id_token.is_none());
        let more = match asked {
            Some(url) => {
                let more = self.userinfo(url, &tokens.access_token).await?;
                if more.get("sub").and_then(serde_json::Value::as_str) != Some(&subject) {
                    let why = "its userinfo speaks of somebody else than its ID token";
                    return Err(ProviderFault::Person(why.to_owned()));
                }
                Some(serde_json::Value::Object(more).to_string())
            }
            None => None,
        };
        for name in OF_THE_TOKEN {
            claims.remove(name);
        }
        claims.remove("sid");
        let claims = serde_json::Value::Object(claims).to_string();
        let Tokens { access_token, lasts, refresh_token, id_token } = tokens;
        let speaks = id_token.is_some() || more.is_some();
        let id_token = id_token.or_else(|| before.and_then(|before| before.id_token.clone()));
        let confirmed = true;
        Ok(ProviderTokens {
            subject,
            sid,
            claims,
            more,
            confirmed,
            speaks,
            lasts,
            access_token,
            refresh_token,
            id_token,
        })
    }

    /// The claims of a valid ID token.
    async fn verified(
        &self,
        token: &str,
        nonce: Option<&str>,
    ) -> Result<(serde_json::Map<String, serde_json::Value>, String, Option<String>), ProviderFault> {
        let (subject, sid) = self
            .with_signed(TokenKind::Id, token, |signed, expected, now| {
                let token = id_token::id_token(signed, expected, nonce, now)?;
                Ok((token.subject.to_owned(), token.sid.map(str::to_owned)))
            })
            .await?;
        // The token was parsed strictly above; this parses the same text as a map.
        let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let claims = payload.and_then(|payload| serde_json::from_slice(&payload).ok());
        Ok((claims.unwrap_or_default(), subject, sid))
    }

    /// Verifies this provider's signature of a token and passes it to `judge`; fetches newer keys
    /// if they may have changed.
    pub(crate) async fn with_signed<T>(
        &self,
        kind: TokenKind,
        token: &str,
        judge: impl Fn(jwt::Signed<'_>, &ExpectedIdToken<'_>, Timestamp) -> Result<T, TokenError>,
    ) -> Result<T, ProviderFault> {
        let (LoginKind::OpenId { issuer, algorithms, .. }, Some(keys)) = (&self.config.kind, &self.keys)
        else {
            return Err(unclear("ID token", "this provider has none"));
        };
        let expected = ExpectedIdToken { issuer, client_id: &self.config.client_id, clock_skew: CLOCK_SKEW };
        let unverified = jwt::parse(token.as_bytes()).map_err(ProviderFault::Token)?;
        let mut seen = 0;
        loop {
            let now: Now = self.clock.now();
            let error = match keys.current(now) {
                Some(held) => {
                    let signed = unverified.signed(*algorithms, &held.set);
                    match signed.and_then(|signed| judge(signed, &expected, now.wall)) {
                        Ok(told) => {
                            self.agree(kind, unverified.algorithm())?;
                            return Ok(told);
                        }
                        Err(error) if held.attempt > seen && unverified.may_pass_newer_keys(&error) => {
                            seen = held.attempt;
                            Some(error)
                        }
                        Err(error) => return Err(ProviderFault::Token(error)),
                    }
                }
                None => None,
            };
            match keys.renew(seen, now).await {
                KeyRenewal::Newer => {}
                KeyRenewal::Fresh => return Err(error.map_or(ProviderFault::Keys, ProviderFault::Token)),
                KeyRenewal::Failed { .. } => return Err(ProviderFault::Keys),
            }
        }
    }

    async fn userinfo(
        &self,
        url: &Url,
        token: &str,
    ) -> Result<serde_json::Map<String, serde_json::Value>, ProviderFault> {
        const WHAT: &str = "userinfo endpoint";
        let answer = self.get(WHAT, url, Some(token)).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(ProviderFault::Refused("invalid_grant".to_owned())),
            status => return Err(unclear(WHAT, &format!("it answered {status}"))),
        }
        // Parsed twice: once strictly, to reject what another parser might read differently, once
        // as a map.
        if !parse(WHAT, &answer)?.root().is_object() {
            return Err(unclear(WHAT, "the answer is no object"));
        }
        serde_json::from_slice(&answer.body).map_err(|_| unclear(WHAT, "the answer is no object"))
    }

    /// The user of an `OpenShift` token.
    async fn user(&self, api: &Url, tokens: Tokens) -> Result<ProviderTokens, ProviderFault> {
        const WHAT: &str = "user endpoint";
        let answer = self.get(WHAT, &below(api, USER)?, Some(&tokens.access_token)).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(ProviderFault::Refused("invalid_grant".to_owned())),
            StatusCode::FORBIDDEN => {
                let why = "its token may not say who its holder is; add `user:info` to the scopes".to_owned();
                return Err(ProviderFault::Person(why));
            }
            status => return Err(unclear(WHAT, &format!("it answered {status}"))),
        }
        let document = parse(WHAT, &answer)?;
        let name = document.root().get("metadata").and_then(|metadata| metadata.get("name"));
        let subject = name.and_then(Value::as_str).ok_or_else(|| unclear(WHAT, "the answer names nobody"))?;
        let claims = String::from_utf8(answer.body.to_vec()).map_err(|_| unclear(WHAT, "it is not UTF-8"))?;
        let claims = lean_user(&claims);
        let Tokens { access_token, lasts, refresh_token, .. } = tokens;
        Ok(ProviderTokens {
            subject: subject.to_owned(),
            sid: None,
            claims,
            more: None,
            confirmed: true,
            speaks: true,
            lasts,
            access_token,
            refresh_token,
            id_token: None,
        })
    }

    /// Sends a request to the token endpoint.
    async fn tokens(&self, metadata: &Metadata, form: &[(&str, &str)]) -> Result<Tokens, ProviderFault> {
        const WHAT: &str = "token endpoint";
        let answer = self.post(WHAT, &metadata.token, form).await?;
        let document = parse(WHAT, &answer)?;
        let root = document.root();
        let text = |member| root.get(member).and_then(Value::as_str);
        if answer.status != StatusCode::OK {
            let refused = answer.status.is_client_error().then(|| text("error")).flatten();
            return Err(match refused {
                Some(error) => ProviderFault::Refused(shown(error)),
                None => unclear(WHAT, &format!("it answered {}", answer.status)),
            });
        }
        if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(unclear(WHAT, "the answer's `token_type` is not `Bearer`"));
        }
        let secret = |member| text(member).filter(|text| !text.is_empty()).map(|text| text.to_owned().into());
        let lasts = match root.get("expires_in").and_then(Value::as_number) {
            Some(Number::Unsigned(seconds)) => Some(Duration::from_secs(seconds)),
            _ => None,
        };
        Ok(Tokens {
            access_token: secret("access_token")
                .ok_or_else(|| unclear(WHAT, "the answer has no `access_token`"))?,
            lasts,
            refresh_token: secret("refresh_token"),
            id_token: secret("id_token"),
        })
    }

    /// Revokes the tokens of a session at the provider (RFC 7009). Succeeds when the provider
    /// confirmed it, or there was nothing to revoke.
    pub(crate) async fn revoke(&self, session: &BrowserSession) -> Result<(), ProviderFault> {
        self.noted(self.try_revoke(session).await)
    }

    async fn try_revoke(&self, session: &BrowserSession) -> Result<(), ProviderFault> {
        const WHAT: &str = "revocation endpoint";
        if let LoginKind::OpenShift { api } = &self.config.kind {
            return match &session.access_token {
                Some(token) => self.delete(api, token).await,
                None => Ok(()),
            };
        }
        let metadata = self.metadata().await?;
        let Some(url) = &metadata.revocation else { return Ok(()) };
        let tokens = [(&session.refresh_token, "refresh_token"), (&session.access_token, "access_token")];
        for (token, hint) in tokens {
            let Some(token) = token else { continue };
            let answer = self.post(WHAT, url, &[("token", token), ("token_type_hint", hint)]).await?;
            if answer.status != StatusCode::OK {
                return Err(unclear(WHAT, &format!("it answered {}", answer.status)));
            }
        }
        Ok(())
    }

    /// Deletes a token on `OpenShift`. Its user may, with the scope `user:full`. Most login tokens
    /// have less; then our own service account tries, which needs the permission.
    async fn delete(&self, api: &Url, token: &str) -> Result<(), ProviderFault> {
        const WHAT: &str = "token deletion";
        let name = openshift_name(token);
        let own = format!("{OWN_TOKENS}{name}");
        match self.deleted(api, &own, token).await? {
            StatusCode::FORBIDDEN => {}
            status => return gone(WHAT, status),
        }
        let account = self.outbound.own_secret().await.map_err(call(WHAT))?;
        let Some(account) = account.filter(|_| self.config.client_id.starts_with("system:serviceaccount:"))
        else {
            return gone(WHAT, StatusCode::FORBIDDEN);
        };
        gone(WHAT, self.deleted(api, &format!("{ALL_TOKENS}{name}"), &account).await?)
    }

    async fn deleted(&self, api: &Url, path: &str, token: &str) -> Result<StatusCode, ProviderFault> {
        const WHAT: &str = "token deletion";
        let request = Request::delete(below(api, path)?.to_string()).header(AUTHORIZATION, bearer(token)?);
        let request = request.body(Bytes::new()).map_err(|_| unclear(WHAT, "it has no address"))?;
        Ok(self.outbound.ask_as_nobody(request).await.map_err(call(WHAT))?.status)
    }

    /// The address for the browser to log out at the provider too (OpenID Connect RP-Initiated
    /// Logout 1.0 §2); `None`: there is none.
    pub(crate) async fn end_session_url(&self, id_token: Option<&str>, back: &str) -> Option<String> {
        let metadata = self.metadata().await.ok()?;
        let url = metadata.end_session.as_ref().filter(|_| self.config.logs_out)?;
        let mut parameters = vec![("client_id", &*self.config.client_id), ("post_logout_redirect_uri", back)];
        parameters.extend(id_token.map(|token| ("id_token_hint", token)));
        Some(with_query(url, &parameters))
    }

    async fn get(
        &self,
        what: &'static str,
        url: &Url,
        token: Option<&str>,
    ) -> Result<HttpAnswer, ProviderFault> {
        let mut request = Request::get(url.to_string());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, bearer(token)?);
        }
        let request = request.body(Bytes::new()).map_err(|_| unclear(what, "it has no address"))?;
        self.outbound.ask_as_nobody(request).await.map_err(call(what))
    }

    async fn post(
        &self,
        what: &'static str,
        url: &Url,
        form: &[(&str, &str)],
    ) -> Result<HttpAnswer, ProviderFault> {
        let mut body = encoded(form);
        if *self.outbound.credential() == ClientCredential::None {
            // A client without a secret identifies itself in the form (RFC 6749 §3.2.1).
            body.push_str("&client_id=");
            body.push_str(&form_encoded(&self.config.client_id));
        }
        let request = Request::post(url.to_string())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Bytes::from(body.into_bytes()))
            .map_err(|_| unclear(what, "it has no address"))?;
        self.outbound.ask(request).await.map_err(call(what))
    }
}

/// Interprets the status of a token deletion.
fn gone(what: &'static str, status: StatusCode) -> Result<(), ProviderFault> {
    match status {
        // 401 and 404: the token was deleted before.
        StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND => Ok(()),
        status if status.is_success() => Ok(()),
        StatusCode::FORBIDDEN => {
            let why = "neither the token's scopes nor our account's rights allow it; let the account `delete` \
                       `oauthaccesstokens`";
            Err(unclear(what, why))
        }
        status => Err(unclear(what, &format!("it answered {status}"))),
    }
}

/// Distinguishes providers of one name: a digest of address and client ID.
fn binding(config: &LoginProvider) -> String {
    let place = match &config.kind {
        LoginKind::OpenId { issuer, .. } => issuer.to_string(),
        LoginKind::OpenShift { api } => api.to_string(),
    };
    let text = format!("{place}\n{}", config.client_id);
    URL_SAFE_NO_PAD.encode(&digest::digest(&digest::SHA256, text.as_bytes()).as_ref()[..9])
}

fn call(what: &'static str) -> impl Fn(CallError) -> ProviderFault {
    move |fault| ProviderFault::Call { what, fault }
}

fn unclear(what: &'static str, why: &str) -> ProviderFault {
    ProviderFault::Unclear { what, why: why.to_owned() }
}

fn parse(what: &'static str, answer: &HttpAnswer) -> Result<Document, ProviderFault> {
    Document::parse(answer.body.to_vec())
        .map_err(|error| unclear(what, &format!("it answered {} with what is {error}", answer.status)))
}

fn bearer(token: &str) -> Result<HeaderValue, ProviderFault> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value =
        value.map_err(|_| unclear("token endpoint", "its access token cannot stand in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A text from another party, sanitized for a log.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| matches!(c, ' '..='~')).take(100).collect()
}

fn encoded(parameters: &[(&str, &str)]) -> String {
    let pairs =
        parameters.iter().map(|(name, value)| format!("{}={}", *form_encoded(name), *form_encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn with_query(url: &Url, parameters: &[(&str, &str)]) -> String {
    let between = if url.target().contains('?') { '&' } else { '?' };
    format!("{url}{between}{}", encoded(parameters))
}

/// The `claims` parameter (Core §5.5.1) that requests `read_at` in ID tokens, in addition to what
/// is `configured`. `None`: the configured value is not a JSON object of that form, and is sent
/// unchanged.
fn with_read_at(configured: Option<&str>) -> Option<String> {
    use serde_json::{Map, Value};
    let mut claims: Map<String, Value> = match configured {
        Some(text) => serde_json::from_str(text).ok()?,
        None => Map::new(),
    };
    let id_token = claims.entry("id_token").or_insert_with(|| Value::Object(Map::new()));
    if id_token.is_null() {
        *id_token = Value::Object(Map::new());
    }
    id_token.as_object_mut()?.entry("read_at").or_insert(Value::Null);
    serde_json::to_string(&claims).ok()
}

fn below(base: &Url, path: &str) -> Result<Url, ProviderFault> {
    let text = format!("{}{path}", base.to_string().trim_end_matches('/'));
    Url::parse(&text).map_err(|fault| unclear("address", &fault.to_string()))
}

/// The name of a token's object on `OpenShift`; the token cannot be derived from it.
fn openshift_name(token: &str) -> String {
    let secret = token.strip_prefix("sha256~").unwrap_or(token);
    format!("sha256~{}", URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, secret.as_bytes())))
}

/// Removes the parts of a user that only the API server needs: it has to fit into a cookie.
fn lean_user(claims: &str) -> String {
    let Ok(user) = serde_json::from_str::<serde_json::Value>(claims) else { return claims.to_owned() };
    let metadata = &user["metadata"];
    serde_json::json!({
        "kind": user["kind"],
        "metadata": { "name": metadata["name"], "uid": metadata["uid"] },
        "fullName": user["fullName"],
        "groups": user["groups"],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_joins_what_the_address_has() {
        let url = Url::parse("https://id.example/auth?tenant=1").unwrap();
        let asked = with_query(&url, &[("state", "a b&c"), ("redirect_uri", "https://app.example/x")]);
        assert_eq!(
            asked,
            "https://id.example/auth?tenant=1&state=a+b%26c&redirect_uri=https%3A%2F%2Fapp.example%2Fx"
        );
    }

    #[test]
    fn the_time_of_the_log_is_asked_for_beside_other_claims() {
        for (configured, asked) in [
            (None, Some(r#"{"id_token":{"read_at":null}}"#)),
            (Some("{}"), Some(r#"{"id_token":{"read_at":null}}"#)),
            (Some(r#"{"id_token":null}"#), Some(r#"{"id_token":{"read_at":null}}"#)),
            (
                Some(r#"{"id_token":{"acr":{"essential":true}},"userinfo":{"name":null}}"#),
                Some(r#"{"id_token":{"acr":{"essential":true},"read_at":null},"userinfo":{"name":null}}"#),
            ),
            (Some(r#"{"id_token":7}"#), None),
            (Some("nonsense"), None),
        ] {
            assert_eq!(with_read_at(configured).as_deref(), asked, "{configured:?}");
        }
    }

    #[test]
    fn what_ends_a_session_is_certain() {
        assert!(ProviderFault::Refused("invalid_grant".into()).is_final());
        assert!(ProviderFault::Token(TokenError::BadSignature).is_final());
        for error in ["invalid_client", "unauthorized_client", "server_error", "temporarily_unavailable"] {
            let fault = ProviderFault::Refused(error.into());
            assert!(!fault.is_final() && !fault.is_of_its_holder(), "{error}");
        }
        assert!(ProviderFault::Refused("access_denied".into()).is_of_its_holder());
        assert!(!ProviderFault::Keys.is_final());
        assert!(ProviderFault::Unseen(Algorithm::Es256).is_final());
        assert!(!unclear("x", "y").is_final());
    }

    #[test]
    fn a_token_s_object_is_named_by_its_digest() {
        // printf secret | sha256sum | xxd -r -p | base64url
        assert_eq!(openshift_name("sha256~secret"), "sha256~K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols");
    }

    #[test]
    fn of_a_user_only_the_user_is_kept() {
        let user = r#"{"kind":"User","metadata":{"name":"ada","uid":"7","managedFields":[1]},"groups":["dev"],"identities":["x"]}"#;
        let lean: serde_json::Value = serde_json::from_str(&lean_user(user)).unwrap();
        assert_eq!(lean["metadata"]["name"], "ada");
        assert_eq!(lean["groups"][0], "dev");
        assert!(lean.get("identities").is_none() && lean["metadata"].get("managedFields").is_none());
    }
}
