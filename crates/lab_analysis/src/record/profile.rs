//! Profiles of a record: where the components of a variant spent their time, by call stack and by
//! thread.
//!
//! Owns: the shape, the bound on stored stacks, and the check of a profile.
//! Does not own: taking profiles, nor what follows from them.
//!
//! A profile is taken in a round of its own after the measured ones, because it slows programs down.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most stacks of a profile that a record holds: the heaviest ones. The time of the others is summed.
pub const MAX_STACKS: usize = 1000;
/// Most frames of a stored stack. Of a deeper one those in the middle are left out.
pub const MAX_FRAMES: usize = 100;
/// Name of the frame in place of those that are left out.
const LEFT_OUT: &str = "[frames left out]";
/// Longest stored name of a function, in characters.
const MAX_NAME: usize = 160;

/// Profiles of the components of a variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileRound {
    /// Number of the round: the one after the last measured round. It is not among the iterations,
    /// because profiling slows programs down.
    pub round: u32,
    /// Length of the profiled time, seconds.
    pub seconds: f64,
    /// Requests per second that ended in this round, in any way.
    pub per_s: f64,
    /// Average number of requests in flight in this round; absent when not measured.
    pub mean_in_flight: Option<f64>,
    /// Mean latency of successful responses of this round, µs; absent when there were none.
    pub mean_us: Option<f64>,
    /// The profiled components, in the order of the topology.
    pub components: Vec<ComponentProfile>,
}

/// Profile of one component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComponentProfile {
    /// Name of the component in the topology.
    pub component: String,
    /// What its threads did, on average over the profiled time.
    pub activities: Vec<ActivityThreads>,
    /// Its busiest threads, the busiest first.
    pub threads: Vec<ThreadUse>,
    /// Time on a core by call stack; absent where it could not be taken.
    pub on_cpu: Option<StackProfile>,
    /// Time not on a core by call stack; absent where it could not be taken.
    pub off_cpu: Option<StackProfile>,
    /// Why a better source could not be used, one sentence for each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What a thread does at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// Runs, or is ready to run.
    Ready,
    /// Waits for a lock, or for another thread (a futex).
    Lock,
    /// Waits for a disk.
    Disk,
    /// Sleeps for a time.
    Sleep,
    /// Waits for a peer, in a call on one connection.
    Connection,
    /// Waits for any of its connections or timers (epoll and the like).
    Poll,
    /// Waits for something else.
    Other,
}

impl Activity {
    /// All activities, in the order of reports.
    pub const ALL: [Self; 7] =
        [Self::Ready, Self::Lock, Self::Disk, Self::Sleep, Self::Connection, Self::Poll, Self::Other];

    /// The activity in the words of a report.
    pub fn text(self) -> &'static str {
        match self {
            Self::Ready => "running or ready",
            Self::Lock => "waiting for a lock or a thread",
            Self::Disk => "waiting for a disk",
            Self::Sleep => "sleeping",
            Self::Connection => "waiting on a connection",
            Self::Poll => "polling",
            Self::Other => "waiting otherwise",
        }
    }
}

/// Number of threads with one activity, on average.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActivityThreads {
    /// What the threads did.
    pub activity: Activity,
    /// Number of threads under load.
    pub under_load: f64,
    /// Number of threads right after the load, without requests; absent when not sampled.
    pub at_rest: Option<f64>,
}

/// What one thread used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadUse {
    /// Name of the thread.
    pub name: String,
    /// Share of the profiled time on a core.
    pub core_share: f64,
    /// Share of the profiled time ready to run without a core; absent when not observed.
    pub core_wait_share: Option<f64>,
}

/// Where stacks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StackSource {
    /// `perf record` at the ticks of the CPU clock.
    PerfCpuClock,
    /// `perf record` at each switch to another thread.
    PerfSchedSwitch,
    /// `/proc/PID/task`, read many times a second: state, system call, kernel stack.
    ProcTasks,
}

