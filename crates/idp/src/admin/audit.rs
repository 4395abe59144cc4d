//! Audit log for operators: list, export and verification.

use std::borrow::Cow;

use auth::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::audit::{AuditFilter, AuditRecord, VerifiedLog};

use super::paging::{Listed, Part};
use super::{Admin, AdminFault, Page, UtcTime, rfc3339};
use crate::audit_draft::{CLIENT_NAME, USER_NAME};

/// Entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AuditEntry {
    /// Sequence number: from 1, without gaps. The first ones may have expired.
    pub seq: u64,
    /// Time of the action.
    pub at: UtcTime,
    /// Actor: `user:ID`, `client:ID`, `operator:NAME`, `anonymous` or `system`.
    pub actor: String,
    /// Action, for example `user.disable`.
    pub action: String,
    /// Target of the action, for example `user:ID`, `group:NAME` or `key:KID`.
    pub target: String,
    /// Id of the user whom the entry concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Login name of that user at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// Id of the client that the entry concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Display name of that client at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Further details as JSON; may be empty. It has the names too.
    pub detail: String,
    /// SHA-256 of the entry and all entries before it, 64 hexadecimal digits.
    pub digest: String,
}

impl From<AuditRecord> for AuditEntry {
    fn from(recorded: AuditRecord) -> Self {
        let AuditRecord { seq, entry, digest } = recorded;
        let detail: Value = serde_json::from_str(&entry.detail).unwrap_or_default();
        let text = |member: &str| detail.get(member).and_then(Value::as_str).map(str::to_owned);
        // Entries about new accounts have the name as a detail of its own.
        let is_account = entry.target.starts_with("user:");
        Self {
            seq,
            at: UtcTime(entry.at),
            user_name: text(USER_NAME).or_else(|| text("name").filter(|_| is_account)),
            client_name: text(CLIENT_NAME),
            actor: entry.actor,
            action: entry.action,
            target: entry.target,
            user: entry.user_id,
            client: entry.client_id,
            detail: entry.detail,
            digest: hex(&digest.0),
        }
    }
}

impl Listed for AuditEntry {
    fn position(&self) -> String {
        self.seq.to_string()
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        let given = [&self.actor, &self.action, &self.target, &self.detail];
        let names = [&self.user_name, &self.client_name].into_iter().flatten();
        given.into_iter().chain(names).map(Cow::from).collect()
    }
}

/// Result of the verification of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AuditVerdict {
    /// Whether each entry follows from the one before it.
    pub intact: bool,
    /// Number of entries, if the log is intact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Sequence number of the last entry, if the log is intact; 0 if it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Sequence number of the last entry that has expired; absent if none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired: Option<u64>,
    /// Digest of the last entry. Store it elsewhere: any later change to existing entries changes
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Sequence number of the first entry that does not follow from the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_at: Option<u64>,
}

/// Query parameters of the list of audit entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListEntries {
    /// Only entries after this sequence number.
    pub after: Option<u64>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only entries with this text, in any case, in the actor, action, target, names or details.
    /// A page of a search looks at 10 000 of them at most, so it may be short although more follow.
    pub search: Option<String>,
    /// Only entries about this user: id, name or email address; a deleted account by its id.
    pub user: Option<String>,
    /// Only entries about this client: id or name; a deleted one by its id.
    pub client: Option<String>,
    /// Only actions of this actor: `user:ID`, `client:ID`, `operator:NAME`, `anonymous`.
    pub actor: Option<String>,
    /// Only entries with this action, for example `login.failure`.
    pub action: Option<String>,
    /// Only entries of this time (RFC 3339) or later, or of the last `90s`, `15m`, `2h` or `7d`.
    pub since: Option<String>,
    /// Only entries before this time, in the same forms.
    pub until: Option<String>,
}

