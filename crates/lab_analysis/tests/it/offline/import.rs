//! Import: real files of other tools give the percentiles that the tools print.
//!
//! The files under `fixtures` were written against a small server on loopback by ab 2.3, Fortio 1.75
//! (its library), Gatling 3.12 and 3.13, ghz 0.120 (against Fortio's gRPC server), hey 0.1, k6 1.8,
//! Locust 2.47, vegeta 12.13, wrk 4.1 and `JMeter` 5.6. `*.printed*` is the output of the tool for
//! the same requests. `gatling-padded.js` is made up, in the form of reports with padded numbers.

mod ab;
mod fortio;
mod gatling;
mod ghz;
mod hey;
mod jmeter;
mod locust;
mod nighthawk;
mod vegeta;

use std::ops::RangeInclusive;
use std::path::Path;

use lab_analysis::offline::import::{ImportOptions, Tool, import, recognise};
use lab_analysis::offline::report::sheet;
use lab_analysis::record::{Arrivals, Iteration, Origin, Outcome, Record};
use lab_analysis::statistics::Figure;
use proptest::prelude::*;

fn fixture(name: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/offline/fixtures").join(name),
    )
    .unwrap()
}

fn told(file: &str) -> ImportOptions {
    ImportOptions { variant: "it".to_owned(), concurrency: None, file: file.to_owned() }
}

fn read(name: &str) -> Record {
    let record = import(&fixture(name), None, &told(name)).unwrap();
    Record::parse(record.to_json().unwrap().as_bytes(), name).unwrap()
}

fn iteration(record: &Record) -> &Iteration {
    &record.variants[0].iterations[0]
}

fn stated(iteration: &Iteration, share: f64) -> f64 {
    let stated = iteration.stated.as_ref().unwrap();
    stated.percentiles.iter().find(|printed| (printed.share - share).abs() < 1e-9).unwrap().us
}

/// Checks that the histogram of all requests has a time of this range near `share`: within `part`
/// of the requests, or one of them, on either side.
fn lies_near(iteration: &Iteration, share: f64, us: RangeInclusive<f64>, part: f64) {
    let all = iteration.classes.iter().filter_map(|class| class.latency.clone());
    let all = all.reduce(|mut all, more| {
        all.add(&more);
        all
    });
    let all = all.unwrap();
    let rank = part.max(1.0 / all.count() as f64);
    let (low, high) = (all.micros((share - rank).max(0.0)), all.micros((share + rank).min(1.0)));
    let overlaps = low * 0.999 - 1.0 <= *us.end() && *us.start() <= high * 1.001 + 1.0;
    assert!(overlaps, "{share}: {us:?} not in {low} … {high}");
}

/// The rules of different tools choose values that differ by at most one rank; the histogram must
/// lie within them.
fn histogram_is_near(iteration: &Iteration, share: f64) {
    let us = stated(iteration, share);
    lies_near(iteration, share, us..=us, 0.0);
}

/// Notes of an import.
fn notes(record: &Record) -> &[String] {
    let Origin::Import { notes, .. } = &record.run.origin else { panic!("{:?}", record.run.origin) };
    notes
}

/// A time in µs, as programs in Go print durations: `1.25ms`.
fn go_time(text: &str) -> f64 {
    let at = text.find(|letter: char| letter.is_alphabetic() || letter == 'µ').unwrap();
    let factor = match &text[at..] {
        "ns" => 1e-3,
        "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        unit => panic!("{unit}"),
    };
    text[..at].parse::<f64>().unwrap() * factor
}

/// Results of the only iteration: outcome, status, fault, count, example.
fn endings(content: &str, name: &str) -> Vec<(Outcome, Option<u16>, String, u64, String)> {
    let record = import(content, None, &told(name)).unwrap_or_else(|error| panic!("{error}"));
    let record = Record::parse(record.to_json().unwrap().as_bytes(), name).unwrap();
    let of = |class: &lab_analysis::record::Class| {
        let example = class.example.clone().unwrap_or_default();
        (class.outcome, class.status, class.fault.clone().unwrap_or_default(), class.count, example)
    };
    iteration(&record).classes.iter().map(of).collect()
}

