//! Errors of administration, and their mapping to HTTP responses in one table.

use std::{borrow::Cow, time::Duration};

use axum::http::StatusCode;
use serde::Serialize;
use store::StoreError;

use crate::{
    EntropyFailed,
    keys::{KeyError, ring::TransitionFault},
    login::SetFault,
    oauth::error::{LogLevel, OAuthFault},
    passwords::PoolError,
};

/// One refused value and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Refused {
    /// Path from the request body, for example `settings.redirect_uris[0]`.
    pub path: String,
    /// Why the value is refused, and what to send instead.
    pub reason: String,
}

impl Refused {
    pub(super) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

/// Reason why an operation is refused or fails.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AdminFault {
    /// There is no entry of this kind and name.
    #[error("{kind} {name:?} not found")]
    NotFound {
        /// Kind of entry, for example `client`.
        kind: &'static str,
        /// Name or id that was requested.
        name: String,
    },
    /// The token is unknown, expired or revoked. The response does not repeat it.
    #[error("token not found: it is unknown, expired or revoked")]
    NoToken,
    /// The name is in use by another entry.
    #[error("{0} is already in use")]
    Taken(&'static str),
    /// The entry has changed since the caller read it, or is not ready yet.
    #[error("{0}")]
    Conflict(String),
    /// Values of the request are refused.
    #[error("{}", .0.iter().map(|r| format!("{}: {}", r.path, r.reason)).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Refused>),
    /// The client is defined in the configuration file and cannot be changed here; holds its id.
    #[error("client {0:?} is defined in the configuration: change it there")]
    Configured(String),
    /// The queue of the password threads is full; holds when to try again.
    #[error("password queue full: try again in {} s", .0.as_secs().max(1))]
    Busy(Duration),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// The provider failed; the text is only for the log.
    #[error("{0}")]
    Failed(String),
    /// The request has no access token.
    #[error("access token missing")]
    TokenMissing,
    /// There is more than one `Authorization` field, or it holds no bearer token.
    #[error("send one access token, in one Authorization header field")]
    TokenMalformed,
    /// The access token is unknown, expired or revoked.
    #[error("the access token is unknown, expired or revoked")]
    TokenInvalid,
    /// The access token is valid, but not for administration; holds the reason.
    #[error("the access token is not valid for this interface: {0}")]
    TokenNotForAdministration(&'static str),
    /// The access token lacks a scope; holds a sufficient one.
    #[error("the access token lacks the scope {0}")]
    ScopeMissing(&'static str),
    /// The body is not declared as JSON.
    #[error("content type is not JSON: send the body as application/json")]
    ContentTypeNotJson,
    /// The body is not valid JSON; holds the parse error.
    #[error("the body is not JSON: {0}")]
    InvalidJson(String),
    /// The request cannot be read, or a part shared by all endpoints failed.
    #[error(transparent)]
    Request(OAuthFault),
}

/// HTTP response and log level of an [`AdminFault`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorResponse {
    /// HTTP status code.
    pub status: StatusCode,
    /// The `error` member.
    pub code: &'static str,
    /// Level of the log line.
    pub level: LogLevel,
    /// The `error_description` member.
    pub text: Cow<'static, str>,
    /// When to try again (`Retry-After`).
    pub retry_after: Option<Duration>,
}

impl AdminFault {
    /// A fault with one refused value.
    pub fn refused(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Refused(vec![Refused::new(path, reason)])
    }

    pub(super) fn not_found(kind: &'static str, name: &str) -> Self {
        Self::NotFound { kind, name: name.to_owned() }
    }

    /// Success if the change was made; otherwise not found: the entry was deleted since it was
    /// read.
    pub(super) fn found_if(done: bool, kind: &'static str, name: &str) -> Result<(), Self> {
        if done { Ok(()) } else { Err(Self::not_found(kind, name)) }
    }

    /// Success if there are no faults; otherwise all of them.
    pub(super) fn refuse_if_any(faults: Vec<Refused>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self::Refused(faults)) }
    }

