//! Status of Ingresses and of the Routes of OpenShift.
//!
//! Owns: the addresses in the status of an Ingress, and our entry in that of a Route.
//! Does not own: why something is not served ([`crate::ingress`]).
//! Flow: [`IngressOutcome`] → status.
//!
//! The status of an Ingress has no conditions. What is wrong with one is in
//! [`Changes::faults`](crate::plan::Changes::faults).

use serde_json::{Value, json};

use super::route::policy_applied;
use super::{Condition, PolicyReach, body, differs, shared_list, with};
use crate::fault::Fault;
use crate::known::{GatewayAddresses, is_ip};
use crate::names::{Kind, Name};
use crate::objects::{Ingress, OpenShiftRoute, Seconds, time_text};
use crate::plan::StatusDocument;

/// What became of an Ingress or Route that is ours.
#[derive(Clone, Debug, PartialEq)]
pub struct IngressOutcome {
    /// Whether a host of it is served.
    pub is_served: bool,
    /// Why nothing of it is served.
    pub refused: Option<Fault>,
    /// What else is wrong with it.
    pub faults: Vec<Fault>,
    /// Whether a policy applies.
    pub reach: PolicyReach,
}

impl IngressOutcome {
    /// What the status of an object of this kind has no room for.
    pub fn unsaid(&self, kind: Kind) -> Vec<Fault> {
        let refused = self.refused.iter().filter(|_| kind == Kind::Ingress);
        refused.chain(&self.faults).cloned().collect()
    }
}

/// The status of an Ingress of ours: the addresses of the Gateway that serves it.
pub fn ingress(
    ingress: &Ingress,
    outcome: &IngressOutcome,
    addresses: Option<&GatewayAddresses>,
) -> Option<StatusDocument> {
    let assigned = addresses.filter(|_| outcome.is_served).map(|addresses| &addresses.assigned[..]);
    let new: Vec<Value> = assigned
        .unwrap_or_default()
        .iter()
        .map(|address| if is_ip(address) { json!({ "ip": address }) } else { json!({ "hostname": address }) })
        .collect();
    let seen = ingress.seen_status();
    let former = seen["loadBalancer"]["ingress"].as_array().map(|list| &list[..]).unwrap_or_default();
    if former == new {
        return None;
    }
    let status = if new.is_empty() { json!({}) } else { json!({ "ingress": new }) };
    Some(body(Kind::Ingress, &ingress.meta, &json!({ "loadBalancer": status })))
}

/// The status of a Route. The list of entries is atomic, so those of other routers are repeated.
/// `outcome` is `None` for a Route that is not ours: then our entry goes.
pub fn openshift_route(
    route: &OpenShiftRoute,
    router: &Name,
    outcome: Option<&IngressOutcome>,
    now: Seconds,
) -> Option<StatusDocument> {
    let seen = route.seen_status();
    let former = seen["ingress"].as_array().map(|list| &list[..]).unwrap_or_default();
    let (ours, others): (Vec<&Value>, Vec<&Value>) =
        former.iter().partition(|entry| entry["routerName"] == router.as_str());
    let new = outcome.map(|outcome| {
        let seen = ours.first().map_or(&Value::Null, |entry| &entry["conditions"]);
        let mut list = vec![Condition::of("Admitted", "", outcome.refused.as_ref())];
        list.extend(policy_applied(&outcome.reach));
        json!({
            "host": route.spec.host,
            "routerName": router,
            "wildcardPolicy": route.spec.wildcard_policy.as_deref().filter(|one| !one.is_empty()).unwrap_or("None"),
            "conditions": conditions(seen, &list, now),
        })
    });
    let is_same = match (&new, &ours[..]) {
        (None, []) => true,
        (Some(new), [one]) => !differs(new, one),
        _ => false,
    };
    if is_same {
        return None;
    }
    Some(shared_list((Kind::OpenShiftRoute, &route.meta, "ingress"), new, &others))
}

/// Conditions of a Route. They have no generation, and no empty texts: the API server of OpenShift
/// drops those.
fn conditions(seen: &Value, conditions: &[Condition], now: Seconds) -> Value {
    let one = |condition: &Condition| {
        let status = if condition.status { "True" } else { "False" };
        let former = with(seen, "type", condition.of_type).filter(|former| former["status"] == status);
        let time = former.and_then(|former| former["lastTransitionTime"].as_str());
        let mut entry = json!({
            "type": condition.of_type,
            "status": status,
            "lastTransitionTime": time.map_or_else(|| time_text(now), str::to_owned),
        });
        for (field, text) in [("reason", condition.reason), ("message", &*condition.message)] {
            if !text.is_empty() {
                entry[field] = Value::from(text);
            }
        }
        entry
    };
    Value::Array(conditions.iter().map(one).collect())
}
