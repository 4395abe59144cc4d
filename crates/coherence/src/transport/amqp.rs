//! AMQP 1.0 transport: over ActiveMQ Classic, Artemis, RabbitMQ or IBM MQ.
//!
//! Owns: the connection to one of the brokers, a link for each topic and direction, and when the
//! connection counts as down. Does not own: the content of messages, or who may read them at the
//! broker.
//!
//! One implementation serves all brokers, so it uses only what IBM MQ supports, which is the least:
//!
//! - one session on a connection, and no transactions;
//! - links named by their topic, and requested with the capability `topic`;
//! - subscriptions that are private and end with the connection;
//! - messages that are not persistent, are settled when they are sent (AMQP 1.0 part 2.6.12), and
//!   live for [`TIME_TO_LIVE`].
//!
//! Brokers differ in how a topic is written as an address: [`Addressing`].
//!
//! One task owns the connection. Each link is a task of its own, so that a broker that accepts no
//! messages of one topic delays no other. Links end with the connection, and the next connection
//! attaches them anew.

mod backoff;
mod diagnosis;
mod link;
mod socket;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use fe2o3_amqp::connection::{Connection, ConnectionHandle};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::{Receiver, Sender, Session};
use outage::Outage;
use parking_lot::Mutex;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use self::link::LinkEnd;
use self::socket::{IDLE_TIMEOUT, Socket, SocketGuard};
use super::link::wait_ended;
use super::subscribers::Subscribers;
use super::{QUEUE, Subscription, Topic, Transport, TransportState};
use crate::transport::amqp::backoff::Backoff;
use crate::transport::amqp::diagnosis::Broker;
use crate::wire;

/// How long a broker keeps a message for a slow subscriber: as long as a lease, after which the
/// message is useless.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(5);

/// Time limit for an answer of the broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for closing a link or connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// Largest frame, in bytes: a message and its envelope.
const MAX_FRAME: u32 = 64 * 1024;

/// Number of connections that this process has opened.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// How a topic is written as an address of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// `NAME`: Artemis, IBM MQ.
    Plain,
    /// `topic://NAME`: ActiveMQ Classic.
    Scheme,
    /// `/topic/NAME`: RabbitMQ.
    Path,
}

impl Addressing {
    fn address(self, topic: &Topic) -> String {
        match self {
            Self::Plain => topic.to_string(),
            Self::Scheme => format!("topic://{topic}"),
            Self::Path => format!("/topic/{topic}"),
        }
    }
}

/// How this client authenticates, by a SASL mechanism (AMQP 1.0 part 5.3).
#[derive(Clone, PartialEq, Eq)]
pub enum AmqpLogin {
    /// ANONYMOUS: without credentials.
    Anonymous,
    /// EXTERNAL: by the client certificate of the TLS connection.
    External,
    /// PLAIN: with an account of the broker.
    Plain {
        /// Name of the account.
        user: String,
        /// Password of the account; never printed.
        password: String,
    },
}

impl AmqpLogin {
    fn mechanism(&self) -> &'static str {
        match self {
            Self::Anonymous => "ANONYMOUS",
            Self::External => "EXTERNAL",
            Self::Plain { .. } => "PLAIN",
        }
    }

    /// The login, as diagnosis sentences name it.
    fn description(&self) -> String {
        match self {
            Self::Anonymous => "without credentials (ANONYMOUS)".into(),
            Self::External => "by certificate (EXTERNAL)".into(),
            Self::Plain { user, .. } => format!("of \"{user}\" (PLAIN)"),
        }
    }

    fn profile(&self) -> SaslProfile {
        match self {
            Self::Anonymous => SaslProfile::Anonymous,
            Self::External => SaslProfile::External,
            Self::Plain { user, password } => {
                SaslProfile::Plain { username: user.clone(), password: password.clone() }
            }
        }
    }
}

impl fmt::Debug for AmqpLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description())
    }
}

