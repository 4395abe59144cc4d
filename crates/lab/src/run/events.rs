//! What a scenario does to components while load lasts.
//!
//! Owns: the moments, and what was done at them. Does not own: how it is done ([`Running::act`]).

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use crate::record::Event;
use crate::scenario::Planned;
use crate::topology::{Act, Running, Signalled, TopologyError};
use crate::units::nanos;

/// Does what is planned, each at its time after the moment that `begun` tells, until nobody holds the other end any more. Who was made to
/// stand still goes on then.
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
    for plan in planned {
        let wait = (origin + plan.at).saturating_duration_since(Instant::now());
        if matches!(begun.recv_timeout(wait), Err(RecvTimeoutError::Disconnected)) {
            return Ok(done);
        }
        let at_ms = nanos(origin.elapsed()) / 1_000_000;
        running.act(&plan.component, plan.act)?;
        match plan.act {
            Act::Signal(Signalled::Stop) => drop(standing.insert(plan.component.clone())),
            Act::Signal(Signalled::Cont | Signalled::Kill) | Act::Restart => {
                standing.remove(&plan.component);
            }
            Act::Signal(Signalled::Term | Signalled::Hup) => {}
        }
        done.push(Event { at_ms, what: plan.act.words(&plan.component) });
    }
    // Until load is over.
    let _ = begun.recv();
    Ok(done)
}