impl StackSource {
    /// The source in the words of a report.
    pub fn text(self) -> &'static str {
        match self {
            Self::PerfCpuClock => "perf, CPU clock",
            Self::PerfSchedSwitch => "perf, thread switches",
            Self::ProcTasks => "/proc, sampled",
        }
    }
}

/// Time by call stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackProfile {
    /// Where the stacks come from.
    pub source: StackSource,
    /// Number of samples, or of switches, behind the stacks.
    pub samples: u64,
    /// Names that stacks refer to. A name of the kernel ends with `_[k]`.
    pub names: Vec<String>,
    /// The heaviest stacks, the heaviest first.
    pub stacks: Vec<FoldedStack>,
    /// Time of all other stacks, µs.
    #[serde(default)]
    pub other_us: f64,
}

/// A call stack and the time spent in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FoldedStack {
    /// Frames as indices into the names, the outermost first.
    pub frames: Vec<u32>,
    /// Time in this stack, µs, summed over threads.
    pub us: f64,
}

/// Leaves out the middle of a stack that is too deep: where it begins says which thread it is, and
/// where it ends is where the time goes.
fn shortened(mut frames: Vec<String>) -> Vec<String> {
    if frames.len() > MAX_FRAMES {
        let more = frames.len() - (MAX_FRAMES - 1);
        let from = MAX_FRAMES / 2;
        frames.splice(from..from + more, [LEFT_OUT.to_owned()]);
    }
    frames
}

impl StackProfile {
    /// A profile of these stacks, each with its time in µs and its frames from the outermost on. Keeps
    /// the heaviest [`MAX_STACKS`].
    pub fn of(source: StackSource, samples: u64, stacks: BTreeMap<Vec<String>, f64>) -> Self {
        let mut all: Vec<(Vec<String>, f64)> = stacks.into_iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let other_us = all.iter().skip(MAX_STACKS).map(|(_, us)| us).sum();
        all.truncate(MAX_STACKS);
        let mut profile = Self { source, samples, names: Vec::new(), stacks: Vec::new(), other_us };
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        for (frames, us) in all {
            let frames = shortened(frames).into_iter().map(|frame| {
                let frame = bounded(frame);
                *known.entry(frame).or_insert_with_key(|frame| {
                    profile.names.push(frame.clone());
                    // At most stacks × frames names, which is far below the largest index.
                    u32::try_from(profile.names.len() - 1).unwrap_or(u32::MAX)
                })
            });
            let frames = frames.collect();
            profile.stacks.push(FoldedStack { frames, us });
        }
        profile
    }

    /// Time in all stacks, µs.
    pub fn total_us(&self) -> f64 {
        self.stacks.iter().map(|stack| stack.us).sum::<f64>() + self.other_us
    }

    /// Names of a stack's frames, the outermost first.
    pub fn frames<'a>(&'a self, stack: &'a FoldedStack) -> impl Iterator<Item = &'a str> {
        stack.frames.iter().filter_map(|at| self.names.get(*at as usize).map(String::as_str))
    }

    /// What is wrong with the profile; `None` if nothing is.
    fn fault(&self) -> Option<String> {
        let sound = |us: f64| us.is_finite() && us >= 0.0;
        if !sound(self.other_us) || self.stacks.iter().any(|stack| !sound(stack.us)) {
            return Some("the time of a stack is not a number from 0".to_owned());
        }
        let most = self.names.len();
        let outside = |stack: &&FoldedStack| stack.frames.iter().any(|at| *at as usize >= most);
        if self.stacks.iter().any(|stack| outside(&stack)) {
            return Some(format!("a stack has a frame that is not among the {most} names"));
        }
        (self.stacks.len() > MAX_STACKS || self.stacks.iter().any(|stack| stack.frames.len() > MAX_FRAMES))
            .then(|| format!("more than {MAX_STACKS} stacks, or a stack of more than {MAX_FRAMES} frames"))
    }
}

