//! `postern-load`: the load generator and the process sampler of the `lab_load` crate as a program.
//!
//! Exit codes:
//!
//! - 0: measured;
//! - 1: not measured, with an error message;
//! - 2: wrong command line;
//! - 3: measured, but more requests were unsuccessful than `--max-failures` permits.

mod args;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::{Cli, Command, Observe, Output, Provider, Run};
use clap::Parser as _;
use lab_load::idle_connections::HoldPlan;
use lab_load::observe::ProcessSampler;
use lab_load::report::{self, ObserveReport, hold_table, load_table, observe_table, provider_table};
use serde::Serialize;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(run) => run_load(&run),
        Command::Provider(transactions) => run_provider(&transactions),
        Command::Idle(idle) => idle.plan().and_then(|plan| run_hold(plan, idle.output())),
        Command::SlowLoris(slow) => slow.plan().and_then(|plan| run_hold(plan, slow.output())),
        Command::Observe(observe) => run_observe(&observe),
    };
    result.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "postern-load: {error}");
        ExitCode::from(1)
    })
}

fn run_load(run: &Run) -> Result<ExitCode, Failure> {
    let report = report::run_load(&run.plan()?)?;
    print(&run.output, &report, &load_table(&report))?;
    let too_many = run.max_failures.is_some_and(|most| report.unsuccessful() > most);
    Ok(if too_many { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

fn run_provider(transactions: &Provider) -> Result<ExitCode, Failure> {
    let report = report::run_provider(&transactions.plan()?)?;
    print(&transactions.output, &report, &provider_table(&report))?;
    let too_many = transactions.max_failures.is_some_and(|most| report.unsuccessful() > most);
    Ok(if too_many { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

fn run_hold(plan: HoldPlan, output: &Output) -> Result<ExitCode, Failure> {
    let wanted = plan.connections;
    let report = report::run_hold(plan, |open| {
        // A script can wait for this line: from then on the connections are held.
        let _ = writeln!(std::io::stderr(), "postern-load: holding {open} of {wanted} connections");
    })?;
    print(output, &report, &hold_table(&report))?;
    Ok(ExitCode::SUCCESS)
}

fn run_observe(observe: &Observe) -> Result<ExitCode, Failure> {
    let watched = observe.output.watch();
    if watched.is_empty() {
        return Err("no process to watch: use --watch NAME=PID".into());
    }
    let origin = Instant::now();
    let watch = ProcessSampler::start(watched, observe.interval, origin)?;
    let until = observe.duration.map(|duration| origin + duration);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ended = async {
            while until.is_none_or(|until| Instant::now() < until)
                && watched.iter().any(|watched| alive(watched.pid))
            {
                tokio::time::sleep(observe.interval.min(Duration::from_millis(100))).await;
            }
        };
        tokio::select! {
            () = ended => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    });
    let series = watch.stop();
    let seen = series.iter().map(|series| series.in_window(Duration::ZERO, Duration::MAX, None)).collect();
    let report = ObserveReport::new(seen);
    print(&observe.output, &report, &observe_table(&report))?;
    Ok(ExitCode::SUCCESS)
}

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn print(output: &Output, report: &impl Serialize, table: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match &output.json {
        None => stdout.write_all(table.as_bytes())?,
        Some(file) => {
            let mut json = serde_json::to_string_pretty(report)?;
            json.push('\n');
            if file.as_os_str() == "-" {
                stdout.write_all(json.as_bytes())?;
            } else {
                fs::write(file, json)
                    .map_err(|error| format!("cannot write `{}`: {error}", file.display()))?;
                stdout.write_all(table.as_bytes())?;
            }
        }
    }
    Ok(())
}