#[test]
fn every_form_is_recognised() {
    for (name, tool) in FIXTURES {
        assert_eq!(recognise(&fixture(name)), Some(tool), "{name}");
    }
    assert_eq!(recognise("time,latency\n1,2\n"), None);
    assert_eq!(recognise("{\"schema\": 1}"), None);
    assert_eq!(recognise(""), None);
}

#[test]
fn the_start_of_the_run_is_read_where_a_file_has_it() {
    let files = [
        ("ab.tsv", 1_795_950_584.0),
        ("fortio.json", 1_795_950_938.5),
        ("gatling.log", 1_795_950_568.1),
        ("ghz.json", 1_795_951_092.7),
        ("h2load.log", 1_795_457_943.2),
        ("jmeter-xml.jtl", 1_795_393_319.1),
        ("jmeter.jtl", 1_795_393_319.1),
        ("k6.ndjson", 1_795_393_510.6),
        ("locust_stats_history.csv", 1_795_950_635.0),
        ("vegeta.csv", 1_795_950_581.0),
        ("vegeta.ndjson", 1_795_950_581.0),
    ];
    for (name, start) in files {
        let read = read(name).run.started_unix_s.unwrap();
        assert!((read - start).abs() < 0.06, "{name}: {read}");
    }
    for name in ["ab.txt", "hey.csv", "hey.txt", "locust_stats.csv", "oha.json", "wrk.txt"] {
        assert_eq!(read(name).run.started_unix_s, None, "{name}");
    }
}

/// hey counts every request for its rate, but keeps statuses and times of only the first million
/// responses.
/// A time as k6 prints it, in µs, and its largest rounding error.
fn k6_time(text: &str) -> (f64, f64) {
    let at = text.find(|letter: char| letter.is_alphabetic() || letter == 'µ').unwrap();
    let factor = match &text[at..] {
        "ms" => 1e3,
        "s" => 1e6,
        "µs" => 1.0,
        unit => panic!("{unit}"),
    };
    let decimals = text[..at].split_once('.').map_or(0, |(_, decimals)| decimals.len());
    // k6 truncates instead of rounding, and omits trailing zeros.
    (
        text[..at].parse::<f64>().unwrap() * factor,
        factor * 10.0_f64.powi(-i32::try_from(decimals.max(2)).unwrap()),
    )
}

#[test]
fn k6_lines_have_k6s_percentiles() {
    let (record, printed) = (read("k6.ndjson"), fixture("k6.ndjson.printed"));
    let of = iteration(&record);
    let line = printed.lines().find(|line| line.contains("http_req_duration..")).unwrap();
    let mut compared = 0;
    for pair in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        let share = match pair.0 {
            "med" => 0.5,
            "p(90)" => 0.9,
            "p(95)" => 0.95,
            "p(99)" => 0.99,
            _ => continue,
        };
        let (us, rounding) = k6_time(pair.1);
        assert!((stated(of, share) - us).abs() <= rounding, "{pair:?}: {}", stated(of, share));
        histogram_is_near(of, share);
        compared += 1;
    }
    assert_eq!(compared, 4);
    assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Refused)), (24, 1));
    assert_eq!(record.variants[0].load.arrivals, Arrivals::Unknown, "k6 does not say");
}

#[test]
fn k6_summary_and_lines_of_one_run_agree() {
    let (lines, summary) = (read("k6.ndjson"), read("k6-summary.json"));
    for share in [0.5, 0.9, 0.95, 0.99] {
        let (a, b) = (stated(iteration(&lines), share), stated(iteration(&summary), share));
        assert!((a - b).abs() < 0.01, "{share}: {a} {b}");
    }
    let of = iteration(&summary);
    assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Refused)), (24, 1));
    assert!(of.latency(Outcome::Ok).is_none());
    assert_eq!(summary.variants[0].load.concurrency, None, "the run was too short for k6 to count its users");
    let longer =
        fixture("k6-summary.json").replacen("\"metrics\": {", "\"metrics\": {\"vus_max\": {\"max\": 2},", 1);
    let longer = import(&longer, None, &told("k6-summary.json")).unwrap();
    assert_eq!(longer.variants[0].load.concurrency, Some(2));
}

