//! JSON Web Tokens in compact serialization (RFC 7519, RFC 7515 §7.1), read strictly (RFC 8725).
//!
//! The key decides the algorithm: a token's `alg` only has to agree with the issuer's allow list and with the
//! key it names. `jwk`, `jku`, `x5u` and `x5c` are not looked at, let alone fetched.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

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

/// The longest token looked at, in bytes.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// A token of sound form that nobody has vouched for yet.
pub struct Unverified<'a> {
    /// What the signature covers: header, dot, payload, as sent.
    signed: &'a [u8],
    signature: Vec<u8>,
    algorithm: Algorithm,
    kid: Option<Box<str>>,
    typ: Typ,
    typ_text: Option<Box<str>>,
    issuer: Box<str>,
    payload: Document,
}

/// Claims that a key vouches for; nothing else is known of them.
#[derive(Clone, Copy)]
pub struct Signed<'t> {
    /// `typ` of the header, as sent.
    pub typ: Option<&'t str>,
    /// `kid` of the header: which key that is, if the token says.
    pub key: Option<&'t str>,
    /// The payload, an object.
    pub claims: Value<'t>,
}

/// What a token follows from: each of these may be taken back before it expires, and the token with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lineage<'t> {
    /// `jti`: itself.
    pub token: Option<&'t str>,
    /// `family`: the authorization it was granted by, as Postern's own provider tells it.
    pub family: Option<&'t str>,
    /// `sid`: the session it was granted in.
    pub session: Option<&'t str>,
    /// `sub`, where that is a user; `None` for a client that speaks for itself.
    pub user: Option<&'t str>,
    /// `client_id`, or `azp`: who got it.
    pub client: Option<&'t str>,
    /// `kid` of the header: the key it is signed with.
    pub key: Option<&'t str>,
    /// `email`, verified or not.
    pub email: Option<&'t str>,
    /// `iat`. One that does not tell was made before everything.
    pub issued_at: Timestamp,
    /// `read_at`: when what it was granted on was read, in the time of its issuer's log; Postern's own provider tells it.
    pub read_at: Option<Timestamp>,
}

impl<'t> Lineage<'t> {
    /// Of claims, or of an introspection's members, which have the same names. `key`: what they are signed with.
    pub fn of(claims: Value<'t>, key: Option<&'t str>) -> Self {
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
        }
    }

    /// What a revocation of everything so far is compared with, by those who follow the log of Postern's own provider. `iat` has whole
    /// seconds, comes from another clock, and is later than what the token was granted on: it is for want of anything better.
    pub fn in_time_of_log(&self) -> Timestamp {
        self.read_at.unwrap_or(self.issued_at)
    }
}

/// Checks the form of a token: three canonical parts, strict JSON, a header that holds no surprise, and a
/// string `iss` by which its issuer can be found.
pub fn parse(token: &[u8]) -> Result<Unverified<'_>, TokenError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::TooLarge);
    }
    let [header, payload, signature] = split(token)?;
    let header = Header::parse(header)?;
    let payload = object(Part::Payload, payload)?;
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

impl Unverified<'_> {
    /// The `iss` claim, **unverified**: good for choosing whose keys to try, for nothing else.
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

    /// Checks the token against one issuer and its keys, and says what it proves about its holder.
    ///
    /// Of some errors [`Unverified::may_pass_newer_keys`] knows that they need not be the last word.
    pub fn verify(&self, config: &IssuerConfig, keys: &KeySet, now: Timestamp) -> Result<Facts, TokenError> {
        if *self.issuer != *config.issuer() {
            return Err(TokenError::WrongIssuer);
        }
        if !config.algorithms().contains(self.algorithm) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        keys.select(self.kid(), self.algorithm)?.verify(self.signed, &self.signature)?;
        let claims = self.payload.root();
        let validity = claims::check(claims, self.typ, config, now)?;
        let identity = config.mapping().identity(config.name(), claims)?;
        Ok(Facts { identity, expires: validity.expires, not_before: validity.not_before })
    }

    /// What it follows from. As unverified as everything, until [`Unverified::verify`] has found it good.
    pub fn lineage(&self) -> Lineage<'_> {
        Lineage::of(self.payload.root(), self.kid())
    }

    /// Checks the signature alone, and gives the claims it covers. For tokens that are no access tokens, whose readers
    /// check issuer, kind and claims themselves.
    pub fn signed(&self, algorithms: AlgorithmSet, keys: &KeySet) -> Result<Signed<'_>, TokenError> {
        if !algorithms.contains(self.algorithm) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        keys.select(self.kid(), self.algorithm)?.verify(self.signed, &self.signature)?;
        Ok(Signed { typ: self.typ_text.as_deref(), key: self.kid(), claims: self.payload.root() })
    }

    /// Whether the token may be good although [`Unverified::verify`] said `error`, because the issuer's keys are
    /// newer than those it was checked with. A key that is exchanged gets a new `kid`, as a rule; where it has
    /// none, or kept it and changed its algorithm, that shows in tokens that no longer fit. A wrong signature of
    /// a key that the token names is final: it is what a forgery looks like.
    pub fn may_pass_newer_keys(&self, error: &TokenError) -> bool {
        match error {
            TokenError::UnknownKey | TokenError::KeyMismatch => true,
            TokenError::BadSignature => self.kid.is_none(),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Unverified<'_> {
    /// Says nothing of the claims or the signature.
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

/// Base64url in its one canonical form (RFC 7515 §2): were there several spellings of one token, a cache or
/// a deny list keyed by the spelling would not recognise it.
fn decode(part: Part, text: &[u8]) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Base64(part))
}

fn object(part: Part, text: &[u8]) -> Result<Document, TokenError> {
    let document = Document::parse(decode(part, text)?).map_err(|e| TokenError::Json(part, e))?;
    if document.root().is_object() { Ok(document) } else { Err(TokenError::NotAnObject(part)) }
}

/// What a JOSE header may tell us.
struct Header {
    algorithm: Algorithm,
    kid: Option<Box<str>>,
    typ: Option<Box<str>>,
}

impl Header {
    fn parse(text: &[u8]) -> Result<Self, TokenError> {
        let document = object(Part::Header, text)?;
        let header = document.root();
        // Any `crit`, empty ones too: an extension the sender calls critical is one we do not know.
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
