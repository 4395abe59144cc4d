//! View: reads components, slices and rates of the measured window from a record, for the rules.
//!
//! Owns: reading parts of an iteration.
//! Does not own: conclusions. An unknown value is absent, never 0.

use crate::record::{Component, Iteration, Sample, Slice, Variant};
use crate::statistics::{CpuUse, Figure, figures, median, window};
use crate::units::truncated;

/// Share of the window that slices have to cover to represent it.
const MIN_COVERED_SHARE: f64 = 0.9;

/// A component in the measured window of an iteration.
pub(super) struct ComponentWindow<'a> {
    pub(super) iteration: &'a Iteration,
    pub(super) component: &'a Component,
    pub(super) first: &'a Sample,
    pub(super) last: &'a Sample,
}

/// Reads a counter of a sample; `None` where it was not observed.
pub(super) type Counter = fn(&Sample) -> Option<u64>;

/// CPU time so far, µs.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it is one of the counters, some of which are not always observed"
)]
pub(super) fn cpu(sample: &Sample) -> Option<u64> {
    Some(sample.cpu_so_far_us())
}

/// Context switches so far, voluntary and involuntary.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it is one of the counters, some of which are not always observed"
)]
pub(super) fn switches(sample: &Sample) -> Option<u64> {
    Some(sample.voluntary_switches + sample.involuntary_switches)
}

/// The component with this name in each iteration that sampled it at two different times in the
/// window.
pub(super) fn component_windows<'a>(variant: &'a Variant, name: &str) -> Vec<ComponentWindow<'a>> {
    let of = |iteration: &'a Iteration| {
        let component = iteration.components.iter().find(|component| component.name == name)?;
        let (first, last) = window(iteration, component)?;
        (last.at_ms > first.at_ms).then_some(ComponentWindow { iteration, component, first, last })
    };
    variant.iterations.iter().filter_map(of).collect()
}

impl ComponentWindow<'_> {
    /// Time between the first and the last sample, seconds.
    pub(super) fn seconds(&self) -> f64 {
        (self.last.at_ms - self.first.at_ms) as f64 / 1e3
    }

    /// Growth of a counter between the two samples; `None` where it was not observed.
    pub(super) fn growth(&self, counter: Counter) -> Option<f64> {
        Some(counter(self.last)?.saturating_sub(counter(self.first)?) as f64)
    }

    /// Cores in use on average; `None` when the samples are not exact enough.
    pub(super) fn cores(&self) -> Option<f64> {
        CpuUse::between(self.component, self.first, self.last)?.cores()
    }

    /// CPU per request, µs; `None` when the samples are not exact enough.
    pub(super) fn cpu_per_request(&self) -> Option<f64> {
        let used = CpuUse::between(self.component, self.first, self.last)?;
        used.exact_cores().and_then(|_| self.per_request(cpu))
    }

    /// Number of requests that ended between the two samples, from the rate in the window.
    pub(super) fn requests(&self) -> f64 {
        ended_per_s(self.iteration) * self.seconds()
    }

    /// Growth of a counter per request; `None` with less than one request.
    pub(super) fn per_request(&self, counter: Counter) -> Option<f64> {
        let requests = self.requests();
        (requests >= 1.0).then(|| self.growth(counter)).flatten().map(|grown| grown / requests)
    }

    /// Value of a counter at a moment between two samples, interpolated linearly; `None` outside of
    /// the samples.
    pub(super) fn value_at(&self, ms: f64, counter: Counter) -> Option<f64> {
        let samples = &self.component.samples;
        let after = samples.iter().position(|sample| sample.at_ms as f64 >= ms)?;
        let later = &samples[after];
        let earlier = if later.at_ms as f64 <= ms { later } else { samples.get(after.checked_sub(1)?)? };
        let (from, until) = (counter(earlier)? as f64, counter(later)? as f64);
        let wide = (later.at_ms - earlier.at_ms) as f64;
        let part = if wide > 0.0 { (ms - earlier.at_ms as f64) / wide } else { 0.0 };
        Some(from + (until - from) * part)
    }

    /// Samples inside the window.
    pub(super) fn samples(&self) -> impl Iterator<Item = &Sample> {
        let (from, until) = (self.first.at_ms, self.last.at_ms);
        self.component.samples.iter().filter(move |sample| (from..=until).contains(&sample.at_ms))
    }
}

/// Start and end of the measured window, ms since the start of the iteration.
pub(super) fn bounds(iteration: &Iteration) -> (f64, f64) {
    (iteration.warmup_s * 1e3, (iteration.warmup_s + iteration.seconds) * 1e3)
}

/// Slices that lie in the measured window.
pub(super) fn slices(iteration: &Iteration) -> Vec<&Slice> {
    let (from, until) = bounds(iteration);
    let inside =
        |slice: &&Slice| slice.at_ms >= truncated(from) && slice.at_ms + slice.ms <= truncated(until.ceil());
    iteration.timeline.iter().filter(inside).collect()
}

/// Requests per second that ended in the measured window. With open arrivals a response may end
/// long after the window. So the slices of the window are preferred to the count of requests that
/// were due in it.
pub(super) fn ended_per_s(iteration: &Iteration) -> f64 {
    let inside = slices(iteration);
    let seconds = inside.iter().map(|slice| slice.ms).sum::<u64>() as f64 / 1e3;
    if seconds >= MIN_COVERED_SHARE * iteration.seconds {
        return inside.iter().map(|slice| slice.ok + slice.bad).sum::<u64>() as f64 / seconds;
    }
    iteration.classes.iter().map(|class| class.count).sum::<u64>() as f64 / iteration.seconds
}

/// Median of a figure over the iterations that have it.
pub(super) fn median_figure(variant: &Variant, figure: &Figure) -> Option<f64> {
    median_of(&figures(variant, figure))
}

/// Median of the values; `None` without values.
pub(super) fn median_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| median(values))
}

/// Number of iterations in which something has to be seen to hold for the variant: half of them.
pub(super) fn majority(iterations: usize) -> usize {
    iterations.div_ceil(2).max(1)
}

/// Cores that servers can use: those of the first machine, or fewer where its control group has a
/// limit. `None` when unknown.
pub(super) fn machine_cores(record: &crate::record::Record) -> Option<f64> {
    let machine = record.run.machines.first()?;
    let limit = machine.cgroup.as_ref().and_then(|group| group.cpu_limit_cores);
    Some(limit.unwrap_or(f64::MAX).min(f64::from(machine.cores)))
}
