//! Slices: the timeline of a run in slices shorter than a second.
//!
//! Memory is bounded: at the maximum number of slices, each two are joined into one and the
//! following slices are twice as long.
//!
//! Owns: throughput and latency per slice, in the form that a record stores. Does not own: the
//! figures of the run.

use lab_analysis::record::Slice;
use lab_analysis::units::micros;

use super::Latencies;

/// Largest number of slices in memory. A record stores fewer.
const MAX_SLICES: usize = 8192;
/// Nanoseconds per millisecond.
const NANOS_PER_MS: u64 = 1_000_000;

/// Callback that receives each closed slice.
pub(crate) type SliceCallback = Box<dyn Fn(&Slice)>;

/// Slices of a run; the last one is still open.
pub struct Slices {
    /// Width of a slice in nanoseconds.
    width: u64,
    /// Start of the open slice, nanoseconds since the start of the run.
    start: u64,
    ok: u64,
    failed: u64,
    latencies: Latencies,
    closed: Vec<Slice>,
    on_slice: Option<SliceCallback>,
}

impl Slices {
    /// Creates slices of `width_ms` milliseconds (at least 1). `on_slice` is called with each
    /// closed slice.
    pub fn new(width_ms: u64, on_slice: Option<SliceCallback>) -> Self {
        Self {
            width: width_ms.max(1) * NANOS_PER_MS,
            start: 0,
            ok: 0,
            failed: 0,
            latencies: Latencies::new(),
            // Allocated for the maximum: a vector that grows during the run is copied, and takes
            // twice the memory meanwhile.
            closed: Vec::with_capacity(MAX_SLICES),
            on_slice,
        }
    }

    /// Width of a slice in nanoseconds.
    pub(crate) fn width(&self) -> u64 {
        self.width
    }

    /// Records a request that ended at `finished`. `latency` is set, in nanoseconds, if it
    /// succeeded.
    pub(crate) fn record(&mut self, finished: u64, latency: Option<u64>) {
        self.close_until(finished);
        match latency {
            Some(latency) => {
                self.ok += 1;
                self.latencies.record(latency);
            }
            None => self.failed += 1,
        }
    }

    /// Closes the slices that ended before `now`.
    pub(crate) fn close_until(&mut self, now: u64) {
        while now >= self.start.saturating_add(self.width) {
            self.close(self.width);
        }
    }

    /// Closes the open slice at the end of the run, if it is not empty.
    pub(crate) fn finish(&mut self, now: u64) {
        self.close_until(now);
        if self.ok + self.failed == 0 {
            return;
        }
        let length = (now - self.start).clamp(NANOS_PER_MS, self.width);
        self.close(length);
        // A few responses within some milliseconds give no meaningful throughput: join them with
        // the slice before.
        let brief = length < self.width / 2 && self.closed.len() > 1;
        if brief {
            let last = self.closed.split_off(self.closed.len() - 2);
            self.closed.push(Slice::merged(&last));
        }
    }

    /// Takes all closed slices.
    pub(crate) fn take(&mut self) -> Vec<Slice> {
        let mut closed = std::mem::take(&mut self.closed);
        closed.shrink_to_fit();
        closed
    }

    fn close(&mut self, length: u64) {
        let at = |share| (self.ok > 0).then(|| micros(self.latencies.quantile(share)));
        let slice = Slice {
            at_ms: self.start / NANOS_PER_MS,
            ms: length.div_ceil(NANOS_PER_MS),
            ok: self.ok,
            bad: self.failed,
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: (self.ok > 0).then(|| micros(self.latencies.max())),
        };
        if let Some(on_slice) = &self.on_slice {
            on_slice(&slice);
        }
        self.closed.push(slice);
        if self.ok > 0 {
            self.latencies.clear();
        }
        (self.ok, self.failed) = (0, 0);
        self.start += self.width;
        // [`MOST`] is even, so the open slice begins where a slice of double width begins.
        if self.closed.len() == MAX_SLICES {
            let joined: Vec<Slice> = self.closed.chunks(2).map(Slice::merged).collect();
            self.closed.clear();
            self.closed.extend(joined);
            self.width *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn requests_count_where_they_ended_and_silence_has_slices() {
        let count = Rc::new(Cell::new(0));
        let counter = Rc::clone(&count);
        let mut slices = Slices::new(200, Some(Box::new(move |_| counter.set(counter.get() + 1))));
        slices.record(10 * NANOS_PER_MS, Some(5 * NANOS_PER_MS));
        slices.record(199 * NANOS_PER_MS, None);
        slices.record(650 * NANOS_PER_MS, Some(7 * NANOS_PER_MS));
        assert_eq!(count.get(), 3, "whoever watches hears of the silence");
        slices.finish(760 * NANOS_PER_MS);
        let all = slices.take();
        assert_eq!(
            all.iter().map(|slice| (slice.at_ms, slice.ms, slice.ok, slice.bad)).collect::<Vec<_>>(),
            [(0, 200, 1, 1), (200, 200, 0, 0), (400, 200, 0, 0), (600, 160, 1, 0)]
        );
        assert_eq!(all[1].p50_us, None);
        assert!(
            (all[3].p99_us.unwrap() - 7000.0).abs() < 10.0 && (all[0].max_us.unwrap() - 5000.0).abs() < 10.0
        );
    }

    #[test]
    fn what_is_left_in_a_brief_end_is_no_burst() {
        let mut slices = Slices::new(100, None);
        for at in [10, 50, 90, 101, 102] {
            slices.record(at * NANOS_PER_MS, Some(NANOS_PER_MS));
        }
        slices.finish(103 * NANOS_PER_MS);
        let all = slices.take();
        assert_eq!(
            all.iter().map(|slice| (slice.at_ms, slice.ms, slice.ok)).collect::<Vec<_>>(),
            [(0, 103, 5)]
        );
        assert_eq!(all[0].p50_us, None, "percentiles do not add up");
    }

    #[test]
    fn long_runs_have_longer_slices_and_lose_no_request() {
        let mut slices = Slices::new(1, None);
        for at in 0..20_000 {
            slices.record(at * NANOS_PER_MS, Some(NANOS_PER_MS));
        }
        slices.finish(20_000 * NANOS_PER_MS);
        let all = slices.take();
        assert!(all.len() < MAX_SLICES, "{}", all.len());
        assert_eq!(all.iter().map(|slice| slice.ok).sum::<u64>(), 20_000);
        assert!(all.windows(2).all(|pair| pair[0].at_ms + pair[0].ms <= pair[1].at_ms));
    }
}
