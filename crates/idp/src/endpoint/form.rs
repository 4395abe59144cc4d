//! Request forms: one body with the right content type, limited in size and time.
//!
//! Owns: reading the body. Does not own: the meaning of its parameters.

use std::time::Duration;

use axum::{
    body::{Body, Bytes, HttpBody as _},
    http::{HeaderMap, header::CONTENT_TYPE, request::Parts},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::oauth::{error::OAuthFault, form::Form};

/// Largest accepted body in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// Longest time from the head of a request to the end of its body.
pub const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Reads the form of a request. Parameters in the URL are refused, because URLs are logged.
///
/// # Errors
/// [`OAuthFault`] when there is a query, the content type is wrong or the body cannot be read.
pub async fn read(parts: &Parts, body: Body) -> Result<Form, OAuthFault> {
    if parts.uri.query().is_some() {
        return Err(OAuthFault::QueryParameters);
    }
    if !declares_form(&parts.headers) {
        return Err(OAuthFault::NotForm);
    }
    Ok(Form::parse(&read_body(body).await?)?)
}

/// Reads a whole body within [`MAX_BODY`] and [`BODY_DEADLINE`].
///
/// # Errors
/// [`OAuthFault`] when the body is too large, too slow or broken.
pub async fn read_body(body: Body) -> Result<Bytes, OAuthFault> {
    tokio::time::timeout(BODY_DEADLINE, collect(body)).await.map_err(|_| OAuthFault::BodyTimeout)?
}

async fn collect(body: Body) -> Result<Bytes, OAuthFault> {
    // A declared length that is too large is refused before the body is read.
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(OAuthFault::BodyTooLarge);
    }
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(e) if e.downcast_ref::<LengthLimitError>().is_some() => Err(OAuthFault::BodyTooLarge),
        Err(_) => Err(OAuthFault::BodyBroken),
    }
}

/// Whether there is exactly one content type and it is that of a form, optionally with
/// `charset=utf-8`.
pub(super) fn declares_form(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(CONTENT_TYPE).iter();
    let (Some(only), None) = (fields.next(), fields.next()) else { return false };
    let Ok(text) = only.to_str() else { return false };
    let mut pieces = text.split(';').map(str::trim);
    let form = pieces.next().is_some_and(|t| t.eq_ignore_ascii_case("application/x-www-form-urlencoded"));
    let utf8 =
        |p: &str| p.eq_ignore_ascii_case("charset=utf-8") || p.eq_ignore_ascii_case("charset=\"utf-8\"");
    form && pieces.all(utf8)
}

#[cfg(test)]
mod tests {
    use axum::{extract::Request, http::HeaderValue};

    use super::*;

    fn declared(values: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_TYPE, HeaderValue::from_static(value));
        }
        declares_form(&headers)
    }

    #[test]
    fn content_types_of_a_form() {
        for good in [
            "application/x-www-form-urlencoded",
            "Application/X-WWW-Form-Urlencoded",
            "application/x-www-form-urlencoded; charset=UTF-8",
            "application/x-www-form-urlencoded;charset=\"utf-8\"",
        ] {
            assert!(declared(&[good]), "{good}");
        }
        for bad in [
            "",
            "application/json",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded2",
            "application/x-www-form-urlencoded; charset=iso-8859-1",
            "application/x-www-form-urlencoded; boundary=x",
            "application/x-www-form-urlencoded, text/plain",
        ] {
            assert!(!declared(&[bad]), "{bad}");
        }
        assert!(!declared(&[]));
        assert!(!declared(&["application/x-www-form-urlencoded", "application/x-www-form-urlencoded"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let never = std::future::pending::<Option<Result<HeaderMap, std::convert::Infallible>>>();
        let body =
            Body::new(http_body_util::Full::new(Bytes::from_static(b"grant_type=")).with_trailers(never));
        let started = tokio::time::Instant::now();
        let mut request = Request::post("/token").body(()).unwrap();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, form);
        let (parts, ()) = request.into_parts();
        assert_eq!(read(&parts, body).await.map(|_| ()), Err(OAuthFault::BodyTimeout));
        assert_eq!(started.elapsed(), BODY_DEADLINE);
    }
}
