//! Tags: keyed hashes that name what an authority can revoke.
//!
//! Owns: the subjects that an authority can revoke ([`TagSubject`]), and the keyed hash that names
//! each of them in its log. Does not own: which subjects a revocation concerns (the authority
//! decides), or which subjects a credential depends on (its verifier decides).
//!
//! Authority and consumers make tags from the same key, each from its own data: the authority from
//! its rows, a consumer from the claims of a token. Without the key, a tag reveals nothing, not
//! even whether a guess is right.

use std::fmt;

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::log_types::Tag;

/// Purpose of the key that seals tags in a token whose claims do not name their subjects.
pub const SEALED_TAGS: &str = "sealed tags";

/// What a tag stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagSubject<'a> {
    /// One access token, by its `jti`.
    Token(&'a str),
    /// Every token that follows from one authorization.
    Family(&'a str),
    /// Everything of one session, by its `sid`.
    Session(&'a str),
    /// Everything of one user, by their `sub`.
    User(&'a str),
    /// Everything of one client, by its ID.
    Client(&'a str),
    /// What one user consented to for one client.
    Consent(&'a str, &'a str),
    /// A signing key, by its `kid`.
    Key(&'a str),
    /// Everything of the user who has an e-mail address, in lower case.
    Email(&'a str),
}

/// Key that makes the tags of one authority. `Debug` prints nothing.
#[derive(Clone)]
pub struct TagKey(hmac::Key);

impl TagKey {
    /// From a secret that the authority's nodes share with its consumers. It stays the same for as
    /// long as the log does.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Name of the subject in the log.
    pub fn tag(&self, subject: TagSubject<'_>) -> Tag {
        match subject {
            TagSubject::Token(jti) => self.hash_parts(&["token", jti]),
            TagSubject::Family(id) => self.hash_parts(&["family", id]),
            TagSubject::Session(sid) => self.hash_parts(&["session", sid]),
            TagSubject::User(id) => self.hash_parts(&["user", id]),
            TagSubject::Client(id) => self.hash_parts(&["client", id]),
            TagSubject::Consent(user, client) => self.hash_parts(&["consent", user, client]),
            TagSubject::Key(kid) => self.hash_parts(&["key", kid]),
            TagSubject::Email(address) => self.hash_parts(&["email", address]),
        }
    }

    /// A key for another purpose, which authority and consumers share. It reveals nothing of this
    /// one.
    pub fn derive_key(&self, purpose: &str) -> Zeroizing<[u8; 32]> {
        let mut context = hmac::Context::with_key(&self.0);
        // As in `derived_tag`: the inputs of tags begin with a length in eight bytes, whose first
        // byte is zero.
        context.update(b"key ");
        context.update(purpose.as_bytes());
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(context.sign().as_ref());
        key
    }

    /// Tag of tokens that carry claims about a subject: a token from before a change of the claims
    /// is no longer valid.
    pub fn claims_tag(&self, subject: TagSubject<'_>) -> Tag {
        self.derived_tag("said", self.tag(subject))
    }

    /// Tag of what the authority answered about a subject, as in an introspection or a login: an
    /// answer from before a change no longer holds, and must be requested again.
    pub fn answer_tag(&self, subject: TagSubject<'_>) -> Tag {
        self.derived_tag("told", self.tag(subject))
    }

    fn derived_tag(&self, purpose: &str, Tag(subject): Tag) -> Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(purpose.as_bytes());
        // Subjects have a fixed length. This input differs from that of `of`, which begins with a
        // length in eight bytes.
        context.update(&subject);
        truncate(&context.sign())
    }

    /// Hashes each part after its length, so that no two lists have the same input.
    fn hash_parts(&self, parts: &[&str]) -> Tag {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        truncate(&context.sign())
    }
}

fn truncate(hash: &hmac::Tag) -> Tag {
    let mut tag = [0; Tag::LENGTH];
    tag.copy_from_slice(&hash.as_ref()[..Tag::LENGTH]);
    Tag(tag)
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_has_its_own_tag_and_each_authority_its_own() {
        let (ours, theirs) = (TagKey::new(&[1; 32]), TagKey::new(&[2; 32]));
        let subjects = [
            TagSubject::Token("x"),
            TagSubject::Family("x"),
            TagSubject::Session("x"),
            TagSubject::User("x"),
            TagSubject::Client("x"),
            TagSubject::Consent("x", "y"),
            TagSubject::Consent("xy", ""),
            TagSubject::Key("x"),
            TagSubject::Email("x"),
        ];
        for (at, one) in subjects.iter().enumerate() {
            assert_eq!(ours.tag(*one), ours.tag(*one));
            assert_ne!(ours.tag(*one), theirs.tag(*one));
            let [tag, claims_tag, answer_tag] =
                [ours.tag(*one), ours.claims_tag(*one), ours.answer_tag(*one)];
            assert!(tag != claims_tag && claims_tag != answer_tag && answer_tag != tag, "{one:?}");
            for other in &subjects[..at] {
                assert_ne!(ours.tag(*one), ours.tag(*other), "{one:?} and {other:?}");
            }
        }
        assert_eq!(format!("{ours:?}"), "TagKey(..)");
    }
}
