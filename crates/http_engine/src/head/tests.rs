//! Tests of the parent module.

use super::*;

fn request(text: &str) -> Result<RequestHead<'_>, HeadFault> {
    parse_request(text.as_bytes(), 8192, &mut Fields::new())
}

#[test]
fn scanner_finds_the_end_one_byte_at_a_time() {
    let head = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    let mut scanner = HeadScanner::default();
    for n in 0..head.len() - 4 {
        assert_eq!(scanner.scan(&head[..n], 100), Ok(None), "at {n}");
    }
    assert_eq!(scanner.scan(head, 100), Ok(Some(head.len() - 4)));
}

#[test]
fn scanner_refuses_bare_line_feeds_and_too_many_lines() {
    for head in ["GET / HTTP/1.1\nHost: a\r\n\r\n", "\nGET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n\n"] {
        assert_eq!(
            HeadScanner::default().scan(head.as_bytes(), 100),
            Err(HeadFault::BareLineEnd),
            "{head:?}"
        );
    }
    let many = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(5));
    assert_eq!(HeadScanner::default().scan(many.as_bytes(), 4), Err(HeadFault::TooManyFields));
    assert_eq!(HeadScanner::default().scan(many.as_bytes(), 5), Ok(None));
}

#[test]
fn framing_follows_the_one_length_field() {
    let head = request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n").unwrap();
    assert_eq!(head.framing, Framing::Length(12));
    let head = request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n").unwrap();
    assert_eq!(head.framing, Framing::Chunked);
    assert_eq!(request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().framing, Framing::Length(0));
}

#[test]
fn ambiguous_framing_is_refused() {
    let cases = [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", HeadFault::BothLengths),
        ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", HeadFault::BothLengths),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", HeadFault::ContentLength),
        ("Content-Length: 1, 1\r\n", HeadFault::ContentLength),
        ("Content-Length: +1\r\n", HeadFault::ContentLength),
        ("Content-Length: -1\r\n", HeadFault::ContentLength),
        ("Content-Length: 0x1\r\n", HeadFault::ContentLength),
        ("Content-Length: \r\n", HeadFault::ContentLength),
        ("Content-Length: 99999999999999999999\r\n", HeadFault::ContentLength),
        ("Content-Length: 9999999999999999999\r\n", HeadFault::ContentLength),
        ("Transfer-Encoding: chunked, chunked\r\n", HeadFault::TransferEncoding),
        ("Transfer-Encoding: gzip, chunked\r\n", HeadFault::TransferEncoding),
        ("Transfer-Encoding: identity\r\n", HeadFault::TransferEncoding),
        ("Transfer-Encoding: xchunked\r\n", HeadFault::TransferEncoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", HeadFault::TransferEncoding),
        ("Transfer-Encoding: \x0bchunked\r\n", HeadFault::FieldLine),
        ("Transfer-Encoding : chunked\r\n", HeadFault::FieldLine),
        (" Folded: yes\r\n", HeadFault::Folded),
        ("X: a\r\n b\r\n", HeadFault::Folded),
        ("X: a\rb\r\n", HeadFault::FieldLine),
        ("X: a\0b\r\n", HeadFault::FieldLine),
        ("X y: a\r\n", HeadFault::FieldLine),
        ("Host: b\r\n", HeadFault::RepeatedHost),
        ("Upgrade: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n", HeadFault::RepeatedUpgrade),
    ];
    for (fields, expected) in cases {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(request(&text).map(|h| h.framing), Err(expected), "{fields:?}");
    }
    let old = "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(request(old).unwrap_err(), HeadFault::TransferEncodingInHttp10);
}

