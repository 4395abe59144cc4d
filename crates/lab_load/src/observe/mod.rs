//! Process observation: resource usage of a process, sampled from outside while it works.
//!
//! A process is sampled together with its descendants, so that a master with workers counts as one.
//! Any peer is observed in the same way.
//!
//! Owns: reading `/proc` ([`process`]), the sampling thread, and the figures of a window. Does not
//! own: the processes.

pub mod callgrind;
pub mod compiler;
mod connections;
pub mod process;
pub mod profile;
pub mod prometheus;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use connections::AcceptedConnections;
use lab_analysis::statistics::CpuUse;
use lab_analysis::units::{nanos, ratio, seconds};
pub use process::ProcessTree;
pub use process::{ObserveError, Usage};
use serde::Serialize;

/// Time between two samples. It is short enough to show any stall that a user would notice, and
/// cheap: about 0.1 % of a core for a process with ten threads.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Largest number of samples per process. At this number every second sample is dropped, and the
/// interval doubles.
const MAX_SAMPLES: usize = 20_000;

/// A process to sample, with its descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedProcess {
    /// Name of the process in the report.
    pub name: String,
    /// Process ID of the root.
    pub pid: u32,
}

/// One sample of a process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Milliseconds since the start of the run.
    pub at_ms: u64,
    /// Usage until that time.
    #[serde(flatten)]
    pub usage: Usage,
}

/// All samples of one process.
#[derive(Debug, Clone)]
pub struct Series {
    /// The sampled process.
    pub watched: WatchedProcess,
    /// Samples in the order of time.
    pub samples: Vec<Sample>,
    /// `true` if the process ended while it was sampled.
    pub ended: bool,
}

/// Figures of a process over a window of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Observation {
    /// Name of the process in the report.
    pub name: String,
    /// Process ID of the root.
    pub pid: u32,
    /// Seconds between the first and the last sample in the window.
    pub seconds: f64,
    /// CPU seconds in user mode in the window.
    pub cpu_user_s: f64,
    /// CPU seconds in the kernel in the window.
    pub cpu_system_s: f64,
    /// Mean number of cores in use: user and system time over wall time. `None` if the window is
    /// too short.
    pub cpu_cores: Option<f64>,
    /// CPU microseconds (user and system) per request. `None` if no requests were counted, or if
    /// the window is too short.
    pub cpu_us_per_request: Option<f64>,
    /// Largest possible error of the CPU time in the window, in seconds.
    pub cpu_error_s: f64,
    /// Largest resident memory in bytes.
    pub rss_max_bytes: u64,
    /// Resident memory at the end of the window, in bytes.
    pub rss_last_bytes: u64,
    /// Largest number of threads.
    pub threads_max: u64,
    /// Voluntary context switches per second.
    pub voluntary_switches_per_s: f64,
    /// Involuntary context switches per second.
    pub involuntary_switches_per_s: f64,
    /// `true` if the process ended while it was sampled.
    pub ended: bool,
    /// Samples of the whole run.
    pub series: Vec<Sample>,
}

impl Series {
    /// Figures between two times since the start of the run. `rate` is the number of requests per
    /// second in that window.
    pub fn in_window(&self, from: Duration, until: Duration, rate: Option<f64>) -> Observation {
        let (from, until) = (nanos(from) / 1_000_000, nanos(until) / 1_000_000);
        let inside: Vec<&Sample> =
            self.samples.iter().filter(|sample| (from..=until).contains(&sample.at_ms)).collect();
        let (first, last) = match (inside.first(), inside.last()) {
            (Some(first), Some(last)) => (**first, **last),
            _ => (Sample { at_ms: 0, usage: Usage::default() }, Sample { at_ms: 0, usage: Usage::default() }),
        };
        let wall = seconds((last.at_ms - first.at_ms) * 1_000_000);
        let used = last.usage.since(&first.usage);
        let cpu = CpuUse {
            used_us: used.cpu_ns as f64 / 1e3,
            error_us: used.cpu_error_ns as f64 / 1e3,
            wall_us: wall * 1e6,
        };
        Observation {
            name: self.watched.name.clone(),
            pid: self.watched.pid,
            seconds: wall,
            cpu_user_s: used.user_ms as f64 / 1e3,
            cpu_system_s: used.system_ms as f64 / 1e3,
            cpu_cores: cpu.cores().map(|cores| ratio(cores, 1.0)),
            cpu_us_per_request: rate
                .filter(|rate| *rate > 0.0)
                .and_then(|rate| Some((cpu.exact_cores()? / rate * 1e8).round() / 1e2)),
            cpu_error_s: seconds(used.cpu_error_ns),
            rss_max_bytes: inside.iter().map(|sample| sample.usage.rss_bytes).max().unwrap_or(0),
            rss_last_bytes: last.usage.rss_bytes,
            threads_max: inside.iter().map(|sample| sample.usage.threads).max().unwrap_or(0),
            voluntary_switches_per_s: ratio(used.voluntary_switches as f64, wall),
            involuntary_switches_per_s: ratio(used.involuntary_switches as f64, wall),
            ended: self.ended,
            series: self.samples.clone(),
        }
    }
}

/// A thread that samples processes until it is stopped.
pub struct ProcessSampler {
    running: Option<(mpsc::Sender<()>, JoinHandle<Vec<Series>>)>,
}

