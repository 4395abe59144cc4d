//! Client configuration: unchecked settings in, a checked [`Client`] out, all faults in one pass.
//!
//! Owns: [`ClientConfig`], the one description of a client, and its check. It comes from a
//! configuration file, from the administration API or from the store (as JSON, secrets as digests).
//!
//! Does not own: the checked client ([`super::Client`]).

use std::{fmt, time::Duration};

use auth::{keyset::KeySet, token::jws::SigningAlgorithm};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AccessTokenTyp, Client, ClientCredential, ClientDefaults, Introspects, TokenFormat};
use crate::claim_mapping::{self, ClaimMapping, MappingFault};
use crate::client_secret::{SecretDigest, SecretDigests, SecretFault};
use crate::lifetime::{self, LifetimeFault};
use crate::oauth::grant_type::GrantType;
use crate::oauth::redirect_uri::{RedirectFault, RedirectUri};
use crate::oauth::scope::{ScopeFault, ScopeSet};
use crate::oauth::target;
use crate::subject::{MAX_SECTOR, Sector, SubjectType};

/// Longest client id in bytes.
pub const MAX_CLIENT_ID: usize = 128;
/// Longest display name in characters; pages show it.
pub const MAX_NAME: usize = 80;
/// Longest group name in bytes.
pub const MAX_GROUP: usize = 256;
/// Most groups of one client: every token of the client carries them.
pub const MAX_GROUPS: usize = 128;
/// Most redirect URIs of one client.
pub const MAX_REDIRECTS: usize = 64;

