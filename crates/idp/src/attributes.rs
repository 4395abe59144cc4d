//! Attributes: data about users beyond the standard claims, declared in the configuration.
//!
//! Owns: the declaration of an attribute ([`Attribute`]), the checked list ([`Attributes`]), the
//! check of a value, and the form in which a user enters it.
//!
//! Does not own: the values (the account's record holds them beside the standard claims), the
//! claims of tokens that contain them ([`crate::claim_mapping`]).
//!
//! Operators see and change every attribute. What a user sees and changes on the account page is
//! part of the declaration. A value of an attribute that is no longer declared stays in the record,
//! and no token contains it.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use crate::claims::is_reserved_claim;

/// Most attributes of a provider: the form of the account page has a parameter for each, and a form
/// has at most 64.
pub const MAX_ATTRIBUTES: usize = 48;
/// Longest name of an attribute in bytes.
pub const MAX_NAME: usize = 64;
/// Most characters of a text value.
pub const MAX_TEXT: usize = 1024;
/// Most entries of a list value.
pub const MAX_ENTRIES: usize = 128;

/// Type of the values of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttributeType {
    /// A text without control characters.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// A list of texts.
    StringList,
}

/// What a user may do with an attribute on the account page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserAccess {
    /// The page does not show it.
    #[default]
    None,
    /// The page shows it.
    View,
    /// The page shows it, and the user may change it.
    Edit,
}

/// Declaration of an attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attribute {
    /// Name in the account's record: 1 to [`MAX_NAME`] letters, digits and `_ . : / -`.
    pub name: String,
    /// Type of its values.
    pub kind: AttributeType,
    /// The permitted texts; empty: any. For texts and lists of texts.
    pub values: Vec<String>,
    /// Names for users, by language tag; default: `name`.
    pub labels: BTreeMap<String, String>,
    /// What the user may do with it.
    pub user: UserAccess,
}

/// Reason why a declaration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeFault {
    /// The name does not match the grammar.
    #[error("malformed attribute name: use 1 to {MAX_NAME} letters, digits and _ . : / -")]
    Name,
    /// The name is that of a claim which the provider itself defines.
    #[error("the name is that of a standard claim: choose another one")]
    Reserved,
    /// Another attribute has the same name.
    #[error("another attribute has the same name: remove one")]
    Duplicate,
    /// There are more than [`MAX_ATTRIBUTES`].
    #[error("too many attributes: declare at most {MAX_ATTRIBUTES}")]
    TooMany,
    /// There are permitted values, but the type is not a text.
    #[error(
        "only attributes of type string and string_list have permitted values: remove them or change the type"
    )]
    ValuesOfType,
    /// A permitted value is empty, too long, or has control characters.
    #[error("a permitted value has 1 to {MAX_TEXT} characters and no control characters")]
    Value,
    /// A label is empty, too long, or has control characters.
    #[error("a label has 1 to 80 characters and no control characters")]
    Label,
}

/// The declared attributes of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Vec<Attribute>);

