//! NATS protocol: lines of text, with messages between them.
//!
//! Owns: parsing what the server sends ([`next`]), and writing what the client sends. Does not own:
//! the connection, or the reaction. The protocol is that of
//! <https://docs.nats.io/reference/reference-protocols/nats-protocol>.

use bytes::{Buf, Bytes, BytesMut};

/// Length of the longest line, in bytes; only the greeting comes near it.
const MAX_LINE: usize = 64 * 1024;
/// Length of the largest message that a server sends, in bytes: its own default limit.
const MAX_MESSAGE: usize = 1024 * 1024;

/// Protocol message of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerMessage {
    /// `INFO`: describes the server, as JSON.
    Info(Bytes),
    /// `MSG`: a message for the subscription of this number.
    Message(u64, Bytes),
    /// `PING`: the server checks whether the client is alive.
    Ping,
    /// `PONG`: the server is alive, and has processed what was sent before the PING.
    Pong,
    /// `-ERR`: the server refuses something, or ends.
    Error(String),
    /// `+OK`: needs no reaction.
    Fine,
}

/// Takes the next protocol message from what has arrived; `None` when it is incomplete. The error
/// says what cannot be parsed.
pub(super) fn next(arrived: &mut BytesMut) -> Result<Option<ServerMessage>, String> {
    let Some(length) = line(arrived)? else { return Ok(None) };
    let words = str::from_utf8(&arrived[..length])
        .map_err(|_| "the server sent a line that is not UTF-8".to_owned())?;
    let (verb, rest) = words.split_once([' ', '\t']).unwrap_or((words, ""));
    let parsed = match verb.to_ascii_uppercase().as_str() {
        "MSG" => {
            let (number, size) =
                header(rest).ok_or_else(|| format!("the server sent a malformed line {words:?}"))?;
            return Ok(message(arrived, length + 2, number, size));
        }
        "INFO" => ServerMessage::Info(Bytes::copy_from_slice(rest.as_bytes())),
        "PING" => ServerMessage::Ping,
        "PONG" => ServerMessage::Pong,
        "-ERR" => ServerMessage::Error(rest.trim_matches([' ', '\'']).to_owned()),
        "+OK" => ServerMessage::Fine,
        _ => return Err("the server does not speak the NATS protocol; check its address".to_owned()),
    };
    arrived.advance(length + 2);
    Ok(Some(parsed))
}

/// Length of the first line, without its end.
fn line(arrived: &[u8]) -> Result<Option<usize>, String> {
    match arrived.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && arrived[end - 1] == b'\r' => Ok(Some(end - 1)),
        None if arrived.len() <= MAX_LINE => Ok(None),
        _ => Err("the server does not speak the NATS protocol; check its address".to_owned()),
    }
}

/// Subscription number and size of a message. The fields are: subject, number, an optional reply
/// subject, size.
fn header(rest: &str) -> Option<(u64, usize)> {
    let mut words = rest.split_ascii_whitespace();
    let number = words.nth(1)?.parse().ok()?;
    let size = words.next_back()?.parse().ok()?;
    (size <= MAX_MESSAGE).then_some((number, size))
}

/// The message after `head` bytes, when it has arrived with its end of line. It is copied, so that
/// a message in a slow subscriber's queue keeps no larger buffer alive.
fn message(arrived: &mut BytesMut, head: usize, number: u64, size: usize) -> Option<ServerMessage> {
    let message = Bytes::copy_from_slice(arrived.get(head..head + size + 2)?.get(..size)?);
    arrived.advance(head + size + 2);
    Some(ServerMessage::Message(number, message))
}

/// Subscribes to what is published under a subject.
pub(super) fn subscribe(out: &mut Vec<u8>, subject: &str, number: u64) {
    out.extend_from_slice(format!("SUB {subject} {number}\r\n").as_bytes());
}

/// Ends the subscription of this number.
pub(super) fn unsubscribe(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(format!("UNSUB {number}\r\n").as_bytes());
}

/// Publishes a message under a subject.
pub(super) fn publish(out: &mut Vec<u8>, subject: &str, message: &[u8]) {
    out.extend_from_slice(format!("PUB {subject} {}\r\n", message.len()).as_bytes());
    out.extend_from_slice(message);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All protocol messages, when the text arrives in pieces of this size.
    fn all(text: &[u8], piece: usize) -> Result<Vec<ServerMessage>, String> {
        let (mut arrived, mut messages) = (BytesMut::new(), Vec::new());
        for piece in text.chunks(piece) {
            arrived.extend_from_slice(piece);
            while let Some(one) = next(&mut arrived)? {
                messages.push(one);
            }
        }
        Ok(messages)
    }

    #[test]
    fn what_is_said_does_not_depend_on_how_it_arrives() {
        let text = b"INFO {\"a\":1}\r\n+OK\r\nMSG a.b 7 3\r\nx\r\n\r\nMSG a 8 reply 0\r\n\r\nping\r\nPONG\r\n-ERR 'Stale Connection'\r\n";
        for piece in 1..text.len() {
            let messages = all(text, piece).unwrap();
            assert_eq!(
                messages,
                [
                    ServerMessage::Info(Bytes::from_static(b"{\"a\":1}")),
                    ServerMessage::Fine,
                    ServerMessage::Message(7, Bytes::from_static(b"x\r\n")),
                    ServerMessage::Message(8, Bytes::new()),
                    ServerMessage::Ping,
                    ServerMessage::Pong,
                    ServerMessage::Error("Stale Connection".to_owned()),
                ]
            );
        }
    }

    #[test]
    fn what_is_not_nats_is_refused_and_nothing_grows_without_bound() {
        assert!(all(b"SSH-2.0-OpenSSH_9.2\r\n", 64).is_err());
        assert!(all(b"PING\n", 64).is_err());
        assert!(all(b"MSG a 1 99999999999\r\n", 64).is_err());
        assert!(all(b"MSG a 3\r\n", 64).is_err());
        assert!(all(&vec![b'x'; MAX_LINE + 2], 1024).is_err());
    }

    #[test]
    fn what_is_told_reads_as_the_protocol_says() {
        let mut out = Vec::new();
        subscribe(&mut out, "a.b", 1);
        publish(&mut out, "a.b", b"x\r\n");
        unsubscribe(&mut out, 1);
        assert_eq!(out, b"SUB a.b 1\r\nPUB a.b 3\r\nx\r\n\r\nUNSUB 1\r\n");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..256), piece in 1_usize..64) {
            let _ = all(&bytes, piece);
            let _ = all(&[b"MSG ", &bytes[..]].concat(), piece);
        }
    }
}
