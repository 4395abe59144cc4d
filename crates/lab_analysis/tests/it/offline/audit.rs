//! Audit: findings in published tables, and no findings where there is nothing wrong.

use lab_analysis::offline::audit::{Remark, Tables, audit, markdown};
use lab_analysis::record::Doubt;
use lab_analysis::test_support::sample;
use serde_json::{Value, json};

fn of(tables: &Value) -> Vec<Remark> {
    let mut whole = json!({"format": "postern-lab-tables/1", "title": "t", "provenance": "p"});
    whole.as_object_mut().unwrap().extend(tables.as_object().unwrap().clone());
    audit(&Tables::parse(whole.to_string().as_bytes(), "test").unwrap())
}

fn rules(tables: &Value) -> Vec<&'static str> {
    of(tables).iter().map(|remark| remark.rule).collect()
}

/// A run in an open loop, as JSON; its iterations belong together.
fn run(id: &str, more: &Value) -> Value {
    let rows: Vec<Value> = [0.100, 0.101, 0.099, 0.1005, 0.0995]
        .iter()
        .map(|p50| json!({"p50_s": p50, "p95_s": p50 * 2.0, "p99_s": p50 * 3.0, "per_s": 200.0}))
        .collect();
    let mut run = json!({"id": id, "title": id, "arrivals": "open", "iterations": rows});
    run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    run
}

fn claim(that: &Value) -> Value {
    json!([{"says": "it", "that": that}])
}

#[test]
fn the_published_reports_hold_what_is_known_to_be_wrong() {
    let tables = Tables::shipped().unwrap();
    let remarks = audit(&tables);
    let text = markdown(&tables, &remarks);
    let find = |rule: &str, about: &str| {
        remarks
            .iter()
            .find(|remark| remark.rule == rule && remark.about.contains(about))
            .unwrap_or_else(|| panic!("{rule} about {about} in\n{text}"))
    };
    let p99 = find("mean-does-not-follow", "7.24 s");
    assert!(p99.evidence.contains("3.11 s, printed 7.24 s"), "{p99:?}");
    find("mean-does-not-follow", "4.98 s");
    for (about, share) in [("2.7 %", "1.18 %"), ("0.9 %", "0.36 %")] {
        let variation = find("variation-is-a-range", about);
        assert!(variation.evidence.contains(&format!("over its mean is {share}")), "{variation:?}");
    }
    let closed = find("closed-loop-throughput", "fixed number of workers");
    assert_eq!(closed.evidence.matches("50 ÷").count(), 5, "{closed:?}");
    let peak = find("cores-cannot-serve", "0.1743 cores at 668");
    assert!(peak.evidence.contains("261 µs") && peak.evidence.contains("1150 µs"), "{peak:?}");
    assert!(peak.evidence.contains("0.768 cores") && peak.evidence.contains("1.15 cores"), "{peak:?}");
    assert!(peak.evidence.contains("but that is at 29.1 req/s"), "{peak:?}");
    // 29 and 668 requests a second are not comparable rates, nor are 668 and 1032, so such a
    // comparison proves nothing.
    for remark in remarks.iter().filter(|remark| remark.rule == "cores-cannot-serve") {
        assert_eq!(remark.doubt, Doubt::Careful, "{remark:?}");
    }
    let backend = find("cores-cannot-serve", "light-backend on 0.0082 cores at 1032");
    assert_eq!(
        backend.doubt,
        Doubt::Careful,
        "a backend that takes 4 µs for a request is no mistake: {backend:?}"
    );
    assert!(
        text.contains("statements do not follow.") && text.contains("cores-cannot-serve (careful)"),
        "{text}"
    );
    let full = find("saturated", "13 of 13");
    assert!(full.evidence.contains("from 50 workers on"), "{full:?}");
    let claims = remarks.iter().filter(|remark| remark.rule == "no-impact-at-a-full-server").count();
    assert_eq!(claims, 8, "none of the claims about the connector follows\n{text}");
    find("capacity-from-a-closed-loop", "1.5 times");
    let parts = find("parts-are-not-the-whole", "four parts");
    assert!(parts.evidence.contains("35.0 to 55.0 ms") && parts.evidence.contains("23.9 ms"), "{parts:?}");
    find("throttled-reading", "kube-auth-proxy at 0.0334 of 0.05 cores");
    find("spread-is-a-range", "2.42 req/s");
    let odd = find("odd-iteration", "opaque tokens, heavy backend");
    assert!(odd.evidence.contains("iteration 5 is 12.5513 s"), "{odd:?}");
}