impl Attributes {
    /// Checks all declarations, and reports every fault with the index of the attribute and the
    /// key.
    ///
    /// # Errors
    /// The faults of all declarations.
    pub fn check(attributes: &[Attribute]) -> Result<Self, Vec<(usize, &'static str, AttributeFault)>> {
        let (mut faults, mut names) = (Vec::new(), HashSet::new());
        for (at, attribute) in attributes.iter().enumerate() {
            let mut require = |holds: bool, key: &'static str, fault: AttributeFault| {
                if !holds {
                    faults.push((at, key, fault));
                }
            };
            require(at != MAX_ATTRIBUTES, "name", AttributeFault::TooMany);
            require(is_name(&attribute.name), "name", AttributeFault::Name);
            require(!is_reserved_claim(&attribute.name), "name", AttributeFault::Reserved);
            require(names.insert(&attribute.name), "name", AttributeFault::Duplicate);
            let text = matches!(attribute.kind, AttributeType::String | AttributeType::StringList);
            require(text || attribute.values.is_empty(), "values", AttributeFault::ValuesOfType);
            require(attribute.values.iter().all(|value| is_text(value)), "values", AttributeFault::Value);
            let short = |label: &String| is_text(label) && label.chars().count() <= 80;
            require(attribute.labels.values().all(short), "labels", AttributeFault::Label);
        }
        if faults.is_empty() { Ok(Self(attributes.to_vec())) } else { Err(faults) }
    }

    /// The declarations as they are, faulty or not, to check what refers to them.
    pub(crate) fn unchecked(attributes: &[Attribute]) -> Self {
        Self(attributes.to_vec())
    }

    /// The attribute with this name.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.iter().find(|attribute| attribute.name == name)
    }

    /// All attributes, in the order of their declaration.
    pub fn iter(&self) -> impl Iterator<Item = &Attribute> {
        self.0.iter()
    }

    /// The attributes that a user sees on the account page.
    pub fn shown_to_user(&self) -> impl Iterator<Item = &Attribute> {
        self.iter().filter(|attribute| attribute.user != UserAccess::None)
    }
}

impl Attribute {
    /// Checks a value of the attribute.
    ///
    /// # Errors
    /// What is wrong with the value and what to send instead, as a part of a sentence.
    pub fn check_value(&self, value: &Value) -> Result<(), String> {
        let sound = match self.kind {
            AttributeType::Integer => value.is_i64() || value.is_u64(),
            AttributeType::Boolean => value.is_boolean(),
            AttributeType::String => return self.check_text(value),
            AttributeType::StringList => {
                let Some(items) = value.as_array().filter(|items| items.len() <= MAX_ENTRIES) else {
                    return Err(format!("is a list of at most {MAX_ENTRIES} texts"));
                };
                return items.iter().try_for_each(|item| self.check_text(item));
            }
        };
        let expected = if self.kind == AttributeType::Integer { "a whole number" } else { "true or false" };
        if sound { Ok(()) } else { Err(format!("is {expected}")) }
    }

    fn check_text(&self, value: &Value) -> Result<(), String> {
        let Some(text) = value.as_str().filter(|text| is_text(text)) else {
            let of = if self.kind == AttributeType::StringList { "a list of texts, each" } else { "a text" };
            return Err(format!("is {of} of 1 to {MAX_TEXT} characters without control characters"));
        };
        if self.values.is_empty() || self.values.iter().any(|permitted| permitted == text) {
            return Ok(());
        }
        Err(format!("has only the permitted values {}", self.values.join(", ")))
    }

    /// Name for a user who reads this language.
    pub fn label(&self, language: &str) -> &str {
        let in_language = self.labels.get(language);
        in_language.or_else(|| self.labels.get("en")).map_or(&self.name, |label| label)
    }

    /// The value as a user sees and enters it; the entries of a list are separated by commas.
    pub fn shown(&self, record: &Map<String, Value>) -> String {
        match record.get(&self.name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => {
                items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
            }
            Some(other) => other.to_string(),
        }
    }

    /// Reads what a user entered. `None`: the attribute has no value.
    ///
    /// # Errors
    /// As [`Attribute::check_value`].
    pub fn entered(&self, text: &str) -> Result<Option<Value>, String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let value = match self.kind {
            AttributeType::String => text.into(),
            AttributeType::Integer => text.parse::<i64>().map_or(Value::Null, Value::from),
            AttributeType::Boolean => text.parse::<bool>().map_or(Value::Null, Value::from),
            AttributeType::StringList => {
                text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect::<Value>()
            }
        };
        self.check_value(&value).map(|()| Some(value))
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
}

