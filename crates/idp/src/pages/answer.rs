//! The one place where a page becomes an answer.
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

/// A page as an answer. `style` is the source expression of its style sheet, `leads_to` where its forms may
/// lead besides here, `tag` its language.
pub(crate) fn html(
    status: StatusCode,
    body: String,
    style: &str,
    leads_to: &[FormTarget],
    tag: &str,
) -> Response {
    let Ok(policy) = HeaderValue::try_from(policy(style, leads_to)) else {
        // its parts are checked texts; a page without its policy is not sent
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

fn policy(style: &str, leads_to: &[FormTarget]) -> String {
    let mut policy = format!(
        "default-src 'none'; style-src {style}; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; \
         form-action 'self'"
    );
    for target in leads_to {
        policy.push(' ');
        policy.push_str(target.as_str());
    }
    policy
}
