//! Key sets: which keys are used, which are skipped and why.

use auth::algorithm::Algorithm;
use auth::json::JsonError;
use auth::keyset::{KeySet, KeySetError, MAX_KEY_SET_BYTES, SkipReason, SkippedKey};
use auth::token::{IssuerConfig, TokenTypes};
use base64::engine::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::token_support::*;

/// A point of P-256 whose `x` is two bytes shorter than the curve.
const SHORT_X: &str = "gAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB";
const SHORT_Y: &str = "rOEJ1Uawj3iRk5N0SzFYaPv2tD5nbvQ4xOsRgOOjRq0";

fn parse(set: &Value) -> (KeySet, Vec<SkipReason>) {
    let (set, skipped) = KeySet::from_jwks_json(set.to_string().as_bytes()).unwrap();
    (set, skipped.into_iter().map(|key| key.reason).collect())
}

/// Why the first of the issuer's keys that fits `algorithm`, changed in this way, is skipped;
/// `None` when it is used. `null` removes a member: the same as if it were absent.
fn skipped(algorithm: Algorithm, changes: Value) -> Option<SkipReason> {
    let mut jwk = ISSUER_KEYS.jwks().into_iter().find(|jwk| jwk["kid"] == kid_for(algorithm)).unwrap();
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    for (name, value) in changes {
        if value.is_null() {
            jwk.as_object_mut().unwrap().remove(&name);
        } else {
            jwk[name] = value;
        }
    }
    let (set, mut reasons) = parse(&json!({"keys": [jwk]}));
    assert_eq!(set.is_empty(), reasons.len() == 1);
    reasons.pop()
}

#[test]
fn tokens_keys_are_filed_by_algorithm() {
    let (set, skipped) = parse(&json!({"keys": ISSUER_KEYS.jwks()}));
    assert_eq!(skipped, []);
    let filed: Vec<_> = set.keys().map(|(kid, algorithm)| (kid.unwrap(), algorithm)).collect();
    let expected: Vec<_> = [Algorithm::EdDsa, Algorithm::Es256, Algorithm::Es384, Algorithm::Es512]
        .into_iter()
        .chain(Algorithm::ALL[..6].iter().copied())
        .map(|algorithm| (kid_for(algorithm), algorithm))
        .collect();
    assert_eq!(filed, expected, "an rsa key without alg serves six algorithms");
}

