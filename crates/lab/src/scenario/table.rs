//! Scenario tables: the tables of a scenario's TOML file, and how they become loads and
//! arrangements.
//!
//! Owns: keys, and the topologies, modes, loads and overrides that they name. Does not own: the
//! consistency of a whole scenario ([`super::description`]), and the keys of loads
//! ([`super::load`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lab_analysis::amount;
use lab_load::cgroup::Limits;
use lab_load::generator::{COMPONENT, Generator};
use lab_load::load::{Exchange, Protocol, Stop};
use serde::Deserialize;

use super::arrangement::{Arrangement, ScenarioOptions};
use super::counts::Counts;
use super::load::{ArrivalPattern, Load};
use super::load_table::{LoadTable, MIN_REVOCATION_INTERVAL};
use super::target::TargetTable;
use crate::topology::{Action, Topology, TopologyError, TopologyOverrides, WireProtocol};

/// Lowest limit of open files that a component can have.
const MIN_OPEN_FILES: u64 = 32;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub(super) title: Option<String>,
    pub(super) rounds: u32,
    #[serde(default)]
    pub(super) fresh: RestartPolicy,
    pub(super) calibration: Option<String>,
    #[serde(default)]
    pub(super) profile: bool,
    pub(super) load: BTreeMap<String, LoadTable>,
    pub(super) variant: Vec<VariantTable>,
    pub(super) counts: Option<Counts>,
    pub(super) quick: Option<QuickTable>,
    #[serde(default)]
    pub(super) ladder: Vec<LadderTable>,
    #[serde(default)]
    pub(super) sweep: Vec<SweepTable>,
    #[serde(default)]
    pub(super) reference: Vec<ReferenceTable>,
    /// One or several variants. The other variants under the same load are compared with them.
    pub(super) baseline: Option<Names>,
    #[serde(default)]
    pub(super) target: Vec<TargetTable>,
}

