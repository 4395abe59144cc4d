//! Structural schema: the form of schema that an API server accepts in a definition.
//!
//! Owns: the conversion from a JSON schema of raw types. References are replaced by what they refer
//! to. A value that may be of two types has none here: the API server keeps it as it is, and its
//! description names the forms. Defaults are left out, since the API server would write them into
//! objects, and a later version could not change them.
//! Does not own: the schema, and the validations (the parent).

use config::schema::resolve;
use serde_json::{Map, Value, json};

/// Validations of the definitions of a schema: name of the definition, CEL, message.
pub(super) type DefinitionRules<'r> = [(&'r str, &'r str, &'r str)];

/// Members of a schema that mean the same in both forms.
const SAME: [&str; 9] =
    ["type", "pattern", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "required"];

/// Validations in the form of a definition.
pub(super) fn validations(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect()
}

/// Converts a whole schema.
pub(super) fn convert(schema: &Value, rules: &DefinitionRules<'_>) -> Value {
    Conversion { root: schema, rules }.part(schema)
}

struct Conversion<'s> {
    root: &'s Value,
    rules: &'s DefinitionRules<'s>,
}

impl Conversion<'_> {
    fn part(&self, schema: &Value) -> Value {
        let resolved = resolve(self.root, schema);
        let mut out = Map::new();
        let description = schema.get("description").or_else(|| resolved.get("description"));
        let description = description.and_then(Value::as_str).unwrap_or_default();
        if let Some(words) = words(resolved) {
            out.insert("type".into(), json!("string"));
            out.insert("enum".into(), words.iter().map(|(word, _)| *word).collect());
            let meanings = words.iter().filter(|(_, meaning)| !meaning.is_empty());
            let meanings = meanings.map(|(word, meaning)| format!("`{word}`: {meaning}"));
            let parts: Vec<String> = std::iter::once(description.to_owned()).chain(meanings).collect();
            out.insert("description".into(), json!(parts.join(" ")));
            return Value::Object(out);
        }
        if let Some(branches) = resolved.get("anyOf").and_then(Value::as_array) {
            let forms: Vec<String> = branches.iter().map(|branch| self.form(branch)).collect();
            let description = format!("{description} Either {}.", forms.join(", or "));
            out.insert("description".into(), json!(description));
            out.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
            return Value::Object(out);
        }
        if !description.is_empty() {
            out.insert("description".into(), json!(description));
        }
        for name in SAME {
            let value = resolved.get(name);
            out.extend(value.map(|value| (name.to_owned(), value.clone())));
        }
        if let Some(items) = resolved.get("items") {
            out.insert("items".into(), self.part(items));
        }
        if let Some(properties) = resolved.get("properties").and_then(Value::as_object) {
            let properties = properties.iter().map(|(name, schema)| (name.clone(), self.part(schema)));
            out.insert("properties".into(), Value::Object(properties.collect()));
            // See the parent: an unknown field must reach the controller.
            out.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
            // An object without members says nothing, wherever it stands in a policy.
            out.insert("minProperties".into(), json!(1));
        } else if let Some(values) = resolved.get("additionalProperties").filter(|values| values.is_object())
        {
            out.insert("additionalProperties".into(), self.part(values));
        }
        let definition = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next());
        let rules = self.rules.iter().filter(|(name, ..)| Some(*name) == definition);
        let rules: Vec<_> = rules.map(|(_, rule, message)| (*rule, *message)).collect();
        if !rules.is_empty() {
            out.insert("x-kubernetes-validations".into(), validations(&rules));
        }
        Value::Object(out)
    }

    /// A form of a value, in words.
    fn form(&self, branch: &Value) -> String {
        let branch = resolve(self.root, branch);
        let names = branch.get("properties").and_then(Value::as_object).map(|properties| {
            let names: Vec<String> = properties.keys().map(|name| format!("`{name}`")).collect();
            names.join(", ")
        });
        match (branch["type"].as_str(), names) {
            (Some("object"), Some(names)) => format!("an object with {names}"),
            (Some("array"), _) => "a list of texts".to_owned(),
            (Some("boolean"), _) => "`true` or `false`".to_owned(),
            (Some("string"), _) => "a text".to_owned(),
            (other, _) => format!("a value of type {}", other.unwrap_or("object")),
        }
    }
}

/// The words that a text may be, with their meanings.
fn words(schema: &Value) -> Option<Vec<(&str, &str)>> {
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        return list.iter().map(|word| Some((word.as_str()?, ""))).collect();
    }
    let list = schema.get("oneOf")?.as_array()?;
    list.iter().map(|word| Some((word.get("const")?.as_str()?, word.get("description")?.as_str()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_and_words_are_described_and_references_are_resolved() {
        let schema = json!({
            "type": "object",
            "properties": {
                "day": { "description": "Day.", "$ref": "#/$defs/Day", "default": "mon" },
                "choice": { "description": "What must occur.", "anyOf": [
                    { "type": "array", "items": { "type": "string" } },
                    { "$ref": "#/$defs/Sets" },
                ] },
                "map": { "type": "object", "additionalProperties": { "$ref": "#/$defs/Sets" } },
                "size": { "type": "string", "format": "size", "pattern": "^x$" },
            },
            "additionalProperties": false,
            "$defs": {
                "Day": { "oneOf": [
                    { "type": "string", "const": "mon", "description": "Monday." },
                    { "type": "string", "const": "tue", "description": "Tuesday." },
                ] },
                "Sets": { "description": "Sets.", "type": "object", "properties": {
                    "all": { "type": "boolean", "description": "All." },
                }, "additionalProperties": false },
            },
        });
        let keep = "x-kubernetes-preserve-unknown-fields";
        let sets = json!({
            "type": "object",
            "description": "Sets.",
            "minProperties": 1,
            "properties": { "all": { "type": "boolean", "description": "All." } },
            keep: true,
            "x-kubernetes-validations": [{ "rule": "has(self.all)", "message": "set all" }],
        });
        assert_eq!(
            convert(&schema, &[("Sets", "has(self.all)", "set all")]),
            json!({
                "type": "object",
                "minProperties": 1,
                "properties": {
                    "day": {
                        "type": "string",
                        "enum": ["mon", "tue"],
                        "description": "Day. `mon`: Monday. `tue`: Tuesday.",
                    },
                    "choice": {
                        "description": "What must occur. Either a list of texts, or an object with `all`.",
                        keep: true,
                    },
                    "map": { "type": "object", "additionalProperties": sets },
                    "size": { "type": "string", "pattern": "^x$" },
                },
                keep: true,
            })
        );
    }
}