#[test]
fn tokens_private_and_symmetric_keys_are_refused() {
    for member in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
        for algorithm in [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa] {
            assert_eq!(skipped(algorithm, json!({member: "AQAB"})), Some(SkipReason::Private), "{member}");
            assert_eq!(skipped(algorithm, json!({member: false})), Some(SkipReason::Private), "{member}");
            assert_eq!(skipped(algorithm, json!({member: null})), None, "{member}");
        }
    }
    let (set, reasons) =
        parse(&json!({"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}, {"kty": "oct"}]}));
    assert!(set.is_empty());
    assert_eq!(reasons, [SkipReason::Symmetric, SkipReason::Symmetric]);
}

#[test]
fn tokens_keys_for_other_purposes_are_skipped() {
    let of = |changes| skipped(Algorithm::Es256, changes);
    assert_eq!(of(json!({"use": "sig"})), None);
    assert_eq!(of(json!({"use": null, "key_ops": null, "alg": null, "kid": null})), None);
    assert_eq!(of(json!({"use": "enc"})), Some(SkipReason::Encryption));
    assert_eq!(of(json!({"use": "SIG"})), Some(SkipReason::Use));
    assert_eq!(of(json!({"use": 1})), Some(SkipReason::Member("use")));
    assert_eq!(of(json!({"key_ops": ["sign", "verify"]})), None);
    assert_eq!(of(json!({"key_ops": ["encrypt"]})), Some(SkipReason::Encryption));
    assert_eq!(of(json!({"key_ops": ["encrypt", "sign"]})), Some(SkipReason::KeyOps));
    assert_eq!(of(json!({"key_ops": []})), Some(SkipReason::KeyOps));
    assert_eq!(of(json!({"key_ops": "verify"})), Some(SkipReason::Member("key_ops")));
    assert_eq!(of(json!({"use": "sig", "key_ops": ["wrapKey"]})), Some(SkipReason::Encryption));
}

#[test]
fn tokens_key_type_curve_and_algorithm_must_agree() {
    for algorithm in Algorithm::ALL {
        for declared in Algorithm::ALL {
            let fits =
                if kid_for(algorithm) == "rsa" { kid_for(declared) == "rsa" } else { declared == algorithm };
            let expected = if fits { None } else { Some(SkipReason::Algorithm) };
            assert_eq!(
                skipped(algorithm, json!({"alg": declared.as_str()})),
                expected,
                "{algorithm:?} {declared:?}"
            );
        }
        for declared in ["none", "HS256", "ES256K", ""] {
            assert_eq!(
                skipped(algorithm, json!({"alg": declared})),
                Some(SkipReason::Algorithm),
                "{declared}"
            );
        }
        for declared in ["RSA-OAEP", "RSA-OAEP-256", "RSA1_5", "ECDH-ES", "ECDH-ES+A128KW"] {
            let reason = skipped(algorithm, json!({"alg": declared}));
            assert_eq!(reason, Some(SkipReason::Encryption), "{declared}");
        }
        assert_eq!(skipped(algorithm, json!({"alg": 1})), Some(SkipReason::Member("alg")));
    }
    assert_eq!(skipped(Algorithm::EdDsa, json!({"alg": "Ed25519"})), None);
    assert_eq!(skipped(Algorithm::Es256, json!({"crv": "secp256k1"})), Some(SkipReason::Unsupported));
    assert_eq!(skipped(Algorithm::EdDsa, json!({"crv": "X25519"})), Some(SkipReason::Encryption));
    assert_eq!(skipped(Algorithm::EdDsa, json!({"crv": "Ed448"})), Some(SkipReason::Unsupported));
    assert_eq!(skipped(Algorithm::Es256, json!({"kty": "AKP"})), Some(SkipReason::Unsupported));
    assert_eq!(skipped(Algorithm::Es256, json!({"kty": null})), Some(SkipReason::Member("kty")));
    assert_eq!(skipped(Algorithm::Es256, json!({"crv": null})), Some(SkipReason::Member("crv")));
    assert_eq!(skipped(Algorithm::Es256, json!({"crv": "P-384"})), Some(SkipReason::Invalid));
}

#[test]
fn tokens_rsa_keys_have_2048_to_8192_bits() {
    let modulus = |bits: usize| {
        let mut bytes = vec![0xff; bits.div_ceil(8)];
        if !bits.is_multiple_of(8) {
            bytes[0] = (1 << (bits % 8)) - 1;
        }
        json!({"n": b64(bytes)})
    };
    assert_eq!(skipped(Algorithm::Rs256, modulus(512)), Some(SkipReason::RsaSize(512)));
    assert_eq!(skipped(Algorithm::Rs256, modulus(2047)), Some(SkipReason::RsaSize(2047)));
    assert_eq!(skipped(Algorithm::Rs256, modulus(8193)), Some(SkipReason::RsaSize(8193)));
    assert_eq!(skipped(Algorithm::Rs256, modulus(2048)), None);
    assert_eq!(skipped(Algorithm::Rs256, modulus(8192)), None);
}

#[test]
fn tokens_keys_that_are_no_keys_are_skipped() {
    let rsa = |changes| skipped(Algorithm::Rs256, changes);
    for e in [&[1][..], &[2], &[1, 0, 0], &[1, 0, 0, 0, 1]] {
        assert_eq!(rsa(json!({"e": b64(e)})), Some(SkipReason::Invalid), "{e:?}");
    }
    assert_eq!(rsa(json!({"e": b64([3])})), None);
    let mut even = vec![0xff; 256];
    even[255] = 0xfe;
    assert_eq!(rsa(json!({"n": b64(even)})), Some(SkipReason::Invalid));
    for (name, text) in
        [("n", ""), ("e", ""), ("e", "AAAA"), ("e", "AQAB=="), ("e", "AQ AB"), ("e", "AR"), ("e", "=AQAB")]
    {
        assert_eq!(rsa(json!({name: text})), Some(SkipReason::Encoding(name)), "{name} {text}");
    }
    assert_eq!(rsa(json!({"n": null})), Some(SkipReason::Member("n")));
    assert_eq!(rsa(json!({"e": 65537})), Some(SkipReason::Member("e")));
    for algorithm in [Algorithm::Es256, Algorithm::Es384, Algorithm::Es512] {
        let width = match algorithm {
            Algorithm::Es256 => 32,
            Algorithm::Es384 => 48,
            _ => 66,
        };
        assert_eq!(
            skipped(algorithm, json!({"x": b64(vec![1; width])})),
            Some(SkipReason::Invalid),
            "off the curve"
        );
        assert_eq!(
            skipped(algorithm, json!({"x": b64(vec![0; width]), "y": b64(vec![0; width])})),
            Some(SkipReason::Invalid)
        );
        assert_eq!(skipped(algorithm, json!({"y": b64(vec![1; width - 1])})), Some(SkipReason::Invalid));
        assert_eq!(
            skipped(algorithm, json!({"y": b64(vec![1; width + 1])})),
            Some(SkipReason::Encoding("y"))
        );
        assert_eq!(skipped(algorithm, json!({"y": null})), Some(SkipReason::Member("y")));
    }
    assert_eq!(skipped(Algorithm::EdDsa, json!({"x": b64([1; 31])})), Some(SkipReason::Encoding("x")));
    let (_, reasons) = parse(&json!({"keys": [1, null, "x", []]}));
    assert_eq!(reasons, [SkipReason::NotAnObject; 4]);
}

/// Issuers publish the same number in several spellings.
#[test]
fn tokens_numbers_of_keys_are_read_in_every_spelling() {
    let spellings = |bytes: &[u8]| {
        let zero = [&[0], bytes].concat();
        let mut texts = Vec::new();
        for bytes in [bytes, &zero] {
            texts.extend([URL_SAFE_NO_PAD.encode(bytes), URL_SAFE.encode(bytes)]);
            texts.extend([STANDARD_NO_PAD.encode(bytes), STANDARD.encode(bytes)]);
        }
        texts
    };
    for algorithm in [Algorithm::Rs256, Algorithm::Es256, Algorithm::Es512] {
        let members: &[&str] = if algorithm == Algorithm::Rs256 { &["n", "e"] } else { &["x", "y"] };
        let jwk = ISSUER_KEYS.jwks().into_iter().find(|jwk| jwk["kid"] == kid_for(algorithm)).unwrap();
        let (plain, _) = parse(&json!({"keys": [jwk]}));
        for member in members {
            let bytes = URL_SAFE_NO_PAD.decode(jwk[*member].as_str().unwrap()).unwrap();
            for text in spellings(&bytes) {
                let mut jwk = jwk.clone();
                jwk[*member] = text.as_str().into();
                let (set, reasons) = parse(&json!({"keys": [jwk]}));
                assert_eq!(reasons, [], "{member} {text}");
                assert!(set.is_superset_of(&plain), "the same key: {member} {text}");
            }
        }
    }
    // A coordinate whose leading zero is missing (RFC 7518 §6.2.1.2 wants it there).
    let short = json!({"kty": "EC", "crv": "P-256", "x": SHORT_X, "y": SHORT_Y});
    let (set, reasons) = parse(&json!({"keys": [short]}));
    assert_eq!((set.is_empty(), reasons), (false, vec![]));
    // The bytes of an Ed25519 key are no number.
    let jwk = ISSUER_KEYS.jwks().into_iter().find(|jwk| jwk["kty"] == "OKP").unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(jwk["x"].as_str().unwrap()).unwrap();
    let longer = URL_SAFE_NO_PAD.encode([&[0], &bytes[..]].concat());
    assert_eq!(skipped(Algorithm::EdDsa, json!({"x": longer})), Some(SkipReason::Encoding("x")));
    assert_eq!(skipped(Algorithm::EdDsa, json!({"x": STANDARD.encode(&bytes)})), None);
}

#[test]
fn tokens_unusable_keys_do_not_disturb_the_others() {
    let mut keys = vec![
        json!({"kty": "oct"}),
        json!({"kty": "EC", "kid": "enc", "crv": "P-256", "use": "enc"}),
        json!(3),
    ];
    keys.extend(ISSUER_KEYS.jwks());
    let (set, skipped) = KeySet::from_jwks_json(json!({"keys": keys}).to_string().as_bytes()).unwrap();
    assert_eq!(class_of(&verify_at(&token(&claims()), &config(), &set, NOW)), "accepted");
    let normal: Vec<_> = skipped.iter().map(SkippedKey::is_normal).collect();
    assert_eq!(normal, [false, true, false]);
    let shown: Vec<_> = skipped.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "key 0 is a symmetric key; a secret does not belong in a public key set",
            "key 1 (kid \"enc\") is for encryption",
            "key 2 is not an object",
        ]
    );
}

