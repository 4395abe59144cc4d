//! Decision: authorizes a request, and is the only maker of a [`Permit`].
//!
//! Owns: the order in which a policy is evaluated, the value that proves it was evaluated, the
//! table of refusals, and the explanation of a decision ([`explain`]).
//!
//! Does not own: finding the route or verifying the credential (both are arguments), and
//! forwarding, which takes a `Permit` and nothing else.
//!
//! Flow: `valid at now? → parameters unambiguous? → deny rules → allow rules → review, if there is
//! one → Permit | Denial`. It is evaluated on every request, from cached facts. Without a trace it
//! allocates only for a refusal.
//!
//! Kubernetes answers an access review, which takes time. [`ReviewAnswers`] returns the answers
//! that are known already. Unknown ones lead to [`Denial::ReviewPending`] with the questions, and
//! the caller decides again when they are answered.

pub mod explain;

use std::net::IpAddr;

use crate::identity::{Facts, Identity};
use crate::policy::review::{
    MAX_QUESTIONS, OwnedReviewQuestion, ReviewImpossible, ReviewQuestion, ReviewSet, ReviewTemplate,
};
use crate::policy::route::Captures;
use crate::policy::rule::{Effect, Policy, Rule, RuleInput, RuleSet};
use crate::request::{Canonical, Field, Malformed, pairs};
use crate::time::Timestamp;

use explain::{Step, Trace};

/// What a decision may read besides the request.
#[derive(Clone)]
pub struct RuleContext<'c> {
    /// The request's header fields, which reviews may read.
    pub fields: &'c [Field<'c>],
    /// Captures of the route's template in the path.
    pub captures: Captures<'c>,
    /// Answers of reviews that are known.
    pub reviews: &'c dyn ReviewAnswers,
    /// The address of the client, an IPv4-mapped one as IPv4. `None`: unknown, so that no allow
    /// rule with a condition on it matches.
    pub client: Option<IpAddr>,
}

impl RuleContext<'_> {
    /// Context for routes without a review, for a client with this address.
    pub const fn without_reviews(client: Option<IpAddr>) -> Self {
        Self { fields: &[], captures: Captures::none(), reviews: &NoReviewAnswers, client }
    }
}

/// Answers to access reviews that are known without I/O.
pub trait ReviewAnswers {
    /// Whether the answer is yes; `None` when it is not known.
    fn verdict(&self, question: &ReviewQuestion<'_>) -> Option<bool>;
}

/// Reviews of which no answer is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReviewAnswers;

impl ReviewAnswers for NoReviewAnswers {
    fn verdict(&self, _: &ReviewQuestion<'_>) -> Option<bool> {
        None
    }
}

/// [`decide_in`] without reviews, for a client with an unknown address: a policy that needs a
/// review permits no request.
///
/// # Errors
/// As [`decide_in`].
pub fn decide<'r>(
    policy: &Policy,
    route: usize,
    request: &'r Canonical<'r>,
    facts: Option<&'r Facts>,
    now: Timestamp,
    trace: &mut impl Trace,
) -> Result<Permit<'r>, Denial> {
    decide_in(
        &RuleContext::without_reviews(None),
        MatchedRoute { index: route, policy },
        request,
        facts,
        now,
        trace,
    )
}

/// The route that a request matched.
#[derive(Debug, Clone, Copy)]
pub struct MatchedRoute<'p> {
    /// Index of the route.
    pub index: usize,
    /// The policy of this route.
    pub policy: &'p Policy,
}

/// Decides about one request.
///
/// The index of the matched route is copied into the permit. `facts` are what the caller's
/// credential proved, `None` without a credential. On a public route, facts that are not valid at
/// `now` are left out of the permit, so that no expired identity is passed on.
///
/// # Errors
/// [`Denial`]: nothing may reach the upstream.
pub fn decide_in<'r>(
    court: &RuleContext<'_>,
    matched: MatchedRoute<'_>,
    request: &'r Canonical<'r>,
    facts: Option<&'r Facts>,
    now: Timestamp,
    trace: &mut impl Trace,
) -> Result<Permit<'r>, Denial> {
    let MatchedRoute { index: route, policy } = matched;
    let arrival = Arrival { client: court.client, now };
    let facts = authorize(policy, request, facts, arrival, ReviewMode::LookUp(court), trace)?;
    Ok(Permit { route, request: Request::Received(request), facts, client: court.client })
}

