//! One canonical request: method, target forms, query, rewriting.

use std::borrow::Cow;

use auth::request::{Canonical, MAX_METHOD, MAX_TARGET, Malformed, Malformed::*, RawRequest, Scheme};

use crate::fixtures::{forwarded, get, parse, request, target};

#[test]
fn connect_and_trace_are_refused_in_any_case() {
    for method in ["CONNECT", "TRACE", "connect", "Trace"] {
        assert_eq!(parse(method, "example.com", "/"), Err(MethodRefused), "{method}");
    }
}

#[test]
fn a_method_is_a_token_in_upper_case() {
    for method in ["get", "Post", "dELETE", "purge", "m-SEARCH"] {
        assert_eq!(parse(method, "example.com", "/"), Err(MethodCase), "{method}");
    }
    for method in ["GET", "PROPFIND", "M-SEARCH", "X", "!#$%&'*+-.^_`|~"] {
        assert_eq!(request(method, "example.com", "/").method(), method);
    }
    let long = "X".repeat(MAX_METHOD + 1);
    for method in ["", "GET ", "G T", "GE\tT", "GET/", "GÉT", "\"GET\"", "GET\0", "(GET)", &long] {
        assert_eq!(parse(method, "example.com", "/"), Err(Method), "{method}");
    }
}

#[test]
fn head_needs_the_right_of_get() {
    assert_eq!(request("HEAD", "example.com", "/").required_method(), "GET");
    assert_eq!(request("HEAD", "example.com", "/").method(), "HEAD");
    assert_eq!(request("POST", "example.com", "/").required_method(), "POST");
}

#[test]
fn the_asterisk_belongs_to_options() {
    let server = request("OPTIONS", "example.com", "*");
    assert_eq!((server.path(), server.query(), forwarded(&server).as_str()), ("*", None, "*"));
    for method in ["GET", "POST"] {
        assert_eq!(parse(method, "example.com", "*"), Err(AsteriskMethod), "{method}");
    }
    assert_eq!(parse("OPTIONS", "example.com", "*?a"), Err(TargetForm));
    assert_eq!(server.rewritten("/a"), Err(TargetForm));
}

#[test]
fn a_target_has_a_longest_length() {
    let longest = format!("/{}", "a".repeat(MAX_TARGET - 1));
    assert_eq!(target(longest.as_bytes()).as_deref(), Ok(longest.as_str()));
    assert_eq!(target(format!("{longest}b").as_bytes()), Err(TargetTooLong));
    assert_eq!(TargetTooLong.status(), 414);
    assert_eq!(get("/").rewritten(&format!("{longest}b")), Err(TargetTooLong));
}

#[test]
fn a_query_is_kept_as_received() {
    for query in ["", "a=b", "a=%2f%3B%23", "a=b;c=d", "%61=+", "a=%E4%B8%AD", "?", "a=%0D%0A"] {
        let text = format!("/p?{query}");
        assert_eq!(get(&text).query(), Some(query));
        assert_eq!(forwarded(&get(&text)), text);
    }
    assert_eq!(get("/p").query(), None);
}

#[test]
fn query_values_are_decoded_as_a_form() {
    let request = get("/?a=1&b=x+y%2Bz&%61=2&a&c=%C3%A4&=e");
    let values = |name| request.query_values(name).map(Cow::into_owned).collect::<Vec<_>>();
    assert_eq!(values("a"), ["1", "2", ""]);
    assert_eq!(values("b"), ["x y+z"]);
    assert_eq!(values("c"), ["ä"]);
    assert_eq!(values(""), ["e"]);
    assert!(values("A").is_empty() && values("d").is_empty());
}

#[test]
fn a_rewrite_is_normalised_again() {
    let original = get("/api/v1?x=1");
    let rewritten = original.rewritten("/v%31/%c3%a4").unwrap();
    assert_eq!(forwarded(&rewritten), "/v1/%C3%A4?x=1");
    assert_eq!((rewritten.method(), rewritten.host()), (original.method(), original.host()));
    assert_eq!(forwarded(&original.into_rewritten("/b").unwrap()), "/b?x=1");
}

