//! Raw route: a rule of an HTTPRoute or GRPCRoute, or a path of an Ingress or Route, in the terms of the configuration file.
//!
//! Owns: the translation of matches, filters, backends and timeouts. Does not own: whether the result
//! is valid (`config::RouteChecker`).

use std::time::Duration;

use auth::policy::route::{HeaderMatch, PathMatch as RoutePath, QueryMatch, RouteMatch};
use controller::plan::{
    CorsFilter, FilterPlan, GrpcMethodMatch, HeaderModifier, MatchPlan, PathMatch, PathModifier,
    RedirectFilter, RoutePlan, RuleAction, ValueMatch, WeightedBackend,
};
use serde_json::{Map, Value, json};

/// Finds the number of the upstream of a backend; `None`: its share of the requests gets 500.
pub(crate) type FindUpstream<'f> = dyn Fn(&controller::plan::BackendTarget) -> Option<usize> + 'f;

/// The name of an upstream in a raw route.
pub(crate) fn upstream_name(number: usize) -> String {
    format!("u{number}")
}

/// The number of an upstream that has such a name.
pub(crate) fn upstream_number(name: &str) -> Option<usize> {
    name.strip_prefix('u')?.parse().ok()
}

/// The conditions of a rule, without hosts.
pub(crate) fn matcher(name: &str, matches: &MatchPlan) -> RouteMatch {
    let path = match &matches.grpc {
        Some(call) => grpc_path(call),
        None => match &matches.path {
            PathMatch::Exact(path) => RoutePath::Exact(path.to_string()),
            PathMatch::Prefix(path) => RoutePath::Prefix(path.to_string()),
        },
    };
    let header = |m: &ValueMatch| HeaderMatch { name: m.name.to_string(), value: Some(m.value.to_string()) };
    let parameter = |m: &ValueMatch| {
        let others = matches.other_parameters.iter().filter(|other| other.eq_ignore_ascii_case(&m.name));
        QueryMatch {
            name: m.name.to_string(),
            value: Some(m.value.to_string()),
            distinct: others.map(ToString::to_string).collect(),
        }
    };
    RouteMatch {
        name: name.into(),
        hosts: Vec::new(),
        path,
        methods: matches.method.iter().map(ToString::to_string).collect(),
        exact_methods: true,
        headers: matches.headers.iter().map(header).collect(),
        query: matches.query.iter().map(parameter).collect(),
    }
}

/// The path of a call is `/SERVICE/METHOD`.
fn grpc_path(call: &GrpcMethodMatch) -> RoutePath {
    match (&call.service, &call.method) {
        (Some(service), Some(method)) => RoutePath::Exact(format!("/{service}/{method}")),
        (Some(service), None) => RoutePath::Prefix(format!("/{service}")),
        (None, Some(method)) => RoutePath::Template(format!("/{{service}}/{method}")),
        (None, None) => RoutePath::Prefix("/".into()),
    }
}

/// What happens to requests that match, without a policy.
pub(crate) fn route(plan: &RoutePlan, upstream: &FindUpstream<'_>) -> Map<String, Value> {
    let mut route = Map::new();
    route.insert("name".into(), json!("route"));
    if let PathMatch::Prefix(prefix) = &plan.matches.path {
        route.insert("path".into(), json!({ "prefix": &**prefix }));
    }
    let backends = match &plan.action {
        RuleAction::Forward(backends) => Some(&**backends),
        RuleAction::Fail => Some(&[][..]),
        RuleAction::Redirect => None,
        RuleAction::NotFound => {
            route.insert("respond".into(), json!({ "status": 404, "body": "not found\n" }));
            None
        }
    };
    if let Some(backends) = backends {
        let none = || vec![json!({ "status": 500 })];
        let entries: Vec<Value> = backends.iter().map(|backend| entry(backend, upstream)).collect();
        let entries = if entries.is_empty() { none() } else { entries };
        match single(&entries) {
            Some(only) => route.insert("upstream".into(), only),
            None => route.insert("upstreams".into(), json!(entries)),
        };
        route.insert("request_timeout".into(), limit(plan.request_timeout));
        if let Some(attempt) = plan.backend_timeout.filter(|limit| !limit.is_zero()) {
            route.insert("attempt_timeout".into(), json!(span(attempt)));
        }
        // Whoever says how long a response may take also says how long its head may take.
        if let Some(head) = plan.backend_timeout.or(plan.request_timeout) {
            route.insert("response_header_timeout".into(), limit(Some(head)));
        }
    }
    let is_forwarded = backends.is_some();
    for filter in &*plan.filters {
        add_filter(&mut route, filter, plan, upstream, is_forwarded);
    }
    route
}

/// The name of the upstream, if it takes all requests and needs nothing else.
fn single(entries: &[Value]) -> Option<Value> {
    let [only] = entries else { return None };
    let only = only.as_object()?;
    let is_plain = only.keys().all(|key| key == "upstream" || key == "weight");
    let takes_all = only.get("weight").and_then(Value::as_u64).is_none_or(|weight| weight > 0);
    only.get("upstream").filter(|_| is_plain && takes_all).cloned()
}

