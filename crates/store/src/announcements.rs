//! What a transaction tells: the log of revocations, those elsewhere who hear of it in words, and the audit log.
//!
//! Owns: the words. Does not own: writing them, which their logs do when everything else in the transaction is done
//! ([`crate::invalidation`], [`crate::security_events`], [`crate::audit`]).

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use coherence::wire::MAX_TAGS;
use coherence::{Epoch, Tag};

use crate::value::millis;

/// What was appended, and to which history.
pub type AnnouncedAppend = (Epoch, coherence::LogEvent);

/// Something no longer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedEvent {
    /// From 1, without holes.
    pub seq: u64,
    /// What it concerns.
    pub tags: Vec<Tag>,
    /// Only what was issued before this is concerned, in the time of the log or, where somebody else issued it, by their clock; `None`: all
    /// of it.
    pub not_before: Option<Timestamp>,
    /// When the last credential it concerns has expired.
    pub until: Timestamp,
    /// Why, for people: `token revoked`, `logout`, …
    pub reason: String,
    /// When it was appended.
    pub at: Timestamp,
}

impl From<AnnouncedEvent> for coherence::LogEvent {
    /// As caches are told: nobody's reasons are their business.
    fn from(event: AnnouncedEvent) -> Self {
        let (not_before, until) = (event.not_before.map(millis), millis(event.until));
        Self { seq: event.seq, tags: event.tags, not_before, until }
    }
}

/// How much of what carries a tag is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationReach {
    /// All of it, whenever it was issued: what ends never begins again.
    Whole,
    /// All that rests on what was read before this is durable, in the time of the log.
    SoFar,
    /// What somebody else issued before this, by their clock.
    Before(Timestamp),
}

impl RevocationReach {
    /// Nothing at all: what caches know of it is old, that is all.
    pub const NOTHING: Self = Self::Before(Timestamp::from_millis(0));

    /// What an event says of it that is appended at this time of the log.
    fn not_before(self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Whole => None,
            Self::SoFar => Some(at),
            Self::Before(then) => Some(then),
        }
    }
}

/// What is to be told, and how long it matters.
#[derive(Debug, Clone)]
pub struct Revocation {
    /// What it concerns. A tag stands for everything that carries it.
    pub tags: Vec<Tag>,
    /// Why, for people.
    pub reason: &'static str,
    /// How much of that.
    pub reach: RevocationReach,
    /// When the last credential it concerns has expired: nobody needs to remember it then.
    pub until: Timestamp,
    /// The same in words, for those elsewhere who are told; `None`: nobody is.
    pub occurrence: Option<OccurrenceKey>,
}

/// An event that has no number yet.
pub(crate) struct Unnumbered {
    pub(crate) told: Revocation,
    /// When.
    pub(crate) now: Timestamp,
}

impl Unnumbered {
    /// Whether what another concerns can be said with this one. What is kept in words stays an event of its own.
    pub(crate) fn can_name(&self, other: &Self) -> bool {
        let (one, other) = (&self.told, &other.told);
        one.reach == other.reach
            && one.reason == other.reason
            && one.occurrence.is_none()
            && other.occurrence.is_none()
            && one.tags.len() + other.tags.len() <= MAX_TAGS
    }

    /// With its number, at this time of the log.
    pub(crate) fn numbered(self, seq: u64, at: Timestamp) -> (AnnouncedEvent, Option<Occurred>) {
        let Revocation { tags, reason, reach, until, occurrence } = self.told;
        let not_before = reach.not_before(at);
        let event = AnnouncedEvent { seq, tags, not_before, until, reason: reason.to_owned(), at: self.now };
        (event, occurrence.map(|what| Occurred { seq, what, at: self.now }))
    }
}

/// What happened, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OccurrenceKey {
    /// What.
    pub kind: EventKind,
    /// To which user.
    pub user_id: Option<String>,
    /// To which session.
    pub sid: Option<String>,
    /// To which token.
    pub jti: Option<String>,
    /// To what of this client.
    pub client_id: Option<String>,
    /// To what was granted by this.
    pub granted_by: Option<String>,
}

impl OccurrenceKey {
    /// Something that happened to nobody yet.
    pub fn new(kind: EventKind) -> Self {
        Self { kind, user_id: None, sid: None, jti: None, client_id: None, granted_by: None }
    }
}

/// The same as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurred {
    /// Of the log's event.
    pub seq: u64,
    /// What.
    pub what: OccurrenceKey,
    /// When.
    pub at: Timestamp,
}

/// Tags of what else something follows from: its client, and what its user allowed the client. What denies one of them denies it.
pub type EventOrigins = [Tag; 2];

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedEntry {
    /// Who did it: `user:ID`, `client:ID`, `operator:NAME` or `system`.
    pub actor: String,
    /// What, in the words of the caller: `user.disable`.
    pub action: String,
    /// To whom, like the actor.
    pub target: String,
    /// What else matters, in the caller's form; never a secret.
    pub detail: String,
    /// When.
    pub at: Timestamp,
}