#[test]
fn a_rewrite_that_has_no_meaning_is_refused() {
    let cases: [(&str, Malformed); 7] = [
        ("/../a", DotSegment),
        ("/a/%2e%2e", DotSegment),
        ("/..;/b", DotSegment),
        ("//a", AuthorityTarget),
        ("/a?b", TargetForm),
        ("a", TargetForm),
        ("/a#b", Fragment),
    ];
    for (path, fault) in cases {
        assert_eq!(get("/x").rewritten(path), Err(fault), "{path}");
        assert_eq!(get("/x").into_rewritten(path), Err(fault), "{path}");
    }
}

#[test]
fn a_prefix_is_stripped_on_a_segment_boundary() {
    let request = get("/api/v1/x");
    for (prefix, rest) in [
        ("/api", Some("/v1/x")),
        ("/api/", Some("/v1/x")),
        ("/api/v1/x", Some("/")),
        ("/", Some("/api/v1/x")),
        ("/ap", None),
        ("/api/v1/x/y", None),
        ("/API", None),
    ] {
        assert_eq!(request.path_below(prefix), rest, "{prefix}");
    }
}

#[test]
fn a_prefix_of_a_path_with_several_readings_is_stripped_as_it_was_received() {
    for (target, rest) in [
        ("/api/v1/a%2fb", Ok(Some("/a%2fb"))),
        ("/%61pi/v1/%2fa;x", Ok(Some("/%2fa;x"))),
        ("/api/v1//b", Ok(Some("//b"))),
        ("/api/v1/./b", Ok(Some("/./b"))),
        ("/api/v2/a%2fb", Ok(None)),
        // Below the prefix for some servers only.
        ("/api/v1/..%2fb", Err(PrefixReadings)),
        ("/x/../api/v1/b", Err(PrefixReadings)),
        ("/api%2fv1/b", Err(PrefixReadings)),
        ("/api/v1;x/b", Err(PrefixReadings)),
        ("/api//v1/b", Err(PrefixReadings)),
    ] {
        assert_eq!(get(target).forwarded_below("/api/v1"), rest, "{target}");
    }
    assert_eq!(get("/a%2fb").forwarded_below("/"), Ok(Some("/a%2fb")));
}

#[test]
fn every_fault_has_its_own_code_and_a_message_in_house_style() {
    let faults = [
        Method,
        MethodRefused,
        MethodCase,
        HostMissing,
        HostMismatch,
        HostEmpty,
        HostTooLong,
        Host,
        UserInfo,
        Port,
        TargetTooLong,
        TargetForm,
        AuthorityTarget,
        AsteriskMethod,
        Fragment,
        Backslash,
        Control,
        NonAscii,
        BadEscape,
        ForbiddenEscape,
        InvalidUtf8,
        DotSegment,
        EmptySegment,
        NestedEscape,
        Readings,
        PrefixReadings,
    ];
    let codes: std::collections::HashSet<_> = faults.iter().map(|f| f.code()).collect();
    assert_eq!(codes.len(), faults.len());
    for fault in faults {
        let message = fault.to_string();
        assert!(message.starts_with(char::is_lowercase) && !message.ends_with('.'), "{message}");
        assert!(matches!(fault.status(), 400 | 414));
    }
}

#[test]
fn parts_are_those_of_the_request() {
    let raw = RawRequest {
        method: "PUT",
        scheme: Scheme::Http,
        authority: Some(b"Example.COM:8080"),
        host: Some(b"example.com.:8080"),
        target: b"/a?b",
    };
    let request = Canonical::parse(&raw).unwrap();
    assert_eq!(
        (request.scheme().as_str(), request.host(), request.port()),
        ("http", "example.com", Some(8080))
    );
    assert_eq!((request.authority(), request.path(), request.query()), ("example.com:8080", "/a", Some("b")));
}
