//! Checks `[login]`: providers, session keys and the database of sessions.

use std::sync::Arc;
use std::time::Duration;

use auth::mapping::ClaimMapping;
use auth::token::MAX_CLOCK_SKEW;
use credentials::config::KeySource;
use http_engine::config::ServerConfig;
use http_engine::tls::Protocols;
use http_engine::url::Url;
use login::config::{LoginConfig, LoginKind, LoginProvider};
use login::keys::SessionKeys;
use login::pages::LoginPages;
use pages::Shell;

use super::super::fault::KeyPath;
use super::super::raw::{self, LoginKind as Kind, ResponseMode};
use super::database::DatabaseKeys;
use super::login_client::login_client;
use super::login_origins::LoginOrigins;
use super::pages::add_faults;
use super::paths::plain_path;
use super::server_keys::ServerKeys;
use super::tls::{Client, KeyNames};
use super::{Context, DatabaseSettings, check_unique, issuers, login_origins};
use crate::partial::Partial;
use crate::version::version;

/// Parameters of the authorization request that the login itself sets.
const RESERVED_PARAMETERS: [&str; 9] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
    "response_mode",
];

/// Longest `ttl`. A database keeps a sign-out for twice this time. After that, no process may still
/// trust a session that it has not checked.
const MAX_TTL: Duration = Duration::from_hours(1);

/// The login configuration and its database.
pub(super) struct Checked {
    pub(super) login: Arc<LoginConfig>,
    pub(super) database: Option<DatabaseSettings>,
}

/// Checks the login. `None` when there is none, or a fault was noted.
pub(super) fn check(
    sound: &Partial,
    claims: &[String],
    shell: &Arc<Shell>,
    context: &mut Context<'_>,
) -> Option<Checked> {
    let path = KeyPath::top_level("login");
    let Some(raw) = &sound.file.login else {
        refuse_login_keys(sound, context);
        return None;
    };
    if !sound.file.route.iter().any(|route| route.login) && !sound.has_other_routes() {
        let hint = "write `login = true` in a route for browsers, or remove [login]";
        context.faults.add(&path, "no route has `login = true`", hint);
    }
    let origins = login_origins::check(raw, &path, context);
    check_routes(sound, raw, origins.as_ref(), context);
    warn_cookie_sessions_behind_proxy(sound, raw, &path, context);
    let base = plain_path(&raw.path, &path.key("path"), context);
    if base.as_deref() == Some("") {
        let hint = "write a path that no service uses, such as \"/oauth2\"";
        context.faults.add(&path.key("path"), "the login would own every path of its origins", hint);
    }
    let keys = keys(raw, &path, context);
    let database = database(raw, &path, context);
    for (key, value) in
        [("lifetime", raw.lifetime), ("idle", raw.idle), ("refresh", raw.refresh), ("ttl", raw.ttl)]
    {
        context.check_positive(value.0, &path.key(key));
    }
    if raw.ttl.0 > MAX_TTL {
        let message = format!("{} is more than an hour", raw.ttl);
        let hint =
            "a session that another process ended would be valid after the database has deleted its sign-out";
        context.faults.add(&path.key("ttl"), message, hint);
    }
    if raw.refresh > raw.lifetime {
        let message = format!("{} is longer than `lifetime` ({})", raw.refresh, raw.lifetime);
        context.faults.add(&path.key("refresh"), message, "no session would ever be refreshed");
    }
    let providers: Vec<(KeyPath, &raw::LoginProvider)> =
        raw.provider.iter().enumerate().map(|(at, p)| (path.key("provider").index(at), p)).collect();
    if providers.is_empty() {
        context.faults.add(&path, "there is no login provider", "add [[login.provider]]");
    }
    check_unique(
        providers.iter().map(|(path, p)| (path.clone(), &p.name)),
        "login providers",
        &mut context.faults,
    );
    check_unique_names(sound, &providers, context);
    let checked: Vec<_> = providers.iter().map(|(path, p)| provider(p, path, claims, context)).collect();
    let providers: Vec<LoginProvider> = checked.into_iter().collect::<Option<_>>()?;
    let database = database?;
    let pages = LoginPages::new(shell.clone()).map_err(|faults| add_faults(&faults, context)).ok()?;
    let LoginOrigins { exact, wildcards, shared, frame_ancestors } = origins?;
    let tls: Vec<u64> = providers.iter().map(|provider| provider.server.tls_version).collect();
    let shaped = version([
        serde_json::to_vec(raw).unwrap_or_default().as_slice(),
        serde_json::to_vec(&tls).unwrap_or_default().as_slice(),
        claims.join("\n").as_bytes(),
        // Facts about a session that another key sealed are not valid any more.
        keys.as_ref().map(SessionKeys::names).unwrap_or_default().as_slice(),
    ]);
    let login = LoginConfig {
        path: base?.into(),
        origins: exact,
        wildcards,
        shared,
        frame_ancestors: frame_ancestors.clone(),
        keys: keys?,
        lifetime: raw.lifetime.0,
        idle: raw.idle.0,
        refresh: raw.refresh.0,
        ttl: raw.ttl.0,
        page: raw.sign_in_page,
        pages: Arc::new(pages.with_frame_ancestors(frame_ancestors)),
        providers,
        version: shaped,
    };
    Some(Checked { login: Arc::new(login), database })
}

