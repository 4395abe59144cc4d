//! Recorder: counts results, with one latency histogram per class and one timeline row per second.
//!
//! Memory is bounded and does not depend on the rate: one histogram (about 200 KB) per class, one
//! small row per second.
//!
//! Owns: the figures of a run. Does not own: their presentation.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use lab_analysis::record::Distribution;
use lab_analysis::units::{micros, nanos_of_seconds};
use serde::Serialize;

use super::ending::{Ending, RequestFault};
use super::slices::Slices;
use super::stream_recorder::StreamRecorder;
use super::window::Window;

/// Longest latency that the histograms distinguish, in nanoseconds: one hour.
const MAX_LATENCY_NS: u64 = 3_600_000_000_000;
/// Number of status codes with a histogram of their own. Further codes share one histogram under
/// status 0.
const MAX_STATUSES: usize = 16;
/// Number of phases that are recorded. Further phase names are ignored.
const MAX_PHASES: usize = 32;

/// A latency distribution (an HDR histogram in nanoseconds).
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1000, MAX_LATENCY_NS, 3).expect("the bounds are constants"))
    }

    /// A distribution with four digits instead of three: the difference of two of its times is
    /// known to a few µs where the times are tens of ms. It takes about 4 MB.
    pub(crate) fn fine() -> Self {
        Self(Histogram::new_with_bounds(1000, MAX_LATENCY_NS, 4).expect("the bounds are constants"))
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    pub(crate) fn quantile(&self, quantile: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_quantile(quantile).min(self.0.max()) }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The distribution in the form that a record stores.
    pub(crate) fn distribution(&self) -> Distribution {
        Distribution::from(&self.0)
    }

    /// Longest latency in nanoseconds; 0 for an empty distribution.
    pub(crate) fn max(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.max() }
    }

    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    pub(crate) fn summary(&self) -> Latency {
        let at = |quantile| micros(self.quantile(quantile));
        let extreme = |value: u64| if self.0.is_empty() { 0.0 } else { micros(value) };
        Latency {
            count: self.0.len(),
            mean: extreme(nanos_of_seconds(self.0.mean() / 1e9)),
            deviation: extreme(nanos_of_seconds(self.0.stdev() / 1e9)),
            min: extreme(self.0.min()),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: extreme(self.0.max()),
        }
    }

    /// Points of the cumulative distribution, denser towards the tail: (share of requests, µs).
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        let steps = self.0.iter_quantiles(2);
        let mut curve: Vec<(f64, f64)> = steps
            .map(|step| (step.quantile_iterated_to(), micros(step.value_iterated_to().min(self.0.max()))))
            .collect();
        curve.dedup_by(|later, earlier| (later.0 - earlier.0).abs() < 1e-9);
        curve
    }
}

/// Summary of a latency distribution, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Number of requests in the distribution.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Shortest latency.
    pub min: f64,
    /// Median latency.
    pub p50: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest latency.
    pub max: f64,
}

/// One second of the run. Requests belong to the second in which they ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Second {
    /// Start of this second, in seconds since the start of the run.
    pub second: u64,
    /// `true` if the whole second lies after the warm-up and before the end of the schedule.
    pub measured: bool,
    /// Requests that ended, with or without a response.
    pub completed: u64,
    /// Requests answered with a status below 400.
    pub ok: u64,
    /// Responses by status; status 0 collects the rarer ones.
    pub by_status: BTreeMap<u16, u64>,
    /// Requests without a response, by fault.
    pub faults: BTreeMap<RequestFault, u64>,
    /// Median latency of the requests below 400, in µs from their intended start.
    pub p50_us: f64,
    /// 99th percentile of the same latency, in µs.
    pub p99_us: f64,
    /// Maximum of the same latency, in µs.
    pub max_us: f64,
    /// Requests in flight at the end of the second.
    pub in_flight: u64,
    /// How long the oldest due request had waited for a connection at the end of the second, in µs.
    pub waiting_us: f64,
}

/// Counts and latency distributions of one run.
pub(crate) struct Recorder {
    pub(crate) ok: Latencies,
    pub(crate) service: Latencies,
    pub(crate) all: Latencies,
    /// How late requests were sent although a slot was free.
    pub(crate) lag: Latencies,
    /// How long due requests waited for a free slot.
    pub(crate) wait: Latencies,
    pub(crate) statuses: BTreeMap<u16, Latencies>,
    pub(crate) faults: BTreeMap<RequestFault, Latencies>,
    pub(crate) timeline: Vec<Second>,
    /// The measured window, and the sums over the requests that ended in it, whenever they started:
    /// what the server delivered.
    pub(crate) window: Window,
    /// The run in slices shorter than a second, if requested.
    pub(crate) slices: Option<Slices>,
    /// Durations of the phases that servers report in `Server-Timing`, by name.
    pub(crate) phases: BTreeMap<Box<str>, Latencies>,
    /// Figures of streams and WebSockets, if the requests begin any.
    pub(crate) streams: Option<StreamRecorder>,
    current: Second,
    second: Latencies,
}

