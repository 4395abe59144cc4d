//! Process: a running program, ended together with all its child processes.
//!
//! Owns: the process, its process group, its log and its control group. Does not own: which program
//! runs, and when it is ready.
//!
//! Each program leads a process group of its own. Therefore Ctrl-C at a terminal reaches only the
//! lab, which then ends the programs in order. The group is also how child processes are found.
//! Children that left the group, such as the workers of PostgreSQL, are recorded by process ID and
//! start time before the program is asked to end. Processes in its control group are ended too. No
//! other process ever receives a signal.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lab_load::cgroup::ComponentGroup;
use lab_load::observe::process::{children, started_at};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::account::Account;
use super::description::StopSignal;

/// Default time that a program may take to end after the stop signal.
pub(super) const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two checks of whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Most bytes at the end of a log that are shown.
const TAIL_BYTES: u64 = 4096;
/// Most lines at the end of a log that are shown.
const TAIL_LINES: usize = 12;
/// Shell script that sets the limit of open files, enters the control groups, then becomes the
/// program by `exec`. No code of the program runs outside the groups.
const ENTER_GROUPS_SCRIPT: &str = "[ \"$1\" = - ] || ulimit -n \"$1\" || exit 126; shift; n=$1; shift; while [ \"$n\" -gt 0 ]; do echo $$ >\"$1\" || exit 126; shift; n=$((n-1)); done; exec \"$@\"";

/// How to start a program.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) folder: PathBuf,
    pub(super) cores: Vec<u32>,
    pub(super) stop: StopSignal,
    /// How long the program may take to end after the stop signal.
    pub(super) stop_timeout: Duration,
    /// Limit of open files; `None` for the limit of the lab.
    pub(super) open_files: Option<u64>,
    pub(super) group: Option<ComponentGroup>,
    /// File for standard output; `None` for the log.
    pub(super) output: Option<PathBuf>,
    /// Account to run as, with the path of the program that switches to it; `None` for the account
    /// of the lab.
    pub(super) account: Option<(Account, PathBuf)>,
}

/// A program that was started.
#[derive(Debug)]
pub(super) struct Process {
    launch: Launch,
    child: Child,
    pid: Pid,
    log: PathBuf,
    ended: bool,
}

impl Process {
    /// Starts a program. Its output is appended to the file `log` in its folder.
    pub(super) fn start(launch: Launch) -> io::Result<Self> {
        let log = launch.folder.join("log");
        let child = spawn(&launch, &log)?;
        let pid = Pid::from_child(&child);
        Ok(Self { launch, child, pid, log, ended: false })
    }

