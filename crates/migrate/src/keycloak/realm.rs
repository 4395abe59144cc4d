//! Realm: `[provider]` with lifetimes and lockout, and what of a realm has no equal.

use toml::Value;

use super::export::Realm;
use super::reader::RealmExport;
use super::{Output, clients};

/// Most failures of an account: the network that they come from may have 50.
const MAX_FAILURES: u64 = 49;
/// Longest lock, in seconds.
const MAX_LOCK: u64 = 86_400;

/// Where the provider will be.
#[derive(Debug, Clone)]
pub struct ProviderPlace {
    /// URL of the provider. `None`: it is taken from the realm, or an example.
    pub issuer: Option<String>,
    /// URL of its database.
    pub database: String,
}

pub(super) fn translate(export: &RealmExport<'_>, place: &ProviderPlace, output: &mut Output<'_>) {
    let realm = &export.realm;
    let table = output.draft.table("[provider]");
    let frontend =
        realm.attributes.get("frontendUrl").and_then(|url| url.as_str()).filter(|url| !url.is_empty());
    let (issuer, from) = match (&place.issuer, frontend) {
        (Some(issuer), _) => (issuer.clone(), "--issuer"),
        (None, Some(url)) => {
            (format!("{}/realms/{}", url.trim_end_matches('/'), realm.realm), "the realm's frontendUrl")
        }
        (None, None) => {
            ("https://login.example.com".into(), "an example: set the URL, or name it with --issuer")
        }
    };
    table.set("issuer", issuer, from);
    table.set("database", place.database.as_str(), "--database");
    if !place.database.starts_with("sqlite:") {
        // Beside a file of SQLite the provider makes one.
        let from = "a new one for all nodes: (umask 077; openssl rand -base64 32 > provider.secret)";
        table.set("secret_file", "provider.secret", from);
    }
    let audiences: Vec<Value> = clients::audiences(export).into_iter().map(Value::from).collect();
    table.set("audiences", audiences, "audience mappers, and clients without one");
    let lifespan = realm.access_token_lifespan.filter(|seconds| (1..=86_400).contains(seconds));
    table.set_some("access_token_lifetime", lifespan.map(seconds), "accessTokenLifespan");
    match realm.default_signature_algorithm.as_deref() {
        None | Some("RS256") => {
            table.set("access_token_algorithm", "RS256", "defaultSignatureAlgorithm");
        }
        Some(name @ ("ES256" | "EdDSA")) => {
            table.set("access_token_algorithm", name, "defaultSignatureAlgorithm");
            table.set("id_token_algorithm", name, "defaultSignatureAlgorithm");
        }
        Some(name) => {
            let text = format!("tokens are signed with ES256, RS256 or EdDSA, not with {name}");
            output.different("defaultSignatureAlgorithm", &text);
        }
    }
    output.different(
        &format!("realm {}", realm.realm),
        "keys are new: clients fetch them by discovery, and tokens and sessions of Keycloak end with it",
    );
    if realm.enabled == Some(false) {
        output.different("realm, enabled", "the realm is disabled, the provider is not");
    }
    lifetimes(realm, output);
    lockout(realm, output);
    without_equal(realm, output);
}

fn seconds(number: u64) -> String {
    format!("{number}s")
}

fn lifetimes(realm: &Realm, output: &mut Output<'_>) {
    let table = output.draft.table("[provider.lifetimes]");
    let hour = |value: Option<u64>| value.filter(|seconds| (1..=3600).contains(seconds)).map(seconds);
    table.set_some("code", hour(realm.access_code_lifespan), "accessCodeLifespan");
    table.set_some("device_code", hour(realm.oauth2_device_code_lifespan), "oauth2DeviceCodeLifespan");
    let idle = realm.sso_session_idle_timeout.filter(|seconds| *seconds >= 60).map(seconds);
    table.set_some("session_idle", idle, "ssoSessionIdleTimeout");
    let long = |value: Option<u64>| value.filter(|seconds| *seconds > 0).map(seconds);
    table.set_some("session", long(realm.sso_session_max_lifespan), "ssoSessionMaxLifespan");
    table.set_some("refresh_token", long(realm.offline_session_idle_timeout), "offlineSessionIdleTimeout");
    if realm.offline_session_max_lifespan_enabled {
        table.set_some("grant", long(realm.offline_session_max_lifespan), "offlineSessionMaxLifespan");
    }
    for (name, value) in [
        ("accessTokenLifespan", realm.access_token_lifespan),
        ("ssoSessionIdleTimeout", realm.sso_session_idle_timeout),
        ("ssoSessionMaxLifespan", realm.sso_session_max_lifespan),
        ("accessCodeLifespan", realm.access_code_lifespan),
        ("oauth2DeviceCodeLifespan", realm.oauth2_device_code_lifespan),
        ("offlineSessionIdleTimeout", realm.offline_session_idle_timeout),
    ] {
        if value.is_some() {
            output.translated(name);
        }
    }
}

