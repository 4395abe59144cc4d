//! Client secrets: generated here or configured, stored as digests.
//!
//! Owns: generation, the refusal of guessable secrets, the digest and its comparison in constant
//! time. Does not own: how a secret arrives in a request ([`crate::client_authentication`]).
//!
//! A plain SHA-256 digest is enough *because* the secret has at least 128 random bits. That space
//! cannot be searched, so a slow password hash would add cost without security. Short secrets are
//! refused, because their digests could be searched.

use std::fmt::{self, Write as _};

use aws_lc_rs::{constant_time, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{Entropy, EntropyFailed};

/// Fewest characters of a configured secret: 128 bits in base64.
pub const MIN_SECRET: usize = 22;
/// Fewest characters of a secret of hexadecimal digits: 128 bits.
pub const MIN_HEX_SECRET: usize = 32;
/// Fewest characters of a secret of decimal digits: 129 bits.
pub const MIN_DIGIT_SECRET: usize = 39;
/// Fewest different characters; a random secret of [`MIN_SECRET`] characters has more.
pub const MIN_DISTINCT: usize = 8;
/// Longest secret in bytes.
pub const MAX_SECRET: usize = 512;

/// Reason why a configured secret is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// It has fewer characters than 128 bits need.
    #[error(
        "the client secret is guessable: use 128 random bits, \
         that is {MIN_SECRET} characters of base64, {MIN_HEX_SECRET} of hex or {MIN_DIGIT_SECRET} digits (openssl rand -hex 32)"
    )]
    TooShort,
    /// It has fewer than [`MIN_DISTINCT`] different characters.
    #[error(
        "a client secret needs at least {MIN_DISTINCT} different characters: generate it (openssl rand -hex 32)"
    )]
    TooRegular,
    /// It is longer than [`MAX_SECRET`].
    #[error("the client secret is too long: use at most {MAX_SECRET} characters")]
    TooLong,
    /// It has a character outside printable ASCII (RFC 6749 appendix A.2).
    #[error("the client secret has a character outside printable ascii: generate it (openssl rand -hex 32)")]
    Character,
    /// A configured digest is not 64 hexadecimal digits.
    #[error(
        "a secret digest is the SHA-256 of the secret as 64 hexadecimal digits (printf %s SECRET | sha256sum)"
    )]
    NotADigest,
}

/// A secret in clear text: generated once, shown once, never stored.
pub struct ClientSecret(String);

impl ClientSecret {
    /// Generates a secret of 256 random bits: `pcs_`, a prefix for secret scanners, and 43
    /// characters of base64url.
    ///
    /// # Errors
    /// [`EntropyFailed`] when the random source fails.
    pub fn generate(entropy: &dyn Entropy) -> Result<Self, EntropyFailed> {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes)?;
        Ok(Self(format!("pcs_{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The secret in clear text. Only the code that hands it to its owner calls this.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret(..)")
    }
}

/// SHA-256 digest of a client secret.
#[derive(Clone)]
pub struct SecretDigest([u8; digest::SHA256_OUTPUT_LEN]);

impl SecretDigest {
    /// Digest of a configured secret.
    ///
    /// # Errors
    /// [`SecretFault`] when the secret is guessable or malformed.
    pub fn of_configured(secret: &str) -> Result<Self, SecretFault> {
        Self::check(secret).map(|()| Self::of_presented(secret))
    }

    /// Checks whether a text is acceptable as a configured secret, without computing its digest.
    pub(crate) fn check(secret: &str) -> Result<(), SecretFault> {
        if secret.len() > MAX_SECRET {
            return Err(SecretFault::TooLong);
        }
        if !secret.bytes().all(|b| (0x20..=0x7e).contains(&b)) {
            return Err(SecretFault::Character);
        }
        let enough = match () {
            () if secret.bytes().all(|b| b.is_ascii_digit()) => MIN_DIGIT_SECRET,
            () if secret.bytes().all(|b| b.is_ascii_hexdigit()) => MIN_HEX_SECRET,
            () => MIN_SECRET,
        };
        if secret.len() < enough {
            return Err(SecretFault::TooShort);
        }
        let mut seen = [false; 128];
        secret.bytes().for_each(|b| seen[usize::from(b)] = true);
        if seen.iter().filter(|&&s| s).count() < MIN_DISTINCT {
            return Err(SecretFault::TooRegular);
        }
        Ok(())
    }

    /// Digest of a presented secret; any text is accepted.
    pub fn of_presented(secret: &str) -> Self {
        let mut out = [0; digest::SHA256_OUTPUT_LEN];
        out.copy_from_slice(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref());
        Self(out)
    }

