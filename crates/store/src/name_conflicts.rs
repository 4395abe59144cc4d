//! Name conflicts: adds comparison forms to names and addresses that were stored before such forms
//! existed, and reports those that would be refused now.
//!
//! Owns: the forms of those rows, and the list of conflicts for an operator to resolve. Does not
//! own: which names are allowed ([`crate::names`]). It never changes a name or address itself:
//! accounts keep them as stored.

use std::collections::BTreeSet;
use std::fmt;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use crate::columns::{batches, value_tuples};
use crate::error::StoreError;
use crate::names::{address, comparison_form, group_name, user_name};
use crate::store::Store;
use crate::writer::{Change, Tx};

/// Rows that are read and updated at once.
const PAGE: i64 = 128;
/// Rows that one statement searches for conflicts, so its duration does not depend on their total
/// number.
const SEARCH_PAGE: i64 = 1000;
/// Retries of an update that was aborted in favour of another transaction.
const RETRIES: usize = 3;
/// Maximum number of reported conflicts of one kind.
const MAX_PER_KIND: usize = 500;
/// SQL condition: rows whose comparison form may differ from their key.
const MAY_DIFFER: &str = "(octet_length(u.name_key) <> length(u.name_key) OR u.name_key LIKE '%  %' \
     OR octet_length(u.email_key) <> length(u.email_key))";

/// An account in a conflict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConflictingAccount {
    /// Id of the account.
    pub id: String,
    /// Its name, or its address if the conflict is about the address.
    pub name: String,
}

/// Escapes invisible characters.
impl fmt::Display for ConflictingAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", escaped(&self.name), self.id)
    }
}

/// The text in quotation marks, with non-ASCII characters escaped by number, so that look-alikes
/// can be distinguished.
fn escaped(text: &str) -> String {
    let shown: String = text.escape_default().collect();
    format!("\"{shown}\"")
}

/// A stored name or address that would be refused now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameConflict {
    /// Two accounts have equivalent names.
    SameName(ConflictingAccount, ConflictingAccount),
    /// Two accounts have equivalent addresses.
    SameAddress(ConflictingAccount, ConflictingAccount),
    /// The name of the first account is equivalent to the address of the second.
    NameIsAddress(ConflictingAccount, ConflictingAccount),
    /// A name that is not allowed, and why.
    NameRefused(ConflictingAccount, String),
    /// An address that is not allowed, and why.
    AddressRefused(ConflictingAccount, String),
    /// A group whose name is not allowed or is now stored in another form, and why.
    Group(String, String),
}

impl fmt::Display for NameConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameName(one, other) => write!(
                f,
                "users {one} and {other} have equivalent names and can sign in only with the exact spelling: rename one of them"
            ),
            Self::SameAddress(one, other) => write!(
                f,
                "users {one} and {other} have equivalent addresses and can sign in only with the exact spelling: change one of them"
            ),
            Self::NameIsAddress(named, addressed) => write!(
                f,
                "the name of user {named} is the address of user {addressed}, who cannot sign in with it: rename the first"
            ),
            Self::NameRefused(user, why) => {
                write!(f, "the name of user {user} is no longer allowed: {why}; rename the user")
            }
            Self::AddressRefused(user, why) => {
                write!(f, "the address of user {user} is no longer allowed: {why}; change it")
            }
            Self::Group(name, why) => {
                write!(
                    f,
                    "the name of group {} is no longer allowed: {why}; create another group",
                    escaped(name)
                )
            }
        }
    }
}