/// TLS from the first byte on, as on port 5671.
#[derive(Debug, Clone)]
pub struct AmqpTls {
    /// Trusted authorities, and the client certificate.
    pub config: Arc<rustls::ClientConfig>,
    /// Name that the broker's certificate must have; `None`: the host of the broker's address.
    pub name: Option<String>,
}

/// Addresses of brokers, and how to connect to them.
#[derive(Debug, Clone)]
pub struct AmqpSettings {
    /// `host:port` of each broker that carries the same topics; they are tried in order.
    pub brokers: Vec<String>,
    /// TLS settings; `None`: not encrypted.
    pub tls: Option<AmqpTls>,
    /// How this client authenticates.
    pub login: AmqpLogin,
    /// How a topic is written as an address.
    pub addressing: Addressing,
    /// Random, and different for each transport: makes its name unique at the broker, and spreads
    /// its attempts in time.
    pub seed: u64,
}

/// A transport over a broker. Its task and its socket end with it.
#[derive(Debug)]
pub struct Amqp {
    shared: Arc<Shared>,
    /// Requests to the task; the task ends when this sender is dropped.
    request_sender: mpsc::UnboundedSender<LinkRequest>,
}

impl Amqp {
    /// Begins to connect, on the runtime that it is called on.
    pub fn start(settings: AmqpSettings) -> Self {
        let (state, _) = watch::channel(TransportState::Starting);
        let shared = Arc::new(Shared {
            state,
            outage: Outage::new("broker amqp"),
            health: Mutex::default(),
            outgoing: Mutex::default(),
            subscribers: Subscribers::default(),
        });
        let (request_sender, requests) = mpsc::unbounded_channel();
        let keeper = ConnectionTask { settings: Arc::new(settings), shared: shared.clone(), requests };
        tokio::spawn(keeper.run());
        Self { shared, request_sender }
    }
}

impl Transport for Amqp {
    fn send(&self, topic: &Topic, message: Bytes) {
        if message.len() > wire::MAX_MESSAGE || !self.shared.health.lock().connected {
            return;
        }
        let mut outgoing = self.shared.outgoing.lock();
        let message = match outgoing.get(topic).map(|queue| queue.try_send(message.clone())) {
            // The link has ended, or was never attached.
            None | Some(Err(mpsc::error::TrySendError::Closed(_))) => message,
            Some(Ok(()) | Err(mpsc::error::TrySendError::Full(_))) => return,
        };
        let (to, queue) = mpsc::channel(QUEUE);
        let _ = to.try_send(message);
        outgoing.insert(topic.clone(), to);
        let _ = self.request_sender.send(LinkRequest::Sender(topic.clone(), queue));
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        let subscription = self.shared.subscribers.add(topic.clone());
        let _ = self.request_sender.send(LinkRequest::Receiver(topic));
        subscription
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.shared.state.subscribe()
    }
}

/// A link that must be attached.
#[derive(Debug)]
enum LinkRequest {
    Sender(Topic, mpsc::Receiver<Bytes>),
    Receiver(Topic),
}

/// What the transport, its task and its links share.
#[derive(Debug)]
struct Shared {
    state: watch::Sender<TransportState>,
    outage: Outage,
    health: Mutex<Health>,
    /// Queues of links, of this connection or of the one before.
    outgoing: Mutex<HashMap<Topic, mpsc::Sender<Bytes>>>,
    /// Subscribers, which outlive connections.
    subscribers: Subscribers,
}

/// What the state depends on, apart from its text.
#[derive(Debug, Default)]
struct Health {
    connected: bool,
    /// Number of links whose broker accepts nothing at present.
    stuck: usize,
}

/// Guard: a link counts as stuck until this is dropped.
struct StuckGuard(Arc<Shared>);

impl Drop for StuckGuard {
    fn drop(&mut self) {
        let mut health = self.0.health.lock();
        health.stuck -= 1;
        if health.stuck == 0 && health.connected {
            self.0.publish_state(TransportState::Up);
            self.0.outage.succeeded();
        }
    }
}

