//! Minimal WebSocket server (RFC 6455): sends each received frame back, and messages of its own at
//! a rate.

use std::io;
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Interval, MissedTickBehavior};

use super::response::plain;

/// Size limit of a frame, in bytes.
const FRAME: u64 = 16 << 20;

const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// First byte of a text message in one frame.
const TEXT: u8 = 0x81;

/// Messages that the server sends by itself.
pub(super) struct Push {
    /// Time between two messages.
    pub(super) every: Duration,
    /// Content of a message.
    pub(super) content: Vec<u8>,
}

/// Answers a handshake with this key, then sends every frame back until the client closes. `early`
/// arrived together with the handshake.
pub(super) async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    early: Vec<u8>,
    key: Option<&[u8]>,
    push: Option<Push>,
) -> io::Result<()> {
    let Some(key) = key else {
        plain(&mut stream, "400 Bad Request", "text/plain", b"Sec-WebSocket-Key is missing\n", false).await?;
        return stream.shutdown().await;
    };
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        accept(key)
    );
    stream.write_all(head.as_bytes()).await?;
    echo(stream, early, push).await
}

/// Computes `Sec-WebSocket-Accept` for a key (RFC 6455 section 4.2.2).
fn accept(key: &[u8]) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64::engine::general_purpose::STANDARD.encode(hash.finish())
}

/// A received frame.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    /// First byte: FIN, reserved bits and opcode.
    first: u8,
    payload: Vec<u8>,
    /// Bytes of the whole frame in the buffer.
    length: usize,
}

/// Parses a frame (RFC 6455 section 5.2) at the front of `bytes`. Frames of clients must be masked.
fn frame(bytes: &[u8]) -> Result<Option<Frame>, &'static str> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if second & 0x80 == 0 {
        return Err("the frame is not masked");
    }
    let wide = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if rest.len() < wide + 4 {
        return Ok(None);
    }
    let (size, rest) = rest.split_at(wide);
    let size = match wide {
        0 => u64::from(second & 0x7f),
        _ => size.iter().fold(0, |n, b| n << 8 | u64::from(*b)),
    };
    if size > FRAME {
        return Err("the frame is too large");
    }
    let (mask, rest) = rest.split_at(4);
    let size = usize::try_from(size).map_err(|_| "the frame is too large")?;
    let Some(payload) = rest.get(..size) else { return Ok(None) };
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m).collect();
    Ok(Some(Frame { first: *first, payload, length: 2 + wide + 4 + size }))
}

fn write(out: &mut Vec<u8>, first: u8, payload: &[u8]) {
    out.push(first);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(size @ ..126), _) => out.push(size),
        (_, Ok(size)) => {
            out.push(126);
            out.extend_from_slice(&size.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    early: Vec<u8>,
    push: Option<Push>,
) -> io::Result<()> {
    let mut ticks = push.as_ref().map(|push| {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + push.every, push.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    });
    let content = push.map(|push| push.content).unwrap_or_default();
    let mut bytes = early;
    let mut out = Vec::new();
    loop {
        let mut used = 0;
        let mut end = false;
        while !end {
            match frame(&bytes[used..]) {
                Ok(Some(frame)) => {
                    used += frame.length;
                    match frame.first & 0x0f {
                        PONG => {}
                        PING => write(&mut out, 0x80 | PONG, &frame.payload),
                        opcode => {
                            end = opcode == CLOSE;
                            write(&mut out, frame.first, &frame.payload);
                        }
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    // Close code 1002: protocol error.
                    write(&mut out, 0x80 | CLOSE, &1002u16.to_be_bytes());
                    end = true;
                }
            }
        }
        stream.write_all(&out).await?;
        out.clear();
        bytes.drain(..used);
        if end {
            return stream.shutdown().await;
        }
        tokio::select! {
            received = stream.read_buf(&mut bytes) => if received? == 0 {
                return Ok(());
            },
            () = tick(ticks.as_mut()) => write(&mut out, TEXT, &content),
        }
    }
}

/// Waits for the next tick; forever without any.
async fn tick(ticks: Option<&mut Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_is_the_example_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn frames_are_read_whole_or_not_at_all() {
        // RFC 6455 section 5.7: a masked "Hello".
        let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        for end in 0..hello.len() {
            assert_eq!(frame(&hello[..end]), Ok(None), "{end}");
        }
        let frame = frame(&hello).unwrap().unwrap();
        assert_eq!((frame.first, &frame.payload[..], frame.length), (0x81, &b"Hello"[..], 11));
        assert!(super::frame(&[0x81, 0x05]).is_err());
        assert!(super::frame(&[0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]).is_err());
    }

    #[test]
    fn lengths_are_written_in_the_shortest_form() {
        for (size, head) in [(125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            let mut out = Vec::new();
            write(&mut out, 0x82, &vec![0; size]);
            assert_eq!(out.len(), size + head);
        }
    }
}
