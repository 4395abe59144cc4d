//! Checks `[[route]]`: which requests a route matches, who may pass, and where requests go.

use std::time::Duration;

use auth::policy::route::{Guards, RouteMatch, RouteTable};
use auth::policy::rule::{Policy, RuleSet};
use gateway::config::{OnExpiry, Route};
use login::config::LoginConfig;

use super::super::fault::KeyPath;
use super::super::raw::{self, PolicyChoice};
use super::super::scalar::{Bound, Name, Timespan};
use super::authorizers::is_authorization;
use super::cors::CorsPolicies;
use super::field_edits::SharedEdits;
use super::route_match::{matcher, table};
use super::rules::{self, Policies};
use super::{
    Context, actions, affinity, basic_auth, check_unique, cors, destinations, field_edits, kubernetes,
    name_hint, names, pages, rewrites,
};
use crate::partial::Partial;

/// The routes and their lookup tables.
pub(super) struct Routes {
    pub(super) table: RouteTable,
    pub(super) guards: Vec<Option<Guards>>,
    pub(super) list: Vec<Route>,
    /// Match criteria of each route, for explanations.
    pub(super) matchers: Vec<RouteMatch>,
}

/// What several routes share.
pub(super) struct Shared {
    pub(super) policies: Policies,
    /// Claims that are kept from tokens.
    pub(super) claims: Vec<String>,
    pub(super) cors: CorsPolicies,
    pub(super) edits: SharedEdits,
    /// Who may show the routes of the login in a frame, as sources of `frame-ancestors`.
    pub(super) frame_ancestors: Option<Box<str>>,
}

impl Shared {
    fn frames(&self) -> Option<&str> {
        self.frame_ancestors.as_deref()
    }

    /// Checks what routes share.
    pub(super) fn new(
        sound: &Partial,
        claims: &[String],
        login: Option<&LoginConfig>,
        context: &mut Context<'_>,
    ) -> Self {
        Self {
            policies: rules::policies(sound, claims, context),
            claims: claims.to_vec(),
            cors: cors::policies(sound, context),
            edits: field_edits::shared(sound, context),
            frame_ancestors: login.and_then(|login| login.frame_ancestors.clone()),
        }
    }
}

pub(super) fn check(sound: &Partial, shared: &Shared, context: &mut Context<'_>) -> Option<Routes> {
    let routes = sound.paths("route", &sound.file.route);
    if routes.is_empty()
        && !sound.has_unreadable("route")
        && !sound.is_provider_only()
        && !sound.has_objects()
    {
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
            let policy = policy(route, path, sound, (&shared.policies, &shared.claims), context);
            one(route, path, sound, (policy, shared), context)
        })
        .collect();
    let list: Vec<Route> = built.into_iter().collect::<Option<_>>()?;
    let guards = destinations::guards(&list, &matchers, sound.file.upstream.len(), context);
    Some(Routes { table: table?, guards, list, matchers })
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
        || file.login.is_some()
        || file.basic_auth.is_some();
    if somebody
        || sound.has_unreadable("issuer")
        || sound.has_unreadable("token_authority")
        || sound.has_unreadable("client_certificates")
        || sound.has_unreadable("login")
        || sound.has_unreadable("basic_auth")
    {
        return;
    }
    if let Some((path, route)) =
        routes.iter().find(|(_, route)| route.policy.is_some() || kubernetes::review_key(route).is_some())
    {
        let message =
            format!("the route {:?} needs a credential, but nothing authenticates callers", route.name.0);
        let review = kubernetes::review_key(route).filter(|_| route.policy.is_none());
        let key = review.unwrap_or("policy");
        context.faults.add(
            &path.key(key),
            message,
            "add [[issuer]], [[token_authority]], [client_certificates], [basic_auth] or [login]",
        );
    }
}

/// The policy of a route with its access reviews. `None` when a fault was noted.
pub(super) fn policy(
    route: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    (policies, claims): (&Policies, &[String]),
    context: &mut Context<'_>,
) -> Option<Policy> {
    let reviews = kubernetes::reviews(route, path, sound.file.kubernetes.as_ref(), context).ok()?;
    if let (Some(reviews), false, None) = (&reviews, route.public, &route.policy) {
        return Some(Policy::Rules(RuleSet::with_reviews_only(reviews.clone())));
    }
    let rules = rules_policy(route, path, sound, (policies, claims), context);
    match (rules, reviews) {
        (Some(Policy::Public), Some(_)) => {
            let message = format!("the route {:?} is public and has a review", route.name.0);
            context.faults.add(
                &path.key(kubernetes::review_key(route).unwrap_or_default()),
                message,
                "a public route checks nothing; keep one of the two",
            );
            None
        }
        (Some(Policy::Rules(rules)), Some(reviews)) => Some(Policy::Rules(rules.with_reviews(reviews))),
        (rules, _) => rules,
    }
}

