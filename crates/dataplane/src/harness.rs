//! Test harness: a gateway in this process, an upstream that records every byte, and a client that
//! sends any bytes.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use credentials::cache::{CacheSecret, Generation};
use credentials::revocation::FollowedIssuers;
use credentials::session_store::SessionStore;
use gateway::server::{Gateway, Services};
use http_engine::clock::{Clock, SystemClock};
use http_engine::upstream::resolver::Resolver;
use telemetry::access_log::AccessLog;
use telemetry::metrics::{Format, Metrics};

pub use crate::issuer::{AUDIENCE, ISSUER, Issuer, now};

/// Time limit of a test for expected bytes.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Runtime for the gateway's work besides requests.
pub static CONTROL: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("control runtime")
});

/// A request as an upstream received it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The head as received, without the final empty line.
    pub head: String,
    /// The decoded body.
    pub body: Vec<u8>,
    /// The trailer lines.
    pub trailers: Vec<String>,
}

impl Seen {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Values of a field with exactly this name, in any case.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.trim())
            .collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|l| l.split_once(':'))
            .map(|(n, _)| n.to_ascii_lowercase())
            .collect()
    }
}

type Respond = dyn Fn(&Seen, &mut TcpStream) -> bool + Send + Sync;

/// An upstream that records its requests.
pub struct Upstream {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    /// Answers every request with 200 and `ok`.
    pub fn start() -> Self {
        Self::answering(|_, socket| {
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
        })
    }

    /// Answers with `respond`, which returns `false` to close the connection.
    pub fn answering(respond: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").expect("loopback"), respond)
    }

    /// The same on this socket.
    pub fn listening(
        listener: TcpListener,
        respond: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().expect("address");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let connections = Arc::new(AtomicUsize::new(0));
        let respond: Arc<Respond> = Arc::new(respond);
        let (log, count) = (seen.clone(), connections.clone());
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let (log, respond) = (log.clone(), respond.clone());
                std::thread::spawn(move || serve(socket, &log, &*respond));
            }
        });
        Self { address, seen, connections }
    }

    /// All requests received so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("log").clone()
    }

    /// The only request received.
    pub fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "exactly one request reaches the upstream: {seen:#?}");
        seen.into_iter().next().expect("one")
    }

    /// Number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(mut socket: TcpStream, log: &Mutex<Vec<Seen>>, respond: &Respond) {
    let mut held = Vec::new();
    loop {
        let Some(end) = read_until(&mut socket, &mut held, b"\r\n\r\n") else { return };
        let head = String::from_utf8_lossy(&held[..end - 4]).into_owned();
        held.drain(..end);
        let mut seen = Seen { head, body: Vec::new(), trailers: Vec::new() };
        if seen.values("transfer-encoding") == ["chunked"] {
            let Some((body, trailers)) = read_chunked(&mut socket, &mut held) else {
                log.lock().expect("log").push(seen);
                return;
            };
            (seen.body, seen.trailers) = (body, trailers);
        } else if let Some(length) =
            seen.values("content-length").first().and_then(|v| v.parse::<usize>().ok())
        {
            // With `Expect`, the test's handler answers before the body arrives.
            if seen.values("expect").is_empty() {
                if !fill(&mut socket, &mut held, length) {
                    seen.body = held.clone();
                    log.lock().expect("log").push(seen);
                    return;
                }
                seen.body = held.drain(..length).collect();
            }
        }
        log.lock().expect("log").push(seen.clone());
        if !respond(&seen, &mut socket) {
            return;
        }
    }
}

fn fill(socket: &mut impl Read, held: &mut Vec<u8>, length: usize) -> bool {
    let mut chunk = [0; 4096];
    while held.len() < length {
        match socket.read(&mut chunk) {
            Ok(n) if n > 0 => held.extend_from_slice(&chunk[..n]),
            _ => return false,
        }
    }
    true
}

fn read_until(socket: &mut impl Read, held: &mut Vec<u8>, end: &[u8]) -> Option<usize> {
    loop {
        if let Some(at) = held.windows(end.len()).position(|w| w == end) {
            return Some(at + end.len());
        }
        let more = held.len() + 1;
        if !fill(socket, held, more) {
            return None;
        }
    }
}

/// Decodes a chunked body into payload and trailer lines.
pub fn read_chunked(socket: &mut impl Read, held: &mut Vec<u8>) -> Option<(Vec<u8>, Vec<String>)> {
    let mut body = Vec::new();
    loop {
        let end = read_until(socket, held, b"\r\n")?;
        let line = String::from_utf8(held.drain(..end).collect()).ok()?;
        let size = usize::from_str_radix(line.trim().split(';').next()?, 16).ok()?;
        if size == 0 {
            let mut trailers = Vec::new();
            loop {
                let end = read_until(socket, held, b"\r\n")?;
                let line = String::from_utf8(held.drain(..end).collect()).ok()?;
                if line == "\r\n" {
                    return Some((body, trailers));
                }
                trailers.push(line.trim_end().to_owned());
            }
        }
        if !fill(socket, held, size + 2) {
            return None;
        }
        body.extend(held.drain(..size));
        held.drain(..2);
    }
}

