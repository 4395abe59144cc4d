//! Streams: report section about the times of streams and WebSockets, and what each hop adds to
//! them.

use super::costs::rungs;
use crate::formatting;
use crate::offline::render::svg::{Bar, Unit};
use crate::offline::render::{Chart, Section, Table};
use crate::record::{Ladder, Record, StreamKind, Streams, Variant};
use crate::statistics::{Attribution, Figure, StreamFigure, attribute, display, figures, interval, median};

/// A column: its title, and the figure in it.
type Column = (&'static str, StreamFigure);

const STREAM_COLUMNS: [Column; 6] = [
    ("first byte, P50", StreamFigure::FirstByte(50_000)),
    ("first event, P50", StreamFigure::FirstEvent(50_000)),
    ("first event, P99", StreamFigure::FirstEvent(99_000)),
    ("per event, mean", StreamFigure::MeanEventGap),
    ("per event, P99", StreamFigure::EventGap(99_000)),
    ("stalls", StreamFigure::Stalls),
];
const WEBSOCKET_COLUMNS: [Column; 6] = [
    ("open, P50", StreamFigure::FirstByte(50_000)),
    ("open, P99", StreamFigure::FirstByte(99_000)),
    ("round trip, P50", StreamFigure::RoundTrip(50_000)),
    ("round trip, P99", StreamFigure::RoundTrip(99_000)),
    ("per pushed message, P99", StreamFigure::EventGap(99_000)),
    ("stalls", StreamFigure::Stalls),
];
/// What a hop can add to, of streams and of WebSockets; the first one has a picture.
const STREAM_COSTS: [Column; 3] = [
    ("to the first event, P50", StreamFigure::FirstEvent(50_000)),
    ("to the first event, P99", StreamFigure::FirstEvent(99_000)),
    ("per event, mean", StreamFigure::MeanEventGap),
];
const WEBSOCKET_COSTS: [Column; 3] = [
    ("to open, P50", StreamFigure::FirstByte(50_000)),
    ("per round trip, P50", StreamFigure::RoundTrip(50_000)),
    ("per round trip, P99", StreamFigure::RoundTrip(99_000)),
];

/// Section with a table of streams, one of WebSockets, and a table per ladder.
pub(super) fn streams(record: &Record) -> Section {
    let mut section = Section::new("Streams and WebSockets");
    let mut of_streams = table("Streams, medians over iterations", "kind", STREAM_COLUMNS, ["events", "cut"]);
    let mut of_sockets = table(
        "WebSockets, medians over iterations",
        "open at once",
        WEBSOCKET_COLUMNS,
        ["opened", "closed by the peer"],
    );
    for variant in &record.variants {
        let seen = seen(variant);
        let Some(first) = seen.first() else { continue };
        let sum = |of: fn(&Streams) -> u64| formatting::count(seen.iter().map(|streams| of(streams)).sum());
        let cut = format!("{} of {}", sum(|streams| streams.cut + streams.error_status), sum(|s| s.opened));
        if first.kind == StreamKind::Websocket {
            let held: Vec<f64> =
                variant.iterations.iter().filter_map(|iteration| iteration.mean_in_flight).collect();
            let held = if held.is_empty() { "–".to_owned() } else { formatting::digits(median(&held)) };
            row(&mut of_sockets, variant, held, WEBSOCKET_COLUMNS, [sum(|streams| streams.opened), cut]);
        } else {
            let kind = kind(variant, first);
            row(&mut of_streams, variant, kind, STREAM_COLUMNS, [sum(|streams| streams.events), cut]);
        }
    }
    section.table(of_streams);
    section.table(of_sockets);
    for ladder in &record.ladders {
        costs(&mut section, record, ladder);
    }
    section
}

fn seen(variant: &Variant) -> Vec<&Streams> {
    variant.iterations.iter().filter_map(|iteration| iteration.streams.as_ref()).collect()
}

fn kind(variant: &Variant, streams: &Streams) -> String {
    let protocol = variant.load.protocol.as_deref().map_or_else(String::new, |wire| format!(", {wire}"));
    format!("{}{protocol}", streams.kind.name())
}

fn table(caption: &str, second: &'static str, columns: [Column; 6], last: [&'static str; 2]) -> Table {
    let [one, two, three, four, five, six] = columns.map(|(title, _)| title);
    Table::new(caption, ["variant", second, one, two, three, four, five, six, last[0], last[1]])
}

