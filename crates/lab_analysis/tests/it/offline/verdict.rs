//! Verdicts: what opens a report, and the files of data beside it.

use lab_analysis::offline::render::html;
use lab_analysis::offline::report::{data, sheet};
use lab_analysis::record::{
    Arrivals, Comparison, Doubt, Finding, HeldConnections, Measure, Outcome, Record, Target, Variant,
};
use lab_analysis::test_support::sample::{self, Dice, Plan};

/// The section that opens the report, as Markdown.
fn opening(record: &Record) -> String {
    let text = sheet(record).markdown();
    let verdict = text.split("\n## Verdict\n").nth(1).unwrap_or_else(|| panic!("{text}"));
    verdict.split("\n## ").next().unwrap().to_owned()
}

/// The sentences that open the report.
fn answers(record: &Record) -> Vec<String> {
    let sentences = opening(record);
    let sentences = sentences.lines().take_while(|line| !line.contains("Picture in"));
    sentences.filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
}

/// The sentence that begins with these words.
fn answer(record: &Record, start: &str) -> String {
    let all = answers(record);
    all.iter().find(|one| one.starts_with(start)).unwrap_or_else(|| panic!("{start} in {all:#?}")).clone()
}

fn finding(name: &str, doubt: Doubt, variants: &[&str]) -> Finding {
    Finding {
        name: name.to_owned(),
        variants: variants.iter().map(|name| (*name).to_owned()).collect(),
        doubt,
        evidence: "seen".to_owned(),
        remedy: "repeat".to_owned(),
    }
}

fn target(says: &str, at_most: f64) -> Target {
    Target {
        says: says.to_owned(),
        figure: Measure::P50,
        of: "gateway".to_owned(),
        minus: None,
        over: None,
        at_most: Some(at_most),
        at_least: None,
        surely: false,
    }
}

/// Variants of one load with these medians and this CPU per request of `postern`.
fn variants(of: &[(&str, f64, f64)], rounds: u32) -> Vec<Variant> {
    let mut dice = Dice(3);
    let made = of.iter().map(|(name, typical_us, cpu_us)| {
        let cpu_us = [("echo", 12.0), ("postern", *cpu_us)];
        let plan = Plan { name, typical_us: *typical_us, per_s: 900.0, cpu_us: &cpu_us, limit: None };
        sample::variant(&plan, rounds, &mut dice)
    });
    made.collect()
}

#[test]
fn a_report_opens_with_the_verdict_and_folds_the_rest() {
    let mut record = sample::record(1);
    record.targets = vec![target("quick", 600.0), target("very quick", 1.0), target("at once", 0.5)];
    let report = sheet(&record);
    let titles: Vec<&str> = report.sections.iter().map(|section| section.title.as_str()).collect();
    assert_eq!(titles[0], "Verdict");
    let folded: Vec<bool> = report.sections.iter().map(|section| section.folded).collect();
    assert!(!folded[0] && folded[1..].iter().all(|folded| *folded) && folded.len() > 10, "{titles:?}");
    let answers = answers(&record);
    assert_eq!(answers.len(), 6, "{answers:#?}");
    let missed = "1 of 3 targets are met; missed: very quick (";
    assert!(answers[0].starts_with(missed) && answers[0].ends_with("wanted at most 1.00 µs), and 1 more."));
    assert!(answers.iter().all(|answer| answer.ends_with('.') && answer.len() < 600), "{answers:#?}");
    let text = report.markdown();
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words} in {text}"));
    assert!(at("## Verdict") < at("Picture in the HTML report: Latency by variant"));
    assert!(at("Latency by variant") < at("Picture in the HTML report: CPU per request by component"));
    assert!(at("by component") < at("The same data: [report.json](report.json)"));
    assert!(at("The same data") < at("\n## Targets"));
}

#[test]
fn what_a_path_costs_is_said_with_its_certainty() {
    let record = sample::record(1);
    // The bare service has no path in front of it, so its CPU is not a cost.
    let cpu = answer(&record, "CPU per request at 900/s: `gateway` 3");
    assert!(cpu.contains("`fused/authn` 4") && cpu.contains("`fused/oidc` 4"), "{cpu}");
    assert!(!cpu.contains("direct") && cpu.contains("highest ÷ lowest: × 1.2"), "{cpu}");
    assert!(cpu.ends_with("which is certain."), "{cpu}");
    let latency = answer(&record, "P50 at 900/s: `direct` 3");
    assert!(latency.contains("highest ÷ lowest: × 1.6"), "{latency}");
    assert!(latency.contains("which is certain; P99: from ") && latency.contains("(`direct`) to "));
    let hops = answer(&record, "Hop by hop, over 8 rounds, the P50 of service is 3");
    assert!(hops.contains("gateway adds 1") && hops.contains("authorization adds "), "{hops}");
    let limits = answer(&record, "What limits: `throttled` (`3x/50m`): `auth-proxy` used up its 0.05 cores");
    assert!(limits.ends_with("; the knee of `direct, growing rate` is at 2000/s."), "{limits}");
    let ended = answer(&record, "Of ");
    assert!(ended.contains(" requests > 99.99 % ended well, fewest on `3x/50m` (99."), "{ended}");
    assert!(ended.contains("; revoked credentials were accepted for "), "{ended}");
    assert!(ended.ends_with("at most (`fused/oidc`)."), "{ended}");
}

