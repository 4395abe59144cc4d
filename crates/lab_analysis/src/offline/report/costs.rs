//! Costs: report sections about the cost of hops, the knee, server phases, and the staleness of
//! revocations.

use crate::diagnose::points;
use crate::formatting;
use crate::offline::render::svg::{Bar, COLOURS, Line, Panel, Unit};
use crate::offline::render::{Chart, Section, Table};
use crate::record::{
    Arrivals, BulkRevocation, Distribution, IdentifiedBy, Ladder, Record, Revocations, Variant,
};
use crate::statistics::{
    Attribution, Figure, SweepPoint, Trend, attribute, display, find_knee, staleness_by_scope, trend,
};

/// Bins of the staleness histogram.
const BINS: usize = 40;

/// Section with the cost per hop of every ladder, except those of streams: the service decides how
/// long these take, and their section has what a hop adds to them.
pub(super) fn ladders(record: &Record) -> Section {
    let mut section = Section::new("Cost per hop");
    let has_streams = |name: &str| record.variant(name).and_then(Variant::stream_kind).is_some();
    for ladder in record.ladders.iter().filter(|one| !one.rungs.iter().any(|rung| has_streams(&rung.variant)))
    {
        for figure in [Figure::P50, Figure::P99] {
            let Some(attribution) = attribute(&rungs(record, ladder, &figure)) else { continue };
            hops(&mut section, &ladder.name, &figure, &attribution);
        }
    }
    section
}

/// One figure per round for each rung, for the rounds that every rung has.
pub(super) fn rungs(record: &Record, ladder: &Ladder, figure: &Figure) -> Vec<(String, Vec<f64>)> {
    let variants: Vec<(&str, &Variant)> =
        ladder.rungs.iter().filter_map(|rung| Some((&*rung.adds, record.variant(&rung.variant)?))).collect();
    let value = |variant: &Variant, number: u32| {
        variant
            .iterations
            .iter()
            .find(|iteration| iteration.number == number)
            .and_then(|iteration| figure.value(iteration))
    };
    let Some((_, first)) = variants.first() else { return Vec::new() };
    let rounds: Vec<u32> = first
        .iterations
        .iter()
        .map(|iteration| iteration.number)
        .filter(|number| variants.iter().all(|(_, variant)| value(variant, *number).is_some()))
        .collect();
    let of = |variant: &Variant| rounds.iter().filter_map(|number| value(variant, *number)).collect();
    variants.into_iter().map(|(adds, variant)| (adds.to_owned(), of(variant))).collect()
}

fn hops(section: &mut Section, name: &str, figure: &Figure, attribution: &Attribution) {
    let caption = format!("{name}: what each hop adds to the {figure}, over {} rounds", attribution.rounds);
    let mut table = Table::new(&caption, ["hop", "adds", "between", ""]);
    let mut bars = Vec::new();
    let mut from = 0.0;
    for (number, share) in attribution.shares.iter().enumerate() {
        let adds =
            if number == 0 { formatting::time(share.adds) } else { display::difference(figure, share.adds) };
        let between =
            share.interval.map_or_else(|| "too few rounds".to_owned(), |of| display::interval(figure, &of));
        let certain = match (number, share.interval, share.certain) {
            (0, ..) => "the bare service",
            (_, None, _) => "no statement",
            (_, _, true) => "certain",
            (_, _, false) => "may be 0",
        };
        table.row(vec![share.hop.clone(), adds.clone(), between, certain.to_owned()]);
        bars.push(Bar {
            name: share.hop.clone(),
            from,
            length: share.adds,
            interval: share.interval.map(|of| (of.low, of.high)),
            colour: number,
            text: adds,
        });
        from += share.adds;
    }
    let added =
        attribution.added.map_or_else(|| "too few rounds".to_owned(), |of| display::interval(figure, &of));
    table.row(vec![
        "everything together".to_owned(),
        formatting::time(attribution.whole),
        String::new(),
        String::new(),
    ]);
    let point = attribution.added.map_or_else(|| "–".to_owned(), |of| display::difference(figure, of.point));
    table.row(vec!["all added hops".to_owned(), point, added, String::new()]);
    table.row(vec![
        "not explained by the parts".to_owned(),
        display::difference(figure, attribution.rest),
        String::new(),
        String::new(),
    ]);
    section.table(table);
    section.chart(Chart::bars(format!("{name}: {figure}, hop by hop"), bars, Unit::Time));
}

