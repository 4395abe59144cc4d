//! Load sender of an arrangement: another load generator, or the lab itself, sampled like a
//! component.
//!
//! If the load has a warm-up, the other generator runs twice; the results of the first run are
//! discarded.
//!
//! Owns: the process of the other generator, from start to end, and the conversion of its output to
//! an iteration. Does not own: its command line ([`lab_load::generator`]), and the format of its
//! output ([`lab_analysis::offline::import`]).

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lab_analysis::offline::import::{self, ImportError, ImportOptions, Tool};
use lab_analysis::record::{Iteration, Outcome};
use lab_analysis::units::{nanos, seconds, truncated};
use lab_load::Interrupt;
use lab_load::generator::{COMPONENT, ClosedLoop, Generator, GeneratorCommand};
use lab_load::load::{MeasureOptions, Stop, Target};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::ArrangementError;
use crate::files::read_bounded;
use crate::scenario::{ArrivalPattern, Load};
use crate::topology::{ComponentInfo, ProgramFinder, RootPid, TopologyError, with_affinity};

/// Time between two checks of whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How much longer than its load the generator may run: hey sorts its results at the end.
const EXTRA_TIMEOUT: Duration = Duration::from_mins(1);
/// Most lines of its error output in a failure.
const MAX_ERROR_LINES: usize = 3;

/// The program that sends the load, and where it runs.
pub(super) struct LoadSender {
    generator: Generator,
    /// Path of the other generator; `None` for the lab itself.
    program: Option<PathBuf>,
    folder: PathBuf,
    root: RootPid,
    cores: Vec<u32>,
}

impl LoadSender {
    /// Finds the program. Its files are written to `folder`.
    pub(super) fn new(
        generator: Generator,
        programs: &ProgramFinder,
        folder: PathBuf,
        cores: &[u32],
    ) -> Result<Self, TopologyError> {
        let program = generator.program().map(|name| programs.find(COMPONENT, name, None)).transpose()?;
        let root = RootPid::default();
        if program.is_none() {
            root.set(std::process::id());
        }
        Ok(Self { generator, program, folder, root, cores: cores.to_vec() })
    }

    /// Calls `send` with its thread bound to the generator's cores.
    pub(super) fn on_cores<T>(&self, send: impl FnOnce() -> T) -> Result<T, ArrangementError> {
        with_affinity(&self.cores, send).map_err(|error| self.failure(&format!("cannot be run: {error}")))
    }

    /// Component entry for the samplers. If the lab sends, only its own process is sampled, because
    /// its children are components of their own.
    pub(super) fn component_info(&self) -> ComponentInfo {
        ComponentInfo {
            name: COMPONENT.to_owned(),
            root: Some(self.root.clone()),
            root_only: self.program.is_none(),
            ports: Vec::new(),
            limits: lab_load::cgroup::Limits::default(),
            counters: None,
            memory_events: None,
            metrics: None,
        }
    }

    /// Whether another program than the lab sends the load.
    pub(super) fn is_external(&self) -> bool {
        self.program.is_some()
    }

    /// Sends a load with the other program. Returns the iteration, and whether it was interrupted.
    pub(super) fn send(
        &self,
        target: &Target,
        token: Option<&str>,
        load: &Load,
        probe: MeasureOptions,
        interrupt: &Interrupt,
    ) -> Result<(Iteration, bool), ArrangementError> {
        let Stop::After(duration) = load.stop else {
            return Err(self.failure("needs a load with `duration`, not `requests`"));
        };
        let origin = Instant::now();
        if let Some(started) = probe.started {
            started(origin);
        }
        let run = |lasting| self.run(target, token, load, lasting, interrupt);
        let warm = if load.warmup.is_zero() { true } else { run(load.warmup)?.is_some() };
        let begun = nanos(origin.elapsed());
        let output = if warm { run(duration)? } else { None };
        let ended = nanos(origin.elapsed());
        let Some(output) = output else { return Ok((Iteration::new(1, 0.0), true)) };
        let Some(mut iteration) = output.iteration(self.generator.name())? else {
            return Ok((Iteration::new(1, 0.0), false));
        };
        // hey needs extra time after its load, to sort; the other generators need it before they
        // begin.
        let window = if self.generator == Generator::Hey {
            seconds(begun)
        } else {
            (seconds(ended) - iteration.seconds).max(seconds(begun))
        };
        iteration.warmup_s = window;
        for slice in &mut iteration.timeline {
            slice.at_ms += truncated(window * 1e3);
        }
        Ok((iteration, false))
    }

