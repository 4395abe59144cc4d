//! Envoy's external authorization over gRPC (`envoy.service.auth.v3.Authorization`).
//!
//! Owns: the service's one method on an HTTP/2 stream, and the gRPC health check. Does not own: the
//! messages ([`crate::envoy_authz`]), the stream's codec ([`crate::serve::http2`]), the decision, the content of a permitting response
//! ([`crate::auth_response`]).
//!
//! Flow: `grpc::message → CheckRequest → ParsedRequest → pipeline::admit → CheckResponse →
//! Client::reply`.
//!
//! Every answer has gRPC status OK, a denial too. Envoy treats any other status as a failure, which
//! it answers as configured, 403 by default. For the same reason an unavailable token authority is
//! a 503 in a `CheckResponse`. It is sent before Envoy's own deadline, which the call carries.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use auth::headers::Repeats;
use auth::identity::Identity;
use auth::request::{Field, Scheme};
use bytes::Bytes;
use http_engine::head::{Fields, Framing};
use http_engine::local_reply::LocalReply;
use http_engine::parsed_request::ParsedRequest;
use prost::Message as _;

use crate::auth_response::{AuthResponse, fields_to_remove};
use crate::envoy_authz::message::{
    self, APPEND, CheckRequest, CheckResponse, DeniedResponse, HeaderValue, HeaderValueOption, HttpResponse,
    HttpStatus, OVERWRITE, OkResponse, Status, Struct, Value,
};
use crate::envoy_authz::{CHECK, grpc};
use crate::record::RequestRecord;
use crate::worker::ActiveConfig;

/// Path of the standard health check (`grpc.health.v1`).
const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// The message `HealthCheckResponse { status: SERVING }`.
const SERVING: &[u8] = &[0x08, 0x01];
/// Maximum bytes of a check: a request head, and the body that some configurations add and the
/// gateway ignores.
pub(crate) const MAX_QUESTION: usize = 256 << 10;

/// A method of this gRPC service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckCall {
    /// Check whether a request may pass.
    Check,
    /// Check whether this service is healthy.
    Health,
}

/// The method with this path; `None`: there is none.
pub(crate) fn call(path: &str) -> Option<CheckCall> {
    match path {
        CHECK => Some(CheckCall::Check),
        HEALTH => Some(CheckCall::Health),
        _ => None,
    }
}

/// The response of a healthy service.
pub(crate) fn serving() -> Bytes {
    Bytes::from_static(SERVING)
}

/// A received check, in a form that the pipeline reads.
pub(crate) struct CheckQuestion(CheckRequest);

/// Why a check cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CheckError {
    /// The bytes are not a `CheckRequest`.
    #[error("not a CheckRequest")]
    Message,
    /// The `CheckRequest` is not about an HTTP request.
    #[error("the CheckRequest has no attributes.request.http")]
    NoHttp,
    /// A text is not UTF-8. Envoy once passed such texts on (CVE-2024-23324); a text that another
    /// parser could read differently is refused.
    #[error("a text of the CheckRequest is not UTF-8")]
    NotText,
    /// The original request has more fields than allowed.
    #[error("the request has too many fields")]
    TooManyFields,
}

impl CheckQuestion {
    /// Decodes a message.
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, CheckError> {
        let request = CheckRequest::decode(bytes).map_err(|_| CheckError::Message)?;
        let question = Self(request);
        question.http().ok_or(CheckError::NoHttp)?;
        Ok(question)
    }

    fn http(&self) -> Option<&message::HttpRequest> {
        self.0.attributes.as_ref()?.request.as_ref()?.http.as_ref()
    }

    /// The original request's fields: as Envoy received them when it sends them raw, otherwise
    /// joined by name.
    pub(crate) fn fields(&self, most: usize) -> Result<Fields<'_>, CheckError> {
        let http = self.http().ok_or(CheckError::NoHttp)?;
        let mut fields = Fields::new();
        let raw = http.header_map.iter().flat_map(|map| &map.headers).map(|header| {
            // Only one of the two is set.
            (&header.key, if header.raw_value.is_empty() { &header.value } else { &header.raw_value })
        });
        let joined = http.headers.iter().map(|entry| (&entry.key, &entry.value));
        for (_, value) in joined.clone() {
            text(value)?;
        }
        for (name, value) in raw.chain(joined) {
            let name = text(name)?;
            // Pseudo-header fields have message fields of their own.
            if name.starts_with(':') {
                continue;
            }
            if fields.len() >= most {
                return Err(CheckError::TooManyFields);
            }
            let field = Field { name, value };
            fields.try_push(field).map_err(|_| CheckError::TooManyFields)?;
        }
        Ok(fields)
    }

    /// The original request with these fields.
    pub(crate) fn original_request<'a>(
        &'a self,
        fields: &'a [Field<'a>],
    ) -> Result<ParsedRequest<'a>, CheckError> {
        let http = self.http().ok_or(CheckError::NoHttp)?;
        let scheme = match &*http.scheme {
            b"https" => Scheme::Https,
            _ => Scheme::Http,
        };
        Ok(ParsedRequest {
            method: text(&http.method)?,
            scheme,
            authority: Some(&http.host),
            host: None,
            target: &http.path,
            fields,
            framing: Framing::Length(0),
            has_length: false,
            upgrade: None,
            nominates: false,
            via: "2.0 postern",
            is_original: true,
            repeats: if http.header_map.is_some() { Repeats::Separate } else { Repeats::Joined },
            block: None,
            client: self.client(),
        })
    }

    /// The address of the client, for the log.
    fn client(&self) -> Option<std::net::IpAddr> {
        let source = self.0.attributes.as_ref()?.source.as_ref()?;
        let address = source.address.as_ref()?.socket_address.as_ref()?;
        std::str::from_utf8(&address.address).ok()?.parse().ok()
    }
}

