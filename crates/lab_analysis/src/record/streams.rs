//! Streams: answers that consist of many events, and WebSockets.
//!
//! Owns: the shape of their figures. Does not own: how they are measured, and which stalls have a
//! cause ([`crate::diagnose`]).
//!
//! Times to the head and to the first event count from the *intended* start of the stream, as
//! latencies do. A stream is one request of its iteration: it ends with its last byte.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Distribution;

/// Form of the events of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// Server-sent events (`text/event-stream`).
    Sse,
    /// Lines, such as newline-delimited JSON.
    Lines,
    /// Messages of a server-streaming gRPC method.
    Grpc,
    /// Messages of a WebSocket that the server sends by itself.
    Websocket,
}

impl StreamKind {
    /// Name of the kind as a unit of work of a load.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::Lines => "lines",
            Self::Grpc => "grpc",
            Self::Websocket => "websocket",
        }
    }

    /// Name of the kind in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sse => "SSE",
            Self::Lines => "lines",
            Self::Grpc => "gRPC",
            Self::Websocket => "WebSocket",
        }
    }
}

/// Streams that were due in the window of an iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Form of the events.
    pub kind: StreamKind,
    /// Time between two events of a stream from which it counts as a stall, µs. For a WebSocket also
    /// the round trip from which it does.
    pub stall_us: f64,
    /// Streams whose head arrived with a status below 400.
    pub opened: u64,
    /// Streams of these that ended as they should.
    pub completed: u64,
    /// Streams of these that ended early: closed, reset, timed out, or with fewer events than
    /// expected; of a WebSocket: closed by the peer.
    pub cut: u64,
    /// gRPC streams that ended with an error status.
    pub error_status: u64,
    /// Streams of at least three events that all arrived in the last tenth of the stream.
    pub together: u64,
    /// Events that arrived.
    pub events: u64,
    /// Bytes of content that arrived, framing of events included.
    pub bytes: u64,
    /// Time until the head of the response had arrived; of a WebSocket until it was open.
    pub head: Distribution,
    /// Time until the first event had arrived.
    pub first_event: Distribution,
    /// Time until the last event of a completed stream had arrived.
    pub last_event: Distribution,
    /// Time between two events of a stream.
    pub gap: Distribution,
    /// Time from the moment at which a message was due until it had come back; only of WebSockets.
    pub round_trip: Option<Distribution>,
    /// Time without a message in either direction before the peer closed a WebSocket, of those
    /// that had no longer silence before.
    pub idle_at_close: Option<Distribution>,
    /// Number of stalls.
    pub stalls: u64,
    /// Stalls, in the order in which they ended: all, or a regular sample if there were more.
    pub stalled: Vec<Stall>,
}

/// A time in which a stream brought no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Start of the stall, milliseconds since the start of the iteration.
    pub at_ms: u64,
    /// Length of the stall, milliseconds.
    pub ms: u64,
}

impl Streams {
    /// Most stalls that are kept one by one.
    pub const MAX_STALLS: usize = 512;

    /// Drops every other one of these stalls, which are then a regular sample of twice as many.
    pub fn halve(stalled: &mut Vec<Stall>) {
        let mut is_kept = false;
        stalled.retain(|_| {
            is_kept = !is_kept;
            is_kept
        });
    }

    /// Adds the streams of another generator, whose times are on the same axis.
    pub(crate) fn add(&mut self, other: Self) {
        self.stall_us = self.stall_us.max(other.stall_us);
        for (own, other) in [
            (&mut self.opened, other.opened),
            (&mut self.completed, other.completed),
            (&mut self.cut, other.cut),
            (&mut self.error_status, other.error_status),
            (&mut self.together, other.together),
            (&mut self.events, other.events),
            (&mut self.bytes, other.bytes),
            (&mut self.stalls, other.stalls),
        ] {
            *own += other;
        }
        self.head.add(&other.head);
        self.first_event.add(&other.first_event);
        self.last_event.add(&other.last_event);
        self.gap.add(&other.gap);
        add_optional(&mut self.round_trip, other.round_trip);
        add_optional(&mut self.idle_at_close, other.idle_at_close);
        self.stalled.extend(other.stalled);
        self.stalled.sort_by_key(|stall| stall.at_ms + stall.ms);
        while self.stalled.len() > Self::MAX_STALLS {
            Self::halve(&mut self.stalled);
        }
    }

    /// Counts that have to be possible.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> {
        let stalled = self.stalled.iter().flat_map(|stall| [stall.at_ms, stall.ms]);
        let counts = [self.opened, self.completed, self.cut, self.error_status, self.together];
        counts.into_iter().chain([self.events, self.bytes, self.stalls]).chain(stalled)
    }

    /// What contradicts itself; `None` if nothing does.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        if self.completed + self.cut + self.error_status > self.opened {
            return Some("more streams ended than were opened");
        }
        if self.stalled.len() as u64 > self.stalls || self.stalled.len() > Self::MAX_STALLS {
            return Some("more stalls are listed than there were, or than a record may have");
        }
        (self.first_event.count() > self.events)
            .then_some("more streams have a first event than there are events")
    }
}

fn add_optional(own: &mut Option<Distribution>, other: Option<Distribution>) {
    match (own.as_mut(), other) {
        (Some(own), Some(other)) => own.add(&other),
        (None, other) => *own = other,
        (Some(_), None) => {}
    }
}
