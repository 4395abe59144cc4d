//! Component: one component of a topology, which runs, stands by, or runs elsewhere.
//!
//! Owns: its process from start to end, its readiness, and its files, which can be rewritten during
//! a run. Does not own: the order of components and the values of names ([`super::running`]), and
//! when an event affects it ([`super::during`]).

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lab_load::Interrupt;
use lab_load::cgroup::{self, ComponentGroup, Limits};

use super::account::Account;
use super::description::{Metrics, Ready};
use super::process::{Launch, Process};
use super::template::Values;
use super::{TopologyError, ready};
use crate::topology::workdir::{failed, write_private};

/// Time between two checks of whether the process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A component as the samplers see it.
#[derive(Debug, Clone)]
pub(crate) struct ComponentInfo {
    pub(crate) name: String,
    /// Process of the component; `None` if it runs elsewhere.
    pub(crate) root: Option<RootPid>,
    /// `true` if the child processes belong to other components, so that only the root process
    /// counts.
    pub(crate) root_only: bool,
    /// Ports on which the component listens for clients.
    pub(crate) ports: Vec<u16>,
    pub(crate) limits: Limits,
    /// File with the throttling counters of its CPU limit.
    pub(crate) counters: Option<PathBuf>,
    /// File with the counter of processes that the kernel killed for lack of memory.
    pub(crate) memory_events: Option<PathBuf>,
    pub(crate) metrics: Option<Metrics>,
}

/// Process ID of a component. It changes when the component is restarted.
#[derive(Debug, Clone, Default)]
pub(crate) struct RootPid(Arc<AtomicU32>);

impl RootPid {
    /// Current process ID; `None` before a standby component is started.
    pub(crate) fn pid(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }

    /// Sets the process ID after a start.
    pub(crate) fn set(&self, pid: u32) {
        self.0.store(pid, Ordering::Relaxed);
    }
}

/// How the lab determines that a component is ready.
#[derive(Default)]
pub(super) struct Readiness {
    /// Probe to use; `None` if there is no probe.
    pub(super) probe: Option<Ready>,
    /// Longest wait until the component is ready.
    pub(super) timeout: Duration,
    /// Pause between two probes.
    pub(super) poll_interval: Duration,
}

/// Configuration files of a component.
#[derive(Default)]
pub(super) struct ComponentFiles {
    folder: PathBuf,
    account: Option<Account>,
    /// Values of the names that are used in the files.
    pub(super) values: Values,
    /// Files whose content differs from that at the start.
    pub(super) changed: BTreeSet<String>,
}

impl ComponentFiles {
    pub(super) fn new(folder: PathBuf, account: Option<Account>, values: Values) -> Self {
        Self { folder, account, values, changed: BTreeSet::new() }
    }

    /// Replaces a file atomically, so that a reader never sees a part of it.
    pub(super) fn replace(&self, name: &str, text: &str) -> Result<(), TopologyError> {
        let (path, fresh) = (self.folder.join(name), self.folder.join(format!(".{name}.new")));
        write_private(&fresh, text)?;
        if let Some(account) = self.account {
            account.chown(&fresh).map_err(failed("give away", &fresh))?;
        }
        fs::rename(&fresh, &path).map_err(failed("write", &path))
    }
}

/// A component of a running topology.
pub(super) struct RunningComponent {
    pub(super) info: ComponentInfo,
    pub(super) process: Option<Process>,
    /// How to start the program; `None` after the start, and for a component that runs elsewhere.
    launch: Option<Launch>,
    ready: Readiness,
    pub(super) files: ComponentFiles,
    /// `true` if an event ended the component on purpose during load.
    pub(super) stopped_on_purpose: bool,
}

impl RunningComponent {
    /// Creates a component that is started here, but not started yet.
    pub(super) fn new(about: ComponentInfo, launch: Launch, ready: Readiness, files: ComponentFiles) -> Self {
        Self { info: about, process: None, launch: Some(launch), ready, files, stopped_on_purpose: false }
    }

