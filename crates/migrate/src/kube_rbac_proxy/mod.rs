//! kube-rbac-proxy: its arguments and its authorization file.
//!
//! The program authenticates by `TokenReview` (or by one issuer's JWTs, or client certificates),
//! authorizes each request by a `SubjectAccessReview`, and forwards to one server. So the result has
//! one upstream, one route for what needs a review, and further ones for paths that need none.

mod authorization;
mod flags;

use toml::Value;

use self::authorization::{Authorization, Decision, File};
pub use self::flags::SYNTAX;
use self::flags::{DISABLED, LOGGING, PRINTING};
use crate::Migration;
use crate::draft::{Draft, DraftTable, inline};
use crate::files::ContainerFiles;
use crate::go::{self, PathPattern};
use crate::input_fault::InputFault;
use crate::server_tls;
use crate::settings::{Given, ProgramSettings};

/// Where a pod finds what it needs to call the API server.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const API_SERVER: &str = "https://kubernetes.default.svc";
const NO_SETTING: &str = "kube-rbac-proxy does this without a flag";

/// Translates a command line. `files` are those that it names.
///
/// # Errors
/// What the program would refuse, and files that are not there.
pub fn translate(arguments: &[String], files: &ContainerFiles) -> Result<Migration, InputFault> {
    let mut settings = ProgramSettings::new(SYNTAX.read(arguments)?);
    if settings.has("allow-paths") && settings.has("ignore-paths") {
        return Err(InputFault::Contradiction("--allow-paths excludes --ignore-paths".into()));
    }
    let mut draft = Draft::default();
    let client_ca = settings.text("client-ca-file");
    listeners(&mut settings, &mut draft, client_ca.as_ref())?;
    authentication(&mut settings, &mut draft, client_ca)?;
    identity(&mut settings, &mut draft)?;
    upstream(&mut settings, &mut draft)?;
    routes(&mut settings, &mut draft, files)?;
    settings.none_equal(&DISABLED, "the flag had no effect, so nothing is lost");
    settings.none_equal(&LOGGING, "nothing to do: Postern's own log has levels by the variable RUST_LOG");
    settings.none_equal(&PRINTING, "nothing to do: it printed something");
    let mut report = settings.finish();
    report.notes.extend(
        [
            "a positive review is cached for 10 s and a negative one for 5 s, not 5 min and 30 s; a changed role takes \
             effect at once where the account may watch roles and bindings (`kubernetes.ttl`, `kubernetes.watch`)",
            "a `TokenReview` is cached for 10 s, not 2 min (`token_authority.ttl`)",
            "HEAD and OPTIONS are reviewed with the verbs `get` and `options`, not `*`",
            "401 and 403 are problem documents (RFC 9457), and 401 has a challenge",
            "the forks of OpenShift and Open Data Hub let the account `system:serviceaccount:openshift-monitoring:prometheus-k8s` \
             get `/metrics` without a review; add a route with a rule for it if you rely on that",
            "Open Data Hub's fork ends a request after 30 s without `--upstream-timeout`; here it may last (`request_timeout`)",
        ]
        .map(str::to_owned),
    );
    let head = [
        "Translated from the arguments of kube-rbac-proxy.".to_owned(),
        "Check it: postern check FILE".to_owned(),
    ];
    Ok(Migration { configuration: draft.render(&head), secrets: Vec::new(), report })
}