/// A gateway in front of one upstream.
pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub issuer: Issuer,
    pub upstream: Upstream,
    gateway: Option<Gateway>,
    pub metrics: Arc<Metrics>,
    pub address: SocketAddr,
}

/// Changes of a test to the default configuration.
#[derive(Default)]
pub struct Setup {
    /// Lines under `[[listener]]`.
    pub listener: String,
    /// Lines under `[[upstream]]`. Without `endpoints`, the default is added.
    pub upstream: String,
    /// Lines under the route `protected`.
    pub route: String,
    /// Further tables.
    pub more: String,
    /// Lines at `[server]`.
    pub server: String,
}

impl Setup {
    /// The configuration file: a protected route at `/`, a public one at `/open`.
    pub fn file(&self, dir: &Path, upstream: SocketAddr) -> String {
        let mut file = String::new();
        let endpoints = if self.upstream.contains("endpoints") {
            String::new()
        } else {
            format!("endpoints = [\"http://{upstream}\"]")
        };
        let _ = write!(
            file,
            r#"
[server]
workers = 1
{server}
[admin]
enabled = false
[access_log]
format = "off"
[[listener]]
name = "test"
address = "127.0.0.1:0"
{listener}
[[issuer]]
name = "test"
issuer = "{ISSUER}"
audiences = ["{AUDIENCE}"]
jwks_file = "{jwks}"
[[upstream]]
name = "backend"
{endpoints}
{upstream}
[[route]]
name = "open"
path = {{ prefix = "/open" }}
upstream = "backend"
public = true
[[route]]
name = "protected"
path = {{ prefix = "/" }}
upstream = "backend"
policy = {{ allow = [{{ groups = {{ any = ["dev"] }} }}] }}
{route}
{more}
"#,
            server = self.server,
            listener = self.listener,
            jwks = dir.join("jwks.json").display(),
            upstream = self.upstream,
            route = self.route,
            more = self.more,
        );
        file
    }
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(Setup::default(), Upstream::start())
    }

    pub fn with(setup: Setup, upstream: Upstream) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let issuer = Issuer::new();
        issuer.write_jwks(&dir.path().join("jwks.json"));
        let text = setup.file(dir.path(), upstream.address);
        Self::from_text(dir, issuer, upstream, &text)
    }

    pub fn from_text(dir: tempfile::TempDir, issuer: Issuer, upstream: Upstream, text: &str) -> Self {
        Self::observed(dir, issuer, upstream, text, Arc::new(SystemClock), None)
    }

    /// The same with names that this resolver looks up, and with an access log.
    pub fn resolving(setup: Setup, resolver: Resolver, access_log: Option<AccessLog>) -> Self {
        let (dir, issuer, upstream) =
            (tempfile::tempdir().expect("directory"), Issuer::new(), Upstream::start());
        issuer.write_jwks(&dir.path().join("jwks.json"));
        let text = setup.file(dir.path(), upstream.address);
        Self::build(dir, issuer, upstream, &text, Services { resolver, access_log, ..services(1) })
    }

    /// The same with a given clock and session store.
    pub fn keeping(
        dir: tempfile::TempDir,
        upstream: Upstream,
        text: &str,
        clock: Arc<dyn Clock>,
        sessions: Option<Arc<dyn SessionStore>>,
    ) -> Self {
        let issuer = Issuer::new();
        issuer.write_jwks(&dir.path().join("jwks.json"));
        Self::build(dir, issuer, upstream, text, Services { clock, sessions, ..services(1) })
    }

    /// The same with a given clock and an access log.
    pub fn observed(
        dir: tempfile::TempDir,
        issuer: Issuer,
        upstream: Upstream,
        text: &str,
        clock: Arc<dyn Clock>,
        access_log: Option<AccessLog>,
    ) -> Self {
        Self::build(dir, issuer, upstream, text, Services { clock, access_log, ..services(1) })
    }

    fn build(
        dir: tempfile::TempDir,
        issuer: Issuer,
        upstream: Upstream,
        text: &str,
        services: Services,
    ) -> Self {
        let settings = load(dir.path(), text);
        let metrics = services.metrics.clone();
        let gateway = Gateway::start(settings, 1, http_engine::listen::Claim::Exclusive, &services)
            .expect("gateway starts");
        let address = gateway.addresses()[0].1.ip().expect("a port");
        Self { dir, issuer, upstream, gateway: Some(gateway), metrics, address }
    }

    /// Value of a series, or 0 if there is none. A request is counted after its response was
    /// written, so a client may see the response earlier. Therefore this waits for requests in
    /// flight, up to a limit.
    pub fn counted(&self, series: &str) -> f64 {
        const UNDER_WAY: &str = "postern_requests_in_flight";
        let began = Instant::now();
        while series != UNDER_WAY && self.value(UNDER_WAY) > 0.5 && began.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.value(series)
    }

    fn value(&self, series: &str) -> f64 {
        let text = self.metrics.render(Format::Text);
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().expect("number"))
    }

    pub fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("running")
    }

    pub fn take_gateway(&mut self) -> Gateway {
        self.gateway.take().expect("running")
    }

    pub fn reload(&self, setup: &Setup) {
        let config = load(self.dir.path(), &setup.file(self.dir.path(), self.upstream.address));
        self.gateway().reload(config).expect("reload");
    }

    pub fn connect(&self) -> TestClient {
        TestClient::connect(self.address)
    }

    /// Sends bytes on a new connection and reads one response.
    pub fn send(&self, bytes: impl AsRef<[u8]>) -> Response {
        let mut client = self.connect();
        client.send(bytes);
        client.response()
    }

    /// Sends a `GET` with alice's token.
    pub fn get(&self, path: &str) -> Response {
        self.send(self.request(path, ""))
    }

    /// A request head with alice's token and further field lines.
    pub fn request(&self, path: &str, fields: &str) -> String {
        let token = self.issuer.token(|_| {});
        format!("GET {path} HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n{fields}\r\n")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.drain(Duration::ZERO);
        }
    }
}

