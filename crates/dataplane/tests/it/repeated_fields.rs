//! A client that repeats its fields over HTTP/2: requests are read and decided as if each were the
//! first.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;

use dataplane::harness::{Fixture, Setup, Upstream, until};
use dataplane::http2::{connect, get, run};
use dataplane::issuer::now;

/// Fields of a request.
type Sent<'a> = &'a [(&'a str, &'a str)];

/// Sends a request on the connection, and returns the status of its response.
async fn status(send: &SendRequest<Bytes>, target: &str, token: &str, fields: Sent<'_>) -> u16 {
    status_at(send, "app.test", target, token, fields).await
}

/// The same for a host.
async fn status_at(
    send: &SendRequest<Bytes>,
    host: &str,
    target: &str,
    token: &str,
    fields: Sent<'_>,
) -> u16 {
    let mut request = Request::builder().uri(format!("http://{host}{target}"));
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    get(send, request.body(()).unwrap()).await.0.status.as_u16()
}

#[test]
fn what_the_service_receives_is_the_same_each_time() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    let long = "l".repeat(300);
    let fields = [
        ("x-kept", "a"),
        ("cookie", "c=d"),
        ("x_forwarded_user", "root"),
        ("x-forwarded-groups", "admins"),
        ("x-empty", ""),
        ("x-kept", "b"),
        ("cookie", &*long),
        ("etag", &*long),
    ];
    run(async {
        let send = connect(f.address).await;
        for number in 0..6 {
            assert_eq!(status(&send, &format!("/items/{number}?q={number}"), &token, &fields).await, 200);
        }
        // The same on a connection of its own.
        assert_eq!(status(&connect(f.address).await, "/items/6?q=6", &token, &fields).await, 200);
    });
    let seen = f.upstream.seen();
    let rest = |at: usize| seen[at].head.split_once("\r\n").unwrap().1.to_owned();
    for (at, request) in seen.iter().enumerate() {
        assert_eq!(request.line(), format!("GET /items/{at}?q={at} HTTP/1.1"));
        assert_eq!(rest(at), rest(6), "request {at}");
    }
    assert_eq!(seen[5].values("x-kept"), ["a", "b"]);
    assert_eq!(seen[5].values("cookie"), [format!("c=d; {long}")]);
    assert_eq!(seen[5].values("etag"), [&*long]);
    assert!(!rest(5).contains("root") && !rest(5).contains("admins"), "{}", rest(5));
}

#[test]
fn requests_at_the_same_time_are_read_as_one_after_the_other() {
    let f = Fixture::new();
    let (alice, bob) = (f.issuer.token(|_| {}), f.issuer.token(|claims| claims["groups"] = "sales".into()));
    run(async {
        let send = connect(f.address).await;
        for _ in 0..6 {
            let of_alice = status(&send, "/", &alice, &[("x", "a")]);
            let (first, second) = tokio::join!(of_alice, status(&send, "/", &bob, &[("x", "b")]));
            assert_eq!((first, second), (200, 403));
            let of_alice = (status(&send, "/", &alice, &[]), status(&send, "/", &alice, &[]));
            let (first, second) = tokio::join!(of_alice.0, of_alice.1);
            assert_eq!((first, second), (200, 200));
        }
    });
}

#[test]
fn another_token_is_another_caller() {
    let f = Fixture::new();
    let (alice, bob) = (f.issuer.token(|_| {}), f.issuer.token(|claims| claims["groups"] = "sales".into()));
    let (alice, bob) = (&*alice, &*bob);
    run(async {
        let send = connect(f.address).await;
        for (token, expected) in [
            (alice, 200),
            (alice, 200),
            (alice, 200),
            (bob, 403),
            (alice, 200),
            (bob, 403),
            (bob, 403),
            (bob, 403),
            (alice, 200),
            ("", 401),
            (bob, 403),
        ] {
            assert_eq!(status(&send, "/", token, &[]).await, expected);
        }
        // With a second token, and with one in the query.
        assert_eq!(status(&send, "/", alice, &[("authorization", "Bearer x")]).await, 400);
        assert_eq!(status(&send, "/?access_token=x", alice, &[]).await, 400);
        assert_eq!(status(&send, "/", alice, &[]).await, 200);
        // Fields that are refused, among others that are remembered.
        assert_eq!(status(&send, "/", alice, &[("x", "y ")]).await, 400);
        assert_eq!(status(&send, "/", alice, &[("host", "a"), ("host", "b")]).await, 400);
        assert_eq!(status(&send, "/", alice, &[]).await, 200);
    });
}

