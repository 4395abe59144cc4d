//! Security events that another issuer pushes to a gateway: which are accepted, which are refused
//! and how, and the effect on tokens, sessions and streams.

mod sessions;

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use auth::token::jws::{Signer, SigningAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_engine::clock::ManualClock;
use serde_json::{Value, json};
use store::{Epoch, Store};

use crate::login::provider::{Browser, SimulatedProvider};
use crate::support::{Folder, Running, exchange, get};
use dataplane::harness::{CONTROL, Upstream, now};
use dataplane::ports::free;

const KEY: &str = "sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=";
const BEARER: &str = "what-the-transmitter-shows";
const CAEP: &str = "https://schemas.openid.net/secevent/caep/event-type";

/// A gateway that trusts a provider which sends it events.
struct Town {
    provider: SimulatedProvider,
    address: String,
    admin: String,
    folder: Folder,
    process: Running,
    _service: Upstream,
}

/// A service that answers at once. Its response on `/stream` never ends.
fn service() -> Upstream {
    Upstream::answering(|seen, socket| {
        if !seen.line().starts_with("GET /stream ") {
            return socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok();
        }
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while socket.write_all(b"4\r\ndata\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    })
}

impl Town {
    /// Starts it with sessions in cookies.
    fn new(name: &str) -> Self {
        Self::with(name, "", "database = \"sqlite://events.db?mode=rwc\"")
    }

    fn with(name: &str, login: &str, events: &str) -> Self {
        let folder = Folder::new(&format!("events-{name}"));
        for (name, content) in [("keys", KEY), ("secret", "secret\n"), ("bearer", BEARER)] {
            let path = folder.write(name, content);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let provider = SimulatedProvider::new(&Arc::new(ManualClock::new(Timestamp::from_secs(now()))));
        let service = service();
        let (address, admin, url) = (free(), free(), &provider.url);
        folder.write(
            "postern.toml",
            format!(
                "[server]\nreload_on_change = false\nworkers = 1\n[admin]\naddress = \"{admin}\"\n\
                 [access_log]\nformat = \"off\"\n[[listener]]\nname = \"main\"\naddress = \"{address}\"\n\
                 [[issuer]]\nname = \"id\"\nissuer = \"{url}\"\naudiences = [\"orders\"]\n\
                 [[upstream]]\nname = \"service\"\nendpoints = [\"http://{}\"]\n\
                 [[route]]\nname = \"all\"\npath = {{ prefix = \"/\" }}\nupstream = \"service\"\nlogin = true\n\
                 policy = {{ allow = [{{ authenticated = true }}] }}\n\
                 [login]\norigins = [\"https://app.test\"]\nkeys_file = \"keys\"\n{login}\n\
                 [[login.provider]]\nname = \"id\"\nurl = \"{url}\"\nclient_id = \"gateway\"\n\
                 client_secret_file = \"secret\"\n\
                 [security_events]\n{events}\n\
                 [[security_events.transmitter]]\nname = \"id\"\nissuer = \"{url}\"\n\
                 audiences = [\"https://app.test\"]\nendpoint = \"https://app.test/events/id\"\n\
                 endpoint_token_file = \"bearer\"\n",
                service.address
            ),
        );
        let process = start(&folder, &admin);
        Self { provider, address, admin, folder, process, _service: service }
    }

    fn restart(&mut self) {
        self.process.signal("-KILL");
        self.process.ended();
        self.process = start(&self.folder, &self.admin);
    }

    fn status(&self, token: &str) -> u16 {
        let answer = exchange(
            &self.address,
            &format!(
                "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
            ),
        );
        status_of(&answer)
    }

    fn send(&self, lines: &str, body: &str) -> String {
        exchange(
            &self.address,
            &format!(
                "POST /events/id HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n{lines}\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
    }

    /// Status and error code of the response to a pushed token.
    fn push(&self, token: &str) -> (u16, String) {
        self.push_by(BEARER, token)
    }

    /// The same with another bearer token.
    fn push_by(&self, bearer: &str, token: &str) -> (u16, String) {
        let lines = format!("Content-Type: application/secevent+jwt\r\nAuthorization: Bearer {bearer}\r\n");
        answered(&self.send(&lines, token))
    }

    /// Reloads the configuration.
    fn reload(&mut self) {
        self.process.signal("-HUP");
        self.process.wait_for("configuration applied");
    }

    /// Pushes an event about a subject.
    fn tell(&self, kind: &str, subject: &Value) -> (u16, String) {
        let at = now();
        let event = json!({ format!("{CAEP}/{kind}"): {"event_timestamp": at} });
        self.push(&self.provider.signed("secevent+jwt", &json!({"sub_id": subject, "events": event})))
    }

    fn browser(&self) -> Browser {
        let address: SocketAddr = self.address.parse().unwrap();
        let mut browser = Browser::new(address, "app.test");
        browser.log_in(&self.provider, "/");
        browser
    }

    fn metric(&self, series: &str) -> f64 {
        let metrics = get(&self.admin, "/metrics");
        let line = metrics.lines().find(|line| line.starts_with(series));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    }
}

fn start(folder: &Folder, admin: &str) -> Running {
    let file = folder.0.join("postern.toml");
    let mut process = Running::start(&["serve", "--config", file.to_str().unwrap()]);
    process.wait_for("listening");
    until(|| get(admin, "/readyz").contains(" 200 "), "ready");
    process
}

fn until(mut what: impl FnMut() -> bool, name: &str) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(20), "not {name} in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the clock shows a later second than `second`.
fn after(second: u64) {
    until(|| now() > second + 1, "a later second");
}

fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

fn answered(answer: &str) -> (u16, String) {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let error = serde_json::from_str::<Value>(body).ok();
    let error = error.and_then(|error| error["err"].as_str().map(str::to_owned));
    (status_of(answer), error.unwrap_or_default())
}

const TAKEN: (u16, &str) = (202, "");

fn same(answer: &(u16, String), expected: (u16, &str)) -> bool {
    (answer.0, answer.1.as_str()) == expected
}

#[test]
fn what_somebody_tells_is_in_force_when_it_is_answered() {
    let town = Town::new("force");
    let url = town.provider.url.clone();
    let subjects = [
        json!({"format": "iss_sub", "iss": url, "sub": "u-1"}),
        json!({"format": "opaque", "id": "u-2"}),
        json!({"format": "email", "email": "u-3@EXAMPLE.com"}),
        json!({"format": "jwt_id", "iss": url, "jti": "t-4"}),
        json!({"format": "complex", "user": {"format": "iss_sub", "iss": url, "sub": "x"},
               "session": {"format": "opaque", "id": "s-5"}}),
        json!({"format": "sid", "sid": "s-6"}),
        json!({"format": "aliases", "identifiers": [{"format": "email", "email": "nobody@example.com"},
               {"format": "iss_sub", "iss": url, "sub": "u-7"}]}),
    ];
    let token = |n: usize| {
        town.provider.access_token(&json!({
            "sub": format!("u-{n}"), "sid": format!("s-{n}"), "jti": format!("t-{n}"),
            "email": format!("U-{n}@example.com"),
        }))
    };
    let tokens: Vec<String> = (1..=7).map(token).collect();
    // The second time they are in the cache.
    for token in tokens.iter().chain(&tokens) {
        assert_eq!(town.status(token), 200);
    }
    for (at, subject) in subjects.iter().enumerate() {
        let answer = town.tell("session-revoked", subject);
        assert!(same(&answer, TAKEN), "{subject}: {answer:?}");
        // The effect is immediate, so this does not wait.
        for (n, token) in tokens.iter().enumerate() {
            assert_eq!(town.status(token), if n <= at { 401 } else { 200 }, "{n} after {subject}");
        }
    }
    // The same event again has no effect. A token that was made afterwards is valid.
    assert!(same(&town.tell("session-revoked", &subjects[0]), TAKEN));
    after(now());
    let later = json!({"sub": "u-1", "jti": "t-later", "sid": "s-later", "iat": now(), "email": null});
    assert_eq!(town.status(&town.provider.access_token(&later)), 200);
    let series =
        "postern_security_events_total{transmitter=\"id\",type=\"session-revoked\",outcome=\"applied\"}";
    assert_eq!(town.metric(series), 8.0);
}

#[test]
fn every_kind_of_event_does_what_it_says() {
    let town = Town::new("kinds");
    let url = town.provider.url.clone();
    let user = |name: &str| json!({"format": "iss_sub", "iss": url, "sub": name});
    let token = |name: &str, iat: u64| {
        let claims =
            json!({"sub": name, "jti": format!("{name}-{iat}"), "sid": null, "email": null, "iat": iat});
        town.provider.access_token(&claims)
    };
    for kind in ["session-revoked", "credential-change", "token-claims-change"] {
        let old = token(kind, now() - 10);
        assert_eq!(town.status(&old), 200);
        assert!(same(&town.tell(kind, &user(kind)), TAKEN), "{kind}");
        assert_eq!(town.status(&old), 401, "{kind}");
    }
    after(now());
    for kind in ["session-revoked", "credential-change", "token-claims-change"] {
        assert_eq!(town.status(&token(kind, now())), 200, "{kind}: made after it");
    }
    let risc = "https://schemas.openid.net/secevent/risc/event-type";
    for kind in ["account-disabled", "account-purged"] {
        let old = token(kind, now() - 10);
        assert_eq!(town.status(&old), 200);
        let event = json!({ format!("{risc}/{kind}"): {} });
        let changes = json!({"sub_id": user(kind), "events": event});
        assert!(same(&town.push(&town.provider.signed("secevent+jwt", &changes)), TAKEN));
        assert_eq!(town.status(&old), 401, "{kind}");
    }
    // Events that concern nothing here are acknowledged.
    let bystander = token("bystander", now() - 10);
    let ssf = "https://schemas.openid.net/secevent/ssf/event-type";
    for (uri, payload) in [
        (format!("{ssf}/verification"), json!({"state": "VGhpcyBpcw"})),
        (format!("{ssf}/stream-updated"), json!({"status": "enabled"})),
        (format!("{CAEP}/device-compliance-change"), json!({"current_status": "compliant"})),
        ("https://example.com/of-our-own".into(), json!({})),
    ] {
        let changes = json!({"events": { uri.clone(): payload }, "sub_id": null});
        assert!(same(&town.push(&town.provider.signed("secevent+jwt", &changes)), TAKEN), "{uri}");
    }
    let foreign = json!({"format": "iss_sub", "iss": "https://elsewhere.example", "sub": "bystander"});
    assert!(same(&town.tell("session-revoked", &foreign), TAKEN));
    assert_eq!(town.status(&bystander), 200);
    for (kind, outcome, count) in
        [("verification", "ignored", 1.0), ("other", "ignored", 2.0), ("session-revoked", "foreign", 1.0)]
    {
        let series = format!(
            "postern_security_events_total{{transmitter=\"id\",type=\"{kind}\",outcome=\"{outcome}\"}}"
        );
        assert_eq!(town.metric(&series), count, "{series}");
    }
}

#[test]
fn whatever_is_not_quite_right_is_refused_by_its_name() {
    let town = Town::new("refused");
    let good = town.provider.signed("secevent+jwt", &json!({}));
    let hers = town.provider.access_token(&json!({}));
    faulty_tokens_are_refused(&town, &good, &hers);
    faulty_requests_are_refused(&town, &good, &hers);
    what_is_elsewhere_is_an_ordinary_route(&town);
    // The valid event is accepted after all of these.
    assert!(same(&town.push(&good), TAKEN));
    assert_eq!(town.status(&hers), 401);
    for outcome in [
        "bad_signature",
        "unknown_key",
        "alg_none",
        "wrong_audience",
        "wrong_type",
        "unsupported_subject",
        "too_large",
        "authentication_failed",
        "wrong_content_type",
    ] {
        let series = format!(
            "postern_security_events_total{{transmitter=\"id\",type=\"unknown\",outcome=\"{outcome}\"}}"
        );
        assert!(town.metric(&series) >= 1.0, "{series}");
    }
}

fn faulty_tokens_are_refused(town: &Town, good: &str, hers: &str) {
    let set = |changes: &Value| town.provider.signed("secevent+jwt", changes);
    let unsigned = {
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"secevent+jwt"}"#);
        format!("{head}.{}.", good.split('.').nth(1).unwrap())
    };
    let forged = {
        let (rest, signature) = good.rsplit_once('.').unwrap();
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        format!("{rest}.{flipped}{}", &signature[1..])
    };
    let stranger = Signer::generate(SigningAlgorithm::Es256).unwrap();
    let strange = {
        let claims = URL_SAFE_NO_PAD.decode(good.split('.').nth(1).unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        stranger.sign(&[("typ", "secevent+jwt")], &claims).unwrap()
    };
    let tenant = json!({"sub_id": {"format": "complex", "tenant": {"format": "opaque", "id": "t"}}});
    let late = json!({"iat": now() + 300});
    for (what, token, expected) in [
        ("a wrong signature", forged, (400, "invalid_key")),
        ("a key of nobody's", strange, (400, "invalid_key")),
        ("no signature", unsigned, (400, "invalid_key")),
        ("another issuer", set(&json!({"iss": "https://evil.example"})), (400, "invalid_issuer")),
        ("another audience", set(&json!({"aud": "https://other.test"})), (400, "invalid_audience")),
        ("another type", town.provider.signed("JWT", &json!({})), (400, "invalid_request")),
        ("a logout token", town.provider.signed("logout+jwt", &json!({})), (400, "invalid_request")),
        ("an end", set(&json!({"exp": now() + 300})), (400, "invalid_request")),
        ("no name", set(&json!({"jti": null})), (400, "invalid_request")),
        ("no events", set(&json!({"events": {}})), (400, "invalid_request")),
        ("of the future", set(&late), (400, "invalid_request")),
        ("a tenant", set(&tenant), (400, "invalid_request")),
        ("no token", "hello".to_owned(), (400, "invalid_request")),
        ("too large", set(&json!({"padding": "x".repeat(13_000)})), (400, "invalid_request")),
        ("nothing", String::new(), (400, "invalid_request")),
    ] {
        let answer = town.push(&token);
        assert!(same(&answer, expected), "{what}: {answer:?}");
        assert_eq!(town.status(hers), 200, "{what}");
    }
}

/// The content type of a security event, and the credential of its transmitter.
const KIND: &str = "Content-Type: application/secevent+jwt\r\n";

fn bearer() -> String {
    format!("Authorization: Bearer {BEARER}\r\n")
}

fn faulty_requests_are_refused(town: &Town, good: &str, hers: &str) {
    let bearer = bearer();
    for (what, lines, expected) in [
        ("nobody", KIND.to_owned(), (401, "authentication_failed")),
        (
            "somebody else",
            format!("{KIND}Authorization: Bearer {BEARER}x\r\n"),
            (401, "authentication_failed"),
        ),
        ("an empty token", format!("{KIND}Authorization: Bearer \r\n"), (401, "authentication_failed")),
        ("twice", format!("{KIND}{bearer}{bearer}"), (401, "authentication_failed")),
        ("a form", format!("{bearer}Content-Type: application/json\r\n"), (400, "invalid_request")),
        ("of no type", bearer.clone(), (400, "invalid_request")),
    ] {
        let answer = answered(&town.send(&lines, good));
        assert!(same(&answer, expected), "{what}: {answer:?}");
        assert_eq!(town.status(hers), 200, "{what}");
    }
    let looked = exchange(
        &town.address,
        "GET /events/id HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\nAccept: text/html\r\n\r\n",
    );
    assert!(
        looked.starts_with("HTTP/1.1 405 ") && looked.to_ascii_lowercase().contains("allow: post"),
        "{looked}"
    );
}

/// At another host, or below the path, it is an ordinary route.
fn what_is_elsewhere_is_an_ordinary_route(town: &Town) {
    let bearer = bearer();
    for (target, host) in
        [("/events/id", "other.test"), ("/events/id/x", "app.test"), ("/events/ID", "app.test")]
    {
        let answer = exchange(
            &town.address,
            &format!(
                "POST {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{KIND}{bearer}Content-Length: 0\r\n\r\n"
            ),
        );
        assert_eq!(status_of(&answer), 401, "{target} at {host}");
        assert!(!answer.contains("authentication_failed"), "{answer}");
    }
}

#[test]
fn a_restart_loses_nothing_that_was_taken() {
    let mut town = Town::new("restart");
    let (hers, his) = (
        town.provider.access_token(&json!({})),
        town.provider.access_token(&json!({"sub": "bob", "jti": "b", "sid": "b", "email": null})),
    );
    assert_eq!((town.status(&hers), town.status(&his)), (200, 200));
    let subject = json!({"format": "sid", "sid": "sid-9"});
    assert!(same(&town.tell("session-revoked", &subject), TAKEN));
    // The process is killed right after its response.
    town.restart();
    assert_eq!((town.status(&hers), town.status(&his)), (401, 200));
}

#[test]
fn what_was_made_before_all_that_is_remembered_is_refused() {
    let town = Town::new("older");
    let of = |iat: Value| town.provider.access_token(&json!({"iat": iat, "jti": iat.to_string()}));
    let day = 24 * 60 * 60;
    // It has not expired. But a revocation from more than a day ago would be forgotten.
    assert_eq!(town.status(&of(json!(now() - day - 60))), 401);
    assert_eq!(town.status(&of(Value::Null)), 401, "nobody knows how old it is");
    assert_eq!(town.status(&of(json!(now() - day + 600))), 200);
}

#[test]
fn a_token_that_is_taken_out_of_its_file_lets_nobody_in_any_more() {
    let mut town = Town::new("exchanged");
    let newer = "what-the-transmitter-shows-from-now-on";
    let event = town.provider.signed("secevent+jwt", &json!({}));
    assert!(same(&town.push_by(newer, &event), (401, "authentication_failed")));
    town.folder.write("bearer", format!("{newer}\n{BEARER}\n"));
    town.reload();
    assert!(same(&town.push_by(BEARER, &event), TAKEN) && same(&town.push_by(newer, &event), TAKEN));
    town.folder.write("bearer", newer);
    town.reload();
    assert!(same(&town.push_by(BEARER, &event), (401, "authentication_failed")));
    assert!(same(&town.push_by(newer, &event), TAKEN));
    // A file with another name does not need a restart either.
    let other = town.folder.write("other", "what-the-transmitter-shows-at-last");
    std::fs::set_permissions(other, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = town.folder.0.join("postern.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.replace("endpoint_token_file = \"bearer\"", "endpoint_token_file = \"other\""),
    )
    .unwrap();
    town.reload();
    assert!(same(&town.push_by(newer, &event), (401, "authentication_failed")));
    assert!(same(&town.push_by("what-the-transmitter-shows-at-last", &event), TAKEN));
}

#[test]
fn what_was_told_outlasts_sessions_that_a_reload_let_last_longer() {
    let mut town = Town::new("longer");
    let file = town.folder.0.join("postern.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let day = 24 * 60 * 60;
    let tell = |town: &Town, sid: &str| {
        let answer = town.tell("session-revoked", &json!({"format": "sid", "sid": sid}));
        assert!(same(&answer, TAKEN), "{answer:?}");
    };
    let live = |town: &mut Town, lifetime: &str| {
        let keys = "keys_file = \"keys\"\n";
        std::fs::write(&file, text.replace(keys, &format!("{keys}lifetime = \"{lifetime}\"\n"))).unwrap();
        town.reload();
    };
    tell(&town, "before");
    live(&mut town, "30d");
    tell(&town, "after");
    // Sessions that began meanwhile need events for as long.
    live(&mut town, "1h");
    tell(&town, "later");
    let remembered = CONTROL.block_on(async {
        let url = store::sqlite_url(&town.folder.0.join("events.db"));
        let store = Store::open(&url, Epoch([7; 16])).await.unwrap();
        let denied = store.prove_denied(None, 100).await.unwrap().1;
        store.close().await;
        denied.into_iter().map(|denied| denied.until.as_secs() - now()).collect::<Vec<_>>()
    });
    let around = |days: u64| remembered.iter().filter(|left| left.abs_diff(days * day) < 600).count();
    assert_eq!((remembered.len(), around(1), around(30)), (3, 1, 2), "{remembered:?}");
}

#[test]
fn a_token_of_the_future_does_not_outlive_an_event() {
    let town = Town::new("future");
    let user = |name: &str| json!({"format": "iss_sub", "iss": town.provider.url, "sub": name});
    let token = |name: &str, iat: u64| {
        town.provider.access_token(&json!({"sub": name, "jti": name, "sid": null, "email": null, "iat": iat}))
    };
    // Beyond the permitted skew of half a minute.
    for ahead in [60, 3600] {
        let far = token("far", now() + ahead);
        let answer = exchange(
            &town.address,
            &format!(
                "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\nAuthorization: Bearer {far}\r\n\r\n"
            ),
        );
        assert_eq!(status_of(&answer), 401, "{ahead}");
        assert!(answer.contains("claim `iat` is in the future"), "{answer}");
    }
    // Within the skew an event applies, and still applies when the time of the token has come.
    let (near, other) = (now() + 3, token("other", now() + 3));
    let ahead = token("near", near);
    assert_eq!([town.status(&ahead), town.status(&other)], [200; 2]);
    assert!(same(&town.tell("session-revoked", &user("near")), TAKEN));
    assert_eq!([town.status(&ahead), town.status(&other)], [401, 200]);
    after(near);
    assert_eq!([town.status(&ahead), town.status(&other)], [401, 200]);
}

#[test]
fn an_event_whose_time_is_in_milliseconds_counts_and_is_counted() {
    let town = Town::new("millis");
    let user = json!({"format": "iss_sub", "iss": town.provider.url, "sub": "u-1"});
    let token = town.provider.access_token(&json!({"sub": "u-1", "email": null}));
    assert_eq!(town.status(&token), 200);
    let event = json!({ format!("{CAEP}/session-revoked"): {"event_timestamp": now() * 1000} });
    let changes = json!({"sub_id": user, "events": event});
    let answer = town.push(&town.provider.signed("secevent+jwt", &changes));
    assert!(same(&answer, TAKEN), "{answer:?}");
    assert_eq!(town.status(&token), 401);
    let late = json!({ format!("{CAEP}/session-revoked"): {"event_timestamp": (now() + 300) * 1000} });
    let changes = json!({"sub_id": user, "events": late});
    let answer = town.push(&town.provider.signed("secevent+jwt", &changes));
    assert!(same(&answer, (400, "invalid_request")), "{answer:?}");
    let series = "postern_security_events_in_milliseconds_total{transmitter=\"id\"}";
    assert_eq!(town.metric(series), 1.0);
}
