//! What an event takes back.
//!
//! Owns: from the names of those it is about to the tags of what they have. Does not own: tags of tokens and sessions
//! ([`crate::followed`]), which have to fit these.
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
use auth::token::security_event::{Event, Kind, Name};
use coherence::Tag;
use coherence::tags::{Subject, TagKey};

use super::Taken;
use crate::followed::Followed;

/// What an event means here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// These are taken back.
    Takes(Vec<Taken>),
    /// It is about users of an issuer that nobody here believes.
    Foreign,
    /// It takes nothing back.
    Nothing,
}

/// What it makes of the tags of a subject.
#[derive(Clone, Copy)]
enum Of {
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

impl Meaning {
    /// What an event means for those whose users it can be about. It is forgotten after `kept`.
    pub(super) fn of(event: &Event<'_>, followed: &[Arc<Followed>], now: Timestamp, kept: Duration) -> Self {
        let of = match event.kind {
            Kind::SessionRevoked | Kind::CredentialChange | Kind::AccountDisabled | Kind::AccountPurged => {
                Of::Ends
            }
            Kind::TokenClaimsChange => Of::Changes,
            Kind::Verification | Kind::StreamUpdated | Kind::Other => return Self::Nothing,
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
        let taken: Vec<Taken> = taken.map(|(tags, not_before)| Taken { tags, not_before, until }).collect();
        if taken.is_empty() { Self::Foreign } else { Self::Takes(taken) }
    }

    /// What is to be appended.
    pub(super) fn taken(&self) -> impl Iterator<Item = &Taken> {
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
fn is_known_to(name: Name<'_>, issuer: &Followed) -> bool {
    match name {
        Name::User(Some(iss), _) | Name::Token(iss, _) => *iss == *issuer.issuer,
        Name::User(None, _) | Name::Session(_) | Name::Email(_) | Name::Opaque(_) | Name::Consent(..) => true,
    }
}

impl Tags {
    fn add(&mut self, name: Name<'_>, of: Of, key: &TagKey) {
        match name {
            Name::User(_, sub) => self.so_far(Subject::User(sub), of, key),
            Name::Email(address) => self.so_far(Subject::Email(&address.to_ascii_lowercase()), of, key),
            Name::Session(sid) => self.wholly(Subject::Session(sid), of, key),
            Name::Token(_, jti) => self.wholly(Subject::Token(jti), of, key),
            // Whichever of these it is, the others do not exist.
            Name::Opaque(id) => {
                self.so_far(Subject::User(id), of, key);
                self.wholly(Subject::Session(id), of, key);
                self.wholly(Subject::Family(id), of, key);
            }
            // Its claims are those of its user.
            Name::Consent(user, client) => match of {
                Of::Ends => self.before.push(key.tag(Subject::Consent(user, client))),
                Of::Changes => self.so_far(Subject::User(user), of, key),
            },
        }
    }

    fn so_far(&mut self, subject: Subject<'_>, of: Of, key: &TagKey) {
        match of {
            Of::Ends => self.before.push(key.tag(subject)),
            Of::Changes => self.changed(subject, key),
        }
    }

    fn wholly(&mut self, subject: Subject<'_>, of: Of, key: &TagKey) {
        match of {
            Of::Ends => self.whole.push(key.tag(subject)),
            Of::Changes => self.changed(subject, key),
        }
    }

    fn changed(&mut self, subject: Subject<'_>, key: &TagKey) {
        self.before.push(key.said(subject));
        self.told.push(key.told(subject));
    }
}

/// The end of time is within both.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
