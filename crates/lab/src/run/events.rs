//! Events: performs the planned actions on components while load lasts.
//!
//! Owns: the times of the events, and the list of what was done. Does not own: how an action is
//! performed ([`Running::act`]).

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use lab_analysis::record::Event;
use lab_analysis::units::nanos;

use crate::scenario::Planned;
use crate::topology::{Act, Running, Signalled, TopologyError};

/// Performs the planned events, each at its time after the start that is received from `begun`.
/// Returns when the sender of `begun` is dropped. Then it continues stopped components and restores
/// files.
///
/// # Errors
/// An action on a component failed.
pub(super) fn act(
    running: &mut Running,
    planned: &[Planned],
    begun: &Receiver<Instant>,
) -> Result<Vec<Event>, TopologyError> {
    let mut standing = BTreeSet::new();
    let done = all(running, planned, begun, &mut standing);
    for component in standing {
        running.act(&component, Act::Signal(Signalled::Cont))?;
    }
    running.write_back()?;
    done
}

fn all(
    running: &mut Running,
    planned: &[Planned],
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
        done.push(Event { at_ms: at_ms(), what: plan.words() });
        if let Some(anew) = &plan.anew {
            running.write_anew(component, anew)?;
        }
        let Some(act) = plan.act else { continue };
        running.act(component, act)?;
        match act {
            Act::Signal(Signalled::Stop) => drop(standing.insert(component.clone())),
            Act::Signal(Signalled::Cont | Signalled::Kill) | Act::Restart => {
                standing.remove(component);
            }
            Act::End(_) => {
                standing.remove(component);
                done.push(Event { at_ms: at_ms(), what: format!("`{component}` ended") });
            }
            Act::Start | Act::Signal(Signalled::Term | Signalled::Hup) => {}
        }
    }
    // Waits until the load has ended.
    let _ = begun.recv();
    Ok(done)
}
