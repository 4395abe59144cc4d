//! Loads of a scenario: what is sent, how much, and what happens during it.
//!
//! Owns: the checked form. Does not own: its keys in a file ([`super::load_table`]), sending.

use std::time::Duration;

use lab_load::cluster::ChangeSchedule;
use lab_load::load::{Exchange, InterArrival, Protocol, Stop};
use lab_load::provider::Flow;
use lab_load::revoke::RevocationSchedule;

use super::event::PlannedEvent;
use super::rate::RateProfile;

/// A load: what is sent, how much, and what happens during it.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Flow that each virtual user repeats; `None` for single requests to the load entry.
    pub flow: Option<Flow>,
    /// What follows the head of each request: a response, a stream or a WebSocket.
    pub exchange: Exchange,
    /// How requests arrive.
    pub arrivals: ArrivalPattern,
    /// When the load ends.
    pub stop: Stop,
    /// Number of rounds, from the first, in which it is sent; `None` for all.
    pub rounds: Option<u32>,
    /// Duration of the load before the measured window.
    pub warmup: Duration,
    /// Path and query, instead of those of the topology's URL.
    pub path: Option<String>,
    /// Number of different tokens; 0 for requests without a token.
    pub tokens: u32,
    /// Exponent of the token choice, with weight 1 / k^exponent; `None` for each token in turn.
    pub zipf: Option<f64>,
    /// Longest wait for a response.
    pub timeout: Duration,
    /// Requests in flight at the same time on one HTTP/2 connection. `None` for the largest divisor
    /// of the total, up to 10.
    pub streams: Option<u32>,
    /// Connections that are held open during the load.
    pub hold: Option<Hold>,
    /// Revocation of credentials during the load.
    pub revocations: Option<RevocationSchedule>,
    /// Changes of a Kubernetes cluster during the load.
    pub changes: Option<ChangeSchedule>,
    /// Interval at which the metrics of the gateway are read.
    pub scrape_every: Option<Duration>,
    /// Events on components during the load, by time.
    pub events: Vec<PlannedEvent>,
    /// Makes h2load log every request. h2load prints no percentiles, so they are computed from the
    /// log, at a higher cost.
    pub every_request: bool,
}

impl Load {
    /// Total duration; `None` for a fixed number of requests.
    pub fn length(&self) -> Option<Duration> {
        match self.stop {
            Stop::After(duration) => Some(self.warmup + duration + self.after_window().unwrap_or_default()),
            Stop::Count(_) => None,
        }
    }

    /// Why the load cannot be sent over this protocol.
    pub(super) fn wrong_wire(&self, wire: Protocol) -> Option<&'static str> {
        match (&self.exchange, wire) {
            (exchange, Protocol::Http1) if exchange.is_grpc() => {
                Some("is gRPC, which needs HTTP/2: set `protocol = \"h2\"`")
            }
            (Exchange::WebSocket(_), Protocol::Http2) => {
                Some("has WebSockets, which are sent over HTTP/1.1 only: set `protocol = \"http/1.1\"`")
            }
            _ => None,
        }
    }

    /// Number of rounds in which the load is sent, out of `all` rounds of the scenario.
    pub fn rounds_of(&self, all: u32) -> u32 {
        self.rounds.map_or(all, |some| some.min(all))
    }

    /// How long the load continues after its window, so that credentials are revoked in that time.
    pub fn after_window(&self) -> Option<Duration> {
        self.revocations?.after_window
    }
}

/// Connections that are opened before a load and held until it ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// What the held connections send.
    pub behavior: HeldBehavior,
    /// Number of held connections.
    pub connections: u32,
}

/// What held connections send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBehavior {
    /// One complete request, then nothing.
    Idle,
    /// Nothing at all.
    Silent,
    /// A request head that never ends: one line at each interval.
    SlowLoris(Duration),
}

/// How requests arrive.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrivalPattern {
    /// Closed loop: this many workers, each of which waits for its response.
    Closed(u32),
    /// Open loop: at a given rate, independent of the responses.
    Open {
        /// Distribution of the time between two requests.
        spacing: InterArrival,
        /// Requests per second over time.
        rates: RateProfile,
        /// Largest number of requests in flight.
        connections: u32,
    },
}
