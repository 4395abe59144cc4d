//! The admin listener over real connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway::admin::{Admin, serve};
use telemetry::metrics::{Metrics, Outcome};
use telemetry::test_support::exposition::read;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);

struct Running {
    address: SocketAddr,
    draining: Arc<AtomicBool>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

async fn start() -> Running {
    let metrics = Metrics::new(1);
    let worker = metrics.worker(0).unwrap();
    metrics.route("api").count_finished(&worker, Outcome::Allowed, 200, 1);
    let draining = Arc::new(AtomicBool::new(false));
    let drains = Arc::clone(&draining);
    let admin = Admin {
        live: Box::new(Vec::new),
        ready: Box::new(move || {
            let reasons = ["draining", "issuer \"corp\" has no keys:\r\nrefused"];
            let shown = if drains.load(Ordering::Relaxed) { &reasons[..] } else { &[] };
            shown.iter().map(ToString::to_string).collect()
        }),
        notes: Box::new(|| vec!["the broker\nis away".into()]),
        metrics,
        config: Box::new(|| "password = \"(hidden)\"\n".into()),
        followed_issuers: Box::new(|| "[]".into()),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(serve(listener, Arc::new(admin), async { drop(stopped.await) }));
    Running { address, draining, stop, serving }
}

impl Running {
    async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(LONG, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    }

    /// Status line, head and body of one request with fields besides `Host`.
    async fn ask(&self, method: &str, path: &str, fields: &str) -> (String, String, String) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{fields}\r\n",
            self.address
        );
        let answer = self.raw(&request).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let (status, head) = head.split_once("\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        assert!(head.contains("cache-control: no-store"), "{head}");
        (status.to_owned(), head, body.to_owned())
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        timeout(LONG, self.serving).await.unwrap().unwrap();
        assert!(TcpStream::connect(self.address).await.is_err(), "nobody listens any more");
    }
}

#[tokio::test]
async fn health() {
    let running = start().await;
    let (status, head, body) = running.ask("GET", "/livez", "").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "live\n"));
    assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");
    let (status, _, body) = running.ask("GET", "/readyz?verbose", "").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ready\nthe broker is away\n"));
    running.draining.store(true, Ordering::Relaxed);
    let (status, _, body) = running.ask("GET", "/readyz", "").await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(
        body, "draining\nissuer \"corp\" has no keys:  refused\nthe broker is away\n",
        "one line each"
    );
    assert_eq!(running.ask("GET", "/livez", "").await.0, "HTTP/1.1 200 OK", "draining is no reason to kill");
    running.end().await;
}

#[tokio::test]
async fn metrics_in_the_form_asked_for() {
    let running = start().await;
    let (status, head, body) = running.ask("GET", "/metrics", "").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(read(&body, false).contains_key("postern_workers"));
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5\r\nAccept: text/plain;q=0.3\r\n";
    let (_, head, body) = running.ask("GET", "/metrics", accept).await;
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert!(read(&body, true).contains_key("postern_workers"));
    let protobuf =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let (_, head, body) =
        running.ask("HEAD", "/metrics", &format!("Accept: {protobuf},text/plain;q=0.1\r\n")).await;
    let message = "content-type: application/vnd.google.protobuf; proto=io.prometheus.client.metricfamily; encoding=delimited";
    assert!(head.contains(message) && body.is_empty(), "{head}");
    running.end().await;
}

#[tokio::test]
async fn configuration_is_what_the_closure_gives() {
    let running = start().await;
    assert_eq!(running.ask("GET", "/debug/config", "").await.2, "password = \"(hidden)\"\n");
    let (_, head, body) = running.ask("GET", "/debug/revocation", "").await;
    assert!(head.contains("application/json") && body == "[]", "{head}");
    running.end().await;
}

#[tokio::test]
async fn other_paths_and_methods() {
    let running = start().await;
    for path in ["/", "/livez/", "/metrics/x", "/debug", "/%6civez", "//livez"] {
        assert_eq!(running.ask("GET", path, "").await.0, "HTTP/1.1 404 Not Found", "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"] {
        let (status, head, _) = running.ask(method, "/metrics", "Content-Length: 0\r\n").await;
        assert_eq!(status, "HTTP/1.1 405 Method Not Allowed", "{method}");
        assert!(head.contains("allow: get, head"), "{head}");
    }
    let (status, head, body) = running.ask("HEAD", "/livez", "").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", ""));
    assert!(head.contains("content-length: 5"), "{head}");
    running.end().await;
}

#[tokio::test]
async fn a_web_page_cannot_read_a_loopback_listener() {
    let running = start().await;
    for fields in ["Host: rebound.example\r\n", "Host: 127.0.0.1\r\nHost: rebound.example\r\n", ""] {
        let request = format!("GET /debug/config HTTP/1.1\r\nConnection: close\r\n{fields}\r\n");
        let answer = running.raw(&request).await;
        assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("password"), "{fields:?}: {answer}");
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn slow_and_silent_clients_are_cut_off() {
    let running = start().await;
    for begin in ["", "GET /livez HTTP/1.1\r\nHost: loc", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let since = tokio::time::Instant::now();
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // An end or a reset; what matters is that it comes, and long before the maximum lifetime of
        // a connection.
        let _ = stream.read_to_end(&mut answer).await;
        let waited = since.elapsed();
        assert!(
            waited >= Duration::from_secs(10) && waited < Duration::from_mins(1),
            "{begin:?}: {waited:?}"
        );
    }
    running.end().await;
}

#[tokio::test]
async fn nonsense_is_refused_and_too_many_connections_are_closed() {
    let running = start().await;
    assert!(running.raw("NONSENSE\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut begin = [0; 12];
        timeout(LONG, stream.read_exact(&mut begin)).await.unwrap().unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        held.push(stream);
    }
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    // Closed without a response; whether this shows as an end or as a reset depends on timing.
    let got = timeout(LONG, stream.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(got, Ok(0) | Err(_)), "{got:?}");
    drop(held.pop());
    let answered = async {
        loop {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            let _ = stream.write_all(b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n").await;
            let mut answer = String::new();
            if stream.read_to_string(&mut answer).await.is_ok() && answer.contains("live") {
                break;
            }
        }
    };
    timeout(LONG, answered).await.expect("a place that became free is used");
    // Idle connections do not delay the end.
    running.end().await;
}
