//! Tells the program how far it is optimized, and from which source it was built.
//!
//! The commit and its date are `POSTERN_COMMIT` and `POSTERN_COMMIT_DATE` (YYYY-MM-DD) of the
//! environment, for sources without a repository. Otherwise optimized builds ask Git. Builds for
//! development do not, or each commit would compile the program again.
#![expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts by variables")]

use std::env::var;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["POSTERN_COMMIT", "POSTERN_COMMIT_DATE"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let named = var("POSTERN_COMMIT").ok().zip(var("POSTERN_COMMIT_DATE").ok());
    let is_optimized = var("PROFILE").is_ok_and(|profile| profile == "release");
    let level = match var("OPT_LEVEL").unwrap_or_default() {
        // The profile `release` optimizes the crates that a request passes, and not this one.
        level if is_optimized && level == "0" => "partial".to_owned(),
        level => level,
    };
    println!("cargo::rustc-env=POSTERN_OPT_LEVEL={level}");
    let source = named.or_else(|| if is_optimized { of_repository() } else { None });
    let version = var("CARGO_PKG_VERSION").unwrap_or_default();
    let described = match &source {
        Some((commit, date)) => format!("commit {commit}, {date}"),
        None if is_optimized => "commit unknown".into(),
        None => "development build".into(),
    };
    println!("cargo::rustc-env=POSTERN_VERSION={version} ({described})");
    let commit = source.map_or_else(|| "unknown".into(), |(commit, _)| commit);
    println!("cargo::rustc-env=POSTERN_SOURCE_COMMIT={commit}");
}

/// Commit and date of the repository around the source; with a mark if files were changed since.
fn of_repository() -> Option<(String, String)> {
    // Every commit and every checkout writes to this file.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let date = git(&["log", "-1", "--format=%cs"])?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some((if is_clean { commit } else { format!("{commit}-changed") }, date))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
