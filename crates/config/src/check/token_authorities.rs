//! Checks `[[token_authority]]`: token authorities that validate a token on request (introspection,
//! `TokenReview`, `OpenShift`).

use std::sync::Arc;
use std::time::Duration;

use auth::authority::AuthorityConfig;
use auth::mapping::ClaimMapping;
use credentials::config::{AuthorityQuestion, IssuerSource, TokenAuthority, TokenSelection};
use http_engine::config::{ClientCredential, ServerConfig};
use http_engine::url::Url;

use super::super::fault::KeyPath;
use super::super::raw::{self, ClientAuthentication, TokenAuthorityKind as Kind};
use super::super::scalar::Timespan;
use super::server_keys::ServerKeys;
use super::{Context, check_unique, issuers};
use crate::partial::Partial;

/// Same value as the default of an `[[issuer]]`.
const REFRESH: Duration = Duration::from_mins(5);
const MAX_STALE: Duration = Duration::from_hours(1);
/// Path of the token review API of Kubernetes.
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Path of the `OpenShift` API that returns the user of a token.
const USER: &str = "/apis/user.openshift.io/v1/users/~";

pub(super) fn check(sound: &Partial, claims: &[String], context: &mut Context<'_>) -> Vec<TokenAuthority> {
    let all = sound.paths("token_authority", &sound.file.token_authority);
    check_unique(all.iter().map(|(path, a)| (path.clone(), &a.name)), "authorities", &mut context.faults);
    namesakes(sound, &all, context);
    check_overlapping_tokens(sound, &all, context);
    all.iter().filter_map(|(path, authority)| one(authority, path, claims, context)).collect()
}

/// Refuses names that an issuer has too, because rules refer to both by name.
fn namesakes(sound: &Partial, all: &[(KeyPath, &raw::TokenAuthority)], context: &mut Context<'_>) {
    let issuers = sound.file.issuer.iter().map(|issuer| &issuer.name);
    let taken: Vec<_> = issuers.chain(sound.file.client_certificates.as_ref().map(|c| &c.name)).collect();
    for (path, authority) in all.iter().filter(|(_, authority)| taken.contains(&&authority.name)) {
        let message =
            format!("the name {:?} is already used by an issuer or [client_certificates]", authority.name.0);
        context.faults.add(
            &path.key("name"),
            message,
            "rules could not distinguish the two; choose another name",
        );
    }
}

/// Refuses authorities that claim the same tokens.
fn check_overlapping_tokens(
    sound: &Partial,
    all: &[(KeyPath, &raw::TokenAuthority)],
    context: &mut Context<'_>,
) {
    let mut rest: Option<&KeyPath> = None;
    let mut prefixes = Vec::<(&str, KeyPath)>::new();
    let mut known: Vec<(&str, KeyPath)> = sound
        .paths("issuer", &sound.file.issuer)
        .into_iter()
        .map(|(path, issuer)| (issuer.issuer.as_str(), path))
        .collect();
    for (path, authority) in all {
        if authority.prefixes.is_empty() && authority.issuers.is_empty() {
            if let Some(first) = rest {
                let message = "two authorities accept every token that no other one claims";
                let hint = format!("{first} does so already; set `prefixes` or `issuers` for this one");
                context.faults.add(path, message, hint);
            }
            rest.get_or_insert(path);
        }
        let lists =
            [("prefixes", &authority.prefixes, &mut prefixes), ("issuers", &authority.issuers, &mut known)];
        for (key, texts, seen) in lists {
            for (index, text) in texts.iter().enumerate() {
                let at = path.key(key).index(index);
                if text.is_empty() {
                    context.faults.add(
                        &at,
                        "the text is empty",
                        "write the prefix or issuer of the tokens, or remove it",
                    );
                } else if let Some((_, first)) = seen.iter().find(|(other, _)| other == text) {
                    let message = format!("{text:?} occurs twice");
                    context.faults.add(
                        &at,
                        message,
                        format!("{first} has it already; each token belongs to one authority"),
                    );
                } else {
                    seen.push((text, at));
                }
            }
        }
    }
}

