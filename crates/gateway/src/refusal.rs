//! Refusals: the one table of the error responses that the gateway sends itself.
//!
//! Owns: status, stable code, public text, challenge and outcome of each refusal. A text says what
//! the client can do next, and never which rule denied the request. Does not own: the wire form
//! ([`http_engine::local_reply`]), the decision, the upstream's responses.

use std::borrow::Cow;
use std::fmt::Write as _;

use auth::credential::CredentialFault;
use auth::decide::Denial;
use auth::policy::route::AmbiguousRoute;
use auth::request::Malformed;
use auth::token_error::TokenError;
use credentials::revocation::CutReason;
use http_engine::head::HeadFault;
use http_engine::http1::writing::put_decimal;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;
use http_engine::read_body::ReadBodyError;

use crate::foreign_page::ForeignAction;
use crate::forward_auth::OriginalRequestError;

/// The code of a request whose share has no upstream.
pub(crate) const NO_BACKEND: &str = "no_backend";

/// Why the gateway refuses a request.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The head is malformed or over a limit.
    Head(HeadFault),
    /// The head did not arrive in time.
    HeadTimeout,
    /// The request has no canonical form.
    Malformed(Malformed),
    /// The body does not match its declared coding.
    Body,
    /// The body is larger than the route allows.
    BodyTooLarge,
    /// The client stopped sending its body.
    ClientStalled,
    /// No route matches the request.
    NoRoute,
    /// The connection was opened for a host of another listener.
    Misdirected,
    /// No access policy applies to the route.
    NoPolicy,
    /// The credential is malformed or invalid; the code gives the reason.
    Credential {
        /// RFC 6750 §3.1 error, `invalid_request` or `invalid_token`.
        error: &'static str,
        /// Stable code for logs and metrics.
        code: &'static str,
        /// Text for the client.
        text: Cow<'static, str>,
    },
    /// The user name or the password of the request is wrong.
    WrongPassword,
    /// The policy denied the request.
    Denied(Denial),
    /// A token authority or issuer that is needed for the decision is unavailable.
    AuthUnavailable {
        /// Seconds after which the client should retry.
        retry_after: u64,
    },
    /// The route's authorizer gave no usable answer.
    AuthorizerUnavailable,
    /// The decision reads a field that the upstream could read differently; holds the field name.
    Ambiguous(Box<str>),
    /// The upstream could read the path as another one, which leads to another route; holds that
    /// path.
    AmbiguousPath(Box<str>),
    /// A forwarding field of a trusted proxy cannot be used.
    Forwarded {
        /// Name of the field.
        name: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A page of another site makes the browser do this with a credential that it sends
    /// automatically.
    ForeignOrigin(ForeignAction),
    /// A peer sends checks although it is not configured to.
    UntrustedPeer,
    /// The original request of a check cannot be determined.
    UnclearCheck(OriginalRequestError),
    /// The proxy that sent the check could pass on this field as one of ours; holds the field name.
    LookAlike(Box<str>),
    /// The upstream has reached its maximum number of requests.
    Overloaded,
    /// The route does not allow the protocol that the client wants to switch to.
    UpgradeRefused,
    /// The redirect of the route leads to the request itself.
    RedirectLoop,
    /// The share of the route's requests that this one belongs to has no upstream; holds the status.
    NoBackend(u16),
    /// No endpoint of the upstream could be reached.
    UpstreamUnreachable,
    /// All endpoints of the upstream fail their health checks.
    UpstreamUnhealthy,
    /// The upstream closed the connection before it responded.
    UpstreamClosed,
    /// The upstream's response cannot be framed.
    UpstreamProtocol,
    /// The upstream did not respond in time.
    UpstreamTimeout,
    /// The exchange took longer than the route allows.
    RequestTimeout,
}

impl Refusal {
    /// An invalid token, with the error code of RFC 6750 section 3.1.
    pub(crate) fn invalid_token(why: &TokenError) -> Self {
        Self::Credential { error: "invalid_token", code: why.code(), text: why.to_string().into() }
    }

    /// The route that guards the request cannot be determined.
    pub(crate) fn disputed(disputed: AmbiguousRoute) -> Self {
        match disputed {
            AmbiguousRoute::Path { other, .. } => Self::AmbiguousPath(other),
            AmbiguousRoute::Header(name) => Self::Ambiguous(name),
            AmbiguousRoute::Parameter(name) => Self::Denied(Denial::AmbiguousParameter { name }),
        }
    }

