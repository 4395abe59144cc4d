//! HTTP filters: which tokens a request needs, and which service is asked.

use serde_json::Value as Json;
use toml::Value;

use super::listeners::plain_name;
use super::paths::{CONDITIONS, MatchedPath};
use super::{Output, duration, list, text};
use crate::{SecretFile, draft};

/// Names of the files for key sets that are written in the bootstrap.
const KEY_SETS: [&str; 4] =
    ["provider-1.jwks.json", "provider-2.jwks.json", "provider-3.jwks.json", "provider-4.jwks.json"];

/// What becomes of the routes behind a filter that is not translated.
const CLOSED: &str = "every route is closed until then";

/// What the filters of a connection manager say.
#[derive(Default)]
pub(super) struct Filters {
    /// The authorizer that every route asks.
    pub(super) authorizer: Option<String>,
    /// Whether a filter that decides could not be translated.
    pub(super) is_closed: bool,
    /// Whether a token is passed on.
    pub(super) forwards: bool,
    rules: Vec<TokenRule>,
}

/// Which tokens the requests of a path need.
struct TokenRule {
    path: MatchedPath,
    need: Need,
}

/// What a route needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// A token of one of these issuers.
    Token(Vec<String>),
    /// It cannot be said.
    Unknown,
}

impl Filters {
    pub(super) fn read(manager: &Json, output: &mut Output) -> Self {
        let mut filters = Self::default();
        for filter in list(&manager["http_filters"]) {
            let config = &filter["typed_config"];
            let setting = format!("filter {}", text(&filter["name"]));
            match text(&config["@type"]).rsplit('.').next().unwrap_or_default() {
                "Router" => output.translated(setting),
                "JwtAuthentication" => filters.jwt_authn(config, output),
                "ExtAuthz" => filters.ext_authz(config, output),
                "Cors" | "CorsPolicy" => output.no_equal(setting, "write `cors` of the routes"),
                "LocalRateLimit" | "RateLimit" | "AdaptiveConcurrency" | "BandwidthLimitConfig" => {
                    let remedy =
                        "requests are not counted by caller; `upstream.max_requests` limits those in flight";
                    output.no_equal(setting, remedy);
                }
                "HeaderMutation" => {
                    output.no_equal(setting, "write `[request_headers]` and `[response_headers]`");
                }
                "Buffer" | "Compressor" | "Decompressor" | "FaultConfig" | "FilterConfig" | "GrpcWeb"
                | "HealthCheck" | "Tap" => output.no_equal(setting, "requests and bodies pass unchanged"),
                // Whatever else there is may refuse requests.
                "OAuth2" => {
                    filters.is_closed = true;
                    output.no_equal(setting, &format!("write `[login]`: {CLOSED}"));
                }
                "RBAC" => {
                    filters.is_closed = true;
                    output.no_equal(setting, &format!("write its policies as rules: {CLOSED}"));
                }
                _ => {
                    filters.is_closed = true;
                    output.no_equal(setting, &format!("it has no equal, and may refuse requests: {CLOSED}"));
                }
            }
        }
        filters
    }

    fn jwt_authn(&mut self, config: &Json, output: &mut Output) {
        for (name, provider) in config["providers"].as_object().into_iter().flatten() {
            self.forwards |= provider["forward"] == true;
            match output.providers.get(name) {
                // The same as in another filter chain.
                Some(known) if known == provider => {}
                Some(_) => {
                    self.is_closed = true;
                    let remedy =
                        format!("another filter chain has a provider of this name: rename one. {CLOSED}");
                    output.no_equal(format!("provider {name} of jwt_authn"), &remedy);
                    continue;
                }
                None => {
                    let plain = plain_name(name);
                    issuer(&plain, provider, output);
                    output.issuers.push(plain);
                    output.providers.insert(name.clone(), provider.clone());
                }
            }
            for field in ["subjects", "max_lifetime"] {
                if !provider[field].is_null() {
                    self.is_closed = true;
                    output.no_equal(
                        format!("{field} of provider {name}"),
                        &format!("write it as a rule: {CLOSED}"),
                    );
                }
            }
        }
        for (at, rule) in list(&config["rules"]).enumerate() {
            let setting = format!("rule {} of jwt_authn", at + 1);
            let found = &rule["match"];
            let is_plain = CONDITIONS.iter().all(|condition| found[*condition].is_null());
            let Some(path) = MatchedPath::read(found).filter(|_| is_plain) else {
                self.is_closed = true;
                output.no_equal(setting, &format!("its match is more than a path: {CLOSED}"));
                continue;
            };
            let need = needed(&rule["requires"]);
            if need == Need::Unknown {
                self.is_closed = true;
                output.no_equal(setting, &format!("several tokens at once, audiences of a rule and named requirements have no equal: {CLOSED}"));
                continue;
            }
            self.rules.push(TokenRule { path, need });
            output.translated(setting);
        }
    }

