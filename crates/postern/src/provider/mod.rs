//! Provider in this process: its database, its threads, its server.
//!
//! Owns: opening the database and the secret ([`open`]), starting and stopping a provider
//! ([`RunningProvider`]), replacing its configuration. Does not own: what a provider does (`idp`),
//! what it stores (`store`), its configuration keys ([`config`]).
//!
//! It runs on its own threads, named `provider`: hashing, signing and the database must not delay
//! the gateway's workers, and the workers must not delay them.
//!
//! 1. The address is bound, and [`open`] opens the database and the secret.
//! 2. The provider is built, and `server::serve` answers requests.
//! 3. In parallel, `idp::maintenance` runs, and a task checks the database for `/readyz`.
//! 4. A reload builds another `Provider` over the same database and replaces [`Live`] as a whole.

mod connection;
mod outbound;
mod revocation_api;
mod secret;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::SystemRandom;
use axum::Router;
use coherence::event_loops::QueryAnswers;
use coherence::secret::SharedSecret;
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::listen::ListenOptions;
use http_engine::outbound_proxy::OutboundProxies;
use idp::audit_receivers::AuditSample;
use idp::mailer::MailSample;
use idp::receivers::DeliverySample;
use idp::secrets::Purpose;
use idp::{Entropy as _, Parts, ProviderFault, Secrets};
use outbound::Https;
use parking_lot::{Mutex, RwLock};
use server::Live;
use store::revocation_log::SetEpoch;
use store::{Dialect, Epoch, OpenError, Store, StoreError};
use telemetry::metrics::{DatabaseState, ProviderStats};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

use crate::exit::Failure;
use crate::revocation::transports::{LogTransports, combine_transports, database_transports};
use crate::revocation::{FollowedLog, LogSource, new_view};

/// Time between two checks of the database for `/readyz`.
const HEALTH_INTERVAL: Duration = Duration::from_secs(2);
/// Largest number of name conflicts that are logged one by one.
const MAX_LOGGED_CONFLICTS: usize = 20;
/// Time limit for the work that is left on the provider's threads at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for closing the database at shutdown: SQLite copies its write-ahead log then.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Configuration, database and secret of a provider, ready for use.
pub struct OpenedProvider {
    /// The checked configuration.
    pub checked: idp::config::Checked,
    /// The database with an up-to-date schema.
    pub store: Store,
    /// The secret. It has been verified against the database.
    pub secrets: Secrets,
    /// Text of the secret, for a provider that a reload builds.
    text: Zeroizing<String>,
}

/// Opens the database and the secret of a configuration, for `serve` and for admin commands that
/// run at the same time. Creates the secret of a new database. Call it within a tokio runtime,
/// where changes then run.
///
/// # Errors
/// A message in one line, with a hint.
pub async fn open(provider: &config::ProviderSettings) -> Result<OpenedProvider, Failure> {
    let checked = check(&provider.config)?;
    let text = secret::read_or_make(&provider.secret, &provider.database)?;
    let secrets = parse(&text)?;
    let store = Store::open(&provider.database.url, drawn_epoch()?).await;
    let store = store.map_err(|error| open_error(&provider.database, &error))?;
    match store.key_ring().await {
        Ok(Some(row)) if secrets.open(Purpose::KeyRing, "", &row.content).is_none() => {
            let path = provider.secret.path.display();
            Err(Failure::new(format!(
                "the provider's secret in {path} is not that of its database; restore the right secret, or \
                 name another database"
            )))
        }
        Ok(_) => Ok(OpenedProvider { checked, store, secrets, text }),
        Err(error) => Err(open_error(&provider.database, &OpenError::Database(error))),
    }
}

fn drawn_epoch() -> Result<Epoch, Failure> {
    let mut epoch = [0; 16];
    SystemRandom::new().fill(&mut epoch).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Epoch(epoch))
}

fn check(config: &idp::Config) -> Result<idp::config::Checked, Failure> {
    config.check().map_err(|faults| Failure::new(format!("the provider's configuration is faulty: {faults}")))
}

fn parse(text: &str) -> Result<Secrets, Failure> {
    Secrets::parse(text).map_err(|error| Failure::new(error.to_string()))
}

/// The URL may contain a password, so the message does not show it.
fn open_error(database: &config::DatabaseSettings, error: &OpenError) -> Failure {
    let (place, hint) = match &database.file {
        Some(file) => (format!(" {}", file.display()), "is the folder there, and may this user write to it?"),
        None => (String::new(), "is it running, and may this user connect? check `provider.database`"),
    };
    Failure::new(format!("the provider's database{place} cannot be opened: {error}; {hint}"))
}

