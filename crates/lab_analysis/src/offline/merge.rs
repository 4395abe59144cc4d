//! Merge: combines the records of several load generators of one run (`lab merge`).
//!
//! Owns: what has to agree, and how each part is combined.
//!
//! - Counts and histograms add up. Rates are the sum of the generators' rates.
//! - Time axes are shifted onto one axis. Percentiles of a slice cannot be added and are left out.
//! - Programs that several generators observed are taken from the first of them.
//! - Findings are computed anew, because each generator divided a program's use by its own share of
//!   the requests. Findings that only the run itself could make are kept.

use crate::diagnose;
use crate::record::{
    Changes, Distribution, Finding, GeneratorUse, HeldConnections, Iteration, Origin, Phase, Record,
    Revocations, Slice, Staleness, Variant,
};
use crate::units::truncated;

/// Share of the window by which two windows have to overlap to have run at the same time.
const MIN_OVERLAP: f64 = 0.8;

/// Why records cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There are fewer than two records.
    #[error("merging needs the records of at least two generators")]
    TooFew,
    /// A fact that has to agree differs.
    #[error("`{name}` is not of the same run as `{first}`: {reason}")]
    Differs {
        /// Name of the first record.
        first: String,
        /// Name of the record that differs.
        name: String,
        /// Description of the difference.
        reason: String,
    },
    /// A record was imported from another tool.
    #[error("`{name}` was imported from another tool: its start time is unknown")]
    Imported {
        /// Name of the record.
        name: String,
    },
}

/// Merges records, each with the name that errors use for it.
pub fn merge(records: Vec<(String, Record)>) -> Result<Record, MergeError> {
    if records.len() < 2 {
        return Err(MergeError::TooFew);
    }
    let starts =
        records.iter().map(|(name, record)| start_ms(name, record)).collect::<Result<Vec<u64>, _>>()?;
    let origin = starts.iter().copied().min().unwrap_or(0);
    let mut all =
        records.into_iter().zip(starts).map(|((name, record), start)| (name, record, start - origin));
    let Some((first, mut merged, shift)) = all.next() else { return Err(MergeError::TooFew) };
    merged.variants.iter_mut().for_each(|variant| shift_start(variant, shift));
    merged.run.started_unix_s = Some(origin as f64 / 1e3);
    merged.findings.retain(diagnose::is_kept);
    for (name, mut record, shift) in all {
        let differs =
            |reason: String| MergeError::Differs { first: first.clone(), name: name.clone(), reason };
        check_same_run(&merged, &record).map_err(differs)?;
        record.variants.iter_mut().for_each(|variant| shift_start(variant, shift));
        for (into, from) in merged.variants.iter_mut().zip(record.variants) {
            add_variant(into, from).map_err(differs)?;
        }
        if let (Origin::Lab { generators, .. }, Origin::Lab { generators: more, .. }) =
            (&mut merged.run.origin, &record.run.origin)
        {
            *generators += more;
        }
        merged.run.quick |= record.run.quick;
        merged.run.partial |= record.run.partial;
        extend_unique(&mut merged.run.machines, record.run.machines);
        extend_unique(&mut merged.run.peers, record.run.peers);
        let known = |finding: &Finding, all: &[Finding]| {
            all.iter().any(|known| (&known.name, &known.variants) == (&finding.name, &finding.variants))
        };
        for finding in record.findings.into_iter().filter(diagnose::is_kept) {
            if !known(&finding, &merged.findings) {
                merged.findings.push(finding);
            }
        }
    }
    merged.findings = diagnose::findings(&merged);
    merged.thin();
    Ok(merged)
}

fn extend_unique<T: PartialEq>(into: &mut Vec<T>, from: Vec<T>) {
    for one in from {
        if !into.contains(&one) {
            into.push(one);
        }
    }
}

/// Start of the run of a record, milliseconds since 1970.
fn start_ms(name: &str, record: &Record) -> Result<u64, MergeError> {
    match (&record.run.origin, record.run.started_unix_s) {
        (Origin::Lab { .. }, Some(start)) => Ok(truncated((start * 1e3).round())),
        _ => Err(MergeError::Imported { name: name.to_owned() }),
    }
}

