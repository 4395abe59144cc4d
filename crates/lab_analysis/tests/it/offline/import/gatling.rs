//! Files of Gatling.

use std::path::Path;

use lab_analysis::offline::import::{ImportError, Tool, decode, import, recognise};
use lab_analysis::record::{Arrivals, Outcome};
use lab_analysis::statistics::Figure;

use super::{endings, fixture, histogram_is_near, iteration, lies_near, notes, read, stated, told};

/// What Gatling printed after this text, of the line of a figure.
fn printed_after(name: &str, before: &str) -> f64 {
    let text = fixture("gatling.printed.txt");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("> {name} ")));
    let (_, rest) = line.and_then(|line| line.split_once(before)).unwrap_or_else(|| panic!("{name}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// A figure of all requests that Gatling printed.
fn printed(name: &str) -> f64 {
    printed_after(name, "")
}

/// A figure of the successful requests that Gatling printed.
fn printed_of_successes(name: &str) -> f64 {
    printed_after(name, "(OK=")
}

#[test]
fn gatlings_log_has_the_percentiles_of_its_report() {
    let record = read("gatling.log");
    let of = iteration(&record);
    for (name, share) in [("50th", 0.5), ("75th", 0.75), ("95th", 0.95), ("99th", 0.99)] {
        let ms = printed(&format!("response time {name} percentile"));
        // Gatling estimates, and rounds to milliseconds.
        lies_near(of, share, (ms - 0.5) * 1e3..=(ms + 0.5) * 1e3, 0.02);
        histogram_is_near(of, share);
    }
    let times = of.stated.as_ref().unwrap();
    assert!((times.max_us.unwrap() / 1e3 - printed("max response time")).abs() < 1e-6);
    assert!((times.min_us.unwrap() / 1e3 - printed("min response time")).abs() < 1e-6);
    assert!((times.mean_us.unwrap() / 1e3 - printed("mean response time")).abs() <= 0.5);
    let counts = of.classes.iter().map(|class| class.count).sum::<u64>();
    assert_eq!(counts, printed("request count") as u64);
    assert!(of.classes.iter().any(|class| class.status == Some(503)), "{:?}", of.classes);
    assert_eq!(record.variants[0].load.arrivals, Arrivals::Unknown);
    assert!(record.variants[0].load.concurrency.is_some_and(|users| users > 0));
}

#[test]
fn gatlings_report_is_taken_as_it_is() {
    let (log, record) = (read("gatling.log"), read("gatling-stats.json"));
    let of = iteration(&record);
    for (name, share) in [("50th", 0.5), ("75th", 0.75), ("95th", 0.95), ("99th", 0.99)] {
        let ms = printed_of_successes(&format!("response time {name} percentile"));
        assert!((stated(of, share) / 1e3 - ms).abs() < 1e-6, "{name}");
    }
    let times = of.stated.as_ref().unwrap();
    for (us, name) in [(times.min_us, "min"), (times.mean_us, "mean"), (times.max_us, "max")] {
        let ms = printed_of_successes(&format!("{name} response time"));
        assert!((us.unwrap() / 1e3 - ms).abs() < 1e-6, "{name}");
    }
    assert!(times.rule.contains("over the requests that succeeded"), "{}", times.rule);
    assert_eq!(of.count(Outcome::Ok), iteration(&log).count(Outcome::Ok));
    assert!(of.latency(Outcome::Ok).is_none() && of.count(Outcome::Refused) > 0);
    for said in ["its defaults", "those of the requests that succeeded"] {
        assert!(notes(&record).iter().any(|note| note.contains(said)), "{:?}", notes(&record));
    }
}

/// The script of a report of Gatling 3.13, which has no JSON beside it.
#[test]
fn the_script_of_a_report_is_read_too() {
    let record = read("gatling-stats.js");
    let of = iteration(&record);
    let printed = fixture("gatling-stats.js.printed.txt");
    let column = |name: &str, place: usize| {
        let line = printed.lines().find_map(|line| line.strip_prefix(&format!("> {name} "))).unwrap();
        line.split('|').nth(place).unwrap().trim().parse::<f64>().unwrap()
    };
    let (total, ok) = (|name: &str| column(name, 1), |name: &str| column(name, 2));
    for (name, share) in [("50th", 0.5), ("75th", 0.75), ("95th", 0.95), ("99th", 0.99)] {
        let ms = ok(&format!("response time {name} percentile (ms)"));
        assert!((stated(of, share) / 1e3 - ms).abs() < 1e-6, "{name}");
    }
    assert_eq!(of.count(Outcome::Ok) + of.count(Outcome::Refused), total("request count") as u64);
    assert!((of.stated.as_ref().unwrap().per_s.unwrap() - total("mean throughput (rps)")).abs() < 1e-9);
    let script = fixture("gatling-stats.js");
    let cut = &script[..script.find("percentiles3").unwrap()];
    let said = import(cut, None, &told("stats.js")).unwrap_err().to_string();
    assert!(said.contains("`stats.js`") && said.contains("is cut off: EOF"), "{said}");
}

/// Newer versions pad the numbers of the script, and separate thousands. Most requests of this file
/// failed at once.
#[test]
fn numbers_of_a_script_may_have_spaces_and_separators() {
    let record = read("gatling-padded.js");
    let of = iteration(&record);
    assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Refused)), (40, 1160));
    for (share, ms) in [(0.5, 29_870.0), (0.75, 41_002.0), (0.95, 56_201.0), (0.99, 58_300.0)] {
        assert!((stated(of, share) / 1e3 - ms).abs() < 1e-6, "{share}");
    }
    assert_eq!(Figure::P50.value(of), Some(29_870_000.0), "not the 1 ms after which most requests failed");
    let times = of.stated.as_ref().unwrap();
    assert_eq!(
        [times.min_us, times.mean_us, times.max_us].map(|us| us.unwrap().round() as u64),
        [2_104_000, 30_412_000, 58_377_000]
    );
    assert!((of.seconds - 1200.0 / 12.37).abs() < 1e-6, "{}", of.seconds);
    let decimal_comma = fixture("gatling-padded.js").replacen("29,870", "29,87", 1);
    let said = import(&decimal_comma, None, &told("stats.js")).unwrap_err().to_string();
    assert!(said.contains("29,87\"` is not a number (percentiles1.ok)"), "{said}");
}

