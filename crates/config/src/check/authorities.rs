//! Checks `[[authority]]`: token authorities that validate a token on request (introspection,
//! `TokenReview`, `OpenShift`).

use std::sync::Arc;
use std::time::Duration;

use auth::authority::AuthorityConfig;
use auth::mapping::Mapping;
use credentials::config::{AuthorityQuestion, IssuerSource, TokenAuthority, TokenSelection};
use http_engine::config::{ClientCredential, ServerConfig};
use http_engine::url::Url;

use super::super::fault::KeyPath;
use super::super::raw::{self, AuthorityKind as Kind, ClientAuthentication};
use super::super::scalar::Timespan;
use super::reach::Reach;
use super::{Context, issuers, unique};
use crate::partial::Partial;

/// Same value as the default of an `[[issuer]]`.
const REFRESH: Duration = Duration::from_mins(5);
const MAX_STALE: Duration = Duration::from_hours(1);
/// Path of the token review API of Kubernetes.
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Path of the `OpenShift` API that returns the user of a token.
const USER: &str = "/apis/user.openshift.io/v1/users/~";

pub(super) fn check(sound: &Partial, wanted: &[String], context: &mut Context<'_>) -> Vec<TokenAuthority> {
    let all = sound.paths("authority", &sound.file.authority);
    unique(all.iter().map(|(path, a)| (path.clone(), &a.name)), "authorities", &mut context.faults);
    namesakes(sound, &all, context);
    overlaps(sound, &all, context);
    all.iter().filter_map(|(path, authority)| one(authority, path, wanted, context)).collect()
}

/// Refuses names that an issuer has too, because rules refer to both by name.
fn namesakes(sound: &Partial, all: &[(KeyPath, &raw::Authority)], context: &mut Context<'_>) {
    let issuers = sound.file.issuer.iter().map(|issuer| &issuer.name);
    let taken: Vec<_> = issuers.chain(sound.file.client_certificates.as_ref().map(|c| &c.name)).collect();
    for (path, authority) in all.iter().filter(|(_, authority)| taken.contains(&&authority.name)) {
        let what = format!("{:?} vouches under that name already", authority.name.0);
        context.faults.add(&path.key("name"), what, "rules could not tell the two apart; choose another");
    }
}

/// Refuses authorities that claim the same tokens.
fn overlaps(sound: &Partial, all: &[(KeyPath, &raw::Authority)], context: &mut Context<'_>) {
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
                let what = "two authorities take every token that is nobody else's";
                let hint =
                    format!("{first} does already; say with `prefixes` or `issuers` which are this one's");
                context.faults.add(path, what, hint);
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
                        "write what the tokens have, or take it out",
                    );
                } else if let Some((_, first)) = seen.iter().find(|(other, _)| other == text) {
                    let what = format!("{text:?} is there twice");
                    context.faults.add(
                        &at,
                        what,
                        format!("{first} has it already; a token is one authority's"),
                    );
                } else {
                    seen.push((text, at));
                }
            }
        }
    }
}

