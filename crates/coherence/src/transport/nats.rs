//! NATS transport: one subject for each topic, nothing stored by the server.
//!
//! Owns: the protocol session with a server. Does not own: when to connect, and the reported state
//! ([`Link`]). This client is self-made: the protocol needs six verbs here. What a general client
//! adds (buffers that outlive a connection, its own retries and tasks) would have to be disabled.
//!
//! ```text
//! server: INFO {…}            ─▶ [TLS]
//! client: CONNECT {…} SUB … PING ─▶ server: PONG: logged in, and all is subscribed
//! then:   PUB, SUB, UNSUB ⇄ MSG;  PING every beat, PONG within the silence
//! ```

mod login;
mod protocol;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;
use outage::Outage;
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior};

pub use self::login::{Credentials, CredentialsError, NatsLogin};
use self::protocol::ServerMessage;
use super::Topic;
use super::link::{Link, Outgoing, Server, Session, no_answer};
use super::socket::{self, ANSWER_TIMEOUT, Address, HEARTBEAT_INTERVAL, Stream};
use super::subscribers::{RequestedTopics, Subscribers};

/// Most messages in one write.
const BATCH: usize = 256;
/// Free space in the buffer before each read, in bytes.
const READ_BUFFER: usize = 16 * 1024;

/// Servers, and how to log in.
#[derive(Debug, Clone)]
pub struct NatsConfig {
    /// Servers of one cluster, tried in this order. Their port is usually 4222.
    pub servers: Vec<Address>,
    /// Trusted authorities, and this client's certificate. If set, a server without TLS is refused.
    pub tls: Option<Arc<ClientConfig>>,
    /// Credentials of this client.
    pub login: NatsLogin,
}

/// Starts a transport over NATS. It begins to connect at once; needs a Tokio runtime.
pub fn connect(config: NatsConfig) -> Link {
    Link::start(config, Outage::new("broker nats"))
}

impl Server for NatsConfig {
    type Session = NatsConnection;
    const KIND: &'static str = "NATS";

    fn addresses(&self) -> &[Address] {
        &self.servers
    }

    async fn connect(&self, address: &Address, subscribers: &Subscribers) -> Result<NatsConnection, String> {
        let mut stream = socket::open(address).await?;
        let mut arrived = BytesMut::new();
        let greeting = greeting(&mut stream, &mut arrived).await?;
        let stream = match &self.tls {
            Some(tls) => {
                // Bytes from before the encryption are not authentic.
                arrived.clear();
                encrypted(stream, tls, address, &greeting).await?
            }
            None if greeting["tls_required"] == true => {
                return Err("the server requires TLS; configure TLS".to_owned());
            }
            None => stream,
        };
        let (reader, writer) = tokio::io::split(stream);
        let mut conversation = NatsConnection {
            listener: NatsReader { reader, arrived },
            speaker: NatsWriter {
                writer,
                out: Vec::new(),
                requested_topics: RequestedTopics::new(subscribers),
                next: 1,
            },
            shared: Shared::default(),
        };
        conversation.log_in(self.connect(&greeting)?, subscribers).await?;
        Ok(conversation)
    }
}

/// Reads the server's first line.
async fn greeting(stream: &mut Stream, arrived: &mut BytesMut) -> Result<Value, String> {
    loop {
        match protocol::next(arrived)? {
            Some(ServerMessage::Info(info)) => {
                return serde_json::from_slice(&info).map_err(|_| "the server's INFO is not JSON".to_owned());
            }
            Some(message) => return Err(format!("the server begins with {message:?} instead of INFO")),
            None => fill(stream, arrived).await?,
        }
    }
}

async fn encrypted(
    stream: Stream,
    tls: &Arc<ClientConfig>,
    address: &Address,
    greeting: &Value,
) -> Result<Stream, String> {
    if greeting["tls_required"] == true || greeting["tls_available"] == true {
        return socket::start_tls(stream, tls, address).await;
    }
    Err("the server offers no TLS, which is configured here; check `tls` in its configuration".to_owned())
}

/// Waits for more from the server.
async fn fill(reader: &mut (impl AsyncReadExt + Unpin), arrived: &mut BytesMut) -> Result<(), String> {
    arrived.reserve(READ_BUFFER);
    match reader.read_buf(arrived).await {
        Ok(0) => Err(socket::explain(&std::io::ErrorKind::UnexpectedEof.into())),
        Ok(_) => Ok(()),
        Err(error) => Err(socket::explain(&error)),
    }
}

