//! What tags are made from.
//!
//! Owns: the things that an authority can take back, and the keyed hash that names each of them in its log. Does not own:
//! which of them a revocation concerns (the authority's), or which of them a credential follows from (whoever reads it).
//!
//! Authority and consumers make tags from the same key, each from what it has at hand: the authority from its rows, a
//! consumer from the claims of a token. Whoever has no key learns nothing from a tag, not even whether a guess was right.

use std::fmt;

use aws_lc_rs::hmac;

use crate::log_types::Tag;

/// What a tag stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagSubject<'a> {
    /// One access token, by its `jti`.
    Token(&'a str),
    /// Everything that followed from one authorization.
    Family(&'a str),
    /// Everything of one session, by its `sid`.
    Session(&'a str),
    /// Everything of one user, by their `sub`.
    User(&'a str),
    /// Everything of one client.
    Client(&'a str),
    /// What one user allowed one client.
    Consent(&'a str, &'a str),
    /// A signing key, by its `kid`.
    Key(&'a str),
    /// Everything of whoever has an e-mail address, in lower case.
    Email(&'a str),
}

/// Makes the tags of one authority. `Debug` prints nothing.
#[derive(Clone)]
pub struct TagKey(hmac::Key);

impl TagKey {
    /// From a secret that the authority's nodes and those who follow it share. It stays as it is for as long as the log does.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// What the log calls it.
    pub fn tag(&self, subject: TagSubject<'_>) -> Tag {
        match subject {
            TagSubject::Token(jti) => self.of(&["token", jti]),
            TagSubject::Family(id) => self.of(&["family", id]),
            TagSubject::Session(sid) => self.of(&["session", sid]),
            TagSubject::User(id) => self.of(&["user", id]),
            TagSubject::Client(id) => self.of(&["client", id]),
            TagSubject::Consent(user, client) => self.of(&["consent", user, client]),
            TagSubject::Key(kid) => self.of(&["key", kid]),
            TagSubject::Email(address) => self.of(&["email", address]),
        }
    }

    /// Of tokens that say themselves what is known of a subject: one that was made before that changed says what no longer holds.
    pub fn said(&self, subject: TagSubject<'_>) -> Tag {
        self.about("said", self.tag(subject))
    }

    /// Of what somebody was told about a subject: what was told before it changed no longer holds, and has to be asked for again.
    pub fn told(&self, subject: TagSubject<'_>) -> Tag {
        self.about("told", self.tag(subject))
    }

    fn about(&self, what: &str, Tag(subject): Tag) -> Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(what.as_bytes());
        // Of one length each, and unlike what `of` hashes, which begins with a length in eight bytes.
        context.update(&subject);
        short(&context.sign())
    }

    /// Each part after its length, so that no two lists are one.
    fn of(&self, parts: &[&str]) -> Tag {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        short(&context.sign())
    }
}

fn short(hash: &hmac::Tag) -> Tag {
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
            let [tag, said, told] = [ours.tag(*one), ours.said(*one), ours.told(*one)];
            assert!(tag != said && said != told && told != tag, "{one:?}");
            for other in &subjects[..at] {
                assert_ne!(ours.tag(*one), ours.tag(*other), "{one:?} and {other:?}");
            }
        }
        assert_eq!(format!("{ours:?}"), "TagKey(..)");
    }
}
