//! Arrangement: a topology to run, in one token mode, with its loads and overrides.
//!
//! Owns: what an arrangement changes in its topology and its loads, and the options from outside
//! the file that choose arrangements. Does not own: the keys ([`super::table`]), and the
//! consistency of a whole scenario ([`super::description`]).

use std::time::Duration;

use lab_load::generator::{COMPONENT, Generator};

use super::load::Load;
use crate::topology::{ProgramFinder, Topology, TopologyError, TopologyOverrides};

/// A topology in one token mode, with the overrides of the scenario.
#[derive(Debug, Clone)]
pub struct Arrangement {
    /// Name of the arrangement, such as `fused/oidc`.
    pub name: String,
    /// Topology that runs.
    pub topology: Topology,
    /// Token mode; `None` without tokens.
    pub mode: Option<String>,
    /// Overrides of the topology.
    pub change: TopologyOverrides,
    /// Names of its loads.
    pub loads: Vec<String>,
    /// How long a revoked credential is watched here. It replaces the value of the loads.
    pub patience: Option<Duration>,
    /// Program that sends its loads and is sampled as a component. `None` for the lab itself, not
    /// sampled.
    pub generator: Option<Generator>,
    /// Cores of the load generator; empty for all.
    pub generator_cores: Vec<u32>,
}

impl Arrangement {
    /// Checks that every required program is installed.
    ///
    /// # Errors
    /// The first program that is missing.
    pub(crate) fn check_programs(&self, programs: &ProgramFinder) -> Result<(), TopologyError> {
        programs.find_all(&self.topology)?;
        let generator = self.generator.and_then(Generator::program);
        generator.map_or(Ok(()), |name| programs.find(COMPONENT, name, None).map(drop))
    }

    /// Applies the overrides of this arrangement to a load.
    pub(crate) fn with_overrides(&self, load: &Load) -> Load {
        let mut load = load.clone();
        if let (Some(pace), Some(patience)) = (&mut load.revocations, self.patience) {
            pace.patience = patience;
        }
        load
    }
}

/// Options for reading a scenario, from outside its file.
#[derive(Debug, Clone, Default)]
pub struct ScenarioOptions {
    /// Uses the quick form of the scenario.
    pub quick: bool,
    /// Number of rounds, instead of that of the file.
    pub rounds: Option<u32>,
    /// Keeps only variants of these topologies. If the scenario names no topology, these are used.
    pub topologies: Vec<String>,
}
