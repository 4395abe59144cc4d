//! What a client may be told to be: plain values in, a checked [`Client`] out, all faults at once.
//!
//! Owns: [`ClientConfig`], the one description of a client, whether it stands in a configuration file, arrives at the
//! administration API or is kept in the store (as JSON, secrets as digests); and its check.
//! Does not own: what a client is afterwards ([`super::Client`]).

use std::{fmt, time::Duration};

use auth::{keyset::KeySet, token::jws::SigningAlgorithm};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Client, ClientDefaults, Introspects, Proof, TokenFormat,
    secret::{SecretDigest, SecretDigests, SecretFault},
};
use crate::{
    authorization::redirect::{RedirectFault, RedirectUri},
    lifetime::{self, LifetimeFault},
    oauth::{
        grant_type::GrantType,
        scope::{ScopeFault, ScopeSet},
        target,
    },
};

/// Longest client id in bytes.
pub const MAX_CLIENT_ID: usize = 128;
/// Longest name in characters: it stands on pages.
pub const MAX_NAME: usize = 80;
/// Longest group name in bytes.
pub const MAX_GROUP: usize = 256;
/// Most groups of one client: they travel in every token.
pub const MAX_GROUPS: usize = 128;
/// Most redirect URIs of one client.
pub const MAX_REDIRECTS: usize = 64;

/// Whether a client may be called so.
pub(crate) fn is_client_id(id: &str) -> bool {
    (1..=MAX_CLIENT_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// One client as configured. Members that are left out are as in [`ClientConfig::default`]: it may do nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct ClientConfig {
    /// `client_id`: 1 to [`MAX_CLIENT_ID`] visible ASCII characters, unique. It is also the `sub` of tokens
    /// the client gets for itself.
    #[serde(skip)]
    pub id: String,
    /// What people know it by; its id when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A client that cannot keep a secret, such as a program on somebody's own machine. It proves nothing, so it must use PKCE.
    #[serde(skip_serializing_if = "is_false")]
    pub public: bool,
    /// One secret, or two while the client moves from one to the next.
    #[schema(ignore)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<ConfiguredSecret>,
    /// Its public keys (RFC 7517 §5) instead of a secret, for `private_key_jwt` (OpenID Connect Core 1.0 §9).
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Value>,
    /// The grants it may use; at least one.
    pub grants: Vec<GrantType>,
    /// Where people may be sent back to, see [`RedirectUri::parse`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redirect_uris: Vec<String>,
    /// Where people may be sent after signing out (OpenID Connect RP-Initiated Logout 1.0 §3.1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub post_logout_redirect_uris: Vec<String>,
    /// Where the client hears that a session has ended (OpenID Connect Back-Channel Logout 1.0 §2.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backchannel_logout_uri: Option<String>,
    /// The scopes it may have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The scopes it gets when it asks for none: some of `scopes`, or nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_scopes: Vec<String>,
    /// The audiences it may name; the first is used when it names none. Without any its tokens are meant for the provider
    /// itself, and good for its userinfo endpoint alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// The groups that tokens it gets for itself carry (RFC 9068 §2.2.3.1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether people are asked before it gets anything of theirs.
    pub asks_consent: bool,
    /// Whether it must use PKCE (RFC 7636); public clients always must.
    #[serde(skip_serializing_if = "is_false")]
    pub requires_pkce: bool,
    /// Whether it must push its authorization requests (RFC 9126 §6).
    #[serde(skip_serializing_if = "is_false")]
    pub requires_pushed_requests: bool,
    /// Whose tokens it may ask about (RFC 7662).
    #[serde(skip_serializing_if = "Introspects::is_own")]
    pub introspects: Introspects,
    /// What its access tokens look like.
    pub access_token: TokenFormat,
    /// How long its access tokens live, in seconds; the provider's lifetime when absent.
    #[schema(value_type = Option<u64>, default = json!(null))]
    #[serde(skip_serializing_if = "Option::is_none", with = "in_seconds")]
    pub access_token_lifetime: Option<Duration>,
    /// What its ID tokens are signed with; the provider's algorithm when absent.
    #[schema(value_type = Option<String>, default = json!(null))]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub id_token_algorithm: Option<SigningAlgorithm>,
    /// What userinfo answers are signed with; they are plain JSON when absent.
    #[schema(value_type = Option<String>, default = json!(null))]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub userinfo_algorithm: Option<SigningAlgorithm>,
    /// Whether ID tokens carry what the granted scopes tell of a person, which the userinfo endpoint tells otherwise.
    #[serde(skip_serializing_if = "is_false")]
    pub claims_in_id_token: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            id: String::new(),
            name: None,
            public: false,
            secrets: Vec::new(),
            keys: None,
            grants: Vec::new(),
            redirect_uris: Vec::new(),
            post_logout_redirect_uris: Vec::new(),
            backchannel_logout_uri: None,
            scopes: Vec::new(),
            default_scopes: Vec::new(),
            audiences: Vec::new(),
            groups: Vec::new(),
            asks_consent: true,
            requires_pkce: false,
            requires_pushed_requests: false,
            introspects: Introspects::Own,
            access_token: TokenFormat::Jwt,
            access_token_lifetime: None,
            id_token_algorithm: None,
            userinfo_algorithm: None,
            claims_in_id_token: false,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A client secret as configured. Written out it is always a digest.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfiguredSecret {
    /// In the clear, hard to guess (see [`SecretDigest::of_configured`]).
    Plain(String),
    /// Its SHA-256 as 64 hexadecimal digits.
    Sha256(String),
}

impl ConfiguredSecret {
    /// As a digest, if it may be one.
    pub fn digest(&self) -> Result<SecretDigest, SecretFault> {
        match self {
            Self::Plain(plain) => SecretDigest::of_configured(plain),
            Self::Sha256(hex) => SecretDigest::from_hex(hex),
        }
    }
}

impl Serialize for ConfiguredSecret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digest = self.digest().map_err(serde::ser::Error::custom)?;
        serializer.serialize_newtype_variant("ConfiguredSecret", 1, "sha256", &digest.to_hex())
    }
}

