//! Checks `[provider]`: builds an [`idp::Config`] and the settings of its server.
//!
//! [`idp::Config::check`] checks the values, and its faults get their positions in the file here.
//! `store` checks the secret.

mod audit;
mod claims;
mod clients;
mod mail;
mod receivers;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;

use clients::Clients;
use coherence::secret::MAX_GENERATIONS;
use http_engine::outbound_proxy::OutboundProxies;
use http_engine::tls::{Protocols, ServerCertificates};
use idp::passwords::lockout::{LimitFault, Limits};
use idp::passwords::pool::PoolFault;
use idp::passwords::{ParameterFault, Parameters, rules};
use idp::{ConfigFault, ConfigReason, PasswordConfig};
use ipnet::IpNet;
use pages::Shell;
use rustls::ServerConfig;
pub use store::SecretFile;

use super::super::fault::KeyPath;
use super::super::raw;
use super::database::DatabaseKeys;
use super::listener_tls::ServerTls;
use super::trust::TrustList;
use super::{Context, DatabaseSettings, rules as rule_checks};
use crate::partial::Partial;

/// Configuration of the provider and its server.
#[derive(Clone)]
pub struct ProviderSettings {
    /// Address to listen on.
    pub address: SocketAddr,
    /// TLS configuration. `None`: the provider is served in plain text.
    pub tls: Option<Arc<ServerConfig>>,
    /// The certificate that `tls` presents.
    pub certificates: Option<Arc<ServerCertificates>>,
    /// Networks of proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Database of the provider.
    pub database: DatabaseSettings,
    /// Secret that protects the database.
    pub secret: SecretFile,
    /// Generations of the secret that the provider shares with the gateways that follow it.
    pub generations: Vec<u8>,
    /// Proxies between the provider and the clients and receivers that it calls.
    pub proxies: OutboundProxies,
    /// All other settings. They have passed [`idp::Config::check`].
    pub config: idp::Config,
}

/// Checks the provider. `None` when there is none or a fault was noted.
pub(super) fn check(
    sound: &Partial,
    shell: &Arc<Shell>,
    context: &mut Context<'_>,
) -> Option<ProviderSettings> {
    let raw = sound.file.provider.as_ref()?;
    let path = KeyPath::top_level("provider");
    let tls = raw.tls.as_ref().map(|tls| tls_server(tls, &path.key("tls"), context));
    let trusted_proxies = TrustList {
        networks: &raw.trusted_proxies,
        path: path.key("trusted_proxies"),
        anyone: raw.trusted_proxies_anyone,
        anyone_path: path.key("trusted_proxies_anyone"),
        consequence: "could claim to be any address",
    };
    let trusted_proxies = trusted_proxies.check(context);
    if raw.tls.is_none() && raw.issuer.starts_with("https:") && raw.trusted_proxies.is_empty() {
        let message = "a proxy terminates TLS, but no `X-Forwarded-For` is trusted";
        let hint = "name the proxy's address, or all wrong passwords count for one client";
        context.faults.warn(&path.key("trusted_proxies"), message, hint);
    }
    let stated =
        DatabaseKeys { url: raw.database.as_deref(), file: raw.database_file.as_deref(), path: &path };
    let database = stated.check(context);
    let secret = store::secret(raw, database.as_ref(), &path, context);
    let clients = Clients::read(sound, raw, context);
    let config = idp::Config { shell: shell.clone(), ..config(raw, clients.configs.clone(), &path, context) };
    match config.check() {
        Ok(checked) => {
            for warning in checked.warnings() {
                add_idp_fault(&clients.warning_path(&warning, &path), &warning, context, true);
            }
        }
        Err(faults) => {
            for fault in faults.0 {
                if let Some(place) = key_path(&fault, &clients, raw, &path) {
                    add_idp_fault(&place, &fault.reason.to_string(), context, false);
                }
            }
        }
    }
    let (tls, certificates) = match tls {
        Some(tls) => {
            let ServerTls { config, certificates, .. } = tls?;
            (Some(config), Some(certificates))
        }
        None => (None, None),
    };
    Some(ProviderSettings {
        address: raw.address.0,
        tls,
        certificates,
        trusted_proxies,
        database: database?,
        secret: secret?,
        generations: generations(raw, &path, context)?,
        proxies: context.proxies.clone(),
        config,
    })
}

