//! Authority of a request: one host, one port, one spelling (RFC 9110 §4.2.3, RFC 3986 §3.2.2).

use std::borrow::Cow;
use std::net::Ipv6Addr;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

use super::{MAX_HOST, Malformed, Scheme};

/// `host[:port]` in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Authority<'a> {
    text: Cow<'a, str>,
    host: usize,
    port: Option<u16>,
}

impl Authority<'_> {
    /// That of a request which names no host.
    pub(super) const fn absent() -> Self {
        Self { text: Cow::Borrowed(""), host: 0, port: None }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn host(&self) -> &str {
        &self.text[..self.host]
    }

    pub(super) const fn port(&self) -> Option<u16> {
        self.port
    }

    pub(super) fn into_owned(self) -> Authority<'static> {
        Authority { text: Cow::Owned(self.text.into_owned()), host: self.host, port: self.port }
    }

    pub(super) fn borrowed(&self) -> Authority<'_> {
        Authority { text: Cow::Borrowed(&self.text), host: self.host, port: self.port }
    }
}

/// The authority of a request: the target's, the `Host` field's, or both if they are equal.
///
/// If they differ, RFC 9112 §3.2.2 makes a proxy prefer the target's, and RFC 9113 §8.3.1 makes it
/// refuse the request. Here a difference is refused in both versions, since the upstream may read
/// the other one.
pub(super) fn request_authority<'a>(
    target: Option<&'a [u8]>,
    field: Option<&'a [u8]>,
    scheme: Scheme,
) -> Result<Authority<'a>, Malformed> {
    match (target, field) {
        (None, None) => Err(Malformed::HostMissing),
        (Some(one), None) | (None, Some(one)) => parse_authority(one, scheme),
        (Some(one), Some(same)) if one == same => parse_authority(one, scheme),
        (Some(one), Some(other)) => {
            let (one, other) = (parse_authority(one, scheme)?, parse_authority(other, scheme)?);
            if one == other { Ok(one) } else { Err(Malformed::HostMismatch) }
        }
    }
}

fn parse_authority(raw: &[u8], scheme: Scheme) -> Result<Authority<'_>, Malformed> {
    let raw = str::from_utf8(raw).map_err(|_| Malformed::Host)?;
    if raw.contains('@') {
        return Err(Malformed::UserInfo);
    }
    let (host, port) = split(raw)?;
    let host = normalize_host(host)?;
    let port = port.map(parse_port).transpose()?.flatten().filter(|&port| port != scheme.default_port());
    let length = host.len();
    let text = match (host, port) {
        (host, None) => host,
        // The raw text is in normal form already if the port has its normal spelling and directly
        // follows a normal host.
        (Cow::Borrowed(host), Some(port)) if is_normal(raw, host, port) => Cow::Borrowed(raw),
        (host, Some(port)) => Cow::Owned(format!("{host}:{port}")),
    };
    Ok(Authority { text, host: length, port })
}

fn is_normal(raw: &str, host: &str, port: u16) -> bool {
    let text = raw.get(host.len()..).and_then(|rest| rest.strip_prefix(':'));
    text.is_some_and(|text| !text.starts_with('0') && text.parse() == Ok(port))
}

/// Splits off the port, if there is a colon for one.
fn split(raw: &str) -> Result<(&str, Option<&str>), Malformed> {
    let host = match raw.strip_prefix('[') {
        Some(rest) => rest.find(']').map(|end| end + 2).ok_or(Malformed::Host)?,
        None => raw.find(':').unwrap_or(raw.len()),
    };
    let (host, rest) = raw.split_at(host);
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(Malformed::Host),
    }
}

/// The number of a port; `None` when it is empty, which the grammar allows (RFC 3986 §6.2.3).
fn parse_port(text: &str) -> Result<Option<u16>, Malformed> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() > 5 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Malformed::Port);
    }
    text.parse().ok().filter(|&port| port != 0).map(Some).ok_or(Malformed::Port)
}

/// The normal form of a host without port.
pub(super) fn normalize_host(raw: &str) -> Result<Cow<'_, str>, Malformed> {
    if let Some(literal) = raw.strip_prefix('[') {
        let address = literal.strip_suffix(']').ok_or(Malformed::Host)?;
        // Zone identifiers and future address versions do not parse: they mean nothing outside one
        // link, or today.
        let address: Ipv6Addr = address.parse().map_err(|_| Malformed::Host)?;
        let normal = format!("[{address}]");
        return Ok(if normal == raw { Cow::Borrowed(raw) } else { Cow::Owned(normal) });
    }
    match check_labels(raw)? {
        Spelling::Normal => Ok(Cow::Borrowed(without_root(raw))),
        Spelling::UpperCase => Ok(Cow::Owned(without_root(raw).to_ascii_lowercase())),
        // A name of legal length has at most four bytes of spelling for each of its own bytes.
        Spelling::International if raw.len() > 4 * MAX_HOST => Err(Malformed::HostTooLong),
        Spelling::International => {
            let ascii = Uts46::new()
                .to_ascii(raw.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore)
                .map_err(|_| Malformed::Host)?
                .into_owned();
            // The mapping may produce delimiters, dots or nothing at all: its result is checked
            // like any other name.
            match check_labels(&ascii)? {
                Spelling::Normal => Ok(Cow::Owned(without_root(&ascii).to_owned())),
                Spelling::International if ascii.is_ascii() => {
                    Ok(Cow::Owned(without_root(&ascii).to_owned()))
                }
                _ => Err(Malformed::Host),
            }
        }
    }
}

/// A name without the trailing dot that stands for the DNS root.
fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// How far a name is from its normal form.
#[derive(Debug, PartialEq, Eq)]
enum Spelling {
    Normal,
    UpperCase,
    /// Holds bytes outside ASCII or an `xn--` label: UTS 46 decides.
    International,
}

/// Checks the labels of a name: letters, digits, hyphens, and underscores, which occur in names
/// outside the public DNS. Each label has 1 to 63 bytes, all together at most 253.
fn check_labels(name: &str) -> Result<Spelling, Malformed> {
    let name = without_root(name);
    let bytes = name.as_bytes();
    let mut spelling = Spelling::Normal;
    let mut start = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'-' if at == start + 3 && bytes[start..at].eq_ignore_ascii_case(b"xn-") => {
                spelling = Spelling::International;
            }
            b'A'..=b'Z' if spelling == Spelling::Normal => spelling = Spelling::UpperCase,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => {}
            b'.' => {
                check_label_length(at - start)?;
                start = at + 1;
            }
            // Lengths count in A-labels: they are checked again after the mapping.
            0x80.. => return Ok(Spelling::International),
            _ => return Err(Malformed::Host),
        }
    }
    check_label_length(bytes.len() - start)?;
    if bytes.len() > MAX_HOST { Err(Malformed::HostTooLong) } else { Ok(spelling) }
}

fn check_label_length(length: usize) -> Result<(), Malformed> {
    match length {
        0 => Err(Malformed::HostEmpty),
        1..=63 => Ok(()),
        _ => Err(Malformed::HostTooLong),
    }
}
