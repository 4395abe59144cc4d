//! Path normalisation (RFC 3986 §6.2.2).
//!
//! There are two parsers for the same grammar. [`canonical`] handles paths that hold only plain
//! characters and slashes, and borrows them. At the first segment that holds anything else,
//! [`GeneralParser`] takes over, and copies only from the first difference on.
//!
//! What servers disagree on is neither repaired nor removed: empty segments, dot segments,
//! parameters, escapes of delimiters, escapes of escapes. A path that has any is
//! [ambiguous](Ambiguity): it keeps the spelling in which it was received, for forwarding, and all
//! its [readings](super::readings), for the decision. A trailing slash is an empty *last* segment:
//! it is significant, and no server merges it away.

use std::borrow::Cow;

use super::bytes::{Class, PLAIN, class, is_plain, is_unreserved, prefix_len};
use super::readings::Readings;
use super::{Malformed, escape};

/// How deep escapes may be nested (`%252541`) where one reading is required.
const MAX_NESTING: usize = 3;

/// A path in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path<'a> {
    text: Cow<'a, str>,
    ambiguity: Option<Box<Ambiguity<'a>>>,
}

/// What belongs to a path that servers may read in several ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ambiguity<'a> {
    /// The path as it was received.
    pub(super) received: Cow<'a, str>,
    /// Its readings besides the normal form.
    pub(super) readings: Readings,
    /// Why the path is refused where one reading is required; `None` when it differs only in what
    /// all but a few servers treat alike.
    pub(super) strict: Option<Malformed>,
}

impl Path<'_> {
    pub(super) const fn asterisk() -> Self {
        Self { text: Cow::Borrowed("*"), ambiguity: None }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The spelling to forward.
    pub(super) fn forwarded(&self) -> &str {
        self.ambiguity().map_or(&self.text, |ambiguity| &ambiguity.received)
    }

    /// `None` for a path with one reading, as nearly all are.
    pub(super) fn ambiguity(&self) -> Option<&Ambiguity<'_>> {
        self.ambiguity.as_deref()
    }

    pub(super) fn into_owned(self) -> Path<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Path {
            text: owned(self.text),
            ambiguity: self.ambiguity.map(|ambiguity| {
                let Ambiguity { received, readings, strict } = *ambiguity;
                Box::new(Ambiguity { received: owned(received), readings, strict })
            }),
        }
    }
}

impl<'a> Path<'a> {
    /// A path with this reading only, which must be in normal form.
    pub(super) const fn of_reading(text: &'a str) -> Self {
        Self { text: Cow::Borrowed(text), ambiguity: None }
    }

    pub(super) fn into_text(self) -> Cow<'a, str> {
        self.text
    }
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
            Class::Slash if is_plain_segment(&bytes[start..at], false) => start = at + 1,
            Class::End if is_plain_segment(&bytes[start..at], true) => {
                return Ok((Path { text: Cow::Borrowed(&target[..at]), ambiguity: None }, at));
            }
            _ => return GeneralParser::new(target).parse(start),
        }
        at += 1;
    }
}

/// Whether a segment is neither a dot segment nor an empty one before another.
fn is_plain_segment(name: &[u8], last: bool) -> bool {
    match name {
        [] => last,
        b"." | b".." => false,
        _ => true,
    }
}

/// The general parser, for paths with escapes, parameters, dot segments or empty segments.
struct GeneralParser<'a> {
    raw: &'a str,
    /// The normal form of `raw[..copied]`; empty until the first difference.
    out: String,
    copied: usize,
    segment: Segment,
    /// Whether anything was seen that may have other readings.
    may_have_readings: bool,
    /// The first thing that is refused where one reading is required.
    strict: Option<Malformed>,
    /// Whether an escaped `%` was seen: the path may be encoded more than once.
    has_escaped_percent: bool,
}

/// What was seen of the current segment.
#[derive(Default)]
struct Segment {
    /// Number of decoded characters, and of dots among them, in its name.
    name_chars: usize,
    dots: usize,
    /// Whether one of the dots was escaped.
    has_escaped_dot: bool,
    /// Whether its first `;` was passed.
    in_parameters: bool,
}

impl<'a> GeneralParser<'a> {
    fn new(raw: &'a str) -> Self {
        Self {
            raw,
            out: String::new(),
            copied: 0,
            segment: Segment::default(),
            may_have_readings: false,
            strict: None,
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
                    self.may_have_readings = true;
                    self.segment.in_parameters = true;
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
            self.may_have_readings = true;
            self.strict = self.strict.or(check_nested_escapes(text.as_bytes()).err());
        }
        let ambiguity = if self.may_have_readings {
            let readings = Readings::of(&text)?;
            let received = Cow::Borrowed(&self.raw[..at]);
            let strict = self.strict;
            (!readings.others.is_empty()).then(|| Box::new(Ambiguity { received, readings, strict }))
        } else {
            None
        };
        Ok((Path { text, ambiguity }, at))
    }

    /// Counts one character of the segment's name.
    fn count_character(&mut self, byte: u8) {
        if !self.segment.in_parameters {
            self.segment.name_chars += 1;
            self.segment.dots += usize::from(byte == b'.');
        }
    }

    fn end_segment(&mut self, last: bool) -> Result<(), Malformed> {
        let segment = std::mem::take(&mut self.segment);
        // Parameters without a name (`/;a/b`) leave an empty segment when a server removes them.
        if segment.name_chars == 0 && (!last || segment.in_parameters) {
            self.note_ambiguity(Malformed::EmptySegment);
        } else if segment.name_chars == segment.dots && matches!(segment.name_chars, 1 | 2) {
            // Some servers would resolve only the dot segments that are not escaped. Nobody escapes
            // a dot to be understood.
            if segment.has_escaped_dot {
                return Err(Malformed::DotSegment);
            }
            self.note_ambiguity(Malformed::DotSegment);
        }
        Ok(())
    }

    /// Notes something that servers disagree on.
    fn note_ambiguity(&mut self, fault: Malformed) {
        self.may_have_readings = true;
        self.strict.get_or_insert(fault);
    }

    /// Reads the escape at `at`; returns its length.
    fn escape(&mut self, at: usize) -> Result<usize, Malformed> {
        let bytes = self.raw.as_bytes();
        let byte = escape::byte(bytes, at).ok_or(Malformed::BadEscape)?;
        if is_unreserved(byte) {
            self.replace(at, 3, |out| out.push(char::from(byte)));
            self.count_character(byte);
            self.segment.has_escaped_dot |= byte == b'.' && !self.segment.in_parameters;
            return Ok(3);
        }
        let (character, length) = escape::character(bytes, at)?;
        if character.is_control() {
            return Err(Malformed::ForbiddenEscape);
        }
        if is_forbidden(byte) {
            self.note_ambiguity(Malformed::ForbiddenEscape);
        }
        self.has_escaped_percent |= byte == b'%';
        self.may_have_readings |= is_plain(byte);
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

/// Decodes a path repeatedly, as a chain of servers might, where one reading is required. Refuses
/// it when decoding reveals anything that is refused in plain form.
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
