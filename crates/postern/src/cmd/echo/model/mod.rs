//! Mock model server: answers as long streams of events, as a server of language models does.
//!
//! One listener serves HTTP/1.1 and HTTP/2 with prior knowledge (RFC 9113 section 3.3).
//!
//! Owns: which protocol a connection has, and which requests are answered with a stream. The
//! parameters are in `parameters`, the two protocols in `http1` and `http2`.

mod http1;
mod http2;
mod parameters;

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use self::parameters::StreamShape;

/// Help text of the streaming paths.
pub(super) const HELP: &str = "\
With --stream, a path that ends with /stream is answered with a stream of events:
  /stream?first=D&every=D&events=N&size=BYTES
        first event after D, further ones every D, N events of BYTES bytes;
        server-sent events, or gRPC messages if the request is gRPC over HTTP/2
  Upgrade: websocket   sends back what it receives, on any path;
        with ?push=D&size=BYTES it also sends a message every D
Everything else is answered with a short text.";

/// First bytes of an HTTP/2 connection (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Text of a response that is no stream.
const TEXT: &str = "ok\n";

/// Serves one connection until it ends.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    let mut ahead = Vec::with_capacity(PREFACE.len());
    while ahead.len() < PREFACE.len() && PREFACE.starts_with(&ahead) {
        if stream.read_buf(&mut ahead).await? == 0 {
            return Ok(());
        }
    }
    if ahead.starts_with(PREFACE) {
        let (reader, writer) = tokio::io::split(stream);
        let io = tokio::io::join(io::Cursor::new(ahead).chain(reader), writer);
        return http2::connection(io).await.map_err(io::Error::other);
    }
    http1::connection(stream, ahead).await
}

/// Whether requests for this path are answered with a stream.
fn is_stream(path: &str) -> bool {
    path.ends_with("/stream")
}

/// Content of one event: its number and a filler, `size` bytes in total, or more if the number is
/// longer.
fn event_content(number: u64, size: usize) -> String {
    let mut text = number.to_string();
    text.push(' ');
    while text.len() < size {
        text.push('x');
    }
    text
}

/// Waits until event `number` (from 1) is due. Events are due at fixed times, so a slow write does
/// not move later ones.
async fn wait_for_event(begun: tokio::time::Instant, shape: &StreamShape, number: u64) {
    let since = shape.every.saturating_mul(u32::try_from(number - 1).unwrap_or(u32::MAX));
    tokio::time::sleep_until(begun + shape.first + since).await;
}

#[cfg(test)]
mod tests {
    use super::event_content;

    #[test]
    fn events_have_their_size() {
        assert_eq!(event_content(7, 8), "7 xxxxxx");
        assert_eq!(event_content(123, 2), "123 ");
    }
}
