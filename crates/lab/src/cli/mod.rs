//! Lab commands: `postern lab run`, and the offline commands
//! `import|report|compare|history|size|merge|gate|audit|schema`.
//!
//! The binary mounts [`Arguments`] and calls [`run()`]. Output goes to the given writer.
//!
//! Owns: arguments, and the outcome of a command. Does not own: files ([`crate::files`]), and the
//! work ([`crate::run`], [`lab_analysis::offline`]).

mod history;
mod run;
mod size;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use lab_analysis::diagnose;
use lab_analysis::offline::audit::{self, AuditError, Tables};
use lab_analysis::offline::compare::{CompareError, Side, Terms, compare};
use lab_analysis::offline::gate::{Baseline, GateError, GateResult, changed_since, gate};
use lab_analysis::offline::history::HistoryError;
use lab_analysis::offline::import::{self, ImportError, ImportOptions, Tool};
use lab_analysis::offline::merge::{MergeError, merge};
use lab_analysis::offline::size::SizeError;
use lab_analysis::offline::warnings::warnings;
use lab_analysis::record::{Doubt, Record};

use crate::files::{
    FileError, MOST_BYTES, read_baseline, read_bounded, read_record, read_tables, write_baseline,
    write_report, write_sheet,
};
use crate::relay::{self, RelayError};
use crate::run::RunError;
use crate::topology::{ProgramFinder, TopologyError};

/// Arguments of the command `postern lab`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A run writes report.json. The other commands read such files.

Examples:
  postern lab run --scenario paths --quick --out run     start programs, load and watch them
  postern lab import hey.csv --concurrency 50 --out hey  import the result of another tool
  postern lab report run/report.json --out run           write Markdown, HTML and CSV from the record
  postern lab compare a/report.json b/report.json        compare two runs
  postern lab history reports --out trend                figures of all reports in a folder, over time
  postern lab size run/report.json --path fused/oidc --rate 5000    cores that a load needs
  postern lab gate run/report.json --baseline base.json  fail when a checked figure exceeds its tolerance
  postern lab audit                                      list wrong conclusions in published reports

Exit codes: 0 success, 1 a check failed or a run is incomplete, 2 the command line is not
valid, 3 a file cannot be used.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Whether the command starts and measures programs, so that how they were built matters.
    pub fn starts_programs(&self) -> bool {
        matches!(&self.command, Command::Run(run) if run.starts_programs())
    }
}

