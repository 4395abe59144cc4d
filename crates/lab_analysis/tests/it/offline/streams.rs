//! Streams in records: their figures, their section of a report, and merging.

use lab_analysis::offline::merge::merge;
use lab_analysis::offline::report::{data, sheet};
use lab_analysis::offline::targets::{TargetVerdict, judge};
use lab_analysis::record::{Distribution, Measure, Record, Stall, StreamKind, Streams, Target, Variant};
use lab_analysis::statistics::{ComparedTo, values_by_round};
use lab_analysis::test_support::sample;

const MS: u64 = 1_000_000;

/// Ten streams of eleven events whose first comes after `first` µs, and the others every 10 ms.
fn streams(kind: StreamKind, first: u64) -> Streams {
    let of = |micros: u64, count: u64| Distribution::of((0..count).map(|at| micros * 1000 + at), 4);
    let socket = kind == StreamKind::Websocket;
    Streams {
        kind,
        stall_us: 200_000.0,
        opened: 10,
        completed: 9,
        cut: 1,
        error_status: 0,
        together: 0,
        events: 110,
        bytes: 4_400,
        head: of(first / 2, 10),
        first_event: of(first, 10),
        last_event: of(first + 100_000, 9),
        gap: of(10_000, 100),
        round_trip: socket.then(|| of(first / 10, 50)),
        idle_at_close: socket.then(|| of(2_000_000, 1)),
        stalls: 1,
        stalled: vec![Stall { at_ms: 3_000, ms: 400 }],
    }
}

/// The ladder of the sample with streams: the service has its first event after 50 ms, and each hop
/// adds a millisecond.
fn record(kind: StreamKind) -> Record {
    let mut record = sample::record(1);
    let names: Vec<String> = record.ladders[0].rungs.iter().map(|rung| rung.variant.clone()).collect();
    let rung = |variant: &Variant| names.iter().position(|name| *name == variant.name);
    for variant in &mut record.variants {
        let Some(place) = rung(variant) else { continue };
        kind.unit().clone_into(&mut variant.load.flow);
        for iteration in &mut variant.iterations {
            let drift = u64::from(iteration.number % 3) * 100;
            iteration.streams = Some(streams(kind, 50_000 + place as u64 * 1_000 + drift));
        }
    }
    record
}

#[test]
fn the_report_says_what_each_hop_adds_to_streams() {
    let text = sheet(&record(StreamKind::Sse)).markdown();
    assert!(text.contains("Streams and WebSockets"), "{text}");
    let section = text.split("Streams, medians over iterations").nth(1).unwrap();
    let row = section.lines().find(|line| line.starts_with("| gateway")).unwrap();
    for cell in ["SSE, http/1.1", "51.1 ms", "10.0 ms", "8 of 80", "880"] {
        assert!(row.contains(cell), "{cell}: {row}");
    }
    let hops = section.split("what each hop adds").nth(1).unwrap();
    let row = hops.lines().find(|line| line.starts_with("| authentication")).unwrap();
    let adds = row.split('|').nth(2).unwrap();
    assert!(adds.contains("+1.00 ms") || adds.contains("+99"), "{row}");
    assert!(!row.split('|').nth(2).unwrap().contains("may be 0"), "{row}");
    let socket = sheet(&record(StreamKind::Websocket)).markdown();
    assert!(socket.contains("WebSockets, medians over iterations"), "{socket}");
    assert!(!socket.contains("Streams, medians over iterations"), "{socket}");
    assert!(!sheet(&sample::record(1)).markdown().contains("Streams and WebSockets"));
}

