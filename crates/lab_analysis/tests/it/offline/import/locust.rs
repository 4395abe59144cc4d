//! Files of Locust.

use lab_analysis::offline::import::import;
use lab_analysis::record::{Arrivals, Outcome};

use super::{fixture, iteration, notes, read, stated, told};

/// Percentiles over all requests that Locust printed: share and milliseconds.
fn printed() -> Vec<(f64, f64)> {
    let text = fixture("locust.printed.txt");
    let table = text.split("Response time percentiles").nth(1).unwrap();
    let shares = table.lines().find(|line| line.contains("50%")).unwrap();
    let all = table.lines().find(|line| line.trim().starts_with("Aggregated")).unwrap();
    let shares = shares.split_whitespace().filter_map(|word| word.strip_suffix('%')?.parse::<f64>().ok());
    let times = all.split_whitespace().skip(1).map(|word| word.parse::<f64>().unwrap());
    shares.map(|percent| percent / 100.0).zip(times).collect()
}

#[test]
fn both_files_have_the_percentiles_that_locust_prints() {
    for name in ["locust_stats.csv", "locust_stats_history.csv"] {
        let record = read(name);
        let of = iteration(&record);
        let printed = printed();
        assert!(printed.len() >= 10, "{printed:?}");
        for (share, ms) in printed {
            assert!((stated(of, share) - ms * 1e3).abs() < 1e-6, "{name} {share}: {}", stated(of, share));
        }
        assert!(of.count(Outcome::Ok) > 0 && of.count(Outcome::Refused) > 0, "{:?}", of.classes);
        assert!(of.latency(Outcome::Ok).is_none(), "no histogram is made up");
        assert_eq!(record.variants[0].load.arrivals, Arrivals::Unknown);
    }
}

#[test]
fn the_history_has_users_and_a_timeline() {
    let (totals, record) = (read("locust_stats.csv"), read("locust_stats_history.csv"));
    let (whole, of) = (iteration(&totals), iteration(&record));
    assert_eq!(record.variants[0].load.concurrency, Some(3));
    assert!(of.timeline.len() > 2, "{:?}", of.timeline);
    let ended = of.timeline.iter().map(|slice| slice.ok + slice.bad).sum::<u64>();
    let all = of.classes.iter().map(|class| class.count).sum::<u64>();
    assert!(ended <= all && ended * 10 >= all * 9, "{ended} {all}");
    assert!((of.seconds - whole.seconds).abs() <= 1.0, "{} {}", of.seconds, whole.seconds);
}

#[test]
fn percentiles_of_seconds_are_not_those_of_the_run() {
    let head = fixture("locust_stats_history.csv").lines().next().unwrap().to_owned();
    let columns = head.split(',').count();
    let row = |at: u64, name: &str, requests: u64| {
        let mut fields = vec!["7".to_owned(); columns];
        (fields[0], fields[3]) = (at.to_string(), name.to_owned());
        for (field, title) in fields.iter_mut().zip(head.split(',')) {
            match title.trim_matches('"') {
                "Total Request Count" => *field = requests.to_string(),
                "Total Failure Count" => *field = "0".to_owned(),
                "Total Median Response Time" => *field = "5".to_owned(),
                _ => {}
            }
        }
        fields.join(",")
    };
    let file = |rows: &[String]| format!("{head}\n{}\n", rows.join("\n"));
    let full = file(&[
        row(100, "Aggregated", 0),
        row(101, "/a", 9),
        row(101, "Aggregated", 9),
        row(104, "Aggregated", 40),
    ]);
    let record = import(&full, None, &told("x.csv")).unwrap();
    let of = iteration(&record);
    assert_eq!((of.count(Outcome::Ok), of.seconds), (40, 4.0));
    let percentiles = &of.stated.as_ref().unwrap().percentiles;
    assert!(percentiles.len() == 1 && (percentiles[0].us - 5000.0).abs() < 1e-9, "{percentiles:?}");
    assert!(notes(&record).iter().any(|note| note.contains("--csv-full-history")), "{:?}", notes(&record));
    let refused = |rows: &[String]| import(&file(rows), None, &told("x.csv")).unwrap_err().to_string();
    let lower = refused(&[row(100, "Aggregated", 5), row(101, "Aggregated", 4)]);
    assert!(lower.contains("line 3") && lower.contains("more than one run"), "{lower}");
    assert!(refused(&[row(100, "Aggregated", 5)]).contains("less than a second"));
    assert!(refused(&[row(100, "/a", 5)]).contains("no row `Aggregated`"));
}

#[test]
fn what_is_no_file_of_totals_says_what_is_missing() {
    let whole = fixture("locust_stats.csv");
    let cut: String = whole.split_inclusive('\n').take(2).collect();
    let said = import(&cut, None, &told("x.csv")).unwrap_err().to_string();
    assert!(said.contains("no row `Aggregated`: the file is cut off"), "{said}");
    for list in ["Method,Name,Error,Occurrences\nGET,/,x,1\n", "Count,Message,Traceback,Nodes\n"] {
        let said = import(list, None, &told("x_failures.csv")).unwrap_err().to_string();
        assert!(said.contains("only failures of Locust") && said.contains("_stats.csv"), "{said}");
    }
}