#[test]
fn published_runs_stand_beside_measured_ones() {
    let tables = Tables::shipped().unwrap();
    let mut record = sample::record(1);
    record.reference = tables.references("3x-opaque-limited", Some("3x/50m"));
    let row = &record.reference[0];
    assert!(
        (row.p50_us.unwrap() - 1_618_000.0).abs() < 1.0 && (row.per_s.unwrap() - 29.05).abs() < 1e-6,
        "{row:?}"
    );
    let text = lab_analysis::offline::report::sheet(&record).markdown();
    assert!(text.contains("auth proxy limited to 0.05 cores † |"), "{text}");
    assert!(text.contains("\n† published, other hardware"), "{text}");
    assert_eq!(tables.references("nothing", None), []);
    // A sweep reference stands for several variants: one row per variant.
    let rows = tables.references("code/off/1", Some("off/code-@concurrency@"));
    let beside: Vec<_> =
        rows.iter().map(|row| (row.beside.as_deref().unwrap(), row.per_s.unwrap())).collect();
    assert_eq!(
        beside,
        [
            ("off/code-50", 451.27),
            ("off/code-150", 480.13),
            ("off/code-300", 470.31),
            ("off/code-500", 473.3)
        ]
    );
    assert!(rows[3].label.ends_with("500 users: mean 993 ms, 1.79 % failed"), "{}", rows[3].label);
}

#[test]
fn what_is_right_in_the_published_reports_is_not_touched() {
    let remarks = audit(&Tables::shipped().unwrap());
    for right in
        ["18.42 req/s", "17.69 req/s", "29.05 req/s is", "82.3 %", "98.6 %", "95.7 %", "2.80 s", "2.6351 s"]
    {
        let touched =
            remarks.iter().find(|remark| remark.about.starts_with('"') && remark.about.contains(right));
        assert!(touched.is_none(), "{touched:?}");
    }
}

#[test]
fn a_consistent_table_has_no_remark() {
    let cpu = json!({"cpu_cores": {"proxy": 0.05}});
    assert_eq!(
        rules(&json!({
            "runs": [run("a", &cpu), run("b", &cpu)],
            "claims": claim(&json!({"kind": "mean", "run": "a", "column": "p50_s", "printed": "0.1000"})),
        })),
        Vec::<&str>::new()
    );
}

#[test]
fn a_mean_follows_or_not() {
    let with = |printed: &str, without: Value| {
        rules(&json!({
            "runs": [run("a", &json!({}))],
            "claims": claim(&json!({"kind": "mean", "run": "a", "column": "p50_s", "printed": printed, "without": without})),
        }))
    };
    assert_eq!(with("0.100", json!([])), Vec::<&str>::new());
    assert_eq!(with("0.10", json!([1])), Vec::<&str>::new());
    assert_eq!(with("0.102", json!([])), ["mean-does-not-follow"]);
    assert_eq!(with("0.1000", json!([2])), ["mean-does-not-follow"], "without the second it is 0.09975");
}

#[test]
fn a_variation_is_one_or_a_range() {
    // Standard deviation 0.000791, mean 0.1, range 0.002.
    let with = |printed: &str| {
        rules(&json!({
            "runs": [run("a", &json!({}))],
            "claims": claim(&json!({"kind": "variation", "run": "a", "column": "p50_s", "printed": printed})),
        }))
    };
    assert_eq!(with("0.8"), Vec::<&str>::new());
    assert_eq!(with("2.0"), ["variation-is-a-range"]);
    assert_eq!(with("9.0"), ["variation-does-not-follow"]);
}

#[test]
fn a_spread_is_one_or_a_range() {
    let with = |printed: &str| {
        rules(&json!({
            "runs": [run("a", &json!({}))],
            "claims": claim(&json!({"kind": "spread", "run": "a", "column": "p50_s", "printed": printed})),
        }))
    };
    assert_eq!(with("0.0008"), Vec::<&str>::new());
    assert_eq!(with("0.0020"), ["spread-is-a-range"]);
    assert_eq!(with("0.5"), ["spread-does-not-follow"]);
}

