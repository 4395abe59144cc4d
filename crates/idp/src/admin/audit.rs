//! Audit log for operators: list, export and verification.

use serde::{Deserialize, Serialize};
use store::audit::AuditRecord;

use super::{Admin, AdminFault, Page, paging};

/// Entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AuditEntry {
    /// Sequence number: from 1, without gaps.
    pub seq: u64,
    /// Time of the action, in milliseconds since 1970.
    pub at_millis: u64,
    /// Actor: `user:ID`, `client:ID`, `operator:NAME` or `system`.
    pub actor: String,
    /// Action, for example `user.disable`.
    pub action: String,
    /// Target of the action, for example `user:ID`, `group:NAME` or `key:KID`.
    pub target: String,
    /// Further details as JSON; may be empty.
    pub detail: String,
    /// SHA-256 of the entry and all entries before it, 64 hexadecimal digits.
    pub digest: String,
}

impl From<AuditRecord> for AuditEntry {
    fn from(recorded: AuditRecord) -> Self {
        let AuditRecord { seq, entry, digest } = recorded;
        Self {
            seq,
            at_millis: entry.at.as_millis(),
            actor: entry.actor,
            action: entry.action,
            target: entry.target,
            detail: entry.detail,
            digest: hex(&digest.0),
        }
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
}

impl Admin<'_> {
    /// Lists entries, the oldest first.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range or the store fails.
    pub async fn audit_log(&self, list: &ListEntries) -> Result<Page<AuditEntry>, AdminFault> {
        let limit = paging::limit(list.limit)?;
        let mut entries = self.provider.store().audit_log(list.after.unwrap_or_default()).await?;
        entries.truncate(limit as usize + 1);
        let views = entries.into_iter().map(AuditEntry::from).collect();
        Ok(Page::cut(views, limit, |entry: &AuditEntry| entry.seq.to_string()))
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
            Ok((entries, digest)) => AuditVerdict {
                intact: true,
                entries: Some(entries),
                digest: Some(hex(&digest.0)),
                broken_at: None,
            },
            Err(broken) => {
                AuditVerdict { intact: false, entries: None, digest: None, broken_at: Some(broken.0) }
            }
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