/// Waits until a condition is true. Returns how long that took.
pub fn until(condition: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}

/// What a gateway with this number of workers needs besides its configuration.
pub fn services(workers: usize) -> Services {
    Services {
        clock: Arc::new(SystemClock),
        metrics: Metrics::new(workers),
        access_log: None,
        tracer: None,
        control: CONTROL.handle().clone(),
        secret: CacheSecret::new([7; 16]),
        generation: Generation::default(),
        follows: FollowedIssuers::default(),
        sessions: None,
        events: None,
        resolver: Resolver::system(),
    }
}

/// Loads a configuration as `serve` does, for the gateway alone.
pub fn load(dir: &Path, text: &str) -> gateway::config::Config {
    load_all(dir, text).config
}

/// Loads a configuration as `serve` does.
pub fn load_all(dir: &Path, text: &str) -> Box<config::LoadedConfig> {
    let path = dir.join("postern.toml");
    std::fs::write(&path, text).expect("file");
    match config::load_file(&path, Timestamp::from_secs(now()), 1) {
        Ok(loaded) => loaded,
        Err(refused) => panic!("the configuration is sound: {}", refused.report),
    }
}

/// A client that sends any bytes.
pub struct TestClient {
    pub socket: TcpStream,
    held: Vec<u8>,
}

/// A response as received.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub trailers: Vec<String>,
}

impl Response {
    pub fn value(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|l| l.split_once(':'))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.trim())
    }

    pub fn closes(&self) -> bool {
        self.value("connection") == Some("close")
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl TestClient {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("gateway listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        socket.set_nodelay(true).expect("nodelay");
        Self { socket, held: Vec::new() }
    }

    /// Connects over a Unix socket, wrapped as a TCP stream because the tests need only the common
    /// operations.
    pub fn connect_unix(path: &Path) -> std::io::Result<Self> {
        let socket = TcpStream::from(OwnedFd::from(UnixStream::connect(path)?));
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, held: Vec::new() })
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("sent");
    }

    /// Reads one response head. Interim responses count too.
    pub fn head(&mut self) -> Response {
        let end = read_until(&mut self.socket, &mut self.held, b"\r\n\r\n")
            .unwrap_or_else(|| panic!("a response comes; got {:?}", String::from_utf8_lossy(&self.held)));
        let head = String::from_utf8(self.held.drain(..end).collect()).expect("text");
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("status");
        Response { status, head, body: Vec::new(), trailers: Vec::new() }
    }

    /// Reads one response to a request that is not HEAD.
    pub fn response(&mut self) -> Response {
        let mut response = self.head();
        if response.value("transfer-encoding") == Some("chunked") {
            let (body, trailers) =
                read_chunked(&mut self.socket, &mut self.held).expect("a whole chunked body");
            (response.body, response.trailers) = (body, trailers);
        } else if let Some(length) = response.value("content-length").and_then(|v| v.parse().ok()) {
            assert!(fill(&mut self.socket, &mut self.held, length), "a whole body");
            response.body = self.held.drain(..length).collect();
        } else if response.status >= 200 && !matches!(response.status, 204 | 304) {
            response.body = self.rest();
        }
        response
    }

    /// Everything until the gateway closes. A reset counts as a close.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.held);
        let _ = self.socket.read_to_end(&mut rest);
        rest
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        assert!(fill(&mut self.socket, &mut self.held, n), "{n} bytes come; got {:?}", self.held);
        self.held.drain(..n).collect()
    }

    /// Stops sending, but continues reading.
    pub fn half_close(&self) {
        self.socket.shutdown(Shutdown::Write).expect("open");
    }

    /// Closes with a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).expect("linger");
    }

    /// Whether the gateway has closed without further bytes.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.socket.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