impl fmt::Debug for ConfiguredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Sha256(_) => "Sha256(..)",
        })
    }
}

/// Whole seconds, or nothing.
mod in_seconds {
    use super::{Deserialize, Duration};

    #[expect(clippy::ref_option, reason = "what serde calls")]
    pub(super) fn serialize<S: serde::Serializer>(
        length: &Option<Duration>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.serialize_some(&length.map(|length| length.as_secs()))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_secs))
    }
}

/// The name of RFC 7518 §3.1, or nothing.
mod by_name {
    use super::{Deserialize, SigningAlgorithm};
    use crate::keys::key;

    #[expect(clippy::trivially_copy_pass_by_ref, clippy::ref_option, reason = "what serde calls")]
    pub(super) fn serialize<S: serde::Serializer>(
        algorithm: &Option<SigningAlgorithm>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.serialize_some(&algorithm.map(key::name))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        d: D,
    ) -> Result<Option<SigningAlgorithm>, D::Error> {
        let Some(name) = Option::<String>::deserialize(d)? else { return Ok(None) };
        let known = || serde::de::Error::custom(format!("{name:?} is none of ES256, RS256, EdDSA"));
        key::by_name(&name).map(Some).ok_or_else(known)
    }
}

/// Why one value is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientReason {
    /// See [`LifetimeFault`].
    #[error(transparent)]
    Lifetime(LifetimeFault),
    /// See [`SecretFault`].
    #[error(transparent)]
    Secret(SecretFault),
    /// See [`ScopeFault`].
    #[error(transparent)]
    Scope(ScopeFault),
    /// See [`RedirectFault`].
    #[error(transparent)]
    Redirect(RedirectFault),
    /// No secret.
    #[error("a client needs a secret or keys, or to be public")]
    NoSecret,
    /// More than two secrets.
    #[error("a client has at most two secrets: the one in use and the next")]
    TooManySecrets,
    /// More than one way to prove itself.
    #[error("a client has secrets or keys or is public: one of the three")]
    TwoProofs,
    /// Not a set of public keys.
    #[error("keys are a JWK set of public keys: {0}")]
    Keys(String),
    /// An id out of the grammar.
    #[error("a client id has 1 to {MAX_CLIENT_ID} visible ascii characters")]
    ClientId,
    /// A name out of bounds.
    #[error("a client's name has 1 to {MAX_NAME} characters and no control characters")]
    Name,
    /// No grant.
    #[error("a client without a grant can do nothing: give it one or remove it")]
    NoGrant,
    /// A grant for those who prove who they are.
    #[error("a public client may not use {}: anybody could in its name", .0.as_str())]
    PublicGrant(GrantType),
    /// A refresh token that nothing leads to.
    #[error("refresh_token follows from another grant: add authorization_code, device_code or password")]
    NothingToRefresh,
    /// No redirect URI.
    #[error("a client with authorization_code needs a redirect uri")]
    NoRedirect,
    /// Too many.
    #[error("a client has at most {MAX_REDIRECTS} redirect uris")]
    TooManyRedirects,
    /// An audience of a client that the provider does not have; holds it.
    #[error("audience {0:?} is not among the provider's audiences: add it there or correct it")]
    UnknownAudience(String),
    /// No audience.
    #[error("a client with client_credentials needs an audience: its tokens must be meant for somebody")]
    NoAudience,
    /// A default scope that is not among the client's scopes; holds it.
    #[error("default scope {0:?} is not among the client's scopes")]
    DefaultScope(String),
    /// A group name is empty, too long or has control characters.
    #[error("a group has 1 to {MAX_GROUP} bytes and no control characters")]
    Group,
    /// More than [`MAX_GROUPS`].
    #[error("a client has at most {MAX_GROUPS} groups: every token carries them")]
    TooManyGroups,
}

