//! A token that its issuer may take back at any moment: what is known of it, and what the issuer says when it is asked.
//!
//! Owns: the questions, what an answer is good for, and until when what was found holds for those who go on. Does not own: by what it
//! is taken back (the parent), when it is looked at again (`gateway::stream_guard`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use coherence::revocation_query::RevocationAnswer;
use coherence::revocation_tags::RevocationTags;
use coherence::time::Boot;
use coherence::view::{AnswerVoided, CredentialCheck, EntryStamp, EntryState};
use coherence::{Epoch, LogHead, Tag};

use super::{FollowedIssuer, PendingAnswer};
use crate::cache::{CacheEntryBasis, EntryBasis};

/// How often it is asked about one token, when its answer is older than what is known here.
const ASKED: usize = 2;

/// A token that may be taken back before it expires. Clones are one.
#[derive(Clone)]
pub struct RevocableToken {
    /// By whom it was followed when it was presented. Somebody else may do that by now.
    followed: Arc<FollowedIssuer>,
    /// What takes it back, and then what only makes it worth asking again.
    tags: Arc<[Tag]>,
    /// How many of them take it back.
    denying: usize,
    /// In milliseconds since 1970, in the time of the issuer's log or, where it has none, by the issuer's clock.
    issued_at: i64,
    /// Until when it was known to be good, as far as somebody asked or looked: a [`Boot`], which only grows.
    until: Arc<AtomicU64>,
}

/// What is known of a token without asking.
pub enum RevocationStatus {
    /// Not taken back.
    Good(EntryBasis),
    /// Taken back.
    Denied,
    /// Its issuer has to be asked.
    Nothing,
}

/// What the issuer says of it.
pub enum IssuerAnswer {
    /// Not taken back; `None`: nothing may be remembered of that.
    Good(Option<EntryBasis>),
    /// Taken back.
    Denied,
    /// There is no answer.
    Silent,
}

/// What somebody's answer is worth who vouches for a token.
pub enum AuthoritativeAnswer {
    /// It is good, for as long as this stands; `None`: nothing may be remembered of that.
    Good(RevocableToken, Option<EntryBasis>),
    /// Its issuer has taken it back.
    Denied,
    /// Nobody can say whether it has.
    Silent,
    /// Something was told meanwhile: whoever vouches has to be asked again.
    Again,
}

/// What an answer is good for.
pub(super) enum AnswerUse {
    /// As long as this stands.
    For(EntryBasis),
    /// For whoever asked, and nobody after them, if it was proven: nothing that is known here confirms or refutes it.
    Once,
    /// Nobody: it is known here that the token was taken back.
    Denied,
    /// More is known here: nobody is let in on the strength of less.
    Again,
    /// It came too late.
    Not,
}

/// Why somebody who was let in may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// What let them in was taken back.
    Revoked,
    /// Nobody can say any more whether it was.
    Unheard,
    /// It ended by itself.
    Expired,
}

impl RevocableToken {
    /// One that the first `denying` of these tags take back.
    pub(super) fn new(
        followed: Arc<FollowedIssuer>,
        tags: Arc<[Tag]>,
        denying: usize,
        issued_at: i64,
    ) -> Self {
        Self { followed, tags, denying, issued_at, until: Arc::default() }
    }

    /// Whether its issuer's log is heard of, so that whatever that tells is known here before it is in force everywhere.
    pub fn is_heard_of(&self) -> bool {
        self.followed().is_heard_of()
    }

    fn followed(&self) -> &Arc<FollowedIssuer> {
        self.followed.latest()
    }

    fn denying(&self) -> &[Tag] {
        &self.tags[..self.denying]
    }

