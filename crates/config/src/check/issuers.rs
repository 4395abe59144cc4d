//! Checks `[[issuer]]` and `[client_certificates]`: which issuers and certificates authenticate
//! callers.

use std::sync::Arc;

use auth::algorithm::{Algorithm, AlgorithmSet};
use auth::keyset::KeySet;
use auth::mapping::{CertificateField, CertificateMapping, ClaimMapping, ClaimPath};
use auth::token::{IssuerConfig, IssuerConfigError, TENANT, Tenants, TokenTypes};
use credentials::authenticate::check_source;
use credentials::config::{IssuerSource, KeySource};
use http_engine::tls::Protocols;
use http_engine::url::Url;

use super::super::fault::KeyPath;
use super::super::raw::{self, CertificatePart, ClientCertificateDemand, SubjectPart};
use super::super::scalar::Timespan;
use super::tls::{Client, KeyNames};
use super::{Context, check_unique};
use crate::partial::Partial;

/// Shortest `refresh`. An unknown key ID triggers a fetch no more often than this either.
const SHORTEST_REFRESH: Timespan = Timespan(std::time::Duration::from_secs(10));

pub(super) fn check(sound: &Partial, claims: &[String], context: &mut Context<'_>) -> Vec<IssuerSource> {
    let issuers = sound.paths("issuer", &sound.file.issuer);
    check_unique(issuers.iter().map(|(path, i)| (path.clone(), &i.name)), "issuers", &mut context.faults);
    for (at, (path, issuer)) in issuers.iter().enumerate() {
        if let Some((first, _)) = issuers[..at].iter().find(|(_, other)| other.issuer == issuer.issuer) {
            let message = format!("the issuer {:?} occurs twice", issuer.issuer);
            let hint = format!("{first} has it already; list all audiences in one table");
            context.faults.add(&path.key("issuer"), message, hint);
        }
    }
    issuers.iter().filter_map(|(path, issuer)| check_issuer(issuer, path, claims, context)).collect()
}

/// Checks an issuer, or another signer that is configured like one.
pub(super) fn check_issuer(
    raw: &raw::Issuer,
    path: &KeyPath,
    claims: &[String],
    context: &mut Context<'_>,
) -> Option<IssuerSource> {
    let mapping = mapping(&raw.claims, &path.key("claims"), claims, context);
    let config = expectations(raw, path, mapping, context);
    let keys = key_source(raw, path, context);
    if raw.refresh < SHORTEST_REFRESH {
        let message = format!("{} is too short", raw.refresh);
        let hint = format!("write at least \"{SHORTEST_REFRESH}\"; an unknown key id fetches at once anyway");
        context.faults.add(&path.key("refresh"), message, hint);
    }
    if raw.max_stale < raw.refresh {
        let message = format!("{} is shorter than `refresh` ({})", raw.max_stale, raw.refresh);
        context.faults.add(&path.key("max_stale"), message, "keys would expire before they are refreshed");
    }
    let (keys, secure) = keys?;
    if let Err(error) = check_source(&raw.issuer, &keys) {
        let key = if raw.jwks_uri.is_some() { "jwks_uri" } else { "issuer" };
        let text = error.to_string();
        let (message, hint) = text.split_once("; ").unwrap_or((&text, ""));
        context.faults.add(&path.key(key), message, hint);
    }
    if raw.ca.is_some() && !secure {
        let message = "this issuer's keys are not fetched over TLS";
        context.faults.add(&path.key("ca"), message, "remove `ca`");
    }
    let tls = if secure {
        let protocols = Protocols { http1: true, http2: false };
        let client =
            Client { ca: raw.ca.as_deref(), identity: None, protocols, path, keys: KeyNames::DEFAULT };
        Some(context.tls_client(&client)?.0)
    } else {
        None
    };
    Some(IssuerSource {
        config: Arc::new(config?),
        keys,
        refresh: raw.refresh.0,
        max_stale: raw.max_stale.0,
        tls,
        proxies: context.proxies.clone(),
    })
}

