//! Issuers whose log of revocations is followed here.
//!
//! An issuer may also tell by security events ([`crate::events`]). Then the log is that of a database of ours, which what it told is
//! appended to, and everything else is the same; but tags are made from what every issuer's tokens say, and since what was told is
//! forgotten one day, a token is believed for as long at most.
//!
//! Owns: which tags a token of theirs carries, what an answer is worth that vouches for one ([`PendingAnswer`]), whether it was taken back as
//! far as is known here, and asking where that is not known (`revocable`). Does not own: how the log is followed (`coherence`), signatures
//! ([`crate::authenticate`]), what is remembered ([`crate::cache`]), when it is looked at again (`gateway::stream_guard`).
//!
//! A signature says that a token was issued, and nothing of what came later. So a token of an issuer that is followed is good
//! when its signature is, and nothing speaks against it that the issuer has said up to now. Three things can be known of it:
//! that it was taken back; that it was not, which holds for as long as the lease does; or nothing, while the issuer is not heard
//! of. Then the issuer is asked, and if it does not answer either, the answer is "unavailable": never yes, and never "this
//! token is bad".
//!
//! Not every answer proves as much. What the issuer says when it is *asked about tags* is a committed write: nobody who was deposed can
//! give it. What it says of an opaque token is read, and what somebody else says who follows it may lag. Such a word lets somebody
//! in only under the lease, by which all is known that it may not know; without one the issuer is asked as well.

mod revocable;
mod sample;
#[cfg(any(test, feature = "test_support"))]
pub mod test_support;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use auth::time::Timestamp;
use auth::token::MAX_CLOCK_SKEW;
use auth::token::jwt::Lineage;
use coherence::revocation_query::{QueryDesk, RevocationAnswer};
use coherence::revocation_tags::RevocationTags;
use coherence::tags::{TagKey, TagSubject};
use coherence::time::{Boot, BootTime};
use coherence::view::{EntryState, QuestionTicket, View};
use coherence::{ConsumerName, Epoch, Tag};
use parking_lot::RwLock;

use self::revocable::AnswerUse;
pub use self::revocable::{AuthoritativeAnswer, CutReason, IssuerAnswer, RevocableToken, RevocationStatus};
pub use self::sample::RevocationSample;
use crate::cache::{CacheEntryBasis, EntryBasis};

/// Between two entries that are audited.
const AUDIT: Duration = Duration::from_secs(1);
/// `iat` has no fractions as a rule, and no two clocks are the same: what is ahead by no more says nothing of an issuer's clock.
const GRAIN: Duration = Duration::from_secs(1);
/// The share of a time by which the rate of a clock may be wrong: one in so many.
const DRIFT: u32 = 1000;

/// An issuer that is followed.
pub struct FollowedIssuer {
    /// Its `iss`.
    pub issuer: Box<str>,
    /// What it is called as an authority.
    pub name: ConsumerName,
    /// What is known of it.
    pub view: Arc<View>,
    /// Makes its tags.
    pub tags: TagKey,
    /// What its lease is measured by.
    pub clock: Arc<dyn BootTime>,
    /// Where it is asked.
    pub desk: QueryDesk,
    /// L: an answer that took longer is none.
    pub lease: Duration,
    /// What was asked.
    pub counts: Arc<RevocationCounts>,
    /// It tells by security events, and after so long what it told may be forgotten: what was made earlier is not believed.
    pub longest: Option<Duration>,
    /// Who follows the same log from here on, when that is begun anew.
    pub successor: FollowerSuccessor,
    /// Whether its clock runs ahead of ours.
    pub ahead: IssuerClockSkew,
}

/// Whether the clock of an issuer was seen to be ahead of ours.
///
/// An event takes back what was made before it, by what tokens say of that. A token whose `iat` lies ahead was made before that, by as much as
/// any token may be ahead ([`MAX_CLOCK_SKEW`]); and when that moment has passed, nobody can tell it from one that was made after an event. So all
/// that is made by an issuer whose clock was seen to be ahead counts as that much older than it says.
#[derive(Default)]
pub struct IssuerClockSkew(AtomicBool);

