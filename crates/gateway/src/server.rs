//! Gateway server: starts, reloads and drains the worker threads and their listeners.
//!
//! Owns: one thread per core with its own runtime, the sockets of each thread, balancing new
//! connections between threads, applying configurations, draining. Does not own: what happens on a
//! connection.
//!
//! Every worker has its own socket on every IP address (`SO_REUSEPORT`), so that accepting needs no
//! lock and no hand-over. A Unix socket, and one that a service manager passed, is shared by all
//! workers. The kernel chooses among the sockets without regard to load, so a worker that has
//! clearly more connections than another passes a new one on.

mod accept;
mod cluster_metrics;
mod handoff;
mod routes;
mod sockets;
mod time_slice;
mod worker_thread;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use auth::headers::Part;
use credentials::assertion::AssertionMinter;
use credentials::authenticate::{Authenticator, AuthenticatorRuntime, AuthenticatorSetup};
use credentials::cache;
use credentials::events;
use credentials::revocation::FollowedIssuers;
use credentials::session_store::SessionStore;
use credentials::watch::WatchStatus;
use handoff::{Command, Handoff};
use http_engine::clock::Clock;
use http_engine::config::ListenAddress;
use http_engine::inherited_sockets::InheritedSockets;
use http_engine::listen::{Claim, ListenOptions};
use http_engine::upstream::discovery::{Discovery, DiscoveryServices};
use http_engine::upstream::resolver::Resolver;
use login::{Login, LoginStatus};
use parking_lot::Mutex;
pub use routes::{GatewayListeners, PendingRoutes, RoutesUpdate, StaleRoutes};
use sockets::{Addresses, Sockets, bind_new, listen_options, remedy, set_modes};
use telemetry::access_log;
use telemetry::metrics::Metrics;
use telemetry::trace::Tracer;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::authorizer::routed::RoutedAuthorizers;
use crate::authorizer::{Authorizer, AuthorizerStatus};
use crate::config::{Config, Route};
use crate::review::{ReviewStatus, Reviewer};
use crate::upstream_status::UpstreamStatus;

/// Descriptors kept free for upstream connections, files and the admin listener.
const RESERVED_DESCRIPTORS: usize = 256;

/// How long a reload waits for its workers. One that takes longer is stuck: a worker looks for
/// commands between two tasks.
pub const APPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Process-wide dependencies of the gateway, besides its configuration.
#[derive(Clone)]
pub struct Services {
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// The metrics registry; it must have shards for all workers.
    pub metrics: Arc<Metrics>,
    /// The access log, if requests are logged.
    pub access_log: Option<access_log::AccessLog>,
    /// The trace exporter, if traces are exported.
    pub tracer: Option<Arc<Tracer>>,
    /// Runtime for work off the request path, such as fetching keys.
    pub control: tokio::runtime::Handle,
    /// Secret for the digests that are the cache keys; drawn once per process.
    pub secret: cache::CacheSecret,
    /// Counter that voids all cached facts when it advances.
    pub generation: cache::Generation,
    /// Issuers whose revocation log is followed.
    pub follows: FollowedIssuers,
    /// Session store for browsers, where the configuration keeps sessions in a database.
    pub sessions: Option<Arc<dyn SessionStore>>,
    /// Receiver of security events, where transmitters are configured.
    pub events: Option<Arc<events::Receiver>>,
    /// Looks up the names of upstream endpoints.
    pub resolver: Resolver,
}

/// Why the gateway did not start, or did not accept a configuration.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("listener {name:?}: listening on {address}: {source}; {}", remedy(address, source))]
    Bind {
        /// Name of the listener.
        name: String,
        /// Address of the listener.
        address: ListenAddress,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A worker thread could not be started.
    #[error("starting worker {index}: {source}")]
    Thread {
        /// Index of the worker, from 0.
        index: usize,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Why a reload failed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The new configuration cannot be served. The former one stays in force.
    #[error(transparent)]
    Refused(#[from] StartError),
    /// Some workers did not take the new configuration within [`APPLY_TIMEOUT`]. The others serve
    /// it, and these will as soon as they run again.
    #[error(
        "after {} s the former configuration is still served by {}; the new one follows there when they run again",
        APPLY_TIMEOUT.as_secs(),
        worker_names(.workers)
    )]
    Pending {
        /// Indices of the workers, ascending.
        workers: Vec<usize>,
    },
}

