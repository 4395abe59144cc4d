//! Brokers that are away, refuse or present a bad certificate.

use super::{PATIENCE, a_message_arrives, certificate, down, settings, tls, topic, up};
use crate::proxy::{Network, Proxy};
use crate::servers::free_port;
use crate::strict::Strict;
use bytes::Bytes;
use coherence::transport::Transport as _;
use coherence::transport::amqp::{Addressing, Amqp, AmqpSettings};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes thirteen seconds, or as many as `POSTERN_OUTAGE_SECONDS` says.
#[expect(clippy::disallowed_methods, reason = "tests are told of their extent by the environment")]
fn outage() -> Duration {
    let seconds = std::env::var("POSTERN_OUTAGE_SECONDS").map(|seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(13))
}

#[tokio::test]
async fn a_broker_is_away_in_two_lines() {
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone());
    let _logged = tracing::subscriber::set_default(subscriber.finish());
    // With only one dispatcher, the first log line on another test's thread decides for all threads
    // whether it is enabled.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let ours = || {
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        text.lines()
            .filter(|line| line.contains(" coherence::") || line.contains(" outage: "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let broker = Strict::start("PLAIN").await;
    // The first of the brokers is never there.
    let proxy = Proxy::to(broker.port()).await;
    let nobody = format!("127.0.0.1:{}", free_port());
    let brokers = vec![nobody, proxy.address.clone()];
    let way = Amqp::start(AmqpSettings { brokers, ..settings("", Addressing::Plain) });
    up(&way).await;
    a_message_arrives(&way).await;
    assert!(ours().iter().all(|line| line.contains(" INFO ")), "{:?}", ours());
    proxy.set(Network::Cut);
    let began = Instant::now();
    while began.elapsed() < outage() {
        way.send(&topic(), Bytes::from_static(b"lost"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    proxy.set(Network::Well);
    up(&way).await;
    a_message_arrives(&way).await;
    let is_back = |line: &String| line.contains("dependency available again dependency=\"broker amqp\"");
    let began = Instant::now();
    while !ours().iter().any(is_back) {
        assert!(began.elapsed() < PATIENCE, "{:?}", ours());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let lines = ours();
    let warnings: Vec<_> = lines.iter().filter(|line| line.contains(" WARN ")).collect();
    assert_eq!(warnings.len(), 1, "{lines:?}");
    assert!(warnings[0].contains("dependency unavailable dependency=\"broker amqp\""), "{warnings:?}");
    assert_eq!(lines.iter().filter(|line| is_back(line)).count(), 1, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(" after=") && line.contains(" failures=")), "{lines:?}");
}

#[tokio::test]
async fn says_why_there_is_no_connection() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let why = down(&Amqp::start(settings(&nobody, Addressing::Plain))).await;
    assert!(why.contains(&nobody) && why.contains("refuses connections"), "{why}");

    let why = down(&Amqp::start(settings("no-such-host.invalid:5672", Addressing::Plain))).await;
    assert!(why.contains("no-such-host.invalid:5672") && why.contains("cannot be resolved"), "{why}");

    let why =
        down(&Amqp::start(settings(&server(b"HTTP/1.1 400 Bad Request\r\n\r\n").await, Addressing::Plain)))
            .await;
    assert!(why.contains("AMQP"), "{why}");

    let both = AmqpSettings { brokers: vec![nobody.clone(), nobody], ..settings("", Addressing::Plain) };
    let why = down(&Amqp::start(both)).await;
    assert_eq!(why.matches("refuses connections").count(), 2, "{why}");

    let none = AmqpSettings { brokers: vec![], ..settings("", Addressing::Plain) };
    assert!(down(&Amqp::start(none)).await.contains("no broker"));
}

#[tokio::test]
async fn says_what_is_wrong_with_a_certificate() {
    let good = certificate(|_| {});
    let other = certificate(|params| params.distinguished_name.push(rcgen::DnType::CommonName, "other"));
    let expired = certificate(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let cases = [
        (tls(&good, "localhost").0, tls(&other, "localhost").1, "unknown issuer"),
        (tls(&expired, "localhost").0, tls(&expired, "localhost").1, "expired"),
        (tls(&good, "localhost").0, tls(&good, "elsewhere.example").1, "another name"),
    ];
    for (server, client, expected) in cases {
        let broker = free_port();
        let _nothing = TcpListener::bind(("127.0.0.1", broker)).await.unwrap();
        let proxy = Proxy::with_tls(broker, server).await;
        let settings = settings(&proxy.address, Addressing::Plain);
        let why = down(&Amqp::start(AmqpSettings { tls: Some(client), ..settings })).await;
        assert!(why.contains(expected) && why.contains(&proxy.address), "{why}");
    }
}

/// Accepts connections, sends a greeting to each, and waits.
async fn server(greeting: &'static [u8]) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(greeting).await;
            tokio::spawn(async move { client.read_to_end(&mut Vec::new()).await });
        }
    });
    address
}

#[tokio::test]
async fn nothing_is_left_of_it() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let way = Amqp::start(settings(&listener.local_addr().unwrap().to_string(), Addressing::Plain));
    let mut subscription = way.subscribe(topic());
    let (mut client, _) = listener.accept().await.unwrap();
    let mut state = way.state();
    drop(way);
    let rest = timeout(Duration::from_secs(1), client.read_to_end(&mut Vec::new())).await;
    assert!(rest.is_ok(), "its socket is open");
    let ended = timeout(Duration::from_secs(1), async { while state.changed().await.is_ok() {} }).await;
    assert!(ended.is_ok(), "its task runs");
    assert_eq!(timeout(Duration::from_secs(1), subscription.recv()).await.expect("it ends"), None);
}
