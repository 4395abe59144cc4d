//! PostgreSQL transport: NOTIFY and LISTEN on the database of the store.
//!
//! Owns: the session with a server. Does not own: what the URL says ([`PostgresUrl`]), when to
//! connect and the reported state ([`Link`]), nor how messages become notifications ([`payload`]).
//!
//! One connection does both. Statements are sent while notifications arrive, so neither waits for
//! the other. Messages that queue up during a statement go with the next one. All sessions that
//! notify in a database commit one after the other, under one lock: many messages in one
//! transaction cost as much as one. Since no notification is needed after a crash, such a
//! transaction waits neither for the disk (`synchronous_commit`) nor for replicas.
//!
//! The client is `tokio-postgres`: it takes a socket from its caller, so this module controls the
//! socket's options, silence limit and end. The listener of `sqlx` lives in a pool, which connects
//! by its own rules, hides why it could not, and ends in a task of its own.

mod payload;
mod url;
mod verify;

use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use outage::Outage;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Statement};

use self::payload::{Joiner, Splitter, channel};
pub use self::url::{PostgresUrl, PostgresUrlError, TlsMode, percent_decode};
pub use self::verify::Trust;
use super::Topic;
use super::link::{Link, Outgoing, Server, Session, no_answer};
use super::socket::{self, ANSWER_TIMEOUT, Address, HEARTBEAT_INTERVAL, Stream};
use super::subscribers::{RequestedTopics, Subscribers};

/// Most messages in one transaction.
const BATCH: usize = 256;
/// Time limit for a statement: added to the beat before it, a silent server is noticed in time.
const STATEMENT_TIMEOUT: Duration = ANSWER_TIMEOUT.saturating_sub(HEARTBEAT_INTERVAL);

/// First statements of a session. They fail where the session may not notify: on a replica, for
/// example.
const SESSION_SETUP: &str = "SET synchronous_commit = off; SELECT pg_notify('postern', '')";
const NOTIFY: &str = "SELECT count(pg_notify(channel, payload)) \
                      FROM unnest($1::text[], $2::text[]) AS batch(channel, payload)";

/// A database, and how to connect to it.
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    session: tokio_postgres::Config,
    addresses: Vec<Address>,
    tls: Option<Tls>,
}

/// How a connection is encrypted.
#[derive(Debug, Clone)]
struct Tls {
    config: Arc<ClientConfig>,
    /// Whether a server without TLS is refused.
    required: bool,
}

impl PostgresConfig {
    /// Uses a database by its URL; several hosts are tried in order. The URL says how connections
    /// are protected, the caller which authorities are trusted. Without `trust`, the connection is
    /// not encrypted where the URL leaves that to the server.
    ///
    /// # Errors
    /// [`PostgresUrlError::NoTrust`] when the URL requires TLS and `trust` is `None`.
    pub fn new(url: &PostgresUrl, trust: Option<Trust>) -> Result<Self, PostgresUrlError> {
        let (mode, mut session) = (url.mode(), url.session());
        let tls = match (mode, trust) {
            (TlsMode::Disable, _) | (TlsMode::Prefer, None) => None,
            (TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull, None) => {
                return Err(PostgresUrlError::NoTrust);
            }
            (_, Some(trust)) => {
                Some(Tls { config: trust.config_for(mode), required: mode != TlsMode::Prefer })
            }
        };
        // The socket is encrypted already.
        session.ssl_mode(SslMode::Disable);
        if session.get_application_name().is_none() {
            session.application_name("postern messages");
        }
        Ok(Self { session, addresses: url.addresses(), tls })
    }
}

/// Starts a transport over PostgreSQL. It begins to connect at once; needs a Tokio runtime. The
/// store has the same `database`: when it is down, one log line says so for both.
pub fn connect(config: PostgresConfig, database: Outage) -> Link {
    Link::start(config, database)
}

impl Server for PostgresConfig {
    type Session = Notifications;
    const KIND: &'static str = "PostgreSQL";

    fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    async fn connect(&self, address: &Address, subscribers: &Subscribers) -> Result<Notifications, String> {
        let mut stream = socket::open(address).await?;
        if let Some(tls) = &self.tls {
            stream = encrypted(stream, tls, address).await?;
        }
        let connected = self.session.connect_raw(stream, NoTls).await;
        let (client, mut wire) = connected.map_err(|error| explain(&error))?;
        let topics = Arc::<Topics>::default();
        let mut wishes = TopicSubscriptions {
            requested_topics: RequestedTopics::new(subscribers),
            topics: Arc::clone(&topics),
        };
        let ready = async {
            client.batch_execute(SESSION_SETUP).await?;
            wishes.update(&client, subscribers).await?;
            client.prepare(NOTIFY).await
        };
        let notify = tokio::select! {
            biased;
            ended = listen(&mut wire, &topics, subscribers) => return Err(ended),
            ready = ready => ready.map_err(|error| explain(&error))?,
        };
        let splitter = Splitter::new().map_err(str::to_owned)?;
        Ok(Notifications { client, wire, notify, wishes, splitter })
    }
}

/// Requests encryption from the server before anything else is sent.
async fn encrypted(mut stream: Stream, tls: &Tls, address: &Address) -> Result<Stream, String> {
    if matches!(address, Address::Unix(_)) {
        return Ok(stream);
    }
    let mut answer = [0];
    let exchange = async {
        stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).await?;
        // One byte and no more: what follows it is encrypted.
        stream.read_exact(&mut answer).await
    };
    exchange.await.map_err(|error| socket::explain(&error))?;
    match answer {
        [b'S'] => socket::start_tls(stream, &tls.config, address).await,
        [b'N'] if !tls.required => Ok(stream),
        _ => Err("the server offers no TLS, which is required here; check its `ssl` setting".to_owned()),
    }
}

type PgConnection = Connection<Stream, NoTlsStream>;

/// A connection to a server, with its prepared statement.
pub(super) struct Notifications {
    client: Client,
    wire: PgConnection,
    notify: Statement,
    wishes: TopicSubscriptions,
    splitter: Splitter,
}

/// Topics by their channels.
type Topics = Mutex<HashMap<String, Topic>>;

impl Session for Notifications {
    async fn run(self, queue: &mut mpsc::Receiver<Outgoing>, subscribers: &Subscribers) -> String {
        let Self { client, mut wire, notify, mut wishes, mut splitter } = self;
        let topics = Arc::clone(&wishes.topics);
        let ended = tokio::select! {
            // The connection knows best why it ended, so it is polled first.
            biased;
            ended = listen(&mut wire, &topics, subscribers) => return ended,
            ended = publish(&client, &notify, &mut splitter, queue) => ended,
            ended = wishes.update_on_change(&client, subscribers) => ended,
            ended = check_alive(&client) => ended,
        };
        ended.err().unwrap_or_default()
    }
}