#[test]
fn k6_lines_of_what_has_no_tags_are_passed_over() {
    let users = "{\"type\":\"Point\",\"metric\":\"vus\",\"data\":{\"time\":\"2026-01-01T00:00:00Z\",\"value\":2,\"tags\":null}}\n";
    let with = import(&format!("{}{users}", fixture("k6.ndjson")), None, &told("k6.ndjson")).unwrap();
    assert_eq!(iteration(&with).count(Outcome::Ok), 24);
}

#[test]
fn a_silence_is_a_slice_of_the_timeline() {
    let rows = ["0.01,200,0.1", "0.01,200,0.2", "0.01,200,2.5"].map(|row| format!("{row}\n")).concat();
    let record =
        import(&format!("response-time,status-code,offset\n{rows}"), None, &told("hey.csv")).unwrap();
    let slices = &iteration(&record).timeline;
    assert!(slices.windows(2).all(|pair| pair[0].at_ms + pair[0].ms == pair[1].at_ms), "{slices:?}");
    assert_eq!(slices.iter().map(|slice| slice.ok).sum::<u64>(), 3);
    assert!(slices.iter().filter(|slice| slice.ok == 0).count() > 20, "{slices:?}");
}

#[test]
fn what_sends_at_a_rate_in_wrks_form_is_no_closed_loop() {
    let text = fixture("wrk.txt").replacen("Running", "  Thread calibration: mean lat.: 2.1ms\nRunning", 1);
    let record = import(&text, Some(Tool::Wrk), &told("wrk2.txt")).unwrap();
    assert_eq!(record.variants[0].load.arrivals, Arrivals::Unknown);
    assert!(matches!(&record.run.origin, Origin::Import { tool, .. } if tool == "wrk2"));
}

#[test]
fn wrks_text_is_taken_as_it_is() {
    let record = read("wrk.txt");
    let of = iteration(&record);
    assert_eq!(
        [0.5, 0.75, 0.9, 0.99].map(|share| stated(of, share).round() as u64),
        [2650, 4480, 18_800, 35_160]
    );
    assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Refused)), (572, 41));
    assert_eq!(record.variants[0].load.concurrency, Some(2));
    let Origin::Import { notes, .. } = &record.run.origin else { panic!("{:?}", record.run.origin) };
    assert!(notes[0].contains("good and refused"), "{notes:?}");
    let plain = read("wrk-plain.txt");
    assert!(iteration(&plain).stated.as_ref().unwrap().percentiles.is_empty());
    assert_eq!(Figure::P50.value(iteration(&plain)), None, "nothing is made up");
}

#[test]
fn wrk_names_socket_errors() {
    let text = fixture("wrk.txt")
        .replace("  Non-2xx", "  Socket errors: connect 0, read 3, write 0, timeout 5\n  Non-2xx");
    let record = import(&text, None, &told("wrk.txt")).unwrap();
    let failed: Vec<_> =
        iteration(&record).classes.iter().filter(|class| class.outcome == Outcome::Failed).collect();
    assert_eq!(
        failed.iter().map(|class| (class.fault.as_deref().unwrap(), class.count)).collect::<Vec<_>>(),
        [("read", 3), ("timeout", 5)]
    );
    // A response that comes after the limit is one of the responses.
    assert_eq!(iteration(&record).count(Outcome::Ok), 572 - 5);
    // wrk2 counts a connection that waits again and again.
    let paced = text.replacen("Running", "  Thread calibration: mean lat.: 2.1ms\nRunning", 1);
    let record = import(&paced, Some(Tool::Wrk), &told("wrk2.txt")).unwrap();
    assert_eq!((iteration(&record).count(Outcome::Ok), iteration(&record).count(Outcome::Failed)), (572, 3));
    let Origin::Import { notes, .. } = &record.run.origin else { panic!("{:?}", record.run.origin) };
    assert!(notes.iter().any(|note| note.contains("wrk2 counted 5 timeouts")), "{notes:?}");
}