impl Shared {
    /// Notes that there is a connection, or why there is none.
    fn set_connected(&self, state: TransportState) {
        let mut health = self.health.lock();
        health.connected = state == TransportState::Up;
        self.publish_state(state);
    }

    /// Notes that a link is stuck. A broker that accepts nothing counts as down, although it may
    /// still deliver.
    fn mark_stuck(self: &Arc<Self>, why: String) -> StuckGuard {
        let mut health = self.health.lock();
        health.stuck += 1;
        self.publish_state(TransportState::Down(why.into()));
        StuckGuard(self.clone())
    }

    /// New queues for the topics that were sent to before; what waits in the old ones is dropped.
    fn renew_queues(&self) -> Vec<(Topic, mpsc::Receiver<Bytes>)> {
        let renew = |(topic, to): (&Topic, &mut mpsc::Sender<Bytes>)| {
            let (fresh, queue) = mpsc::channel(QUEUE);
            *to = fresh;
            (topic.clone(), queue)
        };
        self.outgoing.lock().iter_mut().map(renew).collect()
    }

    /// Publishes the state, and reports a failure.
    fn publish_state(&self, state: TransportState) {
        if let TransportState::Down(why) = &state {
            self.outage.failed(why);
        }
        self.state.send_if_modified(|known| {
            let news = *known != state;
            *known = state;
            news
        });
    }

    /// Notes that a connection has lasted for a while.
    fn connection_lasted(&self) {
        if self.health.lock().stuck == 0 {
            self.outage.succeeded();
        }
    }
}

/// The task that owns the connection.
struct ConnectionTask {
    settings: Arc<AmqpSettings>,
    shared: Arc<Shared>,
    requests: mpsc::UnboundedReceiver<LinkRequest>,
}

/// A connection with its session and links.
struct ActiveConnection {
    broker: String,
    links: JoinSet<LinkEnd>,
    /// Topics with a receiving link.
    receiving: HashSet<Topic>,
    session: SessionHandle<()>,
    connection: ConnectionHandle<()>,
    /// Last, so that the socket still exists while the other fields are dropped.
    hold: SocketGuard,
}

/// The transport was dropped.
struct Dropped;

/// A connection that has ended.
struct ConnectionEnd {
    why: String,
    /// Whether it had lasted for a while.
    steady: bool,
}

impl ConnectionTask {
    async fn run(mut self) {
        if self.settings.brokers.is_empty() {
            self.shared.publish_state(TransportState::Down("no broker is configured".into()));
            return wait_dropped(&mut self.requests).await;
        }
        let settings = self.settings.clone();
        let mut backoff = Backoff::new(settings.seed);
        let mut causes = Vec::new();
        for broker in settings.brokers.iter().cycle() {
            let live = tokio::select! {
                biased;
                () = wait_dropped(&mut self.requests) => return,
                live = open(broker, &settings, &self.shared) => live,
            };
            match live {
                Ok(live) => match self.serve_until_end(live).await {
                    Err(Dropped) => return,
                    Ok(ConnectionEnd { steady: true, .. }) => {
                        backoff.succeeded();
                        causes.clear();
                    }
                    Ok(ConnectionEnd { why, .. }) => causes.push(why),
                },
                Err(cause) => causes.push(cause),
            }
            // All brokers were tried, and none works.
            if causes.len() == settings.brokers.len() {
                self.shared.publish_state(TransportState::Down(causes.join("; ").into()));
                causes.clear();
                if let Err(Dropped) = self.pause(&mut backoff).await {
                    return;
                }
            }
        }
    }

