//! The provider as one value.
//!
//! Owns: the checked configuration, the keys, the clock and the random source, held together for the
//! endpoints; and key rotation as an operation on a running provider.
//! Does not own: how requests arrive ([`crate::router`]) or what they mean.

use auth::{time::Timestamp, token::jws::SigningAlgorithm};
use axum::{body::Bytes, http::HeaderValue};
use serde::Serialize;

use crate::{
    ambient::{Clock, Entropy},
    client::Registry,
    config::Checked,
    discovery,
    issuer::Issuer,
    keys::{self, JWKS_MAX_AGE, KeyError, Keys},
    oauth::error::Fault,
};

/// Why checked parts do not make a provider together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderFault {
    /// The key ring has no key for the access token algorithm.
    #[error("no signing key for {}: add the algorithm to the key ring", keys::key::name(*.0))]
    NoSigningKey(SigningAlgorithm),
    /// A discovery document could not be written.
    #[error("the discovery documents cannot be written")]
    Documents,
}

/// An OpenID provider: one issuer, its keys and its clients.
pub struct Provider {
    issuer: Issuer,
    access_token_algorithm: SigningAlgorithm,
    clients: Registry,
    keys: Keys,
    clock: Box<dyn Clock>,
    entropy: Box<dyn Entropy>,
    openid_document: Bytes,
    oauth_document: Bytes,
    document_cache: HeaderValue,
    challenge: HeaderValue,
}

impl Provider {
    /// A provider from a checked configuration (see [`crate::Config::check`]), its keys, a clock and a
    /// random source.
    pub fn new(
        checked: Checked,
        keys: Keys,
        clock: impl Clock + 'static,
        entropy: impl Entropy + 'static,
    ) -> Result<Self, ProviderFault> {
        let Checked { issuer, access_token_algorithm, clients } = checked;
        let algorithms = keys.algorithms();
        if !algorithms.contains(&access_token_algorithm) {
            return Err(ProviderFault::NoSigningKey(access_token_algorithm));
        }
        let names: Vec<&str> = algorithms.iter().map(|&a| keys::key::name(a)).collect();
        let documents = || ProviderFault::Documents;
        Ok(Self {
            openid_document: discovery::openid_document(&issuer, &names).map_err(|_| documents())?.into(),
            oauth_document: discovery::oauth_document(&issuer).map_err(|_| documents())?.into(),
            document_cache: header(&format!("public, max-age={}", JWKS_MAX_AGE.as_secs()))?,
            challenge: header(&format!("Basic realm=\"{}\", charset=\"UTF-8\"", issuer.as_str()))?,
            issuer,
            access_token_algorithm,
            clients,
            keys,
            clock: Box::new(clock),
            entropy: Box::new(entropy),
        })
    }

    /// The issuer.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// The clients.
    pub fn clients(&self) -> &Registry {
        &self.clients
    }

    /// The keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The provider's time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The provider's randomness.
    pub fn entropy(&self) -> &dyn Entropy {
        self.entropy.as_ref()
    }

    /// The next key of an algorithm takes over, see [`Keys::rotate`]. Blocks on the disk and on key
    /// generation: keep it off the threads that serve.
    pub fn rotate_keys(&self, algorithm: SigningAlgorithm) -> Result<(), KeyError> {
        self.keys.rotate(algorithm, self.now())
    }

    /// A key that leaked goes at once, see [`Keys::revoke`]. Blocks like [`Provider::rotate_keys`].
    pub fn revoke_key(&self, kid: &str) -> Result<(), KeyError> {
        self.keys.revoke(kid, self.now())
    }

    /// Signs the claims of an access token.
    pub(crate) fn sign_access_token(&self, typ: &str, claims: &impl Serialize) -> Result<String, Fault> {
        self.keys.sign(self.access_token_algorithm, typ, claims).map_err(|_| Fault::SigningFailed)
    }

    /// The key set as published now (RFC 7517 §5).
    pub(crate) fn jwks(&self) -> Bytes {
        self.keys.jwks()
    }

    pub(crate) fn openid_document(&self) -> Bytes {
        self.openid_document.clone()
    }

    pub(crate) fn oauth_document(&self) -> Bytes {
        self.oauth_document.clone()
    }

    /// `Cache-Control` of everything public.
    pub(crate) fn document_cache(&self) -> &HeaderValue {
        &self.document_cache
    }

    /// `WWW-Authenticate` of every 401 (RFC 7617 §2).
    pub(crate) fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }
}

/// An issuer is visible ASCII without quotes (it was checked), so this holds.
fn header(text: &str) -> Result<HeaderValue, ProviderFault> {
    HeaderValue::from_str(text).map_err(|_| ProviderFault::Documents)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_lc_rs::rand::SystemRandom;

    use super::*;
    use crate::Config;

    #[test]
    fn a_provider_needs_the_key_it_is_to_sign_with() {
        let config = Config {
            issuer: "https://login.example.com".into(),
            audiences: vec![],
            access_token_algorithm: SigningAlgorithm::EdDsa,
            access_token_lifetime: Duration::from_secs(1),
            clients: vec![],
        };
        let now = Timestamp::from_secs(1);
        let with = |algorithm| {
            let keys = Keys::in_memory(&[SigningAlgorithm::Es256, algorithm], now).unwrap();
            Provider::new(config.check().unwrap(), keys, move || now, SystemRandom::new()).map(|_| ())
        };
        let refused = with(SigningAlgorithm::Es256).unwrap_err();
        assert_eq!(refused, ProviderFault::NoSigningKey(SigningAlgorithm::EdDsa));
        assert_eq!(refused.to_string(), "no signing key for EdDSA: add the algorithm to the key ring");
        assert_eq!(with(SigningAlgorithm::EdDsa), Ok(()));
    }
}
