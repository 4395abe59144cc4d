//! Three processes: a provider, an authorizer that follows it, and an edge gateway that queries the
//! authorizer and caches its responses.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use super::fixture::{CUT, MAX_ACCEPTANCE, Node, Town, authority, service, until};
use crate::support::{Running, output_text, postern};
use dataplane::ports::free;

/// A process with a listener and these tables. It follows the provider of `town`, at another URL if
/// one is named.
pub(super) fn gateway(town: &Town, listener: &str, follow: &str, tables: &str) -> Node {
    let (issuer, gateway, admin) = (&town.nodes[0].provider, free(), free());
    let secret = town.folder.0.join("follow.secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "[server]\nreload_on_change = false\nworkers = 1\n[admin]\naddress = \"{admin}\"\n\
         [access_log]\nformat = \"off\"\n\
         [[listener]]\nname = \"main\"\naddress = \"{gateway}\"\n{listener}\n\
         [[issuer]]\nname = \"own\"\nissuer = \"http://{issuer}\"\naudiences = [\"orders\"]\n{follow}\n{tables}"
    );
    let file = format!("asked-{gateway}.toml");
    let process = Running::start(&["serve", "--config", town.folder.write(&file, text).to_str().unwrap()]);
    Node { provider: issuer.clone(), gateway, admin, process, file }
}

pub(super) const FOLLOW: &str = "revocation.secret_file = \"follow.secret\"";

/// The authorizer. It permits every request with a token, and its responses may be cached for a
/// minute.
fn authorizer(town: &Town) -> Node {
    let tables = format!(
        "{}[[route]]\nname = \"all\"\npolicy = {{ allow = [{{ authenticated = true }}] }}\n",
        authority(&town.nodes[0].provider)
    );
    let listener = "authorization = { from = [\"127.0.0.1\"], http = \"envoy\", max_age = \"60s\" }";
    let mut node = gateway(town, listener, FOLLOW, &tables);
    node.begun();
    node
}

/// The edge gateway, which queries the authorizer and authorizes nothing itself.
fn edge(town: &Town, authorizer: &Node, follow: &str, more: &str) -> Node {
    let tables = format!(
        "[[upstream]]\nname = \"auth\"\nendpoints = [\"http://{}\"]\n\
         [[upstream]]\nname = \"service\"\nendpoints = [\"http://{}\"]\n\
         [[authorizer]]\nname = \"other\"\nupstream = \"auth\"\n{more}\n\
         [[route]]\nname = \"all\"\nupstream = \"service\"\npublic = true\nauthorizer = \"other\"\n",
        authorizer.gateway,
        service()
    );
    let mut node = gateway(town, "", follow, &tables);
    node.process.wait_for("listening");
    node
}

fn asked(edge: &Node, result: &str) -> f64 {
    let name = format!("postern_authorizer_requests_total{{authorizer=\"other\",result=\"{result}\"}}");
    edge.metric(&name)
}

/// Waits until the response to the last query is cached.
fn until_kept(edge: &Node, token: &str) {
    let kept = || {
        let before = asked(edge, "hit");
        assert_eq!([edge.status(token), edge.status(token)], [200; 2]);
        asked(edge, "hit") > before
    };
    until(kept, "kept");
}

#[test]
fn what_an_authorizer_permitted_ends_with_its_credential() {
    let town = Town::new("asked", 1, "sqlite://postern.db?mode=rwc");
    town.write_follow_secret();
    let authorizer = authorizer(&town);
    let edge = edge(&town, &authorizer, FOLLOW, "max_age = \"0s\"");
    assert_eq!(edge.status("nobodys"), 401);
    for client in ["app", "opaque"] {
        let (token, other) = (town.nodes[0].token_of(client), town.nodes[0].token_of(client));
        for token in [&token, &other] {
            // The first revocation state of the issuer may still be missing.
            until_kept(&edge, token);
        }
        let before = asked(&edge, "allowed");
        assert_eq!([edge.status(&token), edge.status(&token), edge.status(&other)], [200; 3]);
        assert_eq!(asked(&edge, "allowed"), before, "{client}: the authorizer is not asked again");
        let stream = edge.stream(&token);
        town.nodes[0].revoke(&token);
        let revoked = Instant::now();
        let mut last = revoked;
        loop {
            let began = Instant::now();
            match edge.status(&token) {
                401 => break,
                200 => last = began,
                // The authorizer may not know yet what the edge knows.
                503 => {}
                status => panic!("{client}: {status}"),
            }
            assert!(began - revoked < MAX_ACCEPTANCE, "{client}: still admitted");
        }
        assert!(
            last - revoked < MAX_ACCEPTANCE,
            "{client}: admitted {:?} after it was revoked",
            last - revoked
        );
        assert!(stream.join().unwrap() - revoked < CUT, "{client}: what it had opened is cut");
        assert_eq!([edge.status(&token), edge.status(&other)], [401, 200]);
    }
}

