//! Language of a page.
//!
//! Owns: the set of languages ([`Languages`]) and the choice among them: `ui_locales` first (OpenID
//! Connect Core 1.0 §3.1.2.1), then `Accept-Language` (RFC 9110 §12.5.4), otherwise English. Each
//! is looked up by RFC 4647 §3.4.
//!
//! A language besides English and German, or other texts for one of these two, come from a file of
//! the operator. It contains the messages of every crate, and each crate reads its own.
//!
//! Does not own: the messages ([`crate::messages`]).

use crate::messages::{MessagesFault, parse};

/// The built-in languages.
const BUILTIN: [&str; 2] = ["en", "de"];

/// The group of a file that every file has, in the form of a file of messages.
pub const LANGUAGE_GROUP: &str = "[language]\ndirection = \"ltr\" # or \"rtl\"\n";

/// Most language ranges of one request that are considered.
const MAX_RANGES: usize = 32;

/// One language.
#[derive(Debug, Clone)]
pub struct Language {
    /// Position among the languages.
    index: usize,
    tag: Box<str>,
    direction: Direction,
    /// The operator's file; `None`: the built-in texts.
    file: Option<toml::Table>,
}

/// Direction of a language's script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    LeftToRight,
    RightToLeft,
}

impl Direction {
    /// The value of HTML's `dir`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::LeftToRight => "ltr",
            Self::RightToLeft => "rtl",
        }
    }
}

impl Language {
    /// The language tag (RFC 5646), for example `de` or `pt-BR`.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn file(&self) -> Option<&toml::Table> {
        self.file.as_ref()
    }
}

/// Reason why a language cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LanguageFault {
    /// The tag is not a language tag.
    #[error("{0:?} is not a language tag: use one like de or pt-BR")]
    Tag(Box<str>),
    /// The file of messages is not valid.
    #[error("words of language {tag}: {fault}")]
    Words {
        /// The language tag.
        tag: Box<str>,
        /// The fault in the file.
        fault: MessagesFault,
    },
}

impl LanguageFault {
    /// The tag of the language.
    pub fn tag(&self) -> &str {
        match self {
            Self::Tag(tag) | Self::Words { tag, .. } => tag,
        }
    }
}

/// All languages; English is always one of them.
#[derive(Debug, Clone)]
pub struct Languages {
    all: Vec<Language>,
}

impl Default for Languages {
    /// English and German.
    fn default() -> Self {
        let builtin = BUILTIN.iter().enumerate();
        let all = builtin.map(|(index, tag)| Language {
            index,
            tag: (*tag).into(),
            direction: Direction::LeftToRight,
            file: None,
        });
        Self { all: all.collect() }
    }
}

impl Languages {
    /// Adds a language, or replaces the texts of an existing one. `text` is a file of messages; the
    /// crates check the keys that they use.
    ///
    /// # Errors
    /// Every [`LanguageFault`] that was found.
    pub fn add(&mut self, tag: &str, text: &str) -> Result<(), Vec<LanguageFault>> {
        if !is_tag(tag) {
            return Err(vec![LanguageFault::Tag(tag.chars().take(40).collect())]);
        }
        let words = |fault| LanguageFault::Words { tag: tag.into(), fault };
        let file = parse(text).map_err(|faults| faults.into_iter().map(words).collect::<Vec<_>>())?;
        let direction = direction(&file).map_err(|fault| vec![words(fault)])?;
        let known = self.all.iter_mut().find(|l| l.tag.eq_ignore_ascii_case(tag));
        if let Some(known) = known {
            *known = Language { index: known.index, tag: tag.into(), direction, file: Some(file) };
        } else {
            let index = self.all.len();
            self.all.push(Language { index, tag: tag.into(), direction, file: Some(file) });
        }
        Ok(())
    }

    /// Groups in the operator's files that are not among these; `[language]` is known.
    pub fn unknown_groups(&self, known: &[&str]) -> Vec<LanguageFault> {
        let files = self.all.iter().filter_map(|language| Some((language, language.file.as_ref()?)));
        let groups = files.flat_map(|(language, file)| file.keys().map(move |group| (&language.tag, group)));
        let unknown = groups.filter(|(_, group)| *group != "language" && !known.contains(&group.as_str()));
        unknown
            .map(|(tag, group)| LanguageFault::Words {
                tag: tag.clone(),
                fault: MessagesFault::Unknown(group.as_str().into()),
            })
            .collect()
    }

    pub(crate) fn all(&self) -> &[Language] {
        &self.all
    }

    /// The tags of all languages, for `ui_locales_supported` (OpenID Connect Discovery 1.0 §3).
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(Language::tag)
    }

    /// Chooses the language for a request. Malformed ranges are ignored.
    pub fn choose(&self, ui_locales: Option<&str>, accept_language: Option<&str>) -> &Language {
        let from_client = ui_locales.unwrap_or_default().split(' ').take(MAX_RANGES);
        from_client
            .chain(accepted(accept_language.unwrap_or_default()))
            .find_map(|range| self.lookup(range))
            .unwrap_or(&self.all[0])
    }

    /// Lookup (RFC 4647 §3.4): shortens the range from the end until a language matches.
    fn lookup(&self, range: &str) -> Option<&Language> {
        let mut range = if is_tag(range) { range } else { return None };
        loop {
            if let Some(language) = self.all.iter().find(|l| l.tag.eq_ignore_ascii_case(range)) {
                return Some(language);
            }
            range = &range[..range.rfind('-')?];
            // A single letter belongs to the part that was removed.
            if range.len() > 2 && range.as_bytes()[range.len() - 2] == b'-' {
                range = &range[..range.len() - 2];
            }
        }
    }
}

