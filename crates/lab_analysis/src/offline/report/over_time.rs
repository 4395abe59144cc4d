//! Over time: report sections with throughput, latency, CPU, memory and throttling on one time
//! axis.

use super::published::Sources;
use super::stages::offered;
use crate::formatting;
use crate::offline::render::svg::{COLOURS, Line, Panel, Unit};
use crate::offline::render::{Chart, Section, Table};
use crate::record::{Component, Iteration, Record, Sample, Slice, Variant};
use crate::statistics::{CpuUse, Figure, display, figures, median, window};

/// Most variants that are drawn over time: too many charts hide the important ones.
const MAX_DRAWN: usize = 12;
/// Shortest span over which CPU is drawn, ms: the kernel counts in steps of 10 ms.
const MIN_SPAN_MS: u64 = 450;
/// Columns of the table of components.
const COMPONENT_COLUMNS: [&str; 9] = [
    "variant",
    "component",
    "cores",
    "of limit",
    "CPU per request",
    "memory, most",
    "switches/s",
    "throttled periods",
    "throttled time",
];

/// Section with the throughput of each variant.
pub(super) fn throughput(record: &Record) -> Section {
    let mut section = Section::new("Throughput");
    let mut table = Table::new(
        "Good answers per second, over iterations",
        ["variant", "median", "least", "most", "spread"],
    );
    for variant in &record.variants {
        let rates = figures(variant, &Figure::PerSecond);
        if rates.is_empty() {
            continue;
        }
        let (least, most) =
            rates.iter().fold((f64::MAX, f64::MIN), |(l, m), &rate| (l.min(rate), m.max(rate)));
        let middle = median(&rates);
        let spread =
            if middle > 0.0 { formatting::percent((most - least) / middle) } else { "–".to_owned() };
        let cells = [middle, least, most].map(|rate| display::figure(&Figure::PerSecond, rate));
        table.row(std::iter::once(variant.name.clone()).chain(cells).chain([spread]).collect());
    }
    section.table(table);
    section.text("Spread is most minus least, over the median: it grows with the number of iterations.");
    section
}

/// Section with the resources that components used, and a chart of each variant's typical
/// iteration.
pub(super) fn components(record: &Record) -> Section {
    let mut section = Section::new("Over time");
    let mut table =
        Table::new("Components in the measured windows: medians over iterations", COMPONENT_COLUMNS);
    for variant in &record.variants {
        for name in variant.observed_names() {
            table.row(component_row(variant, name));
        }
    }
    let sources = Sources::of(&record.reference);
    for row in &record.reference {
        for (component, cores) in &row.cpu_cores {
            let mut cells = vec![sources.label(row), component.clone(), formatting::digits(*cores)];
            cells.resize(COMPONENT_COLUMNS.len(), "–".to_owned());
            table.row_apart(cells);
        }
    }
    sources.note(&mut table);
    section.table(table);
    section.table(missing_cpu(record));
    let drawn = record.variants.iter().filter_map(|variant| Some((variant, typical(variant)?)));
    let mut left_out = 0;
    for (number, (variant, iteration)) in drawn.enumerate() {
        if number >= MAX_DRAWN {
            left_out += 1;
            continue;
        }
        let panels = course(variant, iteration);
        if !panels.is_empty() {
            let title = format!("{}, iteration {}", variant.name, iteration.number);
            section.chart(Chart::panels(title, panels, Unit::Clock));
        }
    }
    if left_out > 0 {
        section.text(format!("The course of {left_out} more variants is in {}.", super::SERIES));
    }
    section
}

/// A component with its first and last sample in the measured window.
type SampledComponent<'a> = (&'a Component, &'a Sample, &'a Sample);

