//! Events: performs the planned actions on components while load lasts.
//!
//! Owns: the times of the events, and the list of what was done. Does not own: how an action is
//! performed ([`Running::run_events`]).

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use lab_analysis::record::Event;
use lab_analysis::units::nanos;

use crate::scenario::PlannedEvent;
use crate::topology::{Action, Running, SignalName, TopologyError};

/// Performs the planned events, each at its time after the start that is received from `begun`.
/// Returns when the sender of `begun` is dropped. Then it continues stopped components and restores
/// files.
///
/// # Errors
/// An action on a component failed.
pub(super) fn run_events(
    running: &mut Running,
    planned: &[PlannedEvent],
    begun: &Receiver<Instant>,
) -> Result<Vec<Event>, TopologyError> {
    let mut standing = BTreeSet::new();
    let done = run_in_order(running, planned, begun, &mut standing);
    for component in standing {
        running.perform(&component, Action::Signal(SignalName::Cont))?;
    }
    running.restore_files()?;
    done
}

fn run_in_order(
    running: &mut Running,
    planned: &[PlannedEvent],
    begun: &Receiver<Instant>,
    standing: &mut BTreeSet<String>,
) -> Result<Vec<Event>, TopologyError> {
    let mut done = Vec::new();
    let Ok(origin) = begun.recv() else { return Ok(done) };
    let at_ms = || nanos(origin.elapsed()) / 1_000_000;
    for plan in planned {
        let wait = (origin + plan.at).saturating_duration_since(Instant::now());
        if matches!(begun.recv_timeout(wait), Err(RecvTimeoutError::Disconnected)) {
            return Ok(done);
        }
        let component = &plan.component;
        done.push(Event { at_ms: at_ms(), what: plan.describe() });
        if let Some(anew) = &plan.file_rewrite {
            running.rewrite_file(component, anew)?;
        }
        let Some(act) = plan.action else { continue };
        running.perform(component, act)?;
        match act {
            Action::Signal(SignalName::Stop) => drop(standing.insert(component.clone())),
            Action::Signal(SignalName::Cont | SignalName::Kill) | Action::Restart => {
                standing.remove(component);
            }
            Action::End(_) => {
                standing.remove(component);
                done.push(Event { at_ms: at_ms(), what: format!("`{component}` ended") });
            }
            Action::Start | Action::Signal(SignalName::Term | SignalName::Hup) => {}
        }
    }
    // Waits until the load has ended.
    let _ = begun.recv();
    Ok(done)
}
