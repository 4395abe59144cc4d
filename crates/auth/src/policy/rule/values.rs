//! Values: the list of values that a condition accepts.

use std::fmt;

use hashbrown::HashSet;

/// Longest list that is compared value by value: about this length, hashing the text becomes
/// faster.
pub(super) const MAX_LINEAR: usize = 8;

/// Distinct values, in configured order; never empty.
#[derive(Debug, Clone)]
pub(super) struct Values {
    list: Box<[Box<str>]>,
    index: Option<HashSet<Box<str>>>,
}

impl Values {
    pub(super) fn new(values: Vec<String>) -> Self {
        let mut list: Vec<Box<str>> = Vec::with_capacity(values.len());
        let mut index = HashSet::with_capacity(values.len());
        for value in values {
            if index.insert(Box::from(value.as_str())) {
                list.push(value.into());
            }
        }
        let index = (list.len() > MAX_LINEAR).then_some(index);
        Self { list: list.into(), index }
    }

    pub(super) fn as_slice(&self) -> &[Box<str>] {
        &self.list
    }

    pub(super) fn contains(&self, value: &str) -> bool {
        match &self.index {
            None => self.list.iter().any(|v| **v == *value),
            Some(index) => index.contains(value),
        }
    }
}

impl fmt::Display for Values {
    /// Writes the list as `[a, b, c]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_list(f, self.list.iter().map(|v| &**v))
    }
}

/// Writes values as `[a, b]`.
pub(super) fn show_list<'v>(
    f: &mut fmt::Formatter<'_>,
    values: impl Iterator<Item = &'v str>,
) -> fmt::Result {
    f.write_str("[")?;
    for (i, value) in values.enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(f, "{comma}{}", Quoted(value))?;
    }
    f.write_str("]")
}

/// A value for display: quoted and escaped unless it is plain.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_alphanumeric() || "-_./:@=+*~%$!/&".contains(c);
        if !self.0.is_empty() && self.0.chars().all(plain) {
            f.write_str(self.0)
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_lists_contain_the_same() {
        for n in [1, MAX_LINEAR, MAX_LINEAR + 1, 1000] {
            let values = Values::new((0..n).map(|i| format!("v{i}")).collect());
            assert!((0..n).all(|i| values.contains(&format!("v{i}"))));
            assert!(!values.contains("v") && !values.contains("") && !values.contains(&format!("v{n}")));
        }
    }

    #[test]
    fn repeated_values_count_once() {
        let values = Values::new(["a", "b", "a"].map(String::from).into());
        assert_eq!(values.to_string(), "[a, b]");
    }

    #[test]
    fn odd_values_are_shown_quoted() {
        let values = Values::new(["a b", "c,d", "é", "x]"].map(String::from).into());
        assert_eq!(values.to_string(), r#"["a b", "c,d", é, "x]"]"#);
    }
}
