//! Reload and drain while requests run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gateway::server::ReloadError;
use http_engine::clock::{Clock, Now, SystemClock};

use dataplane::harness::{Fixture, Setup, TestClient, Upstream, load, until};

#[test]
fn a_reload_changes_rules_and_keeps_connections() {
    let f = Fixture::new();
    let mut client = f.connect();
    client.send(f.request("/", ""));
    assert_eq!(client.response().status, 200);
    let stricter = Setup {
        more: "[[route]]\nname = \"closed\"\npath = { prefix = \"/closed\" }\nupstream = \"backend\"\npolicy = { allow = [{ groups = { any = [\"nobody\"] } }] }\n".into(),
        ..Setup::default()
    };
    f.reload(&stricter);
    client.send(f.request("/closed", ""));
    assert_eq!(client.response().status, 403);
    client.send(f.request("/", ""));
    assert_eq!(client.response().status, 200);
    assert_eq!(f.upstream.connections(), 1, "the pool of an unchanged upstream is kept");
}

/// Clock that a worker waits for while the test holds the lock.
#[derive(Default)]
struct HeldClock {
    lock: Mutex<()>,
    /// Whether a worker has come to wait.
    waiting: AtomicBool,
}

impl Clock for HeldClock {
    fn now(&self) -> Now {
        let in_worker = std::thread::current().name().is_some_and(|name| name.starts_with("worker-"));
        if in_worker && self.lock.try_lock().is_err() {
            self.waiting.store(true, Ordering::Release);
            drop(self.lock.lock().unwrap());
        }
        SystemClock.now()
    }
}

#[test]
fn a_reload_names_the_workers_that_do_not_take_it() {
    let clock = Arc::new(HeldClock::default());
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let text = Setup::default().file(dir.path(), upstream.address);
    let f = Fixture::keeping(dir, upstream, &text, clock.clone(), None);
    assert_eq!(f.get("/").status, 200);
    let closed = "[[route]]\nname = \"closed\"\npath = { prefix = \"/closed\" }\nupstream = \"backend\"\n\
                  policy = { allow = [{ groups = { any = [\"nobody\"] } }] }\n";
    let setup = Setup { more: closed.into(), ..Setup::default() };
    let held = clock.lock.lock().unwrap();
    let mut client = f.connect();
    client.send(f.request("/", ""));
    until("the worker reads the clock for the request", || clock.waiting.load(Ordering::Acquire));
    let config = load(f.dir.path(), &setup.file(f.dir.path(), f.upstream.address));
    let error = f.gateway().reload(config).expect_err("the worker is stuck");
    assert!(matches!(&error, ReloadError::Pending { workers } if *workers == [0]), "{error:?}");
    assert!(error.to_string().contains("served by worker-0"), "{error}");
    drop(held);
    assert_eq!(client.response().status, 200);
    until("the worker takes it when it runs again", || f.get("/closed").status == 403);
    f.reload(&Setup::default());
    assert_eq!(f.get("/closed").status, 200);
}

#[test]
fn requests_run_through_reloads_without_a_failure() {
    let f = Fixture::new();
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (stop, served, request, address) =
                (stop.clone(), served.clone(), f.request("/", ""), f.address);
            std::thread::spawn(move || {
                let mut client = TestClient::connect(address);
                while !stop.load(Ordering::Relaxed) {
                    client.send(&request);
                    let response = client.response();
                    assert_eq!(response.status, 200, "{}", response.head);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for n in 0..50 {
        let max = 1000 + n % 2;
        f.reload(&Setup { upstream: format!("max_requests = {max}"), ..Setup::default() });
        std::thread::sleep(Duration::from_millis(10));
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("no request fails");
    }
    assert!(served.load(Ordering::Relaxed) > 50);
}

#[test]
fn draining_finishes_what_is_under_way_and_asks_clients_to_leave() {
    let slow = Upstream::answering(|seen, s| {
        if seen.line().contains("slow") {
            std::thread::sleep(Duration::from_millis(500));
        }
        s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
    });
    let mut f = Fixture::with(Setup::default(), slow);
    let mut waiting = f.connect();
    waiting.send(f.request("/slow", ""));
    let mut idle = f.connect();
    idle.send(f.request("/", ""));
    assert_eq!(idle.response().status, 200);
    let deadline = Instant::now() + dataplane::harness::PATIENCE;
    while f.upstream.seen().len() < 2 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let request = f.request("/", "");
    let gateway = f.take_gateway();
    let draining = std::thread::spawn(move || gateway.drain(Duration::from_secs(10)));
    // A client that reuses its connection in time is served once more, with `Connection: close`.
    std::thread::sleep(Duration::from_millis(200));
    idle.send(&request);
    let response = idle.response();
    assert!(response.status == 200 && response.closes(), "{}", response.head);
    let response = waiting.response();
    assert!(response.status == 200 && response.closes(), "{}", response.head);
    assert!(draining.join().expect("drained"), "everything finished by itself");
    assert!(std::net::TcpStream::connect(f.address).is_err(), "nobody listens any more");
}

#[test]
fn no_connection_is_lost_to_a_reload() {
    let f = Fixture::new();
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, request, address) =
                (stop.clone(), f.request("/open", "Connection: close\r\n"), f.address);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut client = TestClient::connect(address);
                    client.send(&request);
                    assert_eq!(client.response().status, 200);
                }
            })
        })
        .collect();
    for _ in 0..300 {
        f.reload(&Setup::default());
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("every connection is served");
    }
}

