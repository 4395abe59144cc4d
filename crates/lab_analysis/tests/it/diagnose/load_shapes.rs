//! Shapes of a load that look like faults of its target: streams of different lengths, workers in
//! lockstep, and the loads of a sweep.

use lab_analysis::diagnose::findings;
use lab_analysis::record::{
    Arrivals, Component, Distribution, Doubt, Iteration, Outcome, Record, Sample, Slice, StreamKind, Sweep,
};

use super::made_up::{class, component, each, names, variant, with};
use super::streams::streams;

const NONE: [&str; 0] = [];

/// Number of streams that are due, one each 5 ms for 11 s, the first second of which is warm-up.
const DUE: u64 = 2200;
const STREAMS_PER_S: f64 = 200.0;
/// Start and end of the window, ms: it lasts until the last response.
const WINDOW_MS: (u64, u64) = (1_000, 21_000);
const SLICE_MS: u64 = 200;

/// When a stream is due and how long it lasts, ms: two seconds or ten.
fn stream(number: u64) -> (u64, u64) {
    (number * 5, if number.is_multiple_of(2) { 2_000 } else { 10_000 })
}

/// A healthy service under streams of two lengths.
fn streams_of_two_lengths(number: u32) -> Iteration {
    let slice = |at_ms: u64| {
        let mut lengths: Vec<u64> = (0..DUE)
            .map(stream)
            .filter(|(due, length)| (at_ms..at_ms + SLICE_MS).contains(&(due + length)))
            .map(|(_, length)| length)
            .collect();
        lengths.sort_unstable();
        let length = |length: &u64| *length as f64 * 1e3;
        Slice {
            at_ms,
            ms: SLICE_MS,
            ok: lengths.len() as u64,
            bad: 0,
            p50_us: lengths.get(lengths.len() / 2).map(length),
            p99_us: lengths.last().map(length),
            max_us: lengths.last().map(length),
        }
    };
    let measured = || (0..DUE).map(stream).filter(|(due, _)| *due >= WINDOW_MS.0);
    let nanos = || measured().map(|(_, length)| length * 1_000_000);
    Iteration {
        warmup_s: 1.0,
        classes: vec![class(Outcome::Ok, 200, nanos())],
        service: Some(Distribution::of(nanos(), 3)),
        timeline: (WINDOW_MS.0..WINDOW_MS.1).step_by(200).map(slice).collect(),
        streams: Some(streams(StreamKind::Sse, 0)),
        ..Iteration::new(number, 20.0)
    }
}

fn stream_record() -> Record {
    let mut streams = variant("under test", (1..=5).map(streams_of_two_lengths).collect());
    streams.load.rate_per_s = Some(STREAMS_PER_S);
    StreamKind::Sse.unit().clone_into(&mut streams.load.flow);
    super::record(vec![streams])
}

#[test]
fn streams_of_different_lengths_saturate_nothing() {
    assert_eq!(names(&stream_record()), NONE);
    let mut unsent = stream_record();
    each(&mut unsent, |iteration| iteration.unsent = 100);
    assert_eq!(names(&unsent), ["requests-unsent"], "a twentieth");
    each(&mut unsent, |iteration| iteration.unsent = 500);
    assert_eq!(names(&unsent), ["saturated", "requests-unsent"]);
    let evidence = &findings(&unsent)[0].evidence;
    assert_eq!(evidence, "200 streams/s were offered, 20.00 % of them were never sent");
    let mut waiting = stream_record();
    each(&mut waiting, |iteration| {
        let late = (0..2000).map(|at: u64| 12_000_000_000 + at);
        iteration.classes = vec![class(Outcome::Ok, 200, late)];
    });
    assert_eq!(names(&waiting), ["saturated"], "they wait longer than they last");
    let evidence = &findings(&waiting)[0].evidence;
    assert_eq!(evidence, "200 streams/s were offered, the usual one waited 10.0 s before it was sent");
}

#[test]
fn calls_of_streams_that_have_not_ended_are_no_cold_cache() {
    let mut record = stream_record();
    // Two calls when a stream starts.
    let samples = (0..=210).map(|tenth: u64| Sample {
        at_ms: tenth * 100,
        rss_bytes: 50 << 20,
        calls_received: Some(tenth.min(110) * 40),
        ..Sample::default()
    });
    let idp = Component { samples: samples.collect(), ..component("idp", |_, _| ()) };
    each(&mut record, |iteration| iteration.components = vec![idp.clone()]);
    assert_eq!(names(&record), NONE);
}