#[test]
fn one_round_is_not_certain_and_many_variants_need_more_evidence() {
    let once = sample::measured(variants(&[("a", 500.0, 40.0), ("b", 5_000.0, 400.0)], 1), 2);
    let latency = answer(&once, "P50");
    assert!(latency.contains("which is not certain (one round)"), "{latency}");
    let twice = sample::measured(variants(&[("a", 500.0, 40.0), ("b", 1_400.0, 400.0)], 2), 2);
    let latency = answer(&twice, "P50");
    assert!(latency.contains("in each of 2 rounds: × 2."), "{latency}");
    assert!(latency.contains("which chance alone shows in 50.00 % of runs"), "{latency}");
    let three = [("a", 500.0, 40.0), ("b", 700.0, 60.0), ("c", 1_400.0, 400.0)];
    let latency = answer(&sample::measured(variants(&three, 2), 2), "P50");
    assert!(latency.contains("which is not certain for two that were picked from 3 variants"), "{latency}");
    // With no difference at all, the extremes of ten variants are not called different.
    let names: Vec<String> = (0..10).map(|number| format!("v{number}")).collect();
    let same: Vec<(&str, f64, f64)> = names.iter().map(|name| (name.as_str(), 500.0, 40.0)).collect();
    let latency = answer(&sample::measured(variants(&same, 6), 2), "P50");
    assert!(latency.contains("lowest `v") && latency.contains(", of 10 variants; "), "{latency}");
    assert!(latency.contains("they are the same") || latency.contains("not certain"), "{latency}");
}

#[test]
fn what_a_scenario_divides_by_a_baseline_is_answered_in_ratios() {
    let of = [("a", 500.0, 40.0), ("b", 503.0, 40.0), ("base", 500.0, 40.0), ("c", 5_000.0, 400.0)];
    let mut record = sample::measured(variants(&of, 6), 2);
    let names = of.map(|(name, ..)| name.to_owned()).to_vec();
    record.comparisons = vec![Comparison { baseline: "base".to_owned(), variants: names }];
    for start in ["CPU per request at 900/s: `base` ", "P50 at 900/s: `base` "] {
        let answer = answer(&record, start);
        assert!(answer.contains("; divided by it, certain unless marked: "), "{answer}");
        assert!(answer.contains("`a` × ") && answer.contains(" (the same), `"), "{answer}");
        let last = answer.split("`c` × ").nth(1).unwrap();
        assert!(!last.contains("the same") && !last.contains("not certain"), "{answer}");
    }
    record.variants.iter_mut().for_each(|variant| variant.iterations.truncate(1));
    let once = answer(&record, "P50");
    assert_eq!(once.matches(" (not certain)").count(), 3, "{once}");
    record.findings = vec![finding("generator-bound", Doubt::Invalid, &["base"])];
    let without = answer(&record, "P50");
    assert!(without.contains("highest ÷ lowest") && without.contains("(without `base`, "), "{without}");
}

#[test]
fn invalid_figures_are_left_out_and_a_late_generator_distorts_latency_alone() {
    let mut record =
        sample::measured(variants(&[("a", 500.0, 40.0), ("b", 600.0, 60.0), ("c", 5_000.0, 400.0)], 5), 2);
    record.findings = vec![finding("generator-late", Doubt::Invalid, &["c"])];
    let latency = answer(&record, "P50");
    assert!(latency.contains("(without `c`, whose figures are invalid)"), "{latency}");
    assert!(!latency.contains("`c` ") && answer(&record, "CPU").contains("`c` "), "{latency}");
    let page = html(&sheet(&record));
    assert!(page.contains(">c (invalid)<title>"), "the picture marks it");
    record.findings = vec![finding("generator-bound", Doubt::Invalid, &["b", "c"])];
    let cpu = answer(&record, "CPU");
    assert!(cpu.contains("`a` ") && cpu.contains("(without 2 variants, whose figures"), "{cpu}");
    record.findings = vec![finding("generator-bound", Doubt::Invalid, &["a", "b", "c"])];
    let cpu = "CPU per request at 900/s: not known, because all figures are invalid.";
    assert_eq!(answer(&record, "CPU"), cpu);
    record.findings = vec![finding("swapping", Doubt::Invalid, &[])];
    let first = &answers(&record)[0];
    assert_eq!(first, "The figures of this run must not be used (`swapping`): seen.");
}