/// A name that is not longer than [`MAX_NAME`]. Its end is kept: it says most.
fn bounded(name: String) -> String {
    let length = name.chars().count();
    if length <= MAX_NAME {
        return name;
    }
    std::iter::once('…').chain(name.chars().skip(length + 1 - MAX_NAME)).collect()
}

impl ProfileRound {
    /// The profile of a component.
    pub fn component(&self, name: &str) -> Option<&ComponentProfile> {
        self.components.iter().find(|profile| profile.component == name)
    }

    /// What is wrong with the profiles; `None` if nothing is.
    pub(super) fn fault(&self) -> Option<String> {
        let mut figures = vec![self.seconds, self.per_s];
        figures.extend([self.mean_in_flight, self.mean_us].into_iter().flatten());
        for profile in &self.components {
            let kinds = profile.activities.iter();
            figures.extend(kinds.flat_map(|kind| [Some(kind.under_load), kind.at_rest]).flatten());
            let threads = profile.threads.iter();
            figures.extend(threads.flat_map(|one| [Some(one.core_share), one.core_wait_share]).flatten());
            let stacks = profile.on_cpu.iter().chain(&profile.off_cpu);
            if let Some(fault) = stacks.into_iter().find_map(StackProfile::fault) {
                return Some(format!("{}: {fault}", profile.component));
            }
        }
        let wrong = figures.iter().find(|value| !value.is_finite() || **value < 0.0);
        wrong.map(|value| format!("a figure is {value}, not a number from 0"))
    }
}

impl ComponentProfile {
    /// Number of threads with this activity under load, and at rest.
    pub fn threads_in(&self, activity: Activity) -> (f64, Option<f64>) {
        let known = self.activities.iter().find(|kind| kind.activity == activity);
        known.map_or((0.0, Some(0.0)), |kind| (kind.under_load, kind.at_rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Vec<String> {
        frames.iter().map(|&frame| frame.to_owned()).collect()
    }

    #[test]
    fn the_innermost_frames_of_a_deep_stack_stay() {
        let frames: Vec<String> = (0..120).map(|depth| format!("f{depth}")).collect();
        let profile = StackProfile::of(StackSource::PerfCpuClock, 1, [(frames, 1.0)].into());
        let seen: Vec<&str> = profile.frames(&profile.stacks[0]).collect();
        assert_eq!(seen.len(), MAX_FRAMES);
        assert_eq!((seen[0], seen[49], seen[50], seen[51], seen[99]), ("f0", "f49", LEFT_OUT, "f71", "f119"));
        assert_eq!(profile.fault(), None);
    }

    #[test]
    fn the_heaviest_stacks_are_kept_and_the_rest_is_summed() {
        let many = (0..MAX_STACKS + 2).map(|at| (stack(&["main", &format!("f{at}")]), 1.0 + at as f64));
        let profile = StackProfile::of(StackSource::PerfCpuClock, 9, many.collect());
        assert_eq!(profile.stacks.len(), MAX_STACKS);
        assert!((profile.other_us - 3.0).abs() < 1e-9, "the two lightest: {}", profile.other_us);
        assert!(profile.stacks[0].us > profile.stacks[1].us);
        let heaviest: Vec<&str> = profile.frames(&profile.stacks[0]).collect();
        assert_eq!(heaviest, ["main", &format!("f{}", MAX_STACKS + 1)]);
        assert_eq!(profile.fault(), None);
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = bounded(format!("{}::poll", "x".repeat(300)));
        assert!(name.starts_with('…') && name.ends_with("::poll") && name.chars().count() == MAX_NAME);
    }

    #[test]
    fn a_frame_without_a_name_is_a_fault() {
        let one = BTreeMap::from([(stack(&["main"]), 1.0)]);
        let mut profile = StackProfile::of(StackSource::ProcTasks, 1, one);
        profile.stacks[0].frames.push(7);
        assert!(profile.fault().unwrap().contains("not among the 1 names"));
        profile.stacks[0] = FoldedStack { frames: vec![0], us: f64::NAN };
        assert!(profile.fault().unwrap().contains("not a number"));
    }
}
