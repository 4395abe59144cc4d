//! Login state: the data of a login in progress, for the return of the browser from the provider.
//!
//! Owns: `state` (RFC 6749 §10.12), the nonce and the PKCE verifier that belong to it, and that it
//! is used once. Does not own: the processing of the return.
//!
//! All data is in `state`, sealed for one browser, which has one cookie that identifies it. So
//! there is one cookie for any number of tabs; no tab removes another's cookie, and no header grows
//! too large. Nonce and verifier are not stored: the key that sealed the state derives them from
//! its identifier and the cookie.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::digest;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SecureRandom;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::keys::{Purpose, SessionKeys};

/// Whether the user chooses the account of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccountChoice {
    /// The provider may use the account of its own session.
    Provider,
    /// The provider must let the user sign in with another one.
    User,
}

/// Which account a login is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccountRequest<'a> {
    /// Who chooses it.
    pub(crate) choice: AccountChoice,
    /// What the user is known by, to be offered first (`login_hint`, OpenID Connect Core 1.0
    /// §3.1.2.1).
    pub(crate) hint: Option<&'a str>,
}

/// Time limit for a login at the provider.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_hours(1);
/// Maximum number of used states to store. The provider, too, accepts a code only once.
const MAX_USED: usize = 65_536;

/// A login in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingLogin {
    /// Random identifier; each is used once.
    #[serde(rename = "i")]
    id: String,
    /// When it began, in milliseconds since 1970.
    #[serde(rename = "t")]
    began: u64,
    /// The configured name of the provider.
    #[serde(rename = "p")]
    pub(crate) provider: String,
    /// Digest of the provider's address and our client ID there.
    #[serde(rename = "k")]
    pub(crate) binding: String,
    /// The target after the login; it was validated before.
    #[serde(rename = "r")]
    pub(crate) target: String,
}

/// The values of a login for the authorization request.
pub(crate) struct AuthorizationRequest {
    /// Value of the `state` parameter.
    pub(crate) state: String,
    /// Values to verify the ID token and the code exchange.
    pub(crate) proofs: LoginProofs,
}

/// Values that only the browser and the key that began a login can reproduce.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LoginProofs {
    /// Value of `nonce` (OpenID Connect Core 1.0 §3.1.2.1).
    pub(crate) nonce: String,
    /// Value of `code_verifier` (RFC 7636 §4.1).
    pub(crate) verifier: String,
}

impl std::fmt::Debug for LoginProofs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Proofs")
    }
}

impl LoginProofs {
    /// `code_challenge` of method `S256` (RFC 7636 §4.2).
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, self.verifier.as_bytes()))
    }
}

