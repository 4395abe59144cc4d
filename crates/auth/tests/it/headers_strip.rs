//! Strip set: what is deleted before anything is set, and what a client cannot cause to be deleted.

use auth::headers::{IdentityHeaders, StripFault, StripSet, is_per_hop, may_be_nominated};
use proptest::prelude::*;

/// One name of every protected family.
const PROTECTED: [&str; 34] = [
    "X-Forwarded-For",
    "X-Forwarded-User",
    "X-Forwarded-Client-Cert",
    "X-Forwarded",
    "Forwarded",
    "X-Original-URL",
    "X-Original-Method",
    "X-Rewrite-URL",
    "X-Envoy-Original-Path",
    "X-Envoy-External-Address",
    "X-Auth-Request-User",
    "X-Auth-Request-Access-Token",
    "X-Real-IP",
    "X-Remote-User",
    "X-Remote-Extra-Scopes",
    "Remote-User",
    "X-SSL-Client-Cert",
    "X-SSL-Client-S-DN",
    "SSL-Client-Verify",
    "X-Client-Cert",
    "X-Client-Certificate",
    "Client-Cert",
    "Client-Cert-Chain",
    "X-TLS-Client-Subject",
    "X-ARR-ClientCert",
    "X-Amzn-Mtls-Clientcert",
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "X-Postern-Assertion",
    "X-Host",
    "$WSRA",
    "$WSCC",
    "$wsru",
    "_WSSC",
];

/// Names that, by their parts, describe a client's certificate or address.
const OF_THE_CLIENT: [&str; 42] = [
    "X-Client-DN",
    "X-Client-S-DN",
    "X-ClientCert",
    "X-Client-CN",
    "X-Client-Verify",
    "X-Client-Serial",
    "X-Client-Cert-Serial",
    "Client-DN",
    "DN-Client",
    "My-Client-Cert",
    "Cert",
    "Cert-Subject",
    "X-Cert",
    "X-Cert-Chain",
    "ClientCert",
    "X-Subject-ClientCert",
    "X-WebAuth-Client-Cert",
    "X-Mutual-Tls-Cert",
    "cERT-sUBJECT",
    "X_CLIENT_S_DN",
    "x.clientcert",
    "X-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Fastly-Client-IP",
    "X-Cluster-Client-IP",
    "X-Real-IP",
    "X-Original-Forwarded-IP",
    "X-IP",
    "true_client_ip",
    "Cf.Connecting.Ip",
    "X-Appengine-User-IP",
    "X-Azure-ClientIP",
    "X-Azure-SocketIP",
    "X-ClientIP",
    "CF-Connecting-IPv6",
    "CF-Pseudo-IPv4",
    "Client-Certificate",
    "X-Certificate",
    "X-Peer-Certificate",
    "Proxy-Client-Certificate",
    "x-azure-socketip-of-a-long-name-and-a-cert",
];

/// Similar names that say nothing about the caller.
const LIKE_THEM: [&str; 43] = [
    "X-Client-Id",
    "X-Client-Version",
    "X-Client-Name",
    "X-Client-Type",
    "X-Client",
    "Client",
    "X-Client-Data",
    "X-Client-Verified",
    "X-Client-Ips",
    "X-Client-IP-Version",
    "X-Ip-Address",
    "X-Zip",
    "Ip",
    "X-Membership",
    "X-Dn",
    "X-CN",
    "X-Verify",
    "X-Serial",
    "X-Clients-DN",
    "X-Certain",
    "X-Concert",
    "X-Concert-Id",
    "X-Certified",
    "X-Clientcerts",
    "Accept",
    "Accept-Encoding",
    "Access-Control-Request-Headers",
    "Cache-Control",
    "Sec-CH-UA-Client",
    "X-Clip",
    "X-Tip",
    "X-Trip",
    "X-IPv4-Enabled",
    "X-Ipv64",
    "X-Ipv5",
    "ClientIP",
    "X-Certified-By",
    "X-Certificates",
    "X-Certification",
    "Ws-Token",
    "X-WS-Id",
    "X-Hosts",
    "X-Hostname",
];

#[test]
fn what_tells_of_a_clients_certificate_or_address_is_deleted() {
    let set = StripSet::default();
    for name in OF_THE_CLIENT {
        assert!(set.strips(name), "{name}");
        assert!(set.strips(&name.to_ascii_uppercase().replace(['-', '.'], "_")), "{name}");
        assert_eq!(nominated(name), Vec::<String>::new(), "{name}");
    }
    for name in LIKE_THEM {
        assert!(!set.strips(name), "{name}");
    }
}

#[test]
fn protected_families_are_deleted_even_when_none_is_set() {
    let set = IdentityHeaders::none().strip_set([]);
    for name in PROTECTED {
        assert!(set.strips(name), "{name}");
    }
}

#[test]
fn identity_headers_are_deleted_by_alias_class() {
    let set = StripSet::new(["X-User", "tenant_id"]);
    let aliases = [
        "x-user",
        "X-USER",
        "X_User",
        "x_user",
        "X.User",
        "x user",
        "X-uSeR",
        "Tenant-Id",
        "TENANT_ID",
        "tenant.id",
        "tenant id",
    ];
    for name in aliases {
        assert!(set.strips(name), "{name}");
    }
    for name in ["x-users", "x-use", "xuser", "x--user", "user", "x-user-", "tenantid", ""] {
        assert!(!set.strips(name), "{name}");
    }
}

