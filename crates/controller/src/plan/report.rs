//! What the data plane reports about the parts of the desired state that it took over.
//!
//! Owns: the types of faults that only the data plane finds.
//! Does not own: which condition tells them ([`crate::conditions`]).
//! Flow: the data plane → [`DataPlaneReport`] → [`crate::world::Event::Reported`].

use super::listener::{ListenerId, SocketId};
use super::route::PlanId;
use super::upstream::UpstreamKey;
use crate::names::NamespacedName;

/// Faults that the data plane found in parts of the state. A part that the world derives anew has none
/// until the next report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataPlaneReport {
    /// Whether all rules and Gateways were taken over again. What is not in this report has no fault
    /// then.
    pub is_whole: bool,
    /// Rules that are not carried out as they are written.
    pub rules: Vec<(PlanId, PlanFault)>,
    /// Gateways whose listeners were taken over again: they have no other faults than `listeners`.
    pub gateways: Vec<NamespacedName>,
    /// Listeners that are not served.
    pub listeners: Vec<ListenerFault>,
    /// Upstreams that cannot be used, with a phrase that says why.
    pub upstreams: Vec<(UpstreamKey, String)>,
}

/// Why a rule is not carried out as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFault {
    /// The policy that does not fit the rule. `None`: the rule itself cannot be carried out.
    pub policy: Option<NamespacedName>,
    /// A phrase that says what is wrong.
    pub problem: String,
}

/// Why a listener is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerFault {
    /// The port of the Gateway.
    pub socket: SocketId,
    /// `None`: no listener of the port is served.
    pub listener: Option<ListenerId>,
    /// A phrase that says what is wrong.
    pub problem: String,
}