    fn ext_authz(&mut self, config: &Json, output: &mut Output) {
        let service = &config["http_service"];
        let cluster = plain_name(text(&service["server_uri"]["cluster"]));
        if !service.is_object() || !output.upstreams.contains(&cluster) {
            self.is_closed = true;
            output.no_equal(
                "filter ext_authz",
                &format!("an authorizer is asked over HTTP, at a cluster of this file: {CLOSED}"),
            );
            return;
        }
        output.authorizers += 1;
        let name = match output.authorizers {
            1 => "authorizer".to_owned(),
            number => format!("authorizer-{number}"),
        };
        let asked = asked_fields(config, output);
        let table = output.draft.table("[[authorizer]]");
        table.set("name", &*name, "").set("upstream", &*cluster, "server_uri");
        let timeout = &service["server_uri"]["timeout"];
        table.set_some("timeout", duration(timeout), "timeout");
        let prefix = text(&service["path_prefix"]);
        table.set_some("path_prefix", Some(prefix).filter(|prefix| !prefix.is_empty()), "path_prefix");
        table.set("request_headers", asked, "allowed_headers; Envoy always sends `authorization`");
        let taken = exact(&service["authorization_response"]["allowed_upstream_headers"]);
        if !taken.is_empty() {
            table.set("response_headers", taken, "allowed_upstream_headers");
        }
        output.different(
            "filter ext_authz",
            "an answer is kept as its `Cache-Control` says; a failure is 503, not 403",
        );
        output.none_equal(
            config,
            "ext_authz",
            &[
                ("failure_mode_allow", "a request never passes without an answer"),
                ("with_request_body", "the query has no body"),
                ("disallowed_headers", "leave the names out of `request_headers`"),
                ("status_on_error", "without an answer the client gets 503"),
            ],
        );
        let (request, response) = (&service["authorization_request"], &service["authorization_response"]);
        output.none_equal(request, "ext_authz", &[("headers_to_add", "the query has no fixed fields")]);
        let remedy = "fields of a permission go to the service only: a refusal is passed on whole";
        output.none_equal(response, "ext_authz", &[("allowed_client_headers_on_success", remedy)]);
        output.used.push(cluster);
        self.authorizer = Some(name);
    }

    /// What the requests of a path need.
    pub(super) fn need(&self, path: &str) -> Need {
        let rule = self.rules.iter().find(|rule| rule.path.fits(path));
        rule.map_or(Need::Nothing, |rule| rule.need.clone())
    }

    /// The paths that need something.
    pub(super) fn paths(&self) -> impl Iterator<Item = &MatchedPath> {
        self.rules.iter().map(|rule| &rule.path)
    }
}

/// The names that a list of patterns has.
fn exact(patterns: &Json) -> Vec<String> {
    let names = list(&patterns["patterns"]).filter_map(|pattern| pattern["exact"].as_str());
    names.map(str::to_lowercase).collect()
}

/// Fields in which a client claims an identity or an origin, which no query has.
const CLAIMED: [&str; 4] = ["x-forwarded-", "forwarded", "x-auth-request-", "x-real-ip"];

