//! Who is asked what a token is worth.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::{count, secs};
use super::issuer::{Algorithm, Claims, algorithms};

/// An authority that is asked about tokens which nobody can verify here: opaque ones, and JWTs that only their issuer can judge.
/// Each token is asked of one authority at most. The answer is remembered for `ttl`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// What rules, logs and metrics call it, in place of an issuer.
    pub name: Name,
    /// How it is asked.
    pub kind: AuthorityKind,
    /// Of the introspection endpoint. For Kubernetes and `OpenShift`, of the API server, such as
    /// `https://kubernetes.default.svc`.
    pub url: String,
    /// Tokens that begin with one of these are this authority's, whatever else they look like: `sha256~` of `OpenShift`,
    /// `ptn_at_` of Postern. With neither `prefixes` nor `issuers` it gets every token that is no JWT and nobody else's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub prefixes: Vec<String>,
    /// JWTs with one of these as `iss` are this authority's, such as those of a cluster's service accounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub issuers: Vec<String>,
    /// A token must be for one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub audiences: Vec<String>,
    /// Says that a token is good whomever it is for: whoever gets one can then use it here as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_audience: bool,
    /// Exact `iss` of introspections, for those that tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Demands that introspections are signed (RFC 9701). Any other answer is a 503.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
    /// Client that asks. Needs `client_secret_file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// File with the client's secret. Read again while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    /// How the client authenticates. Absent: `client_secret_basic`.
    #[serde(default, skip_serializing_if = "ClientAuthentication::is_default")]
    pub client_authentication: ClientAuthentication,
    /// File with a bearer token of the gateway's own, such as a service account's. Read again while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// PEM file with a client certificate of the gateway's own. Needs `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// PEM file with the authorities that the server's certificate must come from. Absent: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Says that asking over plain `http` at another machine is meant: whoever sits in between learns every token, and can say
    /// of any that it is good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// How long an answer is believed, at most `cache.ttl`; that long where it is of an issuer that is followed here. A token that is
    /// revoked works for as long, unless something else tells of it.
    #[serde(default = "secs::<10>")]
    pub ttl: Timespan,
    /// From asking to the whole answer; then the request is answered 503.
    #[serde(default = "secs::<3>")]
    pub timeout: Timespan,
    /// Questions under way at once; further requests are answered 503.
    #[serde(default = "count::<128>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_requests: usize,
    /// Questions begun within a second; further requests are answered 503, and none of them waits. Absent: no bound but
    /// `max_requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_per_second: Option<u32>,
    /// Watch deletions of service accounts and of `OpenShift`'s tokens at a Kubernetes API server: they drop what is remembered of
    /// the token at once. Needs `list` and `watch` on them; without that right `ttl` alone rules, and a metric says so. Absent: yes
    /// where the gateway has a credential for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<bool>,
    /// Which members of an introspection say who the caller is. Kubernetes and `OpenShift` have theirs. Absent: as in that table, but that
    /// `username` is a name too, where there is no `preferred_username`.
    #[serde(default = "Authority::default_claims")]
    pub claims: Claims,
}

impl Authority {
    /// Members of an introspection: RFC 7662 calls the name of people `username`.
    pub fn default_claims() -> Claims {
        Claims { user: vec!["preferred_username".into(), "username".into()], ..Claims::default() }
    }
}

/// Whose signature introspections must bear (RFC 9701). Keys come from discovery unless `jwks_uri` or `jwks_file` says otherwise.
/// Encrypted answers are not understood.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// Exact `iss` of the signed answers. Without `jwks_uri` and `jwks_file` also where discovery of the keys starts.
    pub issuer: String,
    /// What their `aud` must contain. Absent: `client_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// URL of the key set (JWKS), instead of discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// File with the key set (JWKS), instead of discovery. Read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// PEM file with the authorities that the certificate of the server with the keys must come from. Absent: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Says that fetching keys over plain `http` from another machine is meant: whoever sits in between can then vouch for tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Signature algorithms that are accepted (RFC 7518, RFC 8037).
    #[serde(default = "algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// How far the server's clock may be off: `iat` must lie between the question and the answer. At most 60s.
    #[serde(default = "secs::<30>")]
    pub clock_skew: Timespan,
}

/// How an authority is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuthorityKind {
    /// OAuth 2.0 Token Introspection (RFC 7662).
    Introspection,
    /// Kubernetes `TokenReview`. The gateway's account needs `create` on `tokenreviews`.
    TokenReview,
    /// `OpenShift` `users/~`: the token itself asks for its user, and needs the scope `user:info`.
    OpenshiftUser,
}

/// How a client proves who it is (RFC 6749 section 2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthentication {
    /// In the `Authorization` header.
    #[default]
    ClientSecretBasic,
    /// In the form.
    ClientSecretPost,
}

impl ClientAuthentication {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