#[test]
fn a_change_allows_for_the_rounding_of_its_ends() {
    let with = |from: &str, to: &str, printed: &str| {
        rules(
            &json!({"claims": claim(&json!({"kind": "change", "from": from, "to": to, "printed": printed}))}),
        )
    };
    assert_eq!(with("2.64", "1.62", "-38.6"), Vec::<&str>::new());
    assert_eq!(with("2.80", "3.14", "12.1"), Vec::<&str>::new());
    assert_eq!(with("2.80", "3.14", "13.1"), ["change-does-not-follow"]);
    assert_eq!(with("100", "50", "50"), ["change-does-not-follow"], "the sign counts");
}

#[test]
fn a_closed_loop_is_told_from_an_open_one() {
    let at = |arrivals: &str, latency: &str, per_s: f64| {
        let row = json!({latency: 0.1, "per_s": per_s});
        rules(
            &json!({"runs": [run("a", &json!({"arrivals": arrivals, "concurrency": 20, "iterations": [row]}))]}),
        )
    };
    assert_eq!(at("closed", "p50_s", 195.0), ["closed-loop-throughput"]);
    assert_eq!(at("open", "p50_s", 195.0), Vec::<&str>::new());
    assert_eq!(at("closed", "mean_s", 50.0), ["little-law-broken"], "20 workers at 0.1 s are 200 per second");
    assert_eq!(at("closed", "p50_s", 50.0), Vec::<&str>::new(), "the slower half may take so long");
    assert_eq!(at("closed", "p50_s", 450.0), ["little-law-broken"], "no median is twice the mean");
}

#[test]
fn machines_do_not_follow_from_a_closed_loop() {
    let with = |arrivals: &str| {
        let of = |id: &str, p50: f64| {
            let row = json!({"p50_s": p50, "per_s": 20.0 / p50});
            run(id, &json!({"arrivals": arrivals, "concurrency": 20, "iterations": [row]}))
        };
        let all = rules(&json!({
            "runs": [of("fast", 0.1), of("slow", 0.15)],
            "claims": claim(&json!({"kind": "replicas", "run": "slow", "than": "fast", "printed": "1.5"})),
        }));
        all.contains(&"capacity-from-a-closed-loop")
    };
    assert!(with("closed"));
    assert!(!with("open"));
}

#[test]
fn cores_have_to_serve_what_they_are_said_to() {
    let with = |cores: f64, limit: Value| {
        rules(&json!({"runs": [
            run("a", &json!({"cpu_cores": {"proxy": 0.1}, "cpu_limit_cores": limit})),
            run("b", &json!({"cpu_cores": {"proxy": cores}})),
        ]}))
    };
    assert_eq!(with(0.08, json!({})), Vec::<&str>::new());
    assert_eq!(with(0.02, json!({})), ["cores-cannot-serve"]);
    // At another rate a request may cost much less CPU: the core idles between requests.
    let at = |per_s: f64, cores: f64| {
        let rows = json!([{"p50_s": 0.1, "per_s": per_s}]);
        let runs = json!({"runs": [
            run("a", &json!({"iterations": rows, "cpu_cores": {"proxy": 0.1}})),
            run("b", &json!({"cpu_cores": {"proxy": cores}})),
        ]});
        of(&runs).iter().map(|remark| (remark.rule, remark.doubt)).collect::<Vec<_>>()
    };
    assert_eq!(at(20.0, 0.2), [("cores-cannot-serve", Doubt::Careful)], "10 µs at 200/s beside 5 ms at 20/s");
    assert_eq!(
        at(150.0, 0.02),
        [("cores-cannot-serve", Doubt::Invalid)],
        "0.1 ms at 200/s beside 0.67 ms at 150/s"
    );
    assert_eq!(at(150.0, 0.12), []);
    assert_eq!(
        with(0.11, json!({"proxy": 0.11})),
        Vec::<&str>::new(),
        "both are as fast: no limit holds anything back"
    );
}

#[test]
fn a_throttled_program_uses_its_limit() {
    let with = |cores: f64| {
        let slow = json!([{"p50_s": 1.0, "per_s": 20.0}]);
        rules(&json!({"runs": [
            run("limited", &json!({"iterations": slow, "cpu_cores": {"proxy": cores}, "cpu_limit_cores": {"proxy": 0.05}})),
            run("free", &json!({"cpu_cores": {"proxy": 0.45}})),
        ]}))
    };
    assert_eq!(with(0.049), Vec::<&str>::new());
    assert_eq!(with(0.030), ["throttled-reading"]);
}

