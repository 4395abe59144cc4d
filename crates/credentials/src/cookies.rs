//! Login cookies: finds ours among a client's cookies, keeps them from upstreams, sets them.
//!
//! Owns: names, attributes, the grammar of `Cookie` as far as it matters. Does not own: the
//! cookies' contents.
//!
//! Over TLS the names begin with `__Host-` (RFC 6265bis §4.1.3.2): no other host, not even a
//! sibling below the same domain, can set them, and browsers return them to this host alone. Plain
//! http is for the local machine.

use std::borrow::Cow;
use std::time::Duration;

use auth::request::{Field, Scheme};

/// A cookie of the login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cookie {
    /// The cookie of a session.
    Session,
    /// The cookie that identifies a browser during a login.
    Browser,
}

impl Cookie {
    const ALL: [Self; 2] = [Self::Session, Self::Browser];

    /// The cookie's name; it depends on the scheme.
    pub(crate) const fn name(self, scheme: Scheme) -> &'static str {
        match (self, scheme) {
            (Self::Session, Scheme::Https) => "__Host-postern",
            (Self::Session, Scheme::Http) => "postern",
            (Self::Browser, Scheme::Https) => "__Host-postern-login",
            (Self::Browser, Scheme::Http) => "postern-login",
        }
    }

    /// The cookie's value among a client's fields. A repeated cookie is ignored, because another
    /// party may have set one of them.
    pub fn find<'a>(self, scheme: Scheme, fields: &[Field<'a>]) -> Option<&'a [u8]> {
        let name = self.name(scheme).as_bytes();
        let mut values = crumbs(fields).filter(|(other, _)| *other == name).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (Some(value), None) if !value.is_empty() => Some(value),
            _ => None,
        }
    }

    /// A `Set-Cookie` with this value and lifetime.
    pub fn set(self, scheme: Scheme, value: &str, max_age: Duration) -> String {
        let secure = if scheme == Scheme::Https { "; Secure" } else { "" };
        format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={}{secure}",
            self.name(scheme),
            max_age.as_secs()
        )
    }

    /// A `Set-Cookie` that removes the cookie: it needs the same attributes, or browsers would keep
    /// it.
    pub fn clear(self, scheme: Scheme) -> String {
        self.set(scheme, "", Duration::ZERO)
    }
}

/// Name and value of each cookie (RFC 6265 §4.2.1); HTTP/2 sends them in several fields.
fn crumbs<'a>(fields: &[Field<'a>]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let cookies = fields.iter().filter(|field| is_cookie(field.name));
    cookies.flat_map(|field| field.value.split(|byte| *byte == b';')).map(crumb)
}

fn crumb(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii();
    match text.iter().position(|byte| *byte == b'=') {
        Some(at) => (text[..at].trim_ascii_end(), text[at + 1..].trim_ascii_start()),
        None => (text, b""),
    }
}

/// Whether a field is `Cookie`.
pub fn is_cookie(name: &str) -> bool {
    name.len() == 6 && name.eq_ignore_ascii_case("cookie")
}

/// Whether an upstream's `Set-Cookie` would replace one of our cookies. An upstream must not choose
/// the session.
pub fn sets_login_cookie(field: &Field<'_>) -> bool {
    if field.name.len() != 10 || !field.name.eq_ignore_ascii_case("set-cookie") {
        return false;
    }
    let pair = field.value.split(|byte| *byte == b';').next().unwrap_or_default();
    let is_ours = |name: &[u8]| {
        Cookie::ALL.into_iter().any(|cookie| {
            [Scheme::Https, Scheme::Http].into_iter().any(|scheme| cookie.name(scheme).as_bytes() == name)
        })
    };
    // A cookie without a name is sent back as its value, which may then read like one of ours
    // (RFC 6265bis §5.7).
    match crumb(pair) {
        (b"", value) => is_ours(crumb(value).0),
        (name, _) => is_ours(name),
    }
}

