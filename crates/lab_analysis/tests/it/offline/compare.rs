//! Comparisons: verdicts, and what makes two runs not comparable.

use lab_analysis::offline::compare::{Side, Terms, compare, compare_figure};
use lab_analysis::record::{Outcome, Record};
use lab_analysis::statistics::{Equivalence, Figure};
use lab_analysis::test_support::sample::{self, Dice, Plan};

const TERMS: Terms = Terms { margin: 0.05 };

fn side<'a>(name: &'a str, record: &'a Record, variant: Option<&'a str>) -> Side<'a> {
    Side { name, file: "report.json", record, variant }
}

fn text(a: Side<'_>, b: Side<'_>) -> String {
    compare(a, b, TERMS).unwrap().markdown()
}

#[test]
fn two_variants_of_one_run_have_verdicts() {
    let record = sample::record(1);
    let text = text(side("gateway", &record, Some("gateway")), side("fused", &record, Some("fused/oidc")));
    assert!(text.contains("| P50 |") && text.contains("different: × 1.0"), "{text}");
    assert!(text.contains("none in either") && text.contains("Nothing was found"), "{text}");
    assert!(!text.contains("not-interleaved") && !text.contains("other-machine"), "{text}");
    assert_eq!(text.matches("| 8 |").count(), 4, "every round stands in each table: {text}");
    assert!(text.contains("figures without any difference, chance alone calls about 0."), "{text}");
}

#[test]
fn separate_runs_are_compared_without_a_probability() {
    let row = |a: &[f64], b: &[f64]| {
        let of = |medians: &[f64]| {
            let mut record = sample::record(1);
            record.variants = vec![rounds("a", medians)];
            (record.ladders, record.sweeps, record.reference) = (vec![], vec![], vec![]);
            record
        };
        let text = text(side("a", &of(a), None), side("b", &of(b), None));
        text.lines().find(|line| line.starts_with("| P50 |")).unwrap().to_owned()
    };
    let yesterday = [500.0, 510.0, 495.0, 505.0, 500.0, 502.0, 498.0, 507.0];
    let slower = yesterday.map(|us| us * 1.08);
    let seen = row(&yesterday, &slower);
    assert!(seen.contains("these runs differ: × 1.0") && seen.contains("no round of one reaches"), "{seen}");
    assert!(row(&yesterday, &yesterday.map(|us| us * 1.02)).contains("the same within 5.00 %"), "{seen}");
    let apart = row(&[500.0, 500.0, 900.0], &[600.0, 600.0, 600.0]);
    assert!(
        apart.contains("inconclusive: × 1.1") && apart.contains("but rounds of one run reach"),
        "{apart}"
    );
    for other in [5_000.0, 501.0] {
        let seen = row(&[500.0], &[other]);
        assert!(seen.contains("one round does not show") && !seen.contains("the same"), "{seen}");
    }
}

#[test]
fn the_same_within_the_margin_is_said_only_when_it_is_proven() {
    let plan =
        |typical_us| Plan { name: "x", typical_us, per_s: 900.0, cpu_us: &[("echo", 12.0)], limit: None };
    let of = |typical_us, rounds, seed| sample::variant(&plan(typical_us), rounds, &mut Dice(seed));
    let verdict = |b: &lab_analysis::record::Variant, margin| {
        compare_figure(&of(500.0, 8, 1), b, &Figure::P50, Terms { margin }).unwrap().verdict
    };
    assert!(matches!(verdict(&of(500.0, 8, 2), 0.02), Equivalence::Equivalent { .. }));
    assert!(
        matches!(verdict(&of(540.0, 8, 2), 0.02), Equivalence::Different { effect } if (effect.point - 1.08).abs() < 0.016)
    );
    assert!(
        matches!(verdict(&of(500.0, 2, 2), 0.02), Equivalence::Inconclusive { .. }),
        "two rounds prove nothing"
    );
    assert!(
        matches!(verdict(&of(500.0, 8, 2), 1e-6), Equivalence::Inconclusive { .. }),
        "no data proves a margin of nothing"
    );
}

#[test]
fn what_else_differs_is_said_first() {
    let (a, mut b) = (sample::record(1), sample::record(2));
    b.run.machines[0].cores = 64;
    b.variants[1].load.rate_per_s = Some(5.0);
    let text = text(side("a.json", &a, None), side("b.json", &b, None));
    let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} in {text}"));
    assert!(at("other-machine") < at("| figure |") && at("other-load") < at("| figure |"));
    assert!(at("other-machine") < at("not-interleaved"), "the graver one first");
    assert!(at("(A: `3x/50m`)") > 0 && at("(B: `3x/50m`)") > 0);
    assert_eq!(text.matches("## ").count() - text.matches("### ").count(), 3 + a.variants.len());
    assert!(text.contains("| commit | 13ef7b1 | 13ef7b1 |"), "{text}");
    // Rounds of one day say nothing about another.
    assert!(!text.contains("by chance") && text.contains("A and B are separate runs"), "{text}");
    let machine = text.lines().find(|line| line.starts_with("| machine: servers and generator |")).unwrap();
    assert!(machine.contains("| 2 × a processor") && machine.contains("| 64 × a processor"), "{machine}");
}

#[test]
fn one_round_with_errors_is_not_none() {
    let mut record = sample::record(1);
    let class = &mut record.variants[3].iterations[2].classes[0];
    (class.outcome, class.status, class.fault) = (Outcome::Failed, None, Some("timeout".to_owned()));
    let text = text(side("gateway", &record, Some("gateway")), side("fused", &record, Some("fused/oidc")));
    assert!(!text.contains("none in either"), "{text}");
    let table = text.split("errors by iteration").nth(1).unwrap();
    assert!(table.contains("| 3 | 0 % | 100 % |"), "{table}");
}

