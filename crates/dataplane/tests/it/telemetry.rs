//! Telemetry of requests: phases, log lines, counters.

use std::io::{self, Read as _, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use http::Request;
use http_engine::clock::{Clock, ManualClock, Now, SystemClock};
use serde_json::Value;
use telemetry::access_log::{AccessLog, AccessLogOptions, Destination, Style};

use dataplane::harness::{CONTROL, Fixture, ISSUER, Issuer, PATIENCE, Response, Setup, Upstream, now, until};

const PLAIN_ISSUER: &str = "http://issuer.test";

const TIMED: &str = "[telemetry]\nserver_timing_to = [\"127.0.0.1\"]\n";

/// Lines of an access log as they are written.
pub(crate) struct Lines(Receiver<Value>);

struct ToLines(Sender<Value>);

impl Write for ToLines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        for line in std::str::from_utf8(text).expect("text").lines() {
            // The reader may have gone.
            let _ = self.0.send(serde_json::from_str(line).expect("a line is JSON"));
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub(crate) fn next(&self) -> Value {
        self.0.recv_timeout(PATIENCE).expect("a line is written")
    }
}

/// An access log that the test reads.
fn log() -> (AccessLog, Lines) {
    let (sender, lines) = channel();
    let destination = Destination::Writer(Box::new(ToLines(sender)));
    let log = AccessLog::start(AccessLogOptions { style: Style::Json, destination }).expect("log");
    (log, Lines(lines))
}

pub(crate) fn logged(setup: &Setup, upstream: Upstream, clock: Arc<dyn Clock>) -> (Fixture, Lines) {
    let dir = tempfile::tempdir().expect("directory");
    let issuer = Issuer::new();
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let text = setup.file(dir.path(), upstream.address);
    let (log, lines) = log();
    (Fixture::observed(dir, issuer, upstream, &text, clock, Some(log)), lines)
}

#[test]
fn a_path_that_is_read_differently_is_logged_with_both_readings() {
    let (f, lines) = logged(&Setup::default(), Upstream::start(), Arc::new(SystemClock));
    assert_eq!(f.get("/open/..%2Fguarded").status, 400);
    assert_eq!(f.get("/open/a%2fb").status, 200);
    drop(f);
    let line = lines.next();
    assert_eq!(line["reason"], "ambiguous_path");
    assert_eq!((&line["path"], &line["other_path"]), (&"/open/..%2Fguarded".into(), &"/guarded".into()));
    let line = lines.next();
    assert_eq!((&line["path"], &line["other_path"]), (&"/open/a%2fb".into(), &Value::Null));
}

/// A clock that advances only when a test says so.
fn standing() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_secs(now())))
}

/// Milliseconds of a phase in the `Server-Timing` of a response.
fn phase(field: &str, name: &str) -> Option<f64> {
    let metric = field.split(", ").find_map(|metric| metric.strip_prefix(name)?.strip_prefix(";dur="))?;
    Some(metric.parse().expect("milliseconds"))
}

fn timing(response: &Response) -> &str {
    response.value("server-timing").unwrap_or_else(|| panic!("{}", response.head))
}

/// A key set over HTTP that takes two seconds, once it may be sent.
fn slow_keys(keys: String, clock: Arc<ManualClock>) -> (String, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let url = format!("http://{}/jwks", listener.local_addr().expect("address"));
    let (let_come, come) = channel();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("asked");
        let _ = socket.read(&mut [0; 4096]);
        come.recv_timeout(PATIENCE).expect("let come");
        clock.advance(Duration::from_secs(2));
        let length = keys.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}");
        write!(socket, "{head}\r\nconnection: close\r\n\r\n{keys}").expect("sent");
    });
    (url, let_come)
}

