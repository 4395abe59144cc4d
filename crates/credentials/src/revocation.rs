//! Revocation: whether a token of an issuer with a followed revocation log was revoked.
//!
//! An issuer may also report by security events ([`crate::events`]). Then the log is that of our
//! own database, to which the events are appended. Two things differ. Tags are made from the claims
//! that every issuer's tokens have. A token is accepted only up to a maximum age, because stored
//! events expire.
//!
//! Owns: the tags of a token; the use of an answer that confirms a token ([`PendingAnswer`]);
//! whether a token was revoked as far as is known here, and asking the issuer otherwise
//! (`revocable`). Does not own: following the log (`coherence`), signatures
//! ([`crate::authenticate`]), the cache ([`crate::cache`]), when to check again
//! (`gateway::stream_guard`).
//!
//! A signature proves that a token was issued, and nothing about later events. So a token of a
//! followed issuer is valid if its signature is valid and the log so far contains no revocation of
//! it. There are three states:
//!
//! 1. The token is revoked.
//! 2. It is not revoked; this holds for as long as the lease does.
//! 3. Unknown, because the log is not current. Then the issuer is asked. If it does not answer
//!    either, the result is "unavailable": never valid, and never "this token is invalid".
//!
//! Answers differ in what they prove. The issuer's answer to a *query about tags* is a committed
//! write: a deposed node cannot give it. Its answer about an opaque token (introspection) is only a
//! read, and an answer of another service that follows the issuer may lag. Such an answer
//! authorizes a request only under a live lease, because the lease covers what the answer may not
//! know. Without a lease the issuer is queried as well.

mod revocable;
mod sample;
#[cfg(any(test, feature = "test_support"))]
pub mod test_support;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use auth::sealing::SealingKey;
use auth::time::Timestamp;
use auth::token::MAX_CLOCK_SKEW;
use auth::token::jwt::Lineage;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coherence::revocation_query::{QueryHandle, RevocationAnswer};
use coherence::revocation_tags::RevocationTags;
use coherence::tags::{SEALED_TAGS, TagKey, TagSubject};
use coherence::time::{Boot, BootTime};
use coherence::view::{EntryState, QueryTicket, View};
use coherence::{Epoch, PeerName, Tag};
use parking_lot::RwLock;

use self::revocable::AnswerUse;
pub use self::revocable::{AuthoritativeAnswer, CutReason, IssuerAnswer, RevocableToken, RevocationStatus};
pub use self::sample::RevocationSample;
use crate::cache::{CacheEntryBasis, EntryBasis};

/// Interval between two audited entries.
const AUDIT_INTERVAL: Duration = Duration::from_secs(1);
/// `iat` usually has no fractions, and clocks differ: an `iat` that is ahead by no more than this
/// proves nothing about an issuer's clock.
const CLOCK_GRANULARITY: Duration = Duration::from_secs(1);
/// Tolerance for the rate of a clock: one part in so many.
const CLOCK_DRIFT_DIVISOR: u32 = 1000;

/// An issuer whose revocation log is followed.
pub struct FollowedIssuer {
    /// The `iss` value of its tokens.
    pub issuer: Box<str>,
    /// Its name as an authority in the revocation protocol.
    pub name: PeerName,
    /// The known state of its log.
    pub view: Arc<View>,
    /// The key that makes its tags.
    pub tags: TagKey,
    /// The clock that measures its lease.
    pub clock: Arc<dyn BootTime>,
    /// The queue for queries to the issuer.
    pub query_desk: QueryHandle,
    /// Lease: how long knowledge of the log is valid. An answer that took longer is not used.
    pub lease: Duration,
    /// Counters of the queries to it.
    pub counts: Arc<RevocationCounts>,
    /// Set for an issuer that reports by security events: maximum age of its tokens. Events about
    /// older tokens may no longer be stored.
    pub max_token_age: Option<Duration>,
    /// The follower that replaced this one, when a reload started a new one.
    pub successor: FollowerSuccessor,
    /// Whether its clock runs ahead of ours.
    pub clock_skew: IssuerClockSkew,
}

/// Whether the clock of an issuer was seen to be ahead of ours.
///
/// An event revokes what was issued before it, according to `iat`. A token with an `iat` in the
/// future was issued earlier, by as much as any token may be ahead ([`MAX_CLOCK_SKEW`]). Once that
/// moment has passed, it cannot be distinguished from a token that was issued after an event. So
/// every token of an issuer whose clock was seen to be ahead counts as that much older than its
/// `iat`.
#[derive(Default)]
pub struct IssuerClockSkew(AtomicBool);

