//! Checks how the path and the host of a request change before it is forwarded.

use auth::request::{Canonical, RawRequest, Scheme};
use gateway::config::Rewrite;

use super::super::fault::KeyPath;
use super::super::raw;
use super::Context;
use super::paths::{canonical, plain_path};

/// Checks the rewrite of the path. `Err` when a fault was noted.
pub(super) fn of_path(
    raw: &raw::Route,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Option<Rewrite>, ()> {
    let keys = [
        ("strip_prefix", raw.strip_prefix.is_some()),
        ("replace_prefix", raw.replace_prefix.is_some()),
        ("replace_path", raw.replace_path.is_some()),
    ];
    let mut keys = keys.iter().filter(|(_, is_set)| *is_set).map(|(key, _)| *key);
    let (first, second) = (keys.next(), keys.next());
    if let (Some(first), Some(second)) = (first, second) {
        let message = format!("both `{first}` and `{second}` change the path");
        context.faults.add(&path.key(first), message, "keep one");
        return Err(());
    }
    if raw.rewrite_responses && raw.strip_prefix.is_none() && raw.replace_prefix.is_none() {
        let (message, hint) = match first {
            None => {
                ("the key has no effect: the path is forwarded as it is", "add `strip_prefix`, or remove it")
            }
            Some(_) => ("a path that replaces all others cannot be changed back", "remove it"),
        };
        context.faults.add(&path.key("rewrite_responses"), message, hint);
    }
    if let Some(whole) = &raw.replace_path {
        return whole_path(whole, &path.key("replace_path"), context).map(Some).ok_or(());
    }
    let (from, to, at) = match (&raw.strip_prefix, &raw.replace_prefix) {
        (Some(prefix), _) => (prefix, None, path.key("strip_prefix")),
        (None, Some(replace)) => (&replace.from, Some(&replace.to), path.key("replace_prefix").key("from")),
        (None, None) => return Ok(None),
    };
    let from_path = plain_path(from, &at, context);
    let to = match to {
        // The rest of the path begins with a slash.
        Some(to) if to.is_empty() => Some(String::new()),
        Some(to) => Some(plain_path(to, &path.key("replace_prefix").key("to"), context).ok_or(())?),
        None => None,
    };
    let from = from_path.ok_or(())?;
    if from.is_empty() && to.is_none() {
        context.faults.add(&at, "the prefix is empty", "write a prefix such as \"/api\", or remove the key");
        return Err(());
    }
    if !covers(&from, raw.path.as_ref()) {
        let message = format!("not every path of the route begins with {from:?}");
        let hint = format!("give the route a path below it, such as `path = {{ prefix = {from:?} }}`");
        context.faults.add(&at, message, hint);
        return Err(());
    }
    Ok(Some(match to {
        None => Rewrite::StripPrefix(from.into()),
        Some(to) => Rewrite::ReplacePrefix { from: from.into(), to: to.into() },
    }))
}

/// A path that replaces the whole one. `None` when a fault was noted.
fn whole_path(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<Rewrite> {
    let hint = match canonical(text) {
        Ok(canonical) if canonical == text => return Some(Rewrite::ReplacePath(text.into())),
        Ok(canonical) => format!("its canonical form is {canonical:?}"),
        Err(problem) => problem,
    };
    context.faults.add(path, format!("{text:?} is not a canonical path"), hint);
    None
}

/// Whether every path that the route matches begins with `prefix`, on a segment boundary.
fn covers(prefix: &str, path: Option<&raw::Path>) -> bool {
    let below = |text: &String| {
        let rest = text.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let Some(path) = path else { return prefix.is_empty() };
    [&path.prefix, &path.exact, &path.template].into_iter().flatten().all(below)
}

/// Checks the host that the upstream receives.
pub(super) fn of_host(raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> Option<Box<str>> {
    let host = raw.rewrite_host.as_deref()?;
    let at = path.key("rewrite_host");
    let canonical = Canonical::parse(&RawRequest {
        method: "GET",
        scheme: Scheme::Https,
        authority: Some(host.as_bytes()),
        host: None,
        target: b"/",
    });
    if !canonical.is_ok_and(|request| request.authority() == host) {
        let hint =
            "write a lower-case name, such as \"app.internal\", and a port that is not 443 if it is needed";
        context.faults.add(&at, format!("{host:?} is not a host"), hint);
    }
    if !raw.preserve_host {
        let message = "both `rewrite_host` and `preserve_host` set the host";
        context.faults.add(&at, message, "remove `preserve_host`");
    }
    Some(host.into())
}
