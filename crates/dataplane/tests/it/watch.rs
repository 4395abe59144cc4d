//! A change at Kubernetes drops the cached answers that it concerns, at once.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use credentials::watch::{Resource, SETTLE, WatchState};

use dataplane::harness::{Fixture, Issuer, Seen, Setup, Upstream, until};

/// Instruction for a stream.
enum Order {
    Send(String),
    End,
}

/// An API server whose responses and streams the test controls.
struct Cluster {
    upstream: Upstream,
    play: Arc<Play>,
}

#[derive(Default)]
struct Play {
    /// Whether reviews and token reviews are negative.
    refuses: AtomicBool,
    /// Whether responses are held back. Their content is decided before.
    keeps_back: AtomicBool,
    /// Status of lists and watches. 0 means 200.
    status: AtomicU16,
    /// Whether connections are closed without a response.
    gone: AtomicBool,
    /// Whether there are tokens of `OpenShift`.
    openshift: AtomicBool,
    reviews: AtomicUsize,
    lists: AtomicUsize,
    streams: Mutex<Vec<(String, Sender<Order>)>>,
}

fn answer(socket: &mut TcpStream, status: u16, body: &str) -> bool {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    socket.write_all(text.as_bytes()).is_ok()
}

impl Play {
    fn respond(&self, seen: &Seen, socket: &mut TcpStream) -> bool {
        if self.gone.load(SeqCst) {
            return false;
        }
        let line = seen.line().to_owned();
        if line.starts_with("POST") {
            return self.review(seen, socket);
        }
        if line.contains("/users/~") {
            let good = !self.refuses.load(SeqCst);
            return answer(
                socket,
                if good { 200 } else { 401 },
                r#"{"kind":"User","metadata":{"name":"alice"},"groups":["dev"]}"#,
            );
        }
        let status = match self.status.load(SeqCst) {
            _ if line.contains("oauth.openshift.io") && !self.openshift.load(SeqCst) => 404,
            0 => 200,
            status => status,
        };
        if status != 200 || line.contains("/v1 HTTP") {
            return answer(socket, status, r#"{"kind":"APIResourceList"}"#);
        }
        if line.contains("limit=1") {
            let version = 100 + self.lists.fetch_add(1, SeqCst);
            return answer(
                socket,
                200,
                &format!(r#"{{"kind":"L","metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#),
            );
        }
        let (orders, inbox) = channel();
        self.streams.lock().unwrap().push((line, orders));
        let head = "HTTP/1.1 200 X\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        let mut open = socket.write_all(head.as_bytes()).is_ok();
        while open {
            open = match inbox.recv() {
                Ok(Order::Send(line)) => socket.write_all(format!("{line}\n").as_bytes()).is_ok(),
                Ok(Order::End) | Err(_) => false,
            };
        }
        false
    }

    fn review(&self, seen: &Seen, socket: &mut TcpStream) -> bool {
        self.reviews.fetch_add(1, SeqCst);
        let good = !self.refuses.load(SeqCst);
        while self.keeps_back.load(SeqCst) && good {
            std::thread::sleep(Duration::from_millis(5));
        }
        if seen.line().contains("tokenreviews") {
            let sent: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
            let user = format!("system:serviceaccount:team:{}", sent["spec"]["token"].as_str().unwrap());
            let status = serde_json::json!({ "authenticated": good, "user": { "username": user, "uid": format!("uid of {user}"), "groups": ["dev"] }, "audiences": ["postern"] });
            return answer(
                socket,
                201,
                &serde_json::json!({ "kind": "TokenReview", "status": status }).to_string(),
            );
        }
        answer(socket, 201, &format!(r#"{{"kind":"SubjectAccessReview","status":{{"allowed":{good}}}}}"#))
    }
}

impl Cluster {
    fn start() -> Self {
        let play = Arc::new(Play::default());
        let played = play.clone();
        Self { upstream: Upstream::answering(move |seen, socket| played.respond(seen, socket)), play }
    }

    fn refuse(&self, refuses: bool) {
        self.play.refuses.store(refuses, SeqCst);
    }

    fn reviews(&self) -> usize {
        self.play.reviews.load(SeqCst)
    }

    /// Heads of the streams that were started for a resource.
    fn begun(&self, resource: &str) -> Vec<String> {
        let streams = self.play.streams.lock().unwrap();
        streams
            .iter()
            .filter(|(line, _)| line.contains(&format!("/{resource}?")))
            .map(|(line, _)| line.clone())
            .collect()
    }

    fn order(&self, resource: &str, order: impl Fn() -> Order) {
        let streams = self.play.streams.lock().unwrap();
        for (_, orders) in streams.iter().filter(|(line, _)| line.contains(&format!("/{resource}?"))) {
            // Earlier streams have ended.
            let _ = orders.send(order());
        }
    }

    fn tell(&self, resource: &str, kind: &str, namespace: &str, name: &str, version: u32) {
        self.order(resource, || {
            Order::Send(format!(
                r#"{{"type":"{kind}","object":{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"uid of system:serviceaccount:{namespace}:{name}","resourceVersion":"{version}"}}}}}}"#
            ))
        });
    }
}

const NOTEBOOKS: &str = r#"
[[route]]
name = "notebooks"
path = { template = "/notebook/{ns}/{name}" }
upstream = "backend"
access_review = { resource = "notebooks", namespace = "{path.ns}", name = "{path.name}" }
"#;

fn fixture(more: &str) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&dir.path().join("jwks.json"));
    std::fs::write(dir.path().join("token"), "account\n").unwrap();
    let text = Setup { more: more.into(), ..Setup::default() }.file(dir.path(), upstream.address);
    Fixture::from_text(dir, issuer, upstream, &text)
}

fn reviewing_text(cluster: &Cluster, more: &str) -> String {
    format!(
        "{NOTEBOOKS}[kubernetes]\nurl = \"http://{}\"\ntoken_file = \"token\"\n{more}",
        cluster.upstream.address
    )
}

/// A gateway that would cache answers for an hour.
fn reviewing(cluster: &Cluster) -> Fixture {
    fixture(&reviewing_text(cluster, "ttl = \"1h\"\ndeny_ttl = \"1h\""))
}

fn authority(cluster: &Cluster, kind: &str, more: &str) -> Fixture {
    fixture(&format!(
        "[[token_authority]]\nname = \"cluster\"\nkind = \"{kind}\"\nurl = \"http://{}\"\ntoken_file = \"token\"\nttl = \"1h\"\n{more}",
        cluster.upstream.address
    ))
}

fn state(f: &Fixture, resource: Resource) -> WatchState {
    f.gateway().watches().into_iter().find(|watch| watch.resource == resource).expect("watched").state
}

fn all(f: &Fixture, wanted: WatchState) -> bool {
    let watches = f.gateway().watches();
    assert!(!watches.is_empty());
    watches.iter().all(|watch| watch.state == wanted)
}

/// Waits until everything is watched, and the settling time of the start is over.
fn settled(f: &Fixture) {
    until("everything is watched", || all(f, WatchState::Watching));
    quiet();
}

/// Waits until the settling time of earlier events is over.
fn quiet() {
    std::thread::sleep(SETTLE[1] + Duration::from_millis(200));
}

fn with(f: &Fixture, token: &str) -> u16 {
    f.send(format!("GET /a HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n")).status
}

#[test]
fn an_event_drops_the_answers_it_concerns_and_no_others() {
    let cluster = Cluster::start();
    let f = reviewing(&cluster);
    settled(&f);
    let ask = |ns: &str| f.get(&format!("/notebook/{ns}/x")).status;
    assert_eq!((ask("team-a"), ask("team-b")), (200, 200));
    cluster.refuse(true);
    assert_eq!((ask("team-a"), ask("team-b")), (200, 200), "nobody told of it yet");
    assert_eq!(cluster.reviews(), 2);
    cluster.tell("rolebindings", "DELETED", "team-a", "gone", 200);
    let took = until("the answer is dropped", || ask("team-a") == 403);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(ask("team-b"), 200, "another namespace is none of its business");
    cluster.tell("clusterrolebindings", "MODIFIED", "", "all", 201);
    until("and everybody's is", || ask("team-b") == 403);
    // A negative answer is dropped too.
    quiet();
    assert_eq!((ask("team-a"), ask("team-b")), (403, 403));
    cluster.refuse(false);
    assert_eq!((ask("team-a"), ask("team-b")), (403, 403));
    cluster.tell("roles", "ADDED", "team-a", "new", 202);
    until("what is permitted now is", || ask("team-a") == 200);
    let watches = f.gateway().watches();
    let events = |resource| watches.iter().find(|watch| watch.resource == resource).unwrap().events;
    assert_eq!((events(Resource::RoleBindings), events(Resource::ClusterRoles)), (1, 0));
    assert!(watches.iter().all(|watch| watch.lists == 1), "{watches:?}");
}

#[test]
fn a_mark_is_repeated_for_servers_that_lag() {
    for _ in 0..20 {
        let cluster = Cluster::start();
        let f = reviewing(&cluster);
        settled(&f);
        let ask = || f.get("/notebook/team-a/x").status;
        assert_eq!(ask(), 200);
        let told = Instant::now();
        cluster.tell("rolebindings", "DELETED", "team-a", "gone", 200);
        until("it is asked again", || {
            ask();
            cluster.reviews() > 1
        });
        // The old answer once more. Only now the server's state changes.
        assert_eq!(ask(), 200);
        cluster.refuse(true);
        if told.elapsed() >= SETTLE[0] / 2 {
            // On a busy machine the first repetition may be over by now.
            continue;
        }
        until("the late answer is dropped too", || ask() == 403);
        let took = told.elapsed();
        assert!(took < SETTLE[1], "{took:?}: by the first repetition");
        return;
    }
    panic!("this machine was too busy in each of twenty attempts");
}

#[test]
fn an_answer_that_an_event_overtook_is_kept_by_nobody() {
    let cluster = Cluster::start();
    let f = reviewing(&cluster);
    settled(&f);
    cluster.play.keeps_back.store(true, SeqCst);
    let mut before = f.connect();
    before.send(f.request("/notebook/team-a/x", ""));
    until("the question is on its way", || cluster.reviews() == 1);
    cluster.refuse(true);
    cluster.tell("rolebindings", "DELETED", "team-a", "gone", 200);
    until("the event came", || f.gateway().watches().iter().any(|watch| watch.events > 0));
    // A new request does not share the pending query, whose answer is from before.
    assert_eq!(f.get("/notebook/team-a/x").status, 403);
    cluster.play.keeps_back.store(false, SeqCst);
    assert_eq!(before.response().status, 403, "somebody knows better by now");
    assert_eq!(f.get("/notebook/team-a/x").status, 403, "and left nothing behind");
}

#[test]
fn a_version_that_is_gone_drops_everything_and_begins_anew() {
    let cluster = Cluster::start();
    let f = reviewing(&cluster);
    settled(&f);
    let ask = || f.get("/notebook/team-a/x").status;
    assert_eq!(ask(), 200);
    cluster.refuse(true);
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}}"#;
    cluster.order("roles", || Order::Send(gone.to_owned()));
    until("the answer is dropped", || ask() == 403);
    until("it is watched again", || cluster.begun("roles").len() == 2 && all(&f, WatchState::Watching));
    let versions: Vec<_> = cluster.begun("roles").iter().map(|line| version(line)).collect();
    assert_ne!(versions[0], versions[1], "from a new list on");
}

