//! Files of vegeta.

use std::path::Path;

use lab_analysis::offline::import::{decode, import};
use lab_analysis::record::{Arrivals, Outcome};

use super::{endings, fixture, go_time, histogram_is_near, iteration, lies_near, notes, read, stated, told};

/// Times that vegeta printed: shortest, mean, percentiles by share, longest, in µs.
fn printed() -> (f64, f64, Vec<(f64, f64)>, f64) {
    let text = fixture("vegeta.printed.txt");
    let line = text.lines().find_map(|line| line.strip_prefix("Latencies     [")).unwrap();
    let (names, times) = line.split_once(']').unwrap();
    let times: Vec<f64> = times.split(',').map(|time| go_time(time.trim())).collect();
    let names: Vec<&str> = names.split(", ").collect();
    assert_eq!(names, ["min", "mean", "50", "90", "95", "99", "max"]);
    let shares = names[2..6].iter().map(|name| name.parse::<f64>().unwrap() / 100.0);
    (times[0], times[1], shares.zip(times[2..6].iter().copied()).collect(), times[6])
}

/// vegeta prints five digits at most.
fn is_printed(own: f64, printed: f64) -> bool {
    (own - printed).abs() <= printed * 1e-3
}

#[test]
fn every_request_has_nearly_the_percentiles_that_vegeta_estimates() {
    for name in ["vegeta.ndjson", "vegeta.csv"] {
        let record = read(name);
        let of = iteration(&record);
        let (min, mean, percentiles, max) = printed();
        for (share, us) in percentiles {
            lies_near(of, share, us..=us, 0.02);
            histogram_is_near(of, share);
        }
        let times = of.stated.as_ref().unwrap();
        for (own, printed) in [(times.min_us, min), (times.mean_us, mean), (times.max_us, max)] {
            assert!(is_printed(own.unwrap(), printed), "{name}: {own:?} {printed}");
        }
        assert!(of.count(Outcome::Ok) > 50 && of.classes.iter().any(|class| class.status == Some(503)));
        assert!(times.rule.contains("close to what it estimates"), "{}", times.rule);
        assert_eq!(record.variants[0].load.arrivals, Arrivals::Unknown);
    }
}

#[test]
fn both_forms_are_the_same_requests() {
    let (json, csv) = (read("vegeta.ndjson"), read("vegeta.csv"));
    let (json, csv) = (iteration(&json), iteration(&csv));
    assert_eq!(json.classes, csv.classes);
    assert!((json.seconds - csv.seconds).abs() < 1e-5);
}

#[test]
fn vegetas_report_is_taken_as_it_is() {
    let record = read("vegeta-report.json");
    let of = iteration(&record);
    let (min, mean, percentiles, max) = printed();
    assert_eq!(percentiles.len(), 4);
    for (share, us) in percentiles {
        assert!(is_printed(stated(of, share), us), "{share}: {} {us}", stated(of, share));
    }
    let times = of.stated.as_ref().unwrap();
    for (own, printed) in [(times.min_us, min), (times.mean_us, mean), (times.max_us, max)] {
        assert!(is_printed(own.unwrap(), printed), "{own:?} {printed}");
    }
    let requests = read("vegeta.ndjson");
    assert_eq!(of.count(Outcome::Ok), iteration(&requests).count(Outcome::Ok));
    assert!(of.latency(Outcome::Ok).is_none(), "no histogram is made up");
    assert!((of.seconds - iteration(&requests).seconds).abs() < 1e-5, "{}", of.seconds);
}

/// A line of JSON with this error, which has no quotes that are not escaped.
fn line(code: u16, error: &str) -> String {
    format!(
        "{{\"attack\":\"\",\"seq\":0,\"code\":{code},\"timestamp\":\"2026-01-01T00:00:01Z\",\"latency\":5000000,\"error\":\"{error}\"}}\n"
    )
}

#[test]
fn the_url_of_a_request_says_nothing_about_its_failure() {
    let failed = |error: &str| {
        let seen = endings(&line(0, error), "vegeta.ndjson");
        seen.into_iter().map(|ending| ending.2).collect::<Vec<_>>()
    };
    let url = r#"Get \"https://tls.gateway.test/dialog\": "#;
    for (error, fault) in [
        ("context deadline exceeded", "timeout"),
        ("EOF", "closed"),
        ("dial tcp 10.0.0.1:443: connect: connection refused", "connect"),
    ] {
        assert_eq!(failed(&format!("{url}{error}")), [fault], "{error}");
    }
}

#[test]
fn requests_without_a_response_say_why() {
    let content = [
        line(200, ""),
        line(200, "unexpected EOF"),
        line(503, "503 Service Unavailable"),
        line(0, "dial tcp 127.0.0.1:1: connect: connection refused"),
        line(0, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
    ]
    .concat();
    let seen = endings(&content, "vegeta.ndjson");
    let of = |outcome, status, fault: &str| {
        seen.iter().any(|ending| (ending.0, ending.1, &*ending.2, ending.3) == (outcome, status, fault, 1))
    };
    assert!(of(Outcome::Ok, Some(200), "") && of(Outcome::Refused, Some(503), ""), "{seen:?}");
    for fault in ["closed", "connect", "timeout"] {
        assert!(of(Outcome::Failed, None, fault), "{fault}: {seen:?}");
    }
}

#[test]
fn errors_of_a_report_without_a_status_have_an_example() {
    let report = fixture("vegeta-report.json");
    let with = report.replacen("\"status_codes\":{", "\"status_codes\":{\"0\":3,", 1).replacen(
        "\"errors\":[",
        "\"errors\":[\"Get \\\"http://127.0.0.1/\\\": EOF\",",
        1,
    );
    let record = import(&with, None, &told("x.json")).unwrap();
    let failed = iteration(&record).classes.iter().find(|class| class.outcome == Outcome::Failed).unwrap();
    assert_eq!(failed.count, 3);
    assert!(failed.example.as_deref().is_some_and(|example| example.ends_with("EOF")), "{failed:?}");
}

#[test]
fn what_is_cut_or_in_another_form_says_what_to_do() {
    let whole = fixture("vegeta.ndjson");
    let said = import(&whole[..whole.len() - 30], None, &told("x.ndjson")).unwrap_err().to_string();
    assert!(said.contains("line ") && said.contains("is cut off: EOF"), "{said}");
    let csv = fixture("vegeta.csv");
    let last = csv.trim_end().rfind('\n').unwrap();
    let said = import(&csv[..last + 25], None, &told("x.csv")).unwrap_err().to_string();
    assert!(said.contains("line ") && said.contains("columns"), "{said}");
    let said = import(&fixture("vegeta.printed.txt"), None, &told("x.txt")).unwrap_err().to_string();
    assert!(said.contains("vegeta report -type json"), "{said}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/offline/fixtures/vegeta.bin");
    let said = decode(std::fs::read(path).unwrap(), "vegeta.bin").unwrap_err().to_string();
    assert!(said.contains("vegeta encode --to json"), "{said}");
    for (bytes, why) in [(vec![0x1f, 0x8b, 8, 0], "gunzip"), (vec![0xff, 0xfe, 1], "not UTF-8 text")] {
        let said = decode(bytes, "x").unwrap_err().to_string();
        assert!(said.contains(why) && said.contains("`x`"), "{said}");
    }
    assert!(notes(&read("vegeta.csv"))[0].contains("at a rate"));
}