fn listeners(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    client_ca: Option<&Given>,
) -> Result<(), InputFault> {
    let (secure, plain) = (settings.text("secure-listen-address"), settings.text("insecure-listen-address"));
    if secure.is_none() && plain.is_none() {
        let why = "neither --secure-listen-address nor --insecure-listen-address is set";
        return Err(InputFault::Contradiction(why.into()));
    }
    let (certificate, key) = (settings.text("tls-cert-file"), settings.text("tls-private-key-file"));
    if certificate.is_some() != key.is_some() {
        let why = "--tls-cert-file and --tls-private-key-file need each other";
        return Err(InputFault::Contradiction(why.into()));
    }
    let http = Http::take(settings)?;
    if let Some(given) = &plain {
        let table = draft.table("[[listener]]");
        table.set("name", "plain", "");
        let loses_ipv6 = set_address(table, given)?;
        http.set(table);
        let text = "tokens arrive unencrypted: keep it on loopback, or use TLS";
        settings.different(given, with_ipv6(text, loses_ipv6));
    }
    let tls = tls(settings, certificate.as_ref().zip(key.as_ref()), client_ca)?;
    let probes = settings.text("proxy-endpoints-port");
    if let Some(given) = &secure {
        let table = draft.table("[[listener]]");
        table.set("name", "https", "");
        let loses_ipv6 = set_address(table, given)?;
        match &tls {
            Some((tls, from)) => {
                table.set("tls", tls.clone(), from);
                if loses_ipv6 {
                    settings.different(given, with_ipv6("", true));
                } else {
                    settings.translated(given);
                }
            }
            None => settings.no_equal(
                given,
                "kube-rbac-proxy made a certificate of its own; create one, and set `tls` of the listener `https`",
            ),
        }
        http.set(table);
    }
    if let Some(given) = probes {
        probe_listener(settings, draft, &given, secure.as_ref(), tls.as_ref())?;
    }
    http.report(settings);
    Ok(())
}

/// Settings of HTTP/2, which are those of each listener.
struct Http {
    off: Option<Given>,
    streams: Option<(Given, i64)>,
    size: Option<Given>,
}

impl Http {
    fn take(settings: &mut ProgramSettings) -> Result<Self, InputFault> {
        let off = settings.switch("http2-disable")?;
        let streams = settings.text("http2-max-concurrent-streams");
        let streams = streams.map(|given| match given.value.parse() {
            Ok(number) if number > 0 => Ok((given, number)),
            _ => Err(given.fault("a number of streams, at least 1")),
        });
        Ok(Self { off, streams: streams.transpose()?, size: settings.text("http2-max-size") })
    }

    fn set(&self, table: &mut DraftTable) {
        if let Some(given) = &self.off {
            table.set("protocols", vec!["http/1.1"], &given.shown());
        }
        if let Some((given, number)) = &self.streams {
            table.set("limits", inline([("concurrent_streams", (*number).into())]), &given.shown());
        }
    }

    fn report(self, settings: &mut ProgramSettings) {
        for given in self.off.iter().chain(self.streams.as_ref().map(|(given, _)| given)) {
            settings.translated(given);
        }
        if let Some(given) = &self.size {
            settings.no_equal(
                given,
                "nothing to do: the windows of HTTP/2 are 256 KiB for a stream, 1 MiB for a connection",
            );
        }
    }
}

fn set_address(table: &mut DraftTable, given: &Given) -> Result<bool, InputFault> {
    let listen = go::listen(given)?;
    table.set("address", listen.address, &given.shown());
    Ok(listen.loses_ipv6)
}

fn with_ipv6(text: &str, loses_ipv6: bool) -> String {
    let ipv6 = "it listens on IPv4 only; for IPv6 add a listener with the address `[::]`";
    match (text, loses_ipv6) {
        ("", _) => ipv6.to_owned(),
        (text, true) => format!("{text}; {ipv6}"),
        (text, false) => text.to_owned(),
    }
}

/// The value of `tls`, and from what it came; `None`: there is no certificate.
fn tls(
    settings: &mut ProgramSettings,
    pair: Option<(&Given, &Given)>,
    client_ca: Option<&Given>,
) -> Result<Option<(Value, String)>, InputFault> {
    let mut members = Vec::new();
    let mut from = Vec::new();
    if let Some((certificate, key)) = pair {
        members.push(("certificate", certificate.value.clone().into()));
        members.push(("key", key.value.clone().into()));
        for given in [certificate, key] {
            from.push(given.origin.clone());
            settings.translated(given);
        }
    }
    from.extend(server_tls::add_versions(settings, "tls-min-version", "tls-cipher-suites", &mut members)?);
    if let Some(given) = client_ca {
        members.push(("client_ca", given.value.clone().into()));
        members.push(("client_certificates", "optional".into()));
        from.push(given.origin.clone());
    }
    if let Some(given) = settings.text("tls-reload-interval") {
        settings.different(&given, "nothing to do: certificates are read again when their files change");
    }
    Ok(pair.map(|_| (inline(members), from.join(", "))))
}

