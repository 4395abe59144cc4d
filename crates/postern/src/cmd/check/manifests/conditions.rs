//! Conditions: what the cluster would be told about each object, and which of it is a fault.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use controller::conditions::{IngressOutcome, NOT_CARRIED_OUT, POLICY_APPLIED};
use controller::names::{Kind, ObjectKey};
use serde::Serialize;
use serde_json::Value;

use super::finding::{Finding, Importance, Place};
use super::objects::Objects;
use super::state::State;

/// An object with its conditions.
#[derive(Debug, Serialize)]
pub(super) struct ObjectStatus {
    #[serde(skip)]
    pub(super) key: ObjectKey,
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    #[serde(flatten)]
    pub(super) place: Option<Place>,
    pub(super) parts: Vec<StatusPart>,
}

/// Conditions of an object as a whole, or of one of its relations or listeners.
#[derive(Debug, Serialize)]
pub(super) struct StatusPart {
    /// What the conditions are about; absent: the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) about: Option<String>,
    pub(super) conditions: Vec<Condition>,
    /// Of a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attached_routes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) of_type: String,
    pub(super) status: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether the condition says that all is well.
    pub(super) is_good: bool,
}

/// The conditions of every object of the manifests that has any, and what follows from them.
pub(super) fn collect(state: &State, objects: &Objects, findings: &mut Vec<Finding>) -> Vec<ObjectStatus> {
    let documents: BTreeMap<&ObjectKey, &str> =
        state.statuses.iter().map(|document| (&document.object, &*document.body)).collect();
    let mut list = Vec::new();
    for key in objects.written.keys().filter(|key| has_status(key.kind)) {
        let status = documents.get(key).and_then(|body| serde_json::from_str::<Value>(body).ok());
        let outcome = state.world.ingress_outcome(key);
        let parts = match (key.kind, &outcome) {
            // The status of an Ingress has no conditions.
            (Kind::Ingress, outcome) => outcome.iter().map(|outcome| of_ingress(outcome)).collect(),
            _ => status.map(|document| parts(key, &document["status"])).unwrap_or_default(),
        };
        let place = objects.place(key).cloned();
        if parts.is_empty() {
            let finding = Finding::note(no_status(key.kind)).of(key);
            findings.push(finding.at(place.as_ref()));
        }
        for (part, condition) in
            parts.iter().flat_map(|part| part.conditions.iter().map(move |one| (part, one)))
        {
            findings.extend(judge(state, objects, (key, part), condition));
        }
        for fault in outcome.iter().flat_map(|outcome| &outcome.faults) {
            if !fault.message.contains(NOT_CARRIED_OUT) {
                findings.push(Finding::error(fault.message.clone()).of(key).at(place.as_ref()));
            }
        }
        let (kind, at) = (key.kind.name(), &key.at);
        list.push(ObjectStatus {
            key: key.clone(),
            kind,
            namespace: at.namespace.to_string(),
            name: at.name.to_string(),
            place,
            parts,
        });
    }
    list
}

fn has_status(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::GatewayClass
            | Kind::Gateway
            | Kind::ListenerSet
            | Kind::HttpRoute
            | Kind::GrpcRoute
            | Kind::BackendTlsPolicy
            | Kind::AccessPolicy
            | Kind::Ingress
            | Kind::OpenShiftRoute
    )
}

fn no_status(kind: Kind) -> &'static str {
    match kind {
        Kind::GatewayClass | Kind::Gateway => "it is of another controller, so Postern says nothing about it",
        Kind::BackendTlsPolicy => "no route of a Gateway of Postern uses its targets",
        Kind::Ingress => {
            "its class is not one of Postern in the files, so Postern does not serve it: set \
             spec.ingressClassName"
        }
        Kind::OpenShiftRoute => {
            "the Gateway of `gateway_api.ingress_gateway` takes no Routes of its namespace, so Postern does \
             not serve it"
        }
        _ => "none of its parents or targets belongs to Postern, or is in the files",
    }
}

fn parts(key: &ObjectKey, status: &Value) -> Vec<StatusPart> {
    let list = |name: &str| status[name].as_array().into_iter().flatten();
    let part = |about: Option<String>, value: &Value| StatusPart {
        about,
        conditions: value["conditions"].as_array().into_iter().flatten().filter_map(condition).collect(),
        attached_routes: value["attachedRoutes"].as_u64(),
    };
    let mut parts = Vec::new();
    if status["conditions"].is_array() {
        parts.push(part(None, status));
    }
    for listener in list("listeners") {
        parts.push(part(Some(format!("listener {}", text(&listener["name"]))), listener));
    }
    for entry in list("ingress") {
        parts.push(part(Some(format!("host {}", text(&entry["host"]))), entry));
    }
    for (name, reference) in [("parents", "parentRef"), ("ancestors", "ancestorRef")] {
        for entry in list(name) {
            parts.push(part(Some(reference_name(key, &entry[reference])), entry));
        }
    }
    parts
}