impl IssuerClockSkew {
    /// When something was made that says so, as far as events are concerned.
    fn corrected(&self, issued_at: Timestamp, now: Timestamp) -> Timestamp {
        if issued_at > now.plus(GRAIN) {
            self.0.store(true, Relaxed);
        }
        if self.0.load(Relaxed) { issued_at.minus(MAX_CLOCK_SKEW) } else { issued_at }
    }
}

/// Who follows a log after somebody else did: nobody yet, or one for good.
#[derive(Default)]
pub struct FollowerSuccessor(OnceLock<Arc<FollowedIssuer>>);

/// When it is asked what something is worth, and by whose log the answer is judged.
#[derive(Clone)]
pub struct PendingAnswer {
    followed: Arc<FollowedIssuer>,
    ticket: QuestionTicket,
    began: Boot,
    /// What had been told by then.
    as_of: Option<(Epoch, u64)>,
}

/// How a fact came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenEvidence {
    /// The credential says it itself, and is as old as what it says.
    Said,
    /// Somebody was asked, and what was told can be told anew.
    Told,
}

/// How often an issuer was asked, since nothing was known here, and what came of it.
#[derive(Debug, Default)]
pub struct RevocationCounts {
    /// It has not taken the token back.
    pub good: AtomicU64,
    /// It has.
    pub denied: AtomicU64,
    /// There was no answer in time.
    pub silent: AtomicU64,
    /// Entries in use that were held against what the issuer says.
    pub audited: AtomicU64,
    /// Of those, how many would still have been believed when the issuer had denied them for longer than a lease: none, or the promise is
    /// broken.
    pub stale: AtomicU64,
}

/// All that is followed in a process. Clones are one.
#[derive(Clone, Default)]
pub struct FollowedIssuers(Arc<RwLock<Vec<Arc<FollowedIssuer>>>>);

impl FollowedIssuers {
    /// Has these followed from the next configuration on, and says what was before.
    pub fn replace(&self, followed: Vec<Arc<FollowedIssuer>>) -> Vec<Arc<FollowedIssuer>> {
        std::mem::replace(&mut *self.0.write(), followed)
    }

    /// Has whatever rests on what was followed `before` go by what is followed now, where that is the same log: what is open stays so, though
    /// the log be asked for at another place or with another secret. Once nothing can go back any more.
    pub fn succeed(&self, before: &[Arc<FollowedIssuer>]) {
        let now = self.0.read();
        let is_over = |old: &&Arc<FollowedIssuer>| !now.iter().any(|new| Arc::ptr_eq(old, new));
        for old in before.iter().filter(is_over) {
            if let Some(new) = now.iter().find(|new| old.is_succeeded_by(new)) {
                // It has had none: it was followed until now.
                let _ = old.successor.0.set(new.clone());
            }
        }
    }

    fn behind(&self, held: &CacheEntryBasis) -> Option<Arc<FollowedIssuer>> {
        self.0.read().iter().find(|followed| held.is_of(&followed.view)).cloned()
    }

    /// Before somebody is asked who may rest on the word of any of them.
    pub fn depart(&self) -> Vec<PendingAnswer> {
        self.0.read().iter().map(FollowedIssuer::depart).collect()
    }

    /// The one with this `iss`.
    pub fn of(&self, issuer: &str) -> Option<Arc<FollowedIssuer>> {
        self.0.read().iter().find(|followed| *followed.issuer == *issuer).cloned()
    }
}