    /// The credential that authorized the exchange is no longer valid.
    pub(crate) fn authorization_lost(why: CutReason) -> Self {
        match why {
            CutReason::Revoked => Self::invalid_token(&TokenError::Revoked),
            CutReason::Unknown => Self::AuthUnavailable { retry_after: 1 },
            CutReason::Expired => Self::Denied(Denial::Expired),
        }
    }
}

impl From<ReadBodyError> for Refusal {
    fn from(error: ReadBodyError) -> Self {
        match error {
            ReadBodyError::TooLarge => Self::BodyTooLarge,
            ReadBodyError::Broken => Self::Body,
        }
    }
}

impl From<CredentialFault> for Refusal {
    fn from(fault: CredentialFault) -> Self {
        Self::Credential { error: fault.error(), code: fault.code(), text: fault.to_string().into() }
    }
}

impl Refusal {
    /// Whether a policy forbids the request to its caller.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Denied(denial) if denial.answer().status == 403)
    }

    /// The table's text for the client.
    pub(crate) fn text(&self) -> Cow<'static, str> {
        self.row().text
    }

    /// The response to send, as a problem document. `realm` is that of the challenge (RFC 9110
    /// §11.5), `detail` replaces the table's text for the client, `request_id` names the request in
    /// the log.
    pub(crate) fn answer(&self, realm: &str, detail: Option<&str>, request_id: &str) -> LocalReply {
        let row = self.row();
        let mut answer = LocalReply {
            status: row.status,
            code: row.code,
            outcome: row.outcome,
            fields: vec![
                ("content-type".into(), "application/problem+json".into()),
                ("cache-control".into(), "no-store".into()),
            ],
            body: problem(row.status, row.code, detail.unwrap_or(&row.text), request_id).into(),
            close: row.close,
        };
        if let Some(challenge) = self.challenge(realm) {
            answer.fields.push(("www-authenticate".into(), challenge.into()));
        }
        if let Some(seconds) = self.retry_after() {
            answer.fields.push(("retry-after".into(), seconds.to_string().into()));
        }
        answer
    }

    /// The table: status, code, outcome, text, and whether the connection must close.
    #[rustfmt::skip]
    #[allow(clippy::too_many_lines, reason = "a table with a row per refusal")]
    fn row(&self) -> Row {
        use Outcome as O;
        let (status, code, outcome, text, close): (u16, &'static str, O, Cow<'static, str>, bool) = match self {
            Self::Head(HeadFault::TooLarge | HeadFault::TooManyFields | HeadFault::TooManyOptions) =>
                (431, "head_too_large", O::TooLarge, "the request head has too many fields, options or bytes".into(), true),
            Self::Head(HeadFault::TargetTooLong) =>
                (414, "target_too_long", O::TooLarge, "the request target is too long".into(), true),
            Self::Head(HeadFault::Version) =>
                (505, "http_version", O::Malformed, "only HTTP/1.1, HTTP/1.0 and HTTP/2 are supported".into(), true),
            Self::Head(fault) =>
                (400, fault.code(), O::Malformed, fault.to_string().into(), true),
            Self::HeadTimeout =>
                (408, "head_timeout", O::Timeout, "the request head did not arrive in time".into(), true),
            Self::Malformed(fault) =>
                (fault.status(), fault.code(), O::Malformed, fault.to_string().into(), false),
            Self::Body =>
                (400, "malformed_body", O::Malformed, "the request body does not match its declared coding".into(), true),
            Self::BodyTooLarge =>
                (413, "body_too_large", O::TooLarge, "the request body is larger than allowed here".into(), true),
            Self::ClientStalled =>
                (408, "client_stalled", O::Timeout, "the request body did not arrive in time".into(), true),
            Self::NoPolicy =>
                (403, "no_policy", O::Forbidden, "no access policy applies to this route".into(), false),
            Self::NoRoute =>
                (404, "no_route", O::NoRoute, "no route for this host and path".into(), false),
            Self::Misdirected =>
                (421, "misdirected", O::NoRoute, "this connection was opened for another host: send the request over one of its own".into(), false),
            Self::Credential { error: "invalid_request", code, text } =>
                (400, code, O::Unauthenticated, text.clone(), false),
            Self::Credential { code, text, .. } =>
                (401, code, O::Unauthenticated, text.clone(), false),
            Self::WrongPassword =>
                (401, "wrong_password", O::Unauthenticated, "the user name or the password is wrong".into(), false),
            Self::Denied(denial) => {
                let answer = denial.answer();
                let outcome = match answer.status {
                    401 => O::Unauthenticated,
                    403 => O::Forbidden,
                    503 => O::AuthUnavailable,
                    _ => O::Malformed,
                };
                (answer.status, answer.code, outcome, answer.text.into(), false)
            }
            Self::AuthUnavailable { .. } =>
                (503, "auth_unavailable", O::AuthUnavailable, "the credential cannot be verified right now; try again later".into(), false),
            Self::AuthorizerUnavailable =>
                (503, "authorizer_unavailable", O::AuthUnavailable, "the authorizer is unavailable right now; try again later".into(), false),
            Self::Ambiguous(name) =>
                (400, "ambiguous_header", O::Malformed, format!("the header {name}, which decides about the request, is repeated, misspelt, or named by connection").into(), false),
            Self::AmbiguousPath(_) =>
                (400, "ambiguous_path", O::Malformed, "the service could read the path as another one, which has other rules".into(), false),
            Self::Forwarded { name, problem } =>
                (400, "forwarded_header", O::Malformed, format!("the header {name} of a proxy in front {problem}").into(), false),
            Self::ForeignOrigin(ForeignAction::WebSocket) =>
                (403, "foreign_origin", O::Forbidden, "pages of this origin may not open a websocket here".into(), false),
            Self::ForeignOrigin(ForeignAction::Request) =>
                (403, "foreign_origin", O::Forbidden, "pages of other sites may not send this request here".into(), false),
            Self::UntrustedPeer =>
                (403, "untrusted_peer", O::Forbidden, "this peer is not configured to send authorization checks".into(), false),
            Self::UnclearCheck(unclear) =>
                (400, "unclear_question", O::Malformed, unclear.to_string().into(), false),
            Self::LookAlike(name) =>
                (400, "identity_look_alike", O::Malformed, format!("the header {name} could be taken for an identity header").into(), false),
            Self::Overloaded =>
                (503, "overloaded", O::Overloaded, "too many requests in flight".into(), false),
            Self::UpgradeRefused =>
                (403, "upgrade_refused", O::Forbidden, "this protocol switch is not allowed here".into(), false),
            Self::RedirectLoop =>
                (508, "redirect_loop", O::UpstreamError, "the redirect configured here leads to this address".into(), false),
            Self::NoBackend(status) =>
                (*status, NO_BACKEND, O::UpstreamError, "no service is configured for this request".into(), false),
            Self::UpstreamUnreachable =>
                (502, "upstream_unreachable", O::UpstreamError, "the service cannot be reached".into(), false),
            Self::UpstreamUnhealthy =>
                (503, "upstream_unhealthy", O::UpstreamError, "the service is unhealthy right now; try again later".into(), false),
            Self::UpstreamClosed =>
                (502, "upstream_closed", O::UpstreamError, "the service closed the connection without an answer".into(), false),
            Self::UpstreamProtocol =>
                (502, "upstream_protocol", O::UpstreamError, "the service's answer is not valid HTTP".into(), false),
            Self::UpstreamTimeout =>
                (504, "upstream_timeout", O::Timeout, "the service did not answer in time".into(), false),
            Self::RequestTimeout =>
                (504, "request_timeout", O::Timeout, "the request took longer than allowed here".into(), false),
        };
        Row { status, code, outcome, text, close }
    }

    fn challenge(&self, realm: &str) -> Option<String> {
        let (error, text, scope) = match self {
            Self::Credential { error, text, .. } => (Some(*error), text.as_ref(), None),
            // Its credential is of another scheme, so the error is none of this one.
            Self::WrongPassword => (None, "", None),
            Self::Denied(denial) => {
                let answer = denial.answer();
                if !answer.challenge {
                    return None;
                }
                let scope = match denial {
                    Denial::InsufficientScope { needed } if !needed.is_empty() => Some(needed.as_ref()),
                    _ => None,
                };
                (answer.error, answer.text, scope)
            }
            _ => return None,
        };
        let mut challenge = format!("Bearer realm=\"{}\"", realm.replace(['"', '\\'], "_"));
        // Without credentials the challenge carries no error (RFC 6750 §3.1).
        if let Some(error) = error {
            // Writing to a string cannot fail.
            let _ = write!(challenge, ", error=\"{error}\", error_description=\"{}\"", quotable(text));
        }
        if let Some(scope) = scope {
            let _ = write!(challenge, ", scope=\"{scope}\"");
        }
        Some(challenge)
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::AuthUnavailable { retry_after } => Some((*retry_after).max(1)),
            Self::Overloaded | Self::AuthorizerUnavailable | Self::Denied(Denial::ReviewPending(_)) => {
                Some(1)
            }
            _ => None,
        }
    }
}

