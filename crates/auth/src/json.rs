//! Strict JSON for tokens and key sets.
//!
//! RFC 8259 does not define the meaning of repeated members. Two parsers that read
//! `{"sub":"a", "sub":"b"}` differently permit impersonation. Here a repeated member is refused at
//! every depth, as are nesting beyond [`MAX_DEPTH`] and bytes after the value. The callers limit
//! the size.
//!
//! A [`Document`] owns its text and a tree that points into it by offsets. So it has no lifetime
//! parameter, and a string needs no allocation unless it has escapes.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

/// Most levels of nested arrays and objects.
pub const MAX_DEPTH: usize = 16;

/// Why bytes are not strict JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The bytes are not UTF-8 (RFC 8259 §8.1).
    #[error("not utf-8")]
    NotUtf8,
    /// The text is not JSON, or more bytes follow it.
    #[error("not one valid JSON value")]
    Syntax,
    /// An object has two members of the same name, after escapes are resolved.
    #[error("json with a repeated member")]
    DuplicateMember,
    /// The value is nested deeper than [`MAX_DEPTH`].
    #[error("json nested deeper than 16 levels")]
    TooDeep,
}

/// A parsed JSON text.
pub struct Document {
    text: String,
    root: Node,
}

enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(Text),
    Array(Vec<Node>),
    /// Sorted by name; names are unique.
    Object(Vec<(Text, Node)>),
}

/// A string: its position in the document, or its own copy when it had escapes.
enum Text {
    Span { start: u32, end: u32 },
    Owned(Box<str>),
}

impl Text {
    fn new(document: &str, string: &str) -> Self {
        // The parser returns a string without escapes as a slice of the document; its position is
        // found by address. Any other string fails the comparison of bounds and is copied.
        let start = string.as_ptr().addr().wrapping_sub(document.as_ptr().addr());
        let inside = start.checked_add(string.len()).is_some_and(|end| end <= document.len());
        match (u32::try_from(start), u32::try_from(start.wrapping_add(string.len()))) {
            (Ok(start), Ok(end)) if inside => Self::Span { start, end },
            _ => Self::Owned(string.into()),
        }
    }

    fn resolve<'d>(&'d self, document: &'d str) -> &'d str {
        match self {
            Self::Span { start, end } => &document[*start as usize..*end as usize],
            Self::Owned(text) => text,
        }
    }
}

/// A JSON number, exact if it was exact in JSON.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A non-negative integer.
    Unsigned(u64),
    /// A negative integer.
    Negative(i64),
    /// It has a fraction or an exponent, or is an integer beyond 64 bits. Always finite.
    Float(f64),
}

impl Document {
    /// Parses one JSON value.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, JsonError> {
        let text = String::from_utf8(bytes).map_err(|_| JsonError::NotUtf8)?;
        let fault = Cell::new(JsonError::Syntax);
        let mut json = serde_json::Deserializer::from_str(&text);
        let reader = Reader { text: &text, fault: &fault, depth: 0 };
        let root = reader.deserialize(&mut json).and_then(|root| json.end().map(|()| root));
        match root {
            Ok(root) => Ok(Self { text, root }),
            Err(_) => Err(fault.get()),
        }
    }

    /// The value that is the whole text.
    pub fn root(&self) -> Value<'_> {
        Value { text: &self.text, node: &self.root }
    }
}

impl fmt::Debug for Document {
    /// Shows nothing of the content, which may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("bytes", &self.text.len()).finish_non_exhaustive()
    }
}

/// A value inside a [`Document`].
#[derive(Clone, Copy)]
pub struct Value<'d> {
    text: &'d str,
    node: &'d Node,
}

