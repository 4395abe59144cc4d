//! Access tokens: JWTs (RFC 9068) or opaque tokens, as configured for the client.
//!
//! Owns: the claims, the minting, and the status of a token that is presented ([`Presented`]).
//!
//! Does not own: what was granted ([`crate::grants`]), the key and the signature ([`crate::keys`],
//! `auth::token::jws`), the format of opaque tokens (`auth::token::opaque`).

use std::{sync::Arc, time::Duration};

use auth::json::{Number, Value};
use auth::time::Timestamp;
use auth::token::jwt::{self, Lineage};
use auth::token::opaque::{self, OpaqueKind};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use store::LogHead;
use store::access_tokens::AccessToken;
use store::families::OriginTags;
use store::jwt_status::JwtClaims;
use zeroize::Zeroizing;

use crate::claim_mapping::{self, ClaimTarget, Subject};
use crate::claims::is_reserved_claim;
use crate::client::{Client, TokenFormat};
use crate::oauth::error::OAuthFault;
use crate::oauth::scope::ScopeSet;
use crate::person::{ClaimSelection, Person};
use crate::provider::Provider;
use crate::secrets::{PairwiseKind, Secrets, Tag, TagSubject};
use crate::subject;
use crate::verified_cache::VerifiedJwt;

/// Input of [`mint`]: what was granted.
#[derive(Debug)]
pub struct Granted<'g> {
    /// The client that receives the token.
    pub client: &'g Client,
    /// The user it speaks for; `None`: the client itself.
    pub person: Option<&'g Person>,
    /// The granted scopes.
    pub scopes: &'g ScopeSet,
    /// The granted audiences; if empty, the issuer is the audience.
    pub audiences: Vec<&'g str>,
    /// Id of the token family it belongs to, and when the family expires.
    pub family: Option<(&'g str, Timestamp)>,
    /// The session it ends with.
    pub sid: Option<&'g str>,
    /// Claims that the userinfo endpoint returns besides those of the scopes.
    pub userinfo: &'g [String],
    /// When client and account were read, in log time ([`store::revocation_log`]).
    pub read_at: Timestamp,
}

/// A minted token, with what the response and the log need.
#[derive(Debug)]
pub struct Minted {
    /// The token, as sent to the client.
    pub token: Zeroizing<String>,
    /// Row to be stored; `None` for a JWT.
    pub row: Option<AccessToken>,
    /// The `jti` of the token.
    pub id: String,
    /// Lifetime of the token.
    pub lifetime: Duration,
}

/// Claims of a JWT access token (RFC 9068 §2.2). `family` and `read_at` are private claims. An
/// introspection looks up the family. `read_at`, in milliseconds of log time, tells whether the
/// token predates a revocation of everything a user or client has.
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: String,
    aud: Audience<'a>,
    client_id: &'a str,
    iat: u64,
    exp: u64,
    jti: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<&'a str>,
    read_at: u64,
    /// If the subject is pairwise: see [`subject::sealed_tags`].
    #[serde(skip_serializing_if = "Option::is_none")]
    revocation_tags: Option<String>,
    /// Claims about the user or the client.
    #[serde(flatten)]
    added: Map<String, serde_json::Value>,
}

/// `aud`: one audience is a string, several are an array (RFC 7519 §4.1.3).
#[derive(Serialize)]
#[serde(untagged)]
enum Audience<'a> {
    One(&'a str),
    Many(&'a [&'a str]),
}

/// Claims of a user in every JWT access token, if the scopes allow them: name, address and groups.
const USER_CLAIMS: [&str; 4] = ["preferred_username", "email", "email_verified", "groups"];

