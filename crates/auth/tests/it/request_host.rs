//! One canonical request: the host.

use auth::request::{Canonical, Malformed, Malformed::*, RawRequest, Scheme};

fn raw<'a>(scheme: Scheme, authority: Option<&'a [u8]>, host: Option<&'a [u8]>) -> RawRequest<'a> {
    RawRequest { method: "GET", scheme, authority, host, target: b"/" }
}

/// The normal authority of an HTTPS request.
fn normal(host: &str) -> Result<String, Malformed> {
    let raw = raw(Scheme::Https, None, Some(host.as_bytes()));
    Canonical::parse(&raw).map(|request| request.authority().to_owned())
}

fn refused(fault: Malformed, hosts: &[&str]) {
    for host in hosts {
        assert_eq!(normal(host), Err(fault), "{host}");
    }
}

fn accepted(pairs: &[(&str, &str)]) {
    for (host, expected) in pairs {
        assert_eq!(normal(host).as_deref(), Ok(*expected), "{host}");
        assert_eq!(normal(expected).as_deref(), Ok(*expected), "{expected} again");
    }
}

#[test]
fn hosts_compare_in_lower_case() {
    accepted(&[("Example.COM", "example.com"), ("LOCALHOST", "localhost"), ("a_b.C-d", "a_b.c-d")]);
}

#[test]
fn hosts_compare_as_a_labels() {
    accepted(&[
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.Example", "xn--bcher-kva.example"),
        ("日本語。jp", "xn--wgv71a119e.jp"),
        ("ｅｘａｍｐｌｅ.com", "example.com"),
        ("bücher.example.:8443", "xn--bcher-kva.example:8443"),
    ]);
    refused(
        Host,
        &["xn--a.example", "xn--zzzzzz99999.com", "xn--.com", "a／b.example", "ex\u{2048}.com", "ü/x"],
    );
}

#[test]
fn one_trailing_dot_is_removed() {
    accepted(&[
        ("example.com.", "example.com"),
        ("Example.com.:8443", "example.com:8443"),
        ("localhost.", "localhost"),
    ]);
    refused(HostEmpty, &["example.com..", ".", ".."]);
}

#[test]
fn the_default_port_of_the_scheme_is_removed() {
    accepted(&[
        ("example.com:443", "example.com"),
        ("example.com:80", "example.com:80"),
        ("[::1]:443", "[::1]"),
    ]);
    let http = Canonical::parse(&raw(Scheme::Http, None, Some(b"example.com:80"))).unwrap();
    assert_eq!((http.authority(), http.port()), ("example.com", None));
    let other = Canonical::parse(&raw(Scheme::Http, None, Some(b"example.com:443"))).unwrap();
    assert_eq!(
        (other.authority(), other.host(), other.port()),
        ("example.com:443", "example.com", Some(443))
    );
}

#[test]
fn a_port_is_a_number_and_has_one_spelling() {
    accepted(&[
        ("a:8080", "a:8080"),
        ("a:08080", "a:8080"),
        ("a:00443", "a"),
        ("a:", "a"),
        ("a:65535", "a:65535"),
    ]);
    refused(
        Port,
        &[
            "a:0", "a:65536", "a:99999", "a:000001", "a:+80", "a:-1", "a:8 0", "a:http", "a:80:90", "a::80",
            "a:８０",
        ],
    );
}

#[test]
fn authority_and_host_must_agree() {
    let agree = |authority: &str, host: &str| {
        let raw = raw(Scheme::Https, Some(authority.as_bytes()), Some(host.as_bytes()));
        Canonical::parse(&raw).map(|r| r.authority().to_owned())
    };
    for (authority, host) in [
        ("example.com", "example.com"),
        ("example.com", "EXAMPLE.com.:443"),
        ("example.com:443", "example.com"),
        ("xn--bcher-kva.example", "bücher.example"),
    ] {
        assert_eq!(agree(authority, host), normal(authority), "{authority} {host}");
    }
    for (authority, host) in [
        ("example.com", "evil.example"),
        ("example.com", "example.com:444"),
        ("a.example.com", "example.com"),
    ] {
        assert_eq!(agree(authority, host), Err(HostMismatch), "{authority} {host}");
    }
    assert_eq!(agree("example.com", ""), Err(HostEmpty));
    assert_eq!(agree("", "example.com"), Err(HostEmpty));
    assert_eq!(agree("example.com", "user@example.com"), Err(UserInfo));
}

