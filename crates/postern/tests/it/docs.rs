//! Documentation: the reference and the examples match the program.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{FILES, difference, load, repository};

/// Reference text of one definition: its description, its keys, and the meaning of their words.
fn reference(schema: &Value, definition: &str) -> String {
    let table = if definition == "File" { schema } else { &schema["$defs"][definition] };
    let description = table["description"].as_str().unwrap_or_default();
    format!("{description}\n\n{}{}", keys(schema, definition), words(schema, table))
}

/// Words that the keys of a table accept, with their descriptions. Keys with the same words share a
/// list.
fn words(schema: &Value, table: &Value) -> String {
    let mut lists = Vec::<(&str, Vec<&str>)>::new();
    for (key, value) in table["properties"].as_object().into_iter().flatten() {
        let pointer = value["$ref"].as_str().or(value["items"]["$ref"].as_str());
        if let Some(pointer) = pointer {
            match lists.iter_mut().find(|(other, _)| *other == pointer) {
                Some((_, keys)) => keys.push(key),
                None => lists.push((pointer, vec![key])),
            }
        }
    }
    let mut out = String::new();
    for (pointer, keys) in lists {
        let words = schema.pointer(pointer.trim_start_matches('#')).and_then(|d| d["oneOf"].as_array());
        let words = words.into_iter().flatten().filter_map(|word| {
            Some(format!("- `\"{}\"`: {}", word["const"].as_str()?, word["description"].as_str()?))
        });
        let words: Vec<String> = words.collect();
        if !words.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            let _ = writeln!(out, "\n{}:\n\n{}", keys.join(", "), words.join("\n"));
        }
    }
    out
}

/// Table of the keys of one definition.
fn keys(schema: &Value, definition: &str) -> String {
    let table = if definition == "File" { schema } else { &schema["$defs"][definition] };
    let required = |key: &str| table["required"].as_array().is_some_and(|list| list.iter().any(|k| k == key));
    let mut out = "| key | value | default | meaning |\n|---|---|---|---|\n".to_owned();
    for (key, value) in table["properties"].as_object().unwrap_or_else(|| panic!("no table {definition}")) {
        let default = match value.get("default") {
            _ if required(key) => "required".into(),
            None => String::new(),
            Some(default) if default.is_object() => "see there".into(),
            Some(default) => format!("`{default}`"),
        };
        let meaning = value["description"].as_str().unwrap_or_default().replace('|', "\\|");
        let _ = writeln!(out, "| `{key}` | {} | {default} | {meaning} |", kind(schema, value));
    }
    out
}

/// Kind of value of a key.
fn kind(schema: &Value, value: &Value) -> String {
    let resolved = match value["$ref"].as_str() {
        Some(pointer) => schema.pointer(pointer.trim_start_matches('#')).unwrap(),
        None => value,
    };
    let words = |list: &[Value], of: fn(&Value) -> Option<&str>| {
        let words: Option<Vec<String>> = list.iter().map(|v| of(v).map(|w| format!("`\"{w}\"`"))).collect();
        words.map(|words| words.join(", "))
    };
    if let Some(words) = resolved["oneOf"].as_array().and_then(|list| words(list, |v| v["const"].as_str())) {
        return words;
    }
    if let Some(list) = resolved["enum"].as_array() {
        return words(list, Value::as_str).unwrap_or_default();
    }
    if let Some(branches) = resolved["anyOf"].as_array() {
        return branches.iter().map(|b| kind(schema, b)).collect::<Vec<_>>().join(" or ");
    }
    match (resolved["type"].as_str(), resolved["format"].as_str()) {
        (Some("string"), Some(format)) => format.replace('-', " "),
        (Some("integer"), _) => match (resolved["minimum"].as_u64(), resolved["maximum"].as_u64()) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            _ => "number".into(),
        },
        (Some("array"), _) => format!("list of {}", kind(schema, &resolved["items"])),
        (Some("object"), _) if resolved.get("properties").is_some() => "table".into(),
        (Some("object"), _) => format!("table of {}", kind(schema, &resolved["additionalProperties"])),
        (Some("boolean"), _) => "`true`, `false`".into(),
        (Some(other), _) => other.into(),
        (None, _) => "string".into(),
    }
}

#[test]
fn the_reference_lists_every_key() {
    let schema: Value = serde_json::from_str(&config::schema::text()).unwrap();
    let path = repository().join("docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut written, mut seen, mut inside) = (String::new(), Vec::new(), false);
    for line in text.lines() {
        if let Some(definition) = line.strip_prefix("<!-- keys of ").and_then(|l| l.strip_suffix(" -->")) {
            let _ = write!(written, "{line}\n{}", reference(&schema, definition));
            seen.push(definition.to_owned());
            inside = true;
        } else if line == "<!-- end of keys -->" {
            inside = false;
        }
        if !inside {
            let _ = writeln!(written, "{line}");
        }
    }
    for (definition, table) in schema["$defs"].as_object().unwrap() {
        assert!(table.get("properties").is_none() || seen.contains(definition), "no keys of {definition}");
    }
    if written != text {
        let copy = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("configuration.md");
        std::fs::write(&copy, &written).unwrap();
        panic!("{}\nif that is right: cp {} {}", difference(&text, &written), copy.display(), path.display());
    }
}

#[test]
fn the_examples_hold() {
    let mut count = 0;
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        count += 1;
        // The examples name an administrator's files. Use the test's files instead.
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("/etc/postern/", &format!("{}/", FILES.0.display()));
        if let Err(refused) = load(&text) {
            panic!("{}: {}", path.display(), refused.report.lines().collect::<Vec<_>>().join("\n"));
        }
    }
    assert!(count >= 3);
}

