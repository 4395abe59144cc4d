//! Grants of the token endpoint, one file each.
//!
//! Owns: the common flow ([`issue`]): check that the client may use the grant, let the grant
//! determine and store what is granted, build the response.
//!
//! Does not own: the list of grants ([`GrantType`]), client authentication (already done: an
//! [`AuthenticatedClient`] is an argument), the format of tokens ([`crate::access_token`],
//! [`crate::id_token`]).
//!
//! A new grant is a variant of [`GrantType`] and a file here with one function that returns a
//! [`TokenResponse`]. The compiler reports every other place.

pub mod authorization_code;
pub mod client_credentials;
pub mod device_code;
pub mod password;
pub mod refresh_token;

use auth::{
    time::Timestamp,
    token::opaque::{self, OpaqueKind},
};
use serde::Serialize;
use store::{
    StoredDigest,
    audit::AuditedBy,
    redeem::{Redeem, RedeemResult, SecretKind, Successors},
    refresh_tokens::RefreshToken,
    users::UserRow,
};
use zeroize::Zeroizing;

use crate::access_token::{self, Granted, Minted};
use crate::audit_draft::Subject;
use crate::audit_trail::GrantTrail;
use crate::client_authentication::AuthenticatedClient;
use crate::id_token::{self, Authentication, Login};
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::oauth::scope::ScopeSet;
use crate::oauth::target;
use crate::person::{ClaimSelection, Person};
use crate::provider::Provider;
use crate::revocations;
use crate::session::Caller;

/// A successful response of the token endpoint (RFC 6749 §5.1, OpenID Connect Core 1.0 §3.1.3.3).
#[derive(Serialize)]
pub struct TokenResponse {
    access_token: Zeroizing<String>,
    token_type: &'static str,
    /// Lifetime of the access token in seconds.
    expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<Zeroizing<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token: Option<String>,
}

impl TokenResponse {
    fn new(minted: &Minted, scopes: &ScopeSet) -> Self {
        Self {
            access_token: minted.token.clone(),
            token_type: "Bearer",
            expires_in: minted.lifetime.as_secs(),
            scope: scopes.to_wire(),
            refresh_token: None,
            id_token: None,
        }
    }
}

/// Processes a grant of an authenticated client.
///
/// # Errors
/// [`OAuthFault`] when the client may not use the grant, or the grant refuses the request.
pub async fn issue(
    provider: &Provider,
    client: &AuthenticatedClient,
    grant: GrantType,
    form: &Form,
    caller: Caller,
) -> Result<TokenResponse, OAuthFault> {
    if !client.may_use(grant) {
        return Err(OAuthFault::GrantNotAllowed);
    }
    match grant {
        GrantType::AuthorizationCode => authorization_code::redeem(provider, client, form, caller).await,
        GrantType::RefreshToken => refresh_token::redeem(provider, client, form, caller).await,
        GrantType::ClientCredentials => client_credentials::grant(provider, client, form, caller).await,
        GrantType::DeviceCode => device_code::redeem(provider, client, form, caller).await,
        GrantType::Password => password::grant(provider, client, form, caller).await,
    }
}

/// What a user granted: the input for tokens.
struct Grant<'g> {
    client: &'g AuthenticatedClient,
    person: &'g Person,
    /// Scopes of the tokens: all granted scopes, or fewer if the client requests fewer.
    scopes: &'g ScopeSet,
    audiences: Vec<&'g str>,
    /// Id of the family and when it expires; `None`: there is none, so there is no refresh token.
    family: Option<(&'g str, Timestamp)>,
    sid: Option<&'g str>,
    /// Whether the grant remains valid after the session ends.
    outlives_session: bool,
    nonce: Option<&'g str>,
    authentication: &'g Authentication,
}

/// Tokens that are minted but not sent yet.
struct Tokens {
    response: TokenResponse,
    jti: String,
}

impl Tokens {
    /// The response with the tokens, if their secret was redeemed; `secret` names its kind.
    fn into_response(
        self,
        client: &AuthenticatedClient,
        redeemed: RedeemResult,
        secret: &'static str,
    ) -> Result<TokenResponse, OAuthFault> {
        match redeemed {
            RedeemResult::Redeemed => {
                tracing::debug!(client = client.id(), jti = self.jti, "{secret} redeemed");
                Ok(self.response)
            }
            RedeemResult::Replayed { .. } => Err(OAuthFault::Replayed(secret)),
            RedeemResult::Invalid => Err(OAuthFault::GrantInvalid("expired, or its family was revoked")),
        }
    }
}

