//! Process: a running gateway with its logs, metrics, traces, admin listener and provider.
//!
//! Owns: connecting the crates, applying a new configuration, ordered shutdown. Does not own: when
//! that happens ([`crate::lifecycle`]), what a configuration contains ([`config`]).

mod certificates;
#[cfg(feature = "kubernetes")]
mod gateway_api;
#[cfg(not(feature = "kubernetes"))]
#[path = "no_gateway_api.rs"]
mod gateway_api;
mod heartbeat;
mod setup;
mod state;

pub use crate::process::heartbeat::Heartbeat;

use crate::process::certificates::AppliedCertificates;
use crate::process::gateway_api::{GatewayApi, HeldCluster};
use crate::process::setup::{
    AuditMetric, DeliveryMetric, MailMetric, access_log, bind_admin, control_runtime, export, session_store,
    sources, tracer, warn_about_unused, workers_for,
};
use crate::process::state::{ProcessState, ProviderHealth};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use cluster::FileBase;
use config::{
    DatabaseSettings, EffectiveConfig, EventsDatabase, FollowedIssuerConfig, GatewayApiSettings,
    LoadedConfig, ProcessSettings, ProviderSettings, RestartOnly, RouteChecker, SecurityEvents,
};
use credentials::authenticate::AuthenticatorRuntime;
use credentials::cache::{CacheSecret, Generation};
use credentials::events::Receiver;
use credentials::revocation::{FollowedIssuer, FollowedIssuers};
use gateway::admin::{self, Admin};
use gateway::config::Config;
use gateway::server::{Gateway, ReloadError, Services};
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::config::ListenAddress;
use http_engine::inherited_sockets::InheritedSockets;
use http_engine::listen::ListenOptions;
use http_engine::upstream::resolver::Resolver;
use store::Store;
use telemetry::access_log::AccessLog;
use telemetry::cgroup::Cgroup;
use telemetry::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::events::EventLogState;
use crate::exit::Failure;
use crate::provider::RunningProvider;
use crate::revocation::transports::LogTransports;
use crate::revocation::{FollowedLog, RemoteIssuers};
use crate::sessions;

/// How often metrics of names that are no longer used are removed. Reloads and changes of addresses
/// leave such names behind.
const FORGET_EVERY: Duration = Duration::from_mins(10);
/// How long the start waits for the first revocation state. It continues without it.
const REVOCATION_START_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for writing the last lines of the access log, and for closing databases.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A running gateway with everything around it.
pub struct Process {
    shared: Arc<ProcessState>,
    control: tokio::runtime::Runtime,
    metrics: Arc<Metrics>,
    access_log: Option<AccessLog>,
    settings: ProcessSettings,
    at_start: RestartOnly,
    /// Certificates of the applied configuration.
    certificates: AppliedCertificates,
    admin: Option<SocketAddr>,
    provider: Option<RunningProvider>,
    followed_issuers: FollowedIssuers,
    transports: LogTransports,
    remotes: RemoteIssuers,
    event_log: Option<EventLogState>,
    sessions: Option<Store>,
    stop: watch::Sender<bool>,
    /// The admin listener and the span exporter. They end after the gateway.
    background_tasks: Vec<JoinHandle<()>>,
}

/// Removes metrics that are no longer used, from time to time.
async fn remove_unused(metrics: Arc<Metrics>) {
    loop {
        tokio::time::sleep(FORGET_EVERY).await;
        metrics.remove_unused();
    }
}

/// The configuration of everything whose revocations the process follows.
struct LogSettings<'a> {
    provider: Option<ProviderSettings>,
    sessions: Option<DatabaseSettings>,
    events: Option<&'a SecurityEvents>,
    remotes: &'a [FollowedIssuerConfig],
}

/// The provider, the databases and the logs of revocations that the process follows.
struct Logs {
    provider: Option<RunningProvider>,
    sessions: Option<Store>,
    event_log: Option<EventLogState>,
    remotes: RemoteIssuers,
    following: Vec<Arc<FollowedLog>>,
}