/// Whether a text is a valid client id.
pub(crate) fn is_client_id(id: &str) -> bool {
    (1..=MAX_CLIENT_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// Settings of one client. Omitted members have defaults, with which the client may do nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct ClientConfig {
    /// The `client_id`: 1 to [`MAX_CLIENT_ID`] visible ASCII characters, unique. It is also the
    /// `sub` of tokens that the client gets for itself.
    #[serde(skip)]
    pub id: String,
    /// Display name for users; default: the client id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the client cannot keep a secret, for example a program on a user's machine. It does
    /// not authenticate, so it must use PKCE.
    #[serde(skip_serializing_if = "is_false")]
    pub public: bool,
    /// One secret, or two during a rotation.
    #[schema(ignore)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<ConfiguredSecret>,
    /// Public keys of the client (JWK set, RFC 7517 §5) for `private_key_jwt` (OpenID Connect Core
    /// 1.0 §9), instead of a secret.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Value>,
    /// Grants that the client may use; at least one.
    pub grants: Vec<GrantType>,
    /// URIs to which authorization responses may be sent. They are compared exactly, except for the
    /// port of a loopback address or of `localhost` (RFC 8252 §7.3).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redirect_uris: Vec<String>,
    /// Redirect URIs after logout (OpenID Connect RP-Initiated Logout 1.0 §3.1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub post_logout_redirect_uris: Vec<String>,
    /// URI that receives logout tokens when a session ends (OpenID Connect Back-Channel Logout 1.0
    /// §2.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backchannel_logout_uri: Option<String>,
    /// Scopes that the client may request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Scopes for a request without `scope`: a subset of `scopes`, possibly empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_scopes: Vec<String>,
    /// Audiences that the client may request; the first is the default. Without any, its tokens are
    /// issued for the provider itself and are valid only at its userinfo endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// Groups in tokens that the client gets for itself (RFC 9068 §2.2.3.1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether users are asked for consent.
    pub asks_consent: bool,
    /// Whether the client must use PKCE (RFC 7636); public clients always must.
    #[serde(skip_serializing_if = "is_false")]
    pub requires_pkce: bool,
    /// Whether the client must push its authorization requests (RFC 9126 §6).
    #[serde(skip_serializing_if = "is_false")]
    pub requires_pushed_requests: bool,
    /// Which tokens the client may introspect (RFC 7662).
    #[serde(skip_serializing_if = "Introspects::is_own")]
    pub introspects: Introspects,
    /// Format of the client's access tokens.
    pub access_token: TokenFormat,
    /// The `typ` in the header of the client's JWT access tokens.
    #[serde(skip_serializing_if = "AccessTokenTyp::is_default")]
    pub access_token_typ: AccessTokenTyp,
    /// Lifetime of access tokens in seconds; default: the provider's setting.
    #[schema(value_type = Option<u64>, default = json!(null))]
    #[serde(skip_serializing_if = "Option::is_none", with = "in_seconds")]
    pub access_token_lifetime: Option<Duration>,
    /// Signing algorithm of ID tokens; default: the provider's setting.
    #[schema(value_type = Option<String>, default = json!(null))]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub id_token_algorithm: Option<SigningAlgorithm>,
    /// Signing algorithm of userinfo responses; if absent, they are plain JSON.
    #[schema(value_type = Option<String>, default = json!(null))]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub userinfo_algorithm: Option<SigningAlgorithm>,
    /// Whether ID tokens contain the user's claims of the granted scopes; otherwise only the
    /// userinfo endpoint returns them.
    #[serde(skip_serializing_if = "is_false")]
    pub claims_in_id_token: bool,
    /// Claims that tokens of the client contain besides those of the scopes. They replace claims of
    /// the same name that the provider adds for all clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimMapping>,
    /// Type of the `sub` that the client receives (OpenID Connect Core 1.0 §8).
    #[serde(skip_serializing_if = "SubjectType::is_public")]
    pub subject: SubjectType,
    /// Sector of pairwise subjects: clients with the same one receive the same `sub`. Default: the
    /// host of the redirect URIs, if all have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector: Option<String>,
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
            access_token_typ: AccessTokenTyp::AtJwt,
            access_token_lifetime: None,
            id_token_algorithm: None,
            userinfo_algorithm: None,
            claims_in_id_token: false,
            claims: Vec::new(),
            subject: SubjectType::Public,
            sector: None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A client secret as configured. It is always serialized as a digest.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfiguredSecret {
    /// In clear text; must not be guessable (see [`SecretDigest::of_configured`]).
    Plain(String),
    /// SHA-256 digest as 64 hexadecimal digits.
    Sha256(String),
}

impl ConfiguredSecret {
    /// Digest of the secret.
    ///
    /// # Errors
    /// [`SecretFault`] when the secret is guessable or malformed.
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

/// Serde format: whole seconds, or null.
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

/// Serde format: algorithm name of RFC 7518 §3.1, or null.
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
        let known =
            || serde::de::Error::custom(format!("unknown algorithm {name:?}: use ES256, RS256 or EdDSA"));
        key::by_name(&name).map(Some).ok_or_else(known)
    }
}

/// Reason why one value is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientReason {
    /// The lifetime is not valid, see [`LifetimeFault`].
    #[error(transparent)]
    Lifetime(LifetimeFault),
    /// A secret is not acceptable, see [`SecretFault`].
    #[error(transparent)]
    Secret(SecretFault),
    /// A scope is not valid, see [`ScopeFault`].
    #[error(transparent)]
    Scope(ScopeFault),
    /// A URI is not valid, see [`RedirectFault`].
    #[error(transparent)]
    Redirect(RedirectFault),
    /// There is neither a secret nor keys, and the client is not public.
    #[error("the client has no authentication method: add a secret or keys, or set public")]
    NoSecret,
    /// There are more than two secrets.
    #[error("a client has at most two secrets: the one in use and the next")]
    TooManySecrets,
    /// There is more than one authentication method.
    #[error("conflicting authentication methods: use secrets, keys or public")]
    TwoProofs,
    /// The keys are not a JWK set of public keys; holds the reason.
    #[error("keys are not a JWK set of public keys: {0}")]
    Keys(String),
    /// The client id does not match the grammar.
    #[error("a client id has 1 to {MAX_CLIENT_ID} visible ascii characters")]
    ClientId,
    /// The name is empty, too long or has control characters.
    #[error("a client's name has 1 to {MAX_NAME} characters and no control characters")]
    Name,
    /// There is no grant.
    #[error("the client has no grant: add one or remove the client")]
    NoGrant,
    /// A public client has a grant that needs client authentication; holds the grant.
    #[error("a public client may not use {}: it cannot authenticate", .0.as_str())]
    PublicGrant(GrantType),
    /// There is `refresh_token`, but no grant that issues refresh tokens.
    #[error("refresh_token needs another grant: add authorization_code, device_code or password")]
    NothingToRefresh,
    /// There is `authorization_code`, but no redirect URI.
    #[error("a client with authorization_code needs a redirect URI")]
    NoRedirect,
    /// There are more than [`MAX_REDIRECTS`] redirect URIs.
    #[error("a client has at most {MAX_REDIRECTS} redirect URIs")]
    TooManyRedirects,
    /// An audience is not among those of the provider; holds the audience.
    #[error("audience {0:?} is not among the provider's audiences: add it there or correct it")]
    UnknownAudience(String),
    /// There is `client_credentials`, but no audience.
    #[error("a client with client_credentials needs an audience: add one")]
    NoAudience,
    /// A default scope is not among the client's scopes; holds the scope.
    #[error("default scope {0:?} is not among the client's scopes")]
    DefaultScope(String),
    /// A group name is empty, too long or has control characters.
    #[error("a group has 1 to {MAX_GROUP} bytes and no control characters")]
    Group,
    /// A claim is not valid, see [`MappingFault`].
    #[error(transparent)]
    Claim(MappingFault),
    /// There is a sector, but subjects are public.
    #[error("a sector applies to pairwise subjects only: set subject to pairwise or remove it")]
    SectorOfPublic,
    /// The sector is not a host name.
    #[error("malformed sector: use a host name of at most {MAX_SECTOR} bytes")]
    Sector,
    /// Subjects are pairwise, but the redirect URIs determine no sector.
    #[error("pairwise subjects need a sector, because the redirect URIs have no host or several: set one")]
    NoSector,
    /// There are more than [`MAX_GROUPS`] groups.
    #[error("a client has at most {MAX_GROUPS} groups: every token carries them")]
    TooManyGroups,
}

