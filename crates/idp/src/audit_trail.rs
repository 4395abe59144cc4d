//! Audit trail of sign-ins, sessions, consents and grants: the entry of each.
//!
//! Owns: actions and contents of these entries, and whether their group is written. Does not own:
//! the log and its transactions (the store), failures ([`crate::failure_log`]), changes by operators
//! ([`crate::admin`]).
//!
//! An entry is written in the transaction of the change that it describes.

use std::net::IpAddr;

use auth::time::Timestamp;
use serde_json::Value;
use store::{StoreError, audit::AuditEntry, redeem::RedeemResult};

use crate::audit_draft::{AuditDraft, Subject};
use crate::client::Client;
use crate::oauth::grant_type::GrantType;
use crate::provider::Provider;

/// Entry of a sign-in in a browser, with the method and the address.
pub(crate) fn login(
    user: &Subject,
    sid: &str,
    (method, address): (&str, IpAddr),
    client: Option<&Subject>,
    at: Timestamp,
) -> AuditDraft {
    AuditDraft::by_user(user, "login.success", format!("session:{sid}"), at)
        .client(client)
        .with("method", method)
        .with("address", address.to_string())
}

/// Entry of a session that its user, or another user of the browser, ends.
pub(crate) fn session_end(
    actor: &str,
    (user, sid): (&Subject, &str),
    reason: &str,
    client: Option<&Client>,
    at: Timestamp,
) -> AuditEntry {
    AuditDraft::new(format!("user:{actor}"), "session.end", format!("session:{sid}"), at)
        .user(Some(user))
        .client(client.map(Subject::of_client).as_ref())
        .with("reason", reason)
        .finish()
}

/// Entry of a user's decision about a client: `action` is `consent.give`, `device.deny` and so on.
pub(crate) fn decision(
    user: &Subject,
    client: &Subject,
    action: &str,
    scopes: &str,
    at: Timestamp,
) -> AuditEntry {
    AuditDraft::by_user(user, action, format!("client:{}", client.id), at)
        .client(Some(client))
        .with("scopes", scopes)
        .finish()
}

/// The user with this id, for entries; a deleted account has its id as name.
///
/// # Errors
/// [`StoreError`] when the read fails.
pub(crate) async fn user(provider: &Provider, id: &str) -> Result<Subject, StoreError> {
    let name = provider.store().user(id).await?.map_or_else(|| id.to_owned(), |user| user.name);
    Ok(Subject { id: id.to_owned(), name })
}

/// A grant that a client gets or tries to get again.
#[derive(Debug, Clone)]
pub(crate) struct GrantTrail {
    pub(crate) grant: GrantType,
    pub(crate) client: Subject,
    /// `None`: the client itself.
    pub(crate) user: Option<Subject>,
    pub(crate) family: Option<String>,
    pub(crate) sid: Option<String>,
    pub(crate) scopes: Option<String>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) at: Timestamp,
    /// Whether the entry of a success is written.
    pub(crate) is_written: bool,
}

impl GrantTrail {
    pub(crate) fn new(provider: &Provider, grant: GrantType, client: &Client) -> Self {
        let events = provider.audit_events();
        let is_written = match grant {
            GrantType::RefreshToken => events.refreshes,
            GrantType::ClientCredentials => events.client_credentials,
            GrantType::AuthorizationCode | GrantType::DeviceCode | GrantType::Password => events.grants,
        };
        Self {
            grant,
            client: Subject::of_client(client),
            user: None,
            family: None,
            sid: None,
            scopes: None,
            address: None,
            at: provider.now(),
            is_written,
        }
    }

    fn draft(&self, action: &str) -> AuditDraft {
        let target = match &self.user {
            Some(user) => format!("user:{}", user.id),
            None => format!("client:{}", self.client.id),
        };
        AuditDraft::by_client(&self.client, action, target, self.at)
            .user(self.user.as_ref())
            .with("grant", self.grant.as_str())
            .with("family", self.family.as_deref())
            .with("session", self.sid.as_deref())
            .with("scopes", self.scopes.as_deref())
            .with("address", self.address.map_or(Value::Null, |address| address.to_string().into()))
    }

    /// The entry of a success, if it is written.
    pub(crate) fn issued(&self) -> Option<AuditEntry> {
        let action = if self.grant == GrantType::RefreshToken { "grant.refresh" } else { "grant.issue" };
        self.is_written.then(|| self.draft(action).finish())
    }

    /// The entries for the result of a redemption.
    pub(crate) fn redeemed(&self, result: RedeemResult) -> Vec<AuditEntry> {
        match result {
            RedeemResult::Redeemed => self.issued().into_iter().collect(),
            RedeemResult::Replayed { revoked: true } => vec![self.draft("grant.replay").finish()],
            // Whoever holds a used secret could fill the log with further attempts.
            RedeemResult::Replayed { revoked: false } | RedeemResult::Invalid => Vec::new(),
        }
    }
}