fn expectations(
    raw: &raw::Issuer,
    path: &KeyPath,
    mapping: ClaimMapping,
    context: &mut Context<'_>,
) -> Option<IssuerConfig> {
    let algorithms: AlgorithmSet = raw.algorithms.iter().copied().map(algorithm).collect();
    let types = match raw.token_types {
        raw::TokenTypes::Rfc9068 => TokenTypes::Rfc9068,
        raw::TokenTypes::Jwt => TokenTypes::Jwt,
        raw::TokenTypes::Untyped => TokenTypes::Untyped,
    };
    if raw.id_tokens && types == TokenTypes::Rfc9068 {
        let message = "an ID token never has the type that `token_types` requires";
        context.faults.add(&path.key("id_tokens"), message, "remove `token_types`, or this key");
    }
    if raw.audience_claim.is_empty() {
        let hint = "write the name of a claim, such as \"client_id\", or remove the key";
        context.faults.add(&path.key("audience_claim"), "the name is empty", hint);
    }
    let tenants = tenants(raw, path, context);
    let audiences = raw.audiences.iter().map(|a| a.as_str().into()).collect();
    let config = IssuerConfig::new(&raw.name.0, &raw.issuer, audiences)
        .and_then(|config| config.with_algorithms(algorithms))
        .map(|config| config.with_types(types).with_mapping(mapping).with_tenants(tenants))
        .map(|config| config.with_audience_claim(&raw.audience_claim))
        .map(|config| if raw.id_tokens { config.with_id_tokens() } else { config })
        .and_then(|config| config.with_clock_skew(raw.clock_skew.0));
    config
        .map_err(|error| {
            let (key, message) = match error {
                IssuerConfigError::NoName => ("name", error.to_string()),
                IssuerConfigError::NoIssuer => ("issuer", error.to_string()),
                IssuerConfigError::NoAudience => ("audiences", error.to_string()),
                IssuerConfigError::NoAlgorithm => ("algorithms", error.to_string()),
                IssuerConfigError::ClockSkew(_) => {
                    ("clock_skew", format!("{} is more than 60s; correct the clocks instead", raw.clock_skew))
                }
            };
            let (message, hint) = message.split_once("; ").unwrap_or((&message, ""));
            context.faults.add(&path.key(key), message, hint);
        })
        .ok()
}

/// The tenants whose tokens are accepted.
fn tenants(raw: &raw::Issuer, path: &KeyPath, context: &mut Context<'_>) -> Tenants {
    let places = raw.issuer.matches(TENANT).count();
    if places == 0 {
        let hint = "write {tenantid} into `issuer` in place of the tenant, or remove the key";
        let message = "the key has no effect: `issuer` names one tenant, or has none";
        for (key, is_set) in [("tenants", !raw.tenants.is_empty()), ("any_tenant", raw.any_tenant)] {
            if is_set {
                context.faults.add(&path.key(key), message, hint);
            }
        }
        return Tenants::Listed(Vec::new());
    }
    if places > 1 {
        context.faults.add(&path.key("issuer"), "{tenantid} occurs twice", "write it once");
    }
    for (index, tenant) in raw.tenants.iter().enumerate() {
        let is_name =
            !tenant.is_empty() && tenant.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_name {
            let message = format!("{tenant:?} is no tenant ID");
            let hint = "write the `tid` claim of its tokens, such as \"8f1d9c2e-…\"";
            context.faults.add(&path.key("tenants").index(index), message, hint);
        }
    }
    match (raw.tenants.is_empty(), raw.any_tenant) {
        (true, true) => return Tenants::Any,
        (true, false) => {
            let hint = "list the tenants in `tenants`; for every organization set `any_tenant = true`";
            let message = "the issuer has many tenants, and none is accepted";
            context.faults.add(&path.key("issuer"), message, hint);
        }
        (false, true) => {
            let message = "`tenants` lists some, and `any_tenant` accepts all";
            context.faults.add(&path.key("any_tenant"), message, "keep one");
        }
        (false, false) => {}
    }
    Tenants::Listed(raw.tenants.iter().map(|tenant| tenant.as_str().into()).collect())
}