#[test]
fn an_edge_that_does_not_hear_of_the_issuer_asks_each_time() {
    let town = Town::new("asked-deaf", 1, "sqlite://postern.db?mode=rwc");
    town.write_follow_secret();
    let authorizer = authorizer(&town);
    let token = town.nodes[0].token();
    let deaf = format!("{FOLLOW}\nrevocation.url = \"http://127.0.0.1:1\"\ninsecure_http = true");
    let deaf = edge(&town, &authorizer, &deaf, "");
    for _ in 0..5 {
        assert_eq!(deaf.status(&token), 200);
    }
    assert_eq!((asked(&deaf, "allowed"), asked(&deaf, "hit")), (5.0, 0.0));
    // A gateway that does not follow the issuer uses the shorter cache time for all.
    let other = edge(&town, &authorizer, "", "max_age = \"1s\"");
    assert_eq!([other.status(&token), other.status(&token)], [200; 2]);
    assert_eq!(asked(&other, "hit"), 1.0);
    town.nodes[0].revoke(&token);
    until(|| authorizer_refuses(&authorizer, &token), "refused where it is asked");
    assert_eq!(deaf.status(&token), 401, "it asks");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(other.status(&token), 401, "what it kept is too old");
}

fn authorizer_refuses(authorizer: &Node, token: &str) -> bool {
    authorizer.status(token) == 401
}

#[test]
fn whether_a_token_was_revoked_is_said_not_to_be_looked_at() {
    let town = Town::new("asked-check", 1, "sqlite://postern.db?mode=rwc");
    let token = town.nodes[0].token();
    let config = town.folder.0.join(&town.nodes[0].file);
    town.nodes[0].revoke(&token);
    let request = format!("GET http://{}/", town.nodes[0].gateway);
    let told =
        postern(&["check", "--config", config.to_str().unwrap(), "--as", &token, "--request", &request]);
    let text = output_text(&told);
    assert!(text.contains("revocation is not checked here"), "{text}");
}

/// Tables of a gateway that keeps exchanges open after the token expires.
fn keeping(town: &Town) -> String {
    format!(
        "clock_skew = \"0s\"\n{}[[upstream]]\nname = \"service\"\nendpoints = [\"http://{}\"]\n\
         [[route]]\nname = \"all\"\nupstream = \"service\"\non_expiry = \"keep\"\n\
         policy = {{ allow = [{{ authenticated = true }}] }}\n",
        authority(&town.nodes[0].provider),
        service()
    )
}

#[test]
fn what_is_kept_beyond_the_end_of_its_token_is_cut_when_that_is_revoked() {
    let client = |name: &str, form: &str| {
        format!(
            "[[provider.client]]\nid = \"{name}\"\nsecret_files = [\"app.secret\"]\naccess_token = \"{form}\"\n\
             grants = [\"client_credentials\"]\naudiences = [\"orders\"]\naccess_token_lifetime = \"3s\"\n"
        )
    };
    let more = [client("brief", "jwt"), client("brief-opaque", "opaque")].concat();
    let town = Town::with("kept", 1, "sqlite://postern.db?mode=rwc", &more);
    town.write_follow_secret();
    let mut node = gateway(&town, "", FOLLOW, &keeping(&town));
    node.begun();
    let provider = &town.nodes[0];
    for client in ["brief", "brief-opaque"] {
        let (token, other) = (provider.token_of(client), provider.token_of(client));
        let (cut, left) = (node.stream(&token), node.stream(&other));
        until(|| node.status(&token) == 401, "expired");
        // Longer than an exchange without `keep` would stay open.
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!cut.is_finished() && !left.is_finished(), "{client}: kept");
        let answer = provider.post(client, "/revoke", &format!("token={token}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let revoked = Instant::now();
        assert!(cut.join().unwrap() - revoked < CUT, "{client}");
        assert!(!left.is_finished(), "{client}: it is another token's");
    }
}
