//! Paths: the variants that a verdict compares, and the sentences about their costs.
//!
//! Owns: which variants are under one load, which time their users wait for, and when a difference
//! between the highest and the lowest figure is certain.

use crate::formatting;
use crate::offline::report::LATENCIES;
use crate::record::{Arrivals, Doubt, Finding, Record, StreamKind, Variant};
use crate::statistics::{
    Equivalence, Figure, StreamFigure, compare_paired_among, display, figures, median, paired_figures,
};

/// Most variants whose figures a sentence lists one by one.
const MAX_LISTED: usize = 6;
/// Most variants that a sentence divides by the baseline.
const MAX_DIVIDED: usize = 12;
/// What counts as the same, as a share: as much as `lab compare` takes by default.
const MARGIN: f64 = 0.05;
/// Probability below which chance is ruled out.
const ALPHA: f64 = 0.05;

/// Variants under one load.
pub(super) struct Paths<'a> {
    /// The variants, in the order of the record.
    pub(super) variants: Vec<&'a Variant>,
    /// The time that their users wait for.
    pub(super) wait: Wait,
    /// The one that the scenario divides the others by.
    baseline: Option<&'a str>,
    findings: &'a [Finding],
}

/// The time that users of the paths wait for. The service decides how long a stream takes, so the
/// time to its first event counts.
pub(super) struct Wait {
    /// What it is, such as `time to the first event`; `None`: the latency.
    pub(super) name: Option<&'static str>,
    /// Its P50, P95 and P99.
    pub(super) percentiles: [Figure; 3],
}

impl Wait {
    fn of(variants: &[&Variant]) -> Self {
        let percentiles =
            |of: fn(u32) -> StreamFigure| [50_000, 95_000, 99_000].map(|share| Figure::Stream(of(share)));
        match variants.first().and_then(|variant| variant.stream_kind()) {
            None => Self { name: None, percentiles: LATENCIES },
            Some(StreamKind::Websocket) => Self {
                name: Some("time to open a WebSocket"),
                percentiles: percentiles(StreamFigure::FirstByte),
            },
            Some(_) => Self {
                name: Some("time to the first event"),
                percentiles: percentiles(StreamFigure::FirstEvent),
            },
        }
    }

    /// Words that follow `P50`, such as ` of the time to the first event`.
    pub(super) fn suffix(&self) -> String {
        self.name.map_or_else(String::new, |name| format!(" of the {name}"))
    }
}

/// The median of a figure of a variant.
struct Measured<'a> {
    variant: &'a Variant,
    figure: Figure,
    median: f64,
}

impl<'a> Paths<'a> {
    /// Selects the largest set of variants under one load of one generator. Of several, it is one
    /// with open arrivals, where throughput does not depend on latency, and then the first. The
    /// variants of a sweep differ in their load by plan and count only where there are no others.
    pub(super) fn of(record: &'a Record, findings: &'a [Finding]) -> Self {
        let swept = |variant: &Variant| record.sweeps.iter().any(|one| one.variants.contains(&variant.name));
        let measured = || record.variants.iter().filter(|variant| !variant.iterations.is_empty());
        let mut sets: Vec<Vec<&Variant>> = Vec::new();
        let all_swept = measured().all(swept);
        for variant in measured().filter(|variant| all_swept || !swept(variant)) {
            match sets.iter_mut().find(|set| is_same_load(set[0], variant)) {
                Some(set) => set.push(variant),
                None => sets.push(vec![variant]),
            }
        }
        let rank = |set: &Vec<&Variant>| (set.len(), set[0].load.arrivals == Arrivals::Open);
        // Of equals, the last one is the largest.
        let variants = sets.into_iter().rev().max_by_key(rank).unwrap_or_default();
        let baselines = record.comparisons.iter().map(|comparison| comparison.baseline.as_str());
        let baseline = baselines.into_iter().find(|name| variants.iter().any(|one| one.name == *name));
        Self { wait: Wait::of(&variants), variants, baseline, findings }
    }

    /// Whether a finding makes the figures of a variant unusable. A late generator distorts latency
    /// alone.
    pub(super) fn is_invalid(&self, variant: &Variant, is_latency: bool) -> bool {
        self.findings.iter().any(|finding| {
            finding.doubt == Doubt::Invalid
                && finding.variants.contains(&variant.name)
                && (is_latency || finding.name != "generator-late")
        })
    }

