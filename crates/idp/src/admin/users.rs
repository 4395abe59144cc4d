//! User administration: accounts, their passwords and lockout.

use std::borrow::Cow;

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{
    login_attempts::DeleteAttempts,
    users::{
        self as rows, ChangeUser, DeleteUser, EnableUser, RequirePasswordChange, StoredPassword,
        UserRevocation, UserRow,
    },
};

use super::{
    Admin, AdminFault, Chained, MAX_ATTEMPTS, Page, Refused, Secret, UtcTime, check,
    paging::{Listed, Part},
};
use crate::attributes::Attributes;
use crate::login::account_subject;
use crate::passwords::Password;
use crate::revocations;

/// Account of a user.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct UserView {
    /// Id of the account, the `sub` of tokens; it never changes.
    pub id: String,
    /// Login name of the user.
    pub name: String,
    /// Email address of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Whether the address is verified; only then can the user log in with it.
    pub email_verified: bool,
    /// Whether the user must choose a new password at the next login.
    pub must_change_password: bool,
    /// Further claims of the user (OpenID Connect Core 1.0 §5.1).
    #[schema(value_type = Object)]
    pub claims: Map<String, Value>,
    /// When the account was created.
    pub created_at: UtcTime,
    /// When the account was last changed.
    pub updated_at: UtcTime,
    /// When the account was disabled; absent if it is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<UtcTime>,
}

impl From<UserRow> for UserView {
    fn from(user: UserRow) -> Self {
        Self {
            id: user.id,
            name: user.name,
            email_verified: user.email.is_some() && user.email_verified_at.is_some(),
            email: user.email,
            must_change_password: user.must_change_password_at.is_some(),
            claims: serde_json::from_str(&user.claims).unwrap_or_default(),
            created_at: UtcTime(user.created_at),
            updated_at: UtcTime(user.updated_at),
            disabled_at: user.disabled_at.map(UtcTime),
        }
    }
}

impl Listed for UserView {
    fn position(&self) -> String {
        self.name.clone()
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        let email = self.email.as_deref().map(Cow::from);
        [Cow::from(&self.name), Cow::from(&self.id)].into_iter().chain(email).collect()
    }
}

/// Account with its groups and login state.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct UserDetails {
    /// The account itself.
    pub user: UserView,
    /// Names of the user's groups.
    pub groups: Vec<String>,
    /// Whether the user can log in with a password.
    pub has_password: bool,
    /// Number of counted failed logins.
    pub failed_logins: u32,
    /// When the lock of the account ends; absent if it is not locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<UtcTime>,
}

/// A new account to create.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUser {
    /// Login name. It is stored in the form of RFC 8265 (`UsernameCasePreserved`) and must not be
    /// the name or address of another user, in any case or spelling.
    pub name: String,
    /// Email address; must not be the address or name of another user.
    #[serde(default)]
    pub email: Option<String>,
    /// Whether the address is verified.
    #[serde(default)]
    pub email_verified: bool,
    /// Further claims of the user.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub claims: Map<String, Value>,
    /// Password of the user; without one the user cannot log in with a password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Whether to generate a password and return it once.
    #[serde(default)]
    pub generate_password: bool,
    /// Whether the user must choose a new password at the first login.
    #[serde(default)]
    pub must_change_password: bool,
}

/// Result of the creation of an account.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct UserAdded {
    /// The new account.
    pub user: UserView,
    /// The generated password. It is returned only once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// Changes to an account; absent members stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserChange {
    /// New login name, with the rules of a new account.
    pub name: Option<String>,
    /// New email address, or `null` to remove it. It is unverified unless `email_verified` is true.
    #[serde(deserialize_with = "present_or_null")]
    #[schema(value_type = Option<String>)]
    pub email: Option<Option<String>>,
    /// Whether the address is verified.
    pub email_verified: Option<bool>,
    /// Whether the user must choose a new password at the next login. Sessions and tokens stay
    /// valid.
    pub must_change_password: Option<bool>,
    /// The complete new claims.
    #[schema(value_type = Option<Object>)]
    pub claims: Option<Map<String, Value>>,
}

/// Distinguishes `null` from an absent member.
#[expect(clippy::option_option, reason = "absent and null are two things in JSON")]
fn present_or_null<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A new password, given or to be generated.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetPassword {
    /// The new password.
    pub password: Option<Secret>,
    /// Whether to generate a password and return it once.
    pub generate: bool,
    /// Whether the user must choose a new password at the next login.
    pub temporary: bool,
}

/// Result of setting a password.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct PasswordSet {
    /// The generated password. It is returned only once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// Query parameters of the list of accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListUsers {
    /// Only accounts after this name.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only accounts with this text, in any case, in the name, email address or id. A page of a
    /// search looks at 10 000 accounts at most, so it may be short although more follow.
    pub search: Option<String>,
    /// Only the account with this name, in any spelling.
    pub name: Option<String>,
}

