//! Perf: runs `perf record` beside a load, and `perf script` after it (perf-record(1)).
//!
//! Owns: the events, the arguments, and the reason why `perf` cannot record. Does not own: the
//! meaning of its text ([`super::script`]).
//!
//! On a core: the CPU clock, with stacks unwound from a copy of the user stack, because release
//! builds have no frame pointers. Off a core: each switch to another thread. Those are many, so only
//! frame pointers are followed: the stack of the kernel is complete, that in user mode only where
//! the program has frame pointers.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::ComponentStacks;
use super::script::{SwitchReader, TickReader};

/// Samples of the CPU clock per second and core. Not a divisor of usual timers, so that periodic
/// work is not always or never sampled.
const HZ: u32 = 499;
/// Cores that may be busy at that rate for a profile of usual length within [`MAX_FILE`]. On more of them
/// there are fewer samples per core, and as many in all.
const CORES_AT_HZ: u32 = 3;
/// Bytes of the user stack that are copied for each sample.
const STACK_BYTES: u32 = 16_384;
/// Largest file of a recording.
const MAX_FILE: &str = "256M";
/// Longest line of an error that is shown, in characters.
const MAX_REASON: usize = 200;

/// What `perf` records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// Ticks of the CPU clock: time on a core.
    CpuClock,
    /// Switches to another thread: time off a core.
    SchedSwitch,
}

impl Event {
    pub(super) const ALL: [Self; 2] = [Self::CpuClock, Self::SchedSwitch];

    /// What is missing without this event.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::CpuClock => "stacks on a core",
            Self::SchedSwitch => "stacks of thread switches, threads were sampled instead",
        }
    }

    fn arguments(self) -> Vec<String> {
        let words = match self {
            Self::CpuClock => {
                let hz = samples_per_second();
                vec![format!("-F{hz}"), "-ecpu-clock".to_owned(), format!("--call-graph=dwarf,{STACK_BYTES}")]
            }
            Self::SchedSwitch => ["-c1", "-esched:sched_switch", "--call-graph=fp", "--switch-events"]
                .map(str::to_owned)
                .to_vec(),
        };
        words.into_iter().chain([format!("--max-size={MAX_FILE}")]).collect()
    }

    fn file(self) -> &'static str {
        match self {
            Self::CpuClock => "cpu-clock.perf",
            Self::SchedSwitch => "sched-switch.perf",
        }
    }
}

/// A running `perf record`.
pub(super) struct Recording {
    child: Child,
    file: PathBuf,
}

impl Recording {
    /// Starts to record processes into a file of the folder.
    ///
    /// # Errors
    /// The reason why `perf` cannot be started.
    pub(super) fn start(event: Event, pids: &[u32], folder: &Path) -> Result<Self, String> {
        let file = folder.join(event.file());
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let child = Command::new("perf")
            .args(["record", "-q", "-o"])
            .arg(&file)
            .args(event.arguments())
            .args(["-p", &pids.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        match child {
            Ok(child) => Ok(Self { child, file }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err("`perf` is not installed".to_owned())
            }
            Err(error) => Err(format!("`perf` cannot be started: {error}")),
        }
    }

    /// Ends the recording. Returns its file.
    ///
    /// # Errors
    /// The reason why `perf` did not record.
    pub(super) fn stop(mut self) -> Result<PathBuf, String> {
        let failed = |error: std::io::Error| format!("`perf` cannot be ended: {error}");
        // A recording that has ended before was not permitted, or its file is full.
        let early = self.child.try_wait().map_err(failed)?;
        if early.is_none()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            // Perf writes the rest of its file at this signal. A process that has just ended cannot
            // receive it.
            let _ = kill_process(pid, Signal::INT);
        }
        let mut errors = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.by_ref().take(1 << 16).read_to_string(&mut errors);
        }
        self.child.wait().map_err(failed)?;
        if early.is_some_and(|status| !status.success()) || !self.file.exists() {
            return Err(format!("`perf record` said {}", reason(&errors)));
        }
        Ok(self.file.clone())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Without effect after `stop`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Samples per second and core on this machine.
fn samples_per_second() -> u32 {
    let cores =
        std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    // Odd, so that it divides no usual timer.
    (HZ * CORES_AT_HZ / cores.max(CORES_AT_HZ)) | 1
}

/// The first line of an error that says something.
fn reason(errors: &str) -> String {
    let line = errors.lines().map(str::trim).find(|line| !line.is_empty() && *line != "Error:");
    let line = line.unwrap_or("nothing");
    if line.chars().count() <= MAX_REASON {
        return format!("`{line}`");
    }
    format!("`{}…`", line.chars().take(MAX_REASON).collect::<String>())
}

/// Reads a recording. `owner` gives the component of a process.
///
/// # Errors
/// The reason why `perf script` did not print it.
pub(super) fn read(
    event: Event,
    file: &Path,
    owner: &dyn Fn(u32) -> Option<String>,
) -> Result<ComponentStacks, String> {
    let failed = |error: std::io::Error| format!("`perf script` failed: {error}");
    let errors = file.with_extension("stderr");
    let mut child = Command::new("perf")
        .args(["script", "--no-inline", "--ns", "--show-switch-events", "--max-stack=127"])
        .args(["-F", "comm,pid,tid,time,period,event,ip,sym,dso", "-i"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&errors).map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let text = child.stdout.take().map(BufReader::new);
    let mut lines = text.into_iter().flat_map(|text| text.split(b'\n'));
    let mut next =
        || lines.next().and_then(Result::ok).map(|line| String::from_utf8_lossy(&line).into_owned());
    let stacks = match event {
        Event::CpuClock => TickReader::new(owner).read(&mut next),
        Event::SchedSwitch => SwitchReader::new(owner).read(&mut next),
    };
    let ended = child.wait().map_err(failed)?;
    let said = std::fs::read_to_string(&errors).unwrap_or_default();
    let _ = std::fs::remove_file(&errors);
    if stacks.by_component.is_empty() {
        let end = if ended.success() { "it has no samples" } else { "it failed" };
        return Err(format!("`perf script`: {end}, and said {}", reason(&said)));
    }
    Ok(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_line_that_says_something() {
        assert_eq!(
            reason("Error:\n\nAccess to performance monitoring is limited.\nmore"),
            "`Access to performance monitoring is limited.`"
        );
        assert_eq!(reason(""), "`nothing`");
        assert!(reason(&"x".repeat(900)).chars().count() < MAX_REASON + 5);
    }
}
