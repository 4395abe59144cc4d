//! Scenario runner: rounds of load over topologies that are started, sampled and ended, combined
//! into one record.
//!
//! Owns: the order of rounds, and the reaction to failures and interrupts. Does not own: topologies
//! ([`crate::topology`]), loads ([`lab_load::load`]), the assembly of the record
//! ([`self::record`]), and conclusions from figures ([`lab_analysis::offline`]).
//!
//! 1. A [`Scenario`] is read.
//! 2. If a rate depends on it, calibration measures what the slowest arrangement serves.
//! 3. Each round passes all arrangements: the first in the order of the file, later ones shuffled
//!    by the seed.
//! 4. If requested, one more round is profiled, and instructions and allocations are counted.
//! 5. The results become a [`Record`], which [`crate::files::write_report`] renders.
//!
//! An arrangement that fails is reported and left out; the others continue. An interrupt ends the
//! load, then the programs; the measurements until then are reported as partial.

mod background;
mod counts;
mod events;
mod facts;
mod generator;
mod measure;
mod profile;
mod progress;
mod provider_flow;
mod record;
mod sampler;
mod view;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab_analysis::offline::audit::AuditError;
use lab_analysis::record::{Iteration, Record, RecordError, Variant};
use lab_load::Interrupt;
use lab_load::load::{Random, Step};

use self::generator::LoadSender;
use self::measure::RunningArrangement;
use self::progress::Progress;
pub use self::progress::ProgressOutput;
use self::record::{MissingMeasurements, build_record, empty_rounds_text};
use crate::scenario::{Arrangement, ArrivalPattern, Load, Rate, RateProfile, RestartPolicy, Scenario};
use crate::topology::{ProgramFinder, Running, TopologyError, Workdir};

/// Workers of the closed loop for calibration, if no load of the scenario is a closed loop.
const CALIBRATION_WORKERS: u32 = 50;

/// Options of a scenario run.
#[derive(Debug)]
pub struct Options {
    /// Seed of arrival times, tokens and order.
    pub seed: u64,
    /// Folder for configurations and logs, which is kept. `None` for a temporary folder.
    pub keep: Option<PathBuf>,
    /// Measured commit; `None` to read it from the working folder.
    pub commit: Option<String>,
    /// What is shown during the run.
    pub show: ProgressOutput,
    /// Finder of the programs to start.
    pub programs: ProgramFinder,
}

/// Result of a scenario run.
#[derive(Debug)]
pub struct RunResult {
    /// Record of all measurements.
    pub record: Record,
    /// Arrangements that could not be measured, with the reason.
    pub failed: Vec<(String, String)>,
    /// Folder with configurations and logs, if it was kept: on request, or because an arrangement
    /// failed.
    pub work: Option<PathBuf>,
}

impl RunResult {
    /// Whether everything that the scenario asks for was measured, in every round.
    pub fn is_complete(&self) -> bool {
        let whole = |variant: &Variant| variant.missing.is_empty();
        self.failed.is_empty() && !self.record.run.partial && self.record.variants.iter().all(whole)
    }
}