impl IssuerClockSkew {
    /// The corrected issue time, for the comparison with events.
    fn corrected(&self, issued_at: Timestamp, now: Timestamp) -> Timestamp {
        if issued_at > now.plus(CLOCK_GRANULARITY) {
            self.0.store(true, Relaxed);
        }
        if self.0.load(Relaxed) { issued_at.minus(MAX_CLOCK_SKEW) } else { issued_at }
    }
}

/// The follower of a log that replaced an earlier one: none yet, or one permanently.
#[derive(Default)]
pub struct FollowerSuccessor(OnceLock<Arc<FollowedIssuer>>);

/// When an authority was asked, and the log that its answer is compared with.
#[derive(Clone)]
pub struct PendingAnswer {
    followed: Arc<FollowedIssuer>,
    ticket: QueryTicket,
    began: Boot,
    /// The head of the log at that time, if known.
    as_of: Option<(Epoch, u64)>,
}

/// How the claims of a fact were obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenEvidence {
    /// From the credential itself, which is as old as its claims.
    FromCredential,
    /// By a query that can be repeated.
    FromQuery,
}

/// Counters of the queries to an issuer, which happen when the local state is unknown.
#[derive(Debug, Default)]
pub struct RevocationCounts {
    /// Answers: the token is not revoked.
    pub good: AtomicU64,
    /// Answers: the token is revoked.
    pub denied: AtomicU64,
    /// Queries without an answer in time.
    pub silent: AtomicU64,
    /// Cache entries in use that were compared with the issuer's answer.
    pub audited: AtomicU64,
    /// Of those, entries that were still used after the issuer had denied them for longer than a
    /// lease. Anything but 0 is a violation of the guarantee.
    pub stale: AtomicU64,
}

/// All followed issuers of a process. Clones share state.
#[derive(Clone, Default)]
pub struct FollowedIssuers(Arc<RwLock<Vec<Arc<FollowedIssuer>>>>);

impl FollowedIssuers {
    /// Sets the issuers to follow from the next configuration on, and returns the previous ones.
    pub fn replace(&self, followed: Vec<Arc<FollowedIssuer>>) -> Vec<Arc<FollowedIssuer>> {
        std::mem::replace(&mut *self.0.write(), followed)
    }

    /// Makes everything that depends on an issuer in `before` use its successor, where both follow
    /// the same log. So exchanges stay open even if the log has a new address or secret. Call this
    /// once nothing can return to the previous configuration.
    pub fn hand_over(&self, before: &[Arc<FollowedIssuer>]) {
        let now = self.0.read();
        let is_over = |old: &&Arc<FollowedIssuer>| !now.iter().any(|new| Arc::ptr_eq(old, new));
        for old in before.iter().filter(is_over) {
            if let Some(new) = now.iter().find(|new| old.is_succeeded_by(new)) {
                // It has no successor yet: it was in use until now.
                let _ = old.successor.0.set(new.clone());
            }
        }
    }

    fn follower_of(&self, held: &CacheEntryBasis) -> Option<Arc<FollowedIssuer>> {
        self.0.read().iter().find(|followed| held.is_of(&followed.view)).cloned()
    }

    /// Notes the state of all logs before a query to a service whose answer may depend on any of
    /// them.
    pub fn begin_query(&self) -> Vec<PendingAnswer> {
        self.0.read().iter().map(FollowedIssuer::depart).collect()
    }

    /// The followed issuer with this `iss`.
    pub fn of(&self, issuer: &str) -> Option<Arc<FollowedIssuer>> {
        self.0.read().iter().find(|followed| *followed.issuer == *issuer).cloned()
    }
}

/// Audits entries in use, one per second, for as long as it is polled. An entry that the issuer
/// denies when asked must not be valid a lease later. `any` finds an entry by a number from
/// `random`.
pub async fn audit(
    follows: FollowedIssuers,
    any: impl Fn(u64) -> Option<Arc<CacheEntryBasis>>,
    mut random: impl FnMut() -> u64,
) {
    loop {
        tokio::time::sleep(AUDIT_INTERVAL).await;
        let Some(held) = any(random()) else { continue };
        let Some(followed) = follows.follower_of(&held) else { continue };
        let (tags, issued_at) = held.lineage();
        // Without an answer there is nothing to compare with.
        let Some(RevocationAnswer { denied, .. }) = followed.query_desk.query(tags, issued_at).await else {
            continue;
        };
        if denied.is_some() {
            tokio::time::sleep(followed.lease + followed.lease / CLOCK_DRIFT_DIVISOR).await;
            if held.standing() == EntryState::Valid {
                followed.counts.stale.fetch_add(1, Relaxed);
                tracing::error!(
                    issuer = &*followed.issuer,
                    "revoked token still accepted after a lease: please report this"
                );
            }
        }
        followed.counts.audited.fetch_add(1, Relaxed);
    }
}

