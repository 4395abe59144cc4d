//! Sampler: samples the components of a topology while load lasts.
//!
//! Every 100 ms it reads local programs through `/proc`, control groups and the kernel's connection
//! table. Twice a second it scrapes the metrics of remote components, and the counters that local
//! programs export.
//!
//! Counters of a component never decrease. If an external reading is lower than the one before it,
//! because a thread has ended with its counts, the earlier value is kept. Counters that a program
//! exports continue from their last value after a restart ([`prometheus::CounterTotals`]).
//!
//! Owns: the sampling threads. Does not own: the meaning of the samples.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab_analysis::record::{Component, Sample};
use lab_analysis::units::{nanos, truncated};
use lab_load::cgroup;
use lab_load::fetch::BlockingClient;
use lab_load::load::{Protocol, Target, Trust};
use lab_load::observe::process::ProcessTree;
use lab_load::observe::{AcceptedConnections, INTERVAL, prometheus};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::view::View;
use crate::topology::{ComponentInfo, Metrics, RootPid};

/// Time between two scrapes, and longest wait for a response.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(500);
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest metrics response in bytes. A kubelet with hundreds of containers sends some megabytes.
const MAX_METRICS_BYTES: usize = 64 << 20;
/// Largest number of samples per component. At this number every second sample is dropped, and the
/// interval doubles. A record stores fewer still. The bound also keeps the memory of the lab
/// constant during a measurement.
const MAX_SAMPLES: usize = 2000;

/// Sampling threads that run until they are stopped.
pub(super) struct Sampler {
    stop: Vec<mpsc::Sender<()>>,
    threads: Vec<JoinHandle<Vec<Component>>>,
    /// Threads that scrape programs which are also sampled locally.
    local_scrapes: Vec<JoinHandle<Vec<Component>>>,
    order: Vec<String>,
    /// Cores of the sampling threads. The thread that starts them may be bound to the generator's
    /// cores.
    cores: Option<CpuSet>,
}

impl Sampler {
    /// Scrapes all components with metrics once before the load, so that events at its start are
    /// counted.
    pub(super) fn prepare(components: Vec<ComponentInfo>) -> PreparedSampler {
        let metrics = components.iter().filter_map(|component| {
            let metrics = component.metrics.clone()?;
            let mut scraper = Scraper::new(&component.name, metrics);
            scraper.was_standby = component.root.as_ref().is_some_and(|root| root.pid().is_none());
            if !scraper.was_standby {
                let _ = scraper.scrape(0);
            }
            Some((component.name.clone(), scraper))
        });
        let scrapers = metrics.collect();
        PreparedSampler { components, scrapers, cores: sched_getaffinity(None).ok() }
    }

    /// Starts sampling; times are relative to `origin`.
    pub(super) fn start(prepared: PreparedSampler, origin: Instant, view: &View) -> Self {
        let PreparedSampler { components, mut scrapers, cores } = prepared;
        let order = components.iter().map(|component| component.name.clone()).collect();
        let (here, elsewhere): (Vec<ComponentInfo>, Vec<ComponentInfo>) =
            components.into_iter().partition(|component| component.root.is_some());
        let mut sampler =
            Self { stop: Vec::new(), threads: Vec::new(), local_scrapes: Vec::new(), order, cores };
        for scraper in here.iter().filter_map(|component| scrapers.remove(&component.name)) {
            let thread = sampler.spawn("ask", SCRAPE_INTERVAL, origin, Box::new(scraper));
            sampler.local_scrapes.extend(thread);
        }
        let local = sampler.spawn("watch", INTERVAL, origin, Box::new(LocalProbe::new(here, view.clone())));
        sampler.threads.extend(local);
        for scraper in elsewhere.iter().filter_map(|component| scrapers.remove(&component.name)) {
            let remote = RemoteProbe { scraper, stamp: None, view: view.clone() };
            let remote = sampler.spawn("scrape", SCRAPE_INTERVAL, origin, Box::new(remote));
            sampler.threads.extend(remote);
        }
        sampler
    }

