//! Findings under a real load: each fault is found by its name, and nothing else is found.
//!
//! [`seeded`] loads real servers with one fault each. Records that need no run are tested where the
//! rules are (`lab_analysis`).

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures made up here are small and positive"
)]

mod bridge;
mod control_group;
mod faulty;
mod profiled;
mod seeded;
mod streams;

use std::sync::{Mutex, PoisonError};

use lab_analysis::diagnose::findings;
use lab_analysis::record::{Finding, Record};

/// The finding that must be reported for a fault, and findings that may be reported with it.
struct Row {
    fault: &'static str,
    found: &'static str,
    beside: &'static [&'static str],
}

const fn row(fault: &'static str, found: &'static str, beside: &'static [&'static str]) -> Row {
    Row { fault, found, beside }
}

/// Faults × findings. docs/reference/lab.md has the same table.
const MATRIX: [Row; 25] = [
    row("no fault", "", &[]),
    row("a CPU limit that is too low", "throttled", &[]),
    row("a slow backend", "backend-bound", &[]),
    row(
        "more load than the generator can send",
        "generator-bound",
        &["requests-unsent", "little-law-broken"],
    ),
    row("a new connection for each request", "connection-churn", &[]),
    row("an empty cache in front of the token authority", "cold-cache", &[]),
    row("one iteration with a slower server", "slow-iteration", &["odd-iteration"]),
    row("a key rotation that is detected late", "error-burst", &["errors"]),
    row("memory that every request leaks", "memory-growth", &[]),
    row("threads that contend for one lock", "lock-convoy", &["saturated", "little-law-broken"]),
    row("many calls to the token authority per request", "n-plus-one", &[]),
    row("a garbage collector that stops the program", "gc-like-pauses", &[]),
    row(
        "a token authority that times out, reported as 403",
        "timeouts-mapped",
        &["errors", "connection-churn"],
    ),
    row("a rate above the server's capacity", "saturated", &["requests-unsent"]),
    row("a backend that stalls for a second", "stalls", &[]),
    row("busy programs on the server's core", "waits-for-core", &[]),
    row("no fault, profiled", "", &[]),
    row("a lock that every request holds for a while", "waits-for-lock", &["saturated", "little-law-broken"]),
    row("a file that every request syncs to its disk", "waits-for-disk", &[]),
    row("a pause in every request", "sleeps", &[]),
    row("one thread that does the work of all", "one-thread-bound", &["saturated", "little-law-broken"]),
    row("streams without a fault", "", &[]),
    row("a gateway that is stopped while streams are open", "stream-stalls", &[]),
    row("a proxy that collects the events of a stream", "buffered-stream", &[]),
    row("a proxy that closes WebSockets without messages", "websocket-idle-timeout", &["errors"]),
];

/// Findings that every short run on a shared machine may have, independent of its target.
const ALWAYS: [&str; 7] = [
    "few-iterations",
    "closed-loop",
    "machine-shared",
    "time-stolen",
    "core-starved",
    "waits-for-core",
    "generator-late",
];

fn of(fault: &str) -> &'static Row {
    MATRIX.iter().find(|row| row.fault == fault).unwrap()
}

/// Checks the findings of a record with this fault.
fn check_findings(row: &Row, found: &[Finding]) -> Result<(), String> {
    let expected = |name: &&str| *name == row.found || !ALWAYS.contains(name);
    let names: Vec<&str> = found.iter().map(|finding| &*finding.name).filter(expected).collect();
    if !row.found.is_empty() && !names.contains(&row.found) {
        return Err(format!("`{}` is not found: {found:#?}", row.found));
    }
    let other: Vec<&&str> =
        names.iter().filter(|name| **name != row.found && !row.beside.contains(name)).collect();
    if other.is_empty() { Ok(()) } else { Err(format!("{other:?} is found: {found:#?}")) }
}

/// Measures a fault and checks the findings against the matrix. Returns the finding of the fault.
/// Other load on the machine can distort a single run, so there are three attempts; a wrong rule
/// fails in all of them.
fn check_fault(fault: &str, measure: impl Fn() -> Record) -> Finding {
    // Two loads at the same time would disturb each other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let row = of(fault);
    let mut wrong = Vec::new();
    for _ in 0..3 {
        let record = measure();
        record.check().unwrap();
        let found = findings(&record);
        match check_findings(row, &found) {
            Ok(()) => {
                let about = found.into_iter().find(|finding| finding.name == row.found);
                return about.unwrap_or_else(|| Finding {
                    name: String::new(),
                    variants: Vec::new(),
                    doubt: lab_analysis::record::Doubt::Explains,
                    evidence: String::new(),
                    remedy: String::new(),
                });
            }
            Err(what) => wrong.push(what),
        }
    }
    panic!("{fault}:\n{}", wrong.join("\n"));
}

#[test]
fn the_matrix_is_in_the_documentation() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/lab.md");
    let text = std::fs::read_to_string(path).unwrap();
    let code = |names: &[&str]| {
        let quoted: Vec<String> =
            names.iter().filter(|name| !name.is_empty()).map(|name| format!("`{name}`")).collect();
        if quoted.is_empty() { "–".to_owned() } else { quoted.join(", ") }
    };
    let rows = MATRIX.map(|row| format!("| {} | {} | {} |", row.fault, code(&[row.found]), code(row.beside)));
    let wanted = format!("| fault | finding | may also be found |\n|---|---|---|\n{}\n\n", rows.join("\n"));
    assert!(text.contains(&wanted), "docs/reference/lab.md needs this table:\n{wanted}");
}
