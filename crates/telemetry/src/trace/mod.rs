//! Traces: the trace of each request, and its spans.
//!
//! Owns: reading and writing W3C Trace Context, the sampling decision, the two spans of a request,
//! and their export by OTLP. Does not own: the header fields themselves (the pipeline removes and
//! writes them), which peers are trusted.
//!
//! Flow: `Incoming::from_fields → Tracer::begin → Context → write traceparent upstream … →
//! Tracer::finish → bounded queue → Exporter → collector`.
//!
//! A request that is not sampled costs two ids and 55 bytes of header; nothing is queued.

mod client;
mod export;
mod otlp;
mod span;
mod state;

use std::sync::Arc;

pub use client::{CollectorEndpoint, EndpointFault};
pub use export::{ExportOptions, Exporter, Queue, TraceStats};
pub use span::FinishedRequest;
pub use state::TraceState;

use crate::trace_context::{Flags, IdGenerator, SpanId, TraceId, TraceParent};

/// The trace context that a caller sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// The caller's span.
    pub parent: TraceParent,
    /// Entries of other systems (`tracestate`).
    pub state: Option<TraceState<'a>>,
}

impl<'a> Incoming<'a> {
    /// Reads the trace context from a request's fields (name, trimmed value). `None`: `traceparent`
    /// is absent, repeated or invalid; `tracestate` is ignored without it.
    pub fn from_fields(fields: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> Option<Self> {
        let mut parents = fields.clone().filter(|(name, _)| name.eq_ignore_ascii_case("traceparent"));
        let (_, value) = parents.next()?;
        if parents.next().is_some() {
            return None;
        }
        let parent = TraceParent::parse(value).ok()?;
        let states = fields.filter(|(name, _)| name.eq_ignore_ascii_case("tracestate"));
        Some(Self { parent, state: TraceState::parse(states.map(|(_, value)| value)) })
    }
}

/// Which requests are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// This share of traces, 0 to 1, independent of the caller's decision. The decision depends on
    /// the trace id, so all gateways with the same ratio sample the same traces.
    Ratio(f64),
    /// As the caller decided; this share of traces that start here.
    Parent(f64),
}

/// The ids of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: TraceId,
    parent: Option<SpanId>,
    server: SpanId,
    client: SpanId,
    flags: Flags,
}

impl TraceContext {
    /// The trace id, as in log lines.
    pub fn trace_id(&self) -> TraceId {
        self.trace
    }

    /// Whether spans are recorded.
    pub fn sampled(&self) -> bool {
        self.flags.sampled()
    }

    /// The context for the upstream, with the gateway's client span as parent.
    pub fn outgoing(&self) -> TraceParent {
        TraceParent { trace: self.trace, span: self.client, flags: self.flags }
    }
}

/// Starts and finishes the spans of requests. Shared by all workers.
#[derive(Debug, Clone)]
pub struct Tracer {
    threshold: u64,
    follow_parent: bool,
    queue: Option<Arc<Queue>>,
}

impl Tracer {
    /// `queue`: receives sampled requests; `None`: traces are continued, but no spans are recorded.
    pub fn new(sampling: Sampling, queue: Option<Arc<Queue>>) -> Self {
        let (ratio, follow_parent) = match sampling {
            Sampling::Ratio(ratio) => (ratio, false),
            Sampling::Parent(ratio) => (ratio, true),
        };
        Self { threshold: threshold(ratio), follow_parent, queue }
    }

    /// Whether spans are recorded at all. If not, phases need not be timed for them.
    pub fn is_recording(&self) -> bool {
        self.queue.is_some()
    }

    /// Continues the caller's trace, or starts one. `incoming` must also be `None` if the peer is
    /// not trusted to choose a trace.
    ///
    /// Without a queue the caller's decision is passed on unchanged: this gateway records nothing,
    /// but others may.
    pub fn begin(&self, incoming: Option<&TraceParent>, ids: &mut IdGenerator) -> TraceContext {
        let trace = incoming.map_or_else(|| ids.next_trace_id(), |parent| parent.trace);
        let chosen = trace.randomness() < self.threshold;
        let flags = match incoming {
            Some(parent) if self.follow_parent || self.queue.is_none() => parent.flags,
            Some(parent) => parent.flags.with_sampled(chosen),
            None => Flags::new(chosen && self.queue.is_some()),
        };
        let (server, client) = (ids.next_span_id(), ids.next_span_id());
        TraceContext { trace, parent: incoming.map(|parent| parent.span), server, client, flags }
    }

