//! Small versions of the coherence protocol (`crates/coherence`), small enough for every state to be looked at.
//!
//! Two of them: lease, flush and fill ([`lease`]), and how a database proves its head ([`head`]).
//!
//! `cargo run --release` looks at all states within the bounds (some nine million of the lease and two of the head, three minutes on two cores), says whether the promises
//! hold in each, and then that each fault that leaves out a line of the protocol is found. Exit code 1 when either is not so.

mod head;
mod lease;

use std::fmt::Debug;
use std::hash::Hash;
use std::process::ExitCode;

use stateright::{Checker, HasDiscoveries, Model};

/// Whether everything is as it should be.
pub type Checked = bool;

fn main() -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    // Both, whatever comes of the first.
    let sound = [head::check(threads), lease::check(threads)];
    ExitCode::from(u8::from(sound.contains(&false)))
}

/// Looks at all states of a model, and says whether each of its faults is found. What should happen at some time is called `somebody …`.
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
    println!("{name}: {} states, {} of them different", whole.state_count(), whole.unique_state_count());
    let mut sound = true;
    for property in model(None).properties() {
        let should_happen = property.name.starts_with("somebody");
        match whole.discovery(property.name) {
            Some(path) if !should_happen => println!("  does not hold: {}\n{path}", property.name),
            None if should_happen => println!("  never happens: {}", property.name),
            _ => continue,
        }
        sound = false;
    }
    for fault in faults {
        let checker = model(Some(*fault)).checker().threads(threads);
        let checked = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let found = model(None).properties().into_iter().find(|property| {
            !property.name.starts_with("somebody") && checked.discovery(property.name).is_some()
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
