//! Access log lines in two formats.
//!
//! Owns: field names and their order, escaping, the format of the time. Everything is appended to a
//! byte buffer without allocation.
//!
//! A record is always one line that shows its real content. Both formats escape control characters,
//! line and paragraph separators and bidirectional controls as `\u` sequences.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use auth::time::Timestamp;

use super::AccessRecord;
use crate::phases::push_millis;

/// Format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// One JSON object (RFC 8259) per line.
    #[default]
    Json,
    /// `key=value` pairs, values quoted where needed (logfmt).
    Text,
}

/// Maximum length of a field's text in bytes before escaping. A path may have 8 KiB; its beginning
/// suffices.
const MAX_FIELD: usize = 2048;

/// Appends lines in one format.
#[derive(Debug)]
pub(super) struct Formatter {
    style: Style,
    clock: Clock,
}

impl Formatter {
    pub(super) fn new(style: Style) -> Self {
        Self { style, clock: Clock::default() }
    }

    /// Appends `record` as one line, `\n` included.
    pub(super) fn append(&mut self, record: &AccessRecord<'_>, out: &mut Vec<u8>) {
        let time = self.clock.text(record.time);
        match self.style {
            Style::Json => write_fields(&mut Line::<JSON> { out }, time, record),
            Style::Text => write_fields(&mut Line::<TEXT> { out }, time, record),
        }
    }
}

/// A key with the punctuation around it, for both formats. Assembled at compile time, so that at
/// run time it is one copy of known length.
#[derive(Clone, Copy)]
struct Key {
    json: &'static str,
    text: &'static str,
}

macro_rules! key {
    ($name:literal) => {
        Key { json: concat!(",\"", $name, "\":"), text: concat!(" ", $name, "=") }
    };
}

const JSON: bool = true;
const TEXT: bool = false;

fn write_fields<const STYLE: bool>(line: &mut Line<'_, STYLE>, time: &str, record: &AccessRecord<'_>) {
    line.begin(time);
    line.untrusted(key!("listener"), record.listener);
    line.peer(key!("peer"), record.peer);
    if let Some(client) = record.client {
        line.address(key!("client"), client);
    }
    line.constant(key!("protocol"), record.protocol.as_str());
    if let Some(target) = &record.target {
        line.untrusted(key!("method"), target.method);
        line.untrusted(key!("host"), target.host);
        line.untrusted(key!("path"), target.path);
        if let Some(other) = target.other_path {
            line.untrusted(key!("other_path"), other);
        }
    }
    if record.status != 0 {
        line.number(key!("status"), record.status.into());
    }
    line.constant(key!("outcome"), record.outcome.as_str());
    if let Some(reason) = record.reason {
        line.untrusted(key!("reason"), reason);
    }
    if let Some(id) = record.request_id {
        line.constant(key!("request_id"), id.hex().as_str());
    }
    if let Some(fault) = record.upstream_fault {
        line.untrusted(key!("upstream_fault"), fault);
    }
    if let Some(route) = record.route {
        line.untrusted(key!("route"), route);
    }
    if let Some(identity) = record.identity {
        line.untrusted(key!("subject"), &identity.subject);
        if let Some(user) = &identity.user {
            line.untrusted(key!("user"), user);
        }
        line.untrusted(key!("issuer"), &identity.issuer);
    }
    if let Some(forwarded) = &record.forwarded {
        line.untrusted(key!("upstream"), forwarded.upstream);
        line.untrusted(key!("endpoint"), forwarded.endpoint);
        line.millis(key!("upstream_ms"), forwarded.duration_nanos);
        if forwarded.retries > 0 {
            line.number(key!("retries"), forwarded.retries.into());
        }
    }
    line.number(key!("bytes_in"), record.bytes_in);
    line.number(key!("bytes_out"), record.bytes_out);
    line.millis(key!("duration_ms"), record.total_nanos);
    if let Some(cache) = record.cache_result {
        line.constant(key!("cache"), cache.as_str());
    }
    if let Some(trace) = record.trace {
        line.constant(key!("trace"), trace.hex().as_str());
    }
    line.end();
}

/// A line in the format given by its type.
struct Line<'o, const STYLE: bool> {
    out: &'o mut Vec<u8>,
}

