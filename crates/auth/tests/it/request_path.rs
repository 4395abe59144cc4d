//! One canonical request: the path.

use auth::request::{Malformed, Malformed::*};

use crate::fixtures::{get, target};

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

#[test]
fn an_encoded_slash_is_400() {
    refused(ForbiddenEscape, &["/a%2fb", "/a%2Fb", "/%2f", "/public/..%2fadmin", "/%2F%2Fevil.example/"]);
}

#[test]
fn an_encoded_backslash_is_400() {
    refused(ForbiddenEscape, &["/a%5cb", "/a%5Cb", "/..%5c..%5cadmin"]);
}

#[test]
fn an_encoded_semicolon_is_400() {
    refused(ForbiddenEscape, &["/a%3bb", "/..%3B/admin", "/admin%3bx=1/users"]);
}

#[test]
fn an_encoded_question_mark_is_400() {
    refused(ForbiddenEscape, &["/a%3fb=c", "/a%3F"]);
}

#[test]
fn an_encoded_hash_is_400() {
    refused(ForbiddenEscape, &["/a%23b", "/admin%23/../public"]);
}

#[test]
fn an_encoded_nul_or_control_character_is_400() {
    refused(
        ForbiddenEscape,
        &["/a%00", "/a%00.png", "/a%0d%0aX:y", "/a%0A", "/%1b", "/a%7F", "/a%09", "/a%C2%85"],
    );
}

#[test]
fn a_raw_dot_segment_is_400() {
    refused(DotSegment, &["/.", "/..", "/./a", "/../a", "/a/./b", "/a/../b", "/a/b/..", "/a/.", "/a/..?x=1"]);
}

#[test]
fn an_encoded_dot_segment_is_400() {
    let spellings =
        ["/%2e", "/%2E%2E", "/a/%2e%2e/b", "/a/.%2e/b", "/a/%2E./b", "/a/%2e/b", "/public/%2e%2e/admin"];
    refused(DotSegment, &spellings);
}

#[test]
fn a_double_encoded_dot_segment_is_400() {
    let spellings = [
        "/%252e",
        "/a/%252e%252e/b",
        "/a/.%252E/b",
        "/a/%252e./b",
        "/a/%25252e%25252e/b",
        "/a/%25%32%65%25%32%65/b",
        "/a/%252e%252e;x/b",
    ];
    refused(NestedEscape, &spellings);
}

#[test]
fn a_dot_segment_with_parameters_is_400() {
    refused(
        DotSegment,
        &["/..;/admin", "/a/..;x=1/b", "/a/.;/b", "/a/%2e%2e;/b", "/a/..;", "/a/..;%41", "/a;b/..;c/d"],
    );
}

#[test]
fn a_double_encoded_delimiter_is_400() {
    let spellings =
        ["/a%252fb", "/a%252Fb", "/a%255cb", "/a%253bb", "/a%253f", "/a%2523", "/a%2500", "/a%250a"];
    refused(NestedEscape, &spellings);
    refused(NestedEscape, &["/a%25252fb", "/a%2525252fb", "/a%25%32%66b", "/%2525252525252525252525"]);
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
    refused(InvalidUtf8, &["/?q=%ff", "/?q=%c3&r=%a4", "/?%C0%80"]);
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
    refused(BadEscape, &["/?%", "/?a=%2", "/?a=%zz", "/?a%"]);
}

#[test]
fn an_empty_segment_is_400() {
    refused(EmptySegment, &["/a//b", "/a//", "/a/b//c", "/a///", "/a//../b", "/%41//b", "/a//?x"]);
    // Without their parameters these are `//b`, `/a//b` and `/a/`.
    refused(EmptySegment, &["/;x/b", "/a/;/b", "/a/;x"]);
}

#[test]
fn a_target_that_is_not_a_path_is_400() {
    refused(TargetForm, &["", "a", "?a", "http://example.com/", "example.com:443", "*a", "%2fa"]);
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
    accepted(&[
        ("/%c3%a4/%20", "/%C3%A4/%20"),
        ("/a%3d%26", "/a%3D%26"),
        ("/100%25", "/100%25"),
        ("/%7b", "/%7B"),
    ]);
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