/// Reads the group `[language]`.
fn direction(file: &toml::Table) -> Result<Direction, MessagesFault> {
    let Some(group) = file.get("language") else {
        return Err(MessagesFault::Missing("language.direction".into()));
    };
    let keys = group.as_table();
    if let Some(other) = keys.into_iter().flat_map(toml::Table::keys).find(|key| *key != "direction") {
        return Err(MessagesFault::Unknown(format!("language.{other}").into()));
    }
    match keys.and_then(|keys| keys.get("direction")).and_then(toml::Value::as_str) {
        Some("ltr") => Ok(Direction::LeftToRight),
        Some("rtl") => Ok(Direction::RightToLeft),
        _ => Err(MessagesFault::Direction),
    }
}

/// The ranges of an `Accept-Language` field, ordered by weight, without `q=0` and `*`.
fn accepted(field: &str) -> impl Iterator<Item = &str> {
    let mut ranges: Vec<(u16, &str)> = field
        .split(',')
        .take(MAX_RANGES)
        .filter_map(|item| {
            let (range, weight) = match item.split_once(';') {
                Some((range, parameter)) => (range, weight(parameter)?),
                None => (item, 1000),
            };
            (weight > 0).then_some((weight, range.trim_matches([' ', '\t'])))
        })
        .collect();
    // The sort is stable, so among equal weights the order of the field remains.
    ranges.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    ranges.into_iter().map(|(_, range)| range)
}

/// Parses `q=0.7` to thousandths (RFC 9110 §12.4.2).
fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let (whole, part) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    if part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{part:0<3}").parse().ok()?;
    match (whole, thousandths) {
        ("0", t) => Some(t),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

/// Whether a text has the format of a tag (RFC 5646 §2.1): parts of 1 to 8 letters and digits, the
/// first of 2 to 8 letters.
fn is_tag(tag: &str) -> bool {
    let mut parts = tag.split('-');
    let first = parts.next().unwrap_or_default();
    tag.len() <= 64
        && (2..=8).contains(&first.len())
        && first.bytes().all(|b| b.is_ascii_alphabetic())
        && parts.all(|p| (1..=8).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(ui: Option<&str>, accept: Option<&str>) -> String {
        Languages::default().choose(ui, accept).tag().to_owned()
    }

    #[test]
    fn the_client_decides_before_the_browser_and_english_when_nobody_does() {
        assert_eq!(choose(Some("de en"), Some("en")), "de");
        assert_eq!(choose(Some("fr de-AT"), Some("en")), "de");
        assert_eq!(choose(Some("fr"), Some("de")), "de");
        assert_eq!(choose(None, None), "en");
        assert_eq!(choose(Some("fr"), Some("ja, *")), "en");
    }

    #[test]
    fn ranges_are_shortened_until_one_fits() {
        assert_eq!(choose(Some("DE-de-1996"), None), "de");
        assert_eq!(choose(Some("de-CH-x-phonebk"), None), "de");
        assert_eq!(choose(Some("deu"), None), "en", "a different tag is a different language");
    }

    #[test]
    fn accept_language_is_sorted_by_weight_and_zero_means_no() {
        assert_eq!(choose(None, Some("en;q=0.4, de;q=0.9")), "de");
        assert_eq!(choose(None, Some("de;q=0, en;q=0.1")), "en");
        assert_eq!(choose(None, Some("de-DE,de;q=0.9,en;q=0.8")), "de");
        assert_eq!(choose(None, Some("en;q=1.5, de;q=0.1")), "de", "a malformed weight is no wish");
    }

    #[test]
    fn garbage_is_passed_over() {
        let long = "x-".repeat(10_000);
        for garbage in ["", "  ", "-", "de_DE", "<script>", "\u{202e}", ";;;", ",,,", "-de", "d", &long] {
            assert_eq!(choose(Some(garbage), Some(garbage)), "en", "{garbage:?}");
        }
    }

    #[test]
    fn a_file_states_the_direction_of_its_script() {
        let add = |text: &str| Languages::default().add("fr", text);
        for (text, fault) in [
            ("", MessagesFault::Missing("language.direction".into())),
            ("[language]\ndirection = \"down\"", MessagesFault::Direction),
            ("[language]", MessagesFault::Direction),
            ("[language]\ndirection = \"rtl\"\nx = 1", MessagesFault::Unknown("language.x".into())),
        ] {
            let expected = vec![LanguageFault::Words { tag: "fr".into(), fault }];
            assert_eq!(add(text).unwrap_err(), expected, "{text}");
        }
        let mut languages = Languages::default();
        languages.add("ar", "[language]\ndirection = \"rtl\"").unwrap();
        assert_eq!(languages.choose(Some("ar"), None).direction().as_str(), "rtl");
    }
}
