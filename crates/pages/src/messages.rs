//! Messages: the texts of pages in one language.
//!
//! Owns: texts with and without placeholders, inserting values into a text, reading and checking a
//! table of messages. Does not own: the keys (each crate has its own, see [`words!`](crate::words)),
//! the language of a page ([`super::language`]), the messages of all languages ([`super::catalog`]).
//!
//! The keys are fields: a template that names an unknown key does not compile, and the compiler
//! reports a key that no template uses. A key with placeholders is a [`Pattern`], which cannot be
//! shown without its values.

use std::fmt::{self, Display, Write};

use crate::text::{Escaping, Shown};

/// Fault in a file of messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessagesFault {
    /// The file is not TOML; holds the position and the reason.
    #[error("not toml: {0}")]
    Syntax(Box<str>),
    /// A key of the English messages is missing.
    #[error("key {0} is missing")]
    Missing(Box<str>),
    /// The English messages do not have this key.
    #[error("key {0} is unknown: keep the keys that `postern check --print-messages` shows")]
    Unknown(Box<str>),
    /// A value is not a text, or is empty.
    #[error("key {0} is not a text, or is empty")]
    NotText(Box<str>),
    /// The placeholders of a text are not those of its key.
    #[error("key {key} needs exactly these placeholders: {expected}")]
    Placeholders {
        /// Name of the key.
        key: Box<str>,
        /// The required placeholders.
        expected: Box<str>,
    },
    /// The value of `language.direction` is neither `ltr` nor `rtl`.
    #[error("key language.direction is neither ltr nor rtl")]
    Direction,
}

/// A text without placeholders.
#[derive(Debug, Clone)]
pub struct Phrase(Box<str>);

impl Phrase {
    /// A text that a message may be.
    pub fn new(text: Box<str>) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Converts to a filled pattern without values.
    pub fn filled(&self) -> Filled<'_> {
        Filled { pattern: &self.0, values: Vec::new() }
    }
}

impl Display for Phrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text with placeholders.
#[derive(Debug, Clone)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// A text whose placeholders are known.
    pub fn new(text: Box<str>) -> Self {
        Self(text)
    }

    /// Fills in one placeholder.
    pub fn with(&self, name: &'static str, value: impl Display) -> Filled<'_> {
        Filled { pattern: &self.0, values: Vec::new() }.and(name, value)
    }
}

/// A pattern with its values. `Display` writes HTML: everything is escaped, and each value is
/// isolated (`bdi`), so that a name in another script or direction does not reorder the text around
/// it.
#[derive(Debug)]
pub struct Filled<'a> {
    pattern: &'a str,
    values: Vec<(&'static str, String)>,
}

impl Filled<'_> {
    /// Wraps a foreign text without a surrounding pattern.
    pub fn bare(text: &str) -> Self {
        Self { pattern: "{text}", values: vec![("text", text.to_owned())] }
    }

    /// Fills in one more placeholder.
    #[must_use]
    pub fn and(mut self, name: &'static str, value: impl Display) -> Self {
        self.values.push((name, value.to_string()));
        self
    }

    /// Plain text, for places that escape it later.
    pub fn plain(&self) -> String {
        pieces(self.pattern)
            .map(|piece| match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Place(name) => Shown(self.value(name)).to_string(),
            })
            .collect()
    }

    fn value(&self, name: &str) -> &str {
        self.values.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
    }
}

impl Display for Filled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in pieces(self.pattern) {
            match piece {
                Piece::Text(text) => Escaping(f).write_str(text)?,
                Piece::Place(name) => {
                    f.write_str("<bdi>")?;
                    write!(Escaping(f), "{}", Shown(self.value(name)))?;
                    f.write_str("</bdi>")?;
                }
            }
        }
        Ok(())
    }
}

impl askama::filters::HtmlSafe for Filled<'_> {}

