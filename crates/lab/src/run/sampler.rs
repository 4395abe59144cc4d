//! Looks at the components of a topology while load goes through it.
//!
//! Owns: the threads that look, every 100 ms at programs that run here (`/proc`, control groups, the kernel's table of connections), twice a
//! second at metrics of what runs elsewhere. Does not own: what the looks mean. Counters of a component only grow: a look that says
//! less than the one before it (a thread with its switches is gone) keeps what was.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::view::View;
use crate::cgroup;
use crate::fetch::Client;
use crate::load::{Protocol, Target, Trust};
use crate::observe::process::Tree;
use crate::observe::{Accepted, INTERVAL, prometheus};
use crate::record::{Component, Sample};
use crate::topology::{Metrics, Root, Started};
use crate::units::nanos;

/// Between two questions for metrics, and longest wait for an answer.
const SCRAPE: Duration = Duration::from_millis(500);
const ANSWER: Duration = Duration::from_secs(2);
/// Most bytes of metrics: a kubelet with hundreds of containers says some megabytes.
const MOST_METRICS: usize = 64 << 20;
/// Most looks at a component that are kept; then every second one is dropped, and there are half as many from then on.
const MOST: usize = 20_000;

/// Threads that look until they are stopped.
pub(super) struct Sampler {
    stop: Vec<mpsc::Sender<()>>,
    threads: Vec<JoinHandle<Vec<Component>>>,
    order: Vec<String>,
}

impl Sampler {
    /// Begins to look; times count from `origin`.
    pub(super) fn start(components: Vec<Started>, origin: Instant, view: &View) -> Self {
        let order = components.iter().map(|component| component.name.clone()).collect();
        let (here, elsewhere): (Vec<Started>, Vec<Started>) =
            components.into_iter().partition(|component| component.root.is_some());
        let mut sampler = Self { stop: Vec::new(), threads: Vec::new(), order };
        sampler.spawn("watch", INTERVAL, origin, Box::new(Local::new(here, view.clone())));
        for component in elsewhere {
            if let Some(metrics) = component.metrics {
                let remote = Remote::new(component.name, metrics, view.clone());
                sampler.spawn("scrape", SCRAPE, origin, Box::new(remote));
            }
        }
        sampler
    }

    /// A thread that looks each `interval`.
    fn spawn(&mut self, name: &str, interval: Duration, origin: Instant, mut looking: Box<dyn Looking>) {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut next = Instant::now();
            loop {
                looking.look(at(origin));
                // From the time that was planned, so that intervals do not add up their own delays.
                next = (next + interval).max(Instant::now());
                let wait = next.saturating_duration_since(Instant::now());
                if !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
                    looking.look(at(origin));
                    return looking.seen();
                }
            }
        });
        // A machine that gives no thread to watch with gives figures without CPU, and the report shows none.
        if let Ok(thread) = thread {
            self.stop.push(stop);
            self.threads.push(thread);
        }
    }

    /// Takes a last look and ends; the components in the order of the topology.
    pub(super) fn stop(self) -> Vec<Component> {
        drop(self.stop);
        let mut seen: Vec<Component> =
            self.threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
        seen.sort_by_key(|component| self.order.iter().position(|name| *name == component.name));
        seen
    }
}

fn at(origin: Instant) -> u64 {
    nanos(origin.elapsed()) / 1_000_000
}

/// Who looks, in a thread of its own.
trait Looking: Send {
    fn look(&mut self, at_ms: u64);
    fn seen(self: Box<Self>) -> Vec<Component>;
}

fn component(name: String) -> Component {
    Component { name, cpu_limit_cores: None, memory_limit_bytes: None, samples: Vec::new(), ended: false }
}

