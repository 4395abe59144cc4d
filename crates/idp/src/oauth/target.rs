//! Resource indicators (RFC 8707): the resource servers for which tokens are requested.
//!
//! Owns: the grammar of `audience` and `resource`, and reading them from a request. Does not own:
//! the audiences of a client ([`crate::client`]), and those that were granted ([`crate::grants`]).

use super::form::Form;

/// Most targets of one request.
pub const MAX_TARGETS: usize = 8;
/// Longest audience in bytes.
pub const MAX_TARGET: usize = 512;

/// Reason why the targets of a request are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetFault {
    /// A `resource` or `audience` does not match the grammar.
    #[error("malformed resource or audience")]
    Malformed,
    /// There are more than [`MAX_TARGETS`] resources and audiences.
    #[error("more than {MAX_TARGETS} resources and audiences")]
    TooMany,
}

/// Whether `text` can be an audience: 1 to [`MAX_TARGET`] bytes of visible ASCII.
pub fn is_audience(text: &str) -> bool {
    (1..=MAX_TARGET).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether `text` can be a `resource`: an absolute URI (RFC 3986 §4.3) without fragment, as RFC
/// 8707 §2 requires.
pub fn is_resource(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let scheme_good = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let rest_good = !matches!(rest, "" | "/" | "//")
        && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=%".contains(&b));
    is_audience(text) && scheme_good && rest_good
}

/// The targets of a request, without duplicates: its `resource` (RFC 8707 §2) and `audience`
/// parameters.
pub(crate) fn requested_targets(form: &Form) -> Result<Vec<&str>, TargetFault> {
    let mut targets: Vec<&str> = Vec::new();
    let resources = form.all("resource").map(|r| (r, is_resource(r)));
    let audiences = form.all("audience").map(|a| (a, is_audience(a)));
    for (target, well_formed) in resources.chain(audiences) {
        if !well_formed {
            return Err(TargetFault::Malformed);
        }
        if !targets.contains(&target) {
            targets.push(target);
        }
        if targets.len() > MAX_TARGETS {
            return Err(TargetFault::TooMany);
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_absolute_uris_without_fragment() {
        for good in ["https://api.example.com", "https://api.example.com/a?b=c", "urn:example:api", "a+b:c"] {
            assert!(is_resource(good), "{good}");
        }
        for bad in [
            "",
            "api",
            "/api",
            "//host/a",
            ":a",
            "1a:b",
            "https:",
            "https://",
            "https://a#b",
            "https://a b",
            "urn:é",
        ] {
            assert!(!is_resource(bad), "{bad}");
        }
    }

    #[test]
    fn audiences_are_visible_ascii() {
        assert!(is_audience("orders") && is_audience("https://api"));
        assert!(!is_audience("") && !is_audience("a b") && !is_audience("é"));
        assert!(!is_audience(&"a".repeat(MAX_TARGET + 1)));
    }
}