    /// Starts a thread that samples at each `interval`.
    fn spawn(
        &mut self,
        name: &str,
        interval: Duration,
        origin: Instant,
        mut looking: Box<dyn Probe>,
    ) -> Option<JoinHandle<Vec<Component>>> {
        let (stop, stopped) = mpsc::channel();
        let cores = self.cores;
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // If the binding is refused, the samples take some time from the generator's cores.
            let _ = cores.map(|cores| sched_setaffinity(None, &cores));
            let mut next = Instant::now();
            loop {
                looking.sample(origin);
                // The next time is derived from the planned one, so that delays do not accumulate.
                next = (next + interval).max(Instant::now());
                let wait = next.saturating_duration_since(Instant::now());
                if !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
                    looking.sample(origin);
                    return looking.into_components();
                }
            }
        });
        // If no thread can be started, the report has no CPU figures; the run continues.
        let thread = thread.ok()?;
        self.stop.push(stop);
        Some(thread)
    }

    /// Takes a last sample and ends. Returns the components in the order of the topology.
    pub(super) fn stop(self) -> Vec<Component> {
        drop(self.stop);
        let all = |threads: Vec<JoinHandle<Vec<Component>>>| -> Vec<Component> {
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        };
        let mut components = all(self.threads);
        for scraped in all(self.local_scrapes) {
            if let Some(component) = components.iter_mut().find(|component| component.name == scraped.name) {
                merge_scraped(&mut component.samples, &scraped.samples);
                component.counters = scraped.counters;
            }
        }
        components.sort_by_key(|component| self.order.iter().position(|name| *name == component.name));
        components
    }
}

/// Components to sample, and the first scrape of those with metrics.
pub(super) struct PreparedSampler {
    components: Vec<ComponentInfo>,
    scrapers: BTreeMap<String, Scraper>,
    cores: Option<CpuSet>,
}

fn at(origin: Instant) -> u64 {
    nanos(origin.elapsed()) / 1_000_000
}

/// Source of samples, which runs in a thread of its own.
trait Probe: Send {
    /// Takes a sample now; times are relative to `origin`.
    fn sample(&mut self, origin: Instant);
    fn into_components(self: Box<Self>) -> Vec<Component>;
}

fn component(name: String) -> Component {
    Component {
        name,
        cpu_limit_cores: None,
        memory_limit_bytes: None,
        cpu_error_us: None,
        samples: Vec::new(),
        counters: BTreeMap::new(),
        ended: false,
    }
}

/// Appends a sample; counters that are lower than before keep their earlier value.
fn push_sample(samples: &mut Vec<Sample>, mut sample: Sample) {
    if let Some(before) = samples.last() {
        let most = |now: Option<u64>, before: Option<u64>| now.max(before);
        sample.user_ms = sample.user_ms.max(before.user_ms);
        sample.system_ms = sample.system_ms.max(before.system_ms);
        sample.cpu_us = most(sample.cpu_us, before.cpu_us);
        sample.voluntary_switches = sample.voluntary_switches.max(before.voluntary_switches);
        sample.involuntary_switches = sample.involuntary_switches.max(before.involuntary_switches);
        sample.core_wait_us = most(sample.core_wait_us, before.core_wait_us);
        sample.connections_opened = most(sample.connections_opened, before.connections_opened);
        sample.periods = most(sample.periods, before.periods);
        sample.throttled_periods = most(sample.throttled_periods, before.throttled_periods);
        sample.throttled_ms = most(sample.throttled_ms, before.throttled_ms);
        sample.calls_received = most(sample.calls_received, before.calls_received);
        sample.tls_handshakes = most(sample.tls_handshakes, before.tls_handshakes);
        sample.oom_kills = most(sample.oom_kills, before.oom_kills);
    }
    samples.push(sample);
}

