//! Counts table: instructions and allocations that a scenario counts for one component.
//!
//! Owns: the keys and their permitted values. Does not own: counting ([`crate::run`]).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::arrangement::Arrangement;
use super::load::Load;

/// Largest number of requests in a count: under a counting tool a thousand take seconds.
const MAX_REQUESTS: u64 = 1_000_000;

/// What is counted per request, for every variant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Component whose instructions and allocations are counted.
    pub component: String,
    /// Requests of the shorter and the longer run. The difference of the two runs is the result,
    /// because both contain the cost of start and end.
    pub requests: [u64; 2],
}

impl Counts {
    /// Difference in requests between the two runs.
    pub fn difference(&self) -> u64 {
        self.requests[1] - self.requests[0]
    }

    /// Checks the counts against the arrangements and loads.
    ///
    /// # Errors
    /// The wrong key, and the reason.
    pub(super) fn check(
        &self,
        arrangements: &[Arrangement],
        loads: &BTreeMap<String, Load>,
    ) -> Result<(), (&'static str, String)> {
        let [few, many] = self.requests;
        if few == 0 || many <= few || many > MAX_REQUESTS {
            let message =
                format!("must be two increasing numbers from 1 to {MAX_REQUESTS}, such as [100, 600]");
            return Err(("requests", message));
        }
        for arrangement in arrangements {
            let topology = &arrangement.topology;
            let started: Vec<&str> = topology.programs().map(|(component, ..)| component).collect();
            if !started.contains(&self.component.as_str()) {
                let (name, known) = (&topology.name, started.join(", "));
                let message =
                    format!("topology `{name}` starts no component `{}`; it starts {known}", self.component);
                return Err(("component", message));
            }
            if topology.entry_urls().len() > 1 {
                let message =
                    format!("need a single load entry, but topology `{}` has several", topology.name);
                return Err(("requests", message));
            }
            let flow = arrangement
                .loads
                .iter()
                .find(|name| loads.get(*name).is_some_and(|load| load.flow.is_some()));
            if let Some(name) = flow {
                let message = format!(
                    "load `{name}` is a flow, which cannot be counted: move it to a scenario without [counts]"
                );
                return Err(("requests", message));
            }
        }
        Ok(())
    }
}