fn shift_start(variant: &mut Variant, shift: u64) {
    variant.iterations.iter_mut().for_each(|iteration| iteration.start_ms += shift);
}

/// Checks what has to be the same in both records. The error describes the difference.
fn check_same_run(a: &Record, b: &Record) -> Result<(), String> {
    let same = |field: &str, a: &Option<String>, b: &Option<String>| {
        let shown =
            |one: &Option<String>| one.as_ref().map_or("not known".to_owned(), |one| format!("`{one}`"));
        if a == b { Ok(()) } else { Err(format!("its {field} is {}, not {}", shown(b), shown(a))) }
    };
    same("scenario", &a.run.scenario, &b.run.scenario)?;
    same("commit", &a.run.commit, &b.run.commit)?;
    same("configuration", &a.run.configuration, &b.run.configuration)?;
    let names = |record: &Record| {
        let names = record.variants.iter().map(|variant| format!("`{}`", variant.name));
        names.collect::<Vec<_>>().join(", ")
    };
    if names(a) != names(b) {
        return Err(format!("its variants are {}, not {}", names(b), names(a)));
    }
    if a.ladders != b.ladders || a.sweeps != b.sweeps || a.comparisons != b.comparisons {
        return Err("its ladders, sweeps or comparisons differ".to_owned());
    }
    Ok(())
}

fn add_variant(into: &mut Variant, from: Variant) -> Result<(), String> {
    let numbers = |variant: &Variant| {
        let numbers = variant.iterations.iter().map(|iteration| iteration.number.to_string());
        numbers.collect::<Vec<_>>().join(", ")
    };
    if numbers(into) != numbers(&from) {
        return Err(format!("iterations of `{}` are {}, not {}", into.name, numbers(&from), numbers(into)));
    }
    if into.load.arrivals != from.load.arrivals || into.load.flow != from.load.flow {
        return Err(format!("the load of `{}` has other arrivals or another flow", into.name));
    }
    extend_unique(&mut into.missing, from.missing);
    if into.counters != from.counters {
        return Err(format!("the counts per request of `{}` differ", into.name));
    }
    if into.load.stages.len() != from.load.stages.len() {
        return Err(format!("the load of `{}` has other stages", into.name));
    }
    for (stage, other) in into.load.stages.iter_mut().zip(&from.load.stages) {
        stage.from_per_s += other.from_per_s;
        stage.to_per_s += other.to_per_s;
    }
    into.load.rate_per_s = into.load.rate_per_s.zip(from.load.rate_per_s).map(|(a, b)| a + b);
    into.load.concurrency =
        into.load.concurrency.zip(from.load.concurrency).map(|(a, b)| a.saturating_add(b));
    // Generators may use the same tokens, so the counts are not added up. Different counts leave
    // the total unknown.
    into.load.tokens = into.load.tokens.filter(|tokens| from.load.tokens == Some(*tokens));
    // Each generator knows only its own requests, so the number in flight is not known.
    into.profile = into.profile.take().or(from.profile);
    if let Some(profile) = &mut into.profile {
        (profile.mean_in_flight, profile.mean_us) = (None, None);
    }
    for (left, right) in into.iterations.iter_mut().zip(from.iterations) {
        add_iteration(left, right).map_err(|reason| format!("`{}`: {reason}", into.name))?;
    }
    Ok(())
}

