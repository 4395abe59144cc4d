//! Servers of the tests, a bad network in front of them, and what every transport over a server
//! must tolerate.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use coherence::PeerName;
use coherence::transport::conformance::{is_empty, next, wait_subscribed, wait_up};
use coherence::transport::{Address, Link, Subscription, Topic, Transport, TransportState};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Time limit for noticing a server that is silent.
const DETECTION_TIME: Duration = Duration::from_millis(5_500);
/// Time limit for a transport to be up after its server is, with the longest pause between
/// attempts.
const RECONNECT_TIME: Duration = Duration::from_secs(10);

/// Path of a program; fails with a text that says how to install it.
pub(crate) fn program(name: &str, part: &str) -> PathBuf {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = debian.map(|version| version.path().join("bin")).collect();
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    folders.extend(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed; run dev/setup {part}"))
}

/// A port on which nothing listens, and that was not returned before. It lies below the range of
/// ephemeral ports (Linux: 32768 and above), so no outgoing connection takes it before the server
/// listens.
pub(crate) fn free_port() -> u16 {
    const PORTS: Range<u32> = 10_000..18_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Concurrent test runs begin at different places.
    let begin = std::process::id().wrapping_mul(0x9E37_79B1) >> 16;
    loop {
        let at = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
        let port = u16::try_from(PORTS.start + at).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A process, killed when dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        kill(signal, self.0.id());
    }

    /// Sends a signal to the process and to those that it has started.
    pub(crate) fn signal_all(&self, signal: &str) {
        let pid = self.0.id();
        kill(signal, pid);
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        for child in children.split_whitespace() {
            kill(signal, child.parse().unwrap());
        }
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

fn kill(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

impl Drop for Process {
    /// Kills the process with `kill -9`.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// State of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkState {
    Fair,
    /// Connections are closed, and new ones too.
    Cut,
    /// Nothing gets through, and no end is notified.
    Silent,
    /// The same, but only towards the server.
    Deaf,
    /// The same, but only from the server.
    Mute,
    /// Everything is delayed.
    Slow,
}

/// Delay of a slow network.
const SLOW: Duration = Duration::from_millis(200);

/// A bad network in front of a server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    weather: watch::Sender<NetworkState>,
    connections: watch::Receiver<usize>,
}

impl Proxy {
    pub(crate) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (weather, today) = watch::channel(NetworkState::Fair);
        let (count, connections) = watch::channel(0);
        tokio::spawn(async move {
            let count = Arc::new(count);
            while let Ok((client, _)) = listener.accept().await {
                let (count, today) = (Arc::clone(&count), today.clone());
                tokio::spawn(async move {
                    count.send_modify(|count| *count += 1);
                    forward(client, to, today).await;
                    count.send_modify(|count| *count -= 1);
                });
            }
        });
        Self { port, weather, connections }
    }

    pub(crate) fn set(&self, weather: NetworkState) {
        self.weather.send_replace(weather);
    }

    /// Waits until no client is connected.
    pub(crate) async fn deserted(&mut self) {
        let deserted = self.connections.wait_for(|count| *count == 0);
        tokio::time::timeout(Duration::from_secs(2), deserted)
            .await
            .expect("every socket is closed")
            .unwrap();
    }
}

async fn forward(client: TcpStream, to: u16, weather: watch::Receiver<NetworkState>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let mut cut = weather.clone();
    tokio::select! {
        () = pump(client_reads, server_writes, weather.clone(), &[NetworkState::Silent, NetworkState::Deaf]) => {}
        () = pump(server_reads, client_writes, weather, &[NetworkState::Silent, NetworkState::Mute]) => {}
        _ = cut.wait_for(|weather| *weather == NetworkState::Cut) => {}
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut weather: watch::Receiver<NetworkState>,
    bad: &[NetworkState],
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if weather.wait_for(|weather| !bad.contains(weather)).await.is_err() {
            break;
        }
        if *weather.borrow() == NetworkState::Slow {
            tokio::time::sleep(SLOW).await;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}

pub(crate) fn local(port: u16) -> Address {
    Address::tcp("127.0.0.1", port)
}

pub(crate) fn topic() -> Topic {
    Topic::Events(PeerName::new("https://id.example/realms/Main").unwrap())
}

/// Waits until the transport is down; returns the reported cause.
pub(crate) async fn down(way: &Link, within: Duration) -> Arc<str> {
    let mut state = way.state();
    let down = state.wait_for(|state| matches!(state, TransportState::Down(_)));
    match &*tokio::time::timeout(within, down).await.expect("it goes down").expect("it lives") {
        TransportState::Down(why) => Arc::clone(why),
        other => panic!("{other:?}"),
    }
}

/// Waits until a transport carries messages; returns a subscription.
pub(crate) async fn carrying(way: &Link) -> Subscription {
    wait_up(way).await;
    let mut subscription = way.subscribe(topic());
    wait_subscribed(way, &topic(), &mut subscription).await;
    subscription
}

/// The transport must come up, and the earlier subscription must get what is sent.
async fn carries_again(way: &Link, subscription: &mut Subscription) {
    let began = Instant::now();
    wait_up(way).await;
    assert!(began.elapsed() < RECONNECT_TIME, "{:?}", began.elapsed());
    wait_subscribed(way, &topic(), subscription).await;
    way.send(&topic(), Bytes::from_static(b"again"));
    assert_eq!(next(subscription).await, "again");
}

/// A server is killed and comes back: so does the transport, and messages sent meanwhile do not
/// arrive late.
pub(crate) async fn survives_a_kill<S>(way: &Link, server: S, again: impl AsyncFn() -> S) -> S {
    let mut subscription = carrying(way).await;
    drop(server);
    let why = down(way, Duration::from_secs(2)).await;
    way.send(&topic(), Bytes::from_static(b"late"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let server = again().await;
    wait_up(way).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(is_empty(&mut subscription), "nothing is kept for later");
    carries_again(way, &mut subscription).await;
    assert!(why.contains("127.0.0.1:"), "{why}");
    server
}

/// A network that is cut, or silent in both directions or one, is noticed; the transport recovers
/// with it.
pub(crate) async fn survives_weather(connect: impl Fn(Address) -> Link, port: u16) {
    let mut proxy = Proxy::start(port).await;
    let way = connect(local(proxy.port));
    let mut subscription = carrying(&way).await;
    for (weather, within) in [
        (NetworkState::Cut, Duration::from_secs(1)),
        (NetworkState::Silent, DETECTION_TIME),
        (NetworkState::Deaf, DETECTION_TIME),
    ] {
        proxy.set(weather);
        let began = Instant::now();
        let why = down(&way, within).await;
        eprintln!("{weather:?}: noticed after {:?}: {why}", began.elapsed());
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.set(NetworkState::Fair);
        carries_again(&way, &mut subscription).await;
    }
    drop(way);
    assert!(wait_ended(&mut subscription).await, "the subscription ends with the way");
    proxy.deserted().await;
}

/// Whether a subscription ends soon.
async fn wait_ended(subscription: &mut Subscription) -> bool {
    let ends = async { while subscription.recv().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(1), ends).await.is_ok()
}

/// A server that is stopped is noticed, and used again when it continues.
pub(crate) async fn survives_a_stop(way: &Link, stop: impl Fn(&str)) {
    let mut subscription = carrying(way).await;
    stop("STOP");
    let began = Instant::now();
    let why = down(way, DETECTION_TIME).await;
    eprintln!("stopped: noticed after {:?}: {why}", began.elapsed());
    stop("CONT");
    carries_again(way, &mut subscription).await;
}

/// A transport that cannot come up reports why, once, and is never up.
pub(crate) async fn stays_down(way: &Link, for_this: &[&str]) {
    let mut state = way.state();
    let why = down(way, Duration::from_secs(5)).await;
    state.mark_unchanged();
    for part in for_this {
        assert!(why.contains(part), "{part:?} is not in {why:?}");
    }
    assert!(
        tokio::time::timeout(Duration::from_secs(2), state.changed()).await.is_err(),
        "{:?}",
        *state.borrow()
    );
    eprintln!("{why}");
}

/// Latency of a thousand messages, one after the other, from `send` to the subscriber.
pub(crate) async fn latency(way: &Link) -> String {
    let mut subscription = carrying(way).await;
    let mut times = Vec::new();
    for _ in 0..1000 {
        let began = Instant::now();
        way.send(&topic(), Bytes::from_static(&[7; 200]));
        next(&mut subscription).await;
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    times.sort();
    let mut text = String::new();
    for (name, at) in [("p50", 500), ("p99", 990), ("worst", 999)] {
        write!(text, "{name} {:.0?}  ", times[at]).unwrap();
    }
    text
}

/// A server's certificate for `localhost`, and its key, as files.
pub(crate) struct Certified {
    folder: TempDir,
    certificate: CertificateDer<'static>,
}

impl Certified {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self { folder, certificate: made.cert.der().clone() }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// A TLS configuration that trusts this certificate.
    pub(crate) fn trusted(&self) -> Arc<ClientConfig> {
        trusting(Some(self.certificate.clone()))
    }
}

/// A TLS configuration that trusts no authority.
pub(crate) fn trusting_none() -> Arc<ClientConfig> {
    trusting(None)
}

fn trusting(root: Option<CertificateDer<'static>>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(root);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(tls.with_root_certificates(roots).with_no_client_auth())
}
