//! OAuth errors: every refusal of the provider, and the table that maps it to a response.
//!
//! Owns: [`OAuthFault`], whose `Display` is the precise reason for the log, and
//! [`OAuthFault::response`], which is what the client receives: status, protocol code (RFC 6749
//! §5.2, RFC 8707 §2), public text, and the log level.
//!
//! Does not own: sending and logging ([`crate::endpoint::answer`]).
//!
//! An unknown client and a wrong secret differ only in the log.

use std::{borrow::Cow, time::Duration};

use axum::http::StatusCode;

use super::{form::FormFault, scope::ScopeFault, target::TargetFault};
use crate::client_secret::SecretDigest;
use crate::oauth::request_fault::{AddressFault, RequestFault};
use crate::passwords::PoolError;

/// Reason why a request is refused or fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OAuthFault {
    /// There is no endpoint at this path.
    #[error("no such endpoint")]
    NotFound,
    /// The path exists, but not with this method.
    #[error("method not allowed here")]
    MethodNotAllowed,
    /// The body is not declared as a form exactly once.
    #[error("content type is not application/x-www-form-urlencoded")]
    NotForm,
    /// The URL has a query.
    #[error("request parameters in the URL")]
    QueryParameters,
    /// The body exceeds the size limit.
    #[error("request body over the size limit")]
    BodyTooLarge,
    /// The body did not arrive before the deadline.
    #[error("request body not received in time")]
    BodyTimeout,
    /// The connection broke during the body.
    #[error("request body incomplete")]
    BodyBroken,
    /// The body is not a valid form.
    #[error("malformed form: {0}")]
    Form(FormFault),
    /// The provider does not support this `grant_type`; holds its first 64 characters.
    #[error("grant type {0:?} is not supported")]
    GrantUnsupported(Box<str>),
    /// There are several `Authorization` fields.
    #[error("more than one authorization header field")]
    AuthorizationRepeated,
    /// Several methods of client authentication are used at once (RFC 6749 §2.3).
    #[error("more than one client authentication method")]
    AuthenticationRepeated,
    /// The `client_id` in the body is not that of the credentials.
    #[error("client_id in the body differs from the authorization header")]
    ClientIdMismatch,
    /// There are no credentials, or an id without a secret.
    #[error("no client authentication")]
    AuthenticationMissing,
    /// The provider does not support this authentication scheme or method.
    #[error("client authentication method is not supported")]
    AuthenticationUnsupported,
    /// The `Basic` credentials cannot be decoded.
    #[error("malformed basic credentials")]
    AuthenticationMalformed,
    /// No client has this id; holds it in a form for the log (see [`OAuthFault::client_unknown`]).
    #[error("unknown client {0}")]
    ClientUnknown(Box<str>),
    /// The client exists, but the secret is wrong; holds the client id.
    #[error("wrong secret for client {0:?}")]
    ClientSecretWrong(Box<str>),
    /// A client assertion is not valid; holds the reason.
    #[error("client assertion refused: {0}")]
    AssertionRefused(&'static str),
    /// The client may not use this grant.
    #[error("client may not use this grant")]
    GrantNotAllowed,
    /// The client may not use this operation; holds its name.
    #[error("client may not {0}")]
    ClientNotAllowed(&'static str),
    /// A required parameter is missing; holds its name.
    #[error("{0} is missing")]
    ParameterMissing(&'static str),
    /// The code or token to be redeemed is not valid; holds the reason.
    #[error("grant not valid: {0}")]
    GrantInvalid(&'static str),
    /// A code or token was redeemed a second time; holds its kind. Its family is revoked.
    #[error("{0} redeemed twice, family revoked")]
    Replayed(&'static str),
    /// The user name or the password is wrong.
    #[error("wrong user name or password")]
    LoginFailed,
    /// The account or network is locked after too many failures; holds the remaining time.
    #[error("account or network locked for {} s", .0.as_secs())]
    LoginLocked(Duration),
    /// The password is right, but the user must choose a new one first, in a browser.
    #[error("the user must choose a new password first")]
    PasswordChangeRequired,
    /// The user has not decided about the device yet (RFC 8628 §3.5).
    #[error("authorization pending")]
    AuthorizationPending,
    /// The device polls too often (RFC 8628 §3.5).
    #[error("device polls too often")]
    SlowDown,
    /// The user denied the request.
    #[error("denied by the user")]
    AccessDenied,
    /// The device code has expired (RFC 8628 §3.5).
    #[error("device code expired")]
    DeviceCodeExpired,
    /// A pushed authorization request is refused (RFC 9126 §2.3).
    #[error("authorization request refused: {0}")]
    Request(RequestFault),
    /// A pushed authorization request has no valid redirect URI.
    #[error("authorization request refused: {0}")]
    Address(AddressFault),
    /// The `wait` of a revocation is not a boolean.
    #[error("wait is neither true nor false")]
    WaitMalformed,
    /// The `scope` does not match the grammar.
    #[error("malformed scope: {0}")]
    ScopeMalformed(ScopeFault),
    /// The client may not have this scope.
    #[error("client may not have scope {0:?}")]
    ScopeNotAllowed(Box<str>),
    /// The `resource` and `audience` parameters are not valid.
    #[error("{0}")]
    Target(TargetFault),
    /// The client may not use this `resource` or `audience`; holds it as sent.
    #[error("client may not name target {0:?}")]
    TargetNotAllowed(Box<str>),
    /// The database refused a statement; holds its message.
    #[error("{0}")]
    Store(String),
    /// The database is unavailable or full; holds its message. The store has logged the outage.
    #[error("{0}")]
    StoreUnavailable(String),
    /// The queue of the password threads is full; holds when to try again.
    #[error("password queue full")]
    PasswordsBusy(Duration),
    /// A password could not be verified; holds the reason.
    #[error("{0}")]
    PasswordsFailed(String),
    /// The random source failed.
    #[error("random source failed")]
    EntropyFailed,
    /// A signature could not be made.
    #[error("signing failed")]
    SigningFailed,
}

/// Log level of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// A mistake of a client, of interest to its developer; or an event with a log line of its own.
    Debug,
    /// Worth counting, such as an expired token.
    Info,
    /// Possibly an attack.
    Warn,
    /// The provider failed.
    Error,
}

/// HTTP response and log level of an [`OAuthFault`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorResponse {
    /// HTTP status code.
    pub status: StatusCode,
    /// The `error` member (RFC 6749 §5.2).
    pub code: &'static str,
    /// Level of the log line.
    pub level: LogLevel,
    /// The `error_description` member. It is constant, so it never reflects parts of the request.
    pub text: Cow<'static, str>,
    /// When to try again (`Retry-After`).
    pub retry_after: Option<Duration>,
}

/// The `Retry-After` when the store fails.
const STORE_RETRY: Duration = Duration::from_secs(1);

impl OAuthFault {
    /// The fault for an unknown client id. Users sometimes swap id and secret, so an id that could
    /// be a secret is not logged.
    pub fn client_unknown(id: &str) -> Self {
        Self::ClientUnknown(match SecretDigest::check(id) {
            Ok(()) => "(withheld: the id sent looks like a secret)".into(),
            Err(_) => format!("{:?}", id.chars().take(64).collect::<String>()).into(),
        })
    }

    /// The table of responses.
    #[rustfmt::skip]
    pub fn response(&self) -> ErrorResponse {
        use LogLevel::{Debug, Error, Info, Warn};
        let row = |status, code, loudness, text: &'static str| ErrorResponse { status, code, level: loudness, text: text.into(), retry_after: None };
        let later = |row: ErrorResponse, after| ErrorResponse { retry_after: Some(after), ..row };
        let bad = StatusCode::BAD_REQUEST;
        let unauthorized = StatusCode::UNAUTHORIZED;
        match self {
            Self::NotFound => row(StatusCode::NOT_FOUND, "invalid_request", Debug, "no such endpoint"),
            Self::MethodNotAllowed => row(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", Debug, "method not allowed: see the Allow header"),
            Self::NotForm => row(bad, "invalid_request", Debug, "send parameters as application/x-www-form-urlencoded in utf-8, with that content type"),
            Self::QueryParameters => row(bad, "invalid_request", Info, "send parameters in the body, not in the URL"),
            Self::BodyTooLarge => row(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request", Info, "the body is larger than 64 KiB"),
            Self::BodyTimeout => row(StatusCode::REQUEST_TIMEOUT, "invalid_request", Info, "the body did not arrive in time"),
            Self::BodyBroken => row(bad, "invalid_request", Debug, "the body is incomplete"),
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
            Self::ClientNotAllowed(_) => row(StatusCode::FORBIDDEN, "unauthorized_client", Warn, "this client is not allowed to use this operation"),
            Self::ParameterMissing(_) => row(bad, "invalid_request", Debug, "a required parameter is missing"),
            Self::GrantInvalid(_) => row(bad, "invalid_grant", Info, "the code or token is expired, revoked, of another client, or does not fit the request"),
            Self::Replayed(_) => row(bad, "invalid_grant", Warn, "the code or token is expired, revoked, of another client, or does not fit the request"),
            Self::LoginFailed => row(bad, "invalid_grant", Info, "wrong user name or password"),
            Self::LoginLocked(after) => later(row(StatusCode::TOO_MANY_REQUESTS, "invalid_grant", Warn, "too many attempts: try again later"), *after),
            Self::PasswordChangeRequired => row(bad, "invalid_grant", Info, "the password must be changed: log in with a browser and choose a new one"),
            Self::AuthorizationPending => row(bad, "authorization_pending", Debug, "no decision yet: poll again after the interval"),
            Self::SlowDown => row(bad, "slow_down", Debug, "poll less often: add five seconds to the interval"),
            Self::AccessDenied => row(bad, "access_denied", Info, "denied by the user"),
            Self::DeviceCodeExpired => row(bad, "expired_token", Debug, "the device code has expired: start again"),
            Self::Request(fault) => ErrorResponse { text: fault.to_string().into(), ..row(bad, fault.code(), Info, "") },
            Self::Address(fault) => ErrorResponse { text: fault.to_string().into(), ..row(bad, "invalid_request", Info, "") },
            Self::Store(_) => later(row(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", Error, "the provider cannot reach its database: try again later"), STORE_RETRY),
            Self::StoreUnavailable(_) => later(row(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", Debug, "the provider cannot reach its database: try again later"), STORE_RETRY),
            Self::PasswordsBusy(after) => later(row(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", Warn, "too many logins at once: try again later"), *after),
            Self::GrantNotAllowed => row(bad, "unauthorized_client", Warn, "this client may not use this grant type"),
            Self::WaitMalformed => row(bad, "invalid_request", Debug, "wait is malformed: use true or false, or omit it"),
            Self::ScopeMalformed(ScopeFault::TooMany) => row(bad, "invalid_scope", Info, "too many scopes"),
            Self::ScopeMalformed(ScopeFault::Empty | ScopeFault::Character | ScopeFault::TooLong) => row(bad, "invalid_scope", Debug, "scope is malformed: scopes are words separated by one space"),
            Self::ScopeNotAllowed(_) => row(bad, "invalid_scope", Info, "a scope is unknown or not granted to this client"),
            Self::Target(TargetFault::Malformed) => row(bad, "invalid_target", Debug, "resource is an absolute uri without fragment, audience a name of visible ascii"),
            Self::TargetNotAllowed(_) => row(bad, "invalid_target", Info, "a resource or audience is unknown or not granted to this client"),
            Self::Target(TargetFault::TooMany) => row(bad, "invalid_target", Info, "too many resources or audiences"),
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

impl From<TargetFault> for OAuthFault {
    fn from(fault: TargetFault) -> Self {
        Self::Target(fault)
    }
}

impl From<store::StoreError> for OAuthFault {
    fn from(error: store::StoreError) -> Self {
        let text = error.to_string();
        if error.is_outage() { Self::StoreUnavailable(text) } else { Self::Store(text) }
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
            Target(TargetFault::Malformed),
            TargetNotAllowed("x".into()),
            Target(TargetFault::TooMany),
            EntropyFailed,
            SigningFailed,
            AssertionRefused("x"),
            ClientNotAllowed("x"),
            ParameterMissing("x"),
            GrantInvalid("x"),
            Replayed("x"),
            LoginFailed,
            LoginLocked(Duration::from_secs(1)),
            PasswordChangeRequired,
            AuthorizationPending,
            SlowDown,
            AccessDenied,
            DeviceCodeExpired,
            Request(RequestFault::Prompt),
            Address(AddressFault::Missing),
            Store("x".into()),
            StoreUnavailable("x".into()),
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
            let row = fault.response();
            let fits = |b: u8| matches!(b, 0x20..=0x21 | 0x23..=0x5b | 0x5d..=0x7e);
            assert!(!row.text.is_empty() && row.text.bytes().all(fits), "{fault:?}");
        }
    }

    #[test]
    fn codes_and_statuses_agree() {
        for fault in every() {
            let row = fault.response();
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
        assert_eq!(unknown.response(), wrong.response());
        assert_ne!(unknown.to_string(), wrong.to_string(), "the log knows");
    }

    #[test]
    fn a_secret_sent_as_id_is_not_logged() {
        assert_eq!(OAuthFault::client_unknown("orders\n").to_string(), r#"unknown client "orders\n""#);
        let swapped = OAuthFault::client_unknown("KzJ4bXk0cGVyc2lzdGVudA").to_string();
        assert!(swapped.contains("withheld") && !swapped.contains("KzJ4"), "{swapped}");
        // Too long for a secret, so it is logged, but truncated.
        assert!(OAuthFault::client_unknown(&"x".repeat(1000)).to_string().len() < 100);
    }
}
