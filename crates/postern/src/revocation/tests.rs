//! Tests of the parent module.

use http_engine::config::ListenAddress;

use super::names::{called, issuer_name};
use super::transports::database_transports;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ::config::{ConfigSource, FileSystem};
use auth::time::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

#[test]
fn issuers_are_called_by_their_address() {
    assert_eq!(issuer_name("https://login.example/realm").as_str(), "login.example/realm");
    assert_eq!(issuer_name(&format!("https://{}", "a".repeat(100))).as_str().len(), PeerName::MAX);
    assert_eq!(issuer_name("https://").as_str(), "issuer");
}

#[tokio::test]
async fn messages_are_as_well_protected_as_facts() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("provider.secret");
    std::fs::write(&secret, "q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=\n").unwrap();
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    for mode in ["sslmode=require", "sslmode=REQUIRE", "ssl-mode=require", "ssl%6Dode=requ%69re"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let text = format!(
            "[provider]\nissuer = \"http://127.0.0.1:1\"\naddress = \"127.0.0.1:1\"\naudiences = [\"orders\"]\n\
             database = \"postgres://postern@{address}/postern?{mode}\"\nsecret_file = \"provider.secret\"\n"
        );
        let source =
            ConfigSource { name: "postern.toml", text: &text, base: folder.path(), files: &FileSystem };
        let loaded = config::load(source, Timestamp::from_secs(1_800_000_000), 1);
        let loaded = loaded.unwrap_or_else(|refused| panic!("{}", refused.report));
        let _ways =
            database_transports(&loaded.provider.unwrap().database, &store::database_outage("database"));
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 8];
        socket.read_exact(&mut request).await.unwrap();
        assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47], "{mode}: TLS is asked for before anything else");
        socket.write_all(b"N").await.unwrap();
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "{mode}: nothing is said without");
    }
}

#[test]
fn a_process_is_called_as_operators_know_it() {
    let address = |text: &str| ListenAddress::Ip(text.parse().unwrap());
    for (address, shown) in [
        (Some(address("0.0.0.0:8443")), "gateway edge :8443 "),
        (Some(address("127.0.0.1:80")), "gateway edge 127.0.0.1:80 "),
        (Some(ListenAddress::Unix(Path::new("/run/postern.sock").into())), "gateway edge postern.sock "),
        // The port is not known yet.
        (Some(address("127.0.0.1:0")), "gateway edge "),
        (None, "gateway edge "),
    ] {
        let name = called("gateway", "edge", address.as_ref());
        let (machine, number) = name.as_str().strip_prefix(shown).unwrap().rsplit_once('/').unwrap();
        assert!(!machine.is_empty() && !machine.contains(' '), "{name}");
        assert_eq!(number, std::process::id().to_string());
    }
    let long = called("gateway and provider", &"ä".repeat(100), Some(&address("[2001:db8::1:2:3:4]:65535")));
    assert!(long.as_str().ends_with(&format!("/{}", std::process::id())), "{long}");
}

#[test]
fn what_is_told_of_an_issuer_is_true() {
    let (lease, down) = (Duration::from_secs(10), TransportState::Down("NATS at b:1: gone".into()));
    let left = |seconds| Lease::Left(Duration::from_secs_f64(seconds));
    assert_eq!(describe_reachability("https://a", left(9.8), lease, &TransportState::Up), None);
    for (known, way, text) in [
        // A broker is down, but the lease is renewed over HTTP.
        (
            left(9.8),
            &down,
            "issuer https://a is reachable, but not over every transport; the transport is down: NATS at b:1: gone",
        ),
        (
            left(3.2),
            &down,
            "issuer https://a sends nothing: its lease ends in 3.2 s; the transport is down: NATS at b:1: gone",
        ),
        (left(3.2), &TransportState::Up, "issuer https://a sends nothing: its lease ends in 3.2 s"),
        (Lease::Ended, &TransportState::Up, "issuer https://a sends nothing: each token is queried"),
        (
            Lease::Silent,
            &down,
            "issuer https://a sends nothing and does not answer: requests with its tokens are refused with 503 until it does; the transport is down: NATS at b:1: gone",
        ),
    ] {
        assert_eq!(describe_reachability("https://a", known, lease, way).as_deref(), Some(text));
    }
}

#[test]
fn no_number_is_used_twice() {
    let mut nonce = nonces().unwrap();
    let (a, b) = (nonce(), nonce());
    assert_ne!(a, b);
    assert_ne!(a, nonces().unwrap()(), "nor by two processes");
    let halves: std::collections::BTreeSet<[u8; 8]> =
        (0..100).flat_map(|_| random_nonce().unwrap().0.as_chunks::<8>().0.to_vec()).collect();
    assert_eq!(halves.len(), 200, "of a query's no half is known from another");
}
