//! The OpenID provider.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Address, ByteSize, Network, Timespan};
use super::EventReceiver;
use super::default::{count, secs, yes};

/// An OpenID provider of this process's own: it knows people and clients and issues tokens. A gateway here or elsewhere
/// trusts it through an `[[issuer]]` like any other.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Its URL as browsers and clients see it, and the `iss` of its tokens, such as `https://login.example.com`. Plain
    /// `http` on loopback only.
    pub issuer: String,
    /// IP address and port it listens on. Read at start only.
    #[serde(default = "address")]
    pub address: Address,
    /// Speak TLS with this certificate. Absent: plain text, for loopback, or behind a proxy that ends TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ProviderTls>,
    /// Where it keeps what it must not forget: `sqlite:///var/lib/postern/postern.db?mode=rwc` for one node, or
    /// `postgres://postern@db.example/postern` for several. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// File with that URL instead, for one that holds a password. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_file: Option<PathBuf>,
    /// File with 32 random bytes in base64 that nobody but this user (or, if it is the file of root, one group) may read:
    /// everything stored is protected by it, and all nodes share it. Absent: with SQLite the database's name and `.secret`,
    /// made at the first start. Read at start only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Which generations of the secret that followers share are believed; the first is spoken. To exchange it: add another number at the
    /// end, give followers what `postern admin follow-secret` prints then; put the new number first, and give them what is printed then; take
    /// the old one out when all have that. One to four numbers from 0 to 255.
    #[serde(default = "first_generation")]
    pub follow_generations: Vec<u8>,
    /// Proxies whose `X-Forwarded-For` says who calls: the right-most address in it that is not itself one of these.
    /// Empty: nobody's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<Network>,
    /// Says that a `trusted_proxies` that covers every address is meant: anyone may then claim to be any address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted_proxies_anyone: bool,
    /// The resource servers that tokens may be meant for. Every audience of a client is one of these.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// What access tokens are signed with.
    #[serde(default = "es256")]
    pub access_token_algorithm: SigningAlgorithm,
    /// What ID tokens are signed with unless the client says otherwise.
    #[serde(default = "rs256")]
    pub id_token_algorithm: SigningAlgorithm,
    /// How long access tokens live unless the client says otherwise. From 1s to 24h.
    #[serde(default = "secs::<300>")]
    pub access_token_lifetime: Timespan,
    /// How long everything else lives.
    #[serde(default)]
    pub lifetimes: Lifetimes,
    /// How passwords are kept and guarded.
    #[serde(default)]
    pub passwords: Passwords,
    /// Whose pages people see.
    #[serde(default)]
    pub brand: Brand,
    /// Languages of the pages beside English and German: `tag = "file"`, with files like `locales/en.toml` of the source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub languages: BTreeMap<String, PathBuf>,
    /// The clients. More may be registered in the database.
    #[serde(default)]
    pub client: Vec<Client>,
    /// Who elsewhere is told of what happens here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_receiver: Vec<EventReceiver>,
}

fn first_generation() -> Vec<u8> {
    vec![1]
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
    /// PEM file: the certificate, then the chain up to the authority.
    pub certificate: PathBuf,
    /// PEM file with the certificate's private key (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
}

/// An algorithm that the provider signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "registered names, RFC 7518 section 3.1 and RFC 8037")]
pub enum SigningAlgorithm {
    ES256,
    RS256,
    EdDSA,
}

/// How long things of the provider live. Whole seconds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Lifetimes {
    /// An authorization code. At most 1h, better a minute (RFC 6749 section 4.1.2).
    pub code: Timespan,
    /// An ID token. At most 24h.
    pub id_token: Timespan,
    /// A refresh token that is not used.
    pub refresh_token: Timespan,
    /// All that follows from one authorization, however often it is refreshed.
    pub grant: Timespan,
    /// A session that is not used. At least 60s.
    pub session_idle: Timespan,
    /// A session, used or not.
    pub session: Timespan,
    /// A device code (RFC 8628): how long a person has to type it. At most 1h.
    pub device_code: Timespan,
    /// A pushed authorization request (RFC 9126 section 2.2). At most 10m.
    pub pushed_request: Timespan,
    /// How long a key signs until the next one takes over. At least 1h.
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

/// How passwords are kept and guarded. They are hashed with Argon2id; older hashes are upgraded at login.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Passwords {
    /// Memory of one hash. From 7MiB to 256MiB; each thread holds as much.
    pub memory: ByteSize,
    /// Passes over the memory.
    pub iterations: u32,
    /// Lanes of one hash. They are computed one after another: more make nothing faster here.
    pub parallelism: u32,
    /// Threads that hash. Absent: one for each CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Passwords that may wait for a thread; whoever comes then is told to come again. Absent: 32 for each thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<usize>,
    /// When those are told to come again. From 1s to 1h.
    pub retry_after: Timespan,
    /// Fewest characters of a new password. From 8 to 64.
    pub min_length: usize,
    /// How hard a new password must be to guess.
    pub strength: Strength,
    /// When wrong passwords lock an account. Absent: after 5.
    pub lockout_account: Lockout,
    /// When wrong passwords lock the network they come from, whatever the accounts. Needs more failures than an account.
    /// Absent: after 50.
    pub lockout_network: Lockout,
    /// Remember passwords that were right a moment ago, for clients that send one with every request. It trades safety
    /// for speed: a remembered password costs a microsecond to check instead of a hash, but whoever can read this
    /// process's memory meanwhile can search for it as fast. Absent: none is remembered.
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

