//! Keys, algorithms, issuers, audiences and kinds of tokens.

use auth::algorithm::{Algorithm, AlgorithmSet};
use auth::token::{IssuerConfig, IssuerConfigError, TokenTypes};
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine as _;
use serde_json::{Value, json};

use crate::token_support::*;

fn header(algorithm: &str, kid: &str) -> String {
    json!({"alg": algorithm, "kid": kid, "typ": "at+jwt"}).to_string()
}

#[test]
fn tokens_of_every_algorithm_are_accepted() {
    for algorithm in Algorithm::ALL {
        let token = ISSUER_KEYS.token(
            algorithm,
            &header(algorithm.as_str(), kid_for(algorithm)),
            &claims().to_string(),
        );
        let facts = verify(&token).unwrap_or_else(|e| panic!("{algorithm:?}: {e}"));
        assert_eq!(&*facts.identity.subject, "u-1");
        assert_eq!(&*facts.identity.issuer, "main");
    }
    let fully_specified =
        ISSUER_KEYS.token(Algorithm::EdDsa, &header("Ed25519", "ed25519"), &claims().to_string());
    assert_eq!(class(&fully_specified), "accepted", "the name of RFC 9864");
}

#[test]
fn tokens_key_decides_the_algorithm() {
    // Only a key of the header's algorithm is tried, whatever key really signed.
    for claimed in Algorithm::ALL {
        for kid in ["rsa", "p256", "p384", "p521", "ed25519"] {
            let token = ISSUER_KEYS.token(claimed, &header(claimed.as_str(), kid), &claims().to_string());
            let expected = if kid == kid_for(claimed) { "accepted" } else { "key_mismatch" };
            assert_eq!(class(&token), expected, "{claimed:?} with key {kid}");
        }
        for signing in Algorithm::ALL.into_iter().filter(|signing| *signing != claimed) {
            let token = ISSUER_KEYS.token(
                signing,
                &header(claimed.as_str(), kid_for(claimed)),
                &claims().to_string(),
            );
            assert_eq!(class(&token), "bad_signature", "{claimed:?} signed with {signing:?}");
        }
    }
}

#[test]
fn tokens_declared_key_algorithm_must_match() {
    let mut jwk = ISSUER_KEYS.jwks().remove(0);
    jwk["alg"] = "RS256".into();
    let keys = key_set(&[jwk]);
    for algorithm in Algorithm::ALL.into_iter().filter(|a| kid_for(*a) == "rsa") {
        let token = ISSUER_KEYS.token(algorithm, &header(algorithm.as_str(), "rsa"), &claims().to_string());
        let expected = if algorithm == Algorithm::Rs256 { "accepted" } else { "key_mismatch" };
        assert_eq!(class_of(&verify_at(&token, &config(), &keys, NOW)), expected, "{algorithm:?}");
    }
}

#[test]
fn tokens_algorithm_must_be_allowed_for_the_issuer() {
    let only = |algorithm| config().with_algorithms(AlgorithmSet::EMPTY.with(algorithm)).unwrap();
    for allowed in Algorithm::ALL {
        for used in Algorithm::ALL {
            let token = ISSUER_KEYS.token(used, &header(used.as_str(), kid_for(used)), &claims().to_string());
            let expected = if used == allowed { "accepted" } else { "alg_not_allowed" };
            assert_eq!(
                class_of(&verify_with(&token, &only(allowed))),
                expected,
                "{used:?} where {allowed:?}"
            );
        }
    }
    let none = config().with_algorithms(AlgorithmSet::EMPTY);
    assert_eq!(none.err(), Some(IssuerConfigError::NoAlgorithm));
}

#[test]
fn tokens_alg_none_is_refused() {
    for name in ["none", "None", "NONE", "nOnE"] {
        let head = b64(json!({"alg": name, "typ": "at+jwt"}).to_string());
        let body = b64(claims().to_string());
        assert_eq!(class(&format!("{head}.{body}.")), "alg_none", "{name} without signature");
        let signature = b64(ISSUER_KEYS.sign(Algorithm::EdDsa, format!("{head}.{body}").as_bytes()));
        assert_eq!(class(&format!("{head}.{body}.{signature}")), "alg_none", "{name} with a signature");
    }
    let stripped = token(&claims());
    let (signed, _) = stripped.rsplit_once('.').unwrap();
    assert_eq!(class(&format!("{signed}.")), "bad_signature", "signature cut off");
}

