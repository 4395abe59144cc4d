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
    lay_out(&CallNode::of(profile), None, (0, 0.0), &text, &mut calls);
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
    lay_out(&CallNode::of(b), Some(&former), (0, 0.0), &text, &mut calls);
    Chart::flame(title, calls)
}

/// Adds the calls of a node. `former` is the same node of another profile; a node that only the other
/// one has is empty there.
fn lay_out(
    node: &CallNode,
    former: Option<&CallNode>,
    (depth, from): (u32, f64),
    text: &dyn Fn(f64, Option<f64>) -> String,
    calls: &mut Vec<FlameCall>,
) {
    let absent = CallNode::default();
    let mut at = from;
    for (name, call) in &node.calls {
        if call.share >= MIN_SHARE && calls.len() < MAX_CALLS {
            let before = former.map(|former| former.calls.get(name).unwrap_or(&absent));
            calls.push(FlameCall {
                name: name.clone(),
                depth,
                from: at,
                share: call.share,
                text: text(call.share, before.map(|before| before.share)),
                change: before.map(|before| difference(call.share, before.share)),
            });
            lay_out(call, before, (depth + 1, at), text, calls);
        }
        at += call.share;
    }
}
