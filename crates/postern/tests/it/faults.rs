//! Faulty and valid configurations. Each file contains its own expected report.
//!
//! The expectations are lines that start with `#: `, as `line:column: path: what; hint`.

use std::path::{Path, PathBuf};

use config::Report;

use crate::support::{FILES, difference, load, sources};

const MARK: &str = "#: ";

fn fixtures(folder: &str) -> Vec<(PathBuf, String)> {
    let mut paths: Vec<_> =
        std::fs::read_dir(sources().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Lines of a report, without what differs between runs.
fn lines(report: &Report) -> Vec<String> {
    let base = format!("{}/", FILES.0.display());
    let place = |line: String| line.strip_prefix("postern.toml:").map_or(line.clone(), str::to_owned);
    report.lines().map(|line| place(line).replace(&base, "").trim().to_owned()).collect()
}

/// Compares the report with the expectations in the file. On a difference it writes a corrected
/// file that can be copied.
fn compare(path: &Path, text: &str, seen: &[String], differences: &mut Vec<String>) {
    // One syntax fault hides all the others that the file is about.
    let is_about_syntax = path.ends_with("faulty/grammar.toml");
    let hides =
        |line: &&String| line.split_once(": ").is_some_and(|(_, rest)| rest.starts_with("key with no value"));
    if let Some(fault) = seen.iter().find(hides).filter(|_| !is_about_syntax) {
        return differences.push(format!("{} is not TOML: {fault}", path.display()));
    }
    let expected: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(MARK)).collect();
    if expected == *seen {
        return;
    }
    let body: String = text.split_inclusive('\n').filter(|line| !line.starts_with(MARK)).collect();
    let marked: String = seen.iter().flat_map(|line| [MARK, line, "\n"]).collect();
    let name = path.file_name().unwrap().to_str().unwrap();
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&copy, format!("{}\n\n{marked}", body.trim_end())).unwrap();
    let report = difference(&expected.join("\n"), &seen.join("\n"));
    differences.push(format!("{name}\n{report}if that is right: cp {} {}", copy.display(), path.display()));
}

#[test]
fn every_fault_is_told_at_once_with_its_place_and_remedy() {
    let mut differences = Vec::new();
    for (path, text) in fixtures("faulty") {
        match load(&text) {
            Ok(_) => differences.push(format!("{} was accepted", path.display())),
            Err(refused) => compare(&path, &text, &lines(&refused.report), &mut differences),
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn what_is_sound_is_accepted() {
    let mut differences = Vec::new();
    for (path, text) in fixtures("sound") {
        match load(&text) {
            Ok(loaded) => compare(&path, &text, &lines(&loaded.report), &mut differences),
            Err(refused) => {
                differences.push(format!(
                    "{} was refused:\n{}",
                    path.display(),
                    lines(&refused.report).join("\n")
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn the_effective_configuration_is_a_configuration() {
    for (path, text) in fixtures("sound") {
        let loaded = load(&text).unwrap_or_else(|_| panic!("{}", path.display()));
        let effective = loaded.effective();
        let again = load(&effective)
            .unwrap_or_else(|r| panic!("{:?}\n{effective}", r.report.lines().collect::<Vec<_>>()));
        assert_eq!(again.effective(), effective);
    }
}

#[test]
fn a_fault_is_shown_with_its_line() {
    let text = "[[listener]]\nname = \"web\"\naddress = \":80\"\n";
    let refused = load(text).err().unwrap();
    let shown =
        anstream::adapter::strip_str(&postern::terminal::Findings(&refused.report).to_string()).to_string();
    let expected = r#"error: listener[0].address: ":80" is not an IP address and port such as "127.0.0.1:8080", or a socket such as "unix:/run/web.sock"
 --> postern.toml:3:11
  |
3 | address = ":80"
  |           ^^^^^
  = help: for all interfaces write "0.0.0.0:80" or "[::]:80"
"#;
    assert!(shown.contains(expected), "{shown}");
}