impl Logs {
    /// Opens them, the provider first.
    fn open(
        settings: LogSettings<'_>,
        ways: &LogTransports,
        (workers, listen): (usize, &ListenOptions),
        control: &tokio::runtime::Runtime,
    ) -> Result<Self, Failure> {
        let LogSettings { provider, sessions, events, remotes } = settings;
        let databases = (sessions.clone(), provider.as_ref().map(|provider| provider.database.clone()));
        let start = |provider| RunningProvider::start(&provider, ways, workers, listen);
        let provider = provider.map(start).transpose()?;
        // After the provider: the database may be the provider's, which must create its history
        // first.
        let beside = provider.as_ref().map(RunningProvider::database);
        let sessions = open_session_store(sessions, beside, control)?;
        let event_log =
            follow_security_events(events, databases, (sessions.as_ref(), beside), ways, control)?;
        let remotes = RemoteIssuers::from_config(remotes, &RemoteIssuers::default(), ways, control.handle())?;
        let following = all_followed_logs(
            provider.as_ref().map(RunningProvider::followed_log),
            &remotes,
            event_log.as_ref(),
        );
        if let Some(provider) = &provider {
            // Its database was opened a moment ago, so the first state arrives soon. Then the first
            // request need not query it.
            provider.followed_log().wait_until_started(REVOCATION_START_TIMEOUT);
        }
        if let Some(event_log) = &event_log {
            event_log.followed_log().wait_until_started(REVOCATION_START_TIMEOUT);
        }
        Ok(Self { provider, sessions, event_log, remotes, following })
    }
}

impl Process {
    /// Starts everything that a configuration contains. The process log must be installed before.
    /// When it logs `listening`, all listeners accept connections.
    ///
    /// # Errors
    /// Returns why a part cannot be started, with a hint.
    pub fn start(loaded: LoadedConfig, listen: &ListenOptions) -> Result<Self, Failure> {
        let (effective, at_start) = (loaded.effective(), RestartOnly::from_loaded(&loaded));
        let certificates = AppliedCertificates(loaded.certificates());
        let LoadedConfig { config, settings, provider, sessions, revocation, events, raw, digest, .. } =
            loaded;
        let base = FileBase { checker: loaded.route_checker, routing: config.routing.clone() };
        let control = control_runtime()?;
        // Start everything that may fail before the first request can arrive.
        let admin = settings.admin.map(|address| bind_admin(address, listen, &control)).transpose()?;
        let access_log = access_log(&settings)?;
        let cgroup = Cgroup::own().ok().flatten();
        let workers = settings.workers.map_or_else(|| workers_for(cgroup.as_ref()), usize::from);
        let called = process_name(&config, provider.is_some(), &raw.telemetry.service);
        let ways = LogTransports::open(&revocation, called, control.handle())?;
        let remotes = &revocation.followed_issuers;
        let logs = LogSettings { provider, sessions, events: events.as_ref(), remotes };
        let logs = Logs::open(logs, &ways, (workers, listen), &control)?;
        let Logs { provider, sessions, event_log, remotes, following } = logs;
        let follows = FollowedIssuers::default();
        follows.replace(followed_issuers(&following, event_log.as_ref()));
        let metrics = Metrics::new(workers);
        let (stop, _) = watch::channel(false);
        let mut attendants = Vec::new();
        let queue =
            settings.otlp.as_ref().map(|otlp| export(otlp, &control, &stop, &metrics, &mut attendants));
        let tracer = tracer(settings.trace_ratio, queue, access_log.is_some());
        let secret = CacheSecret::generate(&SystemRandom::new()).map_err(|_| no_randomness())?;
        let surroundings = AuthenticatorRuntime {
            clock: Arc::new(SystemClock),
            control: control.handle().clone(),
            secret: secret.clone(),
            generation: Generation::default(),
            follows: follows.clone(),
        };
        let receiver = events.zip(event_log.as_ref()).map(|(events, log)| {
            Receiver::start(events.transmitters, log.followed_issuers(), log.log(), surroundings.clone())
        });
        let services = Services {
            clock: surroundings.clock.clone(),
            metrics: metrics.clone(),
            access_log: access_log.clone(),
            tracer,
            control: control.handle().clone(),
            secret,
            generation: surroundings.generation.clone(),
            follows: follows.clone(),
            sessions: sessions.as_ref().map(|store| session_store(store, &control)),
            events: receiver.clone(),
            resolver: Resolver::system(),
        };
        let generation = config.generation;
        let gateway = Gateway::start(config, workers, listen.clone(), &services);
        let gateway = gateway.map_err(|error| Failure::new(error.to_string()))?;
        let of_provider = provider.as_ref().map(ProviderHealth::new);
        let shared = Arc::new(ProcessState::new(gateway, effective, following, receiver, of_provider));
        metrics.reloads().started(SystemClock.now().wall, generation, &digest);
        sources(&metrics, &shared, access_log.as_ref(), cgroup);
        control.spawn(remove_unused(metrics.clone()));
        let mut process = Self {
            shared,
            control,
            metrics,
            access_log,
            settings,
            at_start,
            certificates,
            admin: None,
            provider,
            followed_issuers: follows,
            transports: ways,
            remotes,
            event_log,
            sessions,
            stop,
            background_tasks: attendants,
        };
        process.begin(admin, loaded.gateway_api.map(|settings| (settings, base, generation)))?;
        process.announce(workers, &listen.inherited);
        process.watch_provider(workers);
        Ok(process)
    }

