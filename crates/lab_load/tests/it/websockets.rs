//! WebSockets: opening, round trips, messages of the server, and who closes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use base64::Engine as _;
use lab_analysis::record::{StreamKind, Streams};
use lab_load::load::{Exchange, LoadError, Plan, Protocol, RequestFault, RequestTemplate, WebSocketSettings};
use lab_load::report::{LoadReport, run_load};

use crate::server::{Reply, Server};
use crate::{plan, target};

/// What a server does with a WebSocket after the handshake.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// Sends every message back, each after this time.
    Echo(Duration),
    /// Sends a message of its own before each one that it sends back.
    Push,
    /// Does nothing for this time after so many messages, then sends every one back; without a time
    /// it does nothing for ever.
    Freeze(usize, Option<Duration>),
    /// Closes with a frame when this time passes without a message.
    IdleClose(Duration),
    /// Drops the connection after so many messages.
    Drop(usize),
    /// Answers the handshake with a wrong proof.
    WrongProof,
}

/// Starts a server with a thread per connection. Returns its URL.
fn serve(manner: Manner) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/chat", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            // The client may be gone.
            std::thread::spawn(move || connection(stream, manner).ok());
        }
    });
    url
}

fn connection(mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    talk(stream, &String::from_utf8(head).unwrap(), manner)
}

/// Answers a handshake, and serves the WebSocket until it is closed.
pub(crate) fn talk(mut stream: TcpStream, head: &str, manner: Manner) -> std::io::Result<()> {
    assert!(head.contains("connection: Upgrade\r\n") && head.contains("upgrade: websocket\r\n"), "{head}");
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let mut proof = base64::engine::general_purpose::STANDARD.encode(hash.finish());
    if matches!(manner, Manner::WrongProof) {
        proof = proof.to_lowercase();
    }
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {proof}\r\n\r\n"
    )?;
    if let Manner::IdleClose(limit) = manner {
        stream.set_read_timeout(Some(limit))?;
    }
    let mut seen = 0;
    loop {
        let (opcode, content) = match frame(&mut stream) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return stream.write_all(b"\x88\x02\x03\xe9");
            }
            frame => frame?,
        };
        seen += 1;
        match (opcode, manner) {
            (8, _) => return stream.write_all(b"\x88\x02\x03\xe8"),
            (_, Manner::Drop(after)) if seen > after => return Ok(()),
            (_, Manner::Echo(delay)) => std::thread::sleep(delay),
            (_, Manner::Freeze(after, None)) if seen > after => {
                // Until the client gives up.
                while stream.read(&mut [0; 64])? > 0 {}
                return Ok(());
            }
            (_, Manner::Freeze(after, Some(time))) if seen == after => std::thread::sleep(time),
            (_, Manner::Push) => stream.write_all(b"\x81\x03own\x89\x01?")?,
            _ => {}
        }
        let mut answer = vec![0x81, u8::try_from(content.len()).unwrap()];
        answer.extend(content);
        stream.write_all(&answer)?;
    }
}

