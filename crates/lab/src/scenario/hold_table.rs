//! Hold table: the TOML form of connections that are held during a load.
//!
//! Owns: keys and their permitted values. Does not own: the checked form ([`super::load`]).

use lab_analysis::amount;
use serde::Deserialize;

use super::load::{HeldBehavior, Hold};

/// Largest number of held connections: a little more than one address can have open to one port.
const MAX_HELD_CONNECTIONS: u32 = 100_000;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldTable {
    manner: Manner,
    connections: u32,
    interval: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Manner {
    Idle,
    Silent,
    SlowLoris,
}

impl HoldTable {
    /// Checks the table.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn parse(&self) -> Result<Hold, String> {
        if !(1..=MAX_HELD_CONNECTIONS).contains(&self.connections) {
            return Err(format!("`connections` must be from 1 to {MAX_HELD_CONNECTIONS}"));
        }
        let interval = self.interval.as_deref().map(amount::duration).transpose()?;
        let manner = match (self.manner, interval) {
            (Manner::SlowLoris, Some(interval)) if !interval.is_zero() => HeldBehavior::SlowLoris(interval),
            (Manner::SlowLoris, _) => {
                return Err("slow-loris needs an `interval` above 0 between two lines".to_owned());
            }
            (_, Some(_)) => return Err("`interval` is for slow-loris only".to_owned()),
            (Manner::Idle, None) => HeldBehavior::Idle,
            (Manner::Silent, None) => HeldBehavior::Silent,
        };
        Ok(Hold { behavior: manner, connections: self.connections })
    }
}
