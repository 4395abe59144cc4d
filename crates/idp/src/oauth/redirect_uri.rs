//! Redirect URIs: where authorization responses may be sent (RFC 6749 §3.1.2).
//!
//! Owns: which URIs may be registered, and the comparison of a requested URI with a registered one.
//! Does not own: the URIs of each client.

use std::net::Ipv6Addr;

/// Longest redirect URI in bytes.
pub const MAX_REDIRECT: usize = 2048;

/// Reason why a URI cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedirectFault {
    /// It is longer than [`MAX_REDIRECT`].
    #[error("a redirect URI has at most {MAX_REDIRECT} bytes")]
    TooLong,
    /// It has a character that is not allowed in a URI (RFC 3986 §2), or `%` without two
    /// hexadecimal digits.
    #[error("a redirect URI is made of the characters of RFC 3986; percent-encode others")]
    Character,
    /// It has a fragment (RFC 6749 §3.1.2).
    #[error("redirect URI has a fragment: remove it")]
    Fragment,
    /// It has no scheme, or none of the three supported kinds.
    #[error(
        "a redirect URI begins with https://, with http:// on loopback, or with the scheme of a native app as in \
         com.example.app:/callback or vscode://callback"
    )]
    Scheme,
    /// Its scheme runs code, or names a resource that every program can read.
    #[error("a redirect URI cannot have this scheme: use https, or the scheme of a native app")]
    Dangerous,
    /// It uses plain HTTP to a host that is not loopback: codes would travel unencrypted.
    #[error("a redirect URI with plain http is for loopback hosts only: use https")]
    PlainHttp,
    /// It looks like a pattern: the last path segment is a star, or the host contains one. Other
    /// providers treat it as a pattern; here no request would match it. A star elsewhere in the
    /// path or in the query is an ordinary character.
    #[error("redirect URI is a pattern, which is not supported: register each URI")]
    Pattern,
    /// It has user information, an empty host, or a port that is not a number.
    #[error("a redirect URI has a host, perhaps a port, and no user information")]
    Authority,
}

/// Schemes with a meaning of their own, which no native app can claim.
const NOT_OF_APPS: [&str; 22] = [
    "about",
    "blob",
    "chrome",
    "content",
    "cid",
    "data",
    "file",
    "filesystem",
    "ftp",
    "geo",
    "intent",
    "jar",
    "javascript",
    "mailto",
    "mid",
    "sms",
    "tel",
    "urn",
    "vbscript",
    "view-source",
    "ws",
    "wss",
];

/// A registered redirect URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectUri {
    text: Box<str>,
    /// Offset of the port and the rest, if the host is a loopback address, or `localhost`, over plain
    /// HTTP.
    loopback_port_offset: Option<usize>,
}

impl RedirectUri {
    /// Checks a URI for registration.
    ///
    /// # Errors
    /// [`RedirectFault`] when it cannot be registered.
    pub fn parse(text: &str) -> Result<Self, RedirectFault> {
        if text.len() > MAX_REDIRECT {
            return Err(RedirectFault::TooLong);
        }
        if text.contains('#') {
            return Err(RedirectFault::Fragment);
        }
        if !is_uri_text(text) {
            return Err(RedirectFault::Character);
        }
        let (scheme, rest) = text.split_once(':').ok_or(RedirectFault::Scheme)?;
        let before_query = rest.split_once('?').map_or(rest, |(path, _)| path);
        if before_query.ends_with("/*") {
            return Err(RedirectFault::Pattern);
        }
        let any_port_at = match scheme {
            "https" | "http" => {
                let authority = rest.strip_prefix("//").ok_or(RedirectFault::Scheme)?;
                if authority.split(['/', '?']).next().is_some_and(|host| host.contains('*')) {
                    return Err(RedirectFault::Pattern);
                }
                let (host, _) = split_authority(authority).ok_or(RedirectFault::Authority)?;
                let loopback = matches!(host, "127.0.0.1" | "[::1]" | "localhost");
                // Browsers resolve names below `localhost` to loopback (RFC 6761 §6.3).
                if scheme == "http" && !loopback && !host.ends_with(".localhost") {
                    return Err(RedirectFault::PlainHttp);
                }
                (scheme == "http" && loopback).then(|| "http://".len() + host.len())
            }
            _ if NOT_OF_APPS.contains(&scheme) => return Err(RedirectFault::Dangerous),
            // RFC 8252 §7.1 recommends a reversed domain, which apps such as editors do not use.
            _ if is_scheme(scheme) && rest.starts_with('/') => None,
            _ => return Err(RedirectFault::Scheme),
        };
        Ok(Self { text: text.into(), loopback_port_offset: any_port_at })
    }

