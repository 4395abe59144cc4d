//! Status of HTTPRoutes and GRPCRoutes.
//!
//! Owns: the conditions for each parent.
//! Does not own: why a parent does not take the route ([`crate::attach`]).
//! Flow: [`ParentOutcome`] + [`RouteRules`] → status.

use serde_json::json;

use super::{Condition, Entry, POLICY_APPLIED, entries};
use crate::attach::ParentOutcome;
use crate::fault::Fault;
use crate::names::{Kind, Name, NamespacedName};
use crate::objects::{Route, Seconds};
use crate::plan::StatusDocument;
use crate::rules::RouteRules;

/// Whether policies apply to the rules of a route at one parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyReach {
    /// A policy applies to each rule.
    All,
    /// At least one rule has no policy.
    Missing,
    /// This policy reaches a rule, and is not valid.
    Invalid(NamespacedName),
    /// This policy is valid, and does not fit a rule: why.
    Unfit(NamespacedName, String),
    /// The parent does not serve the route.
    NotServed,
}

/// The status of a route. Each outcome comes with what is known of its policies.
pub fn route(
    (kind, route): (Kind, &Route),
    controller: &Name,
    outcomes: &[(ParentOutcome, PolicyReach)],
    rules: &RouteRules,
    now: Seconds,
) -> Option<StatusDocument> {
    let list = outcomes.iter().map(|(outcome, reach)| {
        let fault = rules.refused.as_ref().or(outcome.fault.as_ref());
        let mut list = vec![
            Condition::of("Accepted", "Accepted", fault),
            Condition::of("ResolvedRefs", "ResolvedRefs", rules.unresolved.as_ref()),
        ];
        if let Some(Fault { reason, message }) = &rules.partial {
            list.push(Condition::new("PartiallyInvalid", true, reason, message.clone()));
        }
        list.extend(policy_applied(reach));
        Entry { reference: json!(outcome.reference), conditions: list }
    });
    let seen = route.seen_status();
    let list = list.collect();
    entries((kind, &route.meta, &seen), ("parents", "parentRef"), controller, list, now)
}

impl PolicyReach {
    /// The condition [`POLICY_APPLIED`]: its status, reason and message. `None`: it has none.
    pub fn condition(&self) -> Option<(bool, &'static str, String)> {
        policy_applied(self).map(|Condition { status, reason, message, .. }| (status, reason, message))
    }
}

pub(super) fn policy_applied(reach: &PolicyReach) -> Option<Condition> {
    match reach {
        PolicyReach::NotServed => None,
        PolicyReach::All => Some(Condition::new(POLICY_APPLIED, true, "Applied", "")),
        PolicyReach::Missing => {
            let message =
                "no AccessPolicy applies to some rules: target the route, its listener or its Gateway";
            Some(Condition::new(POLICY_APPLIED, false, "NoPolicy", message))
        }
        PolicyReach::Invalid(policy) => {
            let message = format!("AccessPolicy {policy} is not valid: its status says why");
            Some(Condition::new(POLICY_APPLIED, false, "InvalidPolicy", message))
        }
        PolicyReach::Unfit(policy, problem) => {
            let message = format!("AccessPolicy {policy} does not fit: {problem}");
            Some(Condition::new(POLICY_APPLIED, false, "InvalidPolicy", message))
        }
    }
}
