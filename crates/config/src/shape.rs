//! Shape check: compares the parsed text with the schema. It checks for known keys, right types and
//! valid scalar values.
//!
//! It works on the parsed text, not on the raw types, so that it finds every fault and not only the
//! first. The values with faults are then removed, and the rest is read and checked too. So a
//! misspelled key does not hide other faults.

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::fault::{Faults, KeyPath, nearest, one_of};
use super::renamed;
use super::scalar;
use super::schema::resolve;

/// Result of [`check`]: the paths of the faults.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Unknown keys. They are removed, and the table that contains them stays usable.
    pub(super) unknown: Vec<KeyPath>,
    /// Values of a wrong type or without a valid value. The table that contains them is not checked
    /// further.
    pub(super) invalid: Vec<KeyPath>,
}

/// Compares a whole text with its schema.
pub(super) fn check(schema: &Value, text: &DeTable<'_>, faults: &mut Faults) -> Shape {
    let mut checker = Checker { root: schema, faults, shape: Shape::default() };
    checker.check_table(schema, text, &KeyPath::default());
    checker.shape
}

struct Checker<'f> {
    /// The schema of the whole text, which has the definitions.
    root: &'f Value,
    faults: &'f mut Faults,
    shape: Shape,
}

impl Checker<'_> {
    fn add_invalid(&mut self, path: &KeyPath, message: String, hint: impl Into<String>) {
        self.faults.add(path, message, hint);
        self.shape.invalid.push(path.clone());
    }

    fn check_value(&mut self, schema: &Value, value: &DeValue<'_>, path: &KeyPath) {
        let description = schema.get("description").and_then(Value::as_str).unwrap_or("");
        let schema = resolve(self.root, schema);
        if let Some(branches) = alternatives(schema) {
            return self.check_alternatives(branches, value, path, description);
        }
        if !type_matches(schema, value) {
            let message =
                format!("expected {}, found {}", expected_type(self.root, schema), actual_type(value));
            let wants_list = schema.get("type").is_some_and(|t| t == "array");
            let hint = match (value, path.last_key()) {
                (DeValue::String(_), _) if wants_list => "put it in brackets: [\"…\"]".into(),
                (DeValue::Table(_), Some(key)) if wants_list => format!("write [[{key}]], with two brackets"),
                _ => key_hint(path, description),
            };
            return self.add_invalid(path, message, hint);
        }
        match value {
            DeValue::Table(table) => self.check_table(schema, table, path),
            DeValue::Array(array) => {
                if array.is_empty() && schema.get("minItems").is_some() {
                    self.add_invalid(path, "the list is empty".into(), "write at least one element");
                }
                if let Some(items) = schema.get("items") {
                    for (index, item) in array.iter().enumerate() {
                        self.check_value(items, item.get_ref(), &path.index(index));
                    }
                }
            }
            DeValue::String(text) => self.check_string(schema, text, path),
            DeValue::Integer(_) | DeValue::Float(_) => self.check_number(schema, value, path),
            DeValue::Boolean(_) | DeValue::Datetime(_) => {}
        }
    }

    /// Picks the branch whose type fits the value. Branches that are all constants form one list of
    /// words.
    fn check_alternatives(
        &mut self,
        branches: &[Value],
        value: &DeValue<'_>,
        path: &KeyPath,
        description: &str,
    ) {
        let words: Vec<&str> =
            branches.iter().filter_map(|b| b.get("const").and_then(Value::as_str)).collect();
        if words.len() == branches.len() {
            if let DeValue::String(text) = value {
                return self.check_word(&words, text, path);
            }
            let message = format!("expected {}, found {}", one_of(words), actual_type(value));
            return self.add_invalid(path, message, key_hint(path, description));
        }
        if let Some(branch) = branches.iter().find(|b| type_matches(resolve(self.root, b), value)) {
            return self.check_value(branch, value, path);
        }
        let kinds: Vec<String> =
            branches.iter().map(|b| expected_type(self.root, resolve(self.root, b))).collect();
        let message = format!("expected {}, found {}", kinds.join(", or "), actual_type(value));
        self.add_invalid(path, message, key_hint(path, description));
    }

    fn check_table(&mut self, schema: &Value, table: &DeTable<'_>, path: &KeyPath) {
        let none = serde_json::Map::new();
        let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let further = schema.get("additionalProperties").filter(|f| f.is_object());
        for (key, value) in table {
            let (key, at) = (key.get_ref().as_ref(), path.key(key.get_ref()));
            match (known.get(key), further) {
                (Some(schema), _) | (None, Some(schema)) => self.check_value(schema, value.get_ref(), &at),
                (None, None) => {
                    let (message, hint) = match renamed::remedy(&at) {
                        Some(remedy) => (format!("`{key}` was renamed"), remedy.to_owned()),
                        None => (format!("unknown key `{key}`"), hint_for_unknown(key, known)),
                    };
                    self.faults.add_key(&at, message, hint);
                    self.shape.unknown.push(at);
                }
            }
        }
        for required in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let Some(key) = required.as_str().filter(|k| !table.contains_key(*k)) else { continue };
            let description = known.get(key).and_then(|s| s.get("description")).and_then(Value::as_str);
            self.add_invalid(
                &path.key(key),
                format!("missing key `{key}`"),
                key_hint(&path.key(key), description.unwrap_or("")),
            );
        }
    }

    fn check_string(&mut self, schema: &Value, text: &str, path: &KeyPath) {
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            return self.check_word(&words, text, path);
        }
        let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
        if let Err((message, hint)) = scalar::check(format, text) {
            self.add_invalid(path, message, hint);
        }
    }

    fn check_word(&mut self, words: &[&str], text: &str, path: &KeyPath) {
        if !words.contains(&text) {
            let hint = match nearest(text, words.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("write {}", one_of(words.iter().copied())),
            };
            self.add_invalid(path, format!("unknown value {text:?}"), hint);
        }
    }

    fn check_number(&mut self, schema: &Value, value: &DeValue<'_>, path: &KeyPath) {
        let text = match value {
            DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).map(|n| n.to_string()).ok(),
            DeValue::Float(f) => Some(f.as_str().to_owned()),
            _ => None,
        };
        let number = text.as_deref().and_then(|t| t.parse::<f64>().ok()).unwrap_or(f64::NAN);
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let (low, high) = (bound("minimum"), bound("maximum"));
        if low.is_none_or(|low| number >= low) && high.is_none_or(|high| number <= high) && !number.is_nan() {
            return;
        }
        let range = match (low, high) {
            (Some(low), Some(high)) => format!("between {low} and {high}"),
            (Some(low), None) => format!("from {low}"),
            (None, Some(high)) => format!("up to {high}"),
            (None, None) => "that fits 64 bits".into(),
        };
        self.add_invalid(
            path,
            format!("{} is out of range", text.as_deref().unwrap_or("it")),
            format!("write a number {range}"),
        );
    }
}

