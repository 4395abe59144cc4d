//! Clients: `[[provider.client]]` of those that Keycloak has not created itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use aws_lc_rs::digest;
use toml::Value;

use super::Output;
use super::claims;
use super::export::Client;
use super::reader::RealmExport;
use super::roles::{RoleGraph, is_built_in_client, named};
use super::rules::TargetRules;

/// Scopes of the clients that are translated, by the client's id.
pub(super) type KeptScopes = BTreeMap<String, Vec<String>>;

/// Keycloak's own scopes that stand for mappers and are nothing for an application.
const STRUCTURAL_SCOPES: [&str; 8] = [
    "acr",
    "basic",
    "microprofile-jwt",
    "organization",
    "role_list",
    "roles",
    "saml_organization",
    "web-origins",
];
/// Scopes of OpenID Connect that release nothing unless they are requested.
const ON_REQUEST: [&str; 2] = ["openid", "offline_access"];
/// Switches in `attributes` that have no equal.
const SWITCHES: [(&str, &str); 5] = [
    ("oidc.ciba.grant.enabled", "CIBA is not supported: use device_code or authorization_code"),
    (
        "standard.token.exchange.enabled",
        "token exchange is not supported: let the caller request the audience itself",
    ),
    ("dpop.bound.access.tokens", "tokens bound by DPoP are not supported: use short lifetimes"),
    (
        "tls.client.certificate.bound.access.tokens",
        "tokens bound to a certificate are not supported: use short lifetimes",
    ),
    (
        "client.use.lightweight.access.token.enabled",
        "access tokens always have their claims: leave out `claim` tables",
    ),
];
/// Longest redirect list.
const MAX_REDIRECTS: usize = 64;

/// Translates all clients. Returns the scopes of those that are kept.
pub(super) fn translate(
    export: &RealmExport<'_>,
    roles: &RoleGraph,
    target: &dyn TargetRules,
    output: &mut Output<'_>,
) -> KeptScopes {
    let mut kept = KeptScopes::new();
    for client in &export.realm.clients {
        let id = &client.client_id;
        let origin = format!("client {id}");
        if is_built_in_client(id) {
            output.no_equal(
                &origin,
                "Keycloak's own client: administration and the account page are part of Postern",
            );
        } else if client.protocol.as_deref().is_some_and(|protocol| protocol != "openid-connect") {
            output.no_equal(&origin, "it speaks SAML: let the application use OpenID Connect");
        } else if client.enabled == Some(false) {
            output
                .no_equal(&origin, "it is disabled and left out: enable it and export again if it is needed");
        } else {
            let translator = ClientTranslator { client, export, roles, target, origin };
            if let Some(scopes) = translator.translate(output) {
                kept.insert(id.clone(), scopes);
            }
        }
    }
    kept
}

/// The audiences of all clients that are translated, in order.
pub(super) fn audiences(export: &RealmExport<'_>) -> Vec<String> {
    let clients = export.realm.clients.iter().filter(|client| is_translated(client));
    let all: BTreeSet<String> = clients.flat_map(|client| audiences_of(client, export)).collect();
    all.into_iter().collect()
}

fn is_translated(client: &Client) -> bool {
    let openid = client.protocol.as_deref().is_none_or(|protocol| protocol == "openid-connect");
    openid && client.enabled != Some(false) && !is_built_in_client(&client.client_id)
}

/// The audiences of a client's tokens: those of its audience mappers and of its scopes' mappers. One
/// without any is its own.
fn audiences_of(client: &Client, export: &RealmExport<'_>) -> Vec<String> {
    let scopes = export.realm.client_scopes.iter().filter(|s| client.default_client_scopes.contains(&s.name));
    let mappers = client.protocol_mappers.iter().chain(scopes.flat_map(|scope| &scope.protocol_mappers));
    let mut found: Vec<String> = Vec::new();
    for mapper in mappers.filter(|mapper| mapper.protocol_mapper == "oidc-audience-mapper") {
        let audience =
            mapper.setting("included.client.audience").or(mapper.setting("included.custom.audience"));
        if let Some(audience) = audience.filter(|audience| found.iter().all(|other| other != audience)) {
            found.push(audience.to_owned());
        }
    }
    if found.is_empty() {
        found.push(client.client_id.clone());
    }
    found
}

