//! The token endpoint (RFC 6749 §3.2).
//!
//! Owns: what a token request is as HTTP: POST with one form in its body, bounded in size and time, and no
//! parameters in the URL (they would end up in logs).
//! Does not own: the meaning of its parameters ([`crate::client`], [`crate::grants`]).

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE, request::Parts},
    response::Response,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::answer;
use crate::{
    client::authenticate::authenticate,
    grants::{self, GrantType},
    oauth::{error::Fault, form::Form},
    provider::Provider,
};

/// Largest accepted body in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// Longest time from the head of a request to the end of its body.
pub const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// `POST /token`.
pub async fn token(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let refuse = |fault: Fault, client| answer::refuse(&fault, provider.challenge(), client);
    let (form, grant) = match read(&parts, body).await {
        Ok(read) => read,
        Err(fault) => return refuse(fault, None),
    };
    let client = match authenticate(provider.clients(), &parts.headers, &form) {
        Ok(client) => client,
        Err(fault) => return refuse(fault, None),
    };
    match grant.and_then(|grant| grants::issue(&provider, client, grant, &form)) {
        Ok(response) => answer::json(StatusCode::OK, &response),
        Err(fault) => refuse(fault, Some(client.id())),
    }
}

/// The form and the grant it names. A grant that does not exist is reported to authenticated clients only,
/// so it stays a result until then.
async fn read(parts: &Parts, body: Body) -> Result<(Form, Result<GrantType, Fault>), Fault> {
    if parts.uri.query().is_some() {
        return Err(Fault::QueryParameters);
    }
    if !declares_form(&parts.headers) {
        return Err(Fault::NotForm);
    }
    let body = tokio::time::timeout(BODY_DEADLINE, collect(body)).await.map_err(|_| Fault::BodyTimeout)??;
    let form = Form::parse(&body)?;
    let grant = GrantType::from_wire(form.get("grant_type").ok_or(Fault::GrantTypeMissing)?);
    Ok((form, grant))
}

async fn collect(body: Body) -> Result<Bytes, Fault> {
    // by what Content-Length promises: refused before it is read
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(Fault::BodyTooLarge);
    }
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(e) if e.downcast_ref::<LengthLimitError>().is_some() => Err(Fault::BodyTooLarge),
        Err(_) => Err(Fault::BodyBroken),
    }
}

/// Whether there is exactly one content type and it is that of a form; `charset=utf-8` may stand beside it.
fn declares_form(headers: &HeaderMap) -> bool {
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
    use axum::http::HeaderValue;

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
        assert_eq!(read(&parts, body).await.map(|_| ()), Err(Fault::BodyTimeout));
        assert_eq!(started.elapsed(), BODY_DEADLINE);
    }
}
