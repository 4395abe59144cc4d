//! PKCE: proof key for code exchange (RFC 7636), with S256 only.
//!
//! The method `plain` is not supported: it discloses the verifier to everyone who sees the request.

use aws_lc_rs::{constant_time, digest};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

/// Shortest and longest verifier in characters (RFC 7636 §4.1).
const VERIFIER: std::ops::RangeInclusive<usize> = 43..=128;

/// A `code_challenge`: the SHA-256 digest of a verifier that only the requesting client knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge(Box<str>);

impl Challenge {
    /// Parses 32 bytes in base64url without padding (RFC 7636 §4.2), in canonical form.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        (bytes.len() == digest::SHA256_OUTPUT_LEN).then(|| Self(text.into()))
    }

    /// The challenge as received.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the challenge was made from `verifier` (RFC 7636 §4.6). Compares in constant time.
    pub fn verifies(&self, verifier: &str) -> bool {
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        if !VERIFIER.contains(&verifier.len()) || !verifier.bytes().all(unreserved) {
            return false;
        }
        let made = BASE64_URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()));
        constant_time::verify_slices_are_equal(made.as_bytes(), self.0.as_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of RFC 7636 appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    #[test]
    fn the_example_of_the_standard() {
        let challenge = Challenge::parse(CHALLENGE).unwrap();
        assert_eq!(challenge.as_str(), CHALLENGE);
        assert!(challenge.verifies(VERIFIER));
        assert!(!challenge.verifies(&VERIFIER.replace('d', "e")));
        assert!(!challenge.verifies(CHALLENGE), "not the challenge itself, as with `plain`");
    }

    #[test]
    fn a_challenge_is_a_digest_in_its_one_spelling() {
        for bad in [
            "",
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-c",
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cMM",
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM=",
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM",
            // Different unused bits in the last character: another text for the same digest.
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cN",
        ] {
            assert_eq!(Challenge::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_verifier_keeps_to_its_grammar() {
        let challenge_of = |verifier: &str| {
            let digest = digest::digest(&digest::SHA256, verifier.as_bytes());
            Challenge::parse(&BASE64_URL_SAFE_NO_PAD.encode(digest)).unwrap()
        };
        for (verifier, fits) in [
            ("a".repeat(42), false),
            ("a".repeat(43), true),
            ("-._~aZ09".repeat(16), true),
            ("a".repeat(129), false),
            ("a".repeat(42) + " ", false),
            ("a".repeat(42) + "é", false),
        ] {
            assert_eq!(challenge_of(&verifier).verifies(&verifier), fits, "{verifier:?}");
        }
    }
}
