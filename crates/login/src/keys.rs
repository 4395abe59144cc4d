//! Session keys: seal the data that browsers and the store keep for us.
//!
//! Owns: parsing keys, sealing and opening, and deriving values for a login from the key that
//! sealed its state. Does not own: the sealed content, the file.
//!
//! The first key of the file seals, and all of them open. To rotate, put a new key first, and
//! remove the old one when everything that it sealed has expired. Each sealed text is bound to its
//! purpose and holder, so that it does not open elsewhere.

use std::fmt;
use std::sync::Arc;

use auth::sealing::{KEY_LENGTH as LENGTH, NONCE_LENGTH, SealingKey, join_parts};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SecureRandom;
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use coherence::secret::looks_non_random;
use zeroize::Zeroizing;

/// Bytes that identify a key within a sealed text.
const KEY_ID_BYTES: usize = 4;
/// Maximum number of keys: each is found by name, and none is needed for longer than a session
/// lasts.
const MAX_KEYS: usize = 16;

/// The purpose of a sealed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A session of a browser.
    Session,
    /// A login in progress.
    PendingLogin,
}

impl Purpose {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Session => b"session",
            Self::PendingLogin => b"attempt",
        }
    }
}

/// Why a key file is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeysMalformed {
    /// The file contains no key.
    #[error("the file contains no key")]
    None,
    /// A line is not a key.
    #[error("line {0} is not {LENGTH} bytes in base64")]
    Line(usize),
    /// A key is not random.
    #[error("line {0} is not a random key: its bytes repeat or count up")]
    Regular(usize),
    /// A key occurs twice.
    #[error("line {0} repeats a key above it")]
    Repeated(usize),
    /// The file has more keys than allowed.
    #[error("there are more than {MAX_KEYS} keys")]
    TooMany,
}

/// The keys, newest first. `Debug` does not print them.
#[derive(Clone)]
pub struct SessionKeys(Arc<[Key]>);

struct Key {
    name: [u8; KEY_ID_BYTES],
    session: SealingKey,
    attempt: SealingKey,
    logins: hmac::Key,
}

/// The key that opened a text; further values of the same login are derived from it.
#[derive(Clone, Copy)]
pub(crate) struct Opener<'k>(&'k Key);

impl SessionKeys {
    /// Parses a file with one base64 key per line; the first key seals. Empty lines and lines that
    /// begin with `#` are ignored.
    ///
    /// # Errors
    /// Why a line is invalid, with its number.
    pub fn parse(text: &str) -> Result<Self, KeysMalformed> {
        let mut keys: Vec<Key> = Vec::new();
        for (line, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let bytes = Zeroizing::new(STANDARD.decode(text).map_err(|_| KeysMalformed::Line(line + 1))?);
            let bytes: &[u8; LENGTH] =
                bytes.as_slice().try_into().map_err(|_| KeysMalformed::Line(line + 1))?;
            if looks_non_random(bytes) {
                return Err(KeysMalformed::Regular(line + 1));
            }
            let key = Key::new(bytes);
            if keys.iter().any(|other| other.name == key.name) {
                return Err(KeysMalformed::Repeated(line + 1));
            }
            if keys.len() == MAX_KEYS {
                return Err(KeysMalformed::TooMany);
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(KeysMalformed::None) } else { Ok(Self(keys.into())) }
    }

    /// Identifies these keys without revealing them.
    pub fn names(&self) -> Vec<u8> {
        self.0.iter().flat_map(|key| key.name).collect()
    }

    /// Whether `tag` is the value that one of the keys derives for these parts.
    pub(crate) fn verify_derived(&self, purpose: &str, parts: &[&[u8]], tag: &[u8]) -> bool {
        let is =
            |key: &Key| verify_slices_are_equal(Opener(key).derive(purpose, parts).as_bytes(), tag).is_ok();
        self.0.iter().any(is)
    }

    /// The key that seals now.
    pub(crate) fn newest(&self) -> Opener<'_> {
        Opener(&self.0[0])
    }