fn lockout(realm: &Realm, output: &mut Output<'_>) {
    if !realm.brute_force_protected {
        let text = "Keycloak did not lock accounts after wrong passwords; Postern does, after 5";
        output.different("bruteForceProtected", text);
        return;
    }
    let failures = realm.failure_factor.unwrap_or(30).clamp(1, MAX_FAILURES);
    let longest = realm.max_failure_wait_seconds.unwrap_or(900).clamp(1, MAX_LOCK);
    let delay = realm.wait_increment_seconds.unwrap_or(60).clamp(1, longest);
    let table = output.draft.table("[provider.passwords.lockout_account]");
    table.set("failures", i64::try_from(failures).unwrap_or(i64::MAX), "failureFactor");
    table.set("delay", seconds(delay), "waitIncrementSeconds");
    table.set("longest", seconds(longest), "maxFailureWaitSeconds");
    output.different(
        "bruteForceProtected",
        "each further failure doubles the lock; half of the failures are forgotten every 15 minutes; networks are locked too",
    );
    if realm.permanent_lockout {
        output.no_equal(
            "permanentLockout",
            "a lock always ends: disable an account with `postern admin user disable`",
        );
    }
}

fn without_equal(realm: &Realm, output: &mut Output<'_>) {
    let mut no_equal = |present: bool, setting: &str, text: &str| {
        if present {
            output.no_equal(setting, text);
        }
    };
    no_equal(
        realm.password_policy.as_ref().is_some_and(|policy| !policy.is_empty()),
        "passwordPolicy",
        "new passwords need a length and withstand guesses: see `min_length` and `strength` of [provider.passwords]",
    );
    no_equal(
        realm.registration_allowed,
        "registrationAllowed",
        "people cannot register themselves: create accounts with `postern admin user add`",
    );
    no_equal(
        realm.reset_password_allowed,
        "resetPasswordAllowed",
        "an operator sets new passwords: `postern admin user password`",
    );
    no_equal(
        realm.verify_email,
        "verifyEmail",
        "no mail is sent: an operator says that an address is verified",
    );
    no_equal(
        realm.remember_me,
        "rememberMe",
        "sessions have one lifetime: `session` and `session_idle` of [provider.lifetimes]",
    );
    no_equal(
        realm.login_with_email_allowed == Some(false),
        "loginWithEmailAllowed",
        "people with a verified address may log in with it",
    );
    no_equal(
        realm.internationalization_enabled,
        "internationalizationEnabled",
        "pages are in the languages that Postern has",
    );
    no_equal(realm.events_enabled, "eventsEnabled", "the audit log records what operators and people do");
    no_equal(realm.organizations_enabled, "organizationsEnabled", "organizations have no equal: use groups");
    no_equal(realm.login_theme.is_some(), "loginTheme", "set name, logo and colour in [pages.brand]");
    no_equal(!realm.smtp_server.is_empty(), "smtpServer", "no mail is sent");
    no_equal(
        realm.browser_flow.as_deref().is_some_and(|flow| flow != "browser"),
        "browserFlow",
        "flows of your own have no equal: people log in with name and password",
    );
    for provider in &realm.identity_providers {
        let text = "people cannot log in at the provider with an account of another one: let the gateway accept its tokens, or log in there with [[login.provider]]";
        output.no_equal(&format!("identity provider {}", provider.alias), text);
    }
    for storage in realm.components.get("org.keycloak.storage.UserStorageProvider").into_iter().flatten() {
        let name = storage.name.as_deref().or(storage.provider_id.as_deref()).unwrap_or_default();
        let text = "directories have no equal: only people that are in the export are imported, without a password of the directory";
        output.no_equal(&format!("user federation {name}"), text);
    }
    for group in realm.groups.iter().filter(|group| !group.attributes.is_empty()) {
        let text = "groups have no attributes: use attributes of people, or a claim of the group";
        output.no_equal(&format!("attributes of group {}", group.name), text);
    }
}
