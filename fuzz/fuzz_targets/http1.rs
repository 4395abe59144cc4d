//! HTTP/1 requests: what our reader accepts, hyper's server reads the same.
//!
//! Input: one byte, then a connection as the client sent it. The byte is the size of the pieces in
//! which the connection arrives: 0 is all at once. Only the first [`PIECES`] are cut; the rest is
//! one piece.
//!
//! Checked:
//!
//! - The cut into pieces makes no difference to what is read.
//! - Nor does it make one that the connection remembers header blocks. (Requests that repeat are
//!   likely, because inputs are made of parts of others.)
//! - Each message that our reader accepts, hyper accepts too: in the same order, with the same
//!   method, target, version, fields, body and trailers.
//! - When our reader reaches the end of the bytes without an error, hyper finds no further message
//!   in them.
//!
//! Our reader may refuse what hyper accepts, and may stop where hyper continues: bare line feeds,
//! both length fields, repeated `Content-Length` or `Host`, HTTP/1.1 without `Host`, white space
//! after a chunk size, limits on fields, extensions and trailers. In the other direction there are
//! these exceptions:
//!
//! - A head without a canonical form is answered with 400 and not forwarded, but its body is read.
//!   hyper refuses such a head if it is no URI in its view; the comparison ends there.
//! - Printable bytes outside the URI grammar ([`BROWSERS`]) are accepted raw, because browsers send
//!   them. In a path they are forwarded escaped. hyper refuses some of them; the comparison ends
//!   there.
//! - For hyper the fragment of a target does not exist. For us a raw `#` has no canonical form
//!   (same case).
//! - Names are compared in lower case and fields grouped by name, because that is all hyper keeps.
//!   Within a name the order counts.

#![no_main]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use http_engine::head::Version;
use http_engine::http1::replay::{ReplayEnd, ReplayedMessage, replay, replay_remembering};
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use libfuzzer_sys::fuzz_target;

/// Bytes that no URI may contain, but that browsers send.
const BROWSERS: &[u8] = b"\"<>[]^`{|}";
/// Maximum cuts of one connection.
const PIECES: usize = 64;
/// Number of polls after which hyper counts as blocked.
const MAX_POLLS: usize = 100_000;

/// One request as hyper read it.
struct Theirs {
    head: http::request::Parts,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    complete: bool,
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else { return };
    let pieces = cut(bytes, usize::from(size));
    let (ours, end) = replay(&pieces);
    if pieces.len() > 1 {
        assert_eq!(replay(&[bytes]), (ours.clone(), end), "the cut into pieces makes a difference");
    }
    let remembering = replay_remembering(&pieces).0;
    assert_eq!(remembering, (ours.clone(), end), "a remembered block makes a difference");
    let theirs = read_with_hyper(&pieces);
    for (at, message) in ours.iter().enumerate() {
        let Some(their) = theirs.get(at) else {
            let browser = message.target.iter().any(|byte| BROWSERS.contains(byte));
            assert!(browser || !message.canonical, "only our reader accepted {message:?}");
            return;
        };
        if !message.canonical && !same_target(message, their) {
            return;
        }
        compare(message, their);
    }
    if end == ReplayEnd::EndOfInput {
        assert_eq!(theirs.len(), ours.len(), "hyper found a further message");
    }
});

fn cut(bytes: &[u8], size: usize) -> Vec<&[u8]> {
    if size == 0 {
        return vec![bytes];
    }
    let (fine, rest) = bytes.split_at(bytes.len().min(size * PIECES));
    fine.chunks(size).chain((!rest.is_empty()).then_some(rest)).collect()
}

fn compare(our: &ReplayedMessage, their: &Theirs) {
    assert_eq!(our.method, their.head.method.as_str());
    assert!(same_target(our, their), "{:?} and {:?}", our.target.escape_ascii().to_string(), their.head.uri);
    let version =
        if our.version == Version::Http10 { http::Version::HTTP_10 } else { http::Version::HTTP_11 };
    assert_eq!(version, their.head.version);
    let (mut mine, mut others) = (BTreeMap::<_, Vec<&[u8]>>::new(), BTreeMap::<_, Vec<&[u8]>>::new());
    for (name, value) in &our.fields {
        mine.entry(name.to_ascii_lowercase()).or_default().push(value);
    }
    for (name, value) in &their.head.headers {
        others.entry(name.as_str().to_owned()).or_default().push(value.as_bytes());
    }
    assert_eq!(mine, others);
    if our.complete {
        assert!(their.complete, "hyper did not reach the end of the body");
        assert_eq!(our.body, their.body);
        assert_eq!(our.trailers, their.trailers);
    } else {
        assert!(their.body.starts_with(&our.body), "{:?} and {:?}", our.body, their.body);
    }
}

fn same_target(our: &ReplayedMessage, their: &Theirs) -> bool {
    let uri = &their.head.uri;
    let path = uri.path_and_query().map_or("", |path| path.as_str()).as_bytes();
    match (uri.scheme_str(), uri.authority()) {
        (None, None) => our.target == path,
        (Some(_), Some(authority)) => {
            let split =
                our.target.iter().position(|&byte| byte == b':').map(|colon| our.target.split_at(colon));
            let rest = split.and_then(|(_, rest)| rest.strip_prefix(b"://"));
            let after = rest.and_then(|rest| rest.strip_prefix(authority.as_str().as_bytes()));
            after.is_some_and(|after| after == path || (after.is_empty() && path == b"/"))
        }
        _ => false,
    }
}

/// Returns every request that hyper's server reads from the connection.
fn read_with_hyper(pieces: &[&[u8]]) -> Vec<Theirs> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let (head, mut body) = request.into_parts();
        let at = seen.borrow().len();
        seen.borrow_mut().push(Theirs { head, body: Vec::new(), trailers: None, complete: false });
        let seen = Rc::clone(&seen);
        async move {
            let complete = loop {
                match body.frame().await {
                    None => break true,
                    Some(Err(_)) => break false,
                    Some(Ok(frame)) => {
                        let here = &mut seen.borrow_mut()[at];
                        match frame.into_data() {
                            Ok(data) => here.body.extend_from_slice(&data),
                            Err(frame) => here.trailers = frame.into_trailers().ok(),
                        }
                    }
                }
            };
            seen.borrow_mut()[at].complete = complete;
            let mut response = Response::new(Empty::<Bytes>::new());
            // A refusal, so that CONNECT and `Upgrade` are handled like other requests.
            *response.status_mut() = StatusCode::FORBIDDEN;
            Ok::<_, Infallible>(response)
        }
    });
    let wire = Wire { arriving: pieces.iter().map(|piece| piece.to_vec()).collect() };
    let mut connection = pin!(
        http1::Builder::new().header_read_timeout(None).half_close(true).serve_connection(wire, service)
    );
    let mut cx = Context::from_waker(Waker::noop());
    // The result of the connection adds nothing to its requests.
    let ended = (0..MAX_POLLS).any(|_| connection.as_mut().poll(&mut cx).is_ready());
    assert!(ended, "hyper waits on a wire that is always ready");
    seen.take()
}

/// A connection's bytes, then its end. Written bytes are discarded.
struct Wire {
    arriving: VecDeque<Vec<u8>>,
}

impl hyper::rt::Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.arriving.pop_front() {
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.arriving.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
