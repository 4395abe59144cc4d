//! Page responses: the one place that turns a page into an HTTP response.
//!
//! Owns: every header of a page. Does not own: its status and text.

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    response::Response,
};

use super::address::FormTarget;

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// What a page may load, and where its forms may lead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// Source expression of the style sheet.
    pub(crate) style: &'a str,
    /// Source expression of the script, if there is one.
    pub(crate) script: Option<&'a str>,
    /// Targets of its forms besides this provider.
    pub(crate) form_targets: &'a [FormTarget],
}

/// A page as an HTTP response; `tag` is its language.
pub(crate) fn html(status: StatusCode, body: String, sources: Sources<'_>, tag: &str) -> Response {
    let Ok(policy) = HeaderValue::try_from(policy(sources)) else {
        // Its parts are checked texts, so this does not fail; a page is never sent without its
        // policy.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return response;
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (OPENER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(CONTENT_LANGUAGE, tag);
    }
    response
}

fn policy(Sources { style, script, form_targets: leads_to }: Sources<'_>) -> String {
    let mut policy = format!(
        "default-src 'none'; style-src {style}; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    );
    if let Some(script) = script {
        policy.push_str("script-src ");
        policy.push_str(script);
        policy.push_str("; ");
    }
    policy.push_str("form-action 'self'");
    for target in leads_to {
        policy.push(' ');
        policy.push_str(target.as_str());
    }
    policy
}
