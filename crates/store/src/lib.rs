//! Store: the durable state of the provider and of gateway logins, in SQLite or PostgreSQL.
//!
//! Holds accounts, clients, grants, sessions and what was revoked.
//!
//! Owns: the schema and its migrations, every SQL statement, transactions, and the revocation log
//! that caches follow. SQLite serves one node from one file; PostgreSQL is shared by nodes. Both
//! run the same statements and the same tests; [`Dialect`] holds all differences.
//!
//! Does not own: what the data means. Secrets arrive here as digests, settings and claims as text,
//! tags ready-made. Every call takes the current time as an argument.
//!
//! Flow of a read: a pooled connection, one statement. Flow of a [`Change`]: [`Store::write`], a
//! transaction shared with other changes, the commit, the result. A change that revokes appends to
//! the log in the same transaction, so the log and the tables always agree.
//!
//! A change that grants something locks the account and the session of the grant until it is
//! durable. A concurrent change that ends them waits for the lock, then finds the grant. So no
//! grant of any node outlives its account or session.
//!
//! One file per aggregate, with its row, its reads on [`Store`] and its changes:
//!
//! - The provider's accounts and clients: [`users`], [`login_attempts`], [`groups`], [`clients`],
//!   [`sessions`], [`consents`].
//! - Grants: [`families`] and the tokens that belong to them ([`codes`], [`refresh_tokens`],
//!   [`access_tokens`], [`device_codes`], [`pushed_requests`]), how one follows from another
//!   ([`redeem`]), and the status of a token that is not stored ([`jwt_status`]).
//! - Single use, deliveries and keys: [`replay_guard`], [`deliveries`], [`mail_queue`], [`key_ring`].
//! - The record for operators, written in the same transaction: [`audit`], who receives it:
//!   [`audit_receivers`], and how long it is kept: [`audit_retention`].
//! - Consumers of the revocation log: [`followers`]; reads that only the current primary can
//!   answer: `proof`.
//! - Events for other services, in readable form: [`security_events`].
//! - A gateway's own sessions, in the same database or in a separate one: [`login_sessions`].
//! - The whole database as text: [`mod@backup`]. The accounts of another provider, added to those
//!   that exist: [`account_import`].

pub mod access_tokens;
pub mod account_import;
pub mod account_links;
mod announcements;
pub mod audit;
pub mod audit_receivers;
pub mod audit_retention;
pub mod backup;
pub mod clients;
pub mod codes;
mod columns;
pub mod consents;
mod consumer_queries;
pub mod deliveries;
pub mod device_codes;
mod dialect;
pub mod ended_logins;
mod error;
mod expiry;
pub mod families;
pub mod followers;
pub mod groups;
mod health;
pub mod jwt_status;
pub mod key_ring;
pub mod login_attempts;
mod login_lookup;
pub mod login_sessions;
pub mod mail_queue;
mod migrations;
pub mod name_conflicts;
pub mod names;
mod open;
mod pooled_connection;
mod proof;
mod proven_reads;
pub mod pushed_requests;
mod readers;
pub mod redeem;
pub mod refresh_tokens;
pub mod replay_guard;
pub mod revocation_log;
pub mod security_events;
pub mod sessions;
mod shared_read;
mod store;
pub mod users;
mod writer;

pub use columns::StoredDigest;
pub use dialect::{Dialect, sqlite_url};
pub use error::StoreError;
pub use expiry::ExpiredRows;
pub use health::{StorageHealth, database_outage};
pub use migrations::{MigrationFailed, MigrationNotes};
pub use open::OpenError;
pub use revocation_log::{
    AppendedEvent, DenylistRow, Epoch, LogHead, ProveHead, Revocation, RevocationEvent, RevocationReach, Tag,
};
pub use store::Store;
pub use writer::{Change, Tx, WRITE_TIMEOUT};