impl Grant<'_> {
    /// Mints the tokens: the access token, a refresh token if the client may use them, an ID token
    /// for the scope `openid`. Also returns the rows to be stored before the response is sent.
    fn mint(&self, provider: &Provider) -> Result<(Tokens, Successors), OAuthFault> {
        let read_at = self.client.earliest_read_at(self.person.read_at());
        let minted = access_token::mint(
            provider,
            &Granted {
                client: self.client,
                person: Some(self.person),
                scopes: self.scopes,
                audiences: self.audiences.clone(),
                family: self.family.map(|(id, ends)| (id, self.access_token_end(provider, ends))),
                // The claim `sid` lets consumers of the revocation log revoke the token with its
                // session.
                sid: self.sid.filter(|_| !self.outlives_session),
                userinfo: &self.authentication.userinfo,
                read_at,
            },
        )?;
        let mut response = TokenResponse::new(&minted, self.scopes);
        let mut successors = Successors::default();
        if let Some((_, end)) = self.family
            && self.client.may_use(GrantType::RefreshToken)
        {
            let token = provider.draw_token(OpaqueKind::Refresh)?;
            let now = provider.now();
            successors.refresh = Some(RefreshToken {
                digest: provider.secrets().digest(&token),
                issued_at: now,
                expires_at: now.plus(provider.lifetimes().refresh_token).min(end),
            });
            response.refresh_token = Some(token);
        }
        if self.scopes.contains("openid") {
            let login = Login {
                client: self.client,
                person: self.person,
                authentication: self.authentication,
                scopes: self.scopes,
                sid: self.sid,
                nonce: self.nonce,
                access_token: &minted.token,
                read_at,
            };
            response.id_token = Some(id_token::mint(provider, &login)?);
        }
        successors.access = minted.row;
        Ok((Tokens { response, jti: minted.id }, successors))
    }

    /// When an access token expires at the latest, in a family that expires at `ends`. If the
    /// family ends with its session, that is at most one idle timeout from now.
    fn access_token_end(&self, provider: &Provider, ends: Timestamp) -> Timestamp {
        if self.sid.is_some() && !self.outlives_session {
            ends.min(provider.now().plus(provider.lifetimes().session_idle))
        } else {
            ends
        }
    }

    /// Redeems a code or a refresh token of a family, and stores the new tokens in the same change.
    async fn redeem(
        &self,
        provider: &Provider,
        (kind, digest): (SecretKind, StoredDigest),
        caller: Caller,
    ) -> Result<TokenResponse, OAuthFault> {
        let (secret, twice) = match kind {
            SecretKind::Code => ("code", "code redeemed twice"),
            SecretKind::RefreshToken => ("refresh token", "refresh token redeemed twice"),
        };
        let (tokens, successors) = self.mint(provider)?;
        let (family, _) = self.family.ok_or(OAuthFault::GrantInvalid("no token family"))?;
        let on_replay = revocations::family(provider, family, twice);
        let change = Redeem { kind, digest, successors, on_replay, at: provider.sessions_at() };
        let grant = match kind {
            SecretKind::Code => GrantType::AuthorizationCode,
            SecretKind::RefreshToken => GrantType::RefreshToken,
        };
        let trail = self.trail(provider, grant, caller);
        let entries = move |result: &RedeemResult| trail.redeemed(*result);
        let redeemed = provider.store().write(AuditedBy { change, entries }).await?;
        tokens.into_response(self.client, redeemed, secret)
    }

    /// What the audit log says of this grant.
    fn trail(&self, provider: &Provider, grant: GrantType, caller: Caller) -> GrantTrail {
        GrantTrail {
            user: Some(Subject { id: self.person.id().to_owned(), name: self.person.name().to_owned() }),
            family: self.family.map(|(id, _)| id.to_owned()),
            sid: self.sid.map(str::to_owned),
            scopes: self.scopes.to_wire(),
            address: Some(caller.0),
            ..GrantTrail::new(provider, grant, self.client)
        }
    }
}

/// Digest of the secret in a parameter, if it has the expected kind.
fn secret_digest(
    provider: &Provider,
    form: &Form,
    parameter: &'static str,
    kind: OpaqueKind,
) -> Result<StoredDigest, OAuthFault> {
    let text = form.get(parameter).ok_or(OAuthFault::ParameterMissing(parameter))?;
    if opaque::parse_kind(text) != Some(kind) {
        return Err(OAuthFault::GrantInvalid("not a secret for this grant"));
    }
    Ok(provider.secrets().digest(text))
}

/// The user of a grant, whose account must still be enabled.
async fn enabled_user(
    provider: &Provider,
    user: Option<UserRow>,
    selection: ClaimSelection<'_>,
) -> Result<Person, OAuthFault> {
    match user.filter(UserRow::is_open) {
        Some(user) => Ok(Person::from_user(provider.store(), user, selection).await?),
        None => Err(OAuthFault::GrantInvalid("account disabled or deleted")),
    }
}

/// The scopes of a family; they were valid when the family was stored.
fn stored_scopes(text: &str) -> ScopeSet {
    ScopeSet::parse(text).unwrap_or_default()
}

/// Those of the granted scopes that the client may still have: an operator may have withdrawn some
/// since. The response says which remain (RFC 6749 §5.1).
fn allowed_scopes(client: &AuthenticatedClient, granted: &ScopeSet) -> Result<ScopeSet, OAuthFault> {
    let allowed = granted.within(&client.scopes);
    match granted.first_outside(&client.scopes) {
        // The grammar has no empty `scope`, so a response could not say that none is left.
        Some(withdrawn) if allowed.is_empty() => Err(OAuthFault::ScopeNotAllowed(withdrawn.into())),
        _ => Ok(allowed),
    }
}

/// Audiences of the tokens: all granted ones that the client may still have, or those that the
/// request names (RFC 8707 §2.2). Any other audience is refused before redemption, so the client
/// can try again.
fn narrowed_audiences<'g>(
    client: &AuthenticatedClient,
    form: &Form,
    granted: &'g str,
) -> Result<Vec<&'g str>, OAuthFault> {
    let allowed: Vec<&str> = granted
        .split_ascii_whitespace()
        .filter(|granted| client.audiences.iter().any(|own| **own == **granted))
        .collect();
    let named = target::requested_targets(form)?;
    if named.is_empty() {
        return match granted.split_ascii_whitespace().next() {
            // Without an audience the token would be for the provider itself, which nobody granted.
            Some(withdrawn) if allowed.is_empty() => Err(OAuthFault::TargetNotAllowed(withdrawn.into())),
            _ => Ok(allowed),
        };
    }
    let of_allowed = |named: &str| {
        let found = allowed.iter().copied().find(|allowed| *allowed == named);
        found.ok_or_else(|| OAuthFault::TargetNotAllowed(named.into()))
    };
    named.into_iter().map(of_allowed).collect()
}