/// Adds comparison forms to one page of users: those after `after` whose rows were written without.
/// Returns the id of the last one; `None`: there are no more.
///
/// The index `users_unfolded` contains only such rows, and is empty once all have their forms.
pub(crate) async fn fill_forms(
    connection: &mut AnyConnection,
    after: &str,
) -> Result<Option<String>, StoreError> {
    let rows = sqlx::query(sqlx::AssertSqlSafe(select_unfolded()))
        .bind(after)
        .bind(PAGE)
        .fetch_all(&mut *connection)
        .await?;
    let keys: Vec<Keys> = rows.iter().map(|row| Keys::read(row, 0)).collect::<Result<_, _>>()?;
    let mut retries = 0;
    // Nodes that start together update the same rows, and may deadlock.
    while let Err(error) = write_forms(connection, &keys).await {
        if !error.is_worth_retrying() || retries == RETRIES {
            return Err(error);
        }
        retries += 1;
    }
    Ok(keys.into_iter().next_back().map(|keys| keys.id))
}

/// Statement that reads rows that have no form but may need one.
fn select_unfolded() -> String {
    format!(
        "SELECT u.id, u.name_key, u.email_key FROM users u WHERE u.name_fold IS NULL AND {MAY_DIFFER} \
         AND u.id > $1 ORDER BY u.id LIMIT $2"
    )
}

/// What the forms of an account are computed from.
#[derive(Debug, Clone)]
struct Keys {
    id: String,
    name: String,
    email: Option<String>,
}

impl Keys {
    fn read(row: &AnyRow, at: usize) -> Result<Self, StoreError> {
        Ok(Self { id: row.try_get(at)?, name: row.try_get(at + 1)?, email: row.try_get(at + 2)? })
    }
}

