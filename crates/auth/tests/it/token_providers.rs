//! Tokens in the shape of each provider: what its issuer's entry must say so that they are accepted,
//! what identity they give, and that nothing more is accepted without the key that says so.

use auth::algorithm::Algorithm;
use auth::identity::Identity;
use auth::mapping::ClaimMapping;
use auth::time::Timestamp;
use auth::token::{IssuerConfig, Tenants, TokenTypes};
use auth::token_error::{ClaimError, ClaimFault, TokenError};
use serde_json::{Value, json};

use crate::token_support::*;

/// When all of these tokens are valid: the `NOW` of the other tests.
const ISSUED: u64 = 1_799_999_990;
const EXPIRES: u64 = 1_800_003_600;

const TENANT_A: &str = "8f1d9c2e-0000-4000-8000-00000000000a";
const TENANT_B: &str = "8f1d9c2e-0000-4000-8000-00000000000b";

fn issuer(iss: &str, audience: &str) -> IssuerConfig {
    IssuerConfig::new("main", iss, vec![audience.into()]).unwrap()
}

/// The claims with the times of a valid token.
fn timed(mut claims: Value) -> Value {
    claims["iat"] = ISSUED.into();
    claims["exp"] = EXPIRES.into();
    claims
}

/// Verifies a token with this `typ` and these claims.
fn verify(typ: Option<&str>, claims: Value, config: &IssuerConfig) -> Result<Identity, TokenError> {
    let mut header = json!({"alg": "RS256", "kid": "rsa"});
    if let Some(typ) = typ {
        header["typ"] = typ.into();
    }
    let token = ISSUER_KEYS.token(Algorithm::Rs256, &header.to_string(), &timed(claims).to_string());
    verify_at(&token, config, &ISSUER_KEYS.set(), NOW).map(|facts| facts.identity)
}

fn paths(texts: &[&str]) -> Vec<auth::mapping::ClaimPath> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn texts(list: &[Box<str>]) -> Vec<&str> {
    list.iter().map(|text| &**text).collect()
}

#[test]
fn providers_keycloak() {
    let config = issuer("https://id.example/realms/main", "orders").with_mapping(ClaimMapping {
        groups: paths(&["groups", "realm_access.roles", "resource_access.orders.roles"]),
        ..ClaimMapping::default()
    });
    let access = json!({
        "iss": "https://id.example/realms/main", "aud": ["orders", "account"], "sub": "f:1:ada", "typ": "Bearer",
        "azp": "shop", "sid": "s", "acr": "1", "allowed-origins": ["https://app.example"],
        "realm_access": {"roles": ["offline_access", "staff"]}, "resource_access": {"orders": {"roles": ["writer"]}},
        "scope": "openid profile email", "email_verified": true, "preferred_username": "ada", "email": "ada@x.example",
    });
    let found = verify(Some("JWT"), access.clone(), &config).unwrap();
    assert_eq!(found.user.as_deref(), Some("ada"));
    assert_eq!(found.client.as_deref(), Some("shop"));
    assert_eq!(texts(&found.groups), ["offline_access", "staff", "writer"]);
    for kind in ["ID", "Refresh", "Offline", "Logout"] {
        let mut other = access.clone();
        other["typ"] = kind.into();
        assert_eq!(verify(Some("JWT"), other, &config), Err(TokenError::NotAnAccessToken("typ")), "{kind}");
    }
}

#[test]
fn providers_entra_of_one_tenant() {
    let version_2 = format!("https://login.microsoftonline.com/{TENANT_A}/v2.0");
    let config = issuer(&version_2, "api-client");
    let claims = json!({
        "iss": version_2, "aud": "api-client", "sub": "AAAA", "oid": "o-1", "tid": TENANT_A, "ver": "2.0", "azp": "web",
        "azpacr": "1", "scp": "orders.read", "preferred_username": "ada@x.example", "roles": ["Writer"], "uti": "u", "aio": "x",
        "rh": "0.A", "nbf": ISSUED,
    });
    let found = verify(Some("JWT"), claims, &config).unwrap();
    assert_eq!((&*found.subject, texts(&found.scopes)), ("AAAA", vec!["orders.read"]));
    // Version 1 has its own issuer, and names the client in `appid`.
    let version_1 = format!("https://sts.windows.net/{TENANT_A}/");
    let config = issuer(&version_1, "api://api-client").with_mapping(ClaimMapping {
        client: paths(&["appid", "azp"]),
        user: paths(&["upn", "unique_name"]),
        ..ClaimMapping::default()
    });
    let claims = json!({
        "iss": version_1, "aud": "api://api-client", "sub": "AAAA", "oid": "o-1", "tid": TENANT_A, "ver": "1.0",
        "appid": "web", "appidacr": "1", "scp": "orders.read", "upn": "ada@x.example", "unique_name": "ada@x.example",
    });
    let found = verify(Some("JWT"), claims, &config).unwrap();
    assert_eq!((found.client.as_deref(), found.user.as_deref()), (Some("web"), Some("ada@x.example")));
}