    /// Starts what looks at a process that is complete.
    fn begin(
        &mut self,
        admin: Option<TcpListener>,
        cluster: Option<(GatewayApiSettings, FileBase, u64)>,
    ) -> Result<(), Failure> {
        // Before readiness is served: the process is not ready until it knows the cluster.
        if let Some((settings, base, generation)) = cluster {
            GatewayApi::start(settings, (base, generation), self)?;
        }
        if let Some(admin) = admin {
            self.serve_admin(admin);
        }
        self.audit();
        Ok(())
    }

    fn announce(&self, workers: usize, inherited: &InheritedSockets) {
        for (name, address) in self.addresses() {
            tracing::info!(listener = name, %address, workers, "listening");
        }
        warn_about_unused(inherited, self);
    }

    /// Audits cache entries in use until the process ends.
    fn audit(&self) {
        let shared = self.shared.clone();
        let any = move |random| shared.gateway.lock().as_ref()?.any_entry_basis(random);
        let random = || {
            let mut bytes = [0; 8];
            // Without randomness, the audit always checks the same place.
            let _ = SystemRandom::new().fill(&mut bytes);
            u64::from_le_bytes(bytes)
        };
        self.control.spawn(credentials::revocation::audit(self.followed_issuers.clone(), any, random));
    }

    /// Registers the metrics of the provider.
    fn watch_provider(&self, threads: usize) {
        let Some(provider) = &self.provider else { return };
        self.metrics.set_provider(provider.stats());
        let deliveries = provider.event_deliveries();
        self.metrics.register(move || deliveries().into_iter().map(DeliveryMetric).collect());
        let audit = provider.audit_receivers();
        self.metrics.register(move || audit().into_iter().map(AuditMetric).collect());
        let mails = provider.mails();
        self.metrics.register(move || mails().into_iter().map(MailMetric).collect());
        tracing::info!(address = %provider.address(), threads, "provider listening");
    }