fn one(
    raw: &raw::TokenAuthority,
    path: &KeyPath,
    claims: &[String],
    context: &mut Context<'_>,
) -> Option<TokenAuthority> {
    let audiences = audiences(raw, path, context);
    let signed = signed(raw, path, context);
    let credential = credential(raw, path, context);
    check_introspection_only_keys(raw, path, context);
    let mapping = match raw.kind {
        Kind::Introspection => issuers::mapping(&raw.claims, &path.key("claims"), claims, context),
        Kind::TokenReview | Kind::OpenshiftUser => ClaimMapping::default(),
    };
    let watch = watch(raw, path, context);
    let timeout = context.check_positive(raw.timeout.0, &path.key("timeout"));
    let ttl = context.check_positive(raw.ttl.0, &path.key("ttl"));
    let reach = ServerKeys {
        url: &raw.url,
        ca: raw.ca.as_deref(),
        certificate: raw.certificate.as_deref(),
        key: raw.key.as_deref(),
        insecure_http: raw.insecure_http,
        plain_http_risk: "an attacker on the network can read every token, and declare any token valid",
        url_key: "url",
        example: "https://id.example/introspect",
    };
    let (url, (tls, tls_version)) = reach.check(path, context)?;
    if raw.kind != Kind::Introspection && raw.url.contains('?') {
        context.faults.add(&path.key("url"), "the API server's URL has a query", "remove the query");
        return None;
    }
    let server = raw.url.trim_end_matches('/');
    let below = |rest: &str| Url::parse(&format!("{server}{rest}")).ok();
    let question = match raw.kind {
        Kind::Introspection => AuthorityQuestion::Introspection { url },
        Kind::TokenReview => AuthorityQuestion::TokenReview { url: below(TOKEN_REVIEWS)? },
        Kind::OpenshiftUser => AuthorityQuestion::OpenShiftUser { url: below(USER)? },
    };
    Some(TokenAuthority {
        config: Arc::new(AuthorityConfig {
            name: raw.name.0.as_str().into(),
            audiences: audiences?,
            issuer: raw.issuer.as_deref().map(Into::into),
            mapping,
        }),
        question,
        signed: signed?,
        selection: TokenSelection { prefixes: boxed(&raw.prefixes), issuers: boxed(&raw.issuers) },
        server: ServerConfig {
            tls,
            tls_version,
            proxies: context.proxies.clone(),
            credential: credential?,
            timeout,
            max_requests: raw.max_requests,
            max_per_second: raw.max_per_second,
        },
        ttl,
        watch: watch.then(|| server.into()),
    })
}

fn boxed(texts: &[String]) -> Vec<Box<str>> {
    texts.iter().map(|text| text.as_str().into()).collect()
}

/// Whether deletions are watched.
fn watch(raw: &raw::TokenAuthority, path: &KeyPath, context: &mut Context<'_>) -> bool {
    let known = raw.token_file.is_some() || raw.certificate.is_some();
    match raw.watch {
        Some(_) if raw.kind == Kind::Introspection => {
            let message = "`watch` has no effect for an introspection endpoint";
            context.faults.add(
                &path.key("watch"),
                message,
                "remove it; `ttl` limits how long an answer is valid",
            );
            false
        }
        Some(true) if !known => {
            let message = "no credential for watching deletions";
            let hint = "name `token_file`, or `certificate` and `key`";
            context.faults.add(&path.key("watch"), message, hint);
            false
        }
        wanted => raw.kind != Kind::Introspection && known && wanted.unwrap_or(true),
    }
}

