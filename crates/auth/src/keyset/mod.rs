//! Key set: the public keys of one issuer (JWKS, RFC 7517), parsed once, so that verification does
//! not parse.
//!
//! Owns: reading a key set, skipping keys that cannot or must not be used, and choosing the key for
//! a token. Does not own: fetching, refreshing, keeping the last valid set.
//!
//! A key here has exactly one algorithm. Whatever the token says, only a key with that algorithm is
//! ever tried, so a header cannot cause another algorithm to be used.

mod jwk;

use std::fmt;

use aws_lc_rs::signature::ParsedPublicKey;

use crate::algorithm::Algorithm;
use crate::json::{Document, JsonError, Value};
use crate::token_error::TokenError;

/// Length of the longest accepted `kid`, in bytes, in tokens and key sets.
pub const MAX_KID_BYTES: usize = 256;

/// Size of the largest accepted key set, in bytes.
pub const MAX_KEY_SET_BYTES: usize = 256 * 1024;
/// Most keys that a set may have.
pub const MAX_KEYS: usize = 100;

/// The usable keys of a set.
#[derive(Default)]
pub struct KeySet {
    /// Sorted by `kid` and algorithm; keys without `kid` come first.
    keys: Vec<Key>,
}

/// A key for one algorithm.
pub(crate) struct Key {
    kid: Option<Box<str>>,
    algorithm: Algorithm,
    public: ParsedPublicKey,
}

/// Why a whole key set was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The text is larger than [`MAX_KEY_SET_BYTES`].
    #[error("key set is larger than 256 KiB")]
    TooLarge,
    /// The text is not strict JSON.
    #[error("key set is {0}")]
    Json(#[from] JsonError),
    /// The text is not an object with an array `keys` (RFC 7517 §5).
    #[error("key set is not an object with an array `keys`")]
    NoKeys,
    /// The set has more keys than [`MAX_KEYS`].
    #[error("key set has more than 100 keys")]
    TooMany,
}

/// A key of the set that is not used. Unless that is normal ([`SkippedKey::is_normal`]) it is worth
/// logging: tokens signed with it are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedKey {
    /// Its position in the `keys` array, from 0.
    pub index: usize,
    /// Its `kid`, if it has a usable one.
    pub kid: Option<Box<str>>,
    /// Why the key is not used.
    pub reason: SkipReason,
}

impl SkippedKey {
    /// Whether it is normal that the key is not used: it is not for signatures at all.
    pub fn is_normal(&self) -> bool {
        self.reason == SkipReason::Encryption
    }
}

impl fmt::Display for SkippedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} ", self.index)?;
        if let Some(kid) = &self.kid {
            write!(f, "(kid {kid:?}) ")?;
        }
        self.reason.fmt(f)
    }
}