/// Mints an access token for what was granted, issued now, in the client's format.
///
/// # Errors
/// [`OAuthFault`] when the random source or the signature fails.
pub fn mint(provider: &Provider, granted: &Granted<'_>) -> Result<Minted, OAuthFault> {
    let id = provider.draw_id()?;
    let now = provider.now();
    let mut lifetime = granted.client.access_token_lifetime();
    if let Some((_, end)) = granted.family {
        // No token outlives its family. The minimum of one second keeps `exp` after `iat`.
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
    let (client, secrets) = (granted.client, provider.secrets());
    let revocation_tags = match granted.person {
        Some(person) if client.sector.is_some() => {
            Some(provider.seal_tags(person.id(), client.id(), granted.sid)?)
        }
        _ => None,
    };
    let claims = Claims {
        iss: provider.issuer().as_str(),
        sub: granted.person.map_or_else(|| client.id().to_owned(), |p| client.subject(secrets, p.id())),
        aud: match audiences {
            [one] => Audience::One(one),
            many => Audience::Many(many),
        },
        client_id: granted.client.id(),
        iat,
        exp: iat.saturating_add(lifetime.as_secs()),
        jti: &id,
        scope: granted.scopes.to_wire(),
        sid: granted.sid.map(|sid| client.sid(secrets, sid)),
        family: granted.family.map(|(id, _)| id),
        read_at: granted.read_at.as_millis(),
        revocation_tags,
        added: added_claims(granted),
    };
    let typ = granted.client.access_token_typ.as_str();
    let token = provider.sign(granted.client.access_token_algorithm, typ, &claims)?;
    Ok(Minted { token: Zeroizing::new(token), row: None, id, lifetime })
}

/// Claims about the user, or about a client that acts for itself.
fn added_claims(granted: &Granted<'_>) -> Map<String, serde_json::Value> {
    let mappings = &granted.client.mappings;
    let Some(person) = granted.person else { return client_claims(granted.client, granted.scopes) };
    let selection = ClaimSelection { scopes: granted.scopes, names: &[], mappings };
    let mut claims = person.claims(selection);
    claims.retain(|name, _| USER_CLAIMS.contains(&name.as_str()));
    person.add_mapped_claims(selection, ClaimTarget::Access, &mut claims);
    claims
}

/// Claims about a client in its own access tokens with these scopes: its groups, and what the
/// configuration adds.
pub(crate) fn client_claims(client: &Client, scopes: &ScopeSet) -> Map<String, serde_json::Value> {
    let groups: Vec<String> = client.groups().iter().map(ToString::to_string).collect();
    let mut claims = Map::new();
    if !groups.is_empty() {
        claims.insert("groups".into(), groups.as_slice().into());
    }
    let subject = Subject { record: None, groups: &groups };
    claim_mapping::add_claims(&client.mappings, (scopes, ClaimTarget::Access), subject, &mut claims);
    claims
}

/// What is stored with an opaque token.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Details {
    /// Names of claims that userinfo returns.
    userinfo: Vec<String>,
    /// The pairwise subject.
    subject: Option<String>,
    /// Whether the configuration adds claims.
    mapped: bool,
}

impl Details {
    /// The stored form. Without subject and mapping it is what a former version knows: the names.
    fn write(&self) -> String {
        let written = if self.subject.is_none() && !self.mapped {
            serde_json::to_string(&self.userinfo)
        } else {
            serde_json::to_string(self)
        };
        written.unwrap_or_default()
    }

    fn read(text: &str) -> Self {
        let names = |text| serde_json::from_str(text).map(|userinfo| Self { userinfo, ..Self::default() });
        names(text).or_else(|_| serde_json::from_str(text)).unwrap_or_default()
    }
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
    let user = granted.person.map(Person::id);
    let pairwise = user.filter(|_| granted.client.sector.is_some());
    let details = Details {
        userinfo: granted.userinfo.to_vec(),
        subject: pairwise.map(|user| granted.client.subject(provider.secrets(), user)),
        mapped: !granted.client.mappings.is_empty(),
    };
    let row = AccessToken {
        digest: provider.secrets().digest(&token),
        jti: id.clone(),
        client_id: granted.client.id().to_owned(),
        user_id: user.map(str::to_owned),
        scopes: granted.scopes.to_wire().unwrap_or_default(),
        audiences: audiences.join(" "),
        details: details.write(),
        issued_at: now,
        expires_at: now.plus(lifetime),
        read_at: granted.read_at,
        origins: origins(provider, granted.client.id(), user),
    };
    Ok(Minted { token, row: Some(row), id, lifetime })
}

