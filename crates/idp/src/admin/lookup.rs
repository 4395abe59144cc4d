//! Lookup: which user, client or group a request names, by id or by name.
//!
//! Owns: the precedence of ids over names, and the refusal of an ambiguous name. Does not own: which
//! spellings of a user's name are equivalent (the store), the operations.
//!
//! An id has precedence, so an id always means the same entry, whatever others are called. Otherwise
//! an account or client with the name of another's id would make that other one ambiguous, and no
//! operation could reach it. The entry with such a name is reached by its own id.

use store::groups::GroupRow;
use store::names;

use super::{Admin, AdminFault};
use crate::client::config::ClientConfig;

/// Clients read at once.
const BATCH: u32 = 500;
/// Most candidates that the refusal of an ambiguous name lists.
const MAX_CANDIDATES: usize = 16;

/// An entry that a text may mean.
struct Candidate {
    id: String,
    name: String,
}

impl Admin<'_> {
    /// Returns the id of the account with this id, name or email address, verified or not. An id has
    /// precedence.
    ///
    /// # Errors
    /// [`AdminFault::NotFound`] when there is no such account, [`AdminFault::Conflict`] when several
    /// accounts from before the present rules of names have this name in different spellings.
    pub async fn user_id(&self, user: &str) -> Result<String, AdminFault> {
        let store = self.provider.store();
        if let Some(known) = store.user(user).await? {
            return Ok(known.id);
        }
        let named = store.users_named(user).await?;
        only("user", user, named.into_iter().map(|user| Candidate { id: user.id, name: user.name }).collect())
    }

    /// Returns the id of the account that a parameter names, if there is one.
    pub(super) async fn optional_user_id(&self, user: Option<&str>) -> Result<Option<String>, AdminFault> {
        match user {
            Some(user) => Ok(Some(self.user_id(user).await?)),
            None => Ok(None),
        }
    }

    /// Returns the `client_id` of the client with this id or display name. An id has precedence, then
    /// a name in the same case. To compare names, it reads all registered clients.
    ///
    /// # Errors
    /// [`AdminFault::NotFound`] when there is no such client, [`AdminFault::Conflict`] when several
    /// clients have this name.
    pub async fn client_id(&self, client: &str) -> Result<String, AdminFault> {
        let (store, clients) = (self.provider.store(), self.provider.clients());
        if clients.is_configured(client) || store.client(client).await?.is_some() {
            return Ok(client.to_owned());
        }
        let lower = client.to_lowercase();
        let configured = clients.configured().filter(|client| client.name().to_lowercase() == lower);
        let mut named: Vec<_> = configured
            .map(|client| Candidate { id: client.id().to_owned(), name: client.name().to_owned() })
            .collect();
        let mut after = String::new();
        loop {
            let rows = store.clients(&after, BATCH).await?;
            let Some(last) = rows.last() else { break };
            after.clone_from(&last.id);
            for row in rows.iter().filter(|row| !clients.is_configured(&row.id)) {
                // A client with unreadable settings is reached by its id.
                let name = ClientConfig::from_stored(row).ok().and_then(|settings| settings.name);
                if let Some(name) = name.filter(|name| name.to_lowercase() == lower) {
                    named.push(Candidate { id: row.id.clone(), name });
                }
            }
        }
        if named.iter().filter(|candidate| candidate.name == client).count() == 1 {
            named.retain(|candidate| candidate.name == client);
        }
        only("client", client, named)
    }

    /// Returns the group with this id or name; the name is also found in its normalized form. An id
    /// has precedence.
    pub(super) async fn group_row(&self, group: &str) -> Result<GroupRow, AdminFault> {
        let store = self.provider.store();
        if let Some(known) = store.group_by_id(group).await? {
            return Ok(known);
        }
        if let Some(named) = store.group(group).await? {
            return Ok(named);
        }
        let named = match names::group_name(group) {
            Ok(form) if form != group => store.group(&form).await?,
            Ok(_) | Err(_) => None,
        };
        named.ok_or_else(|| AdminFault::not_found("group", group))
    }
}

/// The id of the only candidate.
fn only(kind: &'static str, text: &str, candidates: Vec<Candidate>) -> Result<String, AdminFault> {
    if candidates.len() > 1 {
        let (listed, more) = candidates.split_at(candidates.len().min(MAX_CANDIDATES));
        let listed: Vec<_> =
            listed.iter().map(|candidate| format!("{} ({:?})", candidate.id, candidate.name)).collect();
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        let reason = format!("{kind} {text:?} is ambiguous: use one of the ids {}{more}", listed.join(", "));
        return Err(AdminFault::Conflict(reason));
    }
    let only = candidates.into_iter().next();
    only.map(|candidate| candidate.id).ok_or_else(|| AdminFault::not_found(kind, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ambiguous_name_lists_its_candidates() {
        let all = |count: usize| {
            (0..count).map(|n| Candidate { id: format!("c{n}"), name: "Shop".into() }).collect::<Vec<_>>()
        };
        assert_eq!(only("client", "shop", all(1)).unwrap(), "c0");
        let unknown = only("client", "shop", all(0)).unwrap_err();
        assert_eq!(unknown.to_string(), "client \"shop\" not found");
        let two = only("client", "shop", all(2)).unwrap_err().to_string();
        assert_eq!(two, "client \"shop\" is ambiguous: use one of the ids c0 (\"Shop\"), c1 (\"Shop\")");
        let many = only("client", "shop", all(20)).unwrap_err().to_string();
        assert!(many.ends_with("c15 (\"Shop\") and 4 more"), "{many}");
    }
}
