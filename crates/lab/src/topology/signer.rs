//! Signer: tokens that the lab signs itself, for topologies without a provider.
//!
//! With them a gateway is measured beside peers that support no provider, and no key request is
//! necessary.
//!
//! Owns:
//! - an RSA key of the run;
//! - its public half in the forms that gateways read: a JWK set and a PEM file;
//! - JWTs (RFC 7519) signed with it (RS256).
//!
//! Does not own: the claims, which come from the topology.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

/// Key ID in the JWK set and in the tokens.
const KEY_ID: &str = "lab";
/// Lifetime of a token in seconds: longer than any run.
const LIFETIME: u64 = 24 * 3600;
/// Characters per line of PEM (RFC 7468 §2).
const PEM_LINE_CHARS: usize = 64;
/// Claim that pads a token to its size.
const PADDING: &str = "padding";

/// RSA key of a run, which signs tokens.
pub(super) struct Signer {
    key: KeyPair,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl Signer {
    /// Creates a 2048-bit key; `None` if the key cannot be generated.
    pub(super) fn new() -> Option<Self> {
        Some(Self { key: KeyPair::generate(KeySize::Rsa2048).ok()? })
    }

    /// Public key as a JWK set (RFC 7517).
    pub(super) fn jwks(&self) -> String {
        let public = self.key.public_key();
        let number = |number: &[u8]| URL_SAFE_NO_PAD.encode(number);
        let key = json!({
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID,
            "n": number(public.modulus().big_endian_without_leading_zero()),
            "e": number(public.exponent().big_endian_without_leading_zero()),
        });
        json!({ "keys": [key] }).to_string()
    }

    /// Public key as a PEM file (RFC 7468 §13); `None` if it cannot be encoded.
    pub(super) fn public_pem(&self) -> Option<String> {
        let der: PublicKeyX509Der<'_> = self.key.public_key().as_der().ok()?;
        let text = STANDARD.encode(der.as_ref());
        let mut pem = "-----BEGIN PUBLIC KEY-----\n".to_owned();
        for line in text.as_bytes().chunks(PEM_LINE_CHARS) {
            pem.extend(line.iter().map(|byte| char::from(*byte)));
            pem.push('\n');
        }
        pem.push_str("-----END PUBLIC KEY-----\n");
        Some(pem)
    }

    /// Creates `count` different tokens with these claims, and with `iat`, `exp` and `jti`. A
    /// shorter token is padded to about `bytes`. Returns `None` if signing fails.
    pub(super) fn tokens(
        &self,
        claims: &Map<String, Value>,
        bytes: usize,
        count: usize,
    ) -> Option<Vec<String>> {
        let now = now();
        let token = |number: usize| {
            let mut claims = claims.clone();
            claims.insert("iat".to_owned(), now.into());
            claims.insert("exp".to_owned(), (now + LIFETIME).into());
            claims.insert("jti".to_owned(), format!("lab-{number}").into());
            let token = self.sign(&claims)?;
            let short = bytes.saturating_sub(token.len());
            // The name of the claim also takes space. Base64 turns three bytes into four
            // characters.
            let room = (short * 3 / 4).saturating_sub(PADDING.len() + 6);
            if room == 0 {
                return Some(token);
            }
            claims.insert(PADDING.to_owned(), "x".repeat(room).into());
            self.sign(&claims)
        };
        (0..count).map(token).collect()
    }

    fn sign(&self, claims: &Map<String, Value>) -> Option<String> {
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let head = json!({ "alg": "RS256", "kid": KEY_ID, "typ": "JWT" });
        let content = format!("{}.{}", part(&head), part(&Value::Object(claims.clone())));
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), content.as_bytes(), &mut signature).ok()?;
        Some(format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a token says when it was made, and is not repeated from a seed"
)]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The same JWT with a changed signature; `None` if the text is not a JWT.
pub(super) fn with_changed_signature(token: &str) -> Option<String> {
    let (signed, signature) = token.rsplit_once('.')?;
    let first = signature.chars().next().filter(|_| signed.matches('.').count() == 1)?;
    let other = if first == 'A' { 'B' } else { 'A' };
    Some(format!("{signed}.{other}{}", &signature[first.len_utf8()..]))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};

    use super::*;

    fn claims() -> Map<String, Value> {
        json!({ "iss": "https://issuer.test", "aud": ["app"] }).as_object().unwrap().clone()
    }

    #[test]
    fn tokens_are_verified_with_either_form_of_the_public_key() {
        let signer = Signer::new().unwrap();
        let token = signer.tokens(&claims(), 0, 1).unwrap().remove(0);
        let (content, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let set: Value = serde_json::from_str(&signer.jwks()).unwrap();
        let part = |name: &str| URL_SAFE_NO_PAD.decode(set["keys"][0][name].as_str().unwrap()).unwrap();
        let key = RsaPublicKeyComponents { n: part("n"), e: part("e") };
        assert!(key.verify(&RSA_PKCS1_2048_8192_SHA256, content.as_bytes(), &signature).is_ok());
        let pem = signer.public_pem().unwrap();
        assert!(pem.lines().all(|line| line.len() <= PEM_LINE_CHARS), "{pem}");
        let lines: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, STANDARD.decode(lines).unwrap());
        assert!(key.verify(content.as_bytes(), &signature).is_ok());
        let forged = with_changed_signature(&token).unwrap();
        let (_, signature) = forged.rsplit_once('.').unwrap();
        assert!(key.verify(content.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).is_err());
    }

    #[test]
    fn tokens_are_different_and_as_long_as_wanted() {
        let signer = Signer::new().unwrap();
        let tokens = signer.tokens(&claims(), 900, 3).unwrap();
        assert!(tokens.iter().all(|token| (896..=900).contains(&token.len())), "{}", tokens[0].len());
        assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2]);
        let middle = URL_SAFE_NO_PAD.decode(tokens[2].split('.').nth(1).unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&middle).unwrap();
        assert_eq!((&claims["iss"], &claims["jti"]), (&json!("https://issuer.test"), &json!("lab-2")));
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), LIFETIME);
    }

    #[test]
    fn only_a_jwt_can_be_forged() {
        assert_eq!(with_changed_signature("a.b.Ax").as_deref(), Some("a.b.Bx"));
        assert_eq!(with_changed_signature("a.b.x").as_deref(), Some("a.b.A"));
        for other in ["ptn_at_abc", "a.b", "a.b.c.d", "a.b."] {
            assert_eq!(with_changed_signature(other), None, "{other}");
        }
    }
}
