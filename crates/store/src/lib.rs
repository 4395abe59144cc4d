//! Durable facts: who there is, what they were granted, what was revoked.
//!
//! Owns: the schema and its migrations, every statement of SQL, transactions, and the log of revocations that caches
//! follow. Runs on SQLite (one node, one file) and on PostgreSQL (shared by nodes), with the same statements and the
//! same tests; where the two differ stands in [`Dialect`] alone.
//!
//! Does not own: what facts mean. Secrets arrive here as digests, settings and claims as text, tags ready-made; the
//! time is an argument of everything.
//!
//! Flow: `a read → a connection → one statement`; `a Change → Store::write → a transaction shared with others → durable
//! → answer`. A change that revokes appends to the log in the same transaction, so the log tells exactly what is.
//!
//! A change that grants something holds the account and the session it is granted in until it is durable: whoever ends them
//! waits, and finds it. So nothing outlives what it was granted in, whichever node granted it.
//!
//! One file per aggregate, with its row, its reads on [`Store`] and its changes: [`users`], [`attempts`], [`groups`],
//! [`clients`], [`sessions`], [`consents`], [`families`] and the tokens that belong to them: [`codes`], [`refresh_tokens`],
//! [`access_tokens`], [`device_codes`], [`pushed_requests`], [`seen`], [`deliveries`], [`key_ring`]; how they follow from
//! each other: [`redeem`]; what a token that is not stored is worth: [`standing`]. Whatever an operator should find later is
//! told in the [`audit`] log, in the same transaction. Who follows the log of revocations is in [`followers`]; what a database says that is certain to be in force, in `proof`. All of that is the
//! provider's; a gateway that logs people in keeps [`login_sessions`], in the same database or in one of its own, and what issuers elsewhere
//! tell it, in the log. Who elsewhere is told of the provider's events finds them in words: [`security_events`]. All of it at once is a
//! [`mod@copy`].

pub mod access_tokens;
mod announcements;
pub mod attempts;
pub mod audit;
pub mod backup;
pub mod clients;
pub mod codes;
pub mod consents;
pub mod deliveries;
pub mod device_codes;
mod dialect;
mod error;
mod expiry;
pub mod families;
mod follow;
pub mod followers;
pub mod groups;
mod health;
pub mod invalidation;
pub mod jwt_status;
pub mod key_ring;
pub mod login_endings;
pub mod login_sessions;
mod logins;
mod migrations;
pub mod name_conflicts;
pub mod names;
mod open;
mod pooled;
mod proof;
mod prove;
pub mod pushed_requests;
mod readers;
pub mod redeem;
pub mod refresh_tokens;
pub mod replay_guard;
pub mod security_events;
pub mod sessions;
mod shared;
mod store;
pub mod users;
mod value;
mod write;

pub use dialect::{Dialect, sqlite_url};
pub use error::StoreError;
pub use expiry::ExpiredRows;
pub use health::{StorageHealth, outage_of};
pub use invalidation::{
    AnnouncedAppend, AnnouncedEvent, Denied, Epoch, LogHead, ProveHead, Revocation, RevocationReach, Tag,
};
pub use migrations::{Migrated, MigrationFailed};
pub use open::OpenError;
pub use store::Store;
pub use value::StoredDigest;
pub use write::{Change, PATIENCE, Tx};
