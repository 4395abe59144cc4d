//! Changes: report section about changes of a cluster's objects, and scrapes of metrics.

use crate::formatting;
use crate::offline::render::{Section, Table};
use crate::record::{Changes, Distribution, Record, Scrapes};

/// Two tables: the changes, and the scrapes, over all iterations of each variant.
pub(super) fn changes(record: &Record) -> Section {
    let mut section =
        Section::new("Changes of a cluster: from the accepted write to the first request that sees it");
    let mut changes = Table::new(
        "",
        [
            "variant",
            "of",
            "per second",
            "seen",
            "P50",
            "P99",
            "longest",
            "write P99",
            "not written",
            "never seen",
        ],
    );
    let mut scrapes = Table::new(
        "Scrapes of metrics",
        [
            "variant",
            "scrapes",
            "largest",
            "P50",
            "longest",
            "failed",
            "P99 after (requests)",
            "P99 between (requests)",
        ],
    );
    for variant in &record.variants {
        let seen: Vec<&Changes> = variant.iterations.iter().filter_map(|i| i.changes.as_ref()).collect();
        if let Some(all) = sum_of_changes(&seen) {
            let time = |share: f64| match all.micros(share) {
                Some(micros) if micros.is_finite() => formatting::time(micros),
                Some(_) => format!("over {}", formatting::time(all.patience_s * 1e6)),
                None => "–".to_owned(),
            };
            changes.row(vec![
                variant.name.clone(),
                all.of.clone(),
                formatting::digits(all.rate_per_s),
                formatting::count(all.made),
                time(0.5),
                time(0.99),
                time(1.0),
                formatting::time(all.write.micros(0.99)),
                with_example(all.failed, all.example.as_deref()),
                with_example(all.never, all.example.as_deref().filter(|_| all.failed == 0)),
            ]);
        }
        let seen: Vec<&Scrapes> = variant.iterations.iter().filter_map(|i| i.scrapes.as_ref()).collect();
        if let Some(first) = seen.first() {
            let duration = sum(seen.iter().map(|seen| &seen.duration), &first.duration);
            let example = seen.iter().find_map(|seen| seen.example.as_deref());
            let mut windows = first.windows.clone();
            if let Some(all) = &mut windows {
                seen.iter().skip(1).filter_map(|seen| seen.windows.as_ref()).for_each(|other| all.add(other));
            }
            let latency = |requests: Option<&Distribution>| match requests.filter(|all| !all.is_empty()) {
                Some(all) => {
                    format!("{} ({})", formatting::time(all.micros(0.99)), formatting::count(all.count()))
                }
                None => "–".to_owned(),
            };
            scrapes.row(vec![
                variant.name.clone(),
                formatting::count(duration.count()),
                formatting::bytes(seen.iter().map(|seen| seen.largest_bytes).max().unwrap_or(0) as f64),
                formatting::time(duration.micros(0.5)),
                formatting::time(duration.micros(1.0)),
                with_example(seen.iter().map(|seen| seen.failed).sum(), example),
                latency(windows.as_ref().map(|windows| &windows.after)),
                latency(windows.as_ref().map(|windows| &windows.between)),
            ]);
        }
    }
    section.table(changes);
    section.table(scrapes);
    section
}

fn with_example(count: u64, example: Option<&str>) -> String {
    match example.filter(|_| count > 0) {
        Some(example) => format!("{}\n{example}", formatting::count(count)),
        None => formatting::count(count),
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Distribution>, first: &Distribution) -> Distribution {
    let mut all = all.skip(1);
    let mut whole = first.clone();
    all.by_ref().for_each(|other| whole.add(other));
    whole
}

fn sum_of_changes(seen: &[&Changes]) -> Option<Changes> {
    let first = *seen.first()?;
    Some(Changes {
        made: seen.iter().map(|seen| seen.made).sum(),
        failed: seen.iter().map(|seen| seen.failed).sum(),
        never: seen.iter().map(|seen| seen.never).sum(),
        example: seen.iter().find_map(|seen| seen.example.clone()),
        write: sum(seen.iter().map(|seen| &seen.write), &first.write),
        in_force: sum(seen.iter().map(|seen| &seen.in_force), &first.in_force),
        ..first.clone()
    })
}