    /// Whether connections were held on every path.
    pub(super) fn hold_connections(&self) -> bool {
        let held = |variant: &&Variant| variant.iterations.iter().any(|iteration| iteration.held.is_some());
        !self.variants.is_empty() && self.variants.iter().all(held)
    }

    /// Sentence about the CPU per request of the programs in front of the service; `None` where it
    /// is not known.
    pub(super) fn cpu(&self) -> Option<String> {
        // The service alone has no path in front of it.
        let has_path = |variant: &Variant| variant.path.len() > 1 || !variant.load.is_exchange();
        let figure = |variant: &Variant| {
            has_path(variant).then(|| Figure::CpuPerRequestSum(variant.cost_components()))
        };
        self.sentence("CPU per request", &self.measured(figure, false), "")
    }

    /// Sentence about the latency; `None` where it is not known.
    pub(super) fn latency(&self) -> Option<String> {
        let [usual, _, last] = &self.wait.percentiles;
        let (tail, _) = self.measured(|_| Some(last.clone()), true);
        let tail = match &tail[..] {
            [] => String::new(),
            [one] => format!("; P99: {}", formatting::time(one.median)),
            [lowest, .., highest] => format!(
                "; P99: from {} (`{}`) to {} (`{}`)",
                formatting::time(lowest.median),
                lowest.variant.name,
                formatting::time(highest.median),
                highest.variant.name
            ),
        };
        let name = format!("P50{}", self.wait.suffix());
        self.sentence(&name, &self.measured(|_| Some(usual.clone()), true), &tail)
    }

