//! The AMQP 1.0 transport, tested against the brokers that it supports.

mod outages;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use coherence::PeerName;
use coherence::transport::amqp::{Addressing, Amqp, AmqpLogin, AmqpSettings, AmqpTls};
use coherence::transport::{Topic, Transport as _, TransportState, conformance};
use tokio::time::timeout;

use super::brokers::{Broker, Kind, PASSWORD, USER};
use super::promises::{self, Server};
use super::proxy::{Network, Proxy};
use super::servers::free_port;
use super::strict::Strict;

/// Longer than a broker takes to start.
const PATIENCE: Duration = Duration::from_mins(2);

fn settings(address: &str, addressing: Addressing) -> AmqpSettings {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    AmqpSettings {
        brokers: vec![address.to_owned()],
        tls: None,
        login: AmqpLogin::Plain { user: USER.into(), password: PASSWORD.into() },
        addressing,
        seed: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
    }
}

fn addressing(kind: Kind) -> Addressing {
    match kind {
        Kind::Artemis => Addressing::Plain,
        Kind::Classic => Addressing::Scheme,
        Kind::Rabbit => Addressing::Path,
    }
}

fn topic() -> Topic {
    Topic::Events(PeerName::new("https://id.example/realms/main").unwrap())
}

/// Waits until the transport is down; returns why.
async fn down(way: &Amqp) -> String {
    let mut state = way.state();
    let down = timeout(PATIENCE, state.wait_for(|state| matches!(state, TransportState::Down(_)))).await;
    let TransportState::Down(why) = down.expect("it goes down").unwrap().clone() else { unreachable!() };
    why.to_string()
}

async fn up(way: &Amqp) {
    let mut state = way.state();
    let up = timeout(PATIENCE, state.wait_for(|state| *state == TransportState::Up)).await;
    up.unwrap_or_else(|_| panic!("it stays {:?}", way.state().borrow())).unwrap();
}

/// Every reported state, until `last` accepts one.
async fn states(way: &Amqp, last: impl Fn(&TransportState) -> bool) -> Vec<TransportState> {
    let mut state = way.state();
    let mut seen = Vec::new();
    loop {
        let now = state.borrow_and_update().clone();
        let end = last(&now);
        seen.push(now);
        if end {
            return seen;
        }
        timeout(PATIENCE, state.changed()).await.unwrap_or_else(|_| panic!("only {seen:?}")).unwrap();
    }
}

async fn a_message_arrives(way: &Amqp) {
    let mut subscription = way.subscribe(topic());
    conformance::wait_subscribed(way, &topic(), &mut subscription).await;
}

/// The conformance tests; each endpoint has a seed of its own.
async fn conforms(settings: &AmqpSettings) {
    let next = std::cell::Cell::new(settings.seed << 32);
    conformance::run(|| {
        next.set(next.get() + 1);
        let settings = AmqpSettings { seed: next.get(), ..settings.clone() };
        async move { Amqp::start(settings) }
    })
    .await;
}

/// What is true with every broker.
async fn holds(kind: Kind) {
    let mut broker = Broker::start(kind);
    let settings = settings(&broker.address(), addressing(kind));
    conforms(&settings).await;
    tokio::join!(wrong_password(&settings), stays_up(&settings));
    cut_and_silence(&broker, &settings).await;
    freeze(&broker, &settings).await;
    others_are_tried(&settings).await;
    over_tls(&broker, &settings).await;
    too_large_or_something_else(&settings).await;
    leaves_nothing(&broker, &settings).await;
    crash(&mut broker, &settings).await;
}

async fn wrong_password(settings: &AmqpSettings) {
    let login = AmqpLogin::Plain { user: USER.into(), password: "guessed".into() };
    let way = Amqp::start(AmqpSettings { login, ..settings.clone() });
    let mut state = way.state();
    let why = down(&way).await;
    assert!(why.contains("rejects the login of \"postern\""), "{why}");
    assert!(why.contains(&settings.brokers[0]), "{why}");
    // Reported once, and never up.
    state.mark_unchanged();
    let again = timeout(Duration::from_secs(3), state.changed()).await;
    assert!(again.is_err(), "{:?}", state.borrow());
}

