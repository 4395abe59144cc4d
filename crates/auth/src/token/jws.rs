//! Signing of tokens: private keys, and compact JWS (RFC 7515 §7.1) signed with them.
//!
//! Owns: signing keys, their PKCS#8 form, their public JWK and its RFC 7638 thumbprint, which is
//! the `kid`. Does not own: the content of a token, where keys are stored, when they are replaced.
//!
//! The crypto library's own generator creates keys and draws ECDSA nonces. The library accepts no
//! other generator, and a predictable one must not be possible here.

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::pem;
use crate::algorithm::Algorithm;

/// The algorithms that tokens are signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SigningAlgorithm {
    /// ECDSA on P-256: fast to sign, small, supported by all clients.
    Es256,
    /// RSA with 2048 bits: fastest to verify, supported by all clients, slow to sign.
    Rs256,
    /// Ed25519: fast and small, not supported by all clients.
    EdDsa,
}

impl SigningAlgorithm {
    /// The corresponding algorithm of verification.
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Es256 => Algorithm::Es256,
            Self::Rs256 => Algorithm::Rs256,
            Self::EdDsa => Algorithm::EdDsa,
        }
    }
}

/// Why a key could not be created or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    /// The text is not PEM with exactly one `PRIVATE KEY` block.
    #[error("key is not pem with one `PRIVATE KEY` block; convert it with `openssl pkcs8 -topk8 -nocrypt`")]
    NotPem,
    /// The key is PKCS#8, but not P-256, Ed25519 or RSA of 2048 to 8192 bits; or it is not PKCS#8
    /// at all.
    #[error("key is not an unencrypted pkcs#8 key of type p-256, ed25519 or rsa of at least 2048 bits")]
    UnsupportedKey,
    /// The crypto library could not generate, export or sign: it has no memory or no randomness.
    #[error("crypto library failed")]
    Crypto,
    /// The claims do not serialize to a JSON object.
    #[error("claims do not form a JSON object")]
    Claims,
    /// A header member that only the signer may set: `alg`, `kid`, `crit`, `b64`.
    #[error("header member is reserved for the signer")]
    ReservedHeader,
}