/// Adds a look; counters that are less than before stay as they were.
fn add(samples: &mut Vec<Sample>, mut sample: Sample) {
    if let Some(before) = samples.last() {
        let most = |now: Option<u64>, before: Option<u64>| now.max(before);
        sample.user_ms = sample.user_ms.max(before.user_ms);
        sample.system_ms = sample.system_ms.max(before.system_ms);
        sample.voluntary_switches = sample.voluntary_switches.max(before.voluntary_switches);
        sample.involuntary_switches = sample.involuntary_switches.max(before.involuntary_switches);
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

/// A program that runs here.
struct Watched {
    root: Root,
    tree: Tree,
    ports: Vec<u16>,
    counters: Option<PathBuf>,
    about: Component,
}

/// Programs that run here.
struct Local {
    programs: Vec<Watched>,
    accepted: Accepted,
    view: View,
    looks: u64,
    /// Only each of so many looks is taken.
    every: u64,
}

impl Local {
    fn new(components: Vec<Started>, view: View) -> Self {
        let accepted = Accepted::at(components.iter().flat_map(|component| component.ports.clone()));
        let program = |started: Started| {
            let root = started.root?;
            let about = Component {
                cpu_limit_cores: started.limits.cpu_millicores.map(|millicores| millicores as f64 / 1e3),
                memory_limit_bytes: started.limits.memory_bytes,
                ..component(started.name)
            };
            let tree = Tree::new(root.pid());
            Some(Watched { root, tree, ports: started.ports, counters: started.counters, about })
        };
        let programs = components.into_iter().filter_map(program).collect();
        Self { programs, accepted, view, looks: 0, every: 1 }
    }
}

impl Looking for Local {
    fn look(&mut self, at_ms: u64) {
        self.looks += 1;
        if !self.looks.is_multiple_of(self.every) {
            return;
        }
        self.accepted.look();
        for Watched { root, tree, ports, counters, about } in &mut self.programs {
            if tree.root() != root.pid() {
                // It was started anew.
                tree.follow(root.pid());
                about.ended = false;
            }
            let Some(usage) = tree.read().filter(|_| !about.ended) else {
                about.ended = true;
                continue;
            };
            let throttle = counters.as_deref().and_then(cgroup::throttle);
            let sample = Sample {
                at_ms,
                user_ms: usage.user_ms,
                system_ms: usage.system_ms,
                rss_bytes: usage.rss_bytes,
                threads: usage.threads,
                voluntary_switches: usage.voluntary_switches,
                involuntary_switches: usage.involuntary_switches,
                connections_opened: self.accepted.count(ports),
                periods: throttle.map(|throttle| throttle.periods),
                throttled_periods: throttle.map(|throttle| throttle.throttled_periods),
                throttled_ms: throttle.map(|throttle| throttle.throttled_ms),
                ..Sample::default()
            };
            add(&mut about.samples, sample);
        }
        self.view.components(self.programs.iter().map(|watched| &watched.about));
        if self.programs.iter().any(|watched| watched.about.samples.len() >= MOST) {
            self.every *= 2;
            for watched in &mut self.programs {
                let mut keep = false;
                watched.about.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
    }

    fn seen(self: Box<Self>) -> Vec<Component> {
        self.programs.into_iter().map(|watched| watched.about).collect()
    }
}

/// Something that runs elsewhere and tells its figures.
struct Remote {
    about: Component,
    metrics: Metrics,
    client: Option<Client>,
    token: Option<String>,
    view: View,
}

impl Remote {
    fn new(name: String, metrics: Metrics, view: View) -> Self {
        let trust = match &metrics.ca {
            _ if metrics.insecure => Some(Trust::Anything),
            ca => ca.clone().map(Trust::Authorities),
        };
        let target = Target::new(&metrics.url, Protocol::Http1, trust.as_ref(), None, None).ok();
        let client = target.and_then(|target| Client::new(target, MOST_METRICS).ok());
        let token = metrics.token_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let token = token.map(|token| token.trim().to_owned());
        Self { about: component(name), metrics, client, token, view }
    }
}

impl Looking for Remote {
    fn look(&mut self, at_ms: u64) {
        let Some(client) = &mut self.client else { return };
        // One answer that is missing is a gap, not the end: the next one counts on.
        let Ok(answer) = client.get(self.token.as_deref(), ANSWER) else { return };
        if answer.status != 200 {
            return;
        }
        let text = String::from_utf8_lossy(&answer.content);
        let seen = prometheus::seen(&text, &self.metrics.labels, self.metrics.connections.as_deref(), at_ms);
        if let Some(sample) = seen.sample {
            add(&mut self.about.samples, sample);
        }
        self.about.cpu_limit_cores = seen.cpu_limit_cores.or(self.about.cpu_limit_cores);
        self.about.memory_limit_bytes = seen.memory_limit_bytes.or(self.about.memory_limit_bytes);
        self.view.components([&self.about]);
    }

    fn seen(self: Box<Self>) -> Vec<Component> {
        vec![self.about]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            add(&mut samples, sample);
        }
        let columns: Vec<_> =
            samples.iter().map(|s| (s.user_ms, s.voluntary_switches, s.periods, s.rss_bytes)).collect();
        assert_eq!(columns, [(5, 9, Some(3), 10), (6, 9, Some(3), 9), (7, 9, Some(4), 8)]);
    }
}
