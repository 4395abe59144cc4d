//! Which crate may use which.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::support::repository;

/// What each crate uses outside of its tests.
fn uses() -> BTreeMap<String, Vec<String>> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(repository())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let uses = |package: &Value| {
        let list = package["dependencies"].as_array().unwrap().iter();
        list.filter(|dependency| dependency["kind"] != "dev").map(name).collect()
    };
    metadata["packages"].as_array().unwrap().iter().map(|package| (name(package), uses(package))).collect()
}

#[test]
fn arrows_between_crates_are_as_drawn() {
    let uses = uses();
    let arrows = |from: &str| -> Vec<&str> {
        let mut rooms: Vec<_> = uses[from].iter().filter(|name| uses.contains_key(*name)).collect();
        rooms.sort();
        rooms.into_iter().map(String::as_str).collect()
    };
    assert_eq!(arrows("postern"), ["auth", "gateway", "idp"]);
    assert_eq!(arrows("gateway"), ["auth"]);
    assert_eq!(arrows("idp"), ["auth"]);
    assert!(arrows("auth").is_empty());
    assert!(arrows("lab").is_empty());
}

#[test]
fn auth_stays_pure() {
    let uses = uses();
    for io in ["tokio", "hyper", "axum", "rustls", "socket2", "h2", "mio", "tracing", "getrandom", "rand"] {
        assert!(!uses["auth"].iter().any(|name| name == io), "auth uses {io}");
    }
}
