//! Values of YAML and JSON with the lines that they are on.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A value.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Counted from 1.
    pub(super) line: u64,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// A member of a map.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match &self.content {
            Content::Map(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// A member of a map that is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match &self.get(name)?.content {
            Content::Scalar(value) => value.as_str(),
            _ => None,
        }
    }

    /// The elements of a list.
    pub(super) fn elements(&self) -> Option<&[Self]> {
        match &self.content {
            Content::List(list) => Some(list),
            _ => None,
        }
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.content, Content::Map(_))
    }

    /// The line of a field such as `spec.rules[0].name` or `spec.rules.0.name`, or of the last part
    /// of the path that is there.
    pub(super) fn line_of(&self, path: &str) -> u64 {
        let mut at = self;
        for part in path.split(['.', '[', ']']).filter(|part| !part.is_empty()) {
            let next = match &at.content {
                Content::List(list) => part.parse::<usize>().ok().and_then(|index| list.get(index)),
                _ => at.get(part.trim_matches('"')),
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        at.line
    }

    /// The value without lines.
    pub(super) fn value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(list) => list.iter().map(Self::value).collect(),
            Content::Map(members) => {
                let members = members.iter().map(|(name, value)| (name.clone(), value.value()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { line: referenced.line(), content: value })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut members = Vec::new();
        while let Some(entry) = entries.next_entry::<String, Node>()? {
            members.push(entry);
        }
        Ok(Content::Map(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "\
kind: A
spec:
  rules:
    - name: one
      port: 80
    - {on: true, half: 0.5, none: null, text: '80'}
---
kind: B
";

    #[test]
    fn values_keep_their_lines() {
        let nodes: Vec<Node> = serde_saphyr::from_multiple(TEXT).unwrap();
        assert_eq!(
            nodes[0].value(),
            json!({ "kind": "A", "spec": { "rules": [
                { "name": "one", "port": 80 }, { "on": true, "half": 0.5, "none": null, "text": "80" },
            ] } })
        );
        for (path, line) in [
            ("spec.rules[0].port", 5),
            ("spec.rules.1.text", 6),
            ("spec.rules[1].missing.further", 6),
            ("kind", 1),
        ] {
            assert_eq!(nodes[0].line_of(path), line, "{path}");
        }
        assert_eq!((nodes[1].line_of("kind"), nodes[1].text("kind")), (8, Some("B")));
    }

    #[test]
    fn json_is_yaml() {
        let nodes: Vec<Node> = serde_saphyr::from_multiple("{\n\"a\": [1,\n \"b\\n\"]}").unwrap();
        assert_eq!(nodes[0].value(), json!({ "a": [1, "b\n"] }));
        assert_eq!(nodes[0].line_of("a[1]"), 3);
    }
}
