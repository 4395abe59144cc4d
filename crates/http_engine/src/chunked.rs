//! Chunked transfer coding (RFC 9112 §7.1), without I/O.
//!
//! Owns: finding the payload in the coding. Parsing is strict: sizes are hexadecimal digits with an
//! optional extension of limited length, and every line ends with CRLF. Only the sizes of a response
//! may be padded with blanks, as some servers do: nobody else reads a response, so it cannot be
//! framed in two ways. Trailer sections are limited in bytes and in number of fields. Does not own:
//! buffers, the meaning of trailers.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Maximum length of a chunk-size line in bytes, extension included.
const MAX_SIZE_LINE: usize = 256;
/// Maximum total length of extensions in one body, in bytes. Extensions carry no data, so a body
/// that consists of them is an attack.
const MAX_EXTENSIONS: usize = 8 * 1024;
/// Maximum length of a trailer section in bytes.
const MAX_TRAILER_BYTES: usize = 8 * 1024;
/// Maximum number of fields in a trailer section, with HTTP/2 too.
pub(crate) const MAX_TRAILERS: usize = 64;

/// Why a chunked body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkFault {
    /// A chunk size that is not 1 to 16 hexadecimal digits, or exceeds 2^63 - 1.
    #[error("malformed chunk size")]
    Size,
    /// Extensions that exceed a limit or contain control characters.
    #[error("malformed or too large chunk extension")]
    Extension,
    /// A line or chunk that does not end with CRLF.
    #[error("chunk not ended by CRLF")]
    LineEnd,
    /// A malformed trailer section, or one with too many bytes or fields. Too many fields occur
    /// with HTTP/2 as well.
    #[error("malformed or too large trailer section")]
    Trailers,
}

/// What the front of the buffer contains.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The first `consumed` bytes are processed; more data is needed.
    More {
        /// Number of bytes to remove from the front.
        consumed: usize,
    },
    /// `skip` bytes of coding are followed by `len` bytes of payload. The caller removes the `skip`
    /// bytes, uses payload, and reports the used length to [`Decoder::consumed`].
    Data {
        /// Number of coding bytes to remove from the front.
        skip: usize,
        /// Number of payload bytes that follow; at least 1.
        len: usize,
    },
    /// The body ends after `consumed` bytes.
    End {
        /// Number of bytes to remove from the front.
        consumed: usize,
        /// The trailer section, if there was one.
        trailers: Option<Box<HeaderMap>>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    Ended,
}

/// Decoder state between two calls.
#[derive(Debug, Clone)]
pub struct Decoder {
    state: State,
    extensions: usize,
    /// Whether blanks may follow a size.
    padding: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { state: State::Size, extensions: 0, padding: false }
    }
}

impl Decoder {
    /// A decoder for the body of a response.
    pub fn of_response() -> Self {
        Self { padding: true, ..Self::default() }
    }

