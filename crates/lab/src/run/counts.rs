//! Cost counts: instructions and allocations per request of one component, under a tool that
//! executes its program step by step.
//!
//! A counted program also starts, becomes ready, is checked and ends. Therefore each load runs
//! twice, with many requests and with few. The difference is the cost of the additional requests.
//! Periodic work of the program is in both runs, because the second run is kept as long as the
//! first.
//!
//! Requests are sent one at a time over one connection, so that the order of work does not depend
//! on how busy the machine is. Latencies of such runs are meaningless and are not recorded.
//!
//! Owns: the two runs whose difference is taken, and the list of what counts depend on besides the
//! code. Does not own: reading a profile ([`callgrind`]).

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use lab_analysis::offline::gate::OPTIMIZATION;
use lab_analysis::record::Iteration;
use lab_load::load::Stop;
use lab_load::observe::{callgrind, compiler};

use super::measure::{self, RunningArrangement};
use super::{ArrangementError, Runner};
use crate::scenario::{ArrivalPattern, Counts, Load, Scenario};
use crate::topology::{ProgramFinder, Running, TopologyError, Workdir, WrapperTool};

/// Longest wait for a response: under the tool a program is about fifty times slower.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

impl Runner<'_> {
    /// Counts the cost per request of every measured variant.
    pub(super) fn count_variants(&mut self) {
        let Some(counts) = &self.scenario.counts else { return };
        for index in self.order(1) {
            if let Err(failed) = self.count_arrangement(index, counts) {
                self.fail(index, &failed);
            }
        }
    }

    fn count_arrangement(&mut self, index: usize, counts: &Counts) -> Result<(), ArrangementError> {
        let arrangement = &self.scenario.arrangements[index];
        for load in &arrangement.loads {
            let [few, many] = counts.requests;
            let (many, lasted) = self.count_run(index, counts, load, many, Duration::ZERO)?;
            let (few, _) = self.count_run(index, counts, load, few, lasted)?;
            let per_request =
                |few: u64, many: u64| many.saturating_sub(few) as f64 / counts.difference() as f64;
            let instructions = per_request(few.instructions, many.instructions).round();
            let allocations = (per_request(few.allocations, many.allocations) * 100.0).round() / 100.0;
            let name = self.scenario.variant(arrangement, load);
            self.progress.log_counts(&name, instructions, allocations);
            if let Some(variant) = self.variants.get_mut(&name) {
                variant.counters.insert("instructions".to_owned(), instructions);
                variant.counters.insert("allocations".to_owned(), allocations);
            }
        }
        Ok(())
    }

    /// Executes one run under the tool, which lasts at least `duration` after it was ready. Returns
    /// the counts and the actual duration.
    fn count_run(
        &mut self,
        index: usize,
        counts: &Counts,
        load: &str,
        requests: u64,
        duration: Duration,
    ) -> Result<(callgrind::Counts, Duration), ArrangementError> {
        let arrangement = &self.scenario.arrangements[index];
        self.progress.starting(&format!("{}, counted", arrangement.name));
        self.on_start += 1;
        let label = format!("{}-{}-counted", self.on_start, arrangement.topology.name);
        let profile = self.workdir.folder().join(format!("{label}.callgrind"));
        let wrapper = WrapperTool {
            component: counts.component.clone(),
            program: callgrind::VALGRIND.to_owned(),
            arguments: callgrind::arguments(&profile),
        };
        let (topology, change) = (&arrangement.topology, &arrangement.change);
        let mut running = Running::start_with_tool(topology, change, self.workdir, &label, Some(wrapper))?;
        let ready = Instant::now();
        let name = self.scenario.variant(arrangement, load);
        let load = Load {
            arrivals: ArrivalPattern::Closed(1),
            stop: Stop::Count(requests),
            warmup: Duration::ZERO,
            timeout: RESPONSE_TIMEOUT,
            revocations: None,
            changes: None,
            scrape_every: None,
            hold: None,
            events: Vec::new(),
            ..self.scenario.loads[load].clone()
        };
        let tokens = running.tokens(arrangement.mode.as_deref(), load.tokens.max(1) as usize)?;
        running.check(tokens.first().map(String::as_str))?;
        let mut up =
            RunningArrangement { running, tokens, site: None, cluster: None, sender: None, profiling: None };
        self.progress.show_measuring(&format!("{name}, counted"), 0, None);
        let (seed, interrupt) = (self.seed, self.interrupt);
        let sent = measure::measure(&mut up, &load, &[], seed, interrupt, &self.progress)?;
        if sent.interrupted {
            return Err(TopologyError::Interrupted.into());
        }
        check_uniform_results(sent.iteration.as_ref(), requests)
            .map_err(|reason| ArrangementError::Count { variant: name, reason })?;
        if self.interrupt.sleep(duration.saturating_sub(ready.elapsed())) {
            return Err(TopologyError::Interrupted.into());
        }
        let lasted = ready.elapsed();
        // The tool writes the profile when the program ends.
        drop(up);
        let failure = |why: String| ArrangementError::Profile { component: counts.component.clone(), why };
        let text = fs::read_to_string(&profile).map_err(|error| failure(error.to_string()))?;
        let read = callgrind::read(&text).ok_or_else(|| failure("the profile is incomplete".to_owned()))?;
        Ok((read, lasted))
    }
}

/// Checks that every request had the same result. A mean of successes and refusals would be the
/// cost of neither.
///
/// # Errors
/// The different results with their counts.
fn check_uniform_results(iteration: Option<&Iteration>, requests: u64) -> Result<(), String> {
    let classes = iteration.map(|iteration| iteration.classes.as_slice()).unwrap_or_default();
    match classes {
        [class] if class.status.is_some() && class.count == requests => Ok(()),
        classes => {
            let words = |class: &lab_analysis::record::Class| {
                let ending = class.status.map(|status| status.to_string()).or_else(|| class.fault.clone());
                format!("{} × {}", class.count, ending.unwrap_or_default())
            };
            Err(classes.iter().map(words).collect::<Vec<_>>().join(", "))
        }
    }
}

/// What counts depend on besides the code and the load; empty if nothing is counted.
pub(super) fn counting_environment(scenario: &Scenario, place: &Workdir) -> BTreeMap<String, String> {
    let Some(counts) = &scenario.counts else { return BTreeMap::new() };
    let mut environment = BTreeMap::from([("architecture".to_owned(), std::env::consts::ARCH.to_owned())]);
    let mut add = |name: &str, version: Option<String>| {
        environment.extend(version.map(|version| (name.to_owned(), version)));
    };
    let tool = place.programs().find(&counts.component, callgrind::VALGRIND, None).ok();
    add(callgrind::VALGRIND, tool.and_then(|path| ProgramFinder::version(callgrind::VALGRIND, &path, None)));
    let programs = scenario.arrangements.iter().flat_map(|arrangement| arrangement.topology.programs());
    let program = programs.into_iter().find(|(component, ..)| *component == counts.component);
    let path =
        program.and_then(|(component, name, table)| place.programs().find(component, name, table).ok());
    add("compiler", path.as_ref().and_then(|path| compiler::of_program(path)));
    // An optimized build needs a tenth of the instructions: held to the bound of the other, its
    // counts could only pass.
    add(OPTIMIZATION, path.and_then(|path| place.programs().optimization_of(&path)));
    add("C library", c_library());
    environment
}

/// Name and version of the C library of this machine; `None` if it is not the GNU C library.
fn c_library() -> Option<String> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
