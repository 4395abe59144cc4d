//! Login configuration: checked values for logging in with a browser.

use std::sync::Arc;
use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use auth::mapping::ClaimMapping;
use auth::request::Scheme;
use auth::token::jws::Signer;
use credentials::config::KeySource;
use credentials::cookies::CookieReach;
use http_engine::config::ServerConfig;
use http_engine::url::Url;

use crate::keys::SessionKeys;
use crate::pages::LoginPages;

/// Login with a browser, for the routes that use it.
#[derive(Debug, Clone)]
pub struct LoginConfig {
    /// Path below which the gateway serves it, such as `/oauth2`: canonical, without a slash at the
    /// end.
    pub path: Box<str>,
    /// Origins at which browsers reach this gateway. Logins work only there: data from a client
    /// never determines our own origins.
    pub origins: Vec<Origin>,
    /// Further origins: the hosts below some domains. Only with a shared session.
    pub wildcards: Vec<WildcardOrigin>,
    /// The session that all origins share; `None`: each has its own.
    pub shared: Option<SharedSession>,
    /// Who may show pages in a frame although they are another site, as sources of
    /// `frame-ancestors` (CSP Level 3 §6.4.2); `None`: nobody. With it, browsers keep the cookies
    /// in such frames too.
    pub frame_ancestors: Option<Box<str>>,
    /// Keys that seal cookies and stored sessions.
    pub keys: SessionKeys,
    /// Maximum lifetime of a session. Default 12 h.
    pub lifetime: Duration,
    /// Lifetime of an unused session. Default 1 h.
    pub idle: Duration,
    /// Interval at which the provider confirms the session and its claims. Default 5 min.
    pub refresh: Duration,
    /// How long a result of the session store is valid. Default 10 s.
    pub ttl: Duration,
    /// Whether to show a page before redirecting to a provider, even if there is only one.
    pub page: bool,
    /// Renderer of the pages.
    pub pages: Arc<LoginPages>,
    /// Providers that authenticate users; at least one. The first is the default.
    pub providers: Vec<LoginProvider>,
    /// Changes with everything that shapes a session or its cached facts.
    pub version: u64,
}

/// Which clients without a credential a route sends to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoginRedirect {
    /// Browsers that navigate to a page.
    #[default]
    Browsers,
    /// All but those that say that they are programs.
    All,
    /// None: every client gets 401.
    None,
}

/// A web origin at which browsers reach this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Scheme by which browsers connect, wherever TLS ends.
    pub scheme: Scheme,
    /// Host and port, in the form of a canonical request.
    pub authority: Box<str>,
    /// The origin as browsers send it (RFC 6454): `https://app.example`.
    pub text: Box<str>,
}

/// The https origins of all hosts below a domain, at any depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WildcardOrigin {
    /// The domain with its dot, and the port if there is one: `.example.com:8443`.
    pub suffix: Box<str>,
}

impl WildcardOrigin {
    /// Whether a canonical authority is one of these hosts.
    pub fn covers(&self, authority: &str) -> bool {
        authority.strip_suffix(&*self.suffix).is_some_and(|name| !name.is_empty() && !name.ends_with('.'))
    }
}

/// One session for all hosts of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSession {
    /// The domain whose hosts receive the cookie: lower case, without a dot at its beginning.
    pub domain: Box<str>,
    /// Index of the origin at which every login takes place; `None`: at the origin where it is
    /// requested.
    pub callback: Option<usize>,
}

impl LoginConfig {
    /// Index of the origin of a request, by its canonical authority; `None`: there is no login at
    /// that host. The wildcards follow the exact origins.
    pub fn origin(&self, authority: &str) -> Option<usize> {
        let exact = self.origins.iter().position(|origin| *origin.authority == *authority);
        exact.or_else(|| {
            let wildcard = self.wildcards.iter().position(|wildcard| wildcard.covers(authority));
            wildcard.map(|at| self.origins.len() + at)
        })
    }

    /// Number of indices of origins.
    pub(crate) fn origin_count(&self) -> usize {
        self.origins.len() + self.wildcards.len()
    }

    /// The scheme by which browsers reach an origin.
    pub fn scheme(&self, origin: usize) -> Scheme {
        // Wildcards are of https.
        self.origins.get(origin).map_or(Scheme::Https, |origin| origin.scheme)
    }

    /// The origin of an authority for which there is a login; `None`: there is none.
    pub(crate) fn named_origin(&self, authority: &str) -> Option<Origin> {
        let index = self.origin(authority)?;
        Some(self.origins.get(index).cloned().unwrap_or_else(|| Origin {
            scheme: Scheme::Https,
            authority: authority.into(),
            text: format!("{}://{authority}", Scheme::Https.as_str()).into(),
        }))
    }