fn generations(raw: &raw::Provider, path: &KeyPath, context: &mut Context<'_>) -> Option<Vec<u8>> {
    let all = &raw.revocation.secret_generations;
    let twice = |at: usize| all[..at].contains(&all[at]);
    if (1..=MAX_GENERATIONS).contains(&all.len()) && !(0..all.len()).any(twice) {
        return Some(all.clone());
    }
    let hint = "list one to four different numbers; the first is used for sending, all are accepted";
    context.faults.add(
        &path.key("revocation").key("secret_generations"),
        "invalid generations of the secret",
        hint,
    );
    None
}

/// Notes a fault or warning that `idp` reports for a value.
fn add_idp_fault(path: &KeyPath, text: &str, context: &mut Context<'_>, warning: bool) {
    // The message of a parser may have several lines.
    let text = &text.split_whitespace().collect::<Vec<_>>().join(" ");
    if !warning {
        return rule_checks::add_problem(path, text, &mut context.faults);
    }
    let (message, hint) = text.split_once(": ").unwrap_or((text, ""));
    context.faults.warn(path, message, hint);
}

fn tls_server(raw: &raw::ProviderTls, path: &KeyPath, context: &mut Context<'_>) -> Option<ServerTls> {
    let tls = raw::ListenerTls {
        certificate: Some(raw.certificate.clone()),
        key: Some(raw.key.clone()),
        ..raw::ListenerTls::default()
    };
    context.tls_server(&tls, Protocols { http1: true, http2: true }, path)
}