#[derive(Debug, Subcommand)]
#[expect(clippy::doc_markdown, reason = "these comments are the help, where a name has no backticks")]
enum Command {
    /// Measure: start programs, load and sample them, and report
    Run(run::Run),
    /// Import a result of another load generator, such as k6, JMeter or Gatling
    Import(Import),
    /// Write a run's report as Markdown, HTML and CSV
    Report(Report),
    /// Compare two runs, or two variants of one run
    Compare(Compare),
    /// Show the key figures of all reports below a folder over time, and name changes
    History(history::History),
    /// Compute how many cores a load needs, from measured reports
    Size(size::Size),
    /// Merge the records of several load generators into one run
    Merge(Merge),
    /// Check a run against a committed baseline
    Gate(Gate),
    /// Recompute published tables and list conclusions that do not follow from them
    Audit(Audit),
    /// Forward connections between components of a topology, with injected loss
    Relay(relay::Arguments),
    /// Print the JSON schema of report.json
    Schema,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
If the file has every request (see --tool), the record has a histogram, and the percentiles by the
rule of the tool. If it has only a summary, the record says so: no histogram is invented.

Nighthawk's JSON is read by its published schema; this was not tried with a file that it wrote.
Gatling's log is binary from 3.13 on, and not read: import js/stats.js of its report.

Examples:
  postern lab import hey.csv --concurrency 50 --variant fused --out hey")]
struct Import {
    /// Result file of the tool; - for standard input
    file: PathBuf,
    /// Tool and format of the file, if they cannot be detected from the content
    #[arg(long, value_parser = tools())]
    tool: Option<Tool>,
    /// Name of the variant
    #[arg(long, default_value = "imported")]
    variant: String,
    /// Number of workers, if the file does not contain it
    #[arg(long)]
    concurrency: Option<u32>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct Report {
    /// The run's report.json
    record: PathBuf,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct Output {
    /// Folder for report.json, report.md, report.html and CSV files
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Iterations are paired by number. For each figure the comparison says one of three things:
equivalent within the margin (two one-sided tests), different by an amount (by its interval, or in
every round), or inconclusive, which does not mean that there is no difference.

Examples:
  postern lab compare a/report.json b/report.json            two runs: variants of one name
  postern lab compare run/report.json --a 2x/oidc/open --b fused/oidc/open   two of one run
  postern lab compare run/report.json --a direct/open --b 3x/oidc/open --margin 10 --out difference")]
struct Compare {
    /// report.json of the first run
    first: PathBuf,
    /// report.json of the second run; without it, two variants of the first run are compared
    second: Option<PathBuf>,
    /// Variant of the first run
    #[arg(long, value_name = "VARIANT")]
    a: Option<String>,
    /// Variant of the second run
    #[arg(long, value_name = "VARIANT")]
    b: Option<String>,
    /// Largest difference that counts as equivalent, in percent of the first run's figure
    #[arg(long, default_value_t = 5.0, value_parser = percent)]
    margin: f64,
    /// Folder for compare.md and compare.html; without it, Markdown is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Merge {
    /// report.json files of all load generators of one run
    #[arg(required = true, num_args = 2..)]
    records: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
A baseline has repeatable counts and ratios within a run, each with a tolerance. Edit it to
add or change checks. A violation is printed and gives exit code 1.

Examples:
  postern lab gate run/report.json --baseline lab.baseline.json
  postern lab gate run/report.json --baseline lab.baseline.json --update   with this run's figures")]
struct Gate {
    /// The run's report.json
    record: PathBuf,
    /// The baseline file
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,
    /// Write the baseline again, with the same checks and this run's figures, or create it
    #[arg(long)]
    update: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Without a file, the published reports that ship with the lab are audited. A file is JSON in the
form that --example prints, JSON with a list of published results, or a Markdown report, whose
tables are read; docs/reference/lab.md describes them.

Examples:
  postern lab audit                          the published reports
  postern lab audit --example > tables.json  a file to begin with
  postern lab audit tables.json
  postern lab audit report.md

Exit codes: 0 all claims follow from the data, 1 some do not. Remarks that only advise
caution do not change the exit code.")]
struct Audit {
    /// Tables and claims: JSON, or a Markdown page
    file: Option<PathBuf>,
    /// Print the remarks as JSON
    #[arg(long)]
    json: bool,
    /// Print the shipped tables as an example instead
    #[arg(long, conflicts_with_all = ["file", "json"])]
    example: bool,
}

/// Outcome of a command that was executed to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The command succeeded.
    Success,
    /// The result is negative, such as a failed check. The command has printed the reason.
    Negative,
}

/// Why a command could not be executed to its end.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A scenario cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A topology or a scenario cannot be used.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A file cannot be imported.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Two runs cannot be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// No report of a folder can be shown.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The reports do not carry a plan.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The records do not belong to one run.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// A baseline cannot be used.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// Tables cannot be audited.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The relay cannot start.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// Only one run is given, without two variants to compare.
    #[error("only one run given: name two of its variants with --a and --b")]
    OneRun,
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// A report could not be written to its folder; the record was saved elsewhere.
    #[error("{refused}; the record was saved as `{}`: run `lab report` on it", .path.display())]
    SavedElsewhere {
        /// Error of the first attempt.
        refused: Box<CliError>,
        /// Path of the saved record.
        path: PathBuf,
    },
}

/// Parser of a tool's name. Its help describes the format of each tool.
fn tools() -> impl TypedValueParser<Value = Tool> {
    let known = Tool::ALL.map(|tool| PossibleValue::new(tool.name()).help(tool.form()));
    PossibleValuesParser::new(known).try_map(|name| Tool::named(&name).ok_or("unknown tool"))
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value > 0.0 && value < 100.0 { Ok(value) } else { Err("must be above 0 and below 100".to_owned()) }
}

/// Executes a command and writes its output to `out`. `programs` are those that `lab run` finds
/// without `--program`.
///
/// # Errors
/// The command could not be executed to its end.
pub fn run(
    arguments: &Arguments,
    programs: &ProgramFinder,
    out: &mut dyn Write,
) -> Result<CommandOutcome, CliError> {
    match &arguments.command {
        Command::Run(arguments) => run::run(arguments, programs, out),
        Command::Import(import) => run_import(import, out),
        Command::Report(it) => report(read_record(&it.record)?, &it.output, out),
        Command::Compare(compare) => run_compare(compare, out),
        Command::History(arguments) => history::run(arguments, out),
        Command::Size(arguments) => size::run(arguments, out),
        Command::Merge(merge) => run_merge(merge, out),
        Command::Gate(gate) => run_gate(gate, out),
        Command::Audit(audit) => run_audit(audit, out),
        Command::Relay(arguments) => {
            relay::run(arguments)?;
            Ok(CommandOutcome::Success)
        }
        Command::Schema => {
            writeln!(out, "{:#}", Record::schema())?;
            Ok(CommandOutcome::Success)
        }
    }
}

/// Writes a report, then prints its warnings and its paths.
fn report(mut record: Record, output: &Output, out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    record.thin();
    let paths = write_report(&record, &output.out)?;
    let mut findings = diagnose::findings(&record);
    findings.retain(|finding| finding.doubt != Doubt::Explains);
    for warning in warnings(&findings, "") {
        let about = Some(warning.about()).filter(|about| !about.is_empty());
        let about = about.map_or(String::new(), |about| format!(" ({about})"));
        writeln!(out, "! {}{about}: {}; {}", warning.name, warning.evidence(), warning.remedy)?;
    }
    for path in &paths {
        writeln!(out, "{}", path.display())?;
    }
    Ok(CommandOutcome::Success)
}

fn run_import(arguments: &Import, out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    let (name, bytes) = if arguments.file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(io::stdin().lock(), MOST_BYTES + 1), &mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(FileError::TooLarge { path: "standard input".to_owned() }.into());
        }
        ("standard input".to_owned(), bytes)
    } else {
        let name = arguments.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, read_bounded(&arguments.file)?)
    };
    let content = import::decode(bytes, &name)?;
    let options =
        ImportOptions { variant: arguments.variant.clone(), concurrency: arguments.concurrency, file: name };
    report(import::import(&content, arguments.tool, &options)?, &arguments.output, out)
}

fn run_compare(arguments: &Compare, out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    let first = read_record(&arguments.first)?;
    let second = arguments.second.as_deref().map(read_record).transpose()?;
    if second.is_none() && (arguments.a.is_none() || arguments.b.is_none()) {
        return Err(CliError::OneRun);
    }
    let name = |path: &Path, variant: &Option<String>| match (&second, variant) {
        (None, Some(variant)) => variant.clone(),
        _ => path.display().to_string(),
    };
    let files = (arguments.first.as_path(), arguments.second.as_deref().unwrap_or(&arguments.first));
    let names = (name(files.0, &arguments.a), name(files.1, &arguments.b));
    let files = (files.0.display().to_string(), files.1.display().to_string());
    let a = Side { name: &names.0, file: &files.0, record: &first, variant: arguments.a.as_deref() };
    let other = second.as_ref().unwrap_or(&first);
    let b = Side { name: &names.1, file: &files.1, record: other, variant: arguments.b.as_deref() };
    let sheet = compare(a, b, Terms { margin: arguments.margin / 100.0 })?;
    match &arguments.out {
        None => out.write_all(sheet.markdown().as_bytes())?,
        Some(folder) => {
            for path in write_sheet(&sheet, folder, "compare")? {
                writeln!(out, "{}", path.display())?;
            }
        }
    }
    Ok(CommandOutcome::Success)
}

fn run_merge(arguments: &Merge, out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    let read = arguments.records.iter().map(|path| Ok((path.display().to_string(), read_record(path)?)));
    let records = read.collect::<Result<Vec<_>, FileError>>()?;
    report(merge(records)?, &arguments.output, out)
}

fn run_gate(arguments: &Gate, out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    let record = read_record(&arguments.record)?;
    if arguments.update {
        let renewed = if arguments.baseline.exists() {
            read_baseline(&arguments.baseline)?.with_figures_of(&record)?
        } else {
            Baseline::from_run(&record)?
        };
        write_baseline(&renewed, &arguments.baseline)?;
        writeln!(out, "{} checks written to {}", renewed.checks.len(), arguments.baseline.display())?;
        return Ok(CommandOutcome::Success);
    }
    let baseline = read_baseline(&arguments.baseline)?;
    let GateResult { passed: kept, breaches } = gate(&record, &baseline);
    for breach in &breaches {
        writeln!(out, "{breach}")?;
    }
    writeln!(out, "{kept} of {} checks passed", baseline.checks.len())?;
    if !breaches.is_empty() {
        let changed = changed_since(&record, &baseline);
        for change in &changed {
            writeln!(out, "since the baseline was written, {change}")?;
        }
        let (run, file) = (arguments.record.display(), arguments.baseline.display());
        let renew = format!("postern lab gate {run} --baseline {file} --update");
        if changed.is_empty() {
            writeln!(out, "if this change is intended, update the baseline: {renew}")?;
        } else {
            let commit = baseline.commit.as_deref().unwrap_or("the baseline's commit");
            writeln!(
                out,
                "the environments differ: run {commit} in this environment, update the baseline ({renew}), and compare again"
            )?;
        }
    }
    Ok(if breaches.is_empty() { CommandOutcome::Success } else { CommandOutcome::Negative })
}

fn run_audit(arguments: &Audit, out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    let tables = match &arguments.file {
        Some(file) => read_tables(file)?,
        None => Tables::shipped()?,
    };
    if arguments.example {
        writeln!(out, "{:#}", serde_json::to_value(&tables).map_err(io::Error::from)?)?;
        return Ok(CommandOutcome::Success);
    }
    let remarks = audit::audit(&tables);
    if arguments.json {
        writeln!(out, "{:#}", serde_json::to_value(&remarks).map_err(io::Error::from)?)?;
    } else {
        out.write_all(audit::markdown(&tables, &remarks).as_bytes())?;
    }
    let wrong = remarks.iter().any(|remark| remark.doubt == Doubt::Invalid);
    Ok(if wrong { CommandOutcome::Negative } else { CommandOutcome::Success })
}
