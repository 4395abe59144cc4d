//! HTTP/1 request parser (RFC 9112) without I/O: heads, and bodies in either framing.
//!
//! It is strict, because leniency would hide what a gateway sent. A request with two framings, an
//! invalid length or an invalid chunk is an error.

/// Largest number of fields in a head.
const FIELDS: usize = 256;

/// A parsed request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the head in the buffer, including the empty line.
    pub(super) length: usize,
    /// Framing of the body that follows.
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
pub(super) struct Lines {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: &'static str,
    pub(super) fields: Vec<(String, Vec<u8>)>,
}

impl Lines {
    /// Value of the first field with this name, in any case.
    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// Path of the target, without the query.
    pub(super) fn path(&self) -> &str {
        self.target.split_once('?').map_or(&*self.target, |(path, _)| path)
    }

    /// First value of a query parameter, not decoded.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, v)| v)
    }
}

/// What is wrong with a request. The connection ends after the 400 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Bad {
    #[error("the head is not HTTP/1")]
    Head,
    #[error("the head has more than {FIELDS} fields")]
    Fields,
    #[error("the body has two framings, or a length that is no number")]
    Framing,
    #[error("a chunk is not framed as one")]
    Chunk,
}

/// Parses a head at the start of `bytes`. `None`: the head is not complete.
pub(super) fn head(bytes: &[u8]) -> Result<Option<Head>, Bad> {
    parse(bytes, measure)
}

/// Parses a head together with its lines.
pub(super) fn head_with_lines(bytes: &[u8]) -> Result<Option<(Head, Lines)>, Bad> {
    parse(bytes, |request, length| {
        let lines = Lines {
            method: request.method.unwrap_or("").into(),
            target: request.path.unwrap_or("").into(),
            version: if request.version == Some(0) { "HTTP/1.0" } else { "HTTP/1.1" },
            fields: request.headers.iter().map(|h| (h.name.into(), h.value.into())).collect(),
        };
        Ok((measure(request, length)?, lines))
    })
}

fn parse<T>(
    bytes: &[u8],
    read: impl FnOnce(&httparse::Request<'_, '_>, usize) -> Result<T, Bad>,
) -> Result<Option<T>, Bad> {
    let mut fields = [const { std::mem::MaybeUninit::uninit() }; FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(length)) => read(&request, length).map(Some),
        Err(httparse::Error::TooManyHeaders) => Err(Bad::Fields),
        Err(_) => Err(Bad::Head),
    }
}

fn measure(request: &httparse::Request<'_, '_>, length: usize) -> Result<Head, Bad> {
    let old = request.version == Some(0);
    let (mut size, mut chunked, mut close, mut expects) = (None, false, old, false);
    for field in &*request.headers {
        // No relevant name has another length, so most fields cost one comparison.
        match field.name.len() {
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                let value =
                    std::str::from_utf8(field.value).ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
                let value = value.and_then(|v| v.parse::<u64>().ok()).ok_or(Bad::Framing)?;
                if size.replace(value).is_some_and(|other| other != value) {
                    return Err(Bad::Framing);
                }
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                if chunked || old || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Bad::Framing);
                }
                chunked = true;
            }
            10 if field.name.eq_ignore_ascii_case("connection") => {
                close |= has_option(field.value, b"close");
                close &= !(old && has_option(field.value, b"keep-alive"));
            }
            6 if field.name.eq_ignore_ascii_case("expect") => {
                expects = field.value.eq_ignore_ascii_case(b"100-continue");
            }
            _ => {}
        }
    }
    let body = match (size, chunked) {
        (Some(_), true) => return Err(Bad::Framing),
        (None, true) => Body::Chunked(Chunk::default()),
        (Some(size), false) => Body::Sized(size),
        (None, false) => Body::Sized(0),
    };
    Ok(Head { length, body, close, expects, bodiless: request.method == Some("HEAD") })
}

/// Whether a comma-separated list contains the option, in any case.
pub(super) fn has_option(list: &[u8], option: &[u8]) -> bool {
    list.split(|b| *b == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(option))
}

/// State of a body that is being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// A body with this many bytes left to read.
    Sized(u64),
    /// A chunked body (RFC 9112 section 7.1).
    Chunked(Chunk),
}

/// Reader state of a chunked body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chunk {
    state: ChunkState,
    /// The line being read: a chunk size, or a trailer field.
    line: Vec<u8>,
    /// Trailer fields read so far.
    pub(super) trailers: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChunkState {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    Done,
}

/// Length limit, in bytes, of a chunk-size or trailer line.
const LINE: usize = 8 * 1024;
/// Largest number of trailer fields.
const TRAILERS: usize = 100;

