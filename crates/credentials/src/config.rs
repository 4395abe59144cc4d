//! What credentials are checked by, checked.
//!
//! Owns: the types of issuers, authorities, transmitters of events, bounds of the cache, the assertion. Does not own: text, files, defaults
//! of keys, messages about faults: those are the `config` crate's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use auth::authority::AuthorityConfig;
use auth::mapping::CertificateMapping;
use auth::token::IssuerConfig;
use http_engine::config::ServerConfig;
use http_engine::url::Url;
use zeroize::Zeroizing;

/// Who may vouch for callers.
pub struct Authentication {
    /// JWT issuers.
    pub issuers: Vec<IssuerSource>,
    /// Authorities that are asked about tokens which nobody can verify here.
    pub authorities: Vec<TokenAuthority>,
    /// Client certificates as a credential.
    pub certificates: Option<CertificateMapping>,
    /// Bounds of the decision cache.
    pub cache: CacheLimits,
    /// `realm` of the RFC 6750 challenge.
    pub realm: Box<str>,
    /// Digest over all that shapes a cached fact (issuers, mappings): part of every cache key, so that a
    /// fact mapped under an older configuration is never found under a newer one.
    pub version: u64,
}

/// A JWT issuer and where its keys come from.
#[derive(Debug, Clone)]
pub struct IssuerSource {
    /// Claim checks and mapping.
    pub config: Arc<IssuerConfig>,
    /// Where its keys come from.
    pub keys: KeySource,
    /// How often to fetch keys without being asked. Default 5 min.
    pub refresh: Duration,
    /// How long the last good key set may be used while fetching fails. Default 1 h.
    pub max_stale: Duration,
    /// CA choice for fetching; `None`: system roots. Ignored for `http://` and files.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// Somebody who is asked what a token is worth.
#[derive(Debug, Clone)]
pub struct TokenAuthority {
    /// What is expected of its answers.
    pub config: Arc<AuthorityConfig>,
    /// How it is asked.
    pub question: AuthorityQuestion,
    /// About which tokens.
    pub selection: TokenSelection,
    /// Whose signature introspections must bear (RFC 9701); its audience is whom they must be for. `None`: they are plain JSON.
    pub signed: Option<IssuerSource>,
    /// How it is reached.
    pub server: ServerConfig,
    /// How long an answer is believed; the cache's own bound holds as well. Default 10 s.
    pub ttl: Duration,
    /// The API server where deletions are watched, without a slash at the end, so that answers about what is deleted are
    /// dropped at once. `None`: nothing is watched.
    pub watch: Option<Box<str>>,
}

/// How an authority is asked about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityQuestion {
    /// RFC 7662, at this URL.
    Introspection {
        /// Of the endpoint.
        url: Url,
    },
    /// Kubernetes `TokenReview`, below the API server's URL.
    TokenReview {
        /// Of the review endpoint.
        url: Url,
    },
    /// `OpenShift` `users/~`, with the token itself as the credential.
    OpenShiftUser {
        /// Of the user.
        url: Url,
    },
}

/// Which tokens an authority is asked about. Each token is asked of one authority at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenSelection {
    /// Those that begin so. Of several prefixes that fit, the longest counts.
    pub prefixes: Vec<Box<str>>,
    /// JWTs whose `iss` is one of these, which no configured issuer has.
    pub issuers: Vec<Box<str>>,
}

impl TokenSelection {
    /// Whether every token is meant that is nobody else's and no JWT.
    pub fn is_rest(&self) -> bool {
        self.prefixes.is_empty() && self.issuers.is_empty()
    }
}

/// Where an issuer's keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// `{issuer}/.well-known/openid-configuration`, then RFC 8414's path, names the `jwks_uri`.
    Discovery,
    /// The JWKS document itself.
    Uri(Box<str>),
    /// A JWKS file, read again when it changes.
    File(PathBuf),
}

/// Bounds of the decision cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLimits {
    /// Bytes of cached facts over all workers. Default 64 MiB.
    pub bytes: usize,
    /// Longest time a fact is used without verifying again (jittered down by up to 10 %). Default 60 s.
    pub ttl: Duration,
    /// How long a denial is remembered. Default 2 s.
    pub deny_ttl: Duration,
    /// Denials remembered at once. Default 4096.
    pub deny_entries: usize,
}

/// The signed statement of the caller for the upstream (JWT, ES256).
pub struct AssertionConfig {
    /// Request field that carries it. Default `X-Postern-Assertion`.
    pub header: Box<str>,
    /// `iss`.
    pub issuer: Box<str>,
    /// `aud`; `None`: the upstream's name.
    pub audience: Option<Box<str>>,
    /// Lifetime, at most 5 min. Default 60 s.
    pub lifetime: Duration,
    /// Signs; its public half is served as a JWKS.
    pub signer: Arc<auth::token::jws::Signer>,
    /// Path on every listener that answers the JWKS. Default `/.well-known/postern/jwks.json`.
    pub jwks_path: Box<str>,
}

/// A transmitter of security events.
#[derive(Clone)]
pub struct Transmitter {
    /// Whose tokens they come in, with its keys and the audiences that we are to it.
    pub issuer: IssuerSource,
    /// Whose tokens and sessions it speaks of, by `iss`.
    pub tokens_of: Vec<Box<str>>,
    /// For how long these tokens are believed at most.
    pub longest: Duration,
    /// How long what it told is remembered.
    pub kept: Duration,
    /// How its tokens come.
    pub way: EventDelivery,
}

impl Transmitter {
    /// Whether its tokens are pushed there.
    pub fn is_pushed_to(&self, authority: &str, path: &str) -> bool {
        matches!(&self.way, EventDelivery::Pushed { authority: at, path: below, .. }
            if **at == *authority && **below == *path)
    }
}

/// How tokens of a transmitter come.
#[derive(Clone)]
pub enum EventDelivery {
    /// It sends them (RFC 8935).
    Pushed {
        /// Where: host and port as requests are known by.
        authority: Box<str>,
        /// And the path.
        path: Box<str>,
        /// What it shows: one of these.
        tokens: Vec<Zeroizing<String>>,
    },
    /// They are fetched (RFC 8936).
    Fetched {
        /// Where.
        url: Url,
        /// How that is reached, and as whom.
        server: ServerConfig,
        /// The pause after an answer that came at once and had nothing.
        interval: Duration,
        /// Tokens of one answer, at most.
        max_events: u32,
    },
}
