//! The form of a token. Every vector states the class of its failure.

use auth::algorithm::Algorithm;
use auth::token::jwt;
use serde_json::json;

use crate::token_support::*;

const HEADER: &str = r#"{"alg":"EdDSA","kid":"ed25519","typ":"at+jwt"}"#;

fn assert_classes(vectors: &[(&str, &str)]) {
    for (token, expected) in vectors {
        assert_eq!(class(token), *expected, "{token}");
    }
}

#[test]
fn tokens_have_exactly_three_parts() {
    let token = token(&claims());
    let parts: Vec<_> = token.split('.').collect();
    let [head, body, signature] = parts[..] else { panic!("three parts") };
    assert_classes(&[
        (&token, "accepted"),
        ("", "not_jwt"),
        ("opaque-token", "not_jwt"),
        (".", "not_jwt"),
        (&format!("{head}.{body}"), "not_jwt"),
        (&format!("{token}."), "not_jwt"),
        (&format!("{token}.{signature}"), "not_jwt"),
        (&format!("{head}.{body}.{signature}.{signature}.{signature}.{signature}"), "not_jwt"),
        ("..", "bad_json"),
        (&format!(".{body}.{signature}"), "bad_json"),
        (&format!("{head}..{signature}"), "bad_json"),
    ]);
}

