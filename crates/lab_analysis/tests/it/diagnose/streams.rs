//! Findings about streams: each in a record that shows it, and not if a part of the evidence is
//! missing.

use lab_analysis::diagnose::findings;
use lab_analysis::record::{Component, Distribution, Finding, Record, Stall, StreamKind, Streams};

use super::made_up::{component, each, names, with};

const NONE: [&str; 0] = [];

/// Streams of which `stalled` stalled at once from 4.0 s to 4.8 s.
pub(super) fn streams(kind: StreamKind, stalled: u64) -> Streams {
    let times = |micros: u64, count: u64| Distribution::of((0..count).map(|at| micros * 1000 + at), 3);
    Streams {
        kind,
        stall_us: 200_000.0,
        opened: 100,
        completed: 100,
        cut: 0,
        error_status: 0,
        together: 0,
        events: 5_000,
        bytes: 100_000,
        head: times(1_000, 100),
        first_event: times(50_000, 100),
        last_event: times(540_000, 100),
        gap: times(10_000, 4_900),
        round_trip: None,
        idle_at_close: None,
        stalls: stalled,
        stalled: (0..stalled).map(|at| Stall { at_ms: 4_000 + at, ms: 800 }).collect(),
    }
}

/// A program that uses `cores` of a core, and `paused` of one from 4.0 s to 4.8 s.
fn program(name: &str, cores: f64, paused: f64) -> Component {
    component(name, move |tenth, sample| {
        let inside = tenth.clamp(40, 48) - 40;
        let seconds = |tenths: u64| tenths as f64 / 10.0;
        sample.cpu_us = Some((1e6 * (seconds(tenth - inside) * cores + seconds(inside) * paused)) as u64);
    })
}

fn record(streams: &Streams, programs: &[Component]) -> Record {
    let mut record = with(programs);
    record.variants[0].path = programs.iter().map(|program| program.name.clone()).collect();
    each(&mut record, |iteration| {
        iteration.streams = Some(streams.clone());
        iteration.mean_in_flight = Some(20.0);
        // Whatever else follows from the figures of streams is tested with real loads.
        iteration.classes.clear();
        iteration.timeline.clear();
    });
    record
}

fn only(record: &Record) -> Finding {
    let found = findings(record);
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

#[test]
fn a_pause_of_a_component_is_found_where_it_begins() {
    let stalled = streams(StreamKind::Sse, 20);
    let (gateway, model) = (program("gateway", 0.05, 0.0), program("model", 0.02, 0.02));
    let found = only(&record(&stalled, &[gateway.clone(), model.clone()]));
    assert_eq!(found.name, "stream-stalls");
    assert!(found.evidence.contains("`gateway` used 0.000"), "{found:?}");
    assert!(found.evidence.contains("while `model` went on"), "{found:?}");
    // Whoever waits for the service rests too.
    let paused = program("model", 0.02, 0.0);
    let found = only(&record(&stalled, &[gateway.clone(), paused]));
    assert!(found.evidence.contains("in them `model` used"), "{found:?}");
    // A program that collects garbage works.
    let collecting = program("gateway", 0.05, 0.9);
    let found = only(&record(&stalled, &[collecting, model.clone()]));
    assert!(found.evidence.contains("`gateway` used 0.8") && found.evidence.contains("worked"), "{found:?}");
    // All go on, few streams stall, or nobody was observed.
    let working = program("gateway", 0.05, 0.05);
    assert_eq!(names(&record(&stalled, &[working, model.clone()])), NONE);
    assert_eq!(names(&record(&streams(StreamKind::Sse, 5), &[gateway.clone(), model.clone()])), NONE);
    assert_eq!(names(&record(&stalled, &[])), NONE);
    // A machine that stood still took no samples meanwhile.
    let mut still = record(&stalled, &[gateway, program("model", 0.02, 0.0)]);
    each(&mut still, |iteration| {
        for component in &mut iteration.components {
            component.samples.retain(|sample| !(4_000..4_800).contains(&sample.at_ms));
        }
    });
    assert_eq!(names(&still), NONE);
}

/// 1200 streams in flight, and a list of a sample of their stalls.
#[test]
fn of_a_sample_of_the_stalls_as_large_a_share_has_to_overlap() {
    let sampled = |counted: u64, apart: &dyn Fn(u64) -> u64| {
        let stalled = (0..300).map(|at| Stall { at_ms: apart(at), ms: 800 }).collect();
        let seen = Streams { stalls: counted, stalled, ..streams(StreamKind::Sse, 0) };
        let mut record = record(&seen, &[program("gateway", 0.05, 0.0), program("model", 0.02, 0.02)]);
        each(&mut record, |iteration| iteration.mean_in_flight = Some(1200.0));
        record
    };
    let at_once = |at: u64| 4_000 + at / 10;
    let found = only(&sampled(1_200, &at_once));
    assert_eq!(found.name, "stream-stalls");
    assert!(found.evidence.starts_with("at least one stall in iteration"), "{found:?}");
    assert_eq!(names(&sampled(300, &at_once)), NONE, "a quarter of the streams");
    assert_eq!(names(&sampled(4_800, &|at| at * 30)), NONE, "a third of them at a time");
}

#[test]
fn held_events_need_a_path_without_them() {
    let late = Streams {
        together: 98,
        first_event: Distribution::of((0..100).map(|at| 530_000_000 + at), 3),
        ..streams(StreamKind::Sse, 0)
    };
    let mut both = record(&late, &[program("gateway", 0.05, 0.05), program("model", 0.02, 0.02)]);
    assert_eq!(names(&both), NONE, "a model may send everything at its end");
    let mut direct = record(&streams(StreamKind::Sse, 0), &[program("model", 0.02, 0.02)]);
    direct.variants[0].name = "alone".to_owned();
    both.variants.push(direct.variants[0].clone());
    let found = only(&both);
    assert_eq!((found.name.as_str(), &*found.variants), ("buffered-stream", &["under test".to_owned()][..]));
    assert!(found.evidence.starts_with("490 of 500 streams"), "{found:?}");
    assert!(found.remedy.starts_with("`gateway` holds"), "{found:?}");
    both.variants[1].load.rate_per_s = Some(1.0);
    assert_eq!(names(&both), NONE, "another load");
}

#[test]
fn an_idle_timeout_is_always_the_same() {
    let closed = |silences: &[u64], cut| Streams {
        completed: 0,
        cut,
        idle_at_close: Some(Distribution::of(silences.iter().map(|ms| ms * 1_000_000), 3)),
        ..streams(StreamKind::Websocket, 0)
    };
    let found = only(&record(&closed(&[2000, 2001, 2003], 3), &[]));
    assert_eq!(found.name, "websocket-idle-timeout");
    assert!(found.evidence.contains("15 of 500 WebSockets, 15 of them after 2.00 s"), "{found:?}");
    // They may have been two seconds old as well.
    assert!(found.remedy.contains("idle for that long"), "{found:?}");
    assert!(found.remedy.contains("maximum age"), "{found:?}");
    assert_eq!(names(&record(&closed(&[2000, 900, 4000], 3), &[])), NONE);
    assert_eq!(names(&record(&closed(&[2000, 2001, 2003], 9), &[])), NONE, "others had longer silences");
    assert_eq!(names(&record(&closed(&[3, 3, 3], 3), &[])), NONE, "no silence");
}
