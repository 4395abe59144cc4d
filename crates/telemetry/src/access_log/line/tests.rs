use std::net::{Ipv4Addr, Ipv6Addr};

use auth::identity::CredentialKind;
use http_engine::labels::Outcome;
use proptest::prelude::*;
use serde_json::Value;

use super::super::{ForwardedTo, RequestProtocol, RequestTarget};
use super::*;
use crate::phases::CacheUse;
use crate::trace_context::TraceId;

fn identity(subject: &str, user: &str) -> auth::identity::Identity {
    auth::identity::Identity {
        kind: CredentialKind::Jwt,
        issuer: "corp".into(),
        subject: subject.into(),
        user: Some(user.into()),
        email: Some("never@logged".into()),
        client: None,
        groups: vec!["never-logged".into()],
        groups_elsewhere: false,
        scopes: Vec::new(),
        claims: vec![("never".into(), vec!["logged".into()])],
    }
}

fn record() -> AccessRecord<'static> {
    AccessRecord {
        time: Timestamp::from_millis(1_795_237_811_007),
        listener: "public",
        peer: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 200), 65_535)),
        client: None,
        protocol: RequestProtocol::Http11,
        target: Some(RequestTarget {
            method: "GET",
            host: "api.example",
            path: "/v1/items",
            other_path: None,
        }),
        status: 200,
        outcome: Outcome::Allowed,
        reason: None,
        request_id: None,
        upstream_fault: None,
        route: Some("items"),
        identity: None,
        forwarded: Some(ForwardedTo {
            upstream: "app",
            endpoint: "10.0.0.1:8080",
            duration_nanos: 1_250_000,
            retries: 2,
        }),
        bytes_in: 0,
        bytes_out: 1024,
        total_nanos: 1_500_123,
        cache_result: Some(CacheUse::Hit),
        trace: TraceId::from_bytes([0xab; 16]),
    }
}

