//! Token administration: inspection and revocation of tokens and token families.

use std::borrow::Cow;

use auth::token::opaque::{self, OpaqueKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{
    Change, StoreError, Tx,
    access_tokens::{AppendRevocation, RevokeAccessToken, RevokeByJti},
    audit::{AuditEntry, Audited},
    families::{Family, FamilyFilter, OwnedFamily, RevokeFamily, RevokeFamilyBatch, RevokeGrants},
};

use super::paging::{Listed, Part};
use super::{Admin, AdminFault, Page, Refused, Secret, UtcTime, followers::Refusal};
use crate::access_token::{self, Presented};
use crate::provider::Provider;
use crate::secrets::TagSubject;
use crate::{revocations, session};

/// Reason in the log when an operator revokes an access token.
const TOKEN_REVOKED_REASON: &str = "access token revoked by an operator";
/// Reason in the log when an operator revokes everything of a client.
const ALL_REVOKED_REASON: &str = "revoked by an operator";

/// Most tokens that one request revokes, in one transaction.
pub const MAX_TOKENS: usize = 500;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// Access token, for a resource server.
    Access,
    /// Refresh token, which is exchanged for a new access token.
    Refresh,
}

/// Properties of a valid token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TokenFacts {
    /// Kind of the token.
    pub kind: TokenKind,
    /// The `jti` of the token; refresh tokens have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// The client it was issued to.
    pub client_id: String,
    /// Id of the user it speaks for; absent if it speaks for the client itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Login name of that user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// Granted scopes, separated by spaces.
    pub scopes: String,
    /// Granted audiences, separated by spaces.
    pub audiences: String,
    /// The session it was granted in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// The token family it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family_id: Option<String>,
    /// When it was issued.
    pub issued_at: UtcTime,
    /// When it expires.
    pub expires_at: UtcTime,
}

/// Status of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TokenView {
    /// Whether the token is valid; for an access token as the introspection endpoint responds.
    pub active: bool,
    /// Properties of the token; absent if it is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenFacts>,
    /// For an access token that was revoked and would otherwise be valid: whether it is refused
    /// everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

/// Token to inspect or to revoke.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenText {
    /// An access token or a refresh token, as it was issued.
    pub token: Secret,
}

/// Leaked tokens to revoke: 1 to 500 in both lists together.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenList {
    /// Access tokens and refresh tokens, as they were issued.
    #[schema(max_items = 500)]
    pub tokens: Vec<Secret>,
    /// Access tokens by `jti`, if the tokens themselves are not available. This is much faster,
    /// because no signature is verified. A `jti` is revoked whether or not a token with it exists.
    #[schema(max_items = 500)]
    pub jtis: Vec<String>,
}

/// Result of the revocation of a list of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct RevokedTokens {
    /// Number of revoked tokens. Every `jti` counts, because its status is unknown. A JWT counts
    /// even if it was revoked before or has expired: an exchange that it authorized may still be
    /// open.
    pub count: u64,
    /// Number of tokens that were unknown or already revoked.
    pub worthless: u64,
}

/// Token family: all tokens that follow from one authorization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FamilyView {
    /// Id of the family.
    pub id: String,
    /// The client that holds the tokens.
    pub client_id: String,
    /// Id of the user they speak for; absent if they speak for the client itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The session in which they were granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// Granted scopes, separated by spaces.
    pub scopes: String,
    /// Granted audiences, separated by spaces.
    pub audiences: String,
    /// Whether it remains valid after its session ends.
    pub outlives_session: bool,
    /// When it was granted.
    pub created_at: UtcTime,
    /// When it expires.
    pub expires_at: UtcTime,
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
            created_at: UtcTime(family.created_at),
            expires_at: UtcTime(family.expires_at),
        }
    }
}

impl Listed for FamilyView {
    fn position(&self) -> String {
        self.id.clone()
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        let given = [&self.id, &self.client_id, &self.scopes, &self.audiences];
        let optional = [&self.user_id, &self.sid].into_iter().flatten();
        given.into_iter().chain(optional).map(Cow::from).collect()
    }
}

/// Query parameters of the list of token families.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListFamilies {
    /// Only families after this id.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only families with this text, in any case, in the id, the client id, the user id, the `sid`,
    /// the scopes or the audiences. A page of a search looks at 10 000 of them at most, so it may be
    /// short although more follow.
    pub search: Option<String>,
    /// Only families on behalf of this user: id, name or email address.
    pub user: Option<String>,
    /// Only families of this client: id or name.
    pub client: Option<String>,
}

