//! HTTP/1 heads: a strict parser (RFC 9112), without I/O.
//!
//! Owns: the end of a head, its request or status line, its fields and the body framing. Input that
//! two parsers could read differently is refused, never repaired. Examples are bare CR or LF,
//! folded lines, a space before a colon, repeated or signed lengths. So are `Content-Length`
//! together with `Transfer-Encoding`, and codings other than a single `chunked`. `httparse` splits
//! lines into tokens. Does not own: sockets, the meaning of a request.

mod block;
mod scan;

use arrayvec::ArrayVec;
use auth::request::{Field, Scheme};

pub use self::block::{BlockFacts, BlockId, BlockMemory, HeaderBlock};
pub(crate) use self::block::{MAX_BLOCK, Repetitions, range};
pub(crate) use self::scan::HeadScanner;
pub use self::scan::{HeadLength, head_length};

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
    /// Whether `Accept` names HTML, as browsers do when they navigate.
    pub accepts_html: bool,
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

/// Whether a value of `Accept` names HTML, with whatever weight.
pub fn names_html(accept: &[u8]) -> bool {
    const HTML: &[u8] = b"text/html";
    accept.windows(HTML.len()).any(|part| part.eq_ignore_ascii_case(HTML))
}

/// Parses a complete request head, as long as [`head_length`] says. `fields` receives all fields in
/// order, with trimmed values.
pub fn parse_request<'a>(
    head: &'a [u8],
    target_bytes: usize,
    fields: &mut Fields<'a>,
) -> Result<RequestHead<'a>, HeadFault> {
    parse_to_remember(head, target_bytes, fields).map(|(head, _)| head)
}

/// As [`parse_request`], with what a connection can remember of the fields ([`BlockMemory`]).
pub fn parse_to_remember<'a>(
    head: &'a [u8],
    target_bytes: usize,
    fields: &mut Fields<'a>,
) -> Result<(RequestHead<'a>, BlockFacts), HeadFault> {
    let mut lines = [const { std::mem::MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut lines) {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Ok(_) => return Err(HeadFault::FirstLine),
        Err(e) => return Err(parse_fault(e, head)),
    }
    let line = RequestLine::new(&request, target_bytes)?;
    let mut steering = ControlFields::default();
    for line in request.headers.iter() {
        steering.push(line, fields)?;
    }
    if steering.upgrades > 1 {
        return Err(HeadFault::RepeatedUpgrade);
    }
    let facts = BlockFacts::new(&steering);
    let ControlFields { connection, coding, length, .. } = steering;
    Ok((line.head(connection, coding, length)?, facts))
}

/// The parts of a request line.
struct RequestLine<'a> {
    method: &'a str,
    target: &'a [u8],
    version: Version,
}

impl<'a> RequestLine<'a> {
    fn new(request: &httparse::Request<'_, 'a>, target_bytes: usize) -> Result<Self, HeadFault> {
        let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
        else {
            return Err(HeadFault::FirstLine);
        };
        if target.len() > target_bytes {
            return Err(HeadFault::TargetTooLong);
        }
        let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        Ok(Self { method, target: target.as_bytes(), version })
    }

    /// The head with this line and these fields, as far as they fit together.
    fn head(
        self,
        connection: ConnectionFields<'a>,
        coding: bool,
        length: Option<u64>,
    ) -> Result<RequestHead<'a>, HeadFault> {
        let Self { method, target, version } = self;
        if version == Version::Http11 && connection.host.is_none() {
            return Err(HeadFault::MissingHost);
        }
        let framing = match (coding, length) {
            (true, Some(_)) => return Err(HeadFault::BothLengths),
            (true, None) if version == Version::Http10 => {
                return Err(HeadFault::TransferEncodingInHttp10);
            }
            (true, None) => Framing::Chunked,
            (false, length) => Framing::Length(length.unwrap_or(0)),
        };
        Ok(RequestHead { method, target, version, framing, has_length: length.is_some(), connection })
    }
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

