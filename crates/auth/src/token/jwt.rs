//! JSON Web Tokens in compact serialization (RFC 7519, RFC 7515 §7.1), parsed strictly (RFC 8725).
//!
//! The key decides the algorithm: a token's `alg` only has to be in the issuer's allow list and
//! match the key that the token names. `jwk`, `jku`, `x5u` and `x5c` are neither read nor fetched.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, Engine as _};

use super::claims::{self, Typ};
pub use super::{IssuerConfig, TokenTypes};
use crate::algorithm::{Algorithm, AlgorithmSet};
use crate::identity::Facts;
use crate::json::{Document, Value};
use crate::keyset::KeySet;
use crate::keyset::MAX_KID_BYTES;
use crate::time::Timestamp;
pub use crate::token_error::TokenError;
use crate::token_error::{ClaimError, ClaimFault, Part};

/// Length of the longest accepted token, in bytes.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// A token of valid form whose signature has not been verified.
pub struct Unverified<'a> {
    /// What the signature covers: header, dot, payload, as received.
    signed: &'a [u8],
    signature: Vec<u8>,
    algorithm: Algorithm,
    kid: Option<Box<str>>,
    typ: Typ,
    typ_text: Option<Box<str>>,
    issuer: Box<str>,
    payload: Document,
}

/// Claims whose signature was verified; nothing else was checked.
#[derive(Clone, Copy)]
pub struct SignedClaims<'t> {
    /// The header's `typ`, as received.
    pub typ: Option<&'t str>,
    /// The header's `kid`: the key that signed, if the token names it.
    pub key: Option<&'t str>,
    /// The payload, which is an object.
    pub claims: Value<'t>,
}

/// What a token depends on: each of these may be revoked before the token expires, and the token
/// with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lineage<'t> {
    /// `jti`: the token itself.
    pub token: Option<&'t str>,
    /// `family`: the authorization by which it was granted, as Postern's own provider states it.
    pub family: Option<&'t str>,
    /// `sid`: the session in which it was granted.
    pub session: Option<&'t str>,
    /// `sub`, if that is a user; `None` for a client that acts for itself.
    pub user: Option<&'t str>,
    /// `client_id`, or `azp`: the client that got the token.
    pub client: Option<&'t str>,
    /// The header's `kid`: the key that signed the token.
    pub key: Option<&'t str>,
    /// `email`, verified or not.
    pub email: Option<&'t str>,
    /// `iat`. A token without it counts as issued before all others.
    pub issued_at: Timestamp,
    /// `read_at`: when the state that the token was granted on was read, in the time of its
    /// issuer's log. Postern's own provider states it.
    pub read_at: Option<Timestamp>,
    /// `revocation_tags`: what `sub` and `sid` stand for in the issuer's log, sealed. Postern's own
    /// provider states it where these are pairwise identifiers, which its log does not have.
    pub sealed_tags: Option<&'t str>,
}

impl<'t> Lineage<'t> {
    /// The lineage in claims, or in an introspection's members, which have the same names. `key` is
    /// the `kid` of the signing key.
    pub fn from_claims(claims: Value<'t>, key: Option<&'t str>) -> Self {
        let text = |name| claims.get(name).and_then(Value::as_str);
        let client = text("client_id").or_else(|| text("azp"));
        Self {
            token: text("jti"),
            family: text("family"),
            session: text("sid"),
            user: text("sub").filter(|sub| Some(*sub) != client),
            client,
            key,
            email: text("email"),
            issued_at: claims::issued_at(claims),
            read_at: claims::read_at(claims),
            sealed_tags: text("revocation_tags"),
        }
    }

    /// Time that is compared with revocations of everything before a moment, by nodes that follow
    /// the log of Postern's own provider. `iat` is only the fallback: it has whole seconds, comes
    /// from another clock, and is later than the state that the token was granted on.
    pub fn issued_in_log_time(&self) -> Timestamp {
        self.read_at.unwrap_or(self.issued_at)
    }
}

