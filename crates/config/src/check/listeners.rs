//! Checks `[[listener]]`: addresses, TLS, limits and the authorization service.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use gateway::config::{
    AuthorizationService, ForwardedSource, Listener, ListenerService, ListenerTls, QuestionSource,
    ResponseCacheControl, TrustedProxies,
};
use http_engine::config::{Limits, ListenAddress, ListenerTimeouts};
use http_engine::listen::MAX_PATH;
use http_engine::tls::Protocols;

use super::super::fault::KeyPath;
use super::super::raw::{self, ClientCertificateDemand as Demand, ForwardedHeader, Protocol};
use super::super::scalar::{ByteSize, EndpointAddress};
use super::listener_tls::ServerTls;
use super::paths::plain_path;
use super::trust::TrustList;
use super::{Context, check_unique, rules};
use crate::partial::Partial;

/// Range of the size limit of a request head, in bytes.
const HEADER_SIZE_RANGE: RangeInclusive<u64> = 1 << 10..=1 << 20;
/// Range of the size limit of a request target, in bytes. A longer target has no canonical form.
const TARGET_SIZE_RANGE: RangeInclusive<u64> = 64..=auth::request::MAX_TARGET as u64;
/// Default permission bits of a Unix socket.
const DEFAULT_SOCKET_MODE: u32 = 0o600;

pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Vec<Listener> {
    let listeners = sound.paths("listener", &sound.file.listener);
    if listeners.is_empty()
        && !sound.has_unreadable("listener")
        && !sound.is_provider_only()
        && !sound.has_objects()
    {
        let hint = "add [[listener]] with name and address, such as \"127.0.0.1:8080\"";
        context.faults.add(&KeyPath::default(), "there is no listener, so no request could arrive", hint);
    }
    check_unique(listeners.iter().map(|(path, l)| (path.clone(), &l.name)), "listeners", &mut context.faults);
    check_addresses(sound, &listeners, context);
    let vouching = sound.file.client_certificates.is_some() || sound.has_unreadable("client_certificates");
    listeners
        .iter()
        .filter_map(|(path, listener)| check_listener(listener, path, vouching, sound, context))
        .collect()
}

/// Refuses two listeners on one address, and one on a port that a Gateway may get. The kernel would
/// distribute the connections between them, and a network policy for Gateways would open the port.
fn check_addresses(sound: &Partial, listeners: &[(KeyPath, &raw::Listener)], context: &mut Context<'_>) {
    let admin = &sound.file.admin;
    let admin = admin.enabled.then(|| (KeyPath::top_level("admin"), ListenAddress::Ip(admin.address.0)));
    let provider = sound.file.provider.iter();
    let provider = provider.map(|p| (KeyPath::top_level("provider"), ListenAddress::Ip(p.address.0)));
    let listeners = listeners.iter().map(|(path, l)| (path.clone(), address(&l.address, context)));
    let all: Vec<_> = admin.into_iter().chain(provider).chain(listeners).collect();
    for (at, (path, address)) in all.iter().enumerate() {
        if let Some((first, _)) = all[..at].iter().find(|(_, other)| other.overlaps(address)) {
            let message = format!("the address {address} is already used by {first}");
            let hint = match address {
                ListenAddress::Ip(_) => "give each its own port",
                ListenAddress::Unix(_) => "give each its own path",
            };
            context.faults.add(&path.key("address"), message, hint);
        }
    }
    let service = sound.file.gateway_api.as_ref().and_then(|table| table.service.as_ref());
    let Some(service) = service else { return };
    for (path, address) in &all {
        if let ListenAddress::Ip(address) = address
            && (service.first_port..=service.last_port).contains(&address.port())
        {
            let message = format!(
                "port {} is one of those that Gateways get ({} to {})",
                address.port(),
                service.first_port,
                service.last_port
            );
            let hint = "write another port, or another range in `gateway_api.service`";
            context.faults.add(&path.key("address"), message, hint);
        }
    }
}

fn address(place: &EndpointAddress, context: &Context<'_>) -> ListenAddress {
    match place {
        EndpointAddress::Ip(address) => ListenAddress::Ip(*address),
        EndpointAddress::Unix(path) => ListenAddress::Unix(context.reader.resolve(path).into()),
    }
}