#[test]
fn tokens_encrypted_ones_are_refused_by_name() {
    let header = b64(r#"{"alg":"RSA-OAEP","enc":"A256GCM"}"#);
    assert_classes(&[(&format!("{header}.a2V5.aXY.Y3Q.dGFn"), "encrypted"), ("....", "encrypted")]);
}

/// A valid token of exactly `length` bytes. Base64 cannot have every length, so the header is
/// padded as well.
fn of_length(length: usize) -> String {
    let padded = |head: usize, body: usize| {
        let header = json!({"alg": "EdDSA", "kid": "ed25519", "typ": "at+jwt", "pad": "x".repeat(head)});
        token_of(&header.to_string(), &claims_with(json!({"pad": "x".repeat(body)})).to_string())
    };
    let start = (length - padded(2, 0).len()) / 4 * 3 - 3;
    let candidates = (0..3).flat_map(|head| (start..start + 12).map(move |body| (head, body)));
    candidates.map(|(head, body)| padded(head, body)).find(|token| token.len() == length).unwrap()
}

#[test]
fn tokens_longer_than_16_kib_are_refused() {
    assert_eq!(class(&of_length(jwt::MAX_TOKEN_BYTES)), "accepted");
    assert_eq!(class(&of_length(jwt::MAX_TOKEN_BYTES + 1)), "too_large");
    assert_eq!(class(&"a".repeat(jwt::MAX_TOKEN_BYTES + 1)), "too_large");
}

#[test]
fn tokens_base64_is_canonical() {
    let token = token(&claims());
    let parts: Vec<_> = token.split('.').collect();
    for part in 0..3 {
        let with = |text: String| {
            let mut parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
            parts[part] = text;
            parts.join(".")
        };
        let text = parts[part];
        for bad in [
            format!("{text}="),
            format!("{text}=="),
            format!("{text}\n"),
            format!(" {text}"),
            format!("{}+{}", &text[..4], &text[5..]),
            format!("{}/{}", &text[..4], &text[5..]),
            format!("{}\u{e9}{}", &text[..4], &text[5..]),
            format!("{}\0{}", &text[..4], &text[5..]),
        ] {
            assert_eq!(class(&with(bad.clone())), "bad_base64", "part {part}: {bad:?}");
        }
    }
}

#[test]
fn tokens_stray_trailing_bits_are_refused() {
    // An Ed25519 signature has 64 bytes: its last character has four bits too many. All sixteen
    // spellings decode to the same bytes in a lenient reader.
    let token = token(&claims());
    let (rest, last) = token.split_at(token.len() - 1);
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let place = alphabet.find(last).unwrap();
    assert_eq!(place % 16, 0, "canonical");
    for stray in 1..16 {
        let spelled = format!("{rest}{}", &alphabet[place + stray..=place + stray]);
        assert_eq!(class(&spelled), "bad_base64", "{spelled}");
    }
    for payload in [claims().to_string(), format!("{} ", claims()), format!("{}  ", claims())] {
        let body = b64(&payload);
        if payload.len() % 3 == 0 {
            continue;
        }
        let last = alphabet.find(&body[body.len() - 1..]).unwrap();
        let body = format!("{}{}", &body[..body.len() - 1], &alphabet[last + 1..last + 2]);
        let signed = format!("{}.{body}", b64(HEADER));
        let signature = b64(ISSUER_KEYS.sign(Algorithm::EdDsa, signed.as_bytes()));
        assert_eq!(class(&format!("{signed}.{signature}")), "bad_base64", "signed over its stray bits");
    }
}

#[test]
fn tokens_duplicate_members_are_refused() {
    let claims = claims().to_string();
    let inner = &claims[1..claims.len() - 1];
    for (header, payload) in [
        (HEADER, format!(r#"{{{inner},"sub":"root"}}"#)),
        (HEADER, format!(r#"{{{inner},"sub":"u-1"}}"#)),
        (HEADER, format!(r#"{{{inner},"\u0073ub":"root"}}"#)),
        (HEADER, format!(r#"{{"aud":"other",{inner}}}"#)),
        (HEADER, format!(r#"{{{inner},"realm_access":{{"roles":[],"roles":["admin"]}}}}"#)),
        (HEADER, format!(r#"{{{inner},"x":[[{{"a":1,"a":1}}]]}}"#)),
        (r#"{"alg":"EdDSA","kid":"ed25519","typ":"at+jwt","alg":"EdDSA"}"#, claims.clone()),
        (r#"{"alg":"none","alg":"EdDSA","kid":"ed25519","typ":"at+jwt"}"#, claims.clone()),
        (r#"{"alg":"EdDSA","kid":"ed25519","typ":"at+jwt","jwk":{"kty":"OKP","kty":"OKP"}}"#, claims.clone()),
    ] {
        assert_eq!(class(&token_of(header, &payload)), "duplicate_member", "{header} {payload}");
    }
}

#[test]
fn tokens_trailing_bytes_are_refused() {
    let claims = claims().to_string();
    for tail in ["{}", "x", ",", "\0", "}", "null", "\u{feff}", r#"{"sub":"root"}"#] {
        assert_eq!(class(&token_of(HEADER, &format!("{claims}{tail}"))), "bad_json", "{tail:?}");
        assert_eq!(class(&token_of(&format!("{HEADER}{tail}"), &claims)), "bad_json", "{tail:?}");
    }
}

#[test]
fn tokens_nested_bombs_are_refused() {
    let claims = claims().to_string();
    let nested = |levels: usize| {
        let bomb = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{},"x":{bomb}}}"#, &claims[..claims.len() - 1])
    };
    assert_eq!(class(&token_of(HEADER, &nested(15))), "accepted");
    assert_eq!(class(&token_of(HEADER, &nested(16))), "too_deep");
    assert_eq!(class(&token_of(HEADER, &nested(5_000))), "too_deep");
    let unclosed = format!(r#"{{"alg":{}"#, "[".repeat(5_000));
    assert_eq!(class(&token_of(&unclosed, &claims)), "too_deep");
}

#[test]
fn tokens_parts_are_json_objects_in_utf_8() {
    let claims = claims().to_string();
    for text in ["null", "1", "\"x\"", "[]", "true"] {
        assert_eq!(class(&token_of(HEADER, text)), "not_an_object", "{text}");
        assert_eq!(class(&token_of(text, &claims)), "not_an_object", "{text}");
    }
    for text in ["", "{", "{'alg':1}", "{\"a\":01}", "{\"a\":NaN}", "{\"a\":\"\\ud800\"}", "{\"a\":1e999}"] {
        assert_eq!(class(&token_of(HEADER, text)), "bad_json", "{text}");
        assert_eq!(class(&token_of(text, &claims)), "bad_json", "{text}");
    }
    let body = b64(b"{\"iss\":\"\xff\"}");
    assert_eq!(class(&format!("{}.{body}.AAAA", b64(HEADER))), "bad_utf8");
}

#[test]
fn tokens_alg_is_a_required_string() {
    for header in [
        r#"{"kid":"ed25519","typ":"at+jwt"}"#,
        r#"{"alg":null,"kid":"ed25519","typ":"at+jwt"}"#,
        r#"{"alg":["EdDSA"],"kid":"ed25519","typ":"at+jwt"}"#,
        r#"{"alg":1,"kid":"ed25519","typ":"at+jwt"}"#,
        r#"{"Alg":"EdDSA","kid":"ed25519","typ":"at+jwt"}"#,
        r#"{"alg":"EdDSA","kid":"ed25519","typ":1}"#,
    ] {
        assert_eq!(class(&token_of(header, &claims().to_string())), "bad_header", "{header}");
    }
}

#[test]
fn tokens_are_never_shown() {
    let token = token(&claims());
    let unverified = jwt::parse(token.as_bytes()).unwrap();
    assert_eq!((unverified.issuer(), unverified.kid()), (ISSUER, Some("ed25519")));
    assert_eq!(unverified.algorithm(), Algorithm::EdDsa);
    let shown = format!("{unverified:?}");
    assert!(!shown.contains("u-1") && !shown.contains(token.split('.').nth(1).unwrap()), "{shown}");
    let error = verify(&token_of(HEADER, r#"{"iss":"hush"}"#)).unwrap_err();
    assert!(!error.to_string().contains("hush"), "{error}");
}