    /// Parses a digest of a configuration file: 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`SecretFault::NotADigest`] for any other text.
    pub fn from_hex(hex: &str) -> Result<Self, SecretFault> {
        let mut out = [0; digest::SHA256_OUTPUT_LEN];
        if hex.len() != 2 * out.len() || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(SecretFault::NotADigest);
        }
        for (byte, pair) in out.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(pair).map_err(|_| SecretFault::NotADigest)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| SecretFault::NotADigest)?;
        }
        Ok(Self(out))
    }

    /// The digest as 64 hexadecimal digits, as [`SecretDigest::from_hex`] reads them.
    pub fn to_hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(2 * self.0.len()), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// Equality in constant time.
    fn equals(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(..)")
    }
}

/// The one or two secrets of a client: two during a rotation.
#[derive(Debug, Clone)]
pub struct SecretDigests {
    first: SecretDigest,
    second: SecretDigest,
}

impl SecretDigests {
    /// One secret, or two during a rotation.
    pub fn new(first: SecretDigest, second: Option<SecretDigest>) -> Self {
        let second = second.unwrap_or_else(|| first.clone());
        Self { first, second }
    }

    /// Digest that an unknown client is compared with, so that it takes the same time. No secret
    /// with this digest is known, and a match would not authenticate either (see
    /// [`crate::client::Registry::verify`]).
    pub(super) fn decoy() -> Self {
        Self::new(SecretDigest([0; digest::SHA256_OUTPUT_LEN]), None)
    }

    /// Whether `presented` is one of them. Always compares both, each in constant time.
    pub(super) fn accept(&self, presented: &SecretDigest) -> bool {
        self.first.equals(presented) | self.second.equals(presented)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;

    use super::*;

    #[test]
    fn a_generated_secret_is_accepted_as_configured() {
        let (a, b) = (
            ClientSecret::generate(&SystemRandom::new()).unwrap(),
            ClientSecret::generate(&SystemRandom::new()).unwrap(),
        );
        assert_ne!(a.expose(), b.expose());
        assert_eq!(a.expose().len(), 47);
        let digests = SecretDigests::new(SecretDigest::of_configured(a.expose()).unwrap(), None);
        assert!(digests.accept(&SecretDigest::of_presented(a.expose())));
        assert!(!digests.accept(&SecretDigest::of_presented(b.expose())));
        assert!(!digests.accept(&SecretDigest::of_presented("")));
    }

    #[test]
    fn guessable_secrets_are_refused() {
        for (secret, fault) in [
            ("", SecretFault::TooShort),
            ("correct horse battery", SecretFault::TooShort),
            ("0123456789abcdef0123456789abcde", SecretFault::TooShort),
            ("12345678901234567890123456789012345678", SecretFault::TooShort),
            ("abababababababababababababababab-", SecretFault::TooRegular),
            ("äöüäöüäöüäöüäöüäöüäöüäöü", SecretFault::Character),
            ("a secret with\ta tab inside it", SecretFault::Character),
        ] {
            assert_eq!(SecretDigest::of_configured(secret).map(|_| ()), Err(fault), "{secret}");
        }
        assert_eq!(
            SecretDigest::of_configured(&"x".repeat(MAX_SECRET + 1)).map(|_| ()),
            Err(SecretFault::TooLong)
        );
        for good in ["0123456789abcdef0123456789abcdef", "KzJ4bXk0cGVyc2lzdGVudA"] {
            assert!(SecretDigest::of_configured(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn hex_digests_are_the_same_digests() {
        // Example of FIPS 180-4: SHA-256("abc").
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digests = SecretDigests::new(SecretDigest::from_hex(&hex.to_uppercase()).unwrap(), None);
        assert!(digests.accept(&SecretDigest::of_presented("abc")));
        for bad in ["", "ba78", &hex[1..], &hex.replace('f', "g"), &format!("+a{}", &hex[2..])] {
            assert_eq!(SecretDigest::from_hex(bad).map(|_| ()), Err(SecretFault::NotADigest), "{bad}");
        }
    }

    #[test]
    fn both_secrets_of_a_moving_client_work() {
        let [a, b] = ["the-old-secret-0123456789", "the-new-secret-0123456789"]
            .map(|s| SecretDigest::of_configured(s).unwrap());
        let digests = SecretDigests::new(a.clone(), Some(b.clone()));
        assert!(
            digests.accept(&a) && digests.accept(&b) && !digests.accept(&SecretDigest::of_presented("other"))
        );
    }

    #[test]
    fn debug_shows_nothing() {
        let secret = ClientSecret::generate(&SystemRandom::new()).unwrap();
        assert_eq!(
            format!("{secret:?} {:?}", SecretDigest::of_presented("abc")),
            "ClientSecret(..) SecretDigest(..)"
        );
    }
}