impl Admin<'_> {
    /// Lists entries, the oldest first.
    ///
    /// # Errors
    /// [`AdminFault`] when a parameter is not valid, nothing is known of the user, or the store
    /// fails.
    pub async fn audit_log(&self, list: &ListEntries) -> Result<Page<AuditEntry>, AdminFault> {
        let (since, until) =
            (self.time("since", list.since.as_deref())?, self.time("until", list.until.as_deref())?);
        let user_id = match &list.user {
            Some(user) => Some(self.audited_user(user).await?),
            None => None,
        };
        let client_id = match &list.client {
            Some(client) => Some(self.audited_client(client).await?),
            None => None,
        };
        let filter = AuditFilter {
            user_id: user_id.as_deref(),
            client_id: client_id.as_deref(),
            actor: list.actor.as_deref(),
            action: list.action.as_deref(),
            since,
            until,
        };
        let (store, after) = (self.provider.store(), list.after.map(|after| after.to_string()));
        let part = Part { search: list.search.as_deref(), limit: list.limit, after: after.as_deref() };
        part.read(move |after: String, count| async move {
            // The position is a number of this list, or empty at the beginning.
            let entries = store.audit_entries(&filter, after.parse().unwrap_or_default(), count).await?;
            Ok(entries.into_iter().map(AuditEntry::from).collect())
        })
        .await
    }

    fn time(&self, path: &str, text: Option<&str>) -> Result<Option<Timestamp>, AdminFault> {
        let Some(text) = text else { return Ok(None) };
        let Some(at) = rfc3339::parse(text, self.now()) else {
            let why = format!(
                "unknown time {text:?}: use RFC 3339 such as 2027-01-15T08:00:00Z, or a span such as 2h"
            );
            return Err(AdminFault::refused(path, why));
        };
        Ok(Some(at))
    }

    /// Id of the user that a request names. A deleted account is found by its id in the log.
    async fn audited_user(&self, user: &str) -> Result<String, AdminFault> {
        let of_id = AuditFilter { user_id: Some(user), ..AuditFilter::default() };
        self.known_or_logged(self.user_id(user).await, user, of_id).await
    }

    /// Id of the client that a request names. A deleted client is found by its id in the log.
    async fn audited_client(&self, client: &str) -> Result<String, AdminFault> {
        let of_id = AuditFilter { client_id: Some(client), ..AuditFilter::default() };
        self.known_or_logged(self.client_id(client).await, client, of_id).await
    }

    /// The id that was found, or the text itself if the log has entries with it as an id.
    async fn known_or_logged(
        &self,
        found: Result<String, AdminFault>,
        text: &str,
        of_id: AuditFilter<'_>,
    ) -> Result<String, AdminFault> {
        match found {
            Err(unknown @ AdminFault::NotFound { .. }) => {
                let entries = self.provider.store().audit_entries(&of_id, 0, 1).await?;
                if entries.is_empty() { Err(unknown) } else { Ok(text.to_owned()) }
            }
            found => found,
        }
    }

    /// Passes every entry after `after` to `line` as a line of JSON. Returns the number of entries.
    ///
    /// # Errors
    /// `E` when the store or `line` fails.
    pub async fn export_audit_log<E: From<AdminFault>>(
        &self,
        after: u64,
        mut line: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<u64, E> {
        let (mut last, mut count) = (after, 0);
        loop {
            let page = self.provider.store().audit_log(last).await.map_err(AdminFault::from)?;
            let Some(end) = page.last() else { return Ok(count) };
            last = end.seq;
            for recorded in page {
                let entry = serde_json::to_string(&AuditEntry::from(recorded));
                line(&entry.map_err(|error| AdminFault::Failed(error.to_string()))?)?;
                count += 1;
            }
        }
    }

    /// Verifies the chain of digests from the first entry on.
    ///
    /// # Errors
    /// [`AdminFault`] when the store fails.
    pub async fn verify_audit_log(&self) -> Result<AuditVerdict, AdminFault> {
        Ok(match self.provider.store().verify_audit_log().await? {
            Ok(VerifiedLog { expired, last, digest }) => AuditVerdict {
                intact: true,
                entries: Some(last - expired),
                last: Some(last),
                expired: (expired > 0).then_some(expired),
                digest: Some(hex(&digest.0)),
                broken_at: None,
            },
            Err(broken) => AuditVerdict {
                intact: false,
                entries: None,
                last: None,
                expired: None,
                digest: None,
                broken_at: Some(broken.0),
            },
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
