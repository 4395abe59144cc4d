//! Arbitrary records: any valid record can be diagnosed, no rule divides by zero, and no finding is
//! reported twice.

use lab_analysis::diagnose::findings;
use lab_analysis::record::{Component, Iteration, Outcome, Sample, Slice};
use proptest::prelude::*;

use super::made_up::{class, component, variant};

/// An iteration with arbitrary values that a record may have.
fn any_iteration(number: u32) -> impl Strategy<Value = Iteration> {
    let slices = prop::collection::vec((0_u64..50, 0_u64..9, 1_u64..600), 0..40);
    let looks =
        prop::collection::vec((0_u64..300, 0_u64..400, 0_u64..90, prop::option::of(0_u64..200)), 0..40);
    let classes = prop::collection::vec(
        (prop::sample::select(vec![200_u16, 401, 403, 429, 503]), 0_u64..40, 1_u64..9),
        0..4,
    );
    (slices, looks, classes, 0.001_f64..8.0, 0.0_f64..2.0).prop_map(
        move |(slices, looks, classes, seconds, warmup)| {
            let mut at_ms = 0;
            let timeline = slices.into_iter().map(|(ok, bad, ms)| {
                let slice = Slice {
                    at_ms,
                    ms,
                    ok,
                    bad,
                    p50_us: (ok > 0).then_some(ok as f64),
                    p99_us: None,
                    max_us: None,
                };
                at_ms += ms;
                slice
            });
            let timeline = timeline.collect();
            let mut sum = Sample::default();
            let samples = looks.into_iter().map(|(ms, cpu, switches, counted)| {
                sum.at_ms += ms;
                sum.user_ms += cpu;
                sum.voluntary_switches += switches;
                sum.rss_bytes = cpu << 18;
                for counter in [
                    &mut sum.calls_received,
                    &mut sum.connections_opened,
                    &mut sum.periods,
                    &mut sum.throttled_periods,
                ] {
                    *counter = Some(counter.unwrap_or(0) + counted.unwrap_or(0));
                }
                sum.throttled_ms = sum.throttled_periods;
                sum.clone()
            });
            let samples = samples.collect();
            let mut same = std::collections::BTreeSet::new();
            let classes =
                classes.into_iter().filter(|(status, ..)| same.insert(*status)).map(|(status, count, ms)| {
                    let outcome = if status < 400 { Outcome::Ok } else { Outcome::Refused };
                    class(outcome, status, (0..count).map(move |at| ms * 100_000_000 + at))
                });
            Iteration {
                warmup_s: warmup,
                classes: classes.collect(),
                timeline,
                components: vec![Component {
                    samples,
                    cpu_limit_cores: Some(0.1),
                    ..component("idp-1", |_, _| ())
                }],
                mean_in_flight: Some(seconds),
                ..Iteration::new(number, seconds)
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whatever_was_measured_can_be_judged(one in any_iteration(1), two in any_iteration(2), three in any_iteration(3), four in any_iteration(4)) {
        let mut record = super::record(vec![variant("direct", vec![one.clone()]), variant("x", vec![one, two, three, four])]);
        record.variants[1].load.protocol = Some("h2".to_owned());
        record.run.machines[0].cores = 2;
        prop_assert_eq!(record.check(), Ok(()));
        let found = findings(&record);
        for finding in &found {
            for text in ["NaN", "inf ", "inf,", "−"] {
                prop_assert!(!finding.evidence.contains(text), "{finding:?}");
            }
        }
        record.findings.clone_from(&found);
        prop_assert_eq!(findings(&record), found);
    }
}
