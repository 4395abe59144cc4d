//! What a request has to wait for: the asynchronous lookups, and what they found out.
//!
//! Owns: the kinds of lookups, which results hold when the request is admitted again, and what a
//! lookup that did not finish in time means. Does not own: the lookups themselves
//! ([`credentials::authenticate`], `login`, [`mod@crate::review`], [`crate::authorizer`]).

use std::rc::Rc;
use std::sync::Arc;

use auth::policy::review::OwnedReviewQuestion;
use credentials::authenticate::Verified;
use credentials::authenticate::outcome::AuthenticationOutcome;
use credentials::cache::CacheKey;
use credentials::revocation::{RevocableToken, RevocationStatus as Heard};
use login::{SessionOutcome, SessionRejected};
use telemetry::phases::{CacheUse, Phase};
use zeroize::Zeroizing;

use crate::authorizer::routed::ActiveAuthorizer;
use crate::authorizer::{AuthorizerAnswer, AuthorizerQuestion, AuthorizerResult, AuthorizerUnknown};
use crate::worker::{ActiveConfig, Worker};

/// An asynchronous lookup that a request has to wait for.
pub(crate) enum LookupNeeded {
    /// Authenticate this token.
    Caller(Vec<u8>),
    /// Compare the password of this encoded credential of HTTP Basic.
    Password(Zeroizing<Vec<u8>>),
    /// Look up the session of this cookie at an origin (by index).
    Session(usize, Vec<u8>),
    /// Kubernetes access reviews that must all be allowed.
    Reviews(Vec<OwnedReviewQuestion>),
    /// Query an authorizer.
    Authorizer(Box<AuthorizerQuestion>),
}

impl LookupNeeded {
    /// The phase that the waiting time counts towards.
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::Caller(_) | Self::Password(_) | Self::Session(..) => Phase::Authenticate,
            Self::Reviews(_) | Self::Authorizer(_) => Phase::Decide,
        }
    }
}

/// Results of the lookups that a request waited for.
#[derive(Default)]
pub(crate) struct Lookups {
    pub(super) outcome: Option<AuthenticationOutcome>,
    pub(super) session: Option<SessionOutcome>,
    pub(super) reviews: Vec<(OwnedReviewQuestion, bool)>,
    /// Whether some access review failed.
    pub(super) review_failed: bool,
    /// Results of authorizers, by cache key.
    pub(super) authorizer_results: Vec<(CacheKey, AuthorizerResult)>,
    /// Whether the request has waited.
    pub(super) waited: bool,
}

impl Lookups {
    /// Whether the request has waited.
    pub(crate) fn has_waited(&self) -> bool {
        self.waited
    }

    /// Runs the lookup. Earlier results are that much older afterwards.
    pub(crate) async fn run(&mut self, needed: LookupNeeded, worker: &Worker, running: &Rc<ActiveConfig>) {
        let now = || worker.clock.refresh();
        let before = (self.outcome.is_some(), self.session.is_some());
        self.waited = true;
        match needed {
            LookupNeeded::Caller(token) => {
                self.outcome = Some(running.authenticator.authenticate(&token, now).await);
            }
            LookupNeeded::Password(encoded) => {
                // Rare and large: kept out of the future of every miss.
                let comparing = Box::pin(running.authenticator.authenticate_basic(&encoded, now));
                self.outcome = Some(comparing.await);
            }
            LookupNeeded::Session(origin, cookie) => {
                // Rare and large: kept out of the future of every miss.
                self.session = Some(match &running.login {
                    Some(login) => Box::pin(login.resolve(origin, &cookie)).await,
                    None => (Err(SessionRejected::Unavailable), CacheUse::Miss),
                });
            }
            LookupNeeded::Reviews(questions) => {
                let answers = match &running.reviewer {
                    // Rare and large: kept out of the future of every miss.
                    Some(reviewer) => Box::pin(reviewer.resolve(questions, now)).await,
                    None => None,
                };
                match answers {
                    Some(answers) => self.reviews.extend(answers),
                    None => self.review_failed = true,
                }
            }
            LookupNeeded::Authorizer(question) => {
                let answer = match running.authorizer(question.authorizer()) {
                    // Rare and large: kept out of the future of every miss.
                    Some(ActiveAuthorizer { authorizer, counts }) => {
                        Box::pin(authorizer.resolve(&question, &counts, worker, running)).await
                    }
                    None => Err(AuthorizerUnknown),
                };
                self.authorizer_results.push((question.key(), answer));
            }
        }
        self.drop_possibly_revoked(before);
    }

    /// Drops results whose credential may have been revoked meanwhile, so that they are looked up
    /// again. Outcome and session from before the wait are dropped unless they are known to be
    /// valid. Results of this lookup, which another request or thread may have produced, are
    /// dropped only if they are known to be revoked.
    fn drop_possibly_revoked(&mut self, (outcome, session): (bool, bool)) {
        let doubtful = |revocable: Option<&RevocableToken>, before: bool| match revocable
            .map(RevocableToken::local_status)
        {
            None | Some(Heard::NotRevoked(_)) => false,
            Some(Heard::Denied) => true,
            Some(Heard::Unknown) => before,
        };
        let caller = |caller: &Arc<Verified>, before| doubtful(caller.revocable.as_ref(), before);
        self.outcome.take_if(|(result, _)| result.as_ref().is_ok_and(|verified| caller(verified, outcome)));
        self.session.take_if(|(result, _)| result.as_ref().is_ok_and(|verified| caller(verified, session)));
        // An authorizer that was queried about this very request is trusted (decision 0021).
        let doubtful = |answer: &AuthorizerAnswer| doubtful(answer.revocable(), false);
        self.authorizer_results.retain(|(_, answer)| !answer.as_ref().is_ok_and(|answer| doubtful(answer)));
    }

    /// The results with this lookup marked as failed, for a lookup that did not finish in time.
    pub(crate) fn timed_out(&self, needed: &LookupNeeded, running: &ActiveConfig) -> Self {
        let outcome = match needed {
            LookupNeeded::Caller(_) | LookupNeeded::Password(_) => Some(running.authenticator.timed_out()),
            LookupNeeded::Session(..) | LookupNeeded::Reviews(_) | LookupNeeded::Authorizer(_) => {
                self.outcome.clone()
            }
        };
        let session = match needed {
            LookupNeeded::Session(..) => Some((Err(SessionRejected::Unavailable), CacheUse::Miss)),
            LookupNeeded::Caller(_)
            | LookupNeeded::Password(_)
            | LookupNeeded::Reviews(_)
            | LookupNeeded::Authorizer(_) => self.session.clone(),
        };
        let unreviewed = matches!(needed, LookupNeeded::Reviews(_));
        let mut consents = self.authorizer_results.clone();
        if let LookupNeeded::Authorizer(question) = needed {
            consents.push((question.key(), Err(AuthorizerUnknown)));
        }
        Self {
            outcome,
            session,
            reviews: self.reviews.clone(),
            review_failed: unreviewed,
            authorizer_results: consents,
            waited: true,
        }
    }
}
