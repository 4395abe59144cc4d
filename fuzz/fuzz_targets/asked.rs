//! Authorization checks of other proxies: the gateway decides about the request that the proxy
//! means.
//!
//! Input: one byte that selects the kind of check, then the check itself.
//!
//! - 0: the body of a gRPC call.
//! - 1: the message of a gRPC call.
//! - 2 to 5: a check over HTTP (2: Envoy, 3: Envoy with a prefix, 4: nginx, 5: Traefik, Caddy and
//!   HAProxy), as lines: the method, the target, the host, then fields as `name: value`.
//! - 6: the `grpc-timeout` of a call.
//!
//! Checked:
//!
//! - A message that the types generated from Envoy's own files can decode is read the same way, or
//!   refused.
//! - Over HTTP, each value that is taken from a field comes from one field and from no other,
//!   whatever the order of the fields.
//! - The patience derived from a deadline is shorter than the deadline.
//! - The canonical form of the request that was read is read again as itself.

#![no_main]

use auth::request::{Canonical, Field, RawRequest, Scheme};
use bytes::{BufMut as _, Bytes, BytesMut};
use envoy_types::pb::envoy::service::auth::v3::CheckRequest;
use gateway::authz_question_parse::{ParsedQuestion, grpc_message, grpc_wait_limit, over_grpc, over_http};
use gateway::config::QuestionSource;
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

/// Default limit of the number of fields of a request.
const MOST: usize = 100;
const PREFIX: &str = "/check";

fuzz_target!(|data: &[u8]| {
    let Some((&way, rest)) = data.split_first() else { return };
    match way {
        0 => {
            let body = Bytes::copy_from_slice(rest);
            if let Some(message) = grpc_message(&body) {
                assert_eq!(framed(&message), body, "one message and nothing else");
                compare(message);
            }
        }
        1 => compare(Bytes::copy_from_slice(rest)),
        2 => ask(&QuestionSource::SameRequest { prefix: "".into() }, rest),
        3 => ask(&QuestionSource::SameRequest { prefix: PREFIX.into() }, rest),
        4 => ask(&QuestionSource::XOriginal, rest),
        5 => ask(&QuestionSource::XForwarded, rest),
        6 => deadline(rest),
        _ => {}
    }
});

fn framed(message: &Bytes) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(message.len() as u32);
    out.put_slice(message);
    out
}

/// Compares what we read with what Envoy's own types read.
fn compare(message: Bytes) {
    let ours = over_grpc(message.clone(), MOST);
    // Theirs also read members that we skip, and may fail there.
    if let (Some(about), Ok(theirs)) = (&ours, CheckRequest::decode(message)) {
        let request = theirs.attributes.and_then(|attributes| attributes.request);
        let http = request.and_then(|request| request.http).expect("a request over HTTP");
        assert_eq!((about.method.as_str(), &*about.target), (&*http.method, http.path.as_bytes()));
        assert_eq!(about.host.as_deref(), Some(http.host.as_bytes()));
        assert_eq!(about.scheme == Scheme::Https, http.scheme == "https");
        for (name, value) in http.headers.iter().filter(|(name, _)| !name.starts_with(':')) {
            let said = |(n, v): &(String, Vec<u8>)| n == name && v == value.as_bytes();
            assert!(about.fields.iter().any(said), "the field {name:?} is missing");
        }
        for raw in http.header_map.iter().flat_map(|map| &map.headers).filter(|raw| !raw.key.starts_with(':'))
        {
            let value = if raw.raw_value.is_empty() { raw.value.as_bytes() } else { &raw.raw_value };
            let said = |(n, v): &(String, Vec<u8>)| *n == raw.key && v == value;
            assert!(about.fields.iter().any(said), "the raw field {:?} is missing", raw.key);
        }
    }
    if let Some(about) = ours {
        assert!(about.fields.len() <= MOST);
        canonical(&about);
    }
}

/// Reads a check over HTTP, with the fields in both orders.
fn ask(asking: &QuestionSource, text: &[u8]) {
    let mut lines = text.split(|byte| *byte == b'\n');
    let method = lines.next().and_then(|method| std::str::from_utf8(method).ok());
    let (Some(method), Some(target), Some(host)) = (method, lines.next(), lines.next()) else { return };
    let mut fields: Vec<Field<'_>> = lines
        .filter_map(|line| {
            let (name, value) = line.split_at(line.windows(2).position(|two| two == b": ")?);
            Some(Field { name: std::str::from_utf8(name).ok()?, value: &value[2..] })
        })
        .collect();
    let about = over_http(asking, method, host, target, &fields);
    if let Some(about) = &about {
        said_once(asking, about, (method, host, target), &fields);
        canonical(about);
    }
    let whole = about.map(|about| (about.method, about.scheme, about.host, about.target));
    fields.reverse();
    let again = over_http(asking, method, host, target, &fields);
    assert_eq!(again.map(|about| (about.method, about.scheme, about.host, about.target)), whole);
}

/// Verifies that each value comes from the field that must state it, and from no other.
fn said_once(
    asking: &QuestionSource,
    about: &ParsedQuestion,
    own: (&str, &[u8], &[u8]),
    fields: &[Field<'_>],
) {
    let values = |name: &str| -> Vec<&[u8]> {
        fields.iter().filter(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value).collect()
    };
    let host = about.host.as_deref().expect("a host");
    let scheme = about.scheme.as_str().as_bytes();
    match asking {
        QuestionSource::SameRequest { prefix } => {
            assert_eq!((about.method.as_str(), host), (own.0, own.1));
            assert_eq!([prefix.as_bytes(), &about.target].concat(), own.2);
        }
        QuestionSource::XOriginal => {
            assert_eq!(values("x-original-method"), [about.method.as_bytes()]);
            match (values("x-original-url").as_slice(), values("x-original-uri").as_slice()) {
                ([url], []) => assert_eq!([scheme, b"://", host, &about.target].concat(), *url),
                ([], [uri]) => assert_eq!((&*about.target, host), (*uri, own.1)),
                other => panic!("stated twice: {other:?}"),
            }
        }
        QuestionSource::XForwarded => {
            assert_eq!(values("x-forwarded-method"), [about.method.as_bytes()]);
            assert_eq!(values("x-forwarded-uri"), [&*about.target]);
            assert_eq!(values("x-forwarded-host"), [host]);
            let is_secure = matches!(values("x-forwarded-proto")[..], [b"https" | b"wss"]);
            assert_eq!(about.scheme == Scheme::Https, is_secure);
        }
    }
}

/// A request with a canonical form has only one.
fn canonical(about: &ParsedQuestion) {
    let raw = |target| RawRequest {
        method: &about.method,
        scheme: about.scheme,
        authority: None,
        host: about.host.as_deref(),
        target,
    };
    if let Ok(request) = Canonical::parse(&raw(&about.target)) {
        let mut target = Vec::new();
        request.write_target(&mut target);
        let again = Canonical::parse(&raw(&target)).expect("a canonical form");
        assert_eq!((again.path(), again.query()), (request.path(), request.query()));
    }
}

/// The patience derived from a deadline is shorter than the deadline.
fn deadline(text: &[u8]) {
    let Some(patience) = grpc_wait_limit(text) else { return };
    let text = std::str::from_utf8(text).expect("digits and a unit");
    let (digits, unit) = text.split_at(text.len() - 1);
    let nanos: u128 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1000,
        "n" => 1,
        other => panic!("{other:?} is not a unit"),
    };
    let whole = digits.parse::<u128>().expect("digits") * nanos;
    assert!(patience.as_nanos() < whole || whole == 0, "the patience exceeds the deadline {text}");
}
