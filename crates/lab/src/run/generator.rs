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

use lab_analysis::offline::import::{self, ImportError, Told, Tool};
use lab_analysis::record::{Iteration, Outcome};
use lab_analysis::units::{nanos, seconds, whole};
use lab_load::Interrupt;
use lab_load::generator::{Asked, COMPONENT, Generator, Loop};
use lab_load::load::{Probe, Stop, Target};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::Failed;
use crate::files::read_bounded;
use crate::scenario::{Arriving, Load};
use crate::topology::{Programs, Root, Started, TopologyError, on_cores};

/// Time between two checks of whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
/// How much longer than its load the generator may run: hey sorts its results at the end.
const LONGER: Duration = Duration::from_mins(1);
/// Most lines of its error output in a failure.
const LINES: usize = 3;

/// The program that sends the load, and where it runs.
pub(super) struct Sender {
    generator: Generator,
    /// Path of the other generator; `None` for the lab itself.
    program: Option<PathBuf>,
    folder: PathBuf,
    root: Root,
    cores: Vec<u32>,
}

impl Sender {
    /// Finds the program. Its files are written to `folder`.
    pub(super) fn new(
        generator: Generator,
        programs: &Programs,
        folder: PathBuf,
        cores: &[u32],
    ) -> Result<Self, TopologyError> {
        let program = generator.program().map(|name| programs.find(COMPONENT, name, None)).transpose()?;
        let root = Root::default();
        if program.is_none() {
            root.set(std::process::id());
        }
        Ok(Self { generator, program, folder, root, cores: cores.to_vec() })
    }

    /// Calls `send` with its thread bound to the generator's cores.
    pub(super) fn on_cores<T>(&self, send: impl FnOnce() -> T) -> Result<T, Failed> {
        on_cores(&self.cores, send).map_err(|error| self.failed(&format!("cannot be run: {error}")))
    }

    /// Component entry for the samplers. If the lab sends, only its own process is sampled, because
    /// its children are components of their own.
    pub(super) fn watched(&self) -> Started {
        Started {
            name: COMPONENT.to_owned(),
            root: Some(self.root.clone()),
            alone: self.program.is_none(),
            ports: Vec::new(),
            limits: lab_load::cgroup::Limits::default(),
            counters: None,
            memory_events: None,
            metrics: None,
        }
    }

    /// Whether another program than the lab sends the load.
    pub(super) fn is_another(&self) -> bool {
        self.program.is_some()
    }

