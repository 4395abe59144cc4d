//! WebSocket frames of a client (RFC 6455 section 5): written masked, read unmasked.
//!
//! Owns: framing, and the key of the handshake. Does not own: the connection.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::load::Random;

/// Largest message that is read, in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Appended to the key of a handshake for the server's proof (RFC 6455 section 1.3).
const PROOF: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Makes a key for handshakes.
pub(crate) fn key(random: &mut Random) -> String {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random.next_u64().to_ne_bytes());
    bytes[8..].copy_from_slice(&random.next_u64().to_ne_bytes());
    STANDARD.encode(bytes)
}

/// Value of `Sec-WebSocket-Accept` for a key (RFC 6455 section 4.2.2).
pub(crate) fn accept(key: &str) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(PROOF);
    STANDARD.encode(hash.finish())
}

/// What a server sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A whole message of text or bytes.
    Message(Vec<u8>),
    /// A question whether the client is there; it is answered with this content.
    Ping(Vec<u8>),
    /// The end, with its code if there is one.
    Close(Option<u16>),
}

/// Reads the frames of a server.
#[derive(Default)]
pub(super) struct FrameReader {
    buffer: Vec<u8>,
    /// Content of the message whose frames are not all there.
    message: Option<Vec<u8>>,
}

impl FrameReader {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Next message or control frame; `None` if it is not complete.
    ///
    /// # Errors
    /// What is wrong with a frame.
    pub(super) fn next(&mut self) -> Result<Option<Received>, &'static str> {
        loop {
            let Some((first, payload)) = self.frame()? else { return Ok(None) };
            let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
            match opcode {
                PING => return Ok(Some(Received::Ping(payload))),
                PONG => {}
                CLOSE => {
                    let code = payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
                    return Ok(Some(Received::Close(code)));
                }
                TEXT | BINARY if self.message.is_some() => {
                    return Err("a WebSocket message begins inside another");
                }
                TEXT | BINARY if last => return Ok(Some(Received::Message(payload))),
                TEXT | BINARY => self.message = Some(payload),
                CONTINUATION => {
                    let mut message =
                        self.message.take().ok_or("a WebSocket message continues without a beginning")?;
                    message.extend_from_slice(&payload);
                    if message.len() > MAX_MESSAGE {
                        return Err("a WebSocket message is longer than 1 MiB");
                    }
                    if last {
                        return Ok(Some(Received::Message(message)));
                    }
                    self.message = Some(message);
                }
                _ => return Err("a WebSocket frame has an unknown opcode"),
            }
        }
    }

    /// First byte and payload of the next frame, if it is complete.
    fn frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, &'static str> {
        let [first, second, rest @ ..] = &self.buffer[..] else { return Ok(None) };
        let first = *first;
        if first & 0x70 != 0 {
            return Err("a WebSocket frame has reserved bits");
        }
        if second & 0x80 != 0 {
            return Err("a WebSocket frame of the server is masked");
        }
        let wide = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(extended) = rest.get(..wide) else { return Ok(None) };
        let size = match wide {
            0 => u64::from(second & 0x7f),
            _ => extended.iter().fold(0, |size, byte| size << 8 | u64::from(*byte)),
        };
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_MESSAGE);
        let size = size.ok_or("a WebSocket frame is longer than 1 MiB")?;
        let Some(payload) = rest.get(wide..wide + size) else { return Ok(None) };
        let payload = payload.to_vec();
        self.buffer.drain(..2 + wide + size);
        Ok(Some((first, payload)))
    }
}

/// Appends a text message.
pub(super) fn write_text(out: &mut Vec<u8>, content: &[u8], random: &mut Random) {
    write(out, TEXT, content, random);
}

/// Appends the answer to a ping.
pub(super) fn write_pong(out: &mut Vec<u8>, content: &[u8], random: &mut Random) {
    write(out, PONG, content, random);
}

/// Appends a close with code 1000: the purpose is fulfilled.
pub(super) fn write_close(out: &mut Vec<u8>, random: &mut Random) {
    write(out, CLOSE, &1000_u16.to_be_bytes(), random);
}

fn write(out: &mut Vec<u8>, opcode: u8, content: &[u8], random: &mut Random) {
    out.push(0x80 | opcode);
    match (u8::try_from(content.len()), u16::try_from(content.len())) {
        (Ok(size @ ..126), _) => out.push(0x80 | size),
        (_, Ok(size)) => {
            out.push(0xfe);
            out.extend_from_slice(&size.to_be_bytes());
        }
        _ => {
            out.push(0xff);
            out.extend_from_slice(&(content.len() as u64).to_be_bytes());
        }
    }
    let [a, b, c, d, ..] = random.next_u64().to_ne_bytes();
    let mask = [a, b, c, d];
    out.extend_from_slice(&mask);
    out.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_the_example_of_the_rfc() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let mut random = Random::new(1);
        assert_ne!(key(&mut random), key(&mut random));
        assert_eq!(STANDARD.decode(key(&mut random)).unwrap().len(), 16);
    }

    #[test]
    fn frames_are_read_in_any_portions() {
        // "Hel" and "lo" in two frames with a ping between them, then "Hello", then a close.
        let bytes = b"\x01\x03Hel\x89\x01?\x80\x02lo\x81\x05Hello\x88\x02\x03\xe9";
        for portion in 1..=bytes.len() {
            let mut reader = FrameReader::default();
            let mut seen = Vec::new();
            for part in bytes.chunks(portion) {
                reader.push(part);
                while let Some(received) = reader.next().unwrap() {
                    seen.push(received);
                }
            }
            let hello = || Received::Message(b"Hello".to_vec());
            let wanted = [Received::Ping(b"?".to_vec()), hello(), hello(), Received::Close(Some(1001))];
            assert_eq!(seen, wanted, "in portions of {portion}");
        }
    }

    #[test]
    fn broken_frames_are_named() {
        for (bytes, words) in [
            (&b"\x81\x85\0\0\0\0"[..], "masked"),
            (b"\xc1\x00", "reserved"),
            (b"\x83\x00", "unknown"),
            (b"\x80\x00", "without a beginning"),
            (b"\x01\x00\x81\x00", "inside another"),
            (b"\x82\x7f\0\0\0\0\xff\0\0\0", "longer"),
        ] {
            let mut reader = FrameReader::default();
            reader.push(bytes);
            let error = reader.next().unwrap_err();
            assert!(error.contains(words), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_masked() {
        let mut out = Vec::new();
        write_text(&mut out, b"Hello", &mut Random::new(3));
        assert_eq!(out[..2], [0x81, 0x85]);
        let unmasked: Vec<u8> = out[6..].iter().zip(out[2..6].iter().cycle()).map(|(a, b)| a ^ b).collect();
        assert_eq!(unmasked, b"Hello");
        for (size, head) in [(125, 6), (126, 8), (65_535, 8), (65_536, 14)] {
            let mut out = Vec::new();
            write_text(&mut out, &vec![0; size], &mut Random::new(3));
            assert_eq!(out.len(), size + head);
        }
    }
}
