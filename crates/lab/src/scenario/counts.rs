//! What a scenario counts beside measuring: instructions and allocations of one component.
//!
//! Owns: the keys, and what they may hold. Does not own: counting ([`crate::run`]).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Arrangement, Load};

/// Most requests of a count: under a counting tool a thousand take seconds.
const MOST: u64 = 1_000_000;

/// What is counted, per request, of every variant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Whose instructions and allocations.
    pub component: String,
    /// Requests of the shorter and of the longer of the two runs whose difference is taken: what starting and ending cost is in both of them.
    pub requests: [u64; 2],
}

impl Counts {
    /// Requests by which the two runs differ.
    pub fn difference(&self) -> u64 {
        self.requests[1] - self.requests[0]
    }

    /// The key that is wrong and why.
    pub(super) fn check(
        &self,
        arrangements: &[Arrangement],
        loads: &BTreeMap<String, Load>,
    ) -> Result<(), (&'static str, String)> {
        let [few, many] = self.requests;
        if few == 0 || many <= few || many > MOST {
            let what = format!("are two numbers from 1 to {MOST}, the second above the first: [100, 600]");
            return Err(("requests", what));
        }
        for arrangement in arrangements {
            let topology = &arrangement.topology;
            let started: Vec<&str> = topology.programs().map(|(component, ..)| component).collect();
            if !started.contains(&self.component.as_str()) {
                let (name, known) = (&topology.name, started.join(", "));
                let what =
                    format!("topology `{name}` starts no component `{}`; it starts {known}", self.component);
                return Err(("component", what));
            }
            if topology.entries().len() > 1 {
                let what = format!(
                    "are sent one at a time to one place, and load enters topology `{}` at several",
                    topology.name
                );
                return Err(("requests", what));
            }
            let flow = arrangement
                .loads
                .iter()
                .find(|name| loads.get(*name).is_some_and(|load| load.flow.is_some()));
            if let Some(name) = flow {
                let what = format!(
                    "load `{name}` is a flow, whose transactions are not counted: give it a scenario of its own"
                );
                return Err(("requests", what));
            }
        }
        Ok(())
    }
}