/// The known key with the most similar name, or all known keys.
fn hint_for_unknown(key: &str, known: &serde_json::Map<String, Value>) -> String {
    match nearest(key, known.keys().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known keys: {}", known.keys().cloned().collect::<Vec<_>>().join(", ")),
    }
}

fn alternatives(schema: &Value) -> Option<&[Value]> {
    let branches = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
    branches.as_array().map(Vec::as_slice)
}

/// Whether the type of the value fits. Does not check the value itself.
fn type_matches(schema: &Value, value: &DeValue<'_>) -> bool {
    let Some(kind) = schema.get("type").and_then(Value::as_str) else { return true };
    match value {
        DeValue::String(_) => kind == "string",
        DeValue::Integer(_) => matches!(kind, "integer" | "number"),
        DeValue::Float(_) => kind == "number",
        DeValue::Boolean(_) => kind == "boolean",
        DeValue::Array(_) => kind == "array",
        DeValue::Table(_) => kind == "object",
        DeValue::Datetime(_) => false,
    }
}

/// Names the type that the schema expects.
fn expected_type(root: &Value, schema: &Value) -> String {
    let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return one_of(words.iter().filter_map(Value::as_str));
    }
    match (schema.get("type").and_then(Value::as_str).unwrap_or(""), scalar::expected(format)) {
        ("string", Some(expected)) => expected.into(),
        ("string", None) => "a string".into(),
        ("integer", _) => "a whole number".into(),
        ("number", _) => "a number".into(),
        ("boolean", _) => "true or false".into(),
        ("array", _) => match schema.get("items").map(|items| resolve(root, items)) {
            Some(items) if items.get("type").is_some_and(|t| t == "string") => "a list of strings".into(),
            Some(items) if items.get("type").is_some_and(|t| t == "object") => "a list of tables".into(),
            _ => "a list".into(),
        },
        _ => "a table".into(),
    }
}

/// Names the type of a value in the file.
fn actual_type(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Purpose of a key: the first sentence of its description, as a hint without capital and full
/// stop.
fn key_hint(path: &KeyPath, description: &str) -> String {
    let sentence = description.split(". ").next().unwrap_or("").trim_end_matches('.');
    let mut chars = sentence.chars();
    let sentence = match (chars.next(), chars.clone().next()) {
        // An acronym keeps its capitals.
        (Some(first), Some(second)) if !second.is_uppercase() => first.to_lowercase().chain(chars).collect(),
        _ => sentence.to_owned(),
    };
    match path.last_key() {
        Some(key) if !sentence.is_empty() => format!("`{key}`: {sentence}"),
        _ => sentence,
    }
}
