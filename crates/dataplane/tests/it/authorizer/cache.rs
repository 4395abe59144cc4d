//! Cached answers of an authorizer.

use super::{asking, counted, get, head, say, saying, tables};
use dataplane::harness::{Fixture, Setup, Upstream};
use std::time::Duration;

#[test]
fn an_answer_is_kept_for_as_long_as_it_says() {
    let authorizer = saying("200 OK", &["Cache-Control: max-age=600", "X-Auth-Request-User: ada"], "");
    let f = asking(&authorizer, "");
    for _ in 0..3 {
        assert_eq!(get(&f, "").status, 200);
    }
    assert_eq!((authorizer.seen().len(), counted(&f, "hit")), (1, 2.0));
    assert!(f.upstream.seen().iter().all(|seen| seen.values("x-auth-request-user") == ["ada"]));
    // Check twice only: on a busy machine, the second could pass between two cache hits.
    let authorizer = saying("200 OK", &["Cache-Control: max-age=1"], "");
    let f = asking(&authorizer, "");
    assert_eq!((get(&f, "").status, authorizer.seen().len()), (200, 1));
    std::thread::sleep(Duration::from_millis(1050));
    assert_eq!((get(&f, "").status, authorizer.seen().len()), (200, 2));
}

#[test]
fn nothing_is_kept_beyond_what_is_configured() {
    let authorizer = saying("200 OK", &["Cache-Control: max-age=3600"], "");
    let f = asking(&authorizer, "max_age = \"1s\"");
    assert_eq!((get(&f, "").status, authorizer.seen().len()), (200, 1));
    std::thread::sleep(Duration::from_millis(1050));
    assert_eq!((get(&f, "").status, authorizer.seen().len()), (200, 2));
    let f = asking(&authorizer, "max_age = \"0s\"\nmax_age_with_revocation = \"0s\"");
    assert_eq!([get(&f, "").status, get(&f, "").status], [200; 2]);
    assert_eq!(authorizer.seen().len(), 4);
}

#[test]
fn what_does_not_say_that_it_may_be_kept_is_asked_each_time() {
    for (status, fields) in [
        ("200 OK", &[][..]),
        ("200 OK", &["Cache-Control: no-store, max-age=9"]),
        ("200 OK", &["Cache-Control: private, max-age=9"]),
        ("200 OK", &["Cache-Control: max-age=9", "Set-Cookie: session=2"]),
        ("200 OK", &["Cache-Control: max-age=9", "Vary: *"]),
        ("200 OK", &["Cache-Control: max-age=9", "Vary: X-Tenant"]),
        ("401 Unauthorized", &[]),
        ("403 Forbidden", &[]),
        ("302 Found", &["Cache-Control: max-age=9", "Location: /"]),
        ("500 Oops", &["Cache-Control: max-age=9"]),
    ] {
        let authorizer = saying(status, fields, "");
        let f = asking(&authorizer, "");
        for _ in 0..2 {
            let answer = get(&f, "");
            assert!(answer.head.starts_with(&format!("HTTP/1.1 {}", &status[..3])), "{}", answer.head);
        }
        assert_eq!(authorizer.seen().len(), 2, "{status} {fields:?}");
    }
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let authorizer = saying(status, &["Cache-Control: max-age=9"], "told");
        let f = asking(&authorizer, "");
        for _ in 0..2 {
            let answer = get(&f, "");
            assert_eq!(
                (answer.head[9..12].to_owned(), answer.text()),
                (status[..3].to_owned(), "told".into())
            );
        }
        assert_eq!(authorizer.seen().len(), 1, "{status}: it says so");
    }
}

