//! Run facts: machine, commit, versions and configuration, which decide whether two runs can be
//! compared.
//!
//! Owns: reading them from the machine. Does not own: their form in the record
//! ([`lab_analysis::record`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA256};
use lab_analysis::record::{Cgroup, Machine, Origin, Peer, Run};
use lab_load::generator::{COMPONENT, Generator};

use crate::scenario::Scenario;
use crate::topology::{ProgramFinder, Workdir};

/// What is known before a run starts.
pub(super) struct Facts {
    title: String,
    scenario: String,
    quick: bool,
    started_unix_s: f64,
    commit: Option<String>,
    configuration: String,
    machine: Machine,
    peers: Vec<Peer>,
    counting: BTreeMap<String, String>,
}

/// Collects the facts about scenario, machine and programs.
pub(super) fn gather(scenario: &Scenario, place: &Workdir, commit: Option<String>) -> Facts {
    Facts {
        title: format!("{}: {}", scenario.name, scenario.title),
        scenario: scenario.name.clone(),
        quick: scenario.quick,
        started_unix_s: now(),
        commit: commit.or_else(git_commit),
        configuration: digest(scenario),
        machine: machine(place),
        peers: peers(scenario, place),
        counting: super::counts::counting_environment(scenario, place),
    }
}

impl Facts {
    /// Converts the facts to the run section of the record.
    pub(super) fn into_run(self, seed: u64, partial: bool) -> Run {
        Run {
            title: self.title,
            scenario: Some(self.scenario),
            origin: Origin::Lab { version: env!("CARGO_PKG_VERSION").to_owned(), generators: 1 },
            started_unix_s: Some(self.started_unix_s),
            commit: self.commit,
            configuration: Some(self.configuration),
            seed: Some(seed),
            quick: self.quick,
            partial,
            machines: vec![self.machine],
            peers: self.peers,
            counting: self.counting,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a report says when its run was; nothing is computed from it")]
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    since.floor()
}

/// Commit of the working folder, with a note about local changes; `None` without a git repository.
fn git_commit() -> Option<String> {
    let ask = |words: &[&str]| {
        let output =
            Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = ask(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| !commit.is_empty())?;
    let changed =
        ask(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    Some(if changed { format!("{commit} with local changes") } else { commit })
}

/// Digest of all source texts, and of the loads, counts and arrangements.
fn digest(scenario: &Scenario) -> String {
    let mut context = Context::new(&SHA256);
    let mut add = |text: &str| {
        // Each text is preceded by its length, so that different lists of texts never give the same
        // bytes.
        context.update(&lab_analysis::units::count(text.len()).to_be_bytes());
        context.update(text.as_bytes());
    };
    for (name, text) in &scenario.sources {
        // The digest includes the file name and content, not the path.
        add(Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or(name));
        add(text);
    }
    for (name, load) in &scenario.loads {
        add(name);
        add(&format!("{load:?}"));
    }
    if let Some(counts) = &scenario.counts {
        add(&format!("{counts:?}"));
    }
    for arrangement in &scenario.arrangements {
        add(&arrangement.name);
        add(&format!("{:?} {:?} {:?}", arrangement.change, arrangement.loads, arrangement.generator));
        add(&format!("{:?}", arrangement.generator_cores));
    }
    let digest = context.finish();
    let hex: Vec<String> = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    hex.concat()
}

fn machine(place: &Workdir) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let field = |text: &str, name: &str| {
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.split_once(':')?.1.trim().to_owned()))
    };
    let memory = read("/proc/meminfo");
    let kibibytes = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let cgroup = place.hierarchy().own_limits().map(|(version, cpu_limit_cores, memory_limit_bytes)| {
        Cgroup { version, cpu_limit_cores, memory_limit_bytes }
    });
    Machine {
        role: "servers and generator".to_owned(),
        cores: u32::try_from(crate::topology::cores()).unwrap_or(u32::MAX),
        processor: field(&cpu, "model name").or_else(|| field(&cpu, "Model")),
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        memory_bytes: kibibytes.unwrap_or(0) << 10,
        cgroup,
    }
}

/// Installed programs of the scenario, with their versions.
fn peers(scenario: &Scenario, place: &Workdir) -> Vec<Peer> {
    let mut found = BTreeMap::new();
    for arrangement in &scenario.arrangements {
        let generator = arrangement.generator.and_then(Generator::program);
        let generator = generator.map(|name| (COMPONENT, name, None));
        for (component, program, table) in arrangement.topology.programs().chain(generator) {
            if !found.contains_key(program)
                && let Ok(path) = place.programs().find(component, program, table)
            {
                let optimization = place.programs().optimization_of(&path);
                let version = ProgramFinder::version(program, &path, table);
                found.insert(program.to_owned(), (version, optimization));
            }
        }
    }
    let peer = |(name, (version, optimization)): (String, (Option<String>, _))| Peer {
        name,
        version: version.unwrap_or_else(|| "unknown".to_owned()),
        optimization,
    };
    found.into_iter().map(peer).collect()
}
