//! Scopes (RFC 6749 §3.3): an unordered set of case-sensitive words.
//!
//! Owns: their grammar and set operations. Does not own: the scopes of each client
//! ([`crate::client`]).

/// Most scopes in one request or of one client.
pub const MAX_SCOPES: usize = 128;
/// Longest scope in bytes.
pub const MAX_SCOPE: usize = 128;

/// Reason why a text is not a scope or a list of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeFault {
    /// A scope is empty; a leading, trailing or double space causes this too.
    #[error("a scope is empty: separate scopes by one space each")]
    Empty,
    /// A scope has a character outside `%x21 / %x23-5B / %x5D-7E`.
    #[error("a scope has a character other than printable ascii without space, quote and backslash")]
    Character,
    /// A scope is longer than [`MAX_SCOPE`].
    #[error("a scope has at most {MAX_SCOPE} bytes")]
    TooLong,
    /// There are more than [`MAX_SCOPES`] scopes.
    #[error("at most {MAX_SCOPES} scopes")]
    TooMany,
}

/// A set of scopes, in the order of their first occurrence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScopeSet {
    scopes: Vec<Box<str>>,
}

impl ScopeSet {
    /// Parses the `scope` parameter: words separated by exactly one space.
    ///
    /// # Errors
    /// [`ScopeFault`] when the text does not match the grammar.
    pub fn parse(text: &str) -> Result<Self, ScopeFault> {
        let mut set = Self::default();
        for word in text.split(' ') {
            set.insert(word)?;
        }
        Ok(set)
    }

    /// Adds one scope; a scope in the set is not added again.
    ///
    /// # Errors
    /// [`ScopeFault`] when the text is not a scope or the set is full.
    pub fn insert(&mut self, scope: &str) -> Result<(), ScopeFault> {
        check(scope)?;
        if !self.contains(scope) {
            if self.scopes.len() == MAX_SCOPES {
                return Err(ScopeFault::TooMany);
            }
            self.scopes.push(scope.into());
        }
        Ok(())
    }

    /// Whether the set has this scope.
    pub fn contains(&self, scope: &str) -> bool {
        self.scopes.iter().any(|s| s.as_ref() == scope)
    }

    /// The first scope of this set that is not in `allowed`.
    pub fn first_outside(&self, allowed: &Self) -> Option<&str> {
        self.iter().find(|s| !allowed.contains(s))
    }

    /// The scopes of this set that are also in `other`.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        Self { scopes: self.scopes.iter().filter(|s| other.contains(s)).cloned().collect() }
    }

    /// The scopes of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self { scopes: self.scopes.iter().filter(|s| !other.contains(s)).cloned().collect() }
    }

    /// Whether the set has no scopes.
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }

    /// The scopes in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.scopes.iter().map(AsRef::as_ref)
    }

    /// The wire form: words separated by one space; `None` if the set is empty, because the grammar
    /// has no empty `scope`.
    pub fn to_wire(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.scopes.join(" "))
    }
}

fn check(scope: &str) -> Result<(), ScopeFault> {
    if scope.is_empty() {
        return Err(ScopeFault::Empty);
    }
    if scope.len() > MAX_SCOPE {
        return Err(ScopeFault::TooLong);
    }
    if !scope.bytes().all(|b| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e)) {
        return Err(ScopeFault::Character);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_words() {
        let set = ScopeSet::parse("read write read urn:x:y").unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), ["read", "write", "urn:x:y"]);
        assert_eq!(set.to_wire().as_deref(), Some("read write urn:x:y"));
        assert_eq!(ScopeSet::default().to_wire(), None);
    }

    #[test]
    fn refuses_the_rest() {
        for (text, fault) in [
            ("", ScopeFault::Empty),
            (" a", ScopeFault::Empty),
            ("a ", ScopeFault::Empty),
            ("a  b", ScopeFault::Empty),
            ("a\tb", ScopeFault::Character),
            ("a\"", ScopeFault::Character),
            ("a\\", ScopeFault::Character),
            ("é", ScopeFault::Character),
        ] {
            assert_eq!(ScopeSet::parse(text), Err(fault), "{text:?}");
        }
        assert_eq!(ScopeSet::parse(&"a".repeat(MAX_SCOPE + 1)), Err(ScopeFault::TooLong));
        let many = (0..=MAX_SCOPES).map(|i| i.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(ScopeSet::parse(&many), Err(ScopeFault::TooMany));
    }

    #[test]
    fn finds_what_is_outside() {
        let (ask, allowed) = (ScopeSet::parse("a Read").unwrap(), ScopeSet::parse("read a").unwrap());
        assert_eq!(ask.first_outside(&allowed), Some("Read"), "scopes are case-sensitive");
        assert_eq!(allowed.first_outside(&allowed), None);
        assert_eq!(ask.within(&allowed).to_wire().as_deref(), Some("a"));
        assert_eq!(ask.without(&allowed).to_wire().as_deref(), Some("Read"));
        assert!(allowed.without(&allowed).is_empty() && allowed.within(&ScopeSet::default()).is_empty());
    }
}
