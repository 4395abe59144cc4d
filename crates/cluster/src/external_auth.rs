//! External authorization: the filter `ExternalAuth` of a rule, as an authorizer of its routes.
//!
//! Owns: what the fields of the filter mean for a query and for its answer (Gateway API,
//! `HTTPExternalAuthFilter`; GEP-1494). Does not own: the query ([`gateway::authorizer`]), which
//! Service is asked (`controller`).

use std::time::Duration;

use controller::names::Name;
use controller::plan::{BackendTarget, ExternalAuthFilter, ExternalAuthProtocol};
use gateway::config::{AuthorizerConfig, QuestionForm, ShownField, ShownFields, UpstreamFields};

use crate::raw_route::FindUpstream;

/// Limit of a query, as that of an authorizer of the file by default.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer is kept that permits it, as that of an authorizer of the file by default.
const MAX_AGE: Duration = Duration::from_secs(10);
/// The same for an answer that a followed issuer can revoke.
const MAX_AGE_WITH_REVOCATION: Duration = Duration::from_mins(1);
/// Bytes of the answers that are kept for one rule.
const CACHE_BYTES: usize = 1 << 20;

/// The authorizer of the rule with this name.
///
/// # Errors
/// Why the rule cannot be served.
pub(crate) fn authorizer(
    rule: &str,
    filter: &ExternalAuthFilter,
    upstream: &FindUpstream<'_>,
) -> Result<AuthorizerConfig, String> {
    if filter.body.is_some() {
        return Err("forwardBody of the filter ExternalAuth is not supported: remove it".into());
    }
    let upstream = upstream(&filter.target).ok_or_else(|| match &filter.target {
        BackendTarget::Invalid(problem) => format!("the service of the filter ExternalAuth: {problem}"),
        BackendTarget::Upstream(_) => "the service of the filter ExternalAuth cannot be used".into(),
    })?;
    let (question, shown_fields, upstream_fields, max_age) = match &filter.protocol {
        ExternalAuthProtocol::Grpc => {
            let shown = if filter.allowed_headers.is_empty() {
                ShownFields::All
            } else {
                ShownFields::Named(filter.allowed_headers.iter().map(|name| ShownField::new(name)).collect())
            };
            // An answer over gRPC cannot say how long it is good for.
            (QuestionForm::Grpc, shown, UpstreamFields::All, Duration::ZERO)
        }
        ExternalAuthProtocol::Http { path, allowed_response_headers } => {
            let prefix = prefix(path.as_deref().unwrap_or_default())?.into();
            let shown =
                std::iter::once("authorization").chain(filter.allowed_headers.iter().map(|name| &**name));
            let shown =
                ShownFields::Named(shown.filter(|name| is_shown(name)).map(ShownField::new).collect());
            let names = |names: &[Name]| names.iter().map(|name| name.to_ascii_lowercase().into()).collect();
            let copied = if allowed_response_headers.is_empty() {
                UpstreamFields::All
            } else {
                UpstreamFields::Named(names(allowed_response_headers))
            };
            (QuestionForm::SameRequest { prefix }, shown, copied, MAX_AGE)
        }
    };
    let max_age_with_revocation = if max_age.is_zero() { max_age } else { MAX_AGE_WITH_REVOCATION };
    Ok(AuthorizerConfig {
        name: format!("of {rule}").into(),
        upstream,
        question,
        timeout: TIMEOUT,
        shown_fields,
        upstream_fields,
        max_age,
        max_age_with_revocation,
        cache_bytes: CACHE_BYTES,
    })
}

/// The prefix before the path of a query, without a slash at the end.
fn prefix(path: &str) -> Result<String, String> {
    if path.is_empty() {
        return Ok(String::new());
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    config::plain_path(&path)
        .map_err(|problem| format!("http.path {path:?} of the filter ExternalAuth: {problem}"))
}

/// Whether a field of this name can be shown: the query has no body, and a connection and a host of
/// its own.
fn is_shown(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !auth::headers::is_per_hop(&name) && !name.starts_with("content-") && !matches!(&*name, "host" | "expect")
}
