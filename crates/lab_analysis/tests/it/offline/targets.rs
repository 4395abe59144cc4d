//! Targets: met, missed and unmeasured ones; and ratios within a round.

use lab_analysis::offline::render::html;
use lab_analysis::offline::report::sheet;
use lab_analysis::offline::targets::{TargetResult, TargetVerdict, judge};
use lab_analysis::record::{Class, Comparison, Distribution, Measure, Outcome, Record, Staleness, Target};
use lab_analysis::test_support::sample;

fn target(figure: Measure, of: &str) -> Target {
    Target {
        says: "as wanted".to_owned(),
        figure,
        of: of.to_owned(),
        minus: None,
        over: None,
        at_most: Some(1.0),
        at_least: None,
        surely: false,
    }
}

fn judged<T>(target: Target, look: impl FnOnce(&TargetResult<'_>) -> T) -> T {
    let record = Record { targets: vec![target], ..sample::record(1) };
    look(&judge(&record)[0])
}

/// The measured value, and the range of the rounds.
fn said(judged: &TargetResult<'_>) -> String {
    format!("{} ({})", judged.result, judged.scatter.join("; "))
}

/// Whether a bound is met, the measured value, and the required one.
fn seen(target: Target) -> (bool, String, String) {
    judged(target, |judged| (judged.is_met(), said(judged), judged.requirement.clone()))
}

#[test]
fn a_bound_is_kept_or_missed_by_the_median_over_the_rounds() {
    // 470 µs; the drift of the machine raises it to at most 490.
    let p50 = |most: f64| seen(Target { at_most: Some(most), ..target(Measure::P50, "gateway") });
    let (met, what, wanted) = p50(600.0);
    assert!(met && wanted == "at most 600 µs" && what.contains(" … "), "{what}; {wanted}");
    assert!(!p50(400.0).0);
    let least = Target { at_most: None, at_least: Some(800.0), ..target(Measure::Throughput, "gateway") };
    assert!(seen(least.clone()).0);
    assert!(!seen(Target { at_least: Some(1000.0), ..least }).0);
}

#[test]
fn rounds_on_both_sides_of_a_bound_are_told() {
    let values = judged(target(Measure::P50, "gateway"), |judged| judged.values.clone());
    let middle = lab_analysis::statistics::median(&values);
    let (met, what, _) = seen(Target { at_most: Some(middle), ..target(Measure::P50, "gateway") });
    assert!(met && what.contains("of 8 rounds meet it alone"), "{what}");
}

#[test]
fn what_is_to_be_met_surely_is_met_by_all_of_the_interval() {
    let times = |most: f64, rounds: usize| {
        let over = Some("direct".to_owned());
        let target = Target { over, at_most: Some(most), surely: true, ..target(Measure::P50, "gateway") };
        let mut record = Record { targets: vec![target], ..sample::record(1) };
        record.variants.iter_mut().for_each(|variant| variant.iterations.truncate(rounds));
        let judged = &judge(&record)[0];
        (judged.verdict, said(judged), judged.requirement.clone(), judged.values.clone())
    };
    let (verdict, what, wanted, values) = times(1.6, 8);
    assert!(
        wanted.starts_with("surely at most 1.60 times") && what.contains("with 99 % between"),
        "{what}; {wanted}"
    );
    assert_eq!(verdict, TargetVerdict::Met, "{what}");
    // The median is within the bound, but the true value may not be.
    let middle = lab_analysis::statistics::median(&values);
    let (verdict, what, ..) = times(middle, 8);
    assert_eq!(verdict, TargetVerdict::NotShown, "{what}");
    assert_eq!(times(middle * 0.9, 8).0, TargetVerdict::Missed);
    // With few rounds there is no confidence interval.
    let (verdict, what, ..) = times(1e6, 4);
    assert!(
        verdict == TargetVerdict::NotShown && what.contains("no interval of fewer than 5 rounds"),
        "{what}"
    );
    let (verdict, what, ..) = times(1e6, 1);
    assert!(
        verdict == TargetVerdict::NotShown && what.ends_with("(no interval of fewer than 5 rounds)"),
        "{what}"
    );
}

#[test]
fn a_promise_of_every_single_time_is_broken_by_one_round() {
    let verdict = |late: bool, figure: Measure, most: f64| {
        let mut record = sample::record(1);
        let variant = record.variants.iter_mut().find(|variant| variant.name == "gateway").unwrap();
        for (round, iteration) in variant.iterations.iter_mut().enumerate() {
            let mut delays = vec![3_000_000; 100];
            if late && round == 2 {
                delays[7] = 6_000_000_000;
                let latency = Distribution::of([5_000_000], 3);
                let refused = Class {
                    outcome: Outcome::Refused,
                    status: Some(403),
                    count: latency.count(),
                    latency: Some(latency),
                    ..iteration.classes[0].clone()
                };
                iteration.classes.push(refused);
            }
            let delay = Distribution::of(delays, 3);
            iteration.staleness =
                vec![Staleness { node: "gateway-a".to_owned(), cluster: None, delay, never: 0 }];
        }
        record.targets = vec![Target { at_most: Some(most), ..target(figure, "gateway") }];
        let judged = &judge(&record)[0];
        (judged.is_met(), said(judged))
    };
    for (figure, most, words) in
        [(Measure::StalenessMax, 5e6, "6.00 s"), (Measure::Errors, 0.0, "7 of 8 rounds meet it alone")]
    {
        assert!(verdict(false, figure.clone(), most).0);
        let (met, what) = verdict(true, figure, most);
        assert!(!met && what.contains(words), "{what}");
    }
    assert!(verdict(true, Measure::StalenessP99, 25e3).0, "one of 800");
}

#[test]
fn differences_and_ratios_are_of_the_same_round() {
    // The drift of the machine is larger than the difference, but cancels within a round.
    let added = Target { minus: Some("direct".to_owned()), ..target(Measure::P50, "gateway") };
    let values = judged(added, |judged| judged.values.clone());
    assert!(values.len() == 8 && values.iter().all(|added| (150.0..180.0).contains(added)), "{values:?}");
    let times =
        Target { over: Some("direct".to_owned()), at_most: Some(1.6), ..target(Measure::P50, "gateway") };
    let (met, what, wanted) = seen(times);
    assert!(met && wanted == "at most 1.60 times" && what.starts_with("1.5"), "{what}; {wanted}");
}

#[test]
fn the_path_is_everything_before_the_service() {
    let of = |figure| judged(target(figure, "fused/oidc"), |judged| judged.values.clone());
    assert_eq!(of(Measure::PathCpu), of(Measure::Cpu { component: "postern".to_owned() }));
    // The service without a gateway has no component before it.
    let alone = |figure| judged(target(figure, "direct"), |judged| judged.values.clone());
    assert_eq!(alone(Measure::PathCpu), alone(Measure::Cpu { component: "echo".to_owned() }));
}

#[test]
fn what_was_not_measured_is_not_met() {
    for (of, figure, words) in [
        ("nobody", Measure::P50, "`nobody`"),
        ("gateway", Measure::StalenessP99, "P99 of staleness"),
        ("gateway", Measure::Count { name: "instructions".to_owned() }, "instructions"),
        ("gateway", Measure::Cpu { component: "edge".to_owned() }, "its components are echo, postern"),
    ] {
        let (met, what, _) = seen(Target { at_most: Some(f64::MAX), ..target(figure, of) });
        assert!(!met && what.starts_with("not measured") && what.contains(words), "{what}");
    }
}

#[test]
fn a_round_of_which_nothing_is_known_is_not_left_out() {
    let mut record = sample::record(1);
    let gateway = record.variants.iter_mut().find(|variant| variant.name == "gateway").unwrap();
    gateway.iterations[2].classes.clear();
    record.targets = vec![Target { at_most: Some(f64::MAX), ..target(Measure::P50, "gateway") }];
    let judged = &judge(&record)[0];
    assert!(!judged.is_met() && said(judged).contains("round 3 of `gateway` has no P50"), "{}", said(judged));
}

#[test]
fn a_target_is_not_met_by_the_rounds_that_are_left() {
    let mut record = sample::record(1);
    let gateway = record.variants.iter_mut().find(|variant| variant.name == "gateway").unwrap();
    gateway.iterations.truncate(6);
    gateway.missing = vec![7, 8];
    let anything = |figure, of| Target { at_most: Some(f64::MAX), ..target(figure, of) };
    let over = Target { over: Some("gateway".to_owned()), ..anything(Measure::P50, "direct") };
    record.targets = vec![anything(Measure::P50, "gateway"), over, anything(Measure::P50, "direct")];
    let read = Record::parse(record.to_json().unwrap().as_bytes(), "run.json").unwrap();
    let met: Vec<bool> = judge(&read).iter().map(TargetResult::is_met).collect();
    assert_eq!(met, [false, false, true]);
    let what = said(&judge(&read)[0]);
    assert!(what.contains("round 7 of `gateway` has no P50"), "{what}");
    record.variants.iter_mut().for_each(|variant| variant.missing = vec![1]);
    assert!(
        record.check().unwrap_err().to_string().contains("round 1 is both present and listed in `missing`")
    );
}

#[test]
fn something_over_nothing_is_more_than_any_bound() {
    let mut record = sample::record(1);
    let refused = |record: &mut Record, name: &str, rounds: usize| {
        let variant = record.variants.iter_mut().find(|variant| variant.name == name).unwrap();
        for iteration in &mut variant.iterations[..rounds] {
            let latency = Distribution::of([5_000_000], 3);
            let class = iteration.classes[0].clone();
            iteration.classes.push(Class {
                outcome: Outcome::Refused,
                status: Some(403),
                count: 1,
                latency: Some(latency),
                ..class
            });
        }
    };
    // The other variant has errors in one round only; in all other rounds the denominator is 0.
    refused(&mut record, "gateway", 8);
    refused(&mut record, "direct", 1);
    let over =
        Target { over: Some("direct".to_owned()), at_most: Some(1e6), ..target(Measure::Errors, "gateway") };
    record.targets = vec![over];
    assert!(!judge(&record)[0].is_met(), "{}", said(&judge(&record)[0]));
}

#[test]
fn the_report_says_which_targets_are_met_and_divides_by_the_baseline() {
    let met = Target { at_most: Some(600.0), ..target(Measure::P50, "gateway") };
    let missed = Target { says: "quicker than it can be".to_owned(), ..target(Measure::P50, "gateway") };
    // The median is within the bound, but some rounds are not.
    let middle =
        judged(target(Measure::P50, "gateway"), |judged| lab_analysis::statistics::median(&judged.values));
    let unsure = Target {
        says: "surely as quick".to_owned(),
        at_most: Some(middle),
        surely: true,
        ..target(Measure::P50, "gateway")
    };
    let others = ["gateway", "fused/oidc"].map(str::to_owned).to_vec();
    let record = Record {
        targets: vec![met, missed, unsure],
        comparisons: vec![Comparison { baseline: "direct".to_owned(), variants: others }],
        ..sample::record(1)
    };
    let read = Record::parse(record.to_json().unwrap().as_bytes(), "run.json").unwrap();
    assert_eq!(read, record);
    let text = sheet(&record).markdown();
    assert!(text.contains("## Targets") && text.contains("1 of 3 are met"), "{text}");
    let row = text.lines().find(|line| line.starts_with("| surely as quick")).unwrap();
    assert!(row.ends_with("| not shown |"), "{row}");
    // Each note below a figure has its own line on the page.
    let page = html(&sheet(&record));
    assert!(page.contains("<br>") && page.contains("with 99 % between"), "{page}");
    let row = text.lines().find(|line| line.starts_with("| quicker than it can be")).unwrap();
    assert!(row.contains("at most 1.00 µs") && row.ends_with("| missed |"), "{row}");
    let ratios = text.split("## Ratios within a round").nth(1).unwrap();
    let row = ratios.lines().find(|line| line.starts_with("| gateway |")).unwrap();
    // Throughput is equal; CPU is 34 µs for the gateway over 12 µs for the service.
    assert!(row.starts_with("| gateway | 1.00 (") && row.contains(" | 2.8"), "{row}");
}

#[test]
fn a_target_that_anything_would_meet_is_refused() {
    let bare = Target { at_most: None, ..target(Measure::P50, "direct") };
    let both = Target {
        minus: Some("direct".to_owned()),
        over: Some("direct".to_owned()),
        ..target(Measure::P50, "gateway")
    };
    let sure = Target { surely: true, ..target(Measure::Errors, "gateway") };
    for (target, words) in [(bare, "at_most"), (both, "`minus` and `over`"), (sure, "every round")] {
        let record = Record { targets: vec![target], ..sample::record(1) };
        let said = record.check().unwrap_err().to_string();
        assert!(said.contains(words) && said.contains("targets[as wanted]"), "{said}");
    }
}
