//! Small versions of the coherence protocol (`crates/coherence`), small enough to check every
//! state.
//!
//! There are two: lease, flush and fill ([`lease`]), and how a database proves its head ([`head`]).
//!
//! `cargo run --release` checks all states within the bounds (some nine million of the lease and
//! two of the head, three minutes on two cores). It reports whether the promises hold in each
//! state. Then it verifies that each fault, which leaves out one line of the protocol, is found.
//! The exit code is 1 if a promise does not hold or a fault is not found.

mod head;
mod lease;

use std::fmt::Debug;
use std::hash::Hash;
use std::process::ExitCode;

use stateright::{Checker, HasDiscoveries, Model};

/// Whether every promise holds and every fault is found.
pub type Checked = bool;

fn main() -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    // Both run, whatever the result of the first.
    let sound = [head::check(threads), lease::check(threads)];
    ExitCode::from(u8::from(sound.contains(&false)))
}

/// Checks all states of a model, and whether each of its faults is found. The name of a property
/// that must be reachable begins with `reachable`.
fn check<M, F>(name: &str, threads: usize, model: fn(Option<F>) -> M, faults: &[F]) -> Checked
where
    M: Model<
            State: Debug + Clone + PartialEq + Hash + Send + Sync,
            Action: Debug + Clone + PartialEq + Send + Sync,
        > + Send
        + Sync
        + 'static,
    F: Debug + Copy,
{
    let whole = model(None).checker().threads(threads).spawn_bfs().join();
    println!("{name}: {} states, {} of them unique", whole.state_count(), whole.unique_state_count());
    let mut sound = true;
    for property in model(None).properties() {
        let should_happen = property.name.starts_with("reachable");
        match whole.discovery(property.name) {
            Some(path) if !should_happen => println!("  does not hold: {}\n{path}", property.name),
            None if should_happen => println!("  not reached: {}", property.name),
            _ => continue,
        }
        sound = false;
    }
    for fault in faults {
        let checker = model(Some(*fault)).checker().threads(threads);
        let checked = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let found = model(None).properties().into_iter().find(|property| {
            !property.name.starts_with("reachable") && checked.discovery(property.name).is_some()
        });
        match found {
            Some(property) => println!("{fault:?}: found, {}", property.name),
            None => {
                println!("{fault:?}: NOT found");
                sound = false;
            }
        }
    }
    sound
}
