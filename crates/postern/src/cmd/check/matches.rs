//! Route matching: which route takes a request, and why the others do not.

use auth::headers::Repeats;
use auth::policy::route::{PathMatch, RouteMatch, RouteTable, Scope};
use auth::request::{Canonical, Field};
use config::LoadedConfig;

use crate::cmd::check::outline::Outline;

/// Explains for every route whether it takes the request. Returns the index of the route that does.
pub(super) fn explain_routes(
    story: &mut Outline,
    loaded: &LoadedConfig,
    request: &Canonical<'_>,
    fields: &[Field<'_>],
) -> Option<usize> {
    story.part("route");
    let chosen = loaded.config.routing.table().find(request, fields);
    for (index, route) in loaded.raw.route.iter().enumerate() {
        let name = &route.name.0;
        let matcher = loaded.matchers[index].clone();
        if Some(index) == chosen {
            story.step(0, Some(true), format_args!("{name} matches"));
        } else if route_matches(matcher.clone(), request, fields) {
            story.step(0, None, format_args!("{name} matches too, but is less specific"));
        } else {
            story.step(0, Some(false), format_args!("{name}: {}", first_mismatch(&matcher, request, fields)));
        }
    }
    chosen
}

/// Whether a route takes the request if it is the only one.
pub(super) fn route_matches(matcher: RouteMatch, request: &Canonical<'_>, fields: &[Field<'_>]) -> bool {
    RouteTable::build(vec![matcher]).is_ok_and(|table| table.find(request, fields).is_some())
}

/// First condition of a route that the request does not meet.
pub(super) fn first_mismatch(matcher: &RouteMatch, request: &Canonical<'_>, fields: &[Field<'_>]) -> String {
    let bare = RouteMatch { name: matcher.name.clone(), ..RouteMatch::default() };
    let hosts = RouteMatch { hosts: matcher.hosts.clone(), ..bare.clone() };
    if !route_matches(hosts, request, fields) {
        return format!("the host is not {}", matcher.hosts.join(" or "));
    }
    let path = RouteMatch { path: matcher.path.clone(), ..bare.clone() };
    let path = RouteTable::build(vec![path])
        .map(|table| table.lookup(Scope::FILE, request, fields, Repeats::Separate));
    if !matches!(path, Ok(Ok(Some(_)))) {
        let mismatch = match &matcher.path {
            PathMatch::Exact(path) => format!("the path is not {path}"),
            PathMatch::Prefix(path) => format!("the path is not {path} or below"),
            PathMatch::Template(template) => format!("the path does not match {template}"),
            PathMatch::Any => "the path does not match".into(),
        };
        let in_some = if matches!(path, Ok(Err(_))) { " in some of its readings" } else { "" };
        return mismatch + in_some;
    }
    let methods = RouteMatch { methods: matcher.methods.clone(), ..bare.clone() };
    if !route_matches(methods, request, fields) {
        return format!("the method is not {}", matcher.methods.join(" or "));
    }
    let headers = RouteMatch { headers: matcher.headers.clone(), ..bare };
    if !route_matches(headers, request, fields) {
        let names: Vec<&str> = matcher.headers.iter().map(|header| header.name.as_str()).collect();
        return format!("the header {} does not match", names.join(" or "));
    }
    let names: Vec<&str> = matcher.query.iter().map(|parameter| parameter.name.as_str()).collect();
    format!("the query parameter {} does not match", names.join(" or "))
}
