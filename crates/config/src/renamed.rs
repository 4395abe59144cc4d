//! Renamed keys: former names, so that a fault can name the present one.
//!
//! The table is the only place that knows former names. To drop them, delete this file and its use
//! in the shape check.

use super::fault::{KeyPath, Step};

/// Former keys: path without indices, and what to write instead.
const RENAMED: [(&str, &str); 10] = [
    ("authority", "write [[token_authority]]"),
    ("coherence", "write [revocation]"),
    ("issuer.follow_secret_file", "write `revocation = { secret_file = \"…\" }`"),
    ("issuer.follow_url", "write `revocation = { secret_file = \"…\", url = \"…\" }`"),
    ("route.review", "write `access_review`"),
    ("kubernetes.authorities", "write `token_authorities`"),
    ("authorizer.max_age_followed", "write `max_age_with_revocation`"),
    ("provider.brand", "write [pages.brand]"),
    ("provider.languages", "write [pages.languages]"),
    ("provider.follow_generations", "write `revocation = { secret_generations = […] }`"),
];

/// The remedy for a key that was renamed; `None`: the path never had a meaning.
pub(super) fn remedy(path: &KeyPath) -> Option<&'static str> {
    let keys = path.steps().iter().filter_map(|step| match step {
        Step::Key(key) => Some(key.as_str()),
        Step::Index(_) => None,
    });
    let path = keys.collect::<Vec<_>>().join(".");
    RENAMED.iter().find(|(former, _)| *former == path).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_key_is_found_at_its_place_only() {
        let path = KeyPath::top_level("route").index(3).key("review");
        assert_eq!(remedy(&path), Some("write `access_review`"));
        assert_eq!(remedy(&KeyPath::top_level("review")), None);
        assert_eq!(remedy(&KeyPath::top_level("authority")), Some("write [[token_authority]]"));
        assert_eq!(remedy(&KeyPath::top_level("token_authority")), None);
    }

    /// A former name that is a key again would get the wrong remedy.
    #[test]
    fn no_former_key_is_in_the_schema() {
        let schema = &*crate::schema::SCHEMA;
        for (former, _) in RENAMED {
            let mut at = schema;
            let known = former.split('.').all(|key| {
                let table = crate::schema::resolve(schema, at);
                let table = crate::schema::resolve(schema, table.get("items").unwrap_or(table));
                match table.get("properties").and_then(|keys| keys.get(key)) {
                    Some(found) => {
                        at = found;
                        true
                    }
                    None => false,
                }
            });
            assert!(!known, "{former}");
        }
    }
}
