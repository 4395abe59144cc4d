//! Tables of `[provider]`: the OpenID provider of this process.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Address, ByteSize, Network, Timespan};
use super::default::{count, secs, yes};
use super::provider_claims::{Attribute, ProviderClaim};
use super::{Audit, AuditReceiver, EventReceiver, Mail};

/// OpenID provider in this process: it stores users and clients and issues tokens. Gateways, in
/// this process or others, trust it through an `[[issuer]]` like any other.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// URL of the provider for browsers and clients, and the `iss` of its tokens, such as
    /// `https://login.example.com`. Plain `http` on loopback only.
    pub issuer: String,
    /// IP address and port to listen on. Read at start only.
    #[serde(default = "address")]
    pub address: Address,
    /// Certificate and key for TLS. Default: plain text, for loopback, or behind a proxy that
    /// terminates TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ProviderTls>,
    /// URL of the provider's database: `sqlite:///var/lib/postern/postern.db?mode=rwc` for one
    /// node, or `postgres://postern@db.example/postern` for several. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// File with the URL of the database, for a URL that contains a password. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_file: Option<PathBuf>,
    /// File with 32 random bytes in base64 that protect all stored data. All nodes share it. Only
    /// this user may be able to read it, or one group if root owns it. Default with SQLite: the
    /// name of the database plus `.secret`, created at the first start. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Revocations: what this provider shares with gateways that follow them.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub revocation: ProviderRevocation,
    /// Proxies whose `X-Forwarded-For` is trusted: the client is the right-most address in it that
    /// is not in this list. Empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<Network>,
    /// Confirms that a `trusted_proxies` that covers every address is intended. Any client can then
    /// claim any address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted_proxies_anyone: bool,
    /// Resource servers that tokens may be issued for. Every audience of a client must be one of
    /// these.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// Algorithm that signs access tokens.
    #[serde(default = "es256")]
    pub access_token_algorithm: SigningAlgorithm,
    /// Algorithm that signs ID tokens, unless the client has its own.
    #[serde(default = "rs256")]
    pub id_token_algorithm: SigningAlgorithm,
    /// Lifetime of access tokens, unless the client has its own. From 1s to 24h.
    #[serde(default = "secs::<300>")]
    pub access_token_lifetime: Timespan,
    /// Lifetimes of codes, other tokens, sessions and keys.
    #[serde(default)]
    pub lifetimes: Lifetimes,
    /// How passwords are hashed, checked and protected against guessing.
    #[serde(default)]
    pub passwords: Passwords,
    /// Attributes of users beyond the standard claims of OpenID Connect. A user's record holds only
    /// standard claims and these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attribute: Vec<Attribute>,
    /// Claims that the tokens of all clients contain besides those of their scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim: Vec<ProviderClaim>,
    /// Clients of the provider. More may be registered in the database.
    #[serde(default)]
    pub client: Vec<Client>,
    /// Receivers of security events that this provider sends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_receiver: Vec<EventReceiver>,
    /// What is written to the audit log.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub audit: Audit,
    /// Receivers of the audit log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit_receiver: Vec<AuditReceiver>,
    /// Mails that the provider sends. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail: Option<Mail>,
}

/// What a provider shares with gateways that follow its revocations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderRevocation {
    /// Generations of the secret that is shared with gateways: all are accepted, and the first is
    /// used for sending. To rotate it: add a new number at the end, and give the gateways the new
    /// output of `postern admin revocation secret`. Then put the new number first, and give them
    /// the output again. When all have it, remove the old number. One to four numbers from 0 to
    /// 255.
    pub secret_generations: Vec<u8>,
}

impl Default for ProviderRevocation {
    fn default() -> Self {
        Self { secret_generations: vec![1] }
    }
}

fn address() -> Address {
    Address(([127, 0, 0, 1], 9000).into())
}

fn es256() -> SigningAlgorithm {
    SigningAlgorithm::ES256
}

fn rs256() -> SigningAlgorithm {
    SigningAlgorithm::RS256
}

/// TLS of the provider. Its files are read again when they change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderTls {
    /// PEM file with the certificate, followed by the chain up to the certificate authority.
    pub certificate: PathBuf,
    /// PEM file with the certificate's private key (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
}

/// Algorithm that the provider signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "registered names, RFC 7518 section 3.1 and RFC 8037")]
pub enum SigningAlgorithm {
    ES256,
    RS256,
    EdDSA,
}