#[test]
fn three_caveats_come_first_and_no_finding_is_lost() {
    let mut record = sample::measured(variants(&[("a", 500.0, 40.0), ("b", 500.0, 40.0)], 5), 2);
    record.run.machines[0].cores = 64;
    record.findings = vec![
        finding("one", Doubt::Invalid, &["a"]),
        finding("two", Doubt::Careful, &["a"]),
        finding("three", Doubt::Careful, &["b"]),
        finding("four", Doubt::Careful, &["b"]),
        finding("five", Doubt::Explains, &["b"]),
    ];
    let first = opening(&record);
    let rest = sheet(&record).markdown();
    let rest = rest.split("\n## More findings\n").nth(1).unwrap().split("\n## ").next().unwrap().to_owned();
    for (name, is_first) in [("one", true), ("two", true), ("three", true), ("four", false), ("five", false)]
    {
        let name = format!("`{name}`");
        assert_eq!((first.contains(&name), rest.contains(&name)), (is_first, !is_first), "{name}");
    }
    record.findings.drain(..4);
    let first = opening(&record);
    assert!(first.contains("Nothing was found that makes the figures doubtful."), "{first}");
    assert!(answer(&record, "No limit was found").ends_with("no queue grew."));
    for variant in &mut record.variants {
        variant.load.arrivals = Arrivals::Closed;
    }
    let closed = answer(&record, "No limit was found");
    assert!(closed.ends_with("only an open loop shows whether a queue grows."), "{closed}");
}

#[test]
fn targets_and_endings_are_answered_plainly() {
    let mut record = sample::measured(variants(&[("gateway", 500.0, 40.0)], 5), 2);
    record.targets = vec![target("quick", 900.0)];
    assert_eq!(answers(&record)[0], "The target is met.");
    record.targets.push(target("quick enough", 900.0));
    assert_eq!(answers(&record)[0], "All 2 targets are met.");
    assert!(answer(&record, "All ").ends_with("targets are met."));
    let last = answers(&record).pop().unwrap();
    assert!(last.starts_with("All ") && last.ends_with(" requests ended well."), "{last}");
    let class = &mut record.variants[0].iterations[2].classes[0];
    (class.outcome, class.status, class.fault) = (Outcome::Failed, None, Some("timeout".to_owned()));
    let last = answers(&record).pop().unwrap();
    assert!(last.starts_with("Of ") && last.ends_with(" requests 80.00 % ended well."), "{last}");
}

#[test]
fn the_largest_set_of_one_load_is_compared_and_open_arrivals_are_preferred() {
    let of = [("a", 500.0, 40.0), ("b", 800.0, 90.0)];
    let mut closed = variants(&of, 5);
    for variant in &mut closed {
        variant.name.push_str("/closed");
        (variant.load.arrivals, variant.load.concurrency) = (Arrivals::Closed, Some(50));
    }
    let mut record = sample::measured([closed, variants(&of, 5)].concat(), 2);
    assert!(answer(&record, "P50 at 900/s: `a` ").contains("`b` "));
    record.variants.truncate(3);
    assert!(answer(&record, "P50 with 50 workers in a closed loop: `a/closed` ").contains("`b/closed` "));
    // Steps of a sweep differ by plan. They are not compared with others, but a report of nothing
    // else says something, too.
    let mut record = sample::record(1);
    record.variants.retain(|variant| variant.name.starts_with("rate/"));
    (record.ladders, record.reference) = (vec![], vec![]);
    assert!(answer(&record, "P50 at 500/s: `rate/500` ").contains("P99: "));
}

#[test]
fn what_another_generator_sent_is_not_compared() {
    let of = [("a", 500.0, 40.0), ("b", 800.0, 90.0), ("c", 300.0, 20.0)];
    let mut record = sample::measured(variants(&of, 5), 2);
    record.variants[2].labels.insert("generator".to_owned(), "wrk".to_owned());
    let latency = answer(&record, "P50 at 900/s: `a` ");
    assert!(latency.contains("`b` ") && !latency.contains("`c`"), "{latency}");
}

#[test]
fn a_limit_of_the_compared_variants_comes_first() {
    let mut record = sample::measured(variants(&[("a", 500.0, 40.0), ("b", 600.0, 60.0)], 5), 2);
    let mut other = variants(&[("c", 500.0, 40.0)], 5);
    other[0].load.rate_per_s = Some(5.0);
    record.variants.append(&mut other);
    record.findings = vec![
        finding("throttled", Doubt::Explains, &["c"]),
        finding("backend-bound", Doubt::Explains, &["b"]),
    ];
    let limits = answer(&record, "What limits");
    assert_eq!(limits, "What limits: `backend-bound` (`b`): seen; also `throttled` (`c`).");
}

