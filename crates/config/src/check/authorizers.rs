//! Checks `[[authorizer]]`: external services that authorize requests in addition to the rules.

use auth::headers::{HeaderFault, IdentityHeaders, StripSet, is_per_hop, is_same_alias_class};
use gateway::config::{AuthorizerConfig, QuestionForm, ShownField, ShownFields, UpstreamFields};

use super::super::fault::KeyPath;
use super::super::raw::{self, Asking};
use super::super::scalar::FieldName;
use super::paths::{canonical, plain_path};
use super::{Context, check_unique, is_referenced, name_hint, names};
use crate::partial::Partial;

/// Header of the gateway's assertion when the configuration names none.
const ASSERTION: &str = "x-postern-assertion";

pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Vec<AuthorizerConfig> {
    let all = sound.paths("authorizer", &sound.file.authorizer);
    check_unique(all.iter().map(|(path, a)| (path.clone(), &a.name)), "authorizers", &mut context.faults);
    let known = names(&sound.file.authorizer, |authorizer| &authorizer.name);
    for (path, authorizer) in &all {
        let references =
            sound.file.route.iter().filter_map(|route| Some(route.authorizer.as_ref()?.0.as_str()));
        if !is_referenced(&authorizer.name.0, references, &known) && !sound.has_other_routes() {
            let message = format!("no route uses the authorizer {:?}", authorizer.name.0);
            let hint = "name it with `authorizer` in a route, or remove it";
            context.faults.add(&path.key("name"), message, hint);
        }
    }
    all.iter().filter_map(|(path, authorizer)| check_authorizer(authorizer, path, sound, context)).collect()
}

