//! Response reader: a small parser of HTTP/1.1 responses (RFC 9112).
//!
//! Content is counted; it is captured only on request. The parser is strict enough to notice a
//! server that frames its responses wrongly. On a kept-alive connection the next response of such a
//! server would be measured wrongly.
//!
//! Owns: where a response ends, its status, and whether the connection can be reused. Does not own:
//! sockets.

/// Summary of a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseSummary {
    pub(crate) status: u16,
    /// `true` if the connection can carry another request.
    pub(crate) reusable: bool,
}

/// A response breaks the protocol; holds what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProtocolViolation(pub(crate) &'static str);

/// Bytes read at once, and the initial size of the head buffer.
const READ_SIZE: usize = 16 * 1024;
/// Longest response head in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// Longest chunk-size line or trailer line in bytes.
const MAX_LINE: usize = 4096;
/// Default limit of the captured content of one response, in bytes.
const MAX_CONTENT: usize = 1024 * 1024;

/// Captured head and content of a response.
#[derive(Debug, Default)]
pub(crate) struct CapturedResponse {
    /// Status line and header lines, with the empty line that ends them.
    pub(crate) head: Vec<u8>,
    /// Content without its framing.
    pub(crate) content: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// In content of known length; holds the bytes still to come.
    Length(u64),
    /// At the start of a chunk-size line.
    ChunkSize,
    /// Inside a chunk; holds the bytes still to come.
    Chunk(u64),
    /// At the line end that closes a chunk.
    ChunkEnd,
    /// In the trailer section.
    Trailer,
    /// In content that ends when the connection closes.
    UntilClose,
}

/// Reads consecutive responses from a byte stream.
pub(crate) struct ResponseReader {
    buffer: Vec<u8>,
    filled: usize,
    state: State,
    status: u16,
    reusable: bool,
    /// `true` if the requests are `HEAD`, whose responses have no content.
    head_only: bool,
    keep: Capture,
    captured: CapturedResponse,
}

/// Which part of a response is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capture {
    Nothing,
    Heads,
    /// Head and content, of which the caller takes each part as it arrives.
    Passing,
    /// Head and content. A response with more content bytes than this is an error.
    All(usize),
}

impl ResponseReader {
    pub(crate) fn new(head_only: bool) -> Self {
        Self {
            buffer: vec![0; READ_SIZE],
            filled: 0,
            state: State::Head,
            status: 0,
            reusable: true,
            head_only,
            keep: Capture::Nothing,
            captured: CapturedResponse::default(),
        }
    }

    /// Creates a reader that captures each response. [`ResponseReader::take_captured`] returns it.
    pub(crate) fn with_capture() -> Self {
        Self::with_capture_limit(MAX_CONTENT)
    }

    /// Like [`ResponseReader::with_capture`], with `most` as the limit of the content in bytes.
    pub(crate) fn with_capture_limit(most: usize) -> Self {
        Self { keep: Capture::All(most), ..Self::new(false) }
    }

    /// Creates a reader that captures the head of each response and only counts its content.
    pub(crate) fn with_head_capture(head_only: bool) -> Self {
        Self { keep: Capture::Heads, ..Self::new(head_only) }
    }

    /// Creates a reader for responses of any length: what it captures is taken after each read, and
    /// includes bytes that follow a 101.
    pub(crate) fn with_events() -> Self {
        Self { keep: Capture::Passing, ..Self::new(false) }
    }

    /// Status of the response whose head was read last.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Takes what was captured of the last response; empty if nothing is captured.
    pub(crate) fn take_captured(&mut self) -> CapturedResponse {
        std::mem::take(&mut self.captured)
    }

    fn keep(&mut self, from: usize, until: usize) -> Result<(), ProtocolViolation> {
        let most = match self.keep {
            Capture::Nothing | Capture::Heads => None,
            Capture::All(most) => Some(most),
            Capture::Passing => Some(usize::MAX),
        };
        if let Some(most) = most {
            if self.captured.content.len() + (until - from) > most {
                return Err(ProtocolViolation("the response content exceeds the capture limit"));
            }
            self.captured.content.extend_from_slice(&self.buffer[from..until]);
        }
        Ok(())
    }

