//! PROXY protocol, versions 1 and 2, receiving side (`proxy-protocol.txt` of `HAProxy`).
//!
//! Owns: reading from the first bytes of a connection which client a trusted peer relays, and
//! whether that client uses TLS. Does not own: which peers are trusted, the time limit, I/O. The
//! caller passes all bytes read so far, and learns that more are needed or how many bytes the
//! header took.
//!
//! Parsing is as strict as the specification permits: single spaces, no leading zeros, addresses of
//! the announced family, a limited length, complete TLVs. A peer that must send a header and does
//! not is refused; guessing would let a client forge one.
//!
//! Flow: `parse → NeedMore … → Done(Header { consumed, origin })`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Maximum length of a version 1 header, line end included (section 2.1).
pub const MAX_V1: usize = 107;
/// Maximum length of a version 2 header: 16 fixed bytes, addresses and TLVs.
pub const MAX_V2: usize = V2_FIXED + MAX_V2_BODY;

const MAX_V2_BODY: usize = 2048;
const V2_FIXED: usize = 16;
const V1_START: &[u8] = b"PROXY ";
const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The TLV about TLS. Then the length of the fixed part of its value (flags, verification result),
/// and the flag that says whether the client uses TLS.
const SSL: u8 = 0x20;
const SSL_FIXED: usize = 5;
const CLIENT_SSL: u8 = 0x01;

/// Result of parsing the bytes read so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProgress {
    /// A valid start of a header. At most [`MAX_V2`] bytes are needed in total.
    NeedMore,
    /// A complete header; the bytes after it belong to the connection's own protocol.
    Done(Header),
}

/// A complete header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the header in bytes.
    pub consumed: usize,
    /// The client that the peer relays.
    pub origin: ProxyOrigin,
    /// Whether the peer states that its client uses TLS (`PP2_TYPE_SSL`, section 2.2.6).
    pub tls: bool,
}

/// The client that the peer relays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyOrigin {
    /// None: the peer connects for itself (health check). The connection's own addresses apply.
    Local,
    /// The peer relays a connection without IP addresses (`UNKNOWN`, `AF_UNSPEC`, a Unix socket).
    /// The connection's own addresses apply.
    Unknown,
    /// The peer relays a TCP connection.
    Relayed {
        /// Address of the client.
        source: SocketAddr,
        /// Address to which the client connected.
        destination: SocketAddr,
    },
}

/// Why the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyFault {
    /// The first bytes are not the start of a header of either version.
    #[error(
        "no PROXY protocol header from the peer: let it send one, or remove the peer from the trusted list"
    )]
    NotProxy,
    /// No line end within [`MAX_V1`] bytes.
    #[error("PROXY v1 line longer than 107 bytes")]
    LineTooLong,
    /// The version 1 line is invalid.
    #[error("PROXY v1 line malformed")]
    MalformedLine,
    /// A version other than 2 after the binary signature.
    #[error("PROXY header of an unknown version {0}")]
    UnknownVersion(u8),
    /// A command other than LOCAL and PROXY.
    #[error("PROXY v2 command {0} unknown")]
    UnknownCommand(u8),
    /// A family or transport that stream connections do not have.
    #[error("PROXY v2 family and transport {0:#04x} not usable for a stream connection")]
    UnknownFamily(u8),
    /// More than 2 KiB of addresses and TLVs.
    #[error("PROXY v2 header announces {0} bytes, more than the 2048 allowed")]
    TooLong(u16),
    /// Too short for the addresses of its family, a truncated TLV, or two TLVs about TLS.
    #[error("PROXY v2 addresses or TLVs malformed")]
    MalformedBody,
}

impl ProxyFault {
    /// Short code for metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotProxy => "not_proxy",
            Self::LineTooLong => "line_too_long",
            Self::MalformedLine => "malformed_line",
            Self::UnknownVersion(_) => "unknown_version",
            Self::UnknownCommand(_) => "unknown_command",
            Self::UnknownFamily(_) => "unknown_family",
            Self::TooLong(_) => "too_long",
            Self::MalformedBody => "malformed_body",
        }
    }
}

