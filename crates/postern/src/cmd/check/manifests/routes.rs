//! Routes that follow from the manifests: one row for each match of a rule at each listener.

use std::fmt::Write as _;

use auth::policy::rule::Policy;
use cluster::rule_name;
use config::raw;
use controller::names::{Kind, ObjectKey};
use controller::objects::AccessPolicy;
use controller::objects::reference::PolicyTarget;
use controller::plan::{
    Attachment, BackendTarget, MatchPlan, PathMatch, PolicyOutcome, PolicyPlan, RoutePlan, RuleAction,
};
use serde::Serialize;
use serde_json::Map;

use super::state::State;
use crate::cmd::check::overview::who_may;

/// Who may pass a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Access {
    /// Nobody: no policy applies, or it is not valid.
    Closed,
    /// Those that the policy permits.
    Protected,
    /// Everybody.
    Public,
}

/// A match of a rule at a listener.
#[derive(Debug, Serialize)]
pub(super) struct RouteRow {
    pub(super) rule: String,
    pub(super) listener: String,
    /// Empty: every host of the listener.
    pub(super) hosts: Vec<String>,
    pub(super) requests: Vec<String>,
    pub(super) access: Access,
    /// Which policy applies, and where it comes from.
    pub(super) policy: String,
    pub(super) who_may: Vec<String>,
    pub(super) backends: Vec<String>,
}

/// All routes, in the order of their objects.
pub(super) fn collect(state: &State) -> Vec<RouteRow> {
    let plans = state.desired.plans.values();
    let each = plans.flat_map(|plan| plan.attachments.iter().map(move |attachment| (plan, attachment)));
    each.map(|(plan, attachment)| row(state, plan, attachment)).collect()
}

fn row(state: &State, plan: &RoutePlan, attachment: &Attachment) -> RouteRow {
    let route = state.compiler.route_at(&plan.id, attachment);
    let route = route.map(|number| state.compiled.routing.route(number));
    let access = match route {
        Some(route) if route.is_closed => Access::Closed,
        Some(route) if matches!(route.policy, Policy::Public) => Access::Public,
        Some(_) => Access::Protected,
        None => Access::Closed,
    };
    let mut who = match (route, access) {
        (Some(route), Access::Protected | Access::Public) => {
            let (one, several) = reviews(plan, &attachment.policy);
            who_may(&route.policy, (one.as_ref(), several.as_ref()))
        }
        _ => vec!["nobody".to_owned()],
    };
    if route.is_some_and(|route| route.login && !route.is_closed) {
        who.push("also with a session".to_owned());
    }
    RouteRow {
        rule: rule_name(&plan.id),
        listener: listener_name(attachment),
        hosts: attachment.hosts.iter().flat_map(|hosts| hosts.iter()).map(ToString::to_string).collect(),
        requests: requests(&plan.matches),
        access,
        policy: policy_source(state, plan, attachment, access),
        who_may: who,
        backends: backends(plan),
    }
}

/// `Gateway infra/shop, listener https, port 443`.
pub(super) fn listener_name(attachment: &Attachment) -> String {
    let Attachment { listener, socket, .. } = attachment;
    format!("{}, listener {}, port {}", listener.parent, listener.section, socket.port)
}

/// The access reviews of a policy, with the placeholders of the route filled in.
fn reviews(
    plan: &RoutePlan,
    outcome: &PolicyOutcome,
) -> (Option<raw::AccessReview>, Option<raw::AccessReviews>) {
    let PolicyOutcome::Applied(policy) = outcome else { return (None, None) };
    let mut placed = Map::new();
    if cluster::policy::place(&policy.body, plan, &mut placed).is_err() {
        return (None, None);
    }
    let mut take = |name: &str| placed.remove(name).unwrap_or_default();
    (
        serde_json::from_value(take("access_review")).ok().flatten(),
        serde_json::from_value(take("access_reviews")).ok().flatten(),
    )
}