#[test]
fn h2loads_text_is_taken_as_it_is() {
    let record = read("h2load.txt");
    let of = iteration(&record);
    assert_eq!((of.count(Outcome::Ok), record.variants[0].load.concurrency), (904, Some(3)));
    assert!((of.seconds - 1.0).abs() < 1e-9, "{}", of.seconds);
    let times = of.stated.as_ref().unwrap();
    assert_eq!(
        [times.min_us, times.max_us, times.mean_us].map(|time| time.unwrap().round() as u64),
        [2110, 13_700, 3310]
    );
    assert!(times.percentiles.is_empty() && Figure::P50.value(of).is_none(), "nothing is made up");
    let bad = fixture("h2load.txt")
        .replace("904 2xx, 0 3xx, 0 4xx, 0 5xx", "900 2xx, 0 3xx, 1 4xx, 3 5xx")
        .replace("0 errored, 0 timeout", "5 errored, 2 timeout")
        .replace("904 done", "909 done")
        .replace(
            "#0: 3 total client(s). ",
            "#0: 2 total client(s). \nspawning thread #1: 1 total client(s). ",
        );
    let record = import(&bad, None, &told("h2load.txt")).unwrap();
    let counts =
        [Outcome::Ok, Outcome::Refused, Outcome::Failed].map(|outcome| iteration(&record).count(outcome));
    assert_eq!(counts, [900, 4, 5]);
    assert!(
        (iteration(&record).seconds - 1.0).abs() < 1e-9,
        "its rate counts answers: {}",
        iteration(&record).seconds
    );
    assert_eq!(record.variants[0].load.concurrency, Some(3), "of both threads");
}

#[test]
fn h2loads_log_has_every_request() {
    let record = read("h2load.log");
    let of = iteration(&record);
    assert_eq!((of.count(Outcome::Ok), of.classes[0].status), (40, Some(200)));
    // h2load printed 2.34 ms, 3.98 ms, and 66.44 ms in total.
    let times = of.stated.as_ref().unwrap();
    assert_eq!([times.min_us, times.max_us].map(|time| (time.unwrap() / 10.0).round() as u64), [234, 398]);
    assert!((0.060..0.067).contains(&of.seconds), "{}", of.seconds);
    histogram_is_near(of, 0.5);
    // The largest possible numbers are rejected, and nothing overflows.
    let large = format!("0\t200\t5\n{0}\t200\t{0}\n", i64::MAX);
    let refused = import(&large, None, &told("h2load.log")).map(drop).unwrap_err().to_string();
    assert!(refused.contains("h2load.log"), "{refused}");
    let lost = format!("{}1795457943233999\t-1\t900\n", fixture("h2load.log"));
    let record = import(&lost, None, &told("h2load.log")).unwrap();
    assert_eq!((iteration(&record).count(Outcome::Ok), iteration(&record).count(Outcome::Failed)), (40, 1));
}

#[test]
fn ohas_json_is_taken_as_it_is() {
    let record = read("oha.json");
    let of = iteration(&record);
    let json: serde_json::Value = serde_json::from_str(&fixture("oha.json")).unwrap();
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        let printed = json["latencyPercentiles"][name].as_f64().unwrap() * 1e6;
        assert!((stated(of, share) - printed).abs() < 1e-6, "{name}");
    }
    assert_eq!(Some(of.count(Outcome::Ok)), json["statusCodeDistribution"]["200"].as_u64());
    assert_eq!(of.count(Outcome::Failed), 0, "what is cut off at the end is no failure");
    let Origin::Import { notes, .. } = &record.run.origin else { panic!("{:?}", record.run.origin) };
    assert!(notes.iter().any(|note| note.contains("in flight at the end of the run")), "{notes:?}");
    let broken = fixture("oha.json").replace("aborted due to deadline", "connection refused");
    let record = import(&broken, None, &told("oha.json")).unwrap();
    assert!(iteration(&record).count(Outcome::Failed) > 0);
}

