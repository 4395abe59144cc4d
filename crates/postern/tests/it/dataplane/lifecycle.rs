//! Reload and drain while requests run.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::harness::{Client, Fixture, Setup, Upstream};

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
    let deadline = Instant::now() + super::harness::PATIENCE;
    loop {
        client.send(f.request("/closed", ""));
        match client.response().status {
            403 => break,
            status => assert!(status == 200 && Instant::now() < deadline, "{status}"),
        }
    }
    client.send(f.request("/", ""));
    assert_eq!(client.response().status, 200);
    assert_eq!(f.upstream.connections(), 1, "the pool of an unchanged upstream is kept");
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
                let mut client = Client::connect(address);
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
    let deadline = Instant::now() + super::harness::PATIENCE;
    while f.upstream.seen().len() < 2 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let request = f.request("/", "");
    let gateway = f.take_gateway();
    let draining = std::thread::spawn(move || gateway.drain(Duration::from_secs(10)));
    // A client that comes back in time is served once more, and told.
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
                    let mut client = Client::connect(address);
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
