//! Delivery of mails with account links.
//!
//! Owns: who gets a mail that somebody asked for with a typed name, the attempts, and the audit
//! entries of both. Does not own: the queue (`store::mail_queue`), links ([`crate::admin::links`] and
//! the page behind them), texts ([`crate::pages::link_mail`]), SMTP (the crate `mail`).
//!
//! ```text
//! maintenance: TakeDueMails → typed name? → user, checked → AddressMail ─┐
//!                           → user? ─────────────────────────────────────┴→ link → text → SMTP → RemoveMail
//! ```
//!
//! The page that takes a typed name only queues a mail. Whether it is that of a user is found out
//! here, so the response and its time do not depend on it.
//!
//! The secret of a link is derived from the id of its mail and the provider's secret. So it is not
//! stored, and each attempt sends the same link. A mail that the server may have accepted without a
//! reply is sent again, with the same `Message-ID`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mail::{OutgoingMail, SendError};
use store::{
    StoreError,
    account_links::{AccountLinkRow, IssueAccountLink, LinkKind},
    audit::Audited,
    mail_queue::{AddressMail, MailOrigin, MailRecipient, QueuedMail, RemoveMail, TakeDueMails},
    users::UserRow,
};
use tokio::task::JoinSet;

use crate::audit_draft::{AuditDraft, Subject};
use crate::failure_log::{Failure, RESET_REFUSE};
use crate::login::{LoginFault, account_subject};
use crate::mailer::Mailer;
use crate::pages::LinkMail;
use crate::paths;
use crate::provider::Provider;
use crate::secrets::Purpose;

/// How long a link that a user asked for is valid, from the time of the request.
pub(crate) const RESET_LIFETIME: Duration = Duration::from_hours(1);
/// Mails that are taken from the queue and sent concurrently.
const BATCH: u32 = 4;
/// Time after the first attempt until any node may try again, at least. It doubles with each attempt.
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// Sends mails that are due.
pub(crate) async fn deliver(provider: &Arc<Provider>) -> Result<(), StoreError> {
    let Some(mailer) = provider.mailer() else { return Ok(()) };
    if !provider.store().is_mail_due(provider.now()).await? {
        return Ok(());
    }
    // No other node takes a mail while this one may still send it.
    let retry_after = RETRY_DELAY.max(mailer.server.timeout() * 2);
    let take = TakeDueMails { limit: BATCH, retry_after, now: provider.now() };
    let mut under_way = JoinSet::new();
    for mail in provider.store().write(take).await? {
        let provider = provider.clone();
        under_way.spawn(async move {
            let Some(mailer) = provider.mailer() else { return };
            match (Attempt { provider: &provider, mailer, mail: &mail }).run().await {
                Ok(()) => {}
                Err(error) if error.is_outage() => {
                    tracing::debug!(%error, "mail postponed, store unavailable");
                }
                Err(error) => tracing::warn!(%error, "mail postponed"),
            }
        });
    }
    under_way.join_all().await;
    Ok(())
}

/// One attempt to send a mail. After an error the mail stays in the queue.
struct Attempt<'a> {
    provider: &'a Provider,
    mailer: &'a Mailer,
    mail: &'a QueuedMail,
}

