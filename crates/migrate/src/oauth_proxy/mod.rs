//! oauth-proxy of `OpenShift`: its arguments, its environment and its file.
//!
//! The program signs people in at `OpenShift`, and asks once, at the sign-in, for a review
//! (`-openshift-sar`). Programs with tokens are reviewed on each request, below the paths of
//! `-openshift-delegate-urls`. Here every request is reviewed, and the answers are cached.

mod flags;
mod reviews;

use toml::Value;

pub use self::flags::SYNTAX;
use self::flags::VARIABLES;
use self::reviews::{Delegation, Reviews};
use crate::draft::{Draft, DraftTable, SharedLine, inline};
use crate::files::ContainerFiles;
use crate::go;
use crate::input_fault::InputFault;
use crate::settings::{Given, ProgramSettings};
use crate::{Migration, SecretFile};

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const API_SERVER: &str = "https://kubernetes.default.svc";
/// Name of the provider in rules.
const NAME: &str = "openshift";

/// Translates settings. An argument counts before a variable, and a variable before the file.
///
/// # Errors
/// What the program would refuse, and files that are not there.
pub fn translate(
    arguments: &[String],
    environment: &[(String, String)],
    files: &ContainerFiles,
) -> Result<Migration, InputFault> {
    let arguments = SYNTAX.read(arguments)?;
    let known: Vec<_> =
        environment.iter().filter(|(name, _)| VARIABLES.contains(&&**name)).cloned().collect();
    let environment = SYNTAX.environment("OAUTH2_PROXY_", &known);
    let file = match ProgramSettings::new(arguments.clone()).text("config") {
        Some(given) => SYNTAX.file(&given.value, files.text(&given)?)?,
        None => Vec::new(),
    };
    let mut settings = ProgramSettings::layered([file, environment, arguments]);
    if let Some(given) = settings.text("config") {
        settings.translated(&given);
    }
    let (mut draft, mut secrets) = (Draft::default(), Vec::new());
    listeners(&mut settings, &mut draft)?;
    let login_path = login(&mut settings, &mut draft, &mut secrets)?;
    let reviews = Reviews::take(&mut settings)?;
    if !reviews.delegated.is_empty() {
        tokens(&mut draft);
    }
    if reviews.are_needed() {
        let table = draft.table("[kubernetes]");
        table.set("url", API_SERVER, "");
        if !reviews.delegated.is_empty() {
            table.set("token_authorities", vec!["cluster"], "");
        }
    }
    routes(&mut settings, &mut draft, &reviews, &login_path)?;
    for (names, remedy) in WITHOUT_EQUAL {
        settings.none_equal(names, remedy);
    }
    let mut report = settings.finish();
    report.notes.extend(
        [
            "people sign in once more: sessions of oauth-proxy are not taken over",
            "a review is made with the gateway's own account, which needs `create` on `subjectaccessreviews`, not with \
             the token of the person",
            "a negative review is 403 on every request, not once at the sign-in; a changed role takes effect within \
             10 s, or at once where the account may watch roles and bindings",
            "`GAP-*` headers are not sent",
        ]
        .map(str::to_owned),
    );
    let head = [
        "Translated from the settings of oauth-proxy.".to_owned(),
        "Check it: postern check FILE".to_owned(),
    ];
    Ok(Migration { configuration: draft.render(&head), secrets, report })
}