#[test]
fn pauses_between_streams_are_no_pauses_of_a_program() {
    let mut record = stream_record();
    each(&mut record, |iteration| iteration.timeline[40..45].iter_mut().for_each(|slice| slice.ok = 0));
    assert_eq!(names(&record), NONE);
}

/// 50 workers whose requests all end at these tenths of a second, after these seconds.
fn lockstep(ends: &[(u64, u64)]) -> Record {
    let mut record = with(&[]);
    let load = &mut record.variants[0].load;
    load.arrivals = Arrivals::Closed;
    (load.rate_per_s, load.concurrency) = (None, Some(50));
    each(&mut record, |iteration| {
        let slice = |tenth: u64| {
            let seconds = ends.iter().find(|(end, _)| *end == tenth).map(|(_, seconds)| *seconds);
            let us = seconds.map(|seconds| seconds as f64 * 1e6);
            Slice {
                at_ms: tenth * 100,
                ms: 100,
                ok: if seconds.is_some() { 50 } else { 0 },
                bad: 0,
                p50_us: us,
                p99_us: us,
                max_us: us,
            }
        };
        iteration.timeline = (0..100).map(slice).collect();
        let nanos = ends.iter().flat_map(|(_, seconds)| std::iter::repeat_n(seconds * 1_000_000_000, 50));
        iteration.classes = vec![class(Outcome::Ok, 200, nanos)];
    });
    record
}

#[test]
fn workers_in_lockstep_do_not_pause() {
    let healthy: Vec<(u64, u64)> = (0..10).map(|second| (second * 10 + 9, 1)).collect();
    assert_eq!(names(&lockstep(&healthy)), ["closed-loop"]);
    // Nobody is answered for three seconds instead of one.
    let stalled = [(9, 1), (19, 1), (29, 1), (59, 3), (69, 1), (79, 1), (89, 1), (99, 1)];
    let found = findings(&lockstep(&stalled));
    assert_eq!(names(&lockstep(&stalled)), ["closed-loop", "pauses"]);
    assert!(found[1].evidence.starts_with("one pause in iteration 5 is 2.90 s in all"), "{found:?}");
    // Where it is not known how requests arrive, they may be workers in lockstep.
    let mut unknown = lockstep(&healthy);
    unknown.variants[0].load.arrivals = Arrivals::Unknown;
    assert_eq!(names(&unknown), NONE);
}

/// Variants of a closed loop with these workers, responses per second and seconds per response.
fn sweep(loads: &[(u32, u64, u64)]) -> Record {
    let at = |&(workers, per_s, seconds): &(u32, u64, u64)| {
        let iteration = |number| {
            let nanos = std::iter::repeat_n(seconds * 1_000_000_000, (per_s * 10) as usize);
            Iteration { classes: vec![class(Outcome::Ok, 200, nanos)], ..Iteration::new(number, 10.0) }
        };
        let mut variant = variant(&format!("{workers} workers"), (1..=5).map(iteration).collect());
        variant.load.arrivals = Arrivals::Closed;
        (variant.load.rate_per_s, variant.load.concurrency) = (None, Some(workers));
        variant
    };
    let mut variants: Vec<_> = loads.iter().map(at).collect();
    let names = variants.iter().map(|variant| variant.name.clone()).collect();
    variants.push(variant("beside", with(&[]).variants[0].iterations.clone()));
    let mut record = super::record(variants);
    record.sweeps = vec![Sweep { name: "growing".to_owned(), variants: names }];
    record
}

#[test]
fn a_sweep_beyond_its_knee_concerns_its_variants() {
    let full = findings(&sweep(&[(50, 50, 1), (100, 50, 2), (200, 50, 4)]));
    let saturated: Vec<_> = full.iter().filter(|finding| finding.name == "saturated").collect();
    assert_eq!(saturated.len(), 1, "{full:?}");
    assert_eq!(saturated[0].doubt, Doubt::Invalid);
    assert_eq!(saturated[0].variants, ["50 workers", "100 workers", "200 workers"]);
    assert!(saturated[0].evidence.starts_with("from the first load of `growing` on"), "{full:?}");
    let bent = names(&sweep(&[(50, 50, 1), (100, 100, 1), (200, 100, 2), (400, 100, 4)]));
    assert!(!bent.contains(&"saturated".to_owned()), "its lower loads are below the knee: {bent:?}");
}