/// Lifetimes in the provider, in whole seconds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Lifetimes {
    /// Lifetime of an authorization code. At most 1h; a minute is better (RFC 6749 section 4.1.2).
    pub code: Timespan,
    /// Lifetime of an ID token. At most 24h.
    pub id_token: Timespan,
    /// How long a refresh token stays valid without use.
    pub refresh_token: Timespan,
    /// Lifetime of a grant: everything that follows from one authorization, however often it is
    /// refreshed.
    pub grant: Timespan,
    /// How long a session stays valid without use. At least 60s.
    pub session_idle: Timespan,
    /// Lifetime of a session, also when it is in use.
    pub session: Timespan,
    /// How long a user may take to enter a device code (RFC 8628). At most 1h.
    pub device_code: Timespan,
    /// Lifetime of a pushed authorization request (RFC 9126 section 2.2). At most 10m.
    pub pushed_request: Timespan,
    /// How long a key signs until the next one replaces it. At least 1h.
    pub signing_key: Timespan,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let idp::Lifetimes {
            code,
            id_token,
            refresh_token,
            grant,
            session_idle,
            session,
            device_code,
            pushed_request,
            signing_key,
        } = idp::Lifetimes::default();
        Self {
            code: Timespan(code),
            id_token: Timespan(id_token),
            refresh_token: Timespan(refresh_token),
            grant: Timespan(grant),
            session_idle: Timespan(session_idle),
            session: Timespan(session),
            device_code: Timespan(device_code),
            pushed_request: Timespan(pushed_request),
            signing_key: Timespan(signing_key),
        }
    }
}

/// How passwords are hashed, checked and protected against guessing. The hash is Argon2id, and
/// older hashes are upgraded at login.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Passwords {
    /// Memory of one hash. From 7MiB to 256MiB. Each thread uses this much.
    pub memory: ByteSize,
    /// Number of passes over the memory.
    pub iterations: u32,
    /// Number of lanes of one hash. They are computed one after another, so more lanes are not
    /// faster.
    pub parallelism: u32,
    /// Number of threads that hash. Default: one for each CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Number of passwords that may wait for a thread. Further logins are refused and must be
    /// retried. Default: 32 for each thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<usize>,
    /// Delay after which a refused login may be retried. From 1s to 1h.
    pub retry_after: Timespan,
    /// Minimum number of characters of a new password. From 8 to 64.
    pub min_length: usize,
    /// Number of guesses that a new password must withstand.
    pub strength: Strength,
    /// When wrong passwords lock an account. Default: after 5.
    pub lockout_account: Lockout,
    /// When wrong passwords lock the network that they come from, for all accounts. Needs more
    /// failures than an account. Default: after 50.
    pub lockout_network: Lockout,
    /// Whether recently verified passwords are cached, for clients that send one with every
    /// request. This trades safety for speed: a check takes a microsecond instead of a hash. But an
    /// attacker who can read the memory of this process can search for these passwords just as
    /// fast. Default: none is cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember_verified: Option<RememberVerified>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            memory: ByteSize(19 << 20),
            iterations: 2,
            parallelism: 1,
            threads: None,
            queue: None,
            retry_after: secs::<2>(),
            min_length: idp::passwords::rules::MIN_LENGTH,
            strength: Strength::Million,
            lockout_account: Lockout::after(5),
            lockout_network: Lockout::after(50),
            remember_verified: None,
        }
    }
}

/// Number of guesses that a password must withstand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// A million guesses: more than the lockout permits in years.
    Million,
    /// A hundred million guesses.
    HundredMillion,
    /// Ten thousand million guesses: withstands an attacker who has stolen the hash for some time.
    TenBillion,
}

/// When wrong passwords lock an account or network.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lockout {
    /// Number of wrong passwords before the first lock. Each further one locks for twice as long as
    /// the one before.
    pub failures: u32,
    /// Duration of the first lock. At least 1s.
    #[serde(default = "secs::<10>")]
    pub delay: Timespan,
    /// Longest duration of a lock, because any attacker can lock an account for this time. At most
    /// 24h.
    #[serde(default = "secs::<900>")]
    pub longest: Timespan,
    /// After this time without a failure, half of the failures are forgotten. From 1s to 24h.
    #[serde(default = "secs::<900>")]
    pub quiet: Timespan,
}

impl Lockout {
    fn after(failures: u32) -> Self {
        Self { failures, delay: secs::<10>(), longest: secs::<900>(), quiet: secs::<900>() }
    }
}

/// Optional cache of recently verified passwords.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RememberVerified {
    /// How long a password stays cached. From 1s to 1m.
    pub lifetime: Timespan,
    /// Largest number of accounts with a cached password.
    #[serde(default = "count::<1000>")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub accounts: usize,
}

