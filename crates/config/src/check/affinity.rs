//! Checks `route.affinity`: what identifies a client whose requests go to the same endpoint.

use auth::request::Field;
use credentials::cookies::sets_login_cookie;
use gateway::config::Affinity;

use super::super::fault::KeyPath;
use super::super::raw;
use super::super::scalar::is_token;
use super::Context;

/// The affinity of a route. `None`: it has none, or a fault was noted.
pub(super) fn check(route: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> Option<Affinity> {
    let raw = route.affinity.as_ref()?;
    let at = path.key("affinity");
    let named = [raw.cookie.is_some(), raw.header.is_some(), raw.user].into_iter().filter(|set| *set).count();
    if named != 1 {
        let message =
            if named == 0 { "nothing identifies a client" } else { "several keys identify a client" };
        context.faults.add(&at, message, "write exactly one of `cookie`, `header` and `user = true`");
        return None;
    }
    if let Some(ttl) = raw.ttl {
        let at = at.key("ttl");
        if raw.cookie.is_none() {
            context.faults.add(&at, "the key has no effect without `cookie`", "remove it");
        } else if ttl.0.as_secs() == 0 {
            context.faults.add(&at, "browsers count whole seconds", "write \"1s\" or more");
        }
    }
    if raw.user && route.public {
        let message = "the key has no effect: a public route does not know its callers";
        context.faults.add(&at.key("user"), message, "use `cookie`, or remove it");
    }
    if let Some(name) = &raw.cookie {
        let at = at.key("cookie");
        if !is_token(name) {
            let hint = "write letters, digits, `-` and `_`, such as \"endpoint\"";
            context.faults.add(&at, format!("{name:?} is not the name of a cookie"), hint);
        } else if sets_login_cookie(&Field { name: "set-cookie", value: format!("{name}=").as_bytes() }) {
            let message = format!("{name:?} is the name of a cookie of the login");
            context.faults.add(&at, message, "choose another name");
        }
        return Some(Affinity::Cookie { name: name.as_str().into(), ttl: raw.ttl.map(|ttl| ttl.0) });
    }
    match &raw.header {
        Some(name) => Some(Affinity::Header(name.0.as_str().into())),
        None => Some(Affinity::User),
    }
}