    /// Buffer for the next bytes of the stream. Pass their number to [`ResponseReader::filled`].
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Processes the `read` bytes that were put into [`ResponseReader::space`]. Returns `Some` when
    /// they complete a response.
    ///
    /// # Errors
    /// The response breaks the protocol.
    pub(crate) fn filled(&mut self, read: usize) -> Result<Option<ResponseSummary>, ProtocolViolation> {
        let searched = self.filled.saturating_sub(3);
        self.filled += read;
        let mut used = 0;
        let mut searched = searched;
        loop {
            let (taken, done) = self.step(used, searched.max(used))?;
            used += taken;
            searched = used;
            if done {
                return self.complete(used).map(Some);
            }
            if taken == 0 {
                break;
            }
        }
        self.buffer.copy_within(used..self.filled, 0);
        self.filled -= used;
        Ok(None)
    }

    /// Handles the end of the stream. It completes content without a length; in any other state the
    /// response is missing or incomplete, and the result is `None`.
    pub(crate) fn on_close(&self) -> Option<ResponseSummary> {
        (self.state == State::UntilClose).then_some(ResponseSummary { status: self.status, reusable: false })
    }

    /// Whether bytes of the next response have arrived.
    pub(crate) fn has_started(&self) -> bool {
        self.filled > 0 || self.state != State::Head
    }

    fn complete(&mut self, used: usize) -> Result<ResponseSummary, ProtocolViolation> {
        if used != self.filled && self.keep == Capture::Passing && self.status == 101 {
            self.keep(used, self.filled)?;
        } else if used != self.filled {
            return Err(ProtocolViolation("bytes follow the response"));
        }
        self.filled = 0;
        self.state = State::Head;
        Ok(ResponseSummary { status: self.status, reusable: self.reusable })
    }

    /// Processes the bytes at `used`. Returns how many it consumed, and whether the response is
    /// complete.
    fn step(&mut self, used: usize, searched: usize) -> Result<(usize, bool), ProtocolViolation> {
        let available = (self.filled - used) as u64;
        match self.state {
            State::Head => self.head(used, searched),
            State::Length(left) | State::Chunk(left) => {
                let taken = left.min(available);
                let left = left - taken;
                let done = left == 0 && matches!(self.state, State::Length(_));
                self.state = match self.state {
                    State::Length(_) => State::Length(left),
                    _ if left == 0 => State::ChunkEnd,
                    _ => State::Chunk(left),
                };
                let taken = usize::try_from(taken).expect("at most what is buffered");
                self.keep(used, used + taken)?;
                Ok((taken, done))
            }
            State::UntilClose => {
                self.keep(used, self.filled)?;
                Ok((self.filled - used, false))
            }
            State::ChunkSize | State::ChunkEnd | State::Trailer => self.line(used),
        }
    }

    /// Processes one line of the chunked coding (RFC 9112 §7.1).
    fn line(&mut self, used: usize) -> Result<(usize, bool), ProtocolViolation> {
        let bytes = &self.buffer[used..self.filled];
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            return if bytes.len() > MAX_LINE {
                Err(ProtocolViolation("line too long"))
            } else {
                Ok((0, false))
            };
        };
        let line = bytes[..end].strip_suffix(b"\r").ok_or(ProtocolViolation("line ends without CR"))?;
        let empty = line.is_empty();
        let mut done = false;
        self.state = match self.state {
            State::ChunkEnd if empty => State::ChunkSize,
            State::ChunkEnd => return Err(ProtocolViolation("chunk longer than its size")),
            State::ChunkSize => match chunk_size(line)? {
                0 => State::Trailer,
                size => State::Chunk(size),
            },
            state => {
                done = empty;
                state
            }
        };
        Ok((end + 1, done))
    }

    fn head(&mut self, used: usize, searched: usize) -> Result<(usize, bool), ProtocolViolation> {
        let Some(end) = head_end(&self.buffer[searched..self.filled]) else {
            return if self.filled - used >= MAX_HEAD {
                Err(ProtocolViolation("response head too large"))
            } else {
                Ok((0, false))
            };
        };
        let end = searched + end;
        let head = Head::parse(&self.buffer[used..end])?;
        let taken = end - used;
        if head.status < 200 && head.status != 101 {
            return Ok((taken, false));
        }
        if self.keep != Capture::Nothing {
            self.captured.head.clear();
            self.captured.head.extend_from_slice(&self.buffer[used..end]);
            self.captured.content.clear();
        }
        self.status = head.status;
        self.reusable = head.reusable;
        let empty = self.head_only || matches!(head.status, 101 | 204 | 304);
        if head.status == 101 {
            self.reusable = false;
        }
        if empty {
            return Ok((taken, true));
        }
        match (head.chunked, head.length) {
            (true, Some(_)) => return Err(ProtocolViolation("both a length and a transfer coding")),
            (true, None) => self.state = State::ChunkSize,
            (false, Some(0)) => return Ok((taken, true)),
            (false, Some(length)) => self.state = State::Length(length),
            (false, None) => {
                self.state = State::UntilClose;
                self.reusable = false;
            }
        }
        Ok((taken, false))
    }
}

