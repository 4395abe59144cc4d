//! Threads: samples what each thread of a process does, from `/proc/PID/task` (proc(5)).
//!
//! Owns: the sampling, the activity that a state means, and the use of each thread. Does not own:
//! stacks in user mode, which `/proc` does not have.
//!
//! A sample counts for the time since the sample before it. Sampling takes at most a tenth of a core:
//! with many threads it becomes slower.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use lab_analysis::record::{Activity, ActivityThreads, StackProfile, StackSource, ThreadUse};

use super::{Folded, ProfiledProcess, system_calls};
use crate::Interrupt;
use crate::observe::process::SchedStat;

/// Shortest time between two samples.
const INTERVAL: Duration = Duration::from_millis(7);
/// Pause after a sample, as a multiple of the time that it took.
const PAUSE_FACTOR: u32 = 9;
/// Number of threads in a report.
const BUSIEST: usize = 8;
/// Frames of a kernel stack that are the scheduler's own.
const SCHEDULER_FRAMES: [&str; 3] = ["__schedule", "schedule", "__switch_to"];

/// When a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// While there was load.
    UnderLoad,
    /// Right after the load.
    AtRest,
}

/// What a thread was seen to do.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenThread {
    name: String,
    activity: Activity,
    /// Where it waits, the outermost frame first: system call, then functions of the kernel.
    frames: Vec<String>,
}

/// Samples of one component.
#[derive(Debug, Default)]
pub(super) struct SampledThreads {
    /// Seconds of threads by activity, under load and at rest.
    thread_s: BTreeMap<Activity, [f64; 2]>,
    /// Sampled seconds, under load and at rest.
    sampled_s: [f64; 2],
    /// Time off a core by stack, µs, under load.
    stacks: Folded,
    samples: u64,
    /// Use of each thread under load: the first and the last reading.
    threads: BTreeMap<u32, ThreadReadings>,
    /// Seconds between the first and the last reading of threads.
    read_s: f64,
}

#[derive(Debug, Clone)]
struct ThreadReadings {
    name: String,
    first: SchedStat,
    last: SchedStat,
}

impl SampledThreads {
    fn add(&mut self, phase: Phase, seen: Vec<SeenThread>, seconds: f64) {
        let at = usize::from(phase == Phase::AtRest);
        self.sampled_s[at] += seconds;
        for thread in seen {
            self.thread_s.entry(thread.activity).or_default()[at] += seconds;
            if phase == Phase::UnderLoad && thread.activity != Activity::Ready {
                let mut frames = vec![thread.name];
                frames.extend(thread.frames);
                *self.stacks.entry(frames).or_default() += seconds * 1e6;
                self.samples += 1;
            }
        }
    }

    /// Number of threads by activity, on average.
    pub(super) fn activities(&self) -> Vec<ActivityThreads> {
        let mean = |activity: Activity, at: usize| {
            let sum = self.thread_s.get(&activity).map_or(0.0, |seconds| seconds[at]);
            (self.sampled_s[at] > 0.0).then(|| sum / self.sampled_s[at])
        };
        let all =
            Activity::ALL.into_iter().filter_map(|activity| {
                let (under_load, at_rest) = (mean(activity, 0)?, mean(activity, 1));
                (under_load > 0.0 || at_rest.is_some_and(|threads| threads > 0.0))
                    .then_some(ActivityThreads { activity, under_load, at_rest })
            });
        all.collect()
    }

    /// The threads that used most of a core.
    pub(super) fn busiest(&self) -> Vec<ThreadUse> {
        if self.read_s <= 0.0 {
            return Vec::new();
        }
        let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9 / self.read_s;
        let mut all: Vec<ThreadUse> = self
            .threads
            .values()
            .map(|thread| ThreadUse {
                name: thread.name.clone(),
                core_share: share(thread.first.run_ns, thread.last.run_ns),
                core_wait_share: Some(share(thread.first.wait_ns, thread.last.wait_ns)),
            })
            .collect();
        all.sort_by(|a, b| b.core_share.total_cmp(&a.core_share));
        all.truncate(BUSIEST);
        all
    }

    /// Time off a core by stack, as far as `/proc` has it.
    pub(super) fn off_cpu(&self) -> Option<StackProfile> {
        (self.samples > 0)
            .then(|| StackProfile::of(StackSource::ProcTasks, self.samples, self.stacks.clone()))
    }
}

/// Samples the threads of several components.
pub(super) struct ThreadSampler {
    processes: Vec<ProfiledProcess>,
    sampled: BTreeMap<String, SampledThreads>,
}

impl ThreadSampler {
    pub(super) fn new(processes: Vec<ProfiledProcess>) -> Self {
        let sampled = processes.iter().map(|process| (process.name.clone(), SampledThreads::default()));
        let sampled = sampled.collect();
        Self { processes, sampled }
    }