fn row(table: &mut Table, variant: &Variant, second: String, columns: [Column; 6], last: [String; 2]) {
    let cells = columns.map(|(_, figure)| cell(variant, &Figure::Stream(figure)));
    table.row([variant.name.clone(), second].into_iter().chain(cells).chain(last).collect());
}

/// A median over iterations, with the interval of the true median below.
fn cell(variant: &Variant, figure: &Figure) -> String {
    let values = figures(variant, figure);
    if values.is_empty() {
        return "–".to_owned();
    }
    let shown = display::figure(figure, median(&values));
    interval(&values)
        .map_or_else(|| shown.clone(), |of| format!("{shown}\n{}", display::interval(figure, &of)))
}

/// Table and picture of what each hop of a ladder adds; nothing if its variants have no streams.
fn costs(section: &mut Section, record: &Record, ladder: &Ladder) {
    let variant = ladder.rungs.first().and_then(|rung| record.variant(&rung.variant));
    let Some(kind) = variant.and_then(Variant::stream_kind) else { return };
    let columns = if kind == StreamKind::Websocket { WEBSOCKET_COSTS } else { STREAM_COSTS };
    let all = columns.map(|(title, figure)| {
        let figure = Figure::Stream(figure);
        Some((title, attribute(&rungs(record, ladder, &figure))?, figure))
    });
    let [Some(first), Some(second), Some(third)] = all else { return };
    let all: [(&str, Attribution, Figure); 3] = [first, second, third];
    let (title, first, figure) = &all[0];
    let caption = format!("{}: what each hop adds, over {} rounds", ladder.name, first.rounds);
    let mut table = Table::new(&caption, ["hop", all[0].0, all[1].0, all[2].0]);
    for (number, share) in first.shares.iter().enumerate() {
        let cells = all.iter().map(|(_, of, figure)| hop_cell(of, figure, number));
        table.row(std::iter::once(share.hop.clone()).chain(cells).collect());
    }
    let together = all.iter().map(|(_, of, figure)| {
        of.added.map_or_else(
            || "too few rounds".to_owned(),
            |added| {
                let point = display::difference(figure, added.point);
                format!("{point}\n{}", display::interval(figure, &added))
            },
        )
    });
    table.row(std::iter::once("all added hops".to_owned()).chain(together).collect());
    section.table(table);
    section.chart(Chart::bars(
        format!("{}: {title}, hop by hop", ladder.name),
        bars(first, figure),
        Unit::Time,
    ));
}

/// What a hop adds to a figure, its interval, and whether that is certain.
fn hop_cell(of: &Attribution, figure: &Figure, number: usize) -> String {
    let share = &of.shares[number];
    let adds = if number == 0 {
        display::figure(figure, share.adds)
    } else {
        display::difference(figure, share.adds)
    };
    match share.interval {
        None => format!("{adds}\ntoo few rounds"),
        Some(of) if number == 0 || share.certain => format!("{adds}\n{}", display::interval(figure, &of)),
        Some(of) => format!("{adds}\n{}, may be 0", display::interval(figure, &of)),
    }
}

fn bars(of: &Attribution, figure: &Figure) -> Vec<Bar> {
    let mut from = 0.0;
    let bar = |(colour, share): (usize, &crate::statistics::HopCost)| {
        let text = if colour == 0 {
            display::figure(figure, share.adds)
        } else {
            display::difference(figure, share.adds)
        };
        let bar = Bar {
            name: share.hop.clone(),
            from,
            length: share.adds,
            interval: share.interval.map(|of| (of.low, of.high)),
            colour,
            text,
        };
        from += share.adds;
        bar
    };
    of.shares.iter().enumerate().map(bar).collect()
}