/// Why a scenario could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A topology, a scenario or one of their files cannot be used.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The temporary folder cannot be created.
    #[error("cannot prepare the run: {0}")]
    Prepare(io::Error),
    /// No variant was measured.
    #[error("nothing was measured{}", failure_list(failed))]
    NothingMeasured {
        /// Failed arrangements, with the reason.
        failed: Vec<(String, String)>,
    },
    /// The published tables cannot be read.
    #[error(transparent)]
    Published(#[from] AuditError),
    /// The record cannot be created.
    #[error(transparent)]
    Record(#[from] RecordError),
}

fn failure_list(failed: &[(String, String)]) -> String {
    let lines = failed.iter().map(|(name, why)| format!("\n{name}: {why}"));
    if failed.is_empty() {
        ": the run was interrupted".to_owned()
    } else {
        format!(":{}", lines.collect::<String>())
    }
}

/// Why one arrangement could not be measured.
#[derive(Debug, thiserror::Error)]
enum ArrangementError {
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Load(#[from] lab_load::load::LoadError),
    #[error("cannot hold connections: {0}")]
    Hold(#[from] lab_load::idle_connections::HoldError),
    #[error(transparent)]
    Provider(#[from] lab_load::provider::ProviderError),
    #[error("no successful response to {0} workers during calibration, so no rate can be derived")]
    ServesNothing(u32),
    #[error("cannot change the cluster: {0}")]
    Changes(io::Error),
    #[error("cannot watch revocations: {0}")]
    Revocations(io::Error),
    #[error("no credential could be revoked: {0}")]
    NothingRevoked(String),
    #[error("counted requests of `{variant}` had different results: {reason}")]
    Count { variant: String, reason: String },
    #[error("`{name}` {why}")]
    Generator { name: &'static str, why: String },
    #[error("cannot import the output of the load generator: {0}")]
    Import(#[from] lab_analysis::offline::import::ImportError),
    #[error("cannot profile `{variant}`: {why}")]
    Profiler { variant: String, why: String },
    #[error("cannot read the valgrind profile of `{component}`: {why}")]
    Profile { component: String, why: String },
}

/// Runs a scenario.
///
/// # Errors
/// The run cannot be prepared, or no variant was measured.
pub fn run(scenario: &Scenario, options: Options, interrupt: &Interrupt) -> Result<RunResult, RunError> {
    let temporary = match &options.keep {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("postern-lab-").tempdir().map_err(RunError::Prepare)?),
    };
    let folder =
        options.keep.as_deref().or(temporary.as_ref().map(tempfile::TempDir::path)).unwrap_or(Path::new("."));
    background::raise_file_limit();
    let place = Workdir::new(folder, options.programs, interrupt.clone())?;
    let facts = facts::gather(scenario, &place, options.commit.clone());
    let mut floor = Runner {
        scenario,
        workdir: &place,
        interrupt,
        seed: options.seed,
        origin: Instant::now(),
        progress: Progress::new(options.show),
        variants: BTreeMap::new(),
        failed: BTreeMap::new(),
        ended_nothing: BTreeMap::new(),
        slowest: None,
        interrupted: false,
        on_start: 0,
    };
    place.report_to(floor.progress.printer());
    floor.progress.begin(scenario);
    floor.exclude_missing_programs();
    floor.rounds();
    if scenario.profile {
        floor.profile_variants();
    }
    floor.count_variants();
    floor.progress.end();
    let Runner { variants, failed, ended_nothing, interrupted, .. } = floor;
    let mut failed: Vec<(String, String)> =
        failed.into_iter().map(|(index, why)| (scenario.arrangements[index].name.clone(), why)).collect();
    // A variant in which no request ever ended is left out like a failed arrangement.
    for (variant, rounds) in ended_nothing.iter().filter(|(variant, _)| !variants.contains_key(*variant)) {
        failed.push((variant.clone(), empty_rounds_text(rounds)));
    }
    // The logs of a failed arrangement are needed to find the cause, so the temporary folder is
    // kept.
    let kept = match temporary {
        Some(temporary) if !failed.is_empty() => Some(temporary.keep()),
        _ => None,
    };
    if variants.is_empty() {
        return Err(RunError::NothingMeasured { failed });
    }
    let unmeasured = MissingMeasurements { failed: &failed, empty_rounds: &ended_nothing };
    let record = build_record(scenario, facts.into_run(options.seed, interrupted), variants, &unmeasured)?;
    Ok(RunResult { record, failed, work: options.keep.or(kept) })
}

/// State of a scenario run.
struct Runner<'a> {
    scenario: &'a Scenario,
    workdir: &'a Workdir,
    interrupt: &'a Interrupt,
    seed: u64,
    origin: Instant,
    progress: Progress,
    variants: BTreeMap<String, Variant>,
    /// Failed arrangements, by index. They are not tried again.
    failed: BTreeMap<usize, String>,
    /// Rounds per variant in whose windows no request ended.
    ended_nothing: BTreeMap<String, Vec<u32>>,
    /// Requests per second that the slowest arrangement served in the calibration.
    slowest: Option<f64>,
    interrupted: bool,
    on_start: u32,
}

impl Runner<'_> {
    /// Excludes arrangements that lack a program before the first round, so that this is known
    /// early in a long run.
    fn exclude_missing_programs(&mut self) {
        let scenario = self.scenario;
        for (index, arrangement) in scenario.arrangements.iter().enumerate() {
            if let Err(missing) = arrangement.check_programs(self.workdir.programs()) {
                self.fail(index, &missing.into());
            }
        }
    }

    fn rounds(&mut self) {
        let mut up: BTreeMap<usize, RunningArrangement> = BTreeMap::new();
        if self.scenario.needs_calibration() {
            self.calibrate(&mut up);
        }
        for round in 1..=self.scenario.rounds {
            if self.scenario.fresh == RestartPolicy::Together {
                up.clear();
            }
            if self.scenario.fresh == RestartPolicy::Round {
                for index in self.order(round) {
                    if let Some(mut one) = self.start_arrangement(index) {
                        let loads = self.scenario.arrangements[index].loads.clone();
                        for load in &loads {
                            if self.is_sent_in_round(load, round) {
                                self.measure_load(index, load, round, &mut one);
                            }
                        }
                    }
                }
            } else {
                // Variants that are compared under a load are measured directly one after the
                // other.
                for load in self.scenario.loads_in_order() {
                    for index in self.order(round) {
                        let takes_part = self.scenario.arrangements[index].loads.contains(load)
                            && self.is_sent_in_round(load, round);
                        if takes_part && !up.contains_key(&index) {
                            up.extend(self.start_arrangement(index).map(|one| (index, one)));
                        }
                        if takes_part && let Some(one) = up.get_mut(&index) {
                            self.measure_load(index, load, round, one);
                        }
                        if self.failed.contains_key(&index) {
                            up.remove(&index);
                        }
                    }
                }
            }
        }
    }

    fn is_sent_in_round(&self, load: &str, round: u32) -> bool {
        round <= self.scenario.loads[load].rounds_of(self.scenario.rounds)
    }

    /// Order of the arrangements in a round: first that of the file, then shuffled. Empty if the
    /// run is interrupted.
    fn order(&mut self, round: u32) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.scenario.arrangements.len()).filter(|index| !self.failed.contains_key(index)).collect();
        if round > 1 {
            let mut random = Random::new(self.seed.wrapping_add(u64::from(round)));
            for last in (1..order.len()).rev() {
                let other = random.below(lab_analysis::units::count(last) + 1);
                order.swap(last, usize::try_from(other).unwrap_or(last));
            }
        }
        if self.is_interrupted() { Vec::new() } else { order }
    }

    fn is_interrupted(&mut self) -> bool {
        self.interrupted |= self.interrupt.is_set();
        self.interrupted
    }

    /// Starts an arrangement and checks the whole path. `None` if it failed, or the run is
    /// interrupted.
    fn start_arrangement(&mut self, index: usize) -> Option<RunningArrangement> {
        if self.is_interrupted() || self.failed.contains_key(&index) {
            return None;
        }
        let arrangement = &self.scenario.arrangements[index];
        self.progress.starting(&arrangement.name);
        self.on_start += 1;
        let label = format!("{}-{}", self.on_start, arrangement.topology.name);
        let most =
            arrangement.loads.iter().filter_map(|load| Some(self.scenario.loads.get(load)?.tokens)).max();
        let start = || -> Result<RunningArrangement, ArrangementError> {
            let mut running =
                Running::start(&arrangement.topology, &arrangement.change, self.workdir, &label)?;
            let cluster = running.settled_cluster(self.workdir)?;
            let tokens = running.tokens(arrangement.mode.as_deref(), most.unwrap_or(1).max(1) as usize)?;
            running.check(tokens.first().map(String::as_str))?;
            let revokes =
                |name: &String| self.scenario.loads.get(name).is_some_and(|load| load.revocations.is_some());
            let mode = arrangement.mode.as_deref();
            let site =
                if arrangement.loads.iter().any(revokes) { running.revocation_site(mode)? } else { None };
            let sender = arrangement.generator.map(|generator| {
                let folder = self.workdir.folder().join(&label).join(lab_load::generator::COMPONENT);
                LoadSender::new(generator, self.workdir.programs(), folder, &arrangement.generator_cores)
            });
            Ok(RunningArrangement {
                running,
                tokens,
                site,
                cluster,
                sender: sender.transpose()?,
                profiling: None,
            })
        };
        match start() {
            Ok(up) => Some(up),
            Err(failed) => {
                self.fail(index, &failed);
                None
            }
        }
    }

    fn fail(&mut self, index: usize, failed: &ArrangementError) {
        if matches!(failed, ArrangementError::Topology(TopologyError::Interrupted)) {
            self.interrupted = true;
            return;
        }
        let why = failed.to_string();
        self.progress.failed(&self.scenario.arrangements[index].name, &why);
        self.failed.insert(index, why);
    }

    /// Measures what each arrangement serves to a closed loop, and keeps the lowest rate.
    fn calibrate(&mut self, up: &mut BTreeMap<usize, RunningArrangement>) {
        let closed = self.scenario.loads.values().find_map(|load| match &load.arrivals {
            ArrivalPattern::Closed(workers) => Some((*workers, load.streams)),
            ArrivalPattern::Open { .. } => None,
        });
        let (workers, streams) = closed.unwrap_or((CALIBRATION_WORKERS, None));
        for index in self.order(1) {
            let arrangement = &self.scenario.arrangements[index];
            let Some(mut one) = self.start_arrangement(index) else { continue };
            let length = self.scenario.calibration;
            let load = Load {
                flow: None,
                exchange: lab_load::load::Exchange::Request,
                arrivals: ArrivalPattern::Closed(workers),
                stop: lab_load::load::Stop::After(length),
                warmup: length / 4,
                path: None,
                tokens: 1,
                zipf: None,
                timeout: Duration::from_secs(10),
                streams,
                hold: None,
                revocations: None,
                changes: None,
                scrape_every: None,
                events: Vec::new(),
                rounds: None,
                every_request: false,
            };
            // Calibration measures what can be served, so the lab sends instead of another
            // generator.
            let sender = one.sender.take();
            self.progress.show_measuring(
                &format!("{}: calibration", arrangement.name),
                0,
                Some(length + load.warmup),
            );
            let measured = measure::measure(&mut one, &load, &[], self.seed, self.interrupt, &self.progress);
            one.sender = sender;
            match measured {
                Ok(measured) if measured.interrupted => self.interrupted = true,
                Ok(measured) => match measured.ok_per_s() {
                    Some(served) => {
                        self.progress.log_calibration(&arrangement.name, served);
                        self.slowest = Some(self.slowest.map_or(served, |slowest| slowest.min(served)));
                    }
                    None => self.fail(index, &ArrangementError::ServesNothing(workers)),
                },
                Err(failed) => self.fail(index, &failed),
            }
            if self.scenario.fresh == RestartPolicy::Run && !self.failed.contains_key(&index) {
                up.insert(index, one);
            }
        }
    }

    /// Sends one load through one arrangement in one round.
    fn measure_load(&mut self, index: usize, name: &str, round: u32, up: &mut RunningArrangement) {
        if self.is_interrupted() || self.failed.contains_key(&index) {
            return;
        }
        let arrangement = &self.scenario.arrangements[index];
        let load = &arrangement.with_overrides(&self.scenario.loads[name]);
        let variant = self.scenario.variant(arrangement, name);
        let steps = self.steps(load);
        self.progress.show_measuring(&variant, round, load.length());
        let start_ms = lab_analysis::units::nanos(self.origin.elapsed()) / 1_000_000;
        // The seed differs per round but not per variant: all variants of a round get the same
        // arrivals.
        let seed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(round));
        let outcome = measure::measure(up, load, &steps, seed, self.interrupt, &self.progress);
        match outcome {
            Ok(measured) => {
                self.interrupted |= measured.interrupted;
                let Some(iteration) = measured.iteration else {
                    if !self.interrupted {
                        self.progress.nothing_ended(&variant, round);
                        self.ended_nothing.entry(variant).or_default().push(round);
                    }
                    return;
                };
                let iteration = Iteration { number: round, start_ms, ..iteration };
                let unit = if load.flow.is_some() { "transactions" } else { "requests" };
                self.progress.measured(&variant, round, &iteration, unit);
                let shape = measure::load_shape(arrangement, load, &steps, up.tokens.len());
                let entry = self.variants.entry(variant.clone());
                let topology = &arrangement.topology;
                let path = if load.flow.is_some() { &topology.flow_path } else { &topology.path };
                let new = || Variant { path: path.clone(), ..new_variant(variant, name, arrangement, shape) };
                let entry = entry.or_insert_with(new);
                entry.iterations.push(iteration);
            }
            Err(failed) => self.fail(index, &failed),
        }
    }

    /// Consecutive rates of an open loop; empty for a closed loop.
    fn steps(&self, load: &Load) -> Vec<Step> {
        let ArrivalPattern::Open { rates: course, .. } = &load.arrivals else { return Vec::new() };
        let per_s = |rate: Rate| match rate {
            Rate::PerSecond(rate) => rate,
            Rate::OfSlowest(share) => round_down_to_two_digits(self.slowest.unwrap_or(0.0) * share),
        };
        match course {
            RateProfile::Steady(rate) => vec![Step::steady(per_s(*rate), Duration::ZERO)],
            RateProfile::Stages(stages) => stages
                .iter()
                .map(|stage| Step { rate: per_s(stage.from), to: per_s(stage.to), duration: stage.duration })
                .collect(),
        }
    }
}