/// Why a key is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// The element is not a JSON object.
    #[error("is not an object")]
    NotAnObject,
    /// A member is missing, or has the wrong type.
    #[error("has no usable member `{0}`")]
    Member(&'static str),
    /// A member is not base64url, or does not have the required length.
    #[error("has a member `{0}` that is not base64url of the proper length")]
    Encoding(&'static str),
    /// `kid` is longer than [`crate::keyset::MAX_KID_BYTES`].
    #[error("has a `kid` longer than 256 bytes")]
    KidTooLong,
    /// The key is symmetric (`oct`), which must never be in a public key set.
    #[error("is a symmetric key; a secret does not belong in a public key set")]
    Symmetric,
    /// The key has private members: it is compromised by its publication.
    #[error("has private members; replace this key, it is compromised")]
    Private,
    /// The key is for encryption, by its `use`, `key_ops`, `alg` or `crv`. Many issuers publish one
    /// beside their signature keys.
    #[error("is for encryption")]
    Encryption,
    /// `use` is neither `sig` nor `enc`.
    #[error("is not for signatures (`use`)")]
    Use,
    /// `key_ops` does not allow `verify`.
    #[error("is not for verification (`key_ops`)")]
    KeyOps,
    /// `kty` or `crv` is not supported.
    #[error("has an unsupported key type or curve")]
    Unsupported,
    /// `alg` is not a supported signature algorithm, or not one for this type of key.
    #[error("has an `alg` that is unsupported or does not fit the key")]
    Algorithm,
    /// The RSA modulus is outside 2048–8192 bits.
    #[error("is an rsa key of {0} bits, outside 2048 to 8192")]
    RsaSize(usize),
    /// The RSA numbers are not a key, or the point is not on the curve.
    #[error("is not a valid public key")]
    Invalid,
    /// An earlier key has the same `kid` and algorithm.
    #[error("repeats the `kid` of an earlier key; the first one is used")]
    Duplicate,
}

impl KeySet {
    /// Reads a JWK set. Keys that cannot be used are left out and reported. A set without any
    /// usable key is not an error here. The caller decides whether the issuer has withdrawn its
    /// keys, or sent keys that cannot be used.
    pub fn from_jwks_json(json: &[u8]) -> Result<(Self, Vec<SkippedKey>), KeySetError> {
        if json.len() > MAX_KEY_SET_BYTES {
            return Err(KeySetError::TooLarge);
        }
        let document = Document::parse(json.to_vec())?;
        let jwks = document.root().get("keys").and_then(Value::items).ok_or(KeySetError::NoKeys)?;
        if jwks.len() > MAX_KEYS {
            return Err(KeySetError::TooMany);
        }
        let mut set = Self::default();
        let mut skipped = Vec::new();
        for (index, jwk) in jwks.enumerate() {
            if let Err(reason) = jwk::parse(jwk).and_then(|keys| set.add(keys)) {
                skipped.push(SkippedKey { index, kid: jwk::kid(jwk).ok().flatten().map(Into::into), reason });
            }
        }
        Ok((set, skipped))
    }

    /// Adds the forms of one JWK (an RSA key without `alg` has one per algorithm): all of them, or
    /// none.
    fn add(&mut self, keys: Vec<Key>) -> Result<(), SkipReason> {
        // Keys without `kid` are alternatives, not duplicates: a token fits one of them or is
        // ambiguous.
        if keys.iter().any(|key| key.kid.is_some() && self.position(key.kid(), key.algorithm).is_ok()) {
            return Err(SkipReason::Duplicate);
        }
        for key in keys {
            let at = self.position(key.kid(), key.algorithm).unwrap_or_else(|at| at);
            self.keys.insert(at, key);
        }
        Ok(())
    }

    fn position(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<usize, usize> {
        self.keys.binary_search_by(|key| (key.kid(), key.algorithm).cmp(&(kid, algorithm)))
    }

    /// The one key for a token: by `kid`, or, for a token without `kid`, the only key of its
    /// algorithm.
    pub(crate) fn select(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<&Key, TokenError> {
        if kid.is_some() {
            return match self.position(kid, algorithm) {
                Ok(at) => Ok(&self.keys[at]),
                Err(_) if self.keys.iter().any(|key| key.kid() == kid) => Err(TokenError::KeyMismatch),
                Err(_) => Err(TokenError::UnknownKey),
            };
        }
        let mut fitting = self.keys.iter().filter(|key| key.algorithm == algorithm);
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err(TokenError::UnknownKey),
            (Some(_), Some(_)) => Err(TokenError::AmbiguousKey),
        }
    }

    /// Whether the set has no usable key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether this set has every usable key of `other`: the same key, with the same `kid`, for the
    /// same algorithm. Then a key of this set verifies whatever a key of `other` has verified.
    pub fn is_superset_of(&self, other: &Self) -> bool {
        other.keys.iter().all(|key| self.contains_key(key))
    }

    fn contains_key(&self, key: &Key) -> bool {
        let filed = (key.kid(), key.algorithm);
        let first = self.keys.partition_point(|own| (own.kid(), own.algorithm) < filed);
        // Without `kid` there may be several.
        let alike = self.keys[first..].iter().take_while(|own| (own.kid(), own.algorithm) == filed);
        alike.into_iter().any(|own| own.public.as_ref() == key.public.as_ref())
    }

    /// `kid` and algorithm of each usable key; an RSA key without `alg` appears once per algorithm.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = (Option<&str>, Algorithm)> {
        self.keys.iter().map(|key| (key.kid(), key.algorithm))
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys()).finish()
    }
}

impl Key {
    fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Verifies that this key made `signature` over `message`.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), TokenError> {
        self.public.verify_sig(message, signature).map_err(|_| TokenError::BadSignature)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::token::jws::{Signer, SigningAlgorithm, public_jwks};

    fn set(keys: &[Value]) -> KeySet {
        let (set, skipped) = KeySet::from_jwks_json(json!({ "keys": keys }).to_string().as_bytes()).unwrap();
        assert_eq!(skipped, []);
        set
    }

    #[test]
    fn a_set_has_the_keys_of_another_whatever_their_order() {
        let signers = [SigningAlgorithm::Es256, SigningAlgorithm::Es256, SigningAlgorithm::EdDsa]
            .map(|algorithm| Signer::generate(algorithm).unwrap());
        let jwks = public_jwks(&signers);
        let named = jwks["keys"].as_array().unwrap().clone();
        let nameless: Vec<Value> = named
            .iter()
            .map(|jwk| {
                let mut jwk = jwk.clone();
                jwk.as_object_mut().unwrap().remove("kid");
                jwk
            })
            .collect();
        for keys in [&named, &nameless] {
            let all = set(keys);
            let reversed = set(&keys.iter().rev().cloned().collect::<Vec<_>>());
            assert!(all.is_superset_of(&reversed) && reversed.is_superset_of(&all));
            for without in 0..keys.len() {
                let mut fewer = keys.clone();
                fewer.remove(without);
                let fewer = set(&fewer);
                assert!(all.is_superset_of(&fewer) && !fewer.is_superset_of(&all), "{without}");
            }
        }
        assert!(!set(&named).is_superset_of(&set(&nameless)), "by another name");
        let mut exchanged = named.clone();
        exchanged[0]["kid"] = named[1]["kid"].clone();
        exchanged[1]["kid"] = named[0]["kid"].clone();
        assert!(!set(&exchanged).is_superset_of(&set(&named)), "another key by the same name");
    }
}
