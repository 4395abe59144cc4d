//! Token introspection (RFC 7662): tells authorized clients the status of a token.
//!
//! A client may introspect its own tokens; depending on its `introspects` also those for its
//! audience, or all. For every other token the response is inactive, with identical bytes for every
//! reason.
//!
//! A client that prefers signed responses (RFC 9701) gets them. They are signed with the algorithm
//! of access tokens, for the requesting client.

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
use serde_json::{Map, Value};

use super::{answer, client_request::ClientRequest};
use crate::access_token::{self, Presented};
use crate::claim_mapping::ClaimTarget;
use crate::client::Introspects;
use crate::client_authentication::AuthenticatedClient;
use crate::oauth::error::OAuthFault;
use crate::oauth::scope::ScopeSet;
use crate::person::{ClaimSelection, Person};
use crate::provider::Provider;

/// Media type of a signed response (RFC 9701 §5); the constant below is the `typ` of its header.
const SIGNED: &str = "application/token-introspection+jwt";
const SIGNED_TYPE: &str = "token-introspection+jwt";
/// Scope of the groups, and name of their claim.
const GROUPS: &str = "groups";

/// Claims of a signed response. They lack `sub` and `exp`, so it cannot be mistaken for an access
/// token.
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
    sid: Option<String>,
    /// As in a JWT: groups of the user if their scope was granted, or of the client, and claims
    /// that the configuration adds.
    #[serde(flatten)]
    added: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Audience<'a> {
    One(&'a str),
    Many(Vec<&'a str>),
}

/// Handles `POST /introspect`: returns the status of a token.
pub async fn introspect(
    State(provider): State<Arc<Provider>>,
    headers: HeaderMap,
    request: ClientRequest,
) -> Response {
    let response = introspection_response(&provider, &request, accepts_signed(&headers)).await;
    request.answered(&provider, response)
}

/// Whether the client accepts a signed response and does not prefer a plain one (RFC 9110 §12.5.1).
/// Without either media type the response is plain.
fn accepts_signed(headers: &HeaderMap) -> bool {
    let (mut signed, mut plain) = (0.0, 0.0);
    for field in headers.get_all(ACCEPT) {
        for range in field.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            // A malformed weight counts as not accepted.
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

async fn introspection_response(
    provider: &Provider,
    request: &ClientRequest,
    signed: bool,
) -> Result<Response, OAuthFault> {
    if !request.client.is_confidential() {
        return Err(OAuthFault::ClientNotAllowed("introspect without authentication"));
    }
    let token = access_token::look_up_valid(provider, request.required("token")?).await?;
    let Some(token) = token.filter(|token| may_introspect(&request.client, token)) else {
        return respond(provider, request, signed, &Inactive { active: false });
    };
    let added = added_claims(provider, &token).await?;
    let mut response = respond(provider, request, signed, &active_claims(provider, &token, added))?;
    if let Ok(value) = HeaderValue::from_str(&revocation_tags_of(provider, &token).to_string()) {
        response.headers_mut().insert(revocation_tags::REVOCATION_FIELD, value);
    }
    Ok(response)
}

/// Revocation data for a gateway that caches the response and follows the revocation log.
fn revocation_tags_of(provider: &Provider, token: &Presented) -> RevocationTags {
    RevocationTags {
        as_of: token.as_of,
        // Realistic times fit into `i64`.
        issued_at: i64::try_from(token.read_at.as_millis()).unwrap_or(i64::MAX),
        tags: token.tags(provider.secrets()),
    }
}

/// Encodes the response, plain or signed.
fn respond(
    provider: &Provider,
    request: &ClientRequest,
    signed: bool,
    introspection: &impl Serialize,
) -> Result<Response, OAuthFault> {
    if !signed {
        return Ok(answer::json(StatusCode::OK, introspection));
    }
    let claims = Signed {
        iss: provider.issuer().as_str(),
        aud: request.client.id(),
        iat: provider.now().as_secs(),
        token_introspection: introspection,
    };
    let token = provider.sign(request.client.access_token_algorithm, SIGNED_TYPE, &claims)?;
    let mut response = Response::new(Body::from(token));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(SIGNED));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Claims about the user or the client in the response.
async fn added_claims(provider: &Provider, token: &Presented) -> Result<Map<String, Value>, OAuthFault> {
    let (store, mut claims) = (provider.store(), Map::new());
    let scopes = ScopeSet::parse(&token.scopes).unwrap_or_default();
    let client = if token.user_id.is_none() || token.has_mapped_claims {
        provider.clients().find(store, &token.client_id).await?
    } else {
        None
    };
    match (&token.user_id, client) {
        (None, Some(client)) => return Ok(access_token::client_claims(&client, &scopes)),
        (Some(user), Some(client)) => {
            let selection = ClaimSelection { scopes: &scopes, names: &[], mappings: &client.mappings };
            if let Some(person) = Person::find(store, user, selection).await? {
                claims = person.claims(selection);
                claims.retain(|name, _| name == GROUPS);
                person.add_mapped_claims(selection, ClaimTarget::Access, &mut claims);
            }
        }
        (Some(user), None) if scopes.contains(GROUPS) => {
            let groups = store.groups_of(user).await?;
            claims.extend((!groups.is_empty()).then(|| (GROUPS.to_owned(), groups.into())));
        }
        _ => {}
    }
    Ok(claims)
}

/// Whether the client may learn the status: it holds the token, or its `introspects` covers it.
fn may_introspect(client: &AuthenticatedClient, token: &Presented) -> bool {
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

fn active_claims<'a>(provider: &'a Provider, token: &'a Presented, added: Map<String, Value>) -> Active<'a> {
    let mut audiences: Vec<&str> = token.audiences.split_ascii_whitespace().collect();
    let names_user = token.scopes.split_ascii_whitespace().any(|scope| scope == "profile");
    Active {
        active: true,
        iss: provider.issuer().as_str(),
        sub: token.subject(),
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
        // A login name would show whom a pairwise subject stands for.
        username: token.user_name.as_deref().filter(|_| token.pairwise.is_none() || names_user),
        sid: token.client_sid(provider.secrets()),
        added,
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