/// Audiences, one of which a token must have. `Some(None)`: any audience.
#[expect(clippy::option_option, reason = "the outer one says that a fault was noted")]
fn audiences(
    raw: &raw::TokenAuthority,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Option<Vec<Box<str>>>> {
    if raw.kind == Kind::OpenshiftUser {
        if !raw.audiences.is_empty() || raw.any_audience {
            let key = if raw.any_audience { "any_audience" } else { "audiences" };
            let message = "tokens of OpenShift have no audience";
            context.faults.add(
                &path.key(key),
                message,
                "remove it; grant the client only the scope user:info",
            );
            return None;
        }
        return Some(None);
    }
    match (raw.audiences.is_empty(), raw.any_audience) {
        (false, false) => Some(Some(raw.audiences.iter().map(|audience| audience.as_str().into()).collect())),
        (true, true) => Some(None),
        (true, false) => {
            let message = "no audience that tokens must have";
            let hint =
                "list the gateway's own with `audiences`, or accept all tokens with `any_audience = true`";
            context.faults.add(path, message, hint);
            None
        }
        (false, true) => {
            let message = "`audiences` and `any_audience` exclude each other";
            context.faults.add(&path.key("any_audience"), message, "keep one of the two");
            None
        }
    }
}

/// Credential of the gateway at the authority.
fn credential(
    raw: &raw::TokenAuthority,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<ClientCredential> {
    let client = match (&raw.client_id, &raw.client_secret_file) {
        (Some(id), Some(file)) => {
            let at = path.key("client_secret_file");
            context.read(file, &at)?;
            Some((id.as_str().into(), context.reader.resolve(file)))
        }
        (Some(_), None) => {
            let hint = "name the file with the client's secret";
            context.faults.add(&path.key("client_id"), "missing key `client_secret_file`", hint);
            return None;
        }
        (None, Some(_)) => {
            let hint = "name the client whose secret this is";
            context.faults.add(&path.key("client_secret_file"), "missing key `client_id`", hint);
            return None;
        }
        (None, None) => None,
    };
    let token = match &raw.token_file {
        Some(file) => {
            context.read(file, &path.key("token_file"))?;
            Some(context.reader.resolve(file))
        }
        None => None,
    };
    // The gateway needs a credential of its own for the watch only.
    let idle = raw.kind == Kind::OpenshiftUser && token.is_some() && raw.watch == Some(false);
    if idle || (raw.kind == Kind::OpenshiftUser && client.is_some()) {
        let key = if idle { "token_file" } else { "client_id" };
        let message = "OpenShift is queried with the client's own token, so the gateway needs no credential";
        context.faults.add(&path.key(key), message, "remove it");
        return None;
    }
    if client.is_some() && raw.kind == Kind::TokenReview {
        let message = "Kubernetes has no clients with secrets";
        context.faults.add(
            &path.key("client_id"),
            message,
            "name a service account's token with `token_file`",
        );
        return None;
    }
    if raw.client_id.is_none() && raw.client_authentication != ClientAuthentication::default() {
        let hint = "name `client_id` and `client_secret_file`, or remove it";
        context.faults.add(&path.key("client_authentication"), "there is no client to authenticate", hint);
        return None;
    }
    match (client, token) {
        (Some(_), Some(_)) => {
            let message = "both a client and a token are set as the gateway's credential";
            context.faults.add(&path.key("token_file"), message, "keep one");
            None
        }
        (Some((id, secret)), None) => Some(match raw.client_authentication {
            ClientAuthentication::ClientSecretBasic => ClientCredential::Basic { id, secret },
            ClientAuthentication::ClientSecretPost => ClientCredential::Post { id, secret },
        }),
        (None, Some(token)) => Some(ClientCredential::Bearer { token }),
        (None, None) => {
            let certificate = raw.certificate.is_some();
            if raw.kind != Kind::OpenshiftUser && !certificate {
                let message = "no credential for the authority is set; most authorities refuse such queries";
                let hint =
                    "name `client_id` and `client_secret_file`, `token_file`, or `certificate` and `key`";
                context.faults.warn(path, message, hint);
            }
            Some(ClientCredential::None)
        }
    }
}

/// Issuer that must sign the responses. `Some(None)`: the responses are not signed.
#[expect(clippy::option_option, reason = "the outer one says that a fault was noted")]
fn signed(
    raw: &raw::TokenAuthority,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Option<IssuerSource>> {
    let Some(signed) = &raw.signed else { return Some(None) };
    let path = path.key("signed");
    let Some(audience) = signed.audience.as_ref().or(raw.client_id.as_ref()).filter(|a| !a.is_empty()) else {
        let hint = "name the gateway's client: `client_id`, or else `audience`";
        context.faults.add(&path, "no audience that signed answers must have", hint);
        return None;
    };
    let issuer = raw::Issuer {
        jwks_uri: signed.jwks_uri.clone(),
        jwks_file: signed.jwks_file.clone(),
        ca: signed.ca.clone(),
        insecure_http: signed.insecure_http,
        algorithms: signed.algorithms.clone(),
        clock_skew: signed.clock_skew,
        refresh: Timespan(REFRESH),
        max_stale: Timespan(MAX_STALE),
        ..raw::Issuer::signer(raw.name.clone(), signed.issuer.clone(), vec![audience.clone()])
    };
    issuers::check_issuer(&issuer, &path, &[], context).map(Some)
}

/// Refuses keys that only introspection uses.
fn check_introspection_only_keys(raw: &raw::TokenAuthority, path: &KeyPath, context: &mut Context<'_>) {
    if raw.kind == Kind::Introspection {
        return;
    }
    let claims = raw::TokenAuthority::default_claims();
    let given = [
        ("issuer", raw.issuer.is_some()),
        ("signed", raw.signed.is_some()),
        ("claims", serde_json::to_value(&raw.claims).ok() != serde_json::to_value(claims).ok()),
    ];
    for (key, _) in given.iter().filter(|(_, given)| *given) {
        let message = "only introspection has configurable members";
        context.faults.add(&path.key(key), message, "remove it; the members of this kind are fixed");
    }
}
