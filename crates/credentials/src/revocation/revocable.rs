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
use coherence::view::{CredentialCheck, EntryStamp, EntryState, FillError};
use coherence::{Epoch, LogHead, Tag};

use super::{FollowedIssuer, PendingAnswer};
use crate::cache::{CacheEntryBasis, EntryBasis};

/// Maximum queries about one token, when the answer is older than what is known here.
const MAX_QUERIES: usize = 2;

/// A token that may be revoked before it expires. Clones share state.
#[derive(Clone)]
pub struct RevocableToken {
    /// The follower of its issuer when it was presented. Another one may have replaced it.
    followed: Arc<FollowedIssuer>,
    /// The tags that revoke it, followed by tags that only make its claims outdated.
    tags: Arc<[Tag]>,
    /// How many of the tags revoke it.
    revoking_count: usize,
    /// When it was issued, in milliseconds since 1970: in the time of the issuer's log or, where it
    /// has none, by the issuer's clock.
    issued_at: i64,
    /// Until when it was known to be valid, by the latest query or check: a [`Boot`], which only
    /// grows.
    valid_until: Arc<AtomicU64>,
}

/// The local knowledge about a token, without asking the issuer.
pub enum RevocationStatus {
    /// The token is not revoked.
    NotRevoked(EntryBasis),
    /// The token is revoked.
    Denied,
    /// Unknown here: the issuer must be asked.
    Unknown,
}

/// The issuer's answer about a token.
pub enum IssuerAnswer {
    /// Not revoked, with the basis of a cache entry; `None`: nothing may be cached.
    NotRevoked(Option<EntryBasis>),
    /// The token is revoked.
    Denied,
    /// No answer in time.
    NoAnswer,
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
    Cache(EntryBasis),
    /// It is valid only for the request that asked, if the answer is proven: local knowledge
    /// neither confirms nor contradicts it.
    Once,
    /// Unused: the token is known to be revoked.
    Denied,
    /// Unused: it knows of fewer revocations than are known here. Ask again.
    Retry,
    /// Unused: the answer came too late.
    Late,
}

