//! Scenario description: the checked content of a scenario file.
//!
//! Owns: how the tables of a file become arrangements, loads and targets. Does not own: single keys
//! ([`super::table`]), whether the parts fit together ([`super::consistency`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use lab_analysis::amount;
use lab_analysis::record::{MAX_ITERATIONS, Target};

use super::ArrivalPattern;
use super::arrangement::{Arrangement, ScenarioOptions};
use super::counts::Counts;
use super::load::Load;
use super::rate::Rate;
use super::table::{
    LadderTable, LoadGroups, Names, QuickTable, Reader, ReferenceTable, RestartPolicy, SweepTable, Table,
    expand_load_names,
};
use super::target::TargetTable;
use crate::topology::{Library, TopologyError};

/// A checked scenario: which topologies run, with which loads, and how often.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Name of the scenario: the file name without its extension.
    pub name: String,
    /// One-line description for people.
    pub title: String,
    /// `true` if the quick form was requested.
    pub quick: bool,
    /// Number of measurements of each variant.
    pub rounds: u32,
    /// When programs are restarted.
    pub fresh: RestartPolicy,
    /// Loads by name.
    pub loads: BTreeMap<String, Load>,
    /// Topologies to run, and the loads of each.
    pub arrangements: Vec<Arrangement>,
    /// What is counted in addition to the measurements.
    pub counts: Option<Counts>,
    /// `true` if components are profiled in an additional round.
    pub profile: bool,
    pub(crate) calibration: Duration,
    pub(crate) ladders: Vec<LadderTable>,
    pub(crate) sweeps: Vec<SweepTable>,
    /// `true` if variants were left out on request, so that names may refer to missing variants.
    pub(super) filtered: bool,
    pub(crate) references: Vec<ReferenceTable>,
    pub(crate) baselines: Vec<String>,
    pub(crate) targets: Vec<TargetTable>,
    /// Every source text of the scenario, by name.
    pub(crate) sources: BTreeMap<String, String>,
}

impl Scenario {
    /// Reads a shipped scenario or a file.
    ///
    /// # Errors
    /// The scenario, or one of its topologies, cannot be read or is invalid.
    pub fn read(name: &str, wish: &ScenarioOptions) -> Result<Self, TopologyError> {
        let text = Library::scenario(name)?;
        Self::parse(&text.content, &text.name, name, wish)
    }

    /// Reads a scenario from a text; `file` is its name in errors.
    pub fn from_text(content: &str, file: &str, wish: &ScenarioOptions) -> Result<Self, TopologyError> {
        Self::parse(content, file, file, wish)
    }

    /// Title of a shipped scenario.
    pub fn title_of(name: &str) -> Result<String, TopologyError> {
        let text = Library::scenario(name)?;
        let table: Table = toml::from_str(&text.content)
            .map_err(|error| TopologyError::Toml { file: text.name.clone(), error })?;
        Ok(table.title.unwrap_or_else(|| name.to_owned()))
    }