fn version(line: &str) -> u32 {
    let rest = line.split("resourceVersion=").nth(1).unwrap();
    rest.split(['&', ' ']).next().unwrap().parse().unwrap()
}

#[test]
fn a_stream_that_ends_goes_on_from_where_it_was() {
    let cluster = Cluster::start();
    let f = reviewing(&cluster);
    settled(&f);
    let ask = || f.get("/notebook/team-a/x").status;
    assert_eq!(ask(), 200);
    cluster.order("rolebindings", || {
        Order::Send(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"777"}}}"#.to_owned())
    });
    cluster.order("rolebindings", || Order::End);
    until("it is asked for again", || cluster.begun("rolebindings").len() == 2);
    let line = &cluster.begun("rolebindings")[1];
    assert_eq!(version(line), 777);
    assert!(line.contains("allowWatchBookmarks=true") && line.contains("timeoutSeconds="), "{line}");
    let asked = cluster.reviews();
    assert_eq!((ask(), cluster.reviews()), (200, asked), "nothing was missed, nothing is dropped");
    cluster.refuse(true);
    cluster.tell("rolebindings", "DELETED", "team-a", "gone", 800);
    until("and events count as before", || ask() == 403);
    // A line that is not an event does not say what changed.
    quiet();
    assert_eq!(ask(), 403);
    cluster.refuse(false);
    cluster.order("rolebindings", || Order::Send("<html>".to_owned()));
    until("a line that is not understood drops everything", || ask() == 200);
    assert!(f.gateway().watches().iter().any(|watch| watch.lists == 2));
}