/// One refused value and its place, for example `secrets[0]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ClientFault {
    /// Path from [`ClientConfig`].
    pub path: String,
    /// Why the value is refused.
    pub reason: ClientReason,
}

/// A URI of a stored client that is no longer valid and is therefore ignored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: ignored {uri:?}: {}", RedirectFault::Pattern)]
pub(crate) struct IgnoredUri {
    /// Path from [`ClientConfig`].
    path: String,
    /// The URI as registered.
    uri: String,
}

/// All refused values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ClientFaults(pub Vec<ClientFault>);

impl ClientConfig {
    /// Checks all values and reports every fault.
    ///
    /// # Errors
    /// [`ClientFaults`] with every refused value.
    pub fn check(&self, defaults: &ClientDefaults) -> Result<Client, ClientFaults> {
        let mut faults = Faults(Vec::new());
        let client = self.build(defaults, &mut faults);
        match client {
            Some(client) if faults.0.is_empty() => Ok(client),
            _ => Err(ClientFaults(faults.0)),
        }
    }

    /// As [`ClientConfig::check`], for a client that an older version registered. That version did
    /// not recognize patterns in redirect URIs; such URIs are ignored, and the client stays usable.
    pub(crate) fn check_stored(
        &self,
        defaults: &ClientDefaults,
    ) -> Result<(Client, Vec<IgnoredUri>), ClientFaults> {
        let mut faults = Faults(Vec::new());
        let client = self.build(defaults, &mut faults);
        // The logout URI is not compared with other URIs, so a pattern there is harmless.
        faults.0.retain(|fault| fault.reason != ClientReason::Redirect(RedirectFault::Pattern));
        match client {
            Some(client) if faults.0.is_empty() => Ok((client, self.patterns())),
            _ => Err(ClientFaults(faults.0)),
        }
    }

