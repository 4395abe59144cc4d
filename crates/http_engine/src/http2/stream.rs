//! HTTP/2 stream as one side of an exchange, in either role.

use std::task::{Context, Poll, ready};

use auth::request::Field;
use bytes::{Buf, Bytes};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use crate::chunked::{ChunkFault, MAX_TRAILERS};
use crate::head::Fields;
use crate::http_stream::{BodyLength, Fill, HttpStream, HttpStreamError, ResponseView, UpstreamStream};

/// Largest piece of data passed to the connection at once: one frame of the default size.
const FRAME: usize = 16 * 1024;

/// Both bodies of a stream.
pub struct Http2Body {
    /// Handle for the body being sent. `None` until the head was sent, or if the head ended the
    /// stream.
    pub send: Option<SendStream<Bytes>>,
    /// Handle for the body being received. `None` until the peer's head has arrived, or if that
    /// ended the stream.
    pub recv: Option<RecvStream>,
    chunk: Bytes,
    /// The last piece of data, held back so that it can carry the end of the stream.
    pending: Bytes,
}

impl Http2Body {
    /// A stream; each half may have ended already.
    pub fn new(send: Option<SendStream<Bytes>>, recv: Option<RecvStream>) -> Self {
        Self { send, recv, chunk: Bytes::new(), pending: Bytes::new() }
    }

    /// Discards the data that [`HttpStream::poll_fill`] returned, without opening the flow-control
    /// window for more. The connection's window gets it back when the stream ends.
    pub fn discard_chunk(&mut self) {
        self.chunk = Bytes::new();
    }

    fn send_pending(&mut self, end: bool) -> Result<(), HttpStreamError> {
        if let Some(send) = &mut self.send
            && (end || !self.pending.is_empty())
        {
            send.send_data(std::mem::take(&mut self.pending), end)?;
        }
        Ok(())
    }
}

impl HttpStream for Http2Body {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fill<'_>, HttpStreamError>> {
        while self.chunk.is_empty() {
            let Some(recv) = &mut self.recv else { return Poll::Ready(Ok(Fill::End(None))) };
            match ready!(recv.poll_data(cx)) {
                Some(data) => self.chunk = data?,
                None => {
                    let trailers = ready!(recv.poll_trailers(cx))?;
                    self.recv = None;
                    // The `h2` crate limits only their bytes.
                    if trailers.as_ref().is_some_and(|trailers| trailers.len() > MAX_TRAILERS) {
                        return Poll::Ready(Err(ChunkFault::Trailers.into()));
                    }
                    return Poll::Ready(Ok(Fill::End(trailers.map(Box::new))));
                }
            }
        }
        Poll::Ready(Ok(Fill::Data(&self.chunk)))
    }

    fn consume(&mut self, n: usize) {
        self.chunk.advance(n);
        if let Some(recv) = &mut self.recv {
            // Fails only if more is released than was received, which is impossible for `n`.
            let _ = recv.flow_control().release_capacity(n);
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, HttpStreamError>> {
        let Some(send) = &mut self.send else {
            return Poll::Ready(Err(HttpStreamError::Protocol("body written where there is none")));
        };
        if !self.pending.is_empty() {
            send.send_data(std::mem::take(&mut self.pending), false)?;
        }
        let wanted = data.len().min(FRAME);
        if send.capacity() < wanted {
            send.reserve_capacity(wanted);
            while send.capacity() == 0 {
                match ready!(send.poll_capacity(cx)) {
                    Some(capacity) => capacity?,
                    None => return Poll::Ready(Err(HttpStreamError::Truncated)),
                };
            }
        }
        let n = send.capacity().min(wanted);
        self.pending = Bytes::copy_from_slice(&data[..n]);
        Poll::Ready(Ok(n))
    }

    fn finish(&mut self, trailers: Option<Box<HeaderMap>>) -> Result<(), HttpStreamError> {
        match trailers {
            Some(trailers) if self.send.is_some() => {
                self.send_pending(false)?;
                if let Some(send) = &mut self.send {
                    send.send_trailers(*trailers)?;
                }
            }
            _ => self.send_pending(true)?,
        }
        self.send = None;
        Ok(())
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpStreamError>> {
        Poll::Ready(self.send_pending(false))
    }

    fn release_buffers(&mut self) {
        // No buffers to return: it holds only data in flight.
    }

    fn switch_protocol(&mut self) {
        // HTTP/2 has no status 101 (RFC 9113 §8.6); the relay never switches a stream.
    }
}

/// The upstream side of an HTTP/2 exchange.
pub struct ClientStream {
    stream: Http2Body,
    response: Option<ResponseFuture>,
    /// Whether the request was HEAD: the response has no body, even if its fields announce one.
    head_request: bool,
}

impl ClientStream {
    /// A stream on which a request was sent.
    pub fn new(response: ResponseFuture, send: Option<SendStream<Bytes>>, head_request: bool) -> Self {
        Self { stream: Http2Body::new(send, None), response: Some(response), head_request }
    }
}

impl HttpStream for ClientStream {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fill<'_>, HttpStreamError>> {
        self.stream.poll_fill(cx)
    }

    fn consume(&mut self, n: usize) {
        self.stream.consume(n);
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, HttpStreamError>> {
        self.stream.poll_write(cx, data)
    }

    fn finish(&mut self, trailers: Option<Box<HeaderMap>>) -> Result<(), HttpStreamError> {
        self.stream.finish(trailers)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpStreamError>> {
        self.stream.poll_flush(cx)
    }

    fn release_buffers(&mut self) {
        self.stream.release_buffers();
    }

    fn switch_protocol(&mut self) {
        self.stream.switch_protocol();
    }
}

impl UpstreamStream for ClientStream {
    fn poll_response<R>(
        &mut self,
        cx: &mut Context<'_>,
        f: impl FnOnce(&ResponseView<'_>) -> R,
    ) -> Poll<Result<R, HttpStreamError>> {
        let Some(response) = &mut self.response else {
            return Poll::Ready(Err(HttpStreamError::Protocol("response read twice")));
        };
        if let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
            let interim = interim?;
            let mut fields = Fields::new();
            copy_fields(interim.headers(), &mut fields)?;
            let view = ResponseView {
                status: interim.status().as_u16(),
                fields: &fields,
                forwarded: None,
                body: BodyLength::Known(0),
            };
            return Poll::Ready(Ok(f(&view)));
        }
        let (head, recv) = ready!(std::pin::Pin::new(response).poll(cx))?.into_parts();
        self.response = None;
        let length = head.headers.get(http::header::CONTENT_LENGTH);
        let length = length.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
        let body = match length {
            Some(n) => BodyLength::Known(n),
            // With HEAD, the end of the stream does not tell the length of a GET response (RFC 9110
            // §8.6).
            None if recv.is_end_stream() && !self.head_request => BodyLength::Known(0),
            None => BodyLength::Unknown,
        };
        let mut fields = Fields::new();
        copy_fields(&head.headers, &mut fields)?;
        let shown = f(&ResponseView { status: head.status.as_u16(), fields: &fields, forwarded: None, body });
        self.stream.recv = Some(recv);
        Poll::Ready(Ok(shown))
    }
}

/// Copies the fields of a header map in order, in the codecs' form.
fn copy_fields<'a>(map: &'a HeaderMap, fields: &mut Fields<'a>) -> Result<(), HttpStreamError> {
    for (name, value) in map {
        fields
            .try_push(Field { name: name.as_str(), value: value.as_bytes() })
            .map_err(|_| crate::head::HeadFault::TooManyFields)?;
    }
    Ok(())
}