/// Why an exchange must be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// The credential that authorized it was revoked.
    Revoked,
    /// It can no longer be determined whether the credential was revoked.
    Unknown,
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
        Self { followed, tags, revoking_count: denying, issued_at, valid_until: Arc::default() }
    }

    /// Whether the lease of its issuer is live: then this node knows every event of the log before
    /// it takes effect everywhere.
    pub fn has_lease(&self) -> bool {
        self.followed_issuer().has_lease()
    }

    fn followed_issuer(&self) -> &Arc<FollowedIssuer> {
        self.followed.current_follower()
    }

    fn revoking_tags(&self) -> &[Tag] {
        &self.tags[..self.revoking_count]
    }

    /// The local knowledge about it; its signature must have been verified.
    pub fn local_status(&self) -> RevocationStatus {
        let followed = self.followed_issuer();
        let (denying, outdating) = self.tags.split_at(self.revoking_count);
        let verdict = match followed.view.check_credential(denying, self.issued_at) {
            // Outdating tags deny nothing. This check only shows whether the denylist is
            // incomplete, so that the issuer must be asked.
            CredentialCheck::NotRevoked(_)
                if !outdating.is_empty()
                    && matches!(
                        followed.view.check_credential(outdating, i64::MAX),
                        CredentialCheck::Unknown
                    ) =>
            {
                CredentialCheck::Unknown
            }
            verdict => verdict,
        };
        match verdict {
            CredentialCheck::Denied => RevocationStatus::Denied,
            CredentialCheck::Unknown => RevocationStatus::Unknown,
            CredentialCheck::NotRevoked(stamp) => {
                let held = self.entry_basis(followed, stamp);
                match held.standing() {
                    EntryState::Valid => RevocationStatus::NotRevoked(EntryBasis::Followed(Arc::new(held))),
                    EntryState::Evicted | EntryState::LeaseExpired => RevocationStatus::Unknown,
                }
            }
        }
    }

    /// The data for another service that accepts our answer and follows the issuer too: its `iss`,
    /// the tags, and the log position that the answer covers. `None`: local knowledge is too weak
    /// to be passed on.
    pub fn revocation_tags(&self) -> Option<(Box<str>, RevocationTags)> {
        let followed = self.followed_issuer();
        let view = &followed.view;
        // Read before the check: later events are not covered.
        let (epoch, seq) = (view.epoch()?, view.applied_up_to());
        let good =
            matches!(self.local_status(), RevocationStatus::NotRevoked(_)) && view.epoch() == Some(epoch);
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

    fn entry_basis(&self, followed: &FollowedIssuer, stamp: EntryStamp) -> CacheEntryBasis {
        let (view, clock) = (followed.view.clone(), followed.clock.clone());
        CacheEntryBasis::new(view, clock, (self.tags.clone(), self.issued_at), stamp)
    }

    /// The local knowledge, or otherwise the issuer's answer.
    pub async fn status_or_ask(&self) -> IssuerAnswer {
        let known = || match self.local_status() {
            RevocationStatus::NotRevoked(hold) => Some(IssuerAnswer::NotRevoked(Some(hold))),
            RevocationStatus::Denied => Some(IssuerAnswer::Denied),
            RevocationStatus::Unknown => None,
        };
        if let Some(answer) = known() {
            return answer;
        }
        match self.ask().await {
            // The log may have become current meanwhile by another transport.
            IssuerAnswer::NoAnswer => known().unwrap_or(IssuerAnswer::NoAnswer),
            answer => answer,
        }
    }

    /// The use of a confirming answer by an authority without a log, which was asked at `departed`.
    pub(crate) async fn use_confirmation(self, departed: PendingAnswer) -> AuthoritativeAnswer {
        match self.status_or_ask().await {
            IssuerAnswer::Denied => return AuthoritativeAnswer::Denied,
            IssuerAnswer::NoAnswer => return AuthoritativeAnswer::Silent,
            IssuerAnswer::NotRevoked(_) => {}
        }
        // No position of the log was known then, so later events cannot be compared.
        let Some(as_of) = departed.as_of else { return AuthoritativeAnswer::Good(self, None) };
        match self.answer_use(&departed, as_of) {
            AnswerUse::Cache(hold) => AuthoritativeAnswer::Good(self, Some(hold)),
            AnswerUse::Once => AuthoritativeAnswer::Good(self, None),
            AnswerUse::Denied => AuthoritativeAnswer::Denied,
            AnswerUse::Retry | AnswerUse::Late => AuthoritativeAnswer::Again,
        }
    }

    /// Asks the issuer, and counts the result.
    pub async fn ask(&self) -> IssuerAnswer {
        let answer = self.try_ask().await;
        let followed = self.followed_issuer();
        let counts = &followed.counts;
        let count = match &answer {
            IssuerAnswer::NotRevoked(_) => &counts.good,
            IssuerAnswer::Denied => &counts.denied,
            IssuerAnswer::NoAnswer => &counts.silent,
        };
        count.fetch_add(1, Relaxed);
        if matches!(answer, IssuerAnswer::NoAnswer) {
            // The follower of the log reports the outage once.
            tracing::debug!(issuer = &*followed.issuer, "revocation state of a token unknown");
        }
        answer
    }

    async fn try_ask(&self) -> IssuerAnswer {
        for _ in 0..MAX_QUERIES {
            let departed = self.followed.depart();
            let query = departed.followed.query_desk.query(self.revoking_tags(), self.issued_at);
            let Some(RevocationAnswer { as_of, denied }) = query.await else { return IssuerAnswer::NoAnswer };
            let as_of = (as_of.epoch, as_of.seq);
            if let Some(tag) = denied {
                departed.followed.view.apply_denial(as_of, tag);
                return IssuerAnswer::Denied;
            }
            let hold = match self.answer_use(&departed, as_of) {
                AnswerUse::Cache(hold) => Some(hold),
                AnswerUse::Once => None,
                AnswerUse::Denied => return IssuerAnswer::Denied,
                AnswerUse::Retry => continue,
                AnswerUse::Late => return IssuerAnswer::NoAnswer,
            };
            // As with a probe's echo: valid for a lease from when the query was sent.
            self.is_good_until(departed.began.plus(departed.followed.lease));
            return IssuerAnswer::NotRevoked(hold);
        }
        IssuerAnswer::NoAnswer
    }

    /// The use of an answer that no revocation exists.
    pub(super) fn answer_use(&self, departed: &PendingAnswer, as_of: (Epoch, u64)) -> AnswerUse {
        let PendingAnswer { followed, ticket, began, .. } = departed;
        let (view, now) = (&followed.view, followed.clock.now());
        if now.since(*began) >= followed.lease {
            return AnswerUse::Late;
        }
        // A revocation stays valid even if the answer does not know of it: the answer may come from
        // a database that was deposed or lost it.
        if let Some(denials) = view.denylist()
            && denials.denies(self.revoking_tags(), self.issued_at)
        {
            // A denylist that is being loaded may know more than the cache entries depend on. It
            // must not reject a token that could be accepted again.
            return if denials.is_complete() { AnswerUse::Denied } else { AnswerUse::Retry };
        }
        match view.fill(*ticket, as_of, &self.tags, now) {
            Ok(stamp) => AnswerUse::Cache(EntryBasis::Followed(Arc::new(self.entry_basis(followed, stamp)))),
            Err(FillError::TooLate) => AnswerUse::Late,
            Err(why) if view.may_admit_once(ticket, why) => AnswerUse::Once,
            Err(_) => AnswerUse::Retry,
        }
    }
}

/// For exchanges that were authorized earlier and still last.
impl RevocableToken {
    /// The local knowledge, if it will still be valid when an answer to a query sent now would
    /// arrive.
    pub fn status_until_answer(&self) -> RevocationStatus {
        let followed = self.followed_issuer();
        // Read before the check: everything that the lease covers was applied before the lease was
        // granted.
        let lease = followed.view.lease();
        let known = self.local_status();
        if !matches!(known, RevocationStatus::NotRevoked(_)) {
            return known;
        }
        self.is_good_until(lease);
        // A lease that is renewed regularly never gets so short.
        if lease.since(followed.clock.now()) < followed.lease / 2 { RevocationStatus::Unknown } else { known }
    }

    /// Until when a token that was accepted just now is known to be valid: by the lease, or by the
    /// last answer.
    pub fn valid_until(&self) -> Boot {
        self.until().max(self.followed.view.lease())
    }

    /// Until when it was known to be valid, as of the latest check.
    pub fn until(&self) -> Boot {
        Boot(self.valid_until.load(Relaxed))
    }

    fn is_good_until(&self, until: Boot) {
        self.valid_until.fetch_max(until.0, Relaxed);
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
