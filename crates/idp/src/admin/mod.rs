//! Administration: the operations of operators, shared by the command line and the HTTP API.
//!
//! Owns: the operations, one file per noun ([`users`], [`links`], [`groups`], [`clients`], [`sessions`],
//! [`keys`], [`tokens`], [`audit`], [`followers`], [`import`], [`mail_test`]); their inputs and results in
//! wire format; their errors ([`AdminFault`]); which entry a name means (`lookup`). Every change writes
//! an entry of the audit log in the same transaction.
//!
//! Does not own: authorization of the caller (the API's endpoint, the operating system),
//! presentation of results, rows (the store).
//!
//! ```text
//! Admin { provider, actor } → check what is asked → Audited { change, entry } → store → what is there now
//! ```
//!
//! No entry and no result contains a secret, except the one result that returns a newly generated
//! secret.

pub mod audit;
pub mod check;
pub mod clients;
pub mod fault;
pub mod followers;
pub mod groups;
pub mod import;
pub mod keys;
pub mod links;
mod lookup;
pub mod mail_test;
pub mod paging;
mod rfc3339;
pub mod secret;
pub mod sessions;
#[cfg(test)]
pub(crate) mod tests;
pub mod tokens;
pub mod users;

use auth::time::Timestamp;
use serde_json::Value;
use store::{
    Change, Tag,
    audit::{AuditEntry, Audited},
};

pub use self::{
    fault::{AdminFault, Refused},
    paging::Page,
    rfc3339::UtcTime,
    secret::Secret,
};
use crate::audit_draft::with_names;
use crate::provider::Provider;

/// Attempts of a change that conflicts with concurrent changes.
const MAX_ATTEMPTS: usize = 5;

/// Administration of one provider on behalf of one actor.
#[derive(Debug, Clone)]
pub struct Admin<'p> {
    provider: &'p Provider,
    actor: String,
}

impl<'p> Admin<'p> {
    /// Creates it for an actor, in the form of the audit log: `operator:NAME` or `client:ID`.
    pub fn new(provider: &'p Provider, actor: impl Into<String>) -> Self {
        Self { provider, actor: actor.into() }
    }

    fn now(&self) -> Timestamp {
        self.provider.now()
    }

    fn entry(&self, action: &str, target: String, detail: &Value) -> AuditEntry {
        let entry = AuditEntry::new(self.actor.clone(), action, target, self.now());
        let concerned = |member: &str| detail.get(member).and_then(Value::as_str).map(str::to_owned);
        AuditEntry {
            user_id: entry.user_id.or_else(|| concerned("user")),
            client_id: concerned("client").or(entry.client_id),
            detail: if detail.is_null() { String::new() } else { detail.to_string() },
            ..entry
        }
    }

    /// The entry with the names of its user and its client, before a change that may delete them.
    async fn named(&self, entry: AuditEntry) -> Result<AuditEntry, AdminFault> {
        let (store, clients) = (self.provider.store(), self.provider.clients());
        let user = match &entry.user_id {
            Some(id) => store.user(id).await?.map(|user| user.name),
            None => None,
        };
        let client = match &entry.client_id {
            Some(id) => clients.find(store, id).await?.map(|client| client.name().to_owned()),
            None => None,
        };
        Ok(with_names(entry, user, client))
    }

    /// Writes a change and its audit entry in one transaction.
    async fn write<C: Change>(&self, change: C, entry: AuditEntry) -> Result<C::Output, AdminFault> {
        let entry = self.named(entry).await?;
        Ok(self.provider.store().write(Audited { change, entry }).await?)
    }

    fn tag(&self, subject: crate::secrets::TagSubject<'_>) -> Tag {
        self.provider.secrets().tag(subject)
    }
}

/// Two changes in one transaction. The second applies only if the first happened; its output is
/// discarded.
#[derive(Debug, Clone)]
struct Chained<A, B>(A, B);

impl<A: Change, B: Change> Change for Chained<A, B>
where
    A::Output: Sync,
{
    type Output = A::Output;
    const LOCKS_HEAD: bool = A::LOCKS_HEAD || B::LOCKS_HEAD;

    fn assigns_names(&self) -> bool {
        self.0.assigns_names() || self.1.assigns_names()
    }

    async fn apply(&self, tx: &mut store::Tx<'_>) -> Result<A::Output, store::StoreError> {
        let output = self.0.apply(tx).await?;
        if A::took_effect(&output) {
            self.1.apply(tx).await?;
        }
        Ok(output)
    }

    fn took_effect(output: &Self::Output) -> bool {
        A::took_effect(output)
    }
}