#[test]
fn first_line_is_exact() {
    for line in
        ["GET / HTTP/1.2", "GET / HTTP/2.0", "GET  / HTTP/1.1", "GET /", "GET / HTTP/1.1 ", " GET / HTTP/1.1"]
    {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        assert!(request(&text).is_err(), "{line:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(8192));
    assert_eq!(request(&long).unwrap_err(), HeadFault::TargetTooLong);
}

#[test]
fn http_1_1_names_its_host() {
    for target in ["/", "http://a/"] {
        let text = format!("GET {target} HTTP/1.1\r\nAccept: */*\r\n\r\n");
        assert_eq!(request(&text).err(), Some(HeadFault::MissingHost), "{target}");
        let old = format!("GET {target} HTTP/1.0\r\nAccept: */*\r\n\r\n");
        assert_eq!(request(&old).err(), None, "{target}");
    }
}

#[test]
fn absolute_form_is_split_and_only_our_scheme_is_served() {
    let split = |t: &'static str| parse_target(t.as_bytes(), Scheme::Http);
    assert_eq!(split("/a?b"), Some((None, b"/a?b".as_slice())));
    assert_eq!(split("*"), Some((None, b"*".as_slice())));
    assert_eq!(split("HTTP://h:1/a?b"), Some((Some(b"h:1".as_slice()), b"/a?b".as_slice())));
    assert_eq!(split("http://h"), Some((Some(b"h".as_slice()), b"/".as_slice())));
    for refused in ["https://h/", "http:///a", "http://h?a", "http://b\u{fc}cher/", "h:443", "a", ""] {
        assert_eq!(split(refused), None, "{refused}");
    }
}

#[test]
fn persistence_follows_version_and_connection() {
    let persists = |version: &str, connection: &str| {
        let text = format!("GET / {version}\r\nHost: a\r\n{connection}\r\n");
        let head = request(&text).unwrap();
        head.connection.persists(head.version)
    };
    assert!(persists("HTTP/1.1", ""));
    assert!(!persists("HTTP/1.1", "Connection: close\r\n"));
    assert!(!persists("HTTP/1.1", "Connection: x, Close\r\n"));
    assert!(!persists("HTTP/1.0", ""));
    assert!(persists("HTTP/1.0", "Connection: keep-alive\r\n"));
    assert!(!persists("HTTP/1.0", "Connection: keep-alive, close\r\n"));
}

#[test]
fn few_fields_are_nominated() {
    let options = |n: usize| (0..n).map(|i| format!("x-{i}")).collect::<Vec<_>>().join(", ");
    let usual = "close, Keep-Alive,, upgrade,".repeat(40);
    let nominates = |fields: &str| {
        let head =
            request(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).map(|h| h.connection.nominates);
        let response = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let response = parse_response(response.as_bytes(), &mut Fields::new()).map(|(head, _)| head);
        assert_eq!(response.map(|h| h.connection.nominates), head, "{fields}");
        head
    };
    assert_eq!(nominates(&format!("Connection: {usual}\r\n")), Ok(false));
    assert_eq!(nominates(&format!("Connection: {usual}{}\r\n", options(16))), Ok(true));
    let two = format!("connection: {}\r\nConnection: {}\r\n", options(9), options(7));
    assert_eq!(nominates(&two), Ok(true));
    let three = format!("{two}Connection: y\r\n");
    for refused in [format!("Connection: {}\r\n", options(17)), "Connection: a,a,a\r\n".repeat(6), three] {
        assert_eq!(nominates(&refused), Err(HeadFault::TooManyOptions), "{refused}");
    }
}

#[test]
fn responses_frame_by_status_then_fields() {
    let framing =
        |text: &str| parse_response(text.as_bytes(), &mut Fields::new()).map(|(head, _)| head.framing);
    assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"), Ok(Framing::Length(3)));
    assert_eq!(framing("HTTP/1.1 200 OK\r\n\r\n"), Ok(Framing::UntilClose));
    assert_eq!(framing("HTTP/1.1 204 No Content\r\n\r\n"), Ok(Framing::Length(0)));
    assert_eq!(framing("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n"), Ok(Framing::Length(0)));
    assert_eq!(
        framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Err(HeadFault::BothLengths)
    );
    for (lengths, expected) in [
        ("Content-Length: 3\r\nContent-Length: 3\r\n", Ok(Framing::Length(3))),
        ("Content-Length: 3, 3\r\ncontent-length: 03\r\n", Ok(Framing::Length(3))),
        ("Content-Length: 3\r\nContent-Length: 4\r\n", Err(HeadFault::ContentLength)),
        ("Content-Length: 3, 4\r\n", Err(HeadFault::ContentLength)),
        ("Content-Length: 3,\r\n", Err(HeadFault::ContentLength)),
        ("Content-Length: 3 3\r\n", Err(HeadFault::ContentLength)),
    ] {
        assert_eq!(framing(&format!("HTTP/1.1 200 OK\r\n{lengths}\r\n")), expected, "{lengths:?}");
    }
    assert!(framing("HTTP/1.1 20 OK\r\n\r\n").is_err());
    assert!(framing("HTTP/1.1 099 OK\r\n\r\n").is_err());
}
