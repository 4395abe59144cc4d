//! What somebody was about to do when they had to log in: kept by the browser, sealed.
//!
//! Owns: [`Flow`] and its form as a field of a page's form. Does not own: what follows ([`crate::endpoint`]).
//!
//! A flow opens in the browser it was sealed for, for as long as a page may stay open; so it needs no row that an attacker could
//! make us write, and no other site can begin one.

use std::time::Duration;

use auth::time::Timestamp;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::{EntropyFailed, provider::Provider, secrets::Purpose, session::Browser};

/// How long a page may stay open.
const OPEN: Duration = Duration::from_hours(1);

/// What follows when somebody has logged in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// An answer to an authorization request: its parameters, form-encoded.
    Authorize(String),
    /// A decision about a device: what was typed.
    Device(String),
    /// The word of what was decided about a device of a client, by its id.
    Decided {
        /// The client.
        client_id: String,
        /// What was decided.
        allowed: bool,
    },
    /// A look at their account.
    Account,
    /// Signing out, and where to go afterwards.
    Logout(Afterwards),
}

/// Where to go after signing out (OpenID Connect RP-Initiated Logout 1.0 §2).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Afterwards {
    pub(crate) client_id: Option<String>,
    pub(crate) redirect_uri: Option<String>,
    pub(crate) state: Option<String>,
}

/// Something under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationState {
    /// When it began, in milliseconds.
    began: u64,
    /// Who was asked, on a page that somebody else must not answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    user: Option<String>,
    /// What it is.
    pub intent: Intent,
}

impl AuthorizationState {
    /// Begins now.
    pub fn begin(provider: &Provider, intent: Intent) -> Self {
        Self { began: provider.now().as_millis(), user: None, intent }
    }

    /// On a page for this user.
    #[must_use]
    pub fn shown_to(self, user_id: &str) -> Self {
        Self { user: Some(user_id.to_owned()), ..self }
    }

    /// Whether it came back from a page for this user.
    pub fn was_shown_to(&self, user_id: &str) -> bool {
        self.user.as_deref() == Some(user_id)
    }

    /// When it began.
    pub fn began(&self) -> Timestamp {
        Timestamp::from_millis(self.began)
    }

    /// For a form of this browser.
    pub fn seal(&self, provider: &Provider, browser: &Browser) -> Result<String, EntropyFailed> {
        let text = serde_json::to_vec(self).map_err(|_| EntropyFailed)?;
        let sealed = provider.secrets().seal(
            Purpose::Flow,
            browser.id(),
            &text,
            provider.now(),
            provider.entropy(),
        )?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The flow of a form that came back; `None`: it is too old, or not this browser's.
    pub fn open(provider: &Provider, browser: &Browser, sealed: &str) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let text = provider.secrets().open(Purpose::Flow, browser.id(), &sealed)?;
        let flow: Self = serde_json::from_slice(&text).ok()?;
        (provider.now().since(flow.began()) < OPEN).then_some(flow)
    }
}
