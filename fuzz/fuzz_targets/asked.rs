//! Questions of other proxies: what is judged is what the proxy means.
//!
//! Input: one byte that says how it is asked, then the question. Over gRPC (0) it is the body of a call, (1) its message. Over HTTP
//! (2: Envoy, 3: Envoy with a prefix, 4: nginx, 5: Traefik, Caddy and HAProxy) it is lines: the method, the target, the host,
//! then fields as `name: value`. 6 is a call's `grpc-timeout`.
//!
//! Checked: a message that the types made from Envoy's own files can read is read the same, or refused; over HTTP each thing that is
//! taken from a field is said by one field and by no other, in whatever order they stand; a deadline is answered before it has
//! passed; and the canonical form of what was read is read again as itself.

#![no_main]

use auth::request::{Canonical, Field, RawRequest, Scheme};
use bytes::{BufMut as _, Bytes, BytesMut};
use envoy_types::pb::envoy::service::auth::v3::CheckRequest;
use gateway::authz_question_parse::{ParsedQuestion, grpc_message, grpc_patience, over_grpc, over_http};
use gateway::config::QuestionSource;
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

/// Fields of a request, by default.
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
        2 => ask(&QuestionSource::Itself { prefix: "".into() }, rest),
        3 => ask(&QuestionSource::Itself { prefix: PREFIX.into() }, rest),
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

/// What we read is what Envoy's own types read.
fn compare(message: Bytes) {
    let ours = over_grpc(message.clone(), MOST);
    // Theirs also read members that we pass over, and may stumble there.
    if let (Some(about), Ok(theirs)) = (&ours, CheckRequest::decode(message)) {
        let request = theirs.attributes.and_then(|attributes| attributes.request);
        let http = request.and_then(|request| request.http).expect("a request over HTTP");
        assert_eq!((about.method.as_str(), &*about.target), (&*http.method, http.path.as_bytes()));
        assert_eq!(about.host.as_deref(), Some(http.host.as_bytes()));
        assert_eq!(about.scheme == Scheme::Https, http.scheme == "https");
        for (name, value) in http.headers.iter().filter(|(name, _)| !name.starts_with(':')) {
            let said = |(n, v): &(String, Vec<u8>)| n == name && v == value.as_bytes();
            assert!(about.fields.iter().any(said), "the field {name:?} is passed over");
        }
        for raw in http.header_map.iter().flat_map(|map| &map.headers).filter(|raw| !raw.key.starts_with(':'))
        {
            let value = if raw.raw_value.is_empty() { raw.value.as_bytes() } else { &raw.raw_value };
            let said = |(n, v): &(String, Vec<u8>)| *n == raw.key && v == value;
            assert!(about.fields.iter().any(said), "the raw field {:?} is passed over", raw.key);
        }
    }
    if let Some(about) = ours {
        assert!(about.fields.len() <= MOST);
        canonical(&about);
    }
}

/// Asks over HTTP.
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

/// Each thing was said by whom it has to be, and by nobody else.
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
        QuestionSource::Itself { prefix } => {
            assert_eq!((about.method.as_str(), host), (own.0, own.1));
            assert_eq!([prefix.as_bytes(), &about.target].concat(), own.2);
        }
        QuestionSource::XOriginal => {
            assert_eq!(values("x-original-method"), [about.method.as_bytes()]);
            match (values("x-original-url").as_slice(), values("x-original-uri").as_slice()) {
                ([url], []) => assert_eq!([scheme, b"://", host, &about.target].concat(), *url),
                ([], [uri]) => assert_eq!((&*about.target, host), (*uri, own.1)),
                other => panic!("said in two ways: {other:?}"),
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

/// What has a canonical form has one.
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

/// A deadline that is told is kept.
fn deadline(text: &[u8]) {
    let Some(patience) = grpc_patience(text) else { return };
    let text = std::str::from_utf8(text).expect("digits and a unit");
    let (digits, unit) = text.split_at(text.len() - 1);
    let nanos: u128 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1000,
        "n" => 1,
        other => panic!("{other:?} is no unit"),
    };
    let whole = digits.parse::<u128>().expect("digits") * nanos;
    assert!(patience.as_nanos() < whole || whole == 0, "{text} is over");
}
