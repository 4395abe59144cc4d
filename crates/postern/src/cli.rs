//! Command line: the commands and their exit codes.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cmd;
use crate::exit::Outcome;
use crate::terminal::ERROR;

/// An access gateway: authenticates the caller, authorizes the request, and forwards it.
#[derive(Debug, Parser)]
#[command(name = "postern", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Start with `postern demo`, which needs nothing else.

Exit codes:
  0  success
  1  negative result: a faulty configuration, a refused request, a difference
  2  the command line is invalid
  3  failure: a port in use, no network, no permission")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway, the provider, or both.
    Serve(cmd::serve::Arguments),
    /// Administer the provider: users, groups, clients, sessions, keys, tokens, the audit log,
    /// backups.
    Admin(cmd::admin::Arguments),
    /// Run a demo on this machine: gateway, token provider and a service, nothing to install.
    Demo(cmd::demo::Arguments),
    /// Check a configuration, show what it means, and what it would decide.
    Check(cmd::check::Arguments),
    /// Run a light upstream for trials, tests and measurements.
    Echo(cmd::echo::Arguments),
    /// Get an access token, or decode one.
    Token(cmd::token::Arguments),
    /// Measure: run topologies under load; import, report, compare, merge, gate and audit
    /// measurements.
    #[cfg(feature = "lab")]
    Lab(cmd::lab::Arguments),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => cmd::serve::run(&arguments),
        Command::Admin(arguments) => cmd::admin::run(arguments),
        Command::Demo(arguments) => cmd::demo::run(&arguments),
        Command::Check(arguments) => cmd::check::run(arguments),
        Command::Echo(arguments) => cmd::echo::run(arguments),
        Command::Token(arguments) => cmd::token::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Lab(arguments) => cmd::lab::run(&arguments),
    };
    match outcome {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Err(failure) => {
            anstream::eprintln!("{ERROR}error{ERROR:#}: {failure}");
            ExitCode::from(if failure.is_usage() { 2 } else { 3 })
        }
    }
}
