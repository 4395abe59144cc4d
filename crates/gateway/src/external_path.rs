//! External path: turns the paths that an upstream names in its response back into those that
//! clients use, where the gateway removes or replaces a prefix.
//!
//! Owns: `Location`, `Content-Location` and the path of cookies. Does not own: the path of the
//! request ([`crate::forward_filter`]), bodies, which pass unread.

use auth::request::Field;

use crate::config::Rewrite;

/// How paths of the upstream become paths of clients.
pub(crate) struct ExternalPath {
    /// The prefix that clients use, without a slash at its end.
    external: Box<str>,
    /// The prefix that the upstream uses instead; empty: none.
    internal: Box<str>,
    /// Scheme and authority of the request, as in a URL.
    origin: String,
    /// Authorities that mean this upstream: that of the request, and those of its endpoints.
    authorities: Vec<String>,
}

impl ExternalPath {
    /// `None`: paths cannot be changed back.
    pub(crate) fn new(rewrite: &Rewrite, origin: String, authorities: Vec<String>) -> Option<Self> {
        let (external, internal) = match rewrite {
            Rewrite::StripPrefix(prefix) => (prefix, ""),
            Rewrite::ReplacePrefix { from, to } => (from, &**to),
            // Many paths became one.
            Rewrite::ReplacePath(_) => return None,
        };
        let trim = |path: &str| path.strip_suffix('/').unwrap_or(path).into();
        Some(Self { external: trim(external), internal: trim(internal), origin, authorities })
    }

    /// The value for the client, if it differs.
    pub(crate) fn rewrite(&self, field: &Field<'_>) -> Option<Vec<u8>> {
        let value = || str::from_utf8(field.value).ok();
        match field.name.len() {
            8 if field.name.eq_ignore_ascii_case("location") => self.reference(value()?),
            16 if field.name.eq_ignore_ascii_case("content-location") => self.reference(value()?),
            10 if field.name.eq_ignore_ascii_case("set-cookie") => self.cookie(value()?),
            _ => None,
        }
        .map(String::into_bytes)
    }

    /// A URI reference (RFC 3986 §4.1). A relative path needs no change: clients resolve it against
    /// the path that they used.
    fn reference(&self, text: &str) -> Option<String> {
        let after_scheme = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let Some(rest) = after_scheme.or_else(|| text.strip_prefix("//")) else {
            return self.path(text);
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !self.authorities.iter().any(|own| own.eq_ignore_ascii_case(authority)) {
            return None;
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let path = self.path(&path).unwrap_or(path);
        Some(format!("{}{path}", self.origin)).filter(|url| url != text)
    }

    /// An absolute path, perhaps with a query and a fragment. An upstream that knows its external
    /// prefix (`X-Forwarded-Prefix`) names it itself.
    fn path(&self, path: &str) -> Option<String> {
        if !path.starts_with('/') || is_below(path, &self.external) {
            return None;
        }
        is_below(path, &self.internal).then(|| format!("{}{}", self.external, &path[self.internal.len()..]))
    }

    /// `Set-Cookie` (RFC 6265 §4.1). Its `Path` says below which path browsers send the cookie.
    fn cookie(&self, cookie: &str) -> Option<String> {
        let mut changed = false;
        let parts = cookie.split(';').enumerate().map(|(index, part)| {
            let attribute = part
                .split_once('=')
                .filter(|(name, _)| index > 0 && name.trim().eq_ignore_ascii_case("path"));
            let path = attribute.and_then(|(_, path)| self.path(path.trim()));
            match path {
                Some(path) => {
                    changed = true;
                    // `/` would exclude the prefix itself.
                    format!(
                        " Path={}",
                        path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(&path)
                    )
                }
                None => part.to_owned(),
            }
        });
        let text = parts.collect::<Vec<_>>().join(";");
        changed.then_some(text)
    }
}

/// Whether a path is a prefix or below it.
fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(rewrite: &Rewrite, name: &str, value: &str) -> String {
        let authorities = vec!["app.example".to_owned(), "10.0.0.1:9000".to_owned()];
        let path = ExternalPath::new(rewrite, "https://app.example".into(), authorities).unwrap();
        let field = Field { name, value: value.as_bytes() };
        path.rewrite(&field).map_or_else(|| "-".into(), |value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn locations_lead_to_the_external_path() {
        let strip = Rewrite::StripPrefix("/app".into());
        let replace = Rewrite::ReplacePrefix { from: "/v1".into(), to: "/internal/v1".into() };
        for (rewrite, value, expected) in [
            (&strip, "/login?a=/b", "/app/login?a=/b"),
            (&strip, "/", "/app/"),
            (&strip, "login", "-"),
            (&strip, "?a", "-"),
            (&strip, "/app/login", "-"),
            (&strip, "/apps", "/app/apps"),
            (&strip, "http://app.example/x", "https://app.example/app/x"),
            (&strip, "https://APP.example/x#y", "https://app.example/app/x#y"),
            (&strip, "http://10.0.0.1:9000", "https://app.example/app/"),
            (&strip, "//app.example/x", "https://app.example/app/x"),
            (&strip, "https://app.example/app/x", "-"),
            (&strip, "https://other.example/x", "-"),
            (&strip, "//other.example/x", "-"),
            (&strip, "mailto:a@b", "-"),
            (&replace, "/internal/v1/x", "/v1/x"),
            (&replace, "/internal/v1", "/v1"),
            (&replace, "/internal/v10", "-"),
            (&replace, "/other", "-"),
        ] {
            assert_eq!(rewritten(rewrite, "Location", value), expected, "{value}");
        }
    }

    #[test]
    fn cookies_are_sent_below_the_external_path() {
        let strip = Rewrite::StripPrefix("/app/".into());
        for (cookie, expected) in [
            ("a=b; Path=/; HttpOnly", "a=b; Path=/app; HttpOnly"),
            ("a=b;path=/x", "a=b; Path=/app/x"),
            ("a=b", "-"),
            ("a=b; Path=/app", "-"),
            ("path=/x; Secure", "-"),
            ("a=b; Path=", "-"),
        ] {
            assert_eq!(rewritten(&strip, "set-cookie", cookie), expected, "{cookie}");
        }
        assert_eq!(rewritten(&strip, "X-Location", "/a"), "-");
    }
}
