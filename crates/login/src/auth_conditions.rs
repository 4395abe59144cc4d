//! Auth conditions: whether a user meets what the query of `auth` requires, as oauth2-proxy reads it.

use std::borrow::Cow;

use auth::identity::Identity;
use auth::request::Canonical;

/// Whether a user has one of the groups, one of the e-mail addresses and one of their domains that
/// the query lists in `allowed_groups`, `allowed_emails` and `allowed_email_domains`. A parameter
/// that is absent requires nothing.
pub fn are_met(request: &Canonical<'_>, identity: &Identity) -> bool {
    let values = |name| request.query_values(name).map(Cow::into_owned).collect();
    are_met_by(values, &identity.groups, identity.email.as_deref())
}

/// The same with the values of a parameter by its name.
pub(crate) fn are_met_by(
    values: impl Fn(&'static str) -> Vec<String>,
    groups: &[Box<str>],
    email: Option<&str>,
) -> bool {
    let meets = |name, matches: &dyn Fn(&str) -> bool| {
        let values = values(name);
        values.is_empty() || values.iter().flat_map(|value| value.split(',')).map(str::trim).any(matches)
    };
    let domain = email.and_then(|email| email.split_once('@')).map(|(_, domain)| domain);
    let is = |own: Option<&str>, allowed: &str| own.is_some_and(|own| own.eq_ignore_ascii_case(allowed));
    meets("allowed_groups", &|allowed| groups.iter().any(|group| **group == *allowed))
        && meets("allowed_emails", &|allowed| is(email, allowed))
        && meets("allowed_email_domains", &|allowed| is(domain, allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_that_is_there_must_be_met() {
        let met = |query: &[(&'static str, &str)]| {
            let of = |name: &'static str| {
                let values = query.iter().filter(|(other, _)| *other == name);
                values.map(|(_, value)| (*value).to_owned()).collect()
            };
            are_met_by(of, &["staff".into()], Some("ada@works.example"))
        };
        assert!(met(&[]));
        assert!(met(&[("allowed_groups", "admins, staff")]));
        assert!(met(&[("allowed_groups", "admins"), ("allowed_groups", "staff")]));
        assert!(met(&[("allowed_emails", "Ada@works.example"), ("allowed_email_domains", "works.example")]));
        assert!(!met(&[("allowed_groups", "")]));
        assert!(!met(&[("allowed_groups", "staff"), ("allowed_email_domains", "else.example")]));
        assert!(!met(&[("allowed_groups", "Staff")]));
    }
}