    /// Serves a connection until it ends.
    async fn serve_until_end(&mut self, mut live: ActiveConnection) -> Result<ConnectionEnd, Dropped> {
        let began = Instant::now();
        if *self.shared.state.borrow() == TransportState::Starting {
            tracing::info!(transport = "AMQP", broker = live.broker, "message transport connected");
        }
        self.shared.set_connected(TransportState::Up);
        let shared = self.shared.clone();
        let why = wait_ended(self.serve(&mut live), || shared.connection_lasted()).await?;
        self.shared.set_connected(TransportState::Down(why.as_str().into()));
        Ok(ConnectionEnd { why, steady: began.elapsed() >= STABLE_AFTER })
    }

    /// Attaches the requested links, until the connection ends; returns why.
    async fn serve(&mut self, live: &mut ActiveConnection) -> Result<String, Dropped> {
        // Topics that were subscribed to while the other links were attached have no link yet.
        for topic in self.shared.subscribers.topics() {
            if let Err(cause) = live.attach(LinkRequest::Receiver(topic), &self.settings, &self.shared).await
            {
                return Ok(cause);
            }
        }
        loop {
            let request = tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => request,
                    None => {
                        let _ = timeout(CLOSE_TIMEOUT, live.connection.close()).await;
                        return Err(Dropped);
                    }
                },
                Some(ended) = live.links.join_next() => match ended {
                    // The topic may have been subscribed to again while the link was detached.
                    Ok(LinkEnd::NoSubscriber(topic)) => {
                        live.receiving.remove(&topic);
                        if !self.shared.subscribers.topics().contains(&topic) {
                            continue;
                        }
                        LinkRequest::Receiver(topic)
                    }
                    Ok(LinkEnd::Broken(cause)) => return Ok(live.cause(cause, &self.settings).await),
                    Err(error) => return Ok(format!("a link task failed: {error}")),
                },
                outcome = live.connection.on_close() => {
                    let broker = Broker { address: &live.broker, login: &self.settings.login };
                    return Ok(broker.ended(&outcome));
                }
            };
            if let Err(cause) = live.attach(request, &self.settings, &self.shared).await {
                return Ok(cause);
            }
        }
    }

    async fn pause(&mut self, backoff: &mut Backoff) -> Result<(), Dropped> {
        tokio::select! {
            () = wait_dropped(&mut self.requests) => Err(Dropped),
            () = tokio::time::sleep(backoff.failed()) => Ok(()),
        }
    }
}

/// Waits until the transport is dropped. Requests that arrive meanwhile are ignored: the next
/// connection looks up what it needs.
async fn wait_dropped(requests: &mut mpsc::UnboundedReceiver<LinkRequest>) {
    while requests.recv().await.is_some() {}
}

/// Opens a connection with every link that is known to be needed; the error says why that failed.
async fn open(
    address: &str,
    settings: &Arc<AmqpSettings>,
    shared: &Arc<Shared>,
) -> Result<ActiveConnection, String> {
    let broker = Broker { address, login: &settings.login };
    let connected = timeout(ANSWER_TIMEOUT, connect(broker, settings)).await;
    let (mut connection, hold) = connected.map_err(|_| broker.timed_out())??;
    let session = match Session::begin(&mut connection).await {
        Ok(session) => session,
        Err(error) => return Err(cause_of_end(broker, broker.session(&error), &mut connection).await),
    };
    let (links, receiving) = (JoinSet::new(), HashSet::new());
    let mut live =
        ActiveConnection { broker: address.to_owned(), links, receiving, session, connection, hold };
    for topic in shared.subscribers.topics() {
        live.attach(LinkRequest::Receiver(topic), settings, shared).await?;
    }
    for (topic, queue) in shared.renew_queues() {
        live.attach(LinkRequest::Sender(topic, queue), settings, shared).await?;
    }
    Ok(live)
}

