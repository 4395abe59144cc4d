//! Checks `[security_events]`: who sends events about which tokens, how they arrive, and where they
//! are stored.

use std::path::Path;

use auth::request::{Canonical, RawRequest, Scheme};
use coherence::secret::looks_non_random;
use credentials::config::{EventDelivery, Transmitter};
use http_engine::config::{ClientCredential, ServerConfig};
use http_engine::url::Url;
use zeroize::Zeroizing;

use super::super::fault::KeyPath;
use super::super::raw::{self, LoginKind, TokenAuthorityKind};
use super::database::DatabaseKeys;
use super::server_keys::ServerKeys;
use super::{Context, DatabaseSettings, check_unique, issuers};
use crate::partial::Partial;

/// Shortest token, in bytes, that a transmitter may authenticate with.
const SHORTEST_TOKEN: usize = 16;

/// Transmitters of security events, and the database of the events.
#[derive(Clone)]
pub struct SecurityEvents {
    /// Transmitters that send events.
    pub transmitters: Vec<Transmitter>,
    /// Database that the events are stored in.
    pub database: EventsDatabase,
}

/// Which database stores the events.
#[derive(Debug, Clone)]
pub enum EventsDatabase {
    /// A database of their own.
    Own(Box<DatabaseSettings>),
    /// The database of the login.
    Login,
    /// The database of the provider.
    Provider,
}

/// Checks the table. `None` when there is none, or a fault was noted.
pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Option<SecurityEvents> {
    let path = KeyPath::top_level("security_events");
    let raw = sound.file.security_events.as_ref()?;
    let all: Vec<(KeyPath, &raw::Transmitter)> = raw
        .transmitter
        .iter()
        .enumerate()
        .map(|(at, one)| (path.key("transmitter").index(at), one))
        .collect();
    if all.is_empty() {
        context.faults.add(&path, "there is no transmitter", "add [[security_events.transmitter]]");
    }
    check_unique(
        all.iter().map(|(path, one)| (path.clone(), &one.name)),
        "transmitters",
        &mut context.faults,
    );
    for (at, (path, one)) in all.iter().enumerate() {
        let same = |(_, other): &&(KeyPath, &raw::Transmitter)| {
            one.endpoint.is_some() && other.endpoint == one.endpoint
        };
        if let Some((first, _)) = all[..at].iter().find(same) {
            let hint = format!("{first} has it already; a token could not be assigned to one of them");
            context.faults.add(&path.key("endpoint"), "two transmitters push to the same endpoint", hint);
        }
    }
    let database = database(sound, raw, &path, context);
    let transmitters: Vec<_> =
        all.iter().map(|(path, raw)| check_transmitter(sound, raw, path, context)).collect();
    let transmitters = transmitters.into_iter().collect::<Option<_>>()?;
    Some(SecurityEvents { transmitters, database: database? })
}

