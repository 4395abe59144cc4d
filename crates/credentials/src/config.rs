//! Credentials configuration: checked values for authentication.
//!
//! Owns: the types of issuers, token authorities, event transmitters, cache bounds, the assertion.
//! Does not own: text, files, defaults of keys, error messages: those belong to the `config` crate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use auth::authority::AuthorityConfig;
use auth::mapping::CertificateMapping;
use auth::token::IssuerConfig;
use http_engine::config::ServerConfig;
use http_engine::outbound_proxy::OutboundProxies;
use http_engine::url::Url;
use zeroize::Zeroizing;

use crate::htpasswd::{Htpasswd, UserGroups};

/// The sources of identity that authenticate callers.
#[derive(Clone)]
pub struct Authentication {
    /// The JWT issuers.
    pub issuers: Vec<IssuerSource>,
    /// Token authorities for tokens that cannot be verified locally.
    pub authorities: Vec<TokenAuthority>,
    /// The mapping for client certificates, where they are a credential.
    pub certificates: Option<CertificateMapping>,
    /// User names and passwords, where they are a credential.
    pub basic: Option<Arc<BasicAuth>>,
    /// Bounds of the decision cache.
    pub cache: CacheLimits,
    /// `realm` of the RFC 6750 challenge.
    pub realm: Box<str>,
    /// Digest over everything that shapes a cached fact (issuers, mappings). It is part of every
    /// cache key, so that a fact mapped under an older configuration is never found under a newer
    /// one.
    pub version: u64,
}

/// User names and passwords (HTTP Basic, RFC 7617).
pub struct BasicAuth {
    /// Name that rules and metrics use, in place of an issuer's.
    pub name: Box<str>,
    /// `realm` of the challenge.
    pub realm: Box<str>,
    /// The users and the hashes of their passwords.
    pub users: Htpasswd,
    /// Groups of users.
    pub groups: UserGroups,
}

/// A JWT issuer and the source of its keys.
#[derive(Debug, Clone)]
pub struct IssuerSource {
    /// Claim checks and mapping.
    pub config: Arc<IssuerConfig>,
    /// The source of its keys.
    pub keys: KeySource,
    /// Interval of background key fetches. Default 5 min.
    pub refresh: Duration,
    /// How long the last valid key set may be used while fetching fails. Default 1 h.
    pub max_stale: Duration,
    /// Trusted CAs for fetching; `None`: system roots. Ignored for `http://` and files.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Proxies between the process and the issuer.
    pub proxies: OutboundProxies,
}

/// A service that is asked whether a token is valid.
#[derive(Debug, Clone)]
pub struct TokenAuthority {
    /// Requirements on its answers, and their mapping.
    pub config: Arc<AuthorityConfig>,
    /// The protocol of the request.
    pub question: AuthorityQuestion,
    /// The tokens it is asked about.
    pub selection: TokenSelection,
    /// Signer of introspection answers (RFC 9701); its audience is the required audience of the
    /// answer. `None`: answers are plain JSON.
    pub signed: Option<IssuerSource>,
    /// Connection, credential and limits for requests to it.
    pub server: ServerConfig,
    /// Time to live of an answer; the cache's own bound applies as well. Default 10 s.
    pub ttl: Duration,
    /// The API server where deletions are watched, without a slash at the end. A deletion drops the
    /// answers it concerns at once. `None`: nothing is watched.
    pub watch: Option<Box<str>>,
}

/// How an authority is asked about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityQuestion {
    /// Token introspection (RFC 7662).
    Introspection {
        /// URL of the introspection endpoint.
        url: Url,
    },
    /// Kubernetes `TokenReview`, below the API server's URL.
    TokenReview {
        /// URL of the review endpoint.
        url: Url,
    },
    /// `OpenShift` `users/~`, with the token itself as the credential.
    OpenShiftUser {
        /// URL of the user resource.
        url: Url,
    },
}

/// The tokens that an authority is asked about. Each token goes to one authority at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenSelection {
    /// Tokens that begin with one of these. Of several prefixes that fit, the longest counts.
    pub prefixes: Vec<Box<str>>,
    /// JWTs with one of these `iss` values; no configured issuer has them.
    pub issuers: Vec<Box<str>>,
}

impl TokenSelection {
    /// Whether the authority receives all tokens that no other rule selects and that are no JWT.
    pub fn is_rest(&self) -> bool {
        self.prefixes.is_empty() && self.issuers.is_empty()
    }
}

/// Where an issuer's keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// `{issuer}/.well-known/openid-configuration`, then RFC 8414's path, names the `jwks_uri`.
    Discovery,
    /// URL of the JWKS document itself.
    Uri(Box<str>),
    /// A JWKS file, read again when it changes.
    File(PathBuf),
}

/// Bounds of the decision cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum bytes of cached facts over all workers. Default 64 MiB.
    pub bytes: usize,
    /// Maximum time a fact is used without verifying again (shortened by up to 10 % as jitter).
    /// Default 60 s.
    pub ttl: Duration,
    /// Time to live of a denial. Default 2 s.
    pub deny_ttl: Duration,
    /// Maximum number of cached denials. Default 4096.
    pub deny_entries: usize,
}

/// The signed assertion of the caller for the upstream (JWT, ES256).
pub struct AssertionConfig {
    /// Request field that carries the assertion. Default `X-Postern-Assertion`.
    pub header: Box<str>,
    /// Value of the `iss` claim.
    pub issuer: Box<str>,
    /// Value of the `aud` claim; `None`: the upstream's name.
    pub audience: Option<Box<str>>,
    /// Lifetime, at most 5 min. Default 60 s.
    pub lifetime: Duration,
    /// Signs assertions; its public half is served as a JWKS.
    pub signer: Arc<auth::token::jws::Signer>,
    /// Path on every listener that serves the JWKS. Default `/.well-known/postern/jwks.json`.
    pub jwks_path: Box<str>,
}

/// A transmitter of security events.
#[derive(Clone)]
pub struct Transmitter {
    /// Issuer of the event tokens, with its keys and the audiences that stand for this gateway.
    pub issuer: IssuerSource,
    /// The `iss` values of the tokens and sessions that its events are about.
    pub tokens_of: Vec<Box<str>>,
    /// Maximum age at which those tokens are accepted.
    pub max_token_age: Duration,
    /// How long its events are stored.
    pub retention: Duration,
    /// How its event tokens arrive.
    pub delivery: EventDelivery,
}

impl Transmitter {
    /// Whether its event tokens are pushed to this authority and path.
    pub fn is_pushed_to(&self, authority: &str, path: &str) -> bool {
        matches!(&self.delivery, EventDelivery::Pushed { authority: at, path: below, .. }
            if **at == *authority && **below == *path)
    }
}

/// How event tokens of a transmitter arrive.
#[derive(Clone)]
pub enum EventDelivery {
    /// The transmitter sends them (RFC 8935).
    Pushed {
        /// Host and port of the endpoint, as in a canonical request.
        authority: Box<str>,
        /// Path of the endpoint.
        path: Box<str>,
        /// Accepted bearer tokens of the transmitter.
        bearer_tokens: Vec<Zeroizing<String>>,
    },
    /// The gateway polls them (RFC 8936).
    Polled {
        /// URL of the poll endpoint.
        url: Url,
        /// Connection, credential and limits for requests to it.
        server: ServerConfig,
        /// Pause after an empty response that came at once.
        interval: Duration,
        /// Maximum event tokens of one response.
        max_events: u32,
    },
}
