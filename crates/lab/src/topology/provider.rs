//! Provider of a topology: its description with names replaced.
//!
//! Owns: the names in its texts, and its check before anything runs. Does not own: its keys
//! ([`lab_load::provider::ProviderDescription`]).

use lab_load::provider::ProviderDescription;
use toml::{Table, Value};

use super::template::{self, Values};

/// Replaces the names and parses the description.
///
/// # Errors
/// The key that is wrong, and the reason.
pub(super) fn filled(table: &Table, values: &Values) -> Result<ProviderDescription, String> {
    let mut whole = Value::Table(table.clone());
    fill(&mut whole, values)?;
    whole.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

/// Checks that every name is known and that the description has all required keys.
pub(super) fn check(table: &Table, names: &Values) -> Result<(), String> {
    filled(table, names).map(drop)
}

fn fill(value: &mut Value, values: &Values) -> Result<(), String> {
    match value {
        Value::String(text) => {
            *text = template::fill(text, values).map_err(|unknown| unknown.describe(values))?;
        }
        Value::Array(list) => list.iter_mut().try_for_each(|one| fill(one, values))?,
        Value::Table(table) => table.iter_mut().try_for_each(|(_, one)| fill(one, values))?,
        _ => {}
    }
    Ok(())
}
