//! Crates and their sources: which crate may depend on which, which libraries are forbidden, names,
//! import cycles and file lengths.

mod files;
mod modules;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Every crate with the crates that it may depend on, in tests too. A new crate or dependency is a
/// decision that must be recorded here.
const ARROWS: [(&str, &[&str]); 23] = [
    ("argon2_hash", &[]),
    ("auth", &[]),
    ("coherence", &["outage"]),
    (
        "config",
        &[
            "auth",
            "coherence",
            "credentials",
            "gateway",
            "http_engine",
            "idp",
            "login",
            "mail",
            "pages",
            "store",
            "telemetry",
        ],
    ),
    (
        "cluster",
        &["auth", "config", "controller", "dataplane", "gateway", "http_engine", "outage", "telemetry"],
    ),
    ("controller", &[]),
    ("credentials", &["argon2_hash", "auth", "coherence", "hash_pool", "http_engine", "outage", "telemetry"]),
    ("dataplane", &["auth", "config", "credentials", "gateway", "http_engine", "telemetry"]),
    (
        "gateway",
        &["auth", "coherence", "credentials", "http_engine", "login", "outage", "pages", "telemetry"],
    ),
    ("hash_pool", &[]),
    ("http_engine", &["auth", "outage"]),
    ("idp", &["argon2_hash", "auth", "coherence", "hash_pool", "mail", "outage", "pages", "store"]),
    ("lab", &["lab_analysis", "lab_load"]),
    ("lab_analysis", &[]),
    ("lab_load", &["lab_analysis"]),
    ("login", &["auth", "coherence", "credentials", "http_engine", "outage", "pages", "telemetry"]),
    ("mail", &[]),
    ("migrate", &[]),
    ("outage", &[]),
    ("pages", &[]),
    (
        "postern",
        &[
            "auth",
            "cluster",
            "coherence",
            "config",
            "controller",
            "credentials",
            "dataplane",
            "gateway",
            "http_engine",
            "idp",
            "lab",
            "login",
            "migrate",
            "outage",
            "pages",
            "store",
            "telemetry",
        ],
    ),
    ("store", &["auth", "coherence", "outage"]),
    ("telemetry", &["auth", "http_engine", "outage"]),
];

/// Libraries that do I/O. A decision depends only on its input, so `auth` uses none of them. Neither
/// does `lab_analysis`: what follows from a record depends only on the record. Nor does `controller`:
/// the desired state follows from the objects alone.
const IO: [&str; 21] = [
    "async-std",
    "axum",
    "curl",
    "diesel",
    "fe2o3-amqp",
    "h2",
    "hyper",
    "hyper-util",
    "kube",
    "mio",
    "native-tls",
    "postgres",
    "reqwest",
    "rusqlite",
    "rustls",
    "smol",
    "socket2",
    "sqlx",
    "tokio",
    "tonic",
    "ureq",
];

/// Cryptography other than aws-lc-rs: OpenSSL and its bindings, a second provider, RSA that is not
/// constant-time.
const OTHER_CRYPTOGRAPHY: [&str; 7] =
    ["boring", "native-tls", "openssl", "openssl-src", "openssl-sys", "ring", "rsa"];

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--locked", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// Names of the crates that are built with the features of this workspace. `Cargo.lock` is not
/// enough: it lists optional packages that no feature enables.
fn tree(selection: &[&str], edges: &str) -> BTreeSet<String> {
    let format = ["tree", "--prefix", "none", "--format", "{p}", "--edges", edges];
    let text = cargo(&[&format, selection].concat());
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Packages to which a profile gives an optimization level of their own, with that level.
fn levels(profile: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .expect("the workspace has a manifest");
    let begin = format!("[profile.{profile}.package.");
    let mut levels = BTreeMap::new();
    let mut package = None;
    for line in text.lines() {
        if line.starts_with('[') {
            package = line.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(']'));
        } else if let (Some(package), Some(level)) = (package, line.strip_prefix("opt-level = ")) {
            levels.insert(package.to_owned(), level.to_owned());
        }
    }
    levels
}

