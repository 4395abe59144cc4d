//! Logging in with a browser.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::{count, secs};
use super::issuer::Algorithm;
use super::{Claims, ClientAuthentication};

/// Logging in with a browser: whoever comes to a route with `login = true` without a session is sent to a provider, and comes back
/// with one. Each provider has to be told of the addresses `{origin}{path}/callback` and `{origin}{path}/signed_out`, and may be
/// told of `{origin}{path}/backchannel_logout`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Where browsers see the services, as they spell it: `https://app.example`. Nobody logs in at other hosts. Plain `http` for
    /// this machine alone.
    #[schemars(length(min = 1))]
    pub origins: Vec<String>,
    /// Below which path of these origins the login is: `start`, `callback`, `sign_in`, `sign_out`, `signed_out`, `done`, `auth`,
    /// `userinfo` and `backchannel_logout`.
    #[serde(default = "Login::default_path")]
    pub path: String,
    /// File with the keys that seal cookies: 32 random bytes in base64 on each line (`openssl rand -base64 32`), that others may not
    /// read. The first one seals, all of them open: to change it, add the new one at the end everywhere, then move it to the front, and take
    /// the old one out when `lifetime` has passed. At most 16. All that serve the same origins share it.
    pub keys_file: PathBuf,
    /// Where sessions are kept: a database, `sqlite:///var/lib/postern/sessions.db?mode=rwc` for one process, or
    /// `postgres://postern@db.example/postern` for several. It may be the provider's. Absent: in the browser, sealed, for one
    /// process and sessions of less than 4 KB. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// File with that URL instead, for one that holds a password. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_file: Option<PathBuf>,
    /// How long a session lasts at most.
    #[serde(default = "secs::<43200>")]
    pub lifetime: Timespan,
    /// How long a session lasts that nobody uses, in addition to `refresh`.
    #[serde(default = "secs::<3600>")]
    pub idle: Timespan,
    /// How often a provider is asked whether a session still holds, and who it is: so soon do changed groups count. Sooner, if its
    /// tokens end sooner. At most `lifetime`.
    #[serde(default = "secs::<300>")]
    pub refresh: Timespan,
    /// How long what a database says of a session is believed, and what `OpenShift` says of a token. A session that is ended
    /// through another process is over within a second; where the database does not answer, it works for as long. At most an hour.
    #[serde(default = "secs::<10>")]
    pub ttl: Timespan,
    /// Show a page before anybody is sent to a provider. With several providers there is always one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sign_in_page: bool,
    /// Who can say who somebody is. At least one.
    pub provider: Vec<LoginProvider>,
}

impl Login {
    fn default_path() -> String {
        "/oauth2".into()
    }
}

/// A provider that people log in at.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginProvider {
    /// What rules, logs and metrics call it, in place of an issuer. It may be that of an `[[issuer]]` with the same `issuer`, or of
    /// an `[[authority]]` with the same `url`: then these are the same people.
    pub name: Name,
    /// What people are shown. Absent: the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it speaks.
    #[serde(default)]
    pub kind: LoginKind,
    /// Exact `iss` of its ID tokens; below it is its discovery document. For `OpenShift`, the URL of the API server, such as
    /// `https://kubernetes.default.svc`.
    pub url: String,
    /// Client that we are there. For `OpenShift` a service account may be one: `system:serviceaccount:NAMESPACE:NAME`.
    pub client_id: String,
    /// File with the client's secret; a service account's is its token. Read again while it is in use. Absent: a public client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    /// How the client authenticates. Absent: `client_secret_basic`.
    #[serde(default, skip_serializing_if = "ClientAuthentication::is_default")]
    pub client_authentication: ClientAuthentication,
    /// What is asked for. Absent: `openid profile email`; for `OpenShift`, `user:info user:check-access`. Some providers
    /// want `offline_access` before they let a session be refreshed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub scopes: Vec<String>,
    /// Further parameters of the question, such as `prompt = "select_account"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Ask the userinfo endpoint as well, for providers whose ID tokens say too little, such as no groups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub userinfo: bool,
    /// Logging out here logs out there as well (`OpenID` Connect RP-Initiated Logout). Tokens are revoked in any case, where
    /// the provider has an endpoint for that.
    #[serde(default = "super::default::yes")]
    pub logs_out: bool,
    /// Signature algorithms that are accepted of ID tokens.
    #[serde(default = "super::issuer::algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// Which claims say who it is. `OpenShift` has its own.
    #[serde(default)]
    pub claims: Claims,
    /// PEM file with the authorities that the provider's server certificates must come from. Absent: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Says that asking over plain `http` at another machine is meant: whoever sits in between can be anybody here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// From asking to the whole answer.
    #[serde(default = "secs::<5>")]
    pub timeout: Timespan,
    /// Questions under way at once.
    #[serde(default = "count::<128>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_requests: usize,
}

/// What a provider speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoginKind {
    /// OpenID Connect, with discovery.
    #[default]
    Openid,
    /// The OAuth server of `OpenShift`.
    Openshift,
}
