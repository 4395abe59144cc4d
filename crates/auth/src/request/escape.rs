//! Percent escapes (RFC 3986 §2.1), shared by path and query.

use super::Malformed;

/// The byte that the escape at `at` (where the `%` stands) encodes; `None` when there is no escape.
pub(super) fn byte(text: &[u8], at: usize) -> Option<u8> {
    match text.get(at..at + 3)? {
        [b'%', high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// The character that the run of escapes at `at` encodes in UTF-8, and the length of the run in
/// bytes. Every octet of it must be an escape, since raw bytes outside ASCII are refused.
pub(super) fn character(text: &[u8], at: usize) -> Result<(char, usize), Malformed> {
    let lead = byte(text, at).ok_or(Malformed::BadEscape)?;
    let octets = match lead {
        0x00..=0x7F => 1,
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return Err(Malformed::InvalidUtf8),
    };
    let mut utf8 = [0; 4];
    for (i, octet) in utf8[..octets].iter_mut().enumerate() {
        *octet = byte(text, at + 3 * i).ok_or(Malformed::InvalidUtf8)?;
    }
    let text = str::from_utf8(&utf8[..octets]).map_err(|_| Malformed::InvalidUtf8)?;
    text.chars().next().map(|c| (c, 3 * octets)).ok_or(Malformed::InvalidUtf8)
}

/// Appends a byte as `%XX`.
pub(super) fn push(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_is_a_percent_sign_and_two_digits() {
        assert_eq!(byte(b"%2f", 0), Some(b'/'));
        assert_eq!(byte(b"a%Fe", 1), Some(0xFE));
        for bad in [&b"%"[..], b"%2", b"%2g", b"%+1", b"%%2", b"2f%"] {
            assert_eq!(byte(bad, 0), None, "{bad:?}");
        }
    }

    #[test]
    fn a_character_is_shortest_form_and_complete() {
        assert_eq!(character(b"%C3%A4", 0), Ok(('ä', 6)));
        assert_eq!(character(b"%F0%9F%A6%80", 0), Ok(('🦀', 12)));
        for bad in ["%C0%AF", "%E0%80%AF", "%ED%A0%80", "%F5%80%80%80", "%80", "%C3", "%C3A4", "%C3%41"] {
            assert_eq!(character(bad.as_bytes(), 0), Err(Malformed::InvalidUtf8), "{bad}");
        }
    }
}
