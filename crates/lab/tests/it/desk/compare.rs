//! Comparisons: verdicts, and what makes two runs not comparable.

use lab::analyse::{Figure, Verdict};
use lab::desk::compare::{Side, Terms, compare, compare_figure};
use lab::record::{Outcome, Record};

use super::sample::{self, Dice, Plan};

const TERMS: Terms = Terms { margin: 0.05 };

fn side<'a>(name: &'a str, record: &'a Record, variant: Option<&'a str>) -> Side<'a> {
    Side { name, record, variant }
}

fn text(a: Side<'_>, b: Side<'_>) -> String {
    compare(a, b, TERMS).unwrap().markdown()
}

#[test]
fn two_variants_of_one_run_have_verdicts() {
    let record = sample::record(1);
    let text = text(side("gateway", &record, Some("gateway")), side("fused", &record, Some("fused/oidc")));
    assert!(text.contains("| P50 |") && text.contains("different by +4"), "{text}");
    assert!(text.contains("none in either") && text.contains("Nothing was found"), "{text}");
    assert!(!text.contains("not-interleaved") && !text.contains("other-machine"), "{text}");
    assert_eq!(text.matches("| 8 |").count(), 4, "every round stands in each table: {text}");
}

#[test]
fn the_same_within_the_margin_is_said_only_when_it_is_proven() {
    let plan =
        |typical_us| Plan { name: "x", typical_us, per_s: 900.0, cpu_us: &[("echo", 12.0)], limit: None };
    let of = |typical_us, rounds, seed| sample::variant(&plan(typical_us), rounds, &mut Dice(seed));
    let verdict = |b: &lab::record::Variant, margin| {
        compare_figure(&of(500.0, 8, 1), b, &Figure::P50, Terms { margin }).unwrap().verdict
    };
    assert!(matches!(verdict(&of(500.0, 8, 2), 0.02), Verdict::Equivalent { .. }));
    assert!(
        matches!(verdict(&of(540.0, 8, 2), 0.02), Verdict::Different { by, .. } if (by - 40.0).abs() < 8.0)
    );
    assert!(
        matches!(verdict(&of(500.0, 2, 2), 0.02), Verdict::Inconclusive { .. }),
        "two rounds prove nothing"
    );
    assert!(
        matches!(verdict(&of(500.0, 8, 2), 1e-6), Verdict::Inconclusive { .. }),
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
    assert_eq!(text.matches("## ").count() - text.matches("### ").count(), 2 + a.variants.len());
    assert!(text.contains("| commit | 13ef7b1 | 13ef7b1 |"), "{text}");
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
    let said = error(side("a", &a, Some("nobody")), side("b", &b, Some("direct")));
    assert!(said.contains("`a` has no variant `nobody`; it has `direct`"), "{said}");
    (b.ladders, b.sweeps, b.reference) = (vec![], vec![], vec![]);
    b.variants.iter_mut().for_each(|variant| variant.name.push('!'));
    let said = error(side("a", &a, None), side("b", &b, None));
    assert!(said.contains("no variant of `a`") && said.contains("`direct!`"), "{said}");
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