#[test]
fn tokens_hs_with_public_key_is_refused() {
    let der = ISSUER_KEYS.rsa.public_key().as_der().unwrap();
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        base64::engine::general_purpose::STANDARD.encode(der.as_ref())
    );
    let secrets =
        [der.as_ref().to_vec(), pem.into_bytes(), ISSUER_KEYS.jwks()[0].to_string().into_bytes(), Vec::new()];
    for secret in secrets {
        for (name, expected) in [
            ("HS256", "alg_symmetric"),
            ("HS384", "alg_symmetric"),
            ("HS512", "alg_symmetric"),
            ("RS256", "bad_signature"),
        ] {
            let signed = format!("{}.{}", b64(header(name, "rsa")), b64(claims().to_string()));
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), signed.as_bytes());
            assert_eq!(class(&format!("{signed}.{}", b64(tag))), expected, "{name}");
        }
    }
}

#[test]
fn tokens_unknown_algorithms_are_refused() {
    for name in
        ["", "rs256", "RS256 ", "RS1", "ES256K", "Ed448", "dir", "A128KW", "PBES2-HS256+A128KW", "EdDSA\0"]
    {
        let token = token_of(&header(name, "ed25519"), &claims().to_string());
        assert_eq!(class(&token), "alg_unsupported", "{name:?}");
    }
}

#[test]
fn tokens_crit_is_refused_whatever_it_lists() {
    for crit in
        [json!([]), json!(["exp"]), json!(["b64"]), json!(["alg"]), json!("b64"), json!(null), json!(1)]
    {
        let header = json!({"alg": "EdDSA", "kid": "ed25519", "typ": "at+jwt", "crit": crit, "exp": 1});
        assert_eq!(class(&token_of(&header.to_string(), &claims().to_string())), "crit", "{crit}");
    }
}

#[test]
fn tokens_b64_is_refused() {
    for b64 in [json!(false), json!(true), json!("false"), json!(null)] {
        let header = json!({"alg": "EdDSA", "kid": "ed25519", "typ": "at+jwt", "b64": b64});
        assert_eq!(class(&token_of(&header.to_string(), &claims().to_string())), "b64", "{b64}");
    }
}

#[test]
fn tokens_embedded_keys_are_ignored() {
    // The attacker adds a key of their own, inline and by reference.
    let theirs = OTHER_KEYS.jwks().remove(4);
    let forged = json!({
        "alg": "EdDSA", "kid": "ed25519", "typ": "at+jwt", "jwk": theirs, "jku": "http://127.0.0.1:1/jwks",
        "x5u": "http://127.0.0.1:1/chain", "x5c": ["AAAA"],
    });
    let token = OTHER_KEYS.token(Algorithm::EdDsa, &forged.to_string(), &claims().to_string());
    assert_eq!(class(&token), "bad_signature");
    let mut without_kid = forged.clone();
    without_kid.as_object_mut().unwrap().remove("kid");
    let token = OTHER_KEYS.token(Algorithm::EdDsa, &without_kid.to_string(), &claims().to_string());
    assert_eq!(class(&token), "bad_signature");
    // A valid token with the same header members, or with nonsense in them, is accepted: they are
    // not read.
    assert_eq!(class(&token_of(&forged.to_string(), &claims().to_string())), "accepted");
    let nonsense =
        r#"{"alg":"EdDSA","kid":"ed25519","typ":"at+jwt","jwk":7,"jku":[],"x5u":null,"x5c":{"a":1}}"#;
    assert_eq!(class(&token_of(nonsense, &claims().to_string())), "accepted");
}

#[test]
fn tokens_kid_is_opaque_and_capped() {
    let with_kid = |kid: &Value| {
        token_of(&json!({"alg": "EdDSA", "kid": kid, "typ": "at+jwt"}).to_string(), &claims().to_string())
    };
    for kid in [
        "",
        "Ed25519",
        "ed25519 ",
        "ed25519\0",
        "../../dev/null",
        "' OR 1=1 --",
        "https://evil.example/k",
        "|sh",
    ] {
        assert_eq!(class(&with_kid(&kid.into())), "unknown_key", "{kid:?}");
    }
    assert_eq!(class(&with_kid(&"k".repeat(256).into())), "unknown_key");
    assert_eq!(class(&with_kid(&"k".repeat(257).into())), "kid_too_long");
    for kid in [json!(1), json!(null), json!(["ed25519"]), json!({"kid": "ed25519"})] {
        assert_eq!(class(&with_kid(&kid)), "bad_header", "{kid}");
    }
}

