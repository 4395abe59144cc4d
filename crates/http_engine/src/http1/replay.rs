//! Replay: parses recorded bytes as the connection would, without a socket.
//!
//! Owns: feeding a recording to the same reader and parser that `gateway::serve::http1` uses. So
//! tests compare another implementation with the real parser. Does not own: deadlines, responses,
//! how requests are handled.

use std::task::{Context, Poll, Waker};

use auth::request::{Canonical, RawRequest, Scheme};
use http::HeaderMap;

use super::connection::Connection;
use crate::head::{BlockMemory, Fields, RequestHead, Version, parse_target, parse_to_remember};
use crate::http_stream::{Fill, HttpStream, HttpStreamError};
use crate::io::Stream;

/// Maximum length of a head in bytes; the default of a listener.
const MAX_HEAD: usize = 32 * 1024;
/// Maximum number of fields in a head; the default of a listener.
const MAX_FIELDS: usize = 100;
/// Maximum length of a request target in bytes; the default of a listener.
const MAX_TARGET: usize = 8 * 1024;

/// A request as it was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedMessage {
    /// Request method as received.
    pub method: String,
    /// Request target as received.
    pub target: Vec<u8>,
    /// HTTP minor version.
    pub version: Version,
    /// All fields in order: names as received, values trimmed.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Whether the head has a canonical form and can be forwarded. A request without one is
    /// answered 400, and its body is still read to find the next request.
    pub canonical: bool,
    /// The part of the body that was read.
    pub body: Vec<u8>,
    /// The trailer section, if there was one.
    pub trailers: Option<HeaderMap>,
    /// Whether the body was read completely.
    pub complete: bool,
}

/// How reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayEnd {
    /// The recording ended between two messages.
    EndOfInput,
    /// The recording ended within a message.
    Truncated,
    /// The last message asked to close the connection (RFC 9112 §9.3); what follows is not read.
    Closed,
    /// Invalid input; nothing after it is read. The last message may be incomplete.
    Invalid,
}

/// Parses a recording that arrives in `pieces`. Each piece arrives when the one before is used up.
pub fn replay(pieces: &[&[u8]]) -> (Vec<ReplayedMessage>, ReplayEnd) {
    read_all(pieces, None)
}

/// As [`replay`], by a connection that remembers header blocks. The result is the same. Also returns
/// how many heads were not parsed as a whole.
pub fn replay_remembering(pieces: &[&[u8]]) -> ((Vec<ReplayedMessage>, ReplayEnd), usize) {
    let mut memory = (BlockMemory::default(), 0);
    let read = read_all(pieces, Some(&mut memory));
    (read, memory.1)
}

/// A memory of header blocks, and how often it was of use.
type Remembered = (BlockMemory, usize);

fn read_all(pieces: &[&[u8]], mut memory: Option<&mut Remembered>) -> (Vec<ReplayedMessage>, ReplayEnd) {
    let recording = pieces.iter().rev().fold(Stream::Closed, |rest, piece| rest.replay(piece.to_vec()));
    let mut connection = Connection::new(recording, &[]);
    let mut messages = Vec::new();
    let end = loop {
        match read_message(&mut connection, &mut messages, memory.as_deref_mut()) {
            Ok(true) => {}
            Ok(false) => break ReplayEnd::Closed,
            Err(end) => break end,
        }
    };
    (messages, end)
}

/// Parses one message. Returns whether another may follow.
fn read_message(
    connection: &mut Connection,
    messages: &mut Vec<ReplayedMessage>,
    memory: Option<&mut Remembered>,
) -> Result<bool, ReplayEnd> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut unused = Remembered::default();
    let remembers = memory.is_some();
    let (memory, uses) = memory.unwrap_or(&mut unused);
    memory.begin();
    let found = expect_ready(connection.poll_head(&mut cx, (MAX_HEAD, MAX_FIELDS), memory.block()));
    let found = found.map_err(|end| {
        if end == ReplayEnd::Truncated && connection.unread().is_empty() {
            ReplayEnd::EndOfInput
        } else {
            end
        }
    })?;
    let Some(found) = found else { return Err(ReplayEnd::EndOfInput) };
    let head = &connection.unread()[..found.bytes];
    let mut fields = Fields::new();
    let parsed = match found.parse_repeated(head, memory.block(), MAX_TARGET, &mut fields) {
        Some(parsed) => {
            memory.hit();
            *uses += 1;
            parsed
        }
        None => {
            fields.clear();
            let parsed = parse_to_remember(head, MAX_TARGET, &mut fields);
            let (parsed, facts) = parsed.map_err(|_| ReplayEnd::Invalid)?;
            if remembers {
                memory.miss(head, &fields, facts);
            }
            parsed
        }
    };
    let Some((authority, target)) = parse_target(parsed.target, Scheme::Http) else {
        return Err(ReplayEnd::Invalid);
    };
    let (persists, framing) = (parsed.connection.persists(parsed.version), parsed.framing);
    messages.push(message_head(&parsed, &fields, authority, target));
    drop(fields);
    connection.begin_body(found.bytes, framing);
    let message = messages.last_mut().ok_or(ReplayEnd::Invalid)?;
    loop {
        let taken = match expect_ready(connection.poll_fill(&mut cx))? {
            Fill::Data(data) => {
                message.body.extend_from_slice(data);
                data.len()
            }
            Fill::End(trailers) => {
                message.trailers = trailers.map(|trailers| *trailers);
                message.complete = true;
                break;
            }
        };
        connection.consume(taken);
    }
    connection.next_message();
    Ok(persists)
}

