//! An attacker between a gateway and the provider that it follows. The attacker records answers and
//! replays them, and changes queries and answers.

use std::time::{Duration, Instant};

use super::filter_proxy::FilterProxy;
use super::fixture::{MAX_ACCEPTANCE, Node, Town, until};

/// Messages that are not a valid answer to their query.
fn refused(gateway: &Node) -> f64 {
    let issuer = &gateway.provider;
    gateway
        .metric(&format!("postern_revocation_messages_total{{issuer=\"http://{issuer}\",kind=\"refused\"}}"))
}

#[test]
fn an_answer_that_was_recorded_lets_nobody_in_later() {
    let town = Town::new("replayed", 1, "sqlite://postern.db?mode=rwc");
    let sieve = FilterProxy::before(&town.nodes[0].provider);
    sieve.shut("/revocation/events");
    let elsewhere = town.elsewhere_by_way_of(&sieve.url, "");
    let (token, other) = (town.nodes[0].token(), town.nodes[0].token());
    assert_eq!(elsewhere.status(&token), 200);
    // Without a lease it queries each token.
    sieve.swallow("/revocation/messages");
    sieve.record("/revocation/query");
    until(|| elsewhere.status(&token) == 200 && sieve.has_recorded("/revocation/query"), "asked about");
    sieve.replay("/revocation/query");
    town.nodes[0].revoke(&token);
    let revoked = Instant::now();
    let mut last = 503;
    while revoked.elapsed() < MAX_ACCEPTANCE + Duration::from_secs(2) {
        let began = Instant::now();
        last = elsewhere.status(&token);
        assert!([200, 503].contains(&last), "{last}");
        assert!(
            last == 503 || began - revoked < MAX_ACCEPTANCE,
            "admitted {:?} after it was revoked",
            began - revoked
        );
    }
    assert_eq!((last, elsewhere.status(&other)), (503, 503), "what is no answer says nothing of anybody");
    assert!(sieve.kept() > 0 && refused(&elsewhere) >= 1.0, "it is counted");
    sieve.open("/revocation/query");
    until(|| elsewhere.status(&token) == 401, "refused");
    assert_eq!(elsewhere.status(&other), 200);
}

/// Asks for denied tags after the last possible tag: a valid answer to another query.
fn ask_for_the_end(query: &mut Vec<u8>) {
    query.truncate(18);
    query.push(1);
    query.extend([255; 16]);
}

/// Keeps the head and says that nothing else is denied.
fn cut(answer: &mut Vec<u8>) {
    answer.truncate(3 + 16 + 24);
    answer.extend([0; 5]);
}

fn as_it_is(_: &mut Vec<u8>) {}

#[test]
fn a_copy_of_what_is_denied_that_is_not_whole_is_none() {
    let town = Town::new("cut-short", 1, "sqlite://postern.db?mode=rwc");
    let (revoked, other) = (town.nodes[0].token(), town.nodes[0].token());
    town.nodes[0].revoke(&revoked);
    let sieve = FilterProxy::before(&town.nodes[0].provider);
    for (request, answer) in
        [(as_it_is as fn(&mut Vec<u8>), cut as fn(&mut Vec<u8>)), (ask_for_the_end, as_it_is)]
    {
        sieve.change("/revocation/denylist", request, answer);
        let elsewhere = town.elsewhere_by_way_of(&sieve.url, "");
        until(|| refused(&elsewhere) >= 1.0, "refused");
        let issuer = &town.nodes[0].provider;
        let whole = format!("postern_revocation_denylist_complete{{issuer=\"http://{issuer}\"}}");
        for _ in 0..20 {
            assert_eq!([elsewhere.status(&revoked), elsewhere.status(&other)], [401, 200], "it asks");
            assert!(elsewhere.metric(&whole) < 0.5);
        }
        sieve.open("/revocation/denylist");
        until(|| elsewhere.metric(&whole) > 0.5, "whole");
        assert_eq!([elsewhere.status(&revoked), elsewhere.status(&other)], [401, 200]);
    }
}
