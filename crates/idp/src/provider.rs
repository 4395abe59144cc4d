//! The running provider: shared state of all endpoints.
//!
//! Owns: the checked configuration, the keys, the store, the clock and the random source; drawing
//! of random values; key rotation on a running provider.
//!
//! Does not own: routing of requests ([`crate::router`]), the endpoints, periodic work
//! ([`crate::maintenance`]).

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use auth::{
    time::Timestamp,
    token::{
        jws::SigningAlgorithm,
        opaque::{self, OpaqueKind as TokenKind, RANDOM_LEN},
        security_event::EventKind,
    },
};
use axum::{body::Bytes, http::HeaderValue};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use store::{Store, StoreError, families::SessionActivity, security_events::Occurrence};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use crate::audit_receivers::{AuditReceivers, AuditSample};
use crate::client::Registry;
use crate::clock_rng::{Clock, Entropy, EntropyFailed};
use crate::config::{Checked, Lifetimes};
use crate::discovery;
use crate::failure_log::{AuditEvents, FailureLog};
use crate::issuer::Issuer;
use crate::keys::{JWKS_MAX_AGE, KeyAccess, KeyError, Keys};
use crate::login::{Logins, LoginsFault};
use crate::logout_outages::Outages;
use crate::mailer::{MailSample, Mailer};
use crate::oauth::error::OAuthFault;
use crate::pages::Pages;
use crate::receivers::{DeliverySample, Receivers};
use crate::secrets::Secrets;
use crate::subject;
use crate::verified_cache::VerifiedCache;

/// Random bytes of an identifier.
const ID_BYTES: usize = 16;

/// Reason why a provider does not start.
#[derive(Debug, thiserror::Error)]
pub enum ProviderFault {
    /// The signing keys could not be read or created.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The password threads or their cache did not start.
    #[error(transparent)]
    Passwords(#[from] LoginsFault),
    /// A discovery document could not be serialized.
    #[error("serializing the discovery documents failed")]
    Documents,
}

/// A pending outgoing request: the status of the response, or the text of the error.
pub type PendingResponse = Pin<Box<dyn Future<Output = Result<u16, String>> + Send>>;

/// Client for outgoing requests of the provider.
pub trait OutboundClient: Send + Sync {
    /// Sends a POST request; fails after some seconds. Redirects are not followed.
    fn post(&self, post: PostRequest) -> PendingResponse;
}

/// An outgoing POST request. `Debug` prints only the URL.
pub struct PostRequest {
    /// URL of the request.
    pub url: String,
    /// Value of the `Content-Type` field.
    pub content_type: &'static str,
    /// Value of the `Authorization` field, if any.
    pub authorization: Option<Zeroizing<String>>,
    /// Body of the request.
    pub body: String,
}

impl PostRequest {
    /// A request with a form-encoded body.
    pub fn form(url: &str, body: String) -> Self {
        let content_type = "application/x-www-form-urlencoded";
        Self { url: url.to_owned(), content_type, authorization: None, body }
    }
}

impl fmt::Debug for PostRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Dependencies of a provider.
pub struct Parts {
    /// The durable state.
    pub store: Store,
    /// The secret that all nodes share, with its derived keys.
    pub secrets: Secrets,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Source of random bytes.
    pub entropy: Arc<dyn Entropy>,
    /// Client for outgoing requests.
    pub outbound: Arc<dyn OutboundClient>,
}

/// An OpenID provider: one issuer with its keys, clients and users.
pub struct Provider {
    issuer: Issuer,
    lifetimes: Lifetimes,
    clients: Registry,
    keys: Keys,
    logins: Logins,
    pages: Pages,
    receivers: Receivers,
    audit: AuditEvents,
    audit_keep: Option<Duration>,
    audit_receivers: AuditReceivers,
    mailer: Option<Mailer>,
    failures: Arc<FailureLog>,
    logout_outages: Outages,
    parts: Parts,
    verified_cache: VerifiedCache,
    key_refresh: Notify,
    openid_document: Bytes,
    oauth_document: Bytes,
    document_cache: HeaderValue,
    challenge: HeaderValue,
}

impl Provider {
    /// Starts a provider from a checked configuration (see [`crate::Config::check`]). Creates
    /// signing keys if the store has none, and starts the threads that hash passwords.
    ///
    /// # Errors
    /// [`ProviderFault`] when keys, password threads or discovery documents fail.
    pub async fn start(checked: Checked, parts: Parts) -> Result<Arc<Self>, ProviderFault> {
        let Checked {
            issuer,
            lifetimes,
            passwords,
            pages,
            clients,
            algorithms,
            receivers,
            audit,
            audit_keep,
            audit_receivers,
            mail,
        } = checked;
        let place = KeyAccess { store: &parts.store, secrets: &parts.secrets, entropy: &*parts.entropy };
        let keys = Keys::open(place, &algorithms, parts.clock.now()).await?;
        receivers.register(&parts.store, parts.clock.now()).await.map_err(KeyError::from)?;
        audit_receivers.register(&parts.store, parts.clock.now()).await.map_err(KeyError::from)?;
        let failures = Arc::new(FailureLog::new(audit));
        let logins = Logins::start(&passwords, &parts.entropy, failures.clone())?;
        let documents = || ProviderFault::Documents;
        let facts = discovery::MetadataInput {
            issuer: &issuer,
            algorithms: &algorithms,
            pages: &pages,
            clients: &clients,
        };
        Ok(Arc::new(Self {
            openid_document: facts.openid_document().map_err(|_| documents())?.into(),
            oauth_document: facts.oauth_document().map_err(|_| documents())?.into(),
            document_cache: header(&format!("public, max-age={}", JWKS_MAX_AGE.as_secs()))?,
            challenge: header(&format!("Basic realm=\"{}\", charset=\"UTF-8\"", issuer.as_str()))?,
            issuer,
            lifetimes,
            clients,
            keys,
            logins,
            pages,
            receivers,
            audit,
            audit_keep,
            audit_receivers,
            mailer: mail.map(Mailer::new),
            failures,
            logout_outages: Outages::default(),
            parts,
            verified_cache: VerifiedCache::default(),
            key_refresh: Notify::new(),
        }))
    }

