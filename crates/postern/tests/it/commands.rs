//! What help texts, manual pages and the reference say of every command.

use std::collections::BTreeMap;

use crate::support::{Folder, output_text, postern, repository};

fn help(words: &[&str]) -> String {
    let output = postern(words);
    assert_eq!(output.status.code(), Some(0), "{words:?}");
    output_text(&output)
}

/// Names of the commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let below = help.split("\nCommands:\n").nth(1).expect("the help lists commands");
    let lines = below.lines().take_while(|line| line.starts_with("  "));
    // The continuation of a description has a larger indentation.
    let names =
        lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn the_long_help_of_every_command_has_its_exit_codes_and_is_longer() {
    let commands = listed(&help(&["--help"]));
    assert!(commands.len() > 12, "{commands:?}");
    let translators = listed(&help(&["migrate", "--help"]));
    let commands = commands.iter().map(|name| vec![name.as_str()]);
    let translators = translators.iter().map(|name| vec!["migrate", name]);
    for words in commands.chain(translators) {
        let [short, long] = ["-h", "--help"].map(|flag| help(&[&words[..], &[flag]].concat()));
        assert!(long.contains("Exit codes: "), "{words:?}: {long}");
        assert!(short.lines().count() < long.lines().count(), "{words:?}: {short}");
    }
}

#[test]
fn the_reference_has_the_exit_codes_of_every_command() {
    let page = std::fs::read_to_string(repository().join("docs/reference/errors.md")).unwrap();
    let table = page.split("\n| command | 1 | 3 |\n").nth(1).unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let mut documented: Vec<_> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    let mut commands = listed(&help(&["--help"]));
    documented.sort();
    commands.sort();
    assert_eq!(documented, commands);
}

#[test]
fn usages_show_the_file() {
    let admin = help(&["admin", "-h"]);
    assert!(admin.contains("Usage: postern admin [OPTIONS] [FILE] <COMMAND>\n"), "{admin}");
    if cfg!(feature = "lab") {
        let run = help(&["lab", "run", "-h"]);
        assert!(run.contains("Usage: postern lab run [OPTIONS] [FILE|NAME]\n"), "{run}");
    }
}

#[test]
fn global_options_are_in_one_manual_page_and_in_completions_of_all_commands() {
    let folder = Folder::new("man-pages");
    let done = postern(&["man", folder.0.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(0), "{}", output_text(&done));
    let pages: BTreeMap<String, String> = std::fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap().replace('\\', "");
            (path.file_name().unwrap().to_string_lossy().into_owned(), text)
        })
        .collect();
    let of_admin = |text: &str| text.contains("--operator") || text.contains("--wait");
    let admin = &pages["postern-admin.1"];
    assert!(of_admin(admin) && admin.contains("[FILE]"), "{admin}");
    let add = &pages["postern-admin-user-add.1"];
    assert!(add.contains("--email"), "{add}");
    for (name, text) in pages.iter().filter(|(name, _)| name.starts_with("postern-admin-")) {
        assert!(!of_admin(text), "{name}: {text}");
    }
    assert!(!pages.keys().any(|name| name.contains("help")), "{:?}", pages.keys());
    let script = help(&["completions", "bash"]);
    let add = script.split("postern__subcmd__admin__subcmd__user__subcmd__add)").nth(1).unwrap();
    assert!(add.split(";;").next().unwrap().contains("--operator"), "{script}");
}

#[cfg(feature = "lab")]
#[test]
fn a_scenario_is_named_once() {
    let named = help(&["lab", "run", "--quick", "paths", "--check"]);
    assert_eq!(named, help(&["lab", "run", "--quick", "--scenario", "paths", "--check"]));
    let folder = Folder::new("scenario-word");
    let file = folder.write("mine.toml", "title = \"mine\"\nrounds = 2\n[load.closed]\narrivals = \"closed\"\nconcurrency = 4\nrequests = 100\n[[variant]]\ntopology = [\"fused\", \"3x\"]\n");
    let planned = help(&["lab", "run", file.to_str().unwrap(), "--check"]);
    assert!(planned.contains("fused"), "{planned}");
    for (words, expected) in [
        (&["paths", "--scenario", "paths"][..], "cannot be used with"),
        (&["--scenario=paths", "paths"], "cannot be used with"),
        (&["paths", "targets"], "unexpected argument 'targets'"),
    ] {
        let refused = postern(&[&["lab", "run", "--check"], words].concat());
        let said = output_text(&refused);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}
