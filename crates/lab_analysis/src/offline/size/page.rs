//! Page: the sheet of a plan.
//!
//! Owns: the wording of the answer and of its assumptions.
//! Does not own: the plan ([`super::Sizing`]), and how a sheet looks.

use super::{Amount, ComponentCost, Constancy, LoadCost, MeasuredReport, Sizing, range_words};
use crate::diagnose;
use crate::formatting;
use crate::offline::render::svg::{Bar, Unit};
use crate::offline::render::{Block, Chart, Section, Sheet, Table};
use crate::offline::report::{load as load_text, machine, of_run};
use crate::offline::warnings::warnings;
use crate::record::{Doubt, Finding};

/// Hours of a month: 365 days in twelve parts.
const HOURS_OF_MONTH: f64 = 730.0;
/// Factor between the planned rate and the nearest measured one from which the plan says so.
const FAR_BEYOND: f64 = 1.2;

pub(super) fn sheet(plan: &Sizing, reports: &[MeasuredReport<'_>]) -> Sheet {
    let mut sheet = Sheet {
        title: format!("Cores for {} on {}", rate(plan, plan.rate_per_s), plan.path),
        lead: format!(
            "from {} · {} of the cores stay free",
            files(plan).join(", "),
            formatting::short_percent(plan.headroom)
        ),
        ..Sheet::default()
    };
    sheet.section(answer(plan, reports));
    sheet.section(doubts(plan, reports));
    sheet.section(assumption(plan));
    sheet.section(not_included(plan));
    sheet.section(measured_on(plan, reports));
    sheet
}

/// Files of the reports, each once.
fn files(plan: &Sizing) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for load in &plan.loads {
        if !files.contains(&load.file) {
            files.push(load.file.clone());
        }
    }
    files
}

fn rate(plan: &Sizing, per_s: f64) -> String {
    format!("{} {}s/s", formatting::digits(per_s), plan.unit)
}

/// Formats an amount with its range: `0.355 (0.342 … 0.368)`.
fn with_range(amount: &Amount, write: impl Fn(f64) -> String) -> String {
    format!("{} ({} … {})", write(amount.point), write(amount.low), write(amount.high))
}

/// A cell with an amount, and its range below it.
fn cell(amount: &Amount, write: impl Fn(f64) -> String) -> String {
    format!("{}\n{} … {}", write(amount.point), write(amount.low), write(amount.high))
}

fn whole(cores: f64) -> String {
    if cores > 1.0 { format!("{} cores", formatting::grouped(cores)) } else { "1 core".to_owned() }
}

