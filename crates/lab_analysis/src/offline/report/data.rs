//! Data: the figures of a report as CSV, and its stacks, for other programs.
//!
//! Owns: the content of the files. One row is one value, so a spreadsheet can filter and pivot.
//! Does not own: writing them, and the record, which has everything as JSON.

use csv::Writer;

use super::{FIGURES, PERCENTILES, SERIES, STACKS, figures, over_time, profiles};
use crate::record::{Iteration, Record, Variant};
use crate::statistics::{Figure, StreamFigure};

/// A file of figures, or of stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Name of the file, as the report links it.
    pub name: &'static str,
    /// Content of the file: CSV (RFC 4180) with a head, or folded stacks.
    pub content: String,
}

/// Creates the files that a report of this record links, besides `report.json`.
pub fn data(record: &Record) -> Vec<DataFile> {
    let mut files = vec![
        DataFile { name: FIGURES, content: by_iteration(record) },
        DataFile { name: PERCENTILES, content: by_percentile(record) },
        DataFile { name: SERIES, content: by_time(record) },
    ];
    let stacks = profiles::folded(record);
    if !stacks.is_empty() {
        files.push(DataFile { name: STACKS, content: stacks });
    }
    files
}

/// Rows of one length, as CSV.
struct Rows(Writer<Vec<u8>>);

impl Rows {
    fn new(head: &[&str]) -> Self {
        let mut rows = Self(Writer::from_writer(Vec::new()));
        rows.add(head);
        rows
    }

    /// Adds a row. Writing into memory does not fail, and all rows of a file have one length.
    fn add(&mut self, cells: &[&str]) {
        let _ = self.0.write_record(cells);
    }

    fn text(self) -> String {
        String::from_utf8(self.0.into_inner().unwrap_or_default()).unwrap_or_default()
    }
}

/// A figure of an iteration with its name, its component and its unit in the file.
type Named = (&'static str, String, &'static str, Figure);

/// Figures of an iteration that have one value.
fn named(variant: &Variant) -> Vec<Named> {
    let plain = [
        ("throughput", "1/s", Figure::PerSecond),
        ("latency mean", "us", Figure::Mean),
        ("latency P50", "us", Figure::P50),
        ("latency P95", "us", Figure::P95),
        ("latency P99", "us", Figure::P99),
        ("latency max", "us", Figure::Max),
        ("errors", "share", Figure::BadShare),
        ("failures", "share", Figure::FailureShare),
        ("CPU per request of the path", "us", Figure::CpuPerRequestSum(variant.cost_components())),
        ("P99 of lateness", "us", Figure::Lateness),
        ("first byte P50", "us", Figure::Stream(StreamFigure::FirstByte(50_000))),
        ("first byte P99", "us", Figure::Stream(StreamFigure::FirstByte(99_000))),
        ("first event P50", "us", Figure::Stream(StreamFigure::FirstEvent(50_000))),
        ("first event P99", "us", Figure::Stream(StreamFigure::FirstEvent(99_000))),
        ("per event mean", "us", Figure::Stream(StreamFigure::MeanEventGap)),
        ("per event P50", "us", Figure::Stream(StreamFigure::EventGap(50_000))),
        ("per event P99", "us", Figure::Stream(StreamFigure::EventGap(99_000))),
        ("round trip P50", "us", Figure::Stream(StreamFigure::RoundTrip(50_000))),
        ("round trip P99", "us", Figure::Stream(StreamFigure::RoundTrip(99_000))),
        ("stalls", "1", Figure::Stream(StreamFigure::Stalls)),
        ("streams cut", "share", Figure::Stream(StreamFigure::CutShare)),
    ];
    let plain = plain.into_iter().map(|(name, unit, figure)| (name, String::new(), unit, figure));
    let observed = variant.observed_names().into_iter().flat_map(|component| {
        let of = |name, unit, figure: fn(String) -> Figure| {
            (name, component.to_owned(), unit, figure(component.to_owned()))
        };
        [
            of("CPU per request", "us", Figure::CpuPerRequest),
            of("wait for a core per request", "us", Figure::CoreWaitPerRequest),
            of("cores", "cores", Figure::Cores),
            of("memory", "bytes", Figure::Memory),
        ]
    });
    plain.chain(observed).collect()
}

fn by_iteration(record: &Record) -> String {
    let mut rows = Rows::new(&["variant", "iteration", "component", "figure", "value", "unit"]);
    for variant in &record.variants {
        let named = named(variant);
        for iteration in &variant.iterations {
            for (name, component, unit, figure) in &named {
                if let Some(value) = figure.value(iteration).filter(|value| value.is_finite()) {
                    let (number, value) = (iteration.number.to_string(), value.to_string());
                    rows.add(&[&variant.name, &number, component, name, &value, unit]);
                }
            }
        }
    }
    rows.text()
}

fn by_percentile(record: &Record) -> String {
    let mut rows = Rows::new(&["variant", "share", "latency", "unit"]);
    for variant in &record.variants {
        for (share, micros) in figures::percentiles(variant) {
            rows.add(&[&variant.name, &share.to_string(), &micros.to_string(), "us"]);
        }
    }
    rows.text()
}

/// The lines of every iteration over time; a report draws those of one iteration per variant.
fn by_time(record: &Record) -> String {
    let mut rows = Rows::new(&["variant", "iteration", "panel", "line", "second", "value", "unit"]);
    for variant in &record.variants {
        for iteration in &variant.iterations {
            add_course(&mut rows, variant, iteration);
        }
    }
    rows.text()
}

fn add_course(rows: &mut Rows, variant: &Variant, iteration: &Iteration) {
    let number = iteration.number.to_string();
    for panel in over_time::course(variant, iteration) {
        for line in &panel.lines {
            for (second, value) in line.points.iter().filter(|point| point.1.is_finite()) {
                let (second, value) = (second.to_string(), value.to_string());
                let unit = panel.unit.symbol();
                rows.add(&[&variant.name, &number, &panel.name, &line.name, &second, &value, unit]);
            }
        }
    }
}
