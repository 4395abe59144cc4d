//! Faults of the compiler: rules, listeners and upstreams that would not be carried out as they are
//! written, each at the object that causes it.

use std::collections::{BTreeMap, HashMap};

use cluster::rule_name;
use config::{GatewayApiSettings, GatewayExposure};
use controller::names::{Kind, NamespacedName, ObjectKey};
use controller::plan::PolicyOutcome;

use super::finding::{Finding, Importance};
use super::objects::Objects;
use super::state::State;

/// All faults.
pub(super) fn collect(
    state: &State,
    objects: &Objects,
    settings: &GatewayApiSettings,
    findings: &mut Vec<Finding>,
) {
    rules(state, objects, findings);
    for fault in &state.compiled.sockets {
        if !is_assumed_certificate(state, &fault.listener) {
            findings.push(Finding::error(fault.problem.clone()).help(format!("listener {}", fault.listener)));
        }
    }
    findings.extend(state.compiled.upstreams.iter().map(|problem| Finding::error(problem.clone())));
    if matches!(settings.exposure, GatewayExposure::Host(_)) {
        shared_ports(state, objects, findings);
    }
}

/// Where a problem of rules lies, and what it is.
type Problem = (ObjectKey, Option<String>, String);

fn rules(state: &State, objects: &Objects, findings: &mut Vec<Finding>) {
    // A fault of a policy shows at each rule that it applies to.
    let mut problems: BTreeMap<Problem, Vec<String>> = BTreeMap::new();
    let plans: HashMap<String, _> =
        state.desired.plans.values().map(|plan| (rule_name(&plan.id), plan)).collect();
    for fault in &state.compiled.rules {
        let Some(plan) = plans.get(&fault.rule) else { continue };
        let policies = plan.attachments.iter().filter_map(|one| match &one.policy {
            PolicyOutcome::Applied(policy) => Some(policy),
            _ => None,
        });
        let mut policies: Vec<&NamespacedName> = policies.map(|policy| &policy.policy).collect();
        policies.dedup();
        let problem = match (&policies[..], in_policy(&fault.problem)) {
            ([policy], Some((field, text))) => {
                let body = state.world.known().access_policies.get(*policy);
                let side = if body.is_some_and(|one| one.spec.overrides.is_some()) {
                    "overrides"
                } else {
                    "defaults"
                };
                (
                    (*policy).clone().of(Kind::AccessPolicy),
                    Some(format!("spec.{side}.{field}")),
                    text.to_owned(),
                )
            }
            _ => {
                let route = plan.id.route.clone();
                (route, Some(format!("spec.rules[{}]", plan.id.rule)), fault.problem.clone())
            }
        };
        problems.entry(problem).or_default().push(fault.rule.clone());
    }
    for ((key, field, problem), rules) in problems {
        let place = field.as_ref().and_then(|field| objects.place_of(&key, field));
        let place = place.as_ref().or(objects.place(&key));
        let (message, help) = match problem.split_once("; ") {
            Some((message, help)) => (message.to_owned(), Some(help.to_owned())),
            None => (problem, None),
        };
        let message = match &rules[..] {
            _ if key.kind != Kind::AccessPolicy => message,
            [only] => format!("{message} (for {only})"),
            [first, others @ ..] => format!("{message} (for {first}, and {} more)", others.len()),
            [] => message,
        };
        let finding = Finding::error(message).of(&key).at(place);
        findings.push(Finding { field, help, ..finding });
    }
}

/// The field of a policy that a problem of a raw route is about, and the problem.
fn in_policy(problem: &str) -> Option<(&str, &str)> {
    let (path, text) = problem.split_once(": ")?;
    let field = path.strip_prefix("policy.").unwrap_or(path);
    let first = field.split(['.', '[']).next()?;
    let known = cluster::crd::body_schema()["properties"].get(first).is_some();
    (known && !path.contains(' ')).then_some((field, text))
}

/// Whether a listener has no certificate because its Secret is not in the files.
fn is_assumed_certificate(state: &State, listener: &str) -> bool {
    let assumed = |at: &NamespacedName| state.assumptions.keys.contains(&at.clone().of(Kind::Secret));
    state.desired.gateways.values().flat_map(|plan| &plan.sockets).any(|socket| {
        let is_socket = listener == format!("{}:{}", socket.id.gateway, socket.id.port);
        socket.listeners.iter().any(|one| {
            let is_meant = is_socket || listener == format!("{}/{}", one.id.parent.at, one.id.section);
            let certificates = one.tls.iter().flat_map(|tls| &tls.certificates);
            is_meant && certificates.into_iter().any(|pair| assumed(&pair.secret))
        })
    })
}

/// Without Services, ports of Gateways are ports of the machine.
fn shared_ports(state: &State, objects: &Objects, findings: &mut Vec<Finding>) {
    let mut by_port: BTreeMap<u16, Vec<&NamespacedName>> = BTreeMap::new();
    for plan in state.desired.gateways.values() {
        for socket in &plan.sockets {
            by_port.entry(socket.id.port).or_default().push(&plan.gateway);
        }
    }
    for (port, gateways) in by_port {
        let is_written =
            |gateway: &&&NamespacedName| objects.place(&(**gateway).clone().of(Kind::Gateway)).is_some();
        let written: Vec<_> = gateways.iter().filter(is_written).collect();
        if let [first, second, ..] = written[..] {
            let key = (*second).clone().of(Kind::Gateway);
            let message = format!("Gateway {first} has port {port} too, and only one of them can be served");
            let finding = Finding::new(Importance::Warning, message).of(&key).at(objects.place(&key));
            findings.push(finding.help("set `gateway_api.service`, or use another port"));
        }
    }
}
