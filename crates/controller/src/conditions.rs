//! Status documents of objects.
//!
//! Owns: the conditions of every kind with their reasons, the addresses of Ingresses, and whether a
//! document differs from the status that the object has. Times of conditions are kept while their
//! `status` is the same. Entries of other controllers stay as they are.
//! Does not own: writing them, and when they are derived ([`crate::world`]).
//! Flow: `derived state + seen status + now → StatusDocument`, if something differs.

mod gateway;
mod ingress;
mod policy;
mod route;

use serde_json::{Value, json};

pub use self::gateway::{
    ListenerCounts, ListenerFacts, ListenerFaults, class, depends_on_gateway, gateway, listener_set,
};
pub use self::ingress::{IngressOutcome, ingress, openshift_route};
pub use self::policy::{ServiceGateways, access_policy, backend_tls_policy};
pub use self::route::{PolicyReach, route};
use crate::fault::Fault;
use crate::names::{Kind, Name};
use crate::objects::{Metadata, Seconds, time_text};
use crate::plan::StatusDocument;

/// The condition of a route that says whether a policy applies to all of its rules.
pub const POLICY_APPLIED: &str = "access.postern.dev/PolicyApplied";

/// What the message of a condition says of a rule that the data plane does not carry out, between the
/// rule and the reason.
pub const NOT_CARRIED_OUT: &str = " is not carried out as it is written: ";

/// Every type of condition that is written here. Others in the same list belong to somebody else.
const TYPES: [&str; 10] = [
    "Accepted",
    "Admitted",
    "Programmed",
    "ResolvedRefs",
    "Conflicted",
    "PartiallyInvalid",
    "OverlappingTLSConfig",
    "InsecureFrontendValidationMode",
    "SupportedVersion",
    POLICY_APPLIED,
];

/// Longest message of a condition, in bytes (`metav1.Condition.message`).
const LONGEST_MESSAGE: usize = 32_768;

/// One condition, without its time.
#[derive(Clone, Debug, PartialEq)]
struct Condition {
    of_type: &'static str,
    status: bool,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn new(of_type: &'static str, status: bool, reason: &'static str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > LONGEST_MESSAGE {
            let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or_default());
        }
        Self { of_type, status, reason, message }
    }

    /// True with the reason `reason`, or what the fault says.
    fn of(of_type: &'static str, reason: &'static str, fault: Option<&Fault>) -> Self {
        match fault {
            None => Self::new(of_type, true, reason, ""),
            Some(fault) => Self::new(of_type, false, fault.reason, fault.message.clone()),
        }
    }
}

/// Conditions as JSON. `seen` is the list that the object has; a condition whose `status` is the
/// same keeps its time.
fn conditions(seen: &Value, generation: i64, conditions: &[Condition], now: Seconds) -> Value {
    let one = |condition: &Condition| {
        let status = if condition.status { "True" } else { "False" };
        let former = with(seen, "type", condition.of_type);
        let time = former
            .filter(|former| former["status"] == status)
            .and_then(|former| former["lastTransitionTime"].as_str())
            .map_or_else(|| time_text(now), str::to_owned);
        json!({
            "type": condition.of_type,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": generation,
            "lastTransitionTime": time,
        })
    };
    Value::Array(conditions.iter().map(one).collect())
}

/// The element of a list whose `field` is `value`.
fn with<'a>(list: &'a Value, field: &str, value: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|element| element[field] == value)
}

/// Whether `new` says something that `seen` does not. Fields and conditions that `new` does not know
/// belong to others.
fn differs(new: &Value, seen: &Value) -> bool {
    match (new, seen) {
        (Value::Object(new), Value::Object(_)) => {
            new.iter().any(|(field, value)| differs(value, &seen[field.as_str()]))
        }
        (Value::Array(elements), Value::Array(former)) => {
            let all = |field: &str| elements.iter().chain(former).all(|element| element[field].is_string());
            let key = [("type", "lastTransitionTime"), ("name", "name")]
                .into_iter()
                .find(|(key, mark)| all(key) && all(mark) && elements.len() + former.len() > 0)
                .map(|(key, _)| key);
            let Some(key) = key else {
                return elements.len() != former.len()
                    || elements.iter().zip(former).any(|(new, seen)| differs(new, seen));
            };
            let is_new = elements.iter().any(|element| {
                let name = element[key].as_str().unwrap_or_default();
                with(seen, key, name).is_none_or(|former| differs(element, former))
            });
            let is_ours = |element: &Value| {
                let is_condition = !element["lastTransitionTime"].is_null();
                !is_condition || TYPES.contains(&element[key].as_str().unwrap_or_default())
            };
            let is_gone = former
                .iter()
                .filter(|element| is_ours(element))
                .any(|element| with(new, key, element[key].as_str().unwrap_or_default()).is_none());
            is_new || is_gone
        }
        _ => new != seen,
    }
}

