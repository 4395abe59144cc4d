//! HTTP/1 heads: a strict parser (RFC 9112), without I/O.
//!
//! Owns: the end of a head, its request or status line, its fields and the body framing. Input that
//! two parsers could read differently is refused, never repaired. Examples are bare CR or LF,
//! folded lines, a space before a colon, repeated or signed lengths. So are `Content-Length`
//! together with `Transfer-Encoding`, and codings other than a single `chunked`. `httparse` splits
//! lines into tokens. Does not own: sockets, the meaning of a request.

use arrayvec::ArrayVec;
use auth::request::{Field, Scheme};

/// Maximum number of fields in a head; the configuration can only lower it.
pub(crate) const MAX_FIELDS: usize = 128;

/// Maximum number of fields that `Connection` may nominate in one head: every field of the head is
/// compared with each of them.
pub(crate) const MAX_NOMINATED: usize = 16;

/// Fields of a head. The array takes 4 KiB on the stack, so parsers fill it in place and do not
/// return it.
pub type Fields<'a> = ArrayVec<Field<'a>, MAX_FIELDS>;

/// Why a head is refused. The gateway answers each with an error and closes the connection, because
/// the bytes that follow can no longer be framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// A line ends with LF alone, or contains a bare CR.
    #[error("line not ended by CRLF")]
    BareLineEnd,
    /// A field line starts with white space (obs-fold, RFC 9112 §5.2).
    #[error("folded field line")]
    Folded,
    /// The first line is not a valid request line or status line.
    #[error("malformed first line")]
    FirstLine,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    #[error("unsupported HTTP version")]
    Version,
    /// A field line is not a valid `name: value` (RFC 9110 §5).
    #[error("malformed field line")]
    FieldLine,
    /// The head has more fields than allowed.
    #[error("too many fields")]
    TooManyFields,
    /// `Connection` nominates more fields than allowed.
    #[error("too many connection options")]
    TooManyOptions,
    /// The head has more bytes than allowed.
    #[error("head too large")]
    TooLarge,
    /// The request target is longer than allowed.
    #[error("request target too long")]
    TargetTooLong,
    /// `Content-Length` is repeated or not a decimal number (RFC 9112 §6.3).
    #[error("malformed or repeated content-length")]
    ContentLength,
    /// `Transfer-Encoding` is repeated or not exactly `chunked`.
    #[error("unsupported or repeated transfer-encoding")]
    TransferEncoding,
    /// `Transfer-Encoding` in an HTTP/1.0 message (RFC 9112 §6.1).
    #[error("transfer-encoding in an HTTP/1.0 message")]
    TransferEncodingInHttp10,
    /// `Content-Length` and `Transfer-Encoding` in one head (RFC 9112 §6.1).
    #[error("content-length beside transfer-encoding")]
    BothLengths,
    /// More than one `Host` field (RFC 9112 §3.2).
    #[error("repeated host")]
    RepeatedHost,
    /// More than one `Upgrade` field (RFC 9110 §7.8). One field can list all protocols, and only
    /// one is checked.
    #[error("repeated upgrade")]
    RepeatedUpgrade,
    /// An HTTP/1.1 request without `Host`, even with an absolute-form target (RFC 9112 §3.2).
    #[error("no host")]
    MissingHost,
}

impl HeadFault {
    /// Stable code for logs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::BareLineEnd => "bare_line_end",
            Self::Folded => "folded_field",
            Self::FirstLine => "malformed_first_line",
            Self::Version => "http_version",
            Self::FieldLine => "malformed_field",
            Self::TooManyFields => "too_many_fields",
            Self::TooManyOptions => "too_many_options",
            Self::TooLarge => "head_too_large",
            Self::TargetTooLong => "target_too_long",
            Self::ContentLength => "content_length",
            Self::TransferEncoding => "transfer_encoding",
            Self::TransferEncodingInHttp10 => "transfer_encoding_in_http10",
            Self::BothLengths => "both_lengths",
            Self::RepeatedHost => "repeated_host",
            Self::RepeatedUpgrade => "repeated_upgrade",
            Self::MissingHost => "missing_host",
        }
    }
}

