//! Every refusal of the provider and the one table that says what becomes of it.
//!
//! Owns: [`Fault`], which tells *us* precisely what happened (its `Display` goes to the log), and
//! [`Fault::row`], which tells what the *caller* learns: status, protocol code (RFC 6749 §5.2, RFC 8707 §2),
//! public text, and how loud the log line is.
//! Does not own: sending and logging ([`crate::endpoint::answer`]).
//!
//! An unknown client and a wrong secret differ in the log and nowhere else.

use std::{borrow::Cow, time::Duration};

use axum::http::StatusCode;

use super::{form::FormFault, scope::ScopeFault, target::MAX_TARGETS};
use crate::{
    authorization::request::{AddressFault, RequestFault},
    client::secret::SecretDigest,
    passwords::PoolError,
};

/// One reason not to do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OAuthFault {
    /// No such path.
    #[error("no such endpoint")]
    NotFound,
    /// The path exists, with other methods.
    #[error("method not allowed here")]
    MethodNotAllowed,
    /// The body is not declared as a form, once.
    #[error("content type is not application/x-www-form-urlencoded")]
    NotForm,
    /// The URL has a query.
    #[error("the token endpoint was called with a query in its url")]
    QueryParameters,
    /// The body is over the cap.
    #[error("request body over the size limit")]
    BodyTooLarge,
    /// The body did not arrive before the deadline.
    #[error("request body not received in time")]
    BodyTimeout,
    /// The connection broke inside the body.
    #[error("request body broke off")]
    BodyBroken,
    /// The body is no acceptable form.
    #[error("malformed form: {0}")]
    Form(FormFault),
    /// A `grant_type` that the provider does not have; holds at most 64 characters of it.
    #[error("grant type {0:?} is not supported")]
    GrantUnsupported(Box<str>),
    /// Two `Authorization` fields.
    #[error("more than one authorization header field")]
    AuthorizationRepeated,
    /// Two ways of client authentication at once (RFC 6749 §2.3).
    #[error("more than one client authentication method")]
    AuthenticationRepeated,
    /// `client_id` in the body is not the authenticated one.
    #[error("client_id in the body differs from the authorization header")]
    ClientIdMismatch,
    /// No credentials at all, or an id without a secret.
    #[error("no client authentication")]
    AuthenticationMissing,
    /// An authentication scheme or method the provider does not have.
    #[error("client authentication method is not supported")]
    AuthenticationUnsupported,
    /// `Basic` credentials that cannot be decoded.
    #[error("malformed basic credentials")]
    AuthenticationMalformed,
    /// No client has this id; holds it, fit for a log (see [`Fault::client_unknown`]).
    #[error("unknown client {0}")]
    ClientUnknown(Box<str>),
    /// The client exists, the secret is not one of its own; holds its id.
    #[error("wrong secret for client {0:?}")]
    ClientSecretWrong(Box<str>),
    /// A client assertion that does not count; holds why.
    #[error("client assertion refused: {0}")]
    AssertionRefused(&'static str),
    /// The client exists and may not use this grant.
    #[error("client may not use this grant")]
    GrantNotAllowed,
    /// The client may not do what only some clients may; holds what.
    #[error("client may not {0}")]
    ClientNotAllowed(&'static str),
    /// A parameter that the request needs; holds its name.
    #[error("{0} is missing")]
    ParameterMissing(&'static str),
    /// What should be redeemed is not (any more) worth anything; holds why.
    #[error("grant refused: {0}")]
    GrantInvalid(&'static str),
    /// What may be redeemed once was redeemed before; holds what it is. All that followed from it is revoked.
    #[error("{0} redeemed again: its family is revoked")]
    Replayed(&'static str),
    /// User name or password is wrong.
    #[error("wrong user name or password")]
    LoginFailed,
    /// Too many wrong passwords.
    #[error("account or network locked for {} s", .0.as_secs())]
    LoginLocked(Duration),
    /// Nobody has decided about the device yet (RFC 8628 §3.5).
    #[error("authorization pending")]
    AuthorizationPending,
    /// The device asks too often (RFC 8628 §3.5).
    #[error("device asks too often")]
    SlowDown,
    /// The person said no.
    #[error("denied by the user")]
    AccessDenied,
    /// The device code has expired (RFC 8628 §3.5).
    #[error("device code expired")]
    DeviceCodeExpired,
    /// An authorization request that is pushed is refused (RFC 9126 §2.3).
    #[error("authorization request refused: {0}")]
    Request(RequestFault),
    /// An authorization request that is pushed has no good address.
    #[error("authorization request refused: {0}")]
    Address(AddressFault),
    /// `wait` of a revocation is no truth value.
    #[error("wait is neither true nor false")]
    WaitMalformed,
    /// `scope` is not in the grammar.
    #[error("malformed scope: {0}")]
    ScopeMalformed(ScopeFault),
    /// A scope that the client does not have.
    #[error("client may not have scope {0:?}")]
    ScopeNotAllowed(Box<str>),
    /// A `resource` or `audience` that is not in the grammar.
    #[error("malformed resource or audience")]
    TargetMalformed,
    /// A `resource` or `audience` that the client may not name; holds it as sent.
    #[error("client may not name target {0:?}")]
    TargetNotAllowed(Box<str>),
    /// More than [`MAX_TARGETS`] of them.
    #[error("more than {MAX_TARGETS} resources and audiences")]
    TargetsTooMany,
    /// The database refused what was asked: ours; holds what it said.
    #[error("{0}")]
    Store(String),
    /// The database does not answer or has no room, of which the store has told in the log; holds what it said.
    #[error("{0}")]
    StoreAway(String),
    /// The password threads are busy.
    #[error("too many passwords are waiting")]
    PasswordsBusy(Duration),
    /// A password could not be verified: ours; holds why.
    #[error("{0}")]
    PasswordsFailed(String),
    /// The random source failed: ours.
    #[error("the random source failed")]
    EntropyFailed,
    /// The signature could not be made: ours.
    #[error("signing failed")]
    SigningFailed,
}

/// How loud a fault is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// A caller's slip, of interest to its developer; or what has a line of its own.
    Debug,
    /// Worth counting.
    Info,
    /// Somebody may be trying doors.
    Warn,
    /// The provider itself is broken.
    Error,
}

/// What becomes of a [`Fault`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// HTTP status.
    pub status: StatusCode,
    /// The `error` member (RFC 6749 §5.2).
    pub code: &'static str,
    /// Level of the log line.
    pub loudness: Loudness,
    /// The `error_description` member: constant, so that nothing of the request is ever reflected.
    pub text: Cow<'static, str>,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

/// When those try again whom the database could not serve.
const STORE_RETRY: Duration = Duration::from_secs(1);

impl OAuthFault {
    /// An id that no client has. People do swap id and secret, so one that could be a secret is withheld.
    pub fn client_unknown(id: &str) -> Self {
        Self::ClientUnknown(match SecretDigest::check(id) {
            Ok(()) => "(withheld: the id sent looks like a secret)".into(),
            Err(_) => format!("{:?}", id.chars().take(64).collect::<String>()).into(),
        })
    }

    /// The table.
    #[rustfmt::skip]
    pub fn row(&self) -> Row {
        use Loudness::{Debug, Error, Info, Warn};
        let row = |status, code, loudness, text: &'static str| Row { status, code, loudness, text: text.into(), retry_after: None };
        let later = |row: Row, after| Row { retry_after: Some(after), ..row };
        let bad = StatusCode::BAD_REQUEST;
        let unauthorized = StatusCode::UNAUTHORIZED;
        match self {
            Self::NotFound => row(StatusCode::NOT_FOUND, "invalid_request", Debug, "no such endpoint"),
            Self::MethodNotAllowed => row(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", Debug, "method not allowed: see the Allow header"),
            Self::NotForm => row(bad, "invalid_request", Debug, "send parameters as application/x-www-form-urlencoded in utf-8, with that content type"),
            Self::QueryParameters => row(bad, "invalid_request", Info, "parameters belong into the body, not into the url"),
            Self::BodyTooLarge => row(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request", Info, "the body is larger than 64 KiB"),
            Self::BodyTimeout => row(StatusCode::REQUEST_TIMEOUT, "invalid_request", Info, "the body did not arrive in time"),
            Self::BodyBroken => row(bad, "invalid_request", Debug, "the body broke off"),
            Self::Form(FormFault::Duplicate(_)) => row(bad, "invalid_request", Info, "a parameter was sent more than once"),
            Self::Form(FormFault::TooMany) => row(bad, "invalid_request", Info, "too many parameters"),
            Self::Form(FormFault::NoName) => row(bad, "invalid_request", Debug, "a parameter has no name"),
            Self::Form(FormFault::Escape | FormFault::RawByte) => row(bad, "invalid_request", Debug, "the body is not percent-encoded correctly"),
            Self::Form(FormFault::Utf8 | FormFault::Control) => row(bad, "invalid_request", Info, "a parameter is not utf-8 text or has control characters"),
            Self::GrantUnsupported(_) => row(bad, "unsupported_grant_type", Info, "the grant type is not supported: see grant_types_supported in the discovery document"),
            Self::AuthorizationRepeated => row(bad, "invalid_request", Info, "more than one Authorization header field"),
            Self::AuthenticationRepeated => row(bad, "invalid_request", Info, "more than one client authentication method: use exactly one"),
            Self::ClientIdMismatch => row(bad, "invalid_request", Info, "client_id in the body differs from the Authorization header"),
            Self::AuthenticationMissing => row(unauthorized, "invalid_client", Info, "client authentication is required"),
            Self::AuthenticationUnsupported => row(unauthorized, "invalid_client", Info, "the client authentication method is not supported: see token_endpoint_auth_methods_supported in the discovery document"),
            Self::AuthenticationMalformed => row(unauthorized, "invalid_client", Info, "the Basic credentials are malformed: form-encode id and secret, join them by a colon, then base64"),
            Self::ClientUnknown(_) | Self::ClientSecretWrong(_) | Self::AssertionRefused(_) => row(unauthorized, "invalid_client", Warn, "client authentication failed"),
            Self::ClientNotAllowed(_) => row(StatusCode::FORBIDDEN, "unauthorized_client", Warn, "this client may not do that"),
            Self::ParameterMissing(_) => row(bad, "invalid_request", Debug, "a parameter that this request needs is missing"),
            Self::GrantInvalid(_) => row(bad, "invalid_grant", Info, "the code or token is expired, revoked, of another client, or does not fit the request"),
            Self::Replayed(_) => row(bad, "invalid_grant", Warn, "the code or token is expired, revoked, of another client, or does not fit the request"),
            Self::LoginFailed => row(bad, "invalid_grant", Info, "user name or password is not right"),
            Self::LoginLocked(after) => later(row(StatusCode::TOO_MANY_REQUESTS, "invalid_grant", Warn, "too many attempts: try again later"), *after),
            Self::AuthorizationPending => row(bad, "authorization_pending", Debug, "nobody has decided yet: ask again after the interval"),
            Self::SlowDown => row(bad, "slow_down", Debug, "ask less often: five seconds more between two requests"),
            Self::AccessDenied => row(bad, "access_denied", Info, "the user said no"),
            Self::DeviceCodeExpired => row(bad, "expired_token", Debug, "the device code has expired: begin again"),
            Self::Request(fault) => Row { text: fault.to_string().into(), ..row(bad, fault.code(), Info, "") },
            Self::Address(fault) => Row { text: fault.to_string().into(), ..row(bad, "invalid_request", Info, "") },
            Self::Store(_) => later(row(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", Error, "the provider cannot reach its database: try again later"), STORE_RETRY),
            Self::StoreAway(_) => later(row(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", Debug, "the provider cannot reach its database: try again later"), STORE_RETRY),
            Self::PasswordsBusy(after) => later(row(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", Warn, "too many logins at once: try again later"), *after),
            Self::GrantNotAllowed => row(bad, "unauthorized_client", Warn, "this client may not use this grant type"),
            Self::WaitMalformed => row(bad, "invalid_request", Debug, "wait is true or false, or absent"),
            Self::ScopeMalformed(ScopeFault::TooMany) => row(bad, "invalid_scope", Info, "too many scopes"),
            Self::ScopeMalformed(ScopeFault::Empty | ScopeFault::Character | ScopeFault::TooLong) => row(bad, "invalid_scope", Debug, "scope is malformed: scopes are words separated by one space"),
            Self::ScopeNotAllowed(_) => row(bad, "invalid_scope", Info, "a scope is unknown or not granted to this client"),
            Self::TargetMalformed => row(bad, "invalid_target", Debug, "resource is an absolute uri without fragment, audience a name of visible ascii"),
            Self::TargetNotAllowed(_) => row(bad, "invalid_target", Info, "a resource or audience is unknown or not granted to this client"),
            Self::TargetsTooMany => row(bad, "invalid_target", Info, "too many resources or audiences"),
            Self::PasswordsFailed(_) | Self::EntropyFailed | Self::SigningFailed => row(StatusCode::INTERNAL_SERVER_ERROR, "server_error", Error, "the provider failed: try again later"),
        }
    }
}

impl From<FormFault> for OAuthFault {
    fn from(fault: FormFault) -> Self {
        Self::Form(fault)
    }
}

impl From<ScopeFault> for OAuthFault {
    fn from(fault: ScopeFault) -> Self {
        Self::ScopeMalformed(fault)
    }
}

impl From<store::StoreError> for OAuthFault {
    fn from(error: store::StoreError) -> Self {
        let text = error.to_string();
        if error.is_outage() { Self::StoreAway(text) } else { Self::Store(text) }
    }
}

impl From<PoolError> for OAuthFault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Busy { retry_after } => Self::PasswordsBusy(retry_after),
            PoolError::Stopped | PoolError::Crashed | PoolError::Hash(_) => {
                Self::PasswordsFailed(error.to_string())
            }
        }
    }
}

impl From<crate::EntropyFailed> for OAuthFault {
    fn from(_: crate::EntropyFailed) -> Self {
        Self::EntropyFailed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<OAuthFault> {
        use OAuthFault::*;
        let forms = [
            FormFault::Escape,
            FormFault::RawByte,
            FormFault::Utf8,
            FormFault::Control,
            FormFault::NoName,
            FormFault::TooMany,
            FormFault::Duplicate("x".into()),
        ];
        let scopes = [ScopeFault::Empty, ScopeFault::Character, ScopeFault::TooLong, ScopeFault::TooMany];
        let mut all = vec![
            NotFound,
            MethodNotAllowed,
            NotForm,
            QueryParameters,
            BodyTooLarge,
            BodyTimeout,
            BodyBroken,
            GrantUnsupported("x".into()),
            AuthorizationRepeated,
            AuthenticationRepeated,
            ClientIdMismatch,
            AuthenticationMissing,
            AuthenticationUnsupported,
            AuthenticationMalformed,
            ClientUnknown("x".into()),
            ClientSecretWrong("x".into()),
            GrantNotAllowed,
            ScopeNotAllowed("x".into()),
            WaitMalformed,
            TargetMalformed,
            TargetNotAllowed("x".into()),
            TargetsTooMany,
            EntropyFailed,
            SigningFailed,
            AssertionRefused("x"),
            ClientNotAllowed("x"),
            ParameterMissing("x"),
            GrantInvalid("x"),
            Replayed("x"),
            LoginFailed,
            LoginLocked(Duration::from_secs(1)),
            AuthorizationPending,
            SlowDown,
            AccessDenied,
            DeviceCodeExpired,
            Request(RequestFault::Prompt),
            Address(AddressFault::Missing),
            Store("x".into()),
            StoreAway("x".into()),
            PasswordsBusy(Duration::from_secs(1)),
            PasswordsFailed("x".into()),
        ];
        all.extend(forms.map(Form));
        all.extend(scopes.map(ScopeMalformed));
        all
    }

    #[test]
    fn public_texts_fit_the_grammar_of_error_description() {
        for fault in every() {
            let row = fault.row();
            let fits = |b: u8| matches!(b, 0x20..=0x21 | 0x23..=0x5b | 0x5d..=0x7e);
            assert!(!row.text.is_empty() && row.text.bytes().all(fits), "{fault:?}");
        }
    }

    #[test]
    fn codes_and_statuses_agree() {
        for fault in every() {
            let row = fault.row();
            let expected: &[u16] = match row.code {
                "invalid_request" => &[400, 404, 405, 408, 413],
                "invalid_client" => &[401],
                "unauthorized_client" => &[400, 403],
                "unsupported_grant_type"
                | "invalid_scope"
                | "invalid_target"
                | "authorization_pending"
                | "slow_down"
                | "access_denied"
                | "expired_token" => &[400],
                "invalid_grant" => &[400, 429],
                "temporarily_unavailable" => &[503],
                "server_error" => &[500],
                other => panic!("{fault:?} has the unknown code {other}"),
            };
            assert!(expected.contains(&row.status.as_u16()), "{fault:?}");
        }
    }

    #[test]
    fn an_unknown_client_and_a_wrong_secret_say_the_same() {
        let (unknown, wrong) = (OAuthFault::client_unknown("a"), OAuthFault::ClientSecretWrong("a".into()));
        assert_eq!(unknown.row(), wrong.row());
        assert_ne!(unknown.to_string(), wrong.to_string(), "the log knows");
    }

    #[test]
    fn a_secret_sent_as_id_is_not_logged() {
        assert_eq!(OAuthFault::client_unknown("orders\n").to_string(), r#"unknown client "orders\n""#);
        let swapped = OAuthFault::client_unknown("KzJ4bXk0cGVyc2lzdGVudA").to_string();
        assert!(swapped.contains("withheld") && !swapped.contains("KzJ4"), "{swapped}");
        // too long to be one of ours, so shown, but not whole
        assert!(OAuthFault::client_unknown(&"x".repeat(1000)).to_string().len() < 100);
    }
}
