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
    /// A regular sample of the stalls, in the order in which they ended.
    stalled: Vec<Stall>,
    /// One of how many stalls is in the sample: 1 as long as all have room, then a power of two.
    sampled_of: u64,
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
            sampled_of: 1,
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
    ///
    /// When the list of stalls is full, every other one is dropped, and from then on only half as
    /// many are added. So it has the same share of all of them at any time of the run.
    pub(super) fn record_silence(&mut self, from: u64, until: u64) {
        let length = until.saturating_sub(from);
        if length <= self.stall {
            return;
        }
        let number = self.stalls;
        self.stalls += 1;
        if !number.is_multiple_of(self.sampled_of) {
            return;
        }
        if self.stalled.len() == Streams::MAX_STALLS {
            Streams::halve(&mut self.stalled);
            self.sampled_of *= 2;
        }
        self.stalled.push(Stall { at_ms: from / NANOS_PER_MS, ms: length / NANOS_PER_MS });
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of so many stalls of 300 ms, one each millisecond.
    fn stalling(stalls: u64) -> Streams {
        let mut recorder = StreamRecorder::new(StreamKind::Sse, Duration::from_millis(200));
        for at_ms in 0..stalls {
            recorder.record_silence(at_ms * NANOS_PER_MS, (at_ms + 300) * NANOS_PER_MS);
        }
        recorder.streams()
    }

    #[test]
    fn of_too_many_stalls_the_list_is_a_regular_sample() {
        for (stalls, step) in [(512, 1), (513, 2), (1024, 2), (1025, 4), (10_000, 32)] {
            let seen = stalling(stalls);
            let listed: Vec<u64> = seen.stalled.iter().map(|stall| stall.at_ms).collect();
            let expected: Vec<u64> = (0..stalls).step_by(step).collect();
            assert_eq!((seen.stalls, listed), (stalls, expected));
        }
    }
}