/// The listener for probes. Its address has the host of the other one.
fn probe_listener(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    given: &Given,
    secure: Option<&Given>,
    tls: Option<&(Value, String)>,
) -> Result<(), InputFault> {
    let (Some(secure), Ok(port)) = (secure, given.value.parse::<u16>()) else {
        return Err(given.fault("a port, beside --secure-listen-address"));
    };
    if port == 0 {
        settings.translated(given);
        return Ok(());
    }
    let host = secure.value.rsplit_once(':').map_or("", |(host, _)| host);
    let listen = go::listen(&Given::new(format!("{host}:{port}"), given.origin.clone()))?;
    let table = draft.table("[[listener]]");
    table.set("name", "probes", "").set("address", listen.address, &given.shown());
    table.set_some("tls", tls.map(|(tls, _)| tls.clone()), &given.origin);
    let route = draft.table("[[route]]");
    route.set("name", "healthz", "").set("path", inline([("exact", "/healthz".into())]), &given.shown());
    route.set("public", true, "").set("respond", inline([("status", 200.into()), ("body", "ok".into())]), "");
    settings.different(
        given,
        "routes serve every listener, so `/healthz` of the upstream is not reached; or probe `/readyz` of the admin \
         listener, and remove the listener `probes` and the route `healthz`",
    );
    Ok(())
}

fn authentication(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    client_ca: Option<Given>,
) -> Result<(), InputFault> {
    let issuer = settings.text("oidc-issuer");
    if let Some(given) = settings.text("kubeconfig") {
        settings.no_equal(
            &given,
            "write the cluster's `url`, `ca` and `token_file` (or `certificate` and `key`) into [kubernetes], and into \
             [[token_authority]] if there is one",
        );
    }
    let per_second = settings.text("kube-api-qps").map(|given| match given.value.parse::<f32>() {
        #[allow(clippy::cast_possible_truncation, reason = "within the range of the key")]
        Ok(number) if number.is_finite() => Ok((given, number.ceil().clamp(0.0, 1_000_000.0) as i64)),
        _ => Err(given.fault("a number of requests for each second")),
    });
    let per_second = per_second.transpose()?;
    if let Some((given, 0)) = &per_second {
        settings.translated(given);
    }
    let per_second = per_second.filter(|(_, number)| *number > 0);
    let limit = per_second.as_ref().map(|(given, number)| (*number, given.shown()));
    if let Some((given, _)) = &per_second {
        settings.different(given, "further requests get 503 with Retry-After instead of waiting");
    }
    if let Some(given) = settings.text("kube-api-burst") {
        settings.no_equal(&given, "`max_per_second` has no burst; raise it if requests get 503");
    }
    match issuer {
        Some(issuer) => oidc(settings, draft, &issuer, client_ca.as_ref())?,
        None => token_reviews(settings, draft, limit.as_ref()),
    }
    let prefixes = ["oidc-username-prefix", "oidc-groups-prefix"].map(|name| settings.text(name));
    let [user_prefix, group_prefix] = &prefixes;
    let kubernetes = draft.table("[kubernetes]");
    kubernetes.set("url", API_SERVER, NO_SETTING);
    if let Some(given) = user_prefix {
        kubernetes.set("user_prefix", &*given.value, &given.shown());
    }
    if let Some(given) = group_prefix {
        kubernetes.set("group_prefix", &*given.value, &given.shown());
    }
    if let Some((number, from)) = &limit {
        kubernetes.set("max_per_second", *number, from);
    }
    if draft.has("[[token_authority]]") {
        draft.last("[kubernetes]").set("token_authorities", vec!["cluster"], "");
    }
    for given in prefixes.iter().flatten() {
        settings.different(given, "the prefix is in reviews; the upstream gets the name without it");
    }
    if let Some(given) = client_ca.filter(|_| !draft.has("[[issuer]]")) {
        let table = draft.table("[client_certificates]");
        table.set("subject", "subject_cn", &given.shown()).set("groups", vec!["subject_o"], "");
        settings.translated(&given);
    }
    Ok(())
}

