//! Forwarded: the client behind trusted proxies, as `X-Forwarded-For` and `Forwarded` (RFC 7239)
//! name it.
//!
//! Owns: the syntax of both fields, and the search for the client in them. Does not own: which
//! proxies are trusted, and what follows from the client's address.

use std::net::{IpAddr, SocketAddr};

use auth::request::is_token;
use ipnet::IpNet;

/// The client that trusted proxies name.
#[derive(Debug, PartialEq, Eq)]
pub struct ForwardedClient<T> {
    /// The client's address; `None`: a trusted proxy hides it or names something else.
    pub address: Option<IpAddr>,
    /// The last address on the way to the client that is known: the client's own, or that of the
    /// proxy that hides it.
    pub last_known: IpAddr,
    /// The entries that trusted proxies wrote: the client's first, the newest last.
    pub entries: Vec<T>,
}

/// Finds the client behind `peer`. Each proxy appends the address of its own peer, so `entries`
/// come newest first, and the search ends at the first address that is not trusted: whatever
/// stands before it, that client may have written.
pub fn find_client<T>(
    peer: IpAddr,
    entries: impl Iterator<Item = (Option<IpAddr>, T)>,
    trusted: &[IpNet],
) -> ForwardedClient<T> {
    let peer = peer.to_canonical();
    let mut client = ForwardedClient { address: Some(peer), last_known: peer, entries: Vec::new() };
    for (address, entry) in entries {
        if !client.address.is_some_and(|address| trusted.iter().any(|net| net.contains(&address))) {
            break;
        }
        client.last_known = address.unwrap_or(client.last_known);
        client.address = address;
        client.entries.push(entry);
    }
    client.entries.reverse();
    client
}

/// The entries of `X-Forwarded-For`, newest first. `values`: those of all its fields in the order
/// received, because several fields are one list (RFC 9110 §5.3). Empty members do not count.
pub fn x_forwarded_for<'v>(
    values: impl DoubleEndedIterator<Item = &'v [u8]>,
) -> impl Iterator<Item = (Option<IpAddr>, &'v [u8])> {
    let members = values.rev().flat_map(|value| value.rsplit(|byte| *byte == b','));
    let members = members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty());
    members.map(|member| (str::from_utf8(member).ok().and_then(address), member))
}

/// Parses an address, with or without brackets and port: some proxies write these.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let plain = bracketed.unwrap_or(text).parse::<IpAddr>().ok();
    let address = plain.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))?;
    Some(address.to_canonical())
}

/// One element of `Forwarded` (RFC 7239 §4): what one proxy tells about the request it received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForwardedElement<'v> {
    /// Address of the client of that proxy; `None`: not stated, `unknown` or an obfuscated name.
    pub client: Option<IpAddr>,
    /// `proto`: the scheme of the request.
    pub proto: Option<String>,
    /// `host`: the `Host` of the request.
    pub host: Option<String>,
    /// The element as received.
    pub text: &'v str,
}

/// The elements in the values of all `Forwarded` fields, oldest first; `None` if one does not have
/// the syntax of RFC 7239 §4. A value is not read in part: behind an open quotation mark of a
/// client, the element of a proxy would go unseen.
pub fn forwarded_elements<'v>(values: impl Iterator<Item = &'v [u8]>) -> Option<Vec<ForwardedElement<'v>>> {
    let mut elements = Vec::new();
    for value in values {
        let value = str::from_utf8(value).ok()?;
        for text in split_outside_quotes(value, b',')? {
            let text = text.trim_ascii();
            // Empty members do not count (RFC 9110 §5.6.1.2).
            if !text.is_empty() {
                elements.push(element(text)?);
            }
        }
    }
    Some(elements)
}

fn element(text: &str) -> Option<ForwardedElement<'_>> {
    let mut element = ForwardedElement { text, ..ForwardedElement::default() };
    let mut client = None;
    for pair in split_outside_quotes(text, b';')?.into_iter().map(str::trim_ascii) {
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once('=')?;
        let value = unquote(value)?;
        if !is_token(name) {
            return None;
        }
        let slot = match name.to_ascii_lowercase().as_str() {
            "for" => &mut client,
            "proto" => &mut element.proto,
            "host" => &mut element.host,
            _ => continue,
        };
        // Each parameter may occur once in an element.
        if slot.replace(value).is_some() {
            return None;
        }
    }
    element.client = client.as_deref().and_then(node_address);
    Some(element)
}

/// The address of a node (RFC 7239 §6), whose port may be a number or an obfuscated name.
fn node_address(node: &str) -> Option<IpAddr> {
    let without_port = node.rsplit_once(":_").map_or(node, |(node, _)| node);
    address(without_port)
}

/// Splits a text at a delimiter outside of quoted strings; `None`: a quotation mark is left open.
fn split_outside_quotes(text: &str, delimiter: u8) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if byte == delimiter && !quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!quoted).then_some(parts)
}