#[test]
fn who_may_not_watch_believes_answers_for_their_time() {
    let cluster = Cluster::start();
    cluster.play.status.store(403, SeqCst);
    let f = fixture(&reviewing_text(&cluster, "ttl = \"3s\""));
    until("it is seen that it may not", || all(&f, WatchState::Denied));
    let ask = || f.get("/notebook/team-a/x").status;
    let began = Instant::now();
    assert_eq!(ask(), 200);
    cluster.refuse(true);
    assert_eq!(ask(), 200, "believed");
    until("not for longer than its time", || ask() == 403);
    // Cached answers are dropped up to a tenth earlier, to spread the load.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(2700), "{took:?}");
    let tries = || cluster.upstream.seen().iter().filter(|seen| seen.line().contains("/roles?")).count();
    assert!((3..=6).contains(&tries()), "less and less often: {}", tries());
    assert!(all(&f, WatchState::Denied));
    cluster.play.status.store(0, SeqCst);
    until("it is given the right", || all(&f, WatchState::Watching));
}

#[test]
fn a_server_that_comes_back_is_watched_again() {
    let cluster = Cluster::start();
    let f = reviewing(&cluster);
    settled(&f);
    let ask = || f.get("/notebook/team-a/x").status;
    assert_eq!(ask(), 200);
    cluster.play.gone.store(true, SeqCst);
    for resource in Resource::REVIEWS {
        cluster.order(resource.as_str(), || Order::End);
    }
    until("every watch is seen to be broken", || all(&f, WatchState::Broken));
    assert_eq!(ask(), 200, "what is known is known");
    assert_eq!(f.get("/notebook/team-b/x").status, 503, "and what is not is nobody's to say");
    cluster.refuse(true);
    cluster.play.gone.store(false, SeqCst);
    until("they are back", || all(&f, WatchState::Watching));
    cluster.tell("rolebindings", "DELETED", "team-a", "gone", 900);
    until("and tell of changes", || ask() == 403);
}