/// Adds the exported counters of a program to each of its samples. Between two scrapes the counters
/// are interpolated linearly. Before the first and after the last scrape its value is used.
fn merge_scraped(samples: &mut [Sample], scraped: &[Sample]) {
    let course = |counter: fn(&Sample) -> Option<u64>| -> Vec<(u64, u64)> {
        scraped.iter().filter_map(|answer| Some((answer.at_ms, counter(answer)?))).collect()
    };
    let connections = course(|answer| answer.connections_opened);
    let calls = course(|answer| answer.calls_received);
    let handshakes = course(|answer| answer.tls_handshakes);
    for sample in samples {
        sample.connections_opened = interpolate(&connections, sample.at_ms).or(sample.connections_opened);
        sample.calls_received = interpolate(&calls, sample.at_ms);
        sample.tls_handshakes = interpolate(&handshakes, sample.at_ms);
    }
}

/// Value of a counter at a time, interpolated between known values.
fn interpolate(course: &[(u64, u64)], at_ms: u64) -> Option<u64> {
    let after = course.partition_point(|(at, _)| *at <= at_ms);
    let Some(later) = course.get(after) else { return course.last().map(|(_, count)| *count) };
    let Some(earlier) = after.checked_sub(1).map(|before| course[before]) else { return Some(later.1) };
    let part = (at_ms - earlier.0) as f64 / (later.0 - earlier.0) as f64;
    Some(earlier.1 + truncated((later.1 - earlier.1) as f64 * part))
}

/// A local program and its samples.
struct LocalProgram {
    root: RootPid,
    tree: ProcessTree,
    ports: Vec<u16>,
    /// File with the throttling counters of its CPU limit.
    counters: Option<PathBuf>,
    /// File with the counter of processes that the kernel killed for lack of memory.
    memory_events: Option<PathBuf>,
    component: Component,
}

/// Samples all local programs.
struct LocalProbe {
    programs: Vec<LocalProgram>,
    accepted: AcceptedConnections,
    view: View,
    tick: u64,
    /// Only every n-th tick is sampled; n doubles when the samples are thinned.
    every: u64,
}

impl LocalProbe {
    fn new(components: Vec<ComponentInfo>, view: View) -> Self {
        let accepted =
            AcceptedConnections::at(components.iter().flat_map(|component| component.ports.clone()));
        let program = |started: ComponentInfo| {
            let root = started.root?;
            let about = Component {
                cpu_limit_cores: started.limits.cpu_millicores.map(|millicores| millicores as f64 / 1e3),
                memory_limit_bytes: started.limits.memory_bytes,
                ..component(started.name)
            };
            Some(LocalProgram {
                tree: (if started.root_only { ProcessTree::new_root_only } else { ProcessTree::new })(
                    root.pid().unwrap_or(0),
                ),
                root,
                ports: started.ports,
                counters: started.counters,
                memory_events: started.memory_events,
                component: about,
            })
        };
        let programs = components.into_iter().filter_map(program).collect();
        Self { programs, accepted, view, tick: 0, every: 1 }
    }
}

