//! Run record: builds the record of a run from its measurements.
//!
//! Owns: the order of variants, the findings about variants that were not or only partly measured,
//! and the tables of the scenario that its variants fill. Does not own: measuring
//! ([`super::measure`]), and findings from figures ([`lab_analysis::diagnose`]).

use std::collections::BTreeMap;

use lab_analysis::diagnose;
use lab_analysis::offline::audit::Tables;
use lab_analysis::record::{
    Comparison, Doubt, Finding, Ladder, Record, Reference, Run, Rung, Sweep, Variant,
};

use super::RunError;
use crate::scenario::{Arrangement, Scenario};

/// Variants without complete measurements.
pub(super) struct MissingMeasurements<'a> {
    /// Failed arrangements, and variants in which no request ever ended, with the reason.
    pub(super) failed: &'a [(String, String)],
    /// Rounds per variant in whose windows no request ended.
    pub(super) empty_rounds: &'a BTreeMap<String, Vec<u32>>,
}

/// Builds the record from the measured variants.
///
/// # Errors
/// The published tables cannot be read.
pub(super) fn build_record(
    scenario: &Scenario,
    run: Run,
    mut variants: BTreeMap<String, Variant>,
    unmeasured: &MissingMeasurements<'_>,
) -> Result<Record, RunError> {
    let mut record = Record::new(run);
    for name in scenario.variants() {
        record.variants.extend(variants.remove(&name));
    }
    unmeasured.mark(scenario, &mut record);
    record.ladders = ladders(scenario, &record);
    record.sweeps = sweeps(scenario, &record);
    record.comparisons = comparisons(scenario, &record);
    record.targets = scenario.targets();
    let published = Tables::shipped()?;
    for reference in &scenario.references {
        let rows = published.references(&reference.id, reference.beside.as_deref());
        let shown = |row: &Reference| row.beside.as_ref().is_none_or(|name| record.variant(name).is_some());
        let rows: Vec<Reference> = rows.into_iter().filter(shown).collect();
        record.reference.extend(rows);
    }
    let noticed = unmeasured.findings(scenario, &record);
    record.findings.extend(noticed);
    // Findings are computed before the timeline is thinned, because pauses may be as short as one
    // slice.
    record.findings = diagnose::findings(&record);
    record.thin();
    Ok(record)
}

impl MissingMeasurements<'_> {
    /// Marks the rounds that variants lack: all remaining rounds of a failed arrangement, and those
    /// in which no request ended. Rounds that an interrupted run did not reach are not marked: the
    /// whole run is then marked as partial.
    fn mark(&self, scenario: &Scenario, record: &mut Record) {
        for arrangement in &scenario.arrangements {
            let failed = self.failed.iter().any(|(name, _)| *name == arrangement.name);
            for load in &arrangement.loads {
                let name = scenario.variant(arrangement, load);
                let Some(variant) = record.variants.iter_mut().find(|variant| variant.name == name) else {
                    continue;
                };
                if failed {
                    let rounds = scenario.loads[load].rounds_of(scenario.rounds);
                    let has =
                        |round: &u32| variant.iterations.iter().any(|iteration| iteration.number == *round);
                    variant.missing = (1..=rounds).filter(|round| !has(round)).collect();
                } else if let Some(rounds) = self.empty_rounds.get(&name) {
                    variant.missing.clone_from(rounds);
                }
            }
        }
    }

    /// Findings about missing measurements.
    fn findings(&self, scenario: &Scenario, record: &Record) -> Vec<Finding> {
        let not_measured = self.failed.iter().map(|(name, why)| Finding {
            name: "not-measured".to_owned(),
            variants: variants_of(scenario, name),
            doubt: Doubt::Careful,
            evidence: first_line(why),
            remedy: "this report covers only the other variants: remove the cause and run the scenario again"
                .to_owned(),
        });
        let some = self.empty_rounds.iter().filter(|(variant, _)| record.variant(variant).is_some());
        let nothing_ended = some.map(|(variant, rounds)| Finding {
            name: "nothing-ended".to_owned(),
            variants: vec![variant.clone()],
            doubt: Doubt::Careful,
            evidence: empty_rounds_text(rounds),
            remedy:
                "its figures cover only the other, better rounds: make the window longer than one request \
                    takes, or reduce the load"
                    .to_owned(),
        });
        not_measured.chain(nothing_ended).collect()
    }
}

/// Variants of the arrangement with this name. If `name` is the name of a variant, that variant
/// itself.
fn variants_of(scenario: &Scenario, name: &str) -> Vec<String> {
    let all = |arrangement: &Arrangement| -> Vec<String> {
        arrangement.loads.iter().map(|load| scenario.variant(arrangement, load)).collect()
    };
    let arrangement = scenario.arrangements.iter().find(|arrangement| arrangement.name == name);
    arrangement.map_or_else(|| vec![name.to_owned()], all)
}

/// Text for rounds without an iteration.
pub(super) fn empty_rounds_text(rounds: &[u32]) -> String {
    let numbers: Vec<String> = rounds.iter().map(u32::to_string).collect();
    format!(
        "no request ended in the window of {} {}",
        if rounds.len() == 1 { "round" } else { "rounds" },
        numbers.join(", ")
    )
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_end_matches(':').to_owned()
}

/// Ladders whose rungs were all measured, one for each combination of token mode and load.
fn ladders(scenario: &Scenario, record: &Record) -> Vec<Ladder> {
    let mut ladders: Vec<Ladder> = Vec::new();
    for table in &scenario.ladders {
        for (mode, load) in scenario.combinations() {
            let name = |text: &str| crate::scenario::expand_name(text, &mode, &load);
            let rungs =
                table.rungs.iter().map(|rung| Rung { adds: rung.adds.clone(), variant: name(&rung.variant) });
            let ladder = Ladder { name: name(&table.name), rungs: rungs.collect() };
            let whole = ladder.rungs.iter().all(|rung| record.variant(&rung.variant).is_some());
            if whole && ladder.rungs.len() > 1 && !ladders.contains(&ladder) {
                ladders.push(ladder);
            }
        }
    }
    ladders
}

/// Sweeps of which at least three variants were measured.
fn sweeps(scenario: &Scenario, record: &Record) -> Vec<Sweep> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    for table in &scenario.sweeps {
        for (mode, load) in scenario.combinations() {
            let name = |text: &String| crate::scenario::expand_name(text, &mode, &load);
            let variants = table.variants.iter().map(name).filter(|name| record.variant(name).is_some());
            let sweep = Sweep { name: name(&table.name), variants: variants.collect() };
            if sweep.variants.len() > 2 && !sweeps.contains(&sweep) {
                sweeps.push(sweep);
            }
        }
    }
    sweeps
}

/// One comparison per baseline and load, with every other variant under that load.
fn comparisons(scenario: &Scenario, record: &Record) -> Vec<Comparison> {
    let mut comparisons: Vec<Comparison> = Vec::new();
    for named in &scenario.baselines {
        for (mode, load) in scenario.combinations() {
            let name = crate::scenario::expand_name(named, &mode, &load);
            let Some(baseline) = record.variant(&name) else { continue };
            let has_same_load =
                |variant: &&Variant| variant.labels.get("load") == baseline.labels.get("load");
            let others =
                record.variants.iter().filter(has_same_load).filter(|variant| variant.name != baseline.name);
            let variants: Vec<String> = others.map(|variant| variant.name.clone()).collect();
            let comparison = Comparison { baseline: baseline.name.clone(), variants };
            if !comparison.variants.is_empty() && !comparisons.contains(&comparison) {
                comparisons.push(comparison);
            }
        }
    }
    comparisons
}
