//! What an event takes back.
//!
//! Owns: from the names of those it is about to the tags of what they have. Does not own: tags of tokens and sessions
//! ([`crate::revocation`]), which have to fit these.
//!
//! A session, a token, and what was granted once end wholly: none of them begins again. A user goes on, so what is taken back of
//! them is what was made before the event, by the issuer's clock. Tokens tell whole seconds: one that was made in the very second
//! of the event may be of before it, and is taken for that.
//!
//! Where claims changed, a token that says the old ones itself is taken back. What was told by somebody, like a session's claims, is
//! only too old if it was told before we heard of the change, by our clock: it is asked for again.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use auth::token::security_event::{EventKind, SecurityEvent, SubjectName};
use coherence::Tag;
use coherence::tags::{TagKey, TagSubject};

use super::EventTaken;
use crate::revocation::FollowedIssuer;

/// What an event means here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventMeaning {
    /// These are taken back.
    Takes(Vec<EventTaken>),
    /// It is about users of an issuer that nobody here believes.
    Foreign,
    /// It takes nothing back.
    Nothing,
}

/// What it makes of the tags of a subject.
#[derive(Clone, Copy)]
enum RevokedSubject {
    Ends,
    Changes,
}

/// Tags by what of theirs is taken back.
#[derive(Default)]
struct Tags {
    whole: Vec<Tag>,
    /// What was made before it happened.
    before: Vec<Tag>,
    /// What was told before it was heard of.
    told: Vec<Tag>,
}

impl EventMeaning {
    /// What an event means for those whose users it can be about. It is forgotten after `kept`.
    pub(super) fn of(
        event: &SecurityEvent<'_>,
        followed: &[Arc<FollowedIssuer>],
        now: Timestamp,
        kept: Duration,
    ) -> Self {
        let of = match event.kind {
            EventKind::SessionRevoked
            | EventKind::CredentialChange
            | EventKind::AccountDisabled
            | EventKind::AccountPurged => RevokedSubject::Ends,
            EventKind::TokenClaimsChange => RevokedSubject::Changes,
            EventKind::Verification | EventKind::StreamUpdated | EventKind::Other => return Self::Nothing,
        };
        let mut tags = Tags::default();
        for name in &event.names {
            for issuer in followed.iter().filter(|issuer| is_known_to(*name, issuer)) {
                tags.add(*name, of, &issuer.tags);
            }
        }
        let until = millis(now.plus(kept));
        // Whole seconds: one that has begun when it happened is of before it.
        let happened = millis(Timestamp::from_secs(event.at.as_secs().saturating_add(1)));
        let heard = millis(now.plus(Duration::from_millis(1)));
        let taken = [(tags.whole, None), (tags.before, Some(happened)), (tags.told, Some(heard))];
        let taken = taken.into_iter().filter(|(tags, _)| !tags.is_empty());
        let taken: Vec<EventTaken> =
            taken.map(|(tags, not_before)| EventTaken { tags, not_before, until }).collect();
        if taken.is_empty() { Self::Foreign } else { Self::Takes(taken) }
    }

    /// What is to be appended.
    pub(super) fn taken(&self) -> impl Iterator<Item = &EventTaken> {
        match self {
            Self::Takes(taken) => taken.iter(),
            Self::Foreign | Self::Nothing => [].iter(),
        }
    }

    /// A word for logs and metrics.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Takes(_) => "applied",
            Self::Foreign => "foreign",
            Self::Nothing => "ignored",
        }
    }
}

/// Whether a name can be that of somebody who is known to this issuer. One that says whose it is, is nobody else's.
fn is_known_to(name: SubjectName<'_>, issuer: &FollowedIssuer) -> bool {
    match name {
        SubjectName::User(Some(iss), _) | SubjectName::Token(iss, _) => *iss == *issuer.issuer,
        SubjectName::User(None, _)
        | SubjectName::Session(_)
        | SubjectName::Email(_)
        | SubjectName::Opaque(_)
        | SubjectName::Consent(..) => true,
    }
}

impl Tags {
    fn add(&mut self, name: SubjectName<'_>, of: RevokedSubject, key: &TagKey) {
        match name {
            SubjectName::User(_, sub) => self.so_far(TagSubject::User(sub), of, key),
            SubjectName::Email(address) => {
                self.so_far(TagSubject::Email(&address.to_ascii_lowercase()), of, key);
            }
            SubjectName::Session(sid) => self.wholly(TagSubject::Session(sid), of, key),
            SubjectName::Token(_, jti) => self.wholly(TagSubject::Token(jti), of, key),
            // Whichever of these it is, the others do not exist.
            SubjectName::Opaque(id) => {
                self.so_far(TagSubject::User(id), of, key);
                self.wholly(TagSubject::Session(id), of, key);
                self.wholly(TagSubject::Family(id), of, key);
            }
            // Its claims are those of its user.
            SubjectName::Consent(user, client) => match of {
                RevokedSubject::Ends => self.before.push(key.tag(TagSubject::Consent(user, client))),
                RevokedSubject::Changes => self.so_far(TagSubject::User(user), of, key),
            },
        }
    }

    fn so_far(&mut self, subject: TagSubject<'_>, of: RevokedSubject, key: &TagKey) {
        match of {
            RevokedSubject::Ends => self.before.push(key.tag(subject)),
            RevokedSubject::Changes => self.changed(subject, key),
        }
    }

    fn wholly(&mut self, subject: TagSubject<'_>, of: RevokedSubject, key: &TagKey) {
        match of {
            RevokedSubject::Ends => self.whole.push(key.tag(subject)),
            RevokedSubject::Changes => self.changed(subject, key),
        }
    }

    fn changed(&mut self, subject: TagSubject<'_>, key: &TagKey) {
        self.before.push(key.said(subject));
        self.told.push(key.told(subject));
    }
}

/// The end of time is within both.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