/// Opens a connection (AMQP 1.0 part 2.4), over TLS if so set.
async fn connect(
    broker: Broker<'_>,
    settings: &AmqpSettings,
) -> Result<(ConnectionHandle<()>, SocketGuard), String> {
    let addresses: Vec<_> =
        lookup_host(broker.address).await.map_err(|error| broker.unresolved(&error))?.collect();
    let tcp = TcpStream::connect(&*addresses).await.map_err(|error| broker.socket(&error))?;
    let (socket, hold) = Socket::new(tcp).map_err(|error| broker.socket(&error))?;
    let host = broker.address.rsplit_once(':').map_or(broker.address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let silence = u32::try_from(IDLE_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    let builder = Connection::builder()
        // IBM MQ accepts letters, digits and one of `%/._`. Each connection has a name of its own:
        // a broker refuses a name whose former connection has ended without the broker noticing it
        // yet.
        .container_id(format!("postern.{:016x}.{}", settings.seed, CONNECTIONS.fetch_add(1, Relaxed)))
        .hostname(host)
        .sasl_hostname(host)
        .sasl_profile(settings.login.profile())
        .max_frame_size(MAX_FRAME)
        .channel_max(0)
        // Makes the peer send something every half of it.
        .idle_time_out(silence);
    let opened = match &settings.tls {
        None => builder.scheme("amqp").open_with_stream(socket).await,
        Some(tls) => {
            let builder = builder.scheme("amqps").domain(tls.name.as_deref().unwrap_or(host));
            let connector = TlsConnector::from(tls.config.clone());
            builder.alt_tls_establishment(true).rustls_connector(connector).open_with_stream(socket).await
        }
    };
    opened.map(|connection| (connection, hold)).map_err(|error| broker.opening(&error))
}

/// The given cause, or the one that the connection ended with.
async fn cause_of_end(
    broker: Broker<'_>,
    cause: Option<String>,
    connection: &mut ConnectionHandle<()>,
) -> String {
    match cause {
        Some(cause) => cause,
        None => match timeout(CLOSE_TIMEOUT, connection.on_close()).await {
            Ok(outcome) => broker.ended(&outcome),
            Err(_) => broker.timed_out(),
        },
    }
}

impl ActiveConnection {
    async fn cause(&mut self, cause: Option<String>, settings: &AmqpSettings) -> String {
        let broker = Broker { address: &self.broker, login: &settings.login };
        cause_of_end(broker, cause, &mut self.connection).await
    }

    async fn attach(
        &mut self,
        request: LinkRequest,
        settings: &Arc<AmqpSettings>,
        shared: &Arc<Shared>,
    ) -> Result<(), String> {
        match timeout(ANSWER_TIMEOUT, self.try_attach(request, settings, shared)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(self.cause(cause, settings).await),
            Err(_) => Err(Broker { address: &self.broker, login: &settings.login }.timed_out()),
        }
    }

    async fn try_attach(
        &mut self,
        request: LinkRequest,
        settings: &Arc<AmqpSettings>,
        shared: &Arc<Shared>,
    ) -> Result<(), Option<String>> {
        let broker = Broker { address: &self.broker, login: &settings.login };
        let context = link::Context {
            broker: self.broker.clone(),
            settings: settings.clone(),
            last_read: self.hold.last_read.clone(),
        };
        match request {
            LinkRequest::Sender(topic, queue) => {
                let address = settings.addressing.address(&topic);
                let attached = link::sender(&topic, &address).attach(&mut self.session).await;
                let sender: Sender = attached.map_err(|error| broker.sender(&address, &error))?;
                self.links.spawn(link::send(sender, address, queue, shared.clone(), context));
            }
            LinkRequest::Receiver(topic) if !self.receiving.contains(&topic) => {
                let address = settings.addressing.address(&topic);
                let attached = link::receiver(&topic, &address).attach(&mut self.session).await;
                let receiver: Receiver = attached.map_err(|error| broker.receiver(&address, &error))?;
                self.receiving.insert(topic.clone());
                self.links.spawn(link::receive(receiver, address, topic, shared.clone(), context));
            }
            LinkRequest::Receiver(_) => {}
        }
        Ok(())
    }
}