#[test]
fn providers_entra_of_many_tenants() {
    for pattern in
        ["https://login.microsoftonline.com/{tenantid}/v2.0", "https://sts.windows.net/{tenantid}/"]
    {
        let token = |named: &str, tid: Value| json!({"iss": pattern.replace("{tenantid}", named), "aud": "api", "sub": "AAAA", "tid": tid});
        let listed = issuer(pattern, "api").with_tenants(Tenants::Listed(vec![TENANT_A.into()]));
        let any = issuer(pattern, "api").with_tenants(Tenants::Any);
        let none = issuer(pattern, "api");
        let verified = |config, named, tid| verify(Some("JWT"), token(named, tid), config).map(drop);
        assert_eq!(verified(&listed, TENANT_A, json!(TENANT_A)), Ok(()));
        assert_eq!(verified(&any, TENANT_A, json!(TENANT_A)), Ok(()));
        assert_eq!(verified(&any, TENANT_B, json!(TENANT_B)), Ok(()));
        assert_eq!(verified(&listed, TENANT_B, json!(TENANT_B)), Err(TokenError::WrongIssuer));
        assert_eq!(verified(&none, TENANT_A, json!(TENANT_A)), Err(TokenError::WrongIssuer));
        // All tenants share the keys: a token must be of the tenant that its issuer names.
        let tid = |fault| Err(TokenError::Claim(ClaimError { claim: "tid".into(), fault }));
        assert_eq!(verified(&any, TENANT_A, json!(TENANT_B)), tid(ClaimFault::Contradicts("iss")));
        assert_eq!(verified(&listed, TENANT_A, json!(TENANT_B)), tid(ClaimFault::Contradicts("iss")));
        assert_eq!(verified(&any, TENANT_A, json!(["a"])), tid(ClaimFault::NotA("a string")));
        let mut without = token(TENANT_A, json!(TENANT_A));
        without.as_object_mut().unwrap().remove("tid");
        assert_eq!(verify(Some("JWT"), without, &any).map(drop), tid(ClaimFault::Missing));
        for strange in ["", "a/b", "a.b", "{tenantid}", "%61", "ä"] {
            assert_eq!(verified(&any, strange, json!(strange)), Err(TokenError::WrongIssuer), "{strange}");
        }
    }
}

#[test]
fn providers_okta() {
    let config =
        issuer("https://x.okta.example/oauth2/default", "api://default").with_types(TokenTypes::Untyped);
    let claims = json!({
        "ver": 1, "jti": "AT.1", "iss": "https://x.okta.example/oauth2/default", "aud": "api://default", "cid": "0oa1",
        "uid": "00u1", "scp": ["openid", "orders.read"], "auth_time": ISSUED, "sub": "ada@x.example", "groups": ["Everyone"],
    });
    let found = verify(None, claims, &config).unwrap();
    assert_eq!(
        (texts(&found.scopes), texts(&found.groups)),
        (vec!["openid", "orders.read"], vec!["Everyone"])
    );
}

/// Its access tokens are opaque: only its ID tokens can be verified.
#[test]
fn providers_google() {
    let claims = json!({
        "iss": "https://accounts.google.com", "azp": "1.apps.example", "aud": "1.apps.example", "sub": "110", "hd": "x.example",
        "email": "ada@x.example", "email_verified": true, "at_hash": "HK6E", "nonce": "n", "name": "Ada",
    });
    let config = issuer("https://accounts.google.com", "1.apps.example");
    assert_eq!(verify(Some("JWT"), claims.clone(), &config), Err(TokenError::NotAnAccessToken("at_hash")));
    let found = verify(Some("JWT"), claims, &config.with_id_tokens()).unwrap();
    assert_eq!((&*found.subject, found.email.as_deref()), ("110", Some("ada@x.example")));
}

