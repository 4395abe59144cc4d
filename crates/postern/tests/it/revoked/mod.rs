//! Revoked tokens of a provider: every gateway that follows it refuses them, and exchanges that use
//! them are cut.

mod dropping_proxy;
mod edge;
mod everywhere;
mod failover;
mod filter_proxy;
pub(crate) mod fixture;
#[cfg(feature = "lab")]
mod lossy_network;
mod pairwise;
mod read_only;
mod replayed;
mod silent;
mod waiting;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use coherence::revocation_query::ANSWER_TIMEOUT as QUESTION;

use self::filter_proxy::FilterProxy;
use self::fixture::{CUT, MAX_ACCEPTANCE, Town, until};
use crate::support::{Running, database_of_its_own, exchange, get, output_text, postern, psql};
use dataplane::ports::free;

/// Shared secret of another provider.
const ANOTHERS_SECRET: &str =
    "b0wMbMcGOdaxCFKiJ67hYZefddjm6EBLPbRYfLsuysCsqz/3YtdU820CafhCU0BSgRobvPBFGtKsnBgWDLcY1g==.1\n";

/// Revokes at the first node. Checks that every gateway refuses the token in time and permanently,
/// and no other token.
fn revoke_everywhere(town: &Town) {
    let (token, other) = (town.nodes[0].token(), town.nodes[0].token());
    for node in &town.nodes {
        // The second time it is in the cache.
        assert_eq!([node.status(&token), node.status(&token), node.status(&other)], [200; 3]);
    }
    town.nodes[0].revoke(&token);
    let revoked = Instant::now();
    for node in &town.nodes {
        loop {
            let asked = Instant::now();
            match node.status(&token) {
                401 => break,
                200 => {
                    assert!(
                        asked - revoked < MAX_ACCEPTANCE,
                        "admitted {:?} after it was revoked",
                        asked - revoked
                    );
                }
                status => panic!("{status}"),
            }
        }
    }
    for node in &town.nodes {
        assert_eq!([node.status(&token), node.status(&other)], [401, 200]);
    }
}

#[test]
fn a_token_that_was_revoked_is_refused() {
    let town = Town::new("one", 1, "sqlite://postern.db?mode=rwc");
    revoke_everywhere(&town);
    let node = &town.nodes[0];
    let token = node.token();
    node.revoke(&token);
    until(|| node.status(&token) == 401, "refused");
    let answer = node.call("/", &token);
    assert!(answer.contains("error=\"invalid_token\"") && answer.contains("token was revoked"), "{answer}");
    let issuer = &node.provider;
    assert!(node.metric(&format!("postern_revocation_lease_seconds{{issuer=\"http://{issuer}\"}}")) > 3.0);
    let events = format!("postern_revocation_events_total{{issuer=\"http://{issuer}\"}}");
    until(|| node.metric(&events) >= 2.0, "counted");
}

#[test]
fn what_is_in_use_is_cut_off_when_its_token_is_revoked() {
    let town = Town::new("stream", 1, "sqlite://postern.db?mode=rwc");
    let node = &town.nodes[0];
    let (token, other) = (node.token(), node.token());
    let (cut, left) = (node.stream(&token), node.stream(&other));
    std::thread::sleep(Duration::from_millis(700));
    assert!(!cut.is_finished(), "nothing was revoked yet");
    node.revoke(&token);
    let revoked = Instant::now();
    assert!(cut.join().unwrap() - revoked < CUT);
    std::thread::sleep(Duration::from_millis(700));
    assert!(!left.is_finished(), "it is another token's");
}

#[test]
fn whoever_begins_later_knows_what_was_revoked_before() {
    let mut town = Town::new("later", 1, "sqlite://postern.db?mode=rwc");
    let token = town.nodes[0].token();
    town.nodes[0].revoke(&token);
    town.stop();
    town.start_again();
    let node = &town.nodes[0];
    let other = node.token();
    until(|| node.status(&other) == 200, "ready");
    assert_eq!(node.status(&token), 401);
}

#[test]
fn every_node_on_one_database_refuses_what_one_of_them_revoked() {
    let (url, _) = database_of_its_own("revoked");
    let town = Town::new("nodes", 2, &url);
    for _ in 0..5 {
        revoke_everywhere(&town);
    }
}

