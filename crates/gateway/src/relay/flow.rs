//! Flow: one direction of an exchange.
//!
//! Owns: moving bytes from a source to a sink, and to the copies for mirrors. Does not own: time
//! limits, the other direction, which trailers pass.

use std::task::{Context, Poll, ready};

use http::HeaderMap;
use http_engine::http_stream::{Fill, HttpStream, HttpStreamError};

use crate::mirror_body::BodyCopies;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowState {
    #[default]
    Copy,
    Flush,
    Done,
    /// The sink is closed; the source is not read any more.
    Broken,
}

/// The side that a flow waits for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    #[default]
    Source,
    Sink,
}

/// One direction of an exchange.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) state: FlowState,
    pub(super) blocked: Blocked,
    pub(super) bytes: u64,
}

/// Filters trailers; `None` when none passes.
fn passing_trailers(mut trailers: HeaderMap, passes: &dyn Fn(&str) -> bool) -> Option<Box<HeaderMap>> {
    let refused: Vec<_> = trailers.keys().filter(|name| !passes(name.as_str())).cloned().collect();
    for name in refused {
        trailers.remove(name);
    }
    (!trailers.is_empty()).then(|| Box::new(trailers))
}

/// Which side failed.
pub(super) enum PumpFault {
    Source(HttpStreamError),
    Sink(HttpStreamError),
}

impl Flow {
    /// Moves as many bytes as possible. Data that is ready gathers in the sink, and is flushed when
    /// the source has no more. So a small message takes one system call, and a slow stream is never
    /// held back. If a body exceeds `max` bytes, its last bytes never pass, so the sink never has a
    /// complete body. `copies` get what the sink has accepted, and delay nothing.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut impl HttpStream,
        (sink, copies): (&mut impl HttpStream, Option<&BodyCopies>),
        max: u64,
        passes: &dyn Fn(&str) -> bool,
    ) -> Poll<Result<(), PumpFault>> {
        loop {
            match self.state {
                FlowState::Copy => match source.poll_fill(cx) {
                    Poll::Pending => {
                        // A pending flush waits for the sink, in addition to the source.
                        let flushed = sink.poll_flush(cx).map_err(PumpFault::Sink)?;
                        self.blocked = if flushed.is_ready() { Blocked::Source } else { Blocked::Sink };
                        // The next byte may take an hour: an event stream, a tunnel.
                        source.release_buffers();
                        sink.release_buffers();
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(PumpFault::Source(e))),
                    Poll::Ready(Ok(Fill::Data(data))) => {
                        if self.bytes.saturating_add(data.len() as u64) > max {
                            return Poll::Ready(Err(PumpFault::Source(HttpStreamError::TooLarge)));
                        }
                        let Poll::Ready(n) = sink.poll_write(cx, data).map_err(PumpFault::Sink)? else {
                            self.blocked = Blocked::Sink;
                            return Poll::Pending;
                        };
                        if let Some(copies) = copies {
                            copies.push(&data[..n]);
                        }
                        source.consume(n);
                        self.bytes += n as u64;
                    }
                    Poll::Ready(Ok(Fill::End(trailers))) => {
                        let trailers = trailers.and_then(|trailers| passing_trailers(*trailers, passes));
                        if let Some(copies) = copies {
                            copies.finish(trailers.as_deref());
                        }
                        sink.finish(trailers).map_err(PumpFault::Sink)?;
                        self.state = FlowState::Flush;
                    }
                },
                FlowState::Flush => {
                    self.blocked = Blocked::Sink;
                    ready!(sink.poll_flush(cx)).map_err(PumpFault::Sink)?;
                    sink.release_buffers();
                    self.state = FlowState::Done;
                }
                FlowState::Done | FlowState::Broken => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;
    use http_engine::head::Framing;
    use http_engine::http1::connection::Connection;
    use http_engine::io::Stream;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn a_flow_that_waits_for_its_source_holds_no_buffer() {
        let (mut peer, io) = UnixStream::pair().unwrap();
        let mut source = Connection::new(Stream::Unix(io), &[]);
        source.begin_body(0, Framing::UntilClose);
        source.write_buffer().extend_from_slice(b"the request");
        let (_client, io) = UnixStream::pair().unwrap();
        let mut sink = Connection::new(Stream::Unix(io), &[]);
        sink.frame_body(Framing::Chunked);
        peer.write_all(b"event").await.unwrap();
        let mut flow = Flow::default();
        let mut cx = Context::from_waker(Waker::noop());
        poll_fn(|cx| source.poll_flush(cx)).await.unwrap();
        poll_fn(|cx| source.poll_fill(cx).map(drop)).await;
        poll_fn(|cx| sink.poll_flush(cx)).await.unwrap();
        assert!(flow.poll(&mut cx, &mut source, (&mut sink, None), u64::MAX, &|_| true).is_pending());
        assert_eq!((flow.bytes, source.holds_no_buffer(), sink.holds_no_buffer()), (5, true, true));
    }
}