    /// Redirect URIs that are patterns.
    fn patterns(&self) -> Vec<IgnoredUri> {
        let lists = [
            ("redirect_uris", &self.redirect_uris),
            ("post_logout_redirect_uris", &self.post_logout_redirect_uris),
        ];
        let all =
            lists.iter().flat_map(|(at, uris)| uris.iter().enumerate().map(move |(i, uri)| (at, i, uri)));
        let patterns = all.filter(|(_, _, uri)| RedirectUri::parse(uri) == Err(RedirectFault::Pattern));
        patterns.map(|(at, i, uri)| IgnoredUri { path: format!("{at}[{i}]"), uri: uri.clone() }).collect()
    }

    /// Builds the client and collects faults. `None` only if a fault was added.
    fn build(&self, defaults: &ClientDefaults, faults: &mut Faults) -> Option<Client> {
        faults.require(is_client_id(&self.id), || "id".into(), ClientReason::ClientId);
        let name = self.name.as_deref().unwrap_or(&self.id).trim();
        let fits = (1..=MAX_NAME.max(MAX_CLIENT_ID)).contains(&name.chars().count());
        let plain = fits && !name.chars().any(char::is_control);
        faults.require(self.name.is_none() || plain, || "name".into(), ClientReason::Name);
        let proof = self.proof(faults);
        self.check_grants(faults);
        let scopes = check_scopes(&self.scopes, "scopes", faults);
        let default_scopes = check_scopes(&self.default_scopes, "default_scopes", faults);
        if let Some(outside) = default_scopes.first_outside(&scopes) {
            faults.add("default_scopes".into(), ClientReason::DefaultScope(outside.to_owned()));
        }
        self.check_audiences(defaults, faults);
        faults.require(self.groups.len() <= MAX_GROUPS, || "groups".into(), ClientReason::TooManyGroups);
        for (i, group) in self.groups.iter().enumerate() {
            let fits = (1..=MAX_GROUP).contains(&group.len()) && !group.chars().any(char::is_control);
            faults.require(fits, || format!("groups[{i}]"), ClientReason::Group);
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
        let own = claim_mapping::check_all(&self.claims, &defaults.attributes).unwrap_or_else(|refused| {
            for (i, fault) in refused {
                faults.add(format!("claims[{i}]"), ClientReason::Claim(fault));
            }
            Vec::new()
        });
        let sector = faults.keep("sector", self.sector(&redirect_uris)).flatten();
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
            access_token_typ: self.access_token_typ,
            access_token_algorithm: defaults.access_token_algorithm,
            access_token_lifetime: lifetime,
            id_token_algorithm: self.id_token_algorithm.unwrap_or(defaults.id_token_algorithm),
            userinfo_algorithm: self.userinfo_algorithm,
            claims_in_id_token: self.claims_in_id_token,
            mappings: claim_mapping::merged(&defaults.mappings, own),
            claims: self.claims.clone(),
            sector,
            sector_name: self.sector.as_deref().map(Into::into),
            read_at: None,
        })
    }

    /// The sector of the client's subjects; `None`: they are public.
    fn sector(&self, redirect_uris: &[RedirectUri]) -> Result<Option<Sector>, ClientReason> {
        match (self.subject, &self.sector) {
            (SubjectType::Public, None) => Ok(None),
            (SubjectType::Public, Some(_)) => Err(ClientReason::SectorOfPublic),
            (SubjectType::Pairwise, Some(name)) => {
                let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                let fits = (1..=MAX_SECTOR).contains(&name.len()) && name.bytes().all(named);
                if fits { Ok(Some(Sector::named(name))) } else { Err(ClientReason::Sector) }
            }
            (SubjectType::Pairwise, None) => {
                let mut hosts = redirect_uris.iter().map(RedirectUri::host);
                let first = hosts.next().flatten().ok_or(ClientReason::NoSector)?;
                let same = hosts.all(|host| host == Some(first));
                if same { Ok(Some(Sector::named(first))) } else { Err(ClientReason::NoSector) }
            }
        }
    }

    fn proof(&self, faults: &mut Faults) -> Option<ClientCredential> {
        let kinds = usize::from(self.public)
            + usize::from(!self.secrets.is_empty())
            + usize::from(self.keys.is_some());
        faults.require(kinds != 0, || "secrets".into(), ClientReason::NoSecret);
        faults.require(kinds <= 1, || "secrets".into(), ClientReason::TwoProofs);
        let mut digests = Vec::with_capacity(self.secrets.len());
        for (i, secret) in self.secrets.iter().enumerate() {
            let digest = secret.digest().map_err(ClientReason::Secret);
            digests.extend(faults.keep(&format!("secrets[{i}]"), digest));
        }
        faults.require(self.secrets.len() <= 2, || "secrets".into(), ClientReason::TooManySecrets);
        if self.public {
            return Some(ClientCredential::Nothing);
        }
        if let Some(keys) = &self.keys {
            return faults.keep("keys", read_keys(keys)).map(ClientCredential::Keys);
        }
        let mut digests = digests.into_iter();
        let first = digests.next()?;
        Some(ClientCredential::Secret(SecretDigests::new(first, digests.next())))
    }

    fn check_grants(&self, faults: &mut Faults) {
        use GrantType::{AuthorizationCode, ClientCredentials, DeviceCode, Password, RefreshToken};
        let has = |grant| self.grants.contains(&grant);
        faults.require(!self.grants.is_empty(), || "grants".into(), ClientReason::NoGrant);
        for grant in [ClientCredentials, Password] {
            let sound = !(self.public && has(grant));
            faults.require(sound, || "grants".into(), ClientReason::PublicGrant(grant));
        }
        let refreshable = has(AuthorizationCode) || has(DeviceCode) || has(Password);
        let sound = !has(RefreshToken) || refreshable;
        faults.require(sound, || "grants".into(), ClientReason::NothingToRefresh);
        let returns = !has(AuthorizationCode) || !self.redirect_uris.is_empty();
        faults.require(returns, || "redirect_uris".into(), ClientReason::NoRedirect);
    }

    fn check_audiences(&self, defaults: &ClientDefaults, faults: &mut Faults) {
        let meant = !self.audiences.is_empty() || !self.grants.contains(&GrantType::ClientCredentials);
        faults.require(meant, || "audiences".into(), ClientReason::NoAudience);
        for (i, audience) in self.audiences.iter().enumerate() {
            let known =
                target::is_audience(audience) && defaults.audiences.iter().any(|known| **known == **audience);
            let unknown = ClientReason::UnknownAudience(audience.clone());
            faults.require(known, || format!("audiences[{i}]"), unknown);
        }
    }
}

fn read_keys(keys: &Value) -> Result<KeySet, ClientReason> {
    let text = keys.to_string();
    let (set, skipped) =
        KeySet::from_jwks_json(text.as_bytes()).map_err(|fault| ClientReason::Keys(fault.to_string()))?;
    match skipped.first() {
        Some(skipped) => Err(ClientReason::Keys(format!("key {} {}", skipped.index, skipped.reason))),
        None if set.is_empty() => Err(ClientReason::Keys("the set is empty".into())),
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
    faults.require(raw.len() <= MAX_REDIRECTS, || at.to_owned(), ClientReason::TooManyRedirects);
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

    fn require(&mut self, holds: bool, path: impl FnOnce() -> String, reason: ClientReason) {
        if !holds {
            self.add(path(), reason);
        }
    }
}
