//! Stream figures: reads one number per iteration from its streams.
//!
//! Owns: how each figure of streams is read. Does not own: the statistics over iterations.

use std::fmt;

use crate::record::{Distribution, Iteration, Streams};

/// A figure of the streams of an iteration. The value of a percentile is its share in units of
/// 1/100 000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamFigure {
    /// A percentile of the time until the head of the response had arrived, µs; of a WebSocket until
    /// it was open.
    FirstByte(u32),
    /// A percentile of the time until the first event had arrived, µs.
    FirstEvent(u32),
    /// A percentile of the time until the last event of a completed stream had arrived, µs.
    LastEvent(u32),
    /// A percentile of the time between two events of a stream, µs.
    EventGap(u32),
    /// Mean of the time between two events of a stream, µs.
    MeanEventGap,
    /// A percentile of the time until a message of a WebSocket came back, µs.
    RoundTrip(u32),
    /// Number of stalls.
    Stalls,
    /// Share of the opened streams that ended early or with an error status.
    CutShare,
}

impl StreamFigure {
    /// Figures that say how streams went: what comparisons and histories show of them.
    pub const KEY: [Self; 10] = [
        Self::FirstByte(50_000),
        Self::FirstByte(99_000),
        Self::FirstEvent(50_000),
        Self::FirstEvent(99_000),
        Self::EventGap(50_000),
        Self::EventGap(99_000),
        Self::RoundTrip(50_000),
        Self::RoundTrip(99_000),
        Self::Stalls,
        Self::CutShare,
    ];

    /// Whether the figure is a time in µs.
    pub fn is_time(self) -> bool {
        !matches!(self, Self::Stalls | Self::CutShare)
    }

    /// Value of the figure; `None` when it is not known.
    pub fn value(self, iteration: &Iteration) -> Option<f64> {
        let streams = iteration.streams.as_ref()?;
        let micros = |times: &Distribution, share: u32| {
            (!times.is_empty()).then(|| times.micros(f64::from(share) / 1e5))
        };
        match self {
            Self::FirstByte(share) => micros(&streams.head, share),
            Self::FirstEvent(share) => micros(&streams.first_event, share),
            Self::LastEvent(share) => micros(&streams.last_event, share),
            Self::EventGap(share) => micros(&streams.gap, share),
            Self::MeanEventGap => (!streams.gap.is_empty()).then(|| streams.gap.mean() / 1e3),
            Self::RoundTrip(share) => micros(streams.round_trip.as_ref()?, share),
            Self::Stalls => Some(streams.stalls as f64),
            Self::CutShare => cut_share(streams),
        }
    }
}

fn cut_share(streams: &Streams) -> Option<f64> {
    let ended = streams.cut + streams.error_status;
    (streams.opened > 0).then(|| ended as f64 / streams.opened as f64)
}

impl fmt::Display for StreamFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentile = |f: &mut fmt::Formatter<'_>, share: u32, of: &str| {
            write!(f, "P{} of {of}", f64::from(share) / 1e3)
        };
        match *self {
            Self::FirstByte(share) => percentile(f, share, "time to first byte"),
            Self::FirstEvent(share) => percentile(f, share, "time to first event"),
            Self::LastEvent(share) => percentile(f, share, "time to last event"),
            Self::EventGap(share) => percentile(f, share, "time between events"),
            Self::MeanEventGap => f.write_str("mean time between events"),
            Self::RoundTrip(share) => percentile(f, share, "round trip of messages"),
            Self::Stalls => f.write_str("stalls"),
            Self::CutShare => f.write_str("streams cut"),
        }
    }
}