/// Finds the end of a head while bytes arrive. Examines each byte once, however slowly they arrive.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct HeadScanner {
    /// Offset of the current line.
    line: usize,
    /// Number of bytes examined.
    scanned: usize,
    /// Number of complete lines, the first line included.
    lines: usize,
}

impl HeadScanner {
    /// Length of the head in `buf` with its final empty line; `None`: it is incomplete. `buf` must
    /// start with the same bytes on each call. Empty lines before the request line count as part of
    /// the head: RFC 9112 §2.2 lets a server skip them, and the size of the head limits their
    /// number.
    pub(crate) fn scan(&mut self, buf: &[u8], max_fields: usize) -> Result<Option<usize>, HeadFault> {
        while let Some(offset) = memchr::memchr(b'\n', &buf[self.scanned..]) {
            let end = self.scanned + offset;
            if end == self.line || buf[end - 1] != b'\r' {
                return Err(HeadFault::BareLineEnd);
            }
            let empty = end - 1 == self.line;
            self.scanned = end + 1;
            self.line = end + 1;
            if !empty {
                self.lines += 1;
                if self.lines > max_fields.min(MAX_FIELDS) + 1 {
                    return Err(HeadFault::TooManyFields);
                }
            } else if self.lines > 0 {
                *self = Self::default();
                return Ok(Some(end + 1));
            }
        }
        self.scanned = buf.len();
        Ok(None)
    }
}

/// HTTP/1 minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no transfer codings; the connection closes unless keep-alive is requested.
    Http10,
    /// HTTP/1.1: connections persist by default.
    Http11,
}

/// How the end of a message body is determined (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After this number of bytes; 0: no body.
    Length(u64),
    /// By the chunked transfer coding.
    Chunked,
    /// By the close of the connection (responses only).
    UntilClose,
}

/// A parsed request head that borrows from the read buffer.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// Request method, case-sensitive.
    pub method: &'a str,
    /// Request target as received.
    pub target: &'a [u8],
    /// HTTP minor version.
    pub version: Version,
    /// Framing of the body.
    pub framing: Framing,
    /// Whether `Content-Length` is present, even if it is 0.
    pub has_length: bool,
    /// The fields that control the connection.
    pub connection: ConnectionFields<'a>,
}

/// Values of the fields that control the connection.
#[derive(Debug, Default, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own that a client may set")]
pub struct ConnectionFields<'a> {
    /// `Connection: close` is present.
    pub close: bool,
    /// `Connection: keep-alive` is present.
    pub keep_alive: bool,
    /// `Connection: upgrade` is present, so `Upgrade` is valid.
    pub upgrade: bool,
    /// Value of the `Upgrade` field.
    pub protocol: Option<&'a [u8]>,
    /// Value of the `Host` field.
    pub host: Option<&'a [u8]>,
    /// Whether `Connection` nominates other fields, besides the three options above.
    pub nominates: bool,
    /// `Expect: 100-continue` is present.
    pub expect_continue: bool,
}

impl ConnectionFields<'_> {
    /// Whether the connection persists after this message (RFC 9112 §9.3).
    pub fn persists(&self, version: Version) -> bool {
        match version {
            Version::Http11 => !self.close,
            Version::Http10 => self.keep_alive && !self.close,
        }
    }
}

