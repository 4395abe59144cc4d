//! Load generator tests, against a small server that misbehaves on demand.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails with it")]

mod cli;
mod diagnose;
mod held;
mod http1;
mod http2;
mod provider;
mod server;
mod streams;
mod websockets;

use std::time::Duration;

use lab_load::load::{
    InterArrival, Open, Plan, Protocol, RequestTemplate, Schedule, Step, Stop, Target, Trust,
};

/// Nothing listens here. The port of a listener that was closed is no substitute: the server of
/// another test can get it.
const NOBODY: &str = "127.0.0.1:1";

/// A quick open-loop plan: `count` requests at `rate` per second on one connection, no warm-up.
fn plan(url: &str, rate: f64, count: u64) -> Plan {
    Plan {
        target: target(url, Protocol::Http1),
        flow: RequestTemplate::get(),
        schedule: open(rate),
        stop: Stop::Count(count),
        warmup: Duration::ZERO,
        connections: 1,
        streams: 1,
        timeout: Duration::from_secs(20),
        seed: 1,
        watch: Vec::new(),
    }
}

fn open(rate: f64) -> Schedule {
    Schedule::Open(Open { spacing: InterArrival::Constant, steps: vec![Step::steady(rate, Duration::ZERO)] })
}

fn target(url: &str, protocol: Protocol) -> Target {
    Target::new(url, protocol, Some(&Trust::AnyCertificate), None, None).unwrap()
}
