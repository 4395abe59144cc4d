//! Client proof: authenticates the client with its own private key.
//!
//! Owns: the form parameters of `private_key_jwt` and of Apple's client secret, signed anew for each
//! request. Does not own: secrets and certificates ([`http_engine::http_client`]).

use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::rand::SystemRandom;
use http_engine::url::Url;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::config::{ClientKey, ClientProof};
use crate::login_state::random_text;
use crate::provider::Metadata;

/// Value of `client_assertion_type` (RFC 7523 §2.2).
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Lifetime of what is signed. It is sent at once; the rest is for the difference of the clocks.
const LIFETIME: Duration = Duration::from_mins(1);

/// The audience of an assertion that is sent to `url`: the token endpoint itself, which every provider
/// accepts there (OpenID Connect Core 1.0 §9), and the configured issuer at other endpoints. A provider
/// whose metadata name endpoints of another one never gets an assertion that is good there.
pub(super) fn assertion_audience(metadata: &Metadata, url: &Url) -> String {
    let url = url.to_string();
    if url == metadata.token.to_string() { url } else { metadata.issuer.clone() }
}

impl ClientKey {
    /// The parameters that authenticate the client in a form for this provider; `None`: signing
    /// failed.
    ///
    /// `recipient` is the audience of an assertion ([`assertion_audience`]).
    pub(super) fn parameters(
        &self,
        client_id: &str,
        (issuer, recipient): (&str, &str),
        now: Timestamp,
    ) -> Option<Vec<(&'static str, Zeroizing<String>)>> {
        let (created, expires) = (now.as_secs(), now.plus(LIFETIME).as_secs());
        let sign = |claims: &Value| self.signer.sign(&[("typ", "JWT")], claims).ok().map(Zeroizing::new);
        Some(match &self.proof {
            ClientProof::Assertion => {
                let jti = random_text::<16>(&SystemRandom::new()).ok()?;
                let signed = sign(&json!({
                    "iss": client_id, "sub": client_id, "aud": recipient, "jti": jti, "iat": created, "exp": expires,
                }))?;
                let kind = Zeroizing::new(JWT_BEARER.to_owned());
                vec![("client_assertion_type", kind), ("client_assertion", signed)]
            }
            ClientProof::AppleSecret { team } => {
                let signed = sign(&json!({
                    "iss": team, "sub": client_id, "aud": issuer, "iat": created, "exp": expires,
                }))?;
                vec![("client_secret", signed)]
            }
        })
    }
}