    fn serve_admin(&mut self, listener: TcpListener) {
        self.admin = listener.local_addr().ok();
        let (ready, notes, config) = (self.shared.clone(), self.shared.clone(), self.shared.clone());
        let followed = self.shared.clone();
        let admin = Admin {
            live: Box::new(Vec::new),
            ready: Box::new(move || ready.unready()),
            notes: Box::new(move || notes.notes()),
            metrics: self.metrics.clone(),
            config: Box::new(move || config.effective.lock().clone()),
            followed_issuers: Box::new(move || {
                let all: Vec<_> = followed.followed_logs().iter().map(|one| one.status()).collect();
                // This value can always be serialized.
                serde_json::to_string(&all).unwrap_or_default()
            }),
        };
        let mut stopped = self.stop.subscribe();
        let stop = async move {
            // An error means that the sender is dropped, which also means stop.
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        self.background_tasks.push(self.control.spawn(admin::serve(listener, Arc::new(admin), stop)));
    }

    /// Name and address of each listener.
    pub fn addresses(&self) -> Vec<(String, ListenAddress)> {
        self.shared.gateway.lock().as_ref().map_or_else(Vec::new, Gateway::addresses)
    }

    /// Address of the admin listener. `None`: there is none.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Process settings of the configuration that was applied last.
    pub fn settings(&self) -> &ProcessSettings {
        &self.settings
    }

    /// Uses the certificates of the applied configuration that have changed. After a refused reload:
    /// its fault may be elsewhere.
    pub fn renew_certificates(&self) {
        self.certificates.renew(SystemClock.now().wall);
    }

    /// Applies a new configuration. Returns the keys that take effect at the next start only.
    ///
    /// # Errors
    /// Returns why a new listener cannot be bound or the provider cannot be built. The current
    /// configuration stays applied.
    pub fn apply(&mut self, loaded: LoadedConfig) -> Result<Vec<&'static str>, Failure> {
        let EffectiveConfig { text, postponed } = self.at_start.effective_config(&loaded);
        let certificates = AppliedCertificates(loaded.certificates());
        let LoadedConfig { mut config, settings, provider, revocation, events, digest, .. } = loaded;
        let next = match (&self.provider, &provider) {
            (Some(running), Some(provider)) => Some(running.prepare(provider)?),
            // A provider is added or removed at the next start.
            _ => None,
        };
        let remotes = RemoteIssuers::from_config(
            &revocation.followed_issuers,
            &self.remotes,
            &self.transports,
            self.control.handle(),
        )?;
        let own = next.as_ref().map(|next| &next.followed_log);
        let own = own.or_else(|| self.provider.as_ref().map(RunningProvider::followed_log));
        let following = all_followed_logs(own, &remotes, self.event_log.as_ref());
        if let (Some(receiver), Some(login)) = (&self.shared.events, &config.login) {
            // Before any session gets the longer lifetime.
            receiver.extend_retention(login.lifetime);
        }
        let before = self.followed_issuers.replace(followed_issuers(&following, self.event_log.as_ref()));
        let generation = {
            let cluster = self.hold_cluster(loaded.route_checker, &mut config);
            let cluster = cluster.inspect_err(|_| drop(self.followed_issuers.replace(before.clone())))?;
            let gateway = self.shared.gateway.lock();
            let Some(gateway) = &*gateway else { return Err(Failure::new("the gateway has ended")) };
            match gateway.reload(config) {
                Ok(()) => {}
                Err(ReloadError::Refused(error)) => {
                    self.followed_issuers.replace(before);
                    return Err(Failure::new(error.to_string()));
                }
                // It is in force, and the workers in question will serve it: what goes with it must
                // be in force too.
                Err(pending @ ReloadError::Pending { .. }) => {
                    tracing::error!("configuration applied, not by every worker yet: {pending}");
                }
            }
            if let Some(cluster) = cluster {
                cluster.commit(gateway);
            }
            gateway.config().generation
        };
        // The new configuration is final now. Open exchanges that depend on an old log continue
        // with its successor.
        self.followed_issuers.hand_over(&before);
        if let (Some(receiver), Some(events)) = (&self.shared.events, &events) {
            receiver.replace_push_tokens(&events.transmitters);
        }
        if let (Some(running), Some(next)) = (&mut self.provider, next) {
            running.take_over(next);
        }
        self.certificates = certificates;
        (self.remotes, *self.shared.followed_logs.lock()) = (remotes, following);
        *self.shared.effective.lock() = text;
        self.metrics.reloads().succeeded(SystemClock.now().wall, generation, &digest);
        self.settings.drain_timeout = settings.drain_timeout;
        self.settings.reload_on_change = settings.reload_on_change;
        Ok(postponed)
    }

