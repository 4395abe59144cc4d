//! Names and addresses of before there were forms of them: brought into the form in which they are compared, and told of where
//! they are not what may be given.
//!
//! Owns: the forms in rows that were written without, and the list of what an operator has to decide. Does not own: what may be given
//! ([`crate::names`]). Nothing that people type is changed here: accounts go on under their names as they are kept.

use std::collections::BTreeSet;
use std::fmt;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use crate::error::StoreError;
use crate::names::{address, folded, group_name, user_name};
use crate::store::Store;

/// Rows that are read at once.
const PAGE: i64 = 500;
/// Conflicts of one kind that are listed at most.
const LISTED: i64 = 500;
/// Which rows may be compared as another text than stands in their keys.
const ODD: &str = "(octet_length(u.name_key) <> length(u.name_key) OR u.name_key LIKE '%  %' \
     OR octet_length(u.email_key) <> length(u.email_key))";

/// An account that something is to be decided about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Its id.
    pub id: String,
    /// Its name, or its address where that is meant.
    pub name: String,
}

/// Shows what cannot be seen, too.
impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", visible(&self.name), self.id)
    }
}

/// A text in quotation marks, with all that is not ASCII by number: two that look alike are told apart.
fn visible(text: &str) -> String {
    let shown: String = text.escape_default().collect();
    format!("\"{shown}\"")
}

/// Something that was kept before, and could not be made so now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameConflict {
    /// Two accounts whose names are one.
    SameName(Named, Named),
    /// Two accounts whose addresses are one.
    SameAddress(Named, Named),
    /// The name of the first is the address of the second.
    NameIsAddress(Named, Named),
    /// A name that may not be given.
    NameRefused(Named, String),
    /// An address that may not be given.
    AddressRefused(Named, String),
    /// A group whose name may not be given, or is written in another form.
    Group(String, String),
}

impl fmt::Display for NameConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameName(one, other) => write!(
                f,
                "users {one} and {other} have one name: each logs in by the exact spelling only; rename one of them"
            ),
            Self::SameAddress(one, other) => write!(
                f,
                "users {one} and {other} have one address: each logs in by the exact spelling only; change one of them"
            ),
            Self::NameIsAddress(named, addressed) => write!(
                f,
                "the name of user {named} is the address of user {addressed}, who cannot log in by it: rename the first"
            ),
            Self::NameRefused(user, why) => {
                write!(f, "the name of user {user} would be refused now: {why}; rename it")
            }
            Self::AddressRefused(user, why) => {
                write!(f, "the address of user {user} would be refused now: {why}; change it")
            }
            Self::Group(name, why) => {
                write!(
                    f,
                    "the name of group {} would be refused now: {why}; make another group",
                    visible(name)
                )
            }
        }
    }
}

/// Brings names and addresses that were written without into the form in which they are compared.
pub(crate) async fn fill(connection: &mut AnyConnection) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT u.id, u.name_key, u.email_key FROM users u WHERE u.name_fold IS NULL AND {ODD} \
             AND u.id > $1 ORDER BY u.id LIMIT $2"
        )))
        .bind(&after)
        .bind(PAGE)
        .fetch_all(&mut *connection)
        .await?;
        for row in &rows {
            let (id, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let email: Option<String> = row.try_get(2)?;
            sqlx::query(
                "UPDATE users SET name_fold = $4, email_fold = $5 WHERE id = $1 AND name_key = $2 \
                 AND email_key IS NOT DISTINCT FROM $3",
            )
            .bind(&id)
            .bind(&name)
            .bind(&email)
            .bind(folded(&name))
            .bind(email.as_deref().map(folded))
            .execute(&mut *connection)
            .await?;
            after = id;
        }
        if rows.is_empty() {
            return Ok(());
        }
    }
}

impl Store {
    /// What was kept before names had forms, and could not be made so now; the worst first, some hundreds at most.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn name_conflicts(&self) -> Result<Vec<NameConflict>, StoreError> {
        let names = "a.name_fold <> a.name_key AND (b.name_fold = a.name_fold OR b.name_key = a.name_fold)";
        let addresses =
            "a.email_fold <> a.email_key AND (b.email_fold = a.email_fold OR b.email_key = a.email_fold)";
        let both = "(a.name_key LIKE '%@%' OR a.name_fold LIKE '%@%') AND (b.email_key IN (a.name_key, a.name_fold) \
             OR b.email_fold IN (a.name_key, a.name_fold))";
        let mut found = BTreeSet::new();
        for (one, other) in self.pairs("name", "name", names).await? {
            found.insert(NameConflict::SameName(one.clone().min(other.clone()), one.max(other)));
        }
        for (one, other) in self.pairs("email", "email", addresses).await? {
            found.insert(NameConflict::SameAddress(one.clone().min(other.clone()), one.max(other)));
        }
        for (named, addressed) in self.pairs("name", "email", both).await? {
            found.insert(NameConflict::NameIsAddress(named, addressed));
        }
        self.refused(&mut found).await?;
        self.refused_groups(&mut found).await?;
        Ok(found.into_iter().collect())
    }

    /// Pairs of accounts, each with one of its columns.
    async fn pairs(
        &self,
        of_a: &str,
        of_b: &str,
        condition: &str,
    ) -> Result<Vec<(Named, Named)>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT a.id, a.{of_a}, b.id, b.{of_b} FROM users a JOIN users b ON b.id <> a.id AND {condition} \
             ORDER BY a.id, b.id LIMIT $1"
        )))
        .bind(LISTED);
        let named = |row: &AnyRow, at: usize| {
            Ok::<_, StoreError>(Named { id: row.try_get(at)?, name: row.try_get(at + 1)? })
        };
        self.readers().all(ask).await?.iter().map(|row| Ok((named(row, 0)?, named(row, 2)?))).collect()
    }

    async fn refused(&self, found: &mut BTreeSet<NameConflict>) -> Result<(), StoreError> {
        let (mut after, before) = (String::new(), found.len());
        loop {
            let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
                "SELECT u.id, u.name, u.email FROM users u WHERE {ODD} AND u.id > $1 ORDER BY u.id LIMIT $2"
            )))
            .bind(&after)
            .bind(PAGE);
            let rows = self.readers().all(ask).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            for row in &rows {
                let (id, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
                if let Err(fault) = user_name(&name) {
                    found
                        .insert(NameConflict::NameRefused(Named { id: id.clone(), name }, fault.to_string()));
                }
                if let Some(email) = row.try_get::<Option<String>, _>(2)?
                    && let Err(fault) = address(&email)
                {
                    found.insert(NameConflict::AddressRefused(Named { id, name: email }, fault.to_string()));
                }
            }
            if found.len() - before > usize::try_from(LISTED).unwrap_or(usize::MAX) {
                return Ok(());
            }
            after = last.try_get(0)?;
        }
    }

    async fn refused_groups(&self, found: &mut BTreeSet<NameConflict>) -> Result<(), StoreError> {
        let ask = sqlx::query(
            "SELECT g.name FROM user_groups g WHERE octet_length(g.name) <> length(g.name) ORDER BY g.name LIMIT $1",
        )
        .bind(LISTED);
        for row in self.readers().all(ask).await? {
            let name: String = row.try_get(0)?;
            let why = match group_name(&name) {
                Ok(kept) if kept == name => continue,
                Ok(kept) => format!("it is written {} now", visible(&kept)),
                Err(fault) => fault.to_string(),
            };
            found.insert(NameConflict::Group(name, why));
        }
        Ok(())
    }
}