#[test]
fn tokens_first_key_of_a_kid_wins() {
    let (mine, mut other) = (ISSUER_KEYS.jwks().remove(4), OTHER_KEYS.jwks().remove(4));
    let (set, reasons) = parse(&json!({"keys": [mine, other]}));
    assert_eq!(reasons, [SkipReason::Duplicate]);
    assert_eq!(class_of(&verify_at(&token(&claims()), &config(), &set, NOW)), "accepted");
    // The same `kid` for another type of key is not a duplicate (RFC 7517 §4.5).
    let mut ec = ISSUER_KEYS.jwks().remove(1);
    ec["kid"] = "ed25519".into();
    assert_eq!(parse(&json!({"keys": [mine, ec]})).1, []);
    // Keys without `kid` cannot be distinguished, and need not be.
    other.as_object_mut().unwrap().remove("kid");
    assert_eq!(parse(&json!({"keys": [other, other]})).1, []);
}

#[test]
fn tokens_kid_in_key_sets_is_capped() {
    assert_eq!(skipped(Algorithm::EdDsa, json!({"kid": "k".repeat(256)})), None);
    assert_eq!(skipped(Algorithm::EdDsa, json!({"kid": "k".repeat(257)})), Some(SkipReason::KidTooLong));
    assert_eq!(skipped(Algorithm::EdDsa, json!({"kid": 1})), Some(SkipReason::Member("kid")));
}

