//! Faults of authorization requests (RFC 6749 §4.1.2.1, OpenID Connect Core §3.1.2.6).
//!
//! Owns: the faults, their protocol codes and texts. Does not own: their detection
//! ([`crate::authorization::request`]).

/// Fault that prevents a redirect to the client: the user sees an error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// There is no `redirect_uri`, but several are registered, or OpenID Connect requires it.
    #[error("redirect_uri is missing")]
    Missing,
    /// The `redirect_uri` is not registered for the client.
    #[error("redirect_uri is not registered for this client")]
    NotRegistered,
}

/// Fault that is reported to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// The request has `request` (Core §6).
    #[error("request objects are not supported")]
    RequestObject,
    /// The request has a `request_uri` that this provider did not issue (Core §6.2).
    #[error("request_uri is supported only for pushed requests")]
    RequestUri,
    /// The request has `registration` (Core §7.2.1).
    #[error("registration is not supported")]
    Registration,
    /// The request has no `response_type`.
    #[error("response_type is missing")]
    ResponseTypeMissing,
    /// The `response_type` is not `code`.
    #[error("response_type is not supported: use code")]
    ResponseType,
    /// The `response_mode` is unknown.
    #[error("response_mode is not one of query, fragment, form_post")]
    ResponseMode,
    /// The `scope` does not match the grammar.
    #[error("scope is malformed: scopes are words separated by one space")]
    Scope,
    /// The client may have none of the requested scopes.
    #[error("none of the scopes is allowed for this client")]
    NoScope,
    /// The client must use PKCE, but there is no `code_challenge`.
    #[error("code_challenge is required (PKCE)")]
    ChallengeMissing,
    /// The `code_challenge_method` is `plain` or absent, which means `plain`.
    #[error("code_challenge_method must be S256")]
    ChallengeMethod,
    /// The `code_challenge` is not a SHA-256 digest in base64url.
    #[error("code_challenge is not 32 bytes in base64url")]
    Challenge,
    /// The `prompt` has an unknown word, or `none` with another one.
    #[error("prompt is malformed: use none alone, or some of login, consent, select_account")]
    Prompt,
    /// The `max_age` is not a number of seconds.
    #[error("max_age is not a number of seconds")]
    MaxAge,
    /// The `claims` parameter is not the expected JSON.
    #[error("claims is malformed")]
    Claims,
    /// A parameter is longer than this provider accepts.
    #[error("a parameter is too long")]
    TooLong,
}

impl RequestFault {
    /// The `error` of the response (RFC 6749 §4.1.2.1, Core §3.1.2.6).
    pub const fn code(self) -> &'static str {
        match self {
            Self::RequestObject => "request_not_supported",
            Self::RequestUri => "request_uri_not_supported",
            Self::Registration => "registration_not_supported",
            Self::ResponseType => "unsupported_response_type",
            Self::Scope | Self::NoScope => "invalid_scope",
            Self::ResponseTypeMissing
            | Self::ResponseMode
            | Self::ChallengeMissing
            | Self::ChallengeMethod
            | Self::Challenge
            | Self::Prompt
            | Self::MaxAge
            | Self::Claims
            | Self::TooLong => "invalid_request",
        }
    }
}