fn component_row(variant: &Variant, name: &str) -> Vec<String> {
    let looked: Vec<SampledComponent<'_>> = variant
        .iterations
        .iter()
        .filter_map(|iteration| {
            let component = iteration.observed(name)?;
            let (first, last) = window(iteration, component)?;
            Some((component, first, last))
        })
        .collect();
    let dash = || "–".to_owned();
    let of = |figure: Figure| {
        let values = figures(variant, &figure);
        if values.is_empty() { None } else { Some(median(&values)) }
    };
    let limit = looked.iter().find_map(|(component, ..)| component.cpu_limit_cores);
    let per = |value: &dyn Fn(&SampledComponent<'_>) -> Option<f64>| {
        let values: Vec<f64> = looked.iter().filter_map(value).collect();
        if values.is_empty() { None } else { Some(median(&values)) }
    };
    let memory = looked
        .iter()
        .flat_map(|(component, ..)| component.samples.iter().map(|sample| sample.rss_bytes))
        .max();
    let switches = per(&|(_, first, last)| {
        let all = |sample: &Sample| sample.voluntary_switches + sample.involuntary_switches;
        let wall = (last.at_ms - first.at_ms) as f64 / 1e3;
        (wall > 0.0).then(|| all(last).saturating_sub(all(first)) as f64 / wall)
    });
    let throttled = per(&|(_, first, last)| {
        let periods = (last.periods? - first.periods?) as f64;
        (periods > 0.0).then_some((last.throttled_periods? - first.throttled_periods?) as f64 / periods)
    });
    let throttled_time =
        per(&|(_, first, last)| Some((last.throttled_ms? - first.throttled_ms?) as f64 * 1e3));
    vec![
        variant.name.clone(),
        name.to_owned(),
        cores(variant, name),
        limit.map_or_else(|| "no limit".to_owned(), formatting::digits),
        of(Figure::CpuPerRequest(name.to_owned())).map_or_else(dash, formatting::time),
        memory.map_or_else(dash, |bytes| formatting::bytes(bytes as f64)),
        switches.map_or_else(dash, formatting::digits),
        throttled.map_or_else(dash, formatting::percent),
        throttled_time.map_or_else(dash, formatting::time),
    ]
}

/// Cores that a component used. When less was counted than the possible error, only the upper bound
/// is shown.
fn cores(variant: &Variant, name: &str) -> String {
    let known: Vec<CpuUse> = used(variant, name).filter(|cpu| cpu.cores().is_some()).collect();
    if known.is_empty() {
        return "–".to_owned();
    }
    let middle = |of: fn(&CpuUse) -> f64| median(&known.iter().map(of).collect::<Vec<_>>());
    if known.iter().all(CpuUse::is_within_error) {
        return format!("< {}", formatting::digits(middle(CpuUse::max_cores)));
    }
    formatting::digits(middle(|cpu| cpu.cores().unwrap_or(0.0)))
}

/// CPU of a component in each iteration that observed it.
fn used(variant: &Variant, name: &str) -> impl Iterator<Item = CpuUse> {
    variant.iterations.iter().filter_map(move |iteration| CpuUse::in_window(iteration, name))
}

/// Table that explains missing CPU figures.
fn missing_cpu(record: &Record) -> Table {
    let caption =
        "Why CPU is – above: the window is too short, or the use too small, for the resolution of the clock";
    let mut table =
        Table::new(caption, ["variant", "component", "cores", "per request", "of the first iteration"]);
    for variant in &record.variants {
        for name in variant.observed_names() {
            let is_known = |figure: Figure| !figures(variant, &figure).is_empty();
            let (cores, request) =
                (is_known(Figure::Cores(name.to_owned())), is_known(Figure::CpuPerRequest(name.to_owned())));
            if request {
                continue;
            }
            let why = used(variant, name).next();
            let why = why
                .map_or_else(|| "fewer than two samples in the window".to_owned(), |cpu| cpu.why_inexact());
            let word = |known| if known { "known" } else { "–" }.to_owned();
            table.row(vec![variant.name.clone(), name.to_owned(), word(cores), word(request), why]);
        }
    }
    table.folded = true;
    table
}

/// The iteration with the median throughput.
fn typical(variant: &Variant) -> Option<&Iteration> {
    let mut order: Vec<&Iteration> = variant
        .iterations
        .iter()
        .filter(|iteration| !iteration.timeline.is_empty() || !iteration.components.is_empty())
        .collect();
    order.sort_by(|a, b| {
        let rate = |iteration: &Iteration| Figure::PerSecond.value(iteration).unwrap_or(0.0);
        rate(a).total_cmp(&rate(b))
    });
    order.get(order.len() / 2).copied()
}

