//! Requests that endpoints refuse before client authentication and grants.

use crate::{
    server::{SECRET, Server},
    wire::{self, FORM, basic, encode},
};

#[tokio::test]
async fn only_forms_are_read() {
    let server = Server::start().await;
    let authorization = basic("orders", SECRET);
    let body = b"grant_type=client_credentials";
    for fields in [
        &[("Authorization", authorization.as_str())][..],
        &[("Authorization", &authorization), ("Content-Type", "application/json")],
        &[("Authorization", &authorization), ("Content-Type", "text/plain")],
        &[("Authorization", &authorization), ("Content-Type", "multipart/form-data; boundary=x")],
        &[
            ("Authorization", &authorization),
            ("Content-Type", "application/x-www-form-urlencoded; charset=latin1"),
        ],
        &[("Authorization", &authorization), ("Content-Type", FORM), ("Content-Type", FORM)],
    ] {
        wire::send(server.address, "/token", fields, body).await.assert_error(400, "invalid_request");
    }
    let json = br#"{"grant_type":"client_credentials"}"#;
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    wire::send(server.address, "/token", &fields, json).await.assert_error(400, "invalid_request");
    let utf8 = [
        ("Authorization", authorization.as_str()),
        ("Content-Type", "application/x-www-form-urlencoded;charset=UTF-8"),
    ];
    assert_eq!(wire::send(server.address, "/token", &utf8, body).await.status, 200);
}

#[tokio::test]
async fn parameters_in_the_url_are_refused() {
    let server = Server::start().await;
    let fields = [("Authorization", basic("orders", SECRET)), ("Content-Type", FORM.into())];
    let fields = fields.each_ref().map(|(n, v)| (*n, v.as_str()));
    for target in ["/token?grant_type=client_credentials", "/token?client_secret=x", "/token?"] {
        let answer = wire::send(server.address, target, &fields, b"grant_type=client_credentials").await;
        answer.assert_error(400, "invalid_request");
    }
}

#[tokio::test]
async fn duplicate_parameters_are_refused() {
    let server = Server::start().await;
    for more in [
        "&grant_type=client_credentials",
        "&grant%5Ftype=client_credentials",
        "&scope=audit&scope=audit",
        "&scope=&scope=audit",
        "&client_id=orders&client_id=orders",
        "&unknown=1&unknown=1",
        "&x&x",
    ] {
        server.token(more).await.assert_error(400, "invalid_request");
    }
    let post = format!(
        "grant_type=client_credentials&client_id=orders&client_secret={SECRET}&client_secret={SECRET}"
    );
    server.post(&[], &post).await.assert_error(400, "invalid_request");
    let post =
        format!("grant_type=client_credentials&client_id=orders&client_id=plain&client_secret={SECRET}");
    server.post(&[], &post).await.assert_error(400, "invalid_request");
}

#[tokio::test]
async fn unknown_parameters_are_ignored() {
    let server = Server::start().await;
    assert_eq!(server.token("&something=else&flag&&").await.status, 200);
}

#[tokio::test]
async fn bad_encoding_is_refused() {
    let server = Server::start().await;
    for more in
        ["&x=%", "&x=%4", "&x=%zz", "&%=1", "&x=\r\n", "\n", "&x=%ff", "&x=%c0%af", "&x=%00", "&x=é", "&=1"]
    {
        server.token(more).await.assert_error(400, "invalid_request");
    }
    // A space that is not encoded has one meaning.
    assert_eq!(server.token("&x=a b").await.status, 200);
    let many = "&".to_owned() + &(0..64).map(|i| format!("p{i}=1")).collect::<Vec<_>>().join("&");
    server.token(&many).await.assert_error(400, "invalid_request");
}

#[tokio::test]
async fn a_body_has_at_most_64_kib() {
    let server = Server::start().await;
    let start = "&pad=";
    let room = 64 * 1024 - "grant_type=client_credentials".len() - start.len();
    assert_eq!(server.token(&format!("{start}{}", "x".repeat(room))).await.status, 200);

    // The length is declared: refused before the body is sent.
    let head = |framing: &str| {
        format!("POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\n{framing}\r\n\r\n")
            .into_bytes()
    };
    let answer = wire::exchange_until_answer(server.address, &head("Content-Length: 65537")).await;
    answer.assert_error(413, "invalid_request");

    // The length is not declared: refused when the limit is exceeded.
    let mut chunked = head("Transfer-Encoding: chunked");
    chunked.extend_from_slice(format!("{:x}\r\n", 64 * 1024 + 1).as_bytes());
    chunked.resize(chunked.len() + 64 * 1024 + 1, b'x');
    wire::exchange_until_answer(server.address, &chunked).await.assert_error(413, "invalid_request");
}

#[tokio::test]
async fn a_body_that_breaks_off_gets_no_token() {
    let server = Server::start().await;
    let authorization = basic("orders", SECRET);
    let head = format!(
        "POST /token HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\nContent-Type: {FORM}\r\n\
         Content-Length: 1000\r\n\r\ngrant_type=client_credentials"
    );
    let received = wire::exchange_half_closed(server.address, head.as_bytes()).await;
    assert!(!received.windows(12).any(|w| w == b"access_token"), "{}", received.escape_ascii());
}

