//! Connection to a cluster: watches objects, puts what follows from them in force, and, on the
//! leader, writes status and Services.
//!
//! Owns: the threads and tasks of these steps, and what happens while the API server is away. Does
//! not own: the steps themselves (the submodules), the gateway (a function of the caller puts
//! versions in force).
//!
//! Nothing is served until every kind was listed once: a policy that is not known yet must not open
//! a route. From then on the last state stays in force, whatever happens to the API server.
//!
//! Flow: `watches → Notice → State → publish`; on the leader also `→ StatusQueue` and `→ Services`.

mod figures;
mod leader;
mod retries;
mod services;
mod services_writer;
mod state;
mod status;
#[cfg(test)]
mod test_api;
mod watch;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use controller::names::Kind;
use controller::plan::ObjectFaults;
use controller::settings::Settings;
use controller::world::World;
use gateway::server::{GatewayListeners, PendingRoutes, RoutesUpdate, StaleRoutes};
use http_engine::clock::Clock;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, Config};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch as latest};

use self::figures::DurationCounts;
pub use self::figures::DurationTotals;
use self::leader::Election;
pub use self::services::ServiceSettings;
pub use self::state::Exposure;
use self::state::{State, Step};
pub use self::status::StatusCounts;
use self::status::StatusQueue;
use self::watch::{Notice, Notices, Watch, Watches, is_required};
pub use self::watch::{WatchId, WatchProblem, WatchState};
use self::watched::describe;
use crate::compiler::{Compiled, Compiler, FileBase, RuleFault};
use crate::policy::BodyChecker;

/// Notices that wait for the thread of the connection. Watches wait while it is full.
const NOTICES: usize = 4096;
/// Largest number of notices that go into one version, so that the first is in force soon.
const PER_VERSION: usize = 2048;
/// Time limit for connecting to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the version of the installed definitions is looked up.
const BUNDLE_PERIOD: Duration = Duration::from_mins(1);
/// Annotation of the definitions with the version of the Gateway API.
const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";
/// Time limit for releasing the lease at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Faults of one version that are logged one by one.
const FAULTS_LOGGED: usize = 20;

/// Puts a version of the routing in force; `None`: the gateway has ended.
pub type Publish = Box<dyn Fn(RoutesUpdate) -> Option<Result<PendingRoutes, StaleRoutes>> + Send>;

/// The API server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiServerError {
    /// The file cannot be read, or does not say how to reach an API server.
    #[error("{file}: {problem}")]
    Kubeconfig {
        /// The path of the file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The process does not run in a pod.
    #[error("no service account of a pod: {0}; outside a cluster name a file with `gateway_api.kubeconfig`")]
    NoPod(String),
    /// The TLS settings or credentials cannot be used.
    #[error("the API server cannot be used: {0}")]
    Client(String),
}

/// An API server, with the credentials for it.
#[derive(Clone)]
pub struct ApiServer {
    client: Client,
    namespace: String,
}

impl ApiServer {
    /// The API server of a kubeconfig file, or of the pod. Nothing is sent to it yet. Needs a Tokio
    /// runtime.
    ///
    /// # Errors
    /// [`ApiServerError`] when the file or the service account cannot be used.
    pub async fn find(kubeconfig: Option<&Path>) -> Result<Self, ApiServerError> {
        let mut config = match kubeconfig {
            Some(path) => {
                let unfit = |error: &dyn std::error::Error| ApiServerError::Kubeconfig {
                    file: path.display().to_string(),
                    problem: describe(error),
                };
                let file = Kubeconfig::read_from(path).map_err(|error| unfit(&error))?;
                let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
                config.map_err(|error| unfit(&error))?
            }
            None => Config::incluster().map_err(|error| ApiServerError::NoPod(describe(&error)))?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| ApiServerError::Client(describe(&error)))?;
        Ok(Self { client, namespace })
    }

