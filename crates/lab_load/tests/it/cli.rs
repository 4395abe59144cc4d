//! Program `postern-load`: help, reports and exit codes.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

use crate::server::{Reply, Server};

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_postern-load")).args(words).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn help_names_the_commands_and_their_options() {
    let text = |words: &[&str]| String::from_utf8(run(words).stdout).unwrap();
    let top = text(&["--help"]);
    for word in ["run", "provider", "idle", "slow-loris", "observe"] {
        assert!(top.contains(word), "{top}");
    }
    let run = text(&["run", "--help"]);
    for word in ["--rate", "--steps", "--concurrency", "--token-file", "--http2", "--json", "--max-failures"]
    {
        assert!(run.contains(word), "{run}");
    }
}

/// The names in a text.
fn named(text: &'static str) -> BTreeSet<&'static str> {
    text.split(' ').collect()
}

#[test]
fn a_load_report_has_its_documented_shape() {
    let server =
        Server::start(|seen| if seen.number % 2 == 0 { Reply::Status(503) } else { Reply::Status(200) });
    let url = server.url();
    let command = format!("run {url} --rate 500 -n 100 -w 0s -c 2 --json -");
    let report = json(&run(&command.split(' ').collect::<Vec<_>>()));
    assert_eq!(report["schema"], "postern-load/1");
    assert_eq!(report["kind"], "load");
    assert_eq!(
        keys(&report),
        named(
            "schema kind findings generator plan totals latency_us service_us \
             connection_wait_us all_us latency_curve statuses faults timeline watched"
        )
    );
    assert_eq!(keys(&report["latency_us"]), named("count mean deviation min p50 p75 p90 p95 p99 p999 max"));
    assert_eq!(
        keys(&report["totals"]),
        named(
            "planned ok refused failed seconds ok_per_s ended_per_s mean_in_flight \
             mean_in_flight_while_due connections_opened bytes_received"
        )
    );
    assert_eq!(report["totals"]["ok"], 50);
    assert_eq!(report["statuses"][1]["status"], 503);
    let first = &report["timeline"][0];
    assert_eq!(
        keys(first),
        named(
            "second measured completed ok by_status faults p50_us p99_us max_us \
             in_flight waiting_us"
        )
    );
    assert!(report["generator"]["lag_us"]["p99"].is_number());
}

#[test]
fn the_table_goes_to_people_and_the_json_to_a_file() {
    let server = Server::start(|_| Reply::Status(200));
    let file = std::env::temp_dir().join(format!("postern-load-{}.json", std::process::id()));
    let path = file.to_str().unwrap();
    let output = run(&["run", &server.url(), "--concurrency", "2", "-n", "50", "-w", "0s", "--json", path]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("50 ok") && table.contains("generator:"), "{table}");
    assert!(table.starts_with("! "), "findings come first: {table}");
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(report["totals"]["ok"], 50);
}

#[test]
fn too_many_failures_are_an_exit_code() {
    let server = Server::start(|_| Reply::Status(503));
    let with = |most: &str| {
        run(&["run", &server.url(), "--rate", "500", "-n", "5", "-w", "0s", "--max-failures", most])
            .status
            .code()
    };
    assert_eq!(with("4"), Some(3));
    assert_eq!(with("5"), Some(0));
}

#[test]
fn what_cannot_run_says_why() {
    for (words, code, why) in [
        (&["run", "https://127.0.0.1:1/", "--rate", "1"][..], 1, "--ca"),
        (&["run", "http://127.0.0.1:1/"][..], 2, "--rate"),
        (
            &["run", "http://127.0.0.1:1/", "--rate", "1", "--token-file", "/nonexistent"][..],
            1,
            "/nonexistent",
        ),
        (&["run", "http://127.0.0.1:1/", "--rate", "1", "-H", "no colon"][..], 1, "not a header field"),
        (&["observe"][..], 1, "--watch"),
        (&["observe", "--watch", "x=4294967295", "-d", "1s"][..], 1, "no process"),
    ] {
        let output = run(words);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn idle_and_slow_connections_are_reported() {
    let server = Server::start(|_| Reply::Status(200));
    let idle = json(&run(&[
        "idle",
        &server.url(),
        "-c",
        "10",
        "-d",
        "200ms",
        "--request",
        "--token",
        "t",
        "--json",
        "-",
    ]));
    assert_eq!((&idle["kind"], &idle["open_at_end"]), (&Value::from("idle"), &Value::from(10)));
    let slow = json(&run(&[
        "slow-loris",
        &server.url(),
        "-c",
        "3",
        "-d",
        "200ms",
        "--interval",
        "50ms",
        "--json",
        "-",
    ]));
    assert_eq!((&slow["kind"], &slow["opened"]), (&Value::from("slow-loris"), &Value::from(3)));
}

#[test]
fn a_process_is_observed_until_it_ends() {
    let mut busy =
        Command::new("sh").args(["-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"]).spawn().unwrap();
    let watch = format!("busy={}", busy.id());
    let observing = Command::new(env!("CARGO_BIN_EXE_postern-load"))
        .args(["observe", "--watch", &watch, "-d", "60s", "--interval", "20ms", "--json", "-"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    busy.wait().unwrap();
    let report = json(&observing.wait_with_output().unwrap());
    let seen = &report["watched"][0];
    assert_eq!(seen["ended"], true);
    assert!(seen["cpu_user_s"].as_f64().unwrap() > 0.0, "{seen}");
    assert!(seen["rss_max_bytes"].as_u64().unwrap() > 100_000, "{seen}");
}
