//! Whose a name or address is that somebody types, and that nobody else is given it.
//!
//! Owns: finding the account of a name or address, and the one statement that keeps two accounts from being given the same. Does not
//! own: which spellings are the same ([`crate::names`]), accounts ([`crate::users`]).
//!
//! Accounts of before there were forms of names may share one. Each of them is found by its name as it is kept, which nobody shares;
//! by a spelling that is only like it, one that is alone is found, and of several none.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::error::StoreError;
use crate::names::{folded, lower};
use crate::store::Store;
use crate::users::{COLUMN_COUNT, COLUMNS, StoredPassword, UserRow};
use crate::value::timestamp;
use crate::write::Tx;

/// Accounts that are looked at for one name. More than two that share a form, and not the name, are none in any case.
const LOOKED_AT: i64 = 16;

/// An account with the password that its owner must know.
type LoginRow = (UserRow, Option<StoredPassword>);

/// By what an account is found, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FoundLogin {
    /// Its name, as it is kept.
    Name,
    /// Its address, as it is kept.
    Address,
    /// Another spelling of its name.
    LikeName,
    /// Another spelling of its address.
    LikeAddress,
}

/// What is typed, in the forms that are compared.
struct Typed {
    lower: String,
    folded: String,
}

impl Typed {
    fn new(text: &str) -> Self {
        Self { lower: lower(text), folded: folded(text) }
    }

    /// Whether this text, as a name or an address, is what is typed, however it is spelt.
    fn is(&self, text: &str) -> bool {
        lower(text) == self.lower || folded(text) == self.folded
    }

    fn finds_name(&self, user: &UserRow) -> Option<FoundLogin> {
        if lower(&user.name) == self.lower {
            Some(FoundLogin::Name)
        } else {
            (folded(&user.name) == self.folded).then_some(FoundLogin::LikeName)
        }
    }

    /// An address counts only when it is known to be theirs.
    fn finds_address(&self, user: &UserRow) -> Option<FoundLogin> {
        let address = user.email.as_deref().filter(|_| user.email_verified_at.is_some())?;
        if lower(address) == self.lower {
            Some(FoundLogin::Address)
        } else {
            (folded(address) == self.folded).then_some(FoundLogin::LikeAddress)
        }
    }
}

/// What is found best; of several that are only alike, none.
fn best(found: impl IntoIterator<Item = (Option<FoundLogin>, LoginRow)>) -> Option<LoginRow> {
    let mut best: Option<(FoundLogin, LoginRow)> = None;
    let mut alone = true;
    for (by, login) in found {
        let Some(by) = by else { continue };
        match &best {
            Some((held, _)) if by > *held => {}
            Some((held, _)) if by == *held => alone = false,
            _ => (best, alone) = (Some((by, login)), true),
        }
    }
    best.filter(|_| alone).map(|(_, login)| login)
}

impl Store {
    /// A user by name, however it is spelt; an address is none.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn user_by_name(&self, name: &str) -> Result<Option<UserRow>, StoreError> {
        let typed = Typed::new(name);
        let condition = "u.name_key IN ($1, $2) OR u.name_fold = $2";
        let found = self.users_where(condition, &typed).await?;
        let by = |login: LoginRow| (typed.finds_name(&login.0), login);
        Ok(best(found.into_iter().map(by)).map(|(user, _)| user))
    }

    /// Who logs in by this name or address, with the password they must know. What is kept so comes before what is spelt otherwise, and a name
    /// before an address.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn user_by_login(&self, login: &str) -> Result<Option<LoginRow>, StoreError> {
        let typed = Typed::new(login);
        // One question, whichever it is: how long it takes tells nobody.
        let condition =
            "u.name_key IN ($1, $2) OR u.name_fold = $2 OR u.email_key IN ($1, $2) OR u.email_fold = $2";
        let found = self.users_where(condition, &typed).await?;
        let by = |login: LoginRow| {
            let found = [typed.finds_name(&login.0), typed.finds_address(&login.0)];
            (found.into_iter().flatten().min(), login)
        };
        Ok(best(found.into_iter().map(by)))
    }

    async fn users_where(&self, condition: &'static str, typed: &Typed) -> Result<Vec<LoginRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS}, u.password, u.password_changed_at FROM users u WHERE {condition} \
             ORDER BY CASE WHEN u.name_key = $1 THEN 0 WHEN u.email_key = $1 THEN 1 ELSE 2 END LIMIT $3"
        )))
        .bind(&typed.lower)
        .bind(&typed.folded)
        .bind(LOOKED_AT);
        self.readers().all(ask).await?.iter().map(read).collect()
    }
}