/// Checks the form of a token: three canonical parts, strict JSON, a header without unsupported
/// members, and a string `iss` by which its issuer can be found.
pub fn parse(token: &[u8]) -> Result<Unverified<'_>, TokenError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::TooLarge);
    }
    let [header, payload, signature] = split(token)?;
    let header = Header::parse(header)?;
    let payload = parse_object(Part::Payload, payload)?;
    let issuer = payload.root().get("iss").ok_or_else(|| ClaimError::new("iss", ClaimFault::Missing))?;
    let issuer = issuer.as_str().ok_or_else(|| ClaimError::new("iss", ClaimFault::NotA("a string")))?.into();
    Ok(Unverified {
        signed: &token[..token.len() - signature.len() - 1],
        signature: decode(Part::Signature, signature)?,
        algorithm: header.algorithm,
        kid: header.kid,
        typ: Typ::from_header(header.typ.as_deref()),
        typ_text: header.typ,
        issuer,
        payload,
    })
}

/// The issuer that a text with the parts of a JWT names, however malformed the rest of it is. It
/// shows for whom a token is meant, and nothing else.
pub fn named_issuer(token: &[u8]) -> Option<String> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::URL_SAFE,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let payload = LENIENT.decode(token.split(|byte| *byte == b'.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&payload).ok()?;
    Some(claims.get("iss")?.as_str()?.to_owned())
}

impl Unverified<'_> {
    /// The `iss` claim, **unverified**: use it only to choose the keys to try.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The `kid` of the header, unverified and opaque.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The `alg` of the header, unverified.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Verifies the token against one issuer and its keys, and returns what it proves about its
    /// holder.
    ///
    /// Some errors may be due to an old key set: see [`Unverified::may_pass_newer_keys`].
    pub fn verify(&self, config: &IssuerConfig, keys: &KeySet, now: Timestamp) -> Result<Facts, TokenError> {
        if !config.is_issuer(&self.issuer) {
            return Err(TokenError::WrongIssuer);
        }
        if !config.algorithms().contains(self.algorithm) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        keys.select(self.kid(), self.algorithm)?.verify(self.signed, &self.signature)?;
        let claims = self.payload.root();
        self.check_tenant(config, claims)?;
        let validity = claims::check(claims, self.typ, config, now)?;
        let identity = config.mapping().identity(config.name(), claims)?;
        Ok(Facts { identity, expires: validity.expires, not_before: validity.not_before })
    }

    /// Checks that a token of an issuer with many tenants, which share their keys, is of the tenant
    /// that its `iss` names.
    fn check_tenant(&self, config: &IssuerConfig, claims: Value<'_>) -> Result<(), TokenError> {
        if !config.has_tenants() {
            return Ok(());
        }
        let tenant = claims::string(claims, "tid")?;
        let tenant = tenant.ok_or_else(|| ClaimError::new("tid", ClaimFault::Missing))?;
        match config.tenant(&self.issuer) {
            Some(named) if named == tenant => Ok(()),
            Some(_) => Err(ClaimError::new("tid", ClaimFault::Contradicts("iss")).into()),
            None => Err(TokenError::WrongIssuer),
        }
    }

    /// A claim with groups that the identity of the holder lacks in part
    /// ([`ClaimMapping::partial_groups`](crate::mapping::ClaimMapping::partial_groups)). Unverified
    /// until [`Unverified::verify`] has succeeded.
    pub fn partial_groups<'c>(&self, config: &'c IssuerConfig) -> Option<&'c str> {
        config.mapping().partial_groups(self.payload.root())
    }

    /// What the token depends on. Unverified until [`Unverified::verify`] has succeeded.
    pub fn lineage(&self) -> Lineage<'_> {
        Lineage::from_claims(self.payload.root(), self.kid())
    }

    /// Verifies only the signature, and returns the claims that it covers. For tokens that are not
    /// access tokens, whose readers check issuer, kind and claims themselves.
    pub fn signed(&self, algorithms: AlgorithmSet, keys: &KeySet) -> Result<SignedClaims<'_>, TokenError> {
        if !algorithms.contains(self.algorithm) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        keys.select(self.kid(), self.algorithm)?.verify(self.signed, &self.signature)?;
        Ok(SignedClaims { typ: self.typ_text.as_deref(), key: self.kid(), claims: self.payload.root() })
    }

    /// Whether the token may be valid although [`Unverified::verify`] returned `error`, since the
    /// issuer's keys may be newer than the key set. A rotated key usually gets a new `kid`. If it
    /// has no `kid`, or kept it and changed its algorithm, tokens no longer fit the old set. A
    /// wrong signature for a key that the token names is final: a forgery looks like this.
    pub fn may_pass_newer_keys(&self, error: &TokenError) -> bool {
        match error {
            TokenError::UnknownKey | TokenError::KeyMismatch => true,
            TokenError::BadSignature => self.kid.is_none(),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Unverified<'_> {
    /// Shows nothing of the claims or the signature.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unverified").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The three parts between the dots.
fn split(token: &[u8]) -> Result<[&[u8]; 3], TokenError> {
    let mut parts = token.split(|b| *b == b'.');
    let found = [parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next()];
    match found {
        [Some(header), Some(payload), Some(signature), None, ..] => Ok([header, payload, signature]),
        [_, _, _, _, Some(_), None] => Err(TokenError::Encrypted),
        _ => Err(TokenError::NotJwt),
    }
}

/// Base64url in its one canonical form (RFC 7515 §2). If a token had several spellings, a cache or
/// denylist that is keyed by the spelling would not recognize it.
fn decode(part: Part, text: &[u8]) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Base64(part))
}

