//! Tokens among the protocols of a WebSocket handshake: what is taken off is what was read.
//!
//! Input: values of `Sec-WebSocket-Protocol`, one per line.
//!
//! Checked:
//!
//! - A token that is read has the form of a bearer token.
//! - The fields that are forwarded contain no token, and all other protocols in their order.
//! - Fields without a token are not changed in meaning.

#![no_main]

use auth::credential::{bearer, websocket_bearer, without_websocket_bearer};
use auth::request::Field;
use libfuzzer_sys::fuzz_target;

const NAME: &str = "Sec-WebSocket-Protocol";

fuzz_target!(|data: &[u8]| {
    let values: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let fields: Vec<Field<'_>> = values.iter().map(|value| Field { name: NAME, value }).collect();
    let token = websocket_bearer(&fields);
    if let Ok(Some(token)) = &token {
        let value = [b"Bearer ", &token[..]].concat();
        let read = bearer(&[Field { name: "Authorization", value: &value }], None);
        assert!(matches!(read, Ok(Some(_))), "it would be no bearer token: {read:?}");
    }

    let left: Vec<Vec<u8>> = values.iter().filter_map(|value| without_websocket_bearer(value)).collect();
    let forwarded: Vec<Field<'_>> = left.iter().map(|value| Field { name: NAME, value }).collect();
    assert!(matches!(websocket_bearer(&forwarded), Ok(None)), "a token is forwarded");
    let (before, after) = (protocols(values.iter().copied()), protocols(left.iter().map(|value| &value[..])));
    let kept: Vec<_> = before.iter().filter(|protocol| !protocol.starts_with(b"base64url.bearer.")).collect();
    let still: Vec<_> = after.iter().filter(|protocol| !protocol.starts_with(b"base64url.bearer.")).collect();
    assert_eq!(kept, still);
    if matches!(token, Ok(None)) {
        assert_eq!(before, after);
    }
});

fn protocols<'v>(values: impl Iterator<Item = &'v [u8]>) -> Vec<Vec<u8>> {
    let members = values.flat_map(|value| value.split(|byte| *byte == b','));
    members.map(|member| member.trim_ascii().to_vec()).collect()
}
