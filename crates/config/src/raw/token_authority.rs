//! Tables of `[[token_authority]]`: token authorities that validate tokens on request.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::{count, secs};
use super::issuer::{Algorithm, Claims, algorithms};

/// Token authority: a service that validates tokens that the gateway cannot verify itself, such as
/// opaque ones and JWTs that only their issuer can check. Each token is sent to one authority at
/// most. The answer is cached for `ttl`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenAuthority {
    /// Name of the authority in rules, logs and metrics, in place of an issuer's name.
    pub name: Name,
    /// How the authority is queried.
    pub kind: TokenAuthorityKind,
    /// URL of the introspection endpoint. For Kubernetes and `OpenShift`, URL of the API server,
    /// such as `https://kubernetes.default.svc`.
    pub url: String,
    /// Prefixes of the tokens that this authority validates, whatever their format: `sha256~` of
    /// `OpenShift`, `ptn_at_` of Postern. An authority with neither `prefixes` nor `issuers` gets
    /// every token that is not a JWT and that no other authority claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub prefixes: Vec<String>,
    /// `iss` values of the JWTs that this authority validates, such as those of a cluster's service
    /// accounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub issuers: Vec<String>,
    /// Audiences, one of which a token must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub audiences: Vec<String>,
    /// Whether a token with any audience is valid. A service that receives a token for itself can
    /// then use it here too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_audience: bool,
    /// Exact `iss` of introspection responses that contain one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Requires signed introspection responses (RFC 9701). Any other response is an error, and the
    /// request gets 503.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
    /// Client that the gateway authenticates as. Needs `client_secret_file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// File with the client's secret. Read again while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    /// How the client authenticates. Default: `client_secret_basic`.
    #[serde(default, skip_serializing_if = "ClientAuthentication::is_default")]
    pub client_authentication: ClientAuthentication,
    /// File with the gateway's own bearer token, such as that of a service account. Read again
    /// while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// PEM file with the gateway's own client certificate. Needs `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// PEM file with the certificate authorities that verify the server's certificate. Default:
    /// those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Confirms that queries over plain `http` to another machine are intended. An attacker on the
    /// network can then read every token, and declare any token valid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// How long an answer stays valid, at most `cache.ttl`. An answer of an issuer that is followed
    /// here stays valid for `cache.ttl`. A revoked token works for as long, unless another source
    /// reports the revocation.
    #[serde(default = "secs::<10>")]
    pub ttl: Timespan,
    /// Timeout of a query. After it the request gets 503.
    #[serde(default = "secs::<3>")]
    pub timeout: Timespan,
    /// Largest number of queries in flight. Further requests get 503.
    #[serde(default = "count::<128>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_requests: usize,
    /// Largest number of queries per second. Further requests get 503 at once. Default: only
    /// `max_requests` limits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_per_second: Option<u32>,
    /// Whether the gateway watches deletions of service accounts and of `OpenShift` tokens at a
    /// Kubernetes API server. A deletion drops the cached answers for the token at once. Needs
    /// `list` and `watch` on these resources. Without that right only `ttl` applies, and a metric
    /// shows it. Default: yes, if the gateway has a credential for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<bool>,
    /// Members of an introspection response that identify the caller. Kubernetes and `OpenShift`
    /// have fixed ones. Default: as in that table, but `username` also counts as the user name if
    /// there is no `preferred_username`.
    #[serde(default = "TokenAuthority::default_claims")]
    pub claims: Claims,
}

impl TokenAuthority {
    /// Default members of an introspection response. RFC 7662 calls the user name `username`.
    pub fn default_claims() -> Claims {
        Claims { user: vec!["preferred_username".into(), "username".into()], ..Claims::default() }
    }
}

/// Issuer that signs introspection responses (RFC 9701). Its keys come from discovery unless
/// `jwks_uri` or `jwks_file` is set. Encrypted responses are not supported.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// Exact `iss` of the signed responses. Without `jwks_uri` and `jwks_file`, it is also the base
    /// URL for discovery of the keys.
    pub issuer: String,
    /// Value that their `aud` must contain. Default: `client_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// URL of the key set (JWKS), instead of discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// File with the key set (JWKS), instead of discovery. Read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// PEM file with the certificate authorities that verify the certificate of the key server.
    /// Default: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Confirms that fetching keys over plain `http` from another machine is intended. An attacker
    /// on the network can then declare any token valid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Signature algorithms that are accepted (RFC 7518, RFC 8037).
    #[serde(default = "algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// Clock skew of the server that is tolerated: `iat` must be between the query and the
    /// response. At most 60s.
    #[serde(default = "secs::<30>")]
    pub clock_skew: Timespan,
}

/// How an authority is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TokenAuthorityKind {
    /// OAuth 2.0 Token Introspection (RFC 7662).
    Introspection,
    /// Kubernetes `TokenReview`. The gateway's account needs `create` on `tokenreviews`.
    TokenReview,
    /// `OpenShift` `users/~`: the request for the user carries the token itself, which needs the
    /// scope `user:info`.
    OpenshiftUser,
}

/// How a client authenticates (RFC 6749 section 2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthentication {
    /// With the `Authorization` header.
    #[default]
    ClientSecretBasic,
    /// With form parameters.
    ClientSecretPost,
}

impl ClientAuthentication {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