    /// Puts the routes of the cluster, if there is one, into a new configuration.
    fn hold_cluster(
        &self,
        checker: RouteChecker,
        config: &mut Config,
    ) -> Result<Option<HeldCluster<'_>>, Failure> {
        let Some(cluster) = self.shared.gateway_api.get() else { return Ok(None) };
        let in_force = || {
            let in_force = self.shared.gateway.lock().as_ref().map(Gateway::config);
            in_force.ok_or_else(|| Failure::new("the gateway has ended"))
        };
        cluster.hold(checker, config, in_force).map(Some)
    }

    /// Counts a refused configuration in the metrics.
    pub fn count_refused_reload(&self) {
        self.metrics.reloads().failed();
    }

    /// Opens the file of the access log again, because it may have been rotated.
    pub fn reopen_logs(&self) {
        if let Some(log) = &self.access_log {
            log.reopen();
        }
    }

    /// Stops accepting, waits for requests in flight up to the drain timeout, and ends. Returns
    /// true when all of them finished.
    pub fn drain(self) -> bool {
        self.shared.draining.store(true, Ordering::Relaxed);
        let until = Instant::now() + self.settings.drain_timeout;
        if let Some(provider) = &self.provider {
            provider.begin_to_drain();
        }
        // Do not hold the lock: the admin listener still answers during the drain.
        let gateway = self.shared.gateway.lock().take();
        let clean = gateway.is_none_or(|gateway| gateway.drain(self.settings.drain_timeout));
        let clean = self.provider.is_none_or(|provider| provider.end(until)) && clean;
        self.stop.send_replace(true);
        self.control.block_on(async {
            for attendant in self.background_tasks {
                // A panic was reported when it happened.
                let _ = attendant.await;
            }
            if let Some(cluster) = self.shared.gateway_api.get() {
                cluster.close().await;
            }
            if let Some(event_log) = self.event_log {
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, event_log.close()).await;
            }
            if let Some(store) = self.sessions {
                // Makes pending changes durable.
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await;
            }
        });
        if self.access_log.as_ref().is_some_and(|log| !log.close(CLOSE_TIMEOUT)) {
            tracing::warn!("last access log lines not written in time");
        }
        self.control.shutdown_background();
        clean
    }
}

/// All followed logs: of the provider in this process, of remote providers, and of security events.
fn all_followed_logs(
    own: Option<&Arc<FollowedLog>>,
    remotes: &RemoteIssuers,
    event_log: Option<&EventLogState>,
) -> Vec<Arc<FollowedLog>> {
    own.into_iter().chain(remotes.all()).chain(event_log.map(EventLogState::followed_log)).cloned().collect()
}

/// The followed issuers of these logs, in the form that the gateway uses.
fn followed_issuers(
    following: &[Arc<FollowedLog>],
    event_log: Option<&EventLogState>,
) -> Vec<Arc<FollowedIssuer>> {
    let of_events = event_log.iter().flat_map(|event_log| event_log.followed_issuers()).cloned();
    following.iter().map(|following| following.followed.clone()).chain(of_events).collect()
}

fn no_randomness() -> Failure {
    Failure::new("the system has no random numbers available")
}

/// Opens the database of sessions.
fn open_session_store(
    database: Option<DatabaseSettings>,
    beside: Option<(&DatabaseSettings, &Store)>,
    control: &tokio::runtime::Runtime,
) -> Result<Option<Store>, Failure> {
    let open = |database| control.block_on(sessions::open_for("sessions", &database, beside));
    database.map(open).transpose()
}

/// Follows the log of security events. A database that is not open yet is opened here, on the
/// control thread, where it is queried.
fn follow_security_events(
    events: Option<&SecurityEvents>,
    (login, provider): (Option<DatabaseSettings>, Option<DatabaseSettings>),
    (sessions, beside): (Option<&Store>, Option<(&DatabaseSettings, &Store)>),
    ways: &LogTransports,
    control: &tokio::runtime::Runtime,
) -> Result<Option<EventLogState>, Failure> {
    let Some(events) = events else { return Ok(None) };
    let (database, open) = match &events.database {
        EventsDatabase::Own(database) => (Some((**database).clone()), None),
        EventsDatabase::Login => (login, sessions.cloned()),
        EventsDatabase::Provider => (provider, None),
    };
    let database = database.ok_or_else(|| Failure::new("there is no database for security events"))?;
    let store = match open {
        Some(store) => store,
        None => control.block_on(sessions::open_for("security events", &database, beside))?,
    };
    EventLogState::start(events, (store, &database), ways, control.handle()).map(Some)
}

/// Name of this process for operators.
fn process_name(config: &Config, has_provider: bool, service: &str) -> coherence::PeerName {
    let kind = match (config.listeners.is_empty(), has_provider) {
        (false, false) => "gateway",
        (false, true) => "gateway+provider",
        (true, _) => "provider",
    };
    crate::revocation::names::called(
        kind,
        service,
        config.listeners.iter().next().map(|listener| &listener.address),
    )
}
