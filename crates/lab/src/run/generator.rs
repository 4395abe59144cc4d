//! Who sends the load of an arrangement, where that is said: another load generator, or the lab itself as one of the components.
//!
//! Owns: the other generator's process, from start to end, and its words as an iteration. Does not own: its command line
//! ([`crate::generator`]) and the form of its words ([`crate::desk::import`]). It sends twice where the load has a warm-up: what it sees
//! then is passed over.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::Failed;
use crate::desk::import::{self, Told};
use crate::generator::{Asked, COMPONENT, Generator, Loop};
use crate::interrupt::Interrupt;
use crate::load::{Probe, Stop, Target};
use crate::record::{Iteration, read_bounded};
use crate::scenario::{Arriving, Load};
use crate::topology::{Programs, Root, Started, TopologyError};
use crate::units::{nanos, seconds};

/// Between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
/// It may take so much longer than its load: hey sorts what it saw.
const LONGER: Duration = Duration::from_mins(1);
/// Most of what it says about a failure.
const LINES: usize = 3;

/// Who sends.
pub(super) struct Sender {
    generator: Generator,
    /// Absent for the lab itself.
    program: Option<PathBuf>,
    folder: PathBuf,
    root: Root,
}

impl Sender {
    /// Finds it; its files are in `folder`.
    pub(super) fn new(
        generator: Generator,
        programs: &Programs,
        folder: PathBuf,
    ) -> Result<Self, TopologyError> {
        let program = generator.program().map(|name| programs.find(COMPONENT, name, None)).transpose()?;
        let root = Root::default();
        if program.is_none() {
            root.set(std::process::id());
        }
        Ok(Self { generator, program, folder, root })
    }

    /// For whoever watches components. What the lab started is watched by its own name.
    pub(super) fn watched(&self) -> Started {
        Started {
            name: COMPONENT.to_owned(),
            root: Some(self.root.clone()),
            alone: self.program.is_none(),
            ports: Vec::new(),
            limits: crate::cgroup::Limits::default(),
            counters: None,
            memory_events: None,
            metrics: None,
        }
    }

    /// It is not the lab.
    pub(super) fn is_another(&self) -> bool {
        self.program.is_some()
    }

    /// Sends a load with the other program; the iteration, and whether it was ended early.
    pub(super) fn send(
        &self,
        target: &Target,
        token: Option<&str>,
        load: &Load,
        probe: Probe,
        interrupt: &Interrupt,
    ) -> Result<(Iteration, bool), Failed> {
        let Stop::After(duration) = load.stop else {
            return Err(self.failed("takes no number of requests here: give the load a `duration`"));
        };
        let origin = Instant::now();
        if let Some(started) = probe.started {
            started(origin);
        }
        let run = |lasting| self.run(target, token, load, lasting, interrupt);
        let warm = if load.warmup.is_zero() { true } else { run(load.warmup)?.is_some() };
        let warmup = nanos(origin.elapsed());
        let said = if warm { run(duration)? } else { None };
        let Some((content, form)) = said else { return Ok((Iteration::new(1, 0.0), true)) };
        let file = self.generator.name().to_owned();
        let told = Told { variant: COMPONENT.to_owned(), concurrency: None, file };
        let mut iteration = import::iteration(&content, form, &told)?;
        iteration.warmup_s = seconds(warmup);
        for slice in &mut iteration.timeline {
            slice.at_ms += warmup / 1_000_000;
        }
        Ok((iteration, false))
    }

    /// One run of it; what it says, or nothing when it was ended early.
    fn run(
        &self,
        target: &Target,
        token: Option<&str>,
        load: &Load,
        lasting: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<(String, import::Tool)>, Failed> {
        let Arriving::Closed(workers) = load.arrivals else {
            return Err(self.failed("has no rate here: give the load `arrivals = \"closed\"`"));
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
        let content = self.words(program, &asked, lasting + LONGER, interrupt);
        self.root.set(0);
        Ok(content?.map(|content| (content, asked.form)))
    }

    fn words(
        &self,
        program: &Path,
        asked: &Asked,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<String>, Failed> {
        let name = self.generator.name();
        let [printed, errors] = ["out", "err"].map(|end| self.folder.join(format!("{name}.{end}")));
        let cannot = |error: std::io::Error| self.failed(&format!("cannot be run: {error}"));
        fs::create_dir_all(&self.folder).map_err(cannot)?;
        if let Some((path, text)) = &asked.script {
            fs::write(path, text).map_err(cannot)?;
        }
        // h2load adds to what is there.
        if let Some(file) = asked.file.as_ref().filter(|file| file.exists()) {
            fs::remove_file(file).map_err(cannot)?;
        }
        let mut child = Command::new(program)
            .args(&asked.arguments)
            .envs(asked.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(&printed).map_err(cannot)?)
            .stderr(File::create(&errors).map_err(cannot)?)
            // Ctrl-C at a terminal is for the lab, which ends it.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        self.root.set(child.id());
        let until = Instant::now() + patience;
        let status: Option<ExitStatus> = loop {
            match child.try_wait().map_err(cannot)? {
                Some(status) => break Some(status),
                None if interrupt.is_set() || Instant::now() > until => break None,
                None => std::thread::sleep(LOOK),
            }
        };
        let Some(status) = status else {
            let _ = child.kill();
            child.wait().map_err(cannot)?;
            if interrupt.is_set() {
                return Ok(None);
            }
            return Err(self.failed(&format!("did not end within {} s", patience.as_secs())));
        };
        if !status.success() {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
            return Err(self.failed(&format!("ended with {status}: {last}")));
        }
        let file = asked.file.as_ref().unwrap_or(&printed);
        let bytes =
            read_bounded(file).map_err(|error| self.failed(&format!("left nothing to read: {error}")))?;
        String::from_utf8(bytes).map(Some).map_err(|_| self.failed("says what is no text"))
    }

    fn failed(&self, why: &str) -> Failed {
        Failed::Generator { name: self.generator.name(), why: why.to_owned() }
    }
}
