//! Command line: the commands and their exit codes.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::cmd;
use crate::exit::Outcome;
use crate::terminal::ERROR;

/// Version with the commit of the source and its date, which the build script finds.
const VERSION: &str = env!("POSTERN_VERSION");

/// An access gateway: authenticates the caller, authorizes the request, and forwards it.
#[derive(Debug, Parser)]
#[command(name = "postern", version = VERSION, arg_required_else_help = true, max_term_width = 100)]
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
    /// Write a first configuration: what is protected, and by whom callers are known.
    Init(cmd::init::Arguments),
    /// Check a configuration, show what it means, and what it would decide.
    Check(cmd::check::Arguments),
    /// Ask a running process on this machine whether it is ready.
    Health(cmd::health::Arguments),
    /// Translate the settings of another proxy into a configuration.
    Migrate(cmd::migrate::Arguments),
    /// Run a light upstream for trials, tests and measurements.
    Echo(cmd::echo::Arguments),
    /// Get an access token, or decode one.
    Token(cmd::token::Arguments),
    /// Measure: run topologies under load; import, report, compare, merge, gate and audit
    /// measurements.
    Lab(cmd::lab::Arguments),
    /// Print the completions of the command line for a shell.
    Completions(cmd::completions::Arguments),
    /// Write the manual pages.
    Man(cmd::man::Arguments),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => cmd::serve::run(&arguments),
        Command::Admin(arguments) => cmd::admin::run(arguments),
        Command::Demo(arguments) => cmd::demo::run(&arguments),
        Command::Init(arguments) => cmd::init::run(&arguments),
        Command::Check(arguments) => cmd::check::run(arguments),
        Command::Health(arguments) => cmd::health::run(&arguments),
        Command::Completions(arguments) => cmd::completions::run(&arguments, Cli::command()),
        Command::Man(arguments) => cmd::man::run(&arguments, Cli::command()),
        Command::Migrate(arguments) => cmd::migrate::run(arguments),
        Command::Echo(arguments) => cmd::echo::run(arguments),
        Command::Token(arguments) => cmd::token::run(&arguments),
        Command::Lab(arguments) => cmd::lab::run(&arguments),
    };
    match outcome {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Err(failure) => {
            anstream::eprintln!("{ERROR}error{ERROR:#}: {failure}");
            ExitCode::from(if failure.is_usage() { 2 } else { 3 })
        }
    }
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::error::ErrorKind;

    use super::*;

    /// The Markdown files that people read, without the decision records, which speak of their
    /// time.
    fn documents(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            if entry.is_dir() && !name.starts_with('.') && name != "target" && name != "decisions" {
                found.extend(documents(&entry));
            } else if entry.extension().is_some_and(|extension| extension == "md") && name != "CHANGELOG.md" {
                found.push(entry);
            }
        }
        found
    }

    /// The commands in a text: the words after each `postern` that begins one, up to what ends a
    /// command of a shell or a code span.
    fn commands(text: &str) -> Vec<Vec<String>> {
        let whole = text.replace("\\\n", " ");
        let begins = |before: &str| before.is_empty() || before.ends_with([' ', '`', '(', '/']);
        let mut found = Vec::new();
        for line in whole.lines() {
            for (at, _) in line.match_indices("postern ").filter(|(at, _)| begins(&line[..*at])) {
                // In prose the name of the program begins no command.
                if line[..at].ends_with('`') || line[..at].trim().is_empty() || line[..at].ends_with('(') {
                    found.push(words(&line[at..]));
                }
            }
        }
        found
    }

    /// The words of the first command of a line of a shell.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for letter in line.chars() {
            match (quote, letter) {
                (Some(open), letter) if open == letter => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(letter);
                    word.get_or_insert_default();
                }
                (None, '|' | '>' | '<' | ';' | '&' | '`' | '(' | ')' | '#' | '[' | '…') => break,
                (None, ' ') => words.extend(word.take()),
                (_, letter) => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        words
    }

    #[test]
    fn commands_in_the_documents_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (mut count, mut faults) = (0, Vec::new());
        for document in documents(&root) {
            for words in commands(&fs::read_to_string(&document).unwrap()) {
                count += 1;
                // What a page leaves out is no fault. What does not exist is one.
                let unknown =
                    [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument, ErrorKind::ArgumentConflict];
                // `postern COMMAND --help` and arrows are no commands.
                let is_command = |word: &String| word.starts_with(|first: char| first.is_ascii_lowercase());
                if words.get(1).is_some_and(is_command)
                    && let Err(error) = Cli::try_parse_from(&words)
                    && unknown.contains(&error.kind())
                {
                    faults.push(format!("{}: {}\n{error}", document.display(), words.join(" ")));
                }
            }
        }
        assert!(count > 100, "the commands were not found");
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
