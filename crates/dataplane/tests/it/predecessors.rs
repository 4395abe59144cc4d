//! Faults of similar programs. Each test fails with the program that it names.
//!
//! Others are tested with their subject: a namespace that is missing and a review that fails in
//! [`super::review`], discovery that fails at first with the gateway's own tests of its key sets.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use auth::time::Timestamp;
use http_engine::clock::ManualClock;

use dataplane::harness::{
    AUDIENCE, Fixture, ISSUER, Issuer, Response, Setup, TestClient, Upstream, now, until,
};
use dataplane::ports::free;

fn answer(socket: &mut TcpStream, status: u16, body: &str) -> bool {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    socket.write_all(text.as_bytes()).is_ok()
}

/// A gateway with further tables and a manual clock.
fn with_more(more: &str) -> (Fixture, Arc<ManualClock>) {
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    std::fs::write(dir.path().join("token"), "account\n").unwrap();
    let text = Setup { more: more.into(), ..Setup::default() }.file(dir.path(), upstream.address);
    let clock = Arc::new(ManualClock::new(Timestamp::from_secs(now())));
    (Fixture::observed(dir, issuer, upstream, &text, clock.clone(), None), clock)
}

fn head(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n")
}

fn with(f: &Fixture, token: &str) -> Response {
    f.send(head("/a", token))
}

/// oauth-proxy, kube-rbac-proxy: a user who left a group keeps its rights for minutes, or until the
/// next login.
#[test]
fn who_leaves_a_group_or_is_cut_off_is_out_after_the_ttl() {
    let kinds = [
        (
            "kind = \"introspection\"\naudiences = [\"api\"]",
            r#"{"active":true,"sub":"a","aud":"api","groups":["dev"]}"#,
            r#"{"active":true,"sub":"a","aud":"api","groups":[]}"#,
            (200, r#"{"active":false}"#),
        ),
        (
            "kind = \"openshift-user\"",
            r#"{"kind":"User","metadata":{"name":"a"},"groups":["dev"]}"#,
            r#"{"kind":"User","metadata":{"name":"a"},"groups":[]}"#,
            (401, "{}"),
        ),
    ];
    for (kind, member, outside, gone) in kinds {
        for (status, body, then) in [(200, outside, 403), (gone.0, gone.1, 401)] {
            let changed = Arc::new(AtomicBool::new(false));
            let switch = changed.clone();
            let authority = Upstream::answering(move |_, socket| {
                if changed.load(Ordering::SeqCst) {
                    answer(socket, status, body)
                } else {
                    answer(socket, 200, member)
                }
            });
            let (f, clock) = with_more(&format!(
                "[[token_authority]]\nname = \"id\"\nurl = \"http://{}/\"\nttl = \"10s\"\n{kind}",
                authority.address
            ));
            assert_eq!(with(&f, "opaque").status, 200, "{kind}");
            switch.store(true, Ordering::SeqCst);
            clock.advance(Duration::from_secs(10));
            assert_eq!(with(&f, "opaque").status, then, "{kind} {body}");
            assert_eq!(f.upstream.seen().len(), 1, "{kind}");
        }
    }
}

/// kube-rbac-proxy, kube-auth-proxy: without an API server clients hang, or get 403, and no metric
/// counts it.
#[test]
fn an_api_server_that_is_gone_is_503_at_once_and_counted_as_such() {
    let gone = free();
    let (f, _) = with_more(&format!(
        r#"
[[route]]
name = "reviewed"
path = {{ prefix = "/reviewed" }}
upstream = "backend"
access_review = {{ resource = "services", namespace = "team" }}
[[token_authority]]
name = "cluster"
kind = "token-review"
url = "http://{gone}"
token_file = "token"
any_audience = true
[kubernetes]
url = "http://{gone}"
token_file = "token"
"#
    ));
    let began = std::time::Instant::now();
    for response in [with(&f, "opaque"), f.get("/reviewed"), with(&f, "opaque"), f.get("/reviewed")] {
        assert_eq!((response.status, response.value("retry-after")), (503, Some("1")), "{}", response.text());
    }
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    assert_eq!(f.get("/a").status, 200, "who needs nobody else goes on");
    let authority = f.gateway().authenticator().authorities().remove(0);
    assert_eq!((authority.good, authority.refused, authority.failed), (0, 0, 2));
    let reviews = f.gateway().reviews().unwrap();
    assert_eq!((reviews.allowed, reviews.refused, reviews.failed), (0, 0, 2));
    let of = |outcome: &str| {
        let text = f.metrics.render(telemetry::metrics::Format::Text);
        let lines = text.lines().filter(|line| line.starts_with("postern_requests_total{"));
        let ours = lines.filter(|line| line.contains(&format!("outcome=\"{outcome}\"")));
        ours.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    until("all four are counted", || (of("auth_unavailable") - 4.0).abs() < 0.1);
    assert!(of("forbidden") < 0.1);
    assert_eq!(f.upstream.seen().len(), 1);
}

/// kube-auth-proxy: every bearer token is tried as a `TokenReview` first, even those that can be
/// verified locally.
#[test]
fn a_jwt_of_a_known_issuer_is_never_shown_to_kubernetes() {
    let review = r#"{"kind":"TokenReview","status":{"authenticated":true,"user":{"username":"root","groups":["dev"]}}}"#;
    let cluster = Upstream::answering(move |_, socket| answer(socket, 201, review));
    let (f, _) = with_more(&format!(
        "[[token_authority]]\nname = \"cluster\"\nkind = \"token-review\"\nurl = \"http://{}\"\ntoken_file = \"token\"\nany_audience = true\nwatch = false",
        cluster.address
    ));
    let good = f.issuer.token(|_| {});
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (_, other) =
        Issuer::new().token(|_| {}).rsplit_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let bad = [
        format!("{signed}.{other}"),
        format!("{signed}."),
        format!("{signed}.{}", signature.to_lowercase()),
        Issuer::new().token(|_| {}),
        f.issuer.token(|claims| claims["exp"] = 1.into()),
        f.issuer.token(|claims| claims["aud"] = "else".into()),
        f.issuer.token(|claims| claims["iss"] = "https://nobody.test".into()),
    ];
    for token in &bad {
        assert_eq!(with(&f, token).status, 401, "{token}");
    }
    assert_eq!(with(&f, &good).status, 200);
    assert!(cluster.seen().is_empty(), "{:?}", cluster.seen());
    assert_eq!(f.upstream.only().values("x-forwarded-user"), ["alice"]);
    assert_eq!(with(&f, "opaque").status, 200, "what nobody can judge here is");
    assert_eq!(cluster.seen().len(), 1);
}

/// oauth2-proxy, kube-rbac-proxy: of 50 workers, all but two open a connection for each request.
#[test]
fn as_many_connections_as_workers_however_many_requests() {
    const WORKERS: usize = 50;
    const ROUNDS: usize = 20;
    let authority = Upstream::answering(|_, socket| {
        answer(socket, 200, r#"{"active":true,"sub":"a","aud":"api","groups":["dev"]}"#)
    });
    let (f, _) = with_more(&format!(
        "[[token_authority]]\nname = \"id\"\nkind = \"introspection\"\nurl = \"http://{}/\"\naudiences = [\"api\"]",
        authority.address
    ));
    let (address, together) = (f.address, Barrier::new(WORKERS));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let together = &together;
            scope.spawn(move || {
                let mut client = TestClient::connect(address);
                for round in 0..ROUNDS {
                    together.wait();
                    // Each token is new, so each request queries the authority.
                    client.send(head("/a", &format!("opaque-{worker}-{round}")));
                    assert_eq!(client.response().status, 200);
                }
            });
        }
    });
    assert_eq!((f.upstream.seen().len(), authority.seen().len()), (WORKERS * ROUNDS, WORKERS * ROUNDS));
    for (whose, count) in [("upstream", f.upstream.connections()), ("authority", authority.connections())] {
        assert!(count <= WORKERS, "{count} connections to the {whose} for {} requests", WORKERS * ROUNDS);
    }
}

