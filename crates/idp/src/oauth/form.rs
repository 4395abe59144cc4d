//! Strict parser of `application/x-www-form-urlencoded` (RFC 6749 appendix B).
//!
//! Owns: decoding bytes to pairs. It refuses everything that two parsers could interpret
//! differently: bad percent-escapes, raw controls and non-ASCII bytes, invalid UTF-8, and
//! repeated parameters (RFC 6749 §3.1 and §3.2).
//!
//! Does not own: the meaning of parameters, except that [`REPEATABLE`] ones may occur repeatedly.

use std::fmt;

/// Most parameters of one request.
pub const MAX_PARAMETERS: usize = 64;

/// Parameters that may occur repeatedly: `resource` (RFC 8707 §2) and `audience` (RFC 8693 §2.1).
pub const REPEATABLE: [&str; 2] = ["resource", "audience"];

/// Reason why bytes are not a valid form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormFault {
    /// A `%` is not followed by two hexadecimal digits.
    #[error("a percent sign is not followed by two hexadecimal digits")]
    Escape,
    /// A byte must be percent-encoded: a control or a non-ASCII byte.
    #[error("a raw control character or non-ASCII byte: percent-encode it")]
    RawByte,
    /// The decoded text is not UTF-8.
    #[error("a name or value is not UTF-8")]
    Utf8,
    /// The decoded text has a control character other than tab.
    #[error("a name or value has a control character")]
    Control,
    /// A pair has no name.
    #[error("a parameter has no name")]
    NoName,
    /// There are more than [`MAX_PARAMETERS`] parameters.
    #[error("more than {MAX_PARAMETERS} parameters")]
    TooMany,
    /// A parameter that is not [`REPEATABLE`] occurs twice; holds the first 64 characters of its
    /// name.
    #[error("parameter {0:?} was sent more than once")]
    Duplicate(Box<str>),
}

/// A parsed form: decoded pairs in the order sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Form {
    pairs: Vec<(String, String)>,
}

impl Form {
    /// Parses a whole body. Empty pieces between `&` are skipped, as HTML's parser does; a piece
    /// without `=` is a parameter with an empty value.
    ///
    /// # Errors
    /// [`FormFault`] when the body is not a valid form.
    pub fn parse(body: &[u8]) -> Result<Self, FormFault> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for piece in body.split(|&b| b == b'&').filter(|p| !p.is_empty()) {
            if pairs.len() == MAX_PARAMETERS {
                return Err(FormFault::TooMany);
            }
            let at = piece.iter().position(|&b| b == b'=');
            let (name, value) = at.map_or((piece, &[][..]), |at| (&piece[..at], &piece[at + 1..]));
            let (name, value) = (decode(name)?, decode(value)?);
            if name.is_empty() {
                return Err(FormFault::NoName);
            }
            if !REPEATABLE.contains(&name.as_str()) && pairs.iter().any(|(n, _)| *n == name) {
                return Err(FormFault::Duplicate(name.chars().take(64).collect()));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    /// The value of a parameter. A parameter with an empty value counts as absent (RFC 6749 §3.2).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// Whether a parameter was sent, perhaps with an empty value.
    pub fn contains(&self, name: &str) -> bool {
        self.pairs.iter().any(|(n, _)| n == name)
    }

    /// The parameters as an escaped query.
    pub fn to_query(&self) -> String {
        let mut query = String::new();
        for (name, value) in &self.pairs {
            if !query.is_empty() {
                query.push('&');
            }
            escape(name, &mut query);
            query.push('=');
            escape(value, &mut query);
        }
        query
    }

    /// A copy without the named parameters.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        let kept = |(name, _): &&(String, String)| !names.contains(&name.as_str());
        Self { pairs: self.pairs.iter().filter(kept).cloned().collect() }
    }

    /// All non-empty values of a repeatable parameter, in the order sent.
    pub fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }
}

/// Prints only names: values may be secrets.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.pairs.iter().map(|(name, _)| name)).finish()
    }
}