fn config(
    raw: &raw::Provider,
    clients: Vec<idp::ClientConfig>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> idp::Config {
    let mut config = idp::Config::new(raw.issuer.as_str());
    config.audiences.clone_from(&raw.audiences);
    config.access_token_algorithm = algorithm(raw.access_token_algorithm);
    config.id_token_algorithm = algorithm(raw.id_token_algorithm);
    config.access_token_lifetime = raw.access_token_lifetime.0;
    config.lifetimes = lifetimes(&raw.lifetimes);
    config.passwords = passwords(&raw.passwords, &path.key("passwords"), context);
    config.attributes = claims::attributes(&raw.attribute);
    config.claims = claims::claims(&raw.claim);
    config.clients = clients;
    config.receivers = receivers::read(raw, path, context);
    config.audit = audit::events(&raw.audit);
    config.audit_keep = audit::keep(&raw.audit, &path.key("audit"), context);
    config.audit_receivers = audit::receivers(raw, path, context);
    config.mail = mail::read(raw, path, context);
    config
}

fn algorithm(raw: raw::SigningAlgorithm) -> idp::SigningAlgorithm {
    match raw {
        raw::SigningAlgorithm::ES256 => idp::SigningAlgorithm::Es256,
        raw::SigningAlgorithm::RS256 => idp::SigningAlgorithm::Rs256,
        raw::SigningAlgorithm::EdDSA => idp::SigningAlgorithm::EdDsa,
    }
}

fn lifetimes(raw: &raw::Lifetimes) -> idp::Lifetimes {
    idp::Lifetimes {
        code: raw.code.0,
        id_token: raw.id_token.0,
        refresh_token: raw.refresh_token.0,
        grant: raw.grant.0,
        session_idle: raw.session_idle.0,
        session: raw.session.0,
        device_code: raw.device_code.0,
        pushed_request: raw.pushed_request.0,
        signing_key: raw.signing_key.0,
    }
}

fn passwords(raw: &raw::Passwords, path: &KeyPath, context: &mut Context<'_>) -> PasswordConfig {
    let default = PasswordConfig::default();
    let kib = u32::try_from(raw.memory.0 >> 10).unwrap_or(u32::MAX);
    let parameters = Parameters::new(kib, raw.iterations, raw.parallelism).unwrap_or_else(|fault| {
        let key = match fault {
            ParameterFault::Memory(_) => "memory",
            ParameterFault::Parallelism(_) => "parallelism",
            ParameterFault::Iterations(_)
            | ParameterFault::TooCheap { .. }
            | ParameterFault::TooExpensive { .. } => "iterations",
        };
        rule_checks::add_problem(&path.key(key), &fault.to_string(), &mut context.faults);
        default.parameters
    });
    let account = limits(&raw.lockout_account, &path.key("lockout_account"), default.account, context);
    let network = limits(&raw.lockout_network, &path.key("lockout_network"), default.network, context);
    PasswordConfig {
        parameters,
        threads: raw.threads,
        queue: raw.queue,
        retry_after: raw.retry_after.0,
        min_length: raw.min_length,
        strength: match raw.strength {
            raw::Strength::Million => rules::Strength::Million,
            raw::Strength::HundredMillion => rules::Strength::HundredMillion,
            raw::Strength::TenBillion => rules::Strength::TenBillion,
        },
        account,
        network,
        verified_cache: raw.remember_verified.as_ref().map(|r| (r.lifetime.0, r.accounts)),
    }
}

fn limits(raw: &raw::Lockout, path: &KeyPath, default: Limits, context: &mut Context<'_>) -> Limits {
    Limits::new(raw.failures, raw.delay.0, raw.longest.0, raw.quiet.0).unwrap_or_else(|fault| {
        let key = match fault {
            LimitFault::Threshold(_) | LimitFault::Order { .. } => "failures",
            LimitFault::Delay(_) => "delay",
            LimitFault::Cap(_) => "longest",
            LimitFault::Quiet(_) => "quiet",
        };
        rule_checks::add_problem(&path.key(key), &fault.to_string(), &mut context.faults);
        default
    })
}

/// Path in the file of a value that `idp` refuses. `None`: the fault is caused by another one that
/// was already noted.
fn key_path(fault: &ConfigFault, clients: &Clients, raw: &raw::Provider, path: &KeyPath) -> Option<KeyPath> {
    let passwords = path.key("passwords");
    Some(match &fault.reason {
        ConfigReason::Pool(PoolFault::Threads(_)) => passwords.key("threads"),
        ConfigReason::Pool(PoolFault::Queue(_)) => passwords.key("queue"),
        ConfigReason::Pool(_) => passwords.key("retry_after"),
        ConfigReason::Limit(_) => passwords.key("lockout_network").key("failures"),
        ConfigReason::VerifiedCache => passwords.key("remember_verified"),
        ConfigReason::Language(fault) => KeyPath::top_level("pages").key("languages").key(fault.tag()),
        _ => match fault.path.strip_prefix("clients[") {
            Some(rest) => return clients.key_path(rest, raw),
            None => path.join(&in_file(&fault.path)),
        },
    })
}

/// A path of `idp` with the names that the file has for lists of tables.
fn in_file(path: &str) -> String {
    let names = [("attributes[", "attribute["), ("claims[", "claim[")];
    let renamed = names.iter().find_map(|(idp, file)| Some(format!("{file}{}", path.strip_prefix(idp)?)));
    renamed.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use auth::time::Timestamp;

    use super::super::super::files::NoFiles;
    use super::*;

    #[test]
    fn the_defaults_are_those_of_a_provider() {
        let raw: raw::Provider = toml::from_str("issuer = \"https://login.example\"").unwrap();
        let mut context = Context::new(&NoFiles, Path::new(""), Timestamp::from_secs(0));
        let ours = config(&raw, Vec::new(), &KeyPath::top_level("provider"), &mut context);
        assert!(!context.faults.has_faults());
        assert_eq!(format!("{ours:?}"), format!("{:?}", idp::Config::new("https://login.example")));
    }
}