/// Parses a complete request head as found by [`HeadScanner`]. `fields` receives all fields in
/// order, with trimmed values.
pub fn parse_request<'a>(
    head: &'a [u8],
    target_bytes: usize,
    fields: &mut Fields<'a>,
) -> Result<RequestHead<'a>, HeadFault> {
    let mut lines = [const { std::mem::MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut lines) {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Ok(_) => return Err(HeadFault::FirstLine),
        Err(e) => return Err(fault(e, head)),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(HeadFault::FirstLine);
    };
    if target.len() > target_bytes {
        return Err(HeadFault::TargetTooLong);
    }
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let mut steering = Steering::default();
    for line in request.headers.iter() {
        steering.push(line, fields)?;
    }
    let Steering { connection, coding, length, upgrades, .. } = steering;
    if upgrades > 1 {
        return Err(HeadFault::RepeatedUpgrade);
    }
    if version == Version::Http11 && connection.host.is_none() {
        return Err(HeadFault::MissingHost);
    }
    let framing = match (coding, length) {
        (true, Some(_)) => return Err(HeadFault::BothLengths),
        (true, None) if version == Version::Http10 => return Err(HeadFault::TransferEncodingInHttp10),
        (true, None) => Framing::Chunked,
        (false, length) => Framing::Length(length.unwrap_or(0)),
    };
    let has_length = length.is_some();
    Ok(RequestHead { method, target: target.as_bytes(), version, framing, has_length, connection })
}

/// Splits a request target into authority and origin-form target (RFC 9112 §3.2). Origin form and
/// asterisk form have no authority. `None`: an absolute form with a scheme other than the
/// connection's, or whose authority is empty or not ASCII; no route serves such a target.
pub fn parse_target(target: &[u8], scheme: Scheme) -> Option<(Option<&[u8]>, &[u8])> {
    if matches!(target, [b'/', ..] | b"*") {
        return Some((None, target));
    }
    let at = scheme.as_str().len();
    let rest = target
        .get(..at)
        .filter(|s| s.eq_ignore_ascii_case(scheme.as_str().as_bytes()))
        .and_then(|_| target[at..].strip_prefix(b"://"))?;
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match path {
        _ if authority.is_empty() || !authority.is_ascii() => None,
        [] => Some((Some(authority), b"/")),
        [b'/', ..] => Some((Some(authority), path)),
        // `http://host?query` means the path `/`, which is not in the buffer to borrow. Refused
        // rather than constructed.
        _ => None,
    }
}

/// A parsed response head.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    /// Status code, 100 to 999.
    pub status: u16,
    /// HTTP minor version.
    pub version: Version,
    /// Framing of the body, if the request method was not HEAD.
    pub framing: Framing,
    /// The fields that control the connection.
    pub connection: ConnectionFields<'a>,
}

/// Parses a complete response head; `fields` as with [`parse_request`].
pub fn parse_response<'a>(head: &'a [u8], fields: &mut Fields<'a>) -> Result<ResponseHead<'a>, HeadFault> {
    let mut lines = [const { std::mem::MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, head, &mut lines);
    match parsed {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Ok(_) => return Err(HeadFault::FirstLine),
        Err(e) => return Err(fault(e, head)),
    }
    let (Some(status @ 100..), Some(minor)) = (response.code, response.version) else {
        return Err(HeadFault::FirstLine);
    };
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let mut steering = Steering::default();
    for line in response.headers.iter() {
        steering.push(line, fields)?;
    }
    let Steering { connection, coding, length, .. } = steering;
    let framing = match (coding, length) {
        // A response with both is a smuggling attempt or broken, and its body cannot be framed.
        (true, Some(_)) => return Err(HeadFault::BothLengths),
        (true, None) if version == Version::Http10 => return Err(HeadFault::TransferEncodingInHttp10),
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    };
    let framing = if matches!(status, 100..=199 | 204 | 304) { Framing::Length(0) } else { framing };
    Ok(ResponseHead { status, version, framing, connection })
}

fn fault(e: httparse::Error, head: &[u8]) -> HeadFault {
    match e {
        httparse::Error::TooManyHeaders => HeadFault::TooManyFields,
        httparse::Error::Version => HeadFault::Version,
        httparse::Error::NewLine => HeadFault::BareLineEnd,
        httparse::Error::Token | httparse::Error::Status => HeadFault::FirstLine,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => {
            // A line after the first that starts with white space is a folded field (RFC 9112
            // §5.2).
            let folded = head.windows(3).any(|w| w[..2] == *b"\r\n" && matches!(w[2], b' ' | b'\t'));
            if folded { HeadFault::Folded } else { HeadFault::FieldLine }
        }
    }
}

/// Collects the fields that control framing and the connection.
#[derive(Default)]
struct Steering<'a> {
    connection: ConnectionFields<'a>,
    coding: bool,
    length: Option<u64>,
    nominated: usize,
    upgrades: usize,
}