    /// Seals a text for one purpose and holder; the result is base64url, fit for a cookie and a
    /// query.
    ///
    /// # Errors
    /// When there is no randomness.
    pub(crate) fn seal(
        &self,
        purpose: Purpose,
        holder: &[&[u8]],
        text: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<String, Unspecified> {
        let key = &self.0[0];
        let mut nonce = [0; NONCE_LENGTH];
        random.fill(&mut nonce)?;
        let mut sealed = key.name.to_vec();
        key.of(purpose).seal_onto(&mut sealed, &bound(holder), text, nonce).map_err(|_| Unspecified)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a text that any of the keys sealed for this purpose and holder.
    pub(crate) fn open(
        &self,
        purpose: Purpose,
        holder: &[&[u8]],
        sealed: &[u8],
    ) -> Option<(Zeroizing<Vec<u8>>, Opener<'_>)> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (name, rest) = sealed.split_at_checked(KEY_ID_BYTES)?;
        let key = self.0.iter().find(|key| key.name == *name)?;
        Some((key.of(purpose).open(&bound(holder), rest)?, Opener(key)))
    }
}

/// Each part is preceded by its length, so that no two holders are encoded alike.
fn bound(holder: &[&[u8]]) -> Vec<u8> {
    join_parts(holder.iter().copied())
}

impl Opener<'_> {
    /// A value that only this key can produce for these parts: 256 bits in base64url.
    pub(crate) fn derive(self, purpose: &str, parts: &[&[u8]]) -> String {
        let whole = [&[purpose.as_bytes()], parts].concat();
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.0.logins, &bound(&whole)))
    }
}

impl Key {
    fn new(secret: &[u8; LENGTH]) -> Self {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, b"postern gateway sessions").extract(secret);
        let mut name = [0; KEY_ID_BYTES];
        name.copy_from_slice(&derive(&root, b"name")[..KEY_ID_BYTES]);
        let aead = |purpose: Purpose| SealingKey::new(&derive(&root, purpose.name()));
        Self {
            name,
            session: aead(Purpose::Session),
            attempt: aead(Purpose::PendingLogin),
            logins: hmac::Key::new(hmac::HMAC_SHA256, &*derive(&root, b"logins")),
        }
    }

    fn of(&self, purpose: Purpose) -> &SealingKey {
        match purpose {
            Purpose::Session => &self.session,
            Purpose::PendingLogin => &self.attempt,
        }
    }
}

