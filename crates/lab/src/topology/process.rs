//! A program that runs: started, watched, and ended with everything it started.
//!
//! Owns: the process, its group, its log and its control group. Does not own: which program, and when it is ready.
//!
//! Each program leads a process group of its own. So Ctrl-C at a terminal reaches the lab alone, which ends programs in order; and so
//! what a program started is found again. What left the group (PostgreSQL's workers do) is remembered by number and start time before the
//! program is asked to end, and what is in its control group is ended too. Nothing else is ever sent a signal.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::account::Account;
use super::description::StopSignal;
use crate::cgroup::Group;
use crate::observe::process::{children, started_at};

/// How long a program may take to end by itself when nothing is said.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(5);
/// Most bytes of a log's end that are shown.
const TAIL_BYTES: u64 = 4096;
/// Most lines of them.
const TAIL_LINES: usize = 12;
/// Takes its limit of open files, enters the groups, then becomes the program: nothing of it runs outside.
const ENTER: &str = "[ \"$1\" = - ] || ulimit -n \"$1\" || exit 126; shift; n=$1; shift; while [ \"$n\" -gt 0 ]; do echo $$ >\"$1\" || exit 126; shift; n=$((n-1)); done; exec \"$@\"";

/// What to start.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) folder: PathBuf,
    pub(super) cores: Vec<u32>,
    pub(super) stop: StopSignal,
    /// How long it may take to end by itself.
    pub(super) patience: Duration,
    /// Files that it may open; as many as the lab may where absent.
    pub(super) open_files: Option<u64>,
    pub(super) group: Option<Group>,
    /// File that gets its standard output; the log otherwise.
    pub(super) output: Option<PathBuf>,
    /// Whom it runs as, when not as the lab does, and the program that changes that.
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
    /// Starts a program; what it prints goes to `log` in its folder.
    pub(super) fn start(launch: Launch) -> io::Result<Self> {
        let log = launch.folder.join("log");
        let child = spawn(&launch, &log)?;
        let pid = Pid::from_child(&child);
        Ok(Self { launch, child, pid, log, ended: false })
    }

    /// Ends it where it still runs, and starts it anew: the same program with the same arguments and limits.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.end_all();
        self.child = spawn(&self.launch, &self.log)?;
        self.pid = Pid::from_child(&self.child);
        self.ended = false;
        Ok(())
    }

    /// Sends a signal to it, or to it and everything that it started and that still runs.
    pub(super) fn signal(&self, signal: Signal, everybody: bool) -> io::Result<()> {
        // Its number may be another's by now.
        if self.ended {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it has ended"));
        }
        // Looked for before it hears of it: whose parent has ended is not known to be of the family any more. And after it: it may have started more.
        let of_family = || if everybody { family(self.pid()) } else { BTreeSet::new() };
        let before = of_family();
        kill_process(self.pid, signal)?;
        let same = |(pid, start): &(u32, u64)| started_at(*pid) == Some(*start);
        for (pid, _) in before.union(&of_family()).filter(|one| same(one)) {
            // Who has ended in between needs none.
            let _ = i32::try_from(*pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
        }
        Ok(())
    }

    /// Its control group.
    pub(super) fn group(&self) -> Option<&Group> {
        self.launch.group.as_ref()
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where what it prints is.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, when it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        if self.ended {
            return self.child.try_wait().ok().flatten().map(words);
        }
        // Until it is waited for, its number is not given to another.
        let status = is_zombie(self.pid()).then(|| self.child.try_wait().ok().flatten()).flatten()?;
        self.kill_rest(&BTreeSet::new());
        self.ended = true;
        Some(words(status))
    }

    /// The last lines that it printed.
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
            return "    (it printed nothing)".to_owned();
        }
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Asks it to end, with the signal that it takes for that.
    pub(super) fn ask_to_end(&self) {
        let signal = match self.launch.stop {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
        };
        // Who has ended by itself needs none, and until it is waited for its number is not given to another.
        if !self.ended {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Ends it and everything it started: asks first, then insists.
    pub(super) fn end(&mut self) {
        self.end_all();
        // Removed now, not when somebody forgets about it.
        self.launch.group = None;
    }

    fn end_all(&mut self) {
        if self.ended {
            return;
        }
        let family = family(self.pid());
        self.ask_to_end();
        // Who was made to stand still hears it only then.
        let _ = self.signal(Signal::CONT, true);
        let until = Instant::now() + self.launch.patience;
        while !is_zombie(self.pid()) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        self.kill_rest(&family);
        let _ = self.child.wait();
        self.ended = true;
    }

    /// Ends what is left of its group and of what it started. It has not been waited for, so that its number is its own still.
    fn kill_rest(&self, family: &BTreeSet<(u32, u64)>) {
        let _ = kill_process_group(self.pid, Signal::KILL);
        let same = family.iter().filter(|(pid, start)| started_at(*pid) == Some(*start)).map(|(pid, _)| *pid);
        let grouped = self.launch.group.iter().flat_map(Group::processes);
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
    let doors: Vec<PathBuf> = launch.group.iter().flat_map(Group::doors).collect();
    // The account is left behind last: only root may write into the groups.
    let mut words: Vec<OsString> = Vec::new();
    if !doors.is_empty() || launch.open_files.is_some() {
        words.extend(["/bin/sh", "-c", ENTER, "lab"].map(OsString::from));
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
    on_cores(&launch.cores, || command.spawn())?
}

/// Everything that a process started and that still runs, with start times: numbers are given again, but not both.
fn family(root: u32) -> BTreeSet<(u32, u64)> {
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

/// It has ended and was not waited for.
fn is_zombie(pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let state = text.rfind(')').and_then(|at| text[at + 1..].trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "in an unknown way".to_owned(),
    }
}

/// Does something on these cores only, which a process that it starts inherits; on all when there are none. An error: one of them cannot be used.
pub(crate) fn on_cores<T>(cores: &[u32], work: impl FnOnce() -> T) -> io::Result<T> {
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
                format!("core {core} is not one that can be used here"),
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
            patience: PATIENCE,
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
                std::thread::sleep(LOOK);
            }
        };
        let sleeps = |pid: u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
        };
        wait(&|| family(process.pid()).iter().any(|(pid, _)| sleeps(*pid)));
        let all = family(process.pid());
        process.signal(Signal::KILL, true).unwrap();
        wait(&|| all.iter().all(|(pid, start)| started_at(*pid) != Some(*start) || is_zombie(*pid)));
    }
}