/// Tags whose revocation also revokes a token, besides its own and its family's: its client and the
/// user's consent to this client.
pub(crate) fn origins(provider: &Provider, client: &str, user: Option<&str>) -> OriginTags {
    // A client's own token follows from no consent; no user has an empty id.
    let consent = TagSubject::Consent(user.unwrap_or_default(), client);
    [TagSubject::Client(client), consent].map(|subject| provider.secrets().tag(subject))
}

/// A presented access token, with what an introspection returns (RFC 7662 §2.2).
#[derive(Debug, Clone)]
pub struct Presented {
    /// Whether neither the token, nor its family, user, client or key was revoked or disabled.
    pub(crate) unrevoked: bool,
    /// The `jti` of the token.
    pub jti: String,
    /// The client it was issued to.
    pub client_id: String,
    /// The user it speaks for; `None`: the client itself.
    pub user_id: Option<String>,
    /// The `sub` by which the client knows that user, if it is pairwise.
    pub(crate) pairwise: Option<String>,
    /// Whether it may have claims that the configuration adds.
    pub(crate) has_mapped_claims: bool,
    /// Login name of that user.
    pub user_name: Option<String>,
    /// Granted scopes, space-separated.
    pub scopes: String,
    /// Granted audiences, space-separated.
    pub audiences: String,
    /// The session it ends with.
    pub sid: Option<String>,
    /// The token family it belongs to.
    pub family_id: Option<String>,
    /// Id of the key that signed it; `None`: it is opaque.
    pub key: Option<String>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When the state it is based on was read, in log time.
    pub read_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Claims that userinfo returns besides those of the scopes; `None`: the family holds them.
    pub userinfo: Option<Vec<String>>,
    /// Head of the revocation log as of this read.
    pub as_of: LogHead,
}

impl Presented {
    /// The `sub` by which the client knows whom the token speaks for.
    pub(crate) fn subject(&self) -> &str {
        self.pairwise.as_deref().or(self.user_id.as_deref()).unwrap_or(&self.client_id)
    }

    /// The `sid` by which the client knows the session.
    pub(crate) fn client_sid(&self, secrets: &Secrets) -> Option<String> {
        let pairwise = self.pairwise.as_deref();
        let sector = pairwise.and_then(|sub| subject::open(secrets, PairwiseKind::User, sub));
        let sector = sector.map(|(sector, _)| sector);
        self.sid.as_deref().map(|sid| subject::identifier(secrets, sector, PairwiseKind::Session, sid))
    }