/// Rounds a rate down to two digits: more would suggest that another run finds the same value.
fn round_down_to_two_digits(rate: f64) -> f64 {
    let unit = 10_f64.powf((rate.max(1.0).log10().floor() - 1.0).max(0.0));
    ((rate / unit).floor() * unit).max(1.0)
}

fn new_variant(
    name: String,
    load: &str,
    arrangement: &Arrangement,
    shape: lab_analysis::record::LoadShape,
) -> Variant {
    let mut labels = BTreeMap::from([
        ("topology".to_owned(), arrangement.topology.name.clone()),
        ("load".to_owned(), load.to_owned()),
    ]);
    labels.extend(arrangement.mode.clone().map(|mode| ("tokens".to_owned(), mode)));
    labels
        .extend(arrangement.generator.map(|generator| ("generator".to_owned(), generator.name().to_owned())));
    labels.extend(arrangement.change.variables.clone());
    for (component, limits) in &arrangement.change.limits {
        let cpu = limits.cpu_millicores.map(|millicores| format!("{millicores}m"));
        labels.extend(cpu.map(|cpu| (format!("{component} cpu limit"), cpu)));
        let memory = limits.memory_bytes.map(|bytes| format!("{bytes} bytes"));
        labels.extend(memory.map(|memory| (format!("{component} memory limit"), memory)));
    }
    Variant {
        name,
        topology: arrangement.topology.summary(),
        path: Vec::new(),
        labels,
        load: shape,
        iterations: Vec::new(),
        missing: Vec::new(),
        counters: BTreeMap::new(),
        profile: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibrated_rate_has_two_digits_and_is_never_above() {
        for (rate, expected) in
            [(1234.5, 1200.0), (999.9, 990.0), (57.8, 57.0), (3.9, 3.0), (0.2, 1.0), (60_123.0, 60_000.0)]
        {
            assert!(
                (round_down_to_two_digits(rate) - expected).abs() < 1e-6,
                "{rate}: {}",
                round_down_to_two_digits(rate)
            );
        }
    }
}
