//! Definition of AccessPolicy: the one in the repository is the one that the controller reads.

use serde_json::Value;

use crate::support::{postern, repository};

#[test]
fn the_definition_in_the_repository_is_current() {
    let path = "deploy/crds/access.postern.dev_accesspolicies.yaml";
    let kept = std::fs::read_to_string(repository().join(path)).unwrap_or_default();
    assert!(
        kept == cluster::crd::text().unwrap(),
        "{path} is stale; write it anew with\n  cargo run -- crd > {path}"
    );
}

#[test]
fn the_binary_prints_it() {
    let output = postern(&["crd"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, cluster::crd::text().unwrap());
    // An object of etcd has at most 1.5 MiB, and `kubectl apply` keeps a copy in an annotation of at
    // most 256 KiB.
    assert!(text.len() < 200 << 10, "{} bytes", text.len());
}

/// Calls `visit` with each schema below one, and its path.
fn each(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        each(value, &format!("{path}.{name}"), visit);
    }
    for below in
        ["items", "additionalProperties"].map(|name| &schema[name]).into_iter().filter(|s| s.is_object())
    {
        each(below, &format!("{path}[]"), visit);
    }
}

#[test]
fn every_field_is_described_and_no_unknown_field_of_the_spec_is_dropped() {
    let definition = cluster::crd::definition();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut count = 0;
    each(&schema["properties"]["spec"], "spec", &mut |path, schema| {
        count += 1;
        let is_named = !path.ends_with("[]");
        let description = schema["description"].as_str().unwrap_or_default();
        assert!(!is_named || description.ends_with('.'), "{path}: {description:?}");
        let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
        let has_members = schema.get("properties").is_some() || schema.get("type").is_none();
        assert!(!has_members || keeps, "{path} drops unknown fields");
    });
    assert!(count > 100, "{count}");
}