impl Admin<'_> {
    /// Lists accounts, ordered by name.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range or the store fails.
    pub async fn users(&self, list: &ListUsers) -> Result<Page<UserView>, AdminFault> {
        let store = self.provider.store();
        let part = Part { search: list.search.as_deref(), limit: list.limit, after: list.after.as_deref() };
        if let Some(name) = &list.name {
            let named = store.user_by_name(name).await?;
            return Part { after: None, ..part }.of(named.into_iter().map(UserView::from).collect());
        }
        part.read(move |after: String, count| async move {
            let users = store.users(&after, count).await?;
            Ok(users.into_iter().map(UserView::from).collect())
        })
        .await
    }

    /// Returns one account.
    ///
    /// # Errors
    /// [`AdminFault::NotFound`] when there is no such account.
    pub async fn user(&self, id: &str) -> Result<UserDetails, AdminFault> {
        let (store, user) = (self.provider.store(), self.user_row(id).await?);
        let login = store.user_by_login(&user.name).await?;
        let attempts = store.attempts(&account_subject(id)).await?;
        let locked = attempts.map(|a| a.locked_until).filter(|until| self.now() < *until);
        Ok(UserDetails {
            groups: store.groups_of(id).await?,
            has_password: login.is_some_and(|(other, password)| other.id == user.id && password.is_some()),
            failed_logins: attempts.map_or(0, |a| a.failures),
            locked_until: locked.map(UtcTime),
            user: user.into(),
        })
    }

    /// Lists names and addresses that older versions stored without normalization and that conflict
    /// under the current rules. Each line names a remedy.
    ///
    /// # Errors
    /// [`AdminFault`] when the store fails.
    pub async fn name_conflicts(&self) -> Result<Vec<String>, AdminFault> {
        let conflicts = self.provider.store().name_conflicts().await?;
        Ok(conflicts.iter().map(ToString::to_string).collect())
    }

    /// Creates an account.
    ///
    /// # Errors
    /// [`AdminFault`] when a value is refused or in use, or the password threads or the store fail.
    pub async fn add_user(&self, add: AddUser) -> Result<UserAdded, AdminFault> {
        let mut faults = Vec::new();
        let name = check::user_name(&add.name, &mut faults);
        check::email(add.email.as_deref(), &mut faults);
        check::claims(&add.claims, self.attributes(), &mut faults);
        if add.email.is_none() && add.email_verified {
            faults.push(Refused::new("email_verified", "no address to verify: send `email`"));
        }
        AdminFault::refuse_if_any(faults)?;
        let wanted = self.given_or_generated(add.password, add.generate_password)?;
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
            must_change_password_at: add.must_change_password.then_some(now),
            // No token exists yet. With the current time, a token issued in this second would get
            // the `iat` of the next second.
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

    /// Changes name, address or claims. The user's tokens stay valid.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such account, a value is refused or in use, or concurrent
    /// changes persist.
    pub async fn change_user(&self, id: &str, change: UserChange) -> Result<UserView, AdminFault> {
        let detail = changed_members(&change);
        for _ in 0..MAX_ATTEMPTS {
            let row = self.user_change(self.user_row(id).await?, &change)?;
            let required: Vec<_> = change
                .must_change_password
                .map(|required| RequirePasswordChange { user_id: id.to_owned(), required, now: row.now })
                .into_iter()
                .collect();
            let row = Chained(row, required);
            if self.write(row, self.entry("user.change", target(id), &detail)).await? {
                self.provider.logins().forget(id);
                return Ok(self.user_row(id).await?.into());
            }
        }
        Err(AdminFault::Conflict(format!("user {id:?} changed concurrently: try again")))
    }

    /// Applies a change to the current state of the account.
    fn user_change(&self, user: UserRow, change: &UserChange) -> Result<ChangeUser, AdminFault> {
        let mut faults = Vec::new();
        // Unchanged values need not meet the current rules.
        let name = match change.name.as_deref().filter(|name| *name != user.name) {
            Some(name) => check::user_name(name, &mut faults),
            None => user.name.clone(),
        };
        let given = change.email.as_ref().filter(|email| **email != user.email);
        check::email(given.and_then(Option::as_deref), &mut faults);
        if let Some(claims) = &change.claims {
            check::claims(claims, self.attributes(), &mut faults);
        }
        let email = change.email.clone().unwrap_or_else(|| user.email.clone());
        if email.is_none() && change.email_verified == Some(true) {
            faults.push(Refused::new("email_verified", "no address to verify: send `email`"));
        }
        AdminFault::refuse_if_any(faults)?;
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
            revocation: revocations::user_changed(self.provider, &user.id, "account changed", now),
            now,
            from: user,
        })
    }

    /// Sets a password and revokes everything that began with the old one.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such account, the password is refused, or the change fails.
    pub async fn set_password(&self, id: &str, set: SetPassword) -> Result<PasswordSet, AdminFault> {
        let user = self.user_row(id).await?;
        let wanted = self.given_or_generated(set.password, set.generate)?;
        let (password, made) = wanted
            .ok_or_else(|| AdminFault::refused("password", "password missing: send one or set `generate`"))?;
        let stored = self.hashed(&password, &user.name, user.email.as_deref()).await?;
        let ending = if set.temporary {
            UserRevocation::TemporaryPassword(stored)
        } else {
            UserRevocation::Password(stored)
        };
        let change = revocations::end_user(self.provider, id, ending, "password changed", self.now());
        let detail = json!({ "generated": made, "temporary": set.temporary });
        let entry = self.entry("user.password", target(id), &detail);
        AdminFault::found_if(self.write(change, entry).await?, "user", id)?;
        self.provider.logins().forget(id);
        Ok(PasswordSet { password: made.then_some(password) })
    }

    /// Disables an account, ends its sessions and revokes its tokens.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such account or the store fails.
    pub async fn disable_user(&self, id: &str) -> Result<UserView, AdminFault> {
        self.revoke_user(id, UserRevocation::Disabled, "user.disable", "account disabled").await
    }

    /// Ends all sessions of a user and revokes all tokens: logout everywhere.
    ///
    /// # Errors
    /// As for [`Admin::disable_user`].
    pub async fn end_user(&self, id: &str) -> Result<UserView, AdminFault> {
        self.revoke_user(id, UserRevocation::Everything, "user.end", "ended by an operator").await
    }

    async fn revoke_user(
        &self,
        id: &str,
        ending: UserRevocation,
        action: &str,
        reason: &'static str,
    ) -> Result<UserView, AdminFault> {
        let change = revocations::end_user(self.provider, id, ending, reason, self.now());
        let ended = self.write(change, self.entry(action, target(id), &Value::Null)).await?;
        AdminFault::found_if(ended, "user", id)?;
        self.provider.logins().forget(id);
        Ok(self.user_row(id).await?.into())
    }

    /// Enables a disabled account. Revoked tokens stay revoked.
    ///
    /// # Errors
    /// As for [`Admin::disable_user`].
    pub async fn enable_user(&self, id: &str) -> Result<UserView, AdminFault> {
        let change = EnableUser { user_id: id.to_owned(), now: self.now() };
        self.write(change, self.entry("user.enable", target(id), &Value::Null)).await?;
        // Enabling an enabled account succeeds without effect.
        Ok(self.user_row(id).await?.into())
    }

    /// Deletes the failure record of an account, so the user can log in immediately.
    ///
    /// # Errors
    /// As for [`Admin::disable_user`].
    pub async fn unlock_user(&self, id: &str) -> Result<UserView, AdminFault> {
        let user = self.user_row(id).await?;
        let change = DeleteAttempts { subject: account_subject(id) };
        self.write(change, self.entry("user.unlock", target(id), &Value::Null)).await?;
        Ok(user.into())
    }

    /// Deletes an account with everything that belongs to it.
    ///
    /// # Errors
    /// As for [`Admin::disable_user`].
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
        AdminFault::found_if(self.write(change, entry).await?, "user", id)?;
        self.provider.logins().forget(id);
        Ok(())
    }

    pub(super) fn attributes(&self) -> &Attributes {
        &self.provider.clients().defaults().attributes
    }

    pub(super) async fn user_row(&self, id: &str) -> Result<UserRow, AdminFault> {
        self.provider.store().user(id).await?.ok_or_else(|| AdminFault::not_found("user", id))
    }

    /// Returns the given or a generated password, and whether it was generated.
    fn given_or_generated(
        &self,
        given: Option<Secret>,
        generate: bool,
    ) -> Result<Option<(Secret, bool)>, AdminFault> {
        match (given, generate) {
            (Some(_), true) => {
                Err(AdminFault::refused("password", "send either a password or a request to generate one"))
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

/// Names of the changed members, for the audit log. Old values are not recorded: the user may have
/// requested their deletion.
fn changed_members(change: &UserChange) -> Value {
    let members = [
        ("name", change.name.is_some()),
        ("email", change.email.is_some()),
        ("email_verified", change.email_verified.is_some()),
        ("must_change_password", change.must_change_password.is_some()),
        ("claims", change.claims.is_some()),
    ];
    json!({ "changed": members.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect::<Vec<_>>() })
}
