//! Checks which requests a route matches: its path, headers and query, and all routes together.

use auth::policy::route::{HeaderMatch, PathMatch, QueryMatch, RouteMatch, RouteTable};

use super::super::fault::{KeyPath, Step};
use super::super::raw::{self, HeaderValue};
use super::{Context, rules};

/// The conditions of a route.
pub(super) fn matcher(route: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> RouteMatch {
    let mut value = |value: &HeaderValue, at: KeyPath, kind: &str| match value {
        HeaderValue::Exact(value) => Some(value.clone()),
        HeaderValue::Present(present) => {
            if !present.present {
                let message = format!("a route cannot match the absence of a {kind}");
                context.faults.add(&at, message, "write `{ present = true }` or a value");
            }
            None
        }
    };
    let headers = route.headers.iter().map(|(name, wanted)| {
        let value = value(wanted, path.key("headers").key(name), "header");
        HeaderMatch { name: name.clone(), value }
    });
    let headers = headers.collect();
    let query = route.query.iter().map(|(name, wanted)| {
        let value = value(wanted, path.key("query").key(name), "query parameter");
        QueryMatch { name: name.clone(), value, distinct: Vec::new() }
    });
    let query = query.collect();
    RouteMatch {
        name: route.name.0.clone(),
        hosts: route.hosts.clone(),
        headers,
        query,
        exact_methods: false,
        methods: route.methods.iter().map(|method| method.0.clone()).collect(),
        path: path_match(route.path.as_ref(), path, context),
    }
}

fn path_match(raw: Option<&raw::Path>, path: &KeyPath, context: &mut Context<'_>) -> PathMatch {
    let Some(raw) = raw else { return PathMatch::Any };
    match (&raw.prefix, &raw.exact, &raw.template) {
        (Some(prefix), None, None) => PathMatch::Prefix(prefix.clone()),
        (None, Some(exact), None) => PathMatch::Exact(exact.clone()),
        (None, None, Some(template)) => PathMatch::Template(template.clone()),
        (None, None, None) => {
            let hint = "write `prefix`, `exact` or `template`; without `path` every path matches";
            context.faults.add(&path.key("path"), "the path is empty", hint);
            PathMatch::Any
        }
        _ => {
            let message = "only one of `prefix`, `exact` and `template` may be set";
            context.faults.add(&path.key("path"), message, "keep one, or write several routes");
            PathMatch::Any
        }
    }
}

/// The lookup table of all routes. `None` when a fault was noted.
pub(super) fn table(
    matches: Vec<RouteMatch>,
    routes: &[(KeyPath, &raw::Route)],
    context: &mut Context<'_>,
) -> Option<RouteTable> {
    let faults = match RouteTable::build(matches) {
        Ok(table) => return Some(table),
        Err(faults) => faults,
    };
    for fault in faults {
        // In `routes[3].headers[0]`, the first index counts the routes that could be read. The
        // second counts the headers of the route.
        let place = KeyPath::default().join(&fault.path);
        let [_, Step::Index(index), rest @ ..] = place.steps() else { continue };
        let Some((path, route)) = routes.get(*index) else { continue };
        let mut at = path.clone();
        for step in rest {
            at = match (step, at.last_key()) {
                (Step::Key(key), _) => at.key(key),
                (Step::Index(i), Some("headers")) => {
                    at.key(route.headers.keys().nth(*i).map_or("", String::as_str))
                }
                (Step::Index(i), Some("query")) => {
                    at.key(route.query.keys().nth(*i).map_or("", String::as_str))
                }
                (Step::Index(i), _) => at.index(*i),
            };
        }
        if at.last_key() == Some("path") {
            let raw = route.path.clone().unwrap_or_default();
            let kinds = [("prefix", raw.prefix), ("exact", raw.exact), ("template", raw.template)];
            at = kinds.iter().find(|(_, given)| given.is_some()).map_or(at.clone(), |(kind, _)| at.key(kind));
        }
        rules::add_problem(&at, &fault.problem.to_string(), &mut context.faults);
    }
    None
}
