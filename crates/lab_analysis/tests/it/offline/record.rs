//! Record: its schema, rejected content, and size limits.

use std::path::Path;

use lab_analysis::record::{MAX_POINTS, Record, Sample, Slice};
use lab_analysis::test_support::sample;
use serde_json::{Value, json};

fn error(change: impl FnOnce(&mut Value)) -> String {
    let mut record = sample::record(1);
    record.variants.iter_mut().for_each(|variant| variant.iterations.truncate(2));
    let mut json = serde_json::to_value(record).unwrap();
    change(&mut json);
    Record::parse(json.to_string().as_bytes(), "run.json").unwrap_err().to_string()
}

#[test]
fn the_schema_in_the_repository_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/record.schema.json");
    let kept: Value = serde_json::from_slice(&std::fs::read(path).unwrap_or_default()).unwrap_or_default();
    assert!(
        kept == Record::schema(),
        "crates/lab/record.schema.json is stale; write it anew with\n  postern lab schema > crates/lab/record.schema.json"
    );
}

#[test]
fn every_key_of_the_schema_is_described_and_no_other_is_let_in() {
    let schema = Record::schema();
    let tables = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    let mut keys = 0;
    for table in tables.filter(|table| table["properties"].is_object()) {
        assert_eq!(table["additionalProperties"], false, "{table}");
        for (key, value) in table["properties"].as_object().unwrap() {
            keys += 1;
            assert!(value["description"].as_str().unwrap_or_default().ends_with('.'), "{key}: {value}");
        }
    }
    assert!(keys > 100, "{keys}");
}

#[test]
fn what_is_written_is_read() {
    let record = sample::record(3);
    let read = Record::parse(record.to_json().unwrap().as_bytes(), "run.json").unwrap();
    assert_eq!(read, record);
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    for (change, why) in [
        (json!({"colour": 1}), "unknown field `colour`"),
        (json!({"schema": "postern-lab/2"}), "postern-lab/2"),
        (json!({"variants": 3}), "expected a sequence"),
    ] {
        let said = error(|json| json.as_object_mut().unwrap().extend(change.as_object().unwrap().clone()));
        assert!(said.contains(why) && said.contains("run.json"), "{said}");
    }
}

#[test]
fn figures_that_contradict_each_other_are_refused() {
    type Change = fn(&mut Value);
    let iteration = |json: &mut Value, change: Change| change(&mut json["variants"][4]["iterations"][0]);
    let cases: [(Change, &str); 11] = [
        (|i| i["unsent"] = u64::MAX.into(), "is above the largest valid count"),
        (|i| i["timeline"][13]["at_ms"] = (u64::MAX - 1).into(), "is above the largest valid count"),
        (
            |i| i["components"][1]["samples"][9]["rss_bytes"] = u64::MAX.into(),
            "is above the largest valid count",
        ),
        (|i| i["classes"][0]["count"] = 1.into(), "counts 1 requests and 348 latencies"),
        (|i| i["classes"][0]["status"] = 503.into(), "outcome `ok` with a status from 400"),
        (|i| i["seconds"] = 0.0.into(), "`seconds` has to be greater than 0"),
        (|i| i["seconds"] = (-1.0).into(), "seconds is -1"),
        (|i| i["number"] = 2.into(), "two iterations have this number"),
        (
            |i| i["components"][2]["samples"][50]["user_ms"] = 0.into(),
            "has a lower time or counter than the one before it",
        ),
        (|i| i["timeline"][3]["at_ms"] = 100.into(), "overlaps the one before it"),
        (|i| i["classes"][0]["latency"]["p50_us"] = 1.0.into(), "its histogram gives"),
    ];
    for (change, why) in cases {
        let said = error(|json| iteration(json, change));
        assert!(said.contains(why), "{said} is not about {why}");
    }
    assert!(
        error(|json| json["variants"][1]["name"] = "direct".into())
            .contains("two variants are named `direct`")
    );
    assert!(
        error(|json| json["ladders"][0]["rungs"][0]["variant"] = "x".into())
            .contains("there is no variant `x`")
    );
    assert!(
        error(|json| json["sweeps"][0]["variants"] = json!(["direct"])).contains("at least three variants")
    );
}

#[test]
fn a_file_that_is_no_record_points_to_the_import() {
    let said = Record::parse(b"response-time,DNS+dialup\n", "hey.csv").unwrap_err().to_string();
    assert!(said.contains("lab import") && said.contains("hey.csv"), "{said}");
}

#[test]
fn long_series_are_thinned_and_nothing_is_lost_that_counts() {
    let mut record = sample::record(1);
    let iteration = &mut record.variants[0].iterations[0];
    let slice = |at: u64| Slice {
        at_ms: at * 10,
        ms: 10,
        ok: 3,
        bad: 1,
        p50_us: Some(5.0),
        p99_us: Some(9.0),
        max_us: Some(at as f64),
    };
    iteration.timeline = (0..5000).map(slice).collect();
    iteration.components[0].samples =
        (0..4001).map(|at| Sample { at_ms: at, user_ms: at, ..Sample::default() }).collect();
    record.thin();
    let iteration = &record.variants[0].iterations[0];
    assert!(iteration.timeline.len() <= MAX_POINTS && iteration.components[0].samples.len() <= MAX_POINTS);
    assert_eq!(
        iteration
            .timeline
            .iter()
            .map(|slice| (slice.ok, slice.bad))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (15_000, 5000)
    );
    assert_eq!(iteration.timeline.iter().map(|slice| slice.ms).sum::<u64>(), 50_000);
    assert!(iteration.timeline.iter().all(|slice| slice.p99_us.is_none()), "percentiles do not add up");
    assert_eq!(iteration.timeline.last().unwrap().max_us, Some(4999.0));
    let samples = &iteration.components[0].samples;
    assert_eq!((samples[0].user_ms, samples.last().unwrap().user_ms), (0, 4000), "the ends stay");
    record.check().unwrap();
}

#[test]
fn a_run_of_many_variants_stays_readable() {
    let mut record = sample::record(1);
    let longest = record.variants[4].clone();
    record.variants = (0..12)
        .map(|number| lab_analysis::record::Variant { name: number.to_string(), ..longest.clone() })
        .collect();
    (record.ladders, record.sweeps, record.reference) = (vec![], vec![], vec![]);
    for iteration in record.variants.iter_mut().flat_map(|variant| &mut variant.iterations) {
        for component in &mut iteration.components {
            component.samples =
                (0..2000).map(|at| Sample { at_ms: at * 100, ..component.samples[7].clone() }).collect();
        }
    }
    record.thin();
    let json = record.to_json().unwrap();
    assert!(json.len() < 64 << 20, "{} bytes", json.len());
    Record::parse(json.as_bytes(), "run.json").unwrap();
}