    /// The table. The text may repeat values of the request: its reader may administer the provider
    /// or has not sent a token yet.
    pub fn response(&self) -> ErrorResponse {
        use LogLevel::{Debug, Error, Info, Warn};
        let row = |status, code, loudness| ErrorResponse {
            status,
            code,
            level: loudness,
            text: self.to_string().into(),
            retry_after: None,
        };
        match self {
            Self::NotFound { .. } | Self::NoToken => row(StatusCode::NOT_FOUND, "not_found", Debug),
            Self::Taken(_) => row(StatusCode::CONFLICT, "taken", Debug),
            Self::Conflict(_) => row(StatusCode::CONFLICT, "conflict", Debug),
            Self::Refused(_) => row(StatusCode::UNPROCESSABLE_ENTITY, "refused", Debug),
            Self::Configured(_) => row(StatusCode::CONFLICT, "configured", Debug),
            Self::Busy(after) => ErrorResponse {
                retry_after: Some(*after),
                ..row(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", Warn)
            },
            Self::Store(error) => Self::from_shared(&error.clone().into()),
            Self::Failed(_) => ErrorResponse {
                text: "internal error: see the provider's log".into(),
                ..row(StatusCode::INTERNAL_SERVER_ERROR, "server_error", Error)
            },
            Self::TokenMissing => row(StatusCode::UNAUTHORIZED, "invalid_request", Debug),
            Self::TokenMalformed => row(StatusCode::BAD_REQUEST, "invalid_request", Info),
            Self::TokenInvalid | Self::TokenNotForAdministration(_) => {
                row(StatusCode::UNAUTHORIZED, "invalid_token", Warn)
            }
            Self::ScopeMissing(_) => row(StatusCode::FORBIDDEN, "insufficient_scope", Warn),
            Self::InvalidJson(_) => row(StatusCode::BAD_REQUEST, "invalid_request", Debug),
            Self::ContentTypeNotJson => row(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request", Debug),
            Self::Request(fault) => Self::from_shared(fault),
        }
    }

    fn from_shared(fault: &OAuthFault) -> ErrorResponse {
        let crate::oauth::error::ErrorResponse { status, code, level: loudness, text, retry_after } =
            fault.response();
        ErrorResponse { status, code, level: loudness, text, retry_after }
    }
}

impl From<StoreError> for AdminFault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Taken(name) => Self::Taken(name),
            StoreError::MissingReference => {
                Self::Conflict("a referenced entry was deleted concurrently: read it again".into())
            }
            other => Self::Store(other),
        }
    }
}

impl From<OAuthFault> for AdminFault {
    fn from(fault: OAuthFault) -> Self {
        Self::Request(fault)
    }
}

impl From<EntropyFailed> for AdminFault {
    fn from(error: EntropyFailed) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<SetFault> for AdminFault {
    fn from(fault: SetFault) -> Self {
        match fault {
            SetFault::Refused(refusal) => Self::refused("password", refusal.to_string()),
            SetFault::TooLong(fault) => Self::refused("password", fault.to_string()),
            SetFault::Pool(PoolError::Busy { retry_after }) => Self::Busy(retry_after),
            SetFault::Pool(error) => Self::Failed(error.to_string()),
            SetFault::Store(error) => error.into(),
        }
    }
}

impl From<KeyError> for AdminFault {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Transition(TransitionFault::NoSuchKey(kid)) => {
                Self::NotFound { kind: "key", name: kid }
            }
            KeyError::Transition(fault @ TransitionFault::NoSuchAlgorithm(_)) => {
                Self::refused("algorithm", fault.to_string())
            }
            KeyError::Transition(fault @ TransitionFault::TooEarly { .. }) => {
                Self::Conflict(fault.to_string())
            }
            KeyError::Contended => Self::Conflict(error.to_string()),
            KeyError::Store(error) => error.into(),
            other => Self::Failed(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<AdminFault> {
        vec![
            AdminFault::not_found("user", "ada"),
            AdminFault::NoToken,
            AdminFault::Taken("the name"),
            AdminFault::Conflict("look again".into()),
            AdminFault::refused("name", "too long"),
            AdminFault::Configured("orders".into()),
            AdminFault::Busy(Duration::from_secs(1)),
            AdminFault::Store(StoreError::Busy),
            AdminFault::Failed("x".into()),
            AdminFault::TokenMissing,
            AdminFault::TokenMalformed,
            AdminFault::TokenInvalid,
            AdminFault::TokenNotForAdministration("x"),
            AdminFault::ScopeMissing("x"),
            AdminFault::ContentTypeNotJson,
            AdminFault::InvalidJson("line 1".into()),
            AdminFault::Request(OAuthFault::BodyTooLarge),
        ]
    }

    #[test]
    fn codes_and_statuses_agree() {
        for fault in every() {
            let row = fault.response();
            let expected: &[u16] = match row.code {
                "not_found" => &[404],
                "taken" | "conflict" | "configured" => &[409],
                "refused" => &[422],
                "temporarily_unavailable" => &[503],
                "server_error" => &[500],
                "invalid_request" => &[400, 401, 413, 415],
                "invalid_token" => &[401],
                "insufficient_scope" => &[403],
                other => panic!("{fault:?} has the unknown code {other}"),
            };
            assert!(expected.contains(&row.status.as_u16()), "{fault:?}");
            assert!(!row.text.is_empty(), "{fault:?}");
        }
    }

    #[test]
    fn what_went_wrong_inside_is_told_to_the_log_alone() {
        let fault = AdminFault::Failed("random source failed".into());
        assert!(!fault.response().text.contains("random") && fault.to_string().contains("random"));
    }
}
