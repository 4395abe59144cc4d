//! Exceptions of the outbound proxies: servers that are reached directly.
//!
//! Owns: entries of `NO_PROXY`, and which hosts they match. Programs disagree about both; here they
//! mean what Go's `net/http` takes them to mean. Does not own: the proxies.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// A list of servers that are reached without a proxy. This machine always is: `localhost` and
/// loopback addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoProxy(Vec<NoProxyEntry>);

impl NoProxy {
    /// Reads a comma-separated list as the environment has it. As in Go, entries that mean nothing
    /// are passed over.
    pub fn parse(list: &str) -> Self {
        list.split(',').filter_map(NoProxyEntry::parse).collect()
    }

    /// Whether a server is reached directly. `host` is a name or an IP address without brackets.
    pub fn contains(&self, host: &str, port: u16) -> bool {
        let host = host.to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        host == "localhost"
            || address.is_some_and(|address| address.is_loopback())
            || self.0.iter().any(|entry| entry.matches(&host, address, port))
    }
}

impl FromIterator<NoProxyEntry> for NoProxy {
    fn from_iter<I: IntoIterator<Item = NoProxyEntry>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl fmt::Display for NoProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.0.iter().enumerate() {
            write!(f, "{}{entry}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoProxyEntry(Pattern);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// `*`: every server.
    All,
    /// `10.0.0.0/8`: IP addresses in URLs. Names are not resolved.
    Network(IpNet),
    /// `10.1.2.3` or `10.1.2.3:80`.
    Address(IpAddr, Option<u16>),
    /// `example.com`: the name and all names below it. `.example.com` or `*.example.com`: only
    /// those below it. Either may have a port.
    Domain {
        /// The name with a leading dot.
        suffix: Box<str>,
        /// Whether the name itself matches too.
        itself: bool,
        port: Option<u16>,
    },
}

impl NoProxyEntry {
    /// Reads one entry. `None`: it means nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        if text == "*" {
            return Some(Self(Pattern::All));
        }
        if let Ok(network) = text.parse() {
            return Some(Self(Pattern::Network(network)));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self(Pattern::Address(address.to_canonical(), None)));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (text.as_str(), None),
        };
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self(Pattern::Address(address.to_canonical(), port)));
        }
        let (name, itself) = match host.strip_prefix('*').unwrap_or(host).strip_prefix('.') {
            Some(name) => (name, false),
            None => (host, true),
        };
        if name.is_empty() || name.contains(['/', '*', ':', '[', ']', '@']) {
            return None;
        }
        let name = idna::domain_to_ascii(name).ok()?;
        Some(Self(Pattern::Domain { suffix: format!(".{name}").into(), itself, port }))
    }

    fn matches(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        match &self.0 {
            Pattern::All => true,
            Pattern::Network(network) => address.is_some_and(|address| network.contains(&address)),
            Pattern::Address(excepted, at) => {
                address == Some(*excepted) && at.is_none_or(|excepted| excepted == port)
            }
            Pattern::Domain { suffix, itself, port: at } => {
                (host.ends_with(&**suffix) || *itself && host == &suffix[1..])
                    && at.is_none_or(|excepted| excepted == port)
            }
        }
    }
}

