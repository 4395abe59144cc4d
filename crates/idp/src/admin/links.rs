//! Links that an operator hands over: an invitation to a new account, and the reset of a password.

use std::time::Duration;

use auth::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::account_links::{IssueAccountLink, LinkKind};

use super::{Admin, AdminFault, Secret, UtcTime};
use crate::paths;

/// How long an invitation is valid if the request does not say.
const INVITATION_LIFETIME: Duration = Duration::from_hours(24);
/// How long a reset link is valid if the request does not say.
const RESET_LIFETIME: Duration = Duration::from_hours(1);
/// Longest lifetime of a link.
const MAX_LIFETIME: Duration = Duration::from_hours(24 * 30);
/// Shortest lifetime of a link.
const MIN_LIFETIME: Duration = Duration::from_mins(1);

/// A link to create.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewLink {
    /// Lifetime in seconds: 60 to 2592000. Default: 86400 for an invitation, 3600 for a reset.
    pub expires_in: Option<u64>,
}

/// A link, shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct LinkView {
    /// URL to hand over to the user. Whoever has it can set the password once.
    pub url: Secret,
    /// When it expires.
    pub expires_at: UtcTime,
}

impl Admin<'_> {
    /// Creates an invitation, with which the user of a new account sets the first password. It
    /// replaces an earlier link of the user.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such account, it is disabled or has a password already, or the
    /// lifetime is out of range.
    pub async fn invite_user(&self, id: &str, new: &NewLink) -> Result<LinkView, AdminFault> {
        if self.user(id).await?.has_password {
            let reason = format!("user {id:?} has a password already: create a reset link instead");
            return Err(AdminFault::Conflict(reason));
        }
        self.issue_link(id, LinkKind::Invitation, new).await
    }

    /// Creates a link with which the user sets another password. It replaces an earlier link of the
    /// user. The current password, sessions and tokens stay valid until the link is used.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such account, it is disabled, or the lifetime is out of range.
    pub async fn create_reset_link(&self, id: &str, new: &NewLink) -> Result<LinkView, AdminFault> {
        self.issue_link(id, LinkKind::Reset, new).await
    }

    async fn issue_link(&self, id: &str, kind: LinkKind, new: &NewLink) -> Result<LinkView, AdminFault> {
        let (action, default) = match kind {
            LinkKind::Invitation => ("user.invite", INVITATION_LIFETIME),
            LinkKind::Reset => ("user.reset_link", RESET_LIFETIME),
        };
        let lifetime = new.expires_in.map_or(default, Duration::from_secs);
        if !(MIN_LIFETIME..=MAX_LIFETIME).contains(&lifetime) {
            let reason = format!(
                "lifetime out of range: use {} to {} seconds",
                MIN_LIFETIME.as_secs(),
                MAX_LIFETIME.as_secs()
            );
            return Err(AdminFault::refused("expires_in", reason));
        }
        let user = self.user_row(id).await?;
        if !user.is_open() {
            return Err(AdminFault::Conflict(format!(
                "user {:?} is disabled: enable the account first",
                user.name
            )));
        }
        let (now, token) = (self.now(), self.provider.draw_id()?);
        let expires_at: Timestamp = now.plus(lifetime);
        let change = IssueAccountLink {
            user_id: user.id.clone(),
            read_at: user.read_at,
            digest: self.provider.account_link_digest(&token),
            kind,
            now,
            expires_at,
        };
        let entry = self.entry(action, format!("user:{id}"), &json!({ "expires_at": UtcTime(expires_at) }));
        if !self.write(change, entry).await? {
            return Err(AdminFault::Conflict(format!(
                "user {:?} changed concurrently: try again",
                user.name
            )));
        }
        let url = format!("{}?token={token}", self.provider.issuer().endpoint(paths::ACCOUNT_LINK));
        Ok(LinkView { url: Secret::new(url), expires_at: UtcTime(expires_at) })
    }
}
