//! security: HTTP framing attacks as raw bytes, checked by the upstream's log.

use std::io::Write;

use dataplane::harness::{Fixture, Setup, Upstream};
use dataplane::http2;

/// Sends a request that must be refused. Checks that neither it nor anything after it is served.
fn is_refused(fixture: &Fixture, bytes: &str, status: u16) {
    let mut client = fixture.connect();
    client.send(bytes);
    // A smuggled second request. It must not be served either.
    let _ = client.socket.write_all(fixture.request("/smuggled", "").as_bytes());
    let response = client.response();
    assert_eq!(response.status, status, "{bytes:?} → {}", response.head);
    assert!(response.closes(), "{bytes:?} closes the connection: {}", response.head);
    assert!(client.rest().is_empty(), "{bytes:?}: nothing follows the refusal");
    assert!(fixture.upstream.seen().is_empty(), "{bytes:?} reaches nobody: {:?}", fixture.upstream.seen());
}

fn post(fixture: &Fixture, fields: &str, body: &str) -> String {
    fixture.request("/", fields).replacen("GET", "POST", 1) + body
}

#[test]
fn http_content_length_with_transfer_encoding_is_400_and_close() {
    let f = Fixture::new();
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "content-length: 0\r\nTRANSFER-ENCODING: chunked\r\n",
    ] {
        is_refused(&f, &post(&f, fields, "0\r\n\r\n"), 400);
    }
}

