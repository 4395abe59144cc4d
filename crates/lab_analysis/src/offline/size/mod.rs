//! Size: computes how many cores a load needs, and what a million requests cost, from measured
//! reports (`lab size`).
//!
//! Owns: which variants are the base, what the reports do not carry, and the check of the
//! assumption behind the plan.
//! Does not own: the figures and their intervals ([`crate::statistics`]), and how a sheet looks.
//!
//! 1. The variants of the requested path are selected in each report.
//! 2. Their CPU per request is read round by round: the median, with its interval.
//! 3. Cores are rate × CPU per request ÷ the share of a core that may be used.
//! 4. This assumes that CPU per request does not depend on the rate. It does: a program that is
//!    mostly idle is woken for each message. So the same path under other loads of the reports is
//!    the check. Where it fails, the range covers every measured load.

mod page;
mod select;

use select::Selected;

use super::render::Sheet;
use crate::record::{LoadShape, Measure, Record, Variant};
use crate::statistics::{ComparedTo, Figure, MIN_OBSERVATIONS, figures, interval, median, values_by_round};

/// Factor between the lowest and the highest rate from which loads check the assumption.
const RATES_APART: f64 = 1.5;
/// Factor up to which CPU per request counts as constant.
const CONSTANT_WITHIN: f64 = 1.1;
/// Seconds of an hour.
const HOUR_S: f64 = 3600.0;

/// A report with its name.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredReport<'a> {
    /// File of the report, as errors and tables name it.
    pub file: &'a str,
    /// Record of the run.
    pub record: &'a Record,
}

/// The load to plan for.
#[derive(Debug, Clone, Copy)]
pub struct SizeTerms<'a> {
    /// Requests per second; of a flow, transactions per second.
    pub rate_per_s: f64,
    /// Name of a variant, or its part before the load; `None` with a single variant.
    pub path: Option<&'a str>,
    /// Share of the cores that stays free, from 0 to below 1.
    pub headroom: f64,
    /// Price of a core for an hour, in any currency.
    pub price: Option<f64>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SizeError {
    /// No path is named, and there is more than one.
    #[error("`{file}` has several paths: name one with --path; it has {known}")]
    PathNeeded {
        /// The file.
        file: String,
        /// Names of its variants.
        known: String,
    },
    /// The path does not exist.
    #[error("`{file}` has no variant `{path}`, and none that begins with `{path}/`; it has {known}")]
    NoPath {
        /// The file.
        file: String,
        /// The path that was requested.
        path: String,
        /// Names of its variants.
        known: String,
    },
    /// The name belongs to variants that are not one path under several loads.
    #[error("`{path}` is not one path in `{file}`, it is {found}: name one of them")]
    SeveralPaths {
        /// The file.
        file: String,
        /// The path that was requested.
        path: String,
        /// Names of the variants.
        found: String,
    },
    /// A variant does not have the CPU of its path.
    #[error("`{file}` does not say what a request costs: {why}; measure the path with `lab run`")]
    NoCpu {
        /// The file.
        file: String,
        /// Why there is no figure.
        why: String,
    },
    /// The reports were measured on different machines.
    #[error(
        "`{a}` and `{b}` were measured on different machines, whose cores are not alike: size them one by one"
    )]
    OtherMachine {
        /// The first file.
        a: String,
        /// The other file.
        b: String,
    },
    /// The variants of two reports have different components, or send other requests.
    #[error("`{variant_a}` in `{a}` and `{variant_b}` in `{b}` are different paths: size them one by one")]
    OtherPath {
        /// The first file.
        a: String,
        /// The variant of the first file.
        variant_a: String,
        /// The other file.
        b: String,
        /// The variant of the other file.
        variant_b: String,
    },
}

/// An amount with the range that the rounds give.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount {
    /// Median.
    pub point: f64,
    /// Lower end of the range.
    pub low: f64,
    /// Upper end of the range.
    pub high: f64,
}

/// CPU per request under one load of one report.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadCost {
    /// File of the report.
    pub file: String,
    /// Name of the variant.
    pub variant: String,
    /// Successful responses per second.
    pub per_s: f64,
    /// CPU per request of all components of the path together, µs.
    pub cpu_us: Amount,
    /// Number of rounds.
    pub rounds: usize,
    /// Whether the range is an interval of the median; otherwise it reaches from the least to the
    /// most of too few rounds.
    pub is_interval: bool,
    /// Whether the plan is based on it; otherwise it only checks the assumption.
    pub is_base: bool,
}

