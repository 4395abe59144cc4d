//! Checks the actions of a route that forwards nothing: `redirect` and `respond`.

use std::sync::Arc;

use auth::request::Scheme;
use gateway::config::{FixedResponse, LocalAction, Redirect, RedirectPath};

use super::super::fault::KeyPath;
use super::super::raw::{self, UrlScheme};
use super::Context;
use super::paths::plain_path;
use crate::partial::Partial;

/// The action of a route, if it has one; `Err` when a fault was noted.
pub(super) fn check(
    raw: &raw::Route,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Result<Option<LocalAction>, ()> {
    let (key, action) = match (&raw.redirect, &raw.respond) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            context.faults.add(&path.key("redirect"), "both `redirect` and `respond` answer", "keep one");
            return Err(());
        }
        (Some(redirect), None) => {
            let at = path.key("redirect");
            ("redirect", redirect_action(redirect, raw, &at, context).map(LocalAction::Redirect))
        }
        (None, Some(respond)) => {
            ("respond", respond_action(respond, &path.key("respond"), context).map(LocalAction::Respond))
        }
    };
    let without_upstream = [
        ("upstream", raw.upstream.is_some()),
        ("upstreams", !raw.upstreams.is_empty()),
        ("mirror", !raw.mirror.is_empty()),
        ("strip_prefix", raw.strip_prefix.is_some()),
        ("replace_prefix", raw.replace_prefix.is_some()),
        ("replace_path", raw.replace_path.is_some()),
        ("rewrite_host", raw.rewrite_host.is_some()),
        ("attempt_timeout", raw.attempt_timeout.is_some()),
        ("request_headers", raw.request_headers.is_some()),
        ("forward_access_token", raw.forward_access_token),
        ("forward_authorization", raw.forward_authorization),
        ("application_authorization", raw.application_authorization),
        ("affinity", raw.affinity.is_some()),
    ];
    let mut good = true;
    for (other, _) in without_upstream.iter().filter(|(_, is_set)| *is_set) {
        let message = format!("the key has no effect: with `{key}` nothing is forwarded");
        context.faults.add(&path.key(other), message, format!("remove it, or remove `{key}`"));
        good = false;
    }
    if let Some(listener) = sound.file.listener.iter().find(|listener| listener.authorization.is_some()) {
        let message = format!(
            "the listener {:?} only authorizes for other proxies, which answer themselves",
            listener.name.0
        );
        context.faults.add(
            &path.key(key),
            message,
            "configure it at these proxies, or move that listener to another file",
        );
        good = false;
    }
    action.filter(|_| good).map(Some).ok_or(())
}

fn redirect_action(
    raw: &raw::Redirect,
    route: &raw::Route,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Redirect> {
    let mut good = true;
    let mut fault = |at: &KeyPath, message: String, hint: &str| {
        context.faults.add(at, message, hint);
        good = false;
    };
    if raw.scheme.is_none()
        && raw.host.is_none()
        && raw.port.is_none()
        && raw.path.is_none()
        && raw.prefix.is_none()
    {
        fault(
            path,
            "the redirect changes nothing".into(),
            "set `scheme`, `host`, `port`, `path` or `prefix`",
        );
    }
    if !matches!(raw.status, 301..=303 | 307 | 308) {
        let message = format!("{} is not the status of a redirect", raw.status);
        fault(&path.key("status"), message, "write 301, 302, 303, 307 or 308");
    }
    if let Some(host) = raw.host.as_deref() {
        let canonical = auth::request::Canonical::parse(&auth::request::RawRequest {
            method: "GET",
            scheme: Scheme::Https,
            authority: Some(host.as_bytes()),
            host: None,
            target: b"/",
        });
        if !canonical.is_ok_and(|request| request.authority() == host && request.port().is_none()) {
            let hint =
                "write a lower-case name without a port, such as \"www.example\"; `port` sets the port";
            fault(&path.key("host"), format!("{host:?} is not a host"), hint);
        }
    }
    let target = redirect_path(raw, route, path, context)?;
    good.then(|| Redirect {
        status: raw.status,
        scheme: raw.scheme.map(|scheme| match scheme {
            UrlScheme::Http => Scheme::Http,
            UrlScheme::Https => Scheme::Https,
        }),
        host: raw.host.as_deref().map(Into::into),
        port: raw.port,
        path: target,
        may_loop: raw.may_loop,
    })
}

/// The path that a redirect leads to. `None` when a fault was noted.
fn redirect_path(
    raw: &raw::Redirect,
    route: &raw::Route,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<RedirectPath> {
    match (&raw.path, &raw.prefix) {
        (None, None) => Some(RedirectPath::Same),
        (Some(_), Some(_)) => {
            context.faults.add(&path.key("prefix"), "both `path` and `prefix` change the path", "keep one");
            None
        }
        (Some(whole), None) => {
            let is_path = whole.starts_with('/')
                && !whole.starts_with("//")
                && whole.bytes().all(|b| b.is_ascii_graphic())
                && !whole.contains(['?', '#', '\\']);
            if !is_path {
                let hint = "write an absolute path such as \"/new\", without a query";
                context.faults.add(&path.key("path"), format!("{whole:?} is not a path"), hint);
            }
            is_path.then(|| RedirectPath::Whole(whole.as_str().into()))
        }
        (None, Some(to)) => {
            let at = path.key("prefix");
            let to = if to.is_empty() { String::new() } else { plain_path(to, &at, context)? };
            let from = route.path.as_ref().and_then(|path| path.prefix.clone());
            if from.is_none() {
                let hint = "use `path`, or give the route `path = { prefix = … }`";
                context.faults.add(&at, "the route has no prefix to replace", hint);
            }
            Some(RedirectPath::Prefix { from: from?.into(), to: to.into() })
        }
    }
}

fn respond_action(raw: &raw::Respond, path: &KeyPath, context: &mut Context<'_>) -> Option<FixedResponse> {
    let body: Arc<[u8]> = match (&raw.body, &raw.file) {
        (Some(_), Some(_)) => {
            context.faults.add(&path.key("file"), "both `body` and `file` are the body", "keep one");
            return None;
        }
        (Some(body), None) => body.as_bytes().into(),
        (None, Some(file)) => context.read(file, &path.key("file"))?.into(),
        (None, None) => Arc::default(),
    };
    if !body.is_empty() && matches!(raw.status, 204 | 205 | 304) {
        let message = format!("a response with status {} has no body", raw.status);
        context.faults.add(path, message, "remove the body, or change the status");
        return None;
    }
    if raw.content_type.is_empty() || !raw.content_type.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        let hint = "write a media type such as \"text/html; charset=utf-8\"";
        context.faults.add(
            &path.key("content_type"),
            format!("{:?} is not a content type", raw.content_type),
            hint,
        );
        return None;
    }
    let content_type = (!body.is_empty()).then(|| raw.content_type.as_str().into());
    Some(FixedResponse { status: raw.status, content_type, body })
}
