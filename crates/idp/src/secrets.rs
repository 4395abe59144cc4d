//! Secrets: the shared secret of a provider, and the keys derived from it.
//!
//! Owns: reading the secret, and one key for each purpose (HKDF, RFC 5869): digests of tokens, tags
//! of the revocation log, sealing of data stored in browsers and in the database, form proofs
//! against cross-site requests.
//!
//! Does not own: where the secret is stored, or signing keys ([`crate::keys`]), which it only
//! seals.
//!
//! All nodes of a provider share the secret. With a copy of the database but without the secret, an
//! attacker can neither sign nor test whether a guessed token is in it. A new secret invalidates
//! every token, session and signing key.

use std::fmt;

use auth::{
    sealing::{KEY_LENGTH as LENGTH, NONCE_LENGTH, SealingKey, join_parts},
    time::Timestamp,
    token::opaque::DigestKey,
};
use aws_lc_rs::{constant_time, hkdf, hmac};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use coherence::secret::{SecretError, SharedSecret, looks_non_random};
use coherence::tags::{SEALED_TAGS, TagKey};
use store::StoredDigest;
use zeroize::Zeroizing;

use crate::{Entropy, EntropyFailed};

pub use coherence::{Tag, tags::TagSubject};

/// Bytes of a form proof: 128 bits.
const FORM_PROOF_BYTES: usize = 16;
const DAY: u64 = 24 * 60 * 60;
/// The nonce of pairwise identifiers, which are to be the same each time (RFC 8452 §1: then only
/// equality shows).
const FIXED_NONCE: [u8; NONCE_LENGTH] = [0; NONCE_LENGTH];
/// Derivation purpose of the key of revocation tags.
const TAGS_PURPOSE: &str = "invalidation tags";

/// Reason why a text is not the provider's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretMalformed {
    /// It is not base64 or has another length.
    #[error(
        "the provider's secret is malformed: use {LENGTH} random bytes in base64 (openssl rand -base64 {LENGTH})"
    )]
    Form,
    /// Its bytes repeat or count up, so it was not drawn at random.
    #[error(
        "the provider's secret is not random, its bytes repeat or count up: generate it (openssl rand -base64 {LENGTH})"
    )]
    Regular,
}

/// Purpose of a sealed text; it does not open for another purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Authorization state that a browser keeps between two pages.
    AuthorizationState,
    /// The signing keys in the database.
    KeyRing,
    /// The name that somebody typed who asks for a reset link, in the queue of mails.
    ResetRequest,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::AuthorizationState => "postern provider flow",
            Self::KeyRing => "postern provider key ring",
            Self::ResetRequest => "postern provider reset request",
        }
    }
}

/// What a pairwise identifier stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairwiseKind {
    /// A user: `sub`.
    User,
    /// A session: `sid`.
    Session,
}

impl PairwiseKind {
    const fn context(self) -> &'static [u8] {
        match self {
            Self::User => b"user",
            Self::Session => b"session",
        }
    }
}

/// The keys derived from the shared secret. `Debug` prints nothing.
pub struct Secrets {
    root: hkdf::Prk,
    digests: DigestKey,
    tags: TagKey,
    sealed_tags: SealingKey,
    pairwise: SealingKey,
    proofs: hmac::Key,
    names: hmac::Key,
}

