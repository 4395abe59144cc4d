//! Over PostgreSQL: NOTIFY and LISTEN on a database that is there anyway.
//!
//! Owns: the session with a server. Does not own: when to connect and what is said of the state ([`Link`]), nor how messages become
//! notifications ([`payload`]).
//!
//! One connection does both. Statements are sent while notifications arrive, so none waits for the other; whatever has queued up
//! while a statement was under way goes with the next one. For all who notify in a database commit one after the other,
//! under one lock: many messages in one transaction cost as much as one. And since nobody needs a notification after a
//! crash, such a transaction does not wait for the disk (`synchronous_commit`), nor for replicas.
//!
//! The client is `tokio-postgres`: it takes a socket that is ours, so that its options, its silence and its end are too. The listener
//! of `sqlx` lives in a pool, which connects by its own rules, hides why it could not, and ends in a task of its own.

mod payload;

use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Statement};

use self::payload::{Joiner, Splitter, channel};
use super::Topic;
use super::link::{Link, Outgoing, Server, Session, silent};
use super::socket::{self, Address, BEAT, SILENCE, Stream};
use super::subscribers::{Subscribers, Wanted};

/// Messages of one transaction at most.
const BATCH: usize = 256;
/// What a statement is given to be answered in: with the beat before it, a silent server is noticed in time.
const ANSWER: Duration = SILENCE.saturating_sub(BEAT);

/// How a session begins. Whoever may not notify is told so here: a replica, for example.
const BEGIN: &str = "SET synchronous_commit = off; SELECT pg_notify('postern', '')";
const NOTIFY: &str = "SELECT count(pg_notify(channel, payload)) \
                      FROM unnest($1::text[], $2::text[]) AS batch(channel, payload)";

/// Why a URL is none of a PostgreSQL server. It is not repeated: there may be a password in it.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It cannot be read.
    #[error("the database URL cannot be used: {0}")]
    Unreadable(String),
    /// It names no server.
    #[error("the database URL names no host; write postgres://user@host/database")]
    NoHost,
    /// It asks for more than is given.
    #[error("the database URL asks for TLS (sslmode), and nothing says here whom to trust")]
    Unencrypted,
}

/// A database, and how to be let in.
#[derive(Debug, Clone)]
pub struct Config {
    session: tokio_postgres::Config,
    addresses: Vec<Address>,
    tls: Option<Arc<ClientConfig>>,
}

impl Config {
    /// A database by its URL; several hosts are tried in order. With `tls`, a server without it is not spoken to; without,
    /// nothing is encrypted. Parameters of the URL that name files for TLS are the caller's to read.
    pub fn new(url: &str, tls: Option<Arc<ClientConfig>>) -> Result<Self, UrlError> {
        if tls.is_none() && asks_for_tls(url) {
            return Err(UrlError::Unencrypted);
        }
        let parsed: Result<tokio_postgres::Config, _> = without_foreign_parameters(url).parse();
        let mut session = parsed.map_err(|error| UrlError::Unreadable(chain(&error)))?;
        let ports = session.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let hosts = session.get_hosts().iter().enumerate();
        let addresses: Vec<_> = hosts.map(|(at, host)| address(host, port(at))).collect();
        if addresses.is_empty() {
            return Err(UrlError::NoHost);
        }
        // The socket comes encrypted already.
        session.ssl_mode(SslMode::Disable);
        if session.get_application_name().is_none() {
            session.application_name("postern messages");
        }
        Ok(Self { session, addresses, tls })
    }
}

fn asks_for_tls(url: &str) -> bool {
    let (_, parameters) = url.split_once('?').unwrap_or_default();
    let modes = ["sslmode=require", "sslmode=verify-ca", "sslmode=verify-full"];
    parameters.split('&').any(|pair| modes.contains(&pair))
}