fn listeners(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let (certificate, key) = (settings.text("tls-cert"), settings.text("tls-key"));
    let client_ca = settings.text("tls-client-ca");
    let mut members: Vec<(&'static str, Value)> = Vec::new();
    for (name, given) in [("certificate", &certificate), ("key", &key)] {
        let Some(given) = given else { continue };
        members.push((name, given.value.clone().into()));
        settings.translated(given);
    }
    if let Some(given) = &client_ca {
        members.push(("client_ca", given.value.clone().into()));
        members.push(("client_certificates", "optional".into()));
        settings.translated(given);
        draft.table("[client_certificates]").set("subject", "subject_cn", &given.shown()).set(
            "groups",
            vec!["subject_o"],
            "",
        );
    }
    for (flag, default, name) in
        [("https-address", ":8443", "https"), ("http-address", "127.0.0.1:4180", "http")]
    {
        let was_given = settings.has(flag);
        let given = settings.text(flag);
        // An empty address turns the listener off.
        let given = match given {
            Some(given) => given,
            None if was_given => continue,
            None => Given::new(default, format!("the default of -{flag}")),
        };
        let table = draft.table("[[listener]]");
        table.set("name", name, "");
        if let Some(path) = given.value.strip_prefix("unix://") {
            table.set("address", format!("unix:{path}"), &given.shown());
            settings.translated(&given);
        } else {
            let listen = go::listen(&given)?;
            table.set("address", listen.address, &given.shown());
            if listen.loses_ipv6 {
                settings.different(
                    &given,
                    "it listens on IPv4 only; for IPv6 add a listener with the address `[::]`",
                );
            } else {
                settings.translated(&given);
            }
        }
        if name == "https" && !members.is_empty() {
            table.set("tls", inline(members.clone()), "-tls-cert, -tls-key");
        }
    }
    Ok(())
}

/// The login at `OpenShift`. Returns its path.
fn login(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    secrets: &mut Vec<SecretFile>,
) -> Result<String, InputFault> {
    let table = draft.table("[login]");
    match settings.text("redirect-url") {
        Some(given) => {
            table.set("origins", vec![go::origin(&given)?.0], &given.shown());
            settings.translated(&given);
        }
        None => {
            table.set(
                "origins",
                vec!["https://app.example"],
                "write the address at which people open the application",
            );
            let given = Given::new("", "no -redirect-url");
            settings.no_equal(
                &given,
                "write the origins of your services into `login.origins`, as browsers see them",
            );
        }
    }
    let prefix = settings.text("proxy-prefix");
    let path = prefix.as_ref().map_or("/oauth", |given| &*given.value).to_owned();
    table.set("path", &*path, "-proxy-prefix");
    table.set("keys_file", "login.keys", "a new key");
    secrets.push(SecretFile { name: "login.keys", content: None });
    for name in ["cookie-secret", "cookie-secret-file"] {
        if let Some(given) = settings.text(name) {
            let given = Given::new("…", given.origin);
            settings.different(&given, "a new key was made: login.keys; put it into all replicas");
        }
    }
    for (flag, key) in [("cookie-expire", "lifetime"), ("cookie-refresh", "refresh")] {
        let Some(given) = settings.text(flag) else { continue };
        match &*go::duration(&given)? {
            "0s" => settings.different(&given, format!("the default of `login.{key}` holds")),
            duration => {
                table.set(key, duration, &given.shown());
                settings.translated(&given);
            }
        }
    }
    match settings.switch("skip-provider-button")? {
        Some(given) => settings.translated(&given),
        None => {
            table.set("sign_in_page", true, "no -skip-provider-button");
        }
    }
    if let Some(given) = prefix {
        settings.translated(&given);
    }
    provider(settings, draft.table("[[login.provider]]"), secrets);
    Ok(path)
}

fn provider(settings: &mut ProgramSettings, table: &mut DraftTable, secrets: &mut Vec<SecretFile>) {
    table.set("name", NAME, "").set("kind", "openshift", "").set("url", API_SERVER, "");
    let cas = settings.list("openshift-ca");
    let ca = cas.first().map_or_else(|| format!("{SERVICE_ACCOUNT}/ca.crt"), |given| given.value.clone());
    table.set("ca", ca, "-openshift-ca");
    for (at, given) in cas.iter().enumerate() {
        if at == 0 {
            settings.translated(given);
        } else {
            settings.no_equal(given, "`ca` is one file: put all certificates into it");
        }
    }
    let (id, account) = (settings.text("client-id"), settings.text("openshift-service-account"));
    match (id, account) {
        (Some(given), account) => {
            table.set("client_id", &*given.value, &given.shown());
            settings.translated(&given);
            if let Some(account) = account {
                settings.different(&account, "the client ID counts, as by the program");
            }
        }
        (None, account) => {
            let given = account.unwrap_or_else(|| Given::new("NAME", "no -openshift-service-account"));
            let id = format!("system:serviceaccount:NAMESPACE:{}", given.value);
            table.set("client_id", id, &given.shown());
            settings.no_equal(&given, "write the namespace of the service account into `client_id`");
        }
    }
    let (value, file) = (settings.text("client-secret"), settings.text("client-secret-file"));
    match (&file, &value) {
        (Some(given), _) => {
            table.set("client_secret_file", &*given.value, &given.shown());
            settings.translated(given);
        }
        (None, Some(given)) => {
            table.set("client_secret_file", "login.secret", &given.origin);
            secrets.push(SecretFile { name: "login.secret", content: Some(format!("{}\n", given.value)) });
            settings.translated(&Given::new("…", given.origin.clone()));
        }
        (None, None) => {
            table.set(
                "client_secret_file",
                format!("{SERVICE_ACCOUNT}/token"),
                "the token of the service account",
            );
        }
    }
    if let (Some(_), Some(given)) = (&file, &value) {
        settings.different(&Given::new("…", given.origin.clone()), "the file counts, as by the program");
    }
    if let Some(given) = settings.text("scope") {
        let scopes: Vec<String> = given.value.split_whitespace().map(str::to_owned).collect();
        table.set("scopes", scopes, &given.shown());
        settings.translated(&given);
    }
}

/// Tokens of programs.
fn tokens(draft: &mut Draft) {
    let table = draft.table("[[token_authority]]");
    table
        .set("name", "cluster", "-openshift-delegate-urls")
        .set("kind", "token-review", "")
        .set("url", API_SERVER, "");
    table.set("ca", format!("{SERVICE_ACCOUNT}/ca.crt"), "").set(
        "token_file",
        format!("{SERVICE_ACCOUNT}/token"),
        "",
    );
    let issuer = "the issuer of the cluster: kubectl get --raw /.well-known/openid-configuration";
    table.set("issuers", vec!["https://kubernetes.default.svc.cluster.local"], issuer);
    table.set("prefixes", vec!["sha256~"], "").set("any_audience", true, "");
}

fn routes(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    reviews: &Reviews,
    login_path: &str,
) -> Result<(), InputFault> {
    headers(settings, draft)?;
    auth_route(settings, draft, reviews, login_path)?;
    let upstreams = upstreams(settings, draft)?;
    let mut common: Vec<SharedLine> = Vec::new();
    for (flag, key) in
        [("pass-access-token", "forward_access_token"), ("pass-user-bearer-token", "forward_authorization")]
    {
        let Some(given) = settings.switch(flag)? else { continue };
        common.push((key, true.into(), given.shown()));
        if flag == "pass-access-token" {
            settings.translated(&given);
        } else {
            settings
                .different(&given, "the token is sent as `Authorization`, not as `X-Forwarded-Access-Token`");
        }
    }
    if let Some(given) = settings.off("pass-host-header")? {
        common.push(("preserve_host", false.into(), given.shown()));
        settings.translated(&given);
    }
    if let Some(given) = settings.off("proxy-websockets")? {
        common.push(("upgrades", Value::Array(Vec::new()), given.shown()));
        settings.translated(&given);
    }
    common.push(("request_timeout", "unlimited".into(), "oauth-proxy does this without a flag".to_owned()));
    let finish = |table: &mut DraftTable, upstream: &str| {
        table.set("upstream", upstream, "").set_shared(&common);
    };
    open_routes(settings, draft, (&upstreams, &reviews.delegated), &finish)?;
    for (name, path) in &upstreams {
        // Each path has one route: that of the longest delegated prefix, which comes first.
        let mut taken: Vec<&str> = Vec::new();
        for (at, (prefix, review, from)) in reviews.delegated.iter().enumerate() {
            let narrower = if prefix.len() > path.len() { prefix } else { path };
            let plain = narrower.trim_end_matches('/');
            let is_own = prefix.starts_with(&**path) || path.starts_with(&**prefix);
            if !is_own || owner_of(&upstreams, plain) != Some(name) || taken.contains(&plain) {
                continue;
            }
            taken.push(plain);
            let table = draft.table("[[route]]");
            table.set("name", format!("{name}-delegated-{}", at + 1), "").set(
                "path",
                path_of(narrower),
                from,
            );
            table.set("login", true, "");
            reviews.set_delegated(table, review);
            finish(table, name);
        }
        if !taken.contains(&path.trim_end_matches('/')) {
            let table = draft.table("[[route]]");
            table.set("name", &**name, "").set("path", path_of(path), "").set("login", true, "");
            reviews.set_sessions(table);
            finish(table, name);
        }
    }
    Ok(())
}

/// The upstream that gets the requests of a path: that with the longest path.
fn owner_of<'u>(upstreams: &'u [(String, String)], path: &str) -> Option<&'u String> {
    let has = |(_, own): &&(String, String)| format!("{path}/").starts_with(&**own);
    upstreams.iter().filter(has).max_by_key(|(_, own)| own.len()).map(|(name, _)| name)
}

