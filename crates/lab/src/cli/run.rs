//! Command `lab run`: measures a scenario.
//!
//! Owns: its arguments, and the output before and after the run. Does not own: the run
//! ([`crate::run`]).

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use lab_analysis::formatting;
use lab_analysis::offline::targets::{TargetResult, judge};
use lab_analysis::record::Record;
use lab_load::Interrupt;
use lab_load::generator::Generator;

use super::{CliError, CommandOutcome, Output, report};
use crate::files::{check_writable, write_record};
use crate::run::{self, Options, ProgressOutput};
use crate::scenario::{Scenario, ScenarioOptions};
use crate::topology::{Library, ProgramFinder, Topology};

/// Default folder of the report.
const DEFAULT_OUT: &str = "lab-report";

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  postern lab run --scenario paths --quick            every path to a service, in about a minute
  postern lab run --scenario cpu-limit                what a CPU limit does to authentication
  postern lab run --topology fused --out today        a closed loop, then a sustainable rate
  postern lab run --scenario mine.toml --topology 3x  only its variants of one topology
  postern lab run --list                              scenarios and topologies that ship

Programs are searched in PATH, or given with --program. Ctrl-C ends the
programs; the report is still written.

Exit codes: 0 everything was measured in every round, and every target of the scenario is met,
1 otherwise (the report has the reason), or the run was interrupted, 3 nothing was measured.")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct Run {
    /// Shipped scenario or TOML file; without it, one topology is measured
    #[arg(long, value_name = "FILE|NAME", required_unless_present_any = ["topology", "list"])]
    scenario: Option<String>,
    /// Only variants of these topologies or, without a scenario, the topology to measure;
    /// comma-separated
    #[arg(long, value_name = "FILE|NAME", value_delimiter = ',')]
    topology: Vec<String>,
    /// Folder for report.json, report.md, report.html and CSV files
    #[arg(long, value_name = "DIR", default_value = DEFAULT_OUT)]
    out: PathBuf,
    /// Quick form, about a minute, for a first impression; the report is marked
    #[arg(long)]
    quick: bool,
    /// Number of rounds, instead of the scenario's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seed of arrivals, tokens and order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Show throughput, latency, CPU and throttling during the run
    #[arg(long)]
    live: bool,
    /// Profile all components in an additional round: call stacks on and off a core, with perf where
    /// the kernel permits it
    #[arg(long)]
    profile: bool,
    /// Keep configurations, logs and callgrind profiles of all components, in the folder work of the
    /// report
    #[arg(long)]
    keep: bool,
    /// Path of a program
    #[arg(long, value_name = "NAME=PATH", value_parser = program)]
    program: Vec<(String, PathBuf)>,
    /// Commit that is measured, if the working folder is not its repository
    #[arg(long)]
    commit: Option<String>,
    /// Start at the next multiple of this duration on the clock, such as 2m, so that several
    /// generators start together
    #[arg(long, value_name = "DURATION", value_parser = lab_analysis::amount::duration)]
    align: Option<Duration>,
    /// Read the scenario and its topologies, print what would run, and exit without starting
    /// anything
    #[arg(long)]
    check: bool,
    /// List the shipped scenarios and topologies, and exit
    #[arg(long)]
    list: bool,
}

impl Run {
    pub(super) fn starts_programs(&self) -> bool {
        !self.list && !self.check
    }
}

fn program(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err("write NAME=PATH, such as envoy=/opt/envoy".to_owned()),
    }
}

pub(super) fn run(
    arguments: &Run,
    programs: &ProgramFinder,
    out: &mut dyn Write,
) -> Result<CommandOutcome, CliError> {
    if arguments.list {
        return list(out);
    }
    let wish = ScenarioOptions {
        quick: arguments.quick,
        rounds: arguments.rounds,
        topologies: arguments.topology.clone(),
    };
    let mut scenario = Scenario::read(arguments.scenario.as_deref().unwrap_or("one"), &wish)?;
    scenario.profile |= arguments.profile;
    let given = arguments.program.iter().cloned();
    let programs = given.fold(programs.clone(), |all, (name, path)| all.with(&name, path));
    if arguments.check {
        return check(&scenario, &programs, out);
    }
    let options = Options {
        seed: arguments.seed,
        keep: arguments.keep.then(|| arguments.out.join("work")),
        commit: arguments.commit.clone(),
        show: if arguments.live { ProgressOutput::Live } else { ProgressOutput::Lines },
        programs,
    };
    check_writable(&arguments.out)?;
    let interrupt = Interrupt::from_signals().map_err(run::RunError::Prepare)?;
    if let Some(step) = arguments.align {
        let wait = until_multiple_of(step, since_unix_epoch());
        writeln!(out, "starting in {} s", wait.as_secs())?;
        out.flush()?;
        // After an interrupt during this wait, the run ends immediately without measurements.
        interrupt.sleep(wait);
    }
    let ran = run::run(&scenario, options, &interrupt)?;
    if let Some(work) = &ran.work {
        writeln!(out, "configurations and logs: {}", work.display())?;
    }
    let output = Output { out: arguments.out.clone() };
    let missed = missed_targets(&ran.record);
    let targets = ran.record.targets.len();
    if let Err(refused) = report(ran.record.clone(), &output, out) {
        // The results of a long run must not be lost because a disk is full.
        let rescued = save_elsewhere(&ran.record);
        return Err(match rescued {
            Some(path) => CliError::SavedElsewhere { refused: Box::new(refused), path },
            None => refused,
        });
    }
    for missed in &missed {
        writeln!(out, "{missed}")?;
    }
    if targets > 0 {
        writeln!(out, "{} of {targets} targets are met", targets - missed.len())?;
    }
    Ok(if ran.is_complete() && missed.is_empty() {
        CommandOutcome::Success
    } else {
        CommandOutcome::Negative
    })
}

