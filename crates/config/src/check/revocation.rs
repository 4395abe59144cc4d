//! Checks `[revocation]`: the lease, the message brokers, and the issuers whose revocations this
//! gateway follows.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coherence::secret::SharedSecret;
use coherence::transport::{Address, amqp, nats};
use http_engine::config::{ClientCredential, ServerConfig};
use http_engine::tls::Protocols;
use rustls::ClientConfig;

use super::super::fault::KeyPath;
use super::super::raw;
use super::Context;
use super::server_keys::ServerKeys;
use super::tls::{Client, KeyNames};
use crate::partial::Partial;

/// Permitted range of a lease.
const LEASE_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(1);
/// How long a request to an issuer may take. The caller gives up sooner.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_QUERIES: usize = 16;

/// Settings for revocation.
#[derive(Clone)]
pub struct RevocationSettings {
    /// Lease: how long an entry stays valid after the probe that renewed it was sent.
    pub lease: Duration,
    /// Message broker for nodes that do not share the provider's database. `None`: no broker.
    pub broker: Option<Broker>,
    /// Issuers in other processes whose revocations this one follows.
    pub followed_issuers: Vec<FollowedIssuerConfig>,
}

/// A message broker with its credentials.
#[derive(Clone)]
pub enum Broker {
    /// Servers of NATS.
    Nats(nats::NatsConfig),
    /// Servers of AMQP 1.0.
    Amqp(amqp::AmqpSettings),
}

/// An issuer in another process whose revocations this one follows.
#[derive(Clone)]
pub struct FollowedIssuerConfig {
    /// Issuer identifier (`iss`) of its tokens.
    pub issuer: Box<str>,
    /// Secret that the issuer's nodes share with this one.
    pub secret: SharedSecret,
    /// Base URL for revocation requests, without a trailing slash.
    pub url: Box<str>,
    /// Connection settings of the issuer's server.
    pub server: ServerConfig,
}

impl FollowedIssuerConfig {
    /// Whether connections and state for one configuration are valid for the other.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let same = self.issuer == other.issuer && self.secret == other.secret && self.url == other.url;
        same && self.server.tls_version == other.server.tls_version
    }
}

pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Option<RevocationSettings> {
    let path = KeyPath::top_level("revocation");
    let raw = &sound.file.revocation;
    let lease = raw.lease.0;
    if !LEASE_RANGE.contains(&lease) {
        let message = format!("the lease {} is out of range", raw.lease);
        let hint = "write from \"1s\" to \"60s\": a revoked token is accepted for at most this time";
        context.faults.add(&path.key("lease"), message, hint);
    }
    let broker = broker(raw, &path, context);
    let follows = followed_issuers(sound, context);
    Some(RevocationSettings { lease, broker: broker?, followed_issuers: follows? })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nats,
    Amqp,
}

/// Checks the broker. `Some(None)` where there is none.
#[expect(clippy::option_option, reason = "the outer one says that a fault was noted")]
fn broker(raw: &raw::Revocation, path: &KeyPath, context: &mut Context<'_>) -> Option<Option<Broker>> {
    let mut seen: Option<(Kind, bool)> = None;
    let mut servers = Vec::new();
    for (index, url) in raw.brokers.iter().enumerate() {
        let at = path.key("brokers").index(index);
        let Some((kind, tls, host, port)) = place(url) else {
            let hint =
                "write a URL such as \"nats://broker.example:4222\" or \"amqps://broker.example:5671\"";
            // The text may contain a password, so the message does not show it.
            context.faults.add(&at, "not the URL of a message broker", hint);
            return None;
        };
        if *seen.get_or_insert((kind, tls)) != (kind, tls) {
            let message = "the brokers have different protocols";
            context.faults.add(
                &at,
                message,
                "they must carry the same messages: list the brokers of one cluster",
            );
            return None;
        }
        servers.push((host, port));
    }
    let Some((kind, tls)) = seen else {
        for (key, is_set) in [
            ("user", raw.user.is_some()),
            ("password_file", raw.password_file.is_some()),
            ("token_file", raw.token_file.is_some()),
            ("credentials_file", raw.credentials_file.is_some()),
            ("ca", raw.ca.is_some()),
            ("certificate", raw.certificate.is_some()),
            ("key", raw.key.is_some()),
        ] {
            if is_set {
                let message = "the key has no effect without a broker";
                context.faults.add(&path.key(key), message, "list one in `brokers`, or remove it");
                return None;
            }
        }
        return Some(None);
    };
    let tls = self::tls(raw, tls, path, context)?;
    let password = password(raw, path, context)?;
    match kind {
        Kind::Nats => {
            let login = nats_login(raw, password, path, context)?;
            let servers = servers.into_iter().map(|(host, port)| Address::tcp(host, port)).collect();
            Some(Some(Broker::Nats(nats::NatsConfig { servers, tls, login })))
        }
        Kind::Amqp => {
            for (key, is_set) in [
                ("token_file", raw.token_file.is_some()),
                ("credentials_file", raw.credentials_file.is_some()),
            ] {
                if is_set {
                    let message = "the key is for NATS, but the broker uses AMQP";
                    context.faults.add(
                        &path.key(key),
                        message,
                        "use `user` and `password_file`, or `certificate`",
                    );
                    return None;
                }
            }
            let login = match password {
                Some((user, password)) => amqp::AmqpLogin::Plain { user, password },
                None if raw.certificate.is_some() => amqp::AmqpLogin::External,
                None => amqp::AmqpLogin::Anonymous,
            };
            let addressing = match raw.addressing {
                raw::Addressing::Plain => amqp::Addressing::Plain,
                raw::Addressing::Scheme => amqp::Addressing::Scheme,
                raw::Addressing::Path => amqp::Addressing::Path,
            };
            let brokers = servers.into_iter().map(|(host, port)| Address::tcp(host, port).to_string());
            let tls = tls.map(|config| amqp::AmqpTls { config, name: None });
            let settings = amqp::AmqpSettings { brokers: brokers.collect(), tls, login, addressing, seed: 0 };
            Some(Some(Broker::Amqp(settings)))
        }
    }
}

