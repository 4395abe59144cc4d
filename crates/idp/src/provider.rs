//! The provider as one value.
//!
//! Owns: the checked configuration, the keys, the store, the clock and the random source, held together for the
//! endpoints; what has to be drawn at random; and key rotation as an operation on a running provider.
//! Does not own: how requests arrive ([`crate::router`]), what they mean, what is done from time to time ([`crate::maintenance`]).

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use auth::{
    time::Timestamp,
    token::{
        jws::SigningAlgorithm,
        opaque::{self, OpaqueKind as TokenKind, RANDOM},
        security_event::EventKind,
    },
};
use axum::{body::Bytes, http::HeaderValue};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use store::{Store, families::SessionsAt, security_events::OccurrenceKey};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use crate::client::Registry;
use crate::clock_rng::{Clock, Entropy, EntropyFailed};
use crate::config::{Checked, Lifetimes};
use crate::discovery;
use crate::issuer::Issuer;
use crate::keys::{JWKS_MAX_AGE, KeyError, Keys, Place};
use crate::login::{Logins, LoginsFault};
use crate::logout::Outages;
use crate::oauth::error::OAuthFault;
use crate::pages::Pages;
use crate::secrets::Secrets;
use crate::signals::{Receivers, ToldSample};
use crate::verified_cache::VerifiedCache;

/// Random bytes of a name.
const ID: usize = 16;

/// Why a provider does not start.
#[derive(Debug, thiserror::Error)]
pub enum ProviderFault {
    /// The signing keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Whatever looks at passwords.
    #[error(transparent)]
    Passwords(#[from] LoginsFault),
    /// A discovery document could not be written.
    #[error("the discovery documents cannot be written")]
    Documents,
}

/// A request to somebody else under way: the status of the answer, or what went wrong.
pub type Answered = Pin<Box<dyn Future<Output = Result<u16, String>> + Send>>;

/// How the provider reaches clients.
pub trait Outbound: Send + Sync {
    /// Posts it, and gives up after some seconds. Redirects are not followed.
    fn post(&self, post: Post) -> Answered;
}

/// Something that is sent to somebody. `Debug` prints nothing but where to.
pub struct Post {
    /// Where to.
    pub url: String,
    /// What it is.
    pub content_type: &'static str,
    /// Who sends it, as the field of that name says.
    pub authorization: Option<Zeroizing<String>>,
    /// The content.
    pub body: String,
}

impl Post {
    /// A form.
    pub fn form(url: &str, body: String) -> Self {
        let content_type = "application/x-www-form-urlencoded";
        Self { url: url.to_owned(), content_type, authorization: None, body }
    }
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("url", &self.url).finish_non_exhaustive()
    }
}

/// What a provider works with.
pub struct Parts {
    /// Where facts are kept.
    pub store: Store,
    /// What its nodes share.
    pub secrets: Secrets,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The way to clients.
    pub outbound: Arc<dyn Outbound>,
}

/// An OpenID provider: one issuer, its keys, its clients and its people.
pub struct Provider {
    issuer: Issuer,
    lifetimes: Lifetimes,
    clients: Registry,
    keys: Keys,
    logins: Logins,
    pages: Pages,
    receivers: Receivers,
    logouts: Outages,
    parts: Parts,
    believed: VerifiedCache,
    hurry: Notify,
    openid_document: Bytes,
    oauth_document: Bytes,
    document_cache: HeaderValue,
    challenge: HeaderValue,
}

