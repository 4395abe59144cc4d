//! Client authentication (RFC 6749 §2.3, OpenID Connect Core §9).
//!
//! Owns: reading the presented credentials (`client_secret_basic`, `client_secret_post`,
//! `private_key_jwt`, `none`; exactly one of them), and the only constructor of
//! [`AuthenticatedClient`].
//!
//! Does not own: the client's rights, the required claims of an assertion
//! ([`crate::client_authentication::assertion`]).
//!
//! Flow: headers and form → presented credentials → the client they name → comparison →
//! [`AuthenticatedClient`].

pub mod assertion;

use std::{ops::Deref, sync::Arc};

use axum::http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use crate::client::{Client, ClientCredential};
use crate::client_secret::{SecretDigest, SecretDigests};
use crate::{
    oauth::{
        error::OAuthFault,
        form::{self, Form},
    },
    provider::Provider,
};

/// A client that authenticated in this request, or a public client. Grants require one; only
/// [`authenticate`] creates it.
#[derive(Debug, Clone)]
pub struct AuthenticatedClient(Arc<Client>);

impl Deref for AuthenticatedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

impl AuthenticatedClient {
    /// Whether the client authenticated: it is not a public client.
    pub fn is_confidential(&self) -> bool {
        !matches!(self.0.proof, ClientCredential::Nothing)
    }
}

/// Authenticates the client of a request.
///
/// # Errors
/// [`OAuthFault`] when credentials are missing, malformed or wrong, or the store fails.
pub async fn authenticate(
    provider: &Provider,
    headers: &HeaderMap,
    form: &Form,
) -> Result<AuthenticatedClient, OAuthFault> {
    let presented = Presented::read(headers, form)?;
    let client = provider.clients().find(provider.store(), &presented.id).await?;
    presented.compare(provider, client).await.map(AuthenticatedClient)
}

enum Credentials {
    Nothing,
    Secret(Zeroizing<String>),
    Assertion(String),
}

struct Presented {
    id: String,
    credentials: Credentials,
}

impl Presented {
    fn read(headers: &HeaderMap, form: &Form) -> Result<Self, OAuthFault> {
        let mut fields = headers.get_all(AUTHORIZATION).iter();
        let header = fields.next();
        if fields.next().is_some() {
            return Err(OAuthFault::AuthorizationRepeated);
        }
        let secret = form.get("client_secret");
        let assertion = form.get("client_assertion").or_else(|| form.get("client_assertion_type"));
        match (header, secret, assertion) {
            (Some(header), None, None) => Self::basic(header, form),
            (None, Some(secret), None) => {
                let id = form.get("client_id").ok_or(OAuthFault::AuthenticationMissing)?;
                let secret = Zeroizing::new(secret.to_owned());
                Ok(Self { id: id.to_owned(), credentials: Credentials::Secret(secret) })
            }
            (None, None, Some(_)) => {
                let (id, assertion) = assertion::read(form)?;
                Ok(Self { id, credentials: Credentials::Assertion(assertion) })
            }
            (None, None, None) => {
                let id = form.get("client_id").ok_or(OAuthFault::AuthenticationMissing)?;
                Ok(Self { id: id.to_owned(), credentials: Credentials::Nothing })
            }
            _ => Err(OAuthFault::AuthenticationRepeated),
        }
    }

    /// HTTP Basic (RFC 7617) with the encoding of RFC 6749 §2.3.1: id and secret are form-encoded,
    /// joined by a colon, and encoded as base64.
    fn basic(header: &HeaderValue, form: &Form) -> Result<Self, OAuthFault> {
        let (scheme, credentials) = split_scheme(header.as_bytes());
        if !scheme.eq_ignore_ascii_case(b"Basic") {
            return Err(OAuthFault::AuthenticationUnsupported);
        }
        let malformed = OAuthFault::AuthenticationMalformed;
        let Ok(joined) = STANDARD.decode(credentials).map(Zeroizing::new) else { return Err(malformed) };
        let Some(colon) = joined.iter().position(|&b| b == b':') else { return Err(malformed) };
        let (Ok(id), Ok(secret)) = (form::decode(&joined[..colon]), form::decode(&joined[colon + 1..]))
        else {
            return Err(malformed);
        };
        if id.is_empty() {
            return Err(malformed);
        }
        // The body may repeat the client id, but not name another client.
        if form.get("client_id").is_some_and(|named| named != id) {
            return Err(OAuthFault::ClientIdMismatch);
        }
        // An empty secret counts as no secret (RFC 6749 §2.3.1): some libraries send public clients
        // this way.
        let evidence = if secret.is_empty() {
            Credentials::Nothing
        } else {
            Credentials::Secret(Zeroizing::new(secret))
        };
        Ok(Self { id, credentials: evidence })
    }

    /// Compares the credentials. An unknown client with a secret costs the same as a wrong secret:
    /// one digest and two comparisons.
    async fn compare(
        self,
        provider: &Provider,
        client: Option<Arc<Client>>,
    ) -> Result<Arc<Client>, OAuthFault> {
        match &self.credentials {
            Credentials::Secret(secret) => {
                let presented = SecretDigest::of_presented(secret);
                let decoy = SecretDigests::decoy();
                let proof = match client.as_deref().map(|c| &c.proof) {
                    Some(ClientCredential::Secret(digests)) => digests,
                    _ => &decoy,
                };
                let accepted = proof.accept(&presented);
                match client {
                    None => Err(OAuthFault::client_unknown(&self.id)),
                    Some(client) if accepted && matches!(client.proof, ClientCredential::Secret(_)) => {
                        Ok(client)
                    }
                    Some(_) => Err(OAuthFault::ClientSecretWrong(self.id.into())),
                }
            }
            Credentials::Assertion(text) => {
                let client = client.ok_or_else(|| OAuthFault::client_unknown(&self.id))?;
                let ClientCredential::Keys(keys) = &client.proof else {
                    return Err(OAuthFault::AssertionRefused("the client has no keys"));
                };
                assertion::verify(provider, &client, keys, text).await?;
                Ok(client)
            }
            Credentials::Nothing => match client {
                None => Err(OAuthFault::client_unknown(&self.id)),
                Some(client) if matches!(client.proof, ClientCredential::Nothing) => Ok(client),
                Some(_) => Err(OAuthFault::AuthenticationMissing),
            },
        }
    }
}

/// Splits `scheme 1*SP credentials` (RFC 9110 §11.4).
pub(crate) fn split_scheme(value: &[u8]) -> (&[u8], &[u8]) {
    let end = value.iter().position(|&b| b == b' ').unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    let start = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
    (scheme, &rest[start..])
}
