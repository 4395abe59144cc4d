//! Account import: adds the accounts, groups and consents of another provider to this database, in
//! one transaction.
//!
//! Owns: the rows that can be imported, the order in which they arrive, the search for conflicts
//! with accounts that exist, and the transaction. Does not own: where the rows come from, and what
//! the claims and settings in them mean.
//!
//! Unlike [`mod@crate::backup`], an import adds to what is there. So nodes may run meanwhile. They
//! cannot assign names until it ends.
//!
//! 1. The lock of names is taken.
//! 2. Groups arrive, then users. They are checked and written in batches, so the transaction takes
//!    little memory here whatever their number.
//! 3. An account with the id, a name or an address of another one is a conflict. It is not written,
//!    but the rest is still checked, so that all conflicts are counted, and the first ones listed.
//! 4. Without conflicts, the caller sees the counts and decides: commit, or roll back.

mod conflicts;
mod rows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use auth::time::Timestamp;
use sqlx::{AnyPool, Connection as _, Executor as _};

pub use self::conflicts::{ImportConflict, ImportConflicts, MAX_CONFLICTS};
use crate::audit::AuditEntry;
use crate::dialect::{Dialect, Incarnation};
use crate::error::StoreError;
use crate::pooled_connection::PooledConnection;
use crate::users::{StoredPassword, UserRow};
use crate::writer::Tx;

/// How long the server may take for one step, see [`mod@crate::backup`].
const STEP_TIMEOUT: Duration = Duration::from_secs(40);
/// Users that are checked and written together.
const BATCH: usize = 128;

/// Something to import. Groups come before the users in them.
#[derive(Debug, Clone)]
pub enum ImportedRow {
    /// A group. If one of this name exists, it is used.
    Group {
        /// Unique id of a new group.
        id: String,
        /// The name that access rules use, in its stored form ([`crate::names::group_name`]).
        name: String,
    },
    /// A user.
    User(Box<ImportedUser>),
}

/// An account with what belongs to it.
#[derive(Debug, Clone)]
pub struct ImportedUser {
    /// The account. Its name is in its stored form ([`crate::names::user_name`]).
    pub user: UserRow,
    /// The password; without one the user cannot sign in by password.
    pub password: Option<StoredPassword>,
    /// Names of their groups, which have been imported or exist; each once.
    pub groups: Vec<String>,
    /// Consents that they have given, at most one for each client.
    pub consents: Vec<ImportedConsent>,
}

/// A consent of an imported user.
#[derive(Debug, Clone)]
pub struct ImportedConsent {
    /// The client that it was given to.
    pub client_id: String,
    /// Allowed scopes, space-separated.
    pub scopes: String,
    /// When it was last given.
    pub given_at: Timestamp,
}

/// What an import adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Accounts.
    pub users: u64,
    /// Accounts with a password.
    pub passwords: u64,
    /// Accounts that are disabled.
    pub disabled: u64,
    /// New groups.
    pub groups: u64,
    /// Memberships of the new accounts.
    pub memberships: u64,
    /// Consents.
    pub consents: u64,
    /// Names of groups that existed before and that imported users join: they get the rights of these
    /// groups.
    pub joined: BTreeSet<String>,
}

/// How an import without conflicts ends.
#[derive(Debug, Clone)]
pub enum ImportEnd {
    /// It is committed, with these entries in the audit log.
    Commit(Vec<AuditEntry>),
    /// Nothing is changed: a dry run.
    RollBack,
}

/// Why an import failed. Nothing was changed, except after [`AccountImportError::CommitUnknown`].
#[derive(Debug, thiserror::Error)]
pub enum AccountImportError {
    /// The database refused a statement or does not answer.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// The commit was sent, but not answered: either all was imported or nothing was.
    #[error("commit of the import was not answered, it may have succeeded: {0}; inspect the database")]
    CommitUnknown(StoreError),
    /// The rows cannot be read; the caller's reason.
    #[error("{0}")]
    Source(String),
    /// A user is in a group that was neither imported before nor exists; its name.
    #[error("no group {0:?}: import it before its members")]
    UnknownGroup(String),
    /// Ids, names or addresses are in use.
    #[error("{} ids, names or addresses are in use", .0.total)]
    Conflicts(ImportConflicts),
}

/// The state of an import.
struct Import<'t, 'c> {
    tx: &'t mut Tx<'c>,
    now: Timestamp,
    counts: ImportCounts,
    conflicts: ImportConflicts,
    /// Ids of groups by their names.
    groups: HashMap<String, String>,
    /// Names of groups that are not new.
    existing: BTreeSet<String>,
    /// Users to be written with the next batch.
    users: Vec<ImportedUser>,
}