/// Parses a complete response head; `fields` as with [`parse_request`]. Also returns what a connection
/// can remember of the fields ([`BlockMemory`]).
pub(crate) fn parse_response<'a>(
    head: &'a [u8],
    fields: &mut Fields<'a>,
) -> Result<(ResponseHead<'a>, BlockFacts), HeadFault> {
    let mut lines = [const { std::mem::MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, head, &mut lines);
    match parsed {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Ok(_) => return Err(HeadFault::FirstLine),
        Err(e) => return Err(parse_fault(e, head)),
    }
    let line = StatusLine::new(&response)?;
    let mut steering = ControlFields { of_response: true, ..ControlFields::default() };
    for line in response.headers.iter() {
        steering.push(line, fields)?;
    }
    let facts = BlockFacts::new(&steering);
    let ControlFields { connection, coding, length, .. } = steering;
    Ok((line.head(connection, coding, length)?, facts))
}

/// The parts of a status line that count.
#[derive(Debug, Clone, Copy)]
struct StatusLine {
    status: u16,
    version: Version,
}

impl StatusLine {
    fn new(response: &httparse::Response<'_, '_>) -> Result<Self, HeadFault> {
        let (Some(status @ 100..), Some(minor)) = (response.code, response.version) else {
            return Err(HeadFault::FirstLine);
        };
        Ok(Self { status, version: if minor == 0 { Version::Http10 } else { Version::Http11 } })
    }

    /// The head with this line and these fields, as far as they fit together.
    fn head(
        self,
        connection: ConnectionFields<'_>,
        coding: bool,
        length: Option<u64>,
    ) -> Result<ResponseHead<'_>, HeadFault> {
        let Self { status, version } = self;
        let framing = match (coding, length) {
            // A response with both is a smuggling attempt or broken, and its body cannot be framed.
            (true, Some(_)) => return Err(HeadFault::BothLengths),
            (true, None) if version == Version::Http10 => {
                return Err(HeadFault::TransferEncodingInHttp10);
            }
            (true, None) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        };
        let framing = if matches!(status, 100..=199 | 204 | 304) { Framing::Length(0) } else { framing };
        Ok(ResponseHead { status, version, framing, connection })
    }
}

fn parse_fault(e: httparse::Error, head: &[u8]) -> HeadFault {
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
struct ControlFields<'a> {
    /// Whether an identical length may be repeated, in a list or in several fields (RFC 9110 §8.6).
    /// Only in a response: of a request it may be smuggling.
    of_response: bool,
    connection: ConnectionFields<'a>,
    coding: bool,
    length: Option<u64>,
    nominated: usize,
    upgrades: usize,
    /// Position of the `Host` field.
    host_at: Option<u16>,
    /// Position of the `Upgrade` field.
    protocol_at: Option<u16>,
}

impl<'a> ControlFields<'a> {
    fn push(&mut self, line: &httparse::Header<'a>, fields: &mut Fields<'a>) -> Result<(), HeadFault> {
        let value = trim(line.value);
        let name = line.name;
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                set_once(&mut self.connection.host, value, HeadFault::RepeatedHost)?;
                self.host_at = position(fields);
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                self.connection.expect_continue = value.eq_ignore_ascii_case(b"100-continue");
            }
            6 if name.eq_ignore_ascii_case("accept") => self.connection.accepts_html |= names_html(value),
            7 if name.eq_ignore_ascii_case("upgrade") => {
                self.connection.protocol = Some(value);
                self.protocol_at = position(fields);
                self.upgrades += 1;
            }
            10 if name.eq_ignore_ascii_case("connection") => self.connection_options(value)?,
            14 if name.eq_ignore_ascii_case("content-length") => {
                self.content_length(value)?;
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

    fn content_length(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        if !self.of_response {
            return set_once(&mut self.length, parse_length(value)?, HeadFault::ContentLength);
        }
        match parse_length(value) {
            Ok(length) => self.repeated_length(length),
            Err(_) => value
                .split(|b| *b == b',')
                .try_for_each(|length| self.repeated_length(parse_length(trim(length))?)),
        }
    }

    fn repeated_length(&mut self, length: u64) -> Result<(), HeadFault> {
        match self.length.replace(length) {
            Some(before) if before != length => Err(HeadFault::ContentLength),
            _ => Ok(()),
        }
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

/// The position of the field that follows.
fn position(fields: &Fields<'_>) -> Option<u16> {
    u16::try_from(fields.len()).ok()
}

/// Stores a value that may occur only once.
fn set_once<T>(slot: &mut Option<T>, value: T, fault: HeadFault) -> Result<(), HeadFault> {
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
mod tests;