/// The URL without what other clients read in it and this one refuses.
fn without_foreign_parameters(url: &str) -> String {
    let Some((place, parameters)) = url.split_once('?') else { return url.to_owned() };
    let foreign = |pair: &&str| pair.starts_with("ssl") || pair.starts_with("statement-cache-capacity");
    let ours: Vec<_> = parameters.split('&').filter(|pair| !foreign(pair)).collect();
    if ours.is_empty() { place.to_owned() } else { format!("{place}?{}", ours.join("&")) }
}

fn address(host: &Host, port: u16) -> Address {
    match host {
        Host::Tcp(name) => Address::tcp(name.trim_matches(['[', ']']), port),
        Host::Unix(folder) => Address::Unix(PathBuf::from(folder).join(format!(".s.PGSQL.{port}"))),
    }
}

/// A way over PostgreSQL. Begins to connect at once; needs a runtime around it.
pub fn connect(config: Config) -> Link {
    Link::start(config)
}

impl Server for Config {
    type Session = Notifications;
    const KIND: &'static str = "PostgreSQL";

    fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    async fn dial(&self, address: &Address, subscribers: &Subscribers) -> Result<Notifications, String> {
        let mut stream = socket::open(address).await?;
        if let Some(tls) = &self.tls {
            stream = encrypted(stream, tls, address).await?;
        }
        let connected = self.session.connect_raw(stream, NoTls).await;
        let (client, mut wire) = connected.map_err(|error| explain(&error))?;
        let topics = Arc::<Topics>::default();
        let mut wishes = Wishes { wanted: Wanted::new(subscribers), topics: Arc::clone(&topics) };
        let ready = async {
            client.batch_execute(BEGIN).await?;
            wishes.follow(&client, subscribers).await?;
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

/// Asks the server for encryption before anything else is said.
async fn encrypted(mut stream: Stream, tls: &Arc<ClientConfig>, address: &Address) -> Result<Stream, String> {
    if matches!(address, Address::Unix(_)) {
        return Ok(stream);
    }
    let mut answer = [0];
    let asked = async {
        stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).await?;
        // One byte and no more: what follows it is encrypted.
        stream.read_exact(&mut answer).await
    };
    asked.await.map_err(|error| socket::explain(&error))?;
    match answer {
        [b'S'] => socket::secure(stream, tls, address).await,
        _ => Err("it offers no TLS, which is configured here; look at its `ssl` setting".to_owned()),
    }
}

type Wire = Connection<Stream, NoTlsStream>;

/// A connection to a server.
pub(super) struct Notifications {
    client: Client,
    wire: Wire,
    notify: Statement,
    wishes: Wishes,
    splitter: Splitter,
}

/// Topics by their channels.
type Topics = Mutex<HashMap<String, Topic>>;

impl Session for Notifications {
    async fn carry(self, queue: &mut mpsc::Receiver<Outgoing>, subscribers: &Subscribers) -> String {
        let Self { client, mut wire, notify, mut wishes, mut splitter } = self;
        let topics = Arc::clone(&wishes.topics);
        let ended = tokio::select! {
            // The connection knows best why it ended, so it is asked first.
            biased;
            ended = listen(&mut wire, &topics, subscribers) => return ended,
            ended = publish(&client, &notify, &mut splitter, queue) => ended,
            ended = wishes.keep(&client, subscribers) => ended,
            ended = ask(&client) => ended,
        };
        ended.err().unwrap_or_default()
    }
}

/// Moves bytes both ways and hands on what arrives, until the connection ends: why.
async fn listen(wire: &mut Wire, topics: &Topics, subscribers: &Subscribers) -> String {
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

/// Sends what is queued, one transaction after the other.
async fn publish(
    client: &Client,
    notify: &Statement,
    splitter: &mut Splitter,
    queue: &mut mpsc::Receiver<Outgoing>,
) -> Result<(), String> {
    let mut batch = Vec::with_capacity(BATCH);
    // Never none: the queue ends with the task.
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let (mut channels, mut payloads) = (Vec::new(), Vec::new());
        for (topic, message) in batch.drain(..) {
            let channel = channel(&topic);
            for piece in splitter.split(&message) {
                channels.push(channel.clone());
                payloads.push(piece);
            }
        }
        answered(client.execute(notify, &[&channels, &payloads])).await?;
    }
    Ok(())
}

/// Asks the server, every beat, whether it is there.
async fn ask(client: &Client) -> Result<(), String> {
    loop {
        tokio::time::sleep(BEAT).await;
        answered(client.simple_query("")).await?;
    }
}

/// What a statement comes to, unless the server is silent.
async fn answered<T>(statement: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER, statement).await {
        Ok(answer) => answer.map_err(|error| explain(&error)),
        Err(_) => Err(silent(ANSWER)),
    }
}

/// What the server has been asked for.
struct Wishes {
    wanted: Wanted,
    topics: Arc<Topics>,
}

impl Wishes {
    /// Listens to what is subscribed to, as that changes.
    async fn keep(&mut self, client: &Client, subscribers: &Subscribers) -> Result<(), String> {
        loop {
            self.wanted.changed().await;
            answered(self.follow(client, subscribers)).await?;
        }
    }

