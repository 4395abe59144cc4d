//! The provider, the sessions and the cookies of oauth2-proxy.

use toml::Value;

use super::{Oauth2ProxyKind, Output, secret};
use crate::SecretFile;
use crate::draft::DraftTable;
use crate::go;
use crate::input_fault::InputFault;
use crate::settings::{Given, ProgramSettings};

const API_SERVER: &str = "https://kubernetes.default.svc";
/// Name of the provider in rules.
pub(super) const NAME: &str = "provider";

/// What other parts need to know of the provider.
pub(super) struct Provider {
    /// Its issuer, or the API server of `OpenShift`.
    pub(super) issuer: String,
    pub(super) is_openshift: bool,
    pub(super) client_id: String,
    pub(super) ca: Option<String>,
    pub(super) email_claim: Option<Given>,
    pub(super) groups_claim: Option<Given>,
    pub(super) unverified_email: Option<Given>,
    /// The signature algorithms of its tokens; empty: the usual ones.
    pub(super) algorithms: Vec<String>,
    /// The path of the login; `None`: its default.
    pub(super) login_path: Option<String>,
}

/// Signature algorithms that are accepted from a provider.
const ALGORITHMS: [&str; 10] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"];

pub(super) fn translate(
    settings: &mut ProgramSettings,
    output: &mut Output,
    program: Oauth2ProxyKind,
) -> Result<Provider, InputFault> {
    let login_path = login(settings, output)?;
    let issuer = issuer(settings, program);
    let account = settings.text("openshift-service-account");
    let client = match (settings.text("client-id"), &account) {
        (Some(client), account) => {
            if let Some(account) = account {
                settings.different(account, "the client ID counts, as by the program");
            }
            client
        }
        (None, Some(account)) => {
            let name = format!("system:serviceaccount:NAMESPACE:{}", account.value);
            settings.no_equal(account, "write the namespace of the service account into `client_id`");
            Given::new(name, account.origin.clone())
        }
        (None, None) => return Err(InputFault::Contradiction("--client-id is not set".into())),
    };
    let ca = certificates(settings);
    let table = output.draft.table("[[login.provider]]");
    table.set("name", NAME, "");
    if let Some(given) = settings.text("provider-display-name") {
        table.set("title", &*given.value, &given.shown());
        settings.translated(&given);
    }
    if issuer.2 {
        table.set("kind", "openshift", "--provider openshift");
    }
    table.set("url", &*issuer.0, &issuer.1);
    table.set("client_id", &*client.value, &client.shown());
    settings.translated(&client);
    if let Some(given) = &ca {
        table.set("ca", &*given.value, &given.shown());
    }
    client_secret(settings, table, &mut output.secrets);
    authorization_request(settings, output.draft.last("[[login.provider]]"), issuer.2)?;
    let algorithms = algorithms(settings);
    if !algorithms.is_empty() {
        let table = output.draft.last("[[login.provider]]");
        table.set("algorithms", algorithms.clone(), "--oidc-enabled-signing-alg");
    }
    let (issuer, _, is_openshift) = issuer;
    let ca = ca.map(|given| given.value);
    let mut provider = claims(settings, (issuer, is_openshift), client.value, ca)?;
    provider.algorithms = algorithms;
    provider.login_path = login_path;
    if !provider.is_openshift {
        set_claims(output.draft.table("[login.provider.claims]"), &provider);
    }
    settings.none_equal(
        &[
            "skip-oidc-discovery",
            "login-url",
            "redeem-url",
            "profile-url",
            "validate-url",
            "oidc-jwks-url",
            "insecure-oidc-skip-issuer-verification",
            "oidc-public-key-file",
        ],
        "endpoints and keys come from the provider's discovery document, whose `issuer` must be the configured URL",
    );
    settings.none_equal(
        &["backend-logout-url"],
        "signing out revokes the tokens and ends the provider's session (`logs_out`)",
    );
    settings.none_equal(
        &["jwt-key", "jwt-key-file", "pubjwk-url"],
        "a key authenticates the client with `client_key_file` (`private_key_jwt`)",
    );
    Ok(provider)
}

