//! Route authorizer: evaluates the policies and authorizers that decide about a request with a
//! known caller.
//!
//! These are those of its route, and of the routes that guard its new path. Owns: evaluating them
//! in order, with the results that were looked up for this request. Does not own: the decision
//! (`auth::decide`), the meaning of an authorizer's answer ([`crate::authorizer`]), what a refusal
//! becomes (the parent).

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use auth::decide::explain::NoTrace;
use auth::decide::{Denial, MatchedRoute, Permit, RuleContext, decide_in};
use auth::identity::Facts;
use auth::policy::route::AmbiguousRoute;
use auth::request::Canonical;
use http_engine::clock::Now;
use http_engine::parsed_request::ParsedRequest;
use telemetry::trace::TraceContext;

use super::Admission;
use super::lookups::{LookupNeeded, Lookups};
use crate::authorizer::{
    Authorizer, AuthorizerAnswer, AuthorizerQuestion, AuthorizerUnknown, QuestionInput, ambiguous,
};
use crate::forward_filter;
use crate::forwarded_fields::ForwardedFields;
use crate::peer::Peer;
use crate::record::AuthorizerConsent;
use crate::refusal::Refusal;
use crate::review;
use crate::worker::ActiveConfig;

/// Evaluates the policies and authorizers for one request.
pub(super) struct RouteAuthorizer<'b> {
    pub(super) running: &'b Rc<ActiveConfig>,
    pub(super) peer: &'b Peer,
    pub(super) inbound: &'b ParsedRequest<'b>,
    pub(super) forwarded: &'b ForwardedFields,
    pub(super) lookups: &'b Lookups,
    pub(super) now: Now,
    /// The address of the request's client; `None`: unknown.
    pub(super) client: Option<IpAddr>,
}

/// Why a request that our own policy permitted does not pass: because of an authorizer, or of its
/// new path.
pub(super) enum NotAuthorized {
    Denied(Denial),
    /// The routes that guard the new path cannot be determined.
    Disputed(AmbiguousRoute),
    /// An authorizer must be queried first.
    QueryNeeded(Box<AuthorizerQuestion>),
    /// An authorizer refuses the request.
    Refused(Arc<AuthorizerAnswer>),
    /// The query to an authorizer failed.
    Unknown,
    /// A field that the authorizer is shown could be read differently by the upstream.
    Ambiguous(Box<str>),
}

impl NotAuthorized {
    pub(super) fn conclude(self, lookups: &Lookups) -> Result<Admission, Refusal> {
        match self {
            Self::Denied(Denial::ReviewPending(questions)) if !lookups.review_failed => {
                Ok(Admission::Wait(LookupNeeded::Reviews(questions)))
            }
            Self::Denied(denial) => Err(Refusal::Denied(denial)),
            Self::Disputed(disputed) => Err(Refusal::disputed(disputed)),
            Self::QueryNeeded(question) => Ok(Admission::Wait(LookupNeeded::Authorizer(question))),
            Self::Refused(answer) => match &*answer {
                AuthorizerAnswer::Refused(refused) => Ok(Admission::Answer(Box::new(refused.answer()))),
                AuthorizerAnswer::Allowed(_) => Err(Refusal::AuthorizerUnavailable),
            },
            Self::Unknown => Err(Refusal::AuthorizerUnavailable),
            Self::Ambiguous(name) => Err(Refusal::Ambiguous(name)),
        }
    }
}