    /// Samples for this long. Ends early if interrupted.
    pub(super) fn sample(&mut self, length: Duration, phase: Phase, interrupt: &Interrupt) {
        let begun = Instant::now();
        let mut before = begun;
        if phase == Phase::UnderLoad {
            self.read_use(0.0);
        }
        loop {
            let from = Instant::now();
            for process in &self.processes {
                let seen = process.pids().into_iter().flat_map(read_threads).collect();
                if let Some(sampled) = self.sampled.get_mut(&process.name) {
                    sampled.add(phase, seen, (from - before).as_secs_f64());
                }
            }
            before = from;
            let pause = (from.elapsed() * PAUSE_FACTOR).max(INTERVAL);
            if begun.elapsed() + pause >= length || interrupt.sleep(pause) {
                break;
            }
        }
        if phase == Phase::UnderLoad {
            self.read_use(begun.elapsed().as_secs_f64());
        }
    }

    /// Reads what each thread used so far; `read_s` seconds after the first reading.
    fn read_use(&mut self, read_s: f64) {
        for process in &self.processes {
            let Some(sampled) = self.sampled.get_mut(&process.name) else { continue };
            sampled.read_s = read_s;
            for (thread, folder) in process.pids().into_iter().flat_map(tasks) {
                let read = |file: &str| fs::read_to_string(format!("{folder}/{file}"));
                let Some(now) = read("schedstat").ok().and_then(|text| SchedStat::parse(&text)) else {
                    continue;
                };
                // A thread that was not there at the first reading began with nothing.
                let first = if read_s > 0.0 { SchedStat { run_ns: 0, wait_ns: 0 } } else { now };
                let name = read("comm").unwrap_or_default().trim().to_owned();
                let new = ThreadReadings { name, first, last: now };
                sampled.threads.entry(thread).or_insert(new).last = now;
            }
        }
    }

    pub(super) fn into_sampled(self) -> BTreeMap<String, SampledThreads> {
        self.sampled
    }
}

/// Threads of a process with their folders in `/proc`.
fn tasks(pid: u32) -> Vec<(u32, String)> {
    let folder = format!("/proc/{pid}/task");
    let all = fs::read_dir(&folder).into_iter().flatten().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.map(|id| (id, format!("{folder}/{id}"))).collect()
}

fn read_threads(pid: u32) -> Vec<SeenThread> {
    let thread = |(_, folder): (u32, String)| {
        let read = |file: &str| fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default();
        let stat = read("stat");
        let (name, state) = name_and_state(&stat)?;
        if state == 'R' {
            return Some(SeenThread { name, activity: Activity::Ready, frames: Vec::new() });
        }
        Some(classify(name, &read("syscall"), &read("wchan"), &read("stack")))
    };
    tasks(pid).into_iter().filter_map(thread).collect()
}

/// Name and state of a thread from its `stat` file. The name is in parentheses, and may contain
/// parentheses itself.
fn name_and_state(stat: &str) -> Option<(String, char)> {
    let (from, until) = (stat.find('(')?, stat.rfind(')')?);
    let state = stat.get(until + 1..)?.trim_start().chars().next()?;
    Some((super::script::thread_name(stat.get(from + 1..until)?), state))
}

/// What a thread that does not run waits for. `call` is its `syscall` file, `wait_channel` its
/// `wchan`, and `stack` its kernel stack, which only root may read.
fn classify(name: String, call: &str, wait_channel: &str, stack: &str) -> SeenThread {
    let number = call.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
    let call = number.and_then(system_calls::name);
    let channel = Some(wait_channel.trim()).filter(|channel| !matches!(*channel, "" | "0"));
    // Lines as `[<0>] futex_wait+0x67/0x110`, the innermost function first.
    let mut kernel: Vec<&str> = stack
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.split('+').next())
        .filter(|function| !SCHEDULER_FRAMES.contains(function))
        .collect();
    kernel.reverse();
    if kernel.is_empty() {
        kernel.extend(channel);
    }
    let activity = activity(call, &kernel);
    let mut frames: Vec<String> = call.map(str::to_owned).into_iter().collect();
    frames.extend(kernel.into_iter().map(|function| format!("{function}_[k]")));
    if frames.is_empty() {
        frames.push("[unknown wait]".to_owned());
    }
    SeenThread { name, activity, frames }
}

