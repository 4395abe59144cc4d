//! A browser that visits several hosts, and the attributes of the cookies that it keeps.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dataplane::harness::{Response, TestClient};

/// Lines of a navigation to a page.
pub(super) const NAVIGATE: &str = "Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n";

/// A browser with the cookies of several hosts.
#[derive(Clone)]
pub(super) struct Hosts {
    address: SocketAddr,
    /// By host, or by domain with a dot before it; and by name.
    pub(super) cookies: BTreeMap<(String, String), String>,
    /// Attributes of the last cookie of each name.
    pub(super) attributes: BTreeMap<String, String>,
}

impl Hosts {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, cookies: BTreeMap::new(), attributes: BTreeMap::new() }
    }

    /// Opens a page.
    pub(super) fn visit(&mut self, url: &str) -> Response {
        self.send("GET", url, NAVIGATE)
    }

    /// Sends a request without a body. Cookies are sent and kept as RFC 6265bis says.
    pub(super) fn send(&mut self, method: &str, url: &str, lines: &str) -> Response {
        let rest = url.strip_prefix("https://").expect("https");
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let goes_to = |place: &str| host == place || place.starts_with('.') && host.ends_with(place);
        let sent = self
            .cookies
            .iter()
            .filter(|((place, _), _)| goes_to(place) || place.strip_prefix('.') == Some(host));
        let sent: Vec<_> = sent.map(|((_, name), value)| format!("{name}={value}")).collect();
        let cookies =
            if sent.is_empty() { String::new() } else { format!("Cookie: {}\r\n", sent.join("; ")) };
        let length = if method == "GET" { "" } else { "Content-Length: 0\r\n" };
        let mut client = TestClient::connect(self.address);
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{cookies}{length}{lines}\r\n"));
        let response = if method == "HEAD" { client.head() } else { client.response() };
        for line in response.head.lines() {
            let Some((name, value)) = line.split_once(": ") else { continue };
            if name.eq_ignore_ascii_case("set-cookie") {
                self.keep(host, value);
            }
        }
        response
    }

    fn keep(&mut self, host: &str, text: &str) {
        let (pair, attributes) = text.split_once("; ").unwrap();
        let (name, value) = pair.split_once('=').unwrap();
        assert!(attributes.contains("Path=/;") && attributes.contains("Secure"), "{text}");
        assert!(text.len() <= 4096, "browsers keep no cookie of {} bytes", text.len());
        let domain = attributes.split("; ").find_map(|attribute| attribute.strip_prefix("Domain="));
        assert!(domain.is_none() || !name.starts_with("__Host-"), "{text}");
        let place = match domain {
            Some(domain) => {
                assert!(host == domain || host.ends_with(&format!(".{domain}")), "{text} of {host}");
                format!(".{domain}")
            }
            None => host.to_owned(),
        };
        self.attributes.insert(name.to_owned(), attributes.to_owned());
        let key = (place, name.to_owned());
        if attributes.contains("Max-Age=0;") {
            self.cookies.remove(&key);
        } else {
            self.cookies.insert(key, value.to_owned());
        }
    }

    /// The names of the kept cookies, each with where it is sent.
    pub(super) fn kept(&self) -> Vec<(&str, &str)> {
        self.cookies.keys().map(|(place, name)| (place.as_str(), name.as_str())).collect()
    }
}

/// Where a response leads.
pub(super) fn location(response: &Response) -> String {
    response.value("location").unwrap_or_else(|| panic!("{}\n{}", response.head, response.text())).to_owned()
}
