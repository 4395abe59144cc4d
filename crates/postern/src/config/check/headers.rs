//! What the upstream is told of the caller, and what never passes from a client.

use std::sync::Arc;

use auth::headers::{HeaderFault, HeaderSource, IdentityHeaders, StripSet};
use auth::token::Algorithm;
use auth::token::jws::Signer;
use gateway::config::Assertion;

use super::super::fault::KeyPath;
use super::super::raw::HeaderStyle;
use super::super::scalar::{Timespan, is_token};
use super::super::sound::Sound;
use super::{Context, issuers};

/// Longest life of an assertion: it cannot be taken back.
const LONGEST: Timespan = Timespan(std::time::Duration::from_mins(5));

pub(super) fn check(sound: &Sound, context: &mut Context<'_>) -> Option<(IdentityHeaders, StripSet)> {
    let raw = &sound.file.identity_headers;
    let path = KeyPath::of("identity_headers");
    let prefix = match raw.style {
        HeaderStyle::XForwarded => Some("X-Forwarded-"),
        HeaderStyle::XAuthRequest => Some("X-Auth-Request-"),
        HeaderStyle::None => None,
    };
    let family = [
        ("User", HeaderSource::User),
        ("Email", HeaderSource::Email),
        ("Groups", HeaderSource::Groups),
        ("Preferred-Username", HeaderSource::PreferredUsername),
    ];
    let mut fields: Vec<(String, HeaderSource)> = Vec::new();
    if let Some(prefix) = prefix {
        fields.extend(family.into_iter().map(|(name, source)| (format!("{prefix}{name}"), source)));
    }
    for (name, text) in &raw.fields {
        let at = path.key("fields").key(name);
        fields.extend(source(text, &at, context).map(|source| (name.clone(), source)));
    }
    for (index, name) in raw.remove.iter().enumerate() {
        if let Some(why) = indispensable(&name.0) {
            let what = format!("{:?} cannot be removed", name.0);
            context.faults.add(&path.key("remove").index(index), what, why);
        }
    }
    let headers = IdentityHeaders::custom(fields);
    let headers = headers
        .map_err(|faults| {
            for fault in faults {
                let (HeaderFault::Name(name) | HeaderFault::Taken(name) | HeaderFault::Alias(_, name)) =
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
    let strip = headers.strip_set(raw.remove.iter().map(|name| name.0.as_str()).chain(assertion));
    Some((headers, strip))
}

fn source(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<HeaderSource> {
    const WORDS: [(&str, HeaderSource); 8] = [
        ("user", HeaderSource::User),
        ("preferred_username", HeaderSource::PreferredUsername),
        ("subject", HeaderSource::Subject),
        ("issuer", HeaderSource::Issuer),
        ("email", HeaderSource::Email),
        ("client", HeaderSource::Client),
        ("groups", HeaderSource::Groups),
        ("scopes", HeaderSource::Scopes),
    ];
    if let Some(claim) = text.strip_prefix("claims.") {
        return issuers::claim(claim, path, context).map(|claim| HeaderSource::Claim(claim.as_str().into()));
    }
    let known = WORDS.iter().find(|(word, _)| *word == text).map(|(_, source)| source.clone());
    if known.is_none() {
        let words = WORDS.iter().map(|(word, _)| *word);
        let hint = match super::nearest(text, words.clone()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!(
                "write \"claims.PATH\" for a claim, or one of {}",
                words.collect::<Vec<_>>().join(", ")
            ),
        };
        context.faults.add(path, format!("{text:?} is nothing that is known of a caller"), hint);
    }
    known
}

/// Why a header must pass.
fn indispensable(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    match lower.trim_end_matches('*') {
        "host" | "content-length" | "content-type" | "transfer-encoding" => {
            Some("the request would not be the same")
        }
        "connection" | "upgrade" | "te" | "trailer" => {
            Some("it belongs to the connection and is handled there")
        }
        "authorization" => Some("`forward_authorization` of each route says whether it passes"),
        "" | "x-" | "x" => Some("the family is too large"),
        _ => None,
    }
}

pub(super) fn assertion(sound: &Sound, context: &mut Context<'_>) -> Option<Assertion> {
    let raw = sound.file.assertion.as_ref()?;
    let path = KeyPath::of("assertion");
    if raw.issuer.is_empty() {
        context.faults.add(
            &path.key("issuer"),
            "the issuer is empty",
            "write the URL that upstreams know this gateway by",
        );
    }
    if raw.lifetime > LONGEST {
        let what = format!("{} is longer than {LONGEST}", raw.lifetime);
        context.faults.add(
            &path.key("lifetime"),
            what,
            "an assertion cannot be taken back; each request has a new one",
        );
    }
    if raw.lifetime.0.as_secs() == 0 {
        context.faults.add(
            &path.key("lifetime"),
            format!("{} is too short", raw.lifetime),
            "write at least \"1s\"",
        );
    }
    if !is_token(&raw.header.0) || raw.header.0.contains('*') {
        context.faults.add(
            &path.key("header"),
            format!("{:?} is not one header", raw.header.0),
            "such as \"X-Postern-Assertion\"",
        );
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    let jwks = raw.jwks_path.as_str();
    if !jwks.starts_with('/')
        || jwks.contains("//")
        || jwks.contains("/.") && !jwks.starts_with("/.well-known/")
        || !jwks.chars().all(plain)
    {
        let what = format!("{jwks:?} is not a plain path");
        context.faults.add(&path.key("jwks_path"), what, "such as \"/.well-known/postern/jwks.json\"");
    }
    let at = path.key("key");
    let pem = context.read(&raw.key, &at)?;
    let hint = "make one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`";
    let signer = match Signer::from_pkcs8_pem(&pem) {
        Ok(signer) if signer.algorithm() == Algorithm::Es256 => signer,
        Ok(signer) => {
            let what =
                format!("the key is for {}, assertions are signed with ES256", signer.algorithm().as_str());
            context.faults.add(&at, what, hint);
            return None;
        }
        Err(error) => {
            context.faults.add(&at, error.to_string(), hint);
            return None;
        }
    };
    Some(Assertion {
        header: raw.header.0.as_str().into(),
        issuer: raw.issuer.as_str().into(),
        audience: raw.audience.as_deref().map(Into::into),
        lifetime: raw.lifetime.0,
        signer: Arc::new(signer),
        jwks_path: jwks.into(),
    })
}