/// Proof that a request may be forwarded: the request and the caller that were decided about.
///
/// Only [`decide`] and [`decide_in`] make one:
///
/// ```compile_fail,E0451
/// fn forge<'r>() -> auth::decide::Permit<'r> {
///     auth::decide::Permit { route: 0, request: unreachable!(), facts: None, client: None }
/// }
/// ```
///
/// Forwarding consumes it, so it cannot be kept, and it cannot be cloned:
///
/// ```compile_fail,E0599
/// fn twice<'r>(permit: auth::decide::Permit<'r>) -> (auth::decide::Permit<'r>, auth::decide::Permit<'r>) {
///     (permit.clone(), permit)
/// }
/// ```
///
/// The request in it cannot be exchanged. [`Permit::rewrite`] is the only way to forward another
/// path, and decides again.
#[derive(Debug)]
#[must_use = "a permit that is not forwarded means a request without an answer"]
pub struct Permit<'r> {
    route: usize,
    request: Request<'r>,
    facts: Option<&'r Facts>,
    /// The address that the decision was made for.
    client: Option<IpAddr>,
}

#[derive(Debug)]
enum Request<'r> {
    Received(&'r Canonical<'r>),
    Rewritten(Canonical<'r>),
}

impl<'r> Permit<'r> {
    /// The index of the route that matched the request.
    pub fn route(&self) -> usize {
        self.route
    }

    /// The request to forward.
    pub fn request(&self) -> &Canonical<'r> {
        match &self.request {
            Request::Received(request) => request,
            Request::Rewritten(request) => request,
        }
    }

    /// Whether the request to forward has another path than the one received.
    pub fn is_rewritten(&self) -> bool {
        matches!(self.request, Request::Rewritten(_))
    }

    /// What the caller's credential proved; `None` on a public route without a valid credential.
    pub fn facts(&self) -> Option<&'r Facts> {
        self.facts
    }

    /// The identity of the caller, for the headers to the upstream.
    pub fn identity(&self) -> Option<&'r Identity> {
        self.facts.map(|facts| &facts.identity)
    }

    /// Replaces the path, and decides again about the resulting request.
    ///
    /// `policy` is the route's own. When several routes lead to one upstream, stripping a prefix
    /// can lead from one route's paths into another's. Then the other route's policy must be
    /// checked too ([`Permit::check_policy`]). A review was about the request as it was received,
    /// and is not repeated.
    ///
    /// # Errors
    /// [`Denial::Rewrite`] when the new path has no canonical form (because of dot segments, among
    /// others), otherwise as [`decide`]. The permit is consumed in either case.
    pub fn rewrite(
        self,
        policy: &Policy,
        new_path: &str,
        now: Timestamp,
        trace: &mut impl Trace,
    ) -> Result<Self, Denial> {
        let request = match self.request {
            Request::Received(request) => request.rewritten(new_path),
            Request::Rewritten(request) => request.into_rewritten(new_path),
        };
        let request = request.map_err(Denial::Rewrite)?;
        trace_step(trace, || Step::Rewritten { path: request.path() });
        let arrival = Arrival { client: self.client, now };
        let facts = authorize(policy, &request, self.facts, arrival, ReviewMode::Granted, trace)?;
        Ok(Self { request: Request::Rewritten(request), facts, ..self })
    }

    /// Checks a further policy for the same request; both policies have to permit it. `court`
    /// belongs to the route of the further policy.
    ///
    /// # Errors
    /// As [`decide`]. The permit is consumed then.
    pub fn check_policy(
        self,
        court: &RuleContext<'_>,
        policy: &Policy,
        now: Timestamp,
        trace: &mut impl Trace,
    ) -> Result<Self, Denial> {
        let arrival = Arrival { client: self.client, now };
        let reviewing = ReviewMode::LookUp(court);
        let facts = authorize(policy, self.request(), self.facts, arrival, reviewing, trace)?;
        Ok(Self { facts, ..self })
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The route requires a credential, and the request has none.
    #[error("the route needs a credential and the request has none")]
    Unauthenticated,
    /// The credential has expired: `now >= expires`.
    #[error("the credential is expired")]
    Expired,
    /// The credential is not valid yet: `now < not_before`.
    #[error("the credential is not valid yet")]
    NotYetValid,
    /// A deny rule matches, or no allow rule does.
    #[error("{}", forbidden(*.deny_rule))]
    Forbidden {
        /// The deny rule that matches; `None` when no allow rule matches.
        deny_rule: Option<usize>,
    },
    /// Only scopes are missing.
    #[error("the credential lacks a scope; sufficient scopes: {needed:?}")]
    InsufficientScope {
        /// Scopes that suffice, separated by spaces, for the challenge's `scope` (RFC 6750 §3);
        /// safe to quote. Empty when any scope at all suffices.
        needed: Box<str>,
    },
    /// A query parameter that the policy reads occurs more than once.
    #[error("the query parameter {name:?}, which the policy reads, is repeated")]
    RepeatedParameter {
        /// Name of the parameter.
        name: Box<str>,
    },
    /// A query parameter that the policy reads could be read differently by the upstream.
    #[error(
        "the query parameter {name:?}, which the policy reads, is ambiguous: the query has another case of it, [] or ;"
    )]
    AmbiguousParameter {
        /// Name of the parameter.
        name: Box<str>,
    },
    /// The query cannot be read as a form, or servers disagree on where it begins, and the decision
    /// reads it.
    #[error("the query, which decides about the request, cannot be read: {0}")]
    UnreadableQuery(Malformed),
    /// No review can be asked for: the request lacks a value that the review needs, or the caller
    /// has no usable name.
    #[error(transparent)]
    ReviewImpossible(#[from] ReviewImpossible),
    /// The review was answered with no.
    #[error("Kubernetes denies access to the caller")]
    ReviewDenied,
    /// The answer of the review is not known yet.
    #[error("the Kubernetes access review has no answer yet")]
    ReviewPending(Vec<OwnedReviewQuestion>),
    /// The rewritten path has no canonical form.
    #[error("the rewritten path is refused: {0}")]
    Rewrite(Malformed),
}