/// Section with throughput and latency over growing load, and the knee.
pub(super) fn sweeps(record: &Record) -> Section {
    let mut section = Section::new("Growing load");
    for sweep in &record.sweeps {
        let points = points(record, sweep);
        if points.is_empty() {
            continue;
        }
        let knee = find_knee(&points);
        let mut variants = sweep.variants.iter().filter_map(|name| record.variant(name));
        let closed = variants.any(|variant| variant.load.arrivals == Arrivals::Closed);
        let offered = |load: f64| {
            if closed {
                format!("{} workers", formatting::digits(load))
            } else {
                display::figure(&Figure::PerSecond, load)
            }
        };
        let mut table = Table::new(&sweep.name, ["offered load", "throughput", "P50"]);
        for point in &points {
            let rate = display::figure(&Figure::PerSecond, point.per_s);
            table.row(vec![offered(point.offered), rate, formatting::time(point.latency)]);
        }
        section.table(table);
        section.text(match &knee {
            None => without_knee(&points).to_owned(),
            Some(knee) if knee.at_first => {
                format!(
                    "The server is saturated at the first point: its knee is at or below {}.",
                    offered(knee.offered)
                )
            }
            Some(knee) => format!(
                "The knee is at {}: from there on throughput changes by × {:.2} while latency grows × {:.1}.",
                offered(knee.offered),
                knee.per_s_factor,
                knee.latency_factor
            ),
        });
        let mark = knee.map(|knee| (knee.offered, "knee".to_owned()));
        let line = |name: &str, colour, of: fn(&SweepPoint) -> f64| {
            let along = points.iter().map(|point| (point.offered, of(point))).collect();
            vec![Line { dots: true, ..Line::new(name, colour, along) }]
        };
        let panels = vec![
            Panel {
                name: "throughput".to_owned(),
                unit: Unit::Rate,
                height: 130.0,
                lines: line("throughput", 0, |p| p.per_s),
                mark: mark.clone(),
            },
            Panel {
                name: "latency".to_owned(),
                unit: Unit::TimeLog,
                height: 130.0,
                lines: line("P50", 2, |p| p.latency),
                mark,
            },
        ];
        section.chart(Chart::panels(
            format!("{}: throughput and latency over offered load", sweep.name),
            panels,
            Unit::Load,
        ));
    }
    section
}

/// Explains why a sweep shows no knee.
fn without_knee(points: &[SweepPoint]) -> &'static str {
    match trend(points) {
        Trend::Unknown => {
            "The knee is unknown: a point has no throughput, there are fewer than three points, or the load does not grow."
        }
        Trend::Grows => "Throughput grows with the load up to the last point: the knee was not reached.",
        Trend::Capped => {
            "Throughput does not grow up to the last point, and latency does not either: more load is refused or held back, \
             not queued. No knee can be told from latency."
        }
    }
}

/// Section with the phases that the servers report.
pub(super) fn phases(record: &Record) -> Section {
    let mut section = Section::new("Phases, as the servers report");
    let mut table =
        Table::new("`Server-Timing`", ["variant", "component", "phase", "requests", "mean", "P50", "P99"]);
    for variant in &record.variants {
        let mut all: Vec<(&str, &str, Distribution)> = Vec::new();
        for phase in variant.iterations.iter().flat_map(|iteration| &iteration.phases) {
            match all.iter_mut().find(|seen| (seen.0, seen.1) == (&*phase.component, &*phase.name)) {
                Some(seen) => seen.2.add(&phase.duration),
                None => all.push((&phase.component, &phase.name, phase.duration.clone())),
            }
        }
        for (component, name, duration) in all {
            table.row(vec![
                variant.name.clone(),
                component.to_owned(),
                name.to_owned(),
                formatting::count(duration.count()),
                formatting::time(duration.mean() / 1e3),
                formatting::time(duration.micros(0.5)),
                formatting::time(duration.micros(0.99)),
            ]);
        }
    }
    section.table(table);
    section
}

