//! Access tokens: JWTs (RFC 9068) or opaque ones, whichever the client gets.
//!
//! Owns: the claims, the minting, and what one says when it comes back ([`Presented`]). Does not own:
//! what was granted ([`crate::grants`]), the key and the signature ([`crate::keys`], `auth::token::jws`), the
//! form of opaque ones (`auth::token::opaque`).

use std::{sync::Arc, time::Duration};

use auth::json::{Number, Value};
use auth::time::Timestamp;
use auth::token::jwt::{self, Lineage};
use auth::token::opaque::{self, OpaqueKind};
use serde::Serialize;
use serde_json::Map;
use store::LogHead;
use store::access_tokens::AccessToken;
use store::families::EventOrigins;
use store::jwt_status::ClaimedStatus;
use zeroize::Zeroizing;

use crate::client::{Client, TokenFormat};
use crate::oauth::error::OAuthFault;
use crate::oauth::scope::ScopeSet;
use crate::person::{Person, Told};
use crate::provider::Provider;
use crate::secrets::{Secrets, Tag, TagSubject};
use crate::verified_cache::JwtClaims;

/// The `typ` of the header (RFC 9068 §2.1).
pub const TYP: &str = "at+jwt";

/// What a token is made from.
#[derive(Debug)]
pub struct Granted<'g> {
    /// Who gets it.
    pub client: &'g Client,
    /// For whom it speaks; `None`: the client itself.
    pub person: Option<&'g Person>,
    /// What it is good for.
    pub scopes: &'g ScopeSet,
    /// Where.
    pub audiences: Vec<&'g str>,
    /// The family it belongs to, and when that ends.
    pub family: Option<(&'g str, Timestamp)>,
    /// The session that it ends with.
    pub sid: Option<&'g str>,
    /// Claims that the userinfo endpoint tells beside those of the scopes.
    pub userinfo: &'g [String],
    /// When what was granted was read, client and person, in the time of the log ([`store::invalidation`]).
    pub read_at: Timestamp,
}

/// A token with what the answer and the log need of it.
#[derive(Debug)]
pub struct Minted {
    /// As it is handed out.
    pub token: Zeroizing<String>,
    /// Its row, if it is one that is asked about.
    pub row: Option<AccessToken>,
    /// Its `jti`.
    pub id: String,
    /// How long it lives.
    pub lifetime: Duration,
}

/// RFC 9068 §2.2. `family` and `read_at` are ours: what an introspection looks up, and what tells a token that was made before everything
/// of somebody's was revoked from one that was made afterwards (milliseconds in the time of the log).
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: Audience<'a>,
    client_id: &'a str,
    iat: u64,
    exp: u64,
    jti: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<&'a str>,
    read_at: u64,
    /// Of the client itself; people's are in `person`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [Box<str>],
    #[serde(flatten)]
    person: Map<String, serde_json::Value>,
}

/// One audience is a string, several are an array (RFC 7519 §4.1.3).
#[derive(Serialize)]
#[serde(untagged)]
enum Audience<'a> {
    One(&'a str),
    Many(&'a [&'a str]),
}

/// What of a person a resource server is told without asking: who they are by name, and their groups.
const TOLD: [&str; 4] = ["preferred_username", "email", "email_verified", "groups"];

/// Makes an access token for what was granted, from now on, in the client's form.
pub fn mint(provider: &Provider, granted: &Granted<'_>) -> Result<Minted, OAuthFault> {
    let id = provider.draw_id()?;
    let now = provider.now();
    let mut lifetime = granted.client.access_token_lifetime();
    if let Some((_, end)) = granted.family {
        // nothing outlives its family; at least a second, so that exp is after iat
        let left = Duration::from_secs(end.since(now).as_secs());
        lifetime = lifetime.min(left).max(Duration::from_secs(1));
    }
    let audiences: Vec<&str> = match granted.audiences.as_slice() {
        [] => vec![provider.issuer().as_str()],
        named => named.to_vec(),
    };
    match granted.client.access_token {
        TokenFormat::Jwt => mint_jwt(provider, granted, &audiences, id, lifetime, now),
        TokenFormat::Opaque => mint_opaque(provider, granted, &audiences, id, lifetime, now),
    }
}

