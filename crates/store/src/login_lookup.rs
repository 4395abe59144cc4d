//! Logins: finds the account of a typed name or address, and keeps names and addresses unique among
//! accounts.
//!
//! Owns: the lookup, and the lock and check that prevent two accounts from getting the same name.
//! Does not own: which spellings are equal ([`crate::names`]), accounts ([`crate::users`]).
//!
//! Accounts from before the comparison forms existed may share one. Each is still found by its
//! exact stored name, which is unique. A spelling that is only equivalent finds an account only if
//! exactly one matches.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::columns::timestamp;
use crate::error::StoreError;
use crate::names::{comparison_form, lowercase};
use crate::store::Store;
use crate::users::{COLUMN_COUNT, COLUMNS, StoredPassword, UserRow};
use crate::writer::Tx;

/// Maximum number of accounts read for one name. If more than two share a form but none has the
/// exact name, none is found anyway.
const MAX_CANDIDATES: i64 = 16;

/// An account with its password.
type LoginRow = (UserRow, Option<StoredPassword>);

/// How an account matches the typed text, the best match first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LoginMatch {
    /// The name as stored, apart from case.
    Name,
    /// The address as stored, apart from case.
    Address,
    /// An equivalent spelling of the name.
    EquivalentName,
    /// An equivalent spelling of the address.
    EquivalentAddress,
}

/// The typed text in the two forms that are compared.
struct TypedLogin {
    lower: String,
    folded: String,
}

impl TypedLogin {
    fn new(text: &str) -> Self {
        Self { lower: lowercase(text), folded: comparison_form(text) }
    }

    /// Whether this name or address is equivalent to the typed text.
    fn matches(&self, text: &str) -> bool {
        lowercase(text) == self.lower || comparison_form(text) == self.folded
    }

    fn match_name(&self, user: &UserRow) -> Option<LoginMatch> {
        if lowercase(&user.name) == self.lower {
            Some(LoginMatch::Name)
        } else {
            (comparison_form(&user.name) == self.folded).then_some(LoginMatch::EquivalentName)
        }
    }

    /// An address matches only if it was verified.
    fn match_address(&self, user: &UserRow) -> Option<LoginMatch> {
        let address = user.email.as_deref().filter(|_| user.email_verified_at.is_some())?;
        if lowercase(address) == self.lower {
            Some(LoginMatch::Address)
        } else {
            (comparison_form(address) == self.folded).then_some(LoginMatch::EquivalentAddress)
        }
    }
}

/// The account with the best match; `None` if several share it.
fn best_match(candidates: impl IntoIterator<Item = (Option<LoginMatch>, LoginRow)>) -> Option<LoginRow> {
    let mut best: Option<(LoginMatch, LoginRow)> = None;
    let mut alone = true;
    for (matched, login) in candidates {
        let Some(matched) = matched else { continue };
        match &best {
            Some((held, _)) if matched > *held => {}
            Some((held, _)) if matched == *held => alone = false,
            _ => (best, alone) = (Some((matched, login)), true),
        }
    }
    best.filter(|_| alone).map(|(_, login)| login)
}

