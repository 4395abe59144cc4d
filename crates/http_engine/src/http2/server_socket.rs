//! The socket of a downstream HTTP/2 connection, as the `h2` crate sees it.
//!
//! Owns: one write per wake of the connection, reads of a whole buffer, and that long strings which a
//! client repeats are decoded once (`repeated_strings`). Does not own: frames beyond where
//! they end, the connection.
//!
//! Written frames gather until the task of the connection has nothing more to do, and calls
//! [`ServerSocket::poll_send`]. The crate alone would write after each frame with content of some
//! size, which is one system call for each response.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use arrayvec::ArrayVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer::{BUFFER_SIZE, ReadBuffer, borrow_vec, return_vec};
use crate::http2::repeated_strings::RepeatedStrings;
use crate::io::Stream;

/// Length of the connection preface (RFC 9113 §3.4).
const PREFACE: usize = 24;
/// Length of the head of a frame (RFC 9113 §4.1).
const HEAD: usize = 9;
/// Largest content of a frame: the default, which this server does not change (RFC 9113 §4.2).
const MAX_CONTENT: usize = 16 * 1024;
/// Bytes that gather before they are written although more may follow.
const MAX_GATHERED: usize = 32 * 1024;
/// Bytes that are not copied when nothing is gathered.
const DIRECT_WRITE: usize = 8 * 1024;

/// The socket. Clones are the same.
#[derive(Clone)]
pub struct ServerSocket(Rc<RefCell<Socket>>);

struct Socket {
    io: Stream,
    /// Where the next byte from the client is.
    position: Position,
    /// Bytes that were read and not yet returned, from `returned` on.
    ahead: Vec<u8>,
    returned: usize,
    /// Bytes to write, from `sent` on.
    gathered: Vec<u8>,
    sent: usize,
    /// Whether bytes were written since the last flush.
    needs_flush: bool,
    strings: RepeatedStrings,
}

/// Where a byte of the connection is among its frames.
struct Position {
    /// Bytes until the next head of a frame.
    content: usize,
    /// The beginning of that head, if it was cut.
    head: ArrayVec<u8, HEAD>,
}

impl ServerSocket {
    /// A connection that begins with its preface.
    pub fn new(io: Stream) -> Self {
        Self(Rc::new(RefCell::new(Socket {
            io,
            position: Position { content: PREFACE, head: ArrayVec::new() },
            ahead: Vec::new(),
            returned: 0,
            gathered: Vec::new(),
            sent: 0,
            needs_flush: false,
            strings: RepeatedStrings::default(),
        })))
    }

    /// Sends what was written, as far as the socket accepts it; ready when all is sent.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }

    /// Whether it remembers nothing of the requests before.
    #[cfg(test)]
    pub(crate) fn remembers_nothing(&self) -> bool {
        self.0.borrow().strings.is_empty()
    }

    /// Forgets the strings of the requests before.
    pub fn forget(&self) {
        self.0.borrow().strings.forget();
    }
}