/// kube-auth-proxy: a bearer token crashes the process when nothing validates tokens.
#[test]
fn a_token_that_nobody_can_judge_is_refused_and_nothing_else_happens() {
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    let whole = Setup {
        more: "[[token_authority]]\nname = \"few\"\nkind = \"introspection\"\nurl = \"http://127.0.0.1:1/\"\nprefixes = [\"few_\"]\nany_audience = true".into(),
        ..Setup::default()
    };
    let keys = dir.path().join("jwks.json");
    let own = format!(
        "[[issuer]]\nname = \"test\"\nissuer = \"{ISSUER}\"\naudiences = [\"{AUDIENCE}\"]\njwks_file = \"{}\"\n",
        keys.display()
    );
    let text = whole.file(dir.path(), upstream.address);
    assert!(text.contains(&own));
    let f = Fixture::from_text(dir, issuer, upstream, &text.replace(&own, ""));
    let tokens =
        [f.issuer.token(|_| {}), "opaque".into(), "a.b.c".into(), ".".repeat(40), "x".repeat(20_000)];
    for token in &tokens {
        assert_eq!(with(&f, token).status, 401, "{}", &token[..token.len().min(20)]);
        assert_eq!(f.send(head("/open", token)).status, 200, "where nobody asks, nobody judges");
    }
    assert_eq!(with(&f, "few_x").status, 503);
    assert_eq!(f.upstream.seen().len(), tokens.len());
}
