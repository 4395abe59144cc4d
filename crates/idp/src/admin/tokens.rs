//! Tokens, and the families they belong to.

use auth::token::opaque::{self, OpaqueKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{
    Change, StoreError, Tx,
    access_tokens::{Revoke, RevokeAccessToken, RevokeNamed},
    audit::{AnnouncedEntry, Audited},
    families::{Family, FamilyFilter, OwnedFamily, RevokeFamily, RevokeGrants, RevokeSome},
};

use super::{Admin, AdminFault, Page, Refused, Secret, followers::Refusal, paging, seconds};
use crate::access_token::{self, Presented};
use crate::provider::Provider;
use crate::secrets::TagSubject;
use crate::{revocations, session};

/// What is told of a token that an operator revokes.
const BY_OPERATOR: &str = "access token revoked by an operator";
/// And of all that a client has.
const ALL: &str = "revoked by an operator";

/// Tokens that are revoked in one transaction at most.
pub const MOST_TOKENS: usize = 500;

/// What kind of token it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// For a resource server.
    Access,
    /// For the next access token.
    Refresh,
}

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TokenFacts {
    /// What kind of token it is.
    pub kind: TokenKind,
    /// Its name; refresh tokens have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// Who got it.
    pub client_id: String,
    /// On whose behalf; absent: the client's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// And their name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// What for, separated by spaces.
    pub scopes: String,
    /// Where, separated by spaces.
    pub audiences: String,
    /// The session it was granted in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// The family it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family_id: Option<String>,
    /// When it was made, in seconds since 1970.
    pub issued_at: u64,
    /// When it ends.
    pub expires_at: u64,
}

/// What a token is worth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TokenView {
    /// Whether it is worth something: what the introspection endpoint says of an access token.
    pub active: bool,
    /// What for; absent: it is worth nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenFacts>,
    /// Of an access token that was revoked and would be good otherwise: whether everybody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

/// A token that is asked about.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenText {
    /// An access token or a refresh token, as it was handed out.
    pub token: Secret,
}

/// Tokens that leaked: 1 to 500, both ways together.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenList {
    /// Access tokens and refresh tokens, as they were handed out.
    #[schema(max_items = 500)]
    pub tokens: Vec<Secret>,
    /// Access tokens by name (`jti`): for whoever does not have them, and much quicker, as no signature is verified. A name is revoked whether or not
    /// anybody has a token of it.
    #[schema(max_items = 500)]
    pub jtis: Vec<String>,
}

/// What came of a list of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct RevokedTokens {
    /// How many were revoked. A JWT that was revoked before is revoked once more, one that has expired for what it let in, and a name counts in any
    /// case: nobody knows what it is worth.
    pub count: u64,
    /// How many were not: unknown, or revoked before.
    pub worthless: u64,
}

/// What one authorization led to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FamilyView {
    /// Its name.
    pub id: String,
    /// Whose tokens they are.
    pub client_id: String,
    /// On whose behalf; absent: the client's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The session they were granted in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// What for, separated by spaces.
    pub scopes: String,
    /// Where, separated by spaces.
    pub audiences: String,
    /// Whether it lives on when its session ends.
    pub outlives_session: bool,
    /// When it was granted, in seconds since 1970.
    pub created_at: u64,
    /// When it ends.
    pub expires_at: u64,
}

impl From<Family> for FamilyView {
    fn from(family: Family) -> Self {
        Self {
            id: family.id,
            client_id: family.client_id,
            user_id: family.user_id,
            sid: family.sid,
            scopes: family.scopes,
            audiences: family.audiences,
            outlives_session: family.outlives_session,
            created_at: seconds(family.created_at),
            expires_at: seconds(family.expires_at),
        }
    }
}

/// Which families.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListFamilies {
    /// Those after this id.
    pub after: Option<String>,
    /// At most so many: 1 to 500, 100 when absent.
    pub limit: Option<u32>,
    /// Only those on behalf of this user, by id.
    pub user: Option<String>,
    /// Only those of this client.
    pub client: Option<String>,
}

