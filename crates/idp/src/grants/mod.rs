//! Grants: the ways to a token. One file each.
//!
//! Owns: the path common to all ([`issue`]): the client may use the grant, the grant says what is granted and keeps it, the
//! answer is formed.
//! Does not own: the list of grants ([`GrantType`]), client authentication (it is over: an [`AuthenticatedClient`] is an
//! argument) or the shape of tokens ([`crate::access_token`], [`crate::id_token`]).
//!
//! A new grant is a variant there and a file beside the others with one function that answers a
//! [`TokenResponse`]. The compiler names every other place.

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
    redeem::{Once, Redeem, Redeemed, Successors},
    refresh_tokens::RefreshToken,
    users::UserRow,
};
use zeroize::Zeroizing;

use crate::access_token::{self, Granted, Minted};
use crate::client::authenticate::AuthenticatedClient;
use crate::id_token::{self, Authentication, Login};
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::oauth::scope::ScopeSet;
use crate::oauth::target;
use crate::person::{Person, Told};
use crate::provider::Provider;
use crate::revocations;
use crate::session::Caller;

/// A successful answer of the token endpoint (RFC 6749 §5.1, OpenID Connect Core 1.0 §3.1.3.3).
#[derive(Serialize)]
pub struct TokenResponse {
    access_token: Zeroizing<String>,
    token_type: &'static str,
    /// Seconds.
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

/// Answers a grant of an authenticated client.
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
        GrantType::AuthorizationCode => authorization_code::redeem(provider, client, form).await,
        GrantType::RefreshToken => refresh_token::redeem(provider, client, form).await,
        GrantType::ClientCredentials => client_credentials::grant(provider, client, form).await,
        GrantType::DeviceCode => device_code::redeem(provider, client, form).await,
        GrantType::Password => password::grant(provider, client, form, caller).await,
    }
}

/// What a person granted, as tokens are made from it.
struct Grant<'g> {
    client: &'g AuthenticatedClient,
    person: &'g Person,
    /// What the tokens are for: the whole of it, or what the client asked for less.
    scopes: &'g ScopeSet,
    audiences: Vec<&'g str>,
    /// The family and when it ends; `None`: there is none, nothing of it can be refreshed.
    family: Option<(&'g str, Timestamp)>,
    sid: Option<&'g str>,
    /// What is granted lives on when the session ends.
    outlives_session: bool,
    nonce: Option<&'g str>,
    authentication: &'g Authentication,
}

/// Tokens that are made and not yet handed out.
struct Tokens {
    response: TokenResponse,
    jti: String,
}

impl Tokens {
    /// The answer with them, if the secret they were made for was redeemed with it; `secret`: what kind that is.
    fn handed_out(
        self,
        client: &AuthenticatedClient,
        redeemed: Redeemed,
        secret: &'static str,
    ) -> Result<TokenResponse, OAuthFault> {
        match redeemed {
            Redeemed::Now => {
                tracing::debug!(client = client.id(), jti = self.jti, "{secret} redeemed");
                Ok(self.response)
            }
            Redeemed::Before => Err(OAuthFault::Replayed(secret)),
            Redeemed::Dead => Err(OAuthFault::GrantInvalid("it has expired, or what it came of has ended")),
        }
    }
}

impl Grant<'_> {
    /// Makes the tokens: the access token, the next refresh token where the client refreshes, the ID token where OpenID Connect
    /// was asked for. With them what is to be kept before they are handed out.
    fn mint(&self, provider: &Provider) -> Result<(Tokens, Successors), OAuthFault> {
        let read_at = self.client.not_read_after(self.person.read_at());
        let minted = access_token::mint(
            provider,
            &Granted {
                client: self.client,
                person: Some(self.person),
                scopes: self.scopes,
                audiences: self.audiences.clone(),
                family: self.family.map(|(id, ends)| (id, self.ends_at_rest(provider, ends))),
                // Whoever follows what is revoked takes a token with its session.
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

    /// When an access token ends that is never followed by another, where its family ends at `ends`: with the session that is used now for
    /// the last time, if it ends with that.
    fn ends_at_rest(&self, provider: &Provider, ends: Timestamp) -> Timestamp {
        if self.sid.is_some() && !self.outlives_session {
            ends.min(provider.now().plus(provider.lifetimes().session_idle))
        } else {
            ends
        }
    }

    /// The tokens for a code or a refresh token of a family, which is redeemed in the same change that keeps what follows.
    async fn redeem(
        &self,
        provider: &Provider,
        what: Once,
        digest: StoredDigest,
    ) -> Result<TokenResponse, OAuthFault> {
        let (secret, twice) = match what {
            Once::Code => ("code", "code redeemed twice"),
            Once::RefreshToken => ("refresh token", "refresh token redeemed twice"),
        };
        let (tokens, successors) = self.mint(provider)?;
        let (family, _) = self.family.ok_or(OAuthFault::GrantInvalid("it belongs to no family"))?;
        let on_replay = revocations::family(provider, family, twice);
        let redeem = Redeem { what, digest, successors, on_replay, at: provider.sessions_at() };
        tokens.handed_out(self.client, provider.store().write(redeem).await?, secret)
    }
}

/// The digest of a secret that is redeemed once, if the parameter holds one of that kind.
fn presented(
    provider: &Provider,
    form: &Form,
    parameter: &'static str,
    kind: OpaqueKind,
) -> Result<StoredDigest, OAuthFault> {
    let text = form.get(parameter).ok_or(OAuthFault::ParameterMissing(parameter))?;
    if opaque::kind(text) != Some(kind) {
        return Err(OAuthFault::GrantInvalid("the text is no secret of the kind that this grant takes"));
    }
    Ok(provider.secrets().digest(text))
}

/// The person behind a grant, whose account must still be open.
async fn still_open(
    provider: &Provider,
    user: Option<UserRow>,
    told: Told<'_>,
) -> Result<Person, OAuthFault> {
    match user.filter(UserRow::is_open) {
        Some(user) => Ok(Person::of(provider.store(), user, told).await?),
        None => Err(OAuthFault::GrantInvalid("the account is closed")),
    }
}

/// The scopes of a family, which are in the grammar since they were when it was made.
fn scopes_of(text: &str) -> ScopeSet {
    ScopeSet::parse(text).unwrap_or_default()
}

/// Where the tokens are for: all that was granted, or as much of it as the request names (RFC 8707 §2.2). What is named beside is refused, and
/// what was to be redeemed is good for another try.
fn audiences_of<'g>(form: &Form, granted: &'g str) -> Result<Vec<&'g str>, OAuthFault> {
    let granted: Vec<&str> = granted.split_ascii_whitespace().collect();
    let named = target::named(form)?;
    if named.is_empty() {
        return Ok(granted);
    }
    let of_granted = |named: &str| {
        let found = granted.iter().copied().find(|granted| *granted == named);
        found.ok_or_else(|| OAuthFault::TargetNotAllowed(named.into()))
    };
    named.into_iter().map(of_granted).collect()
}