    fn parse(content: &str, file: &str, name: &str, wish: &ScenarioOptions) -> Result<Self, TopologyError> {
        let table: Table =
            toml::from_str(content).map_err(|error| TopologyError::Toml { file: file.to_owned(), error })?;
        let stem = PathBuf::from(name)
            .file_stem()
            .map_or(name.to_owned(), |stem| stem.to_string_lossy().into_owned());
        let reader = Reader { file, options: wish };
        let quick = table.quick.as_ref().filter(|_| wish.quick);
        let rounds = wish.rounds.or(quick.and_then(|quick| quick.rounds)).unwrap_or(table.rounds);
        if rounds == 0 || rounds as usize > MAX_ITERATIONS {
            return Err(reader.wrong("rounds", format!("{rounds} must be from 1 to {MAX_ITERATIONS}")));
        }
        let calibration = quick.and_then(|quick| quick.calibration.as_ref()).or(table.calibration.as_ref());
        let calibration = calibration.map_or(Ok(Duration::from_secs(2)), |text| amount::duration(text));
        let fresh = quick.and_then(|quick| quick.fresh).unwrap_or(table.fresh);
        let mut sources = BTreeMap::from([(file.to_owned(), content.to_owned())]);
        let (mut loads, several) = reader.loads(&table, quick)?;
        let mut arrangements = reader.arrangements(table.variant, &loads, &several, &mut sources)?;
        let partly = !wish.topologies.is_empty()
            || quick.is_some_and(|quick| quick.variants.is_some() || quick.loads.is_some());
        if let Some(quick) = quick {
            apply_quick(&reader, quick, &several, &mut loads, &mut arrangements)?;
        }
        let mut scenario = Self {
            title: table.title.unwrap_or_else(|| stem.clone()),
            name: stem,
            quick: wish.quick,
            rounds,
            fresh,
            loads,
            arrangements,
            counts: table.counts,
            profile: table.profile,
            calibration: calibration.map_err(|message| reader.wrong("calibration", message))?,
            ladders: table.ladder,
            sweeps: table.sweep,
            filtered: partly,
            references: table.reference,
            baselines: table.baseline.map_or_else(Vec::new, Names::list),
            targets: table.target,
            sources,
        };
        scenario.add_rate_sweeps(&several);
        scenario.check(&reader)?;
        Ok(scenario)
    }

    /// Adds a sweep for each load with several rates, which shows at which rate a variant is
    /// saturated.
    fn add_rate_sweeps(&mut self, several: &LoadGroups) {
        let mut sweeps = Vec::new();
        for (load, parts) in several {
            for arrangement in &self.arrangements {
                let through = parts.iter().filter(|part| arrangement.loads.contains(part));
                let variants: Vec<String> = through.map(|part| self.variant(arrangement, part)).collect();
                if variants.len() > 2 {
                    sweeps.push(SweepTable { name: format!("{}, {load}", arrangement.name), variants });
                }
            }
        }
        self.sweeps.extend(sweeps);
    }

    /// Name of the variant that combines this arrangement and this load.
    pub fn variant(&self, arrangement: &Arrangement, load: &str) -> String {
        if self.loads.len() == 1 { arrangement.name.clone() } else { format!("{}/{load}", arrangement.name) }
    }

    /// Names of all loads: first in the order of the arrangement with the most loads, then
    /// additional loads of the others.
    pub(crate) fn loads_in_order(&self) -> Vec<&String> {
        let mut order: Vec<&String> = Vec::new();
        let mut longest: Vec<&Arrangement> = self.arrangements.iter().collect();
        longest.sort_by_key(|arrangement| std::cmp::Reverse(arrangement.loads.len()));
        for load in longest.into_iter().flat_map(|arrangement| &arrangement.loads) {
            if !order.contains(&load) {
                order.push(load);
            }
        }
        order
    }

    /// Names of all variants, in order.
    pub fn variants(&self) -> Vec<String> {
        let of = |arrangement: &Arrangement| -> Vec<String> {
            arrangement.loads.iter().map(|load| self.variant(arrangement, load)).collect()
        };
        self.arrangements.iter().flat_map(of).collect()
    }

    /// Lower bound of the duration of all loads. The duration of a fixed number of requests, and
    /// the start of programs, are not known and not included.
    pub fn min_duration(&self) -> Duration {
        let loads = self.arrangements.iter().flat_map(|arrangement| &arrangement.loads);
        let all =
            |load: &Load| Some(load.length()? * (load.rounds_of(self.rounds) + u32::from(self.profile)));
        let loads: Duration = loads.filter_map(|load| all(self.loads.get(load)?)).sum();
        let calibrating = if self.needs_calibration() { self.calibration } else { Duration::ZERO };
        loads + (calibrating + calibrating / 4) * u32::try_from(self.arrangements.len()).unwrap_or(u32::MAX)
    }