fn database(
    sound: &Partial,
    raw: &raw::SecurityEvents,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<EventsDatabase> {
    if raw.database.is_some() || raw.database_file.is_some() {
        let stated = DatabaseKeys { url: raw.database.as_deref(), file: raw.database_file.as_deref(), path };
        return stated.check(context).map(Box::new).map(EventsDatabase::Own);
    }
    let login = sound.file.login.as_ref();
    if login.is_some_and(|login| login.database.is_some() || login.database_file.is_some()) {
        return Some(EventsDatabase::Login);
    }
    if sound.file.provider.is_some() {
        return Some(EventsDatabase::Provider);
    }
    let message = "no database for security events; a restart would accept revoked tokens again";
    let hint = "name a `database`, such as \"sqlite:///var/lib/postern/events.db?mode=rwc\"";
    context.faults.add(path, message, hint);
    None
}

fn check_transmitter(
    sound: &Partial,
    raw: &raw::Transmitter,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Transmitter> {
    let issuer = issuers::check_issuer(&as_issuer(raw), path, &[], context);
    let longest = context.check_positive(raw.max_token_lifetime.0, &path.key("max_token_lifetime"));
    let tokens_of = reported_issuers(sound, raw, path, context);
    let way = match (&raw.endpoint, &raw.poll_url) {
        (Some(endpoint), None) => push_delivery(sound, raw, endpoint, path, context),
        (None, Some(url)) => poll_delivery(raw, url, path, context),
        (None, None) => {
            let hint =
                "name the `endpoint` that events are pushed to, or the `poll_url` that they are polled from";
            context.faults.add(path, "the transmitter has no delivery method", hint);
            None
        }
        (Some(_), Some(_)) => {
            let message = "events are pushed and polled at the same time";
            context.faults.add(&path.key("poll_url"), message, "keep `endpoint` or `poll_url`");
            None
        }
    };
    // A session may live longer than any token.
    let sessions = sound.file.login.as_ref().map(|login| login.lifetime.0).unwrap_or_default();
    Some(Transmitter {
        issuer: issuer?,
        tokens_of: tokens_of?,
        max_token_age: longest,
        retention: longest.max(sessions),
        delivery: way?,
    })
}

/// Converts a transmitter to an issuer, because its keys are checked like those of an issuer.
fn as_issuer(raw: &raw::Transmitter) -> raw::Issuer {
    raw::Issuer {
        jwks_uri: raw.jwks_uri.clone(),
        jwks_file: raw.jwks_file.clone(),
        // Keys over plain http need no CA. The poll reports its own fault.
        ca: raw.ca.clone().filter(|_| keys_over_tls(raw)),
        insecure_http: raw.insecure_http,
        algorithms: raw.algorithms.clone(),
        clock_skew: raw.clock_skew,
        ..raw::Issuer::signer(raw.name.clone(), raw.issuer.clone(), raw.audiences.clone())
    }
}

fn keys_over_tls(raw: &raw::Transmitter) -> bool {
    raw.jwks_file.is_none() && raw.jwks_uri.as_ref().unwrap_or(&raw.issuer).starts_with("https:")
}

/// Issuers whose tokens the transmitter reports on. Each must be trusted here, and must not be
/// followed already.
fn reported_issuers(
    sound: &Partial,
    raw: &raw::Transmitter,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Vec<Box<str>>> {
    let file = &sound.file;
    let own = std::slice::from_ref(&raw.issuer);
    let (all, is_set) = if raw.tokens_of.is_empty() { (own, false) } else { (&*raw.tokens_of, true) };
    let mut good = true;
    for (at, issuer) in all.iter().enumerate() {
        let path = if is_set { path.key("tokens_of").index(at) } else { path.key("issuer") };
        let by_login = file
            .login
            .iter()
            .flat_map(|login| &login.provider)
            .any(|provider| provider.kind == LoginKind::Openid && provider.url == *issuer);
        let by_issuer = file.issuer.iter().find(|known| known.issuer == *issuer);
        let by_authority = file.token_authority.iter().any(|known| {
            known.kind == TokenAuthorityKind::Introspection && known.issuer.as_ref() == Some(issuer)
        });
        let unfit =
            ["issuer", "token_authority", "login"].iter().any(|section| sound.has_unreadable(section));
        if !(by_login || by_issuer.is_some() || by_authority || unfit) {
            let message = format!(
                "security events from {issuer:?} have no effect: no [[issuer]], [[token_authority]] or [[login.provider]] has that issuer"
            );
            let hint = "write the `issuer` of an [[issuer]] or [[token_authority]], or the `url` of a [[login.provider]], \
                        in `tokens_of`";
            context.faults.add(&path, message, hint);
            good = false;
        }
        let followed = by_issuer.is_some_and(|known| known.revocation.is_some());
        if followed || file.provider.as_ref().is_some_and(|provider| provider.issuer == *issuer) {
            let message = format!("{issuer:?} is already followed, which is faster and more complete");
            context.faults.add(&path, message, "take the transmitter out, or `revocation` of the [[issuer]]");
            good = false;
        }
    }
    good.then(|| all.iter().map(|issuer| issuer.as_str().into()).collect())
}

fn push_delivery(
    sound: &Partial,
    raw: &raw::Transmitter,
    endpoint: &str,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<EventDelivery> {
    if raw.poll_token_file.is_some() {
        let message = "the key has no effect: events are pushed";
        context.faults.add(&path.key("poll_token_file"), message, "remove it, or `endpoint`");
    }
    let at = path.key("endpoint");
    let forwards = sound.file.listener.iter().any(|listener| listener.authorization.is_none());
    if !forwards && !sound.has_unreadable("listener") {
        let message = "no listener accepts pushed events: each one has `authorization`";
        context.faults.add(&at, message, "add a [[listener]] without `authorization`, or use `poll_url`");
    }
    let place = endpoint_address(endpoint, &at, context);
    let Some(file) = &raw.endpoint_token_file else {
        let hint =
            "write a random token into a file (openssl rand -base64 32), and configure it at the transmitter";
        context.faults.add(path, "missing key `endpoint_token_file`", hint);
        return None;
    };
    let tokens = bearer_tokens(file, &path.key("endpoint_token_file"), context)?;
    let (authority, path) = place?;
    Some(EventDelivery::Pushed { authority, path, bearer_tokens: tokens })
}

/// Reads the bearer tokens that a client may authenticate with, one per line. The file must not be
/// readable by other users.
pub(super) fn bearer_tokens(
    file: &Path,
    at: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Vec<Zeroizing<String>>> {
    let read = context.read_private(file, at, "it contains a credential: chmod o= the file")?;
    let shown = context.reader.resolve(file);
    let text = std::str::from_utf8(&read).unwrap_or_default();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let tokens: Vec<Zeroizing<String>> = lines.map(|line| Zeroizing::new(line.to_owned())).collect();
    let unfit = |token: &Zeroizing<String>| {
        token.len() < SHORTEST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if tokens.is_empty() || tokens.iter().any(unfit) {
        let message = format!(
            "{} must have a token of at least {SHORTEST_TOKEN} characters on each line",
            shown.display()
        );
        context.faults.add(at, message, "write the output of openssl rand -base64 32");
        return None;
    }
    if tokens.iter().any(|token| looks_non_random(token.as_bytes())) {
        let message =
            format!("{} contains no random token: its characters repeat or count up", shown.display());
        context.faults.add(at, message, "write the output of openssl rand -base64 32");
        return None;
    }
    Some(tokens)
}

/// Authority (host and port) and path of requests to the endpoint, in canonical form.
fn endpoint_address(endpoint: &str, at: &KeyPath, context: &mut Context<'_>) -> Option<(Box<str>, Box<str>)> {
    const HINT: &str = "write it as configured at the transmitter, such as \"https://app.example/events/id\"";
    let url = match Url::parse(endpoint) {
        Ok(url) => url,
        Err(fault) => {
            context.faults.add(at, fault.to_string(), HINT);
            return None;
        }
    };
    if !url.is_https() && !url.is_loopback() {
        let message = "over plain http, an attacker on the network can read the transmitter's token";
        context.faults.add(at, message, "use https; plain http is only for this machine");
        return None;
    }
    if url.target().contains('?') || matches!(url.target(), "" | "/") {
        context.faults.add(at, "the endpoint has no path of its own", HINT);
        return None;
    }
    let raw = RawRequest {
        method: "POST",
        scheme: if url.is_https() { Scheme::Https } else { Scheme::Http },
        authority: None,
        host: Some(url.authority().as_bytes()),
        target: url.target().as_bytes(),
    };
    let canonical = Canonical::parse(&raw);
    match canonical.and_then(|canonical| canonical.strict_fault().map_or(Ok(canonical), Err)) {
        Ok(canonical) => Some((canonical.authority().into(), canonical.path().into())),
        Err(fault) => {
            context.faults.add(at, format!("{endpoint:?}: {fault}"), HINT);
            None
        }
    }
}

fn poll_delivery(
    raw: &raw::Transmitter,
    url: &str,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<EventDelivery> {
    if raw.endpoint_token_file.is_some() {
        let message = "the key has no effect: events are polled";
        context.faults.add(&path.key("endpoint_token_file"), message, "remove it, or `poll_url`");
    }
    let interval = context.check_positive(raw.poll_interval.0, &path.key("poll_interval"));
    let timeout = context.check_positive(raw.poll_timeout.0, &path.key("poll_timeout"));
    let reach = ServerKeys {
        url,
        ca: raw.ca.as_deref(),
        certificate: None,
        key: None,
        insecure_http: raw.insecure_http,
        plain_http_risk: "an attacker on the network can read the token, and suppress events",
        url_key: "poll_url",
        example: "https://id.example/ssf/poll",
    };
    let reached = reach.check(path, context);
    let Some(file) = &raw.poll_token_file else {
        let hint = "name the file with the bearer token for the transmitter";
        context.faults.add(path, "missing key `poll_token_file`", hint);
        return None;
    };
    context.read(file, &path.key("poll_token_file"))?;
    let (url, (tls, tls_version)) = reached?;
    let server = ServerConfig {
        tls,
        tls_version,
        proxies: context.proxies.clone(),
        credential: ClientCredential::Bearer { token: context.reader.resolve(file) },
        timeout,
        max_requests: 1,
        max_per_second: None,
    };
    Some(EventDelivery::Polled { url, server, interval, max_events: raw.max_events })
}
