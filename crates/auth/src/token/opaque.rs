//! Opaque tokens: random, and recognizable as Postern's.
//!
//! Owns: their form, and the digests under which they are stored. Because of the form, a malformed
//! token is refused before any query about it, and scanners find a leaked one. Does not own: what a
//! token is valid for.
//!
//! Form: a prefix that names the kind, 43 characters for 256 random bits, 6 characters of a
//! checksum over both. The checksum proves nothing; it distinguishes a mistyped or truncated token
//! from an unknown one without I/O.

use std::fmt;

use aws_lc_rs::{digest, hmac};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// Number of random bytes in a token.
pub const RANDOM_LEN: usize = 32;
const RANDOM_TEXT: usize = 43;
const CHECKSUM_LEN: usize = 4;
const CHECKSUM_TEXT: usize = 6;
const PREFIX_LEN: usize = 7;

/// Kind of an opaque token. A token of one kind is never accepted as another kind, even where both
/// are looked up in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpaqueKind {
    /// An access token, for a resource.
    Access,
    /// A refresh token, for the next access token.
    Refresh,
    /// An authorization code.
    Code,
    /// A device code (RFC 8628).
    Device,
    /// The reference to a pushed authorization request (RFC 9126), after its URN prefix.
    Pushed,
    /// The cookie of a session.
    Session,
}

impl OpaqueKind {
    /// Every kind of opaque token.
    pub const ALL: [Self; 6] =
        [Self::Access, Self::Refresh, Self::Code, Self::Device, Self::Pushed, Self::Session];

    /// The prefix of tokens of this kind.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Access => "ptn_at_",
            Self::Refresh => "ptn_rt_",
            Self::Code => "ptn_ac_",
            Self::Device => "ptn_dc_",
            Self::Pushed => "ptn_pr_",
            Self::Session => "ptn_ss_",
        }
    }
}

/// Creates a token from random bytes, which must not be used elsewhere.
pub fn mint(kind: OpaqueKind, random: &[u8; RANDOM_LEN]) -> Zeroizing<String> {
    let mut token = Zeroizing::new(String::with_capacity(PREFIX_LEN + RANDOM_TEXT + CHECKSUM_TEXT));
    token.push_str(kind.prefix());
    BASE64_URL_SAFE_NO_PAD.encode_string(random, &mut token);
    let checksum = checksum(token.as_bytes());
    BASE64_URL_SAFE_NO_PAD.encode_string(checksum, &mut token);
    token
}

/// The kind of a text that has the form of a token; `None` for any other text, which no database
/// lookup can make valid.
pub fn parse_kind(text: &str) -> Option<OpaqueKind> {
    let kind = OpaqueKind::ALL.into_iter().find(|kind| text.starts_with(kind.prefix()))?;
    if text.len() != PREFIX_LEN + RANDOM_TEXT + CHECKSUM_TEXT {
        return None;
    }
    let (token, sum) = text.split_at_checked(PREFIX_LEN + RANDOM_TEXT)?;
    let canonical = BASE64_URL_SAFE_NO_PAD.decode(&token[PREFIX_LEN..]).is_ok();
    (canonical && BASE64_URL_SAFE_NO_PAD.decode(sum).ok()? == checksum(token.as_bytes())).then_some(kind)
}

fn checksum(token: &[u8]) -> [u8; CHECKSUM_LEN] {
    let digest = digest::digest(&digest::SHA256, token);
    let mut sum = [0; CHECKSUM_LEN];
    sum.copy_from_slice(&digest.as_ref()[..CHECKSUM_LEN]);
    sum
}

/// Key for the digests under which tokens are stored and looked up. `Debug` prints nothing of the
/// key.
pub struct DigestKey(hmac::Key);

impl DigestKey {
    /// Creates the key from a secret, which must stay the same for as long as the digests are used.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The digest of a whole token.
    pub fn digest(&self, token: &str) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.copy_from_slice(hmac::sign(&self.0, token.as_bytes()).as_ref());
        digest
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM_BYTES: [u8; RANDOM_LEN] = [0xa5; RANDOM_LEN];

    #[test]
    fn a_token_is_recognised_by_its_kind() {
        for made in OpaqueKind::ALL {
            let token = mint(made, &RANDOM_BYTES);
            assert_eq!(token.len(), PREFIX_LEN + RANDOM_TEXT + CHECKSUM_TEXT);
            assert_eq!(parse_kind(&token), Some(made));
            for other in OpaqueKind::ALL.into_iter().filter(|other| *other != made) {
                assert_eq!(
                    parse_kind(&token.replacen(made.prefix(), other.prefix(), 1)),
                    None,
                    "{made:?} as {other:?}"
                );
            }
        }
    }

    #[test]
    fn whatever_was_changed_is_noticed() {
        let token = mint(OpaqueKind::Access, &RANDOM_BYTES);
        for at in 0..token.len() {
            for replacement in ['A', 'b', '0', '-', 'é', ' '] {
                let mut changed: Vec<char> = token.chars().collect();
                if std::mem::replace(&mut changed[at], replacement) != replacement {
                    let changed: String = changed.into_iter().collect();
                    assert_eq!(parse_kind(&changed), None, "{changed}");
                }
            }
            assert_eq!(parse_kind(&token[..at]), None, "cut after {at}");
        }
        for bad in [format!("{}A", *token), format!(" {}", *token), format!("{}=", *token), String::new()] {
            assert_eq!(parse_kind(&bad), None, "{bad}");
        }
    }

    #[test]
    fn digests_differ_by_key_and_token() {
        let (token, other) =
            (mint(OpaqueKind::Access, &RANDOM_BYTES), mint(OpaqueKind::Access, &[1; RANDOM_LEN]));
        let key = DigestKey::new(&[7; 32]);
        assert_eq!(key.digest(&token), DigestKey::new(&[7; 32]).digest(&token));
        assert_ne!(key.digest(&token), key.digest(&other));
        assert_ne!(key.digest(&token), DigestKey::new(&[8; 32]).digest(&token));
        assert_eq!(format!("{key:?}"), "DigestKey(..)");
    }
}
