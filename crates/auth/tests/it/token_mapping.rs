//! Mapping: from claims and certificates to identities.

use std::borrow::Cow;

use auth::identity::{CredentialKind, Facts, Identity};
use auth::mapping::{
    CertificateField, CertificateIdentity, CertificateMapping, CertificateMappingError, ClaimMapping,
    ClaimPath,
};
use auth::time::Timestamp;
use auth::token_error::{ClaimError, ClaimFault, TokenError};
use serde_json::{Value, json};

use crate::token_support::*;

fn path(text: &str) -> ClaimPath {
    text.parse().unwrap()
}

fn paths(texts: &[&str]) -> Vec<ClaimPath> {
    texts.iter().map(|text| path(text)).collect()
}

fn identity(mapping: &ClaimMapping, changes: Value) -> Result<Identity, TokenError> {
    let config = config().with_mapping(mapping.clone());
    verify_with(&token(&claims_with(changes)), &config).map(|facts| facts.identity)
}

fn fault(mapping: &ClaimMapping, changes: Value) -> (String, ClaimFault) {
    match identity(mapping, changes) {
        Err(TokenError::Claim(ClaimError { claim, fault })) => (claim.into(), fault),
        other => panic!("{other:?}"),
    }
}

fn list(texts: &[Box<str>]) -> Vec<&str> {
    texts.iter().map(|text| &**text).collect()
}

#[test]
fn mapping_takes_the_usual_claims_by_default() {
    let identity = identity(
        &ClaimMapping::default(),
        json!({
            "preferred_username": "ada", "email": "ada@x.example", "email_verified": true,
            "groups": ["dev", "ops", "dev"], "scope": "read  write read", "azp": "other", "ignored": 1,
        }),
    )
    .unwrap();
    assert_eq!(
        identity,
        Identity {
            kind: CredentialKind::Jwt,
            issuer: "main".into(),
            subject: "u-1".into(),
            user: Some("ada".into()),
            email: Some("ada@x.example".into()),
            client: Some("shop".into()),
            groups: vec!["dev".into(), "ops".into()],
            groups_elsewhere: false,
            scopes: vec!["read".into(), "write".into()],
            claims: vec![],
        }
    );
}

#[test]
fn mapping_needs_a_subject() {
    let mapping = ClaimMapping::default();
    for absent in [json!({"sub": null}), json!({"sub": ""})] {
        assert_eq!(fault(&mapping, absent), ("sub".into(), ClaimFault::Missing));
    }
    for sub in [json!(1), json!(["u-1"]), json!({"a": 1}), json!(true)] {
        assert_eq!(fault(&mapping, json!({"sub": sub})), ("sub".into(), ClaimFault::NotA("a string")));
    }
    let other = ClaimMapping { subject: path("ids.oid"), ..ClaimMapping::default() };
    let found = identity(&other, json!({"sub": null, "ids": {"oid": "o-7"}})).unwrap();
    assert_eq!(&*found.subject, "o-7");
    assert_eq!(fault(&other, json!({"ids": {}})), ("ids.oid".into(), ClaimFault::Missing));
    assert_eq!(fault(&other, json!({"ids": "x"})), ("ids.oid".into(), ClaimFault::NotA("inside objects")));
}

#[test]
fn mapping_believes_verified_addresses_only() {
    let mapping = ClaimMapping::default();
    let email = |mapping: &ClaimMapping, verified: Value| {
        identity(mapping, json!({"email": "a@x.example", "email_verified": verified})).unwrap().email
    };
    // Apple and Amazon Cognito write it as a text.
    for verified in [json!(true), json!("true")] {
        assert_eq!(email(&mapping, verified).as_deref(), Some("a@x.example"));
    }
    for verified in
        [json!(false), json!("false"), json!("True"), json!(" true"), json!(1), json!([true]), Value::Null]
    {
        assert_eq!(email(&mapping, verified.clone()), None, "{verified}");
    }
    let trusting = ClaimMapping { email_must_be_verified: false, ..ClaimMapping::default() };
    assert_eq!(email(&trusting, Value::Null).as_deref(), Some("a@x.example"));
    let none = ClaimMapping { email: None, ..ClaimMapping::default() };
    assert_eq!(email(&none, json!(true)), None);
}

