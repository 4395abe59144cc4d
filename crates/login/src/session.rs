//! Browser session: the user, the lifetime, and the tokens to ask the provider again.
//!
//! Owns: its content and its sealed forms, in a cookie and in a store. Does not own: where it is
//! kept, asking the provider.
//!
//! The user's claims are stored as the provider sent them, and mapped when they are read. So a
//! changed mapping also applies to older sessions.

use auth::authority::{AuthorityConfig, openshift_user};
use auth::identity::{CredentialKind, Identity};
use auth::json::Document;
use auth::time::Timestamp;
use auth::token::jwt::{self, Lineage};
use aws_lc_rs::digest;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SecureRandom;
use credentials::revoked_sessions::SessionKeysToRevoke;
use credentials::session_store::SessionKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::keys::{Purpose, SessionKeys};
use crate::config::{LoginConfig, LoginKind, LoginProvider};

/// Bytes of a cookie's value that every browser keeps: 4096 with its name and attributes (RFC 6265
/// §6.1).
pub(crate) const LONGEST_COOKIE: usize = 3900;

/// What a session in a cookie is sealed for.
#[derive(Clone, Copy)]
pub(crate) struct SealedCookie<'a> {
    /// Name of the place where it opens.
    pub(crate) place: &'a str,
    /// Longest value, in bytes.
    pub(crate) longest: usize,
}

/// The content of a session.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct BrowserSession {
    /// Identifier in the list of revoked sessions. Not secret.
    #[serde(rename = "i")]
    pub(crate) id: String,
    /// The configured name of the provider.
    #[serde(rename = "p")]
    pub(crate) provider: String,
    /// Digest of the provider's address and our client ID: another provider of that name must not
    /// receive its tokens.
    #[serde(rename = "k")]
    pub(crate) binding: String,
    /// The user's subject at the provider.
    #[serde(rename = "s")]
    pub(crate) subject: String,
    /// Identifier of the provider's session.
    #[serde(rename = "d", skip_serializing_if = "Option::is_none", default)]
    pub(crate) sid: Option<String>,
    /// The user's claims, a JSON object.
    #[serde(rename = "c")]
    pub(crate) claims: String,
    /// The answer of the userinfo endpoint: replaced as a whole, so that removed claims disappear.
    #[serde(rename = "u", skip_serializing_if = "Option::is_none", default)]
    pub(crate) more: Option<String>,
    /// When the user logged in; this and the other times are in milliseconds since 1970.
    #[serde(rename = "b")]
    pub(crate) began: u64,
    /// When the ID token was issued, by the provider's clock; 0 in older sessions, which use
    /// `began`.
    #[serde(rename = "t", default)]
    pub(crate) issued: u64,
    /// When the provider read the data behind its answer, in the time of its log, where it has one.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none", default)]
    pub(crate) read_at: Option<u64>,
    /// When the provider was last asked for the user's claims.
    #[serde(rename = "w", default)]
    pub(crate) claims_obtained_at: u64,
    /// Number of renewals: of two forms of a session, the one with more has the valid refresh
    /// token.
    #[serde(rename = "n", default)]
    pub(crate) renewals: u32,
    /// When the session is over, at the latest.
    #[serde(rename = "e")]
    pub(crate) ends: u64,
    /// When the provider has to be asked again.
    #[serde(rename = "f")]
    pub(crate) fresh: u64,
    /// When the access token expires.
    #[serde(rename = "x")]
    pub(crate) expires: u64,
    /// Token to renew the session at the provider.
    #[serde(rename = "r", skip_serializing_if = "Option::is_none", default)]
    pub(crate) refresh_token: Option<Zeroizing<String>>,
    /// Token for the provider's other services.
    #[serde(rename = "a", skip_serializing_if = "Option::is_none", default)]
    pub(crate) access_token: Option<Zeroizing<String>>,
    /// Identifies the session to the provider at logout.
    #[serde(rename = "h", skip_serializing_if = "Option::is_none", default)]
    pub(crate) id_token: Option<Zeroizing<String>>,
}