/// `[login]`: origins, keys, times. Returns its path, if it is not the default.
fn login(settings: &mut ProgramSettings, output: &mut Output) -> Result<Option<String>, InputFault> {
    let table = output.draft.table("[login]");
    match settings.text("redirect-url") {
        Some(given) if given.value.contains("://") => {
            let (origin, _) = go::origin(&given)?;
            super::cookies::translate(settings, table, &given, &origin);
            settings.translated(&given);
        }
        other => {
            let from = "write the address at which people open the application";
            table.set("origins", vec!["https://app.example"], from);
            settings.none_equal(
                &["cookie-domain", "whitelist-domain", "cookie-samesite", "cookie-csrf-samesite"],
                "write the hosts into `login.origins`, and see `login.cookie_domain` and `login.frame_ancestors`",
            );
            let given = other.unwrap_or_else(|| Given::new("", "no --redirect-url"));
            settings.no_equal(
                &given,
                "write the origins of your services into `login.origins`, as browsers see them",
            );
        }
    }
    let path = settings.text("proxy-prefix");
    if let Some(given) = &path {
        table.set("path", &*given.value, &given.shown());
        settings.translated(given);
    }
    table.set("keys_file", "login.keys", "a new key");
    output.secrets.push(SecretFile { name: "login.keys", content: None });
    for name in ["cookie-secret", "cookie-secret-file"] {
        if let Some(given) = settings.text(name) {
            settings.different(&secret(&given), "a new key was made: login.keys; put it into all replicas");
        }
    }
    for (flag, key) in [("cookie-expire", "lifetime"), ("cookie-refresh", "refresh")] {
        let Some(given) = settings.text(flag) else { continue };
        match &*go::duration(&given)? {
            "0s" if key == "lifetime" => {
                settings.different(&given, "a session lasts 12 h here; set `login.lifetime`");
            }
            "0s" => settings.different(&given, "a session is checked every 5 minutes; set `login.refresh`"),
            duration => {
                table.set(key, duration, &given.shown());
                settings.translated(&given);
            }
        }
    }
    match settings.switch("skip-provider-button")? {
        Some(given) => settings.translated(&given),
        None => {
            table.set("sign_in_page", true, "no --skip-provider-button");
        }
    }
    if let Some(given) = settings.off("cookie-secure")? {
        settings.different(&given, "cookies of an https origin are always `Secure`");
    }
    if let Some(given) = settings.text("session-store-type") {
        match &*given.value {
            "cookie" => settings.translated(&given),
            _ => settings.no_equal(&given, "sessions are kept in SQLite or PostgreSQL: set `login.database`"),
        }
    }
    Ok(path.map(|given| given.value))
}

/// The issuer of the provider, from what it came, and whether it is `OpenShift`.
fn issuer(settings: &mut ProgramSettings, program: Oauth2ProxyKind) -> (String, String, bool) {
    let default = match program {
        Oauth2ProxyKind::Oauth2Proxy => "google",
        Oauth2ProxyKind::KubeAuthProxy => "oidc",
    };
    let kind = settings.text("provider").unwrap_or_else(|| Given::new(default, "the default of --provider"));
    if kind.value == "openshift" {
        settings.translated(&kind);
        return (API_SERVER.to_owned(), kind.shown(), true);
    }
    let url = settings.text("oidc-issuer-url");
    let tenant = settings.text("azure-tenant");
    let known = match &*kind.value {
        "google" => Some("https://accounts.google.com".to_owned()),
        "gitlab" => Some("https://gitlab.com".to_owned()),
        "azure" | "entra-id" => tenant
            .as_ref()
            .filter(|given| given.value != "common")
            .map(|given| format!("https://login.microsoftonline.com/{}/v2.0", given.value)),
        _ => None,
    };
    let speaks_openid = matches!(
        &*kind.value,
        "google"
            | "gitlab"
            | "azure"
            | "entra-id"
            | "oidc"
            | "keycloak-oidc"
            | "adfs"
            | "cidaas"
            | "login.gov"
    );
    if let Some(given) = tenant {
        settings.translated(&given);
    }
    if speaks_openid {
        settings.translated(&kind);
    } else {
        settings.no_equal(
            &kind,
            "this provider does not speak OpenID Connect; put one between that knows it (Keycloak, Dex), and write its URL",
        );
    }
    match (url, known) {
        (Some(given), _) => {
            settings.translated(&given);
            let shown = given.shown();
            (given.value, shown, false)
        }
        (None, Some(url)) => (url, kind.shown(), false),
        (None, None) => {
            ("https://provider.example".to_owned(), "write the provider's issuer URL".to_owned(), false)
        }
    }
}

/// The one file with authorities.
fn certificates(settings: &mut ProgramSettings) -> Option<Given> {
    let mut files = settings.list("provider-ca-file");
    files.extend(settings.list("openshift-ca"));
    let mut files = files.into_iter();
    let first = files.next();
    if let Some(given) = &first {
        settings.translated(given);
    }
    for given in files {
        settings.no_equal(&given, "`ca` is one file: put all certificates into it");
    }
    settings.none_equal(
        &["use-system-trust-store"],
        "with `ca`, only its certificates are trusted: add those that you need to the file",
    );
    first
}