impl Attempt<'_> {
    async fn run(&self) -> Result<(), StoreError> {
        match &self.mail.recipient {
            MailRecipient::Typed(sealed) => {
                if self.provider.now() >= self.mail.expires_at {
                    return self.remove().await;
                }
                match self.address(sealed).await? {
                    Some(link) => self.send(&link).await,
                    None => Ok(()),
                }
            }
            MailRecipient::User(id) => {
                let digest = self.provider.account_link_digest(&self.token());
                match self.provider.store().account_link(&digest, self.provider.now()).await? {
                    Some(link) => self.send(&link).await,
                    None if self.provider.now() >= self.mail.expires_at => self.give_up(id, "expired").await,
                    // Used, replaced, or of a disabled account.
                    None => self.remove().await,
                }
            }
        }
    }

    fn token(&self) -> String {
        self.provider.mailed_link_token(&self.mail.id)
    }

    /// Finds the user of a typed name, and issues the link. `None`: no mail is sent.
    async fn address(&self, sealed: &[u8]) -> Result<Option<AccountLinkRow>, StoreError> {
        let store = self.provider.store();
        let typed = self.provider.secrets().open(Purpose::ResetRequest, &self.mail.id, sealed);
        let Some(typed) = typed.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok()) else {
            tracing::warn!("request for a reset link unreadable, sealed with another secret");
            self.remove().await?;
            return Ok(None);
        };
        let known = store.user_by_login(&typed).await?;
        let has_password = known.as_ref().is_some_and(|(_, password)| password.is_some());
        let Some((user, _)) = known else {
            self.refuse(None, "unknown_name");
            self.remove().await?;
            return Ok(None);
        };
        if let Some(reason) = self.refusal(&user, has_password).await? {
            self.refuse(Some(&user), reason);
            self.remove().await?;
            return Ok(None);
        }
        self.issue(user).await
    }

    /// Why a user who asks for a link gets none.
    async fn refusal(&self, user: &UserRow, has_password: bool) -> Result<Option<&'static str>, StoreError> {
        let (provider, now) = (self.provider, self.provider.now());
        let reason = if !user.is_open() {
            Some("account_disabled")
        } else if !has_password {
            // An operator decides that somebody may log in with a password, by an invitation.
            Some("no_password")
        } else if verified_address(user).is_none() {
            Some("no_verified_address")
        } else {
            None
        };
        if reason.is_some() {
            return Ok(reason);
        }
        let mails = format!("reset mails of {}", account_subject(&user.id));
        for (subject, reason) in
            [(account_subject(&user.id), "account_locked"), (mails.clone(), "too_many_requests")]
        {
            match provider.logins().check_subject(provider.store(), &subject, now).await {
                Ok(()) => {}
                Err(LoginFault::Store(error)) => return Err(error),
                Err(_) => return Ok(Some(reason)),
            }
        }
        provider.logins().count_failure(provider.store(), mails, now).await?;
        Ok(None)
    }

    /// Issues the link for a user who asked for it.
    async fn issue(&self, user: UserRow) -> Result<Option<AccountLinkRow>, StoreError> {
        let (provider, now) = (self.provider, self.provider.now());
        let link = IssueAccountLink {
            user_id: user.id.clone(),
            read_at: user.read_at,
            digest: provider.account_link_digest(&self.token()),
            kind: LinkKind::Reset,
            now,
            expires_at: self.mail.expires_at,
        };
        let target = format!("user:{}", user.id);
        let entry = AuditDraft::new("anonymous", "reset.request", target, now)
            .user(Some(&Subject::of_user(&user)))
            .with("address", self.mail.address.as_deref())
            .finish();
        let (kind, expires_at) = (link.kind, link.expires_at);
        let change = AddressMail { id: self.mail.id.clone(), link };
        // Otherwise the account has changed meanwhile: the next attempt reads it again.
        let is_issued = provider.store().write(Audited { change, entry }).await?;
        Ok(is_issued.then_some(AccountLinkRow { user, kind, expires_at }))
    }

    /// Sends the mail with a link.
    async fn send(&self, link: &AccountLinkRow) -> Result<(), StoreError> {
        let Self { provider, mailer, mail } = *self;
        let user = &link.user;
        let to = match mail.origin {
            MailOrigin::User => verified_address(user),
            MailOrigin::Operator => user.email.as_deref(),
        };
        let Some(to) = to else { return self.give_up(&user.id, "no address").await };
        let token = self.token();
        let url = format!("{}?token={token}", provider.issuer().endpoint(paths::ACCOUNT_LINK));
        let text = LinkMail {
            kind: link.kind,
            user: &user.name,
            url: &url,
            expires_at: link.expires_at,
            is_asked_for: mail.origin == MailOrigin::User,
        };
        let (subject, text) = provider.pages().link_mail(&mail.language, &text);
        let date = SystemTime::UNIX_EPOCH + Duration::from_millis(provider.now().as_millis());
        let outgoing = OutgoingMail { to, subject: &subject, text: &text, id: &mail.id, date };
        let (user_id, tries) = (&user.id, mail.attempts);
        match mailer.server.send(&outgoing).await {
            Ok(_) => {
                mailer.outage.succeeded();
                mailer.count_sent();
                tracing::info!(user = user_id, tries, "mail sent");
                let draft = self.draft("mail.send", user).with("tries", tries);
                self.remove_with(draft).await
            }
            Err(SendError::Unavailable(why)) => {
                mailer.outage.failed(without_secret(&why, &token));
                mailer.count_failed();
                Ok(())
            }
            Err(SendError::Deferred(why)) => {
                mailer.outage.succeeded();
                mailer.count_failed();
                let why = without_secret(&why, &token);
                tracing::info!(user = user_id, tries, why, "mail deferred by the server, will retry");
                Ok(())
            }
            Err(SendError::Refused(why)) => {
                mailer.outage.succeeded();
                self.give_up(user_id, &without_secret(&why, &token)).await
            }
        }
    }

    fn draft(&self, action: &str, user: &UserRow) -> AuditDraft {
        let target = format!("user:{}", user.id);
        AuditDraft::new("provider", action, target, self.provider.now())
            .user(Some(&Subject::of_user(user)))
            .with("origin", if self.mail.origin == MailOrigin::User { "user" } else { "operator" })
    }

    /// Records that a user gets no mail, as failed sign-ins are recorded: anybody can cause it.
    fn refuse(&self, user: Option<&UserRow>, reason: &'static str) {
        let address = self.mail.address.as_deref().and_then(|address| address.parse().ok());
        let failure = Failure {
            action: RESET_REFUSE,
            reason,
            user: user.map(Subject::of_user),
            client: None,
            address: address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        };
        self.provider.failures().record(failure, self.provider.now());
    }

    /// Records that a mail will never be sent, and removes it.
    async fn give_up(&self, user_id: &str, why: &str) -> Result<(), StoreError> {
        self.mailer.count_given_up();
        let tries = self.mail.attempts;
        tracing::warn!(user = user_id, tries, why, "mail not sent");
        let Some(user) = self.provider.store().user(user_id).await? else { return self.remove().await };
        let draft = self.draft("mail.fail", &user).with("tries", tries).with("reason", why);
        self.remove_with(draft).await
    }

    async fn remove_with(&self, draft: AuditDraft) -> Result<(), StoreError> {
        let change = RemoveMail { id: self.mail.id.clone() };
        self.provider.store().write(Audited { change, entry: draft.finish() }).await.map(drop)
    }

    async fn remove(&self) -> Result<(), StoreError> {
        self.provider.store().write(RemoveMail { id: self.mail.id.clone() }).await.map(drop)
    }
}

