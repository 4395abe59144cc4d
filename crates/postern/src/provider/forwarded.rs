//! Address of the caller behind proxies.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::HeaderName;
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Address of the caller. Each proxy appends the address of its own peer. So the list is read from
/// its end, as long as the writer of an entry is trusted. An entry that is not an address ends the
/// search, because nothing before it can be trusted.
pub(super) fn caller(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|net| net.contains(address));
    let mut caller = peer.to_canonical();
    let entries = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let mut entries = entries.flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b','));
    while is_trusted(&caller) {
        let Some(entry) = entries.next() else { break };
        let Some(address) = std::str::from_utf8(entry).ok().and_then(address) else { break };
        caller = address;
    }
    caller
}

/// Parses an address, with or without brackets and port. Some proxies write these.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let plain = bracketed.unwrap_or(text).parse::<IpAddr>().ok();
    let address = plain.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(peer: &str, fields: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(X_FORWARDED_FOR, field.parse().unwrap());
        }
        let trusted: Vec<IpNet> = trusted.iter().map(|net| net.parse().unwrap()).collect();
        caller(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn the_right_most_address_that_is_not_trusted_calls() {
        let proxies = ["10.0.0.0/8", "fd00::/8"];
        assert_eq!(called("10.0.0.1", &["1.1.1.1, 2.2.2.2"], &proxies), "2.2.2.2");
        assert_eq!(called("10.0.0.1", &["1.1.1.1, 2.2.2.2,10.9.9.9"], &proxies), "2.2.2.2");
        assert_eq!(called("10.0.0.1", &["1.1.1.1", "2.2.2.2"], &proxies), "2.2.2.2", "fields are one list");
        assert_eq!(called("::ffff:10.0.0.1", &["2.2.2.2:4711"], &proxies), "2.2.2.2");
        assert_eq!(called("fd00::1", &["[2001:db8::1]:80"], &proxies), "2001:db8::1");
        assert_eq!(called("10.0.0.1", &["[2001:db8::1]"], &proxies), "2001:db8::1");
        assert_eq!(called("10.0.0.1", &["::ffff:10.0.0.2"], &proxies), "10.0.0.2", "all are trusted");
        assert_eq!(called("10.0.0.1", &[], &proxies), "10.0.0.1");
    }

    #[test]
    fn nobody_else_is_believed() {
        assert_eq!(called("9.9.9.9", &["1.1.1.1"], &["10.0.0.0/8"]), "9.9.9.9");
        assert_eq!(called("10.0.0.1", &["1.1.1.1"], &[]), "10.0.0.1");
        assert_eq!(called("10.0.0.1", &["1.1.1.1, unknown"], &["10.0.0.0/8"]), "10.0.0.1");
        assert_eq!(called("10.0.0.1", &["1.1.1.1, "], &["10.0.0.0/8"]), "10.0.0.1");
    }
}
