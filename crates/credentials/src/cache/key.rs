//! Cache key: the name of a credential inside the cache.
//!
//! A [`CacheKey`] is a 128-bit pseudo-random function (SipHash-1-3-128) of a scope and the *whole*
//! credential, keyed with a secret drawn once per process. The cache keeps no raw token, and outside
//! the process two tokens with one key cannot be constructed. (Requests under way have theirs, and a
//! connection remembers a recent one, until its client has sent nothing for a second.) The reduced rounds are chosen for
//! the hot path: no attack on them is known, and here an attacker would not even see the function's
//! output.

use std::hash::Hasher as _;

use aws_lc_rs::rand::SecureRandom;
use siphasher::sip::SipHasher13 as SipHasher;
use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// The per-process secret of all keys. Its `Debug` does not print it.
#[derive(Clone)]
pub struct CacheSecret([u8; 16]);

impl CacheSecret {
    /// Takes bytes that must be random and unknown outside the process.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Draws a secret.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn generate(random: &dyn SecureRandom) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut bytes = [0; 16];
        random.fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The key space of one configuration: `version` digests everything that shapes a fact,
    /// `variant` everything that shapes its rendering. Keys of two scopes never coincide.
    pub fn scope(&self, version: u64, variant: u64) -> CacheScope {
        let mut state = SipHasher13::new_with_key(&self.0);
        // Fixed width, hence no credential of one scope extends the prefix of another.
        state.write(&version.to_le_bytes());
        state.write(&variant.to_le_bytes());
        CacheScope(state)
    }

    /// A hash state for watched names, independent of the other uses of the secret.
    pub(super) fn name_hasher(&self) -> SipHasher {
        let mut state = SipHasher::new_with_key(&self.0);
        state.write(b"names");
        state
    }

    /// A number that looks random to others and is the same for the same label and count: for timer
    /// jitter.
    pub fn spread(&self, label: &str, count: u64) -> u64 {
        let mut state = SipHasher13::new_with_key(&self.0);
        state.write(&count.to_le_bytes());
        state.hash(label.as_bytes()).h1
    }
}

impl std::fmt::Debug for CacheSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Creates the keys of one configuration. The scope is already absorbed, so a key costs only its
/// credential.
#[derive(Clone)]
pub struct CacheScope(SipHasher13);

impl CacheScope {
    /// The key of a whole credential, as received.
    pub fn key(&self, credential: &[u8]) -> CacheKey {
        CacheKey(self.0.hash(credential).into())
    }

    /// Starts a key of several parts.
    pub fn parts(&self) -> KeyParts {
        KeyParts(self.0)
    }
}

/// A key under construction from parts. Parts are unambiguous: `ab` and `c` differ from `a` and
/// `bc`.
pub struct KeyParts(SipHasher13);

impl KeyParts {
    /// Adds the next part.
    pub fn add(&mut self, part: &[u8]) {
        self.0.write(&(part.len() as u64).to_le_bytes());
        self.0.write(part);
    }

    /// Adds a value of fixed length, such as the number of parts that follow.
    pub fn add_marker(&mut self, mark: u8) {
        self.0.write(&[mark]);
    }

    /// Finishes the key.
    pub fn key(self) -> CacheKey {
        CacheKey(self.0.finish128().into())
    }
}

impl std::fmt::Debug for CacheScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scope")
    }
}

/// The key of a credential in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey(u128);

impl CacheKey {
    /// Selects the shard; independent of the hash within a shard.
    pub(super) fn shard(self, mask: usize) -> usize {
        usize::try_from(self.0 >> 96).unwrap_or(0) & mask
    }

    /// The hash within a shard.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(super) fn hash(self) -> u64 {
        self.0 as u64
    }

    /// 16 uniformly distributed bits that neither the shard nor the bucket depends on: jitter.
    #[expect(clippy::cast_possible_truncation, reason = "16 bits are meant")]
    pub(super) fn jitter(self) -> u16 {
        (self.0 >> 64) as u16
    }
}

impl std::fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_siphash_1_3_128_of_scope_and_whole_credential() {
        let secret = CacheSecret::new(*b"0123456789abcdef");
        let mut whole = Vec::from(7_u64.to_le_bytes());
        whole.extend(9_u64.to_le_bytes());
        whole.extend(b"token");
        let expected: u128 = SipHasher13::new_with_key(b"0123456789abcdef").hash(&whole).into();
        assert_eq!(secret.scope(7, 9).key(b"token"), CacheKey(expected));
    }

    #[test]
    fn version_variant_secret_and_every_byte_count() {
        let secret = CacheSecret::new([1; 16]);
        let base = secret.scope(1, 1).key(b"token");
        assert_ne!(base, secret.scope(2, 1).key(b"token"));
        assert_ne!(base, secret.scope(1, 2).key(b"token"));
        assert_ne!(base, CacheSecret::new([2; 16]).scope(1, 1).key(b"token"));
        assert_ne!(base, secret.scope(1, 1).key(b"tokem"));
        assert_ne!(base, secret.scope(1, 1).key(b"token\0"));
        assert_eq!(base, secret.scope(1, 1).key(b"token"));
    }

    #[test]
    fn parts_are_told_apart_by_where_they_end() {
        let scope = CacheSecret::new([1; 16]).scope(1, 1);
        let key = |parts: &[&[u8]]| {
            let mut all = scope.parts();
            for part in parts {
                all.add(part);
            }
            all.key()
        };
        assert_eq!(key(&[b"ab", b"c"]), key(&[b"ab", b"c"]));
        for other in [&[&b"a"[..], b"bc"][..], &[b"abc"], &[b"ab", b"c", b""], &[b"c", b"ab"]] {
            assert_ne!(key(&[b"ab", b"c"]), key(other), "{other:?}");
        }
    }

    #[test]
    fn debug_prints_nothing_secret() {
        let secret = CacheSecret::new([0x5a; 16]);
        let text = format!("{secret:?}{:?}{:?}", secret.scope(1, 1), secret.scope(1, 1).key(b"token"));
        assert_eq!(text, "SecretScopeKey");
    }
}
