//! `postern lab`: the commands of crate `lab`, mounted.
//!
//! Owns: how an ending of the lab becomes one of this binary. Does not own: arguments and work, which are the lab's.

use std::io::Write as _;

use lab::cli::Ending;

use crate::cli::{Failure, Outcome};

pub use lab::cli::Arguments;

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let mut out = std::io::stdout().lock();
    let ended = lab::cli::run(arguments, &mut out).map_err(|error| Failure::new(error.to_string()))?;
    out.flush().map_err(|error| Failure::new(format!("cannot write: {error}")))?;
    Ok(match ended {
        Ending::Good => Outcome::Good,
        Ending::No => Outcome::No,
    })
}