    /// The URI as registered.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its host as registered; `None`: it leads to an app by a scheme of the app's own.
    pub fn host(&self) -> Option<&str> {
        let authority = self.text.strip_prefix("https://").or_else(|| self.text.strip_prefix("http://"))?;
        split_authority(authority).map(|(host, _)| host)
    }

    /// Whether `requested` equals this URI, byte for byte. Only the port of a loopback address or of
    /// `localhost` may differ, because a native app gets it when it starts (RFC 8252 §7.3, §8.3).
    pub fn matches(&self, requested: &str) -> bool {
        if *self.text == *requested {
            return true;
        }
        let Some(at) = self.loopback_port_offset else { return false };
        let (host, own) = self.text.split_at(at);
        requested.strip_prefix(host).is_some_and(|requested| {
            match (without_port(own), without_port(requested)) {
                (Some(own), Some(requested)) => own == requested,
                _ => false,
            }
        })
    }
}

/// Whether a redirect URI leads to an app by a scheme of the app's own (RFC 8252 §7.1). Another app
/// on the same device can claim the scheme, so only PKCE protects the code.
pub fn is_private_use(uri: &str) -> bool {
    !uri.starts_with("https:") && !uri.starts_with("http:")
}

/// The text after an optional port, if a path, a query or nothing follows.
fn without_port(text: &str) -> Option<&str> {
    let rest = match text.strip_prefix(':') {
        None => text,
        Some(port) => {
            let end = port.find(['/', '?']).unwrap_or(port.len());
            is_port(&port[..end]).then_some(&port[end..])?
        }
    };
    (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Host and port of a text that begins with an authority.
fn split_authority(text: &str) -> Option<(&str, &str)> {
    let authority = &text[..text.find(['/', '?']).unwrap_or(text.len())];
    if authority.contains('@') {
        return None;
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let end = inner.find(']')?;
            inner[..end].parse::<Ipv6Addr>().ok()?;
            authority.split_at(end + 2)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    let named = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let host_fits = host.starts_with('[') || (!host.is_empty() && host.bytes().all(named));
    (port_fits && host_fits).then_some((host, port))
}

/// RFC 3986 §3.1, in lower case, as browsers write it.
fn is_scheme(scheme: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
    scheme.starts_with(|c: char| c.is_ascii_lowercase()) && scheme.bytes().all(fits)
}

fn is_uri_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=%".contains(&b);
    let escaped = |at: usize| bytes.get(at + 1..at + 3).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit));
    bytes.iter().enumerate().all(|(at, &b)| allowed(b) && (b != b'%' || escaped(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(registered: &str, requested: &str) -> bool {
        RedirectUri::parse(registered).unwrap().matches(requested)
    }

    #[test]
    fn what_may_be_registered() {
        for good in [
            "https://app.example/callback",
            "https://app.example",
            "https://app.example:8443/callback?tenant=a%20b",
            "https://[2001:db8::1]/cb",
            "http://127.0.0.1/cb",
            "http://127.0.0.1:7777",
            "http://[::1]:7777/cb",
            "http://localhost:3000/cb",
            "com.example.app:/callback",
            "com.example.app://callback",
            "vscode://vendor.extension/callback",
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "app:/callback",
            "http://app.localhost:3000/cb",
            "https://app.example/callback?of=*",
            "https://app.example/callback?of=/*",
            "https://app.example/*/cb",
            "https://app.example/cb*",
        ] {
            assert_eq!(RedirectUri::parse(good).map(|u| u.as_str().to_owned()), Ok(good.to_owned()));
        }
        for (bad, fault) in [
            ("https://app.example/#x", RedirectFault::Fragment),
            ("https://app.example/*", RedirectFault::Pattern),
            ("https://app.example/*?of=1", RedirectFault::Pattern),
            ("https://*.app.example/cb", RedirectFault::Pattern),
            ("https://*", RedirectFault::Pattern),
            ("http://127.0.0.1:*/cb", RedirectFault::Pattern),
            ("com.example.app:/*", RedirectFault::Pattern),
            ("https://app.example/a b", RedirectFault::Character),
            ("https://app.example/\\evil", RedirectFault::Character),
            ("https://app.example/%2", RedirectFault::Character),
            ("https://äpp.example/", RedirectFault::Character),
            ("/callback", RedirectFault::Scheme),
            ("//app.example/cb", RedirectFault::Scheme),
            ("https:app.example", RedirectFault::Scheme),
            ("HTTPS://app.example/cb", RedirectFault::Scheme),
            ("javascript:alert(1)", RedirectFault::Dangerous),
            ("javascript://x/%0aalert(1)", RedirectFault::Dangerous),
            ("data:text/html,x", RedirectFault::Dangerous),
            ("file:///etc/passwd", RedirectFault::Dangerous),
            ("VSCODE://callback", RedirectFault::Scheme),
            ("JavaScript://x/", RedirectFault::Scheme),
            ("vscode:callback", RedirectFault::Scheme),
            ("1app:/callback", RedirectFault::Scheme),
            ("http://localhost.example/cb", RedirectFault::PlainHttp),
            ("http://xlocalhost/cb", RedirectFault::PlainHttp),
            ("com.example.app:callback", RedirectFault::Scheme),
            ("http://app.example/cb", RedirectFault::PlainHttp),
            ("http://127.0.0.1.evil.example/cb", RedirectFault::PlainHttp),
            ("https://", RedirectFault::Authority),
            ("https:///cb", RedirectFault::Authority),
            ("https://user@app.example/cb", RedirectFault::Authority),
            ("https://app.example:0/cb", RedirectFault::Authority),
            ("https://app.example:x/cb", RedirectFault::Authority),
            ("https://[::1/cb", RedirectFault::Authority),
        ] {
            assert_eq!(RedirectUri::parse(bad), Err(fault), "{bad:?}");
        }
        let long = format!("https://app.example/{}", "a".repeat(MAX_REDIRECT));
        assert_eq!(RedirectUri::parse(&long), Err(RedirectFault::TooLong));
    }

    #[test]
    fn what_is_asked_matches_byte_for_byte() {
        let registered = "https://app.example/callback?tenant=a";
        assert!(admits(registered, registered));
        for other in [
            "https://app.example/callback",
            "https://app.example/callback?tenant=a&x=y",
            "https://app.example/callback/?tenant=a",
            "https://app.example/callback?tenant=A",
            "https://APP.example/callback?tenant=a",
            "https://app.example:443/callback?tenant=a",
            "https://app.example/x/../callback?tenant=a",
            "https://app.example.evil.example/callback?tenant=a",
            "https://app.example/%63allback?tenant=a",
            "",
        ] {
            assert!(!admits(registered, other), "{other:?}");
        }
    }

    #[test]
    fn the_port_of_a_loopback_address_is_free() {
        for registered in ["http://127.0.0.1/cb", "http://127.0.0.1:1/cb"] {
            for requested in ["http://127.0.0.1/cb", "http://127.0.0.1:52111/cb"] {
                assert!(admits(registered, requested), "{registered} {requested}");
            }
            for requested in [
                "http://127.0.0.1:52111/cb2",
                "http://127.0.0.1:52111",
                "http://127.0.0.1:/cb",
                "http://127.0.0.1:0/cb",
                "http://127.0.0.1:99999/cb",
                "http://127.0.0.1:+1/cb",
                "http://127.0.0.1:1@evil.example/cb",
                "http://127.0.0.12/cb",
                "http://127.0.0.1.evil.example/cb",
                "https://127.0.0.1:52111/cb",
                "http://[::1]/cb",
            ] {
                assert!(!admits(registered, requested), "{registered} {requested}");
            }
        }
        assert!(admits("http://[::1]/cb", "http://[::1]:9/cb"));
        assert!(admits("http://localhost:1/cb", "http://localhost:2/cb"));
        assert!(admits("http://localhost/cb", "http://localhost:52111/cb"));
        for requested in
            ["http://localhost.example:1/cb", "http://localhost:1@x.example/cb", "http://127.0.0.1:1/cb"]
        {
            assert!(!admits("http://localhost/cb", requested), "{requested}");
        }
        assert!(!admits("http://app.localhost:1/cb", "http://app.localhost:2/cb"), "a site, not an app");
        assert!(!admits("https://127.0.0.1:1/cb", "https://127.0.0.1:2/cb"));
    }
}
