//! The structured ("alpha") configuration of oauth2-proxy, read as the flags that mean the same.
//!
//! With it the program sends no headers to upstreams but those that the file names.

use serde_json::Value as Json;

use crate::files::ContainerFiles;
use crate::input_fault::InputFault;
use crate::report::Translation;
use crate::settings::Given;

/// What the file says.
#[derive(Debug, Default)]
pub(super) struct Structured {
    /// As flags.
    pub(super) given: Vec<(&'static str, Given)>,
    /// Headers of answers to another proxy: name, and value with a placeholder.
    pub(super) answers: Vec<(String, &'static str)>,
    /// Headers for upstreams: name, and field of the identity.
    pub(super) headers: Vec<(String, String)>,
    /// Outcomes of what has no flag.
    pub(super) outcomes: Vec<(Given, Translation)>,
}

/// Keys with the same meaning as a flag, in small letters.
const FLAGS: [(&str, &str); 56] = [
    ("server.bindaddress", "http-address"),
    ("server.securebindaddress", "https-address"),
    ("server.tls.cert.fromfile", "tls-cert-file"),
    ("server.tls.key.fromfile", "tls-key-file"),
    ("server.tls.minversion", "tls-min-version"),
    ("server.tls.ciphersuites", "tls-cipher-suite"),
    ("metricsserver.bindaddress", "metrics-address"),
    ("metricsserver.securebindaddress", "metrics-secure-address"),
    ("metricsserver.tls.cert.fromfile", "metrics-tls-cert-file"),
    ("metricsserver.tls.key.fromfile", "metrics-tls-key-file"),
    ("providers[0].provider", "provider"),
    ("providers[0].name", "provider-display-name"),
    ("providers[0].clientid", "client-id"),
    ("providers[0].clientsecret", "client-secret"),
    ("providers[0].clientsecretfile", "client-secret-file"),
    ("providers[0].cafiles", "provider-ca-file"),
    ("providers[0].usesystemtruststore", "use-system-trust-store"),
    ("providers[0].scope", "scope"),
    ("providers[0].loginurl", "login-url"),
    ("providers[0].redeemurl", "redeem-url"),
    ("providers[0].profileurl", "profile-url"),
    ("providers[0].validateurl", "validate-url"),
    ("providers[0].backendlogouturl", "backend-logout-url"),
    ("providers[0].authrequestresponsemode", "auth-request-response-mode"),
    ("providers[0].skipclaimsfromprofileurl", "skip-claims-from-profile-url"),
    ("providers[0].resource", "resource"),
    ("providers[0].allowedgroups", "allowed-group"),
    ("providers[0].code_challenge_method", "code-challenge-method"),
    ("providers[0].oidcconfig.issuerurl", "oidc-issuer-url"),
    ("providers[0].oidcconfig.insecureallowunverifiedemail", "insecure-oidc-allow-unverified-email"),
    ("providers[0].oidcconfig.insecureskipissuerverification", "insecure-oidc-skip-issuer-verification"),
    ("providers[0].oidcconfig.insecureskipnonce", "insecure-oidc-skip-nonce"),
    ("providers[0].oidcconfig.skipdiscovery", "skip-oidc-discovery"),
    ("providers[0].oidcconfig.jwksurl", "oidc-jwks-url"),
    ("providers[0].oidcconfig.publickeyfiles", "oidc-public-key-file"),
    ("providers[0].oidcconfig.emailclaim", "oidc-email-claim"),
    ("providers[0].oidcconfig.groupsclaim", "oidc-groups-claim"),
    ("providers[0].oidcconfig.useridclaim", "user-id-claim"),
    ("providers[0].oidcconfig.audienceclaims", "oidc-audience-claim"),
    ("providers[0].oidcconfig.extraaudiences", "oidc-extra-audience"),
    ("providers[0].keycloakconfig.groups", "keycloak-group"),
    ("providers[0].keycloakconfig.roles", "allowed-role"),
    ("providers[0].azureconfig.tenant", "azure-tenant"),
    ("providers[0].microsoftentraidconfig.allowedtenants", "entra-id-allowed-tenant"),
    ("providers[0].microsoftentraidconfig.federatedtokenauth", "entra-id-federated-token-auth"),
    ("providers[0].gitlabconfig.group", "gitlab-group"),
    ("providers[0].gitlabconfig.projects", "gitlab-project"),
    ("providers[0].googleconfig.group", "google-group"),
    ("providers[0].googleconfig.adminemail", "google-admin-email"),
    ("providers[0].githubconfig.org", "github-org"),
    ("providers[0].githubconfig.team", "github-team"),
    ("providers[0].githubconfig.users", "github-user"),
    ("providers[0].githubconfig.repo", "github-repo"),
    ("providers[0].githubconfig.token", "github-token"),
    ("providers[0].bitbucketconfig.team", "bitbucket-team"),
    ("providers[0].bitbucketconfig.repository", "bitbucket-repository"),
];

impl Structured {
    /// Reads the file that a flag names.
    ///
    /// # Errors
    /// If it was not given, or is no YAML.
    pub(super) fn read(named: &Given, files: &ContainerFiles) -> Result<Self, InputFault> {
        let file: Json = files.yaml(named)?;
        let mut read = Self::default();
        for switch in ["pass-basic-auth", "pass-user-headers"] {
            read.given.push((switch, Given::new("false", format!("{switch}, by --alpha-config"))));
        }
        for (key, value) in file.as_object().into_iter().flatten() {
            match &*key.to_lowercase() {
                "injectrequestheaders" => read.request_headers(key, value),
                "injectresponseheaders" => read.response_headers(key, value),
                "upstreamconfig" => read.upstreams(key, value),
                _ => read.leaves(key, value),
            }
        }
        Ok(read)
    }

    /// The values below a key.
    fn leaves(&mut self, path: &str, value: &Json) {
        match value {
            Json::Null => {}
            _ if path.to_lowercase() == "providers[0].loginurlparameters" => self.parameters(path, value),
            Json::Object(members) => {
                for (key, value) in members {
                    self.leaves(&format!("{path}.{key}"), value);
                }
            }
            Json::Array(items) if items.iter().any(Json::is_object) => {
                for (at, value) in items.iter().enumerate() {
                    self.leaves(&format!("{path}[{at}]"), value);
                }
            }
            value => self.leaf(path, value),
        }
    }

    fn leaf(&mut self, path: &str, value: &Json) {
        let lower = path.to_lowercase();
        let one = [value.clone()];
        let items = value.as_array().map_or(&one[..], Vec::as_slice);
        let given = items.iter().map(|item| Given::new(text(item), path));
        if let Some((_, flag)) = FLAGS.iter().find(|(key, _)| *key == lower) {
            // The program's sign for an address that is off.
            self.given.extend(given.filter(|given| given.value != "-").map(|given| (*flag, given)));
            return;
        }
        if lower == "providers[0].id" {
            return;
        }
        let remedy = if lower.starts_with("providers[") && !lower.starts_with("providers[0]") {
            "only the first provider is translated: write a `[[login.provider]]` for it"
        } else {
            "it has no equal; compare the program's documentation"
        };
        // Its value may be a secret.
        self.no_equal(Given::new("", path), remedy);
    }

    /// Parameters of the authorization request.
    fn parameters(&mut self, path: &str, value: &Json) {
        for (at, parameter) in value.as_array().into_iter().flatten().enumerate() {
            let name = parameter["name"].as_str().unwrap_or_default();
            let given = Given::new(name, format!("{path}[{at}]"));
            if parameter["allow"].is_array() {
                self.no_equal(given.clone(), "a link cannot set parameters of the authorization request");
            }
            let flag = ["prompt", "approval_prompt", "acr_values"].into_iter().find(|known| *known == name);
            match (flag, parameter["default"][0].as_str()) {
                (_, None) => {}
                (Some("approval_prompt"), Some(value)) => {
                    self.given.push(("approval-prompt", Given::new(value, given.origin)));
                }
                (Some("acr_values"), Some(value)) => {
                    self.given.push(("acr-values", Given::new(value, given.origin)));
                }
                (Some(_), Some(value)) => self.given.push(("prompt", Given::new(value, given.origin))),
                (None, Some(_)) => self.no_equal(given, "write it into `login.provider.parameters`"),
            }
        }
    }

    fn upstreams(&mut self, key: &str, config: &Json) {
        let (mut timeouts, mut hosts, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
        let list = config["upstreams"].as_array().into_iter().flatten();
        for (at, upstream) in list.clone().enumerate() {
            let origin = format!("{key}.upstreams[{at}]");
            let path = upstream["path"].as_str().unwrap_or("/");
            let shown = Given::new(path, &*origin);
            if path.starts_with('^') || !upstream["rewriteTarget"].is_null() {
                self.no_equal(shown, "a pattern or `rewriteTarget` has no equal: write a route with `path`, and `strip_prefix` or `replace_prefix`");
                continue;
            }
            if upstream["static"] == true {
                let code = upstream["staticCode"].as_u64().unwrap_or(200);
                if path == "/" {
                    self.given.push(("upstream", Given::new(format!("static://{code}"), &*origin)));
                } else {
                    self.no_equal(shown, "write a route with `respond`");
                }
                continue;
            }
            let uri = upstream["uri"].as_str().unwrap_or_default();
            let (scheme, rest) = uri.split_once("://").unwrap_or(("http", uri));
            let (server, base) = rest.split_once('/').unwrap_or((rest, ""));
            if !base.is_empty() && format!("/{base}").trim_end_matches('/') != path.trim_end_matches('/') {
                self.no_equal(
                    shown,
                    "the path of `uri` is not put in front: write `replace_prefix` of the route",
                );
            }
            let value = if scheme == "unix" || scheme == "file" {
                uri.to_owned()
            } else {
                format!("{scheme}://{server}{path}")
            };
            self.given.push(("upstream", Given::new(value, &*origin)));
            for (list, member) in [
                (&mut timeouts, "timeout"),
                (&mut hosts, "passHostHeader"),
                (&mut sockets, "proxyWebSockets"),
            ] {
                list.push(upstream[member].clone());
            }
            for member in ["flushInterval", "insecureSkipTLSVerify"] {
                match (member, &upstream[member]) {
                    (_, Json::Null) => {}
                    ("flushInterval", value) => {
                        self.given
                            .push(("flush-interval", Given::new(text(value), format!("{origin}.{member}"))));
                    }
                    (_, value) => {
                        let given = Given::new(text(value), format!("{origin}.{member}"));
                        self.given.push(("ssl-upstream-insecure-skip-verify", given));
                    }
                }
            }
        }
        for (flag, member, values) in [
            ("upstream-timeout", "timeout", timeouts),
            ("pass-host-header", "passHostHeader", hosts),
            ("proxy-websockets", "proxyWebSockets", sockets),
        ] {
            let Some(first) = values.first().filter(|_| values.iter().any(|value| !value.is_null())) else {
                continue;
            };
            let given = Given::new(text(first), format!("{key}.upstreams, {member}"));
            if values.iter().all(|value| value == first) {
                self.given.push((flag, given));
            } else {
                self.no_equal(given, "it differs between upstreams: write it at their routes and upstreams");
            }
        }
        if config["proxyRawPath"] == true {
            let given = Given::new("true", format!("{key}.proxyRawPath"));
            self.outcomes.push((given, Translation::Translated));
        }
    }

    fn request_headers(&mut self, key: &str, headers: &Json) {
        for (at, header) in headers.as_array().into_iter().flatten().enumerate() {
            let name = header["name"].as_str().unwrap_or_default();
            let origin = format!("{key}[{at}]");
            let given = Given::new(name, &*origin);
            if header["preserveRequestValue"] == true {
                self.no_equal(given.clone(), "a value of the client is always removed");
            }
            match claim(header) {
                Some(("id_token", "Bearer ")) if name.eq_ignore_ascii_case("Authorization") => {
                    self.given.push(("pass-authorization-header", Given::new("true", origin)));
                }
                Some(("access_token", "")) if name.eq_ignore_ascii_case("X-Forwarded-Access-Token") => {
                    self.given.push(("pass-access-token", Given::new("true", origin)));
                }
                Some(("access_token" | "id_token" | "refresh_token", _)) => {
                    self.no_equal(given, "tokens are passed on with `forward_access_token`, or `{id_token}` in `request_headers`");
                }
                Some((claim, "")) => {
                    let field = match claim {
                        "user" => "subject".to_owned(),
                        "email" | "groups" | "preferred_username" => claim.to_owned(),
                        claim => format!("claims.{claim}"),
                    };
                    self.headers.push((name.to_owned(), field));
                    self.outcomes.push((given, Translation::Translated));
                }
                _ => self.no_equal(
                    given,
                    "write fixed values and values with a prefix into `request_headers` of the route",
                ),
            }
        }
    }

    fn response_headers(&mut self, key: &str, headers: &Json) {
        for (at, header) in headers.as_array().into_iter().flatten().enumerate() {
            let name = header["name"].as_str().unwrap_or_default();
            let given = Given::new(name, format!("{key}[{at}]"));
            let value = match claim(header) {
                Some(("user", "")) => Some("{subject}"),
                Some(("email", "")) => Some("{email}"),
                Some(("groups", "")) => Some("{groups}"),
                Some(("preferred_username", "")) => Some("{preferred_username}"),
                Some(("access_token", "")) => Some("{access_token}"),
                Some(("id_token", "Bearer ")) => Some("Bearer {id_token}"),
                _ => None,
            };
            match value {
                Some(value) => {
                    self.answers.push((name.to_owned(), value));
                    let difference = "answers to another proxy have it, not responses of upstreams, which browsers see";
                    self.outcomes.push((given, Translation::Different(difference.to_owned())));
                }
                None => self.no_equal(
                    given,
                    "answers to another proxy have the user, the address, groups and tokens: write others into \
                     `response_headers` of the route `auth`",
                ),
            }
        }
    }

    fn no_equal(&mut self, given: Given, remedy: &str) {
        self.outcomes.push((given, Translation::NoEqual(remedy.to_owned())));
    }
}

/// The claim and the prefix of a header with one value; nested since version 7.14.
fn claim(header: &Json) -> Option<(&str, &str)> {
    let [value] = header["values"].as_array()?.as_slice() else { return None };
    let source = if value["claimSource"].is_object() { &value["claimSource"] } else { value };
    if !source["basicAuthPassword"].is_null() {
        return None;
    }
    Some((source["claim"].as_str()?, source["prefix"].as_str().unwrap_or_default()))
}

fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
