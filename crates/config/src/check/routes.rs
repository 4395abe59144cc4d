//! Checks `[[route]]`: which requests a route matches, who may pass, and where requests go.

use auth::policy::route::{Guards, HeaderMatch, PathMatch, RouteMatch, RouteTable};
use auth::policy::rule::{Policy, RuleSet};
use gateway::config::{OnExpiry, Rewrite, Route};

use super::super::fault::{KeyPath, Step};
use super::super::raw::{self, HeaderValue, PolicyChoice};
use super::super::scalar::Name;
use super::authorizers::is_authorization;
use super::paths::plain_path;
use super::rules::{self, Policies};
use super::{Context, check_unique, kubernetes, name_hint, names};
use crate::partial::Partial;

/// The routes and their lookup tables.
pub(super) struct Routes {
    pub(super) table: RouteTable,
    pub(super) guards: Vec<Option<Guards>>,
    pub(super) list: Vec<Route>,
    /// Match criteria of each route, for explanations.
    pub(super) matchers: Vec<RouteMatch>,
}

pub(super) fn check(
    sound: &Partial,
    policies: &Policies,
    wanted: &[String],
    context: &mut Context<'_>,
) -> Option<Routes> {
    let routes = sound.paths("route", &sound.file.route);
    if routes.is_empty() && !sound.has_unreadable("route") && !sound.is_provider_only() {
        let hint = "add [[route]] with name, path, upstream and policy";
        context.faults.add(&KeyPath::default(), "there is no route, so every request would get 404", hint);
    }
    check_unique(routes.iter().map(|(path, r)| (path.clone(), &r.name)), "routes", &mut context.faults);
    check_authentication_configured(sound, &routes, context);
    let matchers: Vec<_> = routes.iter().map(|(path, route)| matcher(route, path, context)).collect();
    let table = table(matchers.clone(), &routes, context);
    let built: Vec<_> = routes
        .iter()
        .map(|(path, route)| {
            let policy = policy(route, path, sound, (policies, wanted), context);
            one(route, path, sound, policy, context)
        })
        .collect();
    let list: Vec<Route> = built.into_iter().collect::<Option<_>>()?;
    let guards = guards(&list, &matchers, sound.file.upstream.len(), context);
    Some(Routes { table: table?, guards, list, matchers })
}

