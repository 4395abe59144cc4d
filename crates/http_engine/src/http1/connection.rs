//! HTTP/1 connection in either role: framed reading and writing over one stream.
//!
//! Owns: the read buffer and the position within the message being read, the write buffer and the
//! framing of the message being written. Small writes are collected and leave in one system call
//! with the head. Large writes go directly from the other side's read buffer to the socket. Does
//! not own: when to read or write.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use tokio::io::AsyncWrite;

use super::writing::{put_chunk, put_field, put_forwarded};
use crate::buffer::{BUFFER_SIZE, ReadBuffer, borrow_vec, return_vec};
use crate::chunked::{Decoded, Decoder};
use crate::endpoint_stats::OpenConnection;
use crate::head::{
    BlockMemory, Fields, Framing, HeadFault, HeadLength, HeadScanner, HeaderBlock, MAX_FIELDS, parse_response,
};
use crate::http_stream::{
    BodyLength, ClientEnd, Fill, HttpStream, HttpStreamError, ResponseView, UpstreamStream,
};
use crate::io::Stream;

/// Bytes collected before a write must wait for the socket.
const WRITE_BUFFER_LIMIT: usize = 2 * BUFFER_SIZE;
/// Data of at least this length bypasses an empty write buffer.
const DIRECT_WRITE: usize = 4 * 1024;

/// Maximum length of a response head in bytes.
const MAX_RESPONSE_HEAD: usize = 64 * 1024;

/// Position in the incoming byte stream.
#[derive(Debug)]
enum Reading {
    /// Between messages, or within a head.
    Head(HeadScanner),
    /// Within a body with this number of bytes left.
    Length(u64),
    /// Within a chunked body.
    Chunked(Decoder),
    /// Within a body that ends with the connection, or in a tunnel.
    UntilClose,
}

/// Framing of the body being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// No body is being written.
    Idle,
    Length(u64),
    Chunked,
    UntilClose,
}

/// An HTTP/1 connection in either role.
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts about a socket, not states of one machine"
)]
pub struct Connection {
    io: Stream,
    read: ReadBuffer,
    reading: Reading,
    write: Vec<u8>,
    /// Number of bytes of `write` that were written to the socket.
    written: usize,
    /// Whether the stream below may hold unflushed data (TLS).
    needs_flush: bool,
    writing: Writing,
    /// Whether any byte of the message being written has reached the socket.
    sent: bool,
    /// Whether the connection can carry another request after the current response (client role).
    pub(crate) persists: bool,
    /// Whether the next response belongs to a HEAD request and has no body (client role).
    pub head_request: bool,
    /// Counts the connection as open (client role).
    open_count: Option<OpenConnection>,
    /// The header block of the responses before (client role).
    blocks: Option<Box<BlockMemory>>,
}

impl Connection {
    /// A connection over a stream, from which `ahead` was read already.
    pub fn new(io: Stream, ahead: &[u8]) -> Self {
        Self {
            io,
            read: ReadBuffer::with_data(ahead),
            reading: Reading::Head(HeadScanner::default()),
            write: Vec::new(),
            written: 0,
            needs_flush: false,
            writing: Writing::Idle,
            sent: false,
            persists: true,
            head_request: false,
            open_count: None,
            blocks: None,
        }
    }

    /// Counts the connection as open until it is dropped.
    pub(crate) fn with_open_count(mut self, open: OpenConnection) -> Self {
        self.open_count = Some(open);
        self
    }

    /// Data that was read but not consumed.
    pub fn unread(&self) -> &[u8] {
        self.read.filled()
    }