#[test]
fn a_gateway_elsewhere_refuses_what_was_revoked() {
    let town = Town::new("elsewhere", 1, "sqlite://postern.db?mode=rwc");
    let before = town.nodes[0].token();
    town.nodes[0].revoke(&before);
    let elsewhere = town.remote_gateway("");
    assert_eq!(elsewhere.status(&before), 401, "revoked before it began");
    for _ in 0..3 {
        town.revoke_and_watch(&elsewhere);
    }
    let issuer = &town.nodes[0].provider;
    let asked = format!("postern_revocation_queries_total{{issuer=\"http://{issuer}\",result=\"good\"}}");
    assert!(elsewhere.metric(&asked) < 1.0, "it knows by itself");
}

#[test]
fn what_is_asked_about_is_remembered_until_it_is_revoked() {
    let town = Town::new("opaque", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = town.remote_gateway("");
    for gateway in [&town.nodes[0], &elsewhere] {
        town.revoke_and_watch_of("opaque", gateway);
        let asked = "postern_token_authority_requests_total{authority=\"opaque\",result=\"good\"}";
        let (token, before) = (town.nodes[0].token_of("opaque"), gateway.metric(asked));
        assert_eq!([gateway.status(&token), gateway.status(&token), gateway.status(&token)], [200; 3]);
        assert!((gateway.metric(asked) - before - 1.0).abs() < 0.1, "asked once");
        let stream = gateway.stream(&token);
        town.nodes[0].revoke(&token);
        let revoked = Instant::now();
        assert!(stream.join().unwrap() - revoked < CUT);
        assert_eq!(gateway.status(&token), 401);
    }
}

#[test]
fn a_gateway_that_hears_of_nobody_admits_nobody_and_calls_no_token_bad() {
    let mut town = Town::new("silence", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = town.remote_gateway("");
    let (token, revoked) = (town.nodes[0].token(), town.nodes[0].token());
    assert_eq!([elsewhere.status(&token), elsewhere.status(&revoked)], [200; 2]);
    let stream = elsewhere.stream(&token);
    town.nodes[0].revoke(&revoked);
    until(|| elsewhere.status(&revoked) == 401, "refused");
    town.nodes[0].process.signal("-KILL");
    let gone = Instant::now();
    loop {
        let asked = Instant::now();
        match elsewhere.status(&token) {
            503 => break,
            200 => assert!(asked - gone < MAX_ACCEPTANCE, "admitted {:?} after the last word", asked - gone),
            status => panic!("{status}"),
        }
    }
    let answer = elsewhere.call("/", &token);
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.to_lowercase().contains("retry-after: "),
        "{answer}"
    );
    assert!(stream.join().unwrap() - gone < CUT, "what is open rests on the same word");
    let ready = get(&elsewhere.admin, "/readyz");
    assert!(ready.contains("sends nothing"), "{ready}");
    assert_ne!(elsewhere.status(&revoked), 200);

    let file = town.folder.0.join("node-0.toml");
    town.nodes[0].process = Running::start(&["serve", "--config", file.to_str().unwrap()]);
    until(|| elsewhere.status(&token) == 200, "admitted again");
    assert_eq!(elsewhere.status(&revoked), 401, "what was refused once stays refused");
}

#[test]
fn what_is_open_is_cut_in_time_when_questions_are_swallowed() {
    let town = Town::new("swallowed", 1, "sqlite://postern.db?mode=rwc");
    let sieve = FilterProxy::before(&town.nodes[0].provider);
    let elsewhere = town.elsewhere_by_way_of(&sieve.url, "");
    let token = town.nodes[0].token();
    // The streams are checked at different times.
    let open = || {
        std::thread::sleep(Duration::from_millis(120));
        elsewhere.stream(&token)
    };
    let streams: Vec<_> = (0..4).map(|_| open()).collect();
    sieve.swallow("/revocation/messages");
    sieve.swallow("/revocation/query");
    let silent = Instant::now();
    let late = Duration::from_millis(400);
    for stream in streams {
        let after = stream.join().unwrap() - silent;
        assert!(after < CUT + late, "cut {after:?} after the last word");
    }
    assert_eq!(elsewhere.status(&token), 503);
}

#[test]
fn whoever_has_another_secret_hears_nothing() {
    let town = Town::new("stranger", 1, "sqlite://postern.db?mode=rwc");
    town.folder.write("follow.secret", ANOTHERS_SECRET);
    let mut stranger = town.start_elsewhere("");
    stranger.process.wait_for("refused the secret of this gateway");
    let ready = get(&stranger.admin, "/readyz");
    assert!(ready.contains(" 503 ") && ready.contains("has not sent its revocations yet"), "{ready}");
    assert_eq!(stranger.status(&town.nodes[0].token()), 503);
}

/// A NATS server for one test.
pub(crate) struct Broker {
    child: std::process::Child,
    pub(crate) url: String,
}

impl Broker {
    pub(crate) fn start() -> Self {
        let address = free();
        let (host, port) = address.rsplit_once(':').unwrap();
        let child = std::process::Command::new("nats-server")
            .args(["-a", host, "-p", port])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("nats-server is not there: run dev/setup brokers");
        until(|| TcpStream::connect(&address).is_ok(), "listening");
        Self { child, url: format!("nats://{address}") }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_broker_tells_gateways_elsewhere_at_once_and_its_end_harms_nobody() {
    let broker = Broker::start();
    let more = format!("[revocation]\nbrokers = [\"{}\"]\n", broker.url);
    let town = Town::with("broker", 1, "sqlite://postern.db?mode=rwc", &more);
    // Only the broker sends events without a query.
    let sieve = FilterProxy::before(&town.nodes[0].provider);
    sieve.shut("/revocation/events");
    let elsewhere = town.elsewhere_by_way_of(&sieve.url, &more);
    until(|| !get(&elsewhere.admin, "/readyz").contains("the transport is"), "connected");
    until(|| !get(&town.nodes[0].admin, "/readyz").contains("the transport is"), "connected");
    let mut times: Vec<_> = (0..11).map(|_| town.revoke_and_watch(&elsewhere)).collect();
    times.sort_unstable();
    // Without a broker it would take a quarter of a second.
    assert!(times[5] < Duration::from_millis(150), "{times:?}");
    drop(broker);
    let told = |text: &str| get(&elsewhere.admin, "/readyz").contains(text);
    until(|| told("NATS"), "noticed");
    // It is queried over HTTP, which renews the lease.
    for _ in 0..3 {
        let ready = get(&elsewhere.admin, "/readyz");
        assert!(
            ready.contains(" 200 ") && ready.contains("is reachable, but not over every transport; "),
            "{ready}"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
    for _ in 0..3 {
        town.revoke_and_watch(&elsewhere);
    }
}

#[test]
fn without_a_broker_gateways_elsewhere_are_told_at_once() {
    let mut town = Town::new("told", 1, "sqlite://postern.db?mode=rwc");
    let sieve = FilterProxy::before(&town.nodes[0].provider);
    let elsewhere = town.elsewhere_by_way_of(&sieve.url, "");
    // The first event may be appended before the stream is open.
    town.revoke_and_watch(&elsewhere);
    let (token, other) = (town.nodes[0].token(), town.nodes[0].token());
    assert_eq!([elsewhere.status(&token), elsewhere.status(&other)], [200; 2]);
    // It can send no more queries and uses its lease. New events arrive over the stream only.
    sieve.shut("/revocation/messages");
    sieve.shut("/revocation/query");
    until(|| sieve.kept() > 0, "asked in vain");
    town.nodes[0].revoke(&token);
    until(|| elsewhere.status(&token) == 401, "refused, by what it was told");
    assert_eq!(elsewhere.status(&other), 200, "while the lease lasts");
    // An open event stream does not prevent the provider from stopping.
    town.nodes[0].process.signal("-TERM");
    assert_eq!(town.nodes[0].process.ended(), Some(0));
}

#[test]
fn what_is_told_is_told_to_whoever_has_the_secret() {
    let town = Town::new("listeners", 1, "sqlite://postern.db?mode=rwc");
    let address = &town.nodes[0].provider;
    let answer = get(address, "/revocation/events");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    for path in ["denylist", "query", "messages"] {
        let request = format!("POST /revocation/{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        let answer = exchange(address, &(request + "Content-Length: 0\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
    }
    let config = town.folder.0.join("node-0.toml");
    let printed = postern(&["admin", "--config", config.to_str().unwrap(), "revocation", "secret"]);
    let text = String::from_utf8(printed.stdout).unwrap();
    let secret = coherence::secret::SharedSecret::parse(&text).unwrap();
    let bearer = secret.bearer();
    let ask = |request: &str, body: &str| {
        exchange(
            address,
            &format!(
                "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                &*bearer,
                body.len()
            ),
        )
    };
    for (request, body) in [
        ("POST /revocation/denylist", ""),
        ("POST /revocation/denylist", "{}"),
        // A query of the other kind.
        ("POST /revocation/denylist", "\u{1}\u{1}0123456789abcdef\0\0\0\0"),
        ("POST /revocation/query", "\u{1}\u{2}0123456789abcdef\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        ("POST /revocation/query", "{\"tags\":[]}"),
        // Fewer tags than the count says.
        ("POST /revocation/query", "\u{1}\u{1}0123456789abcdef\0\0\0\u{9}"),
    ] {
        let answer = ask(request, body);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
    }
    let answer = ask("POST /revocation/messages", "what nobody made");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{\"messages\":[]}"), "{answer}");
    let answer = ask("POST /revocation/messages", &"a".repeat(300 << 10));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[test]
fn a_gateway_that_stood_still_does_not_go_on_with_what_it_knew() {
    let town = Town::new("still", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = town.remote_gateway("");
    let (token, other) = (town.nodes[0].token(), town.nodes[0].token());
    assert_eq!([elsewhere.status(&token), elsewhere.status(&other)], [200; 2]);
    elsewhere.process.signal("-STOP");
    town.nodes[0].revoke(&token);
    // Longer than every timer and every peer's time limit.
    std::thread::sleep(Duration::from_secs(30));
    elsewhere.process.signal("-CONT");
    // It queries, or has caught up. The state from before the pause has expired.
    for _ in 0..100 {
        assert_eq!(elsewhere.status(&token), 401);
    }
    until(|| elsewhere.status(&other) == 200, "admitted");
}

#[test]
fn a_wall_clock_that_is_wrong_lets_nobody_in_who_was_revoked() {
    let town = Town::new("clock", 1, "sqlite://postern.db?mode=rwc");
    let clock = town.folder.write("clock", "+0");
    let elsewhere = town.elsewhere_with_clock(&clock);
    for shift in ["+1h", "-1h", "+0"] {
        // With a clock that is an hour late, a token that it sees for the first time would be from
        // the future.
        town.folder.write("clock", "+0");
        let (token, other) = (town.nodes[0].token(), town.nodes[0].token());
        assert_eq!([elsewhere.status(&token), elsewhere.status(&other)], [200; 2], "{shift}");
        town.folder.write("clock", shift);
        assert_eq!(
            [elsewhere.status(&token), elsewhere.status(&other)],
            [200; 2],
            "{shift}: neither has expired"
        );
        town.nodes[0].revoke(&token);
        let revoked = Instant::now();
        loop {
            let asked = Instant::now();
            match elsewhere.status(&token) {
                401 => break,
                200 => assert!(asked - revoked < MAX_ACCEPTANCE, "{shift}: still admitted"),
                status => panic!("{shift}: {status}"),
            }
        }
        assert_eq!(elsewhere.status(&other), 200, "{shift}");
    }
    // It uses the faulty clock: the token is valid for three hours only.
    let other = town.nodes[0].token();
    town.folder.write("clock", "+4h");
    let answer = elsewhere.call("/", &other);
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("expired"), "{answer}");
}

#[test]
fn a_restored_provider_is_another_history_and_what_was_refused_stays_refused() {
    let mut town = Town::new("restored", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = town.remote_gateway("");
    let (token, revoked) = (town.nodes[0].token(), town.nodes[0].token());
    assert_eq!([elsewhere.status(&token), elsewhere.status(&revoked)], [200; 2]);
    town.nodes[0].revoke(&revoked);
    until(|| elsewhere.status(&revoked) == 401, "refused");

    let file = town.folder.0.join("node-0.toml");
    let (config, copy) = (file.to_str().unwrap(), town.folder.0.join("copy"));
    let admin = |verb: &str| {
        let done = postern(&["admin", "--config", config, verb, copy.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(0), "{}", output_text(&done));
    };
    admin("backup");
    town.stop();
    town.folder.write("database.url", "sqlite://restored.db?mode=rwc");
    admin("restore");
    town.start_again();

    let issuer = &town.nodes[0].provider;
    let flushes =
        format!("postern_revocation_cache_flushes_total{{issuer=\"http://{issuer}\",cause=\"epoch\"}}");
    until(|| get(&elsewhere.admin, "/metrics").contains(&flushes), "flushed");
    until(|| elsewhere.status(&token) == 200, "admitted");
    assert_eq!(elsewhere.status(&revoked), 401);
    town.revoke_and_watch(&elsewhere);
}

#[test]
fn a_file_that_was_put_back_is_another_history() {
    let mut town = Town::new("put-back", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = town.remote_gateway("");
    let tokens: Vec<_> = (0..4).map(|_| town.nodes[0].token()).collect();
    for token in &tokens {
        assert_eq!(elsewhere.status(token), 200);
    }
    let (file, kept) = (town.folder.0.join("postern.db"), town.folder.0.join("kept.db"));
    town.stop();
    std::fs::copy(&file, &kept).unwrap();
    town.start_again();
    for token in &tokens[..2] {
        town.nodes[0].revoke(token);
        until(|| elsewhere.status(token) == 401, "refused");
    }
    town.stop();
    for beside in ["postern.db-wal", "postern.db-shm"] {
        let _ = std::fs::remove_file(town.folder.0.join(beside));
    }
    std::fs::copy(&kept, &file).unwrap();
    town.start_again();
    // The numbers of earlier revocations now belong to other events, from the first or the second
    // on.
    for token in &tokens[2..] {
        town.nodes[0].revoke(token);
        let revoked = Instant::now();
        until(|| elsewhere.status(token) == 401, "refused");
        assert!(revoked.elapsed() < MAX_ACCEPTANCE, "{:?}", revoked.elapsed());
    }
}

#[test]
fn a_hundred_thousand_revocations_at_once_are_taken_up_and_nobody_else_notices() {
    let (url, _) = database_of_its_own("flood");
    let town = Town::new("flood", 1, &url);
    let elsewhere = town.remote_gateway("");
    let token = town.nodes[0].token();
    assert_eq!(elsewhere.status(&token), 200);
    // One transaction: these events are not pushed, and they are too many to send again.
    psql(
        &url,
        "WITH head AS (UPDATE invalidation_head SET seq = seq + 100000 WHERE id = 1 RETURNING seq), \
         log AS (INSERT INTO invalidation_log (seq, tags, not_before, until, reason, at) \
         SELECT head.seq - 100000 + n, decode(md5(n::text), 'hex'), NULL, 9000000000000, 'flood', 0 \
         FROM head, generate_series(1, 100000) n RETURNING seq, tags) \
         INSERT INTO denials (tag, seq, not_before, expires_at) SELECT tags, seq, NULL, 9000000000000 FROM log",
    );
    let issuer = &town.nodes[0].provider;
    for gateway in [&town.nodes[0], &elsewhere] {
        let value =
            |name: &str| gateway.metric(&format!("postern_revocation_{name}{{issuer=\"http://{issuer}\"}}"));
        // While the denylist is copied, each token is queried. A request without an answer within
        // the query's time limit gets 503, which happens when other programs use the CPUs. No
        // request is refused earlier or with another status.
        let (mut admitted, mut unanswered) = (0, 0);
        let taken_up = || {
            let asked = Instant::now();
            match gateway.status(&token) {
                200 => admitted += 1,
                503 if asked.elapsed() >= QUESTION => unanswered += 1,
                other => panic!("somebody else's token: {other} after {:?}", asked.elapsed()),
            }
            value("denylist_entries") >= 100_000.0
                && value("denylist_complete") > 0.5
                && value("lag_events") < 0.5
        };
        until(taken_up, "taken up");
        assert!(admitted > 4 * unanswered, "{admitted} admitted, {unanswered} without an answer");
        assert_eq!(gateway.status(&token), 200, "all is known now");
        assert!(value("lease_seconds") > 0.0);
    }
    town.revoke_and_watch(&elsewhere);
}