    /// Outages of clients that receive back-channel logout.
    pub(crate) fn logout_outages(&self) -> &Outages {
        &self.logout_outages
    }

    /// Outcomes of event deliveries, for metrics.
    pub fn delivery_samples(&self) -> Vec<DeliverySample> {
        self.receivers.samples()
    }

    /// Which groups of entries are written to the audit log.
    pub(crate) fn audit_events(&self) -> AuditEvents {
        self.audit
    }

    /// How long entries of the audit log are kept; `None`: for ever.
    pub(crate) fn audit_keep(&self) -> Option<Duration> {
        self.audit_keep
    }

    pub(crate) fn audit_receivers(&self) -> &AuditReceivers {
        &self.audit_receivers
    }

    /// State of the receivers of the audit log, for metrics.
    pub fn audit_samples(&self) -> Vec<AuditSample> {
        self.audit_receivers.samples()
    }

    /// The mail server, if there is one.
    pub(crate) fn mailer(&self) -> Option<&Mailer> {
        self.mailer.as_ref()
    }

    /// Outcomes of mails, for metrics. Empty: there is no mail server.
    pub fn mail_samples(&self) -> Vec<MailSample> {
        self.mailer.as_ref().map(Mailer::samples).unwrap_or_default()
    }

    /// Failures that are not in the audit log yet.
    pub(crate) fn failures(&self) -> &FailureLog {
        &self.failures
    }

    /// Writes failed sign-ins and refused grants to the audit log. With `all` also those that would
    /// still be counted; call it so before a provider ends.
    ///
    /// # Errors
    /// [`StoreError`] when the write fails. They are written by a later call then.
    pub async fn write_failures(&self, all: bool) -> Result<(), StoreError> {
        let entries = self.failures.take(self.now(), all);
        if entries.is_empty() {
            return Ok(());
        }
        let written = self.store().write(entries.clone()).await;
        if written.is_err() {
            self.failures.restore(entries);
        }
        written.map(drop)
    }

    /// Whether any receiver of security events is configured.
    pub(crate) fn has_receivers(&self) -> bool {
        !self.receivers.is_empty()
    }

    pub(crate) fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    /// Occurrence of a security event. `None` if no receiver is configured.
    pub(crate) fn occurrence(
        &self,
        kind: EventKind,
        fill: impl FnOnce(&mut Occurrence),
    ) -> Option<Occurrence> {
        self.has_receivers().then(|| {
            let mut occurrence = Occurrence::new(kind);
            fill(&mut occurrence);
            occurrence
        })
    }

    /// The claim `revocation_tags` of a token whose subject is pairwise.
    pub(crate) fn seal_tags(
        &self,
        user_id: &str,
        client_id: &str,
        sid: Option<&str>,
    ) -> Result<String, EntropyFailed> {
        subject::sealed_tags(&self.parts.secrets, (user_id, client_id, sid), &*self.parts.entropy)
    }

    /// The issuer identifier.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Lifetimes of codes, tokens, sessions and keys.
    pub fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    /// All clients, configured and stored.
    pub fn clients(&self) -> &Registry {
        &self.clients
    }

    /// Triggers an early read of the key ring: a key was revoked, perhaps by another node.
    pub fn request_key_refresh(&self) {
        self.key_refresh.notify_one();
    }

