//! Event mapping: which tags a security event revokes.
//!
//! Owns: converting the names in an event to the tags of tokens and sessions. Does not own: the
//! tags of tokens and sessions ([`crate::revocation`]), which have to match these.
//!
//! A session, a token and a grant end completely: none of them begins again. A user continues, so
//! an event about a user revokes what was issued before the event, by the issuer's clock. Tokens
//! carry whole seconds. A token issued in the very second of the event may precede it, and counts
//! as issued before.
//!
//! Where claims changed, a token that carries the old claims itself is revoked. Facts that were
//! queried, such as a session's claims, are only outdated if they were queried before the event
//! arrived, by our clock: they are queried again.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use auth::token::security_event::{EventKind, SecurityEvent, SubjectName};
use coherence::Tag;
use coherence::tags::{TagKey, TagSubject};

use super::EventRevocation;
use crate::revocation::FollowedIssuer;

/// The effect of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventMeaning {
    /// These tags are revoked.
    Takes(Vec<EventRevocation>),
    /// The event is about users of an issuer that is not configured here.
    Foreign,
    /// The event revokes nothing.
    Nothing,
}

/// What the event does to its subject: end it, or change its claims.
#[derive(Clone, Copy)]
enum SubjectEffect {
    Ends,
    Changes,
}

/// Tags of an event, grouped by the extent of their revocation.
#[derive(Default)]
struct Tags {
    ended: Vec<Tag>,
    /// Revokes what was issued before the event occurred.
    before: Vec<Tag>,
    /// Outdates what was queried before the event arrived.
    outdated: Vec<Tag>,
}

impl EventMeaning {
    /// The effect of an event on the followed issuers that its names can belong to. It is stored
    /// for `retention`.
    pub(super) fn of(
        event: &SecurityEvent<'_>,
        followed: &[Arc<FollowedIssuer>],
        now: Timestamp,
        retention: Duration,
    ) -> Self {
        let of = match event.kind {
            EventKind::SessionRevoked
            | EventKind::CredentialChange
            | EventKind::AccountDisabled
            | EventKind::AccountPurged => SubjectEffect::Ends,
            EventKind::TokenClaimsChange => SubjectEffect::Changes,
            EventKind::Verification | EventKind::StreamUpdated | EventKind::Other => return Self::Nothing,
        };
        let mut tags = Tags::default();
        for name in &event.names {
            for issuer in followed.iter().filter(|issuer| is_known_to(*name, issuer)) {
                tags.add(*name, of, &issuer.tags);
            }
        }
        let until = millis(now.plus(retention));
        // Whole seconds: a token issued in the second of the event counts as issued before it.
        let happened = millis(Timestamp::from_secs(event.occurred_at.as_secs().saturating_add(1)));
        let received_at = millis(now.plus(Duration::from_millis(1)));
        let taken = [(tags.ended, None), (tags.before, Some(happened)), (tags.outdated, Some(received_at))];
        let taken = taken.into_iter().filter(|(tags, _)| !tags.is_empty());
        let taken: Vec<EventRevocation> =
            taken.map(|(tags, not_before)| EventRevocation { tags, not_before, until }).collect();
        if taken.is_empty() { Self::Foreign } else { Self::Takes(taken) }
    }

    /// The revocations to append to the log.
    pub(super) fn revocations(&self) -> impl Iterator<Item = &EventRevocation> {
        match self {
            Self::Takes(taken) => taken.iter(),
            Self::Foreign | Self::Nothing => [].iter(),
        }
    }

    /// Outcome label for logs and metrics.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Takes(_) => "applied",
            Self::Foreign => "foreign",
            Self::Nothing => "ignored",
        }
    }
}

/// Whether a name can belong to a subject of this issuer. A name that states its issuer belongs to
/// that issuer alone.
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
    fn add(&mut self, name: SubjectName<'_>, of: SubjectEffect, key: &TagKey) {
        match name {
            SubjectName::User(_, sub) => self.add_until_event(TagSubject::User(sub), of, key),
            SubjectName::Email(address) => {
                self.add_until_event(TagSubject::Email(&address.to_ascii_lowercase()), of, key);
            }
            SubjectName::Session(sid) => self.add_ended(TagSubject::Session(sid), of, key),
            SubjectName::Token(_, jti) => self.add_ended(TagSubject::Token(jti), of, key),
            // It is only one of these; tags for the other kinds match nothing.
            SubjectName::Opaque(id) => {
                self.add_until_event(TagSubject::User(id), of, key);
                self.add_ended(TagSubject::Session(id), of, key);
                self.add_ended(TagSubject::Family(id), of, key);
            }
            // The claims of a consent are those of its user.
            SubjectName::Consent(user, client) => match of {
                SubjectEffect::Ends => self.before.push(key.tag(TagSubject::Consent(user, client))),
                SubjectEffect::Changes => self.add_until_event(TagSubject::User(user), of, key),
            },
        }
    }

    fn add_until_event(&mut self, subject: TagSubject<'_>, of: SubjectEffect, key: &TagKey) {
        match of {
            SubjectEffect::Ends => self.before.push(key.tag(subject)),
            SubjectEffect::Changes => self.changed(subject, key),
        }
    }

    fn add_ended(&mut self, subject: TagSubject<'_>, of: SubjectEffect, key: &TagKey) {
        match of {
            SubjectEffect::Ends => self.ended.push(key.tag(subject)),
            SubjectEffect::Changes => self.changed(subject, key),
        }
    }

    fn changed(&mut self, subject: TagSubject<'_>, key: &TagKey) {
        self.before.push(key.claims_tag(subject));
        self.outdated.push(key.answer_tag(subject));
    }
}

/// The maximum timestamp fits into both types.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
