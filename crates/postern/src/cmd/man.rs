//! `postern man`: writes the manual pages, one for each command. Packages are made with it.

use std::fs;
use std::path::PathBuf;

use clap::Command;

use crate::exit::{Failure, Outcome};

/// Arguments of `postern man`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  postern man pages     then: man -l pages/postern-serve.1

For `man postern-serve` the folder is one of MANPATH, such as /usr/local/share/man/man1.

Exit codes: 0 success, 2 the command line is invalid, 3 a page cannot be written.")]
pub struct Arguments {
    /// Folder for the pages. It is created if necessary; existing pages are replaced.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs `postern man` for this command line.
pub fn run(arguments: &Arguments, command: Command) -> Result<Outcome, Failure> {
    let folder = &arguments.folder;
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot write the manual pages to {}: {error}", folder.display()))
    };
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    Ok(Outcome::Success)
}
