//! JSON of Nighthawk. It is made up by its published schema: the tool was not at hand.

use lab_analysis::offline::import::{Tool, import, recognise};
use lab_analysis::record::{Arrivals, Outcome, Record};

use super::{iteration, notes, stated, told};

/// An output of two workers, with the options that are given.
fn output(options: &str) -> String {
    let result = |name: &str, count: &str| {
        format!(
            r#"{{"name":"{name}","statistics":[
              {{"count":"2","id":"benchmark_http_client.queue_to_connect","percentiles":[],"mean":"0.000010s","pstdev":"0s"}},
              {{"count":"{count}","id":"benchmark_http_client.request_to_response","percentiles":[
                {{"percentile":0,"count":"1","duration":"0.001s"}},{{"percentile":0.5,"count":"50","duration":"0.002500s"}},
                {{"percentile":0.9,"count":"90","duration":"0.004s"}},{{"percentile":0.990625,"count":"99","duration":"0.009s"}},
                {{"percentile":1,"count":"100","duration":"0.010s"}}],
                "mean":"0.003s","pstdev":"0.001s","min":"0.001s","max":"0.010s"}}],
              "counters":[{{"name":"benchmark.http_2xx","value":"{count}"}},{{"name":"benchmark.http_4xx","value":"5"}},
                {{"name":"benchmark.pool_connection_failure","value":"2"}},{{"name":"upstream_rq_total","value":"107"}}],
              "execution_duration":"10s"}}"#
        )
    };
    let results = [result("worker_0", "50"), result("worker_1", "50"), result("global", "100")].join(",");
    format!(
        r#"{{"options":{{"connections":3,"duration":"10s"{options}}},"results":[{results}],"timestamp":"2026-01-01T00:00:00Z"}}"#
    )
}

#[test]
fn the_result_over_all_workers_is_taken() {
    let content = output(r#","requests_per_second":5,"open_loop":true"#);
    assert_eq!(recognise(&content), Some(Tool::Nighthawk));
    let record = import(&content, None, &told("nighthawk.json")).unwrap();
    let record = Record::parse(record.to_json().unwrap().as_bytes(), "nighthawk.json").unwrap();
    let of = iteration(&record);
    for (share, us) in [(0.5, 2500.0), (0.9, 4000.0), (0.990_625, 9000.0), (1.0, 10_000.0)] {
        assert!((stated(of, share) - us).abs() < 1e-6, "{share}");
    }
    let counts = [Outcome::Ok, Outcome::Refused, Outcome::Failed].map(|outcome| of.count(outcome));
    assert_eq!((counts, of.seconds), ([100, 5, 2], 10.0));
    let load = &record.variants[0].load;
    assert_eq!((load.arrivals, load.rate_per_s, load.concurrency), (Arrivals::Open, Some(10.0), Some(6)));
    assert!(notes(&record)[0].contains("was not tried"), "{:?}", notes(&record));
    let paced = import(&output(r#","requests_per_second":5"#), None, &told("x.json")).unwrap();
    assert!(notes(&paced).iter().any(|note| note.contains("all connections were in use")));
}

#[test]
fn a_rate_that_was_not_sent_is_no_open_load() {
    for (options, why) in [
        (r#","requests_per_second":50"#, "none was sent while all connections were in use"),
        (r#","requests_per_second":50,"open_loop":true"#, "the file does not say why"),
    ] {
        let record = import(&output(options), None, &told("nighthawk.json")).unwrap();
        let load = &record.variants[0].load;
        assert_eq!((load.arrivals, load.rate_per_s, load.concurrency), (Arrivals::Unknown, None, Some(6)));
        let why = format!("100/s were asked for, 10.7/s were sent: {why}");
        assert!(notes(&record).contains(&why), "{:?}", notes(&record));
    }
}

#[test]
fn what_differs_from_the_schema_is_named() {
    let said = |from: &str, to: &str| {
        let content = output("").replace(from, to);
        import(&content, Some(Tool::Nighthawk), &told("nighthawk.json")).unwrap_err().to_string()
    };
    for (from, to, why) in [
        ("\"global\"", "\"all\"", "no result `global`"),
        ("request_to_response", "other", "no statistic `benchmark_http_client.request_to_response`"),
        ("\"0.002500s\"", "\"2.5ms\"", "`2.5ms` is not a duration"),
        ("\"value\":\"5\"", "\"value\":\"some\"", "is not a count (benchmark.http_4xx)"),
        ("\"execution_duration\":\"10s\"", "\"more\":1", "no `execution_duration`"),
    ] {
        let said = said(from, to);
        assert!(said.contains(why) && said.contains("nighthawk.json"), "{said}");
    }
}
