//! Profiles: report section with flame graphs, the heaviest functions and what threads waited for.
//!
//! Owns: the section, and the file of stacks.
//! Does not own: the layout of a graph ([`crate::offline::flame`]), the statistics.

use std::fmt::Write as _;

use crate::formatting;
use crate::offline::flame::flame;
use crate::offline::render::{Section, Table};
use crate::record::{ComponentProfile, ProfileRound, Record, StackProfile, Variant};
use crate::statistics::{Figure, figures, functions, median};

/// Functions in a table.
const HEAVIEST: usize = 10;
/// Most variants whose profiles are drawn: each graph makes the page larger.
const MAX_DRAWN: usize = 4;
/// Part of the CPU of a variant that a component has to use to be drawn.
const MIN_DRAWN_SHARE: f64 = 0.02;

/// Section with the profiles of each variant. Empty where none was taken.
pub(super) fn profiles(record: &Record) -> Section {
    let mut section = Section::new("Profiles");
    let profiled: Vec<(&Variant, &ProfileRound)> =
        record.variants.iter().filter_map(|variant| Some((variant, variant.profile.as_ref()?))).collect();
    if profiled.is_empty() {
        return section;
    }
    section.text(format!(
        "Taken in a round of their own after the measured ones, because profiling slows programs down. All stacks are in {}. A flame \
         graph is read from the top: below a call is what it called, and its width is its share of the time. Click a call to \
         widen what is below it.",
        super::STACKS
    ));
    for (number, (variant, profile)) in profiled.iter().enumerate() {
        of_variant(&mut section, variant, profile, number < MAX_DRAWN);
    }
    if profiled.len() > MAX_DRAWN {
        section.text(format!(
            "Graphs are drawn of the first {MAX_DRAWN} variants: use `lab report` on a record with fewer, or {}.",
            super::STACKS
        ));
    }
    section
}

fn of_variant(section: &mut Section, variant: &Variant, profile: &ProfileRound, drawn: bool) {
    let measured = figures(variant, &Figure::Mean);
    let slower = profile.mean_us.filter(|_| !measured.is_empty()).map(|mean| {
        format!(
            ", with a mean latency of {} instead of {}",
            formatting::time(mean),
            formatting::time(median(&measured))
        )
    });
    section.text(format!(
        "`{}`: round {}, {} s at {} requests/s{}.",
        variant.name,
        profile.round,
        formatting::digits(profile.seconds),
        formatting::digits(profile.per_s),
        slower.unwrap_or_default()
    ));
    let mut notes: Vec<&str> =
        profile.components.iter().flat_map(|one| &one.notes).map(String::as_str).collect();
    notes.sort_unstable();
    notes.dedup();
    for note in notes {
        section.text(format!("{note}."));
    }
    section.table(activities(variant, profile));
    section.table(threads(variant, profile));
    let used = |component: &ComponentProfile| component.on_cpu.as_ref().map_or(0.0, StackProfile::total_us);
    let all: f64 = profile.components.iter().map(used).sum();
    for component in &profile.components {
        let name = format!("{}: {}", variant.name, component.component);
        let graph = drawn && (all <= 0.0 || used(component) >= MIN_DRAWN_SHARE * all);
        for (stacks, what) in [(&component.on_cpu, "on a core"), (&component.off_cpu, "off a core")] {
            let Some(stacks) = stacks.as_ref().filter(|stacks| stacks.total_us() > 0.0) else { continue };
            if graph {
                let source = stacks.source.text();
                let title =
                    format!("{name}, {what} ({source}, {} samples)", formatting::count(stacks.samples));
                section.chart(flame(title, stacks));
            }
            section.table(heaviest(&format!("{name}, {what}: heaviest functions"), stacks));
        }
    }
}

/// Table of what threads did.
fn activities(variant: &Variant, profile: &ProfileRound) -> Table {
    let caption = format!("{}: threads on average", variant.name);
    let mut table = Table::new(&caption, ["component", "threads", "under load", "right after it"]);
    for component in &profile.components {
        for kind in &component.activities {
            table.row(vec![
                component.component.clone(),
                kind.activity.text().to_owned(),
                formatting::digits(kind.under_load),
                kind.at_rest.map_or_else(|| formatting::NONE.to_owned(), formatting::digits),
            ]);
        }
    }
    table
}

/// Table of the busiest threads.
fn threads(variant: &Variant, profile: &ProfileRound) -> Table {
    let caption = format!("{}: busiest threads, share of the time", variant.name);
    let mut table = Table::new(&caption, ["component", "thread", "on a core", "ready, without a core"]);
    for component in &profile.components {
        for thread in component.threads.iter().filter(|thread| thread.core_share > 0.0) {
            table.row(vec![
                component.component.clone(),
                thread.name.clone(),
                formatting::percent(thread.core_share),
                thread.core_wait_share.map_or_else(|| formatting::NONE.to_owned(), formatting::percent),
            ]);
        }
    }
    table.folded = true;
    table
}