    /// Ends the program if it still runs, and starts it again with the same arguments and limits.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.end_all();
        self.child = spawn(&self.launch, &self.log)?;
        self.pid = Pid::from_child(&self.child);
        self.ended = false;
        Ok(())
    }

    /// Sends a signal to the program or, with `everybody`, also to its running descendants.
    ///
    /// # Errors
    /// The program has ended, or the signal cannot be sent.
    pub(super) fn signal(&self, signal: Signal, everybody: bool) -> io::Result<()> {
        // The process ID may belong to another process by now.
        if self.ended {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
        }
        // Descendants are listed before the signal, because a process whose parent has ended can no
        // longer be recognized as one. They are listed again after it, because the program may have
        // started more.
        let of_family = || if everybody { descendants(self.pid()) } else { BTreeSet::new() };
        let before = of_family();
        kill_process(self.pid, signal)?;
        let same = |(pid, start): &(u32, u64)| started_at(*pid) == Some(*start);
        for (pid, _) in before.union(&of_family()).filter(|one| same(one)) {
            // A process that has ended in the meantime needs no signal.
            let _ = i32::try_from(*pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
        }
        Ok(())
    }

    /// Control group of the program, if it has one.
    pub(super) fn group(&self) -> Option<&ComponentGroup> {
        self.launch.group.as_ref()
    }

    /// Process ID of the program.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Path of the log with its output.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// How the program ended; `None` while it runs.
    pub(super) fn exit_status(&mut self) -> Option<String> {
        if self.ended {
            return self.child.try_wait().ok().flatten().map(describe_status);
        }
        // The process ID is not reused until the process has been waited for.
        let status = is_zombie(self.pid()).then(|| self.child.try_wait().ok().flatten()).flatten()?;
        self.kill_descendants(&BTreeSet::new());
        self.ended = true;
        Some(describe_status(status))
    }

    /// Last lines of the log, indented and without control characters.
    pub(super) fn tail(&self) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
        let lines: Vec<String> = text
            .lines()
            .rev()
            .filter(|line| !line.trim().is_empty())
            .take(TAIL_LINES)
            .map(|line| {
                let shown: String = line.chars().filter(|letter| !letter.is_control()).take(300).collect();
                format!("    {shown}")
            })
            .collect();
        if lines.is_empty() {
            return "    (no output)".to_owned();
        }
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Sends the program its stop signal.
    pub(super) fn send_stop_signal(&self) {
        let signal = match self.launch.stop {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
        };
        // A program that has ended needs no signal. Until it is waited for, its process ID is not
        // reused.
        if !self.ended {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Ends the program and all its descendants: with the stop signal first, then by SIGKILL.
    pub(super) fn end(&mut self) {
        self.end_all();
        // Remove the group now, not when this value is dropped.
        self.launch.group = None;
    }

    fn end_all(&mut self) {
        if self.ended {
            return;
        }
        let family = descendants(self.pid());
        self.send_stop_signal();
        // A stopped process handles the stop signal only after SIGCONT.
        let _ = self.signal(Signal::CONT, true);
        let until = Instant::now() + self.launch.stop_timeout;
        while !is_zombie(self.pid()) && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
        self.kill_descendants(&family);
        let _ = self.child.wait();
        self.ended = true;
    }

    /// Kills the rest of its process group and its descendants. The program has not been waited
    /// for, so its process ID cannot belong to another process.
    fn kill_descendants(&self, family: &BTreeSet<(u32, u64)>) {
        let _ = kill_process_group(self.pid, Signal::KILL);
        let same = family.iter().filter(|(pid, start)| started_at(*pid) == Some(*start)).map(|(pid, _)| *pid);
        let grouped = self.launch.group.iter().flat_map(ComponentGroup::processes);
        for pid in same.chain(grouped).filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(launch: &Launch, log: &Path) -> io::Result<Child> {
    let file = File::options().create(true).append(true).open(log)?;
    let doors: Vec<PathBuf> = launch.group.iter().flat_map(ComponentGroup::procs_files).collect();
    // Switching the account comes last: only root can write to the control groups.
    let mut words: Vec<OsString> = Vec::new();
    if !doors.is_empty() || launch.open_files.is_some() {
        words.extend(["/bin/sh", "-c", ENTER_GROUPS_SCRIPT, "lab"].map(OsString::from));
        words.push(launch.open_files.map_or_else(|| "-".to_owned(), |files| files.to_string()).into());
        words.push(doors.len().to_string().into());
        words.extend(doors.into_iter().map(OsString::from));
    }
    if let Some((account, change)) = &launch.account {
        words.push(change.into());
        words.extend(account.arguments().map(OsString::from));
    }
    words.push(launch.program.clone().into());
    let output = match &launch.output {
        Some(path) => File::options().create(true).append(true).mode(0o600).open(path)?,
        None => file.try_clone()?,
    };
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(&launch.arguments)
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&launch.folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(file)
        .process_group(0);
    with_affinity(&launch.cores, || command.spawn())?
}

/// All running descendants of a process, with start times. Process IDs are reused, but not together
/// with the start time.
fn descendants(root: u32) -> BTreeSet<(u32, u64)> {
    let mut found = BTreeSet::new();
    let mut waiting = children(root);
    while let Some(pid) = waiting.pop() {
        if let Some(start) = started_at(pid)
            && found.insert((pid, start))
        {
            waiting.extend(children(pid));
        }
    }
    found
}

/// Whether the process has ended but was not waited for.
fn is_zombie(pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let state = text.rfind(')').and_then(|at| text[at + 1..].trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

fn describe_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown exit status".to_owned(),
    }
}

/// Runs `work` with its thread bound to these cores. A process that it starts inherits the binding.
/// Without cores there is no binding.
///
/// # Errors
/// One of the cores is not available to this process.
pub(crate) fn with_affinity<T>(cores: &[u32], work: impl FnOnce() -> T) -> io::Result<T> {
    if cores.is_empty() {
        return Ok(work());
    }
    let before = sched_getaffinity(None)?;
    let mut wanted = CpuSet::new();
    for core in cores {
        let core = *core as usize;
        if core >= CpuSet::MAX_CPU || !before.is_set(core) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("core {core} is not available to this process"),
            ));
        }
        wanted.set(core);
    }
    sched_setaffinity(None, &wanted)?;
    let done = work();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_left_the_group_is_killed_with_who_started_it() {
        let folder = tempfile::tempdir().unwrap();
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: ["-c", "setsid sleep 300 & wait"].map(str::to_owned).to_vec(),
            environment: Vec::new(),
            folder: folder.path().to_owned(),
            cores: Vec::new(),
            stop: StopSignal::Term,
            stop_timeout: DEFAULT_STOP_TIMEOUT,
            open_files: None,
            group: None,
            output: None,
            account: None,
        };
        let process = Process::start(launch).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let wait = |done: &dyn Fn() -> bool| {
            while !done() {
                assert!(Instant::now() < until, "{}", process.tail());
                std::thread::sleep(POLL_INTERVAL);
            }
        };
        let sleeps = |pid: u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
        };
        wait(&|| descendants(process.pid()).iter().any(|(pid, _)| sleeps(*pid)));
        let all = descendants(process.pid());
        process.signal(Signal::KILL, true).unwrap();
        wait(&|| all.iter().all(|(pid, start)| started_at(*pid) != Some(*start) || is_zombie(*pid)));
    }
}
