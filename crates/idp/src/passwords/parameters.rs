//! Parameters of Argon2id: the cost of one hash.
//!
//! Owns: the three numbers, their bounds in the configuration, the wider bounds in stored hashes,
//! and the comparison which of two sets is weaker.
//!
//! Does not own: their text in a stored hash ([`super::phc`]), the computation ([`super::hash`]).
//!
//! The lower bound is that of the OWASP password storage sheet. Its sets are meant to be equally
//! strong: 46 MiB/1, 19 MiB/2, 12 MiB/3, 9 MiB/4, 7 MiB/5. Their products of memory and passes
//! differ little, so this product measures the work here. Lanes are computed sequentially: more
//! lanes make only an attacker faster.

/// Least configurable memory in KiB.
pub const MIN_MEMORY_KIB: u32 = 7 * 1024;
/// Most memory in KiB, configured or stored: 256 MiB for each thread of the pool.
pub const MAX_MEMORY_KIB: u32 = 256 * 1024;
/// Most passes over the memory, configured or stored.
pub const MAX_ITERATIONS: u32 = 64;
/// Most lanes, configured or stored.
pub const MAX_PARALLELISM: u32 = 16;
/// Least configurable product of memory and passes, in KiB: that of the weakest OWASP set.
pub const MIN_WORK_KIB: u64 = 7168 * 5;
/// Largest product of memory and passes, configured or stored, in KiB: about one second of one
/// core.
pub const MAX_WORK_KIB: u64 = 1024 * 1024;

/// Memory per lane that the algorithm requires, in KiB (RFC 9106 §3.1).
const LANE_KIB: u32 = 8;

/// Reason why a set of parameters is refused. Each text names the value and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParameterFault {
    /// The memory is out of bounds.
    #[error(
        "hash memory of {0} KiB out of bounds: use {MIN_MEMORY_KIB} to {MAX_MEMORY_KIB} KiB, when in doubt 19456 with 2 iterations"
    )]
    Memory(u32),
    /// The number of passes is out of bounds.
    #[error("{0} hash iterations out of bounds: use 1 to {MAX_ITERATIONS}")]
    Iterations(u32),
    /// The number of lanes is out of bounds.
    #[error("hash parallelism {0} out of bounds: use 1 to {MAX_PARALLELISM}, when in doubt 1")]
    Parallelism(u32),
    /// The hash is computed, and therefore guessed, too quickly.
    #[error(
        "password hashes with {memory_kib} KiB and {iterations} iterations are too cheap: use at least {needed} iterations, or more memory"
    )]
    TooCheap {
        /// Configured memory in KiB.
        memory_kib: u32,
        /// Configured passes.
        iterations: u32,
        /// Smallest sufficient number of passes with this memory.
        needed: u64,
    },
    /// A login would take seconds, and a few concurrent logins would occupy every core.
    #[error(
        "password hashes with {memory_kib} KiB and {iterations} iterations are too expensive: use at most {allowed} iterations, or less memory"
    )]
    TooExpensive {
        /// Configured or stored memory in KiB.
        memory_kib: u32,
        /// Configured or stored passes.
        iterations: u32,
        /// Largest allowed number of passes with this memory.
        allowed: u64,
    },
}

/// The cost of one hash: memory, passes over it, lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    memory_kib: u32,
    iterations: u32,
    parallelism: u32,
}

impl Parameters {
    /// OWASP's first recommendation for a server: 19 MiB, 2 passes, 1 lane.
    pub const OWASP: Self = Self { memory_kib: 19 * 1024, iterations: 2, parallelism: 1 };
    /// Keycloak's default: 7 MiB, 5 passes, 1 lane.
    pub const KEYCLOAK: Self = Self { memory_kib: 7168, iterations: 5, parallelism: 1 };

    /// Parameters for new hashes, within the bounds of this module.
    ///
    /// # Errors
    /// [`ParameterFault`] when a value is out of bounds.
    pub fn new(memory_kib: u32, iterations: u32, parallelism: u32) -> Result<Self, ParameterFault> {
        let parameters = Self::stored(memory_kib, iterations, parallelism)?;
        if memory_kib < MIN_MEMORY_KIB {
            return Err(ParameterFault::Memory(memory_kib));
        }
        if parameters.work_kib() < MIN_WORK_KIB {
            let needed = MIN_WORK_KIB.div_ceil(u64::from(memory_kib));
            return Err(ParameterFault::TooCheap { memory_kib, iterations, needed });
        }
        Ok(parameters)
    }

    /// Parameters of a stored hash. They may be as weak as the algorithm allows, because the login
    /// upgrades the hash. But a row of the database must not exhaust memory or threads.
    pub(super) fn stored(memory_kib: u32, iterations: u32, parallelism: u32) -> Result<Self, ParameterFault> {
        if !(1..=MAX_PARALLELISM).contains(&parallelism) {
            return Err(ParameterFault::Parallelism(parallelism));
        }
        if !(LANE_KIB * parallelism..=MAX_MEMORY_KIB).contains(&memory_kib) {
            return Err(ParameterFault::Memory(memory_kib));
        }
        if !(1..=MAX_ITERATIONS).contains(&iterations) {
            return Err(ParameterFault::Iterations(iterations));
        }
        let parameters = Self { memory_kib, iterations, parallelism };
        if parameters.work_kib() > MAX_WORK_KIB {
            let allowed = MAX_WORK_KIB / u64::from(memory_kib);
            return Err(ParameterFault::TooExpensive { memory_kib, iterations, allowed });
        }
        Ok(parameters)
    }

