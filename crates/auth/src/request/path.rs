//! Path normalisation (RFC 3986 §6.2.2); paths on which servers are known to disagree are refused.
//!
//! There are two parsers for the same grammar. [`canonical`] handles paths that hold only plain
//! characters and slashes, and borrows them. At the first segment that holds anything else,
//! [`GeneralParser`] takes over, and copies only from the first difference on.
//!
//! Dot segments and empty segments are refused, not repaired. Upstreams remove or merge them, each
//! in its own order (`/a//../b`), so the path authorized here would not be the path served there. A
//! trailing slash is an empty *last* segment and stays: it is significant, and no server merges it
//! away.

use std::borrow::Cow;

use super::{Malformed, escape};

/// How deep escapes may be nested (`%252541`) before the path is refused unread.
const MAX_NESTING: usize = 3;

/// A path in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path<'a> {
    text: Cow<'a, str>,
    has_readings: bool,
}

impl Path<'_> {
    pub(super) const fn asterisk() -> Self {
        Self { text: Cow::Borrowed("*"), has_readings: false }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether servers could read the path in other ways too ([`super::readings`]).
    pub(super) const fn has_readings(&self) -> bool {
        self.has_readings
    }

    pub(super) fn into_owned(self) -> Path<'static> {
        Path { text: Cow::Owned(self.text.into_owned()), has_readings: self.has_readings }
    }
}

impl<'a> Path<'a> {
    pub(super) fn into_text(self) -> Cow<'a, str> {
        self.text
    }
}

/// Meaning of a byte in a path.
#[derive(Clone, Copy)]
enum Class {
    /// The byte stands for itself: unreserved, sub-delimiters without `;`, `:` and `@` (RFC 3986
    /// §3.3).
    Plain,
    /// The separator `/`.
    Slash,
    /// A `?`, or the end of the text.
    End,
    /// A `;`, which begins parameters.
    Semicolon,
    /// A `%`, which begins an escape.
    Percent,
    /// Printable and not in the grammar, but sent raw by browsers: replaced by its escape.
    Escape,
    /// Never allowed raw in a target.
    Refused(Malformed),
}