#[test]
fn mapping_wants_exactly_one_at_sign() {
    for email in ["a@evil.example@x.example", "a", "@x.example", "a@", "@", "a b@x.example", "a@x .example"] {
        let changes = json!({"email": email, "email_verified": true});
        assert_eq!(
            fault(&ClaimMapping::default(), changes),
            ("email".into(), ClaimFault::NotAnAddress),
            "{email}"
        );
    }
}

#[test]
fn mapping_merges_groups_of_nested_paths() {
    let mapping = ClaimMapping {
        groups: paths(&[
            "realm_access.roles",
            "/resource_access/my.client/roles",
            "/https:~1~1x.example~1groups",
            "absent.a",
        ]),
        ..ClaimMapping::default()
    };
    let changes = json!({
        "realm_access": {"roles": ["b", "a"]},
        "resource_access": {"my.client": {"roles": ["a", "c"]}, "my": {"client": {"roles": ["no"]}}},
        "https://x.example/groups": "d",
        "groups": ["not mapped"],
    });
    assert_eq!(list(&identity(&mapping, changes).unwrap().groups), ["b", "a", "c", "d"]);
    let nothing =
        identity(&mapping, json!({"realm_access": {"roles": ["", "a"]}, "resource_access": {}})).unwrap();
    assert_eq!(list(&nothing.groups), ["a"]);
}

#[test]
fn mapping_takes_groups_as_they_are_published() {
    let mapping = ClaimMapping::default();
    for (value, expected, left_out) in [
        (json!("a"), &["a"][..], false),
        (json!(["a", "b"]), &["a", "b"], false),
        (json!(7), &["7"], false),
        (json!(["a", 7, -1, 1.5]), &["a", "7", "-1", "1.5"], false),
        // Zitadel: each role with the organizations that it is granted in.
        (json!({"admin": {"1": "x.example"}, "dev": {}}), &["admin", "dev"], false),
        (json!(["a", {"id": 1}, null, ["b"], true, "c"]), &["a", "c"], true),
        (json!(true), &[], true),
        (json!([]), &[], false),
        (json!({}), &[], false),
    ] {
        let token = token(&claims_with(json!({"groups": value.clone()})));
        let found = verify_with(&token, &config().with_mapping(mapping.clone())).unwrap();
        assert_eq!(list(&found.identity.groups), expected, "{value}");
        let config = config();
        let unverified = auth::token::jwt::parse(token.as_ref()).unwrap();
        assert_eq!(unverified.partial_groups(&config), left_out.then_some("groups"), "{value}");
    }
    assert_eq!(fault(&mapping, json!({"groups": [1e300]})), ("groups".into(), ClaimFault::Inexact));
    assert_eq!(fault(&mapping, json!({"groups": {"a\n": 1}})), ("groups".into(), ClaimFault::Control));
    let roles: serde_json::Map<_, _> = (0..513).map(|n| (format!("role-{n}"), json!({}))).collect();
    assert_eq!(fault(&mapping, json!({"groups": roles})), ("groups".into(), ClaimFault::TooMany));
}

#[test]
fn mapping_notes_groups_that_are_elsewhere() {
    for (changes, elsewhere) in [
        (json!({"_claim_names": {"groups": "src1"}}), true),
        (json!({"hasgroups": true}), true),
        (json!({"_claim_names": {"address": "src1"}}), false),
        (json!({"hasgroups": false}), false),
        (json!({}), false),
    ] {
        let found = identity(&ClaimMapping::default(), changes.clone()).unwrap();
        assert_eq!(found.groups_elsewhere, elsewhere, "{changes}");
    }
}

#[test]
fn mapping_reads_scopes_as_text_or_array() {
    let scopes =
        |changes| identity(&ClaimMapping::default(), changes).unwrap().scopes.into_iter().map(String::from);
    assert!(scopes(json!({"scope": "a b"})).eq(["a", "b"]));
    assert!(scopes(json!({"scp": ["a", "b c"]})).eq(["a", "b", "c"]));
    assert!(scopes(json!({"scope": "", "scp": "a"})).eq(["a"]));
    assert_eq!(scopes(json!({})).count(), 0);
}

#[test]
fn mapping_takes_the_first_client() {
    let client = |changes| identity(&ClaimMapping::default(), changes).unwrap().client;
    assert_eq!(client(json!({"client_id": null, "azp": "b"})).as_deref(), Some("b"));
    assert_eq!(client(json!({"client_id": "", "azp": "b"})).as_deref(), Some("b"));
    assert_eq!(client(json!({"client_id": null})), None);
}