fn message_head(
    head: &RequestHead<'_>,
    fields: &Fields<'_>,
    authority: Option<&[u8]>,
    target: &[u8],
) -> ReplayedMessage {
    let raw = RawRequest {
        method: head.method,
        scheme: Scheme::Http,
        authority,
        host: head.connection.host,
        target,
    };
    ReplayedMessage {
        method: head.method.to_owned(),
        target: head.target.to_vec(),
        version: head.version,
        fields: fields.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect(),
        canonical: Canonical::parse(&raw).is_ok(),
        body: Vec::new(),
        trailers: None,
        complete: false,
    }
}

/// A recording never blocks its reader: after its last byte the stream is closed.
fn expect_ready<T>(poll: Poll<Result<T, HttpStreamError>>) -> Result<T, ReplayEnd> {
    match poll {
        Poll::Ready(Ok(value)) => Ok(value),
        Poll::Ready(Err(HttpStreamError::Io(_) | HttpStreamError::Truncated)) | Poll::Pending => {
            Err(ReplayEnd::Truncated)
        }
        Poll::Ready(Err(_)) => Err(ReplayEnd::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_whole_body(text: &str) -> (Vec<ReplayedMessage>, ReplayEnd) {
        replay(&[text.as_bytes()])
    }

    #[test]
    fn requests_follow_each_other_on_a_connection() {
        let text = "\r\nPOST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
                    PUT /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n\
                    GET /c HTTP/1.1\r\nHost: h\r\n\r\n";
        let (messages, end) = read_whole_body(text);
        assert_eq!(end, ReplayEnd::EndOfInput);
        let seen: Vec<_> =
            messages.iter().map(|m| (m.target.as_slice(), m.body.as_slice(), m.complete)).collect();
        let expected: [(&[u8], &[u8], bool); 3] =
            [(b"/a", b"abc", true), (b"/b", b"de", true), (b"/c", b"", true)];
        assert_eq!(seen, expected);
        assert_eq!(messages[1].trailers.as_ref().map(|t| t["x"].as_bytes()), Some(b"y".as_slice()));
        for size in 1..text.len() {
            let pieces: Vec<_> = text.as_bytes().chunks(size).collect();
            assert_eq!(replay(&pieces), (messages.clone(), end), "in pieces of {size}");
        }
    }

    #[test]
    fn a_repeated_block_is_read_as_it_was_parsed() {
        let block = "Host: h\r\nX-Empty:\r\nAccept:  text/html \r\nConnection: keep-alive\r\n\r\n";
        let with_body = "Host: h\r\nContent-Length: 2\r\nUpgrade: h2c\r\n\r\n";
        let alive = "Connection: keep-alive\r\n\r\n";
        let get = |target: &str| format!("GET {target} HTTP/1.1\r\n{block}");
        let repeated: String = ["/a", "/b?c", "/d", "*", "http://h/e"].map(get).concat();
        for (text, uses) in [
            (repeated.clone(), 3),
            // A head after an empty line, with another version, or with another block.
            (format!("{repeated}\r\n{}", get("/")), 3),
            (format!("{repeated}GET / HTTP/1.0\r\n{block}"), 4),
            (format!("{repeated}GET / HTTP/1.1\r\nHost: i\r\n\r\n{}", get("/")), 4),
            (format!("{repeated}GET / HTTP/1.1\r\nX: y\r\n{block}"), 3),
            (format!("POST / HTTP/1.1\r\n{with_body}ab").repeat(4), 2),
            // What is wrong with a request line is told as ever.
            (format!("{repeated}GET  / HTTP/1.1\r\n{block}"), 3),
            (format!("{repeated}GET / HTTP/2\r\n{block}"), 3),
            (format!("{repeated}GET /\r\n{block}"), 3),
            (format!("{repeated}GET /{} HTTP/1.1\r\n{block}", "x".repeat(MAX_TARGET)), 3),
            (format!("{repeated}GET / HTTP/1.1\n{block}"), 3),
            // What one version does not need, another does.
            (format!("{}GET / HTTP/1.1\r\n{alive}", format!("GET / HTTP/1.0\r\n{alive}").repeat(3)), 1),
        ] {
            let fresh = replay(&[text.as_bytes()]);
            assert_eq!(replay_remembering(&[text.as_bytes()]), (fresh.clone(), uses), "{text:?}");
            // The pieces of a recording nest, so there cannot be thousands.
            for size in [1, 7, 50].into_iter().filter(|size| text.len() / size < 1000) {
                let pieces: Vec<_> = text.as_bytes().chunks(size).collect();
                assert_eq!(replay_remembering(&pieces).0, fresh, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn nothing_is_read_after_the_end() {
        let (messages, end) =
            read_whole_body("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
        assert_eq!((messages.len(), end), (1, ReplayEnd::Closed));
        let (messages, end) = read_whole_body("GET / HTTP/1.1\r\nHost: h\n\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
        assert_eq!((messages.len(), end), (0, ReplayEnd::Invalid));
        let (messages, end) = read_whole_body(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nx\r\n",
        );
        assert_eq!((messages.len(), messages[0].complete, end), (1, false, ReplayEnd::Invalid));
        assert_eq!(messages[0].body, b"a");
    }

    #[test]
    fn a_cut_is_told_from_an_end() {
        assert_eq!(read_whole_body(""), (Vec::new(), ReplayEnd::EndOfInput));
        assert_eq!(read_whole_body("GET / HT"), (Vec::new(), ReplayEnd::Truncated));
        let (messages, end) = read_whole_body("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab");
        assert_eq!((messages[0].complete, end), (false, ReplayEnd::Truncated));
    }
}
