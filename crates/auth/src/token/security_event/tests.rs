use super::*;
use crate::json::Document;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const TYP: Option<&str> = Some("secevent+jwt");

/// The token of the tests, with `changes` in place of some members; `null` removes one.
fn with(changes: &str) -> Document {
    let base = r#"{"iss":"https://id.example","aud":["https://gw.example"],"iat":1799999990,"jti":"j1",
        "sub_id":{"format":"iss_sub","iss":"https://id.example","sub":"ada"},
        "events":{"https://schemas.openid.net/secevent/caep/event-type/session-revoked":{"event_timestamp":1799999980}}}"#;
    let mut object: serde_json::Map<_, _> = serde_json::from_str(base).unwrap();
    let changes: serde_json::Map<_, _> = serde_json::from_str(changes).unwrap();
    for (name, value) in changes {
        if value.is_null() {
            object.remove(&name);
        } else {
            object.insert(name, value);
        }
    }
    Document::parse(serde_json::to_vec(&object).unwrap()).unwrap()
}

fn judge<T>(
    typ: Option<&str>,
    changes: &str,
    read: impl FnOnce(&SecurityEvents<'_>) -> T,
) -> Result<T, TokenError> {
    let audiences = ["https://gw.example".into(), "other".into()];
    let expected = ExpectedEvents {
        issuer: "https://id.example",
        audiences: &audiences,
        clock_skew: Duration::from_secs(30),
    };
    let document = with(changes);
    security_events(SignedClaims { typ, key: None, claims: document.root() }, &expected, NOW)
        .map(|events| read(&events))
}

fn wrong(changes: &str) -> TokenError {
    judge(TYP, changes, |_| ()).unwrap_err()
}

fn names(sub_id: &str) -> Result<String, TokenError> {
    judge(TYP, &format!("{{\"sub_id\":{sub_id}}}"), |set| format!("{:?}", set.events[0].names))
}

fn event(uri: &str, payload: &str) -> Result<String, TokenError> {
    judge(TYP, &format!(r#"{{"events":{{"{uri}":{payload}}}}}"#), |set| {
        let event = &set.events[0];
        format!(
            "{} {} {} {:?}",
            event.kind.as_str(),
            event.occurred_at.as_secs(),
            event.names.len(),
            event.state
        )
    })
}

#[test]
fn it_says_what_happened_to_whom_and_when() {
    for typ in ["secevent+jwt", "application/secevent+jwt", "SecEvent+JWT"] {
        judge(Some(typ), "{}", |set| {
            assert_eq!((set.jti, set.issued), ("j1", Timestamp::from_secs(1_799_999_990)));
            assert_eq!(set.events.len(), 1);
            let event = &set.events[0];
            assert_eq!(
                (event.kind, event.occurred_at),
                (EventKind::SessionRevoked, Timestamp::from_secs(1_799_999_980))
            );
            assert_eq!(event.names, [SubjectName::User(Some("https://id.example"), "ada")]);
        })
        .unwrap();
    }
    let caep = "https://schemas.openid.net/secevent/caep/event-type";
    let risc = "https://schemas.openid.net/secevent/risc/event-type";
    for (uri, expected) in [
        (format!("{caep}/credential-change"), "credential-change 1799999990 1 None"),
        (format!("{caep}/token-claims-change"), "token-claims-change 1799999990 1 None"),
        (format!("{risc}/sessions-revoked"), "session-revoked 1799999990 1 None"),
        (format!("{risc}/account-disabled"), "account-disabled 1799999990 1 None"),
        (format!("{risc}/account-purged"), "account-purged 1799999990 1 None"),
        (format!("{caep}/device-compliance-change"), "other 1799999990 0 None"),
        ("session-revoked".into(), "other 1799999990 0 None"),
    ] {
        assert_eq!(event(&uri, "{}").unwrap(), expected, "{uri}");
        let kind = EventKind::from_uri(&uri);
        assert!(kind == EventKind::Other || EventKind::from_uri(&kind.uri().unwrap()) == kind);
    }
    // A fraction of a second is dropped, and of several times the one nearest to the event counts.
    let uri = format!("{caep}/session-revoked");
    assert!(event(&uri, r#"{"event_timestamp":1799999980.75}"#).unwrap().contains("1799999980"));
    assert!(
        judge(TYP, r#"{"toe":1799999970}"#, |set| set.events[0].occurred_at.as_secs()).unwrap()
            == 1_799_999_980
    );
}

#[test]
fn a_time_in_milliseconds_is_read_as_such() {
    let uri = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
    let read = |changes: &str| {
        judge(TYP, changes, |set| (set.events[0].occurred_at.as_millis(), set.events[0].unit)).unwrap()
    };
    let at = |value: &str| read(&format!(r#"{{"events":{{"{uri}":{{"event_timestamp":{value}}}}}}}"#));
    assert_eq!(at("1799999980"), (1_799_999_980_000, TimeUnit::Seconds));
    assert_eq!(at("1799999980000"), (1_799_999_980_000, TimeUnit::Milliseconds));
    assert_eq!(at("1799999980123.9"), (1_799_999_980_123, TimeUnit::Milliseconds));
    assert_eq!(at("1.79999998e12"), (1_799_999_980_000, TimeUnit::Milliseconds));
    // The last second of the year 9999 is the largest number that is read as seconds.
    assert_eq!(at("253402300800"), (253_402_300_800, TimeUnit::Milliseconds));
    let toe = format!(r#"{{"toe":1799999970000,"events":{{"{uri}":{{}}}}}}"#);
    assert_eq!(read(&toe), (1_799_999_970_000, TimeUnit::Milliseconds));
}

#[test]
fn a_stream_s_own_events_need_no_subject() {
    let ssf = "https://schemas.openid.net/secevent/ssf/event-type";
    let verification = event(&format!("{ssf}/verification"), r#"{"state":"VGhpcw"}"#);
    assert_eq!(verification.unwrap(), r#"verification 1799999990 0 Some("VGhpcw")"#);
    assert!(event(&format!("{ssf}/stream-updated"), r#"{"status":"paused"}"#).is_ok());
    let opaque = r#"{"sub_id":{"format":"opaque","id":"stream-1"},"events":{"#;
    let state = r#"/verification":{}}}"#;
    assert!(judge(TYP, &format!("{opaque}\"{ssf}{state}"), |_| ()).is_ok());
}

#[test]
fn nothing_else_is_a_security_event_token() {
    for typ in [None, Some("JWT"), Some("at+jwt"), Some("logout+jwt"), Some("")] {
        assert_eq!(judge(typ, "{}", |_| ()), Err(TokenError::WrongType), "{typ:?}");
    }
    assert_eq!(wrong(r#"{"exp":1800000300}"#), TokenError::NotASecurityEvent("exp"));
    assert_eq!(wrong(r#"{"sub":"ada"}"#), TokenError::NotASecurityEvent("sub"));
    assert_eq!(wrong(r#"{"nonce":"n"}"#), TokenError::NotASecurityEvent("nonce"));
    assert_eq!(wrong(r#"{"iss":"https://evil.example"}"#), TokenError::WrongIssuer);
    assert_eq!(wrong(r#"{"aud":"https://elsewhere.example"}"#), TokenError::WrongAudience);
    assert_eq!(wrong(r#"{"iat":1800000031}"#), TokenError::InFuture("iat"));
    for needed in ["iss", "aud", "iat", "jti"] {
        let error = wrong(&format!("{{\"{needed}\":null}}"));
        assert!(matches!(&error, TokenError::Claim(fault) if *fault.claim == *needed), "{needed}: {error}");
    }
    for events in ["null", "{}", "[]", r#""x""#, r#"{"x":true}"#, r#"{"x":null}"#] {
        let error = wrong(&format!("{{\"events\":{events}}}"));
        assert_eq!(error, TokenError::NotASecurityEvent("events"), "{events}");
    }
    let many: Vec<String> = (0..=MAX_EVENTS).map(|n| format!("\"e{n}\":{{}}")).collect();
    assert_eq!(
        wrong(&format!("{{\"events\":{{{}}}}}", many.join(","))),
        TokenError::NotASecurityEvent("events")
    );
    let uri = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
    let ahead = TokenError::InFuture("event_timestamp");
    assert_eq!(event(uri, r#"{"event_timestamp":1800000031}"#), Err(ahead.clone()));
    assert_eq!(event(uri, r#"{"event_timestamp":1800000031000}"#), Err(ahead), "in milliseconds");
    assert!(matches!(event(uri, r#"{"event_timestamp":"now"}"#), Err(TokenError::Claim(_))));
    assert!(matches!(event(uri, r#"{"event_timestamp":1799999980000000}"#), Err(TokenError::Claim(_))));
    for odd in [r#"{"jti":""}"#, r#"{"jti":7}"#, r#"{"jti":"a\nb"}"#, r#"{"iat":"x"}"#] {
        assert!(matches!(wrong(odd), TokenError::Claim(_)), "{odd}");
    }
}

#[test]
fn subjects_are_named_in_many_ways() {
    for (subject, expected) in [
        (r#"{"format":"opaque","id":"x"}"#, r#"[Opaque("x")]"#),
        (r#"{"format":"email","email":"ada@example.org"}"#, r#"[Email("ada@example.org")]"#),
        (
            r#"{"format":"jwt_id","iss":"https://id.example","jti":"t"}"#,
            r#"[Token("https://id.example", "t")]"#,
        ),
        (r#"{"format":"sid","sid":"s"}"#, r#"[Session("s")]"#),
        (
            r#"{"format":"complex","user":{"format":"iss_sub","iss":"i","sub":"u"},"session":{"format":"opaque","id":"s"}}"#,
            r#"[Session("s")]"#,
        ),
        (r#"{"user":{"format":"opaque","id":"u"}}"#, r#"[User(None, "u")]"#),
        (
            r#"{"format":"complex","user":{"format":"iss_sub","iss":"i","sub":"u"},
                "application":{"format":"opaque","id":"c"}}"#,
            r#"[Consent("u", "c")]"#,
        ),
        (
            r#"{"format":"aliases","identifiers":[{"format":"email","email":"a@b"},{"format":"opaque","id":"x"}]}"#,
            r#"[Email("a@b"), Opaque("x")]"#,
        ),
    ] {
        assert_eq!(names(subject).unwrap(), expected, "{subject}");
    }
    // Earlier drafts, with the subject in the event; and a session besides a user.
    let uri = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
    let inside = format!(
        r#"{{"sub_id":null,"sid":"s","events":{{"{uri}":{{"subject":{{"format":"opaque","id":"x"}}}}}}}}"#
    );
    let subjects = judge(TYP, &inside, |set| format!("{:?}", set.events[0].names)).unwrap();
    assert_eq!(subjects, r#"[Opaque("x"), Session("s")]"#);
}

#[test]
fn somebody_who_is_not_understood_is_an_error() {
    let tenant =
        r#"{"format":"complex","user":{"format":"opaque","id":"u"},"tenant":{"format":"opaque","id":"t"}}"#;
    let device =
        r#"{"format":"complex","user":{"format":"opaque","id":"u"},"device":{"format":"opaque","id":"d"}}"#;
    for subject in [
        tenant,
        device,
        r#"{"format":"phone_number","phone_number":"+1"}"#,
        r#"{"format":"did","url":"did:x:y"}"#,
        r#"{"format":"iss_sub","sub":"u"}"#,
        r#"{"format":"opaque"}"#,
        r#"{"format":"complex"}"#,
        r#"{"format":"aliases","identifiers":[]}"#,
        r#"{"format":"aliases","identifiers":[{"format":"aliases","identifiers":[]}]}"#,
        r#"{"id":"x"}"#,
        r#""x""#,
    ] {
        assert!(matches!(names(subject), Err(TokenError::UnsupportedSubject(_))), "{subject}");
    }
    let many = vec![r#"{"format":"opaque","id":"x"}"#; MAX_NAMES + 1].join(",");
    let many = format!(r#"{{"format":"aliases","identifiers":[{many}]}}"#);
    assert!(matches!(names(&many), Err(TokenError::UnsupportedSubject(_))));
    assert!(matches!(names(r#"{"format":"opaque","id":""}"#), Err(TokenError::Claim(_))));
    assert_eq!(wrong(r#"{"sub_id":null}"#), TokenError::UnsupportedSubject("it has no `sub_id`"));
}