/// One refused value and where it stands, for example `secrets[0]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ClientFault {
    /// Path from [`ClientConfig`].
    pub path: String,
    /// Why.
    pub reason: ClientReason,
}

/// An address of a stored client that is not one any more, so that nobody is sent there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {uri:?} is left out: {}", RedirectFault::Pattern)]
pub(crate) struct LeftOut {
    /// Path from [`ClientConfig`].
    path: String,
    /// As it was registered.
    uri: String,
}

/// Every refused value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ClientFaults(pub Vec<ClientFault>);

impl ClientConfig {
    /// Checks everything and reports every fault.
    pub fn check(&self, defaults: &ClientDefaults) -> Result<Client, ClientFaults> {
        let mut faults = Faults(Vec::new());
        let client = self.build(defaults, &mut faults);
        match client {
            Some(client) if faults.0.is_empty() => Ok(client),
            _ => Err(ClientFaults(faults.0)),
        }
    }

    /// The same for what a former version has registered: an address that is a pattern, as it knew none to be, is left out, and closes nothing else.
    pub(crate) fn check_stored(
        &self,
        defaults: &ClientDefaults,
    ) -> Result<(Client, Vec<LeftOut>), ClientFaults> {
        let mut faults = Faults(Vec::new());
        let client = self.build(defaults, &mut faults);
        // The address that logouts are told at is compared with nothing.
        faults.0.retain(|fault| fault.reason != ClientReason::Redirect(RedirectFault::Pattern));
        match client {
            Some(client) if faults.0.is_empty() => Ok((client, self.patterns())),
            _ => Err(ClientFaults(faults.0)),
        }
    }

    /// Addresses to come back to that are patterns.
    fn patterns(&self) -> Vec<LeftOut> {
        let lists = [
            ("redirect_uris", &self.redirect_uris),
            ("post_logout_redirect_uris", &self.post_logout_redirect_uris),
        ];
        let all =
            lists.iter().flat_map(|(at, uris)| uris.iter().enumerate().map(move |(i, uri)| (at, i, uri)));
        let patterns = all.filter(|(_, _, uri)| RedirectUri::parse(uri) == Err(RedirectFault::Pattern));
        patterns.map(|(at, i, uri)| LeftOut { path: format!("{at}[{i}]"), uri: uri.clone() }).collect()
    }