/// How hard a password must be to guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// A million guesses: more than the lockout permits in years.
    Million,
    /// A hundred million guesses.
    HundredMillion,
    /// Ten thousand million guesses: withstands for a while somebody who has stolen the hash.
    TenBillion,
}

/// When wrong passwords lock.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lockout {
    /// From this many wrong passwords on, each locks for twice as long as the one before.
    pub failures: u32,
    /// The first lock. At least 1s.
    #[serde(default = "secs::<10>")]
    pub delay: Timespan,
    /// The longest lock: what a stranger can cost an account's owner. At most 24h.
    #[serde(default = "secs::<900>")]
    pub longest: Timespan,
    /// After this long without a failure, half of them are forgotten. From 1s to 24h.
    #[serde(default = "secs::<900>")]
    pub quiet: Timespan,
}

impl Lockout {
    fn after(failures: u32) -> Self {
        Self { failures, delay: secs::<10>(), longest: secs::<900>(), quiet: secs::<900>() }
    }
}

/// A memory of right passwords, opt-in.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RememberVerified {
    /// For how long. From 1s to 1m.
    pub lifetime: Timespan,
    /// For how many accounts at once.
    #[serde(default = "count::<1000>")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub accounts: usize,
}

/// Whose pages people see.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Brand {
    /// What people know this place by.
    pub name: String,
    /// A path on the provider's host (`/assets/logo.svg`), or the image itself (`data:image/svg+xml;base64,…`, also png,
    /// webp, jpeg). Absent: the name's first letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logo: Option<String>,
    /// The colour of the main button, `#rrggbb`. Any will do: text on it is made readable.
    pub colour: String,
}

impl Default for Brand {
    fn default() -> Self {
        Self { name: "Postern".into(), logo: None, colour: "#2f5bd0".into() }
    }
}

/// A client of the provider. It proves itself by secrets or by keys, or is `public`. It may do what it is given here and
/// nothing else.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "one for each key of the file")]
pub struct Client {
    /// `client_id`: 1 to 128 visible ASCII characters. It is also the `sub` of tokens the client gets for itself.
    pub id: String,
    /// What people know it by. Absent: its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Cannot keep a secret, such as a program on somebody's own machine. It must use PKCE.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
    /// SHA-256 of its secret as 64 hexadecimal digits; a second one while the client moves from one to the next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_sha256: Vec<String>,
    /// Files with its secret, one each, instead or beside. Read again when they change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<PathBuf>,
    /// File with its public keys (a JWK set, RFC 7517) instead of a secret, for `private_key_jwt`. Read again when it
    /// changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_file: Option<PathBuf>,
    /// The grants it may use.
    #[schemars(length(min = 1))]
    pub grants: Vec<Grant>,
    /// Where people may be sent back to: the exact URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirect_uris: Vec<String>,
    /// Where people may be sent after signing out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_logout_redirect_uris: Vec<String>,
    /// Where the client hears that a session has ended (OpenID Connect Back-Channel Logout).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backchannel_logout_uri: Option<String>,
    /// The scopes it may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The scopes it gets when it asks for none: some of `scopes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_scopes: Vec<String>,
    /// The audiences it may name; the first is used when it names none. Without any its tokens are good for the
    /// provider's own userinfo endpoint alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// The groups that tokens it gets for itself carry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether people are asked before it gets anything of theirs.
    #[serde(default = "yes")]
    pub asks_consent: bool,
    /// Whether it must use PKCE (RFC 7636). Absent: public clients must, others need not. Public clients cannot do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_pkce: Option<bool>,
    /// Whether it must push its authorization requests (RFC 9126).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requires_pushed_requests: bool,
    /// Whose tokens it may ask about (RFC 7662). Of all others it hears that they are inactive.
    #[serde(default)]
    pub introspects: Introspects,
    /// What its access tokens look like.
    #[serde(default)]
    pub access_token: TokenFormat,
    /// How long its access tokens live. Absent: the provider's `access_token_lifetime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token_lifetime: Option<Timespan>,
    /// What its ID tokens are signed with. Absent: the provider's `id_token_algorithm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_token_algorithm: Option<SigningAlgorithm>,
    /// What userinfo answers are signed with. Absent: they are plain JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userinfo_algorithm: Option<SigningAlgorithm>,
    /// Whether ID tokens carry what the granted scopes tell of a person, which the userinfo endpoint tells otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claims_in_id_token: bool,
}

/// A way to a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// A person logs in in a browser (RFC 6749 section 4.1).
    AuthorizationCode,
    /// A new token for an old one, without the person (RFC 6749 section 6). Beside another grant.
    RefreshToken,
    /// The client for itself (RFC 6749 section 4.4).
    ClientCredentials,
    /// A person types a code into a browser elsewhere (RFC 8628).
    DeviceCode,
    /// The client sends the person's password (RFC 6749 section 4.3): for old programs only.
    Password,
}

/// Whose tokens a client may introspect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Introspects {
    /// Those it got itself.
    #[default]
    Own,
    /// Also those whose audience names its id or one of its `audiences`: what a resource server needs.
    Audience,
    /// Everybody's: what a gateway needs that stands in front of services with audiences of their own.
    All,
}

/// What an access token looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenFormat {
    /// Signed, readable by whoever gets it (RFC 9068).
    #[default]
    Jwt,
    /// Random; whoever gets it asks the introspection endpoint what it is worth.
    Opaque,
}
