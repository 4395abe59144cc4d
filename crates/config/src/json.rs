//! Values in JSON that are made of raw types, such as the body of an object of Kubernetes.
//!
//! Owns: their comparison with a schema. Does not own: the checks (`shape`), which are those of the
//! configuration file, and whether the values are consistent.

use serde_json::Value;
use toml::de::DeTable;

use super::fault::{Fault, Faults};
use super::shape;

/// Compares a value in JSON with a schema of [`crate::schema::of`], with the checks and the messages that the
/// configuration file gets. Members that are null count as absent, as in objects of Kubernetes.
pub fn faults(schema: &Value, value: &Value) -> Vec<Fault> {
    let mut faults = Faults::default();
    let text = toml::to_string(&without_null(value));
    let table = text.as_deref().map(DeTable::parse_recoverable);
    match table {
        Ok((table, errors)) if errors.is_empty() => {
            shape::check(schema, table.get_ref(), &mut faults);
        }
        Ok((_, errors)) => {
            for error in errors {
                faults.add_at(None, error.message().to_owned());
            }
        }
        Err(error) => faults.add_at(None, error.to_string()),
    }
    faults.into_faults()
}

fn without_null(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(members.map(|(key, value)| (key.clone(), without_null(value))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(without_null).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{raw, schema};

    #[test]
    fn a_value_in_json_gets_the_messages_of_the_file() {
        let schema = schema::of::<raw::Policy>();
        let lines = |value: &Value| {
            let faults = faults(&schema, value);
            faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let groups = |groups: Value| json!({ "allow": [{ "groups": groups }] });
        assert_eq!(lines(&groups(json!(["a"]))), "");
        assert_eq!(lines(&json!({ "allow": [{ "authenticated": true, "users": null }], "deny": null })), "");
        for (value, fault) in [
            (json!({}), "allow: missing key `allow`"),
            (json!({ "allow": [] }), "allow: the list is empty; write at least one element"),
            (
                json!({ "allow": [{ "grups": ["a"] }] }),
                "allow[0].grups: unknown key `grups`; did you mean `groups`?",
            ),
            (groups(json!("a")), "allow[0].groups: expected a list of strings, or a table, found a string"),
            (
                groups(json!({ "any": [1] })),
                "allow[0].groups.any[0]: expected a string, found a whole number",
            ),
            (json!({ "allow": [{ "users": [null] }] }), "unsupported"),
        ] {
            assert!(lines(&value).contains(fault), "{value}: {}", lines(&value));
        }
    }
}