/// Decodes one form-encoded name or value (`+` is a space). HTTP Basic credentials of clients have
/// the same encoding (RFC 6749 §2.3.1).
///
/// # Errors
/// [`FormFault`] when the encoding is not valid.
pub fn decode(encoded: &[u8]) -> Result<String, FormFault> {
    // Most values are tokens without `%` and `+`. This check is free of branches per byte.
    let plain = |byte: u8| matches!(byte, 0x21..=0x24 | 0x26..=0x2a | 0x2c..=0x7e);
    if encoded.iter().fold(true, |all, &byte| all & plain(byte)) {
        return str::from_utf8(encoded).map(str::to_owned).map_err(|_| FormFault::Utf8);
    }
    let mut out = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let high = bytes.next().and_then(hex).ok_or(FormFault::Escape)?;
                let low = bytes.next().and_then(hex).ok_or(FormFault::Escape)?;
                high << 4 | low
            }
            // Some clients write a space as itself, which has one meaning.
            b'+' => b' ',
            0x20..=0x7e => byte,
            _ => return Err(FormFault::RawByte),
        });
    }
    let text = String::from_utf8(out).map_err(|_| FormFault::Utf8)?;
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Err(FormFault::Control);
    }
    Ok(text)
}

/// Escapes all except unreserved characters (RFC 3986 §2.3), so the text is valid in a form and in
/// a URI.
pub(crate) fn escape(value: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_names_and_values() {
        let form = Form::parse(b"a=1&b%5f=x+y%2B&flag&&c=%C3%A9&e=&d==&").unwrap();
        assert_eq!(form.get("a"), Some("1"));
        assert_eq!(form.get("b_"), Some("x y+"));
        assert_eq!(form.get("c"), Some("é"));
        assert_eq!(form.get("d"), Some("="));
        assert_eq!(form.get("e"), None, "an empty value counts as not sent");
        assert_eq!(form.get("flag"), None);
        assert_eq!(form.get("missing"), None);
        assert_eq!(Form::parse(b"").unwrap().get("a"), None);
        assert_eq!(Form::parse(b"scope=openid profile&x=1").unwrap().get("scope"), Some("openid profile"));
    }

    #[test]
    fn refuses_what_readers_could_disagree_about() {
        for (body, fault) in [
            (&b"a=%"[..], FormFault::Escape),
            (b"a=%2", FormFault::Escape),
            (b"a=%2g", FormFault::Escape),
            (b"a=%+1", FormFault::Escape),
            (b"%zz=1", FormFault::Escape),
            (b"a=1\n", FormFault::RawByte),
            (b"a=\xc3\xa9", FormFault::RawByte),
            (b"a=\x7f", FormFault::RawByte),
            (b"a=%ff", FormFault::Utf8),
            (b"a=%C0%AF", FormFault::Utf8),
            (b"a=%00", FormFault::Control),
            (b"a=x%0d%0ay", FormFault::Control),
            (b"a=%C2%85", FormFault::Control),
            (b"=1", FormFault::NoName),
            (b"=", FormFault::NoName),
            (b"a=1&a=1", FormFault::Duplicate("a".into())),
            (b"a=1&%61=2", FormFault::Duplicate("a".into())),
            (b"a=&a=2", FormFault::Duplicate("a".into())),
            (b"Resource=1&Resource=2", FormFault::Duplicate("Resource".into())),
        ] {
            assert_eq!(Form::parse(body), Err(fault), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn resource_and_audience_may_repeat() {
        let form = Form::parse(b"resource=a&resource=&resource=b&audience=c&audience=c").unwrap();
        assert_eq!(form.all("resource").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(form.all("audience").collect::<Vec<_>>(), ["c", "c"]);
    }

    #[test]
    fn a_form_is_written_as_it_was_read() {
        let form = Form::parse(b"a=1+%2B&b=%C3%A9%26&resource=x&resource=y&secret=s").unwrap();
        assert_eq!(Form::parse(form.to_query().as_bytes()).as_ref(), Ok(&form));
        assert_eq!(form.without(&["secret"]).to_query(), "a=1%20%2B&b=%C3%A9%26&resource=x&resource=y");
    }

    #[test]
    fn counts_parameters() {
        let body = |n: usize| (0..n).map(|i| format!("p{i}=1")).collect::<Vec<_>>().join("&");
        assert!(Form::parse(body(MAX_PARAMETERS).as_bytes()).is_ok());
        assert_eq!(Form::parse(body(MAX_PARAMETERS + 1).as_bytes()), Err(FormFault::TooMany));
    }

    #[test]
    fn a_long_duplicate_name_is_cut() {
        let name = "%C3%A9".repeat(100);
        let Err(FormFault::Duplicate(kept)) = Form::parse(format!("{name}=1&{name}=2").as_bytes()) else {
            panic!("accepted");
        };
        assert_eq!(kept.chars().count(), 64);
    }

    #[test]
    fn debug_shows_no_value() {
        let form = Form::parse(b"client_secret=hunter2").unwrap();
        assert_eq!(format!("{form:?}"), r#"{"client_secret"}"#);
    }
}