/// Times of one request, in nanoseconds since the start of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) intended: u64,
    pub(crate) started: u64,
    pub(crate) finished: u64,
    pub(crate) measured: bool,
}

/// Seconds for which rows are allocated at the start. Up to this length the row vector does not
/// move while the run is measured.
const PREALLOCATED_SECONDS: u64 = 3600;

impl Recorder {
    pub(crate) fn new(window: Window) -> Self {
        let seconds = window
            .planned()
            .map_or(PREALLOCATED_SECONDS, |planned| planned.div_ceil(1_000_000_000))
            .min(PREALLOCATED_SECONDS);
        Self {
            ok: Latencies::new(),
            service: Latencies::new(),
            all: Latencies::new(),
            lag: Latencies::new(),
            wait: Latencies::new(),
            statuses: BTreeMap::new(),
            faults: BTreeMap::new(),
            timeline: Vec::with_capacity(usize::try_from(seconds).unwrap_or(0)),
            window,
            slices: None,
            phases: BTreeMap::new(),
            streams: None,
            current: Second::default(),
            second: Latencies::new(),
        }
    }

    /// Records how a request ended. A request that was never sent did not end at the server, so it
    /// does not count as delivered.
    pub(crate) fn record(&mut self, times: Times, ending: Ending) {
        self.close_rows_until(times.finished, 0, 0);
        let latency = times.finished.saturating_sub(times.intended);
        let ok = ending.is_ok_and(|status| status < 400);
        self.count_second(ending, ok, latency);
        if ending != Err(RequestFault::Unsent) {
            self.window.request_ended(times.finished, ending);
            if let Some(slices) = &mut self.slices {
                slices.record(times.finished, ok.then_some(latency));
            }
        }
        if !times.measured {
            return;
        }
        self.all.record(latency);
        if ok {
            self.ok.record(latency);
            self.service.record(times.finished.saturating_sub(times.started));
        }
        match ending {
            Ok(status) => {
                let known = self.statuses.contains_key(&status) || self.statuses.len() < MAX_STATUSES;
                let key = if known { status } else { 0 };
                self.statuses.entry(key).or_insert_with(Latencies::new).record(latency);
            }
            Err(fault) => self.faults.entry(fault).or_insert_with(Latencies::new).record(latency),
        }
    }

    /// Records the duration of one phase as a server reports it.
    pub(crate) fn record_phase(&mut self, name: &str, nanos: u64) {
        if let Some(known) = self.phases.get_mut(name) {
            known.record(nanos);
        } else if self.phases.len() < MAX_PHASES {
            self.phases.entry(name.into()).or_insert_with(Latencies::new).record(nanos);
        }
    }

    fn count_second(&mut self, ending: Ending, ok: bool, latency: u64) {
        let row = &mut self.current;
        row.completed += 1;
        match ending {
            Ok(status) => {
                let known = row.by_status.contains_key(&status) || row.by_status.len() < MAX_STATUSES;
                *row.by_status.entry(if known { status } else { 0 }).or_default() += 1;
            }
            Err(fault) => *row.faults.entry(fault).or_default() += 1,
        }
        if ok {
            row.ok += 1;
            self.second.record(latency);
        }
    }

    /// Closes the rows of seconds that ended before `now`. A request may close a row before the
    /// timer does; the timer then fills in the state at the end of the second.
    pub(crate) fn close_rows_until(&mut self, now: u64, in_flight: u64, waiting: u64) {
        let second = now / 1_000_000_000;
        while self.current.second < second {
            self.close_row();
        }
        if let Some(row) = self.timeline.last_mut()
            && in_flight + waiting > 0
        {
            (row.in_flight, row.waiting_us) = (in_flight, micros(waiting));
        }
    }

    fn close_row(&mut self) {
        let next = self.current.second + 1;
        let mut row = std::mem::replace(&mut self.current, Second { second: next, ..Second::default() });
        let (from, until) = (row.second * 1_000_000_000, next * 1_000_000_000);
        row.measured = self.window.contains(from, until);
        row.p50_us = micros(self.second.quantile(0.5));
        row.p99_us = micros(self.second.quantile(0.99));
        row.max_us = micros(self.second.quantile(1.0));
        self.second.clear();
        self.timeline.push(row);
    }

