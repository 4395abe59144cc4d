//! How people log in with a browser, checked.

use std::sync::Arc;
use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use auth::mapping::Mapping;
use credentials::config::KeySource;
use http_engine::config::ServerConfig;
use http_engine::url::Url;

use crate::keys::SessionKeys;

/// Logging in with a browser, for the routes that want it.
#[derive(Debug, Clone)]
pub struct LoginConfig {
    /// Below which path the gateway serves it, such as `/oauth2`: canonical, without a slash at the end.
    pub path: Box<str>,
    /// Where browsers see us. Nobody logs in anywhere else: nothing of what a client sends says what is ours.
    pub origins: Vec<Origin>,
    /// What seals cookies.
    pub keys: SessionKeys,
    /// How long a session lasts at most. Default 12 h.
    pub lifetime: Duration,
    /// How long it lasts when nobody uses it. Default 1 h.
    pub idle: Duration,
    /// How often the provider is asked whether it still holds, and who it is. Default 5 min.
    pub refresh: Duration,
    /// How long what is known of a session is believed without looking at where it is kept. Default 10 s.
    pub ttl: Duration,
    /// Show a page before anybody is sent to a provider, even if there is only one.
    pub page: bool,
    /// Who can say who somebody is; at least one. The first is the one meant when nobody says which.
    pub providers: Vec<LoginProvider>,
    /// Changes with everything that shapes a session or what is known of one.
    pub version: u64,
}

/// A place on the web that browsers know us by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Whether browsers come over TLS, wherever it ends.
    pub https: bool,
    /// Host and port, as a canonical request spells them.
    pub authority: Box<str>,
    /// As browsers spell it (RFC 6454): `https://app.example`.
    pub text: Box<str>,
}

/// Somebody who can say who somebody is.
#[derive(Debug, Clone)]
pub struct LoginProvider {
    /// As in the file: in place of an issuer in rules, logs and metrics.
    pub name: Box<str>,
    /// What people are shown.
    pub title: Box<str>,
    /// What it speaks.
    pub kind: LoginKind,
    /// Our own name there.
    pub client_id: Box<str>,
    /// What is asked for.
    pub scopes: Box<str>,
    /// Further parameters of the question, such as `prompt`.
    pub parameters: Vec<(Box<str>, Box<str>)>,
    /// How its endpoints are reached. The credential is what it knows us by at its token endpoint.
    pub server: ServerConfig,
    /// What of its words becomes an identity.
    pub mapping: Mapping,
    /// Logging out here logs out there.
    pub logs_out: bool,
}

/// What a provider speaks.
#[derive(Debug, Clone)]
pub enum LoginKind {
    /// `OpenID` Connect.
    OpenId {
        /// Its exact `iss`, below which its metadata stands.
        issuer: Box<str>,
        /// Where the keys of its ID tokens come from.
        keys: KeySource,
        /// CA choice for fetching keys; `None`: system roots.
        tls: Option<Arc<rustls::ClientConfig>>,
        /// With what ID tokens may be signed.
        algorithms: AlgorithmSet,
        /// Ask the userinfo endpoint as well: some say less in ID tokens.
        userinfo: bool,
    },
    /// `OpenShift`'s own OAuth server.
    OpenShift {
        /// Of the API server, without a slash at the end.
        api: Url,
    },
}
