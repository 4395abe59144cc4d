//! Check response: what an authorizer answered over gRPC, as the answer over HTTP that says the same.
//!
//! Owns: the status of the call, and which parts of `CheckResponse` count. Does not own: what an
//! answer means ([`super::answer`]).
//!
//! A field replaces those of the client with its name, whatever its `append_action`. Of the fields
//! for the client's response only `Set-Cookie` counts, as over HTTP. Metadata is not read.

use bytes::Bytes;
use http::HeaderMap;
use prost::Message as _;

use super::response::{AnswerError, AuthorizerResponse};
use crate::envoy_authz::grpc;
use crate::envoy_authz::message::{CheckResponse, HeaderValueOption, HttpResponse};

/// Status of a refusal that names none.
const FORBIDDEN: u16 = 403;

/// The answer that a call carries, and the client's fields that the upstream does not get.
pub(super) fn read(response: AuthorizerResponse) -> Result<(AuthorizerResponse, Vec<Box<str>>), AnswerError> {
    if response.status != 200 {
        return Err(AnswerError::Status(response.status));
    }
    match status(&response) {
        Some(0) => {}
        Some(code) => return Err(AnswerError::Call(code)),
        None => return Err(AnswerError::NotGrpc),
    }
    let message = grpc::message(&Bytes::from(response.body)).map_err(|_| AnswerError::NotGrpc)?;
    let check = CheckResponse::decode(message).map_err(|_| AnswerError::NotGrpc)?;
    let is_ok = check.status.as_ref().is_none_or(|status| status.code == grpc::OK);
    let mut answer = AuthorizerResponse { status: if is_ok { 200 } else { FORBIDDEN }, ..Default::default() };
    let mut removed = Vec::new();
    match check.http_response {
        Some(HttpResponse::Ok(ok)) if is_ok => {
            let cookies = ok.response_headers_to_add.into_iter();
            let cookies = cookies.filter(|field| {
                field.header.as_ref().is_some_and(|header| header.key.eq_ignore_ascii_case("set-cookie"))
            });
            // A field of this name among those for the upstream is not for the client.
            let fields = fields(ok.headers).filter(|(name, _)| !name.eq_ignore_ascii_case("set-cookie"));
            answer.fields = fields.chain(self::fields(cookies)).collect();
            removed = ok.headers_to_remove.into_iter().map(Into::into).collect();
        }
        Some(HttpResponse::Denied(denied)) => {
            let status = denied.status.and_then(|status| u16::try_from(status.code).ok());
            answer.status = status.filter(|code| (300..=599).contains(code)).unwrap_or(FORBIDDEN);
            answer.fields = fields(denied.headers).collect();
            answer.body = denied.body.into_bytes();
        }
        _ => {}
    }
    Ok((answer, removed))
}

fn fields(
    options: impl IntoIterator<Item = HeaderValueOption>,
) -> impl Iterator<Item = (Box<str>, Box<[u8]>)> {
    let headers = options.into_iter().filter_map(|option| option.header);
    headers.map(|header| (header.key.into(), header.value.into_bytes().into()))
}

/// The status of the call: in the trailers or, without a message, in the head.
fn status(response: &AuthorizerResponse) -> Option<u32> {
    let of_trailers = |trailers: &HeaderMap| trailers.get("grpc-status")?.to_str().ok()?.parse().ok();
    let of_head = || {
        let mut fields = response.fields.iter();
        let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("grpc-status"))?;
        std::str::from_utf8(value).ok()?.parse().ok()
    };
    response.trailers.as_deref().and_then(of_trailers).or_else(of_head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy_authz::message::{DeniedResponse, HeaderValue, HttpStatus, OkResponse, Status};

    fn option(key: &str, value: &str) -> HeaderValueOption {
        let header = HeaderValue { key: key.into(), value: value.into() };
        HeaderValueOption { header: Some(header), append_action: 0 }
    }

    fn answered(code: i32, http: Option<HttpResponse>) -> AuthorizerResponse {
        let status = Some(Status { code, message: String::new() });
        let check = CheckResponse { status, http_response: http, dynamic_metadata: None };
        let trailers = grpc::trailers(grpc::OK, "");
        let body = grpc::framed(&check.encode_to_vec().into()).to_vec();
        AuthorizerResponse { status: 200, body, trailers: Some(Box::new(trailers)), ..Default::default() }
    }

    #[test]
    fn a_permit_has_fields_for_both_sides() {
        let ok = OkResponse {
            headers: vec![option("x-tenant", "blue"), option("set-cookie", "a=1")],
            headers_to_remove: vec!["x-debug".into()],
            response_headers_to_add: vec![option("Set-Cookie", "b=2"), option("x-other", "1")],
        };
        let (answer, removed) = read(answered(0, Some(HttpResponse::Ok(ok)))).unwrap();
        let fields: Vec<_> = answer.fields.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!((answer.status, fields), (200, vec![("x-tenant", &b"blue"[..]), ("Set-Cookie", b"b=2")]));
        assert_eq!(removed, ["x-debug".into()]);
    }

    #[test]
    fn a_refusal_has_a_status_even_if_none_was_given() {
        for (code, given, expected) in
            [(7, 401, 401), (7, 0, 403), (7, 200, 403), (16, 302, 302), (0, 401, 401)]
        {
            let status = Some(HttpStatus { code: given });
            let denied = DeniedResponse { status, headers: Vec::new(), body: "no".into() };
            let (answer, _) = read(answered(code, Some(HttpResponse::Denied(denied)))).unwrap();
            assert_eq!((answer.status, &*answer.body), (expected, &b"no"[..]), "{code} {given}");
        }
        assert_eq!(read(answered(7, None)).unwrap().0.status, 403);
        // The parts contradict each other.
        let ok = OkResponse {
            headers: Vec::new(),
            headers_to_remove: Vec::new(),
            response_headers_to_add: Vec::new(),
        };
        assert_eq!(read(answered(7, Some(HttpResponse::Ok(ok)))).unwrap().0.status, 403);
    }

    #[test]
    fn a_failed_call_is_no_answer() {
        let mut failed = answered(0, None);
        failed.trailers = Some(Box::new(grpc::trailers(grpc::UNAVAILABLE, "")));
        assert!(matches!(read(failed), Err(AnswerError::Call(14))));
        let early = AuthorizerResponse {
            status: 200,
            fields: vec![("grpc-status".into(), b"12"[..].into())],
            ..Default::default()
        };
        assert!(matches!(read(early), Err(AnswerError::Call(12))));
        let mut silent = answered(0, None);
        silent.trailers = None;
        assert!(matches!(read(silent), Err(AnswerError::NotGrpc)));
        let page = AuthorizerResponse { status: 404, ..Default::default() };
        assert!(matches!(read(page), Err(AnswerError::Status(404))));
        let mut torn = answered(0, None);
        torn.body.pop();
        assert!(matches!(read(torn), Err(AnswerError::NotGrpc)));
    }
}
