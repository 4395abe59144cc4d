//! Run view: the current state of a run, for display.
//!
//! Owns: the state that the load, the sampling threads and the drawing thread share. A lock is held
//! only to copy some numbers, a few times a second. Does not own: drawing ([`super::progress`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lab_analysis::record::{Component, Sample, Slice};

/// Number of slices that are kept: as many as fit into a terminal line.
const MAX_SLICES: usize = 60;

/// Shared handle to the view state.
#[derive(Debug, Clone, Default)]
pub(super) struct View(Arc<Mutex<ViewState>>);

/// State to display.
#[derive(Debug, Default)]
pub(super) struct ViewState {
    /// One-line description of what runs.
    pub(super) activity: String,
    pub(super) round: u32,
    pub(super) rounds: u32,
    /// Finished loads, and total number of loads.
    pub(super) done: u32,
    pub(super) all: u32,
    pub(super) since: Option<Instant>,
    pub(super) length: Option<Duration>,
    pub(super) slices: Vec<Slice>,
    pub(super) components: BTreeMap<String, ComponentView>,
    pub(super) over: bool,
}

/// Two samples of a component; its current figures are their difference.
#[derive(Debug, Clone, Default)]
pub(super) struct ComponentView {
    pub(super) limit: Option<f64>,
    pub(super) before: Option<Sample>,
    pub(super) last: Option<Sample>,
}

impl View {
    pub(super) fn lock(&self) -> MutexGuard<'_, ViewState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a new activity: clears slices and components.
    pub(super) fn start_phase(&self, activity: &str, round: u32, length: Option<Duration>) {
        let mut state = self.lock();
        activity.clone_into(&mut state.activity);
        (state.round, state.length) = (round, length);
        state.since = Some(Instant::now());
        state.slices.clear();
        state.components.clear();
    }

    /// Adds a closed slice of the timeline.
    pub(super) fn push_slice(&self, slice: &Slice) {
        let mut state = self.lock();
        if state.slices.len() == MAX_SLICES {
            state.slices.remove(0);
        }
        state.slices.push(slice.clone());
    }

    /// Updates the components from their last samples.
    pub(super) fn update_components<'a>(&self, components: impl IntoIterator<Item = &'a Component>) {
        let mut state = self.lock();
        for component in components {
            let Some(last) = component.samples.last() else { continue };
            let watch = state.components.entry(component.name.clone()).or_default();
            watch.limit = component.cpu_limit_cores;
            // The earlier sample is about one redraw older; a shorter period would only show the
            // clock tick resolution.
            let since = component.samples.iter().rev().find(|sample| sample.at_ms + 450 <= last.at_ms);
            watch.before = since.cloned();
            watch.last = Some(last.clone());
        }
    }
}

impl ComponentView {
    /// Cores in use; `None` with fewer than two samples.
    pub(super) fn cores(&self) -> Option<f64> {
        let (before, last) = (self.before.as_ref()?, self.last.as_ref()?);
        let used = last.cpu_so_far_us().saturating_sub(before.cpu_so_far_us());
        let wall = last.at_ms.saturating_sub(before.at_ms);
        (wall > 0).then(|| used as f64 / 1e3 / wall as f64)
    }

    /// Share of CPU periods in which the component was throttled; `None` without a limit.
    pub(super) fn throttled(&self) -> Option<f64> {
        let (before, last) = (self.before.as_ref()?, self.last.as_ref()?);
        let periods = last.periods?.saturating_sub(before.periods?);
        let throttled_periods = last.throttled_periods?.saturating_sub(before.throttled_periods?);
        (periods > 0).then(|| throttled_periods as f64 / periods as f64)
    }
}
