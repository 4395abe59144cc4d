//! In-flight request: tracks a request from its complete head to its end.
//!
//! Owns: what begins with a request (its [`RequestRecord`], its in-flight count, the configuration
//! it holds), and that it is counted and logged exactly once. This includes a task that is dropped
//! while it waits, as at the end of draining, and one that unwinds. Does not own: what is counted
//! and logged ([`Worker::finish`]).

use std::rc::Rc;

use telemetry::access_log::RequestProtocol;
use telemetry::phases::Phase;

use crate::peer::Peer;
use crate::record::{RecordDetail, RequestRecord};
use crate::worker::{ActiveConfig, InFlight, Worker};

/// A request in flight; dropping it finishes the request.
pub(crate) struct InFlightRequest {
    worker: Rc<Worker>,
    running: Rc<ActiveConfig>,
    peer: Rc<Peer>,
    record: RequestRecord,
    completed: bool,
    // Last field: the request is in flight until it is counted.
    _in_flight: InFlight,
}

/// Whether the phases of a request are measured, to be counted or shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// They are measured.
    Phases,
    /// Only the whole request is timed.
    Off,
}

impl Timing {
    /// Measures the phases if `wanted`.
    pub(crate) fn when(wanted: bool) -> Self {
        if wanted { Self::Phases } else { Self::Off }
    }
}

impl InFlightRequest {
    /// Begins when a head is complete. Inlined, because it is built in its place then instead of being
    /// copied there.
    #[inline]
    pub(crate) fn begin(
        worker: &Rc<Worker>,
        peer: &Rc<Peer>,
        protocol: RequestProtocol,
        timing: Timing,
    ) -> Self {
        let started = worker.clock.monotonic();
        worker.note_time(started);
        let described = worker.needs_description();
        let phases = timing == Timing::Phases;
        let clock = (phases || described).then(|| worker.clock.clone());
        let detail = RecordDetail { phases, text: described };
        let mut record = RequestRecord::begin(started, protocol, clock, detail);
        record.shows_timing = peer.sees_timing;
        if let (Some(nanos), Some(phases)) = (peer.accept_nanos.take(), &mut record.phases) {
            phases.add(Phase::Accept, nanos);
        }
        Self {
            worker: worker.clone(),
            running: worker.active_config(),
            peer: peer.clone(),
            record,
            completed: false,
            _in_flight: worker.in_flight(),
        }
    }

    /// The configuration that the request holds, and its record.
    pub(crate) fn parts(&mut self) -> (&Rc<ActiveConfig>, &mut RequestRecord) {
        (&self.running, &mut self.record)
    }

    /// Marks the request as regularly ended; to be dropped then. It is not taken by value, because it
    /// would be copied as a whole.
    pub(crate) fn complete(&mut self) {
        self.completed = true;
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if !self.completed {
            self.record.aborted(if std::thread::panicking() { "panicked" } else { "gateway_stopped" });
        }
        self.worker.finish(&self.running, &self.peer, &self.record);
    }
}