#[test]
fn mapping_keeps_configured_claims_sorted() {
    let mapping = ClaimMapping {
        keep: paths(&["tenant", "a.b", "levels", "absent", "a.b", "flag"]),
        ..ClaimMapping::default()
    };
    let found = identity(
        &mapping,
        json!({"tenant": "t", "a": {"b": 7}, "levels": [1, -2, 1.5, "x", true], "flag": false}),
    )
    .unwrap();
    let names: Vec<_> = found.claims.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["a.b", "flag", "levels", "tenant"]);
    assert_eq!(list(found.claim("levels")), ["1", "-2", "1.5", "x", "true"]);
    assert_eq!(list(found.claim("a.b")), ["7"]);
    assert_eq!(list(found.claim("flag")), ["false"]);
    assert_eq!(list(found.claim("absent")), [""; 0]);
    for value in [json!({}), json!([[]]), json!([{}]), json!([null])] {
        let (claim, _) = fault(&mapping, json!({"tenant": value}));
        assert_eq!(claim, "tenant");
    }
    let header = r#"{"alg":"EdDSA","kid":"ed25519","typ":"at+jwt"}"#;
    let claims = claims().to_string();
    for literal in ["12345678901234567890123", "1e300", "-9007199254740993.0"] {
        let token = token_of(header, &format!(r#"{},"tenant":{literal}}}"#, &claims[..claims.len() - 1]));
        let error = verify_with(&token, &config().with_mapping(mapping.clone())).unwrap_err();
        assert_eq!(
            error,
            TokenError::Claim(ClaimError { claim: "tenant".into(), fault: ClaimFault::Inexact })
        );
    }
}

#[test]
fn mapping_refuses_texts_that_break_headers_and_logs() {
    let mapping = ClaimMapping { keep: paths(&["kept"]), ..ClaimMapping::default() };
    for (text, expected) in [
        ("a\r\nX-Forwarded-User: root", ClaimFault::Control),
        ("a\0", ClaimFault::Control),
        ("a\u{85}b", ClaimFault::Control),
        ("a\u{7f}", ClaimFault::Control),
        ("root ", ClaimFault::Padded),
        ("\u{a0}root", ClaimFault::Padded),
        (" ", ClaimFault::Padded),
    ] {
        for name in ["sub", "preferred_username", "client_id", "groups", "kept"] {
            assert_eq!(fault(&mapping, json!({name: text})), (name.into(), expected), "{name} {text:?}");
            if ["groups", "kept"].contains(&name) {
                assert_eq!(
                    fault(&mapping, json!({name: ["ok", text]})),
                    (name.into(), expected),
                    "{name} {text:?}"
                );
            }
        }
    }
    assert_eq!(fault(&mapping, json!({"scope": "a\tb"})), ("scope".into(), ClaimFault::Control));
    let changes = json!({"email": "a@x.example\n", "email_verified": true});
    assert_eq!(fault(&mapping, changes), ("email".into(), ClaimFault::Control));
    assert_eq!(&*identity(&mapping, json!({"sub": "Grüße, 世界"})).unwrap().subject, "Grüße, 世界");
}

#[test]
fn mapping_is_bounded_in_length_and_count() {
    let mapping = ClaimMapping { keep: paths(&["kept"]), ..ClaimMapping::default() };
    assert_eq!(identity(&mapping, json!({"sub": "s".repeat(1024)})).unwrap().subject.len(), 1024);
    assert_eq!(fault(&mapping, json!({"sub": "s".repeat(1025)})), ("sub".into(), ClaimFault::TooLong));
    let many = |n: usize| (0..n).map(|i| Value::from(i.to_string())).collect::<Vec<_>>();
    for name in ["groups", "scope", "kept"] {
        assert!(identity(&mapping, json!({name: many(512)})).is_ok(), "{name}");
        assert_eq!(fault(&mapping, json!({name: many(513)})), (name.into(), ClaimFault::TooMany));
    }
}

fn certificate<'a>(fields: &[(CertificateField, &'a str)]) -> CertificateIdentity<'a> {
    CertificateIdentity {
        fields: fields.iter().map(|(field, value)| (*field, Cow::Borrowed(*value))).collect(),
        not_before: Timestamp::from_secs(10),
        not_after: Timestamp::from_secs(20),
    }
}

