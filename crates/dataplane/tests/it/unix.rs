//! Listeners on Unix sockets: who may connect, the address of clients, and replacing a process.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use gateway::server::Gateway;
use http_engine::listen::Claim;

use dataplane::harness::{Fixture, Response, Setup, TestClient, Upstream, load, services, until};

/// A listener `side` at `socket`, in the folder of the configuration.
fn side(socket: &str, more: &str) -> Setup {
    let more = format!("[[listener]]\nname = \"side\"\naddress = \"unix:{socket}\"\n{more}\n");
    Setup { more, ..Setup::default() }
}

fn ask(socket: &Path, request: &str) -> Response {
    let mut client = TestClient::connect_unix(socket).expect("listens");
    client.send(request);
    client.response()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("the socket's file").permissions().mode() & 0o777
}

#[test]
fn who_comes_over_a_unix_socket_counts_as_local() {
    let f = Fixture::with(side("side.sock", ""), Upstream::start());
    let socket = f.dir.path().join("side.sock");
    assert_eq!(mode(&socket), 0o600, "this user alone, if nothing is said");
    assert_eq!(f.gateway().addresses()[1].1.to_string(), format!("unix:{}", socket.display()));
    let mut client = TestClient::connect_unix(&socket).expect("listens");
    for _ in 0..2 {
        client.send(f.request("/", "X-Forwarded-For: 203.0.113.9\r\n"));
        assert_eq!(client.response().status, 200);
    }
    let anonymous = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n";
    assert_eq!(ask(&socket, anonymous).status, 401, "a socket vouches for nobody");
    assert_eq!(f.upstream.seen().len(), 2);
    assert_eq!(f.upstream.seen()[0].values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(f.counted("postern_connections_accepted_total{listener=\"side\"}"), 2.0);
}

#[test]
fn trust_in_127_0_0_1_is_trust_in_the_socket() {
    let trusting = side("side.sock", "proxy_protocol_from = [\"127.0.0.1/32\"]");
    let f = Fixture::with(trusting, Upstream::start());
    let socket = f.dir.path().join("side.sock");
    let header = "PROXY TCP4 203.0.113.9 192.0.2.1 4000 443\r\n";
    assert_eq!(ask(&socket, &(header.to_owned() + &f.request("/", ""))).status, 200);
    assert_eq!(f.upstream.only().values("x-forwarded-for"), ["203.0.113.9"]);
    let mut without = TestClient::connect_unix(&socket).expect("listens");
    without.send(f.request("/", ""));
    assert!(without.is_closed(), "who must send the header is refused without it");
}

#[test]
fn a_reload_opens_closes_and_permits() {
    let f = Fixture::with(side("side.sock", ""), Upstream::start());
    let socket = |name: &str| f.dir.path().join(name);
    let mut stays = TestClient::connect_unix(&socket("side.sock")).expect("listens");
    f.reload(&side("side.sock", "mode = \"660\""));
    assert_eq!(mode(&socket("side.sock")), 0o660);
    stays.send(f.request("/", ""));
    assert_eq!(stays.response().status, 200, "the socket is the same");
    assert_eq!(ask(&socket("side.sock"), &f.request("/", "")).status, 200);
    f.reload(&side("other.sock", "mode = \"0606\""));
    assert_eq!(mode(&socket("other.sock")), 0o606);
    assert_eq!(ask(&socket("other.sock"), &f.request("/", "")).status, 200);
    until("nobody listens where the configuration does not say so", || {
        TestClient::connect_unix(&socket("side.sock")).is_err()
    });
}

#[test]
fn what_is_in_the_way_is_left_alone_and_named() {
    let f = Fixture::new();
    fs::write(f.dir.path().join("precious"), "kept").expect("file");
    let refused = |setup: &Setup| {
        let config = load(f.dir.path(), &setup.file(f.dir.path(), f.upstream.address));
        f.gateway().reload(config).expect_err("it cannot be listened on").to_string()
    };
    let told = refused(&side("precious", ""));
    assert!(
        told.starts_with("listener \"side\": listening on unix:/") && told.contains("is not a socket"),
        "{told}"
    );
    assert!(told.ends_with("; move it away, or choose another path"), "{told}");
    assert_eq!(fs::read_to_string(f.dir.path().join("precious")).expect("file"), "kept");
    let told = refused(&side("nowhere/side.sock", ""));
    assert!(told.ends_with("; check that the directory exists and that this user may write to it"), "{told}");
    fs::create_dir(f.dir.path().join("side.sock.new")).expect("folder");
    let told = refused(&side("side.sock", ""));
    assert!(told.contains("side.sock.new exists and is not a socket"), "{told}");
    assert_eq!(f.get("/").status, 200, "the former configuration stays in force");
}

#[test]
fn no_connection_is_lost_when_a_process_takes_over() {
    let f = Fixture::new();
    let socket = f.dir.path().join("side.sock");
    let text = side("side.sock", "").file(f.dir.path(), f.upstream.address);
    let start = |claim| Gateway::start(load(f.dir.path(), &text), 3, claim, &services(3)).expect("starts");
    let mut serving = start(Claim::Exclusive);
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, served, socket) = (stop.clone(), served.clone(), socket.clone());
            let request = f.request("/open", "Connection: close\r\n");
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(ask(&socket, &request).status, 200);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let next = start(Claim::Shared);
        assert!(serving.drain(Duration::from_secs(10)));
        let before = served.load(Ordering::Relaxed);
        until("the next one serves", || served.load(Ordering::Relaxed) > before + 10);
        serving = next;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("every connection is served");
    }
    assert!(serving.drain(Duration::from_secs(10)));
    assert!(TestClient::connect_unix(&socket).is_err(), "nobody listens any more");
    let left = fs::symlink_metadata(&socket).expect("the file stays");
    assert!(left.file_type().is_socket());
    assert!(!f.dir.path().join("side.sock.new").exists());
    // A socket file of an ended process does not prevent a start.
    let again = start(Claim::Exclusive);
    assert_eq!(ask(&socket, &f.request("/", "")).status, 200);
    again.drain(Duration::ZERO);
}

#[test]
fn workers_share_what_comes_over_one_socket() {
    let f = Fixture::new();
    let text = side("side.sock", "").file(f.dir.path(), f.upstream.address);
    let services = services(3);
    let gateway = Gateway::start(load(f.dir.path(), &text), 3, Claim::Exclusive, &services).expect("starts");
    let mut clients: Vec<_> = (0..60)
        .map(|_| TestClient::connect_unix(&f.dir.path().join("side.sock")).expect("listens"))
        .collect();
    let request = f.request("/", "");
    for client in &mut clients {
        client.send(&request);
        assert_eq!(client.response().status, 200);
    }
    // Each worker has its own upstream connections: one is enough for sequential requests. The
    // kernel chooses the accepting worker, so on a busy machine one may get none.
    assert!((2..=3).contains(&f.upstream.connections()), "no worker has them all");
    drop(clients);
    gateway.drain(Duration::ZERO);
}