#[test]
fn the_configurations_in_the_readme_hold() {
    for document in ["README.md", "docs/configuration.md", "docs/login.md"] {
        let text = std::fs::read_to_string(repository().join(document)).unwrap();
        let blocks: Vec<&str> =
            text.split("```toml\n").skip(1).filter_map(|t| t.split("```").next()).collect();
        assert!(!blocks.is_empty(), "{document}");
        for block in
            blocks.iter().filter(|block| block.contains("[[listener]]") && block.contains("[[route]]"))
        {
            if let Err(refused) = load(block) {
                panic!("{document}: {}\n{block}", refused.report.lines().collect::<Vec<_>>().join("\n"));
            }
        }
    }
}

/// Texts in `text` that follow `before`, each up to the next quotation mark.
fn quoted<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Source files that define metric families.
const COLLECTED: [&str; 11] = [
    "credentials/src/authenticate/authority",
    "credentials/src/events/mod",
    "credentials/src/revocation/sample",
    "credentials/src/watch/mod",
    "gateway/src/authorizer/mod",
    "gateway/src/review",
    "login/src/lib",
    "postern/src/process",
    "telemetry/src/metrics/authorizer",
    "telemetry/src/metrics/provider",
    "telemetry/src/metrics/scrape",
];

#[test]
fn no_source_of_metrics_is_forgotten() {
    fn sources(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                sources(&entry, found);
            } else {
                found.push(entry);
            }
        }
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let folder = entry.unwrap().path().join("src");
        // The lab only reads metrics.
        if !folder.ends_with("lab/src") {
            sources(&folder, &mut files);
        }
    }
    let writes = |path: &&std::path::PathBuf| std::fs::read_to_string(path).unwrap().contains("FamilyKind::");
    let mut found: Vec<_> = files
        .iter()
        .filter(writes)
        .map(|path| path.strip_prefix(repository().join("crates")).unwrap().with_extension(""))
        .filter(|path| !path.ends_with("metrics/encode"))
        .collect();
    found.sort();
    assert_eq!(found, COLLECTED.map(std::path::PathBuf::from));
}

#[test]
fn operators_find_every_metric_and_every_reason() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    let documents = ["docs/operation.md", "docs/revocation.md", "docs/security-events.md"].map(read).concat();
    let names = |prefix: &str| {
        let sources = COLLECTED.map(|file| read(&format!("crates/{file}.rs")));
        let found = |text: &String| {
            quoted(text, &format!("\"{prefix}_")).iter().map(|rest| format!("{prefix}_{rest}")).collect()
        };
        sources.iter().flat_map(|text| -> Vec<String> { found(text) }).collect::<Vec<_>>()
    };
    let families = [names("postern"), names("process")].concat();
    assert!(families.len() > 80, "{families:?}");
    for family in families {
        // Counters end in `_total`, information metrics in `_info`.
        let spelled = ["", "_total", "_info"].map(|suffix| format!("`{family}{suffix}`"));
        assert!(spelled.iter().any(|name| documents.contains(name)), "no word of the metric {family}");
    }
    let operation = read("docs/operation.md");
    let answers = read("crates/gateway/src/refusal.rs");
    let (row, _) = answers.split_once("fn row").unwrap().1.split_once("Row { status").unwrap();
    let decisions = read("crates/auth/src/decide.rs");
    let (table, _) =
        decisions.split_once("pub const fn answer").unwrap().1.split_once("Answer { status").unwrap();
    let labels = read("crates/http_engine/src/labels.rs");
    let (outcomes, _) = labels.split_once("    Outcome {").unwrap().1.split_once("label!").unwrap();
    let statuses =
        [400, 403, 404, 408, 413, 414, 431, 502, 503, 504, 505].map(|status| format!("({status}, \""));
    let codes: Vec<&str> = statuses
        .iter()
        .flat_map(|status| quoted(row, status))
        .chain(quoted(table, "true, \""))
        .chain(quoted(table, "false, \""))
        .chain(quoted(outcomes, "=> \""))
        .collect();
    assert!(codes.len() > 40, "{codes:?}");
    for code in codes {
        assert!(operation.contains(&format!("`{code}`")), "no word of the code {code}");
    }
}

#[test]
fn the_client_in_the_providers_page_is_one() {
    let text = std::fs::read_to_string(repository().join("docs/provider.md")).unwrap();
    let block = text.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let mut client: idp::ClientConfig = serde_json::from_str(block).unwrap();
    client.id = "shop".into();
    client.secrets = vec![idp::ConfiguredSecret::Sha256("0".repeat(64))];
    let mut config = idp::Config::new("https://id.example");
    config.audiences = client.audiences.clone();
    config.clients = vec![client];
    config.check().unwrap();
}