    /// Queues the spans of a finished request for export if it is sampled. Never blocks; if the
    /// queue is full the spans are dropped and counted.
    pub fn finish(&self, finished: &FinishedRequest<'_>) {
        if let Some(queue) = self.queue.as_ref().filter(|_| finished.trace.sampled()) {
            queue.enqueue(finished);
        }
    }
}

/// Converts a ratio into a threshold for 56 random bits.
fn threshold(ratio: f64) -> u64 {
    const ALL: f64 = (1u64 << 56) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^56")]
    if ratio > 0.0 { (ratio.min(1.0) * ALL) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

    fn ids() -> IdGenerator {
        IdGenerator::from_seed([3; 32])
    }

    fn recording(sampling: Sampling) -> Tracer {
        Tracer::new(sampling, Some(Arc::new(Queue::for_tests())))
    }

    fn parent(flags: &str) -> TraceParent {
        TraceParent::parse(format!("{PARENT}-{flags}").as_bytes()).unwrap()
    }

    #[test]
    fn a_trace_is_continued() {
        let trace = recording(Sampling::Parent(0.0)).begin(Some(&parent("01")), &mut ids());
        assert_eq!(trace.trace_id(), parent("01").trace);
        assert_eq!(trace.parent, Some(parent("01").span));
        assert!(trace.sampled(), "as the caller chose");
        let out = trace.outgoing();
        assert_eq!((out.trace, out.flags.as_byte()), (parent("01").trace, 1));
        assert!(
            out.span == trace.client && trace.client != trace.server && Some(trace.server) != trace.parent
        );
        assert!(!recording(Sampling::Parent(1.0)).begin(Some(&parent("00")), &mut ids()).sampled());
    }

    #[test]
    fn a_trace_is_begun_without_a_caller_s() {
        let trace = recording(Sampling::Parent(1.0)).begin(None, &mut ids());
        assert_eq!((trace.parent, trace.outgoing().flags.as_byte()), (None, 3), "sampled, random");
        assert_eq!(recording(Sampling::Parent(0.0)).begin(None, &mut ids()).outgoing().flags.as_byte(), 2);
    }

    #[test]
    fn a_caller_cannot_force_recording_by_ratio() {
        let none = recording(Sampling::Ratio(0.0)).begin(Some(&parent("03")), &mut ids());
        assert_eq!(none.outgoing().flags.as_byte(), 2, "random stays, sampled does not");
        assert!(recording(Sampling::Ratio(1.0)).begin(Some(&parent("00")), &mut ids()).sampled());
    }

    #[test]
    fn without_a_queue_the_caller_s_choice_is_passed_on() {
        let tracer = Tracer::new(Sampling::Ratio(0.0), None);
        assert!(tracer.begin(Some(&parent("01")), &mut ids()).sampled());
        assert!(!tracer.begin(None, &mut ids()).sampled());
    }

    #[test]
    fn a_ratio_samples_its_share() {
        let tracer = recording(Sampling::Ratio(0.25));
        let mut ids = ids();
        let sampled = (0..20_000).filter(|_| tracer.begin(None, &mut ids).sampled()).count();
        assert!((4700..5300).contains(&sampled), "{sampled}");
        for (ratio, bound) in [(-1.0, 0), (0.0, 0), (f64::NAN, 0), (1.0, 1 << 56), (7.0, 1 << 56)] {
            assert_eq!(threshold(ratio), bound, "{ratio}");
        }
    }

    #[test]
    fn fields_of_a_request() {
        let good = format!("{PARENT}-01");
        let find = |fields: &[(&'static str, &str)]| {
            let fields: Vec<(&str, &[u8])> = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
            Incoming::from_fields(fields.into_iter().map(|(n, v)| (n, &*v.to_vec().leak())))
                .map(|incoming| incoming.state.map(|state| state.as_str().to_owned()))
        };
        assert_eq!(find(&[("tracestate", "a=1")]), None);
        assert_eq!(find(&[("TraceParent", &good)]), Some(None));
        assert_eq!(
            find(&[("TraceState", "a=1"), ("traceparent", &good), ("x", "y"), ("tracestate", "b=2")]),
            Some(Some("a=1,b=2".into()))
        );
        assert_eq!(
            find(&[("traceparent", &good), ("tracestate", "A")]),
            Some(None),
            "the trace still counts"
        );
        assert_eq!(find(&[("traceparent", &good), ("traceparent", &good)]), None, "two are none");
        assert_eq!(find(&[("traceparent", "00-0")]), None);
    }
}
