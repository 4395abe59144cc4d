//! Token introspection (RFC 7662): what a token is worth, for those who may ask.
//!
//! A client hears about tokens of its own; by its `introspects` also about those meant for it, or about all. Everything else is
//! inactive, in the very same bytes, whatever the reason.
//!
//! Whoever accepts signed answers (RFC 9701) better than plain ones gets them, signed to the client that asks with what the
//! provider signs its access tokens with.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
    },
    response::Response,
};
use coherence::revocation_tags;
use coherence::revocation_tags::RevocationTags;
use serde::Serialize;

use super::{answer, client_request::ClientRequest};
use crate::{
    access_token::{self, Presented},
    client::{Introspects, authenticate::AuthenticatedClient},
    oauth::error::OAuthFault,
    provider::Provider,
};

/// Media type of a signed answer (RFC 9701 §5), and the `typ` of its header.
const SIGNED: &str = "application/token-introspection+jwt";
const SIGNED_TYPE: &str = "token-introspection+jwt";

/// A signed answer. Without `sub` and `exp`, so that nobody takes it for an access token.
#[derive(Serialize)]
struct Signed<'a, T> {
    iss: &'a str,
    aud: &'a str,
    iat: u64,
    token_introspection: &'a T,
}

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
pub async fn introspect(
    State(provider): State<Arc<Provider>>,
    headers: HeaderMap,
    asked: ClientRequest,
) -> Response {
    let told = tell(&provider, &asked, accepts_signed(&headers)).await;
    asked.answered(&provider, told)
}

/// Whether a signed answer is welcome, and no less so than a plain one (RFC 9110 §12.5.1). What names neither wants it plain.
fn accepts_signed(headers: &HeaderMap) -> bool {
    let (mut signed, mut plain) = (0.0, 0.0);
    for field in headers.get_all(ACCEPT) {
        for range in field.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            // what cannot be read is not wanted
            let weight = weight.map_or(1.0, |text| text.parse().unwrap_or(0.0));
            if name.eq_ignore_ascii_case(SIGNED) {
                signed = weight;
            } else if name.eq_ignore_ascii_case("application/json") {
                plain = weight;
            }
        }
    }
    signed > 0.0_f32 && signed >= plain
}

async fn tell(provider: &Provider, asked: &ClientRequest, signed: bool) -> Result<Response, OAuthFault> {
    if !asked.client.is_proven() {
        return Err(OAuthFault::ClientNotAllowed("introspect: it proves nothing"));
    }
    let found = access_token::present(provider, asked.required("token")?).await?;
    let Some(token) = found.filter(|token| may_hear(&asked.client, token)) else {
        return respond(provider, asked, signed, &Inactive { active: false });
    };
    let groups = groups(provider, &token).await?;
    let mut response = respond(provider, asked, signed, &told(provider, &token, groups))?;
    if let Ok(value) = HeaderValue::from_str(&revocable(provider, &token).to_string()) {
        response.headers_mut().insert(revocation_tags::FIELD, value);
    }
    Ok(response)
}

/// What a gateway needs that remembers the answer and follows what the provider revokes.
fn revocable(provider: &Provider, token: &Presented) -> RevocationTags {
    RevocationTags {
        as_of: token.as_of,
        // the end of time is within both
        issued_at: i64::try_from(token.read_at.as_millis()).unwrap_or(i64::MAX),
        tags: token.tags(provider.secrets()),
    }
}

/// An introspection, as it was asked for.
fn respond(
    provider: &Provider,
    asked: &ClientRequest,
    signed: bool,
    said: &impl Serialize,
) -> Result<Response, OAuthFault> {
    if !signed {
        return Ok(answer::json(StatusCode::OK, said));
    }
    let claims = Signed {
        iss: provider.issuer().as_str(),
        aud: asked.client.id(),
        iat: provider.now().as_secs(),
        token_introspection: said,
    };
    let token = provider.sign(asked.client.access_token_algorithm, SIGNED_TYPE, &claims)?;
    let mut response = Response::new(Body::from(token));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(SIGNED));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The groups that the token tells of.
async fn groups(provider: &Provider, token: &Presented) -> Result<Vec<String>, OAuthFault> {
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

/// Whether the client may learn what the token is worth: it got the token itself, or introspects those of its audience, or all.
fn may_hear(client: &AuthenticatedClient, token: &Presented) -> bool {
    let is_for_it = |audience: &str| {
        audience == client.id() || client.audiences.iter().any(|own| own.as_ref() == audience)
    };
    token.client_id == client.id()
        || match client.introspects {
            Introspects::Own => false,
            Introspects::Audience => token.audiences.split_ascii_whitespace().any(is_for_it),
            Introspects::All => true,
        }
}

fn told<'a>(provider: &'a Provider, token: &'a Presented, groups: Vec<String>) -> Active<'a> {
    let mut audiences: Vec<&str> = token.audiences.split_ascii_whitespace().collect();
    Active {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_answer_is_for_those_who_want_it_most() {
        let accepts = |fields: &[&'static str]| {
            let fields = fields.iter().map(|field| (ACCEPT, HeaderValue::from_static(field)));
            accepts_signed(&fields.collect())
        };
        for wanted in [
            &["application/token-introspection+jwt"][..],
            &["Application/Token-Introspection+JWT; q=0.5"],
            &["application/json, application/token-introspection+jwt"],
            &["application/json;q=0.5", "application/token-introspection+jwt;q=0.8"],
        ] {
            assert!(accepts(wanted), "{wanted:?}");
        }
        for plain in [
            &[][..],
            &["*/*"],
            &["application/*"],
            &["application/json"],
            &["application/token-introspection+jwt;q=0"],
            &["application/token-introspection+jwt;q=x"],
            &["application/json, application/token-introspection+jwt;q=0.9"],
            &["application/jwt"],
        ] {
            assert!(!accepts(plain), "{plain:?}");
        }
    }
}