fn mint_jwt(
    provider: &Provider,
    granted: &Granted<'_>,
    audiences: &[&str],
    id: String,
    lifetime: Duration,
    now: Timestamp,
) -> Result<Minted, OAuthFault> {
    let iat = granted.person.map_or(now.as_secs(), |person| person.issued_at(now));
    let mut person =
        granted.person.map(|p| p.claims(Told { scopes: granted.scopes, names: &[] })).unwrap_or_default();
    person.retain(|name, _| TOLD.contains(&name.as_str()));
    let claims = Claims {
        iss: provider.issuer().as_str(),
        sub: granted.person.map_or(granted.client.id(), Person::subject),
        aud: match audiences {
            [one] => Audience::One(one),
            many => Audience::Many(many),
        },
        client_id: granted.client.id(),
        iat,
        exp: iat.saturating_add(lifetime.as_secs()),
        jti: &id,
        scope: granted.scopes.to_wire(),
        sid: granted.sid,
        family: granted.family.map(|(id, _)| id),
        read_at: granted.read_at.as_millis(),
        groups: if granted.person.is_none() { granted.client.groups() } else { &[] },
        person,
    };
    let token = provider.sign(granted.client.access_token_algorithm, TYP, &claims)?;
    Ok(Minted { token: Zeroizing::new(token), row: None, id, lifetime })
}

fn mint_opaque(
    provider: &Provider,
    granted: &Granted<'_>,
    audiences: &[&str],
    id: String,
    lifetime: Duration,
    now: Timestamp,
) -> Result<Minted, OAuthFault> {
    let token = provider.draw_token(OpaqueKind::Access)?;
    let user = granted.person.map(Person::subject);
    let row = AccessToken {
        digest: provider.secrets().digest(&token),
        jti: id.clone(),
        client_id: granted.client.id().to_owned(),
        user_id: user.map(str::to_owned),
        scopes: granted.scopes.to_wire().unwrap_or_default(),
        audiences: audiences.join(" "),
        details: serde_json::to_string(granted.userinfo).unwrap_or_default(),
        issued_at: now,
        expires_at: now.plus(lifetime),
        read_at: granted.read_at,
        origins: origins(provider, granted.client.id(), user),
    };
    Ok(Minted { token, row: Some(row), id, lifetime })
}

/// What ends a token besides itself and its family: its client, and what its user allowed the client.
pub(crate) fn origins(provider: &Provider, client: &str, user: Option<&str>) -> EventOrigins {
    // a client's own token follows from no consent: nobody is called the empty name
    let consent = TagSubject::Consent(user.unwrap_or_default(), client);
    [TagSubject::Client(client), consent].map(|subject| provider.secrets().tag(subject))
}

/// A token that came back: what an introspection tells of it (RFC 7662 §2.2).
#[derive(Debug, Clone)]
pub struct Presented {
    /// Whether it is worth something: neither it was revoked, nor what it follows from.
    pub(crate) unrevoked: bool,
    /// Its name.
    pub jti: String,
    /// Who got it.
    pub client_id: String,
    /// For whom it speaks; `None`: the client itself.
    pub user_id: Option<String>,
    /// And their name.
    pub user_name: Option<String>,
    /// Space-separated.
    pub scopes: String,
    /// Space-separated.
    pub audiences: String,
    /// The session that it ends with.
    pub sid: Option<String>,
    /// Its family.
    pub family_id: Option<String>,
    /// The key that signed it; `None`: it is opaque.
    pub key: Option<String>,
    /// When it was made.
    pub issued_at: Timestamp,
    /// When what it rests on was read, in the time of the log.
    pub read_at: Timestamp,
    /// From when on it is worth nothing.
    pub expires_at: Timestamp,
    /// Claims that the userinfo endpoint tells beside those of the scopes; `None`: its family says.
    pub userinfo: Option<Vec<String>>,
    /// The log's head when this was read.
    pub as_of: LogHead,
}

impl Presented {
    /// What can take it back.
    pub(crate) fn tags(&self, secrets: &Secrets) -> Vec<Tag> {
        let consent = self.user_id.as_deref().map(|user| TagSubject::Consent(user, &self.client_id));
        let subjects = [
            Some(TagSubject::Token(&self.jti)),
            self.family_id.as_deref().map(TagSubject::Family),
            self.sid.as_deref().map(TagSubject::Session),
            self.user_id.as_deref().map(TagSubject::User),
            Some(TagSubject::Client(&self.client_id)),
            consent,
            self.key.as_deref().map(TagSubject::Key),
        ];
        subjects.into_iter().flatten().map(|subject| secrets.tag(subject)).collect()
    }
}

/// What a text is worth that somebody presented as an access token; `None`: nothing.
pub async fn present(provider: &Provider, text: &str) -> Result<Option<Presented>, OAuthFault> {
    Ok(recognise(provider, text).await?.filter(|token| token.unrevoked))
}