#[test]
fn the_verdict_is_about_the_time_that_a_stream_is_waited_for() {
    let text = sheet(&record(StreamKind::Sse)).markdown();
    let verdict = text.split("\n## ").find(|part| part.starts_with("Verdict")).unwrap();
    let waits = "P50 of the time to the first event at 900/s: `direct` 50.";
    assert!(verdict.contains(waits), "{verdict}");
    let hops = "Hop by hop, over 8 rounds, the P50 of the time to the first event of service is 50.";
    assert!(verdict.contains(hops) && verdict.contains("gateway adds 1.00 ms"), "{verdict}");
    assert!(verdict.contains("The time to the first event, by variant"), "{verdict}");
    // How long a whole stream takes is decided by the service.
    assert!(!text.contains("\n## Cost per hop"), "{text}");
    let sockets = sheet(&record(StreamKind::Websocket)).markdown();
    assert!(sockets.contains("P50 of the time to open a WebSocket at 900/s: `direct` 25."), "{sockets}");
}

#[test]
fn figures_of_streams_are_values_for_targets_and_files() {
    let record = record(StreamKind::Websocket);
    let added =
        values_by_round(&record, &Measure::FirstEventP50, "fused/authn", ComparedTo::Minus("gateway"));
    assert!(added.unwrap().iter().all(|us| (us - 1_000.0).abs() < 60.0));
    for (measure, wanted) in [
        (Measure::FirstByteP99, 25_050.0),
        (Measure::EventGapMean, 10_000.0),
        (Measure::RoundTripP50, 5_010.0),
        (Measure::Stalls, 1.0),
        (Measure::StreamsCut, 0.1),
    ] {
        let value = values_by_round(&record, &measure, "direct", ComparedTo::Nothing).unwrap()[0];
        assert!((value / wanted - 1.0).abs() < 0.005, "{measure}: {value}");
    }
    let csv = data(&record).into_iter().find(|file| file.name == "report.figures.csv").unwrap();
    assert!(csv.content.contains("direct,1,,first event P50,50"), "{}", &csv.content[..2000]);
    let mut judged = record;
    judged.targets = vec![Target {
        says: "no stream is cut".to_owned(),
        figure: Measure::StreamsCut,
        of: "direct".to_owned(),
        minus: None,
        over: None,
        at_most: Some(0.0),
        at_least: None,
        surely: false,
    }];
    assert_eq!(judge(&judged)[0].verdict, TargetVerdict::Missed);
}

#[test]
fn streams_of_several_generators_add_up() {
    let mut second = record(StreamKind::Sse);
    second.run.started_unix_s = second.run.started_unix_s.map(|start| start + 0.5);
    let records = vec![("a".to_owned(), record(StreamKind::Sse)), ("b".to_owned(), second)];
    let merged = merge(records).unwrap();
    let streams = merged.variants[0].iterations[0].streams.as_ref().unwrap();
    assert_eq!((streams.opened, streams.cut, streams.events, streams.stalls), (20, 2, 220, 2));
    assert_eq!((streams.gap.count(), streams.first_event.count()), (200, 20));
    let at: Vec<u64> = streams.stalled.iter().map(|stall| stall.at_ms).collect();
    assert_eq!(at, [3_000, 3_500], "the second generator started half a second later");
    merged.check().unwrap();
}

#[test]
fn impossible_streams_are_refused() {
    let refuse = |change: fn(&mut Streams)| {
        let mut record = record(StreamKind::Sse);
        change(record.variants[0].iterations[0].streams.as_mut().unwrap());
        record.check().unwrap_err().to_string()
    };
    assert!(refuse(|streams| streams.completed = 11).contains("more streams ended"));
    assert!(refuse(|streams| streams.stalls = 0).contains("more stalls are listed"));
    assert!(refuse(|streams| streams.events = 5).contains("first event"));
    assert!(refuse(|streams| streams.stall_us = f64::NAN).contains("threshold"));
    let text = record(StreamKind::Grpc).to_json().unwrap();
    assert_eq!(Record::parse(text.as_bytes(), "x").unwrap(), record(StreamKind::Grpc));
    assert!(Distribution::of([MS], 3).count() == 1);
}
