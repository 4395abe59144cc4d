//! `postern lab`: the commands of crate `lab`, mounted.
//!
//! Owns: how an ending of the lab becomes one of this binary, and which program the lab starts as `postern`. Does not own: arguments and work, which are the lab's.

use std::io::Write as _;

pub use lab::cli::Arguments;
use lab::cli::Ending;
use lab::topology::Programs;

use crate::exit::{Failure, Outcome};

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    // What the lab measures as `postern` is this very program, unless it is told another.
    let own = std::env::current_exe();
    let programs =
        own.map_or_else(|_| Programs::default(), |own| Programs::default().with_own("postern", own));
    let mut out = std::io::stdout().lock();
    let ended =
        lab::cli::run(arguments, &programs, &mut out).map_err(|error| Failure::new(error.to_string()))?;
    out.flush().map_err(|error| Failure::new(format!("cannot write: {error}")))?;
    Ok(match ended {
        Ending::Good => Outcome::Good,
        Ending::No => Outcome::No,
    })
}
