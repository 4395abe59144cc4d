//! One canonical request: the path.

use auth::request::{Malformed, Malformed::*};

use crate::fixtures::{forwarded, get, target};

fn refused(fault: Malformed, targets: &[&str]) {
    for text in targets {
        assert_eq!(target(text.as_bytes()), Err(fault), "{text}");
    }
}

fn accepted(pairs: &[(&str, &str)]) {
    for (raw, normal) in pairs {
        assert_eq!(target(raw.as_bytes()).as_deref(), Ok(*normal), "{raw}");
        assert_eq!(target(normal.as_bytes()).as_deref(), Ok(*normal), "{normal} again");
    }
}

fn unchanged(targets: &[&str]) {
    accepted(&targets.iter().map(|&t| (t, t)).collect::<Vec<_>>());
}

/// Paths that servers read in several ways: each is forwarded as it was received, and refused with
/// this fault where one reading is required.
fn ambiguous(fault: Malformed, targets: &[&str]) {
    for &text in targets {
        let request = get(text);
        assert_eq!(forwarded(&request), text);
        assert!(!request.other_readings().is_empty(), "{text}");
        assert_eq!(request.strict_fault(), Some(fault), "{text}");
        let again = get(text);
        assert_eq!(again, request, "{text} again");
    }
}

#[test]
fn an_encoded_slash_is_ambiguous() {
    ambiguous(ForbiddenEscape, &["/a%2fb", "/a%2Fb", "/api/queues/%2f/name", "/public/..%2fadmin"]);
    refused(AuthorityTarget, &["/%2f", "/%2F%2Fevil.example/", "/%2fevil.example"]);
}

#[test]
fn an_encoded_backslash_is_ambiguous() {
    ambiguous(ForbiddenEscape, &["/a%5cb", "/a%5Cb"]);
    refused(DotSegment, &["/..%5c..%5cadmin"]);
}

#[test]
fn an_encoded_semicolon_is_ambiguous() {
    ambiguous(ForbiddenEscape, &["/a%3bb", "/admin%3bx=1/users"]);
    refused(DotSegment, &["/..%3B/admin"]);
}

#[test]
fn an_encoded_question_mark_is_ambiguous() {
    ambiguous(ForbiddenEscape, &["/a%3fb=c", "/a%3F"]);
    assert!(get("/a%3fb=c").query_fault().is_some(), "a parameter may be behind it");
}

#[test]
fn an_encoded_hash_is_ambiguous() {
    ambiguous(ForbiddenEscape, &["/a%23b", "/admin%23/../public", "/notebooks/Report%20%233.ipynb"]);
}

#[test]
fn an_encoded_nul_or_control_character_is_400() {
    refused(
        ForbiddenEscape,
        &["/a%00", "/a%00.png", "/a%0d%0aX:y", "/a%0A", "/%1b", "/a%7F", "/a%09", "/a%C2%85"],
    );
}

#[test]
fn a_dot_segment_that_stays_below_the_root_is_ambiguous() {
    ambiguous(DotSegment, &["/.", "/./a", "/a/./b", "/a/../b", "/a/b/..", "/a/.", "/a/..?x=1"]);
    ambiguous(DotSegment, &["/a/..;x=1/b", "/a/.;/b", "/a/..;", "/a/..;%41", "/a;b/..;c/d"]);
}

#[test]
fn a_dot_segment_that_leads_above_the_root_is_400() {
    refused(DotSegment, &["/..", "/../a", "/a/../..", "/a/../../b", "/..;/admin", "/a%2f../../.."]);
    refused(DotSegment, &["/%252e%252e", "/a/%252e%252e/%252e%252e", "/a/%25%32%65%25%32%65/../b"]);
}

#[test]
fn an_encoded_dot_segment_is_400() {
    let spellings =
        ["/%2e", "/%2E%2E", "/a/%2e%2e/b", "/a/.%2e/b", "/a/%2E./b", "/a/%2e/b", "/public/%2e%2e/admin"];
    refused(DotSegment, &spellings);
    refused(DotSegment, &["/a/%2e%2e;/b", "/a/%2e;x", "/a/b%2f/%2e%2e"]);
}

#[test]
fn an_escape_of_an_escape_is_ambiguous() {
    let dots = [
        "/a/%252e",
        "/a/%252e%252e/b",
        "/a/.%252E/b",
        "/a/%252e./b",
        "/a/%25252e%25252e/b",
        "/a/%25%32%65%25%32%65/b",
        "/a/%252e%252e;x/b",
    ];
    ambiguous(NestedEscape, &dots);
    ambiguous(NestedEscape, &["/a%252fb", "/a%252Fb", "/a%255cb", "/a%253bb", "/a%253f", "/a%2523"]);
    ambiguous(NestedEscape, &["/a%25252fb", "/a%2525252fb", "/a%25%32%66b", "/%2525252525252525252525"]);
    refused(NestedEscape, &["/a%2500", "/a%250a", "/a%25250a"]);
    // All servers that decode it again read the same.
    assert_eq!(get("/a%2541").strict_fault(), None);
}

#[test]
fn a_raw_fragment_is_400() {
    refused(Fragment, &["/a#b", "/#", "/a?b#c", "/a/%20#"]);
}

#[test]
fn a_raw_backslash_is_400() {
    refused(Backslash, &["/a\\b", "/\\evil.example", "/..\\admin", "/a?b=\\"]);
}

