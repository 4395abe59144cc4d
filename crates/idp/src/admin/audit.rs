//! The audit log: who did what to whom.

use serde::{Deserialize, Serialize};
use store::audit::Recorded;

use super::{Admin, AdminFault, Page, paging};

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AuditEntry {
    /// From 1, without holes.
    pub seq: u64,
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// Who did it: `user:ID`, `client:ID`, `operator:NAME` or `system`.
    pub actor: String,
    /// What: `user.disable`.
    pub action: String,
    /// To whom, like the actor.
    pub target: String,
    /// What else matters: JSON, or nothing.
    pub detail: String,
    /// SHA-256 of the entry and all before it, 64 hexadecimal digits.
    pub digest: String,
}

impl From<Recorded> for AuditEntry {
    fn from(recorded: Recorded) -> Self {
        let Recorded { seq, entry, digest } = recorded;
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

/// Whether the log is as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AuditVerdict {
    /// Whether each entry follows from the one before.
    pub intact: bool,
    /// How many entries there are, if it is intact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// The last digest, to be kept elsewhere: any later change of what is there now changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The first entry that does not follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_at: Option<u64>,
}

/// Which entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListEntries {
    /// Those after this number.
    pub after: Option<u64>,
    /// At most so many: 1 to 500, 100 when absent.
    pub limit: Option<u32>,
}

impl Admin<'_> {
    /// Entries, the oldest first.
    pub async fn audit_log(&self, list: &ListEntries) -> Result<Page<AuditEntry>, AdminFault> {
        let limit = paging::limit(list.limit)?;
        let mut entries = self.provider.store().audit_log(list.after.unwrap_or_default()).await?;
        entries.truncate(limit as usize + 1);
        let views = entries.into_iter().map(AuditEntry::from).collect();
        Ok(Page::cut(views, limit, |entry: &AuditEntry| entry.seq.to_string()))
    }

    /// Hands out every entry after `after` as a line of JSON; answers how many.
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

    /// Follows the chain from its beginning.
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
