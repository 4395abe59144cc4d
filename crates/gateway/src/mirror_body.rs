//! Mirror body: the copy of a request body on its way to a mirror.
//!
//! Owns: the bounded buffer between the request, which is never delayed, and the mirror, which may
//! be slower. If the mirror lags behind further than the buffer reaches, its copy is given up.
//! Does not own: the two exchanges ([`mod@crate::relay`], [`crate::mirror`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http::HeaderMap;
use http_engine::http_stream::{Fill, HttpStream, HttpStreamError};

/// A copy of a body, filled by the request and read by the exchange with the mirror, both on one
/// thread.
#[derive(Default)]
struct Shared {
    /// Bytes that the reader has not taken yet.
    data: Vec<u8>,
    /// Bytes of `data`, and those that the reader has taken and not yet passed on.
    held: usize,
    limit: usize,
    end: Option<End>,
    reader: Option<Waker>,
}

enum End {
    /// The body is complete; its trailers are taken once.
    Complete(Option<Box<HeaderMap>>),
    /// The copy is given up: the mirror is too slow, or the request ended before its body.
    GivenUp,
    /// Nobody reads it any more.
    Unread,
}

impl Shared {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn end(&mut self, end: End) {
        if self.end.is_none() {
            self.end = Some(end);
            self.wake();
        }
    }
}

/// The copies of one request's body. Those that are incomplete when it is dropped are given up.
#[derive(Default)]
pub(crate) struct BodyCopies(Vec<Rc<RefCell<Shared>>>);

impl BodyCopies {
    /// Adds a copy that may hold back up to `limit` bytes. Returns its reader.
    pub(crate) fn add(&mut self, limit: usize) -> MirrorBody {
        let shared = Rc::new(RefCell::new(Shared { limit, ..Shared::default() }));
        self.0.push(shared.clone());
        MirrorBody { shared, chunk: Vec::new(), at: 0 }
    }

    /// Adds data that the request's own upstream has accepted.
    pub(crate) fn push(&self, data: &[u8]) {
        for shared in &self.0 {
            let mut shared = shared.borrow_mut();
            if shared.end.is_some() {
                continue;
            }
            if shared.held.saturating_add(data.len()) > shared.limit {
                shared.data = Vec::new();
                shared.end(End::GivenUp);
                continue;
            }
            shared.data.extend_from_slice(data);
            shared.held += data.len();
            shared.wake();
        }
    }

    /// Ends the body.
    pub(crate) fn finish(&self, trailers: Option<&HeaderMap>) {
        for shared in &self.0 {
            shared.borrow_mut().end(End::Complete(trailers.cloned().map(Box::new)));
        }
    }
}

impl Drop for BodyCopies {
    fn drop(&mut self) {
        for shared in &self.0 {
            shared.borrow_mut().end(End::GivenUp);
        }
    }
}

/// The client's side of an exchange with a mirror: reads the copy, and discards the response.
pub(crate) struct MirrorBody {
    shared: Rc<RefCell<Shared>>,
    /// Data that was taken from the shared buffer, and how much of it was passed on.
    chunk: Vec<u8>,
    at: usize,
}

impl MirrorBody {
    /// The body of a request without one.
    pub(crate) fn empty() -> Self {
        let shared = Shared { end: Some(End::Complete(None)), ..Shared::default() };
        Self { shared: Rc::new(RefCell::new(shared)), chunk: Vec::new(), at: 0 }
    }

    /// Whether the copy was given up before it was complete.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.shared.borrow().end, Some(End::GivenUp))
    }
}

impl Drop for MirrorBody {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.data = Vec::new();
        shared.end(End::Unread);
    }
}

