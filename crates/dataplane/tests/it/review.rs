//! Kubernetes reviews requests that no rule decides.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use dataplane::harness::{Fixture, Issuer, Response, Seen, Setup, Upstream};

fn answer(socket: &mut TcpStream, status: u16, body: &str) -> bool {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    socket.write_all(text.as_bytes()).is_ok()
}

fn review(allowed: bool) -> String {
    format!(
        r#"{{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{{"allowed":{allowed}}}}}"#
    )
}

/// An API server that permits alice everything in the namespaces of this list.
fn cluster(namespaces: &'static [&'static str]) -> Upstream {
    Upstream::answering(move |seen, socket| {
        let spec = spec(seen);
        let namespace = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
        answer(socket, 201, &review(spec["user"] == "alice" && namespaces.contains(&namespace)))
    })
}

fn spec(seen: &Seen) -> serde_json::Value {
    let review: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    review["spec"].clone()
}

const NOTEBOOKS: &str = r#"
[[route]]
name = "notebooks"
path = { template = "/notebook/{ns}/{name}" }
upstream = "backend"
access_review = { resource = "notebooks", api_group = "kubeflow.org", namespace = "{path.ns}", name = "{path.name}" }

[[route]]
name = "models"
path = { prefix = "/models" }
upstream = "backend"
policy = { allow = [{ groups = ["admins"] }], deny = [{ users = ["mallory"] }] }
access_review = { resource = "services", subresource = "proxy", verb = "get", namespace = "{query.namespace}" }
"#;

fn asking(cluster: &Upstream, more: &str) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    std::fs::write(dir.path().join("token"), "account\n").unwrap();
    let kubernetes = format!(
        "[kubernetes]\nurl = \"http://{}/\"\ntoken_file = \"token\"\nwatch = false\n{more}",
        cluster.address
    );
    let text = Setup { more: format!("{NOTEBOOKS}{kubernetes}"), ..Setup::default() }
        .file(dir.path(), upstream.address);
    Fixture::from_text(dir, issuer, upstream, &text)
}

#[test]
fn a_question_is_asked_once_and_its_answer_is_kept() {
    let cluster = cluster(&["team-a"]);
    let f = asking(&cluster, "");
    for _ in 0..3 {
        assert_eq!(f.get("/notebook/team-a/mine").status, 200);
        assert_eq!(f.get("/notebook/team-b/mine").status, 403);
    }
    let asked = cluster.seen();
    assert_eq!(asked.len(), 2, "one yes and one no, each remembered");
    assert_eq!(asked[0].line(), "POST /apis/authorization.k8s.io/v1/subjectaccessreviews HTTP/1.1");
    assert_eq!(asked[0].values("authorization"), ["Bearer account"]);
    assert_eq!(
        spec(&asked[0]),
        serde_json::json!({
            "user": "alice", "groups": ["dev", "ops", "system:authenticated"],
            "resourceAttributes": { "namespace": "team-a", "verb": "get", "group": "kubeflow.org", "resource": "notebooks", "name": "mine" },
        })
    );
    assert_eq!(f.upstream.seen().len(), 3);
}

