//! Checks where the requests of a route go: `upstream`, `upstreams` and `mirror`, and which routes
//! guard what is behind an upstream.

use auth::policy::route::{Guards, RouteMatch};
use gateway::config::{Destination, MirrorConfig, MirrorShare, Route, WeightedTarget, WeightedUpstream};

use super::super::fault::KeyPath;
use super::super::raw;
use super::super::scalar::Name;
use super::field_edits::{RouteEdits, SharedEdits};
use super::{Context, name_hint, names};
use crate::partial::Partial;

/// Names of the upstreams that a route refers to.
pub(super) fn references(route: &raw::Route) -> impl Iterator<Item = &str> {
    let several = route.upstreams.iter().filter_map(|entry| entry.upstream.as_ref());
    let mirrors = route.mirror.iter().map(|mirror| &mirror.upstream);
    route.upstream.iter().chain(several).chain(mirrors).map(|name| name.0.as_str())
}

/// Where the requests of a route go; `None`: other proxies forward. `Err` when a fault was noted.
pub(super) fn check(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    (own, shared): (&RouteEdits, &SharedEdits),
    context: &mut Context<'_>,
) -> Result<Option<Destination>, ()> {
    match (&raw.upstream, raw.upstreams.is_empty()) {
        (None, true) => without(raw, path, sound, context).map(|()| None),
        (Some(name), true) => {
            let upstream = find(name, &path.key("upstream"), sound, context);
            upstream.map(|at| Some(Destination::One(at))).ok_or(())
        }
        (Some(_), false) => {
            let message = "both `upstream` and `upstreams` say where requests go";
            context.faults.add(&path.key("upstream"), message, "keep one");
            Err(())
        }
        (None, false) => {
            let at = path.key("upstreams");
            if raw.upstreams.iter().all(|entry| entry.weight == 0) {
                let message = "every request gets 500, because all weights are 0";
                context.faults.warn(&at, message, "give an upstream a weight");
            }
            let entries = raw.upstreams.iter().enumerate();
            let entries: Vec<_> = entries
                .map(|(index, entry)| weighted((raw, entry), &at.index(index), sound, (own, shared), context))
                .collect();
            let entries = entries.into_iter().collect::<Option<Vec<_>>>().ok_or(())?;
            Ok(Some(Destination::weighted(entries)))
        }
    }
}

/// Checks a route without an upstream. `Err` when a fault was noted.
fn without(raw: &raw::Route, path: &KeyPath, sound: &Partial, context: &mut Context<'_>) -> Result<(), ()> {
    if let Some(listener) = sound.file.listener.iter().find(|listener| listener.authorization.is_none()) {
        let message = format!("the route {:?} has no upstream", raw.name.0);
        let hint = format!(
            "name an upstream: the listener {:?} has no `authorization`, so it forwards requests",
            listener.name.0
        );
        context.faults.add(path, message, hint);
        return Err(());
    }
    let rewrites = [
        ("strip_prefix", raw.strip_prefix.is_some()),
        ("replace_prefix", raw.replace_prefix.is_some()),
        ("replace_path", raw.replace_path.is_some()),
    ];
    if let Some((key, _)) = rewrites.iter().find(|(_, is_set)| *is_set) {
        let message = "the key has no effect: the route has no upstream";
        context.faults.add(&path.key(key), message, "change the path at the proxy in front");
        return Err(());
    }
    Ok(())
}

/// One of several upstreams. `None` when a fault was noted.
fn weighted(
    (route, raw): (&raw::Route, &raw::WeightedUpstream),
    path: &KeyPath,
    sound: &Partial,
    (own, shared): (&RouteEdits, &SharedEdits),
    context: &mut Context<'_>,
) -> Option<WeightedUpstream> {
    let target = match (&raw.upstream, raw.status) {
        (Some(name), None) => find(name, &path.key("upstream"), sound, context).map(WeightedTarget::Upstream),
        (None, Some(status @ (500 | 503))) => Some(WeightedTarget::Refused(status)),
        (None, Some(status)) => {
            let message = format!("{status} is not the status of a share without an upstream");
            context.faults.add(&path.key("status"), message, "write 500 or 503");
            None
        }
        _ => {
            let message = "exactly one of `upstream` and `status` says what happens to these requests";
            context.faults.add(path, message, "write one of the two");
            None
        }
    };
    let changes = [
        ("request_headers", raw.request_headers.is_some()),
        ("response_headers", raw.response_headers.is_some()),
    ];
    if let Some((key, _)) = changes.iter().find(|(_, is_set)| *is_set && raw.upstream.is_none()) {
        let message = "the key has no effect: nothing is forwarded";
        context.faults.add(&path.key(key), message, "remove it");
    }
    let at = path.key("request_headers");
    let request_headers =
        raw.request_headers.as_ref().and_then(|table| own.request_of((route, table), &at, sound, context));
    let at = path.key("response_headers");
    let response_headers =
        raw.response_headers.as_ref().and_then(|table| own.response_of(table, &at, shared, context));
    Some(WeightedUpstream { weight: raw.weight, target: target?, request_headers, response_headers })
}

