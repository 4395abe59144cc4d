//! Faults of the compiler: rules, listeners and upstreams that would not be carried out as they are
//! written, each at the object that causes it.

use std::collections::BTreeMap;

use cluster::RuleProblem;
use cluster::policy::field_of_body;
use config::{GatewayApiSettings, GatewayExposure};
use controller::names::{Kind, NamespacedName, ObjectKey};

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
        let part = (fault.listener.as_ref(), fault.host.as_ref());
        if !state.assumptions.has_certificate_of(&state.desired, &fault.socket, part) {
            findings.push(Finding::error(fault.problem.clone()).help(format!("listener {}", fault.name())));
        }
    }
    findings.extend(state.compiled.upstreams.iter().map(|fault| Finding::error(fault.to_string())));
    if matches!(settings.exposure, GatewayExposure::Host(_)) {
        shared_ports(state, objects, findings);
    }
}

/// Where a problem of rules lies, and what it is.
type Problem = (ObjectKey, Option<String>, String);

fn rules(state: &State, objects: &Objects, findings: &mut Vec<Finding>) {
    // A fault of a policy shows at each rule that it applies to.
    let mut problems: BTreeMap<Problem, Vec<String>> = BTreeMap::new();
    for fault in &state.compiled.rules {
        let Some(id) = &fault.id else { continue };
        let RuleProblem { policy, text } = &fault.problem;
        let in_policy = policy.as_ref().and_then(|policy| Some((policy, field_of_body(text)?)));
        let problem = match in_policy {
            Some((policy, (field, text))) => {
                let body = state.world.known().access_policies.get(policy);
                let is_override = body.is_some_and(|one| one.spec.overrides.is_some());
                let side = if is_override { "overrides" } else { "defaults" };
                let field = format!("spec.{side}.{field}");
                (policy.clone().of(Kind::AccessPolicy), Some(field), text.to_owned())
            }
            None => (id.route.clone(), Some(format!("spec.rules[{}]", id.rule)), fault.problem.to_string()),
        };
        problems.entry(problem).or_default().push(fault.rule.to_string());
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