/// A provider that serves requests.
pub struct RunningProvider {
    runtime: tokio::runtime::Runtime,
    live: Arc<RwLock<Arc<Live>>>,
    store: Store,
    /// Settings of the database. They do not change while the process runs.
    database: config::DatabaseSettings,
    secret: Zeroizing<String>,
    stats: Arc<ProviderStats>,
    provider: Arc<RwLock<Arc<idp::Provider>>>,
    maintenance_task: JoinHandle<()>,
    server_task: JoinHandle<bool>,
    address: SocketAddr,
    unready: Arc<Mutex<Option<String>>>,
    stop: watch::Sender<bool>,
    transports: LogTransports,
    followed_log: Arc<FollowedLog>,
    answers: QueryAnswers<Store>,
    /// Generations of the secret that consumers share.
    generations: Vec<u8>,
}

impl RunningProvider {
    /// Opens the database, binds the address and serves, on `threads` threads.
    ///
    /// # Errors
    /// A message in one line, with a hint.
    pub fn start(
        config: &config::ProviderSettings,
        ways: &LogTransports,
        threads: usize,
        listen: &ListenOptions,
    ) -> Result<Self, Failure> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads.max(1)).thread_name("provider").enable_all().build();
        let runtime =
            runtime.map_err(|error| Failure::new(format!("cannot start the provider's threads: {error}")))?;
        let guard = runtime.enter();
        let listener = server::bind(config.address, listen)?;
        let address = listener.local_addr().unwrap_or(config.address);
        let OpenedProvider { checked, store, secrets, text } = runtime.block_on(open(config))?;
        if store.dialect() == Dialect::Sqlite {
            // The file may have been restored since. Then consumers know other events under the
            // same numbers, so begin a new history.
            let history = SetEpoch(drawn_epoch()?);
            let written = runtime.block_on(store.write(history));
            written.map_err(|error| open_error(&config.database, &OpenError::Database(error)))?;
        }
        let (following, answers) =
            follow(&checked, config, (&store, &config.database), &secrets, ways, runtime.handle())?;
        let facts = revocation_router(&checked, config, &secrets, &answers)?;
        let provider = runtime.block_on(build(checked, store.clone(), secrets, config.proxies.clone()))?;
        let stats = Arc::<ProviderStats>::default();
        let live = Arc::new(RwLock::new(Live::new(&provider, config, &stats, facts)));
        let (stop, stopped) = watch::channel(false);
        let serving = runtime.spawn(server::serve(listener, live.clone(), stopped));
        let tending = runtime.spawn(maintain(provider.clone(), following.clone()));
        let provider = Arc::new(RwLock::new(provider));
        let unready = Arc::new(Mutex::new(None));
        runtime.spawn(check_database(store.clone(), unready.clone(), stats.clone()));
        runtime.spawn(log_name_conflicts(store.clone()));
        drop(guard);
        let secret = text;
        Ok(Self {
            runtime,
            live,
            store,
            database: config.database.clone(),
            secret,
            stats,
            provider,
            maintenance_task: tending,
            server_task: serving,
            address,
            unready,
            stop,
            transports: ways.clone(),
            followed_log: following,
            answers,
            generations: config.generations.clone(),
        })
    }

    /// The database of the provider, which other parts may share.
    pub fn database(&self) -> (&config::DatabaseSettings, &Store) {
        (&self.database, &self.store)
    }

    /// The provider's log, which this process follows too.
    pub fn followed_log(&self) -> &Arc<FollowedLog> {
        &self.followed_log
    }

    /// Returns a function that counts the deliveries of security events to receivers.
    pub fn event_deliveries(&self) -> impl Fn() -> Vec<DeliverySample> + Send + Sync + 'static {
        let provider = self.provider.clone();
        move || provider.read().delivery_samples()
    }

    /// Returns a function that reports how far the receivers of the audit log are.
    pub fn audit_receivers(&self) -> impl Fn() -> Vec<AuditSample> + Send + Sync + 'static {
        let provider = self.provider.clone();
        move || provider.read().audit_samples()
    }

    /// Runtime of the provider's threads.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        self.runtime.handle()
    }

    /// Returns a function that counts the mails of this process by outcome.
    pub fn mails(&self) -> impl Fn() -> Vec<MailSample> + Send + Sync + 'static {
        let provider = self.provider.clone();
        move || provider.read().mail_samples()
    }

    /// Address that the provider listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters of the provider's responses.
    pub fn stats(&self) -> Arc<ProviderStats> {
        self.stats.clone()
    }

    /// Returns a function that says why requests should not be sent here, if there is a reason.
    pub fn unready(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let unready = self.unready.clone();
        move || unready.lock().clone()
    }

    /// Returns a function that describes a degraded provider that still answers requests.
    pub fn degraded(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let storing = self.store.storage_health();
        move || storing.fault().map(|error| format!("provider: recent changes could not be stored: {error}"))
    }

    /// Builds the provider of a new configuration over the same database.
    /// [`RunningProvider::take_over`] activates it.
    ///
    /// # Errors
    /// Returns why it cannot be built. Nothing has changed then.
    pub fn prepare(&self, config: &config::ProviderSettings) -> Result<NextProvider, Failure> {
        let checked = check(&config.config)?;
        let secrets = parse(&self.secret)?;
        let guard = self.runtime.enter();
        let same = checked.issuer().as_str() == &*self.followed_log.followed.issuer;
        let (following, answers) = if same && self.generations == config.generations {
            (self.followed_log.clone(), self.answers.clone())
        } else {
            let (database, handle) = ((&self.store, &self.database), self.runtime.handle());
            follow(&checked, config, database, &secrets, &self.transports, handle)?
        };
        drop(guard);
        let facts = revocation_router(&checked, config, &secrets, &answers)?;
        let provider =
            self.runtime.block_on(build(checked, self.store.clone(), secrets, config.proxies.clone()))?;
        let live = Live::new(&provider, config, &self.stats, facts);
        let generations = config.generations.clone();
        Ok(NextProvider { live, provider, followed_log: following, answers, generations })
    }

    /// Serves the prepared provider from the next request on. Requests in flight finish with the
    /// old one.
    pub fn take_over(&mut self, next: NextProvider) {
        let old = std::mem::replace(&mut *self.live.write(), next.live);
        self.maintenance_task.abort();
        let replaced = std::mem::replace(&mut *self.provider.write(), next.provider.clone());
        self.runtime.spawn(async move { write_failures(&replaced).await });
        self.maintenance_task = self.runtime.spawn(maintain(next.provider, next.followed_log.clone()));
        (self.followed_log, self.answers) = (next.followed_log, next.answers);
        self.generations = next.generations;
        // Dropping the last reference waits for the password threads.
        self.runtime.spawn_blocking(move || drop(old));
    }

    /// Stops accepting. Requests in flight continue until [`RunningProvider::end`].
    pub fn begin_to_drain(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for requests in flight until `until`, and ends. Returns true when all of them
    /// finished.
    pub fn end(self, until: Instant) -> bool {
        self.begin_to_drain();
        let left = until.saturating_duration_since(Instant::now());
        let Self { runtime, store, server_task: serving, maintenance_task: tending, provider, .. } = self;
        let clean = runtime.block_on(async {
            let clean = tokio::time::timeout(left, serving).await;
            tending.abort();
            let provider = provider.read().clone();
            // The store reports its own outage.
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, write_failures(&provider)).await;
            // Makes pending changes durable.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await;
            matches!(clean, Ok(Ok(true)))
        });
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        clean
    }
}

