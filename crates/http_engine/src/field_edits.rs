//! Field edits: how the fields of a response change on its way to the client.
//!
//! Owns: the edits as values, and their effect on a response of an upstream and on one of the
//! gateway itself. Does not own: which edits a response gets.

use auth::request::Field;

/// Changes of the fields of a response. Names compare without regard to case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Fields that are removed.
    pub removed: Vec<Box<str>>,
    /// Fields that replace all others of their name.
    pub set: Vec<(Box<str>, Box<str>)>,
    /// Fields that are added to others of their name.
    pub added: Vec<(Box<str>, Box<str>)>,
    /// Fields that are added where there is none of their name.
    pub defaults: Vec<(Box<str>, Box<str>)>,
}

impl FieldEdits {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.set.is_empty() && self.added.is_empty() && self.defaults.is_empty()
    }

    /// The fields of an upstream's response after the edits.
    pub fn apply<'f>(&'f self, fields: impl Iterator<Item = Field<'f>>) -> Vec<Field<'f>> {
        let replaced = |name: &str| {
            self.removed
                .iter()
                .chain(self.set.iter().map(|(name, _)| name))
                .any(|n| n.eq_ignore_ascii_case(name))
        };
        let mut edited: Vec<Field<'f>> = fields.filter(|field| !replaced(field.name)).collect();
        let own = |(name, value): &'f (Box<str>, Box<str>)| Field { name, value: value.as_bytes() };
        edited.extend(self.set.iter().map(own));
        let present =
            |edited: &[Field<'f>], name: &str| edited.iter().any(|f| f.name.eq_ignore_ascii_case(name));
        for default in &self.defaults {
            if !present(&edited, &default.0) {
                edited.push(own(default));
            }
        }
        edited.extend(self.added.iter().map(own));
        edited
    }

    /// The fields to add to a response of the gateway itself, which has fields of these names. It
    /// keeps its own: they are part of what it says.
    pub fn for_local_reply<'f>(
        &'f self,
        has: impl Fn(&str) -> bool + 'f,
    ) -> impl Iterator<Item = (&'f str, &'f str)> {
        let is_set = |name: &str| self.set.iter().any(|(set, _)| set.eq_ignore_ascii_case(name));
        let defaults = self.defaults.iter().filter(move |(name, _)| !is_set(name));
        let unless_present = self.set.iter().chain(defaults).filter(move |(name, _)| !has(name));
        unless_present.chain(&self.added).map(|(name, value)| (&**name, &**value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (Box<str>, Box<str>) {
        (name.into(), value.into())
    }

    fn edits() -> FieldEdits {
        FieldEdits {
            removed: vec!["server".into()],
            set: vec![pair("x-env", "blue")],
            added: vec![pair("vary", "origin")],
            defaults: vec![pair("x-frame-options", "DENY"), pair("referrer-policy", "no-referrer")],
        }
    }

    #[test]
    fn the_fields_of_an_upstream_are_edited() {
        let fields = [
            ("Server", "x"),
            ("X-Env", "red"),
            ("x-env", "green"),
            ("Vary", "accept"),
            ("X-FRAME-OPTIONS", "SAMEORIGIN"),
        ];
        let edits = edits();
        let edited = edits.apply(fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }));
        let lines: Vec<_> =
            edited.iter().map(|f| format!("{}: {}", f.name, String::from_utf8_lossy(f.value))).collect();
        assert_eq!(
            lines,
            [
                "Vary: accept",
                "X-FRAME-OPTIONS: SAMEORIGIN",
                "x-env: blue",
                "referrer-policy: no-referrer",
                "vary: origin"
            ]
        );
    }

    #[test]
    fn a_field_that_is_set_needs_no_default() {
        let edits = FieldEdits {
            set: vec![pair("X-Frame-Options", "DENY")],
            defaults: vec![pair("x-frame-options", "SAMEORIGIN")],
            ..FieldEdits::default()
        };
        assert_eq!(edits.apply(std::iter::empty()).len(), 1);
        assert_eq!(edits.for_local_reply(|_| false).collect::<Vec<_>>(), [("X-Frame-Options", "DENY")]);
    }

    #[test]
    fn a_local_reply_keeps_its_fields() {
        let edits = edits();
        let own: Vec<_> = edits.for_local_reply(|name| name == "x-env").collect();
        assert_eq!(
            own,
            [("x-frame-options", "DENY"), ("referrer-policy", "no-referrer"), ("vary", "origin")]
        );
    }
}
