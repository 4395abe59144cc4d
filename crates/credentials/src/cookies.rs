//! Login cookies: finds ours among a client's cookies, keeps them from upstreams, sets them.
//!
//! Owns: names, attributes, the grammar of `Cookie` as far as it matters. Does not own: the
//! cookies' contents.
//!
//! Over TLS the names begin with `__Host-` (RFC 6265bis §4.1.3.2): no other host, not even a
//! sibling below the same domain, can set them, and browsers return them to this host alone. A
//! session for the hosts of a parent domain has `__Secure-` instead (§4.1.3.1): any of these hosts
//! can read and set its cookie. Plain http is for the local machine.

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

/// Which hosts and pages a cookie of the login is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieReach<'a> {
    /// Scheme by which browsers connect.
    pub scheme: Scheme,
    /// Parent domain of the hosts that share a session; `None`: one host.
    pub domain: Option<&'a str>,
    /// Whether browsers keep it in frames of another site too, apart for each site (CHIPS).
    pub in_frames: bool,
}

impl Cookie {
    /// The cookie's name.
    fn name(self, reach: CookieReach<'_>) -> &'static str {
        match (self, reach.scheme, self.domain(reach)) {
            (Self::Session, Scheme::Https, Some(_)) => "__Secure-postern",
            (Self::Session, Scheme::Https, None) => "__Host-postern",
            (Self::Session, Scheme::Http, _) => "postern",
            (Self::Browser, Scheme::Https, _) => "__Host-postern-login",
            (Self::Browser, Scheme::Http, _) => "postern-login",
        }
    }

    /// The domain of the cookie. A login in progress belongs to one host: no sibling may begin it.
    fn domain(self, reach: CookieReach<'_>) -> Option<&str> {
        reach.domain.filter(|_| self == Self::Session)
    }

    /// The cookie's value among a client's fields. A repeated cookie is ignored, because another
    /// party may have set one of them.
    pub fn find<'a>(self, reach: CookieReach<'_>, fields: &[Field<'a>]) -> Option<&'a [u8]> {
        let name = self.name(reach).as_bytes();
        let mut values = crumbs(fields).filter(|(other, _)| *other == name).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (Some(value), None) if !value.is_empty() => Some(value),
            _ => None,
        }
    }

    /// A `Set-Cookie` with this value and lifetime.
    pub fn set(self, reach: CookieReach<'_>, value: &str, max_age: Duration) -> String {
        let (name, seconds) = (self.name(reach), max_age.as_secs());
        let same_site = if reach.in_frames { "None" } else { "Lax" };
        let mut cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite={same_site}; Max-Age={seconds}");
        if reach.scheme == Scheme::Https {
            cookie.push_str("; Secure");
        }
        if let Some(domain) = self.domain(reach) {
            cookie.push_str("; Domain=");
            cookie.push_str(domain);
        }
        if reach.in_frames {
            cookie.push_str("; Partitioned");
        }
        cookie
    }

    /// A `Set-Cookie` that removes the cookie: it needs the same attributes, or browsers would keep
    /// it.
    pub fn clear(self, reach: CookieReach<'_>) -> String {
        self.set(reach, "", Duration::ZERO)
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
    // A cookie without a name is sent back as its value, which may then read like one of ours
    // (RFC 6265bis §5.7).
    match crumb(pair) {
        (b"", value) => is_login_cookie(crumb(value).0),
        (name, _) => is_login_cookie(name),
    }
}

/// Whether a name is one of our cookies', for whichever hosts and scheme.
fn is_login_cookie(name: &[u8]) -> bool {
    let bare = name.strip_prefix(b"__Host-").or_else(|| name.strip_prefix(b"__Secure-")).unwrap_or(name);
    matches!(bare, b"postern" | b"postern-login")
}

/// The part of a `Cookie` field for an upstream: all but ours, for whichever hosts and scheme.
/// `None`: nothing is left.
pub fn without_login_cookies(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let is_ours = |text: &[u8]| is_login_cookie(crumb(text).0);
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

    const HTTPS: CookieReach<'_> = CookieReach { scheme: Scheme::Https, domain: None, in_frames: false };
    const HTTP: CookieReach<'_> = CookieReach { scheme: Scheme::Http, ..HTTPS };
    const DOMAIN: CookieReach<'_> = CookieReach { domain: Some("example.com"), ..HTTPS };
    const FRAMED: CookieReach<'_> = CookieReach { in_frames: true, ..HTTPS };

    fn session_in(reach: CookieReach<'_>, fields: &[(&str, &str)]) -> Option<String> {
        let fields: Vec<_> = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
        Cookie::Session.find(reach, &fields).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    fn session(fields: &[(&str, &str)]) -> Option<String> {
        session_in(HTTPS, fields)
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
        assert_eq!(left("__Secure-postern=v"), None, "those of a domain as well");
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
            "__Secure-postern=x; Domain=example.com",
            "__Secure-postern-login=x",
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
        let set = Cookie::Session.set(HTTPS, "v", Duration::from_mins(1));
        assert_eq!(set, "__Host-postern=v; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure");
        let clear = Cookie::Session.clear(HTTPS);
        assert_eq!(clear, "__Host-postern=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0; Secure");
        assert_eq!(Cookie::Browser.clear(HTTP), "postern-login=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0");
    }

    #[test]
    fn a_session_of_a_domain_has_a_name_of_its_own() {
        let set = Cookie::Session.set(DOMAIN, "v", Duration::from_mins(1));
        assert_eq!(
            set,
            "__Secure-postern=v; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure; Domain=example.com"
        );
        let browser = Cookie::Browser.set(DOMAIN, "v", Duration::from_mins(1));
        assert_eq!(browser, Cookie::Browser.set(HTTPS, "v", Duration::from_mins(1)), "a login has one host");
        let both = [("cookie", "__Host-postern=host; __Secure-postern=domain")];
        assert_eq!(session_in(DOMAIN, &both).as_deref(), Some("domain"));
        assert_eq!(session_in(HTTPS, &both).as_deref(), Some("host"));
        // A sibling host can set it for a path of its own, and browsers then send both.
        assert_eq!(session_in(DOMAIN, &[("cookie", "__Secure-postern=a; __Secure-postern=b")]), None);
    }

    #[test]
    fn a_cookie_for_frames_is_partitioned() {
        for cookie in [Cookie::Session, Cookie::Browser] {
            let set = cookie.set(FRAMED, "v", Duration::from_mins(1));
            let attributes = "v; Path=/; HttpOnly; SameSite=None; Max-Age=60; Secure; Partitioned";
            assert_eq!(set.split_once('=').unwrap().1, attributes);
            assert!(set.starts_with("__Host-postern"), "{set}");
        }
    }

    #[test]
    fn every_name_is_known_as_ours() {
        for cookie in [Cookie::Session, Cookie::Browser] {
            for reach in [HTTPS, HTTP, DOMAIN, FRAMED] {
                assert!(is_login_cookie(cookie.name(reach).as_bytes()), "{cookie:?} {reach:?}");
            }
        }
    }
}