#[test]
fn http_bad_or_duplicate_transfer_encoding_is_400_and_close() {
    let f = Fixture::new();
    for value in [
        "identity",
        "chunked, identity",
        "gzip, chunked",
        "chunked, chunked",
        "xchunked",
        "chunke",
        "\"chunked\"",
        "",
    ] {
        is_refused(&f, &post(&f, &format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n"), 400);
    }
    is_refused(
        &f,
        &post(&f, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        400,
    );
    is_refused(&f, &post(&f, "Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), 400);
    is_refused(&f, &post(&f, "Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n"), 400);
}

#[test]
fn http_transfer_encoding_on_http_1_0_is_400_and_close() {
    let f = Fixture::new();
    let request = post(&f, "Transfer-Encoding: chunked\r\n", "0\r\n\r\n").replacen("HTTP/1.1", "HTTP/1.0", 1);
    is_refused(&f, &request, 400);
}

#[test]
fn http_malformed_content_length_is_400_and_close() {
    let f = Fixture::new();
    for value in
        ["+5", "-5", "5 5", "5,5", "0x5", "5.0", "", "five", "99999999999999999999", "9223372036854775808"]
    {
        is_refused(&f, &post(&f, &format!("Content-Length: {value}\r\n"), "hello"), 400);
    }
    is_refused(&f, &post(&f, "Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), 400);
    is_refused(&f, &post(&f, "Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"), 400);
}

/// Aliases of the field names that frame a message.
const FRAMING: [&str; 7] = [
    "content_length",
    "content.length",
    "content~length",
    "transfer_encoding",
    "transfer.encoding",
    "proxy_connection",
    "keep_alive",
];

#[test]
fn http_aliases_of_framing_fields_stay_behind() {
    let f = Fixture::new();
    let aliases: String = FRAMING.iter().map(|name| format!("{name}: 1\r\n")).collect();
    assert_eq!(f.send(post(&f, &format!("Content-Length: 5\r\n{aliases}"), "hello")).status, 200);
    let upper = aliases.to_uppercase();
    assert_eq!(f.send(f.request("/", &upper)).status, 200);
    let chunked = format!("Transfer-Encoding: chunked\r\n{aliases}");
    let trailers = format!("5\r\nhello\r\n0\r\n{aliases}Content-Length: 1\r\nX-Sum: 5\r\n\r\n");
    assert_eq!(f.send(post(&f, &chunked, &trailers)).status, 200);
    http2::run(async {
        let mut send = http2::connect(f.address).await.ready().await.unwrap();
        let mut request = http2::request(&f, "POST", "/");
        let mut trailers = http::HeaderMap::new();
        for name in FRAMING {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().insert(&name, "1".parse().unwrap());
            trailers.insert(&name, "1".parse().unwrap());
        }
        trailers.insert("x-sum", "5".parse().unwrap());
        let (response, mut body) = send.send_request(request, false).unwrap();
        body.send_data("hello".into(), false).unwrap();
        body.send_trailers(trailers).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    });
    let seen = f.upstream.seen();
    assert_eq!(seen.len(), 4);
    for seen in &seen {
        let names = seen.names();
        let passed: Vec<_> = FRAMING.iter().filter(|name| names.iter().any(|n| n == *name)).collect();
        assert!(passed.is_empty(), "{passed:?} reach the service: {}", seen.head);
    }
    assert_eq!((seen[0].body.as_slice(), seen[0].values("content-length")), (&b"hello"[..], vec!["5"]));
    assert_eq!(
        (seen[2].trailers.as_slice(), seen[3].trailers.as_slice()),
        (&["x-sum: 5".to_owned()][..], &["x-sum: 5".to_owned()][..])
    );
}

#[test]
fn http_obs_fold_is_400_and_close() {
    let f = Fixture::new();
    is_refused(&f, &f.request("/", "X-A: b\r\n c\r\n"), 400);
    is_refused(&f, &f.request("/", "X-A: b\r\n\tc\r\n"), 400);
}

#[test]
fn http_bare_cr_and_lf_are_400_and_close() {
    let f = Fixture::new();
    is_refused(&f, &f.request("/", "X-A: b\nX-B: c\r\n"), 400);
    is_refused(&f, &f.request("/", "X-A: b\rX-B: c\r\n"), 400);
    is_refused(&f, &f.request("/", "").replace("\r\n", "\n"), 400);
    is_refused(&f, &f.request("/", "").replacen("HTTP/1.1\r\n", "HTTP/1.1\n", 1), 400);
    is_refused(&f, &f.request("/", "X-A: b\0c\r\n"), 400);
}

#[test]
fn http_two_hosts_are_400_and_close() {
    let f = Fixture::new();
    is_refused(&f, &f.request("/", "Host: other.test\r\n"), 400);
    is_refused(&f, &f.request("/", "host: app.test\r\n"), 400);
}

#[test]
fn http_malformed_first_lines_and_names_are_400_and_close() {
    let f = Fixture::new();
    for line in ["GET  / HTTP/1.1", "GET / HTTP/1.1 x", "GET /", " GET / HTTP/1.1", "G\tT / HTTP/1.1"] {
        is_refused(&f, &f.request("/", "").replacen("GET / HTTP/1.1", line, 1), 400);
    }
    for version in ["HTTP/1.9", "HTTP/2.0", "http/1.1"] {
        is_refused(&f, &f.request("/", "").replacen("HTTP/1.1", version, 1), 505);
    }
    is_refused(&f, &f.request("/", "X Y: z\r\n"), 400);
    is_refused(&f, &f.request("/", ": z\r\n"), 400);
    is_refused(&f, &f.request("/", "no colon\r\n"), 400);
}

#[test]
fn http_malformed_chunks_end_the_exchange() {
    for body in [
        "x\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\nhello",
        "5;\x01\r\nhello\r\n0\r\n\r\n",
        "0\r\nbad trailer\r\n\r\n",
    ] {
        let f = Fixture::new();
        let mut client = f.connect();
        client.send(post(&f, "Transfer-Encoding: chunked\r\n", body));
        let _ = client.socket.write_all(f.request("/smuggled", "").as_bytes());
        let response = client.response();
        assert_eq!(response.status, 400, "{body:?}: {}", response.head);
        assert!(client.rest().is_empty(), "{body:?}: nothing follows");
        assert!(f.upstream.seen().iter().all(|s| !s.line().contains("smuggled")), "{body:?}");
        // The upstream received a request that never ended.
        assert!(f.upstream.seen().iter().all(|s| s.trailers.is_empty()), "{body:?}: {:?}", f.upstream.seen());
    }
}

#[test]
fn http_pipelined_requests_are_answered_in_order() {
    let f = Fixture::new();
    let mut client = f.connect();
    let three = f.request("/1", "") + &post(&f, "Content-Length: 5\r\n", "hello") + &f.request("/3", "");
    client.send(three);
    for _ in 0..3 {
        assert_eq!(client.response().status, 200);
    }
    let lines: Vec<_> = f.upstream.seen().iter().map(|s| s.line().to_owned()).collect();
    assert_eq!(lines, ["GET /1 HTTP/1.1", "POST / HTTP/1.1", "GET /3 HTTP/1.1"]);
    assert_eq!(f.upstream.connections(), 1, "one upstream connection serves them all");
}

#[test]
fn http_connect_is_refused() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    for target in ["app.test:443", "/"] {
        let response = f.send(format!(
            "CONNECT {target} HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer {token}\r\n\r\n"
        ));
        assert!((400..=405).contains(&response.status), "{}", response.head);
    }
    assert!(f.upstream.seen().is_empty());
}

#[test]
fn http_a_doubtful_upstream_socket_is_never_pooled() {
    // Each response leaves its connection in an unknown state in a different way.
    let doubts: [&[u8]; 5] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x, close\r\n\r\nok",
        b"HTTP/1.1 204 No Content\r\n\r\nstray",
    ];
    for doubt in doubts {
        let f = Fixture::with(Setup::default(), Upstream::answering(move |_, s| s.write_all(doubt).is_ok()));
        let mut client = f.connect();
        for n in 1..=3 {
            client.send(f.request("/", ""));
            let response = client.response();
            assert!(
                matches!(response.text().as_str(), "ok" | ""),
                "{}: {}",
                doubt.escape_ascii(),
                response.text()
            );
            assert_eq!(f.upstream.connections(), n, "{}", doubt.escape_ascii());
        }
    }
}

#[test]
fn http_an_upstream_answer_that_cannot_be_framed_is_502() {
    let answers: [&[u8]; 7] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\n\r\nok",
        b"HTTP/1.1 abc\r\n\r\n",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
    ];
    for answer in answers {
        let f = Fixture::with(Setup::default(), Upstream::answering(move |_, s| s.write_all(answer).is_ok()));
        let response = f.get("/");
        assert_eq!(response.status, 502, "{}: {}", answer.escape_ascii(), response.head);
        assert!(response.text().contains("upstream_protocol"), "{}", response.text());
    }
}

#[test]
fn http_an_answer_cut_short_is_not_taken_for_a_whole_one() {
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(|_, s| {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this");
            false
        }),
    );
    let mut client = f.connect();
    client.send(f.request("/", ""));
    let head = client.head();
    let rest = client.rest();
    // Before any byte is sent, a proper error is possible. Afterwards the response visibly lacks
    // its end.
    assert!(
        head.status == 502 || (head.status == 200 && rest.len() < 100),
        "{} {}",
        head.head,
        rest.escape_ascii()
    );
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(|_, s| {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n");
            let _ = s.write_all(&[b'x'; 100_000]);
            false
        }),
    );
    let mut client = f.connect();
    client.send(f.request("/", ""));
    let head = client.head();
    assert_eq!((head.status, head.value("content-length")), (200, Some("10000000")));
    assert!(client.rest().len() < 10_000_000);
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(|_, s| {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
            false
        }),
    );
    let mut client = f.connect();
    client.send(f.request("/", ""));
    let rest = client.rest();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "no end is made up: {}", rest.escape_ascii());
}

