//! Rules of HTTPRoutes and GRPCRoutes.
//!
//! Owns: matches, filters, timeouts and backends of each rule as plans, and the faults of a route.
//! Does not own: where the route is served ([`crate::attach`]), its policies ([`crate::policies`]).
//! Flow: `RouteSpec → derive → RouteRules`.
//!
//! A match that is not supported, or that the data plane cannot carry out ([`Settings::match_check`]),
//! refuses the whole route: nobody knows which requests it stands for, and another rule of the route
//! must not take them. A filter or setting that is not supported fails its own rule, since its requests
//! are known. That holds too if all rules fail and the route is refused.

mod filters;
mod matches;

use std::sync::Arc;
use std::time::Duration;

use self::filters::Filters;
pub use self::matches::duration;
use crate::backends;
use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, Name};
use crate::objects::Route;
use crate::objects::reference::BackendObjectReference;
use crate::objects::route::{BackendRef, FilterSpec, GrpcRule, HttpRule, RetrySpec, RouteSpec, Timeouts};
use crate::plan::{
    BackendTarget, FilterPlan, GrpcMethodMatch, MatchPlan, PathMatch, RetryPlan, RuleAction, WeightedBackend,
};
use crate::settings::Settings;

/// What is derived from the rules of a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteRules {
    /// Empty if nobody knows which requests the route stands for. If all rules of a refused route
    /// fail, they are here: their requests get 500, and no broader route takes them.
    pub rules: Vec<RulePlan>,
    /// Why the route as a whole is not accepted.
    pub refused: Option<Fault>,
    /// Why some rules fail, though the route is accepted.
    pub partial: Option<Fault>,
    /// Why a reference of the route cannot be resolved.
    pub unresolved: Option<Fault>,
}

/// A rule with all of its matches.
#[allow(missing_docs, reason = "fields are those of `RoutePlan`")]
#[derive(Clone, Debug, PartialEq)]
pub struct RulePlan {
    pub name: Option<Name>,
    pub matches: Vec<MatchPlan>,
    pub action: RuleAction,
    pub filters: Arc<[FilterPlan]>,
    pub request_timeout: Option<Duration>,
    pub backend_timeout: Option<Duration>,
    pub retry: Option<RetryPlan>,
    /// Why the rule fails.
    fault: Option<Fault>,
}

/// Derives the rules of a route.
pub fn derive(known: &Known, settings: &Settings, kind: Kind, route: &Route) -> RouteRules {
    if let Some(problem) = &route.not_understood {
        let fault = Fault::new("UnsupportedValue", format!("not used, because of {problem}"));
        return RouteRules { refused: Some(fault), ..RouteRules::default() };
    }
    let mut context =
        Context { known, settings, kind, namespace: &route.meta.at.namespace, unresolved: None };
    let rules = match &route.spec {
        RouteSpec::Http(spec) if spec.rules.is_empty() => {
            context.http(&HttpRule::default()).map(|rule| vec![rule])
        }
        RouteSpec::Grpc(spec) if spec.rules.is_empty() => {
            context.grpc(&GrpcRule::default()).map(|rule| vec![rule])
        }
        RouteSpec::Http(spec) => numbered(&spec.rules, |rule| context.http(rule)),
        RouteSpec::Grpc(spec) => numbered(&spec.rules, |rule| context.grpc(rule)),
    };
    let unresolved = context.unresolved;
    let (mut rules, mut refused) = match rules {
        Ok(rules) => (rules, None),
        Err(fault) => (Vec::new(), Some(fault)),
    };
    matches::distinguish_parameters(rules.iter_mut().flat_map(|rule| &mut rule.matches));
    let failed: Vec<_> = rules.iter().enumerate().filter(|(_, rule)| rule.fault.is_some()).collect();
    let mut partial = None;
    if let Some((index, fault)) = failed.first().and_then(|(index, rule)| Some((index, rule.fault.as_ref()?)))
    {
        if failed.len() == rules.len() {
            refused = Some(Fault::new(fault.reason, format!("rule {index}: {}", fault.message)));
        } else {
            let numbers: Vec<_> = failed.iter().map(|(index, _)| index.to_string()).collect();
            let message = format!(
                "Dropped Rule(s) {}: their requests get 500: rule {index}: {}",
                numbers.join(", "),
                fault.message
            );
            partial = Some(Fault::new(fault.reason, message));
        }
    }
    RouteRules { rules, refused, partial, unresolved }
}

