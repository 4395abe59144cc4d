//! Consistency of a scenario: whether its parts fit together.
//!
//! Owns: which variants its ladders, sweeps, targets and reference rows may name, and what a
//! component must have to be started or judged.
//! Does not own: single keys ([`super::table`]).

use std::collections::BTreeSet;

use lab_analysis::offline::audit::Tables;
use lab_analysis::record::{MAX_VARIANTS, Measure};
use lab_load::generator::COMPONENT;

use super::arrangement::Arrangement;
use super::description::{Scenario, expand_name};
use super::table::{Reader, RestartPolicy};
use super::target::TargetTable;
use crate::topology::{Action, TopologyError};

impl Scenario {
    pub(super) fn check(&self, reader: &Reader<'_>) -> Result<(), TopologyError> {
        let names = self.variants();
        if names.len() > MAX_VARIANTS {
            return Err(reader
                .wrong("variant", format!("{} variants exceed the maximum of {MAX_VARIANTS}", names.len())));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(reader.wrong(
                "variant",
                format!("two variants have the name `{twice}`; give one of them a `name`"),
            ));
        }
        self.check_starts(reader)?;
        let known = |place: &str, name: &str| {
            let any = self
                .combinations()
                .into_iter()
                .any(|(mode, load)| seen.contains(expand_name(name, &mode, &load).as_str()));
            if any || self.filtered {
                return Ok(());
            }
            Err(reader.wrong(place, format!("unknown variant `{name}`; available: {}", names.join(", "))))
        };
        if let Some(counts) = &self.counts {
            let checked = counts.check(&self.arrangements, &self.loads);
            checked.map_err(|(key, message)| reader.wrong(&format!("counts.{key}"), message))?;
        }
        for ladder in &self.ladders {
            ladder
                .rungs
                .iter()
                .try_for_each(|rung| known(&format!("ladder `{}`", ladder.name), &rung.variant))?;
        }
        for sweep in &self.sweeps {
            sweep.variants.iter().try_for_each(|name| known(&format!("sweep `{}`", sweep.name), name))?;
        }
        self.baselines.iter().try_for_each(|name| known("baseline", name))?;
        for table in &self.targets {
            self.check_target(table, &known, reader)?;
        }
        let published = Tables::shipped().map_err(|error| reader.wrong("reference", error.to_string()))?;
        for reference in &self.references {
            let rows = published.references(&reference.id, reference.beside.as_deref());
            rows.iter()
                .filter_map(|row| row.beside.as_ref())
                .try_for_each(|beside| known("reference", beside))?;
            if rows.is_empty() {
                let message = format!(
                    "unknown published row `{}`; `postern lab audit --example` lists all",
                    reference.id
                );
                return Err(reader.wrong("reference", message));
            }
        }
        Ok(())
    }

    /// Checks that a standby component is started only once during the life of the programs.
    fn check_starts(&self, reader: &Reader<'_>) -> Result<(), TopologyError> {
        for arrangement in &self.arrangements {
            let mut started = BTreeSet::new();
            let loads = arrangement.loads.iter().filter_map(|name| Some((name, self.loads.get(name)?)));
            let events = loads.flat_map(|(name, load)| load.events.iter().map(move |event| (name, event)));
            for (load, event) in events.filter(|(_, event)| event.action == Some(Action::Start)) {
                let place = format!("load.{load}.event");
                let component = &event.component;
                if !started.insert(component) {
                    let message = format!("`{component}` is started twice in variant `{}`", arrangement.name);
                    return Err(reader.wrong(&place, message));
                }
                if self.fresh == RestartPolicy::Run && self.rounds > 1 {
                    let message = format!(
                        "`{component}` would already run in the second round: set `fresh = \"round\"` so that programs restart in each round"
                    );
                    return Err(reader.wrong(&place, message));
                }
            }
        }
        Ok(())
    }

    fn check_target(
        &self,
        table: &TargetTable,
        known: &dyn Fn(&str, &str) -> Result<(), TopologyError>,
        reader: &Reader<'_>,
    ) -> Result<(), TopologyError> {
        let place = format!("target `{}`", table.says);
        for (mode, load) in self.combinations() {
            let wrong = |(key, message): (&str, String)| reader.wrong(&format!("{place}: {key}"), message);
            let target = table.target(&mode, &load).map_err(wrong)?;
            let component = target.figure.component();
            let of = |arrangement: &&Arrangement| {
                arrangement.loads.iter().any(|load| self.variant(arrangement, load) == target.of)
            };
            let topology = self.arrangements.iter().find(of).map(|arrangement| &arrangement.topology);
            let sends =
                self.arrangements.iter().find(of).is_some_and(|arrangement| arrangement.generator.is_some());
            let watched = |component: &str| sends && component == COMPONENT;
            if let Some((component, topology)) = component.zip(topology)
                && topology.component(component).is_none()
                && !watched(component)
            {
                let has: Vec<&str> = topology.components.iter().map(|known| known.name.as_str()).collect();
                let message = format!(
                    "topology `{}` has no component `{component}`; it has {}",
                    topology.name,
                    has.join(", ")
                );
                return Err(wrong(("component", message)));
            }
            if let (Measure::Counter { component, name }, Some(topology)) = (&target.figure, topology) {
                let metrics = topology.component(component).and_then(|known| known.metrics.as_ref());
                let has: Vec<&str> =
                    metrics.iter().flat_map(|metrics| metrics.counters.keys()).map(String::as_str).collect();
                if !has.contains(&name.as_str()) {
                    let message = format!(
                        "component `{component}` of topology `{}` has no counter `{name}`; it has {}",
                        topology.name,
                        if has.is_empty() { "none".to_owned() } else { has.join(", ") }
                    );
                    return Err(wrong(("name", message)));
                }
            }
        }
        table.names().try_for_each(|name| known(&place, name))
    }
}
