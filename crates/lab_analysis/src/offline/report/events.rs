//! Events: report section about what was done to components during the load, and what they counted.

use std::collections::BTreeSet;

use crate::formatting;
use crate::offline::render::{Section, Table};
use crate::record::{Record, Variant};
use crate::statistics::{Figure, figures, median};

/// Two tables: the events of each iteration, and the growth of the components' own counters.
pub(super) fn meanwhile(record: &Record) -> Section {
    let mut section = Section::new("Events during the load");
    let mut done = Table::new("Events, from the start of the iteration", ["variant", "iteration", "what"]);
    let mut counted = Table::new(
        "Counters of components over iterations",
        ["variant", "component", "counter", "median", "least", "most"],
    );
    for variant in &record.variants {
        for iteration in variant.iterations.iter().filter(|iteration| !iteration.events.is_empty()) {
            let text = formatting::events(&iteration.events).join("; ");
            done.row(vec![variant.name.clone(), iteration.number.to_string(), text]);
        }
        for (component, name) in counters(variant) {
            let grown = figures(variant, &Figure::Counter(component.to_owned(), name.to_owned()));
            let least = grown.iter().copied().fold(f64::INFINITY, f64::min);
            let most = grown.iter().copied().fold(0.0, f64::max);
            let numbers = [median(&grown), least, most].map(formatting::grouped);
            let names = [variant.name.clone(), component.to_owned(), name.to_owned()];
            counted.row(names.into_iter().chain(numbers).collect());
        }
    }
    section.table(done);
    section.table(counted);
    section
}

/// Components and the counters that they expose.
fn counters(variant: &Variant) -> BTreeSet<(&str, &str)> {
    let components = variant.iterations.iter().flat_map(|iteration| &iteration.components);
    components
        .flat_map(|component| component.counters.keys().map(|name| (component.name.as_str(), name.as_str())))
        .collect()
}
