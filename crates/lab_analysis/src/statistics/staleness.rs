//! Staleness: merges over iterations how long revoked credentials were still accepted.
//!
//! Owns: which measurements belong to one node or cluster.
//! Does not own: which staleness is too long.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Distribution, Variant};

/// A cluster or a node, over all iterations of a variant.
#[derive(Debug, Clone, PartialEq)]
pub struct ScopeStaleness {
    /// Display name: `cluster a`, or `gateway-a (cluster a)`.
    pub name: String,
    /// Whether it is a cluster, which is the sum of its nodes.
    pub is_cluster: bool,
    /// Time from the revocation to the last accepted request.
    pub delay: Distribution,
    /// Number of credentials that were still accepted when observation ended.
    pub never_refused: u64,
}

impl ScopeStaleness {
    /// Staleness that the given share of all revocations does not exceed, µs. It is 0 where no
    /// revoked credential was accepted, and infinite where too many were never refused.
    pub fn micros(&self, share: f64) -> f64 {
        let refused = self.delay.count() as f64;
        let of_refused = share * (refused + self.never_refused as f64) / refused;
        // A credential that was never refused has a longer staleness than every other.
        if of_refused > 1.0 {
            return f64::INFINITY;
        }
        // The histogram cannot represent 0: its smallest value stands for it.
        Some(self.delay.micros(of_refused)).filter(|micros| *micros >= 1.0).unwrap_or(0.0)
    }
}

/// Every cluster of several nodes, then every node; empty when nothing was revoked.
pub fn staleness_by_scope(variant: &Variant) -> Vec<ScopeStaleness> {
    let mut places: Vec<ScopeStaleness> = Vec::new();
    let mut add = |name: String, cluster: bool, delay: &Distribution, never: u64| match places
        .iter_mut()
        .find(|place| (&place.name, place.is_cluster) == (&name, cluster))
    {
        Some(place) => {
            place.delay.add(delay);
            place.never_refused += never;
        }
        None => places.push(ScopeStaleness {
            name,
            is_cluster: cluster,
            delay: delay.clone(),
            never_refused: never,
        }),
    };
    let all = || variant.iterations.iter().flat_map(|iteration| &iteration.staleness);
    let mut clusters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for seen in all() {
        if let Some(cluster) = &seen.cluster {
            clusters.entry(cluster).or_default().insert(&seen.node);
        }
    }
    for seen in all() {
        let node = match &seen.cluster {
            Some(cluster) => format!("{} (cluster {cluster})", seen.node),
            None => seen.node.clone(),
        };
        add(node, false, &seen.delay, seen.never);
        // A cluster with one node equals that node.
        if let Some(cluster) = seen.cluster.as_ref().filter(|cluster| clusters[cluster.as_str()].len() > 1) {
            add(format!("cluster {cluster}"), true, &seen.delay, seen.never);
        }
    }
    places.sort_by_key(|place| !place.is_cluster);
    places.retain(|place| !place.delay.is_empty() || place.never_refused > 0);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_refused_is_longer_than_anything_that_was() {
        let place = |never| ScopeStaleness {
            name: "a".to_owned(),
            is_cluster: false,
            delay: Distribution::of((1..=99).map(|ms| ms * 1_000_000), 3),
            never_refused: never,
        };
        assert!((place(0).micros(1.0) - 99_000.0).abs() < 100.0);
        assert!((place(1).micros(0.99) - 99_000.0).abs() < 100.0);
        assert!(place(1).micros(1.0).is_infinite() && place(2).micros(0.99).is_infinite());
        let none = ScopeStaleness { delay: Distribution::of([], 3), ..place(3) };
        assert!(none.micros(0.5).is_infinite());
    }
}