/// Saves a record in a temporary file, if it cannot be written to its folder. Returns the path;
/// `None` if this fails too.
fn save_elsewhere(record: &Record) -> Option<PathBuf> {
    let file = tempfile::Builder::new().prefix("report-").suffix(".json").tempfile().ok()?;
    write_record(record, file.path()).ok()?;
    // The file is kept only after a complete write; a partial one is removed with its handle.
    file.keep().ok().map(|(_, path)| path)
}

/// One sentence for each missed target.
fn missed_targets(record: &Record) -> Vec<String> {
    let missed = judge(record).into_iter().filter(|judged| !judged.is_met());
    let words = |judged: TargetResult<'_>| {
        let TargetResult { target, result: seen, scatter: between, requirement: wanted, .. } = judged;
        let between = if between.is_empty() { String::new() } else { format!(" ({})", between.join("; ")) };
        format!("target missed: {} ({target}): {seen}{between}, required {wanted}", target.says)
    };
    missed.map(words).collect()
}

/// Time until the clock shows a multiple of `step`.
fn until_multiple_of(step: Duration, now: Duration) -> Duration {
    let (step, now) = (step.as_nanos().max(1), now.as_nanos());
    let left = (step - now % step) % step;
    Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "generators have nothing but their clocks in common")]
fn since_unix_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Prints what would run.
fn check(
    scenario: &Scenario,
    programs: &ProgramFinder,
    out: &mut dyn Write,
) -> Result<CommandOutcome, CliError> {
    writeln!(
        out,
        "{}: {}{}",
        scenario.name,
        scenario.title,
        formatting::expected_duration(scenario.min_duration())
    )?;
    for arrangement in &scenario.arrangements {
        let topology = &arrangement.topology;
        writeln!(out, "{}  {}", arrangement.name, topology.summary())?;
        for (name, source) in topology.component_sources() {
            writeln!(out, "  {name}: {source}")?;
        }
        writeln!(out, "  load entry: {}", topology.entry_urls().join(", "))?;
        if let Some(name) = arrangement.generator.and_then(Generator::program) {
            writeln!(out, "  load generator: {name}")?;
        }
        if let Err(missing) = arrangement.check_programs(programs) {
            writeln!(out, "  would be excluded: {missing}")?;
        }
        for load in &arrangement.loads {
            let rounds = scenario.loads[load].rounds_of(scenario.rounds);
            writeln!(out, "  {}, {rounds} rounds", scenario.variant(arrangement, load))?;
        }
    }
    if scenario.profile {
        writeln!(out, "profiles of all components, in round {}", scenario.rounds + 1)?;
    }
    if let Some(counts) = &scenario.counts {
        let [few, many] = counts.requests;
        writeln!(
            out,
            "counts of {}: instructions and allocations, {many} requests minus {few}",
            counts.component
        )?;
    }
    Ok(CommandOutcome::Success)
}

fn list(out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    writeln!(out, "Scenarios (--scenario):")?;
    for name in Library::scenarios() {
        writeln!(out, "  {name:<18} {}", Scenario::title_of(name)?)?;
    }
    writeln!(out, "\nTopologies (--topology):")?;
    for name in Library::topologies() {
        let topology = Topology::read(name)?;
        let modes = topology.modes().join(", ");
        writeln!(
            out,
            "  {name:<18} {}{}",
            topology.summary(),
            if modes.is_empty() { String::new() } else { format!(" ({modes})") }
        )?;
    }
    Ok(CommandOutcome::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_that_are_aligned_begin_at_the_same_moment() {
        let wait = |step, now| until_multiple_of(Duration::from_secs(step), Duration::from_millis(now));
        assert_eq!(wait(120, 119_500), Duration::from_millis(500));
        assert_eq!(wait(120, 1_000), Duration::from_secs(119));
        assert_eq!(wait(120, 240_000), Duration::ZERO);
    }
}
