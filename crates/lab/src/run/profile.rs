//! Profile round: one more round of every load, in which the components are profiled.
//!
//! Profiling slows programs down, so nothing of this round is among the measurements.
//!
//! Owns: the round, its loads, and when the profiler records. Does not own: taking profiles
//! ([`lab_load::observe::profile`]), and the load ([`super::measure`]).

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lab_analysis::record::{Iteration, ProfileRound};
use lab_analysis::statistics::Figure;
use lab_load::Interrupt;
use lab_load::load::Stop;
use lab_load::observe::profile::{ProfiledProcess, Profiler};

use super::measure::{self, RunningArrangement};
use super::{ArrangementError, Runner};
use crate::scenario::Load;

/// Longest profiled time: a minute of thread switches is gigabytes.
const MAX_LENGTH: Duration = Duration::from_secs(10);
/// Length of a load that otherwise ends after a number of requests.
const COUNTED_LENGTH: Duration = Duration::from_secs(5);
/// How long threads are sampled after the load.
const REST: Duration = Duration::from_millis(400);

impl Runner<'_> {
    /// Profiles the components of every measured variant.
    pub(super) fn profile_variants(&mut self) {
        for index in self.order(1) {
            let Some(mut up) = self.start_arrangement(index) else { continue };
            for load in self.scenario.arrangements[index].loads.clone() {
                if self.is_interrupted() {
                    return;
                }
                if let Err(failed) = self.profile_load(index, &load, &mut up) {
                    self.fail(index, &failed);
                    break;
                }
            }
        }
    }

    fn profile_load(
        &mut self,
        index: usize,
        name: &str,
        up: &mut RunningArrangement,
    ) -> Result<(), ArrangementError> {
        let arrangement = &self.scenario.arrangements[index];
        let variant = self.scenario.variant(arrangement, name);
        if !self.variants.contains_key(&variant) {
            return Ok(());
        }
        let load = profiled_load(&arrangement.with_overrides(&self.scenario.loads[name]));
        let steps = self.steps(&load);
        let window = load.length().map_or(COUNTED_LENGTH, |length| length.saturating_sub(load.warmup));
        let length = window.min(MAX_LENGTH);
        let round = self.scenario.rounds + 1;
        self.progress.show_measuring(&format!("{variant}, profiled"), round, load.length());
        let folder = self.workdir.folder().to_path_buf();
        let (begin, begins) = mpsc::channel();
        let processes = processes(up);
        up.profiling = Some(begin);
        let (interrupt, progress, seed) = (self.interrupt, &self.progress, self.seed);
        let (measured, profiler) = std::thread::scope(|scope| {
            let recording = scope.spawn(move || record(processes, folder, &begins, length, interrupt));
            let measured = measure::measure(up, &load, &steps, seed, interrupt, progress);
            // Without a start of the load, the profiler must not wait for it any more.
            up.profiling = None;
            (measured, recording.join())
        });
        let profiler = profiler.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let measured = measured?;
        if measured.interrupted {
            self.interrupted = true;
            return Ok(());
        }
        let (Some(mut profiler), Some(iteration)) = (profiler, measured.iteration) else {
            let why = "no request ended in the profiled window".to_owned();
            return Err(ArrangementError::Profiler { variant, why });
        };
        profiler.record_at_rest(REST, self.interrupt);
        let profile = ProfileRound {
            round,
            seconds: length.as_secs_f64(),
            per_s: ended_per_s(&iteration),
            mean_in_flight: iteration.mean_in_flight,
            mean_us: Figure::Mean.value(&iteration),
            components: profiler.finish(),
        };
        self.progress.log_profile(&variant, &profile);
        if let Some(variant) = self.variants.get_mut(&variant) {
            variant.profile = Some(profile);
        }
        Ok(())
    }
}

/// The load of a scenario without everything that is done beside it, and long enough to profile.
fn profiled_load(load: &Load) -> Load {
    let stop = match load.stop {
        Stop::Count(_) => Stop::After(COUNTED_LENGTH),
        stop @ Stop::After(_) => stop,
    };
    Load {
        stop,
        revocations: None,
        changes: None,
        scrape_every: None,
        hold: None,
        events: Vec::new(),
        ..load.clone()
    }
}

/// Local processes of the components.
fn processes(up: &RunningArrangement) -> Vec<ProfiledProcess> {
    let of = |info: crate::topology::ComponentInfo| {
        let pid = info.root.as_ref()?.pid()?;
        Some(ProfiledProcess { name: info.name, pid, root_only: info.root_only })
    };
    up.running.component_infos().into_iter().filter_map(of).collect()
}

/// Records from the start of the window on. `None` if there was no load.
fn record(
    processes: Vec<ProfiledProcess>,
    folder: PathBuf,
    begins: &mpsc::Receiver<Instant>,
    length: Duration,
    interrupt: &Interrupt,
) -> Option<Profiler> {
    let begin = begins.recv().ok()?;
    let mut profiler = Profiler::new(processes, folder);
    interrupt.sleep(begin.saturating_duration_since(Instant::now()));
    profiler.record_under_load(length, interrupt);
    Some(profiler)
}

fn ended_per_s(iteration: &Iteration) -> f64 {
    let ended: u64 = iteration.classes.iter().map(|class| class.count).sum();
    ended as f64 / iteration.seconds
}