impl<'d> Value<'d> {
    /// The text, if this is a string.
    pub fn as_str(self) -> Option<&'d str> {
        if let Node::Text(text) = self.node { Some(text.resolve(self.text)) } else { None }
    }

    /// The boolean, if this is one.
    pub fn as_bool(self) -> Option<bool> {
        if let Node::Bool(b) = self.node { Some(*b) } else { None }
    }

    /// The number, if this is one.
    pub fn as_number(self) -> Option<Number> {
        if let Node::Number(number) = self.node { Some(*number) } else { None }
    }

    /// Whether this is `null`.
    pub fn is_null(self) -> bool {
        matches!(self.node, Node::Null)
    }

    /// Whether this is an object.
    pub fn is_object(self) -> bool {
        matches!(self.node, Node::Object(_))
    }

    /// The member of this name, if this is an object and has one.
    pub fn get(self, name: &str) -> Option<Self> {
        let Node::Object(members) = self.node else { return None };
        let at = members.binary_search_by(|(n, _)| n.resolve(self.text).cmp(name)).ok()?;
        Some(Self { node: &members[at].1, ..self })
    }

    /// The members in the order of their names, if this is an object.
    pub fn members(self) -> Option<impl ExactSizeIterator<Item = (&'d str, Self)>> {
        let Node::Object(members) = self.node else { return None };
        Some(members.iter().map(move |(name, node)| (name.resolve(self.text), Self { node, ..self })))
    }

    /// The elements, if this is an array.
    pub fn items(self) -> Option<impl ExactSizeIterator<Item = Self>> {
        let Node::Array(items) = self.node else { return None };
        Some(items.iter().map(move |node| Self { node, ..self }))
    }
}

/// Builds nodes. It records in `fault` why it stopped, since the parser's own error type cannot
/// carry that.
#[derive(Clone, Copy)]
struct Reader<'r> {
    text: &'r str,
    fault: &'r Cell<JsonError>,
    depth: usize,
}

impl Reader<'_> {
    fn refuse<E: serde::de::Error>(self, fault: JsonError) -> E {
        self.fault.set(fault);
        E::custom("refused")
    }

    fn nested<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.refuse(JsonError::TooDeep));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Node, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(Number::Unsigned(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(u64::try_from(value).map_or(Number::Negative(value), Number::Unsigned)))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        if value.is_finite() { Ok(Node::Number(Number::Float(value))) } else { Err(E::custom("not finite")) }
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(Text::new(self.text, value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let inner = self.nested()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Node::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let inner = self.nested()?;
        let mut members = Vec::new();
        while let Some(name) = map.next_key_seed(JsonName(self.text))? {
            members.push((name, map.next_value_seed(inner)?));
        }
        // Sorting finds a repeated name in n log n for any input, and makes the lookups fast.
        members.sort_unstable_by(|(a, _), (b, _)| a.resolve(self.text).cmp(b.resolve(self.text)));
        if members.windows(2).any(|w| w[0].0.resolve(self.text) == w[1].0.resolve(self.text)) {
            return Err(self.refuse(JsonError::DuplicateMember));
        }
        Ok(Node::Object(members))
    }
}

/// Reads the name of a member.
#[derive(Clone, Copy)]
struct JsonName<'r>(&'r str);

