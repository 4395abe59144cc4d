//! Signing keys, and tokens signed with them.

use auth::identity::Facts;
use auth::keyset::KeySet;
use auth::token::jws::{Signer, SignerError, SigningAlgorithm, public_jwks};
use auth::token_error::TokenError;
use serde_json::{Value, json};

use crate::token_support::*;

const ALL: [SigningAlgorithm; 3] =
    [SigningAlgorithm::Es256, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa];

fn accepted(signer: &Signer, token: &str) -> Result<Facts, TokenError> {
    let jwks = public_jwks([signer]).to_string();
    let (keys, skipped) = KeySet::from_jwks_json(jwks.as_bytes()).unwrap();
    assert_eq!(skipped, []);
    verify_at(token, &config(), &keys, NOW)
}

#[test]
fn signed_tokens_verify_with_the_exported_public_key() {
    for algorithm in ALL {
        let signer = Signer::generate(algorithm).unwrap();
        let token = signer.sign(&[("typ", "at+jwt")], &claims()).unwrap();
        let facts = accepted(&signer, &token).unwrap();
        assert_eq!(&*facts.identity.subject, "u-1");
        assert_eq!(signer.algorithm(), algorithm.algorithm());
        let other = Signer::generate(algorithm).unwrap();
        assert_eq!(accepted(&other, &token).err(), Some(TokenError::UnknownKey));
    }
}

#[test]
fn public_jwks_hold_nothing_private() {
    for algorithm in ALL {
        let jwk = Signer::generate(algorithm).unwrap().public_jwk();
        let mut names: Vec<_> = jwk.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected: &[&str] = match algorithm {
            SigningAlgorithm::Es256 => &["alg", "crv", "kid", "kty", "use", "x", "y"],
            SigningAlgorithm::Rs256 => &["alg", "e", "kid", "kty", "n", "use"],
            SigningAlgorithm::EdDsa => &["alg", "crv", "kid", "kty", "use", "x"],
        };
        assert_eq!(names, expected);
        assert_eq!(jwk["alg"], algorithm.algorithm().as_str());
    }
}

#[test]
fn keys_survive_export_and_import() {
    for algorithm in ALL {
        let signer = Signer::generate(algorithm).unwrap();
        let from_der = Signer::from_pkcs8_der(signer.to_pkcs8_der().unwrap().as_ref()).unwrap();
        let from_pem = Signer::from_pkcs8_pem(signer.to_pkcs8_pem().unwrap().as_ref()).unwrap();
        for copy in [from_der, from_pem] {
            assert_eq!(copy.algorithm(), signer.algorithm());
            assert_eq!(copy.kid(), signer.kid());
            assert_eq!(copy.public_jwk(), signer.public_jwk());
            let token = copy.sign(&[("typ", "at+jwt")], &claims()).unwrap();
            assert!(accepted(&signer, &token).is_ok());
        }
    }
}

#[test]
fn unusable_keys_are_refused() {
    let der = Signer::generate(SigningAlgorithm::Es256).unwrap().to_pkcs8_der().unwrap();
    for bad in [
        &b""[..],
        b"-----BEGIN PRIVATE KEY-----",
        &der.as_ref()[1..],
        &der.as_ref()[..der.as_ref().len() - 1],
    ] {
        assert_eq!(Signer::from_pkcs8_der(bad).err(), Some(SignerError::UnsupportedKey));
    }
    assert_eq!(Signer::from_pkcs8_pem(der.as_ref()).err(), Some(SignerError::NotPem));
    let p384 =
        aws_lc_rs::signature::EcdsaKeyPair::generate(&aws_lc_rs::signature::ECDSA_P384_SHA384_FIXED_SIGNING);
    let p384 = p384.unwrap().to_pkcs8v1().unwrap();
    assert_eq!(Signer::from_pkcs8_der(p384.as_ref()).err(), Some(SignerError::UnsupportedKey));
}

/// RFC 8037 appendix A.1 to A.3: private key, public key, thumbprint.
#[test]
fn thumbprint_is_that_of_rfc_8037() {
    let seed = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
    let seed = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, seed).unwrap();
    // PKCS#8 version 1 around an Ed25519 seed (RFC 8410 §7).
    let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    der.extend(seed);
    let signer = Signer::from_pkcs8_der(&der).unwrap();
    assert_eq!(signer.public_jwk()["x"], "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
    assert_eq!(signer.kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    assert_eq!(signer.to_pkcs8_der().unwrap().as_ref(), der);
}

#[test]
fn thumbprints_are_of_the_required_members_alone() {
    for algorithm in ALL {
        let signer = Signer::generate(algorithm).unwrap();
        let mut jwk = signer.public_jwk();
        for name in ["kid", "alg", "use"] {
            jwk.as_object_mut().unwrap().remove(name);
        }
        // A sorted map without white space is the canonical form of RFC 7638 §3.
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, jwk.to_string().as_bytes());
        assert_eq!(signer.kid(), b64(digest));
    }
}

#[test]
fn headers_are_what_was_asked_for() {
    let signer = Signer::generate(SigningAlgorithm::EdDsa).unwrap();
    let token = signer.sign(&[("typ", "at+jwt"), ("cty", "x\"y")], &json!({"a": 1})).unwrap();
    let header = token.split('.').next().unwrap();
    let header = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, header).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(header, json!({"alg": "EdDSA", "kid": signer.kid(), "typ": "at+jwt", "cty": "x\"y"}));
    for name in ["alg", "kid", "crit", "b64"] {
        assert_eq!(signer.sign(&[(name, "x")], &json!({})), Err(SignerError::ReservedHeader), "{name}");
    }
    for claims in [json!([]), json!(1), json!(null), json!("{")] {
        assert_eq!(signer.sign(&[], &claims), Err(SignerError::Claims), "{claims}");
    }
}

#[test]
fn debug_prints_nothing_secret() {
    for algorithm in ALL {
        let signer = Signer::generate(algorithm).unwrap();
        let shown = format!("{signer:?}");
        assert!(shown.contains(signer.kid()) && shown.len() < 100, "{shown}");
        assert_eq!(format!("{:?}", signer.to_pkcs8_pem().unwrap()), "Secret");
    }
}