/// Runs the maintenance of a provider. It reads its keys again when any node revokes something,
/// because that may be a key.
async fn maintain(provider: Arc<idp::Provider>, following: Arc<FollowedLog>) {
    let heed = async {
        loop {
            following.changed().await;
            provider.request_key_refresh();
        }
    };
    tokio::join!(idp::maintain(provider.clone()), heed);
}

/// Writes what a provider that ends has counted for the audit log.
async fn write_failures(provider: &idp::Provider) {
    if let Err(error) = provider.write_failures(true).await {
        tracing::warn!(%error, "failed sign-ins and grants not recorded");
    }
}

/// Logs user names from before normalization that need a decision by an operator. It changes
/// nothing.
async fn log_name_conflicts(store: Store) {
    match store.name_conflicts().await {
        Ok(conflicts) => {
            for conflict in conflicts.iter().take(MAX_LOGGED_CONFLICTS) {
                tracing::warn!(%conflict, "user name conflict needs a decision");
            }
            if conflicts.len() > MAX_LOGGED_CONFLICTS {
                let more = conflicts.len() - MAX_LOGGED_CONFLICTS;
                tracing::warn!(more, "more user name conflicts; run `postern admin user conflicts`");
            }
        }
        Err(error) if error.is_outage() => {}
        Err(error) => {
            tracing::warn!(%error, "comparing user names failed; run `postern admin user conflicts`");
        }
    }
}