/// When programs are restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartPolicy {
    /// Programs restart for each round.
    #[default]
    Round,
    /// Programs run through the whole run.
    Run,
    /// Programs of all variants restart for each round and run side by side.
    Together,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuickTable {
    pub(super) rounds: Option<u32>,
    pub(super) fresh: Option<RestartPolicy>,
    pub(super) calibration: Option<String>,
    /// Variants to keep, by the name before the token mode; `None` for all.
    pub(super) variants: Option<Vec<String>>,
    /// Loads to keep; `None` for all.
    pub(super) loads: Option<Vec<String>>,
    #[serde(default)]
    pub(super) load: BTreeMap<String, LoadTable>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Names {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariantTable {
    pub(super) name: Option<String>,
    pub(super) topology: Option<Names>,
    pub(super) tokens: Option<Names>,
    pub(super) load: Option<Names>,
    /// Replaces the protocol of the topology.
    pub(super) protocol: Option<WireProtocol>,
    /// Replaces `guarded` of the topology.
    pub(super) guarded: Option<bool>,
    /// Replaces the `patience` in the revocations of its loads.
    pub(super) patience: Option<String>,
    /// Program that sends its loads.
    pub(super) generator: Option<Generator>,
    #[serde(default)]
    pub(super) variables: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) limits: BTreeMap<String, LimitTable>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitTable {
    pub(super) cpu: Option<String>,
    pub(super) memory: Option<String>,
    pub(super) open_files: Option<u64>,
    pub(super) cores: Option<Vec<u32>>,
}

/// A ladder of variants. `@tokens@` and `@load@` in its names stand for each token mode and each
/// load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LadderTable {
    pub(crate) name: String,
    pub(crate) rungs: Vec<RungTable>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RungTable {
    pub(crate) adds: String,
    pub(crate) variant: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepTable {
    pub(crate) name: String,
    pub(crate) variants: Vec<String>,
}

/// A row of published figures for comparison.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReferenceTable {
    /// ID of the row in the published tables.
    pub(crate) id: String,
    /// Variant that is compared with the row. For a sweep, `@concurrency@` stands for the workers
    /// of each of its rows.
    pub(crate) beside: Option<String>,
}

impl Names {
    pub(super) fn list(self) -> Vec<String> {
        match self {
            Self::One(name) => vec![name],
            Self::Many(names) => names,
        }
    }
}

/// Names of the individual loads, by the name of the load that stands for them.
pub(super) type LoadGroups = BTreeMap<String, Vec<String>>;

/// Replaces each name that stands for several loads by the names of those loads.
pub(super) fn expand_load_names(names: &[String], several: &LoadGroups) -> Vec<String> {
    let parts = |name: &String| several.get(name).cloned().unwrap_or_else(|| vec![name.clone()]);
    names.iter().flat_map(parts).collect()
}

/// Converts the tables of one scenario file.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) options: &'a ScenarioOptions,
}

impl Reader<'_> {
    pub(super) fn wrong(&self, place: &str, message: impl Into<String>) -> TopologyError {
        TopologyError::invalid_value(self.file, place, message)
    }

    pub(super) fn loads(
        &self,
        table: &Table,
        quick: Option<&QuickTable>,
    ) -> Result<(BTreeMap<String, Load>, LoadGroups), TopologyError> {
        if table.load.is_empty() {
            return Err(self.wrong("load", "missing; add [load.NAME]"));
        }
        if let Some(unknown) =
            quick.and_then(|quick| quick.load.keys().find(|name| !table.load.contains_key(*name)))
        {
            return Err(self.wrong(&format!("quick.load.{unknown}"), "no [load] has that name"));
        }
        let (mut loads, mut several) = (BTreeMap::new(), LoadGroups::new());
        for (name, whole) in &table.load {
            let shorter = quick.and_then(|quick| quick.load.get(name));
            let table = shorter.map_or_else(|| whole.clone(), |shorter| whole.clone().with(shorter));
            let each =
                table.each().map_err(|(key, message)| self.wrong(&format!("load.{name}.{key}"), message))?;
            for (part, load) in each {
                let full = part.as_ref().map_or_else(|| name.clone(), |part| format!("{name}-{part}"));
                if part.is_some() {
                    several.entry(name.clone()).or_default().push(full.clone());
                }
                if loads.insert(full.clone(), load).is_some() {
                    return Err(self.wrong(&format!("load.{full}"), "two loads have that name"));
                }
            }
        }
        Ok((loads, several))
    }

    pub(super) fn arrangements(
        &self,
        tables: Vec<VariantTable>,
        loads: &BTreeMap<String, Load>,
        several: &LoadGroups,
        sources: &mut BTreeMap<String, String>,
    ) -> Result<Vec<Arrangement>, TopologyError> {
        let mut arrangements = Vec::new();
        let mut known = BTreeSet::new();
        for table in tables {
            let named = match table.topology.clone() {
                Some(names) => names.list(),
                None if self.options.topologies.is_empty() => {
                    return Err(self.wrong("variant", "`topology` missing; set it, or use --topology"));
                }
                None => self.options.topologies.clone(),
            };
            for name in named {
                known.insert(name.clone());
                if !self.options.topologies.is_empty() && !self.options.topologies.contains(&name) {
                    continue;
                }
                let topology = Topology::read_with(&name, &table.variables)?;
                sources.extend(topology.sources.clone());
                arrangements.extend(self.arrangements_of_topology(&table, &topology, loads, several)?);
            }
        }
        if let Some(unknown) = self.options.topologies.iter().find(|name| !known.contains(*name)) {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(
                self.wrong("--topology", format!("the scenario has no topology `{unknown}`; it has {known}"))
            );
        }
        if arrangements.is_empty() {
            return Err(self.wrong("variant", "missing; add [[variant]]"));
        }
        Ok(arrangements)
    }

    fn arrangements_of_topology(
        &self,
        table: &VariantTable,
        topology: &Topology,
        loads: &BTreeMap<String, Load>,
        several: &LoadGroups,
    ) -> Result<Vec<Arrangement>, TopologyError> {
        let base = table.name.clone().unwrap_or_else(|| topology.name.clone());
        let place = format!("variant `{base}`");
        let modes: Vec<Option<String>> = match (&table.tokens, topology.modes()) {
            (_, known) if known.is_empty() => vec![None],
            (None, known) => known.into_iter().map(|mode| Some(mode.to_owned())).collect(),
            (Some(names), known) => {
                let names = names.clone().list();
                if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
                    let message = format!(
                        "topology `{}` has no token mode `{unknown}`; it has {}",
                        topology.name,
                        known.join(", ")
                    );
                    return Err(self.wrong(&place, message));
                }
                names.into_iter().map(Some).collect()
            }
        };
        let chosen = match table.load.clone() {
            None => {
                // Rates keep the order of the file, in which they increase.
                let part = |name: &&String| several.values().any(|parts| parts.contains(name));
                let mut names: Vec<String> = loads.keys().filter(|name| !part(name)).cloned().collect();
                names.extend(several.keys().cloned());
                names
            }
            Some(names) => names.list(),
        };
        let chosen = expand_load_names(&chosen, several);
        if let Some(unknown) = chosen.iter().find(|name| !loads.contains_key(*name)) {
            let known = loads.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(self.wrong(&place, format!("unknown load `{unknown}`; available: {known}")));
        }
        for load in chosen.iter().filter_map(|name| loads.get(name)) {
            self.check_load(&place, load, topology)?;
        }
        for (name, flow) in chosen.iter().filter_map(|name| Some((name, loads.get(name)?.flow?))) {
            topology.supports_flow(flow).map_err(|message| {
                self.wrong(&place, format!("load `{name}` on topology `{}`: {message}", topology.name))
            })?;
        }
        let patience = self.revocation_timeout(&place, table, &chosen, loads)?;
        let change = self.overrides(&place, table, topology)?;
        let mut topology = topology.clone();
        if let Some(wire) = table.protocol {
            topology.entry.protocol = wire.protocol();
        }
        self.check_wire(&place, &chosen, loads, topology.entry.protocol)?;
        topology.entry.guarded = table.guarded.unwrap_or(topology.entry.guarded);
        let all = || chosen.iter().filter_map(|name| Some((name, loads.get(name)?)));
        for (generator, (name, load)) in
            table.generator.into_iter().flat_map(|one| all().map(move |load| (one, load)))
        {
            check_generator(generator, load, &topology, &table.variables).map_err(|message| {
                self.wrong(&format!("{place}: generator"), format!("load `{name}`: {message}"))
            })?;
        }
        let arrangement = |mode: Option<String>| Arrangement {
            name: mode.as_ref().map_or_else(|| base.clone(), |mode| format!("{base}/{mode}")),
            topology: topology.clone(),
            mode,
            change: change.clone(),
            loads: chosen.clone(),
            patience,
            generator: table.generator,
            generator_cores: table
                .limits
                .get(COMPONENT)
                .and_then(|limit| limit.cores.clone())
                .unwrap_or_default(),
        };
        Ok(modes.into_iter().map(arrangement).collect())
    }

    /// Checks that the chosen loads can be sent over this protocol.
    fn check_wire(
        &self,
        place: &str,
        chosen: &[String],
        loads: &BTreeMap<String, Load>,
        wire: Protocol,
    ) -> Result<(), TopologyError> {
        let wrong = |name: &String| Some((name.clone(), loads.get(name)?.wrong_wire(wire)?));
        match chosen.iter().find_map(wrong) {
            Some((name, message)) => Err(self.wrong(place, format!("load `{name}` {message}"))),
            None => Ok(()),
        }
    }

    /// How long a revoked credential is watched in this variant, if it is set.
    fn revocation_timeout(
        &self,
        place: &str,
        table: &VariantTable,
        chosen: &[String],
        loads: &BTreeMap<String, Load>,
    ) -> Result<Option<Duration>, TopologyError> {
        let Some(text) = &table.patience else { return Ok(None) };
        let place = format!("{place}: patience");
        let patience = amount::duration(text).map_err(|message| self.wrong(&place, message))?;
        if patience < MIN_REVOCATION_INTERVAL {
            return Err(self.wrong(&place, "must be at least 1ms"));
        }
        let revokes = |name: &String| loads.get(name).is_some_and(|load| load.revocations.is_some());
        if !chosen.iter().any(revokes) {
            return Err(self.wrong(&place, "none of its loads has [load.NAME.revocations]"));
        }
        Ok(Some(patience))
    }

    /// Checks that the topology supports the revocations and events of a load.
    fn check_load(&self, place: &str, load: &Load, topology: &Topology) -> Result<(), TopologyError> {
        if load.revocations.is_some() && topology.revocations.is_none() {
            let message = format!("topology `{}` has no [revocations] endpoints", topology.name);
            return Err(self.wrong(place, message));
        }
        if (load.changes.is_some() || load.scrape_every.is_some()) && topology.cluster.is_none() {
            let message =
                format!("topology `{}` has no [cluster] that can change or be scraped", topology.name);
            return Err(self.wrong(place, message));
        }
        let floods = load.revocations.is_some_and(|pace| pace.flood.is_some());
        if floods && topology.revocations.as_ref().is_some_and(|revocations| revocations.lists.is_empty()) {
            let message = format!(
                "topology `{}` has no endpoint that revokes lists of tokens (`lists` in [revocations])",
                topology.name
            );
            return Err(self.wrong(place, message));
        }
        let started: BTreeSet<&str> = topology.programs().map(|(component, ..)| component).collect();
        for event in &load.events {
            let name = &event.component;
            let wrong = |message: String| {
                Err(self.wrong(place, format!("an event names component `{name}`, {message}")))
            };
            if !started.contains(name.as_str()) {
                let known = started.into_iter().collect::<Vec<_>>().join(", ");
                return wrong(format!(
                    "but topology `{}` does not start it; it starts {known}",
                    topology.name
                ));
            }
            if event.action == Some(Action::Start) && !topology.is_standby(name) {
                return wrong(format!(
                    "but topology `{}` starts it with the others: set `standby = true` there",
                    topology.name
                ));
            }
            let anew = event.file_rewrite.as_ref().map(|anew| topology.check_rewrite(name, anew));
            anew.transpose().map_err(|message| {
                self.wrong(
                    place,
                    format!("an event rewrites a file of topology `{}`: {message}", topology.name),
                )
            })?;
        }
        Ok(())
    }

    fn overrides(
        &self,
        place: &str,
        table: &VariantTable,
        topology: &Topology,
    ) -> Result<TopologyOverrides, TopologyError> {
        if let Some(unknown) = table.variables.keys().find(|name| !topology.variables.contains_key(*name)) {
            let known = topology.variables.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("topology `{}` has no variable `{unknown}`; it has {known}", topology.name);
            return Err(self.wrong(place, message));
        }
        let (mut limits, mut open_files, mut cores) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (name, limit) in &table.limits {
            if name == COMPONENT && table.generator.is_some() {
                if limit.cpu.is_some() || limit.memory.is_some() || limit.open_files.is_some() {
                    let message = "the load generator can only have `cores`";
                    return Err(self.wrong(&format!("{place}: limits.{name}"), message));
                }
                continue;
            }
            if topology.component(name).is_none() {
                let known =
                    topology.components.iter().map(|component| component.name.as_str()).collect::<Vec<_>>();
                let message = format!(
                    "topology `{}` has no component `{name}`; it has {}",
                    topology.name,
                    known.join(", ")
                );
                return Err(self.wrong(&format!("{place}: limits"), message));
            }
            let parse = |given: &Option<String>, parse: fn(&str) -> Result<u64, String>| {
                let parsed = given.as_deref().map(parse).transpose();
                parsed.map_err(|message| self.wrong(&format!("{place}: limits.{name}"), message))
            };
            let limits_of = Limits {
                cpu_millicores: parse(&limit.cpu, amount::millicores)?,
                memory_bytes: parse(&limit.memory, amount::bytes)?,
            };
            // A component with only a file limit keeps the CPU and memory limits of its topology.
            if !limits_of.is_empty() {
                limits.insert(name.clone(), limits_of);
            }
            if limit.open_files.is_some_and(|files| files < MIN_OPEN_FILES) {
                let message = format!("must be at least {MIN_OPEN_FILES}, otherwise no program can start");
                return Err(self.wrong(&format!("{place}: limits.{name}.open_files"), message));
            }
            open_files.extend(limit.open_files.map(|files| (name.clone(), files)));
            cores.extend(limit.cores.clone().map(|cores| (name.clone(), cores)));
        }
        Ok(TopologyOverrides { variables: table.variables.clone(), limits, open_files, cores })
    }
}