/// The activity that a system call and functions of the kernel mean.
fn activity(call: Option<&str>, kernel: &[&str]) -> Activity {
    const DISK_CALLS: [&str; 4] = ["fsync", "fdatasync", "msync", "sync_file_range"];
    const DISK_PARTS: [&str; 9] = [
        "io_schedule",
        "jbd2",
        "ext4_sync",
        "xfs_log",
        "folio_wait",
        "wait_on_page",
        "blk_",
        "balance_dirty",
        "bio_wait",
    ];
    const CONNECTION_PARTS: [&str; 7] =
        ["wait_woken", "inet_csk_accept", "tcp_", "sock_", "unix_stream", "skb_wait", "pipe_"];
    let has = |parts: &[&str]| kernel.iter().any(|function| parts.iter().any(|part| function.contains(part)));
    match call {
        Some(call) if DISK_CALLS.contains(&call) => return Activity::Disk,
        Some("futex" | "futex_wait" | "futex_waitv") => return Activity::Lock,
        Some("nanosleep" | "clock_nanosleep") => return Activity::Sleep,
        Some("epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "poll" | "ppoll" | "select" | "pselect6") => {
            return Activity::Poll;
        }
        Some("connect" | "accept" | "accept4" | "sendto" | "recvfrom" | "sendmsg" | "recvmsg") => {
            return Activity::Connection;
        }
        _ => {}
    }
    if has(&DISK_PARTS) {
        Activity::Disk
    } else if has(&["futex", "rwsem_down", "mutex_lock"]) {
        Activity::Lock
    } else if has(&["nanosleep"]) {
        Activity::Sleep
    } else if has(&["ep_poll", "do_epoll", "do_poll", "do_sys_poll", "do_select"]) {
        Activity::Poll
    } else if has(&CONNECTION_PARTS) {
        Activity::Connection
    } else {
        Activity::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_for_what_its_call_or_its_wait_channel_says() {
        let seen = |call: &str, channel: &str, stack: &str| {
            classify("worker".to_owned(), call, channel, stack).activity
        };
        let futex = "[<0>] futex_do_wait+0x3a/0x70\n[<0>] __futex_wait+0x91/0x100\n";
        assert_eq!(seen("", "", futex), Activity::Lock);
        assert_eq!(seen("", "futex_do_wait", ""), Activity::Lock, "without root");
        assert_eq!(seen("", "jbd2_log_wait_commit", ""), Activity::Disk);
        assert_eq!(seen("", "rwsem_down_read_slowpath", ""), Activity::Lock, "a lock of the kernel");
        assert_eq!(seen("", "0", ""), Activity::Other, "not known to be a disk");
        assert_eq!(seen("", "hrtimer_nanosleep", ""), Activity::Sleep);
        assert_eq!(seen("", "ep_poll", ""), Activity::Poll);
        assert_eq!(seen("", "wait_woken", ""), Activity::Connection);
        assert_eq!(seen("running", "do_signal_stop", ""), Activity::Other);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_system_call_decides_before_the_functions_of_the_kernel() {
        let seen = classify(
            "writer".to_owned(),
            "75 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f00",
            "0",
            "[<0>] folio_wait_writeback+0x2b/0x80\n[<0>] ext4_sync_file+0x10/0x20\n",
        );
        assert_eq!(seen.activity, Activity::Disk);
        assert_eq!(seen.frames, ["fdatasync", "ext4_sync_file_[k]", "folio_wait_writeback_[k]"]);
    }

    #[test]
    fn the_name_of_a_thread_may_have_parentheses() {
        assert_eq!(name_and_state("12 (a) (b) S 1 2"), Some(("a) (b".to_owned(), 'S')));
        assert_eq!(name_and_state("12 (a"), None);
    }

    #[test]
    fn threads_of_this_process_are_seen_where_they_wait() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::Builder::new().name("waits-here".to_owned());
        let waiting = waiting.spawn(move || receive.recv()).unwrap();
        let seen = loop {
            let found = read_threads(std::process::id());
            let found = found.into_iter().find(|thread| thread.name == "waits-here");
            if let Some(thread) = found.filter(|thread| thread.activity != Activity::Ready) {
                break thread;
            }
            std::thread::yield_now();
        };
        drop(send);
        waiting.join().unwrap().unwrap_err();
        assert_eq!(seen.activity, Activity::Lock, "{seen:?}");
    }

    #[test]
    fn a_component_is_sampled_under_load_and_at_rest() {
        let process = ProfiledProcess { name: "self".to_owned(), pid: std::process::id(), root_only: true };
        let mut sampler = ThreadSampler::new(vec![process]);
        let (_interrupter, interrupt) = Interrupt::manual();
        for phase in [Phase::UnderLoad, Phase::AtRest] {
            sampler.sample(Duration::from_millis(40), phase, &interrupt);
        }
        let own = sampler.into_sampled().remove("self").unwrap();
        let activities = own.activities();
        let ready = activities.iter().find(|kind| kind.activity == Activity::Ready).unwrap();
        assert!(ready.under_load > 0.0 && ready.at_rest.unwrap() > 0.0, "{activities:?}");
        assert!(!own.busiest().is_empty());
    }
}