/// What an Ingress would say if its status had conditions.
fn of_ingress(outcome: &IngressOutcome) -> StatusPart {
    let (reason, message) = match &outcome.refused {
        Some(fault) if !outcome.is_served => (fault.reason, fault.message.clone()),
        _ => ("Served", String::new()),
    };
    let mut conditions = vec![Condition {
        of_type: "Served".to_owned(),
        status: outcome.is_served,
        reason: reason.to_owned(),
        message,
        is_good: outcome.is_served,
    }];
    conditions.extend(outcome.reach.condition().map(|(status, reason, message)| Condition {
        of_type: POLICY_APPLIED.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
        is_good: status,
    }));
    StatusPart { about: None, conditions, attached_routes: None }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What a status refers to: `Gateway infra/shop, section https`.
fn reference_name(key: &ObjectKey, reference: &Value) -> String {
    let kind = reference["kind"].as_str().unwrap_or("Gateway");
    let namespace = reference["namespace"].as_str().unwrap_or(&key.at.namespace);
    let mut name = format!("{kind} {namespace}/{}", text(&reference["name"]));
    if let Some(section) = reference["sectionName"].as_str() {
        name.push_str(", section ");
        name.push_str(section);
    }
    if let Some(port) = reference["port"].as_u64() {
        // Writing to a string cannot fail.
        let _ = write!(name, ", port {port}");
    }
    name
}

fn condition(value: &Value) -> Option<Condition> {
    let of_type = text(&value["type"]).to_owned();
    let status = value["status"] == "True";
    // Whether the definitions in the cluster are recent is not in the files.
    if of_type == "SupportedVersion" {
        return None;
    }
    let bad_if_true =
        ["Conflicted", "PartiallyInvalid", "OverlappingTLSConfig", "InsecureFrontendValidationMode"];
    let is_good = status != bad_if_true.contains(&&*of_type);
    Some(Condition {
        status,
        reason: text(&value["reason"]).to_owned(),
        message: text(&value["message"]).to_owned(),
        is_good,
        of_type,
    })
}

/// What a condition means for whoever wrote the object.
fn judge(
    state: &State,
    objects: &Objects,
    (key, part): (&ObjectKey, &StatusPart),
    condition: &Condition,
) -> Option<Finding> {
    if condition.is_good {
        return None;
    }
    let Condition { of_type, reason, message, .. } = condition;
    // The fault itself was noted, with its field.
    let is_own =
        message.starts_with("not used, because of") || key.kind == Kind::AccessPolicy && reason == "Invalid";
    if is_own && objects.faulty.contains(key) {
        return None;
    }
    // The fault of the rule was noted, with its field.
    if message.contains(NOT_CARRIED_OUT) || key.kind == Kind::AccessPolicy && of_type == "PartiallyInvalid" {
        return None;
    }
    // A part that is not accepted is not programmed for the same reason.
    let accepted = part.conditions.iter().find(|one| one.of_type == "Accepted" && !one.is_good);
    if of_type == "Programmed" && accepted.is_some_and(|accepted| accepted.message == *message) {
        return None;
    }
    let is_missing = reason == "TargetNotFound" && message.ends_with("does not exist");
    let mut severity = match &**of_type {
        POLICY_APPLIED | "OverlappingTLSConfig" | "InsecureFrontendValidationMode" => Importance::Warning,
        _ if is_missing => Importance::Note,
        _ => Importance::Error,
    };
    let mut help = None;
    if of_type == POLICY_APPLIED && reason == "NoPolicy" {
        let of_cluster = part.about.as_ref().is_some_and(|about| {
            state.assumptions.keys.iter().any(|key| {
                about
                    .strip_prefix(&key.to_string())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
            })
        });
        // An Ingress and a Route name no Gateway.
        let of_cluster = of_cluster || key.kind.is_ingress() && state.is_ingress_gateway_assumed;
        if of_cluster {
            severity = Importance::Note;
            help = Some("a policy of the Gateway, which is not in the files, may apply".to_owned());
        }
    }
    if is_missing {
        help = Some("it may be in the cluster; add its file to check both together".to_owned());
    }
    if reason == "Conflicted" && of_type == "Accepted" {
        help = Some("of two that were not created yet, the first by name counts as the older".to_owned());
    }
    let name = of_type.rsplit('/').next().unwrap_or(of_type);
    let about = part.about.as_ref().map(|about| format!("{about}: ")).unwrap_or_default();
    let colon = if message.is_empty() { "" } else { ": " };
    let reason = if reason.is_empty() { String::new() } else { format!(", {reason}") };
    let finding =
        Finding::new(severity, format!("{about}{name} is {}{reason}{colon}{message}", said(condition)));
    let listener = part.about.as_ref().and_then(|about| about.strip_prefix("listener "));
    let place = listener.and_then(|name| objects.place_of_listener(key, name));
    Some(Finding { help, ..finding.of(key).at(place.as_ref().or(objects.place(key))) })
}

fn said(condition: &Condition) -> &'static str {
    if condition.status { "True" } else { "False" }
}