fn forbidden(deny_rule: Option<usize>) -> String {
    match deny_rule {
        Some(index) => format!("deny rule {index} matches"),
        None => "no allow rule matches".into(),
    }
}

/// How a [`Denial`] is reported to the client and to the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenialAnswer {
    /// HTTP status code of the response.
    pub status: u16,
    /// The RFC 6750 §3.1 error code of the challenge; `None` where the RFC requires none.
    pub error: Option<&'static str>,
    /// Whether the response has a `WWW-Authenticate` challenge.
    pub challenge: bool,
    /// A stable identifier for logs and metrics.
    pub code: &'static str,
    /// Text for the client. It says nothing about the rules.
    pub text: &'static str,
}

impl Denial {
    /// The response to each denial: the only such table.
    #[rustfmt::skip]
    pub const fn answer(&self) -> DenialAnswer {
        let (status, error, challenge, code, text) = match self {
            Self::Unauthenticated =>
                (401, None, true, "unauthenticated", "authentication is required"),
            Self::Expired =>
                (401, Some("invalid_token"), true, "expired", "the credential is expired"),
            Self::NotYetValid =>
                (401, Some("invalid_token"), true, "not_yet_valid", "the credential is not valid yet"),
            Self::Forbidden { .. } =>
                (403, None, false, "forbidden", "access is denied"),
            Self::InsufficientScope { .. } =>
                (403, Some("insufficient_scope"), true, "insufficient_scope", "the credential lacks a scope"),
            Self::RepeatedParameter { .. } =>
                (400, Some("invalid_request"), false, "repeated_parameter", "a query parameter is repeated"),
            Self::AmbiguousParameter { .. } =>
                (400, Some("invalid_request"), false, "ambiguous_parameter", "a query parameter is ambiguous"),
            Self::UnreadableQuery(_) =>
                (400, Some("invalid_request"), false, "unreadable_query", "the query cannot be read"),
            Self::ReviewImpossible(ReviewImpossible::Method | ReviewImpossible::Caller) =>
                (403, None, false, "unaskable", "access is denied"),
            Self::ReviewImpossible(_) =>
                (400, Some("invalid_request"), false, "review_incomplete", "the request has no usable value for the access review"),
            Self::ReviewDenied =>
                (403, None, false, "review_denied", "access is denied"),
            Self::ReviewPending(_) =>
                (503, None, false, "unreviewed", "authorization is temporarily unavailable"),
            Self::Rewrite(_) =>
                (400, Some("invalid_request"), false, "rewrite", "the path cannot be served"),
        };
        DenialAnswer { status, error, challenge, code, text }
    }
}