#[test]
fn http_early_response_is_delivered_and_the_connection_drained_or_closed() {
    // Answers without reading the body, then closes.
    let f = Fixture::with(
        Setup::default(),
        Upstream::answering(|_, s| {
            let _ = s.write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig");
            false
        }),
    );
    let mut client = f.connect();
    // Because of `Expect`, the recording upstream answers before the body. The client sends the
    // body anyway.
    client.send(post(&f, "Content-Length: 1000000\r\nExpect: 100-continue\r\n", "part of the body"));
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (413, "big"));
    let _ = client.socket.write_all(f.request("/smuggled", "").as_bytes());
    assert!(client.rest().is_empty(), "the rest of the body is never read as a request");
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn http_refused_requests_keep_the_connection_only_when_their_body_is_read() {
    let f = Fixture::new();
    let mut client = f.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 401);
    client.send("GET /open HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 200, "a small body was drained");
    let mut client = f.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\nGET /open HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let response = client.response();
    assert!(response.status == 401 && response.closes(), "{}", response.head);
    assert!(client.rest().is_empty());
    assert_eq!(f.upstream.seen().len(), 1);
}

#[test]
fn http_a_status_below_100_is_no_answer() {
    for status in ["000", "099"] {
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
        let f = Fixture::with(
            Setup::default(),
            Upstream::answering(move |_, s| s.write_all(answer.as_bytes()).is_ok()),
        );
        assert_eq!(f.get("/").status, 502, "{status}");
    }
}