/// Whose tokens are revoked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeAll {
    /// The client that has them.
    pub client: String,
    /// Only those on behalf of this user, by id; absent: all, the client's own too.
    #[serde(default)]
    pub user: Option<String>,
}

/// What was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Revoked {
    /// How many families and opaque tokens. JWTs that belong to no family are void too, and not counted: nobody knows how
    /// many there are.
    pub count: u64,
}

impl Admin<'_> {
    /// What a token is worth.
    pub async fn token(&self, text: &TokenText) -> Result<TokenView, AdminFault> {
        let text = text.token.expose().trim();
        let (facts, refused) = match opaque::kind(text) {
            Some(OpaqueKind::Refresh) => (self.refresh_facts(text).await?, None),
            _ => match access_token::recognise(self.provider, text).await? {
                Some(token) if token.unrevoked => (Some(access_facts(token)), None),
                Some(token) => (None, Some(self.refusal(&token).await?)),
                None => (None, None),
            },
        };
        Ok(TokenView { active: facts.is_some(), token: facts, refused })
    }

    async fn refresh_facts(&self, text: &str) -> Result<Option<TokenFacts>, AdminFault> {
        let digest = self.provider.secrets().digest(text);
        let found = self.provider.store().refresh_token(&digest).await?;
        let now = self.now();
        let alive = found.filter(|(token, owned)| owned.family.is_alive(now) && now < token.expires_at);
        let ended = match alive.as_ref().map(|(_, owned)| &owned.family) {
            Some(Family { sid: Some(sid), outlives_session: false, .. }) => {
                !session::goes_on(self.provider, sid).await?
            }
            _ => false,
        };
        Ok(alive.filter(|_| !ended).map(|(token, OwnedFamily { family, user })| TokenFacts {
            kind: TokenKind::Refresh,
            jti: None,
            client_id: family.client_id,
            user_id: family.user_id,
            user_name: user.map(|user| user.name),
            scopes: family.scopes,
            audiences: family.audiences,
            sid: family.sid,
            family_id: Some(family.id),
            issued_at: seconds(token.issued_at),
            expires_at: seconds(token.expires_at),
        }))
    }

    /// Revokes a token: an access token alone, a refresh token with its family.
    pub async fn revoke_token(&self, text: &TokenText) -> Result<Revoked, AdminFault> {
        let end = self.end(&text.token).await?.ok_or(AdminFault::NoToken)?;
        match self.provider.store().write(end).await? {
            0 => Err(AdminFault::NoToken),
            count => Ok(Revoked { count }),
        }
    }

    /// Revokes tokens, all of them in one transaction: after a leak.
    pub async fn revoke_tokens(&self, list: &TokenList) -> Result<RevokedTokens, AdminFault> {
        let TokenList { tokens, jtis } = list;
        if !(1..=MOST_TOKENS).contains(&(tokens.len() + jtis.len())) {
            let wanted = format!("a list of 1 to {MOST_TOKENS} tokens, those in `jtis` among them");
            return Err(AdminFault::refused("tokens", wanted));
        }
        let mut ends = Vec::with_capacity(tokens.len() + 1);
        ends.extend(self.end_named(jtis)?);
        for token in tokens {
            ends.extend(self.end(token).await?);
        }
        let count = self.provider.store().write(ends).await?.into_iter().sum();
        Ok(RevokedTokens { count, worthless: (tokens.len() + jtis.len()) as u64 - count })
    }

    /// What revokes access tokens by their names, and is told in one entry.
    fn end_named(&self, jtis: &[String]) -> Result<Option<Audited<End>>, AdminFault> {
        let refused: Vec<_> = jtis.iter().enumerate().filter(|(_, jti)| !Provider::is_id(jti)).collect();
        if !refused.is_empty() {
            // What it is instead may be a token.
            let why = "a name has 22 characters of base64url, as the claim `jti` of our tokens";
            let refused = refused.into_iter().map(|(at, _)| Refused::new(format!("jtis[{at}]"), why));
            return Err(AdminFault::Refused(refused.collect()));
        }
        if jtis.is_empty() {
            return Ok(None);
        }
        let now = self.now();
        let told = |jti: &String| revocations::named_token(self.provider, jti, BY_OPERATOR, now);
        let change = RevokeNamed { jtis: jtis.to_vec(), revocations: jtis.iter().map(told).collect(), now };
        let entry = self.entry("token.revoke", "tokens".to_owned(), &json!({ "jtis": jtis }));
        Ok(Some(Audited { change: End::Named(change), entry }))
    }

    /// What revokes a token; `None`: it is unknown or over.
    async fn end(&self, text: &Secret) -> Result<Option<Audited<End>>, AdminFault> {
        let text = text.expose().trim();
        match opaque::kind(text) {
            Some(OpaqueKind::Access) => self.end_opaque(text).await,
            Some(OpaqueKind::Refresh) => {
                let digest = self.provider.secrets().digest(text);
                let found = self.provider.store().refresh_token(&digest).await?;
                Ok(found.map(|(_, owned)| {
                    let (change, entry) = self.end_family(&owned.family);
                    Audited { change: End::Family(change), entry }
                }))
            }
            Some(_) => Ok(None),
            None => Ok(self.end_jwt(text)),
        }
    }

    async fn end_opaque(&self, text: &str) -> Result<Option<Audited<End>>, AdminFault> {
        let digest = self.provider.secrets().digest(text);
        let Some(standing) = self.provider.store().access_token(&digest).await? else { return Ok(None) };
        let (token, now) = (standing.token, self.now());
        let entry = self.entry("token.revoke", target(&token.jti), &json!({ "client": token.client_id }));
        let revocation = revocations::access_token(self.provider, &token.jti, token.expires_at, BY_OPERATOR);
        let change = RevokeAccessToken { digest, client_id: token.client_id, revocation, now };
        Ok(Some(Audited { change: End::Opaque(change), entry }))
    }

    /// One that has expired is told of as well: what it let in may still be open.
    fn end_jwt(&self, text: &str) -> Option<Audited<End>> {
        let now = self.now();
        let claims = access_token::read_jwt(self.provider, text)?;
        let entry = self.entry("token.revoke", target(&claims.jti), &json!({ "client": claims.client_id }));
        let revocation =
            revocations::access_token(self.provider, &claims.jti, claims.expires_at, BY_OPERATOR);
        Some(Audited { change: End::Jwt(Revoke { revocation, now }), entry })
    }

    /// Families that are alive, in the order of their ids.
    pub async fn families(&self, list: &ListFamilies) -> Result<Page<FamilyView>, AdminFault> {
        let limit = paging::limit(list.limit)?;
        let filter = FamilyFilter { user_id: list.user.as_deref(), client_id: list.client.as_deref() };
        let after = list.after.as_deref().unwrap_or_default();
        let families =
            self.provider.store().families(filter, after, limit + 1, self.provider.sessions_at()).await?;
        let views = families.into_iter().map(FamilyView::from).collect();
        Ok(Page::cut(views, limit, |family: &FamilyView| family.id.clone()))
    }

    /// Revokes a family with all its tokens; one that is over stays so.
    pub async fn revoke_family(&self, id: &str) -> Result<(), AdminFault> {
        let family = self.provider.store().family(id).await?.ok_or_else(|| AdminFault::no("family", id))?;
        let (change, entry) = self.end_family(&family);
        self.write(change, entry).await?;
        Ok(())
    }

    fn end_family(&self, family: &Family) -> (RevokeFamily, AnnouncedEntry) {
        let revocation = revocations::family(self.provider, &family.id, "revoked by an operator");
        let detail = json!({ "client": family.client_id, "user": family.user_id });
        let entry = self.entry("family.revoke", format!("family:{}", family.id), &detail);
        (RevokeFamily { id: family.id.clone(), revocation, now: self.now() }, entry)
    }

    /// Revokes everything a client has so far, or what it has on behalf of one user.
    pub async fn revoke_all(&self, revoke: &RevokeAll) -> Result<Revoked, AdminFault> {
        let client = &revoke.client;
        self.client(client).await?;
        if let Some(user) = &revoke.user {
            self.user_row(user).await?;
        }
        let detail = revoke.user.as_ref().map_or(Value::Null, |user| json!({ "user": user }));
        let entry = self.entry("client.revoke", format!("client:{client}"), &detail);
        let begun = match revoke.user {
            Some(_) => 0,
            None => self.begin_to_revoke(client, ALL).await?,
        };
        let change = self.grants_of(client, revoke.user.as_deref(), ALL);
        Ok(Revoked { count: begun + self.write(change, entry).await? })
    }

    /// Revokes a client's families some at a time, so that whatever ends them all has few left: how many. Where there are many, those who
    /// ask nobody are told before, and once more with the last of them. If it is broken off, the same is to be done again.
    pub(super) async fn begin_to_revoke(
        &self,
        client: &str,
        reason: &'static str,
    ) -> Result<u64, AdminFault> {
        let (store, mut all, mut after) = (self.provider.store(), 0, String::new());
        loop {
            let some = RevokeSome { client_id: client.to_owned(), after, now: self.now() };
            let (count, last) = store.write(some).await?;
            let Some(last) = last else { return Ok(all + count) };
            if all == 0 {
                let revocation =
                    revocations::so_far(vec![self.tag(TagSubject::Client(client))], reason, self.now());
                store.write(Revoke { revocation, now: self.now() }).await?;
            }
            (all, after) = (all + count, last);
        }
    }

    /// What revokes everything a client has, or has on behalf of one user.
    pub(super) fn grants_of(&self, client: &str, user: Option<&str>, reason: &'static str) -> RevokeGrants {
        let now = self.now();
        let revocation = match user {
            Some(user) => revocations::consent(self.provider, (user, client), reason, now),
            None => revocations::so_far(vec![self.tag(TagSubject::Client(client))], reason, now),
        };
        RevokeGrants { client_id: client.to_owned(), user_id: user.map(str::to_owned), revocation, now }
    }
}

