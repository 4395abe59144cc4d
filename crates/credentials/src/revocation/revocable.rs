//! Revocable token: a token that its issuer may revoke at any time, with the known state and
//! queries to the issuer.
//!
//! Owns: the queries, the use of an answer, and until when a result is valid for lasting exchanges.
//! Does not own: the tags that revoke it (the parent), when to check again
//! (`gateway::stream_guard`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use coherence::revocation_query::RevocationAnswer;
use coherence::revocation_tags::RevocationTags;
use coherence::time::Boot;
use coherence::view::{AnswerVoided, CredentialCheck, EntryStamp, EntryState};
use coherence::{Epoch, LogHead, Tag};

use super::{FollowedIssuer, PendingAnswer};
use crate::cache::{CacheEntryBasis, EntryBasis};

/// Maximum queries about one token, when the answer is older than what is known here.
const ASKED: usize = 2;

/// A token that may be revoked before it expires. Clones share state.
#[derive(Clone)]
pub struct RevocableToken {
    /// The follower of its issuer when it was presented. Another one may have replaced it.
    followed: Arc<FollowedIssuer>,
    /// The tags that revoke it, followed by tags that only make its claims outdated.
    tags: Arc<[Tag]>,
    /// How many of the tags revoke it.
    denying: usize,
    /// When it was issued, in milliseconds since 1970: in the time of the issuer's log or, where it
    /// has none, by the issuer's clock.
    issued_at: i64,
    /// Until when it was known to be valid, by the latest query or check: a [`Boot`], which only
    /// grows.
    until: Arc<AtomicU64>,
}

/// The local knowledge about a token, without asking the issuer.
pub enum RevocationStatus {
    /// The token is not revoked.
    Good(EntryBasis),
    /// The token is revoked.
    Denied,
    /// Unknown here: the issuer must be asked.
    Nothing,
}

/// The issuer's answer about a token.
pub enum IssuerAnswer {
    /// Not revoked, with the basis of a cache entry; `None`: nothing may be cached.
    Good(Option<EntryBasis>),
    /// The token is revoked.
    Denied,
    /// No answer in time.
    Silent,
}

/// The use of an authority's answer that confirms a token.
pub enum AuthoritativeAnswer {
    /// The token is valid as long as the basis is; `None`: nothing may be cached.
    Good(RevocableToken, Option<EntryBasis>),
    /// The issuer has revoked the token.
    Denied,
    /// It cannot be determined whether the issuer has revoked it.
    Silent,
    /// A revocation arrived meanwhile: ask the authority again.
    Again,
}

/// The use of an answer that no revocation exists.
pub(super) enum AnswerUse {
    /// It may be cached on this basis.
    For(EntryBasis),
    /// It is valid only for the request that asked, if the answer is proven: local knowledge
    /// neither confirms nor contradicts it.
    Once,
    /// Unused: the token is known to be revoked.
    Denied,
    /// Unused: it knows of fewer revocations than are known here. Ask again.
    Again,
    /// Unused: the answer came too late.
    Not,
}

/// Why an exchange must be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// The credential that authorized it was revoked.
    Revoked,
    /// It can no longer be determined whether the credential was revoked.
    Unheard,
    /// The credential expired.
    Expired,
}

impl RevocableToken {
    /// A token that the first `denying` of these tags revoke.
    pub(super) fn new(
        followed: Arc<FollowedIssuer>,
        tags: Arc<[Tag]>,
        denying: usize,
        issued_at: i64,
    ) -> Self {
        Self { followed, tags, denying, issued_at, until: Arc::default() }
    }

    /// Whether the lease of its issuer is live: then this node knows every event of the log before
    /// it takes effect everywhere.
    pub fn is_heard_of(&self) -> bool {
        self.followed().is_heard_of()
    }

    fn followed(&self) -> &Arc<FollowedIssuer> {
        self.followed.latest()
    }

    fn denying(&self) -> &[Tag] {
        &self.tags[..self.denying]
    }

