//! Client secrets: made here or configured, kept as digests.
//!
//! Owns: generation, the refusal of guessable secrets, the digest and its comparison in constant time.
//! Does not own: how a secret arrives in a request ([`super::authenticate`]).
//!
//! A plain SHA-256 digest is enough *because* the secret has 128 random bits or more: nobody can search that
//! space, so a slow password hash would only slow the provider down. It follows that a short secret must be
//! refused, for its digest could be searched.

use std::fmt::{self, Write as _};

use aws_lc_rs::{constant_time, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{Entropy, EntropyFailed};

/// Fewest characters of a configured secret: 128 bits in base64.
pub const MIN_SECRET: usize = 22;
/// Fewest characters of a secret made of hexadecimal digits: 128 bits.
pub const MIN_HEX_SECRET: usize = 32;
/// Fewest characters of a secret made of decimal digits: 129 bits.
pub const MIN_DIGIT_SECRET: usize = 39;
/// Fewest different characters: a random secret of [`MIN_SECRET`] characters has more.
pub const MIN_DISTINCT: usize = 8;
/// Longest secret in bytes.
pub const MAX_SECRET: usize = 512;

/// Why a configured secret is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// Fewer characters than 128 bits need.
    #[error(
        "a client secret is kept as a plain digest, which protects only what cannot be guessed: it needs 128 random bits, \
         that is {MIN_SECRET} characters of base64, {MIN_HEX_SECRET} of hex or {MIN_DIGIT_SECRET} digits (openssl rand -hex 32)"
    )]
    TooShort,
    /// Fewer than [`MIN_DISTINCT`] different characters.
    #[error(
        "a client secret needs at least {MIN_DISTINCT} different characters: generate it (openssl rand -hex 32)"
    )]
    TooRegular,
    /// Longer than [`MAX_SECRET`].
    #[error("a client secret has at most {MAX_SECRET} characters")]
    TooLong,
    /// A character outside visible ASCII and space (RFC 6749 appendix A.2).
    #[error("a client secret has printable ascii only")]
    Character,
    /// A configured digest is not 64 hexadecimal digits.
    #[error(
        "a secret digest is the sha-256 of the secret as 64 hexadecimal digits (printf %s SECRET | sha256sum)"
    )]
    NotADigest,
}

/// A secret in the clear: generated once, shown once, never kept.
pub struct ClientSecret(String);

impl ClientSecret {
    /// Draws 256 bits: `pcs_` (so that secret scanners know it) and 43 characters of base64url.
    pub fn generate(entropy: &dyn Entropy) -> Result<Self, EntropyFailed> {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes)?;
        Ok(Self(format!("pcs_{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The secret itself: for the one place that hands it to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret(..)")
    }
}

/// The SHA-256 of a client secret.
#[derive(Clone)]
pub struct SecretDigest([u8; digest::SHA256_OUTPUT_LEN]);

impl SecretDigest {
    /// The digest of a configured secret, which must be hard to guess.
    pub fn of_configured(secret: &str) -> Result<Self, SecretFault> {
        Self::check(secret).map(|()| Self::of_presented(secret))
    }

    /// Whether a text could be a configured secret, without the digest of it.
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

    /// The digest of what a caller presents: anything.
    pub fn of_presented(secret: &str) -> Self {
        let mut out = [0; digest::SHA256_OUTPUT_LEN];
        out.copy_from_slice(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref());
        Self(out)
    }

    /// A digest from a configuration file: 64 hexadecimal digits.
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

    /// As 64 hexadecimal digits: what [`SecretDigest::from_hex`] reads.
    pub fn to_hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(2 * self.0.len()), |mut hex, byte| {
            // writing to a string cannot fail
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// Equality in constant time.
    fn same(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(..)")
    }
}

/// The one or two secrets of a client: two while it moves from one to the next.
#[derive(Debug, Clone)]
pub struct SecretDigests {
    first: SecretDigest,
    second: SecretDigest,
}

impl SecretDigests {
    /// One secret, or two.
    pub fn new(first: SecretDigest, second: Option<SecretDigest>) -> Self {
        let second = second.unwrap_or_else(|| first.clone());
        Self { first, second }
    }

    /// What an unknown client is compared with, so that it costs the same. Nothing hashes to it that
    /// anybody could find, and a match would not count either (see [`super::Registry::verify`]).
    pub(super) fn decoy() -> Self {
        Self::new(SecretDigest([0; digest::SHA256_OUTPUT_LEN]), None)
    }

    /// Whether `presented` is one of them: always two comparisons, each in constant time.
    pub(super) fn accept(&self, presented: &SecretDigest) -> bool {
        self.first.same(presented) | self.second.same(presented)
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
        // FIPS 180-4's own example: SHA-256("abc")
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
