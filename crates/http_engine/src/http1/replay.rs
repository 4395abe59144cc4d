//! What the connection's reader makes of recorded bytes, without a socket.
//!
//! Owns: taking a recording through the very reader and grammar that [`gateway::serve::http1`] uses, so that tests
//! compare with another implementation what is read in service and not a likeness of it. Does not own:
//! deadlines, answers, what becomes of a request.

use std::task::{Context, Poll, Waker};

use auth::request::{Canonical, RawRequest, Scheme};
use http::HeaderMap;

use super::connection::Connection;
use crate::head::{Fields, RequestHead, Version, parse_request, parse_target};
use crate::http_stream::{Fill, HttpStream, HttpStreamError};
use crate::io::Stream;

/// Bytes a head may have; the default of a listener.
const MAX_HEAD: usize = 32 * 1024;
/// Fields a head may have; the default of a listener.
const MAX_FIELDS: usize = 100;
/// Bytes a request target may have; the default of a listener.
const MAX_TARGET: usize = 8 * 1024;

/// One request as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedMessage {
    /// Method as received.
    pub method: String,
    /// Request target as received.
    pub target: Vec<u8>,
    /// Minor version.
    pub version: Version,
    /// All fields in order, names as received, values without the white space around them.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Whether the head has a canonical form, so that the request can be forwarded at all. When it has
    /// none it is answered with 400, and its body is still read to find the next request.
    pub canonical: bool,
    /// What was read of the body.
    pub body: Vec<u8>,
    /// The trailer section, when there was one.
    pub trailers: Option<HeaderMap>,
    /// The body was read to its end.
    pub complete: bool,
}

/// How reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayEnd {
    /// The recording ended between two messages.
    Drained,
    /// The recording ended inside a message.
    Truncated,
    /// The last message asked for the connection to be closed (RFC 9112 §9.3); what follows it is not read.
    NotKept,
    /// Outside the grammar; nothing after it is read. The last message may be one that broke off.
    Refused,
}

/// Reads a recording that arrives in `pieces`, each no later than the one before is used up.
pub fn replay(pieces: &[&[u8]]) -> (Vec<ReplayedMessage>, ReplayEnd) {
    let recording = pieces.iter().rev().fold(Stream::Closed, |rest, piece| rest.replay(piece.to_vec()));
    let mut connection = Connection::new(recording, &[]);
    let mut messages = Vec::new();
    let end = loop {
        match next(&mut connection, &mut messages) {
            Ok(true) => {}
            Ok(false) => break ReplayEnd::NotKept,
            Err(end) => break end,
        }
    };
    (messages, end)
}

/// Reads one message; whether another may follow it.
fn next(connection: &mut Connection, messages: &mut Vec<ReplayedMessage>) -> Result<bool, ReplayEnd> {
    let mut cx = Context::from_waker(Waker::noop());
    let len = ready(connection.poll_head(&mut cx, MAX_HEAD, MAX_FIELDS)).map_err(|end| {
        if end == ReplayEnd::Truncated && connection.unread().is_empty() { ReplayEnd::Drained } else { end }
    })?;
    let mut fields = Fields::new();
    let parsed = parse_request(&connection.unread()[..len], MAX_TARGET, &mut fields)
        .map_err(|_| ReplayEnd::Refused)?;
    let Some((authority, target)) = parse_target(parsed.target, Scheme::Http) else {
        return Err(ReplayEnd::Refused);
    };
    let (persists, framing) = (parsed.connection.persists(parsed.version), parsed.framing);
    messages.push(begin(&parsed, &fields, authority, target));
    drop(fields);
    connection.begin_body(len, framing);
    let message = messages.last_mut().ok_or(ReplayEnd::Refused)?;
    loop {
        let taken = match ready(connection.poll_fill(&mut cx))? {
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

fn begin(
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

/// A recording never keeps its reader waiting: after its last byte the stream is closed.
fn ready<T>(poll: Poll<Result<T, HttpStreamError>>) -> Result<T, ReplayEnd> {
    match poll {
        Poll::Ready(Ok(value)) => Ok(value),
        Poll::Ready(Err(HttpStreamError::Io(_) | HttpStreamError::Truncated)) | Poll::Pending => {
            Err(ReplayEnd::Truncated)
        }
        Poll::Ready(Err(_)) => Err(ReplayEnd::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> (Vec<ReplayedMessage>, ReplayEnd) {
        replay(&[text.as_bytes()])
    }

    #[test]
    fn requests_follow_each_other_on_a_connection() {
        let text = "\r\nPOST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
                    PUT /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n\
                    GET /c HTTP/1.1\r\nHost: h\r\n\r\n";
        let (messages, end) = whole(text);
        assert_eq!(end, ReplayEnd::Drained);
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
    fn nothing_is_read_after_the_end() {
        let (messages, end) =
            whole("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
        assert_eq!((messages.len(), end), (1, ReplayEnd::NotKept));
        let (messages, end) = whole("GET / HTTP/1.1\r\nHost: h\n\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
        assert_eq!((messages.len(), end), (0, ReplayEnd::Refused));
        let (messages, end) =
            whole("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nx\r\n");
        assert_eq!((messages.len(), messages[0].complete, end), (1, false, ReplayEnd::Refused));
        assert_eq!(messages[0].body, b"a");
    }

    #[test]
    fn a_cut_is_told_from_an_end() {
        assert_eq!(whole(""), (Vec::new(), ReplayEnd::Drained));
        assert_eq!(whole("GET / HT"), (Vec::new(), ReplayEnd::Truncated));
        let (messages, end) = whole("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab");
        assert_eq!((messages[0].complete, end), (false, ReplayEnd::Truncated));
    }
}
