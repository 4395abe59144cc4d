//! Why an operation is refused, and what becomes of it on the wire: one table.

use std::{borrow::Cow, time::Duration};

use axum::http::StatusCode;
use serde::Serialize;
use store::StoreError;

use crate::{
    EntropyFailed,
    keys::{KeyError, ring::TransitionFault},
    login::SetFault,
    oauth::error::{Loudness, OAuthFault},
    passwords::PoolError,
};

/// One refused value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Refused {
    /// Path from what was sent, for example `settings.redirect_uris[0]`.
    pub path: String,
    /// Why, and what to do.
    pub reason: String,
}

impl Refused {
    pub(super) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

/// Why an operation is refused, or could not be carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AdminFault {
    /// There is none of this kind and name.
    #[error("there is no {kind} {name:?}")]
    NotFound {
        /// What was looked for.
        kind: &'static str,
        /// By which name.
        name: String,
    },
    /// The token is unknown or over; nothing of it is repeated.
    #[error("there is no such token: it is unknown, expired or revoked")]
    NoToken,
    /// Another one has it.
    #[error("{0} is taken already")]
    Taken(&'static str),
    /// It is no longer as the caller saw it, or not yet ready.
    #[error("{0}")]
    Conflict(String),
    /// Values that may not be.
    #[error("{}", .0.iter().map(|r| format!("{}: {}", r.path, r.reason)).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Refused>),
    /// It is in the configuration file, which nobody writes but its owner; holds the client's id.
    #[error("client {0:?} stands in the configuration: change it there")]
    Configured(String),
    /// The password threads are busy.
    #[error("too many passwords are waiting: try again in {} s", .0.as_secs().max(1))]
    Busy(Duration),
    /// The database.
    #[error(transparent)]
    Store(StoreError),
    /// Ours.
    #[error("{0}")]
    Failed(String),
    /// A request without a token.
    #[error("an access token is required")]
    TokenMissing,
    /// More than one `Authorization` field, or one that is no token.
    #[error("send one access token, in one Authorization header field")]
    TokenMalformed,
    /// Unknown, expired or revoked.
    #[error("the access token is unknown, expired or revoked")]
    TokenInvalid,
    /// Sound, but not made for administration; holds what is wrong.
    #[error("the access token is not for this interface: {0}")]
    TokenForeign(&'static str),
    /// Holds the scope that would do.
    #[error("the access token lacks the scope {0}")]
    ScopeMissing(&'static str),
    /// The body does not declare JSON.
    #[error("send the body as application/json")]
    NotJson,
    /// The body is no JSON; holds where it stops being it.
    #[error("the body is not JSON: {0}")]
    NoJson(String),
    /// The request cannot be read, or something that all endpoints share failed.
    #[error(transparent)]
    Request(OAuthFault),
}

/// What becomes of an [`AdminFault`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// HTTP status.
    pub status: StatusCode,
    /// The `error` member.
    pub code: &'static str,
    /// Level of the log line.
    pub loudness: Loudness,
    /// The `error_description` member.
    pub text: Cow<'static, str>,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

impl AdminFault {
    /// One refused value.
    pub fn refused(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Refused(vec![Refused::new(path, reason)])
    }

    pub(super) fn no(kind: &'static str, name: &str) -> Self {
        Self::NotFound { kind, name: name.to_owned() }
    }

    /// Whether it was done; if not, what it was done to is gone since it was looked up.
    pub(super) fn gone_unless(done: bool, kind: &'static str, name: &str) -> Result<(), Self> {
        if done { Ok(()) } else { Err(Self::no(kind, name)) }
    }

    /// Nothing, or everything that was found wrong.
    pub(super) fn unless_none(faults: Vec<Refused>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self::Refused(faults)) }
    }

    /// The table. Whoever reads the text may administer the provider (or has sent no token yet), so it may repeat what was sent.
    pub fn row(&self) -> Row {
        use Loudness::{Debug, Error, Info, Warn};
        let row = |status, code, loudness| Row {
            status,
            code,
            loudness,
            text: self.to_string().into(),
            retry_after: None,
        };
        match self {
            Self::NotFound { .. } | Self::NoToken => row(StatusCode::NOT_FOUND, "not_found", Debug),
            Self::Taken(_) => row(StatusCode::CONFLICT, "taken", Debug),
            Self::Conflict(_) => row(StatusCode::CONFLICT, "conflict", Debug),
            Self::Refused(_) => row(StatusCode::UNPROCESSABLE_ENTITY, "refused", Debug),
            Self::Configured(_) => row(StatusCode::CONFLICT, "configured", Debug),
            Self::Busy(after) => Row {
                retry_after: Some(*after),
                ..row(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", Warn)
            },
            Self::Store(error) => Self::from_shared(&error.clone().into()),
            Self::Failed(_) => Row {
                text: "the provider failed: its log says why".into(),
                ..row(StatusCode::INTERNAL_SERVER_ERROR, "server_error", Error)
            },
            Self::TokenMissing => row(StatusCode::UNAUTHORIZED, "invalid_request", Debug),
            Self::TokenMalformed => row(StatusCode::BAD_REQUEST, "invalid_request", Info),
            Self::TokenInvalid | Self::TokenForeign(_) => {
                row(StatusCode::UNAUTHORIZED, "invalid_token", Warn)
            }
            Self::ScopeMissing(_) => row(StatusCode::FORBIDDEN, "insufficient_scope", Warn),
            Self::NoJson(_) => row(StatusCode::BAD_REQUEST, "invalid_request", Debug),
            Self::NotJson => row(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request", Debug),
            Self::Request(fault) => Self::from_shared(fault),
        }
    }

    fn from_shared(fault: &OAuthFault) -> Row {
        let crate::oauth::error::Row { status, code, loudness, text, retry_after } = fault.row();
        Row { status, code, loudness, text, retry_after }
    }
}

impl From<StoreError> for AdminFault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Taken(what) => Self::Taken(what),
            StoreError::Dangling => {
                Self::Conflict("what this refers to was deleted meanwhile: look again".into())
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
            AdminFault::no("user", "ada"),
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
            AdminFault::TokenForeign("x"),
            AdminFault::ScopeMissing("x"),
            AdminFault::NotJson,
            AdminFault::NoJson("line 1".into()),
            AdminFault::Request(OAuthFault::BodyTooLarge),
        ]
    }

    #[test]
    fn codes_and_statuses_agree() {
        for fault in every() {
            let row = fault.row();
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
        let fault = AdminFault::Failed("the random source failed".into());
        assert!(!fault.row().text.contains("random") && fault.to_string().contains("random"));
    }
}
