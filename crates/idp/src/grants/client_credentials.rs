//! Client credentials (RFC 6749 §4.4): a program acts for itself.
//!
//! The client is the subject (RFC 9068 §2.2), within its own scopes, audiences and groups. There is no
//! refresh token (§4.4.3): the client can ask again.

use crate::{
    access_token::Granted,
    client::authenticate::AuthenticatedClient,
    oauth::{error::Fault, form::Form},
};

/// What the client asked for, if it may have all of it.
pub fn grant<'r>(client: AuthenticatedClient<'r>, form: &Form) -> Result<Granted<'r>, Fault> {
    let client = client.client();
    Ok(Granted {
        client,
        subject: client.id(),
        scopes: client.scopes_for(form.get("scope"))?,
        audiences: client.audiences_for(form)?,
        groups: client.groups(),
    })
}
