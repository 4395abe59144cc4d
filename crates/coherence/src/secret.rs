//! What an authority's nodes share with each other and with those who follow it.
//!
//! Owns: the one text that holds it, and the keys that are made from it: for tags, for messages, and for asking over HTTP. Does not
//! own: where it comes from. Who has it can follow an authority, and can pretend that something was revoked or, to those who
//! hear nothing else, that nothing was; they can neither sign a token nor read one.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::tags::TagKey;
use crate::wire::Keys;

/// Bytes of each half.
const HALF: usize = 32;

/// Why a text is not the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not what `postern admin follow-secret` prints: {} bytes in base64", 2 * HALF)]
pub struct Malformed;

/// The secret. `Debug` prints nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret {
    /// Tags are made with it for as long as there is a log.
    tags: Zeroizing<[u8; HALF]>,
    /// The rest is derived from it.
    root: Zeroizing<[u8; HALF]>,
}

impl SharedSecret {
    /// From its halves.
    pub fn new(tags: Zeroizing<[u8; HALF]>, root: Zeroizing<[u8; HALF]>) -> Self {
        Self { tags, root }
    }

    /// From a text, white space around it.
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| Malformed)?);
        let (tags, root) = bytes.split_first_chunk::<HALF>().ok_or(Malformed)?;
        let root: [u8; HALF] = root.try_into().map_err(|_| Malformed)?;
        Ok(Self { tags: Zeroizing::new(*tags), root: Zeroizing::new(root) })
    }

    /// As a text.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode([&self.tags[..], &self.root[..]].concat()))
    }

    /// Another one, for everybody of this name, that tells nothing of this one.
    #[must_use]
    pub fn of(&self, name: &str) -> Self {
        let part = |half: &[u8; HALF]| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, half);
            let mut derived = Zeroizing::new([0; HALF]);
            derived.copy_from_slice(hmac::sign(&key, name.as_bytes()).as_ref());
            derived
        };
        Self { tags: part(&self.tags), root: part(&self.root) }
    }

    /// What tags are made with.
    pub fn tag_key(&self) -> TagKey {
        TagKey::new(&self.tags)
    }

    /// What messages are signed with.
    pub fn message_keys(&self) -> Keys {
        Keys::one(1, &self.derive(b"messages"))
    }

    /// What is shown to nodes of the authority that are asked over HTTP.
    pub fn bearer(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.derive(b"facts")))
    }

    /// Whether somebody shows that.
    pub fn is_bearer(&self, shown: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(shown, self.bearer().as_bytes()).is_ok()
    }

    fn derive(&self, purpose: &[u8]) -> Zeroizing<[u8; HALF]> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*self.root);
        let mut derived = Zeroizing::new([0; HALF]);
        derived.copy_from_slice(hmac::sign(&key, purpose).as_ref());
        derived
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::Subject;

    #[test]
    fn it_is_read_as_it_was_written_and_prints_nothing() {
        let secret = SharedSecret::new(Zeroizing::new([1; HALF]), Zeroizing::new([2; HALF]));
        let again = SharedSecret::parse(&format!("{}\n", *secret.to_text())).expect("read");
        assert_eq!(secret, again);
        assert_eq!(secret.tag_key().tag(Subject::User("x")), again.tag_key().tag(Subject::User("x")));
        assert!(secret.is_bearer(again.bearer().as_bytes()) && !secret.is_bearer(b""));
        assert_eq!(format!("{secret:?}"), "SharedSecret(..)");
        assert_eq!(secret.of("a"), again.of("a"));
        assert!(secret.of("a") != secret.of("b") && secret.of("a") != secret);
        for text in ["", "x", "AAAA", &STANDARD.encode([0; 63]), &STANDARD.encode([0; 65])] {
            assert_eq!(SharedSecret::parse(text), Err(Malformed), "{text:?}");
        }
    }
}
