//! Little's law: requests in flight = rate × latency, for every server.
//!
//! Owns: the comparison. The law is an identity. A measurement that breaks it took its parts over
//! different requests or different times. In a closed loop the law also shows that the rate is no
//! figure of its own: it is workers ÷ latency.

use serde::Serialize;

/// Result of checking a measurement against the law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LittleCheck {
    /// Requests in flight as counted, or the workers of a closed loop.
    pub in_flight: f64,
    /// Requests in flight that follow from rate × latency.
    pub implied: f64,
    /// Implied divided by counted; 1 when they agree.
    pub ratio: f64,
    /// Whether they agree within the tolerance.
    pub holds: bool,
}

/// Compares requests in flight with `per_s` × `mean_s`. `tolerance` is the share by which they may
/// differ. Often only the median latency is known, and the ends of a short run count half.
///
/// Returns `None` when one of the figures is not above 0.
pub fn little(in_flight: f64, per_s: f64, mean_s: f64, tolerance: f64) -> Option<LittleCheck> {
    if ![in_flight, per_s, mean_s].iter().all(|figure| figure.is_finite() && *figure > 0.0) {
        return None;
    }
    let implied = per_s * mean_s;
    let ratio = implied / in_flight;
    Some(LittleCheck { in_flight, implied, ratio, holds: (ratio - 1.0).abs() <= tolerance })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_answers() {
        let throttled = little(50.0, 18.42, 2.6351, 0.1).unwrap();
        assert!((throttled.implied - 48.5385).abs() < 1e-3 && throttled.holds, "{throttled:?}");
        let idle = little(50.0, 100.0, 0.1, 0.1).unwrap();
        assert!((idle.ratio - 0.2).abs() < 1e-9 && !idle.holds);
        assert_eq!(little(0.0, 1.0, 1.0, 0.1), None);
        assert_eq!(little(1.0, f64::NAN, 1.0, 0.1), None);
    }

    proptest! {
        #[test]
        fn a_closed_loop_that_never_idles_keeps_it(workers in 1_u32..500, latencies in prop::collection::vec(0.001_f64..1.0, 50..200)) {
            // Each worker sends its next request after the last response. In the time T there are
            // workers × T ÷ mean requests.
            let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
            let per_s = f64::from(workers) / mean;
            prop_assert!(little(f64::from(workers), per_s, mean, 1e-9).unwrap().holds);
        }
    }
}
