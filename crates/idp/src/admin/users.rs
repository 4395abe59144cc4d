//! People's accounts.

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{
    attempts::ForgetAttempts,
    users::{self as rows, ChangeUser, DeleteUser, EnableUser, StoredPassword, UserRevocation, UserRow},
};

use super::{Admin, AdminFault, Page, Refused, Secret, TRIES, check, paging, seconds};
use crate::login::account_subject;
use crate::passwords::Password;
use crate::revocations;

/// A person's account.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct UserView {
    /// Never changes: the `sub` of tokens.
    pub id: String,
    /// What they type to log in.
    pub name: String,
    /// Their address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Whether it is known to be theirs; only then can they log in by it.
    pub email_verified: bool,
    /// What else is known of them (OpenID Connect Core 1.0 §5.1).
    #[schema(value_type = Object)]
    pub claims: Map<String, Value>,
    /// When the account was made, in seconds since 1970.
    pub created_at: u64,
    /// When it last changed.
    pub updated_at: u64,
    /// Since when it is closed; absent: it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<u64>,
}

impl From<UserRow> for UserView {
    fn from(user: UserRow) -> Self {
        Self {
            id: user.id,
            name: user.name,
            email_verified: user.email.is_some() && user.email_verified_at.is_some(),
            email: user.email,
            claims: serde_json::from_str(&user.claims).unwrap_or_default(),
            created_at: seconds(user.created_at),
            updated_at: seconds(user.updated_at),
            disabled_at: user.disabled_at.map(seconds),
        }
    }
}

/// An account with what belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct UserDetails {
    /// The account.
    pub user: UserView,
    /// The groups they are in.
    pub groups: Vec<String>,
    /// Whether they can log in by a password.
    pub has_password: bool,
    /// Wrong passwords that are not forgotten yet.
    pub failed_logins: u32,
    /// Until when nobody can log in as them; absent: they are not locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<u64>,
}

/// A new account.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUser {
    /// What they type to log in: kept in the form of RFC 8265 (`UsernameCasePreserved`), and nobody else's name or address in whatever
    /// case or spelling.
    pub name: String,
    /// Their address; nobody else's, and nobody else's name.
    #[serde(default)]
    pub email: Option<String>,
    /// Whether it is known to be theirs.
    #[serde(default)]
    pub email_verified: bool,
    /// What else is known of them.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub claims: Map<String, Value>,
    /// Their password; without one they cannot log in by password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Make a password and answer it, once.
    #[serde(default)]
    pub generate_password: bool,
}

/// An account that was made.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct UserAdded {
    /// The account.
    pub user: UserView,
    /// The password that was made for them: nobody can ask for it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// What is to be different; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserChange {
    /// Another name: as for a new account.
    pub name: Option<String>,
    /// Another address, or `null` for none. It counts as unverified unless `email_verified` says otherwise.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    pub email: Option<Option<String>>,
    /// Whether the address is known to be theirs.
    pub email_verified: Option<bool>,
    /// All claims as they are to be.
    #[schema(value_type = Option<Object>)]
    pub claims: Option<Map<String, Value>>,
}

/// `null` is something that was given.
#[expect(clippy::option_option, reason = "absent and null are two things in JSON")]
fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Another password.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetPassword {
    /// The password.
    pub password: Option<Secret>,
    /// Make one and answer it, once.
    pub generate: bool,
}

/// A password that was set.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct PasswordSet {
    /// The password that was made: nobody can ask for it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// Which accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListUsers {
    /// Those after this name.
    pub after: Option<String>,
    /// At most so many: 1 to 500, 100 when absent.
    pub limit: Option<u32>,
    /// Only the one of this name, in whatever spelling.
    pub name: Option<String>,
}