    /// Runs the program once. Returns its output, or `None` if it was interrupted.
    fn run(
        &self,
        target: &Target,
        token: Option<&str>,
        load: &Load,
        lasting: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<GeneratorOutput>, ArrangementError> {
        let ArrivalPattern::Closed(workers) = load.arrivals else {
            return Err(self.failure("needs a closed loop: set `arrivals = \"closed\"` in the load"));
        };
        let closed_loop = ClosedLoop {
            url: &target.url,
            token,
            workers,
            seconds: lasting.as_secs().max(1),
            timeout: load.timeout.as_secs().max(1),
            every_request: load.every_request,
        };
        let (Some(program), Some(command)) =
            (&self.program, self.generator.command(&closed_loop, &self.folder))
        else {
            return Err(self.failure("is the lab itself"));
        };
        let output = self.run_program(program, &command, lasting + load.timeout + EXTRA_TIMEOUT, interrupt);
        self.root.set(0);
        output
    }

    fn run_program(
        &self,
        program: &Path,
        command: &GeneratorCommand,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<GeneratorOutput>, ArrangementError> {
        let name = self.generator.name();
        let [printed, errors] = ["out", "err"].map(|end| self.folder.join(format!("{name}.{end}")));
        let cannot = |error: io::Error| self.failure(&format!("cannot be run: {error}"));
        fs::create_dir_all(&self.folder).map_err(cannot)?;
        if let Some((path, text)) = &command.script {
            fs::write(path, text).map_err(cannot)?;
        }
        // h2load appends to an existing file.
        if let Some(file) = command.output_file.as_ref().filter(|file| file.exists()) {
            fs::remove_file(file).map_err(cannot)?;
        }
        let child = Command::new(program)
            .args(&command.arguments)
            .envs(command.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(&printed).map_err(cannot)?)
            .stderr(File::create(&errors).map_err(cannot)?)
            // Ctrl-C at a terminal must reach only the lab, which then ends the program.
            .process_group(0)
            .spawn();
        let mut family = ProcessGroup { child: child.map_err(cannot)?, ended: false };
        self.root.set(family.child.id());
        let until = Instant::now() + patience;
        while !family.has_ended().map_err(cannot)? {
            if interrupt.is_set() {
                return Ok(None);
            }
            if Instant::now() > until {
                return Err(self.failure(&format!("did not end within {} s", patience.as_secs())));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let status = family.end().map_err(cannot)?;
        if !status.success() {
            let stderr = fs::read_to_string(&errors).unwrap_or_default();
            let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = lines[lines.len().saturating_sub(MAX_ERROR_LINES)..].join("; ");
            return Err(self.failure(&format!("ended with {status}: {last}")));
        }
        let text = |file: &Path| {
            let bytes = read_bounded(file)
                .map_err(|error| self.failure(&format!("output cannot be read: {error}")))?;
            String::from_utf8(bytes).map_err(|_| self.failure("output is not UTF-8 text"))
        };
        let beside = command
            .stdout_format
            .map(|form| Ok::<_, ArrangementError>((text(&printed)?, form)))
            .transpose()?;
        let content = text(command.output_file.as_ref().unwrap_or(&printed))?;
        Ok(Some(GeneratorOutput { content: (content, command.output_format), extra: beside }))
    }

    fn failure(&self, why: &str) -> ArrangementError {
        ArrangementError::Generator { name: self.generator.name(), why: why.to_owned() }
    }
}

/// Output of the other generator.
struct GeneratorOutput {
    content: (String, Tool),
    /// Second output, which reports requests that are missing in the first.
    extra: Option<(String, Tool)>,
}

impl GeneratorOutput {
    /// Converts the output to an iteration; `None` if no request ended.
    fn iteration(&self, generator: &str) -> Result<Option<Iteration>, ArrangementError> {
        let options =
            ImportOptions { variant: COMPONENT.to_owned(), concurrency: None, file: generator.to_owned() };
        let read = |(content, form): &(String, Tool)| match import::iteration(content, *form, &options) {
            Err(ImportError::Empty { .. }) => Ok(None),
            other => other.map(Some),
        };
        let beside = self.extra.as_ref().map(read).transpose()?.flatten();
        let Some(mut iteration) = read(&self.content)? else { return Ok(beside) };
        let lost = beside.into_iter().flat_map(|beside| beside.classes);
        iteration.classes.extend(lost.filter(|class| class.outcome == Outcome::Failed));
        Ok(Some(iteration))
    }
}

/// A process and its children, which end together. Without this, a child of a script would continue
/// to send.
struct ProcessGroup {
    child: Child,
    ended: bool,
}

impl ProcessGroup {
    /// Whether the process has ended. It is not waited for yet, so that its process ID and its
    /// group ID cannot be reused.
    fn has_ended(&self) -> io::Result<bool> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), look)?.is_some())
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.ended {
            self.ended = true;
            // No child may be left in the group.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        self.child.wait()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
