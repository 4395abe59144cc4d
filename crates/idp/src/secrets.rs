//! The one secret of a provider, and the keys that are derived from it.
//!
//! Owns: reading the secret, and one key for each purpose (HKDF, RFC 5869): digests of tokens, tags of the invalidation
//! log, sealing of what is kept outside (in browsers, in the database), proofs that a form came from us.
//! Does not own: where the secret is kept, or signing keys ([`crate::keys`]), which it only seals.
//!
//! All nodes of a provider share the secret. Whoever has a copy of the database but not the secret can neither sign nor find
//! out whether a token he guesses is in it. Another secret voids every token, session and signing key at once.

use std::fmt;

use auth::{time::Timestamp, token::opaque::DigestKey};
use aws_lc_rs::{
    aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    constant_time, hkdf, hmac,
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use coherence::secret::{SecretError, SharedSecret, is_regular};
use coherence::tags::TagKey;
use store::StoredDigest;
use zeroize::Zeroizing;

use crate::{Entropy, EntropyFailed};

pub use coherence::{Tag, tags::TagSubject};

/// Bytes of the secret.
const LENGTH: usize = 32;
/// Characters of a proof: 128 bits.
const PROOF: usize = 16;
const DAY: u64 = 24 * 60 * 60;
/// What the key of the tags is for.
const TAGS: &str = "invalidation tags";

/// Why a text is not the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretMalformed {
    /// Something else stands there.
    #[error("the provider's secret is {LENGTH} random bytes in base64 (openssl rand -base64 {LENGTH})")]
    Form,
    /// Nobody drew it at random.
    #[error(
        "the provider's secret is not random: its bytes repeat or count up (openssl rand -base64 {LENGTH})"
    )]
    Regular,
}

/// What a sealed text is for; one sealed for another purpose does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// What a browser keeps between two pages.
    Flow,
    /// The signing keys in the database.
    KeyRing,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::Flow => "postern provider flow",
            Self::KeyRing => "postern provider key ring",
        }
    }
}

/// The keys of a provider. `Debug` prints nothing.
pub struct Secrets {
    root: hkdf::Prk,
    digests: DigestKey,
    tags: TagKey,
    proofs: hmac::Key,
    names: hmac::Key,
}

