//! Stacks: functions and call trees of a profile, and their changes between two profiles.
//!
//! Owns: self and total time of a function, the tree of calls, and shares.
//! Does not own: taking profiles, and how a tree is drawn.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{StackProfile, StackSource};
use crate::units::difference;

/// Name of the stacks that a record does not hold one by one.
pub(crate) const OTHERS: &str = "[other stacks]";

/// Standard errors from which a change of a share is not chance: of some hundred functions, hardly one
/// reaches three by chance.
const MIN_ERRORS: f64 = 3.0;
/// Least change of a share of the switches that is listed.
const MIN_SWITCH_CHANGE: f64 = 0.01;

/// Time of one function.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTime {
    /// Name of the function.
    pub name: String,
    /// Share of the profile's time in the function itself.
    pub self_share: f64,
    /// Share of the profile's time in the function and in what it called.
    pub total_share: f64,
}

/// Time of the functions of a profile, the largest time of its own first. The first frame of a stack
/// is its thread, and is left out.
pub fn functions(profile: &StackProfile) -> Vec<FunctionTime> {
    let whole = profile.total_us();
    let mut times: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for stack in &profile.stacks {
        let frames: Vec<&str> = profile.frames(stack).skip(1).collect();
        if let Some(innermost) = frames.last() {
            times.entry(innermost).or_default().0 += stack.us;
        }
        // A function that calls itself counts once.
        for name in frames.into_iter().collect::<BTreeSet<&str>>() {
            times.entry(name).or_default().1 += stack.us;
        }
    }
    let share = |us: f64| if whole > 0.0 { us / whole } else { 0.0 };
    let mut all: Vec<FunctionTime> = times
        .into_iter()
        .map(|(name, (own, total))| FunctionTime {
            name: name.to_owned(),
            self_share: share(own),
            total_share: share(total),
        })
        .collect();
    all.sort_by(|a, b| b.self_share.total_cmp(&a.self_share).then(b.total_share.total_cmp(&a.total_share)));
    all
}

/// A function whose share differs between two profiles.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionChange {
    /// Name of the function.
    pub name: String,
    /// Share of its own time in the first and in the second profile.
    pub self_shares: [f64; 2],
    /// Share of its total time in the first and in the second profile.
    pub total_shares: [f64; 2],
}

/// Functions of two profiles whose own share changed by more than the error of the samples, the largest
/// change first.
pub fn function_changes(a: &StackProfile, b: &StackProfile) -> Vec<FunctionChange> {
    let mut all: BTreeMap<String, FunctionChange> = BTreeMap::new();
    for (side, profile) in [a, b].into_iter().enumerate() {
        for time in functions(profile) {
            let change = all.entry(time.name.clone()).or_insert_with(|| FunctionChange {
                name: time.name,
                self_shares: [0.0; 2],
                total_shares: [0.0; 2],
            });
            change.self_shares[side] = time.self_share;
            change.total_shares[side] = time.total_share;
        }
    }
    let size = |change: &FunctionChange| difference(change.self_shares[1], change.self_shares[0]).abs();
    let mut changes: Vec<FunctionChange> =
        all.into_values().filter(|change| is_beyond_chance(a, b, change.self_shares)).collect();
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)));
    changes
}

/// Whether two shares differ by more than samples do by chance.
fn is_beyond_chance(a: &StackProfile, b: &StackProfile, shares: [f64; 2]) -> bool {
    let change = difference(shares[1], shares[0]).abs();
    // Every switch is recorded, so these are not samples, and nothing says how much two runs of one
    // program differ.
    if [a, b].iter().all(|profile| profile.source == StackSource::PerfSchedSwitch) {
        return change >= MIN_SWITCH_CHANGE;
    }
    let variance = |(profile, share): (&StackProfile, f64)| {
        let samples = profile.samples.max(1) as f64;
        // One more of each kind: a function that was not seen may have run.
        let share = (share * samples + 1.0) / (samples + 2.0);
        share * (1.0 - share) / samples
    };
    change >= MIN_ERRORS * (variance((a, shares[0])) + variance((b, shares[1]))).sqrt()
}

/// A function in a call tree, called by one chain of functions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CallNode {
    /// Share of the profile's time in it and in what it called.
    pub(crate) share: f64,
    /// What it called, by name.
    pub(crate) calls: BTreeMap<String, CallNode>,
}

impl CallNode {
    /// The call tree of a profile. Its root stands for all of the time.
    pub(crate) fn of(profile: &StackProfile) -> Self {
        let whole = profile.total_us();
        let mut root = Self { share: 1.0, calls: BTreeMap::new() };
        if whole <= 0.0 {
            return root;
        }
        for stack in &profile.stacks {
            let mut at = &mut root;
            for name in profile.frames(stack) {
                at = at.calls.entry(name.to_owned()).or_default();
                at.share += stack.us / whole;
            }
        }
        if profile.other_us > 0.0 {
            let others = Self { share: profile.other_us / whole, calls: BTreeMap::new() };
            root.calls.insert(OTHERS.to_owned(), others);
        }
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(stacks: &[(&str, f64)]) -> StackProfile {
        let split = |text: &str| text.split(';').map(str::to_owned).collect();
        let stacks = stacks.iter().map(|(frames, us)| (split(frames), *us)).collect();
        StackProfile::of(StackSource::PerfCpuClock, 1000, stacks)
    }

    #[test]
    fn a_function_has_time_of_its_own_and_of_what_it_calls() {
        let times = functions(&profile(&[("w;main;parse;main", 1.0), ("w;main;write", 3.0)]));
        let seen: Vec<_> =
            times.iter().map(|time| (&*time.name, time.self_share, time.total_share)).collect();
        assert_eq!(seen, [("write", 0.75, 0.75), ("main", 0.25, 1.0), ("parse", 0.0, 0.25)]);
    }

    #[test]
    fn a_change_is_of_shares_and_the_largest_is_first() {
        let (a, b) = (profile(&[("w;f", 3.0), ("w;g", 1.0)]), profile(&[("w;f", 50.0), ("w;h", 50.0)]));
        let changes = function_changes(&a, &b);
        let names: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
        assert_eq!(names, ["h", "f", "g"]);
        let [before, after] = changes[1].self_shares;
        assert!((before - 0.75).abs() < 1e-9 && (after - 0.5).abs() < 1e-9);
        assert_eq!(function_changes(&a, &a), []);
    }

    #[test]
    fn a_change_within_the_error_of_the_samples_is_none() {
        let (mut a, mut b) =
            (profile(&[("w;f", 52.0), ("w;g", 48.0)]), profile(&[("w;f", 48.0), ("w;g", 52.0)]));
        assert_eq!(function_changes(&a, &b), [], "4 % of 1000 samples");
        for profile in [&mut a, &mut b] {
            profile.samples = 100_000;
        }
        assert_eq!(function_changes(&a, &b).len(), 2);
        for profile in [&mut a, &mut b] {
            (profile.samples, profile.source) = (10, StackSource::PerfSchedSwitch);
        }
        assert_eq!(function_changes(&a, &b).len(), 2, "all switches are known");
    }

    #[test]
    fn the_tree_has_the_shares_of_its_stacks_and_the_rest() {
        let mut one = profile(&[("w;main;read", 1.0), ("w;main;write", 2.0)]);
        one.other_us = 1.0;
        let root = CallNode::of(&one);
        let main = &root.calls["w"].calls["main"];
        assert_eq!((root.share, main.share, main.calls["write"].share), (1.0, 0.75, 0.5));
        assert!((root.calls[OTHERS].share - 0.25).abs() < 1e-9);
    }
}
