//! Tables of `[[issuer]]` and `[client_certificates]`: what authenticates callers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Name, Timespan};
use super::default::secs;

/// Issuer of JSON Web Tokens. Its keys come from its discovery document unless `jwks_uri` or
/// `jwks_file` is set.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// Name of the issuer in rules, logs and metrics.
    pub name: Name,
    /// Exact value of the tokens' `iss` claim. Without `jwks_uri` and `jwks_file`, it is also the
    /// base URL for discovery: the document of OIDC discovery, or else that of RFC 8414. For
    /// applications of several tenants of Microsoft Entra ID, `{tenantid}` stands for the tenant,
    /// such as `https://login.microsoftonline.com/{tenantid}/v2.0`; it must also be the token's
    /// `tid` claim. Discovery then uses `common` in its place.
    pub issuer: String,
    /// Tenants whose tokens are accepted, if `issuer` contains `{tenantid}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// Confirms that tokens of every tenant are accepted. Danger: everyone with an account of any
    /// organization then has a valid token; rules must not allow all users of this issuer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_tenant: bool,
    /// Audiences, one of which a token's `aud` claim must contain.
    #[schemars(length(min = 1))]
    pub audiences: Vec<String>,
    /// Claim that contains the audience, if it is not `aud`. For access tokens of Amazon Cognito:
    /// `client_id`. Danger: a client ID says who requested a token, not for which service. Tokens
    /// that these clients got for other services are then accepted too.
    #[serde(default = "audience_claim", skip_serializing_if = "is_aud")]
    pub audience_claim: String,
    /// Whether ID tokens are accepted like access tokens, as kubectl and kubelogin send them. Needed
    /// for Dex, whose access tokens have the form of ID tokens (`at_hash`). Danger: everyone to whom
    /// a client of these audiences shows its user's ID token can then act as that user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub id_tokens: bool,
    /// URL of the issuer's key set (JWKS), instead of discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// File with the issuer's key set (JWKS), instead of discovery. Read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// PEM file with the certificate authorities that verify the issuer's server certificate.
    /// Default: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Confirms that fetching keys over plain `http` from another machine is intended. An attacker
    /// on the network can then issue tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Signature algorithms that are accepted (RFC 7518, RFC 8037).
    #[serde(default = "algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// Which tokens count as access tokens, by the `typ` of their header. The prefix `application/`
    /// makes no difference. Logout tokens and request objects never count, and ID tokens only with
    /// `id_tokens`.
    #[serde(default)]
    pub token_types: TokenTypes,
    /// Clock skew of the issuer that is tolerated when `exp` and `nbf` are checked. At most 60s.
    #[serde(default = "secs::<30>")]
    pub clock_skew: Timespan,
    /// How often keys are fetched. A token that may need newer keys also triggers a fetch, at most
    /// once in 10s. At least 10s.
    #[serde(default = "secs::<300>")]
    pub refresh: Timespan,
    /// How long the last valid keys may be used while fetching fails. At least `refresh`.
    #[serde(default = "secs::<3600>")]
    pub max_stale: Timespan,
    /// Revocations of this issuer, which must be a Postern provider in another process. The gateway
    /// then follows them and refuses a revoked token at once. It receives them over HTTP, and over
    /// a broker if `[revocation]` names one. The provider in this process needs no entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<IssuerRevocation>,
    /// Claims that identify the caller.
    #[serde(default)]
    pub claims: Claims,
}

fn audience_claim() -> String {
    "aud".into()
}

fn is_aud(claim: &str) -> bool {
    claim == "aud"
}

impl Issuer {
    /// A signer that is no issuer of access tokens: the keys that say so have their defaults.
    pub(crate) fn signer(name: Name, issuer: String, audiences: Vec<String>) -> Self {
        Self {
            name,
            issuer,
            tenants: Vec::new(),
            any_tenant: false,
            audiences,
            audience_claim: audience_claim(),
            id_tokens: false,
            jwks_uri: None,
            jwks_file: None,
            ca: None,
            insecure_http: false,
            algorithms: algorithms(),
            token_types: TokenTypes::default(),
            clock_skew: secs::<30>(),
            refresh: secs::<300>(),
            max_stale: secs::<3600>(),
            revocation: None,
            claims: Claims::default(),
        }
    }
}

/// Default of the accepted signature algorithms.
pub(super) fn algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA]
}

/// Which tokens count as access tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenTypes {
    /// Only `at+jwt`, with every claim that RFC 9068 requires: also `sub`, `client_id`, `jti` and
    /// `iat`.
    Rfc9068,
    /// `at+jwt` or `JWT`: for providers older than RFC 9068, such as Keycloak.
    #[default]
    Jwt,
    /// `at+jwt`, `JWT`, or no `typ` at all.
    Untyped,
}

/// Where the revocations of an issuer come from.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerRevocation {
    /// File with the output of `postern admin revocation secret` at the issuer.
    pub secret_file: PathBuf,
    /// URL for revocation queries, if it is not the issuer's own URL: any node of the provider, up
    /// to the issuer's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Signature algorithm of a token.
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

/// Claims that identify the caller. A dot selects a member of an object: `realm_access.roles`. A
/// name that contains dots is written as a JSON pointer (RFC 6901):
/// `/resource_access/my.client/roles`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Claims {
    /// Stable identifier of the caller. A token without it is refused.
    pub subject: String,
    /// User name of the caller. The first claim that exists counts.
    pub user: Vec<String>,
    /// E-mail address of the caller. Empty: none is used.
    pub email: String,
    /// Whether the address is ignored unless `email_verified` is true.
    pub email_must_be_verified: bool,
    /// Groups and roles of the caller. The values of several claims are joined.
    pub groups: Vec<String>,
    /// OAuth scopes, as an array or as one string with spaces. The values of several claims are
    /// joined.
    pub scopes: Vec<String>,
    /// OAuth client that the token was issued to. The first claim that exists counts.
    pub client: Vec<String>,
    /// Further claims to keep for headers and the assertion. Claims that rules name are kept in any
    /// case.
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

/// TLS client certificates as a credential. A verified certificate identifies the caller unless the
/// client also sends a bearer token. Then the token alone counts, and an invalid token refuses the
/// request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// Name of this credential in rules, logs and metrics, in place of an issuer's name.
    #[serde(default = "certificate_name")]
    pub name: Name,
    /// Part of the certificate that is the caller's subject. It must occur exactly once.
    #[serde(default)]
    pub subject: SubjectPart,
    /// Part of the certificate that is the user name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<CertificatePart>,
    /// Parts of the certificate that are groups. Kubernetes uses `subject_o`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<CertificatePart>,
    /// Further parts to keep, as claims with that name. Parts that rules name as claims are kept in
    /// any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<CertificatePart>,
}

fn certificate_name() -> Name {
    Name("certificate".into())
}

/// Part of a certificate that identifies its holder.
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

/// Part of a certificate.
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
