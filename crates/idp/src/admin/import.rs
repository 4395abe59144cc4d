//! Import of accounts from another provider, with their ids and password hashes.
//!
//! Accounts are checked and written one batch after the other, in one transaction, so their number
//! does not matter for memory. After a fault the rest is still checked: an import is repeated until it
//! has none, so one fault at a time would be tedious.

use std::collections::{BTreeMap, BTreeSet};

use auth::time::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use store::account_import::{
    AccountImportError, ImportCounts, ImportEnd, ImportedConsent, ImportedRow, ImportedUser,
};
use store::users::{StoredPassword, UserRow};

use super::{Admin, Refused, check};
use crate::passwords::Phc;

/// Longest id of an account in bytes.
const MAX_ID: usize = 128;
/// Most refused values that are listed.
pub const MAX_REFUSED: usize = 50;

/// Hash of a password, as it is stored. `Debug` omits it.
#[derive(Clone)]
pub struct PasswordHash {
    /// A PHC string that [`Phc::parse`] accepts.
    pub phc: String,
    /// When the password was set; `None`: now.
    pub changed_at: Option<Timestamp>,
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// An account of another provider.
#[derive(Debug, Clone)]
pub struct ForeignAccount {
    /// Its id, the `sub` of tokens: 1 to 128 visible ASCII characters.
    pub id: String,
    /// Login name.
    pub name: String,
    /// Email address.
    pub email: Option<String>,
    /// Whether the address is verified.
    pub email_verified: bool,
    /// Further claims and attributes.
    pub claims: Map<String, Value>,
    /// When it was created; `None`: now.
    pub created_at: Option<Timestamp>,
    /// Whether it is disabled.
    pub is_disabled: bool,
    /// Whether the user must choose a new password at the next login.
    pub must_change_password: bool,
    /// Its password; without one the user cannot log in by password.
    pub password: Option<PasswordHash>,
    /// Names of its groups.
    pub groups: Vec<String>,
    /// Consents: client, scopes, and when they were given (`None`: now).
    pub consents: Vec<(String, Vec<String>, Option<Timestamp>)>,
}

/// What is imported, and how.
pub struct ForeignAccounts<'a> {
    /// The accounts, which are read one by one; an error ends the import. The iterator may block.
    pub accounts: &'a mut (dyn Iterator<Item = Result<ForeignAccount, String>> + Send),
    /// All groups that the accounts are in, and others without members.
    pub groups: BTreeSet<String>,
    /// From what they come, for the audit log.
    pub source: String,
    /// Whether to do everything but commit.
    pub is_trial: bool,
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportFault {
    /// Values are refused. The path of each begins with the name of the account.
    #[error("{} values are refused", .0.total)]
    Refused(RefusedValues),
    /// The random source failed.
    #[error(transparent)]
    Entropy(#[from] crate::EntropyFailed),
    /// Accounts conflict with others, or the database failed.
    #[error(transparent)]
    Store(#[from] AccountImportError),
}

/// Values that are refused.
#[derive(Debug, Default)]
pub struct RefusedValues {
    /// The first ones, at most [`MAX_REFUSED`].
    pub first: Vec<Refused>,
    /// Number of all.
    pub total: u64,
}

impl RefusedValues {
    fn add(&mut self, found: Vec<Refused>) {
        self.total += found.len() as u64;
        let room = MAX_REFUSED - self.first.len();
        self.first.extend(found.into_iter().take(room));
    }
}

impl Admin<'_> {
    /// Imports accounts, groups, memberships and consents in one transaction: all or none. Accounts
    /// are checked as they are read; after a fault the rest is still checked, and nothing is written.
    ///
    /// # Errors
    /// [`ImportFault`] with the number of all faults, and the first of them.
    pub async fn import_accounts(&self, import: ForeignAccounts<'_>) -> Result<ImportCounts, ImportFault> {
        let ForeignAccounts { accounts, groups: names, source, is_trial } = import;
        let now = self.now();
        let mut found = Vec::new();
        let groups = group_forms(&names, &mut found);
        // Without its groups no account can be written; it is still checked.
        let has_groups = found.is_empty();
        let mut refused = RefusedValues::default();
        refused.add(found);
        let refused = Mutex::new(refused);
        let mut rows = Vec::with_capacity(groups.len());
        for name in groups.values().filter(|_| has_groups) {
            rows.push(ImportedRow::Group { id: self.provider.draw_id()?, name: name.clone() });
        }
        // A refused account is left out, and the transaction ends without a trace.
        let users = accounts.filter_map(|account| {
            let account = match account {
                Ok(account) => account,
                Err(why) => return Some(Err(why)),
            };
            let own = self.check_account(&account, &groups);
            if own.is_empty() && has_groups {
                return Some(Ok(ImportedRow::User(Box::new(imported_user(account, &groups, now)))));
            }
            refused.lock().add(own);
            None
        });
        let decide = |counts: &ImportCounts| {
            if is_trial || refused.lock().total > 0 {
                return ImportEnd::RollBack;
            }
            let detail = json!({ "source": source, "users": counts.users, "groups": counts.groups });
            ImportEnd::Commit(vec![self.entry("user.import", "users".to_owned(), &detail)])
        };
        let mut rows = rows.into_iter().map(Ok).chain(users);
        let imported = self.provider.store().import_accounts(&mut rows, now, decide).await;
        drop(rows);
        let refused = refused.into_inner();
        match imported {
            // What is refused is changed first: it may be what conflicts.
            Ok(_) | Err(AccountImportError::Conflicts(_)) if refused.total > 0 => {
                Err(ImportFault::Refused(refused))
            }
            imported => Ok(imported?),
        }
    }

    /// Checks what the database does not check. The path of a fault begins with the account's name.
    fn check_account(&self, account: &ForeignAccount, groups: &BTreeMap<String, String>) -> Vec<Refused> {
        let mut own = Vec::new();
        check::user_name(&account.name, &mut own);
        check::email(account.email.as_deref(), &mut own);
        check::claims(&account.claims, self.attributes(), &mut own);
        if !(1..=MAX_ID).contains(&account.id.len()) || !account.id.bytes().all(|b| b.is_ascii_graphic()) {
            own.push(Refused::new("id", format!("an id has 1 to {MAX_ID} visible ascii characters")));
        }
        // Both are the `sub` of tokens. The store knows only the clients that it has itself.
        if self.provider.clients().is_configured(&account.id) {
            let reason =
                format!("a client of the configuration has the id {:?}: rename the client", account.id);
            own.push(Refused::new("id", reason));
        }
        if let Some(Err(fault)) = account.password.as_ref().map(|password| Phc::parse(&password.phc)) {
            own.push(Refused::new("password", fault.to_string()));
        }
        if let Some(group) = account.groups.iter().find(|group| !groups.contains_key(*group)) {
            own.push(Refused::new("groups", format!("the group {group:?} is not one of the import's")));
        }
        let whose = |fault: Refused| Refused::new(format!("{}, {}", account.name, fault.path), fault.reason);
        own.into_iter().map(whose).collect()
    }
}

/// A checked account as a row.
fn imported_user(account: ForeignAccount, groups: &BTreeMap<String, String>, now: Timestamp) -> ImportedUser {
    let consents = account.consents.into_iter().map(|(client_id, scopes, given_at)| ImportedConsent {
        client_id,
        scopes: scopes.join(" "),
        given_at: given_at.unwrap_or(now),
    });
    let own_groups: BTreeSet<&String> = account.groups.iter().filter_map(|group| groups.get(group)).collect();
    ImportedUser {
        consents: consents.collect(),
        groups: own_groups.into_iter().cloned().collect(),
        password: account.password.map(|password| StoredPassword {
            phc: password.phc,
            changed_at: password.changed_at.unwrap_or(now),
        }),
        user: UserRow {
            id: account.id,
            name: check::user_name(&account.name, &mut Vec::new()),
            email_verified_at: (account.email.is_some() && account.email_verified).then_some(now),
            email: account.email,
            claims: Value::Object(account.claims).to_string(),
            created_at: account.created_at.unwrap_or(now),
            updated_at: now,
            disabled_at: account.is_disabled.then_some(now),
            must_change_password_at: account.must_change_password.then_some(now),
            tokens_not_before: Timestamp::from_millis(0),
            read_at: Timestamp::from_millis(0),
        },
    }
}

/// The stored form of each group's name. Two groups never become one: their members would get the
/// rights of both.
fn group_forms(names: &BTreeSet<String>, faults: &mut Vec<Refused>) -> BTreeMap<String, String> {
    let (mut forms, mut taken) = (BTreeMap::new(), BTreeMap::new());
    for name in names {
        let mut own = Vec::new();
        let form = check::group_name(name, &mut own);
        faults.extend(own.into_iter().map(|fault| Refused::new(format!("group {name:?}"), fault.reason)));
        if let Some(other) = taken.insert(form.clone(), name) {
            let reason = format!("the group {other:?} has an equivalent name: rename one");
            faults.push(Refused::new(format!("group {name:?}"), reason));
        }
        forms.insert(name.clone(), form);
    }
    forms
}
