//! Files of Gatling.

use std::path::Path;

use lab_analysis::offline::import::{ImportError, Tool, decode, import, recognise};
use lab_analysis::record::{Arrivals, Outcome};

use super::{endings, fixture, histogram_is_near, iteration, lies_near, notes, read, stated, told};

/// A figure of all requests that Gatling printed.
fn printed(name: &str) -> f64 {
    let text = fixture("gatling.printed.txt");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("> {name} ")));
    line.unwrap_or_else(|| panic!("{name}")).split_whitespace().next().unwrap().parse().unwrap()
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
        let ms = printed(&format!("response time {name} percentile"));
        assert!((stated(of, share) / 1e3 - ms).abs() < 1e-6, "{name}");
    }
    assert_eq!(of.count(Outcome::Ok), iteration(&log).count(Outcome::Ok));
    assert!(of.latency(Outcome::Ok).is_none() && of.count(Outcome::Refused) > 0);
    assert!(notes(&record).iter().any(|note| note.contains("its defaults")), "{:?}", notes(&record));
}

/// The script of a report of Gatling 3.13, which has no JSON beside it.
#[test]
fn the_script_of_a_report_is_read_too() {
    let record = read("gatling-stats.js");
    let of = iteration(&record);
    let printed = fixture("gatling-stats.js.printed.txt");
    let total = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(&format!("> {name} "))).unwrap();
        line.split('|').nth(1).unwrap().trim().parse::<f64>().unwrap()
    };
    for (name, share) in [("50th", 0.5), ("75th", 0.75), ("95th", 0.95), ("99th", 0.99)] {
        let ms = total(&format!("response time {name} percentile (ms)"));
        assert!((stated(of, share) / 1e3 - ms).abs() < 1e-6, "{name}");
    }
    assert_eq!(of.count(Outcome::Ok) + of.count(Outcome::Refused), total("request count") as u64);
    assert!((of.stated.as_ref().unwrap().per_s.unwrap() - total("mean throughput (rps)")).abs() < 1e-9);
    let script = fixture("gatling-stats.js");
    let cut = &script[..script.find("percentiles3").unwrap()];
    let said = import(cut, None, &told("stats.js")).unwrap_err().to_string();
    assert!(said.contains("`stats.js`") && said.contains("is cut off: EOF"), "{said}");
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