impl Secrets {
    /// Parses the text of a file: [`LENGTH`] bytes in base64, with optional white space around it.
    ///
    /// # Errors
    /// [`SecretMalformed`] when the text has another form or is not random.
    pub fn parse(text: &str) -> Result<Self, SecretMalformed> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| SecretMalformed::Form)?);
        let bytes: &[u8; LENGTH] = bytes.as_slice().try_into().map_err(|_| SecretMalformed::Form)?;
        if looks_non_random(bytes) {
            return Err(SecretMalformed::Regular);
        }
        Ok(Self::new(bytes))
    }

    /// Generates a secret, as text for its file.
    ///
    /// # Errors
    /// [`EntropyFailed`] when the random source fails.
    pub fn generate(entropy: &dyn Entropy) -> Result<Zeroizing<String>, EntropyFailed> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        entropy.fill(&mut *bytes)?;
        Ok(Zeroizing::new(STANDARD.encode(*bytes)))
    }

    /// Derives the keys from the secret.
    pub fn new(secret: &[u8; LENGTH]) -> Self {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, b"postern provider").extract(secret);
        let hmac = |purpose| hmac::Key::new(hmac::HMAC_SHA256, &*derive(&root, purpose));
        let tags = TagKey::new(&derive(&root, TAGS_PURPOSE));
        Self {
            digests: DigestKey::new(&derive(&root, "token digests")),
            sealed_tags: SealingKey::new(&tags.derive_key(SEALED_TAGS)),
            tags,
            pairwise: SealingKey::new(&derive(&root, "pairwise identifiers")),
            proofs: hmac("form proofs"),
            names: hmac("names"),
            root,
        }
    }

    /// Digest under which a token is stored.
    pub fn digest(&self, token: &str) -> StoredDigest {
        StoredDigest(self.digests.digest(token))
    }

    /// Digest under which a text is stored that is not a token of this provider, such as the
    /// identifier of a client assertion.
    pub fn digest_of(&self, parts: &[&str]) -> StoredDigest {
        let mut digest = [0; 32];
        digest.copy_from_slice(mac(&self.names, parts).as_ref());
        StoredDigest(digest)
    }

    /// Tag of a subject in the revocation log.
    pub fn tag(&self, subject: TagSubject<'_>) -> Tag {
        self.tags.tag(subject)
    }

    /// Seals tags for the consumers of the revocation log, as text.
    ///
    /// # Errors
    /// [`EntropyFailed`] when the random source or the encryption fails.
    pub fn seal_tags(&self, tags: &[Tag], entropy: &dyn Entropy) -> Result<String, EntropyFailed> {
        let plain: Vec<u8> = tags.iter().flat_map(|tag| tag.0).collect();
        let (mut nonce, mut sealed) = ([0; NONCE_LENGTH], Vec::new());
        entropy.fill(&mut nonce)?;
        self.sealed_tags.seal_onto(&mut sealed, b"", &plain, nonce).map_err(|_| EntropyFailed)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Identifier that stands for this content: the same each time, and only this provider finds
    /// the content.
    pub fn pairwise(&self, kind: PairwiseKind, content: &[u8]) -> String {
        let mut sealed = Vec::new();
        // The content is short, and only one of 64 GiB is refused.
        let done = self.pairwise.seal_onto(&mut sealed, kind.context(), content, FIXED_NONCE);
        debug_assert!(done.is_ok(), "short");
        URL_SAFE_NO_PAD.encode(sealed.get(NONCE_LENGTH..).unwrap_or_default())
    }

    /// Content of the output of [`Secrets::pairwise`]. `None`: it is of another provider or kind,
    /// or something else.
    pub fn open_pairwise(&self, kind: PairwiseKind, identifier: &str) -> Option<Zeroizing<Vec<u8>>> {
        let sealed = URL_SAFE_NO_PAD.decode(identifier).ok()?;
        self.pairwise.open(kind.context(), &[&FIXED_NONCE[..], &sealed].concat())
    }

    /// Secret that the provider's nodes share with each other and with the consumers of its log,
    /// with message keys of these generations.
    ///
    /// # Errors
    /// [`SecretError`] when there are no generations, too many, or one occurs twice.
    pub fn shared_secret(&self, generations: &[u8]) -> Result<SharedSecret, SecretError> {
        let root = |number: &u8| (*number, derive(&self.root, &format!("invalidation messages {number}")));
        SharedSecret::new(derive(&self.root, TAGS_PURPOSE), generations.iter().map(root).collect())
    }

    /// Proof in a form against cross-site requests: bound to one browser, unknown to other sites.
    pub fn form_proof(&self, browser: &str) -> String {
        URL_SAFE_NO_PAD.encode(&mac(&self.proofs, &[browser]).as_ref()[..FORM_PROOF_BYTES])
    }

    /// Whether a form carries the proof of this browser.
    pub fn is_form_proof(&self, proof: &str, browser: &str) -> bool {
        constant_time::verify_slices_are_equal(proof.as_bytes(), self.form_proof(browser).as_bytes()).is_ok()
    }

    /// Encrypts content for one purpose and holder. The key changes every day.
    ///
    /// # Errors
    /// [`EntropyFailed`] when the random source or the encryption fails.
    pub fn seal(
        &self,
        purpose: Purpose,
        holder: &str,
        content: &[u8],
        now: Timestamp,
        entropy: &dyn Entropy,
    ) -> Result<Vec<u8>, EntropyFailed> {
        let day = now.as_secs() / DAY;
        let mut nonce = [0; NONCE_LENGTH];
        entropy.fill(&mut nonce)?;
        let mut sealed = day.to_be_bytes().to_vec();
        let key = self.sealing_key(purpose, day);
        key.seal_onto(&mut sealed, holder.as_bytes(), content, nonce).map_err(|_| EntropyFailed)?;
        Ok(sealed)
    }

    /// Decrypts the output of [`Secrets::seal`]. `None`: it was not sealed by this provider, was
    /// modified, or belongs to another purpose or holder. The caller includes a time in the content
    /// and checks it.
    pub fn open(&self, purpose: Purpose, holder: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (day, rest) = sealed.split_first_chunk::<8>()?;
        self.sealing_key(purpose, u64::from_be_bytes(*day)).open(holder.as_bytes(), rest)
    }

    fn sealing_key(&self, purpose: Purpose, day: u64) -> SealingKey {
        SealingKey::new(&derive(&self.root, &format!("{} {day}", purpose.name())))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// Derives one key for one purpose.
fn derive(root: &hkdf::Prk, purpose: &str) -> Zeroizing<[u8; LENGTH]> {
    let mut key = Zeroizing::new([0; LENGTH]);
    let info = [purpose.as_bytes()];
    // HKDF fails only for outputs longer than 255 digests; this one has one digest, so the zero key
    // is never used.
    let expanded = root.expand(&info, hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut *key));
    debug_assert!(expanded.is_ok(), "one digest long");
    key
}

fn mac(key: &hmac::Key, parts: &[&str]) -> hmac::Tag {
    hmac::sign(key, &join_parts(parts.iter().map(|part| part.as_bytes())))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn secrets(byte: u8) -> Secrets {
        Secrets::new(&[byte; LENGTH])
    }

    #[test]
    fn a_generated_secret_is_read_back() {
        let text = Secrets::generate(&SystemRandom::new()).unwrap();
        let (a, b) = (Secrets::parse(&text).unwrap(), Secrets::parse(&format!(" {}\n", &*text)).unwrap());
        assert_eq!(a.digest("x"), b.digest("x"));
        for bad in ["", "c2hvcnQ=", "not base64!", &"A".repeat(64)] {
            assert_eq!(Secrets::parse(bad).map(drop), Err(SecretMalformed::Form), "{bad:?}");
        }
        let zeros = STANDARD.encode([0; LENGTH]);
        assert_eq!(Secrets::parse(&zeros).map(drop), Err(SecretMalformed::Regular));
        assert_eq!(format!("{a:?}"), "Secrets(..)");
    }

    #[test]
    fn every_purpose_has_its_own_key_and_every_provider_its_own_secret() {
        let (a, b) = (secrets(1), secrets(2));
        assert_ne!(a.digest("x"), b.digest("x"));
        assert_ne!(a.digest("x"), a.digest_of(&["x"]));
        assert_ne!(a.digest_of(&["ab", "c"]), a.digest_of(&["a", "bc"]));
        assert_ne!(a.tag(TagSubject::User("x")), b.tag(TagSubject::User("x")));
        assert_ne!(a.tag(TagSubject::User("x")), a.tag(TagSubject::Client("x")));
        assert_ne!(a.tag(TagSubject::Consent("ab", "c")), a.tag(TagSubject::Consent("a", "bc")));
    }

    #[test]
    fn a_proof_is_one_browsers() {
        let secrets = secrets(1);
        let proof = secrets.form_proof("browser");
        assert!(secrets.is_form_proof(&proof, "browser"));
        assert!(!secrets.is_form_proof(&proof, "another") && !secrets.is_form_proof("", "browser"));
    }

    #[test]
    fn what_is_sealed_opens_for_the_same_purpose_and_holder_alone() {
        let (ours, theirs, entropy) = (secrets(1), secrets(2), SystemRandom::new());
        let sealed = ours.seal(Purpose::AuthorizationState, "browser", b"content", NOW, &entropy).unwrap();
        let open = |holder: &Secrets, purpose, context, sealed: &[u8]| {
            holder.open(purpose, context, sealed).map(|c| c.to_vec())
        };
        assert_eq!(
            open(&ours, Purpose::AuthorizationState, "browser", &sealed).as_deref(),
            Some(&b"content"[..])
        );
        assert_eq!(open(&ours, Purpose::KeyRing, "browser", &sealed), None);
        assert_eq!(open(&ours, Purpose::AuthorizationState, "another", &sealed), None);
        assert_eq!(open(&theirs, Purpose::AuthorizationState, "browser", &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&ours, Purpose::AuthorizationState, "browser", &changed), None, "byte {at}");
            assert_eq!(
                open(&ours, Purpose::AuthorizationState, "browser", &sealed[..at]),
                None,
                "cut at {at}"
            );
        }
        let again = ours.seal(Purpose::AuthorizationState, "browser", b"content", NOW, &entropy).unwrap();
        assert_ne!(sealed, again, "nobody sees that it is the same");
    }
}
