//! Upstreams, their paths, the headers that they get, and paths that need no login.

use toml::Value;

use super::access::Access;
use crate::draft::{Draft, DraftTable, SharedLine, inline};
use crate::go;
use crate::input_fault::InputFault;
use crate::settings::{Given, ProgramSettings};

/// A server behind the program.
struct Server {
    name: String,
    /// The path that selects it; with a slash at the end everything below, otherwise itself.
    path: String,
    target: Target,
    given: Given,
}

enum Target {
    /// An upstream of the configuration.
    Upstream,
    /// A fixed status.
    Status(u16),
}

/// What every route to an upstream has.
struct Shared {
    lines: Vec<SharedLine>,
}

pub(super) fn translate(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    access: &Access,
    structured: Vec<(String, &'static str)>,
) -> Result<(), InputFault> {
    headers(settings, draft)?;
    let shared = shared(settings)?;
    let answer = if structured.is_empty() {
        answer_headers(settings, &shared)?
    } else {
        // With the structured file, the program has no flags for them.
        let set: toml::Table =
            structured.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        Some((inline([("set", Value::Table(set))]), "injectResponseHeaders".to_owned()))
    };
    let json_errors = settings.switch("force-json-errors")?;
    let servers = servers(settings, draft)?;
    health(settings, draft);
    auth_route(draft, access, answer.as_ref());
    let open = open_paths(settings);
    let apis = api_paths(settings, json_errors.is_some());
    let preflight = settings.switch("skip-auth-preflight")?;
    for server in &servers {
        if let Some(given) = &preflight {
            let table = draft.table("[[route]]");
            table.set("name", format!("{}-preflight", server.name), "").set(
                "methods",
                vec!["OPTIONS"],
                &given.shown(),
            );
            table.set("path", path_of(&server.path), "").set("public", true, "");
            server.finish(table, &shared, None);
        }
    }
    // The most specific route decides, so each of these needs one too.
    for (at, (path, _)) in apis.iter().enumerate() {
        let (Some(given), Some(server)) = (&preflight, server_of(&servers, path)) else { continue };
        let table = draft.table("[[route]]");
        table.set("name", format!("api-{}-preflight", at + 1), "");
        table.set("methods", vec!["OPTIONS"], &given.shown());
        table.set("path", path.clone(), "").set("public", true, "");
        server.finish(table, &shared, None);
    }
    if let Some(given) = &preflight {
        settings
            .different(given, "every OPTIONS request passes; `cors` of a route answers preflights itself");
    }
    open_routes(draft, &servers, &open, &shared);
    for (at, (path, given)) in apis.iter().enumerate() {
        let Some(server) = server_of(&servers, path) else { continue };
        let table = draft.table("[[route]]");
        table.set("name", format!("api-{}", at + 1), "").set("path", path.clone(), &given.shown());
        access.set(table, Some(("none", given)));
        server.finish(table, &shared, answer.as_ref());
    }
    let behind_a_proxy = Given::new("", "a proxy's check does not say which client is a browser");
    for server in &servers {
        let table = draft.table("[[route]]");
        table.set("name", &*server.name, "").set("path", path_of(&server.path), &server.given.shown());
        let redirect = match (&json_errors, &server.target) {
            (Some(given), _) => Some(("none", given)),
            (None, Target::Status(_)) => Some(("all", &behind_a_proxy)),
            (None, Target::Upstream) => None,
        };
        access.set(table, redirect);
        server.finish(table, &shared, answer.as_ref());
    }
    if let Some(given) = json_errors {
        settings.different(&given, "401 and 403 are problem documents (RFC 9457)");
    }
    Ok(())
}

impl Access {
    /// Sets who passes a route, and which clients without a credential it redirects.
    fn set(&self, table: &mut DraftTable, redirect: Option<(&'static str, &Given)>) {
        table.set("login", true, "");
        if let Some((clients, given)) = redirect {
            table.set("login_redirect", clients, &given.shown());
        }
        if let Some(from) = &self.basic_auth {
            table.set("basic_auth", "accept", from);
        }
        table.set("policy", self.policy.clone(), &self.from);
    }
}

/// Headers of an answer to another proxy: the value of `response_headers`, and from what it came.
type AnswerHeaders = (Value, String);

/// What answers to another proxy say of the caller.
fn answer_headers(
    settings: &mut ProgramSettings,
    shared: &Shared,
) -> Result<Option<AnswerHeaders>, InputFault> {
    let mut set = Vec::new();
    let mut from = Vec::new();
    let difference = "answers to another proxy have it, not responses of upstreams, which browsers see";
    if let Some(given) = settings.switch("set-xauthrequest")? {
        set.extend([
            ("X-Auth-Request-User", "{subject}".into()),
            ("X-Auth-Request-Email", "{email}".into()),
            ("X-Auth-Request-Groups", "{groups}".into()),
            ("X-Auth-Request-Preferred-Username", "{preferred_username}".into()),
        ]);
        if shared.lines.iter().any(|(key, ..)| *key == "forward_access_token") {
            set.push(("X-Auth-Request-Access-Token", "{access_token}".into()));
        }
        settings.different(&given, difference);
        from.push(given.origin);
    }
    if let Some(given) = settings.switch("set-authorization-header")? {
        set.push(("Authorization", "Bearer {id_token}".into()));
        settings.different(&given, difference);
        from.push(given.origin);
    }
    if let Some(given) = settings.switch("set-basic-auth")? {
        settings.different(&given, "`auth` does not answer with a password");
    }
    Ok((!set.is_empty()).then(|| (inline([("set", inline(set))]), from.join(", "))))
}

/// The route of the checks of another proxy, in place of the login's own `auth`, which knows no rules.
fn auth_route(draft: &mut Draft, access: &Access, answer: Option<&AnswerHeaders>) {
    let prefix = access.login_path.as_deref().unwrap_or("/oauth2");
    let table = draft.table("[[route]]");
    let from = Given::new("", "checks of nginx and other proxies, which take no redirect");
    table.set("name", "auth", "");
    table.set("path", inline([("exact", format!("{}/auth", prefix.trim_end_matches('/')).into())]), "");
    access.set(table, Some(("none", &from)));
    table.set("respond", inline([("status", 202.into())]), "");
    if let Some((headers, from)) = answer {
        table.set("response_headers", headers.clone(), from);
    }
}

/// Paths where no client is redirected.
fn api_paths(settings: &mut ProgramSettings, is_always: bool) -> Vec<(Value, Given)> {
    let mut paths = Vec::new();
    for given in settings.list("api-route") {
        match go::regex_path(&given.value) {
            _ if is_always => settings.translated(&given),
            Some(path) => {
                settings.translated(&given);
                paths.push((path, given));
            }
            None => settings.different(
                &given,
                "a regular expression has no equal: browsers are redirected there, and every other client gets 401",
            ),
        }
    }
    paths
}

impl Server {
    /// Sets where the requests of a route go. `answer`: headers, where it answers another proxy.
    fn finish(&self, table: &mut DraftTable, shared: &Shared, answer: Option<&AnswerHeaders>) {
        match self.target {
            Target::Upstream => {
                table.set("upstream", &*self.name, "").set_shared(&shared.lines);
            }
            Target::Status(status) => {
                let body = if status == 200 { "Authenticated" } else { "" };
                let respond = inline([("status", i64::from(status).into()), ("body", body.into())]);
                table.set("respond", respond, &self.given.shown());
                if let Some((headers, from)) = answer {
                    table.set("response_headers", headers.clone(), from);
                }
            }
        }
    }
}

fn path_of(path: &str) -> Value {
    match path.strip_suffix('/') {
        Some("") => inline([("prefix", "/".into())]),
        Some(prefix) => inline([("prefix", prefix.into())]),
        None => inline([("exact", path.into())]),
    }
}

/// The servers, with their upstreams.
fn servers(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<Vec<Server>, InputFault> {
    let timeout = settings.text("upstream-timeout");
    let timeout = match &timeout {
        Some(given) => Some((go::duration(given)?, given)),
        None => None,
    };
    let mut servers = Vec::new();
    for (at, given) in settings.list("upstream").into_iter().enumerate() {
        let name = if at == 0 { "application".to_owned() } else { format!("application-{}", at + 1) };
        let (target, endpoint, path) = if let Some(code) = given.value.strip_prefix("static://") {
            let status = code.trim_end_matches('/').parse().unwrap_or(200);
            settings.different(
                &given,
                "it answers behind another proxy's check: if that proxy asks `auth` below the login's path, or with \
                 `listener.authorization`, the route is not needed",
            );
            (Target::Status(status), None, "/".to_owned())
        } else if given.value.starts_with("file:") {
            settings.no_equal(
                &given,
                "files are not served: put a web server behind it, or a fixed answer (`respond`)",
            );
            continue;
        } else if let Some(path) = given.value.strip_prefix("unix://") {
            settings.translated(&given);
            (Target::Upstream, Some(format!("unix:{path}")), "/".to_owned())
        } else {
            let (origin, path) = go::server(&given)?;
            settings.translated(&given);
            (Target::Upstream, Some(origin), path)
        };
        if let Some(endpoint) = endpoint {
            let table = draft.table("[[upstream]]");
            table.set("name", &*name, "").set("endpoints", vec![endpoint], &given.shown());
            if let Some((duration, given)) = &timeout {
                table.set("timeouts", inline([("response_header", (&**duration).into())]), &given.shown());
            }
        }
        servers.push(Server { name, path, target, given });
    }
    if servers.is_empty() {
        // It only answers the checks of another proxy.
        let given = Given::new("", "no --upstream");
        let (name, path) = ("application".to_owned(), "/".to_owned());
        servers.push(Server { name, path, target: Target::Status(404), given });
    }
    if let Some((_, given)) = timeout {
        settings.translated(given);
    }
    if let Some(given) = settings.text("flush-interval") {
        settings.different(&given, "nothing to do: what arrives is passed on at once");
    }
    Ok(servers)
}

/// Identity headers for upstreams.
fn headers(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let (basic, user) = (settings.off("pass-basic-auth")?, settings.off("pass-user-headers")?);
    let prefers_email = settings.switch("prefer-email-to-user")?;
    let table = draft.table("[identity_headers]");
    table.set("style", "none", "");
    if basic.is_some() && user.is_some() {
        for given in [&basic, &user].into_iter().flatten() {
            settings.translated(given);
        }
    } else {
        let name = if prefers_email.is_some() { "email" } else { "subject" };
        let mut fields = vec![("X-Forwarded-User", name.into()), ("X-Forwarded-Groups", "groups".into())];
        if prefers_email.is_none() {
            fields.push(("X-Forwarded-Email", "email".into()));
        }
        fields.push(("X-Forwarded-Preferred-Username", "preferred_username".into()));
        table.set("fields", inline(fields), "--pass-user-headers");
        for given in [&basic, &user].into_iter().flatten() {
            settings
                .different(given, "the other of the two is on, so the headers are sent, as by the program");
        }
    }
    if let Some(given) = &prefers_email {
        settings.translated(given);
    }
    if let Some(given) = settings.text("basic-auth-password") {
        settings.no_equal(
            &super::secret(&given),
            "no password is sent in the name of a user; `request_headers` sends fixed values",
        );
    }
    if let Some(given) = settings.off("skip-auth-strip-headers")? {
        settings.different(&given, "headers of a client that name a user are always removed");
    }
    Ok(())
}

/// The lines that every route to an upstream has.
fn shared(settings: &mut ProgramSettings) -> Result<Shared, InputFault> {
    let mut lines: Vec<SharedLine> = Vec::new();
    if let Some(given) = settings.switch("pass-access-token")? {
        lines.push(("forward_access_token", true.into(), given.shown()));
        settings.translated(&given);
    }
    if let Some(given) = settings.switch("pass-authorization-header")? {
        let set = inline([("Authorization", "Bearer {id_token}".into())]);
        lines.push(("request_headers", inline([("set", set)]), given.shown()));
        settings.translated(&given);
    }
    if let Some(given) = settings.off("pass-host-header")? {
        lines.push(("preserve_host", false.into(), given.shown()));
        settings.translated(&given);
    }
    if let Some(given) = settings.off("proxy-websockets")? {
        lines.push(("upgrades", Value::Array(Vec::new()), given.shown()));
        settings.translated(&given);
    }
    lines.push(("request_timeout", "unlimited".into(), "oauth2-proxy does this without a flag".to_owned()));
    Ok(Shared { lines })
}

/// Paths for probes.
fn health(settings: &mut ProgramSettings, draft: &mut Draft) {
    for (flag, default, name) in [("ping-path", "/ping", "ping"), ("ready-path", "/ready", "ready")] {
        let given = settings.text(flag);
        let path = given.as_ref().map_or(default, |given| &*given.value);
        let from = given.as_ref().map_or_else(|| format!("the default of --{flag}"), Given::shown);
        let table = draft.table("[[route]]");
        table
            .set("name", name, "")
            .set("path", inline([("exact", path.into())]), &from)
            .set("public", true, "");
        table.set("respond", inline([("status", 200.into()), ("body", "OK".into())]), "");
        if let Some(given) = given {
            if name == "ready" {
                settings.different(&given, "it does not test the session store; `/readyz` of the admin listener tells whether the process is ready");
            } else {
                settings.translated(&given);
            }
        }
    }
}

/// Paths that need no login.
fn open_paths(settings: &mut ProgramSettings) -> Vec<(Option<String>, Value, Given)> {
    let mut open = Vec::new();
    for flag in ["skip-auth-regex", "skip-auth-route"] {
        for given in settings.list(flag) {
            let (method, pattern) = match given.value.split_once('=') {
                Some((method, _)) if flag == "skip-auth-route" && method.ends_with('!') => {
                    settings.no_equal(&given, "a route has a list of methods, not all but one; its requests need a login: write routes for the methods");
                    continue;
                }
                Some((method, pattern)) if flag == "skip-auth-route" && is_method(method) => {
                    (Some(method.to_owned()), pattern)
                }
                _ => (None, &*given.value),
            };
            match go::regex_path(pattern) {
                Some(path) => {
                    settings.translated(&given);
                    open.push((method, path, given));
                }
                None => settings.no_equal(
                    &given,
                    "a regular expression has no equal, so its requests need a login; write routes with `path`, and `public = true`",
                ),
            }
        }
    }
    open
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Routes for the paths that need no login, to the server that has their path.
fn open_routes(
    draft: &mut Draft,
    servers: &[Server],
    open: &[(Option<String>, Value, Given)],
    shared: &Shared,
) {
    for (at, (method, path, given)) in open.iter().enumerate() {
        let Some(server) = server_of(servers, path) else { continue };
        let table = draft.table("[[route]]");
        table.set("name", format!("open-{}", at + 1), "").set("path", path.clone(), &given.shown());
        table.set_some("methods", method.clone().map(|method| vec![method]), "").set("public", true, "");
        server.finish(table, shared, None);
    }
}

/// The server that has a route's path.
fn server_of<'s>(servers: &'s [Server], path: &Value) -> Option<&'s Server> {
    let member = path.get("exact").or_else(|| path.get("prefix")).or_else(|| path.get("template"));
    let text = member.and_then(Value::as_str).unwrap_or_default();
    let text = text.split('{').next().unwrap_or_default();
    let owns = |server: &&Server| {
        text == server.path || (server.path.ends_with('/') && text.starts_with(&*server.path))
    };
    servers.iter().filter(owns).max_by_key(|server| server.path.len())
}
