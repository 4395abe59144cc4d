//! Local action: a route that the gateway answers itself, with a redirect or a fixed response.
//!
//! Owns: where a redirect leads, and the replies. Does not own: whether the request may have it
//! (the pipeline decides first, as for a request to forward).

use auth::request::{Canonical, Malformed, Scheme};
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;

use crate::config::{FixedResponse, LocalAction, Redirect, RedirectPath, Rewrite};
use crate::refusal::Refusal;

/// The reply of a route's action.
///
/// # Errors
/// When the target of a redirect cannot be determined, or is the request itself and must not be.
pub(crate) fn reply(action: &LocalAction, request: &Canonical<'_>) -> Result<LocalReply, Refusal> {
    match action {
        LocalAction::Redirect(redirect) => redirect_reply(redirect, request),
        LocalAction::Respond(response) => Ok(fixed_reply(response)),
    }
}

/// What a route's action answers, for explanations.
pub fn describe(action: &LocalAction, request: &Canonical<'_>) -> String {
    match action {
        LocalAction::Redirect(redirect) => match location(redirect, request) {
            Ok(location) => format!("by the gateway itself: {} to {location}", redirect.status),
            Err(refusal) => format!("by the gateway itself: {refusal:?}"),
        },
        LocalAction::Respond(response) => {
            format!("by the gateway itself: {} with {} bytes", response.status, response.body.len())
        }
    }
}

/// The reply that sends a client to the same address over TLS, for a request without TLS; `None`
/// for a request with TLS.
///
/// # Errors
/// When the request has no host.
pub(crate) fn https_redirect(request: &Canonical<'_>) -> Result<Option<LocalReply>, Refusal> {
    const TO_HTTPS: Redirect = Redirect {
        status: 308,
        scheme: Some(Scheme::Https),
        host: None,
        port: None,
        path: RedirectPath::Same,
        may_loop: false,
    };
    if request.scheme() == Scheme::Https {
        return Ok(None);
    }
    redirect_reply(&TO_HTTPS, request).map(Some)
}

fn redirect_reply(redirect: &Redirect, request: &Canonical<'_>) -> Result<LocalReply, Refusal> {
    let location = location(redirect, request)?;
    let mut reply = LocalReply {
        status: redirect.status,
        code: "redirect",
        outcome: Outcome::Local,
        fields: vec![("location".into(), location.into())],
        body: (&b""[..]).into(),
        close: false,
    };
    // Browsers keep a permanent redirect without a limit, also one that was a mistake.
    if matches!(redirect.status, 301 | 308) {
        reply.fields.push(("cache-control".into(), "max-age=3600".into()));
    }
    Ok(reply)
}

/// The URL that a redirect leads to: that of the request, with the configured parts replaced. The
/// query stays.
fn location(redirect: &Redirect, request: &Canonical<'_>) -> Result<String, Refusal> {
    let scheme = redirect.scheme.unwrap_or(request.scheme());
    let host = redirect.host.as_deref().unwrap_or(request.host());
    if host.is_empty() {
        return Err(Refusal::Malformed(Malformed::HostMissing));
    }
    // With another scheme the request's port is that of another listener.
    let port = redirect
        .port
        .or_else(|| request.port().filter(|_| redirect.scheme.is_none() && redirect.host.is_none()));
    let mut url = format!("{}://{host}", scheme.as_str());
    if let Some(port) = port.filter(|port| *port != scheme.default_port()) {
        url.push(':');
        url.push_str(&port.to_string());
    }
    match &redirect.path {
        RedirectPath::Same => url.push_str(request.forwarded_path()),
        RedirectPath::Whole(path) => url.push_str(path),
        RedirectPath::Prefix { from, to } => {
            let rewrite = Rewrite::ReplacePrefix { from: from.clone(), to: to.clone() };
            let path = rewrite.apply(request).map_err(Refusal::Malformed)?;
            url.push_str(path.as_deref().unwrap_or(request.forwarded_path()));
        }
    }
    let own = format!("{}://{}{}", request.scheme().as_str(), request.authority(), request.forwarded_path());
    if url == own && !redirect.may_loop {
        return Err(Refusal::RedirectLoop);
    }
    if let Some(query) = request.query() {
        url.push('?');
        url.push_str(query);
    }
    Ok(url)
}

fn fixed_reply(response: &FixedResponse) -> LocalReply {
    let mut reply = LocalReply {
        status: response.status,
        code: "fixed_response",
        outcome: Outcome::Local,
        fields: Vec::new(),
        body: response.body.to_vec().into(),
        close: false,
    };
    if let Some(content_type) = &response.content_type {
        reply.fields.push(("content-type".into(), content_type.to_string().into()));
        reply.fields.push(("x-content-type-options".into(), "nosniff".into()));
    }
    reply
}
