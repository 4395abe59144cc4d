//! Profiler: where the threads of processes spend their time, on a core and off it.
//!
//! Owns: which sources are used, and when each one records. Does not own: the processes, the load,
//! and the shape of a profile ([`lab_analysis::record::ProfileRound`]).
//!
//! 1. Under load, `perf record` writes stacks into files, and threads are sampled ([`threads`]).
//! 2. Right after the load, threads are sampled again. A thread that still waits then does not wait
//!    because of a request.
//! 3. `perf script` prints the files, and [`script`] folds its text into stacks.
//!
//! Where `perf` is missing or not permitted, off-CPU stacks come from the sampled threads, and the
//! profile says why.

mod perf;
mod script;
mod system_calls;
mod threads;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab_analysis::record::{ComponentProfile, StackProfile, StackSource};

use self::perf::{Event, Recording};
use self::threads::ThreadSampler;
use super::process::children;
use crate::Interrupt;

/// A process to profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfiledProcess {
    /// Name of the component in the report.
    pub name: String,
    /// Process ID of the root.
    pub pid: u32,
    /// `true` to leave out its descendants, which belong to other components.
    pub root_only: bool,
}

impl ProfiledProcess {
    /// Process IDs of the root and, unless they are left out, of its descendants.
    fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.pid];
        let mut next = 0;
        while let Some(pid) = pids.get(next).copied().filter(|_| !self.root_only) {
            pids.extend(children(pid));
            next += 1;
        }
        pids
    }
}

/// Folded stacks of one component, the outermost frame first, each with its time in µs.
type Folded = BTreeMap<Vec<String>, f64>;

/// Stacks of all components from one source.
#[derive(Debug, Default)]
struct ComponentStacks {
    /// Stacks and number of samples per component.
    by_component: BTreeMap<String, (Folded, u64)>,
}

impl ComponentStacks {
    fn add(&mut self, component: &str, frames: Vec<String>, us: f64) {
        let (folded, samples) = self.by_component.entry(component.to_owned()).or_default();
        *folded.entry(frames).or_default() += us;
        *samples += 1;
    }

    fn take(&mut self, component: &str, source: StackSource) -> Option<StackProfile> {
        let (folded, samples) = self.by_component.remove(component)?;
        Some(StackProfile::of(source, samples, folded))
    }
}

/// Takes profiles of processes.
pub struct Profiler {
    processes: Vec<ProfiledProcess>,
    /// Folder for the files of `perf`; they are removed when they have been read.
    folder: PathBuf,
    threads: ThreadSampler,
    /// Recordings of `perf`, or why there is none.
    recordings: Vec<(Event, Result<PathBuf, String>)>,
}

impl Profiler {
    /// Creates a profiler of these processes.
    pub fn new(processes: Vec<ProfiledProcess>, folder: PathBuf) -> Self {
        let threads = ThreadSampler::new(processes.clone());
        Self { processes, folder, threads, recordings: Vec::new() }
    }

    /// Records for this long while there is load. Blocks; ends early if interrupted.
    pub fn record_under_load(&mut self, length: Duration, interrupt: &Interrupt) {
        let pids: Vec<u32> = self.processes.iter().flat_map(ProfiledProcess::pids).collect();
        let started = Event::ALL.map(|event| (event, Recording::start(event, &pids, &self.folder)));
        self.threads.sample(length, threads::Phase::UnderLoad, interrupt);
        for (event, recording) in started {
            self.recordings.push((event, recording.and_then(Recording::stop)));
        }
    }

    /// Samples threads for this long right after the load. Blocks; ends early if interrupted.
    pub fn record_at_rest(&mut self, length: Duration, interrupt: &Interrupt) {
        self.threads.sample(length, threads::Phase::AtRest, interrupt);
    }

    /// Reads the recordings. Returns one profile per process, in their order.
    pub fn finish(self) -> Vec<ComponentProfile> {
        let Self { processes, threads, recordings, .. } = self;
        let owner = |pid: u32| {
            let root = processes.iter().find(|process| process.pid == pid);
            let root = root.or_else(|| processes.iter().find(|process| process.pids().contains(&pid)));
            root.map(|process| process.name.clone())
        };
        let mut stacks: BTreeMap<Event, ComponentStacks> = BTreeMap::new();
        let mut notes = Vec::new();
        for (event, recorded) in recordings {
            let read = recorded.and_then(|file| {
                let folded = perf::read(event, &file, &owner);
                // The file has megabytes and is not needed any more.
                let _ = std::fs::remove_file(&file);
                folded
            });
            match read {
                Ok(folded) => drop(stacks.insert(event, folded)),
                Err(why) => notes.push(format!("no {}: {why}", event.text())),
            }
        }
        let has_switches = stacks.contains_key(&Event::SchedSwitch);
        let mut sampled = threads.into_sampled();
        let profile = |process: &ProfiledProcess| {
            let name = &process.name;
            let seen = sampled.remove(name).unwrap_or_default();
            let mut of = |event, source| stacks.get_mut(&event)?.take(name, source);
            let on_cpu = of(Event::CpuClock, StackSource::PerfCpuClock);
            let off_cpu = if has_switches {
                of(Event::SchedSwitch, StackSource::PerfSchedSwitch)
            } else {
                seen.off_cpu()
            };
            ComponentProfile {
                component: name.clone(),
                activities: seen.activities(),
                threads: seen.busiest(),
                on_cpu,
                off_cpu,
                notes: notes.clone(),
            }
        };
        processes.iter().map(profile).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_of_a_component_are_one() {
        let mut stacks = ComponentStacks::default();
        let frames = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        stacks.add("gateway", frames(["main", "read"]), 3.0);
        stacks.add("gateway", frames(["main", "read"]), 4.0);
        stacks.add("backend", frames(["main", "read"]), 5.0);
        let taken = stacks.take("gateway", StackSource::PerfCpuClock).unwrap();
        assert_eq!((taken.samples, taken.stacks.len()), (2, 1));
        assert!((taken.total_us() - 7.0).abs() < 1e-9);
        assert!(stacks.take("gateway", StackSource::PerfCpuClock).is_none());
    }
}