    /// The local knowledge about it; its signature must have been verified.
    pub fn known(&self) -> RevocationStatus {
        let followed = self.followed();
        let (denying, outdating) = self.tags.split_at(self.denying);
        let verdict = match followed.view.verify(denying, self.issued_at) {
            // Outdating tags deny nothing. This check only shows whether the denylist is
            // incomplete, so that the issuer must be asked.
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

    /// The data for another service that accepts our answer and follows the issuer too: its `iss`,
    /// the tags, and the log position that the answer covers. `None`: local knowledge is too weak
    /// to be passed on.
    pub fn statement(&self) -> Option<(Box<str>, RevocationTags)> {
        let followed = self.followed();
        let view = &followed.view;
        // Read before the check: later events are not covered.
        let (epoch, seq) = (view.epoch()?, view.contiguous());
        let good = matches!(self.known(), RevocationStatus::Good(_)) && view.epoch() == Some(epoch);
        let statement = RevocationTags {
            as_of: LogHead { epoch, seq },
            issued_at: self.issued_at,
            tags: self.tags.to_vec(),
        };
        good.then(|| (followed.issuer.clone(), statement))
    }

    /// Bytes behind its pointers that belong to it.
    pub fn weight(&self) -> usize {
        // Both allocations have the two counters of an `Arc`.
        size_of_val(&*self.tags) + size_of::<AtomicU64>() + 4 * size_of::<usize>()
    }

    fn held(&self, followed: &FollowedIssuer, stamp: EntryStamp) -> CacheEntryBasis {
        let (view, clock) = (followed.view.clone(), followed.clock.clone());
        CacheEntryBasis::new(view, clock, (self.tags.clone(), self.issued_at), stamp)
    }

    /// The local knowledge, or otherwise the issuer's answer.
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
            // The log may have become current meanwhile by another transport.
            IssuerAnswer::Silent => known().unwrap_or(IssuerAnswer::Silent),
            told => told,
        }
    }

    /// The use of a confirming answer by an authority without a log, which was asked at `departed`.
    pub(crate) async fn vouched(self, departed: PendingAnswer) -> AuthoritativeAnswer {
        match self.told().await {
            IssuerAnswer::Denied => return AuthoritativeAnswer::Denied,
            IssuerAnswer::Silent => return AuthoritativeAnswer::Silent,
            IssuerAnswer::Good(_) => {}
        }
        // No position of the log was known then, so later events cannot be compared.
        let Some(as_of) = departed.as_of else { return AuthoritativeAnswer::Good(self, None) };
        match self.kept(&departed, as_of) {
            AnswerUse::For(hold) => AuthoritativeAnswer::Good(self, Some(hold)),
            AnswerUse::Once => AuthoritativeAnswer::Good(self, None),
            AnswerUse::Denied => AuthoritativeAnswer::Denied,
            AnswerUse::Again | AnswerUse::Not => AuthoritativeAnswer::Again,
        }
    }

    /// Asks the issuer, and counts the result.
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
            // The follower of the log reports the outage once.
            tracing::debug!(issuer = &*followed.issuer, "revocation state of a token unknown");
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
            // As with a probe's echo: valid for a lease from when the query was sent.
            self.is_good_until(departed.began.plus(departed.followed.lease));
            return IssuerAnswer::Good(hold);
        }
        IssuerAnswer::Silent
    }

    /// The use of an answer that no revocation exists.
    pub(super) fn kept(&self, departed: &PendingAnswer, as_of: (Epoch, u64)) -> AnswerUse {
        let PendingAnswer { followed, ticket, began, .. } = departed;
        let (view, now) = (&followed.view, followed.clock.now());
        if now.since(*began) >= followed.lease {
            return AnswerUse::Not;
        }
        // A revocation stays valid even if the answer does not know of it: the answer may come from
        // a database that was deposed or lost it.
        if let Some(denials) = view.denials()
            && denials.denies(self.denying(), self.issued_at)
        {
            // A denylist that is being loaded may know more than the cache entries depend on. It
            // must not reject a token that could be accepted again.
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

/// For exchanges that were authorized earlier and still last.
impl RevocableToken {
    /// The local knowledge, if it will still be valid when an answer to a query sent now would
    /// arrive.
    pub fn still(&self) -> RevocationStatus {
        let followed = self.followed();
        // Read before the check: everything that the lease covers was applied before the lease was
        // granted.
        let lease = followed.view.lease();
        let known = self.known();
        if !matches!(known, RevocationStatus::Good(_)) {
            return known;
        }
        self.is_good_until(lease);
        // A lease that is renewed regularly never gets so short.
        if lease.since(followed.clock.now()) < followed.lease / 2 { RevocationStatus::Nothing } else { known }
    }

    /// Until when a token that was accepted just now is known to be valid: by the lease, or by the
    /// last answer.
    pub fn good_until(&self) -> Boot {
        self.until().max(self.followed.view.lease())
    }

    /// Until when it was known to be valid, as of the latest check.
    pub fn until(&self) -> Boot {
        Boot(self.until.load(Relaxed))
    }

    fn is_good_until(&self, until: Boot) {
        self.until.fetch_max(until.0, Relaxed);
    }

    /// The current time of the clock that measures leases.
    pub fn now(&self) -> Boot {
        self.followed.clock.now()
    }
}

impl std::fmt::Debug for RevocableToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Revocable by {}", self.followed.name)
    }
}
