//! Client authentication: exactly one method, and no information in a refusal.

use crate::{
    server::{NEXT_SECRET, ODD_ID, ODD_SECRET, SECRET, Server},
    wire::{basic, encode, raw_basic},
};

const GRANT: &str = "grant_type=client_credentials";

#[tokio::test]
async fn client_secret_basic() {
    let server = Server::start().await;
    assert_eq!(server.token_of("orders", SECRET, "").await.status, 200);
    assert_eq!(server.token_of("orders", NEXT_SECRET, "").await.status, 200, "the second secret too");
    assert_eq!(server.token_of("orders", SECRET, "&client_id=orders").await.status, 200, "named again");
    assert_eq!(server.token_of("orders", SECRET, "&client_secret=").await.status, 200, "empty is not sent");
    for spelling in ["basic", "BASIC", "Basic   "] {
        let value = basic("orders", SECRET).replacen("Basic", spelling, 1);
        assert_eq!(server.post(&[("authorization", &value)], GRANT).await.status, 200, "{spelling}");
    }
}

#[tokio::test]
async fn client_secret_basic_is_form_encoded() {
    let server = Server::start().await;
    assert_eq!(server.token_of(ODD_ID, ODD_SECRET, "").await.status, 200);
    // Both `+` and `%20` encode a space.
    let joined = format!("{}:{}", encode(ODD_ID), encode(ODD_SECRET).replace("%20", "+"));
    assert_eq!(server.post(&[("Authorization", &raw_basic(&joined))], GRANT).await.status, 200);
    // Not encoded: the first colon splits elsewhere, and `%41` means `A`.
    let joined = format!("{ODD_ID}:{ODD_SECRET}");
    server.post(&[("Authorization", &raw_basic(&joined))], GRANT).await.assert_error(401, "invalid_client");
    let joined = format!("{}:{}", encode(ODD_ID), ODD_SECRET.replace(' ', "+"));
    server.post(&[("Authorization", &raw_basic(&joined))], GRANT).await.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn client_secret_post() {
    let server = Server::start().await;
    let body = format!("{GRANT}&client_id=orders&client_secret={SECRET}");
    assert_eq!(server.post(&[], &body).await.status, 200);
    let body = format!("{GRANT}&client_id={}&client_secret={}", encode(ODD_ID), encode(ODD_SECRET));
    assert_eq!(server.post(&[], &body).await.status, 200);
}

#[tokio::test]
async fn two_methods_are_refused_even_when_both_are_right() {
    let server = Server::start().await;
    let right = basic("orders", SECRET);
    let assertion = "client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&client_assertion=a.b.c";
    for (fields, more) in [
        (&[("Authorization", right.as_str())][..], format!("client_id=orders&client_secret={SECRET}")),
        (&[("Authorization", &right)], format!("client_secret={SECRET}")),
        (&[("Authorization", &right)], assertion.to_owned()),
        (&[("Authorization", &right)], "client_assertion=a".to_owned()),
        (&[], format!("client_id=orders&client_secret={SECRET}&{assertion}")),
        (&[("Authorization", &right), ("Authorization", &right)], String::new()),
        (&[("Authorization", &right), ("Authorization", "Bearer x")], String::new()),
    ] {
        server.post(fields, &format!("{GRANT}&{more}")).await.assert_error(400, "invalid_request");
    }
}

#[tokio::test]
async fn another_client_in_the_body_is_refused() {
    let server = Server::start().await;
    server.token("&client_id=plain").await.assert_error(400, "invalid_request");
    server.token("&client_id=Orders").await.assert_error(400, "invalid_request");
}

#[tokio::test]
async fn no_authentication_is_invalid_client() {
    let server = Server::start().await;
    for more in ["", "&client_id=orders", "&client_id=nobody", "&client_id=orders&client_secret="] {
        server.post(&[], &format!("{GRANT}{more}")).await.assert_error(401, "invalid_client");
    }
    server.post(&[], &format!("{GRANT}&client_secret={SECRET}")).await.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn a_401_names_the_scheme_that_works() {
    let server = Server::start().await;
    let answer = server.token_of("orders", "wrong", "").await;
    answer.assert_error(401, "invalid_client");
    let expected = format!("Basic realm=\"{}\", charset=\"UTF-8\"", server.issuer);
    assert_eq!(answer.field("www-authenticate"), Some(expected.as_str()));
}

#[tokio::test]
async fn other_methods_are_not_supported() {
    let server = Server::start().await;
    for value in ["Bearer abc", "Digest username=\"orders\"", "Negotiate", "Basicx YTpi", ""] {
        server.post(&[("Authorization", value)], GRANT).await.assert_error(401, "invalid_client");
    }
    let assertion = "&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&client_assertion=a.b.c";
    server.post(&[], &format!("{GRANT}{assertion}")).await.assert_error(401, "invalid_client");
}

#[tokio::test]
async fn malformed_basic_is_invalid_client() {
    let server = Server::start().await;
    let right = basic("orders", SECRET);
    // White space after a field value is not part of it (RFC 9110 §5.5).
    assert_eq!(server.post(&[("Authorization", &format!("{right} "))], GRANT).await.status, 200);
    let padded = basic("plain", SECRET);
    let unpadded = padded.trim_end_matches('=');
    assert_ne!(unpadded, padded, "the example must have padding to lose");
    for value in [
        "Basic",
        "Basic ",
        "Basic !!!!",
        "Basic b3JkZXJz",
        &raw_basic(":"),
        &raw_basic(&format!(":{SECRET}")),
        &raw_basic("orders:"),
        &raw_basic(&format!("ord%zzers:{SECRET}")),
        &raw_basic(&format!("orders:{SECRET}%")),
        &raw_basic(&format!("orders%00:{SECRET}")),
        &raw_basic(&format!("orders:{SECRET}\n")),
        &raw_basic(&format!("örders:{SECRET}")),
        &format!("{right}, {right}"),
        unpadded,
    ] {
        server.post(&[("Authorization", value)], GRANT).await.assert_error(401, "invalid_client");
    }
}

#[tokio::test]
async fn an_unknown_client_and_a_wrong_secret_get_the_same_answer() {
    let server = Server::start().await;
    let wrong = server.token_of("orders", "wrong", "").await;
    let unknown = server.token_of("nobody", "wrong", "").await;
    let known_secret = server.token_of("nobody", SECRET, "").await;
    wrong.assert_error(401, "invalid_client");
    assert_eq!(wrong.clone().without_date(), unknown.without_date());
    assert_eq!(wrong.clone().without_date(), known_secret.without_date());
    let post = |id: &str| format!("{GRANT}&client_id={id}&client_secret=wrong");
    let (wrong_post, unknown_post) =
        (server.post(&[], &post("orders")).await, server.post(&[], &post("nobody")).await);
    assert_eq!(wrong_post.clone().without_date(), unknown_post.without_date());
    assert_eq!(wrong_post.without_date(), wrong.without_date());
}

#[tokio::test]
async fn secrets_are_compared_whole() {
    let server = Server::start().await;
    let cut = &SECRET[..SECRET.len() - 1];
    let longer = format!("{SECRET}x");
    for secret in [cut, &longer, &SECRET.to_uppercase(), ODD_SECRET, "", &" ".repeat(32)] {
        server.token_of("orders", secret, "").await.assert_error(401, "invalid_client");
    }
    for id in ["Orders", "orders ", " orders", "order", "orders\u{e9}"] {
        server.token_of(id, SECRET, "").await.assert_error(401, "invalid_client");
    }
}

#[tokio::test]
async fn only_authenticated_clients_learn_about_grants() {
    let server = Server::start().await;
    server.post(&[], "grant_type=password").await.assert_error(401, "invalid_client");
    let wrong = basic("orders", "wrong");
    server
        .post(&[("Authorization", &wrong)], "grant_type=password&scope=audit")
        .await
        .assert_error(401, "invalid_client");
}