    /// Memory of one computation in KiB.
    pub fn memory_kib(self) -> u32 {
        self.memory_kib
    }

    /// Passes over the memory.
    pub fn iterations(self) -> u32 {
        self.iterations
    }

    /// Number of lanes.
    pub fn parallelism(self) -> u32 {
        self.parallelism
    }

    /// Whether a hash with these parameters is cheaper to guess than one with `current`, in memory
    /// or in work.
    pub fn weaker_than(self, current: Self) -> bool {
        self.memory_kib < current.memory_kib || self.work_kib() < current.work_kib()
    }

    fn work_kib(self) -> u64 {
        u64::from(self.memory_kib) * u64::from(self.iterations)
    }

    /// The cheapest parameters that the algorithm allows, for tests that are not about the cost.
    #[cfg(test)]
    pub(crate) const TINY: Self = Self { memory_kib: LANE_KIB, iterations: 1, parallelism: 1 };
}

impl Default for Parameters {
    fn default() -> Self {
        Self::OWASP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faulty(memory_kib: u32, iterations: u32, parallelism: u32) -> ParameterFault {
        Parameters::new(memory_kib, iterations, parallelism).unwrap_err()
    }

    #[test]
    fn the_recommended_sets_and_the_bounds_are_accepted() {
        for (m, t, p) in [
            (47104, 1, 1),
            (19456, 2, 1),
            (12288, 3, 1),
            (9216, 4, 1),
            (7168, 5, 1),
            (65536, 3, 4),
            (MAX_MEMORY_KIB, 4, MAX_PARALLELISM),
            (16 * 1024, MAX_ITERATIONS, 1),
        ] {
            let parameters = Parameters::new(m, t, p).unwrap();
            assert_eq!(
                (parameters.memory_kib(), parameters.iterations(), parameters.parallelism()),
                (m, t, p)
            );
        }
        assert_eq!(Parameters::new(19 * 1024, 2, 1), Ok(Parameters::default()));
        assert_eq!(Parameters::new(7168, 5, 1), Ok(Parameters::KEYCLOAK));
    }

    #[test]
    fn one_beyond_each_bound_is_refused_by_name() {
        assert_eq!(faulty(MIN_MEMORY_KIB - 1, 6, 1), ParameterFault::Memory(MIN_MEMORY_KIB - 1));
        assert_eq!(faulty(MAX_MEMORY_KIB + 1, 1, 1), ParameterFault::Memory(MAX_MEMORY_KIB + 1));
        assert_eq!(faulty(0, 0, 0), ParameterFault::Parallelism(0));
        assert_eq!(faulty(19456, 0, 1), ParameterFault::Iterations(0));
        assert_eq!(faulty(7168, MAX_ITERATIONS + 1, 1), ParameterFault::Iterations(MAX_ITERATIONS + 1));
        assert_eq!(faulty(19456, 2, MAX_PARALLELISM + 1), ParameterFault::Parallelism(MAX_PARALLELISM + 1));
        assert_eq!(
            faulty(7168, 4, 1),
            ParameterFault::TooCheap { memory_kib: 7168, iterations: 4, needed: 5 }
        );
        assert_eq!(
            faulty(MAX_MEMORY_KIB, 5, 1),
            ParameterFault::TooExpensive { memory_kib: MAX_MEMORY_KIB, iterations: 5, allowed: 4 }
        );
    }

    #[test]
    fn a_fault_names_the_value_and_the_remedy() {
        assert_eq!(
            faulty(8192, 1, 1).to_string(),
            "password hashes with 8192 KiB and 1 iterations are too cheap: \
             use at least 5 iterations, or more memory"
        );
        assert_eq!(
            faulty(1024, 9, 1).to_string(),
            "hash memory of 1024 KiB out of bounds: use 7168 to 262144 KiB, \
             when in doubt 19456 with 2 iterations"
        );
    }

    #[test]
    fn stored_parameters_may_be_weak_but_never_absurd() {
        assert!(Parameters::stored(8, 1, 1).is_ok());
        assert!(Parameters::stored(7, 1, 1).is_err());
        assert!(Parameters::stored(15, 1, 2).is_err(), "two lanes need 16 KiB");
        for bomb in
            [(u32::MAX, 1, 1), (8, u32::MAX, 1), (MAX_MEMORY_KIB, MAX_ITERATIONS, 1), (8, 1, u32::MAX)]
        {
            assert!(Parameters::stored(bomb.0, bomb.1, bomb.2).is_err(), "{bomb:?}");
        }
    }

    #[test]
    fn weaker_means_less_memory_or_less_work() {
        let set = |m, t| Parameters::stored(m, t, 1).unwrap();
        for (stored, current, weaker) in [
            (set(19456, 2), set(19456, 2), false),
            (set(19456, 2), set(19456, 3), true),
            (set(19456, 3), set(19456, 2), false),
            (set(7168, 5), set(19456, 2), true),
            (set(19456, 2), set(7168, 5), false),
            (set(47104, 1), set(19456, 2), false),
            (set(7168, 60), set(19456, 2), true),
        ] {
            assert_eq!(stored.weaker_than(current), weaker, "{stored:?} against {current:?}");
        }
    }
}