impl<'a> Steering<'a> {
    fn push(&mut self, line: &httparse::Header<'a>, fields: &mut Fields<'a>) -> Result<(), HeadFault> {
        let value = trim(line.value);
        let name = line.name;
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                once(&mut self.connection.host, value, HeadFault::RepeatedHost)?;
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                self.connection.expect_continue = value.eq_ignore_ascii_case(b"100-continue");
            }
            7 if name.eq_ignore_ascii_case("upgrade") => {
                self.connection.protocol = Some(value);
                self.upgrades += 1;
            }
            10 if name.eq_ignore_ascii_case("connection") => self.connection_options(value)?,
            14 if name.eq_ignore_ascii_case("content-length") => {
                once(&mut self.length, parse_length(value)?, HeadFault::ContentLength)?;
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if self.coding || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HeadFault::TransferEncoding);
                }
                self.coding = true;
            }
            _ => {}
        }
        fields.try_push(Field { name, value }).map_err(|_| HeadFault::TooManyFields)
    }

    fn connection_options(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        for option in connection_options(value) {
            match option {
                ConnectionOption::Close => self.connection.close = true,
                ConnectionOption::Upgrade => self.connection.upgrade = true,
                ConnectionOption::KeepAlive => self.connection.keep_alive = true,
                ConnectionOption::Field(_) => self.nominated += 1,
            }
        }
        self.connection.nominates = self.nominated > 0;
        if self.nominated > MAX_NOMINATED { Err(HeadFault::TooManyOptions) } else { Ok(()) }
    }
}

/// An option of a `Connection` field (RFC 9110 §7.6.1).
pub(crate) enum ConnectionOption<'a> {
    Close,
    KeepAlive,
    Upgrade,
    /// The field with this name is hop-by-hop.
    Field(&'a [u8]),
}

/// The options in the value of a `Connection` field.
pub(crate) fn connection_options(value: &[u8]) -> impl Iterator<Item = ConnectionOption<'_>> {
    let options = value.split(|b| *b == b',').map(trim).filter(|option| !option.is_empty());
    options.map(|option| match option.len() {
        5 if option.eq_ignore_ascii_case(b"close") => ConnectionOption::Close,
        7 if option.eq_ignore_ascii_case(b"upgrade") => ConnectionOption::Upgrade,
        10 if option.eq_ignore_ascii_case(b"keep-alive") => ConnectionOption::KeepAlive,
        _ => ConnectionOption::Field(option),
    })
}

/// Stores a value that may occur only once.
fn once<T>(slot: &mut Option<T>, value: T, fault: HeadFault) -> Result<(), HeadFault> {
    slot.replace(value).map_or(Ok(()), |_| Err(fault))
}

/// A decimal length of at most 2^63 - 1, without sign, list or white space (RFC 9112 §6.3).
fn parse_length(value: &[u8]) -> Result<u64, HeadFault> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return Err(HeadFault::ContentLength);
    }
    let n = value.iter().fold(0u64, |n, d| n.wrapping_mul(10).wrapping_add(u64::from(d - b'0')));
    if n > i64::MAX as u64 { Err(HeadFault::ContentLength) } else { Ok(n) }
}

