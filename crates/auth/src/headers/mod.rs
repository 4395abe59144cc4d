//! Header fields of a request that an upstream may trust.
//!
//! Owns:
//!
//! - what is deleted before anything is set ([`StripSet`]);
//! - what each hop replaces ([`is_per_hop`], [`may_be_nominated`]);
//! - which fields a decision may depend on ([`first_ambiguous`]);
//! - how an identity is written into fields ([`IdentityHeaders`], [`ValueTemplate`]).
//!
//! Does not own: copying the fields (the codecs do), and the values that the gateway puts into
//! `X-Forwarded-For` and similar fields.
//!
//! Order on the request path:
//!
//! 1. Drop hop-by-hop and nominated fields.
//! 2. Drop the fields of the strip set, in the head and in the trailers.
//! 3. Append the gateway's own fields. Identity comes last, so nothing can remove it again.
//!
//! Names are compared by *alias class*: without regard to case, and with all characters except
//! letters and digits treated as the same. CGI, WSGI, PHP and similar interfaces turn `-`, `_`, `.`
//! and space into an underscore, and some do so with every other character as well
//! (`X!Forwarded!User`).

mod ambiguous;
mod client;
mod identity;
mod strip;
mod template;

pub(crate) use ambiguous::list_contains;
pub use ambiguous::{Repeats, first_ambiguous, first_ambiguous_list, is_list, is_nominated};
pub use identity::{HeaderFault, HeaderSource, IdentityHeaders};
pub use strip::{StripFault, StripSet};
pub use template::{Part, TemplateFault, TemplateValues, ValueTemplate};

use crate::request::is_token;

/// The alias class of each byte: lower case, and one separator for all bytes except letters and
/// digits.
const ALIAS_CLASS: [u8; 256] = {
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

fn alias_class(byte: u8) -> u8 {
    ALIAS_CLASS[usize::from(byte)]
}

/// Whether `name` is an alias of `folded`, which is in folded form.
fn is_alias(name: &str, folded: &str) -> bool {
    name.len() == folded.len() && name.bytes().map(alias_class).eq(folded.bytes())
}

/// Whether many servers take one name for the other: both are of one alias class.
pub fn is_same_alias_class(name: &str, other: &str) -> bool {
    is_same_bytes(name.as_bytes(), other.as_bytes())
}

fn is_same_bytes(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len() && name.iter().zip(other).all(|(&a, &b)| alias_class(a) == alias_class(b))
}

/// Whether a field says where a request came from, in a form that Envoy sets or cleans for its own
/// upstreams. [`StripSet`] deletes such fields. When Envoy only asks the gateway for authorization,
/// they are not the gateway's to delete.
pub fn is_set_by_front_proxy(name: &str) -> bool {
    const FRONT: [&str; 5] =
        ["x-envoy-*", "x-forwarded-client-cert", "x-forwarded-for", "x-forwarded-port", "x-forwarded-proto"];
    matches_any(name, &FRONT)
}

/// Whether each hop replaces a field of this name, so that a received one is never forwarded, in
/// any alias. These are hop-by-hop fields (RFC 9110 §7.6.1), and fields that frame the message (RFC
/// 9112 §6). A server that reads `Transfer_Encoding` or `Content_Length` as the real field would
/// find another end of the message.
///
/// The one list of these names: for request fields and trailers, over HTTP/1 and HTTP/2. `Trailer`
/// is not in it: it announces fields that travel to the final recipient.
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

/// Whether a `Connection` option of this name removes a field at the client's request (RFC 9110
/// §7.6.1).
///
/// These options do not: options that are not fields (`close`); fields that each hop replaces;
/// names in `protected`, which include the gateway's own fields; fields that every recipient needs.
/// The RFC forbids to nominate the latter, and removing them would change what was authorized.
pub fn may_be_nominated(name: &str, protected: &StripSet) -> bool {
    is_token(name)
        && !name.eq_ignore_ascii_case("close")
        && !is_per_hop(name)
        && !is_essential(name)
        && !protected.strips(name)
}

/// Fields that are for the final recipient and carry the meaning, the framing, the conditions or
/// the credentials of the request. In folded form; a trailing `*` stands for any ending.
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
    matches_any(name, &ESSENTIAL)
}

/// Whether a name is an alias of a listed name in folded form, where a trailing `*` stands for any
/// ending.
fn matches_any(name: &str, list: &[&str]) -> bool {
    list.iter().any(|listed| match listed.strip_suffix('*') {
        Some(family) => is_alias_prefix(name, family),
        None => is_alias(name, listed),
    })
}

fn is_alias_prefix(name: &str, folded: &str) -> bool {
    name.len() >= folded.len() && name.bytes().map(alias_class).zip(folded.bytes()).all(|(a, b)| a == b)
}