    /// What is known of it, its signature being good.
    pub fn known(&self) -> RevocationStatus {
        let followed = self.followed();
        let (denying, outdating) = self.tags.split_at(self.denying);
        let verdict = match followed.view.verify(denying, self.issued_at) {
            // What makes it outdated denies nothing; it may only be known of that there is something to be asked.
            CredentialCheck::Good(_)
                if !outdating.is_empty()
                    && matches!(followed.view.verify(outdating, i64::MAX), CredentialCheck::Ask) =>
            {
                CredentialCheck::Ask
            }
            verdict => verdict,
        };
        match verdict {
            CredentialCheck::Denied => RevocationStatus::Denied,
            CredentialCheck::Ask => RevocationStatus::Nothing,
            CredentialCheck::Good(stamp) => {
                let held = self.held(followed, stamp);
                match held.standing() {
                    EntryState::Good => RevocationStatus::Good(EntryBasis::Followed(Arc::new(held))),
                    EntryState::Void | EntryState::NoLease => RevocationStatus::Nothing,
                }
            }
        }
    }

    /// What others need who are told that it is good, and follow the issuer too: its `iss`, and how much of what the issuer tells
    /// is in that. `None`: that is not known here well enough to be passed on.
    pub fn statement(&self) -> Option<(Box<str>, RevocationTags)> {
        let followed = self.followed();
        let view = &followed.view;
        // Before it is looked whether it is good: what is told meanwhile is not in it.
        let (epoch, seq) = (view.epoch()?, view.contiguous());
        let good = matches!(self.known(), RevocationStatus::Good(_)) && view.epoch() == Some(epoch);
        let statement = RevocationTags {
            as_of: LogHead { epoch, seq },
            issued_at: self.issued_at,
            tags: self.tags.to_vec(),
        };
        good.then(|| (followed.issuer.clone(), statement))
    }

    /// Bytes behind its pointers that are its own.
    pub fn weight(&self) -> usize {
        // Both have the two counts of an `Arc`.
        size_of_val(&*self.tags) + size_of::<AtomicU64>() + 4 * size_of::<usize>()
    }

    fn held(&self, followed: &FollowedIssuer, stamp: EntryStamp) -> CacheEntryBasis {
        let (view, clock) = (followed.view.clone(), followed.clock.clone());
        CacheEntryBasis::new(view, clock, (self.tags.clone(), self.issued_at), stamp)
    }

    /// What is known of it, or else what the issuer says.
    pub async fn told(&self) -> IssuerAnswer {
        let known = || match self.known() {
            RevocationStatus::Good(hold) => Some(IssuerAnswer::Good(Some(hold))),
            RevocationStatus::Denied => Some(IssuerAnswer::Denied),
            RevocationStatus::Nothing => None,
        };
        if let Some(told) = known() {
            return told;
        }
        match self.ask().await {
            // It may have been heard of meanwhile, by another way.
            IssuerAnswer::Silent => known().unwrap_or(IssuerAnswer::Silent),
            told => told,
        }
    }

    /// What the answer of somebody is worth who vouches for it, knows nothing of a log, and was asked then.
    pub(crate) async fn vouched(self, departed: PendingAnswer) -> AuthoritativeAnswer {
        match self.told().await {
            IssuerAnswer::Denied => return AuthoritativeAnswer::Denied,
            IssuerAnswer::Silent => return AuthoritativeAnswer::Silent,
            IssuerAnswer::Good(_) => {}
        }
        // Nothing had been heard that could be told from what is heard now.
        let Some(as_of) = departed.as_of else { return AuthoritativeAnswer::Good(self, None) };
        match self.kept(&departed, as_of) {
            AnswerUse::For(hold) => AuthoritativeAnswer::Good(self, Some(hold)),
            AnswerUse::Once => AuthoritativeAnswer::Good(self, None),
            AnswerUse::Denied => AuthoritativeAnswer::Denied,
            AnswerUse::Again | AnswerUse::Not => AuthoritativeAnswer::Again,
        }
    }

