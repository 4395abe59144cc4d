//! Grant `password` (RFC 6749 §4.3): the client itself asks for the user's password.
//!
//! OAuth was designed to avoid this. It is for trusted programs that cannot open a browser, and
//! only for clients that have the grant.

use store::{
    Change,
    access_tokens::IssueAccessToken,
    audit::{AuditEntry, Audited},
    families::Family,
    redeem::{BeginFamily, Successors},
};

use super::{Grant, TokenResponse};
use crate::access_token::origins;
use crate::audit_draft::Subject;
use crate::client_authentication::AuthenticatedClient;
use crate::id_token::Authentication;
use crate::login::{ACR, LoginFault, LoginOrigin, METHOD};
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::oauth::grant_type::GrantType;
use crate::passwords::Password;
use crate::person::Person;
use crate::provider::Provider;
use crate::session::Caller;

/// Issues the tokens for a name and a password.
pub(super) async fn grant(
    provider: &Provider,
    client: &AuthenticatedClient,
    form: &Form,
    caller: Caller,
) -> Result<TokenResponse, OAuthFault> {
    let name = form.get("username").ok_or(OAuthFault::ParameterMissing("username"))?;
    let password = form.get("password").ok_or(OAuthFault::ParameterMissing("password"))?;
    let scopes = client.scopes_for(form.get("scope"))?;
    let audiences = client.audiences_for(form)?;
    // A password of this length was never set.
    let password = Password::new(password.to_owned()).map_err(|_| LoginFault::Wrong)?;
    let began = provider.now();
    let place = (provider.store(), provider.secrets());
    let origin = LoginOrigin { address: caller.0, client: Some(Subject::of_client(client)) };
    let user = provider.logins().verify(place, name, password, &origin, began).await?;
    let authentication = Authentication {
        at: provider.now().as_secs(),
        acr: Some(ACR.into()),
        amr: vec![METHOD.into()],
        ..Authentication::default()
    };
    let person =
        Person::from_user(provider.store(), user, authentication.claim_selection(client, &scopes)).await?;
    // Only refresh tokens need a family.
    let family = if client.may_use(GrantType::RefreshToken) {
        Some(Family {
            id: provider.draw_id()?,
            client_id: client.id().to_owned(),
            user_id: Some(person.id().to_owned()),
            sid: None,
            scopes: scopes.to_wire().unwrap_or_default(),
            audiences: audiences.join(" "),
            details: authentication.write(),
            outlives_session: true,
            created_at: began,
            expires_at: began.plus(provider.lifetimes().grant),
            revoked_at: None,
            read_at: client.earliest_read_at(person.read_at()),
        })
    } else {
        None
    };
    let grant = Grant {
        client,
        person: &person,
        scopes: &scopes,
        audiences,
        family: family.as_ref().map(|family| (family.id.as_str(), family.expires_at)),
        sid: None,
        outlives_session: true,
        nonce: None,
        authentication: &authentication,
    };
    let (tokens, successors) = grant.mint(provider)?;
    let user = person.id();
    let entry = grant.trail(provider, GrantType::Password, caller).issued();
    if !store_tokens(provider, family, successors, entry).await? {
        return Err(OAuthFault::GrantInvalid("account disabled or password changed concurrently"));
    }
    tracing::debug!(client = client.id(), user, jti = tokens.jti, "token issued for a password");
    Ok(tokens.response)
}

/// Stores what must be stored. Returns `false` if the account was disabled meanwhile. A JWT without
/// a family is not stored: its `read_at` claim ties it to later revocations of the account.
async fn store_tokens(
    provider: &Provider,
    family: Option<Family>,
    successors: Successors,
    entry: Option<AuditEntry>,
) -> Result<bool, OAuthFault> {
    match (family, successors) {
        (Some(family), successors) => {
            let origins = origins(provider, &family.client_id, family.user_id.as_deref());
            write_with(provider, BeginFamily { family, origins, successors }, entry).await
        }
        (None, Successors { access: Some(token), .. }) => {
            write_with(provider, IssueAccessToken(token), entry).await
        }
        (None, Successors { access: None, .. }) => {
            if let Some(entry) = entry {
                provider.store().write(entry).await?;
            }
            Ok(true)
        }
    }
}

/// Makes a change, with its audit entry if it has one.
async fn write_with<C: Change>(
    provider: &Provider,
    change: C,
    entry: Option<AuditEntry>,
) -> Result<C::Output, OAuthFault> {
    Ok(match entry {
        Some(entry) => provider.store().write(Audited { change, entry }).await?,
        None => provider.store().write(change).await?,
    })
}