#[test]
fn providers_cognito() {
    let iss = "https://cognito-idp.eu-west-1.amazonaws.example/eu-west-1_x";
    let access = json!({
        "iss": iss, "sub": "aaaa", "token_use": "access", "scope": "orders/read", "auth_time": ISSUED, "jti": "j",
        "client_id": "7client", "username": "ada", "cognito:groups": ["staff"], "version": 2,
    });
    let mapping = ClaimMapping {
        user: paths(&["username", "cognito:username"]),
        groups: paths(&["cognito:groups"]),
        ..ClaimMapping::default()
    };
    let config = issuer(iss, "7client").with_types(TokenTypes::Untyped).with_mapping(mapping);
    let missing = TokenError::Claim(ClaimError { claim: "aud".into(), fault: ClaimFault::Missing });
    assert_eq!(verify(None, access.clone(), &config), Err(missing));
    let config = config.with_audience_claim("client_id");
    let found = verify(None, access.clone(), &config).unwrap();
    assert_eq!((found.user.as_deref(), texts(&found.groups)), (Some("ada"), vec!["staff"]));
    let mut other = access.clone();
    other["client_id"] = "8other".into();
    assert_eq!(verify(None, other, &config), Err(TokenError::WrongAudience));
    let mut list = access.clone();
    list["client_id"] = json!(["7client", 1]);
    let fault = ClaimFault::NotA("a string or an array of strings");
    assert_eq!(
        verify(None, list, &config),
        Err(TokenError::Claim(ClaimError { claim: "client_id".into(), fault }))
    );
    // Its ID token has an audience, and says that it is none for services.
    let id =
        json!({"iss": iss, "sub": "aaaa", "token_use": "id", "aud": "7client", "cognito:username": "ada"});
    let plain = issuer(iss, "7client").with_types(TokenTypes::Untyped);
    assert_eq!(verify(None, id.clone(), &plain), Err(TokenError::NotAnAccessToken("token_use")));
    assert_eq!(verify(None, id, &plain.with_id_tokens()).map(drop), Ok(()));
}

#[test]
fn providers_dex() {
    let access = json!({
        "iss": "https://dex.example", "sub": "CgNhZGE", "aud": "kubernetes", "at_hash": "x", "email": "ada@x.example",
        "email_verified": true, "groups": ["dev"], "name": "ada", "nonce": "n",
    });
    let config = issuer("https://dex.example", "kubernetes").with_types(TokenTypes::Untyped);
    assert_eq!(verify(None, access.clone(), &config), Err(TokenError::NotAnAccessToken("at_hash")));
    let found = verify(None, access, &config.with_id_tokens()).unwrap();
    assert_eq!(texts(&found.groups), ["dev"]);
}

#[test]
fn providers_auth0() {
    let config = issuer("https://x.auth0.example/", "https://api.example").with_mapping(ClaimMapping {
        groups: paths(&["permissions", "/https:~1~1app.example~1roles"]),
        ..ClaimMapping::default()
    });
    let claims = json!({
        "iss": "https://x.auth0.example/", "sub": "auth0|1", "aud": ["https://api.example", "https://x.auth0.example/userinfo"],
        "azp": "c1", "scope": "openid read:orders", "permissions": ["read:orders"], "https://app.example/roles": ["admin"],
    });
    for typ in ["JWT", "at+jwt"] {
        let found = verify(Some(typ), claims.clone(), &config).unwrap();
        assert_eq!(texts(&found.groups), ["read:orders", "admin"], "{typ}");
    }
}

#[test]
fn providers_zitadel() {
    let config = issuer("https://x.zitadel.example", "2@orders").with_mapping(ClaimMapping {
        groups: paths(&["urn:zitadel:iam:org:project:roles"]),
        ..ClaimMapping::default()
    });
    let claims = json!({
        "iss": "https://x.zitadel.example", "sub": "1", "aud": ["2@orders", "3"], "client_id": "2@orders", "jti": "j",
        "urn:zitadel:iam:org:project:roles": {"admin": {"1": "x.example"}, "reader": {"1": "x.example", "2": "y.example"}},
    });
    let found = verify(Some("at+jwt"), claims, &config).unwrap();
    assert_eq!(texts(&found.groups), ["admin", "reader"]);
}

