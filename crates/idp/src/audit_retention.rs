//! Retention of the audit log: the log lines about entries that expire.
//!
//! Owns: which receivers hold entries back, and what operators read about it. Does not own: which
//! entries expire, and the record of it (`store::audit_retention`).

use store::StoreError;
use store::audit::BrokenChain;
use store::audit_retention::{AuditExpiry, AuditRetention};

use crate::provider::Provider;

/// Lets old entries expire, if the configuration says how long they are kept.
pub(crate) async fn expire(provider: &Provider) -> Result<Result<(), BrokenChain>, StoreError> {
    let Some(keep) = provider.audit_keep() else { return Ok(Ok(())) };
    let receivers = provider.audit_receivers().all.iter().map(|receiver| receiver.name.clone()).collect();
    let retention = AuditRetention { keep, receivers };
    match provider.store().expire_audit_entries(&retention, provider.now()).await? {
        AuditExpiry::NotDue => Ok(Ok(())),
        AuditExpiry::Broken(broken) => Ok(Err(broken)),
        AuditExpiry::Expired(expired) => {
            tracing::info!(entries = expired.count, last = expired.last, "audit entries expired");
            for (receiver, entries) in expired.undelivered {
                tracing::warn!(receiver, entries, "audit entries expired before their delivery");
            }
            Ok(Ok(()))
        }
    }
}