/// Returns when the single request in flight waits for another service.
fn waits(f: &Fixture) {
    until("the request has come", || f.counted("postern_requests_in_flight") > 0.5);
    // There is one worker. When it has answered this request, it has done all it could for the
    // other one.
    assert_eq!(f.send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n").status, 401);
}

/// Accepts requests and sends nothing.
fn silent() -> Upstream {
    Upstream::answering(|_, s| {
        let _ = s.read(&mut [0]);
        false
    })
}

/// Takes three seconds for its response, and another for its end once the beginning has arrived.
fn slow_upstream(clock: Arc<ManualClock>) -> (Upstream, Sender<()>) {
    let (arrived, arrives) = channel();
    let arrives = Mutex::new(arrives);
    let upstream = Upstream::answering(move |_, s| {
        clock.advance(Duration::from_secs(3));
        s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").unwrap();
        arrives.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        clock.advance(Duration::from_secs(1));
        s.write_all(b"ok").is_ok()
    });
    (upstream, arrived)
}

/// Sends `GET /` over HTTP/2. Returns the `Server-Timing` of the response, which ends after
/// `arrived` is notified of its head.
fn timing_over_http2(f: &Fixture, token: &str, arrived: &Sender<()>) -> String {
    CONTROL.block_on(async {
        let socket = tokio::net::TcpStream::connect(f.address).await.unwrap();
        let (send, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("http://app.test/").header("authorization", format!("Bearer {token}"));
        let request = request.body(()).unwrap();
        let response = send.ready().await.unwrap().send_request(request, true).unwrap().0.await.unwrap();
        assert_eq!(response.status(), 200);
        let field = response.headers()["server-timing"].to_str().unwrap().to_owned();
        arrived.send(()).unwrap();
        let mut body = response.into_body();
        while body.data().await.is_some() {}
        field
    })
}

/// The same over HTTP/1.
fn timing_over_http1(f: &Fixture, token: &str, arrived: &Sender<()>) -> String {
    let mut client = f.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n"));
    let head = client.head();
    assert_eq!(head.status, 200, "{}", head.head);
    arrived.send(()).unwrap();
    assert_eq!(client.bytes(2), b"ok");
    timing(&head).to_owned()
}

#[test]
fn telemetry_each_phase_has_its_own_time() {
    for timing in [timing_over_http1, timing_over_http2] {
        let clock = standing();
        let dir = tempfile::tempdir().unwrap();
        let issuer = Issuer::new();
        issuer.write_jwks(&dir.path().join("jwks.json"));
        let keys = std::fs::read_to_string(dir.path().join("jwks.json")).unwrap();
        let setup = Setup { more: TIMED.into(), ..Setup::default() };
        let (upstream, arrived) = slow_upstream(clock.clone());
        let (url, let_come) = slow_keys(keys, clock.clone());
        // Keys of an https issuer are not fetched over http.
        let text = setup.file(dir.path(), upstream.address).replace(ISSUER, PLAIN_ISSUER).replace(
            &format!("jwks_file = \"{}\"", dir.path().join("jwks.json").display()),
            &format!("jwks_uri = \"{url}\""),
        );
        let (log, lines) = log();
        let f = Fixture::observed(dir, issuer, upstream, &text, clock, Some(log));
        let token = f.issuer.token(|c| c["iss"] = PLAIN_ISSUER.into());
        // A wait for keys counts as authentication. The head contains what is known when it is
        // sent.
        let field = std::thread::scope(|scope| {
            scope.spawn(|| {
                waits(&f);
                let_come.send(()).unwrap();
            });
            timing(&f, &token, &arrived)
        });
        let phases = "parse;dur=0, match;dur=0, authenticate;dur=2000, decide;dur=0, upstream;dur=3000";
        assert_eq!(field, format!("{phases}, cache;desc=miss, authority;desc=\"test\""));
        assert_eq!(lines.next()["reason"], "unauthenticated");
        let line = lines.next();
        assert_eq!((&line["upstream_ms"], &line["duration_ms"]), (&4000.into(), &6000.into()), "{line}");
        let sum = |name: &str| f.counted(&format!("postern_phase_duration_seconds_sum{{phase=\"{name}\"}}"));
        let sums = ["parse", "authenticate", "upstream", "respond"].map(sum);
        assert_eq!(format!("{sums:?}"), "[0.0, 2.0, 3.0, 1.0]");
    }
}

#[test]
fn telemetry_an_upstream_that_does_not_answer_has_its_time_as_well() {
    let setup = Setup {
        upstream: "timeouts = { response_header = \"300ms\" }".into(),
        more: TIMED.into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, silent());
    assert_eq!(f.get("/").status, 504);
    let sum = |name: &str| f.counted(&format!("postern_phase_duration_seconds_sum{{phase=\"{name}\"}}"));
    until("the request is counted", || sum("upstream") > 0.0);
    assert!(sum("upstream") > 0.25, "{}", sum("upstream"));
}

#[test]
fn telemetry_the_handshake_is_the_first_request_s_alone() {
    let setup = Setup {
        listener: "proxy_protocol_from = [\"127.0.0.1\"]".into(),
        more: TIMED.into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let mut client = f.connect();
    // A slow peer: the gateway cannot know when it started to wait.
    std::thread::sleep(Duration::from_millis(400));
    client.send("PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n");
    for expected in [true, false] {
        client.send(f.request("/", ""));
        let response = client.response();
        let accept = phase(timing(&response), "accept");
        assert_eq!(accept.is_some_and(|ms| ms > 200.0), expected, "{}", response.head);
    }
    // A connection without a PROXY header or a handshake has no such phase.
    let f = Fixture::with(Setup { more: TIMED.into(), ..Setup::default() }, Upstream::start());
    assert_eq!(phase(timing(&f.get("/")), "accept"), None);
}

#[test]
fn telemetry_a_request_cut_by_the_end_of_draining_is_told() {
    let (began, begun) = channel();
    let stuck = Upstream::answering(move |seen, s| {
        if seen.line().contains("stream") {
            s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello").unwrap();
        }
        let _ = began.send(());
        std::thread::sleep(PATIENCE);
        false
    });
    let (mut f, lines) = logged(&Setup::default(), stuck, Arc::new(SystemClock));
    let mut waiting = f.connect();
    waiting.send(f.request("/wait", ""));
    begun.recv_timeout(PATIENCE).unwrap();
    let mut streaming = f.connect();
    streaming.send(f.request("/stream", ""));
    assert_eq!((streaming.head().status, streaming.bytes(5)), (200, b"hello".to_vec()));
    f.take_gateway().drain(Duration::from_millis(100));
    let mut cut = [lines.next(), lines.next()];
    cut.sort_by_key(|line| line["path"].to_string());
    let [stream, wait] = cut;
    for line in [&stream, &wait] {
        assert_eq!((&line["outcome"], &line["reason"]), (&"unfinished".into(), &"gateway_stopped".into()));
        assert_eq!(line["endpoint"], f.upstream.address.to_string(), "{line}");
        assert!(line["duration_ms"].as_f64().unwrap() >= line["upstream_ms"].as_f64().unwrap(), "{line}");
    }
    assert_eq!(
        (&stream["path"], &stream["status"], &stream["bytes_out"]),
        (&"/stream".into(), &200.into(), &5.into())
    );
    assert_eq!((&wait["path"], wait.get("status")), (&"/wait".into(), None));
    let count = |class: &str| {
        let labels = format!("route=\"protected\",outcome=\"unfinished\",class=\"{class}\"");
        f.counted(&format!("postern_requests_total{{{labels}}}"))
    };
    assert_eq!((count("2xx") + count("none"), f.counted("postern_requests_in_flight")), (2.0, 0.0));
    assert!(count("none") > 0.5 && count("2xx") > 0.5);
}

/// Panics at the second reading after it was told to.
struct Broken(AtomicUsize);

impl Clock for Broken {
    fn now(&self) -> Now {
        SystemClock.now()
    }

    fn monotonic(&self) -> Instant {
        let left = self.0.load(Ordering::SeqCst);
        self.0.store(left.saturating_sub(1), Ordering::SeqCst);
        assert_ne!(left, 1, "this test breaks the clock");
        SystemClock.monotonic()
    }
}

#[test]
fn telemetry_a_request_whose_handling_panics_is_told() {
    let clock = Arc::new(Broken(AtomicUsize::new(0)));
    let (f, lines) = logged(&Setup::default(), Upstream::start(), clock.clone());
    let mut client = f.connect();
    clock.0.store(2, Ordering::SeqCst);
    client.send(f.request("/", ""));
    assert!(client.is_closed());
    let line = lines.next();
    assert_eq!((&line["outcome"], &line["reason"]), (&"unfinished".into(), &"panicked".into()), "{line}");
    until("nothing is in flight", || f.counted("postern_requests_in_flight") < 0.5);
    assert_eq!(f.get("/").status, 200, "the worker goes on");
    assert_eq!(lines.next()["outcome"], "allowed");
}

#[test]
fn telemetry_only_refusals_are_denials() {
    // Long enough for a client to disconnect first.
    let setup = Setup { upstream: "timeouts = { response_header = \"3s\" }".into(), ..Setup::default() };
    let (f, lines) = logged(&setup, silent(), Arc::new(SystemClock));
    assert_eq!(f.get("/").status, 504);
    assert_eq!(lines.next()["reason"], "upstream_timeout");
    assert_eq!(f.send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n").status, 401);
    assert_eq!(lines.next()["reason"], "unauthenticated");
    let mut client = f.connect();
    client.send(f.request("/", ""));
    until("the upstream is asked", || f.upstream.seen().len() == 2);
    client.reset();
    assert_eq!(lines.next()["reason"], "client_gone");
    for (reason, denials, failures) in
        [("upstream_timeout", 0.0, 1.0), ("client_gone", 0.0, 1.0), ("unauthenticated", 1.0, 0.0)]
    {
        let count = |family: &str| f.counted(&format!("{family}{{reason=\"{reason}\"}}"));
        let counted = (count("postern_denials_total"), count("postern_exchange_failures_total"));
        assert_eq!(format!("{counted:?}"), format!("{:?}", (denials, failures)), "{reason}");
    }
}

#[test]
fn telemetry_a_line_names_the_version_that_was_spoken() {
    let (f, lines) = logged(&Setup::default(), Upstream::start(), Arc::new(SystemClock));
    for version in ["HTTP/1.0", "HTTP/1.1"] {
        assert_eq!(
            f.send(format!("GET /open {version}\r\nHost: app.test\r\nConnection: close\r\n\r\n")).status,
            200
        );
        assert_eq!(lines.next()["protocol"], version);
        assert_eq!(
            f.send(format!("GET / {version}\r\nHost: app.test\r\nConnection: close\r\n\r\n")).status,
            401
        );
        assert_eq!(lines.next()["protocol"], version);
    }
}

#[test]
fn telemetry_a_tunnel_is_counted_as_one() {
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(|_, s| {
            s.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            )
            .unwrap();
            let _ = s.read(&mut [0]);
            false
        }),
    );
    let open = |protocol: &str| {
        f.counted(&format!("postern_connections_open{{listener=\"test\",protocol=\"{protocol}\"}}"))
    };
    let both = || format!("{} {}", open("http1"), open("tunnel"));
    let mut client = f.connect();
    client.send(f.request("/chat", "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(client.head().status, 101);
    assert_eq!(both(), "0 1");
    drop(client);
    until("the tunnel ends", || both() == "0 0");
}

#[test]
fn telemetry_a_proxys_question_is_logged_as_the_request_it_is_about() {
    let listener = "authorization = { from = [\"127.0.0.1\"], http = \"x-forwarded\" }".into();
    let (f, lines) =
        logged(&Setup { listener, ..Setup::default() }, Upstream::start(), Arc::new(SystemClock));
    let about = "X-Forwarded-Method: DELETE\r\nX-Forwarded-Host: App.test\r\nX-Forwarded-Uri: /a?b\r\n\
                 X-Forwarded-For: 198.51.100.1, 203.0.113.9\r\n";
    assert_eq!(f.send(f.request("/", about)).status, 200);
    assert_eq!(f.send(format!("GET / HTTP/1.1\r\nHost: x\r\n{about}\r\n")).status, 401);
    let (allowed, refused) = (lines.next(), lines.next());
    assert_eq!(allowed["client"], "203.0.113.9", "{allowed}");
    assert!(allowed["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{allowed}");
    let what = |line: &Value| ["method", "host", "path", "route", "outcome"].map(|key| line[key].clone());
    assert_eq!(what(&allowed), ["DELETE", "app.test", "/a", "protected", "allowed"]);
    assert_eq!(
        (&allowed["user"], allowed.get("upstream"), allowed.get("reason")),
        (&"alice".into(), None, None)
    );
    assert_eq!(what(&refused), ["DELETE", "app.test", "/a", "protected", "unauthenticated"]);
}
