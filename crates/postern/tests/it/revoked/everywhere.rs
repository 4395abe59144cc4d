//! Proof of revocation everywhere: which consumers exist, which have applied an event, and whose
//! lease has ended.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::filter_proxy::FilterProxy;
use super::fixture::{CUT, MAX_ACCEPTANCE, Node, Town, call, until};
use crate::support::{database_of_its_own, get, output_text, postern};

impl Town {
    /// Runs `postern admin` at a node. Returns standard output and standard error.
    fn admin(&self, file: &str, arguments: &[&str]) -> (String, String) {
        self.admin_ends(0, file, arguments)
    }

    fn admin_ends(&self, code: i32, file: &str, arguments: &[&str]) -> (String, String) {
        let config = self.folder.0.join(file);
        let output = postern(&[&["admin", "--config", config.to_str().unwrap()], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", output_text(&output));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    }

    fn json(&self, file: &str, arguments: &[&str]) -> Value {
        let (text, _) = self.admin(file, &[&["--output", "json"], arguments].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Whether a gateway has a lease.
    fn leased(&self, file: &str) -> bool {
        self.json(file, &["revocation", "status"])["following"][0]["mode"] == "leased"
    }

    fn followers(&self) -> usize {
        let status = self.json("node-0.toml", &["revocation", "status"]);
        status["followers"]["items"].as_array().unwrap().len()
    }

    /// The text output for a revoked token.
    fn told_of(&self, token: &str) -> String {
        let file = self.folder.write("told-of.token", token);
        self.admin_ends(1, "node-0.toml", &["token", "inspect", file.to_str().unwrap()]).0
    }

    /// The JSON output of the first node for a revoked token.
    fn look(&self, token: &str) -> Value {
        let file = self.folder.write("looked-at.token", token);
        let arguments = ["--output", "json", "token", "inspect", file.to_str().unwrap()];
        let (text, _) = self.admin_ends(1, "node-0.toml", &arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

#[test]
fn all_that_a_client_had_so_far_ends_whatever_clocks_say() {
    // If the node's clock is ahead, its tokens look younger than the revocation. If it is late,
    // they look older.
    for (name, shift) in [("ahead", "+30"), ("late", "-30")] {
        let town = Town::with_clock(name, shift);
        let (node, elsewhere) = (&town.nodes[0], town.remote_gateway(""));
        for client in ["app", "opaque"] {
            let mut token = node.token_of(client);
            // Several of these happen in one second, by any clock.
            for _ in 0..4 {
                for gateway in [node, &elsewhere] {
                    assert_eq!(gateway.status(&token), 200, "{name}, {client}: it was given out afterwards");
                }
                town.admin("node-0.toml", &["client", "revoke", client]);
                let next = node.token_of(client);
                for gateway in [node, &elsewhere] {
                    until(|| gateway.status(&token) == 401, "refused");
                }
                token = next;
            }
        }
    }
}

/// Checks that after each response "refused everywhere", no gateway accepts the token again.
fn waits_for_all(town: &Town, gateways: &[&Node]) {
    let node = &town.nodes[0];
    for _ in 0..5 {
        let (token, other) = (node.token(), node.token());
        for gateway in gateways {
            assert_eq!([gateway.status(&token), gateway.status(&other)], [200; 2]);
        }
        let began = Instant::now();
        let answer = node.post("app", "/revoke", &format!("token={token}&wait=true"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(began.elapsed() < Duration::from_secs(3), "all is well, so nobody's lease is waited for");
        for gateway in gateways {
            assert_eq!([gateway.status(&token), gateway.status(&other)], [401, 200]);
        }
        assert_eq!(town.look(&token)["refused"], serde_json::json!({ "everywhere": true }));
    }
}

/// A gateway that has sent nothing yet is in no list, so the provider does not wait for its open
/// queries.
#[test]
fn who_comes_after_that_is_not_let_in_by_an_answer_of_before() {
    let town = Town::new("answers-of-before", 1, "sqlite://postern.db?mode=rwc");
    let sieve = FilterProxy::before(&town.nodes[0].provider);
    for path in ["/revocation/messages", "/revocation/events", "/revocation/denylist"] {
        sieve.shut(path);
    }
    town.write_follow_secret();
    let mut elsewhere = town.start_elsewhere_by_way_of(&sieve.url, "");
    elsewhere.process.wait_for("listening");
    for client in ["app", "opaque"] {
        let token = town.nodes[0].token_of(client);
        until(|| elsewhere.status(&token) == 200, "asked about");
        std::thread::scope(|scope| {
            let (gateway, token) = (&elsewhere.gateway, &token);
            let status = move || call(gateway, "/", token).split(' ').nth(1).unwrap_or_default().to_owned();
            // A request that waits for a connection is checked again, and some have to wait.
            let at_once: Vec<_> = (0..8).map(|_| scope.spawn(status)).collect();
            for one in at_once {
                one.join().unwrap();
            }
            sieve.hold("/revocation/query");
            let before = scope.spawn(status);
            until(|| sieve.held("/revocation/query") > 0, "answered");
            let answer = town.nodes[0].post(client, "/revoke", &format!("token={token}&wait=true"));
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            let after = scope.spawn(status);
            let waits = || elsewhere.metric("postern_requests_in_flight") > 1.5;
            until(|| after.is_finished() || waits(), "waiting, or told already");
            sieve.open("/revocation/query");
            let (before, after) = (before.join().unwrap(), after.join().unwrap());
            assert!(["200", "401", "503"].contains(&&*before), "{before}: it came before");
            assert!(["401", "503"].contains(&&*after), "{client}: {after}");
        });
        until(|| elsewhere.status(&token) == 401, "refused");
    }
}

#[test]
fn who_waits_is_told_when_everybody_refuses() {
    let town = Town::new("everywhere", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = [town.remote_gateway(""), town.remote_gateway("")];
    until(|| town.followers() == 3, "written down");
    waits_for_all(&town, &[&town.nodes[0], &elsewhere[0], &elsewhere[1]]);
    let file = town.folder.write("last.token", town.nodes[0].token());
    let (_, said) = town.admin("node-0.toml", &["--wait", "token", "revoke", file.to_str().unwrap()]);
    assert!(said.contains("all 3 consumers have applied it"), "{said}");
    let refused = town.nodes[0].post("opaque", "/revoke", "token=x&wait=maybe");
    assert!(
        refused.starts_with("HTTP/1.1 400 ") && refused.contains("wait is malformed: use true or false"),
        "{refused}"
    );
}

#[test]
fn nodes_on_one_database_have_one_list() {
    let (url, _) = database_of_its_own("everywhere");
    let town = Town::new("everywhere-nodes", 2, &url);
    let elsewhere = town.remote_gateway("");
    until(|| town.followers() == 3, "written down");
    waits_for_all(&town, &[&town.nodes[0], &town.nodes[1], &elsewhere]);
}

#[test]
fn a_key_that_leaked_is_gone_at_every_node_at_once() {
    let (url, _) = database_of_its_own("leaked");
    let town = Town::new("leaked", 2, &url);
    let keys = town.json("node-0.toml", &["key", "list"]);
    let signing = keys["items"].as_array().unwrap().iter().filter(|key| key["stage"] == "active");
    for key in signing.map(|key| key["kid"].as_str().unwrap()) {
        let published = || get(&town.nodes[1].provider, "/jwks").contains(key);
        assert!(published(), "{key}");
        town.admin("node-0.toml", &["--wait", "key", "revoke", key]);
        // Keys are read every five seconds in any case.
        let began = Instant::now();
        until(|| !published(), "gone");
        assert!(began.elapsed() < Duration::from_secs(4), "after {:?}", began.elapsed());
    }
}

#[test]
fn who_cannot_be_asked_is_waited_for_until_it_believes_nothing() {
    let town = Town::new("lapsed", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = town.remote_gateway("");
    until(|| town.followers() == 2, "written down");
    let token = town.nodes[0].token();
    assert_eq!(elsewhere.status(&token), 200);
    elsewhere.process.signal("-STOP");
    town.nodes[0].revoke(&token);
    let revoked = Instant::now();
    // The provider's own gateway confirms a moment later.
    let mut refused = Value::Null;
    until(
        || {
            refused = town.look(&token)["refused"].clone();
            // A machine that is slow enough looks for the first time when nobody is waited for any
            // more.
            let is_over = refused["everywhere"] == true && revoked.elapsed() >= Duration::from_secs(9);
            is_over || refused["not_yet"].as_array().is_some_and(|late| late.len() == 1)
        },
        "refused by all but one",
    );
    if revoked.elapsed() < Duration::from_secs(9) {
        assert_eq!(refused["everywhere"], false, "{refused}");
    }
    let (_, said) = town.admin("node-0.toml", &["revocation", "wait"]);
    assert!(revoked.elapsed() >= Duration::from_secs(5), "{said}");
    assert!(said.contains("have passed, and the lease of every consumer"), "{said}");
    // Its lease has ended, plus five seconds for the clock difference between two nodes.
    let told = town.told_of(&token);
    let is_waited_for = told.contains("; they refuse it in ");
    assert!(is_waited_for || revoked.elapsed() >= Duration::from_secs(9), "{told}");
    until(|| town.look(&token)["refused"]["everywhere"] == true, "refused everywhere");
    assert!(revoked.elapsed() >= Duration::from_secs(9));
    let told = town.told_of(&token);
    assert!(
        told.contains("refused everywhere; consumers without a confirmation and without a lease: gateway"),
        "{told}"
    );
    elsewhere.process.signal("-CONT");
    assert_eq!(elsewhere.status(&token), 401, "not for a moment");
    // A gateway that has gone delays others for at most one lease.
    drop(elsewhere);
    let took = |what| {
        let began = Instant::now();
        town.admin("node-0.toml", &["revocation", what]);
        began.elapsed()
    };
    // The second command waits for no consumer. It measures the time of a command.
    let (waited, command) = (took("wait"), took("status"));
    assert!(
        waited < MAX_ACCEPTANCE + 2 * command + Duration::from_secs(1),
        "{waited:?}; the command itself: {command:?}"
    );
}

#[test]
fn the_status_tells_both_ends() {
    let town = Town::new("status", 1, "sqlite://postern.db?mode=rwc");
    let elsewhere = town.remote_gateway("");
    until(|| town.followers() == 2, "written down");
    town.nodes[0].revoke(&town.nodes[0].token());
    until(
        || {
            let status = town.json("node-0.toml", &["revocation", "status"]);
            let followers = status["followers"]["items"].as_array().unwrap();
            status["followers"]["head"] == 1 && followers.iter().all(|follower| follower["behind"] == 0)
        },
        "applied",
    );
    let (text, _) = town.admin("node-0.toml", &["revocation", "status"]);
    assert!(text.starts_with("the log is at event 1; consumers:\n"), "{text}");
    for (kind, node) in [("gateway+provider", &town.nodes[0]), ("gateway", &elsewhere)] {
        let number = format!("/{} ", node.process.id());
        let line = text.lines().find(|line| line.contains(&number)).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(&format!("{kind} postern ")), "{line}");
    }
    assert!(text.contains("nothing") && text.contains("followed issuers of this gateway:"), "{text}");
    let status = town.json(&elsewhere.file, &["revocation", "status"]);
    assert_eq!(status["followers"], Value::Null, "it has no provider");
    let one = &status["following"][0];
    assert_eq!([&one["mode"], &one["transport"]], ["leased", "up"], "{status}");
    assert_eq!([&one["applied"], &one["lag"]], [1, 0], "{status}");
}

#[test]
fn the_secret_of_followers_is_exchanged_while_all_goes_on() {
    let mut town = Town::new("generations", 1, "sqlite://postern.db?mode=rwc");
    let mut elsewhere = town.remote_gateway("");
    let good = town.nodes[0].token();
    let streams = [town.nodes[0].stream(&good), elsewhere.stream(&good)];
    let file = town.folder.0.join("node-0.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let mut last = String::new();
    for generations in ["[1, 2]", "[2, 1]", "[2]"] {
        let with = format!("[provider]\nrevocation = {{ secret_generations = {generations} }}\n");
        town.folder.write("node-0.toml", before.replacen("[provider]\n", &with, 1));
        town.nodes[0].process.signal("-HUP");
        town.nodes[0].process.wait_for("configuration applied");
        let (printed, _) = town.admin("node-0.toml", &["revocation", "secret"]);
        assert_ne!(printed, last);
        // The consumers get the new secret a moment later, without an interruption.
        assert_eq!(elsewhere.status(&good), 200, "{generations}");
        town.revoke_and_watch(&elsewhere);
        town.folder.write("follow.secret", &printed);
        elsewhere.process.signal("-HUP");
        elsewhere.process.wait_for("configuration applied");
        until(|| town.leased(&elsewhere.file), "leased");
        town.revoke_and_watch(&elsewhere);
        assert_eq!(elsewhere.status(&good), 200, "{generations}");
        last = printed;
    }
    assert_eq!(last.lines().count(), 1);
    assert_eq!(last.split('.').nth(1), Some("2"), "the first is over");
    // A stream that was opened before the first step stays open until all earlier state has
    // expired. Then a revocation still ends it.
    std::thread::sleep(CUT + Duration::from_secs(2));
    assert!(streams.iter().all(|stream| !stream.is_finished()), "nothing was revoked");
    town.nodes[0].revoke(&good);
    let revoked = Instant::now();
    for stream in streams {
        assert!(stream.join().unwrap() - revoked < CUT);
    }
}