fn token_reviews(settings: &mut ProgramSettings, draft: &mut Draft, limit: Option<&(i64, String)>) {
    let audiences = settings.list("auth-token-audiences");
    let table = draft.table("[[token_authority]]");
    table.set("name", "cluster", "").set("kind", "token-review", NO_SETTING);
    table.set("url", API_SERVER, NO_SETTING);
    table.set("ca", format!("{SERVICE_ACCOUNT}/ca.crt"), NO_SETTING);
    table.set("token_file", format!("{SERVICE_ACCOUNT}/token"), NO_SETTING);
    let issuer = "the issuer of the cluster: kubectl get --raw /.well-known/openid-configuration";
    table.set("issuers", vec![format!("{API_SERVER}.cluster.local")], issuer);
    table.set("prefixes", vec!["sha256~"], "tokens of people of OpenShift");
    if audiences.is_empty() {
        table.set("any_audience", true, "no --auth-token-audiences");
    } else {
        let values: Vec<String> = audiences.iter().map(|given| given.value.clone()).collect();
        table.set("audiences", values, "--auth-token-audiences");
    }
    if let Some((number, from)) = limit {
        table.set("max_per_second", *number, from);
    }
    for given in &audiences {
        settings.translated(given);
    }
    let without = "without --oidc-issuer it has no effect, so nothing is lost";
    settings.none_equal(
        &[
            "oidc-clientID",
            "oidc-username-claim",
            "oidc-groups-claim",
            "oidc-username-prefix",
            "oidc-groups-prefix",
            "oidc-sign-alg",
            "oidc-ca-file",
        ],
        without,
    );
    settings.report.notes.push(
        "service accounts' tokens name the cluster's issuer, which is assumed to be \
         https://kubernetes.default.svc.cluster.local; write the one of your cluster into `issuers`"
            .into(),
    );
}

fn oidc(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    issuer: &Given,
    client_ca: Option<&Given>,
) -> Result<(), InputFault> {
    let client = settings.text("oidc-clientID");
    let Some(client) = client else {
        return Err(InputFault::Contradiction("--oidc-issuer needs --oidc-clientID".into()));
    };
    let table = draft.table("[[issuer]]");
    table.set("name", "oidc", "").set("issuer", &*issuer.value, &issuer.shown());
    table.set("audiences", vec![client.value.clone()], &client.shown());
    table.set("id_tokens", true, NO_SETTING).set("token_types", "untyped", NO_SETTING);
    let algorithms = settings.list("oidc-sign-alg");
    let values: Vec<String> = algorithms.iter().map(|given| given.value.clone()).collect();
    let values = if values.is_empty() { vec!["RS256".to_owned()] } else { values };
    table.set("algorithms", values, "--oidc-sign-alg");
    let ca = settings.text("oidc-ca-file");
    if let Some(given) = &ca {
        table.set("ca", &*given.value, &given.shown());
    }
    let claims = draft.table("[issuer.claims]");
    for (key, flag, default) in
        [("user", "oidc-username-claim", "email"), ("groups", "oidc-groups-claim", "groups")]
    {
        match settings.text(flag) {
            Some(given) => {
                claims.set(key, vec![given.value.clone()], &given.shown());
                settings.translated(&given);
            }
            None => {
                claims.set(key, vec![default], &format!("the default of --{flag}"));
            }
        }
    }
    for given in [issuer, &client].into_iter().chain(&ca).chain(&algorithms) {
        settings.translated(given);
    }
    settings.none_equal(
        &["auth-token-audiences"],
        "with --oidc-issuer there is no TokenReview, so nothing is lost",
    );
    if let Some(given) = client_ca {
        settings
            .different(given, "with --oidc-issuer certificates are no credential; they are still verified");
    }
    Ok(())
}

