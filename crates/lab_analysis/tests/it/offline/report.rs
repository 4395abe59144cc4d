//! Reports: their content, and that pictures are well-formed.

use lab_analysis::diagnose::findings;
use lab_analysis::offline::render::html;
use lab_analysis::offline::report::sheet;
use lab_analysis::record::{Arrivals, Comparison, Doubt, Finding, Origin, Peer, Record, Stage};
use lab_analysis::statistics::{Figure, figures, median};
use lab_analysis::test_support::sample;

fn names(record: &Record) -> Vec<String> {
    findings(record).into_iter().map(|finding| finding.name).collect()
}

/// The sample record without its faulty parts.
fn healthy() -> Record {
    let mut record = sample::record(1);
    record.variants.retain(|variant| !variant.name.starts_with("3x"));
    record.reference.clear();
    record
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_but_itself() {
    let page = html(&sheet(&sample::record(1)));
    let body = page.strip_prefix("<!doctype html>\n").unwrap();
    let mut reader = quick_xml::Reader::from_str(body);
    // HTML leaves `<meta>` open; everything else is as strict as XML.
    reader.config_mut().check_end_names = false;
    let (mut pictures, mut depth) = (0, 0_i32);
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(tag) if tag.name().as_ref() != "meta" => {
                depth += 1;
                pictures += i32::from(tag.name().as_ref() == "svg");
            }
            quick_xml::events::Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "every element is closed");
    assert!(pictures >= 12, "{pictures} pictures");
    for foreign in ["http:", "https:", "src=", "NaN", "inf"] {
        assert!(!page.replace("info", "").contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<script").count(), 1, "its own");
    let links: Vec<&str> =
        page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    for link in links.iter().filter(|link| !link.starts_with("report.")) {
        let id = link.strip_prefix('#').unwrap_or_else(|| panic!("{link} leads away"));
        assert!(page.contains(&format!(" id=\"{id}\"")), "{link} leads nowhere");
    }
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
}

#[test]
fn figures_in_the_report_are_those_of_the_record() {
    let record = sample::record(1);
    let text = sheet(&record).markdown();
    let p50 = median(&figures(&record.variants[0], &Figure::P50));
    assert!(text.contains(&format!("| direct | {p50:.0} µs (")), "{p50} in {text}");
    let rows = text.lines().filter(|line| line.starts_with("| median |")).count();
    assert_eq!(rows, 4 * 2, "a median under each table by iteration, in two groups of variants");
}

#[test]
fn ratios_claim_no_more_rounds_than_both_variants_have() {
    let mut record = healthy();
    let names: Vec<String> = record.variants[..2].iter().map(|variant| variant.name.clone()).collect();
    record.comparisons = vec![Comparison { baseline: names[0].clone(), variants: names }];
    for (rounds, sure) in [(6, Some("96.88 %")), (5, Some("93.75 %")), (4, None)] {
        record.variants[1].iterations.truncate(rounds);
        let report = sheet(&record).markdown();
        let caption = report.lines().find(|line| line.contains("in the same round: median")).unwrap();
        assert_eq!(
            caption.contains("the range contains the true median with"),
            sure.is_some(),
            "{rounds}: {caption}"
        );
        assert!(sure.is_none_or(|sure| caption.contains(sure)), "{rounds}: {caption}");
    }
}

#[test]
fn a_load_with_stages_is_told_stage_by_stage() {
    let mut record = sample::record(1);
    let stage = |from_per_s, to_per_s, seconds| Stage { from_per_s, to_per_s, seconds };
    record.variants[0].load.stages =
        vec![stage(900.0, 900.0, 6.0), stage(900.0, 1500.0, 6.0), stage(5.0, 5.0, 60.0)];
    let sheet = sheet(&record);
    let text = sheet.markdown();
    let table = text.split("### direct: medians over iterations").nth(1).unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).take(4).collect();
    assert!(
        rows[1].starts_with("| 900/s for 6.00 s | 900 | 9")
            || rows[1].starts_with("| 900/s for 6.00 s | 900 | 8"),
        "{rows:?}"
    );
    assert!(rows[2].starts_with("| 900 to 1500/s for 6.00 s | 1200 |"), "{rows:?}");
    assert!(rows[3].ends_with("| – | – | – | – |"), "nothing was measured so late: {rows:?}");
    assert!(text.contains("open, 900/s for 6.00 s, then 900 to 1500/s for 6.00 s, then 5"), "{text}");
    assert!(html(&sheet).contains(">offered<"), "what was offered stands beside what was answered");
}

#[test]
fn published_use_of_cpu_stands_beside_the_measured() {
    let text = sheet(&sample::record(1)).markdown();
    let table = text.split("### Components in the measured windows").nth(1).unwrap();
    let row = table.lines().find(|line| line.contains("three hops, auth proxy at 0.05 cores")).unwrap();
    assert!(row.contains("at 0.05 cores † |") && row.contains("| auth-proxy | 0.0334 | – |"), "{row}");
    assert!(table.contains("\n† published, other hardware\n"), "{table}");
}

#[test]
fn the_throttle_is_named_with_the_rate_that_it_implies() {
    let record = sample::record(1);
    let found = findings(&record);
    let throttled = found.iter().find(|finding| finding.name == "throttled").unwrap();
    assert_eq!(throttled.variants, ["3x/50m"]);
    assert!(throttled.evidence.contains("`auth-proxy` used up its 0.05 cores"), "{throttled:?}");
    let implied = throttled.evidence.split("CPU per successful response allow ").nth(1).unwrap();
    let implied: f64 = implied.split(' ').next().unwrap().parse().unwrap();
    assert!((implied / 29.0 - 1.0).abs() < 0.1, "{throttled:?}");
    assert!(throttled.remedy.contains("CPU limit"));
}

#[test]
fn a_healthy_run_has_no_finding() {
    assert_eq!(names(&healthy()), Vec::<String>::new());
}

#[test]
fn what_makes_figures_doubtful_is_found() {
    let mut closed = healthy();
    closed.variants[0].load.arrivals = Arrivals::Closed;
    closed.variants[0].load.concurrency = Some(50);
    assert_eq!(
        names(&closed),
        ["closed-loop", "little-law-broken"],
        "50 workers would have made more requests"
    );

    let mut bound = healthy();
    bound.variants[0].iterations[1].generator.as_mut().unwrap().limited = true;
    bound.run.quick = true;
    assert_eq!(names(&bound), ["generator-bound", "quick"], "the graver one first");

    let mut debug = healthy();
    let own = |level: &str| Peer {
        name: "postern".to_owned(),
        version: "0.1.0".to_owned(),
        optimization: Some(level.to_owned()),
    };
    debug.run.peers.push(own("0"));
    assert_eq!(names(&debug), ["not-optimized"]);
    assert_eq!(findings(&debug)[0].evidence, "`postern` was built with optimization level 0");
    *debug.run.peers.last_mut().unwrap() = own("partial");
    assert_eq!(findings(&debug)[0].evidence, "`postern` was optimized in part");
    *debug.run.peers.last_mut().unwrap() = own("3");
    assert_eq!(names(&debug), Vec::<String>::new());

    let mut few = healthy();
    few.variants[1].iterations.truncate(3);
    few.variants[1].iterations[0].unsent = 5;
    assert_eq!(names(&few), ["requests-unsent", "few-iterations"]);

    let mut summary = healthy();
    summary.variants[2].iterations[0].classes[0].latency = None;
    summary.run.origin = Origin::Import {
        tool: "wrk".to_owned(),
        file: "x".to_owned(),
        notes: vec!["one connection".to_owned()],
    };
    assert_eq!(names(&summary), ["import", "summary-only"]);

    let mut full = healthy();
    full.sweeps[0].variants.drain(..2);
    assert_eq!(names(&full), ["saturated"]);
    assert_eq!(findings(&full)[0].doubt, Doubt::Invalid);
}

#[test]
fn a_slow_iteration_is_named() {
    let mut record = healthy();
    let slow = sample::variant(
        &sample::Plan {
            name: "slow",
            typical_us: 900.0,
            per_s: 900.0,
            cpu_us: &[("echo", 12.0)],
            limit: None,
        },
        1,
        &mut sample::Dice(9),
    );
    record.variants[0].iterations[4].classes = slow.iterations[0].classes.clone();
    record.variants[0].iterations[4].service = None;
    let found = findings(&record);
    let odd = found.iter().find(|finding| finding.name == "slow-iteration").unwrap();
    assert!(odd.evidence.contains("P50 of iteration 5"), "{odd:?}");
}

#[test]
fn what_the_run_noticed_is_not_said_twice() {
    let mut record = sample::record(1);
    let noticed = Finding {
        name: "throttled".to_owned(),
        variants: vec!["3x/50m".to_owned()],
        doubt: Doubt::Explains,
        evidence: "seen while it ran".to_owned(),
        remedy: "raise it".to_owned(),
    };
    record.findings.push(noticed);
    assert_eq!(names(&record).iter().filter(|name| *name == "throttled").count(), 1);
    assert!(sheet(&record).markdown().contains("seen while it ran"));
}

#[test]
fn the_same_about_many_variants_is_one_warning_and_each_is_listed() {
    let late = |variant: &str, lag: u32| Finding {
        name: "generator-late".to_owned(),
        variants: vec![variant.to_owned()],
        doubt: Doubt::Invalid,
        evidence: format!("late by {lag} ms"),
        remedy: "lower the rate".to_owned(),
    };
    let mut record = healthy();
    // A name that contains a comma counts as one name.
    record.findings = vec![late("split, over TCP", 3), late("fused/<oidc>", 4), late("direct", 5)];
    let sheet = sheet(&record);
    let text = sheet.markdown();
    assert_eq!(text.matches("`generator-late`").count(), 1, "{text}");
    let line = "`generator-late` (3 variants): in `split, over TCP` late by 3 ms. _lower the rate_";
    assert!(text.contains(line), "{text}");
    for one in [
        "  - `split, over TCP`: late by 3 ms\n",
        "  - `fused/<oidc>`: late by 4 ms\n",
        "  - `direct`: late by 5 ms\n",
    ] {
        assert!(text.contains(one), "{one} in {text}");
    }
    let page = html(&sheet);
    assert!(page.contains("<summary>all 3</summary>"), "{page}");
    assert!(page.contains("<li><code>fused/&lt;oidc&gt;</code>: late by 4 ms</li>"), "{page}");
}

#[test]
fn a_warning_about_more_than_a_few_variants_counts_them() {
    let mut record = healthy();
    let names: Vec<String> = (1..=6).map(|number| format!("v{number}")).collect();
    record.findings = vec![Finding {
        name: "closed-loop".to_owned(),
        variants: names.clone(),
        doubt: Doubt::Careful,
        evidence: "50 workers waited".to_owned(),
        remedy: "offer a rate".to_owned(),
    }];
    let text = sheet(&record).markdown();
    assert!(text.contains("`closed-loop` (6 variants): 50 workers waited. _offer a rate_"), "{text}");
    assert!(names.iter().all(|name| text.contains(&format!("  - `{name}`\n"))), "{text}");
    record.findings[0].variants.truncate(2);
    let text = sheet(&record).markdown();
    assert!(
        text.contains("`closed-loop` (`v1`, `v2`): 50 workers waited") && !text.contains("<details>"),
        "{text}"
    );
}

#[test]
fn a_record_without_anything_is_still_a_report() {
    let mut record = sample::record(1);
    (record.variants, record.ladders, record.sweeps, record.reference) = (vec![], vec![], vec![], vec![]);
    let text = sheet(&record).markdown();
    assert!(text.contains("Nothing was found"), "{text}");
}