#[test]
fn what_ships_is_fully_optimized() {
    let (light, full) = (levels("release"), levels("dist"));
    assert!(light.contains_key("postern"), "the list of release was not found");
    let inherited: Vec<_> =
        light.keys().filter(|package| full.get(*package).is_none_or(|level| level != "3")).collect();
    assert!(inherited.is_empty(), "the profile dist inherits a low level for {inherited:?}: set it to 3");
}

#[test]
fn rooms_know_only_the_rooms_they_may() {
    let metadata: Value = serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"]))
        .expect("cargo prints JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    let found: BTreeSet<_> = packages.iter().map(|package| text(&package["name"])).collect();
    assert_eq!(found, ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect());
    for package in &packages {
        let name = text(&package["name"]);
        let allowed = ARROWS.iter().find(|(room, _)| *room == name).map_or(&[][..], |(_, arrows)| arrows);
        let known = list(&package["dependencies"]);
        let known = known.iter().filter(|known| !known["path"].is_null()).map(|known| text(&known["name"]));
        // A crate may depend on itself: its tests enable one of its features.
        for known in known.filter(|known| *known != name) {
            assert!(allowed.contains(&known.as_str()), "{name} must not depend on {known}");
        }
    }
}

#[test]
fn auth_has_no_way_to_the_outside() {
    let built = tree(&["--package", "auth"], "normal,build");
    assert!(built.contains("aws-lc-rs"), "the tree was not read: {built:?}");
    let found: Vec<_> = IO.iter().filter(|name| built.contains(**name)).collect();
    assert!(found.is_empty(), "auth depends on {found:?}");
}

#[test]
fn analysis_has_no_way_to_the_outside() {
    let built = tree(&["--package", "lab_analysis"], "normal,build");
    assert!(built.contains("hdrhistogram"), "the tree was not read: {built:?}");
    let system = ["clap", "nix", "rustix", "tempfile"];
    let found: Vec<_> = IO.iter().chain(&system).filter(|name| built.contains(**name)).collect();
    assert!(found.is_empty(), "lab_analysis depends on {found:?}");
}

#[test]
fn the_controller_has_no_way_to_the_outside() {
    let built = tree(&["--package", "controller"], "normal,build");
    assert!(built.contains("serde_json"), "the tree was not read: {built:?}");
    let found: Vec<_> = IO.iter().filter(|name| built.contains(**name)).collect();
    assert!(found.is_empty(), "controller depends on {found:?}");
}

#[test]
fn analysis_names_no_file_socket_process_or_clock() {
    let is_outside = |path: &[String]| {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        matches!(names[..], ["std", "env" | "fs" | "net" | "os" | "path" | "process" | "thread", ..])
            || matches!(names[0], "tempfile" | "tokio")
            || names.iter().any(|name| ["Instant", "SystemTime"].contains(name))
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab_analysis/src");
    let named = modules::outside(&source);
    assert!(named.iter().filter(|(_, path)| path[0] == "std").count() > 20, "the source was not read");
    let found: Vec<_> = named.iter().filter(|(_, path)| is_outside(path)).collect();
    assert!(found.is_empty(), "{found:?}");
    for path in ["std::fs::read", "std::time::Instant", "Instant::now", "tokio::spawn", "std::path::Path"] {
        assert!(is_outside(&path.split("::").map(str::to_owned).collect::<Vec<_>>()), "{path}");
    }
}

#[test]
fn tokens_rsa_is_done_by_aws_lc_rs_alone() {
    let built = tree(&["--workspace"], "normal,build");
    assert!(built.contains("aws-lc-rs"), "the tree was not read: {built:?}");
    let found: Vec<_> = OTHER_CRYPTOGRAPHY.iter().filter(|name| built.contains(**name)).collect();
    assert!(found.is_empty(), "built in: {found:?}");
}