/// The headers that name the caller.
fn identity(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let enabled = settings.switch("auth-header-fields-enabled")?;
    let user = settings.text("auth-header-user-field-name");
    let groups = settings.text("auth-header-groups-field-name");
    let separator = settings.text("auth-header-groups-field-separator");
    let table = draft.table("[identity_headers]");
    let Some(enabled) = enabled else {
        table.set("style", "none", "no --auth-header-fields-enabled");
        for given in [user, groups, separator].iter().flatten() {
            settings.different(
                given,
                "without --auth-header-fields-enabled it has no effect, so nothing is lost",
            );
        }
        return Ok(());
    };
    table.set("style", "none", &enabled.shown());
    let name = |given: &Option<Given>, default: &str| {
        given.as_ref().map_or_else(|| default.to_owned(), |given| given.value.clone())
    };
    let mut fields = toml::Table::new();
    fields.insert(name(&user, "x-remote-user"), "user".into());
    fields.insert(name(&groups, "x-remote-groups"), "groups".into());
    table.set("fields", Value::Table(fields), &enabled.shown());
    settings.translated(&enabled);
    for given in [user, groups].iter().flatten() {
        settings.translated(given);
    }
    match separator {
        Some(given) if given.value == "," => settings.translated(&given),
        Some(given) => settings.different(&given, "groups are separated by commas"),
        None => settings.report.notes.push("groups are separated by commas, not by `|`".into()),
    }
    Ok(())
}

fn upstream(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let Some(given) = settings.text("upstream") else {
        return Err(InputFault::Contradiction("--upstream is not set".into()));
    };
    let (origin, path) = go::server(&given)?;
    let h2c = settings.switch("upstream-force-h2c")?;
    let table = draft.table("[[upstream]]");
    table.set("name", "upstream", "").set("endpoints", vec![origin], &given.shown());
    if let Some(h2c) = &h2c {
        table.set("protocol", "h2", &h2c.shown());
        settings.translated(h2c);
    }
    if path == "/" {
        settings.translated(&given);
    } else {
        settings.no_equal(
            &given,
            format!("an upstream has no path: requests reach it without `{path}`; let the server serve `/`"),
        );
    }
    let (ca, certificate, key) = (
        settings.text("upstream-ca-file"),
        settings.text("upstream-client-cert-file"),
        settings.text("upstream-client-key-file"),
    );
    let mut members = Vec::new();
    for (key, given) in [("ca", &ca), ("certificate", &certificate), ("key", &key)] {
        let Some(given) = given else { continue };
        if h2c.is_some() {
            settings.different(
                given,
                "with --upstream-force-h2c there is no TLS to the upstream, so nothing is lost",
            );
        } else if ca.is_none() {
            settings.different(given, "without --upstream-ca-file it has no effect, so nothing is lost");
        } else {
            members.push((key, Value::from(&*given.value)));
            settings.translated(given);
        }
    }
    if !members.is_empty() {
        draft.last("[[upstream]]").set("tls", inline(members), "--upstream-ca-file, --upstream-client-*");
    }
    Ok(())
}

