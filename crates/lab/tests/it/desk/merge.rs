//! Several generators' records become one.

use lab::analyse::Figure;
use lab::desk::merge::merge;
use lab::record::{Distribution, Origin, Outcome, Record};

use super::sample;

fn two(change: impl FnOnce(&mut Record)) -> Vec<(String, Record)> {
    let mut second = sample::record(2);
    change(&mut second);
    vec![("first.json".to_owned(), sample::record(1)), ("second.json".to_owned(), second)]
}

#[test]
fn counts_histograms_and_rates_add_up() {
    let merged = merge(two(|_| ())).unwrap();
    let parts = [sample::record(1), sample::record(2)];
    for (at, variant) in merged.variants.iter().enumerate() {
        for (number, iteration) in variant.iterations.iter().enumerate() {
            let part = |record: usize| &parts[record].variants[at].iterations[number];
            let mut all: Distribution = part(0).latency(Outcome::Ok).unwrap();
            all.add(&part(1).latency(Outcome::Ok).unwrap());
            assert_eq!(iteration.latency(Outcome::Ok).unwrap(), all);
            assert_eq!(
                iteration.count(Outcome::Refused),
                part(0).count(Outcome::Refused) + part(1).count(Outcome::Refused)
            );
            let rates: f64 = [0, 1].iter().map(|record| Figure::PerSecond.of(part(*record)).unwrap()).sum();
            assert!(
                (Figure::PerSecond.of(iteration).unwrap() / rates - 1.0).abs() < 0.01,
                "{}",
                variant.name
            );
            let ok = |iteration: &lab::record::Iteration| {
                iteration.timeline.iter().map(|slice| slice.ok).sum::<u64>()
            };
            assert_eq!(ok(iteration), ok(part(0)) + ok(part(1)));
            assert!(iteration.timeline.iter().all(|slice| slice.p99_us.is_none() && slice.max_us.is_some()));
        }
    }
    assert_eq!(merged.run.origin, Origin::Lab { version: "0.1.0".to_owned(), generators: 2 });
    assert_eq!(merged.variants[0].load.rate_per_s, Some(1800.0));
    let staleness = &merged.variants[3].iterations[0].staleness;
    assert_eq!(staleness.iter().map(|seen| seen.delay.count()).collect::<Vec<_>>(), [400, 400, 400]);
    merged.check().unwrap();
}

#[test]
fn time_axes_are_put_onto_one() {
    let merged = merge(two(|second| second.run.started_unix_s = Some(1_760_000_000.5))).unwrap();
    let iteration = &merged.variants[0].iterations[0];
    assert_eq!(iteration.timeline.first().unwrap().at_ms, 0);
    assert_eq!(iteration.timeline.len(), 15, "the second generator started half a second later");
    let first = &sample::record(1).variants[0].iterations[0].timeline[0];
    assert_eq!(iteration.timeline[0].ok, first.ok, "the first second has the first generator alone");
    assert!((iteration.warmup_s - 2.5).abs() < 1e-9, "both are warm when the later one is");
    assert_eq!(merged.run.started_unix_s, Some(1_760_000_000.0));
}

#[test]
fn order_does_not_matter_for_what_was_counted() {
    let forth = merge(two(|_| ())).unwrap();
    let mut back = two(|_| ());
    back.reverse();
    let back = merge(back).unwrap();
    for (a, b) in forth.variants.iter().zip(&back.variants) {
        for (a, b) in a.iterations.iter().zip(&b.iterations) {
            assert_eq!(a.latency(Outcome::Ok), b.latency(Outcome::Ok));
            assert_eq!(a.timeline, b.timeline);
        }
    }
}

#[test]
fn a_generator_that_was_the_limit_stays_known() {
    let merged = merge(two(|second| {
        let own = second.variants[0].iterations[2].generator.as_mut().unwrap();
        (own.limited, own.cpu_share) = (true, Some(0.99));
    }))
    .unwrap();
    let own = merged.variants[0].iterations[2].generator.as_ref().unwrap();
    assert!(own.limited && own.cpu_share == Some(0.99));
}

#[test]
fn records_of_different_runs_are_refused() {
    type Change = fn(&mut Record);
    let cases: [(Change, &str); 6] = [
        (|second| second.run.commit = Some("other".to_owned()), "its commit is Some(\"other\")"),
        (|second| second.run.configuration = None, "its configuration is None"),
        (|second| second.variants[0].name = "other".to_owned(), "its variants are"),
        (|second| drop(second.variants[0].iterations.pop()), "iterations of `direct` are"),
        (|second| second.run.started_unix_s = Some(1_760_000_006.0), "overlap by"),
        (|second| second.run.started_unix_s = None, "nobody says when it ran"),
    ];
    for (change, why) in cases {
        let said = merge(two(change)).unwrap_err().to_string();
        assert!(said.contains(why) && said.contains("second.json"), "{said} is not about {why}");
    }
    assert!(merge(two(|_| ()).split_off(1)).unwrap_err().to_string().contains("at least two"));
}
