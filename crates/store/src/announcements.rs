//! Announcements: the records that a transaction appends to the revocation log, to the security
//! events and to the audit log.
//!
//! Owns: their types. Does not own: writing them. Each log writes its own records at the end of the
//! transaction ([`crate::revocation_log`], [`crate::security_events`], [`crate::audit`]).

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use coherence::wire::MAX_TAGS;
use coherence::{Epoch, Tag};

use crate::columns::millis;

/// An appended event, with the epoch of its log.
pub type AppendedEvent = (Epoch, coherence::LogEvent);

/// An event of the revocation log: credentials that carry one of its tags are no longer valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationEvent {
    /// Sequence number, from 1, without gaps.
    pub seq: u64,
    /// Tags of the credentials concerned.
    pub tags: Vec<Tag>,
    /// Only credentials issued before this are concerned; `None`: all of them. The time is log
    /// time, or the clock of an external issuer for its credentials.
    pub not_before: Option<Timestamp>,
    /// Expiry of the last credential concerned.
    pub until: Timestamp,
    /// The reason, for people: `token revoked`, `logout` and so on.
    pub reason: String,
    /// When it was appended.
    pub at: Timestamp,
}

impl From<RevocationEvent> for coherence::LogEvent {
    /// The form that caches receive. The reason stays in the database.
    fn from(event: RevocationEvent) -> Self {
        let (not_before, until) = (event.not_before.map(millis), millis(event.until));
        Self { seq: event.seq, tags: event.tags, not_before, until }
    }
}

/// Which of the credentials that carry a tag are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationReach {
    /// All of them, whenever issued: the subject never becomes valid again.
    All,
    /// Those based on state read before this event is durable, in log time.
    UntilDurable,
    /// Those that an external issuer issued before this time, by its clock.
    IssuedBefore(Timestamp),
}

impl RevocationReach {
    /// Revokes none: caches only learn that their data about the tag is stale.
    pub const STALE_ONLY: Self = Self::IssuedBefore(Timestamp::from_millis(0));

    /// The `not_before` of an event appended at this log time.
    fn not_before(self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::All => None,
            Self::UntilDurable => Some(at),
            Self::IssuedBefore(then) => Some(then),
        }
    }
}

/// A revocation to append to the log.
#[derive(Debug, Clone)]
pub struct Revocation {
    /// Tags of the credentials concerned. A tag identifies every credential that carries it.
    pub tags: Vec<Tag>,
    /// The reason, for people.
    pub reason: &'static str,
    /// Which of those credentials are concerned.
    pub reach: RevocationReach,
    /// Expiry of the last credential concerned. No cache needs the event afterwards.
    pub until: Timestamp,
    /// The same event in readable form for event receivers; `None`: receivers do not get it.
    pub occurrence: Option<Occurrence>,
}

/// An event without its sequence number.
pub(crate) struct PendingEvent {
    pub(crate) revocation: Revocation,
    /// When it was appended.
    pub(crate) appended_at: Timestamp,
}

impl PendingEvent {
    /// Whether the tags of `other` fit into this event. An event with an occurrence stays separate.
    pub(crate) fn can_merge(&self, other: &Self) -> bool {
        let (one, other) = (&self.revocation, &other.revocation);
        one.reach == other.reach
            && one.reason == other.reason
            && one.occurrence.is_none()
            && other.occurrence.is_none()
            && one.tags.len() + other.tags.len() <= MAX_TAGS
    }

    /// The event with its number, appended at this log time, and its occurrence if it has one.
    pub(crate) fn with_number(self, seq: u64, at: Timestamp) -> (RevocationEvent, Option<OccurrenceRow>) {
        let Revocation { tags, reason, reach, until, occurrence } = self.revocation;
        let not_before = reach.not_before(at);
        let event =
            RevocationEvent { seq, tags, not_before, until, reason: reason.to_owned(), at: self.appended_at };
        (event, occurrence.map(|occurrence| OccurrenceRow { seq, occurrence, at: self.appended_at }))
    }
}

/// An occurrence: what happened, in readable form. Fields that do not apply are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// Kind of the event.
    pub kind: EventKind,
    /// The user concerned.
    pub user_id: Option<String>,
    /// The session concerned.
    pub sid: Option<String>,
    /// `jti` of the token concerned.
    pub jti: Option<String>,
    /// The client concerned, or the client whose part is concerned.
    pub client_id: Option<String>,
    /// Id of the grant (family) whose credentials are concerned.
    pub granted_by: Option<String>,
}

impl Occurrence {
    /// An occurrence of this kind, with no subject yet.
    pub fn new(kind: EventKind) -> Self {
        Self { kind, user_id: None, sid: None, jti: None, client_id: None, granted_by: None }
    }
}

/// An occurrence as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OccurrenceRow {
    /// Sequence number of the event in the revocation log.
    pub seq: u64,
    /// What happened.
    pub occurrence: Occurrence,
    /// When it happened.
    pub at: Timestamp,
}

/// Tags that a grant or token depends on: its client's, and that of the user's consent to the
/// client. A denylist entry for either revokes it.
pub type OriginTags = [Tag; 2];

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Who did it: `user:ID`, `client:ID`, `operator:NAME`, `anonymous` or `system`.
    pub actor: String,
    /// The action, named by the caller, such as `user.disable`.
    pub action: String,
    /// The object of the action, in the same form as the actor.
    pub target: String,
    /// Further details in a format that the caller defines. Never contains a secret.
    pub detail: String,
    /// Id of the user whom it concerns, for filters.
    pub user_id: Option<String>,
    /// Id of the client that it concerns, for filters.
    pub client_id: Option<String>,
    /// When it happened.
    pub at: Timestamp,
}

impl AuditEntry {
    /// An entry without details. It concerns the user and the client that target or actor name.
    pub fn new(
        actor: impl Into<String>,
        action: impl Into<String>,
        target: impl Into<String>,
        at: Timestamp,
    ) -> Self {
        let (actor, target) = (actor.into(), target.into());
        let concerned = |kind: &str| {
            let named = [&target, &actor].into_iter().find_map(|subject| subject.strip_prefix(kind));
            named.map(str::to_owned)
        };
        let (user_id, client_id) = (concerned("user:"), concerned("client:"));
        Self { actor, action: action.into(), target, detail: String::new(), user_id, client_id, at }
    }
}