/// Reads a frame of a client with fewer than 126 bytes; answers to pings are skipped.
fn frame(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    loop {
        let mut head = [0; 6];
        stream.read_exact(&mut head)?;
        let mut content = vec![0; usize::from(head[1] & 0x7f)];
        stream.read_exact(&mut content)?;
        content.iter_mut().zip(head[2..].iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        match head[0] & 0x0f {
            10 => assert_eq!(content, b"?"),
            opcode => return Ok((opcode, content)),
        }
    }
}

fn chatting(url: &str, messages: u32, every: u64) -> Plan {
    let settings = WebSocketSettings {
        messages,
        every: Duration::from_millis(every),
        size: 20,
        stall: Duration::from_millis(150),
    };
    let flow = RequestTemplate::of_exchange(Exchange::WebSocket(settings), 1);
    Plan { target: target(url, Protocol::Http1), flow, connections: 8, ..plan(url, 40.0, 10) }
}

fn streams(report: &LoadReport) -> &Streams {
    report.streams.as_ref().unwrap()
}

#[test]
fn every_message_comes_back() {
    let report = run_load(&chatting(&serve(Manner::Echo(Duration::ZERO)), 5, 20)).unwrap();
    assert_eq!((report.totals.ok, report.totals.failed), (10, 0), "{:?}", report.faults);
    assert_eq!((report.statuses[0].status, report.statuses[0].count), (101, 10));
    assert!(
        report.latency_us.min >= 80_000.0,
        "a WebSocket lasts for four intervals: {:?}",
        report.latency_us
    );
    assert_eq!(report.totals.connections_opened, 10);
    let seen = streams(&report);
    assert_eq!((seen.kind, seen.opened, seen.completed), (StreamKind::Websocket, 10, 10));
    assert_eq!((seen.head.count(), seen.events), (10, 0));
    assert_eq!(seen.round_trip.as_ref().unwrap().count(), 50);
}

/// A dozen messages wait in one pause: it is one stall of the WebSocket, not a dozen.
#[test]
fn a_pause_is_one_stall_however_many_messages_wait() {
    let plan = chatting(&serve(Manner::Freeze(3, Some(Duration::from_millis(600)))), 20, 40);
    let report = run_load(&plan).unwrap();
    assert_eq!(report.totals.ok, 10, "{:?}", report.faults);
    let seen = streams(&report);
    assert_eq!(seen.stalls, 10, "one of each WebSocket");
    for stall in &seen.stalled {
        assert!((500..900).contains(&stall.ms), "{stall:?}");
    }
    let trips = seen.round_trip.clone().unwrap();
    assert!(trips.micros(0.99) > 500_000.0, "the round trips show it, too");
}

#[test]
fn a_peer_that_never_answers_again_has_stalled() {
    let plan =
        Plan { timeout: Duration::from_millis(900), ..chatting(&serve(Manner::Freeze(3, None)), 10, 40) };
    let report = run_load(&plan).unwrap();
    assert_eq!((report.totals.ok, report.totals.failed), (0, 10), "{:?}", report.faults);
    let seen = streams(&report);
    assert_eq!((seen.cut, seen.stalls), (10, 10));
    assert!(seen.stalled.iter().all(|stall| (500..1_000).contains(&stall.ms)), "{:?}", seen.stalled);
}

#[test]
fn messages_are_sent_on_time_whatever_comes_back() {
    let begun = Instant::now();
    let plan = chatting(&serve(Manner::Echo(Duration::from_millis(40))), 5, 20);
    let report = run_load(&plan).unwrap();
    assert_eq!(report.totals.ok, 10, "{:?}", report.faults);
    let trips = streams(&report).round_trip.clone().unwrap();
    // The server needs 40 ms for each message, one after the other; they are due every 20 ms. So the
    // first needs 40 ms, the last 120 ms.
    assert!(trips.micros(0.0) >= 39_000.0 && trips.micros(1.0) >= 115_000.0, "{trips:?}");
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[test]
fn messages_of_the_server_are_events() {
    let report = run_load(&chatting(&serve(Manner::Push), 5, 20)).unwrap();
    let seen = streams(&report);
    assert_eq!((seen.events, seen.gap.count(), seen.first_event.count()), (50, 40, 10));
    assert_eq!(seen.round_trip.as_ref().unwrap().count(), 50, "{:?}", report.faults);
}

#[test]
fn a_close_of_the_peer_is_counted_with_its_silence() {
    let idle = Manner::IdleClose(Duration::from_millis(60));
    let report = run_load(&chatting(&serve(idle), 3, 400)).unwrap();
    let seen = streams(&report);
    assert_eq!((seen.opened, seen.completed, seen.cut), (10, 0, 10));
    let silence = seen.idle_at_close.as_ref().unwrap();
    assert_eq!(silence.count(), 10);
    assert!(silence.micros(0.0) >= 55_000.0 && silence.micros(0.5) < 300_000.0, "{silence:?}");
    let fault = &report.faults[0];
    assert_eq!((fault.class, fault.count), (RequestFault::Closed, 10));
    assert!(fault.example.contains("with code 1001") && fault.example.contains("1 of 3 sent"), "{fault:?}");

    let report = run_load(&chatting(&serve(Manner::Drop(2)), 5, 20)).unwrap();
    assert_eq!(streams(&report).cut, 10);
    assert_eq!(report.totals.failed, 10);
}

#[test]
fn a_handshake_may_be_refused_or_wrong() {
    let server = Server::start(|_| Reply::Status(403));
    let report = run_load(&chatting(&server.url(), 3, 20)).unwrap();
    assert_eq!((report.totals.refused, streams(&report).opened), (10, 0), "{:?}", report.faults);
    let server = Server::start(|_| Reply::Status(200));
    let report = run_load(&chatting(&server.url(), 3, 20)).unwrap();
    assert!(report.faults[0].example.contains("200 instead of 101"), "{:?}", report.faults);
    let report = run_load(&chatting(&serve(Manner::WrongProof), 3, 20)).unwrap();
    assert!(report.faults[0].example.contains("does not accept the key"), "{:?}", report.faults);
}

#[test]
fn what_cannot_be_done_is_named() {
    const URL: &str = "http://127.0.0.1:9/";
    let plan = |change: fn(&mut Plan)| {
        let mut plan = chatting(URL, 3, 20);
        change(&mut plan);
        match run_load(&plan) {
            Err(LoadError::Plan(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(plan(|plan| plan.target = target(URL, Protocol::Http2)).contains("HTTP/1.1 only"));
    assert!(plan(|plan| plan.timeout = Duration::from_millis(40)).contains("timeout must be longer"));
}
