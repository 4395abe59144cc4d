//! Keys of every kind, and tokens made from raw text, so that a test can break exactly one
//! property.

use std::sync::LazyLock;

use auth::algorithm::Algorithm;
use auth::identity::Facts;
use auth::keyset::KeySet;
use auth::time::Timestamp;
use auth::token::{IssuerConfig, jwt};
use auth::token_error::TokenError;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
pub(crate) const ISSUER: &str = "https://id.example/realm";
pub(crate) const AUDIENCE: &str = "https://api.example";

/// One private key of every type.
pub(crate) struct Keys {
    pub(crate) rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    p521: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
}

/// The issuer's keys; their `kid`s are `rsa`, `p256`, `p384`, `p521`, `ed25519`.
pub(crate) static ISSUER_KEYS: LazyLock<Keys> = LazyLock::new(Keys::generate);
/// Keys of another issuer, under the same `kid`s.
pub(crate) static OTHER_KEYS: LazyLock<Keys> = LazyLock::new(Keys::generate);

impl Keys {
    fn generate() -> Self {
        Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
            p256: EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            p384: EcdsaKeyPair::generate(&signature::ECDSA_P384_SHA384_FIXED_SIGNING).unwrap(),
            p521: EcdsaKeyPair::generate(&signature::ECDSA_P521_SHA512_FIXED_SIGNING).unwrap(),
            ed25519: Ed25519KeyPair::generate().unwrap(),
        }
    }

    /// The public JWKs, without `alg`.
    pub(crate) fn jwks(&self) -> Vec<Value> {
        let ec = |kid: &str, crv: &str, pair: &EcdsaKeyPair| {
            let point = &pair.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            json!({"kid": kid, "kty": "EC", "crv": crv, "x": b64(x), "y": b64(y)})
        };
        vec![
            json!({
                "kid": "rsa",
                "kty": "RSA",
                "n": b64(self.rsa.public_key().modulus().big_endian_without_leading_zero()),
                "e": b64(self.rsa.public_key().exponent().big_endian_without_leading_zero()),
            }),
            ec("p256", "P-256", &self.p256),
            ec("p384", "P-384", &self.p384),
            ec("p521", "P-521", &self.p521),
            json!({"kid": "ed25519", "kty": "OKP", "crv": "Ed25519", "x": b64(self.ed25519.public_key())}),
        ]
    }

    pub(crate) fn set(&self) -> KeySet {
        key_set(&self.jwks())
    }

    pub(crate) fn sign(&self, algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
        let rng = SystemRandom::new();
        let rsa = |encoding| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            self.rsa.sign(encoding, &rng, message, &mut signature).unwrap();
            signature
        };
        let ec = |pair: &EcdsaKeyPair| pair.sign(&rng, message).unwrap().as_ref().to_vec();
        match algorithm {
            Algorithm::Rs256 => rsa(&signature::RSA_PKCS1_SHA256),
            Algorithm::Rs384 => rsa(&signature::RSA_PKCS1_SHA384),
            Algorithm::Rs512 => rsa(&signature::RSA_PKCS1_SHA512),
            Algorithm::Ps256 => rsa(&signature::RSA_PSS_SHA256),
            Algorithm::Ps384 => rsa(&signature::RSA_PSS_SHA384),
            Algorithm::Ps512 => rsa(&signature::RSA_PSS_SHA512),
            Algorithm::Es256 => ec(&self.p256),
            Algorithm::Es384 => ec(&self.p384),
            Algorithm::Es512 => ec(&self.p521),
            Algorithm::EdDsa => self.ed25519.sign(message).as_ref().to_vec(),
        }
    }

    /// A token of exactly these texts, signed with `algorithm`, whatever the header says.
    pub(crate) fn token(&self, algorithm: Algorithm, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", b64(header), b64(payload));
        let signature = self.sign(algorithm, signed.as_bytes());
        format!("{signed}.{}", b64(signature))
    }
}

/// The `kid` of the key that fits `algorithm`.
pub(crate) fn kid_for(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Es256 => "p256",
        Algorithm::Es384 => "p384",
        Algorithm::Es512 => "p521",
        Algorithm::EdDsa => "ed25519",
        _ => "rsa",
    }
}

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A set in which every key must be usable.
pub(crate) fn key_set(jwks: &[Value]) -> KeySet {
    let (set, skipped) = KeySet::from_jwks_json(json!({ "keys": jwks }).to_string().as_bytes()).unwrap();
    assert_eq!(skipped, []);
    set
}

pub(crate) fn config() -> IssuerConfig {
    IssuerConfig::new("main", ISSUER, vec![AUDIENCE.into()]).unwrap()
}

/// Claims that pass with [`config`] at [`NOW`], for every token type.
pub(crate) fn claims() -> Value {
    json!({
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "u-1",
        "client_id": "shop",
        "jti": "t-1",
        "iat": 1_799_999_990,
        "exp": 1_800_000_300,
    })
}

/// [`claims`] with some replaced; `null` removes one.
pub(crate) fn claims_with(changes: Value) -> Value {
    let mut claims = claims();
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    for (name, value) in changes {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(&name);
        } else {
            claims[name] = value;
        }
    }
    claims
}

/// A token with these claims, signed by the issuer with Ed25519 under a plain header.
pub(crate) fn token(claims: &Value) -> String {
    token_of(r#"{"alg":"EdDSA","kid":"ed25519","typ":"at+jwt"}"#, &claims.to_string())
}

/// A token of exactly these texts, signed by the issuer with Ed25519.
pub(crate) fn token_of(header: &str, payload: &str) -> String {
    ISSUER_KEYS.token(Algorithm::EdDsa, header, payload)
}

/// The result of the verification of a token at [`NOW`].
pub(crate) fn verify(token: &str) -> Result<Facts, TokenError> {
    verify_with(token, &config())
}

pub(crate) fn verify_with(token: &str, config: &IssuerConfig) -> Result<Facts, TokenError> {
    static SET: LazyLock<KeySet> = LazyLock::new(|| ISSUER_KEYS.set());
    verify_at(token, config, &SET, NOW)
}

pub(crate) fn verify_at(
    token: &str,
    config: &IssuerConfig,
    keys: &KeySet,
    now: Timestamp,
) -> Result<Facts, TokenError> {
    jwt::parse(token.as_bytes())?.verify(config, keys, now)
}

/// The failure class of a token; `accepted` when there is none.
pub(crate) fn class(token: &str) -> &'static str {
    class_of(&verify(token))
}

pub(crate) fn class_of(result: &Result<Facts, TokenError>) -> &'static str {
    result.as_ref().err().map_or("accepted", TokenError::code)
}