/// Parses the URL of a broker into kind, use of TLS, host and port.
fn place(url: &str) -> Option<(Kind, bool, String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let (kind, tls, port) = match scheme {
        "nats" => (Kind::Nats, false, 4222),
        "tls" => (Kind::Nats, true, 4222),
        "amqp" => (Kind::Amqp, false, 5672),
        "amqps" => (Kind::Amqp, true, 5671),
        _ => return None,
    };
    let rest = rest.trim_end_matches('/');
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, if rest.is_empty() { port } else { rest.strip_prefix(':')?.parse().ok()? })
        }
        None => match rest.split_once(':') {
            Some((host, number)) => (host, number.parse().ok()?),
            None => (rest, port),
        },
    };
    let named = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
    (named && port != 0).then(|| (kind, tls, host.to_owned(), port))
}

/// TLS configuration for the broker. `Some(None)` for plain text.
#[expect(clippy::option_option, reason = "the outer one says that a fault was noted")]
fn tls(
    raw: &raw::Revocation,
    spoken: bool,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Option<Arc<ClientConfig>>> {
    let identity = match (raw.certificate.as_deref(), raw.key.as_deref()) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (given, _) => {
            let (given, missing) =
                if given.is_some() { ("certificate", "key") } else { ("key", "certificate") };
            let message = format!("missing key `{missing}`");
            context.faults.add(&path.key(given), message, "a certificate needs its private key");
            return None;
        }
    };
    if !spoken {
        for (key, is_set) in [("ca", raw.ca.is_some()), ("certificate", identity.is_some())] {
            if is_set {
                let message = "the brokers are not used over TLS";
                context.faults.add(&path.key(key), message, "remove it, or use tls:// or amqps://");
                return None;
            }
        }
        return Some(None);
    }
    let protocols = Protocols { http1: false, http2: false };
    let client = Client { ca: raw.ca.as_deref(), identity, protocols, path, keys: KeyNames::DEFAULT };
    Some(Some(context.tls_client(&client)?.0))
}

