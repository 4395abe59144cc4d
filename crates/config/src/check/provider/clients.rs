//! Clients of the provider, and the position of each of their values in the file.

use idp::client_secret::SecretDigest;
use idp::{ClientConfig, ConfiguredSecret, GrantType};

use super::super::super::fault::KeyPath;
use super::super::super::raw;
use super::super::Context;
use super::{algorithm, claims};
use crate::partial::Partial;

/// The clients in the form that `idp` takes.
pub(super) struct Clients {
    pub(super) configs: Vec<ClientConfig>,
    /// Paths in the file, in the same order as `configs`.
    paths: Vec<ClientPaths>,
}

struct ClientPaths {
    path: KeyPath,
    /// Path of each secret.
    secrets: Vec<KeyPath>,
    /// Whether a file with a secret or keys could not be read. Then no missing secret is reported.
    has_unreadable_file: bool,
}

impl Clients {
    /// Reads the files that the clients name.
    pub(super) fn read(sound: &Partial, raw: &raw::Provider, context: &mut Context<'_>) -> Self {
        let mut clients = Self { configs: Vec::new(), paths: Vec::new() };
        for (path, client) in sound.paths("provider.client", &raw.client) {
            let (config, place) = read_client(client, path, context);
            clients.configs.push(config);
            clients.paths.push(place);
        }
        clients
    }

    /// Path in the file of a value that `idp` calls `clients[` plus `rest`, for example
    /// `2].secrets[0]`.
    pub(super) fn key_path(&self, rest: &str, raw: &raw::Provider) -> Option<KeyPath> {
        let (index, rest) = rest.split_once("].")?;
        let index: usize = index.parse().ok()?;
        let (place, client) = (self.paths.get(index)?, raw.client.get(index)?);
        match rest {
            "secrets" if place.has_unreadable_file => None,
            "keys" => Some(place.path.key("keys_file")),
            claim if claim.starts_with("claims[") => {
                Some(place.path.join(&claim.replacen("claims", "claim", 1)))
            }
            "secrets" => Some(place.path.key(match client {
                raw::Client { secret_sha256, .. } if !secret_sha256.is_empty() => "secret_sha256",
                raw::Client { secret_files, .. } if !secret_files.is_empty() => "secret_files",
                raw::Client { keys_file: Some(_), .. } => "keys_file",
                _ => "secret_sha256",
            })),
            _ => match rest.strip_prefix("secrets[").and_then(|n| n.strip_suffix(']')?.parse::<usize>().ok())
            {
                Some(secret) => place.secrets.get(secret).cloned(),
                None => Some(place.path.join(rest)),
            },
        }
    }

    /// Path in the file of the client that a warning begins with.
    pub(super) fn warning_path(&self, warning: &str, path: &KeyPath) -> KeyPath {
        let named = |config: &ClientConfig| warning.starts_with(&format!("client {:?} ", config.id));
        let found = self.configs.iter().zip(&self.paths).find(|(config, _)| named(config));
        found.map_or_else(|| path.key("client"), |(_, place)| place.path.key("grants"))
    }
}

fn read_client(raw: &raw::Client, path: KeyPath, context: &mut Context<'_>) -> (ClientConfig, ClientPaths) {
    let mut place = ClientPaths { secrets: Vec::new(), has_unreadable_file: false, path };
    let mut secrets = Vec::new();
    for (i, digest) in raw.secret_sha256.iter().enumerate() {
        secrets.push(ConfiguredSecret::Sha256(digest.clone()));
        place.secrets.push(place.path.key("secret_sha256").index(i));
    }
    for (i, file) in raw.secret_files.iter().enumerate() {
        let at = place.path.key("secret_files").index(i);
        let Some(read) = context.read(file, &at) else {
            place.has_unreadable_file = true;
            continue;
        };
        let text = String::from_utf8_lossy(&read);
        // Keep the digest only. `idp` refuses a text that has no digest.
        secrets.push(match SecretDigest::of_configured(text.trim()) {
            Ok(digest) => ConfiguredSecret::Sha256(digest.to_hex()),
            Err(_) => ConfiguredSecret::Plain(text.trim().to_owned()),
        });
        place.secrets.push(at);
    }
    let keys = raw.keys_file.as_ref().and_then(|file| {
        let at = place.path.key("keys_file");
        let keys = context.read(file, &at).and_then(|content| {
            let hint = "write a JWK set: {\"keys\": [{…}]}";
            let message = |error| format!("{} is not JSON: {error}", file.display());
            let read = serde_json::from_slice(&content);
            read.map_err(|error: serde_json::Error| context.faults.add(&at, message(error), hint)).ok()
        });
        place.has_unreadable_file |= keys.is_none();
        keys
    });
    if raw.public && raw.requires_pkce == Some(false) {
        let message = "a public client must use PKCE, because only PKCE binds a code to its client";
        context.faults.add(
            &place.path.key("requires_pkce"),
            message,
            "remove it, or remove `public` and give the client a secret",
        );
    }
    let config = ClientConfig {
        id: raw.id.clone(),
        name: raw.name.clone(),
        public: raw.public,
        secrets,
        keys,
        grants: raw.grants.iter().copied().map(grant).collect(),
        redirect_uris: raw.redirect_uris.clone(),
        post_logout_redirect_uris: raw.post_logout_redirect_uris.clone(),
        backchannel_logout_uri: raw.backchannel_logout_uri.clone(),
        scopes: raw.scopes.clone(),
        default_scopes: raw.default_scopes.clone(),
        audiences: raw.audiences.clone(),
        groups: raw.groups.clone(),
        asks_consent: raw.asks_consent,
        requires_pkce: raw.requires_pkce.unwrap_or(raw.public),
        requires_pushed_requests: raw.requires_pushed_requests,
        introspects: match raw.introspects {
            raw::Introspects::Own => idp::Introspects::Own,
            raw::Introspects::Audience => idp::Introspects::Audience,
            raw::Introspects::All => idp::Introspects::All,
        },
        access_token: match raw.access_token {
            raw::TokenFormat::Jwt => idp::TokenFormat::Jwt,
            raw::TokenFormat::Opaque => idp::TokenFormat::Opaque,
        },
        access_token_typ: match raw.access_token_typ {
            raw::AccessTokenTyp::AtJwt => idp::AccessTokenTyp::AtJwt,
            raw::AccessTokenTyp::Jwt => idp::AccessTokenTyp::Jwt,
        },
        access_token_lifetime: raw.access_token_lifetime.map(|lifetime| lifetime.0),
        id_token_algorithm: raw.id_token_algorithm.map(algorithm),
        userinfo_algorithm: raw.userinfo_algorithm.map(algorithm),
        claims_in_id_token: raw.claims_in_id_token,
        claims: claims::claims(&raw.claim),
        subject: match raw.subject {
            raw::SubjectType::Public => idp::SubjectType::Public,
            raw::SubjectType::Pairwise => idp::SubjectType::Pairwise,
        },
        sector: raw.sector.clone(),
    };
    (config, place)
}

fn grant(raw: raw::Grant) -> GrantType {
    match raw {
        raw::Grant::AuthorizationCode => GrantType::AuthorizationCode,
        raw::Grant::RefreshToken => GrantType::RefreshToken,
        raw::Grant::ClientCredentials => GrantType::ClientCredentials,
        raw::Grant::DeviceCode => GrantType::DeviceCode,
        raw::Grant::Password => GrantType::Password,
    }
}