#[test]
fn a_request_without_host_is_400() {
    assert_eq!(Canonical::parse(&raw(Scheme::Https, None, None)), Err(HostMissing));
    let optional = |host| Canonical::parse_with_optional_host(&raw(Scheme::Https, None, host));
    let absent = optional(None).unwrap();
    assert_eq!((absent.host(), absent.authority(), absent.port()), ("", "", None));
    assert_eq!(optional(Some(b"A.example:443")).unwrap().authority(), "a.example");
    assert_eq!(optional(Some(b"")), Err(HostEmpty));
    let authority = Canonical::parse(&raw(Scheme::Https, Some(b"example.com"), None)).unwrap();
    assert_eq!(authority.host(), "example.com");
}

#[test]
fn an_empty_host_or_label_is_400() {
    refused(HostEmpty, &["", ":443", "a..b", ".a", "a..", ":"]);
}

#[test]
fn user_information_is_400() {
    refused(
        UserInfo,
        &["user@example.com", "user:secret@example.com", "@example.com", "a@b@c", "example.com@"],
    );
}

#[test]
fn what_is_no_host_is_400() {
    refused(
        Host,
        &[
            "a b",
            "a/b",
            "a\\b",
            "a?b",
            "a#b",
            "a%41",
            "a,b",
            "a*b",
            "*",
            "a;b",
            "exa\tmple",
            "a\0",
            "a\"",
            "(a)",
        ],
    );
    assert_eq!(Canonical::parse(&raw(Scheme::Https, None, Some(b"a\xff"))), Err(Host));
}

#[test]
fn a_host_has_a_longest_length() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(longest.len(), 253);
    accepted(&[(&longest, &longest), (&format!("{longest}."), &longest)]);
    refused(HostTooLong, &[&format!("{longest}a"), &format!("a{label}.com"), &"ü".repeat(1000)]);
    refused(HostTooLong, &[&format!("{label}.{label}.{label}.{label}.com")]);
}

#[test]
fn an_ip_literal_has_one_spelling() {
    accepted(&[
        ("[::1]", "[::1]"),
        ("[0:0:0:0:0:0:0:1]:8443", "[::1]:8443"),
        ("[2001:DB8::A]", "[2001:db8::a]"),
        ("[::ffff:192.0.2.1]:9", "[::ffff:192.0.2.1]:9"),
        ("192.0.2.1:8443", "192.0.2.1:8443"),
    ]);
    let bad =
        ["[::1", "[]", "[::1]a", "[::1]:443a", "[fe80::1%25eth0]", "[v1.a]", "[192.0.2.1]", "[::g]", "::1]"];
    for host in bad {
        assert!(matches!(normal(host), Err(Host | Port | HostEmpty)), "{host}: {:?}", normal(host));
    }
    let request = Canonical::parse(&raw(Scheme::Https, None, Some(b"[::1]:8443"))).unwrap();
    assert_eq!((request.host(), request.port()), ("[::1]", Some(8443)));
}

#[test]
fn an_authority_that_is_canonical_is_borrowed() {
    for host in ["example.com", "example.com:8443", "192.0.2.1"] {
        let raw = raw(Scheme::Https, None, Some(host.as_bytes()));
        assert_eq!(Canonical::parse(&raw).unwrap().authority().as_ptr(), host.as_ptr());
    }
}

#[test]
fn a_known_host_stands_for_the_same_bytes_and_for_nothing_else() {
    let hosts: [&[u8]; 6] = [
        b"a.example",
        b"A.example:80",
        b"a.example.:8443",
        b"[::1]:443",
        b"b\xc3\xbccher.example",
        b"10.0.0.1",
    ];
    for scheme in [Scheme::Http, Scheme::Https] {
        for host in hosts {
            let request = raw(scheme, None, Some(host));
            let known = Canonical::parse(&request).unwrap().known_host();
            let again = RawRequest { target: b"/other?x=1", ..request };
            assert_eq!(Canonical::parse_with_known_host(&again, &known), Canonical::parse(&again));
            // The default port is another one.
            let other = if scheme == Scheme::Http { Scheme::Https } else { Scheme::Http };
            let other = raw(other, None, Some(host));
            assert_eq!(Canonical::parse_with_known_host(&other, &known), Canonical::parse(&other));
            // The authority of the target counts, and may be another one.
            let target = raw(scheme, Some(b"c.example"), Some(host));
            assert_eq!(Canonical::parse_with_known_host(&target, &known), Err(Malformed::HostMismatch));
            let none = raw(scheme, None, None);
            assert_eq!(Canonical::parse_with_known_host(&none, &known), Err(Malformed::HostMissing));
            let target = RawRequest { target: b"/\x01", ..request };
            assert!(Canonical::parse_with_known_host(&target, &known).is_err());
        }
    }
}
