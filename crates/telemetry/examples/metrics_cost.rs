//! Cost of observing a request: nanoseconds per operation on one thread, with all data in cache.
//!
//!     cargo run --release -p telemetry --example metrics_cost

#![allow(clippy::print_stdout, reason = "the figures are for the terminal")]

use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use auth::identity::{CredentialKind, Identity};
use auth::time::Timestamp;
use telemetry::access_log::{
    AccessLog, AccessLogOptions, AccessRecord, Destination, ForwardedTo, RequestProtocol, RequestTarget,
    Style,
};
use telemetry::metrics::{Format, Metrics, Outcome};
use telemetry::phases::{CacheUse, Phase, Recorder, server_timing};
use telemetry::trace::{Sampling, Tracer};
use telemetry::trace_context::{IdGenerator, TraceParent};

/// Number of rounds; each result is their median.
const ROUNDS: usize = 9;

/// Prints nanoseconds per call: the median of the rounds, and the fastest.
fn measure(name: &str, calls: u32, mut call: impl FnMut(u64)) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            for n in 0..calls {
                call(black_box(n.into()));
            }
            began.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<58} {:>8.1} ns   (fastest {:.1})", rounds[ROUNDS / 2], rounds[0]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = Metrics::new(2);
    let worker = metrics.worker(0).ok_or("the shard is free")?;
    let route = metrics.route("items");
    let shared = AtomicU64::new(0);
    measure("for comparison: one shared atomic add, uncontended", 20_000_000, |_| {
        shared.fetch_add(1, Relaxed);
    });
    measure("for comparison: reading the clock", 5_000_000, |_| {
        let _ = black_box(Instant::now());
    });
    measure("finish()", 20_000_000, |n| {
        route.count_finished(&worker, Outcome::Allowed, 200, 20_000 + n % 4096);
    });
    measure("begun, finish(), bytes(), ended", 20_000_000, |n| {
        worker.request_begun();
        route.count_finished(&worker, Outcome::Allowed, 200, 20_000 + n % 4096);
        route.count_bytes(&worker, 0, n);
        worker.request_ended();
    });
    let start = Instant::now();
    let at = |n: u64| start + Duration::from_nanos(n * 300);
    measure("recorder over six phases, clock as argument", 5_000_000, |n| {
        black_box(recorded(at(n)));
    });
    let phases = recorded(start);
    measure("phases(): six histograms", 10_000_000, |_| worker.record_phases(black_box(&phases)));
    measure("finish() with recorder and phases()", 5_000_000, |n| {
        worker.record_phases(&recorded(at(n)));
        route.count_finished(&worker, Outcome::Allowed, 200, 20_000 + n % 4096);
    });
    let mut field = Vec::with_capacity(256);
    measure("Server-Timing", 2_000_000, |_| {
        field.clear();
        server_timing(black_box(&phases), Some(CacheUse::Hit), None, &mut field);
    });
    lines()?;
    traces()?;
    measure("a whole scrape, 1 route", 500, |_| drop(black_box(metrics.render(Format::Text))));
    Ok(())
}

/// A recorder with six phases, 300 ns apart.
fn recorded(start: Instant) -> Recorder {
    let mut recorder = Recorder::start(start);
    let phases =
        [Phase::Parse, Phase::Match, Phase::Authenticate, Phase::Decide, Phase::Upstream, Phase::Respond];
    for (step, phase) in (1..).zip(phases) {
        recorder.end_phase(phase, black_box(start + Duration::from_nanos(step * 300)));
    }
    recorder
}

fn lines() -> Result<(), Box<dyn std::error::Error>> {
    let identity = Identity {
        kind: CredentialKind::Jwt,
        issuer: "corp".into(),
        subject: "8f14e45f-ceea-467f-a8f1-0d2c5c6c2f3a".into(),
        user: Some("alice".into()),
        email: None,
        client: None,
        groups: Vec::new(),
        groups_elsewhere: false,
        scopes: Vec::new(),
        claims: Vec::new(),
    };
    let mut ids = IdGenerator::from_seed([7; 32]);
    let mut record = AccessRecord {
        time: Timestamp::from_millis(1_700_000_000_000),
        listener: "public",
        peer: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 17), 51_234)),
        client: None,
        protocol: RequestProtocol::Http11,
        target: Some(RequestTarget {
            method: "GET",
            host: "api.example.com",
            path: "/v1/items/4711/attachments",
            other_path: None,
        }),
        status: 200,
        outcome: Outcome::Allowed,
        reason: None,
        request_id: None,
        upstream_fault: None,
        route: Some("items"),
        identity: Some(&identity),
        forwarded: Some(ForwardedTo {
            upstream: "app",
            endpoint: "10.0.0.17:8080",
            duration_nanos: 812_345,
            retries: 0,
        }),
        bytes_in: 0,
        bytes_out: 1024,
        total_nanos: 845_678,
        cache_result: Some(CacheUse::Hit),
        trace: Some(ids.next_trace_id()),
    };
    for (style, name) in
        [(Style::Json, "one access log line, JSON"), (Style::Text, "one access log line, text")]
    {
        let destination = Destination::Writer(Box::new(io::sink()));
        let log = AccessLog::start(AccessLogOptions { style, destination })?;
        let mut buffer = log.buffer();
        measure(name, 1_000_000, |n| {
            record.time = Timestamp::from_millis(1_700_000_000_000 + n / 40);
            record.total_nanos = 800_000 + n;
            buffer.append(black_box(&record));
        });
        drop(buffer);
        let _ = log.close(Duration::from_secs(10));
        let (written, dropped) = (log.stats().written(), log.stats().dropped());
        println!("    ({written} written by the other thread, {dropped} dropped)");
    }
    Ok(())
}

fn traces() -> Result<(), Box<dyn std::error::Error>> {
    let mut ids = IdGenerator::from_seed([7; 32]);
    let tracer = Tracer::new(Sampling::Parent(0.0), None);
    let value = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    TraceParent::parse(value)?;
    let mut field = Vec::with_capacity(64);
    measure("traceparent in and out, not sampled", 5_000_000, |_| {
        field.clear();
        let parent = TraceParent::parse(black_box(value)).ok();
        tracer.begin(parent.as_ref(), &mut ids).outgoing().write(&mut field);
    });
    Ok(())
}