impl Provider {
    /// A provider from a checked configuration (see [`crate::Config::check`]). Makes signing keys where the store has none,
    /// and starts the threads that hash passwords.
    pub async fn start(checked: Checked, parts: Parts) -> Result<Arc<Self>, ProviderFault> {
        let Checked { issuer, lifetimes, passwords, pages, clients, algorithms, receivers } = checked;
        let place = Place { store: &parts.store, secrets: &parts.secrets, entropy: &*parts.entropy };
        let keys = Keys::open(place, &algorithms, parts.clock.now()).await?;
        receivers.register(&parts.store, parts.clock.now()).await.map_err(KeyError::from)?;
        let logins = Logins::start(&passwords, &parts.entropy)?;
        let documents = || ProviderFault::Documents;
        let facts =
            discovery::Facts { issuer: &issuer, algorithms: &algorithms, pages: &pages, clients: &clients };
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
            logouts: Outages::default(),
            parts,
            believed: VerifiedCache::default(),
            hurry: Notify::new(),
        }))
    }

    /// Whether clients can be told of logouts.
    pub(crate) fn logouts(&self) -> &Outages {
        &self.logouts
    }

    /// What came of telling others what happened.
    pub fn told_others(&self) -> Vec<ToldSample> {
        self.receivers.samples()
    }

    /// Whether anybody else is told what happens here.
    pub(crate) fn tells_others(&self) -> bool {
        !self.receivers.is_empty()
    }

    pub(crate) fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    /// What happened, for those who are told, if anybody is.
    pub(crate) fn occurrence(
        &self,
        kind: EventKind,
        fill: impl FnOnce(&mut OccurrenceKey),
    ) -> Option<OccurrenceKey> {
        self.tells_others().then(|| {
            let mut what = OccurrenceKey::new(kind);
            fill(&mut what);
            what
        })
    }

    /// The issuer.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// How long things live.
    pub fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    /// The clients.
    pub fn clients(&self) -> &Registry {
        &self.clients
    }

    /// Something was revoked, maybe at another node, and maybe a key: they are read again at once, and not when their time comes.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Waits until somebody [says so](Provider::hurry).
    pub(crate) async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// The keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Passwords and what guards them.
    pub fn logins(&self) -> &Logins {
        &self.logins
    }

    /// The pages.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Where facts are kept.
    pub fn store(&self) -> &Store {
        &self.parts.store
    }

    /// What the nodes share.
    pub fn secrets(&self) -> &Secrets {
        &self.parts.secrets
    }

    /// The provider's time.
    pub fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Which sessions go on now.
    pub(crate) fn sessions_at(&self) -> SessionsAt {
        SessionsAt { now: self.now(), idle: self.lifetimes.session_idle }
    }

    /// The provider's randomness.
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.parts.entropy
    }

    /// Access tokens whose signature was found good a moment ago.
    pub(crate) fn believed(&self) -> &VerifiedCache {
        &self.believed
    }

    /// The way to clients.
    pub(crate) fn outbound(&self) -> &dyn Outbound {
        &*self.parts.outbound
    }

    /// What a change of the keys needs.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { store: &self.parts.store, secrets: &self.parts.secrets, entropy: &*self.parts.entropy }
    }

    /// The next key of an algorithm takes over, see [`Keys::rotate`].
    pub async fn rotate_keys(&self, algorithm: SigningAlgorithm) -> Result<(), KeyError> {
        self.keys.rotate(self.place(), algorithm, self.now()).await
    }

    /// A key that leaked goes at once, see [`Keys::revoke`].
    pub async fn revoke_key(&self, kid: &str) -> Result<(), KeyError> {
        self.keys.revoke(self.place(), kid, self.now()).await
    }

    /// A name that nothing else has: 128 random bits in base64url (RFC 7519 §4.1.7).
    pub fn draw_id(&self) -> Result<String, EntropyFailed> {
        let mut bytes = [0; ID];
        self.entropy().fill(&mut bytes)?;
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Whether [`Self::draw_id`] may have drawn it.
    pub fn is_id(text: &str) -> bool {
        URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == ID)
    }

    /// A secret of a kind that nobody can guess.
    pub(crate) fn draw_token(&self, kind: TokenKind) -> Result<Zeroizing<String>, EntropyFailed> {
        let mut random = Zeroizing::new([0; RANDOM]);
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

    /// `Cache-Control` of everything public.
    pub(crate) fn document_cache(&self) -> &HeaderValue {
        &self.document_cache
    }

    /// `WWW-Authenticate` of every 401 of clients (RFC 7617 §2).
    pub(crate) fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// An issuer is visible ASCII without quotes (it was checked), so this holds.
fn header(text: &str) -> Result<HeaderValue, ProviderFault> {
    HeaderValue::from_str(text).map_err(|_| ProviderFault::Documents)
}
