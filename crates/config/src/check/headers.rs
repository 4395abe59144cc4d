//! Identity headers: what the upstream receives about the caller, and which headers of a client are
//! removed.

use std::sync::Arc;

use auth::algorithm::Algorithm;
use auth::headers::{HeaderFault, HeaderSource, IdentityHeaders, StripSet, is_per_hop};
use auth::token::jws::Signer;
use credentials::config::AssertionConfig;
use gateway::config::AuthorizerConfig;

use super::super::fault::{Faults, KeyPath};
use super::super::raw::HeaderStyle;
use super::super::scalar::Timespan;
use super::authorizers::is_authorization;
use super::{Context, issuers, paths};
use crate::partial::Partial;

/// Longest lifetime of an assertion, because an assertion cannot be revoked.
const MAX_LIFETIME: Timespan = Timespan(std::time::Duration::from_mins(5));

/// Endings of the header names of a style.
const FAMILY: [(&str, HeaderSource); 4] = [
    ("User", HeaderSource::User),
    ("Email", HeaderSource::Email),
    ("Groups", HeaderSource::Groups),
    ("Preferred-Username", HeaderSource::PreferredUsername),
];

pub(super) fn check(
    sound: &Partial,
    authorizers: &[AuthorizerConfig],
    context: &mut Context<'_>,
) -> Option<(IdentityHeaders, StripSet)> {
    let raw = &sound.file.identity_headers;
    let path = KeyPath::top_level("identity_headers");
    let prefix = match raw.style {
        HeaderStyle::XForwarded => Some("X-Forwarded-"),
        HeaderStyle::XAuthRequest => Some("X-Auth-Request-"),
        HeaderStyle::None => None,
    };
    let mut fields: Vec<(String, HeaderSource)> = Vec::new();
    if let Some(prefix) = prefix {
        fields.extend(FAMILY.iter().map(|(name, source)| (format!("{prefix}{name}"), source.clone())));
    }
    for (name, text) in &raw.fields {
        let at = path.key("fields").key(name);
        fields.extend(header_source(text, &at, context).map(|source| (name.clone(), source)));
    }
    for (index, name) in raw.remove.iter().enumerate() {
        check_removable(&name.0, &path.key("remove").index(index), &mut context.faults);
    }
    assertion_header(sound, &fields, &mut context.faults);
    let headers = IdentityHeaders::custom(fields);
    let headers = headers
        .map_err(|faults| {
            for fault in faults {
                let (HeaderFault::Name(name) | HeaderFault::Reserved(name) | HeaderFault::Alias(_, name)) =
                    &fault;
                super::rules::add_problem(
                    &path.key("fields").key(name),
                    &fault.to_string(),
                    &mut context.faults,
                );
            }
        })
        .ok()?;
    let assertion = sound.file.assertion.as_ref().map(|a| a.header.0.as_str());
    // Remove the headers that an authorizer sets, so that a client cannot forge them.
    let upstream_fields =
        authorizers.iter().flat_map(|authorizer| authorizer.upstream_fields.names()).map(|name| &**name);
    let upstream_fields = upstream_fields.filter(|name| !is_authorization(name));
    let removed = raw.remove.iter().map(|name| name.0.as_str());
    let strip = headers.strip_set(removed.chain(assertion).chain(upstream_fields));
    Some((headers, strip))
}

/// Words of the configuration for what a header may say about the caller, besides claims.
pub(super) const SOURCES: [(&str, HeaderSource); 8] = [
    ("user", HeaderSource::User),
    ("preferred_username", HeaderSource::PreferredUsername),
    ("subject", HeaderSource::Subject),
    ("issuer", HeaderSource::Issuer),
    ("email", HeaderSource::Email),
    ("client", HeaderSource::Client),
    ("groups", HeaderSource::Groups),
    ("scopes", HeaderSource::Scopes),
];

/// What a word stands for, `claims.PATH` included; `None`: nothing.
pub(super) fn source(word: &str) -> Option<HeaderSource> {
    match word.strip_prefix("claims.") {
        Some(claim) => Some(HeaderSource::Claim(claim.into())),
        None => SOURCES.iter().find(|(known, _)| *known == word).map(|(_, source)| source.clone()),
    }
}

/// Names of the headers that carry the caller's identity.
pub(super) fn field_names(sound: &Partial) -> Vec<String> {
    let raw = &sound.file.identity_headers;
    let prefix = match raw.style {
        HeaderStyle::XForwarded => Some("X-Forwarded-"),
        HeaderStyle::XAuthRequest => Some("X-Auth-Request-"),
        HeaderStyle::None => None,
    };
    let family =
        prefix.into_iter().flat_map(|prefix| FAMILY.iter().map(move |(name, _)| format!("{prefix}{name}")));
    let assertion = sound.file.assertion.iter().map(|assertion| assertion.header.0.clone());
    family.chain(raw.fields.keys().cloned()).chain(assertion).collect()
}

