//! Checks `[cors]` and the CORS policy of a route.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway::config::{CorsHeaders, CorsOrigin, CorsPolicy};

use super::super::fault::KeyPath;
use super::super::raw::{self, CorsChoice};
use super::super::scalar::FieldName;
use super::login_origins::{parse_origin, parse_wildcard_origin};
use super::{Context, is_referenced, name_hint};
use crate::partial::Partial;

/// The shared policies by name; `None` for one with a fault.
pub(super) type CorsPolicies = BTreeMap<String, Option<Arc<CorsPolicy>>>;

/// Checks the policies that routes share.
pub(super) fn policies(sound: &Partial, context: &mut Context<'_>) -> CorsPolicies {
    let file = &sound.file;
    let known: Vec<&str> = file.cors.keys().map(String::as_str).collect();
    let mut built = CorsPolicies::new();
    for (name, raw) in &file.cors {
        let path = KeyPath::top_level("cors").key(name);
        let references = file.route.iter().filter_map(|route| match &route.cors {
            Some(CorsChoice::Named(name)) => Some(name.as_str()),
            _ => None,
        });
        if !is_referenced(name, references, &known) && !sound.has_other_routes() {
            context.faults.warn(
                &path,
                "no route uses this CORS policy",
                "name it with a route's `cors`, or remove it",
            );
        }
        built.insert(name.clone(), policy(raw, &path, context));
    }
    built
}

/// The policy of a route; `Err` when a fault was noted.
pub(super) fn of_route(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    policies: &CorsPolicies,
    context: &mut Context<'_>,
) -> Result<Option<Arc<CorsPolicy>>, ()> {
    let at = path.key("cors");
    match &raw.cors {
        None => Ok(None),
        Some(CorsChoice::Inline(inline)) => policy(inline, &at, context).map(Some).ok_or(()),
        Some(CorsChoice::Named(name)) => {
            let known = policies.get(name);
            if known.is_none() && !sound.may_be_unreadable("cors", name) {
                let names: Vec<&str> = sound.file.cors.keys().map(String::as_str).collect();
                let hint = name_hint(name, &names, sound, "cors");
                context.faults.add(&at, format!("there is no CORS policy {name:?}"), hint);
            }
            known.cloned().flatten().map(Some).ok_or(())
        }
    }
}

fn policy(raw: &raw::Cors, path: &KeyPath, context: &mut Context<'_>) -> Option<Arc<CorsPolicy>> {
    let mut good = true;
    let mut origins = Vec::new();
    for (index, text) in raw.origins.iter().enumerate() {
        let at = path.key("origins").index(index);
        match origin(text) {
            Ok(CorsOrigin::Any) if raw.credentials && !raw.credentials_from_anywhere => {
                let message = "every page could read what the caller's session shows";
                let hint =
                    "list the origins, remove `credentials`, or permit it with `credentials_from_anywhere`";
                context.faults.add(&at, message, hint);
                good = false;
            }
            Ok(origin) if origins.contains(&origin) => {
                context.faults.add(&at, format!("{text:?} occurs twice"), "keep one");
                good = false;
            }
            Ok(origin) => origins.push(origin),
            Err(message) => {
                let hint = "write scheme, host and port, such as \"https://app.example\" or \"https://*.app.example\", or \"*\"";
                context.faults.add(&at, message, hint);
                good = false;
            }
        }
    }
    let is_open = raw.credentials && origins.contains(&CorsOrigin::Any);
    if raw.credentials_from_anywhere && !is_open && good {
        let message = "the key has no effect without `credentials`, and `*` in `origins`";
        context.faults.add(&path.key("credentials_from_anywhere"), message, "remove it");
        good = false;
    }
    let any_header = raw.headers.iter().any(|name| name.0 == "*");
    if any_header && raw.headers.len() > 1 {
        context.faults.add(
            &path.key("headers"),
            "\"*\" covers the other headers",
            "keep \"*\" alone, or remove it",
        );
        good = false;
    }
    for (index, name) in raw.expose.iter().enumerate() {
        if name.0 == "*" && raw.credentials {
            let message = "with `credentials`, browsers take \"*\" for a header of that name";
            context.faults.add(&path.key("expose").index(index), message, "list the headers");
            good = false;
        }
    }
    let joined = |names: &[FieldName]| -> Box<str> {
        names.iter().map(|name| name.0.as_str()).collect::<Vec<_>>().join(", ").into()
    };
    good.then(|| {
        Arc::new(CorsPolicy {
            origins,
            methods: raw.methods.iter().map(|method| method.0.as_str().into()).collect(),
            headers: if any_header { CorsHeaders::Any } else { CorsHeaders::Listed(joined(&raw.headers)) },
            expose: joined(&raw.expose),
            credentials: raw.credentials,
            max_age: raw.max_age.map(|max_age| max_age.0),
        })
    })
}

fn origin(text: &str) -> Result<CorsOrigin, String> {
    if text == "*" {
        return Ok(CorsOrigin::Any);
    }
    if let Some((scheme, port)) = text.split_once("://*").filter(|(_, rest)| !rest.starts_with('.')) {
        // Any host shows whether scheme and port are those of an origin, and the port's usual form.
        let origin = parse_origin(&format!("{scheme}://host{port}"));
        let origin = origin.map_err(|message| message.replacen("://host", "://*", 1))?;
        let suffix = origin.authority.strip_prefix("host").unwrap_or_default().into();
        return Ok(CorsOrigin::Below { scheme: format!("{}://", origin.scheme.as_str()).into(), suffix });
    }
    let Some(domain) = parse_wildcard_origin(text) else {
        return parse_origin(text).map(|origin| CorsOrigin::Exact(origin.text));
    };
    let domain = domain?;
    let scheme = format!("{}://", domain.scheme.as_str()).into();
    Ok(CorsOrigin::Below { scheme, suffix: format!(".{}", domain.authority).into() })
}