    /// Ends the recording: closes the window and, if it is not empty, the last row.
    pub(crate) fn finish(&mut self, now: u64) {
        self.window.close(now);
        self.close_rows_until(now, 0, 0);
        if self.current.completed > 0 {
            self.close_row();
        }
        if let Some(slices) = &mut self.slices {
            slices.finish(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::window::WindowEnd;

    const MS: u64 = 1_000_000;

    /// Creates a recorder with a window between two times in ms.
    fn recorder(from: u64, until: u64) -> Recorder {
        Recorder::new(Window::new(from * MS, WindowEnd::At(until * MS)))
    }

    fn times(intended: u64, started: u64, finished: u64) -> Times {
        Times { intended: intended * MS, started: started * MS, finished: finished * MS, measured: true }
    }

    #[test]
    fn latency_counts_from_the_intended_start() {
        let mut recorder = recorder(0, 10_000);
        recorder.record(times(0, 900, 1000), Ok(200));
        assert!((recorder.ok.summary().p50 - 1e6).abs() < 2e3);
        assert!((recorder.service.summary().p50 - 1e5).abs() < 2e2);
    }

    #[test]
    fn classes_are_kept_apart() {
        let mut recorder = recorder(0, 10_000);
        recorder.record(times(0, 0, 1), Ok(200));
        recorder.record(times(0, 0, 2), Ok(503));
        recorder.record(times(0, 0, 5000), Err(RequestFault::Timeout));
        assert_eq!(recorder.ok.count(), 1);
        assert_eq!(recorder.all.count(), 3);
        assert_eq!(recorder.statuses.keys().copied().collect::<Vec<_>>(), [200, 503]);
        assert!((recorder.faults[&RequestFault::Timeout].summary().max - 5e6).abs() < 5e3);
    }

    #[test]
    fn warm_up_is_in_the_timeline_only() {
        let mut recorder = recorder(1000, 2000);
        recorder.record(Times { measured: false, ..times(0, 0, 500) }, Ok(200));
        recorder.record(times(1100, 1100, 1200), Ok(200));
        recorder.finish(2100 * MS);
        assert_eq!(recorder.all.count(), 1);
        assert_eq!(recorder.window.ended(), 1);
        assert_eq!(
            recorder.timeline.iter().map(|row| (row.completed, row.measured)).collect::<Vec<_>>(),
            [(1, false), (1, true)]
        );
    }

    #[test]
    fn a_silent_second_has_a_row() {
        let mut recorder = recorder(0, 10_000);
        recorder.record(times(0, 0, 10), Ok(200));
        recorder.close_rows_until(1000 * MS, 7, 5 * MS);
        recorder.record(times(20, 20, 2500), Ok(200));
        recorder.finish(2600 * MS);
        assert_eq!(recorder.timeline.iter().map(|row| row.completed).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(recorder.timeline[0].in_flight, 7);
        assert!((recorder.timeline[0].waiting_us - 5000.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_never_sent_did_not_end() {
        let mut recorder = recorder(0, 1000);
        recorder.slices = Some(Slices::new(200, None));
        recorder.window.request_started(100 * MS);
        recorder.record(times(100, 100, 150), Ok(200));
        for due in 0..50 {
            recorder.record(times(due, 300, 300), Err(RequestFault::Unsent));
        }
        recorder.finish(1000 * MS);
        let slices = recorder.slices.as_mut().unwrap().take();
        assert_eq!(
            slices.iter().map(|slice| (slice.ok, slice.bad)).reduce(|a, b| (a.0 + b.0, a.1 + b.1)),
            Some((1, 0))
        );
        assert_eq!((recorder.window.ended(), recorder.faults[&RequestFault::Unsent].count()), (1, 50));
    }

    #[test]
    fn rare_statuses_share_a_histogram() {
        let mut recorder = recorder(0, 10_000);
        for status in 200..300 {
            recorder.record(times(0, 0, 1), Ok(status));
        }
        assert_eq!(recorder.statuses.len(), MAX_STATUSES + 1);
        assert_eq!(recorder.statuses[&0].count(), 84);
    }

    #[test]
    fn an_empty_distribution_is_all_zero() {
        assert_eq!(Latencies::new().summary(), Latency::default());
        assert_eq!(Latencies::new().curve(), []);
    }
}
