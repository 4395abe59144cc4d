//! `postern completions`: what makes a shell complete the command line.

use std::io;

use clap::Command;
use clap_complete::Shell;

use crate::exit::{Failure, Outcome};

/// Arguments of `postern completions`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  postern completions bash > postern         for /etc/bash_completion.d
  postern completions zsh > _postern         for /usr/local/share/zsh/site-functions
  postern completions fish > postern.fish    for ~/.config/fish/completions

The packages for Debian and Red Hat install them.

Exit codes: 0 success, 2 the command line is invalid, 3 standard output cannot be written.")]
pub struct Arguments {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Runs `postern completions` for this command line.
pub fn run(arguments: &Arguments, mut command: Command) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "postern", &mut script);
    match io::Write::write_all(&mut io::stdout(), &script) {
        // The reader has what it wants.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Outcome::Success),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(Outcome::Success),
    }
}