fn header_source(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<HeaderSource> {
    if let Some(claim) = text.strip_prefix("claims.") {
        return issuers::parse_claim_path(claim, path, context)
            .map(|claim| HeaderSource::Claim(claim.as_str().into()));
    }
    let known = source(text);
    if known.is_none() {
        let words = SOURCES.iter().map(|(word, _)| *word);
        let hint = match super::nearest(text, words.clone()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!(
                "write \"claims.PATH\" for a claim, or one of {}",
                words.collect::<Vec<_>>().join(", ")
            ),
        };
        context.faults.add(path, format!("unknown header value {text:?}"), hint);
    }
    known
}

/// Notes a header that must not be removed, and a pattern that does not mean what it looks like.
pub(super) fn check_removable(name: &str, path: &KeyPath, faults: &mut Faults) {
    const SAME: &str = "the request would change its meaning";
    const HOP: &str = "it belongs to the connection";
    const INDISPENSABLE: [(&str, &str); 9] = [
        ("host", SAME),
        ("content-length", SAME),
        ("content-type", SAME),
        ("content-encoding", SAME),
        ("connection", HOP),
        ("transfer-encoding", HOP),
        ("trailer", HOP),
        ("upgrade", HOP),
        ("authorization", "`forward_authorization` of each route decides whether it is forwarded"),
    ];
    if let Err(fault) = StripSet::check(name) {
        return super::rules::add_problem(path, &fault.to_string(), faults);
    }
    // Test with the set that removes them, so that aliases and families of headers are included.
    let set = StripSet::new([name]);
    let lost = INDISPENSABLE.iter().find(|(needed, _)| set.strips(needed));
    if let (Some((needed, why)), true) = (lost, name.ends_with('*')) {
        faults.add(path, format!("{name:?} covers {needed}, which cannot be removed"), *why);
    } else if let Some(why) = lost.map(|(_, why)| *why).or_else(|| is_per_hop(name).then_some(HOP)) {
        faults.add(path, format!("{name:?} cannot be removed"), why);
    }
}

/// Upstreams trust the assertion header like the identity headers, so it must not clash with them.
fn assertion_header(sound: &Partial, fields: &[(String, HeaderSource)], faults: &mut Faults) {
    let Some(assertion) = &sound.file.assertion else { return };
    // A table that could not be read may define other fields.
    let fields = if sound.has_unreadable("identity_headers") { &[] } else { fields };
    if let Some(fault) = HeaderFault::check(&assertion.header.0, fields.iter().map(|(name, _)| name.as_str()))
    {
        super::rules::add_problem(&KeyPath::top_level("assertion").key("header"), &fault.to_string(), faults);
    }
}

pub(super) fn assertion(sound: &Partial, context: &mut Context<'_>) -> Option<AssertionConfig> {
    let raw = sound.file.assertion.as_ref()?;
    let path = KeyPath::top_level("assertion");
    if raw.issuer.is_empty() {
        context.faults.add(
            &path.key("issuer"),
            "the issuer is empty",
            "write the URL of this gateway for upstreams",
        );
    }
    if raw.lifetime > MAX_LIFETIME {
        let message = format!("{} is longer than {MAX_LIFETIME}", raw.lifetime);
        context.faults.add(
            &path.key("lifetime"),
            message,
            "an assertion cannot be revoked; each request gets a new one",
        );
    }
    if raw.lifetime.0.as_secs() == 0 {
        context.faults.add(
            &path.key("lifetime"),
            format!("{} is too short", raw.lifetime),
            "write at least \"1s\"",
        );
    }
    jwks_path(&raw.jwks_path, &path.key("jwks_path"), sound, context);
    let at = path.key("key");
    let pem = context.read(&raw.key, &at)?;
    let hint = "create one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`";
    let signer = match Signer::from_pkcs8_pem(&pem) {
        Ok(signer) if signer.algorithm() == Algorithm::Es256 => signer,
        Ok(signer) => {
            let message = format!(
                "the key is for {}, but assertions are signed with ES256",
                signer.algorithm().as_str()
            );
            context.faults.add(&at, message, hint);
            return None;
        }
        Err(error) => {
            context.faults.add(&at, error.to_string(), hint);
            return None;
        }
    };
    Some(AssertionConfig {
        header: raw.header.0.as_str().into(),
        issuer: raw.issuer.as_str().into(),
        audience: raw.audience.as_deref().map(Into::into),
        lifetime: raw.lifetime.0,
        signer: Arc::new(signer),
        jwks_path: raw.jwks_path.as_str().into(),
    })
}

/// Checks the path of the key set. The gateway answers it before it looks up a route. So the path
/// must be canonical, and no route may match exactly this path.
fn jwks_path(jwks: &str, at: &KeyPath, sound: &Partial, context: &mut Context<'_>) {
    let problem = match paths::canonical(jwks) {
        Ok(path) if path != jwks => Some(format!("its canonical form is {path:?}")),
        Ok(path) if path == "/" => {
            Some("write the path of a document, such as \"/.well-known/postern/jwks.json\"".into())
        }
        Ok(path) if path.contains(';') => Some("servers interpret `;` differently".into()),
        Ok(_) => None,
        Err(problem) => Some(problem),
    };
    if let Some(problem) = problem {
        return context.faults.add(at, format!("{jwks:?} is not a plain path"), problem);
    }
    for (path, route) in sound.paths("route", &sound.file.route) {
        let exact = route.path.as_ref().and_then(|path| path.exact.as_deref());
        if exact.is_some_and(|exact| paths::canonical(exact).is_ok_and(|path| path == jwks)) {
            let message = format!("{jwks:?} is the path of the assertion's key set");
            let hint = format!("change the path of the route, or the path of the keys with `{at}`");
            context.faults.add(&path.key("path").key("exact"), message, hint);
        }
    }
}
