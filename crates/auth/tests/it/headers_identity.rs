//! Identity headers: what the upstream receives.

use auth::headers::{HeaderFault, HeaderSource, IdentityHeaders};
use auth::identity::Identity;
use proptest::prelude::*;

use crate::fixtures::{boxes, identity};

fn rendered(headers: &IdentityHeaders, identity: &Identity) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    headers.render(identity).into_iter().map(|(name, value)| (name.into(), text(&value))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn custom(sources: Vec<(&str, HeaderSource)>) -> IdentityHeaders {
    IdentityHeaders::custom(sources.into_iter().map(|(name, source)| (name.into(), source)).collect())
        .unwrap()
}

/// The spelling of one group in a header.
fn group(name: &str) -> String {
    let mut identity = identity();
    identity.groups = boxes(&[name]);
    rendered(&custom(vec![("x-groups", HeaderSource::Groups)]), &identity)
        .pop()
        .map_or(String::new(), |(_, v)| v)
}

#[test]
fn the_styles_have_their_names() {
    let expected = [
        ("User", "alice"),
        ("Email", "alice@example.com"),
        ("Groups", "dev,ops"),
        ("Preferred-Username", "alice"),
    ];
    for (headers, prefix) in [
        (IdentityHeaders::x_forwarded(), "X-Forwarded-"),
        (IdentityHeaders::x_auth_request(), "X-Auth-Request-"),
    ] {
        let expected: Vec<_> =
            expected.map(|(name, value)| (format!("{prefix}{name}"), value.to_owned())).into();
        assert_eq!(rendered(&headers, &identity()), expected);
    }
    assert!(rendered(&IdentityHeaders::none(), &identity()).is_empty());
}

#[test]
fn every_attribute_can_have_a_header() {
    let headers = custom(vec![
        ("x-subject", HeaderSource::Subject),
        ("x-issuer", HeaderSource::Issuer),
        ("x-client", HeaderSource::Client),
        ("x-scopes", HeaderSource::Scopes),
        ("x-tenant", HeaderSource::Claim("tenant".into())),
        ("x-none", HeaderSource::Claim("other".into())),
    ]);
    let expected = [
        ("x-subject", "sub-1"),
        ("x-issuer", "main"),
        ("x-client", "web"),
        ("x-scopes", "read list"),
        ("x-tenant", "t1,t2"),
    ];
    assert_eq!(rendered(&headers, &identity()), pairs(&expected));
}

#[test]
fn what_the_identity_lacks_is_left_out() {
    let mut anonymous = identity();
    (anonymous.user, anonymous.email) = (None, None);
    anonymous.groups.clear();
    let expected = pairs(&[("X-Forwarded-User", "sub-1")]);
    assert_eq!(rendered(&IdentityHeaders::x_forwarded(), &anonymous), expected);
}

#[test]
fn a_separator_inside_of_a_value_adds_no_value() {
    assert_eq!(group("a,admin"), "a%2Cadmin");
    assert_eq!(group("a%2Cadmin"), "a%252Cadmin");
    assert_eq!(group("\"a"), "%22a");
    assert_eq!(group("two words"), "two words");
    let mut identity = identity();
    identity.scopes = boxes(&["a b", "c,d"]);
    let scopes = rendered(&custom(vec![("x-scopes", HeaderSource::Scopes)]), &identity);
    assert_eq!(scopes, pairs(&[("x-scopes", "a%20b c,d")]));
    identity.user = Some("Doe, \"Jane\" 100%".into());
    let user = rendered(&custom(vec![("x-user", HeaderSource::User)]), &identity);
    assert_eq!(user, pairs(&[("x-user", "Doe, \"Jane\" 100%25")]));
}

#[test]
fn no_value_can_end_the_line_or_be_trimmed_into_another() {
    assert_eq!(group("a\r\nX-Forwarded-User: root"), "a%0D%0AX-Forwarded-User: root");
    assert_eq!(group("a\0\x7f\t"), "a%00%7F%09");
    assert_eq!(group(" admin "), "%20admin%20");
    assert_eq!(group("  "), "%20%20");
    assert_eq!(group("\u{a0}admin"), "%C2%A0admin");
    assert_eq!(group("José"), "Jos%C3%A9");
    assert_eq!(group(""), "");
}

#[test]
fn names_that_cannot_carry_an_identity_are_refused() {
    let refused = |names: &[&str]| {
        let fields = names.iter().map(|name| (name.to_string(), HeaderSource::User)).collect();
        IdentityHeaders::custom(fields).unwrap_err()
    };
    assert_eq!(
        refused(&["x user", ""]),
        [HeaderFault::Name("x user".into()), HeaderFault::Name(String::new())]
    );
    assert_eq!(refused(&["X-User*"]), [HeaderFault::Name("X-User*".into())], "a family is not one header");
    for name in [
        "Host",
        "authorization",
        "Content-Length",
        "Cookie",
        "Connection",
        "Upgrade",
        "X-Forwarded-For",
        "x_real.ip",
        "traceparent",
        "TraceState",
    ] {
        assert_eq!(refused(&[name]), [HeaderFault::Reserved(name.into())]);
    }
    assert_eq!(refused(&["X-User", "x_user"]), [HeaderFault::Alias("X-User".into(), "x_user".into())]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_rendered_value_is_safe_and_decodes_to_what_was_there(groups in prop::collection::vec("\\PC{0,6}|[ ,%\"\\x00-\\x20]{1,4}", 0..5)) {
        let mut identity = identity();
        identity.groups = groups.iter().map(|g| g.as_str().into()).collect();
        let value = rendered(&custom(vec![("x-groups", HeaderSource::Groups)]), &identity);
        let value = value.first().map_or("", |(_, value)| value);
        prop_assert!(value.bytes().all(|b| b.is_ascii_graphic() || b == b' '));
        prop_assert_eq!(value, value.trim());
        let decoded: Vec<String> = value.split(',').filter(|v| !v.is_empty()).map(decode).collect();
        let sent: Vec<String> = groups.into_iter().filter(|g| !g.is_empty()).collect();
        prop_assert_eq!(decoded, sent);
    }
}

fn decode(text: &str) -> String {
    let mut out = Vec::new();
    let mut parts = text.split('%');
    out.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        out.push(u8::from_str_radix(&part[..2], 16).unwrap());
        out.extend(part[2..].bytes());
    }
    String::from_utf8(out).unwrap()
}