/// Request to revoke all tokens of a client, or those of one user at this client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeAll {
    /// The client that holds the tokens: id or name.
    pub client: String,
    /// Only tokens on behalf of this user: id, name or email address. If absent, all tokens,
    /// including the client's own.
    #[serde(default)]
    pub user: Option<String>,
}

/// Result of a revocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Revoked {
    /// Number of revoked families and opaque tokens. JWTs without a family are revoked too, but not
    /// counted, because their number is unknown.
    pub count: u64,
}

impl Admin<'_> {
    /// Returns the status of a token.
    ///
    /// # Errors
    /// [`AdminFault`] when the store fails.
    pub async fn token(&self, text: &TokenText) -> Result<TokenView, AdminFault> {
        let text = text.token.expose().trim();
        let (facts, refused) = match opaque::parse_kind(text) {
            Some(OpaqueKind::Refresh) => (self.refresh_facts(text).await?, None),
            _ => match access_token::look_up(self.provider, text).await? {
                Some(token) if token.unrevoked => (Some(access_facts(token)), None),
                Some(token) => (None, Some(self.refusal(&token).await?)),
                None => (None, None),
            },
        };
        Ok(TokenView { active: facts.is_some(), token: facts, refused })
    }

    async fn refresh_facts(&self, text: &str) -> Result<Option<TokenFacts>, AdminFault> {
        let digest = self.provider.secrets().digest(text);
        let refresh_token = self.provider.store().refresh_token(&digest).await?;
        let now = self.now();
        let alive =
            refresh_token.filter(|(token, owned)| owned.family.is_alive(now) && now < token.expires_at);
        let ended = match alive.as_ref().map(|(_, owned)| &owned.family) {
            Some(Family { sid: Some(sid), outlives_session: false, .. }) => {
                !session::is_valid(self.provider, sid).await?
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
            issued_at: UtcTime(token.issued_at),
            expires_at: UtcTime(token.expires_at),
        }))
    }

    /// Revokes a token: an access token alone, a refresh token with its family.
    ///
    /// # Errors
    /// [`AdminFault::NoToken`] when it is unknown or already revoked.
    pub async fn revoke_token(&self, text: &TokenText) -> Result<Revoked, AdminFault> {
        let end = self.revocation_of(&text.token).await?.ok_or(AdminFault::NoToken)?;
        match self.provider.store().write(end).await? {
            0 => Err(AdminFault::NoToken),
            count => Ok(Revoked { count }),
        }
    }

    /// Revokes a list of tokens in one transaction, for example after a leak.
    ///
    /// # Errors
    /// [`AdminFault`] when the list has a wrong length, a `jti` is malformed or the store fails.
    pub async fn revoke_tokens(&self, list: &TokenList) -> Result<RevokedTokens, AdminFault> {
        let TokenList { tokens, jtis } = list;
        if !(1..=MAX_TOKENS).contains(&(tokens.len() + jtis.len())) {
            let hint = format!("send 1 to {MAX_TOKENS} tokens, including `jtis`");
            return Err(AdminFault::refused("tokens", hint));
        }
        let mut ends = Vec::with_capacity(tokens.len() + 1);
        ends.extend(self.revocation_by_jti(jtis)?);
        for token in tokens {
            ends.extend(self.revocation_of(token).await?);
        }
        let count = self.provider.store().write(ends).await?.into_iter().sum();
        Ok(RevokedTokens { count, worthless: (tokens.len() + jtis.len()) as u64 - count })
    }

    /// The change that revokes access tokens by `jti`, with one audit entry for all.
    fn revocation_by_jti(&self, jtis: &[String]) -> Result<Option<Audited<TokenRevocation>>, AdminFault> {
        let refused: Vec<_> = jtis.iter().enumerate().filter(|(_, jti)| !Provider::is_id(jti)).collect();
        if !refused.is_empty() {
            // Not repeated in the error: the malformed text may be a token.
            let why = "malformed jti: use the 22 base64url characters of the claim `jti`";
            let refused = refused.into_iter().map(|(at, _)| Refused::new(format!("jtis[{at}]"), why));
            return Err(AdminFault::Refused(refused.collect()));
        }
        if jtis.is_empty() {
            return Ok(None);
        }
        let now = self.now();
        let revocation =
            |jti: &String| revocations::access_token_by_jti(self.provider, jti, TOKEN_REVOKED_REASON, now);
        let change =
            RevokeByJti { jtis: jtis.to_vec(), revocations: jtis.iter().map(revocation).collect(), now };
        let entry = self.entry("token.revoke", "tokens".to_owned(), &json!({ "jtis": jtis }));
        Ok(Some(Audited { change: TokenRevocation::ByJti(change), entry }))
    }

    /// The change that revokes a token. `None`: it is unknown.
    async fn revocation_of(&self, text: &Secret) -> Result<Option<Audited<TokenRevocation>>, AdminFault> {
        let text = text.expose().trim();
        match opaque::parse_kind(text) {
            Some(OpaqueKind::Access) => self.opaque_revocation(text).await,
            Some(OpaqueKind::Refresh) => {
                let digest = self.provider.secrets().digest(text);
                let refresh_token = self.provider.store().refresh_token(&digest).await?;
                Ok(refresh_token.map(|(_, owned)| {
                    let (change, entry) = self.family_revocation(&owned.family);
                    Audited { change: TokenRevocation::Family(change), entry }
                }))
            }
            Some(_) => Ok(None),
            None => Ok(self.jwt_revocation(text)),
        }
    }

    async fn opaque_revocation(&self, text: &str) -> Result<Option<Audited<TokenRevocation>>, AdminFault> {
        let digest = self.provider.secrets().digest(text);
        let Some(standing) = self.provider.store().access_token(&digest).await? else { return Ok(None) };
        let (token, now) = (standing.token, self.now());
        let entry = self.entry("token.revoke", target(&token.jti), &json!({ "client": token.client_id }));
        let revocation =
            revocations::access_token(self.provider, &token.jti, token.expires_at, TOKEN_REVOKED_REASON);
        let change = RevokeAccessToken { digest, client_id: token.client_id, revocation, now };
        Ok(Some(Audited { change: TokenRevocation::Opaque(change), entry }))
    }

    /// Revokes an expired token too: an exchange that it authorized may still be open.
    fn jwt_revocation(&self, text: &str) -> Option<Audited<TokenRevocation>> {
        let now = self.now();
        let claims = access_token::read_jwt(self.provider, text)?;
        let entry = self.entry("token.revoke", target(&claims.jti), &json!({ "client": claims.client_id }));
        let revocation =
            revocations::access_token(self.provider, &claims.jti, claims.expires_at, TOKEN_REVOKED_REASON);
        Some(Audited { change: TokenRevocation::Jwt(AppendRevocation { revocation, now }), entry })
    }

    /// Lists valid families, ordered by id.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range, there is no such user or client, or the store
    /// fails.
    pub async fn families(&self, list: &ListFamilies) -> Result<Page<FamilyView>, AdminFault> {
        let (store, at) = (self.provider.store(), self.provider.sessions_at());
        let user = self.optional_user_id(list.user.as_deref()).await?;
        let client = match &list.client {
            Some(client) => Some(self.holder_id(client).await?),
            None => None,
        };
        let filter = FamilyFilter { user_id: user.as_deref(), client_id: client.as_deref() };
        let part = Part { search: list.search.as_deref(), limit: list.limit, after: list.after.as_deref() };
        part.read(move |after: String, count| async move {
            let families = store.families(filter, &after, count, at).await?;
            Ok(families.into_iter().map(FamilyView::from).collect())
        })
        .await
    }

    /// Id of the client that a request names. A client that is no longer in the configuration is
    /// found by its id while it has families.
    async fn holder_id(&self, client: &str) -> Result<String, AdminFault> {
        let found = self.client_id(client).await;
        if let Err(AdminFault::NotFound { .. }) = &found {
            let of_id = FamilyFilter { client_id: Some(client), user_id: None };
            let at = self.provider.sessions_at();
            if !self.provider.store().families(of_id, "", 1, at).await?.is_empty() {
                return Ok(client.to_owned());
            }
        }
        found
    }

    /// Revokes a family with all its tokens. A family that was revoked before stays revoked.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such family or the store fails.
    pub async fn revoke_family(&self, id: &str) -> Result<(), AdminFault> {
        let family = self
            .provider
            .store()
            .family(id)
            .await?
            .ok_or_else(|| AdminFault::not_found("token family", id))?;
        let (change, entry) = self.family_revocation(&family);
        self.write(change, entry).await?;
        Ok(())
    }

    fn family_revocation(&self, family: &Family) -> (RevokeFamily, AuditEntry) {
        let revocation = revocations::family(self.provider, &family.id, "revoked by an operator");
        let detail = json!({ "client": family.client_id, "user": family.user_id });
        let entry = self.entry("family.revoke", format!("family:{}", family.id), &detail);
        (RevokeFamily { id: family.id.clone(), revocation, now: self.now() }, entry)
    }

    /// Revokes everything that a client holds so far, or holds on behalf of one user.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such client or user, or the store fails.
    pub async fn revoke_all(&self, revoke: &RevokeAll) -> Result<Revoked, AdminFault> {
        let client = &self.client_id(&revoke.client).await?;
        let user = self.optional_user_id(revoke.user.as_deref()).await?;
        let detail = user.as_ref().map_or(Value::Null, |user| json!({ "user": user }));
        let entry = self.entry("client.revoke", format!("client:{client}"), &detail);
        let begun = match user {
            Some(_) => 0,
            None => self.revoke_families_in_batches(client, ALL_REVOKED_REASON).await?,
        };
        let change = self.grants_revocation(client, user.as_deref(), ALL_REVOKED_REASON);
        Ok(Revoked { count: begun + self.write(change, entry).await? })
    }

    /// Revokes a client's families in batches, so that few are left for the change that revokes the
    /// rest. Returns their number. If there is more than one batch, the log announces the
    /// revocation after the first batch and again with the final change. After an interruption the
    /// same call can be repeated.
    pub(super) async fn revoke_families_in_batches(
        &self,
        client: &str,
        reason: &'static str,
    ) -> Result<u64, AdminFault> {
        let (store, mut all, mut after) = (self.provider.store(), 0, String::new());
        loop {
            let some = RevokeFamilyBatch { client_id: client.to_owned(), after, now: self.now() };
            let (count, last) = store.write(some).await?;
            let Some(last) = last else { return Ok(all + count) };
            if all == 0 {
                let revocation = revocations::revoke_issued_so_far(
                    vec![self.tag(TagSubject::Client(client))],
                    reason,
                    self.now(),
                );
                store.write(AppendRevocation { revocation, now: self.now() }).await?;
            }
            (all, after) = (all + count, last);
        }
    }

    /// The change that revokes everything that a client holds, or holds on behalf of one user.
    pub(super) fn grants_revocation(
        &self,
        client: &str,
        user: Option<&str>,
        reason: &'static str,
    ) -> RevokeGrants {
        let now = self.now();
        let revocation = match user {
            Some(user) => revocations::consent(self.provider, (user, client), reason, now),
            None => {
                revocations::revoke_issued_so_far(vec![self.tag(TagSubject::Client(client))], reason, now)
            }
        };
        RevokeGrants { client_id: client.to_owned(), user_id: user.map(str::to_owned), revocation, now }
    }
}

/// A change that revokes tokens. Its output is the number of revoked tokens, as far as it is known.
#[derive(Debug, Clone)]
enum TokenRevocation {
    /// Revokes an opaque access token.
    Opaque(RevokeAccessToken),
    /// Revokes the family of a refresh token.
    Family(RevokeFamily),
    /// Revokes a JWT access token, which is not stored.
    Jwt(AppendRevocation),
    /// Revokes access tokens by their `jti`.
    ByJti(RevokeByJti),
}

impl Change for TokenRevocation {
    type Output = u64;

    async fn apply(&self, tx: &mut Tx<'_>) -> Result<u64, StoreError> {
        match self {
            Self::Opaque(change) => change.apply(tx).await.map(u64::from),
            Self::Family(change) => change.apply(tx).await.map(u64::from),
            Self::Jwt(change) => change.apply(tx).await.map(|()| 1),
            Self::ByJti(change) => change.apply(tx).await.map(|()| change.jtis.len() as u64),
        }
    }

    fn took_effect(output: &u64) -> bool {
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
        issued_at: UtcTime(token.issued_at),
        expires_at: UtcTime(token.expires_at),
    }
}

fn target(jti: &str) -> String {
    format!("token:{jti}")
}