/// Why a session cannot be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealFault {
    /// The sealed session exceeds the limit of browsers.
    #[error(
        "the session takes {0} bytes, but browsers keep at most 4096 per cookie; keep sessions in a database (`login.database`), or request fewer claims and scopes"
    )]
    TooLong(usize),
    /// There is no randomness.
    #[error("the system gives no randomness")]
    Entropy,
}

impl From<Unspecified> for SealFault {
    fn from(_: Unspecified) -> Self {
        Self::Entropy
    }
}

impl BrowserSession {
    /// Whether the session has expired: at its end, or because it was unused.
    pub(crate) fn is_over(&self, config: &LoginConfig, now: Timestamp) -> bool {
        now >= self.ends(config) || now >= Timestamp::from_millis(self.fresh).plus(config.idle)
    }

    /// Whether the provider has to be asked.
    pub(crate) fn needs_renewal(&self, now: Timestamp) -> bool {
        now >= Timestamp::from_millis(self.fresh)
    }

    /// When the session is over at the latest; a shortened lifetime in the configuration applies to
    /// all sessions.
    pub(crate) fn ends(&self, config: &LoginConfig) -> Timestamp {
        Timestamp::from_millis(self.ends).min(Timestamp::from_millis(self.began).plus(config.lifetime))
    }

    /// The names by which the provider can revoke the session; `client` is our client ID. `email`
    /// and `sealed_tags` are the results of the functions with these names.
    pub(crate) fn lineage<'s>(
        &'s self,
        client: &'s str,
        email: Option<&'s str>,
        sealed_tags: Option<&'s str>,
    ) -> Lineage<'s> {
        Lineage {
            sealed_tags,
            token: None,
            family: None,
            session: self.sid.as_deref(),
            user: Some(&self.subject),
            client: Some(client),
            key: None,
            email,
            issued_at: Timestamp::from_millis(if self.issued == 0 { self.began } else { self.issued }),
            read_at: self.read_at.map(Timestamp::from_millis),
        }
    }

    /// The user's email address from the provider, verified or not.
    pub(crate) fn email(&self) -> Option<String> {
        let email_in = |text: &str| text_claim(text, "email");
        self.more.as_deref().and_then(email_in).or_else(|| email_in(&self.claims))
    }

    /// What a pairwise subject stands for in the provider's log, from the ID token.
    pub(crate) fn sealed_tags(&self) -> Option<String> {
        text_claim(&self.claims, "revocation_tags")
    }

    /// When the user's claims were obtained.
    pub(crate) fn claims_at(&self) -> Timestamp {
        Timestamp::from_millis(if self.claims_obtained_at == 0 {
            self.began
        } else {
            self.claims_obtained_at
        })
    }

    /// The keys by which the session can be revoked.
    pub(crate) fn revocation_keys(&self) -> SessionKeysToRevoke {
        SessionKeysToRevoke {
            id: digest_of(&["session", &self.id]),
            store_key: None,
            subject: subject_of(&self.provider, &self.subject),
            sid: self.sid.as_deref().map(|sid| sid_of(&self.provider, sid)),
            began: Timestamp::from_millis(self.began),
        }
    }

    /// The sealed session for a cookie. When there is no space for the ID token, it is omitted,
    /// unless it is needed for more than a convenient logout.
    pub(crate) fn cookie(
        &self,
        keys: &SessionKeys,
        SealedCookie { place, longest }: SealedCookie<'_>,
        needs_id_token: bool,
        random: &dyn SecureRandom,
    ) -> Result<String, SealFault> {
        let seal =
            |session: &Self| keys.seal(Purpose::Session, &[place.as_bytes()], &session.text()?, random);
        let whole = seal(self)?;
        if whole.len() <= longest {
            return Ok(whole);
        }
        if needs_id_token {
            return Err(SealFault::TooLong(whole.len()));
        }
        let lean = seal(&Self { id_token: None, ..self.clone() })?;
        if lean.len() <= longest { Ok(lean) } else { Err(SealFault::TooLong(lean.len())) }
    }

    /// Opens a session from a cookie.
    pub(crate) fn of_cookie(keys: &SessionKeys, origin: &str, cookie: &[u8]) -> Option<Self> {
        let (text, _) = keys.open(Purpose::Session, &[origin.as_bytes()], cookie)?;
        serde_json::from_slice(&text).ok()
    }

    /// The sealed session for a store, under this key.
    pub(crate) fn content(
        &self,
        keys: &SessionKeys,
        origin: &str,
        id: &SessionKey,
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, SealFault> {
        let holder = [origin.as_bytes(), id];
        Ok(keys.seal(Purpose::Session, &holder, &self.text()?, random)?.into_bytes())
    }

    /// Opens a session that a store kept under this key.
    pub(crate) fn of_content(
        keys: &SessionKeys,
        origin: &str,
        id: &SessionKey,
        content: &[u8],
    ) -> Option<Self> {
        let (text, _) = keys.open(Purpose::Session, &[origin.as_bytes(), id], content)?;
        serde_json::from_slice(&text).ok()
    }

    fn text(&self) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
        serde_json::to_vec(self).map(Zeroizing::new).map_err(|_| Unspecified)
    }
}

