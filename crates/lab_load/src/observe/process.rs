//! Process usage: reads resource usage of a process and its descendants from `/proc` (proc(5)), and
//! their CPU time from CPU clocks.
//!
//! Precision of the CPU time:
//!
//! - The CPU clock of a process (`clock_getcpuclockid(3)`) counts nanoseconds of all its threads,
//!   including ended ones. The kernel updates it when a thread leaves its core and at each tick.
//!   Therefore a sample lacks up to one tick for each running thread ([`tick_ns`]).
//! - If a process has no such clock, `/proc/PID/stat` counts user and kernel time, each truncated
//!   to whole clock ticks (10 ms).
//! - [`Usage::cpu_error_ns`] is the largest possible error of a difference between two samples.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::LazyLock;

use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::param::clock_ticks_per_second;
use serde::Serialize;

/// Why a process cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The process does not exist or cannot be read; holds its process ID.
    #[error("no process {0} to watch")]
    Missing(u32),
    /// The sampling thread could not be started.
    #[error("cannot start the sampling thread: {0}")]
    Thread(io::Error),
}

/// Usage of a process since its start. Memory and thread counts are current values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// CPU time in user mode, milliseconds (in steps of the kernel's clock tick, usually 10).
    pub user_ms: u64,
    /// CPU time in the kernel, milliseconds.
    pub system_ms: u64,
    /// CPU time in user mode and the kernel, nanoseconds.
    pub cpu_ns: u64,
    /// Largest possible error of a difference between two values of `cpu_ns`, nanoseconds.
    pub cpu_error_ns: u64,
    /// Resident memory in bytes. Memory that processes of a tree may share (program files, shared
    /// memory segments) counts once, with the largest value of any process. Otherwise a server with
    /// many processes would seem to have its cache several times.
    pub rss_bytes: u64,
    /// The part of the resident memory that other processes may share, in bytes.
    #[serde(skip)]
    pub(crate) shared_bytes: u64,
    /// Memory in swap, in bytes; 0 if the kernel has no swap.
    pub swap_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Time for which threads were ready to run and waited for a core, nanoseconds, summed over
    /// threads that still run; `None` if the kernel does not report it.
    pub core_wait_ns: Option<u64>,
    /// Number of processes in the tree.
    pub processes: u64,
}

impl Usage {
    /// Usage between `earlier` and `self`. Memory, threads and processes are those of `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_ms: self.user_ms.saturating_sub(earlier.user_ms),
            system_ms: self.system_ms.saturating_sub(earlier.system_ms),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            cpu_error_ns: self.cpu_error_ns.max(earlier.cpu_error_ns),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
            core_wait_ns: self
                .core_wait_ns
                .zip(earlier.core_wait_ns)
                .map(|(now, then)| now.saturating_sub(then)),
            ..*self
        }
    }

    fn add(&mut self, other: &Self) {
        self.user_ms += other.user_ms;
        self.system_ms += other.system_ms;
        self.cpu_ns += other.cpu_ns;
        self.cpu_error_ns += other.cpu_error_ns;
        let shared = self.shared_bytes.max(other.shared_bytes);
        self.rss_bytes = self.own_bytes() + other.own_bytes() + shared;
        self.shared_bytes = shared;
        self.swap_bytes += other.swap_bytes;
        self.threads += other.threads;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        // A process that ended before its first reading has none; the others count.
        self.core_wait_ns = match (self.core_wait_ns, other.core_wait_ns) {
            (Some(mine), Some(others)) => Some(mine + others),
            (mine, others) => mine.or(others),
        };
        self.processes += other.processes;
    }

    /// Memory that no other process shares, in bytes.
    fn own_bytes(&self) -> u64 {
        self.rss_bytes.saturating_sub(self.shared_bytes)
    }

    fn read(pid: u32) -> Option<Self> {
        let stat = Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let mut usage = Self {
            user_ms: stat.user_ticks * 1000 / clock_ticks_per_second(),
            system_ms: stat.system_ticks * 1000 / clock_ticks_per_second(),
            threads: stat.threads,
            processes: 1,
            ..Self::default()
        };
        // The status file of the process counts only the switches of its first thread.
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            usage.voluntary_switches += status_field(&status, "voluntary_ctxt_switches:");
            usage.involuntary_switches += status_field(&status, "nonvoluntary_ctxt_switches:");
            let waited = fs::read_to_string(task.path().join("schedstat")).ok();
            let waited = waited.and_then(|text| SchedStat::parse(&text)).map(|stat| stat.wait_ns);
            usage.core_wait_ns = waited.map(|ns| usage.core_wait_ns.unwrap_or(0) + ns).or(usage.core_wait_ns);
            // All threads share their memory, so the largest value is that of the process.
            let memory = |name| status_field(&status, name) << 10;
            usage.swap_bytes = usage.swap_bytes.max(memory("VmSwap:"));
            usage.shared_bytes = usage.shared_bytes.max(memory("RssFile:") + memory("RssShmem:"));
            usage.rss_bytes = usage.rss_bytes.max(memory("VmRSS:"));
        }
        // The kernel updates these values separately, so they may be inconsistent.
        usage.shared_bytes = usage.shared_bytes.min(usage.rss_bytes);
        let ticks = (stat.user_ticks + stat.system_ticks) * stat_tick_ns();
        // At most this many of its threads can run at the time of a sample.
        let running = usage.threads.clamp(1, *CORES) * tick_ns();
        (usage.cpu_ns, usage.cpu_error_ns) = match cpu_clock_ns(pid) {
            Some(nanos) => (nanos, running),
            None => (ticks, running + 2 * stat_tick_ns()),
        };
        Some(usage)
    }
}