/// The name of a worker's thread, as `ps` and `top` show it.
fn worker_name(index: usize) -> String {
    format!("worker-{index}")
}

fn worker_names(workers: &[usize]) -> String {
    workers.iter().map(|index| worker_name(*index)).collect::<Vec<_>>().join(", ")
}

/// A running gateway.
pub struct Gateway {
    workers: Vec<WorkerHandle>,
    applied: Arc<Mutex<Applied>>,
    /// Dependencies for components that a reload creates again.
    services: Services,
    /// Sockets for addresses, now or after a reload.
    inherited: InheritedSockets,
}

struct WorkerHandle {
    commands: UnboundedSender<Command>,
    thread: Option<JoinHandle<bool>>,
}

/// The generation in force, with its sockets.
struct Applied {
    generation: Generation,
    /// Open sockets by configured address.
    addresses: Addresses,
    /// Released addresses whose sockets may not be closed yet.
    released: Vec<(ListenAddress, Weak<()>)>,
}

/// A configuration with the components that all workers share.
#[derive(Clone)]
pub(crate) struct Generation {
    pub(crate) config: Arc<Config>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) reviewer: Option<Arc<Reviewer>>,
    pub(crate) authorizers: Arc<[Arc<Authorizer>]>,
    pub(crate) routed_authorizers: Arc<RoutedAuthorizers>,
    pub(crate) login: Option<Arc<Login>>,
    pub(crate) events: Option<Arc<events::Receiver>>,
    pub(crate) minter: Option<Arc<AssertionMinter>>,
    /// By index of the upstream.
    pub(crate) discoveries: Discoveries,
}

/// What keeps the endpoints of each upstream up to date; `None` where they are fixed.
type Discoveries = Arc<[Option<Arc<Discovery>>]>;

