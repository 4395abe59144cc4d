//! Published reports: converted to records as far as their tables go. Both causes that the reports
//! missed are found.

use std::collections::BTreeMap;

use lab_analysis::diagnose::findings;
use lab_analysis::record::{
    Arrivals, Class, Component, Finding, Iteration, LoadShape, Outcome, Record, Sample, StatedFigures,
    StatedPercentile, Sweep, Variant,
};
use serde_json::Value;

fn tables() -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/published.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn closed(workers: u64) -> LoadShape {
    LoadShape {
        arrivals: Arrivals::Closed,
        concurrency: u32::try_from(workers).ok(),
        rate_per_s: None,
        stages: Vec::new(),
        flow: "request".to_owned(),
        protocol: None,
        tokens: Some(1),
        timeout_s: None,
    }
}

/// An iteration from a table row, without histogram and timeline.
fn iteration(
    number: u32,
    ok: u64,
    bad: u64,
    per_s: f64,
    mean_us: Option<f64>,
    percentiles: Vec<StatedPercentile>,
) -> Iteration {
    let class =
        |outcome, status, count| Class { outcome, status, fault: None, count, latency: None, example: None };
    Iteration {
        classes: vec![class(Outcome::Ok, Some(200), ok), class(Outcome::Refused, Some(403), bad)],
        stated: Some(StatedFigures {
            tool: "a published table".to_owned(),
            rule: String::new(),
            mean_us,
            min_us: None,
            max_us: None,
            per_s: Some(per_s),
            percentiles,
            sent_percentiles: Vec::new(),
        }),
        ..Iteration::new(number, (ok + bad) as f64 / per_s)
    }
}

fn variant(name: &str, load: LoadShape, iterations: Vec<Iteration>) -> Variant {
    Variant {
        name: name.to_owned(),
        topology: String::new(),
        path: Vec::new(),
        labels: BTreeMap::new(),
        load,
        iterations,
        missing: Vec::new(),
        counters: BTreeMap::new(),
        profile: None,
    }
}

/// A component whose average CPU usage in a run is known.
fn component(name: &str, cores: f64, limit: Option<f64>, seconds: f64) -> Component {
    let look = |at_s: f64| Sample {
        at_ms: (at_s * 1e3) as u64,
        user_ms: (at_s * cores * 1e3) as u64,
        ..Sample::default()
    };
    Component {
        counters: BTreeMap::new(),
        name: name.to_owned(),
        cpu_limit_cores: limit,
        memory_limit_bytes: None,
        cpu_error_us: None,
        samples: vec![look(0.0), look(seconds)],
        ended: false,
    }
}

fn gateway_run(run: &Value) -> Variant {
    let rows = run["iterations"].as_array().cloned().unwrap_or_else(|| vec![run["mean"].clone()]);
    let (all, bad) = (run["requests"].as_u64().unwrap(), run["failed"].as_u64().unwrap());
    let each = all / rows.len() as u64;
    let of = |(number, row): (u32, &Value)| {
        let at = |share, key: &str| StatedPercentile { share, us: row[key].as_f64().unwrap() * 1e6 };
        let percentiles = vec![at(0.5, "p50_s"), at(0.95, "p95_s"), at(0.99, "p99_s")];
        let lost = bad / rows.len() as u64;
        let mut iteration =
            iteration(number, each - lost, lost, row["per_s"].as_f64().unwrap(), None, percentiles);
        let cores = run["cpu_cores"].as_object().unwrap();
        let programs = cores.iter().map(|(name, cores)| {
            component(name, cores.as_f64().unwrap(), run["cpu_limit_cores"][name].as_f64(), iteration.seconds)
        });
        iteration.components = programs.collect();
        iteration
    };
    let iterations = (1..).zip(&rows).map(of).collect();
    variant(run["id"].as_str().unwrap(), closed(run["concurrency"].as_u64().unwrap()), iterations)
}

fn about<'a>(found: &'a [Finding], name: &str, variant: &str) -> Option<&'a Finding> {
    let of =
        |finding: &&Finding| finding.variants.is_empty() || finding.variants.iter().any(|one| one == variant);
    found.iter().filter(|finding| finding.name == name).find(of)
}

#[test]
fn the_limit_of_50m_is_named_from_averages_alone() {
    let mut record = super::record(tables()["runs"].as_array().unwrap().iter().map(gateway_run).collect());
    for variant in &mut record.variants {
        if variant.name.ends_with("heavy-backend") {
            variant.labels.insert("backend".to_owned(), "heavy-backend".to_owned());
        }
    }
    record.check().unwrap();
    let found = findings(&record);
    let throttled = about(&found, "throttled", "3x-opaque-limited").unwrap();
    for part in [
        "`kube-auth-proxy` used 0.0334 of its 0.05 cores",
        "`3x-opaque`",
        "668 requests/s",
        "throttled periods were not sampled",
    ] {
        assert!(throttled.evidence.contains(part), "{part}: {throttled:?}");
    }
    for (run, throttled, backend) in [
        ("3x-opaque-limited", true, false),
        ("3x-opaque", false, false),
        ("2x-opaque", false, false),
        ("3x-opaque-heavy-backend", false, true),
        ("3x-jwt-heavy-backend", false, true),
    ] {
        assert_eq!(about(&found, "throttled", run).is_some(), throttled, "{run}: {found:#?}");
        assert_eq!(about(&found, "backend-bound", run).is_some(), backend, "{run}: {found:#?}");
        assert!(about(&found, "timeouts-mapped", run).is_none(), "the tables have no latency of a 403");
    }
    // 113 requests of the October run had no response in time, all in its iteration 5.
    let slow = about(&found, "slow-iteration", "3x-opaque-heavy-backend").unwrap();
    assert!(slow.evidence.contains("P99 of iteration 5"), "{slow:?}");
}

#[test]
fn the_identity_server_is_full_at_every_load() {
    let tables = tables();
    let sweeps = tables["sweeps"].as_array().unwrap();
    assert!(sweeps.len() > 5);
    let mut record = super::record(Vec::new());
    for sweep in sweeps {
        let id = sweep["id"].as_str().unwrap();
        let mut names = Vec::new();
        for row in sweep["rows"].as_array().unwrap() {
            let number = |key: &str| row[key].as_f64().unwrap();
            let all = row["samples"].as_u64().unwrap();
            let bad = (all as f64 * row["error_pct"].as_f64().unwrap_or(0.0) / 100.0) as u64;
            let name = format!("{id}/{}", row["concurrency"]);
            let iteration =
                iteration(1, all - bad, bad, number("per_s"), Some(number("mean_ms") * 1e3), Vec::new());
            record.variants.push(variant(
                &name,
                closed(row["concurrency"].as_u64().unwrap()),
                vec![iteration],
            ));
            names.push(name);
        }
        record.sweeps.push(Sweep { name: id.to_owned(), variants: names });
    }
    record.check().unwrap();
    let found = findings(&record);
    for sweep in &record.sweeps {
        for variant in &sweep.variants {
            let full = about(&found, "saturated", variant).unwrap();
            assert_eq!(full.variants, sweep.variants);
            assert!(full.evidence.contains(&format!("`{}`", sweep.name)), "{full:?}");
        }
    }
    assert!(Record::parse(record.to_json().unwrap().as_bytes(), "x").is_ok());
}
