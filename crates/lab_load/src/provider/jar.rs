//! Cookie jar: the cookies of one browser for one origin (RFC 6265), as far as a sign-in needs
//! them.
//!
//! `Secure` cookies are also sent on loopback without TLS, as browsers do.
//!
//! Owns: names, values, paths, removal. Does not own: domains, because there is only one origin,
//! and expiry times, because a sign-in ends before a cookie expires.

/// Largest number of cookies; the oldest is removed first.
const MAX_COOKIES: usize = 64;

#[derive(Debug, Clone)]
struct Cookie {
    name: String,
    value: String,
    path: String,
}

/// Cookies of one browser.
#[derive(Debug, Clone, Default)]
pub(crate) struct CookieJar(Vec<Cookie>);

impl CookieJar {
    /// Removes all cookies.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Stores or removes a cookie from a `Set-Cookie` line in the response to a request for `path`.
    pub(crate) fn store(&mut self, line: &str, path: &str) {
        let mut parts = line.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { return };
        let (name, value) = (name.trim(), value.trim());
        let mut scope = default_path(path).to_owned();
        let mut gone = false;
        for part in parts {
            let (key, given) =
                part.split_once('=').map_or((part, ""), |(key, given)| (key.trim(), given.trim()));
            if key.eq_ignore_ascii_case("path") && given.starts_with('/') {
                given.clone_into(&mut scope);
            } else if key.eq_ignore_ascii_case("max-age") {
                gone |= given.starts_with('-') || given == "0";
            } else if key.eq_ignore_ascii_case("expires") {
                gone |= given.contains(" 1970 ") || given.contains("-1970 ");
            }
        }
        self.0.retain(|had| had.name != name || had.path != scope);
        if gone || name.is_empty() {
            return;
        }
        if self.0.len() == MAX_COOKIES {
            self.0.remove(0);
        }
        self.0.push(Cookie { name: name.to_owned(), value: value.to_owned(), path: scope });
    }

    /// Value of the `Cookie` field for a request to `path`; `None` if no cookie matches.
    pub(crate) fn header(&self, path: &str) -> Option<String> {
        let path = path.split('?').next().unwrap_or_default();
        let mut sent: Vec<&Cookie> =
            self.0.iter().filter(|cookie| path_matches(&cookie.path, path)).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<String> =
            sent.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

/// Default path of a cookie: the directory of the request path (RFC 6265 §5.1.4).
fn default_path(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default();
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(last) => &path[..last],
    }
}

fn path_matches(scope: &str, path: &str) -> bool {
    path.strip_prefix(scope)
        .is_some_and(|rest| rest.is_empty() || scope.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_goes_where_its_path_says() {
        let mut jar = CookieJar::default();
        jar.store("a=1; Path=/realms/x/; Secure; HttpOnly; SameSite=None", "/realms/x/auth");
        jar.store("b=2; path=/", "/realms/x/auth");
        jar.store("c=3", "/realms/x/auth?y=/z/");
        jar.store("d=x=y==; Path=nonsense", "/");
        assert_eq!(jar.header("/realms/x/y?q").as_deref(), Some("a=1; c=3; b=2; d=x=y=="));
        assert_eq!(jar.header("/realms/xy").as_deref(), Some("b=2; d=x=y=="));
        jar.clear();
        assert_eq!(jar.header("/"), None);
    }

    #[test]
    fn a_cookie_is_replaced_and_removed() {
        let mut jar = CookieJar::default();
        jar.store("a=1; Path=/", "/");
        jar.store("a=2; Path=/", "/");
        assert_eq!(jar.header("/").as_deref(), Some("a=2"));
        jar.store("a=; Path=/; Max-Age=0", "/");
        assert_eq!(jar.header("/"), None);
        jar.store("a=1; Path=/", "/");
        jar.store("a=; Path=/; Expires=Thu, 01 Jan 1970 00:00:10 GMT", "/");
        assert_eq!(jar.header("/"), None);
        jar.store("nonsense", "/");
        (0..100).for_each(|n| jar.store(&format!("c{n}=1; Path=/"), "/"));
        assert_eq!(jar.header("/").map(|header| header.split("; ").count()), Some(MAX_COOKIES));
    }
}
