//! URLs: resolution of references between pages, and the form encoding.
//!
//! Owns: the destination of a redirect or a form, and decoding of names and values. Does not own:
//! the network address of the target.

use std::fmt::Write as _;

/// Destination of a redirect or a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leads {
    /// A path, with its query, of the provider.
    Provider(String),
    /// The redirect URI of the client; holds the query.
    Client(String),
    /// An address outside the provider.
    Elsewhere,
}

/// Resolves `reference` on the page at `path` of `origin`.
pub(crate) fn resolve(origin: &str, redirect_uri: &str, path: &str, reference: &str) -> Leads {
    let reference = reference.split('#').next().unwrap_or_default().trim();
    if let Some(rest) = reference.strip_prefix(redirect_uri)
        && (rest.is_empty() || rest.starts_with('?') || redirect_uri.contains('?') && rest.starts_with('&'))
    {
        return Leads::Client(rest.trim_start_matches(['?', '&']).to_owned());
    }
    if let Some(rest) = reference.strip_prefix(origin) {
        return match rest.as_bytes().first() {
            None => Leads::Provider("/".to_owned()),
            Some(b'/') => Leads::Provider(rest.to_owned()),
            Some(b'?') => Leads::Provider(format!("/{rest}")),
            Some(_) => Leads::Elsewhere,
        };
    }
    let place = path.split('?').next().unwrap_or_default();
    let scheme_end = reference.find(':').unwrap_or(usize::MAX);
    let has_scheme = scheme_end < reference.find(['/', '?']).unwrap_or(usize::MAX);
    if reference.starts_with("//") || has_scheme {
        Leads::Elsewhere
    } else if reference.is_empty() {
        Leads::Provider(path.to_owned())
    } else if reference.starts_with('/') {
        Leads::Provider(reference.to_owned())
    } else if reference.starts_with('?') {
        Leads::Provider(format!("{place}{reference}"))
    } else {
        let folder = place.rfind('/').map_or("", |last| &place[..last]);
        Leads::Provider(join_relative(folder, reference))
    }
}

/// Joins a directory and a relative path, which may begin with `./` and `../`.
fn join_relative(folder: &str, relative: &str) -> String {
    let (mut folder, mut rest) = (folder, relative);
    loop {
        if let Some(after) = rest.strip_prefix("./") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("../") {
            folder = folder.rfind('/').map_or("", |last| &folder[..last]);
            rest = after;
        } else {
            return format!("{folder}/{rest}");
        }
    }
}

/// Names and values in the form encoding (`application/x-www-form-urlencoded`).
#[derive(Debug, Default)]
pub(crate) struct FormEncoded(String);

impl FormEncoded {
    /// Adds a pair of name and value.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        escape(&mut self.0, name);
        self.0.push('=');
        escape(&mut self.0, value);
        self
    }

    /// Adds a pair of name and value, unless the value is empty.
    pub(crate) fn with_some(self, name: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.with(name, value) }
    }

    /// Returns the encoded text.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// Appends `text` in the form encoding.
pub(crate) fn escape(encoded: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            byte => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
}

/// First value with this name in a query, decoded.
pub(crate) fn query_value(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(had, _)| *had == name).map(|(_, value)| unescape(value))
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        // A sign is not a hexadecimal digit, but `from_str_radix` accepts "+1".
        let digits = digits.filter(|digits| bytes[at] == b'%' && !digits.starts_with('+'));
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], escaped) {
            (_, Some(byte)) => {
                plain.push(byte);
                at += 2;
            }
            (b'+', None) => plain.push(b' '),
            (byte, None) => plain.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead(reference: &str) -> Leads {
        resolve("http://idp:80", "http://app/cb", "/a/b?c", reference)
    }

    #[test]
    fn references_lead_where_a_browser_would_go() {
        let here = |path: &str| Leads::Provider(path.to_owned());
        for (reference, path) in [
            ("http://idp:80/x?y", "/x?y"),
            ("http://idp:80", "/"),
            ("http://idp:80?x", "/?x"),
            ("/x#fragment", "/x"),
            ("", "/a/b?c"),
            ("?d", "/a/b?d"),
            ("e?f=http://g", "/a/e?f=http://g"),
            ("../h", "/h"),
            ("../../../h", "/h"),
            ("./i", "/a/i"),
        ] {
            assert_eq!(lead(reference), here(path), "{reference}");
        }
        for away in ["http://idp:8080/x", "http://other/", "//other/", "http://app/cbx", "x:y/z?"] {
            assert_eq!(lead(away), Leads::Elsewhere, "{away}");
        }
        assert_eq!(lead("http://app/cb?code=1#_"), Leads::Client("code=1".to_owned()));
    }

    #[test]
    fn the_form_encoding_goes_both_ways() {
        let text = "a b&c=d+é%/\0";
        let query = FormEncoded::default().with("x", "").with("y", text).with_some("z", "").finish();
        assert_eq!(query, "x=&y=a+b%26c%3Dd%2B%C3%A9%25%2F%00");
        assert_eq!(query_value(&query, "y").as_deref(), Some(text));
        assert_eq!(query_value(&query, "z"), None);
        assert_eq!(query_value("a=%4&b=%zz&c=%", "a").as_deref(), Some("%4"));
        assert_eq!(query_value("a=%4&b=%zz&c=%", "b").as_deref(), Some("%zz"));
        assert_eq!(query_value("a=%+1", "a").as_deref(), Some("% 1"));
    }
}
