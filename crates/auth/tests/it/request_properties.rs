//! Canonical requests: what is true for every input.

use auth::request::{Canonical, RawRequest, Scheme};
use proptest::prelude::*;

use crate::fixtures::forwarded;
use crate::model_server::{ServerStep, decode, read_path};

/// Targets with many significant parts: dots, slashes, escapes, escaped escapes, parameters.
fn targets() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/",
        ".",
        "..",
        "%2e",
        "%2E",
        "%25",
        "%252e",
        "%25%32%65",
        "2e",
        "2f",
        "%2f",
        "%5c",
        "%3b",
        "%3f",
        "%23",
        "%40",
        "%252f",
        "//",
        "/../",
        ";",
        ";x",
        "a",
        "b1",
        "%61",
        "%C3%A4",
        "%c3",
        "%a4",
        "%20",
        "%",
        "?",
        "=",
        "&",
        "|",
        "{",
        "\\",
        "#",
        " ",
        "%00",
        "~",
        "%7e",
        "25",
        "5",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// Hosts with many upper-case letters, dots, ports and non-ASCII letters.
fn hosts() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "B",
        "xn--",
        "-",
        "_",
        ".",
        "。",
        "ü",
        "Ü",
        "ß",
        ":",
        "443",
        "80",
        "8080",
        "0",
        "[",
        "]",
        "::1",
        "@",
        "ｅ",
        "kva",
        "bcher-kva",
        "%",
        "xn--bcher-kva",
        "\u{200d}",
        "٣",
    ]);
    prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
}

fn raw<'a>(host: &'a str, target: &'a [u8]) -> RawRequest<'a> {
    RawRequest { method: "GET", scheme: Scheme::Https, authority: None, host: Some(host.as_bytes()), target }
}

/// Servers as orders of steps.
fn servers() -> impl Strategy<Value = Vec<ServerStep>> {
    prop::collection::vec(prop::sample::select(&ServerStep::ALL[..]), 0..7)
}

fn has_dot_segment(path: &[u8]) -> bool {
    path.split(|b| matches!(b, b'/' | b'\\'))
        .map(|segment| segment.split(|&b| b == b';').next().unwrap_or_default())
        .any(|name| matches!(name, b"." | b".."))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonicalisation_is_idempotent(host in hosts(), target in targets()) {
        if let Ok(once) = Canonical::parse(&raw(&host, target.as_bytes())) {
            let (authority, target) = (once.authority().to_owned(), forwarded(&once));
            let twice = Canonical::parse(&raw(&authority, target.as_bytes()));
            prop_assert_eq!(twice.as_ref(), Ok(&once));
            let again = once.rewritten(once.forwarded_path()).unwrap();
            prop_assert_eq!(&again, &once);
        }
    }

    #[test]
    fn hosts_are_idempotent(host in hosts()) {
        if let Ok(once) = Canonical::parse(&raw(&host, b"/")) {
            let authority = once.authority().to_owned();
            prop_assert!(authority.is_ascii() && !authority.bytes().any(|b| b.is_ascii_uppercase()));
            let again = Canonical::parse(&raw(&authority, b"/")).unwrap();
            prop_assert_eq!(again.authority(), &authority);
        }
    }

    #[test]
    fn no_path_of_one_reading_hides_a_dot_segment_however_often_it_is_decoded(target in targets()) {
        let request = Canonical::parse(&raw("example.com", target.as_bytes()));
        let request = request.ok().filter(|request| request.strict_fault().is_none());
        if let Some(request) = request {
            let mut path = request.path().as_bytes().to_vec();
            let segments = path.split(|&b| b == b'/').count();
            loop {
                prop_assert!(!has_dot_segment(&path), "{} hides {:?}", target, String::from_utf8_lossy(&path));
                prop_assert!(!path.windows(2).any(|w| w == b"//"));
                prop_assert!(!path.iter().any(|b| matches!(b, 0..=0x1F | 0x7F | b'\\' | b'#' | b'?')));
                prop_assert_eq!(path.split(|&b| b == b'/').count(), segments);
                let decoded = decode(&path);
                if decoded == path {
                    break;
                }
                path = decoded;
            }
        }
    }

    #[test]
    fn the_readings_contain_what_a_server_reads(target in targets(), server in servers()) {
        if let Ok(request) = Canonical::parse(&raw("example.com", target.as_bytes())) {
            let sent = request.forwarded_path();
            let known = [request.path()].into_iter().chain(request.other_readings().iter().map(|r| &**r));
            let known: Vec<&str> = known.collect();
            if let Some(read) = read_path(&server, sent) {
                prop_assert!(known.contains(&&*read), "{} is read as {} by {:?}: {:?}", sent, read, server, known);
            }
        }
    }

    #[test]
    fn an_accepted_path_means_what_was_sent(target in targets()) {
        if let Ok(request) = Canonical::parse(&raw("example.com", target.as_bytes())) {
            let sent = target.split('?').next().unwrap();
            prop_assert_eq!(decode(request.path().as_bytes()), decode(sent.as_bytes()));
            prop_assert_eq!(request.query(), target.split_once('?').map(|(_, query)| query));
            if !request.other_readings().is_empty() {
                prop_assert_eq!(request.forwarded_path(), sent);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        method in "\\PC{0,12}",
        authority in prop::option::of(prop::collection::vec(any::<u8>(), 0..24)),
        host in prop::option::of(prop::collection::vec(any::<u8>(), 0..24)),
        target in prop::collection::vec(any::<u8>(), 0..48),
    ) {
        let raw = RawRequest {
            method: &method,
            scheme: Scheme::Http,
            authority: authority.as_deref(),
            host: host.as_deref(),
            target: &target,
        };
        if let Ok(request) = Canonical::parse(&raw) {
            prop_assert!(request.path().is_ascii() && request.authority().is_ascii());
        }
    }
}