/// Looks at entries in use, one a second, as long as it is polled: what an issuer denies when it is asked must not be believed any more a
/// lease later. `any` finds an entry by a number that `random` draws.
pub async fn audit(
    follows: FollowedIssuers,
    any: impl Fn(u64) -> Option<Arc<CacheEntryBasis>>,
    mut random: impl FnMut() -> u64,
) {
    loop {
        tokio::time::sleep(AUDIT).await;
        let Some(held) = any(random()) else { continue };
        let Some(followed) = follows.behind(&held) else { continue };
        let (tags, issued_at) = held.lineage();
        // Without an answer there is nothing to compare with.
        let Some(RevocationAnswer { denied, .. }) = followed.desk.ask(tags, issued_at).await else {
            continue;
        };
        if denied.is_some() {
            tokio::time::sleep(followed.lease + followed.lease / DRIFT).await;
            if held.standing() == EntryState::Good {
                followed.counts.stale.fetch_add(1, Relaxed);
                tracing::error!(
                    issuer = &*followed.issuer,
                    "a token is still believed here that its issuer has denied for longer than a lease: please report this"
                );
            }
        }
        followed.counts.audited.fetch_add(1, Relaxed);
    }
}

impl FollowedIssuer {
    /// Whether its log is heard of, so that whatever that tells is known here before it is in force everywhere.
    fn is_heard_of(&self) -> bool {
        self.clock.now() < self.view.lease()
    }

    /// Whoever follows its log now.
    fn latest(self: &Arc<Self>) -> &Arc<Self> {
        let mut latest = self;
        while let Some(next) = latest.successor.0.get() {
            latest = next;
        }
        latest
    }

    /// Whether another one, which is asked in another way, follows the same log for the same tokens.
    fn is_succeeded_by(&self, other: &Self) -> bool {
        // A key that makes one tag as another one does is that.
        let same_key = || self.tags.tag(TagSubject::Token("")) == other.tags.tag(TagSubject::Token(""));
        self.issuer == other.issuer && self.longest == other.longest && same_key()
    }

    /// Before the issuer is asked what a token is worth.
    pub(crate) fn depart(self: &Arc<Self>) -> PendingAnswer {
        let followed = self.latest().clone();
        let now = followed.clock.now();
        // The number first: what is told in between is compared with. Of the history that was followed before and after it.
        let epoch = followed.view.epoch();
        let seq = followed.view.contiguous();
        let ticket = followed.view.depart(now);
        let same = followed.view.epoch() == epoch;
        let as_of = epoch.filter(|_| same).map(|epoch| (epoch, seq));
        PendingAnswer { followed, ticket, began: now, as_of }
    }

    /// A token of which this is known, and with it what can take it back, as of now.
    pub fn revocable(
        self: &Arc<Self>,
        lineage: &Lineage<'_>,
        evidence: TokenEvidence,
        now: Timestamp,
    ) -> RevocableToken {
        let ((tags, denying), issued_at) = match self.longest {
            None => {
                let tags: Vec<Tag> = self.of_own(lineage).collect();
                let denying = tags.len();
                ((tags, denying), lineage.in_time_of_log())
            }
            // Its events have its own clock.
            Some(_) => (self.of_others(lineage, evidence), self.ahead.corrected(lineage.issued_at, now)),
        };
        RevocableToken::new(self.clone(), tags.into(), denying, millis(issued_at))
    }

    /// Of a session or another fact that was told at a time: whether what it rests on has changed since, so that it has to be told anew.
    pub fn outdated(self: &Arc<Self>, lineage: &Lineage<'_>, told_at: Timestamp) -> Option<RevocableToken> {
        self.longest?;
        let lower = lineage.email.map(str::to_ascii_lowercase);
        let tags: Arc<[Tag]> =
            subjects(lineage, lower.as_deref()).map(|subject| self.tags.told(subject)).collect();
        let denying = tags.len();
        Some(RevocableToken::new(self.clone(), tags, denying, millis(told_at)))
    }

    fn of_own(&self, lineage: &Lineage<'_>) -> impl Iterator<Item = Tag> {
        let consent = match (lineage.user, lineage.client) {
            (Some(user), Some(client)) => Some(TagSubject::Consent(user, client)),
            _ => None,
        };
        let subjects = [
            lineage.token.map(TagSubject::Token),
            lineage.family.map(TagSubject::Family),
            lineage.session.map(TagSubject::Session),
            lineage.user.map(TagSubject::User),
            lineage.client.map(TagSubject::Client),
            lineage.key.map(TagSubject::Key),
            consent,
        ];
        subjects.into_iter().flatten().map(|subject| self.tags.tag(subject))
    }