struct Row {
    status: u16,
    code: &'static str,
    outcome: Outcome,
    text: Cow<'static, str>,
    close: bool,
}

/// Asks for a user name and a password (RFC 7617 §2), before anything else: some clients read only
/// the first challenge.
pub(crate) fn challenge_basic(answer: &mut LocalReply, realm: &str) {
    let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", realm.replace(['"', '\\'], "_"));
    let is_challenge = |(name, _): &(Cow<'_, str>, Cow<'_, str>)| name == "www-authenticate";
    let at = answer.fields.iter().position(is_challenge).unwrap_or(answer.fields.len());
    answer.fields.insert(at, ("www-authenticate".into(), challenge.into()));
}

/// Replaces characters that an `error_description` may not contain (RFC 6750 §3).
fn quotable(text: &str) -> String {
    text.chars().map(|c| if matches!(c, ' '..='~') && c != '"' && c != '\\' { c } else { '\'' }).collect()
}

/// A problem document (RFC 9457), with the extension members `code` and `request_id`.
fn problem(status: u16, code: &str, text: &str, request_id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + code.len() + text.len() + request_id.len());
    out.extend_from_slice(b"{\"status\":");
    put_decimal(&mut out, status.into());
    for part in [",\"code\":\"", code, "\",\"detail\":\""] {
        out.extend_from_slice(part.as_bytes());
    }
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            // Bytes of longer characters are all above these.
            control if control < b' ' => out.push(b' '),
            other => out.push(other),
        }
    }
    for part in ["\",\"request_id\":\"", request_id, "\"}\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(refusal: &Refusal) -> String {
        let mut out = Vec::new();
        refusal.answer("postern", None, "0af7").put_http1(&mut out, false, None, None, None);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_credentials_are_challenged_without_an_error() {
        let text = wire(&Refusal::Denied(Denial::Unauthenticated));
        assert!(text.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{text}");
        assert!(text.contains("www-authenticate: Bearer realm=\"postern\"\r\n"), "{text}");
        assert!(text.contains("cache-control: no-store\r\n"), "{text}");
    }

    #[test]
    fn a_missing_scope_is_named() {
        let text = wire(&Refusal::Denied(Denial::InsufficientScope { needed: "read write".into() }));
        assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
        assert!(text.contains("error=\"insufficient_scope\""), "{text}");
        assert!(text.contains("scope=\"read write\""), "{text}");
    }

    #[test]
    fn an_unavailable_authority_is_503_with_retry_after() {
        let text = wire(&Refusal::AuthUnavailable { retry_after: 0 });
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.contains("retry-after: 1\r\n"), "{text}");
    }

    #[test]
    fn a_document_names_the_request_and_the_detail_of_its_route() {
        let denied = Refusal::Denied(Denial::InsufficientScope { needed: "read".into() });
        assert!(denied.is_forbidden() && !Refusal::Denied(Denial::Unauthenticated).is_forbidden());
        let reply = denied.answer("postern", Some("Ask \"IT\"\nfür Zugriff"), "0af7");
        assert_eq!(
            std::str::from_utf8(&reply.body).unwrap(),
            "{\"status\":403,\"code\":\"insufficient_scope\",\"detail\":\"Ask \\\"IT\\\" für Zugriff\",\"request_id\":\"0af7\"}\n"
        );
    }

    #[test]
    fn text_from_outside_cannot_leave_its_quotes() {
        let text = "a\"b\\c\r\nSet-Cookie: x";
        let refusal = Refusal::Credential { error: "invalid_token", code: "c", text: text.into() };
        let answer = wire(&refusal);
        assert!(!answer.contains("\r\nSet-Cookie"), "{answer}");
        assert!(answer.contains("error_description=\"a'b'c''Set-Cookie: x\""), "{answer}");
    }
}