/// CPU per request of one component.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentCost {
    /// Name of the component.
    pub name: String,
    /// CPU per request, µs; absent when it is not known exactly enough.
    pub cpu_us: Option<Amount>,
    /// Whether it is part of the path before the service, and so of the plan.
    pub is_counted: bool,
}

/// Whether CPU per request depends on the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Constancy {
    /// The reports have the path at one rate only.
    NotChecked,
    /// It is the same at all measured rates, within a tenth.
    Constant {
        /// Lowest and highest measured rate.
        rates: [f64; 2],
        /// Highest ÷ lowest CPU per request.
        factor: f64,
    },
    /// It depends on the rate: the range of the plan covers all measured loads.
    Varies {
        /// Lowest and highest measured rate.
        rates: [f64; 2],
        /// Highest ÷ lowest CPU per request.
        factor: f64,
    },
}

/// A plan for a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizing {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Share of the cores that stays free.
    pub headroom: f64,
    /// Price of a core for an hour.
    pub price: Option<f64>,
    /// Name of the path.
    pub path: String,
    /// One unit of work, such as `request`.
    pub unit: String,
    /// CPU per request of the path, µs.
    pub cpu_us: Amount,
    /// Costs under each load: those of the plan first.
    pub loads: Vec<LoadCost>,
    /// Costs of the components in the base, in the order of the path.
    pub components: Vec<ComponentCost>,
    /// Check of the assumption.
    pub constancy: Constancy,
    /// Cores of the machine of the servers; absent when unknown.
    pub machine_cores: Option<u32>,
}

impl Amount {
    fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self { point: of(self.point), low: of(self.low), high: of(self.high) }
    }

    /// Median of several amounts, with the lowest and the highest end of their ranges.
    fn of_all(amounts: impl Iterator<Item = Self> + Clone) -> Self {
        let points: Vec<f64> = amounts.clone().map(|amount| amount.point).collect();
        let low = amounts.clone().map(|amount| amount.low).fold(f64::INFINITY, f64::min);
        let high = amounts.map(|amount| amount.high).fold(f64::NEG_INFINITY, f64::max);
        Self { point: median(&points), low, high }
    }

    /// Amount of the values of the rounds, and whether its range is an interval of the median.
    fn of_rounds(values: &[f64]) -> (Self, bool) {
        if let Some(of) = interval(values) {
            return (Self { point: of.point, low: of.low, high: of.high }, true);
        }
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (Self { point: median(values), low, high }, false)
    }
}

impl Sizing {
    /// Cores that the load keeps busy.
    pub fn busy_cores(&self) -> Amount {
        self.cpu_us.map(|cpu_us| self.rate_per_s * cpu_us / 1e6)
    }

    /// Cores to provide, so that the headroom stays free.
    pub fn cores(&self) -> Amount {
        self.busy_cores().map(|cores| cores / (1.0 - self.headroom))
    }

    /// Whole cores to provide: enough for the upper end of the range.
    pub fn whole_cores(&self) -> f64 {
        self.cores().high.ceil().max(1.0)
    }

    /// Price of a million requests by their share of the provided cores; `None` without a price.
    pub fn price_of_million(&self) -> Option<Amount> {
        let price = self.price?;
        // A million requests take as many seconds as one takes microseconds.
        Some(self.cpu_us.map(|cpu_us| cpu_us / (1.0 - self.headroom) / HOUR_S * price))
    }

    /// Highest rate at which the path was measured.
    pub fn highest_measured_per_s(&self) -> f64 {
        self.loads.iter().map(|load| load.per_s).fold(0.0, f64::max)
    }

    /// Lowest rate at which the path was measured.
    pub fn lowest_measured_per_s(&self) -> f64 {
        self.loads.iter().map(|load| load.per_s).fold(f64::INFINITY, f64::min)
    }