/// Table of the functions with the most time of their own.
fn heaviest(caption: &str, stacks: &StackProfile) -> Table {
    let mut table = Table::new(caption, ["function", "self", "total", "time of its own"]);
    let whole = stacks.total_us();
    for time in functions(stacks).into_iter().take(HEAVIEST).filter(|time| time.self_share > 0.0) {
        table.row(vec![
            format!("`{}`", time.name),
            formatting::percent(time.self_share),
            formatting::percent(time.total_share),
            formatting::time(time.self_share * whole),
        ]);
    }
    table
}

/// All stacks of a record, folded: variant, component, `on-cpu` or `off-cpu` and the frames from the
/// outermost on, separated by semicolons, then the time in µs. Empty where no profile was taken.
pub(super) fn folded(record: &Record) -> String {
    let mut text = String::new();
    for variant in &record.variants {
        for component in variant.profile.iter().flat_map(|profile| &profile.components) {
            for (stacks, what) in [(&component.on_cpu, "on-cpu"), (&component.off_cpu, "off-cpu")] {
                let Some(stacks) = stacks else { continue };
                let head = [variant.name.as_str(), &component.component, what].map(field).join(";");
                for stack in &stacks.stacks {
                    let frames: Vec<String> = stacks.frames(stack).map(field).collect();
                    let _ = writeln!(text, "{head};{} {:.0}", frames.join(";"), stack.us);
                }
                if stacks.other_us > 0.0 {
                    let _ = writeln!(text, "{head};{} {:.0}", crate::statistics::OTHERS, stacks.other_us);
                }
            }
        }
    }
    text
}

/// A name that does not end its field.
fn field(name: &str) -> String {
    name.replace([';', '\n'], ":")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::offline::render::{Sheet, html};
    use crate::record::{Activity, ActivityThreads, StackSource, ThreadUse};
    use crate::test_support::sample;

    fn profiled() -> Record {
        let stacks = |source| {
            let stack = |text: &str| text.split(';').map(str::to_owned).collect::<Vec<String>>();
            let stacks = BTreeMap::from([
                (stack("worker-*;main;<gateway::Relay>::run;write_[k]"), 750.0),
                (stack("worker-*;main;read"), 250.0),
            ]);
            StackProfile::of(source, 2000, stacks)
        };
        let mut record = sample::record(1);
        let waiting = ActivityThreads { activity: Activity::Lock, under_load: 3.5, at_rest: Some(0.0) };
        record.variants[0].profile = Some(ProfileRound {
            round: 6,
            seconds: 5.0,
            per_s: 1000.0,
            mean_in_flight: Some(4.0),
            mean_us: Some(4000.0),
            components: vec![ComponentProfile {
                component: "gateway".to_owned(),
                activities: vec![waiting],
                threads: vec![ThreadUse {
                    name: "worker-0".to_owned(),
                    core_share: 0.5,
                    core_wait_share: None,
                }],
                on_cpu: Some(stacks(StackSource::PerfCpuClock)),
                off_cpu: Some(stacks(StackSource::ProcTasks)),
                notes: vec!["no stacks of thread switches: `perf` is not installed".to_owned()],
            }],
        });
        record.check().unwrap();
        record
    }

    #[test]
    fn a_profile_has_graphs_functions_and_threads() {
        let section = profiles(&profiled());
        let sheet = Sheet { sections: vec![section], ..Sheet::default() };
        let markdown = sheet.markdown();
        for text in [
            "round 6, 5.00 s at 1000 requests/s, with a mean latency of 4.00 ms",
            "`perf` is not installed.",
            "| gateway | waiting for a lock or a thread | 3.50 | 0 |",
            "| `write_[k]` | 75.00 % | 75.00 % | 750 µs |",
            "off a core (/proc, sampled",
        ] {
            assert!(markdown.contains(text), "{text} in {markdown}");
        }
        let page = html(&sheet);
        assert_eq!(page.matches("<svg data-flame").count(), 2);
        assert!(
            page.contains("<title>&lt;gateway::Relay&gt;::run\n75.00 % of the time, 750 µs</title>"),
            "{page}"
        );
    }

    #[test]
    fn stacks_are_folded_with_their_variant_and_component() {
        let record = profiled();
        let name = &record.variants[0].name;
        let text = folded(&record);
        let line = format!("{name};gateway;on-cpu;worker-*;main;<gateway::Relay>::run;write_[k] 750\n");
        assert!(text.contains(&line), "{text}");
        assert_eq!(text.lines().count(), 4);
        assert_eq!(folded(&sample::record(1)), "");
    }

    #[test]
    fn without_a_profile_there_is_no_section() {
        assert!(profiles(&sample::record(1)).blocks.is_empty());
    }
}