/// A private key in a form that can be stored; erased when dropped.
pub struct SigningSecret(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for SigningSecret {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

enum KeyPairKind {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

/// A private key that signs tokens.
pub struct Signer {
    pair: KeyPairKind,
    kid: Box<str>,
}

impl Signer {
    /// Generates a new private key.
    pub fn generate(algorithm: SigningAlgorithm) -> Result<Self, SignerError> {
        let pair = match algorithm {
            SigningAlgorithm::Es256 => {
                EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map(KeyPairKind::Es256)
            }
            SigningAlgorithm::Rs256 => RsaKeyPair::generate(KeySize::Rsa2048).map(KeyPairKind::Rs256),
            SigningAlgorithm::EdDsa => Ed25519KeyPair::generate().map(KeyPairKind::EdDsa),
        };
        pair.map(Self::new).map_err(|_| SignerError::Crypto)
    }

    /// Reads a key from unencrypted PKCS#8 DER (RFC 5958); the type of the key decides the
    /// algorithm.
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, SignerError> {
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der)
            .map(KeyPairKind::Es256)
            .or_else(|_| Ed25519KeyPair::from_pkcs8(der).map(KeyPairKind::EdDsa))
            .or_else(|_| RsaKeyPair::from_pkcs8(der).map(KeyPairKind::Rs256))
            .map(Self::new)
            .map_err(|_| SignerError::UnsupportedKey)
    }

    /// Reads a key from unencrypted PKCS#8 PEM (RFC 7468 §10).
    pub fn from_pkcs8_pem(pem: &[u8]) -> Result<Self, SignerError> {
        Self::from_pkcs8_der(&pem::decode(pem).ok_or(SignerError::NotPem)?)
    }

    /// The private key as PKCS#8 DER.
    pub fn to_pkcs8_der(&self) -> Result<SigningSecret, SignerError> {
        let copy = |der: &[u8]| SigningSecret(Zeroizing::new(der.to_vec()));
        match &self.pair {
            KeyPairKind::Es256(pair) => pair.to_pkcs8v1().map(|der| copy(der.as_ref())),
            KeyPairKind::Rs256(pair) => pair.as_der().map(|der| copy(der.as_ref())),
            // Version 1, which the OpenSSL command line reads too.
            KeyPairKind::EdDsa(pair) => pair.to_pkcs8v1().map(|der| copy(der.as_ref())),
        }
        .map_err(|_| SignerError::Crypto)
    }

    /// The private key as PKCS#8 PEM.
    pub fn to_pkcs8_pem(&self) -> Result<SigningSecret, SignerError> {
        Ok(SigningSecret(pem::encode(self.to_pkcs8_der()?.as_ref())))
    }

    fn new(pair: KeyPairKind) -> Self {
        let kid = thumbprint(&pair).into();
        Self { pair, kid }
    }

    /// The same key with another `kid` than its thumbprint, as the server knows it.
    #[must_use]
    pub fn with_kid(self, kid: &str) -> Self {
        Self { kid: kid.into(), ..self }
    }

    /// The algorithm that the key signs with.
    pub fn algorithm(&self) -> Algorithm {
        match self.pair {
            KeyPairKind::Es256(_) => Algorithm::Es256,
            KeyPairKind::Rs256(_) => Algorithm::Rs256,
            KeyPairKind::EdDsa(_) => Algorithm::EdDsa,
        }
    }

    /// The `kid` in headers and in the public JWK: the RFC 7638 thumbprint, SHA-256, base64url.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The public key as a JWK (RFC 7517 §4) with `kid`, `alg` and `use`.
    pub fn public_jwk(&self) -> Value {
        let mut jwk: Map<_, _> =
            jwk_members(&self.pair).into_iter().map(|(n, v)| (n.into(), v.into())).collect();
        for (name, value) in [("kid", self.kid()), ("alg", self.algorithm().as_str()), ("use", "sig")] {
            jwk.insert(name.into(), value.into());
        }
        Value::Object(jwk)
    }

    /// Signs `claims`, which must serialize to an object, as a compact JWS. `header` adds string
    /// members to `alg` and `kid`, such as `typ`.
    pub fn sign(&self, header: &[(&str, &str)], claims: &impl Serialize) -> Result<String, SignerError> {
        if header.iter().any(|(name, _)| ["alg", "kid", "crit", "b64"].contains(name)) {
            return Err(SignerError::ReservedHeader);
        }
        let mut members: Map<String, Value> =
            header.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        members.insert("alg".into(), self.algorithm().as_str().into());
        members.insert("kid".into(), self.kid().into());
        let claims = serde_json::to_vec(claims).map_err(|_| SignerError::Claims)?;
        if claims.first() != Some(&b'{') {
            return Err(SignerError::Claims);
        }
        let mut token = String::with_capacity(512 + claims.len() * 4 / 3);
        URL_SAFE_NO_PAD.encode_string(Value::Object(members).to_string(), &mut token);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        self.append_signature(&mut token).map_err(|_| SignerError::Crypto)?;
        Ok(token)
    }

    fn append_signature(&self, token: &mut String) -> Result<(), aws_lc_rs::error::Unspecified> {
        let message = token.as_bytes();
        let rng = SystemRandom::new();
        let signature = match &self.pair {
            KeyPairKind::Es256(pair) => URL_SAFE_NO_PAD.encode(pair.sign(&rng, message)?),
            KeyPairKind::EdDsa(pair) => URL_SAFE_NO_PAD.encode(pair.try_sign(message)?),
            KeyPairKind::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &rng, message, &mut signature)?;
                URL_SAFE_NO_PAD.encode(signature)
            }
        };
        token.push('.');
        token.push_str(&signature);
        Ok(())
    }
}

impl fmt::Debug for Signer {
    /// Shows algorithm and `kid`, and nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("algorithm", &self.algorithm())
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

/// The JWK set (RFC 7517 §5) with the public keys of `signers`.
pub fn public_jwks<'a>(signers: impl IntoIterator<Item = &'a Signer>) -> Value {
    json!({ "keys": signers.into_iter().map(Signer::public_jwk).collect::<Vec<_>>() })
}

/// The members of the public key, in the lexicographic order in which RFC 7638 §3 hashes them.
fn jwk_members(pair: &KeyPairKind) -> Vec<(&'static str, String)> {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    match pair {
        KeyPairKind::Es256(pair) => {
            // Uncompressed point: a byte 4, then both coordinates of 32 bytes (SEC 1 §2.3.3).
            let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
            vec![("crv", "P-256".into()), ("kty", "EC".into()), ("x", encode(x)), ("y", encode(y))]
        }
        KeyPairKind::EdDsa(pair) => {
            let x = encode(pair.public_key().as_ref());
            vec![("crv", "Ed25519".into()), ("kty", "OKP".into()), ("x", x)]
        }
        KeyPairKind::Rs256(pair) => {
            let e = encode(pair.public_key().exponent().big_endian_without_leading_zero());
            let n = encode(pair.public_key().modulus().big_endian_without_leading_zero());
            vec![("e", e), ("kty", "RSA".into()), ("n", n)]
        }
    }
}

/// The key's thumbprint (RFC 7638 §3).
fn thumbprint(pair: &KeyPairKind) -> String {
    // Base64url and the fixed texts need no escaping.
    let members: Vec<_> =
        jwk_members(pair).iter().map(|(name, value)| format!(r#""{name}":"{value}""#)).collect();
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, format!("{{{}}}", members.join(",")).as_bytes()))
}