fn client_secret(settings: &mut ProgramSettings, table: &mut DraftTable, secrets: &mut Vec<SecretFile>) {
    let (value, file) = (settings.text("client-secret"), settings.text("client-secret-file"));
    if let Some(given) = &value {
        table.set("client_secret_file", "login.secret", &given.origin);
        secrets.push(SecretFile { name: "login.secret", content: Some(format!("{}\n", given.value)) });
        settings.translated(&secret(given));
    }
    match (&value, &file) {
        (None, Some(given)) => {
            table.set("client_secret_file", &*given.value, &given.shown());
            settings.translated(given);
        }
        (Some(_), Some(given)) => settings.different(given, "the value counts, as by the program"),
        _ => {}
    }
}

/// What the authorization request has.
fn authorization_request(
    settings: &mut ProgramSettings,
    table: &mut DraftTable,
    is_openshift: bool,
) -> Result<(), InputFault> {
    if let Some(given) = settings.text("scope") {
        let scopes: Vec<String> = given.value.split_whitespace().map(str::to_owned).collect();
        table.set("scopes", scopes, &given.shown());
        settings.translated(&given);
    }
    let mut parameters = toml::Table::new();
    let mut from = Vec::new();
    for (flag, name) in [
        ("prompt", "prompt"),
        ("approval-prompt", "approval_prompt"),
        ("acr-values", "acr_values"),
        ("resource", "resource"),
    ] {
        let Some(given) = settings.text(flag) else { continue };
        parameters.insert(name.to_owned(), (&*given.value).into());
        from.push(given.origin.clone());
        settings.translated(&given);
    }
    if !parameters.is_empty() {
        table.set("parameters", Value::Table(parameters), &from.join(", "));
    }
    if let Some(given) = settings.text("auth-request-response-mode") {
        if matches!(&*given.value, "query" | "form_post") {
            table.set("response_mode", &*given.value, &given.shown());
            settings.translated(&given);
        } else {
            settings.no_equal(&given, "a provider returns people by `query` or `form_post`");
        }
    }
    for flag in ["code-challenge-method", "force-code-challenge-method"] {
        if let Some(given) = settings.text(flag) {
            match &*given.value {
                "S256" => settings.translated(&given),
                _ => settings.different(&given, "the challenge is always of the method S256"),
            }
        }
    }
    if let Some(given) = settings.switch("insecure-oidc-skip-nonce")? {
        settings.different(&given, "the nonce is always verified");
    }
    if is_openshift {
        settings
            .none_equal(&["skip-claims-from-profile-url"], "OpenShift has no profile, so nothing is lost");
    } else if let Some(given) = settings.switch("skip-claims-from-profile-url")? {
        settings.translated(&given);
    } else {
        table.set("userinfo", true, "no --skip-claims-from-profile-url");
    }
    Ok(())
}

fn claims(
    settings: &mut ProgramSettings,
    (issuer, is_openshift): (String, bool),
    client_id: String,
    ca: Option<String>,
) -> Result<Provider, InputFault> {
    let email_claim = settings.text("oidc-email-claim");
    if let Some(given) = settings.text("user-id-claim") {
        settings
            .different(&given, "it is the former name of `--oidc-email-claim`, and counts only without it");
    }
    let groups_claim = settings.text("oidc-groups-claim");
    let unverified_email = settings.switch("insecure-oidc-allow-unverified-email")?;
    for given in [&email_claim, &groups_claim, &unverified_email].into_iter().flatten() {
        settings.translated(given);
    }
    Ok(Provider {
        issuer,
        is_openshift,
        client_id,
        ca,
        email_claim,
        groups_claim,
        unverified_email,
        algorithms: Vec::new(),
        login_path: None,
    })
}

/// The signature algorithms of the provider's tokens. Symmetric ones do not exist here.
fn algorithms(settings: &mut ProgramSettings) -> Vec<String> {
    let mut known = Vec::new();
    for given in settings.list("oidc-enabled-signing-alg") {
        if ALGORITHMS.contains(&&*given.value) {
            settings.translated(&given);
            known.push(given.value);
        } else {
            settings.no_equal(&given, "only signatures with a public key are accepted: let the provider sign with RS256, PS256, ES256 or EdDSA");
        }
    }
    known
}

/// Sets the claims, of the login or of tokens.
pub(super) fn set_claims(table: &mut DraftTable, provider: &Provider) {
    if let Some(given) = &provider.email_claim {
        table.set("email", &*given.value, &given.shown());
    }
    if let Some(given) = &provider.groups_claim {
        table.set("groups", vec![given.value.clone()], &given.shown());
    }
    if let Some(given) = &provider.unverified_email {
        table.set("email_must_be_verified", false, &given.shown());
    }
}
