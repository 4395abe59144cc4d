//! Baselines: kept checks, violated checks, and updates of a baseline.

use std::collections::BTreeMap;

use lab_analysis::offline::gate::{Baseline, Check, Format, May, OPTIMIZATION, changed_since, gate};
use lab_analysis::record::{Distribution, Measure, Outcome, Record, Staleness};
use lab_analysis::test_support::sample;
use serde_json::json;

fn record() -> Record {
    let mut record = sample::record(1);
    record.variants[0].counters.insert("instructions".to_owned(), 12_000.0);
    record.variants[3].counters.insert("instructions".to_owned(), 21_000.0);
    record.variants[3].counters.insert("allocations".to_owned(), 0.0);
    record
}

fn check(figure: Measure, value: f64, tolerance: f64, may: May) -> Baseline {
    let check = Check { variant: "fused/oidc".to_owned(), figure, over: None, value, tolerance, may };
    Baseline { format: Format::V1, commit: None, counting: BTreeMap::new(), checks: vec![check] }
}

fn breaches(record: &Record, baseline: &Baseline) -> Vec<String> {
    gate(record, baseline).breaches
}

fn instructions(value: f64, tolerance: f64, may: May) -> Vec<String> {
    breaches(&record(), &check(Measure::Count { name: "instructions".to_owned() }, value, tolerance, may))
}

#[test]
fn a_run_keeps_its_own_baseline() {
    let baseline = Baseline::from_run(&record()).unwrap();
    assert_eq!(breaches(&record(), &baseline), Vec::<String>::new());
    let has = |figure: &Measure| baseline.checks.iter().any(|check| check.figure == *figure);
    assert!(
        has(&Measure::Count { name: "allocations".to_owned() })
            && has(&Measure::P50)
            && has(&Measure::Errors)
    );
}

#[test]
fn each_direction_has_its_edge() {
    assert_eq!(instructions(20_000.0, 0.05, May::Fall), Vec::<String>::new(), "just within");
    assert_eq!(instructions(20_000.0, 0.049, May::Fall).len(), 1);
    assert_eq!(instructions(30_000.0, 0.0, May::Fall), Vec::<String>::new(), "it may fall");
    assert_eq!(instructions(30_000.0, 0.0, May::Rise).len(), 1);
    assert_eq!(instructions(22_000.0, 0.01, May::Stay).len(), 1);
    assert_eq!(instructions(21_000.0, 0.0, May::Stay), Vec::<String>::new());
}

#[test]
fn a_breach_is_a_sentence_with_its_figures() {
    assert_eq!(
        instructions(20_000.0, 0.01, May::Fall),
        ["instructions per request of `fused/oidc`: is 21000, was 20000, allowed at most 20200 (+5.0 %)"]
    );
}

#[test]
fn what_was_none_may_not_become_some() {
    let none = check(Measure::Count { name: "allocations".to_owned() }, 0.0, 0.5, May::Fall);
    assert_eq!(breaches(&record(), &none), Vec::<String>::new());
    let mut worse = record();
    worse.variants[3].counters.insert("allocations".to_owned(), 1.0);
    assert_eq!(
        breaches(&worse, &none),
        ["allocations per request of `fused/oidc`: is 1, was 0, allowed at most 0"]
    );
    let mut failing = record();
    let one_round = &mut failing.variants[3].iterations[0].classes[0];
    (one_round.outcome, one_round.status) = (Outcome::Failed, None);
    assert_eq!(breaches(&failing, &check(Measure::Errors, 0.0, 0.0, May::Fall)).len(), 1);
}

#[test]
fn a_ratio_is_of_two_variants_of_the_run() {
    let mut baseline = check(Measure::P50, 1.66, 0.05, May::Fall);
    baseline.checks[0].over = Some("direct".to_owned());
    assert_eq!(breaches(&record(), &baseline), Vec::<String>::new());
    baseline.checks[0].value = 1.5;
    let said = breaches(&record(), &baseline);
    assert!(said[0].starts_with("P50 of `fused/oidc` over `direct`: is 1.6"), "{said:?}");
}