impl HttpStream for MirrorBody {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fill<'_>, HttpStreamError>> {
        if self.at == self.chunk.len() {
            let shared = &mut *self.shared.borrow_mut();
            self.chunk.clear();
            self.at = 0;
            std::mem::swap(&mut self.chunk, &mut shared.data);
            if self.chunk.is_empty() {
                return match &mut shared.end {
                    Some(End::Complete(trailers)) => Poll::Ready(Ok(Fill::End(trailers.take()))),
                    Some(End::GivenUp | End::Unread) => Poll::Ready(Err(HttpStreamError::Truncated)),
                    None => {
                        shared.reader = Some(cx.waker().clone());
                        Poll::Pending
                    }
                };
            }
        }
        Poll::Ready(Ok(Fill::Data(&self.chunk[self.at..])))
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
        let mut shared = self.shared.borrow_mut();
        shared.held = shared.held.saturating_sub(n);
    }

    fn poll_write(&mut self, _: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, HttpStreamError>> {
        Poll::Ready(Ok(data.len()))
    }

    fn finish(&mut self, _: Option<Box<HeaderMap>>) -> Result<(), HttpStreamError> {
        Ok(())
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpStreamError>> {
        Poll::Ready(Ok(()))
    }

    fn release_buffers(&mut self) {
        if self.at == self.chunk.len() {
            (self.chunk, self.at) = (Vec::new(), 0);
        }
    }

    fn switch_protocol(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next data; `None`: the end.
    fn read(body: &mut MirrorBody) -> Poll<Result<Option<Vec<u8>>, ()>> {
        let mut cx = Context::from_waker(Waker::noop());
        let filled = body.poll_fill(&mut cx).map(|filled| match filled {
            Ok(Fill::Data(data)) => Ok(Some(data.to_vec())),
            Ok(Fill::End(_)) => Ok(None),
            Err(_) => Err(()),
        });
        if let Poll::Ready(Ok(Some(data))) = &filled {
            body.consume(data.len());
        }
        filled
    }

    #[test]
    fn a_copy_is_the_body_in_its_order() {
        let mut copies = BodyCopies::default();
        let (mut first, mut second) = (copies.add(8), copies.add(8));
        assert!(read(&mut first).is_pending());
        copies.push(b"abc");
        copies.push(b"de");
        assert_eq!(read(&mut first), Poll::Ready(Ok(Some(b"abcde".to_vec()))));
        assert!(read(&mut first).is_pending());
        copies.push(b"fgh");
        copies.finish(None);
        drop(copies);
        assert_eq!(read(&mut first), Poll::Ready(Ok(Some(b"fgh".to_vec()))));
        assert_eq!(read(&mut first), Poll::Ready(Ok(None)));
        assert_eq!(read(&mut second), Poll::Ready(Ok(Some(b"abcdefgh".to_vec()))), "as much as it may hold");
        assert_eq!(read(&mut second), Poll::Ready(Ok(None)));
    }

    #[test]
    fn a_copy_that_lags_behind_is_given_up_and_no_other() {
        let mut copies = BodyCopies::default();
        let (mut slow, mut fast) = (copies.add(4), copies.add(4));
        copies.push(b"abc");
        assert_eq!(read(&mut fast), Poll::Ready(Ok(Some(b"abc".to_vec()))));
        copies.push(b"de");
        copies.finish(None);
        assert_eq!(read(&mut slow), Poll::Ready(Err(())));
        assert!(slow.is_given_up() && !fast.is_given_up());
        assert_eq!(read(&mut fast), Poll::Ready(Ok(Some(b"de".to_vec()))));
    }

    #[test]
    fn a_body_that_ends_early_is_never_complete() {
        let mut copies = BodyCopies::default();
        let mut body = copies.add(4);
        copies.push(b"ab");
        drop(copies);
        assert_eq!(read(&mut body), Poll::Ready(Ok(Some(b"ab".to_vec()))));
        assert_eq!(read(&mut body), Poll::Ready(Err(())));
        assert_eq!(read(&mut MirrorBody::empty()), Poll::Ready(Ok(None)));
    }

    #[test]
    fn nothing_is_held_for_a_mirror_that_reads_no_more() {
        let mut copies = BodyCopies::default();
        drop(copies.add(4));
        copies.push(b"abc");
        assert!(copies.0[0].borrow().data.is_empty());
    }
}
