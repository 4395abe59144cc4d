//! Schema: the one in the repository is the one that the loader enforces.

use crate::support::{postern, repository};

#[test]
fn the_schema_in_the_repository_is_current() {
    let kept = std::fs::read_to_string(repository().join("postern.schema.json")).unwrap_or_default();
    assert!(
        kept == config::schema::text(),
        "postern.schema.json is stale; write it anew with\n  cargo run -- check --print-schema > postern.schema.json"
    );
}

#[test]
fn the_binary_prints_it() {
    let output = postern(&["check", "--print-schema"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), config::schema::text());
}

#[test]
fn every_key_is_described() {
    let schema: serde_json::Value = serde_json::from_str(&config::schema::text()).unwrap();
    let tables = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    for table in tables {
        for (key, value) in table["properties"].as_object().into_iter().flatten() {
            let description = value["description"].as_str().unwrap_or_default();
            assert!(description.ends_with('.'), "{key}: {description:?}");
        }
    }
}