/// A connection without messages does not count as silent.
async fn stays_up(settings: &AmqpSettings) {
    let way = Amqp::start(AmqpSettings { seed: settings.seed + (1 << 40), ..settings.clone() });
    up(&way).await;
    let mut subscription = way.subscribe(topic());
    conformance::wait_subscribed(&way, &topic(), &mut subscription).await;
    let mut state = way.state();
    let changed = timeout(Duration::from_secs(9), state.changed()).await;
    assert!(changed.is_err(), "{:?}", state.borrow());
}

/// The transport's tasks end with it, whether the broker answers the close or not.
async fn leaves_nothing(broker: &Broker, settings: &AmqpSettings) {
    nothing_runs().await;
    for frozen in [false, true] {
        let way = Amqp::start(settings.clone());
        up(&way).await;
        a_message_arrives(&way).await;
        if frozen {
            broker.freeze();
        }
        drop(way);
        nothing_runs().await;
    }
    broker.thaw();
}

async fn nothing_runs() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let ended = timeout(Duration::from_secs(3), async {
        while alive() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(ended.await.is_ok(), "{} tasks live on", alive());
}

async fn cut_and_silence(broker: &Broker, settings: &AmqpSettings) {
    let proxy = Proxy::to(broker.port()).await;
    let way = Amqp::start(AmqpSettings { brokers: vec![proxy.address.clone()], ..settings.clone() });
    let mut subscription = way.subscribe(topic());
    up(&way).await;
    conformance::wait_subscribed(&way, &topic(), &mut subscription).await;

    proxy.set(Network::Cut);
    down(&way).await;
    // Messages sent meanwhile are not kept.
    way.send(&topic(), Bytes::from_static(b"lost"));
    proxy.set(Network::Well);
    up(&way).await;
    conformance::wait_subscribed(&way, &topic(), &mut subscription).await;

    let began = Instant::now();
    proxy.set(Network::Silent);
    let why = down(&way).await;
    assert!(why.contains("silent"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(6), "noticed after {:?}", began.elapsed());
    proxy.set(Network::Well);
    up(&way).await;
    conformance::wait_subscribed(&way, &topic(), &mut subscription).await;
}

async fn freeze(broker: &Broker, settings: &AmqpSettings) {
    let way = Amqp::start(settings.clone());
    up(&way).await;
    a_message_arrives(&way).await;
    let began = Instant::now();
    broker.freeze();
    // `send` does not wait, however much there is to send.
    for _ in 0..50_000 {
        way.send(&topic(), Bytes::from_static(&[7; 1000]));
    }
    let why = down(&way).await;
    let took = began.elapsed();
    broker.thaw();
    assert!(took < Duration::from_secs(6), "noticed after {took:?}: {why}");
    assert!(why.contains("silent"), "{why}");
    up(&way).await;
    a_message_arrives(&way).await;
}

async fn others_are_tried(settings: &AmqpSettings) {
    let nobody = format!("127.0.0.1:{}", free_port());
    let brokers = vec![nobody, settings.brokers[0].clone()];
    let way = Amqp::start(AmqpSettings { brokers, ..settings.clone() });
    let seen = states(&way, |state| *state == TransportState::Up).await;
    assert!(!seen.iter().any(|state| matches!(state, TransportState::Down(_))), "{seen:?}");
    a_message_arrives(&way).await;
}

async fn over_tls(broker: &Broker, settings: &AmqpSettings) {
    let (server, client) = tls(&certificate(|_| {}), "localhost");
    let proxy = Proxy::with_tls(broker.port(), server).await;
    let brokers = vec![proxy.address.clone()];
    let way = Amqp::start(AmqpSettings { brokers, tls: Some(client), ..settings.clone() });
    up(&way).await;
    a_message_arrives(&way).await;
}

/// Other clients may publish on the same topic.
async fn too_large_or_something_else(settings: &AmqpSettings) {
    let way = Amqp::start(settings.clone());
    up(&way).await;
    let mut subscription = way.subscribe(topic());
    conformance::wait_subscribed(&way, &topic(), &mut subscription).await;
    stranger::speak(settings, &topic()).await;
    way.send(&topic(), Bytes::from(vec![1; coherence::wire::MAX_MESSAGE + 1]));
    way.send(&topic(), Bytes::from_static(b"ours"));
    assert_eq!(conformance::next(&mut subscription).await, "ours");
    assert_eq!(*way.state().borrow(), TransportState::Up);
}

async fn crash(broker: &mut Broker, settings: &AmqpSettings) {
    let way = Amqp::start(settings.clone());
    let mut subscription = way.subscribe(topic());
    up(&way).await;
    conformance::wait_subscribed(&way, &topic(), &mut subscription).await;
    broker.kill();
    let why = down(&way).await;
    assert!(why.contains(&settings.brokers[0]), "{why}");
    broker.run();
    up(&way).await;
    conformance::wait_subscribed(&way, &topic(), &mut subscription).await;
    let mut other = way.subscribe(Topic::Questions(PeerName::new("another").unwrap()));
    conformance::wait_subscribed(&way, &Topic::Questions(PeerName::new("another").unwrap()), &mut other)
        .await;
}

/// A client that is not this crate's.
mod stranger {
    use fe2o3_amqp::types::messaging::{AmqpValue, Data, Message};
    use fe2o3_amqp::types::primitives::Binary;
    use fe2o3_amqp::{Connection, Sender, Session};

    use super::{Addressing, AmqpSettings, PASSWORD, Topic, USER};

    pub(super) async fn speak(settings: &AmqpSettings, topic: &Topic) {
        let address = match settings.addressing {
            Addressing::Plain => topic.to_string(),
            Addressing::Scheme => format!("topic://{topic}"),
            Addressing::Path => format!("/topic/{topic}"),
        };
        let stream = tokio::net::TcpStream::connect(&settings.brokers[0]).await.unwrap();
        let mut connection = Connection::builder()
            .container_id("stranger")
            .scheme("amqp")
            .sasl_profile((USER, PASSWORD))
            .open_with_stream(stream)
            .await
            .unwrap();
        let mut session = Session::begin(&mut connection).await.unwrap();
        let mut sender = Sender::attach(&mut session, "stranger", address).await.unwrap();
        sender.send(Message::from(AmqpValue("text".to_owned()))).await.unwrap();
        sender.send(Message::from(Data(Binary::from(vec![1; 100_000])))).await.unwrap();
        let _ = sender.close().await;
        let _ = connection.close().await;
    }
}

fn certificate(change: impl FnOnce(&mut rcgen::CertificateParams)) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    change(&mut params);
    let signing_key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
}

/// Both ends of TLS; the client trusts the certificate.
fn tls(certificate: &rcgen::CertifiedKey<rcgen::KeyPair>, name: &str) -> (rustls::ServerConfig, AmqpTls) {
    let der = certificate.cert.der().clone();
    let key = certificate.signing_key.serialize_der().try_into().unwrap();
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![der.clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der).unwrap();
    let client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (server, AmqpTls { config: Arc::new(client), name: Some(name.to_owned()) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artemis() {
    holds(Kind::Artemis).await;
}

/// A disk that is fuller than the broker accepts: it keeps the connection and takes no messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_takes_nothing_is_said_to_be_down() {
    let mut broker = Broker::start(Kind::Artemis);
    broker.kill();
    // No share of the disk may be in use, so it counts as full, however empty it is.
    broker.configure_artemis(0, "BLOCK");
    broker.run();
    let way = Amqp::start(settings(&broker.address(), Addressing::Plain));
    up(&way).await;
    let _subscription = way.subscribe(topic());
    let began = Instant::now();
    let mut state = way.state();
    while *state.borrow_and_update() == TransportState::Up {
        assert!(began.elapsed() < PATIENCE, "it stays up");
        // The broker first gives credit for a thousand messages.
        for _ in 0..200 {
            way.send(&topic(), Bytes::from_static(b"into the void"));
        }
        let _ = timeout(Duration::from_millis(100), state.changed()).await;
    }
    let why = down(&way).await;
    assert!(why.contains("has accepted no message for postern.events."), "{why}");
    assert!(why.contains("disk or memory is full"), "{why}");
    // Reported once, and the connection is kept.
    state.mark_unchanged();
    let again = timeout(Duration::from_secs(6), state.changed()).await;
    assert!(again.is_err(), "{:?}", state.borrow());

    broker.kill();
    broker.configure_artemis(-1, "BLOCK");
    broker.run();
    up(&way).await;
    a_message_arrives(&way).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activemq_classic() {
    holds(Kind::Classic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq() {
    holds(Kind::Rabbit).await;
}

/// A broker that is started and killed while other tests run; `None` while it starts.
struct OwnBroker(Option<Broker>);

impl Server for OwnBroker {
    fn port(&self) -> u16 {
        self.0.as_ref().unwrap().port()
    }

    fn kill(&mut self) {
        self.0.as_mut().unwrap().kill();
    }

    async fn run(&mut self) {
        let mut broker = self.0.take().unwrap();
        let run = move || {
            broker.run();
            broker
        };
        self.0 = Some(tokio::task::spawn_blocking(run).await.unwrap());
    }
}

/// Checks the promises against a broker.
pub(super) async fn promises_hold(kind: Kind) {
    let broker = tokio::task::spawn_blocking(move || Broker::start(kind)).await.unwrap();
    let name = match kind {
        Kind::Artemis => "Artemis",
        Kind::Classic => "ActiveMQ Classic",
        Kind::Rabbit => "RabbitMQ",
    };
    promises::check_promises(name, OwnBroker(Some(broker)), |port| {
        Arc::new(Amqp::start(settings(&format!("127.0.0.1:{port}"), addressing(kind))))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_to_what_ibm_mq_takes() {
    let broker = Strict::start("PLAIN").await;
    let settings = settings(&broker.address, Addressing::Plain);
    conforms(&settings).await;
    assert_eq!(broker.complaints(), Vec::<String>::new());

    // A topic that may not be sent to, then one that may not be read.
    let forbidden = Topic::Events(PeerName::new("forbidden").unwrap());
    for sending in [true, false] {
        let way = Amqp::start(settings.clone());
        up(&way).await;
        let subscription = if sending {
            way.send(&forbidden, Bytes::from_static(b"no"));
            None
        } else {
            Some(way.subscribe(forbidden.clone()))
        };
        let why = down(&way).await;
        let expected = ["refuses the address postern.events.forbidden", "MQRC 2035", "\"postern\""];
        assert!(expected.iter().all(|part| why.contains(part)), "{why}");
        // The link is requested with the next connection, so that connection is never up.
        let mut state = way.state();
        let again =
            timeout(Duration::from_secs(2), state.wait_for(|state| *state == TransportState::Up)).await;
        assert!(again.is_err(), "it is up and down in turns");
        drop(subscription);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_in_by_certificate_or_not_at_all() {
    let broker = Strict::start("EXTERNAL").await;
    let (server, client) = tls(&certificate(|_| {}), "localhost");
    let proxy = Proxy::with_tls(broker.port(), server).await;
    let over_tls = AmqpSettings {
        login: AmqpLogin::External,
        tls: Some(client),
        ..settings(&proxy.address, Addressing::Plain)
    };
    let way = Amqp::start(over_tls.clone());
    up(&way).await;
    a_message_arrives(&way).await;

    let why = down(&Amqp::start(AmqpSettings { login: AmqpLogin::Anonymous, ..over_tls })).await;
    assert!(why.contains("does not offer ANONYMOUS"), "{why}");

    let broker = Strict::start("ANONYMOUS").await;
    let anonymous = settings(&broker.address, Addressing::Plain);
    let way = Amqp::start(AmqpSettings { login: AmqpLogin::Anonymous, ..anonymous });
    up(&way).await;
    a_message_arrives(&way).await;
    assert_eq!(broker.complaints(), Vec::<String>::new());
}

/// Latency of messages, one at a time:
/// `cargo test --release -p coherence -- --ignored --nocapture latency`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn latency() {
    for kind in [Kind::Artemis, Kind::Classic, Kind::Rabbit] {
        let broker = Broker::start(kind);
        let settings = settings(&broker.address(), addressing(kind));
        let (one, other) =
            (Amqp::start(settings.clone()), Amqp::start(AmqpSettings { seed: 1 << 40, ..settings }));
        up(&one).await;
        up(&other).await;
        let mut subscription = other.subscribe(topic());
        conformance::wait_subscribed(&one, &topic(), &mut subscription).await;
        let mut took = Vec::new();
        for number in 0..3000_u32 {
            let message = Bytes::copy_from_slice(&number.to_be_bytes());
            let began = Instant::now();
            one.send(&topic(), message.clone());
            assert_eq!(conformance::next(&mut subscription).await, message);
            // The broker's virtual machine warms up first.
            if number >= 2000 {
                took.push(began.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        took.sort();
        println!("{kind:?}: p50 {:?}, p99 {:?}, max {:?}", took[500], took[990], took[999]);
    }
}
