//! Redirect target: where a browser goes after login or logout; always an address of the same
//! origin.
//!
//! Owns: validating `rd`. A valid target is a path of the same origin in canonical form; anything
//! else is replaced by the default page.

use auth::request::{Canonical, Malformed, RawRequest};

use crate::config::Origin;

/// Maximum length of a target that is kept during a login. It is part of an address, and providers
/// limit those.
const LONGEST: usize = 1024;
/// The target when none is given, or it is invalid.
const DEFAULT: &str = "/";

/// The validated target: path and query.
pub(crate) fn target(requested: Option<&str>, origin: &Origin) -> String {
    requested.and_then(|requested| validated(requested, origin)).unwrap_or_else(|| DEFAULT.to_owned())
}

fn validated(requested: &str, origin: &Origin) -> Option<String> {
    // Our own links contain the full address.
    let requested = match requested.strip_prefix(&*origin.text) {
        Some("") => DEFAULT,
        Some(rest) if rest.starts_with('/') => rest,
        _ => requested,
    };
    // Browsers treat `\` as `/`, drop tabs and line ends, and read `//host` as another host.
    let odd = |c: char| c == '\\' || c.is_control() || c.is_whitespace();
    if !requested.starts_with('/') || requested.starts_with("//") || requested.chars().any(odd) {
        return None;
    }
    let path = requested.split(['?', '#']).next().unwrap_or_default();
    if path.contains('@') || path.contains("//") {
        return None;
    }
    // A fragment stays in the browser, which never sends it.
    let requested = requested.split('#').next().unwrap_or_default();
    let requested = if requested.len() > LONGEST { path } else { requested };
    if requested.len() > LONGEST {
        return None;
    }
    let raw = RawRequest {
        method: "GET",
        scheme: origin.scheme,
        authority: None,
        host: Some(origin.authority.as_bytes()),
        target: requested.as_bytes(),
    };
    // Parsed like the later request; a target that would be refused is not used.
    let canonical = Canonical::parse(&raw).ok()?;
    // Escaped delimiters belong to names (`Report%20%233.ipynb`). Browsers send nothing else that
    // servers read differently.
    if !matches!(canonical.strict_fault(), None | Some(Malformed::ForbiddenEscape)) {
        return None;
    }
    let mut target = Vec::with_capacity(requested.len());
    canonical.write_target(&mut target);
    String::from_utf8(target).ok()
}

#[cfg(test)]
mod tests {
    use auth::request::Scheme;

    use super::*;

    fn judged(requested: &str) -> String {
        let origin = Origin {
            scheme: Scheme::Https,
            authority: "app.example".into(),
            text: "https://app.example".into(),
        };
        target(Some(requested), &origin)
    }

    #[test]
    fn paths_of_this_origin_lead_there() {
        for path in [
            "/",
            "/a/b",
            "/a?b=c&d=https://x.example/",
            "/a?x=@",
            "/%E2%82%AC",
            "/a?next=//b",
            "/a/%2F/b",
            "/Report%20%233.ipynb",
        ] {
            assert_eq!(judged(path), path);
        }
        assert_eq!(judged("https://app.example/a?b"), "/a?b");
        assert_eq!(judged("https://app.example"), "/");
        assert_eq!(judged("/a?b#c"), "/a?b");
    }

    #[test]
    fn everything_else_leads_home() {
        for odd in [
            "",
            "a",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "/\t/evil.example",
            "/a\r\nset-cookie: x=y",
            " /a",
            "https://evil.example/",
            "https://app.example.evil.example/",
            "https://app.example@evil.example/",
            "http://app.example/",
            "javascript:alert(1)",
            "/@evil.example",
            "/a//b",
            "/%2f%2fevil.example",
            "/a/../b",
            "/%5cevil.example",
            "/a\u{0}b",
            "/a%00b",
            "/\u{a0}evil",
        ] {
            assert_eq!(judged(odd), "/", "{odd:?}");
        }
        assert_eq!(
            target(None, &Origin { scheme: Scheme::Https, authority: "a".into(), text: "https://a".into() }),
            "/"
        );
    }

    #[test]
    fn a_long_query_is_left_behind() {
        assert_eq!(judged(&format!("/a?{}", "x".repeat(1020))), format!("/a?{}", "x".repeat(1020)));
        assert_eq!(judged(&format!("/a?{}", "x".repeat(2000))), "/a");
        assert_eq!(judged(&format!("/{}", "x".repeat(2000))), "/");
    }
}