/// The fields of a request that the query has.
fn asked_fields(config: &Json, output: &mut Output) -> Vec<String> {
    let mut asked = vec!["authorization".to_owned()];
    // The second place is that of former versions.
    let places =
        [&config["allowed_headers"], &config["http_service"]["authorization_request"]["allowed_headers"]];
    for name in places.iter().flat_map(|place| exact(place)) {
        if CLAIMED.iter().any(|claimed| name.starts_with(claimed)) {
            let remedy =
                "a client could write it itself: the query has the `x-forwarded-` fields that Postern sets";
            output.no_equal(format!("allowed_headers {name} of ext_authz"), remedy);
        } else if !asked.contains(&name) {
            asked.push(name);
        }
    }
    let mut patterns = places.iter().flat_map(|place| list(&place["patterns"]));
    if patterns.any(|pattern| pattern["exact"].is_null()) {
        let remedy =
            "only whole names are translated: write those that the service reads into `request_headers`";
        output.no_equal("patterns of allowed_headers of ext_authz", remedy);
    }
    asked
}

/// What a requirement needs.
fn needed(requires: &Json) -> Need {
    if requires.is_null()
        || requires["allow_missing"].is_object()
        || requires["allow_missing_or_failed"].is_object()
    {
        return Need::Nothing;
    }
    for name in [&requires["provider_name"], &requires["provider_and_audiences"]["provider_name"]] {
        // Audiences of one rule only narrow those of the provider.
        if requires["provider_and_audiences"]["audiences"].is_array() {
            return Need::Unknown;
        }
        if let Some(name) = name.as_str() {
            return Need::Token(vec![plain_name(name)]);
        }
    }
    let mut issuers = Vec::new();
    for requirement in list(&requires["requires_any"]["requirements"]) {
        match needed(requirement) {
            Need::Token(more) => issuers.extend(more),
            other => return other,
        }
    }
    if issuers.is_empty() { Need::Unknown } else { Need::Token(issuers) }
}

fn issuer(name: &str, provider: &Json, output: &mut Output) {
    let setting = format!("provider {name} of jwt_authn");
    let table = output.draft.table("[[issuer]]");
    table.set("name", name, "").set("issuer", text(&provider["issuer"]), &setting);
    let audiences: Vec<String> =
        list(&provider["audiences"]).map(|audience| text(audience).to_owned()).collect();
    let has_audience = !audiences.is_empty();
    if has_audience {
        table.set("audiences", audiences, "audiences");
    } else {
        table.set("audiences", vec!["WRITE-THE-AUDIENCE"], "Envoy accepts any audience without `audiences`");
    }
    table.set("id_tokens", true, "Envoy accepts every JWT of the issuer").set("token_types", "untyped", "");
    let uri = text(&provider["remote_jwks"]["http_uri"]["uri"]);
    let (file, inline) =
        (text(&provider["local_jwks"]["filename"]), text(&provider["local_jwks"]["inline_string"]));
    if !uri.is_empty() {
        table.set("jwks_uri", uri, "remote_jwks");
    } else if !file.is_empty() {
        table.set("jwks_file", file, "local_jwks");
    } else if let (false, Some(name)) = (inline.is_empty(), KEY_SETS.get(output.files.len())) {
        table.set("jwks_file", *name, "local_jwks");
        output.files.push(SecretFile { name, content: Some(inline.to_owned()) });
    }
    let skew = provider["clock_skew_seconds"].as_i64().filter(|seconds| *seconds <= 60);
    table.set_some("clock_skew", skew.map(|seconds| format!("{seconds}s")), "clock_skew_seconds");
    if !has_audience {
        output.no_equal(
            format!("{setting}, no audiences"),
            "write the audience of this service into `audiences`",
        );
    }
    output.different(
        &*setting,
        "ID tokens are accepted too, as by Envoy: without `id_tokens`, only access tokens are",
    );
    output.none_equal(
        provider,
        &setting,
        &[
            ("from_headers", "a token is read from `Authorization`"),
            ("from_params", "a token in the address is refused: it ends in logs"),
            ("from_cookies", "a token in a cookie is no credential; `[login]` has sessions of its own"),
            (
                "forward_payload_header",
                "send the claims that are needed with `identity_headers.fields`, or a signed `[assertion]`",
            ),
            ("claim_to_headers", "write them into `identity_headers.fields`: `{ HEADER = \"claims.NAME\" }`"),
        ],
    );
}

/// A rule that lets the tokens of these issuers pass.
pub(super) fn rule_of(issuers: &[String]) -> Value {
    draft::inline([("issuers", issuers.to_vec().into())])
}
