//! Files of hey: its CSV with every request, and its text report.

use lab_analysis::diagnose::findings;
use lab_analysis::offline::import::import;
use lab_analysis::record::{Origin, Outcome};
use lab_analysis::statistics::Figure;

use super::{fixture, histogram_is_near, iteration, read, stated, told};

#[test]
fn hey_csv_has_heys_percentiles() {
    let record = read("hey.csv");
    let of = iteration(&record);
    let mut compared = 0;
    for line in fixture("hey.csv.printed").lines().filter(|line| line.contains("% in ")) {
        let (share, rest) = line.split_once("% in ").unwrap();
        let (share, seconds): (f64, &str) =
            (share.parse::<f64>().unwrap() / 100.0, rest.split(' ').next().unwrap());
        assert_eq!(format!("{:.4}", stated(of, share) / 1e6), seconds, "{line}");
        histogram_is_near(of, share);
        compared += 1;
    }
    assert_eq!(compared, 7);
    assert_eq!(of.classes.iter().map(|class| class.count).sum::<u64>(), 198);
    assert!(of.classes.iter().any(|class| class.status == Some(503)) && of.count(Outcome::Ok) > 150);
    // The tool prints 0.0038 s; the requests in the file have four decimals too.
    let mean = of.stated.as_ref().unwrap().mean_us.unwrap();
    assert_eq!(format!("{:.4}", mean / 1e6), "0.0038");
}

#[test]
fn heys_text_is_taken_as_it_is() {
    let record = read("hey.txt");
    let of = iteration(&record);
    for line in fixture("hey.txt").lines().filter(|line| line.contains("% in ")) {
        let (share, rest) = line.trim().split_once("% in ").unwrap();
        let seconds: f64 = rest.split(' ').next().unwrap().parse().unwrap();
        assert!((stated(of, share.parse::<f64>().unwrap() / 100.0) - seconds * 1e6).abs() < 1e-6, "{line}");
    }
    assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Refused)), (109, 11));
    assert!(of.latency(Outcome::Ok).is_none() && of.timeline.is_empty(), "no histogram is made up");
    assert_eq!(Figure::P99.value(of), Some(35_400.0));
    assert_eq!(Figure::Percentile(99_900).value(of), None);
    assert!(findings(&record).iter().any(|finding| finding.name == "summary-only"));
}

#[test]
fn hey_counts_requests_without_an_answer() {
    let text = fixture("hey.txt").replace(
        "Status code distribution:",
        "Error distribution:\n  [7]\tGet \"http://127.0.0.1/\": EOF\n\nStatus code distribution:",
    );
    let record = import(&text, None, &told("hey.txt")).unwrap();
    let failed = iteration(&record).classes.iter().find(|class| class.outcome == Outcome::Failed).unwrap();
    assert_eq!((failed.count, failed.example.as_deref()), (7, Some("Get \"http://127.0.0.1/\": EOF")));
}

#[test]
fn heys_text_of_more_than_a_million_answers_is_of_the_first_million() {
    // 2 500 requests/s for 1 000 s, of which 20 000 had no response.
    let long = |answered: &str, per_s: &str| {
        let text = fixture("hey.txt")
            .replace("0.2085 secs", "1000.0000 secs")
            .replace("575.4611", per_s)
            .replace("[200]\t109", &format!("[200]\t{answered}"))
            .replace(
                "Status code distribution:",
                "Error distribution:\n  [20000]\tEOF\n\nStatus code distribution:",
            );
        import(&text, None, &told("hey.txt")).unwrap()
    };
    let record = long("999989", "2500.0000");
    let of = iteration(&record);
    assert!((of.seconds - 1e6 / 2480.0).abs() < 1e-6, "{}", of.seconds);
    let failed = of.classes.iter().find(|class| class.outcome == Outcome::Failed).unwrap();
    assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Refused), failed.count), (999_989, 11, 8065));
    assert_eq!(Figure::PerSecond.value(of).map(f64::round), Some(2480.0));
    let stated = of.stated.as_ref().unwrap();
    assert_eq!((stated.mean_us, stated.per_s), (None, Some(2500.0)));
    let Origin::Import { notes, .. } = &record.run.origin else { panic!("it is an import") };
    assert!(
        notes.iter().any(|note| note.contains("of the first 40") && note.contains("average")),
        "{notes:?}"
    );
    // Below the limit nothing is missing, apart from the rounding of the rate.
    for (answered, per_s) in [("999989", "1020.1"), ("699989", "2500.0000")] {
        let record = long(answered, per_s);
        let of = iteration(&record);
        assert!((of.seconds - 1000.0).abs() < 1e-9 && of.stated.as_ref().unwrap().mean_us.is_some());
    }
}

#[test]
fn hey_that_got_no_answer_at_all_has_no_figures() {
    let text = "\nSummary:\n  Total:\t0.0021 secs\n  Slowest:\t0.0000 secs\n  Fastest:\t0.0000 secs\n  Average:\tNaN secs\n  \
                Requests/sec:\t4761.9\n\nStatus code distribution:\n\nError distribution:\n  [10]\tGet \"http://127.0.0.1/\": EOF\n";
    let record = import(text, None, &told("hey.txt")).unwrap();
    assert_eq!((iteration(&record).count(Outcome::Ok), iteration(&record).count(Outcome::Failed)), (0, 10));
    assert_eq!(iteration(&record).stated.as_ref().and_then(|stated| stated.mean_us), None);
}

#[test]
fn a_closed_loop_is_named_although_the_file_has_no_number_of_workers() {
    let evidence = |name: &str| {
        let found = findings(&read(name)).into_iter().find(|finding| finding.name == "closed-loop");
        found.unwrap_or_else(|| panic!("{name} is a closed loop")).evidence
    };
    for name in ["ab.tsv", "h2load.log", "hey.csv", "hey.txt", "oha.json"] {
        assert_eq!(evidence(name), "an unknown number of workers waited for each answer", "{name}");
    }
    assert_eq!(evidence("wrk.txt"), "2 workers waited for each answer");
}