/// Builds the guards of each upstream that a route with a path rewrite leads to. Guards are all
/// routes to that upstream; they decide again on the rewritten path.
fn guards(
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
            .filter(|(_, (route, _))| route.upstream == Some(upstream));
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

/// Notes a fault when a route needs a credential, but nothing can authenticate a caller.
fn check_authentication_configured(
    sound: &Partial,
    routes: &[(KeyPath, &raw::Route)],
    context: &mut Context<'_>,
) {
    let file = &sound.file;
    let somebody = !file.issuer.is_empty()
        || !file.token_authority.is_empty()
        || file.client_certificates.is_some()
        || file.login.is_some();
    if somebody
        || sound.has_unreadable("issuer")
        || sound.has_unreadable("token_authority")
        || sound.has_unreadable("client_certificates")
        || sound.has_unreadable("login")
    {
        return;
    }
    if let Some((path, route)) =
        routes.iter().find(|(_, route)| route.policy.is_some() || route.access_review.is_some())
    {
        let what =
            format!("the route {:?} needs a credential, but nothing authenticates callers", route.name.0);
        let key = if route.policy.is_some() { "policy" } else { "access_review" };
        context.faults.add(
            &path.key(key),
            what,
            "add [[issuer]], [[token_authority]], [client_certificates] or [login]",
        );
    }
}

fn matcher(route: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> RouteMatch {
    let headers = route.headers.iter().map(|(name, value)| {
        let value = match value {
            HeaderValue::Exact(value) => Some(value.clone()),
            HeaderValue::Present(present) => {
                if !present.present {
                    let what = "a route cannot match the absence of a header";
                    context.faults.add(
                        &path.key("headers").key(name),
                        what,
                        "write `{ present = true }` or a value",
                    );
                }
                None
            }
        };
        HeaderMatch { name: name.clone(), value }
    });
    RouteMatch {
        name: route.name.0.clone(),
        hosts: route.hosts.clone(),
        headers: headers.collect(),
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
            let what = "only one of `prefix`, `exact` and `template` may be set";
            context.faults.add(&path.key("path"), what, "keep one, or write several routes");
            PathMatch::Any
        }
    }
}

fn table(
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

fn policy(
    route: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    (policies, wanted): (&Policies, &[String]),
    context: &mut Context<'_>,
) -> Option<Policy> {
    let review = kubernetes::review(route, path, sound.file.kubernetes.as_ref(), context).ok()?;
    if let (Some(review), false, None) = (&review, route.public, &route.policy) {
        return Some(Policy::Rules(RuleSet::with_review_only(review.clone())));
    }
    let rules = rules_policy(route, path, sound, (policies, wanted), context);
    match (rules, review) {
        (Some(Policy::Public), Some(_)) => {
            let what = format!("the route {:?} is public and has a review", route.name.0);
            context.faults.add(
                &path.key("access_review"),
                what,
                "a public route checks nothing; keep one of the two",
            );
            None
        }
        (Some(Policy::Rules(rules)), Some(review)) => Some(Policy::Rules(rules.with_review(review))),
        (rules, _) => rules,
    }
}

/// The route's policy without its access review.
fn rules_policy(
    route: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    (policies, wanted): (&Policies, &[String]),
    context: &mut Context<'_>,
) -> Option<Policy> {
    let at = path.key("policy");
    match (&route.policy, route.public) {
        (None, true) => Some(Policy::Public),
        (None, false) => {
            let what = format!("the route {:?} has no policy", route.name.0);
            let hint = "set `policy`, or write `public = true` if no credential is needed";
            context.faults.add(path, what, hint);
            None
        }
        (Some(_), true) => {
            let what = format!("the route {:?} is public and has a policy", route.name.0);
            context.faults.add(
                &path.key("public"),
                what,
                "a public route checks nothing; keep one of the two",
            );
            None
        }
        (Some(PolicyChoice::Inline(policy)), false) => {
            rules::build(policy, &at, sound, wanted, &mut context.faults).map(Policy::Rules)
        }
        (Some(PolicyChoice::Named(name)), false) => {
            let known = policies.get(name);
            if known.is_none() && !sound.may_be_unreadable("policies", name) {
                let known: Vec<&str> = sound.file.policies.keys().map(String::as_str).collect();
                let hint = name_hint(name, &known, sound, "policies");
                context.faults.add(&at, format!("there is no policy {name:?}"), hint);
            }
            known?.clone().map(Policy::Rules)
        }
    }
}

fn one(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    policy: Option<Policy>,
    context: &mut Context<'_>,
) -> Option<Route> {
    let upstream = upstream(raw, path, sound, context);
    let authorizer = authorizer(raw, path, sound, context);
    if let Some(timeout) = raw.request_timeout.0 {
        context.check_positive(timeout.0, &path.key("request_timeout"));
    }
    let rewrite = rewrite(raw, path, context);
    for (index, protocol) in raw.upgrades.iter().enumerate() {
        let token = super::super::scalar::is_token(&protocol.replace('/', ""));
        let problem = match protocol.as_str() {
            "h2c" => Some("HTTP/2 needs no upgrade (RFC 9113 section 3.1)"),
            other if !token || other.bytes().any(|b| b.is_ascii_uppercase()) => {
                Some("it is a lower-case name")
            }
            _ => None,
        };
        if let Some(hint) = problem {
            let what = format!("{protocol:?} is not a protocol to switch to");
            context.faults.add(&path.key("upgrades").index(index), what, hint);
        }
    }
    let websocket_origins = websocket_origins(raw, path, sound, context);
    Some(Route {
        name: raw.name.0.as_str().into(),
        policy: policy?,
        authorizer: authorizer.ok()?,
        upstream: upstream.ok()?,
        rewrite: rewrite.ok()?,
        login: raw.login,
        forward_authorization: raw.forward_authorization,
        forward_access_token: raw.forward_access_token,
        body_bytes: raw.body_size.0.map(|size| size.0),
        request_timeout: raw.request_timeout.0.map(|timeout| timeout.0),
        on_expiry: match raw.on_expiry {
            raw::OnExpiry::Close => OnExpiry::Close,
            raw::OnExpiry::Keep => OnExpiry::Keep,
        },
        upgrades: raw.upgrades.iter().map(|protocol| protocol.as_str().into()).collect(),
        websocket_origins: websocket_origins?,
        preserve_host: raw.preserve_host,
    })
}

/// Additional origins whose pages may open a WebSocket. `None` when a fault was noted.
fn websocket_origins(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Option<Vec<Box<str>>> {
    const HINT: &str = "write only scheme, host and port, such as \"https://app.example\"";
    let at = path.key("websocket_origins");
    let certificates =
        sound.file.client_certificates.is_some() || sound.has_unreadable("client_certificates");
    if !raw.websocket_origins.is_empty() && (raw.public || !(raw.login || certificates)) {
        let what = "the key has no effect: the route accepts neither sessions nor client certificates";
        context.faults.add(&at, what, "add `login = true`, or remove it");
        return None;
    }
    let mut origins: Vec<Box<str>> = Vec::new();
    let mut good = true;
    for (index, text) in raw.websocket_origins.iter().enumerate() {
        let fault = match super::login::parse_origin(text) {
            Ok(origin) if origins.contains(&origin.text) => {
                (format!("{:?} occurs twice", origin.text), "keep one")
            }
            Ok(origin) => {
                origins.push(origin.text);
                continue;
            }
            Err(what) => (what, HINT),
        };
        context.faults.add(&at.index(index), fault.0, fault.1);
        good = false;
    }
    good.then_some(origins)
}

/// Index of the route's authorizer, if it has one. `Err` when a fault was noted.
fn authorizer(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Result<Option<usize>, ()> {
    let Some(Name(name)) = &raw.authorizer else { return Ok(None) };
    let path = path.key("authorizer");
    if let Some(listener) = sound.file.listener.iter().find(|listener| listener.authorization.is_some()) {
        let what = format!(
            "the listener {:?} only authorizes for other proxies, which forward themselves",
            listener.name.0
        );
        let hint = "configure the authorizer at these proxies and remove it here, or move that listener to another file";
        context.faults.add(&path, what, hint);
        return Err(());
    }
    let known = names(&sound.file.authorizer, |authorizer| &authorizer.name);
    let at = known.iter().position(|known| known == name);
    if at.is_none() && !sound.may_be_unreadable("authorizer", name) {
        let hint = name_hint(name, &known, sound, "authorizer");
        context.faults.add(&path, format!("there is no authorizer {name:?}"), hint);
    }
    let given = at.and_then(|at| sound.file.authorizer[at].response_headers.as_ref());
    if raw.forward_authorization && given.is_some_and(|names| names.iter().any(|n| is_authorization(&n.0))) {
        let what = format!(
            "the service would get two `Authorization` headers: the client's and that of the authorizer {name:?}"
        );
        let hint = "remove `forward_authorization`, or remove `Authorization` from the authorizer's `response_headers`";
        context.faults.add(&path, what, hint);
        return Err(());
    }
    at.map(Some).ok_or(())
}

/// Index of the route's upstream, if it has one. `Err` when a fault was noted.
fn upstream(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Result<Option<usize>, ()> {
    let Some(Name(name)) = &raw.upstream else {
        if let Some(listener) = sound.file.listener.iter().find(|listener| listener.authorization.is_none()) {
            let what = format!("the route {:?} has no upstream", raw.name.0);
            let hint = format!(
                "name an upstream: the listener {:?} has no `authorization`, so it forwards requests",
                listener.name.0
            );
            context.faults.add(path, what, hint);
            return Err(());
        }
        let rewrites =
            [("strip_prefix", raw.strip_prefix.is_some()), ("replace_prefix", raw.replace_prefix.is_some())];
        if let Some((key, _)) = rewrites.iter().find(|(_, given)| *given) {
            let what = "the key has no effect: the route has no upstream";
            context.faults.add(&path.key(key), what, "change the path at the proxy in front");
            return Err(());
        }
        return Ok(None);
    };
    let upstreams = names(&sound.file.upstream, |upstream| &upstream.name);
    let at = upstreams.iter().position(|known| known == name);
    if at.is_none() && !sound.may_be_unreadable("upstream", name) {
        let hint = name_hint(name, &upstreams, sound, "upstream");
        context.faults.add(&path.key("upstream"), format!("there is no upstream {name:?}"), hint);
    }
    at.map(Some).ok_or(())
}

/// Checks the rewrite of the path. `Err` when a fault was noted.
fn rewrite(raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> Result<Option<Rewrite>, ()> {
    let strip = path.key("strip_prefix");
    let (from, to, at) = match (&raw.strip_prefix, &raw.replace_prefix) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            let what = "both `strip_prefix` and `replace_prefix` change the path";
            context.faults.add(&strip, what, "keep one");
            return Err(());
        }
        (Some(prefix), None) => (prefix, None, strip),
        (None, Some(replace)) => (&replace.from, Some(&replace.to), path.key("replace_prefix").key("from")),
    };
    let from_path = plain_path(from, &at, context);
    let to = match to {
        Some(to) => Some(plain_path(to, &path.key("replace_prefix").key("to"), context).ok_or(())?),
        None => None,
    };
    let from = from_path.ok_or(())?;
    if from.is_empty() && to.is_none() {
        context.faults.add(&at, "the prefix is empty", "write a prefix such as \"/api\", or remove the key");
        return Err(());
    }
    if !covers(&from, raw.path.as_ref()) {
        let what = format!("not every path of the route begins with {from:?}");
        let hint = format!("give the route a path below it, such as `path = {{ prefix = {from:?} }}`");
        context.faults.add(&at, what, hint);
        return Err(());
    }
    Ok(Some(match to {
        None => Rewrite::StripPrefix(from.into()),
        Some(to) => Rewrite::ReplacePrefix { from: from.into(), to: to.into() },
    }))
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
