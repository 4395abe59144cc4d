//! Thresholds: from when on a load generator, or the wait for a core, distorts the figures.
//!
//! Owns: the thresholds that rules over a record and a load generator's rules over its own report
//! have in common, so that both say the same about the same run.

/// CPU of the generator's one thread from which it counts as saturated, as a share of one core.
const SATURATED: f64 = 0.9;
/// Share of the time, running or ready to run, from which a thread that has to share its core
/// counts as saturated.
const SATURATED_WITH_WAIT: f64 = 0.97;
/// Smallest lag that counts, µs; a smaller one is within the cost of timing.
pub const LAG_US: f64 = 1000.0;
/// Share of the latency from which lag matters.
pub const LAG_SHARE: f64 = 0.2;
/// Share of the time from which waiting for a core is reported.
pub const CORE_WAIT: f64 = 0.2;

/// Whether a thread was saturated, from its shares of the time running and waiting for a core. A
/// thread that is ready to run does not rest either.
pub fn is_saturated(running: f64, waiting: f64) -> bool {
    running >= SATURATED || running + waiting >= SATURATED_WITH_WAIT
}

#[cfg(test)]
mod tests {
    use super::is_saturated;

    #[test]
    fn a_thread_that_waits_for_its_core_does_not_rest() {
        assert!(is_saturated(0.95, 0.0) && is_saturated(0.3, 0.69));
        assert!(!is_saturated(0.5, 0.42) && !is_saturated(0.0, 0.9));
    }
}