fn entry(backend: &WeightedBackend, upstream: &FindUpstream<'_>) -> Value {
    let Some(number) = upstream(&backend.target) else {
        return json!({ "status": 500, "weight": backend.weight });
    };
    let mut entry = Map::new();
    entry.insert("upstream".into(), json!(upstream_name(number)));
    entry.insert("weight".into(), json!(backend.weight));
    for filter in &*backend.filters {
        match filter {
            FilterPlan::RequestHeaders(changes) => entry.insert("request_headers".into(), headers(changes)),
            FilterPlan::ResponseHeaders(changes) => entry.insert("response_headers".into(), headers(changes)),
            _ => None,
        };
    }
    Value::Object(entry)
}

fn add_filter(
    route: &mut Map<String, Value>,
    filter: &FilterPlan,
    plan: &RoutePlan,
    upstream: &FindUpstream<'_>,
    is_forwarded: bool,
) {
    match filter {
        // Nothing is forwarded, so there is nothing to change.
        FilterPlan::RequestHeaders(_) if !is_forwarded => {}
        FilterPlan::RequestHeaders(changes) => _ = route.insert("request_headers".into(), headers(changes)),
        FilterPlan::ResponseHeaders(changes) => _ = route.insert("response_headers".into(), headers(changes)),
        FilterPlan::Redirect(filter) => _ = route.insert("redirect".into(), redirect(filter)),
        FilterPlan::Rewrite(filter) => {
            if let Some(host) = &filter.hostname {
                route.insert("rewrite_host".into(), json!(&**host));
            }
            match (&filter.path, &plan.matches.path) {
                (Some(PathModifier::Full(path)), _) => {
                    route.insert("replace_path".into(), json!(&**path));
                }
                (Some(PathModifier::Prefix(to)), PathMatch::Prefix(from)) => {
                    let (from, to) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
                    route.insert("replace_prefix".into(), json!({ "from": from, "to": to }));
                }
                _ => {}
            }
        }
        FilterPlan::Mirror(mirror) => {
            if let Some(number) = upstream(&mirror.target) {
                let (numerator, denominator) = mirror.fraction;
                let fraction = json!({ "numerator": numerator, "denominator": denominator });
                let copy = json!({ "upstream": upstream_name(number), "fraction": fraction });
                let mirrors = route.entry("mirror").or_insert_with(|| json!([]));
                mirrors.as_array_mut().into_iter().for_each(|list| list.push(copy.clone()));
            }
        }
        FilterPlan::Cors(filter) => _ = route.insert("cors".into(), cors(filter)),
        // It becomes an authorizer of the route.
        FilterPlan::ExternalAuth(_) => {}
    }
}

/// Values are literal in a route of the cluster, and templates in the file.
fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

fn headers(changes: &HeaderModifier) -> Value {
    let values = |list: &[(controller::names::Name, controller::names::Name)]| {
        let values = list.iter().map(|(name, value)| (name.to_string(), json!(literal(value))));
        Value::Object(values.collect())
    };
    let remove: Vec<&str> = changes.remove.iter().map(|name| &**name).collect();
    json!({ "set": values(&changes.set), "add": values(&changes.add), "remove": remove })
}

fn redirect(filter: &RedirectFilter) -> Value {
    let mut redirect = Map::new();
    redirect.insert("status".into(), json!(filter.status));
    // Whoever writes a redirect to itself means the next hop to change something.
    redirect.insert("may_loop".into(), json!(true));
    if let Some(scheme) = &filter.scheme {
        redirect.insert("scheme".into(), json!(&**scheme));
    }
    if let Some(host) = &filter.hostname {
        redirect.insert("host".into(), json!(&**host));
    }
    if let Some(port) = filter.port {
        redirect.insert("port".into(), json!(port));
    }
    match &filter.path {
        Some(PathModifier::Full(path)) => _ = redirect.insert("path".into(), json!(&**path)),
        Some(PathModifier::Prefix(prefix)) => _ = redirect.insert("prefix".into(), json!(&**prefix)),
        None => {}
    }
    Value::Object(redirect)
}

fn cors(filter: &CorsFilter) -> Value {
    let list = |names: &[controller::names::Name]| json!(names.iter().map(|n| &**n).collect::<Vec<_>>());
    let is_any = |names: &[controller::names::Name]| names.iter().any(|name| &**name == "*");
    let mut cors = Map::new();
    cors.insert("origins".into(), list(&filter.allow_origins));
    cors.insert("credentials".into(), json!(filter.allow_credentials));
    // The standard permits any origin with credentials, and answers the one that asks.
    if filter.allow_credentials && is_any(&filter.allow_origins) {
        cors.insert("credentials_from_anywhere".into(), json!(true));
    }
    cors.insert("max_age".into(), json!(span(filter.max_age)));
    if !filter.allow_methods.is_empty() && !is_any(&filter.allow_methods) {
        cors.insert("methods".into(), list(&filter.allow_methods));
    }
    if !filter.allow_headers.is_empty() {
        cors.insert("headers".into(), list(&filter.allow_headers));
    }
    if !filter.expose_headers.is_empty() {
        cors.insert("expose".into(), list(&filter.expose_headers));
    }
    Value::Object(cors)
}

/// No limit is the default of a route of the cluster: it may stream for hours.
fn limit(limit: Option<Duration>) -> Value {
    match limit.filter(|limit| !limit.is_zero()) {
        Some(limit) => json!(span(limit)),
        None => json!("unlimited"),
    }
}

fn span(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
