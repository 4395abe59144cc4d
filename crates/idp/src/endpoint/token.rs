//! Token endpoint (RFC 6749 §3.2).
//!
//! Owns: the HTTP form of a token request: a form body and client authentication. Does not own: the
//! meaning of its parameters ([`crate::client`], [`crate::grants`]).

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};

use super::{answer, client_request::ClientRequest};
use crate::{
    audit_draft::Subject,
    failure_log::{Failure, GRANT_REFUSE},
    grants::{self, TokenResponse},
    oauth::{error::OAuthFault, grant_type::GrantType},
    provider::Provider,
    session::Caller,
};

/// Handles `POST /token`: issues tokens for a grant.
pub async fn token(
    State(provider): State<Arc<Provider>>,
    caller: Option<Extension<Caller>>,
    request: ClientRequest,
) -> Response {
    let caller = caller.map(|Extension(caller)| caller).unwrap_or_default();
    let issued = issue(&provider, &request, caller).await;
    request.answered(&provider, issued.map(|issued| answer::json(StatusCode::OK, &issued)))
}

async fn issue(
    provider: &Provider,
    request: &ClientRequest,
    caller: Caller,
) -> Result<TokenResponse, OAuthFault> {
    let grant = GrantType::from_wire(request.required("grant_type")?)?;
    let issued = grants::issue(provider, &request.client, grant, &request.form, caller).await;
    if let Err(fault) = &issued
        && let Some(reason) = refusal(fault)
    {
        let failure = Failure {
            action: GRANT_REFUSE,
            reason,
            user: None,
            client: Some(Subject::of_client(&request.client)),
            address: caller.0,
        };
        provider.failures().record(failure, provider.now());
    }
    issued
}

/// Why a grant is refused, for the audit log. `None`: it has an entry of its own, it is not decided
/// yet, or the provider failed.
fn refusal(fault: &OAuthFault) -> Option<&'static str> {
    Some(match fault {
        OAuthFault::GrantInvalid(reason) => reason,
        OAuthFault::Replayed(_) => "redeemed twice",
        OAuthFault::GrantNotAllowed => "grant type not allowed for the client",
        OAuthFault::ScopeNotAllowed(_) => "scope not allowed for the client",
        OAuthFault::TargetNotAllowed(_) => "audience not allowed for the client",
        OAuthFault::DeviceCodeExpired => "device code expired",
        _ => return None,
    })
}
