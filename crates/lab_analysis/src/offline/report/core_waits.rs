//! Waits for cores: report section about the time in which programs were ready to run and had no
//! core, and about time that the host took.
//!
//! Owns: the table by component, and steal by variant.
//! Does not own: the computation ([`crate::statistics::CoreWait`]).

use crate::formatting;
use crate::offline::render::{Section, Table};
use crate::record::{Record, Variant};
use crate::statistics::{CoreWait, Figure, median};

/// Section with the waits of each component. Empty where they were not observed.
pub(super) fn core_waits(record: &Record) -> Section {
    let mut section = Section::new("Waiting for a core");
    let head =
        ["variant", "component", "per request", "of the mean latency", "of ready time", "threads waiting"];
    let mut table = Table::new("Ready to run, without a core: medians over iterations", head);
    for variant in &record.variants {
        for name in variant.observed_names() {
            if let Some(cells) = component_row(variant, name) {
                table.row(cells);
            }
        }
    }
    if table.rows.is_empty() {
        return section;
    }
    section.table(table);
    section.text(
        "The kernel counts these waits per thread (schedstat); those of parallel threads add up. Ready time is time on a core \
         and time that was waited for one. Much of it per request, and idle cores elsewhere: threads share a core, such as \
         programs that are pinned to the same one.",
    );
    section.table(stolen(record));
    section
}

/// Wait of a component in an iteration, and the iteration's mean latency in µs.
type WaitAndMean = (CoreWait, Option<f64>);

fn component_row(variant: &Variant, name: &str) -> Option<Vec<String>> {
    let waits: Vec<WaitAndMean> = variant
        .iterations
        .iter()
        .filter_map(|iteration| Some((CoreWait::in_window(iteration, name)?, Figure::Mean.value(iteration))))
        .collect();
    if waits.is_empty() {
        return None;
    }
    let of = |value: fn(&WaitAndMean) -> Option<f64>, text: fn(f64) -> String| {
        let known: Vec<f64> = waits.iter().filter_map(value).collect();
        if known.is_empty() { formatting::NONE.to_owned() } else { text(median(&known)) }
    };
    Some(vec![
        variant.name.clone(),
        name.to_owned(),
        of(|(wait, _)| wait.per_request_us(), formatting::time),
        of(|(wait, mean)| Some(wait.per_request_us()? / (*mean)?), formatting::percent),
        of(|(wait, _)| wait.share(), formatting::percent),
        of(|(wait, _)| Some(wait.threads()), formatting::digits),
    ])
}

/// Share of the machine's time that its host gave to other guests.
fn stolen(record: &Record) -> Table {
    let mut table =
        Table::new("Time that the host gave to other guests (steal)", ["variant", "median", "most"]);
    for variant in &record.variants {
        let shares =
            variant.iterations.iter().filter_map(|iteration| iteration.generator.as_ref()?.stolen_share);
        let shares: Vec<f64> = shares.collect();
        if let Some(most) = shares.iter().copied().reduce(f64::max) {
            let cells = [median(&shares), most].map(formatting::percent);
            table.row(std::iter::once(variant.name.clone()).chain(cells).collect());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::sample;

    #[test]
    fn a_wait_is_shown_only_where_it_was_observed() {
        let mut record = sample::record(1);
        assert!(core_waits(&record).blocks.is_empty());
        for component in record.variants[0].iterations.iter_mut().flat_map(|one| &mut one.components) {
            for sample in &mut component.samples {
                sample.core_wait_us = Some(sample.at_ms * 100);
            }
        }
        let names = record.variants[0].component_names().len();
        let markdown = crate::offline::render::Sheet {
            sections: vec![core_waits(&record)],
            ..crate::offline::render::Sheet::default()
        }
        .markdown();
        // A tenth of each second.
        assert_eq!(markdown.matches("| 0.100 |").count(), names, "{markdown}");
        assert!(markdown.contains("Time that the host gave to other guests"), "{markdown}");
    }
}