#[test]
fn a_deleted_account_drops_its_tokens() {
    let cluster = Cluster::start();
    let f = authority(&cluster, "token-review", "audiences = [\"postern\"]");
    until("accounts are watched", || state(&f, Resource::ServiceAccounts) == WatchState::Watching);
    until("there is no OpenShift", || state(&f, Resource::OAuthAccessTokens) == WatchState::Absent);
    quiet();
    assert_eq!((with(&f, "ada"), with(&f, "bob")), (200, 200));
    cluster.refuse(true);
    cluster.tell("serviceaccounts", "MODIFIED", "team", "ada", 200);
    cluster.tell("serviceaccounts", "DELETED", "other", "ada", 201);
    until("the events came", || f.gateway().watches()[0].events == 1);
    assert_eq!((with(&f, "ada"), with(&f, "bob"), cluster.reviews()), (200, 200, 2));
    cluster.tell("serviceaccounts", "DELETED", "team", "ada", 202);
    let took = until("the token is dropped", || with(&f, "ada") == 401);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(with(&f, "bob"), 200, "another's is not");
}

#[test]
fn a_server_that_still_believes_in_a_deleted_account_is_not_believed() {
    let cluster = Cluster::start();
    let f = authority(&cluster, "token-review", "audiences = [\"postern\"]");
    until("accounts are watched", || state(&f, Resource::ServiceAccounts) == WatchState::Watching);
    quiet();
    assert_eq!((with(&f, "ada"), with(&f, "bob")), (200, 200));
    cluster.tell("serviceaccounts", "DELETED", "team", "ada", 200);
    until("the token is refused", || with(&f, "ada") == 401);
    // Only the event revokes it: the server's answer is unchanged.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((with(&f, "ada"), with(&f, "bob")), (401, 200));
    assert!(cluster.reviews() > 2, "it was asked again");
}