/// The prefix of a path.
fn path_of(path: &str) -> Value {
    let prefix = path.trim_end_matches('/');
    inline([("prefix", if prefix.is_empty() { "/" } else { prefix }.into())])
}

/// Names and paths of the upstreams.
fn upstreams(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<Vec<(String, String)>, InputFault> {
    let ca = settings.list("upstream-ca");
    let timeout = settings.text("upstream-timeout");
    let duration = timeout.as_ref().map(go::duration).transpose()?;
    let mut upstreams = Vec::new();
    for (at, given) in settings.list("upstream").into_iter().enumerate() {
        if given.value.starts_with("file:") {
            settings.no_equal(
                &given,
                "files are not served: put a web server behind it, or a fixed answer (`respond`)",
            );
            continue;
        }
        let (origin, path) = go::server(&given)?;
        let name = if at == 0 { "application".to_owned() } else { format!("application-{}", at + 1) };
        let table = draft.table("[[upstream]]");
        table.set("name", &*name, "").set("endpoints", vec![&*origin], &given.shown());
        if let (Some(first), true) = (ca.first(), origin.starts_with("https:")) {
            table.set("tls", inline([("ca", first.value.clone().into())]), &first.shown());
        }
        if let (Some(duration), Some(given)) = (&duration, &timeout) {
            table.set("timeouts", inline([("response_header", (&**duration).into())]), &given.shown());
        }
        settings.translated(&given);
        upstreams.push((name, path));
    }
    if upstreams.is_empty() {
        return Err(InputFault::Contradiction("-upstream is not set".into()));
    }
    for (at, given) in ca.iter().enumerate() {
        if at == 0 {
            settings.translated(given);
        } else {
            settings.no_equal(given, "`ca` is one file: put all certificates into it");
        }
    }
    if let Some(given) = timeout {
        settings.translated(&given);
    }
    if let Some(given) = settings.text("upstream-flush") {
        settings.different(&given, "nothing to do: what arrives is passed on at once");
    }
    Ok(upstreams)
}

/// Identity headers for upstreams.
fn headers(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let (basic, user) = (settings.off("pass-basic-auth")?, settings.off("pass-user-headers")?);
    let table = draft.table("[identity_headers]");
    table.set("style", "none", "");
    if basic.is_none() || user.is_none() {
        let fields = [("X-Forwarded-User", "user".into()), ("X-Forwarded-Email", "user".into())];
        table.set("fields", inline(fields), "-pass-user-headers");
        settings
            .report
            .notes
            .push("`X-Forwarded-Email` has the user's name, without `@cluster.local` behind it".into());
    }
    for given in [&basic, &user].into_iter().flatten() {
        settings.translated(given);
    }
    if basic.is_none() {
        settings.report.notes.push(
            "`Authorization` with the user's name and a password is not sent to the upstream; it gets no `Authorization`".into(),
        );
    }
    if let Some(given) = settings.text("basic-auth-password") {
        let given = Given::new("…", given.origin);
        settings.no_equal(
            &given,
            "no password is sent in the name of a user; `request_headers` sends fixed values",
        );
    }
    Ok(())
}

/// The route of the checks of another proxy, in place of the login's own `auth`, which knows no
/// reviews.
fn auth_route(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    reviews: &Reviews,
    login_path: &str,
) -> Result<(), InputFault> {
    let table = draft.table("[[route]]");
    let path = format!("{}/auth", login_path.trim_end_matches('/'));
    table.set("name", "auth", "").set("path", inline([("exact", path.into())]), "");
    table.set("login", true, "");
    table.set("login_redirect", "none", "checks of nginx and other proxies, which take no redirect");
    reviews.set_sessions(table);
    table.set("respond", inline([("status", 202.into())]), "");
    if let Some(given) = settings.switch("set-xauthrequest")? {
        let set =
            inline([("X-Auth-Request-User", "{user}".into()), ("X-Auth-Request-Email", "{user}".into())]);
        draft.last("[[route]]").set("response_headers", inline([("set", set)]), &given.shown());
        settings.different(&given, "answers to another proxy have it, not responses of upstreams");
    }
    Ok(())
}

/// Routes for paths that need no login.
fn open_routes(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    (upstreams, delegated): (&[(String, String)], &[Delegation]),
    finish: &impl Fn(&mut DraftTable, &str),
) -> Result<(), InputFault> {
    let bypass = settings.list("bypass-auth-for");
    let skipped = settings.list("skip-auth-regex");
    let used = if bypass.is_empty() {
        skipped
    } else {
        for given in skipped {
            settings.different(&given, "-bypass-auth-for replaces it, as by the program");
        }
        bypass
    };
    let remedy = "a regular expression has no equal, so its requests need a login; write routes with `path`, and `public = true`";
    for (at, given) in used.iter().enumerate() {
        let Some(path) = go::regex_path(&given.value) else {
            settings.no_equal(given, remedy);
            continue;
        };
        settings.translated(given);
        let text = ["exact", "template", "prefix"].into_iter().find_map(|key| path.get(key)?.as_str());
        let plain = text.unwrap_or_default().split('{').next().unwrap_or_default().trim_end_matches('/');
        let Some(name) = owner_of(upstreams, plain) else { continue };
        let table = draft.table("[[route]]");
        table
            .set("name", format!("open-{}", at + 1), "")
            .set("path", path, &given.shown())
            .set("public", true, "");
        finish(table, name);
    }
    settings.none_equal(
        &["bypass-auth-except-for"],
        "here a path is protected unless a route says otherwise: write the paths that need no login as routes with `public = true`",
    );
    if let Some(given) = settings.switch("skip-auth-preflight")? {
        // The most specific route decides, so each path with a route needs one.
        let own = upstreams.iter().map(|(_, path)| path.trim_end_matches('/'));
        let mut paths: Vec<&str> =
            own.chain(delegated.iter().map(|(path, ..)| path.trim_end_matches('/'))).collect();
        paths.sort_unstable();
        paths.dedup();
        for (at, path) in paths.into_iter().enumerate() {
            let Some(name) = owner_of(upstreams, path) else { continue };
            let table = draft.table("[[route]]");
            table.set("name", format!("preflight-{}", at + 1), "").set(
                "methods",
                vec!["OPTIONS"],
                &given.shown(),
            );
            table.set("path", path_of(path), "").set("public", true, "");
            finish(table, name);
        }
        settings
            .different(&given, "every OPTIONS request passes; `cors` of a route answers preflights itself");
    }
    Ok(())
}

/// Settings that have no equal, or need none, and what to do.
const WITHOUT_EQUAL: [(&[&str], &str); 18] = [
    (&["version", "help"], "nothing to do: it printed something"),
    (&["provider"], "nothing to do: it is OpenShift"),
    (&["debug-address"], "there is no profiler; `/debug/config` of the admin listener shows what is served"),
    (
        &["signature-key"],
        "requests are not signed with a shared key; `[assertion]` adds a signed JWT about the caller",
    ),
    (
        &["htpasswd-file", "display-htpasswd-form"],
        "`[basic_auth]` takes a file with bcrypt hashes (`htpasswd -B`), and `route.basic_auth` accepts it",
    ),
    (
        &["custom-templates-dir", "footer"],
        "`[pages]` has a brand (name, logo, colours), languages, and a folder of templates of its own",
    ),
    (
        &["login-url", "redeem-url", "validate-url", "profile-url"],
        "endpoints come from the API server's metadata",
    ),
    (&["approval-prompt"], "nothing to do: OpenShift does not read it"),
    (&["logout-url"], "`sign_out?rd=/page` leads to a page of the same host"),
    (&["ssl-insecure-skip-verify"], "certificates are always verified: name the authority with `ca`"),
    (&["openshift-group"], "the flag had no effect, so nothing is lost"),
    (&["openshift-review-url"], "reviews are `SubjectAccessReview`s of `authorization.k8s.io`"),
    (
        &["cookie-name", "cookie-secure", "cookie-httponly", "cookie-samesite"],
        "nothing to do: cookies have fixed names and attributes (`Secure`, `HttpOnly`, `SameSite=Lax`)",
    ),
    (
        &["cookie-domain"],
        "a session is for one host; people sign in at each, without a password as long as OpenShift knows them",
    ),
    (&["request-logging"], "nothing to do: each request is logged as JSON (`access_log`)"),
    (
        &["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"],
        "write the cluster's `url`, `ca` and `token_file` into [[login.provider]], [[token_authority]] and [kubernetes]",
    ),
    (
        &[
            "authentication-token-webhook-cache-ttl",
            "authorization-webhook-cache-authorized-ttl",
            "authorization-webhook-cache-unauthorized-ttl",
        ],
        "set `token_authority.ttl`, `kubernetes.ttl` and `kubernetes.deny_ttl`; the defaults are 10 s, 10 s and 5 s",
    ),
    (
        &[
            "requestheader-username-headers",
            "requestheader-group-headers",
            "requestheader-extra-headers-prefix",
            "requestheader-client-ca-file",
            "requestheader-allowed-names",
        ],
        "headers of a front proxy are no credential: let it send the token, or a client certificate",
    ),
];
