//! Cost of verifying a token, in microseconds: `cargo run --release -p auth --example verify_cost`.
//!
//! The claim set is like that of a Keycloak access token, about 900 bytes signed. The result is the
//! best of several rounds, since a busy machine can only add to the cost.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement prints, and stops when it cannot"
)]

use std::hint::black_box;
use std::time::Instant;

use auth::keyset::KeySet;
use auth::time::Timestamp;
use auth::token::jws::{Signer, SigningAlgorithm, public_jwks};
use auth::token::{IssuerConfig, jwt};
use serde_json::json;

const ROUNDS: usize = 20;
const PER_ROUND: u32 = 500;

/// Microseconds per call.
fn measure(mut call: impl FnMut()) -> f64 {
    let round = || {
        let start = Instant::now();
        (0..PER_ROUND).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e6 / f64::from(PER_ROUND)
    };
    std::iter::repeat_with(round).take(ROUNDS).fold(f64::INFINITY, f64::min)
}

fn main() {
    let config = IssuerConfig::new("main", "https://id.example/realms/x", vec!["api".into()]).unwrap();
    let now = Timestamp::from_secs(1_800_000_000);
    let claims = json!({
        "exp": 1_800_000_300, "iat": 1_799_999_990, "jti": "0b5f7a52-6f7e-4a53-9a38-0d6b0d3c4f1e",
        "iss": "https://id.example/realms/x", "aud": ["api", "account"], "typ": "Bearer", "azp": "shop",
        "sub": "f3b1c5e0-5d6a-4b4e-8f0c-2a1d7c9e6b11", "scope": "openid profile email",
        "email": "ada@x.example", "email_verified": true, "preferred_username": "ada", "name": "Ada L.",
        "groups": ["dev", "ops"], "realm_access": {"roles": ["offline_access", "uma_authorization"]},
        "resource_access": {"account": {"roles": ["manage-account", "view-profile"]}},
    });
    for algorithm in [SigningAlgorithm::Rs256, SigningAlgorithm::Es256, SigningAlgorithm::EdDsa] {
        let signer = Signer::generate(algorithm).unwrap();
        let jwks = public_jwks([&signer]).to_string();
        let (keys, _) = KeySet::from_jwks_json(jwks.as_bytes()).unwrap();
        let token = signer.sign(&[("typ", "JWT")], &claims).unwrap();
        let parse = measure(|| drop(black_box(jwt::parse(black_box(token.as_bytes())).unwrap())));
        let whole = measure(|| {
            let unverified = jwt::parse(black_box(token.as_bytes())).unwrap();
            black_box(unverified.verify(&config, &keys, now).unwrap());
        });
        let sign = measure(|| drop(black_box(signer.sign(&[("typ", "JWT")], &claims).unwrap())));
        println!(
            "{:6} {:5} bytes   parse {parse:5.2} µs   parse and verify {whole:6.2} µs   sign {sign:7.2} µs",
            signer.algorithm().as_str(),
            token.len(),
        );
    }
}