pub(super) fn algorithm(raw: raw::Algorithm) -> Algorithm {
    match raw {
        raw::Algorithm::RS256 => Algorithm::Rs256,
        raw::Algorithm::RS384 => Algorithm::Rs384,
        raw::Algorithm::RS512 => Algorithm::Rs512,
        raw::Algorithm::PS256 => Algorithm::Ps256,
        raw::Algorithm::PS384 => Algorithm::Ps384,
        raw::Algorithm::PS512 => Algorithm::Ps512,
        raw::Algorithm::ES256 => Algorithm::Es256,
        raw::Algorithm::ES384 => Algorithm::Es384,
        raw::Algorithm::ES512 => Algorithm::Es512,
        raw::Algorithm::EdDSA => Algorithm::EdDsa,
    }
}

/// Source of the keys, and whether TLS is used to fetch them.
fn key_source(raw: &raw::Issuer, path: &KeyPath, context: &mut Context<'_>) -> Option<(KeySource, bool)> {
    match (&raw.jwks_uri, &raw.jwks_file) {
        (Some(_), Some(_)) => {
            let message = "both `jwks_uri` and `jwks_file` are set";
            context.faults.add(&path.key("jwks_file"), message, "keep one");
            None
        }
        (None, Some(file)) => {
            let at = path.key("jwks_file");
            let json = context.read(file, &at)?;
            check_key_set(&json, &at, context);
            Some((KeySource::File(context.reader.resolve(file)), false))
        }
        (Some(uri), None) => {
            let secure = url(uri, &path.key("jwks_uri"), raw, context)?;
            Some((KeySource::Uri(uri.as_str().into()), secure))
        }
        (None, None) => {
            let at = path.key("issuer");
            let secure = url(&raw.issuer, &at, raw, context)?;
            if raw.issuer.contains('?') {
                let message = "the issuer has a query, so its discovery document has no URL";
                context.faults.add(&at, message, "name its keys with `jwks_uri` or `jwks_file`");
                return None;
            }
            Some((KeySource::Discovery, secure))
        }
    }
}

/// Checks a URL that keys are fetched from. Returns whether it uses TLS.
fn url(text: &str, path: &KeyPath, raw: &raw::Issuer, context: &mut Context<'_>) -> Option<bool> {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(fault) => {
            let hint = match path.last_key() {
                Some("issuer") => "without `jwks_uri` and `jwks_file`, discovery starts at the issuer's URL",
                _ => "write a URL such as \"https://id.example/keys\"",
            };
            context.faults.add(path, fault.to_string(), hint);
            return None;
        }
    };
    if !url.is_https() && !url.is_loopback() && !raw.insecure_http {
        let message = "over plain http, an attacker on the network can replace the keys, and issue tokens";
        context.faults.add(path, message, "use https, or confirm it with `insecure_http = true`");
        return None;
    }
    Some(url.is_https())
}

fn check_key_set(json: &[u8], path: &KeyPath, context: &mut Context<'_>) {
    match KeySet::from_jwks_json(json) {
        Ok((keys, skipped)) => {
            for key in skipped.iter().filter(|key| !key.is_normal()) {
                let name = key.kid.as_deref().map_or_else(String::new, |kid| format!(" ({kid:?})"));
                let message = format!("key {}{name} is not used: it {}", key.index, key.reason);
                context.faults.warn(path, message, "tokens signed with it are refused");
            }
            if keys.is_empty() {
                let message = "the file has no usable key, so every token would be refused";
                context.faults.add(
                    path,
                    message,
                    "write a JWKS (RFC 7517): { \"keys\": [ … ] } with public signature keys",
                );
            }
        }
        Err(error) => {
            let hint = "write a JWKS (RFC 7517): { \"keys\": [ … ] } with public signature keys";
            context.faults.add(path, error.to_string(), hint);
        }
    }
}