const SERVICE: [(CertificateField, &str); 8] = [
    (CertificateField::SubjectDn, "CN=svc,OU=a,OU=b,O=x"),
    (CertificateField::SubjectCn, "svc"),
    (CertificateField::SubjectOu, "a"),
    (CertificateField::SubjectOu, "b"),
    (CertificateField::SubjectO, "x"),
    (CertificateField::SanUri, "spiffe://x.example/svc"),
    (CertificateField::SanDns, "svc.x.example"),
    (CertificateField::SanEmail, "svc@x.example"),
];

#[test]
fn certificates_map_the_configured_subject() {
    for (field, expected) in [
        (CertificateField::SanUri, "spiffe://x.example/svc"),
        (CertificateField::SanDns, "svc.x.example"),
        (CertificateField::SanEmail, "svc@x.example"),
        (CertificateField::SubjectCn, "svc"),
        (CertificateField::SubjectDn, "CN=svc,OU=a,OU=b,O=x"),
    ] {
        let mapping = CertificateMapping::new("mesh", field)
            .unwrap()
            .with_user(CertificateField::SubjectCn)
            .with_groups(vec![CertificateField::SubjectO, CertificateField::SubjectOu])
            .with_kept(vec![CertificateField::SanUri, CertificateField::IssuerDn, CertificateField::SanDns]);
        let facts = mapping.facts(&certificate(&SERVICE)).unwrap();
        assert_eq!((facts.not_before, facts.expires), (Timestamp::from_secs(10), Timestamp::from_secs(20)));
        let Facts { identity, .. } = facts;
        assert_eq!(identity.kind, CredentialKind::Certificate);
        assert_eq!(
            (&*identity.issuer, &*identity.subject, identity.display_name()),
            ("mesh", expected, "svc")
        );
        assert_eq!(identity.email.as_deref(), Some("svc@x.example"));
        assert_eq!(list(&identity.groups), ["x", "a", "b"]);
        assert_eq!(list(identity.claim("san_uri")), ["spiffe://x.example/svc"]);
        assert_eq!(list(identity.claim("san_dns")), ["svc.x.example"]);
        assert_eq!(list(identity.claim("issuer_dn")), [""; 0]);
    }
}

#[test]
fn certificates_without_one_clear_subject_are_refused() {
    let mapping = CertificateMapping::new("mesh", CertificateField::SanDns).unwrap();
    let fault = |fields: &[(CertificateField, &str)]| mapping.facts(&certificate(fields)).unwrap_err().fault;
    assert_eq!(fault(&[]), ClaimFault::Missing);
    assert_eq!(fault(&[(CertificateField::SubjectCn, "svc")]), ClaimFault::Missing);
    assert_eq!(fault(&[(CertificateField::SanDns, "")]), ClaimFault::Missing);
    let two = [(CertificateField::SanDns, "a.example"), (CertificateField::SanDns, "b.example")];
    assert_eq!(fault(&two), ClaimFault::Ambiguous);
    assert_eq!(fault(&[(CertificateField::SanDns, "a.example\0.evil.example")]), ClaimFault::Control);
    assert_eq!(fault(&[(CertificateField::SanDns, "a.example ")]), ClaimFault::Padded);
    let bad_email = [(CertificateField::SanDns, "a.example"), (CertificateField::SanEmail, "a@b@c")];
    assert_eq!(fault(&bad_email), ClaimFault::NotAnAddress);
    for shared in [CertificateField::IssuerDn, CertificateField::SubjectO, CertificateField::SubjectOu] {
        let refused = CertificateMapping::new("mesh", shared);
        assert_eq!(refused.err(), Some(CertificateMappingError::NotASubject(shared.as_str())));
    }
    let unnamed = CertificateMapping::new("", CertificateField::SanDns);
    assert_eq!(unnamed.err(), Some(CertificateMappingError::NoName));
}

#[test]
fn certificates_with_several_addresses_have_none() {
    let mapping = CertificateMapping::new("mesh", CertificateField::SubjectCn).unwrap();
    let fields = [
        (CertificateField::SubjectCn, "svc"),
        (CertificateField::SanEmail, "a@x.example"),
        (CertificateField::SanEmail, "b@x.example"),
    ];
    assert_eq!(mapping.facts(&certificate(&fields)).unwrap().identity.email, None);
}