impl Admin<'_> {
    /// Accounts in the order of their names.
    pub async fn users(&self, list: &ListUsers) -> Result<Page<UserView>, AdminFault> {
        let limit = paging::limit(list.limit)?;
        let store = self.provider.store();
        let rows = match &list.name {
            Some(name) => store.user_by_name(name).await?.into_iter().collect(),
            None => store.users(list.after.as_deref().unwrap_or_default(), limit + 1).await?,
        };
        let views = rows.into_iter().map(UserView::from).collect();
        Ok(Page::cut(views, limit, |user: &UserView| user.name.clone()))
    }

    /// One account.
    pub async fn user(&self, id: &str) -> Result<UserDetails, AdminFault> {
        let (store, user) = (self.provider.store(), self.user_row(id).await?);
        let login = store.user_by_login(&user.name).await?;
        let attempts = store.attempts(&account_subject(id)).await?;
        let locked = attempts.map(|a| a.locked_until).filter(|until| self.now() < *until);
        Ok(UserDetails {
            groups: store.groups_of(id).await?,
            has_password: login.is_some_and(|(found, password)| found.id == user.id && password.is_some()),
            failed_logins: attempts.map_or(0, |a| a.failures),
            locked_until: locked.map(seconds),
            user: user.into(),
        })
    }

    /// The id of whoever has this name.
    pub async fn user_id(&self, name: &str) -> Result<String, AdminFault> {
        let found = self.provider.store().user_by_name(name).await?;
        found.map(|user| user.id).ok_or_else(|| AdminFault::no("user", name))
    }

    /// Names and addresses that were given before they had forms, and could not be given so now; each in one line, with a remedy.
    pub async fn name_conflicts(&self) -> Result<Vec<String>, AdminFault> {
        let conflicts = self.provider.store().name_conflicts().await?;
        Ok(conflicts.iter().map(ToString::to_string).collect())
    }

    /// Makes an account.
    pub async fn add_user(&self, add: AddUser) -> Result<UserAdded, AdminFault> {
        let mut faults = Vec::new();
        let name = check::user_name(&add.name, &mut faults);
        check::email(add.email.as_deref(), &mut faults);
        check::claims(&add.claims, &mut faults);
        if add.email.is_none() && add.email_verified {
            faults.push(Refused::new("email_verified", "there is no address to be verified: give one"));
        }
        AdminFault::unless_none(faults)?;
        let wanted = self.wanted(add.password, add.generate_password)?;
        let stored = match &wanted {
            Some((password, _)) => Some(self.hashed(password, &name, add.email.as_deref()).await?),
            None => None,
        };
        let now = self.now();
        let user = UserRow {
            id: self.provider.draw_id()?,
            name,
            email: add.email,
            email_verified_at: add.email_verified.then_some(now),
            claims: Value::Object(add.claims).to_string(),
            created_at: now,
            updated_at: now,
            disabled_at: None,
            // nobody has a token yet, and one that is made in this very second must not look as if it were made in the next
            tokens_not_before: Timestamp::from_millis(0),
            read_at: Timestamp::from_millis(0),
        };
        let entry = self.entry("user.add", target(&user.id), &json!({ "name": user.name }));
        self.write(rows::AddUser { user: user.clone(), password: stored }, entry).await?;
        Ok(UserAdded {
            user: user.into(),
            password: wanted.and_then(|(password, made)| made.then_some(password)),
        })
    }

    /// Changes name, address or claims. What they hold goes on.
    pub async fn change_user(&self, id: &str, change: UserChange) -> Result<UserView, AdminFault> {
        let detail = changed(&change);
        for _ in 0..TRIES {
            let row = self.user_change(self.user_row(id).await?, &change)?;
            if self.write(row, self.entry("user.change", target(id), &detail)).await? {
                self.provider.logins().forget(id);
                return Ok(self.user_row(id).await?.into());
            }
        }
        Err(AdminFault::Conflict(format!("user {id:?} is changed again and again by others: try again")))
    }

    /// What a change makes of an account as it is.
    fn user_change(&self, user: UserRow, change: &UserChange) -> Result<ChangeUser, AdminFault> {
        let mut faults = Vec::new();
        // What stays as it is need not be what may be given now.
        let name = match change.name.as_deref().filter(|name| *name != user.name) {
            Some(name) => check::user_name(name, &mut faults),
            None => user.name.clone(),
        };
        let given = change.email.as_ref().filter(|email| **email != user.email);
        check::email(given.and_then(Option::as_deref), &mut faults);
        if let Some(claims) = &change.claims {
            check::claims(claims, &mut faults);
        }
        let email = change.email.clone().unwrap_or_else(|| user.email.clone());
        if email.is_none() && change.email_verified == Some(true) {
            faults.push(Refused::new("email_verified", "there is no address to be verified: give one"));
        }
        AdminFault::unless_none(faults)?;
        let now = self.now();
        let same = email == user.email;
        let verified = match change.email_verified {
            Some(true) => Some(user.email_verified_at.filter(|_| same).unwrap_or(now)),
            Some(false) => None,
            None => user.email_verified_at.filter(|_| same),
        };
        let claims = change.claims.clone().map(|claims| Value::Object(claims).to_string());
        Ok(ChangeUser {
            name,
            email,
            email_verified_at: verified,
            claims: claims.unwrap_or_else(|| user.claims.clone()),
            revocation: revocations::changed(self.provider, &user.id, "account changed", now),
            now,
            from: user,
        })
    }

    /// Sets a password: whoever was logged in with the old one is out.
    pub async fn set_password(&self, id: &str, set: SetPassword) -> Result<PasswordSet, AdminFault> {
        let user = self.user_row(id).await?;
        let wanted = self.wanted(set.password, set.generate)?;
        let (password, made) = wanted.ok_or_else(|| {
            AdminFault::refused("password", "give a password, or have one made with `generate`")
        })?;
        let stored = self.hashed(&password, &user.name, user.email.as_deref()).await?;
        let change = revocations::change_password(self.provider, id, stored);
        let entry = self.entry("user.password", target(id), &json!({ "generated": made }));
        AdminFault::gone_unless(self.write(change, entry).await?, "user", id)?;
        self.provider.logins().forget(id);
        Ok(PasswordSet { password: made.then_some(password) })
    }

    /// Closes an account, and ends everything of it.
    pub async fn disable_user(&self, id: &str) -> Result<UserView, AdminFault> {
        self.end_as(id, UserRevocation::Disabled, "user.disable", "account disabled").await
    }

    /// Ends all sessions and tokens: log out everywhere.
    pub async fn end_user(&self, id: &str) -> Result<UserView, AdminFault> {
        self.end_as(id, UserRevocation::Everything, "user.end", "ended by an operator").await
    }

    async fn end_as(
        &self,
        id: &str,
        ending: UserRevocation,
        action: &str,
        reason: &'static str,
    ) -> Result<UserView, AdminFault> {
        let change = revocations::end_user(self.provider, id, ending, reason, self.now());
        let ended = self.write(change, self.entry(action, target(id), &Value::Null)).await?;
        AdminFault::gone_unless(ended, "user", id)?;
        self.provider.logins().forget(id);
        Ok(self.user_row(id).await?.into())
    }

    /// Opens a closed account again. Nothing that was revoked comes back.
    pub async fn enable_user(&self, id: &str) -> Result<UserView, AdminFault> {
        let change = EnableUser { user_id: id.to_owned(), now: self.now() };
        self.write(change, self.entry("user.enable", target(id), &Value::Null)).await?;
        // one that is open stays so: whoever asks twice gets what they want
        Ok(self.user_row(id).await?.into())
    }

    /// Forgets wrong passwords: they can log in again at once.
    pub async fn unlock_user(&self, id: &str) -> Result<UserView, AdminFault> {
        let user = self.user_row(id).await?;
        let change = ForgetAttempts { subject: account_subject(id) };
        self.write(change, self.entry("user.unlock", target(id), &Value::Null)).await?;
        Ok(user.into())
    }

    /// Deletes an account with all that belongs to it.
    pub async fn delete_user(&self, id: &str) -> Result<(), AdminFault> {
        let (user, now) = (self.user_row(id).await?, self.now());
        let change = DeleteUser {
            user_id: id.to_owned(),
            revocation: revocations::user(
                self.provider,
                (id, EventKind::AccountPurged),
                "account deleted",
                now,
            ),
            deliver_until: Some(now.plus(revocations::DELIVERED_WITHIN)),
            now,
        };
        let entry = self.entry("user.delete", target(id), &json!({ "name": user.name }));
        AdminFault::gone_unless(self.write(change, entry).await?, "user", id)?;
        self.provider.logins().forget(id);
        Ok(())
    }

    pub(super) async fn user_row(&self, id: &str) -> Result<UserRow, AdminFault> {
        self.provider.store().user(id).await?.ok_or_else(|| AdminFault::no("user", id))
    }

    /// The password that was given, or one that is made; and whether it was.
    fn wanted(&self, given: Option<Secret>, generate: bool) -> Result<Option<(Secret, bool)>, AdminFault> {
        match (given, generate) {
            (Some(_), true) => {
                Err(AdminFault::refused("password", "give a password or have one made: one of the two"))
            }
            (Some(password), false) => Ok(Some((password, false))),
            (None, true) => Ok(Some((Secret::draw_password(self.provider)?, true))),
            (None, false) => Ok(None),
        }
    }

    async fn hashed(
        &self,
        password: &Secret,
        name: &str,
        email: Option<&str>,
    ) -> Result<StoredPassword, AdminFault> {
        let password = Password::new(password.expose().to_owned())
            .map_err(|fault| AdminFault::refused("password", fault.to_string()))?;
        Ok(self.provider.logins().hash(&password, name, email, self.now()).await?)
    }
}

fn target(id: &str) -> String {
    format!("user:{id}")
}

/// Which members a change has: what they were is not told, for it may be what somebody asked to be forgotten.
fn changed(change: &UserChange) -> Value {
    let members = [
        ("name", change.name.is_some()),
        ("email", change.email.is_some()),
        ("email_verified", change.email_verified.is_some()),
        ("claims", change.claims.is_some()),
    ];
    json!({ "changed": members.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect::<Vec<_>>() })
}
