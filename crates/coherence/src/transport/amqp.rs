//! Over a broker that speaks AMQP 1.0: ActiveMQ Classic, Artemis, RabbitMQ, IBM MQ.
//!
//! Owns: the connection to one of the brokers, a link for each topic and direction, and when there counts as
//! being none. Does not own: what is in a message, or who may read it at the broker.
//!
//! One code for all of them, so it keeps to what IBM MQ takes, which is the least: one session on a
//! connection, no transactions, links named by their topic and asked for by the capability `topic`,
//! subscriptions that are private and end with the connection, messages that are not persistent, settled when
//! they are sent (AMQP 1.0 part 2.6.12), and live for [`TIME_TO_LIVE`]. What differs is how a topic is
//! written as an address: [`Addressing`].
//!
//! One task owns the connection. Links are tasks of its own, so that a broker that takes no messages of one
//! topic holds up no other; they end with the connection, and the next one attaches them anew.

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

use self::link::Ended;
use self::socket::{Hold, SILENCE, Socket};
use super::link::held;
use super::subscribers::Subscribers;
use super::{QUEUE, Subscription, Topic, Transport, TransportState};
use crate::transport::amqp::backoff::Backoff;
use crate::transport::amqp::diagnosis::Broker;
use crate::wire;

/// How long a broker keeps a message for a subscriber that is slow: that of a lease, after which it says
/// nothing.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(5);

/// How long a broker may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection that has lived for so long is no reason to wait before the next.
const STEADY: Duration = Duration::from_secs(5);

/// Largest frame, in bytes: a message and what is around it.
const FRAME: u32 = 64 * 1024;

/// Connections of this process so far.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// How a topic is written as an address.
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

