//! Messages: the texts of the pages in one language.
//!
//! Owns: the keys (`Words`), reading and checking a file of messages, and inserting values into a
//! text. Does not own: the language of a page ([`super::language`]).
//!
//! The keys are fields: a template that names an unknown key does not compile, and the compiler
//! reports a key that no template uses. A key with placeholders is a `Pattern`, which cannot be
//! shown without its values.

use std::{
    borrow::Borrow,
    fmt::{self, Display, Write},
    time::Duration,
};

use auth::time::Timestamp;

use super::text::{Escaping, Shown};

/// Fault in a file of messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessagesFault {
    /// The file is not TOML; holds the position and the reason.
    #[error("not toml: {0}")]
    Syntax(Box<str>),
    /// A key of the English file is missing.
    #[error("key {0} is missing")]
    Missing(Box<str>),
    /// The English file does not have this key.
    #[error("key {0} is unknown: keep the keys of locales/en.toml")]
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
pub(crate) struct Phrase(Box<str>);

impl Phrase {
    /// Converts to a filled pattern without values.
    pub(crate) fn filled(&self) -> Filled<'_> {
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
pub(crate) struct Pattern(Box<str>);

impl Pattern {
    /// Fills in one placeholder.
    pub(crate) fn with(&self, name: &'static str, value: impl Display) -> Filled<'_> {
        Filled { pattern: &self.0, values: Vec::new() }.and(name, value)
    }
}

/// A pattern with its values. `Display` writes HTML: everything is escaped, and each value is
/// isolated (`bdi`), so that a name in another script or direction does not reorder the text around
/// it.
#[derive(Debug)]
pub(crate) struct Filled<'a> {
    pattern: &'a str,
    values: Vec<(&'static str, String)>,
}

impl Filled<'_> {
    /// Wraps a foreign text without a surrounding pattern.
    pub(crate) fn bare(text: &str) -> Self {
        Self { pattern: "{text}", values: vec![("text", text.to_owned())] }
    }

    /// Fills in one more placeholder.
    pub(crate) fn and(mut self, name: &'static str, value: impl Display) -> Self {
        self.values.push((name, value.to_string()));
        self
    }