/// The route's policy without its access reviews.
fn rules_policy(
    route: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    (policies, claims): (&Policies, &[String]),
    context: &mut Context<'_>,
) -> Option<Policy> {
    let at = path.key("policy");
    match (&route.policy, route.public) {
        (None, true) => Some(Policy::Public),
        (None, false) => {
            let message = format!("the route {:?} has no policy", route.name.0);
            let hint = "set `policy`, or write `public = true` if no credential is needed";
            context.faults.add(path, message, hint);
            None
        }
        (Some(_), true) => {
            let message = format!("the route {:?} is public and has a policy", route.name.0);
            context.faults.add(
                &path.key("public"),
                message,
                "a public route checks nothing; keep one of the two",
            );
            None
        }
        (Some(PolicyChoice::Inline(policy)), false) => {
            rules::build(policy, &at, sound, claims, &mut context.faults).map(Policy::Rules)
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

/// The checked values of a route. `None` when a fault was noted.
pub(super) fn one(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    (policy, shared): (Option<Policy>, &Shared),
    context: &mut Context<'_>,
) -> Option<Route> {
    let action = actions::check(raw, path, sound, context);
    let edits = field_edits::of_route((raw, path), &shared.edits, shared.frames(), sound, context);
    let destination = match &action {
        Ok(None) => destinations::check(raw, path, sound, (&edits, &shared.edits), context),
        Ok(Some(_)) => Ok(None),
        Err(()) => Err(()),
    };
    let mirrors = destinations::mirrors(raw, path, sound, context);
    let cors = cors::of_route(raw, path, sound, &shared.cors, context);
    only_where_forwarded(raw, path, sound, context);
    application_authorization(raw, path, sound, context);
    let mut bound = |value: Option<Bound<Timespan>>, key: &str| {
        let limit = value.map(|value| value.0.map_or(Duration::MAX, |limit| limit.0));
        limit.map(|limit| context.check_positive(limit, &path.key(key)))
    };
    let response_header_timeout = bound(raw.response_header_timeout, "response_header_timeout");
    let idle_timeout = bound(raw.idle_timeout, "idle_timeout");
    let authorizer = authorizer(raw, path, sound, context);
    if let Some(timeout) = raw.request_timeout.0 {
        context.check_positive(timeout.0, &path.key("request_timeout"));
    }
    if let Some(timeout) = raw.attempt_timeout {
        attempt_timeout(timeout, raw, &path.key("attempt_timeout"), context);
    }
    let rewrite = rewrites::of_path(raw, path, context);
    let rewrite_host = rewrites::of_host(raw, path, context);
    if raw.websocket_bearer && (raw.public || !raw.upgrades.iter().any(|name| name == "websocket")) {
        let message = "the key has no effect: the route needs no credential, or accepts no WebSocket";
        context.faults.add(&path.key("websocket_bearer"), message, "remove it");
    }
    upgrades(raw, path, context);
    let websocket_origins = websocket_origins(raw, path, sound, context);
    let basic_auth = basic_auth::route_use(raw, path, sound, context);
    Some(Route {
        name: raw.name.0.as_str().into(),
        metrics: None,
        is_closed: false,
        policy: policy?,
        denied_detail: pages::denied_detail(raw, path, context),
        authorizer: authorizer.ok()?,
        external_auth: None,
        retries: None,
        destination: destination.ok()?,
        mirrors: mirrors?,
        action: action.ok()?,
        attempt_timeout: raw.attempt_timeout.map(|timeout| timeout.0),
        response_header_timeout,
        idle_timeout,
        request_headers: edits.request(),
        response_headers: edits.response(&shared.edits),
        cors: cors.ok()?,
        application_authorization: raw.application_authorization,
        rewrite: rewrite.ok()?,
        rewrite_responses: raw.rewrite_responses,
        websocket_bearer: raw.websocket_bearer,
        login: raw.login,
        login_redirect: raw.login_redirect.into(),
        is_login_auth: sound.file.login.as_ref().is_some_and(|login| super::login::answers_auth(login, raw)),
        basic_auth: basic_auth.ok()?,
        forward_authorization: raw.forward_authorization,
        forward_access_token: raw.forward_access_token,
        body_bytes: raw.body_size.0.map(|size| size.0),
        request_timeout: raw.request_timeout.0.map(|timeout| timeout.0),
        strict_paths: raw.paths == raw::Paths::Strict,
        on_expiry: match raw.on_expiry {
            raw::OnExpiry::Close => OnExpiry::Close,
            raw::OnExpiry::Keep => OnExpiry::Keep,
        },
        upgrades: raw.upgrades.iter().map(|protocol| protocol.as_str().into()).collect(),
        websocket_origins: websocket_origins?,
        preserve_host: raw.preserve_host,
        rewrite_host,
        affinity: affinity::check(raw, path, context),
    })
}

/// Checks the time limit of an attempt.
fn attempt_timeout(attempt: Timespan, raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) {
    context.check_positive(attempt.0, path);
    if raw.request_timeout.0.is_some_and(|whole| whole.0 < attempt.0) {
        let message = format!("the whole request must not take longer than {}", raw.request_timeout);
        context.faults.add(path, message, "write at most `request_timeout`, or raise that");
    }
}

/// Checks the protocols that connections may be switched to.
fn upgrades(raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) {
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
            let message = format!("{protocol:?} is not a protocol to switch to");
            context.faults.add(&path.key("upgrades").index(index), message, hint);
        }
    }
}

/// Notes a fault for keys about responses beside a listener that forwards nothing.
fn only_where_forwarded(raw: &raw::Route, path: &KeyPath, sound: &Partial, context: &mut Context<'_>) {
    let Some(listener) = sound.file.listener.iter().find(|listener| listener.authorization.is_some()) else {
        return;
    };
    let keys = [
        ("response_headers", raw.response_headers.is_some()),
        ("security_headers", raw.security_headers.is_some()),
        ("request_headers", raw.request_headers.is_some()),
        ("cors", raw.cors.is_some()),
        ("application_authorization", raw.application_authorization),
        ("affinity", raw.affinity.is_some()),
        ("mirror", !raw.mirror.is_empty()),
        ("rewrite_host", raw.rewrite_host.is_some()),
        ("attempt_timeout", raw.attempt_timeout.is_some()),
    ];
    for (key, _) in keys.iter().filter(|(_, is_set)| *is_set) {
        let message = format!(
            "the listener {:?} only authorizes for other proxies, which forward themselves",
            listener.name.0
        );
        let hint = "configure it at these proxies, or move that listener to another file";
        context.faults.add(&path.key(key), message, hint);
    }
}

/// Checks that what is not for the gateway can be told from what is.
fn application_authorization(raw: &raw::Route, path: &KeyPath, sound: &Partial, context: &mut Context<'_>) {
    if !raw.application_authorization {
        return;
    }
    let at = path.key("application_authorization");
    if !raw.login {
        let message = "the key has no effect: a session is no credential on this route";
        context.faults.add(&at, message, "add `login = true`, or remove it");
    }
    if raw.basic_auth.is_some() {
        let message = "with `basic_auth`, a user name and password are for the gateway";
        context.faults.add(&at, message, "keep one of the two, or write several routes");
    }
    if raw.forward_authorization {
        let message = "`forward_authorization` forwards every `Authorization` header already";
        context.faults.add(&at, message, "keep one of the two");
    }
    let rest =
        |authority: &&raw::TokenAuthority| authority.prefixes.is_empty() && authority.issuers.is_empty();
    if let Some(authority) = sound.file.token_authority.iter().find(rest) {
        let message = format!(
            "the token authority {:?} validates every token that nobody else does, so none is left for the application",
            authority.name.0
        );
        context.faults.add(&at, message, "give the authority `prefixes` or `issuers`, or remove the key");
    }
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
    let sent_by_browsers = raw.login || raw.basic_auth.is_some() || certificates;
    if !raw.websocket_origins.is_empty() && (raw.public || !sent_by_browsers) {
        let message = "the key has no effect: the route accepts neither sessions nor client certificates";
        context.faults.add(&at, message, "add `login = true`, or remove it");
        return None;
    }
    let mut origins: Vec<Box<str>> = Vec::new();
    let mut good = true;
    for (index, text) in raw.websocket_origins.iter().enumerate() {
        let fault = match super::login_origins::parse_origin(text) {
            Ok(origin) if origins.contains(&origin.text) => {
                (format!("{:?} occurs twice", origin.text), "keep one")
            }
            Ok(origin) => {
                origins.push(origin.text);
                continue;
            }
            Err(message) => (message, HINT),
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
        let message = format!(
            "the listener {:?} only authorizes for other proxies, which forward themselves",
            listener.name.0
        );
        let hint = "configure the authorizer at these proxies and remove it here, or move that listener to another file";
        context.faults.add(&path, message, hint);
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
        let message = format!(
            "the service would get two `Authorization` headers: the client's and that of the authorizer {name:?}"
        );
        let hint = "remove `forward_authorization`, or remove `Authorization` from the authorizer's `response_headers`";
        context.faults.add(&path, message, hint);
        return Err(());
    }
    at.map(Some).ok_or(())
}