    /// The plan as a sheet, with the findings about its base.
    pub fn sheet(&self, reports: &[MeasuredReport<'_>]) -> Sheet {
        page::sheet(self, reports)
    }
}

/// Plans a load from reports, of which there is at least one.
pub fn size(reports: &[MeasuredReport<'_>], terms: &SizeTerms<'_>) -> Result<Sizing, SizeError> {
    let selected = select::variants(reports, terms.path)?;
    let mut loads = Vec::new();
    for one in &selected {
        match load_cost(one) {
            Ok(cost) => loads.push(cost),
            // A load that only checks the assumption may lack the figure.
            Err(_) if !one.is_base => {}
            Err(why) => return Err(SizeError::NoCpu { file: one.file.to_owned(), why }),
        }
    }
    loads.sort_by(|a, b| b.is_base.cmp(&a.is_base).then(a.per_s.total_cmp(&b.per_s)));
    let constancy = constancy(&loads);
    let base = loads.iter().filter(|load| load.is_base);
    let mut cpu_us = if base.clone().map(|load| &load.variant).all(|name| *name == loads[0].variant) {
        Amount::of_all(base.map(|load| load.cpu_us))
    } else {
        // Of several loads, the most expensive one is planned with.
        let all = Amount::of_all(base.clone().map(|load| load.cpu_us));
        Amount { point: base.map(|load| load.cpu_us.point).fold(0.0, f64::max), ..all }
    };
    if matches!(constancy, Constancy::Varies { .. }) {
        let all = Amount::of_all(loads.iter().map(|load| load.cpu_us));
        cpu_us = Amount { point: cpu_us.point, ..all };
    }
    let first = &selected[0];
    Ok(Sizing {
        rate_per_s: terms.rate_per_s,
        headroom: terms.headroom,
        price: terms.price,
        path: terms.path.unwrap_or(&first.variant.name).to_owned(),
        unit: unit(&first.variant.load),
        cpu_us,
        components: components(&selected),
        loads,
        constancy,
        machine_cores: first.record.run.machines.first().map(|machine| machine.cores),
    })
}

/// Name of one unit of work.
fn unit(load: &LoadShape) -> String {
    if load.flow == LoadShape::REQUEST { "request".to_owned() } else { format!("{} transaction", load.flow) }
}

/// CPU per request of a path under one load. The error is a sentence that says why there is none.
fn load_cost(one: &Selected<'_>) -> Result<LoadCost, String> {
    let variant = one.variant;
    let values = values_by_round(one.record, &Measure::PathCpu, &variant.name, ComparedTo::Nothing)?;
    let (cpu_us, is_interval) = Amount::of_rounds(&values);
    Ok(LoadCost {
        file: one.file.to_owned(),
        variant: variant.name.clone(),
        per_s: median(&figures(variant, &Figure::PerSecond)),
        cpu_us,
        rounds: values.len(),
        is_interval,
        is_base: one.is_base,
    })
}

/// Compares CPU per request at the lowest and the highest measured rates.
fn constancy(loads: &[LoadCost]) -> Constancy {
    let ends = |of: fn(&LoadCost) -> f64| {
        let values = loads.iter().map(of);
        values.fold([f64::INFINITY, 0.0_f64], |[least, most], value| [least.min(value), most.max(value)])
    };
    let (rates, cpu) = (ends(|load| load.per_s), ends(|load| load.cpu_us.point));
    let factor = cpu[1] / cpu[0];
    if rates[1] < RATES_APART * rates[0] || !factor.is_finite() {
        Constancy::NotChecked
    } else if factor <= CONSTANT_WITHIN {
        Constancy::Constant { rates, factor }
    } else {
        Constancy::Varies { rates, factor }
    }
}

/// Costs of the components of the base variants, those of the plan first.
fn components(selected: &[Selected<'_>]) -> Vec<ComponentCost> {
    let base: Vec<&Selected<'_>> = selected.iter().filter(|one| one.is_base).collect();
    let counted = selected[0].variant.cost_components();
    let mut names = counted.clone();
    for name in base.iter().flat_map(|one| one.variant.component_names()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let cost = |name: String| {
        let measure = Measure::Cpu { component: name.clone() };
        let of = |one: &&Selected<'_>| {
            let values = values_by_round(one.record, &measure, &one.variant.name, ComparedTo::Nothing);
            values.ok().map(|values| Amount::of_rounds(&values).0)
        };
        let amounts: Option<Vec<Amount>> = base.iter().map(of).collect();
        ComponentCost {
            is_counted: counted.contains(&name),
            cpu_us: amounts.map(|amounts| Amount::of_all(amounts.into_iter())),
            name,
        }
    };
    names.into_iter().map(cost).collect()
}

/// Text about the range of an amount.
fn range_words(is_interval: bool) -> String {
    if is_interval {
        "the interval contains the true median with 95 % or more (of five rounds 94 %)".to_owned()
    } else {
        format!("the range is that of the rounds; an interval needs {MIN_OBSERVATIONS} of them")
    }
}

/// Names of variants, for errors.
fn names<'a>(variants: impl Iterator<Item = &'a Variant>) -> String {
    variants.map(|variant| format!("`{}`", variant.name)).collect::<Vec<_>>().join(", ")
}
