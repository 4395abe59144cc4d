//! Tables of `[login]`: login with a browser.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::Claims;
use super::default::{count, secs};
use super::issuer::Algorithm;

/// Login with a browser: a browser without a session is sent from a route with `login = true` to a
/// provider, and returns with a session. Register the addresses `{origin}{path}/callback` and
/// `{origin}{path}/signed_out` at each provider. `{origin}{path}/backchannel_logout` may be
/// registered too.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Origins of the services, exactly as browsers see them: `https://app.example`. There is no
    /// login at other hosts. With `cookie_domain` also `https://*.app.example`, for all hosts below
    /// a domain at any depth. Plain `http` for this machine only.
    #[schemars(length(min = 1))]
    pub origins: Vec<String>,
    /// Domain whose hosts share one session, such as `example.com`. All `origins` are hosts of it. Use it
    /// only if you trust every host of the domain: each receives the session cookie of every user,
    /// and can give a user another session. Default: each origin has a session of its own, whose
    /// cookie no other host receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie_domain: Option<String>,
    /// The one of `origins` at which every login takes place and to which providers return. Register
    /// its addresses only. Needs `cookie_domain`. Required if `origins` has `*`. Default: the origin
    /// where the user is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_origin: Option<String>,
    /// Origins of other sites whose pages may show the services in a frame: `https://portal.example`,
    /// or `https://*.portal.example`. A user signs in inside the frame, apart for each such site: the
    /// cookies are `SameSite=None; Partitioned`. Browsers then send the session with requests that
    /// pages of other sites cause, which Postern refuses unless they open a page; so no service may
    /// change anything on `GET`. Default: none, and the cookies are `SameSite=Lax`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub frame_ancestors: Vec<String>,
    /// Path of the login on these origins. Below it are `start`, `callback`, `sign_in`, `sign_out`,
    /// `signed_out`, `done`, `auth`, `userinfo` and `backchannel_logout`.
    #[serde(default = "Login::default_path")]
    pub path: String,
    /// File with the keys that seal cookies: 32 random bytes in base64 per line
    /// (`openssl rand -base64 32`), not readable by other users. The first key seals, and all keys
    /// open. To rotate: add the new key at the end on every node, then move it to the front. Remove
    /// the old one after `lifetime`. At most 16 keys. All processes that serve the same origins
    /// share the file.
    pub keys_file: PathBuf,
    /// URL of the database for sessions: `sqlite:///var/lib/postern/sessions.db?mode=rwc` for one
    /// process, or `postgres://postern@db.example/postern` for several. It may be the provider's.
    /// Default: sessions are in sealed cookies, for one process and sessions of less than 4 KB.
    /// Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// File with the URL of the database, for a URL that contains a password. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_file: Option<PathBuf>,
    /// Longest lifetime of a session.
    #[serde(default = "secs::<43200>")]
    pub lifetime: Timespan,
    /// How long a session stays valid without use, in addition to `refresh`.
    #[serde(default = "secs::<3600>")]
    pub idle: Timespan,
    /// How often the provider is queried whether a session is still valid, and for its user.
    /// Changed groups take effect after this time. It is queried earlier if its tokens expire
    /// earlier. At most `lifetime`.
    #[serde(default = "secs::<300>")]
    pub refresh: Timespan,
    /// How long a session that was read from the database stays valid without another read, and a
    /// token of `OpenShift` without another query. A session that another process ends is refused
    /// within a second. If the database does not answer, the session works for this time. At most
    /// an hour.
    #[serde(default = "secs::<10>")]
    pub ttl: Timespan,
    /// Whether a page is shown before the browser is sent to a provider. With several providers it
    /// is always shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sign_in_page: bool,
    /// Providers that users log in at. At least one.
    pub provider: Vec<LoginProvider>,
}

impl Login {
    fn default_path() -> String {
        "/oauth2".into()
    }
}

