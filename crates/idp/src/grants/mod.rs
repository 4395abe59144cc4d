//! Grants: the ways to a token. One file each.
//!
//! Owns: the list of grants ([`GrantType`]) and the path common to all ([`issue`]): the client may use the
//! grant, the grant says what is granted, the token is minted, the answer is formed.
//! Does not own: client authentication (it is over: an [`AuthenticatedClient`] is an argument) or the shape of
//! an access token ([`crate::access_token`]).
//!
//! A new grant is a variant here and a file beside [`client_credentials`] with one function that answers a
//! [`Granted`]. The compiler names every other place.

pub mod client_credentials;

use serde::Serialize;

use crate::{
    access_token::{self, Granted},
    client::authenticate::AuthenticatedClient,
    oauth::{error::Fault, form::Form},
    provider::Provider,
};

/// A grant of the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GrantType {
    /// RFC 6749 §4.4.
    ClientCredentials,
}

impl GrantType {
    /// Every grant there is.
    pub const ALL: [Self; 1] = [Self::ClientCredentials];

    /// The value of `grant_type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientCredentials => "client_credentials",
        }
    }

    /// The grant of a `grant_type`, compared exactly.
    pub fn from_wire(text: &str) -> Result<Self, Fault> {
        let unknown = || Fault::GrantUnsupported(text.chars().take(64).collect());
        Self::ALL.into_iter().find(|g| g.as_str() == text).ok_or_else(unknown)
    }
}

/// A successful answer of the token endpoint (RFC 6749 §5.1).
#[derive(Serialize)]
pub struct TokenResponse {
    access_token: String,
    token_type: &'static str,
    /// Seconds.
    expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

/// Answers a grant of an authenticated client.
pub fn issue(
    provider: &Provider,
    client: AuthenticatedClient<'_>,
    grant: GrantType,
    form: &Form,
) -> Result<TokenResponse, Fault> {
    if !client.may_use(grant) {
        return Err(Fault::GrantNotAllowed);
    }
    let granted: Granted<'_> = match grant {
        GrantType::ClientCredentials => client_credentials::grant(client, form)?,
    };
    let minted = access_token::mint(provider, &granted)?;
    tracing::debug!(client = client.id(), grant = grant.as_str(), jti = %minted.id, "token issued");
    Ok(TokenResponse {
        access_token: minted.token,
        token_type: "Bearer",
        expires_in: minted.lifetime.as_secs(),
        scope: granted.scopes.to_wire(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use auth::{time::Timestamp, token::jws::SigningAlgorithm};
    use aws_lc_rs::rand::SystemRandom;
    use axum::http::HeaderMap;

    use super::*;
    use crate::{
        Issuer, Keys,
        client::{
            Client, Registry,
            authenticate::authenticate,
            secret::{SecretDigest, SecretDigests},
        },
        config::Checked,
        oauth::scope::ScopeSet,
    };

    const SECRET: &str = "KzJ4bXk0cGVyc2lzdGVudA";

    fn provider(grants: &[GrantType]) -> Provider {
        let client = Client {
            id: "orders".into(),
            secrets: SecretDigests::new(SecretDigest::of_configured(SECRET).unwrap(), None),
            grants: grants.to_vec(),
            scopes: ScopeSet::default(),
            default_scopes: ScopeSet::default(),
            audiences: vec!["api".into()],
            groups: vec![],
            access_token_lifetime: Duration::from_mins(1),
        };
        let checked = Checked {
            issuer: Issuer::parse("https://login.example.com").unwrap(),
            access_token_algorithm: SigningAlgorithm::Es256,
            clients: Registry::new([client]),
        };
        let now = Timestamp::from_secs(1);
        let keys = Keys::in_memory(&[SigningAlgorithm::Es256], now).unwrap();
        Provider::new(checked, keys, move || now, SystemRandom::new()).unwrap()
    }

    fn ask(provider: &Provider) -> Result<(), Fault> {
        let body = format!("client_id=orders&client_secret={SECRET}");
        let form = Form::parse(body.as_bytes()).unwrap();
        let client = authenticate(provider.clients(), &HeaderMap::new(), &form).unwrap();
        issue(provider, client, GrantType::ClientCredentials, &form).map(|_| ())
    }

    #[test]
    fn a_client_uses_only_its_own_grants() {
        assert_eq!(ask(&provider(&[])), Err(Fault::GrantNotAllowed));
        assert_eq!(ask(&provider(&[GrantType::ClientCredentials])), Ok(()));
    }

    #[test]
    fn the_wire_names_go_there_and_back() {
        for grant in GrantType::ALL {
            assert_eq!(GrantType::from_wire(grant.as_str()), Ok(grant));
        }
        assert_eq!(
            GrantType::from_wire(&"x".repeat(100)),
            Err(Fault::GrantUnsupported("x".repeat(64).into()))
        );
    }
}
