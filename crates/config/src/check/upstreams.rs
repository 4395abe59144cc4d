//! Checks `[[upstream]]`: endpoints, TLS and limits.

use std::sync::Arc;
use std::time::Duration;

use http_engine::config::{
    Endpoint, HealthCheck, Retries, Upstream, UpstreamEndpoint, UpstreamProtocol, UpstreamTimeouts,
    UpstreamTls,
};
use http_engine::tls::Protocols;
use http_engine::url::{Url, UrlFault};
use rustls::pki_types::ServerName;

use super::super::fault::KeyPath;
use super::super::raw;
use super::tls::{Client, KeyNames};
use super::{Context, check_unique, destinations, is_referenced, names};
use crate::partial::Partial;
use crate::version::version;

pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Vec<Arc<Upstream>> {
    let upstreams = sound.paths("upstream", &sound.file.upstream);
    check_unique(upstreams.iter().map(|(path, u)| (path.clone(), &u.name)), "upstreams", &mut context.faults);
    let known = names(&sound.file.upstream, |upstream| &upstream.name);
    for (path, upstream) in &upstreams {
        let references = sound.file.route.iter().flat_map(destinations::references);
        let references = references.chain(sound.file.authorizer.iter().map(|a| a.upstream.0.as_str()));
        let unfit = sound.has_unreadable("route") || sound.has_unreadable("authorizer");
        if !is_referenced(&upstream.name.0, references, &known) && !unfit {
            let message = format!("no route uses the upstream {:?}", upstream.name.0);
            context.faults.add(&path.key("name"), message, "name it in a route, or remove it");
        }
    }
    upstreams
        .iter()
        .filter_map(|(path, upstream)| check_upstream(upstream, path, context))
        .map(Arc::new)
        .collect()
}

/// An endpoint, and whether it uses TLS. `None`: the address does not say so (a Unix socket).
type Address = (Endpoint, Option<bool>);

fn check_upstream(raw: &raw::Upstream, path: &KeyPath, context: &mut Context<'_>) -> Option<Upstream> {
    let at = path.key("endpoints");
    let mut addresses = Vec::<Address>::new();
    let mut weights = Vec::new();
    for (index, endpoint) in raw.endpoints.iter().enumerate() {
        let (text, weight) = endpoint.parts();
        weights.push(weight);
        match address(text, context) {
            Ok((endpoint, _)) if addresses.iter().any(|(other, _)| *other == endpoint) => {
                context.faults.add(&at.index(index), "the endpoint occurs twice", "remove one");
            }
            Ok(address) => addresses.push(address),
            Err((message, hint)) => context.faults.add(&at.index(index), message, hint),
        }
    }
    if weights.iter().all(|weight| *weight == 0) {
        let message = "every endpoint has the weight 0, so none receives requests";
        context.faults.add(&at, message, "give one a weight from 1 to 1000");
    }
    let secure = addresses.iter().any(|(_, secure)| *secure == Some(true));
    let plain = addresses.iter().any(|(_, secure)| *secure == Some(false));
    if secure && plain {
        let message = "some endpoints use TLS and some do not";
        context.faults.add(
            &at,
            message,
            "the endpoints of an upstream must be equivalent; use two upstreams",
        );
    }
    let tls = tls(raw, path, &addresses, context);
    let resolve_every = resolve_every(raw, path, &addresses, context);
    let health_check = raw.health_check.as_ref().map(|check| health_check(check, path, context));
    let retries = raw.retries.as_ref().map(|retries| check_retries(retries, raw, path, context));
    let at = path.key("timeouts");
    let mut positive = |value, key: &str| context.check_positive(value, &at.key(key));
    let timeouts = UpstreamTimeouts {
        connect: positive(raw.timeouts.connect.0, "connect"),
        response_header: positive(raw.timeouts.response_header.0, "response_header"),
        stall: positive(raw.timeouts.stall.0, "stall"),
        idle: positive(raw.timeouts.idle.0, "idle"),
    };
    Some(Upstream {
        name: raw.name.0.as_str().into(),
        endpoints: addresses
            .into_iter()
            .zip(weights)
            .map(|((address, _), weight)| UpstreamEndpoint { address, weight })
            .collect(),
        resolve_every,
        protocol: match raw.protocol {
            raw::UpstreamProtocol::Http1 => UpstreamProtocol::Http1,
            raw::UpstreamProtocol::Http2 => UpstreamProtocol::Http2,
        },
        tls: tls.ok()?,
        timeouts,
        idle_connections: raw.idle_connections,
        max_requests: raw.max_requests,
        unhealthy_after: raw.unhealthy_after,
        unhealthy_for: raw.unhealthy_for.0,
        health_check,
        retries,
    })
}