/// The value without leading and trailing optional white space (RFC 9110 §5.6.3).
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Result<RequestHead<'_>, HeadFault> {
        parse_request(text.as_bytes(), 8192, &mut Fields::new())
    }

    #[test]
    fn scanner_finds_the_end_one_byte_at_a_time() {
        let head = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        let mut scanner = HeadScanner::default();
        for n in 0..head.len() - 4 {
            assert_eq!(scanner.scan(&head[..n], 100), Ok(None), "at {n}");
        }
        assert_eq!(scanner.scan(head, 100), Ok(Some(head.len() - 4)));
    }

    #[test]
    fn scanner_refuses_bare_line_feeds_and_too_many_lines() {
        for head in ["GET / HTTP/1.1\nHost: a\r\n\r\n", "\nGET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n\n"] {
            assert_eq!(
                HeadScanner::default().scan(head.as_bytes(), 100),
                Err(HeadFault::BareLineEnd),
                "{head:?}"
            );
        }
        let many = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(5));
        assert_eq!(HeadScanner::default().scan(many.as_bytes(), 4), Err(HeadFault::TooManyFields));
        assert_eq!(HeadScanner::default().scan(many.as_bytes(), 5), Ok(None));
    }

    #[test]
    fn framing_follows_the_one_length_field() {
        let head = request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n").unwrap();
        assert_eq!(head.framing, Framing::Length(12));
        let head = request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n").unwrap();
        assert_eq!(head.framing, Framing::Chunked);
        assert_eq!(request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().framing, Framing::Length(0));
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        let cases = [
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", HeadFault::BothLengths),
            ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", HeadFault::BothLengths),
            ("Content-Length: 1\r\nContent-Length: 1\r\n", HeadFault::ContentLength),
            ("Content-Length: 1, 1\r\n", HeadFault::ContentLength),
            ("Content-Length: +1\r\n", HeadFault::ContentLength),
            ("Content-Length: -1\r\n", HeadFault::ContentLength),
            ("Content-Length: 0x1\r\n", HeadFault::ContentLength),
            ("Content-Length: \r\n", HeadFault::ContentLength),
            ("Content-Length: 99999999999999999999\r\n", HeadFault::ContentLength),
            ("Content-Length: 9999999999999999999\r\n", HeadFault::ContentLength),
            ("Transfer-Encoding: chunked, chunked\r\n", HeadFault::TransferEncoding),
            ("Transfer-Encoding: gzip, chunked\r\n", HeadFault::TransferEncoding),
            ("Transfer-Encoding: identity\r\n", HeadFault::TransferEncoding),
            ("Transfer-Encoding: xchunked\r\n", HeadFault::TransferEncoding),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", HeadFault::TransferEncoding),
            ("Transfer-Encoding: \x0bchunked\r\n", HeadFault::FieldLine),
            ("Transfer-Encoding : chunked\r\n", HeadFault::FieldLine),
            (" Folded: yes\r\n", HeadFault::Folded),
            ("X: a\r\n b\r\n", HeadFault::Folded),
            ("X: a\rb\r\n", HeadFault::FieldLine),
            ("X: a\0b\r\n", HeadFault::FieldLine),
            ("X y: a\r\n", HeadFault::FieldLine),
            ("Host: b\r\n", HeadFault::RepeatedHost),
            ("Upgrade: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n", HeadFault::RepeatedUpgrade),
        ];
        for (fields, expected) in cases {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            assert_eq!(request(&text).map(|h| h.framing), Err(expected), "{fields:?}");
        }
        let old = "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(request(old).unwrap_err(), HeadFault::TransferEncodingInHttp10);
    }

    #[test]
    fn first_line_is_exact() {
        for line in [
            "GET / HTTP/1.2",
            "GET / HTTP/2.0",
            "GET  / HTTP/1.1",
            "GET /",
            "GET / HTTP/1.1 ",
            " GET / HTTP/1.1",
        ] {
            let text = format!("{line}\r\nHost: a\r\n\r\n");
            assert!(request(&text).is_err(), "{line:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(8192));
        assert_eq!(request(&long).unwrap_err(), HeadFault::TargetTooLong);
    }

    #[test]
    fn http_1_1_names_its_host() {
        for target in ["/", "http://a/"] {
            let text = format!("GET {target} HTTP/1.1\r\nAccept: */*\r\n\r\n");
            assert_eq!(request(&text).err(), Some(HeadFault::MissingHost), "{target}");
            let old = format!("GET {target} HTTP/1.0\r\nAccept: */*\r\n\r\n");
            assert_eq!(request(&old).err(), None, "{target}");
        }
    }

    #[test]
    fn absolute_form_is_split_and_only_our_scheme_is_served() {
        let split = |t: &'static str| parse_target(t.as_bytes(), Scheme::Http);
        assert_eq!(split("/a?b"), Some((None, b"/a?b".as_slice())));
        assert_eq!(split("*"), Some((None, b"*".as_slice())));
        assert_eq!(split("HTTP://h:1/a?b"), Some((Some(b"h:1".as_slice()), b"/a?b".as_slice())));
        assert_eq!(split("http://h"), Some((Some(b"h".as_slice()), b"/".as_slice())));
        for refused in ["https://h/", "http:///a", "http://h?a", "http://b\u{fc}cher/", "h:443", "a", ""] {
            assert_eq!(split(refused), None, "{refused}");
        }
    }

    #[test]
    fn persistence_follows_version_and_connection() {
        let persists = |version: &str, connection: &str| {
            let text = format!("GET / {version}\r\nHost: a\r\n{connection}\r\n");
            let head = request(&text).unwrap();
            head.connection.persists(head.version)
        };
        assert!(persists("HTTP/1.1", ""));
        assert!(!persists("HTTP/1.1", "Connection: close\r\n"));
        assert!(!persists("HTTP/1.1", "Connection: x, Close\r\n"));
        assert!(!persists("HTTP/1.0", ""));
        assert!(persists("HTTP/1.0", "Connection: keep-alive\r\n"));
        assert!(!persists("HTTP/1.0", "Connection: keep-alive, close\r\n"));
    }

    #[test]
    fn few_fields_are_nominated() {
        let options = |n: usize| (0..n).map(|i| format!("x-{i}")).collect::<Vec<_>>().join(", ");
        let usual = "close, Keep-Alive,, upgrade,".repeat(40);
        let nominates = |fields: &str| {
            let head = request(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
                .map(|h| h.connection.nominates);
            let response = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            let response = parse_response(response.as_bytes(), &mut Fields::new());
            assert_eq!(response.map(|h| h.connection.nominates), head, "{fields}");
            head
        };
        assert_eq!(nominates(&format!("Connection: {usual}\r\n")), Ok(false));
        assert_eq!(nominates(&format!("Connection: {usual}{}\r\n", options(16))), Ok(true));
        let two = format!("connection: {}\r\nConnection: {}\r\n", options(9), options(7));
        assert_eq!(nominates(&two), Ok(true));
        let three = format!("{two}Connection: y\r\n");
        for refused in [format!("Connection: {}\r\n", options(17)), "Connection: a,a,a\r\n".repeat(6), three]
        {
            assert_eq!(nominates(&refused), Err(HeadFault::TooManyOptions), "{refused}");
        }
    }

    #[test]
    fn responses_frame_by_status_then_fields() {
        let framing = |text: &str| parse_response(text.as_bytes(), &mut Fields::new()).map(|h| h.framing);
        assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"), Ok(Framing::Length(3)));
        assert_eq!(framing("HTTP/1.1 200 OK\r\n\r\n"), Ok(Framing::UntilClose));
        assert_eq!(framing("HTTP/1.1 204 No Content\r\n\r\n"), Ok(Framing::Length(0)));
        assert_eq!(framing("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n"), Ok(Framing::Length(0)));
        assert_eq!(
            framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Err(HeadFault::BothLengths)
        );
        assert!(framing("HTTP/1.1 20 OK\r\n\r\n").is_err());
        assert!(framing("HTTP/1.1 099 OK\r\n\r\n").is_err());
    }
}
