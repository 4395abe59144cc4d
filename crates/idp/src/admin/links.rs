//! Links that an operator hands over: an invitation to a new account, and the reset of a password.

use std::time::Duration;

use auth::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::account_links::{IssueAccountLink, LinkKind};
use store::mail_queue::{MailOrigin, MailRecipient, QueueMail, QueuedMail};
use store::users::UserRow;

use super::{Admin, AdminFault, Chained, Secret, UtcTime};
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
    /// Whether the provider sends the link to the user's e-mail address, verified or not, instead of
    /// returning it.
    pub mail: bool,
}

/// A link, shown once or sent by mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct LinkView {
    /// URL to hand over to the user. Whoever has it can set the password once. Absent if it is sent by
    /// mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Secret>,
    /// Address that the link is sent to, if it is. The mail is in the queue of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mailed_to: Option<String>,
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
        let now = self.now();
        let expires_at = now.plus(lifetime);
        let link = |digest| IssueAccountLink {
            user_id: user.id.clone(),
            read_at: user.read_at,
            digest,
            kind,
            now,
            expires_at,
        };
        let target = format!("user:{id}");
        if new.mail {
            let (address, mail) = self.mail_for(&user, expires_at)?;
            let digest = self.provider.account_link_digest(&self.provider.mailed_link_token(&mail.id));
            let detail = json!({ "expires_at": UtcTime(expires_at), "mail": true });
            let change = Chained(link(digest), QueueMail { mail, due_at: now });
            let is_issued = self.write(change, self.entry(action, target, &detail)).await?;
            return issued(
                is_issued,
                &user,
                LinkView { url: None, mailed_to: Some(address), expires_at: UtcTime(expires_at) },
            );
        }
        let token = self.provider.draw_id()?;
        let detail = json!({ "expires_at": UtcTime(expires_at) });
        let change = link(self.provider.account_link_digest(&token));
        let is_issued = self.write(change, self.entry(action, target, &detail)).await?;
        let url = format!("{}?token={token}", self.provider.issuer().endpoint(paths::ACCOUNT_LINK));
        issued(
            is_issued,
            &user,
            LinkView { url: Some(Secret::new(url)), mailed_to: None, expires_at: UtcTime(expires_at) },
        )
    }

    /// The mail for a user, and the address that it goes to.
    fn mail_for(&self, user: &UserRow, expires_at: Timestamp) -> Result<(String, QueuedMail), AdminFault> {
        self.mailer()?;
        let name = &user.name;
        let Some(address) = user.email.clone() else {
            let reason = format!("user {name:?} has no e-mail address: set one, or hand over the link");
            return Err(AdminFault::Conflict(reason));
        };
        if !mail::is_address(&address) {
            let reason = format!("no mail can be sent to the address of user {name:?}: correct it");
            return Err(AdminFault::Conflict(reason));
        }
        let claims: Value = serde_json::from_str(&user.claims).unwrap_or_default();
        let locale = claims.get("locale").and_then(Value::as_str);
        let mail = QueuedMail {
            id: self.provider.draw_id()?,
            recipient: MailRecipient::User(user.id.clone()),
            origin: MailOrigin::Operator,
            language: self.provider.pages().languages().choose(locale, None).tag().to_owned(),
            address: None,
            attempts: 0,
            expires_at,
        };
        Ok((address, mail))
    }
}

/// The result of a change that issues a link.
fn issued(is_issued: bool, user: &UserRow, link: LinkView) -> Result<LinkView, AdminFault> {
    let changed = || AdminFault::Conflict(format!("user {:?} changed concurrently: try again", user.name));
    is_issued.then_some(link).ok_or_else(changed)
}