/// Checks the request and the times of health checks.
fn health_check(raw: &raw::HealthCheck, path: &KeyPath, context: &mut Context<'_>) -> HealthCheck {
    let at = path.key("health_check");
    let as_url = Url::parse(&format!("http://host{}", raw.path));
    if !as_url.is_ok_and(|url| url.target() == raw.path) {
        let message = format!("{:?} is not a path", raw.path);
        context.faults.add(&at.key("path"), message, "such as \"/healthz\"");
    }
    if let Some(host) = &raw.host
        && !Url::parse(&format!("http://{host}")).is_ok_and(|url| url.target() == "/")
    {
        let message = format!("{host:?} is not a host name or address");
        context.faults.add(&at.key("host"), message, "such as \"app.example\"");
    }
    let interval = context.check_positive(raw.interval.0, &at.key("interval"));
    let timeout = context.check_positive(raw.timeout.0, &at.key("timeout"));
    if timeout > interval && !interval.is_zero() {
        let message = "a check may take longer than the time until the next one";
        context.faults.add(&at.key("timeout"), message, "write at most the `interval`");
    }
    HealthCheck {
        path: raw.path.as_str().into(),
        host: raw.host.as_deref().map(Into::into),
        interval,
        timeout,
        healthy_after: raw.healthy_after,
        unhealthy_after: raw.unhealthy_after,
        statuses: raw.statuses.clone(),
    }
}