#[allow(clippy::expect_used, reason = "only an output of thousands of bytes is refused")]
fn derive(root: &hkdf::Prk, purpose: &[u8]) -> Zeroizing<[u8; LENGTH]> {
    struct Length;
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            LENGTH
        }
    }
    let mut out = Zeroizing::new([0; LENGTH]);
    let info = [purpose];
    let expanded = root.expand(&info, Length).and_then(|okm| okm.fill(&mut *out));
    expanded.expect("the length is within HKDF's bounds");
    out
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKeys({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;

    const A: &str = "sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=";
    const B: &str = "gipyI5XLtt5oaj7WjZmOAnup/CViDw/rdYUXP6vES48=";

    fn keys(text: &str) -> SessionKeys {
        SessionKeys::parse(text).unwrap()
    }

    fn seal(keys: &SessionKeys, text: &[u8]) -> String {
        keys.seal(Purpose::Session, &[b"https://a"], text, &SystemRandom::new()).unwrap()
    }

    fn open(keys: &SessionKeys, sealed: &str) -> Option<Vec<u8>> {
        keys.open(Purpose::Session, &[b"https://a"], sealed.as_bytes()).map(|(text, _)| text.to_vec())
    }

    #[test]
    fn what_is_sealed_opens_where_it_was_meant_to() {
        let keys = keys(A);
        let sealed = seal(&keys, b"text");
        assert_eq!(open(&keys, &sealed).unwrap(), b"text");
        assert_ne!(sealed, seal(&keys, b"text"), "two seals of one text look alike");
        assert!(keys.open(Purpose::PendingLogin, &[b"https://a"], sealed.as_bytes()).is_none());
        assert!(keys.open(Purpose::Session, &[b"https://b"], sealed.as_bytes()).is_none());
        assert!(keys.open(Purpose::Session, &[b"https:", b"//a"], sealed.as_bytes()).is_none());
        for at in [0, 6, 20, sealed.len() - 1] {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(keys.open(Purpose::Session, &[b"https://a"], &changed).is_none(), "byte {at}");
        }
        for cut in [0, 3, 10, sealed.len() - 1] {
            assert!(open(&keys, &sealed[..cut]).is_none());
        }
    }

    /// Texts that the build dfde5c13 sealed and derived with key `A`: cookies outlive an upgrade.
    #[test]
    fn what_a_former_build_sealed_opens() {
        let keys = keys(A);
        let session = "QiNSbUWSpWB5sQ6-V9e16ovURPmMDUTTIM4nVaejcO58BM6QBfHoAkM7mJyTrzBfjzOJJHYbvNQSxQrxfw";
        assert_eq!(open(&keys, session).unwrap(), b"a session of the former build");
        let attempt = b"QiNSbc9sLr9OImilx5qdoarW4TlRF0OkL9Te--i2B1l1dpvQdQ-9RvmF";
        let opened = keys.open(Purpose::PendingLogin, &[b"https://a", b"holder"], attempt);
        assert_eq!(*opened.unwrap().0, b"an attempt");
        let derived = keys.newest().derive("nonce", &[b"1", b"2"]);
        assert_eq!(derived, "fg-LhueAIgBwXACDptP4x_LN3yVNX7rNK6Pull3uJEE");
    }

    #[test]
    fn an_old_key_opens_until_it_is_taken_out() {
        let old = seal(&keys(A), b"old");
        let both = keys(&format!("# rotated\n{B}\n\n{A}\n"));
        assert_eq!(open(&both, &old).unwrap(), b"old");
        let new = seal(&both, b"new");
        assert_eq!(open(&keys(B), &new).unwrap(), b"new", "the first key seals");
        assert!(open(&keys(A), &new).is_none());
        assert!(open(&keys(B), &old).is_none());
    }

    #[test]
    fn what_is_derived_is_one_key_s_and_one_login_s() {
        let (a, b) = (keys(A), keys(B));
        let nonce = a.newest().derive("nonce", &[b"1", b"2"]);
        assert_eq!(nonce, a.newest().derive("nonce", &[b"1", b"2"]));
        assert_eq!(nonce.len(), 43);
        for other in [
            a.newest().derive("nonce", &[b"12"]),
            a.newest().derive("verifier", &[b"1", b"2"]),
            b.newest().derive("nonce", &[b"1", b"2"]),
        ] {
            assert_ne!(nonce, other);
        }
    }

    #[test]
    fn a_file_without_sound_keys_is_refused() {
        let fault = |text: &str| SessionKeys::parse(text).unwrap_err();
        assert_eq!(fault(""), KeysMalformed::None);
        assert_eq!(fault("# nothing\n"), KeysMalformed::None);
        assert_eq!(fault(&format!("{A}\nsecret")), KeysMalformed::Line(2));
        assert_eq!(fault("AAAA"), KeysMalformed::Line(1));
        let zeros = STANDARD.encode([0; LENGTH]);
        assert_eq!(fault(&format!("{A}\n{zeros}")), KeysMalformed::Regular(2));
        assert_eq!(fault(&format!("{A}\n{B}\n{A}")), KeysMalformed::Repeated(3));
        assert_eq!(format!("{:?}", keys(A)), "SessionKeys(1)");
    }
}