fn is_text(text: &str) -> bool {
    (1..=MAX_TEXT).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attribute(kind: AttributeType, values: &[&str]) -> Attribute {
        let values = values.iter().map(|&value| value.into()).collect();
        Attribute { name: "department".into(), kind, values, ..Attribute::default() }
    }

    #[test]
    fn every_faulty_declaration_is_reported() {
        let named = |name: &str| Attribute { name: name.into(), ..Attribute::default() };
        let all = [
            named("department"),
            named(""),
            named("a b"),
            named("email"),
            named("sub"),
            named("department"),
            Attribute { values: vec!["1".into()], kind: AttributeType::Integer, ..named("floor") },
            Attribute { values: vec!["a\nb".into()], ..named("site") },
            Attribute { labels: [("de".into(), String::new())].into(), ..named("team") },
        ];
        let faults = Attributes::check(&all).unwrap_err();
        let found: Vec<_> = faults.iter().map(|(at, key, fault)| (*at, *key, fault.clone())).collect();
        assert_eq!(
            found,
            [
                (1, "name", AttributeFault::Name),
                (2, "name", AttributeFault::Name),
                (3, "name", AttributeFault::Reserved),
                (4, "name", AttributeFault::Reserved),
                (5, "name", AttributeFault::Duplicate),
                (6, "values", AttributeFault::ValuesOfType),
                (7, "values", AttributeFault::Value),
                (8, "labels", AttributeFault::Label),
            ]
        );
        let many: Vec<_> = (0..=MAX_ATTRIBUTES).map(|n| named(&format!("a{n}"))).collect();
        assert_eq!(Attributes::check(&many).unwrap_err(), [(48, "name", AttributeFault::TooMany)]);
        assert!(Attributes::check(&many[1..]).is_ok());
    }

    #[test]
    fn a_value_has_the_declared_type() {
        use AttributeType::{Boolean, Integer, String, StringList};
        for (kind, values, good, bad) in [
            (String, &[][..], json!("R&D"), json!(1)),
            (String, &["a", "b"], json!("b"), json!("c")),
            (String, &[], json!("x".repeat(MAX_TEXT)), json!("x".repeat(MAX_TEXT + 1))),
            (String, &[], json!("a b"), json!("a\nb")),
            (Integer, &[], json!(-7), json!(1.5)),
            (Boolean, &[], json!(false), json!("false")),
            (StringList, &[], json!([]), json!("a")),
            (StringList, &["a"], json!(["a", "a"]), json!(["a", "b"])),
            (StringList, &[], json!(["a"]), json!(["a", 1])),
            (StringList, &[], json!(["a"]), json!(vec!["a"; MAX_ENTRIES + 1])),
        ] {
            let attribute = attribute(kind, values);
            assert_eq!(attribute.check_value(&good), Ok(()), "{kind:?} {good}");
            assert!(attribute.check_value(&bad).is_err(), "{kind:?} {bad}");
        }
    }

    #[test]
    fn what_a_user_enters_becomes_what_the_user_sees() {
        use AttributeType::{Boolean, Integer, String, StringList};
        for (kind, entered, value, shown) in [
            (String, " R&D ", json!("R&D"), "R&D"),
            (Integer, "7", json!(7), "7"),
            (Boolean, "true", json!(true), "true"),
            (StringList, "a,, b ", json!(["a", "b"]), "a, b"),
        ] {
            let attribute = attribute(kind, &[]);
            assert_eq!(attribute.entered(entered), Ok(Some(value.clone())), "{kind:?}");
            let record = Map::from_iter([("department".to_owned(), value)]);
            assert_eq!(attribute.shown(&record), shown);
            assert_eq!(attribute.entered("  "), Ok(None), "removed");
        }
        for (kind, entered) in [(Integer, "seven"), (Boolean, "yes")] {
            assert!(attribute(kind, &[]).entered(entered).is_err(), "{entered}");
        }
    }

    #[test]
    fn a_label_is_in_the_language_or_in_english_or_the_name() {
        let labels = |list: &[(&str, &str)]| Attribute {
            labels: list.iter().map(|&(tag, text)| (tag.into(), text.into())).collect(),
            ..attribute(AttributeType::String, &[])
        };
        let both = labels(&[("en", "Department"), ("de", "Abteilung")]);
        assert_eq!((both.label("de"), both.label("fr")), ("Abteilung", "Department"));
        assert_eq!(labels(&[]).label("de"), "department");
    }
}