impl<const STYLE: bool> Line<'_, STYLE> {
    #[inline]
    fn key(&mut self, key: Key) {
        let text = if STYLE == JSON { key.json } else { key.text };
        self.out.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn quote(&mut self) {
        if STYLE == JSON {
            self.out.push(b'"');
        }
    }

    fn begin(&mut self, time: &str) {
        let begin = if STYLE == JSON { "{\"time\":\"" } else { "time=" };
        self.out.extend_from_slice(begin.as_bytes());
        self.out.extend_from_slice(time.as_bytes());
        self.quote();
    }

    /// A constant of this program: it needs no quotes or escapes.
    #[inline]
    fn constant(&mut self, key: Key, word: &str) {
        self.key(key);
        self.quote();
        self.out.extend_from_slice(word.as_bytes());
        self.quote();
    }

    #[inline]
    fn number(&mut self, key: Key, n: u64) {
        self.key(key);
        self.out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    }

    #[inline]
    fn millis(&mut self, key: Key, nanos: u64) {
        self.key(key);
        push_millis(self.out, nanos);
    }

    fn address(&mut self, key: Key, address: IpAddr) {
        self.key(key);
        self.quote();
        // writing to a vector cannot fail
        drop(write!(self.out, "{address}"));
        self.quote();
    }

    fn peer(&mut self, key: Key, peer: SocketAddr) {
        self.key(key);
        self.quote();
        match peer {
            // by hand: the formatter's padding costs more than the rest of the line
            SocketAddr::V4(peer) => {
                let mut digits = itoa::Buffer::new();
                for (i, octet) in peer.ip().octets().into_iter().enumerate() {
                    if i > 0 {
                        self.out.push(b'.');
                    }
                    self.out.extend_from_slice(digits.format(octet).as_bytes());
                }
                self.out.push(b':');
                self.out.extend_from_slice(digits.format(peer.port()).as_bytes());
            }
            // writing to a vector cannot fail
            SocketAddr::V6(_) => drop(write!(self.out, "{peer}")),
        }
        self.quote();
    }

    /// A text that may come from a peer.
    #[inline]
    fn untrusted(&mut self, key: Key, text: &str) {
        self.key(key);
        if text.len() <= MAX_FIELD && !text.is_empty() && is_plain::<STYLE>(text) {
            self.quote();
            self.out.extend_from_slice(text.as_bytes());
            self.quote();
        } else {
            self.escaped(text);
        }
    }

    #[cold]
    fn escaped(&mut self, text: &str) {
        let shown = clip(text, MAX_FIELD);
        self.out.push(b'"');
        escape(shown, self.out);
        if shown.len() < text.len() {
            self.out.extend_from_slice("…".as_bytes());
        }
        self.out.push(b'"');
    }

    fn end(&mut self) {
        self.out.extend_from_slice(if STYLE == JSON { b"}\n" } else { b"\n" });
    }
}

/// At most `longest` bytes of `text`, cut between characters.
fn clip(text: &str, longest: usize) -> &str {
    if text.len() <= longest { text } else { &text[..text.floor_char_boundary(longest)] }
}

/// Whether `text` needs no escaping, and in the text format no quotes: nearly always true. Checks
/// all bytes without an early exit, so that the compiler processes 16 bytes at a time.
#[expect(clippy::needless_bitwise_bool, reason = "branches would keep the loop from being vectorised")]
#[inline]
fn is_plain<const STYLE: bool>(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| {
        let printable = (b' '..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\');
        plain & printable & ((STYLE == JSON) | ((byte != b' ') & (byte != b'=')))
    })
}

/// Appends the content of a JSON string (RFC 8259 §7).
fn escape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    // sequences that need no escaping are copied at once; nearly always that is the whole text
    while let Some(at) =
        rest.bytes().position(|byte| !(b' '..0x7f).contains(&byte) || matches!(byte, b'"' | b'\\'))
    {
        let (run, special) = rest.split_at(at);
        out.extend_from_slice(run.as_bytes());
        let mut chars = special.chars();
        if let Some(c) = chars.next() {
            escape_char(c, out);
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
}

fn escape_char(c: char, out: &mut Vec<u8>) {
    match c {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        c if c.is_control() || is_deceptive(c) => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let nibble = |shift: u32| HEX[usize::from((*unit >> shift) & 0xf)];
                out.extend_from_slice(&[b'\\', b'u', nibble(12), nibble(8), nibble(4), nibble(0)]);
            }
        }
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Characters that some readers treat as line ends, that are invisible, or that change the display
/// order.
const fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Formats times as RFC 3339 in UTC with milliseconds. Caches the last second, because most lines
/// differ only in milliseconds.
#[derive(Debug, Default)]
struct Clock {
    second: Option<u64>,
    text: String,
}

impl Clock {
    /// Such as `2026-11-21T05:10:11.123Z`. Years after 9999 show as the last instant of 9999.
    fn text(&mut self, time: Timestamp) -> &str {
        let millis = time.as_millis().min(253_402_300_799_999);
        let second = millis / 1000;
        if self.second != Some(second) {
            self.second = Some(second);
            self.render(second);
        }
        self.text.truncate(20);
        push_padded(&mut self.text, millis % 1000, 3);
        self.text.push('Z');
        &self.text
    }

    fn render(&mut self, second: u64) {
        let (year, month, day) = Timestamp::from_secs(second).date();
        let of_day = second % 86_400;
        self.text.clear();
        for (n, width, after) in [
            (year, 4, '-'),
            (month, 2, '-'),
            (day, 2, 'T'),
            (of_day / 3600, 2, ':'),
            (of_day / 60 % 60, 2, ':'),
            (of_day % 60, 2, '.'),
        ] {
            push_padded(&mut self.text, n, width);
            self.text.push(after);
        }
    }
}

fn push_padded(out: &mut String, n: u64, width: u32) {
    for place in (0..width).rev() {
        let digit = n / 10u64.pow(place) % 10;
        out.push(char::from(b'0' + u8::try_from(digit).unwrap_or(0)));
    }
}

#[cfg(test)]
mod tests;
