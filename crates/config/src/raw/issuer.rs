//! Who may vouch for callers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::secs;

/// An issuer of JSON Web Tokens. Its keys come from its discovery document unless `jwks_uri` or `jwks_file`
/// says otherwise.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// What rules, logs and metrics call it.
    pub name: Name,
    /// Exact value of the tokens' `iss` claim. Without `jwks_uri` and `jwks_file` also where discovery starts:
    /// the document of OIDC discovery, or else that of RFC 8414.
    pub issuer: String,
    /// A token's `aud` claim must contain one of these.
    #[schemars(length(min = 1))]
    pub audiences: Vec<String>,
    /// URL of the issuer's key set (JWKS), instead of discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// File with the issuer's key set (JWKS), instead of discovery. Read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// PEM file with the authorities that the issuer's server certificate must come from. Absent: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Says that fetching keys over plain `http` from another machine is meant: whoever sits in between can
    /// then issue tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Signature algorithms that are accepted (RFC 7518, RFC 8037).
    #[serde(default = "algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// Which tokens count as access tokens, by their header's `typ` (`application/` before it is the same). ID tokens, logout tokens and request
    /// objects never do.
    #[serde(default)]
    pub token_types: TokenTypes,
    /// How far the issuer's clock may be off when `exp` and `nbf` are checked. At most 60s.
    #[serde(default = "secs::<30>")]
    pub clock_skew: Timespan,
    /// How often keys are fetched without being asked for. A token that newer keys might fit asks, at
    /// most once in 10s. At least 10s.
    #[serde(default = "secs::<300>")]
    pub refresh: Timespan,
    /// How long the last good keys may be used while fetching fails. At least `refresh`.
    #[serde(default = "secs::<3600>")]
    pub max_stale: Timespan,
    /// Follow what this issuer revokes, which must be a Postern provider elsewhere: file with what `postern admin follow-secret` prints
    /// there. Its tokens are then refused at once when they are revoked: it is listened to over HTTP, and over a broker where
    /// `[coherence]` names one. The provider in this process is followed by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_secret_file: Option<PathBuf>,
    /// Where it is asked what is revoked, if not at the issuer's own URL: any of its nodes, up to the issuer's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_url: Option<String>,
    /// Which claims say who the caller is.
    #[serde(default)]
    pub claims: Claims,
}

/// Those that are accepted unless others are named.
pub(super) fn algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA]
}

/// Which tokens count as access tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenTypes {
    /// `at+jwt` alone, with every claim that RFC 9068 demands: `sub`, `client_id`, `jti` and `iat` too.
    Rfc9068,
    /// `at+jwt` or `JWT`: for providers older than RFC 9068, Keycloak among them.
    #[default]
    Jwt,
    /// `at+jwt`, `JWT`, or no `typ` at all.
    Untyped,
}

/// A signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "registered names, RFC 7518 section 3.1 and RFC 8037")]
pub enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    ES512,
    EdDSA,
}

/// Which claims say who the caller is. A dot reaches into an object: `realm_access.roles`. A name with dots of
/// its own is written as a JSON pointer (RFC 6901): `/resource_access/my.client/roles`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Claims {
    /// Stable identifier of the caller. A token without it is refused.
    pub subject: String,
    /// Name that people know the caller by; the first claim that is there counts.
    pub user: Vec<String>,
    /// E-mail address. Empty: none is taken.
    pub email: String,
    /// Whether the address is ignored unless `email_verified` is true.
    pub email_must_be_verified: bool,
    /// Groups and roles; several claims are joined.
    pub groups: Vec<String>,
    /// OAuth scopes, as an array or in one string with spaces; several claims are joined.
    pub scopes: Vec<String>,
    /// OAuth client the token was issued to; the first claim that is there counts.
    pub client: Vec<String>,
    /// Further claims to keep for headers and the assertion. Claims that rules name are kept anyway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            subject: "sub".into(),
            user: vec!["preferred_username".into()],
            email: "email".into(),
            email_must_be_verified: true,
            groups: vec!["groups".into()],
            scopes: vec!["scope".into(), "scp".into()],
            client: vec!["client_id".into(), "azp".into()],
            keep: Vec::new(),
        }
    }
}

/// TLS client certificates as a credential. A verified certificate names its holder, unless a bearer token is
/// sent along: then the token alone says who calls, and a faulty one refuses the request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// What rules, logs and metrics call this way to vouch, in place of an issuer.
    #[serde(default = "certificate_name")]
    pub name: Name,
    /// Which part of the certificate is the caller's subject. It must be there exactly once.
    #[serde(default)]
    pub subject: SubjectPart,
    /// Which part is the user name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<CertificatePart>,
    /// Which parts are groups; Kubernetes uses `subject_o`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<CertificatePart>,
    /// Further parts to keep, as claims of that name. Parts that rules name as claims are kept anyway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<CertificatePart>,
}

fn certificate_name() -> Name {
    Name("certificate".into())
}

/// A part of a certificate that tells holders apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectPart {
    /// The URI in the subject alternative name, such as a SPIFFE ID.
    SanUri,
    /// The DNS name in the subject alternative name.
    SanDns,
    /// The e-mail address in the subject alternative name.
    SanEmail,
    /// The common name of the subject.
    #[default]
    SubjectCn,
    /// The whole subject (RFC 4514).
    SubjectDn,
}

/// A part of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificatePart {
    /// URIs in the subject alternative name.
    SanUri,
    /// DNS names in the subject alternative name.
    SanDns,
    /// E-mail addresses in the subject alternative name.
    SanEmail,
    /// Common names of the subject.
    SubjectCn,
    /// The whole subject (RFC 4514).
    SubjectDn,
    /// Organizations of the subject.
    SubjectO,
    /// Organizational units of the subject.
    SubjectOu,
    /// The whole issuer (RFC 4514).
    IssuerDn,
}