/// Checks that a generator can send a load through a topology. Other generators than the lab
/// support fewer kinds of load.
fn check_generator(
    generator: Generator,
    load: &Load,
    topology: &Topology,
    variables: &BTreeMap<String, String>,
) -> Result<(), String> {
    if topology.component(COMPONENT).is_some() {
        return Err(format!(
            "topology `{}` has a component with the reserved name `{COMPONENT}`",
            topology.name
        ));
    }
    let Some(name) = generator.program() else { return Ok(()) };
    let whole = |time: Duration| time.subsec_nanos() == 0;
    let is_whole_seconds =
        matches!(load.stop, Stop::After(duration) if whole(duration)) && whole(load.warmup);
    let entry = &topology.entry;
    let urls = topology.entries_with(variables);
    let plain = matches!(&urls[..], [url] if url.starts_with("http://")) && entry.connect.is_none();
    let (must, kept) = match () {
        () if !matches!(load.arrivals, ArrivalPattern::Closed(_)) => {
            ("must be a closed loop (`arrivals = \"closed\"`)", false)
        }
        () if !is_whole_seconds => ("must last whole seconds (`duration`, `warmup`)", false),
        () if !whole(load.timeout) => ("needs a `timeout` of whole seconds", false),
        () if load.tokens > 1 => ("can have at most one token (`tokens`)", false),
        () if load.flow.is_some() || load.hold.is_some() || load.revocations.is_some() => {
            ("cannot have `flow`, `hold` or `revocations`", false)
        }
        () if load.exchange != Exchange::Request => ("cannot have `stream` or `websocket`", false),
        () if !plain || entry.protocol != Protocol::Http1 => {
            ("needs a single load entry with HTTP/1.1 and without TLS", false)
        }
        () => ("", true),
    };
    if kept { Ok(()) } else { Err(format!("a load of {name} {must}")) }
}
