//! `postern lab` in a binary that was built without the lab: says how to get one that has it.
//!
//! Owns: that message. Takes the place of module `lab` if the feature `lab` is off.

use std::ffi::OsString;

use clap::Args;

use crate::exit::{Failure, Outcome};

/// Any arguments, because none is read.
#[derive(Debug, Args)]
#[command(after_help = "This binary was built without the lab.")]
pub struct Arguments {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<OsString>,
}

/// Fails, and names the command that builds a binary with the lab.
pub fn run(_: &Arguments) -> Result<Outcome, Failure> {
    Err(Failure::new(
        "this binary was built without the lab; build one with it: cargo build --profile dist -p postern --features lab",
    ))
}
