//! gRPC reply: what a gRPC client gets instead of a refusal of the gateway.
//!
//! A gRPC client reads a status from trailers, not the status of HTTP. For a response without one it
//! makes up a status from that of HTTP, and hides the text (gRPC's HTTP/2 protocol mapping).
//!
//! Owns: which requests are gRPC calls, which of their refusals get a gRPC status, and which one.
//! Does not own: the refusals ([`crate::refusal`]), calls to the gateway itself
//! ([`crate::ext_authz`]).
//!
//! Such a response has the HTTP status 200. To a proxy that checks a request here, that would be a
//! permission, and the client chooses the content type of its request. So nothing that could be a
//! check gets one: only requests to routes that forward, on listeners that forward, that look like
//! calls in every respect. `TE` in particular is not passed on by proxies.

use std::fmt::Write as _;

use http::header::{CONTENT_TYPE, TE};
use http::{Method, request::Parts};
use http_engine::local_reply::LocalReply;
use serde::Deserialize;

use crate::config::Route;
use crate::peer::Peer;
use crate::refusal::NO_BACKEND;

/// Fields that belong to the body of a refusal, which a gRPC client does not get.
const BODY_FIELDS: [&str; 4] =
    ["content-type", "content-length", "content-language", "x-content-type-options"];

/// The content of `grpc-status` and `grpc-message`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GrpcStatus {
    pub(crate) code: u8,
    /// Percent-encoded.
    pub(crate) message: String,
}

/// Whether a request is a gRPC call to a service behind the gateway.
pub(crate) fn is_call(peer: &Peer, head: &Parts) -> bool {
    peer.listener().service.authorization().is_none()
        && head.method == Method::POST
        && head.headers.get(CONTENT_TYPE).is_some_and(|content_type| is_grpc(content_type.as_bytes()))
        && head.headers.get(TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// Whether refusals of a call to this route get a gRPC status.
pub(crate) fn applies_to(route: &Route) -> bool {
    route.destination.is_some() && !route.is_login_auth
}

/// Whether the content type is that of a gRPC call, in any encoding of its messages. gRPC-Web, which
/// is not gRPC, has its own.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.get(..16).filter(|start| start.eq_ignore_ascii_case(b"application/grpc"));
    rest.is_some() && matches!(content_type.get(16), None | Some(b'+' | b';'))
}

/// Whether a field of a refusal is sent to a gRPC client.
pub(crate) fn passes(name: &str) -> bool {
    !BODY_FIELDS.iter().any(|field| field.eq_ignore_ascii_case(name))
}

/// The gRPC status of a reply; `None`: the reply is no error.
pub(crate) fn status(reply: &LocalReply) -> Option<GrpcStatus> {
    let code = match (reply.status, reply.code) {
        (..400, _) => return None,
        // As clients map the status of HTTP, but for an invalid backend: the Gateway API requires
        // UNAVAILABLE for it, also with 500.
        (400, _) => 13,
        (401, _) => 16,
        (403, _) => 7,
        (404, _) => 12,
        (_, NO_BACKEND) | (429 | 502 | 503 | 504, _) => 14,
        _ => 2,
    };
    Some(GrpcStatus { code, message: percent_encoded(&text(reply)) })
}

/// The text of a problem document; the code of any other reply.
fn text(reply: &LocalReply) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let is_problem = reply
        .fields
        .iter()
        .any(|(name, value)| name == "content-type" && value == "application/problem+json");
    let problem = if is_problem { serde_json::from_slice::<Problem>(&reply.body).ok() } else { None };
    problem.map_or_else(|| reply.code.to_owned(), |problem| format!("{}: {}", reply.code, problem.detail))
}

/// The encoding of `grpc-message`: visible ASCII and spaces, without `%`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;

    #[test]
    fn calls_are_recognized_by_their_content_type() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC+json", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grp", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), expected, "{content_type}");
        }
    }

    #[test]
    fn each_refusal_has_a_status() {
        let of = |refusal: &Refusal| status(&refusal.answer("postern", None, "0af7")).unwrap();
        let no_route = of(&Refusal::NoRoute);
        assert_eq!(
            (no_route.code, no_route.message.as_str()),
            (12, "no_route: no route for this host and path")
        );
        for (refusal, code) in [
            (Refusal::Denied(auth::decide::Denial::Unauthenticated), 16),
            (Refusal::UpgradeRefused, 7),
            (Refusal::NoBackend(500), 14),
            (Refusal::NoBackend(503), 14),
            (Refusal::Overloaded, 14),
            (Refusal::UpstreamUnreachable, 14),
            (Refusal::RequestTimeout, 14),
            (Refusal::Body, 13),
            (Refusal::BodyTooLarge, 2),
        ] {
            assert_eq!(of(&refusal).code, code, "{refusal:?}");
        }
    }

    #[test]
    fn texts_are_encoded() {
        let reply = Refusal::UpgradeRefused.answer("postern", Some("50 % für\nAda"), "0af7");
        assert_eq!(status(&reply).unwrap().message, "upgrade_refused: 50 %25 f%C3%BCr Ada");
        let plain = LocalReply::from_code(503, "busy", http_engine::labels::Outcome::Overloaded);
        assert_eq!(status(&plain).unwrap(), GrpcStatus { code: 14, message: "busy".into() });
        let fine = LocalReply::document("text/plain", "no-store", Vec::new());
        assert_eq!(status(&fine), None);
    }
}
