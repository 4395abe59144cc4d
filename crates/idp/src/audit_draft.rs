//! Draft of an audit entry: its subjects by id and by name, and its details.
//!
//! Owns: the form of entries about sign-ins and grants. Names are written as they are at that time,
//! so the log stays readable after a rename or a deletion. Does not own: which entries there are,
//! the log (the store).

use auth::time::Timestamp;
use serde_json::{Map, Value};
use store::audit::AuditEntry;

/// Member of the details with the name of the user concerned.
pub(crate) const USER_NAME: &str = "user_name";
/// Member of the details with the name of the client concerned.
pub(crate) const CLIENT_NAME: &str = "client_name";

/// Id and name of a user or a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub(crate) id: String,
    pub(crate) name: String,
}

impl Subject {
    pub(crate) fn of_user(user: &store::users::UserRow) -> Self {
        Self { id: user.id.clone(), name: user.name.clone() }
    }

    pub(crate) fn of_client(client: &crate::client::Client) -> Self {
        Self { id: client.id().to_owned(), name: client.name().to_owned() }
    }
}

/// An entry that is being composed.
#[derive(Debug, Clone)]
pub(crate) struct AuditDraft {
    entry: AuditEntry,
    detail: Map<String, Value>,
}

impl AuditDraft {
    pub(crate) fn new(
        actor: impl Into<String>,
        action: &str,
        target: impl Into<String>,
        at: Timestamp,
    ) -> Self {
        Self { entry: AuditEntry::new(actor, action, target, at), detail: Map::new() }
    }

    /// An entry about what a user does.
    pub(crate) fn by_user(user: &Subject, action: &str, target: impl Into<String>, at: Timestamp) -> Self {
        Self::new(format!("user:{}", user.id), action, target, at).user(Some(user))
    }

    /// An entry about what a client does.
    pub(crate) fn by_client(
        client: &Subject,
        action: &str,
        target: impl Into<String>,
        at: Timestamp,
    ) -> Self {
        Self::new(format!("client:{}", client.id), action, target, at).client(Some(client))
    }

    /// The user concerned.
    pub(crate) fn user(mut self, user: Option<&Subject>) -> Self {
        if let Some(user) = user {
            self.entry.user_id = Some(user.id.clone());
            self.detail.insert(USER_NAME.into(), user.name.clone().into());
        }
        self
    }

    /// The client concerned.
    pub(crate) fn client(mut self, client: Option<&Subject>) -> Self {
        if let Some(client) = client {
            self.entry.client_id = Some(client.id.clone());
            self.detail.insert(CLIENT_NAME.into(), client.name.clone().into());
        }
        self
    }

    /// A further detail. `null` is left out.
    pub(crate) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.detail.insert(member.into(), value);
        }
        self
    }

    pub(crate) fn finish(self) -> AuditEntry {
        let detail =
            if self.detail.is_empty() { String::new() } else { Value::Object(self.detail).to_string() };
        AuditEntry { detail, ..self.entry }
    }
}

/// Adds the names of the subjects to an entry that has none.
pub(crate) fn with_names(mut entry: AuditEntry, user: Option<String>, client: Option<String>) -> AuditEntry {
    let detail = match entry.detail.as_str() {
        "" => Some(Map::new()),
        text => serde_json::from_str(text).ok(),
    };
    let Some(mut detail) = detail else { return entry };
    for (member, name) in [(USER_NAME, user), (CLIENT_NAME, client)] {
        if let Some(name) = name {
            detail.entry(member).or_insert(name.into());
        }
    }
    if !detail.is_empty() {
        entry.detail = Value::Object(detail).to_string();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_800_000_000_250);

    #[test]
    fn entries_name_their_subjects() {
        let ada = Subject { id: "u1".into(), name: "ada".into() };
        let shop = Subject { id: "shop".into(), name: "The shop".into() };
        let entry = AuditDraft::by_client(&shop, "grant.issue", "user:u1", AT)
            .user(Some(&ada))
            .with("family", "f1")
            .with("session", None::<&str>)
            .finish();
        assert_eq!((entry.actor.as_str(), entry.target.as_str()), ("client:shop", "user:u1"));
        assert_eq!((entry.user_id.as_deref(), entry.client_id.as_deref()), (Some("u1"), Some("shop")));
        let detail: Value = serde_json::from_str(&entry.detail).unwrap();
        let expected = serde_json::json!({ "client_name": "The shop", "family": "f1", "user_name": "ada" });
        assert_eq!(detail, expected);
        assert_eq!(AuditDraft::new("system", "x", "y", AT).finish().detail, "");
    }

    #[test]
    fn names_are_added_once() {
        let plain = AuditEntry::new("operator:root", "user.disable", "user:u1", AT);
        let named = with_names(plain.clone(), Some("ada".into()), None);
        assert_eq!(named.detail, r#"{"user_name":"ada"}"#);
        assert_eq!(with_names(named.clone(), Some("other".into()), None), named);
        assert_eq!(with_names(plain.clone(), None, None), plain);
    }
}