impl RouteAuthorizer<'_> {
    /// Decides about a request by a route's policy.
    pub(super) fn decide<'r>(
        &self,
        route: usize,
        request: &'r Canonical<'r>,
        facts: Option<&'r Facts>,
    ) -> Result<Permit<'r>, Denial> {
        let policy = &self.running.config.route(route).policy;
        self.with_rule_context(route, request, |court| {
            let matched = MatchedRoute { index: route, policy };
            decide_in(court, matched, request, facts, self.now.wall, &mut NoTrace)
        })
    }

    /// Runs `decide` with the inputs that a route's policy may read.
    fn with_rule_context<T>(
        &self,
        route: usize,
        request: &Canonical<'_>,
        decide: impl FnOnce(&RuleContext<'_>) -> T,
    ) -> T {
        let Some(reviewer) = &self.running.reviewer else {
            return decide(&RuleContext::without_reviews(self.client));
        };
        let known = review::ReviewResult { reviewer, now: self.now, reviews: &self.lookups.reviews };
        let captures = self.running.config.routing.table().captures(route, request);
        decide(&RuleContext { fields: self.inbound.fields, captures, reviews: &known, client: self.client })
    }

    /// The approvals of the route's authorizers: of the request, and of the request in each other
    /// reading of its path.
    pub(super) fn query_authorizers(
        &self,
        route: usize,
        request: &Canonical<'_>,
        trace: Option<&TraceContext>,
    ) -> Result<(Vec<AuthorizerConsent>, Vec<AuthorizerConsent>), NotAuthorized> {
        let (mut consents, mut others) = (Vec::new(), Vec::new());
        for at in self.running.config.route(route).authorizers() {
            let active = self.running.authorizer(at).ok_or(NotAuthorized::Unknown)?;
            let authorizer = &active.authorizer;
            if let Some(name) =
                ambiguous(authorizer.config(), self.inbound.fields, &self.running.config.strip)
            {
                return Err(NotAuthorized::Ambiguous(name.into()));
            }
            // The authorizer could read another query than the upstream.
            if let Some(fault) = request.query_start_fault() {
                return Err(NotAuthorized::Denied(Denial::UnreadableQuery(fault)));
            }
            consents.push(self.query_about((at, authorizer), request, trace)?);
            for reading in request.other_requests() {
                others.push(self.query_about((at, authorizer), &reading, trace)?);
            }
        }
        Ok((consents, others))
    }

    /// The approval of an authorizer.
    fn query_about(
        &self,
        (at, authorizer): (usize, &Authorizer),
        request: &Canonical<'_>,
        trace: Option<&TraceContext>,
    ) -> Result<AuthorizerConsent, NotAuthorized> {
        let about = QuestionInput {
            request,
            fields: self.inbound.fields,
            forwarded: &self.forwarded.fields,
            strip: &self.running.config.strip,
            client: self.client,
            hides_login_cookies: self.running.config.login.is_some(),
            trace,
        };
        let key = authorizer.key(&about);
        let result = self.lookups.authorizer_results.iter().find(|(of, _)| *of == key);
        let (answer, from_cache) = match result {
            Some((_, Ok(answer))) => (answer.clone(), false),
            Some((_, Err(AuthorizerUnknown))) => return Err(NotAuthorized::Unknown),
            None => match authorizer.peek(key, self.now) {
                Some(answer) => (answer, true),
                None => {
                    return Err(NotAuthorized::QueryNeeded(Box::new(about.question(
                        authorizer.config(),
                        at,
                        key,
                    ))));
                }
            },
        };
        match &*answer {
            AuthorizerAnswer::Allowed(_) => Ok(AuthorizerConsent { authorizer: at, from_cache, answer }),
            AuthorizerAnswer::Refused(_) => Err(NotAuthorized::Refused(answer)),
        }
    }

    /// Rewrites the path where the route says so, if all routes that guard the new path agree.
    pub(super) fn rewrite<'r>(
        &self,
        permit: Permit<'r>,
        trace: Option<&TraceContext>,
    ) -> Result<(Permit<'r>, Vec<AuthorizerConsent>), NotAuthorized> {
        let config = &self.running.config;
        let permit = forward_filter::rewrite(config, permit, self.now.wall, &mut NoTrace);
        let (mut permit, mut agreed) = (permit.map_err(NotAuthorized::Denied)?, Vec::new());
        for other in
            forward_filter::guards(config, &permit, self.inbound.fields).map_err(NotAuthorized::Disputed)?
        {
            let policy = &config.route(other).policy;
            let path = forward_filter::check_path(config.route(other), permit.request());
            path.map_err(|fault| NotAuthorized::Denied(Denial::Rewrite(fault)))?;
            // `confirm` consumes the permit.
            let request = permit.request().clone();
            let confirmed = self.with_rule_context(other, &request, |court| {
                permit.check_policy(court, policy, self.now.wall, &mut NoTrace)
            });
            permit = confirmed.map_err(NotAuthorized::Denied)?;
            // The fields for the upstream come from the authorizers of the first route; these only have
            // to agree.
            let (consents, others) = self.query_authorizers(other, permit.request(), trace)?;
            agreed.extend(consents.into_iter().chain(others));
        }
        Ok((permit, agreed))
    }
}
