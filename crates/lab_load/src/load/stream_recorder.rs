//! Stream recorder: counts and distributions of all streams of a run, in bounded memory.
//!
//! Owns: the figures of streams. Does not own: those of requests ([`crate::load::Recorder`]), which
//! streams are too.

use std::time::Duration;

use lab_analysis::record::{Stall, StreamKind, Streams};
use lab_analysis::units::{micros, nanos};

use crate::load::Latencies;

/// Nanoseconds per millisecond.
const NANOS_PER_MS: u64 = 1_000_000;

/// Figures of all streams of a run that were due in its window.
pub(crate) struct StreamRecorder {
    kind: StreamKind,
    /// Time without an event from which it is a stall, in nanoseconds.
    stall: u64,
    pub(super) opened: u64,
    pub(super) completed: u64,
    pub(super) cut: u64,
    pub(super) error_status: u64,
    pub(super) together: u64,
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) head: Latencies,
    pub(super) first_event: Latencies,
    pub(super) last_event: Latencies,
    gap: Latencies,
    round_trip: Latencies,
    pub(super) idle_at_close: Latencies,
    stalls: u64,
    stalled: Vec<Stall>,
}

impl StreamRecorder {
    pub(crate) fn new(kind: StreamKind, stall: Duration) -> Self {
        Self {
            kind,
            stall: nanos(stall),
            opened: 0,
            completed: 0,
            cut: 0,
            error_status: 0,
            together: 0,
            events: 0,
            bytes: 0,
            head: Latencies::new(),
            first_event: Latencies::fine(),
            last_event: Latencies::fine(),
            gap: Latencies::new(),
            round_trip: Latencies::new(),
            idle_at_close: Latencies::new(),
            stalls: 0,
            stalled: Vec::with_capacity(Streams::MAX_STALLS),
        }
    }

    /// Records the time between two events, in nanoseconds since the start of the run.
    pub(super) fn record_gap(&mut self, from: u64, until: u64) {
        self.gap.record(until.saturating_sub(from));
        // A WebSocket expects more than events, and records itself when its peer is silent.
        if self.kind != StreamKind::Websocket {
            self.record_silence(from, until);
        }
    }

    /// Records the time from the moment at which a message was due until it came back.
    pub(super) fn record_round_trip(&mut self, from: u64, until: u64) {
        self.round_trip.record(until.saturating_sub(from));
    }

    /// Records a time without an event, if it is a stall.
    pub(super) fn record_silence(&mut self, from: u64, until: u64) {
        let length = until.saturating_sub(from);
        if length <= self.stall {
            return;
        }
        self.stalls += 1;
        if self.stalled.len() < Streams::MAX_STALLS {
            self.stalled.push(Stall { at_ms: from / NANOS_PER_MS, ms: length / NANOS_PER_MS });
        }
    }

    /// The figures in the form that a record stores.
    pub(crate) fn streams(&self) -> Streams {
        let websocket = self.kind == StreamKind::Websocket;
        Streams {
            kind: self.kind,
            stall_us: micros(self.stall),
            opened: self.opened,
            completed: self.completed,
            cut: self.cut,
            error_status: self.error_status,
            together: self.together,
            events: self.events,
            bytes: self.bytes,
            head: self.head.distribution(),
            first_event: self.first_event.distribution(),
            last_event: self.last_event.distribution(),
            gap: self.gap.distribution(),
            round_trip: websocket.then(|| self.round_trip.distribution()),
            idle_at_close: websocket.then(|| self.idle_at_close.distribution()),
            stalls: self.stalls,
            stalled: self.stalled.clone(),
        }
    }
}
