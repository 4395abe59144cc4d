//! Gateway API: the routes of a Kubernetes cluster, in force at the gateway of this process.
//!
//! Owns: what the configuration says about the cluster, in the terms of the connection; the order in
//! which a new configuration and the routes of the cluster come into force; metrics. Does not own: the
//! connection itself ([`cluster::connection`]).

use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use cluster::connection::{
    ApiServer, Connection, ConnectionSettings, ConnectionStatus, DurationTotals, Exposure, HeldConnection,
    Publish, ServiceSettings,
};
use cluster::{Compiled, Compiler, FileBase};
use config::{GatewayApiSettings, GatewayExposure, RouteChecker};
use gateway::config::{Config, Listener};
use gateway::server::{Gateway, GatewayListeners, RoutesUpdate};
use http_engine::clock::{Clock as _, SystemClock};
use telemetry::metrics::{Collect, Encoder, FamilyKind};

use super::{Process, ProcessState, no_randomness};
use crate::cluster_settings;
use crate::exit::Failure;

/// A cluster that is watched.
pub(super) struct GatewayApi(Connection);

impl GatewayApi {
    /// Starts to watch the cluster, for the process.
    pub(super) fn start(
        settings: GatewayApiSettings,
        (base, generation): (FileBase, u64),
        process: &Process,
    ) -> Result<(), Failure> {
        let (shared, control) = (&process.shared, &process.control);
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("`[gateway_api]`: {error}"));
        let api = control.block_on(ApiServer::find(settings.kubeconfig.as_deref()));
        let api = api.map_err(|error| failed(&error))?;
        let namespace = settings.namespace.clone().unwrap_or_else(|| api.namespace().to_owned());
        let compiler = Compiler::new(cluster_settings::compiler(&settings), base, SystemClock.now().wall);
        let compiler = compiler.map_err(|error| failed(&error))?;
        let settings = connection_settings(settings, namespace)?;
        let compiler = (compiler, generation);
        let connection = Connection::start(&api, settings, compiler, publish(shared), control.handle());
        let connection = connection.map_err(|error| failed(&error))?;
        // Set once, at the start.
        let _ = shared.gateway_api.set(Self(connection));
        let of_metrics = shared.clone();
        let status = move || of_metrics.gateway_api.get().map(|cluster| ClusterMetric(cluster.0.status()));
        process.metrics.register(move || status().into_iter().collect());
        Ok(())
    }

    /// Puts the routes of the cluster into a new configuration. No other version comes into force
    /// before the answer is dropped. `in_force` answers the configuration in force, and is called when
    /// no version can replace it any more.
    pub(super) fn hold(
        &self,
        checker: RouteChecker,
        config: &mut Config,
        in_force: impl FnOnce() -> Result<Arc<Config>, Failure>,
    ) -> Result<HeldCluster<'_>, Failure> {
        let mut held = self.0.hold();
        let former = in_force()?;
        let base = FileBase { checker, routing: config.routing.clone() };
        let compiled = held.rebase(base).map_err(|error| Failure::new(error.to_string()))?;
        config.routing = compiled.routing.clone();
        // Listeners of Gateways that are in force stay, with their connections.
        let of_gateways = former.listeners.iter().filter(|listener| listener.socket.is_some());
        config.listeners = config.listeners.iter().chain(of_gateways).cloned().collect();
        Ok(HeldCluster { held, compiled })
    }

    /// Why the process should get no requests yet.
    pub(super) fn unready(&self) -> Option<String> {
        self.0.unready()
    }

    /// What is degraded although requests are answered.
    pub(super) fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    /// Lets another replica write status at once.
    pub(super) async fn close(&self) {
        self.0.close().await;
    }
}

/// The cluster while a new configuration comes into force.
pub(super) struct HeldCluster<'c> {
    held: HeldConnection<'c>,
    compiled: Compiled,
}

impl HeldCluster<'_> {
    /// The configuration is in force. Puts the listeners of Gateways in force with it.
    pub(super) fn commit(self, gateway: &Gateway) {
        let Self { held, compiled } = self;
        let generation = gateway.config().generation;
        let listeners: Vec<Arc<Listener>> = compiled.listeners.unwrap_or_default();
        let listeners = GatewayListeners::Replaced(listeners);
        let update = RoutesUpdate { generation, routing: compiled.routing, listeners };
        match gateway.update_routes(update) {
            Ok(pending) => {
                for (socket, error) in pending.refused {
                    tracing::error!(socket = socket.0, %error, "listener of a Gateway is not served");
                }
            }
            Err(error) => tracing::error!(%error, "listeners of Gateways are not put in force"),
        }
        held.committed(generation);
    }
}

fn publish(shared: &Arc<ProcessState>) -> Publish {
    let shared = shared.clone();
    Box::new(move |update| Some(shared.gateway.lock().as_ref()?.update_routes(update)))
}