fn parse_object(part: Part, text: &[u8]) -> Result<Document, TokenError> {
    let document = Document::parse(decode(part, text)?).map_err(|e| TokenError::Json(part, e))?;
    if document.root().is_object() { Ok(document) } else { Err(TokenError::NotAnObject(part)) }
}

/// The members of a JOSE header that are used.
struct Header {
    algorithm: Algorithm,
    kid: Option<Box<str>>,
    typ: Option<Box<str>>,
}

impl Header {
    fn parse(text: &[u8]) -> Result<Self, TokenError> {
        let document = parse_object(Part::Header, text)?;
        let header = document.root();
        // Any `crit`, even an empty one: no extension that a sender could call critical is
        // supported.
        if header.get("crit").is_some() {
            return Err(TokenError::Critical);
        }
        if header.get("b64").is_some() {
            return Err(TokenError::UnencodedPayload);
        }
        let algorithm = algorithm(member(header, "alg")?.ok_or(TokenError::HeaderMember("alg"))?)?;
        let kid = member(header, "kid")?;
        if kid.is_some_and(|kid| kid.len() > MAX_KID_BYTES) {
            return Err(TokenError::KidTooLong);
        }
        let typ = member(header, "typ")?;
        Ok(Self { algorithm, kid: kid.map(Into::into), typ: typ.map(Into::into) })
    }
}

fn member<'d>(header: Value<'d>, name: &'static str) -> Result<Option<&'d str>, TokenError> {
    let Some(value) = header.get(name) else { return Ok(None) };
    value.as_str().map(Some).ok_or(TokenError::HeaderMember(name))
}

fn algorithm(name: &str) -> Result<Algorithm, TokenError> {
    Algorithm::from_name(name).ok_or_else(|| match name {
        n if n.eq_ignore_ascii_case("none") => TokenError::Unsigned,
        "HS256" | "HS384" | "HS512" => TokenError::Symmetric,
        _ => TokenError::UnsupportedAlgorithm,
    })
}