    /// `None` only when a fault was noted.
    fn build(&self, defaults: &ClientDefaults, faults: &mut Faults) -> Option<Client> {
        faults.demand(is_client_id(&self.id), || "id".into(), ClientReason::ClientId);
        let name = self.name.as_deref().unwrap_or(&self.id).trim();
        let fits = (1..=MAX_NAME.max(MAX_CLIENT_ID)).contains(&name.chars().count());
        let plain = fits && !name.chars().any(char::is_control);
        faults.demand(self.name.is_none() || plain, || "name".into(), ClientReason::Name);
        let proof = self.proof(faults);
        self.check_grants(faults);
        let scopes = check_scopes(&self.scopes, "scopes", faults);
        let default_scopes = check_scopes(&self.default_scopes, "default_scopes", faults);
        if let Some(outside) = default_scopes.first_outside(&scopes) {
            faults.add("default_scopes".into(), ClientReason::DefaultScope(outside.to_owned()));
        }
        self.check_audiences(defaults, faults);
        faults.demand(self.groups.len() <= MAX_GROUPS, || "groups".into(), ClientReason::TooManyGroups);
        for (i, group) in self.groups.iter().enumerate() {
            let fits = (1..=MAX_GROUP).contains(&group.len()) && !group.chars().any(char::is_control);
            faults.demand(fits, || format!("groups[{i}]"), ClientReason::Group);
        }
        let lifetime = self.access_token_lifetime.unwrap_or(defaults.access_token_lifetime);
        if self.access_token_lifetime.is_some() {
            let checked = lifetime::check(lifetime).map_err(ClientReason::Lifetime);
            faults.keep("access_token_lifetime", checked);
        }
        let redirect_uris = check_redirects(&self.redirect_uris, "redirect_uris", faults);
        let post_logout =
            check_redirects(&self.post_logout_redirect_uris, "post_logout_redirect_uris", faults);
        if let Some(uri) = &self.backchannel_logout_uri {
            let checked = RedirectUri::parse(uri).map_err(ClientReason::Redirect);
            faults.keep("backchannel_logout_uri", checked);
        }
        let boxed = |list: &[String]| list.iter().map(|s| s.as_str().into()).collect();
        Some(Client {
            id: self.id.as_str().into(),
            name: name.into(),
            proof: proof?,
            grants: self.grants.clone(),
            redirect_uris,
            post_logout_redirect_uris: post_logout,
            backchannel_logout_uri: self.backchannel_logout_uri.as_deref().map(Into::into),
            scopes,
            default_scopes,
            audiences: boxed(&self.audiences),
            groups: boxed(&self.groups),
            asks_consent: self.asks_consent,
            requires_pkce: self.requires_pkce || self.public,
            requires_pushed_requests: self.requires_pushed_requests,
            introspects: self.introspects,
            access_token: self.access_token,
            access_token_algorithm: defaults.access_token_algorithm,
            access_token_lifetime: lifetime,
            id_token_algorithm: self.id_token_algorithm.unwrap_or(defaults.id_token_algorithm),
            userinfo_algorithm: self.userinfo_algorithm,
            claims_in_id_token: self.claims_in_id_token,
            read_at: None,
        })
    }