impl Gateway {
    /// Binds every listener, then starts `workers` threads. Use [`Claim::Shared`] for addresses on
    /// which another process listens that this one replaces. Inherited sockets are used for their
    /// addresses, also after a reload.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(
        config: Config,
        workers: usize,
        listen: impl Into<ListenOptions>,
        services: &Services,
    ) -> Result<Self, StartError> {
        let ListenOptions { claim, inherited } = listen.into();
        let config = Arc::new(config);
        let surroundings = authenticator_runtime(services);
        let setup = AuthenticatorSetup::from(&*config);
        let authenticator = Arc::new(Authenticator::new(setup, surroundings.clone()));
        let login = build_login(&config, &authenticator, &surroundings, services.sessions.clone(), None);
        let reviewer = reviewer(&config, services, None);
        watch(&authenticator, reviewer.as_deref());
        let before = Former { authorizers: &[], discoveries: &[] };
        let generation = generation(&config, &authenticator, reviewer, login, services, before);
        let workers = workers.max(1);
        let limit = connection_limit();
        let mut addresses = Addresses::new();
        let sockets = bind_new(&config, workers, &listen_options(&inherited, |_| claim), &mut addresses)?;
        let shares: Arc<[Handoff]> = (0..workers).map(|_| Handoff::default()).collect();
        let doors = Arc::new(accept::Acceptors::default());
        let mut handles = Vec::new();
        for (index, sockets) in sockets.into_iter().enumerate() {
            let (commands, inbox) = unbounded_channel();
            shares[index].set_commands(commands.clone());
            let start = worker_thread::Start {
                index,
                generation: generation.clone(),
                sockets,
                services: services.clone(),
                handoffs: shares.clone(),
                doors: doors.clone(),
                connection_limit: limit,
            };
            let thread = std::thread::Builder::new()
                .name(worker_name(index))
                .spawn(move || worker_thread::run(start, inbox))
                .map_err(|source| StartError::Thread { index, source })?;
            handles.push(WorkerHandle { commands, thread: Some(thread) });
        }
        let applied = Arc::new(Mutex::new(Applied { generation, addresses, released: Vec::new() }));
        cluster_metrics::register(&services.metrics, Arc::downgrade(&applied));
        Ok(Self { workers: handles, applied, services: services.clone(), inherited })
    }

    /// Applies another configuration and waits until every worker serves it. Connections stay; each
    /// request finishes under the configuration it began with. Key sets, pools and cached facts
    /// whose configuration did not change are kept. Blocks for up to [`APPLY_TIMEOUT`]; call it
    /// from a thread that may.
    ///
    /// # Errors
    /// [`ReloadError::Refused`] when a new address cannot be listened on; [`ReloadError::Pending`]
    /// when a worker does not answer in time.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let (pending, confirmations) = self.send_to_workers(config)?;
        Self::wait_for_workers(pending, &confirmations)
    }

    /// Sends a configuration to all workers. Answers which of them will confirm it, and where.
    fn send_to_workers(
        &self,
        mut config: Config,
    ) -> Result<(BTreeSet<usize>, mpsc::Receiver<usize>), StartError> {
        let mut applied = self.applied.lock();
        let former = applied.generation.clone();
        config.generation = former.config.generation + 1;
        let config = Arc::new(config);
        let mut addresses = applied.addresses.clone();
        let mut released = applied.released.clone();
        released.retain(|(_, open)| open.strong_count() > 0);
        // If an address returns or becomes wider, the sockets still open on it are our own and will
        // be closed soon.
        let own: Vec<_> =
            applied.addresses.keys().chain(released.iter().map(|(given_up, _)| given_up)).collect();
        let claim = |address: &ListenAddress| {
            if own.iter().any(|own| own.overlaps(address)) { Claim::Shared } else { Claim::Exclusive }
        };
        let is_configured = |configured: &ListenAddress| config.listeners.at(configured).is_some();
        let gone: Vec<_> = addresses.extract_if(|configured, _| !is_configured(configured)).collect();
        let sockets =
            bind_new(&config, self.workers.len(), &listen_options(&self.inherited, claim), &mut addresses)?;
        released.extend(gone.into_iter().map(|(configured, bound)| (configured, bound.open)));
        set_modes(&former.config, &config)?;
        let authenticator = Arc::new(former.authenticator.rebuild(AuthenticatorSetup::from(&*config)));
        let reviewer = reviewer(&config, &self.services, former.reviewer.as_ref());
        watch(&authenticator, reviewer.as_deref());
        let surroundings = authenticator_runtime(&self.services);
        let services = &self.services;
        let sessions = services.sessions.clone();
        let login = build_login(&config, &authenticator, &surroundings, sessions, former.login.as_ref());
        let before = Former { authorizers: &former.authorizers, discoveries: &former.discoveries };
        let generation = generation(&config, &authenticator, reviewer, login, services, before);
        let sent = self.send(&generation, sockets);
        *applied = Applied { generation, addresses, released };
        Ok(sent)
    }

    /// Sends a generation to all workers, with the new sockets of each.
    fn send(
        &self,
        generation: &Generation,
        sockets: Vec<Sockets>,
    ) -> (BTreeSet<usize>, mpsc::Receiver<usize>) {
        let (confirm, confirmations) = mpsc::channel();
        let mut pending = BTreeSet::new();
        for (index, (worker, sockets)) in self.workers.iter().zip(sockets).enumerate() {
            let command = Command::Apply(Box::new(generation.clone()), sockets, confirm.clone());
            // A worker that has ended cannot be reached; workers end only by draining.
            if worker.commands.send(command).is_ok() {
                pending.insert(index);
            }
        }
        (pending, confirmations)
    }

    /// Without the lock: who asks for the configuration in force need not wait for workers.
    fn wait_for_workers(
        mut pending: BTreeSet<usize>,
        confirmations: &mpsc::Receiver<usize>,
    ) -> Result<(), ReloadError> {
        let deadline = Instant::now() + APPLY_TIMEOUT;
        while !pending.is_empty() {
            match confirmations.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(index) => {
                    pending.remove(&index);
                }
                // All that had not confirmed have ended with their threads.
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(ReloadError::Pending { workers: pending.into_iter().collect() });
                }
            }
        }
        Ok(())
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        self.applied.lock().generation.config.clone()
    }

    /// The current authenticator, for readiness and metrics.
    pub fn authenticator(&self) -> Arc<Authenticator> {
        self.applied.lock().generation.authenticator.clone()
    }

    /// Issuers whose revocation log is followed.
    pub fn follows(&self) -> &FollowedIssuers {
        &self.services.follows
    }

    /// State of access reviews, where some route needs them.
    pub fn reviews(&self) -> Option<ReviewStatus> {
        self.applied.lock().generation.reviewer.as_ref().map(|reviewer| reviewer.status())
    }

    /// The basis of some cache entry in use, if it is a followed issuer; `random` selects which.
    pub fn any_entry_basis(&self, random: u64) -> Option<Arc<cache::CacheEntryBasis>> {
        let applied = self.applied.lock();
        let count = applied.generation.authorizers.len() as u64 + 1;
        let (which, random) = (usize::try_from(random % count).unwrap_or(0), random / count);
        match which.checked_sub(1) {
            None => applied.generation.authenticator.any_entry_basis(random),
            Some(at) => applied.generation.authorizers[at].any_entry_basis(random),
        }
    }

    /// Cache usage of the authorizers, in configured order.
    pub fn authorizers(&self) -> Vec<AuthorizerStatus> {
        self.applied.lock().generation.authorizers.iter().map(|authorizer| authorizer.status()).collect()
    }

    /// Numbers about the upstreams whose endpoints change, in configured order.
    pub fn discoveries(&self) -> Vec<UpstreamStatus> {
        let applied = self.applied.lock();
        let discoveries = applied.generation.discoveries.iter().flatten();
        discoveries.map(|discovery| UpstreamStatus(discovery.status())).collect()
    }

    /// State of the login, where configured.
    pub fn logins(&self) -> Option<LoginStatus> {
        self.applied.lock().generation.login.as_ref().map(|login| login.status())
    }

    /// State of the Kubernetes watches.
    pub fn watches(&self) -> Vec<WatchStatus> {
        let applied = self.applied.lock();
        let of_reviews = applied.generation.reviewer.iter().flat_map(|reviewer| reviewer.watches());
        of_reviews.chain(applied.generation.authenticator.watches()).collect()
    }

    /// Name and address of each listener; port 0 is replaced by the assigned port.
    pub fn addresses(&self) -> Vec<(String, ListenAddress)> {
        let applied = self.applied.lock();
        let address = |configured: &ListenAddress| {
            applied.addresses.get(configured).map_or(configured, |b| &b.at).clone()
        };
        applied
            .generation
            .config
            .listeners
            .iter()
            .map(|l| (l.name.to_string(), address(&l.address)))
            .collect()
    }

    /// Asks all workers whether they run. Does not wait for the answers.
    pub fn ping_workers(&self) -> WorkerPing {
        let (answer, answers) = mpsc::channel();
        let asked = self.workers.iter().enumerate();
        // A worker that has ended cannot be reached; workers end only by draining.
        let asked = asked.filter(|(_, worker)| worker.commands.send(Command::Ping(answer.clone())).is_ok());
        WorkerPing { unanswered: asked.map(|(index, _)| index).collect(), answers }
    }

    /// Stops accepting, lets open connections finish for at most `timeout`, then ends. True when
    /// all finished in time. Blocks the calling thread.
    pub fn drain(mut self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        for worker in &self.workers {
            let _ = worker.commands.send(Command::Drain { timeout });
        }
        let mut clean = true;
        for worker in &mut self.workers {
            let Some(thread) = worker.thread.take() else { continue };
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = worker.commands.send(Command::Stop);
            // A worker that panicked has logged it already.
            clean &= thread.join().unwrap_or(false);
        }
        clean
    }
}

