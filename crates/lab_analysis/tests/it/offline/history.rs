//! Histories: what is named a change, and which reports are kept apart.

use lab_analysis::offline::history::{History, HistoryEntry, HistoryError, HistoryTerms, history};
use lab_analysis::offline::render::html;
use lab_analysis::record::{Doubt, Finding, Measure, Origin, Peer, Record, Target};
use lab_analysis::statistics::MIN_CHANGE_VALUES;
use lab_analysis::test_support::sample::{self, Dice, Plan};

/// A day of November 2026, seconds since 1970.
fn day(number: usize) -> f64 {
    1_793_491_200.0 + 86_400.0 * number as f64
}

/// A report of one variant, of a day, with this median.
fn report(number: usize, typical_us: f64) -> Record {
    let cpu_us = [("echo", 12.0), ("postern", 340.0)];
    let plan = Plan { name: "gateway", typical_us, per_s: 100.0, cpu_us: &cpu_us, limit: None };
    let mut record = sample::measured(vec![sample::variant(&plan, 5, &mut Dice(number as u64))], 2);
    record.run.scenario = Some("paths".to_owned());
    record.run.started_unix_s = Some(day(number));
    record.run.commit = Some(format!("c0ffee{number:02}"));
    record
}

/// Reports with these medians, a day apart.
fn reports(medians: &[f64]) -> Vec<Record> {
    medians.iter().enumerate().map(|(number, us)| report(number, *us)).collect()
}

fn terms() -> HistoryTerms {
    HistoryTerms { title: "History".to_owned(), margin: 0.05, variants: Vec::new() }
}

fn entries(records: &[Record]) -> Vec<HistoryEntry> {
    let entry = |(number, record)| HistoryEntry::new(&format!("{number:02}/report.json"), record);
    records.iter().enumerate().map(entry).collect()
}

fn shown(records: &[Record]) -> History {
    history(&entries(records), Vec::new(), &terms()).unwrap()
}

fn step() -> Vec<f64> {
    [vec![500.0; 11], vec![620.0; 5]].concat()
}

#[test]
fn a_step_is_named_with_its_size_and_its_commits() {
    let records = reports(&step());
    let history = shown(&records);
    let of_p50: Vec<&String> =
        history.changes.iter().filter(|line| line.starts_with("P50 of `gateway`")).collect();
    assert_eq!(of_p50.len(), 1, "{:?}", history.changes);
    assert!(of_p50[0].contains("worse: × 1.2"), "{of_p50:?}");
    assert!(of_p50[0].ends_with("between 2026-11-11 c0ffee10 and 2026-11-12 c0ffee11"), "{of_p50:?}");
    let calm = |line: &&String| line.starts_with("CPU") || line.starts_with("throughput");
    assert_eq!(history.changes.iter().find(calm), None, "what did not change is not named");
    let text = history.sheet.markdown();
    assert!(text.contains("| P50 of `gateway` | worse: × 1.2"), "{text}");
    let latest = text.lines().find(|line| line.starts_with("| P50 (`gateway`) |")).unwrap();
    assert!(latest.ends_with("| 4 |"), "the level since the change has four earlier reports: {latest}");
}

#[test]
fn better_is_the_direction_of_the_figure() {
    let mut records = reports(&[500.0; 16]);
    for record in &mut records[..8] {
        record.variants[0].iterations.iter_mut().for_each(|iteration| iteration.seconds *= 1.5);
    }
    let lines = shown(&records).changes;
    let of = |name: &str| lines.iter().find(|line| line.starts_with(name)).cloned().unwrap_or_default();
    assert!(of("throughput of").contains("better: × 1.5"), "{lines:?}");
}

#[test]
fn few_reports_claim_nothing_however_far_apart_they_are() {
    let medians = [vec![500.0; 6], vec![5_000.0; 6]].concat();
    assert_eq!(medians.len(), MIN_CHANGE_VALUES - 1);
    let history = shown(&reports(&medians));
    assert_eq!(history.changes, Vec::<String>::new());
    let text = history.sheet.markdown();
    assert!(text.contains("Nothing is claimed: none of the 5 series has the 13 usable reports"), "{text}");
    let whole = [medians, vec![5_000.0]].concat();
    assert!(!shown(&reports(&whole)).changes.is_empty(), "one more is enough");
}