    fn proof(&self, faults: &mut Faults) -> Option<Proof> {
        let kinds = usize::from(self.public)
            + usize::from(!self.secrets.is_empty())
            + usize::from(self.keys.is_some());
        faults.demand(kinds != 0, || "secrets".into(), ClientReason::NoSecret);
        faults.demand(kinds <= 1, || "secrets".into(), ClientReason::TwoProofs);
        let mut digests = Vec::with_capacity(self.secrets.len());
        for (i, secret) in self.secrets.iter().enumerate() {
            let digest = secret.digest().map_err(ClientReason::Secret);
            digests.extend(faults.keep(&format!("secrets[{i}]"), digest));
        }
        faults.demand(self.secrets.len() <= 2, || "secrets".into(), ClientReason::TooManySecrets);
        if self.public {
            return Some(Proof::Nothing);
        }
        if let Some(keys) = &self.keys {
            return faults.keep("keys", read_keys(keys)).map(Proof::Keys);
        }
        let mut digests = digests.into_iter();
        let first = digests.next()?;
        Some(Proof::Secret(SecretDigests::new(first, digests.next())))
    }

    fn check_grants(&self, faults: &mut Faults) {
        use GrantType::{AuthorizationCode, ClientCredentials, DeviceCode, Password, RefreshToken};
        let has = |grant| self.grants.contains(&grant);
        faults.demand(!self.grants.is_empty(), || "grants".into(), ClientReason::NoGrant);
        for grant in [ClientCredentials, Password] {
            let sound = !(self.public && has(grant));
            faults.demand(sound, || "grants".into(), ClientReason::PublicGrant(grant));
        }
        let refreshable = has(AuthorizationCode) || has(DeviceCode) || has(Password);
        let sound = !has(RefreshToken) || refreshable;
        faults.demand(sound, || "grants".into(), ClientReason::NothingToRefresh);
        let returns = !has(AuthorizationCode) || !self.redirect_uris.is_empty();
        faults.demand(returns, || "redirect_uris".into(), ClientReason::NoRedirect);
    }

    fn check_audiences(&self, defaults: &ClientDefaults, faults: &mut Faults) {
        let meant = !self.audiences.is_empty() || !self.grants.contains(&GrantType::ClientCredentials);
        faults.demand(meant, || "audiences".into(), ClientReason::NoAudience);
        for (i, audience) in self.audiences.iter().enumerate() {
            let known =
                target::is_audience(audience) && defaults.audiences.iter().any(|known| **known == **audience);
            let unknown = ClientReason::UnknownAudience(audience.clone());
            faults.demand(known, || format!("audiences[{i}]"), unknown);
        }
    }
}

fn read_keys(keys: &Value) -> Result<KeySet, ClientReason> {
    let text = keys.to_string();
    let (set, skipped) =
        KeySet::from_jwks_json(text.as_bytes()).map_err(|fault| ClientReason::Keys(fault.to_string()))?;
    match skipped.first() {
        Some(skipped) => Err(ClientReason::Keys(format!("key {} {}", skipped.index, skipped.reason))),
        None if set.is_empty() => Err(ClientReason::Keys("there is none".into())),
        None => Ok(set),
    }
}

fn check_scopes(raw: &[String], at: &str, faults: &mut Faults) -> ScopeSet {
    let mut set = ScopeSet::default();
    for (i, scope) in raw.iter().enumerate() {
        faults.keep(&format!("{at}[{i}]"), set.insert(scope).map_err(ClientReason::Scope));
    }
    set
}

fn check_redirects(raw: &[String], at: &str, faults: &mut Faults) -> Vec<RedirectUri> {
    faults.demand(raw.len() <= MAX_REDIRECTS, || at.to_owned(), ClientReason::TooManyRedirects);
    let uris = raw.iter().enumerate().filter_map(|(i, uri)| {
        faults.keep(&format!("{at}[{i}]"), RedirectUri::parse(uri).map_err(ClientReason::Redirect))
    });
    uris.collect()
}

struct Faults(Vec<ClientFault>);

impl Faults {
    fn add(&mut self, path: String, reason: ClientReason) {
        self.0.push(ClientFault { path, reason });
    }

    fn keep<T>(&mut self, path: &str, result: Result<T, ClientReason>) -> Option<T> {
        result.map_err(|reason| self.add(path.to_owned(), reason)).ok()
    }

    fn demand(&mut self, holds: bool, path: impl FnOnce() -> String, reason: ClientReason) {
        if !holds {
            self.add(path(), reason);
        }
    }
}