/// Provider that users log in at.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginProvider {
    /// Name of the provider in rules, logs and metrics, in place of an issuer's name. It may equal
    /// the name of an `[[issuer]]` with the same `issuer`, or of an `[[token_authority]]` with the
    /// same `url`. Then both mean the same users.
    pub name: Name,
    /// Title that users see. Default: the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Protocol of the provider.
    #[serde(default)]
    pub kind: LoginKind,
    /// Exact `iss` of its ID tokens. The discovery document is below it. For `OpenShift`, the URL
    /// of the API server, such as `https://kubernetes.default.svc`.
    pub url: String,
    /// Client ID of the gateway at the provider. For `OpenShift` it may be a service account:
    /// `system:serviceaccount:NAMESPACE:NAME`.
    pub client_id: String,
    /// File with the client's secret. For a service account, its token. Read again while it is in
    /// use. Default: a public client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    /// How the client authenticates. Default: as the provider's metadata says, with preference for
    /// `client_secret_basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_authentication: Option<LoginClientAuthentication>,
    /// PEM file (PKCS #8) with the private key that the client signs with: EC P-256, RSA or Ed25519.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key_file: Option<PathBuf>,
    /// Name of that key at the provider (`kid`). Default: its thumbprint (RFC 7638).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key_id: Option<String>,
    /// Identifier of the team at Apple, for `client_authentication = "apple"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apple_team_id: Option<String>,
    /// PEM file with the client certificate for `tls_client_auth`. Needs `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of `certificate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// How the provider returns the browser. Default: `query`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_mode: Option<ResponseMode>,
    /// Scopes to request. Default: `openid profile email`; for `OpenShift`,
    /// `user:info user:check-access`. Some providers require `offline_access` before a session can
    /// be refreshed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub scopes: Vec<String>,
    /// Further parameters of the authorization request, such as `prompt = "select_account"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Whether the userinfo endpoint is queried too, for providers whose ID tokens lack claims such
    /// as groups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub userinfo: bool,
    /// Whether a sign-out here also signs out at the provider (`OpenID` Connect RP-Initiated
    /// Logout). Tokens are revoked in any case, if the provider has an endpoint for it.
    #[serde(default = "super::default::yes")]
    pub logs_out: bool,
    /// Clock skew of the provider that is tolerated when times of ID tokens and logout tokens are
    /// checked. At most 60s.
    #[serde(default = "secs::<30>")]
    pub clock_skew: Timespan,
    /// Signature algorithms that are accepted for ID tokens.
    #[serde(default = "super::issuer::algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// Claims that identify the user. `OpenShift` has fixed ones.
    #[serde(default)]
    pub claims: Claims,
    /// PEM file with the certificate authorities that verify the provider's server certificates.
    /// Default: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Confirms that queries over plain `http` to another machine are intended. An attacker on the
    /// network can then be any user here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Timeout of a request to the provider.
    #[serde(default = "secs::<5>")]
    pub timeout: Timespan,
    /// Largest number of requests in flight.
    #[serde(default = "count::<128>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_requests: usize,
}

/// Protocol of a login provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoginKind {
    /// OpenID Connect, with discovery.
    #[default]
    Openid,
    /// The OAuth server of `OpenShift`.
    Openshift,
}

/// How the gateway authenticates to a login provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoginClientAuthentication {
    /// HTTP Basic with the secret (RFC 6749 section 2.3.1).
    ClientSecretBasic,
    /// The secret in the form.
    ClientSecretPost,
    /// A JWT that is signed with `client_key_file` (RFC 7523, OpenID Connect Core section 9).
    PrivateKeyJwt,
    /// The client `certificate` of the connection (RFC 8705).
    TlsClientAuth,
    /// A secret that is a JWT, signed with `client_key_file`, as Apple requires it. It is made for
    /// each request. Needs `client_key_id` and `apple_team_id`.
    Apple,
}

/// How a provider returns the browser with its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseMode {
    /// In the address of the callback.
    Query,
    /// With a form that the browser sends (OAuth 2.0 Form Post Response Mode). Apple requires it for
    /// the scopes `name` and `email`.
    FormPost,
}
