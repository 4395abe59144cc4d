//! Held connections: report section about their fate and their memory cost on the server.

use crate::formatting;
use crate::offline::render::{Section, Table};
use crate::record::{HeldConnections, Record, Variant};
use crate::statistics::{Figure, HeldMemory, figures, median};

/// Three tables: the connections, the memory of the components before the service, and what one more
/// connection takes where the number of connections differs.
pub(super) fn held(record: &Record) -> Section {
    let mut section = Section::new("Held connections");
    let mut fates = Table::new(
        "Fate of the connections, medians over iterations",
        [
            "variant",
            "manner",
            "wanted",
            "opened",
            "open at the end",
            "closed by the server",
            "after",
            "answers",
        ],
    );
    let mut costs = Table::new(
        "Memory while they were held",
        ["variant", "component", "open", "before", "highest while held", "per connection"],
    );
    for variant in &record.variants {
        let seen: Vec<&HeldConnections> =
            variant.iterations.iter().filter_map(|iteration| iteration.held.as_ref()).collect();
        let Some(first) = seen.first() else { continue };
        let of = |count: fn(&HeldConnections) -> u64| {
            median(&seen.iter().map(|held| count(held) as f64).collect::<Vec<_>>())
        };
        let lives: Vec<f64> = seen.iter().filter_map(|held| held.lifetime_p50_us).collect();
        let longest = seen.iter().filter_map(|held| held.lifetime_max_us).reduce(f64::max);
        let after = longest.map_or_else(String::new, |longest| {
            format!("{}\nat most {}", formatting::time(median(&lives)), formatting::time(longest))
        });
        fates.row(vec![
            variant.name.clone(),
            first.manner.clone(),
            formatting::count(first.asked),
            formatting::grouped(of(|held| held.opened)),
            formatting::grouped(of(|held| held.open_at_end)),
            formatting::grouped(of(|held| held.closed_by_server)),
            after,
            answers(&seen),
        ]);
        for name in variant.before_service() {
            memory(&mut costs, variant, name, of(|held| held.open_at_end), &seen);
        }
    }
    section.table(fates);
    section.table(costs);
    section.table(slopes(record));
    section
}

/// What one more connection takes, for the paths that held several numbers of connections.
fn slopes(record: &Record) -> Table {
    let mut table = Table::new(
        "Memory of one more connection: slope of the line through all iterations (least squares)",
        ["variants", "component", "connections", "iterations", "per connection"],
    );
    for one in HeldMemory::of(&record.variants).iter().filter(|one| one.is_slope()) {
        let (least, most) = one.range();
        table.row(vec![
            one.path.clone(),
            one.component.clone(),
            format!("{} to {}", formatting::grouped(least), formatting::grouped(most)),
            one.points.len().to_string(),
            formatting::bytes(one.per_connection),
        ]);
    }
    table
}

/// Statuses and how often each occurred, over all iterations.
fn answers(seen: &[&HeldConnections]) -> String {
    let mut all = std::collections::BTreeMap::<u16, u64>::new();
    for (status, times) in seen.iter().flat_map(|held| &held.statuses) {
        *all.entry(*status).or_default() += times;
    }
    let each: Vec<String> =
        all.iter().map(|(status, times)| format!("{} × {status}", formatting::count(*times))).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

/// Adds a row of memory figures. A figure without a sample is a dash: a window may end before the
/// first one.
fn memory(table: &mut Table, variant: &Variant, name: &str, open: f64, seen: &[&HeldConnections]) {
    let before: Vec<f64> =
        seen.iter().filter_map(|held| held.memory_before.get(name)).map(|bytes| *bytes as f64).collect();
    let most = figures(variant, &Figure::Memory(name.to_owned()));
    if before.is_empty() && most.is_empty() {
        return;
    }
    let each = figures(variant, &Figure::MemoryPerConnection(name.to_owned()));
    let bytes =
        |seen: &[f64]| if seen.is_empty() { "–".to_owned() } else { formatting::bytes(median(seen)) };
    table.row(vec![
        variant.name.clone(),
        name.to_owned(),
        formatting::grouped(open),
        bytes(&before),
        bytes(&most),
        bytes(&each),
    ]);
}
