//! Redirect target: where a browser goes after login or logout; always an address of the login's
//! origins.
//!
//! Owns: validating `rd`. A valid target is a path in canonical form, at the same origin or at
//! another one that shares the session; anything else is replaced by the default page.

use auth::request::{Canonical, Malformed, RawRequest, Scheme};

use crate::config::{LoginConfig, Origin};

/// Maximum length of a target that is kept during a login. It is part of an address, and providers
/// limit those.
const LONGEST: usize = 1024;
/// The target when none is given, or it is invalid.
const DEFAULT: &str = "/";

/// Where a browser goes: a path and query at an origin of the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedirectTarget {
    pub(crate) origin: Origin,
    pub(crate) path: String,
}

impl RedirectTarget {
    /// The full address.
    pub(crate) fn address(&self) -> String {
        format!("{}{}", self.origin.text, self.path)
    }

    /// The address as a reference from a page at `here`.
    pub(crate) fn seen_from(&self, here: &Origin) -> String {
        if self.origin == *here { self.path.clone() } else { self.address() }
    }
}

impl LoginConfig {
    /// The validated target that a request at `here` names. It is at the same origin, or, where all
    /// origins share a session, at any of them.
    pub(crate) fn target(&self, requested: Option<&str>, here: &Origin) -> RedirectTarget {
        let elsewhere = requested.filter(|_| self.shared.is_some()).and_then(|text| self.at_any_origin(text));
        elsewhere.unwrap_or_else(|| RedirectTarget { path: target(requested, here), origin: here.clone() })
    }

    /// A full https address at one of the origins.
    fn at_any_origin(&self, requested: &str) -> Option<RedirectTarget> {
        let rest = requested.strip_prefix("https://")?;
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // Browsers write names as A-labels, and everything else here would be read in two ways.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
        if !host.bytes().all(is_plain) {
            return None;
        }
        let raw = RawRequest {
            method: "GET",
            scheme: Scheme::Https,
            authority: None,
            host: Some(host.as_bytes()),
            target: b"/",
        };
        let authority = Canonical::parse(&raw).ok()?.authority().to_owned();
        let origin = self.named_origin(&authority).filter(|origin| origin.scheme == Scheme::Https)?;
        let path = if path.is_empty() { DEFAULT.to_owned() } else { target(Some(path), &origin) };
        Some(RedirectTarget { origin, path })
    }
}

/// The validated target at one origin: path and query.
fn target(requested: Option<&str>, origin: &Origin) -> String {
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
    use super::*;
    use crate::config::{SharedSession, WildcardOrigin};
    use crate::test_support::config;

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

    fn origin(text: &str) -> Origin {
        let authority = text.split_once("://").unwrap().1;
        Origin { scheme: Scheme::Https, authority: authority.into(), text: text.into() }
    }

    #[test]
    fn one_session_leads_to_all_of_its_hosts() {
        let here = origin("https://auth.example.com");
        let mut config = config(vec![here.clone(), origin("https://example.com")]);
        config.shared = Some(SharedSession { domain: "example.com".into(), callback: Some(0) });
        config.wildcards = vec![WildcardOrigin { suffix: ".apps.example.com".into() }];
        for (requested, goes) in [
            ("/a", "https://auth.example.com/a"),
            ("https://auth.example.com/a", "https://auth.example.com/a"),
            ("https://example.com", "https://example.com/"),
            ("https://EXAMPLE.com:443/a?b#c", "https://example.com/a?b"),
            ("https://one.apps.example.com/a/b?c=d", "https://one.apps.example.com/a/b?c=d"),
            ("https://a.b.apps.example.com/", "https://a.b.apps.example.com/"),
            // The host is one of ours, and the path is not one.
            ("https://one.apps.example.com//evil.test", "https://one.apps.example.com/"),
            ("https://one.apps.example.com?a", "https://one.apps.example.com/"),
            ("https://one.apps.example.com/../x", "https://one.apps.example.com/"),
        ] {
            let target = config.target(Some(requested), &here);
            assert_eq!(target.address(), goes, "{requested}");
            assert_eq!(config.target(Some(&target.seen_from(&here)), &here), target, "{requested}");
        }
        for foreign in [
            "https://apps.example.com/",
            "https://other.example.com/",
            "https://one.apps.example.com:8443/",
            "https://one.apps.example.com.evil.test/",
            "https://one.apps.example.com@evil.test/",
            "https://evil.test/one.apps.example.com",
            "https://evil.test\\.apps.example.com/",
            "https://evil.test%2f.apps.example.com/",
            "https://evil.test?.apps.example.com/",
            "https://evil.test#.apps.example.com",
            "https:///one.apps.example.com/",
            "https:one.apps.example.com/",
            "https://.apps.example.com/",
            "https://a..apps.example.com/",
            "http://one.apps.example.com/",
            "//one.apps.example.com/",
            "https:// one.apps.example.com/",
            "https://\u{ff4f}ne.apps.example.com/",
            "https://one.apps.example.com\r\nset-cookie: a=b/",
        ] {
            assert_eq!(
                config.target(Some(foreign), &here).address(),
                "https://auth.example.com/",
                "{foreign:?}"
            );
        }
        // Each origin has a session of its own.
        let single = crate::test_support::config(vec![here.clone(), origin("https://example.com")]);
        assert_eq!(
            single.target(Some("https://example.com/a"), &here).address(),
            "https://auth.example.com/"
        );
    }
}