#[test]
fn another_host_is_another_route_though_the_fields_repeat() {
    let more = "[[route]]\nname = \"closed\"\nhosts = [\"closed.test\"]\npath = { prefix = \"/\" }\n\
                upstream = \"backend\"\npolicy = { allow = [{ groups = { any = [\"nobody\"] } }] }\n";
    let f = Fixture::with(Setup { more: more.into(), ..Setup::default() }, Upstream::start());
    let token = f.issuer.token(|_| {});
    run(async {
        let send = connect(f.address).await;
        for (host, expected) in [
            ("app.test", 200),
            ("app.test", 200),
            ("app.test", 200),
            ("closed.test", 403),
            ("app.test", 200),
            ("CLOSED.test", 403),
            ("closed.test:80", 403),
            ("app.test", 200),
        ] {
            assert_eq!(status_at(&send, host, "/", &token, &[]).await, expected, "{host}");
        }
        // A host field beside the authority.
        for _ in 0..4 {
            assert_eq!(status(&send, "/", &token, &[("host", "app.test")]).await, 200);
        }
        assert_ne!(status_at(&send, "closed.test", "/", &token, &[("host", "app.test")]).await, 200);
    });
}

#[test]
fn bodies_differ_though_the_fields_repeat() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    run(async {
        let send = connect(f.address).await;
        for body in ["one", "two", "six", "ten", "red"] {
            let request = Request::post("http://app.test/items")
                .header("authorization", format!("Bearer {token}"))
                .header("content-length", "3");
            let mut ready = send.clone().ready().await.unwrap();
            let (response, mut stream) = ready.send_request(request.body(()).unwrap(), false).unwrap();
            stream.send_data(Bytes::from_static(body.as_bytes()), true).unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
            assert_eq!(f.upstream.seen().last().unwrap().body, body.as_bytes());
        }
    });
}

#[test]
fn a_token_that_expires_is_refused_though_its_fields_repeat() {
    let f = Fixture::new();
    // Expired, but within the clock skew that is tolerated, for two seconds more.
    let token = f.issuer.token(|claims| claims["exp"] = (now() - 28).into());
    let send = run(connect(f.address));
    let mut served = 0;
    until("it is refused", || {
        let status = run(status(&send, "/", &token, &[]));
        served += u32::from(status == 200);
        status == 401
    });
    assert!(served > 3, "{served} requests passed before");
}

#[test]
fn a_reload_counts_for_the_next_request() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    let send = run(connect(f.address));
    let sees = |setup: Setup| {
        f.reload(&setup);
        assert_eq!(run(status(&send, "/", &token, &[("x-secret", "s"), ("x-other", "o")])), 200);
        let seen = f.upstream.seen();
        let last = seen.last().unwrap();
        (last.values("x-secret").len(), last.values("x-new").len(), last.values("x-other").len())
    };
    for _ in 0..3 {
        assert_eq!(sees(Setup::default()), (1, 0, 1));
    }
    for _ in 0..2 {
        let route = "request_headers = { remove = [\"X-Secret\"], set = { X-New = \"n\" } }".into();
        assert_eq!(sees(Setup { route, ..Setup::default() }), (0, 1, 1));
    }
    assert_eq!(sees(Setup::default()), (1, 0, 1));
}

#[test]
fn a_client_that_pauses_is_served_as_before() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    run(async {
        let send = connect(f.address).await;
        for pause in [0, 0, 0, 1300, 0, 0, 0] {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            assert_eq!(status(&send, "/", &token, &[]).await, 200);
        }
    });
}
