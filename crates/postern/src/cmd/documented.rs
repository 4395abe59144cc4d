//! JSON output as docs/reference/commands.md describes it: the tests of commands compare it with
//! what their types serialize.

use std::collections::BTreeSet;
use std::fs;

use serde::Serialize;
use serde_json::Value;

/// Asserts that the row of a command in the table of JSON output has all members of a value, and no
/// others.
#[track_caller]
pub(super) fn assert_row_has_members_of(command: &str, value: &impl Serialize) {
    let mut members = BTreeSet::new();
    collect(&serde_json::to_value(value).unwrap(), &mut members);
    assert_eq!(row(command), members, "{command}");
}

/// The code spans in the second cell of a row: values are not in code.
fn row(command: &str) -> BTreeSet<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md");
    let page = fs::read_to_string(page).unwrap();
    let begin = format!("| `{command}` | ");
    let text = page.lines().find_map(|line| line.strip_prefix(&begin));
    let text = text.unwrap_or_else(|| panic!("no row for {command}"));
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Names of all members, at any depth.
fn collect(value: &Value, members: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                members.insert(name.clone());
                collect(value, members);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, members)),
        _ => {}
    }
}
