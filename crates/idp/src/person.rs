//! Users as tokens describe them.
//!
//! Owns: the claims of a user for what was granted. Does not own: accounts (the store), the scope
//! of each claim ([`crate::claims`]), claims that the configuration adds
//! ([`crate::claim_mapping`]), which client may request claims.

use auth::time::Timestamp;
use serde_json::{Map, Value};
use store::{Store, StoreError, users::UserRow};

use crate::claim_mapping::{self, ClaimTarget, Mapping, Subject};
use crate::claims::{may_be_recorded, scope_of};
use crate::oauth::scope::ScopeSet;

/// Selection of the claims that may be returned.
#[derive(Debug, Clone, Copy)]
pub struct ClaimSelection<'a> {
    /// The granted scopes.
    pub scopes: &'a ScopeSet,
    /// Claims requested by name and granted with the scopes.
    pub names: &'a [String],
    /// Claims that the configuration adds for the client.
    pub mappings: &'a [Mapping],
}

impl ClaimSelection<'_> {
    fn includes(self, claim: &str) -> bool {
        scope_of(claim).is_some_and(|scope| self.scopes.contains(scope))
            || self.names.iter().any(|name| name == claim)
    }

    fn needs_groups(self) -> bool {
        self.includes("groups") || self.mappings.iter().any(|mapping| mapping.needs_groups(self.scopes))
    }
}

/// A user with the data that was read for a selection of claims.
#[derive(Debug, Clone)]
pub struct Person {
    user: UserRow,
    /// Group names in order; `None`: they were not selected, so they were not read.
    groups: Option<Vec<String>>,
}

impl Person {
    /// Reads the user with this id. `None`: there is no such account, or it is disabled.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn find(
        store: &Store,
        id: &str,
        selection: ClaimSelection<'_>,
    ) -> Result<Option<Self>, StoreError> {
        match store.user(id).await? {
            Some(user) if user.is_open() => Self::from_user(store, user, selection).await.map(Some),
            _ => Ok(None),
        }
    }

    /// The user of an account. Reads only what the selection needs.
    ///
    /// # Errors
    /// [`StoreError`] when the read fails.
    pub async fn from_user(
        store: &Store,
        user: UserRow,
        selection: ClaimSelection<'_>,
    ) -> Result<Self, StoreError> {
        let groups = if selection.needs_groups() { Some(store.groups_of(&user.id).await?) } else { None };
        Ok(Self { user, groups })
    }

    /// Id of the account: the `sub` of tokens for clients with public subjects.
    pub fn id(&self) -> &str {
        &self.user.id
    }

    /// The login name of the account.
    pub fn name(&self) -> &str {
        &self.user.name
    }

    /// The selected standard claims, without `sub`. `selection` must select no more than the
    /// selection of the read.
    pub fn claims(&self, selection: ClaimSelection<'_>) -> Map<String, Value> {
        debug_assert!(self.groups.is_some() || !selection.includes("groups"), "groups selected but not read");
        let recorded = self.record();
        let mut claims: Map<String, Value> = recorded
            .into_iter()
            .filter(|(name, _)| may_be_recorded(name) && selection.includes(name))
            .collect();
        let mut say = |name: &str, value: Value| {
            if selection.includes(name) {
                claims.insert(name.into(), value);
            }
        };
        say("preferred_username", self.user.name.as_str().into());
        say("updated_at", self.user.updated_at.as_secs().into());
        if let Some(email) = &self.user.email {
            say("email", email.as_str().into());
            say("email_verified", self.user.email_verified_at.is_some().into());
        }
        if let Some(groups) = &self.groups {
            say("groups", groups.as_slice().into());
        }
        claims
    }

    /// Adds the claims that the configuration adds to a token or response for these scopes.
    pub fn add_mapped_claims(
        &self,
        selection: ClaimSelection<'_>,
        target: ClaimTarget,
        claims: &mut Map<String, Value>,
    ) {
        if selection.mappings.is_empty() {
            return;
        }
        let record = self.record();
        let subject = Subject { record: Some(&record), groups: self.groups.as_deref().unwrap_or_default() };
        claim_mapping::add_claims(selection.mappings, (selection.scopes, target), subject, claims);
    }

    fn record(&self) -> Map<String, Value> {
        serde_json::from_str(&self.user.claims).unwrap_or_default()
    }

    /// The `iat` of a token issued at `now`. It is later than the second of the last revocation of
    /// everything of the user. That second also contains revoked tokens, and receivers of security
    /// events compare whole seconds.
    pub fn issued_at(&self, now: Timestamp) -> u64 {
        let ended = self.user.tokens_not_before.as_millis().div_ceil(1000);
        // Limits the correction when the clock of another node is far ahead.
        now.as_secs().max(ended.min(now.as_secs() + 1))
    }

    /// When the account was read, in log time. Other data was read afterwards.
    pub fn read_at(&self) -> Timestamp {
        self.user.read_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> Person {
        let at = Timestamp::from_millis(1_800_000_000_500);
        let claims =
            r#"{"name":"Ada Lovelace","phone_number":"+44","email":"forged@x","sub":"forged","admin":true}"#;
        let user = UserRow {
            id: "u1".into(),
            name: "ada".into(),
            email: Some("ada@example.com".into()),
            email_verified_at: None,
            claims: claims.into(),
            created_at: at,
            updated_at: at,
            disabled_at: None,
            must_change_password_at: None,
            tokens_not_before: at,
            read_at: at,
        };
        Person { user, groups: Some(vec!["staff".into()]) }
    }

    fn claims_of(scopes: &str, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|&n| n.into()).collect();
        let scopes = ScopeSet::parse(scopes).unwrap();
        Value::Object(ada().claims(ClaimSelection { scopes: &scopes, names: &names, mappings: &[] }))
            .to_string()
    }

    #[test]
    fn scopes_tell_what_belongs_to_them() {
        assert_eq!(claims_of("openid", &[]), "{}");
        assert_eq!(claims_of("email", &[]), r#"{"email":"ada@example.com","email_verified":false}"#);
        assert_eq!(claims_of("groups", &[]), r#"{"groups":["staff"]}"#);
        let profile = claims_of("openid profile", &[]);
        assert!(
            profile.contains(r#""name":"Ada Lovelace""#) && profile.contains(r#""preferred_username":"ada""#)
        );
        assert!(!profile.contains("phone") && !profile.contains("email"), "{profile}");
    }

    #[test]
    fn a_claim_asked_for_by_name_comes_alone() {
        assert_eq!(claims_of("openid", &["name"]), r#"{"name":"Ada Lovelace"}"#);
        assert_eq!(
            claims_of("openid", &["admin", "sub"]),
            "{}",
            "what is no claim about people is never told"
        );
        assert_eq!(
            claims_of("openid", &["email"]),
            r#"{"email":"ada@example.com"}"#,
            "and not the recorded one"
        );
    }

    #[test]
    fn a_token_of_the_second_of_an_ending_is_of_the_next() {
        let at = |millis| ada().issued_at(Timestamp::from_millis(millis));
        assert_eq!(at(1_800_000_000_700), 1_800_000_001);
        assert_eq!(at(1_800_000_001_700), 1_800_000_001);
        assert_eq!(at(1_800_000_002_000), 1_800_000_002);
        assert_eq!(at(1_799_999_000_000), 1_799_999_001, "the clock of who ended it was ahead");
    }
}
