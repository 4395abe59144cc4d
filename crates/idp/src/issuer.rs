//! Issuer: the checked issuer identifier and the addresses derived from it.
//!
//! Owns: the check that clients can compare the issuer URL byte for byte (OpenID Connect Discovery
//! 1.0 §3, RFC 8414 §2), and the URL of every endpoint below it. Does not own: what is served there
//! ([`crate::router`], [`crate::discovery`]).
//!
//! The issuer always comes from the configuration, never from a request header.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest accepted issuer URL in bytes.
pub const MAX_ISSUER: usize = 512;

/// Reason why a text is not an issuer identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerFault {
    /// It has neither `https://` nor `http://`.
    #[error("an issuer begins with https:// (http:// on loopback only)")]
    Scheme,
    /// It is longer than [`MAX_ISSUER`].
    #[error("an issuer has at most {MAX_ISSUER} bytes")]
    TooLong,
    /// It uses plain HTTP to a host that is not loopback: tokens and secrets would travel
    /// unencrypted.
    #[error("plain http is for loopback hosts only: use https")]
    PlainHttp,
    /// The host is empty, has upper-case letters or user information, or is not a host name or
    /// address.
    #[error("the host is not a lower-case host name or an address")]
    Host,
    /// The port is not a number, is zero or the scheme's default, or has leading zeros.
    #[error("the port is not a number between 1 and 65535, or is the default one: leave it out")]
    Port,
    /// It has a query or a fragment, which an issuer must not have.
    #[error("an issuer has neither query nor fragment")]
    QueryOrFragment,
    /// It ends with `/`: that would be a different identifier that looks the same.
    #[error("an issuer does not end with a slash")]
    TrailingSlash,
    /// The path has an empty or dot segment, `.well-known`, or a character other than letters,
    /// digits and `-._~`.
    #[error("a path segment is empty, a dot segment, `.well-known`, or not made of letters, digits and -._~")]
    Path,
}

/// A checked issuer identifier, for example `https://login.example.com/staff`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    url: Box<str>,
    path_at: usize,
}

impl Issuer {
    /// Checks an issuer URL (OpenID Connect Discovery 1.0 §3, RFC 8414 §2).
    ///
    /// Stricter than the standards in one respect: only the canonical spelling is accepted
    /// (lower-case host, no default port, no percent-escape), because clients compare issuers byte
    /// for byte.
    ///
    /// # Errors
    /// [`IssuerFault`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IssuerFault> {
        if text.len() > MAX_ISSUER {
            return Err(IssuerFault::TooLong);
        }
        let (rest, tls) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => return Err(IssuerFault::Scheme),
        };
        if rest.contains(['?', '#']) {
            return Err(IssuerFault::QueryOrFragment);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let loopback = check_authority(authority, if tls { 443 } else { 80 })?;
        if !tls && !loopback {
            return Err(IssuerFault::PlainHttp);
        }
        check_path(path)?;
        Ok(Self { url: text.into(), path_at: text.len() - path.len() })
    }

    /// The identifier as configured: the `iss` of every token.
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// The path: empty, or `/` and segments without a slash at the end.
    pub fn path(&self) -> &str {
        &self.url[self.path_at..]
    }

    /// The URL of an endpoint; `below` begins with a slash.
    pub fn endpoint(&self, below: &str) -> String {
        format!("{}{below}", self.url)
    }
}

/// Checks `host[:port]` and returns whether the host is loopback.
fn check_authority(authority: &str, default_port: u16) -> Result<bool, IssuerFault> {
    let (loopback, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(IssuerFault::Host)?;
        let parsed: Ipv6Addr = address.parse().map_err(|_| IssuerFault::Host)?;
        // An address has one spelling (RFC 5952).
        if parsed.to_string() != address {
            return Err(IssuerFault::Host);
        }
        (parsed.is_loopback(), port)
    } else {
        let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        (check_host(host)?, port)
    };
    if !port.is_empty() {
        check_port(port.strip_prefix(':').ok_or(IssuerFault::Host)?, default_port)?;
    }
    Ok(loopback)
}