    /// Decodes `buf`, which starts at the first byte not yet removed.
    pub fn decode(&mut self, buf: &[u8]) -> Result<Decoded, ChunkFault> {
        let mut at = 0;
        loop {
            match self.state {
                State::Size => match self.size_line(&buf[at..])? {
                    None => return Ok(Decoded::More { consumed: at }),
                    Some((0, line)) => {
                        at += line;
                        self.state = State::Trailers;
                    }
                    Some((size, line)) => {
                        at += line;
                        self.state = State::Data(size);
                    }
                },
                State::Data(left) => {
                    let here = buf.len() - at;
                    if here == 0 {
                        return Ok(Decoded::More { consumed: at });
                    }
                    let len = usize::try_from(left).unwrap_or(usize::MAX).min(here);
                    return Ok(Decoded::Data { skip: at, len });
                }
                State::DataEnd => match &buf[at..] {
                    [b'\r', b'\n', ..] => {
                        at += 2;
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Ok(Decoded::More { consumed: at }),
                    _ => return Err(ChunkFault::LineEnd),
                },
                State::Trailers => {
                    return match trailers(&buf[at..])? {
                        None => Ok(Decoded::More { consumed: at }),
                        Some((len, trailers)) => {
                            self.state = State::Ended;
                            Ok(Decoded::End { consumed: at + len, trailers })
                        }
                    };
                }
                State::Ended => return Ok(Decoded::End { consumed: at, trailers: None }),
            }
        }
    }

    /// Records that `n` bytes of payload were removed.
    pub fn consumed(&mut self, n: usize) {
        if let State::Data(left) = self.state {
            let left = left.saturating_sub(n as u64);
            self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
        }
    }

    /// The size from a complete size line, and the length of that line. `None`: the line is
    /// incomplete.
    fn size_line(&mut self, buf: &[u8]) -> Result<Option<(u64, usize)>, ChunkFault> {
        let window = &buf[..buf.len().min(MAX_SIZE_LINE)];
        let Some(end) = memchr::memchr(b'\n', window) else {
            let (digits, behind) = self.size_and_padding(window);
            if window.len() == MAX_SIZE_LINE {
                return Err(ChunkFault::Extension);
            }
            // Refuses invalid bytes at once, without waiting for the end of the line.
            return if digits > 16 || !matches!(window.get(behind), None | Some(b';' | b'\r')) {
                Err(ChunkFault::Size)
            } else {
                Ok(None)
            };
        };
        if end == 0 || window[end - 1] != b'\r' {
            return Err(ChunkFault::LineEnd);
        }
        let line = &window[..end - 1];
        let (digits, behind) = self.size_and_padding(line);
        if digits == 0 || digits > 16 {
            return Err(ChunkFault::Size);
        }
        match line.get(behind) {
            None => {}
            Some(b';') => {
                self.extensions += line.len() - behind;
                if self.extensions > MAX_EXTENSIONS
                    || line[behind..].iter().any(|b| *b < b' ' && *b != b'\t' || *b == 0x7f)
                {
                    return Err(ChunkFault::Extension);
                }
            }
            Some(_) => return Err(ChunkFault::Size),
        }
        let size = line[..digits].iter().fold(0u64, |n, d| n << 4 | u64::from(hex(*d)));
        if size > i64::MAX as u64 { Err(ChunkFault::Size) } else { Ok(Some((size, end + 1))) }
    }

    /// Number of digits at the front of a size line, and of bytes up to the end of the padding.
    fn size_and_padding(&self, line: &[u8]) -> (usize, usize) {
        let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let blanks = line[digits..].iter().take_while(|b| self.padding && matches!(b, b' ' | b'\t'));
        (digits, digits + blanks.count())
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// Length of a trailer section with its final empty line, and its fields if there are any.
type ParsedTrailers = (usize, Option<Box<HeaderMap>>);

/// Parses the trailer section at the front. `None`: it is incomplete.
fn trailers(buf: &[u8]) -> Result<Option<ParsedTrailers>, ChunkFault> {
    match buf {
        [b'\r', b'\n', ..] => return Ok(Some((2, None))),
        [] | [b'\r'] => return Ok(None),
        _ => {}
    }
    let mut line = 0;
    loop {
        let Some(offset) = memchr::memchr(b'\n', &buf[line..]) else {
            return if buf.len() > MAX_TRAILER_BYTES { Err(ChunkFault::Trailers) } else { Ok(None) };
        };
        let end = line + offset;
        if end == line || buf[end - 1] != b'\r' {
            return Err(ChunkFault::LineEnd);
        }
        if end > MAX_TRAILER_BYTES {
            return Err(ChunkFault::Trailers);
        }
        if end - 1 == line {
            return parse_trailers(&buf[..=end]).map(|t| Some((end + 1, t)));
        }
        line = end + 1;
    }
}

fn parse_trailers(section: &[u8]) -> Result<Option<Box<HeaderMap>>, ChunkFault> {
    let mut lines = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(section, &mut lines) else {
        return Err(ChunkFault::Trailers);
    };
    let mut map = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| ChunkFault::Trailers)?;
        let value =
            HeaderValue::from_bytes(super::head::trim(line.value)).map_err(|_| ChunkFault::Trailers)?;
        map.append(name, value);
    }
    Ok(Some(Box::new(map)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `coded`, delivered in pieces of `step` bytes.
    fn decode_in_steps(coded: &[u8], step: usize) -> Result<DecodedBody, ChunkFault> {
        decode_with(Decoder::default(), coded, step)
    }

    /// Payload, trailers, and length of the coding.
    type DecodedBody = (Vec<u8>, Option<HeaderMap>, usize);

    fn decode_with(mut decoder: Decoder, coded: &[u8], step: usize) -> Result<DecodedBody, ChunkFault> {
        let (mut body, mut start, mut end) = (Vec::new(), 0, 0);
        loop {
            match decoder.decode(&coded[start..end])? {
                Decoded::More { consumed } => {
                    start += consumed;
                    assert!(end < coded.len(), "decoder wants more than there is");
                    end = (end + step).min(coded.len());
                }
                Decoded::Data { skip, len } => {
                    body.extend_from_slice(&coded[start + skip..start + skip + len]);
                    decoder.consumed(len);
                    start += skip + len;
                }
                Decoded::End { consumed, trailers } => {
                    return Ok((body, trailers.map(|t| *t), start + consumed));
                }
            }
        }
    }

    #[test]
    fn payload_is_the_same_however_the_bytes_arrive() {
        let coded = b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nX-Sum: 1\r\nX-Two: b\r\n\r\nnext";
        for step in 1..coded.len() {
            let (body, trailers, used) = decode_in_steps(coded, step).unwrap();
            assert_eq!(body, b"hello world");
            assert_eq!(trailers.unwrap()["x-sum"], "1");
            assert_eq!(used, coded.len() - 4);
        }
    }

    #[test]
    fn sizes_of_a_response_may_be_padded() {
        for coded in ["5   \r\nhello\r\n0 \r\n\r\n", "5\t;ext\r\nhello\r\n0\r\n\r\n"] {
            for step in 1..coded.len() {
                let decoder = Decoder::of_response();
                let (body, _, used) = decode_with(decoder, coded.as_bytes(), step).unwrap();
                assert_eq!((body.as_slice(), used), (&b"hello"[..], coded.len()), "{coded:?}");
                assert_eq!(decode_in_steps(coded.as_bytes(), step).unwrap_err(), ChunkFault::Size);
            }
        }
        for coded in [" 5\r\nhello\r\n", "5 5\r\nhello\r\n", "5\x0b\r\nhello\r\n", " \r\n"] {
            let decoded = decode_with(Decoder::of_response(), coded.as_bytes(), 1);
            assert_eq!(decoded.unwrap_err(), ChunkFault::Size, "{coded:?}");
        }
        let long = format!("5{}", " ".repeat(MAX_SIZE_LINE));
        let decoded = decode_with(Decoder::of_response(), long.as_bytes(), 1);
        assert_eq!(decoded.unwrap_err(), ChunkFault::Extension);
    }

    #[test]
    fn malformed_coding_is_refused() {
        let cases: [(&[u8], ChunkFault); 17] = [
            (b"\r\n", ChunkFault::Size),
            (b"x\r\n", ChunkFault::Size),
            (b"0x5\r\nhello\r\n", ChunkFault::Size),
            (b"+5\r\nhello\r\n", ChunkFault::Size),
            (b" 5\r\nhello\r\n", ChunkFault::Size),
            (b"5 \r\nhello\r\n", ChunkFault::Size),
            (b"5\nhello\r\n", ChunkFault::LineEnd),
            (b"5\r\nhelloX\r\n", ChunkFault::LineEnd),
            (b"5\r\nhello\n0\r\n\r\n", ChunkFault::LineEnd),
            (b"5\r\nhello\r0\r\n\r\n", ChunkFault::LineEnd),
            (b"8000000000000000\r\n", ChunkFault::Size),
            (b"00000000000000005\r\nhello", ChunkFault::Size),
            (b"5;a=\x01\r\nhello", ChunkFault::Extension),
            (b"0\r\nA b: c\r\n\r\n", ChunkFault::Trailers),
            (b"0\r\nA: b\n\r\n", ChunkFault::LineEnd),
            (b"0\r\n fold: b\r\n\r\n", ChunkFault::Trailers),
            (b"5\r;\nhello", ChunkFault::LineEnd),
        ];
        for (coded, expected) in cases {
            assert_eq!(
                decode_in_steps(coded, coded.len()).unwrap_err(),
                expected,
                "{}",
                coded.escape_ascii()
            );
        }
    }

    #[test]
    fn extensions_and_trailers_are_bounded() {
        let long = format!("1;{}\r\na\r\n", "e".repeat(MAX_SIZE_LINE));
        assert_eq!(decode_in_steps(long.as_bytes(), long.len()), Err(ChunkFault::Extension));
        let many = format!("1;{}\r\na\r\n", "e".repeat(200)).repeat(60);
        assert_eq!(decode_in_steps(many.as_bytes(), many.len()), Err(ChunkFault::Extension));
        let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(MAX_TRAILERS + 1));
        assert_eq!(decode_in_steps(trailers.as_bytes(), trailers.len()), Err(ChunkFault::Trailers));
        let large = format!("0\r\na: {}\r\n\r\n", "b".repeat(MAX_TRAILER_BYTES));
        assert_eq!(decode_in_steps(large.as_bytes(), large.len()), Err(ChunkFault::Trailers));
    }
}
