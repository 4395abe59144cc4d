//! security: tokens from a client's view: challenges, and never a byte to the upstream.

use serde_json::json;

use dataplane::harness::{Fixture, Issuer, Setup, Upstream, now};
use dataplane::ports::free;

fn with_token(f: &Fixture, token: &str) -> dataplane::harness::Response {
    f.send(format!("GET / HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n"))
}

#[test]
fn tokens_without_credentials_the_challenge_has_no_error() {
    let f = Fixture::new();
    let response = f.send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(
        (response.status, response.value("www-authenticate")),
        (401, Some("Bearer realm=\"postern\""))
    );
    // Another scheme is no credential for the gateway.
    let response = f.send("GET / HTTP/1.1\r\nHost: app.test\r\nAuthorization: Basic eDp5\r\n\r\n");
    assert_eq!(
        (response.status, response.value("www-authenticate")),
        (401, Some("Bearer realm=\"postern\""))
    );
}

#[test]
fn tokens_that_do_not_hold_are_401_invalid_token() {
    let f = Fixture::new();
    let mut bad = vec![
        "garbage".to_owned(),
        f.issuer.token(|c| c["exp"] = json!(now() - 120)),
        f.issuer.token(|c| c["exp"] = json!("tomorrow")),
        f.issuer.token(|c| {
            c.as_object_mut().unwrap().remove("exp");
        }),
        f.issuer.token(|c| c["nbf"] = json!(now() + 600)),
        f.issuer.token(|c| c["aud"] = json!("other")),
        f.issuer.token(|c| {
            c.as_object_mut().unwrap().remove("aud");
        }),
        f.issuer.token(|c| c["iss"] = json!("https://issuer.test/")),
        Issuer::new().token(|_| {}),
    ];
    let good = f.issuer.token(|_| {});
    bad.push(format!("{}x", &good[..good.len() - 1]));
    bad.push(good.rsplit_once('.').unwrap().0.to_owned() + ".");
    for token in bad {
        for _ in 0..2 {
            let response = with_token(&f, &token);
            assert_eq!(response.status, 401, "{token}: {}", response.head);
            let challenge = response.value("www-authenticate").unwrap();
            assert!(
                challenge.starts_with("Bearer realm=\"postern\", error=\"invalid_token\""),
                "{challenge}"
            );
        }
    }
    assert!(f.upstream.seen().is_empty());
    assert_eq!(with_token(&f, &good).status, 200);
}

#[test]
fn tokens_ride_one_way_only() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    for (line, fields) in [
        (format!("/?access_token={token}"), String::new()),
        (format!("/?access_token={token}"), format!("Authorization: Bearer {token}\r\n")),
        ("/".into(), format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n")),
        ("/".into(), "Authorization: Bearer\r\n".into()),
        ("/".into(), "Authorization: Bearer a b\r\n".into()),
    ] {
        let response = f.send(format!("GET {line} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n"));
        assert_eq!(response.status, 400, "{line} {fields}: {}", response.head);
        assert!(response.value("www-authenticate").unwrap().contains("error=\"invalid_request\""));
    }
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn tokens_missing_scope_is_403_and_named() {
    let setup = Setup {
        more: r#"
[[route]]
name = "writes"
path = { prefix = "/writes" }
upstream = "backend"
policy = { allow = [{ groups = { any = ["dev"] }, scopes = { all = ["write"] } }] }
[[route]]
name = "admins"
path = { prefix = "/admins" }
upstream = "backend"
policy = { allow = [{ groups = { any = ["admins"] } }], deny = [{ users = ["mallory"] }] }
"#
        .into(),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    let response = f.get("/writes");
    assert_eq!(response.status, 403);
    let challenge = response.value("www-authenticate").unwrap();
    assert!(
        challenge.contains("error=\"insufficient_scope\"") && challenge.contains("scope=\"write\""),
        "{challenge}"
    );
    let response = f.get("/admins");
    assert_eq!((response.status, response.value("www-authenticate")), (403, None));
    assert!(!response.text().contains("admins"), "rules stay inside: {}", response.text());
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn tokens_expired_means_now_at_or_after_exp_also_when_cached() {
    let f = Fixture::new();
    // Valid for five more seconds, including the default skew of the issuer.
    let token = f.issuer.token(|c| c["exp"] = json!(now() - 25));
    let first = with_token(&f, &token);
    assert_eq!(first.status, 200, "within the skew: {}", first.head);
    let deadline = std::time::Instant::now() + dataplane::harness::PATIENCE;
    while with_token(&f, &token).status == 200 {
        assert!(std::time::Instant::now() < deadline, "a cached fact ends with its token");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn tokens_auth_dependency_down_is_503_with_retry_after() {
    let dir = tempfile::tempdir().unwrap();
    let issuer = Issuer::new();
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let upstream = Upstream::start();
    let dead = free();
    let text = Setup::default().file(dir.path(), upstream.address).replace(
        &format!("jwks_file = \"{}\"", dir.path().join("jwks.json").display()),
        &format!("jwks_uri = \"https://{dead}/jwks\""),
    );
    let f = Fixture::from_text(dir, issuer, upstream, &text);
    let response = f.get("/");
    assert_eq!(response.status, 503, "{}", response.head);
    assert!(response.value("retry-after").is_some() && response.value("www-authenticate").is_none());
    assert!(response.text().contains("auth_unavailable"));
    assert!(f.upstream.seen().is_empty());
    // A request that needs no authority is served.
    assert_eq!(f.send("GET /open HTTP/1.1\r\nHost: app.test\r\n\r\n").status, 200);
}

#[test]
fn tokens_the_signed_assertion_reaches_the_upstream_and_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let signer = auth::token::jws::Signer::generate(auth::token::jws::SigningAlgorithm::Es256).unwrap();
    let key = dir.path().join("assertion.pem");
    std::fs::write(&key, signer.to_pkcs8_pem().unwrap().as_ref()).unwrap();
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let setup = Setup {
        more: format!("[assertion]\nkey = \"{}\"\nissuer = \"https://gateway.test\"\n", key.display()),
        ..Setup::default()
    };
    let f = Fixture::with(setup, Upstream::start());
    assert_eq!(f.get("/").status, 200);
    let seen = f.upstream.only();
    let assertion = seen.values("x-postern-assertion")[0].to_owned();
    let jwks = f.send("GET /.well-known/postern/jwks.json HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!((jwks.status, jwks.value("content-type")), (200, Some("application/jwk-set+json")));
    let (keys, skipped) = auth::keyset::KeySet::from_jwks_json(&jwks.body).unwrap();
    assert!(skipped.is_empty());
    let unverified = auth::token::jwt::parse(assertion.as_bytes()).unwrap();
    assert_eq!(unverified.issuer(), "https://gateway.test");
    let config =
        auth::token::IssuerConfig::new("gateway", "https://gateway.test", vec!["backend".into()]).unwrap();
    let facts = unverified.verify(&config, &keys, auth::time::Timestamp::from_secs(now()));
    assert!(facts.is_ok() || format!("{facts:?}").contains("WrongType"), "{facts:?}");
}
