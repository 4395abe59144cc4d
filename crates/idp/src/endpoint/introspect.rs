//! Token introspection (RFC 7662): what a token is worth, for those who may ask.
//!
//! A client hears about tokens of its own; one that introspects hears about all. Everything else is inactive, in the very same
//! bytes, whatever the reason.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderValue, StatusCode},
    response::Response,
};
use serde::Serialize;

use super::{answer, client_request::ClientRequest};
use crate::{
    access_token::{self, Presented},
    client::authenticate::AuthenticatedClient,
    oauth::error::Fault,
    provider::Provider,
};

/// How far the invalidation log was known when the answer was read (its head's sequence): what was revoked up to there is in it.
const AS_OF: &str = "postern-as-of";

#[derive(Serialize)]
struct Inactive {
    active: bool,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the standard's")]
struct Active<'a> {
    active: bool,
    iss: &'a str,
    sub: &'a str,
    aud: Audience<'a>,
    client_id: &'a str,
    token_type: &'static str,
    iat: u64,
    exp: u64,
    jti: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<&'a str>,
    /// As a JWT tells them: a person's if their scope was granted, or a client's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Audience<'a> {
    One(&'a str),
    Many(Vec<&'a str>),
}

/// `POST /introspect`.
pub async fn introspect(State(provider): State<Arc<Provider>>, asked: ClientRequest) -> Response {
    let told = tell(&provider, &asked).await;
    asked.answered(&provider, told)
}

async fn tell(provider: &Provider, asked: &ClientRequest) -> Result<Response, Fault> {
    if !asked.client.is_proven() {
        return Err(Fault::ClientNotAllowed("introspect: it proves nothing"));
    }
    let found = access_token::present(provider, asked.required("token")?).await?;
    let Some(token) = found.filter(|token| may_hear(&asked.client, token)) else {
        return Ok(answer::json(StatusCode::OK, &Inactive { active: false }));
    };
    let groups = groups(provider, &token).await?;
    Ok(told(provider, &token, groups))
}

/// The groups that the token tells of.
async fn groups(provider: &Provider, token: &Presented) -> Result<Vec<String>, Fault> {
    match &token.user_id {
        Some(user) if token.scopes.split_ascii_whitespace().any(|scope| scope == "groups") => {
            Ok(provider.store().groups_of(user).await?)
        }
        Some(_) => Ok(Vec::new()),
        None => {
            let client = provider.clients().find(provider.store(), &token.client_id).await?;
            Ok(client
                .map(|client| client.groups().iter().map(ToString::to_string).collect())
                .unwrap_or_default())
        }
    }
}

fn may_hear(client: &AuthenticatedClient, token: &Presented) -> bool {
    client.introspects || token.client_id == client.id()
}

fn told(provider: &Provider, token: &Presented, groups: Vec<String>) -> Response {
    let mut audiences: Vec<&str> = token.audiences.split_ascii_whitespace().collect();
    let active = Active {
        active: true,
        iss: provider.issuer().as_str(),
        sub: token.user_id.as_deref().unwrap_or(&token.client_id),
        aud: match audiences.len() {
            1 => Audience::One(audiences.remove(0)),
            _ => Audience::Many(audiences),
        },
        client_id: &token.client_id,
        token_type: "Bearer",
        iat: token.issued_at.as_secs(),
        exp: token.expires_at.as_secs(),
        jti: &token.jti,
        scope: &token.scopes,
        username: token.user_name.as_deref(),
        sid: token.sid.as_deref(),
        groups,
    };
    let mut response = answer::json(StatusCode::OK, &active);
    response.headers_mut().insert(AS_OF, HeaderValue::from(token.as_of));
    response
}