/// Parses everything read from the connection so far.
///
/// # Errors
/// [`ProxyFault`] as soon as no continuation can be a header. The caller then closes the connection
/// without a response.
pub fn parse(bytes: &[u8]) -> Result<ProxyProgress, ProxyFault> {
    if let Some(rest) = strip_start(bytes, V2_START)? {
        return parse_v2(rest);
    }
    if let Some(rest) = strip_start(bytes, V1_START)? {
        return parse_v1(rest);
    }
    // `after` refuses only bytes that start like the prefix and then differ.
    if bytes.is_empty() || V2_START.starts_with(bytes) || V1_START.starts_with(bytes) {
        return Ok(ProxyProgress::NeedMore);
    }
    Err(ProxyFault::NotProxy)
}

/// The bytes after `start`; `None`: another version or too few bytes.
fn strip_start<'a>(bytes: &'a [u8], start: &[u8]) -> Result<Option<&'a [u8]>, ProxyFault> {
    match bytes.strip_prefix(start) {
        Some(rest) => Ok(Some(rest)),
        None if bytes.first() == start.first() && !start.starts_with(bytes) => Err(ProxyFault::NotProxy),
        None => Ok(None),
    }
}

fn parse_v1(rest: &[u8]) -> Result<ProxyProgress, ProxyFault> {
    let room = MAX_V1 - V1_START.len();
    let window = &rest[..rest.len().min(room)];
    let Some(cr) = window.iter().position(|&b| b == b'\r') else {
        return if rest.len() < room { Ok(ProxyProgress::NeedMore) } else { Err(ProxyFault::LineTooLong) };
    };
    match window.get(cr + 1) {
        Some(b'\n') => {}
        Some(_) => return Err(ProxyFault::MalformedLine),
        None if cr + 1 == room => return Err(ProxyFault::LineTooLong),
        None => return Ok(ProxyProgress::NeedMore),
    }
    let line = std::str::from_utf8(&window[..cr]).map_err(|_| ProxyFault::MalformedLine)?;
    let origin = v1_origin(line).ok_or(ProxyFault::MalformedLine)?;
    Ok(ProxyProgress::Done(Header { consumed: V1_START.len() + cr + 2, origin, tls: false }))
}