impl ProcessSampler {
    /// Starts sampling; sample times are relative to `origin`.
    ///
    /// # Errors
    /// A process cannot be read at the start, or the thread cannot be started.
    pub fn start(
        watched: &[WatchedProcess],
        interval: Duration,
        origin: Instant,
    ) -> Result<Self, ObserveError> {
        if watched.is_empty() {
            return Ok(Self { running: None });
        }
        let mut sampler = Sampler::new(watched, interval, origin)?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
            while matches!(stopped.recv_timeout(sampler.wait()), Err(RecvTimeoutError::Timeout)) {
                sampler.sample();
            }
            sampler.sample();
            sampler.series
        });
        Ok(Self { running: Some((stop, thread.map_err(ObserveError::Thread)?)) })
    }

    /// Takes a last sample and stops the thread.
    pub fn stop(self) -> Vec<Series> {
        let Some((stop, thread)) = self.running else { return Vec::new() };
        drop(stop);
        thread.join().unwrap_or_default()
    }
}

struct Sampler {
    origin: Instant,
    interval: Duration,
    next: Instant,
    trees: Vec<ProcessTree>,
    series: Vec<Series>,
}

impl Sampler {
    fn new(watched: &[WatchedProcess], interval: Duration, origin: Instant) -> Result<Self, ObserveError> {
        let trees: Vec<ProcessTree> = watched.iter().map(|watched| ProcessTree::new(watched.pid)).collect();
        let series = watched.iter().map(|watched| Series {
            watched: watched.clone(),
            samples: Vec::new(),
            ended: false,
        });
        let mut sampler = Self { origin, interval, next: Instant::now(), trees, series: series.collect() };
        sampler.sample();
        match sampler.series.iter().find(|series| series.ended) {
            Some(missing) => Err(ObserveError::Missing(missing.watched.pid)),
            None => Ok(sampler),
        }
    }

    fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn sample(&mut self) {
        let now = Instant::now();
        // The next time is derived from the planned one, so that delays do not accumulate.
        self.next = (self.next + self.interval).max(now);
        for (tree, series) in self.trees.iter_mut().zip(&mut self.series) {
            // The time is taken per process, because the reads before it take time.
            let at_ms = nanos(self.origin.elapsed()) / 1_000_000;
            match tree.read() {
                Some(usage) if !series.ended => series.samples.push(Sample { at_ms, usage }),
                _ => series.ended = true,
            }
        }
        if self.series.iter().any(|series| series.samples.len() >= MAX_SAMPLES) {
            self.interval *= 2;
            for series in &mut self.series {
                let mut keep = false;
                series.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, user_ms: u64, rss_bytes: u64) -> Sample {
        let cpu = Usage { cpu_ns: user_ms * 1_000_000, cpu_error_ns: 4_000_000, ..Usage::default() };
        Sample { at_ms, usage: Usage { user_ms, rss_bytes, threads: 2, ..cpu } }
    }

    fn series(samples: Vec<Sample>) -> Series {
        Series { watched: WatchedProcess { name: "x".to_owned(), pid: 1 }, samples, ended: false }
    }

    #[test]
    fn figures_are_those_of_the_window() {
        let series =
            series(vec![sample(0, 0, 9), sample(1000, 100, 5), sample(2000, 600, 7), sample(3000, 5000, 8)]);
        let seen = series.in_window(Duration::from_secs(1), Duration::from_secs(2), Some(10_000.0));
        assert!((seen.cpu_user_s - 0.5).abs() < 1e-9);
        assert!((seen.cpu_cores.unwrap() - 0.5).abs() < 1e-9 && (seen.cpu_error_s - 0.004).abs() < 1e-9);
        assert_eq!(seen.cpu_us_per_request, Some(50.0));
        assert_eq!((seen.rss_max_bytes, seen.rss_last_bytes, seen.threads_max), (7, 7, 2));
    }

    #[test]
    fn a_window_too_short_for_the_clock_has_no_figure_of_cpu() {
        let over = |ms: u64, used_ms: u64| {
            let series = series(vec![sample(0, 0, 9), sample(ms, used_ms, 9)]);
            let seen = series.in_window(Duration::ZERO, Duration::from_millis(ms), Some(100.0));
            (seen.cpu_cores, seen.cpu_us_per_request)
        };
        assert_eq!(over(35, 5), (None, None), "5 ± 4 ms");
        assert_eq!(
            over(1000, 5),
            (Some(0.005), None),
            "few cores, as near as that; but not what a request takes"
        );
        assert_eq!(over(1000, 500), (Some(0.5), Some(5000.0)));
    }

    #[test]
    fn a_window_without_samples_is_zero() {
        let seen = series(vec![sample(0, 50, 9)]).in_window(
            Duration::from_secs(5),
            Duration::from_secs(6),
            Some(1.0),
        );
        assert!(seen.seconds.abs() < 1e-9 && seen.cpu_cores.is_none());
        assert_eq!(seen.rss_max_bytes, 0);
    }

    #[test]
    fn long_series_are_thinned_not_grown() {
        let watched = [WatchedProcess { name: "self".to_owned(), pid: std::process::id() }];
        let mut sampler = Sampler::new(&watched, INTERVAL, Instant::now()).unwrap();
        let filler = sampler.series[0].samples[0];
        sampler.series[0].samples.resize(MAX_SAMPLES - 1, filler);
        sampler.sample();
        assert_eq!(sampler.series[0].samples.len(), MAX_SAMPLES / 2);
        assert_eq!(sampler.interval, 2 * INTERVAL);
    }

    #[test]
    fn a_process_that_is_not_there_is_refused() {
        let watched = [WatchedProcess { name: "gone".to_owned(), pid: u32::MAX }];
        assert!(matches!(
            ProcessSampler::start(&watched, INTERVAL, Instant::now()),
            Err(ObserveError::Missing(u32::MAX))
        ));
    }
}