/// The mirrors of a route. `None` when a fault was noted.
pub(super) fn mirrors(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Option<Vec<MirrorConfig>> {
    let at = path.key("mirror");
    let mirrors: Vec<_> = raw
        .mirror
        .iter()
        .enumerate()
        .map(|(index, mirror)| {
            let at = at.index(index);
            let upstream = find(&mirror.upstream, &at.key("upstream"), sound, context);
            let buffer = usize::try_from(mirror.buffer_size.0).unwrap_or(usize::MAX);
            if buffer == 0 {
                let message = "no copy of a request with a body would be complete";
                context.faults.add(&at.key("buffer_size"), message, "write a size such as \"256KiB\"");
            }
            let share = share(mirror, &at, context);
            Some(MirrorConfig { upstream: upstream?, share: share?, buffer })
        })
        .collect();
    mirrors.into_iter().collect()
}

/// The share of requests that a mirror gets. `None` when a fault was noted.
fn share(raw: &raw::Mirror, path: &KeyPath, context: &mut Context<'_>) -> Option<MirrorShare> {
    let at = path.key("fraction");
    match (raw.percent, raw.fraction) {
        (None, None) => Some(MirrorShare::ALL),
        (Some(_), Some(_)) => {
            context.faults.add(&at, "both `percent` and `fraction` set the share", "keep one");
            None
        }
        (Some(percent), None) if percent > 100 => {
            let message = format!("{percent} percent is more than every request");
            context.faults.add(&path.key("percent"), message, "write a number from 0 to 100");
            None
        }
        (Some(percent), None) => Some(MirrorShare { numerator: percent, denominator: 100 }),
        (None, Some(raw::Fraction { numerator, denominator })) => {
            if denominator == 0 || numerator > denominator {
                let message = format!("{numerator}/{denominator} is not a share of requests");
                context.faults.add(&at, message, "write a numerator that is not above the denominator");
                return None;
            }
            Some(MirrorShare { numerator, denominator })
        }
    }
}

/// Index of an upstream. `None` when a fault was noted.
fn find(name: &Name, path: &KeyPath, sound: &Partial, context: &mut Context<'_>) -> Option<usize> {
    let Name(name) = name;
    if let Some(number) = context.other_upstreams.and_then(|find| find(name)) {
        return Some(number);
    }
    let upstreams = names(&sound.file.upstream, |upstream| &upstream.name);
    let at = upstreams.iter().position(|known| known == name);
    if at.is_none() && !sound.may_be_unreadable("upstream", name) {
        let hint = name_hint(name, &upstreams, sound, "upstream");
        context.faults.add(path, format!("there is no upstream {name:?}"), hint);
    }
    at
}

/// Builds the guards of each upstream that a route with a path rewrite leads to. Guards are all
/// routes that lead to that upstream, or mirror to it; they decide again on the rewritten path.
pub(super) fn guards(
    routes: &[Route],
    matchers: &[RouteMatch],
    upstreams: usize,
    context: &mut Context<'_>,
) -> Vec<Option<Guards>> {
    let mut of = |upstream: usize| {
        let here = routes
            .iter()
            .zip(matchers)
            .enumerate()
            .filter(|(_, (route, _))| route.reached_upstreams().any(|reached| reached == upstream));
        if !here.clone().any(|(_, (route, _))| route.rewrite.is_some()) {
            return None;
        }
        let built = Guards::build(here.map(|(i, (_, matcher))| (i, matcher.clone())));
        // Routes that are distinct among all routes are distinct among a subset. Report any other
        // fault, because the upstream must not stay unguarded.
        let refuse = |faults: Vec<auth::policy::PolicyFault>| {
            for fault in faults {
                context.faults.add(
                    &KeyPath::default().key("route"),
                    fault.to_string(),
                    "make the routes distinct",
                );
            }
        };
        built.map_err(refuse).ok()
    };
    (0..upstreams).map(&mut of).collect()
}
