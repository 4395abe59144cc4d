//! Administration: what operators may look at and change, on the command line and over the API alike.
//!
//! Owns: the operations, one file per noun ([`users`], [`groups`], [`clients`], [`sessions`], [`keys`], [`tokens`],
//! [`audit`], [`followers`]); what they are asked and what they answer, as it stands on the wire; why they refuse ([`AdminFault`]); and that
//! every change is told in the audit log, in the same transaction.
//! Does not own: who may ask (the API's endpoint, the operating system), how an answer is shown, rows (the store).
//!
//! ```text
//! Admin { provider, actor } → check what is asked → Audited { change, entry } → store → what is there now
//! ```
//!
//! No entry and no answer holds a secret, but for the one answer that hands out a secret that was just made.

pub mod audit;
pub mod check;
pub mod clients;
pub mod fault;
pub mod followers;
pub mod groups;
pub mod keys;
pub mod paging;
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
    audit::{AnnouncedEntry, Audited},
};

pub use self::{
    fault::{AdminFault, Refused},
    paging::Page,
    secret::Secret,
};
use crate::provider::Provider;

/// How often a change is tried that somebody else came before.
const TRIES: usize = 5;

/// Somebody who administers a provider.
#[derive(Debug, Clone)]
pub struct Admin<'p> {
    provider: &'p Provider,
    actor: String,
}

impl<'p> Admin<'p> {
    /// For an actor as the audit log calls it: `operator:NAME` or `client:ID`.
    pub fn new(provider: &'p Provider, actor: impl Into<String>) -> Self {
        Self { provider, actor: actor.into() }
    }

    fn now(&self) -> Timestamp {
        self.provider.now()
    }

    fn entry(&self, action: &str, target: String, detail: &Value) -> AnnouncedEntry {
        AnnouncedEntry {
            actor: self.actor.clone(),
            action: action.to_owned(),
            target,
            detail: if detail.is_null() { String::new() } else { detail.to_string() },
            at: self.now(),
        }
    }

    /// Makes a change and tells of it.
    async fn write<C: Change>(&self, change: C, entry: AnnouncedEntry) -> Result<C::Output, AdminFault> {
        Ok(self.provider.store().write(Audited { change, entry }).await?)
    }

    fn tag(&self, subject: crate::secrets::TagSubject<'_>) -> Tag {
        self.provider.secrets().tag(subject)
    }
}

/// Two changes in one transaction: the second is made only if the first happened, and its output is not of interest.
#[derive(Debug, Clone)]
struct Both<A, B>(A, B);

impl<A: Change, B: Change> Change for Both<A, B>
where
    A::Output: Sync,
{
    type Output = A::Output;
    const LOCKS_HEAD: bool = A::LOCKS_HEAD || B::LOCKS_HEAD;

    fn gives_names(&self) -> bool {
        self.0.gives_names() || self.1.gives_names()
    }

    async fn apply(&self, tx: &mut store::Tx<'_>) -> Result<A::Output, store::StoreError> {
        let output = self.0.apply(tx).await?;
        if A::happened(&output) {
            self.1.apply(tx).await?;
        }
        Ok(output)
    }

    fn happened(output: &Self::Output) -> bool {
        A::happened(output)
    }
}

/// An instant on the wire: whole seconds since 1970.
fn seconds(at: Timestamp) -> u64 {
    at.as_secs()
}
