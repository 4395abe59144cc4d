//! Requests as the echo server reads them, without I/O.
//!
//! Owns: the position in a body, and the fields in the form that reflection reports. Does not own:
//! the grammar, which is the gateway's ([`http_engine::head`], [`http_engine::chunked`]): whatever
//! it would not forward is an error here too, never a guess.

use http_engine::chunked::{ChunkFault, Decoded, Decoder};
use http_engine::head::{Fields, Framing, HeadFault, RequestHead, Version, head_length, parse_request};

/// A parsed request head.
#[derive(Debug, Clone)]
pub(super) struct Head {
    /// Bytes of the head in the buffer, empty line included.
    pub(super) length: usize,
    /// The body that follows.
    pub(super) body: Body,
    /// Whether the connection ends after the response.
    pub(super) close: bool,
    /// Whether the client waits for `100 Continue` (RFC 9110 section 10.1.1).
    pub(super) expects: bool,
    /// Whether the response has no body because the method is HEAD.
    pub(super) bodiless: bool,
}

/// Request line and fields as received, for reflection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestLines {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: &'static str,
    pub(super) fields: Vec<(String, Vec<u8>)>,
}

impl RequestLines {
    /// Value of the first field with this name, in any case.
    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// Path of the target, without the query.
    pub(super) fn path(&self) -> &str {
        self.target.split_once('?').map_or(&*self.target, |(path, _)| path)
    }

    /// The first value of a query parameter, without decoding.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, v)| v)
    }
}

/// Why a request is refused; the connection ends after the 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseError {
    /// The head.
    #[error("{0}")]
    Head(#[from] HeadFault),
    /// A chunk of the body, or the trailer section.
    #[error("{0}")]
    Chunk(#[from] ChunkFault),
}

/// Reads a head from the start of `bytes`; `None`: it is incomplete.
pub(super) fn head(bytes: &[u8]) -> Result<Option<Head>, ParseError> {
    let Some(length) = head_length(bytes)? else { return Ok(None) };
    let mut fields = Fields::new();
    let request = parse_request(&bytes[..length], length, &mut fields)?;
    Ok(Some(Head::of(&request, length)))
}

/// Parses a head together with its lines.
pub(super) fn head_with_lines(bytes: &[u8]) -> Result<Option<(Head, RequestLines)>, ParseError> {
    let Some(length) = head_length(bytes)? else { return Ok(None) };
    let mut fields = Fields::new();
    let request = parse_request(&bytes[..length], length, &mut fields)?;
    let lines = RequestLines {
        method: request.method.into(),
        target: String::from_utf8_lossy(request.target).into(),
        version: if request.version == Version::Http10 { "HTTP/1.0" } else { "HTTP/1.1" },
        fields: fields.iter().map(|field| (field.name.into(), field.value.into())).collect(),
    };
    Ok(Some((Head::of(&request, length), lines)))
}

impl Head {
    fn of(request: &RequestHead<'_>, length: usize) -> Self {
        let body = match request.framing {
            Framing::Length(left) => Body::Sized(left),
            Framing::Chunked => Body::Chunked(Decoder::default()),
            // Responses only.
            Framing::UntilClose => Body::Sized(0),
        };
        Self {
            length,
            body,
            close: !request.connection.persists(request.version),
            expects: request.connection.expect_continue,
            bodiless: request.method == "HEAD",
        }
    }
}

/// Whether a comma-separated list contains the option.
pub(super) fn has_option(list: &[u8], option: &[u8]) -> bool {
    list.split(|b| *b == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(option))
}

/// State of a body that is being read.
#[derive(Debug, Clone)]
pub(super) enum Body {
    /// This number of bytes is left.
    Sized(u64),
    /// Within the chunked transfer coding (RFC 9112 section 7.1).
    Chunked(Decoder),
    /// Read to its end, with the trailer fields of the chunked coding.
    Ended(Vec<(String, Vec<u8>)>),
}

impl Body {
    /// Whether the body was read to its end.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Sized(0) | Self::Ended(_))
    }

    /// Reads the part of the body at the front of `bytes`, passes its content to `sink`, and
    /// returns how many bytes it used.
    pub(super) fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> Result<usize, ParseError> {
        let mut used = 0;
        loop {
            match self {
                Self::Ended(_) => return Ok(used),
                Self::Sized(left) => {
                    let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    sink(&bytes[..n]);
                    *left -= n as u64;
                    return Ok(n);
                }
                Self::Chunked(decoder) => match decoder.decode(&bytes[used..])? {
                    Decoded::More { consumed } => return Ok(used + consumed),
                    Decoded::Data { skip, len } => {
                        sink(&bytes[used + skip..used + skip + len]);
                        decoder.consumed(len);
                        used += skip + len;
                    }
                    Decoded::End { consumed, trailers } => {
                        used += consumed;
                        let trailers = trailers.into_iter().flat_map(|map| {
                            let fields: Vec<_> = map
                                .iter()
                                .map(|(n, v)| (n.as_str().to_owned(), v.as_bytes().to_vec()))
                                .collect();
                            fields
                        });
                        *self = Self::Ended(trailers.collect());
                    }
                },
            }
        }
    }

    /// Trailer fields, with names in lower case; none before the end.
    pub(super) fn trailers(&self) -> &[(String, Vec<u8>)] {
        match self {
            Self::Ended(trailers) => trailers,
            Self::Sized(_) | Self::Chunked(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content and trailer fields of a chunked body that arrives in pieces of `step` bytes.
    fn body(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Body), ParseError> {
        let mut body = Body::Chunked(Decoder::default());
        let (mut content, mut held) = (Vec::new(), Vec::new());
        for part in bytes.chunks(step) {
            held.extend_from_slice(part);
            let used = body.take(&held, |b| content.extend_from_slice(b))?;
            held.drain(..used);
        }
        assert!(held.is_empty() || !body.is_done());
        Ok((content, body))
    }

    #[test]
    fn chunks_are_read_in_any_portion() {
        let bytes = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n";
        for step in 1..=bytes.len() {
            let (content, body) = body(bytes, step).unwrap();
            assert_eq!(content, b"hello world", "{step}");
            assert!(body.is_done(), "{step}");
            assert_eq!(body.trailers(), [("x-sum".to_owned(), b"1".to_vec())]);
        }
        assert!(matches!(body(b"5\nhello", 7), Err(ParseError::Chunk(ChunkFault::LineEnd))));
    }

    #[test]
    fn heads_tell_how_the_body_is_framed() {
        let read = |fields: &str| head(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
        assert!(matches!(read("Content-Length: 3\r\n"), Ok(Some(Head { body: Body::Sized(3), .. }))));
        assert!(matches!(read(""), Ok(Some(Head { body: Body::Sized(0), .. }))));
        let chunked = read("Transfer-Encoding: chunked\r\n");
        assert!(matches!(chunked, Ok(Some(Head { body: Body::Chunked(_), .. }))));
        let both = read("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n");
        assert!(matches!(both, Err(ParseError::Head(HeadFault::BothLengths))));
    }

    #[test]
    fn heads_tell_whether_the_connection_stays() {
        let close = |text: &str| head(text.as_bytes()).unwrap().unwrap().close;
        assert!(!close("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(close("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n"));
        assert!(close("GET / HTTP/1.0\r\n\r\n"));
        assert!(!close("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert!(matches!(head(b"GET / HTTP/1.1\r\nHost: x\r\n"), Ok(None)));
        assert!(matches!(head(b"GET / HTTP/9\r\n\r\n"), Err(ParseError::Head(HeadFault::Version))));
    }
}
