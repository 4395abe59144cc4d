//! Tokens: what is true for every input.

use std::sync::LazyLock;
use std::time::Duration;

use auth::algorithm::Algorithm;
use auth::json::{Document, Number, Value as Strict};
use auth::time::Timestamp;
use auth::token::{TokenTypes, jwt};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::token_support::*;

static VALID: LazyLock<String> = LazyLock::new(|| token(&claims()));

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("json has no others", |f| f.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn same(strict: Strict<'_>, plain: &Value) -> bool {
    match plain {
        Value::Null => strict.is_null(),
        Value::Bool(b) => strict.as_bool() == Some(*b),
        Value::String(s) => strict.as_str() == Some(s),
        Value::Number(n) => match strict.as_number() {
            Some(Number::Unsigned(u)) => n.as_u64() == Some(u),
            Some(Number::Negative(i)) => n.as_i64() == Some(i) && i < 0,
            Some(Number::Float(f)) => n.is_f64() && n.as_f64().map(f64::to_bits) == Some(f.to_bits()),
            None => false,
        },
        Value::Array(items) => strict
            .items()
            .is_some_and(|found| found.len() == items.len() && found.zip(items).all(|(s, p)| same(s, p))),
        Value::Object(members) => {
            strict.is_object() && members.iter().all(|(name, v)| strict.get(name).is_some_and(|s| same(s, v)))
        }
    }
}

proptest! {
    #[test]
    fn json_reads_what_was_written(value in any_json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let document = Document::parse(text.unwrap().into_bytes());
        prop_assert!(same(document.unwrap().root(), &value));
    }

    #[test]
    fn json_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Document::parse(bytes);
    }

    #[test]
    fn json_repeated_members_are_found_in_any_order(
        mut names in proptest::collection::btree_set("[a-c]{0,3}", 1..20).prop_map(Vec::from_iter),
        again in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
    ) {
        let object = |names: &[String]| {
            let members: Vec<_> = names.iter().map(|name| format!("\"{name}\":0")).collect();
            format!("{{{}}}", members.join(",")).into_bytes()
        };
        prop_assert!(Document::parse(object(&names)).is_ok());
        let name = again.get(&names).clone();
        names.insert(place.index(names.len() + 1), name);
        prop_assert!(Document::parse(object(&names)).is_err());
    }

    #[test]
    fn tokens_arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(jwt::parse(&bytes).is_err());
    }

    #[test]
    fn tokens_arbitrary_parts_never_pass(header in any_json(), payload in any_json(), signature in any::<Vec<u8>>()) {
        let token = format!("{}.{}.{}", b64(header.to_string()), b64(payload.to_string()), b64(signature));
        prop_assert!(verify(&token).is_err());
    }

    #[test]
    fn tokens_signed_claims_of_any_shape_never_panic(extra in any_json(), name in "sub|aud|exp|nbf|groups|scope|email|x") {
        let mut claims = claims();
        claims["email_verified"] = json!(true);
        claims[name] = extra;
        for types in [TokenTypes::Rfc9068, TokenTypes::Jwt, TokenTypes::Untyped] {
            if let Ok(facts) = verify_with(&token(&claims), &config().with_types(types)) {
                prop_assert!(facts.valid_at(NOW));
                prop_assert!(!facts.identity.subject.is_empty());
                let identity = &facts.identity;
                let texts = identity.groups.iter().chain(&identity.scopes).chain(&identity.email);
                prop_assert!(texts.chain([&identity.subject]).all(|t| !t.contains(char::is_control)));
            }
        }
    }

    #[test]
    fn tokens_any_changed_byte_is_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut token = VALID.clone().into_bytes();
        let at = at.index(token.len());
        prop_assume!(token[at] != byte);
        token[at] = byte;
        let verified = jwt::parse(&token).and_then(|t| t.verify(&config(), &ISSUER_KEYS.set(), NOW));
        prop_assert!(verified.is_err());
    }

    #[test]
    fn tokens_any_cut_is_refused(at in any::<prop::sample::Index>()) {
        prop_assert!(verify(&VALID[..at.index(VALID.len())]).is_err());
    }

    #[test]
    fn tokens_are_valid_exactly_inside_their_interval(
        nbf in 0_u64..4_000,
        exp in 0_u64..4_000,
        skew in 0_u64..=60,
        now in 0_u64..4_200_000,
    ) {
        let config = config().with_clock_skew(Duration::from_secs(skew)).unwrap();
        let token = token(&claims_with(json!({"nbf": nbf, "exp": exp, "iat": null})));
        let result = verify_at(&token, &config, &ISSUER_KEYS.set(), Timestamp::from_millis(now));
        let inside = now >= (nbf * 1000).saturating_sub(skew * 1000) && now < (exp + skew) * 1000;
        prop_assert_eq!(result.is_ok(), inside, "{:?}", result);
        if let Ok(facts) = result {
            prop_assert!(facts.valid_at(Timestamp::from_millis(now)));
        }
    }
}

proptest! {
    // Signing takes longer than everything else together.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tokens_signature_bits_all_count(algorithm in prop::sample::select(&Algorithm::ALL[..]), bit in any::<prop::sample::Index>()) {
        let header = json!({"alg": algorithm.as_str(), "kid": kid_for(algorithm), "typ": "at+jwt"}).to_string();
        let signed = format!("{}.{}", b64(header), b64(claims().to_string()));
        let mut signature = ISSUER_KEYS.sign(algorithm, signed.as_bytes());
        prop_assert_eq!(class(&format!("{signed}.{}", b64(&signature))), "accepted");
        let bit = bit.index(signature.len() * 8);
        signature[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(class(&format!("{signed}.{}", b64(&signature))), "bad_signature");
        signature[bit / 8] ^= 1 << (bit % 8);
        signature.push(0);
        prop_assert_eq!(class(&format!("{signed}.{}", b64(&signature))), "bad_signature", "longer");
        prop_assert_eq!(class(&format!("{signed}.{}", b64(&signature[1..]))), "bad_signature", "shifted");
    }
}
