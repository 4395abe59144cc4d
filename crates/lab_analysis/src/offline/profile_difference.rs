//! Difference of profiles: what changed between two profiles of one component.
//!
//! Owns: which components are compared, the graph and the table.
//! Does not own: the comparison of figures ([`super::compare`](mod@super::compare)).

use super::flame::difference_flame;
use super::render::{Section, Table};
use crate::formatting;
use crate::record::{StackProfile, Variant};
use crate::statistics::function_changes;
use crate::units::difference;

/// Functions in a table.
const LARGEST: usize = 10;

/// Adds graphs and tables of each component that both variants profiled from the same source.
pub(super) fn add(section: &mut Section, a: &Variant, b: &Variant) {
    let (Some(left), Some(right)) = (&a.profile, &b.profile) else { return };
    for ours in &left.components {
        let Some(theirs) = right.component(&ours.component) else { continue };
        let kinds =
            [(&ours.on_cpu, &theirs.on_cpu, "on a core"), (&ours.off_cpu, &theirs.off_cpu, "off a core")];
        for (first, second, what) in kinds {
            let (Some(first), Some(second)) = (first, second) else { continue };
            let name = format!("{}, {what}", ours.component);
            if first.source != second.source {
                section.text(format!(
                    "`{}`, {what}: not compared, because the stacks of A are from {}, those of B from {}.",
                    ours.component,
                    first.source.text(),
                    second.source.text()
                ));
                continue;
            }
            if first == second {
                continue;
            }
            let title = format!("{name}: B, with more than in A in red and less in blue");
            section.chart(difference_flame(title, first, second));
            let changes = changes(&format!("{name}: functions whose own share changed most"), first, second);
            if changes.rows.is_empty() {
                let samples = [first, second].map(|stacks| formatting::count(stacks.samples));
                section.text(format!(
                    "`{}`, {what}: no function's own share changed by more than the error of {} and {} samples.",
                    ours.component, samples[0], samples[1]
                ));
            }
            section.table(changes);
        }
    }
}

fn changes(caption: &str, a: &StackProfile, b: &StackProfile) -> Table {
    let mut table =
        Table::new(caption, ["function", "self in A", "self in B", "change", "total in A", "total in B"]);
    for change in function_changes(a, b).into_iter().take(LARGEST) {
        let [before, after] = change.self_shares;
        let moved = difference(after, before);
        let sign = if moved < 0.0 { '−' } else { '+' };
        table.row(vec![
            format!("`{}`", change.name),
            formatting::percent(before),
            formatting::percent(after),
            format!("{sign}{}", formatting::percent(moved.abs())),
            formatting::percent(change.total_shares[0]),
            formatting::percent(change.total_shares[1]),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::offline::render::{Sheet, html};
    use crate::record::{ComponentProfile, ProfileRound, StackSource};
    use crate::test_support::sample;

    fn variant(source: StackSource, parse_us: f64, samples: u64) -> Variant {
        let stack = |text: &str| text.split(';').map(str::to_owned).collect::<Vec<String>>();
        let stacks = BTreeMap::from([(stack("w;main;parse"), parse_us), (stack("w;main;write"), 500.0)]);
        let gateway = ComponentProfile {
            component: "gateway".to_owned(),
            activities: Vec::new(),
            threads: Vec::new(),
            on_cpu: Some(StackProfile::of(source, samples, stacks)),
            off_cpu: None,
            notes: Vec::new(),
        };
        let mut variant = sample::record(1).variants.remove(0);
        variant.profile = Some(ProfileRound {
            round: 2,
            seconds: 1.0,
            per_s: 1.0,
            mean_in_flight: None,
            mean_us: None,
            components: vec![gateway],
        });
        variant
    }

    fn difference_of(a: &Variant, b: &Variant) -> Sheet {
        let mut section = Section::new("x");
        add(&mut section, a, b);
        Sheet { sections: vec![section], ..Sheet::default() }
    }

    #[test]
    fn what_takes_a_larger_share_is_red_and_named() {
        let perf = StackSource::PerfCpuClock;
        let sheet = difference_of(&variant(perf, 500.0, 9000), &variant(perf, 1500.0, 9000));
        let row = "| `parse` | 50.00 % | 75.00 % | +25.00 % | 50.00 % | 75.00 % |";
        assert!(sheet.markdown().contains(row), "{}", sheet.markdown());
        let page = html(&sheet);
        assert!(page.contains("class=\"grew\" style=\"--strength:0.55\""), "{page}");
        assert!(page.contains("write\n25.00 % in B, 50.00 % in A: −25.00 % of all time"), "{page}");
    }

    #[test]
    fn the_same_and_other_sources_have_no_graph() {
        let [perf, proc] = [StackSource::PerfCpuClock, StackSource::ProcTasks];
        let same = difference_of(&variant(perf, 500.0, 9), &variant(perf, 500.0, 9));
        assert!(same.sections[0].blocks.is_empty());
        let few = difference_of(&variant(perf, 500.0, 9), &variant(perf, 600.0, 9)).markdown();
        assert!(few.contains("the error of 9 and 9 samples") && !few.contains("| `parse` |"), "{few}");
        let other = difference_of(&variant(perf, 500.0, 9), &variant(proc, 1500.0, 9)).markdown();
        assert!(other.contains("not compared") && !other.contains("| `parse` |"), "{other}");
    }
}