/// Permission bits of a listener's socket file.
fn mode(raw: &raw::Listener, path: &KeyPath, address: &ListenAddress, context: &mut Context<'_>) -> u32 {
    match address {
        ListenAddress::Ip(_) if raw.mode.is_some() => {
            let hint = "remove it, or write `address = \"unix:/path\"`";
            context.faults.add(&path.key("mode"), "a port has no permission bits", hint);
        }
        ListenAddress::Unix(file) if file.as_os_str().len() > MAX_PATH => {
            let long = file.as_os_str().len();
            let message =
                format!("{address} has {long} bytes, but the path of a socket has at most {MAX_PATH}");
            context.faults.add(&path.key("address"), message, "choose a shorter one");
        }
        _ => {}
    }
    raw.mode.map_or(DEFAULT_SOCKET_MODE, |mode| mode.0)
}

pub(super) fn check_listener(
    raw: &raw::Listener,
    path: &KeyPath,
    vouching: bool,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Option<Listener> {
    let (http1, http2) = (raw.protocols.contains(&Protocol::Http1), raw.protocols.contains(&Protocol::Http2));
    let tls = raw.tls.as_ref().map(|tls| {
        let path = path.key("tls");
        demand(tls, &path, vouching, context);
        let built = context.tls_server(tls, Protocols { http1, http2 }, &path)?;
        let ServerTls { config: server, certificates, clients } = built;
        Some(ListenerTls { server, certificates, client_authorities: clients.filter(|_| vouching) })
    });
    let proxy_protocol = TrustList {
        networks: &raw.proxy_protocol_from,
        path: path.key("proxy_protocol_from"),
        anyone: raw.proxy_protocol_from_anyone,
        anyone_path: path.key("proxy_protocol_from_anyone"),
        consequence: "could claim to be any address",
    };
    let proxy_protocol = proxy_protocol.check(context);
    if raw.https_redirect && raw.authorization.is_some() {
        let message = "the listener only authorizes for other proxies, which answer themselves";
        context.faults.add(
            &path.key("https_redirect"),
            message,
            "configure it at these proxies, and remove it here",
        );
    }
    if raw.https_redirect && raw.tls.is_some() {
        let message = "the key has no effect: every request on this listener has TLS";
        context.faults.add(&path.key("https_redirect"), message, "set it on the listener without `tls`");
    }
    let trusted_proxies = raw.trusted_proxies.as_ref();
    let trusted_proxies =
        trusted_proxies.map(|table| check_trusted_proxies(table, raw, &path.key("trusted_proxies"), context));
    let service = match &raw.authorization {
        None => ListenerService::Proxy,
        Some(table) => {
            let at = path.key("authorization");
            ListenerService::Authorization(authorization(table, http2, &at, sound, context))
        }
    };
    let address = address(&raw.address, context);
    warn_of_plain_text(raw, &address, path, sound, context);
    let mode = mode(raw, path, &address, context);
    let limits = limits(&raw.limits, &path.key("limits"), context);
    let at = path.key("timeouts");
    let mut positive = |value, key: &str| context.check_positive(value, &at.key(key));
    let timeouts = ListenerTimeouts {
        handshake: positive(raw.timeouts.handshake.0, "handshake"),
        header: positive(raw.timeouts.header.0, "header"),
        idle: positive(raw.timeouts.idle.0, "idle"),
        stall: positive(raw.timeouts.stall.0, "stall"),
    };
    Some(Listener {
        socket: None,
        metrics: None,
        name: raw.name.0.as_str().into(),
        service,
        address,
        mode,
        tls: match tls {
            Some(None) => return None,
            Some(tls) => tls,
            None => None,
        },
        http1,
        http2,
        proxy_protocol,
        https_redirect: raw.https_redirect,
        trusted_proxies,
        limits,
        timeouts,
    })
}

/// Warns of a listener on which anyone on the network could read credentials. It is silent if other
/// proxies are named that end TLS before it.
fn warn_of_plain_text(
    raw: &raw::Listener,
    address: &ListenAddress,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) {
    let file = &sound.file;
    let takes_credentials = !file.issuer.is_empty()
        || !file.token_authority.is_empty()
        || file.basic_auth.is_some()
        || file.login.is_some();
    let is_behind_proxies = raw.trusted_proxies.is_some()
        || !raw.proxy_protocol_from.is_empty()
        || raw.authorization.is_some()
        || raw.https_redirect;
    let is_outside = matches!(address, ListenAddress::Ip(address) if !address.ip().is_loopback());
    if raw.tls.is_none() && is_outside && takes_credentials && !is_behind_proxies {
        let message = "tokens, passwords and session cookies arrive here unencrypted, from other machines";
        let hint =
            "add `tls`, or listen on 127.0.0.1; if proxies end TLS before it, name them in `trusted_proxies`";
        context.faults.warn(&path.key("address"), message, hint);
    }
}

/// The proxies that report where requests come from, and the fields that are believed.
fn check_trusted_proxies(
    raw: &raw::TrustedProxies,
    listener: &raw::Listener,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> TrustedProxies {
    if listener.authorization.is_some() {
        let message = "the listener only authorizes for other proxies, whose description of a request is trusted already";
        context.faults.add(
            path,
            message,
            "list these proxies in `authorization.from`, and remove this table",
        );
    }
    let headers = path.key("headers");
    for (index, header) in raw.headers.iter().enumerate() {
        if raw.headers[..index].contains(header) {
            context.faults.add(&headers.index(index), "the header occurs twice", "keep one");
        }
    }
    let reads = |header| raw.headers.contains(&header);
    if reads(ForwardedHeader::Forwarded) && raw.headers.iter().any(|h| *h != ForwardedHeader::Forwarded) {
        let message = "`Forwarded` and the X-Forwarded- headers could name different clients";
        context.faults.add(&headers, message, "keep `Forwarded`, or keep the others");
    }
    let networks = TrustList {
        networks: &raw.from,
        path: path.key("from"),
        anyone: raw.from_anyone,
        anyone_path: path.key("from_anyone"),
        consequence: "could claim any address, and that a request came over TLS",
    };
    TrustedProxies {
        networks: networks.check(context),
        source: if reads(ForwardedHeader::Forwarded) {
            ForwardedSource::Forwarded
        } else {
            ForwardedSource::XForwarded {
                address: reads(ForwardedHeader::XForwardedFor),
                scheme: reads(ForwardedHeader::XForwardedProto),
                host: reads(ForwardedHeader::XForwardedHost),
                port: reads(ForwardedHeader::XForwardedPort),
            }
        },
    }
}

/// How other proxies send authorization requests, and which networks they may come from.
fn authorization(
    raw: &raw::Authorization,
    http2: bool,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> AuthorizationService {
    if raw.http.is_none() && !http2 {
        let message = "no proxy can query: gRPC needs HTTP/2, and `http` is not set";
        let hint = "add \"h2\" to the listener's `protocols`, or set `http`";
        context.faults.add(path, message, hint);
    }
    let from = TrustList {
        networks: &raw.from,
        path: path.key("from"),
        anyone: raw.from_anyone,
        anyone_path: path.key("from_anyone"),
        consequence: "could query any request, on behalf of any client",
    };
    let prefix = match (&raw.path_prefix, raw.http) {
        (None, _) => String::new(),
        (Some(prefix), Some(raw::Asking::Envoy)) => {
            plain_path(prefix, &path.key("path_prefix"), context).unwrap_or_default()
        }
        (Some(_), _) => {
            let message = "only Envoy's HTTP service adds a prefix to the path";
            context.faults.add(&path.key("path_prefix"), message, "write `http = \"envoy\"`, or remove it");
            String::new()
        }
    };
    let http = raw.http.map(|protocol| match protocol {
        raw::Asking::Envoy => QuestionSource::SameRequest { prefix: prefix.into() },
        raw::Asking::XOriginal => QuestionSource::XOriginal,
        raw::Asking::XForwarded => QuestionSource::XForwarded,
    });
    let keeping = raw.max_age.map(|max_age| {
        if raw.http.is_none() {
            let message = "Envoy does not cache gRPC responses";
            context.faults.add(&path.key("max_age"), message, "set `http`, or remove it");
        }
        if max_age.0 < Duration::from_secs(1) {
            let hint = "responses state it in whole seconds; write at least \"1s\", or remove it";
            context.faults.add(&path.key("max_age"), format!("{max_age} is less than a second"), hint);
        }
        ResponseCacheControl { max_age: max_age.0, vary: vary(raw.http, sound) }
    });
    let client_address_header = client_address_header(raw, path, sound, context);
    AuthorizationService {
        trusted_proxies: from.check(context),
        http,
        client_address_header,
        caching: keeping,
    }
}

/// The header that names the client's address. Where a rule reads the address, the file must name
/// it: a proxy that is not configured to set the header may pass on the client's own.
fn client_address_header(
    raw: &raw::Authorization,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Option<Box<str>> {
    let Some(header) = &raw.client_address_header else {
        let condition = raw.http.and_then(|_| rules::first_address_condition(sound));
        if let Some(condition) = condition {
            let message = format!(
                "`{condition}` reads the client's address, but no header is named in which the proxy states it"
            );
            let hint = "set `client_address_header`, and have the proxy replace that header";
            context.faults.add(path, message, hint);
        }
        return None;
    };
    if raw.http.is_none() {
        let message = "the key has no effect: over gRPC, Envoy states the client's address itself";
        context.faults.add(&path.key("client_address_header"), message, "set `http`, or remove it");
    }
    Some(header.0.as_str().into())
}

/// Value of `Vary`: every header that a decision can depend on. These are the headers that describe
/// the original request, credentials, and headers that select a route.
fn vary(protocol: Option<raw::Asking>, sound: &Partial) -> Arc<str> {
    let described_in: &[&str] = match protocol {
        Some(raw::Asking::XOriginal) => &["X-Original-Method", "X-Original-URL", "X-Original-URI"],
        Some(raw::Asking::XForwarded) => {
            &["X-Forwarded-Method", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Uri"]
        }
        Some(raw::Asking::Envoy) | None => &[],
    };
    let mut names = vec!["Authorization", "Cookie"];
    names.extend(described_in);
    for name in sound.file.route.iter().flat_map(|route| route.headers.keys()) {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    names.join(", ").into()
}

fn demand(tls: &raw::ListenerTls, path: &KeyPath, vouching: bool, context: &mut Context<'_>) {
    match (tls.client_certificates, &tls.client_ca) {
        (Demand::Off, Some(_)) => {
            let hint = "write `client_certificates = \"optional\"` or \"required\", or remove `client_ca`";
            context.faults.add(
                &path.key("client_ca"),
                "the listener does not request client certificates",
                hint,
            );
        }
        (Demand::Optional | Demand::Required, None) => {
            let hint = "name a PEM file with the certificate authorities that verify client certificates";
            context.faults.add(&path.key("client_ca"), "missing key `client_ca`", hint);
        }
        (Demand::Optional, Some(_)) if !vouching => {
            let message = "the listener requests client certificates, but there is no [client_certificates]";
            context.faults.warn(&path.key("client_certificates"), message, "add [client_certificates]");
        }
        _ => {}
    }
    if tls.client_certificates == Demand::Off && !tls.client_crl.is_empty() {
        let message = "the listener does not request client certificates";
        let hint = "write `client_certificates = \"optional\"` or \"required\", or remove `client_crl`";
        context.faults.add(&path.key("client_crl"), message, hint);
    }
}

fn limits(raw: &raw::Limits, path: &KeyPath, context: &mut Context<'_>) -> Limits {
    let mut within = |value: ByteSize, key: &str, range: RangeInclusive<u64>| {
        let good = range.contains(&value.0);
        if !good {
            let (low, high) = (ByteSize(*range.start()), ByteSize(*range.end()));
            let hint = format!("write a size between {low} and {high}");
            context.faults.add(&path.key(key), format!("{value} is out of range"), hint);
        }
        good
    };
    let (header, target) = (raw.header_size, raw.target());
    let mut good = within(header, "header_size", HEADER_SIZE_RANGE);
    if let Some(written) = raw.target_size {
        good &= within(written, "target_size", TARGET_SIZE_RANGE);
    }
    // An absent `target_size` follows `header_size`. A written one is intended, so it is a fault.
    if good && target > header {
        let message = format!("{target} is larger than `header_size` ({header})");
        let hint = "the target is part of the head: raise `header_size`, or remove `target_size`";
        context.faults.add(&path.key("target_size"), message, hint);
    }
    let bytes = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
    Limits {
        connections: raw.connections,
        header_bytes: bytes(header),
        header_fields: raw.header_fields,
        target_bytes: bytes(target),
        concurrent_streams: raw.concurrent_streams,
    }
}