/// Moves bytes in both directions and delivers notifications, until the connection ends; returns
/// why.
async fn listen(wire: &mut PgConnection, topics: &Topics, subscribers: &Subscribers) -> String {
    let mut joiner = Joiner::default();
    loop {
        match poll_fn(|context| wire.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                let message = joiner.join(notification.payload());
                let topics = topics.lock();
                if let (Some(message), Some(topic)) = (message, topics.get(notification.channel())) {
                    subscribers.deliver(topic, &message);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return explain(&error),
            None => return socket::explain(&io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Sends the queued messages, one transaction after the other.
async fn publish(
    client: &Client,
    notify: &Statement,
    splitter: &mut Splitter,
    queue: &mut mpsc::Receiver<Outgoing>,
) -> Result<(), String> {
    let mut batch = Vec::with_capacity(BATCH);
    // Never empty: the queue ends with the task.
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let (mut channels, mut payloads) = (Vec::new(), Vec::new());
        for (topic, message) in batch.drain(..) {
            let channel = channel(&topic);
            for piece in splitter.split(&message) {
                channels.push(channel.clone());
                payloads.push(piece);
            }
        }
        with_timeout(client.execute(notify, &[&channels, &payloads])).await?;
    }
    Ok(())
}

/// Checks every beat whether the server answers.
async fn check_alive(client: &Client) -> Result<(), String> {
    loop {
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        with_timeout(client.simple_query("")).await?;
    }
}

/// The result of a statement, unless the server is silent.
async fn with_timeout<T>(
    statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, String> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, statement).await {
        Ok(answer) => answer.map_err(|error| explain(&error)),
        Err(_) => Err(no_answer(STATEMENT_TIMEOUT)),
    }
}

/// Topics that the server has been asked for.
struct TopicSubscriptions {
    requested_topics: RequestedTopics,
    topics: Arc<Topics>,
}

impl TopicSubscriptions {
    /// Listens to the subscribed topics, as they change.
    async fn update_on_change(&mut self, client: &Client, subscribers: &Subscribers) -> Result<(), String> {
        loop {
            self.requested_topics.changed().await;
            with_timeout(self.update(client, subscribers)).await?;
        }
    }

    async fn update(
        &mut self,
        client: &Client,
        subscribers: &Subscribers,
    ) -> Result<(), tokio_postgres::Error> {
        let statements = self.statements(subscribers);
        if statements.is_empty() { Ok(()) } else { client.batch_execute(&statements).await }
    }

    fn statements(&mut self, subscribers: &Subscribers) -> String {
        let (more, less) = self.requested_topics.difference(subscribers);
        let (mut topics, mut statements) = (self.topics.lock(), String::new());
        for channel in less.iter().map(channel) {
            statements.extend(["UNLISTEN ", &channel, ";"]);
            topics.remove(&channel);
        }
        for topic in more {
            let channel = channel(&topic);
            statements.extend(["LISTEN ", &channel, ";"]);
            topics.insert(channel, topic);
        }
        statements
    }
}

/// An error, with what to check.
fn explain(error: &tokio_postgres::Error) -> String {
    if let Some(refusal) = error.as_db_error() {
        return match advice(refusal.code()) {
            Some(look) => format!("{}; {look}", refusal.message()),
            None => refusal.message().to_owned(),
        };
    }
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match io {
        Some(io) => socket::explain(io),
        None if error.is_closed() => socket::explain(&io::ErrorKind::UnexpectedEof.into()),
        None => with_sources(error),
    }
}

fn advice(code: &SqlState) -> Option<&'static str> {
    Some(match *code {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "check user and password in the URL, and pg_hba.conf on the server"
        }
        SqlState::INVALID_CATALOG_NAME => "check the database name in the URL",
        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => {
            "this server is a replica; use the primary's address"
        }
        SqlState::TOO_MANY_CONNECTIONS => "check max_connections",
        SqlState::PROGRAM_LIMIT_EXCEEDED => "check for a session that listens inside a long transaction",
        _ => return None,
    })
}

/// An error with its sources.
fn with_sources(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_asks_for_tls_is_not_spoken_to_without() {
        for mode in ["require", "VERIFY-CA", "verify-full"] {
            let url = format!("postgres://postern@one/db?application_name=x&ssl-mode={mode}");
            let refused = PostgresConfig::new(&PostgresUrl::parse(&url).unwrap(), None).map(|_| ());
            assert_eq!(refused, Err(PostgresUrlError::NoTrust), "{mode}");
        }
        for mode in ["disable", "prefer"] {
            let url = format!("postgres://postern@one/db?sslmode={mode}");
            assert!(
                PostgresConfig::new(&PostgresUrl::parse(&url).unwrap(), None).unwrap().tls.is_none(),
                "{mode}"
            );
        }
    }

    #[test]
    fn it_keeps_its_secrets() {
        let url = PostgresUrl::parse("postgres://postern:secret@one,two:5433/db").unwrap();
        let config = PostgresConfig::new(&url, None).unwrap();
        assert_eq!(config.addresses, [Address::tcp("one", 5432), Address::tcp("two", 5433)]);
        assert!(!format!("{config:?}").contains("secret"));
    }
}