    /// Tags whose revocation revokes this token.
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

/// Status of a text presented as an access token. `None`: it is not a valid token.
///
/// # Errors
/// [`OAuthFault`] when the store fails.
pub async fn look_up_valid(provider: &Provider, text: &str) -> Result<Option<Presented>, OAuthFault> {
    Ok(look_up(provider, text).await?.filter(|token| token.unrevoked))
}

/// Looks up an access token of this provider that has not expired, revoked or not.
pub(crate) async fn look_up(provider: &Provider, text: &str) -> Result<Option<Presented>, OAuthFault> {
    match opaque::parse_kind(text) {
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
    let details = Details::read(&token.details);
    Ok(Some(Presented {
        unrevoked: standing.unrevoked,
        pairwise: details.subject,
        has_mapped_claims: details.mapped,
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
        userinfo: Some(details.userinfo),
        as_of: standing.as_of,
    }))
}

/// Reads a JWT access token signed by this provider, expired or not. `None`: it is not one.
pub(crate) fn read_jwt(provider: &Provider, text: &str) -> Option<Arc<VerifiedJwt>> {
    let (digest, believed) = (provider.secrets().digest(text), provider.verified_cache());
    if let Some(claims) = believed.get(&digest, provider.keys().version()) {
        return Some(claims);
    }
    let (keys, claims) = provider.keys().verify_with_version(text, |signed| jwt_claims(provider, signed))?;
    let claims = Arc::new(claims);
    believed.insert(digest, keys, claims.clone());
    Some(claims)
}

fn jwt_claims(provider: &Provider, signed: jwt::SignedClaims<'_>) -> Option<VerifiedJwt> {
    let claims = signed.claims;
    let text = |name| claims.get(name).and_then(Value::as_str);
    let time = |name| match claims.get(name)?.as_number()? {
        Number::Unsigned(seconds) => Some(Timestamp::from_secs(seconds)),
        _ => None,
    };
    let is_access_token = match signed.typ {
        Some("at+jwt") => true,
        // As ID tokens, which always have `at_hash`, and never the `client_id` that is read below.
        Some("JWT") => claims.get("at_hash").is_none(),
        _ => false,
    };
    if !is_access_token || text("iss") != Some(provider.issuer().as_str()) {
        return None;
    }
    let aud = claims.get("aud")?;
    let audiences = match (aud.as_str(), aud.items()) {
        (Some(one), _) => one.to_owned(),
        (None, Some(items)) => items.map(Value::as_str).collect::<Option<Vec<_>>>()?.join(" "),
        (None, None) => return None,
    };
    let sub = text("sub")?;
    let opened = subject::open(provider.secrets(), PairwiseKind::User, sub);
    // A mapping may replace the groups.
    let mapped = |name: &str| name == "groups" || !is_reserved_claim(name);
    let has_mapped_claims = claims.members().is_some_and(|mut members| members.any(|(name, _)| mapped(name)));
    Some(VerifiedJwt {
        has_mapped_claims,
        jti: text("jti")?.to_owned(),
        pairwise: opened.is_some().then(|| sub.to_owned()),
        sub: opened.map_or_else(|| sub.to_owned(), |(_, id)| id),
        client_id: text("client_id")?.to_owned(),
        scope: text("scope").unwrap_or_default().to_owned(),
        audiences,
        family: text("family").map(str::to_owned),
        key: signed.key.map(str::to_owned),
        issued_at: time("iat")?,
        read_at: Lineage::from_claims(claims, None).issued_in_log_time(),
        expires_at: time("exp")?,
    })
}

async fn jwt_presented(provider: &Provider, claims: &VerifiedJwt) -> Result<Option<Presented>, OAuthFault> {
    if provider.now() >= claims.expires_at {
        return Ok(None);
    }
    // A client that speaks for itself is its own subject. Ids of users are drawn at random, so that
    // none equals a client id.
    let user_id = Some(&claims.sub).filter(|sub| **sub != claims.client_id);
    let standing = provider
        .store()
        .jwt_status(JwtClaims {
            family_id: claims.family.as_deref(),
            user_id: user_id.map(String::as_str),
            client_id: &claims.client_id,
            read_at: claims.read_at,
            tag: provider.secrets().tag(TagSubject::Token(&claims.jti)),
            // The key ring in memory may be some seconds old; the log is current.
            key: provider.secrets().tag(TagSubject::Key(claims.key.as_deref().unwrap_or_default())),
            origins: origins(provider, &claims.client_id, user_id.map(String::as_str)),
        })
        .await?;
    Ok(Some(Presented {
        unrevoked: standing.unrevoked,
        user_id: user_id.cloned(),
        pairwise: claims.pairwise.clone(),
        has_mapped_claims: claims.has_mapped_claims,
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