    /// Asks the issuer.
    pub async fn ask(&self) -> IssuerAnswer {
        let told = self.try_ask().await;
        let followed = self.followed();
        let counts = &followed.counts;
        let count = match &told {
            IssuerAnswer::Good(_) => &counts.good,
            IssuerAnswer::Denied => &counts.denied,
            IssuerAnswer::Silent => &counts.silent,
        };
        count.fetch_add(1, Relaxed);
        if matches!(told, IssuerAnswer::Silent) {
            // Whoever follows it says once that it is silent.
            tracing::debug!(issuer = &*followed.issuer, "nobody can say whether a token was revoked");
        }
        told
    }

    async fn try_ask(&self) -> IssuerAnswer {
        for _ in 0..ASKED {
            let departed = self.followed.depart();
            let asked = departed.followed.desk.ask(self.denying(), self.issued_at);
            let Some(RevocationAnswer { as_of, denied }) = asked.await else { return IssuerAnswer::Silent };
            let as_of = (as_of.epoch, as_of.seq);
            if let Some(tag) = denied {
                departed.followed.view.denied(as_of, tag);
                return IssuerAnswer::Denied;
            }
            let hold = match self.kept(&departed, as_of) {
                AnswerUse::For(hold) => Some(hold),
                AnswerUse::Once => None,
                AnswerUse::Denied => return IssuerAnswer::Denied,
                AnswerUse::Again => continue,
                AnswerUse::Not => return IssuerAnswer::Silent,
            };
            // Like an echo: for a lease from when it was asked.
            self.is_good_until(departed.began.plus(departed.followed.lease));
            return IssuerAnswer::Good(hold);
        }
        IssuerAnswer::Silent
    }

    /// What an answer that nothing was taken back is good for.
    pub(super) fn kept(&self, departed: &PendingAnswer, as_of: (Epoch, u64)) -> AnswerUse {
        let PendingAnswer { followed, ticket, began, .. } = departed;
        let (view, now) = (&followed.view, followed.clock.now());
        if now.since(*began) >= followed.lease {
            return AnswerUse::Not;
        }
        // For good, also where the answer knows nothing of that: it may be one of a database that was deposed, or has lost it.
        if let Some(denials) = view.denials()
            && denials.denies(self.denying(), self.issued_at)
        {
            // A copy that is being loaded may know more than what is cached rests on: it refuses nobody who could be admitted again.
            return if denials.is_whole() { AnswerUse::Denied } else { AnswerUse::Again };
        }
        match view.fill(*ticket, as_of, &self.tags, now) {
            Ok(stamp) => AnswerUse::For(EntryBasis::Followed(Arc::new(self.held(followed, stamp)))),
            Err(AnswerVoided::Late) => AnswerUse::Not,
            Err(why) if view.admits_once(ticket, why) => AnswerUse::Once,
            Err(_) => AnswerUse::Again,
        }
    }
}

/// For those who were let in a while ago and go on.
impl RevocableToken {
    /// What is known of it, if that will still be known when the issuer, asked now, would have answered.
    pub fn still(&self) -> RevocationStatus {
        let followed = self.followed();
        // Before it is looked at: what is believed until then was applied before that was promised.
        let lease = followed.view.lease();
        let known = self.known();
        if !matches!(known, RevocationStatus::Good(_)) {
            return known;
        }
        self.is_good_until(lease);
        // A lease that is renewed never gets so short.
        if lease.since(followed.clock.now()) < followed.lease / 2 { RevocationStatus::Nothing } else { known }
    }

    /// Until when it is known to be good that was let in just now: while its issuer is believed, or for as long as an answer counts.
    pub fn good_until(&self) -> Boot {
        self.until().max(self.followed.view.lease())
    }

    /// Until when it was known to be good, when that was last found out.
    pub fn until(&self) -> Boot {
        Boot(self.until.load(Relaxed))
    }

    fn is_good_until(&self, until: Boot) {
        self.until.fetch_max(until.0, Relaxed);
    }

    /// By the clock that all this is measured with.
    pub fn now(&self) -> Boot {
        self.followed.clock.now()
    }
}

impl std::fmt::Debug for RevocableToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Revocable by {}", self.followed.name)
    }
}