/// Index after the empty line that ends a head.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = bytes[from..].iter().position(|&byte| byte == b'\n') {
        let at = from + found;
        if at >= 3 && bytes[at - 3..at] == *b"\r\n\r" {
            return Some(at + 1);
        }
        from = at + 1;
    }
    None
}

fn chunk_size(line: &[u8]) -> Result<u64, ProtocolViolation> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
    let text = std::str::from_utf8(digits).map_err(|_| ProtocolViolation("chunk size is not a number"))?;
    if text.is_empty() || text.starts_with('+') {
        return Err(ProtocolViolation("chunk size is not a number"));
    }
    u64::from_str_radix(text, 16).map_err(|_| ProtocolViolation("chunk size is not a number"))
}

/// The fields of a response head that decide its framing.
struct Head {
    status: u16,
    length: Option<u64>,
    chunked: bool,
    reusable: bool,
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self, ProtocolViolation> {
        let broken_line = ProtocolViolation("not an HTTP/1 status line");
        let mut lines =
            bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let line = lines.next().unwrap_or_default();
        let minor = match line.strip_prefix(b"HTTP/1.") {
            Some([minor @ (b'0' | b'1'), b' ', ..]) => *minor,
            _ => return Err(broken_line),
        };
        let digits =
            line.get(9..12).filter(|digits| digits.iter().all(u8::is_ascii_digit)).ok_or(broken_line)?;
        if !matches!(line.get(12), None | Some(b' ')) {
            return Err(broken_line);
        }
        let status = digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        if status < 100 {
            return Err(broken_line);
        }
        let mut head = Self { status, length: None, chunked: false, reusable: minor == b'1' };
        for line in lines.filter(|line| !line.is_empty()) {
            head.field(line)?;
        }
        Ok(head)
    }