fn numbered<R>(
    rules: &[R],
    mut derive: impl FnMut(&R) -> Result<RulePlan, Fault>,
) -> Result<Vec<RulePlan>, Fault> {
    let numbered = rules.iter().enumerate().map(|(index, rule)| {
        derive(rule).map_err(|fault| Fault::new(fault.reason, format!("rule {index}: {}", fault.message)))
    });
    numbered.collect()
}

/// What all rules of a route share.
struct Context<'a> {
    known: &'a Known,
    settings: &'a Settings,
    kind: Kind,
    namespace: &'a Name,
    /// The first reference that cannot be resolved.
    unresolved: Option<Fault>,
}

impl Context<'_> {
    fn http(&mut self, rule: &HttpRule) -> Result<RulePlan, Fault> {
        let mut matches = self.matches(&rule.matches, matches::http)?;
        if matches.is_empty() {
            matches.push(MatchPlan::default());
        }
        let mut plan = self.common(rule.name.as_ref(), matches, &rule.filters, &rule.backend_refs);
        match timeouts(rule.timeouts.as_ref()) {
            Ok((request, backend)) => (plan.request_timeout, plan.backend_timeout) = (request, backend),
            Err(fault) => plan.fail(fault),
        }
        match rule.retry.as_ref().map(|retry| self.retry(retry)).transpose() {
            Ok(retry) => plan.retry = retry,
            Err(fault) => plan.fail(fault),
        }
        if rule.session_persistence.is_some() {
            plan.fail(unsupported("sessionPersistence is not supported: remove it"));
        }
        Ok(plan)
    }

    fn grpc(&mut self, rule: &GrpcRule) -> Result<RulePlan, Fault> {
        let mut matches = self.matches(&rule.matches, matches::grpc)?;
        if matches.is_empty() {
            matches.push(MatchPlan { grpc: Some(GrpcMethodMatch::default()), ..MatchPlan::default() });
        }
        let mut plan = self.common(rule.name.as_ref(), matches, &rule.filters, &rule.backend_refs);
        if rule.session_persistence.is_some() {
            plan.fail(unsupported("sessionPersistence is not supported: remove it"));
        }
        Ok(plan)
    }

    /// The plans of the matches of a rule, if the data plane can carry out each of them.
    fn matches<S>(
        &self,
        specs: &[S],
        read: impl Fn(&S) -> Result<MatchPlan, Fault>,
    ) -> Result<Vec<MatchPlan>, Fault> {
        let mut plans = Vec::with_capacity(specs.len());
        for (number, spec) in specs.iter().enumerate() {
            let plan = read(spec)?;
            if let Err(problem) = (self.settings.match_check)(&plan) {
                return Err(unsupported(format!("match {number} cannot be carried out: {problem}")));
            }
            plans.push(plan);
        }
        Ok(plans)
    }

    fn common(
        &mut self,
        name: Option<&Name>,
        matches: Vec<MatchPlan>,
        filters: &[FilterSpec],
        backends: &[BackendRef],
    ) -> RulePlan {
        let is_prefix = matches.iter().all(|one| matches!(one.path, PathMatch::Prefix(_)));
        let mut plan = RulePlan {
            name: name.cloned(),
            matches,
            action: RuleAction::Fail,
            filters: Arc::default(),
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            fault: None,
        };
        let filters = Filters::of_rule(is_prefix).read(self, filters);
        let backends: Result<Vec<_>, Fault> =
            backends.iter().map(|backend| self.backend(backend, is_prefix)).collect();
        match (filters, backends) {
            (Ok(filters), Ok(backends)) => {
                let redirects = filters.iter().any(|filter| matches!(filter, FilterPlan::Redirect(_)));
                plan.filters = Arc::from(filters);
                plan.action = match redirects {
                    true if backends.is_empty() => RuleAction::Redirect,
                    true => {
                        let message = "a RequestRedirect filter and backendRefs exclude each other";
                        plan.fail(Fault::new("IncompatibleFilters", message));
                        return plan;
                    }
                    false => RuleAction::Forward(Arc::from(backends)),
                };
            }
            (Err(fault), _) | (_, Err(fault)) => plan.fail(fault),
        }
        plan
    }

    fn backend(&mut self, backend: &BackendRef, is_prefix: bool) -> Result<WeightedBackend, Fault> {
        let filters = Filters::of_backend(is_prefix).read(self, &backend.filters)?;
        let target = self.target(&backend.reference());
        Ok(WeightedBackend { weight: backend.weight.unwrap_or(1), target, filters: Arc::from(filters) })
    }

    /// The upstream of a reference. Why there is none is noted for the condition `ResolvedRefs`.
    fn target(&mut self, reference: &BackendObjectReference) -> BackendTarget {
        match backends::resolve(self.known, self.kind, self.namespace, reference) {
            Ok(key) if backends::upstream(self.known, &key).is_some() => BackendTarget::Upstream(key),
            // The condition of the policy says why. The reference itself is resolved.
            Ok(_) => BackendTarget::Invalid(Name::from("the BackendTLSPolicy of the Service is not valid")),
            Err(fault) => {
                let message = Name::from(fault.message.as_str());
                self.unresolved.get_or_insert(fault);
                BackendTarget::Invalid(message)
            }
        }
    }

    fn retry(&self, retry: &RetrySpec) -> Result<RetryPlan, Fault> {
        if !self.settings.experimental {
            let message =
                "retry is experimental: the operator enables it with `experimental` in `[gateway_api]`";
            return Err(unsupported(message));
        }
        if let Some(code) = retry.codes.iter().find(|code| !(400..600).contains(*code)) {
            return Err(unsupported(format!("retry.codes has {code}: use codes from 400 to 599")));
        }
        let backoff =
            retry.backoff.as_ref().map(|text| matches::duration("retry.backoff", text)).transpose()?;
        Ok(RetryPlan { codes: retry.codes.clone(), attempts: retry.attempts, backoff })
    }
}

impl RulePlan {
    /// Makes the rule respond 500. The first reason is kept.
    fn fail(&mut self, fault: Fault) {
        self.action = RuleAction::Fail;
        self.filters = Arc::default();
        self.fault.get_or_insert(fault);
    }
}

/// A value that the standard has and Postern has not.
fn unsupported(message: impl Into<String>) -> Fault {
    Fault::new("UnsupportedValue", message)
}

/// The limits of a whole request, and of one attempt.
type RuleTimeouts = (Option<Duration>, Option<Duration>);

fn timeouts(timeouts: Option<&Timeouts>) -> Result<RuleTimeouts, Fault> {
    let Some(timeouts) = timeouts else { return Ok((None, None)) };
    let read = |field, text: Option<&Name>| text.map(|text| duration(field, text)).transpose();
    let request = read("timeouts.request", timeouts.request.as_ref())?;
    let backend = read("timeouts.backendRequest", timeouts.backend_request.as_ref())?;
    if let (Some(request), Some(backend)) = (request, backend)
        && !request.is_zero()
        && backend > request
    {
        return Err(unsupported("timeouts.backendRequest is longer than timeouts.request: shorten it"));
    }
    Ok((request, backend))
}