impl fmt::Display for NoProxyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffixed = |f: &mut fmt::Formatter<'_>, port: &Option<u16>| match port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        };
        match &self.0 {
            Pattern::All => f.write_str("*"),
            Pattern::Network(network) => network.fmt(f),
            Pattern::Address(IpAddr::V6(address), Some(port)) => write!(f, "[{address}]:{port}"),
            Pattern::Address(address, port) => {
                address.fmt(f)?;
                suffixed(f, port)
            }
            Pattern::Domain { suffix, itself, port } => {
                f.write_str(if *itself { &suffix[1..] } else { suffix })?;
                suffixed(f, port)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One entry of each kind, with spaces as people write them.
    const LIST: &str = "corp.example, .below.example, *.stars.example, 192.168.1.1, 192.168.1.2:81, \
                        192.168.1.3:80, 10.0.0.0/30, 2001:db8::52:0:1, [2001:db8::52:0:2]:443, \
                        [2001:db8::52:0:3]:80, 2002:db8:a::45/64";

    #[test]
    fn entries_match_as_in_go() {
        let list = NoProxy::parse(LIST);
        for (host, direct) in [
            // This machine is never reached through a proxy.
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.0.0.2", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("::2", false),
            ("localhost.example", false),
            ("local.localhost", false),
            // Addresses, with and without port; the port here is 80.
            ("192.168.1.1", true),
            ("::ffff:192.168.1.1", true),
            ("192.168.1.2", false),
            ("192.168.1.3", true),
            ("192.168.1.4", false),
            ("2001:db8::52:0:1", true),
            ("2001:db8:0:0:0:52:0:1", true),
            ("2001:db8::52:0:2", false),
            ("2001:db8::52:0:3", true),
            // Networks.
            ("10.0.0.2", true),
            ("10.0.0.4", false),
            ("2002:db8:a::123", true),
            ("2002:db8:b::123", false),
            ("fe80::424b:c8be:1643:a1b6", false),
            // A name matches itself and all below it.
            ("corp.example", true),
            ("CORP.example", true),
            ("www.corp.example", true),
            ("a.b.corp.example", true),
            ("xcorp.example", false),
            ("orp.example", false),
            // A leading dot or star matches only what is below.
            ("below.example", false),
            ("www.below.example", true),
            ("xbelow.example", false),
            ("stars.example", false),
            ("nested.stars.example", true),
            ("astars.example", false),
        ] {
            assert_eq!(list.contains(host, 80), direct, "{host}");
        }
        assert!(list.contains("192.168.1.2", 81) && list.contains("2001:db8::52:0:2", 443));
    }

    #[test]
    fn a_star_alone_excepts_everything() {
        for list in ["*", "a.example, *", " * ,b.example"] {
            let list = NoProxy::parse(list);
            assert!(list.contains("any.example", 443) && list.contains("203.0.113.1", 80), "{list}");
        }
    }

    #[test]
    fn ports_restrict_names_too() {
        let list = NoProxy::parse("a.example:8443,.b.example:80");
        assert!(list.contains("a.example", 8443) && list.contains("x.a.example", 8443));
        assert!(!list.contains("a.example", 443) && !list.contains("x.b.example", 443));
        assert!(list.contains("x.b.example", 80));
    }

    #[test]
    fn internationalized_names_match_in_either_spelling() {
        for list in ["bücher.example", "xn--bcher-kva.example", "BÜCHER.example"] {
            assert!(NoProxy::parse(list).contains("www.xn--bcher-kva.example", 80), "{list}");
        }
    }

    #[test]
    fn entries_that_mean_nothing_are_passed_over() {
        for text in
            ["", " ", ":1", ":", ".", "*.", "[]", "[]:80", "a.example:http", "http://a", "a*b", "::1:x"]
        {
            assert_eq!(NoProxyEntry::parse(text), None, "{text:?}");
        }
        let list = NoProxy::parse(",:1,,a.example,");
        assert!(list.contains("a.example", 80) && !list.contains("b.example", 80));
        assert!(!NoProxy::parse("").contains("a.example", 80));
    }

    #[test]
    fn a_list_is_shown_as_it_was_understood() {
        let shown = "corp.example, .below.example, .stars.example, 192.168.1.1, 192.168.1.2:81, \
                     192.168.1.3:80, 10.0.0.0/30, 2001:db8::52:0:1, [2001:db8::52:0:2]:443, \
                     [2001:db8::52:0:3]:80, 2002:db8:a::45/64";
        assert_eq!(NoProxy::parse(LIST).to_string(), shown);
        assert_eq!(NoProxy::parse(shown), NoProxy::parse(LIST));
    }
}