fn one(
    raw: &raw::Authority,
    path: &KeyPath,
    wanted: &[String],
    context: &mut Context<'_>,
) -> Option<TokenAuthority> {
    let audiences = audiences(raw, path, context);
    let signed = signed(raw, path, context);
    let credential = credential(raw, path, context);
    members_of_introspections(raw, path, context);
    let mapping = match raw.kind {
        Kind::Introspection => issuers::mapping(&raw.claims, &path.key("claims"), wanted, context),
        Kind::TokenReview | Kind::OpenshiftUser => Mapping::default(),
    };
    let watch = watch(raw, path, context);
    let timeout = context.positive(raw.timeout.0, &path.key("timeout"));
    let ttl = context.positive(raw.ttl.0, &path.key("ttl"));
    let reach = Reach {
        url: &raw.url,
        ca: raw.ca.as_deref(),
        certificate: raw.certificate.as_deref(),
        key: raw.key.as_deref(),
        insecure_http: raw.insecure_http,
        danger: "everybody on the way learns the tokens, and can vouch for any",
        key_of_url: "url",
        example: "https://id.example/introspect",
    };
    let (url, (tls, tls_version)) = reach.check(path, context)?;
    if raw.kind != Kind::Introspection && raw.url.contains('?') {
        context.faults.add(
            &path.key("url"),
            "the API server's URL has a query",
            "write it up to the port or path",
        );
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
fn watch(raw: &raw::Authority, path: &KeyPath, context: &mut Context<'_>) -> bool {
    let known = raw.token_file.is_some() || raw.certificate.is_some();
    match raw.watch {
        Some(_) if raw.kind == Kind::Introspection => {
            let what = "an introspection has nothing to watch";
            context.faults.add(&path.key("watch"), what, "take it out; `ttl` says how long it is believed");
            false
        }
        Some(true) if !known => {
            let what = "it is not said as whom deletions are watched";
            let hint = "name `token_file`, or `certificate` and `key`";
            context.faults.add(&path.key("watch"), what, hint);
            false
        }
        wanted => raw.kind != Kind::Introspection && known && wanted.unwrap_or(true),
    }
}

/// Audiences, one of which a token must have. `Some(None)`: any audience.
#[expect(clippy::option_option, reason = "the outer one says that a fault was noted")]
fn audiences(
    raw: &raw::Authority,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Option<Vec<Box<str>>>> {
    if raw.kind == Kind::OpenshiftUser {
        if !raw.audiences.is_empty() || raw.any_audience {
            let key = if raw.any_audience { "any_audience" } else { "audiences" };
            let what = "OpenShift's tokens are for nobody in particular";
            context.faults.add(
                &path.key(key),
                what,
                "take it out; grant the client the scope user:info alone",
            );
            return None;
        }
        return Some(None);
    }
    match (raw.audiences.is_empty(), raw.any_audience) {
        (false, false) => Some(Some(raw.audiences.iter().map(|audience| audience.as_str().into()).collect())),
        (true, true) => Some(None),
        (true, false) => {
            let what = "it is not said for whom tokens must be";
            let hint =
                "name our own with `audiences`; if any token is good here, write `any_audience = true`";
            context.faults.add(path, what, hint);
            None
        }
        (false, true) => {
            let what = "`audiences` says for whom tokens must be, so not for anybody";
            context.faults.add(&path.key("any_audience"), what, "keep one of the two");
            None
        }
    }
}

/// Credential of the gateway at the authority.
fn credential(raw: &raw::Authority, path: &KeyPath, context: &mut Context<'_>) -> Option<ClientCredential> {
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
        let what = "the token in question asks for its own user, so the gateway needs no credential";
        context.faults.add(&path.key(key), what, "take it out");
        return None;
    }
    if client.is_some() && raw.kind == Kind::TokenReview {
        let what = "Kubernetes knows no clients with secrets";
        context.faults.add(&path.key("client_id"), what, "name a service account's token with `token_file`");
        return None;
    }
    if raw.client_id.is_none() && raw.client_authentication != ClientAuthentication::default() {
        let hint = "name `client_id` and `client_secret_file`, or take it out";
        context.faults.add(
            &path.key("client_authentication"),
            "there is no client that could authenticate",
            hint,
        );
        return None;
    }
    match (client, token) {
        (Some(_), Some(_)) => {
            let what = "both a client and a token say who asks";
            context.faults.add(&path.key("token_file"), what, "keep one");
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
                let what = "the authority is asked by nobody it could know, so most refuse to answer";
                let hint =
                    "name `client_id` and `client_secret_file`, `token_file`, or `certificate` and `key`";
                context.faults.warn(path, what, hint);
            }
            Some(ClientCredential::None)
        }
    }
}

/// Issuer that must sign the responses. `Some(None)`: the responses are not signed.
#[expect(clippy::option_option, reason = "the outer one says that a fault was noted")]
fn signed(raw: &raw::Authority, path: &KeyPath, context: &mut Context<'_>) -> Option<Option<IssuerSource>> {
    let Some(signed) = &raw.signed else { return Some(None) };
    let path = path.key("signed");
    let Some(audience) = signed.audience.as_ref().or(raw.client_id.as_ref()).filter(|a| !a.is_empty()) else {
        let hint = "name the client as which the gateway asks: `client_id`, or else `audience`";
        context.faults.add(&path, "it is not said for whom the answers must be", hint);
        return None;
    };
    let issuer = raw::Issuer {
        name: raw.name.clone(),
        issuer: signed.issuer.clone(),
        audiences: vec![audience.clone()],
        jwks_uri: signed.jwks_uri.clone(),
        jwks_file: signed.jwks_file.clone(),
        ca: signed.ca.clone(),
        insecure_http: signed.insecure_http,
        algorithms: signed.algorithms.clone(),
        token_types: raw::TokenTypes::default(),
        clock_skew: signed.clock_skew,
        refresh: Timespan(REFRESH),
        max_stale: Timespan(MAX_STALE),
        follow_secret_file: None,
        follow_url: None,
        claims: raw::Claims::default(),
    };
    issuers::one(&issuer, &path, &[], context).map(Some)
}

/// Refuses keys that only introspection uses.
fn members_of_introspections(raw: &raw::Authority, path: &KeyPath, context: &mut Context<'_>) {
    if raw.kind == Kind::Introspection {
        return;
    }
    let claims = raw::Authority::default_claims();
    let given = [
        ("issuer", raw.issuer.is_some()),
        ("signed", raw.signed.is_some()),
        ("claims", serde_json::to_value(&raw.claims).ok() != serde_json::to_value(claims).ok()),
    ];
    for (key, _) in given.iter().filter(|(_, given)| *given) {
        let what = "only an introspection has members of its own choice";
        context.faults.add(
            &path.key(key),
            what,
            "take it out; names and groups are found where they always are",
        );
    }
}
