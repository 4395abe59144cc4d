//! `postern lab`: runs the commands of crate `lab`.
//!
//! Owns: mapping results of the lab to exit codes of this binary, choosing the program that the lab
//! starts as `postern`, and a warning if that is not the build to measure. Does not own: arguments
//! and work, which belong to the lab.

use std::io::Write as _;

pub use lab::cli::Arguments;
use lab::cli::CommandOutcome;
use lab::topology::ProgramFinder;

use crate::exit::{Failure, Outcome};
use crate::terminal::WARNING;

/// Optimization level of this crate, from the build script. Only the profile `dist` has 3.
const OPTIMIZATION: &str = env!("POSTERN_OPT_LEVEL");

/// Runs `postern lab`.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    if arguments.starts_programs() && OPTIMIZATION != "3" {
        anstream::eprintln!(
            "{WARNING}warning{WARNING:#}: this postern is not fully optimized; for figures to keep: \
             cargo build --profile dist -p postern --features lab"
        );
    }
    // By default, the lab measures this very program as `postern`.
    let own = std::env::current_exe();
    let programs = own.map_or_else(
        |_| ProgramFinder::default(),
        |own| ProgramFinder::default().with_own("postern", own, OPTIMIZATION),
    );
    let mut out = std::io::stdout().lock();
    let ended =
        lab::cli::run(arguments, &programs, &mut out).map_err(|error| Failure::new(error.to_string()))?;
    out.flush().map_err(|error| Failure::new(format!("cannot write: {error}")))?;
    Ok(match ended {
        CommandOutcome::Success => Outcome::Success,
        CommandOutcome::Negative => Outcome::Negative,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cmd::documented::assert_row_has_members_of;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn remarks_of_an_audit_have_the_documented_members() {
        let program = Program::try_parse_from(["lab", "audit", "--json"]).unwrap();
        let mut out = Vec::new();
        lab::cli::run(&program.arguments, &ProgramFinder::default(), &mut out).unwrap();
        let remarks: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_row_has_members_of("lab audit --json", &remarks);
    }
}