#[test]
fn parts_have_to_sum_up() {
    let with = |high: f64| {
        rules(&json!({
            "runs": [run("without", &json!({})), run("with", &json!({"iterations": [{"p50_s": 0.130, "per_s": 200.0}]}))],
            "claims": claim(&json!({"kind": "parts", "from": "without", "to": "with", "column": "p50_s",
                "parts": {"one": [0.010, 0.015], "other": [0.012, high]}})),
        }))
    };
    assert_eq!(with(0.016), Vec::<&str>::new());
    assert_eq!(with(0.013), ["parts-are-not-the-whole"]);
}

fn sweep(id: &str, rows: &[(u32, f64)], repeats: &[f64]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|(workers, per_s)| {
            json!({"concurrency": workers, "per_s": per_s, "mean_ms": f64::from(*workers) / per_s * 1e3,
                "samples": (per_s * 300.0) as u64, "repeats_per_s": repeats.iter().map(|share| per_s * share).collect::<Vec<_>>()})
        })
        .collect();
    json!({"id": id, "title": id, "run_s": 300.0, "rows": rows})
}

#[test]
fn a_full_server_shows_no_impact_of_anything() {
    let full = [(50, 450.0), (150, 470.0), (300, 465.0)];
    let free = [(5, 100.0), (10, 200.0), (20, 400.0)];
    let with = |rows: &[(u32, f64)], margin: Value, repeats: (&[f64], &[f64])| {
        let mut that = json!({"kind": "no-impact", "from": "off", "to": "on"});
        that["margin_pct"] = margin;
        let sweeps = [sweep("off", rows, repeats.0), sweep("on", rows, repeats.1)];
        rules(&json!({"sweeps": sweeps, "claims": claim(&that)}))
    };
    let (steady, same, slower) = ([1.0, 1.001, 0.999], [1.001, 1.0, 0.999], [0.9, 0.901, 0.899]);
    assert_eq!(with(&full, json!(5.0), (&steady, &same)), ["saturated", "no-impact-at-a-full-server"]);
    assert_eq!(
        with(&free, json!(5.0), (&steady, &same)),
        Vec::<&str>::new(),
        "repeated below the knee, within a margin"
    );
    assert_eq!(with(&free, Value::Null, (&steady, &same)), ["no-margin"]);
    assert_eq!(with(&free, json!(5.0), (&[], &[])), ["no-impact-unproven"]);
    assert_eq!(with(&free, json!(1.0), (&steady, &slower)), ["there-is-an-impact"]);
}

#[test]
fn rows_of_a_sweep_may_not_contradict_themselves() {
    let mut broken = sweep("s", &[(5, 100.0), (10, 200.0), (20, 400.0)], &[]);
    broken["rows"][1]["samples"] = json!(30_000);
    broken["rows"][2]["mean_ms"] = json!(500.0);
    assert_eq!(rules(&json!({"sweeps": [broken]})), ["rate-is-not-samples-over-time", "little-law-broken"]);
}

#[test]
fn a_table_that_cannot_be_read_says_why() {
    let error =
        |json: Value| Tables::parse(json.to_string().as_bytes(), "tables.json").unwrap_err().to_string();
    let base = |more: Value| {
        let mut whole = json!({"format": "postern-lab-tables/1", "title": "t", "provenance": "p"});
        whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        error(whole)
    };
    assert!(base(json!({"rows": []})).contains("unknown field `rows`"));
    assert!(
        base(json!({"runs": [run("a", &json!({})), run("a", &json!({}))]}))
            .contains("two tables have the id `a`")
    );
    let nobody = claim(&json!({"kind": "mean", "run": "nobody", "column": "p50_s", "printed": "1.0"}));
    assert!(base(json!({"claims": nobody})).contains("names `nobody`, but no run or sweep has this id"));
    let digits = claim(&json!({"kind": "change", "from": "1e3", "to": "2", "printed": "2"}));
    assert!(base(json!({"claims": digits})).contains("`1e3` is not a figure"));
    assert!(error(json!({"format": "postern-lab-tables/9"})).contains("tables.json"));
}