/// A prepared provider that replaces the running one.
pub struct NextProvider {
    live: Arc<Live>,
    provider: Arc<idp::Provider>,
    /// The provider's log, which this process follows too.
    pub followed_log: Arc<FollowedLog>,
    answers: QueryAnswers<Store>,
    generations: Vec<u8>,
}

/// Follows the log of the provider in this process and answers queries about it, including its own.
/// Its nodes exchange messages over their database, and all other consumers over a message broker.
fn follow(
    checked: &idp::config::Checked,
    config: &config::ProviderSettings,
    (store, database): (&Store, &config::DatabaseSettings),
    secrets: &Secrets,
    ways: &LogTransports,
    on: &Handle,
) -> Result<(Arc<FollowedLog>, QueryAnswers<Store>), Failure> {
    let mut transports = database_transports(database, store.outage());
    transports.extend(ways.broker.clone());
    let shared = shared_secret(config, secrets)?;
    let source = LogSource {
        issuer: checked.issuer().as_str().into(),
        tags: shared.tag_key(),
        keys: shared.message_keys(),
        transport: combine_transports(transports),
        lease: ways.lease,
        denylist_source: store.clone(),
        consumer_name: ways.called.clone(),
        view: new_view(),
        counts: Arc::default(),
        outage: store.outage().another_way(),
    };
    let mut following = FollowedLog::start(source, on)?;
    let answers = following.answer(store, on);
    Ok((Arc::new(following), answers))
}

/// HTTP endpoints for consumers that follow the provider from other processes.
fn revocation_router(
    checked: &idp::config::Checked,
    config: &config::ProviderSettings,
    secrets: &Secrets,
    answers: &QueryAnswers<Store>,
) -> Result<Router, Failure> {
    Ok(revocation_api::router(checked.issuer().path(), shared_secret(config, secrets)?, answers.clone()))
}

/// Secret that the provider's nodes share with their consumers.
///
/// # Errors
/// None for a checked configuration.
pub fn shared_secret(config: &config::ProviderSettings, secrets: &Secrets) -> Result<SharedSecret, Failure> {
    let shared = secrets.shared_secret(&config.generations);
    shared.map_err(|error| Failure::new(format!("provider.revocation.secret_generations: {error}")))
}

async fn build(
    checked: idp::config::Checked,
    store: Store,
    secrets: Secrets,
    proxies: OutboundProxies,
) -> Result<Arc<idp::Provider>, Failure> {
    let parts = Parts {
        store,
        secrets,
        clock: Arc::new(|| SystemClock.now().wall),
        entropy: Arc::new(SystemRandom::new()),
        outbound: Arc::new(Https::new(proxies)),
    };
    let started = idp::Provider::start(checked, parts).await;
    started.map_err(|fault: ProviderFault| Failure::new(format!("the provider does not start: {fault}")))
}

impl Live {
    fn new(
        provider: &Arc<idp::Provider>,
        config: &config::ProviderSettings,
        stats: &Arc<ProviderStats>,
        facts: Router,
    ) -> Arc<Self> {
        Arc::new(Self {
            router: idp::router(provider.clone()).merge(facts),
            tls: config.tls.clone().map(TlsAcceptor::from),
            trusted_proxies: config.trusted_proxies.clone(),
            path: provider.issuer().path().into(),
            stats: stats.clone(),
        })
    }
}

/// Checks the database periodically and stores what is wrong with it. A database that answers but
/// cannot prove that it is current counts as wrong, because its consumers get no answers.
async fn check_database(store: Store, unready: Arc<Mutex<Option<String>>>, stats: Arc<ProviderStats>) {
    loop {
        let seen = store.prove_head().await.err().as_ref().map(unproven_message);
        let writable = store.storage_health().fault().is_none();
        stats.set_database_state(DatabaseState { proven: seen.is_none(), writable });
        *unready.lock() = seen;
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}

fn unproven_message(error: &StoreError) -> String {
    format!("provider: the database cannot prove that it is current, so consumers get no answers: {error}")
}
