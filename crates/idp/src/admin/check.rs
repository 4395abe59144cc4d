//! Checks of names, email addresses and claims that operators send.

use serde_json::{Map, Value};
use store::names::{self, NameFault};

use super::Refused;
use crate::attributes::Attributes;
use crate::claims::{claim_names, may_be_recorded};

/// Longest name of a user or group in characters, and longest email address in bytes.
pub const MAX_NAME: usize = 254;
/// Most bytes of a user's claims, as JSON.
pub const MAX_CLAIMS: usize = 16 * 1024;

/// Checks the name of a user and returns its stored form.
pub(super) fn user_name(name: &str, faults: &mut Vec<Refused>) -> String {
    normalized(name, names::user_name, faults)
}

/// Checks the name of a group and returns its stored form.
pub(super) fn group_name(name: &str, faults: &mut Vec<Refused>) -> String {
    normalized(name, names::group_name, faults)
}

fn normalized(
    name: &str,
    form: impl Fn(&str) -> Result<String, NameFault>,
    faults: &mut Vec<Refused>,
) -> String {
    let fits = (1..=MAX_NAME).contains(&name.chars().count());
    if !fits || name.chars().any(char::is_control) || name.trim() != name {
        let reason = format!(
            "malformed name: use 1 to {MAX_NAME} characters without control characters or surrounding spaces"
        );
        faults.push(Refused::new("name", reason));
        return name.to_owned();
    }
    form(name).unwrap_or_else(|fault| {
        faults.push(Refused::new("name", fault.to_string()));
        name.to_owned()
    })
}

/// Checks an email address.
pub(super) fn email(email: Option<&str>, faults: &mut Vec<Refused>) {
    let Some(email) = email else { return };
    let around = email.split_once('@').filter(|(_, domain)| !domain.contains('@'));
    let whole = around.is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
    if !whole || email.len() > MAX_NAME || email.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let reason =
            format!("malformed address: use local@domain with one @, no spaces, at most {MAX_NAME} bytes");
        faults.push(Refused::new("email", reason));
    } else if let Err(fault) = names::address(email) {
        faults.push(Refused::new("email", fault.to_string()));
    }
}

/// Checks the recorded claims and attributes of a user.
pub(super) fn claims(claims: &Map<String, Value>, attributes: &Attributes, faults: &mut Vec<Refused>) {
    for (name, value) in claims.iter().filter(|(name, _)| !may_be_recorded(name)) {
        match attributes.get(name).map(|attribute| attribute.check_value(value)) {
            Some(Ok(())) => {}
            Some(Err(expected)) => {
                faults.push(Refused::new("claims", format!("attribute {name:?} {expected}")));
            }
            None => {
                let mut known: Vec<&str> = claim_names().filter(|name| may_be_recorded(name)).collect();
                known.extend(attributes.iter().map(|attribute| attribute.name.as_str()));
                let reason = format!(
                    "unknown claim {name:?}: declare it as an attribute of the provider, or use {}",
                    known.join(", ")
                );
                faults.push(Refused::new("claims", reason));
            }
        }
    }
    for (name, _) in claims.iter().filter(|(_, value)| has_nul(value)) {
        let reason = format!("{name:?} contains a NUL character: remove it");
        faults.push(Refused::new("claims", reason));
    }
    if serde_json::to_vec(claims).map_or(usize::MAX, |text| text.len()) > MAX_CLAIMS {
        faults.push(Refused::new(
            "claims",
            format!("claims too large: use at most {MAX_CLAIMS} bytes as JSON"),
        ));
    }
}

/// Whether a text or member name in it has a NUL character.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Attribute, AttributeType};

    fn faults(check: impl FnOnce(&mut Vec<Refused>)) -> usize {
        let mut faults = Vec::new();
        check(&mut faults);
        faults.len()
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "Ada Lovelace", "ada@example.com", &"ä".repeat(MAX_NAME)] {
            for check in [user_name, group_name] {
                let mut faults = Vec::new();
                assert_eq!((check(good, &mut faults).as_str(), faults.len()), (good, 0), "{good}");
            }
        }
        for bad in ["", " ada", "ada ", "a\nb", "a\u{7f}", "a\0", "no\u{200b}ra", &"a".repeat(MAX_NAME + 1)] {
            for check in [user_name, group_name] {
                assert_eq!(faults(|f| _ = check(bad, f)), 1, "{bad:?}");
            }
        }
        let mut faults = Vec::new();
        assert_eq!(user_name("\u{ff2e}ora", &mut faults), "Nora");
        assert_eq!(group_name("Zu\u{308}rich", &mut faults), "Z\u{fc}rich");
        assert_eq!(faults, []);
    }

    #[test]
    fn addresses_have_one_at() {
        for good in [None, Some("a@b"), Some("ada.l@example.com")] {
            assert_eq!(faults(|f| email(good, f)), 0, "{good:?}");
        }
        for bad in [
            "",
            "ada",
            "@",
            "a@",
            "@b",
            "a@b@c",
            "a b@c",
            "a@b\n",
            "a\u{200b}@b",
            &format!("{}@b", "a".repeat(253)),
        ] {
            assert_eq!(faults(|f| email(Some(bad), f)), 1, "{bad:?}");
        }
    }

    #[test]
    fn claims_are_those_of_people_and_not_the_providers_own() {
        let of = |text: &str| -> usize {
            let map: Map<String, Value> = serde_json::from_str(text).unwrap();
            let floor =
                Attribute { name: "floor".into(), kind: AttributeType::Integer, ..Default::default() };
            faults(|f| claims(&map, &Attributes::check(&[floor]).unwrap(), f))
        };
        assert_eq!(of(r#"{"name":"Ada","floor":7}"#), 0);
        assert_eq!(of(r#"{"floor":"7"}"#), 1);
        assert_eq!(of(r#"{"name":"Ada","phone_number":"+44"}"#), 0);
        assert_eq!(of(r#"{"sub":"x","email":"a@b","groups":[],"updated_at":1,"admin":true}"#), 5);
        assert_eq!(of(&format!(r#"{{"name":"{}"}}"#, "a".repeat(MAX_CLAIMS))), 1);
        assert_eq!(of(r#"{"name":"a\u0000","address":{"country":"\u0000"},"nickname":"a"}"#), 2);
    }
}
