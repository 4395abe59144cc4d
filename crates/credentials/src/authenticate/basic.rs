//! HTTP Basic (RFC 7617): user names and passwords of an htpasswd file.
//!
//! Owns: decoding the credential, its key in the cache, when a password is compared. Does not own:
//! the file and its hashes ([`crate::htpasswd`]), the threads ([`hash_pool`]), the challenge.
//!
//! Comparing a password takes tens of milliseconds by design, so a right one is cached like a
//! verified token, under the cache's own time to live. The key contains the entry of the file: a
//! changed or removed entry has another key, so its cached facts are not found any more. A wrong
//! password is compared once, and is then denied from the cache for a moment.
//!
//! The work is bounded: a few threads, and a queue that refuses when it is full. An unknown user
//! costs what a known one does.

use std::sync::Arc;
use std::time::Duration;

use auth::identity::{CredentialKind, Facts, Identity};
use auth::time::Timestamp;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hash_pool::HashPool;
use http_engine::clock::Now;
use telemetry::phases::CacheUse;
use zeroize::Zeroizing;

use super::outcome::{AuthenticationOutcome, CredentialLookup, Rejection};
use super::{Authenticator, AuthenticatorRuntime, MAX_ROUNDS, Verified};
use crate::cache::{self, CacheKey, CacheScope, FlightResult, KnownFacts, Lifetime, Ticket};
use crate::config::BasicAuth;
use crate::htpasswd::MAX_BYTES;

/// Waiting comparisons per thread: with common costs, about one second of work.
const QUEUE_PER_THREAD: usize = 8;
/// When a client should retry that meets a full queue.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Some clients leave the padding out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Bytes of the longest user name and password, with the colon between them.
const MAX_DECODED: usize = 2 * MAX_BYTES + 1;

/// Compares passwords.
pub(super) struct PasswordCheck {
    config: Arc<BasicAuth>,
    /// `None`: its threads could not be created, so every comparison is refused.
    pool: Option<Arc<HashPool<()>>>,
    scope: CacheScope,
}

impl PasswordCheck {
    /// `version` and `variant` are those of the authenticator's cache.
    pub(super) fn new(
        config: &Arc<BasicAuth>,
        surroundings: &AuthenticatorRuntime,
        (version, variant): (u64, u64),
        before: Option<&Self>,
    ) -> Self {
        let pool = before.and_then(|before| before.pool.clone()).or_else(|| {
            // Half of the cores, so that guessing does not stop the others.
            let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
            let started = HashPool::start(threads, QUEUE_PER_THREAD * threads, ());
            let logged = started.inspect_err(|error| tracing::error!(%error, "password threads not created"));
            logged.ok().map(Arc::new)
        });
        // No variant of tokens has this bit.
        let scope = surroundings.secret.scope(version, variant | 1 << 63);
        Self { config: config.clone(), pool, scope }
    }

    fn key(&self, credentials: &UserPass) -> CacheKey {
        let entry = self.config.users.password(credentials.user());
        let mut parts = self.scope.parts();
        parts.add_marker(entry.is_some().into());
        parts.add(entry.map_or("", |entry| entry.text()).as_bytes());
        parts.add(credentials.user().as_bytes());
        parts.add(credentials.password());
        parts.key()
    }

    fn facts(&self, user: &str) -> Facts {
        let identity = Identity {
            kind: CredentialKind::Basic,
            issuer: self.config.name.clone(),
            subject: user.into(),
            user: Some(user.into()),
            email: None,
            client: None,
            groups: self.config.groups.get(user).cloned().unwrap_or_default(),
            groups_elsewhere: false,
            scopes: Vec::new(),
            claims: Vec::new(),
        };
        Facts { identity, expires: Timestamp::MAX, not_before: Timestamp::from_millis(0) }
    }
}

/// A decoded user name and password (`user-pass`, RFC 7617 §2).
struct UserPass {
    bytes: Zeroizing<[u8; MAX_DECODED]>,
    colon: usize,
    length: usize,
}

impl UserPass {
    /// Decodes the credential. `None`: it is not one, or no user can have it.
    fn decode(encoded: &[u8]) -> Option<Self> {
        let mut bytes = Zeroizing::new([0; MAX_DECODED]);
        let length = LENIENT.decode_slice(encoded, &mut *bytes).ok()?;
        let text = &bytes[..length];
        let colon = text.iter().position(|byte| *byte == b':')?;
        // Neither may have control characters.
        let good = colon > 0
            && colon <= MAX_BYTES
            && length - colon - 1 <= MAX_BYTES
            && !text.iter().any(u8::is_ascii_control)
            && std::str::from_utf8(&text[..colon]).is_ok();
        good.then_some(Self { bytes, colon, length })
    }

    fn user(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.colon]).unwrap_or_default()
    }

    fn password(&self) -> &[u8] {
        &self.bytes[self.colon + 1..self.length]
    }
}

impl Authenticator {
    /// The cached result for an encoded user name and password (RFC 7617 §2).
    pub fn lookup_basic(&self, encoded: &[u8], now: Now) -> CredentialLookup {
        let wrong = || CredentialLookup::Denied(Rejection::WrongPassword);
        let Some(check) = &self.passwords else { return wrong() };
        let Some(credentials) = UserPass::decode(encoded) else { return wrong() };
        match self.cache.peek(check.key(&credentials), now) {
            Some(KnownFacts::Fact(verified)) => CredentialLookup::Hit(verified),
            Some(KnownFacts::Denied(why)) => CredentialLookup::Denied(why),
            None => CredentialLookup::Unknown,
        }
    }