/// What revokes tokens: how many were worth something until now, as far as anybody knows.
#[derive(Debug, Clone)]
enum End {
    /// Of an opaque access token.
    Opaque(RevokeAccessToken),
    /// Of a refresh token.
    Family(RevokeFamily),
    /// Of an access token that nobody has to look up.
    Jwt(Revoke),
    /// Of those with these names.
    Named(RevokeNamed),
}

impl Change for End {
    type Output = u64;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<u64, StoreError> {
        match self {
            Self::Opaque(change) => change.apply(tx).await.map(u64::from),
            Self::Family(change) => change.apply(tx).await.map(u64::from),
            Self::Jwt(change) => change.apply(tx).await.map(|()| 1),
            Self::Named(change) => change.apply(tx).await.map(|()| change.jtis.len() as u64),
        }
    }

    fn happened(output: &u64) -> bool {
        *output > 0
    }
}

fn access_facts(token: Presented) -> TokenFacts {
    TokenFacts {
        kind: TokenKind::Access,
        jti: Some(token.jti),
        client_id: token.client_id,
        user_id: token.user_id,
        user_name: token.user_name,
        scopes: token.scopes,
        audiences: token.audiences,
        sid: token.sid,
        family_id: token.family_id,
        issued_at: seconds(token.issued_at),
        expires_at: seconds(token.expires_at),
    }
}

fn target(jti: &str) -> String {
    format!("token:{jti}")
}