#[test]
fn what_names_nothing_that_could_be_deleted_is_told() {
    for name in ["X-User", "x", "Cookie2", "abc*", "X-Internal-*"] {
        assert_eq!(StripSet::check(name), Ok(()), "{name}");
        assert!(StripSet::new([name]).strips(name.trim_end_matches('*')), "{name}");
    }
    for name in ["*", "x*", "x-*", "my*"] {
        assert_eq!(StripSet::check(name), Err(StripFault::Family(name.into())));
    }
    for name in ["X-*-User", "*-User", "X-User**"] {
        assert_eq!(StripSet::check(name), Err(StripFault::Star(name.into())));
    }
    for name in ["", "X User", "X-\u{fc}"] {
        assert_eq!(StripSet::check(name), Err(StripFault::Name(name.into())));
    }
}

#[test]
fn ordinary_fields_pass() {
    let set = StripSet::default();
    for name in [
        "Host",
        "Accept",
        "Accept-Encoding",
        "Authorization",
        "Cookie",
        "Content-Type",
        "Content-Length",
        "User-Agent",
        "X-Request-Id",
        "X-Requested-With",
        "X-Api-Key",
        "X-CSRF-Token",
        "traceparent",
        "Sec-WebSocket-Key",
        "Origin",
        "If-None-Match",
        "Range",
        "X-Client",
        "Client-Id",
        "Forward",
        "X-Real",
        "X-Originalx",
        "Remote",
        "TE",
    ] {
        assert!(!set.strips(name), "{name}");
    }
}

#[test]
fn every_configured_style_is_in_its_strip_set() {
    for headers in [IdentityHeaders::x_forwarded(), IdentityHeaders::x_auth_request()] {
        let set = headers.strip_set(["X-Own-Assertion"]);
        assert!(headers.names().all(|name| set.strips(name)));
        assert!(set.strips("x_own.assertion"));
    }
}

#[test]
fn fields_that_each_hop_writes_are_known_in_every_alias() {
    for name in [
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "TE",
        "Transfer-Encoding",
        "Upgrade",
        "Proxy-Authenticate",
        "Proxy-Authorization",
        "HTTP2-Settings",
        "transfer_encoding",
        "TRANSFER.ENCODING",
        "keep alive",
        "Content-Length",
        "content_length",
        "Content.Length",
    ] {
        assert!(is_per_hop(name), "{name}");
    }
    for name in [
        "",
        "Trailer",
        "Host",
        "Content-Lengths",
        "ContentLength",
        "Connections",
        "Upgrade-Insecure-Requests",
        "T",
        "Up-grade",
    ] {
        assert!(!is_per_hop(name), "{name}");
    }
}

fn nominations<'v>(value: &'v [u8], protected: &'v StripSet) -> impl Iterator<Item = &'v str> {
    let options = value.split(|&b| b == b',').filter_map(|option| str::from_utf8(option.trim_ascii()).ok());
    options.filter(|name| may_be_nominated(name, protected))
}

fn nominated(value: &str) -> Vec<String> {
    nominations(value.as_bytes(), &StripSet::default()).map(Into::into).collect()
}

#[test]
fn connection_nominations_of_protected_names_are_ignored() {
    for name in PROTECTED {
        assert_eq!(nominated(name), Vec::<String>::new(), "{name}");
    }
    let own = StripSet::new(["X-User"]);
    assert_eq!(nominations(b"close, x_user, X-Hop", &own).collect::<Vec<_>>(), ["X-Hop"]);
}

#[test]
fn connection_nominations_of_essential_fields_are_ignored() {
    for name in [
        "Host",
        "Authorization",
        "Content-Length",
        "content-length",
        "Content-Type",
        "Content_Encoding",
        "Cookie",
        "Cache-Control",
        "If-Match",
        "if-none-match",
        "Range",
        "Expect",
        "Origin",
        "Sec-Fetch-Site",
        "traceparent",
        "Accept",
        "Trailer",
        "Date",
    ] {
        assert_eq!(nominated(name), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn connection_nominations_of_others_are_followed() {
    assert_eq!(nominated("close"), Vec::<String>::new());
    assert_eq!(nominated("keep-alive, Upgrade, TE, Close"), Vec::<String>::new());
    assert_eq!(nominated("x-one ,\tX-Two,,x three, y\"z, X-Hop"), ["x-one", "X-Two", "X-Hop"]);
    assert_eq!(nominations(b"x-\xff, ok", &StripSet::default()).collect::<Vec<_>>(), ["ok"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_random_alias_of_a_protected_name_is_deleted(
        name in prop::sample::select(&PROTECTED[..]),
        choices in prop::collection::vec(any::<u8>(), 40),
    ) {
        let respelled: String = name.chars().zip(choices).map(|(c, choice)| match c {
            '-' => ['-', '_', '.', ' ', '!', '~', '+', '|'][usize::from(choice % 8)],
            c if choice % 2 == 0 => c.to_ascii_uppercase(),
            c => c.to_ascii_lowercase(),
        }).collect();
        prop_assert!(StripSet::default().strips(&respelled), "{}", respelled);
        let nominated = nominations(respelled.as_bytes(), &StripSet::default()).count();
        prop_assert_eq!(nominated, 0);
    }

    #[test]
    fn a_set_deletes_exactly_the_aliases_of_its_names(
        names in prop::collection::vec("[a-c]{1,2}[-_.][a-c]{1,2}", 1..6),
        probe in "[a-cA-C]{1,2}[-_. ][a-cA-C]{1,2}",
    ) {
        let fold = |name: &str| name.to_ascii_lowercase().replace(['_', '.', ' '], "-");
        let expected = names.iter().any(|name| fold(name) == fold(&probe));
        prop_assert_eq!(StripSet::new(&names).strips(&probe), expected);
    }
}
