//! Authorization state: what a user was doing when login became necessary, sealed into a form
//! field.
//!
//! Owns: [`AuthorizationState`] and its encoding as a field of a page's form. Does not own: the
//! processing that continues from it ([`crate::endpoint`]).
//!
//! The state opens only in the browser for which it was sealed, and only while the page is valid.
//! So it needs no row in the database, which an attacker could create at will, and no other site
//! can start a login.

use std::time::Duration;

use auth::time::Timestamp;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use store::users::UserRow;

use crate::{EntropyFailed, provider::Provider, secrets::Purpose, session::Browser};

/// How long a page stays valid.
const PAGE_LIFETIME: Duration = Duration::from_hours(1);

/// What continues after login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// The response to an authorization request; holds the form-encoded parameters.
    Authorize(String),
    /// The decision about a device; holds the user code as typed.
    Device(String),
    /// The page that confirms a decision about a device.
    Decided {
        /// Id of the device's client.
        client_id: String,
        /// Whether the user allowed access.
        allowed: bool,
    },
    /// The account page.
    Account,
    /// Logout, and where the browser goes afterwards.
    Logout(PostLogout),
}

/// Where the browser goes after logout (OpenID Connect RP-Initiated Logout 1.0 §2).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostLogout {
    pub(crate) client_id: Option<String>,
    pub(crate) redirect_uri: Option<String>,
    pub(crate) state: Option<String>,
}

/// A user who gave the right password and must choose a new one before a session begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingPasswordChange {
    /// Id of the user.
    pub(crate) user_id: String,
    /// When the account was read during the check of the password, in milliseconds of log time. A
    /// later change of the password, or a revocation, makes the state worthless.
    read_at: u64,
}

impl PendingPasswordChange {
    /// When the account was read, in log time.
    pub(crate) fn read_at(&self) -> Timestamp {
        Timestamp::from_millis(self.read_at)
    }
}

/// The state of one unfinished interaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationState {
    /// When it began, in milliseconds since 1970.
    began: u64,
    /// Id of the user for whom the page was made: no other user may submit it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    user: Option<String>,
    /// The user who gave the right password and must choose a new one first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    password_change: Option<PendingPasswordChange>,
    /// What continues after login.
    pub intent: Intent,
}

impl AuthorizationState {
    /// Begins an interaction at the current time.
    pub fn begin(provider: &Provider, intent: Intent) -> Self {
        Self { began: provider.now().as_millis(), user: None, password_change: None, intent }
    }

    /// Binds the state to a page that is shown to this user.
    #[must_use]
    pub fn for_user(self, user_id: &str) -> Self {
        Self { user: Some(user_id.to_owned()), ..self }
    }

    /// Whether the page was shown to this user.
    pub fn is_for_user(&self, user_id: &str) -> bool {
        self.user.as_deref() == Some(user_id)
    }

    /// Records that this user gave the right password and must choose a new one first.
    #[must_use]
    pub fn with_password_change(self, user: &UserRow) -> Self {
        let pending = PendingPasswordChange { user_id: user.id.clone(), read_at: user.read_at.as_millis() };
        Self { password_change: Some(pending), ..self }
    }

    /// The user who must choose a new password before the interaction continues.
    pub fn password_change(&self) -> Option<&PendingPasswordChange> {
        self.password_change.as_ref()
    }

    /// The interaction after the password was changed.
    #[must_use]
    pub fn without_password_change(self) -> Self {
        Self { password_change: None, ..self }
    }

    /// When the interaction began.
    pub fn began(&self) -> Timestamp {
        Timestamp::from_millis(self.began)
    }

    /// Seals the state into the text of a form field, bound to this browser.
    ///
    /// # Errors
    /// [`EntropyFailed`] when encoding or encryption fails.
    pub fn seal(&self, provider: &Provider, browser: &Browser) -> Result<String, EntropyFailed> {
        let text = serde_json::to_vec(self).map_err(|_| EntropyFailed)?;
        let sealed = provider.secrets().seal(
            Purpose::AuthorizationState,
            browser.id(),
            &text,
            provider.now(),
            provider.entropy(),
        )?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a form field. `None`: it is malformed, expired or sealed for another browser.
    pub fn open(provider: &Provider, browser: &Browser, sealed: &str) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let text = provider.secrets().open(Purpose::AuthorizationState, browser.id(), &sealed)?;
        let flow: Self = serde_json::from_slice(&text).ok()?;
        (provider.now().since(flow.began()) < PAGE_LIFETIME).then_some(flow)
    }
}