/// The part of a `Cookie` field for an upstream: all but ours, for either scheme. `None`: nothing
/// is left.
pub fn without_login_cookies(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let is_ours = |text: &[u8]| {
        let (name, _) = crumb(text);
        let known = |cookie: Cookie| {
            [Scheme::Https, Scheme::Http].into_iter().any(|scheme| cookie.name(scheme).as_bytes() == name)
        };
        Cookie::ALL.into_iter().any(known)
    };
    let mut parts = value.split(|byte| *byte == b';');
    if !parts.clone().any(is_ours) {
        return Some(Cow::Borrowed(value));
    }
    let mut left = Vec::with_capacity(value.len());
    for part in parts.by_ref().filter(|part| !is_ours(part) && !part.trim_ascii().is_empty()) {
        if !left.is_empty() {
            left.extend_from_slice(b"; ");
        }
        left.extend_from_slice(part.trim_ascii());
    }
    (!left.is_empty()).then_some(Cow::Owned(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(fields: &[(&str, &str)]) -> Option<String> {
        let fields: Vec<_> = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
        Cookie::Session.find(Scheme::Https, &fields).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn ours_is_found_among_others() {
        for value in [
            "__Host-postern=v",
            "a=b; __Host-postern=v",
            "__Host-postern=v;a=b",
            " a=b ;  __Host-postern = v ",
        ] {
            assert_eq!(session(&[("Cookie", value)]).as_deref(), Some("v"), "{value}");
        }
        assert_eq!(session(&[("cookie", "a=b"), ("cookie", "__Host-postern=a=b")]).as_deref(), Some("a=b"));
        for value in [
            "",
            "a=b",
            "postern=v",
            "__host-postern=v",
            "__Host-postern",
            "__Host-postern=",
            "x__Host-postern=v",
        ] {
            assert_eq!(session(&[("cookie", value)]), None, "{value}");
        }
    }

    #[test]
    fn one_that_is_there_twice_is_nobodys() {
        assert_eq!(session(&[("cookie", "__Host-postern=a; __Host-postern=b")]), None);
        assert_eq!(session(&[("cookie", "__Host-postern=a"), ("cookie", "__Host-postern=a")]), None);
    }

    #[test]
    fn upstreams_see_all_but_ours() {
        let left = |value: &str| {
            without_login_cookies(value.as_bytes()).map(|left| String::from_utf8_lossy(&left).into_owned())
        };
        assert_eq!(left("a=b; c=d").as_deref(), Some("a=b; c=d"));
        assert!(
            matches!(without_login_cookies(b"a=b;c"), Some(Cow::Borrowed(_))),
            "nothing of ours, nothing copied"
        );
        assert_eq!(left("__Host-postern=v"), None);
        assert_eq!(left("__Host-postern=v; __Host-postern-login=w;"), None);
        assert_eq!(left("a=b; __Host-postern=v; c=\"d e\"").as_deref(), Some("a=b; c=\"d e\""));
        assert_eq!(left("postern=v;a=b").as_deref(), Some("a=b"), "those of plain http as well");
        assert_eq!(left("__Host-postern2=v").as_deref(), Some("__Host-postern2=v"));
    }

    #[test]
    fn upstreams_set_all_but_ours() {
        let ours = |name: &str, value: &str| sets_login_cookie(&Field { name, value: value.as_bytes() });
        for value in [
            "__Host-postern=x; Path=/",
            " __Host-postern-login = x",
            "postern=x",
            "__Host-postern=;Max-Age=0",
            "=__Host-postern=x",
            " = postern=x; Path=/",
            "=postern",
        ] {
            assert!(ours("Set-Cookie", value), "{value}");
        }
        for value in ["theme=dark", "__Host-postern_session=x", "a=__Host-postern=x", ""] {
            assert!(!ours("set-cookie", value), "{value}");
        }
        assert!(!ours("cookie", "__Host-postern=x"));
    }

    #[test]
    fn they_are_set_and_taken_away_with_the_same_attributes() {
        let set = Cookie::Session.set(Scheme::Https, "v", Duration::from_mins(1));
        assert_eq!(set, "__Host-postern=v; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure");
        let clear = Cookie::Session.clear(Scheme::Https);
        assert_eq!(clear, "__Host-postern=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0; Secure");
        assert_eq!(
            Cookie::Browser.clear(Scheme::Http),
            "postern-login=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"
        );
    }
}