fn routes(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    files: &ContainerFiles,
) -> Result<(), InputFault> {
    let timeout = timeout(settings)?;
    let decision = match settings.text("config-file") {
        Some(given) => {
            let file: File = files.yaml(&given)?;
            let why = format!("{} has no `authorization`", given.value);
            let authorization = file.authorization.ok_or(InputFault::Contradiction(why))?;
            let decision = authorization.decide(&given.value, &mut settings.report)?;
            settings.translated(&given);
            decision
        }
        None => Authorization::default().decide("no --config-file", &mut settings.report)?,
    };
    let (allowed, ignored) = (settings.list("allow-paths"), settings.list("ignore-paths"));
    for (at, given) in ignored.iter().enumerate() {
        if let Some(path) = path(settings, given, "its requests need a credential and a review") {
            let table = draft.table("[[route]]");
            table.set("name", format!("ignored-{}", at + 1), "").set("path", path, &given.shown());
            table.set("upstream", "upstream", "").set("public", true, &given.origin);
            // The token of a path without authentication is not taken off.
            table.set("forward_authorization", true, NO_SETTING);
            timeout.set(table);
        }
    }
    let fits = |given: &Given, path: &str| go::path_pattern(&given.value).fits(path);
    for (at, (exact, rules)) in decision.paths.iter().enumerate() {
        // Other paths are not found, or need nothing.
        let is_allowed = allowed.is_empty() || allowed.iter().any(|given| fits(given, exact));
        if !is_allowed || ignored.iter().any(|given| fits(given, exact)) {
            continue;
        }
        let table = draft.table("[[route]]");
        table.set("name", format!("static-{}", at + 1), "").set(
            "path",
            inline([("exact", (&**exact).into())]),
            "",
        );
        finish_route(table, &decision, rules, &timeout);
    }
    if allowed.is_empty() {
        let table = draft.table("[[route]]");
        table.set("name", "reviewed", "");
        finish_route(table, &decision, &decision.rules, &timeout);
    }
    for (at, given) in allowed.iter().enumerate() {
        let has_own_rules = decision
            .paths
            .iter()
            .any(|(exact, _)| go::path_pattern(&given.value) == PathPattern::Exact(exact.clone()));
        if has_own_rules {
            settings.translated(given);
        } else if let Some(path) = path(settings, given, "its requests get 404") {
            let table = draft.table("[[route]]");
            table.set("name", format!("allowed-{}", at + 1), "").set("path", path, &given.shown());
            finish_route(table, &decision, &decision.rules, &timeout);
        }
    }
    Ok(())
}

/// The path of a pattern. `otherwise` says what happens to its requests without a route.
fn path(settings: &mut ProgramSettings, given: &Given, otherwise: &str) -> Option<Value> {
    let path = match go::path_pattern(&given.value) {
        PathPattern::Exact(path) => inline([("exact", path.into())]),
        PathPattern::Template(template) => inline([("template", template.into())]),
        PathPattern::Other => {
            let remedy = format!(
                "a wildcard stands for a whole segment here, so {otherwise}; write routes for the paths that you mean"
            );
            settings.no_equal(given, remedy);
            return None;
        }
    };
    settings.translated(given);
    Some(path)
}

fn finish_route(table: &mut DraftTable, decision: &Decision, rules: &[Value], timeout: &RequestTimeout) {
    table.set("upstream", "upstream", "");
    if !rules.is_empty() {
        table.set("policy", inline([("allow", Value::Array(rules.to_vec()))]), "static");
    }
    table.set("access_review", decision.review.clone(), "--config-file");
    timeout.set(table);
}

/// The time that a request may take, as each route has it.
struct RequestTimeout {
    value: String,
    from: String,
}

impl RequestTimeout {
    fn set(&self, table: &mut DraftTable) {
        table.set("request_timeout", &*self.value, &self.from);
        // Only the whole time is limited there.
        table.set("response_header_timeout", "unlimited", NO_SETTING).set(
            "body_size",
            "unlimited",
            NO_SETTING,
        );
    }
}

/// kube-rbac-proxy itself has no such limit; the fork of Open Data Hub has one.
fn timeout(settings: &mut ProgramSettings) -> Result<RequestTimeout, InputFault> {
    let Some(given) = settings.text("upstream-timeout") else {
        return Ok(RequestTimeout { value: "unlimited".into(), from: NO_SETTING.into() });
    };
    let value = match &*go::duration(&given)? {
        "0s" => "unlimited".to_owned(),
        duration => duration.to_owned(),
    };
    settings.translated(&given);
    Ok(RequestTimeout { value, from: given.shown() })
}