impl Body {
    /// Whether the whole body was read.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Sized(left) => *left == 0,
            Self::Chunked(chunk) => chunk.state == ChunkState::Done,
        }
    }

    /// Consumes the body's bytes at the front of `bytes` and passes the content to `sink`. Returns
    /// the number of bytes consumed: all of them, unless the body ended.
    ///
    /// # Errors
    ///
    /// Returns a framing error of a chunked body.
    pub(super) fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> Result<usize, Bad> {
        match self {
            Self::Sized(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                sink(&bytes[..n]);
                *left -= n as u64;
                Ok(n)
            }
            Self::Chunked(chunk) => chunk.take(bytes, &mut sink),
        }
    }

    /// Trailer fields, once the body is complete.
    pub(super) fn trailers(&self) -> &[(String, Vec<u8>)] {
        match self {
            Self::Sized(_) => &[],
            Self::Chunked(chunk) => &chunk.trailers,
        }
    }
}

impl Chunk {
    fn take(&mut self, bytes: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, Bad> {
        let mut at = 0;
        while at < bytes.len() && self.state != ChunkState::Done {
            if let ChunkState::Data(left) = self.state {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                sink(&bytes[at..at + n]);
                at += n;
                let left = left - n as u64;
                self.state = if left == 0 { ChunkState::DataEnd } else { ChunkState::Data(left) };
                continue;
            }
            let byte = bytes[at];
            at += 1;
            if byte != b'\n' {
                self.line.push(byte);
                if self.line.len() > LINE {
                    return Err(Bad::Chunk);
                }
                continue;
            }
            if self.line.pop() != Some(b'\r') {
                return Err(Bad::Chunk);
            }
            self.state = self.end_of_line()?;
            self.line.clear();
        }
        Ok(at)
    }

    fn end_of_line(&mut self) -> Result<ChunkState, Bad> {
        match self.state {
            ChunkState::Size => {
                let digits = self.line.split(|b| *b == b';').next().unwrap_or_default().trim_ascii_end();
                let text = std::str::from_utf8(digits).map_err(|_| Bad::Chunk)?;
                if !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(Bad::Chunk);
                }
                match u64::from_str_radix(text, 16).map_err(|_| Bad::Chunk)? {
                    0 => Ok(ChunkState::Trailer),
                    size => Ok(ChunkState::Data(size)),
                }
            }
            ChunkState::DataEnd if self.line.is_empty() => Ok(ChunkState::Size),
            ChunkState::Trailer if self.line.is_empty() => Ok(ChunkState::Done),
            ChunkState::Trailer if self.trailers.len() < TRAILERS => {
                let colon = self.line.iter().position(|b| *b == b':').ok_or(Bad::Chunk)?;
                let name = std::str::from_utf8(&self.line[..colon]).map_err(|_| Bad::Chunk)?;
                self.trailers.push((name.into(), self.line[colon + 1..].trim_ascii().into()));
                Ok(ChunkState::Trailer)
            }
            _ => Err(Bad::Chunk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Body), Bad> {
        let mut body = Body::Chunked(Chunk::default());
        let mut content = Vec::new();
        for part in bytes.chunks(step) {
            let taken = body.take(part, |b| content.extend_from_slice(b))?;
            assert!(taken == part.len() || body.is_done());
        }
        Ok((content, body))
    }

    #[test]
    fn chunks_are_read_in_any_portion() {
        let bytes = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n";
        for step in 1..=bytes.len() {
            let (content, body) = body(bytes, step).unwrap();
            assert_eq!(content, b"hello world", "{step}");
            assert!(body.is_done(), "{step}");
            assert_eq!(body.trailers(), [("X-Sum".to_owned(), b"1".to_vec())]);
        }
    }

    #[test]
    fn chunks_that_are_none_are_refused() {
        for bytes in [
            &b"x\r\n"[..],
            b"5\nhello",
            b"5\r\nhelloworld\r\n",
            b"\r\n",
            b"+5\r\n",
            b"10000000000000000\r\n",
            b"0\r\nno colon\r\n",
        ] {
            assert_eq!(body(bytes, bytes.len()).unwrap_err(), Bad::Chunk, "{bytes:?}");
        }
    }

    #[test]
    fn heads_tell_how_the_body_is_framed() {
        let read = |fields: &str| head(format!("POST / HTTP/1.1\r\n{fields}\r\n").as_bytes());
        assert_eq!(read("Content-Length: 3\r\n").unwrap().unwrap().body, Body::Sized(3));
        assert_eq!(read("content-length: 3\r\nContent-Length: 3\r\n").unwrap().unwrap().body, Body::Sized(3));
        assert_eq!(read("").unwrap().unwrap().body, Body::Sized(0));
        assert!(matches!(read("Transfer-Encoding: chunked\r\n").unwrap().unwrap().body, Body::Chunked(_)));
        for bad in [
            "Content-Length: 3\r\nContent-Length: 4\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(read(bad), Err(Bad::Framing), "{bad}");
        }
    }

    #[test]
    fn heads_tell_whether_the_connection_stays() {
        let close = |text: &str| head(text.as_bytes()).unwrap().unwrap().close;
        assert!(!close("GET / HTTP/1.1\r\n\r\n"));
        assert!(close("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n"));
        assert!(close("GET / HTTP/1.0\r\n\r\n"));
        assert!(!close("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert_eq!(head(b"GET / HTTP/1.1\r\nHost: x\r\n"), Ok(None));
        assert_eq!(head(b"GET / HTTP/9\r\n\r\n"), Err(Bad::Head));
    }
}