impl Secrets {
    /// From the text of a file: [`LENGTH`] bytes in base64, white space around it.
    pub fn parse(text: &str) -> Result<Self, SecretMalformed> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| SecretMalformed::Form)?);
        let bytes: &[u8; LENGTH] = bytes.as_slice().try_into().map_err(|_| SecretMalformed::Form)?;
        if is_regular(bytes) {
            return Err(SecretMalformed::Regular);
        }
        Ok(Self::new(bytes))
    }

    /// A secret as text, for the file that keeps it.
    pub fn generate(entropy: &dyn Entropy) -> Result<Zeroizing<String>, EntropyFailed> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        entropy.fill(&mut *bytes)?;
        Ok(Zeroizing::new(STANDARD.encode(*bytes)))
    }

    /// From the secret itself.
    pub fn new(secret: &[u8; LENGTH]) -> Self {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, b"postern provider").extract(secret);
        let hmac = |purpose| hmac::Key::new(hmac::HMAC_SHA256, &*derive(&root, purpose));
        Self {
            digests: DigestKey::new(&derive(&root, "token digests")),
            tags: TagKey::new(&derive(&root, TAGS)),
            proofs: hmac("form proofs"),
            names: hmac("names"),
            root,
        }
    }

    /// What a token is looked up by.
    pub fn digest(&self, token: &str) -> StoredDigest {
        StoredDigest(self.digests.digest(token))
    }

    /// What something that is no token of ours is looked up by, such as the identifier of somebody's assertion.
    pub fn digest_of(&self, parts: &[&str]) -> StoredDigest {
        let mut digest = [0; 32];
        digest.copy_from_slice(mac(&self.names, parts).as_ref());
        StoredDigest(digest)
    }

    /// What the invalidation log calls it.
    pub fn tag(&self, subject: TagSubject<'_>) -> Tag {
        self.tags.tag(subject)
    }

    /// What the provider's nodes share with each other and with those who follow its log, in these generations.
    ///
    /// # Errors
    /// None, one twice, or too many of them.
    pub fn shared(&self, generations: &[u8]) -> Result<SharedSecret, SecretError> {
        let root = |number: &u8| (*number, derive(&self.root, &format!("invalidation messages {number}")));
        SharedSecret::new(derive(&self.root, TAGS), generations.iter().map(root).collect())
    }

    /// What a form of ours carries, that another site cannot know: bound to one browser.
    pub fn form_proof(&self, browser: &str) -> String {
        URL_SAFE_NO_PAD.encode(&mac(&self.proofs, &[browser]).as_ref()[..PROOF])
    }

    /// Whether a form carries the proof of this browser.
    pub fn is_form_proof(&self, proof: &str, browser: &str) -> bool {
        constant_time::verify_slices_are_equal(proof.as_bytes(), self.form_proof(browser).as_bytes()).is_ok()
    }

    /// Encrypts, for whoever has the secret and names the same purpose and holder. The key is another one each day.
    pub fn seal(
        &self,
        purpose: Purpose,
        holder: &str,
        content: &[u8],
        now: Timestamp,
        entropy: &dyn Entropy,
    ) -> Result<Vec<u8>, EntropyFailed> {
        let day = now.as_secs() / DAY;
        let mut nonce = [0; NONCE_LEN];
        entropy.fill(&mut nonce)?;
        let mut sealed = content.to_vec();
        let key = self.sealing_key(purpose, day)?;
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(holder.as_bytes()),
                &mut sealed,
            )
            .map_err(|_| EntropyFailed)?;
        let mut out = day.to_be_bytes().to_vec();
        out.extend_from_slice(&nonce);
        out.append(&mut sealed);
        out.extend_from_slice(tag.as_ref());
        Ok(out)
    }

    /// The reverse of [`Secrets::seal`]; `None`: it is not ours, was changed, or is meant for something else. How old it may be
    /// is for the caller to say, who puts the time inside.
    pub fn open(&self, purpose: Purpose, holder: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (day, rest) = sealed.split_first_chunk::<8>()?;
        let (nonce, content) = rest.split_first_chunk::<NONCE_LEN>()?;
        let key = self.sealing_key(purpose, u64::from_be_bytes(*day)).ok()?;
        let mut content = Zeroizing::new(content.to_vec());
        let opened = key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(holder.as_bytes()), &mut content)
            .ok()?
            .len();
        content.truncate(opened);
        Some(content)
    }

    fn sealing_key(&self, purpose: Purpose, day: u64) -> Result<LessSafeKey, EntropyFailed> {
        let key = derive(&self.root, &format!("{} {day}", purpose.name()));
        let key = UnboundKey::new(&AES_256_GCM_SIV, &*key).map_err(|_| EntropyFailed)?;
        Ok(LessSafeKey::new(key))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// One key for one purpose.
fn derive(root: &hkdf::Prk, purpose: &str) -> Zeroizing<[u8; LENGTH]> {
    let mut key = Zeroizing::new([0; LENGTH]);
    let info = [purpose.as_bytes()];
    // HKDF fails for outputs longer than 255 digests alone; a key of zeros is never used for one that is shorter.
    let expanded = root.expand(&info, hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut *key));
    debug_assert!(expanded.is_ok(), "one digest long");
    key
}

/// Each part after its length, so that no two lists are one.
fn mac(key: &hmac::Key, parts: &[&str]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    context.sign()
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
        let sealed = ours.seal(Purpose::Flow, "browser", b"content", NOW, &entropy).unwrap();
        let open = |by: &Secrets, purpose, context, sealed: &[u8]| {
            by.open(purpose, context, sealed).map(|c| c.to_vec())
        };
        assert_eq!(open(&ours, Purpose::Flow, "browser", &sealed).as_deref(), Some(&b"content"[..]));
        assert_eq!(open(&ours, Purpose::KeyRing, "browser", &sealed), None);
        assert_eq!(open(&ours, Purpose::Flow, "another", &sealed), None);
        assert_eq!(open(&theirs, Purpose::Flow, "browser", &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&ours, Purpose::Flow, "browser", &changed), None, "byte {at}");
            assert_eq!(open(&ours, Purpose::Flow, "browser", &sealed[..at]), None, "cut at {at}");
        }
        let again = ours.seal(Purpose::Flow, "browser", b"content", NOW, &entropy).unwrap();
        assert_ne!(sealed, again, "nobody sees that it is the same");
    }
}