impl FollowedIssuer {
    /// Whether its lease is live: then this node knows every event of the log before it takes
    /// effect everywhere.
    fn has_lease(&self) -> bool {
        self.clock.now() < self.view.lease()
    }

    /// The current follower of its log.
    fn current_follower(self: &Arc<Self>) -> &Arc<Self> {
        let mut latest = self;
        while let Some(next) = latest.successor.0.get() {
            latest = next;
        }
        latest
    }

    /// Whether `other` follows the same log for the same tokens, though at another address or with
    /// another secret.
    fn is_succeeded_by(&self, other: &Self) -> bool {
        // Two keys that make the same tag are the same key.
        let same_key = || self.tags.tag(TagSubject::Token("")) == other.tags.tag(TagSubject::Token(""));
        self.issuer == other.issuer && self.max_token_age == other.max_token_age && same_key()
    }

    /// Notes the state of its log before the issuer is asked about a token.
    pub(crate) fn depart(self: &Arc<Self>) -> PendingAnswer {
        let followed = self.current_follower().clone();
        let now = followed.clock.now();
        // First the number: events from here on are compared with the answer. It is valid only if
        // the history is the same before and after.
        let epoch = followed.view.epoch();
        let seq = followed.view.applied_up_to();
        let ticket = followed.view.start_query(now);
        let same = followed.view.epoch() == epoch;
        let as_of = epoch.filter(|_| same).map(|epoch| (epoch, seq));
        PendingAnswer { followed, ticket, began: now, as_of }
    }

    /// A token with these claims, and the tags that can revoke it, as of now.
    pub fn revocable(
        self: &Arc<Self>,
        lineage: &Lineage<'_>,
        evidence: TokenEvidence,
        now: Timestamp,
    ) -> RevocableToken {
        let ((tags, denying), issued_at) = match self.max_token_age {
            None => {
                let tags: Vec<Tag> = self.own_tags(lineage).collect();
                let denying = tags.len();
                ((tags, denying), lineage.issued_in_log_time())
            }
            // Events carry the time of another clock.
            Some(_) => {
                (self.event_tags(lineage, evidence), self.clock_skew.corrected(lineage.issued_at, now))
            }
        };
        RevocableToken::new(self.clone(), tags.into(), denying, millis(issued_at))
    }

    /// For a session or another fact that was queried at `told_at`: whether its claims have changed
    /// since, so that it must be queried again.
    pub fn claims_outdated(
        self: &Arc<Self>,
        lineage: &Lineage<'_>,
        told_at: Timestamp,
    ) -> Option<RevocableToken> {
        self.max_token_age?;
        let lower = lineage.email.map(str::to_ascii_lowercase);
        let tags: Arc<[Tag]> =
            subjects(lineage, lower.as_deref()).map(|subject| self.tags.answer_tag(subject)).collect();
        let denying = tags.len();
        Some(RevocableToken::new(self.clone(), tags, denying, millis(told_at)))
    }

    /// Whether the tags that a token contains can be used. If not, revocations of its user cannot
    /// be recognized, so it must not be accepted.
    pub fn opens_tags_of(&self, lineage: &Lineage<'_>) -> bool {
        self.max_token_age.is_some()
            || lineage.sealed_tags.is_none_or(|sealed| self.open_tags(sealed).is_some())
    }

    fn own_tags(&self, lineage: &Lineage<'_>) -> impl Iterator<Item = Tag> {
        let sealed = lineage.sealed_tags.and_then(|sealed| self.open_tags(sealed));
        // Pairwise identifiers occur nowhere in the log.
        let (user, session) = match sealed {
            Some(_) => (None, None),
            None => (lineage.user, lineage.session),
        };
        let consent = match (user, lineage.client) {
            (Some(user), Some(client)) => Some(TagSubject::Consent(user, client)),
            _ => None,
        };
        let subjects = [
            lineage.token.map(TagSubject::Token),
            lineage.family.map(TagSubject::Family),
            session.map(TagSubject::Session),
            user.map(TagSubject::User),
            lineage.client.map(TagSubject::Client),
            lineage.key.map(TagSubject::Key),
            consent,
        ];
        let own = subjects.into_iter().flatten().map(|subject| self.tags.tag(subject));
        own.chain(sealed.into_iter().flatten())
    }

    /// Opens the claim `revocation_tags`. `None`: the issuer did not seal it for holders of this
    /// secret.
    fn open_tags(&self, sealed: &str) -> Option<Vec<Tag>> {
        let key = SealingKey::new(&self.tags.derive_key(SEALED_TAGS));
        let opened = key.open(b"", &URL_SAFE_NO_PAD.decode(sealed).ok()?)?;
        let (tags, rest) = opened.as_chunks::<{ Tag::LENGTH }>();
        rest.is_empty().then(|| tags.iter().map(|tag| Tag(*tag)).collect())
    }