#[test]
fn k6_says_what_its_script_expects() {
    let point = |status: &str, expected: &str, error: &str| {
        format!(
            "{{\"type\":\"Point\",\"metric\":\"http_req_duration\",\"data\":{{\"time\":\"2026-01-01T00:00:01Z\",\"value\":5,\
             \"tags\":{{\"status\":\"{status}\",\"expected_response\":\"{expected}\",\"error\":\"{error}\"}}}}}}\n"
        )
    };
    let check = "{\"type\":\"Point\",\"metric\":\"checks\",\"data\":{\"time\":\"2026-01-01T00:00:01Z\",\"value\":0,\"tags\":{\"check\":\"ready\"}}}\n";
    let content = [
        point("200", "true", ""),
        point("200", "false", ""),
        point("404", "true", ""),
        point("503", "false", ""),
        point("0", "false", "dial: connection refused"),
        point("0", "false", "request timeout"),
        check.to_owned(),
    ]
    .concat();
    let seen = endings(&content, "k6.ndjson");
    let one = |outcome, status, fault: &str| {
        seen.iter().any(|ending| (ending.0, ending.1, &*ending.2, ending.3) == (outcome, status, fault, 1))
    };
    assert!(one(Outcome::Ok, Some(200), "") && one(Outcome::Ok, None, ""), "{seen:?}");
    assert!(one(Outcome::Failed, None, "assertion failed on 200"), "{seen:?}");
    assert!(one(Outcome::Refused, Some(503), "") && one(Outcome::Failed, None, "timeout"), "{seen:?}");
    assert!(
        seen.iter().any(|ending| ending.2 == "connect" && ending.4 == "dial: connection refused"),
        "{seen:?}"
    );
    let record = import(&content, None, &told("k6.ndjson")).unwrap();
    let Origin::Import { notes, .. } = &record.run.origin else { panic!("it is an import") };
    assert!(notes.iter().any(|note| note.starts_with("1 checks of the script failed")), "{notes:?}");
}

/// wrk2 with `--u_latency` prints two distributions, each with its spectrum.
#[test]
fn wrk2_tells_from_when_requests_were_due_and_from_when_they_were_sent() {
    let record = read("wrk2-u.txt");
    let of = iteration(&record);
    for (share, us) in [(0.5, 6670.0), (0.75, 7780.0), (0.9, 9140.0), (0.99, 411_180.0), (1.0, 912_500.0)] {
        assert!((stated(of, share) - us).abs() < 1e-6, "{share}: {}", stated(of, share));
    }
    let sent = &of.stated.as_ref().unwrap().sent_percentiles;
    let at = |share: f64| sent.iter().find(|printed| (printed.share - share).abs() < 1e-9).unwrap().us;
    assert_eq!([0.5, 0.99, 1.0].map(|share| at(share).round() as u64), [1070, 4380, 9150]);
    assert_eq!(
        Figure::P99.value(of),
        Some(411_180.0),
        "what a user waited, not what wrk2 saw from sending on"
    );
    assert_eq!((of.count(Outcome::Ok), record.variants[0].load.concurrency), (39_500, Some(100)));
    assert_eq!(record.variants[0].load.arrivals, Arrivals::Unknown);
    let text = sheet(&record).markdown();
    assert!(
        text.contains("411 ms") && text.contains("really sent (uncorrected) they are P50 1.07 ms"),
        "{text}"
    );
}

#[test]
fn refusals_that_h2load_counts_as_4xx_are_known_not_to_be_the_servers_fault() {
    let of = |codes: &str| {
        let text = fixture("h2load.txt").replace("904 2xx, 0 3xx, 0 4xx, 0 5xx", codes);
        let record = import(&text, None, &told("h2load.txt")).unwrap();
        Figure::FailureShare.value(iteration(&record))
    };
    assert_eq!(of("900 2xx, 0 3xx, 4 4xx, 0 5xx"), Some(0.0));
    assert_eq!(of("900 2xx, 0 3xx, 1 4xx, 3 5xx"), None, "which of the three are 503 is not known");
}

#[test]
fn what_was_taken_in_is_reported() {
    for (name, _) in FIXTURES {
        let text = sheet(&read(name)).markdown();
        assert!(
            text.contains(name) && text.contains("few-iterations") && text.contains("## Endings"),
            "{name}: {text}"
        );
    }
}