#[test]
fn counts_are_followed_and_judged_without_rounds() {
    let mut records = reports(&[500.0; 16]);
    for (number, record) in records.iter_mut().enumerate() {
        let instructions = if number < 11 { 20_000.0 } else { 21_500.0 } + (number % 3) as f64;
        record.variants[0].counters.insert("instructions".to_owned(), instructions);
    }
    let history = shown(&records);
    let line = history.changes.iter().find(|line| line.starts_with("instructions per request")).unwrap();
    assert!(line.contains("worse: × 1.075") && line.contains("c0ffee11"), "{line}");
}

#[test]
fn what_may_not_be_compared_is_kept_apart_and_said() {
    let mut records = reports(&[500.0; 8]);
    records[1].run.machines[0].cores = 64;
    records[2].run.quick = true;
    records[3].run.scenario = Some("counts".to_owned());
    records[4].run.partial = true;
    records[5].variants[0].load.rate_per_s = Some(50.0);
    records[6].run.started_unix_s = None;
    records[7].run.origin =
        Origin::Import { tool: "hey".to_owned(), file: "hey.csv".to_owned(), notes: Vec::new() };
    records.push(records[0].clone());
    let history = shown(&records);
    let reasons: Vec<String> =
        history.left_out.iter().map(|file| format!("{}: {}", file.path, file.reason)).collect();
    assert_eq!(
        reasons,
        [
            "04/report.json: the run was stopped early",
            "08/report.json: it is the same run as `00/report.json`",
            "06/report.json: it does not say when the run started, and others do",
        ]
    );
    let text = history.sheet.markdown();
    let groups: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("| scenario |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(groups.len(), 5, "{groups:?}");
    assert!(groups[0].contains("| paths | full | the lab |") && groups[0].contains("| 2 |"), "{groups:?}");
    let other = ["64 ×", "| short |", "| counts |", "| hey |"];
    assert!(other.iter().all(|word| groups[1..].iter().any(|row| row.contains(word))), "{groups:?}");
    let loads = text.split("### Variants with another load").nth(1).unwrap();
    assert!(loads.contains("open, 100/s") && loads.contains("open, 50.0/s"), "{loads}");
}

#[test]
fn builds_of_another_optimization_are_kept_apart() {
    let mut records = reports(&[500.0; 4]);
    for (number, record) in records.iter_mut().enumerate() {
        let level = if number == 2 { "0" } else { "3" };
        record.run.counting.insert("optimization".to_owned(), level.to_owned());
    }
    let text = shown(&records).sheet.markdown();
    assert!(
        text.contains("## paths, full, optimization 3") && text.contains("## paths, full, optimization 0")
    );
    assert!(text.contains("| paths | full, optimization 0 | the lab |"), "{text}");
}

#[test]
fn builds_are_kept_apart_where_nothing_is_counted() {
    let mut records = reports(&[500.0; 4]);
    for (number, record) in records.iter_mut().enumerate() {
        let level = if number == 2 { "0" } else { "3" };
        record.run.peers.push(Peer {
            name: "postern".to_owned(),
            version: "0.1.0".to_owned(),
            optimization: Some(level.to_owned()),
        });
    }
    let text = shown(&records).sheet.markdown();
    assert!(text.contains("| paths | full, optimization 0 | the lab |"), "{text}");
}

#[test]
fn rates_that_differ_a_little_are_one_load() {
    let mut records = reports(&step());
    for (number, record) in records.iter_mut().enumerate() {
        record.variants[0].load.rate_per_s = Some(100.0 + (number % 4) as f64);
    }
    let history = shown(&records);
    assert!(history.changes.iter().any(|line| line.starts_with("P50")), "{:?}", history.changes);
    assert!(!history.sheet.markdown().contains("another load"));
}

#[test]
fn figures_that_must_not_be_used_are_shown_and_prove_nothing() {
    let mut records = reports(&step());
    for record in &mut records[11..] {
        record.findings.push(Finding {
            name: "generator-bound".to_owned(),
            variants: vec!["gateway".to_owned()],
            doubt: Doubt::Invalid,
            evidence: "the load generator was the limit".to_owned(),
            remedy: "lower the rate".to_owned(),
        });
    }
    let history = shown(&records);
    assert_eq!(history.changes, Vec::<String>::new());
    let text = history.sheet.markdown();
    assert!(text.contains("not used: generator-bound"), "{text}");
    assert!(html(&history.sheet).matches("class=\"doubted\"").count() >= 5);
    for record in &mut records {
        record.findings.clear();
    }
    records[3].variants[0].missing = vec![6];
    assert!(shown(&records).sheet.markdown().contains("not used: not in every round"));
}

#[test]
fn what_else_changed_stands_beside_the_change() {
    let mut records = reports(&step());
    for (number, record) in records.iter_mut().enumerate() {
        let version = if number < 11 { "1.34" } else { "1.35" };
        record.run.peers =
            vec![Peer { name: "envoy".to_owned(), version: version.to_owned(), optimization: None }];
    }
    let text = shown(&records).sheet.markdown();
    let row = text.lines().find(|line| line.starts_with("| P50 of `gateway`")).unwrap();
    assert!(
        row.contains("2026-11-12 c0ffee11 (after 2026-11-11 c0ffee10; envoy: 1.34 → 1.35)")
            && !row.contains("kernel"),
        "{row}"
    );
}

#[test]
fn targets_say_since_when_they_are_missed() {
    let mut records = reports(&step());
    for record in &mut records {
        record.targets = vec![Target {
            says: "quick enough".to_owned(),
            figure: Measure::P50,
            of: "gateway".to_owned(),
            minus: None,
            over: None,
            at_most: Some(570.0),
            at_least: None,
            surely: false,
        }];
    }
    let text = shown(&records).sheet.markdown();
    let row = text.lines().find(|line| line.starts_with("| quick enough")).unwrap();
    assert!(row.contains("| missed | 11 of 16 | 2026-11-12 c0ffee11 |"), "{row}");
}

#[test]
fn the_page_is_well_formed_and_has_a_small_chart_for_each_figure() {
    let history = shown(&reports(&step()));
    let page = html(&history.sheet);
    let mut reader = quick_xml::Reader::from_str(page.strip_prefix("<!doctype html>\n").unwrap());
    reader.config_mut().check_end_names = false;
    let (mut charts, mut points) = (0, 0);
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(tag) if tag.name().as_ref() == "svg" => charts += 1,
            quick_xml::events::Event::Start(tag) if tag.name().as_ref() == "circle" => points += 1,
            _ => {}
        }
    }
    assert_eq!((charts, points), (5, 5 * 16), "P50, P99, throughput, CPU, memory");
    let (content, script) = page.split_once("<script>").expect("the page's own");
    assert!(!script.contains("<script"));
    for foreign in ["http:", "https:", "src=", "NaN"] {
        assert!(!content.contains(foreign), "{foreign}");
    }
    let text = history.sheet.markdown();
    for word in ["Some(", "None", "NaN", "inf "] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