    fn field(&mut self, line: &[u8]) -> Result<(), ProtocolViolation> {
        // Only three header fields decide the framing; their first letters exclude most others
        // cheaply.
        if !matches!(line[0] | 0x20, b'c' | b't') {
            return Ok(());
        }
        let colon = line
            .iter()
            .position(|&byte| byte == b':')
            .ok_or(ProtocolViolation("a header line has no colon"))?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(value).ok().filter(|_| digits);
            let length = text
                .and_then(|text| text.parse().ok())
                .ok_or(ProtocolViolation("content-length is not a number"))?;
            if self.length.replace(length).is_some_and(|earlier| earlier != length) {
                return Err(ProtocolViolation("two different content-lengths"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") || self.chunked {
                return Err(ProtocolViolation("a transfer coding other than chunked"));
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    self.reusable = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    self.reusable = true;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` in pieces of `piece` bytes. Returns the responses, and the one that the end of
    /// the stream completes, if any.
    fn read(
        bytes: &[u8],
        piece: usize,
        head_only: bool,
    ) -> Result<(Vec<ResponseSummary>, Option<ResponseSummary>), ProtocolViolation> {
        let mut reader = ResponseReader::new(head_only);
        let mut answers = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = reader.space();
            let part = piece.min(rest.len()).min(space.len());
            space[..part].copy_from_slice(&rest[..part]);
            answers.extend(reader.filled(part)?);
            rest = &rest[part..];
        }
        Ok((answers, reader.on_close()))
    }

    fn one(text: &str) -> Result<ResponseSummary, ProtocolViolation> {
        let mut seen = Vec::new();
        for piece in [1, 2, 3, 7, 4096] {
            let (answers, end) = read(text.as_bytes(), piece, false)?;
            seen.extend(answers.first().copied().or(end));
        }
        assert_eq!(seen.len(), 5, "an answer at every piece size");
        assert!(seen.iter().all(|answer| *answer == seen[0]));
        Ok(seen[0])
    }

    #[test]
    fn keeps_what_it_is_asked_to_keep() {
        let bytes =
            b"HTTP/1.1 200 OK\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        for piece in [1, 5, 4096] {
            let mut reader = ResponseReader::with_capture();
            for part in bytes.chunks(piece) {
                reader.space()[..part.len()].copy_from_slice(part);
                reader.filled(part.len()).unwrap();
            }
            let kept = reader.take_captured();
            assert_eq!(kept.content, b"abc");
            assert!(kept.head.starts_with(b"HTTP/1.1 200") && kept.head.ends_with(b"\r\n\r\n"));
            assert!(reader.take_captured().head.is_empty());
        }
    }

    #[test]
    fn finds_the_end_of_each_kind_of_content() {
        let ok = |reusable| ResponseSummary { status: 200, reusable };
        assert_eq!(one("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), Ok(ok(true)));
        assert_eq!(one("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n"), Ok(ok(true)));
        assert_eq!(
            one("HTTP/1.1 200 \r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\nab"),
            Ok(ok(false))
        );
        assert_eq!(one("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nab"), Ok(ok(false)));
        assert_eq!(
            one("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nab"),
            Ok(ok(true))
        );
        assert_eq!(one("HTTP/1.1 200 OK\r\n\r\nuntil close"), Ok(ok(false)));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nx: y\r\n\r\n";
        assert_eq!(one(chunked), Ok(ok(true)));
        assert_eq!(
            one("HTTP/1.1 204 No Content\r\n\r\n"),
            Ok(ResponseSummary { status: 204, reusable: true })
        );
        assert_eq!(
            one("HTTP/1.1 304 x\r\ncontent-length: 9\r\n\r\n"),
            Ok(ResponseSummary { status: 304, reusable: true })
        );
    }

    #[test]
    fn passes_over_interim_responses_and_stops_at_a_protocol_switch() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\nHTTP/1.1 404 N\r\ncontent-length: 1\r\n\r\nx";
        assert_eq!(one(text), Ok(ResponseSummary { status: 404, reusable: true }));
        assert_eq!(
            one("HTTP/1.1 101 S\r\nupgrade: x\r\n\r\n"),
            Ok(ResponseSummary { status: 101, reusable: false })
        );
    }

    #[test]
    fn answers_to_head_have_no_content() {
        let (answers, _) = read(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n", 9, true).unwrap();
        assert_eq!(answers, [ResponseSummary { status: 200, reusable: true }]);
    }

    #[test]
    fn reads_one_response_after_the_other() {
        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        let mut reader = ResponseReader::new(false);
        for _ in 0..3 {
            assert!(!reader.has_started());
            for (index, byte) in response.iter().enumerate() {
                reader.space()[0] = *byte;
                let answer = reader.filled(1).unwrap();
                assert_eq!(answer.is_some(), index + 1 == response.len());
            }
        }
    }

    #[test]
    fn large_heads_are_read_up_to_the_bound() {
        let head =
            |size: usize| format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "y".repeat(size));
        assert_eq!(read(head(40_000).as_bytes(), 1000, false).unwrap().0.len(), 1);
        assert_eq!(
            read(head(70_000).as_bytes(), 1000, false),
            Err(ProtocolViolation("response head too large"))
        );
    }

    #[test]
    fn names_what_is_wrong() {
        for (text, why) in [
            ("SSH-2.0-x\r\n\r\n", "not an HTTP/1 status line"),
            ("HTTP/1.1 20x OK\r\n\r\n", "not an HTTP/1 status line"),
            ("HTTP/1.1 2000\r\n\r\n", "not an HTTP/1 status line"),
            ("HTTP/1.1 099 x\r\n\r\n", "not an HTTP/1 status line"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
                "two different content-lengths",
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n", "content-length is not a number"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
                "both a length and a transfer coding",
            ),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", "a transfer coding other than chunked"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab", "bytes follow the response"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "chunk size is not a number"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n+1\r\n", "chunk size is not a number"),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
                "chunk longer than its size",
            ),
            ("HTTP/1.1 200 OK\r\nconnection\r\n\r\n", "a header line has no colon"),
        ] {
            assert_eq!(read(text.as_bytes(), 4096, false), Err(ProtocolViolation(why)), "{text}");
        }
    }
}