/// Client of the provider. It authenticates with secrets or keys, or is `public`. It may do only
/// what these keys permit.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "one for each key of the file")]
pub struct Client {
    /// `client_id`: 1 to 128 visible ASCII characters. It is also the `sub` of tokens that the
    /// client gets for itself.
    pub id: String,
    /// Name of the client that users see. Default: its `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the client cannot keep a secret, such as a program on a user's own machine. It must
    /// use PKCE.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
    /// SHA-256 of the client's secret as 64 hexadecimal digits. List a second one while the client
    /// changes its secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_sha256: Vec<String>,
    /// Files with one secret each, instead of `secret_sha256` or in addition. Read again when they
    /// change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<PathBuf>,
    /// File with the client's public keys (a JWK set, RFC 7517) instead of a secret, for
    /// `private_key_jwt`. Read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_file: Option<PathBuf>,
    /// Grants that the client may use.
    #[schemars(length(min = 1))]
    pub grants: Vec<Grant>,
    /// URIs that a user may be sent back to, compared exactly. Only the port of `http://127.0.0.1`,
    /// `http://[::1]` and `http://localhost` may differ, as native apps need it (RFC 8252). The
    /// scheme of a native app is permitted too, such as `com.example.app:/callback` or
    /// `vscode://callback`; the client then needs PKCE.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirect_uris: Vec<String>,
    /// Exact URIs that a user may be sent to after signing out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_logout_redirect_uris: Vec<String>,
    /// URI that receives a logout token when a session ends (OpenID Connect Back-Channel Logout).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backchannel_logout_uri: Option<String>,
    /// Scopes that the client may request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Scopes that the client gets when it requests none: some of `scopes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_scopes: Vec<String>,
    /// Audiences that the client may request. The first is used when it requests none. Without any,
    /// its tokens are valid for the provider's own userinfo endpoint only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// Groups in tokens that the client gets for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether users must consent before the client gets access to their data.
    #[serde(default = "yes")]
    pub asks_consent: bool,
    /// Whether the client must use PKCE (RFC 7636). Default: only public clients must. A public
    /// client must use it in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_pkce: Option<bool>,
    /// Whether the client must push its authorization requests (RFC 9126).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requires_pushed_requests: bool,
    /// Tokens that the client may introspect (RFC 7662). All others are reported to it as inactive.
    #[serde(default)]
    pub introspects: Introspects,
    /// Format of the client's access tokens.
    #[serde(default)]
    pub access_token: TokenFormat,
    /// The `typ` in the header of the client's JWT access tokens. Some resource servers accept only
    /// `JWT`, such as Spring Security's with its defaults.
    #[serde(default)]
    pub access_token_typ: AccessTokenTyp,
    /// Lifetime of the client's access tokens. Default: the provider's `access_token_lifetime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token_lifetime: Option<Timespan>,
    /// Algorithm that signs the client's ID tokens. Default: the provider's `id_token_algorithm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_token_algorithm: Option<SigningAlgorithm>,
    /// Algorithm that signs userinfo responses. Default: they are plain JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userinfo_algorithm: Option<SigningAlgorithm>,
    /// Whether ID tokens contain the user's claims of the granted scopes, which otherwise only the
    /// userinfo endpoint returns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claims_in_id_token: bool,
    /// Claims that tokens of the client contain besides those of the scopes. They replace those of
    /// `provider.claim` with the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim: Vec<ProviderClaim>,
    /// Which `sub` the client receives for a user. Default: `public`.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub subject: SubjectType,
    /// Name of the sector of pairwise subjects, such as `shop.example`. Clients with the same sector
    /// receive the same `sub` for a user. Default: the host of `redirect_uris`, if all have the
    /// same. A change gives every user a new `sub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector: Option<String>,
}

/// Type of the `sub` that a client receives (OpenID Connect Core 1.0, section 8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SubjectType {
    /// The id of the user's account, the same for all clients.
    #[default]
    Public,
    /// Another identifier for each sector, so that clients of different sectors cannot find out
    /// together which of their users are the same. Scopes such as `email` still do: grant none of
    /// them.
    Pairwise,
}

/// Grant that a client may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// A user logs in with a browser (RFC 6749 section 4.1).
    AuthorizationCode,
    /// A refresh token is exchanged for a new access token, without the user (RFC 6749 section 6).
    /// Needs another grant.
    RefreshToken,
    /// The client gets a token for itself (RFC 6749 section 4.4).
    ClientCredentials,
    /// A user enters a code in a browser on another device (RFC 8628).
    DeviceCode,
    /// The client sends the user's password (RFC 6749 section 4.3): for old programs only.
    Password,
}

/// Tokens that a client may introspect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Introspects {
    /// Tokens that were issued to the client itself.
    #[default]
    Own,
    /// Also tokens whose audience is its `id` or one of its `audiences`: what a resource server
    /// needs.
    Audience,
    /// All tokens: what a gateway needs in front of services with their own audiences.
    All,
}

/// The `typ` of a JWT access token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessTokenTyp {
    /// `at+jwt` (RFC 9068), which no other kind of token has.
    #[default]
    #[serde(rename = "at+jwt")]
    AtJwt,
    /// `JWT`, as ID tokens have. Resource servers must check the audience to distinguish them.
    #[serde(rename = "JWT")]
    Jwt,
}

/// Format of an access token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenFormat {
    /// Signed token that every holder can read (RFC 9068).
    #[default]
    Jwt,
    /// Random token. A resource server must send it to the introspection endpoint.
    Opaque,
}
