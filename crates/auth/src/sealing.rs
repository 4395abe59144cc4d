//! Sealed text: authenticated encryption of state that others keep, such as cookies and stored
//! keys.
//!
//! Owns: the cipher (AES-256-GCM-SIV, RFC 8452) and the envelope `nonce ‖ ciphertext ‖ tag`. Does
//! not own: keys and their derivation, which key sealed a text (the caller puts that in front of
//! the envelope), how long a sealed text is valid (the caller puts the time inside), the text
//! encoding.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

/// Bytes of a key.
pub const KEY_LENGTH: usize = 32;
/// Bytes of a nonce. Draw it at random for each text; a repeated one only shows that two texts are
/// equal (RFC 8452 §1).
pub const NONCE_LENGTH: usize = aws_lc_rs::aead::NONCE_LEN;
/// Bytes of the authentication tag.
const TAG_LENGTH: usize = 16;

/// A text cannot be sealed: it is longer than the cipher takes (64 GiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text is too long to be sealed")]
pub struct SealFailed;

/// Key that seals and opens. `Debug` prints nothing of it.
pub struct SealingKey(LessSafeKey);

impl SealingKey {
    /// Takes [`KEY_LENGTH`] secret bytes, derived for this one purpose.
    #[allow(clippy::expect_used, reason = "only a key of another length is refused")]
    pub fn new(key: &[u8; KEY_LENGTH]) -> Self {
        Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, key).expect("the length is the algorithm's")))
    }

    /// Appends the envelope of `text` to `out`. `context` is authenticated, not encrypted: the text
    /// opens only with the same.
    ///
    /// # Errors
    /// [`SealFailed`] when the text is longer than the cipher takes; `out` then holds no part of
    /// the text.
    pub fn seal_onto(
        &self,
        out: &mut Vec<u8>,
        context: &[u8],
        text: &[u8],
        nonce: [u8; NONCE_LENGTH],
    ) -> Result<(), SealFailed> {
        out.reserve(NONCE_LENGTH + text.len() + TAG_LENGTH);
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(text);
        let nonce = Nonce::assume_unique_for_key(nonce);
        match self.0.seal_in_place_separate_tag(nonce, Aad::from(context), &mut out[start..]) {
            Ok(tag) => {
                out.extend_from_slice(tag.as_ref());
                Ok(())
            }
            Err(_) => {
                out.truncate(start);
                Err(SealFailed)
            }
        }
    }

    /// Opens an envelope. `None`: another key or context sealed it, or it was changed.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE_LENGTH>()?;
        let mut body = Zeroizing::new(body.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, Aad::from(context), &mut body).ok()?.len();
        body.truncate(length);
        Some(body)
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey(..)")
    }
}

/// Joins parts, each after its length (8 bytes, big endian), so that no two lists of parts give the
/// same bytes.
pub fn join_parts<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    for part in parts {
        joined.extend_from_slice(&(part.len() as u64).to_be_bytes());
        joined.extend_from_slice(part);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: [u8; NONCE_LENGTH] = [7; NONCE_LENGTH];

    fn sealed(key: &SealingKey, context: &[u8], text: &[u8]) -> Vec<u8> {
        let mut out = b"head".to_vec();
        key.seal_onto(&mut out, context, text, NONCE).unwrap();
        assert_eq!(&out[..4], b"head");
        out.split_off(4)
    }

    #[test]
    fn a_text_opens_with_its_key_and_context_only() {
        let (key, other) = (SealingKey::new(&[1; KEY_LENGTH]), SealingKey::new(&[2; KEY_LENGTH]));
        let envelope = sealed(&key, b"browser", b"text");
        assert_eq!(envelope.len(), NONCE_LENGTH + 4 + TAG_LENGTH);
        assert_eq!(key.open(b"browser", &envelope).unwrap().as_slice(), b"text");
        assert!(key.open(b"another", &envelope).is_none());
        assert!(other.open(b"browser", &envelope).is_none());
        for at in 0..envelope.len() {
            let mut changed = envelope.clone();
            changed[at] ^= 1;
            assert!(key.open(b"browser", &changed).is_none(), "byte {at}");
            assert!(key.open(b"browser", &envelope[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn an_empty_text_is_a_text() {
        let key = SealingKey::new(&[1; KEY_LENGTH]);
        assert_eq!(key.open(b"", &sealed(&key, b"", b"")).unwrap().as_slice(), b"");
    }

    /// RFC 8452 appendix C.2, the first case with content: key 01 00…, nonce 03 00…, no associated
    /// data.
    #[test]
    fn the_cipher_is_the_standards() {
        let (mut key, mut nonce) = ([0; KEY_LENGTH], [0; NONCE_LENGTH]);
        (key[0], nonce[0]) = (1, 3);
        let mut out = Vec::new();
        SealingKey::new(&key).seal_onto(&mut out, b"", &[1, 0, 0, 0, 0, 0, 0, 0], nonce).unwrap();
        let expected = [
            0xc2, 0xef, 0x32, 0x8e, 0x5c, 0x71, 0xc8, 0x3b, 0x84, 0x31, 0x22, 0x13, 0x0f, 0x73, 0x64, 0xb7,
            0x61, 0xe0, 0xb9, 0x74, 0x27, 0xe3, 0xdf, 0x28,
        ];
        assert_eq!(out[NONCE_LENGTH..], expected);
    }

    #[test]
    fn parts_are_told_apart() {
        let join = |parts: &[&str]| join_parts(parts.iter().map(|part| part.as_bytes()));
        assert_ne!(join(&["ab", "c"]), join(&["a", "bc"]));
        assert_ne!(join(&["a"]), join(&["a", ""]));
        assert_eq!(join(&["a"]), [0, 0, 0, 0, 0, 0, 0, 1, b'a']);
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", SealingKey::new(&[1; KEY_LENGTH])), "SealingKey(..)");
    }
}