enum Piece<'a> {
    Text(&'a str),
    Place(&'a str),
}

/// Splits a pattern at its placeholders; an unmatched brace is text.
fn pieces(mut pattern: &str) -> impl Iterator<Item = Piece<'_>> {
    std::iter::from_fn(move || {
        if pattern.is_empty() {
            return None;
        }
        let place = pattern.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let (piece, rest) = match place {
            Some((name, rest)) => (Piece::Place(name), rest),
            None => {
                let next = pattern.char_indices().skip(1).find(|(_, c)| *c == '{');
                let end = next.map_or(pattern.len(), |(at, _)| at);
                (Piece::Text(&pattern[..end]), &pattern[end..])
            }
        };
        pattern = rest;
        Some(piece)
    })
}

fn placeholders(pattern: &str) -> Vec<&str> {
    let mut names: Vec<_> = pieces(pattern)
        .filter_map(|piece| if let Piece::Place(name) = piece { Some(name) } else { None })
        .collect();
    names.sort_unstable();
    names
}

/// The messages of one crate in one language, see [`words!`](crate::words).
pub trait Words: Sized {
    /// The names of its groups, which are tables of a file.
    const GROUPS: &'static [&'static str];

    /// Takes every key.
    fn take(reader: &mut Reader) -> Self;

    /// Reads and checks the groups of these messages. Other groups belong to other crates.
    ///
    /// # Errors
    /// Every [`MessagesFault`] that was found.
    fn read(table: &toml::Table) -> Result<Self, Vec<MessagesFault>> {
        let own = table.iter().filter(|(group, _)| Self::GROUPS.contains(&group.as_str()));
        let table = own.map(|(group, keys)| (group.clone(), keys.clone())).collect();
        let mut reader = Reader { table, faults: Vec::new() };
        let words = Self::take(&mut reader);
        reader.report_unknown();
        if reader.faults.is_empty() { Ok(words) } else { Err(reader.faults) }
    }
}

/// Takes texts from a parsed file and collects faults.
#[derive(Debug)]
pub struct Reader {
    table: toml::Table,
    faults: Vec<MessagesFault>,
}

impl Reader {
    /// Takes the text of a key, which must have exactly the expected placeholders. A fault is noted
    /// and gives an empty text.
    pub fn take(&mut self, group: &str, key: &str, expected: &[&str]) -> Box<str> {
        let name = || -> Box<str> { format!("{group}.{key}").into() };
        let value = self.table.get_mut(group).and_then(toml::Value::as_table_mut).and_then(|g| g.remove(key));
        let text = match value {
            None => {
                self.faults.push(MessagesFault::Missing(name()));
                return Box::default();
            }
            Some(toml::Value::String(text)) if !text.trim().is_empty() => text,
            Some(_) => {
                self.faults.push(MessagesFault::NotText(name()));
                return Box::default();
            }
        };
        let mut sorted = expected.to_vec();
        sorted.sort_unstable();
        if placeholders(&text) != sorted {
            let expected = match expected {
                [] => "none".into(),
                some => some.iter().map(|p| format!("{{{p}}}")).collect::<Vec<_>>().join(" "),
            };
            self.faults.push(MessagesFault::Placeholders { key: name(), expected: expected.into() });
        }
        text.into()
    }

    /// Reports keys that were not taken as unknown.
    fn report_unknown(&mut self) {
        for (group, value) in &self.table {
            match value.as_table() {
                Some(table) => {
                    let keys =
                        table.keys().map(|key| MessagesFault::Unknown(format!("{group}.{key}").into()));
                    self.faults.extend(keys);
                }
                None => self.faults.push(MessagesFault::Unknown(group.as_str().into())),
            }
        }
    }
}

/// Parses a file of messages.
pub(crate) fn parse(text: &str) -> Result<toml::Table, Vec<MessagesFault>> {
    let syntax = |error: toml::de::Error| MessagesFault::Syntax(error.to_string().trim_end().into());
    text.parse::<toml::Table>().map_err(|error| vec![syntax(error)])
}