    /// Namespace of the pod, or of the context in the file.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// What a connection needs.
pub struct ConnectionSettings {
    /// Settings of the controller. Its check of policies is replaced by one against the file.
    pub controller: Settings,
    /// Namespaces of the objects that count; empty: all.
    pub namespaces: Vec<String>,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Name of this replica.
    pub identity: String,
    /// How clients reach the Gateways.
    pub exposure: Exposure,
    /// The address at which ports of Gateways are served.
    pub bind: IpAddr,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
}

/// Figures of a connection.
#[derive(Debug, Clone, Default)]
pub struct ConnectionStatus {
    /// Whether every kind was listed once, so that routes are served.
    pub is_synced: bool,
    /// Whether this replica leads.
    pub is_leader: bool,
    /// The watches.
    pub watches: BTreeMap<WatchId, WatchState>,
    /// How many objects of each kind are known.
    pub objects: BTreeMap<Kind, usize>,
    /// The status writer.
    pub statuses: StatusCounts,
    /// Rules, listeners and upstreams that could not be carried out, in all versions so far.
    pub faults: u64,
    /// From the arrival of a change until all workers serve it.
    pub in_force: DurationTotals,
    /// Computing a version.
    pub rebuild: DurationTotals,
}

#[derive(Default)]
struct Figures {
    is_synced: AtomicBool,
    faults: AtomicU64,
    objects: Mutex<BTreeMap<Kind, usize>>,
    in_force: DurationCounts,
    rebuild: DurationCounts,
}

/// A connection to a cluster. It ends when it is dropped; [`Self::close`] also lets another replica
/// lead at once.
pub struct Connection {
    state: Arc<Mutex<State>>,
    watches: Watches,
    queue: Arc<StatusQueue>,
    figures: Arc<Figures>,
    leads: latest::Receiver<bool>,
    stop: latest::Sender<bool>,
    election: Mutex<Option<tokio::task::JoinHandle<()>>>,
    tasks: Vec<tokio::task::AbortHandle>,
    thread: Option<JoinHandle<()>>,
    notices: Notices,
    clock: Arc<dyn Clock>,
}

impl Connection {
    /// Starts to watch. Versions of the routing are published when every kind was listed once. The
    /// routing of `compiler` is that of the configuration `generation`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        api: &ApiServer,
        settings: ConnectionSettings,
        (compiler, generation): (Compiler, u64),
        publish: Publish,
        runtime: &Handle,
    ) -> std::io::Result<Self> {
        let mut ids = watch_ids(&settings.namespaces, settings.controller.ingress_gateway.is_some());
        if let Exposure::Services(services) = &settings.exposure
            && !settings.namespaces.is_empty()
        {
            // Those of Gateways, wherever the Gateways are.
            let namespace = Some(services.namespace.as_str().into());
            ids.insert(WatchId { kind: Kind::Service, namespace });
        }
        let bodies = BodyChecker::new(compiler.checker().clone());
        let clock = settings.clock.clone();
        let policy_check = bodies.policy_check(move || clock.now().wall);
        let world = World::new(Settings { policy_check, ..settings.controller });
        let state = State::new(
            world,
            (compiler, bodies),
            (settings.exposure, settings.bind),
            generation,
            ids.clone(),
        );
        let (state, watches) = (Arc::new(Mutex::new(state)), Watches::default());
        let (queue, figures) = (Arc::new(StatusQueue::default()), Arc::new(Figures::default()));
        let (notices, received) = mpsc::channel(NOTICES);
        let (leads, leading) = latest::channel(false);
        let (stop, stopped) = latest::channel(false);
        let services_changed = Arc::new(Notify::new());
        let client = &api.client;
        let mut tasks = Vec::new();
        for id in ids {
            let watch = Watch { id, notices: notices.clone(), watches: watches.clone() };
            tasks.push(runtime.spawn(watch.run(client.clone())).abort_handle());
        }
        tasks.push(runtime.spawn(follow_bundle(client.clone(), notices.clone())).abort_handle());
        tasks.push(runtime.spawn(forward_lead(leading.clone(), notices.clone())).abort_handle());
        tasks.push(runtime.spawn(queue.clone().run(client.clone())).abort_handle());
        let wakes = (services_changed.clone(), notices.clone());
        let services = services_writer::run(state.clone(), watches.clone(), wakes, client.clone());
        tasks.push(runtime.spawn(services).abort_handle());
        let leases = Api::namespaced(client.clone(), &settings.namespace);
        let election = Election { leases, name: settings.lease, identity: settings.identity };
        let election = Mutex::new(Some(runtime.spawn(election.run(leads, stopped))));
        let worker = Worker {
            state: state.clone(),
            queue: queue.clone(),
            figures: figures.clone(),
            services_changed,
            publish,
            clock: settings.clock.clone(),
        };
        let thread = std::thread::Builder::new().name("gateway-api".into());
        let thread = Some(thread.spawn(move || worker.run(received))?);
        let (leads, clock) = (leading, settings.clock);
        Ok(Self { state, watches, queue, figures, leads, stop, election, tasks, thread, notices, clock })
    }