fn text(bytes: &Bytes) -> Result<&str, CheckError> {
    std::str::from_utf8(bytes).map_err(|_| CheckError::NotText)
}

/// The response that permits the request.
pub(crate) fn allowed(
    voucher: AuthResponse,
    running: &Rc<ActiveConfig>,
    fields: &[Field<'_>],
    record: &mut RequestRecord,
) -> Bytes {
    let set: Vec<&str> = voucher.set.iter().map(|(name, _)| &**name).collect();
    let (mut remove, claimed) =
        fields_to_remove(&running.config, running.config.route(voucher.route), &set, fields);
    record.headers_removed = claimed;
    let mut set: Vec<_> =
        voucher.set.into_iter().map(|(name, value)| overwriting_field(&name, value)).collect();
    match voucher.cookies {
        Some(left) if left.is_empty() => remove.push("cookie".to_owned()),
        Some(left) => set.push(overwriting_field("cookie", left.into())),
        None => {}
    }
    let identity = voucher.caller.as_ref().map(|caller| &caller.facts.identity);
    let response = CheckResponse {
        status: Some(Status { code: grpc::OK, message: String::new() }),
        dynamic_metadata: identity.map(metadata),
        http_response: Some(HttpResponse::Ok(OkResponse {
            headers: set,
            headers_to_remove: remove,
            response_headers_to_add: match record.renewed_cookie() {
                // A shared cache must not store a response that contains a session cookie.
                Some(cookie) => {
                    vec![
                        appended_field("set-cookie", cookie.to_owned().into()),
                        appended_field("cache-control", "private".into()),
                    ]
                }
                None => Vec::new(),
            },
        })),
    };
    response.encode_to_vec().into()
}

/// The response that makes Envoy send this reply to the client.
pub(crate) fn denied(answer: &LocalReply, cookie: Option<&str>) -> Bytes {
    let code = match answer.status {
        401 => grpc::UNAUTHENTICATED,
        503 => grpc::UNAVAILABLE,
        _ => grpc::PERMISSION_DENIED,
    };
    let response = CheckResponse {
        status: Some(Status { code, message: answer.code.to_owned() }),
        dynamic_metadata: None,
        http_response: Some(HttpResponse::Denied(DeniedResponse {
            status: Some(HttpStatus { code: answer.status.into() }),
            // Login and sign-out set several cookies.
            headers: answer
                .fields
                .iter()
                .map(|(name, value)| denied_field(name, value.clone()))
                .chain(cookie.map(|cookie| appended_field("set-cookie", cookie.to_owned().into())))
                .collect(),
            body: String::from_utf8_lossy(&answer.body).into_owned(),
        })),
    };
    response.encode_to_vec().into()
}

fn denied_field(name: &str, value: Cow<'static, str>) -> HeaderValueOption {
    // There may be a challenge for each scheme.
    if name.eq_ignore_ascii_case("set-cookie") || name.eq_ignore_ascii_case("www-authenticate") {
        appended_field(name, value)
    } else {
        overwriting_field(name, value)
    }
}

fn overwriting_field(name: &str, value: Cow<'static, str>) -> HeaderValueOption {
    let header = HeaderValue { key: name.to_ascii_lowercase(), value: value.into_owned() };
    HeaderValueOption { header: Some(header), append_action: OVERWRITE }
}

/// Adds the field beside existing ones of that name: cookies of other services must stay.
fn appended_field(name: &str, value: Cow<'static, str>) -> HeaderValueOption {
    HeaderValueOption { append_action: APPEND, ..overwriting_field(name, value) }
}

/// The caller's identity, for Envoy's logs and further filters.
fn metadata(identity: &Identity) -> Struct {
    let list = |list: &[Box<str>]| Value::list(list.iter().map(std::string::ToString::to_string));
    let one = |name: &str, text: &Option<Box<str>>| {
        text.as_deref().map(|text| (name.to_owned(), Value::text(text)))
    };
    let mut fields = vec![
        ("subject".to_owned(), Value::text(&identity.subject)),
        ("issuer".to_owned(), Value::text(&identity.issuer)),
        ("credential".to_owned(), Value::text(identity.kind.as_str())),
        ("groups".to_owned(), list(&identity.groups)),
        ("scopes".to_owned(), list(&identity.scopes)),
    ];
    fields.extend(one("user", &identity.user));
    fields.extend(one("email", &identity.email));
    fields.extend(one("client", &identity.client));
    Struct::of(fields)
}

/// The part of the call's deadline that may be spent on waiting, so that the response still arrives
/// in time.
pub(crate) fn wait_limit(timeout: Option<Duration>) -> Option<Duration> {
    timeout.map(|timeout| timeout / 8 * 7)
}