#[test]
fn what_is_not_measured_any_more_is_a_breach() {
    let said = breaches(&record(), &check(Measure::Count { name: "cycles".to_owned() }, 1.0, 0.1, May::Fall));
    assert_eq!(said, ["cycles per request of `fused/oidc`: no round of `fused/oidc` has cycles per request"]);
    let mut gone = check(Measure::P50, 1.0, 0.1, May::Fall);
    gone.checks[0].variant = "gone".to_owned();
    assert_eq!(breaches(&record(), &gone), ["P50 of `gone`: there is no variant `gone`"]);
}

#[test]
fn a_renewed_baseline_keeps_its_checks() {
    let mut old = check(Measure::Count { name: "instructions".to_owned() }, 5.0, 0.03, May::Stay);
    let renewed = old.with_figures_of(&record()).unwrap();
    assert_eq!((renewed.checks[0].value, renewed.checks[0].tolerance), (21_000.0, 0.03));
    assert_eq!(renewed.commit.as_deref(), Some("13ef7b1"));
    assert_eq!(breaches(&record(), &renewed), Vec::<String>::new());
    old.checks[0].figure = Measure::Count { name: "cycles".to_owned() };
    assert!(old.with_figures_of(&record()).unwrap_err().to_string().contains("cycles"));
}

#[test]
fn a_baseline_is_read_as_it_was_written_and_nothing_else_is() {
    let baseline = Baseline::from_run(&record()).unwrap();
    let read = |text: &str| Baseline::parse(text.as_bytes(), "base.json");
    let again = read(&baseline.to_json()).unwrap();
    assert_eq!(again, baseline);
    assert_eq!(breaches(&record(), &again), Vec::<String>::new());
    let one = |more: serde_json::Value| {
        let mut check =
            json!({"variant": "a", "figure": {"kind": "p50"}, "value": 1.0, "tolerance": 0.1, "may": "fall"});
        check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"format": "postern-lab-baseline/1", "checks": [check]}).to_string()
    };
    for (text, why) in [
        (json!({"format": "postern-lab-baseline/1", "checks": []}).to_string(), "any run would pass"),
        (one(json!({"tolerance": -0.1})), "the tolerance from 0"),
        (one(json!({"over": "a"})), "always 1"),
        (one(json!({"figure": {"kind": "p51"}})), "p51"),
        (one(json!({"slack": 1})), "unknown field `slack`"),
        ("[]".to_owned(), "--update"),
    ] {
        let said = read(&text).unwrap_err().to_string();
        assert!(said.contains(why) && said.contains("base.json"), "{said} is not about {why}");
    }
}

#[test]
fn a_run_that_was_ended_early_keeps_no_baseline() {
    let baseline = Baseline::from_run(&record()).unwrap();
    let mut partial = record();
    partial.run.partial = true;
    let held = gate(&partial, &baseline);
    let said = &held.breaches;
    assert!(said.len() == 1 && said[0].contains("the run was stopped early"), "{said:?}");
    assert_eq!(held.passed, baseline.checks.len(), "it closes the gate, and is no check");
    // More messages than checks: one for the run, and one for the check.
    let one = check(Measure::Count { name: "instructions".to_owned() }, 1.0, 0.0, May::Fall);
    let held = gate(&partial, &one);
    assert_eq!((held.passed, held.breaches.len()), (0, 2), "{held:?}");
}

#[test]
fn a_run_that_is_not_whole_makes_no_baseline() {
    let mut partial = record();
    partial.run.partial = true;
    let mut lacking = record();
    lacking.variants[3].iterations.remove(2);
    lacking.variants[3].missing = vec![3];
    let old = check(Measure::Count { name: "instructions".to_owned() }, 5.0, 0.03, May::Stay);
    for (record, why) in [(partial, "was stopped early"), (lacking, "lacks round 3 of `fused/oidc`")] {
        record.check().unwrap();
        for said in [Baseline::from_run(&record).unwrap_err(), old.with_figures_of(&record).unwrap_err()] {
            assert!(said.to_string().contains(why), "{said}");
        }
    }
}