    /// Holds the connection: no version is published until the answer is dropped. For a change of the
    /// configuration file.
    pub fn hold(&self) -> HeldConnection<'_> {
        HeldConnection { former: None, notices: &self.notices, state: self.state.lock(), clock: &*self.clock }
    }

    /// Why no routes of the cluster are served yet; `None`: they are.
    pub fn unready(&self) -> Option<String> {
        if self.figures.is_synced.load(Relaxed) {
            return None;
        }
        let states = self.watches.states();
        let problem = states.iter().find_map(|(id, state)| {
            let problem = state.problem.as_ref()?;
            let is_awaited = *problem != WatchProblem::Absent || !state.is_listed;
            let problem = Some(problem).filter(|_| is_awaited)?;
            Some(format!("{id}: {problem}"))
        });
        Some(match problem {
            Some(problem) => format!("objects of the cluster are not known: {problem}"),
            None => {
                let listed = states.values().filter(|state| state.is_listed).count();
                format!("objects of the cluster are being read ({listed} of {} kinds)", states.len())
            }
        })
    }

    /// One line for each watch that does not run, although requests are answered.
    pub fn notes(&self) -> Vec<String> {
        let states = self.watches.states().into_iter();
        let problems = states.filter_map(|(id, state)| Some((id, state.problem?)));
        problems
            .filter(|(id, problem)| *problem != WatchProblem::Absent || is_required(id.kind))
            .map(|(id, problem)| {
                format!("watch of {id} does not run, the last state stays in force: {problem}")
            })
            .collect()
    }

    /// Its figures.
    pub fn status(&self) -> ConnectionStatus {
        ConnectionStatus {
            is_synced: self.figures.is_synced.load(Relaxed),
            is_leader: *self.leads.borrow(),
            watches: self.watches.states(),
            objects: self.figures.objects.lock().clone(),
            statuses: self.queue.counts(),
            faults: self.figures.faults.load(Relaxed),
            in_force: self.figures.in_force.totals(),
            rebuild: self.figures.rebuild.totals(),
        }
    }

    /// Ends it, and lets another replica lead at once. What is in force stays in force.
    pub async fn close(&self) {
        self.stop.send_replace(true);
        let election = self.election.lock().take();
        if let Some(election) = election {
            // An election that does not end in time leaves the lease to expire.
            let _ = tokio::time::timeout(RELEASE_TIMEOUT, election).await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(election) = self.election.lock().take() {
            election.abort();
        }
        // The thread ends with the last sender of notices, which is dropped next.
        self.tasks.drain(..).for_each(|task| task.abort());
        drop(self.thread.take());
    }
}

/// A connection of which no version is published meanwhile. Unless [`Self::committed`] is called, it
/// goes back to the former configuration file when it is dropped.
pub struct HeldConnection<'c> {
    former: Option<FileBase>,
    notices: &'c Notices,
    state: MutexGuard<'c, State>,
    clock: &'c dyn Clock,
}