/// A process with its descendants. Usage of a descendant remains counted after its end.
pub struct ProcessTree {
    root: u32,
    /// `true` to exclude the descendants.
    root_only: bool,
    seen: BTreeMap<u32, Usage>,
}

impl ProcessTree {
    /// Creates the tree of a process and all its descendants.
    pub fn new(root: u32) -> Self {
        Self { root, root_only: false, seen: BTreeMap::new() }
    }

    /// Creates a tree of the root process only.
    pub fn new_root_only(root: u32) -> Self {
        Self { root_only: true, ..Self::new(root) }
    }

    /// Sets a new root process, such as one that replaces the first. The usage of the former root
    /// remains counted.
    pub fn set_root(&mut self, root: u32) {
        self.root = root;
    }

    /// Process ID of the root.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Sum over the tree; `None` if the root has ended.
    pub fn read(&mut self) -> Option<Usage> {
        let now = Usage::read(self.root)?;
        for usage in self.seen.values_mut() {
            // Of an ended process only cumulative usage counts, not memory and threads.
            (usage.rss_bytes, usage.shared_bytes, usage.swap_bytes) = (0, 0, 0);
            (usage.threads, usage.processes, usage.cpu_error_ns) = (0, 0, 0);
        }
        self.seen.insert(self.root, now);
        let mut waiting = if self.root_only { Vec::new() } else { children(self.root) };
        while let Some(pid) = waiting.pop() {
            if let Some(usage) = Usage::read(pid) {
                self.seen.insert(pid, usage);
                waiting.extend(children(pid));
            }
        }
        let mut sum = Usage::default();
        self.seen.values().for_each(|usage| sum.add(usage));
        Some(sum)
    }
}

/// Number of cores of the machine, which bounds the threads that can run at the same time.
static CORES: LazyLock<u64> = LazyLock::new(|| {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    lab_analysis::units::count(stat.lines().filter(is_core).count()).max(1)
});

/// Increment of the CPU time of a running thread, in nanoseconds: the resolution of the kernel's
/// coarse clocks.
fn tick_ns() -> u64 {
    static TICK: LazyLock<u64> = LazyLock::new(|| {
        let tick = ClockId::CLOCK_MONOTONIC_COARSE.res().map(std::time::Duration::from);
        tick.map_or(10_000_000, lab_analysis::units::nanos)
    });
    *TICK
}

/// Unit of the CPU times in `/proc/PID/stat`, in nanoseconds.
fn stat_tick_ns() -> u64 {
    1_000_000_000 / clock_ticks_per_second()
}

/// Value of the CPU clock of a process; `None` if it cannot be read.
fn cpu_clock_ns(pid: u32) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let shows = ClockId::pid_cpu_clock_id(pid).and_then(ClockId::now).ok()?;
    Some(lab_analysis::units::nanos(shows.into()))
}

/// Running child processes of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Start time of a process, in clock ticks since boot. Together with the process ID it identifies a
/// process uniquely. `None` if the process does not exist.
pub fn started_at(pid: u32) -> Option<u64> {
    Some(Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.started)
}

/// Parsed fields of `/proc/PID/stat`.
struct Stat {
    user_ticks: u64,
    system_ticks: u64,
    threads: u64,
    started: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program name in parentheses, which may itself contain spaces and
        // parentheses.
        let rest = &text[text.rfind(')')? + 1..];
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // `rest` begins with field 3.
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self {
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            threads: field(20)?,
            started: field(22)?,
        })
    }
}

/// Parsed `/proc/PID/task/TID/schedstat`: what the scheduler counted for one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SchedStat {
    /// Time on a core, nanoseconds.
    pub(crate) run_ns: u64,
    /// Time ready to run without a core (on a run queue), nanoseconds. A wait that has not ended is
    /// not counted yet.
    pub(crate) wait_ns: u64,
}

impl SchedStat {
    /// Parses the file's three numbers: time on a core, time on a run queue, number of turns.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse().ok());
        Some(Self { run_ns: numbers.next()?, wait_ns: numbers.next()? })
    }
}