/// Imports rows: see the module. The iterator may block while it reads a file.
pub(crate) async fn run(
    (pool, dialect): (&AnyPool, Dialect),
    rows: &mut (dyn Iterator<Item = Result<ImportedRow, String>> + Send),
    now: Timestamp,
    decide: impl FnOnce(&ImportCounts) -> ImportEnd + Send,
) -> Result<ImportCounts, AccountImportError> {
    let mut loan = run_step(dialect, PooledConnection::acquire(pool)).await?;
    // Dropping the transaction rolls it back.
    let mut transaction = run_step(dialect, loan.connection().begin_with(dialect.begin_write())).await?;
    run_step(dialect, transaction.execute(dialect.relax_timeouts())).await?;
    let mut tx = Tx {
        connection: &mut transaction,
        dialect,
        incarnation: Incarnation::NotReported,
        events: Vec::new(),
        entries: Vec::new(),
        voided: BTreeSet::new(),
        used_sessions: BTreeMap::new(),
        names_locked: false,
        ended_logins: Vec::new(),
    };
    run_step(dialect, tx.lock_names()).await?;
    let mut import = Import {
        tx: &mut tx,
        now,
        counts: ImportCounts::default(),
        conflicts: ImportConflicts::default(),
        groups: HashMap::new(),
        existing: BTreeSet::new(),
        users: Vec::with_capacity(BATCH),
    };
    for row in rows {
        import.add(row.map_err(AccountImportError::Source)?).await?;
    }
    import.write_users().await?;
    let Import { counts, conflicts, .. } = import;
    if conflicts.total > 0 {
        return Err(AccountImportError::Conflicts(conflicts));
    }
    match decide(&counts) {
        ImportEnd::RollBack => {
            run_step(dialect, transaction.rollback()).await?;
        }
        ImportEnd::Commit(entries) => {
            tx.entries = entries;
            run_step(dialect, tx.write_audit_entries()).await?;
            run_step(dialect, transaction.commit()).await.map_err(commit_error)?;
        }
    }
    Ok(counts)
}

/// The error of a commit: a lost answer means that the outcome is unknown, and any other error that
/// nothing was committed.
fn commit_error(error: StoreError) -> AccountImportError {
    match error.into_commit_error() {
        lost @ StoreError::Unavailable(_) => AccountImportError::CommitUnknown(lost),
        refused => AccountImportError::Database(refused),
    }
}

/// Runs one step, with the time limit of [`STEP_TIMEOUT`].
async fn run_step<T, E: Into<StoreError>>(
    dialect: Dialect,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError> {
    dialect.with_timeout(STEP_TIMEOUT, step).await?.map_err(Into::into)
}

impl Import<'_, '_> {
    async fn add(&mut self, row: ImportedRow) -> Result<(), AccountImportError> {
        let dialect = self.tx.dialect;
        match row {
            ImportedRow::Group { id, name } => Ok(run_step(dialect, self.add_group(id, name)).await?),
            ImportedRow::User(user) => {
                self.users.push(*user);
                if self.users.len() == BATCH {
                    self.write_users().await?;
                }
                Ok(())
            }
        }
    }

    /// Checks and writes the collected users.
    async fn write_users(&mut self) -> Result<(), AccountImportError> {
        let users = std::mem::take(&mut self.users);
        if users.is_empty() {
            return Ok(());
        }
        let dialect = self.tx.dialect;
        let (users, found) = run_step(dialect, conflicts::find(self.tx, users)).await?;
        self.conflicts.add(found);
        let mut members = Vec::new();
        for user in &users {
            for group in &user.user.groups {
                let id = match self.groups.get(group) {
                    Some(id) => id.clone(),
                    None => run_step(dialect, self.find_group(group))
                        .await?
                        .ok_or_else(|| AccountImportError::UnknownGroup(group.clone()))?,
                };
                if self.existing.contains(group) && !self.counts.joined.contains(group) {
                    self.counts.joined.insert(group.clone());
                }
                members.push((id, user.user.user.id.as_str()));
            }
        }
        run_step(dialect, rows::insert_users(self.tx, &users)).await?;
        run_step(dialect, rows::insert_members(self.tx, &members)).await?;
        let consents = run_step(dialect, rows::insert_consents(self.tx, &users)).await?;
        let count = |is: fn(&ImportedUser) -> bool| users.iter().filter(|user| is(&user.user)).count() as u64;
        self.counts.users += users.len() as u64;
        self.counts.passwords += count(|user| user.password.is_some());
        self.counts.disabled += count(|user| user.user.disabled_at.is_some());
        self.counts.memberships += members.len() as u64;
        self.counts.consents += consents;
        Ok(())
    }
}
