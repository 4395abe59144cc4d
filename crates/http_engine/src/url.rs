//! URLs of servers that the gateway sends its own requests to.

use std::net::IpAddr;

use rustls_pki_types::ServerName;

/// An absolute `http` or `https` URL without user information or fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    https: bool,
    /// Host without brackets, in lower case.
    host: Box<str>,
    port: u16,
    /// Host and port, in the form of the `Host` field.
    authority: Box<str>,
    /// Path and query in origin form.
    target: Box<str>,
}

/// Why a URL was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// It is not a valid URL.
    #[error("{0:?} is not a URL")]
    Syntax(String),
    /// Another scheme, or none.
    #[error("{0:?} is not an absolute https URL (http is for development only)")]
    Scheme(String),
    /// The authority contains user information.
    #[error("the URL has user information before its host: remove it")]
    UserInfo,
    /// It has a fragment after `#`.
    #[error("{0:?} has a fragment, which is never sent: remove it")]
    Fragment(String),
}

impl Url {
    /// Parses a URL (RFC 3986), strictly.
    ///
    /// # Errors
    /// See [`UrlFault`]; no message contains user information.
    pub fn parse(text: &str) -> Result<Self, UrlFault> {
        let shown = || text.chars().take(200).collect::<String>();
        let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
        if after_scheme.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
            return Err(UrlFault::UserInfo);
        }
        if text.contains('#') {
            return Err(UrlFault::Fragment(shown()));
        }
        let uri: http::Uri = text.parse().map_err(|_| UrlFault::Syntax(shown()))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlFault::Scheme(shown())),
        };
        let authority = uri.authority().ok_or_else(|| UrlFault::Syntax(shown()))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // `host:` and `host:99999` parse as an authority without a port.
        let explicit = authority.as_str().len() != authority.host().len();
        let port = match (explicit, authority.port_u16()) {
            (true, None | Some(0)) => return Err(UrlFault::Syntax(shown())),
            (_, port) => port.unwrap_or(if https { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err(UrlFault::Syntax(shown()));
        }
        let target = match uri.path_and_query().map_or("/", |target| target.as_str()) {
            target if target.starts_with('/') => target.into(),
            query => format!("/{query}").into(),
        };
        Ok(Self { https, host: host.into(), port, authority: authority.as_str().into(), target })
    }

    /// Whether the scheme is `https`.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Host without brackets, and port: the address to connect to.
    pub fn endpoint(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Value of the `Host` field.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query: the request target in origin form.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The name that the certificate must contain; `None` if the host cannot be in a certificate.
    pub fn server_name(&self) -> Option<ServerName<'static>> {
        ServerName::try_from(self.host.to_string()).ok()
    }

    /// Whether the host is this machine, as an IP literal or by its reserved name (RFC 6761 section
    /// 6.3).
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => &*self.host == "localhost" || self.host.ends_with(".localhost"),
        }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_apart() {
        let url = Url::parse("https://Idp.Example/realms/x/certs?v=1").unwrap();
        assert!(url.is_https());
        assert_eq!(url.endpoint(), ("idp.example", 443));
        assert_eq!((url.authority(), url.target()), ("Idp.Example", "/realms/x/certs?v=1"));
        assert_eq!(url.to_string(), "https://Idp.Example/realms/x/certs?v=1");
        let url = Url::parse("http://[::1]:8080").unwrap();
        assert_eq!((url.endpoint(), url.authority(), url.target()), (("::1", 8080), "[::1]:8080", "/"));
        assert!(url.is_loopback() && url.server_name().is_some());
        assert_eq!(Url::parse("http://a?x").unwrap().target(), "/?x");
    }

    #[test]
    fn loopback_is_told_from_what_looks_like_it() {
        for yes in ["http://localhost", "http://127.0.0.2:1", "http://[::1]/", "http://a.localhost"] {
            assert!(Url::parse(yes).unwrap().is_loopback(), "{yes}");
        }
        for no in
            ["http://localhost.example", "http://128.0.0.1", "http://127.0.0.1.example", "http://xlocalhost"]
        {
            assert!(!Url::parse(no).unwrap().is_loopback(), "{no}");
        }
    }

    #[test]
    fn what_is_not_an_absolute_http_url_is_refused() {
        for text in ["", "idp.example", "/path", "ftp://a/", "file:///etc/passwd", "https:a", "//a/b"] {
            let fault = Url::parse(text).unwrap_err();
            assert!(matches!(fault, UrlFault::Scheme(_) | UrlFault::Syntax(_)), "{text}: {fault}");
        }
        for text in
            ["https://", "https://a b/", "https://a:99999/", "https://a:/", "https://a:0/", "https://:1/"]
        {
            assert!(matches!(Url::parse(text), Err(UrlFault::Syntax(_))), "{text}: {:?}", Url::parse(text));
        }
        assert!(matches!(Url::parse("https://a/#x"), Err(UrlFault::Fragment(_))));
    }

    #[test]
    fn user_information_is_refused_and_not_repeated() {
        for text in ["https://user:secret@a/", "https://secret@a", "secret@a"] {
            let fault = Url::parse(text).unwrap_err();
            assert_eq!(fault, UrlFault::UserInfo);
            assert!(!fault.to_string().contains("secret"));
        }
        assert!(Url::parse("https://a/b@c").is_ok());
    }
}