/// Results as a plain list. Which conclusions do not follow from them is known.
const RESULTS: &str = r#"{
  "note": "made up",
  "gateway": [
    {"id": "limited", "source": "a.txt", "architecture": "edge > proxy > service", "token": "opaque", "tool": "hey", "requests": 5000, "concurrency": 20,
     "iterations_s": [{"p50": 1.0, "p95": 1.5, "p99": 2.0, "rps": 19.9}, {"p50": 1.01, "p95": 1.5, "p99": 2.0, "rps": 19.7}, {"p50": 0.99, "p95": 1.5, "p99": 2.0, "rps": 20.1},
       {"p50": 1.0, "p95": 1.5, "p99": 9.0, "rps": 20.0}, {"p50": 1.0, "p95": 1.5, "p99": 2.1, "rps": 20.0}],
     "failed": 3, "error_kind": "timeout", "cpu_cores": {"proxy": 0.03, "service": 0.001}, "memory_mb": {"proxy": [20, 22]}},
    {"id": "free", "tool": "hey", "concurrency": 20, "mean_s": {"p50": 0.05, "p95": 0.08, "p99": 0.1, "rps": 398}, "cpu_cores": {"proxy": 0.2, "service": 0.002}},
    {"id": "paced", "tool": "wrk2", "concurrency": 20, "mean_s": {"p50": 0.05, "rps": 398}}
  ],
  "identity_server": {"source": "b.txt", "nodes_per_cluster": 2, "run_s": 300, "tool": "JMeter", "results": [
    {"clusters": 1, "connector": "off", "flow": "code", "rows": [{"concurrency": 50, "samples": 30000, "tps": 100, "mean_ms": 500, "error_pct": 0},
      {"concurrency": 150, "samples": 30300, "tps": 101, "mean_ms": 1485}, {"concurrency": 300, "samples": 33000, "tps": 100, "mean_ms": 3000}]}
  ]}
}"#;

#[test]
fn a_list_of_published_results_is_read() {
    let tables = Tables::parse(RESULTS.as_bytes(), "results.json").unwrap();
    assert_eq!((tables.runs.len(), tables.sweeps.len(), &*tables.provenance), (3, 1, "made up"));
    assert_eq!(tables.sweeps[0].id, "code/off/1");
    let remarks = audit(&tables);
    let find = |rule: &str| {
        let found = remarks.iter().find(|remark| remark.rule == rule);
        found.unwrap_or_else(|| panic!("{rule} in {remarks:?}"))
    };
    assert!(find("odd-iteration").evidence.contains("P99 of iteration 4 is 9 s where 2.0000 s is usual"));
    let closed = find("closed-loop-throughput");
    assert_eq!(closed.evidence.matches("20 ÷").count(), 2, "who paces itself is no closed loop: {closed:?}");
    assert!(find("saturated").evidence.contains("code, connector off, clusters 1"));
    let rate = find("rate-is-not-samples-over-time");
    assert!(rate.evidence.contains("33000 in 300 s are 110.00 per s, published 100"), "{rate:?}");
    assert_eq!(find("cores-cannot-serve").doubt, Doubt::Careful);
    let broken =
        Tables::parse(RESULTS.replace("\"tps\": 101", "\"tps\": \"many\"").as_bytes(), "results.json");
    assert!(broken.unwrap_err().to_string().contains("results.json"));
}

/// A page in the format of published reports.
const PAGE: &str = "# Gateway: A and B

## Configuration
- **Concurrency:** 20 concurrent connections

## Latency
### P95 Latency by Iteration

| Iteration | Plain P95 | Signed P95 | Difference | % Diff |
|-----------|-----------|------------|------------|--------|
| 1 | 2.00s | 2.21s | +0.21s | +10.5% |
| 2 | 2.10s | 2.11s | +0.01s | +0.5% |
| 3 | 1.90s | 2.31s | +0.41s | +12.1% |
| **Average** | **2.00s** | **2.25s** | **+0.25s** | **+12.5%** |

#### P50 (Median) Latency

| Iteration | Plain | Signed |
|---|---|---|
| 1 | 1.00s | 1.10s |
| 2 | 1.00s | 1.10s |
| 3 | 1.00s | 1.10s |
| **Average** | **1.00s** | **1.10s** |

## Summary

| Metric | May | June | Change |
|--------|-----|------|--------|
| **Throughput** | 20.0 req/s | 30.0 req/s | **+50.0%** better |
| **P99 Latency** | ~4.00s* | 3.00s | **-30.0%** |
| **Success Rate** | 99.77% | 99.96% | **+0.19%** |
| **Memory** | ~47-50 MB | 13.2 MB | -34.3 MB |