    /// Whether a rate depends on what the slowest variant serves.
    pub(crate) fn needs_calibration(&self) -> bool {
        let share = |rate: &Rate| matches!(rate, Rate::OfSlowest(_));
        let shares = |load: &Load| match &load.arrivals {
            ArrivalPattern::Open { rates: course, .. } => course.rates().iter().any(share),
            ArrivalPattern::Closed(_) => false,
        };
        self.loads.values().any(shares)
    }

    /// All combinations of values for `@tokens@` and `@load@`.
    pub(crate) fn combinations(&self) -> Vec<(String, String)> {
        let modes: BTreeSet<&str> =
            self.arrangements.iter().filter_map(|arrangement| arrangement.mode.as_deref()).collect();
        let pairs = |mode: &str| -> Vec<(String, String)> {
            self.loads.keys().map(|load| (mode.to_owned(), load.clone())).collect()
        };
        if modes.is_empty() { pairs("") } else { modes.into_iter().flat_map(pairs).collect() }
    }
}

/// Keeps only the variants and loads of the quick form.
fn apply_quick(
    reader: &Reader<'_>,
    quick: &QuickTable,
    several: &LoadGroups,
    loads: &mut BTreeMap<String, Load>,
    arrangements: &mut Vec<Arrangement>,
) -> Result<(), TopologyError> {
    let base = |arrangement: &Arrangement| -> String {
        let mode = arrangement.mode.as_ref().map_or_else(String::new, |mode| format!("/{mode}"));
        arrangement.name.strip_suffix(mode.as_str()).unwrap_or(&arrangement.name).to_owned()
    };
    if let Some(names) = &quick.variants {
        let known: BTreeSet<String> = arrangements.iter().map(base).collect();
        // With --topology some variants may already be left out.
        if let Some(unknown) =
            names.iter().find(|name| reader.options.topologies.is_empty() && !known.contains(*name))
        {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(
                reader.wrong("quick.variants", format!("unknown variant `{unknown}`; available: {known}"))
            );
        }
        let is_selected = |arrangement: &Arrangement| names.contains(&base(arrangement));
        if arrangements.iter().any(is_selected) {
            arrangements.retain(is_selected);
        }
    }
    if let Some(names) = &quick.loads {
        let names = &expand_load_names(names, several);
        if let Some(unknown) = names.iter().find(|name| !loads.contains_key(*name)) {
            let known = loads.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(reader.wrong("quick.loads", format!("unknown load `{unknown}`; available: {known}")));
        }
        loads.retain(|name, _| names.contains(name));
        for arrangement in arrangements.iter_mut() {
            arrangement.loads.retain(|name| names.contains(name));
        }
        arrangements.retain(|arrangement| !arrangement.loads.is_empty());
        if arrangements.is_empty() {
            return Err(reader.wrong("quick.loads", "no remaining variant has one of these loads"));
        }
    }
    Ok(())
}

