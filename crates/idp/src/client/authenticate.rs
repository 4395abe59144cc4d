//! Client authentication (RFC 6749 §2.3, OpenID Connect Core §9): who calls the token endpoint.
//!
//! Owns: reading the presented credentials (`client_secret_basic`, `client_secret_post`; exactly one of
//! them) and the only way to an [`AuthenticatedClient`].
//! Does not own: what the client may do then.
//!
//! Flow: headers and form → one presented id and secret → `Registry::verify` → [`AuthenticatedClient`].

use std::ops::Deref;

use axum::http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Client, Registry};
use crate::oauth::{
    error::Fault,
    form::{self, Form},
};

/// The wire names of the methods there are, for `token_endpoint_auth_methods_supported`.
pub const METHODS: [&str; 2] = ["client_secret_basic", "client_secret_post"];

/// A client that proved itself in this request. Grants take one; only [`authenticate`] makes it.
#[derive(Debug, Clone, Copy)]
pub struct AuthenticatedClient<'r>(&'r Client);

impl Deref for AuthenticatedClient<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.0
    }
}

impl<'r> AuthenticatedClient<'r> {
    /// The client, for as long as the registry lives.
    pub fn client(self) -> &'r Client {
        self.0
    }
}

/// Authenticates the client of a request.
pub fn authenticate<'r>(
    registry: &'r Registry,
    headers: &HeaderMap,
    form: &Form,
) -> Result<AuthenticatedClient<'r>, Fault> {
    let presented = Presented::read(headers, form)?;
    registry.verify(&presented.id, &presented.secret).map(AuthenticatedClient)
}

struct Presented {
    id: String,
    secret: String,
}

impl Presented {
    fn read(headers: &HeaderMap, form: &Form) -> Result<Self, Fault> {
        let mut fields = headers.get_all(AUTHORIZATION).iter();
        let header = fields.next();
        if fields.next().is_some() {
            return Err(Fault::AuthorizationRepeated);
        }
        let secret = form.get("client_secret");
        let assertion = form.get("client_assertion").or_else(|| form.get("client_assertion_type"));
        match (header, secret, assertion) {
            (Some(header), None, None) => Self::basic(header, form),
            (None, Some(secret), None) => {
                let id = form.get("client_id").ok_or(Fault::AuthenticationMissing)?;
                Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
            }
            (None, None, Some(_)) => Err(Fault::AuthenticationUnsupported),
            (None, None, None) => Err(Fault::AuthenticationMissing),
            _ => Err(Fault::AuthenticationRepeated),
        }
    }

    /// RFC 7617 with the encoding of RFC 6749 §2.3.1: id and secret are form-encoded, joined by a colon, and
    /// the whole is base64.
    fn basic(header: &HeaderValue, form: &Form) -> Result<Self, Fault> {
        let (scheme, credentials) = split_scheme(header.as_bytes());
        if !scheme.eq_ignore_ascii_case(b"Basic") {
            return Err(Fault::AuthenticationUnsupported);
        }
        let malformed = Fault::AuthenticationMalformed;
        let Ok(joined) = STANDARD.decode(credentials) else { return Err(malformed) };
        let Some(colon) = joined.iter().position(|&b| b == b':') else { return Err(malformed) };
        let (Ok(id), Ok(secret)) = (form::decode(&joined[..colon]), form::decode(&joined[colon + 1..]))
        else {
            return Err(malformed);
        };
        if id.is_empty() {
            return Err(malformed);
        }
        // a body may name the client again, but not another one
        if form.get("client_id").is_some_and(|named| named != id) {
            return Err(Fault::ClientIdMismatch);
        }
        Ok(Self { id, secret })
    }
}

/// `scheme 1*SP credentials` (RFC 9110 §11.4).
fn split_scheme(value: &[u8]) -> (&[u8], &[u8]) {
    let end = value.iter().position(|&b| b == b' ').unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    let start = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
    (scheme, &rest[start..])
}
