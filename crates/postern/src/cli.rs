//! Command line: the commands and their exit codes.

mod file_argument;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

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
    /// Print the definition of the kind AccessPolicy for a Kubernetes cluster.
    Crd(cmd::crd::Arguments),
    /// Print the completions of the command line for a shell.
    Completions(cmd::completions::Arguments),
    /// Write the manual pages.
    Man(cmd::man::Arguments),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let outcome = match parse(std::env::args_os().collect()).command {
        Command::Serve(arguments) => cmd::serve::run(&arguments),
        Command::Admin(arguments) => cmd::admin::run(arguments),
        Command::Demo(arguments) => cmd::demo::run(&arguments),
        Command::Init(arguments) => cmd::init::run(&arguments),
        Command::Check(arguments) => cmd::check::run(&arguments),
        Command::Health(arguments) => cmd::health::run(&arguments),
        Command::Crd(arguments) => cmd::crd::run(&arguments),
        Command::Completions(arguments) => cmd::completions::run(&arguments, for_completions()),
        Command::Man(arguments) => cmd::man::run(&arguments, for_pages()),
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

/// Parses the command line. An invalid one ends the process with a message.
fn parse(arguments: Vec<OsString>) -> Cli {
    let command = for_terminal();
    let arguments = file_argument::with_option(arguments, &command);
    let matches = command.get_matches_from(arguments);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command line, as it is parsed and as `--help` shows it.
fn for_terminal() -> clap::Command {
    with_global_options_once(file_argument::with_positional(Cli::command()))
}

/// The command line of the manual pages: that of `--help`, without the commands `help`, which need
/// no page.
fn for_pages() -> clap::Command {
    with_global_options_once(file_argument::with_positional(Cli::command().disable_help_subcommand(true)))
}

/// The command line that shells complete: a global option is completed wherever it is accepted.
fn for_completions() -> clap::Command {
    file_argument::with_positional(Cli::command())
}

/// Hides global options in the help of the commands that inherit them: the command that has them
/// explains them.
fn with_global_options_once(mut command: clap::Command) -> clap::Command {
    command.build();
    for heir in command.get_subcommands_mut() {
        hide_inherited(heir);
    }
    command
}

fn hide_inherited(command: &mut clap::Command) {
    let inherited: Vec<_> = command
        .get_arguments()
        .filter(|option| option.is_global_set())
        .map(|option| option.get_id().clone())
        .collect();
    for heir in command.get_subcommands_mut() {
        let is_inherited = |option: &clap::Arg| inherited.contains(option.get_id());
        *heir = std::mem::take(heir)
            .mut_args(|option| if is_inherited(&option) { option.hide(true) } else { option });
        hide_inherited(heir);
    }
}

#[cfg(test)]
mod parsing {
    use super::*;

    #[test]
    fn global_options_are_explained_once() {
        let mut command = for_terminal();
        let admin = command.find_subcommand_mut("admin").unwrap();
        assert!(admin.render_help().to_string().contains("--operator"));
        let add = admin.find_subcommand_mut("user").unwrap().find_subcommand_mut("add").unwrap();
        let help = add.render_help().to_string();
        assert!(help.contains("--email") && !help.contains("--operator"), "{help}");
        let parsed = parse(
            "postern admin user add ada --operator me --config a.toml".split(' ').map(Into::into).collect(),
        );
        assert!(matches!(parsed.command, Command::Admin(_)));
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
        let command = for_terminal();
        for document in documents(&root) {
            for words in commands(&fs::read_to_string(&document).unwrap()) {
                count += 1;
                // What a page leaves out is no fault. What does not exist is one.
                let unknown =
                    [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument, ErrorKind::ArgumentConflict];
                // FILE stands for a path.
                let given = |word: &String| if word == "FILE" { "./FILE".into() } else { word.into() };
                let arguments = words.iter().map(given).collect();
                // `postern COMMAND --help` and arrows are no commands.
                let is_command = |word: &String| word.starts_with(|first: char| first.is_ascii_lowercase());
                if words.get(1).is_some_and(is_command)
                    && let Err(error) =
                        command.clone().try_get_matches_from(file_argument::with_option(arguments, &command))
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
