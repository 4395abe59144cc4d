//! Merge: the records of several generators become one.

use lab_analysis::offline::merge::merge;
use lab_analysis::record::{Distribution, Doubt, Finding, HeldConnections, Origin, Outcome, Record, Stage};
use lab_analysis::statistics::Figure;
use lab_analysis::test_support::sample;

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
            let rates: f64 =
                [0, 1].iter().map(|record| Figure::PerSecond.value(part(*record)).unwrap()).sum();
            assert!(
                (Figure::PerSecond.value(iteration).unwrap() / rates - 1.0).abs() < 0.01,
                "{}",
                variant.name
            );
            let ok = |iteration: &lab_analysis::record::Iteration| {
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
fn findings_are_those_of_all_generators_together() {
    let of_one = |name: &str, variant: &str| Finding {
        name: name.to_owned(),
        variants: vec![variant.to_owned()],
        doubt: Doubt::Careful,
        evidence: "as one of them saw it".to_owned(),
        remedy: "look".to_owned(),
    };
    let noticed = || {
        vec![
            of_one("throttled", "3x/50m"),
            of_one("not-measured", "direct"),
            of_one("memory-growth", "direct"),
        ]
    };
    let mut records = two(|second| second.findings = noticed());
    records[0].1.findings = noticed();
    let merged = merge(records).unwrap();
    let of = |name: &str| merged.findings.iter().filter(|finding| finding.name == name).collect::<Vec<_>>();
    let throttled = of("throttled");
    assert!(throttled.len() == 1 && throttled[0].evidence.contains("used up its"), "{throttled:?}");
    assert_eq!(of("not-measured").len(), 1, "only who ran it knows of it");
    assert_eq!(of("memory-growth"), Vec::<&Finding>::new(), "nothing shows it");
}

#[test]
fn held_connections_add_up() {
    let held = |opened, longest, before| HeldConnections {
        manner: "idle".to_owned(),
        asked: 100,
        opened,
        open_at_end: 90,
        closed_by_server: opened - 90,
        lifetime_p50_us: Some(5.0),
        lifetime_max_us: Some(longest),
        open_longest_us: Some(2.0 * longest),
        statuses: [(200, opened)].into(),
        memory_before: [("echo".to_owned(), before)].into(),
    };
    let mut records = two(|second| second.variants[0].iterations[0].held = Some(held(110, 7.0, 1 << 20)));
    records[0].1.variants[0].iterations[0].held = Some(held(100, 9.0, 2 << 20));
    records[0].1.variants[0].iterations[1].held = Some(held(100, 9.0, 2 << 20));
    let merged = merge(records).unwrap();
    let all = merged.variants[0].iterations[0].held.as_ref().unwrap();
    assert_eq!((all.asked, all.opened, all.open_at_end, all.closed_by_server), (200, 210, 180, 30));
    assert_eq!(
        (all.lifetime_p50_us, all.lifetime_max_us, all.open_longest_us),
        (None, Some(9.0), Some(18.0))
    );
    assert_eq!((all.statuses[&200], all.memory_before["echo"]), (210, 1 << 20));
    assert_eq!(merged.variants[0].iterations[1].held, Some(held(100, 9.0, 2 << 20)), "of one alone");
}

#[test]
fn stages_of_one_load_add_up_and_others_are_refused() {
    let stage = |from_per_s, to_per_s| Stage { from_per_s, to_per_s, seconds: 6.0 };
    let staged = |stages: Vec<Stage>| {
        let mut records = two(|second| second.variants[0].load.stages = stages);
        records[0].1.variants[0].load.stages = vec![stage(10.0, 10.0), stage(10.0, 90.0)];
        merge(records)
    };
    let merged = staged(vec![stage(5.0, 5.0), stage(5.0, 45.0)]).unwrap();
    assert_eq!(merged.variants[0].load.stages, [stage(15.0, 15.0), stage(15.0, 135.0)]);
    let said = staged(vec![stage(5.0, 5.0)]).unwrap_err().to_string();
    assert!(said.contains("the load of `direct` has other stages"), "{said}");
}

#[test]
fn a_window_within_a_longer_one_is_not_the_same_time() {
    let said = merge(two(|second| second.variants[0].iterations[0].seconds /= 2.0)).unwrap_err().to_string();
    assert!(said.contains("overlap by"), "{said}");
}

#[test]
fn records_of_different_runs_are_refused() {
    type Change = fn(&mut Record);
    let cases: [(Change, &str); 6] = [
        (|second| second.run.commit = Some("other".to_owned()), "its commit is `other`, not `13ef7b1`"),
        (|second| second.run.configuration = None, "its configuration is not known, not `"),
        (|second| second.variants[0].name = "other".to_owned(), "its variants are"),
        (|second| drop(second.variants[0].iterations.pop()), "iterations of `direct` are"),
        (|second| second.run.started_unix_s = Some(1_760_000_006.0), "overlap by"),
        (|second| second.run.started_unix_s = None, "its start time is unknown"),
    ];
    for (change, why) in cases {
        let said = merge(two(change)).unwrap_err().to_string();
        assert!(said.contains(why) && said.contains("second.json"), "{said} is not about {why}");
    }
    assert!(merge(two(|_| ()).split_off(1)).unwrap_err().to_string().contains("at least two"));
}