    fn event_tags(&self, lineage: &Lineage<'_>, evidence: TokenEvidence) -> (Vec<Tag>, usize) {
        let lower = lineage.email.map(str::to_ascii_lowercase);
        let subjects = || subjects(lineage, lower.as_deref());
        let mut tags: Vec<Tag> = subjects().map(|subject| self.tags.tag(subject)).collect();
        if let (Some(user), Some(client)) = (lineage.user, lineage.client) {
            tags.push(self.tags.tag(TagSubject::Consent(user, client)));
        }
        match evidence {
            TokenEvidence::FromCredential => {
                tags.extend(subjects().map(|subject| self.tags.claims_tag(subject)));
                let denying = tags.len();
                (tags, denying)
            }
            TokenEvidence::FromQuery => {
                let denying = tags.len();
                tags.extend(subjects().map(|subject| self.tags.answer_tag(subject)));
                (tags, denying)
            }
        }
    }
}

impl PendingAnswer {
    /// Whether the lease of the issuer is live ([`RevocableToken::has_lease`]).
    pub(crate) fn is_heard_of(&self) -> bool {
        self.followed.has_lease()
    }

    /// Whether the answer may depend on this issuer, given by its `iss`.
    pub fn is_of(&self, issuer: &str) -> bool {
        *self.followed.issuer == *issuer
    }

    /// The use of the issuer's own answer that confirms a token. That answer was only read, perhaps
    /// from a database that another one has replaced. Under a live lease this does no harm. Without
    /// one the issuer is queried about the tags, which a deposed node cannot answer.
    pub(crate) async fn use_issuer_answer(self, tags: RevocationTags) -> AuthoritativeAnswer {
        let (revocable, as_of) = self.token_of(tags);
        match revocable.answer_use(&self, as_of) {
            AnswerUse::Cache(hold) if hold.state() == EntryState::Valid => {
                AuthoritativeAnswer::Good(revocable, Some(hold))
            }
            AnswerUse::Cache(_) | AnswerUse::Once => match revocable.ask().await {
                IssuerAnswer::NotRevoked(hold) => AuthoritativeAnswer::Good(revocable, hold),
                IssuerAnswer::Denied => AuthoritativeAnswer::Denied,
                IssuerAnswer::NoAnswer => AuthoritativeAnswer::Silent,
            },
            AnswerUse::Denied => AuthoritativeAnswer::Denied,
            AnswerUse::Retry | AnswerUse::Late => AuthoritativeAnswer::Again,
        }
    }

    /// The use of an answer by another service that follows the issuer and authorizes by a lease of
    /// its own. Returns the token and the basis of a cache entry. Without a live lease here nothing
    /// may be cached, because the other service may lag unnoticed. `None`: the answer authorizes no
    /// request.
    pub fn use_relayed_answer(self, tags: RevocationTags) -> Option<(RevocableToken, Option<EntryBasis>)> {
        let (revocable, as_of) = self.token_of(tags);
        match revocable.answer_use(&self, as_of) {
            AnswerUse::Cache(hold) => match hold.state() {
                EntryState::Valid => Some((revocable, Some(hold))),
                EntryState::LeaseExpired => Some((revocable, None)),
                EntryState::Evicted => None,
            },
            // From another history than the current one: a token that this history revokes would be
            // accepted.
            AnswerUse::Once if self.is_heard_of() => None,
            AnswerUse::Once => Some((revocable, None)),
            AnswerUse::Denied | AnswerUse::Retry | AnswerUse::Late => None,
        }
    }

    fn token_of(&self, answer: RevocationTags) -> (RevocableToken, (Epoch, u64)) {
        let RevocationTags { as_of, issued_at, tags } = answer;
        let denying = tags.len();
        let revocable = RevocableToken::new(self.followed.clone(), tags.into(), denying, issued_at);
        (revocable, (as_of.epoch, as_of.seq))
    }
}

/// The subjects that an event of another issuer can be about. A service that acts for itself is a
/// user, identified by `sub`.
fn subjects<'l>(lineage: &Lineage<'l>, email: Option<&'l str>) -> impl Iterator<Item = TagSubject<'l>> {
    [
        lineage.token.map(TagSubject::Token),
        lineage.family.map(TagSubject::Family),
        lineage.session.map(TagSubject::Session),
        lineage.user.or(lineage.client).map(TagSubject::User),
        email.map(TagSubject::Email),
    ]
    .into_iter()
    .flatten()
}

/// The maximum timestamp fits into both types.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