/// Panels of an iteration over time; none where it has no timeline and no samples.
pub(super) fn course(variant: &Variant, iteration: &Iteration) -> Vec<Panel> {
    let warm = (iteration.warmup_s > 0.0).then(|| (iteration.warmup_s, "measured from here".to_owned()));
    let mut panels = Vec::new();
    let mut panel = |name: &str, unit, height, lines: Vec<Line>| {
        if lines.iter().any(|line| !line.points.is_empty()) {
            panels.push(Panel { name: name.to_owned(), unit, height, lines, mark: warm.clone() });
        }
    };
    let slices = &iteration.timeline;
    let rate =
        |count: fn(&Slice) -> u64| held(slices, |slice| Some(count(slice) as f64 * 1e3 / slice.ms as f64));
    let mut lines = vec![Line { steps: true, ..Line::new("good answers", 0, rate(|slice| slice.ok)) }];
    if slices.iter().any(|slice| slice.bad > 0) {
        lines.push(Line { steps: true, ..Line::new("other endings", 1, rate(|slice| slice.bad)) });
    }
    if !slices.is_empty() && !offered(variant, iteration).is_empty() {
        lines.push(Line { dashed: true, ..Line::new("offered", 2, offered(variant, iteration)) });
    }
    panel("throughput", Unit::Rate, 110.0, lines);
    let latency = |figure: fn(&Slice) -> Option<f64>| held(slices, figure);
    let known = [
        ("P50", latency(|slice| slice.p50_us)),
        ("P99", latency(|slice| slice.p99_us)),
        ("longest", latency(|slice| slice.max_us)),
    ];
    let lines = known.into_iter().enumerate().filter(|(_, (_, points))| !points.is_empty());
    let lines = lines.map(|(at, (name, points))| Line { steps: true, ..Line::new(name, at + 2, points) });
    panel("latency", Unit::TimeLog, 110.0, lines.collect());
    let watched = || iteration.components.iter().take(COLOURS).enumerate();
    let mut lines: Vec<Line> = watched().map(|(colour, c)| Line::new(&c.name, colour, cpu(c))).collect();
    lines.extend(watched().filter_map(|(colour, component)| {
        let (limit, ends) =
            (component.cpu_limit_cores?, (component.samples.first()?, component.samples.last()?));
        let points = vec![(ends.0.at_ms as f64 / 1e3, limit), (ends.1.at_ms as f64 / 1e3, limit)];
        Some(Line { dashed: true, ..Line::new(format!("limit of {}", component.name), colour, points) })
    }));
    panel("CPU, cores in use", Unit::Cores, 110.0, lines);
    let lines = watched().filter(|(_, c)| c.samples.iter().any(|sample| sample.throttled_ms.is_some()));
    panel(
        "throttled periods, share",
        Unit::Share,
        80.0,
        lines.map(|(colour, c)| Line { steps: true, ..Line::new(&c.name, colour, throttling(c)) }).collect(),
    );
    let memory =
        |c: &Component| c.samples.iter().map(|s| (s.at_ms as f64 / 1e3, s.rss_bytes as f64)).collect();
    panel(
        "resident memory",
        Unit::Bytes,
        80.0,
        watched().map(|(colour, c)| Line::new(&c.name, colour, memory(c))).collect(),
    );
    panels
}

/// Value of each slice that has it, as points; the last value lasts until the end of the last
/// slice.
fn held(slices: &[Slice], value: impl Fn(&Slice) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> =
        slices.iter().filter_map(|slice| Some((slice.at_ms as f64 / 1e3, value(slice)?))).collect();
    if let Some((last, point)) = slices.last().zip(points.last().copied()) {
        points.push(((last.at_ms + last.ms) as f64 / 1e3, point.1));
    }
    points
}

/// Pairs of samples that are at least [`MIN_SPAN_MS`] apart.
fn spans(component: &Component) -> Vec<(&Sample, &Sample)> {
    let mut spans = Vec::new();
    let mut samples = component.samples.iter();
    let Some(mut from) = samples.next() else { return spans };
    for sample in samples {
        if sample.at_ms - from.at_ms >= MIN_SPAN_MS {
            spans.push((from, sample));
            from = sample;
        }
    }
    spans
}

fn cpu(component: &Component) -> Vec<(f64, f64)> {
    let cores = |(from, to): (&Sample, &Sample)| {
        let used = CpuUse::between(component, from, to)?;
        Some(((from.at_ms + to.at_ms) as f64 / 2e3, used.used_us / used.wall_us))
    };
    spans(component).into_iter().filter_map(cores).collect()
}

fn throttling(component: &Component) -> Vec<(f64, f64)> {
    let share = |(from, to): (&Sample, &Sample)| {
        let periods = (to.periods? - from.periods?) as f64;
        let throttled = (to.throttled_periods? - from.throttled_periods?) as f64;
        Some((from.at_ms as f64 / 1e3, if periods > 0.0 { throttled / periods } else { 0.0 }))
    };
    spans(component).into_iter().filter_map(share).collect()
}
