//! Files of ab.

use lab_analysis::offline::import::{Tool, import, recognise};
use lab_analysis::record::{Arrivals, Outcome, Record};
use lab_analysis::statistics::Figure;

use super::{fixture, histogram_is_near, iteration, notes, read, stated, told};

/// Percentiles in the text report: share and milliseconds.
fn printed() -> Vec<(f64, f64)> {
    let text = fixture("ab.txt");
    let lines = text.lines().filter_map(|line| line.trim().split_once('%'));
    let of = |(percent, rest): (&str, &str)| {
        let ms = rest.split_whitespace().next()?.parse().ok()?;
        Some((percent.parse::<f64>().ok()? / 100.0, ms))
    };
    lines.filter_map(of).collect()
}

#[test]
fn abs_text_is_taken_as_it_is() {
    let record = read("ab.txt");
    let of = iteration(&record);
    let printed = printed();
    assert_eq!(printed.len(), 9);
    for (share, ms) in printed {
        assert!((stated(of, share) - ms * 1e3).abs() < 1e-6, "{share}");
    }
    let text = fixture("ab.txt");
    let after = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    let all = of.classes.iter().map(|class| class.count).sum::<u64>();
    assert_eq!(all, after("Complete requests:") as u64);
    assert!((of.seconds - after("Time taken for tests:")).abs() < 0.001);
    assert_eq!(record.variants[0].load.arrivals, Arrivals::Closed);
    assert_eq!(record.variants[0].load.concurrency, Some(after("Concurrency Level:") as u32));
    assert!(of.latency(Outcome::Ok).is_none(), "no histogram is made up");
}

#[test]
fn every_request_has_the_percentiles_of_the_text() {
    let record = read("ab.tsv");
    let of = iteration(&record);
    let mut compared = 0;
    for (share, ms) in printed().into_iter().filter(|(share, _)| [0.5, 0.75, 0.9, 0.95, 0.99].contains(share))
    {
        assert!((stated(of, share) - ms * 1e3).abs() < 1e-6, "{share}: {}", stated(of, share));
        histogram_is_near(of, share);
        compared += 1;
    }
    assert_eq!(compared, 5);
    let text = read("ab.txt");
    let longer = iteration(&text).seconds;
    assert!((of.seconds - longer).abs() <= 1.0, "{} {longer}", of.seconds);
    assert!(of.timeline.is_empty(), "all requests of a second would end at its start");
    assert!(notes(&record).iter().any(|note| note.contains("no statuses")), "{:?}", notes(&record));
}

/// A second's error in a short time would be a wrong rate.
#[test]
fn a_short_file_for_gnuplot_is_refused() {
    let head = fixture("ab.tsv").lines().next().unwrap().to_owned();
    let short = format!("{head}\nnow\t1000\t0\t5\t5\t5\nthen\t1009\t0\t5\t6\t5\n");
    let said = import(&short, None, &told("ab.tsv")).unwrap_err().to_string();
    assert!(said.contains("whole seconds") && said.contains("text report"), "{said}");
    let cut = fixture("ab.tsv").replacen('\t', " ", 9);
    let said = import(&cut, Some(Tool::AbTsv), &told("ab.tsv")).unwrap_err().to_string();
    assert!(said.contains("`ab.tsv`, line 2:"), "{said}");
}

#[test]
fn abs_failures_are_refusals_lost_responses_and_lost_connections() {
    let text = "This is ApacheBench, Version 2.3\n\nConcurrency Level:      5\nTime taken for tests:   2.000 seconds\n\
                Complete requests:      100\nFailed requests:        19\n   (Connect: 3, Receive: 4, Length: 10, Exceptions: 2)\n\
                Write errors:           1\nNon-2xx responses:      30\nRequests per second:    50.00 [#/sec] (mean)\n";
    let record = import(text, None, &told("ab.txt")).unwrap();
    let record = Record::parse(record.to_json().unwrap().as_bytes(), "ab.txt").unwrap();
    let of = iteration(&record);
    let counts = [Outcome::Ok, Outcome::Refused, Outcome::Failed].map(|outcome| of.count(outcome));
    assert_eq!(counts, [65, 30, 10]);
    assert_eq!(Figure::PerSecond.value(of), Some(32.5));
    assert_eq!(Figure::FailureShare.value(of), None, "which of the refusals are 503 is not known");
    for words in ["10 answers had another length", "redirects", "no percentiles"] {
        assert!(notes(&record).iter().any(|note| note.contains(words)), "{words}: {:?}", notes(&record));
    }
}

#[test]
fn a_report_without_its_figures_says_what_is_missing() {
    let text = fixture("ab.txt");
    let cut = &text[..text.find("Time taken").unwrap()];
    let said = import(cut, None, &told("ab.txt")).unwrap_err().to_string();
    assert!(said.contains("no line `Time taken for tests:`") && said.contains("cut off"), "{said}");
    let bad = text.replace("Complete requests:      150", "Complete requests:      many");
    let said = import(&bad, None, &told("ab.txt")).unwrap_err().to_string();
    assert!(said.contains("line ") && said.contains("is not as ab writes it"), "{said}");
}

#[test]
fn percentiles_alone_are_no_run() {
    let csv = "Percentage served,Time in ms\n0,1.2\n50,2.5\n100,9.9\n";
    assert_eq!(recognise(csv), None);
    let said = import(csv, None, &told("ab.csv")).unwrap_err().to_string();
    assert!(said.contains("neither the number of requests nor their time") && said.contains("-g"), "{said}");
}
