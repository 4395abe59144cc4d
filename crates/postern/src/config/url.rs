//! Addresses of other services, as the file and the command line write them.

use std::net::IpAddr;

/// An absolute `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) secure: bool,
    /// Name or address, lower case, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as the `Host` field wants them.
    pub(crate) authority: String,
    /// Path and query; at least `/`.
    pub(crate) target: String,
}

impl Url {
    /// Reads a URL; the error names what is wrong without showing a password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
        if after_scheme.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
            return Err("the URL carries a user name or password".into());
        }
        let wrong = || format!("{text:?} is not a URL that begins with http:// or https://");
        let uri: http::Uri = text.parse().map_err(|_| wrong())?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        if text.contains('#') {
            return Err(format!("{text:?} has a fragment (#), which is never sent"));
        }
        let authority = uri.authority().ok_or_else(wrong)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // `host:` and `host:99999` parse as an authority without a port
        let explicit = authority.as_str().len() != authority.host().len();
        let port = match (explicit, authority.port_u16()) {
            (true, None | Some(0)) => return Err(format!("{text:?} has a port that is no number from 1 to 65535")),
            (_, port) => port.unwrap_or(if secure { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err(wrong());
        }
        let target = match uri.path_and_query().map_or("/", |target| target.as_str()) {
            target if target.starts_with('/') => target.to_owned(),
            query => format!("/{query}"),
        };
        Ok(Self { secure, host, port, authority: authority.as_str().into(), target })
    }

    /// Whether it leads to this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = Url::parse("https://ID.example/a?b").unwrap();
        assert_eq!((url.secure, &*url.host, url.port, &*url.target), (true, "id.example", 443, "/a?b"));
        assert_eq!(Url::parse("http://[::1]:80").unwrap().host, "::1");
        assert!(Url::parse("http://[::1]:80").unwrap().is_loopback());
        assert!(Url::parse("http://127.9.9.9").unwrap().is_loopback());
        assert!(!Url::parse("http://localhost.example").unwrap().is_loopback());
    }

    #[test]
    fn what_is_no_url_is_told_without_passwords() {
        for text in ["id.example", "ftp://a", "http://", "http://a:0", "http://a:99999", "https://a/#b", "/x", ""] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        let error = Url::parse("https://me:hunter2@id.example/").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