/// User and password for the broker. `Some(None)` where there is no account.
#[expect(clippy::option_option, reason = "the outer one says that a fault was noted")]
fn password(
    raw: &raw::Revocation,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Option<(String, String)>> {
    match (&raw.user, &raw.password_file) {
        (None, None) => Some(None),
        (Some(user), Some(file)) => {
            let password = secret(file, &path.key("password_file"), context)?;
            Some(Some((user.clone(), password)))
        }
        (Some(_), None) => {
            let hint = "name the file with the account's password";
            context.faults.add(&path.key("user"), "missing key `password_file`", hint);
            None
        }
        (None, Some(_)) => {
            context.faults.add(
                &path.key("password_file"),
                "missing key `user`",
                "name the account of the password",
            );
            None
        }
    }
}

fn nats_login(
    raw: &raw::Revocation,
    password: Option<(String, String)>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<nats::NatsLogin> {
    let ways = [password.is_some(), raw.token_file.is_some(), raw.credentials_file.is_some()];
    if ways.into_iter().filter(|is_set| *is_set).count() > 1 {
        let message = "more than one credential is set";
        context.faults.add(path, message, "keep one of `user`, `token_file` and `credentials_file`");
        return None;
    }
    if let Some((user, password)) = password {
        return Some(nats::NatsLogin::Password { user, password });
    }
    if let Some(file) = &raw.token_file {
        return secret(file, &path.key("token_file"), context).map(nats::NatsLogin::Token);
    }
    let Some(file) = &raw.credentials_file else { return Some(nats::NatsLogin::None) };
    let at = path.key("credentials_file");
    let text = secret(file, &at, context)?;
    match nats::Credentials::parse(&text) {
        Ok(credentials) => Some(nats::NatsLogin::Credentials(credentials)),
        Err(error) => {
            let text = error.to_string();
            let (message, hint) = text.split_once("; ").unwrap_or((&text, "create new ones"));
            context.faults.add(&at, message, hint);
            None
        }
    }
}

/// Reads the file of a secret. `None` when a fault was noted.
fn secret(file: &Path, at: &KeyPath, context: &mut Context<'_>) -> Option<String> {
    let read = context.read(file, at)?;
    if context.reader.access(file).is_some_and(|access| access.mode & 0o007 != 0) {
        let message = format!("{} can be read by every user of this machine", file.display());
        context.faults.warn(at, message, "it contains a secret: chmod o= the file");
    }
    match String::from_utf8(read) {
        Ok(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        _ => {
            context.faults.add(at, "the file is empty or not UTF-8", "write the secret into it");
            None
        }
    }
}

fn followed_issuers(sound: &Partial, context: &mut Context<'_>) -> Option<Vec<FollowedIssuerConfig>> {
    let own = sound.file.provider.as_ref().map(|provider| provider.issuer.as_str());
    let mut follows = Some(Vec::new());
    for (path, issuer) in sound.paths("issuer", &sound.file.issuer) {
        let Some(revocation) = &issuer.revocation else { continue };
        let at = path.key("revocation");
        if own == Some(issuer.issuer.as_str()) {
            let message = "this is the issuer of the provider in this process, which needs no secret";
            context.faults.add(&at, message, "remove it");
            follows = None;
            continue;
        }
        let follow = followed_issuer(issuer, revocation, &path, context);
        match (follow, &mut follows) {
            (Some(follow), Some(follows)) => follows.push(follow),
            _ => follows = None,
        }
    }
    follows
}

fn followed_issuer(
    raw: &raw::Issuer,
    revocation: &raw::IssuerRevocation,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<FollowedIssuerConfig> {
    let at = path.key("revocation").key("secret_file");
    let secret = match SharedSecret::parse(&secret(&revocation.secret_file, &at, context)?) {
        Ok(secret) => secret,
        Err(error) => {
            context.faults.add(&at, error.to_string(), "run it at the provider, and copy its output");
            return None;
        }
    };
    let url = revocation.url.as_deref().unwrap_or(&raw.issuer);
    let reach = ServerKeys {
        url,
        ca: raw.ca.as_deref(),
        certificate: None,
        key: None,
        insecure_http: raw.insecure_http,
        plain_http_risk: "an attacker on the network can suppress revocations",
        example: "https://login.example.com",
        url_key: if revocation.url.is_some() { "revocation.url" } else { "issuer" },
    };
    let (_, (tls, tls_version)) = reach.check(path, context)?;
    let server = ServerConfig {
        tls,
        tls_version,
        proxies: context.proxies.clone(),
        credential: ClientCredential::None,
        timeout: QUERY_TIMEOUT,
        max_requests: MAX_QUERIES,
        max_per_second: None,
    };
    Some(FollowedIssuerConfig {
        issuer: raw.issuer.as_str().into(),
        secret,
        url: url.trim_end_matches('/').into(),
        server,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_named_by_scheme_host_and_port() {
        let place = |url| place(url).map(|(kind, tls, host, port)| (kind, tls, format!("{host} {port}")));
        for (url, kind, tls, at) in [
            ("nats://b.example", Kind::Nats, false, "b.example 4222"),
            ("tls://b.example:1", Kind::Nats, true, "b.example 1"),
            ("amqp://[::1]", Kind::Amqp, false, "::1 5672"),
            ("amqps://[::1]:77/", Kind::Amqp, true, "::1 77"),
        ] {
            assert_eq!(place(url), Some((kind, tls, at.into())), "{url}");
        }
        for url in [
            "",
            "b.example:1",
            "http://b",
            "nats://",
            "nats://b:0",
            "nats://b:x",
            "nats://u:p@b",
            "amqp://b/q",
        ] {
            assert_eq!(place(url), None, "{url}");
        }
    }
}
