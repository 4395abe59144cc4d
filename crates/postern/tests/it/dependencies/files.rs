//! Source files: their length, the dependencies that they use, and the links in their comments.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cargo;

/// Most lines of a source file. A longer one holds more than one subject.
const MOST_LINES: usize = 600;

/// All Rust files below a folder, without build output.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            if !entry.ends_with("target") {
                files.extend(rust_files(&entry));
            }
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    files
}

/// The identifiers of a file, without those of its comments.
fn identifiers(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap();
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let is_part = |part: char| part.is_alphanumeric() || part == '_';
    code.flat_map(|line| line.split(|part| !is_part(part))).map(str::to_owned).collect()
}

#[test]
fn no_file_is_too_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files: Vec<_> =
        ["crates", "fuzz", "docs"].iter().flat_map(|folder| rust_files(&root.join(folder))).collect();
    assert!(files.len() > 500, "the sources were not found");
    let lines = |file: &Path| fs::read_to_string(file).unwrap().lines().count();
    let long = files.iter().map(|file| (lines(file), file)).filter(|(lines, _)| *lines > MOST_LINES);
    let long: Vec<_> = long.map(|(lines, file)| format!("{}: {lines} lines", file.display())).collect();
    assert!(long.is_empty(), "over {MOST_LINES} lines, split by meaning:\n{}", long.join("\n"));
}

/// The chart deploys the image of its version, and a release publishes both.
#[test]
fn the_chart_and_the_release_are_of_this_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let has = |text: &str, line: &str| text.lines().any(|one| one == line);
    let (chart, version) = (read("deploy/helm/postern/Chart.yaml"), env!("CARGO_PKG_VERSION"));
    assert!(has(&chart, &format!("version: {version}")), "{chart}");
    assert!(has(&chart, &format!("appVersion: \"{version}\"")), "{chart}");
    // The workflow writes the published image in place of this one.
    assert!(has(&read("deploy/helm/postern/values.yaml"), "  repository: postern"));
    let release = read(".github/workflows/release.yaml");
    let compiler = release.lines().find_map(|line| line.trim().strip_prefix("RUST: ")).unwrap();
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    assert!(compiler == oldest || compiler.starts_with(&format!("{oldest}.")), "{compiler}, not {oldest}");
}

/// A dependency that nobody uses any more still costs time to build and care to keep.
#[test]
fn every_dependency_is_used() {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    let mut unused = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let used = |folders: &[&str]| -> BTreeSet<String> {
            let files = folders.iter().flat_map(|part| rust_files(&folder.join(part)));
            files.flat_map(|file| identifiers(&file)).collect()
        };
        let (built, tested) = (used(&["src"]), used(&["src", "tests", "examples", "benches"]));
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            let used = if dependency["kind"].is_null() { &built } else { &tested };
            // A crate depends on itself for a feature of its tests.
            if name != package["name"] && !used.contains(&name.replace('-', "_")) {
                unused.push(format!("{}: {name}", package["name"]));
            }
        }
    }
    assert!(unused.is_empty(), "dependencies without a use:\n{}", unused.join("\n"));
}

/// The names that the comments of a file link to: the last part of each [`path`].
fn linked_names(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let comments = text.lines().filter(|line| line.trim_start().starts_with("//"));
    let links = comments.flat_map(|line| line.split("[`").skip(1));
    let links = links.filter_map(|rest| rest.split_once("`]").map(|(link, _)| link.to_owned()));
    links
        .filter_map(|link| link.trim_end_matches("()").rsplit([':', '@']).next().map(str::to_owned))
        .collect()
}

/// A link in a comment that names nothing misleads, and a search does not find what it means.
#[test]
fn links_in_comments_name_something() {
    let files = rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let known: BTreeSet<String> = files
        .iter()
        .flat_map(|file| {
            identifiers(file)
                .into_iter()
                .chain(file.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        })
        .collect();
    let mut dead = Vec::new();
    let mut count = 0;
    for file in &files {
        for name in linked_names(file) {
            count += 1;
            let name = name.trim_end_matches('!').split('<').next().unwrap_or_default().to_owned();
            if !known.contains(&name) {
                dead.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(count > 1000, "the links were not found");
    assert!(dead.is_empty(), "links to names that nothing has:\n{}", dead.join("\n"));
}