#[test]
fn a_raw_space_or_control_character_is_400() {
    refused(Control, &["/a b", "/a\tb", "/a\r\nb", "/a\0", "/a\x7f", "/a?b c", "/a?\x01", "/%20/ "]);
}

#[test]
fn a_raw_byte_outside_of_ascii_is_400() {
    refused(NonAscii, &["/ä", "/a?ä", "/a/\u{2025}/b", "/%20ä"]);
    for raw in [&b"/\xff"[..], b"/\xc0\xae\xc0\xae/", b"/a?\xe4"] {
        assert_eq!(target(raw), Err(NonAscii));
    }
}

#[test]
fn invalid_utf8_behind_escapes_is_400() {
    let spellings = [
        "/%ff",
        "/%c0%ae%c0%ae/admin",
        "/%C0%AF",
        "/%e0%80%af",
        "/%c3",
        "/%c3/%a4",
        "/%c3a4",
        "/%ed%a0%80",
        "/%80",
    ];
    refused(InvalidUtf8, &spellings);
}

#[test]
fn a_target_that_begins_with_an_authority_is_400() {
    refused(AuthorityTarget, &["//", "//evil.example", "//evil.example/a", "///a", "//a?b"]);
}

#[test]
fn a_bad_percent_escape_is_400() {
    refused(
        BadEscape,
        &["/%", "/%2", "/%g0", "/%0g", "/a%/b", "/%%32%65", "/% 20", "/%u002e", "/%-1", "/a%2?b"],
    );
}

#[test]
fn an_empty_segment_is_ambiguous() {
    ambiguous(EmptySegment, &["/a//b", "/a//", "/a/b//c", "/a///", "/a//../b", "/a//?x"]);
    // Without their parameters these are `/a//b` and `/a/`.
    ambiguous(EmptySegment, &["/a/;/b", "/a/;x"]);
    refused(AuthorityTarget, &["/;x/b"]);
}

#[test]
fn too_many_readings_are_400() {
    refused(Readings, &["/a%2F%5C%40;x//%2540%252F%253Bx/./b"]);
}

#[test]
fn what_servers_read_differently_is_forwarded_to_the_byte() {
    for target in ["/%7e/a%2fb/\"|\"/%c3%a4", "/a;%40/%c3%a4", "/x//%41"] {
        assert_eq!(forwarded(&get(target)), target);
    }
    // Matched in normal form.
    assert_eq!(get("/%7e/a%2fb/%c3%a4").path(), "/~/a%2Fb/%C3%A4");
}

#[test]
fn a_target_that_is_not_a_path_is_400() {
    refused(TargetForm, &["", "a", "?a", "http://example.com/", "example.com:443", "*a", "%2fa"]);
}

#[test]
fn a_query_is_read_only_where_it_matters() {
    for (target, fault) in [
        ("/?%", BadEscape),
        ("/?q=100%", BadEscape),
        ("/?a=%2", BadEscape),
        ("/?a=%zz", BadEscape),
        ("/?q=%E9", InvalidUtf8),
        ("/?q=%c3&r=%a4", InvalidUtf8),
        ("/?%C0%80", InvalidUtf8),
        ("/?a=b%00", ForbiddenEscape),
    ] {
        let request = get(target);
        assert_eq!((forwarded(&request).as_str(), request.query_fault()), (target, Some(fault)), "{target}");
    }
    for target in ["/", "/?", "/?a=%2F%3B&b=//..", "/?q=%C3%A9+%25"] {
        assert_eq!(get(target).query_fault(), None, "{target}");
    }
}

#[test]
fn unreserved_characters_are_never_escaped() {
    accepted(&[
        ("/%61%62c", "/abc"),
        ("/%7Eme/%2Da%5F", "/~me/-a_"),
        ("/a%2Eb/%2e%2e%2e", "/a.b/..."),
        ("/%41/%7a/%30", "/A/z/0"),
    ]);
}

#[test]
fn other_escapes_are_upper_case() {
    accepted(&[("/%c3%a4/%20", "/%C3%A4/%20"), ("/100%25", "/100%25"), ("/%7b", "/%7B")]);
}

#[test]
fn what_browsers_send_raw_is_taken_as_its_escape() {
    accepted(&[("/a|b", "/a%7Cb"), ("/[1]/{x}", "/%5B1%5D/%7Bx%7D"), ("/\"<>^`", "/%22%3C%3E%5E%60")]);
}

#[test]
fn what_is_canonical_stays_as_it_is() {
    unchanged(&[
        "/",
        "/a",
        "/a/",
        "/a/b.c/~d_e-f",
        "/...",
        "/.a/..b/c..",
        "/a;v=1/b;w",
        "/a:b@c!$&'()*+,=",
        "/%25",
        "/50%25/a%25b",
        "/a%2541",
        "/%E2%82%AC",
        "/a?",
        "/?a=/../&b=%2F%3B&c=//",
        "/a?b?c=[]{}|^\"<>",
    ]);
}

#[test]
fn a_path_that_is_canonical_is_borrowed() {
    // `get` lives as long as the text only if it is a view of it.
    let target = String::from("/a/b%20c/%C3%A4?q=1");
    let request = get(&target);
    assert_eq!(request.path().as_ptr(), target.as_ptr());
    assert_eq!(request.query().unwrap().as_ptr(), target[target.find('?').unwrap() + 1..].as_ptr());
}