impl NatsConfig {
    /// The `CONNECT` fields that answer a greeting.
    fn connect(&self, greeting: &Value) -> Result<Value, String> {
        let mut fields = self.login.fields(greeting["nonce"].as_str())?;
        let ours = json!({
            "verbose": false,
            "pedantic": false,
            "tls_required": self.tls.is_some(),
            "name": "postern",
            "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": 1,
            // The sender's own node has subscribers too.
            "echo": true,
        });
        fields
            .extend(ours.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        Ok(Value::Object(fields))
    }
}

/// A connection to a server, in both directions.
pub(super) struct NatsConnection {
    listener: NatsReader,
    speaker: NatsWriter,
    shared: Shared,
}

/// State that both directions share.
#[derive(Default)]
struct Shared {
    /// The topic of each subscription's number.
    topics: Mutex<HashMap<u64, Topic>>,
    /// Notified when the server sends a PING.
    ping_received: Notify,
}

struct NatsReader {
    reader: ReadHalf<Stream>,
    arrived: BytesMut,
}

struct NatsWriter {
    writer: WriteHalf<Stream>,
    out: Vec<u8>,
    requested_topics: RequestedTopics,
    /// Number of the next subscription.
    next: u64,
}

impl NatsConnection {
    /// Logs in and subscribes. The server reports any error before it answers the PING at the end.
    async fn log_in(&mut self, connect: Value, subscribers: &Subscribers) -> Result<(), String> {
        self.speaker.out.extend_from_slice(format!("CONNECT {connect}\r\n").as_bytes());
        self.speaker.subscribe(&self.shared, subscribers);
        self.speaker.out.extend_from_slice(b"PING\r\n");
        self.speaker.flush().await?;
        loop {
            if let ServerMessage::Pong = self.listener.next(&self.shared, subscribers).await? {
                return Ok(());
            }
        }
    }
}

impl Session for NatsConnection {
    async fn run(mut self, queue: &mut mpsc::Receiver<Outgoing>, subscribers: &Subscribers) -> String {
        let ended = tokio::select! {
            ended = self.listener.read_loop(&self.shared, subscribers) => ended,
            ended = self.speaker.write_loop(&self.shared, queue, subscribers) => ended,
        };
        ended.err().unwrap_or_default()
    }
}

impl NatsReader {
    /// Delivers what arrives. The server is given up when it has answered no PING for too long,
    /// whatever else it sends: this client's bytes may not reach it.
    async fn read_loop(&mut self, shared: &Shared, subscribers: &Subscribers) -> Result<(), String> {
        let mut last_answer_at = Instant::now();
        loop {
            let next =
                tokio::time::timeout_at(last_answer_at + ANSWER_TIMEOUT, self.next(shared, subscribers));
            match next.await {
                Ok(Ok(ServerMessage::Pong)) => last_answer_at = Instant::now(),
                Ok(message) => _ = message?,
                Err(_) => return Err(no_answer(ANSWER_TIMEOUT)),
            }
        }
    }

    /// The next message of the protocol, after it is processed. Cancellation-safe.
    async fn next(&mut self, shared: &Shared, subscribers: &Subscribers) -> Result<ServerMessage, String> {
        loop {
            let Some(parsed) = protocol::next(&mut self.arrived)? else {
                fill(&mut self.reader, &mut self.arrived).await?;
                continue;
            };
            match &parsed {
                ServerMessage::Message(number, message) => {
                    if let Some(topic) = shared.topics.lock().get(number) {
                        subscribers.deliver(topic, message);
                    }
                }
                ServerMessage::Ping => shared.ping_received.notify_one(),
                ServerMessage::Error(fault) => return Err(explain_refusal(fault)),
                _ => {}
            }
            return Ok(parsed);
        }
    }
}

/// What the server refuses, with what to check.
fn explain_refusal(fault: &str) -> String {
    let lower = fault.to_lowercase();
    let look = if lower.starts_with("authorization") || lower.starts_with("user authentication") {
        "check user, password, token or credentials here, and `authorization` on the server"
    } else if lower.starts_with("permissions") {
        "allow this user to publish and subscribe to postern.>"
    } else {
        "check its log"
    };
    format!("{fault}; {look}")
}

impl NatsWriter {
    /// Sends pings, answers, subscriptions and messages to the server.
    async fn write_loop(
        &mut self,
        shared: &Shared,
        queue: &mut mpsc::Receiver<Outgoing>,
        subscribers: &Subscribers,
    ) -> Result<(), String> {
        let mut beat = tokio::time::interval(HEARTBEAT_INTERVAL);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                _ = beat.tick() => self.out.extend_from_slice(b"PING\r\n"),
                () = shared.ping_received.notified() => self.out.extend_from_slice(b"PONG\r\n"),
                () = self.requested_topics.changed() => self.subscribe(shared, subscribers),
                // Never empty: the queue ends with the task.
                _ = queue.recv_many(&mut batch, BATCH) => self.publish(&mut batch),
            }
            self.flush().await?;
        }
    }

    fn publish(&mut self, batch: &mut Vec<Outgoing>) {
        for (topic, message) in batch.drain(..) {
            protocol::publish(&mut self.out, &topic.to_string(), &message);
        }
    }

    fn subscribe(&mut self, shared: &Shared, subscribers: &Subscribers) {
        let (more, less) = self.requested_topics.difference(subscribers);
        let mut topics = shared.topics.lock();
        for (number, _) in topics.extract_if(|_, topic| less.contains(topic)) {
            protocol::unsubscribe(&mut self.out, number);
        }
        for topic in more {
            protocol::subscribe(&mut self.out, &topic.to_string(), self.next);
            topics.insert(self.next, topic);
            self.next += 1;
        }
    }

    /// Writes the pending output. The silence limit bounds it: while it waits, no PING is sent, and
    /// so none is answered.
    async fn flush(&mut self) -> Result<(), String> {
        let written = self.writer.write_all(&self.out).await;
        self.out.clear();
        written.map_err(|error| socket::explain(&error))?;
        self.writer.flush().await.map_err(|error| socket::explain(&error))
    }
}