    async fn follow(
        &mut self,
        client: &Client,
        subscribers: &Subscribers,
    ) -> Result<(), tokio_postgres::Error> {
        let statements = self.statements(subscribers);
        if statements.is_empty() { Ok(()) } else { client.batch_execute(&statements).await }
    }

    fn statements(&mut self, subscribers: &Subscribers) -> String {
        let (more, less) = self.wanted.difference(subscribers);
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

/// A fault, with what to look at.
fn explain(error: &tokio_postgres::Error) -> String {
    if let Some(told) = error.as_db_error() {
        return match look(told.code()) {
            Some(look) => format!("{}; {look}", told.message()),
            None => told.message().to_owned(),
        };
    }
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match io {
        Some(io) => socket::explain(io),
        None if error.is_closed() => socket::explain(&io::ErrorKind::UnexpectedEof.into()),
        None => chain(error),
    }
}

fn look(code: &SqlState) -> Option<&'static str> {
    Some(match *code {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "look at user and password of its URL, and at pg_hba.conf there"
        }
        SqlState::INVALID_CATALOG_NAME => "look at the database in its URL",
        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => {
            "this is a replica; name the primary"
        }
        SqlState::TOO_MANY_CONNECTIONS => "look at max_connections",
        SqlState::PROGRAM_LIMIT_EXCEEDED => "look for a session that listens inside a long transaction",
        _ => return None,
    })
}

/// An error and what is behind it.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_hosts_in_order_and_keeps_its_secrets() {
        let url =
            "postgres://postern:secret@one,two:5433/db?sslmode=prefer&connect_timeout=3&sslrootcert=%2Fca";
        let config = Config::new(url, None).unwrap();
        assert_eq!(config.addresses, [Address::tcp("one", 5432), Address::tcp("two", 5433)]);
        assert!(!format!("{config:?}").contains("secret"));
        let config = Config::new("postgres://postern@%2Frun%2Fpostgresql/db", None).unwrap();
        assert_eq!(config.addresses, [Address::Unix("/run/postgresql/.s.PGSQL.5432".into())]);
    }

    #[test]
    fn a_url_that_asks_for_tls_is_not_spoken_to_without() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let url = format!("postgres://postern@one/db?application_name=x&sslmode={mode}");
            assert!(matches!(Config::new(&url, None), Err(UrlError::Unencrypted)));
        }
    }

    #[test]
    fn a_url_that_is_none_is_not_repeated() {
        for url in [
            "postgres://user:secret@host:port/db",
            "postgres://user:secret@host/db?what=this",
            "postgres:///db",
        ] {
            let error = Config::new(url, None).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.starts_with("the database URL"), "{error}");
        }
    }
}
