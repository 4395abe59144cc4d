//! Issuer of the tokens of tests.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use auth::token::jws::{Signer, SigningAlgorithm, public_jwks};
use serde_json::{Value, json};

/// An issuer of tokens with its signing key.
pub struct Issuer {
    pub signer: Signer,
}

pub const ISSUER: &str = "https://issuer.test";
pub const AUDIENCE: &str = "postern-test";

/// Seconds since the epoch. Tests with real sockets use the real clock.
#[allow(clippy::disallowed_methods, reason = "the gateway under test runs on the system clock")]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

impl Issuer {
    pub fn new() -> Self {
        Self { signer: Signer::generate(SigningAlgorithm::Es256).expect("key") }
    }

    pub fn write_jwks(&self, path: &Path) {
        std::fs::write(path, public_jwks([&self.signer]).to_string()).expect("jwks");
    }

    /// A token of `alice`, in groups `dev` and `ops`, with scope `read`. `change` may change its
    /// claims.
    pub fn token(&self, change: impl FnOnce(&mut Value)) -> String {
        let now = now();
        let mut claims = json!({
            "iss": ISSUER, "aud": AUDIENCE, "sub": "alice-id", "preferred_username": "alice",
            "email": "alice@example.com", "email_verified": true, "groups": ["dev", "ops"], "scope": "read",
            "client_id": "cli", "jti": "1", "iat": now, "exp": now + 3600,
        });
        change(&mut claims);
        self.signer.sign(&[("typ", "at+jwt")], &claims).expect("signed")
    }
}