fn connection_settings(
    settings: GatewayApiSettings,
    namespace: String,
) -> Result<ConnectionSettings, Failure> {
    let controller = cluster_settings::controller(&settings);
    let exposure = match settings.exposure {
        GatewayExposure::Services { selector, ports, external_traffic_policy } => {
            let (namespace, installation) = (namespace.clone(), settings.lease.clone());
            Exposure::Services(ServiceSettings {
                namespace,
                installation,
                selector,
                ports,
                external_traffic_policy,
            })
        }
        GatewayExposure::Host(addresses) => Exposure::Host(addresses),
    };
    Ok(ConnectionSettings {
        controller,
        namespaces: settings.namespaces,
        namespace,
        lease: settings.lease,
        identity: identity()?,
        exposure,
        bind: settings.bind,
        clock: Arc::new(SystemClock),
    })
}

/// Name of this replica: that of the pod, and random digits, since a process that was started again
/// is another one.
#[expect(
    clippy::disallowed_methods,
    reason = "the name of the pod is no setting, and Kubernetes states it there"
)]
fn identity() -> Result<String, Failure> {
    // Kubernetes sets it to the pod's name, also where the pod has the network of its machine.
    let machine = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let machine =
        machine.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok()).unwrap_or_default();
    let mut bytes = [0; 4];
    SystemRandom::new().fill(&mut bytes).map_err(|_| no_randomness())?;
    Ok(format!("{}_{:08x}", machine.trim(), u32::from_be_bytes(bytes)))
}

/// State of the cluster, as metrics.
struct ClusterMetric(ConnectionStatus);

impl Collect for ClusterMetric {
    fn collect(all: &[Self], e: &mut Encoder) {
        let [Self(status)] = all else { return };
        let help = "Whether all objects of the cluster were read, so that its routes are served.";
        e.family("postern_gateway_api_synced", FamilyKind::Gauge, help)
            .sample(&[], u64::from(status.is_synced));
        let help = "Whether this replica writes status and Services.";
        e.family("postern_gateway_api_leader", FamilyKind::Gauge, help)
            .sample(&[], u64::from(status.is_leader));
        let help = "Objects of the cluster that are known.";
        let mut family = e.family("postern_gateway_api_objects", FamilyKind::Gauge, help);
        for (kind, count) in &status.objects {
            family.sample(&[("kind", kind.name())], *count as u64);
        }
        watches(status, e);
        let help = "Rules, listeners and backends that could not be carried out as they are written.";
        e.family("postern_gateway_api_faults", FamilyKind::Counter, help).sample(&[], status.faults);
        let statuses = &status.statuses;
        let help = "Status documents that are still to be written.";
        e.family("postern_gateway_api_status_waiting", FamilyKind::Gauge, help)
            .sample(&[], statuses.waiting as u64);
        let help = "Status documents by outcome: written, failed.";
        let mut family = e.family("postern_gateway_api_status_writes", FamilyKind::Counter, help);
        family.sample(&[("outcome", "written")], statuses.written);
        family.sample(&[("outcome", "failed")], statuses.failed);
        let help = "From the arrival of a change until all workers serve it.";
        durations("postern_gateway_api_change_in_force_seconds", help, &status.in_force, e);
        let help = "Computing a version of the routes.";
        durations("postern_gateway_api_rebuild_seconds", help, &status.rebuild, e);
    }
}

fn watches(status: &ConnectionStatus, e: &mut Encoder) {
    let namespace = |id: &cluster::connection::WatchId| id.namespace.clone().unwrap_or_default();
    let help = "Whether a watch of objects runs. Otherwise the objects seen last stay in force.";
    let mut family = e.family("postern_gateway_api_watch_up", FamilyKind::Gauge, help);
    for (id, state) in &status.watches {
        let is_up = u64::from(state.is_listed && state.problem.is_none());
        family.sample(&[("kind", id.kind.name()), ("namespace", &namespace(id))], is_up);
    }
    let help = "How often a watch of objects began with a list.";
    let mut family = e.family("postern_gateway_api_watch_lists", FamilyKind::Counter, help);
    for (id, state) in &status.watches {
        family.sample(&[("kind", id.kind.name()), ("namespace", &namespace(id))], state.lists);
    }
    let help = "How often a watch of objects broke.";
    let mut family = e.family("postern_gateway_api_watch_failures", FamilyKind::Counter, help);
    for (id, state) in &status.watches {
        family.sample(&[("kind", id.kind.name()), ("namespace", &namespace(id))], state.failures);
    }
}

fn durations(name: &'static str, help: &'static str, totals: &DurationTotals, e: &mut Encoder) {
    let buckets = totals.buckets.iter().map(|(bound, below)| (bound.as_secs_f64(), *below));
    let mut family = e.family(name, FamilyKind::Histogram, help);
    family.histogram(&[], buckets, totals.count, totals.sum.as_secs_f64());
}