    /// Waits until [`Provider::request_key_refresh`] is called.
    pub(crate) async fn key_refresh_requested(&self) {
        self.key_refresh.notified().await;
    }

    /// The signing keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Verification of passwords.
    pub fn logins(&self) -> &Logins {
        &self.logins
    }

    /// The HTML pages.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The durable state.
    pub fn store(&self) -> &Store {
        &self.parts.store
    }

    /// The keys derived from the shared secret.
    pub fn secrets(&self) -> &Secrets {
        &self.parts.secrets
    }

    /// Digest under which the secret of an account link is stored.
    pub(crate) fn account_link_digest(&self, token: &str) -> store::StoredDigest {
        self.secrets().digest_of(&["account link", token])
    }

    /// Secret of the account link in the mail with this id: the same for each attempt to send it, and
    /// only known with the provider's secret. It has the format of [`Self::draw_id`].
    pub(crate) fn mailed_link_token(&self, mail_id: &str) -> String {
        let digest = self.secrets().digest_of(&["mailed account link", mail_id]);
        URL_SAFE_NO_PAD.encode(&digest.0[..ID_BYTES])
    }

    /// The current time of the provider.
    pub fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Time and idle timeout that decide which sessions are valid now.
    pub(crate) fn sessions_at(&self) -> SessionActivity {
        SessionActivity { now: self.now(), idle: self.lifetimes.session_idle }
    }

    /// The random source.
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.parts.entropy
    }

    /// Cache of access tokens whose signature was verified.
    pub(crate) fn verified_cache(&self) -> &VerifiedCache {
        &self.verified_cache
    }

    /// Client for outgoing requests.
    pub(crate) fn outbound(&self) -> &dyn OutboundClient {
        &*self.parts.outbound
    }

    /// Dependencies of a change to the keys.
    pub(crate) fn key_access(&self) -> KeyAccess<'_> {
        KeyAccess { store: &self.parts.store, secrets: &self.parts.secrets, entropy: &*self.parts.entropy }
    }

    /// Activates the next key of an algorithm, see [`Keys::rotate`].
    ///
    /// # Errors
    /// [`KeyError`] as for [`Keys::rotate`].
    pub async fn rotate_keys(&self, algorithm: SigningAlgorithm) -> Result<(), KeyError> {
        self.keys.rotate(self.key_access(), algorithm, self.now()).await
    }

    /// Removes a leaked key immediately, see [`Keys::revoke`].
    ///
    /// # Errors
    /// [`KeyError`] as for [`Keys::revoke`].
    pub async fn revoke_key(&self, kid: &str) -> Result<(), KeyError> {
        self.keys.revoke(self.key_access(), kid, self.now()).await
    }

    /// Draws a unique identifier: 128 random bits in base64url (RFC 7519 §4.1.7).
    ///
    /// # Errors
    /// [`EntropyFailed`] when the random source fails.
    pub fn draw_id(&self) -> Result<String, EntropyFailed> {
        let mut bytes = [0; ID_BYTES];
        self.entropy().fill(&mut bytes)?;
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Whether a text has the format of [`Self::draw_id`].
    pub fn is_id(text: &str) -> bool {
        URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == ID_BYTES)
    }

    /// Draws an opaque token of this kind.
    pub(crate) fn draw_token(&self, kind: TokenKind) -> Result<Zeroizing<String>, EntropyFailed> {
        let mut random = Zeroizing::new([0; RANDOM_LEN]);
        self.entropy().fill(&mut *random)?;
        Ok(opaque::mint(kind, &random))
    }

    /// Signs claims with the active key of an algorithm.
    pub(crate) fn sign(
        &self,
        algorithm: SigningAlgorithm,
        typ: &str,
        claims: &impl Serialize,
    ) -> Result<String, OAuthFault> {
        self.keys.sign(algorithm, typ, claims).map_err(|_| OAuthFault::SigningFailed)
    }

    /// The key set as published now (RFC 7517 §5).
    pub(crate) fn jwks(&self) -> Bytes {
        self.keys.jwks()
    }

    pub(crate) fn openid_document(&self) -> Bytes {
        self.openid_document.clone()
    }

    pub(crate) fn oauth_document(&self) -> Bytes {
        self.oauth_document.clone()
    }

    /// `Cache-Control` of every public document.
    pub(crate) fn document_cache(&self) -> &HeaderValue {
        &self.document_cache
    }

    /// `WWW-Authenticate` of every 401 response to a client (RFC 7617 §2).
    pub(crate) fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Converts text to a header value. The checked issuer is visible ASCII without quotes, so this
/// succeeds.
fn header(text: &str) -> Result<HeaderValue, ProviderFault> {
    HeaderValue::from_str(text).map_err(|_| ProviderFault::Documents)
}