impl Scenario {
    /// Targets whose variants are all part of the scenario, one for each combination of token mode
    /// and load.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let variants = self.variants();
        let mut targets: Vec<Target> = Vec::new();
        for table in &self.targets {
            for (mode, load) in self.combinations() {
                let Ok(target) = table.target(&mode, &load) else { continue };
                let named = [Some(&target.of), target.minus.as_ref(), target.over.as_ref()];
                let whole = named.into_iter().flatten().all(|name| variants.contains(name));
                if whole && !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
        targets
    }
}

/// Replaces the placeholders of a name by a token mode and a load.
pub(crate) fn expand_name(name: &str, mode: &str, load: &str) -> String {
    name.replace("@tokens@", mode).replace("@load@", load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_analysis::record::Measure;
    use lab_load::load::Stop;

    const SOUND: &str = "rounds = 2\n[load.a]\narrivals = 'closed'\nconcurrency = 2\nrequests = 10\n[[variant]]\ntopology = ['fused', 'direct']\n";

    fn read(text: &str, wish: &ScenarioOptions) -> Result<Scenario, String> {
        Scenario::from_text(text, "mine.toml", wish).map_err(|error| error.to_string())
    }

    #[test]
    fn those_that_ship_are_sound_whole_and_quick() {
        for name in Library::scenarios() {
            for quick in [false, true] {
                let topologies =
                    if ["one", "knee"].contains(&name) { vec!["fused".to_owned()] } else { Vec::new() };
                let wish = ScenarioOptions { quick, topologies, rounds: None };
                let scenario = Scenario::read(name, &wish).unwrap_or_else(|error| panic!("{error}"));
                assert!(!scenario.variants().is_empty() && scenario.rounds >= 1, "{name}");
                assert!(Scenario::title_of(name).unwrap().len() > name.len());
            }
        }
    }

    /// On a fast service a number of requests ends within milliseconds, and the CPU samples in that
    /// time are meaningless.
    #[test]
    fn every_quick_load_that_ships_lasts_long_enough_to_tell_cpu() {
        for name in Library::scenarios() {
            let topologies =
                if ["one", "knee"].contains(&name) { vec!["fused".to_owned()] } else { Vec::new() };
            let scenario =
                Scenario::read(name, &ScenarioOptions { quick: true, topologies, rounds: None }).unwrap();
            if scenario.counts.is_some() {
                // Instruction counts are repeatable, even if the load is short.
                continue;
            }
            let used = scenario.arrangements.iter().flat_map(|arrangement| &arrangement.loads);
            for load in used {
                let load_of = &scenario.loads[load];
                let fits = match load_of.stop {
                    Stop::After(time) => time >= Duration::from_secs(1),
                    // The first use of each token: there are no more tokens.
                    Stop::Count(requests) => requests == u64::from(load_of.tokens),
                };
                assert!(fits, "{name}, {load}: {:?}", load_of.stop);
            }
        }
    }

    #[test]
    fn variants_are_topology_by_mode_by_load() {
        let scenario = read(SOUND, &ScenarioOptions::default()).unwrap();
        assert_eq!(scenario.variants(), ["fused/oauth", "fused/oidc", "direct"]);
        let two = SOUND.replace(
            "[[variant]]",
            "[load.b]\narrivals = 'constant'\nrate = 5\nduration = '1s'\n[[variant]]\ntokens = 'oidc'",
        );
        let scenario = read(&two, &ScenarioOptions::default()).unwrap();
        assert_eq!(scenario.variants(), ["fused/oidc/a", "fused/oidc/b", "direct/a", "direct/b"]);
        let wish = ScenarioOptions { topologies: vec!["direct".to_owned()], rounds: Some(7), quick: true };
        let scenario = read(&two, &wish).unwrap();
        assert_eq!(
            (scenario.variants(), scenario.rounds),
            (vec!["direct/a".to_owned(), "direct/b".to_owned()], 7)
        );
    }

    #[test]
    fn loads_come_in_the_order_of_the_variant_that_has_most() {
        let loads = ["a", "b", "c", "d"]
            .map(|name| format!("[load.{name}]\narrivals = 'closed'\nconcurrency = 2\nrequests = 10\n"));
        let variant = |name: &str, loads: &str| {
            format!("[[variant]]\nname = '{name}'\ntopology = 'direct'\nload = [{loads}]\n")
        };
        let variants = [("x", "'b', 'd'"), ("y", "'c', 'a', 'b'")].map(|(name, loads)| variant(name, loads));
        let text = ["rounds = 1\n", &loads.concat(), &variants.concat()].concat();
        assert_eq!(read(&text, &ScenarioOptions::default()).unwrap().loads_in_order(), ["c", "a", "b", "d"]);
    }

    #[test]
    fn a_quick_form_can_leave_variants_and_loads_out() {
        let text = SOUND.replace(
            "[[variant]]",
            "[load.b]\narrivals = 'constant'\nrate = 5\nduration = '1s'\n[load.c]\narrivals = 'constant'\nrate = 5\nduration = '1s'\n\
             [quick]\nvariants = ['fused']\nloads = ['a', 'c']\n[[variant]]",
        );
        let quick = ScenarioOptions { quick: true, ..ScenarioOptions::default() };
        let names = read(&text, &quick).unwrap().variants();
        assert_eq!(names, ["fused/oauth/a", "fused/oauth/c", "fused/oidc/a", "fused/oidc/c"]);
        assert_eq!(read(&text, &ScenarioOptions::default()).unwrap().variants().len(), 9);
        // Then a reference to an excluded variant is not an error.
        let text =
            text.replace("rounds = 2", "rounds = 2\nbaseline = ['direct/@load@', 'fused/@tokens@/@load@']");
        assert!(read(&text, &quick).is_ok());
    }

    #[test]
    fn requests_to_one_place_are_counted_and_no_flows() {
        let counted = |topology: &str, load: &str| {
            let text = format!(
                "rounds = 1\n[load.a]\narrivals = 'closed'\nconcurrency = 2\n{load}\n[[variant]]\ntopology = '{topology}'\n\
                 [counts]\ncomponent = 'gateway-a'\nrequests = [1, 2]\n"
            );
            read(&text, &ScenarioOptions::default()).unwrap_err()
        };
        let several = counted("idp-multi", "requests = 10");
        assert!(several.contains("counts.requests") && several.contains("has several"), "{several}");
        let flow = counted("idp-single", "duration = '1s'\nflow = 'password'");
        assert!(flow.contains("counts.requests") && flow.contains("`a` is a flow"), "{flow}");
    }

    #[test]
    fn what_is_promised_about_revoked_tokens_is_asked_of_every_variant() {
        let scenario = Scenario::read("coherence", &ScenarioOptions::default()).unwrap();
        let targets = scenario.targets();
        let held = |name: &String, figure: &Measure| {
            targets.iter().any(|target| target.of == *name && target.figure == *figure)
        };
        for variant in scenario.variants() {
            // Without responses nothing is revoked and every request is refused: only the speed of
            // the refusal matters.
            let promised = if variant.ends_with("/silent") {
                [Measure::RefusedP99, Measure::Healing]
            } else {
                [Measure::StalenessMax, Measure::Errors]
            };
            for figure in promised {
                assert!(held(&variant, &figure), "{figure} of {variant}");
            }
            // With a frozen broker it may take longer than 25 ms.
            let normal = ["/normal", "/longer", "/alone"].iter().any(|load| variant.ends_with(load));
            assert_eq!(held(&variant, &Measure::StalenessP99), normal, "{variant}");
        }
    }

    #[test]
    fn targets_stand_for_every_mode_that_has_their_variants() {
        let target = "[[target]]\nsays = '@tokens@'\nfigure = 'p50'\nof = 'fused/@tokens@'\nover = 'direct'\nat_most = 9\n";
        let text = format!("{SOUND}{target}");
        let says = |wish: &ScenarioOptions| -> Vec<String> {
            read(&text, wish).unwrap().targets().into_iter().map(|target| target.says).collect()
        };
        assert_eq!(says(&ScenarioOptions::default()), ["oauth", "oidc"]);
        // Variants that are excluded on request are not checked.
        let wish = ScenarioOptions { topologies: vec!["fused".to_owned()], ..ScenarioOptions::default() };
        assert!(says(&wish).is_empty());
    }

    /// Fails unless the sound scenario with this change has a fault with these words.
    fn is_a_fault(change: (&str, &str), words: &[&str]) {
        assert!(SOUND.contains(change.0));
        let wish = ScenarioOptions { quick: true, ..ScenarioOptions::default() };
        let message = read(&SOUND.replace(change.0, change.1), &wish).unwrap_err();
        assert!(words.iter().all(|word| message.contains(word)), "{change:?}\n{message}");
    }

    #[test]
    fn faults_say_where_and_what_instead() {
        for (change, words) in [
            (("rounds = 2", "rounds = 0"), vec!["`mine.toml`: rounds", "1000"]),
            (("rounds = 2", "round = 2"), vec!["unknown field `round`", "rounds"]),
            (("'direct'", "'dirct'"), vec!["unknown topology `dirct`", "fused"]),
            (("'direct']", "'direct']\ntokens = 'saml'"), vec!["no token mode `saml`", "oauth, oidc"]),
            (("'direct']", "'direct']\nload = 'b'"), vec!["unknown load `b`", "available: a"]),
            (("'direct']", "'direct']\nvariables = { x = '1' }"), vec!["no variable `x`", "backend_delay"]),
            (
                ("'direct']", "'direct']\nlimits = { x = { cpu = '50m' } }"),
                vec!["no component `x`", "backend, provider, gateway"],
            ),
            (
                ("'direct']", "'direct']\nlimits = { backend = { cpu = '50' } }"),
                vec!["limits.backend", "50m"],
            ),
            (("'direct']", "'direct', 'direct']"), vec!["two variants have the name `direct`"]),
            (("'direct']", "'direct']\n[[reference]]\nid = '9x'"), vec!["unknown published row `9x`"]),
            (
                (
                    "'direct']",
                    "'direct']\n[[ladder]]\nname = 'l'\nrungs = [{ adds = 'x', variant = 'y/@tokens@' }]",
                ),
                vec!["ladder `l`", "unknown variant `y/@tokens@`"],
            ),
            (("'direct']", "'direct']\npatience = 'soon'"), vec!["patience", "`soon`"]),
            (
                ("'direct']", "'direct']\npatience = '2s'"),
                vec!["patience", "none of its loads has [load.NAME.revocations]"],
            ),
            (("rounds = 2", "rounds = 2\nbaseline = 'x'"), vec!["baseline", "unknown variant `x`", "direct"]),
            (
                ("'direct']", "'direct']\n[[target]]\nsays = 't'\nfigure = 'p99'\nof = 'x'\nat_most = '1s'"),
                vec!["target `t`", "unknown variant `x`", "direct"],
            ),
            (
                (
                    "'direct']",
                    "'direct']\n[[target]]\nsays = 't'\nfigure = 'p99'\nof = 'direct'\nat_most = 1",
                ),
                vec!["target `t`: at_most", "25ms"],
            ),
            (
                (
                    "'direct']",
                    "'direct']\n[[target]]\nsays = 't'\nfigure = 'cpu'\ncomponent = 'x'\nof = 'direct'\nat_most = '1ms'",
                ),
                vec!["target `t`: component", "no component `x`", "backend"],
            ),
            (("requests = 10", ""), vec!["load.a.duration", "either"]),
            (("requests = 10", "requests = 10\npath = 'app'"), vec!["load.a.path", "must begin with `/`"]),
            (
                ("'direct']", "'direct']\n[counts]\ncomponent = 'gateway'\nrequests = [1, 2]"),
                vec![
                    "counts.component",
                    "topology `direct` starts no component `gateway`; it starts backend",
                ],
            ),
            (
                ("'direct']", "'direct']\n[counts]\ncomponent = 'backend'\nrequests = [600, 100]"),
                vec!["counts.requests", "two increasing numbers"],
            ),
            (
                ("requests = 10", "duration = '1s'\nflow = 'password'"),
                vec!["load `a` on topology `fused`", "[provider]"],
            ),
        ] {
            is_a_fault(change, &words);
        }
        let wish = ScenarioOptions { topologies: vec!["3x".to_owned()], ..ScenarioOptions::default() };
        assert!(read(SOUND, &wish).unwrap_err().contains("no topology `3x`; it has direct, fused"));
    }

    #[test]
    fn faults_of_the_quick_form_say_what_instead() {
        for (change, words) in [
            (("[[variant]]", "[quick.load.b]\nrequests = 1\n[[variant]]"), vec!["quick.load.b"]),
            (
                ("[[variant]]", "[quick]\nvariants = ['3x']\n[[variant]]"),
                vec!["quick.variants", "unknown variant `3x`; available: direct, fused"],
            ),
            (
                ("[[variant]]", "[quick]\nloads = ['b']\n[[variant]]"),
                vec!["quick.loads", "unknown load `b`; available: a"],
            ),
        ] {
            is_a_fault(change, &words);
        }
    }
}
