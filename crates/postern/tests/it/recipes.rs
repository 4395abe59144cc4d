//! Recipes: the configuration of each provider's page serves a request with a token in the shape of
//! that provider, and refuses one that its rule does not allow.

use std::path::Path;

use dataplane::harness::{Fixture, Issuer, Upstream};
use dataplane::issuer::now;
use serde_json::json;
use toml::{Table, Value};

use crate::support::repository;

/// The first whole configuration of a page. Keys come from a file, listener and upstream are those of
/// the test, and people do not sign in: their part is checked with all other documents.
fn configuration(page: &Path, upstream: &Upstream) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut whole = blocks.filter(|block| block.contains("[[listener]]") && block.contains("[[route]]"));
    let mut file: Table = whole.next().expect("a whole configuration").parse().unwrap();
    file.remove("login");
    let known: Vec<Value> =
        file["issuer"].as_array().unwrap().iter().map(|issuer| issuer["name"].clone()).collect();
    for route in file["route"].as_array_mut().unwrap() {
        route.as_table_mut().unwrap().remove("login");
        let rules = route["policy"]["allow"].as_array_mut().unwrap();
        // Rules for people who sign in name their provider.
        rules.retain(|rule| rule["issuers"].as_array().unwrap().iter().any(|name| known.contains(name)));
    }
    for issuer in file["issuer"].as_array_mut().unwrap() {
        let issuer = issuer.as_table_mut().unwrap();
        issuer.remove("ca");
        issuer.insert("jwks_file".into(), "jwks.json".into());
    }
    let own = "[server]\nworkers = 1\n[admin]\nenabled = false\n[access_log]\nformat = \"off\"\n\
               [[listener]]\nname = \"test\"\naddress = \"127.0.0.1:0\"\n";
    file.extend(own.parse::<Table>().unwrap());
    file["upstream"][0]["endpoints"][0] = format!("http://{}", upstream.address).into();
    toml::to_string(&file).unwrap()
}

/// Serves a page's configuration, and returns the status for a token with this type and these claims,
/// and with these claims changed.
fn statuses(
    page: &str,
    typ: Option<&str>,
    claims: &serde_json::Value,
    changed: &serde_json::Value,
) -> (u16, u16) {
    let (dir, issuer, upstream) = (tempfile::tempdir().unwrap(), Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    let path = repository().join("docs").join(page);
    let text = configuration(&path, &upstream);
    let f = Fixture::from_text(dir, issuer, upstream, &text);
    let status = |changes: &serde_json::Value| {
        let mut claims = claims.clone();
        claims["iat"] = now().into();
        claims["exp"] = (now() + 600).into();
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let header: Vec<_> = typ.map(|typ| ("typ", typ)).into_iter().collect();
        let token = f.issuer.signer.sign(&header, &claims).unwrap();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: orders.example\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
        );
        f.send(request).status
    };
    (status(&json!({})), status(changed))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn a_token_of_each_provider_passes_with_the_configuration_of_its_page() {
    let tenant = "8f1d9c2e-0000-4000-8000-00000000000a";
    let entra = format!("https://login.microsoftonline.com/{tenant}/v2.0");
    let project_roles = "urn:zitadel:iam:org:project:283:roles";
    let cases = [
        (
            "providers/entra-id.md",
            Some("JWT"),
            json!({
                "iss": entra, "aud": "11111111-2222-3333-4444-555555555555", "sub": "AAAA", "tid": tenant, "ver": "2.0",
                "azp": "web", "scp": "orders.read", "groups": ["0d5a4e0c-1111-4222-8333-944455556666"],
            }),
            json!({"groups": []}),
        ),
        (
            "providers/okta.md",
            None,
            json!({
                "ver": 1, "jti": "AT.1", "iss": "https://company.okta.com/oauth2/default", "aud": "api://default",
                "cid": "0oa1", "uid": "00u1", "scp": ["openid"], "sub": "ada@company.example", "groups": ["orders-staff"],
            }),
            json!({"groups": ["Everyone"]}),
        ),
        (
            "providers/google.md",
            Some("JWT"),
            json!({
                "iss": "https://accounts.google.com", "azp": "1", "aud": "https://orders.example", "sub": "110",
                "email": "robot@project.iam.gserviceaccount.com", "email_verified": true, "at_hash": "HK6E",
            }),
            json!({"email_verified": false}),
        ),
        (
            "providers/cognito.md",
            None,
            json!({
                "iss": "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_example", "sub": "a", "token_use": "access",
                "scope": "orders/write", "client_id": "7client", "username": "ada", "cognito:groups": ["staff"], "version": 2,
            }),
            json!({"cognito:groups": ["guests"]}),
        ),
        (
            "providers/dex.md",
            None,
            json!({
                "iss": "https://dex.example", "sub": "CgNhZGE", "aud": "orders", "at_hash": "x", "groups": ["dev"], "name": "ada",
            }),
            json!({"groups": ["ops"]}),
        ),
        (
            "providers/auth0.md",
            Some("at+jwt"),
            json!({
                "iss": "https://company.eu.auth0.com/", "sub": "auth0|1", "aud": ["https://orders.example"], "azp": "c1",
                "scope": "openid", "permissions": [], "https://orders.example/roles": ["admin"],
            }),
            json!({"https://orders.example/roles": ["guest"]}),
        ),
        (
            "providers/zitadel.md",
            Some("at+jwt"),
            json!({
                "iss": "https://company.zitadel.cloud", "sub": "1", "aud": ["2@orders", "283"], "client_id": "2@orders",
                "jti": "j", project_roles: {"admin": {"1": "company.example"}},
            }),
            json!({project_roles: {"reader": {"1": "company.example"}}}),
        ),
        (
            "providers/gitlab.md",
            Some("JWT"),
            json!({
                "iss": "https://gitlab.example", "aud": "https://orders.example", "sub": "project_path:team/app", "jti": "j",
                "namespace_path": "team", "project_path": "team/app", "user_login": "ada", "ref_protected": "true",
            }),
            json!({"ref_protected": "false"}),
        ),
        (
            "providers/apple.md",
            None,
            json!({
                "iss": "https://appleid.apple.com", "aud": "example.orders.app", "sub": "001234.abcd.0123", "nonce": "n",
                "c_hash": "c", "email": "a@privaterelay.appleid.com", "email_verified": "true",
            }),
            json!({"sub": "000000.abcd.0123"}),
        ),
        (
            "providers/kubernetes.md",
            None,
            json!({
                "iss": "https://kubernetes.default.svc.cluster.local", "aud": ["https://orders.example"],
                "sub": "system:serviceaccount:shop:checkout", "jti": "j",
                "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "checkout", "uid": "u"}},
            }),
            json!({"sub": "system:serviceaccount:shop:other"}),
        ),
    ];
    let pages = std::fs::read_dir(repository().join("docs/providers")).unwrap().count();
    assert_eq!(pages, cases.len(), "each page has a token here");
    for (page, typ, claims, changed) in cases {
        assert_eq!(statuses(page, typ, &claims, &changed), (200, 403), "{page}");
    }
}