/// Checks the limits of retries.
fn check_retries(
    retries: &raw::Retries,
    upstream: &raw::Upstream,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Retries {
    let at = path.key("retries");
    if retries.budget_percent == 0 && retries.min_per_second == 0 {
        let message = "the budget allows no retry";
        context.faults.add(&at.key("budget_percent"), message, "raise it, or remove `retries`");
    }
    let per_try_timeout = retries.per_try_timeout.map(|limit| {
        let at = at.key("per_try_timeout");
        if limit.0 >= upstream.timeouts.response_header.0 {
            let message =
                "an attempt may take as long as `timeouts.response_header`, so it never ends earlier";
            context.faults.add(&at, message, "write less than `timeouts.response_header`");
        }
        context.check_positive(limit.0, &at)
    });
    let on = |condition| retries.on.contains(&condition);
    let statuses = [
        (raw::RetryCondition::BadGateway, 502),
        (raw::RetryCondition::ServiceUnavailable, 503),
        (raw::RetryCondition::GatewayTimeout, 504),
    ];
    Retries {
        attempts: retries.attempts,
        on_connect_failure: on(raw::RetryCondition::Connect),
        on_reset: on(raw::RetryCondition::Reset),
        on_statuses: statuses.into_iter().filter(|(word, _)| on(*word)).map(|(_, status)| status).collect(),
        budget_percent: retries.budget_percent,
        min_per_second: retries.min_per_second,
        per_try_timeout,
    }
}

/// Checks how often names are looked up.
fn resolve_every(
    raw: &raw::Upstream,
    path: &KeyPath,
    addresses: &[Address],
    context: &mut Context<'_>,
) -> Option<Duration> {
    let every = raw.resolve_every?.0;
    let at = path.key("resolve_every");
    if every < Duration::from_secs(1) {
        context.faults.add(&at, "names cannot be looked up more than once a second", "write \"1s\" or more");
    } else if !addresses.is_empty() && addresses.iter().all(|(endpoint, _)| endpoint.name().is_none()) {
        let message = "no endpoint has a host name, so nothing is looked up";
        context.faults.add(&at, message, "remove it, or write a host name in `endpoints`");
    }
    Some(every)
}

fn address(text: &str, context: &Context<'_>) -> Result<Address, (String, &'static str)> {
    const HINT: &str = "write \"http://host:port\", \"https://host:port\" or \"unix:/path\"";
    if let Some(path) = text.strip_prefix("unix:") {
        // Other programs write the URL of a Unix socket as `unix:///path`.
        let path = path.strip_prefix("//").unwrap_or(path);
        return match path {
            "" => Err((format!("{text:?} names no socket"), HINT)),
            path => Ok((Endpoint::Unix(context.reader.resolve(path.as_ref())), None)),
        };
    }
    let url = Url::parse(text).map_err(|fault| match fault {
        UrlFault::UserInfo => ("an endpoint may not contain a user name or password".to_owned(), HINT),
        _ => (format!("{text:?} is not an endpoint"), HINT),
    })?;
    if url.target() != "/" {
        let hint = "paths belong to routes: `strip_prefix` and `replace_prefix` change them";
        return Err((format!("{text:?} has a path"), hint));
    }
    let (host, port) = url.endpoint();
    Ok((Endpoint::Tcp { host: host.into(), port }, Some(url.is_https())))
}

/// Checks TLS to the endpoints. `Err` when a fault was noted.
fn tls(
    raw: &raw::Upstream,
    path: &KeyPath,
    addresses: &[Address],
    context: &mut Context<'_>,
) -> Result<Option<UpstreamTls>, ()> {
    let none = raw::UpstreamTls::default();
    let (at, tls) = (path.key("tls"), raw.tls.as_ref().unwrap_or(&none));
    if addresses.iter().any(|(_, secure)| *secure == Some(false)) {
        if raw.tls.is_some() {
            context.faults.add(&at, "the endpoints are plain http", "write https://, or remove `tls`");
            return Err(());
        }
        return Ok(None);
    }
    let secure = addresses.iter().any(|(_, secure)| *secure == Some(true));
    if !secure && raw.tls.is_none() {
        return Ok(None);
    }
    let unix = addresses.iter().any(|(endpoint, _)| matches!(endpoint, Endpoint::Unix(_)));
    let mut sound = true;
    let mut fault = |key: &str, message: String, hint: &str| {
        context.faults.add(&at.key(key), message, hint);
        sound = false;
    };
    if unix && tls.server_name.is_none() {
        let message = "TLS over a Unix socket needs a name to verify";
        fault("server_name", message.into(), "write the name in the server's certificate");
    }
    let server_name = tls.server_name.as_ref().map(|name| ServerName::try_from(name.clone()));
    let server_name = server_name.transpose().unwrap_or_else(|_| {
        let name = tls.server_name.as_deref().unwrap_or_default();
        fault("server_name", format!("{name:?} is not a host name or address"), "such as \"api.example\"");
        None
    });
    let identity = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
        (None, None) => None,
        (Some(_), None) => {
            fault("key", "missing key `key`".into(), "a certificate needs its private key");
            None
        }
        (None, Some(_)) => {
            fault("certificate", "missing key `certificate`".into(), "a private key needs its certificate");
            None
        }
    };
    let http2 = raw.protocol == raw::UpstreamProtocol::Http2;
    let protocols = Protocols { http1: !http2, http2 };
    let client = Client { ca: tls.ca.as_deref(), identity, protocols, path: &at, keys: KeyNames::DEFAULT };
    match context.tls_client(&client) {
        Some((client, material)) if sound => {
            let name = tls.server_name.as_deref().unwrap_or_default();
            let version = version([material.to_be_bytes().as_slice(), name.as_bytes(), &[u8::from(http2)]]);
            Ok(Some(UpstreamTls { client, server_name, version }))
        }
        _ => Err(()),
    }
}
