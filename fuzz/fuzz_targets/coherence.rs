//! Messages about what was revoked, queries and their answers, and statements beside answers: nothing makes reading them panic, nobody is believed without the key, and
//! what is read is written as it was.
//!
//! The first byte says what follows: `m`, a message as it is; `k`, kind and body of one, which the harness vouches for, so that what
//! stands behind the code is reached; `q`, a query as it is; `a`, an answer as it is; `b`, the body of one, which the harness vouches for; `s`, a
//! statement.
#![no_main]

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use coherence::query::{LogQuery, LogQuestion};
use coherence::revocation_tags::RevocationTags;
use coherence::wire::{Body, Keys, MAX, MAX_TAGS, VERSION, WireError};
use coherence::{ConsumerName, Nonce};
use libfuzzer_sys::fuzz_target;

const NUMBER: u8 = 7;
const SECRET: [u8; 32] = [NUMBER; 32];
const MAC: usize = 16;

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::one(NUMBER, &SECRET));
static KEY: LazyLock<hmac::Key> = LazyLock::new(|| hmac::Key::new(hmac::HMAC_SHA256, &SECRET));

/// A message of this kind with this body, made as the format says.
fn vouched(kind: u8, body: &[u8]) -> Vec<u8> {
    let prefix = [VERSION, kind, NUMBER];
    let mut context = hmac::Context::with_key(&KEY);
    for part in [b"postern coherence message\0".as_slice(), &prefix, body] {
        context.update(part);
    }
    [&prefix, &context.sign().as_ref()[..MAC], body].concat()
}

fn check(bytes: &[u8], made_here: bool) {
    match KEYS.read(bytes) {
        Ok(message) => {
            assert!(made_here, "nobody else has the key");
            assert!(bytes.len() <= MAX);
            if let Body::Event { event, .. } = &message.body {
                assert!(event.seq > 0 && event.tags.len() <= MAX_TAGS);
            }
            let written = KEYS.write(&message).expect("what was read can be told");
            assert_eq!(KEYS.read(&written).as_ref(), Ok(&message));
            assert!(Keys::one(NUMBER, &[0; 32]).read(bytes) == Err(WireError::Mac), "another cluster's");
        }
        Err(error) => assert!(!made_here || error != WireError::Mac, "the format is another one"),
    }
}

fn name() -> ConsumerName {
    ConsumerName::new("main").expect("a name")
}

static QUERY: LazyLock<LogQuery> =
    LazyLock::new(|| LogQuery::new(&name(), Nonce([1; 16]), LogQuestion::Denials { after: None }));

/// An answer with this body to that query, made as the format says.
fn answered(body: &[u8]) -> Vec<u8> {
    let prefix = [VERSION, QUERY.bytes()[1], NUMBER];
    let mut context = hmac::Context::with_key(&KEY);
    for part in [b"postern coherence answer\0".as_slice(), b"\x04main", QUERY.bytes(), &prefix, body] {
        context.update(part);
    }
    [&prefix, &context.sign().as_ref()[..MAC], body].concat()
}

fn check_answer(bytes: &[u8], made_here: bool) {
    match QUERY.open(bytes, &KEYS) {
        Ok(answer) => {
            assert!(made_here, "nobody else has the key");
            let sealed = QUERY.seal(&answer, &KEYS);
            assert_eq!(QUERY.open(&sealed, &KEYS), Ok(answer));
            let other = LogQuery::new(&name(), Nonce([2; 16]), LogQuestion::Denials { after: None });
            assert_eq!(other.open(bytes, &KEYS), Err(WireError::Mac), "another question's");
        }
        Err(error) => assert!(!made_here || error != WireError::Mac, "the format is another one"),
    }
}

fuzz_target!(|data: &[u8]| {
    match data {
        [b'm', bytes @ ..] => check(bytes, false),
        [b'k', kind, body @ ..] => check(&vouched(*kind, body), true),
        [b'q', bytes @ ..] => {
            if let Ok(query) = LogQuery::read(&name(), bytes) {
                assert_eq!(query.bytes(), bytes);
            }
        }
        [b'a', bytes @ ..] => check_answer(bytes, false),
        [b'b', body @ ..] => check_answer(&answered(body), true),
        [b's', text @ ..] => {
            let Ok(text) = std::str::from_utf8(text) else { return };
            if let Some(statement) = RevocationTags::parse(text) {
                assert!(!statement.tags.is_empty());
                assert_eq!(RevocationTags::parse(&statement.to_string()), Some(statement));
            }
        }
        _ => {}
    }
});