    /// Creates a component that runs elsewhere.
    pub(super) fn elsewhere(about: ComponentInfo) -> Self {
        let (ready, files) = (Readiness::default(), ComponentFiles::default());
        Self { info: about, process: None, launch: None, ready, files, stopped_on_purpose: false }
    }

    /// Whether the component is started here and has not been started yet.
    pub(super) fn is_standby(&self) -> bool {
        self.launch.is_some()
    }

    /// Starts the program for the first time and waits until it is ready.
    pub(super) fn begin(&mut self, interrupt: &Interrupt) -> Result<(), TopologyError> {
        let Some(launch) = self.launch.take() else { return Ok(()) };
        self.process = Some(start(&self.info.name, launch)?);
        self.wait(interrupt)
    }

    /// Waits until the component is ready after a start.
    pub(super) fn wait(&mut self, interrupt: &Interrupt) -> Result<(), TopologyError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        self.stopped_on_purpose = false;
        self.info.root.iter().for_each(|root| root.set(process.pid()));
        wait_until_ready(&self.info.name, &self.ready, process, interrupt)
    }

    /// Asks the program to end, and waits until it has ended with exit code 0.
    ///
    /// # Errors
    /// The program ended in another way, or did not end within `patience`.
    pub(super) fn end(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<(), TopologyError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        self.stopped_on_purpose = true;
        process.send_stop_signal();
        let until = Instant::now() + patience;
        loop {
            match process.exit_status() {
                Some(status) if status == "exit code 0" => return Ok(()),
                Some(status) => return Err(ended(&self.info.name, status, process)),
                None if Instant::now() >= until => {
                    return Err(TopologyError::Unended {
                        component: self.info.name.clone(),
                        seconds: patience.as_secs_f64(),
                        log: process.log().to_path_buf(),
                        tail: process.tail(),
                    });
                }
                None if interrupt.sleep(POLL_INTERVAL) => return Err(TopologyError::Interrupted),
                None => {}
            }
        }
    }

    /// Returns an error if the process has ended.
    pub(super) fn check(&mut self) -> Result<(), TopologyError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        process.exit_status().map_or(Ok(()), |status| Err(ended(&self.info.name, status, process)))
    }
}

/// Starts the program of a component.
pub(super) fn start(component: &str, launch: Launch) -> Result<Process, TopologyError> {
    let program = launch.program.display().to_string();
    Process::start(launch).map_err(|error| TopologyError::Start {
        component: component.to_owned(),
        program,
        error,
    })
}

pub(super) fn ended(name: &str, mut status: String, process: &Process) -> TopologyError {
    let events = process.group().and_then(ComponentGroup::memory_events_file);
    if events.is_some_and(|events| cgroup::oom_kills(&events).is_some_and(|kills| kills > 0)) {
        status.push_str(", killed at its memory limit: raise `memory_limit`");
    }
    TopologyError::Ended {
        component: name.to_owned(),
        status,
        log: process.log().to_path_buf(),
        tail: process.tail(),
    }
}

/// Waits until a started component is ready.
fn wait_until_ready(
    name: &str,
    ready: &Readiness,
    process: &mut Process,
    interrupt: &Interrupt,
) -> Result<(), TopologyError> {
    let Some(how) = &ready.probe else { return Ok(()) };
    match ready::wait(how, ready.timeout, ready.poll_interval, interrupt, || process.exit_status()) {
        ready::ReadinessResult::Ready => Ok(()),
        ready::ReadinessResult::Interrupted => Err(TopologyError::Interrupted),
        ready::ReadinessResult::Ended(status) => Err(ended(name, status, process)),
        ready::ReadinessResult::TimedOut(why) => Err(unready(name, ready.timeout, why, process)),
    }
}

pub(super) fn unready(name: &str, timeout: Duration, why: String, process: &Process) -> TopologyError {
    TopologyError::Unready {
        component: name.to_owned(),
        seconds: timeout.as_secs_f64(),
        why,
        log: process.log().to_path_buf(),
        tail: process.tail(),
    }
}