struct ClientTranslator<'e> {
    client: &'e Client,
    export: &'e RealmExport<'e>,
    roles: &'e RoleGraph,
    target: &'e dyn TargetRules,
    /// How the report and the comments name it.
    origin: String,
}

/// How a client authenticates.
enum Authentication {
    Public,
    Secret(String),
}

impl ClientTranslator<'_> {
    /// Writes the client's table. Returns its scopes; `None`: the client is left out.
    fn translate(&self, output: &mut Output<'_>) -> Option<Vec<String>> {
        let authentication = self.authentication(output)?;
        let redirects = self.redirect_uris(output);
        let grants = self.grants(matches!(authentication, Authentication::Public), &redirects, output)?;
        let (scopes, defaults) = self.scopes(&grants);
        let (client, origin) = (self.client, &self.origin);
        let of = |member: &str| format!("{origin}, {member}");
        let audiences = audiences_of(client, self.export);
        let table = output.draft.table("[[provider.client]]");
        table.set("id", client.client_id.as_str(), &of("clientId"));
        let name = client.name.as_deref().filter(|name| !name.is_empty() && !name.starts_with("${"));
        table.set_some("name", name.map(|name| shortened(name, 80)), &of("name"));
        match authentication {
            Authentication::Public => table.set("public", true, &of("publicClient")),
            Authentication::Secret(secret) => table.set(
                "secret_sha256",
                vec![sha256_hex(&secret)],
                &of("secret, of which this is the SHA-256"),
            ),
        };
        table.set("grants", grants.clone(), &of("its flows"));
        if grants.contains(&"authorization_code") {
            table.set("redirect_uris", redirects.clone(), &of("redirectUris"));
        }
        table.set("scopes", scopes.clone(), &of("defaultClientScopes, optionalClientScopes"));
        table.set("default_scopes", defaults, &of("defaultClientScopes"));
        table.set("audiences", audiences, &of("its audience mappers"));
        if !client.consent_required {
            table.set("asks_consent", false, &of("consentRequired"));
        }
        if client.attribute("pkce.code.challenge.method") == Some("S256") && !client.public_client {
            table.set("requires_pkce", true, &of("pkce.code.challenge.method"));
        }
        if client.has_switch("require.pushed.authorization.requests") {
            table.set("requires_pushed_requests", true, &of("require.pushed.authorization.requests"));
        }
        // Keycloak lets every client with a secret introspect.
        if !client.public_client {
            table.set("introspects", "audience", &of("it has a secret"));
        }
        self.tokens(output);
        self.logout(&redirects, output);
        self.service_account(&grants, output);
        output.translated(&self.origin);
        self.differences(&grants, output);
        claims::of_client(self.client, self.export, self.roles, self.target, output);
        Some(scopes)
    }

    fn authentication(&self, output: &mut Output<'_>) -> Option<Authentication> {
        let client = self.client;
        if client.public_client {
            return Some(Authentication::Public);
        }
        let left_out = |output: &mut Output<'_>, why: &str| {
            output.no_equal(&self.origin, &format!("it is left out: {why}"));
        };
        match client.client_authenticator_type.as_deref().unwrap_or("client-secret") {
            "client-secret" | "client-secret-jwt"
                if client.bearer_only && client.shown_secret().is_none() =>
            {
                left_out(output, "it only receives tokens; others have it as an audience");
                None
            }
            "client-secret" => match client.shown_secret() {
                Some(secret) => {
                    if let Some(fault) = self.target.secret_fault(secret) {
                        let text = format!("it is kept, but {fault}");
                        output.different(&format!("{}, secret", self.origin), &text);
                    }
                    Some(Authentication::Secret(secret.to_owned()))
                }
                None => {
                    left_out(
                        output,
                        "its secret is masked or missing: export with `kc.sh export`, or add it with a new secret",
                    );
                    None
                }
            },
            "client-jwt" => {
                left_out(
                    output,
                    "it authenticates with a key: add it with `keys_file`, its public keys as a JWK set",
                );
                None
            }
            other => {
                left_out(
                    output,
                    &format!("it authenticates with {other}: add it with a secret or `keys_file`"),
                );
                None
            }
        }
    }

    /// Redirect URIs that can be registered.
    fn redirect_uris(&self, output: &mut Output<'_>) -> Vec<String> {
        self.registrable(self.client.redirect_uris.iter().map(String::as_str), "redirectUris", output)
    }

    fn registrable<'u>(
        &self,
        uris: impl Iterator<Item = &'u str>,
        member: &str,
        output: &mut Output<'_>,
    ) -> Vec<String> {
        let mut kept: Vec<String> = Vec::new();
        for uri in uris {
            let root = self.client.root_url.as_deref().unwrap_or_default().trim_end_matches('/');
            let uri = if uri.starts_with('/') { format!("{root}{uri}") } else { uri.to_owned() };
            let setting = format!("{}, {member} {uri}", self.origin);
            if uri.contains('*') {
                output.no_equal(
                    &setting,
                    "patterns are not supported: register each URI that the application uses",
                );
            } else if let Some(fault) = self.target.redirect_fault(&uri) {
                output.no_equal(&setting, &fault);
            } else if kept.len() == MAX_REDIRECTS {
                output.no_equal(&setting, "a client has at most 64");
            } else if !kept.contains(&uri) {
                kept.push(uri);
            }
        }
        kept
    }

    fn grants(
        &self,
        public: bool,
        redirects: &[String],
        output: &mut Output<'_>,
    ) -> Option<Vec<&'static str>> {
        let client = self.client;
        let mut grants = Vec::new();
        let missing = |output: &mut Output<'_>, flow: &str, why: &str| {
            output.no_equal(&format!("{}, {flow}", self.origin), why);
        };
        if client.standard_flow_enabled != Some(false) && !client.bearer_only {
            if redirects.is_empty() {
                missing(
                    output,
                    "standardFlowEnabled",
                    "it has no redirect URI that can be registered: add one with the grant authorization_code",
                );
            } else {
                grants.push("authorization_code");
            }
        }
        if client.has_switch("oauth2.device.authorization.grant.enabled") {
            grants.push("device_code");
        }
        if client.direct_access_grants_enabled {
            if public {
                missing(
                    output,
                    "directAccessGrantsEnabled",
                    "a public client may not send passwords: use authorization_code or device_code",
                );
            } else {
                grants.push("password");
            }
        }
        if !grants.is_empty() && client.attribute("use.refresh.tokens") != Some("false") {
            grants.push("refresh_token");
        }
        if client.service_accounts_enabled && !public {
            grants.push("client_credentials");
        }
        if client.implicit_flow_enabled {
            missing(
                output,
                "implicitFlowEnabled",
                "the implicit flow is not supported (RFC 9700): use authorization_code with PKCE",
            );
        }
        if grants.is_empty() && !public {
            // A client needs a grant; with this one it gets a token without any group.
            let text = "it has no flow: it gets client_credentials, so that it can introspect tokens of its audience";
            output.different(&format!("{}, its flows", self.origin), text);
            grants.push("client_credentials");
        }
        if grants.is_empty() {
            output.no_equal(&self.origin, "it is left out, because no grant remains: see its other lines");
            return None;
        }
        Some(grants)
    }

    /// All scopes, and those without a request.
    fn scopes(&self, grants: &[&str]) -> (Vec<String>, Vec<String>) {
        let applies =
            |scope: &&String| !STRUCTURAL_SCOPES.contains(&&***scope) && scope.as_str() != "service_account";
        let own = self.client.default_client_scopes.iter().chain(&self.client.optional_client_scopes);
        let mut all: Vec<String> = Vec::new();
        if grants.iter().any(|grant| *grant != "client_credentials") {
            all.push("openid".into());
        }
        for scope in own.filter(applies).filter(|scope| !all.contains(scope)).cloned().collect::<Vec<_>>() {
            if !all.contains(&scope) {
                all.push(scope);
            }
        }
        let is_default = |scope: &&String| {
            self.client.default_client_scopes.contains(scope) && !ON_REQUEST.contains(&&***scope)
        };
        let defaults = all.iter().filter(is_default).cloned().collect();
        (all, defaults)
    }

    fn tokens(&self, output: &mut Output<'_>) {
        let (client, origin) = (self.client, &self.origin);
        let table = output.draft.last("[[provider.client]]");
        let lifespan =
            client.attribute("access.token.lifespan").and_then(|seconds| seconds.parse::<u64>().ok());
        let lifespan = lifespan.filter(|seconds| (1..=86_400).contains(seconds)).map(|s| format!("{s}s"));
        table.set_some("access_token_lifetime", lifespan, &format!("{origin}, access.token.lifespan"));
        let algorithm = client.attribute("id.token.signed.response.alg");
        let supported = algorithm.filter(|name| ["ES256", "RS256", "EdDSA"].contains(name));
        table.set_some("id_token_algorithm", supported, &format!("{origin}, id.token.signed.response.alg"));
        // Keycloak's ID tokens have the claims of the scopes.
        table.set("claims_in_id_token", true, &format!("{origin}, as in Keycloak's ID tokens"));
        table.set("access_token_typ", "JWT", &format!("{origin}, as in Keycloak's access tokens"));
        for member in ["access.token.signed.response.alg", "id.token.signed.response.alg"] {
            let Some(name) = client.attribute(member) else { continue };
            if member.starts_with("access") || supported.is_none() {
                let text =
                    format!("{name} is not taken over: set `access_token_algorithm` or `id_token_algorithm`");
                output.different(&format!("{origin}, {member}"), &text);
            }
        }
    }

    fn logout(&self, redirects: &[String], output: &mut Output<'_>) {
        let client = self.client;
        let uris = client.attribute("post.logout.redirect.uris").unwrap_or("+");
        let mut all: Vec<&str> = Vec::new();
        for uri in uris.split("##").filter(|uri| !uri.is_empty() && *uri != "-") {
            match uri {
                "+" => all.extend(redirects.iter().map(String::as_str)),
                uri => all.push(uri),
            }
        }
        let kept = self.registrable(all.into_iter(), "post.logout.redirect.uris", output);
        let backchannel = client.attribute("backchannel.logout.url").map(str::to_owned);
        let backchannel =
            self.registrable(backchannel.iter().map(String::as_str), "backchannel.logout.url", output);
        let table = output.draft.last("[[provider.client]]");
        if !kept.is_empty() {
            table.set(
                "post_logout_redirect_uris",
                kept,
                &format!("{}, post.logout.redirect.uris", self.origin),
            );
        }
        let from = format!("{}, backchannel.logout.url", self.origin);
        table.set_some("backchannel_logout_uri", backchannel.first().map(String::as_str), &from);
        if client.frontchannel_logout && client.attribute("frontchannel.logout.url").is_some() {
            let text = "not supported: use `backchannel_logout_uri`";
            output.no_equal(&format!("{}, frontchannel.logout.url", self.origin), text);
        }
    }

    /// Groups of the client's own account.
    fn service_account(&self, grants: &[&str], output: &mut Output<'_>) {
        if !grants.contains(&"client_credentials") {
            return;
        }
        let id = Some(&self.client.client_id);
        let mut accounts = self.export.survey.service_accounts.iter();
        let Some(user) = accounts.find(|user| user.service_account_client_id.as_ref() == id) else { return };
        let groups = self.roles.groups_of(named(&user.realm_roles, &user.client_roles), &user.groups);
        if !groups.is_empty() {
            let from = format!("{}, roles and groups of its service account", self.origin);
            let groups: Vec<Value> = groups.into_iter().map(Value::from).collect();
            output.draft.last("[[provider.client]]").set("groups", groups, &from);
        }
        let text = format!(
            "the `sub` of the client's own tokens is its id, not {}",
            user.id.as_deref().unwrap_or("that of its account")
        );
        output.different(&format!("{}, service account", self.origin), &text);
    }

    fn differences(&self, grants: &[&str], output: &mut Output<'_>) {
        let client = self.client;
        for (attribute, text) in SWITCHES {
            if client.has_switch(attribute) {
                output.no_equal(&format!("{}, {attribute}", self.origin), text);
            }
        }
        if client.authorization_services_enabled {
            let text = "permissions of Keycloak's authorization services are not supported: write access rules in the gateway";
            output.no_equal(&format!("{}, authorizationServicesEnabled", self.origin), text);
        }
        if audiences_of(client, self.export) == [client.client_id.clone()] && !grants.is_empty() {
            let text = "its access tokens have the client's id in `aud`, where Keycloak writes `account` or the clients of the roles";
            output.different(&format!("{}, audience", self.origin), text);
        }
    }
}

/// The first characters of a text without control characters.
fn shortened(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

fn sha256_hex(secret: &str) -> String {
    let digest = digest::digest(&digest::SHA256, secret.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
