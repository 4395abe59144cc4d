//! Stream observer: notes when the head and the events of one stream arrive, and how it ends.
//!
//! Owns: the times of one stream, and whether it is complete. Does not own: reading it.

use http::HeaderMap;
use lab_analysis::units::count;

use super::parser::EventParser;
use super::{Exchange, StreamForm, StreamSettings};
use crate::load::dispatcher::Arrival;
use crate::load::stream_recorder::StreamRecorder;
use crate::load::{Failure, RequestFault, TargetSession};

/// Fewest events of a stream for which it is noted whether all came at its end.
const MIN_EVENTS_TOGETHER: u64 = 3;
/// Part of a stream, counted from its end, within which its events come together: a tenth.
const TOGETHER_PART: u64 = 10;

/// Times of the events of one stream or WebSocket.
pub(crate) struct EventTimes<'s> {
    session: &'s TargetSession,
    /// Intended start, nanoseconds since the start of the run.
    intended: u64,
    /// Start of sending: how long the stream waited for a connection is not its own.
    started: u64,
    /// `true` for streams that are due after the warm-up: only these are recorded.
    measured: bool,
    first: Option<u64>,
    last: u64,
    pub(super) events: u64,
}

impl<'s> EventTimes<'s> {
    pub(super) fn new(session: &'s TargetSession, arrival: &Arrival, started: u64) -> Self {
        let &Arrival { intended, measured, .. } = arrival;
        Self { session, intended, started, measured, first: None, last: 0, events: 0 }
    }

    pub(super) fn now(&self) -> u64 {
        self.session.clock.now()
    }

    /// Changes the figures of a stream that was due in the window.
    pub(super) fn record(&self, change: impl FnOnce(&mut StreamRecorder)) {
        if let Some(streams) = &mut self.session.recorder.borrow_mut().streams
            && self.measured
        {
            change(streams);
        }
    }

    /// Notes that the stream is open.
    pub(super) fn opened(&self) {
        let latency = self.now().saturating_sub(self.intended);
        self.record(|streams| {
            streams.opened += 1;
            streams.head.record(latency);
        });
    }

    /// Notes events that arrive now.
    pub(super) fn arrived(&mut self, events: u64, bytes: usize) {
        let now = self.now();
        let (first, last) = (self.first, self.last);
        self.record(|streams| {
            streams.events += events;
            streams.bytes += count(bytes);
            if events == 0 {
                return;
            }
            match first {
                None => streams.first_event.record(now.saturating_sub(self.intended)),
                Some(_) => streams.record_gap(last, now),
            }
            // Events that arrive together have no time between them.
            (1..events).for_each(|_| streams.record_gap(now, now));
        });
        if events > 0 {
            self.first.get_or_insert(now);
            self.last = now;
            self.events += events;
        }
    }

    /// When the last event arrived.
    pub(super) fn last_event(&self) -> Option<u64> {
        self.first.map(|_| self.last)
    }

    /// Notes how the stream ended after it was open. If it was cut, it had been silent since then.
    pub(super) fn ended(&self, ending: &Result<u16, Failure>, silent_since: Option<u64>) {
        let now = self.now();
        self.record(|streams| match ending {
            Ok(_) => {
                streams.completed += 1;
                if self.first.is_some() {
                    streams.last_event.record(self.last.saturating_sub(self.intended));
                }
                let spread = self.last.saturating_sub(self.first.unwrap_or(self.last));
                let whole = self.last.saturating_sub(self.started);
                let together = self.events >= MIN_EVENTS_TOGETHER && spread * TOGETHER_PART <= whole;
                streams.together += u64::from(together);
            }
            Err(Failure { fault: RequestFault::GrpcStatus, .. }) => streams.error_status += 1,
            Err(_) => {
                streams.cut += 1;
                if let Some(since) = silent_since {
                    streams.record_silence(since, now);
                }
            }
        });
    }
}

/// Observes one response of many events.
pub(crate) struct StreamObserver<'s> {
    times: EventTimes<'s>,
    parser: EventParser,
    form: StreamForm,
    expected: Option<u64>,
    /// Whether the head arrived with a status below 400.
    open: bool,
    /// Status and message of a gRPC call.
    grpc: Option<(String, String)>,
    fault: Option<&'static str>,
}

impl<'s> StreamObserver<'s> {
    /// Observes the stream of an arrival; `None` if the session's exchanges are no streams.
    pub(crate) fn new(session: &'s TargetSession, arrival: &Arrival, started: u64) -> Option<Self> {
        let Exchange::Stream(StreamSettings { form, events, .. }) = session.exchange else { return None };
        Some(Self {
            times: EventTimes::new(session, arrival, started),
            parser: EventParser::new(form),
            form,
            expected: events,
            open: false,
            grpc: None,
            fault: None,
        })
    }

    /// The head has arrived.
    pub(crate) fn head(&mut self, status: u16) {
        self.open = status < 400;
        if self.open {
            self.times.opened();
        }
    }

    /// Content has arrived.
    pub(crate) fn content(&mut self, bytes: &[u8]) {
        if !self.open || self.fault.is_some() {
            return;
        }
        match self.parser.push(bytes) {
            Ok(events) => self.times.arrived(events, bytes.len()),
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Header or trailer fields have arrived, which may have the status of a gRPC call.
    pub(crate) fn fields(&mut self, fields: &HeaderMap) {
        let text =
            |name: &str| fields.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        if let Some(status) = text("grpc-status") {
            self.grpc = Some((status, text("grpc-message").unwrap_or_default()));
        }
    }

    /// Decides how the exchange ended, and records it.
    pub(crate) fn finish(mut self, ending: Result<u16, Failure>) -> Result<u16, Failure> {
        if !self.open {
            return ending;
        }
        if ending.is_ok() {
            self.times.arrived(self.parser.end(), 0);
        }
        let ending = ending.and_then(|status| self.incomplete().map_or(Ok(status), Err));
        self.times.ended(&ending, self.times.last_event());
        ending
    }

    /// Why a stream that ended regularly is not complete.
    fn incomplete(&self) -> Option<Failure> {
        let protocol = |why| Some(Failure::new(RequestFault::Protocol, why));
        if let Some(fault) = self.fault {
            return protocol(fault);
        }
        if self.form == StreamForm::Grpc {
            match &self.grpc {
                None => return protocol("the call ended without a grpc-status"),
                Some((status, message)) if status != "0" => {
                    let message = if message.is_empty() { "no message" } else { message };
                    let text = format!("grpc-status {status}: {message}");
                    return Some(Failure::new(RequestFault::GrpcStatus, text));
                }
                Some(_) => {}
            }
        }
        if !self.parser.is_complete() {
            return protocol("the stream ended inside a message");
        }
        let events = self.times.events;
        let wanted = self.expected.unwrap_or(1);
        (events < wanted).then(|| {
            let text = format!("the stream ended after {events} of {wanted} events");
            Failure::new(RequestFault::Closed, text)
        })
    }
}