#[test]
fn what_is_malformed_says_where() {
    let failure = |content: &str, tool| import(content, tool, &told("in.txt")).unwrap_err().to_string();
    for (content, tool, why) in [
        ("nothing known", None, "unknown format"),
        ("response-time,status-code\n", Some(Tool::HeyCsv), "no column `offset`"),
        ("response-time,status-code,offset\n", Some(Tool::HeyCsv), "has no requests"),
        (
            "response-time,status-code,offset\n0.1,200,0\nx,200,0\n",
            Some(Tool::HeyCsv),
            "line 3: `x` is not a number",
        ),
        ("response-time,status-code,offset\n-1,200,0\n", Some(Tool::HeyCsv), "`-1` is not a number"),
        (
            "timeStamp,elapsed,success,responseCode\n1,2,maybe,200\n",
            None,
            "line 2: `maybe` is neither true nor false",
        ),
        ("timeStamp,elapsed\n", None, "print_field_names"),
        ("Summary:\n  Total:\tsoon\n  Requests/sec: 1\n", None, "line 2"),
        ("Running 1s test @ x\n  5 requests in soon\n", None, "line 2"),
        (
            "{\"type\":\"Point\",\"metric\":\"http_req_duration\",\"data\":{\"time\":\"now\",\"value\":1}}\n",
            None,
            "`now` is not a time",
        ),
        ("{\"metrics\":{\"http_req_duration\":{}}}", None, "no `http_reqs.count`"),
        (
            "<testResults><httpSample ts=\"1\" t=\"x\" s=\"true\" rc=\"200\"/></testResults>",
            None,
            "`x` is not a number",
        ),
    ] {
        let said = failure(content, tool);
        assert!(said.contains(why) && said.contains("in.txt"), "{said} is not about {why}");
    }
}

const FIXTURES: [(&str, Tool); 25] = [
    ("ab.txt", Tool::Ab),
    ("ab.tsv", Tool::AbTsv),
    ("fortio.json", Tool::Fortio),
    ("gatling.log", Tool::Gatling),
    ("gatling-stats.json", Tool::GatlingStats),
    ("gatling-stats.js", Tool::GatlingStats),
    ("gatling-padded.js", Tool::GatlingStats),
    ("ghz.json", Tool::Ghz),
    ("h2load.txt", Tool::H2load),
    ("h2load.log", Tool::H2loadLog),
    ("hey.txt", Tool::Hey),
    ("hey.csv", Tool::HeyCsv),
    ("jmeter.jtl", Tool::Jtl),
    ("jmeter-xml.jtl", Tool::JtlXml),
    ("k6.ndjson", Tool::K6),
    ("k6-summary.json", Tool::K6Summary),
    ("locust_stats.csv", Tool::Locust),
    ("locust_stats_history.csv", Tool::LocustHistory),
    ("oha.json", Tool::Oha),
    ("vegeta.ndjson", Tool::Vegeta),
    ("vegeta.csv", Tool::VegetaCsv),
    ("vegeta-report.json", Tool::VegetaReport),
    ("wrk.txt", Tool::Wrk),
    ("wrk-plain.txt", Tool::Wrk),
    ("wrk2-u.txt", Tool::Wrk),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Files are untrusted. For any content the result is a record that can be written and read
    /// again, or an error with the name of the file.
    #[test]
    fn a_damaged_file_is_a_record_or_an_error(
        which in 0..FIXTURES.len(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..40, "[-0-9.eE:,%{}\\[\\]\"<>/a-z \n]{0,12}"), 1..6),
    ) {
        let whole = fixture(FIXTURES[which].0);
        let lines = whole.split_inclusive('\n').scan(0, |length, line| {
            *length += line.len();
            (*length < 12_000).then_some(line)
        });
        let mut content: Vec<char> = lines.flat_map(str::chars).collect();
        for (at, length, instead) in cuts {
            let from = at.index(content.len() + 1);
            let until = (from + length).min(content.len());
            content.splice(from..until, instead.chars());
        }
        let content: String = content.into_iter().collect();
        match import(&content, None, &told("damaged")) {
            Ok(record) => {
                let json = record.to_json().unwrap();
                Record::parse(json.as_bytes(), "damaged").unwrap();
                prop_assert!(sheet(&record).markdown().contains("damaged"));
            }
            Err(error) => prop_assert!(error.to_string().contains("damaged"), "{error}"),
        }
    }
}