impl HeldConnection<'_> {
    /// Compiles everything for another configuration file, with its routes.
    ///
    /// # Errors
    /// [`RuleFault`] when the file refuses even a route that answers 500; nothing changes then.
    pub fn rebase(&mut self, base: FileBase) -> Result<Compiled, RuleFault> {
        let (compiled, former) = self.state.rebase(base, self.clock.now().wall)?;
        log_faults(&compiled);
        self.former = Some(former);
        Ok(compiled)
    }

    /// The configuration is in force, with this generation.
    pub fn committed(mut self, generation: u64) {
        self.state.generation = generation;
        self.former = None;
        // Policies may be valid now that were not, and the other way round. If the queue is full, the
        // thread looks in any case.
        let _ = self.notices.try_send((Instant::now(), Notice::FileChanged));
    }
}

impl Drop for HeldConnection<'_> {
    fn drop(&mut self) {
        if let Some(former) = self.former.take() {
            // It was good before. The numbers of routes may differ from those in force, which the
            // next version replaces as a whole.
            let _ = self.state.rebase(former, self.clock.now().wall);
        }
    }
}

/// The thread that turns notices into versions.
struct Worker {
    state: Arc<Mutex<State>>,
    queue: Arc<StatusQueue>,
    figures: Arc<Figures>,
    services_changed: Arc<Notify>,
    publish: Publish,
    clock: Arc<dyn Clock>,
}

impl Worker {
    fn run(self, mut notices: mpsc::Receiver<(Instant, Notice)>) {
        while let Some((arrived, notice)) = notices.blocking_recv() {
            let mut state = self.state.lock();
            let led = state.leads;
            state.note(notice);
            for _ in 1..PER_VERSION {
                let Ok((_, notice)) = notices.try_recv() else { break };
                state.note(notice);
            }
            let now = self.clock.now().wall;
            let began = Instant::now();
            let mut step = state.step(now);
            let became_leader = state.leads && !led;
            if became_leader && state.is_synced() {
                step.statuses = state.world.statuses(now.as_secs().cast_signed());
            }
            *self.figures.objects.lock() = state.world.known().counts();
            let (leads, generation, is_synced) = (state.leads, state.generation, state.is_synced());
            log_object_faults(&step.faults);
            let pending = step.compiled.take().and_then(|compiled| {
                self.figures.rebuild.record(began.elapsed());
                self.publish(compiled, generation)
            });
            drop(state);
            if let Some(pending) = pending {
                for (socket, error) in &pending.refused {
                    tracing::error!(socket = socket.0, %error, "listener of a Gateway is not served");
                }
                if let Err(error) = pending.wait() {
                    tracing::error!(%error, "routes are not served by every worker yet");
                }
                self.figures.in_force.record(arrived.elapsed());
            }
            // Not before the first version is served: readiness depends on it.
            self.figures.is_synced.store(is_synced, Relaxed);
            self.finish(step, (led, leads));
        }
    }

    /// Puts a version in force.
    fn publish(&self, compiled: Compiled, generation: u64) -> Option<PendingRoutes> {
        let faults = log_faults(&compiled);
        self.figures.faults.fetch_add(faults, Relaxed);
        let Compiled { routing, listeners, .. } = compiled;
        let listeners = listeners.map_or(GatewayListeners::Same, GatewayListeners::Replaced);
        match (self.publish)(RoutesUpdate { generation, routing, listeners })? {
            Ok(pending) => Some(pending),
            Err(error) => {
                tracing::error!(%error, "routes are not put in force");
                None
            }
        }
    }

    /// Hands on what the leader writes.
    fn finish(&self, step: Step, (led, leads): (bool, bool)) {
        if led != leads {
            tracing::info!(
                leads,
                "this replica {} status of objects",
                if leads { "writes" } else { "no longer writes" }
            );
        }
        if leads {
            self.queue.put(step.statuses);
            self.services_changed.notify_one();
        } else if led {
            self.queue.clear();
        }
    }
}