/// How a decision handles a review.
#[derive(Clone, Copy)]
enum ReviewMode<'c> {
    /// Its answer is looked up.
    LookUp(&'c RuleContext<'c>),
    /// It was answered with yes already, for the same request.
    Granted,
}

/// Where and when a request arrived.
#[derive(Clone, Copy)]
struct Arrival {
    client: Option<IpAddr>,
    now: Timestamp,
}

/// Evaluates a policy. Returns the facts that may be passed on.
fn authorize<'f>(
    policy: &Policy,
    request: &Canonical<'_>,
    facts: Option<&'f Facts>,
    Arrival { client, now }: Arrival,
    reviewing: ReviewMode<'_>,
    trace: &mut impl Trace,
) -> Result<Option<&'f Facts>, Denial> {
    trace_step(trace, || Step::Credential { facts, now });
    let outcome = match policy {
        Policy::Public => {
            trace_step(trace, || Step::Public);
            Ok(facts.filter(|facts| facts.valid_at(now)))
        }
        Policy::Rules(rules) => require_valid(facts, now).and_then(|facts| {
            let input = RuleInput { identity: &facts.identity, request, client, now };
            evaluate_rules(rules, &input, reviewing, trace).map(|()| Some(facts))
        }),
    };
    trace_step(trace, || Step::Verdict(outcome.as_ref().err()));
    outcome
}

/// Requires facts that are valid at `now`.
fn require_valid(facts: Option<&Facts>, now: Timestamp) -> Result<&Facts, Denial> {
    match facts {
        None => Err(Denial::Unauthenticated),
        Some(facts) if facts.valid_at(now) => Ok(facts),
        Some(facts) if now < facts.not_before => Err(Denial::NotYetValid),
        Some(_) => Err(Denial::Expired),
    }
}

fn evaluate_rules(
    rules: &RuleSet,
    input: &RuleInput<'_>,
    reviewing: ReviewMode<'_>,
    trace: &mut impl Trace,
) -> Result<(), Denial> {
    check_parameters(rules, input.request)?;
    let denied = first_match(rules.deny(), Effect::Deny, input, trace);
    if denied.is_some() {
        return Err(Denial::Forbidden { deny_rule: denied });
    }
    if first_match(rules.allow(), Effect::Allow, input, trace).is_some() {
        return Ok(());
    }
    if let Some(reviews) = rules.reviews() {
        return match reviewing {
            ReviewMode::LookUp(court) => {
                evaluate_reviews(reviews, input.identity, input.request, court, trace)
            }
            ReviewMode::Granted => Ok(()),
        };
    }
    match rules.missing_scopes(input) {
        Some(scopes) => Err(Denial::InsufficientScope { needed: scopes.join(" ").into() }),
        None => Err(Denial::Forbidden { deny_rule: None }),
    }
}