impl Socket {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.gathered.len() {
            let n = ready!(Pin::new(&mut self.io).poll_write(cx, &self.gathered[self.sent..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += n;
            self.needs_flush = true;
        }
        if self.sent > 0 {
            self.sent = 0;
            return_vec(std::mem::take(&mut self.gathered));
        }
        if self.needs_flush {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            if self.position.content >= buf.remaining() {
                // All of it is content, which is not looked at: no detour.
                let before = buf.filled().len();
                ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
                self.position.content -= buf.filled().len() - before;
                return Poll::Ready(Ok(()));
            }
            let mut read = ReadBuffer::default();
            let n = self.io.poll_read_slice(cx, read.spare(BUFFER_SIZE));
            if let Poll::Ready(Ok(n)) = n {
                read.advance(n);
                self.take_frames(read.filled(), buf);
                read.consume(n);
            }
            read.release_if_empty();
            return n.map_ok(drop);
        }
        let held = &self.ahead[self.returned..];
        let n = held.len().min(buf.remaining());
        buf.put_slice(&held[..n]);
        self.returned += n;
        if self.returned == self.ahead.len() {
            self.returned = 0;
            return_vec(std::mem::take(&mut self.ahead));
        }
        Poll::Ready(Ok(()))
    }

    /// Puts bytes from the client into `buf`. What does not fit is returned by the next reads.
    fn take_frames(&mut self, read: &[u8], buf: &mut ReadBuf<'_>) {
        let mut rewritten = Vec::new();
        let copied = self.position.pass(read, &self.strings, &mut rewritten);
        if copied == 0 {
            self.put(read, buf);
        } else {
            rewritten.extend_from_slice(&read[copied..]);
            self.put(&rewritten, buf);
        }
        return_vec(rewritten);
    }

    fn put(&mut self, bytes: &[u8], buf: &mut ReadBuf<'_>) {
        let (now, later) = bytes.split_at(bytes.len().min(buf.remaining()));
        buf.put_slice(now);
        if !later.is_empty() {
            self.ahead = borrow_vec();
            self.ahead.extend_from_slice(later);
        }
    }
}

impl Position {
    /// Passes over bytes. Header blocks in them may be rewritten: then `out` has all bytes up to the
    /// end of the last of them, and the result is that place; 0: there are none.
    ///
    /// Only the block of a whole frame that is a whole block is looked at. All else is unusual, or cut
    /// by the end of the read.
    fn pass(&mut self, bytes: &[u8], strings: &RepeatedStrings, out: &mut Vec<u8>) -> usize {
        let (mut at, mut copied) = (0, 0);
        loop {
            let content = self.content.min(bytes.len() - at);
            self.content -= content;
            at += content;
            let rest = &bytes[at..];
            if rest.is_empty() {
                return copied;
            }
            let Some(frame) = Frame::new(rest).filter(|_| self.head.is_empty()) else {
                let missing = HEAD - self.head.len();
                let more = &rest[..missing.min(rest.len())];
                at += more.len();
                // There is room for it.
                let _ = self.head.try_extend_from_slice(more);
                if self.head.is_full() {
                    self.content = content_length(&self.head);
                    self.head.clear();
                }
                continue;
            };
            if let Some(block_at) = frame.block_at()
                && rest.len() >= HEAD + frame.length
            {
                let end = at + HEAD + frame.length;
                let (before, block) = (&bytes[copied..at + block_at], &bytes[at + block_at..end]);
                let mark = out.len();
                if strings.rewrite(before, block, out) {
                    let head = mark + before.len() - block_at;
                    if put_content_length(&mut out[head..]) {
                        copied = end;
                    } else {
                        out.truncate(mark);
                    }
                }
            }
            self.content = frame.length;
            at += HEAD;
        }
    }
}

/// The head of a frame.
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
}

impl Frame {
    fn new(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..HEAD)?;
        Some(Self { length: content_length(head), kind: head[3], flags: head[4] })
    }

    /// Where the header block begins, if the frame has a whole one and no padding (RFC 9113 §6.2).
    fn block_at(&self) -> Option<usize> {
        const HEADERS: u8 = 1;
        const END_HEADERS: u8 = 0x4;
        const PADDED: u8 = 0x8;
        const PRIORITY: u8 = 0x20;
        let is_whole = self.kind == HEADERS && self.flags & (END_HEADERS | PADDED) == END_HEADERS;
        let block_at = if self.flags & PRIORITY == 0 { HEAD } else { HEAD + 5 };
        (is_whole && self.length <= MAX_CONTENT && block_at <= HEAD + self.length).then_some(block_at)
    }
}