#[tokio::test]
async fn other_methods_are_405_with_allow() {
    let server = Server::at_path("/staff").await;
    for (path, allow, wrong) in [
        ("/staff/token", "POST,OPTIONS", &["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "BREW"][..]),
        ("/staff/introspect", "POST", &["GET", "HEAD", "PUT", "DELETE", "OPTIONS"]),
        ("/staff/authorize", "GET,HEAD,POST", &["PUT", "DELETE", "OPTIONS"]),
        ("/staff/login", "GET,HEAD,POST", &["PUT", "DELETE", "OPTIONS"]),
        ("/staff/jwks", "GET,HEAD,OPTIONS", &["POST", "PUT", "DELETE"]),
        ("/staff/.well-known/openid-configuration", "GET,HEAD,OPTIONS", &["POST"]),
        ("/.well-known/oauth-authorization-server/staff", "GET,HEAD,OPTIONS", &["POST", "DELETE"]),
    ] {
        for method in wrong {
            let answer = wire::request(server.address, method, path).await;
            assert_eq!((answer.status, answer.field("allow")), (405, Some(allow)), "{method} {path}");
            if *method == "HEAD" {
                assert!(answer.body.is_empty());
            } else {
                answer.assert_error(405, "invalid_request");
            }
        }
    }
}

#[tokio::test]
async fn head_of_a_document_is_its_get_without_body() {
    let server = Server::start().await;
    for path in ["/jwks", "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"] {
        let get = server.get(path).await;
        let head = wire::request(server.address, "HEAD", path).await;
        assert!(head.body.is_empty());
        let length = get.body.len().to_string();
        assert_eq!(head.field("content-length"), Some(length.as_str()));
        assert_eq!(head.without_date().1, get.without_date().1, "{path}");
    }
}

#[tokio::test]
async fn other_paths_are_404() {
    let server = Server::at_path("/staff").await;
    for path in [
        "/",
        "/token",
        "/staff",
        "/staff/",
        "/staff/token/",
        "/staff//token",
        "/staff/%74oken",
        "/Staff/token",
        "/jwks",
    ] {
        server.get(path).await.assert_error(404, "invalid_request");
    }
}

#[tokio::test]
async fn people_get_a_page_at_other_paths_and_their_account_at_the_first() {
    const BROWSER: &str = "Accept: text/html,*/*;q=0.8\r\nSec-Fetch-Mode: navigate\r\nAccept-Language: de";
    let server = Server::at_path("/staff").await;
    let get = async |path: &str, lines: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n\r\n");
        wire::exchange(server.address, head.as_bytes()).await
    };
    for path in ["/", "/staff/nothing", "/staff//token"] {
        let page = get(path, BROWSER).await;
        assert_eq!(page.status, 404, "{path}");
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert_eq!(page.field("content-language"), Some("de"), "{path}");
        assert!(page.field("content-security-policy").unwrap().contains("frame-ancestors 'none'"));
        let text = String::from_utf8_lossy(&page.body);
        assert!(text.contains("not_found"), "{path}: {text}");
        get(path, "Accept: text/html\r\nSec-Fetch-Mode: cors").await.assert_error(404, "invalid_request");
    }
    for path in ["/staff", "/staff/"] {
        let home = get(path, BROWSER).await;
        assert_eq!(
            (home.status, home.field("location")),
            (303, Some(&*format!("{}/account", server.issuer)))
        );
    }
}

#[tokio::test]
async fn every_answer_is_hardened() {
    let server = Server::start().await;
    let answers = [
        server.get("/jwks").await,
        server.get("/.well-known/openid-configuration").await,
        server.get("/nowhere").await,
        server.get("/token").await,
        server.post(&[], "").await,
        server.token("").await,
        server.token_of("orders", "wrong", "").await,
    ];
    assert_eq!(answers.each_ref().map(|a| a.status), [200, 200, 404, 405, 401, 200, 401]);
    for answer in answers {
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.field("x-frame-options"), Some("DENY"));
        assert_eq!(answer.field("referrer-policy"), Some("no-referrer"));
        assert_eq!(
            answer.field("content-security-policy"),
            Some("default-src 'none'; frame-ancestors 'none'")
        );
        assert!(answer.field("cache-control").is_some());
        assert_eq!(answer.field("server"), None);
    }
}

#[tokio::test]
async fn scripts_of_other_sites_read_what_depends_on_no_cookie() {
    let server = Server::start().await;
    for path in ["/jwks", "/token", "/userinfo", "/revoke", "/.well-known/openid-configuration"] {
        let answer = wire::request(server.address, "OPTIONS", path).await;
        assert_eq!(answer.status, 204, "{path}");
        assert_eq!(answer.field("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.field("access-control-allow-headers"), Some("authorization, content-type"));
        assert_eq!(answer.field("access-control-allow-credentials"), None, "never with cookies");
    }
    for path in ["/authorize", "/login", "/consent", "/logout", "/account", "/device", "/introspect", "/par"]
    {
        for method in ["OPTIONS", "GET"] {
            let answer = wire::request(server.address, method, path).await;
            assert_eq!(answer.field("access-control-allow-origin"), None, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn nothing_of_a_request_is_reflected() {
    let server = Server::start().await;
    let probe = "<script>probe</script>";
    let probes = [
        server.get("/<script>probe").await,
        server.token(&format!("&scope={}", encode(probe))).await,
        server.token(&format!("&resource={}", encode(probe))).await,
        server.token(&format!("&audience={}", encode(probe))).await,
        server.token_of(probe, probe, "").await,
        server
            .post(&[("Authorization", &basic("orders", SECRET))], &format!("grant_type={}", encode(probe)))
            .await,
        server.token(&format!("&{0}=1&{0}=1", encode(probe))).await,
    ];
    for answer in probes {
        assert!(answer.status >= 400);
        let text = format!("{:?} {}", answer.fields, String::from_utf8_lossy(&answer.body));
        assert!(!text.contains("probe"), "{text}");
    }
}
