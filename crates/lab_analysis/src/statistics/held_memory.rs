//! Memory of held connections: what each costs the programs that hold it, from one or more numbers of
//! connections.
//!
//! Owns: which variants differ only in the number of connections, and the cost of one more.
//! Does not own: the memory of one iteration ([`Figure::MemoryPerConnection`]).

use super::{Figure, median};
use crate::record::{HeldConnections, Variant};

/// Label of a variant that names its load.
const LOAD: &str = "load";

/// What a held connection costs one component, from the variants that differ only in the number of
/// connections.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldMemory {
    /// Name of the variant; without its load where several were combined.
    pub path: String,
    /// Component that the memory belongs to.
    pub component: String,
    /// Numbers of connections and the growth of the memory since before they were opened, bytes: one
    /// pair per iteration, the fewest connections first. Never empty.
    pub points: Vec<(f64, f64)>,
    /// Cost of a connection, bytes: the slope of the line through the points (least squares) where
    /// there are several numbers of connections, and the median of growth divided by number where
    /// there is one.
    pub per_connection: f64,
}

impl HeldMemory {
    /// Computes the costs of all components in front of the service, in the order of the variants.
    /// Variants are combined where they differ only in their load, which holds connections in the
    /// same manner.
    pub fn of(variants: &[Variant]) -> Vec<Self> {
        let mut groups: Vec<Vec<&Variant>> = Vec::new();
        for variant in variants.iter().filter(|variant| held(variant).next().is_some()) {
            match groups.iter_mut().find(|group| is_alike(group[0], variant)) {
                Some(group) => group.push(variant),
                None => groups.push(vec![variant]),
            }
        }
        let each = groups.iter().flat_map(|group| {
            group[0].before_service().iter().filter_map(|component| Self::of_group(group, component))
        });
        each.collect()
    }

    fn of_group(group: &[&Variant], component: &str) -> Option<Self> {
        let mut points: Vec<(f64, f64)> = group.iter().flat_map(|one| points(one, component)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let path = if group.len() > 1 { name_without_load(group[0]) } else { &group[0].name };
        Some(Self {
            path: path.to_owned(),
            component: component.to_owned(),
            per_connection: slope(&points).or_else(|| mean_cost(&points))?,
            points,
        })
    }

    /// Fewest and most connections.
    pub fn range(&self) -> (f64, f64) {
        (self.points.first().map_or(0.0, |point| point.0), self.points.last().map_or(0.0, |point| point.0))
    }

    /// Whether the cost is a slope, which does not hold what a program takes once.
    pub fn is_slope(&self) -> bool {
        is_several(&self.points)
    }
}

/// Connections of a variant that were held, by iteration.
fn held(variant: &Variant) -> impl Iterator<Item = &HeldConnections> {
    variant.iterations.iter().filter_map(|iteration| iteration.held.as_ref())
}

/// Whether two variants differ only in their load, and hold connections in the same manner.
fn is_alike(one: &Variant, other: &Variant) -> bool {
    let manner = |variant| held(variant).next().map(|held| &held.manner);
    let others = |variant: &Variant| {
        let labels = variant.labels.iter().filter(|(key, _)| *key != LOAD);
        labels.map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()
    };
    one.path == other.path
        && one.topology == other.topology
        && one.load == other.load
        && manner(one) == manner(other)
        && name_without_load(one) == name_without_load(other)
        && others(one) == others(other)
}

/// Name of a variant without the part that names its load.
fn name_without_load(variant: &Variant) -> &str {
    let name = variant.name.as_str();
    let load = variant.labels.get(LOAD).and_then(|load| name.strip_suffix(load.as_str()));
    load.map_or(name, |name| name.trim_end_matches('/'))
}

/// Connections and growth of the memory of a component, by iteration.
fn points<'a>(variant: &'a Variant, component: &str) -> impl Iterator<Item = (f64, f64)> + use<'a> {
    let figure = Figure::MemoryPerConnection(component.to_owned());
    variant.iterations.iter().filter_map(move |iteration| {
        let open = iteration.held.as_ref()?.open_at_end as f64;
        Some((open, figure.value(iteration)? * open))
    })
}

fn is_several(points: &[(f64, f64)]) -> bool {
    // A few connections that ended early are no other number of connections.
    const FACTOR: f64 = 1.5;
    matches!((points.first(), points.last()), (Some(least), Some(most)) if most.0 > least.0 * FACTOR)
}

/// Slope of the line through the points; `None` with one number of connections.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    if !is_several(points) {
        return None;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (over, under) = points.iter().fold((0.0, 0.0), |(over, under), point| {
        (over + (point.0 - x) * (point.1 - y), under + (point.0 - x).powi(2))
    });
    Some(over / under)
}

/// Median of growth divided by number.
fn mean_cost(points: &[(f64, f64)]) -> Option<f64> {
    let each: Vec<f64> = points.iter().map(|(open, growth)| growth / open).collect();
    (!each.is_empty()).then(|| median(&each))
}
