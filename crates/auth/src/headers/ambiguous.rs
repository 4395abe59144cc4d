//! Which fields a decision may rest on.
//!
//! A route, an access review or an authorizer reads a client's field, and a service behind the gateway reads it
//! again. Both must read the same, or a client could be decided about as one thing and served as another. There
//! are three ways to make them differ:
//!
//! * `Connection` nominates the field, and the gateway takes it off (RFC 9110 §7.6.1);
//! * the field is there twice, and readers take the first, the last, or both;
//! * an alias of the name is there, which many servers take for the field itself.
//!
//! Fields that each hop writes anew ([`is_per_hop`]) are not the client's to take off.

use super::{is_per_hop, is_same, is_same_bytes};
use crate::request::Field;

/// The first of `names` that the service could read otherwise than the decision does.
pub fn first_ambiguous<'n>(
    fields: &[Field<'_>],
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let nominates = fields.iter().any(is_connection);
    let mut names = names.into_iter();
    names.find(|name| {
        !is_per_hop(name) && (!is_there_once(fields, name) || nominates && is_nominated(fields, name))
    })
}

/// Whether there is no field of this alias class, or one in this very spelling.
fn is_there_once(fields: &[Field<'_>], name: &str) -> bool {
    let mut of_the_class = fields.iter().filter(|field| is_same(field.name, name));
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