impl Store {
    /// A user by name in any equivalent spelling. Addresses are not compared.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn user_by_name(&self, name: &str) -> Result<Option<UserRow>, StoreError> {
        let typed = TypedLogin::new(name);
        let condition = "u.name_key IN ($1, $2) OR u.name_fold = $2";
        let candidates = self.users_where(condition, &typed).await?;
        let with_match = |login: LoginRow| (typed.match_name(&login.0), login);
        Ok(best_match(candidates.into_iter().map(with_match)).map(|(user, _)| user))
    }

    /// The account that signs in with this name or address, and its password. An exact match has
    /// precedence over an equivalent spelling, and a name over an address.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn user_by_login(&self, login: &str) -> Result<Option<LoginRow>, StoreError> {
        let typed = TypedLogin::new(login);
        // One query for all cases, so its duration does not reveal which of them matched.
        let condition =
            "u.name_key IN ($1, $2) OR u.name_fold = $2 OR u.email_key IN ($1, $2) OR u.email_fold = $2";
        let candidates = self.users_where(condition, &typed).await?;
        let with_match = |login: LoginRow| {
            let matches = [typed.match_name(&login.0), typed.match_address(&login.0)];
            (matches.into_iter().flatten().min(), login)
        };
        Ok(best_match(candidates.into_iter().map(with_match)))
    }

    /// The accounts with this name or address, verified or not, in any equivalent spelling. If the
    /// name of one is this text, apart from case, or else its address, only that one.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn users_named(&self, text: &str) -> Result<Vec<UserRow>, StoreError> {
        let typed = TypedLogin::new(text);
        let condition =
            "u.name_key IN ($1, $2) OR u.name_fold = $2 OR u.email_key IN ($1, $2) OR u.email_fold = $2";
        let candidates = self.users_where(condition, &typed).await?.into_iter().map(|(user, _)| user);
        // The forms of a row may be those of an earlier name.
        let is_meant = |user: &UserRow| {
            typed.matches(&user.name) || user.email.as_deref().is_some_and(|email| typed.matches(email))
        };
        let candidates: Vec<_> = candidates.filter(is_meant).collect();
        let has_name = |user: &&UserRow| lowercase(&user.name) == typed.lower;
        let has_address =
            |user: &&UserRow| user.email.as_deref().is_some_and(|a| lowercase(a) == typed.lower);
        for exact in [
            candidates.iter().filter(has_name).collect::<Vec<_>>(),
            candidates.iter().filter(has_address).collect(),
        ] {
            if let [one] = exact[..] {
                return Ok(vec![one.clone()]);
            }
        }
        Ok(candidates)
    }

    async fn users_where(
        &self,
        condition: &'static str,
        typed: &TypedLogin,
    ) -> Result<Vec<LoginRow>, StoreError> {
        let ask = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS}, u.password, u.password_changed_at FROM users u WHERE {condition} \
             ORDER BY CASE WHEN u.name_key = $1 THEN 0 WHEN u.email_key = $1 THEN 1 ELSE 2 END LIMIT $3"
        )))
        .bind(&typed.lower)
        .bind(&typed.folded)
        .bind(MAX_CANDIDATES);
        self.readers().fetch_all(ask).await?.iter().map(read_login).collect()
    }
}

/// Reads a row that begins with [`COLUMNS`].
pub(crate) fn read_login(row: &AnyRow) -> Result<LoginRow, StoreError> {
    let phc: Option<String> = row.try_get(COLUMN_COUNT)?;
    let changed_at = timestamp(row.try_get::<Option<i64>, _>(COLUMN_COUNT + 1)?.unwrap_or(0));
    Ok((UserRow::read(row)?, phc.map(|phc| StoredPassword { phc, changed_at })))
}

impl Tx<'_> {
    /// Locks the assignment of names until the transaction ends. Taken once per transaction, before
    /// all other locks ([`crate::Change::assigns_names`]).
    pub(crate) async fn lock_names(&mut self) -> Result<(), StoreError> {
        if std::mem::replace(&mut self.names_locked, true) {
            return Ok(());
        }
        // A separate statement: those that follow see what earlier holders of the lock have
        // committed.
        let locked = sqlx::query("UPDATE names_given SET times = times + 1 WHERE id = 1")
            .execute(&mut *self.connection)
            .await?;
        if locked.rows_affected() != 1 {
            return Err(sqlx::Error::RowNotFound.into());
        }
        Ok(())
    }

    /// Checks that no other user has one of these names and addresses, as a name or as an address,
    /// in any equivalent spelling. No other transaction can assign a name until this one ends.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when another user has one of them.
    pub(crate) async fn claim_names(&mut self, user_id: &str, names: &[&str]) -> Result<(), StoreError> {
        if names.is_empty() {
            return Ok(());
        }
        self.lock_names().await?;
        for name in names {
            let typed = TypedLogin::new(name);
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
                // A program of the previous version writes names without forms, and leaves the
                // forms of earlier names in place. So the match is checked against the names
                // themselves.
                let (name, email): (String, Option<String>) = (other.try_get(0)?, other.try_get(1)?);
                if typed.matches(&name) || email.is_some_and(|email| typed.matches(&email)) {
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
            must_change_password_at: None,
            tokens_not_before: at,
            read_at: at,
        };
        (user, None)
    }

    fn found(typed: &str, logins: &[LoginRow]) -> Option<String> {
        let typed = TypedLogin::new(typed);
        let with_match = |login: &LoginRow| {
            let found = [typed.match_name(&login.0), typed.match_address(&login.0)];
            (found.into_iter().flatten().min(), login.clone())
        };
        best_match(logins.iter().map(with_match)).map(|(user, _)| user.id)
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