#[test]
fn a_figure_of_no_request_is_absent() {
    let whole = fixture("gatling-padded.js");
    let without = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        import(&whole.replacen(from, to, 1), None, &told("stats.js")).unwrap()
    };
    let one = without("\"ok\": \"   58,300\"", "\"ok\": \"        -\"");
    let figures = |figure: &Figure| figure.value(iteration(&one));
    assert_eq!((figures(&Figure::P95), figures(&Figure::P99)), (Some(56_201_000.0), None));
    // The times of requests that failed are not those of successful ones.
    let none = without("\"ok\": \"       40\"", "\"ok\": \"        0\"");
    let of = iteration(&none);
    assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Refused)), (0, 1200));
    let times = of.stated.as_ref().unwrap();
    assert!(times.percentiles.is_empty(), "{:?}", times.percentiles);
    assert_eq!([times.min_us, times.mean_us, times.max_us], [None; 3]);
}

#[test]
fn logs_of_all_versions_tell_how_requests_ended() {
    let run = "RUN\tSim\tsim\t1000\t \t3.3.1\n";
    let rows = [
        ("OK", " "),
        ("KO", "status.find.in(200), but actually found 503"),
        ("KO", "status.find.is(201), found 200"),
        ("KO", "jsonPath($.x).find.exists, found nothing"),
        ("KO", "i.g.h.c.i.RequestTimeoutException: Request timeout to 127.0.0.1 after 100 ms"),
    ];
    let log = |before: &str| {
        let row = |(status, message): &(&str, &str)| {
            format!("REQUEST\t{before}\tget\t1000\t1030\t{status}\t{message}\n")
        };
        format!(
            "ASSERTION\tAAAA\n{run}USER\ts\tSTART\t1000\n{}USER\ts\tEND\t1030\n",
            rows.iter().map(row).collect::<String>()
        )
    };
    for before in ["s\t1\t", "1\t", ""] {
        let content = log(before);
        assert_eq!(recognise(&content), Some(Tool::Gatling));
        let seen = endings(&content, "simulation.log");
        let of = |outcome, status, fault: &str| {
            seen.iter()
                .any(|ending| (ending.0, ending.1, &*ending.2, ending.3) == (outcome, status, fault, 1))
        };
        assert!(of(Outcome::Ok, None, "") && of(Outcome::Refused, Some(503), ""), "{seen:?}");
        assert!(of(Outcome::Failed, None, "assertion failed on 200"), "{seen:?}");
        assert!(
            of(Outcome::Failed, None, "check failed") && of(Outcome::Failed, None, "timeout"),
            "{seen:?}"
        );
    }
}

#[test]
fn a_cut_log_names_its_line() {
    let whole = fixture("gatling.log");
    let at = whole.rfind("REQUEST\t").unwrap();
    let said = import(&whole[..at + 20], None, &told("simulation.log")).unwrap_err().to_string();
    assert!(said.contains("line ") && said.contains("cut off"), "{said}");
    let stats = fixture("gatling-stats.json");
    let said = import(&stats[..stats.len() / 2], Some(Tool::GatlingStats), &told("x.json")).unwrap_err();
    assert!(said.to_string().contains("is cut off: EOF"), "{said}");
}

/// The fixture is the beginning of the log of a newer Gatling.
#[test]
fn a_binary_log_says_what_to_import_instead() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/offline/fixtures/gatling-binary.log");
    let said = decode(std::fs::read(path).unwrap(), "simulation.log").unwrap_err();
    assert!(matches!(said, ImportError::Unusable { .. }), "{said:?}");
    let said = said.to_string();
    assert!(said.contains("Gatling 3.13.5: import `js/stats.js`"), "{said}");
}