#[test]
fn what_cannot_be_compared_says_why() {
    let (a, mut b) = (sample::record(1), sample::record(1));
    let error = |a: Side<'_>, b: Side<'_>| compare(a, b, TERMS).unwrap_err().to_string();
    let said = error(side("nobody", &a, Some("nobody")), side("b", &b, Some("direct")));
    assert!(said.contains("`report.json` has no variant `nobody`; it has `direct`"), "{said}");
    (b.ladders, b.sweeps, b.reference) = (vec![], vec![], vec![]);
    b.variants.iter_mut().for_each(|variant| variant.name.push('!'));
    let said = error(side("a", &a, None), side("b", &b, None));
    assert!(said.contains("have no variant in common") && said.contains("`direct!`"), "{said}");
}

/// A variant whose rounds have these medians.
fn rounds(name: &str, medians_us: &[f64]) -> lab_analysis::record::Variant {
    let of = |(number, us): (usize, &f64)| {
        let plan =
            Plan { name, typical_us: *us, per_s: 50_000.0 / us, cpu_us: &[("echo", 12.0)], limit: None };
        let mut iterations = sample::variant(&plan, 1, &mut Dice(number as u64)).iterations;
        lab_analysis::record::Iteration { number: u32::try_from(number).unwrap() + 1, ..iterations.remove(0) }
    };
    let plan = Plan { name, typical_us: 1.0, per_s: 1.0, cpu_us: &[("echo", 12.0)], limit: None };
    let whole = sample::variant(&plan, 1, &mut Dice(1));
    lab_analysis::record::Variant { iterations: medians_us.iter().enumerate().map(of).collect(), ..whole }
}

#[test]
fn ten_times_as_much_in_every_round_is_a_difference_of_as_many_rounds_as_there_are() {
    let verdict = |a: &[f64], b: &[f64]| {
        let found = compare_figure(&rounds("a", a), &rounds("b", b), &Figure::P50, TERMS).unwrap();
        format!("{:?}", found.verdict)
    };
    // The rounds scatter as much as those of a short run on a busy machine.
    let seen = verdict(&[500.0, 700.0, 450.0, 600.0], &[5_000.0, 21_000.0, 4_300.0, 6_500.0]);
    assert!(seen.starts_with("Different {"), "{seen}");
    let seen = verdict(&[500.0, 520.0], &[5_000.0, 5_100.0]);
    assert!(seen.starts_with("DifferentEachRound") && seen.contains("chance: 0.5 "), "{seen}");
    let seen = verdict(&[500.0, 520.0], &[510.0, 515.0]);
    assert!(seen.starts_with("Inconclusive"), "{seen}");
}

#[test]
fn the_rounds_stand_below_a_verdict() {
    let row = |a: &[f64], b: &[f64]| {
        let mut record = sample::record(1);
        record.variants = vec![rounds("a", a), rounds("b", b)];
        (record.ladders, record.sweeps, record.reference) = (vec![], vec![], vec![]);
        let text = text(side("a", &record, Some("a")), side("b", &record, Some("b")));
        text.lines().find(|line| line.starts_with("| P50 |")).unwrap().to_owned()
    };
    let tenfold = row(&[500.0, 700.0, 450.0, 600.0], &[5_000.0, 21_000.0, 4_300.0, 6_500.0]);
    assert!(tenfold.contains("| different: × 1"), "{tenfold}");
    assert!(tenfold.contains("B is above A in each of 4 rounds, × "), "{tenfold}");
    assert!(tenfold.contains("; by chance alone: 12.50 %"), "{tenfold}");
    // The machine drifts, so the two overlap; each round still differs tenfold or more.
    let drift = row(&[20.0, 20.0, 5_000.0], &[250.0, 6_000.0, 60_000.0]);
    assert!(drift.contains("different in each of 3 rounds") && !drift.contains("B is above"), "{drift}");
    let open = row(&[500.0, 520.0, 510.0], &[510.0, 515.0, 530.0]);
    assert!(!open.contains("different") && !open.contains("in each of"), "{open}");
    let once = row(&[500.0], &[5_000.0]);
    let seen = "inconclusive: too few iterations (B is above A in the only round, × ";
    assert!(once.contains(seen), "{once}");
}

#[test]
fn a_sheet_has_no_word_of_the_program_in_it() {
    let (a, mut b) = (sample::record(1), sample::record(2));
    b.variants[1].load.rate_per_s = Some(5.0);
    b.variants[2].load.concurrency = Some(7);
    let text = text(side("a.json", &a, None), side("b.json", &b, None));
    for word in ["LoadShape", "Some(", "None", "Closed", "Open", "Ok", "NaN", "inf ", "e-1", "-0.0"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
    assert!(text.contains("the loads differ: open, ") && text.contains("7 in flight at most"), "{text}");
}

#[test]
fn single_variants_are_compared_whatever_they_are_called() {
    let (mut a, mut b) = (sample::record(1), sample::record(2));
    for record in [&mut a, &mut b] {
        record.variants.truncate(1);
        (record.ladders, record.sweeps, record.reference) = (vec![], vec![], vec![]);
    }
    b.variants[0].name = "other".to_owned();
    assert!(text(side("a", &a, None), side("b", &b, None)).contains("direct and other"));
}