/// An upstream that reports when a used connection is closed. `/chat` opens a tunnel, and `/slow`
/// answers on demand.
fn watched(go: Receiver<()>) -> (SocketAddr, Receiver<()>) {
    fn serve(mut socket: std::net::TcpStream, go: &std::sync::Mutex<Receiver<()>>, closed: &Sender<()>) {
        let mut held = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(n) = socket.read(&mut chunk) {
            if n == 0 {
                let _ = closed.send(());
                return;
            }
            held.extend_from_slice(&chunk[..n]);
            if !held.ends_with(b"\r\n\r\n") {
                continue;
            }
            if held.starts_with(b"GET /chat ") {
                let switch =
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
                socket.write_all(switch.as_bytes()).unwrap();
                while socket.read(&mut chunk).is_ok_and(|n| n > 0) {}
                return;
            }
            if held.starts_with(b"GET /slow ") {
                go.lock().unwrap().recv().unwrap();
            }
            held.clear();
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (closed, heard) = channel();
    let go = Arc::new(std::sync::Mutex::new(go));
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (go, closed) = (go.clone(), closed.clone());
            std::thread::spawn(move || serve(socket, &go, &closed));
        }
    });
    (address, heard)
}

#[test]
fn a_reload_closes_the_connections_of_an_upstream_that_changed_although_a_tunnel_holds_it() {
    let (go, told) = channel();
    let (address, closed) = watched(told);
    let upstream = format!("endpoints = [\"http://{address}\"]");
    let f = Fixture::with(Setup { upstream: upstream.clone(), ..Setup::default() }, Upstream::start());
    let mut tunnel = f.connect();
    tunnel.send(f.request("/chat", "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(tunnel.head().status, 101);
    let mut slow = f.connect();
    slow.send(f.request("/slow", ""));
    assert_eq!(f.get("/").status, 200);
    f.reload(&Setup { upstream: upstream + "\nmax_requests = 77", ..Setup::default() });
    let heard = closed.recv_timeout(dataplane::harness::PATIENCE);
    assert!(heard.is_ok(), "the connection that rested is closed");
    go.send(()).unwrap();
    assert_eq!(slow.response().status, 200, "what was under way finishes");
    let heard = closed.recv_timeout(dataplane::harness::PATIENCE);
    assert!(heard.is_ok(), "and its connection does not return to the old pool");
    drop(tunnel);
}

#[test]
fn a_drain_that_runs_out_of_time_resets_an_answer_it_cuts() {
    let endless = Upstream::answering(|_, s| {
        s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n").unwrap();
        std::thread::park_timeout(dataplane::harness::PATIENCE);
        false
    });
    let mut f = Fixture::with(Setup::default(), endless);
    let mut client = f.connect();
    client.send("GET /open HTTP/1.0\r\nHost: app.test\r\n\r\n");
    let head = client.head();
    assert_eq!(
        (head.status, head.value("content-length"), head.value("transfer-encoding")),
        (200, None, None)
    );
    assert_eq!(client.bytes(4), b"part");
    assert!(!f.take_gateway().drain(Duration::from_millis(100)), "the answer has no end");
    let end = client.socket.read(&mut [0]).map_err(|e| e.kind());
    assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset), "a cut answer is not taken for a whole one");
}

#[test]
fn a_drain_serves_the_connections_that_are_queued() {
    for _ in 0..40 {
        let mut f = Fixture::new();
        let gateway = f.take_gateway();
        let mut clients: Vec<_> = (0..8)
            .map(|_| {
                let mut client = f.connect();
                client.send("GET /open HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n");
                client
            })
            .collect();
        let draining = std::thread::spawn(move || gateway.drain(Duration::from_secs(10)));
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
        drop(clients);
        assert!(draining.join().expect("drained"));
    }
}

#[test]
fn a_drain_lets_a_slow_client_of_http2_read_the_last_answer() {
    use dataplane::harness::CONTROL;
    const FIRST: usize = 1 << 10;
    const REST: usize = 600_000;
    let late = Upstream::answering(|_, s| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", FIRST + REST);
        s.write_all(head.as_bytes()).unwrap();
        s.write_all(&[b'x'; FIRST]).unwrap();
        std::thread::sleep(Duration::from_millis(4500));
        s.write_all(&vec![b'x'; REST]).is_ok()
    });
    let mut f = Fixture::with(Setup::default(), late);
    let gateway = f.take_gateway();
    let (drained, got) = CONTROL.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let socket = socket.connect(f.address).await.unwrap();
        let (send, mut connection) = h2::client::Builder::new()
            .initial_window_size(1 << 24)
            .initial_connection_window_size(1 << 24)
            .handshake::<_, bytes::Bytes>(socket)
            .await
            .unwrap();
        let mut send = send;
        let request = http::Request::builder().uri("http://app.test/open").body(()).unwrap();
        let (response, _) = send.send_request(request, true).unwrap();
        let response = tokio::select! {
            response = response => response.unwrap(),
            end = &mut connection => panic!("{end:?}"),
        };
        let draining = tokio::task::spawn_blocking(move || gateway.drain(Duration::from_secs(20)));
        // The socket is not read while the connection is not polled.
        tokio::time::sleep(Duration::from_secs(7)).await;
        tokio::spawn(connection);
        let mut body = response.into_body();
        let mut got = 0;
        while let Some(Ok(data)) = body.data().await {
            got += data.len();
        }
        drop((body, send));
        (draining.await.unwrap(), got)
    });
    assert_eq!((got, drained), (FIRST + REST, true));
}
