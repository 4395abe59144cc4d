//! Seeded faults of streams: real servers that pause, collect or close, under a real load.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use lab_analysis::record::{Iteration, Record, Variant};
use lab_load::load::{
    Exchange, Plan, Protocol, RequestTemplate, Stop, StreamForm, StreamSettings, WebSocketSettings,
};

use super::bridge::{ObservedServer, iteration, record, variant};
use super::check_fault;
use super::faulty::FaultyServer;
use crate::websockets::{Manner, talk};

/// Sends a stream of server-sent events, the first one at once.
pub(super) fn events(stream: &mut TcpStream, events: u64, every: Duration) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    let begun = Instant::now();
    for number in 0..events {
        let due = every * u32::try_from(number).unwrap();
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let event = format!("data: {number:08}\n\n");
        let end = if number + 1 == events { "0\r\n\r\n" } else { "" };
        stream.write_all(format!("{:x}\r\n{event}\r\n{end}", event.len()).as_bytes())?;
    }
    Ok(())
}

/// Passes the response of another server on: as it comes, or as a whole when it is complete.
pub(super) fn relay(stream: &mut TcpStream, whom: SocketAddr, whole: bool) -> std::io::Result<()> {
    let mut other = TcpStream::connect(whom)?;
    other.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")?;
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while !all.ends_with(b"0\r\n\r\n") {
        let read = other.read(&mut part)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        all.extend_from_slice(&part[..read]);
        if !whole {
            stream.write_all(&part[..read])?;
        }
    }
    if whole { stream.write_all(&all) } else { Ok(()) }
}

/// Serves a WebSocket that is closed when no message arrives for a time.
pub(super) fn socket(stream: TcpStream, head: &str, idle: Duration) -> std::io::Result<()> {
    talk(stream, head, Manner::IdleClose(idle))
}

/// Plan of streams of 80 events in 800 ms, about 12 at a time.
fn streaming(server: &FaultyServer) -> Plan {
    let settings = StreamSettings {
        form: StreamForm::ServerSentEvents,
        stall: Duration::from_millis(250),
        events: Some(80),
    };
    plan(server, Exchange::Stream(settings), 15.0)
}

fn plan(server: &FaultyServer, exchange: Exchange, rate: f64) -> Plan {
    Plan {
        target: crate::target(&server.url(), Protocol::Http1),
        flow: RequestTemplate::of_exchange(exchange, 1),
        schedule: crate::open(rate),
        stop: Stop::After(Duration::from_millis(2500)),
        warmup: Duration::from_secs(1),
        connections: 64,
        streams: 1,
        timeout: Duration::from_secs(5),
        seed: 1,
        watch: Vec::new(),
    }
}

fn model() -> FaultyServer {
    FaultyServer::start("events 80 10000")
}

fn gateway(model: &FaultyServer, whole: bool) -> FaultyServer {
    let manner = if whole { "whole" } else { "passing" };
    FaultyServer::start(&format!("relay {} {manner}", model.address))
}

fn seen<'a>(name: &'a str, server: &'a FaultyServer) -> ObservedServer<'a> {
    ObservedServer { name, server, limit: None }
}

fn on_path(name: &str, path: &[&str], plan: &Plan, measured: Iteration) -> Variant {
    let path = path.iter().map(|component| (*component).to_owned()).collect();
    Variant { path, ..variant(name, plan, vec![measured]) }
}

fn through_gateway(model: &FaultyServer, gateway: &FaultyServer, plan: &Plan) -> Iteration {
    iteration(1, plan, &[seen("gateway", gateway), seen("model", model)], &|| None)
}

#[test]
fn no_fault() {
    check_fault("streams without a fault", || {
        let model = model();
        let gateway = gateway(&model, false);
        let (plan, direct) = (streaming(&gateway), streaming(&model));
        let measured = through_gateway(&model, &gateway, &plan);
        let alone = iteration(1, &direct, &[seen("model", &model)], &|| None);
        record(vec![
            on_path("gateway", &["gateway", "model"], &plan, measured),
            on_path("direct", &["model"], &direct, alone),
        ])
    });
}

#[test]
fn a_stopped_gateway() {
    let signal = |server: &FaultyServer, name: &str| {
        let done = Command::new("kill").args([name, &server.pid().to_string()]).status().unwrap();
        assert!(done.success());
    };
    let found = check_fault("a gateway that is stopped while streams are open", || {
        let model = model();
        let gateway = gateway(&model, false);
        let plan = streaming(&gateway);
        let stop = || {
            std::thread::sleep(Duration::from_secs(2));
            signal(&gateway, "-STOP");
            std::thread::sleep(Duration::from_millis(500));
            signal(&gateway, "-CONT");
            Some("gateway stopped")
        };
        let watched = [seen("gateway", &gateway), seen("model", &model)];
        let measured = iteration(1, &plan, &watched, &stop);
        record(vec![on_path("gateway", &["gateway", "model"], &plan, measured)])
    });
    assert!(found.evidence.contains("`gateway` used"), "{found:?}");
    assert!(found.evidence.contains("it paused, while `model` went on"), "{found:?}");
}

#[test]
fn a_proxy_that_collects_events() {
    let found = check_fault("a proxy that collects the events of a stream", || {
        let model = model();
        let gateway = gateway(&model, true);
        let (plan, direct) = (streaming(&gateway), streaming(&model));
        let measured = through_gateway(&model, &gateway, &plan);
        let alone = iteration(1, &direct, &[seen("model", &model)], &|| None);
        record(vec![
            on_path("gateway", &["gateway", "model"], &plan, measured),
            on_path("direct", &["model"], &direct, alone),
        ])
    });
    assert_eq!(found.variants, ["gateway"]);
    assert!(found.remedy.starts_with("`gateway` holds events back"), "{found:?}");
    assert!(found.evidence.contains("through `direct` the first came after"), "{found:?}");
}

#[test]
fn a_proxy_with_an_idle_timeout() {
    let found = check_fault("a proxy that closes WebSockets without messages", || -> Record {
        let server = FaultyServer::start("sockets 300000");
        let settings = WebSocketSettings {
            messages: 3,
            every: Duration::from_millis(900),
            size: 32,
            stall: Duration::from_millis(500),
        };
        let plan = plan(&server, Exchange::WebSocket(settings), 20.0);
        let measured = iteration(1, &plan, &[seen("proxy", &server)], &|| None);
        record(vec![on_path("sockets", &["proxy"], &plan, measured)])
    });
    assert!(found.evidence.contains("after 30") || found.evidence.contains("after 31"), "{found:?}");
}