/// Logs what is not carried out. Answers how much that is.
fn log_faults(compiled: &Compiled) -> u64 {
    let rules = compiled.rules.iter().map(|fault| ("rule of a route", fault.to_string()));
    let sockets = compiled.sockets.iter().map(|fault| ("listener of a Gateway", fault.to_string()));
    let upstreams = compiled.upstreams.iter().map(|fault| ("backend", fault.to_string()));
    let all: Vec<_> = rules.chain(sockets).chain(upstreams).collect();
    for (what, fault) in all.iter().take(FAULTS_LOGGED) {
        tracing::warn!("{what} is not carried out as it is written: {fault}");
    }
    if all.len() > FAULTS_LOGGED {
        tracing::warn!("and {} more like these", all.len() - FAULTS_LOGGED);
    }
    all.len() as u64
}

/// Logs what is wrong with objects whose status has no room for it.
fn log_object_faults(changed: &[ObjectFaults]) {
    let faulty = changed.iter().filter(|one| !one.faults.is_empty());
    for one in faulty.clone().take(FAULTS_LOGGED) {
        tracing::warn!("{} is not carried out as it is written: {one}", one.object);
    }
    let count = faulty.count();
    if count > FAULTS_LOGGED {
        tracing::warn!("and {} more like these", count - FAULTS_LOGGED);
    }
}

/// One watch for each kind, and for each namespace if some are named. Ingresses and Routes are
/// watched only if a Gateway serves them, so that nobody else needs the right to do so.
fn watch_ids(namespaces: &[String], with_ingresses: bool) -> BTreeSet<WatchId> {
    let of_kind = |kind: Kind| -> Vec<WatchId> {
        if namespaces.is_empty() || !kind.is_namespaced() {
            return vec![WatchId { kind, namespace: None }];
        }
        let of_namespace = |namespace: &String| WatchId { kind, namespace: Some(namespace.as_str().into()) };
        namespaces.iter().map(of_namespace).collect()
    };
    let is_watched = |kind: &Kind| with_ingresses || !(kind.is_ingress() || *kind == Kind::IngressClass);
    Kind::ALL.into_iter().filter(is_watched).flat_map(of_kind).collect()
}

/// Tells whether this replica leads.
async fn forward_lead(mut leads: latest::Receiver<bool>, notices: Notices) {
    while leads.changed().await.is_ok() {
        let now = *leads.borrow_and_update();
        if notices.send((Instant::now(), Notice::Leads(now))).await.is_err() {
            return;
        }
    }
}

/// Follows the version of the definitions of the Gateway API in the cluster.
async fn follow_bundle(client: Client, notices: Notices) {
    let definitions = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let definitions: Api<DynamicObject> = Api::all_with(client, &definitions);
    let name = format!("{}.{}", Kind::GatewayClass.plural(), Kind::GatewayClass.group());
    let mut known = None;
    loop {
        if let Ok(found) = definitions.get_metadata_opt(&name).await {
            let annotations = found.and_then(|found| found.metadata.annotations);
            let version = annotations.and_then(|all| all.get(BUNDLE_VERSION).cloned());
            if known.as_ref() != Some(&version) {
                known = Some(version.clone());
                if notices.send((Instant::now(), Notice::BundleVersion(version))).await.is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(BUNDLE_PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_a_namespace_are_watched_in_the_whole_cluster() {
        assert_eq!(watch_ids(&[], true).len(), Kind::ALL.len());
        assert_eq!(watch_ids(&[], false).len(), Kind::ALL.len() - 3);
        let ids = watch_ids(&["a".to_owned(), "b".to_owned()], true);
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        assert!(names.contains(&"gatewayclasses".to_owned()), "{names:?}");
        assert!(names.contains(&"httproutes in b".to_owned()), "{names:?}");
        assert_eq!(names.len(), 3 + 2 * (Kind::ALL.len() - 3));
    }
}
