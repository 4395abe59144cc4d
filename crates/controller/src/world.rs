//! All objects that are known, and the state that follows from them.
//!
//! Owns: which parts of the state a change makes stale, and deriving only those again.
//! Does not own: how a part is derived (the other modules of the crate).
//! Flow: `apply(Event)` marks stale parts; `derive()` derives them and returns the difference:
//! Gateways, then routes, then upstreams. Each stage may mark parts of the next one. The data plane
//! carries the difference out, and what it finds wrong comes back as an event. Then
//! `derive_statuses(now)` adds the status documents.

mod apply;
mod certificates;
mod data_plane;
mod edges;
mod ingress_state;
mod route_state;
mod settle;
mod status;
mod upstreams;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use self::certificates::Certificates;
use self::data_plane::Faults;
use self::edges::Edges;
use self::route_state::RouteState;
use self::upstreams::Upstreams;
use crate::attach::{Gateways, HostTable};
use crate::conditions::{IngressOutcome, ListenerCounts, ServiceGateways};
use crate::known::{GatewayAddresses, Known};
use crate::listeners::GatewayState;
use crate::names::{Name, NamespacedName, ObjectKey};
use crate::objects::Object;
use crate::plan::{
    DataPlaneReport, EndpointPlan, GatewayPlan, ObjectFaults, PlanId, RoutePlan, UpstreamKey, UpstreamPlan,
};
use crate::settings::Settings;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object is new, or is different.
    Set(Object),
    /// An object is gone.
    Removed(ObjectKey),
    /// A Gateway has these addresses. Without any they are unknown again.
    Addresses(NamespacedName, GatewayAddresses),
    /// The definitions in the cluster are of this version of the Gateway API.
    BundleVersion(Option<Name>),
    /// The check of policies may answer something else for the policies that are known.
    PolicyCheckChanged,
    /// The data plane took over changes, and found this.
    Reported(DataPlaneReport),
}

/// The objects of the cluster with the derived state.
#[derive(Debug)]
pub struct World {
    settings: Settings,
    known: Known,
    edges: Edges,
    stale: Stale,
    gateways: GatewayEntries,
    routes: HashMap<ObjectKey, RouteState>,
    upstreams: Upstreams,
    hosts: HostTable,
    certificates: Certificates,
    /// Routes attached to each listener.
    counts: ListenerCounts,
    service_gateways: ServiceGateways,
    /// What the data plane reported.
    faults: Faults,
}

/// A Gateway that is ours.
#[derive(Debug)]
struct GatewayEntry {
    state: GatewayState,
    plan: Arc<GatewayPlan>,
}

#[derive(Debug, Default)]
struct GatewayEntries(HashMap<NamespacedName, GatewayEntry>);

impl Gateways for GatewayEntries {
    fn state(&self, gateway: &NamespacedName) -> Option<&GatewayState> {
        self.0.get(gateway).map(|entry| &entry.state)
    }
}

/// Parts of the state to derive again.
#[derive(Debug, Default)]
struct Stale {
    gateways: BTreeSet<NamespacedName>,
    /// HTTPRoutes, GRPCRoutes, Ingresses and Routes of OpenShift.
    routes: BTreeSet<ObjectKey>,
    /// Whether the certificates of Ingresses and Routes may differ.
    certificates: bool,
    /// Upstreams whose TLS may differ.
    upstreams: BTreeSet<UpstreamKey>,
    /// Services whose endpoints may differ.
    endpoints: BTreeSet<NamespacedName>,
    statuses: BTreeSet<ObjectKey>,
}

/// The whole desired state, as after all changes so far.
#[allow(missing_docs, reason = "fields are those of `Changes`")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DesiredState {
    pub gateways: BTreeMap<NamespacedName, Arc<GatewayPlan>>,
    pub plans: BTreeMap<PlanId, Arc<RoutePlan>>,
    pub upstreams: BTreeMap<UpstreamKey, Arc<UpstreamPlan>>,
    pub endpoints: BTreeMap<UpstreamKey, Arc<[EndpointPlan]>>,
}

impl World {
    /// A world without objects.
    pub fn new(settings: Settings) -> Self {
        let hosts = HostTable::new(settings.exclusive_hosts);
        Self {
            settings,
            known: Known::default(),
            edges: Edges::default(),
            stale: Stale::default(),
            gateways: GatewayEntries::default(),
            routes: HashMap::new(),
            upstreams: Upstreams::default(),
            hosts,
            certificates: Certificates::default(),
            counts: ListenerCounts::new(),
            service_gateways: ServiceGateways::new(),
            faults: Faults::default(),
        }
    }

    /// The objects as they are known.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Every Ingress and Route with faults that its status has no room for, as of the last settling.
    pub fn faults(&self) -> Vec<ObjectFaults> {
        let of_object = |(object, state): (&ObjectKey, &RouteState)| {
            let faults = state.unsaid(object.kind);
            (!faults.is_empty()).then(|| ObjectFaults { object: object.clone(), faults })
        };
        let mut all: Vec<_> = self.routes.iter().filter_map(of_object).collect();
        all.sort_by(|one, other| one.object.cmp(&other.object));
        all
    }

    /// What became of an Ingress or Route; `None`: it is not ours.
    pub fn ingress_outcome(&self, object: &ObjectKey) -> Option<Cow<'_, IngressOutcome>> {
        self.faults.ingress(object, self.routes.get(object)?)
    }

    /// Whether a Gateway exists and nobody's controller serves it, since its GatewayClass does not
    /// exist. It may be ours again, so what was made for it is to be kept.
    pub fn lacks_class(&self, gateway: &NamespacedName) -> bool {
        let gateway = self.known.gateways.get(gateway);
        gateway.is_some_and(|gateway| !self.known.classes.contains_key(&gateway.spec.gateway_class_name))
    }

    /// The desired state as of the last settling.
    pub fn desired_state(&self) -> DesiredState {
        let plans = self.routes.values().flat_map(|route| &route.plans);
        DesiredState {
            gateways: self.gateways.0.iter().map(|(at, entry)| (at.clone(), entry.plan.clone())).collect(),
            plans: plans.map(|plan| (plan.id.clone(), plan.clone())).collect(),
            upstreams: self.upstreams.plans(),
            endpoints: self.upstreams.endpoints(),
        }
    }
}
