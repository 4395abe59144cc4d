//! Templates: text with placeholders such as `@provider.http@`.
//!
//! An `@` that does not start a placeholder is kept, because configurations of other programs use
//! it too.
//!
//! Owns: the syntax and the replacement. Does not own: which names exist.

use std::collections::BTreeMap;

/// Placeholder names and their values.
pub(crate) type Values = BTreeMap<String, String>;

/// A placeholder without a value; holds its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnknownName(pub(crate) String);

impl UnknownName {
    /// Error text with similar known names or, if there are none, all known names.
    pub(crate) fn describe(&self, values: &Values) -> String {
        let name = &self.0;
        let stem = name.split('.').next().unwrap_or_default();
        let near = |known: &&String| known.split('.').next() == Some(stem);
        let mut known: Vec<&str> = values.keys().filter(near).map(String::as_str).collect();
        if known.is_empty() {
            known = values.keys().map(String::as_str).collect();
        }
        format!("unknown name `@{name}@`; available: {}", known.join(", "))
    }
}

/// Replaces every placeholder in the text.
///
/// # Errors
/// The first placeholder without a value.
pub(crate) fn fill(text: &str, values: &Values) -> Result<String, UnknownName> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match leading_name(rest) {
            Some(name) => {
                filled.push_str(values.get(name).ok_or_else(|| UnknownName(name.to_owned()))?);
                rest = &rest[name.len() + 1..];
            }
            None => filled.push('@'),
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Replaces each `@include NAME@` by the text of that name. The inserted text is not searched
/// again.
pub(crate) fn include<E>(
    text: &str,
    mut look_up: impl FnMut(&str) -> Result<String, E>,
) -> Result<String, E> {
    const BEGIN: &str = "@include ";
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        whole.push_str(&rest[..at]);
        rest = &rest[at + BEGIN.len()..];
        let end = rest.find(['@', '\n']).unwrap_or(rest.len());
        whole.push_str(&look_up(rest[..end].trim())?);
        rest = rest[end..].strip_prefix('@').unwrap_or(&rest[end..]);
    }
    whole.push_str(rest);
    Ok(whole)
}

/// The placeholder name at the beginning of `text`, before the next `@`.
fn leading_name(text: &str) -> Option<&str> {
    let name = &text[..text.find('@')?];
    let first = name.as_bytes().first()?.is_ascii_alphanumeric();
    let whole = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_'));
    (first && whole).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        [("a.http", "80"), ("a.tls", "443"), ("b", "x")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn names_are_replaced_and_other_signs_stay() {
        let text = "@b@@a.http@ \"@type\": \"@x y@\" me@b.example @ @@ @B@ @b@";
        assert_eq!(fill(text, &values()).unwrap(), "x80 \"@type\": \"@x y@\" me@b.example @ @@ @B@ x");
    }

    #[test]
    fn a_name_that_nobody_has_is_an_error_that_tells_those_like_it() {
        let unknown = fill("@a.htp@", &values()).unwrap_err();
        assert_eq!(unknown.describe(&values()), "unknown name `@a.htp@`; available: a.http, a.tls");
        assert!(fill("@c@", &values()).unwrap_err().describe(&values()).ends_with("a.http, a.tls, b"));
    }

    #[test]
    fn parts_are_put_in() {
        let whole = include("1 @include x.toml@\n2 @include y@", |name| Ok::<_, ()>(format!("<{name}>")));
        assert_eq!(whole.unwrap(), "1 <x.toml>\n2 <y>");
        assert_eq!(include("@include z@", |_| Err::<String, _>(7)), Err(7));
    }
}
