//! Checks `[[listener]]`: addresses, TLS, limits and the authorization service.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use gateway::config::{
    AuthorizationService, Listener, ListenerService, ListenerTls, QuestionSource, ResponseCacheControl,
};
use http_engine::config::{Limits, ListenAddress, ListenerTimeouts};
use http_engine::listen::MAX_PATH;
use http_engine::tls::Protocols;

use super::super::fault::KeyPath;
use super::super::raw::{self, ClientCertificateDemand as Demand, Protocol};
use super::super::scalar::{ByteSize, EndpointAddress};
use super::paths::plain_path;
use super::trust::TrustList;
use super::{Context, check_unique};
use crate::partial::Partial;

/// Range of the size limit of a request head, in bytes.
const HEADER_SIZE_RANGE: RangeInclusive<u64> = 1 << 10..=1 << 20;
/// Range of the size limit of a request target, in bytes. A longer target has no canonical form.
const TARGET_SIZE_RANGE: RangeInclusive<u64> = 64..=auth::request::MAX_TARGET as u64;
/// Default permission bits of a Unix socket.
const DEFAULT_SOCKET_MODE: u32 = 0o600;

pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Vec<Listener> {
    let listeners = sound.paths("listener", &sound.file.listener);
    if listeners.is_empty() && !sound.has_unreadable("listener") && !sound.is_provider_only() {
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

/// Refuses two listeners on one address. The kernel would distribute the connections between them.
fn check_addresses(sound: &Partial, listeners: &[(KeyPath, &raw::Listener)], context: &mut Context<'_>) {
    let admin = &sound.file.admin;
    let admin = admin.enabled.then(|| (KeyPath::top_level("admin"), ListenAddress::Ip(admin.address.0)));
    let provider = sound.file.provider.iter();
    let provider = provider.map(|p| (KeyPath::top_level("provider"), ListenAddress::Ip(p.address.0)));
    let listeners = listeners.iter().map(|(path, l)| (path.clone(), address(&l.address, context)));
    let all: Vec<_> = admin.into_iter().chain(provider).chain(listeners).collect();
    for (at, (path, address)) in all.iter().enumerate() {
        if let Some((first, _)) = all[..at].iter().find(|(_, other)| other.overlaps(address)) {
            let what = format!("the address {address} is already used by {first}");
            let hint = match address {
                ListenAddress::Ip(_) => "give each its own port",
                ListenAddress::Unix(_) => "give each its own path",
            };
            context.faults.add(&path.key("address"), what, hint);
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
            let what = format!("{address} has {long} bytes, but the path of a socket has at most {MAX_PATH}");
            context.faults.add(&path.key("address"), what, "choose a shorter one");
        }
        _ => {}
    }
    raw.mode.map_or(DEFAULT_SOCKET_MODE, |mode| mode.0)
}

fn check_listener(
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
        let (server, authorities) = context.tls_server(tls, Protocols { http1, http2 }, &path)?;
        Some(ListenerTls { server, client_authorities: authorities.filter(|_| vouching) })
    });
    let proxy_protocol = TrustList {
        networks: &raw.proxy_protocol_from,
        path: path.key("proxy_protocol_from"),
        anyone: raw.proxy_protocol_from_anyone,
        anyone_path: path.key("proxy_protocol_from_anyone"),
        consequence: "could claim to be any address",
    };
    let proxy_protocol = proxy_protocol.check(context);
    let service = match &raw.authorization {
        None => ListenerService::Proxy,
        Some(asked) => {
            let at = path.key("authorization");
            ListenerService::Authorization(authorization(asked, http2, &at, sound, context))
        }
    };
    let address = address(&raw.address, context);
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
        limits,
        timeouts,
    })
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
        let what = "no proxy can query: gRPC needs HTTP/2, and `http` is not set";
        let hint = "add \"h2\" to the listener's `protocols`, or set `http`";
        context.faults.add(path, what, hint);
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
            let what = "only Envoy's HTTP service adds a prefix to the path";
            context.faults.add(&path.key("path_prefix"), what, "write `http = \"envoy\"`, or remove it");
            String::new()
        }
    };
    let http = raw.http.map(|asking| match asking {
        raw::Asking::Envoy => QuestionSource::SameRequest { prefix: prefix.into() },
        raw::Asking::XOriginal => QuestionSource::XOriginal,
        raw::Asking::XForwarded => QuestionSource::XForwarded,
    });
    let keeping = raw.max_age.map(|max_age| {
        if raw.http.is_none() {
            let what = "Envoy does not cache gRPC responses";
            context.faults.add(&path.key("max_age"), what, "set `http`, or remove it");
        }
        if max_age.0 < Duration::from_secs(1) {
            let hint = "responses state it in whole seconds; write at least \"1s\", or remove it";
            context.faults.add(&path.key("max_age"), format!("{max_age} is less than a second"), hint);
        }
        ResponseCacheControl { max_age: max_age.0, vary: vary(raw.http, sound) }
    });
    AuthorizationService { trusted_proxies: from.check(context), http, caching: keeping }
}

/// Value of `Vary`: every header that a decision can depend on. These are the headers that describe
/// the original request, credentials, and headers that select a route.
fn vary(asking: Option<raw::Asking>, sound: &Partial) -> Arc<str> {
    let told: &[&str] = match asking {
        Some(raw::Asking::XOriginal) => &["X-Original-Method", "X-Original-URL", "X-Original-URI"],
        Some(raw::Asking::XForwarded) => {
            &["X-Forwarded-Method", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Uri"]
        }
        Some(raw::Asking::Envoy) | None => &[],
    };
    let mut names = vec!["Authorization", "Cookie"];
    names.extend(told);
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
            let what = "the listener requests client certificates, but there is no [client_certificates]";
            context.faults.warn(&path.key("client_certificates"), what, "add [client_certificates]");
        }
        _ => {}
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
        let what = format!("{target} is larger than `header_size` ({header})");
        let hint = "the target is part of the head: raise `header_size`, or remove `target_size`";
        context.faults.add(&path.key("target_size"), what, hint);
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
