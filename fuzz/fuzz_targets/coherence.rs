//! Messages about revocations, queries and their answers, and revocation tags beside answers:
//! reading them never panics, nothing is accepted without the key, and what is read is written
//! unchanged.
//!
//! The first byte selects what follows:
//!
//! - `m`: a message.
//! - `k`: kind and body of a message, which the harness signs, so that the checks behind the MAC
//!   are reached.
//! - `q`: a query.
//! - `a`: an answer.
//! - `b`: the body of an answer, which the harness signs.
//! - `s`: revocation tags as the text of a header field.
#![no_main]

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use coherence::query::{LogQuery, LogQuestion};
use coherence::revocation_tags::RevocationTags;
use coherence::wire::{Body, Keys, MAX_MESSAGE, MAX_TAGS, VERSION, WireError};
use coherence::{Nonce, PeerName};
use libfuzzer_sys::fuzz_target;

const NUMBER: u8 = 7;
const SECRET: [u8; 32] = [NUMBER; 32];
const MAC: usize = 16;

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::single(NUMBER, &SECRET));
static KEY: LazyLock<hmac::Key> = LazyLock::new(|| hmac::Key::new(hmac::HMAC_SHA256, &SECRET));

/// Makes a signed message of this kind with this body, as the format says.
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
            assert!(made_here, "accepted without the key");
            assert!(bytes.len() <= MAX_MESSAGE);
            if let Body::Event { event, .. } = &message.body {
                assert!(event.seq > 0 && event.tags.len() <= MAX_TAGS);
            }
            let written = KEYS.write(&message).expect("a message that was read can be written");
            assert_eq!(KEYS.read(&written).as_ref(), Ok(&message));
            assert!(Keys::single(NUMBER, &[0; 32]).read(bytes) == Err(WireError::Mac), "another cluster's");
        }
        Err(error) => assert!(!made_here || error != WireError::Mac, "the format is another one"),
    }
}

fn name() -> PeerName {
    PeerName::new("main").expect("a name")
}

static QUERY: LazyLock<LogQuery> =
    LazyLock::new(|| LogQuery::new(&name(), Nonce([1; 16]), LogQuestion::DenylistPage { after: None }));

/// Makes a signed answer with this body to that query, as the format says.
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
            assert!(made_here, "accepted without the key");
            let sealed = QUERY.seal(&answer, &KEYS);
            assert_eq!(QUERY.open(&sealed, &KEYS), Ok(answer));
            let other = LogQuery::new(&name(), Nonce([2; 16]), LogQuestion::DenylistPage { after: None });
            assert_eq!(other.open(bytes, &KEYS), Err(WireError::Mac), "accepted for another query");
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
