//! An issuer that answers no queries: tokens that need a query are refused at once, and accepted
//! again with its first answer.

use std::time::{Duration, Instant};

use super::dropping_proxy::DroppingProxy;
use super::fixture::{Node, Town, call, until};
use crate::support::get;

fn is_silent(gateway: &Node) -> bool {
    gateway.metric(&format!("postern_revocation_silent{{issuer=\"http://{}\"}}", gateway.provider)) > 0.5
}

/// Checks that each token is refused `times` times, with several concurrent requests.
fn all_refused(gateway: &Node, tokens: &[&str], times: usize) {
    let address = &gateway.gateway;
    let refused = |token: &str| {
        let answer = call(address, "/", token);
        let said = answer.to_lowercase();
        assert!(said.starts_with("http/1.1 503 ") && said.contains("retry-after: "), "{answer}");
    };
    std::thread::scope(|scope| {
        for token in tokens {
            scope.spawn(move || (0..times).for_each(|_| refused(token)));
        }
    });
}

#[test]
fn who_answers_nothing_is_not_asked_and_one_question_at_a_time_looks_whether_it_is_back() {
    let town = Town::new("hole", 1, "sqlite://postern.db?mode=rwc");
    let hole = DroppingProxy::before(&town.nodes[0].provider);
    let elsewhere = town.elsewhere_behind(&hole.url);
    let node = &town.nodes[0];
    let (token, other) = (node.token(), node.token());
    let (opaque, unknown) = (node.token_of("opaque"), node.token_of("opaque"));
    assert_eq!([elsewhere.status(&token), elsewhere.status(&opaque)], [200; 2]);
    let paths = ["/revocation/messages", "/revocation/query", "/introspect"];
    hole.drop_requests(&paths);
    until(|| is_silent(&elsewhere), "silent");
    let ready = get(&elsewhere.admin, "/readyz");
    assert!(ready.contains("sends nothing and does not answer"), "{ready}");

    // A query in flight is given up when the next one is sent.
    until(|| matches!(paths.map(|path| hole.most(path)), [0..=2, 0..=1, 0]), "given up");
    let (asked, began) = (paths.map(|path| hole.swallowed(path)), Instant::now());
    all_refused(&elsewhere, &[&token, &other, &opaque, &unknown], 100);
    let (asked_since, took) = (paths.map(|path| hole.swallowed(path)), began.elapsed());
    let [messages, confirm, introspect] = [0, 1, 2].map(|at| asked_since[at] - asked[at]);
    assert_eq!(introspect, 0, "of {messages}, {confirm}");
    // Queries depend on time only, not on requests.
    let seconds = usize::try_from(took.as_secs()).unwrap() + 1;
    assert!(messages <= 11 * seconds && confirm <= 1 + seconds, "{messages}, {confirm} in {took:?}");
    // Not later on either.
    std::thread::sleep(Duration::from_secs(1));
    // The query that is given up may still be counted.
    let [messages, confirm, introspect] = paths.map(|path| hole.most(path));
    assert!(messages <= 2 && confirm <= 1 && introspect == 0, "{messages}, {confirm}, {introspect} at once");
    assert!(is_silent(&elsewhere));

    hole.close();
    for token in [&token, &other, &opaque, &unknown] {
        until(|| elsewhere.status(token) == 200, "admitted again");
    }
    assert!(!is_silent(&elsewhere));
}

#[test]
fn who_stands_still_is_not_waited_for() {
    let town = Town::new("frozen", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = town.remote_gateway("");
    let node = &town.nodes[0];
    let (token, opaque, unknown) = (node.token(), node.token_of("opaque"), node.token_of("opaque"));
    assert_eq!([elsewhere.status(&token), elsewhere.status(&opaque)], [200; 2]);
    for _ in 0..2 {
        node.process.signal("-STOP");
        until(|| is_silent(&elsewhere), "silent");
        let began = Instant::now();
        all_refused(&elsewhere, &[&token, &opaque, &unknown], 100);
        // A request that waited for the issuer would be refused after one or three seconds.
        assert!(began.elapsed() < Duration::from_mins(1), "300 refusals took {:?}", began.elapsed());
        node.process.signal("-CONT");
        for token in [&token, &opaque, &unknown] {
            until(|| elsewhere.status(token) == 200, "admitted again");
        }
    }
}

#[test]
fn who_is_slow_is_not_silent() {
    let town = Town::new("slow", 1, "sqlite://postern.db?mode=rwc");
    let hole = DroppingProxy::before(&town.nodes[0].provider);
    let elsewhere = town.elsewhere_behind(&hole.url);
    let token = town.nodes[0].token();
    assert_eq!(elsewhere.status(&token), 200);
    hole.delay(&["/revocation/messages", "/revocation/query"], Duration::from_millis(1500));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        assert_eq!(elsewhere.status(&token), 200);
        assert!(!is_silent(&elsewhere));
    }
}

#[test]
fn who_can_be_asked_in_one_way_is_not_silent_though_nobody_asks() {
    let town = Town::new("one-way", 1, "sqlite://postern.db?mode=rwc");
    let hole = DroppingProxy::before(&town.nodes[0].provider);
    let elsewhere = town.elsewhere_by_way_of(&hole.url, "");
    let token = town.nodes[0].token();
    assert_eq!(elsewhere.status(&token), 200);
    hole.drop_requests(&["/revocation/messages"]);
    until(|| get(&elsewhere.admin, "/readyz").contains("each token is queried"), "without a lease");
    std::thread::sleep(Duration::from_secs(7));
    assert!(!is_silent(&elsewhere));
    assert_eq!(elsewhere.status(&token), 200);
}

#[test]
fn who_can_admit_somebody_else_stays_ready_and_who_cannot_does_not() {
    let town = Town::new("ready", 1, "sqlite://postern.db?mode=rwc");
    let public = "[[route]]\nname = \"public\"\npath = { prefix = \"/public\" }\nupstream = \"service\"\npublic = true\n";
    let (plain, open) = (town.remote_gateway(""), town.remote_gateway(public));
    let token = town.nodes[0].token();
    assert_eq!([plain.status(&token), open.status(&token)], [200; 2]);
    town.nodes[0].process.signal("-STOP");
    until(|| get(&plain.admin, "/readyz").contains(" 503 "), "known to be of no use");
    until(|| is_silent(&open), "silent");
    assert_eq!(open.status(&token), 503);
    let ready = get(&open.admin, "/readyz");
    assert!(ready.contains(" 200 ") && ready.contains("sends nothing and does not answer"), "{ready}");
    assert!(call(&open.gateway, "/public", "nobodys").starts_with("HTTP/1.1 200 "));
    town.nodes[0].process.signal("-CONT");
    until(|| get(&plain.admin, "/readyz").contains(" 200 "), "ready");
}