#[test]
fn tokens_key_sets_are_bounded_and_strict() {
    let error = |text: &str| KeySet::from_jwks_json(text.as_bytes()).err();
    assert_eq!(error(&" ".repeat(MAX_KEY_SET_BYTES + 1)), Some(KeySetError::TooLarge));
    let padded = format!("{{\"keys\":[]}}{}", " ".repeat(MAX_KEY_SET_BYTES - 11));
    assert_eq!(padded.len(), MAX_KEY_SET_BYTES);
    assert_eq!(error(&padded), None);
    let many = |n: usize| json!({"keys": vec![json!({}); n]}).to_string();
    assert_eq!(error(&many(100)), None);
    assert_eq!(error(&many(101)), Some(KeySetError::TooMany));
    for text in ["{}", "[]", "null", r#"{"keys":{}}"#, r#"{"keys":null}"#, r#"{"Keys":[]}"#] {
        assert_eq!(error(text), Some(KeySetError::NoKeys), "{text}");
    }
    assert_eq!(error(""), Some(KeySetError::Json(JsonError::Syntax)));
    assert_eq!(error("<html>"), Some(KeySetError::Json(JsonError::Syntax)));
    assert_eq!(error(r#"{"keys":[]}{"keys":[]}"#), Some(KeySetError::Json(JsonError::Syntax)));
    assert_eq!(error(r#"{"keys":[],"keys":[]}"#), Some(KeySetError::Json(JsonError::DuplicateMember)));
    assert_eq!(
        error(r#"{"keys":[{"kid":"a","kid":"b"}]}"#),
        Some(KeySetError::Json(JsonError::DuplicateMember))
    );
    let bomb = format!(r#"{{"keys":{}"#, "[".repeat(200_000));
    assert_eq!(error(&bomb), Some(KeySetError::Json(JsonError::TooDeep)));
    assert!(parse(&json!({"keys": []})).0.is_empty());
}

/// The examples of RFC 7515 appendix A.2 (RS256) and A.3 (ES256): their claims lack `aud`, which is
/// reported only after the signature was verified.
#[test]
fn tokens_of_rfc_7515_have_right_signatures() {
    let n = concat!(
        "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-",
        "yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-",
        "KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_",
        "h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"
    );
    let keys = key_set(&[
        json!({"kty": "RSA", "alg": "RS256", "n": n, "e": "AQAB"}),
        json!({
            "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        }),
    ]);
    let payload =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let rs256 = concat!(
        "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds",
        "9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZR",
        "mB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs9",
        "8rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
    );
    let es256 = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let joe = IssuerConfig::new("joe", "joe", vec!["us".into()]).unwrap().with_types(TokenTypes::Untyped);
    for (header, signature) in [("eyJhbGciOiJSUzI1NiJ9", rs256), ("eyJhbGciOiJFUzI1NiJ9", es256)] {
        let genuine = format!("{header}.{payload}.{signature}");
        assert_eq!(class_of(&verify_at(&genuine, &joe, &keys, NOW)), "missing_claim");
        let forged = format!("{header}.{}.{signature}", payload.replace("cnVl", "cnVm"));
        assert_ne!(forged, genuine);
        assert_ne!(class_of(&verify_at(&forged, &joe, &keys, NOW)), "missing_claim");
        let swapped =
            format!("{header}.{payload}.{}{}{}", &signature[4..8], &signature[..4], &signature[8..]);
        assert_eq!(class_of(&verify_at(&swapped, &joe, &keys, NOW)), "bad_signature");
    }
}