    /// The origin at which the login of a user at `here` takes place.
    pub(crate) fn login_origin<'o>(&'o self, here: &'o Origin) -> &'o Origin {
        let callback = self.shared.as_ref().and_then(|shared| shared.callback);
        callback.map_or(here, |callback| &self.origins[callback])
    }

    /// Name of the place that a session at this origin is sealed for: a session of another place
    /// does not open.
    pub(crate) fn session_place(&self, origin: usize) -> &str {
        match &self.shared {
            // Unlike an origin, it has no scheme.
            Some(shared) => &shared.domain,
            None => &self.origins[origin].text,
        }
    }

    /// How browsers keep the cookies of an origin.
    pub fn cookie_reach(&self, origin: usize) -> CookieReach<'_> {
        CookieReach {
            scheme: self.scheme(origin),
            domain: self.shared.as_ref().map(|shared| &*shared.domain),
            in_frames: self.frame_ancestors.is_some(),
        }
    }
}

/// A provider that authenticates users.
#[derive(Debug, Clone)]
pub struct LoginProvider {
    /// Name from the file: used in place of an issuer in rules, logs and metrics.
    pub name: Box<str>,
    /// Name that users see.
    pub display_name: Box<str>,
    /// The protocol of the provider.
    pub kind: LoginKind,
    /// Our client ID at the provider.
    pub client_id: Box<str>,
    /// Scopes of the authorization request.
    pub scopes: Box<str>,
    /// Further parameters of the authorization request, such as `prompt`.
    pub parameters: Vec<(Box<str>, Box<str>)>,
    /// Connection and limits for its endpoints. The credential authenticates us at its token
    /// endpoint.
    pub server: ServerConfig,
    /// The key that authenticates us there instead; `None`: the credential of `server` does.
    pub client_key: Option<ClientKey>,
    /// Whether a certificate authenticates us, at endpoints that the metadata may list apart.
    pub tls_client_auth: bool,
    /// Whether the browser returns with a form.
    pub form_post: bool,
    /// Tolerated difference between its clock and ours.
    pub clock_skew: Duration,
    /// Mapping from its claims to an identity.
    pub mapping: ClaimMapping,
    /// Whether a logout here also logs out at the provider.
    pub ends_provider_session: bool,
}

/// A private key that authenticates us as a client.
#[derive(Clone)]
pub struct ClientKey {
    /// The key.
    pub signer: Arc<Signer>,
    /// What is signed with it.
    pub proof: ClientProof,
}

/// What a client signs to authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientProof {
    /// `private_key_jwt` (OpenID Connect Core 1.0 §9, RFC 7523 §2.2).
    Assertion,
    /// The client secret of "Sign in with Apple".
    AppleSecret {
        /// Identifier of the team that owns the key.
        team: Box<str>,
    },
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey").field("kid", &self.signer.kid()).field("proof", &self.proof).finish()
    }
}

/// The protocol of a provider.
#[derive(Debug, Clone)]
pub enum LoginKind {
    /// OpenID Connect.
    OpenId {
        /// Its exact `iss`, below which its metadata is published.
        issuer: Box<str>,
        /// The source of the keys of its ID tokens.
        keys: KeySource,
        /// Trusted CAs for fetching keys; `None`: system roots.
        tls: Option<Arc<rustls::ClientConfig>>,
        /// Algorithms that ID tokens may be signed with.
        algorithms: AlgorithmSet,
        /// Whether to call the userinfo endpoint as well: some providers put fewer claims in ID
        /// tokens.
        userinfo: bool,
    },
    /// `OpenShift`'s own OAuth server.
    OpenShift {
        /// URL of the API server, without a slash at the end.
        api: Url,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_the_hosts_below_its_domain() {
        let below =
            |suffix: &str, authority: &str| WildcardOrigin { suffix: suffix.into() }.covers(authority);
        for authority in ["a.example.com", "a.b.example.com", "x-1.example.com"] {
            assert!(below(".example.com", authority), "{authority}");
        }
        for authority in [
            "example.com",
            ".example.com",
            "a..example.com",
            "aexample.com",
            "a.example.com:8443",
            "a.example.com.evil.test",
            "a.example.org",
            "",
        ] {
            assert!(!below(".example.com", authority), "{authority}");
        }
        assert!(below(".example.com:8443", "a.example.com:8443"));
        assert!(!below(".example.com:8443", "a.example.com"));
    }
}
