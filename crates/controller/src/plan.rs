//! The desired state of the data plane, as values.
//!
//! Owns: sockets with their listeners, rules of routes with their matches, filters and backends,
//! upstreams with their endpoints, the difference between two states ([`Changes`]), and what the data
//! plane reports about it ([`DataPlaneReport`]).
//! Does not own: how the state is derived ([`crate::world`]), and how it is served.
//! Flow: `World::settle → Changes → the data plane`.

mod listener;
mod report;
mod route;
mod upstream;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use self::listener::{
    ClientValidation, GatewayPlan, HostCertificate, KeyPair, ListenerId, ListenerPlan, ListenerTls, SocketId,
    SocketPlan, SocketProtocol,
};
pub use self::report::{DataPlaneReport, ListenerFault, PlanFault};
pub use self::route::{
    Attachment, CorsFilter, ExternalAuthFilter, ExternalAuthProtocol, FilterPlan, GrpcMethodMatch,
    HeaderModifier, MatchPlan, MirrorFilter, PathMatch, PathModifier, PlanId, PlanOrder, PolicyOutcome,
    PolicyPlan, RedirectFilter, RetryPlan, RewriteFilter, RoutePlan, RuleAction, ValueMatch, WeightedBackend,
};
pub use self::upstream::{
    BackendTarget, CaSource, ClientCertificate, EndpointPlan, NameCheck, SubjectAltName, UpstreamKey,
    UpstreamPlan, UpstreamProtocol, UpstreamTls,
};
use crate::fault::Fault;
use crate::names::{NamespacedName, ObjectKey};

/// What differs from the state after the previous settling. Each list has an entry at most once.
///
/// Upstreams and endpoints come before the rules that refer to them, and rules before their removed
/// upstreams: applied in the order new upstreams, endpoints, Gateways, rules, then what is removed, no
/// rule ever refers to an upstream that is not there.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Gateways that are new or differ. All sockets of a Gateway are in it.
    pub gateways: BTreeMap<NamespacedName, Arc<GatewayPlan>>,
    /// Gateways that are not served any more.
    pub gateways_removed: Vec<NamespacedName>,
    /// Rules of routes that are new or differ.
    pub plans: BTreeMap<PlanId, Arc<RoutePlan>>,
    /// Rules that are gone.
    pub plans_removed: Vec<PlanId>,
    /// Upstreams that are new or differ.
    pub upstreams: BTreeMap<UpstreamKey, Arc<UpstreamPlan>>,
    /// Upstreams that no rule refers to any more.
    pub upstreams_removed: Vec<UpstreamKey>,
    /// Endpoints that are new or differ. Endpoints of removed upstreams are gone without an entry.
    pub endpoints: BTreeMap<UpstreamKey, Arc<[EndpointPlan]>>,
    /// Status documents that differ from what the objects have.
    pub statuses: Vec<StatusDocument>,
    /// Objects with other faults than before that their status has no room for.
    pub faults: Vec<ObjectFaults>,
    /// How much was computed, for tests and metrics.
    pub recomputed: Recomputed,
}

impl Changes {
    /// Whether the data plane has nothing to do.
    pub fn is_empty(&self) -> bool {
        self.gateways.is_empty()
            && self.gateways_removed.is_empty()
            && self.plans.is_empty()
            && self.plans_removed.is_empty()
            && self.upstreams.is_empty()
            && self.upstreams_removed.is_empty()
            && self.endpoints.is_empty()
    }
}

/// How many parts of the state were derived again.
#[allow(missing_docs, reason = "one count for each kind of part")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recomputed {
    pub gateways: usize,
    pub routes: usize,
    pub plans: usize,
    pub upstreams: usize,
    pub endpoints: usize,
    pub statuses: usize,
}

/// What is wrong with an Ingress or Route that its status cannot say: an Ingress has no conditions,
/// and the conditions of a Route say only whether it is admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFaults {
    /// Whose faults they are.
    pub object: ObjectKey,
    /// All of them. Empty: there are none any more.
    pub faults: Vec<Fault>,
}

/// How many messages are shown: one object may have thousands of faults.
const FAULTS_SHOWN: usize = 5;

/// The first messages of the faults, and how many more there are.
impl fmt::Display for ObjectFaults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.faults.iter().take(FAULTS_SHOWN).enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(formatter, "{separator}{}", fault.message)?;
        }
        match self.faults.len().saturating_sub(FAULTS_SHOWN) {
            0 => Ok(()),
            more => write!(formatter, "; and {more} more"),
        }
    }
}

/// The status of one object, as the body of a server-side apply to its `status` subresource:
/// `apiVersion`, `kind`, `metadata.name`, `metadata.namespace` and `status`. It is JSON text, since
/// after a start there is one for each object, and a tree of values takes ten times as much memory.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusDocument {
    /// Whose status it is.
    pub object: ObjectKey,
    /// The whole document.
    pub body: Box<str>,
}