/// Section with the time for which revoked credentials were still accepted, per node and per
/// cluster.
pub(super) fn staleness(record: &Record) -> Section {
    let mut section = Section::new("Staleness: from the revocation to the last accepted request");
    let mut table =
        Table::new("", ["variant", "where", "revocations", "P50", "P99", "longest", "never refused"]);
    for variant in &record.variants {
        for place in staleness_by_scope(variant) {
            table.row(vec![
                variant.name.clone(),
                place.name.clone(),
                formatting::count(place.delay.count() + place.never_refused),
                formatting::staleness(place.micros(0.5)),
                formatting::staleness(place.micros(0.99)),
                formatting::staleness(place.micros(1.0)),
                formatting::count(place.never_refused),
            ]);
        }
    }
    section.table(table);
    section.table(revocations(record));
    section.table(floods(record));
    for variant in &record.variants {
        let shown: Vec<_> = staleness_by_scope(variant)
            .into_iter()
            .filter(|place| !place.delay.is_empty())
            .take(COLOURS)
            .collect();
        let longest = shown.iter().map(|place| place.delay.max()).max().unwrap_or(0);
        if shown.is_empty() {
            continue;
        }
        section.chart(Chart::columns(
            format!("{}: revocations by staleness", variant.name),
            shown.iter().map(|place| place.name.clone()).collect(),
            shown.iter().map(|place| place.delay.bins(BINS, longest)).collect(),
            (longest as f64 / 1e3, Unit::Time),
        ));
    }
    section
}

/// Merges the distributions that are known; `None` when there is none.
fn merged<'d>(all: impl Iterator<Item = Option<&'d Distribution>>) -> Option<Distribution> {
    let all = all.flatten().filter(|one| !one.is_empty()).cloned();
    all.reduce(|mut sum, one| {
        sum.add(&one);
        sum
    })
}

/// Table of bulk revocations; empty without any.
fn floods(record: &Record) -> Table {
    let mut table = Table::new(
        "Bulk revocations",
        [
            "variant",
            "round",
            "revoked",
            "duration",
            "target duration",
            "latency of a list, P50",
            "longest",
            "not revoked",
            "accepted later",
        ],
    );
    for variant in &record.variants {
        for iteration in &variant.iterations {
            let Some(flood) = iteration.revocations.as_ref().and_then(|seen| seen.flood.as_ref()) else {
                continue;
            };
            let why = flood.example.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            table.row(vec![
                variant.name.clone(),
                iteration.number.to_string(),
                match flood.by {
                    IdentifiedBy::Token => formatting::count(flood.revoked),
                    IdentifiedBy::Jti => format!("{} by name", formatting::count(flood.revoked)),
                },
                formatting::time(flood.took_s * 1e6),
                formatting::time(flood.within_s * 1e6),
                formatting::time(flood.answer.micros(0.5)),
                formatting::time(flood.answer.max() as f64 / 1e3),
                format!("{}{why}", formatting::count(flood.failed)),
                accepted_after_bound(flood),
            ]);
        }
    }
    table
}

/// Text: of the credentials that were probed after the bound, how many were still accepted.
fn accepted_after_bound(flood: &BulkRevocation) -> String {
    let all = flood.refused + flood.admitted + flood.unclear;
    match (all, flood.unclear) {
        (0, _) => "not tried".to_owned(),
        (_, 0) => format!("{} of {}", formatting::count(flood.admitted), formatting::count(all)),
        (_, unclear) => {
            format!(
                "{} of {}, {} unclear",
                formatting::count(flood.admitted),
                formatting::count(all),
                formatting::count(unclear)
            )
        }
    }
}

/// Table of revocations, and of the cost of observing them.
fn revocations(record: &Record) -> Table {
    let caption = "Revocations, and the cost of observing them";
    let mut table = Table::new(
        caption,
        [
            "variant",
            "revoked",
            "answered, P99",
            "failed",
            "requests",
            "allowed",
            "when",
            "cores used",
            "first failure",
        ],
    );
    for variant in &record.variants {
        let all: Vec<&Revocations> =
            variant.iterations.iter().filter_map(|i| i.revocations.as_ref()).collect();
        if all.is_empty() {
            continue;
        }
        let sum = |of: fn(&Revocations) -> u64| formatting::count(all.iter().map(|seen| of(seen)).sum());
        let answered = merged(all.iter().map(|seen| seen.answer.as_ref()));
        let bound = all.iter().filter_map(|seen| seen.bound_s).reduce(f64::min);
        let cpu = all.iter().filter_map(|seen| seen.cpu_share).reduce(f64::max);
        table.row(vec![
            variant.name.clone(),
            sum(|seen| seen.revoked),
            answered.map_or_else(|| "–".to_owned(), |answered| formatting::time(answered.micros(0.99))),
            sum(|seen| seen.failed),
            sum(|seen| seen.asked),
            bound.map_or_else(|| "–".to_owned(), |bound| formatting::time(bound * 1e6)),
            if all.iter().all(|seen| seen.after_window) { "after the window" } else { "in the window" }
                .to_owned(),
            cpu.map_or_else(|| "–".to_owned(), formatting::digits),
            all.iter().find_map(|seen| seen.example.clone()).unwrap_or_default(),
        ]);
    }
    table
}