/// `OpenShift`'s own users have opaque tokens (`sha256~…`); its service accounts have those of
/// Kubernetes.
#[test]
fn providers_kubernetes_and_openshift_service_accounts() {
    for iss in ["https://kubernetes.default.svc.cluster.local", "https://kubernetes.default.svc"] {
        let config = issuer(iss, "postern").with_types(TokenTypes::Untyped);
        let claims = json!({
            "iss": iss, "aud": ["postern"], "sub": "system:serviceaccount:team-a:runner", "nbf": ISSUED, "jti": "j",
            "kubernetes.io": {"namespace": "team-a", "serviceaccount": {"name": "runner", "uid": "u"}, "pod": {"name": "p", "uid": "v"}},
        });
        let found = verify(None, claims, &config).unwrap();
        assert_eq!(&*found.subject, "system:serviceaccount:team-a:runner");
    }
}

/// The ID tokens of its CI jobs.
#[test]
fn providers_gitlab() {
    let config = issuer("https://gitlab.example", "https://orders.example").with_mapping(ClaimMapping {
        user: paths(&["user_login"]),
        groups: paths(&["groups_direct", "namespace_path"]),
        keep: paths(&["ref_protected", "project_path"]),
        ..ClaimMapping::default()
    });
    let claims = json!({
        "iss": "https://gitlab.example", "aud": "https://orders.example", "sub": "project_path:team/app:ref_type:branch:ref:main",
        "namespace_id": "72", "namespace_path": "team", "project_path": "team/app", "user_id": "1", "user_login": "ada", "jti": "j",
        "user_email": "ada@x.example", "pipeline_id": "574", "job_id": "302", "ref": "main", "ref_type": "branch",
        "ref_protected": "true", "nbf": ISSUED,
    });
    let found = verify(Some("JWT"), claims, &config).unwrap();
    assert_eq!((found.user.as_deref(), texts(&found.groups)), (Some("ada"), vec!["team"]));
    assert_eq!(texts(found.claim("ref_protected")), ["true"]);
}

/// It issues ID tokens only, without `typ`.
#[test]
fn providers_apple() {
    let claims = json!({
        "iss": "https://appleid.apple.com", "aud": "com.example.app", "sub": "001.a", "nonce": "n", "c_hash": "c",
        "email": "a@privaterelay.example", "email_verified": "true", "is_private_email": "true", "auth_time": ISSUED,
        "nonce_supported": true,
    });
    let config = issuer("https://appleid.apple.com", "com.example.app").with_types(TokenTypes::Untyped);
    assert_eq!(verify(None, claims.clone(), &config), Err(TokenError::NotAnAccessToken("c_hash")));
    let found = verify(None, claims, &config.with_id_tokens()).unwrap();
    assert_eq!(&*found.subject, "001.a");
}

#[test]
fn providers_id_tokens_do_not_let_other_kinds_in() {
    let config = issuer(ISSUER, AUDIENCE).with_id_tokens();
    let plain = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "u"});
    assert_eq!(verify(Some("JWT"), plain.clone(), &config).map(drop), Ok(()));
    for (name, value, error) in [
        ("events", json!({}), TokenError::NotAnAccessToken("events")),
        ("response_type", json!("code"), TokenError::NotAnAccessToken("response_type")),
        ("typ", json!("Refresh"), TokenError::NotAnAccessToken("typ")),
        ("typ", json!("Logout"), TokenError::NotAnAccessToken("typ")),
        ("token_use", json!("refresh"), TokenError::NotAnAccessToken("token_use")),
        ("cnf", json!({}), TokenError::SenderConstrained),
        ("aud", json!("other"), TokenError::WrongAudience),
    ] {
        let mut claims = plain.clone();
        claims[name] = value;
        assert_eq!(verify(Some("JWT"), claims, &config).map(drop), Err(error), "{name}");
    }
    for typ in ["logout+jwt", "secevent+jwt", "oauth-authz-req+jwt", "dpop+jwt"] {
        assert_eq!(verify(Some(typ), plain.clone(), &config).map(drop), Err(TokenError::WrongType), "{typ}");
    }
    assert!(Timestamp::from_secs(ISSUED) < NOW && NOW < Timestamp::from_secs(EXPIRES));
}