/// The question to all workers whether they run, with the answers so far.
#[derive(Debug)]
pub struct WorkerPing {
    unanswered: BTreeSet<usize>,
    answers: mpsc::Receiver<usize>,
}

impl WorkerPing {
    /// Names of the threads that have not answered yet. Does not wait.
    pub fn unanswered(&mut self) -> Vec<String> {
        for index in self.answers.try_iter() {
            self.unanswered.remove(&index);
        }
        self.unanswered.iter().map(|index| worker_name(*index)).collect()
    }
}

/// The dependencies that are the same for every configuration.
fn authenticator_runtime(services: &Services) -> AuthenticatorRuntime {
    AuthenticatorRuntime {
        clock: services.clock.clone(),
        control: services.control.clone(),
        secret: services.secret.clone(),
        generation: services.generation.clone(),
        follows: services.follows.clone(),
    }
}

/// The reviewer of a configuration; an unchanged one is kept with its cache.
fn reviewer(config: &Config, services: &Services, before: Option<&Arc<Reviewer>>) -> Option<Arc<Reviewer>> {
    let kubernetes = config.kubernetes.as_ref()?;
    let same = before.filter(|before| before.fits(kubernetes)).cloned();
    Some(same.unwrap_or_else(|| {
        Arc::new(Reviewer::new(kubernetes, &services.control, &services.secret, services.generation.clone()))
    }))
}

/// Starts the watches that cached answers depend on.
fn watch(authenticator: &Authenticator, reviewer: Option<&Reviewer>) {
    authenticator.watch();
    if let Some(reviewer) = reviewer {
        reviewer.watch();
    }
}