/// The address of a user, if it was verified.
fn verified_address(user: &UserRow) -> Option<&str> {
    user.email.as_deref().filter(|_| user.email_verified_at.is_some())
}

/// Text of a mail server for logs. Filters for unwanted mail quote URLs: a text with a part of the
/// secret is reduced to its beginning up to the reply's code.
fn without_secret(text: &str, secret: &str) -> String {
    const PART: usize = 8;
    let plain: String = text.chars().filter(|c| !c.is_whitespace() && *c != '=').collect();
    let parts: Vec<char> = secret.chars().collect();
    let is_quoted = parts.windows(PART).any(|part| plain.contains(&part.iter().collect::<String>()));
    if !is_quoted {
        return text.to_owned();
    }
    let code = text.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 3);
    format!("reply {} with a part of the link", code.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_quotes_the_link_is_not_logged() {
        let secret = "q0Zr-7dXbK3nVtY_2mLw9A";
        let harmless = "permanent error (550): 5.1.1 no such user";
        assert_eq!(without_secret(harmless, secret), harmless);
        for quoted in [
            "permanent error (554): unwanted: https://login.example/set-password?token=q0Zr-7dXbK3nVtY_2mLw9A",
            "permanent error (554): unwanted: token=3Dq0Zr-7dX=\r\nbK3nVtY_2mLw9A",
            "permanent error (554): 3nVtY_2mLw9A is unwanted",
        ] {
            assert_eq!(without_secret(quoted, secret), "reply 554 with a part of the link", "{quoted}");
        }
    }
}
