//! Discovery: the documents with which clients and resource servers find the provider.

use crate::{server::Server, wire};

/// Documents are compared as text: members and their order are the contract.
fn expected_oauth(issuer: &str) -> String {
    [
        r#"{"issuer":"ISSUER","#,
        r#""authorization_endpoint":"ISSUER/authorize","#,
        r#""token_endpoint":"ISSUER/token","#,
        r#""jwks_uri":"ISSUER/jwks","#,
        r#""introspection_endpoint":"ISSUER/introspect","#,
        r#""revocation_endpoint":"ISSUER/revoke","#,
        r#""device_authorization_endpoint":"ISSUER/device_authorization","#,
        r#""pushed_authorization_request_endpoint":"ISSUER/par","#,
        r#""require_pushed_authorization_requests":false,"#,
        r#""scopes_supported":["openid","profile","email","address","phone","groups","offline_access"],"#,
        r#""response_types_supported":["code"],"#,
        r#""response_modes_supported":["query","fragment","form_post"],"#,
        r#""grant_types_supported":["authorization_code","refresh_token","client_credentials","#,
        r#""urn:ietf:params:oauth:grant-type:device_code"],"#,
        r#""token_endpoint_auth_methods_supported":"#,
        r#"["client_secret_basic","client_secret_post","private_key_jwt","none"],"#,
        r#""token_endpoint_auth_signing_alg_values_supported":"#,
        r#"["RS256","RS384","RS512","PS256","PS384","PS512","ES256","ES384","ES512","EdDSA"],"#,
        r#""introspection_endpoint_auth_methods_supported":"#,
        r#"["client_secret_basic","client_secret_post","private_key_jwt"],"#,
        r#""introspection_signing_alg_values_supported":["ES256"],"#,
        r#""revocation_endpoint_auth_methods_supported":"#,
        r#"["client_secret_basic","client_secret_post","private_key_jwt","none"],"#,
        r#""code_challenge_methods_supported":["S256"],"#,
        r#""authorization_response_iss_parameter_supported":true,"#,
        r#""ui_locales_supported":["en","de"]}"#,
    ]
    .concat()
    .replace("ISSUER", issuer)
}

fn expected_openid(issuer: &str) -> String {
    let oauth = expected_oauth(issuer);
    let openid = [
        r#","userinfo_endpoint":"ISSUER/userinfo","end_session_endpoint":"ISSUER/logout","#,
        r#""subject_types_supported":["public","pairwise"],"id_token_signing_alg_values_supported":["ES256","RS256"],"#,
        r#""userinfo_signing_alg_values_supported":["ES256","RS256"],"acr_values_supported":["1"],"#,
        r#""claim_types_supported":["normal"],"#,
        r#""claims_supported":["sub","name","family_name","given_name","middle_name","nickname","#,
        r#""preferred_username","profile","picture","website","gender","birthdate","zoneinfo","locale","#,
        r#""updated_at","address","phone_number","phone_number_verified","email","email_verified","groups","#,
        r#""iss","aud","exp","iat","auth_time","nonce","acr","amr","sid","read_at"],"#,
        r#""claims_parameter_supported":true,"request_parameter_supported":false,"#,
        r#""request_uri_parameter_supported":false,"backchannel_logout_supported":true,"#,
        r#""backchannel_logout_session_supported":true}"#,
    ]
    .concat()
    .replace("ISSUER", issuer);
    oauth.strip_suffix('}').unwrap().to_owned() + &openid
}

#[tokio::test]
async fn documents_say_what_is_there() {
    let server = Server::start().await;
    let openid = server.get("/.well-known/openid-configuration").await;
    assert_eq!((openid.status, openid.field("content-type")), (200, Some("application/json")));
    assert_eq!(openid.field("cache-control"), Some("public, max-age=300"));
    assert_eq!(String::from_utf8(openid.body).unwrap(), expected_openid(&server.issuer));
    let oauth = server.get("/.well-known/oauth-authorization-server").await;
    assert_eq!((oauth.status, oauth.field("content-type")), (200, Some("application/json")));
    assert_eq!(oauth.field("cache-control"), Some("public, max-age=300"));
    assert_eq!(String::from_utf8(oauth.body).unwrap(), expected_oauth(&server.issuer));
}

#[tokio::test]
async fn an_issuer_path_is_respected_in_both_forms() {
    let server = Server::at_path("/staff/eu").await;
    for path in ["/staff/eu/.well-known/openid-configuration", "/.well-known/openid-configuration/staff/eu"] {
        let answer = server.get(path).await;
        assert_eq!(String::from_utf8(answer.body).unwrap(), expected_openid(&server.issuer), "{path}");
    }
    for path in [
        "/staff/eu/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/staff/eu",
    ] {
        let answer = server.get(path).await;
        assert_eq!(String::from_utf8(answer.body).unwrap(), expected_oauth(&server.issuer), "{path}");
    }
    for path in [
        "/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server",
        "/staff/.well-known/openid-configuration",
    ] {
        server.get(path).await.assert_error(404, "invalid_request");
    }
}

#[tokio::test]
async fn what_is_advertised_answers() {
    let server = Server::at_path("/staff").await;
    let document = server.get("/staff/.well-known/openid-configuration").await.json();
    let path = |member: &str| {
        document[member]
            .as_str()
            .unwrap()
            .strip_prefix(&format!("http://{}", server.address))
            .unwrap()
            .to_owned()
    };
    assert_eq!(server.get(&path("jwks_uri")).await.status, 200);
    assert_eq!(
        wire::request(server.address, "PUT", &path("token_endpoint")).await.field("allow"),
        Some("POST,OPTIONS")
    );
    assert_eq!(server.token("").await.status, 200);
}

#[tokio::test]
async fn the_request_does_not_choose_the_issuer() {
    let server = Server::start().await;
    let request = "GET /.well-known/openid-configuration HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: evil.example\r\n\
                   X-Forwarded-Proto: https\r\nForwarded: host=evil.example\r\nConnection: close\r\n\r\n";
    let answer = wire::exchange(server.address, request.as_bytes()).await;
    assert_eq!(String::from_utf8(answer.body).unwrap(), expected_openid(&server.issuer));
}
