//! Checks `[basic_auth]`: whose user names and passwords authenticate callers.

use std::sync::Arc;

use credentials::config::BasicAuth;
use credentials::htpasswd::Htpasswd;

use super::super::fault::KeyPath;
use super::super::raw;
use super::{Context, settings};
use crate::partial::Partial;

pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Option<Arc<BasicAuth>> {
    let raw = sound.file.basic_auth.as_ref()?;
    let path = KeyPath::top_level("basic_auth");
    let used = sound.file.route.iter().any(|route| route.basic_auth.is_some());
    if !used && !sound.has_unreadable("route") {
        let hint = "write `basic_auth = \"challenge\"` or \"accept\" in a route, or remove [basic_auth]";
        context.faults.add(&path, "no route accepts user names and passwords", hint);
    }
    check_name(raw, &path, sound, context);
    let realm = raw.realm.as_ref().unwrap_or(&sound.file.server.realm);
    if raw.realm.is_some() {
        settings::check_realm(realm, &path.key("realm"), context);
    }
    let users = users(raw, &path.key("file"), context)?;
    for (user, groups) in &raw.groups {
        let at = path.key("groups").key(user);
        if users.password(user).is_none() {
            // No fault: removing a user from the file must take effect at once.
            let message = format!("there is no user {user:?} in the file");
            context.faults.warn(&at, message, "add the user to the file, or remove the key");
        }
        if groups.iter().any(|group| group.is_empty() || group.chars().any(char::is_control)) {
            context.faults.add(&at, "a group is empty or has a control character", "name it in plain text");
        }
    }
    let groups = raw.groups.iter().map(|(user, groups)| {
        let groups = groups.iter().map(|group| group.as_str().into()).collect();
        (user.as_str().into(), groups)
    });
    Some(Arc::new(BasicAuth {
        name: raw.name.0.as_str().into(),
        realm: realm.as_str().into(),
        users,
        groups: groups.collect(),
    }))
}

/// Refuses the name of another source of identities: rules refer to all of them by name.
fn check_name(raw: &raw::BasicAuth, path: &KeyPath, sound: &Partial, context: &mut Context<'_>) {
    let file = &sound.file;
    let issuers = file.issuer.iter().map(|issuer| &issuer.name);
    let authorities = file.token_authority.iter().map(|authority| &authority.name);
    let certificates = file.client_certificates.iter().map(|certificates| &certificates.name);
    let login = file.login.iter().flat_map(|login| &login.provider).map(|provider| &provider.name);
    let mut taken = issuers.chain(authorities).chain(certificates).chain(login);
    if taken.any(|name| *name == raw.name) {
        let message = format!("the name {:?} is already used by another source of identities", raw.name.0);
        let hint = "rules could not distinguish the two; choose another `name`";
        context.faults.add(&path.key("name"), message, hint);
    }
}

/// Reads the file. Notes every line that cannot be used.
fn users(raw: &raw::BasicAuth, path: &KeyPath, context: &mut Context<'_>) -> Option<Htpasswd> {
    let text = context.read(&raw.file, path)?;
    match Htpasswd::parse(&text) {
        Ok(users) => {
            if users.is_empty() {
                let hint = "add one with htpasswd -B";
                context.faults.warn(path, format!("{} has no user", raw.file.display()), hint);
            }
            Some(users)
        }
        Err(faults) => {
            for fault in faults {
                let text = format!("{}: {fault}", raw.file.display());
                let (message, hint) = text.split_once("; ").unwrap_or((&text, "correct the line"));
                context.faults.add(path, message, hint);
            }
            None
        }
    }
}

/// How a route uses passwords. `Err` when a fault was noted.
pub(super) fn route_use(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Result<Option<gateway::config::BasicAuthUse>, ()> {
    let Some(raw_use) = raw.basic_auth else { return Ok(None) };
    let at = path.key("basic_auth");
    if raw.public {
        let message = "the key has no effect: the route is public";
        context.faults.add(&at, message, "remove it, or write a policy in place of `public`");
        return Err(());
    }
    if sound.file.basic_auth.is_none() {
        if !sound.has_unreadable("basic_auth") {
            context.faults.add(&at, "there is no [basic_auth]", "add it with `file`, or remove the key");
        }
        return Err(());
    }
    Ok(Some(match raw_use {
        raw::BasicAuthUse::Accept => gateway::config::BasicAuthUse::Accept,
        raw::BasicAuthUse::Challenge => gateway::config::BasicAuthUse::Challenge,
    }))
}