fn render(style: Style, record: &AccessRecord<'_>) -> String {
    let mut out = Vec::new();
    Formatter::new(style).append(record, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_json_line() {
    let alice = identity("s-1", "alice");
    let line = render(Style::Json, &AccessRecord { identity: Some(&alice), ..record() });
    assert_eq!(
        line,
        concat!(
            r#"{"time":"2026-11-21T05:10:11.007Z","listener":"public","peer":"192.0.2.200:65535","#,
            r#""protocol":"HTTP/1.1","method":"GET","host":"api.example","path":"/v1/items","status":200,"#,
            r#""outcome":"allowed","route":"items","subject":"s-1","user":"alice","issuer":"corp","#,
            r#""upstream":"app","endpoint":"10.0.0.1:8080","upstream_ms":1.25,"retries":2,"bytes_in":0,"bytes_out":1024,"#,
            r#""duration_ms":1.500123,"cache":"hit","trace":"abababababababababababababababab"}"#,
            "\n"
        )
    );
}

#[test]
fn a_text_line() {
    let bob = identity("s 2", "bo\"b");
    let denied = AccessRecord {
        identity: Some(&bob),
        peer: SocketAddr::from((Ipv6Addr::LOCALHOST, 80)),
        client: None,
        protocol: RequestProtocol::Http2,
        status: 403,
        outcome: Outcome::Forbidden,
        reason: Some("no_rule"),
        forwarded: None,
        cache_result: None,
        trace: None,
        ..record()
    };
    assert_eq!(
        render(Style::Text, &denied),
        concat!(
            "time=2026-11-21T05:10:11.007Z listener=public peer=[::1]:80 protocol=HTTP/2 method=GET ",
            r#"host=api.example path=/v1/items status=403 outcome=forbidden reason=no_rule "#,
            r#"route=items subject="s 2" user="bo\"b" issuer=corp bytes_in=0 bytes_out=1024 duration_ms=1.500123"#,
            "\n"
        )
    );
}

#[test]
fn a_malformed_request_has_no_target() {
    let malformed = AccessRecord {
        target: None,
        status: 400,
        outcome: Outcome::Malformed,
        reason: Some("bad_escape"),
        route: None,
        forwarded: None,
        cache_result: None,
        trace: None,
        ..record()
    };
    let line: Value = serde_json::from_str(&render(Style::Json, &malformed)).unwrap();
    for absent in ["method", "host", "path", "route", "subject"] {
        assert!(line.get(absent).is_none(), "{absent}");
    }
    assert_eq!(line["reason"], "bad_escape");
    let unanswered = render(Style::Json, &AccessRecord { status: 0, ..malformed });
    assert!(!unanswered.contains("status"), "{unanswered}");
}

#[test]
fn long_texts_are_cut_between_characters() {
    let path = format!("/{}", "é".repeat(4000));
    let target = RequestTarget { path: &path, ..record().target.unwrap() };
    for style in [Style::Json, Style::Text] {
        let line = render(style, &AccessRecord { target: Some(target), ..record() });
        assert!(line.contains("é…\"") && line.len() < 3000, "{}", line.len());
    }
}

#[test]
fn time_is_rfc_3339() {
    let mut clock = Clock::default();
    for (millis, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (951_868_800_001, "2000-03-01T00:00:00.001Z"),
        (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (4_107_542_400_050, "2100-03-01T00:00:00.050Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (u64::MAX, "9999-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(clock.text(Timestamp::from_millis(millis)), text);
    }
}

/// Parses a logfmt line; panics if it is malformed.
fn logfmt(line: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = line.strip_suffix('\n').unwrap();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').unwrap();
        assert!(!key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{key}");
        let length = if let Some(quoted) = after.strip_prefix('"') {
            let mut escaped = false;
            let end = quoted.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.unwrap() + 2
        } else {
            after.find(' ').unwrap_or(after.len())
        };
        let value = &after[..length];
        // quoted values are JSON strings
        let text =
            if value.starts_with('"') { serde_json::from_str(value).unwrap() } else { value.to_owned() };
        pairs.push((key.to_owned(), text));
        rest = after[length..].strip_prefix(' ').unwrap_or_else(|| {
            assert_eq!(after.len(), length);
            ""
        });
    }
    pairs
}

fn nasty() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec![
        '"',
        '\\',
        '\n',
        '\r',
        '\t',
        '\0',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{9b}',
        '\u{2028}',
        '\u{202e}',
        '\u{feff}',
        '=',
        ' ',
        ',',
        '}',
        '…',
        '😀',
        '\u{e0041}',
    ]);
    prop::collection::vec(prop_oneof![special, any::<char>()], 0..40)
        .prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #[test]
    fn no_text_breaks_a_line(method in nasty(), host in nasty(), path in nasty(),
                             subject in nasty(), user in nasty(), route in nasty(), endpoint in nasty()) {
        let who = identity(&subject, &user);
        let record = AccessRecord {
            target: Some(RequestTarget { method: &method, host: &host, path: &path, other_path: None }),
            identity: Some(&who),
            route: Some(&route),
            forwarded: Some(ForwardedTo { upstream: "app", endpoint: &endpoint, duration_nanos: 1, retries: 0 }),
            ..record()
        };
        let expected = [
            ("method", &method), ("host", &host), ("path", &path), ("route", &route), ("subject", &subject),
            ("user", &user), ("endpoint", &endpoint),
        ];
        let json = render(Style::Json, &record);
        let text = render(Style::Text, &record);
        for line in [&json, &text] {
            let inside = line.strip_suffix('\n').unwrap();
            prop_assert!(!inside.chars().any(|c| c.is_control() || is_deceptive(c)), "{inside:?}");
        }
        let object: Value = serde_json::from_str(&json).unwrap();
        let pairs = logfmt(&text);
        for (key, value) in expected {
            prop_assert_eq!(object[key].as_str(), Some(value.as_str()));
            prop_assert_eq!(pairs.iter().filter(|(k, _)| k == key).map(|(_, v)| v).collect::<Vec<_>>(), [value]);
        }
    }
}