#[test]
fn tokens_without_kid_need_exactly_one_fitting_key() {
    let token = token_of(r#"{"alg":"EdDSA","typ":"at+jwt"}"#, &claims().to_string());
    let ours = ISSUER_KEYS.jwks();
    assert_eq!(class_of(&verify_at(&token, &config(), &key_set(&ours), NOW)), "accepted");
    assert_eq!(class_of(&verify_at(&token, &config(), &key_set(&ours[..4]), NOW)), "unknown_key");
    let mut second = OTHER_KEYS.jwks().remove(4);
    second["kid"] = "other".into();
    let both = key_set(&[ours[4].clone(), second]);
    assert_eq!(class_of(&verify_at(&token, &config(), &both, NOW)), "ambiguous_key");
}

#[test]
fn tokens_with_kid_never_fall_back_to_another_key() {
    let mut nameless = ISSUER_KEYS.jwks().remove(4);
    nameless.as_object_mut().unwrap().remove("kid");
    let keys = key_set(&[nameless]);
    assert_eq!(class_of(&verify_at(&token(&claims()), &config(), &keys, NOW)), "unknown_key");
    let token = token_of(r#"{"alg":"EdDSA","typ":"at+jwt"}"#, &claims().to_string());
    assert_eq!(class_of(&verify_at(&token, &config(), &keys, NOW)), "accepted");
}

#[test]
fn tokens_issuer_is_exact() {
    for issuer in [
        "https://id.example/realm/",
        "https://id.example/Realm",
        "https://id.example/realm ",
        "https://id.example",
        "http://id.example/realm",
        "https://id.example:443/realm",
        "",
    ] {
        assert_eq!(class(&token(&claims_with(json!({"iss": issuer})))), "wrong_issuer", "{issuer:?}");
    }
    for issuer in [json!([ISSUER]), json!(1), json!({}), json!(true)] {
        assert_eq!(class(&token(&claims_with(json!({"iss": issuer})))), "bad_claim", "{issuer}");
    }
    assert_eq!(class(&token(&claims_with(json!({"iss": null})))), "missing_claim");
    assert_eq!(IssuerConfig::new("main", "", vec!["a".into()]).err(), Some(IssuerConfigError::NoIssuer));
    assert_eq!(IssuerConfig::new("", ISSUER, vec!["a".into()]).err(), Some(IssuerConfigError::NoName));
}

#[test]
fn tokens_audience_is_required_and_contains_us() {
    let with = |aud: Value| class(&token(&claims_with(json!({"aud": aud}))));
    assert_eq!(with(json!(AUDIENCE)), "accepted");
    assert_eq!(with(json!(["other", AUDIENCE])), "accepted");
    for aud in [json!("other"), json!(""), json!([]), json!(["other"]), json!("https://api.example/")] {
        assert_eq!(with(aud.clone()), "wrong_audience", "{aud}");
    }
    for aud in
        [json!(1), json!({}), json!([AUDIENCE, 1]), json!([[AUDIENCE]]), json!([null, AUDIENCE]), json!(true)]
    {
        assert_eq!(with(aud.clone()), "bad_claim", "{aud}");
    }
    assert_eq!(with(Value::Null), "missing_claim");
    let none = IssuerConfig::new("main", ISSUER, vec![]);
    assert_eq!(none.err(), Some(IssuerConfigError::NoAudience));
    let empty = IssuerConfig::new("main", ISSUER, vec!["a".into(), "".into()]);
    assert_eq!(empty.err(), Some(IssuerConfigError::NoAudience));
}

#[test]
fn tokens_keys_of_two_issuers_never_mix() {
    let theirs = IssuerConfig::new("theirs", "https://other.example", vec![AUDIENCE.into()]).unwrap();
    let head = header("EdDSA", "ed25519");
    let for_theirs = claims_with(json!({"iss": "https://other.example"})).to_string();
    // Another issuer signs in this issuer's name, and the other way round.
    let forged = OTHER_KEYS.token(Algorithm::EdDsa, &head, &claims().to_string());
    assert_eq!(class_of(&verify_at(&forged, &config(), &ISSUER_KEYS.set(), NOW)), "bad_signature");
    assert_eq!(class_of(&verify_at(&forged, &theirs, &OTHER_KEYS.set(), NOW)), "wrong_issuer");
    let ours_for_theirs = ISSUER_KEYS.token(Algorithm::EdDsa, &head, &for_theirs);
    assert_eq!(class_of(&verify_at(&ours_for_theirs, &config(), &ISSUER_KEYS.set(), NOW)), "wrong_issuer");
    assert_eq!(class_of(&verify_at(&ours_for_theirs, &theirs, &OTHER_KEYS.set(), NOW)), "bad_signature");
    let genuine = OTHER_KEYS.token(Algorithm::EdDsa, &head, &for_theirs);
    let facts = verify_at(&genuine, &theirs, &OTHER_KEYS.set(), NOW).unwrap();
    assert_eq!(&*facts.identity.issuer, "theirs");
}

/// Results of each set of accepted types for a header `typ` (`null`: absent) and claims.
fn by_types(typ: Value, changes: Value) -> [&'static str; 3] {
    let mut header = json!({"alg": "EdDSA", "kid": "ed25519"});
    if !typ.is_null() {
        header["typ"] = typ;
    }
    let token = token_of(&header.to_string(), &claims_with(changes).to_string());
    [TokenTypes::Rfc9068, TokenTypes::Jwt, TokenTypes::Untyped]
        .map(|types| class_of(&verify_with(&token, &config().with_types(types))))
}

#[test]
fn tokens_typ_must_be_an_accepted_one() {
    let (yes, no) = ("accepted", "wrong_type");
    for typ in ["at+jwt", "AT+JWT", "application/at+jwt"] {
        assert_eq!(by_types(json!(typ), json!({})), [yes, yes, yes], "{typ}");
    }
    for typ in ["JWT", "jwt", "application/jwt"] {
        assert_eq!(by_types(json!(typ), json!({})), [no, yes, yes], "{typ}");
    }
    assert_eq!(by_types(Value::Null, json!({})), [no, no, yes]);
    for typ in
        ["logout+jwt", "secevent+jwt", "oauth-authz-req+jwt", "dpop+jwt", "id+jwt", "JOSE", "at+jwt ", ""]
    {
        assert_eq!(by_types(json!(typ), json!({})), [no, no, no], "{typ}");
    }
    assert_eq!(by_types(json!(["at+jwt"]), json!({})), ["bad_header"; 3]);
}

#[test]
fn tokens_id_tokens_logout_tokens_and_request_objects_are_refused() {
    let refused = "not_an_access_token";
    for marks in [
        json!({"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}),
        json!({"events": 1}),
        json!({"at_hash": "x"}),
        json!({"c_hash": "x"}),
        json!({"s_hash": "x"}),
        json!({"response_type": "code"}),
        json!({"typ": "ID"}),
        json!({"typ": "Refresh"}),
        json!({"typ": "Offline"}),
        json!({"typ": "Logout"}),
        json!({"typ": "Bearer", "at_hash": "x"}),
        json!({"typ": ["Bearer"]}),
        json!({"token_use": "id"}),
    ] {
        assert_eq!(by_types(json!("at+jwt"), marks.clone()), [refused; 3], "at+jwt {marks}");
        assert_eq!(by_types(json!("JWT"), marks.clone())[1..], [refused; 2], "JWT {marks}");
        assert_eq!(by_types(Value::Null, marks.clone())[2], refused, "untyped {marks}");
    }
}

#[test]
fn tokens_nonce_marks_an_id_token_unless_the_token_says_otherwise() {
    assert_eq!(by_types(json!("JWT"), json!({"nonce": "n"}))[1], "not_an_access_token");
    assert_eq!(by_types(Value::Null, json!({"nonce": "n"}))[2], "not_an_access_token");
    assert_eq!(by_types(json!("at+jwt"), json!({"nonce": "n"})), ["accepted"; 3]);
    // Keycloak before version 24, and Cognito.
    assert_eq!(by_types(json!("JWT"), json!({"nonce": "n", "typ": "Bearer"}))[1], "accepted");
    assert_eq!(by_types(Value::Null, json!({"nonce": "n", "token_use": "access"}))[2], "accepted");
}

#[test]
fn tokens_bound_to_a_key_are_no_bearer_tokens() {
    for cnf in [json!({"jkt": "x"}), json!({"x5t#S256": "x"}), json!({})] {
        assert_eq!(class(&token(&claims_with(json!({"cnf": cnf})))), "sender_constrained");
    }
}

#[test]
fn tokens_rfc_9068_claims_are_required_in_that_mode() {
    for name in ["sub", "client_id", "jti", "iat"] {
        let [strict, lenient, _] = by_types(json!("at+jwt"), json!({name: null}));
        assert_eq!(strict, "missing_claim", "{name}");
        assert_eq!(lenient, if name == "sub" { "missing_claim" } else { "accepted" }, "{name}");
    }
    for name in ["sub", "client_id", "jti"] {
        assert_eq!(by_types(json!("at+jwt"), json!({name: ""}))[0], "missing_claim", "{name}");
    }
}