/// The text of a token or a quoted string (RFC 9110 §5.6.4).
fn unquote(value: &str) -> Option<String> {
    let Some(rest) = value.strip_prefix('"') else { return is_token(value).then(|| value.to_owned()) };
    let inner = rest.strip_suffix('"')?;
    let (mut text, mut escaped) = (String::new(), false);
    for character in inner.chars() {
        match character {
            _ if escaped => {
                escaped = false;
                text.push(character);
            }
            '\\' => escaped = true,
            '"' => return None,
            _ => text.push(character),
        }
    }
    (!escaped).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(nets: &[&str]) -> Vec<IpNet> {
        nets.iter().map(|net| net.parse().unwrap()).collect()
    }

    fn client(peer: &str, fields: &[&str]) -> (Option<String>, String, Vec<String>) {
        let trusted = nets(&["10.0.0.0/8", "fd00::/8"]);
        let values = fields.iter().map(|field| field.as_bytes());
        let found = find_client(peer.parse().unwrap(), x_forwarded_for(values), &trusted);
        let entries = found.entries.iter().map(|entry| String::from_utf8_lossy(entry).into_owned());
        (found.address.map(|ip| ip.to_string()), found.last_known.to_string(), entries.collect())
    }

    #[test]
    fn the_rightmost_address_that_is_not_trusted_is_the_client() {
        for (peer, fields, address, entries) in [
            ("10.0.0.1", &["1.1.1.1, 2.2.2.2"][..], "2.2.2.2", &["2.2.2.2"][..]),
            ("10.0.0.1", &["1.1.1.1, 2.2.2.2,10.9.9.9"], "2.2.2.2", &["2.2.2.2", "10.9.9.9"]),
            ("10.0.0.1", &["1.1.1.1", "2.2.2.2"], "2.2.2.2", &["2.2.2.2"]),
            ("10.0.0.1", &["2.2.2.2, ", ""], "2.2.2.2", &["2.2.2.2"]),
            ("::ffff:10.0.0.1", &["2.2.2.2:4711"], "2.2.2.2", &["2.2.2.2:4711"]),
            ("fd00::1", &["[2001:db8::1]:80"], "2001:db8::1", &["[2001:db8::1]:80"]),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1", &["[2001:db8::1]"]),
            ("10.0.0.1", &["::ffff:10.0.0.2"], "10.0.0.2", &["::ffff:10.0.0.2"]),
            ("10.0.0.1", &[], "10.0.0.1", &[]),
            ("9.9.9.9", &["1.1.1.1"], "9.9.9.9", &[]),
        ] {
            let found = client(peer, fields);
            assert_eq!(found.0.as_deref(), Some(address), "{peer} {fields:?}");
            assert_eq!(found.1, address, "{peer} {fields:?}");
            assert_eq!(found.2, entries, "{peer} {fields:?}");
        }
    }

    #[test]
    fn an_entry_without_an_address_hides_the_client() {
        for entry in ["unknown", "_hidden", "1.2.3", "10.0.0.1.", "1.1.1.1 2.2.2.2"] {
            let (address, last_known, _) = client("10.0.0.1", &[&format!("3.3.3.3, {entry}, 10.0.0.7")]);
            assert_eq!((address, last_known.as_str()), (None, "10.0.0.7"), "{entry}");
        }
    }

    #[test]
    fn elements_have_the_syntax_of_the_rfc() {
        let parse = |values: &[&'static str]| forwarded_elements(values.iter().map(|value| value.as_bytes()));
        let elements = parse(&[
            "for=1.1.1.1;proto=http, For=\"[2001:db8:cafe::17]:4711\" ; PROTO=https;host=\"a.example:8443\";by=_x",
            "for=unknown, , for=\"_gazonk\",for=\"192.0.2.1:_port\"",
        ]);
        let elements = elements.unwrap();
        let clients: Vec<_> = elements.iter().map(|e| e.client.map(|ip| ip.to_string())).collect();
        assert_eq!(
            clients,
            [Some("1.1.1.1".into()), Some("2001:db8:cafe::17".into()), None, None, Some("192.0.2.1".into())]
        );
        assert_eq!(elements[1].proto.as_deref(), Some("https"));
        assert_eq!(elements[1].host.as_deref(), Some("a.example:8443"));
        assert_eq!(elements[0].text, "for=1.1.1.1;proto=http");
        for wrong in [
            "for=\"1.1.1.1, for=2.2.2.2",
            "for=1.1.1.1;for=2.2.2.2",
            "for",
            "for=",
            "for=\"a\"b",
            "fo r=1.1.1.1",
            "for=1.1.1.1\"",
            "for=[::1]",
            "for=\"a\\\"",
        ] {
            assert_eq!(parse(&[wrong]), None, "{wrong}");
        }
    }
}