#[test]
fn a_round_that_is_missing_closes_the_gate_but_for_counts() {
    let baseline = Baseline::from_run(&record()).unwrap();
    let mut lacking = record();
    lacking.variants[3].iterations.remove(2);
    lacking.variants[3].missing = vec![3];
    let said = breaches(&lacking, &baseline);
    assert!(
        said.len() > 1 && said.iter().all(|said| said.contains("round 3 of `fused/oidc` has no")),
        "{said:?}"
    );
    assert!(!said.iter().any(|said| said.contains("instructions")), "a count repeats: {said:?}");
}

/// Staleness is infinite if a place never refused. The ratio of two infinite values is undefined.
#[test]
fn a_ratio_of_two_infinite_values_is_not_a_pass() {
    let mut record = record();
    for name in ["direct", "fused/oidc"] {
        let variant = record.variants.iter_mut().find(|variant| variant.name == name).unwrap();
        let delay = Distribution::of([1_000_000], 3);
        let seen = Staleness { node: "a".to_owned(), cluster: None, delay, never: 5 };
        variant.iterations.iter_mut().for_each(|iteration| iteration.staleness = vec![seen.clone()]);
    }
    for may in [May::Fall, May::Rise, May::Stay] {
        let mut baseline = check(Measure::StalenessMax, 1.0, 0.5, may);
        baseline.checks[0].over = Some("direct".to_owned());
        let said = breaches(&record, &baseline);
        assert!(said.len() == 1 && said[0].contains("infinite for both"), "{said:?}");
    }
}

#[test]
fn a_first_baseline_holds_errors_of_every_variant() {
    let baseline = Baseline::from_run(&record()).unwrap();
    for variant in record().variants.iter().map(|variant| &variant.name) {
        let held =
            baseline.checks.iter().any(|check| check.figure == Measure::Errors && check.variant == *variant);
        assert!(held, "{variant}");
    }
}

#[test]
fn what_counts_depend_on_is_compared_by_name() {
    let baseline = Baseline::from_run(&record()).unwrap();
    assert_eq!(changed_since(&record(), &baseline), Vec::<String>::new());
    let mut other = record();
    other.run.counting.insert("compiler".to_owned(), "rustc version 1.96.0".to_owned());
    other.run.counting.insert("valgrind".to_owned(), "3.19".to_owned());
    assert_eq!(
        changed_since(&other, &baseline),
        ["compiler: `rustc version 1.96.0` was `rustc version 1.95.0`", "valgrind: `3.19` was not known"]
    );
}

#[test]
fn counts_of_another_build_do_not_keep_the_baseline() {
    let mut counted = record();
    counted.run.counting.insert(OPTIMIZATION.to_owned(), "0".to_owned());
    let baseline = Baseline::from_run(&counted).unwrap();
    assert_eq!(breaches(&counted, &baseline), Vec::<String>::new());
    counted.run.counting.insert(OPTIMIZATION.to_owned(), "2".to_owned());
    assert_eq!(
        breaches(&counted, &baseline),
        [
            "the run counted a build of optimization level 2, the baseline is of level 0: count the same build, \
          or keep a baseline for each"
        ]
    );
    let mut times = baseline;
    times.checks.retain(|check| !matches!(check.figure, Measure::Count { .. }));
    assert_eq!(breaches(&counted, &times), Vec::<String>::new(), "ratios within one run");
}

#[test]
fn a_run_with_nothing_that_repeats_has_no_baseline() {
    let mut alone = record();
    (alone.ladders, alone.sweeps, alone.reference) = (vec![], vec![], vec![]);
    alone.variants.truncate(1);
    alone.variants[0].counters.clear();
    assert!(Baseline::from_run(&alone).unwrap_err().to_string().contains("the baseline would be empty"));
}