/// Checks that the session settings of routes are consistent.
fn check_routes(
    sound: &Partial,
    raw: &raw::Login,
    origins: Option<&LoginOrigins>,
    context: &mut Context<'_>,
) {
    for (path, route) in sound.paths("route", &sound.file.route) {
        if route.login && route.public {
            let message = "a public route needs no login";
            context.faults.add(&path.key("login"), message, "remove `login` or `public`");
        }
        if route.forward_access_token && !route.login {
            let message = "a route without `login` has no session token to forward";
            context.faults.add(
                &path.key("forward_access_token"),
                message,
                "add `login = true`, or remove it",
            );
        }
        if route.login_redirect != raw::LoginRedirect::Browsers && !route.login {
            let message = "the key has no effect: no client is sent to log in on this route";
            context.faults.add(&path.key("login_redirect"), message, "add `login = true`, or remove it");
        }
        let here = |host: &String| origins.is_some_and(|origins| origins.serve(host));
        if route.login && origins.is_some() && !route.hosts.is_empty() && !route.hosts.iter().any(here) {
            let message = "none of the route's hosts is an origin, so no user could log in";
            context.faults.add(&path.key("login"), message, "add its origin to `login.origins`");
        }
        let below = [
            route.path.as_ref().and_then(|path| path.prefix.as_deref()),
            route.path.as_ref().and_then(|path| path.exact.as_deref()),
        ];
        let shadowed = below.into_iter().flatten().find(|path| {
            let rest = path.strip_prefix(raw.path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if let Some(shadowed) = shadowed.filter(|_| !answers_auth(raw, route)) {
            let message = format!("{shadowed:?} is used by the login at its origins");
            context.faults.warn(&path.key("path"), message, "move the login with `login.path`");
        }
    }
}

/// Whether a route answers in place of the login's `auth`: it has exactly its path, a fixed response,
/// and sessions as a credential.
pub(super) fn answers_auth(raw: &raw::Login, route: &raw::Route) -> bool {
    let exact = route.path.as_ref().and_then(|path| path.exact.as_deref());
    let rest = exact.and_then(|exact| exact.strip_prefix(raw.path.as_str()));
    rest == Some("/auth") && route.login && route.respond.is_some()
}

/// Warns when sessions are in cookies and a proxy sends authorization requests over HTTP. A renewed
/// cookie must reach the browser, but these proxies do not forward headers of a positive response.
fn warn_cookie_sessions_behind_proxy(
    sound: &Partial,
    raw: &raw::Login,
    path: &KeyPath,
    context: &mut Context<'_>,
) {
    let answers_http =
        |listener: &raw::Listener| listener.authorization.as_ref().is_some_and(|a| a.http.is_some());
    if raw.database.is_none() && raw.database_file.is_none() && sound.file.listener.iter().any(answers_http) {
        let message =
            "sessions are in cookies, and a proxy that queries over HTTP does not forward a renewed cookie";
        let hint = "name a `database`, or every user has to log in again after a few minutes";
        context.faults.warn(&path.key("origins"), message, hint);
    }
}

/// Refuses routes that need a login when there is none.
fn refuse_login_keys(sound: &Partial, context: &mut Context<'_>) {
    if sound.has_unreadable("login") {
        return;
    }
    for (path, route) in sound.paths("route", &sound.file.route) {
        let redirects = route.login_redirect != raw::LoginRedirect::Browsers;
        for (key, is_set) in [
            ("login", route.login),
            ("login_redirect", redirects),
            ("forward_access_token", route.forward_access_token),
        ] {
            if is_set {
                let message = "browsers cannot log in: there is no [login]";
                context.faults.add(&path.key(key), message, "add [login]");
            }
        }
    }
}

fn keys(raw: &raw::Login, path: &KeyPath, context: &mut Context<'_>) -> Option<SessionKeys> {
    let at = path.key("keys_file");
    let hint = "a key permits logging in as any user: chmod o= the file";
    let read = context.read_private(&raw.keys_file, &at, hint)?;
    let file = context.reader.resolve(&raw.keys_file);
    let keys = SessionKeys::parse(std::str::from_utf8(&read).unwrap_or("?"));
    keys.map_err(|fault| {
        let hint = "write a key of 32 random bytes in each line: openssl rand -base64 32";
        context.faults.add(&at, format!("{}: {fault}", file.display()), hint);
    })
    .ok()
}

/// Checks the database of sessions. `Some(None)`: there is none.
#[expect(clippy::option_option, reason = "the outer one says that a fault was noted")]
fn database(raw: &raw::Login, path: &KeyPath, context: &mut Context<'_>) -> Option<Option<DatabaseSettings>> {
    if raw.database.is_none() && raw.database_file.is_none() {
        return Some(None);
    }
    let stated = DatabaseKeys { url: raw.database.as_deref(), file: raw.database_file.as_deref(), path };
    stated.check(context).map(Some)
}

/// Refuses a provider with the name of another issuer or authority. Rules refer to all of them by
/// name, and one name must mean the same users.
fn check_unique_names(sound: &Partial, all: &[(KeyPath, &raw::LoginProvider)], context: &mut Context<'_>) {
    for (path, provider) in all {
        let issuer = sound.file.issuer.iter().find(|issuer| issuer.name == provider.name);
        let authority = sound.file.token_authority.iter().find(|authority| authority.name == provider.name);
        let certificates = sound.file.client_certificates.as_ref().filter(|c| c.name == provider.name);
        let other = match provider.kind {
            Kind::Openid => issuer.is_some_and(|issuer| issuer.issuer != provider.url) || authority.is_some(),
            Kind::Openshift => {
                issuer.is_some() || authority.is_some_and(|authority| authority.url != provider.url)
            }
        };
        if other || certificates.is_some() {
            let message =
                format!("the name {:?} is already used by a different issuer or authority", provider.name.0);
            context.faults.add(
                &path.key("name"),
                message,
                "rules could not distinguish the two; choose another name",
            );
        }
    }
}

fn provider(
    raw: &raw::LoginProvider,
    path: &KeyPath,
    claims: &[String],
    context: &mut Context<'_>,
) -> Option<LoginProvider> {
    let client = login_client(raw, path, context);
    let mapping = match raw.kind {
        Kind::Openid => issuers::mapping(&raw.claims, &path.key("claims"), claims, context),
        Kind::Openshift => ClaimMapping::default(),
    };
    let timeout = context.check_positive(raw.timeout.0, &path.key("timeout"));
    let scopes = scopes(raw, path, context);
    check_values(raw, path, context);
    let reach = ServerKeys {
        url: &raw.url,
        ca: raw.ca.as_deref(),
        certificate: raw.certificate.as_deref(),
        key: raw.key.as_deref(),
        insecure_http: raw.insecure_http,
        plain_http_risk: "an attacker on the network can be any user",
        url_key: "url",
        example: "https://login.example",
    };
    let (url, (tls, tls_version)) = reach.check(path, context)?;
    if url.target().contains('?') {
        context.faults.add(&path.key("url"), "the URL has a query", "write the provider's own issuer URL");
        return None;
    }
    let kind = match raw.kind {
        Kind::Openid => LoginKind::OpenId {
            issuer: raw.url.as_str().into(),
            keys: KeySource::Discovery,
            tls: if url.is_https() {
                let protocols = Protocols { http1: true, http2: false };
                let client = Client {
                    ca: raw.ca.as_deref(),
                    identity: None,
                    protocols,
                    path,
                    keys: KeyNames::DEFAULT,
                };
                Some(context.tls_client(&client)?.0)
            } else {
                None
            },
            algorithms: raw.algorithms.iter().copied().map(issuers::algorithm).collect(),
            userinfo: raw.userinfo,
        },
        Kind::Openshift => {
            let text = raw.url.trim_end_matches('/');
            LoginKind::OpenShift { api: Url::parse(text).ok()? }
        }
    };
    let client = client?;
    Some(LoginProvider {
        name: raw.name.0.as_str().into(),
        display_name: raw.title.as_deref().unwrap_or(&raw.name.0).into(),
        kind,
        client_id: raw.client_id.as_str().into(),
        scopes: scopes?,
        parameters: raw.parameters.iter().map(|(n, v)| (n.as_str().into(), v.as_str().into())).collect(),
        server: ServerConfig {
            tls,
            tls_version,
            proxies: context.proxies.clone(),
            credential: client.credential,
            timeout,
            max_requests: raw.max_requests,
            max_per_second: None,
        },
        client_key: client.key,
        tls_client_auth: client.tls_client_auth,
        form_post: raw.response_mode == Some(ResponseMode::FormPost),
        clock_skew: raw.clock_skew.0,
        mapping,
        ends_provider_session: raw.logs_out,
    })
}

/// Checks values that are sound or not by themselves.
fn check_values(raw: &raw::LoginProvider, path: &KeyPath, context: &mut Context<'_>) {
    for name in raw.parameters.keys().filter(|name| RESERVED_PARAMETERS.contains(&name.as_str())) {
        let message = format!("{name:?} is set by the login itself");
        context.faults.add(&path.key("parameters").key(name), message, "remove it");
    }
    for (key, text) in [("client_id", Some(&raw.client_id)), ("title", raw.title.as_ref())] {
        if text.is_some_and(|text| text.trim().is_empty()) {
            context.faults.add(&path.key(key), "the text is empty", "write a value, or remove it");
        }
    }
    if raw.clock_skew.0 > MAX_CLOCK_SKEW {
        let message = format!("{} is more than 60s", raw.clock_skew);
        context.faults.add(&path.key("clock_skew"), message, "correct the clocks instead");
    }
}

fn scopes(raw: &raw::LoginProvider, path: &KeyPath, context: &mut Context<'_>) -> Option<Box<str>> {
    if raw.scopes.is_empty() {
        return Some(match raw.kind {
            Kind::Openid => "openid profile email".into(),
            Kind::Openshift => "user:info user:check-access".into(),
        });
    }
    let path = path.key("scopes");
    // Scope token of RFC 6749 section 3.3.
    let is_scope = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
    };
    let mut sound = true;
    for (at, scope) in raw.scopes.iter().enumerate().filter(|(_, scope)| !is_scope(scope)) {
        let message = format!("{scope:?} is not a scope");
        context.faults.add(&path.index(at), message, "write one scope per string, without spaces and quotes");
        sound = false;
    }
    if raw.kind == Kind::Openid && !raw.scopes.iter().any(|scope| scope == "openid") {
        let message = "the scopes lack `openid`, without which there is no ID token";
        context.faults.add(&path, message, "add \"openid\"");
        sound = false;
    }
    sound.then(|| raw.scopes.join(" ").into())
}