/// Writes the forms of accounts in the order of their ids, unless a name has changed. One statement
/// per batch saves commits.
async fn write_forms(connection: &mut AnyConnection, accounts: &[Keys]) -> Result<(), StoreError> {
    for some in batches(accounts) {
        let update = format!(
            "WITH forms (id, name_key, email_key, name_fold, email_fold) AS (VALUES {}) \
             UPDATE users SET name_fold = forms.name_fold, email_fold = forms.email_fold FROM forms \
             WHERE users.id = forms.id AND users.name_key = forms.name_key \
             AND users.email_key IS NOT DISTINCT FROM forms.email_key",
            value_tuples(some.len(), 5, "")
        );
        let mut update = sqlx::query(sqlx::AssertSqlSafe(update));
        for Keys { id, name, email } in some {
            update = update.bind(id).bind(name).bind(email).bind(comparison_form(name));
            update = update.bind(email.as_deref().map(comparison_form));
        }
        update.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Corrects the forms of accounts: the previous version of the program changes names and leaves
/// their forms.
struct CorrectForms(Vec<Keys>);

impl Change for CorrectForms {
    type Output = ();

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        write_forms(tx.connection, &self.0).await
    }
}

/// Range of user ids: greater than the first, up to and including the second.
type IdRange<'a> = (&'a str, &'a str);

impl Store {
    /// Names and addresses that were stored earlier and would be refused now; the most serious
    /// first, some hundreds at most. Also corrects forms that do not match their names.
    ///
    /// The duration grows with the number of users, but that of each statement does not.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn name_conflicts(&self) -> Result<Vec<NameConflict>, StoreError> {
        let mut conflicts = BTreeSet::new();
        let mut after = String::new();
        while let Some(last) = self.last_of_page(&after).await? {
            self.correct_forms((&after, &last)).await?;
            self.find_conflicts((&after, &last), &mut conflicts).await?;
            after = last;
        }
        self.find_refused_groups(&mut conflicts).await?;
        Ok(conflicts.into_iter().collect())
    }

    /// The last id of the next page of users; `None`: there are no more.
    async fn last_of_page(&self, after: &str) -> Result<Option<String>, StoreError> {
        let ask = sqlx::query(
            "SELECT MAX(p.id) FROM (SELECT u.id FROM users u WHERE u.id > $1 ORDER BY u.id LIMIT $2) p",
        );
        Ok(self.readers().fetch_one(ask.bind(after).bind(SEARCH_PAGE)).await?.try_get(0)?)
    }

    async fn find_conflicts(
        &self,
        users: IdRange<'_>,
        conflicts: &mut BTreeSet<NameConflict>,
    ) -> Result<(), StoreError> {
        let names = "a.name_fold <> a.name_key AND (b.name_fold = a.name_fold OR b.name_key = a.name_fold)";
        let addresses =
            "a.email_fold <> a.email_key AND (b.email_fold = a.email_fold OR b.email_key = a.email_fold)";
        let both = "(a.name_key LIKE '%@%' OR a.name_fold LIKE '%@%') AND (b.email_key IN (a.name_key, a.name_fold) \
             OR b.email_fold IN (a.name_key, a.name_fold))";
        let sorted = |(one, other): (ConflictingAccount, ConflictingAccount)| {
            (one.clone().min(other.clone()), one.max(other))
        };
        let is_full = |conflicts: &BTreeSet<NameConflict>, kind: fn(&NameConflict) -> bool| {
            conflicts.iter().filter(|conflict| kind(conflict)).count() >= MAX_PER_KIND
        };
        if !is_full(conflicts, |conflict| matches!(conflict, NameConflict::SameName(..))) {
            let pairs = self.find_pairs("name", "name", names, users).await?;
            conflicts
                .extend(pairs.into_iter().map(sorted).map(|(one, other)| NameConflict::SameName(one, other)));
        }
        if !is_full(conflicts, |conflict| matches!(conflict, NameConflict::SameAddress(..))) {
            let pairs = self.find_pairs("email", "email", addresses, users).await?;
            conflicts.extend(
                pairs.into_iter().map(sorted).map(|(one, other)| NameConflict::SameAddress(one, other)),
            );
        }
        if !is_full(conflicts, |conflict| matches!(conflict, NameConflict::NameIsAddress(..))) {
            let pairs = self.find_pairs("name", "email", both, users).await?;
            conflicts.extend(
                pairs.into_iter().map(|(named, addressed)| NameConflict::NameIsAddress(named, addressed)),
            );
        }
        if !is_full(conflicts, |conflict| {
            matches!(conflict, NameConflict::NameRefused(..) | NameConflict::AddressRefused(..))
        }) {
            self.find_refused(users, conflicts).await?;
        }
        Ok(())
    }

    /// Pairs of accounts that match the condition, each with one of its columns. The first account
    /// of a pair is in the range.
    async fn find_pairs(
        &self,
        of_a: &str,
        of_b: &str,
        condition: &str,
        (after, last): IdRange<'_>,
    ) -> Result<Vec<(ConflictingAccount, ConflictingAccount)>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT a.id, a.{of_a}, b.id, b.{of_b} FROM users a JOIN users b ON b.id <> a.id AND {condition} \
             WHERE a.id > $1 AND a.id <= $2 ORDER BY a.id, b.id LIMIT $3"
        )))
        .bind(after)
        .bind(last)
        .bind(i64::try_from(MAX_PER_KIND).unwrap_or(i64::MAX));
        let named = |row: &AnyRow, at: usize| {
            Ok::<_, StoreError>(ConflictingAccount { id: row.try_get(at)?, name: row.try_get(at + 1)? })
        };
        self.readers().fetch_all(ask).await?.iter().map(|row| Ok((named(row, 0)?, named(row, 2)?))).collect()
    }

    async fn find_refused(
        &self,
        (after, last): IdRange<'_>,
        conflicts: &mut BTreeSet<NameConflict>,
    ) -> Result<(), StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT u.id, u.name, u.email FROM users u WHERE {MAY_DIFFER} AND u.id > $1 AND u.id <= $2 ORDER BY u.id"
        )))
        .bind(after)
        .bind(last);
        for row in self.readers().fetch_all(ask).await? {
            let (id, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            if let Err(fault) = user_name(&name) {
                conflicts.insert(NameConflict::NameRefused(
                    ConflictingAccount { id: id.clone(), name },
                    fault.to_string(),
                ));
            }
            if let Some(email) = row.try_get::<Option<String>, _>(2)?
                && let Err(fault) = address(&email)
            {
                conflicts.insert(NameConflict::AddressRefused(
                    ConflictingAccount { id, name: email },
                    fault.to_string(),
                ));
            }
        }
        Ok(())
    }

    /// Corrects the forms of users in the range that do not match their names.
    async fn correct_forms(&self, (after, last): IdRange<'_>) -> Result<(), StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT u.id, u.name_key, u.email_key, u.name_fold, u.email_fold FROM users u \
             WHERE ({MAY_DIFFER} OR u.name_fold <> u.name_key OR u.email_fold IS DISTINCT FROM u.email_key) \
             AND u.id > $1 AND u.id <= $2 ORDER BY u.id"
        )))
        .bind(after)
        .bind(last);
        let mut stale = Vec::new();
        for row in self.readers().fetch_all(ask).await? {
            let keys = Keys::read(&row, 0)?;
            let (name, email): (Option<String>, Option<String>) = (row.try_get(3)?, row.try_get(4)?);
            // Without a stored form, the key is the form.
            let fits = name.as_deref().unwrap_or(&keys.name) == comparison_form(&keys.name)
                && email.as_deref().or(keys.email.as_deref())
                    == keys.email.as_deref().map(comparison_form).as_deref();
            if !fits {
                stale.push(keys);
            }
        }
        // The report must also work while the database accepts no changes.
        if !stale.is_empty()
            && let Err(error) = self.write(CorrectForms(stale)).await
        {
            tracing::debug!(%error, "correcting name forms failed");
        }
        Ok(())
    }

    async fn find_refused_groups(&self, conflicts: &mut BTreeSet<NameConflict>) -> Result<(), StoreError> {
        let ask = sqlx::query(
            "SELECT g.name FROM user_groups g WHERE octet_length(g.name) <> length(g.name) ORDER BY g.name LIMIT $1",
        )
        .bind(i64::try_from(MAX_PER_KIND).unwrap_or(i64::MAX));
        for row in self.readers().fetch_all(ask).await? {
            let name: String = row.try_get(0)?;
            let why = match group_name(&name) {
                Ok(kept) if kept == name => continue,
                Ok(kept) => format!("its stored form is now {}", escaped(&kept)),
                Err(fault) => fault.to_string(),
            };
            conflicts.insert(NameConflict::Group(name, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    /// SQLite's plan of a query, one line per step.
    async fn plan(store: &Store, ask: &str) -> Vec<String> {
        let plan = sqlx::query(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {ask}")));
        let steps = store.readers().fetch_all(plan.bind("").bind("").bind(1)).await.unwrap();
        steps.iter().map(|step| step.get("detail")).collect()
    }

    #[tokio::test]
    async fn nobody_is_looked_for_among_all() {
        let folder = tempfile::tempdir().unwrap();
        let url = crate::sqlite_url(&folder.path().join("facts.db"));
        let store = Store::open(&url, Epoch([7; 16])).await.unwrap();
        let found = plan(&store, &select_unfolded()).await;
        assert_eq!(found, ["SEARCH u USING INDEX users_unfolded (id>?)"]);
        let by_form = "SELECT u.id FROM users u WHERE u.name_key IN ($1, $2) OR u.name_fold = $2 \
             OR u.email_key IN ($1, $2) OR u.email_fold = $2 LIMIT $3";
        let found = plan(&store, by_form).await;
        for index in ["users_name_fold", "users_email_fold"] {
            assert!(found.iter().any(|step| step.contains(index)), "{found:?}");
        }
        let pairs = "SELECT a.id FROM users a JOIN users b ON b.id <> a.id AND a.name_fold <> a.name_key \
             AND (b.name_fold = a.name_fold OR b.name_key = a.name_fold) WHERE a.id > $1 AND a.id <= $2 LIMIT $3";
        let found = plan(&store, pairs).await;
        assert!(found.iter().all(|step| !step.starts_with("SCAN")), "{found:?}");
    }
}
