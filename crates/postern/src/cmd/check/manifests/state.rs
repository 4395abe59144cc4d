//! The cluster as the manifests describe it: the controller's state, and the routing that follows
//! from it, by the code that serves.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use auth::time::Timestamp;
use cluster::policy::BodyChecker;
use cluster::{Compiled, Compiler, FileBase};
use config::{GatewayApiSettings, LoadedConfig};
use controller::known::GatewayAddresses;
use controller::names::{Interner, Kind, Name, NamespacedName};
use controller::objects;
use controller::plan::{Changes, SocketId, StatusDocument};
use controller::settings::GATEWAY_API_VERSION;
use controller::world::{DesiredState, Event, World};
use http_engine::config::ListenAddress;

use super::assumptions::{self, Assumptions};
use super::objects::Objects;
use crate::cluster_settings;
use crate::exit::Failure;

/// An address of a Gateway that requests none (RFC 5737): the cluster assigns one.
const SOME_ADDRESS: &str = "192.0.2.1";

/// Everything that follows from the objects.
pub(super) struct State {
    pub(super) world: World,
    pub(super) desired: DesiredState,
    pub(super) compiler: Compiler,
    pub(super) compiled: Compiled,
    pub(super) statuses: Vec<StatusDocument>,
    pub(super) assumptions: Assumptions,
    /// Whether the Gateway that serves Ingresses is only assumed.
    pub(super) is_ingress_gateway_assumed: bool,
}

/// Derives everything from the objects of the manifests, and from what they leave open.
///
/// # Errors
/// Returns a failure if the configuration refuses even a closed route.
pub(super) fn derive(
    loaded: &LoadedConfig,
    settings: &GatewayApiSettings,
    objects: &Objects,
    interner: &mut Interner,
    (bodies, now): (&BodyChecker, Timestamp),
) -> Result<State, Failure> {
    let mut controller = cluster_settings::controller(settings);
    controller.certificate_check = |chain, key| {
        if assumptions::is_assumed_key(key) {
            Ok(())
        } else {
            cluster_settings::check_certificate(chain, key)
        }
    };
    controller.policy_check = bodies.policy_check(move || now);
    let ingress_gateway = controller.ingress_gateway.clone();
    let mut world = World::new(controller);
    world.apply(Event::BundleVersion(Some(Name::from(GATEWAY_API_VERSION))));
    objects.read.iter().for_each(|object| world.apply(Event::Set(object.clone())));
    let assumptions = assumptions::find(world.known(), &settings.controller_name, ingress_gateway.as_ref());
    for (kind, value) in &assumptions.objects {
        let object = objects::read(*kind, value, interner);
        let object = object.map_err(|error| Failure::new(format!("an assumed object: {error}")))?;
        world.apply(Event::Set(object));
    }
    let addresses = world.known().gateways.values().map(|gateway| {
        let requested = gateway.spec.addresses.iter().map(|address| address.value.clone());
        let mut assigned: Vec<String> = requested.filter(|value| !value.is_empty()).collect();
        if assigned.is_empty() {
            assigned.push(SOME_ADDRESS.into());
        }
        let addresses = GatewayAddresses { assigned, ..GatewayAddresses::default() };
        Event::Addresses(gateway.meta.at.clone(), addresses)
    });
    addresses.collect::<Vec<_>>().into_iter().for_each(|event| world.apply(event));
    let mut changes = world.derive();
    let base = FileBase { checker: loaded.route_checker.clone(), routing: loaded.config.routing.clone() };
    let mut compiler = Compiler::new(cluster_settings::compiler(settings), base, now)
        .map_err(|error| Failure::new(error.to_string()))?;
    let version = compiler.apply(&changes, &address_of(&changes), now);
    let desired = world.desired_state();
    let mut report = version.report(Some(&changes));
    report.listeners.retain(|fault| {
        let listener = fault.listener.as_ref();
        !assumptions.has_certificate_of(&desired, &fault.socket, (listener, None))
    });
    world.apply(Event::Reported(report));
    world.derive_statuses(i64::try_from(now.as_secs()).unwrap_or(i64::MAX), &mut changes);
    let statuses = changes.statuses;
    let is_assumed = |gateway: NamespacedName| assumptions.keys.contains(&gateway.of(Kind::Gateway));
    let is_ingress_gateway_assumed = ingress_gateway.is_some_and(is_assumed);
    Ok(State {
        world,
        desired,
        compiler,
        compiled: version,
        statuses,
        assumptions,
        is_ingress_gateway_assumed,
    })
}

/// Where a port would be served. Nothing is bound. Each Gateway has an address of its own: which of
/// two has a port that both want depends on their age, which manifests do not say.
fn address_of(changes: &Changes) -> impl Fn(&SocketId) -> Option<ListenAddress> + use<> {
    let numbers: BTreeMap<NamespacedName, u32> = changes.gateways.keys().cloned().zip(1..).collect();
    move |socket| {
        let address = Ipv4Addr::from_bits(*numbers.get(&socket.gateway)?);
        Some(ListenAddress::Ip(SocketAddr::from((address, socket.port))))
    }
}