fn add_iteration(into: &mut Iteration, mut from: Iteration) -> Result<(), String> {
    let start = into.start_ms.min(from.start_ms);
    shift_times(into, start);
    shift_times(&mut from, start);
    let (begin, end) =
        (into.warmup_s.max(from.warmup_s), (into.warmup_s + into.seconds).min(from.warmup_s + from.seconds));
    if (end - begin) < MIN_OVERLAP * into.seconds.max(from.seconds) {
        return Err(format!(
            "the windows of iteration {} overlap by only {:.1} s",
            into.number,
            (end - begin).max(0.0)
        ));
    }
    let ended = |iteration: &Iteration| iteration.classes.iter().map(|class| class.count).sum::<u64>() as f64;
    let (all, rate) = (ended(into) + ended(&from), ended(into) / into.seconds + ended(&from) / from.seconds);
    // This length keeps the sum of the rates.
    into.seconds = if rate > 0.0 { all / rate } else { end - begin };
    into.warmup_s = begin;
    into.unsent += from.unsent;
    into.service = sum_of(into.service.take(), from.service);
    into.mean_in_flight = into.mean_in_flight.zip(from.mean_in_flight).map(|(a, b)| a + b);
    into.stated = None;
    // Each generator had its own program that sent the load.
    into.sender = None;
    add_held(into, from.held);
    add_classes(into, from.classes);
    for event in from.events {
        // All generators of one run record the same events, each by its own clock.
        if !into.events.iter().any(|known| known.what == event.what) {
            into.events.push(event);
        }
    }
    into.timeline = add_timelines(&into.timeline, &from.timeline);
    for component in from.components {
        if !into.components.iter().any(|known| known.name == component.name) {
            into.components.push(component);
        }
    }
    add_phases(&mut into.phases, from.phases);
    add_staleness(&mut into.staleness, from.staleness);
    into.revocations = match (into.revocations.take(), from.revocations) {
        (Some(own), Some(other)) => Some(add_revocations(own, other)),
        (own, other) => own.or(other),
    };
    into.changes = match (into.changes.take(), from.changes) {
        (Some(own), Some(other)) => Some(add_changes(own, other)),
        (own, other) => own.or(other),
    };
    into.scrapes = match (into.scrapes.take(), from.scrapes) {
        (Some(mut own), Some(other)) => {
            own.failed += other.failed;
            own.example = own.example.or(other.example);
            own.largest_bytes = own.largest_bytes.max(other.largest_bytes);
            own.duration.add(&other.duration);
            own.windows = match (own.windows.take(), other.windows) {
                (Some(mut own), Some(other)) => {
                    own.add(&other);
                    Some(own)
                }
                _ => None,
            };
            Some(own)
        }
        (own, other) => own.or(other),
    };
    into.streams = match (into.streams.take(), from.streams) {
        (Some(mut own), Some(other)) => {
            own.add(other);
            Some(own)
        }
        (own, other) => own.or(other),
    };
    into.generator = match (into.generator.take(), from.generator) {
        (Some(own), Some(other)) => Some(worst_of(own, &other)),
        (own, other) => own.or(other),
    };
    Ok(())
}

fn add_phases(into: &mut Vec<Phase>, from: Vec<Phase>) {
    for phase in from {
        let name = |phase: &Phase| (phase.component.clone(), phase.name.clone());
        match into.iter_mut().find(|known| name(known) == name(&phase)) {
            Some(known) => known.duration.add(&phase.duration),
            None => into.push(phase),
        }
    }
}

fn add_staleness(into: &mut Vec<Staleness>, from: Vec<Staleness>) {
    for seen in from {
        match into.iter_mut().find(|known| (&known.node, &known.cluster) == (&seen.node, &seen.cluster)) {
            Some(known) => {
                known.delay.add(&seen.delay);
                known.never += seen.never;
            }
            None => into.push(seen),
        }
    }
}

fn add_changes(mut own: Changes, other: Changes) -> Changes {
    own.rate_per_s += other.rate_per_s;
    own.made += other.made;
    own.failed += other.failed;
    own.never += other.never;
    own.example = own.example.or(other.example);
    own.write.add(&other.write);
    own.in_force.add(&other.in_force);
    own
}

fn add_revocations(mut own: Revocations, other: Revocations) -> Revocations {
    own.revoked += other.revoked;
    own.failed += other.failed;
    own.asked += other.asked;
    own.answer = sum_of(own.answer, other.answer);
    own.flood = match (own.flood, other.flood) {
        (Some(mut one), Some(other)) => {
            one.revoked += other.revoked;
            one.failed += other.failed;
            one.refused += other.refused;
            one.admitted += other.admitted;
            one.unclear += other.unclear;
            one.example = one.example.or(other.example);
            one.took_s = one.took_s.max(other.took_s);
            one.answer.add(&other.answer);
            Some(one)
        }
        (one, other) => one.or(other),
    };
    own.after_window &= other.after_window;
    own.example = own.example.or(other.example);
    own.cpu_share = worst(own.cpu_share, other.cpu_share);
    own
}

