//! Token errors: everything that can be wrong with a token, one variant each. All of them deny.

use super::json::JsonError;

/// One of the three parts of a compact JWS (RFC 7515 §7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The JOSE header.
    Header,
    /// The payload with the claims.
    Payload,
    /// The signature over header and payload.
    Signature,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Payload => "payload",
            Self::Signature => "signature",
        })
    }
}

/// Why a token was refused. It contains nothing of the token but member names known beforehand, so
/// that it may be logged and cached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    // Form: errors that are found without keys or queries.
    /// The token is longer than [`crate::token::jwt::MAX_TOKEN_BYTES`].
    #[error("token is longer than 16 KiB")]
    TooLarge,
    /// The token does not have the form `header.payload.signature`: it is an opaque token, or no
    /// token at all.
    #[error("credential is not a compact JWS of three parts; is it an opaque token?")]
    NotJwt,
    /// The token is a JWE (five parts, RFC 7516 §7.1); encrypted tokens are not supported.
    #[error("token is encrypted (JWE); configure the issuer to send signed tokens")]
    Encrypted,
    /// A part is not canonical base64url: padding, a foreign character, or stray trailing bits.
    #[error("token {0} is not canonical unpadded base64url")]
    Base64(Part),
    /// A part is not strict JSON.
    #[error("token {0} is {1}")]
    Json(Part, JsonError),
    /// A part is JSON, but not an object.
    #[error("token {0} is not a JSON object")]
    NotAnObject(Part),
    /// A header member is missing or has the wrong type.
    #[error("token header member `{0}` is missing or not a string")]
    HeaderMember(&'static str),
    /// `alg` is `none`, in any letter case (RFC 8725 §3.2).
    #[error("token is unsigned (`alg` is none)")]
    Unsigned,
    /// `alg` is an HMAC: a party that can verify it can also forge it, and a public key is not
    /// secret.
    #[error("token is signed with a shared secret (`alg` is HS*); only public-key signatures are accepted")]
    Symmetric,
    /// `alg` is not one of [`crate::algorithm::Algorithm`].
    #[error("token is signed with an unsupported `alg`")]
    UnsupportedAlgorithm,
    /// The header has `crit` (RFC 7515 §4.1.11), and no extension is supported.
    #[error("token header has `crit`; no critical extension is supported")]
    Critical,
    /// The header has `b64` (RFC 7797).
    #[error("token header has `b64`; unencoded payloads are not supported")]
    UnencodedPayload,
    /// `kid` is longer than [`crate::keyset::MAX_KID_BYTES`].
    #[error("token header member `kid` is longer than 256 bytes")]
    KidTooLong,

    // Issuer, key and signature.
    /// `iss` is not exactly the configured issuer.
    #[error("token is from another issuer")]
    WrongIssuer,
    /// `alg` is not in the issuer's allow list.
    #[error("token algorithm is not allowed for this issuer")]
    AlgorithmNotAllowed,
    /// No key has the token's `kid`, or, without `kid`, no key fits `alg`. The key set may be out
    /// of date (see [`crate::token::jwt::Unverified::may_pass_newer_keys`]).
    #[error("token names a key that the issuer's key set does not have")]
    UnknownKey,
    /// The token has no `kid`, and several keys fit.
    #[error("token names no key (`kid`), and several keys of the issuer fit its algorithm")]
    AmbiguousKey,
    /// The key that the token names is for another algorithm. The key set may be out of date.
    #[error("token algorithm does not fit the key it names")]
    KeyMismatch,
    /// The signature was not made by this key over these bytes. If the token names no key, the key
    /// set may be out of date.
    #[error("token signature is wrong")]
    BadSignature,

    // Content of the signed claims.
    /// The header's `typ` is not accepted.
    #[error("token type (`typ`) is not accepted for this issuer")]
    WrongType,
    /// A claim shows that this is an ID token, a logout token, a request object, a refresh token or
    /// the like.
    #[error("token is not an access token, as its claim `{0}` shows")]
    NotAnAccessToken(&'static str),
    /// A claim shows that this is not an ID token, which was expected.
    #[error("token is not an id token, as its claim `{0}` shows")]
    NotAnIdToken(&'static str),
    /// A claim shows that this is not a logout token, which was expected.
    #[error("token is not a logout token, as its claim `{0}` shows")]
    NotALogoutToken(&'static str),
    /// A claim shows that this is not a security event token, which was expected.
    #[error("token is not a security event token, as its claim `{0}` shows")]
    NotASecurityEvent(&'static str),
    /// A security event names its subject in a way that is not supported; the text says why.
    #[error("the subject of the event is not supported: {0}")]
    UnsupportedSubject(&'static str),
    /// The ID token answers another login request.
    #[error("token belongs to another login: its `nonce` does not match")]
    WrongNonce,
    /// The token is bound to a key of its holder (`cnf`, RFC 7800). Presented as a bearer token it
    /// proves nothing (RFC 8705 §3, RFC 9449 §7.2).
    #[error("token is bound to a key (`cnf`) and cannot be used as a bearer token")]
    SenderConstrained,
    /// A claim is missing or unusable.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// `aud` names none of the accepted audiences.
    #[error("token is for another audience")]
    WrongAudience,
    /// The token authority says that the token is not active: it was never issued, has expired, or
    /// was revoked.
    #[error("token is not active")]
    Inactive,
    /// The signature is valid, but the issuer has revoked the token, or something that it depends
    /// on.
    #[error("token was revoked")]
    Revoked,
    /// The token has expired: now ≥ `exp` + skew.
    #[error("token is expired")]
    Expired,
    /// The token is not valid yet: now < `nbf` − skew.
    #[error("token is not yet valid; compare the issuer's clock with this host's")]
    NotYetValid,
    /// The named claim is in the future: now < `iat` − skew, or the same for another time that must
    /// be in the past.
    #[error("token claim `{0}` is in the future; compare the issuer's clock with this host's")]
    InFuture(&'static str),
}

impl TokenError {
    /// A stable identifier for logs and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotJwt => "not_jwt",
            Self::Encrypted => "encrypted",
            Self::Base64(_) => "bad_base64",
            Self::Json(_, JsonError::NotUtf8) => "bad_utf8",
            Self::Json(_, JsonError::Syntax) => "bad_json",
            Self::Json(_, JsonError::DuplicateMember) => "duplicate_member",
            Self::Json(_, JsonError::TooDeep) => "too_deep",
            Self::NotAnObject(_) => "not_an_object",
            Self::HeaderMember(_) => "bad_header",
            Self::Unsigned => "alg_none",
            Self::Symmetric => "alg_symmetric",
            Self::UnsupportedAlgorithm => "alg_unsupported",
            Self::Critical => "crit",
            Self::UnencodedPayload => "b64",
            Self::KidTooLong => "kid_too_long",
            Self::WrongIssuer => "wrong_issuer",
            Self::AlgorithmNotAllowed => "alg_not_allowed",
            Self::UnknownKey => "unknown_key",
            Self::AmbiguousKey => "ambiguous_key",
            Self::KeyMismatch => "key_mismatch",
            Self::BadSignature => "bad_signature",
            Self::WrongType => "wrong_type",
            Self::NotAnAccessToken(_) => "not_an_access_token",
            Self::NotAnIdToken(_) => "not_an_id_token",
            Self::NotALogoutToken(_) => "not_a_logout_token",
            Self::NotASecurityEvent(_) => "not_a_security_event",
            Self::UnsupportedSubject(_) => "unsupported_subject",
            Self::WrongNonce => "wrong_nonce",
            Self::SenderConstrained => "sender_constrained",
            Self::Claim(ClaimError { fault: ClaimFault::Missing, .. }) => "missing_claim",
            Self::Claim(_) => "bad_claim",
            Self::WrongAudience => "wrong_audience",
            Self::Inactive => "inactive",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::InFuture(_) => "in_future",
        }
    }
}

/// A claim (or certificate field) that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("claim `{claim}` {fault}")]
pub struct ClaimError {
    /// Name of the claim, or its path as the configuration spells it.
    pub claim: Box<str>,
    /// What is wrong with it.
    pub fault: ClaimFault,
}

impl ClaimError {
    /// A fault of the claim with this name.
    pub fn new(claim: &str, fault: ClaimFault) -> Self {
        Self { claim: claim.into(), fault }
    }
}

/// Fault of a claim or certificate field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimFault {
    /// It is required, and absent or empty.
    #[error("is missing")]
    Missing,
    /// It has another JSON type than the one named.
    #[error("is not {0}")]
    NotA(&'static str),
    /// It is a date after the year 9999: most likely in milliseconds, where RFC 7519 requires
    /// seconds.
    #[error("is beyond the year 9999; numeric dates are in seconds")]
    OutOfRange,
    /// It is a number too large to be distinguished from its neighbours.
    #[error("is a number without an exact value")]
    Inexact,
    /// It has a control character, which could break a header or a log line.
    #[error("contains a control character")]
    Control,
    /// It starts or ends with white space, which header parsers remove: `"root "` would arrive as
    /// `"root"`.
    #[error("starts or ends with white space")]
    Padded,
    /// It is a text longer than [`crate::mapping::MAX_VALUE_BYTES`].
    #[error("is longer than 1024 bytes")]
    TooLong,
    /// It has more values than [`crate::mapping::MAX_VALUES`].
    #[error("has more than 512 values")]
    TooMany,
    /// It has several values where exactly one is required.
    #[error("has several values where one is wanted")]
    Ambiguous,
    /// It says something else than the claim named.
    #[error("contradicts `{0}`")]
    Contradicts(&'static str),
    /// It is not of the form `local@domain` with exactly one `@`.
    #[error("is not an e-mail address with exactly one `@`")]
    NotAnAddress,
}