impl Probe for LocalProbe {
    fn sample(&mut self, origin: Instant) {
        self.tick += 1;
        if !self.tick.is_multiple_of(self.every) {
            return;
        }
        self.accepted.update();
        for program in &mut self.programs {
            let about = &mut program.component;
            // A standby component is not sampled before its start.
            let Some(root) = program.root.pid() else { continue };
            if program.tree.root() != root {
                // A new process ID means that the component was restarted.
                program.tree.set_root(root);
                about.ended = false;
            }
            // The time is taken per program, because reads before it (such as a long connection
            // table) take time.
            let at_ms = at(origin);
            let Some(usage) = program.tree.read().filter(|_| !about.ended) else {
                about.ended = true;
                continue;
            };
            about.cpu_error_us = about.cpu_error_us.max(Some(usage.cpu_error_ns.div_ceil(1000)));
            let throttle = program.counters.as_deref().and_then(cgroup::throttle);
            let sample = Sample {
                at_ms,
                user_ms: usage.user_ms,
                system_ms: usage.system_ms,
                cpu_us: Some(usage.cpu_ns / 1000),
                rss_bytes: usage.rss_bytes,
                threads: usage.threads,
                voluntary_switches: usage.voluntary_switches,
                involuntary_switches: usage.involuntary_switches,
                core_wait_us: usage.core_wait_ns.map(|ns| ns / 1000),
                connections_opened: self.accepted.count(&program.ports),
                swap_bytes: Some(usage.swap_bytes),
                oom_kills: program.memory_events.as_deref().and_then(cgroup::oom_kills),
                periods: throttle.map(|throttle| throttle.periods),
                throttled_periods: throttle.map(|throttle| throttle.throttled_periods),
                throttled_ms: throttle.map(|throttle| throttle.throttled_ms),
                ..Sample::default()
            };
            push_sample(&mut about.samples, sample);
        }
        self.view.update_components(self.programs.iter().map(|program| &program.component));
        if self.programs.iter().any(|program| program.component.samples.len() >= MAX_SAMPLES) {
            self.every *= 2;
            for program in &mut self.programs {
                let mut keep = false;
                program.component.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
    }

    fn into_components(self: Box<Self>) -> Vec<Component> {
        self.programs.into_iter().map(|program| program.component).collect()
    }
}

/// Scrapes the metrics of one component.
struct Scraper {
    about: Component,
    metrics: Metrics,
    client: Option<BlockingClient>,
    token: Option<String>,
    /// `true` if the component did not run at the first scrape, so that its counters begin at 0.
    was_standby: bool,
    /// Counters over all restarts of the program.
    totals: prometheus::CounterTotals,
    /// Value of each counter at the first scrape.
    baseline: BTreeMap<String, u64>,
}

impl Scraper {
    fn new(name: &str, metrics: Metrics) -> Self {
        let trust = match &metrics.ca {
            _ if metrics.insecure => Some(Trust::AnyCertificate),
            ca => ca.clone().map(Trust::CertificateFile),
        };
        let target = Target::new(&metrics.url, Protocol::Http1, trust.as_ref(), None, None).ok();
        let client = target.and_then(|target| BlockingClient::new(target, MAX_METRICS_BYTES).ok());
        let token = metrics.token_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let token = token.map(|token| token.trim().to_owned());
        let about = component(name.to_owned());
        let totals = prometheus::CounterTotals::default();
        Self { about, metrics, client, token, was_standby: false, totals, baseline: BTreeMap::new() }
    }

    /// Updates the increase of the counters since the first scrape.
    fn update_counters(&mut self, text: &str) {
        for (name, series) in &self.metrics.counters {
            let Some(now) = self.totals.counter(text, &self.metrics.labels, series) else { continue };
            let first = *self.baseline.entry(name.clone()).or_insert(if self.was_standby { 0 } else { now });
            self.about.counters.insert(name.clone(), now.saturating_sub(first));
        }
    }

    /// Scrapes the metrics once; `None` if there is no valid response. A missing response leaves a
    /// gap; the next one continues the counters.
    fn scrape(&mut self, at_ms: u64) -> Option<prometheus::ScrapedMetrics> {
        let answer = self.client.as_mut()?.get(self.token.as_deref(), SCRAPE_TIMEOUT).ok()?;
        let text = String::from_utf8_lossy(&answer.content);
        if answer.status == 200 {
            self.update_counters(&text);
        }
        let named = prometheus::CounterNames {
            connections: self.metrics.connections.as_deref(),
            calls: self.metrics.calls.as_deref(),
            handshakes: self.metrics.handshakes.as_deref(),
        };
        let totals = &mut self.totals;
        (answer.status == 200)
            .then(|| prometheus::parse_metrics(&text, &self.metrics.labels, named, at_ms, totals))
    }
}

/// A local program: its usage is sampled from outside, only its counters are scraped.
impl Probe for Scraper {
    fn sample(&mut self, origin: Instant) {
        if let Some(scraped) = self.scrape(at(origin)) {
            push_sample(&mut self.about.samples, scraped.counters);
        }
    }

    fn into_components(self: Box<Self>) -> Vec<Component> {
        vec![self.about]
    }
}

/// A remote component, for which all figures are scraped.
struct RemoteProbe {
    scraper: Scraper,
    /// Timestamp of the last scraped sample.
    stamp: Option<i64>,
    view: View,
}

impl Probe for RemoteProbe {
    fn sample(&mut self, origin: Instant) {
        let Some(scraped) = self.scraper.scrape(at(origin)) else { return };
        let about = &mut self.scraper.about;
        // A sample with the same timestamp is a repetition. Recording it would look like a period
        // without usage.
        let again = scraped.stamp.is_some() && scraped.stamp == self.stamp;
        self.stamp = scraped.stamp;
        if let Some(sample) = scraped.sample.filter(|_| !again) {
            push_sample(&mut about.samples, sample);
        }
        about.cpu_limit_cores = scraped.cpu_limit_cores.or(about.cpu_limit_cores);
        about.memory_limit_bytes = scraped.memory_limit_bytes.or(about.memory_limit_bytes);
        self.view.update_components([&*about]);
    }

    fn into_components(self: Box<Self>) -> Vec<Component> {
        vec![self.scraper.about]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_from_the_first_answer_or_from_the_start_of_who_stood_by() {
        let metrics = Metrics {
            url: "http://127.0.0.1:1/".to_owned(),
            counters: [("seen".to_owned(), "seen_total".to_owned())].into(),
            ..Metrics::default()
        };
        let grown = |stood_by| {
            let mut scraper = Scraper { was_standby: stood_by, ..Scraper::new("a", metrics.clone()) };
            // After the third response the program was restarted.
            for text in ["seen_total 7", "seen_total 9", "other_total 1", "seen_total 2"] {
                scraper.update_counters(text);
            }
            scraper.about.counters["seen"]
        };
        assert_eq!((grown(false), grown(true)), (4, 11));
    }

    #[test]
    fn what_a_program_tells_is_put_beside_each_look() {
        let scraped = [(100, 10), (600, 60), (1100, 60)].map(|(at_ms, calls)| Sample {
            at_ms,
            calls_received: Some(calls),
            ..Sample::default()
        });
        let look = |at_ms| Sample { at_ms, connections_opened: Some(3), ..Sample::default() };
        let mut samples = [0, 100, 350, 600, 900, 1200].map(look);
        merge_scraped(&mut samples, &scraped);
        let calls = samples.clone().map(|sample| sample.calls_received.unwrap());
        assert_eq!(calls, [10, 10, 35, 60, 60, 60]);
        assert!(samples.iter().all(|sample| sample.tls_handshakes.is_none()));
        assert!(samples.iter().all(|sample| sample.connections_opened == Some(3)), "seen from outside");
    }

    #[test]
    fn counters_of_a_component_only_grow() {
        let look = |at_ms, user_ms, voluntary_switches, periods| Sample {
            at_ms,
            user_ms,
            voluntary_switches,
            periods,
            rss_bytes: 10 - at_ms,
            ..Sample::default()
        };
        let mut samples = Vec::new();
        for sample in [look(0, 5, 9, Some(3)), look(1, 6, 4, None), look(2, 7, 5, Some(4))] {
            push_sample(&mut samples, sample);
        }
        let columns: Vec<_> =
            samples.iter().map(|s| (s.user_ms, s.voluntary_switches, s.periods, s.rss_bytes)).collect();
        assert_eq!(columns, [(5, 9, Some(3), 10), (6, 9, Some(3), 9), (7, 9, Some(4), 8)]);
    }
}
