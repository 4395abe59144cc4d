//! Process: resource use of this process (CPU, memory, file descriptors, threads) and its
//! descriptor limit.
//!
//! Owns: reading `/proc/self` and the descriptor limit. The parsers are pure functions; only
//! [`sample`] reads files.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The highest nice value.
const LOWEST_PRIORITY: i32 = 19;

/// Resource use of the process at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessSample {
    /// User and system CPU time since the process started, ended threads included. Nanosecond
    /// resolution.
    pub cpu: Duration,
    /// Resident set size in bytes.
    pub resident_bytes: u64,
    /// Virtual memory size in bytes.
    pub virtual_bytes: u64,
    /// Number of open file descriptors, without the one used for counting.
    pub open_fds: u64,
    /// Soft limit of open file descriptors; `None`: unlimited.
    pub max_fds: Option<u64>,
    /// Number of threads.
    pub threads: u64,
    /// When the process started, in seconds since the Unix epoch.
    pub started_unix_seconds: f64,
}

/// Reads the current values.
///
/// # Errors
/// When `/proc` is not mounted, or has an unexpected format (`InvalidData`).
pub fn sample() -> io::Result<ProcessSample> {
    let stat = Stat::parse(&fs::read_to_string("/proc/self/stat")?)
        .ok_or_else(|| unexpected_format("/proc/self/stat"))?;
    let boot = fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|text| boot_seconds(&text))
        .ok_or_else(|| unexpected_format("/proc/stat"))?;
    let open_fds = fs::read_dir("/proc/self/fd")?.count().saturating_sub(1) as u64;
    Ok(ProcessSample {
        cpu: cpu_time(),
        resident_bytes: stat.resident_pages.saturating_mul(page_size() as u64),
        virtual_bytes: stat.virtual_bytes,
        open_fds,
        max_fds: getrlimit(Resource::Nofile).current,
        threads: stat.threads,
        started_unix_seconds: boot as f64 + stat.started_ticks as f64 / clock_ticks_per_second() as f64,
    })
}

/// Gives the calling thread the lowest priority: it runs when no other thread needs its core. Only a
/// privileged process could undo that. Without effect where the system does not allow it.
pub fn lower_priority() {
    // On Linux a nice value belongs to a thread.
    let _ = rustix::process::nice(LOWEST_PRIORITY);
}

/// CPU time of all threads, user and system.
fn cpu_time() -> Duration {
    // the kernel returns a valid, positive time
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// Raises the soft limit of open descriptors to the hard limit. Returns the resulting limit.
/// Raising it has no disadvantage: the low soft limit exists for programs that use `select`.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // if it is refused, for example by a sandbox, the old limit remains
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let holds = getrlimit(Resource::Nofile).current;
    holds.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

fn unexpected_format(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected format of {file}"))
}

/// The relevant fields of `/proc/self/stat` (proc(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    threads: u64,
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // the command is in parentheses and may itself contain parentheses; the last one ends it
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // field 3 of the manual is the first after the command
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// `btime` of `/proc/stat`: when the machine booted, in seconds since the Unix epoch.
fn boot_seconds(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_process_with_a_strange_name() {
        let text = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 3 0 12345 104857600 2560 18446744073709551615 1 1";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                threads: 3,
                started_ticks: 12_345,
                virtual_bytes: 104_857_600,
                resident_pages: 2560
            })
        );
        assert_eq!(Stat::parse("42 (short) S 1 2 3"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn boot_time() {
        assert_eq!(boot_seconds("cpu  1 2 3\nbtime 1700000000\nprocesses 9\n"), Some(1_700_000_000));
        assert_eq!(boot_seconds("cpu  1 2 3\n"), None);
    }

    #[test]
    fn descriptors_are_as_many_as_the_hard_limit_lets() {
        let most = raise_descriptor_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert!(limit.maximum.is_none_or(|hard| hard == most as u64));
    }

    #[test]
    fn the_running_process_is_seen() {
        let before = sample().unwrap();
        let held: Vec<_> = (0..16).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = sample().unwrap();
        assert!(after.cpu > before.cpu, "{before:?} {after:?}");
        assert!(after.open_fds >= 16 && after.max_fds.is_none_or(|most| after.open_fds <= most), "{after:?}");
        assert!(after.resident_bytes > 100_000 && after.virtual_bytes >= after.resident_bytes, "{after:?}");
        assert!(after.threads >= 1);
        assert!((after.started_unix_seconds - before.started_unix_seconds).abs() < 1e-6);
        assert!(after.started_unix_seconds > 1.6e9, "{after:?}");
        drop(held);
    }
}
