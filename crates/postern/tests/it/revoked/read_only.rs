//! A database that answers but accepts no changes: valid tokens stay accepted, and nothing is
//! revoked until it accepts changes again.

use std::time::{Duration, Instant};

use super::fixture::{MAX_ACCEPTANCE, Node, Town, until};
use crate::provider_faults::leave_room;
use crate::support::{database_of_its_own, environment, get, psql};

/// More than two leases.
const LONG: Duration = Duration::from_secs(12);

struct Tokens {
    good: [String; 2],
    revoked: [String; 2],
}

impl Tokens {
    fn of(node: &Node) -> Self {
        let both = || [node.token(), node.token_of("opaque")];
        Self { good: both(), revoked: both() }
    }

    fn statuses(tokens: &[String; 2], gateway: &Node) -> [u16; 2] {
        [gateway.status(&tokens[0]), gateway.status(&tokens[1])]
    }
}

fn revoke(node: &Node, token: &str) -> bool {
    let client = if token.starts_with("ptn_") { "opaque" } else { "app" };
    let answer = node.post(client, "/revoke", &format!("token={token}"));
    let done = answer.starts_with("HTTP/1.1 200 ");
    assert!(done || answer.starts_with("HTTP/1.1 503 "), "{answer}");
    done
}

/// For longer than two leases nothing can be changed, and clients with valid tokens notice nothing.
/// Then changes work again.
fn goes_on_without_changes(town: &mut Town, set_writable: impl Fn(&Town, bool)) {
    let elsewhere = town.remote_gateway("");
    let tokens = Tokens::of(&town.nodes[0]);
    for gateway in [&town.nodes[0], &elsewhere] {
        assert_eq!(Tokens::statuses(&tokens.good, gateway), [200; 2]);
        assert_eq!(Tokens::statuses(&tokens.revoked, gateway), [200; 2]);
    }
    let stream = elsewhere.stream(&tokens.good[0]);
    set_writable(town, false);
    let began = Instant::now();
    while began.elapsed() < LONG {
        for gateway in [&town.nodes[0], &elsewhere] {
            let after = began.elapsed();
            assert_eq!(Tokens::statuses(&tokens.good, gateway), [200; 2], "after {after:?}");
            let ready = get(&gateway.admin, "/readyz");
            assert!(ready.starts_with("HTTP/1.1 200 "), "after {after:?}: {ready}");
        }
        assert!(!revoke(&town.nodes[0], &tokens.revoked[0]), "nothing is revoked that is not kept");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!stream.is_finished(), "what is open stays open");
    begins_meanwhile(town, &tokens.good[0]);
    let node = &mut town.nodes[0];
    let lease = format!("postern_revocation_lease_seconds{{issuer=\"http://{}\"}}", node.provider);
    for gateway in [&*node, &elsewhere] {
        assert!(gateway.metric(&lease) > 0.0, "each token need not be asked about");
    }
    assert!(get(&node.admin, "/readyz").contains("recent changes could not be stored: "));
    assert_eq!(
        ["proven", "writable"].map(|what| node.metric(&format!("postern_provider_database_{what}")) > 0.5),
        [true, false]
    );
    node.process.wait_for("dependency unavailable dependency=\"database\"");

    set_writable(town, true);
    for token in &tokens.revoked {
        until(|| revoke(&town.nodes[0], token), "revoked");
        let revoked = Instant::now();
        for gateway in [&town.nodes[0], &elsewhere] {
            until(|| gateway.status(token) == 401, "refused");
            assert!(revoked.elapsed() < MAX_ACCEPTANCE, "{:?}", revoked.elapsed());
        }
    }
    for gateway in [&town.nodes[0], &elsewhere] {
        assert_eq!(Tokens::statuses(&tokens.good, gateway), [200; 2]);
    }
    town.nodes[0].process.wait_for("dependency available again dependency=\"database\"");
}

#[test]
fn who_is_valid_goes_on_while_postgresql_takes_no_changes() {
    let (url, name) = database_of_its_own("readonly");
    let server = environment("POSTERN_TEST_POSTGRES").unwrap();
    let mut town = Town::new("read-only", 1, &url);
    goes_on_without_changes(&mut town, |_, writable| {
        let to = if writable { "off" } else { "on" };
        psql(&server, &format!("ALTER DATABASE {name} SET default_transaction_read_only = {to}"));
        // The setting applies to new sessions only.
        psql(
            &server,
            &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"),
        );
    });
}

/// A gateway that starts now cannot be registered and gets no lease. It queries each token, and
/// serves.
fn begins_meanwhile(town: &Town, token: &str) {
    let mut gateway = town.start_elsewhere("");
    gateway.begun();
    assert_eq!([gateway.status(token), gateway.status("nobodys")], [200, 401]);
    let asked = format!(
        "postern_revocation_queries_total{{issuer=\"http://{}\",result=\"good\"}}",
        town.nodes[0].provider
    );
    assert!(gateway.metric(&asked) >= 1.0);
    let ready = get(&gateway.admin, "/readyz");
    assert!(ready.contains(" 200 ") && ready.contains("each token is queried"), "{ready}");
}

#[test]
fn who_is_valid_goes_on_while_a_file_has_no_room() {
    let mut town = Town::with_limits_as_errors("no-room", "sqlite://postern.db?mode=rwc");
    goes_on_without_changes(&mut town, |town, writable| {
        // No file may grow beyond the current size of the write-ahead log.
        leave_room(&town.nodes[0].process.id(), (!writable).then_some(4096));
    });
}
