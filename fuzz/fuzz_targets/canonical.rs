//! Canonical requests: the forwarded request is the one that was matched.
//!
//! Input: method, authority, host and target, one per line; an empty authority line means none.
//!
//! Checked for every accepted request:
//!
//! - Reading the request that would be forwarded gives the same request and the same route.
//! - Rewriting the path to itself changes nothing.
//! - If the path must have one reading, no number of decodings reveals a dot segment or another
//!   slash.

#![no_main]

use std::sync::LazyLock;

use auth::policy::route::{PathMatch, RouteMatch, RouteTable};
use auth::request::{Canonical, RawRequest, Scheme};
use libfuzzer_sys::fuzz_target;

static TABLE: LazyLock<RouteTable> = LazyLock::new(|| {
    let paths = [
        PathMatch::Any,
        PathMatch::Exact("/admin".into()),
        PathMatch::Prefix("/admin".into()),
        PathMatch::Template("/v1/{ns}/{rest...}".into()),
        PathMatch::Template("/{a}/b/{c}".into()),
    ];
    let routes = paths.into_iter().flat_map(|path| {
        [vec![], vec!["*.example.com".into()]].map(|hosts| RouteMatch {
            hosts,
            path: path.clone(),
            ..RouteMatch::default()
        })
    });
    RouteTable::build(routes.collect()).expect("the routes are distinct")
});

fuzz_target!(|data: &[u8]| {
    let mut lines = data.splitn(4, |&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let Ok(method) = str::from_utf8(line()) else { return };
    let (authority, host, target) = (line(), line(), line());
    let raw = RawRequest {
        method,
        scheme: Scheme::Https,
        authority: (!authority.is_empty()).then_some(authority),
        host: Some(host),
        target,
    };
    let Ok(matched) = Canonical::parse(&raw) else { return };
    let route = TABLE.find(&matched, &[]);
    if let Some(route) = route {
        for (_, value) in TABLE.captures(route, &matched) {
            assert!(matched.path().contains(value));
        }
    }

    let mut target = Vec::new();
    matched.write_target(&mut target);
    let sent =
        RawRequest { authority: None, host: Some(matched.authority().as_bytes()), target: &target, ..raw };
    let read = Canonical::parse(&sent).expect("what is forwarded is canonical");
    assert_eq!(read, matched);
    assert_eq!(TABLE.find(&read, &[]), route);

    if matched.path() == "*" {
        return;
    }
    assert_eq!(matched.rewritten(matched.forwarded_path()).as_ref(), Ok(&matched));
    assert_eq!(matched.query_values("a").count(), read.query_values("a").count());
    if matched.strict_fault().is_some() {
        return;
    }
    let mut path = matched.path().as_bytes().to_vec();
    let segments = path.split(|&byte| byte == b'/').count();
    loop {
        let names =
            path.split(|&byte| byte == b'/').map(|s| s.split(|&byte| byte == b';').next().unwrap_or(s));
        for name in names {
            assert!(!matches!(name, b"." | b".."), "a dot segment in {:?}", String::from_utf8_lossy(&path));
        }
        assert_eq!(path.split(|&byte| byte == b'/').count(), segments);
        assert!(!path.iter().any(|&byte| matches!(byte, b'\\' | b'?' | b'#') || byte.is_ascii_control()));
        let decoded = decode(&path);
        if decoded == path {
            break;
        }
        path = decoded;
    }
});

/// Decodes every well-formed escape once and leaves the rest, as a lenient server would.
fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let escape = match text[at..] {
            [b'%', high, low, ..] => digit(high).zip(digit(low)),
            _ => None,
        };
        if let Some((high, low)) = escape {
            out.push(high << 4 | low);
            at += 3;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}