/// The worse of each figure of two generators.
fn worst_of(mut own: GeneratorUse, other: &GeneratorUse) -> GeneratorUse {
    own.cpu_share = worst(own.cpu_share, other.cpu_share);
    own.core_wait_share = worst(own.core_wait_share, other.core_wait_share);
    own.stolen_share = worst(own.stolen_share, other.stolen_share);
    own.lag_p99_us = worst(own.lag_p99_us, other.lag_p99_us);
    own.limited |= other.limited;
    own
}

fn worst(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    [a, b].into_iter().flatten().reduce(f64::max)
}

/// Adds up held connections. The median lifetime over both is not known.
fn add_held(into: &mut Iteration, from: Option<HeldConnections>) {
    let (Some(own), Some(other)) = (&mut into.held, &from) else {
        into.held = into.held.take().or(from);
        return;
    };
    own.asked += other.asked;
    own.opened += other.opened;
    own.open_at_end += other.open_at_end;
    own.closed_by_server += other.closed_by_server;
    for (status, count) in &other.statuses {
        *own.statuses.entry(*status).or_default() += count;
    }
    own.lifetime_p50_us = None;
    let longest = |own: Option<f64>, other: Option<f64>| [own, other].into_iter().flatten().reduce(f64::max);
    own.lifetime_max_us = longest(own.lifetime_max_us, other.lifetime_max_us);
    own.open_longest_us = longest(own.open_longest_us, other.open_longest_us);
    // The memory before all connections: the lower value includes fewer of the other generators'
    // connections.
    for (name, bytes) in &other.memory_before {
        own.memory_before
            .entry(name.clone())
            .and_modify(|known| *known = (*known).min(*bytes))
            .or_insert(*bytes);
    }
}

/// Sum of two distributions; `None` when one is unknown.
fn sum_of(a: Option<Distribution>, b: Option<Distribution>) -> Option<Distribution> {
    let (mut a, b) = a.zip(b)?;
    a.add(&b);
    Some(a)
}

fn add_classes(into: &mut Iteration, from: Vec<crate::record::Class>) {
    for class in from {
        let same = |known: &&mut crate::record::Class| {
            (known.outcome, known.status, &known.fault) == (class.outcome, class.status, &class.fault)
        };
        match into.classes.iter_mut().find(same) {
            Some(known) => {
                known.count += class.count;
                known.latency = sum_of(known.latency.take(), class.latency);
                known.example = known.example.take().or(class.example);
            }
            None => into.classes.push(class),
        }
    }
}

/// Shifts the time axis of an iteration so that it counts from an earlier start.
fn shift_times(iteration: &mut Iteration, start: u64) {
    let shift = iteration.start_ms - start;
    iteration.start_ms = start;
    iteration.warmup_s += shift as f64 / 1e3;
    iteration.timeline.iter_mut().for_each(|slice| slice.at_ms += shift);
    iteration.events.iter_mut().for_each(|event| event.at_ms += shift);
    let stalled = iteration.streams.iter_mut().flat_map(|streams| &mut streams.stalled);
    stalled.for_each(|stall| stall.at_ms += shift);
    iteration
        .components
        .iter_mut()
        .flat_map(|component| &mut component.samples)
        .for_each(|sample| sample.at_ms += shift);
}

/// Slices of both timelines on one grid, as wide as the widest slice. A slice counts in the cell of
/// its middle.
fn add_timelines(a: &[Slice], b: &[Slice]) -> Vec<Slice> {
    let Some(width) = a.iter().chain(b).map(|slice| slice.ms).max() else { return Vec::new() };
    let mut grid: std::collections::BTreeMap<u64, Slice> = std::collections::BTreeMap::new();
    for slice in a.iter().chain(b) {
        let at_ms = (slice.at_ms + slice.ms / 2) / width * width;
        let cell = grid.entry(at_ms).or_insert(Slice {
            at_ms,
            ms: width,
            ok: 0,
            bad: 0,
            p50_us: None,
            p99_us: None,
            max_us: None,
        });
        cell.ok += slice.ok;
        cell.bad += slice.bad;
        cell.max_us = [cell.max_us, slice.max_us].into_iter().flatten().reduce(f64::max);
    }
    grid.into_values().collect()
}
