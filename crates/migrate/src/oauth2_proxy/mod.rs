//! oauth2-proxy: its arguments, its environment and its configuration file.
//!
//! The program signs people in at one provider, checks addresses and groups once more on each
//! request, and forwards by path. So the result has one login, one upstream and one route for each of
//! its upstreams, and further routes for paths that need no login.

mod access;
mod cookies;
mod flags;
mod provider;
mod routes;
mod server;
mod structured;

use toml::{Table, Value};

pub use self::flags::Oauth2ProxyKind;
use self::structured::Structured;
use crate::draft::Draft;
use crate::files::ContainerFiles;
use crate::input_fault::InputFault;
use crate::settings::{Given, ProgramSettings};
use crate::{Migration, SecretFile};

/// Prefix of its variables in the environment.
pub const ENVIRONMENT: &str = "OAUTH2_PROXY_";

/// What is to be translated.
#[derive(Debug, Default)]
pub struct Source<'s> {
    /// Its arguments.
    pub arguments: &'s [String],
    /// Its environment; other variables are passed over.
    pub environment: &'s [(String, String)],
    /// Files that it names, by their paths there.
    pub files: ContainerFiles,
}

/// Translates settings. An argument counts before a variable, and a variable before the file.
///
/// # Errors
/// What the program would refuse, and files that are not there.
pub fn translate(kind: Oauth2ProxyKind, source: &Source<'_>) -> Result<Migration, InputFault> {
    let syntax = kind.syntax();
    let arguments = syntax.read(source.arguments)?;
    let environment = syntax.environment(ENVIRONMENT, source.environment);
    let mut first = ProgramSettings::new(arguments.clone());
    let structured = match first.text("alpha-config") {
        Some(named) => Structured::read(&named, &source.files)?,
        None => Structured::default(),
    };
    let named = first.text("config");
    let file = match &named {
        Some(given) => syntax.file(&given.value, source.files.text(given)?)?,
        None => Vec::new(),
    };
    let mut settings = ProgramSettings::layered([file, structured.given, environment, arguments]);
    for name in ["config", "alpha-config"] {
        if let Some(given) = settings.text(name) {
            settings.translated(&given);
        }
    }
    for (given, outcome) in structured.outcomes {
        settings.report.add(given.shown(), outcome);
    }
    let mut output = Output::default();
    server::translate(&mut settings, &mut output.draft)?;
    let provider = provider::translate(&mut settings, &mut output, kind)?;
    let access = access::translate(&mut settings, &mut output.draft, &source.files, &provider)?;
    routes::translate(&mut settings, &mut output.draft, &access, structured.answers)?;
    if !structured.headers.is_empty() {
        let from = "injectRequestHeaders";
        let fields: Table =
            structured.headers.into_iter().map(|(name, field)| (name, field.into())).collect();
        output.draft.last("[identity_headers]").set("fields", Value::Table(fields), from);
    }
    for (names, remedy) in WITHOUT_EQUAL {
        settings.none_equal(names, remedy);
    }
    settings.none_equal(
        &["kubeconfig"],
        "write the cluster's `url`, `ca` and `token_file` into [[token_authority]]",
    );
    let mut report = settings.finish();
    report.notes.extend(
        [
            "people sign in once more: sessions of oauth2-proxy are not taken over",
            "a session is checked at the provider every 5 minutes (`login.refresh`), or as `--cookie-refresh` says",
            "`X-Forwarded-*` and `X-Auth-Request-*` headers of a client never reach the upstream, also without \
             `--skip-auth-strip-headers`",
            "401 is a problem document for programs; browsers are sent to sign in",
        ]
        .map(str::to_owned),
    );
    let head = [
        format!("Translated from the settings of {}.", syntax.program),
        "Check it: postern check FILE".to_owned(),
    ];
    Ok(Migration { configuration: output.draft.render(&head), secrets: output.secrets, report })
}

/// What the translation builds.
#[derive(Debug, Default)]
struct Output {
    draft: Draft,
    secrets: Vec<SecretFile>,
}

/// Settings that have no equal, or need none, and what to do.
const WITHOUT_EQUAL: [(&[&str], &str); 14] = [
    (
        &[
            "auth-logging-format",
            "standard-logging-format",
            "request-logging-format",
            "errors-to-info-log",
            "exclude-logging-path",
            "logging-local-time",
            "silence-ping-logging",
            "logging-max-size",
            "logging-max-age",
            "logging-max-backups",
            "logging-compress",
            "auth-logging",
            "standard-logging",
        ],
        "nothing to do: Postern logs requests as JSON or text (`access_log`), and itself to stderr",
    ),
    (
        &["request-id-header"],
        "nothing to do: a refused request gets an id that its page, its document and the log have",
    ),
    (
        &["custom-templates-dir", "custom-sign-in-logo", "banner", "footer", "show-debug-on-error"],
        "`[pages]` has a brand (name, logo, colours), languages, and a folder of templates of its own",
    ),
    (&["display-htpasswd-form"], "there is no form: browsers ask for the password themselves (`basic_auth`)"),
    (
        &[
            "cookie-name",
            "cookie-path",
            "cookie-httponly",
            "cookie-csrf-per-request",
            "cookie-csrf-per-request-limit",
            "cookie-csrf-expire",
            "encode-state",
        ],
        "nothing to do: cookies and `state` have fixed names and attributes, one cookie for all logins of a browser",
    ),
    (&["disable-keep-alives"], "connections to upstreams are kept open between requests"),
    (&["session-cookie-minimal"], "sessions do not fit into a cookie with many groups: set `login.database`"),
    (
        &[
            "redis-connection-url",
            "redis-username",
            "redis-password",
            "redis-use-sentinel",
            "redis-sentinel-password",
            "redis-sentinel-master-name",
            "redis-sentinel-connection-urls",
            "redis-use-cluster",
            "redis-cluster-connection-urls",
            "redis-ca-path",
            "redis-insecure-skip-tls-verify",
            "redis-connection-idle-timeout",
        ],
        "sessions are kept in SQLite or PostgreSQL: set `login.database`",
    ),
    (
        &["signature-key"],
        "requests are not signed with a shared key; `[assertion]` adds a signed JWT about the caller",
    ),
    (
        &["disable-redirect-on-csrf-error", "relative-redirect-url", "bearer-token-login-fallback"],
        "nothing to do: it is always so",
    ),
    (
        &["allow-query-semicolons"],
        "nothing to do: a query is forwarded as it is, and only routes with query rules read it",
    ),
    (&["gcp-healthchecks", "ping-user-agent"], "let the prober use the path of `--ping-path`"),
    (
        &["ssl-insecure-skip-verify", "ssl-upstream-insecure-skip-verify"],
        "certificates are always verified: name the authority, or the certificate itself, with `ca`",
    ),
    (&["convert-config-to-alpha", "config-test", "version", "help"], "nothing to do: it printed something"),
];

/// A value as it may be shown: not if it is a secret.
fn secret(given: &Given) -> Given {
    Given::new("…", given.origin.clone())
}
