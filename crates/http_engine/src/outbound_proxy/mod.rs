//! Outbound proxies: through which HTTP proxy the process sends its own requests.
//!
//! Owns: proxy URLs, the choice of a proxy for a URL, and its exceptions ([`NoProxy`]), with the
//! meaning that Go's `net/http` gives to `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`. Does not own:
//! where the values come from (configuration), connections
//! ([`http_client`](crate::http_client)), requests to upstreams, which use no proxy.
//!
//! Flow: `Proxy::parse → OutboundProxies → for_uri` before each connection.

mod no_proxy;

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use zeroize::Zeroizing;

pub use no_proxy::{NoProxy, NoProxyEntry};

/// The proxies for the requests of the process, and the servers that are reached without one.
/// Cheap to clone; the default uses no proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OutboundProxies(Option<Arc<ProxyRules>>);

#[derive(Debug, PartialEq)]
struct ProxyRules {
    http: Option<Proxy>,
    https: Option<Proxy>,
    exceptions: NoProxy,
}

impl OutboundProxies {
    /// Proxies for `http` and for `https` URLs. `None`: the servers are reached directly.
    pub fn new(http: Option<Proxy>, https: Option<Proxy>, exceptions: NoProxy) -> Self {
        let any = http.is_some() || https.is_some();
        Self(any.then(|| Arc::new(ProxyRules { http, https, exceptions })))
    }