/// A claim that is a text, in a JSON object.
fn text_claim(claims: &str, name: &str) -> Option<String> {
    let document = Document::parse(claims.as_bytes().to_vec()).ok()?;
    document.root().get(name)?.as_str().map(str::to_owned)
}

/// When a provider issued a verified ID token, by its own clock, and the log time that belongs to
/// it.
pub(crate) fn issued_of(id_token: &str) -> Option<(Timestamp, Option<Timestamp>)> {
    let token = jwt::parse(id_token.as_bytes()).ok()?;
    let lineage = token.lineage();
    Some((lineage.issued_at, lineage.read_at))
}

/// The identity of a user, from the provider's claims and its userinfo answer.
///
/// # Errors
/// A text that describes what is wrong with the claims.
pub(crate) fn identity(
    provider: &LoginProvider,
    claims: &str,
    more: Option<&str>,
) -> Result<Identity, String> {
    let mut identity = match &provider.kind {
        LoginKind::OpenId { .. } => {
            let claims = match more {
                Some(more) => merged(claims, more)?,
                None => claims.as_bytes().to_vec(),
            };
            let document = Document::parse(claims).map_err(|error| error.to_string())?;
            let identity = provider.mapping.identity(&provider.name, document.root());
            identity.map_err(|error| error.to_string())?
        }
        LoginKind::OpenShift { .. } => {
            let config = AuthorityConfig {
                name: provider.name.clone(),
                audiences: None,
                issuer: None,
                mapping: provider.mapping.clone(),
            };
            let verdict = openshift_user::read(claims.as_bytes().to_vec(), &config)
                .map_err(|error| error.to_string())?;
            verdict.map_err(|error| error.to_string())?.identity
        }
    };
    identity.kind = CredentialKind::Session;
    Ok(identity)
}

/// Merges both; the second one overrides. `email_verified` is taken from the source of the address.
fn merged(claims: &str, more: &str) -> Result<Vec<u8>, String> {
    type Map = serde_json::Map<String, serde_json::Value>;
    let read = |text: &str| serde_json::from_str::<Map>(text).map_err(|error| error.to_string());
    let (mut claims, mut more) = (read(claims)?, read(more)?);
    if more.contains_key("email") { &mut claims } else { &mut more }.remove("email_verified");
    claims.extend(more);
    serde_json::to_vec(&claims).map_err(|error| error.to_string())
}

/// The key of all sessions of one user.
pub(crate) fn subject_of(provider: &str, subject: &str) -> SessionKey {
    digest_of(&["subject", provider, subject])
}

/// The key of all sessions of one provider session.
pub(crate) fn sid_of(provider: &str, sid: &str) -> SessionKey {
    digest_of(&["sid", provider, sid])
}

/// The key of a logout token of the provider with this binding.
pub(crate) fn logout_of(binding: &str, jti: &str) -> SessionKey {
    digest_of(&["logout", binding, jti])
}

/// The store key of the session whose browser holds this cookie.
pub(crate) fn store_key_of(cookie: &[u8]) -> SessionKey {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, cookie).as_ref());
    out
}