impl<'de> DeserializeSeed<'de> for JsonName<'_> {
    type Value = Text;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Text, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for JsonName<'_> {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E>(self, value: &str) -> Result<Text, E> {
        Ok(Text::new(self.0, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Document, JsonError> {
        Document::parse(text.as_bytes().to_vec())
    }

    fn fault(text: &str) -> Option<JsonError> {
        parse(text).err()
    }

    #[test]
    fn values_are_what_they_were_written_as() {
        let document =
            parse(r#"{"s":"a\u00e9\n","plain":"ü","n":null,"t":true,"u":18446744073709551615,"i":-3,"f":1.5,"a":[1,"x"],"o":{}}"#)
                .unwrap();
        let root = document.root();
        assert_eq!(root.get("s").unwrap().as_str(), Some("aé\n"));
        assert_eq!(root.get("plain").unwrap().as_str(), Some("ü"));
        assert!(root.get("n").unwrap().is_null());
        assert_eq!(root.get("t").unwrap().as_bool(), Some(true));
        assert_eq!(root.get("u").unwrap().as_number(), Some(Number::Unsigned(u64::MAX)));
        assert_eq!(root.get("i").unwrap().as_number(), Some(Number::Negative(-3)));
        assert_eq!(root.get("f").unwrap().as_number(), Some(Number::Float(1.5)));
        assert!(root.get("o").unwrap().is_object());
        let items: Vec<_> = root.get("a").unwrap().items().unwrap().collect();
        assert_eq!((items[0].as_number(), items[1].as_str()), (Some(Number::Unsigned(1)), Some("x")));
        assert!(root.get("absent").is_none() && root.get("s").unwrap().get("x").is_none());
        assert!(root.items().is_none() && root.as_str().is_none());
    }

    #[test]
    fn only_strings_without_escapes_point_into_the_document() {
        let text = r#"{"plain":"x","escaped":"\u0078"}"#;
        let document = parse(text).unwrap();
        let Node::Object(members) = &document.root else { panic!("no object") };
        assert!(members.iter().all(|(name, _)| matches!(name, Text::Span { .. })));
        assert!(matches!(members[0].1, Node::Text(Text::Owned(_))), "escaped");
        assert!(matches!(members[1].1, Node::Text(Text::Span { .. })), "plain");
    }

    #[test]
    fn repeated_members_are_refused_at_every_depth() {
        let duplicate = Some(JsonError::DuplicateMember);
        assert_eq!(fault(r#"{"a":1,"a":1}"#), duplicate);
        assert_eq!(fault(r#"{"a":1,"b":2,"\u0061":3}"#), duplicate, "escapes are resolved first");
        assert_eq!(fault(r#"{"x":[{"y":{"a":1,"b":2,"a":3}}]}"#), duplicate);
        assert_eq!(fault(r#"{"":1,"":2}"#), duplicate);
        assert_eq!(fault(r#"{"a":{"a":1},"A":[{"a":1},{"a":2}]}"#), None);
        let many: Vec<_> = (0..2000).map(|i| format!(r#""{i}":0"#)).collect();
        assert_eq!(fault(&format!("{{{}}}", many.join(","))), None);
        assert_eq!(fault(&format!(r#"{{{},"777":1}}"#, many.join(","))), duplicate);
    }

    #[test]
    fn nesting_ends_at_the_limit() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(fault(&nested(MAX_DEPTH)), None);
        assert_eq!(fault(&nested(MAX_DEPTH + 1)), Some(JsonError::TooDeep));
        assert_eq!(fault(&"[".repeat(16_000)), Some(JsonError::TooDeep));
        let objects = |n: usize| format!("{}0{}", r#"{"a":"#.repeat(n), "}".repeat(n));
        assert_eq!(fault(&objects(MAX_DEPTH)), None);
        assert_eq!(fault(&objects(MAX_DEPTH + 1)), Some(JsonError::TooDeep));
    }

    #[test]
    fn anything_but_one_value_is_refused() {
        for text in [
            "",
            " ",
            "{} {}",
            "{}x",
            "{}\0",
            "{\"a\":1,}",
            "[1,]",
            "{'a':1}",
            "{a:1}",
            "01",
            "+1",
            "1.",
            ".5",
            "0x1",
            "NaN",
            "Infinity",
            "1e999",
            "nul",
            "\"\\ud800\"",
            "\"\t\"",
            "\"open",
            "// x\n{}",
            "\u{feff}{}",
        ] {
            assert_eq!(fault(text), Some(JsonError::Syntax), "{text:?}");
        }
        assert_eq!(Document::parse(b"{\"a\":\"\xff\"}".to_vec()).err(), Some(JsonError::NotUtf8));
        assert_eq!(fault(" {\"a\" : 1}\n"), None);
    }

    #[test]
    fn debug_keeps_the_content_to_itself() {
        let shown = format!("{:?}", parse(r#"{"sub":"hush"}"#).unwrap());
        assert!(!shown.contains("hush") && !shown.contains("sub"), "{shown}");
    }
}