/// The keys of a file with their placeholders, to compare languages in tests.
///
/// # Panics
/// When the text is not a file of messages.
pub fn keys(text: &str) -> Vec<(String, Vec<String>)> {
    let table = parse(text).unwrap_or_else(|faults| panic!("{faults:?}"));
    let keys = table.iter().flat_map(|(group, keys)| {
        keys.as_table().into_iter().flatten().map(move |(key, text)| {
            let places = placeholders(text.as_str().unwrap_or_default());
            (format!("{group}.{key}"), places.into_iter().map(ToOwned::to_owned).collect())
        })
    });
    keys.collect()
}

/// Defines the messages of a crate: groups of phrases, and patterns with their placeholders. The
/// type `Words` contains them all and implements [`messages::Words`](crate::messages::Words).
#[macro_export]
macro_rules! words {
    ($($group:ident: $type:ident { $($key:ident $(($($place:ident)+))?),* $(,)? })*) => {
        $(
            #[derive(Debug, Clone)]
            pub(crate) struct $type { $(pub(crate) $key: $crate::words!(@type $(($($place)+))?)),* }
        )*

        /// All messages of this crate in one language.
        #[derive(Debug, Clone)]
        pub(crate) struct Words { $(pub(crate) $group: $type),* }

        impl $crate::messages::Words for Words {
            const GROUPS: &'static [&'static str] = &[$(stringify!($group)),*];

            fn take(reader: &mut $crate::messages::Reader) -> Self {
                Self { $($group: $type { $(
                    $key: $crate::words!(@value reader.take(stringify!($group), stringify!($key), &[$($(stringify!($place)),+)?]), $(($($place)+))?)
                ),* }),* }
            }
        }
    };
    (@type) => { $crate::messages::Phrase };
    (@type ($($place:ident)+)) => { $crate::messages::Pattern };
    (@value $text:expr,) => { $crate::messages::Phrase::new($text) };
    (@value $text:expr, ($($place:ident)+)) => { $crate::messages::Pattern::new($text) };
}

#[cfg(test)]
mod tests {
    use super::Words as _;
    use super::*;

    crate::words! {
        common: CommonWords { back(client), signed_in(user) }
        login: LoginWords { lead(client), submit }
    }

    const ENGLISH: &str = r#"
[common]
back = "Back to {client}"
signed_in = "Signed in as {user}"
[login]
lead = "to continue to {client}"
submit = "Sign in"
"#;

    fn faults(text: &str) -> Vec<String> {
        Words::read(&parse(text).unwrap()).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sound_file_is_read_and_other_groups_are_left_alone() {
        let words = Words::read(&parse(&format!("{ENGLISH}[other]\nx = 1\n")).unwrap()).unwrap();
        assert_eq!(words.login.submit.as_str(), "Sign in");
        assert_eq!(words.login.lead.with("client", "x").plain(), "to continue to x");
        assert_eq!(words.common.back.with("client", "x").plain(), "Back to x");
        assert_eq!(words.common.signed_in.with("user", "u").plain(), "Signed in as u");
    }

    #[test]
    fn every_fault_of_a_file_is_told_with_its_key() {
        let file = ENGLISH
            .replace("submit = \"Sign in\"", "submit = 3")
            .replace("lead = \"to continue to {client}\"", "lead = \"continue to {app}\"")
            .replace("signed_in = ", "signedin = ");
        assert_eq!(
            faults(&file),
            [
                "key common.signed_in is missing",
                "key login.lead needs exactly these placeholders: {client}",
                "key login.submit is not a text, or is empty",
                "key common.signedin is unknown: keep the keys that `postern check --print-messages` shows",
            ]
        );
        assert!(matches!(parse("a =").unwrap_err()[..], [MessagesFault::Syntax(_)]));
    }

    #[test]
    fn values_are_escaped_isolated_and_never_read_as_placeholders() {
        let pattern = Pattern("<{a}> & {b} {".into());
        let filled = pattern.with("a", "<script>\"'").and("b", "{a}");
        assert_eq!(
            filled.to_string(),
            "&#60;<bdi>&#60;script&#62;&#34;&#39;</bdi>&#62; &#38; <bdi>{a}</bdi> {"
        );
        assert_eq!(filled.plain(), "<<script>\"'> & {a} {");
    }
}