#[test]
fn reports_without_a_date_are_ordered_by_their_path() {
    let mut records = reports(&step());
    for record in &mut records {
        record.run.started_unix_s = None;
    }
    let history = shown(&records);
    assert!(history.sheet.markdown().contains("by path, because none says when the run started"));
    assert!(history.changes.iter().any(|line| line.ends_with("between c0ffee10 and c0ffee11")));
}

#[test]
fn a_variant_is_selected_by_its_name() {
    let records = [sample::record(1), sample::record(2)];
    let only = |name: &str| {
        let terms = HistoryTerms { variants: vec![name.to_owned()], ..terms() };
        history(&entries(&records), Vec::new(), &terms).map(|history| history.sheet.markdown())
    };
    let text = only("gateway").unwrap();
    assert!(text.contains("| P50 (`gateway`) |") && !text.contains("| P50 (`direct`) |"), "{text}");
    let error = only("nobody").unwrap_err().to_string();
    assert!(error.contains("no report has a variant `nobody`; the latest have `direct`"), "{error}");
}

#[test]
fn no_report_is_an_error_that_names_the_first_file() {
    let mut record = report(0, 500.0);
    record.run.partial = true;
    let error = history(&entries(&[record]), Vec::new(), &terms()).unwrap_err();
    assert!(matches!(error, HistoryError::NoReports { .. }));
    assert!(error.to_string().contains("`00/report.json`: the run was stopped early"), "{error}");
}