/// The components of the previous configuration that the next one continues.
#[derive(Clone, Copy)]
struct Former<'f> {
    authorizers: &'f [Arc<Authorizer>],
    discoveries: &'f [Option<Arc<Discovery>>],
}

fn generation(
    config: &Arc<Config>,
    authenticator: &Arc<Authenticator>,
    reviewer: Option<Arc<Reviewer>>,
    login: Option<Arc<Login>>,
    services: &Services,
    before: Former<'_>,
) -> Generation {
    let minter = config
        .assertion
        .as_ref()
        .map(|a| Arc::new(AssertionMinter::new(a, aws_lc_rs::rand::SystemRandom::new())));
    let authorizers = config.authorizers.iter().enumerate();
    let authorizers = authorizers.map(|(at, authorizer)| {
        let (secret, follows) = (&services.secret, &services.follows);
        let before = before.authorizers.iter().find(|before| before.config().name == authorizer.name);
        let outage = before.map(|before| before.outage().clone());
        Arc::new(Authorizer::new(authorizer, at, config.generation, secret, follows, outage))
    });
    let authorizers = authorizers.collect();
    let routed_authorizers =
        RoutedAuthorizers::new(config.generation, &services.secret, &services.follows, &services.metrics);
    let routed_authorizers = Arc::new(routed_authorizers);
    let discoveries = discover(config, services, before.discoveries);
    let (config, authenticator, events) = (config.clone(), authenticator.clone(), services.events.clone());
    Generation {
        config,
        authenticator,
        reviewer,
        authorizers,
        routed_authorizers,
        login,
        events,
        minter,
        discoveries,
    }
}

/// Keeps the endpoints of each upstream up to date; for an unchanged upstream as before.
fn discover(config: &Config, services: &Services, before: &[Option<Arc<Discovery>>]) -> Discoveries {
    let metrics = services.metrics.clone();
    let services = DiscoveryServices {
        resolver: services.resolver.clone(),
        control: services.control.clone(),
        stats_of: Arc::new(move |upstream, endpoint| metrics.endpoint(upstream, endpoint)),
    };
    let upstreams = config.routing.file_upstreams();
    upstreams
        .map(|upstream| {
            let same = before.iter().flatten().find(|old| old.upstream().is_compatible_with(upstream));
            same.cloned().or_else(|| Discovery::start(upstream, &services, before).map(Arc::new))
        })
        .collect()
}

/// Maximum number of open connections, by the descriptors that this process may have. First raises
/// the soft limit to the hard one: the usual default of 1024 is too low for a gateway.
fn connection_limit() -> usize {
    let descriptors = telemetry::process::raise_descriptor_limit();
    // Each connection may need one descriptor for its upstream.
    (descriptors.saturating_sub(RESERVED_DESCRIPTORS) / 2).max(64)
}

/// Open connections of all workers.
pub(crate) fn total_open(shares: &[Handoff]) -> usize {
    shares.iter().map(|s| s.open.load(Ordering::Relaxed)).sum()
}

/// A counter that other workers read.
pub(crate) type OpenCount = Arc<AtomicUsize>;

/// The tokens of sessions that some route forwards.
fn forwarded_tokens(config: &Config) -> login::ForwardedTokens {
    let uses = |part: &Part| {
        let of = |route: &Arc<Route>| {
            let request = route.every_request_headers().flat_map(|h| h.values.iter().map(|(_, value)| value));
            let response = route.every_response_headers().flat_map(|h| h.from_caller.iter().map(|(.., v)| v));
            request.chain(response).any(|value| value.parts().contains(part))
        };
        config.routing.routes().any(of)
    };
    login::ForwardedTokens {
        access_token: config.more_routes_forward_access_token
            || uses(&Part::AccessToken)
            || config.routing.routes().any(|route| route.forward_access_token),
        id_token: uses(&Part::IdToken),
    }
}

/// Creates the login, if configured. `before` is the login that it replaces.
fn build_login(
    config: &Config,
    authenticator: &Authenticator,
    surroundings: &AuthenticatorRuntime,
    store: Option<Arc<dyn SessionStore>>,
    before: Option<&Arc<Login>>,
) -> Option<Arc<Login>> {
    let setup = login::LoginSetup {
        login: config.login.as_ref()?,
        credentials: config.into(),
        forwards: forwarded_tokens(config),
        authenticator,
    };
    Some(Login::new(setup, surroundings, store, before))
}
