//! Which request fields an upstream may believe.
//!
//! Owns: what is deleted before anything is set ([`StripSet`]), what ends at each hop ([`is_per_hop`],
//! [`may_be_nominated`]), which fields a decision may rest on ([`first_ambiguous`]), and how an identity is
//! written into fields ([`IdentityHeaders`]).
//!
//! Does not own: copying the fields, which is the codecs' work, and the values that the gateway itself puts
//! into `X-Forwarded-For` and its like.
//!
//! Order on the request path: drop hop-by-hop and nominated fields, drop what the strip set names, in the
//! head and in the trailers alike, then append ours. Identity comes last, so nothing can remove it again.
//!
//! Names are compared by *alias class*: without regard to case, and with all that is neither letter nor digit
//! taken for the same character. CGI, WSGI, PHP and their kind make one underscore of `-`, `_`, `.` and space,
//! and some of every other sign as well (`X!Forwarded!User`).

mod ambiguous;
mod client;
mod identity;
mod strip;

pub(crate) use ambiguous::is_within;
pub use ambiguous::{Repeats, first_ambiguous, first_ambiguous_in_full, is_list, is_nominated};
pub use identity::{HeaderFault, HeaderSource, IdentityHeaders};
pub use strip::{StripFault, StripSet};

use crate::request::is_token;

/// The alias class of each byte: lower case, and one separator for all that is neither letter nor digit.
const FOLD: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte: u8 = 0;
    loop {
        table[byte as usize] = match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => byte.to_ascii_lowercase(),
            _ => b'-',
        };
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

fn fold(byte: u8) -> u8 {
    FOLD[usize::from(byte)]
}

/// Whether `name` is an alias of `folded`, which is in folded form.
fn is_alias(name: &str, folded: &str) -> bool {
    name.len() == folded.len() && name.bytes().map(fold).eq(folded.bytes())
}

/// Whether many servers take one name for the other: both are of one alias class.
pub fn is_same(name: &str, other: &str) -> bool {
    is_same_bytes(name.as_bytes(), other.as_bytes())
}

fn is_same_bytes(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len() && name.iter().zip(other).all(|(&a, &b)| fold(a) == fold(b))
}

/// Whether a field says where a request came from, as Envoy, which asks us about it, sets or cleans it for whoever is behind
/// it: [`StripSet`] deletes it, but from there it is none of ours to delete.
pub fn is_of_the_front(name: &str) -> bool {
    const FRONT: [&str; 5] =
        ["x-envoy-*", "x-forwarded-client-cert", "x-forwarded-for", "x-forwarded-port", "x-forwarded-proto"];
    is_among(name, &FRONT)
}

/// Whether each hop writes a field of this name anew, so that a received one is never passed on, in any alias:
/// hop-by-hop fields (RFC 9110 §7.6.1), and those that frame the message (RFC 9112 §6). A server that takes
/// `Transfer_Encoding` or `Content_Length` for the real one would find another end of the message.
///
/// The one list of these names: for request fields and trailers, over HTTP/1 and HTTP/2. `Trailer` is not among
/// them: it announces fields that travel to the end.
pub fn is_per_hop(name: &str) -> bool {
    let candidates: &[&str] = match name.len() {
        2 => &["te"],
        7 => &["upgrade"],
        10 => &["connection", "keep-alive"],
        14 => &["content-length", "http2-settings"],
        16 => &["proxy-connection"],
        17 => &["transfer-encoding"],
        18 => &["proxy-authenticate"],
        19 => &["proxy-authorization"],
        _ => return false,
    };
    candidates.iter().any(|candidate| is_alias(name, candidate))
}

/// Whether a `Connection` option of this name has a field removed on a client's word (RFC 9110 §7.6.1).
///
/// Not so options that are no fields (`close`); fields that each hop writes anew; names in `protected`,
/// which ours are among; and fields that every recipient needs, which the RFC forbids to nominate and whose
/// removal would change what was authorized.
pub fn may_be_nominated(name: &str, protected: &StripSet) -> bool {
    is_token(name)
        && !name.eq_ignore_ascii_case("close")
        && !is_per_hop(name)
        && !is_essential(name)
        && !protected.strips(name)
}

/// Fields that are meant for the final recipient and carry the meaning, the framing, the conditions or the
/// credentials of the request; in folded form, a trailing `*` stands for any ending.
const ESSENTIAL: [&str; 15] = [
    "accept*",
    "authorization",
    "cache-control",
    "content-*",
    "cookie",
    "date",
    "expect",
    "host",
    "if-*",
    "origin",
    "range",
    "sec-*",
    "traceparent",
    "trailer",
    "via",
];

fn is_essential(name: &str) -> bool {
    is_among(name, &ESSENTIAL)
}

/// Whether a name is an alias of one in folded form, where a trailing `*` stands for any ending.
fn is_among(name: &str, list: &[&str]) -> bool {
    list.iter().any(|listed| match listed.strip_suffix('*') {
        Some(family) => is_alias_prefix(name, family),
        None => is_alias(name, listed),
    })
}

fn is_alias_prefix(name: &str, folded: &str) -> bool {
    name.len() >= folded.len() && name.bytes().map(fold).zip(folded.bytes()).all(|(a, b)| a == b)
}