    /// Sends a load with the other program. Returns the iteration, and whether it was interrupted.
    pub(super) fn send(
        &self,
        target: &Target,
        token: Option<&str>,
        load: &Load,
        probe: Probe,
        interrupt: &Interrupt,
    ) -> Result<(Iteration, bool), Failed> {
        let Stop::After(duration) = load.stop else {
            return Err(self.failed("needs a load with `duration`, not `requests`"));
        };
        let origin = Instant::now();
        if let Some(started) = probe.started {
            started(origin);
        }
        let run = |lasting| self.run(target, token, load, lasting, interrupt);
        let warm = if load.warmup.is_zero() { true } else { run(load.warmup)?.is_some() };
        let begun = nanos(origin.elapsed());
        let said = if warm { run(duration)? } else { None };
        let ended = nanos(origin.elapsed());
        let Some(said) = said else { return Ok((Iteration::new(1, 0.0), true)) };
        let Some(mut iteration) = said.iteration(self.generator.name())? else {
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
            slice.at_ms += whole(window * 1e3);
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
    ) -> Result<Option<Said>, Failed> {
        let Arriving::Closed(workers) = load.arrivals else {
            return Err(self.failed("needs a closed loop: set `arrivals = \"closed\"` in the load"));
        };
        let asked = Loop {
            url: &target.url,
            token,
            workers,
            seconds: lasting.as_secs().max(1),
            timeout: load.timeout.as_secs().max(1),
            every_request: load.every_request,
        };
        let (Some(program), Some(asked)) = (&self.program, self.generator.ask(&asked, &self.folder)) else {
            return Err(self.failed("is the lab itself"));
        };
        let said = self.words(program, &asked, lasting + load.timeout + LONGER, interrupt);
        self.root.set(0);
        said
    }

    fn words(
        &self,
        program: &Path,
        asked: &Asked,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Said>, Failed> {
        let name = self.generator.name();
        let [printed, errors] = ["out", "err"].map(|end| self.folder.join(format!("{name}.{end}")));
        let cannot = |error: io::Error| self.failed(&format!("cannot be run: {error}"));
        fs::create_dir_all(&self.folder).map_err(cannot)?;
        if let Some((path, text)) = &asked.script {
            fs::write(path, text).map_err(cannot)?;
        }
        // h2load appends to an existing file.
        if let Some(file) = asked.file.as_ref().filter(|file| file.exists()) {
            fs::remove_file(file).map_err(cannot)?;
        }
        let child = Command::new(program)
            .args(&asked.arguments)
            .envs(asked.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(&printed).map_err(cannot)?)
            .stderr(File::create(&errors).map_err(cannot)?)
            // Ctrl-C at a terminal must reach only the lab, which then ends the program.
            .process_group(0)
            .spawn();
        let mut family = Family { child: child.map_err(cannot)?, over: false };
        self.root.set(family.child.id());
        let until = Instant::now() + patience;
        while !family.has_ended().map_err(cannot)? {
            if interrupt.is_set() {
                return Ok(None);
            }
            if Instant::now() > until {
                return Err(self.failed(&format!("did not end within {} s", patience.as_secs())));
            }
            std::thread::sleep(LOOK);
        }
        let status = family.end().map_err(cannot)?;
        if !status.success() {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
            return Err(self.failed(&format!("ended with {status}: {last}")));
        }
        let text = |file: &Path| {
            let bytes = read_bounded(file)
                .map_err(|error| self.failed(&format!("output cannot be read: {error}")))?;
            String::from_utf8(bytes).map_err(|_| self.failed("output is not UTF-8 text"))
        };
        let beside = asked.printed.map(|form| Ok::<_, Failed>((text(&printed)?, form))).transpose()?;
        let content = text(asked.file.as_ref().unwrap_or(&printed))?;
        Ok(Some(Said { content: (content, asked.form), beside }))
    }

    fn failed(&self, why: &str) -> Failed {
        Failed::Generator { name: self.generator.name(), why: why.to_owned() }
    }
}

/// Output of the other generator.
struct Said {
    content: (String, Tool),
    /// Second output, which reports requests that are missing in the first.
    beside: Option<(String, Tool)>,
}

impl Said {
    /// Converts the output to an iteration; `None` if no request ended.
    fn iteration(&self, by: &str) -> Result<Option<Iteration>, Failed> {
        let told = Told { variant: COMPONENT.to_owned(), concurrency: None, file: by.to_owned() };
        let read = |(content, form): &(String, Tool)| match import::iteration(content, *form, &told) {
            Err(ImportError::Empty { .. }) => Ok(None),
            other => other.map(Some),
        };
        let beside = self.beside.as_ref().map(read).transpose()?.flatten();
        let Some(mut iteration) = read(&self.content)? else { return Ok(beside) };
        let lost = beside.into_iter().flat_map(|beside| beside.classes);
        iteration.classes.extend(lost.filter(|class| class.outcome == Outcome::Failed));
        Ok(Some(iteration))
    }
}

/// A process and its children, which end together. Without this, a child of a script would continue
/// to send.
struct Family {
    child: Child,
    over: bool,
}

impl Family {
    /// Whether the process has ended. It is not waited for yet, so that its process ID and its
    /// group ID cannot be reused.
    fn has_ended(&self) -> io::Result<bool> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), look)?.is_some())
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.over {
            self.over = true;
            // No child may be left in the group.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        self.child.wait()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
