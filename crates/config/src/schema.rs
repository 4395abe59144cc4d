//! JSON schema of the configuration file.
//!
//! It is generated from the raw types. Therefore editors, the reference and `shape` all use the
//! same rules.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::raw;

/// Returns the schema as a JSON document that ends in a line feed.
pub fn text() -> String {
    format!("{:#}\n", *SCHEMA)
}

/// The schema of the whole file as JSON.
pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = of::<raw::File>();
    schema["title"] = "postern.toml".into();
    schema
});

/// The schema of a type that is made of raw types, in the form that [`crate::json::faults`] expects.
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with_transform(NoNull).with_transform(OneLine);
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// Removes `null` from the schema, because TOML has no null: an optional key is absent.
#[derive(Debug, Clone)]
struct NoNull;

impl Transform for NoNull {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|t| t != "null");
            if let [one] = types.as_slice() {
                let one = one.clone();
                schema.insert("type".into(), one);
            }
        }
        if let Some(Value::Array(branches)) = schema.get_mut("anyOf") {
            branches.retain(|b| b.get("type").is_none_or(|t| t != "null"));
            if let [Value::Object(one)] = branches.as_slice() {
                let one = one.clone();
                schema.remove("anyOf");
                for (key, value) in one {
                    schema.insert(key, value);
                }
            }
        }
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
    }
}

/// Joins each description into one line. Doc comments are wrapped, but an editor shows one line.
#[derive(Debug, Clone)]
struct OneLine;

impl Transform for OneLine {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
    }
}

/// Resolves the `$ref` of a part of the schema `root`. Returns the part itself when it has none.
pub fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    match schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#')) {
        Some(pointer) => root.pointer(pointer).unwrap_or(schema),
        None => schema,
    }
}