/// Who this is, by a mechanism of SASL (AMQP 1.0 part 5.3).
#[derive(Clone, PartialEq, Eq)]
pub enum AmqpLogin {
    /// Nobody in particular.
    Anonymous,
    /// Whom the certificate names that is shown over TLS.
    External,
    /// An account.
    Plain {
        /// Its name.
        user: String,
        /// Its password; never printed.
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

    /// As sentences call it.
    fn who(&self) -> String {
        match self {
            Self::Anonymous => "of nobody (ANONYMOUS)".into(),
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
        f.write_str(&self.who())
    }
}

/// TLS from the first byte on, as on port 5671.
#[derive(Debug, Clone)]
pub struct AmqpTls {
    /// Whom to trust, and what to show.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that certificates must be for; `None`: the host of the broker's address.
    pub name: Option<String>,
}

/// Where a broker is, and how to speak to it.
#[derive(Debug, Clone)]
pub struct AmqpSettings {
    /// `host:port` of each broker that carries the same topics; they are tried in order.
    pub brokers: Vec<String>,
    /// `None`: in the clear.
    pub tls: Option<AmqpTls>,
    /// Who this is.
    pub login: AmqpLogin,
    /// How a topic is written as an address.
    pub addressing: Addressing,
    /// Random, another one for each way: tells it from others at the broker, and spreads its attempts in
    /// time.
    pub seed: u64,
}

/// A way over a broker. Its task and its socket end with it.
#[derive(Debug)]
pub struct Amqp {
    shared: Arc<Shared>,
    /// Its end tells the task to end.
    wanted: mpsc::UnboundedSender<Wanted>,
}

impl Amqp {
    /// Begins to connect, on the runtime that it is called on.
    pub fn start(settings: AmqpSettings) -> Self {
        let (state, _) = watch::channel(TransportState::Starting);
        let shared = Arc::new(Shared {
            state,
            outage: Outage::of("broker amqp"),
            health: Mutex::default(),
            outgoing: Mutex::default(),
            subscribers: Subscribers::default(),
        });
        let (wanted, heard) = mpsc::unbounded_channel();
        let keeper = Keeper { settings: Arc::new(settings), shared: shared.clone(), wanted: heard };
        tokio::spawn(keeper.keep());
        Self { shared, wanted }
    }
}

impl Transport for Amqp {
    fn send(&self, topic: &Topic, message: Bytes) {
        if message.len() > wire::MAX || !self.shared.health.lock().connected {
            return;
        }
        let mut outgoing = self.shared.outgoing.lock();
        let message = match outgoing.get(topic).map(|queue| queue.try_send(message.clone())) {
            // Its link is gone, or was never there.
            None | Some(Err(mpsc::error::TrySendError::Closed(_))) => message,
            Some(Ok(()) | Err(mpsc::error::TrySendError::Full(_))) => return,
        };
        let (to, queue) = mpsc::channel(QUEUE);
        let _ = to.try_send(message);
        outgoing.insert(topic.clone(), to);
        let _ = self.wanted.send(Wanted::Sender(topic.clone(), queue));
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        let subscription = self.shared.subscribers.add(topic.clone());
        let _ = self.wanted.send(Wanted::Receiver(topic));
        subscription
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.shared.state.subscribe()
    }
}

/// A link that is not there yet.
#[derive(Debug)]
enum Wanted {
    Sender(Topic, mpsc::Receiver<Bytes>),
    Receiver(Topic),
}

/// What the way, its task and its links share.
#[derive(Debug)]
struct Shared {
    state: watch::Sender<TransportState>,
    outage: Outage,
    health: Mutex<Health>,
    /// Queues of links, of this connection or of the one before.
    outgoing: Mutex<HashMap<Topic, mpsc::Sender<Bytes>>>,
    /// Outlives connections.
    subscribers: Subscribers,
}

/// What the state is made of, apart from its text.
#[derive(Debug, Default)]
struct Health {
    connected: bool,
    /// Links whose broker takes nothing at present.
    stuck: usize,
}

/// A link is stuck until this is dropped.
struct Stuck(Arc<Shared>);

impl Drop for Stuck {
    fn drop(&mut self) {
        let mut health = self.0.health.lock();
        health.stuck -= 1;
        if health.stuck == 0 && health.connected {
            self.0.tell(TransportState::Up);
            self.0.outage.succeeded();
        }
    }
}

impl Shared {
    /// There is a connection, or none: why.
    fn connected(&self, state: TransportState) {
        let mut health = self.health.lock();
        health.connected = state == TransportState::Up;
        self.tell(state);
    }

    /// A broker that takes nothing is as good as none for who has something to say, though it may still deliver.
    fn stuck(self: &Arc<Self>, why: String) -> Stuck {
        let mut health = self.health.lock();
        health.stuck += 1;
        self.tell(TransportState::Down(why.into()));
        Stuck(self.clone())
    }

    /// New queues for what was sent to before; what waits in the old ones is dropped.
    fn queues(&self) -> Vec<(Topic, mpsc::Receiver<Bytes>)> {
        let renew = |(topic, to): (&Topic, &mut mpsc::Sender<Bytes>)| {
            let (fresh, queue) = mpsc::channel(QUEUE);
            *to = fresh;
            (topic.clone(), queue)
        };
        self.outgoing.lock().iter_mut().map(renew).collect()
    }

    /// Says how it is.
    fn tell(&self, state: TransportState) {
        if let TransportState::Down(why) = &state {
            self.outage.failed(why);
        }
        self.state.send_if_modified(|known| {
            let news = *known != state;
            *known = state;
            news
        });
    }

    /// A connection has held for a while.
    fn held(&self) {
        if self.health.lock().stuck == 0 {
            self.outage.succeeded();
        }
    }
}

/// The task that owns the connection.
struct Keeper {
    settings: Arc<AmqpSettings>,
    shared: Arc<Shared>,
    wanted: mpsc::UnboundedReceiver<Wanted>,
}

/// A connection with its session and links.
struct Live {
    broker: String,
    links: JoinSet<Ended>,
    /// Topics that a link brings messages of.
    receiving: HashSet<Topic>,
    session: SessionHandle<()>,
    connection: ConnectionHandle<()>,
    /// Last, so that a socket is still there while the rest takes its leave.
    _hold: Hold,
}

/// The way was dropped.
struct Dropped;

/// A connection is no more.
struct Lost {
    why: String,
    /// It had lived for a while.
    steady: bool,
}

impl Keeper {
    async fn keep(mut self) {
        if self.settings.brokers.is_empty() {
            self.shared.tell(TransportState::Down("no broker is named".into()));
            return dropped(&mut self.wanted).await;
        }
        let settings = self.settings.clone();
        let mut tries = Backoff::new(settings.seed);
        let mut causes = Vec::new();
        for broker in settings.brokers.iter().cycle() {
            let live = tokio::select! {
                biased;
                () = dropped(&mut self.wanted) => return,
                live = open(broker, &settings, &self.shared) => live,
            };
            match live {
                Ok(live) => match self.live(live).await {
                    Err(Dropped) => return,
                    Ok(Lost { steady: true, .. }) => {
                        tries.succeeded();
                        causes.clear();
                    }
                    Ok(Lost { why, .. }) => causes.push(why),
                },
                Err(cause) => causes.push(cause),
            }
            // All of them, and none is well.
            if causes.len() == settings.brokers.len() {
                self.shared.tell(TransportState::Down(causes.join("; ").into()));
                causes.clear();
                if let Err(Dropped) = self.pause(&mut tries).await {
                    return;
                }
            }
        }
    }

    /// Serves while it can be served.
    async fn live(&mut self, mut live: Live) -> Result<Lost, Dropped> {
        let began = Instant::now();
        if *self.shared.state.borrow() == TransportState::Starting {
            tracing::info!(transport = "AMQP", broker = live.broker, "messages between nodes go through");
        }
        self.shared.connected(TransportState::Up);
        let shared = self.shared.clone();
        let why = held(self.serve(&mut live), || shared.held()).await?;
        self.shared.connected(TransportState::Down(why.as_str().into()));
        Ok(Lost { why, steady: began.elapsed() >= STEADY })
    }

    /// Attaches what is wanted. Why it ended.
    async fn serve(&mut self, live: &mut Live) -> Result<String, Dropped> {
        // Who subscribed while the rest was attached was not listened to.
        for topic in self.shared.subscribers.topics() {
            if let Err(cause) = live.attach(Wanted::Receiver(topic), &self.settings, &self.shared).await {
                return Ok(cause);
            }
        }
        loop {
            let wanted = tokio::select! {
                wanted = self.wanted.recv() => match wanted {
                    Some(wanted) => wanted,
                    None => {
                        let _ = timeout(FAREWELL, live.connection.close()).await;
                        return Err(Dropped);
                    }
                },
                Some(ended) = live.links.join_next() => match ended {
                    // Somebody may have subscribed while it was detached.
                    Ok(Ended::Unused(topic)) => {
                        live.receiving.remove(&topic);
                        if !self.shared.subscribers.topics().contains(&topic) {
                            continue;
                        }
                        Wanted::Receiver(topic)
                    }
                    Ok(Ended::Broken(cause)) => return Ok(live.why(cause, &self.settings).await),
                    Err(error) => return Ok(format!("a link ended: {error}")),
                },
                outcome = live.connection.on_close() => {
                    let broker = Broker { address: &live.broker, login: &self.settings.login };
                    return Ok(broker.ended(&outcome));
                }
            };
            if let Err(cause) = live.attach(wanted, &self.settings, &self.shared).await {
                return Ok(cause);
            }
        }
    }

    async fn pause(&mut self, tries: &mut Backoff) -> Result<(), Dropped> {
        tokio::select! {
            () = dropped(&mut self.wanted) => Err(Dropped),
            () = tokio::time::sleep(tries.failed()) => Ok(()),
        }
    }
}

/// Waits until the way is dropped. What is wanted meanwhile is looked up when there is a connection.
async fn dropped(wanted: &mut mpsc::UnboundedReceiver<Wanted>) {
    while wanted.recv().await.is_some() {}
}

/// A connection with every link that is known to be wanted; or why there is none.
async fn open(address: &str, settings: &Arc<AmqpSettings>, shared: &Arc<Shared>) -> Result<Live, String> {
    let broker = Broker { address, login: &settings.login };
    let connected = timeout(PATIENCE, connect(broker, settings)).await;
    let (mut connection, hold) = connected.map_err(|_| broker.slow())??;
    let session = match Session::begin(&mut connection).await {
        Ok(session) => session,
        Err(error) => return Err(end_of(broker, broker.session(&error), &mut connection).await),
    };
    let (links, receiving) = (JoinSet::new(), HashSet::new());
    let mut live = Live { broker: address.to_owned(), links, receiving, session, connection, _hold: hold };
    for topic in shared.subscribers.topics() {
        live.attach(Wanted::Receiver(topic), settings, shared).await?;
    }
    for (topic, queue) in shared.queues() {
        live.attach(Wanted::Sender(topic, queue), settings, shared).await?;
    }
    Ok(live)
}

/// A connection (AMQP 1.0 part 2.4), over TLS if so set.
async fn connect(
    broker: Broker<'_>,
    settings: &AmqpSettings,
) -> Result<(ConnectionHandle<()>, Hold), String> {
    let addresses: Vec<_> =
        lookup_host(broker.address).await.map_err(|error| broker.unresolved(&error))?.collect();
    let tcp = TcpStream::connect(&*addresses).await.map_err(|error| broker.socket(&error))?;
    let (socket, hold) = Socket::new(tcp).map_err(|error| broker.socket(&error))?;
    let host = broker.address.rsplit_once(':').map_or(broker.address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let silence = u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX);
    let builder = Connection::builder()
        // IBM MQ takes letters, digits and one of `%/._`. Each connection has a name of its own: a broker refuses one
        // whose name another has that has ended, and of which it has not noticed that yet.
        .container_id(format!("postern.{:016x}.{}", settings.seed, CONNECTIONS.fetch_add(1, Relaxed)))
        .hostname(host)
        .sasl_hostname(host)
        .sasl_profile(settings.login.profile())
        .max_frame_size(FRAME)
        .channel_max(0)
        // Asks the peer to say something every half of it.
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

/// A cause, or what the connection ended with.
async fn end_of(broker: Broker<'_>, cause: Option<String>, connection: &mut ConnectionHandle<()>) -> String {
    match cause {
        Some(cause) => cause,
        None => match timeout(FAREWELL, connection.on_close()).await {
            Ok(outcome) => broker.ended(&outcome),
            Err(_) => broker.slow(),
        },
    }
}

impl Live {
    async fn why(&mut self, cause: Option<String>, settings: &AmqpSettings) -> String {
        let broker = Broker { address: &self.broker, login: &settings.login };
        end_of(broker, cause, &mut self.connection).await
    }

    async fn attach(
        &mut self,
        wanted: Wanted,
        settings: &Arc<AmqpSettings>,
        shared: &Arc<Shared>,
    ) -> Result<(), String> {
        match timeout(PATIENCE, self.try_attach(wanted, settings, shared)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(self.why(cause, settings).await),
            Err(_) => Err(Broker { address: &self.broker, login: &settings.login }.slow()),
        }
    }

    async fn try_attach(
        &mut self,
        wanted: Wanted,
        settings: &Arc<AmqpSettings>,
        shared: &Arc<Shared>,
    ) -> Result<(), Option<String>> {
        let broker = Broker { address: &self.broker, login: &settings.login };
        let context = link::Context { broker: self.broker.clone(), settings: settings.clone() };
        match wanted {
            Wanted::Sender(topic, queue) => {
                let address = settings.addressing.address(&topic);
                let attached = link::sender(&topic, &address).attach(&mut self.session).await;
                let sender: Sender = attached.map_err(|error| broker.sender(&address, &error))?;
                self.links.spawn(link::send(sender, address, queue, shared.clone(), context));
            }
            Wanted::Receiver(topic) if !self.receiving.contains(&topic) => {
                let address = settings.addressing.address(&topic);
                let attached = link::receiver(&topic, &address).attach(&mut self.session).await;
                let receiver: Receiver = attached.map_err(|error| broker.receiver(&address, &error))?;
                self.receiving.insert(topic.clone());
                self.links.spawn(link::receive(receiver, address, topic, shared.clone(), context));
            }
            Wanted::Receiver(_) => {}
        }
        Ok(())
    }
}