    /// Authenticates a user name and password that [`Authenticator::lookup_basic`] does not know.
    /// It joins a running comparison of the same ones, or starts one.
    pub async fn authenticate_basic(&self, encoded: &[u8], now: impl Fn() -> Now) -> AuthenticationOutcome {
        let (Some(check), Some(credentials)) = (&self.passwords, UserPass::decode(encoded)) else {
            return (Err(Rejection::WrongPassword), CacheUse::Denied);
        };
        let key = check.key(&credentials);
        for _ in 0..MAX_ROUNDS {
            match self.cache.lookup(key, now()) {
                cache::CacheLookup::Hit(verified) => return (Ok(verified), CacheUse::Hit),
                cache::CacheLookup::Denied(why) => return (Err(why), CacheUse::Denied),
                cache::CacheLookup::Pending(flight) => match flight.wait().await {
                    FlightResult::Known(verified) => return (Ok(verified), CacheUse::Coalesced),
                    FlightResult::Denied(why) => return (Err(why), CacheUse::Coalesced),
                    FlightResult::Again => {}
                },
                cache::CacheLookup::Miss(ticket) => {
                    if let Some(answer) = self.compare(check, &credentials, ticket, &now).await {
                        return (answer, CacheUse::Miss);
                    }
                }
            }
        }
        (Err(Rejection::Busy { retry_after: RETRY_AFTER }), CacheUse::Miss)
    }

    /// Compares the password, and caches the result. `None`: the cache was emptied meanwhile.
    async fn compare(
        &self,
        check: &PasswordCheck,
        credentials: &UserPass,
        ticket: Ticket<Verified, Rejection>,
        now: &impl Fn() -> Now,
    ) -> Option<Result<Arc<Verified>, Rejection>> {
        let users = &check.config.users;
        let known = users.password(credentials.user());
        let stored = known.or_else(|| users.decoy(self.runtime.secret.spread(credentials.user(), 0)));
        let compared = match (stored.cloned(), &check.pool) {
            // A file without users.
            (None, _) => Some(false),
            (Some(_), None) => None,
            (Some(stored), Some(pool)) => {
                let password = Zeroizing::new(credentials.password().to_vec());
                pool.run(move |()| stored.is_right(&password)).await.ok().flatten()
            }
        };
        let rejection = match compared {
            Some(true) if known.is_some() => {
                let facts = check.facts(credentials.user());
                let life = Lifetime { expires: facts.expires, until: None, basis: None };
                return ticket.fill(self.rendering.verified(facts, None), life, now()).ok().map(Ok);
            }
            Some(_) => {
                ticket.deny(Rejection::WrongPassword, now());
                Rejection::WrongPassword
            }
            None => {
                let busy = Rejection::Busy { retry_after: RETRY_AFTER };
                ticket.fail(busy.clone());
                busy
            }
        };
        Some(Err(rejection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Option<(String, Vec<u8>)> {
        let credentials = UserPass::decode(text.as_bytes())?;
        Some((credentials.user().to_owned(), credentials.password().to_vec()))
    }

    #[test]
    fn the_example_of_the_rfc_is_decoded() {
        let known = |user: &str, password: &str| Some((user.to_owned(), password.as_bytes().to_vec()));
        // RFC 7617 §2 and §2.1.
        assert_eq!(decoded("QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), known("Aladdin", "open sesame"));
        assert_eq!(decoded("dGVzdDoxMjPCow=="), known("test", "123\u{a3}"));
        assert_eq!(decoded("QWxhZGRpbjpvcGVuIHNlc2FtZQ"), known("Aladdin", "open sesame"), "no padding");
        let encode = |text: &[u8]| LENIENT.encode(text);
        assert_eq!(decoded(&encode(b"ada:a:b:")), known("ada", "a:b:"));
        assert_eq!(decoded(&encode(b"ada:")), known("ada", ""));
        let longest = format!("{}:{}", "u".repeat(MAX_BYTES), "p".repeat(MAX_BYTES));
        assert!(decoded(&encode(longest.as_bytes())).is_some());
    }

    #[test]
    fn what_no_user_can_have_is_not_decoded() {
        let long = "x".repeat(MAX_BYTES + 1);
        for text in [
            &b"ada"[..],
            b"",
            b":password",
            b"ada\n:x",
            b"ada:x\0",
            b"ada:x\x7f",
            b"\xff:x",
            format!("{long}:x").as_bytes(),
            format!("ada:{long}").as_bytes(),
            "x:".repeat(2 * MAX_BYTES).as_bytes(),
        ] {
            assert_eq!(decoded(&LENIENT.encode(text)), None, "{text:?}");
        }
        for text in ["", "****", "YWRh OmE=", "YWRhOmE=YWRh", "YWRhOmF"] {
            assert!(decoded(text).is_none_or(|(user, _)| user == "ada"), "{text}");
        }
        assert_eq!(decoded("YWRh OmE="), None);
        assert_eq!(decoded("YWRhOmE=YWRh"), None);
    }
}