fn digest_of(parts: &[&str]) -> SessionKey {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut out = [0; 32];
    out.copy_from_slice(hash.finish().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use aws_lc_rs::rand::SystemRandom;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const HERE: &str = "https://app.example";

    fn keys() -> SessionKeys {
        SessionKeys::parse("sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=").unwrap()
    }

    fn session() -> BrowserSession {
        BrowserSession {
            id: "one".into(),
            provider: "id".into(),
            binding: "b".into(),
            more: None,
            subject: "u1".into(),
            sid: Some("s1".into()),
            claims: r#"{"sub":"u1"}"#.into(),
            began: NOW.as_millis(),
            issued: NOW.as_millis(),
            read_at: None,
            claims_obtained_at: NOW.as_millis(),
            renewals: 0,
            ends: NOW.plus(Duration::from_hours(12)).as_millis(),
            fresh: NOW.plus(Duration::from_mins(5)).as_millis(),
            expires: NOW.plus(Duration::from_mins(5)).as_millis(),
            refresh_token: Some("r".to_owned().into()),
            access_token: None,
            id_token: Some("x".repeat(1000).into()),
        }
    }

    fn cookie(session: &BrowserSession) -> Result<String, SealFault> {
        let place = SealedCookie { place: HERE, longest: LONGEST_COOKIE };
        session.cookie(&keys(), place, false, &SystemRandom::new())
    }

    #[test]
    fn a_cookie_is_the_session_at_its_origin() {
        let cookie = cookie(&session()).unwrap();
        let back = BrowserSession::of_cookie(&keys(), HERE, cookie.as_bytes()).unwrap();
        assert_eq!((&*back.subject, back.refresh_token.unwrap().as_str()), ("u1", "r"));
        assert_eq!(back.id_token.unwrap().len(), 1000);
        assert!(BrowserSession::of_cookie(&keys(), "https://b.example", cookie.as_bytes()).is_none());
        // Neither in plain text nor in base64; the pattern is long enough not to occur by chance.
        assert!(!cookie.contains("xxxxxxxxxxxx") && !cookie.contains("eHh4eHh4eHh4"));
    }

    #[test]
    fn no_cookie_is_longer_than_browsers_keep() {
        let large = BrowserSession { id_token: Some("x".repeat(2900).into()), ..session() };
        let cookie = cookie(&large).unwrap();
        assert!(cookie.len() <= LONGEST_COOKIE);
        assert!(BrowserSession::of_cookie(&keys(), HERE, cookie.as_bytes()).unwrap().id_token.is_none());
        let groups = BrowserSession { claims: "x".repeat(4000), ..large };
        let fault = self::cookie(&groups).unwrap_err();
        assert!(matches!(fault, SealFault::TooLong(n) if n > 4096), "{fault}");
    }

    #[test]
    fn what_a_store_keeps_opens_under_its_own_name() {
        let (name, other) = (store_key_of(b"secret"), store_key_of(b"other"));
        let content = session().content(&keys(), HERE, &name, &SystemRandom::new()).unwrap();
        assert!(BrowserSession::of_content(&keys(), HERE, &name, &content).is_some());
        assert!(
            BrowserSession::of_content(&keys(), HERE, &other, &content).is_none(),
            "rows cannot be exchanged"
        );
        assert!(BrowserSession::of_cookie(&keys(), HERE, &content).is_none(), "nor be presented");
    }

    #[test]
    fn what_is_said_beside_is_taken_with_what_belongs_to_it() {
        let both = |claims: &str, more: &str| String::from_utf8(merged(claims, more).unwrap()).unwrap();
        assert_eq!(both(r#"{"a":1,"groups":["x"]}"#, r#"{"groups":["y"]}"#), r#"{"a":1,"groups":["y"]}"#);
        let vouched = r#"{"email":"a@b","email_verified":true}"#;
        assert_eq!(both(vouched, r#"{"email":"evil@b"}"#), r#"{"email":"evil@b"}"#);
        assert_eq!(both(r#"{"email":"evil@b"}"#, r#"{"email_verified":true}"#), r#"{"email":"evil@b"}"#);
        assert_eq!(both(r#"{"sub":"x"}"#, vouched), r#"{"email":"a@b","email_verified":true,"sub":"x"}"#);
    }

    #[test]
    fn names_of_different_things_differ() {
        let names = [
            subject_of("a", "bc"),
            subject_of("ab", "c"),
            sid_of("a", "bc"),
            logout_of("a", "bc"),
            store_key_of(b"abc"),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name));
        }
    }
}