| Architecture | P50 | P95 | P99 | Throughput | Success Rate |
|--------------|-----|-----|-----|------------|--------------|
| **2.x** (route) | 50ms | 55ms | 66ms | 400 req/s | 100% |
| **3.x** (gateway) | 70ms | 110ms | 138ms | 1,286 req/s | 100% |

**Setup 1: without the connector**

| Scenario Name        | Concurrency | # Samples | Throughput (transactions/sec) | Average Response Time (ms) | error % |
|----------------------|-------------|-----------|-------------------------------|----------------------------|---------|
| Code                 | 50          | 135343    | 451.27                        | 107.71                     | 0.00%   |
|                      | 150         | 144232    | 480.13                        | 303.86                     | 0.00%   |
|                      | 300         | 141126    | 470.31                        | 612.12                     | 1.79%   |
| Password             | 50          | 1000      | 100                           | 2000                       | 0.00%   |
|                      | 100         | 1000      | 200                           | 500                        | 0.00%   |
|                      | 200         | 1000      | 400                           | 500                        | 0.00%   |
";

#[test]
fn the_tables_of_a_page_are_read() {
    let tables = Tables::parse(PAGE.as_bytes(), "page.md").unwrap();
    assert_eq!(tables.title, "Gateway: A and B");
    let run =
        |id: &str| tables.runs.iter().find(|run| run.id == id).unwrap_or_else(|| panic!("{id}: {tables:?}"));
    let (plain, fast) = (run("Plain"), run("3.x (gateway)"));
    assert_eq!(
        plain.iterations.iter().map(|row| (row.p50_s, row.p95_s)).collect::<Vec<_>>(),
        [(Some(1.0), Some(2.0)), (Some(1.0), Some(2.1)), (Some(1.0), Some(1.9))]
    );
    assert_eq!(
        fast.mean.as_ref().map(|mean| (mean.p50_s, mean.p99_s, mean.per_s)),
        Some((Some(0.07), Some(0.138), Some(1286.0)))
    );
    assert_eq!(fast.concurrency, Some(20), "as the page says of all");
    let sweeps: Vec<(&str, usize)> =
        tables.sweeps.iter().map(|sweep| (&*sweep.title, sweep.rows.len())).collect();
    assert_eq!(
        sweeps,
        [
            ("Setup 1: without the connector, Summary, Code", 3),
            ("Setup 1: without the connector, Summary, Password", 3)
        ]
    );
    let text = markdown(&tables, &audit(&tables));
    let remarks = audit(&tables);
    let of = |rule: &str| {
        remarks.iter().filter(|remark| remark.rule == rule).map(|remark| &*remark.about).collect::<Vec<_>>()
    };
    assert_eq!(of("mean-does-not-follow"), ["\"P95 of Signed: average 2.25 s\""], "it is 2.21\n{text}");
    let changes = of("change-does-not-follow");
    assert_eq!(changes.len(), 2, "{text}");
    assert!(
        changes[0].contains("Iteration 3, from 1.90s to 2.31s: +12.1 %")
            && changes[1].contains("P99 Latency"),
        "{changes:?}"
    );
    assert_eq!(of("saturated").len(), 1, "{text}");
    let little =
        remarks.iter().filter(|remark| remark.rule == "little-law-broken").map(|remark| &*remark.evidence);
    let little: Vec<&str> = little.collect();
    assert!(
        little.iter().any(|one| one.contains("50 workers: 100 req/s × 2000 ms are 200.0 in flight")),
        "{text}"
    );
    assert!(
        little.iter().any(|one| one.contains("3.x (gateway)")),
        "20 workers at 70 ms are 286 per second: {text}"
    );
    for silent in ["Success Rate", "Memory", "Throughput, from"] {
        assert!(!text.contains(silent), "{silent} follows, or nothing is claimed of it: {text}");
    }
}

#[test]
fn a_page_without_such_a_table_says_what_is_read() {
    for page in ["", "words", "| a | b |\n|---|---|\n| 1 | 2 |\n", "timeStamp,elapsed\n1,2\n"] {
        let said = Tables::parse(page.as_bytes(), "page.md").unwrap_err().to_string();
        assert!(
            said.contains("`page.md` has no table of results") && said.contains("audit --example"),
            "{said}"
        );
    }
}