#[test]
fn other_names_and_verbs_are_other_questions() {
    let cluster = cluster(&["team-a"]);
    let f = asking(&cluster, "");
    let token = f.issuer.token(|_| {});
    for (method, path) in [("GET", "mine"), ("POST", "mine"), ("GET", "yours")] {
        let response = f.send(format!(
            "{method} /notebook/team-a/{path} HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(response.status, 200);
    }
    assert_eq!(cluster.seen().len(), 3);
    let other = f.issuer.token(|claims| claims["preferred_username"] = "bob".into());
    let refused = f.send(format!(
        "GET /notebook/team-a/mine HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {other}\r\n\r\n"
    ));
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("review_denied"), "{}", refused.text());
}

#[test]
fn rules_decide_without_a_call() {
    let cluster = cluster(&["team-a"]);
    let f = asking(&cluster, "");
    let with = |change: fn(&mut serde_json::Value)| -> Response {
        let token = f.issuer.token(change);
        f.send(format!(
            "GET /models?namespace=team-b HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n"
        ))
    };
    assert_eq!(with(|claims| claims["groups"] = serde_json::json!(["admins"])).status, 200);
    assert_eq!(with(|claims| claims["preferred_username"] = "mallory".into()).status, 403);
    assert!(cluster.seen().is_empty());
    assert_eq!(with(|_| {}).status, 403);
    assert_eq!(f.get("/models?namespace=team-a").status, 200);
    assert_eq!(f.get("/models").status, 400, "a namespace that is not said is not all of them");
    assert_eq!(f.get("/models?namespace=").status, 400);
    assert_eq!(f.get("/models?namespace=team-a&namespace=team-b").status, 403, "each value counts");
    let asked: Vec<_> =
        cluster.seen().iter().map(|seen| spec(seen)["resourceAttributes"]["namespace"].clone()).collect();
    assert_eq!(asked, ["team-b", "team-a"], "and what is known is not asked again");
}

#[test]
fn a_cluster_that_does_not_answer_lets_nobody_in() {
    for (status, body) in [
        (500, review(true)),
        (401, "{}".to_owned()),
        (403, r#"{"kind":"Status","status":"Failure"}"#.to_owned()),
        (201, "{}".to_owned()),
        (201, r#"{"kind":"SubjectAccessReview","status":{"allowed":"true"}}"#.to_owned()),
        (302, review(true)),
    ] {
        let cluster = Upstream::answering(move |_, socket| answer(socket, status, &body));
        let f = asking(&cluster, "");
        let first = f.get("/notebook/team-a/mine");
        assert_eq!((first.status, first.value("retry-after")), (503, Some("1")), "{status}");
        assert!(first.text().contains("unreviewed"), "{}", first.text());
        assert_eq!(f.get("/notebook/team-a/mine").status, 503);
        assert_eq!(cluster.seen().len(), 2, "{status}: nothing is remembered");
        assert!(f.upstream.seen().is_empty());
    }
    let slow = Upstream::answering(|_, _| {
        std::thread::sleep(Duration::from_secs(30));
        false
    });
    let f = asking(&slow, "timeout = \"100ms\"");
    let began = std::time::Instant::now();
    assert_eq!(f.get("/notebook/team-a/mine").status, 503);
    assert!(began.elapsed() < Duration::from_secs(9), "the cluster itself takes 30 s");
}

#[test]
fn many_at_once_ask_once() {
    let slow = Upstream::answering(|_, socket| {
        std::thread::sleep(Duration::from_millis(200));
        answer(socket, 201, &review(true))
    });
    let f = asking(&slow, "");
    let head = f.request("/notebook/team-a/mine", "");
    let mut clients: Vec<_> = (0..8).map(|_| f.connect()).collect();
    for client in &mut clients {
        client.send(&head);
    }
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    assert_eq!(slow.seen().len(), 1);
}

#[test]
fn http2_and_questions_of_proxies_are_reviewed_too() {
    let cluster = cluster(&["team-a"]);
    let f = asking(&cluster, "");
    dataplane::http2::run(async {
        let send = dataplane::http2::connect(f.address).await;
        let (head, _) =
            dataplane::http2::get(&send, dataplane::http2::request(&f, "GET", "/notebook/team-a/x")).await;
        assert_eq!(head.status, 200);
        let (head, _) =
            dataplane::http2::get(&send, dataplane::http2::request(&f, "GET", "/notebook/team-c/x")).await;
        assert_eq!(head.status, 403);
    });
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    std::fs::write(dir.path().join("token"), "account\n").unwrap();
    let more = format!(
        "{NOTEBOOKS}[kubernetes]\nurl = \"http://{}/\"\ntoken_file = \"token\"\nwatch = false\n",
        cluster.address
    );
    let listener = "authorization = { from = [\"127.0.0.1\"], http = \"envoy\", max_age = \"30s\" }".into();
    let text = Setup { listener, more, ..Setup::default() }.file(dir.path(), upstream.address);
    let f = Fixture::from_text(dir, issuer, upstream, &text);
    let reviewed = f.get("/notebook/team-a/y");
    assert_eq!((reviewed.status, reviewed.value("cache-control")), (200, Some("no-store")), "roles change");
    assert_eq!(f.get("/notebook/team-d/y").status, 403);
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn several_reviews_are_combined() {
    let cluster = cluster(&["team-a", "team-b"]);
    let route = |name: &str, reviews: &str| {
        format!(
            "\n[[route]]\nname = \"{name}\"\npath = {{ template = \"/{name}/{{a}}/{{b}}\" }}\nupstream = \"backend\"\n\
             access_reviews = {{ {reviews} }}\n"
        )
    };
    let list = "[{ resource = \"pods\", api_version = \"v1\", namespace = \"{path.a}\" }, \
                 { resource = \"pods\", namespace = \"{path.b}\" }]";
    let routes = route("all", &format!("all = {list}")) + &route("any", &format!("any = {list}"));
    let f = asking(&cluster, &routes);
    for (path, status) in [
        ("/all/team-a/team-b", 200),
        ("/all/team-a/team-c", 403),
        ("/all/team-c/team-a", 403),
        ("/any/team-a/team-c", 200),
        ("/any/team-c/team-b", 200),
        ("/any/team-c/team-d", 403),
    ] {
        assert_eq!(f.get(path).status, status, "{path}");
    }
    assert_eq!(f.upstream.seen().len(), 3);
    let asked: Vec<_> = cluster.seen().iter().map(|seen| spec(seen)["resourceAttributes"].clone()).collect();
    let pods = |namespace: &str, version: Option<&str>| {
        let mut pods = serde_json::json!({ "namespace": namespace, "verb": "get", "resource": "pods" });
        if let Some(version) = version {
            pods["version"] = version.into();
        }
        pods
    };
    assert_eq!(asked[..2], [pods("team-a", Some("v1")), pods("team-b", None)]);
    let denied = asked.iter().filter(|question| **question == pods("team-c", Some("v1"))).count();
    assert_eq!(denied, 1, "a no is cached for the other routes: {asked:?}");
}

#[test]
fn a_failed_review_is_no_reason_to_permit() {
    let cluster = Upstream::answering(|seen, socket| {
        let works = spec(seen)["resourceAttributes"]["resource"] == "services";
        if works { answer(socket, 201, &review(true)) } else { answer(socket, 500, "{}") }
    });
    let routes = r#"
[[route]]
name = "any"
path = { prefix = "/any" }
upstream = "backend"
access_reviews = { any = [{ resource = "pods" }, { resource = "services" }] }
"#;
    let f = asking(&cluster, routes);
    assert_eq!(f.get("/any").status, 503);
    assert!(f.upstream.seen().is_empty());
}