#[test]
fn what_the_authorizer_would_see_as_another_request_is_asked_about() {
    let authorizer = saying("200 OK", &["Cache-Control: max-age=60", "Vary: Authorization"], "");
    let f = asking(&authorizer, "");
    let usual = "Authorization: Bearer a\r\nCookie: c=1\r\nUser-Agent: u\r\nAccept: */*\r\n";
    let requests = [
        head("GET /asked?q=1", usual),
        head("POST /asked?q=1", &format!("{usual}Content-Length: 0\r\n")),
        head("GET /asked/?q=1", usual),
        head("GET /asked?q=2", usual),
        head("GET /asked?q=1&q=1", usual),
        head("GET /asked?", usual),
        head("GET /asked", usual),
        head("GET /asked?q=1", usual).replace("app.test", "other.test"),
        head("GET /asked?q=1", usual).replace("app.test", "app.test:8080"),
        head("GET /asked?q=1", &usual.replace("Bearer a", "Bearer b")),
        head("GET /asked?q=1", &usual.replace("Authorization: Bearer a\r\n", "")),
        head("GET /asked?q=1", &usual.replace("c=1", "c=2")),
        head("GET /asked?q=1", &usual.replace("Cookie: c=1\r\n", "")),
        head("GET /asked?q=1", &usual.replace("User-Agent: u", "User-Agent: v")),
        head("GET /asked?q=1", &usual.replace("*/*", "text/html")),
        // A value of one field must not count for another field.
        head("GET /asked?q=1", "Authorization: c=1\r\nCookie: Bearer a\r\nUser-Agent: u\r\nAccept: */*\r\n"),
        head("GET /asked?q=1", "User-Agent: */*\r\n"),
        head("GET /asked?q=1", "Accept: */*\r\n"),
    ];
    for (nth, request) in requests.iter().enumerate() {
        for _ in 0..2 {
            assert_eq!(f.send(request).status, 200, "{request}");
        }
        assert_eq!(authorizer.seen().len(), nth + 1, "{request}");
    }
    assert_eq!(f.send(head("GET /asked?q=1", &format!("{usual}X-Other: 1\r\n"))).status, 200);
    assert_eq!(authorizer.seen().len(), requests.len(), "what it is not shown makes no difference");
}

#[test]
fn names_of_requests_are_left_out_when_the_answer_says_what_it_rests_on() {
    let trace = |n: u32| format!("Traceparent: 00-{n:032x}-00000000000000ab-01\r\nX-Request-Id: {n}\r\n");
    let named = saying("200 OK", &["Cache-Control: max-age=60", "Vary: Authorization, Cookie"], "");
    let f = asking(&named, "");
    for n in 1..=3 {
        assert_eq!(get(&f, &trace(n)).status, 200);
    }
    assert_eq!(named.seen().len(), 1);
    assert_eq!(named.seen()[0].values("x-request-id"), ["1"]);
    for fields in [&["Cache-Control: max-age=60"][..], &["Cache-Control: max-age=60", "Vary: X-Request-Id"]] {
        let unnamed = saying("200 OK", fields, "");
        let f = asking(&unnamed, "");
        for n in 1..=3 {
            assert_eq!(get(&f, &trace(n)).status, 200);
        }
        assert_eq!(unnamed.seen().len(), 3, "{fields:?}");
        assert_eq!([get(&f, "").status, get(&f, "").status], [200; 2]);
        assert_eq!(unnamed.seen().len(), 4, "without such a name it is kept");
        assert_eq!(get(&f, &trace(1)).status, 200);
        assert_eq!(unnamed.seen().len(), 5, "and not for a request that has one");
    }
}

/// Sends one request on each of `many` connections before any gets a response.
fn at_once(f: &Fixture, many: usize) {
    let mut clients: Vec<_> = (0..many).map(|_| f.connect()).collect();
    for client in &mut clients {
        client.send(head("GET /asked", "Authorization: Bearer a\r\n"));
    }
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
}

fn slowly(fields: &'static [&'static str]) -> Upstream {
    Upstream::answering(move |_, socket| {
        std::thread::sleep(Duration::from_millis(200));
        say(socket, "200 OK", fields, "")
    })
}

#[test]
fn a_hundred_at_once_ask_once() {
    let slow = slowly(&["Cache-Control: max-age=60"]);
    let f = asking(&slow, "");
    at_once(&f, 100);
    assert_eq!(slow.seen().len(), 1);
    assert_eq!((counted(&f, "allowed"), counted(&f, "coalesced") + counted(&f, "hit")), (1.0, 99.0));
}

#[test]
fn an_answer_that_may_not_be_kept_is_nobody_elses() {
    let slow = slowly(&[]);
    let f = asking(&slow, "");
    at_once(&f, 10);
    assert_eq!((slow.seen().len(), counted(&f, "coalesced")), (10, 0.0));
}

#[test]
fn a_reload_forgets_every_answer() {
    let authorizer = saying("200 OK", &["Cache-Control: max-age=60"], "");
    let setup = Setup { more: tables(&format!("http://{}", authorizer.address), ""), ..Setup::default() };
    let text = Setup { more: setup.more.clone(), ..Setup::default() };
    let f = Fixture::with(text, Upstream::start());
    assert_eq!([get(&f, "").status, get(&f, "").status], [200; 2]);
    assert_eq!(authorizer.seen().len(), 1);
    f.reload(&setup);
    assert_eq!([get(&f, "").status, get(&f, "").status], [200; 2]);
    assert_eq!(authorizer.seen().len(), 2);
}
