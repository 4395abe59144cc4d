//! Documentation: the reference and the examples match the program.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{FILES, difference, load, repository};

/// A definition of a schema; the schema itself for the name of its own type.
fn table<'s>(schema: &'s Value, definition: &str) -> &'s Value {
    schema["$defs"].get(definition).unwrap_or(schema)
}

/// Reference text of one definition: its description, its keys, and the meaning of their words.
fn reference(schema: &Value, definition: &str) -> String {
    let table = table(schema, definition);
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
    let table = table(schema, definition);
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
    lists_every_key(&serde_json::from_str(&config::schema::text()).unwrap(), "configuration.md");
}

#[test]
fn the_reference_of_a_policy_lists_every_field() {
    lists_every_key(cluster::crd::body_schema(), "access-policy.md");
}

/// Every key of a schema is on its page, as the schema describes it.
fn lists_every_key(schema: &Value, page: &str) {
    let path = repository().join("docs/reference").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut written, mut seen, mut inside) = (String::new(), Vec::new(), false);
    for line in text.lines() {
        if let Some(definition) = line.strip_prefix("<!-- keys of ").and_then(|l| l.strip_suffix(" -->")) {
            let _ = write!(written, "{line}\n{}", reference(schema, definition));
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
        let copy = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(page);
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

/// The documents: the README, and the pages of the book but for the records, which speak of their
/// time.
fn documents() -> Vec<std::path::PathBuf> {
    let mut found = vec![repository().join("README.md")];
    for folder in ["start", "guides", "reference", "explain"] {
        let entries = std::fs::read_dir(repository().join("docs").join(folder)).unwrap();
        let pages = entries.map(|entry| entry.unwrap().path());
        found.extend(pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    found
}

#[test]
fn the_configurations_in_the_documents_hold() {
    let mut whole = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        // Behind the fence there may be the name of the file.
        let blocks = text.split("```toml").skip(1);
        let blocks = blocks.filter_map(|rest| rest.split_once('\n')?.1.split("```").next());
        for block in blocks.filter(|block| block.contains("[[listener]]") && block.contains("[[route]]")) {
            whole += 1;
            if let Err(refused) = load(block) {
                let faults = refused.report.lines().collect::<Vec<_>>().join("\n");
                panic!("{}: {faults}\n{block}", document.display());
            }
        }
    }
    // The README's, one of each start page, and those of guides.
    assert!(whole > 6, "{whole}");
}

/// Texts in `text` that follow `before`, each up to the next quotation mark.
fn quoted<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Source files that define metric families.
const COLLECTED: [&str; 14] = [
    "credentials/src/authenticate/authority",
    "credentials/src/events/mod",
    "credentials/src/revocation/sample",
    "credentials/src/watch/mod",
    "gateway/src/authorizer/mod",
    "gateway/src/review",
    "gateway/src/upstream_status",
    "login/src/lib",
    "postern/src/process/gateway_api",
    "postern/src/process/setup",
    "telemetry/src/metrics/authorizer",
    "telemetry/src/metrics/cluster",
    "telemetry/src/metrics/provider",
    "telemetry/src/metrics/scrape",
];

/// Beginnings of metrics that were renamed.
const FORMER: [&str; 4] = ["postern_authority_", "postern_coherence_", "postern_follow", "postern_review"];

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
        if !["lab/src", "lab_analysis/src", "lab_load/src"].iter().any(|lab| folder.ends_with(lab)) {
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
    let metrics = read("docs/reference/metrics.md");
    let names = |prefix: &str| {
        let sources = COLLECTED.map(|file| read(&format!("crates/{file}.rs")));
        let found = |text: &String| {
            quoted(text, &format!("\"{prefix}_")).iter().map(|rest| format!("{prefix}_{rest}")).collect()
        };
        sources.iter().flat_map(|text| -> Vec<String> { found(text) }).collect::<Vec<_>>()
    };
    let families = [names("postern"), names("process")].concat();
    assert!(families.len() > 80, "{families:?}");
    let former = families.iter().filter(|family| FORMER.iter().any(|former| family.starts_with(former)));
    assert_eq!(former.count(), 0, "{families:?}");
    for family in families {
        // Counters end in `_total`, information metrics in `_info`.
        let spelled = ["", "_total", "_info"].map(|suffix| format!("`{family}{suffix}`"));
        assert!(spelled.iter().any(|name| metrics.contains(name)), "no word of the metric {family}");
    }
    let errors = read("docs/reference/errors.md");
    let answers = read("crates/gateway/src/refusal.rs");
    let (row, _) = answers.split_once("fn row").unwrap().1.split_once("Row { status").unwrap();
    let decisions = read("crates/auth/src/decide.rs");
    let (table, _) =
        decisions.split_once("pub const fn answer").unwrap().1.split_once("Answer { status").unwrap();
    let labels = read("crates/http_engine/src/labels.rs");
    let (outcomes, _) = labels.split_once("    Outcome {").unwrap().1.split_once("label!").unwrap();
    let statuses =
        [400, 403, 404, 408, 413, 414, 421, 431, 502, 503, 504, 505].map(|status| format!("({status}, \""));
    let codes: Vec<&str> = statuses
        .iter()
        .flat_map(|status| quoted(row, status))
        .chain(quoted(table, "true, \""))
        .chain(quoted(table, "false, \""))
        .chain(quoted(outcomes, "=> \""))
        .collect();
    assert!(codes.len() > 40, "{codes:?}");
    for code in codes {
        assert!(errors.contains(&format!("`{code}`")), "no word of the code {code}");
    }
}

#[test]
fn the_client_in_the_providers_page_is_one() {
    let text = std::fs::read_to_string(repository().join("docs/guides/provider-admin.md")).unwrap();
    let block = text.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let mut client: idp::ClientConfig = serde_json::from_str(block).unwrap();
    client.id = "shop".into();
    client.secrets = vec![idp::ConfiguredSecret::Sha256("0".repeat(64))];
    let mut config = idp::Config::new("https://id.example");
    config.audiences = client.audiences.clone();
    config.clients = vec![client];
    config.check().unwrap();
}

#[test]
fn the_clients_in_the_page_of_applications_hold() {
    let text = std::fs::read_to_string(repository().join("docs/guides/provider-clients.md")).unwrap();
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let clients: Vec<_> = blocks.filter(|block| block.contains("[[provider.client]]")).collect();
    assert_eq!(clients.len(), 5);
    // The page names an administrator's files.
    let text = clients.concat();
    let secret = "secret_files = [\"billing.secret\"]";
    let lines = text.lines().map(|line| if line.starts_with("secret_files") { secret } else { line });
    let clients = lines.collect::<Vec<_>>().join("\n");
    let provider = "[provider]\nissuer = \"https://id.example\"\ndatabase = \"sqlite://p.db?mode=rwc\"\n\
                    audiences = [\"orders\"]\n";
    if let Err(refused) = load(&format!("{provider}{clients}")) {
        panic!("{}", refused.report.lines().collect::<Vec<_>>().join("\n"));
    }
}

/// Every Markdown file of the repository, in order.
fn markdown() -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                if !path.ends_with("target") {
                    below(&path, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let root = repository().canonicalize().unwrap();
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    let mut found: Vec<PathBuf> = names.map(|name| root.join(name)).into();
    for folder in ["docs", "deploy", "examples"] {
        below(&root.join(folder), &mut found);
    }
    found.sort();
    found
}

/// The lines of a page; those that are code, or generated from the schema, are empty.
fn prose(text: &str) -> Vec<&str> {
    let (mut fenced, mut generated, mut indented, mut after_empty) = (false, false, false, true);
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        generated |= line.starts_with("<!-- keys of ");
        indented = line.starts_with("    ") && (indented || after_empty) && !is_item(line);
        lines.push(if fence || fenced || generated || indented { "" } else { line });
        fenced ^= fence;
        generated &= line != "<!-- end of keys -->";
        after_empty = line.trim().is_empty();
    }
    lines
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || (number.len() < line.len() && number.starts_with(". "))
}

/// Prose in which an `x` stands for each character between backticks: code has no links.
fn without_code(prose: &str) -> String {
    let (mut out, mut rest) = (String::new(), prose);
    while let Some(at) = rest.find('`') {
        let (before, span) = rest.split_at(at);
        out.push_str(before);
        let ticks = span.len() - span.trim_start_matches('`').len();
        let paragraph = span.find("\n\n").unwrap_or(span.len());
        let end = code_end(&span[..paragraph], ticks);
        match end {
            Some(end) => out.extend(span[..end].chars().map(|c| if c == '\n' { c } else { 'x' })),
            None => out.push_str(&span[..ticks]),
        }
        rest = &span[end.unwrap_or(ticks)..];
    }
    out + rest
}

/// Where a code span ends that begins with so many backticks.
fn code_end(span: &str, ticks: usize) -> Option<usize> {
    let mut at = ticks;
    while let Some(found) = span[at..].find('`') {
        let run = &span[at + found..];
        let length = run.len() - run.trim_start_matches('`').len();
        at += found + length;
        if length == ticks {
            return Some(at);
        }
    }
    None
}

/// The targets of a page's links.
fn links(text: &str) -> Vec<String> {
    let text = without_code(&prose(text).join("\n"));
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next());
    targets.map(str::to_owned).collect()
}

/// What headings can be linked by, as GitHub and mdBook name them.
fn anchors(text: &str) -> HashSet<String> {
    let mut seen = HashMap::<String, usize>::new();
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    let slugs = headings.map(|heading| {
        let slug = slug(heading.trim_start_matches('#').trim());
        let before = seen.entry(slug.clone()).or_default();
        *before += 1;
        if *before == 1 { slug } else { format!("{slug}-{}", *before - 1) }
    });
    slugs.collect()
}

/// The anchor of a heading. Of a link its text counts.
fn slug(heading: &str) -> String {
    let mut shown = String::new();
    let mut parts = heading.split("](");
    shown.push_str(parts.next().unwrap_or_default());
    for part in parts {
        shown.push_str(part.split_once(')').map_or(part, |(_, after)| after));
    }
    let kept = shown.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// The file that a link of `page` leads to, and its anchor, which may be empty; `None`: the link
/// leaves the repository.
fn target<'l>(page: &Path, link: &'l str) -> Option<(PathBuf, &'l str)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
    Some((file.canonicalize().unwrap_or(file), anchor))
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let pages: HashMap<PathBuf, String> =
        markdown().into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect();
    let headings: HashMap<&PathBuf, HashSet<String>> =
        pages.iter().map(|(path, text)| (path, anchors(text))).collect();
    let mut faults = Vec::new();
    for (page, text) in &pages {
        for link in links(text) {
            let Some((file, anchor)) = target(page, &link) else { continue };
            let known = headings.get(&file).is_some_and(|all| all.contains(anchor));
            if !file.exists() {
                faults.push(format!("{}: {link} leads to no file", page.display()));
            } else if !anchor.is_empty() && !known {
                faults.push(format!("{}: {link} leads to no heading", page.display()));
            }
        }
    }
    faults.sort();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_book_has_every_page() {
    let docs = repository().join("docs").canonicalize().unwrap();
    let linked = |page: &str| {
        let page = docs.join(page);
        let text = std::fs::read_to_string(&page).unwrap();
        links(&text).iter().filter_map(|link| Some(target(&page, link)?.0)).collect::<HashSet<_>>()
    };
    let (summary, decisions) = (linked("SUMMARY.md"), linked("explain/decisions.md"));
    let mut left_out = markdown();
    left_out.retain(|page| {
        let listed =
            summary.contains(page) || (page.starts_with(docs.join("decisions")) && decisions.contains(page));
        page.starts_with(&docs) && !listed && !page.ends_with("SUMMARY.md")
    });
    assert!(left_out.is_empty(), "not in docs/SUMMARY.md: {left_out:?}");
}

#[test]
fn a_decision_is_listed_by_its_title() {
    let docs = repository().join("docs");
    let records: Vec<PathBuf> =
        markdown().into_iter().filter(|page| page.parent().unwrap().ends_with("decisions")).collect();
    assert!(records.len() > 40, "the records were not found");
    for list in ["SUMMARY.md", "explain/decisions.md"] {
        let text = std::fs::read_to_string(docs.join(list)).unwrap();
        for record in &records {
            let title = std::fs::read_to_string(record).unwrap();
            let title = title.lines().next().unwrap().trim_start_matches("# ");
            let name = record.file_name().unwrap().to_str().unwrap();
            let listed = text.lines().find(|line| line.contains(name)).unwrap_or_default();
            assert!(listed.contains(&format!("[{title}](")), "{list}: {listed}\n{title}");
        }
    }
}

#[test]
fn no_line_of_prose_is_too_long() {
    let mut faults = Vec::new();
    // Records of decisions stay as they were written.
    for page in
        markdown().iter().filter(|page| !page.components().any(|part| part.as_os_str() == "decisions"))
    {
        let text = std::fs::read_to_string(page).unwrap();
        for (number, line) in (1..).zip(prose(&text)) {
            let excepted = line.trim_start().starts_with('|') || line.contains("](") || line.contains("://");
            if line.chars().count() > 100 && !excepted {
                faults.push(format!("{}:{number}", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "longer than 100 columns:\n{}", faults.join("\n"));
}

#[test]
fn headings_and_links_are_read_as_a_reader_sees_them() {
    let page = "# `[[login.provider]]`\n\n## When it is 503\n\n## When [it](a.md) is 503\n\n    # no heading\n\n\
                ```\n[no](link)\n```\n\n`[no](link)` and [one `]` of these](a.md#b)\nand [two](c.md \"title\")\n";
    let expected = ["loginprovider", "when-it-is-503", "when-it-is-503-1"];
    assert_eq!(anchors(page), HashSet::from(expected.map(str::to_owned)));
    assert_eq!(links(page), ["a.md", "a.md#b", "c.md"]);
}