/// The document of an object, if its status differs from the one that it has.
fn document(kind: Kind, meta: &Metadata, seen: &Value, status: &Value) -> Option<StatusDocument> {
    differs(status, seen).then(|| body(kind, meta, status))
}

/// The document of an object whose status is a list to which several controllers add entries. The list
/// is written as a whole, so entries of others are repeated. They are as they were last seen: what
/// another controller has changed since must not be undone, so the document is for this version of
/// the object only.
fn shared_list(
    (kind, meta, list): (Kind, &Metadata, &str),
    ours: impl IntoIterator<Item = Value>,
    others: &[&Value],
) -> StatusDocument {
    let version = meta.version.as_deref().filter(|_| !others.is_empty());
    let all: Vec<Value> = ours.into_iter().chain(others.iter().copied().cloned()).collect();
    versioned_body((kind, meta), version, &json!({ list: all }))
}

fn body(kind: Kind, meta: &Metadata, status: &Value) -> StatusDocument {
    versioned_body((kind, meta), None, status)
}

fn versioned_body((kind, meta): (Kind, &Metadata), version: Option<&str>, status: &Value) -> StatusDocument {
    let mut metadata = json!({ "name": meta.at.name });
    if !meta.at.namespace.is_empty() {
        metadata["namespace"] = json!(meta.at.namespace);
    }
    if let Some(version) = version {
        metadata["resourceVersion"] = json!(version);
    }
    let body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.name(),
        "metadata": metadata,
        "status": status,
    });
    StatusDocument { object: meta.at.clone().of(kind), body: body.to_string().into_boxed_str() }
}

/// An entry of a list that several controllers write: the reference that it is about, and its
/// conditions.
struct Entry {
    reference: Value,
    conditions: Vec<Condition>,
}

/// Most entries of the status of a policy (`maxItems` of `ancestors`).
pub const MOST_ANCESTORS: usize = 16;

/// Most entries of a status (`maxItems` of `parents` is 32).
fn most_entries(list: &str) -> usize {
    if list == "ancestors" { MOST_ANCESTORS } else { 32 }
}

/// The document of an object whose status is a list of entries by controller: `parents` of routes or
/// `ancestors` of policies.
fn entries(
    (kind, meta, seen): (Kind, &Metadata, &Value),
    (list, reference): (&str, &str),
    controller: &Name,
    entries: Vec<Entry>,
    now: Seconds,
) -> Option<StatusDocument> {
    let former = seen[list].as_array().map(|list| &list[..]).unwrap_or_default();
    let (ours, others): (Vec<&Value>, Vec<&Value>) =
        former.iter().partition(|entry| entry["controllerName"] == controller.as_str());
    let room = most_entries(list).saturating_sub(others.len());
    let new = entries.into_iter().take(room).map(|entry| {
        let seen = ours.iter().find(|former| former[reference] == entry.reference);
        let seen = seen.map_or(&Value::Null, |former| &former["conditions"]);
        json!({
            reference: entry.reference,
            "controllerName": controller,
            "conditions": conditions(seen, meta.generation, &entry.conditions, now),
        })
    });
    let new: Vec<Value> = new.collect();
    let is_same = new.len() == ours.len() && !new.iter().zip(&ours).any(|(new, seen)| differs(new, seen));
    if is_same {
        return None;
    }
    Some(shared_list((kind, meta, list), new, &others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(status: bool) -> [Condition; 1] {
        [Condition::new("Accepted", status, "Accepted", "")]
    }

    #[test]
    fn a_time_is_kept_until_the_status_changes() {
        let first = conditions(&Value::Null, 1, &one(true), 10);
        assert_eq!(first[0]["lastTransitionTime"], "1970-01-01T00:00:10Z");
        let second = conditions(&first, 2, &one(true), 20);
        assert_eq!(second[0]["lastTransitionTime"], "1970-01-01T00:00:10Z");
        assert_eq!(second[0]["observedGeneration"], 2);
        let third = conditions(&second, 2, &one(false), 30);
        assert_eq!(third[0]["lastTransitionTime"], "1970-01-01T00:00:30Z");
    }

    #[test]
    fn conditions_of_others_are_no_difference_and_old_ones_of_ours_are() {
        let ours = conditions(&Value::Null, 1, &one(true), 10);
        let seen = |of_type: &str| {
            let mut list = ours.as_array().unwrap().clone();
            list.push(json!({ "type": of_type, "lastTransitionTime": "1970-01-01T00:00:10Z" }));
            json!({ "conditions": list })
        };
        let new = json!({ "conditions": ours });
        assert!(!differs(&new, &new));
        assert!(!differs(&new, &seen("example.com/Other")));
        assert!(differs(&new, &seen("PartiallyInvalid")));
        assert!(differs(&new, &json!({ "conditions": [] })));
        assert!(differs(&new, &Value::Null));
    }
}