fn check_authorizer(
    raw: &raw::Authorizer,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Option<AuthorizerConfig> {
    let upstream = upstream(raw, path, sound, context);
    let question = query_form(raw, path, context);
    let timeout = context.check_positive(raw.timeout.0, &path.key("timeout"));
    let shown = request_headers(raw, path, context);
    let response_headers = response_headers(raw, path, sound, context);
    Some(AuthorizerConfig {
        name: raw.name.0.as_str().into(),
        upstream: upstream?,
        question: question?,
        timeout,
        shown_fields: ShownFields::Named(shown?),
        upstream_fields: UpstreamFields::Trusted(response_headers?),
        max_age: raw.max_age.0,
        max_age_with_revocation: raw.max_age_with_revocation.0,
        cache_bytes: usize::try_from(raw.cache_size.0).unwrap_or(usize::MAX),
    })
}

fn upstream(
    raw: &raw::Authorizer,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Option<usize> {
    let known = names(&sound.file.upstream, |upstream| &upstream.name);
    let name = raw.upstream.0.as_str();
    let at = known.iter().position(|known| *known == name);
    if at.is_none() && !sound.may_be_unreadable("upstream", name) {
        let hint = name_hint(name, &known, sound, "upstream");
        context.faults.add(&path.key("upstream"), format!("there is no upstream {name:?}"), hint);
    }
    at
}

fn query_form(raw: &raw::Authorizer, path: &KeyPath, context: &mut Context<'_>) -> Option<QuestionForm> {
    let word = if raw.http == Asking::XOriginal { "x-original" } else { "x-forwarded" };
    match (raw.http, &raw.path_prefix, &raw.path) {
        (Asking::Envoy, prefix, None) => {
            let at = path.key("path_prefix");
            let prefix =
                prefix.as_ref().map_or(Some(String::new()), |text| plain_path(text, &at, context))?;
            Some(QuestionForm::SameRequest { prefix: prefix.into() })
        }
        (Asking::Envoy, prefix, Some(_)) => {
            let message = "`path` has no effect with `http = \"envoy\"`: the query has the path of the original request";
            let hint = match prefix {
                Some(_) => "keep `path_prefix`, and remove `path`",
                None => "write `http = \"x-original\"` or \"x-forwarded\" to query one path, or remove it",
            };
            context.faults.add(&path.key("path"), message, hint);
            None
        }
        (_, Some(_), _) => {
            let message = format!("queries of the kind {word:?} all have the same path");
            let hint = "set it with `path`; a prefix needs `http = \"envoy\"`";
            context.faults.add(&path.key("path_prefix"), message, hint);
            None
        }
        (_, None, None) => {
            let hint = "name the path of the query, such as `path = \"/oauth2/auth\"`";
            context.faults.add(path, "missing key `path`", hint);
            None
        }
        (protocol, None, Some(text)) => {
            let (plain, query) = text.split_once('?').map_or((text.as_str(), None), |(p, q)| (p, Some(q)));
            let whole = canonical(text);
            if whole.as_deref() != Ok(plain) || text.contains('#') || query.is_some_and(str::is_empty) {
                let hint = match whole {
                    Ok(read) if read != plain => format!("its canonical form is {read:?}"),
                    Ok(_) => "write a path, optionally with a query".to_owned(),
                    Err(problem) => problem,
                };
                context.faults.add(&path.key("path"), format!("{text:?} is not a plain path"), hint);
                return None;
            }
            let path = text.as_str().into();
            Some(if protocol == Asking::XOriginal {
                QuestionForm::XOriginal { path }
            } else {
                QuestionForm::XForwarded { path }
            })
        }
    }
}

/// The client's headers that the authorizer receives.
fn request_headers(
    raw: &raw::Authorizer,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Box<[ShownField]>> {
    let path = path.key("request_headers");
    // Headers that every gateway removes.
    let strip = StripSet::new([""; 0]);
    let mut good = true;
    for (index, FieldName(name)) in raw.request_headers.iter().enumerate() {
        let of_the_body = ["content-", "transfer-encoding", "trailer", "expect", "host", "range", "if-"];
        let lower = name.to_ascii_lowercase();
        let problem = if name.contains('*') {
            Some("write the complete name of each header")
        } else if is_per_hop(name) || of_the_body.iter().any(|own| lower.starts_with(own)) {
            Some("it belongs to the connection, or to a body, which is never sent")
        } else if strip.strips(name) {
            Some("clients could claim an identity with it; the gateway describes the request itself")
        } else if raw.request_headers[..index].iter().any(|FieldName(other)| is_same_alias_class(other, name))
        {
            Some("it occurs twice")
        } else {
            None
        };
        if let Some(hint) = problem {
            context.faults.add(&path.index(index), format!("{name:?} cannot be sent to an authorizer"), hint);
            good = false;
        }
    }
    good.then(|| raw.request_headers.iter().map(|FieldName(name)| ShownField::new(name)).collect())
}

/// Whether a response header replaces the client's token with one for the service, as oauth2-proxy
/// does with `--set-authorization-header`. Each route decides whether the client's own token is
/// forwarded.
pub(super) fn is_authorization(name: &str) -> bool {
    name.eq_ignore_ascii_case("authorization")
}

/// Headers of the authorizer's response that are forwarded to the service.
fn response_headers(
    raw: &raw::Authorizer,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Option<Box<[Box<str>]>> {
    let assertion = sound.file.assertion.as_ref().map(|assertion| assertion.header.0.as_str());
    let Some(configured) = &raw.response_headers else {
        let mut names: Vec<Box<str>> = Vec::new();
        let styles = [IdentityHeaders::x_forwarded(), IdentityHeaders::x_auth_request()];
        let fields = sound.file.identity_headers.fields.keys().map(String::as_str);
        let ours = fields.chain(assertion.is_none().then_some(ASSERTION));
        for name in styles.iter().flat_map(IdentityHeaders::names).chain(ours) {
            if !names.iter().any(|known| is_same_alias_class(known, name)) {
                names.push(name.to_ascii_lowercase().into());
            }
        }
        return Some(names.into());
    };
    let path = path.key("response_headers");
    let mut names: Vec<&str> = Vec::new();
    let mut good = true;
    for (index, FieldName(name)) in configured.iter().enumerate() {
        let ours = assertion.filter(|own| is_same_alias_class(own, name));
        let others = || names.iter().copied();
        let fault = if ours.is_some() {
            Some("it carries the gateway's own assertion; choose another with `assertion.header`".to_owned())
        } else if is_authorization(name) {
            let alias = others().find(|other| is_same_alias_class(other, name));
            alias.map(|other| HeaderFault::Alias(other.into(), name.clone()).to_string())
        } else {
            HeaderFault::check(name, others()).map(|fault| fault.to_string())
        };
        if let Some(hint) = fault {
            context.faults.add(&path.index(index), format!("{name:?} cannot be forwarded to services"), hint);
            good = false;
        }
        names.push(name);
    }
    good.then(|| names.into_iter().map(|name| name.to_ascii_lowercase().into()).collect())
}