/// From a row that begins with [`COLUMNS`].
pub(crate) fn read(row: &AnyRow) -> Result<LoginRow, StoreError> {
    let phc: Option<String> = row.try_get(COLUMN_COUNT)?;
    let changed_at = timestamp(row.try_get::<Option<i64>, _>(COLUMN_COUNT + 1)?.unwrap_or(0));
    Ok((UserRow::read(row)?, phc.map(|phc| StoredPassword { phc, changed_at })))
}

impl Tx<'_> {
    /// Until the transaction has ended nobody else is given a name. It is taken before everything else of the transaction
    /// ([`crate::Change::gives_names`]), and once.
    pub(crate) async fn lock_names(&mut self) -> Result<(), StoreError> {
        if std::mem::replace(&mut self.names_locked, true) {
            return Ok(());
        }
        // A statement of its own: what follows sees what others did who had the lock before.
        let locked = sqlx::query("UPDATE names_given SET times = times + 1 WHERE id = 1")
            .execute(&mut *self.connection)
            .await?;
        if locked.rows_affected() != 1 {
            return Err(sqlx::Error::RowNotFound.into());
        }
        Ok(())
    }

    /// Makes sure that nobody but this user has one of these names and addresses, as a name or as an address, in whatever spelling;
    /// until the transaction has ended nobody is given another one.
    ///
    /// # Errors
    /// [`StoreError::Taken`]
    pub(crate) async fn give_names(&mut self, user_id: &str, names: &[&str]) -> Result<(), StoreError> {
        if names.is_empty() {
            return Ok(());
        }
        self.lock_names().await?;
        for name in names {
            let typed = Typed::new(name);
            let others = sqlx::query(
                "SELECT o.name, o.email FROM users o WHERE o.id <> $1 AND (o.name_key IN ($2, $3) OR o.name_fold = $3 \
                 OR o.email_key IN ($2, $3) OR o.email_fold = $3)",
            )
            .bind(user_id)
            .bind(&typed.lower)
            .bind(&typed.folded)
            .fetch_all(&mut *self.connection)
            .await?;
            for other in others {
                // A program of the former version gives names without forms, and leaves those of the names before.
                let (name, email): (String, Option<String>) = (other.try_get(0)?, other.try_get(1)?);
                if typed.is(&name) || email.is_some_and(|email| typed.is(&email)) {
                    return Err(StoreError::Taken("the user's name or address"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use auth::time::Timestamp;

    use super::*;

    fn login(id: &str, name: &str, email: Option<&str>) -> LoginRow {
        let at = Timestamp::from_secs(1_800_000_000);
        let user = UserRow {
            id: id.into(),
            name: name.into(),
            email: email.map(Into::into),
            email_verified_at: Some(at),
            claims: "{}".into(),
            created_at: at,
            updated_at: at,
            disabled_at: None,
            tokens_not_before: at,
            read_at: at,
        };
        (user, None)
    }

    fn found(typed: &str, logins: &[LoginRow]) -> Option<String> {
        let typed = Typed::new(typed);
        let by = |login: &LoginRow| {
            let found = [typed.finds_name(&login.0), typed.finds_address(&login.0)];
            (found.into_iter().flatten().min(), login.clone())
        };
        best(logins.iter().map(by)).map(|(user, _)| user.id)
    }

    #[test]
    fn who_shares_a_form_is_found_as_kept_and_not_by_what_is_only_alike() {
        let wide = login("wide", "\u{ff4e}\u{ff4f}\u{ff52}\u{ff41}", None);
        let composed = login("composed", "Zo\u{eb}", None);
        let apart = login("apart", "Zoe\u{308}", None);
        let all = [login("nora", "Nora", None), wide.clone(), apart.clone()];
        assert_eq!(found("NORA", &all).as_deref(), Some("nora"));
        assert_eq!(found(&wide.0.name, &all).as_deref(), Some("wide"));
        assert_eq!(found("\u{ff2e}ora", &all), None, "it is like both, and neither's");
        assert_eq!(found("zo\u{eb}", &all).as_deref(), Some("apart"), "the only one it is like");
        let all = [composed, apart];
        assert_eq!(found("zo\u{eb}", &all).as_deref(), Some("composed"));
        assert_eq!(found("Zoe\u{308}", &all).as_deref(), Some("apart"));
    }

    #[test]
    fn a_name_comes_before_an_address_and_what_is_kept_before_what_is_alike() {
        let all = [login("address", "bob", Some("n@x.example")), login("name", "N@x.example", None)];
        assert_eq!(found("n@X.example", &all).as_deref(), Some("name"));
        let wide = login("wide", "n\u{ff20}x.example", None);
        let all = [wide.clone(), all[0].clone()];
        assert_eq!(found("n@x.example", &all).as_deref(), Some("address"), "as it is kept");
        assert_eq!(found(&wide.0.name, &all).as_deref(), Some("wide"));
        let unverified = (UserRow { email_verified_at: None, ..all[1].0.clone() }, None);
        assert_eq!(found("n@x.example", &[unverified]), None);
    }
}