/// Parses a version 1 line without `PROXY ` and the line end.
fn v1_origin(line: &str) -> Option<ProxyOrigin> {
    let (family, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (source, destination) = match family {
        // The text after UNKNOWN must be ignored (section 2.1), but it must be one line.
        "UNKNOWN" => return (!rest.contains('\n')).then_some(ProxyOrigin::Unknown),
        "TCP4" => v1_addresses::<Ipv4Addr>(rest)?,
        "TCP6" => v1_addresses::<Ipv6Addr>(rest)?,
        _ => return None,
    };
    Some(ProxyOrigin::Relayed { source, destination })
}

fn v1_addresses<A: FromStr + Into<IpAddr>>(rest: &str) -> Option<(SocketAddr, SocketAddr)> {
    let mut parts = rest.split(' ');
    let source: A = parts.next()?.parse().ok()?;
    let destination: A = parts.next()?.parse().ok()?;
    let source_port = v1_port(parts.next()?)?;
    let destination_port = v1_port(parts.next()?)?;
    let ends = parts.next().is_none();
    ends.then(|| {
        (SocketAddr::new(source.into(), source_port), SocketAddr::new(destination.into(), destination_port))
    })
}

/// A decimal number without sign or leading zero.
fn v1_port(text: &str) -> Option<u16> {
    let canonical = text == "0" || text.bytes().next().is_some_and(|b| (b'1'..=b'9').contains(&b));
    if canonical { text.parse().ok() } else { None }
}

fn parse_v2(rest: &[u8]) -> Result<ProxyProgress, ProxyFault> {
    // Checked byte by byte, so that a peer with another version is refused without waiting.
    let Some(&version_command) = rest.first() else { return Ok(ProxyProgress::NeedMore) };
    if version_command >> 4 != 2 {
        return Err(ProxyFault::UnknownVersion(version_command >> 4));
    }
    let local = match version_command & 0x0f {
        0 => true,
        1 => false,
        other => return Err(ProxyFault::UnknownCommand(other)),
    };
    let Some(&family) = rest.get(1) else { return Ok(ProxyProgress::NeedMore) };
    // The family of a LOCAL header is ignored (section 2.2).
    let addresses = if local { 0 } else { v2_address_bytes(family)? };
    let (Some(&high), Some(&low)) = (rest.get(2), rest.get(3)) else { return Ok(ProxyProgress::NeedMore) };
    let announced = u16::from_be_bytes([high, low]);
    let length = usize::from(announced);
    if length > MAX_V2_BODY {
        return Err(ProxyFault::TooLong(announced));
    }
    if length < addresses {
        return Err(ProxyFault::MalformedBody);
    }
    let Some(body) = rest[4..].get(..length) else { return Ok(ProxyProgress::NeedMore) };
    let (origin, tls) = if local {
        (ProxyOrigin::Local, false)
    } else {
        let (address, tlvs) = body.split_at(addresses);
        (v2_origin(family, address), family >> 4 != 0 && tls_flag(tlvs)?)
    };
    Ok(ProxyProgress::Done(Header { consumed: V2_FIXED + length, origin, tls }))
}

/// Length of the address block of a family and transport (section 2.2).
fn v2_address_bytes(family: u8) -> Result<usize, ProxyFault> {
    match family {
        0x00 => Ok(0),
        0x11 => Ok(12),
        0x21 => Ok(36),
        0x31 => Ok(216),
        other => Err(ProxyFault::UnknownFamily(other)),
    }
}

fn v2_origin(family: u8, address: &[u8]) -> ProxyOrigin {
    let relayed = match family {
        0x11 => v2_addresses::<4, Ipv4Addr>(address),
        0x21 => v2_addresses::<16, Ipv6Addr>(address),
        _ => None,
    };
    relayed.map_or(ProxyOrigin::Unknown, |(source, destination)| ProxyOrigin::Relayed { source, destination })
}

fn v2_addresses<const N: usize, A: From<[u8; N]> + Into<IpAddr>>(
    bytes: &[u8],
) -> Option<(SocketAddr, SocketAddr)> {
    let (source, rest) = bytes.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (source_port, rest) = rest.split_first_chunk::<2>()?;
    let destination_port: [u8; 2] = rest.try_into().ok()?;
    Some((
        SocketAddr::new(A::from(*source).into(), u16::from_be_bytes(*source_port)),
        SocketAddr::new(A::from(*destination).into(), u16::from_be_bytes(destination_port)),
    ))
}

/// Parses the TLVs (type, 16-bit length, value). Returns the flag of the TLV about TLS.
fn tls_flag(mut tlvs: &[u8]) -> Result<bool, ProxyFault> {
    let mut flag = None;
    while !tlvs.is_empty() {
        let ([kind, high, low], rest) = tlvs.split_first_chunk::<3>().ok_or(ProxyFault::MalformedBody)?;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let value = rest.get(..length).ok_or(ProxyFault::MalformedBody)?;
        if *kind == SSL {
            let flags = value.get(..SSL_FIXED).ok_or(ProxyFault::MalformedBody)?[0];
            // Two such TLVs could contradict each other.
            if flag.replace(flags & CLIENT_SSL != 0).is_some() {
                return Err(ProxyFault::MalformedBody);
            }
        }
        tlvs = &rest[length..];
    }
    Ok(flag.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(bytes: &[u8]) -> (usize, ProxyOrigin) {
        // Every proper prefix needs more bytes, and bytes after the header do not matter.
        let Ok(ProxyProgress::Done(header)) = parse(bytes) else { panic!("{:?}", parse(bytes)) };
        for cut in 0..header.consumed {
            assert_eq!(parse(&bytes[..cut]), Ok(ProxyProgress::NeedMore), "cut at {cut}");
        }
        let mut longer = bytes.to_vec();
        longer.extend(b"GET / HTTP/1.1\r\n\r\nPROXY ");
        assert_eq!(parse(&longer), Ok(ProxyProgress::Done(header)));
        (header.consumed, header.origin)
    }

    fn relayed(source: &str, destination: &str) -> ProxyOrigin {
        ProxyOrigin::Relayed { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    fn v2(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [V2_START, &[version_command, family], &length, body].concat()
    }

    #[test]
    fn v1_addresses_of_both_families() {
        let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
        assert_eq!(done(line), (line.len(), relayed("192.0.2.1:56324", "198.51.100.2:443")));
        let line = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n";
        assert_eq!(done(line), (line.len(), relayed("[2001:db8::1]:1", "[2001:db8::2]:65535")));
        let line = b"PROXY TCP4 255.255.255.255 255.255.255.255 0 0\r\n";
        assert_eq!(done(line), (line.len(), relayed("255.255.255.255:0", "255.255.255.255:0")));
    }

    #[test]
    fn v1_unknown_keeps_the_connections_own_addresses() {
        assert_eq!(done(b"PROXY UNKNOWN\r\n"), (15, ProxyOrigin::Unknown));
        let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(MAX_V1 - 16));
        assert_eq!(longest.len(), MAX_V1);
        assert_eq!(done(longest.as_bytes()), (MAX_V1, ProxyOrigin::Unknown));
    }

    #[test]
    fn v1_line_of_108_bytes_is_refused() {
        let line = format!("PROXY UNKNOWN {}\r\n", "f".repeat(MAX_V1 - 15));
        assert_eq!(line.len(), MAX_V1 + 1);
        assert_eq!(parse(line.as_bytes()), Err(ProxyFault::LineTooLong));
        // Refused as soon as no line end can follow in time.
        assert_eq!(parse(&line.as_bytes()[..MAX_V1]), Err(ProxyFault::LineTooLong));
        assert_eq!(parse(&line.as_bytes()[..MAX_V1 - 1]), Ok(ProxyProgress::NeedMore));
    }

    #[test]
    fn v1_grammar_is_strict() {
        for line in [
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 1\r\n",
            "PROXY TCP4  192.0.2.1 198.51.100.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 \r\n",
            "PROXY TCP4 192.0.2.01 198.51.100.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 056324 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 +1 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 -1\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 \r\n",
            "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            "PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY TCP5 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY tcp4 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY UNKNOWN a\nb\r\n",
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY UNKNOWN\rx",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(ProxyFault::MalformedLine), "{line:?}");
        }
        assert_eq!(parse(b"PROXY UNKNOWN \xff\r\n"), Err(ProxyFault::MalformedLine));
    }

    #[test]
    fn what_is_not_a_header_is_refused_at_the_first_wrong_byte() {
        for bytes in
            [&b"G"[..], b"PR ", b"PROXY\t", b"proxy ", b"\n", b"\r\n\r\r", b"\r\n\r\n\0\r\nQUIT\r", b"\0"]
        {
            assert_eq!(parse(bytes), Err(ProxyFault::NotProxy), "{bytes:?}");
        }
        assert_eq!(parse(b""), Ok(ProxyProgress::NeedMore));
    }

    #[test]
    fn v2_addresses_of_both_families() {
        let body = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
        assert_eq!(done(&v2(0x21, 0x11, &body)), (28, relayed("192.0.2.1:56324", "198.51.100.2:443")));
        let mut body = [0_u8; 36];
        body[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        (body[15], body[31], body[33], body[35]) = (1, 2, 3, 4);
        assert_eq!(done(&v2(0x21, 0x21, &body)), (52, relayed("[2001:db8::1]:3", "[::2]:4")));
    }

    #[test]
    fn v2_local_unspec_and_unix_keep_the_connections_own_addresses() {
        assert_eq!(done(&v2(0x20, 0x00, &[])), (16, ProxyOrigin::Local));
        // LOCAL: family and body are skipped without being checked.
        assert_eq!(done(&v2(0x20, 0xff, &[0xff; 7])), (23, ProxyOrigin::Local));
        assert_eq!(done(&v2(0x21, 0x00, &[0xff; 5])), (21, ProxyOrigin::Unknown));
        assert_eq!(done(&v2(0x21, 0x31, &[0; 216])), (232, ProxyOrigin::Unknown));
    }

    #[test]
    fn v2_tlvs_are_skipped_whole_or_refused() {
        let address = [127, 0, 0, 1, 127, 0, 0, 2, 0, 1, 0, 2];
        let with = |tlvs: &[u8]| v2(0x21, 0x11, &[&address[..], tlvs].concat());
        let origin = relayed("127.0.0.1:1", "127.0.0.2:2");
        assert_eq!(done(&with(&[0x04, 0, 0])), (31, origin));
        assert_eq!(done(&with(&[0x02, 0, 2, b'a', b'b', 0x05, 0, 1, 9])), (37, origin));
        for tlvs in [&[0x04][..], &[0x04, 0], &[0x04, 0, 1], &[0x04, 0, 1, 9, 9], &[0x04, 0xff, 0xff, 0]] {
            assert_eq!(parse(&with(tlvs)), Err(ProxyFault::MalformedBody), "{tlvs:?}");
        }
    }

    #[test]
    fn v2_says_whether_the_client_speaks_tls() {
        let address = [127, 0, 0, 1, 127, 0, 0, 2, 0, 1, 0, 2];
        let with = |tlvs: &[u8]| parse(&v2(0x21, 0x11, &[&address[..], tlvs].concat()));
        let tls = |tlvs: &[u8]| match with(tlvs) {
            Ok(ProxyProgress::Done(header)) => header.tls,
            other => panic!("{tlvs:?}: {other:?}"),
        };
        assert!(!tls(&[]));
        // With the TLS version included, as HAProxy sends it, and after another TLV.
        assert!(tls(&[0x20, 0, 15, 0x01, 0, 0, 0, 0, 0x21, 0, 7, b'T', b'L', b'S', b'v', b'1', b'.', b'3']));
        assert!(tls(&[0x04, 0, 1, 9, 0x20, 0, 5, 0x07, 0, 0, 0, 1]));
        assert!(!tls(&[0x20, 0, 5, 0x06, 0, 0, 0, 1]), "a certificate without TLS is none");
        for tlvs in [
            &[0x20, 0, 4, 1, 0, 0, 0][..],
            &[0x20, 0, 0],
            &[0x20, 0, 5, 0, 0, 0, 0, 0, 0x20, 0, 5, 1, 0, 0, 0, 0],
        ] {
            assert_eq!(with(tlvs), Err(ProxyFault::MalformedBody), "{tlvs:?}");
        }
        // A LOCAL peer has no relayed client. The TLVs of a family without addresses are not read.
        let ssl = [0x20, 0, 5, 1, 0, 0, 0, 0];
        for header in [v2(0x20, 0x00, &ssl), v2(0x21, 0x00, &ssl)] {
            assert!(matches!(parse(&header), Ok(ProxyProgress::Done(Header { tls: false, .. }))));
        }
    }

    #[test]
    fn v2_is_bounded_and_strict() {
        let head = |version_command: u8, family: u8, length: u16| {
            [V2_START, &[version_command, family], &length.to_be_bytes()].concat()
        };
        assert_eq!(parse(&head(0x11, 0x11, 12)), Err(ProxyFault::UnknownVersion(1)));
        assert_eq!(parse(&head(0x31, 0x11, 12)), Err(ProxyFault::UnknownVersion(3)));
        assert_eq!(parse(&head(0x22, 0x11, 12)), Err(ProxyFault::UnknownCommand(2)));
        // Datagrams, and undefined families.
        for family in [0x01, 0x10, 0x12, 0x13, 0x22, 0x32, 0x41, 0xff] {
            assert_eq!(parse(&head(0x21, family, 300)), Err(ProxyFault::UnknownFamily(family)));
        }
        assert_eq!(parse(&head(0x21, 0x11, 11)), Err(ProxyFault::MalformedBody));
        assert_eq!(parse(&head(0x21, 0x21, 35)), Err(ProxyFault::MalformedBody));
        assert_eq!(parse(&head(0x21, 0x31, 215)), Err(ProxyFault::MalformedBody));
        // The length is checked before the body arrives.
        assert_eq!(parse(&head(0x21, 0x11, 2049)), Err(ProxyFault::TooLong(2049)));
        assert_eq!(parse(&head(0x20, 0x00, u16::MAX)), Err(ProxyFault::TooLong(u16::MAX)));
        assert_eq!(parse(&head(0x20, 0x00, 2048)), Ok(ProxyProgress::NeedMore));
        assert_eq!(done(&v2(0x20, 0x00, &[0; 2048])), (MAX_V2, ProxyOrigin::Local));
    }
}
