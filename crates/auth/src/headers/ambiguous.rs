//! Ambiguous fields: which header fields a decision may depend on.
//!
//! A route, an access review or an authorizer reads a client's field, and a service behind the
//! gateway reads it again. Both must read the same value. Otherwise a client could be authorized
//! for one thing and served another. There are three ways to make them differ:
//!
//! * `Connection` nominates the field, and the gateway removes it (RFC 9110 §7.6.1);
//! * the field occurs twice, and readers take the first, the last, or both;
//! * the request has an alias of the name, which many servers take for the field itself.
//!
//! For a list ([`is_list`]), a second line is not a second value: all that read the whole list read
//! the same.
//!
//! Fields that each hop replaces ([`is_per_hop`]) cannot be removed by the client.

use super::{is_alias_prefix, is_per_hop, is_same_alias_class, is_same_bytes};
use crate::request::Field;

/// How several fields of one name are represented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// Each field by itself.
    Separate,
    /// Joined by commas: a list cannot be distinguished from several fields.
    Joined,
}

/// The first of `names` that the service could read differently than a decision that takes one
/// value for each name.
pub fn first_ambiguous<'n>(
    fields: &[Field<'_>],
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    find_ambiguous(fields, names, occurs_once)
}

/// The same for a decision that reads all lines of a list.
pub fn first_ambiguous_list<'n>(
    fields: &[Field<'_>],
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    find_ambiguous(fields, names, |fields, name| {
        if is_list(name) { has_single_spelling(fields, name) } else { occurs_once(fields, name) }
    })
}

fn find_ambiguous<'n>(
    fields: &[Field<'_>],
    names: impl IntoIterator<Item = &'n str>,
    is_one: impl Fn(&[Field<'_>], &str) -> bool,
) -> Option<&'n str> {
    let nominates = fields.iter().any(is_connection);
    let mut names = names.into_iter();
    names.find(|name| !is_per_hop(name) && (!is_one(fields, name) || nominates && is_nominated(fields, name)))
}

/// Whether a field is a list by its definition (RFC 9110 section 12.5), so that several lines of it
/// form one list (section 5.3). Clients send such lines: registry clients send one `Accept` for
/// each media type.
pub fn is_list(name: &str) -> bool {
    name.eq_ignore_ascii_case("accept") || is_alias_prefix(name, "accept-")
}

/// Whether one member of a list, or several consecutive ones, equal this value.
pub(crate) fn list_contains(list: &[u8], value: &[u8]) -> bool {
    let is_between_commas = |at: usize| {
        let (before, behind) = (list[..at].trim_ascii_end(), list[at + value.len()..].trim_ascii_start());
        matches!(before, [] | [.., b',']) && matches!(behind, [] | [b',', ..])
    };
    !value.is_empty()
        && list.windows(value.len()).enumerate().any(|(at, found)| found == value && is_between_commas(at))
}

/// Whether all fields of this alias class have exactly this spelling.
fn has_single_spelling(fields: &[Field<'_>], name: &str) -> bool {
    fields.iter().all(|field| !is_same_alias_class(field.name, name) || field.name.eq_ignore_ascii_case(name))
}

/// Whether there is no field of this alias class, or one with exactly this spelling.
fn occurs_once(fields: &[Field<'_>], name: &str) -> bool {
    let mut of_the_class = fields.iter().filter(|field| is_same_alias_class(field.name, name));
    match (of_the_class.next(), of_the_class.next()) {
        (None, _) => true,
        (Some(field), None) => field.name.eq_ignore_ascii_case(name),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a `Connection` field nominates this name or an alias of it.
pub fn is_nominated(fields: &[Field<'_>], name: &str) -> bool {
    let connection = fields.iter().filter(|field| is_connection(field));
    let mut options = connection.flat_map(|field| field.value.split(|byte| *byte == b','));
    options.any(|option| is_same_bytes(option.trim_ascii(), name.as_bytes()))
}

fn is_connection(field: &Field<'_>) -> bool {
    field.name.len() == 10 && field.name.eq_ignore_ascii_case("connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_come_in_several_lines_to_whom_reads_all_of_them() {
        let ambiguous = |fields: &[(&str, &str)]| {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
            first_ambiguous_list(&fields, ["accept", "accept-language", "cookie", "accepted"])
        };
        let two = [("Accept", "a/b"), ("accept", "c/d")];
        assert_eq!(ambiguous(&two), None);
        assert_eq!(ambiguous(&[("Accept-Language", "de"), ("Accept-Language", "en")]), None);
        for (fields, name) in [
            (
                &[("Accept", "a/b"), ("Accept-Language", "de"), ("Accept_Language", "en")][..],
                "accept-language",
            ),
            (&[("Accept", "a/b"), ("Connection", "accept")], "accept"),
            (&[("Cookie", "a=b"), ("Cookie", "a=b")], "cookie"),
            (&[("Accepted", "a"), ("Accepted", "b")], "accepted"),
        ] {
            assert_eq!(ambiguous(fields), Some(name), "{fields:?}");
        }
        let two: Vec<_> = two.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        assert_eq!(first_ambiguous(&two, ["accept"]), Some("accept"), "a single value is meant there");
    }

    #[test]
    fn members_are_found_between_commas() {
        for (list, value) in [
            ("a", "a"),
            ("a,b", "a"),
            ("a,b", "b"),
            ("x , a\t,y", "a"),
            ("a,b,c", "a,b"),
            ("x, a,b", "a,b"),
            ("aa,a", "a"),
        ] {
            assert!(list_contains(list.as_bytes(), value.as_bytes()), "{list} {value}");
        }
        for (list, value) in
            [("ab", "a"), ("a b", "a"), ("x,ab,y", "a"), ("", "a"), ("a", ""), ("xa,b", "a,b")]
        {
            assert!(!list_contains(list.as_bytes(), value.as_bytes()), "{list} {value}");
        }
    }

    fn ambiguous(fields: &[(&str, &str)]) -> Option<&'static str> {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        first_ambiguous(&fields, ["x-env", "upgrade"])
    }

    #[test]
    fn a_field_is_unambiguous_when_it_is_absent_or_there_once() {
        assert_eq!(ambiguous(&[]), None);
        assert_eq!(
            ambiguous(&[("X-Env", "blue"), ("X-Environment", "x"), ("Connection", "close, X-En")]),
            None
        );
        assert_eq!(ambiguous(&[("Upgrade", "a"), ("Connection", "Upgrade"), ("upgrade", "b")]), None);
    }

    #[test]
    fn doubles_aliases_and_nominations_are_ambiguous() {
        for fields in [
            &[("X-Env", "blue"), ("x-env", "blue")][..],
            &[("X-Env", "blue"), ("X_Env", "red")],
            &[("X.Env", "blue")],
            &[("x_env", "blue")],
            &[("X-Env", "blue"), ("Connection", "X-Env")],
            &[("X-Env", "blue"), ("connection", "close,\tx_env ,te")],
            &[("Connection", "close"), ("Connection", "x-env")],
        ] {
            assert_eq!(ambiguous(fields), Some("x-env"), "{fields:?}");
        }
    }
}
