//! A file as a word of its own, for commands that take it with an option: `postern admin FILE …`
//! means `postern admin --config FILE …`, and `postern lab run FILE` means `--scenario FILE`.
//!
//! Owns: finding that word, and what the help shows of it. Does not own: the options, which belong
//! to the commands.
//!
//! The parser cannot do it for `admin`: it would take a misspelt command for the file, and then
//! complain about the next word.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, Command};

/// Adds the word to the usage and to the help.
pub(super) fn with_positional(command: Command) -> Command {
    let command = command
        .mut_subcommand("admin", |admin| admin.override_usage("postern admin [OPTIONS] [FILE] <COMMAND>"));
    if cfg!(feature = "lab") {
        return command.mut_subcommand("lab", |lab| lab.mut_subcommand("run", with_scenario_word));
    }
    command
}

/// The word of `lab run`. If the option is there too, it stays in its place, and the parser reports
/// the conflict.
fn with_scenario_word(run: Command) -> Command {
    let word = Arg::new("scenario_word").value_name("FILE|NAME").conflicts_with("scenario");
    run.arg(word.help("Shipped scenario or TOML file, the same as --scenario"))
}

/// Puts the option before the word. `command` is the whole command line, built.
pub(super) fn with_option(mut arguments: Vec<OsString>, command: &Command) -> Vec<OsString> {
    if let Some((at, option)) = found(&arguments, command) {
        arguments.insert(at, option.into());
    }
    arguments
}

/// Index of the word, and the option that it lacks.
fn found(arguments: &[OsString], command: &Command) -> Option<(usize, &'static str)> {
    let named = |at: usize, name: &str| arguments.get(at).is_some_and(|word| word == name);
    if named(1, "admin") {
        let admin = command.find_subcommand("admin")?;
        let at = first_word(arguments, 2, admin)?;
        return is_file(admin, &arguments[at]).then_some((at, "--config"));
    }
    if named(1, "lab") && named(2, "run") {
        let run = command.find_subcommand("lab")?.find_subcommand("run")?;
        let at = first_word(arguments, 3, run)?;
        let has_option = arguments.iter().any(|word| option_name(word) == Some("scenario"));
        let has_second = first_word(arguments, at + 1, run).is_some();
        return (!has_option && !has_second).then_some((at, "--scenario"));
    }
    None
}

/// Whether a word before a subcommand is a file: by its form, because no command has a dot or a
/// slash, or because there is such a file.
fn is_file(command: &Command, word: &OsString) -> bool {
    command.find_subcommand(word).is_none()
        && (word.to_string_lossy().contains(['.', '/']) || Path::new(word).is_file())
}

/// Index of the first word that is neither an option nor the value of one.
fn first_word(arguments: &[OsString], start: usize, command: &Command) -> Option<usize> {
    let mut at = start;
    loop {
        let word = arguments.get(at)?;
        if word == "--" {
            return None;
        }
        if !word.as_encoded_bytes().starts_with(b"-") {
            return Some(at);
        }
        at += if has_value_in_next_word(command, word) { 2 } else { 1 };
    }
}

fn has_value_in_next_word(command: &Command, word: &OsString) -> bool {
    let has_own_value = word.as_encoded_bytes().contains(&b'=');
    let of_word = |option: &&Arg| option.get_long().is_some() && option.get_long() == option_name(word);
    let option = command.get_arguments().find(of_word);
    !has_own_value && option.is_some_and(|option| option.get_action().takes_values())
}

/// `name` of `--name` and of `--name=value`.
fn option_name(word: &OsString) -> Option<&str> {
    let name = word.to_str()?.strip_prefix("--")?;
    Some(name.split_once('=').map_or(name, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::super::for_terminal;
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(Into::into).collect()
    }

    fn assert_means(given: &str, meant: &str) {
        assert_eq!(with_option(words(given), &for_terminal()), words(meant), "{given}");
    }

    #[test]
    fn a_file_may_stand_before_the_command_of_admin() {
        for (given, meant) in [
            ("a.toml user list", "--config a.toml user list"),
            ("./user user list", "--config ./user user list"),
            ("--wait a.toml user list", "--wait --config a.toml user list"),
            (
                "--output json --operator x.y a.toml key list",
                "--output json --operator x.y --config a.toml key list",
            ),
            ("--output=json a.toml key list", "--output=json --config a.toml key list"),
            ("a.toml --wait user list", "--config a.toml --wait user list"),
        ] {
            assert_means(&format!("postern admin {given}"), &format!("postern admin {meant}"));
        }
        for unchanged in [
            "postern admin --config a.toml user list",
            "postern admin --wait usr list",
            "postern admin user show ada.lovelace",
            "postern admin help user",
            "postern admin -- a.toml",
            "postern admin",
            "postern serve a.toml",
        ] {
            assert_means(unchanged, unchanged);
        }
    }

    #[cfg(feature = "lab")]
    #[test]
    fn a_scenario_may_be_a_word_of_lab_run() {
        for (given, meant) in [
            ("paths", "--scenario paths"),
            ("--quick mine.toml --out a", "--quick --scenario mine.toml --out a"),
            ("--topology 3x,fused paths", "--topology 3x,fused --scenario paths"),
        ] {
            assert_means(&format!("postern lab run {given}"), &format!("postern lab run {meant}"));
        }
        for unchanged in ["--topology fused", "a b", "a --scenario=b", "--scenario b a", "--list"] {
            let unchanged = format!("postern lab run {unchanged}");
            assert_means(&unchanged, &unchanged);
        }
        assert_means("postern lab audit a.json", "postern lab audit a.json");
    }
}
