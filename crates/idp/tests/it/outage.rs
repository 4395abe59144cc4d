//! Tests with an unavailable database.

use crate::{
    wire::encode,
    world::{PASSWORD, TestAuthorizationRequest, World},
};

#[tokio::test]
async fn without_the_database_everything_is_503_and_nothing_is_believed() {
    let world = World::new().await;
    let tokens = world.tokens("opaque", "openid offline_access").await;
    let [access, refresh] = ["access_token", "refresh_token"].map(|n| tokens[n].as_str().unwrap().to_owned());
    let mut browser = world.browser();
    let page = browser.get(&TestAuthorizationRequest::new("app").target()).await;
    let login = page.form("/login");
    world.server.provider.store().close().await;
    let refresh = format!("grant_type=refresh_token&refresh_token={refresh}");
    let password = format!("grant_type=password&username=ada&password={}", encode(PASSWORD));
    for (path, client, body) in [
        ("/token", "opaque", refresh),
        ("/token", "legacy", password),
        ("/introspect", "gateway", format!("token={access}")),
        ("/revoke", "opaque", format!("token={access}")),
        ("/par", "app", TestAuthorizationRequest::new("app").query()),
    ] {
        let answer = world.call(path, client, &body).await;
        answer.assert_error(503, "temporarily_unavailable");
        assert_eq!(answer.field("retry-after"), Some("1"), "{path}");
    }
    world.userinfo(&access).await.assert_error(503, "temporarily_unavailable");
    let page = browser.submit(&login, &[("username", "ada"), ("password", PASSWORD)]).await;
    assert_eq!((page.status, page.field("retry-after")), (503, Some("1")));
    assert!(page.text().contains("Not available right now"), "{}", page.text());
    browser.cookies.insert("postern_session".into(), session_cookie());
    assert_eq!(
        browser.get("/account").await.status,
        503,
        "never a login page for somebody who may be logged in"
    );
    // Endpoints that need no stored data still work.
    assert_eq!(world.server.get("/jwks").await.status, 200);
}

/// A cookie value with the format of a session secret.
fn session_cookie() -> String {
    auth::token::opaque::mint(auth::token::opaque::OpaqueKind::Session, &[7; 32]).to_string()
}