fn answer(plan: &Sizing, reports: &[MeasuredReport<'_>]) -> Section {
    let mut section = Section::new("Answer");
    let (busy, cores) = (plan.busy_cores(), plan.cores());
    section.text(format!(
        "{} keep {} cores of this machine busy, by {} of CPU for each. With {} of the cores free, provide {} cores: plan {}.",
        rate(plan, plan.rate_per_s),
        with_range(&busy, formatting::digits),
        with_range(&plan.cpu_us, formatting::time),
        formatting::short_percent(plan.headroom),
        with_range(&cores, formatting::digits),
        whole(plan.whole_cores())
    ));
    let base: Vec<&LoadCost> = plan.loads.iter().filter(|load| load.is_base).collect();
    let mut words = vec![range_words(base.iter().all(|load| load.is_interval))];
    words.extend((base.len() > 1).then(|| format!("it covers {} measurements of the path", base.len())));
    if matches!(plan.constancy, Constancy::Varies { .. }) {
        words.push("it covers every measured rate, because the cost depends on the rate".to_owned());
    }
    section.text(format!("The ranges: {}.", words.join("; ")));
    for text in outside(plan).into_iter().chain(builds(plan, reports)) {
        section.text(text);
    }
    section.table(amounts(plan));
    section.table(components(plan));
    section
}

/// Says that the planned rate is far from every measured one.
fn outside(plan: &Sizing) -> Option<String> {
    let (lowest, highest) = (plan.lowest_measured_per_s(), plan.highest_measured_per_s());
    let times = |factor: f64| formatting::digits(factor);
    if plan.rate_per_s > FAR_BEYOND * highest {
        return Some(format!(
            "The planned rate is {} times the highest measured one, {}: that more cores bring as much more throughput is assumed, not measured.",
            times(plan.rate_per_s / highest.max(f64::MIN_POSITIVE)),
            rate(plan, highest)
        ));
    }
    (plan.rate_per_s * FAR_BEYOND < lowest).then(|| {
        format!(
            "The lowest measured rate, {}, is {} times the planned one. A program that is mostly idle costs more per {}, so the busy cores may be more than said. Measure it at the planned rate.",
            rate(plan, lowest),
            times(lowest / plan.rate_per_s),
            plan.unit
        )
    })
}

/// Says that the reports are of several commits.
fn builds(plan: &Sizing, reports: &[MeasuredReport<'_>]) -> Option<String> {
    let mut commits: Vec<&str> = reports.iter().filter_map(|one| one.record.run.commit.as_deref()).collect();
    commits.sort_unstable();
    commits.dedup();
    (commits.len() > 1).then(|| {
        format!(
            "The reports are of {} commits ({}). What a {} costs may differ between them, and the ranges cover all of them.",
            commits.len(),
            commits.join(", "),
            plan.unit
        )
    })
}

/// Table of cores, CPU and prices.
fn amounts(plan: &Sizing) -> Table {
    let mut table = Table::new("", ["for this load", "amount"]);
    // A million requests take as many seconds as one takes microseconds.
    let seconds = |cpu_us: f64| format!("{} s", formatting::digits(cpu_us));
    table.row(vec!["cores that are busy".to_owned(), cell(&plan.busy_cores(), formatting::digits)]);
    table.row(vec!["cores to provide".to_owned(), cell(&plan.cores(), formatting::digits)]);
    table.row(vec![format!("CPU for a million {}s", plan.unit), cell(&plan.cpu_us, seconds)]);
    if let (Some(price), Some(million)) = (plan.price, plan.price_of_million()) {
        let per_month = plan.whole_cores() * price * HOURS_OF_MONTH;
        table.row(vec![
            format!("price of a million {}s, by their share of the cores to provide", plan.unit),
            cell(&million, formatting::digits),
        ]);
        table.row(vec![
            format!("price of a million {}s at this rate, on {}", plan.unit, whole(plan.whole_cores())),
            formatting::digits(plan.whole_cores() * price * 1e6 / (plan.rate_per_s * 3600.0)),
        ]);
        table.row(vec![
            format!(
                "price of {} for a month, at {} for a core and hour",
                whole(plan.whole_cores()),
                formatting::digits(price)
            ),
            formatting::digits(per_month),
        ]);
    }
    table
}

fn components(plan: &Sizing) -> Table {
    let per_unit = format!("CPU per {}", plan.unit);
    let mut table = Table::new(
        "Components",
        ["component", per_unit.as_str(), "busy cores", "cores to provide", "in the plan"],
    );
    for component in &plan.components {
        let ComponentCost { name, cpu_us, is_counted } = component;
        let cores = |cpu_us: f64| formatting::digits(plan.rate_per_s * cpu_us / 1e6);
        let provided =
            |cpu_us: f64| formatting::digits(plan.rate_per_s * cpu_us / 1e6 / (1.0 - plan.headroom));
        let none = || formatting::NONE.to_owned();
        let row = vec![
            name.clone(),
            cpu_us.as_ref().map_or_else(none, |amount| cell(amount, formatting::time)),
            cpu_us.as_ref().map_or_else(none, |amount| cell(amount, cores)),
            cpu_us.as_ref().map_or_else(none, |amount| cell(amount, provided)),
            match (is_counted, cpu_us) {
                (true, Some(_)) => "counted",
                (true, None) => "counted in the sum; too little CPU to be known by itself",
                (false, _) => "not counted",
            }
            .to_owned(),
        ];
        if *is_counted {
            table.row(row);
        } else {
            table.row_apart(row);
        }
    }
    table
}

/// Section with the findings about the base variants that make their figures doubtful.
fn doubts(plan: &Sizing, reports: &[MeasuredReport<'_>]) -> Section {
    let base: Vec<&str> =
        plan.loads.iter().filter(|load| load.is_base).map(|load| load.variant.as_str()).collect();
    let concerns = |finding: &Finding| {
        finding.doubt != Doubt::Explains
            && (finding.variants.is_empty()
                || finding.variants.iter().any(|name| base.contains(&name.as_str())))
    };
    let mut all = Vec::new();
    for report in reports {
        let mut findings = diagnose::findings(report.record);
        findings.retain(concerns);
        let name = if reports.len() > 1 { report.file } else { "" };
        all.extend(warnings(&findings, name));
    }
    all.sort_by_key(|warning| warning.weight);
    let mut section = Section::new("Before you use the plan");
    if all.is_empty() {
        section.text("Nothing was found that makes the figures doubtful.");
    }
    section.blocks.extend(all.into_iter().map(Block::Warning));
    section
}

fn assumption(plan: &Sizing) -> Section {
    let mut section = Section::new("Is the cost the same at every rate?");
    section.text(format!(
        "The plan assumes that the CPU per {} does not depend on the rate and that cores add up. A program that is mostly idle is woken for each message and costs more per {}; one that is nearly full costs less.",
        plan.unit, plan.unit
    ));
    let between =
        |rates: &[f64; 2]| format!("from {} to {}", formatting::digits(rates[0]), rate(plan, rates[1]));
    section.text(match &plan.constancy {
        Constancy::NotChecked => "Not checked: the reports have this path at one rate only. Measure it at several rates (`postern lab run --scenario knee`), or plan with more headroom.".to_owned(),
        Constancy::Constant { rates, factor } => format!(
            "Checked: {} the highest cost is {} the lowest.",
            between(rates),
            formatting::factor(*factor)
        ),
        Constancy::Varies { rates, factor } => format!(
            "It does not hold: {} the highest cost is {} the lowest. So the ranges above cover every measured rate.",
            between(rates),
            formatting::factor(*factor)
        ),
    });
    if let Some(cores) = plan.machine_cores.map(f64::from).filter(|cores| plan.whole_cores() > *cores) {
        section.text(format!(
            "The machine of the report has {}, and the plan has {}.",
            whole(cores),
            whole(plan.whole_cores())
        ));
    }
    section.table(loads(plan));
    let bars = plan.loads.iter().map(|load| Bar {
        name: rate(plan, load.per_s),
        from: 0.0,
        length: load.cpu_us.point,
        interval: Some((load.cpu_us.low, load.cpu_us.high)),
        colour: usize::from(!load.is_base),
        text: load.variant.clone(),
    });
    let bars: Vec<Bar> = bars.collect();
    section.chart(Chart::bars(format!("CPU per {} at each measured rate", plan.unit), bars, Unit::CpuTime));
    section
}

/// Table of the measured loads.
fn loads(plan: &Sizing) -> Table {
    let per_unit = format!("CPU per {}", plan.unit);
    let mut table = Table::new(
        "Measured loads of the path",
        [
            "variant",
            "file",
            "throughput",
            per_unit.as_str(),
            "rounds",
            "cores to provide, by this load",
            "use",
        ],
    );
    for load in &plan.loads {
        let provided =
            |cpu_us: f64| formatting::digits(plan.rate_per_s * cpu_us / 1e6 / (1.0 - plan.headroom));
        table.row(vec![
            load.variant.clone(),
            load.file.clone(),
            format!("{}/s", formatting::digits(load.per_s)),
            cell(&load.cpu_us, formatting::time),
            load.rounds.to_string(),
            cell(&load.cpu_us, provided),
            if load.is_base { "the plan" } else { "a check" }.to_owned(),
        ]);
    }
    table
}

fn not_included(plan: &Sizing) -> Section {
    let mut section = Section::new("What the plan does not include");
    let counted: Vec<String> = plan
        .components
        .iter()
        .filter(|component| component.is_counted)
        .map(|component| format!("`{}`", component.name))
        .collect();
    section.text(format!(
        "Only {} is counted: user and kernel time of the programs. Interrupts of the network that the kernel counts for no program, the service itself, programs that are not on the path, and memory are not included.",
        counted.join(", ")
    ));
    section.text(
        "Other credentials, sizes of bodies, TLS or HTTP versions cost differently: measure the mix that you expect. The first use of a credential costs more than its repetition. Headroom is for peaks within a second, for the loss of a node, and for latency, which grows before the cores are full.",
    );
    section
}

fn measured_on(plan: &Sizing, reports: &[MeasuredReport<'_>]) -> Section {
    let mut section = Section::new("What was measured");
    for report in reports {
        let caption = if reports.len() > 1 { report.file } else { "" };
        let mut table = Table::new(caption, ["fact", "value"]);
        for (name, value) in of_run(report.record) {
            table.row(vec![name, value]);
        }
        for one in &report.record.run.machines {
            table.row(vec![format!("machine: {}", one.role), machine(one)]);
        }
        let base = plan.loads.iter().filter(|load| load.is_base && load.file == report.file);
        for variant in base.filter_map(|load| report.record.variant(&load.variant)) {
            table.row(vec![format!("topology of `{}`", variant.name), variant.topology.clone()]);
            table.row(vec![format!("load of `{}`", variant.name), load_text(&variant.load)]);
        }
        section.table(table);
    }
    section
}
