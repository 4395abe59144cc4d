//! `postern lab` in a binary that was built without the lab: says how to get one that has it.
//!
//! Owns: that message. Takes the place of module `lab` if the feature `lab` is off.

use std::ffi::OsString;

use clap::Args;

use crate::exit::{Failure, Outcome};

/// Where there is a binary with the lab.
const REMEDY: &str = "take the tarball or the image `postern-lab`, or build one: \
                      cargo build --profile dist -p postern --features lab";

/// Any arguments, because none is read.
#[derive(Debug, Args)]
#[command(
    after_help = "This binary was built without the lab.",
    after_long_help = format!("This binary was built without the lab: {REMEDY}\n\nExit codes: 3, always.")
)]
pub struct Arguments {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<OsString>,
}

/// Fails, and says where there is a binary with the lab.
pub fn run(_: &Arguments) -> Result<Outcome, Failure> {
    Err(Failure::new(format!("this binary was built without the lab; {REMEDY}")))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::{Arguments, run};

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn any_command_of_the_lab_names_the_build_that_has_it() {
        for words in [&["lab"][..], &["lab", "run", "--scenario", "paths", "--quick"], &["lab", "audit"]] {
            let program = Program::try_parse_from(words).unwrap();
            let failure = run(&program.arguments).unwrap_err();
            assert!(failure.to_string().contains("--features lab"), "{failure}");
        }
    }

    #[test]
    fn the_long_help_has_the_exit_codes() {
        let help = Program::command().render_long_help().to_string();
        assert!(help.contains("--features lab") && help.contains("Exit codes: 3"), "{help}");
    }
}
