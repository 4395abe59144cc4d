//! Conflicts: imported accounts whose id, name or address another account has.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::ImportedUser;
use crate::columns::placeholders;
use crate::error::StoreError;
use crate::name_conflicts::ConflictingAccount;
use crate::names::{comparison_form, lowercase};
use crate::writer::Tx;

/// Most conflicts that are listed.
pub const MAX_CONFLICTS: usize = 50;

/// The conflicts of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportConflicts {
    /// The first ones, at most [`MAX_CONFLICTS`].
    pub first: Vec<ImportConflict>,
    /// Number of all.
    pub total: u64,
}

impl ImportConflicts {
    /// Counts conflicts, and keeps the first.
    pub(super) fn add(&mut self, found: Vec<ImportConflict>) {
        self.total += found.len() as u64;
        let room = MAX_CONFLICTS - self.first.len();
        self.first.extend(found.into_iter().take(room));
    }
}

/// Something that cannot be imported beside what exists, or what was imported before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportConflict {
    /// The id of an account is in use, by an account or by a client: a client that gets tokens for
    /// itself is their subject.
    SameId(ConflictingAccount),
    /// The name of the first account is equivalent to a name or an address of the second.
    Name(ConflictingAccount, ConflictingAccount),
    /// The same for the address of the first.
    Address(ConflictingAccount, ConflictingAccount),
}

impl fmt::Display for ImportConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameId(user) => {
                write!(f, "the id of user {user} is in use: it was imported before, or belongs to a client")
            }
            Self::Name(user, other) => {
                write!(
                    f,
                    "the name of user {user} is a name or an address of user {other}: rename one of them"
                )
            }
            Self::Address(user, other) => write!(
                f,
                "the address of user {user} is a name or an address of user {other}: change one of them"
            ),
        }
    }
}

/// A user without conflicts, with the comparison forms of name and address.
pub(super) struct CheckedUser {
    pub(super) user: ImportedUser,
    pub(super) name_fold: String,
    pub(super) email_fold: Option<String>,
}

/// Separates users without conflicts from the conflicts of the others. The transaction holds the
/// lock of names.
pub(super) async fn find(
    tx: &mut Tx<'_>,
    users: Vec<ImportedUser>,
) -> Result<(Vec<CheckedUser>, Vec<ImportConflict>), StoreError> {
    let forms = |user: ImportedUser| CheckedUser {
        name_fold: comparison_form(&user.user.name),
        email_fold: user.user.email.as_deref().map(comparison_form),
        user,
    };
    let users: Vec<CheckedUser> = users.into_iter().map(forms).collect();
    let mut taken = Taken::read(tx, &users).await?;
    let (mut accepted, mut conflicts) = (Vec::with_capacity(users.len()), Vec::new());
    for user in users {
        let mut found = taken.conflicts_of(&user);
        if found.is_empty() {
            taken.add(&user);
            accepted.push(user);
        } else {
            conflicts.append(&mut found);
        }
    }
    Ok((accepted, conflicts))
}

/// Ids, names and addresses in use, as far as they matter for a batch.
struct Taken {
    ids: BTreeSet<String>,
    /// Accounts by the comparison forms of their names and addresses. Spellings that are equal in
    /// lower case have one form.
    by_form: HashMap<String, ConflictingAccount>,
}

impl Taken {
    async fn read(tx: &mut Tx<'_>, users: &[CheckedUser]) -> Result<Self, StoreError> {
        let ids: BTreeSet<&str> = users.iter().map(|user| &*user.user.user.id).collect();
        let mut texts = BTreeSet::new();
        for CheckedUser { user, name_fold, email_fold } in users {
            // Rows of an earlier version have their key only.
            texts.extend([lowercase(&user.user.name), name_fold.clone()]);
            texts.extend(user.user.email.as_deref().map(lowercase));
            texts.extend(email_fold.clone());
        }
        let mut taken = Self { ids: BTreeSet::new(), by_form: HashMap::new() };
        // Few different lengths, so that few statements are prepared.
        let ids = padded(ids.into_iter().map(str::to_owned).collect());
        let texts = padded(texts.into_iter().collect());
        let (id_places, places) = (placeholders(1, ids.len()), placeholders(ids.len() + 1, texts.len()));
        let ask = format!(
            "SELECT id, name, email FROM users WHERE id IN ({id_places}) \
             UNION SELECT id, name, email FROM users WHERE name_key IN ({places}) \
             UNION SELECT id, name, email FROM users WHERE name_fold IN ({places}) \
             UNION SELECT id, name, email FROM users WHERE email_key IN ({places}) \
             UNION SELECT id, name, email FROM users WHERE email_fold IN ({places}) \
             UNION SELECT id, NULL, NULL FROM clients WHERE id IN ({id_places})"
        );
        let mut ask = sqlx::query(sqlx::AssertSqlSafe(ask));
        for text in ids.iter().chain(&texts) {
            ask = ask.bind(text);
        }
        for row in ask.fetch_all(&mut *tx.connection).await? {
            taken.add_row(&row)?;
        }
        Ok(taken)
    }

    /// Adds an account, or a client, which has no name.
    fn add_row(&mut self, row: &AnyRow) -> Result<(), StoreError> {
        let id: String = row.try_get(0)?;
        let (name, email): (Option<String>, Option<String>) = (row.try_get(1)?, row.try_get(2)?);
        for text in [name, email].into_iter().flatten() {
            let account = ConflictingAccount { id: id.clone(), name: text };
            self.by_form.insert(comparison_form(&account.name), account);
        }
        self.ids.insert(id);
        Ok(())
    }

    /// Adds a user of the same batch.
    fn add(&mut self, user: &CheckedUser) {
        let account =
            |name: &str| ConflictingAccount { id: user.user.user.id.clone(), name: name.to_owned() };
        self.ids.insert(user.user.user.id.clone());
        self.by_form.insert(user.name_fold.clone(), account(&user.user.user.name));
        if let (Some(form), Some(email)) = (&user.email_fold, &user.user.user.email) {
            self.by_form.insert(form.clone(), account(email));
        }
    }

    fn conflicts_of(&self, user: &CheckedUser) -> Vec<ImportConflict> {
        let account =
            |name: &str| ConflictingAccount { id: user.user.user.id.clone(), name: name.to_owned() };
        let row = &user.user.user;
        if self.ids.contains(&row.id) {
            return vec![ImportConflict::SameId(account(&row.name))];
        }
        let of_name = self.by_form.get(&user.name_fold);
        let of_name = of_name.map(|other| ImportConflict::Name(account(&row.name), other.clone()));
        let of_email = user.email_fold.as_ref().and_then(|form| self.by_form.get(form));
        let of_email = of_email.zip(row.email.as_deref());
        let of_email = of_email.map(|(other, email)| ImportConflict::Address(account(email), other.clone()));
        of_name.into_iter().chain(of_email).collect()
    }
}

/// The texts, with the last one repeated up to a power of two.
fn padded(mut texts: Vec<String>) -> Vec<String> {
    let length = texts.len().next_power_of_two();
    if let Some(last) = texts.last().cloned() {
        texts.resize(length, last);
    }
    texts
}