/// An access token of ours that has not expired, revoked or not.
pub(crate) async fn recognise(provider: &Provider, text: &str) -> Result<Option<Presented>, OAuthFault> {
    match opaque::kind(text) {
        Some(OpaqueKind::Access) => opaque_presented(provider, text).await,
        Some(_) => Ok(None),
        None => match read_jwt(provider, text) {
            Some(claims) => jwt_presented(provider, &claims).await,
            None => Ok(None),
        },
    }
}

async fn opaque_presented(provider: &Provider, text: &str) -> Result<Option<Presented>, OAuthFault> {
    let digest = provider.secrets().digest(text);
    let Some(standing) = provider.store().access_token(&digest).await? else { return Ok(None) };
    if provider.now() >= standing.token.expires_at {
        return Ok(None);
    }
    let token = standing.token;
    Ok(Some(Presented {
        unrevoked: standing.unrevoked,
        jti: token.jti,
        client_id: token.client_id,
        user_id: token.user_id,
        user_name: standing.user_name,
        scopes: token.scopes,
        audiences: token.audiences,
        sid: standing.sid,
        family_id: standing.family_id,
        key: None,
        issued_at: token.issued_at,
        read_at: token.read_at,
        expires_at: token.expires_at,
        userinfo: Some(serde_json::from_str(&token.details).unwrap_or_default()),
        as_of: standing.as_of,
    }))
}

/// Reads an access token that we signed, expired or not; `None`: it is none.
pub(crate) fn read_jwt(provider: &Provider, text: &str) -> Option<Arc<JwtClaims>> {
    let (digest, believed) = (provider.secrets().digest(text), provider.believed());
    if let Some(claims) = believed.get(&digest, provider.keys().version()) {
        return Some(claims);
    }
    let (keys, claims) = provider.keys().opened_with(text, |signed| jwt_claims(provider, signed))?;
    let claims = Arc::new(claims);
    believed.keep(digest, keys, claims.clone());
    Some(claims)
}

fn jwt_claims(provider: &Provider, signed: jwt::Signed<'_>) -> Option<JwtClaims> {
    let claims = signed.claims;
    let text = |name| claims.get(name).and_then(Value::as_str);
    let time = |name| match claims.get(name)?.as_number()? {
        Number::Unsigned(seconds) => Some(Timestamp::from_secs(seconds)),
        _ => None,
    };
    if signed.typ != Some(TYP) || text("iss") != Some(provider.issuer().as_str()) {
        return None;
    }
    let aud = claims.get("aud")?;
    let audiences = match (aud.as_str(), aud.items()) {
        (Some(one), _) => one.to_owned(),
        (None, Some(items)) => items.map(Value::as_str).collect::<Option<Vec<_>>>()?.join(" "),
        (None, None) => return None,
    };
    Some(JwtClaims {
        jti: text("jti")?.to_owned(),
        sub: text("sub")?.to_owned(),
        client_id: text("client_id")?.to_owned(),
        scope: text("scope").unwrap_or_default().to_owned(),
        audiences,
        family: text("family").map(str::to_owned),
        key: signed.key.map(str::to_owned),
        issued_at: time("iat")?,
        read_at: Lineage::of(claims, None).in_time_of_log(),
        expires_at: time("exp")?,
    })
}

async fn jwt_presented(provider: &Provider, claims: &JwtClaims) -> Result<Option<Presented>, OAuthFault> {
    if provider.now() >= claims.expires_at {
        return Ok(None);
    }
    // a client that speaks for itself is its own subject; users' ids are drawn so that none looks like a client's
    let user_id = Some(&claims.sub).filter(|sub| **sub != claims.client_id);
    let standing = provider
        .store()
        .claimed(ClaimedStatus {
            family_id: claims.family.as_deref(),
            user_id: user_id.map(String::as_str),
            client_id: &claims.client_id,
            read_at: claims.read_at,
            tag: provider.secrets().tag(TagSubject::Token(&claims.jti)),
            // The keys here may be some seconds old; the log is not.
            key: provider.secrets().tag(TagSubject::Key(claims.key.as_deref().unwrap_or_default())),
            origins: origins(provider, &claims.client_id, user_id.map(String::as_str)),
        })
        .await?;
    Ok(Some(Presented {
        unrevoked: standing.unrevoked,
        user_id: user_id.cloned(),
        jti: claims.jti.clone(),
        client_id: claims.client_id.clone(),
        user_name: standing.user_name,
        scopes: claims.scope.clone(),
        audiences: claims.audiences.clone(),
        sid: standing.sid,
        family_id: claims.family.clone(),
        key: claims.key.clone(),
        issued_at: claims.issued_at,
        read_at: claims.read_at,
        expires_at: claims.expires_at,
        userinfo: None,
        as_of: standing.as_of,
    }))
}
