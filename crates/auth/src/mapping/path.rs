//! Claim path: `realm_access.roles`, or, for names that contain dots, the JSON pointer (RFC 6901)
//! `/resource_access/my.client/roles`. A pointer here names only object members, never array
//! elements.

use std::fmt;
use std::str::FromStr;

use crate::json::{MAX_DEPTH, Value};
use crate::token_error::{ClaimError, ClaimFault};

/// The path of a claim.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimPath {
    written: Box<str>,
    names: Box<[Box<str>]>,
}

/// Why a text is not a claim path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimPathError {
    /// The path, or one of its names, is empty.
    #[error("claim path is empty or has an empty name")]
    EmptyName,
    /// The path has more names than tokens may nest.
    #[error("claim path has more than 16 names")]
    TooDeep,
    /// A URL in dotted spelling would be split at its dots.
    #[error(
        "claim path looks like a URL; spell it as a JSON pointer, `/` written as `~1`: /https:~1~1host~1name"
    )]
    Url,
    /// `~` in a pointer is followed by neither `0` nor `1` (RFC 6901 §3).
    #[error("claim path has a `~` that is neither `~0` (for `~`) nor `~1` (for `/`)")]
    Escape,
    /// The path has a control character.
    #[error("claim path contains a control character")]
    Control,
}

impl ClaimPath {
    /// A top-level member, whose name is not checked.
    pub(super) fn member(name: &'static str) -> Self {
        Self { written: name.into(), names: [name.into()].into() }
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// The names of the members, from the outermost.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The value at the path; `null` counts as absent.
    pub(super) fn find<'d>(&self, claims: Value<'d>) -> Result<Option<Value<'d>>, ClaimError> {
        let mut value = claims;
        for name in &self.names {
            if !value.is_object() {
                return Err(ClaimError::new(&self.written, ClaimFault::NotA("inside objects")));
            }
            match value.get(name) {
                Some(inner) if !inner.is_null() => value = inner,
                _ => return Ok(None),
            }
        }
        Ok(Some(value))
    }
}

impl FromStr for ClaimPath {
    type Err = ClaimPathError;

    fn from_str(written: &str) -> Result<Self, ClaimPathError> {
        if written.contains(char::is_control) {
            return Err(ClaimPathError::Control);
        }
        let names: Vec<Box<str>> = match written.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(unescaped).collect::<Result<_, _>>()?,
            None if written.contains("://") => return Err(ClaimPathError::Url),
            None => written.split('.').map(Into::into).collect(),
        };
        if names.iter().any(|name| name.is_empty()) {
            return Err(ClaimPathError::EmptyName);
        }
        if names.len() > MAX_DEPTH {
            return Err(ClaimPathError::TooDeep);
        }
        Ok(Self { written: written.into(), names: names.into() })
    }
}

/// Decodes the escapes of RFC 6901 §4: `~1` is `/`, `~0` is `~`.
fn unescaped(name: &str) -> Result<Box<str>, ClaimPathError> {
    let mut plain = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err(ClaimPathError::Escape),
            },
            c => c,
        });
    }
    Ok(plain.into())
}

impl fmt::Display for ClaimPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl fmt::Debug for ClaimPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.written, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Result<Vec<Box<str>>, ClaimPathError> {
        path.parse::<ClaimPath>().map(|path| path.names.into())
    }

    #[test]
    fn both_spellings_name_members() {
        let list = |names: &[&str]| Ok(names.iter().map(|n| Box::from(*n)).collect::<Vec<_>>());
        assert_eq!(names("sub"), list(&["sub"]));
        assert_eq!(names("realm_access.roles"), list(&["realm_access", "roles"]));
        assert_eq!(
            names("/resource_access/my.client/roles"),
            list(&["resource_access", "my.client", "roles"])
        );
        assert_eq!(names("/https:~1~1x.example~1groups"), list(&["https://x.example/groups"]));
        assert_eq!(names("/a~0b~01"), list(&["a~b~1"]));
        assert_eq!(names("a~b"), list(&["a~b"]));
    }

    #[test]
    fn other_texts_are_refused() {
        for (path, error) in [
            ("", ClaimPathError::EmptyName),
            ("/", ClaimPathError::EmptyName),
            ("a..b", ClaimPathError::EmptyName),
            (".a", ClaimPathError::EmptyName),
            ("/a/", ClaimPathError::EmptyName),
            ("https://x.example/groups", ClaimPathError::Url),
            ("/a~2", ClaimPathError::Escape),
            ("/a~", ClaimPathError::Escape),
            ("a\nb", ClaimPathError::Control),
            ("a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a", ClaimPathError::TooDeep),
        ] {
            assert_eq!(names(path), Err(error), "{path:?}");
        }
    }
}
