//! Trusted proxy: what a proxy in front of the gateway reports about a client's request.
//!
//! Owns: which forwarding fields of which peers are believed. Does not own: the syntax of the fields
//! ([`http_engine::forwarded`]), what an upstream receives ([`crate::forwarded_fields`]), the header
//! of the PROXY protocol.
//!
//! A reported host is passed on, and nothing else: it never selects a route, a redirect or a
//! cookie. The fields of other peers are removed like any field that only the gateway may set.

use std::net::IpAddr;

use auth::request::{Canonical, Field, RawRequest, Scheme};
use http_engine::forwarded::{find_client, forwarded_elements, x_forwarded_for};
use http_engine::parsed_request::ParsedRequest;
use ipnet::IpNet;

use crate::config::{ForwardedSource, TrustedProxies};
use crate::forwarded_fields::ForwardedFields;
use crate::peer::Peer;
use crate::refusal::Refusal;
use crate::worker::ActiveConfig;

/// A request as its client sent it to the first trusted proxy.
pub(crate) struct ClientRequest {
    pub(crate) scheme: Scheme,
    pub(crate) forwarded: ForwardedFields,
}

/// What the peer reports about the request, if it is a trusted proxy under the current
/// configuration. Called for peers that were trusted when they connected.
///
/// # Errors
/// [`Refusal::Forwarded`] for a field that says two things, or nothing that can be read.
pub(crate) fn reported(
    running: &ActiveConfig,
    peer: &Peer,
    inbound: &ParsedRequest<'_>,
) -> Result<Option<ClientRequest>, Refusal> {
    let listener = running.config.listeners.named(&peer.listener().name);
    let Some(trusted) = listener.and_then(|l| l.trusted_proxies.as_ref()) else { return Ok(None) };
    let address = peer.address.ip().to_canonical();
    if !trusted.contains(&address) {
        return Ok(None);
    }
    read(trusted, address, peer.scheme, inbound).map(Some)
}

impl TrustedProxies {
    /// Whether this is the address of a trusted proxy.
    pub(crate) fn contains(&self, address: &IpAddr) -> bool {
        self.networks.iter().any(|net| net.contains(address))
    }
}

fn read(
    trusted: &TrustedProxies,
    peer: IpAddr,
    scheme: Scheme,
    inbound: &ParsedRequest<'_>,
) -> Result<ClientRequest, Refusal> {
    match trusted.source {
        ForwardedSource::Forwarded => from_forwarded(&trusted.networks, peer, scheme, inbound),
        ForwardedSource::XForwarded { address, scheme: reads_scheme, host, port } => {
            let fields = inbound.fields;
            let found = address.then(|| {
                find_client(peer, x_forwarded_for(values(fields, "x-forwarded-for")), &trusted.networks)
            });
            let mut chain = String::new();
            for entry in found.iter().flat_map(|found| &found.entries) {
                chain.push_str(&String::from_utf8_lossy(entry));
                chain.push_str(", ");
            }
            chain.push_str(&peer.to_string());
            let scheme = match single(fields, "x-forwarded-proto").filter(|_| reads_scheme) {
                Some(value) => parse_scheme(value?, "X-Forwarded-Proto")?,
                None => scheme,
            };
            let mut own = vec![("x-forwarded-for", chain), ("x-forwarded-proto", scheme.as_str().to_owned())];
            if let Some(value) = single(fields, "x-forwarded-port").filter(|_| port) {
                own.push(("x-forwarded-port", parse_port(value?)?.to_string()));
            }
            let host = match single(fields, "x-forwarded-host").filter(|_| host) {
                Some(value) => Some(parse_host(value?, scheme, "X-Forwarded-Host")?),
                None => None,
            };
            let client = found.map_or(Some(peer), |found| found.address);
            Ok(ClientRequest { scheme, forwarded: ForwardedFields::new(own, client, host) })
        }
    }
}

/// Reads `Forwarded`. The element of the proxy that received the client's request also names the
/// scheme and the host.
fn from_forwarded(
    trusted: &[IpNet],
    peer: IpAddr,
    peer_scheme: Scheme,
    inbound: &ParsedRequest<'_>,
) -> Result<ClientRequest, Refusal> {
    const NAME: &str = "Forwarded";
    let elements = forwarded_elements(values(inbound.fields, "forwarded"))
        .ok_or(Refusal::Forwarded { name: NAME, problem: "does not have the syntax of RFC 7239" })?;
    let newest_first = elements.into_iter().rev().map(|element| (element.client, element));
    let found = find_client(peer, newest_first, trusted);
    let first = found.entries.first();
    let scheme = match first.and_then(|element| element.proto.as_deref()) {
        Some(proto) => parse_scheme(proto.as_bytes(), NAME)?,
        None => peer_scheme,
    };
    let host = match first.and_then(|element| element.host.as_deref()) {
        Some(host) => Some(parse_host(host.as_bytes(), scheme, NAME)?),
        None => None,
    };
    let (mut chain, mut forwarded) = (String::new(), String::new());
    for element in &found.entries {
        let node = element.client.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        chain.push_str(&node);
        chain.push_str(", ");
        forwarded.push_str(element.text);
        forwarded.push_str(", ");
    }
    chain.push_str(&peer.to_string());
    let node = if peer.is_ipv6() { format!("\"[{peer}]\"") } else { peer.to_string() };
    for part in ["for=", &node, ";proto=", peer_scheme.as_str()] {
        forwarded.push_str(part);
    }
    let own = vec![
        ("x-forwarded-for", chain),
        ("x-forwarded-proto", scheme.as_str().to_owned()),
        ("forwarded", forwarded),
    ];
    Ok(ClientRequest { scheme, forwarded: ForwardedFields::new(own, found.address, host) })
}

fn values<'f>(fields: &'f [Field<'f>], name: &str) -> impl DoubleEndedIterator<Item = &'f [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// The value of a field that has one value, which may be stated several times: some proxies append
/// what they received themselves. `None`: the field is absent.
fn single<'f>(fields: &'f [Field<'f>], name: &'static str) -> Option<Result<&'f [u8], Refusal>> {
    let members = values(fields, name).flat_map(|value| value.split(|byte| *byte == b','));
    let mut members = members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty());
    let first = members.next()?;
    let agrees = members.all(|member| member.eq_ignore_ascii_case(first));
    Some(if agrees { Ok(first) } else { Err(Refusal::Forwarded { name, problem: "has several values" }) })
}

/// `ws` and `wss` are what some proxies write for the request that opens a WebSocket.
fn parse_scheme(value: &[u8], name: &'static str) -> Result<Scheme, Refusal> {
    match value.to_ascii_lowercase().as_slice() {
        b"http" | b"ws" => Ok(Scheme::Http),
        b"https" | b"wss" => Ok(Scheme::Https),
        _ => Err(Refusal::Forwarded { name, problem: "names a scheme other than http and https" }),
    }
}

fn parse_port(value: &[u8]) -> Result<u16, Refusal> {
    let port = str::from_utf8(value).ok().and_then(|text| text.parse().ok()).filter(|port| *port != 0);
    port.ok_or(Refusal::Forwarded { name: "X-Forwarded-Port", problem: "is not a port" })
}

fn parse_host(value: &[u8], scheme: Scheme, name: &'static str) -> Result<String, Refusal> {
    let request = RawRequest { method: "GET", scheme, authority: Some(value), host: None, target: b"/" };
    match Canonical::parse(&request) {
        Ok(request) => Ok(request.authority().to_owned()),
        Err(_) => Err(Refusal::Forwarded { name, problem: "names something that is not a host" }),
    }
}
