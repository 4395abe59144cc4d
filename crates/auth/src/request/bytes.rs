//! Bytes of a target: what each means in a path, and which a query may hold (RFC 3986 §3.3, §3.4).

use super::Malformed;

/// Meaning of a byte in a path.
#[derive(Clone, Copy)]
pub(super) enum Class {
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
pub(super) const PLAIN: [bool; 256] = {
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

/// Whether a byte means the same raw and escaped (RFC 3986 §2.3).
pub(super) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Bytes that a query may hold: all but those that are refused raw.
pub(super) const ALLOWED_IN_QUERY: [bool; 256] = {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < set.len() {
        set[byte] = !matches!(CLASS[byte], Class::Refused(_));
        byte += 1;
    }
    set
};

/// Meaning of the byte at `at`; that of the end behind the text.
pub(super) fn class(text: &[u8], at: usize) -> Class {
    text.get(at).map_or(Class::End, |&byte| CLASS[usize::from(byte)])
}

/// Why a byte is allowed raw neither in a path nor in a query; `None` when it is.
pub(super) fn raw_refusal(byte: u8) -> Option<Malformed> {
    if let Class::Refused(fault) = CLASS[usize::from(byte)] { Some(fault) } else { None }
}

/// Number of bytes at the beginning of `text` that are in `set`.
pub(super) fn prefix_len(text: &[u8], set: &[bool; 256]) -> usize {
    text.iter().position(|&byte| !set[usize::from(byte)]).unwrap_or(text.len())
}