    fn of_others(&self, lineage: &Lineage<'_>, evidence: TokenEvidence) -> (Vec<Tag>, usize) {
        let lower = lineage.email.map(str::to_ascii_lowercase);
        let subjects = || subjects(lineage, lower.as_deref());
        let mut tags: Vec<Tag> = subjects().map(|subject| self.tags.tag(subject)).collect();
        if let (Some(user), Some(client)) = (lineage.user, lineage.client) {
            tags.push(self.tags.tag(TagSubject::Consent(user, client)));
        }
        match evidence {
            TokenEvidence::Said => {
                tags.extend(subjects().map(|subject| self.tags.said(subject)));
                let denying = tags.len();
                (tags, denying)
            }
            TokenEvidence::Told => {
                let denying = tags.len();
                tags.extend(subjects().map(|subject| self.tags.told(subject)));
                (tags, denying)
            }
        }
    }
}

impl PendingAnswer {
    /// Whether the issuer is heard of now ([`RevocableToken::is_heard_of`]).
    pub(crate) fn is_heard_of(&self) -> bool {
        self.followed.is_heard_of()
    }

    /// Whether it was this issuer, by its `iss`, whose word the answer may rest on.
    pub fn is_of(&self, issuer: &str) -> bool {
        *self.followed.issuer == *issuer
    }

    /// What the issuer's own answer is worth, that it vouches for a token. It was only read, perhaps where another database has taken
    /// over: under the lease that does no harm, and without one the issuer is asked what nobody can answer who was deposed.
    pub(crate) async fn hold(self, said: RevocationTags) -> AuthoritativeAnswer {
        let (revocable, as_of) = self.token_of(said);
        match revocable.kept(&self, as_of) {
            AnswerUse::For(hold) if hold.standing() == EntryState::Good => {
                AuthoritativeAnswer::Good(revocable, Some(hold))
            }
            AnswerUse::For(_) | AnswerUse::Once => match revocable.ask().await {
                IssuerAnswer::Good(hold) => AuthoritativeAnswer::Good(revocable, hold),
                IssuerAnswer::Denied => AuthoritativeAnswer::Denied,
                IssuerAnswer::Silent => AuthoritativeAnswer::Silent,
            },
            AnswerUse::Denied => AuthoritativeAnswer::Denied,
            AnswerUse::Again | AnswerUse::Not => AuthoritativeAnswer::Again,
        }
    }

    /// What the answer is worth of somebody who follows the issuer as well, and lets in by a lease of their own: the token, and what may be
    /// remembered of it, which is nothing unless the issuer is heard of here. Who follows may lag, and nothing here would tell. `None`:
    /// nobody may be let in on the strength of it.
    pub fn hold_relayed(self, said: RevocationTags) -> Option<(RevocableToken, Option<EntryBasis>)> {
        let (revocable, as_of) = self.token_of(said);
        match revocable.kept(&self, as_of) {
            AnswerUse::For(hold) => match hold.standing() {
                EntryState::Good => Some((revocable, Some(hold))),
                EntryState::NoLease => Some((revocable, None)),
                EntryState::Void => None,
            },
            // Of another history than the one that is heard of: what was refused by that one would be let in.
            AnswerUse::Once if self.is_heard_of() => None,
            AnswerUse::Once => Some((revocable, None)),
            AnswerUse::Denied | AnswerUse::Again | AnswerUse::Not => None,
        }
    }

    fn token_of(&self, said: RevocationTags) -> (RevocableToken, (Epoch, u64)) {
        let RevocationTags { as_of, issued_at, tags } = said;
        let denying = tags.len();
        let revocable = RevocableToken::new(self.followed.clone(), tags.into(), denying, issued_at);
        (revocable, (as_of.epoch, as_of.seq))
    }
}

/// What an event of somebody else's can be about. A service that speaks for itself is a user to those who know it by `sub`.
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

/// The end of time is within both.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