/// `N` random bytes in base64url: 16 for identifiers, 32 for secrets.
pub(crate) fn random_text<const N: usize>(random: &dyn SecureRandom) -> Result<String, Unspecified> {
    let mut bytes = [0; N];
    random.fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Whether a text has the form of a browser cookie that we set.
pub(crate) fn is_browser(text: &[u8]) -> bool {
    text.len() == 43 && URL_SAFE_NO_PAD.decode(text).is_ok()
}

impl PendingLogin {
    /// Begins a login in a browser.
    pub(crate) fn begin(
        (provider, binding): (&str, &str),
        target: String,
        now: Timestamp,
        random: &dyn SecureRandom,
    ) -> Result<Self, Unspecified> {
        let id = random_text::<16>(random)?;
        Ok(Self {
            id,
            began: now.as_millis(),
            provider: provider.to_owned(),
            binding: binding.to_owned(),
            target,
        })
    }

    /// Seals the state and derives the proofs.
    pub(crate) fn authorization_request(
        &self,
        keys: &SessionKeys,
        origin: &str,
        browser: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<AuthorizationRequest, Unspecified> {
        let text = serde_json::to_vec(self).map_err(|_| Unspecified)?;
        let state = keys.seal(Purpose::PendingLogin, &[origin.as_bytes(), browser], &text, random)?;
        let key = keys.newest();
        let parts = [origin.as_bytes(), browser, self.id.as_bytes()];
        let proofs =
            LoginProofs { nonce: key.derive("nonce", &parts), verifier: key.derive("verifier", &parts) };
        Ok(AuthorizationRequest { state, proofs })
    }

    /// Opens the state that a browser returns with; `None`: it did not begin in this browser at
    /// this origin.
    pub(crate) fn open(
        keys: &SessionKeys,
        origin: &str,
        browser: &[u8],
        state: &str,
    ) -> Option<(Self, LoginProofs)> {
        let holder = [origin.as_bytes(), browser];
        let (text, key) = keys.open(Purpose::PendingLogin, &holder, state.as_bytes())?;
        let attempt: Self = serde_json::from_slice(&text).ok()?;
        let parts = [origin.as_bytes(), browser, attempt.id.as_bytes()];
        let proofs =
            LoginProofs { nonce: key.derive("nonce", &parts), verifier: key.derive("verifier", &parts) };
        Some((attempt, proofs))
    }

    /// When the login began.
    pub(crate) fn began(&self) -> Timestamp {
        Timestamp::from_millis(self.began)
    }

    /// Whether the login took too long.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.began().plus(LOGIN_TIMEOUT)
    }
}

/// The logins that have returned.
#[derive(Default)]
pub(crate) struct UsedStates(Mutex<(HashSet<String>, VecDeque<String>)>);

impl UsedStates {
    /// Marks a login as used; false when it already was.
    pub(crate) fn mark_used(&self, attempt: &PendingLogin) -> bool {
        let (known, order) = &mut *self.0.lock();
        if !known.insert(attempt.id.clone()) {
            return false;
        }
        order.push_back(attempt.id.clone());
        if order.len() > MAX_USED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const HERE: &str = "https://app.example";
    const BROWSER: &[u8] = b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn keys() -> SessionKeys {
        SessionKeys::parse("sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=").unwrap()
    }

    fn begun() -> (PendingLogin, AuthorizationRequest) {
        let attempt = PendingLogin::begin(("id", "b"), "/a?b".into(), NOW, &SystemRandom::new()).unwrap();
        let question = attempt.authorization_request(&keys(), HERE, BROWSER, &SystemRandom::new()).unwrap();
        (attempt, question)
    }

    #[test]
    fn a_login_comes_back_as_it_began_in_the_same_browser() {
        let (attempt, question) = begun();
        let (back, proofs) = PendingLogin::open(&keys(), HERE, BROWSER, &question.state).unwrap();
        assert_eq!((back, proofs.clone()), (attempt, question.proofs));
        assert_ne!(proofs.nonce, proofs.verifier);
        assert_eq!((proofs.verifier.len(), proofs.challenge().len()), (43, 43));
    }

    #[test]
    fn it_comes_back_nowhere_else() {
        let (_, question) = begun();
        let other = b"BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert!(PendingLogin::open(&keys(), HERE, other, &question.state).is_none(), "another browser");
        assert!(PendingLogin::open(&keys(), "https://b.example", BROWSER, &question.state).is_none());
        assert!(PendingLogin::open(&keys(), HERE, BROWSER, "").is_none());
        assert!(PendingLogin::open(&keys(), HERE, BROWSER, &question.state[1..]).is_none());
    }

    #[test]
    fn tabs_do_not_get_into_each_others_way() {
        let (one, two) = (begun().1, begun().1);
        assert_ne!(one.proofs, two.proofs);
        for question in [&two, &one] {
            let (_, proofs) = PendingLogin::open(&keys(), HERE, BROWSER, &question.state).unwrap();
            assert_eq!(proofs, question.proofs);
        }
    }

    #[test]
    fn it_is_good_once_and_for_an_hour() {
        let (attempt, _) = begun();
        let used = UsedStates::default();
        assert!(used.mark_used(&attempt));
        assert!(!used.mark_used(&attempt));
        assert!(used.mark_used(&begun().0));
        assert!(!attempt.is_expired(NOW.plus(LOGIN_TIMEOUT).minus(Duration::from_secs(1))));
        assert!(attempt.is_expired(NOW.plus(LOGIN_TIMEOUT)));
    }

    #[test]
    fn a_browser_s_cookie_has_one_form() {
        assert!(is_browser(random_text::<32>(&SystemRandom::new()).unwrap().as_bytes()));
        for odd in [
            "",
            "short",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA!",
        ] {
            assert!(!is_browser(odd.as_bytes()), "{odd}");
        }
    }
}