    /// Reads more data into the buffer, up to `max` held bytes; 0 is the end of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<usize>> {
        let room = self.read.spare(max);
        if room.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        match self.io.poll_read_slice(cx, room) {
            Poll::Ready(Ok(n)) => {
                self.read.advance(n);
                Poll::Ready(Ok(n))
            }
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => {
                self.read.release_if_empty();
                Poll::Pending
            }
        }
    }

    /// Length of the head at the front of the buffer, once it is complete; `None`: the stream ended
    /// before its first byte. `known`: the block that it may end with.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        (max_bytes, max_fields): (usize, usize),
        known: Option<&HeaderBlock>,
    ) -> Poll<Result<Option<HeadLength>, HttpStreamError>> {
        loop {
            let Reading::Head(scanner) = &mut self.reading else {
                return Poll::Ready(Err(HttpStreamError::Protocol("head read within a body")));
            };
            let held = self.read.filled();
            // Mostly nothing has arrived yet.
            let found = if held.is_empty() { None } else { scanner.scan_known(held, max_fields, known)? };
            match found {
                Some(found) if found.bytes > max_bytes => {
                    return Poll::Ready(Err(HeadFault::TooLarge.into()));
                }
                Some(found) => return Poll::Ready(Ok(Some(found))),
                None if held.len() >= max_bytes => return Poll::Ready(Err(HeadFault::TooLarge.into())),
                None => {}
            }
            if ready!(self.poll_read(cx, max_bytes))? == 0 {
                return Poll::Ready(if self.read.is_empty() {
                    Ok(None)
                } else {
                    Err(HttpStreamError::Truncated)
                });
            }
        }
    }

    /// Consumes the head of a request and starts its body.
    pub fn begin_body(&mut self, head: usize, framing: Framing) {
        self.begin(head, framing, Decoder::default);
    }

    /// Consumes the head of a response and starts its body.
    fn begin_response_body(&mut self, head: usize, framing: Framing) {
        self.begin(head, framing, Decoder::of_response);
    }

    fn begin(&mut self, head: usize, framing: Framing, decoder: fn() -> Decoder) {
        self.read.consume(head);
        self.reading = match framing {
            Framing::Length(n) => Reading::Length(n),
            Framing::Chunked => Reading::Chunked(decoder()),
            Framing::UntilClose => Reading::UntilClose,
        };
    }

    /// Consumes an interim head; another head follows.
    pub(crate) fn skip_head(&mut self, head: usize) {
        self.read.consume(head);
        self.reading = Reading::Head(HeadScanner::default());
    }

    /// Proceeds from a completely read body to the next head.
    pub fn next_message(&mut self) {
        self.reading = Reading::Head(HeadScanner::default());
    }

    /// Drops all unread data and reads no further message, because what follows cannot be framed.
    pub fn discard_unread(&mut self) {
        let held = self.read.filled().len();
        self.read.consume(held);
        self.reading = Reading::Length(0);
    }

    /// Converts back into the stream, with unread data in front.
    pub fn into_stream(mut self) -> Stream {
        let ahead = self.read.take();
        std::mem::replace(&mut self.io, Stream::Closed).replay(ahead)
    }

    /// Makes the close a TCP reset, so that the peer does not take a truncated response for a
    /// complete one.
    pub fn reset_on_close(&mut self) {
        self.io.reset_on_close();
    }

    /// Returns empty buffers to the pool while the connection is idle.
    pub fn release_buffers(&mut self) {
        self.read.release_if_empty();
        if self.write.is_empty() && self.write.capacity() > 0 {
            return_vec(std::mem::take(&mut self.write));
        }
    }

    /// Forgets the last response's header block (client role).
    pub(crate) fn forget_block(&mut self) {
        self.blocks = None;
    }

    /// Whether it holds no buffer.
    #[cfg(any(test, feature = "test_support"))]
    pub fn holds_no_buffer(&self) -> bool {
        self.write.capacity() == 0 && self.read.is_released()
    }

    /// Whether the connection can carry another message: no unread data, no unwritten data, and the
    /// peer has sent nothing.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.writing == Writing::Idle
            && self.read.is_empty()
            && self.write.is_empty()
            && self.io.is_reusable()
    }

    /// The write buffer, for appending a head.
    pub fn write_buffer(&mut self) -> &mut Vec<u8> {
        if self.write.capacity() == 0 {
            self.write = borrow_vec();
        }
        &mut self.write
    }

    /// Puts a complete head into the write buffer.
    pub fn put_head(&mut self, head: Vec<u8>) {
        self.sent = false;
        if self.write.is_empty() {
            return_vec(std::mem::replace(&mut self.write, head));
        } else {
            self.write.extend_from_slice(&head);
            return_vec(head);
        }
    }

    /// Sets the framing of the next body.
    pub fn frame_body(&mut self, framing: Framing) {
        self.writing = match framing {
            Framing::Length(n) => Writing::Length(n),
            Framing::Chunked => Writing::Chunked,
            Framing::UntilClose => Writing::UntilClose,
        };
    }

    /// Moves the message written to `other` to this connection. `false`: some of it has reached the
    /// socket of `other`, or this connection has unwritten data. This is the only case in which an
    /// HTTP/1 request is retried.
    pub fn take_unsent_from(&mut self, other: &mut Self) -> bool {
        if other.sent || !self.write.is_empty() {
            return false;
        }
        self.write = std::mem::take(&mut other.write);
        self.writing = other.writing;
        self.head_request = other.head_request;
        self.sent = false;
        true
    }

    /// Whether any byte of the message being written has reached the socket.
    pub fn sent(&self) -> bool {
        self.sent
    }

    /// Starts a new message with the next write.
    pub fn begin_message(&mut self) {
        self.sent = !self.write.is_empty();
    }

    /// Discards the message being written if none of it was sent, so that another can replace it.
    /// `false`: some of it was sent.
    pub fn discard_unsent(&mut self) -> bool {
        if !self.sent {
            self.write.clear();
            self.writing = Writing::Idle;
        }
        !self.sent
    }

    /// Writes collected data as far as the socket accepts it; ready when all is written.
    pub fn poll_flush_io(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.write.len() {
            let n = ready!(Pin::new(&mut self.io).poll_write(cx, &self.write[self.written..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += n;
            self.sent = true;
            self.needs_flush = true;
        }
        self.write.clear();
        self.written = 0;
        if self.needs_flush {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Closes the write side deliberately, after everything written is complete.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writing = Writing::Idle;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    /// Reads and discards data; ready at the end of the stream or when `budget` is used up.
    pub fn poll_discard(&mut self, cx: &mut Context<'_>, budget: &mut usize) -> Poll<io::Result<()>> {
        loop {
            let held = self.read.filled().len();
            self.read.consume(held);
            *budget = budget.saturating_sub(held);
            if *budget == 0 || ready!(self.poll_read(cx, BUFFER_SIZE))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Ready when the peer has closed while no data is expected from it. Data that it sends early
    /// is kept.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<ClientEnd> {
        if !self.read.is_empty() {
            return Poll::Pending;
        }
        match self.poll_read(cx, BUFFER_SIZE) {
            Poll::Ready(Ok(0)) => Poll::Ready(ClientEnd::Finished),
            Poll::Ready(Ok(_)) | Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(ClientEnd::Broken),
        }
    }

    /// Whether the peer has reset the connection, detected without reading.
    pub fn is_broken(&self) -> bool {
        self.io.is_reset()
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fill<'_>, HttpStreamError>> {
        loop {
            match &mut self.reading {
                Reading::Head(_) | Reading::Length(0) => return Poll::Ready(Ok(Fill::End(None))),
                Reading::Length(left) => {
                    if !self.read.is_empty() {
                        let left = usize::try_from(*left).unwrap_or(usize::MAX);
                        let held = self.read.filled();
                        return Poll::Ready(Ok(Fill::Data(&held[..held.len().min(left)])));
                    }
                }
                Reading::Chunked(decoder) => match decoder.decode(self.read.filled())? {
                    Decoded::More { consumed } => self.read.consume(consumed),
                    Decoded::Data { skip, len } => {
                        self.read.consume(skip);
                        return Poll::Ready(Ok(Fill::Data(&self.read.filled()[..len])));
                    }
                    Decoded::End { consumed, trailers } => {
                        self.read.consume(consumed);
                        self.reading = Reading::Length(0);
                        return Poll::Ready(Ok(Fill::End(trailers)));
                    }
                },
                Reading::UntilClose => {
                    if !self.read.is_empty() {
                        return Poll::Ready(Ok(Fill::Data(self.read.filled())));
                    }
                }
            }
            // Space for one chunk beyond an incomplete coding line.
            if ready!(self.poll_read(cx, BUFFER_SIZE))? == 0 {
                return Poll::Ready(match self.reading {
                    Reading::UntilClose => {
                        self.reading = Reading::Length(0);
                        Ok(Fill::End(None))
                    }
                    _ => Err(HttpStreamError::Truncated),
                });
            }
        }
    }

    fn consume_body(&mut self, n: usize) {
        match &mut self.reading {
            Reading::Length(left) => *left = left.saturating_sub(n as u64),
            Reading::Chunked(decoder) => decoder.consumed(n),
            Reading::Head(_) | Reading::UntilClose => {}
        }
        self.read.consume(n);
    }

    /// Whether the body being read has been read completely.
    pub fn is_body_read(&self) -> bool {
        matches!(self.reading, Reading::Head(_) | Reading::Length(0))
    }

    fn poll_write_body(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, HttpStreamError>> {
        if self.write.len() >= WRITE_BUFFER_LIMIT {
            ready!(self.poll_flush_io(cx))?;
        }
        match &mut self.writing {
            Writing::Idle => {
                return Poll::Ready(Err(HttpStreamError::Protocol("body written without a message")));
            }
            Writing::Chunked => {
                let out = self.write_buffer();
                put_chunk(out, data);
                return Poll::Ready(Ok(data.len()));
            }
            Writing::Length(left) => {
                let len = data.len() as u64;
                if len > *left {
                    return Poll::Ready(Err(HttpStreamError::Protocol(
                        "body longer than its content-length",
                    )));
                }
            }
            Writing::UntilClose => {}
        }
        let n = if self.write.is_empty() && data.len() >= DIRECT_WRITE {
            let n = ready!(Pin::new(&mut self.io).poll_write(cx, data))?;
            self.sent = true;
            self.needs_flush = true;
            n
        } else {
            self.write_buffer().extend_from_slice(data);
            data.len()
        };
        if let Writing::Length(left) = &mut self.writing {
            *left -= n as u64;
        }
        Poll::Ready(Ok(n))
    }

    fn end_body(&mut self, trailers: Option<&HeaderMap>) -> Result<(), HttpStreamError> {
        match self.writing {
            Writing::Length(left) if left > 0 => {
                return Err(HttpStreamError::Protocol("body shorter than its content-length"));
            }
            Writing::Chunked => {
                let out = self.write_buffer();
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    put_field(out, name.as_str(), value.as_bytes());
                }
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        self.writing = Writing::Idle;
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The connection is dropped within a response, for example when a drain times out. A normal
        // close would look like the end of a body that is framed by the close. Requests have no
        // such bodies.
        let unfinished = self.writing != Writing::Idle || !self.write.is_empty();
        if unfinished && self.sent && self.open_count.is_none() {
            self.reset_on_close();
        }
        return_vec(std::mem::take(&mut self.write));
    }
}

impl HttpStream for Connection {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fill<'_>, HttpStreamError>> {
        self.poll_body(cx)
    }

    fn consume(&mut self, n: usize) {
        self.consume_body(n);
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, HttpStreamError>> {
        self.poll_write_body(cx, data)
    }

    fn finish(&mut self, trailers: Option<Box<HeaderMap>>) -> Result<(), HttpStreamError> {
        self.end_body(trailers.as_deref())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpStreamError>> {
        self.poll_flush_io(cx).map_err(HttpStreamError::Io)
    }

    fn release_buffers(&mut self) {
        Self::release_buffers(self);
    }

    fn switch_protocol(&mut self) {
        self.reading = Reading::UntilClose;
        self.writing = Writing::UntilClose;
    }
}

impl UpstreamStream for Connection {
    fn forget(&mut self) {
        self.forget_block();
    }

    fn poll_response<R>(
        &mut self,
        cx: &mut Context<'_>,
        f: impl FnOnce(&ResponseView<'_>) -> R,
    ) -> Poll<Result<R, HttpStreamError>> {
        let mut blocks = self.blocks.take().unwrap_or_default();
        blocks.begin();
        let limits = (MAX_RESPONSE_HEAD, MAX_FIELDS);
        let response = match self.poll_head(cx, limits, blocks.block()) {
            Poll::Ready(Ok(Some(head))) => Poll::Ready(self.read_response(head, &blocks, f)),
            Poll::Ready(Ok(None)) => Poll::Ready(Err(HttpStreamError::Closed)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        self.blocks = Some(blocks);
        response
    }
}

impl Connection {
    /// Parses the head of a response and passes it to `f`.
    fn read_response<R>(
        &mut self,
        found: HeadLength,
        blocks: &BlockMemory,
        f: impl FnOnce(&ResponseView<'_>) -> R,
    ) -> Result<R, HttpStreamError> {
        let len = found.bytes;
        let bytes = &self.read.filled()[..len];
        let known = blocks.block();
        let mut fields = Fields::new();
        let repeated = found.parse_repeated_response(bytes, known, &mut fields);
        let forwarded = known.filter(|_| repeated.is_some());
        let forwarded = forwarded.map(|block| block.forwarded(|out| put_forwarded(out, &fields)));
        let head = match repeated {
            Some(head) => {
                blocks.hit();
                head
            }
            None => {
                fields.clear();
                let (head, facts) = parse_response(bytes, &mut fields)?;
                blocks.miss(bytes, &fields, facts);
                head
            }
        };
        let interim = matches!(head.status, 100 | 102..=199);
        let framing = if self.head_request { Framing::Length(0) } else { head.framing };
        self.persists = head.connection.persists(head.version) && framing != Framing::UntilClose;
        let body = match (framing, head.framing) {
            // In the response to HEAD the length is that of a GET response: pass it on, without a
            // body.
            (_, Framing::Length(n)) => BodyLength::Known(n),
            _ => BodyLength::Unknown,
        };
        let shown = f(&ResponseView { status: head.status, fields: &fields, forwarded, body });
        drop(fields);
        if interim {
            self.skip_head(len);
        } else {
            self.begin_response_body(len, framing);
        }
        Ok(shown)
    }
}