#[test]
fn an_import_without_components_claims_no_missing_limit() {
    let mut record = sample::measured(variants(&[("a", 500.0, 40.0)], 5), 2);
    record.variants[0].iterations.iter_mut().for_each(|iteration| iteration.components.clear());
    record.variants[0].path.clear();
    assert_eq!(answer(&record, "What limits"), "What limits is not known: no component was observed.");
    assert!(!answers(&record).iter().any(|answer| answer.starts_with("CPU")));
    let page = html(&sheet(&record));
    assert!(!page.contains("by component: medians"), "no picture without figures");
}

/// Variants that hold these numbers of connections, at `each` bytes and 1 MiB besides.
fn holding(path: &str, each: u64, numbers: &[u64]) -> Vec<Variant> {
    const BEFORE: u64 = 30 << 20;
    let made = numbers.iter().map(|number| {
        let name = format!("{path}/idle-{number}");
        let mut variant = variants(&[(&name, 500.0, 40.0)], 2).remove(0);
        variant.labels =
            [("load".to_owned(), format!("idle-{number}")), ("entry".to_owned(), path.to_owned())].into();
        for iteration in &mut variant.iterations {
            iteration.held = Some(HeldConnections {
                manner: "idle".to_owned(),
                asked: *number,
                opened: *number,
                open_at_end: *number,
                closed_by_server: 0,
                lifetime_p50_us: None,
                lifetime_max_us: None,
                open_longest_us: Some(1e6),
                statuses: [(200, *number)].into(),
                memory_before: [("postern".to_owned(), BEFORE)].into(),
            });
            for component in iteration.components.iter_mut().filter(|one| one.name == "postern") {
                component
                    .samples
                    .iter_mut()
                    .for_each(|sample| sample.rss_bytes = BEFORE + (1 << 20) + number * each);
            }
        }
        variant
    });
    made.collect()
}

#[test]
fn where_connections_are_held_their_memory_is_said_first() {
    let numbers = [1_000, 4_000, 9_000];
    let mut all = holding("clear", 2_048, &numbers);
    all.extend(holding("tls", 9_728, &numbers));
    let record = sample::measured(all.clone(), 2);
    // What a process takes once, 1 MiB here, is no cost of a connection.
    assert_eq!(
        answers(&record)[0],
        "Memory of each held connection, by its growth from 1000 to 9000 connections: \
         `clear` 2.00 KiB, `tls` 9.50 KiB."
    );
    let report = sheet(&record).markdown();
    assert!(report.contains("| clear | postern | 1000 to 9000 | 6 | 2.00 KiB |"), "{report}");
    // With one number of connections nothing is known of that.
    let record = sample::measured(holding("clear", 2_048, &[1_024]), 2);
    let answer = answer(&record, "Memory");
    assert_eq!(answer, "Memory of each held connection of 1024: `clear/idle-1024` 3.00 KiB.");
    assert!(!sheet(&record).markdown().contains("least squares"));
    // Where one path of several holds connections, the costs of all come first.
    all.truncate(1);
    all.extend(variants(&[("a", 500.0, 40.0), ("b", 500.0, 40.0)], 2));
    let first = answers(&sample::measured(all, 2)).iter().position(|one| one.starts_with("Memory")).unwrap();
    assert_eq!(first, 2, "after CPU and latency");
}

#[test]
fn data_beside_a_report_has_its_figures() {
    let record = sample::record(1);
    let files = data(&record);
    let page = html(&sheet(&record));
    for file in &files {
        assert!(page.contains(&format!("<a href=\"{}\">", file.name)), "{}", file.name);
        let mut rows = csv::Reader::from_reader(file.content.as_bytes());
        let columns = rows.headers().unwrap().len();
        let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
        assert!(rows.len() > 100 && rows.iter().all(|row| row.len() == columns), "{}", file.name);
        assert!(!file.content.contains("NaN") && !file.content.contains(",inf,"), "{}", file.name);
    }
    let p50 = lab_analysis::statistics::Figure::P50.value(&record.variants[0].iterations[2]).unwrap();
    assert!(files[0].content.contains(&format!("\ndirect,3,,latency P50,{p50},us\n")), "{p50}");
    assert!(files[0].content.contains("\ngateway,1,postern,CPU per request,"));
    assert!(files[1].content.contains("\ndirect,0,"), "the least latency");
    assert!(files[2].content.contains("\ndirect,8,\"CPU, cores in use\",echo,"), "each iteration");
    let mut odd = record;
    odd.variants[0].name = "a,\"b\"\nc".to_owned();
    let content = &data(&odd)[0].content;
    let first = csv::Reader::from_reader(content.as_bytes()).records().next().unwrap().unwrap();
    assert_eq!(&first[0], "a,\"b\"\nc");
}