pub(super) fn mapping(
    raw: &raw::Claims,
    path: &KeyPath,
    referenced: &[String],
    context: &mut Context<'_>,
) -> ClaimMapping {
    let mut mapping =
        ClaimMapping { email_must_be_verified: raw.email_must_be_verified, ..ClaimMapping::default() };
    if let Some(subject) = parse_claim_path(&raw.subject, &path.key("subject"), context) {
        mapping.subject = subject;
    }
    let mut list = |texts: &[String], key: &str| -> Vec<ClaimPath> {
        let path = path.key(key);
        let claims =
            texts.iter().enumerate().filter_map(|(i, text)| parse_claim_path(text, &path.index(i), context));
        claims.collect()
    };
    mapping.user = list(&raw.user, "user");
    mapping.groups = list(&raw.groups, "groups");
    mapping.scopes = list(&raw.scopes, "scopes");
    mapping.client = list(&raw.client, "client");
    mapping.keep = list(&raw.keep, "keep");
    mapping.email = match raw.email.as_str() {
        "" => None,
        email => parse_claim_path(email, &path.key("email"), context),
    };
    // A fault in one of these paths was noted at its own position.
    let further = referenced.iter().filter_map(|text| text.parse::<ClaimPath>().ok());
    let further: Vec<_> = further.filter(|path| !mapping.keep.contains(path)).collect();
    mapping.keep.extend(further);
    mapping
}

/// Parses a claim path. Notes a fault when that fails.
pub(super) fn parse_claim_path(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<ClaimPath> {
    let claim = text.parse::<ClaimPath>();
    claim
        .map_err(|error| {
            let error = error.to_string();
            let (message, hint) =
                error.split_once("; ").unwrap_or((&error, "such as \"sub\" or \"realm_access.roles\""));
            context.faults.add(path, format!("{text:?}: {message}"), hint);
        })
        .ok()
}

pub(super) fn certificates(
    sound: &Partial,
    claims: &[String],
    context: &mut Context<'_>,
) -> Option<CertificateMapping> {
    let raw = sound.file.client_certificates.as_ref()?;
    let path = KeyPath::top_level("client_certificates");
    let asks = |l: &raw::Listener| {
        l.tls.as_ref().is_some_and(|t| t.client_certificates != ClientCertificateDemand::Off)
    };
    if !sound.file.listener.iter().any(asks) && !sound.has_unreadable("listener") && !sound.has_objects() {
        let hint = "write `client_certificates = \"optional\"` or \"required\" in a listener's `tls`";
        context.faults.add(&path, "no listener requests client certificates", hint);
    }
    if let Some((issuer, _)) =
        sound.paths("issuer", &sound.file.issuer).into_iter().find(|(_, issuer)| issuer.name == raw.name)
    {
        let message = format!("the name {:?} is already used by an issuer", raw.name.0);
        context.faults.add(
            &path.key("name"),
            message,
            format!("rules could not distinguish it from {issuer}"),
        );
    }
    let fields = |parts: &[CertificatePart]| parts.iter().copied().map(field).collect::<Vec<_>>();
    let mut keep = fields(&raw.keep);
    keep.extend(claims.iter().filter_map(|claim| CertificateField::from_name(claim)));
    let mapping = CertificateMapping::new(&raw.name.0, subject(raw.subject));
    let mapping =
        mapping.map_err(|error| context.faults.add(&path.key("subject"), error.to_string(), "")).ok()?;
    let mapping = mapping.with_groups(fields(&raw.groups)).with_kept(keep);
    Some(match raw.user {
        Some(user) => mapping.with_user(field(user)),
        None => mapping,
    })
}

fn subject(raw: SubjectPart) -> CertificateField {
    match raw {
        SubjectPart::SanUri => CertificateField::SanUri,
        SubjectPart::SanDns => CertificateField::SanDns,
        SubjectPart::SanEmail => CertificateField::SanEmail,
        SubjectPart::SubjectCn => CertificateField::SubjectCn,
        SubjectPart::SubjectDn => CertificateField::SubjectDn,
    }
}

fn field(raw: CertificatePart) -> CertificateField {
    match raw {
        CertificatePart::SanUri => CertificateField::SanUri,
        CertificatePart::SanDns => CertificateField::SanDns,
        CertificatePart::SanEmail => CertificateField::SanEmail,
        CertificatePart::SubjectCn => CertificateField::SubjectCn,
        CertificatePart::SubjectDn => CertificateField::SubjectDn,
        CertificatePart::SubjectO => CertificateField::SubjectO,
        CertificatePart::SubjectOu => CertificateField::SubjectOu,
        CertificatePart::IssuerDn => CertificateField::IssuerDn,
    }
}