const CLASS: [Class; 256] = {
    let mut table = [Class::Plain; 256];
    let mut byte: u8 = 0;
    loop {
        table[byte as usize] = match byte {
            b'/' => Class::Slash,
            b'?' => Class::End,
            b';' => Class::Semicolon,
            b'%' => Class::Percent,
            b'#' => Class::Refused(Malformed::Fragment),
            b'\\' => Class::Refused(Malformed::Backslash),
            b'"' | b'<' | b'>' | b'[' | b']' | b'^' | b'`' | b'{' | b'|' | b'}' => Class::Escape,
            0..=b' ' | 0x7F => Class::Refused(Malformed::Control),
            0x80.. => Class::Refused(Malformed::NonAscii),
            _ => Class::Plain,
        };
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

/// Bytes that stand for themselves within a segment of a path.
const PLAIN: [bool; 256] = {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < set.len() {
        set[byte] = matches!(CLASS[byte], Class::Plain);
        byte += 1;
    }
    set
};

/// Whether a byte stands for itself in a path.
pub(super) fn is_plain(byte: u8) -> bool {
    PLAIN[usize::from(byte)]
}

/// Bytes that stand for themselves in a query: all but `%` and those that are refused raw.
pub(super) const PLAIN_IN_QUERY: [bool; 256] = {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < set.len() {
        set[byte] = !matches!(CLASS[byte], Class::Percent | Class::Refused(_));
        byte += 1;
    }
    set
};

fn class(text: &[u8], at: usize) -> Class {
    text.get(at).map_or(Class::End, |&byte| CLASS[usize::from(byte)])
}

/// Why a byte is allowed raw neither in a path nor in a query; `None` when it is.
pub(super) fn raw_refusal(byte: u8) -> Option<Malformed> {
    if let Class::Refused(fault) = CLASS[usize::from(byte)] { Some(fault) } else { None }
}

/// The normal path at the beginning of `target`, and where it ends: at the first `?`, or at the
/// end.
pub(super) fn canonical(target: &str) -> Result<(Path<'_>, usize), Malformed> {
    let bytes = target.as_bytes();
    match bytes {
        [b'/', b'/', ..] => return Err(Malformed::AuthorityTarget),
        [b'/', ..] => {}
        _ => return Err(Malformed::TargetForm),
    }
    let (mut start, mut at) = (1, 1);
    loop {
        at += prefix_len(&bytes[at..], &PLAIN);
        match class(bytes, at) {
            Class::Slash => {
                check_segment(&bytes[start..at], false)?;
                start = at + 1;
            }
            Class::End => {
                check_segment(&bytes[start..at], true)?;
                return Ok((Path { text: Cow::Borrowed(&target[..at]), has_readings: false }, at));
            }
            _ => return GeneralParser::new(target).parse(start),
        }
        at += 1;
    }
}

/// Number of bytes at the beginning of `text` that are in `set`.
pub(super) fn prefix_len(text: &[u8], set: &[bool; 256]) -> usize {
    text.iter().position(|&byte| !set[usize::from(byte)]).unwrap_or(text.len())
}

/// Checks the decoded name of a segment, without its parameters.
fn check_segment(name: &[u8], last: bool) -> Result<(), Malformed> {
    match name {
        [] if !last => Err(Malformed::EmptySegment),
        b"." | b".." => Err(Malformed::DotSegment),
        _ => Ok(()),
    }
}

/// The general parser, for paths with escapes or parameters.
struct GeneralParser<'a> {
    raw: &'a str,
    /// The normal form of `raw[..copied]`; empty until the first difference.
    out: String,
    copied: usize,
    /// Number of decoded characters, and of dots among them, in the name of the current segment.
    name_chars: usize,
    dots: usize,
    /// Whether the first `;` of the current segment was passed.
    in_parameters: bool,
    /// Whether parameters, or an escape of a character that may stand raw, were seen.
    readings: bool,
    /// Whether an escaped `%` was seen: the path may be encoded more than once.
    has_escaped_percent: bool,
}

impl<'a> GeneralParser<'a> {
    const fn new(raw: &'a str) -> Self {
        let out = String::new();
        let (copied, name, dots) = (0, 0, 0);
        Self {
            raw,
            out,
            copied,
            name_chars: name,
            dots,
            in_parameters: false,
            readings: false,
            has_escaped_percent: false,
        }
    }

    /// Parses from `at`, the first byte of a segment.
    fn parse(mut self, mut at: usize) -> Result<(Path<'a>, usize), Malformed> {
        let bytes = self.raw.as_bytes();
        loop {
            let mut step = 1;
            match class(bytes, at) {
                Class::Plain => self.count_character(bytes[at]),
                Class::Slash => self.end_segment(false)?,
                Class::End => break self.end_segment(true)?,
                Class::Semicolon => {
                    self.readings = true;
                    self.in_parameters = true;
                }
                Class::Percent => step = self.escape(at)?,
                Class::Escape => {
                    self.replace(at, 1, |out| escape::push(out, bytes[at]));
                    self.count_character(bytes[at]);
                }
                Class::Refused(fault) => return Err(fault),
            }
            at += step;
        }
        let text = if self.copied == 0 {
            Cow::Borrowed(&self.raw[..at])
        } else {
            self.out.push_str(&self.raw[self.copied..at]);
            Cow::Owned(self.out)
        };
        if self.has_escaped_percent {
            check_nested_escapes(text.as_bytes())?;
        }
        Ok((Path { text, has_readings: self.readings }, at))
    }

    /// Counts one character of the segment's name.
    fn count_character(&mut self, byte: u8) {
        if !self.in_parameters {
            self.name_chars += 1;
            self.dots += usize::from(byte == b'.');
        }
    }

    fn end_segment(&mut self, last: bool) -> Result<(), Malformed> {
        // Parameters without a name (`/;a/b`) leave an empty segment when a server removes them.
        if self.name_chars == 0 && (!last || self.in_parameters) {
            return Err(Malformed::EmptySegment);
        }
        if self.name_chars == self.dots && matches!(self.name_chars, 1 | 2) {
            return Err(Malformed::DotSegment);
        }
        (self.name_chars, self.dots, self.in_parameters) = (0, 0, false);
        Ok(())
    }

    /// Reads the escape at `at`; returns its length.
    fn escape(&mut self, at: usize) -> Result<usize, Malformed> {
        let bytes = self.raw.as_bytes();
        let byte = escape::byte(bytes, at).ok_or(Malformed::BadEscape)?;
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            self.replace(at, 3, |out| out.push(char::from(byte)));
            self.count_character(byte);
            return Ok(3);
        }
        let (character, length) = escape::character(bytes, at)?;
        if is_forbidden(byte) || character.is_control() {
            return Err(Malformed::ForbiddenEscape);
        }
        self.has_escaped_percent |= byte == b'%';
        self.readings |= is_plain(byte);
        self.count_character(byte);
        for start in (at..at + length).step_by(3) {
            if bytes[start + 1..start + 3].iter().any(u8::is_ascii_lowercase) {
                let raw = self.raw;
                self.replace(start, 3, |out| out.push_str(&raw[start..start + 3].to_ascii_uppercase()));
            }
        }
        Ok(length)
    }

    /// Replaces `length` bytes at `at`. `at` is never 0, where the `/` is: `copied == 0` means that
    /// there is no difference yet.
    fn replace(&mut self, at: usize, length: usize, write: impl FnOnce(&mut String)) {
        if self.copied == 0 {
            self.out.reserve(self.raw.len() + 16);
        }
        self.out.push_str(&self.raw[self.copied..at]);
        write(&mut self.out);
        self.copied = at + length;
    }
}

/// Whether an escape of this byte hides a delimiter from one server that another one sees.
fn is_forbidden(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\' | b';' | b'?' | b'#' | 0..=0x1F | 0x7F)
}

/// Decodes a path repeatedly, as a chain of servers might. Refuses it when decoding reveals
/// anything that is refused in plain form.
fn check_nested_escapes(path: &[u8]) -> Result<(), Malformed> {
    let mut text = path.to_vec();
    // The first round decodes what the parser has checked already; the others decode nested
    // escapes.
    for _ in 0..=MAX_NESTING {
        let mut decoded = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            if let Some(byte) = escape::byte(&text, at) {
                if is_forbidden(byte) {
                    return Err(Malformed::NestedEscape);
                }
                decoded.push(byte);
                at += 3;
            } else {
                decoded.push(text[at]);
                at += 1;
            }
        }
        let names = decoded.split(|&b| b == b'/').map(|s| s.split(|&b| b == b';').next().unwrap_or(s));
        if names.into_iter().any(|name| matches!(name, b"." | b"..")) {
            return Err(Malformed::NestedEscape);
        }
        if decoded.len() == text.len() {
            return Ok(());
        }
        text = decoded;
    }
    Err(Malformed::NestedEscape)
}