fn status_field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text =
            "12 (a) (b c) S 1 12 12 0 -1 4194560 100 0 0 0 77 33 0 0 20 0 5 0 100 1000000 250 184467 1 1 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.user_ticks, stat.system_ticks, stat.threads, stat.started), (77, 33, 5, 100));
        assert!(Stat::parse("12 (a) S 1").is_none());
    }

    #[test]
    fn fields_of_a_status_are_numbers_with_or_without_a_unit() {
        let text = "VmRSS:\t    5120 kB\nVmSwap:\t     128 kB\nvoluntary_ctxt_switches:\t150\n";
        let fields = ["VmSwap:", "voluntary_ctxt_switches:", "VmLck:"].map(|name| status_field(text, name));
        assert_eq!(fields, [128, 150, 0]);
    }

    #[test]
    fn the_wait_for_a_core_is_the_second_number_of_a_thread() {
        assert_eq!(SchedStat::parse("500 42323 7\n"), Some(SchedStat { run_ns: 500, wait_ns: 42_323 }));
        assert_eq!(SchedStat::parse("500\n"), None);
        let usage = |core_wait_ns| Usage { core_wait_ns, ..Usage::default() };
        assert_eq!(usage(Some(9)).since(&usage(Some(4))).core_wait_ns, Some(5));
        assert_eq!(usage(Some(9)).since(&usage(None)).core_wait_ns, None, "not known is not 0");
        let mut sum = usage(None);
        for one in [usage(Some(3)), usage(None), usage(Some(4))] {
            sum.add(&one);
        }
        assert_eq!(sum.core_wait_ns, Some(7));
    }

    #[test]
    fn cpu_is_counted_in_less_than_clock_ticks() {
        let busy = || {
            let mut sum = 0_u64;
            let from = std::time::Instant::now();
            while from.elapsed().as_millis() < 3 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
            }
            sum
        };
        // A separate process, so that other tests in this process do not count.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // The CPU time is read when the process sleeps: before that, a busy machine may not have
        // run it.
        let idle = loop {
            let usage = Usage::read(child.id()).unwrap();
            if usage.voluntary_switches > 0 {
                break usage;
            }
            std::thread::yield_now();
        };
        assert!(!idle.cpu_ns.is_multiple_of(1_000_000), "starting it took some microseconds: {idle:?}");
        assert!(idle.cpu_error_ns <= 10_000_000 * *CORES, "{idle:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        let before = Usage::read(std::process::id()).unwrap();
        std::thread::spawn(busy).join().unwrap();
        let after = Usage::read(std::process::id()).unwrap();
        let used = after.since(&before);
        // The thread has ended: all its time counts, however short it was.
        assert!(used.cpu_ns > 0, "{used:?}");
        let ticks = (after.user_ms + after.system_ms) * 1_000_000;
        assert!(
            after.cpu_ns.abs_diff(ticks) <= 2 * after.cpu_error_ns + 100_000_000,
            "{after:?}: both count the same"
        );
    }

    #[test]
    fn what_processes_share_counts_once() {
        let one = |own, shared| Usage { rss_bytes: own + shared, shared_bytes: shared, ..Usage::default() };
        let mut sum = Usage::default();
        for usage in [one(10, 500), one(30, 700), one(5, 0)] {
            sum.add(&usage);
        }
        assert_eq!(sum.rss_bytes, 10 + 30 + 5 + 700);
    }

    #[test]
    fn a_process_alone_is_without_what_it_started() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        let processes = [ProcessTree::new(own), ProcessTree::new_root_only(own)]
            .map(|mut tree| tree.read().unwrap().processes);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(processes[0] > 1 && processes[1] == 1, "{processes:?}");
    }

    #[test]
    fn reads_this_process() {
        let usage = Usage::read(std::process::id()).unwrap();
        assert!(usage.own_bytes() > 64 << 10 && usage.threads >= 1, "{usage:?}");
        assert!(usage.shared_bytes > 64 << 10, "its program is a file: {usage:?}");
        assert!(usage.voluntary_switches + usage.involuntary_switches > 0, "{usage:?}");
    }

    #[test]
    fn descendants_count_and_stay_counted() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let mut tree = ProcessTree::new(std::process::id());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        // Processes of other tests are in the tree too.
        let grandchild = loop {
            let processes = tree.read().unwrap().processes;
            let found = children(child.id()).into_iter().find(|pid| tree.seen.contains_key(pid));
            if let Some(pid) = found {
                assert!(processes >= 3, "{processes} with the child and its own child");
                break pid;
            }
            assert!(std::time::Instant::now() < until, "the child's own child is found");
            std::thread::yield_now();
        };
        let kept = tree.seen.get_mut(&grandchild).unwrap();
        (kept.user_ms, kept.cpu_ns) = (12_345, 12_345_000_000);
        let killed = std::process::Command::new("kill").arg(grandchild.to_string()).status().unwrap();
        assert!(killed.success());
        child.wait().unwrap();
        let after = tree.read().unwrap();
        assert!(after.user_ms >= 12_345 && after.cpu_ns >= 12_345_000_000, "{after:?}");
        assert!(tree.seen.len() > usize::try_from(after.processes).unwrap(), "ended ones are remembered");
    }
}
