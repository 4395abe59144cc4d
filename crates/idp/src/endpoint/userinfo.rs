//! Userinfo endpoint (OpenID Connect Core 1.0 §5.3): returns the granted claims of a token's user.

use std::{fmt::Write as _, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE},
        request::Parts,
    },
    response::Response,
};
use serde_json::{Map, Value};

use super::{answer, form};
use crate::access_token::{self, Presented};
use crate::claim_mapping::ClaimTarget;
use crate::client_authentication::split_scheme;
use crate::id_token::Authentication;
use crate::oauth::error::OAuthFault;
use crate::oauth::scope::ScopeSet;
use crate::person::{ClaimSelection, Person};
use crate::provider::Provider;

/// Reason why no claims are returned (RFC 6750 §3.1).
enum Refused {
    /// There is no token; the response has no error code.
    Missing,
    /// There is more than one token, or it is not sent correctly.
    Request,
    /// The token is unknown, expired or revoked, or has no user.
    Token,
    /// The token lacks the scope `openid`.
    Scope,
    /// The provider failed, or the body cannot be read.
    Fault(OAuthFault),
}

impl From<OAuthFault> for Refused {
    fn from(fault: OAuthFault) -> Self {
        Self::Fault(fault)
    }
}

/// Handles `GET` and `POST /userinfo`: returns claims, plain or signed.
pub async fn userinfo(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match claims_response(&provider, parts, body).await {
        Ok(response) => response,
        Err(refused) => refuse(&provider, &refused),
    }
}

async fn claims_response(provider: &Provider, parts: Parts, body: Body) -> Result<Response, Refused> {
    let token = bearer(parts, body).await?;
    let token = access_token::look_up_valid(provider, &token).await?.ok_or(Refused::Token)?;
    let scopes = ScopeSet::parse(&token.scopes).unwrap_or_default();
    if !scopes.contains("openid") {
        return Err(Refused::Scope);
    }
    let user = token.user_id.as_deref().ok_or(Refused::Token)?;
    let names = requested_claims(provider, &token).await?;
    let client =
        provider.clients().find(provider.store(), &token.client_id).await.map_err(OAuthFault::from)?;
    let client = client.ok_or(Refused::Token)?;
    let selection = ClaimSelection { scopes: &scopes, names: &names, mappings: &client.mappings };
    let person = Person::find(provider.store(), user, selection).await.map_err(OAuthFault::from)?;
    let person = person.ok_or(Refused::Token)?;
    let mut claims = Map::new();
    // The subject of the token, which a change of the client's settings leaves as it is (§5.3.2).
    claims.insert("sub".into(), token.subject().into());
    claims.extend(person.claims(selection));
    person.add_mapped_claims(selection, ClaimTarget::Userinfo, &mut claims);
    let Some(algorithm) = client.userinfo_algorithm else {
        return Ok(answer::json(StatusCode::OK, &claims));
    };
    claims.insert("iss".into(), provider.issuer().as_str().into());
    claims.insert("aud".into(), client.id().into());
    let signed = provider.sign(algorithm, "JWT", &Value::Object(claims))?;
    let mut response = Response::new(Body::from(signed));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jwt"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn requested_claims(provider: &Provider, token: &Presented) -> Result<Vec<String>, OAuthFault> {
    match (&token.userinfo, &token.family_id) {
        (Some(names), _) => Ok(names.clone()),
        (None, Some(family)) => {
            let family = provider.store().family(family).await?;
            Ok(family.map(|family| Authentication::read(&family.details).userinfo).unwrap_or_default())
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// The token of a request: in the header or in a form body (RFC 6750 §2.1, §2.2), never in the URL
/// (§2.3).
async fn bearer(parts: Parts, body: Body) -> Result<String, Refused> {
    let header = in_header(&parts.headers)?;
    let posts_form = parts.method == Method::POST && form::declares_form(&parts.headers);
    let in_body = if posts_form {
        form::read(&parts, body).await?.get("access_token").map(str::to_owned)
    } else {
        None
    };
    match (header, in_body) {
        (Some(_), Some(_)) => Err(Refused::Request),
        (Some(token), None) | (None, Some(token)) => Ok(token),
        (None, None) => Err(Refused::Missing),
    }
}

fn in_header(headers: &HeaderMap) -> Result<Option<String>, Refused> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (field, None) = (fields.next(), fields.next()) else { return Err(Refused::Request) };
    let Some(field) = field else { return Ok(None) };
    let (scheme, token) = split_scheme(field.as_bytes());
    if !scheme.eq_ignore_ascii_case(b"Bearer") {
        return Err(Refused::Missing);
    }
    String::from_utf8(token.to_vec()).map(Some).map_err(|_| Refused::Request)
}

fn refuse(provider: &Provider, refused: &Refused) -> Response {
    let (status, code, text) = match refused {
        Refused::Missing => (StatusCode::UNAUTHORIZED, None, "an access token is required"),
        Refused::Request => {
            (StatusCode::BAD_REQUEST, Some("invalid_request"), "send one access token, in one place")
        }
        Refused::Token => (
            StatusCode::UNAUTHORIZED,
            Some("invalid_token"),
            "the access token is unknown, expired or revoked",
        ),
        Refused::Scope => {
            (StatusCode::FORBIDDEN, Some("insufficient_scope"), "the access token lacks the scope openid")
        }
        Refused::Fault(fault) => return answer::refuse(fault, provider.challenge(), None),
    };
    let mut challenge = format!("Bearer realm=\"{}\"", provider.issuer().as_str());
    let mut body = Map::new();
    if let Some(code) = code {
        // Writing to a string cannot fail.
        let _ = write!(challenge, ", error=\"{code}\", error_description=\"{text}\"");
        body.insert("error".into(), code.into());
        body.insert("error_description".into(), text.into());
    }
    if matches!(refused, Refused::Scope) {
        challenge.push_str(", scope=\"openid\"");
    }
    let mut response = answer::json(status, &Value::Object(body));
    // The checked issuer is visible ASCII without quotes.
    if let Ok(challenge) = HeaderValue::try_from(challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
