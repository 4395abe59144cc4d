//! Affinity: sends the requests of one client to the same endpoint.
//!
//! Owns: which part of a request identifies the client, and the cookie that does so for browsers.
//! Does not own: which endpoint a client has ([`http_engine::upstream`], by rendezvous hashing).

use std::fmt::Write as _;

use auth::request::{Field, Scheme};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use credentials::authenticate::Verified;

use crate::config::Affinity;

/// Length of the cookie's value: 128 random bits in hexadecimal digits.
const VALUE_LENGTH: usize = 32;

/// The client of a request.
pub(crate) struct Client {
    /// Hash of what identifies it.
    pub(crate) hash: u64,
    /// `Set-Cookie` for a client without a cookie.
    pub(crate) cookie: Option<Box<str>>,
}

/// The client of a request; `None`: nothing identifies it.
pub(crate) fn client(
    affinity: &Affinity,
    fields: &[Field<'_>],
    scheme: Scheme,
    caller: Option<&Verified>,
) -> Option<Client> {
    match affinity {
        Affinity::Header(name) => {
            let values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            let values: Vec<_> = values.map(|field| field.value).collect();
            (!values.is_empty()).then(|| Client { hash: hash(&values), cookie: None })
        }
        Affinity::User => {
            let identity = &caller?.facts.identity;
            let hash = hash(&[identity.issuer.as_bytes(), identity.subject.as_bytes()]);
            Some(Client { hash, cookie: None })
        }
        Affinity::Cookie { name, .. } => match find_cookie(name, fields) {
            Some(value) => Some(Client { hash: hash(&[value]), cookie: None }),
            None => {
                let value = new_value()?;
                let cookie = Some(set_cookie(affinity, &value, scheme)?.into());
                Some(Client { hash: hash(&[value.as_bytes()]), cookie })
            }
        },
    }
}

/// Point of a client among the shares of several upstreams. It is independent of the endpoint that
/// the hash selects: otherwise the clients of one upstream would share some of its endpoints only.
/// (The finalizer of `SplitMix64`.)
pub(crate) fn point(hash: u64) -> u64 {
    let mixed = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The same for every gateway and process, so that all choose the same endpoint. Lengths separate
/// the parts.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut digest = Context::new(&SHA256);
    for part in parts {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let digest = digest.finish();
    digest.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

/// Value of the cookie, if the gateway could have set it.
fn find_cookie<'f>(name: &str, fields: &[Field<'f>]) -> Option<&'f [u8]> {
    let cookies = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("cookie"));
    let mut pairs = cookies.flat_map(|field| field.value.split(|byte| *byte == b';'));
    pairs.find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        (value.len() == VALUE_LENGTH && value.iter().all(u8::is_ascii_hexdigit)).then_some(value)
    })
}

/// A random value. It names no endpoint, and says nothing about the client. Without randomness the
/// request is sent like one without affinity.
fn new_value() -> Option<String> {
    let mut bytes = [0; VALUE_LENGTH / 2];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let mut value = String::with_capacity(VALUE_LENGTH);
    for byte in bytes {
        let _ = write!(value, "{byte:02x}");
    }
    Some(value)
}

fn set_cookie(affinity: &Affinity, value: &str, scheme: Scheme) -> Option<String> {
    let Affinity::Cookie { name, ttl } = affinity else { return None };
    let mut cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax");
    if scheme.as_str() == "https" {
        cookie.push_str("; Secure");
    }
    if let Some(ttl) = ttl {
        let _ = write!(cookie, "; Max-Age={}", ttl.as_secs());
    }
    Some(cookie)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn cookie() -> Affinity {
        Affinity::Cookie { name: "lb".into(), ttl: Some(Duration::from_mins(1)) }
    }

    fn with_cookies(value: &str) -> Option<Client> {
        let fields = [Field { name: "Cookie", value: value.as_bytes() }];
        client(&cookie(), &fields, Scheme::Https, None)
    }

    #[test]
    fn a_client_without_a_cookie_gets_one_that_it_is_known_by() {
        let first = client(&cookie(), &[], Scheme::Https, None).unwrap();
        let set = first.cookie.unwrap();
        let (pair, attributes) = set.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=60");
        let again = with_cookies(&format!("a=b; {pair}; lb2=c")).unwrap();
        assert!(again.hash == first.hash && again.cookie.is_none());
        let plain = client(&cookie(), &[], Scheme::Http, None).unwrap().cookie.unwrap();
        assert!(!plain.contains("Secure") && !plain.contains(pair));
    }

    #[test]
    fn a_cookie_that_the_gateway_cannot_have_set_is_replaced() {
        for foreign in ["lb=", "lb=10.0.0.1:80", "xlb=0123456789abcdef0123456789abcdef", "lb"] {
            assert!(with_cookies(foreign).unwrap().cookie.is_some(), "{foreign}");
        }
    }

    #[test]
    fn parts_are_separated() {
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
    }
}
