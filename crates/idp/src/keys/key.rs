//! Signing key: a [`Signer`] with its public key as JWK.
//!
//! Owns: key ids (RFC 7638 thumbprints, so that the same key always has the same id) and the names
//! of the signing algorithms. Does not own: stages of a key ([`super::ring`]), storage
//! ([`super::stored`]).

use auth::algorithm::Algorithm;
use auth::token::jws::{Signer, SignerError, SigningAlgorithm, SigningSecret};
use serde::Serialize;
use serde_json::Value;

/// Fault of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The signer failed, see [`SignerError`].
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// The stored key is valid, but has another algorithm than expected.
    #[error("key has another algorithm than expected")]
    WrongAlgorithm,
    /// The ring has no key of the requested algorithm.
    #[error("no key of this algorithm")]
    Missing,
}

/// A key pair for signing.
#[derive(Debug)]
pub struct Key {
    algorithm: SigningAlgorithm,
    signer: Signer,
    jwk: Value,
}

impl Key {
    /// Generates a key. An RSA key takes up to a second.
    ///
    /// # Errors
    /// [`KeyFault::Signer`] when the generation fails.
    pub fn generate(algorithm: SigningAlgorithm) -> Result<Self, KeyFault> {
        Self::new(algorithm, Signer::generate(algorithm)?)
    }

    /// Reads a key of this algorithm from PKCS#8 PEM.
    ///
    /// # Errors
    /// [`KeyFault`] when the text is not a key or has another algorithm.
    pub fn from_pem(algorithm: SigningAlgorithm, pem: &[u8]) -> Result<Self, KeyFault> {
        Self::new(algorithm, Signer::from_pkcs8_pem(pem)?)
    }

    fn new(algorithm: SigningAlgorithm, signer: Signer) -> Result<Self, KeyFault> {
        if signer.algorithm() != algorithm.algorithm() {
            return Err(KeyFault::WrongAlgorithm);
        }
        let jwk = signer.public_jwk();
        Ok(Self { algorithm, signer, jwk })
    }

    /// The private key as PKCS#8 PEM.
    ///
    /// # Errors
    /// [`KeyFault::Signer`] when the key cannot be encoded.
    pub fn to_pem(&self) -> Result<SigningSecret, KeyFault> {
        Ok(self.signer.to_pkcs8_pem()?)
    }

    /// The signing algorithm.
    pub fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    /// The key id: the RFC 7638 thumbprint.
    pub fn kid(&self) -> &str {
        self.signer.kid()
    }

    /// The public key (RFC 7517 §4).
    pub fn jwk(&self) -> &Value {
        &self.jwk
    }

    /// Signs `claims` as a compact JWS with this `typ`.
    ///
    /// # Errors
    /// [`KeyFault::Signer`] when the signature fails.
    pub fn sign(&self, typ: &str, claims: &impl Serialize) -> Result<String, KeyFault> {
        Ok(self.signer.sign(&[("typ", typ)], claims)?)
    }
}

/// Whether `text` has the format of a thumbprint: SHA-256 in base64url. Safe as part of a file
/// name.
pub fn is_kid(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// The name of an algorithm (RFC 7518 §3.1).
pub const fn name(algorithm: SigningAlgorithm) -> &'static str {
    algorithm.algorithm().as_str()
}

/// The algorithm with this name, if the provider can sign with it.
pub fn by_name(name: &str) -> Option<SigningAlgorithm> {
    match Algorithm::from_name(name)? {
        Algorithm::Es256 => Some(SigningAlgorithm::Es256),
        Algorithm::Rs256 => Some(SigningAlgorithm::Rs256),
        Algorithm::EdDsa => Some(SigningAlgorithm::EdDsa),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [SigningAlgorithm; 3] =
        [SigningAlgorithm::Es256, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa];

    #[test]
    fn a_key_survives_its_file() {
        for algorithm in ALL {
            let key = Key::generate(algorithm).unwrap();
            let again = Key::from_pem(algorithm, key.to_pem().unwrap().as_ref()).unwrap();
            assert_eq!((again.kid(), again.jwk()), (key.kid(), key.jwk()));
            assert!(is_kid(key.kid()));
            for other in ALL.into_iter().filter(|&o| o != algorithm) {
                let refused = Key::from_pem(other, key.to_pem().unwrap().as_ref());
                assert_eq!(refused.map(|_| ()), Err(KeyFault::WrongAlgorithm));
            }
        }
    }

    #[test]
    fn names_go_there_and_back() {
        for algorithm in ALL {
            assert_eq!(by_name(name(algorithm)), Some(algorithm));
        }
        for other in ["RS512", "PS256", "ES384", "HS256", "none", ""] {
            assert_eq!(by_name(other), None, "{other}");
        }
    }

    #[test]
    fn kids_are_safe_file_names() {
        assert!(is_kid(&"a-_Z0".repeat(9)[..43]));
        for bad in
            ["", "a", &"/".repeat(43), &format!("../{}", "a".repeat(40)), &format!("{}a", "é".repeat(21))]
        {
            assert!(!is_kid(bad), "{bad}");
        }
    }
}