    /// Sentence about a figure: the figures and the note about what is left out; `None` where nothing
    /// was measured.
    fn sentence(&self, name: &str, (all, note): &(Vec<Measured<'_>>, String), tail: &str) -> Option<String> {
        let load = self.load()?;
        match self.divided(all).or_else(|| list(all)) {
            Some(figures) => Some(format!("{name}{load}: {figures}{tail}{note}.")),
            None if note.is_empty() => None,
            None => Some(format!("{name}{load}: not known, because all figures are invalid.")),
        }
    }

    /// Lists figures divided by that of the baseline, round by round, with a mark where a difference
    /// is not certain; `None` where the baseline or the others have no figure.
    fn divided(&self, all: &[Measured<'_>]) -> Option<String> {
        let baseline = all.iter().find(|one| Some(one.variant.name.as_str()) == self.baseline)?;
        let others: Vec<&Measured<'_>> =
            all.iter().filter(|one| one.variant.name != baseline.variant.name).collect();
        let ratio = |other: &&Measured<'_>| {
            let pairs = paired_figures((baseline.variant, &baseline.figure), (other.variant, &other.figure));
            let ratios: Vec<f64> = pairs.iter().map(|(own, other)| other / own).collect();
            let ratio = if ratios.is_empty() { other.median / baseline.median } else { median(&ratios) };
            let mark = match compare_paired_among(&pairs, MARGIN, others.len()) {
                Equivalence::Equivalent { .. } => " (the same)",
                Equivalence::Different { .. } | Equivalence::DifferentInMostRounds { .. } => "",
                Equivalence::DifferentEachRound { chance, .. } if chance * (others.len() as f64) < ALPHA => {
                    ""
                }
                _ => " (not certain)",
            };
            format!("`{}` {}{mark}", other.variant.name, formatting::factor(ratio))
        };
        let listed: Vec<String> = others.iter().take(MAX_DIVIDED).map(ratio).collect();
        let more = match others.len().saturating_sub(MAX_DIVIDED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let own = format!("`{}` {}", baseline.variant.name, formatting::time(baseline.median));
        (!listed.is_empty())
            .then(|| format!("{own}; divided by it, certain unless marked: {}{more}", listed.join(", ")))
    }

    /// The load in few words, such as ` at 900/s`; `None` without variants.
    fn load(&self) -> Option<String> {
        let load = &self.variants.first()?.load;
        Some(match (load.arrivals, load.rate_per_s, load.concurrency) {
            (Arrivals::Open, ..) if !load.stages.is_empty() => " under a rate that changes".to_owned(),
            (Arrivals::Open, Some(rate), _) => format!(" at {}/s", formatting::digits(rate)),
            (Arrivals::Closed, _, Some(workers)) => format!(" with {workers} workers in a closed loop"),
            _ => String::new(),
        })
    }

    /// Medians of the variants that have the figure, the lowest first, and a note about those that
    /// are left out because their figures are invalid.
    fn measured(
        &self,
        figure_of: impl Fn(&Variant) -> Option<Figure>,
        is_latency: bool,
    ) -> (Vec<Measured<'a>>, String) {
        let (mut all, mut left_out) = (Vec::new(), Vec::new());
        for &variant in &self.variants {
            let Some(figure) = figure_of(variant) else { continue };
            let values = figures(variant, &figure);
            if values.is_empty() {
                continue;
            }
            if self.is_invalid(variant, is_latency) {
                left_out.push(variant.name.as_str());
            } else {
                all.push(Measured { variant, figure, median: median(&values) });
            }
        }
        all.sort_by(|a, b| a.median.total_cmp(&b.median));
        let note = match left_out[..] {
            [] => String::new(),
            [one] => format!(" (without `{one}`, whose figures are invalid)"),
            _ => format!(" (without {} variants, whose figures are invalid)", left_out.len()),
        };
        (all, note)
    }
}

/// Whether two variants are under one load of one generator. What another program sends differs in
/// more than the record can say.
fn is_same_load(one: &Variant, other: &Variant) -> bool {
    one.load == other.load && one.labels.get("generator") == other.labels.get("generator")
}

/// Lists figures from the lowest to the highest, with a statement about the difference; `None`
/// without any.
fn list(all: &[Measured<'_>]) -> Option<String> {
    let (lowest, highest) = (all.first()?, all.last()?);
    let one = |it: &Measured<'_>| format!("`{}` {}", it.variant.name, formatting::time(it.median));
    let listed = if all.len() <= MAX_LISTED {
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    } else {
        format!("lowest {}, highest {}, of {} variants", one(lowest), one(highest), all.len())
    };
    if all.len() < 2 {
        return Some(listed);
    }
    Some(format!("{listed}; {}", difference(lowest, highest, all.len())))
}

/// States how much the highest figure exceeds the lowest of `among` variants, and whether that is
/// certain. Whoever picks two of many variants finds a difference by chance more easily: the tests
/// allow for the number of pairs.
fn difference(lowest: &Measured<'_>, highest: &Measured<'_>, among: usize) -> String {
    let pairs = paired_figures((lowest.variant, &lowest.figure), (highest.variant, &highest.figure));
    let possible = among * (among - 1) / 2;
    let effect = |effect| display::effect(&lowest.figure, effect);
    let by_chance = |chance: f64| {
        if chance * (possible as f64) < ALPHA {
            "which is certain".to_owned()
        } else if possible == 1 {
            format!("which chance alone shows in {} of runs", formatting::percent(chance))
        } else {
            format!("which is not certain for two that were picked from {among} variants: run more rounds")
        }
    };
    match &compare_paired_among(&pairs, MARGIN, possible) {
        Equivalence::Equivalent { margin, .. } => {
            format!("they are the same within {}, which is certain", formatting::percent(*margin))
        }
        Equivalence::Different { effect: of } => {
            format!("highest ÷ lowest: {}, which is certain", effect(of))
        }
        Equivalence::DifferentEachRound { effect: of, rounds, chance } => {
            format!("highest ÷ lowest in each of {rounds} rounds: {}, {}", effect(of), by_chance(*chance))
        }
        Equivalence::DifferentInMostRounds { effect: of, same_side, rounds, chance } => format!(
            "highest ÷ lowest in {same_side} of {rounds} rounds: {}, {}",
            effect(of),
            by_chance(*chance)
        ),
        Equivalence::Inconclusive { effect: Some(of) } => {
            format!("highest ÷ lowest: {}, which is not certain", effect(of))
        }
        Equivalence::Inconclusive { effect: None } => format!(
            "highest ÷ lowest: {}, which is not certain ({})",
            formatting::factor(highest.median / lowest.median),
            match pairs.len() {
                0 => "no round in common".to_owned(),
                1 => "one round".to_owned(),
                rounds => format!("{rounds} rounds"),
            }
        ),
    }
}