fn check_host(host: &str) -> Result<bool, IssuerFault> {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if host.len() > 253 || !host.split('.').all(label) {
        return Err(IssuerFault::Host);
    }
    if host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit())) {
        // A name that ends in a number must be an address.
        return host.parse::<Ipv4Addr>().map(|a| a.is_loopback()).map_err(|_| IssuerFault::Host);
    }
    Ok(host == "localhost")
}

fn check_port(digits: &str, default: u16) -> Result<(), IssuerFault> {
    let port: u16 = digits.parse().map_err(|_| IssuerFault::Port)?;
    // `parse` accepts a sign and leading zeros.
    if port == 0 || port == default || port.to_string() != digits {
        return Err(IssuerFault::Port);
    }
    Ok(())
}

fn check_path(path: &str) -> Result<(), IssuerFault> {
    if path.is_empty() {
        return Ok(());
    }
    if path.ends_with('/') {
        return Err(IssuerFault::TrailingSlash);
    }
    let good = |segment: &str| {
        !matches!(segment, "" | "." | ".." | ".well-known")
            && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
    };
    // The first piece is the empty text before the leading slash.
    if path.split('/').skip(1).all(good) { Ok(()) } else { Err(IssuerFault::Path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_canonical_spelling() {
        for (url, path) in [
            ("https://login.example.com", ""),
            ("https://login.example.com:8443", ""),
            ("https://login.example.com/staff/eu-1", "/staff/eu-1"),
            ("https://10.0.0.1", ""),
            ("https://[2001:db8::1]/x", "/x"),
            ("http://127.0.0.1:9000", ""),
            ("http://127.8.0.1:9000/a", "/a"),
            ("http://localhost:9000", ""),
            ("http://[::1]:9000/~a", "/~a"),
        ] {
            let issuer = Issuer::parse(url).unwrap_or_else(|e| panic!("{url}: {e}"));
            assert_eq!((issuer.as_str(), issuer.path()), (url, path));
        }
    }

    #[test]
    fn refuses_every_other_spelling() {
        use IssuerFault::{Host, Path, PlainHttp, Port, QueryOrFragment, Scheme, TooLong, TrailingSlash};
        let long = format!("https://a/{}", "b".repeat(MAX_ISSUER));
        for (url, fault) in [
            ("", Scheme),
            ("login.example.com", Scheme),
            ("HTTPS://login.example.com", Scheme),
            ("ftp://login.example.com", Scheme),
            (long.as_str(), TooLong),
            ("http://login.example.com", PlainHttp),
            ("http://10.0.0.1", PlainHttp),
            ("https://", Host),
            ("https:///path", Host),
            ("https://Login.example.com", Host),
            ("https://user@login.example.com", Host),
            ("https://login.example.com.", Host),
            ("https://a..b", Host),
            ("https://-a", Host),
            ("https://a_b", Host),
            ("https://127.0.0.256", Host),
            ("https://1.2.3", Host),
            ("https://[::1", Host),
            ("https://[0:0::1]", Host),
            ("https://[::1]x", Host),
            ("https://a:", Port),
            ("https://a:0", Port),
            ("https://a:443", Port),
            ("http://localhost:80", Port),
            ("https://a:+8", Port),
            ("https://a:08", Port),
            ("https://a:65536", Port),
            ("https://a?x", QueryOrFragment),
            ("https://a/b#c", QueryOrFragment),
            ("https://a/", TrailingSlash),
            ("https://a/b/", TrailingSlash),
            ("https://a//b", Path),
            ("https://a/./b", Path),
            ("https://a/..", Path),
            ("https://a/%62", Path),
            ("https://a/b c", Path),
            ("https://a/.well-known/x", Path),
            ("https://a/{b}", Path),
        ] {
            assert_eq!(Issuer::parse(url), Err(fault), "{url}");
        }
    }
}
