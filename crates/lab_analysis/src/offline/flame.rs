//! Flame graphs of profiles: which calls are drawn where.
//!
//! Owns: the layout of one profile, and of the difference of two.
//! Does not own: the call tree ([`crate::statistics`]), and how a graph looks ([`super::render`]).

use super::render::Chart;
use super::render::svg::{FlameCall, MIN_SHARE};
use crate::formatting;
use crate::record::StackProfile;
use crate::statistics::CallNode;
use crate::units::difference;

/// Most calls that are drawn in a graph: the widest ones of each caller.
const MAX_CALLS: usize = 1500;

/// Flame graph of one profile.
pub(super) fn flame(title: String, profile: &StackProfile) -> Chart {
    let mut calls = Vec::new();
    let whole = profile.total_us();
    let text = |share: f64, _: Option<f64>| {
        format!("{} of the time, {}", formatting::percent(share), formatting::time(share * whole))
    };
    let tree = CallNode::of(profile);
    lay_out(&tree, None, (0, 0.0, least_share(&tree)), &text, &mut calls);
    Chart::flame(title, calls)
}

/// Flame graph of the second profile, coloured by the change against the first.
pub(super) fn difference_flame(title: String, a: &StackProfile, b: &StackProfile) -> Chart {
    let mut calls = Vec::new();
    let text = |share: f64, former: Option<f64>| {
        let former = former.unwrap_or(0.0);
        let change = formatting::percent(difference(share, former).abs());
        let sign = if share < former { '−' } else { '+' };
        format!(
            "{} in B, {} in A: {sign}{change} of all time",
            formatting::percent(share),
            formatting::percent(former)
        )
    };
    let former = CallNode::of(a);
    let tree = CallNode::of(b);
    lay_out(&tree, Some(&former), (0, 0.0, least_share(&tree)), &text, &mut calls);
    Chart::flame(title, calls)
}

/// Least share of a call that is drawn, so that there are at most [`MAX_CALLS`]. What a function calls
/// has no greater share than itself, so no call is drawn without its callers.
fn least_share(node: &CallNode) -> f64 {
    let mut shares = Vec::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        let wide = node.calls.values().filter(|call| call.share >= MIN_SHARE);
        open.extend(wide.inspect(|call| shares.push(call.share)));
    }
    if shares.len() <= MAX_CALLS {
        return MIN_SHARE;
    }
    shares.sort_by(|a, b| b.total_cmp(a));
    // Of several calls as wide as the last one there would be too many.
    shares[MAX_CALLS - 1].max(shares[MAX_CALLS].next_up())
}

/// Adds the calls of a node, none of them with less than the `least` share. `former` is the same node
/// of another profile; a node that only one of them has is empty there.
fn lay_out(
    node: &CallNode,
    former: Option<&CallNode>,
    (depth, from, least): (u32, f64, f64),
    text: &dyn Fn(f64, Option<f64>) -> String,
    calls: &mut Vec<FlameCall>,
) {
    let absent = CallNode::default();
    let mut at = from;
    for (name, call) in &node.calls {
        if call.share >= least {
            let before = former.map(|former| former.calls.get(name).unwrap_or(&absent));
            calls.push(FlameCall {
                name: name.clone(),
                depth,
                from: at,
                share: call.share,
                text: text(call.share, before.map(|before| before.share)),
                change: before.map(|before| difference(call.share, before.share)),
            });
            lay_out(call, before, (depth + 1, at, least), text, calls);
        }
        at += call.share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::StackSource;

    /// A thread with more calls than are drawn does not hide another one where the time goes.
    #[test]
    fn the_widest_calls_are_drawn() {
        let mut stacks = std::collections::BTreeMap::new();
        for path in 0..25 {
            let deep = (0..80).map(|depth| format!("f{path}_{depth}"));
            stacks.insert(std::iter::once("a".to_owned()).chain(deep).collect(), 1.2);
        }
        stacks.insert(vec!["z".to_owned(), "work".to_owned()], 70.0);
        let profile = StackProfile::of(StackSource::PerfCpuClock, 1000, stacks);
        let tree = CallNode::of(&profile);
        let mut calls = Vec::new();
        lay_out(&tree, None, (0, 0.0, least_share(&tree)), &|_, _| String::new(), &mut calls);
        assert!(calls.len() <= MAX_CALLS, "{}", calls.len());
        let drawn = |name: &str| calls.iter().any(|call| call.name == name);
        assert!(drawn("a") && drawn("z") && drawn("work"));
    }
}