#[test]
fn a_token_whose_account_is_deleted_meanwhile_is_asked_about_again() {
    let cluster = Cluster::start();
    let f = authority(&cluster, "token-review", "audiences = [\"postern\"]");
    until("accounts are watched", || state(&f, Resource::ServiceAccounts) == WatchState::Watching);
    quiet();
    cluster.play.keeps_back.store(true, SeqCst);
    let request = "GET /a HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer ada\r\n\r\n";
    let (mut before, mut after) = (f.connect(), f.connect());
    before.send(request);
    until("the question is on its way", || cluster.reviews() == 1);
    cluster.refuse(true);
    // Without its uid, only a new query can find out.
    let deleted = r#"{"type":"DELETED","object":{"metadata":{"name":"ada","namespace":"team","resourceVersion":"200"}}}"#;
    cluster.order("serviceaccounts", || Order::Send(deleted.to_owned()));
    until("the event came", || f.gateway().watches()[0].events == 1);
    after.send(request);
    std::thread::sleep(Duration::from_millis(100));
    cluster.play.keeps_back.store(false, SeqCst);
    assert_eq!((before.response().status, after.response().status), (401, 401));
    assert_eq!(cluster.reviews(), 2, "once more, for both");
}

#[test]
fn a_deleted_token_of_openshift_is_dropped() {
    let cluster = Cluster::start();
    cluster.play.openshift.store(true, SeqCst);
    let f = authority(&cluster, "openshift-user", "prefixes = [\"sha256~\"]");
    settled(&f);
    assert_eq!((with(&f, "sha256~secret"), with(&f, "sha256~other")), (200, 200));
    cluster.refuse(true);
    assert_eq!(with(&f, "sha256~secret"), 200);
    cluster.tell(
        "oauthaccesstokens",
        "DELETED",
        "",
        "sha256~K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols",
        200,
    );
    until("the token is dropped", || with(&f, "sha256~secret") == 401);
    assert_eq!(with(&f, "sha256~other"), 200);
    let lists = cluster.upstream.seen().into_iter().filter(|seen| seen.line().contains("limit=1"));
    assert!(lists.into_iter().all(|seen| seen.values("authorization") == ["Bearer account"]));
}

#[test]
fn a_reload_keeps_watches_and_a_changed_cluster_drops_what_rested_on_them() {
    let cluster = Cluster::start();
    let more = reviewing_text(&cluster, "ttl = \"1h\"");
    let f = fixture(&more);
    settled(&f);
    assert_eq!(f.get("/notebook/team-a/x").status, 200);
    f.reload(&Setup { more, server: "drain_timeout = \"7s\"".into(), ..Setup::default() });
    assert!(all(&f, WatchState::Watching));
    assert_eq!((cluster.begun("roles").len(), cluster.reviews()), (1, 1));
    f.reload(&Setup { more: reviewing_text(&cluster, "ttl = \"2h\""), ..Setup::default() });
    until("the new one watches", || all(&f, WatchState::Watching));
    assert_eq!(cluster.begun("roles").len(), 2);
    cluster.refuse(true);
    assert_eq!(f.get("/notebook/team-a/x").status, 403, "it remembers nothing of the old one's");
    f.reload(&Setup { more: reviewing_text(&cluster, "watch = false"), ..Setup::default() });
    assert!(all(&f, WatchState::Off));
}

#[test]
fn questions_beyond_the_limit_are_refused_at_once_and_counted() {
    let cluster = Cluster::start();
    let ask = || {
        let f = fixture(&reviewing_text(&cluster, "watch = false\nmax_per_second = 2"));
        let began = Instant::now();
        let statuses: Vec<u16> = (0..6).map(|n| f.get(&format!("/notebook/team-a/{n}")).status).collect();
        (f, statuses, began.elapsed())
    };
    // All requests must fall into one second. A busy machine may need several attempts, and a
    // request that waits would not finish in it.
    let tries = (0..20).map(|_| ask()).find(|(_, _, took)| *took < Duration::from_millis(400));
    let (f, statuses, _) = tries.expect("nobody waits");
    assert_eq!(statuses, [200, 200, 503, 503, 503, 503]);
    let reviews = f.gateway().reviews().unwrap();
    assert_eq!((reviews.allowed, reviews.throttled, reviews.failed), (2, 4, 0));
    assert_eq!(f.get("/notebook/team-a/0").status, 200, "what is known is not asked");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(f.get("/notebook/team-a/2").status, 200);
    let f =
        authority(&cluster, "token-review", "audiences = [\"postern\"]\nwatch = false\nmax_per_second = 1");
    assert_eq!((with(&f, "a"), with(&f, "b")), (200, 503));
    assert_eq!(f.gateway().authenticator().authorities()[0].throttled, 1);
}