    /// Plain text, for places that escape it later.
    pub(crate) fn plain(&self) -> String {
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

/// Takes texts from a parsed file and collects faults.
struct Reader {
    table: toml::Table,
    faults: Vec<MessagesFault>,
}

impl Reader {
    fn take(&mut self, group: &str, key: &str, expected: &[&str]) -> Box<str> {
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
    fn report_unknown(&mut self, groups: &[&str]) {
        for (group, value) in &self.table {
            match value.as_table().filter(|_| groups.contains(&group.as_str())) {
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

/// Defines the keys: groups of phrases, and patterns with their placeholders.
macro_rules! words {
    ($($group:ident: $type:ident { $($key:ident $(($($place:ident)+))?),* $(,)? })*) => {
        $(
            #[derive(Debug, Clone)]
            pub(crate) struct $type { $(pub(crate) $key: words!(@type $(($($place)+))?)),* }
        )*

        /// All messages of the pages in one language.
        #[derive(Debug, Clone)]
        pub(crate) struct Words { $(pub(crate) $group: $type),* }

        impl Words {
            fn take(reader: &mut Reader) -> Self {
                let words = Self { $($group: $type { $(
                    $key: words!(@value reader.take(stringify!($group), stringify!($key), &[$($(stringify!($place)),+)?]), $(($($place)+))?)
                ),* }),* };
                reader.report_unknown(&[$(stringify!($group)),*]);
                words
            }
        }
    };
    (@type) => { Phrase };
    (@type ($($place:ident)+)) => { Pattern };
    (@value $text:expr,) => { Phrase($text) };
    (@value $text:expr, ($($place:ident)+)) => { Pattern($text) };
}

words! {
    language: LanguageWords { direction }
    time: TimeWords { shown(day month year clock), jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec, second, seconds(count), minute,
        minutes(count), hour, hours(count) }
    common: CommonWords { back(client), signed_in(user) }
    login: LoginWords { title, lead(client), user, password, submit, wrong, too_many(wait), expired, incomplete }
    consent: ConsentWords { title, lead(client), asks, new, had, allow, deny, returns(host), note }
    scope: ScopeWords { openid, profile, email, address, phone, groups, offline_access, other(scope) }
    device: DeviceWords {
        title, lead, code, hint, next, unknown, expired, too_many(wait), confirm_title, confirm_lead(client), compare,
        warning, asks, allow, deny, done_title, done_text(client), denied_title, denied_text(client),
    }
    logout: LogoutWords { title, lead(user), lead_client(client user), submit, stay, done_title, done_text }
    form_post: FormPostWords { title, lead(client), submit }
    account: AccountWords {
        title, sign_out, sessions, sessions_none, this_session, last_seen(time), end, end_others, consents,
        consents_none, since(time), withdraw, withdraw_all, tokens, tokens_lead, tokens_none, issued(time),
        expires(time), revoke, revoke_all, passing, passing_lead, ends_with(browser time), password, current, fresh, fresh_hint(min), again, change, wrong_current, too_short(min),
        characters, too_common, differ, same, too_many(wait), did_change, did_end, did_end_others, did_withdraw,
        did_withdraw_all, did_revoke, did_revoke_all,
    }
    error: ErrorWords {
        bad_request_title, bad_request_text, unknown_client_title, unknown_client_text, redirect_title,
        redirect_text, no_logout_hint_text, expired_title, expired_text, form_title, form_text, denied_title, denied_text,
        not_found_title, not_found_text, too_many_title, too_many_text(wait), server_title, server_text,
        unavailable_title, unavailable_text, code, request,
    }
}

impl Words {
    /// Parses a file and reports every fault.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<MessagesFault>> {
        let table = text
            .parse::<toml::Table>()
            .map_err(|error| vec![MessagesFault::Syntax(error.to_string().trim_end().into())])?;
        let mut reader = Reader { table, faults: Vec::new() };
        let words = Self::take(&mut reader);
        if !matches!(&*words.language.direction.0, "ltr" | "rtl" | "") {
            reader.faults.push(MessagesFault::Direction);
        }
        if reader.faults.is_empty() { Ok(words) } else { Err(reader.faults) }
    }

    /// A waiting time in whole seconds, minutes or hours, rounded up.
    pub(crate) fn wait(&self, wait: Duration) -> String {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        let t = &self.time;
        let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1);
        let (unit, one, many) = match seconds {
            ..MINUTE => (1, &t.second, &t.seconds),
            MINUTE..HOUR => (MINUTE, &t.minute, &t.minutes),
            _ => (HOUR, &t.hour, &t.hours),
        };
        match seconds.div_ceil(unit) {
            1 => one.filled().plain(),
            count => many.with("count", count).plain(),
        }
    }

    /// A time with the precision of a minute, in UTC with its zone, and the month as a word. So it
    /// is unambiguous and needs no script that determines the reader's zone.
    pub(crate) fn time(&self, at: impl Borrow<Timestamp>) -> String {
        let at = at.borrow();
        let t = &self.time;
        let months =
            [&t.jan, &t.feb, &t.mar, &t.apr, &t.may, &t.jun, &t.jul, &t.aug, &t.sep, &t.oct, &t.nov, &t.dec];
        let minutes = at.as_secs() / 60;
        let (year, month, day) = civil(minutes / (24 * 60));
        let clock = format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
        t.shown.with("day", day).and("month", months[month]).and("year", year).and("clock", clock).plain()
    }
}

/// Converts days since 1970-01-01 to year, month (from 0) and day in the Gregorian calendar.
fn civil(days: u64) -> (u64, usize, u64) {
    // Counted from 0000-03-01: leap days end a year, and eras have 146 097 days.
    let days = days.saturating_add(719_468);
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    (year, usize::try_from((month + 2) % 12).unwrap_or(0), day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH: &str = include_str!("../../locales/en.toml");
    const GERMAN: &str = include_str!("../../locales/de.toml");

    #[test]
    fn english_and_german_have_the_same_keys_and_placeholders() {
        let flat = |text: &str| -> Vec<(String, Vec<String>)> {
            let table: toml::Table = text.parse().unwrap();
            let keys = table.iter().flat_map(|(group, keys)| {
                keys.as_table().unwrap().iter().map(move |(key, text)| {
                    let places = placeholders(text.as_str().unwrap());
                    (format!("{group}.{key}"), places.into_iter().map(ToOwned::to_owned).collect())
                })
            });
            keys.collect()
        };
        assert_eq!(flat(ENGLISH), flat(GERMAN));
        Words::parse(ENGLISH).unwrap();
        Words::parse(GERMAN).unwrap();
    }

    #[test]
    fn every_fault_of_a_file_is_told_with_its_key() {
        let file = ENGLISH
            .replace("submit = \"Sign in\"", "submit = 3")
            .replace("lead = \"to continue to {client}\"", "lead = \"continue to {app}\"")
            .replace("signed_in = ", "signedin = ")
            .replace("\"ltr\"", "\"down\"")
            + "\n[footer]\nx = \"y\"\n";
        let faults: Vec<_> = Words::parse(&file).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "key common.signed_in is missing",
                "key login.lead needs exactly these placeholders: {client}",
                "key login.submit is not a text, or is empty",
                "key common.signedin is unknown: keep the keys of locales/en.toml",
                "key footer is unknown: keep the keys of locales/en.toml",
                "key language.direction is neither ltr nor rtl",
            ]
        );
        assert!(matches!(Words::parse("a =").unwrap_err()[..], [MessagesFault::Syntax(_)]));
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

    #[test]
    fn a_wait_is_told_in_its_own_unit_and_never_too_short() {
        let (en, de) = (Words::parse(ENGLISH).unwrap(), Words::parse(GERMAN).unwrap());
        let told = |words: &Words, millis| words.wait(Duration::from_millis(millis)).replace('\u{a0}', " ");
        for (millis, english, german) in [
            (1, "1 second", "1 Sekunde"),
            (1001, "2 seconds", "2 Sekunden"),
            (10_000, "10 seconds", "10 Sekunden"),
            (59_001, "1 minute", "1 Minute"),
            (60_000, "1 minute", "1 Minute"),
            (60_001, "2 minutes", "2 Minuten"),
            (15 * 60_000, "15 minutes", "15 Minuten"),
            (60 * 60_000, "1 hour", "1 Stunde"),
            (61 * 60_000, "2 hours", "2 Stunden"),
            (24 * 60 * 60_000, "24 hours", "24 Stunden"),
        ] {
            assert_eq!((told(&en, millis), told(&de, millis)), (english.into(), german.into()), "{millis}");
        }
    }

    #[test]
    fn times_name_month_and_zone() {
        let (en, de) = (Words::parse(ENGLISH).unwrap(), Words::parse(GERMAN).unwrap());
        // Dates contain no-break spaces, so that no line breaks within a date or before its zone.
        let time = |words: &Words, secs| words.time(Timestamp::from_secs(secs)).replace('\u{a0}', " ");
        let shown = |secs| (time(&en, secs), time(&de, secs));
        assert_eq!(shown(0), ("1 Jan 1970, 00:00 UTC".into(), "1. Jan. 1970, 00:00 UTC".into()));
        assert_eq!(shown(1_709_251_199).0, "29 Feb 2024, 23:59 UTC");
        assert_eq!(shown(1_709_251_200).1, "1. März 2024, 00:00 UTC");
        assert_eq!(shown(4_107_542_400).0, "1 Mar 2100, 00:00 UTC", "2100 has no leap day");
        let _ = en.time(Timestamp::MAX);
    }
}