fn requests(matches: &MatchPlan) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(match (&matches.grpc, &matches.path) {
        (Some(call), _) => {
            let any = |name: &Option<controller::names::Name>| name.as_deref().unwrap_or("*").to_owned();
            format!("/{}/{}", any(&call.service), any(&call.method))
        }
        (None, PathMatch::Exact(path)) => format!("{path} exactly"),
        (None, PathMatch::Prefix(path)) if &**path == "/" => "any path".to_owned(),
        (None, PathMatch::Prefix(path)) => format!("{path} and below"),
    });
    lines.extend(matches.method.as_ref().map(ToString::to_string));
    for (kind, conditions) in [("header", &matches.headers), ("parameter", &matches.query)] {
        lines.extend(conditions.iter().map(|one| format!("{kind} {} of a given value", one.name)));
    }
    lines
}

/// Which policy applies to a rule at a listener, and where it comes from.
pub(super) fn policy_source(
    state: &State,
    plan: &RoutePlan,
    attachment: &Attachment,
    access: Access,
) -> String {
    let (name, side, targets) = match &attachment.policy {
        PolicyOutcome::None if access == Access::Public => {
            return "none; gateway_api.default_policy is public".into();
        }
        PolicyOutcome::None => return "none".into(),
        PolicyOutcome::Exempt => {
            return "none is needed: it leads to HTTPS, or says that there is nothing".into();
        }
        PolicyOutcome::Invalid(policy) => return format!("AccessPolicy {policy}, which is not valid"),
        PolicyOutcome::Applied(PolicyPlan { policy: at, body, .. }) => {
            let policy = state.world.known().access_policies.get(at);
            let is = |one: &Option<std::sync::Arc<serde_json::Value>>| {
                one.as_ref().is_some_and(|one| std::sync::Arc::ptr_eq(one, body))
            };
            let overrides = policy.is_some_and(|policy| is(&policy.spec.overrides));
            let side = if overrides { "overrides" } else { "defaults" };
            (at, side, policy.map(|policy| targets(policy, plan, attachment)).unwrap_or_default())
        }
    };
    let mut text = format!("{side} of AccessPolicy {name}");
    if !targets.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(text, " for {}", targets.join(" and "));
    }
    text
}

/// The targets of a policy that a rule at a listener belongs to.
fn targets(policy: &AccessPolicy, plan: &RoutePlan, attachment: &Attachment) -> Vec<String> {
    let gateway = attachment.socket.gateway.clone().of(Kind::Gateway);
    let is_meant = |target: &&PolicyTarget| {
        let Some(key) = target.target(&policy.meta.at.namespace) else { return false };
        let section = target.section_name.as_ref();
        let has = |object: &ObjectKey, own: Option<&controller::names::Name>| {
            key == *object && (section.is_none() || section == own)
        };
        has(&plan.id.route, plan.rule_name.as_ref())
            || has(&attachment.listener.parent, Some(&attachment.listener.section))
            || has(&gateway, None)
    };
    let name = |target: &PolicyTarget| {
        let section =
            target.section_name.as_ref().map(|name| format!(", section {name}")).unwrap_or_default();
        format!("{} {}/{}{section}", target.kind, policy.meta.at.namespace, target.name)
    };
    policy.spec.target_refs.iter().filter(is_meant).map(name).collect()
}

fn backends(plan: &RoutePlan) -> Vec<String> {
    let backends = match &plan.action {
        RuleAction::Redirect => return vec!["redirect".into()],
        RuleAction::Fail => return vec!["status 500".into()],
        RuleAction::NotFound => return vec!["status 404".into()],
        RuleAction::Forward(backends) if backends.is_empty() => return vec!["status 500".into()],
        RuleAction::Forward(backends) => backends,
    };
    let several = backends.len() > 1;
    let entry = |backend: &controller::plan::WeightedBackend| {
        let to = match &backend.target {
            BackendTarget::Upstream(key) => format!("Service {}:{}", key.service, key.port),
            BackendTarget::Invalid(_) => "status 500".to_owned(),
        };
        if several { format!("{to}, weight {}", backend.weight) } else { to }
    };
    backends.iter().map(entry).collect()
}