/// Whether all reviews of the request are answered with yes, or any, as the set says.
fn evaluate_reviews(
    reviews: &ReviewSet,
    identity: &Identity,
    request: &Canonical<'_>,
    court: &RuleContext<'_>,
    trace: &mut impl Trace,
) -> Result<(), Denial> {
    let mut evaluate = |review| evaluate_review(review, identity, request, court, trace);
    match reviews {
        ReviewSet::All(reviews) => {
            let mut unknown = Vec::new();
            for review in reviews {
                match evaluate(review) {
                    Ok(()) => {}
                    Err(Denial::ReviewPending(questions)) => unknown.extend(questions),
                    Err(denial) => return Err(denial),
                }
            }
            if unknown.len() > MAX_QUESTIONS {
                return Err(ReviewImpossible::TooMany.into());
            }
            if unknown.is_empty() { Ok(()) } else { Err(Denial::ReviewPending(unknown)) }
        }
        ReviewSet::Any(reviews) => {
            // The first review without an answer is asked next: it may make the others needless.
            let (mut pending, mut refused) = (None, None);
            for review in reviews {
                match evaluate(review) {
                    Ok(()) => return Ok(()),
                    Err(denial @ Denial::ReviewPending(_)) => pending = pending.or(Some(denial)),
                    // An answer says more than a review that was impossible.
                    Err(Denial::ReviewDenied) => refused = Some(Denial::ReviewDenied),
                    Err(denial) => refused = refused.or(Some(denial)),
                }
            }
            Err(pending.or(refused).unwrap_or(Denial::ReviewDenied))
        }
    }
}

/// Whether every question of one review about the request is answered with yes.
fn evaluate_review(
    review: &ReviewTemplate,
    identity: &Identity,
    request: &Canonical<'_>,
    court: &RuleContext<'_>,
    trace: &mut impl Trace,
) -> Result<(), Denial> {
    let mut unknown = Vec::new();
    let questions = review.questions(identity, request, &court.captures, court.fields)?;
    for question in questions {
        let verdict = court.reviews.verdict(&question);
        trace_step(trace, || Step::Review { question: &question, verdict });
        match verdict {
            Some(true) => {}
            Some(false) => return Err(Denial::ReviewDenied),
            None => unknown.push(question.into_owned()),
        }
    }
    if unknown.is_empty() { Ok(()) } else { Err(Denial::ReviewPending(unknown)) }
}

/// Requires that every parameter which a condition reads occurs at most once and in one spelling.
/// Servers take the first of two, or the last, or both. Some ignore case, take `ns[]` for `ns`, or
/// split at `;`.
fn check_parameters(rules: &RuleSet, request: &Canonical<'_>) -> Result<(), Denial> {
    // Another reading of the path may have a query.
    if request.query().is_none() && request.other_readings().is_empty() {
        return Ok(());
    }
    let query = request.query().unwrap_or_default();
    let once = rules.parameters().iter().map(|name| (&**name, true));
    // A repeated parameter of a review is allowed: each of its values is reviewed.
    let reviewed = rules.reviews().into_iter().flat_map(ReviewSet::parameters).map(|name| (name, false));
    for (name, once) in once.chain(reviewed) {
        if let Some(fault) = request.query_fault() {
            return Err(Denial::UnreadableQuery(fault));
        }
        let (mut exact, mut similar) = (0, query.contains(';'));
        for (key, _) in pairs(Some(query)) {
            if key.decodes_to(name) {
                exact += 1;
            } else {
                similar |= key.resembles(name);
            }
        }
        if once && exact > 1 {
            return Err(Denial::RepeatedParameter { name: name.into() });
        }
        if similar {
            return Err(Denial::AmbiguousParameter { name: name.into() });
        }
    }
    Ok(())
}

/// Index of the first rule that matches. A trace gets every rule and every condition, also those
/// after the match.
fn first_match<T: Trace>(
    rules: &[Rule],
    effect: Effect,
    input: &RuleInput<'_>,
    trace: &mut T,
) -> Option<usize> {
    if !T::ENABLED {
        return rules.iter().position(|rule| rule.matches(input, effect));
    }
    let mut first = None;
    for (index, rule) in rules.iter().enumerate() {
        let matches = rule.matches(input, effect);
        trace.step(Step::Rule { effect, index, rule, matches });
        for condition in rule.conditions() {
            trace.step(Step::Condition { condition, input, effect });
        }
        first = first.or(matches.then_some(index));
    }
    first
}

/// Adds a step to the trace, if there is one.
fn trace_step<'s, T: Trace>(trace: &mut T, step: impl FnOnce() -> Step<'s>) {
    if T::ENABLED {
        trace.step(step());
    }
}