    /// The proxy for a URL; `None`: its server is reached directly.
    pub fn for_uri(&self, uri: &Uri) -> Option<&Proxy> {
        let rules = self.0.as_deref()?;
        let (proxy, default_port) = match uri.scheme_str() {
            Some("https") => (rules.https.as_ref()?, 443),
            Some("http") => (rules.http.as_ref()?, 80),
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        let excepted = rules.exceptions.contains(host, uri.port_u16().unwrap_or(default_port));
        (!excepted).then_some(proxy)
    }

    /// The proxies for `http` and for `https` URLs.
    pub fn by_scheme(&self) -> (Option<&Proxy>, Option<&Proxy>) {
        self.0.as_deref().map_or((None, None), |rules| (rules.http.as_ref(), rules.https.as_ref()))
    }

    /// The servers that are reached directly although there is a proxy.
    pub fn exceptions(&self) -> Option<&NoProxy> {
        self.0.as_deref().map(|rules| &rules.exceptions)
    }
}

/// An HTTP proxy. `Debug` and `Display` show no user name and no password.
#[derive(Clone)]
pub struct Proxy {
    https: bool,
    /// Host without brackets, in lower case.
    host: Box<str>,
    port: u16,
    /// Value of `Proxy-Authorization`.
    authorization: Option<HeaderValue>,
    /// Verifies an `https` proxy.
    tls: Option<Arc<ClientConfig>>,
    /// Version of `tls`: changes with the files that `tls` was built from.
    tls_version: u64,
}

impl Proxy {
    /// Parses a URL such as `http://user:password@proxy.example:3128`. Without a scheme it is
    /// `http`. User name and password may have percent escapes.
    ///
    /// # Errors
    /// See [`ProxyFault`]; no message contains user information.
    pub fn parse(text: &str) -> Result<Self, ProxyFault> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            "socks4" | "socks4a" | "socks5" | "socks5h" => return Err(ProxyFault::Socks),
            _ => return Err(ProxyFault::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if !matches!(target, "" | "/") {
            return Err(ProxyFault::Target);
        }
        let (user, address) = authority.rsplit_once('@').map_or((None, authority), |(u, a)| (Some(u), a));
        let parsed: http::uri::Authority = address.parse().map_err(|_| ProxyFault::Syntax)?;
        let host = parsed.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // `host:` and `host:99999` parse as an authority without a port.
        let port = match (parsed.as_str().len() != parsed.host().len(), parsed.port_u16()) {
            (true, None | Some(0)) => return Err(ProxyFault::Syntax),
            (_, port) => port.unwrap_or(if https { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err(ProxyFault::Syntax);
        }
        let authorization = user.map(basic).transpose()?;
        Ok(Self { https, host: host.into(), port, authorization, tls: None, tls_version: 0 })
    }

    /// Verifies the certificate of an `https` proxy with `tls`. `version` changes with the files
    /// that `tls` was built from.
    #[must_use]
    pub fn with_tls(self, tls: Arc<ClientConfig>, version: u64) -> Self {
        Self { tls: Some(tls), tls_version: version, ..self }
    }

    /// Whether the connection to the proxy itself uses TLS.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Whether the URL has a user name or password.
    pub fn has_credentials(&self) -> bool {
        self.authorization.is_some()
    }

    /// Host without brackets, and port: the address to connect to.
    pub fn endpoint(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Value of `Proxy-Authorization` (RFC 9110 section 11.7.2), which is a secret.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// TLS configuration for an `https` proxy.
    pub(crate) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }
}

/// Basic credentials (RFC 7617) of a URL's user information.
fn basic(user_information: &str) -> Result<HeaderValue, ProxyFault> {
    let (user, password) = user_information.split_once(':').unwrap_or((user_information, ""));
    let mut pair = Zeroizing::new(percent_decode_str(user).collect::<Vec<u8>>());
    if pair.contains(&b':') {
        return Err(ProxyFault::UserName);
    }
    pair.push(b':');
    pair.extend(percent_decode_str(password));
    let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(&*pair)));
    let mut value = HeaderValue::from_str(&text).map_err(|_| ProxyFault::Syntax)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Two proxies are the same when requests reach them in the same way.
impl PartialEq for Proxy {
    fn eq(&self, other: &Self) -> bool {
        self.https == other.https
            && self.endpoint() == other.endpoint()
            && self.authorization == other.authorization
            && (self.tls.is_some(), self.tls_version) == (other.tls.is_some(), other.tls_version)
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why the URL of a proxy was refused. The messages repeat no part of it, as it may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyFault {
    /// It is not a URL, or has no host.
    #[error("it is not the URL of a proxy")]
    Syntax,
    /// The scheme is neither `http` nor `https`.
    #[error("its scheme is neither http nor https")]
    Scheme,
    /// The scheme is that of a SOCKS proxy.
    #[error("SOCKS proxies are not supported")]
    Socks,
    /// It has a path or query.
    #[error("it has a path or query, which a proxy has no use for")]
    Target,
    /// The user name has a colon, which Basic credentials cannot carry.
    #[error("its user name has a colon")]
    UserName,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(text: &str) -> Proxy {
        Proxy::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    #[test]
    fn proxy_urls_are_read_with_and_without_a_scheme() {
        for (text, shown) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("cache.corp.example.com", "http://cache.corp.example.com:80"),
            ("localhost", "http://localhost:80"),
            ("http://Proxy.Example:3128/", "http://proxy.example:3128"),
            ("HTTPS://proxy.example", "https://proxy.example:443"),
            ("[fd00::1]:3128", "http://[fd00::1]:3128"),
            (" proxy:1 ", "http://proxy:1"),
        ] {
            assert_eq!(proxy(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_repeating_it() {
        for (text, fault) in [
            ("", ProxyFault::Syntax),
            ("http://", ProxyFault::Syntax),
            ("http://secret@", ProxyFault::Syntax),
            ("http://proxy:", ProxyFault::Syntax),
            ("http://proxy:0", ProxyFault::Syntax),
            ("http://proxy:99999", ProxyFault::Syntax),
            ("http://a b", ProxyFault::Syntax),
            ("foo://secret@host", ProxyFault::Scheme),
            ("socks5://proxy", ProxyFault::Socks),
            ("http://proxy/secret", ProxyFault::Target),
            ("http://proxy?secret", ProxyFault::Target),
            ("http://a%3Ab:secret@proxy", ProxyFault::UserName),
        ] {
            let refused = Proxy::parse(text).unwrap_err();
            assert_eq!(refused, fault, "{text}");
            assert!(!refused.to_string().contains("secret"));
        }
    }

    #[test]
    fn user_information_becomes_basic_credentials_that_nothing_shows() {
        for (text, pair) in [
            ("http://user:pass@proxy:3128", "user:pass"),
            ("user@proxy:3128", "user:"),
            ("http://us%40er:p%3As%25s%2Fw@proxy:3128", "us@er:p:s%s/w"),
            ("http://user:p@ss@proxy:3128", "user:p@ss"),
        ] {
            let proxy = proxy(text);
            let value = proxy.authorization().unwrap();
            assert_eq!(value, &format!("Basic {}", STANDARD.encode(pair)), "{text}");
            assert!(value.is_sensitive());
            assert_eq!(format!("{proxy} {proxy:?}"), "http://proxy:3128 http://proxy:3128");
        }
        assert!(!proxy("http://proxy:3128").has_credentials());
    }

    fn chosen(http: &str, https: &str, exceptions: &str, url: &str) -> Option<String> {
        let read = |text: &str| (!text.is_empty()).then(|| proxy(text));
        let proxies = OutboundProxies::new(read(http), read(https), NoProxy::parse(exceptions));
        proxies.for_uri(&url.parse().unwrap()).map(ToString::to_string)
    }

    #[test]
    fn each_scheme_has_its_own_proxy() {
        let both = |url| chosen("plain.example", "https://secure.example", "", url);
        assert_eq!(both("http://target.example/").as_deref(), Some("http://plain.example:80"));
        assert_eq!(both("https://target.example/").as_deref(), Some("https://secure.example:443"));
        assert_eq!(both("ftp://target.example/"), None);
        assert_eq!(chosen("plain.example", "", "", "https://target.example/"), None);
        assert_eq!(chosen("", "secure.example", "", "http://target.example/"), None);
        assert_eq!(chosen("", "", "", "http://target.example/"), None);
    }

    #[test]
    fn exceptions_see_the_host_and_the_port_of_the_url() {
        let through = |exceptions, url| chosen("proxy", "proxy", exceptions, url).is_some();
        assert!(!through("target.example", "https://Target.Example/x"));
        assert!(!through("target.example:443", "https://target.example/"));
        assert!(through("target.example:443", "http://target.example/"));
        assert!(!through("target.example:8443", "https://target.example:8443/"));
        assert!(!through("[fd00::1]:443", "https://[fd00::1]/"));
        assert!(!through("", "http://localhost:1/") && !through("", "https://[::1]/"));
    }
}
