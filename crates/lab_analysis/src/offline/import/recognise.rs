//! Recognition: which tool wrote a file.
//!
//! Owns: the tool and form by a file's content, and which files are refused because something else
//! of the same run has to be imported.
//! Does not own: reading a form.
//!
//! A recognised file may still be malformed: its beginning decides.

use super::tool::Tool;
use super::{ImportError, gatling, jmeter, vegeta};

/// Keys of the forms that are one JSON document.
const DOCUMENTS: [(Tool, &[&str]); 7] = [
    (Tool::Oha, &["\"latencyPercentiles\""]),
    (Tool::Ghz, &["\"statusCodeDistribution\"", "\"latencyDistribution\""]),
    (Tool::VegetaReport, &["\"status_codes\"", "\"latencies\""]),
    (Tool::Fortio, &["\"DurationHistogram\"", "\"RequestedQPS\""]),
    (Tool::GatlingStats, &["\"numberOfRequests\"", "\"percentiles1\""]),
    (Tool::Nighthawk, &["\"benchmark_http_client."]),
    (Tool::K6Summary, &["\"http_req_duration\""]),
];

/// Text of a file. Fails for a binary file, with what to import instead where it is known.
pub fn decode(bytes: Vec<u8>, file: &str) -> Result<String, ImportError> {
    let binary = |reason: &str| ImportError::Unusable { file: file.to_owned(), reason: reason.to_owned() };
    // A short binary file can be valid UTF-8, so its form counts first.
    if let Some(version) = gatling::binary_version(&bytes) {
        return Err(binary(&gatling::binary_remedy(&version)));
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(binary("is compressed: decompress it first, with `gunzip`"));
    }
    if vegeta::is_binary(&bytes) {
        return Err(binary(
            "has vegeta's results in its binary form: convert it with `vegeta encode --to json`",
        ));
    }
    String::from_utf8(bytes).map_err(|_| binary("is not UTF-8 text"))
}

/// What to import instead of a file that has too little of a run; `None` for other files.
pub(super) fn too_little(content: &str) -> Option<&'static str> {
    let first = first_line(content).replace('"', "");
    if first.starts_with("Percentage served,Time in ms") {
        return Some(
            "has ab's percentiles (-e), but neither the number of requests nor their time: import ab's text report, or its file for gnuplot (-g)",
        );
    }
    if first.starts_with("Method,Name,Error,Occurrences") || first.starts_with("Count,Message,Traceback") {
        return Some("has only failures of Locust: import the file that ends in `_stats.csv`");
    }
    if first.starts_with("Requests") && first.contains("[total, rate") {
        return Some("is vegeta's report as text: import `vegeta report -type json`, or all requests");
    }
    None
}

fn first_line(content: &str) -> &str {
    let text = content.trim_start_matches('\u{feff}').trim_start();
    text.lines().next().unwrap_or_default()
}

/// Recognises the tool that wrote a file by its beginning; `None` for an unknown format.
pub fn recognise(content: &str) -> Option<Tool> {
    let text = content.trim_start_matches('\u{feff}').trim_start();
    let first = first_line(content);
    if first.starts_with("response-time,") {
        return Some(Tool::HeyCsv);
    }
    if jmeter::delimiter(first).is_some() {
        return Some(Tool::Jtl);
    }
    if text.starts_with("<?xml") || text.starts_with("<testResults") {
        return text.contains("<testResults").then_some(Tool::JtlXml);
    }
    if first.starts_with("Running ") && text.contains(" requests in ") {
        return Some(Tool::Wrk);
    }
    if first.starts_with("Summary:") && text.contains("Requests/sec:") {
        return Some(Tool::Hey);
    }
    if first.starts_with("starting benchmark...") {
        return Some(Tool::H2load);
    }
    let numbers = first.split_whitespace().take_while(|field| field.parse::<i64>().is_ok()).count();
    if numbers >= 3 && first.contains('\t') {
        return Some(Tool::H2loadLog);
    }
    table(first).or_else(|| report(text, first)).or_else(|| json(text, first))
}

/// Forms with a line of column names, and CSV without one.
fn table(first: &str) -> Option<Tool> {
    let names = first.replace('"', "");
    if names.starts_with("Type,Name,Request Count,") {
        return Some(Tool::Locust);
    }
    if names.starts_with("Timestamp,User Count,Type,Name,") {
        return Some(Tool::LocustHistory);
    }
    if first.starts_with("starttime\tseconds\tctime\t") {
        return Some(Tool::AbTsv);
    }
    vegeta::is_csv(first).then_some(Tool::VegetaCsv)
}

/// Texts for people, logs and scripts.
fn report(text: &str, first: &str) -> Option<Tool> {
    if first.starts_with("RUN\t") || first.starts_with("ASSERTION\t") && text.contains("\nRUN\t") {
        return Some(Tool::Gatling);
    }
    if first.starts_with("var stats = {") && text.contains("\"numberOfRequests\"") {
        return Some(Tool::GatlingStats);
    }
    let ab = first.starts_with("This is ApacheBench") || first.starts_with("Server Software:");
    (ab && text.contains("Concurrency Level:")).then_some(Tool::Ab)
}

/// Forms in JSON.
fn json(text: &str, first: &str) -> Option<Tool> {
    if !first.starts_with('{') {
        return None;
    }
    let line = |keys: &[&str]| keys.iter().all(|key| first.contains(key));
    let all = |keys: &[&str]| keys.iter().all(|key| text.contains(key));
    if line(&["\"type\":\"Metric\""]) || line(&["\"type\":\"Point\""]) {
        return Some(Tool::K6);
    }
    if line(&["\"seq\":", "\"code\":", "\"latency\":"]) {
        return Some(Tool::Vegeta);
    }
    DOCUMENTS.iter().find_map(|(tool, keys)| all(keys).then_some(*tool))
}
