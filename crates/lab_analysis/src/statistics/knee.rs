//! Knee: finds the load of a sweep from which more load brings more waiting instead of more
//! throughput.
//!
//! Owns: the search over points of growing load.
//!
//! The measure is elasticity, which has no unit: the relative growth of throughput or latency
//! divided by the relative growth of the load. Below the knee it is about 1 for throughput and 0
//! for latency; beyond it, 0 and 1. An open loop offers a rate and a closed loop a number of
//! workers; the search is the same.

use serde::Serialize;

/// Elasticity below which throughput is flat.
const FLAT_ELASTICITY: f64 = 0.25;
/// Elasticity above which the growth of latency is waiting.
const WAITING_ELASTICITY: f64 = 0.6;

/// One point of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SweepPoint {
    /// Workers, or requests per second offered.
    pub offered: f64,
    /// Successful responses per second.
    pub per_s: f64,
    /// Latency in any unit, mean or median, the same for all points.
    pub latency: f64,
}

/// Knee of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Knee {
    /// Index of the last point before throughput becomes flat.
    pub index: usize,
    /// Load at that point. If it is the first point, the knee lies there or below.
    pub offered: f64,
    /// Highest throughput of any point.
    pub most_per_s: f64,
    /// Whether the first point is already at or beyond the knee: then the sweep shows no server
    /// with free capacity.
    pub at_first: bool,
    /// Factor by which throughput changed from the knee to the last point.
    pub per_s_factor: f64,
    /// Factor by which latency grew from the knee to the last point.
    pub latency_factor: f64,
}

/// Finds the knee of points of growing load. Returns `None` when throughput grows up to the last
/// point, with fewer than three points, and when the load does not grow.
pub fn find_knee(points: &[SweepPoint]) -> Option<Knee> {
    if !is_valid_sweep(points) {
        return None;
    }
    // The search starts at the end: the knee is the point before the last run of flat steps.
    let flat_from = points.windows(2).rposition(|pair| !flat(&pair[0], &pair[1])).map_or(0, |step| step + 1);
    let (knee, last) = (points[flat_from], points[points.len() - 1]);
    if flat_from == points.len() - 1 || !flat(&knee, &last) {
        return None;
    }
    Some(Knee {
        index: flat_from,
        offered: knee.offered,
        most_per_s: points.iter().map(|point| point.per_s).fold(0.0, f64::max),
        at_first: flat_from == 0,
        per_s_factor: last.per_s / knee.per_s,
        latency_factor: last.latency / knee.latency,
    })
}

/// How throughput depends on growing load when there is no knee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trend {
    /// Unknown: there are fewer than three points, a point has no throughput, or the load does not
    /// grow.
    Unknown,
    /// Throughput grows up to the last point.
    Grows,
    /// Throughput is flat and latency does not grow: the excess load is refused.
    Capped,
}

/// Course of points that have no knee.
pub fn trend(points: &[SweepPoint]) -> Trend {
    let [.., before, last] = points else { return Trend::Unknown };
    if !is_valid_sweep(points) {
        return Trend::Unknown;
    }
    let growth = (last.offered / before.offered).ln();
    if (last.per_s / before.per_s).ln() / growth < FLAT_ELASTICITY { Trend::Capped } else { Trend::Grows }
}

fn is_valid_sweep(points: &[SweepPoint]) -> bool {
    let sound = |point: &SweepPoint| {
        [point.offered, point.per_s, point.latency].iter().all(|f| f.is_finite() && *f > 0.0)
    };
    let grows = points.windows(2).all(|pair| pair[1].offered > pair[0].offered);
    points.len() > 2 && grows && points.iter().all(sound)
}

/// Whether more load brought waiting instead of throughput, from one point to the other.
fn flat(from: &SweepPoint, to: &SweepPoint) -> bool {
    let growth = (to.offered / from.offered).ln();
    let throughput = (to.per_s / from.per_s).ln() / growth;
    let latency = (to.latency / from.latency).ln() / growth;
    throughput < FLAT_ELASTICITY && latency > WAITING_ELASTICITY
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A closed loop of `workers` around a server with this `capacity`, whose latency is at least
    /// `floor` seconds.
    fn closed(workers: f64, capacity: f64, floor: f64) -> SweepPoint {
        let per_s = (workers / floor).min(capacity);
        SweepPoint { offered: workers, per_s, latency: workers / per_s }
    }

    #[test]
    fn a_server_that_is_full_from_the_first_point() {
        let rows = [
            (50.0, 451.27, 107.71),
            (150.0, 480.13, 303.86),
            (300.0, 470.31, 612.12),
            (500.0, 473.3, 992.95),
        ];
        let points = rows.map(|(offered, per_s, latency)| SweepPoint { offered, per_s, latency });
        let knee = find_knee(&points).unwrap();
        assert!(knee.at_first && (knee.offered - 50.0).abs() < 1e-9, "{knee:?}");
        assert!(
            (knee.latency_factor - 9.22).abs() < 0.01 && (knee.per_s_factor - 1.05).abs() < 0.01,
            "{knee:?}"
        );
    }

    #[test]
    fn a_knee_between_points() {
        let points = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0].map(|workers| closed(workers, 1000.0, 0.008));
        let knee = find_knee(&points).unwrap();
        assert!((knee.offered - 8.0).abs() < 1e-9 && !knee.at_first, "{knee:?}");
        assert!((knee.most_per_s - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn a_server_with_capacity_left_has_none() {
        let points = [1.0, 2.0, 4.0, 8.0].map(|workers| closed(workers, 1e9, 0.008));
        assert_eq!(find_knee(&points), None);
        assert_eq!(find_knee(&points[..2]), None, "two points have no bend");
        assert_eq!(find_knee(&[points[1], points[0], points[2]]), None, "the load has to grow");
    }

    #[test]
    fn a_slower_answer_alone_is_no_knee() {
        // Throughput follows the load although latency grows.
        let points = [(1.0, 10.0), (2.0, 20.0), (4.0, 50.0)].map(|(rate, latency)| SweepPoint {
            offered: rate,
            per_s: rate,
            latency,
        });
        assert_eq!((find_knee(&points), trend(&points)), (None, Trend::Grows));
    }

    #[test]
    fn a_server_that_turns_away_what_is_too_much_has_none_and_does_not_grow() {
        let points = [(500.0, 500.0), (1000.0, 1000.0), (2000.0, 1000.0), (4000.0, 1000.0)]
            .map(|(offered, per_s)| SweepPoint { offered, per_s, latency: 3.0 });
        assert_eq!((find_knee(&points), trend(&points)), (None, Trend::Capped));
        let nothing = [points[0], points[1], SweepPoint { per_s: 0.0, ..points[2] }];
        assert_eq!((find_knee(&nothing), trend(&nothing)), (None, Trend::Unknown));
    }

    proptest! {
        #[test]
        fn the_knee_is_where_the_capacity_is_reached(capacity in 50.0_f64..5000.0, floor in 0.001_f64..0.1) {
            let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
            let points = loads.map(|workers| closed(workers, capacity, floor));
            let reached = capacity * floor;
            match find_knee(&points) {
                Some(knee) => prop_assert!(knee.offered >= reached / 2.0 - 1e-6 && knee.offered < (reached * 2.0).max(1.0) + 1e-6, "{knee:?} for {reached}"),
                None => prop_assert!(reached > 512.0 / 1.6, "{reached}"),
            }
        }
    }
}
