//! A resource server of tests: fetches the keys and verifies with `auth::token::jwt` only.

use auth::algorithm::AlgorithmSet;
use auth::identity::Facts;
use auth::keyset::KeySet;
use auth::time::Timestamp;
use auth::token::{IssuerConfig, TokenTypes, jwt};
use auth::token_error::TokenError;

use crate::server::{API, Server};

/// A resource server that trusts one issuer.
pub(crate) struct ResourceServer {
    config: IssuerConfig,
    keys: KeySet,
}

impl ResourceServer {
    /// Trusts `server` and fetches its keys now.
    pub(crate) async fn of(server: &Server, algorithms: AlgorithmSet) -> Self {
        Self::for_audience(server, algorithms, API).await
    }

    pub(crate) async fn for_audience(server: &Server, algorithms: AlgorithmSet, audience: &str) -> Self {
        let config = IssuerConfig::new("test", &server.issuer, vec![audience.into()]).unwrap();
        let config = config.with_algorithms(algorithms).unwrap().with_types(TokenTypes::Rfc9068);
        Self { config, keys: keys_of(server).await }
    }

    pub(crate) async fn refetch(&mut self, server: &Server) {
        self.keys = keys_of(server).await;
    }

    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<Facts, TokenError> {
        jwt::parse(token.as_bytes())?.verify(&self.config, &self.keys, now)
    }
}

/// The keys that a server publishes now.
pub(crate) async fn keys_of(server: &Server) -> KeySet {
    let answer = server.get("/jwks").await;
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/json")));
    let (keys, skipped) = KeySet::from_jwks_json(&answer.body).unwrap();
    assert!(skipped.is_empty(), "{skipped:?}");
    keys
}