/// Length of the content of a frame that begins so.
fn content_length(head: &[u8]) -> usize {
    head[..3].iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// Writes the length of its content into a frame; `false`: it is too large for one.
fn put_content_length(frame: &mut [u8]) -> bool {
    let length = frame.len() - HEAD;
    let Ok([0, bytes @ ..]) = u32::try_from(length).map(u32::to_be_bytes) else { return false };
    frame[..3].copy_from_slice(&bytes);
    length <= MAX_CONTENT
}

impl AsyncRead for ServerSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for ServerSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut socket = self.0.borrow_mut();
        let length = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        if !socket.gathered.is_empty() && socket.gathered.len() + length > MAX_GATHERED {
            ready!(socket.poll_send(cx))?;
        }
        if socket.gathered.is_empty() && length >= DIRECT_WRITE {
            socket.needs_flush = true;
            return Pin::new(&mut socket.io).poll_write_vectored(cx, bufs);
        }
        if socket.gathered.capacity() == 0 {
            socket.gathered = borrow_vec();
        }
        for buf in bufs {
            socket.gathered.extend_from_slice(buf);
        }
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: what is written is sent when the connection's task has no more to write.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.0.borrow_mut();
        ready!(socket.poll_send(cx))?;
        Pin::new(&mut socket.io).poll_shutdown(cx)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        return_vec(std::mem::take(&mut self.ahead));
        return_vec(std::mem::take(&mut self.gathered));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::*;
    use crate::http2::huffman::tests::string_literal;

    fn pair() -> (UnixStream, ServerSocket) {
        let (client, io) = UnixStream::pair().unwrap();
        (client, ServerSocket::new(Stream::Unix(io)))
    }

    fn frame(kind: u8, flags: u8, content: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&length[..], &[kind, flags, 0, 0, 0, 1], content].concat()
    }

    /// A literal field with a value of 400 bytes, in Huffman code or not.
    fn field(kind: u8, is_encoded: bool) -> Vec<u8> {
        [&[0x1f, 0x08], &string_literal(&[kind; 400], is_encoded)[..]].concat()
    }

    /// A connection in which tokens repeat, as the client sends it, or with all strings decoded that
    /// may be.
    fn connection(is_sent: bool) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, &[]));
        for round in 0..6 {
            let token = |is_encoded| [vec![0x82], field(b'a', is_encoded), vec![0x86]].concat();
            bytes.extend(frame(1, 0x5, &token(is_sent)));
            bytes.extend(frame(1, 0x25, &[&[0, 0, 0, 0, 16][..], &token(is_sent)].concat()));
            // What looks like a header block, and others that are left alone: cut, and padded.
            bytes.extend(frame(0, 0, &frame(1, 0x5, &token(true))));
            bytes.extend(frame(1, 0x1, &token(true)));
            bytes.extend(frame(9, 0x4, &field(b'b', true)));
            bytes.extend(frame(1, 0xd, &[&[1][..], &token(true), &[0]].concat()));
            bytes.extend(frame(0, 1, &vec![round; 2000 * usize::from(round)]));
            bytes.extend(frame(1, 0x25, &[0, 0]));
        }
        bytes
    }

    /// The frames with all strings decoded that may be.
    fn decoded(bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut at) = (bytes[..PREFACE].to_vec(), PREFACE);
        while at < bytes.len() {
            let head = Frame::new(&bytes[at..]).unwrap();
            let end = at + HEAD + head.length;
            match head.block_at().filter(|block_at| at + block_at < end) {
                Some(block_at) => {
                    let whole = [vec![0x82], field(b'a', true), vec![0x86]].concat();
                    let block = &bytes[at + block_at..end];
                    let block = if *block == *whole {
                        [vec![0x82], field(b'a', false), vec![0x86]].concat()
                    } else {
                        block.to_vec()
                    };
                    let content = [&bytes[at + HEAD..at + block_at], &block].concat();
                    out.extend(frame(head.kind, head.flags, &content));
                }
                None => out.extend_from_slice(&bytes[at..end]),
            }
            at = end;
        }
        out
    }

    /// What is read if the connection arrives in pieces of this size.
    async fn read(sent: &[u8], piece: usize, room: usize) -> Vec<u8> {
        let (mut client, mut socket) = pair();
        let sending = async {
            for piece in sent.chunks(piece) {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let reading = async {
            let (mut read, mut buf) = (Vec::new(), vec![0; room]);
            loop {
                match socket.read(&mut buf).await.unwrap() {
                    0 => return read,
                    n => read.extend_from_slice(&buf[..n]),
                }
            }
        };
        tokio::join!(sending, reading).1
    }

    #[tokio::test]
    async fn only_whole_blocks_change_and_only_in_form() {
        let sent = connection(true);
        assert_eq!(decoded(&sent), connection(false));
        for (piece, room) in
            [(1, 100), (7, 8192), (8, 3), (9, 9), (100, 5000), (1000, 8192), (16_384, 64), (1 << 20, 8192)]
        {
            let read = read(&sent, piece, room).await;
            assert!(decoded(&read) == decoded(&sent), "pieces of {piece}, read by {room}");
            assert!(piece < 1000 || read != sent, "pieces of {piece}, read by {room}");
        }
    }

    #[tokio::test]
    async fn frames_gather_until_they_are_sent() {
        let (client, mut socket) = pair();
        for _ in 0..3 {
            socket.write_all(&frame(0, 0, &[b'x'; 300])).await.unwrap();
            socket.flush().await.unwrap();
        }
        let mut buf = vec![0; 4096];
        assert_eq!(client.try_read(&mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        poll_fn(|cx| socket.poll_send(cx)).await.unwrap();
        client.readable().await.unwrap();
        assert_eq!(client.try_read(&mut buf).unwrap(), 3 * 309);
        assert!(socket.0.borrow().gathered.capacity() == 0, "no buffer is kept");
        socket.write_all(b"end").await.unwrap();
        socket.shutdown().await.unwrap();
        client.readable().await.unwrap();
        assert_eq!(client.try_read(&mut buf).unwrap(), 3);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_fills_no_memory() {
        let (mut client, mut socket) = pair();
        let content = frame(0, 0, &[b'x'; 7000]);
        let mut written = 0;
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(n) = Pin::new(&mut socket).poll_write(&mut cx, &content[..]) {
            assert_eq!(n.unwrap(), content.len());
            written += content.len();
            assert!(written < 10 << 20);
        }
        assert!(socket.0.borrow().gathered.len() <= MAX_GATHERED);
        let reading = async {
            let mut read = vec![0; written];
            client.read_exact(&mut read).await.map(|_| read)
        };
        let (sent, read) = tokio::join!(poll_fn(|cx| socket.poll_send(cx)), reading);
        sent.unwrap();
        assert!(read.unwrap() == content.repeat(written / content.len()));
    }
}
